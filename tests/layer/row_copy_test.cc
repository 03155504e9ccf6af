// RowCopy and PageCopy: rows leave and enter pools of any format and layout, in one order.
#include "layer/row_copy.h"

#include <cstring>
#include <set>

#include "layer/page_copy.h"
#include "layers_fixture.h"

namespace kvc {
namespace {

std::vector<uint8_t> bytes_of(int64_t count, int seed) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(i * 37 + i / 253 + static_cast<size_t>(seed));
  return bytes;
}

class RowCopyTest : public LayersTest {
 protected:
  std::unique_ptr<RowCopy> copy_of(const Layers& layers) {
    std::unique_ptr<RowCopy> copy;
    EXPECT_TRUE(RowCopy::create(layers, &copy).ok());
    return copy;
  }
  // The stored bytes of group 0 in these slots.
  std::vector<uint8_t> read(const Layers& layers, const std::vector<int64_t>& slots) {
    std::vector<uint8_t> bytes(slots.size() * static_cast<size_t>(RowCopy::token_bytes(layers, 0)));
    uint8_t* to = bytes.data();
    for (const RowRun& run : RowCopy::runs(layers, 0)) {
      EXPECT_TRUE(copy_of(layers)->read_run(run, slots, to, nullptr).ok());
      to += static_cast<int64_t>(slots.size()) * run.token_bytes;
    }
    return bytes;
  }
  void write(const Layers& layers, const std::vector<int64_t>& slots, const std::vector<uint8_t>& bytes) {
    const uint8_t* from = bytes.data();
    for (const RowRun& run : RowCopy::runs(layers, 0)) {
      EXPECT_TRUE(copy_of(layers)->write_run(run, slots, from, nullptr).ok());
      from += static_cast<int64_t>(slots.size()) * run.token_bytes;
    }
  }
};

TEST_F(RowCopyTest, EveryFormatComesBackAndOtherSlotsStay) {
  const DLDataType dtypes[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1},        {kDLBfloat, 16, 1},
                               {kDLInt, 8, 1},    {kDLFloat8_e4m3fn, 8, 1}, {kDLFloat8_e5m2, 8, 1}};
  for (const DLDataType dtype : dtypes) {
    SmallConfig config;
    config.add_group();
    config.add_layer(0, dtype);
    config.add_layer(0, dtype).v_head_dim = 16;
    const auto layers = this->layers(config);
    const std::vector<int64_t> slots = {9, 10, 3, 44}, others = {0, 1, 2, 4, 8, 11, 43, 45};
    const std::vector<uint8_t> before = read(*layers, others);
    const auto token = RowCopy::token_bytes(*layers, 0);
    EXPECT_EQ(token, 2 * (8 + 8 + 8 + 16) * dtype.bits / 8 + (dtype.code == kDLInt ? 2 * 2 * 2 * 4 : 0));
    const std::vector<uint8_t> bytes = bytes_of(4 * token, 1);
    write(*layers, slots, bytes);
    EXPECT_EQ(read(*layers, slots), bytes) << int{dtype.code};
    EXPECT_EQ(read(*layers, others), before);
  }
}

// A token of 2 heads, with 64 dims of K and 32 of V: rows, and their scales from the page.
TEST_F(RowCopyTest, PackedRowsComeBackWithTheirScales) {
  const struct {
    int32_t row_format, row_bytes;
  } formats[] = {{KVC_ROW_FORMAT_MXFP4, 32 + 16},
                 {KVC_ROW_FORMAT_MXFP8, 64 + 32},
                 {KVC_ROW_FORMAT_FP8_BLOCKS, 64 + 32},
                 {KVC_ROW_FORMAT_NVFP4, 32 + 16}};
  for (const auto& format : formats) {
    SmallConfig config;
    config.add_group();
    kvc_layer_config& layer = config.add_layer(0);
    layer.row_format = format.row_format;
    layer.head_dim = 64;
    layer.v_head_dim = 32;
    const auto layers = this->layers(config);
    const std::vector<int64_t> slots = {9, 10, 3, 44}, others = {0, 1, 2, 4, 8, 11, 43, 45};
    const std::vector<uint8_t> before = read(*layers, others);
    EXPECT_EQ(RowCopy::token_bytes(*layers, 0), 2 * (format.row_bytes + 4 + 4)) << format.row_format;
    const std::vector<uint8_t> bytes = bytes_of(4 * RowCopy::token_bytes(*layers, 0), 1);
    write(*layers, slots, bytes);
    EXPECT_EQ(read(*layers, slots), bytes) << format.row_format;
    EXPECT_EQ(read(*layers, others), before) << format.row_format;
  }
}

