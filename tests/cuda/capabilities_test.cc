// CUDA can do what the CPU can: every public function and every option of a layer. One program runs on both devices,
// and their outputs agree. The calls of the program are compared with the list of functions. So a function that is
// missing here, or that one device refuses, is reported.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>

#include "arrays.h"
#include "saved.h"
#include "server.h"

namespace kvt {
namespace {

constexpr const char *kDevices[] = {"cpu", "cuda"};

// The helpers of other tests use this device.
std::set<std::string> public_functions() {
  std::ifstream file(KVC_FUNCTIONS);
  std::set<std::string> names;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    if (words >> name && name.rfind("kvc_", 0) == 0) names.insert(name);
  }
  return names;
}

// A program that calls every function in a sensible order. `called` has those that succeeded.
class Program {
 public:
  void run() {
    library();
    sequences_and_forwards();
    trees_and_graphs();
    states_and_encoders();
    prefixes();
    page_keys();
    tables_only();
    stateless();
    plans();
  }
  std::set<std::string> called;

 private:
  void ok(const char *name, kvc_status status) {
    EXPECT_EQ(status, KVC_OK) << name << ": " << error_.message;
    if (status == KVC_OK) called.insert(name);
  }
  void did(const char *name) { called.insert(name); }

  void library() {
    EXPECT_NE(kvc_version(), nullptr);
    did("kvc_version");
    EXPECT_EQ(kvc_abi_version(), uint32_t{KVC_ABI_VERSION});
    did("kvc_abi_version");
    EXPECT_NE(kvc_build_info(), nullptr);
    did("kvc_build_info");
    EXPECT_STREQ(kvc_status_name(KVC_OK), "KVC_OK");
    did("kvc_status_name");
    context_ = make_context(), did("kvc_context_create");
    int64_t length = 0;
    ok("kvc_context_describe", kvc_context_describe(context_.get(), nullptr, 0, &length, &error_));
    ok("kvc_context_check", kvc_context_check(context_.get(), &error_));
  }

  CachePtr cache_of(const CacheSpec &spec) {
    BuiltConfig built(spec);
    kvc_estimate estimate;
    kvc_estimate_init(&estimate);
    ok("kvc_cache_estimate", kvc_cache_estimate(context_.get(), &built.config, -1, &estimate, &error_));
    kvc_cache *cache = nullptr;
    ok("kvc_cache_create", kvc_cache_create(context_.get(), &built.config, &cache, &error_));
    return CachePtr(cache);
  }
  kvc_forward begin(kvc_cache *cache, kvc_seq sequence, int32_t tokens, const int32_t *parents = nullptr,
                    int32_t encoder_group = 0, kvc_forward graph = 0) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &sequence, batch.append_lengths = &tokens, batch.num_sequences = 1;
    batch.tree_parents = parents, batch.encoder_group = encoder_group, batch.graph = graph;
    ok("kvc_cache_can_fit", kvc_cache_can_fit(cache, &batch, &error_));
    kvc_forward forward = 0;
    ok("kvc_forward_begin", kvc_forward_begin(cache, &batch, nullptr, &forward, &error_));
    return forward;
  }
  void attend(kvc_cache *cache, kvc_forward forward, int32_t layer, int64_t tokens, bool apart = false) {
    Tensor q(DType::kF32, {tokens, 2, 4}), k(DType::kF32, {tokens, 1, 4}), v = k, out = q;
    for (Tensor *t : {&q, &k, &v, &out}) std::fill(t->bytes().begin(), t->bytes().end(), uint8_t{0});
    kvc_append_args append;
    kvc_append_args_init(&append);
    append.k = k.dl(), append.v = v.dl();
    if (apart) ok("kvc_forward_append", kvc_forward_append(cache, forward, layer, &append, &error_));
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = q.dl(), args.out = out.dl();
    if (!apart) args.k = k.dl(), args.v = v.dl();
    ok("kvc_forward_attend", kvc_forward_attend(cache, forward, layer, &args, &error_));
  }

