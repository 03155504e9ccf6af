// Every pointer of every function is NULL once.
#include <algorithm>

#include "fixture.h"

namespace kvt {
namespace {

const Statuses kNull{KVC_ERROR_NULL_ARGUMENT};

TEST(Null, DestroyDoesNothing) {
  kvc_context_destroy(nullptr);
  kvc_cache_destroy(nullptr);
}

TEST(Null, Context) {
  kvc_context_config config;
  kvc_context_config_init(&config);
  refused(nullptr, kNull, "kvc_context_create", [&](kvc_error *e) { return kvc_context_create(&config, nullptr, e); },
          {"context"});
  // A NULL config means every default.
  kvc_context *context = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_context_create(nullptr, &context, &error), KVC_OK) << error.message;
  ContextPtr owner(context);
  int64_t length = 0;
  refused(nullptr, kNull, "kvc_context_describe",
          [&](kvc_error *e) { return kvc_context_describe(nullptr, nullptr, 0, &length, e); }, {"context"});
  refused(nullptr, kNull, "kvc_context_describe",
          [&](kvc_error *e) { return kvc_context_describe(context, nullptr, 10, &length, e); }, {"buffer"});
  EXPECT_EQ(kvc_context_describe(context, nullptr, 0, nullptr, &error), KVC_OK);
  refused(nullptr, kNull, "kvc_context_check", [](kvc_error *e) { return kvc_context_check(nullptr, e); }, {"context"});
  EXPECT_EQ(kvc_context_check(context, &error), KVC_OK);
}

TEST(Null, CacheCreateAndEstimate) {
  ContextPtr context = make_context();
  BuiltConfig built(World::default_spec());
  kvc_cache *cache = nullptr;
  kvc_estimate estimate;
  kvc_estimate_init(&estimate);
  refused(nullptr, kNull, "kvc_cache_create",
          [&](kvc_error *e) { return kvc_cache_create(nullptr, &built.config, &cache, e); }, {"context"});
  refused(nullptr, kNull, "kvc_cache_create",
          [&](kvc_error *e) { return kvc_cache_create(context.get(), nullptr, &cache, e); }, {"config"});
  refused(nullptr, kNull, "kvc_cache_create",
          [&](kvc_error *e) { return kvc_cache_create(context.get(), &built.config, nullptr, e); }, {"cache"});
  refused(nullptr, kNull, "kvc_cache_estimate",
          [&](kvc_error *e) { return kvc_cache_estimate(nullptr, &built.config, -1, &estimate, e); }, {"context"});
  refused(nullptr, kNull, "kvc_cache_estimate",
          [&](kvc_error *e) { return kvc_cache_estimate(context.get(), nullptr, -1, &estimate, e); }, {"config"});
  refused(nullptr, kNull, "kvc_cache_estimate",
          [&](kvc_error *e) { return kvc_cache_estimate(context.get(), &built.config, -1, nullptr, e); }, {"estimate"});
  kvc_cache_config config = built.config;
  config.layers = nullptr;
  refused(nullptr, kNull, "kvc_cache_create",
          [&](kvc_error *e) { return kvc_cache_create(context.get(), &config, &cache, e); }, {"layers"});
  config = built.config;
  config.groups = nullptr;  // with num_groups 2
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT, KVC_ERROR_INVALID_ARGUMENT}, "kvc_cache_create",
          [&](kvc_error *e) { return kvc_cache_create(context.get(), &config, &cache, e); }, {"groups"});
  EXPECT_EQ(cache, nullptr);
}

