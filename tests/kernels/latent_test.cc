// Rows whose leading dims are V (MLA, absorbed form): attention over one wide row for all heads, append of a row in one
// or two parts, and copies that move it once.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "pool.h"
#include "scene.h"

namespace kvc::kernels::test {
namespace {

SceneConfig latent(int heads, int row, int latent_dims) {
  SceneConfig config;
  config.q_heads = heads;
  config.kv_heads = 1;
  config.head_dim = row;
  config.v_head_dim = latent_dims;
  config.row_kind = KVC_BACKEND_ROW_LATENT;
  config.scale = 0.13523;
  return config;
}

TEST(Latent, ReferenceAgreesToo) {
  for (bool on_read : {false, true}) {
    SceneConfig config = latent(16, 40, 32);
    config.rows = {{1, 70}, {9, 50}};
    config.rotate = true;
    config.on_read = on_read;
    config.splits = 2;
    config.page_size = 3;
    run_scene(config, 2, true);
  }
}

// Decode and prefill kernels: row widths above 512, head counts of one to several passes, and the types.
TEST(Latent, Grid) {
  const int rows[][2] = {{576, 512}, {288, 256},   {40, 32},     {96, 96},     {1024, 1000},
                         {33, 17},   {1024, 1024}, {1088, 1024}, {1152, 1024}, {600, 1}};
  const Kind stored[] = {Kind::kF32, Kind::kF16, Kind::kBf16, Kind::kE4m3, Kind::kE5m2, Kind::kI8};
  std::mt19937 random(17);
  unsigned seed = 7700;
  for (const auto& row : rows) {
    for (int heads : {1, 5, 16, 20, 128}) {
      for (int queries : {1, 2, 11}) {
        if (row[0] * heads * queries > 160 * 1024) continue;
        SceneConfig config = latent(heads, row[0], row[1]);
        config.kv = stored[random() % 6];
        config.q = random() % 2 == 0 && config.kv < Kind::kE4m3 ? config.kv : static_cast<Kind>(random() % 3);
        config.out = static_cast<Kind>(random() % 3);
        if (row[1] < 32) config.out = Kind::kF32;  // with few dims, rounding out may be the larger error
        config.head_scales = static_cast<int>(random() % 3);
        const int page_sizes[] = {1, 3, 16, 64};
        config.page_size = page_sizes[random() % 4];
        config.nhd = random() % 2 == 0;
        config.splits = random() % 2 == 0 ? 1 : 1 + static_cast<int>(random() % 4);
        config.query_tile = random() % 2 == 0 ? 0 : 1 + static_cast<int>(random() % 4);
        config.rotate = row[0] - row[1] > 1 && random() % 2 == 0;
        config.on_read = config.rotate && random() % 2 == 0;
        if (row[0] > row[1] && config.kv != Kind::kI8 && random() % 4 == 0)
          config.row_kind = KVC_BACKEND_ROW_LATENT_SPLIT;
        config.rows = {{queries, queries + static_cast<int>(random() % 90)}, {1, 1 + static_cast<int>(random() % 80)}};
        config.seed = seed++;
        if (seed % kSampling == 0) run_scene(config, 1 + static_cast<int>(random() % 3));
      }
    }
  }
}

// Several tiles of tensor cores: one to many blocks of few and of many rows, rounds of blocks, every storage, and every
// mask.
TEST(Latent, TilesOfKeys) {
  const int dims[][2] = {{576, 512}, {80, 64}, {288, 256}, {112, 112}, {48, 32}, {640, 512}, {144, 48}};
  const Kind stored[] = {Kind::kBf16, Kind::kE4m3, Kind::kF16, Kind::kI8, Kind::kE5m2};
  const int heads[] = {16, 20, 5, 128, 64}, queries[] = {1, 3, 1, 1, 2};
  for (unsigned i = 0; i < 35; ++i) {
    if (i % 5 == 3 && dims[i % 7][0] > 300 && i > 3) continue;  // slow where it is emulated
    SceneConfig config = latent(heads[i % 5], dims[i % 7][0], dims[i % 7][1]);
    config.kv = stored[(i + i / 5) % 5];
    config.q = config.kv == Kind::kF16 || (config.kv == Kind::kE4m3 && i % 2 == 0) ? Kind::kF16 : Kind::kBf16;
    config.out = i % 3 == 0 || config.v_head_dim < 64 ? Kind::kF32 : config.q;
    config.head_scales = static_cast<int>(i % 3);
    config.page_size = i % 4 == 0 ? 1 : 16;
    config.splits = i % 3 == 0 ? 2 : 1;
    config.rotate = i % 2 == 0 && config.head_dim > config.v_head_dim;
    if (i % 4 == 1 && config.head_dim > config.v_head_dim && config.kv != Kind::kI8)
      config.row_kind = KVC_BACKEND_ROW_LATENT_SPLIT;
    const int tokens = queries[i % 5];
    config.rows = {{tokens, 150 + static_cast<int>(i)}, {1, 31 + static_cast<int>(i % 3)}};
    if (i % 6 == 1) config.window = 70;
    if (i % 6 == 2) config.chunk = 96;
    if (i % 6 == 3) config.softcap = 3.0;
    if (i % 6 == 4) config.alibi = config.sinks = true;
    if (i % 6 == 5) config.shares = {{{1, 0}, 0, 16}};
    if (i % 7 == 1 && tokens == 3) config.rows[0].parents = {-1, 0, 0};
    config.seed = 9001 + 4 * i;  // aligned pools
    run_scene(config, 2);
  }
}

TEST(Latent, OptionsPartsTreesAndStreams) {
  const Kind kinds[] = {Kind::kF32, Kind::kBf16};
  unsigned seed = 8600;
  for (int heads : {4, 20}) {
    for (Kind kind : kinds) {
      for (int option = 0; option < 7; ++option) {
        SceneConfig config = latent(heads, kind == Kind::kF32 ? 72 : 80, 64);
        config.q = config.kv = kind;
        config.rows = {{3, 60}, {12, 40}};
        config.rotate = option % 2 == 0;
        config.seed = seed++;
        if (option == 1) config.softcap = 5.0;
        if (option == 2) config.alibi = config.sinks = true;
        if (option == 3) config.flags = KVC_ATTEND_PAST;
        if (option == 4) config.flags = KVC_ATTEND_SELF;
        if (option == 5) config.rows = {{7, 37, 0, 0, {-1, 0, 0, 1, 1, -1, 5}}, {1, 30}};
        if (option == 6) config.rows = {{5, 90, 20, 4}, {1, 90, 30, 8}};
        config.splits = 1 + option % 3;
        run_scene(config, 2);
      }
    }
  }
}

// NaN in a later row reaches no earlier query, neither as K nor as V.
TEST(Latent, PoisonStaysWhereItIs) {
  for (Kind kv : {Kind::kF32, Kind::kBf16, Kind::kI8}) {
    for (int queries : {2, 9}) {
      SceneConfig config = latent(queries == 2 ? 8 : 16, kv == Kind::kF32 ? 72 : 80, 64);
      config.q = kv == Kind::kF32 ? Kind::kF32 : Kind::kBf16;
      config.kv = kv;
      config.rows = {{queries, 60}};
      Scene scene(config);
      const int poisoned = 60 - queries + 1;
      scene.poison_key(0, poisoned);
      for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
        scene.attend(test_backend(), device);
        for (int t = 0; t < queries; ++t) {
          for (int d = 0; d < 64; ++d) {
            EXPECT_EQ(std::isnan(scene.out(t, 3, d)), t >= 1) << name << " query " << t << " dim " << d;
          }
        }
      });
    }
  }
}