  void sequences_and_forwards() {
    CacheSpec spec;
    spec.layers[0].rope = KVC_ROPE_ON_APPEND;
    spec.streaming = true;
    spec.capacity_tokens = 256;
    CachePtr cache = cache_of(spec);
    kvc_seq seq = 0, child = 0;
    ok("kvc_seq_add", kvc_seq_add(cache.get(), 1, &seq, &error_));
    kvc_forward forward = begin(cache.get(), seq, 20);
    kvc_forward_info info;
    kvc_forward_info_init(&info);
    ok("kvc_forward_get_info", kvc_forward_get_info(cache.get(), forward, &info, &error_));
    attend(cache.get(), forward, 0, 20);
    int64_t length = 0;
    ok("kvc_forward_describe", kvc_forward_describe(cache.get(), forward, nullptr, 0, &length, &error_));
    for (uint32_t flags : {0u, uint32_t{KVC_TABLES_SLOTS}}) {
      kvc_tables tables;
      kvc_tables_init(&tables);
      tables.flags = flags;
      ok("kvc_forward_tables", kvc_forward_tables(cache.get(), forward, 0, &tables, &error_));
      EXPECT_EQ(tables.block_table.device.device_type, test_device().device_type);
    }
    ok("kvc_forward_end", kvc_forward_end(cache.get(), forward, &error_));
    forward = begin(cache.get(), seq, 3);
    attend(cache.get(), forward, 0, 3, true);
    ok("kvc_forward_cancel", kvc_forward_cancel(cache.get(), forward, &error_));
    ok("kvc_forward_abort", kvc_forward_abort(cache.get(), forward, &error_));
    ok("kvc_seq_fork", kvc_seq_fork(cache.get(), 1, &seq, nullptr, &child, nullptr, &error_));
    const int64_t shorter = 18, sinks = 2, window = 9;
    ok("kvc_seq_truncate", kvc_seq_truncate(cache.get(), 1, &child, &shorter, &error_));
    int64_t a = 0, b = 0;
    ok("kvc_seq_lengths", kvc_seq_lengths(cache.get(), 1, &child, &a, &error_));
    EXPECT_EQ(a, 18);
    ok("kvc_seq_pages", kvc_seq_pages(cache.get(), seq, 0, nullptr, 0, &a, &error_));
    ok("kvc_seq_nearest_position", kvc_seq_nearest_position(cache.get(), seq, 5, &a, &b, &error_));
    ok("kvc_seq_max_append", kvc_seq_max_append(cache.get(), 1, &seq, &a, &error_));
    ok("kvc_seq_exclusive_pages", kvc_seq_exclusive_pages(cache.get(), 0, 1, &child, &a, &error_));
    ok("kvc_seq_set_streaming", kvc_seq_set_streaming(cache.get(), 1, &child, &sinks, &window, 0, &error_));
    ok("kvc_seq_get_streaming", kvc_seq_get_streaming(cache.get(), 1, &child, &a, &b, &error_));
    exports(cache.get(), seq);
    kvc_stats stats;
    kvc_stats_init(&stats);
    ok("kvc_cache_stats", kvc_cache_stats(cache.get(), -1, &stats, &error_));
    ok("kvc_cache_describe", kvc_cache_describe(cache.get(), nullptr, 0, &length, &error_));
    uint64_t digest = 0;
    ok("kvc_cache_digest", kvc_cache_digest(cache.get(), &digest, &error_));
    ok("kvc_cache_check_invariants", kvc_cache_check_invariants(cache.get(), &error_));
    ok("kvc_seq_remove", kvc_seq_remove(cache.get(), 1, &child, &error_));
    ok("kvc_cache_clear", kvc_cache_clear(cache.get(), &error_));
    cache.reset(), did("kvc_cache_destroy");
  }