TEST(Null, CacheHandleOfEveryFunction) {
  World w;
  kvc_error error = KVC_ERROR_INIT;
  kvc_seq seq = w.seq;
  kvc_forward f = w.begin({w.seq}, {2});
  int64_t number = 0;
  uint64_t digest = 0;
  kvc_batch batch;
  kvc_batch_init(&batch);
  kvc_append_args append;
  kvc_append_args_init(&append);
  kvc_attend_args attend;
  kvc_attend_args_init(&attend);
  kvc_forward_info info;
  kvc_forward_info_init(&info);
  kvc_export_args exports;
  kvc_export_args_init(&exports);
  kvc_import_args imports;
  kvc_import_args_init(&imports);
  kvc_stats stats;
  kvc_stats_init(&stats);
  DLManagedTensorVersioned *tensor = nullptr;
  int32_t node = 0;
  const std::vector<std::pair<const char *, std::function<kvc_status(kvc_error *)>>> calls{
      {"kvc_cache_clear", [&](kvc_error *e) { return kvc_cache_clear(nullptr, e); }},
      {"kvc_seq_add", [&](kvc_error *e) { return kvc_seq_add(nullptr, 1, &seq, e); }},
      {"kvc_seq_remove", [&](kvc_error *e) { return kvc_seq_remove(nullptr, 1, &seq, e); }},
      {"kvc_seq_fork", [&](kvc_error *e) { return kvc_seq_fork(nullptr, 1, &seq, nullptr, &seq, nullptr, e); }},
      {"kvc_seq_truncate", [&](kvc_error *e) { return kvc_seq_truncate(nullptr, 1, &seq, &number, e); }},
      {"kvc_seq_lengths", [&](kvc_error *e) { return kvc_seq_lengths(nullptr, 1, &seq, &number, e); }},
      {"kvc_seq_pages", [&](kvc_error *e) { return kvc_seq_pages(nullptr, seq, 0, nullptr, 0, &number, e); }},
      {"kvc_seq_nearest_position",
       [&](kvc_error *e) { return kvc_seq_nearest_position(nullptr, seq, 0, &number, &number, e); }},
      {"kvc_seq_max_append", [&](kvc_error *e) { return kvc_seq_max_append(nullptr, 1, &seq, &number, e); }},
      {"kvc_seq_commit", [&](kvc_error *e) { return kvc_seq_commit(nullptr, 1, &seq, &node, nullptr, e); }},
      {"kvc_seq_tree_nodes", [&](kvc_error *e) { return kvc_seq_tree_nodes(nullptr, 1, &seq, &node, e); }},
      {"kvc_seq_checkpoint", [&](kvc_error *e) { return kvc_seq_checkpoint(nullptr, 1, &seq, e); }},
      {"kvc_seq_encoder_lengths",
       [&](kvc_error *e) { return kvc_seq_encoder_lengths(nullptr, 0, 1, &seq, &number, e); }},
      {"kvc_forward_load_state", [&](kvc_error *e) { return kvc_forward_load_state(nullptr, 1, 0, 0, nullptr, e); }},
      {"kvc_forward_store_state", [&](kvc_error *e) { return kvc_forward_store_state(nullptr, 1, 0, 0, nullptr, e); }},
      {"kvc_cache_can_fit", [&](kvc_error *e) { return kvc_cache_can_fit(nullptr, &batch, e); }},
      {"kvc_forward_begin", [&](kvc_error *e) { return kvc_forward_begin(nullptr, &batch, nullptr, &f, e); }},
      {"kvc_forward_append", [&](kvc_error *e) { return kvc_forward_append(nullptr, f, 0, &append, e); }},
      {"kvc_forward_attend", [&](kvc_error *e) { return kvc_forward_attend(nullptr, f, 0, &attend, e); }},
      {"kvc_forward_end", [&](kvc_error *e) { return kvc_forward_end(nullptr, f, e); }},
      {"kvc_forward_abort", [&](kvc_error *e) { return kvc_forward_abort(nullptr, f, e); }},
      {"kvc_forward_cancel", [&](kvc_error *e) { return kvc_forward_cancel(nullptr, f, e); }},
      {"kvc_forward_get_info", [&](kvc_error *e) { return kvc_forward_get_info(nullptr, f, &info, e); }},
      {"kvc_forward_describe", [&](kvc_error *e) { return kvc_forward_describe(nullptr, f, nullptr, 0, &number, e); }},
      {"kvc_cache_export_pool",
       [&](kvc_error *e) { return kvc_cache_export_pool(nullptr, 0, KVC_POOL_K, 0, &tensor, nullptr, e); }},
      {"kvc_seq_export", [&](kvc_error *e) { return export_kv(nullptr, seq, &exports, &tensor, nullptr, nullptr, e); }},
      {"kvc_seq_import", [&](kvc_error *e) { return kvc_seq_import(nullptr, seq, &imports, nullptr, e); }},
      {"kvc_cache_stats", [&](kvc_error *e) { return kvc_cache_stats(nullptr, -1, &stats, e); }},
      {"kvc_cache_digest", [&](kvc_error *e) { return kvc_cache_digest(nullptr, &digest, e); }},
      {"kvc_cache_check_invariants", [&](kvc_error *e) { return kvc_cache_check_invariants(nullptr, e); }},
  };
  for (const auto &[function, call] : calls) refused(w.cache, kNull, function, call, {"cache"});
  EXPECT_EQ(tensor, nullptr);
  EXPECT_EQ(kvc_forward_abort(w.cache, f, &error), KVC_OK);
}

