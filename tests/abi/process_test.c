/* What the library leaves behind in a process that loads it by dlopen.
 *   process_test LIBRARY export      an export is read and released after destroy and dlclose
 *   process_test LIBRARY contexts    1,000 contexts with worker threads come and go: no thread, file or byte is left */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <dlpack/dlpack.h>
#include <kvcache.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 64, HEADS = 8, DIM = 64, THREADS = 3 };

static void check(int good, const char *what, long long value) {
  if (good) return;
  fprintf(stderr, "FAILED: %s (%lld)\n", what, value);
  exit(1);
}

/* Entries of a folder of /proc/self; with `prefix`, those whose comm begins with it. */
static int entries(const char *folder, const char *prefix) {
  char path[300], name[64] = "";
  struct dirent *entry;
  int count = 0;
  DIR *directory = opendir(folder);
  check(directory != NULL, folder, 0);
  while ((entry = readdir(directory)) != NULL) {
    if (entry->d_name[0] == '.') continue;
    if (prefix) {
      FILE *file;
      snprintf(path, sizeof(path), "%s/%s/comm", folder, entry->d_name);
      file = fopen(path, "r");
      if (!file || !fgets(name, sizeof(name), file)) name[0] = 0;
      if (file) fclose(file);
    }
    count += !prefix || !strncmp(name, prefix, strlen(prefix));
  }
  closedir(directory);
  return count;
}

/* Threads whose names begin with `prefix` (NULL: all) become `count`. A thread names itself, and a joined one leaves
 * /proc a moment later. */
static void check_threads(const char *prefix, int count) {
  for (int wait = 0; entries("/proc/self/task", prefix) != count; wait++) {
    check(wait < 5000, prefix ? prefix : "threads", entries("/proc/self/task", prefix));
    usleep(1000);
  }
}

/* A prompt long enough for every worker. Returns the sequence. */
static kvc_seq prompt(const kvc_api *api, kvc_cache *cache) {
  static float q[TOKENS * HEADS * DIM], kv[TOKENS * HEADS * DIM], out[TOKENS * HEADS * DIM];
  int64_t shape[3] = {TOKENS, HEADS, DIM};
  const int32_t length = TOKENS;
  const DLTensor like = {kv, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, shape, NULL, 0};
  DLTensor tq = like, tout = like;
  kvc_seq seq = 0;
  kvc_batch batch;
  kvc_forward forward;
  kvc_attend_args args;
  for (int i = 0; i < TOKENS * HEADS * DIM; i++) kv[i] = (float)(i % 1000);
  tq.data = q, tout.data = out;
  kvc_batch_init(&batch);
  batch.sequences = &seq;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  kvc_attend_args_init(&args);
  args.q = &tq, args.k = &like, args.v = &like, args.out = &tout;
  check(api->seq_add(cache, 1, &seq, NULL) == KVC_OK, "seq_add", 0);
  check(api->forward_begin(cache, &batch, NULL, &forward, NULL) == KVC_OK, "begin", 0);
  check(api->forward_attend(cache, forward, 0, &args, NULL) == KVC_OK, "attend", 0);
  check(api->forward_end(cache, forward, NULL) == KVC_OK, "end", 0);
  return seq;
}

static kvc_cache *make_cache(const kvc_api *api, kvc_context **context) {
  kvc_context_config context_config;
  kvc_layer_config layer;
  kvc_cache_config config;
  kvc_cache *cache = NULL;
  kvc_context_config_init(&context_config);
  context_config.num_threads = THREADS;
  kvc_layer_config_init(&layer);
  layer.num_q_heads = layer.num_kv_heads = HEADS;
  layer.head_dim = DIM;
  kvc_cache_config_init(&config);
  config.layers = &layer;
  config.num_layers = 1;
  config.capacity_tokens = 2 * TOKENS;
  check(api->context_create(&context_config, context, NULL) == KVC_OK, "context_create", 0);
  check(api->cache_create(*context, &config, &cache, NULL) == KVC_OK, "cache_create", 0);
  return cache;
}

static void export_outlives_dlclose(void *library, const kvc_api *api) {
  kvc_context *context = NULL;
  kvc_cache *cache = make_cache(api, &context);
  kvc_export_args args;
  kvc_exported exported;
  DLManagedTensorVersioned *pool = NULL;
  kvc_export_args_init(&args);
  kvc_exported_init(&exported);
  check(api->seq_export(cache, prompt(api, cache), &args, &exported, NULL, NULL) == KVC_OK, "export", 0);
  check(api->cache_export_pool(cache, 0, KVC_POOL_K, 0, &pool, NULL) == KVC_OK, "export_pool", 0);
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
  const kvc_api *(*get_api)(uint32_t);
  const kvc_api *api;
  void *library;
  check(argc == 3, "arguments: LIBRARY export|contexts", argc);
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  check(library != NULL, "dlopen", 0);
  *(void **)&get_api = dlsym(library, "kvc_get_api");
  check(get_api != NULL && (api = get_api(KVC_ABI_VERSION)) != NULL, "kvc_get_api", 0);
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
