// Attention compared with float64, on a sampled grid of shapes, types, layouts and cuts of the work.
#include <gtest/gtest.h>

#include <random>

#include "scene.h"

namespace kvc::kernels::test {
namespace {

TEST(Attend, ReferenceAgreesToo) {
  for (int splits : {1, 3}) {
    SceneConfig config;
    config.rows = {{1, 100}, {7, 40}};
    config.page_size = 3;
    config.window = 33;
    config.splits = splits;
    config.rotate = splits == 3;
    config.on_read = splits == 1;
    Scene scene(config);
    for_each_implementation(
        2,
        [&](const std::string& name, kvc_backend_device* device) {
          scene.attend(test_backend(), device);
          scene.check(name);
        },
        true);
  }
}

TEST(Attend, EveryTypeTriple) {
  const Kind kinds[] = {Kind::kF32, Kind::kF16, Kind::kBf16};
  unsigned seed = 100;
  for (Kind q : kinds) {
    for (Kind kv : kinds) {
      for (Kind out : kinds) {
        SceneConfig config;
        config.q = q;
        config.kv = kv;
        config.out = out;
        config.head_dim = 80;
        config.v_head_dim = 48;
        config.rows = {{1, 77}, {9, 50}, {2, 33}};
        config.rotate = seed % 2 == 0;
        config.splits = 1 + static_cast<int>(seed % 3);
        config.seed = seed++;
        run_scene(config, 2);
      }
    }
  }
}

// Every head count and head dim, decode and prefill, with the types that select each kernel.
TEST(Attend, HeadsAndDims) {
  const int heads[][2] = {{32, 4}, {8, 8}, {6, 1}, {20, 4}, {64, 4}, {7, 1}, {5, 1}};
  const int dims[][2] = {{64, 64},   {80, 80}, {96, 96}, {100, 100}, {128, 128}, {256, 256},
                         {512, 512}, {17, 17}, {1, 1},   {128, 64},  {33, 65},   {64, 192}};
  const int page_sizes[] = {1, 3, 8, 16, 64, 256};
  std::mt19937 random(5);
  unsigned seed = 1000;
  for (const auto& dim : dims) {
    for (const auto& head : heads) {
      SceneConfig config;
      config.q_heads = head[0];
      config.kv_heads = head[1];
      config.head_dim = dim[0];
      config.v_head_dim = dim[1];
      config.page_size = page_sizes[random() % 6];
      config.kv = static_cast<Kind>(random() % 3);
      config.q = random() % 2 == 0 ? config.kv : static_cast<Kind>(random() % 3);
      config.nhd = random() % 2 == 0;
      config.window = random() % 3 == 0 ? 1 + static_cast<int>(random() % 60) : 0;
      config.splits = random() % 2 == 0 ? 1 : 1 + static_cast<int>(random() % 7);
      config.rotate = dim[0] > 1 && random() % 4 == 0;
      const int queries[] = {1, 2, 7, 16, 33};
      const int chosen = queries[random() % (dim[0] * head[0] > 4096 ? 3 : 5)];
      config.rows = {{chosen, chosen + static_cast<int>(random() % 120)}, {1, 1 + static_cast<int>(random() % 200)}};
      config.seed = seed++;
      if (seed % kSampling == 0) run_scene(config, 1 + static_cast<int>(random() % 5));
    }
  }
}

TEST(Attend, QueryAndKeyLengths) {
  std::mt19937 random(6);
  unsigned seed = 2000;
  for (int queries : {1, 2, 7, 16, 33, 130}) {
    for (int past : {0, 1, 15, 16, 17, 300, 1100}) {
      SceneConfig config;
      config.rows = {{queries, queries + past}};
      config.page_size = past % 2 == 0 ? 16 : 8;
      config.q_heads = 6;
      config.kv_heads = 2;
      config.q = config.kv = static_cast<Kind>(random() % 3);
      config.window = random() % 2 == 0 ? 1 + static_cast<int>(random() % 150) : 0;
      config.splits = 1 + static_cast<int>(random() % 7);
      config.query_tile = random() % 2 == 0 ? 0 : 1 + static_cast<int>(random() % 40);
      config.heads_per_item = static_cast<int>(random() % 2);
      config.seed = seed++;
      if (seed % kSampling == 0) run_scene(config, 3);
    }
  }
}

// More rows and heads than one pass of the scratch holds.
TEST(Attend, SeveralPasses) {
  if (kSampling > 1) GTEST_SKIP() << "slow under sanitizers and emulation; nothing that smaller scenes lack but size";
  SceneConfig decode;
  decode.q_heads = 320;
  decode.kv_heads = 5;
  decode.head_dim = decode.v_head_dim = 512;
  decode.rows = {{1, 40}};
  run_scene(decode, 1);
  SceneConfig many_heads = decode;
  many_heads.kv_heads = 160;
  many_heads.kv = many_heads.q = Kind::kBf16;
  run_scene(many_heads, 2);
  SceneConfig prefill;
  prefill.q_heads = 8;
  prefill.kv_heads = 1;
  prefill.head_dim = prefill.v_head_dim = 256;
  prefill.rows = {{130, 150}};
  run_scene(prefill, 2);
}

TEST(Attend, ScaleOfAnySign) {
  for (double scale : {-0.125, 1e-20, 2.0}) {
    for (int queries : {1, 40}) {
      SceneConfig config;
      config.scale = scale;
      config.rows = {{queries, 100}};
      run_scene(config, 1);
    }
  }
}

// Scores of +-1e4, a few units apart, which float32 holds exactly. Only their differences may matter.
TEST(Attend, LargeScores) {
  for (double sign : {1.0, -1.0}) {
    for (int splits : {1, 4}) {
      for (int queries : {1, 20}) {
        SceneConfig config;
        config.rows = {{queries, 90}};
        config.scale = 1.0;
        config.splits = splits;
        Scene scene(config);
        for (int t = 0; t < queries; ++t) {
          for (int h = 0; h < config.q_heads; ++h) {
            for (int d = 0; d < config.head_dim; ++d) scene.q(t, h, d) = d == 0 ? 1.0f : 0.0f;
          }
        }
        for (int p = 0; p < 90; ++p) {
          for (int h = 0; h < config.kv_heads; ++h) {
            scene.k(0, p, h, 0) = static_cast<float>(sign * 1e4 + 0.25 * ((p * 7) % 13) - (p % 5 == 0 ? 20000 : 0));
          }
        }
        scene.store();
        for_each_implementation(2, [&](const std::string& name, kvc_backend_device* device) {
          scene.attend(test_backend(), device);
          scene.check(name);
        });
      }
    }
  }
}

// Scores that rise or fall from one block of 512 keys to the next. They change by less and by more than the softmax's
// running reference may lag (2^8, 5.5 in natural units).
TEST(Attend, RisingScores) {
  for (float rise : {0.5f, 3.0f, 5.5f, 5.6f, 60.0f, 100.0f, -5.6f, -60.0f}) {
    for (int queries : {2, 20}) {
      SceneConfig config;
      config.head_dim = config.v_head_dim = 16;
      config.rows = {{queries, 1700}};
      config.scale = 1.0;
      Scene scene(config);
      for (int t = 0; t < queries; ++t) {
        for (int h = 0; h < config.q_heads; ++h) {
          for (int d = 0; d < config.head_dim; ++d) scene.q(t, h, d) = d == 0 ? 1.0f : 0.0f;
        }
      }
      for (int p = 0; p < 1700; ++p) {
        const float score = rise * static_cast<float>(p / 512) - 0.25f * static_cast<float>((p * 7) % 13);
        for (int h = 0; h < config.kv_heads; ++h) scene.k(0, p, h, 0) = score;
      }
      scene.store();
      for_each_implementation(2, [&](const std::string& name, kvc_backend_device* device) {
        scene.attend(test_backend(), device);
        scene.check(name + ", rise " + std::to_string(rise));
      });
    }
  }
}

}  // namespace
}  // namespace kvc::kernels::test