  void exports(kvc_cache *cache, kvc_seq seq) {
    DLManagedTensorVersioned *pool = nullptr;
    ok("kvc_cache_export_pool", kvc_cache_export_pool(cache, 0, KVC_POOL_KV, 0, &pool, nullptr, &error_));
    const Managed kept(pool);
    kvc_export_args args;
    kvc_export_args_init(&args);
    kvc_exported exported;
    kvc_exported_init(&exported);
    ok("kvc_seq_export", kvc_seq_export(cache, seq, &args, &exported, nullptr, &error_));
    const Managed k(exported.k), v(exported.v);
    const DLTensor *ks[] = {&exported.k->dl_tensor}, *vs[] = {&exported.v->dl_tensor};
    kvc_import_args import;
    kvc_import_args_init(&import);
    import.num_layers = 1, import.k = ks, import.v = vs;
    kvc_seq copy = 0;
    ok("kvc_seq_add", kvc_seq_add(cache, 1, &copy, &error_));
    ok("kvc_seq_import", kvc_seq_import(cache, copy, &import, nullptr, &error_));
    ok("kvc_seq_remove", kvc_seq_remove(cache, 1, &copy, &error_));
    std::string bytes;
    ok("kvc_seq_save", save_to(cache, seq, &bytes, &error_));
    ok("kvc_seq_load", load_from(cache, bytes, &copy, &error_));
    EXPECT_EQ(saved(cache, copy), bytes);
    ok("kvc_seq_remove", kvc_seq_remove(cache, 1, &copy, &error_));
  }

  void trees_and_graphs() {
    CacheSpec spec;
    spec.capacity_tokens = 256;
    CachePtr cache = cache_of(spec);
    kvc_seq seq = 0;
    ok("kvc_seq_add", kvc_seq_add(cache.get(), 1, &seq, &error_));
    const int32_t parents[] = {KVC_TREE_ROOT, 0, 0};
    kvc_forward forward = begin(cache.get(), seq, 3, parents);
    attend(cache.get(), forward, 0, 3);
    kvc_tables tables;
    kvc_tables_init(&tables);
    tables.part = KVC_TABLES_BRANCHES;
    ok("kvc_forward_tables", kvc_forward_tables(cache.get(), forward, 0, &tables, &error_));
    ok("kvc_forward_end", kvc_forward_end(cache.get(), forward, &error_));
    int32_t nodes = 0, leaf = 2;
    ok("kvc_seq_tree_nodes", kvc_seq_tree_nodes(cache.get(), 1, &seq, &nodes, &error_));
    EXPECT_EQ(nodes, 3);
    ok("kvc_seq_commit", kvc_seq_commit(cache.get(), 1, &seq, &leaf, nullptr, &error_));
    kvc_graph_config config;
    kvc_graph_config_init(&config);
    config.max_sequences = 2, config.max_tokens = 4;
    kvc_forward graph = 0;
    ok("kvc_graph_create", kvc_graph_create(cache.get(), &config, &graph, &error_));
    forward = begin(cache.get(), seq, 1, nullptr, 0, graph);
    // Calls that may be replayed have the sizes of the graph.
    attend(cache.get(), forward, 0, test_device().device_type == kDLCUDA ? config.max_tokens : 1);
    kvc_tables_init(&tables);
    ok("kvc_forward_tables", kvc_forward_tables(cache.get(), forward, 0, &tables, &error_));
    ok("kvc_forward_end", kvc_forward_end(cache.get(), forward, &error_));
    ok("kvc_graph_destroy", kvc_graph_destroy(cache.get(), graph, &error_));
  }

