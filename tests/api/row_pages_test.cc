// Row formats with scales after the rows of a page, through the API: pools of servers, stored bytes, and index keys.
#include <random>

#include "fixture.h"
#include "row_format.h"

namespace kvt {
namespace {

constexpr DType kPageTypes[] = {DType::kDsV4, DType::kMxfp4, DType::kMxfp8, DType::kFp8Blocks, DType::kNvfp4};

// One layer of rows of 512 dims, all of which are V.
CacheSpec paged_spec(DType type) {
  CacheSpec spec = packed_spec(3);
  spec.layers[0].d = spec.layers[0].latent = 512;
  spec.layers[0].dtype = type;
  return spec;
}

// Rows and their scales as the definition gives them.
struct PagedRows {
  std::vector<uint8_t> rows, scales;
  int64_t row_bytes, scale_bytes;

  PagedRows(DType type, const Tensor &given) {
    const BlockFormat &format = *block_format(type);
    const auto dims = static_cast<int>(given.dim(2));
    row_bytes = format.row_bytes(dims), scale_bytes = format.page_bytes(dims);
    const auto tokens = static_cast<size_t>(given.dim(0));
    rows.resize(tokens * static_cast<size_t>(row_bytes));
    scales.resize(tokens * static_cast<size_t>(scale_bytes));
    for (int64_t t = 0; t < given.dim(0); t++) {
      std::vector<float> row(static_cast<size_t>(dims));
      for (int d = 0; d < dims; d++) row[static_cast<size_t>(d)] = given.at(t, 0, d);
      quantise_block_row(format, row.data(), dims, &rows[static_cast<size_t>(t * row_bytes)],
                         &scales[static_cast<size_t>(t * scale_bytes)]);
    }
  }
};

int64_t bytes_of(const DLTensor &t) {
  int64_t bytes = t.dtype.bits / 8;
  for (int i = 0; i < t.ndim; i++) bytes *= t.shape[i];
  return bytes;
}

// Expects that an export has the rows and scales of K and V. Returns K and its scales.
std::pair<Managed, Managed> check_export(World &w, const PagedRows &wanted, const char *name) {
  kvc_exported exported;
  kvc_exported_init(&exported);
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.parts = KVC_EXPORT_K | KVC_EXPORT_V | KVC_EXPORT_K_SCALE | KVC_EXPORT_V_SCALE;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_seq_export(w.cache, w.seq, &args, &exported, nullptr, &error), KVC_OK) << error.message;
  Managed owners[] = {Managed(exported.k), Managed(exported.v), Managed(exported.k_scale), Managed(exported.v_scale)};
  for (int i = 0; i < 4; i++) {
    const DLTensor &t = owners[i]->dl_tensor;
    const std::vector<uint8_t> &bytes = i < 2 ? wanted.rows : wanted.scales;
    EXPECT_EQ(bytes_of(t), static_cast<int64_t>(bytes.size())) << name << " part " << i;
    EXPECT_EQ(std::memcmp(t.data, bytes.data(), bytes.size()), 0) << name << " part " << i;
  }
  return {std::move(owners[0]), std::move(owners[2])};
}

// An import as stored needs scales in the shape of an export. Then it gives the same bytes.
void check_import(World &w, const DLTensor *k, const DLTensor *k_scale, const PagedRows &wanted) {
  kvc_import_args import;
  kvc_import_args_init(&import);
  import.flags = KVC_IMPORT_AS_STORED;
  import.num_layers = 1;
  import.k = &k;
  kvc_seq copy = 0;
  ASSERT_EQ(kvc_seq_add(w.cache, 1, &copy, nullptr), KVC_OK);
  const auto run = [&](kvc_error *e) { return kvc_seq_import(w.cache, copy, &import, nullptr, e); };
  refused(w.cache, {KVC_ERROR_NULL_ARGUMENT}, "kvc_seq_import", run, {"k_scale is NULL"});
  DLTensor narrow = *k_scale;
  int64_t narrow_shape[] = {k->shape[0], 1, 3};
  narrow.shape = narrow_shape;
  const DLTensor *bad = &narrow;
  import.k_scale = &bad;
  refused(w.cache, {KVC_ERROR_SHAPE}, "kvc_seq_import", run, {"k_scale", "[7, 1, 3]"});
  import.k_scale = &k_scale;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(run(&error), KVC_OK) << error.message;
  const Export second(w.cache, copy);
  EXPECT_EQ(std::memcmp(second.k->dl_tensor.data, wanted.rows.data(), wanted.rows.size()), 0);
}

// Attends with one query, which sees `keys` and then its own key.
void check_attention(World &w, DType type, std::vector<std::vector<float>> keys) {
  const BlockFormat &format = *block_format(type);
  const kvc_forward f = w.begin({w.seq}, {1});
  LayerTensors step(w.spec.layers[0], 1);
  kvc_append_args last;
  kvc_append_args_init(&last);
  last.k = step.k.dl();
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_forward_append(w.cache, f, 0, &last, &error), KVC_OK) << error.message;
  const PagedRows own(type, step.k);
  keys.emplace_back(512);
  read_block_row(format, own.rows.data(), own.scales.data(), 512, 512, keys.back().data());
  kvc_attend_args attend = step.attend_args(false);
  ASSERT_EQ(kvc_forward_attend(w.cache, f, 0, &attend, &error), KVC_OK) << error.message;
  for (int64_t h = 0; h < 3; h++) {
    double sum = 0;
    std::vector<double> out(512, 0.0);
    for (const std::vector<float> &key : keys) {
      double dot = 0;
      for (size_t d = 0; d < 512; d++) {
        dot += static_cast<double>(step.q.at(0, h, static_cast<int>(d))) * static_cast<double>(key[d]);
      }
      const double weight = std::exp(dot * 0.05);
      sum += weight;
      for (size_t d = 0; d < 512; d++) out[d] += weight * static_cast<double>(key[d]);
    }
    for (size_t d = 0; d < 512; d += 7) {
      ASSERT_NEAR(static_cast<double>(step.out.at(0, h, static_cast<int>(d))), out[d] / sum, 1e-5) << format.name << d;
    }
  }
  ASSERT_EQ(kvc_forward_abort(w.cache, f, &error), KVC_OK) << error.message;
}

