// Attention over latent rows by CUDA's warpgroup products, compared with float64: heads, pages and pools, every mask
// and option, and keys that are NaN for some rows.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "warpgroup_scene.h"

namespace kvc::kernels::test {
namespace {

SceneConfig latent_config(int heads, Kind kind) {
  SceneConfig config;
  config.q_heads = heads;
  config.kv_heads = 1;
  config.head_dim = 576;
  config.v_head_dim = 512;
  config.row_kind = KVC_BACKEND_ROW_LATENT;
  config.scale = 0.05;
  config.q = config.kv = config.out = kind;
  config.rows = {{1, 150}};
  return config;
}

// Blocks from 16 rows to two halves of 128, pages of one box and of several, one pool or two.
TEST(Warpgroup, LatentHeadsAndPages) {
  unsigned seed = 201;
  const struct {
    int heads, queries, page_size;
  } cases[] = {{16, 1, 64}, {16, 3, 16},    {20, 1, 8},   {64, 1, 64},
               {40, 2, 24}, {128, 1, 1024}, {128, 2, 16}, {16, 9, 32}};
  for (const auto& [heads, queries, page_size] : cases) {
    for (const uint32_t row_kind : {KVC_BACKEND_ROW_LATENT, KVC_BACKEND_ROW_LATENT_SPLIT}) {
      SceneConfig config = latent_config(heads, seed % 2 == 0 ? Kind::kBf16 : Kind::kF16);
      config.page_size = page_size;
      config.row_kind = row_kind;
      config.out = seed % 3 == 0 ? Kind::kF32 : config.q;
      config.rows = {{queries, 70 + 23 * static_cast<int>(seed % 5)}, {1, 30}};
      config.seed = ++seed;
      run_by_warpgroups(config);
    }
  }
}

// Rows of fp8_ds_mla, in pages of any size.
TEST(Warpgroup, LatentPackedRows) {
  unsigned seed = 401;
  const struct {
    int heads, queries, page_size;
  } cases[] = {{16, 1, 64}, {16, 3, 1}, {20, 1, 5}, {64, 1, 64}, {40, 2, 24}, {128, 1, 1024}, {128, 2, 16}};
  for (const auto& [heads, queries, page_size] : cases) {
    SceneConfig config = latent_config(heads, Kind::kBf16);
    config.kv = Kind::kDsMla;
    config.page_size = page_size;
    config.out = seed % 2 == 0 ? Kind::kF32 : Kind::kBf16;
    config.rows = {{queries, 70 + 23 * static_cast<int>(seed % 5)}, {1, 30}};
    config.seed = ++seed;
    run_by_warpgroups(config);
  }
}

// Rows in two pools may be of several heads, whose rows or whose slots lie side by side.
TEST(Warpgroup, LatentRowsOfSeveralHeads) {
  for (const bool nhd : {false, true}) {
    SceneConfig config = latent_config(40, Kind::kBf16);
    config.kv_heads = 2;
    config.row_kind = KVC_BACKEND_ROW_LATENT_SPLIT;
    config.nhd = nhd;
    config.rows = {{1, 100}, {2, 70}};
    config.seed = nhd ? 261 : 262;
    run_by_warpgroups(config);
  }
}

TEST(Warpgroup, LatentMasksAndOptions) {
  unsigned seed = 301;
  const auto with = [&](const std::function<void(SceneConfig*)>& change) {
    for (const bool packed : {false, true}) {
      SceneConfig config = latent_config(20, seed % 3 == 0 && !packed ? Kind::kF16 : Kind::kBf16);
      if (packed) config.kv = Kind::kDsMla;
      change(&config);
      config.seed = ++seed;
      run_by_warpgroups(config);
    }
  };
  const std::vector<int> tree = {-1, 0, 0, 1, 1, 2};
  with([](SceneConfig* c) { c->window = 37, c->rows = {{3, 200}}; });
  with([](SceneConfig* c) { c->window = 64, c->rows = {{2, 400}}; });
  with([](SceneConfig* c) { c->chunk = 48, c->rows = {{3, 200}}; });
  with([](SceneConfig* c) { c->flags = KVC_ATTEND_NON_CAUSAL, c->rows = {{3, 100}}; });
  with([](SceneConfig* c) { c->rows = {{3, 300, 70, 4}}; });
  with([&](SceneConfig* c) { c->rows = {{6, 150, 0, 0, tree}}; });
  with([&](SceneConfig* c) { c->rows = {{6, 70, 0, 0, tree}}, c->alibi = true; });
  with([](SceneConfig* c) { c->softcap = 5.0; });
  with([](SceneConfig* c) { c->alibi = true; });
  with([](SceneConfig* c) { c->sinks = true; });
  with([](SceneConfig* c) { c->rotate = true; });
  with([](SceneConfig* c) { c->rotate = true, c->scale = -0.05; });
  with([](SceneConfig* c) { c->scale = 1e-20; });
  with([](SceneConfig* c) { c->splits = 3; });
  with([](SceneConfig* c) { c->splits = 2, c->q_heads = 128; });
  with([](SceneConfig* c) { c->splits = 4, c->sinks = true, c->window = 90, c->rows = {{1, 300}}; });
  with([](SceneConfig* c) { c->query_tile = 2, c->rows = {{5, 100}}; });
  with([](SceneConfig* c) {
    c->q_heads = 16, c->rows = {{1, 200}, {2, 150}, {1, 190}};
    c->shares = {{{0, 1, 2}, 0, 128}};
  });
}

// Many tiles: every slot is filled again, while products of its last tile may still run. Either may finish first.
TEST(Warpgroup, LatentSlotsAreFilledAgain) {
  SceneConfig config = latent_config(64, Kind::kBf16);
  config.rows = {{1, 500}};
  for (int launch = 0; launch < 4; ++launch) run_by_warpgroups(config);
  config.kv = Kind::kDsMla;
  for (int launch = 0; launch < 4; ++launch) run_by_warpgroups(config);
}

// One key is NaN. Only outputs of rows that see it are NaN, wherever the key is in a tile.
TEST(Warpgroup, LatentKeysOfOthersMayBeNaN) {
  for (const Kind kind : {Kind::kF16, Kind::kBf16, Kind::kDsMla}) {
    for (int poisoned : {129, 140, 149}) {
      SceneConfig config = latent_config(16, kind == Kind::kDsMla ? Kind::kBf16 : kind);
      config.kv = kind;
      config.window = poisoned == 140 ? 8 : 0;
      config.rows = {{20, 150}};
      Scene clean(config), scene(config);
      clean.store();
      for_warpgroups([&](const std::string& name, kvc_backend_device* device) {
        clean.attend(test_backend(), device);
        scene.poison_key(0, poisoned);
        scene.attend(test_backend(), device);
        for (int t = 0; t < scene.num_tokens(); ++t) {
          const bool seen = scene.sees(t, poisoned);
          for (int h = 0; h < config.q_heads; ++h) {
            for (int d = 0; d < config.v_head_dim; ++d) {
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

// Dim 3 of V of a key is infinite, so its score is -inf, or with softcap the least score. Dim 3 of each query that sees
// the key becomes NaN (0 * inf), or with softcap infinite. The key is in a tile that all rows see, or some.
using Run = void (*)(const std::function<void(const std::string&, kvc_backend_device*)>&);
void check_infinite_dim(SceneConfig config, Run run) {
  config.rows = {{3, 100}};
  for (const int key : {20, 98}) {
    for (const double softcap : {0.0, 5.0}) {
      config.softcap = softcap;
      Scene scene(config);
      scene.k(0, key, 0, 3) = INFINITY;
      for (int t = 0; t < scene.num_tokens(); ++t) {
        for (int h = 0; h < config.q_heads; ++h) scene.q(t, h, 3) = -0.5f;
      }
      scene.store();
      run([&](const std::string& name, kvc_backend_device* device) {
        scene.attend(test_backend(), device);
        for (int t = 0; t < scene.num_tokens(); ++t) {
          for (int d = 0; d < config.v_head_dim; ++d) {
            const bool odd = scene.sees(t, key) && d == 3;
            const float out = scene.out(t, 2, d);
            ASSERT_EQ(std::isnan(out), odd && softcap == 0.0) << name << " " << config.describe() << " token " << t;
            ASSERT_EQ(std::isinf(out), odd && softcap != 0.0) << name << " " << config.describe() << " token " << t;
          }
        }
      });
    }
  }
}
TEST(Latent, InfiniteDimOfASeenKey) {
  for (const int heads : {16, 128}) {
    check_infinite_dim(latent_config(heads, Kind::kBf16), [](const auto& body) { for_each_implementation(1, body); });
  }
}
TEST(Warpgroup, LatentInfiniteDimOfASeenKey) {
  for (const Kind kind : {Kind::kF16, Kind::kBf16}) check_infinite_dim(latent_config(16, kind), for_warpgroups);
}

// Scores of 1e4, a few units apart. Each half of a tile's keys has the larger ones in turn.
TEST(Warpgroup, LatentLargeScores) {
  SceneConfig config = latent_config(16, Kind::kBf16);
  config.scale = 1.0;
  config.rows = {{1, 190}};
  Scene scene(config);
  for (int h = 0; h < config.q_heads; ++h) {
    for (int d = 0; d < config.head_dim; ++d) scene.q(0, h, d) = d < 2 ? 1.0f : 0.0f;
  }
  for (int p = 0; p < 190; ++p) {
    scene.k(0, p, 0, 0) = p / 32 % 3 == 0 ? -10240.0f : 10240.0f;  // they and their sums are exact in bfloat16
    scene.k(0, p, 0, 1) = 0.25f * static_cast<float>((p * 7) % 13);
  }
  scene.store();
  for_warpgroups([&](const std::string& name, kvc_backend_device* device) {
    scene.attend(test_backend(), device);
    scene.check(name);
  });
}

}  // namespace
}  // namespace kvc::kernels::test
