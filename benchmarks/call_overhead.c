/* What two calls cost in C, so that a binding can say what it adds: the length of a sequence (a trivial call), and the
 * attend of one decode row in a layer of a model with many. Bindings make the same calls with the same sizes.
 *   call_overhead LIBRARY      prints nanoseconds a call, the fastest of several rounds: "13.1 790.2" */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kvcache.h"

enum { LAYERS = 512, HEADS = 4, DIM = 64, CALLS = 10000, ROUNDS = 50, STEPS = 200 };

static const kvc_api *api;
static kvc_error error = KVC_ERROR_INIT;

static void check(kvc_status status) {
  if (status == KVC_OK) return;
  fprintf(stderr, "call_overhead: %s\n", error.message);
  exit(1);
}

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

static double length_ns(kvc_cache *cache, kvc_seq sequence) {
  double fastest = 1e30;
  for (int round = 0; round < ROUNDS; round++) {
    const double begin = now_ns();
    for (int i = 0; i < CALLS; i++) {
      int64_t length;
      check(api->seq_lengths(cache, 1, &sequence, &length, &error));
    }
    const double time = (now_ns() - begin) / CALLS;
    if (time < fastest) fastest = time;
  }
  return fastest;
}

static DLTensor row(float *data, int64_t *shape) {
  DLTensor tensor = {data, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, shape, NULL, 0};
  return tensor;
}

/* Descriptions stand once: a call a layer. */
static double attend_ns(kvc_cache *cache, kvc_seq sequence) {
  static float floats[4][HEADS * DIM];
  int64_t q_shape[3] = {1, HEADS, DIM}, kv_shape[3] = {1, 1, DIM};
  const DLTensor q = row(floats[0], q_shape), k = row(floats[1], kv_shape), v = row(floats[2], kv_shape),
                 out = row(floats[3], q_shape);
  const int32_t one = 1;
  double fastest = 1e30;
  kvc_attend_args args;
  kvc_batch batch;
  kvc_attend_args_init(&args);
  kvc_batch_init(&batch);
  args.q = &q, args.k = &k, args.v = &v, args.out = &out;
  batch.num_sequences = 1, batch.sequences = &sequence, batch.append_lengths = &one;
  for (int i = 0; i < STEPS; i++) {
    kvc_forward step;
    check(api->forward_begin(cache, &batch, NULL, &step, &error));
    const double begin = now_ns();
    for (int layer = 0; layer < LAYERS; layer++) check(api->forward_attend(cache, step, layer, &args, &error));
    const double time = (now_ns() - begin) / LAYERS;
    if (time < fastest) fastest = time;
    check(api->forward_abort(cache, step, &error));
  }
  return fastest;
}

int main(int argc, char **argv) {
  void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  const kvc_api *(*get_api)(uint32_t) = NULL;
  if (library) *(void **)&get_api = dlsym(library, "kvc_get_api");
  if (!get_api || !(api = get_api(KVC_ABI_VERSION))) {
    fprintf(stderr, "call_overhead: %s\n", argc == 2 ? "no library of this version" : "usage: call_overhead LIBRARY");
    return 1;
  }
  kvc_context_config context_config;
  kvc_cache_config config;
  kvc_layer_config layers[LAYERS];
  kvc_context_config_init(&context_config);
  kvc_cache_config_init(&config);
  context_config.num_threads = 1;
  for (int i = 0; i < LAYERS; i++) {
    kvc_layer_config_init(&layers[i]);
    layers[i].num_q_heads = HEADS, layers[i].num_kv_heads = 1, layers[i].head_dim = DIM;
  }
  config.layers = layers, config.num_layers = LAYERS, config.capacity_tokens = 256;
  kvc_context *context;
  kvc_cache *cache;
  kvc_seq sequence;
  check(api->context_create(&context_config, &context, &error));
  check(api->cache_create(context, &config, &cache, &error));
  check(api->seq_add(cache, 1, &sequence, &error));
  printf("%.1f %.1f\n", length_ns(cache, sequence), attend_ns(cache, sequence));
  api->cache_destroy(cache);
  api->context_destroy(context);
  return 0;
}