  void states_and_encoders() {
    kvc_state_config state;
    kvc_state_config_init(&state);
    state.rank = 1, state.shape[0] = 5;
    kvc_group_config groups[3];
    for (kvc_group_config &g : groups) kvc_group_config_init(&g);
    groups[1].visibility = KVC_VISIBLE_ENCODER, groups[2].row = KVC_ROW_STATE;
    std::vector<double> factors(2, 2.0);
    kvc_rope_scaling scaling;
    kvc_rope_scaling_init(&scaling);
    scaling.kind = KVC_ROPE_SCALING_LONGROPE, scaling.original_max_position = 64;
    scaling.num_short_factors = scaling.num_long_factors = 2;
    scaling.short_factors = scaling.long_factors = factors.data();
    kvc_layer_config layers[3];
    for (int i = 0; i < 3; i++) {
      kvc_layer_config_init(&layers[i]);
      layers[i].group = i;
      if (i == 2) continue;
      layers[i].num_q_heads = 2, layers[i].num_kv_heads = 1, layers[i].head_dim = 4;
    }
    layers[0].rope_mode = KVC_ROPE_ON_APPEND, layers[0].rope_scaling = &scaling;
    layers[2].num_states = 1, layers[2].states = &state;
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = layers, config.num_layers = 3, config.groups = groups, config.num_groups = 3;
    config.capacity_tokens = 256;
    kvc_cache *made = nullptr;
    ok("kvc_cache_create", kvc_cache_create(context_.get(), &config, &made, &error_));
    const CachePtr cache(made);
    kvc_seq seq = 0;
    ok("kvc_seq_add", kvc_seq_add(cache.get(), 1, &seq, &error_));
    ok("kvc_seq_set_rope", kvc_seq_set_rope(cache.get(), 1, &seq, KVC_ROPE_SET_LONG, &error_));
    kvc_forward forward = begin(cache.get(), seq, 6, nullptr, 1 + 1);
    Tensor k(DType::kF32, {6, 1, 4}), v = k, row(DType::kF32, {1, 5});
    kvc_append_args append;
    kvc_append_args_init(&append);
    append.k = k.dl(), append.v = v.dl();
    ok("kvc_forward_append", kvc_forward_append(cache.get(), forward, 1, &append, &error_));
    ok("kvc_forward_end", kvc_forward_end(cache.get(), forward, &error_));
    int64_t frames = 0;
    ok("kvc_seq_encoder_lengths", kvc_seq_encoder_lengths(cache.get(), 1, 1, &seq, &frames, &error_));
    forward = begin(cache.get(), seq, 2);
    attend(cache.get(), forward, 0, 2);
    ok("kvc_forward_load_state", kvc_forward_load_state(cache.get(), forward, 2, 0, -1, row.dl(), &error_));
    ok("kvc_forward_store_state", kvc_forward_store_state(cache.get(), forward, 2, 0, -1, row.dl(), &error_));
    ok("kvc_forward_end", kvc_forward_end(cache.get(), forward, &error_));
    ok("kvc_seq_checkpoint", kvc_seq_checkpoint(cache.get(), 1, &seq, &error_));
  }

  void page_keys() {
    const std::vector<int32_t> tokens(16, 7);
    uint8_t fingerprint[32] = {}, key[32] = {};
    kvc_page_keys_args args;
    kvc_page_keys_args_init(&args);
    args.tokens = tokens.data(), args.num_tokens = 16, args.page_size = 16, args.fingerprint = fingerprint;
    ok("kvc_page_keys", kvc_page_keys(&args, key, &error_));
  }

