// Score options and masks of every kind, alone and together, compared with float64. Keys that no query sees are NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "scene.h"

namespace kvc::kernels::test {
namespace {

// A row with a tree of `nodes` nodes: a chain, a bush or several roots, by `shape`.
std::vector<int> random_parents(int nodes, int shape, std::mt19937& random) {
  std::vector<int> parents;
  for (int i = 0; i < nodes; ++i) {
    const int any = static_cast<int>(random() % static_cast<unsigned>(i + 1)) - 1;
    parents.push_back(shape == 0 ? i - 1 : shape == 1 ? (i - 1) / 2 - (i == 0) : any);
  }
  return parents;
}

SceneRow random_row(int kind, std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int sizes[] = {1, 2, 5, 17, 40};
  SceneRow row = {sizes[below(5)], 0};
  row.kv_length = row.queries + below(3) * below(90);
  if (kind == 1) {
    row.stream_sinks = below(12);
    row.stream_window = row.stream_sinks + 1 + below(60);
  }
  if (kind == 2) {
    row.parents = random_parents(row.queries, below(3), random);
    if (below(2) == 0) {  // stacked rounds: only the last nodes are new
      row.queries = 1 + below(row.queries);
    }
  }
  return row;
}

TEST(Option, RandomCombinations) {
  std::mt19937 random(77);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SceneConfig config;
    const int heads[][2] = {{4, 4}, {6, 2}, {7, 1}, {12, 4}, {5, 1}};
    const int dims[][2] = {{64, 64}, {80, 48}, {128, 128}, {33, 65}, {16, 16}};
    const int* head = heads[below(5)];
    const int* dim = dims[below(5)];
    config.q_heads = head[0];
    config.kv_heads = head[1];
    config.head_dim = dim[0];
    config.v_head_dim = dim[1];
    const int pages[] = {1, 3, 16, 64};
    config.page_size = pages[below(4)];
    config.kv = static_cast<Kind>(below(3));
    config.q = below(2) == 0 ? config.kv : static_cast<Kind>(below(3));
    config.nhd = below(2) == 0;
    config.rotate = below(3) == 0;
    config.on_read = below(4) == 0;
    config.window = below(3) == 0 ? 1 + below(50) : 0;
    config.chunk = below(4) == 0 ? 1 + below(40) : 0;
    const uint32_t flags[] = {
        0, 0, KVC_ATTEND_NON_CAUSAL, KVC_ATTEND_PAST, KVC_ATTEND_SELF, KVC_ATTEND_NON_CAUSAL | KVC_ATTEND_SELF};
    config.flags = flags[below(6)];
    config.spans = below(4) == 0;
    config.softcap = below(3) == 0 ? 0.5 + below(50) : 0.0;
    config.alibi = below(3) == 0;
    config.sinks = below(3) == 0;
    config.call_scale = below(4) == 0 ? 0.2 : 0.0;
    config.splits = below(2) == 0 ? 1 : 1 + below(5);
    config.query_tile = below(3) == 0 ? 1 + below(20) : 0;
    config.rows.clear();
    // Rows stream only in layers without a window and chunks, and their queries are causal.
    const bool streams =
        config.window == 0 && config.chunk == 0 && (config.flags & KVC_ATTEND_NON_CAUSAL) == 0 && !config.spans;
    for (int r = 0; r < 3; ++r) {
      const int kind = below(3);
      config.rows.push_back(random_row(kind == 1 && !streams ? 0 : kind, random));
    }
    config.seed = seed;
    if (seed % kSampling == 0) run_scene(config, 1 + below(3), seed % 4 == 0);
  }
}

// Each option and mask alone, on rows of both kernels, so that a failure names the option.
TEST(Option, EachAlone) {
  const auto run = [](const std::function<void(SceneConfig*)>& change) {
    for (int queries : {1, 3, 40}) {
      for (int splits : {1, 3}) {
        SceneConfig config;
        config.q_heads = 6;
        config.rows = {{queries, queries + 90}};
        config.splits = splits;
        change(&config);
        run_scene(config, 2, true);
      }
    }
  };
  run([](SceneConfig* c) { c->on_read = c->rotate = true; });
  run([](SceneConfig* c) { c->softcap = 2.0; });
  run([](SceneConfig* c) { c->alibi = true; });
  run([](SceneConfig* c) { c->alibi = true, c->flags = KVC_ATTEND_NON_CAUSAL | KVC_ATTEND_ALIBI_SIGNED; });
  run([](SceneConfig* c) { c->sinks = true; });
  run([](SceneConfig* c) { c->call_scale = 0.5; });
  run([](SceneConfig* c) { c->chunk = 13; });
  run([](SceneConfig* c) { c->chunk = 13, c->spans = true; });
  run([](SceneConfig* c) { c->chunk = 13, c->flags = KVC_ATTEND_NON_CAUSAL; });
  run([](SceneConfig* c) { c->spans = true; });
  run([](SceneConfig* c) { c->flags = KVC_ATTEND_NON_CAUSAL; });
  run([](SceneConfig* c) { c->flags = KVC_ATTEND_PAST; });
  run([](SceneConfig* c) { c->flags = KVC_ATTEND_SELF; });
  run([](SceneConfig* c) {
    c->rows[0].stream_window = 30;
    c->rows[0].stream_sinks = 4;
    c->rotate = c->alibi = c->on_read = true;
  });
  run([](SceneConfig* c) {
    std::mt19937 random(3);
    c->rows[0].parents = random_parents(c->rows[0].queries, 2, random);
    c->alibi = c->on_read = true;
  });
}

// A tree of the largest size, whose masks span several panels; and a chain of this size, which needs no mask.
TEST(Option, LargeTrees) {
  std::mt19937 random(9);
  for (int shape : {0, 1, 2}) {
    SceneConfig config;
    config.q_heads = 2;
    config.kv_heads = 1;
    config.head_dim = config.v_head_dim = 16;
    config.kv = config.q = shape == 1 ? Kind::kBf16 : Kind::kF32;
    config.rows = {{700, 760, 0, 0, random_parents(700, shape, random)}, {3, 30}};
    config.query_tile = 100;
    if (kSampling == 1 || shape == 2) run_scene(config, 2);
  }
}

// tanh alone: with one key, the LSE is the score.
TEST(Option, SoftcapIsExact) {
  for (double cap : {0.01, 1.0, 30.0, 1e4}) {
    SceneConfig config;
    config.q_heads = 256;
    config.kv_heads = 1;
    config.head_dim = config.v_head_dim = 1;
    config.rows = {{1, 1}};
    config.scale = 1.0;
    config.softcap = cap;
    Scene scene(config);
    scene.k(0, 0, 0, 0) = 1.0f;
    for (int h = 0; h < 256; ++h) {
      const double x = h < 128 ? 0.01 * (h + 1) : std::exp2(-20.0 + 0.25 * (h - 128));
      scene.q(0, h, 0) = static_cast<float>((h % 2 == 0 ? x : -x) * cap);
    }
    scene.store();
    for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
      scene.attend(test_backend(), device);
      for (int h = 0; h < 256; ++h) {
        const double score = cap * std::tanh(static_cast<double>(scene.q(0, h, 0)) / cap);
        ASSERT_NEAR(scene.lse(0, h), score, 4e-7 * std::fabs(score)) << name << " cap " << cap << " head " << h;
      }
    });
  }
}

