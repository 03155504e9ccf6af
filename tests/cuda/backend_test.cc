// The CUDA backend apart from its arithmetic: machines without a driver, device or image, and plans that the host
// makes.
#include "kernels/cuda/backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/simple/plan.h"
#include "opened.h"
#include "pool.h"
#include "staged_attend.h"

namespace kvc::kernels::cuda {
namespace {

using cuda_emulation::Machine;

TEST(Device, TableAndVersion) {
  EXPECT_EQ(backend_of(KVC_BACKEND_VERSION + 1), nullptr);
  const kvc_backend* table = backend_of(KVC_BACKEND_VERSION);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->struct_size, sizeof(kvc_backend));
  EXPECT_EQ(table->device_type, kDLCUDA);
}

TEST(Device, MachinesThatCannotAreToldApart) {
  const auto refuses = [](Machine machine, int32_t id, const char* words) {
    cuda_emulation::set_machine(machine);
    const Opened opened = open_device(id);
    cuda_emulation::set_machine(Machine::kWorks);
    EXPECT_EQ(opened.status, KVC_ERROR_DEVICE_UNAVAILABLE);
    EXPECT_EQ(opened.device, nullptr);
    EXPECT_NE(std::strstr(opened.error.message, words), nullptr) << opened.error.message;
  };
  refuses(Machine::kNoDriver, 0, "no CUDA driver");
  refuses(Machine::kNoDriver, 0, "cudaErrorInsufficientDriver");
  refuses(Machine::kNoDevice, 0, "sees no device");
  refuses(Machine::kOtherArch, 0, "sm_90; the backend was built for the emulation");
  refuses(Machine::kWorks, 7, "device 7; there are 1");
}

TEST(Device, NamesItsArch) {
  const Opened opened = open_device(0, "sm_90");
  ASSERT_EQ(opened.status, KVC_OK) << opened.error.message;
  EXPECT_STREQ(backend_of(KVC_BACKEND_VERSION)->implementation(opened.device), "sm_90");
  backend_of(KVC_BACKEND_VERSION)->close(opened.device);
  const Opened other = open_device(0, "avx2");
  EXPECT_EQ(other.status, KVC_ERROR_UNSUPPORTED);
  EXPECT_NE(std::strstr(other.error.message, "avx2"), nullptr);
}

// More blocks than a grid may have are refused. They are not truncated to fewer.
TEST(Append, OfMoreBlocksThanAGridHasIsRefused) {
  const Opened opened = open_device();
  ASSERT_EQ(opened.status, KVC_OK);
  const kvc_backend* table = backend_of(KVC_BACKEND_VERSION);
  kvc_error error = KVC_ERROR_INIT;
  alignas(16) static unsigned char rows[16];
  kvc_backend_layer layer = {};
  layer.num_kv_heads = 32, layer.head_dim = layer.v_head_dim = 512, layer.page_size = 1;  // 32 blocks of a few tokens
  layer.num_pages = 1, layer.format = stored_format({kDLFloat, 16, 1});
  layer.k = layer.v = test::pool_of(stored_dtype(layer), rows, 32 * 512, 512, 512, 512);
  kvc_backend_append args = {};
  args.layer = &layer;
  args.num_tokens = (int64_t{1} << 29) + 1;  // 2^32 + 32 blocks, of four tokens each
  args.device_slots = {nullptr, 0, -1, 0};   // none of them stores anything
  args.k = args.v = {rows, 32 * 512, 512, stored_dtype(layer), 0};
  EXPECT_EQ(table->append(opened.device, &args, nullptr, &error), KVC_ERROR_BATCH_TOO_LARGE);
  table->close(opened.device);
}

constexpr int32_t kPages = 12, kPageSize = 24;
constexpr int64_t kSlots = kPages * kPageSize;

std::vector<kvc_backend_slot_copy> random_copies(int round, std::mt19937& random) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  std::vector<kvc_backend_slot_copy> copies;
  for (int64_t i = 0, count = 1 + below(round % 3 == 1 ? 60 : 5); i < count; ++i) {
    const auto slots = static_cast<int32_t>(1 + below(kPageSize));
    if (round % 3 == 0) {  // from the first six pages to others
      copies.push_back({below(6 * kPageSize - slots), (6 + i) * kPageSize, slots, 0});
    } else if (round % 3 == 1) {  // short ones within a few slots: one reads what an earlier one wrote
      const int64_t part = below(5) * 50;
      copies.push_back({part + below(10), part + below(10), static_cast<int32_t>(1 + below(2)), 0});
    } else {
      copies.push_back({below(kSlots - slots), below(kSlots - slots), slots, 0});
    }
  }
  return copies;
}

