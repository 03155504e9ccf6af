// The mask, exactly: spikes that show any wrong key, rows that see nothing, and keys that are NaN for later queries.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "scene.h"

namespace kvc::kernels::test {
namespace {

// The key at `spike` has a logit of +30 and a one-hot V. The outputs of queries that see it show it, and others do not.
void check_spike(const SceneConfig& config, int spike) {
  Scene scene(config);
  for (int t = 0; t < scene.num_tokens(); ++t) {
    for (int h = 0; h < config.q_heads; ++h) {
      for (int d = 0; d < config.head_dim; ++d) scene.q(t, h, d) = d == 0 ? 30.0f : 0.0f;
    }
  }
  for (int p = 0; p < config.rows[0].kv_length; ++p) {
    for (int h = 0; h < config.kv_heads; ++h) {
      for (int d = 0; d < config.head_dim; ++d) scene.k(0, p, h, d) = d == 0 && p == spike ? 1.0f : 0.0f;
      for (int d = 0; d < config.v_head_dim; ++d) scene.v(0, p, h, d) = d == 1 && p == spike ? 1.0f : 0.0f;
    }
  }
  scene.store();
  const auto check = [&](const std::string& name, kvc_backend_device* device) {
    scene.attend(test_backend(), device);
    for (int t = 0; t < scene.num_tokens(); ++t) {
      const int p = scene.position(t);
      const bool seen = scene.sees(t, spike);
      for (int h = 0; h < config.q_heads; ++h) {
        ASSERT_NEAR(scene.out(t, h, 1), seen ? 1.0 : 0.0, seen ? 1e-2 : 0.0)
            << name << " " << config.describe() << ": query at " << p << " head " << h << ", spike at " << spike;
      }
    }
  };
  for_each_implementation(1, check, true);
}

TEST(Mask, Spikes) {
  for (Kind kind : {Kind::kF32, Kind::kBf16}) {
    for (int window : {0, 1, 2, 19, 32}) {
      for (int queries : {1, 3, 37}) {
        SceneConfig config;
        config.scale = 1.0;
        config.head_dim = config.v_head_dim = 32;
        config.kv_heads = 1;
        config.q_heads = 3;
        config.page_size = 8;
        config.q = config.kv = kind;
        config.window = window;
        config.rows = {{queries, 101}};
        if (static_cast<unsigned>(window + queries) % kSampling > 1) continue;
        const int first = 101 - queries;
        std::vector<int> spikes;
        for (int p : {first, first + queries / 2, 100}) {
          const int w = window > 0 ? window : p + 1;
          for (int s : {p - w, p - w + 1, p - 1, p, p + 1}) spikes.push_back(s);
          for (int edge : {p / 8 * 8, p / 8 * 8 - 1, p / 16 * 16, p / 16 * 16 - 1}) spikes.push_back(edge);
        }
        for (int s : spikes) {
          if (s >= 0 && s <= 100 && (window == 0 || s > first - window)) check_spike(config, s);
        }
      }
    }
  }
}

// Every key of a row as a spike: chunk edges, span edges, sinks and windows, relations in a tree.
TEST(Mask, SpikesOfEveryMask) {
  const std::vector<int> tree = {-1, 0, 0, 1, 1, 2, -1, 6, 6, 3, 9, 2, 5, 12};
  const auto run = [&](const std::function<void(SceneConfig*)>& change) {
    for (int queries : {2, 14}) {
      for (Kind kind : {Kind::kF32, Kind::kBf16}) {
        SceneConfig config;
        config.scale = 1.0;
        config.head_dim = config.v_head_dim = 16;
        config.kv_heads = 1;
        config.q_heads = 2;
        config.page_size = 8;
        config.q = config.kv = kind;
        config.rows = {{queries, 53}};
        change(&config);
        const int nodes = config.rows[0].parents.empty() ? 53 : 53 - queries;  // the first key that is a node
        for (int spike = 0; spike < 53; ++spike) {
          if (spike >= nodes || static_cast<unsigned>(spike) % kSampling == 0) check_spike(config, spike);
        }
      }
    }
  };
  for (int chunk : {1, 4, 13, 52, 53}) run([&](SceneConfig* c) { c->chunk = chunk; });
  run([](SceneConfig* c) { c->spans = true; });
  run([](SceneConfig* c) { c->spans = true, c->window = 9; });
  run([](SceneConfig* c) { c->flags = KVC_ATTEND_NON_CAUSAL; });
  run([](SceneConfig* c) { c->flags = KVC_ATTEND_PAST; });
  run([](SceneConfig* c) { c->flags = KVC_ATTEND_SELF; });
  for (int sinks : {0, 4, 17}) {
    run([&](SceneConfig* c) { c->rows[0].stream_window = 18, c->rows[0].stream_sinks = sinks; });
    run([&](SceneConfig* c) { c->rows[0].stream_window = 60, c->rows[0].stream_sinks = sinks; });
  }
  run([&](SceneConfig* c) { c->rows[0].parents = tree; });
  run([&](SceneConfig* c) { c->rows[0].parents = tree, c->window = 3; });
  run([&](SceneConfig* c) { c->rows[0].parents = tree, c->chunk = 41; });
  run([&](SceneConfig* c) { c->rows[0].parents = tree, c->flags = KVC_ATTEND_SELF; });
}

// Spikes at item edges: each key belongs to exactly one split.
TEST(Mask, SpikesAtSplits) {
  for (int splits : {2, 3, 7}) {
    SceneConfig config;
    config.scale = 1.0;
    config.splits = splits;
    config.rows = {{2, 101}};
    for (int s = 0; s < splits; ++s) {
      for (int spike : {101 * s / splits - 1, 101 * s / splits}) {
        if (spike >= 0) check_spike(config, spike);
      }
    }
  }
}

// NaN in K and V of a token must not reach the queries before it.
TEST(Mask, LaterTokensMayBeNaN) {
  for (Kind kind : {Kind::kF32, Kind::kF16, Kind::kBf16}) {
    for (int queries : {2, 3, 16, 41}) {
      for (int window : {0, 5}) {
        SceneConfig config;
        config.q_heads = 3;
        config.kv_heads = 1;
        config.q = config.kv = kind;
        config.window = window;
        config.softcap = window > 0 ? 4.0 : 0.0;
        config.alibi = queries % 2 == 0;
        config.rows = {{queries, 60}};
        const int poisoned = 60 - queries / 2;
        Scene clean(config), scene(config);
        clean.store();
        for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
          clean.attend(test_backend(), device);
          scene.poison_key(0, poisoned);
          scene.attend(test_backend(), device);
          for (int t = 0; t < scene.num_tokens(); ++t) {
            const int p = scene.position(t);
            const bool seen = poisoned <= p && (window == 0 || poisoned > p - window);
            for (int h = 0; h < config.q_heads; ++h) {
              for (int d = 0; d < config.v_head_dim; ++d) {
                ASSERT_EQ(std::isnan(scene.out(t, h, d)), seen) << name << " " << config.describe() << " token " << t;
                if (!seen) {
                  ASSERT_EQ(scene.out(t, h, d), clean.out(t, h, d)) << name << " " << config.describe();
                }
              }
            }
          }
          scene.store();
        });
      }
    }
  }
}

