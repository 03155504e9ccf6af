// Caches with tiers: an engine whose K and V are functions of the tokens.
#pragma once

#include <kvcache_tier.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "memory_tier.h"
#include "temporary_folder.h"

namespace kvt {

// A folder that is removed with the object.
struct Folder {
  const std::string path = make_temporary_folder("kvc-tiers-");
  Folder() { EXPECT_NE(path, ""); }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;
};

// Which groups a cache has. Pages have 4 tokens.
struct TieredSpec {
  struct Group {
    int32_t row = KVC_ROW_KV;
    int64_t window = 0;
  };
  std::vector<Group> groups{Group{}};
  std::vector<int32_t> layer_groups;  // the group of each layer; empty = a layer for each group
  int64_t pages = 40;
  int64_t rollback = 0;
  int32_t heads = 1;
  uint8_t model = 7;  // fingerprint
  DLDataType dtype = {kDLFloat, 32, 1};
  uint32_t flags = 0;  // of kvc_cache_config
  int64_t sequences = 6;
  int64_t events = 0, tier_pages = 0;  // events_capacity and events_tier_pages

  size_t num_layers() const { return layer_groups.empty() ? groups.size() : layer_groups.size(); }
  size_t group_of(size_t layer) const {
    return layer_groups.empty() ? layer : static_cast<size_t>(layer_groups[layer]);
  }
  const Group &of_layer(size_t layer) const { return groups[group_of(layer)]; }
};

// An engine. The values that it stores for a token are a hash of all tokens up to it, the layer and the dim.
class TieredEngine {
 public:
  explicit TieredEngine(const TieredSpec &s) : spec(s), context(make_context()) {
    std::vector<kvc_layer_config> layers(s.num_layers());
    std::vector<kvc_group_config> groups(s.groups.size());
    kvc_state_config state;
    kvc_state_config_init(&state);
    state.rank = 1;
    state.shape[0] = kDims;
    bool recurrent = false;
    for (size_t g = 0; g < groups.size(); g++) {
      kvc_group_config_init(&groups[g]);
      groups[g].row = s.groups[g].row;
      recurrent = recurrent || groups[g].row == KVC_ROW_STATE;
      if (groups[g].row == KVC_ROW_STATE) continue;
      groups[g].num_pages = s.pages;
      if (s.groups[g].window > 0)
        groups[g].visibility = KVC_VISIBLE_WINDOW, groups[g].window_tokens = s.groups[g].window;
    }
    for (size_t l = 0; l < layers.size(); l++) {
      kvc_layer_config_init(&layers[l]);
      layers[l].group = static_cast<int32_t>(s.group_of(l));
      if (s.of_layer(l).row == KVC_ROW_STATE) {
        layers[l].num_states = 1;
        layers[l].states = &state;
        continue;
      }
      layers[l].num_q_heads = s.heads;
      layers[l].num_kv_heads = s.heads;
      layers[l].head_dim = kDims;
      layers[l].dtype = s.dtype;
    }
    const std::vector<uint8_t> fingerprint(32, s.model);
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = layers.data(), config.num_layers = static_cast<int32_t>(layers.size());
    config.groups = groups.data(), config.num_groups = static_cast<int32_t>(groups.size());
    config.page_size = 4, config.max_sequences = static_cast<int32_t>(s.sequences), config.max_batch_tokens = 256;
    config.flags = KVC_CACHE_PREFIX_INDEX | (s.rollback == 0 ? KVC_CACHE_NO_ROLLBACK : 0) | s.flags;
    config.rollback_tokens = s.rollback;
    if (recurrent) config.prefix_checkpoints = 16, config.max_checkpoints = 3;
    config.fingerprint = fingerprint.data();
    config.events_capacity = s.events, config.events_tier_pages = s.tier_pages;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_cache_create(context.get(), &config, &made, &error), KVC_OK) << error.message;
  }
  ~TieredEngine() {
    EXPECT_EQ(kvc_cache_check_invariants(made, nullptr), KVC_OK);
    kvc_cache_destroy(made);
  }
  TieredEngine(const TieredEngine &) = delete;
  TieredEngine &operator=(const TieredEngine &) = delete;