// Copies take effect in their order. Copies that do not overlap run in parallel, and so do chains of copies that
// overlap. The results must not show this. In words of 16, 4 and 1 bytes, with scales of tokens and without.
TEST(Copies, AreMadeInTheirOrder) {
  const Opened opened = open_device();
  ASSERT_EQ(opened.status, KVC_OK);
  const kvc_backend* table = backend_of(KVC_BACKEND_VERSION);
  kvc_error error = KVC_ERROR_INIT;
  std::mt19937 random(11);
  constexpr int32_t kHeads = 2;
  for (const auto& [dtype, dim] :
       {std::pair{DLDataType{kDLFloat, 16, 1}, 24}, std::pair{DLDataType{kDLFloat, 32, 1}, 3},
        std::pair{DLDataType{kDLInt, 8, 1}, 10}}) {
    for (int round = 0; round < 12; ++round) {
      const int64_t row = dim * dtype.bits / 8, pool = kSlots * kHeads * row;
      alignas(16) static unsigned char k[kSlots * kHeads * 48], v[sizeof k];
      for (int64_t i = 0; i < pool; ++i)
        k[i] = static_cast<unsigned char>(random()), v[i] = static_cast<unsigned char>(random());
      std::vector<float> scales(2 * kSlots * kHeads);
      for (float& scale : scales) scale = static_cast<float>(random());
      kvc_backend_layer layer = {};
      layer.num_kv_heads = kHeads, layer.head_dim = layer.v_head_dim = dim, layer.page_size = kPageSize;
      layer.num_pages = kPages, layer.format = stored_format(dtype);
      layer.k = test::pool_of(dtype, k, kPageSize * kHeads * dim, kPageSize * dim, dim, dim);
      layer.v = test::pool_of(dtype, v, kPageSize * kHeads * dim, kPageSize * dim, dim, dim);
      if (dtype.code == kDLInt) {
        layer.k_scales = test::scales_of_tokens(scales.data(), kPageSize * kHeads, kPageSize, 1);
        layer.v_scales = test::scales_of_tokens(scales.data() + kSlots * kHeads, kPageSize * kHeads, kPageSize, 1);
      }
      std::vector<kvc_backend_slot_copy> copies = random_copies(round, random);
      for (size_t i = 0; round % 3 == 1 && i < copies.size(); i += 2) copies[i].source_slot = -1;  // these clear slots
      const auto place = [&](int64_t head, int64_t slot) {
        return slot / kPageSize * kPageSize * kHeads + head * kPageSize + slot % kPageSize;
      };
      std::vector<unsigned char> wanted[2] = {{k, k + pool}, {v, v + pool}};
      std::vector<float> wanted_scales = scales;
      for (const kvc_backend_slot_copy& copy : copies) {
        const std::vector<unsigned char> rows[2] = {wanted[0], wanted[1]};
        const std::vector<float> old = wanted_scales;
        for (int64_t i = 0; i < copy.num_slots * kHeads; ++i) {
          const int64_t to = place(i % kHeads, copy.target_slot + i / kHeads);
          if (copy.source_slot < 0) {
            for (int of = 0; of < 2; ++of) {
              std::fill_n(wanted[of].data() + to * row, row, static_cast<unsigned char>(0));
              wanted_scales[of * kSlots * kHeads + to] = 0;
            }
            continue;
          }
          const int64_t from = place(i % kHeads, copy.source_slot + i / kHeads);
          for (int of = 0; of < 2; ++of) {
            std::copy_n(rows[of].data() + from * row, row, wanted[of].data() + to * row);
            wanted_scales[of * kSlots * kHeads + to] = old[of * kSlots * kHeads + from];
          }
        }
      }
      ASSERT_EQ(
          table->copy_slots(opened.device, &layer, copies.data(), static_cast<int64_t>(copies.size()), nullptr, &error),
          KVC_OK)
          << error.message;
      EXPECT_EQ(std::memcmp(k, wanted[0].data(), static_cast<size_t>(pool)), 0)
          << int{dtype.bits} << " bits, round " << round;
      EXPECT_EQ(std::memcmp(v, wanted[1].data(), static_cast<size_t>(pool)), 0)
          << int{dtype.bits} << " bits, round " << round;
      if (dtype.code == kDLInt) {
        EXPECT_EQ(scales, wanted_scales) << "round " << round;
      }
    }
  }
  table->close(opened.device);
}

