// MLA groups through the API: their configs, the forms of input rows, and that a row is stored, exported and counted
// once.
#include <cmath>

#include "fixture.h"

namespace kvt {
namespace {

constexpr int kRow = 24, kLatent = 16;

CacheSpec latent_spec(DType dtype = DType::kF32) {
  CacheSpec spec;
  spec.page_size = 4;
  spec.max_sequences = 4;
  spec.max_batch_tokens = 32;
  spec.groups = {{0, 10}};
  LayerSpec layer{0, 4, 1, kRow};
  layer.latent = kLatent;
  layer.dtype = dtype;
  layer.rope = KVC_ROPE_ON_APPEND;
  layer.scale = 0.13523;
  spec.layers = {layer};
  return spec;
}

// A cache of `spec` with one empty sequence.
struct Rows {
  ContextPtr context = make_context();
  CachePtr owner;
  kvc_cache *cache;
  kvc_seq seq = 0;
  explicit Rows(const CacheSpec &spec) : owner(make_cache(context.get(), spec)), cache(owner.get()) {
    EXPECT_EQ(kvc_seq_add(cache, 1, &seq, nullptr), KVC_OK);
  }
  kvc_forward begin(int32_t tokens) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq;
    batch.append_lengths = &tokens;
    batch.num_sequences = 1;
    kvc_forward forward = 0;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_forward_begin(cache, &batch, nullptr, &forward, &error), KVC_OK) << error.message;
    return forward;
  }
  void append(const DLTensor *k, const DLTensor *v, int32_t tokens) {
    const kvc_forward forward = begin(tokens);
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = k;
    args.v = v;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_forward_append(cache, forward, 0, &args, &error), KVC_OK) << error.message;
    EXPECT_EQ(kvc_forward_end(cache, forward, nullptr), KVC_OK);
  }
};

void fill(Tensor *t, int64_t tokens, int first) {
  for (int64_t i = 0; i < tokens; i++) {
    for (int64_t d = 0; d < t->dim(2); d++)
      t->set(i, 0, d, static_cast<float>((i * 29 + (d + first) * 7) % 31) / 8 - 2);
  }
}

TEST(Latent, ConfigsThatMakeNoSense) {
  struct Bad {
    std::vector<std::string> mentions;
    std::function<void(BuiltConfig &)> change;
  };
  DLManagedTensorVersioned storage = {};
  const float scale = 1.0f;
  const std::vector<Bad> all = {
      {{"softmax_scale 0", "MLA"}, [](BuiltConfig &b) { b.layers[0].softmax_scale = 0; }},
      {{"num_kv_heads 2"}, [](BuiltConfig &b) { b.layers[0].num_kv_heads = 2; }},
      {{"head_dim 1153", "1..1152"}, [](BuiltConfig &b) { b.layers[0].head_dim = 1153; }},
      {{"head_dim 0"}, [](BuiltConfig &b) { b.layers[0].head_dim = 0; }},
      {{"latent_dim 0"}, [](BuiltConfig &b) { b.layers[0].latent_dim = 0; }},
      {{"latent_dim -3"}, [](BuiltConfig &b) { b.layers[0].latent_dim = -3; }},
      {{"latent_dim 25"}, [](BuiltConfig &b) { b.layers[0].latent_dim = kRow + 1; }},
      {{"v_head_dim 24", "latent_dim 16"}, [](BuiltConfig &b) { b.layers[0].v_head_dim = kRow; }},
      {{"rope_offset 14", "latent_dim 16"}, [](BuiltConfig &b) { b.layers[0].rope_offset = kLatent - 2; }},
      {{"rope_dim 10"}, [](BuiltConfig &b) { b.layers[0].rope_dim = 10; }},
      {{"v_scales"}, [&](BuiltConfig &b) { b.layers[0].v_scales = &scale; }},
      {{"k_storage alone"}, [&](BuiltConfig &b) { b.layers[0].kv_storage = &storage; }},
      {{"k_storage alone"}, [&](BuiltConfig &b) { b.layers[0].k_storage = b.layers[0].v_storage = &storage; }},
      {{"latent_dim 16", "KVC_ROW_LATENT"}, [](BuiltConfig &b) { b.groups[0].row = KVC_ROW_KV; }},
      {{"window_tokens 3", "KVC_VISIBLE_ALL"}, [](BuiltConfig &b) { b.groups[0].window_tokens = 3; }},
      {{"chunk_tokens 3", "KVC_VISIBLE_ALL"}, [](BuiltConfig &b) { b.groups[0].chunk_tokens = 3; }},
  };
  ContextPtr context = make_context();
  for (const Bad &bad : all) {
    SCOPED_TRACE(bad.mentions[0]);
    BuiltConfig built(latent_spec());
    bad.change(built);
    kvc_cache *cache = nullptr;
    const kvc_error error = refused(
        nullptr, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_cache_create",
        [&](kvc_error *e) { return kvc_cache_create(context.get(), &built.config, &cache, e); }, bad.mentions);
    EXPECT_EQ(error.index, 0) << error.message;
    kvc_estimate estimate;
    kvc_estimate_init(&estimate);
    refused(nullptr, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_cache_estimate",
            [&](kvc_error *e) { return kvc_cache_estimate(context.get(), &built.config, -1, &estimate, e); });
  }
}