  kvc_cache *cache() const { return made; }
  kvc_status add(MemoryTier &tier, int32_t store = KVC_TIER_STORE_PUBLISHED, int64_t min_tokens = 0) {
    const kvc_tier table = tier.table();
    kvc_tier_config config;
    kvc_tier_config_init(&config);
    config.tier = &table;
    config.store = store;
    config.min_tokens = min_tokens;
    return kvc_cache_add_tier(made, &config, nullptr);
  }
  // With KVC_TEST_PINNED=1, the memory is pinned, and has as many blocks, which are 16 times as large.
  kvc_status add_host(int64_t bytes, bool pinned = std::getenv("KVC_TEST_PINNED") != nullptr,
                      kvc_error *error = nullptr, const char *medium = nullptr) {
    kvc_tier_config config;
    kvc_tier_config_init(&config);
    config.flags = pinned ? KVC_TIER_HOST | KVC_TIER_PINNED : KVC_TIER_HOST;
    config.medium = medium;
    config.capacity_bytes = pinned ? bytes * 16 : bytes;
    return kvc_cache_add_tier(made, &config, error);
  }
  kvc_status add(const Folder &folder, int64_t bytes = 0, int32_t sync = KVC_TIER_SYNC_DATA,
                 int32_t store = KVC_TIER_STORE_PUBLISHED) {
    kvc_tier_config config;
    kvc_tier_config_init(&config);
    config.directory = folder.path.c_str();
    config.capacity_bytes = bytes;
    config.sync = sync;
    config.store = store;
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = kvc_cache_add_tier(made, &config, &error);
    EXPECT_EQ(status, KVC_OK) << error.message;
    return status;
  }

  static float value(const Tokens &tokens, size_t position, size_t layer, int part, int64_t dim) {
    uint64_t h = 0x9e3779b97f4a7c15u * (layer * 2 + static_cast<size_t>(part) + 1);
    for (size_t i = 0; i <= position; i++) h = (h ^ static_cast<uint32_t>(tokens[i])) * 0x100000001b3u + 1;
    return static_cast<float>(((h + static_cast<uint64_t>(dim) * 0x9e3779b97f4a7c15u) >> 40) % 4096) / 64.0f;
  }

  // Appends tokens[begin .. end) to a sequence. num_layers: only in the first layers; 0 = in all.
  void compute(kvc_seq seq, const Tokens &tokens, int64_t begin, int64_t end, size_t num_layers = 0) {
    if (begin == end) return;
    const auto count = static_cast<int32_t>(end - begin);
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq, batch.append_lengths = &count, batch.num_sequences = 1;
    batch.layer_end = static_cast<int32_t>(num_layers);
    kvc_forward f = 0;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_forward_begin(made, &batch, nullptr, &f, &error), KVC_OK) << error.message;
    for (size_t l = 0; l < (num_layers == 0 ? spec.num_layers() : num_layers); l++) {
      if (spec.of_layer(l).row == KVC_ROW_STATE) {
        std::vector<float> states = state_of(tokens, end, l);
        int64_t shape[2] = {1, kDims};
        const DLTensor tensor = {states.data(), test_device(), 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
        ASSERT_EQ(kvc_forward_store_state(made, f, static_cast<int32_t>(l), 0, -1, &tensor, &error), KVC_OK)
            << error.message;
        continue;
      }
      std::vector<float> k = rows(tokens, begin, end, l, 0), v = rows(tokens, begin, end, l, 1);
      int64_t shape[3] = {count, spec.heads, kDims};
      const DLTensor tk = {k.data(), test_device(), 3, {kDLFloat, 32, 1}, shape, nullptr, 0};
      const DLTensor tv = {v.data(), test_device(), 3, {kDLFloat, 32, 1}, shape, nullptr, 0};
      kvc_append_args args;
      kvc_append_args_init(&args);
      args.k = &tk, args.v = &tv;
      ASSERT_EQ(kvc_forward_append(made, f, static_cast<int32_t>(l), &args, &error), KVC_OK) << error.message;
    }
    ASSERT_EQ(kvc_forward_end(made, f, &error), KVC_OK) << error.message;
  }
  std::vector<float> rows(const Tokens &tokens, int64_t begin, int64_t end, size_t layer, int part) const {
    std::vector<float> out;
    for (int64_t p = begin; p < end; p++) {
      for (int32_t d = 0; d < spec.heads * kDims; d++)
        out.push_back(value(tokens, static_cast<size_t>(p), layer, part, d));
    }
    return out;
  }
  std::vector<float> state_of(const Tokens &tokens, int64_t length, size_t layer) const {
    std::vector<float> out;
    for (int64_t d = 0; d < kDims; d++) out.push_back(value(tokens, static_cast<size_t>(length - 1), layer, 0, d));
    return out;
  }

