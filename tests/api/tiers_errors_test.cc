// Arguments that the calls of tiers refuse.
#include "tiers_fixture.h"

namespace kvt {
namespace {

TEST(TiersErrors, BadConfigsAreRefused) {
  const Folder folder;
  TieredEngine engine{TieredSpec{}};
  MemoryTier memory;
  const kvc_tier table = memory.table();
  kvc_tier broken = table, old = table;
  broken.poll = nullptr;
  old.version = KVC_TIER_VERSION + 1;
  const auto bad = [&](kvc_status status, auto change) {
    kvc_tier_config config;
    kvc_tier_config_init(&config);
    config.directory = folder.path.c_str();
    change(config);
    refused(engine.cache(), {status}, "kvc_cache_add_tier",
            [&](kvc_error *e) { return kvc_cache_add_tier(engine.cache(), &config, e); });
  };
  bad(KVC_ERROR_INVALID_ARGUMENT, [](kvc_tier_config &c) { c.directory = nullptr; });
  bad(KVC_ERROR_INVALID_ARGUMENT, [&](kvc_tier_config &c) { c.tier = &table; });
  bad(KVC_ERROR_INVALID_ARGUMENT, [](kvc_tier_config &c) { c.sync = 3; });
  bad(KVC_ERROR_INVALID_ARGUMENT, [](kvc_tier_config &c) { c.store = -1; });
  bad(KVC_ERROR_OUT_OF_RANGE, [](kvc_tier_config &c) { c.capacity_bytes = -1; });
  bad(KVC_ERROR_OUT_OF_RANGE, [](kvc_tier_config &c) { c.min_tokens = -1; });
  bad(KVC_ERROR_UNSUPPORTED, [](kvc_tier_config &c) { c.flags = 16; });
  bad(KVC_ERROR_INVALID_ARGUMENT, [](kvc_tier_config &c) { c.flags = KVC_TIER_PINNED; });
  bad(KVC_ERROR_INVALID_ARGUMENT, [](kvc_tier_config &c) { c.flags = KVC_TIER_HOST; });
  const auto host = [](kvc_tier_config &c) { c.directory = nullptr, c.flags = KVC_TIER_HOST, c.capacity_bytes = 4096; };
  bad(KVC_ERROR_INVALID_ARGUMENT, [&](kvc_tier_config &c) { host(c), c.tier = &table; });
  bad(KVC_ERROR_INVALID_ARGUMENT, [&](kvc_tier_config &c) { host(c), c.capacity_bytes = 4095; });
  bad(KVC_ERROR_INVALID_ARGUMENT, [](kvc_tier_config &c) { c.flags = KVC_TIER_BLOCKING | KVC_TIER_IO_URING; });
  bad(KVC_ERROR_INVALID_ARGUMENT, [&](kvc_tier_config &c) { host(c), c.flags |= KVC_TIER_BLOCKING; });
  bad(KVC_ERROR_INVALID_ARGUMENT,
      [&](kvc_tier_config &c) { c.directory = nullptr, c.tier = &table, c.flags = KVC_TIER_IO_URING; });
  const uint32_t pinned = KVC_TIER_HOST | KVC_TIER_PINNED;
  bad(KVC_ERROR_INVALID_ARGUMENT, [&](kvc_tier_config &c) { host(c), c.flags = pinned, c.capacity_bytes = 65535; });
  if (test_device().device_type == kDLCPU)
    bad(KVC_ERROR_UNSUPPORTED, [&](kvc_tier_config &c) { host(c), c.flags = pinned, c.capacity_bytes = 65536; });
  bad(KVC_ERROR_INVALID_ARGUMENT, [&](kvc_tier_config &c) { host(c), c.sync = KVC_TIER_SYNC_FULL; });
  bad(KVC_ERROR_INVALID_ARGUMENT, [&](kvc_tier_config &c) { host(c), c.capacity_bytes = int64_t{1} << 60; });
  bad(KVC_ERROR_INVALID_ARGUMENT,
      [&](kvc_tier_config &c) { c.directory = nullptr, c.tier = &table, c.capacity_bytes = 1; });
  bad(KVC_ERROR_INVALID_ARGUMENT, [&](kvc_tier_config &c) { c.directory = nullptr, c.tier = &broken; });
  bad(KVC_ERROR_UNSUPPORTED, [&](kvc_tier_config &c) { c.directory = nullptr, c.tier = &old; });
  Prefix without(10);
  refused(without.cache(), {KVC_ERROR_UNSUPPORTED}, "kvc_cache_add_tier", [&](kvc_error *e) {
    kvc_tier_config config;
    kvc_tier_config_init(&config);
    config.directory = folder.path.c_str();
    return kvc_cache_add_tier(without.cache(), &config, e);
  });
  for (int i = 0; i < 8; i++) EXPECT_EQ(engine.add(memory), KVC_OK);
  EXPECT_EQ(engine.add(memory), KVC_ERROR_UNSUPPORTED);
}

TEST(TiersErrors, BadLoadsAreRefused) {
  TieredEngine engine{TieredSpec{}};
  const Tokens prompt = count_to(8);
  kvc_prefix_query query = Prefix::query(prompt);
  kvc_prefix_load_options options;
  kvc_prefix_load_options_init(&options);
  kvc_job job = 0;
  const auto load = [&](kvc_error *e) { return kvc_prefix_load(engine.cache(), &query, &options, nullptr, &job, e); };
  refused(engine.cache(), {KVC_ERROR_UNSUPPORTED}, "kvc_prefix_load", load);
  int32_t descriptor = 0;
  refused(engine.cache(), {KVC_ERROR_UNSUPPORTED}, "kvc_cache_job_descriptor",
          [&](kvc_error *e) { return kvc_cache_job_descriptor(engine.cache(), &descriptor, e); });
  kvc_job_info info;
  kvc_job_info_init(&info);
  refused(engine.cache(), {KVC_ERROR_STALE_ID}, "kvc_job_poll",
          [&](kvc_error *e) { return kvc_job_poll(engine.cache(), 1, &info, e); });
  refused(engine.cache(), {KVC_ERROR_STALE_ID}, "kvc_job_cancel",
          [&](kvc_error *e) { return kvc_job_cancel(engine.cache(), 0, e); });
  MemoryTier tier;
  ASSERT_EQ(engine.add(tier), KVC_OK);
  options.token_ns = -1;
  refused(engine.cache(), {KVC_ERROR_OUT_OF_RANGE}, "kvc_prefix_load", load);
  options.token_ns = 0, options.priority = 101;
  refused(engine.cache(), {KVC_ERROR_OUT_OF_RANGE}, "kvc_prefix_load", load);
  options.priority = 0, options.time_to_live = -1;
  refused(engine.cache(), {KVC_ERROR_OUT_OF_RANGE}, "kvc_prefix_load", load);
  options.time_to_live = 0, query.num_tokens = -1;
  refused(engine.cache(), {KVC_ERROR_OUT_OF_RANGE}, "kvc_prefix_load", load);
}

}  // namespace
}  // namespace kvt
