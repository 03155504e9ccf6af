/* A program that loads the library by dlopen: its table, a cache whose contexts have workers, a prompt that all of them
 * compute, and the threads of the process. What goes wrong ends the process with a message. */
#include <dirent.h>
#include <dlfcn.h>
#include <dlpack/dlpack.h>
#include <kvcache.h>
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

static const kvc_api *load(const char *path, int visibility, void **library) {
  const kvc_api *(*get_api)(uint32_t);
  const kvc_api *api = NULL;
  *library = dlopen(path, RTLD_NOW | visibility);
  check(*library != NULL, "dlopen", 0);
  *(void **)&get_api = dlsym(*library, "kvc_get_api");
  check(get_api != NULL && (api = get_api(KVC_ABI_VERSION)) != NULL, "kvc_get_api", 0);
  return api;
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
  static _Thread_local float q[TOKENS * HEADS * DIM], kv[TOKENS * HEADS * DIM], out[TOKENS * HEADS * DIM];
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
