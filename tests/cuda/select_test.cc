// Index keys on the device: the choice among them, and that they are stored, moved and exported.
#include <gtest/gtest.h>

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

// The lists that a layer of index keys chooses on a device, from 40 random keys.
std::vector<int32_t> chosen(const char *device, DType stored, DType of_q) {
  setenv("KVC_TEST_DEVICE", device, 1);
  const ContextPtr context = make_context();
  CacheSpec spec;
  spec.capacity_tokens = 64;
  LayerSpec layer{0, 4, 2, 64, 0, stored};
  layer.keys_only = true;
  spec.layers = {LayerSpec{}, layer};
  const CachePtr cache = make_cache(context.get(), spec);
  kvc_error error = KVC_ERROR_INIT;
  kvc_seq seq = 0;
  EXPECT_EQ(kvc_seq_add(cache.get(), 1, &seq, &error), KVC_OK) << error.message;
  const int32_t tokens = 40;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq, batch.append_lengths = &tokens, batch.num_sequences = 1;
  kvc_forward forward = 0;
  EXPECT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &forward, &error), KVC_OK) << error.message;
  Tensor k(DType::kF32, {tokens, 2, 64}), q(of_q, {tokens, 4, 64});
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (int64_t t = 0; t < tokens; t++) {
    for (int d = 0; d < 64; d++) {
      for (int h = 0; h < 2; h++) k.set(t, h, d, normal(random));
      for (int h = 0; h < 4; h++) q.set(t, h, d, normal(random));
    }
  }
  kvc_append_args append;
  kvc_append_args_init(&append);
  append.k = k.dl();
  EXPECT_EQ(kvc_forward_append(cache.get(), forward, 1, &append, &error), KVC_OK) << error.message;
  std::vector<int32_t> entries(static_cast<size_t>(tokens) * 5);
  int64_t shape[3] = {tokens, 1, 5};
  const DLTensor lists = {entries.data(), test_device(), 3, {kDLInt, 32, 1}, shape, nullptr, 0};
  kvc_select_args args;
  kvc_select_args_init(&args);
  args.q = q.dl(), args.indices = &lists;
  EXPECT_EQ(kvc_forward_select(cache.get(), forward, 1, &args, &error), KVC_OK) << error.message;
  EXPECT_EQ(kvc_forward_abort(cache.get(), forward, &error), KVC_OK) << error.message;
  return entries;
}

TEST(Select, KeysOfEveryFormatAreChosenAsOnTheCpu) {
  for (const DType stored : {DType::kE4M3, DType::kI8, DType::kU4, DType::kE2M1}) {
    for (const DType of_q : {DType::kF32, DType::kBF16}) {
      const std::vector<int32_t> wanted = chosen("cpu", stored, of_q);
      EXPECT_EQ(wanted[4], -1) << "the first query sees one key";
      EXPECT_EQ(chosen("cuda", stored, of_q), wanted) << name_of(stored) << ", q " << name_of(of_q);
    }
  }
}

}  // namespace
}  // namespace kvt
