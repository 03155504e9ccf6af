/* A host with a plug-in slot: `plugin_host LIBRARY [THREADS [BACKEND]]`. Each thread decodes a sequence of its own, all
 * in one cache. Without a usable library the program says why and goes on with plain loops: the same numbers, computed
 * slowly. With BACKEND, a file, it says what the library would compute with on a CUDA device, or why it cannot.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "attention.h"

enum { PROMPT = 40, STEPS = 60, MAX_THREADS = 64, Q_FLOATS = Q_HEADS * HEAD_DIM, KV_FLOATS = KV_HEADS * HEAD_DIM };

struct worker {
  pthread_t thread;
  struct attention *attention;
  int index;
  double checksum;
  int failed;
};

/* Stands for the model: numbers in [-1, 1) by an LCG. */
static void fill(uint32_t *state, float *data, int n) {
  for (int i = 0; i < n; i++) {
    *state = *state * 1664525u + 1013904223u;
    data[i] = (float)(int32_t)*state / 2147483648.0f;
  }
}

static int decode(struct worker *worker, struct sequence *sequence, float *memory, kvc_error *error) {
  uint32_t random = 1000u + (uint32_t)worker->index;
  float *q[LAYERS], *k[LAYERS], *v[LAYERS], *out[LAYERS];
  for (int step = 0; step <= STEPS; step++) {
    const int tokens = step == 0 ? PROMPT : 1;
    for (int layer = 0; layer < LAYERS; layer++) {
      q[layer] = memory + (size_t)layer * PROMPT * 2 * (Q_FLOATS + KV_FLOATS);
      out[layer] = q[layer] + PROMPT * Q_FLOATS;
      k[layer] = out[layer] + PROMPT * Q_FLOATS;
      v[layer] = k[layer] + PROMPT * KV_FLOATS;
      fill(&random, q[layer], tokens * Q_FLOATS);
      fill(&random, k[layer], tokens * KV_FLOATS);
      fill(&random, v[layer], tokens * KV_FLOATS);
    }
    if (attention_step(worker->attention, sequence, tokens, q, k, v, out, error)) return -1;
    for (int layer = 0; layer < LAYERS; layer++) {
      for (int i = 0; i < tokens * Q_FLOATS; i++) worker->checksum += (double)out[layer][i] * out[layer][i];
    }
  }
  return 0;
}

static void *run(void *arg) {
  struct worker *worker = arg;
  struct sequence sequence;
  kvc_error error = KVC_ERROR_INIT;
  float *memory = malloc(sizeof(float) * LAYERS * PROMPT * 2 * (Q_FLOATS + KV_FLOATS));
  worker->failed = !memory || attention_begin(worker->attention, &sequence, &error);
  if (!worker->failed) {
    worker->failed = decode(worker, &sequence, memory, &error) != 0;
    attention_end(worker->attention, &sequence);
  }
  if (worker->failed) fprintf(stderr, "plugin_host: thread %d: %s\n", worker->index, error.message);
  free(memory);
  return NULL;
}

/* Decodes in `threads` threads and prints a line for each. */
static int decode_all(const struct plugin *plugin, int threads) {
  struct worker workers[MAX_THREADS];
  struct attention attention;
  kvc_error error = KVC_ERROR_INIT;
  int started = 0, failed = 0;
  if (attention_open(&attention, plugin, threads, &error)) {
    fprintf(stderr, "plugin_host: %s\n", error.message);
    return 1;
  }
  for (; started < threads; started++) {
    workers[started] = (struct worker){.attention = &attention, .index = started};
    if (pthread_create(&workers[started].thread, NULL, run, &workers[started])) break;
  }
  for (int i = 0; i < started; i++) {
    pthread_join(workers[i].thread, NULL);
    failed |= workers[i].failed;
    printf("thread %d: %d tokens in %d steps, checksum %.3f\n", i, PROMPT + STEPS, STEPS + 1, workers[i].checksum);
  }
  attention_close(&attention);
  return failed || started < threads;
}

/* Opens a context on a device by the backend of that name. This host's tensors are the CPU's: it only asks. */
static void show_backend(const struct plugin *plugin, const char *backend) {
  kvc_error error = KVC_ERROR_INIT;
  kvc_context *context = NULL;
  kvc_context_config config;
  char text[2048];
  kvc_context_config_init(&config);
  config.device_type = kDLCUDA;
  config.backend = backend;
  if (plugin->api->context_create(&config, &context, &error) ||
      plugin->api->context_describe(context, text, sizeof(text), NULL, &error)) {
    printf("no backend: %s\n", error.message);
  } else {
    printf("backend: %s\n", text);
  }
  plugin->api->context_destroy(context);
}

int main(int argc, char **argv) {
  struct plugin plugin;
  char why[600];
  const int threads = argc >= 3 ? atoi(argv[2]) : 4;
  int result;
  if (argc < 2 || argc > 4 || threads < 1 || threads > MAX_THREADS) {
    fprintf(stderr, "usage: plugin_host LIBRARY [THREADS, 1..%d [BACKEND]]\n", (int)MAX_THREADS);
    return 2;
  }
  if (plugin_load(argv[1], &plugin, why, sizeof(why))) {
    printf("no plug-in: %s\n", why);
    printf("attention by plain loops\n");
    return decode_all(NULL, threads);
  }
  printf("attention by libkvcache %s, merging states: %s\n", plugin.api->version(),
         PLUGIN_HAS(&plugin, merge_states) ? "yes" : "no");
  if (argc == 4) show_backend(&plugin, argv[3]);
  result = decode_all(&plugin, threads);
  plugin_unload(&plugin);
  return result;
}
