// Calls that refuse a pending sequence, and calls that attach to a job and are refused.
#include <cstdio>

#include "pending_fixture.h"

namespace kvt {
namespace {

TEST(TiersPendingErrors, OtherCallsReturnPending) {
  TieredSpec spec;
  spec.flags = KVC_CACHE_STREAMING;
  PendingEngine e(spec);
  kvc_cache *const cache = e.engine.cache();
  e.hold();
  kvc_job job = 0;
  int64_t tokens = 0;
  const kvc_seq seq = e.attach_new(&job, &tokens);
  uint64_t before = 0, after = 0;
  ASSERT_EQ(kvc_cache_digest(cache, &before, nullptr), KVC_OK);
  kvc_error error = KVC_ERROR_INIT;
  const auto refused = [&](kvc_status status) {
    EXPECT_EQ(status, KVC_ERROR_PENDING);
    EXPECT_NE(std::string(error.message).find("is pending: a job loads its pages"), std::string::npos) << error.message;
    error = KVC_ERROR_INIT;
  };
  kvc_seq child = 0;
  refused(kvc_seq_fork(cache, 1, &seq, nullptr, &child, nullptr, &error));
  const int64_t length = 8, window = 8, sinks = 0;
  refused(kvc_seq_truncate(cache, 1, &seq, &length, &error));
  refused(kvc_seq_set_streaming(cache, 1, &seq, &sinks, &window, 0, &error));
  const Tokens loaded(e.prompt.begin(), e.prompt.begin() + 32);
  const kvc_prefix_query query = Prefix::query(loaded);
  refused(kvc_prefix_publish(cache, seq, &query, nullptr, nullptr, &error));
  kvc_job moved = 0;
  refused(kvc_seq_suspend(cache, seq, &moved, &error));
  kvc_save_args save;
  kvc_save_args_init(&save);
  save.path = "never-written";
  refused(kvc_seq_save(cache, seq, &save, nullptr, &error));
  kvc_export_args exports;
  kvc_export_args_init(&exports);
  exports.position_end = 8;
  kvc_exported exported;
  kvc_exported_init(&exported);
  refused(kvc_seq_export(cache, seq, &exports, &exported, nullptr, &error));
  kvc_graph_config config;
  kvc_graph_config_init(&config);
  kvc_forward graph = 0, f = 0;
  ASSERT_EQ(kvc_graph_create(cache, &config, &graph, nullptr), KVC_OK);
  kvc_batch batch;
  kvc_batch_init(&batch);
  const int32_t one = 1;
  batch.sequences = &seq, batch.append_lengths = &one, batch.num_sequences = 1, batch.graph = graph;
  refused(kvc_forward_begin(cache, &batch, nullptr, &f, &error));
  EXPECT_EQ(kvc_cache_clear(cache, nullptr), KVC_ERROR_BUSY);
  ASSERT_EQ(kvc_cache_digest(cache, &after, nullptr), KVC_OK);
  EXPECT_EQ(before, after);

  int64_t appendable = 0, count = 0;  // calls that read
  EXPECT_EQ(kvc_seq_max_append(cache, 1, &seq, &appendable, nullptr), KVC_OK);
  EXPECT_GT(appendable, 0);
  EXPECT_EQ(kvc_seq_pages(cache, seq, 0, nullptr, 0, &count, nullptr), KVC_OK);
  EXPECT_EQ(count, 8);
  std::string text(100000, '\0');
  ASSERT_EQ(kvc_cache_describe(cache, text.data(), static_cast<int64_t>(text.size()), &count, nullptr), KVC_OK);
  EXPECT_NE(text.find("\"pending\""), std::string::npos);
  EXPECT_EQ(kvc_cache_check_invariants(cache, nullptr), KVC_OK);
  e.tier.release();
  EXPECT_EQ(e.engine.wait(job), 32);
  EXPECT_EQ(kvc_seq_fork(cache, 1, &seq, nullptr, &child, nullptr, nullptr), KVC_OK);
  e.complete(seq);
  e.complete(child);
  EXPECT_EQ(std::remove("never-written"), -1);
}

TEST(TiersPendingErrors, CheckpointsAndTables) {
  TieredSpec spec;
  spec.groups = {{KVC_ROW_KV, 0}, {KVC_ROW_STATE, 0}};
  PendingEngine e(spec);
  kvc_cache *const cache = e.engine.cache();
  e.hold();
  kvc_job job = 0;
  int64_t tokens = 0;
  const kvc_seq seq = e.attach_new(&job, &tokens);
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_seq_checkpoint(cache, 1, &seq, &error), KVC_ERROR_PENDING);
  PendingStep step(e.engine, seq, e.prompt, 32, 33);
  ASSERT_EQ(step.begun, KVC_OK);
  kvc_tables tables;
  kvc_tables_init(&tables);
  EXPECT_EQ(kvc_forward_tables(cache, step.forward, 0, &tables, &error), KVC_ERROR_PENDING);
  EXPECT_EQ(error.index, 0);
  EXPECT_EQ(kvc_forward_tables(cache, step.forward, 7, &tables, &error), KVC_ERROR_OUT_OF_RANGE);
  std::vector<float> state(TieredEngine::kDims, 3.0f);
  int64_t shape[2] = {1, TieredEngine::kDims};
  const DLTensor tensor = {state.data(), test_device(), 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
  EXPECT_EQ(kvc_forward_load_state(cache, step.forward, 1, 0, -1, &tensor, &error), KVC_ERROR_PENDING);
  EXPECT_EQ(state[0], 3.0f);
  EXPECT_EQ(kvc_forward_load_state(cache, step.forward, INT32_MAX, 0, -1, &tensor, &error), KVC_ERROR_OUT_OF_RANGE);
  EXPECT_EQ(kvc_forward_store_state(cache, step.forward, 1, 0, -1, &tensor, &error), KVC_OK) << error.message;
  e.tier.release();
  ASSERT_TRUE(e.becomes([&] { return e.info(seq).ready_layers == 2; }));
  EXPECT_EQ(kvc_forward_tables(cache, step.forward, 0, &tables, &error), KVC_OK) << error.message;
  EXPECT_EQ(step.run_all(), KVC_OK);
  EXPECT_EQ(step.finish(), KVC_OK);
  EXPECT_EQ(e.engine.wait(job), 32);
  e.engine.check(seq, e.prompt, 33);
}

TEST(TiersPendingErrors, BatchesHaveOneAnswer) {
  PendingEngine e;
  kvc_cache *const cache = e.engine.cache();
  const Tokens other = count_to(9, 300);
  kvc_seq seqs[2] = {e.engine.add_sequence(), 0};
  e.engine.compute(seqs[0], other, 0, 8);
  e.hold();
  kvc_job job = 0;
  int64_t tokens = 0;
  seqs[1] = e.attach_new(&job, &tokens);
  const int32_t lengths[2] = {1, 1};
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = seqs, batch.append_lengths = lengths, batch.num_sequences = 2;
  kvc_forward f = 0;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_cache_can_fit(cache, &batch, nullptr), KVC_OK);
  ASSERT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, nullptr), KVC_OK);
  std::vector<float> q(8, 0.0f), k(8, 1.0f), out(8, 5.0f);
  int64_t shape[3] = {2, 1, 4};
  const DLTensor tq = {q.data(), test_device(), 3, {kDLFloat, 32, 1}, shape, nullptr, 0};
  const DLTensor tk = {k.data(), test_device(), 3, {kDLFloat, 32, 1}, shape, nullptr, 0};
  const DLTensor tout = {out.data(), test_device(), 3, {kDLFloat, 32, 1}, shape, nullptr, 0};
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = &tq, args.k = &tk, args.v = &tk, args.out = &tout;
  EXPECT_EQ(kvc_forward_attend(cache, f, 0, &args, &error), KVC_ERROR_PENDING);
  EXPECT_EQ(out, std::vector<float>(8, 5.0f));
  e.tier.release();
  ASSERT_TRUE(e.becomes([&] { return e.info(seqs[1]).ready_layers == 1; }));
  EXPECT_EQ(kvc_forward_attend(cache, f, 0, &args, &error), KVC_OK) << error.message;
  EXPECT_NE(out[0], 5.0f);
  EXPECT_EQ(kvc_forward_abort(cache, f, nullptr), KVC_OK);
  EXPECT_EQ(e.engine.wait(job), 32);
}

