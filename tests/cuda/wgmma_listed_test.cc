// Attention of warpgroups over lists of latent rows, against float64 over the listed keys: heads, lengths of lists,
// pools, parts of lists, lists of slots, and rows of fp8_ds_mla. Rows that no list names are NaN, so reading one is
// seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "kernels/common/row_formats.h"
#include "kernels/cuda/attend/wgmma/latent.cuh"
#include "mma_call.h"
#include "opened.h"

namespace kvc::kernels::cuda {
namespace {

struct ListedConfig {
  int heads = 16, page_size = 64;
  std::vector<int> counts = {100};  // the length of the list of each row, which has one query
  int length = 500, splits = 1;     // the page list of a call has the pages of the items' key ranges
  bool two_pools = false, physical = false;
  bool packed = false;  // rows of fp8_ds_mla
  double softcap = 0.0;
  unsigned seed = 1;
};

// Rows of one query each, over one page list, whose pages are in reverse order. `memory` has the rows of one pool or of
// two.
struct ListedScene {
  static constexpr int kEntries = 500;
  ListedConfig config;
  kvc_backend_layer layer = {};
  kvc_backend_plan plan = {};
  kvc_backend_attend args = {};
  int rows, pages, slots;
  std::vector<uint16_t> memory, q;
  std::vector<float> out, partials;
  std::vector<int32_t> nodes, entries, token_begin, lengths, positions, roots, levels;
  std::vector<std::vector<int>> listed;  // [row]: the slots of its list
  std::vector<kvc_backend_item> items;
  std::vector<kvc_backend_tile> tiles;

