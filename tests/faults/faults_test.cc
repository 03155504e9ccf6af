// The N-th allocation fails, for N = 1, 2, 3, ..., until the call succeeds. The result is OUT_OF_MEMORY with the state
// before the call, or success with the state after it, but never a state between. Nothing leaks.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "harness.h"
#include "interpose.h"

namespace kvt {
namespace {

CacheSpec small_spec() {
  CacheSpec spec;
  spec.page_size = 4;
  spec.max_sequences = 12;
  spec.max_batch_tokens = 96;
  spec.rollback = 4;
  spec.streaming = true;
  spec.groups = {{0, 80}, {9, 80}};
  spec.layers = {LayerSpec{0, 4, 2, 16}, LayerSpec{1, 3, 1, 16, 8, DType::kBF16, KVC_ROPE_ON_APPEND}};
  return spec;
}

// The same groups and an MLA group.
CacheSpec latent_spec() {
  CacheSpec spec = small_spec();
  spec.groups.push_back({0, 80});
  spec.layers.push_back({2, 4, 1, 24});
  spec.layers.back().latent = 16;
  spec.layers.back().scale = 0.2;
  return spec;
}

TEST(Faults, ContextCreate) {
  for (int warm = 0; warm < 2; warm++) kvc_context_destroy(make_context(3).release());
  const int64_t blocks = live_blocks(), mapped = live_mapped_bytes();
  kvc_context_config config;
  kvc_context_config_init(&config);
  config.num_threads = 3;
  int64_t successes = 0;
  for (int64_t n = 1; n < 500; n++) {
    kvc_context *context = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    fail_allocation(n);
    const kvc_status status = kvc_context_create(&config, &context, &error);
    const bool happened = failed();
    fail_allocation(0);
    if (status) {
      ASSERT_EQ(status, KVC_ERROR_OUT_OF_MEMORY) << error.message;
      ASSERT_EQ(context, nullptr);
    } else {
      successes++;
      kvc_context_destroy(context);
    }
    ASSERT_EQ(live_blocks(), blocks) << "leak at allocation " << n;
    ASSERT_EQ(live_mapped_bytes(), mapped) << "leak at allocation " << n;
    if (!happened) break;
  }
  EXPECT_GT(successes, 0);
}

TEST(Faults, CacheCreate) {
  ContextPtr context = make_context(2);
  const CacheSpec spec = latent_spec();
  BuiltConfig built(spec);
  kvc_cache_destroy(make_cache(context.get(), spec).release());
  const int64_t blocks = live_blocks(), mapped = live_mapped_bytes();
  int64_t failures = 0;
  for (int64_t n = 1; n < 2000; n++) {
    kvc_cache *cache = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    fail_allocation(n);
    const kvc_status status = kvc_cache_create(context.get(), &built.config, &cache, &error);
    const bool happened = failed();
    fail_allocation(0);
    if (status) {
      failures++;
      ASSERT_EQ(status, KVC_ERROR_OUT_OF_MEMORY) << error.message;
      ASSERT_EQ(cache, nullptr);
    } else {
      ASSERT_EQ(kvc_cache_check_invariants(cache, nullptr), KVC_OK);
      kvc_cache_destroy(cache);
    }
    ASSERT_EQ(live_blocks(), blocks) << "leak at allocation " << n;
    ASSERT_EQ(live_mapped_bytes(), mapped) << "leak at allocation " << n;
    if (!happened) break;
  }
  EXPECT_GT(failures, 0) << "nothing was made to fail";
}

TEST(Faults, GraphCreate) {
  ContextPtr context = make_context(2);
  const CacheSpec spec = latent_spec();
  CachePtr cache = make_cache(context.get(), spec);
  kvc_graph_config config;
  kvc_graph_config_init(&config);
  int64_t failures = 0, blocks = live_blocks(), mapped = live_mapped_bytes();
  for (int64_t n = 1; n < 500; n++) {
    kvc_forward graph = 0;
    kvc_error error = KVC_ERROR_INIT;
    fail_allocation(n);
    const kvc_status status = kvc_graph_create(cache.get(), &config, &graph, &error);
    const bool happened = failed();
    fail_allocation(0);
    ASSERT_EQ(status, happened ? KVC_ERROR_OUT_OF_MEMORY : KVC_OK) << error.message;
    ASSERT_EQ(graph != 0, !happened);
    if (!happened) {
      ASSERT_EQ(kvc_graph_destroy(cache.get(), graph, nullptr), KVC_OK);
    }
    ASSERT_EQ(live_blocks(), blocks) << "leak at allocation " << n;
    ASSERT_EQ(live_mapped_bytes(), mapped) << "leak at allocation " << n;
    if (!happened) break;
    failures++;
  }
  EXPECT_GT(failures, 10) << "nothing was made to fail";
}

struct Prepared {
  CacheSpec spec = small_spec();
  ContextPtr context = make_context(1);
  CachePtr owner = make_cache(context.get(), spec);
  kvc_cache *cache = owner.get();
  kvc_seq seqs[3] = {};
  uint64_t digest() {
    uint64_t d = 0;
    EXPECT_EQ(kvc_cache_digest(cache, &d, nullptr), KVC_OK);
    return d;
  }
  std::vector<Tensor> kv(int layer, int64_t tokens) {
    const LayerSpec &l = spec.layers[layer];
    std::vector<Tensor> t;
    t.emplace_back(DType::kF32, std::vector<int64_t>{tokens, l.hkv, l.d});
    t.emplace_back(DType::kF32, std::vector<int64_t>{tokens, l.hkv, l.v_dim()});
    t.emplace_back(DType::kF32, std::vector<int64_t>{tokens, l.hq, l.d});
    t.emplace_back(DType::kF32, std::vector<int64_t>{tokens, l.hq, l.v_dim()});
    for (Tensor &x : t) {
      for (int64_t a = 0; a < tokens; a++) {
        for (int64_t h = 0; h < x.dim(1); h++) {
          for (int64_t i = 0; i < x.dim(2); i++) x.set(a, h, i, static_cast<float>((a * 7 + h * 3 + i) % 11) / 11);
        }
      }
    }
    return t;
  }
  void check() { EXPECT_EQ(kvc_cache_check_invariants(cache, nullptr), KVC_OK); }
};

// begin, append, attend, end, fork, truncate, add, remove, export, import: each allocation of each fails in turn, on a
// fresh cache without warm buffers. The state is that before or after the call.
TEST(Faults, EveryCallOfAScript) {
  for (int threads : {1, 3}) {
    const int64_t outside = live_blocks();
    {
      Prepared p;
      if (threads != 1) {
        p.owner.reset();
        p.context = make_context(threads);
        p.owner = make_cache(p.context.get(), p.spec);
        p.cache = p.owner.get();
      }
      auto stays = [&](const char *what, const std::function<kvc_status(kvc_error *)> &call,
                       const std::function<void()> &undo) {
        // A call that succeeds before the last N is reverted, so the next try starts from the same lengths.
        for (int64_t n = 1; n < 2000; n++) {
          const uint64_t before = p.digest();
          kvc_error error = KVC_ERROR_INIT;
          fail_allocation(n);
          const kvc_status status = call(&error);
          const bool happened = failed();
          fail_allocation(0);
          p.check();
          if (status) {
            ASSERT_EQ(status, KVC_ERROR_OUT_OF_MEMORY) << what << ": " << error.message;
            ASSERT_EQ(p.digest(), before) << what << " failed at allocation " << n << " and changed the state";
            continue;
          }
          if (!happened) return;
          undo();
        }
        FAIL() << what;
      };
      stays(
          "add", [&](kvc_error *e) { return kvc_seq_add(p.cache, 3, p.seqs, e); },
          [&] { kvc_seq_remove(p.cache, 3, p.seqs, nullptr); });
      kvc_forward f = 0;
      const int32_t lengths[3] = {70, 5, 1};
      kvc_batch batch;
      kvc_batch_init(&batch);
      batch.sequences = p.seqs;
      batch.append_lengths = lengths;
      batch.num_sequences = 3;
      stays(
          "begin", [&](kvc_error *e) { return kvc_forward_begin(p.cache, &batch, nullptr, &f, e); },
          [&] { kvc_forward_abort(p.cache, f, nullptr); });
      auto restart = [&] {
        kvc_forward_abort(p.cache, f, nullptr);
        ASSERT_EQ(kvc_forward_begin(p.cache, &batch, nullptr, &f, nullptr), KVC_OK);
      };
      auto layer0 = p.kv(0, 76), layer1 = p.kv(1, 76);
      kvc_append_args append;
      kvc_append_args_init(&append);
      append.k = layer0[0].dl();
      append.v = layer0[1].dl();
      stays("append", [&](kvc_error *e) { return kvc_forward_append(p.cache, f, 0, &append, e); }, restart);
      kvc_attend_args attend;
      kvc_attend_args_init(&attend);
      attend.q = layer1[2].dl();
      attend.k = layer1[0].dl();
      attend.v = layer1[1].dl();
      attend.out = layer1[3].dl();
      stays(
          "attend", [&](kvc_error *e) { return kvc_forward_attend(p.cache, f, 1, &attend, e); },
          [&] {
            restart();
            ASSERT_EQ(kvc_forward_append(p.cache, f, 0, &append, nullptr), KVC_OK);
          });
      stays(
          "info",
          [&](kvc_error *e) {
            kvc_forward_info info;
            kvc_forward_info_init(&info);
            return kvc_forward_get_info(p.cache, f, &info, e);
          },
          [] {});
      stays(
          "describe",
          [&](kvc_error *e) {
            char text[4096];
            return kvc_forward_describe(p.cache, f, text, 4096, nullptr, e);
          },
          [] {});
      stays("end", [&](kvc_error *e) { return kvc_forward_end(p.cache, f, e); }, [] {});
      kvc_seq children[2] = {};
      const kvc_seq parents[2] = {p.seqs[0], p.seqs[0]};
      const int64_t positions[2] = {68, -1};
      stays(
          "fork", [&](kvc_error *e) { return kvc_seq_fork(p.cache, 2, parents, positions, children, nullptr, e); },
          [&] { kvc_seq_remove(p.cache, 2, children, nullptr); });
      const int64_t cut[1] = {66};
      stays("truncate", [&](kvc_error *e) { return kvc_seq_truncate(p.cache, 1, p.seqs, cut, e); }, [] {});
      const int64_t sinks[1] = {3}, window[1] = {70}, none[1] = {0};
      stays(
          "set_streaming", [&](kvc_error *e) { return kvc_seq_set_streaming(p.cache, 1, p.seqs, sinks, window, 0, e); },
          [&] { kvc_seq_set_streaming(p.cache, 1, p.seqs, none, none, 0, nullptr); });
      kvc_export_args exports;
      kvc_export_args_init(&exports);
      Managed k, v;
      stays(
          "export",
          [&](kvc_error *e) {
            DLManagedTensorVersioned *kt = nullptr, *vt = nullptr;
            const kvc_status status = export_kv(p.cache, p.seqs[0], &exports, &kt, &vt, nullptr, e);
            if (status && (kt || vt)) ADD_FAILURE() << "outputs of a refused export";
            k.reset(kt);
            v.reset(vt);
            return status;
          },
          [] {});
      stays(
          "export pool",
          [&](kvc_error *e) {
            DLManagedTensorVersioned *t = nullptr;
            const kvc_status status = kvc_cache_export_pool(p.cache, 0, KVC_POOL_K, 0, &t, nullptr, e);
            k.reset(t);
            return status;
          },
          [] {});
      auto import0 = p.kv(0, 9), import1 = p.kv(1, 9);
      const DLTensor *ks[2] = {import0[0].dl(), import1[0].dl()}, *vs[2] = {import0[1].dl(), import1[1].dl()};
      kvc_import_args imports;
      kvc_import_args_init(&imports);
      imports.num_layers = 2;
      imports.k = ks;
      imports.v = vs;
      const int64_t five = 5;
      stays(
          "import", [&](kvc_error *e) { return kvc_seq_import(p.cache, p.seqs[1], &imports, nullptr, e); },
          [&] { kvc_seq_truncate(p.cache, 1, &p.seqs[1], &five, nullptr); });
      kvc_stats stats;
      kvc_stats_init(&stats);
      stays("stats", [&](kvc_error *e) { return kvc_cache_stats(p.cache, -1, &stats, e); }, [] {});
      stays("remove", [&](kvc_error *e) { return kvc_seq_remove(p.cache, 2, children, e); }, [] {});
      stays("clear", [&](kvc_error *e) { return kvc_cache_clear(p.cache, e); }, [] {});
      ASSERT_EQ(kvc_cache_stats(p.cache, -1, &stats, nullptr), KVC_OK);
      EXPECT_EQ(stats.pages_used, 0);
    }
    EXPECT_LE(live_blocks() - outside, threads == 1 ? 0 : 8) << "leak (of a thread's own memory at most a little)";
  }
}

// A commit, whose copies were planned or not. K, V and lengths are as before or as after it.
TEST(Faults, CommitOfTrees) {
  Options options;
  options.seed = 17;
  options.check_digest = false;
  CacheSpec spec = small_spec();
  spec.max_tree_nodes = 40;
  EXPECT_EQ(mismatch_of([&] {
              Harness h(spec, options);
              std::vector<int> s;
              h.add(3, &s);
              h.step({{s[0], 21}, {s[1], 6}, {s[2], 1}});
              std::vector<int32_t> odd{-1};  // a chain of every second node, so every node of its path moves
              for (int32_t i = 1; i < 29; i++) odd.push_back(i % 2 ? i - 2 < 0 ? -1 : i - 2 : 0);
              h.step({{s[0], 29, 0, odd}, {s[1], 29, 0, odd}, {s[2], 29, 0, odd}});
              kvc_seq ids[3] = {h.id(s[0]), h.id(s[1]), h.id(s[2])};
              const int32_t leaves[3] = {27, 14, -1};
              for (int64_t n : {1, 2}) {  // the list of all copies grows, then that of one layer
                const uint64_t before = h.digest();
                kvc_error error = KVC_ERROR_INIT;
                fail_allocation(n);
                const kvc_status status = kvc_seq_commit(h.cache(), 3, ids, leaves, nullptr, &error);
                const bool happened = failed();
                fail_allocation(0);
                if (!happened) throw Mismatch("nothing was made to fail");
                if (status != KVC_ERROR_OUT_OF_MEMORY || h.digest() != before) throw Mismatch(error.message);
                h.check_all();
              }
              // The model commits what the library still has: nothing moved.
              if (h.commit({s[0], s[1], s[2]}, {27, 14, -1})) throw Mismatch("the commit was refused");
              h.check_all();
            }),
            "");
}

// A new window that frees pages at once. Its settings and pages are as before or as after.
TEST(Faults, StreamingWindows) {
  Options options;
  options.seed = 23;
  options.check_digest = false;
  EXPECT_EQ(mismatch_of([&] {
              Harness h(small_spec(), options);
              std::vector<int> s;
              h.add(2, &s);
              h.step({{s[0], 60}, {s[1], 7}});
              const kvc_seq ids[2] = {h.id(s[0]), h.id(s[1])};
              const int64_t sinks[2] = {2, 0}, windows[2] = {20, 9};
              const uint64_t before = h.digest();
              kvc_error error = KVC_ERROR_INIT;
              fail_allocation(1);
              const kvc_status status = kvc_seq_set_streaming(h.cache(), 2, ids, sinks, windows, 0, &error);
              const bool happened = failed();
              fail_allocation(0);
              if (!happened) throw Mismatch("nothing was made to fail");
              if (status != KVC_ERROR_OUT_OF_MEMORY || h.digest() != before) throw Mismatch(error.message);
              h.check_all();
              if (h.set_streaming(s, {2, 0}, {20, 9})) throw Mismatch("the window was refused");
              h.step({{s[0], 30}, {s[1], 30}});
              h.check_all();
              int f = -1;  // aborted, and out of pages in the middle of a batch: the holes stay as they are
              h.begin({{s[0], 30}, {s[1], 30}}, &f);
              h.run_layers(f);
              h.abort(f);
              const int plain = h.add();
              while (h.begin({{plain, 60}}, &f) == KVC_OK) {
                h.run_layers(f);
                h.end(f);
              }
              if (h.begin({{s[1], 1}, {s[0], 1}, {plain, 60}}, &f) != KVC_ERROR_OUT_OF_PAGES) {
                throw Mismatch("there are pages left");
              }
              h.check_all();
            }),
            "");
}

// No thread can be started. The caller computes alone, or the call returns a status. Nothing else happens.
TEST(Faults, NoThreads) {
  CacheSpec spec;
  spec.max_batch_tokens = 512;
  spec.groups = {{0, 100}};
  spec.layers = {LayerSpec{0, 8, 2, 64}};
  Options options;
  options.threads = 4;
  options.rows_checked = 8;
  Harness h(spec, options);
  const int s = h.add();
  count_from_now();
  fail_threads(true);
  std::string mismatch = mismatch_of([&] {
    int f = -1;
    h.begin({{s, 400}}, &f);
    h.attend_layer(f, 0);
    h.end(f);
    h.check_contents(s);
  });
  fail_threads(false);
  EXPECT_EQ(mismatch, "");
  mismatch = mismatch_of([&] {
    int f = -1;
    h.begin({{s, 400}}, &f);
    h.attend_layer(f, 0);
    h.end(f);
    h.check_all();
  });
  EXPECT_EQ(mismatch, "");
}

// Destroying a cache that made every call leaves no memory.
TEST(Faults, NothingLeaks) {
  auto everything = [] {
    Options options;
    options.seed = 5;
    Harness h(small_spec(), options);
    std::vector<int> s, children;
    h.add(4, &s);
    h.step({{s[0], 40}, {s[1], 3}});
    const std::vector<int64_t> positions{38, -1};
    h.fork({s[0], s[1]}, &positions, &children);
    int f = -1, g = -1;
    h.begin({{children[0], 9}, {s[1], 2}}, &f);
    h.run_layers(f);
    h.remove({children[0]});
    h.end(f);
    h.begin({{s[2], 20}}, &g);
    h.run_layer(g, 1);
    h.abort(g);
    h.begin({{s[3], 20}}, &g);  // this forward stays open
    h.import(s[2], 7, true);
    h.set_streaming({s[0]}, {2}, {12});
    h.step({{s[0], 3, 0, {-1, -1, 0}}, {s[1], 2, 0, {-1, 0}}});
    h.commit({s[0]}, {2});
    h.check_all();
  };
  everything();
  const int64_t blocks = live_blocks(), mapped = live_mapped_bytes();
  for (int i = 0; i < 3; i++) everything();
  EXPECT_EQ(live_blocks(), blocks);
  EXPECT_EQ(live_mapped_bytes(), mapped);
}

}  // namespace
}  // namespace kvt
