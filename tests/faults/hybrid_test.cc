// Steps of a cache with a group of every kind. The N-th allocation of each call fails, for N = 1, 2, 3, ..., on a fresh
// cache. Digest and invariants are those before the call, and the call works afterwards.
#include "hybrid.h"

#include <gtest/gtest.h>

#include <functional>

#include "interpose.h"

namespace kvt {
namespace {

constexpr int kNope = 6, kOut = 5;  // dims of a head that up-projections give

class Script {
 public:
  explicit Script(int threads) : context_(make_context(threads)) {
    EXPECT_EQ(kvc_cache_create(context_.get(), &hybrid_.config, &cache_, &error_), KVC_OK) << error_.message;
    owner_.reset(cache_);
    for (Tensor *t : {&q_, &k_, &row_, &w_uk_, &w_uv_, &q_nope_, &state_}) {
      std::fill(t->bytes().begin(), t->bytes().end(), uint8_t{0});
    }
  }

  // Fails each allocation of a call once. A call that still succeeds is reverted, if that is possible.
  void call(const std::string &what, const std::function<kvc_status(kvc_error *)> &run,
            const std::function<void()> &undo = nullptr) {
    if (testing::Test::HasFatalFailure()) return;
    for (int64_t n = 1; n < 1000; n++) {
      const uint64_t before = digest();
      fail_allocation(n);
      const kvc_status status = run(&error_);
      const bool happened = failed();
      fail_allocation(0);
      ASSERT_EQ(kvc_cache_check_invariants(cache_, &error_), KVC_OK) << what << ": " << error_.message;
      if (status == KVC_OK && (!happened || !undo)) return;
      if (status == KVC_OK) {
        undo();
        continue;
      }
      failures++;
      ASSERT_EQ(status, KVC_ERROR_OUT_OF_MEMORY) << what << ": " << error_.message;
      ASSERT_EQ(digest(), before) << what << " failed at allocation " << n << " and changed the state";
    }
    FAIL() << what;
  }

  void add() {
    call("add", [&](kvc_error *e) { return kvc_seq_add(cache_, 2, seqs_, e); });
  }
  // One step of two rows, in every layer that it concerns. first_node: its tokens from there on are nodes of a chain.
  void step(const std::string &what, int32_t length, int32_t encoder_group, int32_t first_node = -1) {
    const int32_t lengths[2] = {length, length};
    std::vector<int32_t> parents;
    for (int row = 0; row < 2; row++) {
      for (int32_t i = 0; i < length; i++) parents.push_back(first_node + i - 1);
    }
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = seqs_;
    batch.append_lengths = lengths;
    batch.num_sequences = 2;
    batch.encoder_group = encoder_group;
    batch.tree_parents = first_node >= 0 ? parents.data() : nullptr;
    kvc_forward f = 0;
    call(what + " can_fit", [&](kvc_error *e) { return kvc_cache_can_fit(cache_, &batch, e); });
    call(
        what + " begin", [&](kvc_error *e) { return kvc_forward_begin(cache_, &batch, nullptr, &f, e); },
        [&] { EXPECT_EQ(kvc_forward_abort(cache_, f, nullptr), KVC_OK); });
    if (encoder_group != 0) {
      append(what, f, kCrossGroup);
    } else {
      for (int layer = 0; layer <= kKinds; layer++) run_layer(what, f, layer);
    }
    call(what + " end", [&](kvc_error *e) { return kvc_forward_end(cache_, f, e); });
  }
  void sequences() {
    const int64_t sinks[2] = {2, 0}, windows[2] = {7, 9};
    call("set_streaming", [&](kvc_error *e) { return kvc_seq_set_streaming(cache_, 2, seqs_, sinks, windows, 0, e); });
    step("long step", 8, 0);
    step("streaming step", 1, 0);
    call("checkpoint", [&](kvc_error *e) { return kvc_seq_checkpoint(cache_, 2, seqs_, e); });
    step("nodes", 3, 0, 0);
    step("more nodes", 2, 0, 3);
    const int32_t leaves[2] = {4, -1};
    call("commit", [&](kvc_error *e) { return kvc_seq_commit(cache_, 2, seqs_, leaves, nullptr, e); });
  }
  void forks() {
    kvc_seq children[2];
    call(
        "fork", [&](kvc_error *e) { return kvc_seq_fork(cache_, 2, seqs_, nullptr, children, nullptr, e); },
        [&] { EXPECT_EQ(kvc_seq_remove(cache_, 2, children, nullptr), KVC_OK); });
    call("remove", [&](kvc_error *e) { return kvc_seq_remove(cache_, 2, children, e); });
    for (int layer = 0; layer < kRecurrentGroup; layer++) {
      kvc_export_args args;
      kvc_export_args_init(&args);
      args.layer = layer;
      int64_t length = 0;
      EXPECT_EQ(layer == kCrossGroup ? kvc_seq_encoder_lengths(cache_, kCrossGroup, 1, seqs_, &length, nullptr)
                                     : kvc_seq_lengths(cache_, 1, seqs_, &length, nullptr),
                KVC_OK);
      args.position_begin = length - 1;
      call("export of layer " + std::to_string(layer), [&](kvc_error *e) {
        kvc_exported exported;
        kvc_exported_init(&exported);
        const kvc_status status = kvc_seq_export(cache_, seqs_[0], &args, &exported, nullptr, e);
        const Managed k(exported.k), v(exported.v);
        EXPECT_EQ(status == KVC_OK, k != nullptr);
        return status;
      });
    }
    const int64_t zero[2] = {0, 0};
    call("truncate", [&](kvc_error *e) { return kvc_seq_truncate(cache_, 2, seqs_, zero, e); });
    call("clear", [&](kvc_error *e) { return kvc_cache_clear(cache_, e); });
    kvc_stats stats;
    kvc_stats_init(&stats);
    EXPECT_EQ(kvc_cache_stats(cache_, -1, &stats, nullptr), KVC_OK);
    EXPECT_EQ(stats.pages_used, 0);
  }