TEST(Latent, ARowIsCountedOnce) {
  ContextPtr context = make_context();
  for (DType dtype : {DType::kBF16, DType::kE4M3, DType::kI8}) {
    BuiltConfig built(latent_spec(dtype));
    kvc_estimate estimate;
    kvc_estimate_init(&estimate);
    ASSERT_EQ(kvc_cache_estimate(context.get(), &built.config, 0, &estimate, nullptr), KVC_OK);
    EXPECT_EQ(estimate.token_bytes, kRow * size_of(dtype) + (dtype == DType::kI8 ? 4 : 0));
    EXPECT_EQ(estimate.page_bytes, latent_spec(dtype).layers[0].page_bytes(4));
    EXPECT_EQ(estimate.storage_bytes, 10 * estimate.page_bytes);
  }
  CacheSpec deepseek;
  deepseek.capacity_tokens = 1024;
  deepseek.layers[0] = LayerSpec{0, 128, 1, 576};
  deepseek.layers[0].latent = 512;
  deepseek.layers[0].dtype = DType::kBF16;
  // The kv heads of 128 + 64 dims are not stored, but rows of 576 are. The scale is DeepSeek-V3's, from its
  // rope_scaling.
  const double mscale = 0.1 * std::log(40.0) + 1;
  deepseek.layers[0].scale = mscale * mscale / std::sqrt(128.0 + 64.0);
  EXPECT_NEAR(deepseek.layers[0].scale, 0.13523, 5e-6);
  BuiltConfig built(deepseek);
  kvc_estimate estimate;
  kvc_estimate_init(&estimate);
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_cache_estimate(context.get(), &built.config, 0, &estimate, &error), KVC_OK) << error.message;
  EXPECT_EQ(estimate.storage_bytes, 1024 * 1152);
}

// Whole rows and rows in two parts are stored alike. An exported row can be imported again, and is then the same.
TEST(Latent, PartsExportsAndImports) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kE4M3, DType::kI8}) {
    SCOPED_TRACE(name_of(dtype));
    Tensor row(DType::kF32, {9, 1, kRow}), latent(DType::kF32, {9, 1, kLatent}),
        rotary(DType::kF32, {9, 1, kRow - kLatent});
    fill(&row, 9, 0);
    fill(&latent, 9, 0);
    fill(&rotary, 9, kLatent);
    Rows whole(latent_spec(dtype)), parts(latent_spec(dtype)), again(latent_spec(dtype));
    whole.append(row.dl(), nullptr, 9);
    parts.append(rotary.dl(), latent.dl(), 9);
    const Export a(whole.cache, whole.seq), b(parts.cache, parts.seq);
    ASSERT_TRUE(a.k && !a.v && !a.v_scale);
    EXPECT_EQ(!a.k_scale, !is_quantised(dtype));
    const size_t bytes = static_cast<size_t>(9 * kRow * size_of(dtype));
    EXPECT_EQ(std::memcmp(a.k->dl_tensor.data, b.k->dl_tensor.data, bytes), 0);
    const Export latents(whole.cache, whole.seq, KVC_EXPORT_V);
    ASSERT_TRUE(latents.v && !latents.k);
    EXPECT_EQ(latents.v->dl_tensor.shape[2], kLatent);
    for (int t = 0; t < 9; t++) {
      EXPECT_EQ(std::memcmp(static_cast<char *>(latents.v->dl_tensor.data) + t * kLatent * size_of(dtype),
                            static_cast<char *>(a.k->dl_tensor.data) + t * kRow * size_of(dtype),
                            static_cast<size_t>(kLatent * size_of(dtype))),
                0);
    }
    const DLTensor *k = &a.k->dl_tensor, *scales = dtype == DType::kI8 ? &a.k_scale->dl_tensor : nullptr;
    kvc_import_args args;
    kvc_import_args_init(&args);
    args.flags = KVC_IMPORT_AS_STORED;
    args.num_layers = 1;
    args.k = &k;
    if (scales) args.k_scale = &scales;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_seq_import(again.cache, again.seq, &args, nullptr, &error), KVC_OK) << error.message;
    const Export c(again.cache, again.seq);
    EXPECT_EQ(std::memcmp(a.k->dl_tensor.data, c.k->dl_tensor.data, bytes), 0);
  }
}

