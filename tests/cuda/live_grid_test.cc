// Attention in a step of a graph is launched for the capacity of the graph, with a grid that is limited to what can be
// resident. Each thread block computes several blocks of the plan in turn, and each column of the merge several tiles.
// The results have the same bits as those of a grid with a thread block for each block of the plan.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "cuda_runtime.h"
#include "kernels/common/convert.h"
#include "kernels/cuda/step/staged_plan.h"
#include "opened.h"
#include "pool.h"

namespace kvc::kernels::cuda {
namespace {

class LiveGrid : public testing::TestWithParam<Type> {
 protected:
  static constexpr int32_t kDim = 64, kQHeads = 4, kKvHeads = 2, kPage = 16, kRows = 9, kPagesOfRow = 19;
  // The emulated device has four multiprocessors, each with one resident block. Row i has kQueries[i] queries and
  // kLengths[i] keys, and its keys are cut into kParts[i] items. So there are 28 blocks of the plan and 4 tiles.
  static constexpr int32_t kQueries[] = {1, 1, 8, 2, 4, 7, 1, 3, 1}, kTokens = 28;
  static constexpr int32_t kLengths[] = {300, 1, 17, 2, 200, 33, 64, 250, 5}, kParts[] = {2, 1, 1, 1, 3, 1, 2, 2, 1};

  LiveGrid() : opened_(open_device()) {
    layer_.format = stored_format(GetParam() == Type::kI8     ? DLDataType{kDLInt, 8, 1}
                                  : GetParam() == Type::kE4m3 ? DLDataType{kDLFloat8_e4m3fn, 8, 1}
                                                              : DLDataType{kDLBfloat, 16, 1});
    layer_.num_pages = kRows * kPagesOfRow;
    layer_.page_size = kPage;
    layer_.num_q_heads = kQHeads;
    layer_.num_kv_heads = kKvHeads;
    layer_.head_dim = layer_.v_head_dim = kDim;
    layer_.row_kind = KVC_BACKEND_ROW_KV;
    layer_.rope_class = -1;
    layer_.softmax_scale = 0.2f;
    k_ = fill(&layer_.k);
    v_ = fill(&layer_.v);
    if (GetParam() == Type::kI8) {
      scales_.assign(static_cast<size_t>(layer_.num_pages * kPage), 0.02f);
      layer_.k_scales = layer_.v_scales = test::scales_of_tokens(scales_.data(), kPage, 0, 1);
    }
    const size_t queries = size_t{kTokens} * kQHeads * kDim;
    q_ = static_cast<Bf16*>(aligned_alloc(16, queries * sizeof(Bf16)));
    for (size_t i = 0; i < queries; ++i) narrow(normal_(random_), &q_[i]);
    make_rows();
    make_items();
  }
  ~LiveGrid() override {
    backend_of(KVC_BACKEND_VERSION)->close(opened_.device);
    free(k_);
    free(v_);
    free(q_);
  }

  // Attention of all rows. live: null for a call outside of a graph.
  std::vector<float> attend(const kvc_backend_staged_plan::Live* live) {
    const kvc_backend* const table = backend_of(KVC_BACKEND_VERSION);
    std::vector<float> out(size_t{kTokens} * kQHeads * kDim, -7.0f), partials(static_cast<size_t>(floats_), NAN);
    kvc_backend_plan plan = {};
    plan.arrays.rows = rows_;
    plan.arrays.tables = tables_;
    plan.arrays.items = items_.data();
    plan.arrays.tiles = tiles_.data();
    plan.layer = &layer_;
    plan.num_items = static_cast<int64_t>(items_.size());
    plan.num_tiles = static_cast<int64_t>(tiles_.size());
    plan.partials = partials.data();
    kvc_backend_attend args = {};
    args.layer = &layer_;
    args.plan = &plan;
    args.q = {q_, int64_t{kQHeads} * kDim, kDim, {kDLBfloat, 16, 1}, 0};
    args.out = {out.data(), int64_t{kQHeads} * kDim, kDim, {kDLFloat, 32, 1}, 0};
    kvc_error error = KVC_ERROR_INIT;
    const kvc_backend_step* step = nullptr;
    EXPECT_EQ(table->begin_call(opened_.device, nullptr, 0, &plan, nullptr, &step, &error), KVC_OK) << error.message;
    kvc_backend_staged_plan staged = *plan.staged;
    const kvc_backend_plan on_device = plan_on_device(plan);
    if (live != nullptr) {
      staged.live = live;
      staged.live_plan = &on_device;
      staged.most = {400, 300};
      staged.max_tiles = 200;
      staged.max_tokens = 100;
      plan.staged = &staged;
    }
    EXPECT_EQ(table->attend(opened_.device, &args, nullptr, &error), KVC_OK) << error.message;
    cudaDeviceSynchronize();
    EXPECT_EQ(table->end_call(opened_.device, step, nullptr, &error), KVC_OK) << error.message;
    cudaDeviceSynchronize();
    return out;
  }

