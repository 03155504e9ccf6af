// Index keys on the device: the choice among them, and that they are stored, moved and exported.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "wrappers.h"

namespace kvt {
namespace {

TEST(Select, ChoosesAndStoresKeys) {
  setenv("KVC_TEST_DEVICE", "cuda", 1);
  const ContextPtr context = make_context();
  CacheSpec spec;
  spec.capacity_tokens = 64;
  LayerSpec layer{0, 4, 2, 16, 0, DType::kBF16};
  layer.keys_only = true;
  spec.layers = {LayerSpec{}, layer};
  const CachePtr cache = make_cache(context.get(), spec);
  kvc_error error = KVC_ERROR_INIT;
  kvc_seq seq = 0;
  ASSERT_EQ(kvc_seq_add(cache.get(), 1, &seq, &error), KVC_OK) << error.message;
  const int32_t tokens = 5;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq, batch.append_lengths = &tokens, batch.num_sequences = 1;
  kvc_forward forward = 0;
  ASSERT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &forward, &error), KVC_OK) << error.message;
  Tensor k(DType::kF32, {tokens, 2, 16}), q(DType::kF32, {tokens, 4, 16});
  for (int64_t t = 0; t < tokens; t++) {
    for (int h = 0; h < 4; h++) {
      for (int d = 0; d < 16; d++) q.set(t, h, d, 0.0f);
    }
    for (int h = 0; h < 2; h++) {
      for (int d = 0; d < 16; d++) k.set(t, h, d, static_cast<float>(t * 32 + h * 16 + d));
    }
  }
  kvc_append_args append;
  kvc_append_args_init(&append);
  append.k = k.dl();
  ASSERT_EQ(kvc_forward_append(cache.get(), forward, 1, &append, &error), KVC_OK) << error.message;
  for (int h = 0; h < 4; h++) q.set(4, h, 0, h < 2 ? 1.0f : -1.0f);  // of the last query: heads 2 and 3 score 0
  int32_t entries[tokens * 2];
  int64_t shape[3] = {tokens, 1, 2};
  const DLTensor lists = {entries, test_device(), 3, {kDLInt, 32, 1}, shape, nullptr, 0};
  kvc_select_args args;
  kvc_select_args_init(&args);
  args.q = q.dl(), args.indices = &lists;
  ASSERT_EQ(kvc_forward_select(cache.get(), forward, 1, &args, &error), KVC_OK) << error.message;
  // Equal scores, all 0: the first keys. The last query has the scores 2 * 32 t.
  const int32_t wanted[tokens * 2] = {0, -1, 0, 1, 0, 1, 0, 1, 3, 4};
  for (int i = 0; i < tokens * 2; i++) EXPECT_EQ(entries[i], wanted[i]) << i;
  Tensor first(DType::kF32, {tokens, 1, 4});
  append.k = append.v = first.dl();
  ASSERT_EQ(kvc_forward_append(cache.get(), forward, 0, &append, &error), KVC_OK) << error.message;
  ASSERT_EQ(kvc_forward_end(cache.get(), forward, &error), KVC_OK) << error.message;
  kvc_seq forked = 0;
  ASSERT_EQ(kvc_seq_fork(cache.get(), 1, &seq, nullptr, &forked, nullptr, &error), KVC_OK) << error.message;
  kvc_export_args exports;
  kvc_export_args_init(&exports);
  exports.layer = 1;
  kvc_exported exported;
  kvc_exported_init(&exported);
  ASSERT_EQ(kvc_seq_export(cache.get(), forked, &exports, &exported, nullptr, &error), KVC_OK) << error.message;
  const Managed keys(exported.k);
  EXPECT_EQ(exported.v, nullptr);
  for (const int64_t t : {0, 3, 4}) {
    for (const int64_t h : {0, 1}) EXPECT_EQ(at(keys->dl_tensor, {t, h, 7}), k.at(t, h, 7));
  }
}

struct SelectCase {
  int q_heads, kv_heads, dim;
  int32_t tokens, queries;  // the step has the last `queries` of the tokens
  int32_t rule, entries;
};

