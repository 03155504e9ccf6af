/* Two libraries in one process, copies or different releases: each works on its own, in either order and visibility,
 * and both survive dlclose (they are linked with -z nodelete).
 *   two_libraries_test FIRST SECOND first_global|second_global|both_local|both_global */
#define _GNU_SOURCE
#include "loaded.h"

/* Every function of a library's table must lie in that same library. Returns where it lies. */
static const void *check_table(const kvc_api *api) {
  Dl_info own, other;
  check(api->struct_size >= sizeof(kvc_api) && api->abi == KVC_ABI_VERSION, "kvc_get_api", api->struct_size);
  check(dladdr(api, &own) != 0, "dladdr", 0);
  for (size_t offset = offsetof(kvc_api, version); offset < api->struct_size; offset += sizeof(void *)) {
    void *function;
    memcpy(&function, (const char *)api + offset, sizeof(function));
    check(function && dladdr(function, &other) != 0 && other.dli_fbase == own.dli_fbase,
          "a function of the own library", (long long)offset);
  }
  return own.dli_fbase;
}

static void refuses_other_releases(void *library) {
  const kvc_api *(*get_api)(uint32_t);
  *(void **)&get_api = dlsym(library, "kvc_get_api");
  check(get_api(KVC_ABI_VERSION + 1) == NULL, "a later minor release is refused", 0);
  check(get_api(KVC_ABI_VERSION + (1u << 16)) == NULL, "another major release is refused", 0);
}

int main(int argc, char **argv) {
  void *libraries[2];
  const void *bases[2];
  const kvc_api *apis[2];
  kvc_context *contexts[2];
  kvc_cache *caches[2];
  kvc_seq sequences[2];
  check(argc == 4, "arguments: FIRST SECOND ORDER", argc);
  const int global[2] = {!strcmp(argv[3], "first_global") || !strcmp(argv[3], "both_global"),
                         !strcmp(argv[3], "second_global") || !strcmp(argv[3], "both_global")};
  for (int i = 0; i < 2; i++) {
    apis[i] = load(argv[1 + i], global[i] ? RTLD_GLOBAL : RTLD_LOCAL, &libraries[i]);
    bases[i] = check_table(apis[i]);
    refuses_other_releases(libraries[i]);
  }
  check(bases[0] != bases[1] && apis[0] != apis[1], "two libraries are loaded", 0);

  /* Calls of the two alternate; each has its own objects and its own workers. */
  for (int i = 0; i < 2; i++) caches[i] = make_cache(apis[i], &contexts[i]);
  for (int i = 0; i < 2; i++) sequences[i] = prompt(apis[i], caches[i]);
  check_threads("kvc-", 2 * (THREADS - 1));
  check(apis[0]->seq_remove(caches[0], 1, &sequences[0], NULL) == KVC_OK, "seq_remove", 0);
  check(apis[1]->cache_check_invariants(caches[1], NULL) == KVC_OK, "check_invariants", 0);

  /* dlclose keeps the code: a table from before still works. */
  check(dlclose(libraries[0]) == 0, "dlclose", 0);
  prompt(apis[0], caches[0]);
  for (int i = 0; i < 2; i++) {
    check(apis[i]->cache_check_invariants(caches[i], NULL) == KVC_OK, "check_invariants after dlclose", i);
    apis[i]->cache_destroy(caches[i]);
    apis[i]->context_destroy(contexts[i]);
    check_threads("kvc-", (1 - i) * (THREADS - 1));
  }
  check(load(argv[1], RTLD_LOCAL, &libraries[0]) == apis[0], "dlopen again gives the same library", 0);
  check(dlclose(libraries[1]) == 0 && dlclose(libraries[0]) == 0, "dlclose", 0);
  printf("%s and %s in one process\n", apis[0]->version(), apis[1]->version());
  return 0;
}
