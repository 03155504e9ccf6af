// Contexts, caches, sequences.
#include <algorithm>

#include "objects.h"
#include "pools.h"

namespace fuzz {
namespace {

void host_pool(void *, int64_t n, kvc_parallel_item_fn item, void *arg) {
  while (n-- > 0) item(arg, n);
}

void draw_rope(World &w, Cache *c, kvc_layer_config *layer) {
  kvc_rope_scaling &scaling = c->scalings.emplace_back();
  kvc_rope_scaling_init(&scaling);
  layer->rope_mode = w.in.number(1 + static_cast<int32_t>(w.in.below(2)));
  layer->rope_dim = w.in.number(layer->latent_dim ? layer->head_dim - layer->latent_dim : 4);
  w.in.numbers(layer->rope_theta, layer->rope_offset);
  scaling.kind = static_cast<int32_t>(w.in.below(5));
  if (scaling.kind == KVC_ROPE_SCALING_NONE) return;
  layer->rope_scaling = &scaling;
  if (scaling.kind != KVC_ROPE_SCALING_LONGROPE) scaling.factor = 4;
  if (scaling.kind != KVC_ROPE_SCALING_LINEAR) scaling.original_max_position = 16;
  if (scaling.kind == KVC_ROPE_SCALING_LLAMA3) scaling.low_freq_factor = 1, scaling.high_freq_factor = 4;
  if (scaling.kind == KVC_ROPE_SCALING_LONGROPE) {
    const int half = layer->rope_dim / 2;
    scaling.num_short_factors = scaling.num_long_factors = w.in.count(std::clamp(half, 0, 8), 1024);
    scaling.short_factors = c->factors.emplace_back(8, 1.5).data();
    scaling.long_factors = c->factors.emplace_back(8, 2.5).data();
  }
  w.in.size_of(scaling);
  w.in.numbers(scaling.kind, scaling.flags, scaling.reserved, scaling.original_max_position, scaling.factor,
               scaling.low_freq_factor, scaling.high_freq_factor, scaling.beta_fast, scaling.beta_slow,
               scaling.attention_factor, scaling.mscale, scaling.mscale_all_dim);
}

kvc_layer_config draw_layer(World &w, Cache *c, int group) {
  kvc_layer_config layer;
  kvc_layer_config_init(&layer);
  layer.group = w.in.number(group);
  const int row = c->groups[group].row;
  if (row == KVC_ROW_STATE) {
    layer.states = c->states;
    layer.num_states = w.in.count(2, 16);
    return layer;
  }
  layer.num_kv_heads = row == KVC_ROW_LATENT ? 1 : static_cast<int32_t>(w.in.between(1, 2));
  layer.num_q_heads = layer.num_kv_heads * static_cast<int32_t>(w.in.between(1, 3));
  layer.head_dim = 4 * static_cast<int32_t>(w.in.between(1, 4));
  layer.dtype = kvt::dl_type(static_cast<kvt::DType>(w.in.below(6)));
  if (row == KVC_ROW_LATENT) {
    layer.head_dim = 12;
    layer.latent_dim = 8;
    layer.softmax_scale = 0.25;
  } else if (w.in.one_in(3)) {
    layer.v_head_dim = 6;
  }
  // Float4 has dims of 16. No byte is drawn for it and for fp8_ds_mla, so inputs that were found before keep their
  // meaning.
  if (layer.head_dim == 16 && layer.v_head_dim == 0 && layer.dtype.code == kDLFloat8_e5m2) {
    layer.dtype = kvt::dl_type(kvt::DType::kE2M1);
  }
  if (row == KVC_ROW_LATENT && layer.num_q_heads == 3 && layer.dtype.code == kDLFloat8_e5m2) {
    layer.row_format = KVC_ROW_FORMAT_FP8_DS_MLA;
    layer.dtype = {0, 0, 0};
    layer.head_dim = 576;
    layer.latent_dim = 512;
  }
  if (c->groups[group].visibility != KVC_VISIBLE_ENCODER && w.in.one_in(3)) draw_rope(w, c, &layer);
  if (layer.dtype.code == kDLFloat8_e4m3fn && w.in.one_in(2)) {
    layer.num_scales = w.in.count(layer.num_kv_heads, 4096);
    layer.k_scales = c->scales.emplace_back(4, 1.0f).data();
    if (row != KVC_ROW_LATENT) layer.v_scales = c->scales.emplace_back(4, 1.0f).data();
  }
  if (w.in.wrong()) layer.dtype = {static_cast<uint8_t>(w.in.below(20)), static_cast<uint8_t>(w.in.below(80)), 1};
  w.in.size_of(layer);
  w.in.numbers(layer.num_kv_heads, layer.num_q_heads, layer.head_dim, layer.v_head_dim, layer.flags, layer.kv_layer,
               layer.softmax_scale, layer.latent_dim, layer.total_kv_heads);
  if (layer.row_format != 0) w.in.numbers(layer.row_format, layer.reserved);
  return layer;
}

void draw_config(World &w, Cache *c) {
  kvc_cache_config &config = c->config;
  kvc_cache_config_init(&config);
  for (kvc_state_config &state : c->states) {
    kvc_state_config_init(&state);
    state.rank = w.in.number(2);
    state.shape[0] = state.shape[1] = 3;
    w.in.numbers(state.shape[1], state.reserved);
  }
  for (int64_t g = w.in.between(1, 3); g-- > 0;) {
    kvc_group_config &group = c->groups.emplace_back();
    kvc_group_config_init(&group);
    const int32_t drawn = w.in.byte(), kind = drawn % 9;  // each kind of row with each visibility, and states
    // Few bytes draw it, so that older inputs keep their meaning: two for full groups, and one for a group without
    // rows. -1 stands for the page size, which is drawn later.
    if (drawn == 252 || drawn == 247 || drawn == 251) group.tokens_per_row = -1;
    group.row = kind == 8 ? KVC_ROW_STATE : kind / 4;
    group.visibility = kind % 4;
    if (group.visibility == KVC_VISIBLE_WINDOW) group.window_tokens = w.in.between(1, 9);
    if (group.visibility == KVC_VISIBLE_CHUNK) group.chunk_tokens = w.in.between(1, 9);
    if (w.in.one_in(2)) group.num_pages = 12;
  }
  for (size_t g = 0; g < c->groups.size(); g++) c->layers.push_back(draw_layer(w, c, static_cast<int>(g)));
  if (w.in.one_in(4) && c->groups[0].row != KVC_ROW_STATE) {  // a layer that reads the K and V of layer 0
    c->layers.push_back(c->layers[0]);
    c->layers.back().kv_layer = 1;
    c->layers.back().num_scales = 0;
    c->layers.back().k_scales = c->layers.back().v_scales = nullptr;
  }
  for (kvc_group_config &group : c->groups) {
    w.in.size_of(group);
    w.in.numbers(group.row, group.visibility, group.window_tokens, group.chunk_tokens, group.num_pages);
  }
  config.layers = w.in.pointer(c->layers.data());
  config.groups = w.in.pointer(c->groups.data());
  config.num_layers = w.in.count(static_cast<int32_t>(c->layers.size()), 4096);
  config.num_groups = w.in.count(static_cast<int32_t>(c->groups.size()), 64);
  config.page_size = static_cast<int32_t>(w.in.between(1, 5));
  for (kvc_group_config &group : c->groups) {
    if (group.tokens_per_row < 0) group.tokens_per_row = config.page_size;
  }
  config.max_sequences = 6;
  config.max_batch_tokens = 24;
  config.max_tree_nodes = 8;
  config.max_checkpoints = 0;
  config.capacity_tokens = 96;
  for (const kvc_group_config &group : c->groups) {
    if (group.row == KVC_ROW_STATE)
      config.max_checkpoints = 2, config.max_draft_states = config.page_size % 2 == 0 ? 3 : 0;
  }
  constexpr uint32_t kFlags[] = {0, KVC_CACHE_NO_ROLLBACK, KVC_CACHE_SHARE_ALL_PREFIXES, KVC_CACHE_DETERMINISTIC};
  config.flags = kFlags[w.in.below(4)];
  const auto full = [](const kvc_group_config &g) { return g.row != KVC_ROW_STATE && g.visibility == KVC_VISIBLE_ALL; };
  if (std::any_of(c->groups.begin(), c->groups.end(), full)) config.flags |= KVC_CACHE_STREAMING;
  if (w.in.one_in(6)) config.storage = KVC_STORAGE_NONE;
  if (c == &w.caches[0]) {
    static const uint8_t model[32] = {1};
    config.flags |= KVC_CACHE_PREFIX_INDEX;
    config.fingerprint = model;
    config.events_capacity = 16;
    config.events_tier_pages = 5;
  }
  w.in.size_of(config);
  w.in.numbers(config.flags, config.page_size, config.max_sequences, config.max_batch_tokens, config.max_open_forwards,
               config.rollback_tokens, config.capacity_tokens, config.capacity_pages, config.capacity_bytes,
               config.max_tree_nodes, config.max_checkpoints, config.storage, config.prefix_policy);
}

// Sets every element of a pool to NaN, so that an export shows slots in which nothing was stored.
void poison(World &w, Cache &c) {
  for (int layer = 0; layer < static_cast<int>(c.layers.size()); layer++) {
    for (const int32_t pool : {KVC_POOL_K, KVC_POOL_V, KVC_POOL_K_SCALE, KVC_POOL_V_SCALE}) {
      if (pool >= KVC_POOL_K_SCALE && c.layers[layer].dtype.code != kDLInt) continue;
      DLManagedTensorVersioned *view = nullptr;
      if (CALL(kvc_cache_export_pool, c.cache, layer, pool, KVC_POOL_WRITABLE, &view, nullptr, w.error())) continue;
      const DLTensor &t = view->dl_tensor;
      const int64_t row = t.ndim == 4 ? t.shape[3] * t.dtype.bits / 8 : 4, step = t.dtype.bits / 8;
      for (int64_t i = 0; i < t.shape[0] * t.shape[1] * t.shape[2]; i++) {
        const int64_t slot = i % t.shape[2], head = i / t.shape[2] % t.shape[1], page = i / t.shape[2] / t.shape[1];
        char *at = static_cast<char *>(t.data) + t.byte_offset +
                   (page * t.strides[0] + head * t.strides[1] + slot * t.strides[2]) * step;
        std::memset(at, 0xff, static_cast<size_t>(row));
      }
      view->deleter(view);
    }
  }
}

}  // namespace

void create_cache(World &w, Cache *c) {
  draw_config(w, c);
  const bool exact = !w.in.fired();
  std::vector<int64_t> pages;
  for (int32_t g = 0; exact && w.in.one_in(3) && g < c->config.num_groups; g++) {
    kvc_estimate estimate;
    kvc_estimate_init(&estimate);
    if (CALL(kvc_cache_estimate, w.context, &c->config, g, &estimate, w.error())) break;
    pages.push_back(estimate.num_pages);
  }
  if (c->config.storage == KVC_STORAGE_OWN && pages.size() == c->groups.size()) {
    kvt::add_pools(kvt::kAdoptedLayouts[w.in.below(6)], pages, c->config.page_size, &c->layers);
  }
  const kvc_status status =
      CALL(kvc_cache_create, w.some_context(), w.in.pointer(&c->config), w.in.pointer(&c->cache), w.error());
  if (status == KVC_OK && exact) return poison(w, *c);
  if (status != KVC_OK) kvt::drop_pools(&c->layers);
  w.close(c);  // the model cannot follow a hostile config
}

void call_context(World &w) {
  int64_t length = 0;
  const int64_t capacity = w.in.one_in(2) ? 400 : w.in.below(200);
  char *buffer = w.allocate(static_cast<size_t>(capacity));
  kvc_context_config config;
  kvc_context *other = nullptr;
  switch (w.in.below(6)) {
    case 0:
      CALL(kvc_version), CALL(kvc_abi_version), CALL(kvc_build_info);
      CALL(kvc_status_name, w.in.number(static_cast<kvc_status>(w.in.below(512))));
      CALL(kvc_get_api, w.in.number(static_cast<uint32_t>(KVC_ABI_VERSION)));
      break;
    case 1:
      CALL(kvc_context_describe, w.some_context(), w.in.pointer(buffer), w.in.fewer(capacity), w.in.pointer(&length),
           w.error());
      break;
    case 2:
      CALL(kvc_context_check, w.some_context(), w.error());
      break;
    case 3: {
      Cache &c = w.caches[0];
      kvc_estimate estimate;
      kvc_estimate_init(&estimate);
      w.in.size_of(estimate);
      CALL(kvc_cache_estimate, w.some_context(), w.in.pointer(&c.config), w.in.number(-1), w.in.pointer(&estimate),
           w.error());
      break;
    }
    default:
      kvc_context_config_init(&config);
      config.num_threads = 1;
      config.simd = w.in.one_in(3) ? "reference" : w.in.one_in(3) ? "no target" : nullptr;
      config.parallel_for = w.in.one_in(3) ? host_pool : nullptr;
      config.backend = w.in.wrong() ? "no/such/file.so" : nullptr;
      config.flags = w.in.one_in(3) ? KVC_CONTEXT_VALIDATE : 0;
      w.in.size_of(config);
      w.in.numbers(config.device_type, config.device_id, config.num_threads, config.flags, config.reserved);
      if (config.device_type != 0) config.backend = "no/such/file.so";  // no such file exists
      CALL(kvc_context_create, w.in.pointer(&config), w.in.pointer(&other), w.error());
      CALL(kvc_context_destroy, other);
  }
}

void call_cache(World &w) {
  Cache &c = w.some_cache();
  kvc_stats stats;
  kvc_stats_init(&stats);
  uint64_t digest = 0;
  switch (w.in.below(6)) {
    case 0:
      w.close(&w.caches[1]);
      create_cache(w, &w.caches[1]);
      break;
    case 1:
      CALL(kvc_cache_destroy, w.caches[1].cache);
      w.caches[1] = Cache();
      break;
    case 2:
      if (w.in.one_in(4) && CALL(kvc_cache_clear, w.handle(c), w.error()) == KVC_OK) {
        for (const Sequence &s : c.sequences) c.stale.push_back(s.id);
        c.sequences.clear();
      }
      break;
    case 3:
      w.in.size_of(stats);
      CALL(kvc_cache_stats, w.handle(c), w.in.number(static_cast<int32_t>(w.in.below(4)) - 1), w.in.pointer(&stats),
           w.error());
      break;
    case 4:
      CALL(kvc_cache_digest, w.handle(c), w.in.pointer(&digest), w.error());
      break;
    default:
      CALL(kvc_cache_check_invariants, w.handle(c), w.error());
      char *text = w.allocate(4000);
      CALL(kvc_cache_describe, w.handle(c), w.in.pointer(text), w.in.fewer(4000), nullptr, w.error());
  }
}

}  // namespace fuzz
