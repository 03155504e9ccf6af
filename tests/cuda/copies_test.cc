// What a repeated call costs on the host: how many copies to the device it makes, from pinned memory. It never waits
// for the device and never allocates. docs/internals/cuda.md has the table.
#include <gtest/gtest.h>

#include <deque>
#include <functional>

#include "cuda_runtime.h"
#include "paged_call.h"
#include "server.h"

namespace kvt {
namespace {

constexpr int kLayers = 3;  // two of tokens, one of states

class Copies : public testing::Test {
 protected:
  Copies() {
    kvc_state_config state;
    kvc_state_config_init(&state);
    state.rank = 1, state.shape[0] = 5;
    kvc_group_config groups[2];
    for (kvc_group_config &g : groups) kvc_group_config_init(&g);
    groups[1].row = KVC_ROW_STATE;
    kvc_layer_config layers[kLayers];
    for (kvc_layer_config &layer : layers) {
      kvc_layer_config_init(&layer);
      layer.num_q_heads = 2, layer.num_kv_heads = 1, layer.head_dim = 4;
      layer.rope_mode = KVC_ROPE_ON_APPEND;
    }
    kvc_layer_config_init(&layers[2]);
    layers[2].group = 1, layers[2].num_states = 1, layers[2].states = &state;
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = layers, config.num_layers = kLayers, config.groups = groups, config.num_groups = 2;
    config.capacity_tokens = 512, config.page_size = 4;
    kvc_cache *made = nullptr;
    EXPECT_EQ(kvc_cache_create(context_.get(), &config, &made, &error_), KVC_OK) << error_.message;
    cache_ = CachePtr(made);
    EXPECT_EQ(kvc_seq_add(cache_.get(), 1, &seq_, &error_), KVC_OK);
    step(6);
  }
  ~Copies() override { cuda_emulation::set_order(cuda_emulation::kAtOnce); }

  void ok(kvc_status status) { ASSERT_EQ(status, KVC_OK) << error_.message; }
  kvc_forward begin(int32_t tokens, const int32_t *parents = nullptr) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq_, batch.append_lengths = &tokens, batch.num_sequences = 1, batch.tree_parents = parents;
    kvc_forward forward = 0;
    ok(kvc_forward_begin(cache_.get(), &batch, nullptr, &forward, &error_));
    return forward;
  }
  void attend(kvc_forward forward, int layer, int64_t tokens, uint32_t flags = 0) {
    Tensors &t = tensors_.emplace_back(tokens);
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = t.q.dl(), args.k = t.k.dl(), args.v = t.v.dl(), args.out = t.out.dl(), args.flags = flags;
    ok(kvc_forward_attend(cache_.get(), forward, layer, &args, &error_));
  }
  void state(kvc_forward forward, bool store) {
    const auto call = store ? kvc_forward_store_state : kvc_forward_load_state;
    ok(call(cache_.get(), forward, 2, 0, -1, state_.dl(), &error_));
  }
  void end(kvc_forward forward) { ok(kvc_forward_end(cache_.get(), forward, &error_)); }
  void step(int32_t tokens, const int32_t *parents = nullptr) {
    const kvc_forward forward = begin(tokens, parents);
    for (int layer = 0; layer < 2; layer++) attend(forward, layer, tokens);
    state(forward, true);
    end(forward);
  }
  // Checks that the call makes this many copies, while the device has not run anything yet.
  void sends(const char *what, int64_t copies, const std::function<void()> &call) {
    SCOPED_TRACE(what);
    cuda_emulation::set_order(cuda_emulation::kInTurn);
    const cuda_emulation::Counts before = cuda_emulation::counts();
    call();
    const cuda_emulation::Counts after = cuda_emulation::counts();
    EXPECT_EQ(after.copies - before.copies, copies);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.host_waits, before.host_waits);
    cudaDeviceSynchronize();
    cuda_emulation::set_order(cuda_emulation::kAtOnce);
  }

  struct Tensors {
    explicit Tensors(int64_t tokens) : q(DType::kF32, {tokens, 2, 4}), k(DType::kF32, {tokens, 1, 4}), v(k), out(q) {}
    Tensor q, k, v, out;
  };
  DeviceIndexes device_;
  ContextPtr context_ = make_context_on(kDLCUDA);
  CachePtr cache_;
  std::deque<Tensors> tensors_;
  Tensor state_{DType::kF32, {1, 5}};
  kvc_seq seq_ = 0;
  kvc_error error_ = KVC_ERROR_INIT;
};

TEST_F(Copies, OfAStep) {
  for (int i = 0; i < 20; i++) step(1);  // every slot of the ring has been used
  kvc_forward forward = 0;
  sends("begin", 0, [&] { forward = begin(1); });
  sends("attend", 0, [&] { attend(forward, 0, 1), attend(forward, 1, 1); });
  sends("load_state", 0, [&] { state(forward, false); });
  sends("store_state", 0, [&] { state(forward, true); });
  sends("end", 0, [&] { end(forward); });
  // begin plans attends that are like those of the step before. The call itself plans others.
  for (int i = 0; i < 20; i++) {
    forward = begin(1);
    attend(forward, 0, 1, i % 2 ? KVC_ATTEND_PAST : 0);
    ok(kvc_forward_abort(cache_.get(), forward, &error_));
  }
  forward = begin(1);
  sends("attend, other flags", 1, [&] { attend(forward, 0, 1); });
  sends("abort", 0, [&] { ok(kvc_forward_abort(cache_.get(), forward, &error_)); });
}

