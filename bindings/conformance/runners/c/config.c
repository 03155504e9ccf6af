/* Contexts, configurations, caches. */
#include <stdlib.h>
#include <string.h>

#include "runner.h"

enum { MAX_LAYERS = 64, MAX_GROUPS = 16, MAX_STATES = 16 };

static kvc_layer_config layers[MAX_LAYERS];
static kvc_group_config groups[MAX_GROUPS];
static kvc_state_config states[MAX_LAYERS][MAX_STATES];
static kvc_rope_scaling scalings[MAX_LAYERS];
static int32_t num_layers, num_groups;

void clear_config(void);
void clear_config(void) { num_layers = num_groups = 0; }

static kvc_status version(void) {
  (void)kvc(abi_version)();
  if (strstr(kvc(build_info)(), kvc(version)()) == NULL) fail("build_info has not the version", "");
  result_text("version", kvc(version)());
  return KVC_OK;
}

static kvc_status context_create(void) {
  kvc_context_config config;
  kvc_context_config_init(&config);
  config.num_threads = (int32_t)integer("threads", 0);
  config.simd = text("simd");
  kvc_context *made = NULL;
  const kvc_status status = kvc(context_create)(&config, &made, &error);
  if (status == KVC_OK) bind_context(made);
  return status;
}

static kvc_status context_describe(void) {
  char buffer[4096];
  return kvc(context_describe)(context(), buffer, sizeof(buffer), NULL, &error);
}

static kvc_status context_check(void) { return kvc(context_check)(context(), &error); }

static kvc_status context_close(void) {
  kvc(context_destroy)(context());
  bind_context(NULL);
  return KVC_OK;
}

static kvc_status add_group(void) {
  static const char *const rows[] = {"kv", "latent", "state", NULL};
  static const char *const visibilities[] = {"all", "window", "chunk", "encoder", NULL};
  if (num_groups == MAX_GROUPS) fail("too many groups", "");
  kvc_group_config *group = &groups[num_groups++];
  kvc_group_config_init(group);
  group->row = choice("row", rows);
  group->visibility = choice("visibility", visibilities);
  group->window_tokens = integer("window", 0);
  group->chunk_tokens = integer("chunk", 0);
  group->num_pages = integer("pages", 0);
  group->tokens_per_row = (int32_t)integer("tokens_per_row", 0);
  return KVC_OK;
}

static const kvc_rope_scaling *read_scaling(kvc_rope_scaling *scaling) {
  static const char *const kinds[] = {"none", "linear", "llama3", "yarn", "longrope", NULL};
  int64_t count;
  if (!text("scaling")) return NULL;
  kvc_rope_scaling_init(scaling);
  scaling->kind = choice("scaling", kinds);
  scaling->factor = number("factor");
  scaling->original_max_position = integer("original", 0);
  scaling->low_freq_factor = number("low_freq");
  scaling->high_freq_factor = number("high_freq");
  scaling->beta_fast = number("beta_fast");
  scaling->beta_slow = number("beta_slow");
  scaling->attention_factor = number("attention_factor");
  scaling->short_factors = doubles("short", &count);
  scaling->num_short_factors = (int32_t)count;
  scaling->long_factors = doubles("long", &count);
  scaling->num_long_factors = (int32_t)count;
  return scaling;
}

/* A caller's pool as the cache adopts it: it lives as long as the script, so it needs no deleter. */
static DLManagedTensorVersioned *adopted(const char *key) {
  const DLTensor *pool = tensor(key);
  if (!pool) return NULL;
  DLManagedTensorVersioned *managed = take(sizeof(*managed));
  managed->version.major = DLPACK_MAJOR_VERSION;
  managed->version.minor = DLPACK_MINOR_VERSION;
  managed->dl_tensor = *pool;
  return managed;
}

static void read_storage(kvc_layer_config *layer) {
  int64_t num_k, num_v;
  layer->k_scales = floats("k_scales", &num_k);
  layer->v_scales = floats("v_scales", &num_v);
  layer->num_scales = (int32_t)num_k;
  layer->kv_storage = adopted("kv_storage");
  layer->k_storage = adopted("k_storage");
  layer->v_storage = adopted("v_storage");
}

