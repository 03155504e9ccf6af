// Layers of packed MLA rows through the API: configs, sizes, stored bytes, views, a server's pool, and lists of keys.
#include "ds_mla.h"
#include "fixture.h"

namespace kvt {
namespace {

CacheSpec packed_spec(int heads = 4) {
  CacheSpec spec;
  spec.page_size = 4;
  spec.max_sequences = 4;
  spec.max_batch_tokens = 32;
  spec.groups = {{0, 10}};
  LayerSpec layer{0, heads, 1, kDsMlaDims, 0, DType::kDsMla};
  layer.latent = kDsMlaLatentDims;
  layer.scale = 0.05;
  spec.layers = {layer};
  return spec;
}

TEST(RowFormat, ConfigsThatAreRefused) {
  ContextPtr context = make_context();
  const auto check = [&](const std::function<void(kvc_layer_config &, kvc_group_config &)> &change, Statuses statuses,
                         std::vector<std::string> mentions) {
    BuiltConfig built(packed_spec());
    change(built.layers[0], built.groups[0]);
    kvc_cache *cache = nullptr;
    const kvc_error error = refused(
        nullptr, statuses, "kvc_cache_create",
        [&](kvc_error *e) { return kvc_cache_create(context.get(), &built.config, &cache, e); }, mentions);
    EXPECT_EQ(error.index, 0) << error.message;
  };
  const float scale = 1.0f;
  check([](auto &l, auto &) { l.row_format = 2; }, {KVC_ERROR_UNSUPPORTED}, {"row_format 2", "FP8_DS_MLA (1)"});
  check([](auto &l, auto &) { l.row_format = -1; }, {KVC_ERROR_UNSUPPORTED}, {"row_format -1"});
  check([](auto &l, auto &) { l.reserved = 1; }, {KVC_ERROR_UNSUPPORTED}, {"reserved 0x1"});
  check([](auto &l, auto &) { l.head_dim = 544; }, {KVC_ERROR_INVALID_ARGUMENT}, {"FP8_DS_MLA", "head_dim is 544"});
  check([](auto &l, auto &) { l.latent_dim = 576; }, {KVC_ERROR_INVALID_ARGUMENT}, {"latent_dim 576"});
  check([](auto &l, auto &) { l.dtype = dl_type(DType::kBF16); }, {KVC_ERROR_INVALID_ARGUMENT},
        {"dtype bfloat16", "FP8_DS_MLA"});
  check([&](auto &l, auto &) { l.num_scales = 1, l.k_scales = &scale; }, {KVC_ERROR_INVALID_ARGUMENT},
        {"num_scales 1"});
  check(
      [](auto &l, auto &g) {
        g.row = KVC_ROW_KV;
        l.latent_dim = 0, l.head_dim = 512;
      },
      {KVC_ERROR_INVALID_ARGUMENT}, {"FP8_DS_MLA needs MLA rows"});
  check(
      [](auto &l, auto &) {
        l.flags = KVC_LAYER_KEYS_ONLY;
        l.latent_dim = 0, l.head_dim = 512;
      },
      {KVC_ERROR_INVALID_ARGUMENT}, {"FP8_DS_MLA needs MLA rows"});
  // A layer that reads another's rows has them in the same format.
  BuiltConfig reader(packed_spec());
  std::vector<kvc_layer_config> layers = {reader.layers[0], reader.layers[0]};
  layers[1].kv_layer = 1;
  layers[1].row_format = KVC_ROW_FORMAT_DTYPE;
  reader.config.layers = layers.data();
  reader.config.num_layers = 2;
  kvc_cache *cache = nullptr;
  refused(nullptr, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_cache_create",
          [&](kvc_error *e) { return kvc_cache_create(context.get(), &reader.config, &cache, e); }, {"row_format"});
}

TEST(RowFormat, EstimateCountsWholeRows) {
  ContextPtr context = make_context();
  BuiltConfig built(packed_spec());
  built.layers[0].dtype = dl_type(DType::kF32);  // the default, by its name
  kvc_estimate estimate;
  kvc_estimate_init(&estimate);
  ASSERT_EQ(kvc_cache_estimate(context.get(), &built.config, 0, &estimate, nullptr), KVC_OK);
  EXPECT_EQ(estimate.token_bytes, 656);
  EXPECT_EQ(estimate.page_bytes, 4 * 656);
}

// The bytes of rows.
std::vector<uint8_t> packed_rows(const Tensor &rows) {
  std::vector<uint8_t> bytes(static_cast<size_t>(rows.dim(0)) * kDsMlaRowBytes);
  for (int64_t t = 0; t < rows.dim(0); t++) {
    std::vector<float> row(kDsMlaDims);
    for (int d = 0; d < kDsMlaDims; d++) row[static_cast<size_t>(d)] = rows.at(t, 0, d);
    quantise_ds_mla(row.data(), &bytes[static_cast<size_t>(t) * kDsMlaRowBytes]);
  }
  return bytes;
}

// A tensor [tokens, 1, elements of a row] of bytes.
struct RowBytes {
  std::vector<uint8_t> data;
  int64_t shape[3];
  DLTensor tensor;