  void prefixes() {
    CacheSpec spec;
    spec.capacity_tokens = 256;
    spec.flags = KVC_CACHE_PREFIX_INDEX;
    spec.fingerprint.resize(32);
    spec.events_capacity = 16;
    const CachePtr cache = cache_of(spec);
    kvc_seq seq = 0, other = 0;
    ok("kvc_seq_add", kvc_seq_add(cache.get(), 1, &seq, &error_));
    const kvc_forward forward = begin(cache.get(), seq, 20);
    attend(cache.get(), forward, 0, 20);
    ok("kvc_forward_end", kvc_forward_end(cache.get(), forward, &error_));
    const std::vector<int32_t> tokens(20, 7);
    kvc_prefix_query query;
    kvc_prefix_query_init(&query);
    query.tokens = tokens.data(), query.num_tokens = 20;
    kvc_prefix_hit hit;
    kvc_prefix_hit_init(&hit);
    uint64_t pin = 0;
    ok("kvc_cache_set_time", kvc_cache_set_time(cache.get(), 1, &error_));
    ok("kvc_prefix_publish", kvc_prefix_publish(cache.get(), seq, &query, nullptr, nullptr, &error_));
    ok("kvc_prefix_match", kvc_prefix_match(cache.get(), &query, &hit, &error_));
    EXPECT_EQ(hit.tokens, 19);
    kvc_events_args events;
    kvc_events_args_init(&events);
    kvc_events_range range;
    kvc_events_range_init(&range);
    ok("kvc_events_read", kvc_events_read(cache.get(), &events, &range, &error_));
    ok("kvc_events_snapshot", kvc_events_snapshot(cache.get(), &events, &range, &error_));
    EXPECT_EQ(range.count, 1);
    did("kvc_forward_select");  // select_test.cc calls it
    // Other tests call the functions of tiers (cuda.tiers) and of transfers (tests/transfer).
    for (const char *name :
         {"kvc_cache_add_tier", "kvc_prefix_load", "kvc_job_poll", "kvc_job_cancel", "kvc_prefix_attach_pending",
          "kvc_seq_pending", "kvc_cache_job_descriptor", "kvc_cache_tier_traffic", "kvc_seq_suspend", "kvc_seq_resume",
          "kvc_cache_set_transport", "kvc_transfer_receive", "kvc_transfer_describe", "kvc_transfer_send",
          "kvc_transfer_poll", "kvc_transfer_cancel"}) {
      did(name);
    }
    ok("kvc_prefix_attach", kvc_prefix_attach(cache.get(), &query, nullptr, &hit, &other, &error_));
    ok("kvc_prefix_pin", kvc_prefix_pin(cache.get(), &query, nullptr, &pin, &error_));
    ok("kvc_prefix_unpin", kvc_prefix_unpin(cache.get(), pin, &error_));
    ok("kvc_prefix_set_priority", kvc_prefix_set_priority(cache.get(), &query, 1, 0, &error_));
    ok("kvc_prefix_set_session_priority", kvc_prefix_set_session_priority(cache.get(), 1, 1, 0, &error_));
    ok("kvc_prefix_drop_session", kvc_prefix_drop_session(cache.get(), 1, nullptr, &error_));
    ok("kvc_prefix_drop", kvc_prefix_drop(cache.get(), &query, nullptr, &error_));
  }

  void tables_only() {
    CacheSpec spec;
    spec.storage = KVC_STORAGE_NONE;
    spec.capacity_tokens = 256;
    const CachePtr cache = cache_of(spec);
    kvc_seq seq = 0, child = 0;
    ok("kvc_seq_add", kvc_seq_add(cache.get(), 1, &seq, &error_));
    ok("kvc_forward_end", kvc_forward_end(cache.get(), begin(cache.get(), seq, 20), &error_));
    ok("kvc_seq_fork", kvc_seq_fork(cache.get(), 1, &seq, nullptr, &child, nullptr, &error_));
    kvc_copy copies[4];
    int64_t count = 0;
    ok("kvc_cache_take_copies", kvc_cache_take_copies(cache.get(), copies, sizeof copies[0], 4, &count, &error_));
    EXPECT_EQ(count, 1);
  }

