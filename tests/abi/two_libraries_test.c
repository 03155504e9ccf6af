/* Two libraries in one process, copies or different releases: each works on its own, in either order and visibility,
 * and both survive dlclose (they are linked with -z nodelete). two_libraries_test FIRST SECOND
 * first_global|second_global|both_local|both_global */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <kvcache.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef const kvc_api *(*get_api_fn)(uint32_t);

static void check(int good, const char *what) {
  if (good) return;
  const char *reason = dlerror();
  fprintf(stderr, "FAILED: %s %s\n", what, reason ? reason : "");
  exit(1);
}

/* The table of a library; every function in it must lie in that same library. */
static const kvc_api *load(const char *path, int global, void **handle, const void **base) {
  get_api_fn get_api;
  const kvc_api *api;
  Dl_info own, other;
  *handle = dlopen(path, RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
  check(*handle != NULL, "dlopen");
  *(void **)&get_api = dlsym(*handle, "kvc_get_api");
  check(get_api != NULL, "dlsym");
  api = get_api(KVC_ABI_VERSION);
  check(api != NULL && api->struct_size >= sizeof(kvc_api) && api->abi == KVC_ABI_VERSION, "kvc_get_api");
  check(get_api(KVC_ABI_VERSION + 1) == NULL, "a later minor release is refused");
  check(get_api(KVC_ABI_VERSION + (1u << 16)) == NULL, "another major release is refused");
  check(dladdr(*(void **)&get_api, &own) != 0, "dladdr");
  for (size_t offset = offsetof(kvc_api, version); offset < api->struct_size; offset += sizeof(void *)) {
    void *function;
    memcpy(&function, (const char *)api + offset, sizeof(function));
    check(function && dladdr(function, &other) != 0 && other.dli_fbase == own.dli_fbase,
          "a function of the own library");
  }
  *base = own.dli_fbase;
  return api;
}

static kvc_cache *make_cache(const kvc_api *api, kvc_context **context) {
  kvc_layer_config layer;
  kvc_cache_config config;
  kvc_cache *cache = NULL;
  kvc_layer_config_init(&layer);
  layer.num_q_heads = layer.num_kv_heads = 1;
  layer.head_dim = 16;
  kvc_cache_config_init(&config);
  config.layers = &layer;
  config.num_layers = 1;
  config.capacity_tokens = 64;
  check(api->context_create(NULL, context, NULL) == KVC_OK, "context_create");
  check(api->cache_create(*context, &config, &cache, NULL) == KVC_OK, "cache_create");
  return cache;
}

int main(int argc, char **argv) {
  void *handles[2];
  const void *bases[2];
  const kvc_api *apis[2];
  kvc_context *contexts[2];
  kvc_cache *caches[2];
  kvc_seq sequences[2];
  check(argc == 4, "arguments: FIRST SECOND ORDER");
  const int first_global = !strcmp(argv[3], "first_global") || !strcmp(argv[3], "both_global");
  const int second_global = !strcmp(argv[3], "second_global") || !strcmp(argv[3], "both_global");

  apis[0] = load(argv[1], first_global, &handles[0], &bases[0]);
  apis[1] = load(argv[2], second_global, &handles[1], &bases[1]);
  check(bases[0] != bases[1] && apis[0] != apis[1], "two libraries are loaded");

  /* Calls of the two take turns; each has its own objects. */
  for (int i = 0; i < 2; i++) caches[i] = make_cache(apis[i], &contexts[i]);
  for (int i = 0; i < 2; i++) check(apis[i]->seq_add(caches[i], 1, &sequences[i], NULL) == KVC_OK, "seq_add");
  check(apis[0]->seq_remove(caches[0], 1, &sequences[0], NULL) == KVC_OK, "seq_remove");
  check(apis[1]->cache_check_invariants(caches[1], NULL) == KVC_OK, "check_invariants");

  /* dlclose keeps the code: a table from before still works. */
  check(dlclose(handles[0]) == 0, "dlclose");
  check(apis[0]->cache_check_invariants(caches[0], NULL) == KVC_OK, "check_invariants after dlclose");
  for (int i = 0; i < 2; i++) {
    apis[i]->cache_destroy(caches[i]);
    apis[i]->context_destroy(contexts[i]);
  }
  const void *base;
  check(load(argv[1], 0, &handles[0], &base) == apis[0] && base == bases[0], "dlopen again gives the same library");
  check(dlclose(handles[1]) == 0 && dlclose(handles[0]) == 0, "dlclose");
  printf("%s and %s in one process\n", apis[0]->version(), apis[1]->version());
  return 0;
}