  explicit ListedScene(const ListedConfig& c)
      : config(c),
        rows(static_cast<int>(c.counts.size())),
        pages((c.length + c.page_size - 1) / c.page_size),
        slots(pages * c.page_size) {
    std::mt19937 random(c.seed);
    const auto fill = [&](size_t count, std::vector<uint16_t>* to) {
      std::normal_distribution<float> normal;
      to->resize(count + 8);  // room to align it
      for (uint16_t& x : *to) {
        Bf16 element;
        narrow(normal(random), &element);
        x = element.bits;
      }
    };
    fill(static_cast<size_t>(slots * 576), &memory);
    if (c.packed) make_packed_rows(&random);
    fill(static_cast<size_t>(rows * c.heads * 576), &q);
    out.assign(static_cast<size_t>(rows * c.heads * 512), -1.0f);
    // Leaves, and a node above them.
    const int leaves = (pages + 31) / 32;
    for (int i = 0; i < 32 * leaves; ++i) nodes.push_back(i < pages ? pages - 1 - i : 0);
    for (int i = 0; i < 32; ++i) nodes.push_back(i < leaves ? i : 0);
    make_lists(&random);
    make_plan();
    layer.format = c.packed ? descriptor_of(*packed_row_format(KVC_ROW_FORMAT_FP8_DS_MLA), true, 576)
                            : stored_format(dtype(Type::kBf16));
    layer.head_dim = 576;
    layer.v_head_dim = 512;
    layer.num_kv_heads = 1;
    layer.num_q_heads = c.heads;
    layer.page_size = c.page_size;
    layer.num_pages = pages;
    layer.softmax_scale = 0.05f;
    layer.row_kind = c.two_pools ? KVC_BACKEND_ROW_LATENT_SPLIT : KVC_BACKEND_ROW_LATENT;
    const auto pool = [&](uint16_t* data, int dims) {
      return test::pool_of(dtype(Type::kBf16), data, c.page_size * dims, c.page_size * dims, dims, dims);
    };
    layer.k = layer.v = pool(aligned(&memory), row_elements());
    if (c.two_pools) {
      layer.v = pool(aligned(&memory), 512);
      layer.k = pool(aligned(&memory) + slots * 512, 64);
    }
    args.layer = &layer;
    args.plan = &plan;
    args.q = {aligned(&q), c.heads * 576, 576, dtype(Type::kBf16), 0};
    args.out = {out.data(), c.heads * 512, 512, dtype(Type::kF32), 0};
    args.softcap = c.softcap;
    args.lists = {entries.data(), kEntries, 0, 0, kEntries, 1, c.physical ? 1 : 0, 0};
  }
  static uint16_t* aligned(std::vector<uint16_t>* of) {
    return reinterpret_cast<uint16_t*>((reinterpret_cast<uintptr_t>(of->data()) + 15) / 16 * 16);
  }
  // The number of 16-bit elements that a row of one pool takes.
  int row_elements() const { return config.packed ? 328 : 576; }
  // The part of a slot's row that has dim d, as stored.
  uint16_t* row_of(int slot, int d) {
    uint16_t* const data = aligned(&memory);
    if (!config.two_pools) return data + slot * row_elements();
    return d < 512 ? data + slot * 512 : data + slots * 512 + slot * 64;
  }
  // Rows of fp8_ds_mla: normal numbers, by scales that are no powers of two and differ by their blocks and rows.
  void make_packed_rows(std::mt19937* random) {
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> any_scale(0.01f, 0.9f);
    for (int slot = 0; slot < slots; ++slot) {
      auto* const row = reinterpret_cast<unsigned char*>(row_of(slot, 0));
      float scales[4];
      for (float& scale : scales) scale = any_scale(*random);
      std::memcpy(row + 512, scales, sizeof scales);
      for (int d = 0; d < 512; ++d) {
        E4m3 element;
        narrow(normal(*random) / scales[d / 128], &element);
        row[d] = element.bits;
      }
      for (int d = 0; d < 64; ++d) {
        Bf16 element;
        narrow(normal(*random), &element);
        std::memcpy(row + 528 + d * 2, &element, sizeof element);
      }
    }
  }
  // The number that kernels multiply.
  double element(int slot, int d) {
    uint16_t* const row = row_of(slot, d);
    const auto wide = [](uint16_t bits) { return static_cast<double>(to_float(Bf16{bits})); };
    if (!config.packed) return wide(row[config.two_pools ? d % 512 : d]);
    if (d >= 512) return wide(row[264 + d - 512]);
    float scale;
    std::memcpy(&scale, row + 256 + d / 128 * 2, sizeof scale);
    Bf16 rounded;
    narrow(to_float(E4m3{reinterpret_cast<const unsigned char*>(row)[d]}) * scale, &rounded);
    return static_cast<double>(to_float(rounded));
  }
  // Sets all bits of a row, so all its elements and scales are NaN.
  void poison(int slot) {
    if (config.two_pools) {
      std::fill_n(row_of(slot, 0), 512, uint16_t{0xffff});
      std::fill_n(row_of(slot, 512), 64, uint16_t{0xffff});
    } else {
      std::fill_n(row_of(slot, 0), row_elements(), uint16_t{0xffff});
    }
  }
  // Draws keys that differ, in any order, between entries that name nothing. The other slots become NaN.
  void make_lists(std::mt19937* random) {
    entries.assign(static_cast<size_t>(rows * kEntries), -1);
    std::vector<int> keys;
    for (int key = 0; key < config.length; ++key) keys.push_back(key);
    std::vector<char> used(static_cast<size_t>(slots), 0);
    for (int row = 0; row < rows; ++row) {
      std::shuffle(keys.begin(), keys.end(), *random);
      listed.emplace_back();
      for (int i = 0; i < config.counts[row]; ++i) {
        const int slot = nodes[keys[i] / config.page_size] * config.page_size + keys[i] % config.page_size;
        entries[static_cast<size_t>(row * kEntries + kEntries - 1 - i)] = config.physical ? slot : keys[i];
        listed.back().push_back(slot);
        used[slot] = 1;
      }
    }
    for (int slot = 0; slot < slots; ++slot) {
      if (!used[slot]) poison(slot);
    }
  }
  void make_plan() {
    int64_t offset = 0;
    for (int row = 0; row < rows; ++row) {
      token_begin.push_back(row);
      lengths.push_back(config.length);
      positions.push_back(config.length - 1);
      roots.push_back((pages + 31) / 32);
      levels.push_back(2);
      kvc_backend_item item = {};
      item.row = row;
      item.q_end = item.head_end = 1;
      item.tile = config.splits > 1 ? row : -1;
      for (int part = 0; part < config.splits; ++part) {
        item.key_begin = kEntries / config.splits / 64 * 64 * part;
        item.key_end = part + 1 < config.splits ? kEntries / config.splits / 64 * 64 * (part + 1) : kEntries;
        item.partial_offset = config.splits > 1 ? offset : -1;
        offset += config.heads * 514;
        items.push_back(item);
      }
      tiles.push_back({row * config.splits, (row + 1) * config.splits, 0, 0, 0, 0});
    }
    token_begin.push_back(rows);
    partials.assign(static_cast<size_t>(offset), NAN);
    kvc_backend_rows& all = plan.arrays.rows;
    all.num_rows = all.num_tokens = rows;
    all.token_begin = token_begin.data();
    all.kv_lengths = lengths.data();
    all.positions = positions.data();
    plan.arrays.tables = {nodes.data(), roots.data(), levels.data(), nullptr, nullptr};
    plan.arrays.items = items.data();
    plan.arrays.tiles = tiles.data();
    plan.num_items = static_cast<int64_t>(items.size());
    plan.num_tiles = config.splits > 1 ? rows : 0;
    plan.partials = partials.data();
    plan.layer = &layer;
  }
  std::vector<double> expect(int row, int head) {
    const auto wide = [](uint16_t bits) { return static_cast<double>(to_float(Bf16{bits})); };
    const uint16_t* const query = aligned(&q) + (row * config.heads + head) * 576;
    std::vector<double> wanted(512, 0.0);
    double sum = 0.0;
    for (const int slot : listed[row]) {
      double s = 0.0;
      for (int d = 0; d < 576; ++d) s += wide(query[d]) * element(slot, d);
      s *= static_cast<double>(layer.softmax_scale);
      if (config.softcap != 0.0) s = std::tanh(s / config.softcap) * config.softcap;
      sum += std::exp(s);
      for (int d = 0; d < 512; ++d) wanted[d] += std::exp(s) * element(slot, d);
    }
    for (double& x : wanted) x = sum > 0.0 ? x / sum : 0.0;
    return wanted;
  }
  // Attends on a device, and compares the rows from `first` on. Returns the number of warpgroup products.
  int64_t attend_and_check(const char* simd = "sm_90", int first = 0) {
    const Opened opened = open_device(0, simd);
    EXPECT_EQ(opened.status, KVC_OK) << opened.error.message;
    const int64_t before = cuda_emulation::counts().warpgroup_products;
    kvc_error error = KVC_ERROR_INIT;
    const kvc_backend* const table = backend_of(KVC_BACKEND_VERSION);
    EXPECT_EQ(test::staged_attend(table, opened.device, args, plan, nullptr, &error), KVC_OK) << error.message;
    table->close(opened.device);
    for (int row = first; row < rows; ++row) {
      for (int head = 0; head < config.heads; ++head) {
        const std::vector<double> wanted = expect(row, head);
        const float* const own = out.data() + (row * config.heads + head) * 512;
        for (int d = 0; d < 512; ++d) {
          const bool same = std::isnan(wanted[d]) ? std::isnan(own[d]) : static_cast<double>(own[d]) == wanted[d];
          if (same || std::abs(own[d] - wanted[d]) <= 6e-3) continue;
          ADD_FAILURE() << "row " << row << " head " << head << " dim " << d << ": " << own[d] << ", not " << wanted[d];
          return 0;
        }
      }
    }
    return cuda_emulation::counts().warpgroup_products - before;
  }
};

void check_listed(const ListedConfig& config) {
  SCOPED_TRACE(std::to_string(config.heads) + " heads, pages of " + std::to_string(config.page_size) + ", list of " +
               std::to_string(config.counts[0]) + ", " + std::to_string(config.splits) + " parts" +
               (config.packed ? ", fp8_ds_mla" : ""));
  EXPECT_GT(ListedScene(config).attend_and_check(), 0);
}

// Blocks of 16 and of 64 rows, one or two blocks for a query, and pages that TMA could not read.
TEST(WgmmaListed, HeadsAndPages) {
  unsigned seed = 1;
  const struct {
    int heads, page_size;
  } cases[] = {{16, 64}, {20, 1}, {64, 24}, {128, 64}, {136, 3}};
  for (const auto& [heads, page_size] : cases) {
    for (const int kind : {0, 1, 2}) {
      if (kind == 2 && heads != 20 && heads != 128) continue;  // the emulation is slow
      ListedConfig config;
      config.heads = heads;
      config.page_size = page_size;
      config.two_pools = kind == 1;
      config.packed = kind == 2;
      config.counts = {150, 70};
      config.seed = ++seed;
      check_listed(config);
    }
  }
}

// Empty lists, a part of a tile, whole tiles, and slots that are filled again.
TEST(WgmmaListed, LengthsOfLists) {
  ListedConfig config;
  for (const std::vector<int>& counts : {std::vector<int>{0, 1}, {63, 64}, {65, 128}, {129, 0}, {500, 320}}) {
    config.counts = counts;
    for (const bool packed : {false, true}) {
      config.packed = packed;
      ++config.seed;
      for (int launch = 0; launch < 2; ++launch) check_listed(config);  // copies arrive at once, or late
    }
  }
}

TEST(WgmmaListed, PartsOfALongList) {
  for (const int splits : {2, 3}) {
    ListedConfig config;
    config.heads = splits == 2 ? 16 : 128;
    config.counts = {500, 90};  // some parts of the second list are empty
    config.splits = splits;
    check_listed(config);
    config.packed = true;
    check_listed(config);
  }
}

TEST(WgmmaListed, SlotsAndSoftcap) {
  ListedConfig config;
  config.physical = true;
  config.counts = {200, 3};
  check_listed(config);
  config.packed = true;
  check_listed(config);
  config.packed = config.physical = false;
  config.softcap = 2.0;
  check_listed(config);
}

// Dim 3 of V of a key is infinite, so its score is -inf, or with softcap the least score.
TEST(WgmmaListed, InfiniteDimOfAListedKey) {
  for (const bool two_pools : {false, true}) {
    for (const double softcap : {0.0, 2.0}) {
      ListedConfig config;
      config.counts = {20};  // less than a tile
      config.two_pools = two_pools;
      config.softcap = softcap;
      ListedScene scene(config);
      scene.row_of(scene.listed[0][7], 3)[3] = 0x7f80;
      for (int head = 0; head < config.heads; ++head) ListedScene::aligned(&scene.q)[head * 576 + 3] = 0xbf00;  // -0.5
      EXPECT_GT(scene.attend_and_check(), 0);
    }
  }
}

// ALiBi needs the positions of keys, which a tile of a list does not have.
TEST(WgmmaListed, OtherKernelsComputeAlibi) {
  ListedConfig config;
  ListedScene scene(config);
  const std::vector<float> slopes(16, 0.0f);
  EXPECT_EQ(why_not_wgmma_latent(scene.args, kFewRows), nullptr);
  scene.args.alibi_slopes = slopes.data();
  EXPECT_STREQ(why_not_wgmma_latent(scene.args, kFewRows), "keys of a list have positions");
  EXPECT_EQ(scene.attend_and_check(), 0);
}

TEST(WgmmaListed, RowsMustBeAligned) {
  ListedConfig config;
  ListedScene scene(config);
  scene.layer.k.slot_stride_bytes += 8;
  EXPECT_STREQ(why_not_wgmma_latent(scene.args, kFewRows), "rows are not aligned to 16 bytes");
}

// A list names rows of fp8_ds_mla in which one element, one scale or one of the last dims is NaN. Only the outputs of
// the query of that list are NaN.
TEST(WgmmaListed, PackedRowsThatAreNaN) {
  for (const int place : {300, 512, 600}) {  // bytes of the row
    ListedConfig config;
    config.packed = true;
    config.counts = {100, 70};
    ListedScene scene(config);
    const std::vector<int>& others = scene.listed[1];
    int slot = -1;
    for (const int own : scene.listed[0]) {
      if (std::find(others.begin(), others.end(), own) == others.end()) slot = own;
    }
    ASSERT_GE(slot, 0);
    std::memset(reinterpret_cast<unsigned char*>(scene.row_of(slot, 0)) + place, 0xff, place == 512 ? 4 : 2);
    EXPECT_GT(scene.attend_and_check("sm_90", 1), 0);
    for (int i = 0; i < config.heads * 512; ++i) ASSERT_TRUE(std::isnan(scene.out[static_cast<size_t>(i)])) << i;
  }
}

}  // namespace
}  // namespace kvc::kernels::cuda
