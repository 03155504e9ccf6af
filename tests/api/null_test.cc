// Passes NULL for every pointer of every function. The header says which pointers may be NULL, and null_generated.inc
// is made from it.
#include <kvcache_transport.h>

#include <algorithm>

#include "fixture.h"

namespace kvt {
namespace {

const Statuses kNull{KVC_ERROR_NULL_ARGUMENT};

TEST(Null, DestroyDoesNothing) {
  kvc_context_destroy(nullptr);
  kvc_cache_destroy(nullptr);
  kvc_plan_destroy(nullptr);
}

// A valid value for every parameter of a call, except the one that is NULL.
struct Valid {
  World world;
  BuiltConfig built{World::default_spec()};
  kvc_context *context = world.context.get(), *made_context = nullptr;
  kvc_cache *cache = world.cache, *made_cache = nullptr;
  kvc_plan *plan = nullptr, *made_plan = nullptr;
  kvc_forward forward = world.begin({world.seq}, {2}), forward_out = 0;
  kvc_seq sequences[1] = {world.seq};
  char text[8];
  int32_t int32s[8] = {};
  int64_t int64s[8] = {};
  uint64_t uint64s[1] = {};
  uint8_t bytes[32] = {};
  kvc_copy copies[8] = {};
  LayerTensors layer{world.spec.layers[0], 2};
  DLTensor tensor = *layer.q.dl();
  DLManagedTensorVersioned *managed = nullptr;
  kvc_cache_config cache_config = built.config;
  kvc_append_args append_args = layer.append_args();
  kvc_attend_args attend_args = layer.attend_args();
  kvc_select_args select_args;
  kvc_context_config context_config;
  kvc_estimate estimate;
  kvc_batch batch;
  kvc_forward_info forward_info;
  kvc_graph_config graph_config;
  kvc_export_args export_args;
  kvc_exported exported;
  kvc_import_args import_args;
  kvc_stats stats;
  kvc_merge_args merge_args;
  kvc_flash_attn_args flash_attn_args;
  kvc_append_slots_args append_slots_args;
  kvc_tables tables;
  kvc_plan_config plan_config;
  kvc_plan_args plan_args;
  kvc_page_keys_args page_keys_args;
  kvc_prefix_query prefix_query;
  kvc_prefix_hit prefix_hit;
  kvc_prefix_options prefix_options;
  kvc_prefix_published prefix_published;
  kvc_events_args events_args;
  kvc_events_range events_range;
  kvc_tier_config tier_config;
  kvc_prefix_load_options prefix_load_options;
  kvc_job job = 0;
  kvc_job_info job_info;
  kvc_pending_options pending_options;
  kvc_pending_info pending_info;
  kvc_tier_traffic tier_traffic;
  kvc_transport transport;
  kvc_receive_args receive_args;
  kvc_transfer transfer = 0;
  kvc_transfer_info transfer_info;
  kvc_save_args save_args;
  kvc_load_args load_args;