void check_spike(Kind kind, int heads, int queries, int length, int spike) {
  const int dims = kind == Kind::kF32 ? 72 : 80;
  SceneConfig config = latent(heads, dims, 64);
  config.q = config.kv = kind;
  config.scale = 1.0;
  config.rows = {{queries, length}};
  Scene scene(config);
  for (int t = 0; t < queries; ++t) {
    for (int h = 0; h < heads; ++h) {
      for (int d = 0; d < dims; ++d) scene.q(t, h, d) = d == dims - 1 ? 30.0f : 0.0f;
    }
  }
  for (int key = 0; key < length; ++key) {
    for (int d = 0; d < dims; ++d) scene.k(0, key, 0, d) = d == dims - 1 && key == spike ? 1.0f : 0.0f;
    if (key == spike) scene.k(0, key, 0, key % 64) = 1.0f;
  }
  scene.store();
  for_each_implementation(2, [&](const std::string& name, kvc_backend_device* device) {
    scene.attend(test_backend(), device);
    scene.check(name);
    for (int t = 0; t < queries; ++t) {
      if (spike <= scene.position(t)) {
        EXPECT_NEAR(scene.out(t, heads - 1, spike % 64), 1.0, 1e-6) << name;
      } else {
        EXPECT_EQ(scene.out(t, heads - 1, spike % 64), 0.0f) << name << ": query " << t << " saw key " << spike;
      }
    }
  });
}

