// Quantised layers through the API: configs, exports, imports, and views.
#include <cmath>

#include "fixture.h"
#include "quantise.h"

namespace kvt {
namespace {

CacheSpec quantised_spec(DType dtype, int num_scales = 0) {
  CacheSpec spec;
  spec.page_size = 4;
  spec.max_sequences = 4;
  spec.max_batch_tokens = 32;
  spec.groups = {{0, 10}};
  spec.layers = {LayerSpec{0, 4, 2, 8, 0, dtype, KVC_ROPE_ON_APPEND}};
  spec.layers[0].num_scales = num_scales;
  return spec;
}

TEST(Quantised, ConfigsThatMakeNoSense) {
  struct Bad {
    DType dtype;
    int32_t num_scales;
    std::vector<float> k, v;  // empty: NULL
    Statuses statuses;
    std::vector<std::string> mentions;
  };
  const Statuses invalid{KVC_ERROR_INVALID_ARGUMENT}, null{KVC_ERROR_NULL_ARGUMENT};
  const std::vector<float> one{1.0f}, two{1.0f, 2.0f};
  const std::vector<Bad> all = {
      {DType::kE4M3, 3, {1, 1, 1}, {1, 1, 1}, invalid, {"num_scales 3", "num_kv_heads 2"}},
      {DType::kE4M3, -1, one, one, invalid, {"num_scales -1"}},
      {DType::kE4M3, 1, {}, one, null, {"k_scales is NULL", "1"}},
      {DType::kE5M2, 2, two, {}, null, {"v_scales is NULL", "2"}},
      {DType::kE5M2, 0, one, {}, invalid, {"k_scales is given"}},
      {DType::kE4M3, 2, {1.0f, 0.0f}, two, invalid, {"k_scales[1] 0"}},
      {DType::kE4M3, 1, one, {-1.0f}, invalid, {"v_scales[0] -1"}},
      {DType::kE4M3, 1, {NAN}, one, invalid, {"k_scales[0]", "nan"}},
      {DType::kE4M3, 1, {INFINITY}, one, invalid, {"k_scales[0] inf"}},
      {DType::kE4M3, 1, {1e-21f}, one, invalid, {"1e-21", "1e-20"}},
      {DType::kE4M3, 1, {1e21f}, one, invalid, {"1e+21", "1e+20"}},
      {DType::kI8, 2, two, two, invalid, {"num_scales 2"}},
      {DType::kBF16, 1, one, one, invalid, {"num_scales 1"}},
      {DType::kF32, 0, one, {}, invalid, {"k_scales is given"}},
  };
  ContextPtr context = make_context();
  for (const Bad &bad : all) {
    BuiltConfig built(quantised_spec(bad.dtype));
    built.layers[0].num_scales = bad.num_scales;
    built.layers[0].k_scales = bad.k.empty() ? nullptr : bad.k.data();
    built.layers[0].v_scales = bad.v.empty() ? nullptr : bad.v.data();
    kvc_cache *cache = nullptr;
    const kvc_error error = refused(
        nullptr, bad.statuses, "kvc_cache_create",
        [&](kvc_error *e) { return kvc_cache_create(context.get(), &built.config, &cache, e); }, bad.mentions);
    EXPECT_EQ(error.index, 0) << error.message;
    kvc_estimate estimate;
    kvc_estimate_init(&estimate);
    refused(nullptr, bad.statuses, "kvc_cache_estimate",
            [&](kvc_error *e) { return kvc_cache_estimate(context.get(), &built.config, -1, &estimate, e); });
  }
  for (const DLDataType dtype : {DLDataType{kDLFloat8_e4m3fnuz, 8, 1}, {kDLInt, 16, 1}, {kDLUInt, 8, 1}}) {
    BuiltConfig built(quantised_spec(DType::kI8));
    built.layers[0].dtype = dtype;
    kvc_cache *cache = nullptr;
    refused(nullptr, {KVC_ERROR_DTYPE}, "kvc_cache_create",
            [&](kvc_error *e) { return kvc_cache_create(context.get(), &built.config, &cache, e); }, {"int8"});
  }
}

TEST(Quantised, EstimateCountsScales) {
  ContextPtr context = make_context();
  for (DType dtype : {DType::kE4M3, DType::kI8}) {
    for (int dv : {0, 5}) {
      CacheSpec spec = quantised_spec(dtype);
      spec.layers[0].dv = dv;
      BuiltConfig built(spec);
      kvc_estimate estimate;
      kvc_estimate_init(&estimate);
      ASSERT_EQ(kvc_cache_estimate(context.get(), &built.config, 0, &estimate, nullptr), KVC_OK);
      const int64_t row = 8 + (dv ? dv : 8) + (dtype == DType::kI8 ? 8 : 0);
      EXPECT_EQ(estimate.token_bytes, 2 * row);
      EXPECT_EQ(estimate.page_bytes, spec.layers[0].page_bytes(4));
      EXPECT_EQ(estimate.storage_bytes, 10 * estimate.page_bytes);
    }
  }
}

// An export has the quantised K (rotated) and V. Imported as stored, they give the same bytes, scales and outputs.
TEST(Quantised, ExportAndImportAsStoredAreInverse) {
  for (DType dtype : {DType::kE4M3, DType::kE5M2, DType::kI8}) {
    SCOPED_TRACE(name_of(dtype));
    World w(quantised_spec(dtype, dtype == DType::kI8 ? 0 : 2), 1, 11);
    const Export first(w.cache, w.seq);
    const bool tokens_have_scales = dtype == DType::kI8;
    ASSERT_TRUE(first.k && first.v && first.k_scale && first.v_scale);
    EXPECT_EQ(first.k->dl_tensor.dtype.code, tokens_have_scales ? kDLInt : kDLUInt);
    EXPECT_EQ(first.k->dl_tensor.dtype.bits, 8);
    EXPECT_EQ(first.k_scale->dl_tensor.ndim, tokens_have_scales ? 2 : 1);
    const LayerTensors given(w.spec.layers[0], 11);
    for (int t = 0; t < 11; t++) {
      for (int h = 0; h < 2; h++) {
        std::vector<double> row, exact(8, 0.0);
        std::vector<float> values(8), flips(8);
        for (int d = 0; d < 8; d++) row.push_back(given.v.at(t, h, d));
        quantise_row(dtype, w.spec.layers[0].head_scale(1, h), row, exact, values.data(), flips.data());
        const DLTensor &scale = first.v_scale->dl_tensor;
        const float factor = tokens_have_scales ? at(scale, {t, h}) : at(scale, {h});
        for (int d = 0; d < 8; d++) {
          const auto byte = static_cast<const uint8_t *>(first.v->dl_tensor.data)[(t * 2 + h) * 8 + d];
          EXPECT_EQ(static_cast<float>(byte_value(dtype, byte)) * factor, values[d]) << t << " " << h << " " << d;
        }
      }
    }
    for (const bool as_uint8 : {false, true}) {
      DLTensor k = first.k->dl_tensor, v = first.v->dl_tensor;
      k.dtype = v.dtype = as_uint8 ? DLDataType{kDLUInt, 8, 1} : dl_type(dtype);
      const DLTensor *ks = &k, *vs = &v, *k_scales = &first.k_scale->dl_tensor, *v_scales = &first.v_scale->dl_tensor;
      kvc_import_args args;
      kvc_import_args_init(&args);
      args.flags = KVC_IMPORT_AS_STORED;
      args.num_layers = 1;
      args.k = &ks;
      args.v = &vs;
      if (tokens_have_scales) {
        args.k_scale = &k_scales;
        args.v_scale = &v_scales;
      }
      kvc_seq copy = 0;
      ASSERT_EQ(kvc_seq_add(w.cache, 1, &copy, nullptr), KVC_OK);
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(kvc_seq_import(w.cache, copy, &args, nullptr, &error), KVC_OK) << error.message;
      const Export second(w.cache, copy);
      EXPECT_TRUE(equal_bytes(first.k->dl_tensor, second.k->dl_tensor));
      EXPECT_TRUE(equal_bytes(first.v->dl_tensor, second.v->dl_tensor));
      EXPECT_TRUE(equal_bytes(*k_scales, second.k_scale->dl_tensor));
      EXPECT_TRUE(equal_bytes(*v_scales, second.v_scale->dl_tensor));
      ASSERT_EQ(kvc_seq_remove(w.cache, 1, &copy, nullptr), KVC_OK);
    }
  }
}

// An import rotates and quantises raw floats as an append does.
TEST(Quantised, ImportOfFloatsQuantises) {
  for (DType dtype : {DType::kE4M3, DType::kE5M2, DType::kI8}) {
    World w(quantised_spec(dtype), 1, 11);
    LayerTensors given(w.spec.layers[0], 11);
    const DLTensor *k = given.k.dl(), *v = given.v.dl();
    kvc_import_args args;
    kvc_import_args_init(&args);
    args.num_layers = 1;
    args.k = &k;
    args.v = &v;
    kvc_seq copy = 0;
    ASSERT_EQ(kvc_seq_add(w.cache, 1, &copy, nullptr), KVC_OK);
    ASSERT_EQ(kvc_seq_import(w.cache, copy, &args, nullptr, nullptr), KVC_OK);
    const Export appended(w.cache, w.seq), imported(w.cache, copy);
    EXPECT_TRUE(equal_bytes(appended.k->dl_tensor, imported.k->dl_tensor)) << name_of(dtype);
    EXPECT_TRUE(equal_bytes(appended.k_scale->dl_tensor, imported.k_scale->dl_tensor)) << name_of(dtype);
    ASSERT_EQ(kvc_seq_remove(w.cache, 1, &copy, nullptr), KVC_OK);
    args.flags = KVC_IMPORT_AS_STORED;  // the floats are rotated already, so they are only quantised
    ASSERT_EQ(kvc_seq_add(w.cache, 1, &copy, nullptr), KVC_OK);
    ASSERT_EQ(kvc_seq_import(w.cache, copy, &args, nullptr, nullptr), KVC_OK);
    const Export unrotated(w.cache, copy);
    EXPECT_FALSE(equal_bytes(appended.k->dl_tensor, unrotated.k->dl_tensor)) << name_of(dtype);
    EXPECT_TRUE(equal_bytes(appended.v->dl_tensor, unrotated.v->dl_tensor)) << name_of(dtype);
  }
}

TEST(Quantised, StoredBytesThatAreRefused) {
  for (DType dtype : {DType::kE4M3, DType::kI8, DType::kF32}) {
    SCOPED_TRACE(name_of(dtype));
    World w(quantised_spec(dtype), 1, 5);
    const kvc_forward f = w.begin({w.seq}, {3});
    std::vector<uint8_t> data(3 * 2 * 8, 1);
    std::vector<float> scale_data(3 * 2, 1.0f);
    int64_t shape[] = {3, 2, 8}, scale_shape[] = {3, 2}, short_shape[] = {2, 2};
    DLTensor bytes = {data.data(), {kDLCPU, 0}, 3, {kDLUInt, 8, 1}, shape, nullptr, 0}, other = bytes;
    other.dtype = dtype == DType::kE4M3 ? DLDataType{kDLFloat8_e5m2, 8, 1} : DLDataType{kDLFloat8_e4m3fn, 8, 1};
    DLTensor scales = {scale_data.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, scale_shape, nullptr, 0};
    DLTensor few = scales, doubles = scales;
    few.shape = short_shape;
    doubles.dtype = {kDLFloat, 64, 1};
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
    const bool int8 = dtype == DType::kI8, quantised = dtype != DType::kF32;
    const DLTensor *scale = int8 ? &scales : nullptr;
    const uint32_t stored = KVC_APPEND_AS_STORED;
    check({KVC_ERROR_DTYPE}, 0, &bytes, &bytes, scale, scale, {"k has dtype"});
    check({KVC_ERROR_DTYPE}, stored, &other, &bytes, scale, scale, {"k has dtype"});
    check({KVC_ERROR_INVALID_ARGUMENT}, stored, floats.k.dl(), floats.v.dl(), &scales, nullptr, {"k_scale"});
    check({KVC_ERROR_INVALID_ARGUMENT}, 0, floats.k.dl(), floats.v.dl(), nullptr, &scales, {"v_scale"});
    if (quantised) check({KVC_ERROR_DTYPE}, stored, &bytes, floats.v.dl(), scale, scale, {"8 bits", "32"});
    if (dtype == DType::kE4M3)
      check({KVC_ERROR_INVALID_ARGUMENT}, stored, &bytes, &bytes, &scales, nullptr, {"k_scale"});
    if (int8) {
      check({KVC_ERROR_NULL_ARGUMENT}, stored, &bytes, &bytes, nullptr, &scales, {"k_scale is NULL"});
      check({KVC_ERROR_NULL_ARGUMENT}, stored, &bytes, &bytes, &scales, nullptr, {"v_scale is NULL"});
      check({KVC_ERROR_SHAPE}, stored, &bytes, &bytes, &few, &scales, {"k_scale", "[2, 2]"});
      check({KVC_ERROR_DTYPE}, stored, &bytes, &bytes, &scales, &doubles, {"v_scale"});
      check({KVC_ERROR_DTYPE, KVC_ERROR_RANK}, stored, &bytes, &bytes, &scales, &bytes, {"v_scale"});
    }
    EXPECT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
  }
}

TEST(Quantised, PartsOfAnExport) {
  World w(quantised_spec(DType::kI8), 1, 5);
  const Export scale_alone(w.cache, w.seq, KVC_EXPORT_V_SCALE);
  EXPECT_TRUE(!scale_alone.k && !scale_alone.v && !scale_alone.k_scale && scale_alone.v_scale);
  const Export both(w.cache, w.seq, KVC_EXPORT_K | KVC_EXPORT_V);
  EXPECT_TRUE(both.k && both.v && !both.k_scale && !both.v_scale);
  World plain;
  const Export defaults(plain.cache, plain.seq);
  EXPECT_TRUE(defaults.k && defaults.v && !defaults.k_scale && !defaults.v_scale);
  kvc_export_args args;
  kvc_export_args_init(&args);
  kvc_exported exported;
  kvc_exported_init(&exported);
  for (uint32_t parts : {4u, 9u, 16u, 0x80000000u}) {
    args.parts = parts;
    refused(plain.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_seq_export",
            [&](kvc_error *e) { return kvc_seq_export(plain.cache, plain.seq, &args, &exported, nullptr, e); },
            {"parts 0x"});
  }
  args.parts = 0;
  exported.struct_size = 8;
  refused(w.cache, {KVC_ERROR_STRUCT_SIZE}, "kvc_seq_export",
          [&](kvc_error *e) { return kvc_seq_export(w.cache, w.seq, &args, &exported, nullptr, e); }, {"8"});
  EXPECT_EQ(exported.k, nullptr);
}

TEST(Quantised, PoolViews) {
  for (DType dtype : {DType::kE5M2, DType::kI8}) {
    for (int dv : {0, 5}) {
      CacheSpec spec = quantised_spec(dtype, dtype == DType::kI8 ? 0 : 2);
      spec.layers[0].dv = dv;
      World w(spec, 1, 11);
      const Export expected(w.cache, w.seq);
      int32_t pages[4];
      int64_t count = 0;
      ASSERT_EQ(kvc_seq_pages(w.cache, w.seq, 0, pages, 4, &count, nullptr), KVC_OK);
      for (int which = 0; which < 2; which++) {
        DLManagedTensorVersioned *rows = nullptr, *scales = nullptr;
        ASSERT_EQ(kvc_cache_export_pool(w.cache, 0, which ? KVC_POOL_V : KVC_POOL_K, 0, &rows, nullptr, nullptr),
                  KVC_OK);
        ASSERT_EQ(kvc_cache_export_pool(w.cache, 0, which ? KVC_POOL_V_SCALE : KVC_POOL_K_SCALE, 0, &scales, nullptr,
                                        nullptr),
                  KVC_OK);
        const Managed rows_owner(rows), scales_owner(scales);
        const DLTensor &dense = (which ? expected.v : expected.k)->dl_tensor;
        const DLTensor &dense_scale = (which ? expected.v_scale : expected.k_scale)->dl_tensor;
        EXPECT_EQ(rows->dl_tensor.dtype.code, dense.dtype.code);
        EXPECT_EQ(rows->dl_tensor.ndim, 4);
        for (int64_t t = 0; t < 11; t++) {
          for (int64_t h = 0; h < 2; h++) {
            const int64_t *strides = rows->dl_tensor.strides;
            const char *row = static_cast<const char *>(rows->dl_tensor.data) + pages[t / 4] * strides[0] +
                              h * strides[1] + t % 4 * strides[2];
            const int64_t dims = dense.shape[2];
            EXPECT_EQ(std::memcmp(row, static_cast<const char *>(dense.data) + (t * 2 + h) * dims, dims), 0);
            if (dtype == DType::kI8) {
              EXPECT_EQ(at(scales->dl_tensor, {pages[t / 4], h, t % 4}), at(dense_scale, {t, h}));
            } else {
              EXPECT_EQ(at(scales->dl_tensor, {h}), at(dense_scale, {h}));
            }
          }
        }
      }
      DLManagedTensorVersioned *writable = nullptr;
      const kvc_status status =
          kvc_cache_export_pool(w.cache, 0, KVC_POOL_K_SCALE, KVC_POOL_WRITABLE, &writable, nullptr, nullptr);
      EXPECT_EQ(status, dtype == DType::kI8 ? KVC_OK : KVC_ERROR_UNSUPPORTED);
      const Managed owner(writable);
    }
  }
  World plain;
  DLManagedTensorVersioned *none = nullptr;
  refused(plain.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_cache_export_pool",
          [&](kvc_error *e) { return kvc_cache_export_pool(plain.cache, 0, KVC_POOL_K_SCALE, 0, &none, nullptr, e); },
          {"not quantised"});
  refused(
      plain.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_cache_export_pool",
      [&](kvc_error *e) { return kvc_cache_export_pool(plain.cache, 0, KVC_POOL_V_SCALE + 1, 0, &none, nullptr, e); },
      {"pool 5"});
}

TEST(Quantised, AdoptedStorage) {
  ContextPtr context = make_context();
  std::vector<uint8_t> data(10 * 2 * 2 * 4 * 8, 0xff);  // NaN
  int64_t shape[] = {10, 2, 2, 4, 8};
  for (DType dtype : {DType::kE4M3, DType::kE5M2, DType::kI8}) {
    for (const DLDataType given : {dl_type(dtype), DLDataType{kDLUInt, 8, 1}, DLDataType{kDLFloat8_e3m4, 8, 1}}) {
      DLManagedTensorVersioned storage = {};
      storage.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
      storage.dl_tensor = {data.data(), {kDLCPU, 0}, 5, given, shape, nullptr, 0};
      BuiltConfig built(quantised_spec(dtype, dtype == DType::kI8 ? 0 : 1));
      built.layers[0].kv_storage = &storage;
      kvc_cache *cache = nullptr;
      const bool good = dtype != DType::kI8 && given.code != kDLFloat8_e3m4;
      if (!good) {
        refused(nullptr, {dtype == DType::kI8 ? KVC_ERROR_UNSUPPORTED : KVC_ERROR_DTYPE}, "kvc_cache_create",
                [&](kvc_error *e) { return kvc_cache_create(context.get(), &built.config, &cache, e); });
        continue;
      }
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(kvc_cache_create(context.get(), &built.config, &cache, &error), KVC_OK) << error.message;
      const CachePtr owner(cache);
      World own(quantised_spec(dtype, 1), 1, 9);
      kvc_seq seq = 0;
      ASSERT_EQ(kvc_seq_add(cache, 1, &seq, nullptr), KVC_OK);
      LayerTensors tensors(own.spec.layers[0], 9);
      const DLTensor *k = tensors.k.dl(), *v = tensors.v.dl();
      kvc_import_args args;
      kvc_import_args_init(&args);
      args.num_layers = 1;
      args.k = &k;
      args.v = &v;
      ASSERT_EQ(kvc_seq_import(cache, seq, &args, nullptr, nullptr), KVC_OK);
      const Export adopted(cache, seq), expected(own.cache, own.seq);
      EXPECT_TRUE(equal_bytes(adopted.k->dl_tensor, expected.k->dl_tensor));
      EXPECT_TRUE(equal_bytes(adopted.v->dl_tensor, expected.v->dl_tensor));
    }
  }
}

}  // namespace
}  // namespace kvt
