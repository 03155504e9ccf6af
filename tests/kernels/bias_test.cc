// Relative and key biases, masks, windows of a step and layers without spans, compared with float64. Keys that no query
// sees are NaN, those that only the mask hides too.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "scene.h"

namespace kvc::kernels::test {
namespace {

std::vector<int> random_parents(int nodes, std::mt19937& random) {
  std::vector<int> parents;
  for (int i = 0; i < nodes; ++i) {
    parents.push_back(static_cast<int>(random() % static_cast<unsigned>(i + 1)) - 1);
  }
  return parents;
}

// Each option alone, on rows of both kernels, so that a failure names the option.
TEST(Bias, EachAlone) {
  const auto run = [](const std::function<void(SceneConfig*)>& change) {
    for (int queries : {1, 3, 40}) {
      for (int splits : {1, 3}) {
        SceneConfig config;
        config.q_heads = 6;
        config.rows = {{queries, queries + 90}, {2, 30}};
        config.splits = splits;
        change(&config);
        run_scene(config, 2, true);
      }
    }
  };
  for (int kind : {1, 2}) {
    run([&](SceneConfig* c) { c->rel_bias = kind; });
    run([&](SceneConfig* c) { c->rel_bias = kind, c->flags = KVC_ATTEND_REL_BIAS_ZERO; });
    run([&](SceneConfig* c) { c->rel_bias = kind, c->flags = KVC_ATTEND_NON_CAUSAL; });
    run([&](SceneConfig* c) {
      c->rel_bias = kind, c->distances = 1, c->flags = KVC_ATTEND_NON_CAUSAL | KVC_ATTEND_REL_BIAS_ZERO;
    });
    run([&](SceneConfig* c) { c->rel_bias = kind, c->softcap = 2.0, c->alibi = c->sinks = true; });
    run([&](SceneConfig* c) { c->rel_bias = kind, c->call_scale = 1.0, c->distances = 500; });
    run([&](SceneConfig* c) { c->key_bias = kind; });
    run([&](SceneConfig* c) { c->key_bias = c->mask = kind, c->window = 33; });
    run([&](SceneConfig* c) { c->mask = kind; });
    run([&](SceneConfig* c) { c->mask = kind, c->flags = KVC_ATTEND_NON_CAUSAL, c->sinks = true; });
    run([&](SceneConfig* c) { c->mask = kind, c->flags = KVC_ATTEND_PAST, c->chunk = 21; });
    run([&](SceneConfig* c) { c->mask = kind, c->q = c->kv = Kind::kBf16; });
    run([&](SceneConfig* c) { c->mask = kind, c->q = Kind::kBf16, c->kv = Kind::kI8; });
  }
}

TEST(Bias, WindowOfTheStep) {
  for (int queries : {1, 3, 40}) {
    for (uint32_t flags : {0u, uint32_t{KVC_ATTEND_NON_CAUSAL}, uint32_t{KVC_ATTEND_SELF}}) {
      for (int kind = 0; kind < 3; ++kind) {
        SceneConfig config;
        config.rows = {{queries, queries + 90}, {5, 12}};
        config.flags = flags | KVC_ATTEND_STEP_WINDOW;
        config.query_tile = 16;
        if (kind == 0) config.window = 20;
        if (kind == 1) config.chunk = 32;
        if (kind == 2 && (flags & KVC_ATTEND_NON_CAUSAL) != 0) continue;
        if (kind == 2) config.rows[0].stream_window = 30, config.rows[0].stream_sinks = 4;
        run_scene(config, 2, true);
      }
    }
  }
}

TEST(Bias, LayersWithoutSpans) {
  for (int window : {0, 20}) {
    SceneConfig config;
    config.rows = {{40, 90}, {7, 30}};
    config.window = window;
    config.spans = true;
    config.flags = KVC_ATTEND_NO_SPANS;
    run_scene(config, 2, true);
  }
}

TEST(Bias, RandomCombinations) {
  std::mt19937 random(99);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (unsigned seed = 1; seed <= 250; ++seed) {
    SceneConfig config;
    const int heads[][2] = {{4, 4}, {6, 2}, {7, 1}, {12, 4}};
    const int dims[][2] = {{64, 64}, {80, 48}, {128, 128}, {33, 65}, {16, 16}};
    const int* head = heads[below(4)];
    const int* dim = dims[below(5)];
    config.q_heads = head[0], config.kv_heads = head[1];
    config.head_dim = dim[0], config.v_head_dim = dim[1];
    const int pages[] = {1, 3, 16, 64};
    config.page_size = pages[below(4)];
    const Kind kinds[] = {Kind::kF32, Kind::kF16, Kind::kBf16, Kind::kE4m3, Kind::kI8};
    config.kv = kinds[below(5)];
    config.q = below(2) == 0 || is_quantised(config.kv) ? kinds[below(3)] : config.kv;
    config.nhd = below(2) == 0;
    config.rotate = below(4) == 0;
    config.on_read = below(5) == 0;
    config.window = below(3) == 0 ? 1 + below(50) : 0;
    config.chunk = below(5) == 0 ? 1 + below(40) : 0;
    config.spans = below(4) == 0;
    config.rel_bias = below(3);
    config.distances = 1 + below(60);
    config.key_bias = below(3);
    config.mask = below(3);
    config.softcap = below(4) == 0 ? 0.5 + below(50) : 0.0;
    config.alibi = below(4) == 0;
    config.sinks = below(3) == 0;
    config.splits = below(2) == 0 ? 1 : 1 + below(5);
    config.query_tile = below(3) == 0 ? 1 + below(20) : 0;
    for (uint32_t flag : {KVC_ATTEND_REL_BIAS_ZERO, KVC_ATTEND_NO_SPANS, KVC_ATTEND_STEP_WINDOW}) {
      if (below(2) == 0) config.flags |= flag;
    }
    if (below(3) == 0) config.flags |= KVC_ATTEND_NON_CAUSAL;
    if (below(4) == 0) config.flags |= below(2) == 0 ? KVC_ATTEND_PAST : KVC_ATTEND_SELF;
    config.rows.clear();
    const bool streams =
        config.window == 0 && config.chunk == 0 && (config.flags & KVC_ATTEND_NON_CAUSAL) == 0 && !config.spans;
    for (int r = 0; r < 3; ++r) {
      const int sizes[] = {1, 2, 5, 17, 40};
      SceneRow row = {sizes[below(5)], 0};
      row.kv_length = row.queries + below(3) * below(90);
      const int kind = below(3);
      if (kind == 1 && streams) {
        row.stream_sinks = below(12);
        row.stream_window = row.stream_sinks + 1 + below(60);
      }
      if (kind == 2 && (config.flags & KVC_ATTEND_STEP_WINDOW) == 0) {
        row.parents = random_parents(row.queries, random);
        if (below(2) == 0) row.queries = 1 + below(row.queries);
      }
      config.rows.push_back(row);
    }
    config.seed = seed;
    if (seed % kSampling == 0) run_scene(config, 1 + below(3), seed % 4 == 0);
  }
}

// Rows that share keys, each with its own bias and mask.
TEST(Bias, SharedItems) {
  for (int queries : {1, 4}) {
    for (int mask = 0; mask < 3; ++mask) {
      SceneConfig config;
      config.rows = {{queries, 70 + queries}, {queries, 64 + queries}, {1, 90}};
      config.shares = {{{0, 1}, 0, 64}};
      config.rel_bias = 2;
      config.key_bias = 2;
      config.mask = mask;
      run_scene(config, 2, true);
    }
  }
}

TEST(Bias, Latent) {
  for (int queries : {1, 40}) {
    SceneConfig config;
    config.row_kind = KVC_BACKEND_ROW_LATENT;
    config.q_heads = 5, config.kv_heads = 1;
    config.head_dim = 72, config.v_head_dim = 64;
    config.rows = {{queries, queries + 50}};
    config.rel_bias = 2, config.key_bias = 2, config.mask = 2;
    run_scene(config, 2, true);
  }
}

}  // namespace
}  // namespace kvc::kernels::test