// The pool of a server is [pages, bytes of a page], with a gap after each page. append writes rows and scales where the
// format has them, exports and views return them, an import as stored gives them again, and attention reads what the
// server wrote.
TEST(RowPages, PagesOfAServer) {
  constexpr int kTokens = 7, kPageSize = 4, kPages = 10;
  for (const DType type : kPageTypes) {
    const CacheSpec spec = paged_spec(type);
    const BlockFormat &format = *block_format(type);
    LayerTensors given(spec.layers[0], kTokens);
    const PagedRows wanted(type, given.k);
    const int64_t page_bytes = kPageSize * (wanted.row_bytes + wanted.scale_bytes), stride = page_bytes + 64;
    auto memory = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(kPages * stride), 0xff);
    World w(spec, 1, 0);
    BuiltConfig built(spec);
    built.layers[0].k_storage = Pool::make(memory, 0, {kDLUInt, 8, 1}, {kPages, page_bytes}, {stride, 1});
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_cache_create(w.context.get(), &built.config, &w.cache, &error), KVC_OK) << error.message;
    w.cache_owner.reset(w.cache);
    ASSERT_EQ(kvc_seq_add(w.cache, 1, &w.seq, nullptr), KVC_OK);
    append(w, given.k.dl(), kTokens);
    const std::vector<int32_t> pages = pages_of(w);
    for (int64_t t = 0; t < kTokens; t++) {
      uint8_t *const page = memory->data() + pages[static_cast<size_t>(t / kPageSize)] * stride;
      const int64_t slot = t % kPageSize;
      EXPECT_EQ(std::memcmp(page + slot * wanted.row_bytes, &wanted.rows[static_cast<size_t>(t * wanted.row_bytes)],
                            static_cast<size_t>(wanted.row_bytes)),
                0)
          << format.name << " row " << t;
      EXPECT_EQ(std::memcmp(page + kPageSize * wanted.row_bytes + slot * wanted.scale_bytes,
                            &wanted.scales[static_cast<size_t>(t * wanted.scale_bytes)],
                            static_cast<size_t>(wanted.scale_bytes)),
                0)
          << format.name << " scales " << t;
    }
    const auto [k, k_scale] = check_export(w, wanted, format.name);
    DLManagedTensorVersioned *view = nullptr;
    ASSERT_EQ(kvc_cache_export_pool(w.cache, 0, KVC_POOL_K_SCALE, 0, &view, nullptr, nullptr), KVC_OK);
    const Managed view_owner(view);
    const DLTensor &scales = view->dl_tensor;
    ASSERT_EQ(scales.ndim, 4) << format.name;
    EXPECT_EQ(scales.shape[3] * scales.dtype.bits / 8, wanted.scale_bytes);
    EXPECT_EQ(static_cast<uint8_t *>(scales.data), memory->data() + kPageSize * wanted.row_bytes);
    check_import(w, &k->dl_tensor, &k_scale->dl_tensor, wanted);
    // The server negates the first element of each row. Attention over this sequence sees it.
    std::vector<std::vector<float>> keys;
    for (int64_t t = 0; t < kTokens; t++) {
      uint8_t *const page = memory->data() + pages[static_cast<size_t>(t / kPageSize)] * stride;
      uint8_t *const row = page + t % kPageSize * wanted.row_bytes;
      row[0] ^= format.bits == 8 ? 0x80 : 0x08;
      keys.emplace_back(512);
      read_block_row(format, row, page + kPageSize * wanted.row_bytes + t % kPageSize * wanted.scale_bytes, 512, 512,
                     keys.back().data());
    }
    check_attention(w, type, keys);
  }
}