// With a logit of +30 at one key, its row is the output. The key is the first or the last one of each query, or at the
// edge of a page or tile.
TEST(Latent, SpikesAreSeenExactly) {
  for (int spike : {0, 15, 16, 40, 47, 48, 49, 55}) check_spike(Kind::kF32, 16, 9, 56, spike);
  for (int spike : {31, 32, 63, 64, 127, 128, 129, 130}) {
    check_spike(Kind::kBf16, 16, 1, 131, spike);  // a block of few rows
    check_spike(Kind::kBf16, 20, 4, 131, spike);  // of many
  }
}

// A layer in memory of its own.
struct Rows {
  static constexpr int kPages = 6, kPageSize = 4, kRow = 24, kLatent = 16;
  kvc_backend_layer layer = {};
  std::vector<unsigned char> memory;
  std::vector<float> scales;

  explicit Rows(Kind kind) {
    layer.num_pages = kPages;
    layer.page_size = kPageSize;
    layer.num_q_heads = layer.num_kv_heads = 1;
    layer.head_dim = kRow;
    layer.v_head_dim = kLatent;
    layer.row_kind = KVC_BACKEND_ROW_LATENT;
    layer.format = stored_format(dtype_of(kind));
    layer.rope_dim = kRow - kLatent;
    layer.rope_offset = kLatent;
    layer.rope_interleaved = 1;
    memory.assign(static_cast<size_t>(kPages * kPageSize * kRow * bytes_of(kind)), 0xee);
    layer.k = pool_of(dtype_of(kind), memory.data(), kPageSize * kRow, kPageSize * kRow, kRow, kRow);
    layer.v = layer.k;
    layer.v.row_bytes = kLatent * bytes_of(kind);
    if (kind != Kind::kI8) return;
    scales.assign(kPages * kPageSize, 7.0f);
    layer.k_scales = scales_of_tokens(scales.data(), kPageSize, kPageSize, 1);
    layer.v_scales = layer.k_scales;
  }
};

kvc_backend_tensor tensor_of(Kind kind, int dims, std::vector<unsigned char>& memory) {
  kvc_backend_tensor tensor = {};
  tensor.data = memory.data();
  tensor.dtype = dtype_of(kind);
  tensor.head_stride = dims;
  tensor.token_stride = dims + 3;
  return tensor;
}

// A row in two parts is stored as the whole row is, rotated or not, with the same bits on every target. No other byte
// changes.
TEST(Latent, PartsStoreTheSameBytesAsTheRow) {
  std::mt19937 random(23);
  std::normal_distribution<float> normal;
  constexpr int kTokens = 7, kLatent = Rows::kLatent, kRow = Rows::kRow;
  const std::vector<int64_t> slots = {3, 4, -1, 17, 18, 0, 23};
  for (Kind source : {Kind::kF32, Kind::kF16, Kind::kBf16}) {
    for (Kind stored : {Kind::kF32, Kind::kF16, Kind::kBf16, Kind::kE4m3, Kind::kI8}) {
      std::vector<unsigned char> row(kTokens * (kRow + 3) * 4), head = row, rest = row;
      const int bytes = bytes_of(source);
      for (int t = 0; t < kTokens; ++t) {
        for (int d = 0; d < kRow; ++d) {
          const float x = normal(random);
          write_number(source, &row[(t * (kRow + 3) + d) * bytes], x);
          if (d < kLatent) write_number(source, &head[(t * (kLatent + 3) + d) * bytes], x);
          if (d >= kLatent) write_number(source, &rest[(t * (kRow - kLatent + 3) + d - kLatent) * bytes], x);
        }
      }
      std::vector<float> cos_sin(kTokens * (kRow - kLatent));
      for (float& x : cos_sin) x = std::cos(normal(random));
      for (bool rotate : {false, true}) {
        std::vector<unsigned char> everywhere;
        for_each_implementation(
            2,
            [&](const std::string& name, kvc_backend_device* device) {
              Rows whole(stored), parts(stored);
              kvc_backend_append args = {};
              args.layer = &whole.layer;
              args.num_tokens = kTokens;
              args.slots = slots.data();
              args.k = tensor_of(source, kRow, row);
              args.cos_sin = rotate ? cos_sin.data() : nullptr;
              kvc_error error = KVC_ERROR_INIT;
              ASSERT_EQ(test_backend()->append(device, &args, nullptr, &error), KVC_OK);
              args.layer = &parts.layer;
              args.k = tensor_of(source, kRow - kLatent, rest);
              args.v = tensor_of(source, kLatent, head);
              ASSERT_EQ(test_backend()->append(device, &args, nullptr, &error), KVC_OK);
              EXPECT_EQ(whole.memory, parts.memory) << name << " " << name_of(source) << " to " << name_of(stored);
              EXPECT_EQ(whole.scales, parts.scales) << name;
              if (everywhere.empty()) everywhere = whole.memory;
              EXPECT_EQ(whole.memory, everywhere) << name;
              for (int slot = 0; slot < Rows::kPages * Rows::kPageSize; ++slot) {
                const bool written = std::find(slots.begin(), slots.end(), slot) != slots.end();
                const int row_bytes = kRow * bytes_of(stored);
                const std::vector<unsigned char> untouched(static_cast<size_t>(row_bytes), 0xee);
                EXPECT_EQ(std::memcmp(&whole.memory[slot * row_bytes], untouched.data(), untouched.size()) != 0,
                          written);
              }
              if (rotate || stored >= Kind::kE4m3) return;
              for (int d = 0; d < kRow; ++d) {
                const float x = read_number(source, &row[(3 * (kRow + 3) + d) * bytes]);
                EXPECT_EQ(read_number(stored, &whole.memory[(17 * kRow + d) * bytes_of(stored)]), rounded(stored, x));
              }
            },
            true);
      }
    }
  }
}

