/* What the library leaves in a process that loads it by dlopen.
 *   process_test LIBRARY export      an export is read and released after destroy and dlclose
 *   process_test LIBRARY contexts    1,000 contexts with worker threads come and go: no thread, file or byte is left */
#define _GNU_SOURCE
#include <malloc.h>
#include <signal.h>

#include "loaded.h"

static void export_outlives_dlclose(void *library, const kvc_api *api) {
  kvc_context *context = NULL;
  kvc_cache *cache = make_cache(api, &context);
  kvc_export_args args;
  kvc_exported exported;
  DLManagedTensorVersioned *pool = NULL;
  kvc_export_args_init(&args);
  kvc_exported_init(&exported);
  check(api->seq_export(cache, prompt(api, cache), &args, &exported, NULL, NULL) == KVC_OK, "export", 0);
  check(api->cache_export_pool(cache, 0, KVC_POOL_K, 0, &pool, NULL, NULL) == KVC_OK, "export_pool", 0);
  api->cache_destroy(cache);
  api->context_destroy(context);
  check(dlclose(library) == 0, "dlclose", 0);
  for (int i = 0; i < TOKENS * HEADS * DIM; i++) {
    check(((float *)exported.k->dl_tensor.data)[i] == (float)(i % 1000), "exported K", i);
  }
  check(((float *)pool->dl_tensor.data)[1] == 1.0f, "the pool's memory", 0);
  exported.k->deleter(exported.k);
  exported.v->deleter(exported.v);
  pool->deleter(pool);
  check_threads(NULL, 1);
}

static void contexts_come_and_go(const kvc_api *api) {
  enum { WARM = 100, ROUNDS = 1000 };
  int files = 0;
  size_t bytes = 0;
  for (int round = 0; round < ROUNDS; round++) {
    kvc_context *context = NULL;
    kvc_cache *cache = make_cache(api, &context);
    prompt(api, cache);
    check_threads("kvc-", THREADS - 1);
    check_threads(NULL, THREADS);
    api->context_destroy(context); /* the cache keeps it */
    api->cache_destroy(cache);
    check_threads(NULL, 1);
    if (round == WARM) files = entries("/proc/self/fd", NULL), bytes = mallinfo2().uordblks + mallinfo2().hblkhd;
  }
  const long long grown = (long long)(mallinfo2().uordblks + mallinfo2().hblkhd) - (long long)bytes;
  check(entries("/proc/self/fd", NULL) == files, "open files", entries("/proc/self/fd", NULL) - files);
  printf("%lld bytes more after %d contexts\n", grown, ROUNDS - WARM);
  check(grown < ROUNDS - WARM, "bytes left: more than one a round", grown);
}

int main(int argc, char **argv) {
  const kvc_api *api;
  void *library;
  check(argc == 3, "arguments: LIBRARY export|contexts", argc);
  api = load(argv[1], RTLD_LOCAL, &library);
  if (!strcmp(argv[2], "export")) {
    export_outlives_dlclose(library, api);
  } else {
    contexts_come_and_go(api);
  }
  for (int number = 1; number < SIGRTMAX; number++) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0) check(action.sa_handler == SIG_DFL, "a handler for signal", number);
  }
  printf("%s: as it should be\n", argv[2]);
  return 0;
}
