// Attention over rows of 4 bits, compared with float64 on the values of the stored bytes. Every unused slot and scale
// is poison.
#include <gtest/gtest.h>

#include <random>

#include "scene.h"

namespace kvc::kernels::test {
namespace {

constexpr Kind kStored[] = {Kind::kU4, Kind::kE2m1};

TEST(Nibbles, ReferenceAgreesToo) {
  for (Kind kv : kStored) {
    for (int i = 0; i < 4; ++i) {
      const bool latent = i % 2 != 0, on_read = i / 2 != 0;
      SceneConfig config;
      config.kv = kv;
      config.head_scales = i % 3;
      config.rows = {{1, 100}, {7, 40}};
      config.page_size = 3;
      config.window = 33;
      config.splits = 2;
      config.rotate = config.on_read = on_read;
      if (latent) {
        config.kv_heads = 1;
        config.row_kind = KVC_BACKEND_ROW_LATENT;
        config.head_dim = 96;
      }
      run_scene(config, 2, true);
    }
  }
}

// Decode and prefill kernels, page sizes, groups, dims, layouts, windows, splits, options, types of q and out.
TEST(Nibbles, Grid) {
  const int heads[][2] = {{8, 8}, {32, 8}, {8, 1}, {6, 2}, {16, 1}, {5, 1}};
  const int dims[][2] = {{64, 64}, {80, 80}, {128, 128}, {256, 256}, {128, 64}, {16, 48}, {112, 112}, {512, 512}};
  std::mt19937 random(12);
  unsigned seed = 7000;
  for (const auto& dim : dims) {
    for (int page_size : {1, 3, 16, 64}) {
      for (int queries : {1, 2, 3, 8, 26, 1, 2, 3, 8, 26}) {
        SceneConfig config;
        config.kv = kStored[seed % 2];
        config.head_scales = static_cast<int>(random() % 3);
        const auto& head = heads[random() % 6];
        config.q_heads = head[0];
        config.kv_heads = head[1];
        config.head_dim = dim[0];
        config.v_head_dim = dim[1];
        config.page_size = page_size;
        config.q = static_cast<Kind>(random() % 3);
        config.out = static_cast<Kind>(random() % 3);
        config.nhd = random() % 2 == 0;
        config.window = random() % 3 == 0 ? 1 + static_cast<int>(random() % 60) : 0;
        config.splits = random() % 2 == 0 ? 1 : 1 + static_cast<int>(random() % 4);
        config.rotate = random() % 4 == 0;
        config.on_read = random() % 4 == 0;
        config.softcap = random() % 5 == 0 ? 8.0 : 0.0;
        config.alibi = random() % 5 == 0;
        config.sinks = random() % 3 == 0;
        config.mask = random() % 5 == 0 ? 1 + static_cast<int>(random() % 2) : 0;
        config.rel_bias = random() % 5 == 0 ? 1 + static_cast<int>(random() % 2) : 0;
        config.rows = {{queries, queries + static_cast<int>(random() % 50)}, {1, 1 + static_cast<int>(random() % 80)}};
        config.seed = seed++;
        if (seed % kSampling == 0) run_scene(config, 1 + static_cast<int>(random() % 3));
      }
    }
  }
}

// Many keys: sums are folded, and the pipeline of the decode kernel goes from block to block.
TEST(Nibbles, ManyKeys) {
  for (const int queries : {1, 2, 30}) {
    for (const auto& [dims, kv] : {std::pair(64, Kind::kU4), {128, Kind::kU4}, {64, Kind::kE2m1}, {128, Kind::kE2m1}}) {
      SceneConfig config;
      config.kv = kv;
      config.head_dim = config.v_head_dim = dims;
      config.rows = {{queries, 1100}, {1, 700}};
      config.seed = static_cast<unsigned>(9000 + queries + dims);
      run_scene(config, 2);
    }
  }
}

// On a GPU, tensor cores compute these: many queries of 16 bits.
TEST(Nibbles, ManyRowsOf16Bits) {
  unsigned seed = 9700;
  for (const Kind kv : kStored) {
    for (const Kind q : {Kind::kF16, Kind::kBf16}) {
      for (const int dims : {64, 128, 256}) {
        SceneConfig config;
        config.kv = kv;
        config.q = q;
        config.q_heads = 8;
        config.head_dim = config.v_head_dim = dims;
        config.page_size = dims == 64 ? 3 : 16;
        config.splits = dims == 256 ? 2 : 1;
        config.window = dims == 64 ? 70 : 0;
        config.softcap = dims == 128 ? 8.0 : 0.0;
        config.head_scales = kv == Kind::kE2m1 ? 1 : 0;
        config.rotate = dims == 64;
        config.rows = {{30, 150}, {9, 33}, {1, 80}};
        config.seed = seed++;
        run_scene(config, 1);
      }
    }
  }
}

// On a GPU, a kernel for few rows computes these on tensor cores: rotated queries of 16 bits, tiles within pages and
// across pages, keys that some row does not see, and several items for the keys of a row.
TEST(Nibbles, FewRowsOf16Bits) {
  unsigned seed = 9500;
  for (const Kind q : {Kind::kF16, Kind::kBf16}) {
    for (const int dims : {64, 128}) {
      for (const int page_size : {3, 16}) {
        SceneConfig config;
        config.kv = Kind::kU4;
        config.q = q;
        config.q_heads = 8;
        config.head_dim = config.v_head_dim = dims;
        config.page_size = page_size;
        config.splits = page_size == 3 ? 2 : 1;
        config.window = page_size == 3 ? 70 : 0;
        config.rotate = dims == 64;
        config.rows = {{2, 150}, {1, 33}};
        config.seed = seed++;
        run_scene(config, 1);
      }
    }
  }
}

TEST(Nibbles, TreesAndSharedKeys) {
  for (Kind kv : kStored) {
    SceneConfig config;
    config.kv = kv;
    config.head_scales = 2;
    config.head_dim = config.v_head_dim = 128;
    config.rows = {{6, 60, 0, 0, {-1, 0, 0, 1, 2, -1}}, {1, 90}};
    run_scene(config, 2, true);
    config.rows = {{1, 90}, {4, 70}, {1, 66}};
    config.shares = {{{0, 1, 2}, 0, 64}};
    run_scene(config, 2, true);
  }
}

}  // namespace
}  // namespace kvc::kernels::test