TEST_F(RowCopyTest, RunsAreInTheCanonicalOrder) {
  SmallConfig config;
  config.add_group();
  config.add_group(KVC_ROW_LATENT);
  config.add_layer(0, {kDLInt, 8, 1});
  kvc_layer_config& latent = config.add_layer(1);
  latent.num_kv_heads = 1;
  latent.head_dim = 24;
  latent.latent_dim = 16;
  latent.softmax_scale = 0.25;
  config.add_layer(0, {kDLFloat, 16, 1});
  config.add_layer(0, {kDLFloat, 16, 1}).kv_layer = 3;  // reads what layer 2 stores
  const auto layers = this->layers(config);
  const std::vector<RowRun> runs = RowCopy::runs(*layers, 0);
  const RowRun expected[] = {{0, RowPart::kK, 16},      {0, RowPart::kV, 16}, {0, RowPart::kKScales, 8},
                             {0, RowPart::kVScales, 8}, {2, RowPart::kK, 32}, {2, RowPart::kV, 32}};
  ASSERT_EQ(runs.size(), std::size(expected));
  for (size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i].layer, expected[i].layer) << i;
    EXPECT_EQ(runs[i].part, expected[i].part) << i;
    EXPECT_EQ(runs[i].token_bytes, expected[i].token_bytes) << i;
  }
  const std::vector<RowRun> of_latent = RowCopy::runs(*layers, 1);
  ASSERT_EQ(of_latent.size(), 1u);
  EXPECT_EQ(of_latent[0].token_bytes, 24 * 4);
}

// A pool of the caller: [pages, 2, page_size, heads, dims] in memory (NHD).
struct NhdPool {
  std::vector<float> memory;
  int64_t shape[5], strides[5];
  DLManagedTensorVersioned tensor = {};

  NhdPool(int64_t pages, int64_t heads, int64_t page_size, int64_t dims)
      : memory(static_cast<size_t>(pages * 2 * heads * page_size * dims)),
        shape{pages, 2, heads, page_size, dims},
        strides{2 * page_size * heads * dims, page_size * heads * dims, dims, heads * dims, 1} {
    tensor.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    tensor.dl_tensor = {memory.data(), {kDLCPU, 0}, 5, {kDLFloat, 32, 1}, shape, strides, 0};
  }
};

TEST_F(RowCopyTest, BytesDoNotDependOnWhereThePoolsLie) {
  SmallConfig own, lent;
  own.add_group();
  own.add_layer(0);
  NhdPool pool(16, 2, 4, 8);
  lent.add_group();
  lent.add_layer(0).kv_storage = &pool.tensor;
  const auto a = layers(own), b = layers(lent);
  const std::vector<int64_t> slots = {6, 5, 21}, skipping = {6, -1, 21};
  const std::vector<uint8_t> bytes = bytes_of(3 * RowCopy::token_bytes(*a, 0), 7);
  write(*a, slots, bytes);
  write(*b, slots, bytes);
  EXPECT_EQ(read(*a, slots), bytes);
  EXPECT_EQ(read(*b, slots), bytes);
  // K of token 1, head 1 is the third row of the bytes, at page 1, slot 1 of the pool.
  const float* row = pool.memory.data() + 1 * 2 * 4 * 2 * 8 + 1 * 2 * 8 + 1 * 8;
  EXPECT_EQ(std::memcmp(row, bytes.data() + (1 * 2 + 1) * 8 * 4, 8 * 4), 0);
  // A negative slot leaves its token out.
  const std::vector<uint8_t> others = bytes_of(3 * RowCopy::token_bytes(*a, 0), 99);
  write(*b, skipping, others);
  EXPECT_EQ(std::memcmp(row, bytes.data() + (1 * 2 + 1) * 8 * 4, 8 * 4), 0);
  EXPECT_NE(read(*b, {6}), read(*a, {6}));
  EXPECT_EQ(read(*b, {5}), read(*a, {5}));
}

