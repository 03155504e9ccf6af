// Attention of many rows on CUDA's tensor cores, by warpgroup products and without them, compared with float64: the
// shapes that the kernels compute, every mask and option, and keys that are NaN for some rows. It runs where a device
// has warpgroup products: on the emulation (KVC_KERNEL_BACKEND=cuda), or on a GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "warpgroup_scene.h"

namespace kvc::kernels::test {
namespace {

SceneConfig scene_config(int dims, Kind kind) {
  SceneConfig config;
  config.q_heads = 4;
  config.kv_heads = 2;
  config.head_dim = config.v_head_dim = dims;
  config.q = config.kv = kind;
  config.rows = {{70, 200}};
  return config;
}

TEST(Warpgroup, DimsAndPages) {
  unsigned seed = 11;
  for (int dims : {64, 128, 256}) {
    for (int page_size : {8, 16, 24, 64, 1024}) {
      SceneConfig config = scene_config(dims, page_size % 16 == 0 ? Kind::kBf16 : Kind::kF16);
      config.page_size = page_size;
      config.nhd = seed % 2 == 0;
      config.out = seed % 3 == 0 ? Kind::kF32 : config.q;
      config.rows = {{40 + 9 * static_cast<int>(seed % 7), 150 + 13 * static_cast<int>(seed)}, {3, 20}};
      config.seed = ++seed;
      run_many_rows(config);
    }
  }
}

// Pages that warpgroups cannot read: of any number of slots.
TEST(Warpgroup, SmallPagesWithoutWarpgroups) {
  unsigned seed = 21;
  for (int dims : {64, 128}) {
    for (int page_size : {1, 5, 16, 100}) {
      SceneConfig config = scene_config(dims, page_size == 5 ? Kind::kF16 : Kind::kBf16);
      config.page_size = page_size;
      config.nhd = seed % 2 == 0;
      config.window = page_size == 100 ? 70 : 0;
      config.rows = {{40 + 9 * static_cast<int>(seed % 7), 150 + 13 * static_cast<int>(seed)}, {20, 20}};
      config.seed = ++seed;
      run_by_warps(config);
    }
  }
}

// K is wider than V: decompressed rows of MLA.
TEST(Warpgroup, UnlikeDims) {
  unsigned seed = 31;
  for (int page_size : {8, 16, 64}) {
    SceneConfig config = scene_config(192, page_size == 16 ? Kind::kF16 : Kind::kBf16);
    config.v_head_dim = 128;
    config.q_heads = config.kv_heads = 2;
    config.page_size = page_size;
    config.nhd = page_size != 16;
    config.splits = page_size == 64 ? 3 : 1;
    config.rows = {{150, 430}, {20, 150}};
    config.seed = ++seed;
    run_many_rows(config);
  }
}

// K and V of 8 bits are dequantised on the way to the tile. From one tile to several rounds of the slots, with every
// kind of scales.
TEST(Warpgroup, EightBits) {
  unsigned seed = 41;
  for (Kind kv : {Kind::kE4m3, Kind::kE5m2}) {
    for (int dims : {64, 128}) {
      for (int page_size : {8, 16, 64}) {
        SceneConfig config = scene_config(dims, seed % 2 == 0 ? Kind::kBf16 : Kind::kF16);
        config.kv = kv;
        config.page_size = page_size;
        config.nhd = seed % 4 < 2;
        config.head_scales = static_cast<int>(seed % 3);
        config.out = seed % 3 == 0 ? Kind::kF32 : config.q;
        config.splits = page_size == 16 ? 2 : 1;
        config.window = page_size == 8 ? 90 : 0;
        config.rows = {{40, page_size == 64 ? 900 : 100 + static_cast<int>(seed)}, {3, 20}};
        config.seed = ++seed;
        run_many_rows(config);
      }
    }
  }
}

// From the rows of one warpgroup to several blocks, groups of any size, and keys from one to several rounds of the
// slots.
TEST(Warpgroup, RowsAndKeys) {
  unsigned seed = 51;
  for (int group : {1, 3, 8}) {
    for (int queries : {17, 64, 129}) {
      for (int past : {0, 1, 127, 700}) {
        SceneConfig config = scene_config(64, Kind::kBf16);
        config.kv_heads = 1;
        config.q_heads = group;
        config.rows = {{queries, queries + past}};
        config.seed = ++seed;
        if (seed % 3 == 0) run_many_rows(config);
      }
    }
  }
}

TEST(Warpgroup, MasksAndOptions) {
  unsigned seed = 101;
  const auto with = [&](const std::function<void(SceneConfig*)>& change) {
    SceneConfig config = scene_config(seed % 2 == 0 ? 128 : 64, seed % 3 == 0 ? Kind::kF16 : Kind::kBf16);
    change(&config);
    config.seed = ++seed;
    run_many_rows(config);
  };
  std::vector<int> tree;
  for (int i = 0; i < 45; ++i) tree.push_back(i < 2 ? -1 : i - 2 - i % 2 * (i % 3 == 0 ? 1 : 0));
  with([](SceneConfig* c) { c->window = 37; });
  with([](SceneConfig* c) { c->window = 128, c->rows = {{150, 400}}; });
  with([](SceneConfig* c) { c->chunk = 48; });
  with([](SceneConfig* c) { c->spans = true; });
  with([](SceneConfig* c) { c->flags = KVC_ATTEND_NON_CAUSAL; });
  with([](SceneConfig* c) { c->flags = KVC_ATTEND_PAST; });
  with([](SceneConfig* c) { c->flags = KVC_ATTEND_SELF; });
  with([](SceneConfig* c) { c->rows = {{60, 300, 100, 4}}; });
  with([&](SceneConfig* c) { c->rows = {{45, 150, 0, 0, tree}}; });
  with([&](SceneConfig* c) { c->rows = {{45, 45, 0, 0, tree}}, c->alibi = true; });
  with([&](SceneConfig* c) { c->rows = {{45, 245, 0, 0, tree}}, c->window = 20; });
  with([](SceneConfig* c) { c->softcap = 5.0; });
  with([](SceneConfig* c) { c->alibi = true; });
  with([](SceneConfig* c) { c->sinks = true; });
  with([](SceneConfig* c) { c->rotate = true; });
  with([](SceneConfig* c) { c->scale = -0.1; });
  with([](SceneConfig* c) { c->scale = 1e-20; });
  with([](SceneConfig* c) { c->splits = 3; });
  with([](SceneConfig* c) { c->splits = 5, c->sinks = true, c->window = 90; });
  with([](SceneConfig* c) { c->query_tile = 20, c->heads_per_item = 1; });
  with([](SceneConfig* c) {
    c->rows = {{4, 200}, {3, 150}, {5, 190}}, c->q_heads = 8;
    c->shares = {{{0, 1, 2}, 0, 128}};
  });
}

// Many tiles: every slot is filled again, while products of its last tile may still run. Either may finish first.
TEST(Warpgroup, SlotsAreFilledAgain) {
  for (const auto& [dims, kv] :
       {std::pair{64, Kind::kBf16}, {128, Kind::kBf16}, {256, Kind::kBf16}, {64, Kind::kE4m3}, {128, Kind::kE5m2}}) {
    SceneConfig config = scene_config(dims, Kind::kBf16);
    config.kv = kv;
    config.kv_heads = 1;
    config.q_heads = 2;
    config.rows = {{20, 1000}};
    for (int launch = 0; launch < 4; ++launch) run_many_rows(config);
  }
}

// K and V of one key are NaN. Only outputs of rows that see it are NaN, wherever the key is in a tile, in every panel
// of dims, and whichever rows see it.
TEST(Warpgroup, KeysOfOthersMayBeNaN) {
  const struct {
    int k_dims, dims;
    Kind q, kv;
  } cases[] = {{64, 64, Kind::kF16, Kind::kF16},     {128, 128, Kind::kBf16, Kind::kBf16},
               {192, 128, Kind::kBf16, Kind::kBf16}, {64, 64, Kind::kF16, Kind::kE4m3},
               {64, 64, Kind::kBf16, Kind::kE4m3},   {128, 128, Kind::kBf16, Kind::kE5m2},
               {64, 64, Kind::kF16, Kind::kE5m2}};
  for (const auto& [k_dims, dims, q, kv] : cases) {
    for (int poisoned : {129, 160, 199}) {
      SceneConfig config = scene_config(k_dims, q);
      config.kv = kv;
      config.v_head_dim = dims;
      config.window = poisoned == 160 ? 25 : 0;
      config.rows = {{80, 200}};
      Scene clean(config), scene(config);
      clean.store();
      for_many_rows([&](const std::string& name, kvc_backend_device* device) {
        clean.attend(test_backend(), device);
        scene.poison_key(0, poisoned);
        scene.attend(test_backend(), device);
        for (int t = 0; t < scene.num_tokens(); ++t) {
          const bool seen = scene.sees(t, poisoned);
          for (int h = 0; h < config.q_heads; ++h) {
            for (int d = 0; d < dims; ++d) {
              ASSERT_EQ(std::isnan(scene.out(t, h, d)), seen) << name << " token " << t << " dim " << d;
              if (!seen) {
                ASSERT_EQ(scene.out(t, h, d), clean.out(t, h, d)) << name << " token " << t << " dim " << d;
              }
            }
          }
        }
        scene.store();
      });
    }
  }
}

// One dim of V is infinite or NaN, for a key that some rows of its tile see. It reaches that dim of their outputs, and
// nothing else.
TEST(Warpgroup, OddValuesStayInTheirDim) {
  const struct {
    int dims;
    Kind kv;
    float value;
  } cases[] = {
      {64, Kind::kBf16, INFINITY}, {256, Kind::kBf16, INFINITY}, {64, Kind::kE4m3, NAN}, {128, Kind::kE5m2, NAN}};
  for (const auto& [dims, kv, value] : cases) {
    SceneConfig config = scene_config(dims, Kind::kBf16);
    config.kv = kv;
    config.rows = {{60, 190}};
    Scene scene(config);
    const int key = 150, dim = dims - 3;
    scene.v(0, key, 1, dim) = value;
    scene.store();
    for_many_rows([&](const std::string& name, kvc_backend_device* device) {
      scene.attend(test_backend(), device);
      for (int t = 0; t < scene.num_tokens(); ++t) {
        for (int h = 0; h < config.q_heads; ++h) {
          for (int d = 0; d < dims; ++d) {
            const bool odd = scene.sees(t, key) && h / 2 == 1 && d == dim;
            ASSERT_EQ(std::isinf(scene.out(t, h, d)), odd && std::isinf(value))
                << name << " token " << t << " dim " << d;
            ASSERT_EQ(std::isnan(scene.out(t, h, d)), odd && std::isnan(value))
                << name << " token " << t << " dim " << d;
          }
        }
      }
    });
  }
}

// Scores of 1e4, a few units apart. Only their differences may matter.
TEST(Warpgroup, LargeScores) {
  SceneConfig config = scene_config(64, Kind::kBf16);
  config.scale = 1.0;
  config.rows = {{50, 190}};
  Scene scene(config);
  for (int t = 0; t < 50; ++t) {
    for (int h = 0; h < config.q_heads; ++h) {
      for (int d = 0; d < 64; ++d) scene.q(t, h, d) = d < 2 ? 1.0f : 0.0f;
    }
  }
  for (int p = 0; p < 190; ++p) {
    for (int h = 0; h < config.kv_heads; ++h) {
      scene.k(0, p, h, 0) = p % 5 == 0 ? -10240.0f : 10240.0f;  // they and their sums are exact in bfloat16
      scene.k(0, p, h, 1) = 0.25f * static_cast<float>((p * 7) % 13);
    }
  }
  scene.store();
  for_many_rows([&](const std::string& name, kvc_backend_device* device) {
    scene.attend(test_backend(), device);
    scene.check(name);
  });
}

}  // namespace
}  // namespace kvc::kernels::test