TEST(TiersPendingErrors, AttachIsRefused) {
  PendingEngine e;
  kvc_cache *const cache = e.engine.cache();
  kvc_seq seq = 77;
  int64_t tokens = 77;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(e.attach(12345, &seq, &tokens, 0, 0, &error), KVC_ERROR_STALE_ID);
  e.hold();
  const kvc_job job = e.engine.start(e.prompt);
  EXPECT_EQ(e.attach(job, &seq, &tokens, 2, 0, &error), KVC_ERROR_UNSUPPORTED);
  EXPECT_EQ(e.attach(job, &seq, &tokens, 0, -1, &error), KVC_ERROR_OUT_OF_RANGE);
  EXPECT_EQ(e.attach(job, nullptr, &tokens, 0, 0, &error), KVC_ERROR_NULL_ARGUMENT);
  std::vector<kvc_seq> others(5);
  ASSERT_EQ(kvc_seq_add(cache, 5, others.data(), nullptr), KVC_OK);
  EXPECT_EQ(e.attach(job, &seq, &tokens, 0, 0, &error), KVC_ERROR_TOO_MANY_SEQUENCES);
  EXPECT_EQ(seq, 77u);
  EXPECT_EQ(tokens, 77);
  ASSERT_EQ(kvc_seq_remove(cache, 5, others.data(), nullptr), KVC_OK);
  e.tier.release();
  EXPECT_EQ(e.engine.wait(job), 32);
  EXPECT_EQ(e.attach(job, &seq, &tokens, 0, 0, &error), KVC_ERROR_STALE_ID);
  const kvc_seq mine = e.engine.add_sequence();
  e.engine.compute(mine, e.prompt, 0, 8);
  kvc_job suspends = 0;
  ASSERT_EQ(kvc_seq_suspend(cache, mine, &suspends, nullptr), KVC_OK);
  EXPECT_EQ(e.attach(suspends, &seq, &tokens, 0, 0, &error), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(e.engine.end(suspends), KVC_OK);
  TieredEngine without{TieredSpec{}};
  EXPECT_EQ(kvc_prefix_attach_pending(without.cache(), 1, nullptr, &seq, nullptr, &error), KVC_ERROR_UNSUPPORTED);
  kvc_pending_info info;
  kvc_pending_info_init(&info);
  EXPECT_EQ(kvc_seq_pending(cache, 12345, &info, &error), KVC_ERROR_STALE_ID);
  EXPECT_EQ(kvc_seq_pending(cache, mine, nullptr, &error), KVC_ERROR_NULL_ARGUMENT);
}

// A tier that must search first: the sequence can be attached when the search has ended.
TEST(TiersPendingErrors, AttachWaitsForASearch) {
  PendingEngine e;
  {
    std::lock_guard lock(e.tier.mutex);
    e.tier.pending = INT64_MAX;
  }
  const kvc_job job = e.engine.start(e.prompt);
  ASSERT_NE(job, 0u);
  kvc_seq seq = 0;
  int64_t tokens = 0;
  EXPECT_EQ(e.attach(job, &seq, &tokens), KVC_ERROR_PENDING);
  {
    std::lock_guard lock(e.tier.mutex);
    e.tier.pending = 0;
    e.tier.holds = true;
  }
  kvc_job_info info;
  kvc_job_info_init(&info);
  ASSERT_TRUE(e.becomes([&] {
    EXPECT_EQ(kvc_job_poll(e.engine.cache(), job, &info, nullptr), KVC_OK);
    return e.attach(job, &seq, &tokens) == KVC_OK;
  }));
  EXPECT_EQ(info.done, 0);
  EXPECT_EQ(tokens, 32);
  e.tier.release();
  EXPECT_EQ(e.engine.wait(job), 32);
  e.complete(seq);
}

}  // namespace
}  // namespace kvt