TEST(RowPages, PagesThatAreRefused) {
  ContextPtr context = make_context();
  const auto check = [&](const std::function<void(kvc_layer_config &)> &change, Statuses statuses,
                         std::vector<std::string> mentions) {
    BuiltConfig built(paged_spec(DType::kDsV4));
    change(built.layers[0]);
    kvc_cache *cache = nullptr;
    refused(
        nullptr, statuses, "kvc_cache_create",
        [&](kvc_error *e) { return kvc_cache_create(context.get(), &built.config, &cache, e); }, mentions);
    drop_pools(&built.layers);
  };
  const auto storage = [](std::vector<int64_t> shape, std::vector<int64_t> strides, int64_t offset) {
    auto memory = std::make_shared<std::vector<uint8_t>>(64 << 10, 0xff);
    return Pool::make(memory, offset, {kDLUInt, 8, 1}, std::move(shape), std::move(strides));
  };
  check([&](auto &l) { l.k_storage = storage({10, 2335}, {2340, 1}, 0); }, {KVC_ERROR_SHAPE}, {"[10, 2335]", "2336"});
  check([&](auto &l) { l.k_storage = storage({9, 2336}, {2336, 1}, 0); }, {KVC_ERROR_SHAPE}, {"[9, 2336]"});
  check([&](auto &l) { l.k_storage = storage({10, 2336}, {2338, 1}, 0); }, {KVC_ERROR_STRIDE}, {"2338", "4 bytes"});
  check([&](auto &l) { l.k_storage = storage({10, 2336}, {2336, 1}, 2); }, {KVC_ERROR_STRIDE}, {"4 bytes"});
  check([&](auto &l) { l.k_storage = storage({10, 1, 4, 576}, {2336, 2304, 576, 1}, 0); }, {KVC_ERROR_RANK},
        {"k_storage has 4 dims, not 2"});
  check([](auto &l) { l.head_dim = 576; }, {KVC_ERROR_INVALID_ARGUMENT}, {"FP8_DS_V4", "head_dim is 576"});
  check([](auto &l) { l.row_format = KVC_ROW_FORMAT_MXFP4, l.latent_dim = 480; }, {KVC_ERROR_INVALID_ARGUMENT},
        {"MXFP4", "latent_dim 480"});
  check([](auto &l) { l.row_format = KVC_ROW_FORMAT_MXFP8, l.head_dim = l.latent_dim = 80; },
        {KVC_ERROR_INVALID_ARGUMENT}, {"MXFP8", "multiples of 32"});
}