TEST(AttendPlan, RowsFitSharedMemory) {
  EXPECT_EQ(rows_of_block(16 * 384, 128, 128), 16);
  EXPECT_EQ(rows_of_block(16 * 384 - 1, 128, 128), 8);
  EXPECT_EQ(rows_of_block(1, 1024, 1024), 1);
}

// Every row of every item and head is in one block, for each number of rows of a block.
TEST(AttendPlan, BlocksCoverItems) {
  kvc_backend_layer layer = {};
  layer.num_q_heads = 12;
  layer.num_kv_heads = 4;
  std::vector<kvc_backend_item> items(3);
  items[0].q_end = 1, items[0].head_end = 4;
  items[1].q_begin = 2, items[1].q_end = 9, items[1].head_begin = 1, items[1].head_end = 2;
  items[2].q_end = 40, items[2].head_end = 4;
  kvc_backend_plan plan = {};
  plan.layer = &layer;
  plan.arrays.items = items.data();
  plan.num_items = 3;
  for (const int32_t rows : {0, 1, 2, 16, kWideRows.rows}) {  // 0: as calls choose it
    const BlockCut cut = {rows, 0, INT32_MAX};
    const int64_t count = rows == 0 ? count_all_blocks(plan, kManyRows).both() : count_blocks(plan, cut);
    std::vector<AttendBlock> blocks(static_cast<size_t>(count));
    if (rows == 0) {
      list_all_blocks(plan, kManyRows, blocks.data());
    } else {
      list_blocks(plan, cut, blocks.data());
    }
    std::vector<std::vector<int>> covered(3, std::vector<int>(4 * 120));
    for (const AttendBlock& block : blocks) {
      EXPECT_LE(block.row_end - block.row_begin, rows == 0 ? kManyRows.rows : rows);
      for (int32_t r = block.row_begin; r < block.row_end; ++r) ++covered[block.item][block.head * 120 + r];
    }
    for (int i = 0; i < 3; ++i) {
      for (int h = 0; h < 4; ++h) {
        for (int r = 0; r < 120; ++r) {
          const bool there =
              h >= items[i].head_begin && h < items[i].head_end && r < (items[i].q_end - items[i].q_begin) * 3;
          ASSERT_EQ(covered[i][h * 120 + r], there ? 1 : 0) << "item " << i << " head " << h << " row " << r;
        }
      }
    }
  }
}

// A window after a long context. Only its pages are looked up, so the entries before it may have any value.
TEST(AttendPlan, PagesThatNobodySeesAreNotLookedUp) {
  const int32_t token_begin[] = {0, 1}, length = 1000, position = 999;
  kvc_backend_rows rows = {};
  rows.num_rows = rows.num_tokens = 1;
  rows.token_begin = token_begin;
  rows.kv_lengths = &length;
  rows.positions = &position;
  kvc_backend_layer layer = {};
  layer.num_q_heads = layer.num_kv_heads = 1;
  layer.page_size = 16;
  layer.window_tokens = 40;
  std::vector<int32_t> nodes(3 * 32, 0x7fffffff);  // a root, and one of its two leaves that is needed
  nodes[1] = 2;
  for (int i = 0; i < 32; ++i) nodes[2 * 32 + i] = 100 + i;
  const int32_t root = 0, levels = 2;
  kvc_backend_tables tables = {nodes.data(), &root, &levels, nullptr, nullptr};
  kvc_backend_item item = {};
  item.q_end = item.head_end = 1;
  item.key_end = 2000;
  kvc_backend_plan plan = {};
  plan.layer = &layer;
  plan.arrays.rows = rows;
  plan.arrays.tables = tables;
  plan.arrays.items = &item;
  plan.num_items = 1;
  PageRange ranges[2];
  ASSERT_EQ(find_page_ranges(plan, ranges), 3);  // keys 960..999
  int32_t pages[3];
  int64_t page_begin[2];
  flatten_pages(plan, ranges, pages, page_begin);
  for (int32_t entry = 60; entry < 63; ++entry) EXPECT_EQ(pages[page_begin[0] + entry], 100 + entry - 32);
}

