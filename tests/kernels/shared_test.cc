// Items over a prefix that several rows share: every kernel, dtype and option, compared with float64. What no query
// sees is poison, also in shared pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "scene.h"

namespace kvc::kernels::test {
namespace {

// `count` rows of 1 or `queries` new tokens after one prefix of `shared` keys. Their own parts have different lengths.
void add_rows(SceneConfig* config, int count, int queries, int shared) {
  SceneShare share = {{}, 0, shared};
  config->rows.clear();
  for (int r = 0; r < count; ++r) {
    const int fresh = r % 2 == 0 ? 1 : queries;
    config->rows.push_back({fresh, shared + fresh + 7 * r % 40});
    share.rows.push_back(count - 1 - r);
  }
  config->shares = {share};
}

// From two rows of one head, which the decode kernel computes, to hundreds of stacked rows.
TEST(Shared, EveryDtypeAndCount) {
  for (Kind kind : {Kind::kF32, Kind::kF16, Kind::kBf16, Kind::kE4m3, Kind::kE5m2, Kind::kI8}) {
    for (int count : {2, 3, 5, 16, 70}) {
      SceneConfig config;
      config.q_heads = count == 2 ? 2 : 8;
      config.kv = kind;
      // Where P is rounded, the largest error of very many outputs is a weak test, so these are few.
      config.q = count == 70 ? Kind::kF32 : is_quantised(kind) ? Kind::kBf16 : kind;
      config.head_scales = 2;
      config.splits = count % 2 == 0 ? 1 : 3;
      config.heads_per_item = count == 16 ? 1 : 0;
      add_rows(&config, count, 3, 96);
      if (kSampling == 1 || count == 5) run_scene(config, 2, count < 16);
    }
  }
}

TEST(Shared, EachOptionAlone) {
  const auto run = [](const std::function<void(SceneConfig*)>& change) {
    for (int count : {2, 9}) {
      SceneConfig config;
      config.q_heads = 6;
      add_rows(&config, count, 4, 80);
      change(&config);
      run_scene(config, 2, true);
    }
  };
  run([](SceneConfig* c) { c->softcap = 2.0; });
  run([](SceneConfig* c) { c->alibi = true; });
  run([](SceneConfig* c) { c->sinks = true; });
  run([](SceneConfig* c) { c->rotate = c->on_read = true; });
  run([](SceneConfig* c) { c->flags = KVC_ATTEND_PAST; });
  run([](SceneConfig* c) { c->flags = KVC_ATTEND_NON_CAUSAL; });
  run([](SceneConfig* c) { c->spans = true; });
  run([](SceneConfig* c) { c->call_scale = 0.5; });
  run([](SceneConfig* c) {
    c->head_dim = 33;
    c->v_head_dim = 65;
    c->page_size = 1;
    c->nhd = true;
  });
  run([](SceneConfig* c) {  // the nodes follow the shared keys
    c->rows[0] = {3, 90, 0, 0, {-1, 0, -1}};
    c->alibi = true;
  });
}

// Prefixes within prefixes, beside rows that share nothing, a stream and a tree.
TEST(Shared, PrefixesWithinPrefixes) {
  for (int splits : {1, 2}) {
    SceneConfig config;
    config.splits = splits;
    config.rows = {{1, 300}, {2, 250}, {20, 70}, {1, 200}, {3, 240, 0, 0, {-1, 0, 0}}, {1, 90, 30, 4}, {1, 180}};
    config.shares = {{{3, 0, 1, 4, 6}, 0, 64}, {{1, 4, 3}, 64, 144}, {{4, 1}, 144, 224}};
    config.sinks = config.alibi = true;
    run_scene(config, 3, true);
  }
}

TEST(Shared, RandomCombinations) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SceneConfig config;
    const int heads[][2] = {{4, 4}, {6, 2}, {7, 1}, {12, 4}, {5, 1}};
    const int dims[][2] = {{64, 64}, {80, 48}, {128, 128}, {33, 65}, {16, 16}};
    const int *head = heads[below(5)], *dim = dims[below(5)];
    config.q_heads = head[0];
    config.kv_heads = head[1];
    config.head_dim = dim[0];
    config.v_head_dim = dim[1];
    const int pages[] = {1, 4, 16};
    config.page_size = pages[below(3)];
    config.kv = static_cast<Kind>(below(6));
    config.q = static_cast<Kind>(below(3));
    config.head_scales = below(3);
    config.nhd = below(2) == 0;
    config.rotate = below(3) == 0;
    config.on_read = below(4) == 0;
    config.softcap = below(3) == 0 ? 0.5 + below(50) : 0.0;
    config.alibi = below(3) == 0;
    config.sinks = below(3) == 0;
    config.splits = 1 + below(3);
    config.heads_per_item = below(3);
    if (config.kv_heads == 1) config.heads_per_item = 0;
    config.seed = seed;
    add_rows(&config, 2 + below(12), 1 + below(6), 16 * (1 + below(6)));
    config.rows.push_back({below(2) == 0 ? 30 : 1, 40});  // shares nothing
    if (seed % kSampling == 0) run_scene(config, 1 + below(3), seed % 4 == 0);
  }
}

// Every row has a state of its own over the prefix: a NaN in the query of one row reaches no other row.
TEST(Shared, ANaNQueryStaysWithItsRow) {
  for (int count : {2, 8}) {
    SceneConfig config;
    config.q_heads = 6;
    add_rows(&config, count, 1, 64);
    Scene scene(config);
    for (int h = 0; h < config.q_heads; ++h) scene.q(1, h, 5) = NAN;
    scene.store();
    for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
      scene.attend(test_backend(), device);
      for (int t = 0; t < scene.num_tokens(); ++t) {
        for (int h = 0; h < config.q_heads; ++h) {
          ASSERT_EQ(std::isnan(scene.out(t, h, 0)), t == 1) << name << " token " << t << " head " << h;
        }
      }
    });
  }
}

}  // namespace
}  // namespace kvc::kernels::test
