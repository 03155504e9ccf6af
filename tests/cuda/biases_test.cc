// Biases and masks in graphs: what later steps could read beyond is refused before anything is stored. What CUDA
// computes with them is tested by tests/kernels and capabilities_test.cc.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "arrays.h"
#include "server.h"

namespace kvt {
namespace {

TEST(CudaBiases, InAGraph) {
  setenv("KVC_TEST_DEVICE", "cuda", 1);
  const ContextPtr context = make_context();
  CacheSpec spec;
  spec.capacity_tokens = 64;
  const CachePtr cache = make_cache(context.get(), spec);
  kvc_error error = KVC_ERROR_INIT;
  kvc_seq seq = 0;
  ASSERT_EQ(kvc_seq_add(cache.get(), 1, &seq, &error), KVC_OK) << error.message;
  kvc_graph_config config;
  kvc_graph_config_init(&config);
  config.max_sequences = 1, config.max_tokens = 3;
  kvc_forward graph = 0, forward = 0;
  ASSERT_EQ(kvc_graph_create(cache.get(), &config, &graph, &error), KVC_OK) << error.message;
  const int32_t tokens = 3;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq, batch.append_lengths = &tokens, batch.num_sequences = 1, batch.graph = graph;
  ASSERT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &forward, &error), KVC_OK) << error.message;
  const LayerSpec& layer = spec.layers[0];
  Array q(DType::kF32, {tokens, layer.hq, layer.d}), k(DType::kF32, {tokens, layer.hkv, layer.d});
  Array rel_bias(DType::kF32, {layer.hq, 2}), key_bias(DType::kF32, {1, 64, 1});
  std::mt19937 random(3);
  for (Array* a : {&q, &k, &rel_bias, &key_bias}) a->fill_random(&random, 0.5f);
  Array v = k, out = q;
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = q.dl(), args.k = k.dl(), args.v = v.dl(), args.out = out.dl(), args.key_bias = key_bias.dl();
  EXPECT_EQ(kvc_forward_attend(cache.get(), forward, 0, &args, &error), KVC_ERROR_UNSUPPORTED);
  EXPECT_NE(std::strstr(error.message, "key_bias in a graph"), nullptr) << error.message;
  args.key_bias = nullptr, args.mask = key_bias.dl();
  EXPECT_EQ(kvc_forward_attend(cache.get(), forward, 0, &args, &error), KVC_ERROR_UNSUPPORTED);
  EXPECT_NE(std::strstr(error.message, "mask in a graph"), nullptr) << error.message;
  args.mask = nullptr, args.rel_bias = rel_bias.dl();  // K and V of this layer are still to be stored
  EXPECT_EQ(kvc_forward_attend(cache.get(), forward, 0, &args, &error), KVC_OK) << error.message;
  EXPECT_EQ(kvc_forward_end(cache.get(), forward, &error), KVC_OK) << error.message;
  EXPECT_EQ(kvc_graph_destroy(cache.get(), graph, &error), KVC_OK);
}

}  // namespace
}  // namespace kvt
