// Layers of float4 through the API: configs, sizes, stored bytes, views, and calls that take none of them.
#include "e2m1.h"
#include "fixture.h"

namespace kvt {
namespace {

CacheSpec float4_spec(int dims, int v_dims, int num_scales = 0) {
  CacheSpec spec;
  spec.page_size = 4;
  spec.max_sequences = 4;
  spec.max_batch_tokens = 32;
  spec.groups = {{0, 10}};
  spec.layers = {LayerSpec{0, 4, 2, dims, v_dims, DType::kE2M1, KVC_ROPE_NONE}};
  spec.layers[0].num_scales = num_scales;
  return spec;
}

TEST(Float4, ConfigsThatAreRefused) {
  ContextPtr context = make_context();
  const auto check = [&](BuiltConfig &built, Statuses statuses, std::vector<std::string> mentions) {
    kvc_cache *cache = nullptr;
    const kvc_error error = refused(
        nullptr, statuses, "kvc_cache_create",
        [&](kvc_error *e) { return kvc_cache_create(context.get(), &built.config, &cache, e); }, mentions);
    EXPECT_EQ(error.index, 0) << error.message;
  };
  BuiltConfig narrow(float4_spec(40, 0)), narrow_v(float4_spec(32, 24)), stored(float4_spec(32, 0)),
      scales(float4_spec(32, 0, 2));
  check(narrow, {KVC_ERROR_UNSUPPORTED}, {"40 (K)", "float4_e2m1fn", "multiples of 16"});
  check(narrow_v, {KVC_ERROR_UNSUPPORTED}, {"24 (V)", "multiples of 16"});
  const float bad[] = {1.0f, -2.0f};
  scales.layers[0].v_scales = bad;
  check(scales, {KVC_ERROR_INVALID_ARGUMENT}, {"v_scales[1] -2"});
  scales.layers[0].num_scales = 3;
  check(scales, {KVC_ERROR_INVALID_ARGUMENT}, {"num_scales 3", "float4"});
  std::vector<uint8_t> data(10 * 2 * 2 * 4 * 18);
  int64_t shape[] = {10, 2, 2, 4, 18};
  DLManagedTensorVersioned storage = {};
  storage.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  storage.dl_tensor = {data.data(), {kDLCPU, 0}, 5, {kDLUInt, 8, 1}, shape, nullptr, 0};
  stored.layers[0].kv_storage = &storage;
  check(stored, {KVC_ERROR_UNSUPPORTED}, {"float4_e2m1fn", "no storage"});
}

TEST(Float4, EstimateCountsHalfBytesAndScales) {
  ContextPtr context = make_context();
  for (const auto &[dims, v_dims] : {std::pair{128, 128}, {80, 48}}) {
    BuiltConfig built(float4_spec(dims, v_dims));
    kvc_estimate estimate;
    kvc_estimate_init(&estimate);
    ASSERT_EQ(kvc_cache_estimate(context.get(), &built.config, 0, &estimate, nullptr), KVC_OK);
    EXPECT_EQ(estimate.token_bytes, 2 * (dims + v_dims) * 9 / 16);
    EXPECT_EQ(estimate.page_bytes, 4 * estimate.token_bytes);
  }
}

// An export has the bytes that the definition gives, and so has a view of the pool. An import as stored gives them
// again.
TEST(Float4, StoredBytesComeAndGo) {
  World w(float4_spec(48, 32, 2), 1, 11);
  const LayerSpec &layer = w.spec.layers[0];
  const Export first(w.cache, w.seq);
  ASSERT_TRUE(first.k && first.v && first.k_scale && first.v_scale);
  const LayerTensors given(layer, 11);
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
  EXPECT_EQ(v.shape[2], 18);
  EXPECT_EQ(first.k->dl_tensor.shape[2], 27);
  EXPECT_EQ(pool.dtype.bits, 8);
  EXPECT_EQ(pool.shape[3], 18);
  for (int h = 0; h < 2; h++) {
    EXPECT_EQ(at(first.v_scale->dl_tensor, {h}), layer.head_scale(1, h));
    EXPECT_EQ(at(scale_view->dl_tensor, {h}), layer.head_scale(1, h));
    for (int t = 0; t < 11; t++) {
      std::vector<float> row(32);
      for (int d = 0; d < 32; d++) row[static_cast<size_t>(d)] = given.v.at(t, h, d);
      std::vector<unsigned char> bytes(18);
      quantise_e2m1(row, layer.head_scale(1, h), bytes.data());
      EXPECT_EQ(std::memcmp(static_cast<uint8_t *>(v.data) + (t * 2 + h) * 18, bytes.data(), 18), 0);
      const int64_t in_pool = pages[t / 4] * pool.strides[0] + h * pool.strides[1] + t % 4 * pool.strides[2];
      EXPECT_EQ(std::memcmp(static_cast<uint8_t *>(pool.data) + in_pool, bytes.data(), 18), 0);
    }
  }
  const DLTensor *k = &first.k->dl_tensor, *vs = &v;
  kvc_import_args args;
  kvc_import_args_init(&args);
  args.flags = KVC_IMPORT_AS_STORED;
  args.num_layers = 1;
  args.k = &k;
  args.v = &vs;
  kvc_seq copy = 0;
  ASSERT_EQ(kvc_seq_add(w.cache, 1, &copy, nullptr), KVC_OK);
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_seq_import(w.cache, copy, &args, nullptr, &error), KVC_OK) << error.message;
  const Export second(w.cache, copy);
  EXPECT_TRUE(equal_bytes(first.k->dl_tensor, second.k->dl_tensor));
  EXPECT_TRUE(equal_bytes(v, second.v->dl_tensor));
}

TEST(Float4, StoredBytesThatAreRefused) {
  World w(float4_spec(32, 0), 1, 5);
  const kvc_forward f = w.begin({w.seq}, {3});
  std::vector<uint8_t> data(3 * 2 * 32, 1);
  std::vector<float> scale_data(3 * 2, 1.0f);
  int64_t shape[] = {3, 2, 18}, elements_shape[] = {3, 2, 16}, scale_shape[] = {3, 2};
  const DLTensor bytes = {data.data(), {kDLCPU, 0}, 3, {kDLUInt, 8, 1}, shape, nullptr, 0};
  const DLTensor scales = {scale_data.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, scale_shape, nullptr, 0};
  DLTensor own = bytes, elements = bytes;
  own.dtype = dl_type(DType::kE2M1);
  elements.shape = elements_shape;
  LayerTensors floats(w.spec.layers[0], 3);
  const auto check = [&](Statuses statuses, uint32_t flags, const DLTensor *k, const DLTensor *v,
                         const DLTensor *k_scale, std::vector<std::string> mentions) {
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.flags = flags;
    args.k = k;
    args.v = v;
    args.k_scale = k_scale;
    refused(
        w.cache, statuses, "kvc_forward_append",
        [&](kvc_error *e) { return kvc_forward_append(w.cache, f, 0, &args, e); }, mentions);
  };
  const uint32_t stored = KVC_APPEND_AS_STORED;
  check({KVC_ERROR_DTYPE}, 0, &bytes, &bytes, nullptr, {"k has dtype uint8"});
  check({KVC_ERROR_DTYPE}, stored, &own, &bytes, nullptr, {"k has dtype float4_e2m1fn"});
  check({KVC_ERROR_SHAPE}, stored, &elements, &bytes, nullptr, {"[3, 2, 16]", "[3, 2, 18]"});
  check({KVC_ERROR_DTYPE}, stored, &bytes, floats.v.dl(), nullptr, {"4 bits", "32"});
  check({KVC_ERROR_INVALID_ARGUMENT}, stored, &bytes, &bytes, &scales, {"k_scale"});
  EXPECT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
}

// The scales of an MLA row lie after all its dims, so those of V alone are no row.
TEST(Float4, ValuesOfAnMlaRowAreNotExported) {
  CacheSpec spec = float4_spec(48, 0);
  LayerSpec &layer = spec.layers[0];
  layer.hkv = 1;
  layer.latent = 32;
  layer.scale = 0.2;
  World w(spec, 1, 0);
  kvc_exported exported;
  kvc_exported_init(&exported);
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.parts = KVC_EXPORT_K | KVC_EXPORT_V;
  refused(w.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_seq_export",
          [&](kvc_error *e) { return kvc_seq_export(w.cache, w.seq, &args, &exported, nullptr, e); },
          {"float4", "0x3"});
  DLManagedTensorVersioned *view = nullptr;
  refused(w.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_cache_export_pool",
          [&](kvc_error *e) { return kvc_cache_export_pool(w.cache, 0, KVC_POOL_V, 0, &view, nullptr, e); },
          {"float4"});
  args.parts = KVC_EXPORT_K;
  ASSERT_EQ(kvc_seq_export(w.cache, w.seq, &args, &exported, nullptr, nullptr), KVC_OK);
  const Managed owner(exported.k);
  EXPECT_EQ(owner->dl_tensor.shape[2], 27);
}

}  // namespace
}  // namespace kvt
