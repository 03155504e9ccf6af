// Pending sequences: an engine over a tier that holds its completions, and forwards whose results are compared with a
// computation in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "tiers_fixture.h"

namespace kvt {

// Two layers of a full group, around two layers of another one.
inline TieredSpec two_groups() {
  TieredSpec spec;
  spec.groups = {{KVC_ROW_KV, 0}, {KVC_ROW_KV, 0}};
  spec.layer_groups = {0, 1, 1, 0};
  return spec;
}

inline TieredSpec full_window_states() {
  TieredSpec spec;
  spec.groups = {{KVC_ROW_KV, 0}, {KVC_ROW_KV, 6}, {KVC_ROW_STATE, 0}};
  spec.layer_groups = {0, 1, 2, 1, 0, 2};
  return spec;
}

// An open forward of one sequence, which appends tokens[length .. end).
class PendingStep {
 public:
  PendingStep(TieredEngine &e, kvc_seq seq, const Tokens &t, int64_t length, int64_t end)
      : engine(e), tokens(t), begin(length), end_(end) {
    const auto count = static_cast<int32_t>(end - length);
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq, batch.append_lengths = &count, batch.num_sequences = 1;
    begun = kvc_forward_begin(engine.cache(), &batch, nullptr, &forward, &error);
  }
  // Appends the layer's K and V, and attends. Or loads a state, and stores another. Checks the results.
  kvc_status run(size_t layer) {
    error = KVC_ERROR_INIT;
    return engine.spec.of_layer(layer).row == KVC_ROW_STATE ? run_states(layer) : attend(layer);
  }
  kvc_status run_all() {
    for (size_t l = 0; l < engine.spec.num_layers(); l++) {
      if (const kvc_status status = run(l)) return status;
    }
    return KVC_OK;
  }
  kvc_status finish() { return kvc_forward_end(engine.cache(), forward, &error); }
  kvc_status abort() { return kvc_forward_abort(engine.cache(), forward, &error); }

  kvc_status begun = KVC_OK;
  kvc_forward forward = 0;
  kvc_error error = KVC_ERROR_INIT;

 private:
  static constexpr int64_t kDims = TieredEngine::kDims;

  kvc_status attend(size_t layer) {
    const int64_t count = end_ - begin;
    std::vector<float> q = engine.rows(tokens, begin, end_, layer + 100, 0);
    for (float &x : q) x *= 1e-3f;
    std::vector<float> k = engine.rows(tokens, begin, end_, layer, 0), v = engine.rows(tokens, begin, end_, layer, 1);
    std::vector<float> out(q.size(), -1);
    int64_t shape[3] = {count, 1, kDims};
    const auto tensor = [&](std::vector<float> &data) {
      return DLTensor{data.data(), test_device(), 3, {kDLFloat, 32, 1}, shape, nullptr, 0};
    };
    const DLTensor tq = tensor(q), tk = tensor(k), tv = tensor(v), tout = tensor(out);
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = &tq, args.k = &tk, args.v = &tv, args.out = &tout;
    args.softmax_scale = 1;
    if (const kvc_status status =
            kvc_forward_attend(engine.cache(), forward, static_cast<int32_t>(layer), &args, &error))
      return status;
    for (int64_t i = 0; i < count; i++) check(layer, q, i, out.data() + i * kDims);
    return KVC_OK;
  }
  // Compares a row of the result with attention over the values that the tokens have.
  void check(size_t layer, const std::vector<float> &q, int64_t row, const float *out) {
    const int64_t position = begin + row, window = engine.spec.of_layer(layer).window;
    const int64_t first = window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
    const std::vector<float> k = engine.rows(tokens, first, position + 1, layer, 0);
    const std::vector<float> v = engine.rows(tokens, first, position + 1, layer, 1);
    double sum = 0, expected[kDims] = {};
    for (size_t i = 0; i < k.size(); i += kDims) {
      double score = 0;
      for (size_t d = 0; d < kDims; d++) score += double{q[static_cast<size_t>(row * kDims) + d]} * double{k[i + d]};
      const double weight = std::exp(score);
      sum += weight;
      for (size_t d = 0; d < kDims; d++) expected[d] += weight * double{v[i + d]};
    }
    for (size_t d = 0; d < kDims; d++) {
      EXPECT_NEAR(static_cast<double>(out[d]), expected[d] / sum, 1e-3)
          << "layer " << layer << " position " << position;
    }
  }
  kvc_status run_states(size_t layer) {
    std::vector<float> state(kDims, -1);
    int64_t shape[2] = {1, kDims};
    const DLTensor tensor = {state.data(), test_device(), 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
    const auto index = static_cast<int32_t>(layer);
    if (const kvc_status status = kvc_forward_load_state(engine.cache(), forward, index, 0, -1, &tensor, &error))
      return status;
    if (begin > 0) {
      EXPECT_EQ(state, engine.state_of(tokens, begin, layer));
    }
    const std::vector<float> after = engine.state_of(tokens, end_, layer);
    std::copy(after.begin(), after.end(), state.begin());  // the tensor's memory
    return kvc_forward_store_state(engine.cache(), forward, index, 0, -1, &tensor, &error);
  }

  TieredEngine &engine;
  const Tokens tokens;
  const int64_t begin, end_;
};

// An engine whose tier has the pages of a prompt, which the pools no longer have.
struct PendingEngine {
  MemoryTier tier;
  TieredEngine engine;
  Tokens prompt;

