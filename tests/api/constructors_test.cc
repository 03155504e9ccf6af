// include/kvcache_tensor.h: what each function writes, and a step with its tensors.
#include "fixture.h"
#include "kvcache_tensor.h"

namespace kvt {
namespace {

void expect_tensor(const DLTensor *tensor, const kvc_tensor &in, const void *data, const std::vector<int64_t> &shape) {
  EXPECT_EQ(tensor, &in.dl);
  EXPECT_EQ(tensor->data, data);
  EXPECT_EQ(tensor->device.device_type, kDLCPU);
  EXPECT_EQ(tensor->device.device_id, 0);
  EXPECT_EQ(std::vector<int64_t>(tensor->shape, tensor->shape + tensor->ndim), shape);
  EXPECT_EQ(tensor->shape, in.shape);
  EXPECT_EQ(tensor->strides, nullptr);
  EXPECT_EQ(tensor->byte_offset, 0u);
}

TEST(Constructors, Shapes) {
  float data[1];
  kvc_tensor tensor;
  std::memset(static_cast<void *>(&tensor), 0xFF, sizeof tensor);
  expect_tensor(kvc_tensor_1d(&tensor, data, kvc_i32(), 7), tensor, data, {7});
  expect_tensor(kvc_tensor_2d(&tensor, data, kvc_f32(), 7, 3), tensor, data, {7, 3});
  expect_tensor(kvc_tensor_3d(&tensor, data, kvc_f32(), 7, 3, 5), tensor, data, {7, 3, 5});
  expect_tensor(kvc_tensor_4d(&tensor, data, kvc_f32(), 7, 3, 5, 2), tensor, data, {7, 3, 5, 2});
  const int64_t shape[6] = {1, 2, 3, 4, 5, 6};
  expect_tensor(kvc_tensor_nd(&tensor, data, kvc_f32(), 5, shape), tensor, data, {1, 2, 3, 4, 5});
  expect_tensor(kvc_tensor_nd(&tensor, data, kvc_f32(), 6, shape), tensor, data, {1, 2, 3, 4, 5});
  expect_tensor(kvc_tensor_nd(&tensor, data, kvc_f32(), 0, nullptr), tensor, data, {});
}

TEST(Constructors, ElementTypes) {
  const auto expect = [](DLDataType type, int code, int bits) {
    EXPECT_EQ(type.code, code);
    EXPECT_EQ(type.bits, bits);
    EXPECT_EQ(type.lanes, 1);
  };
  expect(kvc_f32(), kDLFloat, 32);
  expect(kvc_f16(), kDLFloat, 16);
  expect(kvc_bf16(), kDLBfloat, 16);
  expect(kvc_e4m3(), kDLFloat8_e4m3fn, 8);
  expect(kvc_e5m2(), kDLFloat8_e5m2, 8);
  expect(kvc_i8(), kDLInt, 8);
  expect(kvc_i32(), kDLInt, 32);
  expect(kvc_i64(), kDLInt, 64);
}

// The average of equal values is that value.
TEST(Constructors, AStep) {
  const ContextPtr context = make_context();
  CacheSpec spec;
  spec.groups = {GroupSpec{}};
  spec.groups[0].pages = 4;
  spec.layers = {LayerSpec{0, 4, 2, 8}};
  const CachePtr cache = make_cache(context.get(), spec);
  const int32_t tokens = 5;
  std::vector<kvc_seq> seqs(1);
  const std::vector<int32_t> lengths = {tokens};
  ASSERT_EQ(kvc_seq_add(cache.get(), 1, seqs.data(), nullptr), KVC_OK);
  const kvc_batch batch = batch_of(seqs, lengths, 0);
  kvc_forward step = 0;
  ASSERT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &step, nullptr), KVC_OK);
  std::vector<float> q(5 * 4 * 8, 1.0f), k(5 * 2 * 8, 0.5f), v(2 * 5 * 2 * 8, 3.0f), out(5 * 4 * 8);
  kvc_tensor tq, tk, tv, tout;
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = kvc_tensor_3d(&tq, q.data(), kvc_f32(), tokens, 4, 8);
  args.k = kvc_tensor_3d(&tk, k.data(), kvc_f32(), tokens, 2, 8);
  args.v = kvc_tensor_3d(&tv, v.data(), kvc_f32(), tokens, 2, 8);
  args.out = kvc_tensor_3d(&tout, out.data(), kvc_f32(), tokens, 4, 8);
  tv.strides[0] = 2 * 2 * 8, tv.strides[1] = 8, tv.strides[2] = 1;  // every second row
  tv.dl.strides = tv.strides;
  for (size_t i = 0; i < v.size(); i++) v[i] = i / 16 % 2 ? 1e30f : 3.0f;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_forward_attend(cache.get(), step, 0, &args, &error), KVC_OK) << error.message;
  ASSERT_EQ(kvc_forward_end(cache.get(), step, nullptr), KVC_OK);
  for (const float value : out) EXPECT_FLOAT_EQ(value, 3.0f);
}

}  // namespace
}  // namespace kvt
