/* An engine in C on a Redis server that it shares with an engine in Python (test_shared.py). Both have the same layout,
 * and K and V that follow from the tokens.
 *
 *   shared_prefix write ADDRESS PREFIX [CA_FILE]    publishes 30 tokens. Prints how many pages were stored
 *   shared_prefix read ADDRESS PREFIX [CA_FILE]     loads them, and compares K and V. Prints how many tokens were found
 *
 * With CA_FILE the connections have TLS. */
#include <kvcache_redis.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 2, DIMS = 8, TOKENS = 30, PAGE = 4 };

static int report(const char *what, const kvc_error *error) {
  fprintf(stderr, "FAILED: %s: %s\n", what, error->message);
  return 1;
}

static float value(int token, int layer, int is_v, int dim) {
  return (float)token * 0.25f + (float)layer * 100 + (float)is_v * 50 + (float)dim;
}

static kvc_cache *create(kvc_context *context) {
  kvc_layer_config layers[LAYERS];
  kvc_cache_config config;
  kvc_cache *cache = NULL;
  kvc_error error = KVC_ERROR_INIT;
  uint8_t fingerprint[32];
  memset(fingerprint, 'm', sizeof fingerprint);
  for (int i = 0; i < LAYERS; i++) {
    kvc_layer_config_init(&layers[i]);
    layers[i].num_q_heads = 2;
    layers[i].num_kv_heads = 1;
    layers[i].head_dim = DIMS;
    layers[i].dtype = (DLDataType){kDLFloat, 32, 1};
  }
  kvc_group_config group;
  kvc_group_config_init(&group);
  group.num_pages = 64;
  kvc_cache_config_init(&config);
  config.layers = layers;
  config.num_layers = LAYERS;
  config.groups = &group;
  config.num_groups = 1;
  config.page_size = PAGE;
  config.max_sequences = 4;
  config.max_batch_tokens = 64;
  config.flags = KVC_CACHE_PREFIX_INDEX;
  config.fingerprint = fingerprint;
  if (kvc_cache_create(context, &config, &cache, &error)) report("cache_create", &error);
  return cache;
}

// ca_file: NULL = without TLS.
static int add_tier(kvc_cache *cache, const char *address, const char *prefix, const char *ca_file) {
  kvc_redis_config redis;
  kvc_tier tier;
  kvc_tier_config config;
  kvc_error error = KVC_ERROR_INIT;
  kvc_redis_config_init(&redis);
  redis.address = address;
  redis.prefix = prefix;
  redis.tls_ca_file = ca_file;
  if (ca_file != NULL) redis.flags = KVC_REDIS_TLS;
  if (kvc_redis_tier_open(&redis, &tier, &error)) return report("redis_tier_open", &error);
  kvc_tier_config_init(&config);
  config.tier = &tier;
  if (kvc_cache_add_tier(cache, &config, &error)) return report("cache_add_tier", &error);
  return 0;
}

static int compute(kvc_cache *cache, kvc_seq sequence) {
  static float k[TOKENS * DIMS], v[TOKENS * DIMS];
  int32_t length = TOKENS;
  int64_t shape[3] = {TOKENS, 1, DIMS};
  DLTensor tk = {k, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, shape, NULL, 0}, tv = tk;
  kvc_batch batch;
  kvc_forward forward = 0;
  kvc_error error = KVC_ERROR_INIT;
  tv.data = v;
  kvc_batch_init(&batch);
  batch.sequences = &sequence;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  if (kvc_forward_begin(cache, &batch, NULL, &forward, &error)) return report("forward_begin", &error);
  for (int layer = 0; layer < LAYERS; layer++) {
    kvc_append_args args;
    for (int i = 0; i < TOKENS * DIMS; i++) {
      k[i] = value(i / DIMS, layer, 0, i % DIMS);
      v[i] = value(i / DIMS, layer, 1, i % DIMS);
    }
    kvc_append_args_init(&args);
    args.k = &tk;
    args.v = &tv;
    if (kvc_forward_append(cache, forward, layer, &args, &error)) return report("forward_append", &error);
  }
  return kvc_forward_end(cache, forward, &error) ? report("forward_end", &error) : 0;
}

