// CUDA attends over no lists of keys yet. It says so before it stores anything, and the same call without lists works.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "arrays.h"
#include "server.h"

namespace kvt {
namespace {

class Lists : public testing::Test {
 protected:
  Lists() {
    setenv("KVC_TEST_DEVICE", "cuda", 1);
    context_ = make_context();
  }
  void expect_refused(kvc_status status) {
    EXPECT_EQ(status, KVC_ERROR_UNSUPPORTED) << error_.message;
    EXPECT_NE(std::strstr(error_.message, "the cuda backend does not attend over lists"), nullptr) << error_.message;
  }
  ContextPtr context_;
  kvc_error error_ = KVC_ERROR_INIT;
};

TEST_F(Lists, OfAForward) {
  CacheSpec spec;
  spec.capacity_tokens = 64;
  const CachePtr cache = make_cache(context_.get(), spec);
  kvc_seq seq = 0;
  ASSERT_EQ(kvc_seq_add(cache.get(), 1, &seq, &error_), KVC_OK) << error_.message;
  const int32_t tokens = 3;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq, batch.append_lengths = &tokens, batch.num_sequences = 1;
  kvc_forward forward = 0;
  ASSERT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &forward, &error_), KVC_OK) << error_.message;
  const LayerSpec &layer = spec.layers[0];
  Tensor q(DType::kF32, {tokens, layer.hq, layer.d}), k(DType::kF32, {tokens, layer.hkv, layer.d});
  std::fill(q.bytes().begin(), q.bytes().end(), uint8_t{0}), std::fill(k.bytes().begin(), k.bytes().end(), uint8_t{0});
  Tensor v = k, out = q;
  Indexes<int32_t> indices({0, 0, 0}, {tokens, 1, 1});
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = q.dl(), args.k = k.dl(), args.v = v.dl(), args.out = out.dl(), args.indices = indices.dl();
  expect_refused(kvc_forward_attend(cache.get(), forward, 0, &args, &error_));
  args.indices = nullptr;  // K and V of this layer are still to be stored
  EXPECT_EQ(kvc_forward_attend(cache.get(), forward, 0, &args, &error_), KVC_OK) << error_.message;
  EXPECT_EQ(kvc_forward_abort(cache.get(), forward, &error_), KVC_OK);
}

TEST_F(Lists, OfACallWithoutACache) {
  Array q(DType::kF32, {1, 1, 2, 4}), out = q, k_cache(DType::kF32, {4, 16, 1, 4}), v_cache = k_cache;
  Indexes<int32_t> slots({5, -1}, {1, 1, 1, 2});
  kvc_flash_attn_args args;
  kvc_flash_attn_args_init(&args);
  args.q = q.dl(), args.out = out.dl(), args.k_cache = k_cache.dl(), args.v_cache = v_cache.dl(),
  args.indices = slots.dl();
  expect_refused(kvc_flash_attn_with_kvcache(context_.get(), &args, nullptr, &error_));
}

}  // namespace
}  // namespace kvt
