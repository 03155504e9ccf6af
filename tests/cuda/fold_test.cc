// Deterministic attention on tensor cores (kvc_backend_plan.fold_keys). The bits of a query do not depend on how many
// queries are computed beside it, whether its keys are cut into items, or how long its sequence has become.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "kernels/common/convert.h"
#include "kernels/common/rope_table.h"
#include "kernels/cuda/backend.h"
#include "pool.h"
#include "staged_attend.h"

namespace kvc::kernels::cuda {
namespace {

constexpr int32_t kFold = 512, kLength = 1032, kQueries = 9, kHeads = 4, kPage = 16, kFoldPages = 80;

// How the queries are computed.
struct Way {
  int32_t queries = kQueries;  // of an item
  bool split = false;          // items of kFold keys, merged
  bool one_by_one = false;     // a call for each query, with the sequence as long as it was then
  int32_t fold = kFold;
};

// Dims of keys that are rotated on read.
struct Rope {
  int32_t dim = 0, offset = 0;
  bool interleaved = false;
};

struct Bits {
  std::vector<float> out, lse;
  int64_t products = 0;
};

class Folding {
 public:
  // latent: the leading dims of K that are V. 0: V is a row beside K, with as many dims.
  Folding(Type stored, int32_t dim, const char* simd, const Rope& rope = {}, int32_t latent = 0)
      : stored_(stored), dim_(dim), v_dim_(latent > 0 ? latent : dim), random_(dim) {
    kvc_backend_open_args open = {};
    open.simd = simd;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(table_->open(&open, &device_, &error), KVC_OK) << error.message;
    layer_.format = stored_format(stored == Type::kBf16 ? DLDataType{kDLBfloat, 16, 1}
                                  : stored == Type::kI8 ? DLDataType{kDLInt, 8, 1}
                                                        : DLDataType{kDLFloat8_e4m3fn, 8, 1});
    layer_.num_pages = kFoldPages;
    layer_.page_size = kPage;
    layer_.num_q_heads = kHeads;
    layer_.num_kv_heads = 1;
    layer_.head_dim = dim;
    layer_.v_head_dim = v_dim_;
    layer_.row_kind = latent > 0 ? KVC_BACKEND_ROW_LATENT : KVC_BACKEND_ROW_KV;
    layer_.rope_class = -1;
    layer_.rope_dim = rope.dim;
    layer_.rope_offset = rope.offset;
    layer_.rope_interleaved = rope.interleaved ? 1 : 0;
    std::vector<double> frequencies;
    for (int32_t i = 0; i < rope.dim / 2; ++i) frequencies.push_back(std::pow(100.0, -2.0 * i / rope.dim));
    key_table_.resize(static_cast<size_t>(KVC_BACKEND_ROPE_LEVELS * KVC_BACKEND_ROPE_RADIX * rope.dim));
    const kvc_backend_rope_table table = {rope.dim, 0, frequencies.data(), 1.1, key_table_.data()};
    fill_rope_table(&table, key_table_.data());
    layer_.softmax_scale = 0.2f;
    k_ = fill(&layer_.k);
    v_ = fill(&layer_.v);
    if (latent > 0) layer_.v = layer_.k;
    std::normal_distribution<float> normal;
    if (stored == Type::kI8) {
      for (int i = 0; i < kFoldPages * kPage; ++i) scales_.push_back(0.01f + 0.001f * static_cast<float>(i % 7));
      layer_.k_scales = layer_.v_scales = test::scales_of_tokens(scales_.data(), kPage, kPage, 1);
    }
    q_.resize(static_cast<size_t>(kQueries * kHeads * dim));
    for (Bf16& x : q_) narrow(normal(random_), &x);
    for (int32_t i = 0; i < kFoldPages; ++i) nodes_.push_back(i * 37 % kFoldPages);
    nodes_.resize(3 * 32, -1);  // leaves
    for (int32_t i = 0; i < 32; ++i) nodes_.push_back(i < 3 ? i : -1);
  }
  ~Folding() {
    table_->close(device_);
    free(k_);
    free(v_);
  }

  // Dim d of the key in slot `slot` of page `page`.
  void set_key(int64_t page, int64_t slot, int64_t d, float x) {
    store_element(stored_, k_, (page * kPage + slot) * dim_ + d, x);
  }

  Bits attend(const Way& way) {
    Bits bits;
    bits.out.assign(static_cast<size_t>(kQueries * kHeads * v_dim_), NAN);
    bits.lse.assign(static_cast<size_t>(kQueries * kHeads), NAN);
    const int64_t before = cuda_emulation::counts().products;
    for (int32_t t = 0; way.one_by_one && t < kQueries; ++t) attend_tokens(way, t, 1, &bits);
    if (!way.one_by_one) attend_tokens(way, 0, kQueries, &bits);
    bits.products = cuda_emulation::counts().products - before;
    return bits;
  }