TEST_F(RowCopyTest, StatesComeBackWithoutTheirPadding) {
  SmallConfig config;
  config.add_group();
  config.add_group(KVC_ROW_STATE);
  config.add_layer(0);
  config.add_recurrent(1, {state_of({kDLFloat, 16, 1}, {3}), state_of({kDLFloat, 32, 1}, {2, 5})});
  config.add_recurrent(1, {state_of({kDLBfloat, 16, 1}, {1})});
  const auto layers = this->layers(config);
  EXPECT_EQ(RowCopy::state_bytes(*layers, 1), 6 + 40 + 2);
  EXPECT_EQ(RowCopy::state_bytes(*layers, 0), 0);
  const std::vector<uint8_t> first = bytes_of(48, 3), second = bytes_of(48, 4);
  const auto copy = copy_of(*layers);
  ASSERT_TRUE(copy->write_states(1, 5, first.data(), nullptr).ok());
  ASSERT_TRUE(copy->write_states(1, 6, second.data(), nullptr).ok());
  std::vector<uint8_t> bytes(48);
  ASSERT_TRUE(copy->read_states(1, 5, bytes.data(), nullptr).ok());
  EXPECT_EQ(bytes, first);
  ASSERT_TRUE(copy->read_states(1, 6, bytes.data(), nullptr).ok());
  EXPECT_EQ(bytes, second);
  // A page of states is the same bytes.
  std::unique_ptr<PageCopy> pages;
  ASSERT_TRUE(PageCopy::create(*layers, &pages).ok());
  ASSERT_EQ(pages->bytes_of(1), 48);
  ASSERT_TRUE(pages->begin_read(1, 5, bytes.data(), nullptr).ok());
  ASSERT_TRUE(pages->end_read(1, bytes.data(), nullptr).ok());
  EXPECT_EQ(bytes, first);
  ASSERT_TRUE(pages->write(1, 5, second.data(), nullptr).ok());
  ASSERT_TRUE(copy->read_states(1, 5, bytes.data(), nullptr).ok());
  EXPECT_EQ(bytes, second);
}

TEST_F(RowCopyTest, APageIsTheRunsOfItsRows) {
  SmallConfig config;
  config.add_group();
  config.add_layer(0, {kDLInt, 8, 1});
  config.add_layer(0, {kDLFloat, 16, 1}).v_head_dim = 16;
  const auto layers = this->layers(config);
  const std::vector<int64_t> slots = {12, 13, 14, 15}, others = {11, 16};
  std::unique_ptr<PageCopy> pages;
  ASSERT_TRUE(PageCopy::create(*layers, &pages).ok());
  ASSERT_EQ(pages->bytes_of(0), 4 * RowCopy::token_bytes(*layers, 0));
  const std::vector<uint8_t> bytes = bytes_of(pages->bytes_of(0), 5), before = read(*layers, others);
  ASSERT_TRUE(pages->write(0, 3, bytes.data(), nullptr).ok());
  EXPECT_EQ(read(*layers, slots), bytes);
  EXPECT_EQ(read(*layers, others), before);
  std::vector<uint8_t> page(bytes.size());
  ASSERT_TRUE(pages->begin_read(0, 3, page.data(), nullptr).ok());
  ASSERT_TRUE(pages->end_read(0, page.data(), nullptr).ok());
  EXPECT_EQ(page, bytes);
}

TEST_F(RowCopyTest, WhatASequenceHasNotStoredIsCleared) {
  SmallConfig config;
  config.add_group().tokens_per_row = 2;
  config.add_group(KVC_ROW_STATE);
  config.add_layer(0, {kDLInt, 8, 1});
  config.add_layer(0, {kDLFloat, 16, 1});
  config.add_layer(0, {kDLFloat, 16, 1}).kv_layer = 2;  // stores nothing
  config.add_recurrent(1, {state_of({kDLFloat, 32, 1}, {3}), state_of({kDLFloat, 16, 1}, {1})});
  config.add_recurrent(1, {state_of({kDLFloat, 32, 1}, {2})});
  const auto layers = this->layers(config);
  std::unique_ptr<PageCopy> pages;
  ASSERT_TRUE(PageCopy::create(*layers, &pages).ok());
  // A page has the tokens 8 to 11, in two rows. Three of them close one row.
  const int64_t held[] = {11, 8, 0, 7, 6};
  std::vector<uint8_t> bytes(static_cast<size_t>(pages->bytes_of(0)), 255), expected;
  for (const RowRun& run : RowCopy::runs(*layers, 0)) {
    for (const bool stored : {run.layer == 0, false})
      expected.resize(expected.size() + static_cast<size_t>(run.token_bytes), stored ? uint8_t{255} : uint8_t{0});
  }
  const auto clear_others = [&](int32_t group, int64_t position) {
    pages->for_each_other(group, position, held, [&](int64_t begin, int64_t count) {
      std::memset(bytes.data() + begin, 0, static_cast<size_t>(count));
    });
  };
  clear_others(0, 8);
  EXPECT_EQ(bytes, expected);
  clear_others(0, 12);
  EXPECT_EQ(bytes, std::vector<uint8_t>(bytes.size()));
  // States after 7 tokens, which the last layer has not seen.
  bytes.assign(static_cast<size_t>(pages->bytes_of(1)), 255);
  expected.assign(12 + 2 + 8, 255);
  std::memset(expected.data() + 14, 0, 8);
  clear_others(1, 7);
  EXPECT_EQ(bytes, expected);
}

}  // namespace
}  // namespace kvc
