// What the UCX transport refuses.
#include <gtest/gtest.h>
#include <kvcache_ucx.h>

TEST(UcxOpen, WhatIsRefused) {
  kvc_ucx_config config;
  kvc_ucx_config_init(&config);
  kvc_transport transport;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_ucx_transport_open(nullptr, &transport, &error), KVC_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(kvc_ucx_transport_open(&config, nullptr, &error), KVC_ERROR_NULL_ARGUMENT);
  config.reserved = 1;
  EXPECT_EQ(kvc_ucx_transport_open(&config, &transport, &error), KVC_ERROR_UNSUPPORTED);
  config.reserved = 0;
  config.struct_size = 8;
  EXPECT_EQ(kvc_ucx_transport_open(&config, &transport, &error), KVC_ERROR_STRUCT_SIZE);
  kvc_ucx_config_init(&config);
  config.transports = "none-such";
  EXPECT_EQ(kvc_ucx_transport_open(&config, &transport, &error), KVC_ERROR_IO) << error.message;
}
