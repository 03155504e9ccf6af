// Attention over quantised K and V, compared with float64 on the values of the stored bytes and scales. Every unused
// slot and scale is poison.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "scene.h"

namespace kvc::kernels::test {
namespace {

constexpr Kind kStored[] = {Kind::kE4m3, Kind::kE5m2, Kind::kI8};

TEST(Quantised, ReferenceAgreesToo) {
  for (Kind kv : kStored) {
    for (int head_scales : {0, 1, 2}) {
      SceneConfig config;
      config.kv = kv;
      config.head_scales = head_scales;
      config.rows = {{1, 100}, {7, 40}};
      config.page_size = 3;
      config.window = 33;
      config.splits = 1 + head_scales;
      config.rotate = head_scales == 1;
      config.on_read = head_scales != 0;
      run_scene(config, 2, true);
    }
  }
}

// The block's last key stands for those that it lacks: with scales 3 apart, 15 after the first, as of 16 neighbours.
TEST(Quantised, SixKeysWithScalesThreeApart) {
  SceneConfig config;
  config.kv = Kind::kI8;
  config.nhd = true;
  config.rows = {{1, 22}};
  run_scene(config, 1);
}

// Decode and prefill kernels, page sizes, groups, dims, layouts, windows, splits, types of q and out.
TEST(Quantised, Grid) {
  const int heads[][2] = {{8, 8}, {32, 8}, {8, 1}, {6, 2}, {16, 1}, {5, 1}};
  const int dims[][2] = {{64, 64}, {80, 80}, {128, 128}, {256, 256}, {128, 64}, {17, 33}};
  std::mt19937 random(11);
  unsigned seed = 5000;
  for (Kind kv : kStored) {
    for (const auto& dim : dims) {
      for (int page_size : {1, 3, 16, 64}) {
        for (int queries : {1, 3, 26}) {
          SceneConfig config;
          config.kv = kv;
          const auto& head = heads[random() % 6];
          config.q_heads = head[0];
          config.kv_heads = head[1];
          config.head_dim = dim[0];
          config.v_head_dim = dim[1];
          config.page_size = page_size;
          config.q = static_cast<Kind>(random() % 3);
          config.out = static_cast<Kind>(random() % 3);
          config.head_scales = static_cast<int>(random() % 3);
          config.nhd = random() % 2 == 0;
          config.window = random() % 3 == 0 ? 1 + static_cast<int>(random() % 60) : 0;
          config.splits = random() % 2 == 0 ? 1 : 1 + static_cast<int>(random() % 4);
          config.rotate = random() % 4 == 0;
          config.on_read = random() % 4 == 0;
          config.rows = {{queries, queries + static_cast<int>(random() % 50)},
                         {1, 1 + static_cast<int>(random() % 80)}};
          config.seed = seed++;
          if (seed % kSampling == 0) run_scene(config, 1 + static_cast<int>(random() % 3));
        }
      }
    }
  }
}

void check_poison(Kind kv) {
  for (int dims : {64, 128}) {
    for (int queries : {4, 40}) {
      SceneConfig config;
      config.kv = kv;
      config.rows = {{queries, 60}};
      config.page_size = 16;
      config.head_dim = config.v_head_dim = dims;
      Scene scene(config);
      const int poisoned = 58;
      scene.poison_key(0, poisoned);
      for_each_implementation(
          1,
          [&](const std::string& name, kvc_backend_device* device) {
            scene.attend(test_backend(), device);
            for (int t = 0; t < scene.num_tokens(); ++t) {
              const bool sees = scene.position(t) >= poisoned;
              EXPECT_EQ(std::isnan(scene.out(t, 0, 5)), sees) << name << " " << config.describe() << " token " << t;
            }
          },
          true);
    }
  }
}

// NaN of an 8-bit float is read as NaN. Only queries that see a poisoned key get it.
TEST(Quantised, PoisonStaysWhereItIs) {
  for (Kind kv : kStored) check_poison(kv);
}
TEST(Uint4, PoisonStaysWhereItIs) { check_poison(Kind::kU4); }
TEST(Float4, PoisonStaysWhereItIs) { check_poison(Kind::kE2m1); }

// V of a key is NaN, and its score is so low that its weight is 0 in float32. 0 * NaN is NaN, so the outputs of queries
// that see the key are NaN, also where NaN is in the scale of the token.
TEST(Quantised, NaNOfAKeyWithoutWeight) {
  for (const Kind kv : {Kind::kBf16, Kind::kE4m3, Kind::kI8, Kind::kU4}) {
    for (const Kind q : {Kind::kF32, Kind::kBf16}) {
      for (const auto& [queries, key] : {std::pair{4, 10}, {4, 58}, {40, 10}, {40, 58}}) {
        SceneConfig config;
        config.q = q;
        config.kv = kv;
        config.rows = {{queries, 60}};
        Scene scene(config);
        for (int t = 0; t < scene.num_tokens(); ++t) {
          for (int h = 0; h < config.q_heads; ++h) scene.q(t, h, 0) = 64.0f;
        }
        for (int h = 0; h < config.kv_heads; ++h) scene.k(0, key, h, 0) = -448.0f;
        scene.store();
        scene.poison_value(0, key);
        for_each_implementation(
            1,
            [&](const std::string& name, kvc_backend_device* device) {
              scene.attend(test_backend(), device);
              for (int t = 0; t < scene.num_tokens(); ++t) {
                const bool sees = scene.sees(t, key);
                EXPECT_EQ(std::isnan(scene.out(t, 3, 5)), sees) << name << " " << config.describe() << " token " << t;
                EXPECT_TRUE(std::isfinite(scene.lse(t, 3))) << name << " " << config.describe() << " token " << t;
              }
            },
            true);
      }
    }
  }
}

// small: the smallest factor whose rows have scales above the format's least one.
void check_scales(Kind kv, float small) {
  for (float factor : {small, 1e12f}) {
    for (int queries : {1, 40}) {
      SceneConfig config;
      config.kv = kv;
      config.rows = {{queries, 90}};
      config.scale = 0.1 / static_cast<double>(factor);
      Scene scene(config);
      for (int p = 0; p < 90; ++p) {
        for (int h = 0; h < config.kv_heads; ++h) {
          for (int d = 0; d < config.head_dim; ++d) scene.k(0, p, h, d) *= factor;
        }
      }
      scene.store();
      for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
        scene.attend(test_backend(), device);
        scene.check(name);
      });
    }
  }
}

// Scales far from 1 are exact, because they multiply scores and outputs.
TEST(Quantised, Int8ScalesOfAnySize) { check_scales(Kind::kI8, 1e-12f); }
TEST(Uint4, ScalesOfAnySize) { check_scales(Kind::kU4, 1e-4f); }

}  // namespace
}  // namespace kvc::kernels::test