  explicit PendingEngine(const TieredSpec &spec = {}, int32_t tokens = 33) : engine(spec), prompt(count_to(tokens)) {
    EXPECT_EQ(engine.add(tier), KVC_OK);
    store(prompt);
  }
  ~PendingEngine() { tier.release(); }
  void store(const Tokens &tokens) {
    std::vector<int64_t> pages;
    for (int64_t end = 4; end < static_cast<int64_t>(tokens.size()); end += 4) pages.push_back(end);
    engine.serve(tokens, 0, 0, pages);
    engine.wait_stored();
    engine.forget_all();
  }
  void hold(int64_t allowed = 0) {
    std::lock_guard lock(tier.mutex);
    tier.holds = true;
    tier.allowed = allowed;
  }
  kvc_status attach(kvc_job job, kvc_seq *seq, int64_t *tokens, uint32_t flags = 0, int64_t timeout_ns = 0,
                    kvc_error *error = nullptr) {
    kvc_pending_options options;
    kvc_pending_options_init(&options);
    options.flags = flags;
    options.timeout_ns = timeout_ns;
    return kvc_prefix_attach_pending(engine.cache(), job, &options, seq, tokens, error);
  }
  // Starts a load of the prompt, and attaches a sequence to it.
  kvc_seq attach_new(kvc_job *job, int64_t *tokens, uint32_t flags = 0, int64_t timeout_ns = 0) {
    *job = engine.start(prompt, nullptr, 0, INT64_MAX);
    EXPECT_NE(*job, 0u);
    kvc_seq seq = 0;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(attach(*job, &seq, tokens, flags, timeout_ns, &error), KVC_OK) << error.message;
    return seq;
  }
  kvc_pending_info info(kvc_seq seq) {
    kvc_pending_info info;
    kvc_pending_info_init(&info);
    EXPECT_EQ(kvc_seq_pending(engine.cache(), seq, &info, nullptr), KVC_OK);
    return info;
  }
  template <class Condition>
  bool becomes(Condition condition) {
    for (int tries = 0; tries < 20000; tries++) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  int64_t length(kvc_seq seq) {
    int64_t length = -1;
    EXPECT_EQ(kvc_seq_lengths(engine.cache(), 1, &seq, &length, nullptr), KVC_OK);
    return length;
  }
  kvc_status abort_and_poll(PendingStep &step, kvc_job job, int64_t *tokens) {
    const kvc_status aborted = step.abort();
    *tokens = engine.wait(job);
    return aborted;
  }
  // Computes the rest of the prompt, and checks all that the sequence holds.
  void complete(kvc_seq seq) {
    const int64_t end = static_cast<int64_t>(prompt.size()), begin = length(seq);
    PendingStep step(engine, seq, prompt, begin, end);
    ASSERT_EQ(step.begun, KVC_OK) << step.error.message;
    ASSERT_EQ(step.run_all(), KVC_OK) << step.error.message;
    ASSERT_EQ(step.finish(), KVC_OK) << step.error.message;
    engine.check(seq, prompt, end);
  }
};

}  // namespace kvt
