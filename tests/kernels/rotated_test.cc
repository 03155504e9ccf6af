// Keys that are rotated on read (RoPE on read), of 16 bits and less, compared with float64. The tolerance is so small
// that a rounded rotated key would exceed it. NaN stays in its key.
#include <gtest/gtest.h>

#include <cmath>

#include "scene.h"

namespace kvc::kernels::test {
namespace {

constexpr Kind kPairs[][2] = {{Kind::kBf16, Kind::kBf16}, {Kind::kF16, Kind::kF16}, {Kind::kBf16, Kind::kE4m3},
                              {Kind::kF16, Kind::kE5m2},  {Kind::kF16, Kind::kI8},  {Kind::kBf16, Kind::kI8}};

// Several tiles of keys, of few and of many rows, with what decides which keys a row sees. Scores have a deviation of
// 8: a relative error of 2^-19 in a key is one of the LSE's.
TEST(Rotated, TilesOfKeys) {
  const int dims[][2] = {{64, 64}, {80, 48}, {16, 16}, {128, 128}, {256, 256}, {112, 112}, {192, 128}};
  for (unsigned i = 0; i < 28; ++i) {
    SceneConfig config;
    config.q = kPairs[i % 6][0];
    config.kv = kPairs[i % 6][1];
    config.q_heads = i % 2 == 0 ? 4 : 6;
    config.kv_heads = i % 3 == 0 ? 1 : 2;
    config.head_dim = dims[i % 7][0];
    config.v_head_dim = dims[i % 7][1];
    config.scale = 3.0 / std::sqrt(config.head_dim);
    config.head_scales = static_cast<int>(i % 3);
    config.page_size = i % 5 == 0 ? 1 : 16;
    config.nhd = i % 2 == 1;
    config.on_read = true;
    config.rotate = i % 4 != 3;
    config.splits = i % 3 == 1 ? 2 : 1;
    config.rows = {{i % 2 == 0 ? 1 : 21, 140 + static_cast<int>(i)}, {2, 37}};
    if (i % 6 == 1) config.window = 70;
    if (i % 6 == 2) config.chunk = 96;
    if (i % 6 == 3) config.alibi = config.sinks = true;
    if (i % 6 == 4) config.rows[0].stream_window = 90, config.rows[0].stream_sinks = 4;
    if (i % 6 == 5) config.rows[1].parents = {-1, 0};
    config.seed = 4001 + 4 * i;  // aligned pools
    run_scene(config, 2);
  }
}

// The same for latent rows, whose last dims are rotated.
TEST(Rotated, LatentRows) {
  const int dims[][2] = {{80, 64}, {96, 64}, {288, 256}, {576, 512}};
  for (unsigned i = 0; i < 12; ++i) {
    SceneConfig config;
    config.q = kPairs[i % 4][0];
    config.kv = kPairs[i % 4][1];
    config.q_heads = i % 2 == 0 ? 5 : 20;
    config.kv_heads = 1;
    config.head_dim = dims[(i + i / 4) % 4][0];
    config.v_head_dim = dims[(i + i / 4) % 4][1];
    config.row_kind = i % 3 == 1 ? KVC_BACKEND_ROW_LATENT_SPLIT : KVC_BACKEND_ROW_LATENT;
    config.scale = 3.0 / std::sqrt(config.head_dim);
    config.on_read = config.rotate = true;
    config.splits = i % 3 == 2 ? 2 : 1;
    config.rows = {{i % 2 == 0 ? 2 : 1, 130 + static_cast<int>(i)}, {1, 33}};
    config.seed = 5001 + 4 * i;
    run_scene(config, 2);
  }
}

// NaN in K and V of a token must not reach the queries before it.
TEST(Rotated, LaterTokensMayBeNaN) {
  for (const auto& pair : kPairs) {
    for (int queries : {3, 40}) {
      SceneConfig config;
      config.q_heads = config.kv_heads = 1;
      config.q = pair[0];
      config.kv = pair[1];
      config.rows = {{queries, 70}};
      config.on_read = config.rotate = true;
      Scene scene(config), clean(config);
      const int poisoned = 70 - queries / 2;
      for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
        clean.attend(test_backend(), device);
        scene.poison_key(0, poisoned);
        scene.attend(test_backend(), device);
        for (int t = 0; t < scene.num_tokens(); ++t) {
          const bool seen = scene.position(t) >= poisoned;
          for (int d = 0; d < config.v_head_dim; ++d) {
            ASSERT_EQ(std::isnan(scene.out(t, 0, d)), seen) << name << " " << config.describe() << " token " << t;
            if (!seen) {
              ASSERT_EQ(scene.out(t, 0, d), clean.out(t, 0, d)) << name << " " << config.describe();
            }
          }
        }
        scene.store();
      });
    }
  }
}

// Keys near the end of float16's range, which rotation moves beyond it, and tiny keys with large queries.
TEST(Rotated, LargeAndTinyKeys) {
  for (const float size : {60000.0f, 1e-4f}) {
    SceneConfig config;
    config.q = config.kv = Kind::kF16;
    config.rows = {{3, 90}};
    config.on_read = true;
    Scene scene(config);
    for (int key = 0; key < 90; ++key) {
      for (int head = 0; head < config.kv_heads; ++head) {
        for (int d = 0; d < config.head_dim; ++d) scene.k(0, key, head, d) = key % 3 == d % 3 ? -size : size;
      }
    }
    for (int token = 0; token < 3; ++token) {
      for (int head = 0; head < config.q_heads; ++head) {
        for (int d = 0; d < config.head_dim; ++d) scene.q(token, head, d) /= size;
      }
    }
    scene.store();
    for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
      scene.attend(test_backend(), device);
      scene.check(name);
    });
  }
}

}  // namespace
}  // namespace kvc::kernels::test
