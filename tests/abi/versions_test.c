/* A program and a library of different releases. It is built once with this release's header, and once with that of the
 * later release (newer_release.py: NEWER_HEADER), and each runs with both libraries.
 *   versions_test VERSION older|newer    VERSION of the library that is loaded, and what it is to the test
 * Every struct that crosses ends at a page that cannot be touched: neither side may go past the caller's size. */
#define _GNU_SOURCE
#include <sys/mman.h>

#define CALL(name) kvc_##name
#define SCENARIO_API
#define SCENARIO_PASS
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../consumer/scenario.h"

#if defined(NEWER_HEADER)
#define HAS_LATER_FIELDS 1
#define SET_LATER(item, value) ((item)->later_number = (value))
#define LATER(item) ((item)->later_number)
#else
#define HAS_LATER_FIELDS 0
#define SET_LATER(item, value) ((void)(item))
#define LATER(item) 0
#endif

static int newer_library;

static void check(int good, const char *what, const kvc_error *error) {
  if (good) return;
  fprintf(stderr, "FAILED: %s: %s\n", what, error ? error->message : "");
  exit(1);
}

/* `bytes` of zeros, with a page after them that cannot be touched. Never freed. */
static void *guarded(size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page;
  char *memory = mmap(NULL, (pages + 1) * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED && mprotect(memory + pages * page, page, PROT_NONE) == 0, "mmap", NULL);
  return memory + pages * page - bytes;
}
#define GUARDED(type, name)                   \
  type *name = (type *)guarded(sizeof(type)); \
  type##_init(name)

/* What a caller sets in a field of the later release, an older library refuses, and a later one takes. A call that
 * succeeded has 0 in its later fields again. */