// With a cap, logits of +-1e4 become +-cap, and not NaN. Without a cap, ALiBi hides a key that is far away, and nothing
// else.
TEST(Option, LargeLogits) {
  for (double scale : {1e4, -1e4, 1e30}) {
    for (int queries : {1, 20}) {
      SceneConfig config;
      config.scale = scale;
      config.softcap = 20.0;
      config.alibi = queries == 1;
      config.rows = {{queries, 90}};
      run_scene(config, 1, true);
    }
  }
}

// Rows that see nothing give 0 and -inf, or the attention sink alone.
TEST(Option, SinksAlone) {
  for (bool sinks : {false, true}) {
    for (int splits : {1, 3}) {
      for (int queries : {1, 30}) {
        SceneConfig config;
        config.q_heads = 6;
        config.rows = {{queries, queries}};
        config.flags = KVC_ATTEND_PAST;
        config.splits = splits;
        config.sinks = sinks;
        Scene scene(config);
        for_each_implementation(
            1,
            [&](const std::string& name, kvc_backend_device* device) {
              scene.attend(test_backend(), device);
              for (int h = 0; h < config.q_heads; ++h) {
                const double sink = h % 5 == 4 ? -INFINITY : h % 3 - 1.0;
                EXPECT_EQ(scene.lse(0, h), sinks ? sink : -INFINITY) << name << " head " << h;
                EXPECT_EQ(scene.out(0, h, 0), 0.0f) << name;
              }
            },
            true);
      }
    }
  }
}

}  // namespace
}  // namespace kvc::kernels::test