static int compare(kvc_cache *cache, kvc_seq sequence, int64_t tokens) {
  kvc_error error = KVC_ERROR_INIT;
  for (int layer = 0; layer < LAYERS; layer++) {
    kvc_export_args args;
    kvc_exported exported;
    kvc_export_args_init(&args);
    args.layer = layer;
    args.position_end = tokens;
    kvc_exported_init(&exported);
    if (kvc_seq_export(cache, sequence, &args, &exported, NULL, &error)) return report("seq_export", &error);
    for (int is_v = 0; is_v < 2; is_v++) {
      DLManagedTensorVersioned *part = is_v ? exported.v : exported.k;
      const float *data = part->dl_tensor.data;
      for (int i = 0; i < tokens * DIMS; i++) {
        const float wanted = value(i / DIMS, layer, is_v, i % DIMS);
        if (data[i] == wanted) continue;
        fprintf(stderr, "FAILED: layer %d, %s[%d] is %g, not %g\n", layer, is_v ? "v" : "k", i, data[i], wanted);
        return 1;
      }
      part->deleter(part);
    }
  }
  return 0;
}

static int load(kvc_cache *cache, const kvc_prefix_query *query) {
  kvc_error error = KVC_ERROR_INIT;
  kvc_job job = 0;
  kvc_job_info info;
  int32_t descriptor = -1;
  kvc_job_info_init(&info);
  if (kvc_prefix_load(cache, query, NULL, NULL, &job, &error)) return report("prefix_load", &error);
  if (kvc_cache_job_descriptor(cache, &descriptor, &error)) return report("job_descriptor", &error);
  while (job != 0 && !info.done) {
    struct pollfd waiting = {descriptor, POLLIN, 0};
    if (poll(&waiting, 1, 30000) != 1) return fprintf(stderr, "FAILED: no answer in 30 s\n"), 1;
    if (kvc_job_poll(cache, job, &info, &error)) return report("job_poll", &error);
  }
  return 0;
}

static int run(kvc_cache *cache, int is_write) {
  kvc_error error = KVC_ERROR_INIT;
  int32_t tokens[TOKENS];
  kvc_prefix_query query;
  kvc_prefix_hit hit;
  kvc_seq sequence = 0;
  kvc_tier_traffic traffic;
  for (int i = 0; i < TOKENS; i++) tokens[i] = i;
  kvc_prefix_query_init(&query);
  query.tokens = tokens;
  query.num_tokens = TOKENS;
  if (!is_write && load(cache, &query)) return 1;
  kvc_prefix_hit_init(&hit);
  if (kvc_prefix_attach(cache, &query, NULL, &hit, &sequence, &error)) return report("prefix_attach", &error);
  if (!is_write) {
    if (hit.tokens > 0 && compare(cache, sequence, hit.tokens)) return 1;
    printf("%lld\n", (long long)hit.tokens);
    return 0;
  }
  if (compute(cache, sequence)) return 1;
  if (kvc_prefix_publish(cache, sequence, &query, NULL, NULL, &error)) return report("prefix_publish", &error);
  kvc_tier_traffic_init(&traffic);
  do {
    poll(NULL, 0, 1);
    if (kvc_cache_tier_traffic(cache, &traffic, &error)) return report("tier_traffic", &error);
  } while (traffic.pages_waiting > 0);
  printf("%lld\n", (long long)traffic.pages_stored);
  return 0;
}

int main(int argc, char **argv) {
  kvc_error error = KVC_ERROR_INIT;
  kvc_context *context = NULL;
  kvc_cache *cache;
  int failed;
  if (argc != 4 && argc != 5) return fprintf(stderr, "shared_prefix write|read ADDRESS PREFIX [CA_FILE]\n"), 2;
  if (kvc_context_create(NULL, &context, &error)) return report("context_create", &error);
  cache = create(context);
  failed = cache == NULL || add_tier(cache, argv[2], argv[3], argv[4]) || run(cache, strcmp(argv[1], "write") == 0);
  kvc_cache_destroy(cache);
  kvc_context_destroy(context);
  return failed;
}