TEST(Latent, PoolsAreOneMemory) {
  Rows rows(latent_spec(DType::kBF16));
  DLManagedTensorVersioned *k = nullptr, *v = nullptr, *kv = nullptr;
  ASSERT_EQ(kvc_cache_export_pool(rows.cache, 0, KVC_POOL_K, 0, &k, nullptr, nullptr), KVC_OK);
  ASSERT_EQ(kvc_cache_export_pool(rows.cache, 0, KVC_POOL_V, 0, &v, nullptr, nullptr), KVC_OK);
  const Managed k_owner(k), v_owner(v);
  EXPECT_EQ(k->dl_tensor.data, v->dl_tensor.data);
  EXPECT_EQ(k->dl_tensor.shape[3], kRow);
  EXPECT_EQ(v->dl_tensor.shape[3], kLatent);
  EXPECT_EQ(v->dl_tensor.strides[2], kRow);
  refused(rows.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_cache_export_pool",
          [&](kvc_error *e) { return kvc_cache_export_pool(rows.cache, 0, KVC_POOL_KV, 0, &kv, nullptr, e); });
}

TEST(Latent, AdoptedRows) {
  ContextPtr context = make_context();
  std::vector<float> memory(12 * 4 * (kRow + 2), NAN);
  int64_t shape[] = {12, 1, 4, kRow}, strides[] = {4 * (kRow + 2), 4 * (kRow + 2), kRow + 2, 1};
  DLManagedTensorVersioned storage = {};
  storage.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  storage.dl_tensor = {memory.data(), {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, strides, 0};
  BuiltConfig built(latent_spec());
  built.layers[0].k_storage = &storage;
  kvc_cache *cache = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_cache_create(context.get(), &built.config, &cache, &error), KVC_OK) << error.message;
  const CachePtr owner(cache);
  kvc_seq seq = 0;
  ASSERT_EQ(kvc_seq_add(cache, 1, &seq, nullptr), KVC_OK);
  Tensor row(DType::kF32, {3, 1, kRow});
  fill(&row, 3, 0);
  const DLTensor *k = row.dl();
  kvc_import_args args;
  kvc_import_args_init(&args);
  args.flags = KVC_IMPORT_AS_STORED;
  args.num_layers = 1;
  args.k = &k;
  ASSERT_EQ(kvc_seq_import(cache, seq, &args, nullptr, &error), KVC_OK) << error.message;
  for (int t = 0; t < 4; t++) {
    for (int d = 0; d < kRow + 2; d++) {
      const float stored = memory[t * (kRow + 2) + d];
      if (t < 3 && d < kRow) {
        EXPECT_EQ(stored, row.at(t, 0, d));
      } else {
        EXPECT_TRUE(std::isnan(stored));
      }
    }
  }
}