// A move within a page, where source and target overlap. If it were made twice, the result would be wrong.
TEST(Latent, SlotsAreMovedOnce) {
  for (Kind kind : {Kind::kBf16, Kind::kI8}) {
    for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
      Rows rows(kind);
      const int row_bytes = Rows::kRow * bytes_of(kind);
      for (size_t i = 0; i < rows.memory.size(); ++i) rows.memory[i] = static_cast<unsigned char>(i / row_bytes);
      for (size_t i = 0; i < rows.scales.size(); ++i) rows.scales[i] = static_cast<float>(i);
      const kvc_backend_slot_copy copies[] = {{5, 4, 3, 0}, {20, 7, 1, 0}};
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(test_backend()->copy_slots(device, &rows.layer, copies, 2, nullptr, &error), KVC_OK);
      const int expected[] = {5, 6, 7, 20, 8};
      for (int i = 0; i < 5; ++i) {
        for (int b = 0; b < row_bytes; ++b) ASSERT_EQ(rows.memory[(4 + i) * row_bytes + b], expected[i]) << name;
        if (kind == Kind::kI8) {
          EXPECT_EQ(rows.scales[4 + i], expected[i]) << name;
        }
      }
      const int64_t slots[] = {7, 4};
      std::vector<unsigned char> k(2 * row_bytes), v(2 * Rows::kLatent * bytes_of(kind));
      kvc_backend_gather args = {};
      args.layer = &rows.layer;
      args.num_tokens = 2;
      args.slots = slots;
      args.k = k.data();
      args.v = v.data();
      ASSERT_EQ(test_backend()->gather(device, &args, nullptr, &error), KVC_OK);
      for (size_t b = 0; b < k.size(); ++b) ASSERT_EQ(k[b], b < k.size() / 2 ? 20 : 5) << name;
      for (size_t b = 0; b < v.size(); ++b) ASSERT_EQ(v[b], b < v.size() / 2 ? 20 : 5) << name;
    });
  }
}

TEST(Latent, LayersThatMakeNoSense) {
  for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
    const auto refuses = [&](void (*change)(kvc_backend_layer&)) {
      Rows rows(Kind::kF32);
      change(rows.layer);
      kvc_error error = KVC_ERROR_INIT;
      EXPECT_EQ(test_backend()->check_layer(device, &rows.layer, &error), KVC_ERROR_UNSUPPORTED) << name;
    };
    Rows rows(Kind::kF32);
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(test_backend()->check_layer(device, &rows.layer, &error), KVC_OK) << error.message;
    refuses([](kvc_backend_layer& l) { l.num_kv_heads = l.num_q_heads = 2; });
    refuses([](kvc_backend_layer& l) { l.v_head_dim = Rows::kRow + 1; });
    refuses([](kvc_backend_layer& l) { l.rope_offset = Rows::kLatent - 2; });
    refuses([](kvc_backend_layer& l) { l.row_kind = KVC_BACKEND_ROW_LATENT_SPLIT, l.v_head_dim = l.head_dim; });
    refuses([](kvc_backend_layer& l) { l.row_kind = KVC_BACKEND_ROW_LATENT_SPLIT + 1; });
    // Many heads: a pass takes as many heads of a query as fit, and at least one.
    rows.layer.num_q_heads = 128;
    kvc_backend_tiling tiling;
    test_backend()->tiling(device, &rows.layer, &tiling);
    EXPECT_GE(tiling.decode_max_queries, 1);
    EXPECT_GE(tiling.query_tile, 1);
  });
}

}  // namespace
}  // namespace kvc::kernels::test