TEST(Null, Sequences) {
  World w;
  kvc_seq seq = w.seq, child = 0;
  int64_t number = 0;
  refused(w.cache, kNull, "kvc_seq_add", [&](kvc_error *e) { return kvc_seq_add(w.cache, 1, nullptr, e); },
          {"sequences"});
  refused(w.cache, kNull, "kvc_seq_remove", [&](kvc_error *e) { return kvc_seq_remove(w.cache, 1, nullptr, e); },
          {"sequences"});
  refused(w.cache, kNull, "kvc_seq_fork",
          [&](kvc_error *e) { return kvc_seq_fork(w.cache, 1, nullptr, nullptr, &child, nullptr, e); }, {"parents"});
  refused(w.cache, kNull, "kvc_seq_fork",
          [&](kvc_error *e) { return kvc_seq_fork(w.cache, 1, &seq, nullptr, nullptr, nullptr, e); }, {"children"});
  refused(w.cache, kNull, "kvc_seq_truncate",
          [&](kvc_error *e) { return kvc_seq_truncate(w.cache, 1, nullptr, &number, e); }, {"sequences"});
  refused(w.cache, kNull, "kvc_seq_truncate",
          [&](kvc_error *e) { return kvc_seq_truncate(w.cache, 1, &seq, nullptr, e); }, {"lengths"});
  refused(w.cache, kNull, "kvc_seq_lengths",
          [&](kvc_error *e) { return kvc_seq_lengths(w.cache, 1, nullptr, &number, e); }, {"sequences"});
  refused(w.cache, kNull, "kvc_seq_lengths",
          [&](kvc_error *e) { return kvc_seq_lengths(w.cache, 1, &seq, nullptr, e); }, {"lengths"});
  refused(w.cache, kNull, "kvc_seq_pages",
          [&](kvc_error *e) { return kvc_seq_pages(w.cache, seq, 0, nullptr, 5, &number, e); }, {"pages"});
  refused(w.cache, kNull, "kvc_seq_max_append",
          [&](kvc_error *e) { return kvc_seq_max_append(w.cache, 1, nullptr, &number, e); }, {"sequences"});
  refused(w.cache, kNull, "kvc_seq_max_append",
          [&](kvc_error *e) { return kvc_seq_max_append(w.cache, 1, &seq, nullptr, e); }, {"tokens"});
  int32_t node = 0;
  refused(w.cache, kNull, "kvc_seq_commit",
          [&](kvc_error *e) { return kvc_seq_commit(w.cache, 1, nullptr, &node, nullptr, e); }, {"sequences"});
  refused(w.cache, kNull, "kvc_seq_commit",
          [&](kvc_error *e) { return kvc_seq_commit(w.cache, 1, &seq, nullptr, nullptr, e); }, {"leaves"});
  refused(w.cache, kNull, "kvc_seq_tree_nodes",
          [&](kvc_error *e) { return kvc_seq_tree_nodes(w.cache, 1, nullptr, &node, e); }, {"sequences"});
  refused(w.cache, kNull, "kvc_seq_tree_nodes",
          [&](kvc_error *e) { return kvc_seq_tree_nodes(w.cache, 1, &seq, nullptr, e); }, {"nodes"});
  // Nullable ones.
  EXPECT_EQ(kvc_seq_nearest_position(w.cache, seq, 3, nullptr, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(kvc_seq_pages(w.cache, seq, 0, nullptr, 0, nullptr, nullptr), KVC_OK);
}

TEST(Null, ForwardAndTensors) {
  World w;
  kvc_seq seq = w.seq;
  int32_t two = 2;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq;
  batch.append_lengths = &two;
  batch.num_sequences = 1;
  kvc_forward f = 0;
  refused(w.cache, kNull, "kvc_cache_can_fit", [&](kvc_error *e) { return kvc_cache_can_fit(w.cache, nullptr, e); },
          {"batch"});
  refused(w.cache, kNull, "kvc_forward_begin",
          [&](kvc_error *e) { return kvc_forward_begin(w.cache, nullptr, nullptr, &f, e); }, {"batch"});
  refused(w.cache, kNull, "kvc_forward_begin",
          [&](kvc_error *e) { return kvc_forward_begin(w.cache, &batch, nullptr, nullptr, e); }, {"forward"});
  for (int which = 0; which < 2; which++) {
    kvc_batch bad = batch;
    if (which) {
      bad.append_lengths = nullptr;
    } else {
      bad.sequences = nullptr;
    }
    const char *word = which ? "append_lengths" : "sequences";
    refused(w.cache, kNull, "kvc_forward_begin",
            [&](kvc_error *e) { return kvc_forward_begin(w.cache, &bad, nullptr, &f, e); }, {word});
    refused(w.cache, kNull, "kvc_cache_can_fit", [&](kvc_error *e) { return kvc_cache_can_fit(w.cache, &bad, e); },
            {word});
  }

  f = w.begin({seq}, {2});
  LayerTensors t(w.spec.layers[0], 2);
  refused(w.cache, kNull, "kvc_forward_append",
          [&](kvc_error *e) { return kvc_forward_append(w.cache, f, 0, nullptr, e); }, {"args"});
  refused(w.cache, kNull, "kvc_forward_attend",
          [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, 0, nullptr, e); }, {"args"});
  for (int which = 0; which < 2; which++) {
    kvc_append_args append = t.append_args();
    (which ? append.v : append.k) = nullptr;
    refused(w.cache, kNull, "kvc_forward_append",
            [&](kvc_error *e) { return kvc_forward_append(w.cache, f, 0, &append, e); }, {which ? "v" : "k"});
    kvc_attend_args attend = t.attend_args();
    (which ? attend.out : attend.q) = nullptr;
    refused(w.cache, kNull, "kvc_forward_attend",
            [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, 0, &attend, e); }, {which ? "out" : "q"});
    attend = t.attend_args();
    (which ? attend.v : attend.k) = nullptr;  // one without the other
    refused(w.cache, {KVC_ERROR_NULL_ARGUMENT, KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_attend",
            [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, 0, &attend, e); });
  }
  // Tensors without data, and without a shape.
  for (int which = 0; which < 5; which++) {
    for (int missing = 0; missing < 2; missing++) {
      kvc_attend_args attend = t.attend_args();
      const DLTensor **slots[] = {&attend.q, &attend.k, &attend.v, &attend.out, &attend.lse};
      DLTensor bad = **slots[which];
      if (missing) {
        bad.shape = nullptr;
      } else {
        bad.data = nullptr;
      }
      *slots[which] = &bad;
      refused(w.cache, {KVC_ERROR_NULL_ARGUMENT, KVC_ERROR_INVALID_ARGUMENT, KVC_ERROR_SHAPE}, "kvc_forward_attend",
              [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, 0, &attend, e); });
    }
  }
  refused(w.cache, kNull, "kvc_forward_get_info",
          [&](kvc_error *e) { return kvc_forward_get_info(w.cache, f, nullptr, e); }, {"info"});
  refused(w.cache, kNull, "kvc_forward_describe",
          [&](kvc_error *e) { return kvc_forward_describe(w.cache, f, nullptr, 9, nullptr, e); }, {"buffer"});
  EXPECT_EQ(kvc_forward_describe(w.cache, f, nullptr, 0, nullptr, nullptr), KVC_OK);
  // lse is nullable, and nothing above used the layer up.
  kvc_attend_args attend = t.attend_args();
  attend.lse = nullptr;
  EXPECT_EQ(kvc_forward_attend(w.cache, f, 0, &attend, nullptr), KVC_OK);
  EXPECT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
}