// Index keys: a query selects the keys that it selects among float32 keys with the same values.
TEST(RowPages, IndexKeysAreScored) {
  constexpr int kTokens = 90, kHeads = 16, kDims = 128;
  for (const DType type : {DType::kMxfp4, DType::kMxfp8, DType::kFp8Blocks, DType::kNvfp4}) {
    CacheSpec spec;
    spec.page_size = 8;
    spec.max_batch_tokens = kTokens;
    spec.groups = {{0, 20}};
    LayerSpec packed{0, kHeads, 1, kDims, 0, type}, plain{0, kHeads, 1, kDims, 0, DType::kF32};
    packed.keys_only = plain.keys_only = true;
    spec.layers = {packed, plain};
    World w(spec, 1, 0);
    Tensor keys(DType::kF32, {kTokens, 1, kDims}), q(DType::kBF16, {kTokens, kHeads, kDims});
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (int64_t t = 0; t < kTokens; t++) {
      for (int d = 0; d < kDims; d++) keys.set(t, 0, d, normal(random));
      for (int h = 0; h < kHeads; h++) {
        for (int d = 0; d < kDims; d++) q.set(t, h, d, normal(random));
      }
    }
    const PagedRows stored(type, keys);
    Tensor read(DType::kF32, {kTokens, 1, kDims});
    for (int64_t t = 0; t < kTokens; t++) {
      std::vector<float> row(kDims);
      read_block_row(*block_format(type), &stored.rows[static_cast<size_t>(t * stored.row_bytes)],
                     &stored.scales[static_cast<size_t>(t * stored.scale_bytes)], kDims, kDims, row.data());
      for (int d = 0; d < kDims; d++) read.set(t, 0, d, row[static_cast<size_t>(d)]);
    }
    const kvc_forward f = w.begin({w.seq}, {kTokens});
    kvc_error error = KVC_ERROR_INIT;
    std::vector<int32_t> lists[2];
    for (int layer = 0; layer < 2; layer++) {
      kvc_append_args append;
      kvc_append_args_init(&append);
      append.k = layer == 0 ? keys.dl() : read.dl();
      ASSERT_EQ(kvc_forward_append(w.cache, f, layer, &append, &error), KVC_OK) << error.message;
      lists[layer].resize(size_t{kTokens} * 10);
      int64_t shape[] = {kTokens, 1, 10};
      const DLTensor indices = {lists[layer].data(), test_device(), 3, {kDLInt, 32, 1}, shape, nullptr, 0};
      kvc_select_args args;
      kvc_select_args_init(&args);
      args.rule = KVC_SELECT_RELU_SUM;
      args.q = q.dl();
      args.indices = &indices;
      ASSERT_EQ(kvc_forward_select(w.cache, f, layer, &args, &error), KVC_OK) << error.message;
    }
    EXPECT_TRUE(lists[0] == lists[1]) << name_of(type);
    EXPECT_NE(lists[0].back(), -1);
    ASSERT_EQ(kvc_forward_abort(w.cache, f, &error), KVC_OK) << error.message;
  }
}

}  // namespace
}  // namespace kvt