// Appends random keys to layer 1 in a step of `tokens` tokens, which stays open.
kvc_forward append_keys(kvc_cache *cache, kvc_seq seq, int32_t tokens, Tensor *k, std::mt19937 *random) {
  kvc_error error = KVC_ERROR_INIT;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq, batch.append_lengths = &tokens, batch.num_sequences = 1;
  kvc_forward forward = 0;
  EXPECT_EQ(kvc_forward_begin(cache, &batch, nullptr, &forward, &error), KVC_OK) << error.message;
  std::normal_distribution<float> normal;
  for (int64_t t = 0; t < tokens; t++) {
    for (int64_t h = 0; h < k->shape()[1]; h++) {
      for (int64_t d = 0; d < k->shape()[2]; d++) k->set(t, h, d, normal(*random));
    }
  }
  kvc_append_args append;
  kvc_append_args_init(&append);
  append.k = k->dl();
  EXPECT_EQ(kvc_forward_append(cache, forward, 1, &append, &error), KVC_OK) << error.message;
  return forward;
}

// The lists that a layer of index keys chooses on a device, from random keys.
std::vector<int32_t> chosen(const char *device, DType stored, DType of_q, const SelectCase &of) {
  setenv("KVC_TEST_DEVICE", device, 1);
  const ContextPtr context = make_context();
  CacheSpec spec;
  spec.capacity_tokens = of.tokens + 64, spec.max_batch_tokens = of.tokens;
  LayerSpec layer{0, of.q_heads, of.kv_heads, of.dim, 0, stored};
  layer.keys_only = true;
  spec.layers = {LayerSpec{}, layer};
  const CachePtr cache = make_cache(context.get(), spec);
  kvc_error error = KVC_ERROR_INIT;
  kvc_seq seq = 0;
  EXPECT_EQ(kvc_seq_add(cache.get(), 1, &seq, &error), KVC_OK) << error.message;
  std::mt19937 random(7);
  if (const int32_t before = of.tokens - of.queries; before > 0) {
    Tensor k(DType::kF32, {before, of.kv_heads, of.dim}), other(DType::kF32, {before, 1, 4});
    const kvc_forward forward = append_keys(cache.get(), seq, before, &k, &random);
    kvc_append_args append;
    kvc_append_args_init(&append);
    append.k = append.v = other.dl();
    EXPECT_EQ(kvc_forward_append(cache.get(), forward, 0, &append, &error), KVC_OK) << error.message;
    EXPECT_EQ(kvc_forward_end(cache.get(), forward, &error), KVC_OK) << error.message;
  }
  Tensor k(DType::kF32, {of.queries, of.kv_heads, of.dim}), q(of_q, {of.queries, of.q_heads, of.dim});
  Tensor weights(DType::kF32, {of.queries, of.q_heads});
  const kvc_forward forward = append_keys(cache.get(), seq, of.queries, &k, &random);
  std::normal_distribution<float> normal;
  for (int64_t t = 0; t < of.queries; t++) {
    for (int64_t h = 0; h < of.q_heads; h++) {
      weights.set(t, h, normal(random));
      for (int64_t d = 0; d < of.dim; d++) q.set(t, h, d, normal(random));
    }
  }
  const int64_t lists = of.rule == KVC_SELECT_EACH_HEAD ? of.q_heads : 1;
  std::vector<int32_t> entries(static_cast<size_t>(of.queries * lists * of.entries));
  int64_t shape[3] = {of.queries, lists, of.entries};
  const DLTensor indices = {entries.data(), test_device(), 3, {kDLInt, 32, 1}, shape, nullptr, 0};
  kvc_select_args args;
  kvc_select_args_init(&args);
  args.q = q.dl(), args.indices = &indices, args.rule = of.rule;
  if (of.rule == KVC_SELECT_RELU_SUM) args.weights = weights.dl();
  EXPECT_EQ(kvc_forward_select(cache.get(), forward, 1, &args, &error), KVC_OK) << error.message;
  EXPECT_EQ(kvc_forward_abort(cache.get(), forward, &error), KVC_OK) << error.message;
  return entries;
}

TEST(Select, KeysOfEveryFormatAreChosenAsOnTheCpu) {
  const SelectCase of = {4, 2, 64, 40, 20, KVC_SELECT_RELU_SUM, 25};
  for (const DType stored : {DType::kE4M3, DType::kI8, DType::kU4, DType::kE2M1, DType::kBF16}) {
    for (const DType of_q : {DType::kF32, DType::kBF16}) {
      const std::vector<int32_t> wanted = chosen("cpu", stored, of_q, of);
      EXPECT_EQ(wanted[24], -1) << "the first query sees 21 keys";
      EXPECT_EQ(chosen("cuda", stored, of_q, of), wanted) << name_of(stored) << ", q " << name_of(of_q);
    }
  }
}