  RowBytes(std::vector<uint8_t> bytes, int64_t tokens, int64_t elements = kDsMlaRowBytes)
      : data(std::move(bytes)), shape{tokens, 1, elements} {
    tensor = {data.data(), test_device(), 3, {kDLUInt, 8, 1}, shape, nullptr, 0};
  }
  RowBytes(const RowBytes &) = delete;
  RowBytes &operator=(const RowBytes &) = delete;
};

void append(World &w, const DLTensor *k, int tokens, uint32_t flags = 0) {
  const kvc_forward f = w.begin({w.seq}, {tokens});
  kvc_append_args args;
  kvc_append_args_init(&args);
  args.k = k;
  args.flags = flags;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_forward_append(w.cache, f, 0, &args, &error), KVC_OK) << error.message;
  EXPECT_EQ(kvc_forward_end(w.cache, f, &error), KVC_OK) << error.message;
}

std::vector<int32_t> pages_of(const World &w) {
  std::vector<int32_t> pages(8);
  int64_t count = 0;
  EXPECT_EQ(kvc_seq_pages(w.cache, w.seq, 0, pages.data(), 8, &count, nullptr), KVC_OK);
  pages.resize(static_cast<size_t>(count));
  return pages;
}

// An export and a view have the bytes that the definition gives. V is the latent part with its scales. An import as
// stored gives the bytes again.
TEST(RowFormat, StoredBytesComeAndGo) {
  constexpr int kTokens = 11;
  World w(packed_spec(), 1, 0);
  LayerTensors given(w.spec.layers[0], kTokens);
  const std::vector<uint8_t> wanted = packed_rows(given.k);
  append(w, given.k.dl(), kTokens);
  kvc_exported exported;
  kvc_exported_init(&exported);
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.parts = KVC_EXPORT_K | KVC_EXPORT_V;
  ASSERT_EQ(kvc_seq_export(w.cache, w.seq, &args, &exported, nullptr, nullptr), KVC_OK);
  const Managed k_owner(exported.k), v_owner(exported.v);
  const DLTensor &k = k_owner->dl_tensor, &v = v_owner->dl_tensor;
  EXPECT_EQ(k.dtype.code, kDLUInt);
  EXPECT_EQ(k.dtype.bits, 8);
  ASSERT_EQ(k.shape[2], 656);
  ASSERT_EQ(v.shape[2], 528);
  EXPECT_EQ(std::memcmp(k.data, wanted.data(), wanted.size()), 0);
  DLManagedTensorVersioned *view = nullptr;
  ASSERT_EQ(kvc_cache_export_pool(w.cache, 0, KVC_POOL_K, 0, &view, nullptr, nullptr), KVC_OK);
  const Managed view_owner(view);
  const DLTensor &pool = view->dl_tensor;
  EXPECT_EQ(pool.dtype.bits, 8);
  ASSERT_EQ(pool.shape[3], 656);
  const std::vector<int32_t> pages = pages_of(w);
  for (int t = 0; t < kTokens; t++) {
    const uint8_t *const row = &wanted[static_cast<size_t>(t) * 656];
    const int64_t in_pool = pages[static_cast<size_t>(t / 4)] * pool.strides[0] + t % 4 * pool.strides[2];
    EXPECT_EQ(std::memcmp(static_cast<uint8_t *>(pool.data) + in_pool, row, 656), 0);
    EXPECT_EQ(std::memcmp(static_cast<uint8_t *>(v.data) + t * 528, row, 528), 0);
  }
  DLManagedTensorVersioned *scales = nullptr;
  refused(w.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_cache_export_pool",
          [&](kvc_error *e) { return kvc_cache_export_pool(w.cache, 0, KVC_POOL_K_SCALE, 0, &scales, nullptr, e); },
          {"scales"});
  const DLTensor *rows = &k;
  kvc_import_args import;
  kvc_import_args_init(&import);
  import.flags = KVC_IMPORT_AS_STORED;
  import.num_layers = 1;
  import.k = &rows;
  kvc_seq copy = 0;
  ASSERT_EQ(kvc_seq_add(w.cache, 1, &copy, nullptr), KVC_OK);
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_seq_import(w.cache, copy, &import, nullptr, &error), KVC_OK) << error.message;
  const Export second(w.cache, copy);
  EXPECT_EQ(std::memcmp(second.k->dl_tensor.data, wanted.data(), wanted.size()), 0);
}