static kvc_status add_layer(void) {
  static const char *const ropes[] = {"none", "on_append", "on_read", NULL};
  static const char *const row_formats[] = {"dtype",      "fp8_ds_mla", "fp8_ds_v4",    "mxfp4", "mxfp8",
                                            "fp8_blocks", "nvfp4",      "nvfp4_ds_mla", NULL};
  if (num_layers == MAX_LAYERS) fail("too many layers", "");
  kvc_layer_config *layer = &layers[num_layers];
  kvc_layer_config_init(layer);
  layer->group = (int32_t)integer("group", 0);
  if (flag("recurrent")) {
    layer->states = states[num_layers++];
    return KVC_OK;
  }
  layer->num_q_heads = (int32_t)integer("q_heads", 1);
  layer->num_kv_heads = (int32_t)integer("kv_heads", 1);
  layer->head_dim = (int32_t)integer("head_dim", 0);
  layer->v_head_dim = (int32_t)integer("v_head_dim", 0);
  layer->dtype = dtype("dtype");
  layer->rope_mode = choice("rope", ropes);
  layer->rope_dim = (int32_t)integer("rope_dim", 0);
  layer->rope_offset = (int32_t)integer("rope_offset", 0);
  layer->flags =
      (flag("rope_interleaved") ? KVC_LAYER_ROPE_INTERLEAVED : 0) | (flag("keys_only") ? KVC_LAYER_KEYS_ONLY : 0);
  layer->rope_theta = number("rope_theta");
  layer->rope_scaling = read_scaling(&scalings[num_layers]);
  layer->softmax_scale = number("softmax_scale");
  layer->kv_layer = (int32_t)integer("kv_layer", -1) + 1;
  layer->latent_dim = (int32_t)integer("latent_dim", 0);
  layer->total_kv_heads = (int32_t)integer("total_kv_heads", 0);
  layer->row_format = choice("row_format", row_formats);
  read_storage(layer);
  num_layers++;
  return KVC_OK;
}

static kvc_status add_state(void) {
  if (num_layers == 0 || layers[num_layers - 1].num_states == MAX_STATES) fail("a state of no layer", "");
  kvc_layer_config *layer = &layers[num_layers - 1];
  kvc_state_config *state = &states[num_layers - 1][layer->num_states++];
  int64_t rank;
  kvc_state_config_init(state);
  const int64_t *shape = integers("shape", &rank);
  state->rank = (int32_t)rank;
  for (int64_t i = 0; i < rank && i < 4; i++) state->shape[i] = shape[i];
  state->dtype = dtype("dtype");
  state->fill = number("fill");
  return KVC_OK;
}