// Queries around the beginning of tiles of 64 keys on tensor cores, and windows that begin there.
TEST(Mask, SpikesAtEdgesOfTiles) {
  for (int window : {0, 63, 64}) {
    for (int queries : {3, 4, 5, 20}) {
      SceneConfig config;
      config.scale = 1.0;
      config.head_dim = config.v_head_dim = 32;
      config.kv_heads = 1;
      config.q_heads = 2;
      config.q = config.kv = Kind::kBf16;
      config.window = window;
      config.rows = {{queries, 130}};
      for (int end : {66, 130}) {
        config.rows[0].kv_length = end;
        for (int spike : {end - 4, end - 3, end - 2, end - 1, end - 66, end - 65}) {
          if (spike >= 0) check_spike(config, spike);
        }
      }
    }
  }
}

// Two chains of nodes. The first node of the second chain is NaN, and only its own descendants see it.
TEST(Mask, NodesOfOtherBranchesMayBeNaN) {
  for (Kind kind : {Kind::kF32, Kind::kF16, Kind::kBf16, Kind::kI8}) {
    for (int nodes : {3, 8, 41}) {
      for (int committed : {0, 33}) {
        SceneConfig config;
        config.q_heads = 3;
        config.kv_heads = 1;
        config.q = kind == Kind::kI8 ? Kind::kBf16 : kind;
        config.kv = kind;
        config.rows = {{nodes, committed + nodes}};
        for (int i = 0; i < nodes; ++i) config.rows[0].parents.push_back(i < 2 ? -1 : i - 2);
        Scene clean(config), scene(config);
        clean.store();
        for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
          clean.attend(test_backend(), device);
          scene.poison_key(0, committed + 1);
          scene.attend(test_backend(), device);
          for (int t = 0; t < nodes; ++t) {
            for (int h = 0; h < config.q_heads; ++h) {
              for (int d = 0; d < config.v_head_dim; ++d) {
                const bool seen = t % 2 == 1;
                ASSERT_EQ(std::isnan(scene.out(t, h, d)), seen) << name << " " << config.describe() << " node " << t;
                if (!seen) {
                  ASSERT_EQ(scene.out(t, h, d), clean.out(t, h, d)) << name << " node " << t;
                }
              }
            }
          }
          scene.store();
        });
      }
    }
  }
}

// Splits that are wholly outside a row's window are empty, and so are all splits of an item without keys.
TEST(Mask, EmptySplits) {
  for (int queries : {1, 30}) {
    SceneConfig config;
    config.rows = {{queries, 200}};
    config.window = 3;
    config.splits = 7;
    Scene scene(config);
    for_each_implementation(3, [&](const std::string& name, kvc_backend_device* device) {
      scene.attend(test_backend(), device);
      scene.check(name);
    });
  }
}

TEST(Mask, RowsThatSeeNothing) {
  for (int splits : {1, 3}) {
    for (int queries : {1, 30}) {
      SceneConfig config;
      config.rows = {{queries, 64}};
      config.splits = splits;
      Scene scene(config);
      scene.forget_keys();
      for_each_implementation(
          1,
          [&](const std::string&, kvc_backend_device* device) {
            scene.attend(test_backend(), device);
            for (int t = 0; t < queries; ++t) {
              for (int h = 0; h < config.q_heads; ++h) {
                EXPECT_EQ(scene.lse(t, h), -INFINITY);
                for (int d = 0; d < config.v_head_dim; ++d) ASSERT_EQ(scene.out(t, h, d), 0.0f);
              }
            }
          },
          true);
    }
  }
}

}  // namespace
}  // namespace kvc::kernels::test