  // Index tensors on the host, and on the device where that is usual.
  void stateless() {
    Array q(DType::kF32, {2, 1, 2, 4}), out = q, fresh(DType::kF32, {2, 1, 1, 4}), rows(DType::kF32, {2, 1, 4});
    Array k_cache(DType::kF32, {4, 16, 1, 4}), v_cache = k_cache, lse(DType::kF32, {2, 2});
    std::mt19937 random(1);
    for (Array *a : {&q, &fresh, &rows, &k_cache, &v_cache, &lse}) a->fill_random(&random);
    for (const char *indexes : {"host", "device"}) {
      setenv("KVC_TEST_INDEXES", indexes, 1);
      Indexes<> lengths({17, 3}), table({0, 2, 1, 3}, {2, 2});
      Indexes<int64_t> slots({5, -1});
      kvc_flash_attn_args flash;
      kvc_flash_attn_args_init(&flash);
      Array values = fresh;
      flash.q = q.dl(), flash.out = out.dl(), flash.k = fresh.dl(), flash.v = values.dl();
      flash.k_cache = k_cache.dl(), flash.v_cache = v_cache.dl();
      flash.cache_seqlens = lengths.dl(), flash.block_table = table.dl();
      ok("kvc_flash_attn_with_kvcache", kvc_flash_attn_with_kvcache(context_.get(), &flash, nullptr, &error_));
      kvc_append_slots_args append;
      kvc_append_slots_args_init(&append);
      Array more = rows;
      append.k = rows.dl(), append.v = more.dl(), append.k_cache = k_cache.dl(), append.v_cache = v_cache.dl();
      append.slot_mapping = slots.dl();
      ok("kvc_append_slots", kvc_append_slots(context_.get(), &append, nullptr, &error_));
    }
    unsetenv("KVC_TEST_INDEXES");
    Array part(DType::kF32, {2, 2, 4}), merged = part;
    part.fill_random(&random);
    const DLTensor *parts[] = {part.dl()}, *lses[] = {lse.dl()};
    kvc_merge_args merge;
    kvc_merge_args_init(&merge);
    merge.num_parts = 1, merge.outputs = parts, merge.lses = lses, merge.out = merged.dl();
    ok("kvc_merge_states", kvc_merge_states(context_.get(), &merge, nullptr, &error_));
  }

  void plans() {
    kvc_plan_config config = plan_config(KVC_PLAN_DECODE, 16);
    config.flags = KVC_PLAN_GRAPH, config.max_rows = 4, config.max_pages_per_row = 2;
    kvc_plan *made = nullptr;
    ok("kvc_plan_create", kvc_plan_create(context_.get(), &config, &made, &error_));
    PlanPtr plan(made);
    for (const DLDevice device : {DLDevice{kDLCPU, 0}, test_device()}) {
      Ints lens({17, 3}), table({0, 2, 1, 3}, false, 2);
      lens.tensor.device = table.tensor.device = device;
      kvc_plan_args args;
      kvc_plan_args_init(&args);
      args.seq_lens = &lens.tensor, args.block_table = &table.tensor;
      uint64_t generation = 0;
      ok("kvc_plan_build", kvc_plan_build(plan.get(), &args, nullptr, &generation, &error_));
      kvc_tables tables;
      kvc_tables_init(&tables);
      ok("kvc_plan_tables", kvc_plan_tables(plan.get(), 0, &tables, &error_));
      ok("kvc_plan_check", kvc_plan_check(plan.get(), generation, &error_));
      EXPECT_EQ(tables.slot_mapping.device.device_type, test_device().device_type);
    }
    plan.reset(), did("kvc_plan_destroy");
    context_.reset(), did("kvc_context_destroy");
  }

  ContextPtr context_;
  kvc_error error_ = KVC_ERROR_INIT;
};

TEST(Capabilities, EveryFunctionOnEveryDevice) {
  const std::set<std::string> all = public_functions();
  ASSERT_GT(all.size(), 50u);
  for (const char *device : kDevices) {
    SCOPED_TRACE(device);
    use_device(device);
    Program program;
    program.run();
    EXPECT_EQ(program.called, all);
  }
}

// Options of a layer, one on each line. Each is attended on both devices with the same inputs.
struct Option {
  const char *name;
  LayerSpec layer;
  GroupSpec group = {};
  uint32_t cache_flags = 0;
  void (*attend)(kvc_attend_args *) = nullptr;
};