TEST(RowFormat, StoredBytesThatAreRefused) {
  World w(packed_spec(), 1, 0);
  const kvc_forward f = w.begin({w.seq}, {3});
  RowBytes bytes(std::vector<uint8_t>(3 * 656, 1), 3), elements(std::vector<uint8_t>(3 * 656, 1), 3, 576);
  DLTensor floats8 = bytes.tensor;
  floats8.dtype = dl_type(DType::kE4M3);
  const auto check = [&](Statuses statuses, uint32_t flags, const DLTensor *k, const DLTensor *v,
                         std::vector<std::string> mentions) {
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.flags = flags;
    args.k = k;
    args.v = v;
    refused(
        w.cache, statuses, "kvc_forward_append",
        [&](kvc_error *e) { return kvc_forward_append(w.cache, f, 0, &args, e); }, mentions);
  };
  const uint32_t stored = KVC_APPEND_AS_STORED;
  check({KVC_ERROR_DTYPE}, 0, &bytes.tensor, nullptr, {"k has dtype uint8"});
  check({KVC_ERROR_DTYPE}, stored, &floats8, nullptr, {"k has dtype float8_e4m3fn"});
  check({KVC_ERROR_SHAPE}, stored, &elements.tensor, nullptr, {"[3, 1, 576]", "[3, 1, 656]"});
  check({KVC_ERROR_DTYPE}, stored, &bytes.tensor, &bytes.tensor, {"k has dtype uint8"});
  EXPECT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
}

// Attention of one query over rows, in float64: [heads, 512].
std::vector<double> attended(const Tensor &q, const std::vector<const uint8_t *> &rows, double scale) {
  std::vector<double> out;
  for (int64_t h = 0; h < q.dim(1); h++) {
    double sum = 0;
    std::vector<double> weighted(kDsMlaLatentDims, 0.0);
    for (const uint8_t *bytes : rows) {
      std::vector<float> row(kDsMlaDims);
      read_ds_mla(bytes, kDsMlaDims, row.data());
      double dot = 0;
      for (int d = 0; d < kDsMlaDims; d++) {
        dot += static_cast<double>(q.at(0, h, d)) * static_cast<double>(row[static_cast<size_t>(d)]);
      }
      const double weight = std::exp(dot * scale);
      sum += weight;
      for (size_t d = 0; d < kDsMlaLatentDims; d++) weighted[d] += weight * static_cast<double>(row[d]);
    }
    for (const double x : weighted) out.push_back(x / sum);
  }
  return out;
}