 private:
  void* fill(kvc_backend_pool* pool) {
    const int64_t elements = int64_t{kFoldPages} * kPage * dim_;
    void* const data = aligned_alloc(16, static_cast<size_t>(elements * element_bytes(stored_)));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < elements; ++i) {
      store_element(stored_, data, i, normal(random_) * (stored_ == Type::kI8 ? 40.0f : 1.0f));
    }
    *pool = test::pool_of(stored_dtype(layer_), data, int64_t{kPage} * dim_, int64_t{kPage} * dim_, dim_, dim_);
    return data;
  }

  // Tokens [first, first + count) of the last kQueries tokens, in a sequence that ends with them.
  void attend_tokens(const Way& way, int32_t first, int32_t count, Bits* bits) {
    const int32_t length = kLength - kQueries + first + count, token_begin[] = {0, count}, root = 3, levels = 2;
    std::vector<int32_t> positions;
    for (int32_t t = 0; t < count; ++t) positions.push_back(length - count + t);
    kvc_backend_rows rows = {};
    rows.num_rows = 1;
    rows.num_tokens = count;
    rows.token_begin = token_begin;
    rows.kv_lengths = &length;
    rows.positions = positions.data();
    const kvc_backend_tables tables = {nodes_.data(), &root, &levels, nullptr, nullptr};
    std::vector<kvc_backend_item> items;
    std::vector<kvc_backend_tile> tiles;
    int64_t floats = 0;
    for (int32_t q = 0; q < count; q += way.queries) {
      kvc_backend_item item = {};
      item.q_begin = q;
      item.q_end = std::min(count, q + way.queries);
      item.head_end = 1;
      item.tile = way.split ? static_cast<int32_t>(tiles.size()) : -1;
      const int32_t each = way.split ? kFold : length, begin = static_cast<int32_t>(items.size());
      for (int32_t key = 0; key < length; key += each) {
        item.key_begin = key;
        item.key_end = std::min(length, key + each);
        item.partial_offset = way.split ? floats : -1;
        floats += int64_t{item.q_end - item.q_begin} * kHeads * (v_dim_ + 2);
        items.push_back(item);
      }
      tiles.push_back({begin, static_cast<int32_t>(items.size()), 0, 0, 0, 0});
    }
    std::vector<float> partials(static_cast<size_t>(floats), NAN);
    kvc_backend_plan plan = {};
    plan.arrays.rows = rows;
    plan.arrays.tables = tables;
    plan.arrays.items = items.data();
    plan.arrays.tiles = tiles.data();
    plan.layer = &layer_;
    plan.num_items = static_cast<int64_t>(items.size());
    plan.num_tiles = way.split ? static_cast<int64_t>(tiles.size()) : 0;
    plan.partials = partials.data();
    plan.fold_keys = way.fold;
    kvc_backend_attend args = {};
    args.layer = &layer_;
    const int64_t row = int64_t{kHeads} * dim_, out_row = int64_t{kHeads} * v_dim_;
    args.q = {q_.data() + first * row, row, dim_, {kDLBfloat, 16, 1}, 0};
    args.out = {bits->out.data() + first * out_row, out_row, v_dim_, {kDLFloat, 32, 1}, 0};
    args.lse = bits->lse.data() + first * kHeads;
    args.lse_token_stride = kHeads;
    args.lse_head_stride = 1;
    args.key_tables = key_table_.empty() ? nullptr : key_table_.data();
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(test::staged_attend(table_, device_, args, plan, nullptr, &error), KVC_OK) << error.message;
  }