  Valid() {
    kvc_context_config_init(&context_config);
    kvc_estimate_init(&estimate);
    kvc_select_args_init(&select_args);
    kvc_batch_init(&batch);
    batch.sequences = sequences;
    batch.append_lengths = int32s;
    batch.num_sequences = 1;
    kvc_forward_info_init(&forward_info);
    kvc_graph_config_init(&graph_config);
    kvc_export_args_init(&export_args);
    kvc_exported_init(&exported);
    kvc_import_args_init(&import_args);
    kvc_stats_init(&stats);
    kvc_merge_args_init(&merge_args);
    kvc_flash_attn_args_init(&flash_attn_args);
    kvc_append_slots_args_init(&append_slots_args);
    kvc_tables_init(&tables);
    kvc_plan_config_init(&plan_config);
    kvc_plan_args_init(&plan_args);
    kvc_page_keys_args_init(&page_keys_args);
    page_keys_args.tokens = int32s, page_keys_args.num_tokens = 8, page_keys_args.page_size = 8;
    page_keys_args.fingerprint = bytes;
    kvc_prefix_query_init(&prefix_query);
    kvc_prefix_hit_init(&prefix_hit);
    kvc_prefix_options_init(&prefix_options);
    kvc_prefix_published_init(&prefix_published);
    kvc_events_args_init(&events_args);
    kvc_events_range_init(&events_range);
    kvc_tier_config_init(&tier_config);
    kvc_prefix_load_options_init(&prefix_load_options);
    kvc_job_info_init(&job_info);
    kvc_pending_options_init(&pending_options);
    kvc_pending_info_init(&pending_info);
    kvc_tier_traffic_init(&tier_traffic);
    kvc_transport_init(&transport);
    kvc_receive_args_init(&receive_args);
    receive_args.num_tokens = 1;
    kvc_transfer_info_init(&transfer_info);
    kvc_save_args_init(&save_args);
    kvc_load_args_init(&load_args);
    load_args.read = [](void *, void *, int64_t) -> int64_t { return 0; };
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_plan_create(context, &plan_config, &plan, &error), KVC_OK) << error.message;
  }
  ~Valid() {
    kvc_plan_destroy(plan);
    EXPECT_EQ(kvc_forward_abort(cache, forward, nullptr), KVC_OK);
  }
};

struct NullCall {
  const char *function, *parameter;
  kvc_status (*call)(Valid &v, kvc_error *error);
};
constexpr NullCall kNullCalls[] = {
#include "null_generated.inc"
};

TEST(Null, EveryPointerThatMayNotBe) {
  Valid v;
  for (const NullCall &c : kNullCalls) {
    refused(v.cache, kNull, c.function, [&](kvc_error *error) { return c.call(v, error); }, {c.parameter});
  }
  EXPECT_EQ(v.made_context, nullptr);
  EXPECT_EQ(v.made_cache, nullptr);
  EXPECT_EQ(v.made_plan, nullptr);
  EXPECT_EQ(v.forward_out, 0u);
  EXPECT_EQ(v.managed, nullptr);
}

TEST(Null, NullableOnes) {
  World w;
  kvc_context *context = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_context_create(nullptr, &context, &error), KVC_OK) << error.message;  // every default
  ContextPtr owner(context);
  EXPECT_EQ(kvc_context_describe(context, nullptr, 0, nullptr, &error), KVC_OK);
  EXPECT_EQ(kvc_context_check(context, nullptr), KVC_OK);
  EXPECT_EQ(kvc_seq_nearest_position(w.cache, w.seq, 3, nullptr, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(kvc_seq_pages(w.cache, w.seq, 0, nullptr, 0, nullptr, nullptr), KVC_OK);
  const kvc_forward f = w.begin({w.seq}, {2});
  EXPECT_EQ(kvc_forward_describe(w.cache, f, nullptr, 0, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(kvc_cache_describe(w.cache, nullptr, 0, nullptr, nullptr), KVC_OK);
  LayerTensors t(w.spec.layers[0], 2);
  kvc_attend_args attend = t.attend_args();
  attend.lse = nullptr;
  EXPECT_EQ(kvc_forward_attend(w.cache, f, 0, &attend, nullptr), KVC_OK);
  EXPECT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
}

TEST(Null, FieldsOfTheCacheConfig) {
  ContextPtr context = make_context();
  BuiltConfig built(World::default_spec());
  kvc_cache *cache = nullptr;
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

TEST(Null, FieldsOfBatchesAndTensors) {
  World w;
  kvc_seq seq = w.seq;
  int32_t two = 2;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq;
  batch.append_lengths = &two;
  batch.num_sequences = 1;
  kvc_forward f = 0;
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
  // The refused calls did not use up the layer's append and attend.
  const kvc_attend_args attend = t.attend_args();
  EXPECT_EQ(kvc_forward_attend(w.cache, f, 0, &attend, nullptr), KVC_OK);
  EXPECT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
}

TEST(Null, FieldsOfImports) {
  World w;
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