  int64_t num_blocks() const { return static_cast<int64_t>(items_.size()) * kKvHeads; }
  int64_t num_tiles() const { return static_cast<int64_t>(tiles_.size()); }

 private:
  void* fill(kvc_backend_pool* pool) {
    const int64_t elements = layer_.num_pages * kPage * kKvHeads * kDim;
    void* const data = aligned_alloc(16, static_cast<size_t>(elements * element_bytes(GetParam())));
    const float size = GetParam() == Type::kI8 ? 40.0f : 1.0f;
    for (int64_t i = 0; i < elements; ++i) store_element(GetParam(), data, i, normal_(random_) * size);
    *pool =
        test::pool_of(stored_dtype(layer_), data, int64_t{kKvHeads} * kPage * kDim, int64_t{kPage} * kDim, kDim, kDim);
    return data;
  }
  void make_rows() {
    token_begin_ = {0};
    for (int32_t r = 0; r < kRows; ++r) {
      token_begin_.push_back(token_begin_.back() + kQueries[r]);
      for (int32_t i = kQueries[r]; i > 0; --i) positions_.push_back(kLengths[r] - i);
      levels_.push_back(1);
      roots_.push_back(static_cast<int32_t>(nodes_.size()) / KVC_BACKEND_NODE_FANOUT);
      for (int32_t i = 0; i < KVC_BACKEND_NODE_FANOUT; ++i) {
        nodes_.push_back(i < kPagesOfRow ? (i * kRows + r) % static_cast<int32_t>(layer_.num_pages) : -1);
      }
    }
    rows_.num_rows = kRows;
    rows_.num_tokens = kTokens;
    rows_.token_begin = token_begin_.data();
    rows_.kv_lengths = kLengths;
    rows_.positions = positions_.data();
    tables_ = {nodes_.data(), roots_.data(), levels_.data(), nullptr, nullptr};
  }
  void make_items() {
    for (int32_t r = 0; r < kRows; ++r) {
      const int32_t parts = kParts[r], begin = static_cast<int32_t>(items_.size());
      for (int32_t i = 0; i < parts; ++i) {
        kvc_backend_item item = {};
        item.row = r;
        item.q_end = kQueries[r];
        item.head_end = kKvHeads;
        item.key_begin = kLengths[r] * i / parts;
        item.key_end = kLengths[r] * (i + 1) / parts;
        item.tile = parts > 1 ? static_cast<int32_t>(tiles_.size()) : -1;
        item.partial_offset = parts > 1 ? floats_ : -1;
        if (parts > 1) floats_ += int64_t{kQueries[r]} * kQHeads * (kDim + 2);
        items_.push_back(item);
      }
      if (parts > 1) tiles_.push_back({begin, begin + parts, 0, 0, 0, 0});
    }
  }

  Opened opened_;
  std::mt19937 random_{5};
  std::normal_distribution<float> normal_;
  kvc_backend_layer layer_ = {};
  void *k_ = nullptr, *v_ = nullptr;
  Bf16* q_ = nullptr;
  std::vector<float> scales_;
  std::vector<int32_t> token_begin_, positions_, nodes_, roots_, levels_;
  std::vector<kvc_backend_item> items_;
  std::vector<kvc_backend_tile> tiles_;
  int64_t floats_ = 0;
  kvc_backend_rows rows_ = {};
  kvc_backend_tables tables_ = {};
};

TEST_P(LiveGrid, HasTheBitsOfAWholeGrid) {
  const std::vector<float> expected = attend(nullptr);
  for (const float x : expected) ASSERT_NE(x, -7.0f);
  const kvc_backend_staged_plan::Live live = {num_blocks(), 0, num_tiles()};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(attend(&live), expected) << i;
}

// Blocks and tiles beyond the live ones are old ones of another step.
TEST_P(LiveGrid, ComputesOnlyLiveBlocks) {
  const std::vector<float> expected = attend(nullptr);
  const kvc_backend_staged_plan::Live none = {0, 0, 0}, first = {2 * kKvHeads, 0, 1};  // the first row has two items
  for (const float x : attend(&none)) ASSERT_EQ(x, -7.0f);
  const std::vector<float> out = attend(&first);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], i < size_t{kQHeads} * kDim ? expected[i] : -7.0f) << i;
}

INSTANTIATE_TEST_SUITE_P(Stored, LiveGrid, testing::Values(Type::kBf16, Type::kE4m3, Type::kI8));

}  // namespace
}  // namespace kvc::kernels::cuda
