// Lists of keys on the device: entries that no token has name no key, and lists of slots with offsets on the host.
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
  // The tensor of entries, which is on the device in every test.
  const DLTensor *on_device(Indexes<int32_t> *entries) {
    entries_ = *entries->dl();
    entries_.device = test_device();
    return &entries_;
  }
  DLTensor entries_ = {};
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
  for (int64_t t = 0; t < tokens; t++) v.set(t, 0, 0, static_cast<float>(t + 1));
  // Query 0 sees none of its keys, query 1 keys 0 and 1, and query 2 key 2.
  Indexes<int32_t> indices({1, 3, 1, 1, 2, 0, INT32_MAX, -1, 2}, {tokens, 1, 3});
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = q.dl(), args.k = k.dl(), args.v = v.dl(), args.out = out.dl(), args.indices = on_device(&indices);
  EXPECT_EQ(kvc_forward_attend(cache.get(), forward, 0, &args, &error_), KVC_OK) << error_.message;
  const float wanted[tokens] = {0.0f, 1.5f, 3.0f};
  for (int64_t t = 0; t < tokens; t++) EXPECT_FLOAT_EQ(out.at(t, 0, 0), wanted[t]) << t;
  EXPECT_EQ(kvc_forward_abort(cache.get(), forward, &error_), KVC_OK);
}

TEST_F(Lists, OfACallWithoutACache) {
  Array q(DType::kF32, {3, 2, 4}), out = q, k_cache(DType::kF32, {4, 2, 1, 4}), v_cache = k_cache;
  for (Array *array : {&q, &k_cache, &v_cache}) std::fill(array->storage().begin(), array->storage().end(), uint8_t{0});
  for (int64_t slot = 0; slot < 8; slot++) v_cache.set({slot / 2, slot % 2, 0, 0}, static_cast<float>(slot));
  // Slots 5 and 7, slot 2 alone, and none: -1, and slots that the cache lacks.
  Indexes<int32_t> slots({7, 5, 5, 2, -1, 2, 8, INT32_MAX, -1}, {3, 1, 3}), offsets({0, 1, 3}, {3});
  kvc_flash_attn_args args;
  kvc_flash_attn_args_init(&args);
  args.q = q.dl(), args.out = out.dl(), args.k_cache = k_cache.dl(), args.v_cache = v_cache.dl();
  args.indices = on_device(&slots);
  DLTensor on_host = *offsets.dl();
  on_host.device = {kDLCPU, 0};
  args.cu_seqlens_q = &on_host;
  ASSERT_EQ(kvc_flash_attn_with_kvcache(context_.get(), &args, nullptr, &error_), KVC_OK) << error_.message;
  const float wanted[] = {6.0f, 2.0f, 0.0f};
  for (int64_t t = 0; t < 3; t++) EXPECT_FLOAT_EQ(out.get({t, 1, 0}), wanted[t]) << t;
}

}  // namespace
}  // namespace kvt
