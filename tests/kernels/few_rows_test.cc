// Attention of few rows of a kv head (decode), compared with float64: the dims, types and pages that a kernel of CUDA
// has instances for, up to 16 rows, keys from one tile to several rounds of each warp's ring, every mask, and NaN.
#include <gtest/gtest.h>

#include <cmath>

#include "scene.h"

namespace kvc::kernels::test {
namespace {

struct FewRowsShape {
  int k_dims, dims;
  Kind q, kv;
};
const FewRowsShape kShapes[] = {
    {64, 64, Kind::kF16, Kind::kF16},     {64, 64, Kind::kBf16, Kind::kE4m3},   {64, 64, Kind::kF16, Kind::kI8},
    {128, 128, Kind::kBf16, Kind::kBf16}, {128, 128, Kind::kF16, Kind::kE4m3},  {128, 128, Kind::kBf16, Kind::kI8},
    {256, 256, Kind::kF16, Kind::kF16},   {256, 256, Kind::kBf16, Kind::kE4m3}, {256, 256, Kind::kF16, Kind::kI8},
    {192, 128, Kind::kBf16, Kind::kBf16}, {64, 64, Kind::kBf16, Kind::kE2m1},   {128, 128, Kind::kF16, Kind::kE2m1},
    {128, 128, Kind::kBf16, Kind::kE2m1}};

SceneConfig config_of(const FewRowsShape& shape, unsigned seed) {
  SceneConfig config;
  config.q_heads = 4;
  config.kv_heads = 2;
  config.head_dim = shape.k_dims;
  config.v_head_dim = shape.dims;
  config.q = shape.q;
  config.kv = shape.kv;
  config.out = seed % 3 == 0 ? Kind::kF32 : shape.q;
  config.nhd = seed % 5 < 2;
  config.head_scales = static_cast<int>(seed % 3);
  config.seed = seed % 4 == 0 ? seed + 1 : seed;  // every fourth seed has pools that tensor cores cannot read
  return config;
}

TEST(FewRows, ShapesAndPages) {
  unsigned seed = 3;
  for (const FewRowsShape& shape : kShapes) {
    for (int page_size : {1, 16, 24, 64}) {
      SceneConfig config = config_of(shape, ++seed);
      config.page_size = page_size;
      config.splits = page_size == 64 ? 3 : 1;
      config.rows = {{1, page_size == 16 ? 1400 : 310 + static_cast<int>(seed)}, {3, 40}, {1, 1}};
      run_scene(config, 1);
    }
  }
}

// Groups of heads and several queries, up to 16 rows.
TEST(FewRows, RowsOfABlock) {
  unsigned seed = 70;
  for (const int group : {1, 3, 8, 16}) {
    for (const int queries : {1, 2, 5}) {
      ++seed;
      SceneConfig config = config_of(kShapes[seed % 13], seed);
      config.kv_heads = 2;
      config.q_heads = 2 * group;
      config.rows = {{queries, 150 + static_cast<int>(seed)}};
      run_scene(config, 1);
    }
  }
}

TEST(FewRows, Masks) {
  unsigned seed = 110;
  const auto with = [&](const std::function<void(SceneConfig*)>& change) {
    for (int i : {0, 1, 3, 5, 10, 12}) {
      SceneConfig config = config_of(kShapes[i], ++seed);
      change(&config);
      run_scene(config, 1);
    }
  };
  with([](SceneConfig* c) { c->window = 37, c->rows = {{4, 200}, {1, 90}}; });
  with([](SceneConfig* c) { c->chunk = 48, c->rows = {{4, 200}}; });
  with([](SceneConfig* c) { c->flags = KVC_ATTEND_NON_CAUSAL, c->rows = {{5, 200}}; });
  with([](SceneConfig* c) { c->flags = KVC_ATTEND_PAST, c->rows = {{3, 130}}; });
  with([](SceneConfig* c) { c->flags = KVC_ATTEND_SELF, c->rows = {{6, 130}}; });
  with([](SceneConfig* c) { c->rows = {{4, 300, 100, 4}}; });
  with([](SceneConfig* c) { c->rows = {{7, 150, 0, 0, {-1, 0, 0, 1, 1, 2, -1}}}; });
  with([](SceneConfig* c) { c->sinks = true, c->rows = {{2, 150}}; });
  with([](SceneConfig* c) { c->rotate = true, c->rows = {{2, 150}}; });
  with([](SceneConfig* c) { c->scale = -0.1, c->rows = {{2, 150}}; });
}

// q of bfloat16 that float16 cannot represent, and elements of a row that differ by up to 2^24.
TEST(FewRows, QueriesOfAnySize) {
  unsigned seed = 160;
  for (int i : {1, 5, 7, 10, 12}) {
    for (const float size : {1e-30f, 1.0f, 1e30f}) {
      SceneConfig config = config_of(kShapes[i], seed += 4);
      config.rows = {{2, 150}};
      config.call_scale = 0.1 / static_cast<double>(size);
      Scene scene(config);
      for (int t = 0; t < scene.num_tokens(); ++t) {
        for (int h = 0; h < config.q_heads; ++h) {
          for (int d = 0; d < config.head_dim; ++d) scene.q(t, h, d) *= std::ldexp(size, -(d % 7) * 4);
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

// One dim of V is NaN or infinite, for a key that some rows of its tile see. It reaches that dim of their outputs (with
// 4-bit floats, its block of dims), and nothing else. The key is in a tile that some rows see in part, or in one that
// all rows see.
TEST(FewRows, OddValuesStayInTheirDim) {
  unsigned seed = 200;
  for (const FewRowsShape& shape : kShapes) {
    if (shape.kv == Kind::kI8) continue;  // has neither
    for (const int key : {40, 131}) {
      for (const int dim : {0, 17, shape.dims - 2}) {
        SceneConfig config = config_of(shape, ++seed);
        config.rows = {{4, 133}};
        Scene scene(config);
        const bool is_float4 = shape.kv == Kind::kE2m1;  // a NaN makes a block of 16 dims NaN
        const float value = shape.kv == Kind::kE4m3 || is_float4 ? NAN : INFINITY;
        scene.v(0, key, 1, dim) = value;
        scene.store();
        for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
          scene.attend(test_backend(), device);
          for (int t = 0; t < scene.num_tokens(); ++t) {
            for (int h = 0; h < config.q_heads; ++h) {
              for (int d = 0; d < shape.dims; ++d) {
                const bool odd = scene.sees(t, key) && h / 2 == 1 && (is_float4 ? d / 16 == dim / 16 : d == dim);
                ASSERT_EQ(std::isinf(scene.out(t, h, d)), odd && std::isinf(value))
                    << name << " " << config.describe() << " token " << t << " dim " << d;
                ASSERT_EQ(std::isnan(scene.out(t, h, d)), odd && std::isnan(value))
                    << name << " " << config.describe() << " token " << t << " dim " << d;
              }
            }
          }
        });
      }
    }
  }
}

// K and V of a key are NaN. Queries that do not see it give the same bits as without NaN.
TEST(FewRows, KeysOfOthersMayBeNaN) {
  unsigned seed = 300;
  for (const FewRowsShape& shape : kShapes) {
    SceneConfig config = config_of(shape, ++seed);
    config.rows = {{4, 100}};
    const int poisoned = 98;
    Scene clean(config), scene(config);
    clean.store();
    for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
      clean.attend(test_backend(), device);
      scene.poison_key(0, poisoned);
      scene.attend(test_backend(), device);
      for (int t = 0; t < scene.num_tokens(); ++t) {
        const bool seen = scene.sees(t, poisoned);
        for (int d = 0; d < shape.dims; ++d) {
          ASSERT_EQ(std::isnan(scene.out(t, 1, d)), seen) << name << " " << config.describe() << " token " << t;
          if (!seen) {
            ASSERT_EQ(scene.out(t, 1, d), clean.out(t, 1, d)) << name << " " << config.describe();
          }
        }
      }
      scene.store();
    });
  }
}

}  // namespace
}  // namespace kvc::kernels::test