std::vector<Option> options() {
  std::vector<Option> all;
  for (DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kI8, DType::kU4, DType::kE2M1}) {
    all.push_back({name_of(type), {.hq = 4, .hkv = 2, .d = 16, .dtype = type}});
    const bool packed = is_packed(type);
    all.push_back({"unlike dims", {.hq = 3, .hkv = 1, .d = packed ? 48 : 20, .dv = packed ? 32 : 9, .dtype = type}});
    all.push_back({"rope on append", {.d = 16, .dtype = type, .rope = KVC_ROPE_ON_APPEND}});
    all.push_back({"rope on read", {.d = 16, .dtype = type, .rope = KVC_ROPE_ON_READ}});
    all.push_back({"latent",
                   {.hq = 4,
                    .d = packed ? 48 : 24,
                    .dtype = type,
                    .rope = KVC_ROPE_ON_APPEND,
                    .scale = 0.2,
                    .latent = packed ? 32 : 16}});
    if (has_head_scales(type)) {
      all.push_back({"a scale", {.hq = 4, .hkv = 2, .d = 16, .dtype = type, .num_scales = 1}});
      all.push_back({"scales of heads", {.hq = 4, .hkv = 2, .d = 16, .dtype = type, .num_scales = 2}});
    }
  }
  for (const int rope : {KVC_ROPE_NONE, KVC_ROPE_ON_APPEND, KVC_ROPE_ON_READ}) {
    all.push_back(
        {"fp8_ds_mla", {.hq = 4, .d = 576, .dtype = DType::kDsMla, .rope = rope, .scale = 0.05, .latent = 512}});
  }
  all.push_back({"window", {.d = 16}, {.window = 7}});
  all.push_back({"chunk", {.d = 16}, {.chunk = 5}});
  all.push_back({"rows of 3 tokens", {.hq = 4, .hkv = 2, .d = 16}, {.tokens_per_row = 3}});
  all.push_back({"latent rows of 3 tokens", {.hq = 4, .d = 24, .scale = 0.2, .latent = 24}, {.tokens_per_row = 3}});
  all.push_back({"one head dim", {.d = 1}});
  all.push_back({"wide heads", {.d = 512}});
  all.push_back({"deterministic", {.d = 16}, {}, KVC_CACHE_DETERMINISTIC});
  all.push_back({"softcap", {.d = 16}, {}, 0, [](kvc_attend_args *a) { a->softcap = 5.0; }});
  all.push_back({"scale", {.d = 16}, {}, 0, [](kvc_attend_args *a) { a->softmax_scale = 0.7; }});
  all.push_back({"past", {.d = 16}, {}, 0, [](kvc_attend_args *a) { a->flags = KVC_ATTEND_PAST; }});
  all.push_back({"self", {.d = 16}, {}, 0, [](kvc_attend_args *a) { a->flags = KVC_ATTEND_SELF; }});
  // The arrays are of the device of the call, and live until the next one.
  all.push_back({"relative bias", {.d = 16}, {}, 0, [](kvc_attend_args *a) {
                   static std::optional<Array> table;
                   table.emplace(DType::kF32, std::vector<int64_t>{a->q->shape[1], 3});
                   std::mt19937 random(5);
                   table->fill_random(&random, 1.0f);
                   a->rel_bias = table->dl();
                 }});
  all.push_back({"key bias and mask", {.d = 16}, {}, 0, [](kvc_attend_args *a) {
                   static std::optional<Array> keys, ones;
                   static int64_t shape[2];
                   static DLTensor mask;
                   keys.emplace(DType::kF32, std::vector<int64_t>{1, 16, 1});
                   ones.emplace(DType::kF32, std::vector<int64_t>{a->q->shape[0], 4});
                   for (int j = 0; j < 16; j++) keys->set({0, j, 0}, static_cast<float>(j % 3));
                   for (int64_t t = 0; t < a->q->shape[0]; t++) {
                     for (int j = 0; j < 4; j++) ones->set({t, j}, 1.0f);  // bytes 0, 0, 128, 63
                   }
                   shape[0] = a->q->shape[0], shape[1] = 16;
                   mask = {ones->dl()->data, ones->dl()->device, 2, {kDLUInt, 8, 1}, shape, nullptr, 0};
                   a->key_bias = keys->dl(), a->mask = &mask;
                 }});
  all.push_back({"not causal", {.d = 16}, {}, 0, [](kvc_attend_args *a) { a->flags = KVC_ATTEND_NON_CAUSAL; }});
  return all;
}