TEST(Null, ExportsImportsStatistics) {
  World w;
  DLManagedTensorVersioned *tensor = nullptr;
  kvc_export_args args;
  kvc_export_args_init(&args);
  refused(w.cache, kNull, "kvc_seq_export",
          [&](kvc_error *e) { return export_kv(w.cache, w.seq, nullptr, &tensor, nullptr, nullptr, e); }, {"args"});
  refused(w.cache, kNull, "kvc_seq_export",
          [&](kvc_error *e) { return kvc_seq_export(w.cache, w.seq, &args, nullptr, nullptr, e); }, {"exported"});
  refused(w.cache, kNull, "kvc_cache_export_pool",
          [&](kvc_error *e) { return kvc_cache_export_pool(w.cache, 0, KVC_POOL_K, 0, nullptr, nullptr, e); },
          {"tensor"});
  refused(w.cache, kNull, "kvc_cache_stats", [&](kvc_error *e) { return kvc_cache_stats(w.cache, -1, nullptr, e); },
          {"stats"});
  refused(w.cache, kNull, "kvc_cache_digest", [&](kvc_error *e) { return kvc_cache_digest(w.cache, nullptr, e); },
          {"digest"});
  refused(w.cache, kNull, "kvc_seq_import",
          [&](kvc_error *e) { return kvc_seq_import(w.cache, w.seq, nullptr, nullptr, e); }, {"args"});
  std::vector<LayerTensors> tensors;
  for (const LayerSpec &l : w.spec.layers) tensors.emplace_back(l, 3);
  for (int hole = -2; hole < 6; hole++) {
    std::vector<const DLTensor *> k, v;
    for (LayerTensors &t : tensors) {
      k.push_back(t.k.dl());
      v.push_back(t.v.dl());
    }
    if (hole >= 0) (hole % 2 ? v : k)[hole / 2] = nullptr;
    kvc_import_args import;
    kvc_import_args_init(&import);
    import.num_layers = 3;
    import.k = hole == -2 ? nullptr : k.data();
    import.v = hole == -1 ? nullptr : v.data();
    const kvc_error error = refused(w.cache, kNull, "kvc_seq_import",
                                    [&](kvc_error *e) { return kvc_seq_import(w.cache, w.seq, &import, nullptr, e); });
    if (hole >= 0) {
      EXPECT_EQ(error.index, hole / 2);
    }
  }
}

}  // namespace
}  // namespace kvt