TEST(Latent, RowsThatAreRefused) {
  for (DType dtype : {DType::kF32, DType::kI8}) {
    Rows rows(latent_spec(dtype));
    const kvc_forward forward = rows.begin(3);
    Tensor row(DType::kF32, {3, 1, kRow}), latent(DType::kF32, {3, 1, kLatent}),
        rotary(DType::kF32, {3, 1, kRow - kLatent}), few(DType::kF32, {2, 1, kRow}), heads(DType::kF32, {3, 2, kRow});
    Tensor q(DType::kF32, {3, 4, kRow}), out(DType::kF32, {3, 4, kLatent}), scales(DType::kF32, {3, 1});
    std::vector<uint8_t> data(3 * kRow, 1);
    int64_t shape[] = {3, 1, kRow}, part_shape[] = {3, 1, kLatent};
    const DLTensor bytes = {data.data(), {kDLCPU, 0}, 3, {kDLInt, 8, 1}, shape, nullptr, 0};
    DLTensor part_bytes = bytes;
    part_bytes.shape = part_shape;
    struct Bad {
      kvc_status status;
      std::vector<std::string> mentions;
      const DLTensor *k, *v, *k_scale, *v_scale;
      uint32_t flags;
    };
    const std::vector<Bad> all = {
        {KVC_ERROR_NULL_ARGUMENT, {"k is NULL"}, nullptr, nullptr, nullptr, nullptr, 0},
        {KVC_ERROR_NULL_ARGUMENT, {"k is NULL"}, nullptr, latent.dl(), nullptr, nullptr, 0},
        {KVC_ERROR_SHAPE, {"k has shape", "[3, 1, 24]"}, latent.dl(), nullptr, nullptr, nullptr, 0},
        {KVC_ERROR_SHAPE, {"k has shape", "[3, 1, 8]"}, row.dl(), latent.dl(), nullptr, nullptr, 0},
        {KVC_ERROR_SHAPE, {"v has shape", "[3, 1, 16]"}, rotary.dl(), row.dl(), nullptr, nullptr, 0},
        {KVC_ERROR_SHAPE, {"k has shape"}, few.dl(), nullptr, nullptr, nullptr, 0},
        {KVC_ERROR_SHAPE, {"k has shape"}, heads.dl(), nullptr, nullptr, nullptr, 0},
        {KVC_ERROR_INVALID_ARGUMENT, {"v_scale"}, row.dl(), nullptr, nullptr, scales.dl(), 0},
        {KVC_ERROR_INVALID_ARGUMENT, {"k_scale"}, row.dl(), nullptr, scales.dl(), nullptr, 0},
        {KVC_ERROR_INVALID_ARGUMENT, {"k_scale"}, rotary.dl(), latent.dl(), scales.dl(), nullptr, 0},
        {KVC_ERROR_DTYPE, {"k has dtype"}, &bytes, nullptr, scales.dl(), nullptr, 0},
        {KVC_ERROR_DTYPE, {"v has dtype"}, rotary.dl(), &part_bytes, nullptr, nullptr, KVC_APPEND_AS_STORED},
    };
    for (const Bad &bad : all) {
      SCOPED_TRACE(bad.mentions[0]);
      kvc_append_args args;
      kvc_append_args_init(&args);
      args.flags = bad.flags;
      args.k = bad.k;
      args.v = bad.v;
      args.k_scale = bad.k_scale;
      args.v_scale = bad.v_scale;
      refused(
          rows.cache, {bad.status}, "kvc_forward_append",
          [&](kvc_error *e) { return kvc_forward_append(rows.cache, forward, 0, &args, e); }, bad.mentions);
    }
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = q.dl();
    args.out = out.dl();
    args.v = latent.dl();
    refused(rows.cache, {KVC_ERROR_NULL_ARGUMENT}, "kvc_forward_attend",
            [&](kvc_error *e) { return kvc_forward_attend(rows.cache, forward, 0, &args, e); }, {"k is NULL"});
    args.v = nullptr;
    args.k = row.dl();
    args.out = q.dl();
    refused(rows.cache, {KVC_ERROR_SHAPE}, "kvc_forward_attend",
            [&](kvc_error *e) { return kvc_forward_attend(rows.cache, forward, 0, &args, e); }, {"[3, 4, 16]"});
    EXPECT_EQ(kvc_forward_abort(rows.cache, forward, nullptr), KVC_OK);
  }
}

// Outputs may follow the rotary part of K directly. Of a row in two parts, each part has its own width.
TEST(Latent, OutputsBehindAPart) {
  Rows rows(latent_spec());
  Tensor both(DType::kF32, {3 * (kRow - kLatent) + 3 * 4 * kLatent, 1}), q(DType::kF32, {3, 4, kRow}),
      latent(DType::kF32, {3, 1, kLatent});
  DLTensor rotary = *latent.dl(), out = *q.dl();
  int64_t rotary_shape[] = {3, 1, kRow - kLatent}, out_shape[] = {3, 4, kLatent};
  rotary.data = both.data();
  out.data = static_cast<float *>(both.data()) + 3 * (kRow - kLatent);
  rotary.shape = rotary_shape, out.shape = out_shape;
  rotary.strides = out.strides = nullptr;
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = q.dl(), args.k = &rotary, args.v = latent.dl(), args.out = &out;
  const kvc_forward forward = rows.begin(3);
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_forward_attend(rows.cache, forward, 0, &args, &error), KVC_OK) << error.message;
  EXPECT_EQ(kvc_forward_abort(rows.cache, forward, nullptr), KVC_OK);
}

}  // namespace
}  // namespace kvt