  kvc_seq add_sequence() {
    kvc_seq seq = 0;
    EXPECT_EQ(kvc_seq_add(made, 1, &seq, nullptr), KVC_OK);
    return seq;
  }
  void remove(kvc_seq seq) { EXPECT_EQ(kvc_seq_remove(made, 1, &seq, nullptr), KVC_OK); }
  int64_t available_pages(int32_t group) const {
    kvc_stats stats;
    kvc_stats_init(&stats);
    EXPECT_EQ(kvc_cache_stats(made, group, &stats, nullptr), KVC_OK);
    return stats.pages_free + stats.pages_idle;
  }
  // Suspends or resumes, and waits for the end of the job.
  kvc_status move(decltype(kvc_seq_suspend) *call, kvc_seq seq, kvc_error *error = nullptr) {
    kvc_job job = 0;
    if (const kvc_status begun = call(made, seq, &job, error)) return begun;
    EXPECT_NE(job, 0u);
    return end(job, error);
  }
  kvc_status suspend(kvc_seq seq, kvc_error *error = nullptr) { return move(kvc_seq_suspend, seq, error); }
  kvc_status resume(kvc_seq seq, kvc_error *error = nullptr) { return move(kvc_seq_resume, seq, error); }
  kvc_status end(kvc_job job, kvc_error *error = nullptr) {
    kvc_job_info info;
    kvc_job_info_init(&info);
    for (;;) {
      if (const kvc_status polled = kvc_job_poll(made, job, &info, error)) return polled;
      if (info.done != 0) return KVC_OK;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // Attaches the prefix that is found and checks its contents. Computes the rest in steps, which end at each of
  // `publishes`, and publishes there.
  kvc_prefix_hit serve(const Tokens &tokens, uint64_t salt = 0, uint32_t flags = 0,
                       std::vector<int64_t> publishes = {}) {
    const kvc_prefix_query query = Prefix::query(tokens, salt);
    kvc_prefix_hit hit;
    kvc_prefix_hit_init(&hit);
    kvc_seq seq = 0;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_prefix_attach(made, &query, nullptr, &hit, &seq, &error), KVC_OK) << error.message;
    check(seq, tokens, hit.tokens);
    publishes.push_back(static_cast<int64_t>(tokens.size()));
    int64_t done = hit.tokens;
    for (const int64_t end : publishes) {
      if (end < done) continue;
      compute(seq, tokens, done, end);
      done = end;
      kvc_prefix_query part = query;
      part.num_tokens = end;
      kvc_prefix_options options;
      kvc_prefix_options_init(&options);
      options.flags = flags;
      EXPECT_EQ(kvc_prefix_publish(made, seq, &part, &options, nullptr, &error), KVC_OK) << error.message;
    }
    EXPECT_EQ(kvc_seq_remove(made, 1, &seq, nullptr), KVC_OK);
    return hit;
  }

  // Checks that all that a query after `length` tokens sees has the values of these tokens.
  void check(kvc_seq seq, const Tokens &tokens, int64_t length) {
    if (length == 0) return;
    kvc_error error = KVC_ERROR_INIT;
    for (size_t l = 0; l < spec.num_layers(); l++) {
      if (spec.of_layer(l).row == KVC_ROW_STATE) {
        check_state(seq, tokens, length, l);
        continue;
      }
      const int64_t window = spec.of_layer(l).window;
      kvc_export_args args;
      kvc_export_args_init(&args);
      args.layer = static_cast<int32_t>(l);
      args.position_begin = window > 0 ? std::max<int64_t>(0, length - window + 1) : 0;
      args.position_end = length;
      if (args.position_begin == length) continue;
      kvc_exported exported;
      kvc_exported_init(&exported);
      ASSERT_EQ(kvc_seq_export(made, seq, &args, &exported, nullptr, &error), KVC_OK) << error.message;
      for (int part = 0; part < 2; part++) {
        DLManagedTensorVersioned *t = part == 0 ? exported.k : exported.v;
        const auto *data = static_cast<const float *>(t->dl_tensor.data);
        const std::vector<float> expected = rows(tokens, args.position_begin, length, l, part);
        EXPECT_EQ(std::vector(data, data + expected.size()), expected) << "layer " << l << " part " << part;
        t->deleter(t);
      }
    }
  }
  void check_state(kvc_seq seq, const Tokens &tokens, int64_t length, size_t layer) {
    const int32_t one = 1;
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq, batch.append_lengths = &one, batch.num_sequences = 1;
    kvc_forward f = 0;
    ASSERT_EQ(kvc_forward_begin(made, &batch, nullptr, &f, nullptr), KVC_OK);
    std::vector<float> states(kDims);
    int64_t shape[2] = {1, kDims};
    const DLTensor tensor = {states.data(), test_device(), 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
    EXPECT_EQ(kvc_forward_load_state(made, f, static_cast<int32_t>(layer), 0, -1, &tensor, nullptr), KVC_OK);
    EXPECT_EQ(states, state_of(tokens, length, layer));
    EXPECT_EQ(kvc_forward_abort(made, f, nullptr), KVC_OK);
  }

  kvc_tier_traffic traffic() const {
    kvc_tier_traffic t;
    kvc_tier_traffic_init(&t);
    EXPECT_EQ(kvc_cache_tier_traffic(made, &t, nullptr), KVC_OK);
    return t;
  }
  void wait_stored() const {
    while (traffic().pages_waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Evicts all idle pages.
  void forget_all() {
    kvc_prefix_query query;
    kvc_prefix_query_init(&query);
    for (const uint64_t salt : {0, 1, 2, 3}) {
      query.salt = salt;
      EXPECT_EQ(kvc_prefix_drop(made, &query, nullptr, nullptr), KVC_OK);
    }
  }
  kvc_job start(const Tokens &tokens, kvc_prefix_hit *hit = nullptr, uint64_t salt = 0, int64_t token_ns = 0) {
    const kvc_prefix_query query = Prefix::query(tokens, salt);
    kvc_prefix_load_options options;
    kvc_prefix_load_options_init(&options);
    options.token_ns = token_ns;
    if (hit != nullptr) kvc_prefix_hit_init(hit);
    kvc_job job = 0;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_prefix_load(made, &query, &options, hit, &job, &error), KVC_OK) << error.message;
    return job;
  }
  int64_t wait(kvc_job job) {
    kvc_job_info info;
    kvc_job_info_init(&info);
    while (job != 0) {
      EXPECT_EQ(kvc_job_poll(made, job, &info, nullptr), KVC_OK);
      if (info.done != 0) return info.tokens;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return 0;
  }
  int64_t load(const Tokens &tokens, uint64_t salt = 0) { return wait(start(tokens, nullptr, salt)); }

  static constexpr int64_t kDims = 4;
  TieredSpec spec;
  ContextPtr context;
  kvc_cache *made = nullptr;
};

}  // namespace kvt