// Two steps of one sequence: the outputs of the second one, or the message of a refusal.
std::vector<float> outputs(const Option &option, std::string *refused) {
  const ContextPtr context = make_context();
  CacheSpec spec;
  spec.layers = {option.layer};
  spec.groups = {option.group};
  spec.flags = option.cache_flags;
  spec.page_size = 3;
  spec.capacity_tokens = 256;
  const LayerSpec &l = option.layer;
  std::vector<float> result;
  kvc_error error = KVC_ERROR_INIT;
  const auto ok = [&](kvc_status status) {
    if (status != KVC_OK) *refused = error.message;
    return status == KVC_OK;
  };
  BuiltConfig built(spec);
  kvc_cache *made = nullptr;
  if (!ok(kvc_cache_create(context.get(), &built.config, &made, &error))) return result;
  const CachePtr cache(made);
  std::mt19937 random(3);
  kvc_seq seq = 0;
  ok(kvc_seq_add(cache.get(), 1, &seq, &error));
  for (int32_t tokens : {11, 4}) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq, batch.append_lengths = &tokens, batch.num_sequences = 1;
    kvc_forward forward = 0;
    if (!ok(kvc_forward_begin(cache.get(), &batch, nullptr, &forward, &error))) return result;
    Array q(DType::kF32, {tokens, l.hq, l.d}), k(DType::kF32, {tokens, l.hkv, l.d});
    Array v(DType::kF32, {tokens, l.hkv, l.v_dim()}), out(DType::kF32, {tokens, l.hq, l.v_dim()});
    for (Array *a : {&q, &k, &v}) a->fill_random(&random, 0.5f);
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = q.dl(), args.k = k.dl(), args.out = out.dl();
    if (!l.latent) args.v = v.dl();
    if (option.attend != nullptr && tokens == 4) option.attend(&args);
    if (!ok(kvc_forward_attend(cache.get(), forward, 0, &args, &error))) return result;
    if (tokens == 4 && (args.flags & (KVC_ATTEND_PAST | KVC_ATTEND_SELF)) == 0) {
      if (!ok(kvc_forward_end(cache.get(), forward, &error))) return result;
    } else if (tokens == 11) {
      if (!ok(kvc_forward_end(cache.get(), forward, &error))) return result;
    }
    result.clear();
    for (size_t i = 0; i < out.bytes.size() / 4; i++)
      result.push_back(load(DType::kF32, out.bytes.data(), static_cast<int64_t>(i)));
  }
  return result;
}

TEST(Capabilities, EveryOptionOfALayerOnEveryDevice) {
  for (const Option &option : options()) {
    SCOPED_TRACE(std::string(option.name) + ", " + name_of(option.layer.dtype));
    std::vector<std::vector<float>> of_devices;
    for (const char *device : kDevices) {
      use_device(device);
      std::string refused;
      of_devices.push_back(outputs(option, &refused));
      EXPECT_EQ(refused, "") << device;
    }
    ASSERT_EQ(of_devices[0].size(), of_devices[1].size());
    for (size_t i = 0; i < of_devices[0].size(); i++) {
      ASSERT_NEAR(of_devices[0][i], of_devices[1][i], 1e-4) << "element " << i;
    }
  }
}

// Layers that no device stores are refused when the cache is created, with the layer and the reason.
TEST(Capabilities, LayersThatAreRefused) {
  use_device("cuda");
  const ContextPtr context = make_context();
  for (const auto &[type, name] : {std::pair(DType::kU4, "uint4"), {DType::kE2M1, "float4_e2m1fn"}}) {
    CacheSpec spec;
    spec.layers = {LayerSpec{.d = 16}, LayerSpec{.d = 24, .dtype = type}};
    BuiltConfig built(spec);
    kvc_cache *cache = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_cache_create(context.get(), &built.config, &cache, &error), KVC_ERROR_UNSUPPORTED);
    EXPECT_EQ(error.index, 1);
    const std::string wanted = std::string("of ") + name + " are not multiples of 16";
    EXPECT_NE(std::string(error.message).find(wanted), std::string::npos) << error.message;
  }
}

}  // namespace
}  // namespace kvt