// The highest scores are so low that their orders begin with zeros (kernels/cuda/select/call.cuh).
TEST(Select, LowScoresAreChosenAsOthers) {
  setenv("KVC_TEST_DEVICE", "cuda", 1);
  const ContextPtr context = make_context();
  for (const DType of_q : {DType::kF32, DType::kBF16}) {
    for (const float lowest : {NAN, -INFINITY, -3e38f}) {
      CacheSpec spec;
      spec.capacity_tokens = 64;
      LayerSpec layer{0, 1, 1, 16, 0, DType::kBF16};
      layer.keys_only = true;
      spec.layers = {LayerSpec{}, layer};
      const CachePtr cache = make_cache(context.get(), spec);
      kvc_error error = KVC_ERROR_INIT;
      kvc_seq seq = 0;
      ASSERT_EQ(kvc_seq_add(cache.get(), 1, &seq, &error), KVC_OK) << error.message;
      const int32_t tokens = 10;
      kvc_batch batch;
      kvc_batch_init(&batch);
      batch.sequences = &seq, batch.append_lengths = &tokens, batch.num_sequences = 1;
      kvc_forward forward = 0;
      ASSERT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &forward, &error), KVC_OK) << error.message;
      Tensor k(DType::kF32, {tokens, 1, 16}), q(of_q, {tokens, 1, 16});
      for (int64_t t = 0; t < tokens; t++) {
        for (int d = 0; d < 16; d++) {
          k.set(t, 0, d, d == 0 ? lowest : 0.0f);
          q.set(t, 0, d, d == 0 ? 1.0f : 0.0f);
        }
      }
      kvc_append_args append;
      kvc_append_args_init(&append);
      append.k = k.dl();
      ASSERT_EQ(kvc_forward_append(cache.get(), forward, 1, &append, &error), KVC_OK) << error.message;
      std::vector<int32_t> entries(tokens * 2 + 20, -7);  // some more, which stay
      int64_t shape[3] = {tokens, 1, 2};
      const DLTensor lists = {entries.data(), test_device(), 3, {kDLInt, 32, 1}, shape, nullptr, 0};
      kvc_select_args args;
      kvc_select_args_init(&args);
      args.q = q.dl(), args.indices = &lists, args.rule = KVC_SELECT_EACH_HEAD;
      ASSERT_EQ(kvc_forward_select(cache.get(), forward, 1, &args, &error), KVC_OK) << error.message;
      ASSERT_EQ(kvc_forward_abort(cache.get(), forward, &error), KVC_OK) << error.message;
      for (int32_t t = 0; t < tokens; t++) {
        EXPECT_EQ(entries[t * 2], 0) << lowest;
        EXPECT_EQ(entries[t * 2 + 1], t == 0 ? -1 : 1) << lowest;
      }
      for (size_t i = tokens * 2; i < entries.size(); i++) EXPECT_EQ(entries[i], -7) << lowest;
    }
  }
}

// Shapes that tensor cores compute in several tiles, thread blocks, or parts (kernels/cuda/select/tile_scores.cuh).
TEST(Select, ShapesAreChosenAsOnTheCpu) {
  for (const SelectCase &of : {
           SelectCase{64, 1, 128, 1100, 2, KVC_SELECT_RELU_SUM, 300},  // many tiles
           SelectCase{70, 1, 96, 140, 1, KVC_SELECT_RELU_SUM, 70},     // more heads than a tile of q has, and odd dims
           SelectCase{24, 3, 32, 300, 3, KVC_SELECT_RELU_SUM, 256},    // a part for each head of keys
           SelectCase{6, 2, 128, 300, 2, KVC_SELECT_EACH_HEAD, 64},
           SelectCase{80, 1, 16, 200, 1, KVC_SELECT_EACH_HEAD, 32},
       }) {
    for (const DType stored : {DType::kBF16, DType::kE4M3, DType::kE2M1}) {
      if (stored == DType::kE2M1 && of.dim % 32 != 0) continue;
      EXPECT_EQ(chosen("cuda", stored, DType::kBF16, of), chosen("cpu", stored, DType::kBF16, of))
          << name_of(stored) << ", " << of.q_heads << " heads over " << of.kv_heads << ", " << of.tokens << " tokens";
    }
  }
}

}  // namespace
}  // namespace kvt