TEST_F(Copies, OfWhatMovesTokens) {
  const int32_t parents[] = {KVC_TREE_ROOT, 0, 1};
  const auto checkpoint = [&] { ok(kvc_seq_checkpoint(cache_.get(), 1, &seq_, &error_)); };
  for (int i = 0; i < 20; i++) {
    kvc_seq child = 0;
    step(1), checkpoint();
    ok(kvc_seq_fork(cache_.get(), 1, &seq_, nullptr, &child, nullptr, &error_));
    ok(kvc_seq_remove(cache_.get(), 1, &child, &error_));
  }
  int64_t length = 0;
  ok(kvc_seq_lengths(cache_.get(), 1, &seq_, &length, &error_));
  if (length % 4 == 0) step(1);
  kvc_seq child = 0;
  sends("fork inside a page, two layers", 2,
        [&] { ok(kvc_seq_fork(cache_.get(), 1, &seq_, nullptr, &child, nullptr, &error_)); });
  sends("remove", 0, [&] { ok(kvc_seq_remove(cache_.get(), 1, &child, &error_)); });
  step(3, parents);
  int32_t leaf = 2;
  sends("commit of a chain", 0, [&] { ok(kvc_seq_commit(cache_.get(), 1, &seq_, &leaf, nullptr, &error_)); });
}

TEST_F(Copies, OfCallsWithoutACache) {
  for (const bool on_device : {true, false}) {
    setenv("KVC_TEST_INDEXES", on_device ? "device" : "host", 1);
    PagedCall call(true);
    for (int i = 0; i < 20; i++) {
      ASSERT_EQ(call.attend(context_.get()), KVC_OK) << call.error.message;
      ASSERT_EQ(call.append(context_.get()), KVC_OK) << call.error.message;
    }
    const std::string where = on_device ? "indexes on the device" : "indexes on the host";
    // Rows, page lists, items, slots, and rotations of queries and of new keys.
    sends(("flash_attn_with_kvcache, " + where).c_str(), on_device ? 0 : 1,
          [&] { ASSERT_EQ(call.attend(context_.get()), KVC_OK); });
    sends(("append_slots, " + where).c_str(), on_device ? 0 : 1,  // rotations, slots
          [&] { ASSERT_EQ(call.append(context_.get()), KVC_OK); });
  }
  kvc_plan_config config = plan_config(KVC_PLAN_DECODE, 4);
  config.flags = KVC_PLAN_GRAPH, config.max_rows = 2, config.max_pages_per_row = 3;
  for (const bool on_device : {true, false}) {
    const PlanPtr plan = make_plan(context_.get(), config);
    Ints lens({9, 2}), table({0, 2, 8, 3, -1, -1}, false, 3);
    lens.tensor.device = table.tensor.device = {on_device ? kDLCUDA : kDLCPU, 0};
    kvc_plan_args args;
    kvc_plan_args_init(&args);
    args.seq_lens = &lens.tensor, args.block_table = &table.tensor;
    const auto build = [&] { ok(kvc_plan_build(plan.get(), &args, nullptr, nullptr, &error_)); };
    for (int i = 0; i < 20; i++) build();
    sends("plan_build", on_device ? 0 : 1, build);
  }
}

// Data that calls on several streams send stays unchanged until the device has read it, however late that is.
TEST_F(Copies, AreTheirCallsOwn) {
  setenv("KVC_TEST_INDEXES", "host", 1);
  constexpr int kCalls = 40;
  cudaStream_t streams[3];
  for (cudaStream_t &stream : streams) cudaStreamCreate(&stream);
  const auto call_of = [](int i) {
    PagedCall call(true);
    call.lengths.values = {i % 5 + 3, i % 7, 14 - i % 3};
    call.slots.values[0] = 1 + i % 30;
    return call;
  };
  for (unsigned order = cuda_emulation::kInTurn; order < cuda_emulation::kRandom + 4; order++) {
    std::deque<PagedCall> calls, wanted;
    for (int i = 0; i < kCalls; i++) {
      wanted.push_back(call_of(i));
      ASSERT_EQ(wanted.back().attend(context_.get()), KVC_OK) << wanted.back().error.message;
      ASSERT_EQ(wanted.back().append(context_.get()), KVC_OK) << wanted.back().error.message;
    }
    cuda_emulation::set_order(order);
    for (int i = 0; i < kCalls; i++) {
      calls.push_back(call_of(i));
      ASSERT_EQ(calls.back().attend(context_.get(), streams[i % 3]), KVC_OK) << calls.back().error.message;
      ASSERT_EQ(calls.back().append(context_.get(), streams[i % 3]), KVC_OK) << calls.back().error.message;
    }
    cudaDeviceSynchronize();
    cuda_emulation::set_order(cuda_emulation::kAtOnce);
    for (size_t i = 0; i < kCalls; i++) {
      EXPECT_EQ(calls[i].out.bytes, wanted[i].out.bytes) << i << ", order " << order;
      EXPECT_EQ(calls[i].k_cache.bytes, wanted[i].k_cache.bytes) << i << ", order " << order;
    }
  }
  for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace kvt