// One query over 1300 keys in blocks of 512. The bits are the same whether one item folds the blocks, or each block is
// an item of a tile. They are close to float64.
TEST(Fold, SameBitsHoweverItIsCut) {
  constexpr int32_t kKeys = 1300, kDims = 16, kFold = 512;
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> k(kKeys * kDims), v(kKeys * kDims), q(kDims), partials(3 * (kDims + 2));
  for (std::vector<float>* values : {&k, &v, &q}) {
    for (float& x : *values) x = normal(random);
  }
  kvc_backend_layer layer = {};
  layer.k = test::pool_of({kDLFloat, 32, 1}, k.data(), kKeys * kDims, kKeys * kDims, kDims, kDims);
  layer.v = test::pool_of({kDLFloat, 32, 1}, v.data(), kKeys * kDims, kKeys * kDims, kDims, kDims);
  layer.num_pages = layer.num_q_heads = layer.num_kv_heads = 1;
  layer.page_size = kKeys;
  layer.head_dim = layer.v_head_dim = kDims;
  layer.format = stored_format({kDLFloat, 32, 1});
  layer.softmax_scale = 0.7f;
  layer.rope_class = -1;
  const int32_t token_begin[] = {0, 1}, length = kKeys, position = kKeys - 1, pages[] = {0};
  const int64_t page_begin = 0;
  kvc_backend_rows rows = {};
  rows.num_rows = rows.num_tokens = 1;
  rows.token_begin = token_begin;
  rows.kv_lengths = &length;
  rows.positions = &position;
  const kvc_backend_tables tables = {nullptr, nullptr, nullptr, pages, &page_begin};
  const Opened opened = open_device();
  ASSERT_EQ(opened.status, KVC_OK);
  const auto attend = [&](int32_t parts) {
    std::vector<kvc_backend_item> items(static_cast<size_t>(parts));
    for (int32_t i = 0; i < parts; ++i) {
      items[i].q_end = items[i].head_end = 1;
      items[i].key_begin = i * kFold;
      items[i].key_end = parts == 1 || i + 1 == parts ? kKeys : (i + 1) * kFold;
      items[i].tile = parts > 1 ? 0 : -1;
      items[i].partial_offset = parts > 1 ? i * (kDims + 2) : -1;
    }
    const kvc_backend_tile tile = {0, parts, 0, 0, 0, 0};
    std::vector<float> out(kDims, -1.0f);
    kvc_backend_plan plan = {};
    plan.arrays.rows = rows;
    plan.arrays.tables = tables;
    plan.arrays.items = items.data();
    plan.arrays.tiles = &tile;
    plan.layer = &layer;
    plan.num_items = parts, plan.num_tiles = parts > 1 ? 1 : 0;
    plan.partials = partials.data(), plan.fold_keys = kFold;
    kvc_backend_attend args = {};
    args.layer = &layer;
    args.q = {q.data(), kDims, kDims, {kDLFloat, 32, 1}, 0};
    args.out = {out.data(), kDims, kDims, {kDLFloat, 32, 1}, 0};
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(test::staged_attend(backend_of(KVC_BACKEND_VERSION), opened.device, args, plan, nullptr, &error), KVC_OK)
        << error.message;
    return out;
  };
  const std::vector<float> whole = attend(1), split = attend(3);
  EXPECT_EQ(whole, split);
  double sum = 0.0;
  std::vector<double> exact(kDims);
  for (int32_t key = 0; key < kKeys; ++key) {
    double score = 0.0;
    for (int32_t d = 0; d < kDims; ++d) score += static_cast<double>(q[d]) * k[key * kDims + d];
    const double p = std::exp(static_cast<double>(layer.softmax_scale) * score);
    sum += p;
    for (int32_t d = 0; d < kDims; ++d) exact[d] += p * v[key * kDims + d];
  }
  for (int32_t d = 0; d < kDims; ++d) EXPECT_NEAR(whole[d], exact[d] / sum, 1e-5);
  backend_of(KVC_BACKEND_VERSION)->close(opened.device);
}

}  // namespace
}  // namespace kvc::kernels::cuda