#define EXPECT_REFUSED_IF_SET(item, call)                                                                 \
  do {                                                                                                    \
    kvc_error refused = KVC_ERROR_INIT;                                                                   \
    SET_LATER(item, 1);                                                                                   \
    const kvc_status got = (call);                                                                        \
    check(got == (HAS_LATER_FIELDS && !newer_library ? KVC_ERROR_UNSUPPORTED : KVC_OK), #call, &refused); \
    SET_LATER(item, 0);                                                                                   \
  } while (0)

static kvc_cache *make_cache(kvc_context *context, kvc_error *error) {
  kvc_layer_config *layers = (kvc_layer_config *)guarded(2 * sizeof(kvc_layer_config));
  kvc_cache *cache = NULL;
  GUARDED(kvc_group_config, group);
  GUARDED(kvc_cache_config, config);
  GUARDED(kvc_estimate, estimate);
  for (int i = 0; i < 2; i++) { /* the stride is the caller's struct_size */
    kvc_layer_config_init(&layers[i]);
    layers[i].num_q_heads = 2;
    layers[i].num_kv_heads = 1;
    layers[i].head_dim = 2 + 2 * i;
  }
  config->layers = layers;
  config->num_layers = 2;
  config->groups = group;
  config->num_groups = 1;
  config->page_size = 4;
  config->capacity_tokens = 64;
  SET_LATER(estimate, 77);
  check(kvc_cache_estimate(context, config, -1, estimate, error) == KVC_OK, "estimate", error);
  check(estimate->struct_size == sizeof(*estimate) && estimate->storage_bytes > 0, "estimate's fields", NULL);
  check(LATER(estimate) == (HAS_LATER_FIELDS && !newer_library ? 77 : 0), "a field that the library does not know",
        NULL);
  EXPECT_REFUSED_IF_SET(config, kvc_cache_estimate(context, config, -1, estimate, &refused));
  EXPECT_REFUSED_IF_SET(&layers[1], kvc_cache_estimate(context, config, -1, estimate, &refused));
  EXPECT_REFUSED_IF_SET(group, kvc_cache_estimate(context, config, -1, estimate, &refused));
  check(kvc_cache_create(context, config, &cache, error) == KVC_OK, "cache_create", error);
  return cache;
}

/* One token in both layers: every struct of a step, in and out. */
static void step_of_all_structs(kvc_cache *cache, kvc_error *error) {
  const int32_t one = 1;
  kvc_seq seq;
  kvc_forward forward;
  float q[8] = {0}, k[4] = {0}, v[4] = {1, 2, 3, 4}, out[8];
  int64_t q_shape[3] = {1, 2, 0}, kv_shape[3] = {1, 1, 0};
  const DLTensor like = {NULL, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, NULL, NULL, 0};
  DLTensor tq = like, tk = like, tv = like, tout = like;
  GUARDED(kvc_batch, batch);
  GUARDED(kvc_attend_args, args);
  GUARDED(kvc_forward_info, info);
  GUARDED(kvc_tables, tables);
  GUARDED(kvc_export_args, what);
  GUARDED(kvc_exported, exported);
  GUARDED(kvc_stats, stats);

  check(kvc_seq_add(cache, 1, &seq, error) == KVC_OK, "seq_add", error);
  batch->sequences = &seq;
  batch->append_lengths = &one;
  batch->num_sequences = 1;
  EXPECT_REFUSED_IF_SET(batch, kvc_cache_can_fit(cache, batch, &refused));
  check(kvc_forward_begin(cache, batch, NULL, &forward, error) == KVC_OK, "begin", error);
  SET_LATER(info, 77);
  check(kvc_forward_get_info(cache, forward, info, error) == KVC_OK && info->num_tokens == 1, "get_info", error);
  check(LATER(info) == (HAS_LATER_FIELDS && !newer_library ? 77 : 0), "get_info's unknown field", NULL);
  EXPECT_REFUSED_IF_SET(tables, kvc_forward_tables(cache, forward, 0, tables, &refused));
  tq.data = q, tk.data = k, tv.data = v, tout.data = out;
  tq.shape = tout.shape = q_shape, tk.shape = tv.shape = kv_shape;
  args->q = &tq, args->k = &tk, args->v = &tv, args->out = &tout;
  for (int32_t layer = 0; layer < 2; layer++) {
    q_shape[2] = kv_shape[2] = 2 + 2 * layer;
    check(kvc_forward_attend(cache, forward, layer, args, error) == KVC_OK, "attend", error);
    check(out[0] == 1 && out[1] == 2 && out[kv_shape[2]] == 1, "one key: attention gives its value", NULL);
  }
  check(kvc_forward_end(cache, forward, error) == KVC_OK, "end", error);
  SET_LATER(exported, 77);
  check(kvc_seq_export(cache, seq, what, exported, NULL, error) == KVC_OK, "export", error);
  check(((float *)exported->v->dl_tensor.data)[1] == 2, "exported V", NULL);
  exported->k->deleter(exported->k);
  exported->v->deleter(exported->v);
  check(kvc_cache_stats(cache, -1, stats, error) == KVC_OK && stats->num_sequences == 1, "stats", error);
}

static void function_table(void) {
  const kvc_api *api = kvc_get_api(KVC_ABI_VERSION);
  check(api && api->version == kvc_version && api->plan_check == kvc_plan_check, "the table", NULL);
#if defined(NEWER_HEADER)
  const int there = api->struct_size > offsetof(kvc_api, later);
  check(there == newer_library && (!there || api->later(41) == 42), "the later function", NULL);
#else
  check((api->struct_size > sizeof(kvc_api)) == newer_library, "the table's size", NULL);
#endif
}

int main(int argc, char **argv) {
  kvc_error error = KVC_ERROR_INIT;
  kvc_context *context = NULL;
  kvc_cache *cache;
  check(argc == 3 && !strcmp(kvc_version(), argv[1]), "the library is of another version than the test says", NULL);
  newer_library = !strcmp(argv[2], "newer");
  {
    GUARDED(kvc_context_config, config);
    config->num_threads = 1;
    EXPECT_REFUSED_IF_SET(config, kvc_context_create(config, &context, &refused));
    kvc_context_destroy(context);
    context = NULL;
    check(kvc_context_create(config, &context, &error) == KVC_OK, "context_create", &error);
  }
  check(scenario(context) == 0, "the scenario", NULL);
  cache = make_cache(context, &error);
  step_of_all_structs(cache, &error);
  function_table();
  kvc_cache_destroy(cache);
  kvc_context_destroy(context);
#if defined(CALL_LATER)
  check(kvc_later(41) == 42, "kvc_later", NULL);
#endif
  printf("header with %s fields, library %s\n", HAS_LATER_FIELDS ? "later" : "this release's", kvc_version());
  return 0;
}
