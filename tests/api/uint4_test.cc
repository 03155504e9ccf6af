// Layers of uint4 through the API: configs, sizes, stored bytes, views, and calls that take none of them.
#include "fixture.h"
#include "quantise.h"

namespace kvt {
namespace {

CacheSpec uint4_spec(int dims, int v_dims) {
  CacheSpec spec;
  spec.page_size = 4;
  spec.max_sequences = 4;
  spec.max_batch_tokens = 32;
  spec.groups = {{0, 10}};
  spec.layers = {LayerSpec{0, 4, 2, dims, v_dims, DType::kU4, KVC_ROPE_NONE}};
  return spec;
}

TEST(Uint4, DimsAndStorageThatAreRefused) {
  ContextPtr context = make_context();
  const auto check = [&](BuiltConfig &built, std::vector<std::string> mentions) {
    kvc_cache *cache = nullptr;
    const kvc_error error = refused(
        nullptr, {KVC_ERROR_UNSUPPORTED}, "kvc_cache_create",
        [&](kvc_error *e) { return kvc_cache_create(context.get(), &built.config, &cache, e); }, mentions);
    EXPECT_EQ(error.index, 0) << error.message;
  };
  BuiltConfig narrow(uint4_spec(40, 0)), narrow_v(uint4_spec(32, 24)), stored(uint4_spec(32, 0));
  check(narrow, {"40 (K)", "multiples of 16"});
  check(narrow_v, {"24 (V)", "multiples of 16"});
  std::vector<uint8_t> data(10 * 2 * 2 * 4 * 16);
  int64_t shape[] = {10, 2, 2, 4, 16};
  DLManagedTensorVersioned storage = {};
  storage.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  storage.dl_tensor = {data.data(), {kDLCPU, 0}, 5, {kDLUInt, 8, 1}, shape, nullptr, 0};
  stored.layers[0].kv_storage = &storage;
  check(stored, {"uint4", "no storage"});
}

TEST(Uint4, EstimateCountsHalfBytesAndScales) {
  ContextPtr context = make_context();
  for (const auto &[dims, v_dims] : {std::pair{128, 0}, {80, 48}}) {
    const CacheSpec spec = uint4_spec(dims, v_dims);
    BuiltConfig built(spec);
    kvc_estimate estimate;
    kvc_estimate_init(&estimate);
    ASSERT_EQ(kvc_cache_estimate(context.get(), &built.config, 0, &estimate, nullptr), KVC_OK);
    EXPECT_EQ(estimate.token_bytes, 2 * ((dims + (v_dims != 0 ? v_dims : dims)) / 2 + 8));
    EXPECT_EQ(estimate.page_bytes, spec.layers[0].page_bytes(4));
  }
}

// An export has the bytes that the definition gives, and so has a view of the pool. An import as stored gives them
// again.
TEST(Uint4, StoredBytesComeAndGo) {
  World w(uint4_spec(48, 32), 1, 11);
  const Export first(w.cache, w.seq);
  ASSERT_TRUE(first.k && first.v && first.k_scale && first.v_scale);
  const LayerTensors given(w.spec.layers[0], 11);
  int32_t pages[4];
  int64_t count = 0;
  ASSERT_EQ(kvc_seq_pages(w.cache, w.seq, 0, pages, 4, &count, nullptr), KVC_OK);
  DLManagedTensorVersioned *view = nullptr, *scale_view = nullptr;
  ASSERT_EQ(kvc_cache_export_pool(w.cache, 0, KVC_POOL_V, 0, &view, nullptr, nullptr), KVC_OK);
  ASSERT_EQ(kvc_cache_export_pool(w.cache, 0, KVC_POOL_V_SCALE, 0, &scale_view, nullptr, nullptr), KVC_OK);
  const Managed owner(view), scale_owner(scale_view);
  const DLTensor &v = first.v->dl_tensor, &pool = view->dl_tensor;
  EXPECT_EQ(v.dtype.code, kDLUInt);
  EXPECT_EQ(v.dtype.bits, 8);
  EXPECT_EQ(v.shape[2], 16);
  EXPECT_EQ(pool.dtype.bits, 8);
  EXPECT_EQ(pool.shape[3], 16);
  for (int t = 0; t < 11; t++) {
    for (int h = 0; h < 2; h++) {
      std::vector<float> row(32);
      for (int d = 0; d < 32; d++) row[static_cast<size_t>(d)] = given.v.at(t, h, d);
      rotate_row(32, &row);
      std::vector<unsigned char> bytes(16);
      const float scale = quantise_uint4(row, bytes.data());
      EXPECT_EQ(bits_of(at(first.v_scale->dl_tensor, {t, h})), bits_of(scale));
      EXPECT_EQ(bits_of(at(scale_view->dl_tensor, {pages[t / 4], h, t % 4})), bits_of(scale));
      EXPECT_EQ(std::memcmp(static_cast<uint8_t *>(v.data) + (t * 2 + h) * 16, bytes.data(), 16), 0);
      const int64_t in_pool = pages[t / 4] * pool.strides[0] + h * pool.strides[1] + t % 4 * pool.strides[2];
      EXPECT_EQ(std::memcmp(static_cast<uint8_t *>(pool.data) + in_pool, bytes.data(), 16), 0);
    }
  }
  const DLTensor *k = &first.k->dl_tensor, *vs = &v, *k_scale = &first.k_scale->dl_tensor,
                 *v_scale = &first.v_scale->dl_tensor;
  kvc_import_args args;
  kvc_import_args_init(&args);
  args.flags = KVC_IMPORT_AS_STORED;
  args.num_layers = 1;
  args.k = &k;
  args.v = &vs;
  args.k_scale = &k_scale;
  args.v_scale = &v_scale;
  kvc_seq copy = 0;
  ASSERT_EQ(kvc_seq_add(w.cache, 1, &copy, nullptr), KVC_OK);
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_seq_import(w.cache, copy, &args, nullptr, &error), KVC_OK) << error.message;
  const Export second(w.cache, copy);
  EXPECT_TRUE(equal_bytes(first.k->dl_tensor, second.k->dl_tensor));
  EXPECT_TRUE(equal_bytes(v, second.v->dl_tensor));
  EXPECT_TRUE(equal_bytes(*k_scale, second.k_scale->dl_tensor));
  EXPECT_TRUE(equal_bytes(*v_scale, second.v_scale->dl_tensor));
}

TEST(Uint4, StoredBytesThatAreRefused) {
  World w(uint4_spec(32, 0), 1, 5);
  const kvc_forward f = w.begin({w.seq}, {3});
  std::vector<uint8_t> data(3 * 2 * 32, 1);
  std::vector<float> scale_data(3 * 2, 1.0f);
  int64_t shape[] = {3, 2, 16}, whole_shape[] = {3, 2, 32}, scale_shape[] = {3, 2};
  const DLTensor bytes = {data.data(), {kDLCPU, 0}, 3, {kDLUInt, 8, 1}, shape, nullptr, 0};
  const DLTensor scales = {scale_data.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, scale_shape, nullptr, 0};
  DLTensor elements = bytes, wide = bytes;
  elements.dtype = {kDLUInt, 4, 1};
  elements.shape = wide.shape = whole_shape;
  LayerTensors floats(w.spec.layers[0], 3);
  const auto check = [&](Statuses statuses, uint32_t flags, const DLTensor *k, const DLTensor *v,
                         const DLTensor *k_scale, const DLTensor *v_scale, std::vector<std::string> mentions) {
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.flags = flags;
    args.k = k;
    args.v = v;
    args.k_scale = k_scale;
    args.v_scale = v_scale;
    refused(
        w.cache, statuses, "kvc_forward_append",
        [&](kvc_error *e) { return kvc_forward_append(w.cache, f, 0, &args, e); }, mentions);
  };
  const uint32_t stored = KVC_APPEND_AS_STORED;
  check({KVC_ERROR_DTYPE}, 0, &bytes, &bytes, &scales, &scales, {"k has dtype uint8"});
  check({KVC_ERROR_DTYPE}, stored, &elements, &bytes, &scales, &scales, {"k has dtype uint4"});
  check({KVC_ERROR_SHAPE}, stored, &wide, &bytes, &scales, &scales, {"[3, 2, 32]", "[3, 2, 16]"});
  check({KVC_ERROR_DTYPE}, stored, &bytes, floats.v.dl(), &scales, &scales, {"4 bits", "32"});
  check({KVC_ERROR_NULL_ARGUMENT}, stored, &bytes, &bytes, nullptr, &scales, {"k_scale is NULL", "uint4"});
  check({KVC_ERROR_INVALID_ARGUMENT}, stored, floats.k.dl(), floats.v.dl(), &scales, nullptr, {"k_scale"});
  EXPECT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
}

}  // namespace
}  // namespace kvt