static kvc_cache_config read_sizes(void) {
  static const char *const sharing[] = {"auto", "never", "always", NULL};
  static const uint32_t sharing_flags[] = {0, KVC_CACHE_NO_PREFIX_SHARING, KVC_CACHE_SHARE_ALL_PREFIXES};
  static const char *const storages[] = {"own", "none", NULL};
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = layers;
  config.num_layers = num_layers;
  config.groups = num_groups ? groups : NULL;
  config.num_groups = num_groups;
  config.page_size = (int32_t)integer("page_size", 0);
  config.capacity_tokens = integer("capacity_tokens", 0);
  config.capacity_pages = integer("capacity_pages", 0);
  config.capacity_bytes = integer("capacity_bytes", 0);
  config.max_sequences = (int32_t)integer("max_sequences", 0);
  config.max_batch_tokens = (int32_t)integer("max_batch_tokens", 0);
  config.max_open_forwards = (int32_t)integer("max_open_forwards", 0);
  config.max_tree_nodes = (int32_t)integer("max_tree_nodes", 0);
  config.max_checkpoints = (int32_t)integer("max_checkpoints", 0);
  config.max_draft_states = (int32_t)integer("max_draft_states", 0);
  config.tp_size = (int32_t)integer("tp_size", 0);
  config.tp_rank = (int32_t)integer("tp_rank", 0);
  config.rollback_tokens = integer("rollback_tokens", 0);
  if (text("rollback_tokens") && config.rollback_tokens == 0) config.flags |= KVC_CACHE_NO_ROLLBACK;
  if (flag("streaming")) config.flags |= KVC_CACHE_STREAMING;
  if (flag("prefix_index")) config.flags |= KVC_CACHE_PREFIX_INDEX;
  config.prefix_pages = integer("prefix_pages", 0);
  config.prefix_checkpoints = integer("prefix_checkpoints", 0);
  const char *policy = text("prefix_policy");
  if (policy && strcmp(policy, "lru") == 0) config.prefix_policy = KVC_PREFIX_POLICY_LRU;
  int64_t n = 0;
  config.fingerprint = hex_bytes("fingerprint", &n);
  config.events_capacity = integer("events_capacity", 0);
  config.events_tier_pages = integer("events_tier_pages", 0);
  if (flag("zero_on_free")) config.flags |= KVC_CACHE_ZERO_ON_FREE;
  if (flag("deterministic")) config.flags |= KVC_CACHE_DETERMINISTIC;
  config.flags |= sharing_flags[choice("sharing", sharing)];
  config.storage = choice("storage", storages);
  return config;
}

static kvc_status estimate(void) {
  kvc_cache_config config = read_sizes();
  kvc_estimate result;
  kvc_estimate_init(&result);
  const kvc_status status = kvc(cache_estimate)(context(), &config, (int32_t)integer("group", -1), &result, &error);
  result_integer("num_pages", result.num_pages);
  result_integer("page_bytes", result.page_bytes);
  result_integer("token_bytes", result.token_bytes);
  result_integer("storage_bytes", result.storage_bytes);
  return status;
}

static kvc_status cache_create(void) {
  kvc_cache_config config = read_sizes();
  kvc_cache *made = NULL;
  const kvc_status status = kvc(cache_create)(context(), &config, &made, &error);
  if (status == KVC_OK) bind_cache(made);
  clear_config();
  return status;
}

static kvc_status cache_close(void) {
  kvc(cache_destroy)(cache());
  bind_cache(NULL);
  return KVC_OK;
}

static kvc_status digest(void) {
  uint64_t value = 0;
  const kvc_status status = kvc(cache_digest)(cache(), &value, &error);
  result_digits("digest", value);
  return status;
}

static kvc_status cache_describe(void) {
  char buffer[4096];
  return kvc(cache_describe)(cache(), buffer, sizeof(buffer), NULL, &error);
}

static kvc_status stats(void) {
  kvc_stats stats;
  kvc_stats_init(&stats);
  const kvc_status status = kvc(cache_stats)(cache(), (int32_t)integer("group", -1), &stats, &error);
  result_integer("num_sequences", stats.num_sequences);
  result_integer("pages_total", stats.pages_total);
  result_integer("pages_used", stats.pages_used);
  result_integer("pages_free", stats.pages_free);
  result_integer("pages_shared", stats.pages_shared);
  result_integer("pages_peak", stats.pages_peak);
  result_integer("tokens_held", stats.tokens_held);
  result_integer("tokens_shared", stats.tokens_shared);
  result_integer("tokens_logical", stats.tokens_logical);
  result_integer("fragmentation_bytes", stats.fragmentation_bytes);
  result_integer("storage_bytes", stats.storage_bytes);
  return status;
}

const operation config_operations[] = {
    {"version", version},
    {"context_create", context_create},
    {"context_describe", context_describe},
    {"context_check", context_check},
    {"context_close", context_close},
    {"group", add_group},
    {"layer", add_layer},
    {"state", add_state},
    {"estimate", estimate},
    {"cache_create", cache_create},
    {"cache_close", cache_close},
    {"cache_describe", cache_describe},
    {"digest", digest},
    {"stats", stats},
    {NULL, NULL},
};
