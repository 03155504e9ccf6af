// Gaps, second half: aborted steps, shared pages, removal in use, deep forks, poisoned slots, large logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gaps.h"

namespace kvt {
namespace {

TEST(Gaps, AbortedStepAndDoubleAbort) {
  for (int page : {1, 3, 16}) {
    EXPECT_PLAYS({
      Play p(small_spec(page, 200 / page + 10, 6, 8), Options{});
      p.step({{0, 20}, {1, 30}});
      p.fork({{2, 1, kEnd}});
      p.drop({{2, 5}, {1, 3}});  // both end inside shared pages
      Harness &h = p.harness();
      for (int layers = 0; layers <= 3; layers++) {
        int forward = -1;
        const std::vector<int64_t> used{h.used(0), h.used(1)};
        h.begin({{p.handle(2), 9}, {p.handle(1), 11}, {p.handle(0), 40}}, &forward);
        const kvc_forward id = h.forward_id(forward);
        for (int l = 0; l < layers; l++) h.run_layer(forward, l);
        h.abort(forward);
        if (used != std::vector<int64_t>{h.used(0), h.used(1)}) throw Mismatch("model: abort");
        for (int again = 0; again < 2; again++) {
          if (kvc_forward_abort(h.cache(), id, nullptr) != KVC_ERROR_STALE_ID) throw Mismatch("double abort");
        }
        p.verify_all();
      }
      p.step({{2, 1}, {1, 1}, {0, 1}});
      p.verify_all();
    });
  }
}

// Two siblings that end inside one shared page append in one batch, or in two open forwards. Neither may write to the
// page while an abort could still restore it.
TEST(Gaps, SiblingsTruncatedIntoOneSharedPage) {
  for (bool first_aborts : {false, true}) {
    for (bool second_aborts : {false, true}) {
      EXPECT_PLAYS({
        Play p(small_spec(16, 20, 40), Options{});
        p.step({{0, 31}});
        p.fork({{1, 0, kEnd}});
        p.step({{0, 1}});
        p.fork({{2, 0, kEnd}});
        p.drop({{0, 2}, {2, 9}});
        Harness &h = p.harness();
        int first = -1;
        int second = -1;
        h.begin({{p.handle(0), 3}}, &first);
        h.begin({{p.handle(2), 12}}, &second);
        h.run_layers(second);
        h.run_layers(first);
        first_aborts ? h.abort(first) : h.end(first);
        p.verify(0);
        second_aborts ? h.abort(second) : h.end(second);
        p.verify_all();
        // The same in one batch.
        p.drop({{0, static_cast<int32_t>(h.length(p.handle(0)) - 20)}});
        p.fork({{3, 0, 16}, {4, 0, kEnd}});
        int both = -1;
        h.begin({{p.handle(2), 5}, {p.handle(0), 5}}, &both);
        h.run_layers(both);
        h.abort(both);
        p.verify_all();
        p.step({{0, 5}, {2, 5}, {4, 5}});
        p.verify_all();
      });
    }
  }
}

TEST(Gaps, RemoveWhileInUse) {
  for (bool abort : {false, true}) {
    EXPECT_PLAYS({
      Play p(small_spec(3, 60, 6), Options{});
      p.step({{0, 20}, {1, 13}});
      p.fork({{2, 0, kEnd}});
      Harness &h = p.harness();
      int forward = -1;
      const int s = p.handle(0);
      const kvc_seq id = h.id(s);
      h.begin({{s, 4}, {p.handle(1), 2}}, &forward);
      h.run_layer(forward, 1);
      h.remove({s});
      h.check_stale(id);  // stale for every later call
      if (kvc_seq_remove(h.cache(), 1, &id, nullptr) != KVC_ERROR_STALE_ID) throw Mismatch("removed twice");
      h.check_stats();  // its pages still count as used
      std::vector<int> fresh;
      h.add(1, &fresh);
      h.step({{fresh[0], 7}});  // takes pages, but none that is in use
      h.run_layers(forward);    // the forward continues, and its results are right
      abort ? h.abort(forward) : h.end(forward);
      h.check_all();
      h.check_stale(id);
    });
  }
}

TEST(Gaps, DeepForkChain) {
  constexpr int kDepth = 400;  // the checks after each call grow with it
  for (int page : {3, 16}) {
    EXPECT_PLAYS({
      CacheSpec spec = small_spec(page, 0, 0);
      spec.max_sequences = kDepth + 1;
      spec.groups = {{0, page == 3 ? 4000 : 3000}, {9, 4000}};
      spec.layers = {LayerSpec{0, 1, 1, 2}, LayerSpec{1, 1, 1, 2}};
      spec.rollback = 2;
      Options options;
      options.poison = false;
      Play p(spec, options);
      p.step({{0, 5}});
      for (int i = 1; i <= kDepth; i++) {
        p.harness().check_invariants();
        const int child = p.harness().fork(p.handle(i - 1));
        p.harness().step({{child, 1 + i % 2}});
        p.harness().check_tables(child);
        if (i % 20 == 0) p.harness().check_contents(child);
        // Map the child as sequence i.
        p.adopt(i, child);
      }
      p.verify(kDepth);
      std::vector<int> order(kDepth + 1);
      std::iota(order.begin(), order.end(), 0);
      std::mt19937_64 random(5);
      std::shuffle(order.begin(), order.end(), random);
      for (size_t i = 0; i < order.size(); i++) {
        p.remove(order[i]);
        if (i % 40 == 0) {
          const std::vector<int> left = p.sequences();
          if (!left.empty()) p.verify(left[left.size() / 2]);
        }
      }
      p.expect_empty();
    });
  }
}

// Slots in which nothing was stored still have their NaN, and slots with tokens do not.
TEST(Gaps, PoisonedSlotsStayPoisoned) {
  for (int page : {3, 16}) {
    EXPECT_PLAYS({
      const int64_t pages = 40;
      Play p(small_spec(page, pages, 5), Options{});
      p.step({{0, 20}, {1, 7}});
      p.step({{1, 1}, {0, 9}, {2, 2}});
      Harness &h = p.harness();
      for (size_t layer = 0; layer < h.spec().layers.size(); layer++) {
        const int group = h.spec().layers[layer].group;
        std::vector<std::vector<int>> stored(pages, std::vector<int>(page, 0));
        for (int s : p.sequences()) {
          int32_t ids[64];
          int64_t count = 0;
          const kvc_seq id = h.id(p.handle(s));
          if (kvc_seq_pages(h.cache(), id, group, ids, 64, &count, nullptr)) throw Mismatch("pages");
          for (int64_t t = 0; t < h.length(p.handle(s)); t++) {
            if (ids[t / page] >= 0) stored[ids[t / page]][t % page] = 1;
          }
        }
        for (int32_t pool : {KVC_POOL_K, KVC_POOL_V}) {
          DLManagedTensorVersioned *view = nullptr;
          if (kvc_cache_export_pool(h.cache(), static_cast<int32_t>(layer), pool, 0, &view, nullptr, nullptr)) {
            throw Mismatch("export_pool");
          }
          Managed owner(view);
          if (!(view->flags & DLPACK_FLAG_BITMASK_READ_ONLY)) throw Mismatch("view is not read-only");
          for (int64_t i = 0; i < pages; i++) {
            for (int64_t slot = 0; slot < page; slot++) {
              const bool nan = std::isnan(at(view->dl_tensor, {i, 0, slot, 0}));
              if (stored[i][slot] && nan) throw Mismatch("a stored slot is NaN");
              // A freed page of the sliding group keeps its contents. The full group frees nothing.
              if (group == 0 && !stored[i][slot] && !nan) throw Mismatch("an unused slot was written");
            }
          }
        }
      }
    });
  }
}

TEST(Gaps, StatesOfLargeLogits) {
  // Logits of +-1e4: the output is finite, and the largest logit has all the weight.
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    CacheSpec spec;
    spec.max_batch_tokens = 128;
    spec.groups = {{0, 32}};
    spec.layers = {LayerSpec{0, 2, 1, 16, 0, dtype, KVC_ROPE_NONE, 0, 0, 1.0}};
    ContextPtr context = make_context(2);
    CachePtr cache = make_cache(context.get(), spec);
    kvc_seq seq = 0;
    ASSERT_EQ(kvc_seq_add(cache.get(), 1, &seq, nullptr), KVC_OK);
    const int32_t n = 100;
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq;
    batch.append_lengths = &n;
    batch.num_sequences = 1;
    kvc_forward f = 0;
    ASSERT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &f, nullptr), KVC_OK);
    Tensor q(DType::kF32, {n, 2, 16}), k(DType::kF32, {n, 1, 16}), v(DType::kF32, {n, 1, 16}),
        out(DType::kF32, {n, 2, 16}), lse(DType::kF32, {n, 2});
    for (int t = 0; t < n; t++) {
      for (int i = 0; i < 16; i++) {
        k.set(t, 0, i, i ? 0.0f : t == 50 ? 128.0f : -128.0f);
        v.set(t, 0, i, i == t % 16 ? 1.0f : 0.0f);
        for (int h = 0; h < 2; h++) q.set(t, h, i, i ? 0.0f : h ? -80.0f : 80.0f);
      }
    }
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = q.dl();
    args.k = k.dl();
    args.v = v.dl();
    args.out = out.dl();
    args.lse = lse.dl();
    ASSERT_EQ(kvc_forward_attend(cache.get(), f, 0, &args, nullptr), KVC_OK);
    for (int t = 0; t < n; t++) {
      for (int h = 0; h < 2; h++) {
        double sum = 0;
        for (int i = 0; i < 16; i++) {
          ASSERT_TRUE(std::isfinite(out.at(t, h, i)));
          sum += out.at(t, h, i);
        }
        EXPECT_NEAR(sum, 1.0, 1e-5);
        ASSERT_TRUE(std::isfinite(lse.at(t, h)));
      }
      if (t >= 50) {
        EXPECT_EQ(out.at(t, 0, 50 % 16), 1.0f);
        EXPECT_NEAR(lse.at(t, 0), 10240.0f, 0.01f);
      }
      // If all keys of a row have the logit -10240, the output is the mean of their values.
      if (t < 50) {
        EXPECT_NEAR(lse.at(t, 0), -10240.0 + std::log(t + 1.0), 0.01);
      }
    }
    ASSERT_EQ(kvc_forward_end(cache.get(), f, nullptr), KVC_OK);
  }
}

}  // namespace
}  // namespace kvt