// The pool of a server that runs FlashMLA: [pages, page_size, 1, 656] bytes. The cache adopts it as it is: rows that
// are given as bytes lie where the server expects them, and attention, also over lists of keys, reads what the server
// wrote.
TEST(RowFormat, AServersPool) {
  constexpr int kHeads = 3, kTokens = 7, kPageSize = 4, kPages = 10;
  const CacheSpec spec = packed_spec(kHeads);
  auto memory = std::make_shared<std::vector<uint8_t>>(size_t{kPages} * kPageSize * kDsMlaRowBytes, 0xff);
  World w(spec, 1, 0);
  BuiltConfig built(spec);
  // Dims 1 and 2 of the server's tensor are exchanged.
  built.layers[0].k_storage = Pool::make(memory, 0, {kDLUInt, 8, 1}, {kPages, 1, kPageSize, kDsMlaRowBytes},
                                         {kPageSize * kDsMlaRowBytes, kDsMlaRowBytes, kDsMlaRowBytes, 1});
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_cache_create(w.context.get(), &built.config, &w.cache, &error), KVC_OK) << error.message;
  w.cache_owner.reset(w.cache);
  ASSERT_EQ(kvc_seq_add(w.cache, 1, &w.seq, nullptr), KVC_OK);
  const LayerTensors given(spec.layers[0], kTokens);
  std::vector<uint8_t> rows = packed_rows(given.k);
  const RowBytes first(std::vector<uint8_t>(rows.begin(), rows.end() - kDsMlaRowBytes), kTokens - 1);
  const RowBytes last(std::vector<uint8_t>(rows.end() - kDsMlaRowBytes, rows.end()), 1);
  append(w, &first.tensor, kTokens - 1, KVC_APPEND_AS_STORED);
  const std::vector<int32_t> pages = pages_of(w);
  std::vector<const uint8_t *> keys;
  for (int t = 0; t < kTokens - 1; t++) {
    uint8_t *const row =
        &(*memory)[static_cast<size_t>((pages[static_cast<size_t>(t / kPageSize)] * kPageSize + t % kPageSize)) *
                   kDsMlaRowBytes];
    EXPECT_EQ(std::memcmp(row, &rows[static_cast<size_t>(t) * kDsMlaRowBytes], kDsMlaRowBytes), 0) << t;
    row[512 + t % 16 / 4 * 4 + 2] ^= 0x20;  // the server writes another scale, which is no power of two
    keys.push_back(row);
  }
  keys.push_back(last.data.data());
  for (const bool lists : {false, true}) {
    const kvc_forward f = w.begin({w.seq}, {1});
    LayerTensors step(spec.layers[0], 1);
    int32_t indices[] = {5, 0, 6, 3, -1};
    int64_t list_shape[] = {1, 1, 5};
    const DLTensor list = {indices, test_device(), 3, {kDLInt, 32, 1}, list_shape, nullptr, 0};
    kvc_append_args append;
    kvc_append_args_init(&append);
    append.k = &last.tensor;
    append.flags = KVC_APPEND_AS_STORED;
    ASSERT_EQ(kvc_forward_append(w.cache, f, 0, &append, &error), KVC_OK) << error.message;
    kvc_attend_args args = step.attend_args(false);
    if (lists) args.indices = &list;
    ASSERT_EQ(kvc_forward_attend(w.cache, f, 0, &args, &error), KVC_OK) << error.message;
    const std::vector<double> wanted =
        attended(step.q, lists ? std::vector{keys[0], keys[3], keys[5], keys[6]} : keys, spec.layers[0].scale);
    for (int64_t i = 0; i < kHeads * kDsMlaLatentDims; i++) {
      ASSERT_NEAR(static_cast<double>(step.out.at(0, i / kDsMlaLatentDims, i % kDsMlaLatentDims)),
                  wanted[static_cast<size_t>(i)], 1e-5)
          << i << (lists ? " with lists" : "");
    }
    ASSERT_EQ(kvc_forward_abort(w.cache, f, &error), KVC_OK) << error.message;
  }
}

}  // namespace
}  // namespace kvt