  int failures = 0;

 private:
  uint64_t digest() {
    uint64_t d = 0;
    EXPECT_EQ(kvc_cache_digest(cache_, &d, nullptr), KVC_OK);
    return d;
  }
  void append(const std::string &what, kvc_forward f, int32_t layer) {
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = layer == kMlaGroup ? row_.dl() : k_.dl();
    args.v = layer == kMlaGroup ? nullptr : k_.dl();
    call(what + " append of layer " + std::to_string(layer),
         [&](kvc_error *e) { return kvc_forward_append(cache_, f, layer, &args, e); });
  }
  void run_layer(const std::string &what, kvc_forward f, int32_t layer) {
    const std::string name = what + " layer " + std::to_string(layer);
    if (layer == kRecurrentGroup) {
      for (int32_t i = 0; i < 2; i++) {
        call(name, [&](kvc_error *e) { return kvc_forward_load_state(cache_, f, layer, i, -1, state_.dl(), e); });
        call(name, [&](kvc_error *e) { return kvc_forward_store_state(cache_, f, layer, i, -1, state_.dl(), e); });
      }
      return;
    }
    if (layer < kCrossGroup) append(what, f, layer);
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    const bool mla = layer == kMlaGroup;
    args.q = mla ? q_nope_.dl() : q_.dl();
    args.out = mla ? out_nope_.dl() : out_.dl();
    args.lse = lse_.dl();
    args.w_uk = mla ? w_uk_.dl() : nullptr;
    args.w_uv = mla ? w_uv_.dl() : nullptr;
    call(name + " attend", [&](kvc_error *e) { return kvc_forward_attend(cache_, f, layer, &args, e); });
    char text[4096];
    call(name + " describe", [&](kvc_error *e) { return kvc_forward_describe(cache_, f, text, 4096, nullptr, e); });
    call(name + " describe cache", [&](kvc_error *e) { return kvc_cache_describe(cache_, nullptr, 0, nullptr, e); });
  }

  Hybrid hybrid_;
  ContextPtr context_;
  CachePtr owner_;
  kvc_cache *cache_ = nullptr;
  kvc_seq seqs_[2] = {};
  kvc_error error_ = KVC_ERROR_INIT;
  Tensor q_{DType::kF32, {16, kHeads, kDim}}, k_{DType::kF32, {16, kKvHeads, kDim}}, row_{DType::kF32, {16, 1, kDim}},
      out_{DType::kF32, {16, kHeads, kDim}}, lse_{DType::kF32, {16, kHeads}},
      q_nope_{DType::kF32, {16, kHeads, kNope + kDim - kLatent}}, out_nope_{DType::kF32, {16, kHeads, kOut}},
      w_uk_{DType::kF32, {kHeads, kNope, kLatent}}, w_uv_{DType::kF32, {kHeads, kOut, kLatent}},
      state_{DType::kF32, {2, 5}};
};

TEST(Faults, StepsOfAHybridCache) {
  for (int threads : {1, 3}) {
    const int64_t outside = live_blocks();
    {
      Script script(threads);
      script.add();
      script.step("encoder", 5, 1 + kCrossGroup);
      script.step("first step", 3, 0);
      script.step("second step", 6, 0);
      script.sequences();
      script.forks();
      EXPECT_GT(script.failures, 3) << "nothing was made to fail";
    }
    EXPECT_LE(live_blocks() - outside, threads == 1 ? 0 : 8) << "leak (of a thread's own memory at most a little)";
  }
}

}  // namespace
}  // namespace kvt