  const kvc_backend* const table_ = backend_of(KVC_BACKEND_VERSION);
  const Type stored_;
  const int32_t dim_, v_dim_;
  std::mt19937 random_;
  kvc_backend_device* device_ = nullptr;
  kvc_backend_layer layer_ = {};
  void *k_ = nullptr, *v_ = nullptr;
  std::vector<float> scales_;
  std::vector<double> key_table_;
  std::vector<Bf16> q_;
  std::vector<int32_t> nodes_;
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Queries on both sides of key 1024; in blocks of all their rows, of few, and of one query.
const Way kWays[] = {
    {.queries = 1}, {.queries = 7}, {.queries = 8, .split = true}, {.split = true, .one_by_one = true}};

TEST(MmaFold, BitsAreThoseOfEveryWay) {
  struct Case {
    Type stored;
    int32_t dim;
    Rope rope;
    int32_t latent = 0;
  };
  for (const auto& [stored, dim, rope, latent] : {Case{Type::kBf16, 64, {}},
                                                  {Type::kI8, 64, {}},
                                                  {Type::kBf16, 192, {}},
                                                  {Type::kBf16, 64, {64, 0, false}},
                                                  {Type::kBf16, 80, {}, 64},
                                                  {Type::kI8, 176, {}, 144},
                                                  {Type::kBf16, 80, {16, 64, false}, 64}}) {
    Folding folding(stored, dim, nullptr, rope, latent);
    const Bits once = folding.attend({});
    EXPECT_GT(once.products, 0);
    for (const Way& way : kWays) {
      const Bits bits = folding.attend(way);
      EXPECT_GT(bits.products, 0);
      EXPECT_TRUE(same(once.out, bits.out)) << dim << " dims, items of " << way.queries << " split " << way.split;
      EXPECT_TRUE(same(once.lse, bits.lse)) << dim << " dims, items of " << way.queries << " split " << way.split;
    }
  }
}

// The numbers are those of the simple kernel. Without folding, cutting into items changes the bits.
TEST(MmaFold, NumbersAreThoseOfTheSimpleKernel) {
  const std::pair<Type, int32_t> cases[] = {{Type::kBf16, 0}, {Type::kI8, 0}, {Type::kBf16, 48}, {Type::kI8, 48}};
  for (const auto& [stored, latent] : cases) {
    Folding fast(stored, 64, nullptr, {}, latent), simple(stored, 64, "sm_90_simple", {}, latent);
    const Bits a = fast.attend({}), b = simple.attend({});
    EXPECT_EQ(b.products, 0);
    for (size_t i = 0; i < a.out.size(); ++i) ASSERT_NEAR(a.out[i], b.out[i], 4e-3) << i;
    for (size_t i = 0; i < a.lse.size(); ++i) ASSERT_NEAR(a.lse[i], b.lse[i], 1e-4) << i;
    const Bits whole = fast.attend({.fold = 0}), cut = fast.attend({.queries = 7, .split = true, .fold = 0});
    EXPECT_FALSE(same(whole.out, cut.out));
  }
}

// Keys that are rotated on read, in both layouts of pairs: some dims or all, and offsets that are not at the start of a
// chunk.
TEST(MmaRotated, NumbersAreThoseOfTheSimpleKernel) {
  const Rope ropes[] = {{64, 0, false}, {32, 0, true}, {34, 3, false}, {6, 57, true}, {16, 16, false}, {2, 62, false}};
  for (const Rope& rope : ropes) {
    for (Type stored : {Type::kBf16, Type::kI8}) {
      Folding fast(stored, 64, nullptr, rope), simple(stored, 64, "sm_90_simple", rope);
      const Bits expected = simple.attend({.queries = 3, .fold = 0});
      EXPECT_EQ(expected.products, 0);
      for (const Way& way : {Way{.queries = 3, .fold = 0}, Way{.fold = 0}, Way{}}) {
        const Bits bits = fast.attend(way);
        EXPECT_GT(bits.products, 0);
        for (size_t i = 0; i < bits.out.size(); ++i) {
          ASSERT_NEAR(bits.out[i], expected.out[i], 4e-3) << rope.dim << " at " << rope.offset << ": " << i;
        }
        for (size_t i = 0; i < bits.lse.size(); ++i) {
          ASSERT_NEAR(bits.lse[i], expected.lse[i], 1e-5) << rope.dim << " at " << rope.offset << ": " << i;
        }
      }
    }
  }
}

// An infinite key gives infinite scores, or NaN where infinities cancel. Its lower parts make nothing else NaN.
TEST(MmaRotated, InfiniteKeys) {
  const Rope rope = {64, 0, false};
  Folding fast(Type::kBf16, 64, nullptr, rope), simple(Type::kBf16, 64, "sm_90_simple", rope);
  for (Folding* folding : {&fast, &simple}) folding->set_key(37, 5, 7, INFINITY);
  const Bits bits = fast.attend({.fold = 0}), expected = simple.attend({.fold = 0});
  int64_t numbers = 0;
  for (size_t i = 0; i < bits.out.size(); ++i) {
    ASSERT_EQ(std::isnan(bits.out[i]), std::isnan(expected.out[i])) << i;
    if (std::isnan(expected.out[i])) continue;
    ASSERT_NEAR(bits.out[i], expected.out[i], 4e-3) << i;
    ++numbers;
  }
  EXPECT_GT(numbers, 0);
  EXPECT_LT(numbers, static_cast<int64_t>(bits.out.size()));
}

// GPUs where the states of earlier keys do not fit beside a tile: the simple kernel computes every row.
TEST(MmaFold, SmallDevices) {
  cuda_emulation::set_shared(70 * 1024, 71 * 1024);
  Folding folding(Type::kBf16, 192, nullptr);
  EXPECT_EQ(folding.attend({.queries = 1}).products, 0);
  EXPECT_GT(folding.attend({.queries = 1, .fold = 0}).products, 0);
  cuda_emulation::set_shared(227 * 1024, 228 * 1024);
}

}  // namespace
}  // namespace kvc::kernels::cuda
