/* The sender of test_languages.py: reads a description in hexadecimal from stdin, computes 21 tokens, and sends them
 * over a transport.
 *
 *   prefill LIBRARY OPTIONS */
#include <dlfcn.h>
#include <kvcache_transport.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, DIMS = 8, TOKENS = 21, FIRST = 9 };

static int report(const char *what, const kvc_error *error) {
  fprintf(stderr, "FAILED: %s: %s\n", what, error->message);
  return 1;
}

static float value(int token, int layer, int is_v, int dim) {
  return (float)token * 0.25f + (float)layer * 100 + (float)is_v * 50 + (float)dim;
}

static kvc_status create(kvc_context *context, kvc_cache **cache, kvc_error *error) {
  kvc_layer_config layers[LAYERS];
  kvc_cache_config config;
  for (int i = 0; i < LAYERS; i++) {
    kvc_layer_config_init(&layers[i]);
    layers[i].num_q_heads = 2;
    layers[i].num_kv_heads = 1;
    layers[i].head_dim = DIMS;
  }
  kvc_cache_config_init(&config);
  config.layers = layers;
  config.num_layers = LAYERS;
  config.capacity_tokens = 256;
  config.page_size = 16;
  return kvc_cache_create(context, &config, cache, error);
}

/* Appends tokens [begin, end) in all layers, and polls the transfer after each. */
static kvc_status step(kvc_cache *cache, kvc_seq seq, int begin, int end, kvc_transfer transfer, kvc_error *error) {
  float rows[2][TOKENS][DIMS];
  int64_t shape[3] = {end - begin, 1, DIMS};
  const int32_t length = end - begin;
  kvc_batch batch;
  kvc_forward forward;
  kvc_status status;
  kvc_batch_init(&batch);
  batch.sequences = &seq;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  if ((status = kvc_forward_begin(cache, &batch, NULL, &forward, error)) != KVC_OK) return status;
  for (int layer = 0; layer < LAYERS; layer++) {
    kvc_transfer_info info;
    kvc_append_args args;
    DLTensor tensors[2];
    kvc_transfer_info_init(&info);
    kvc_append_args_init(&args);
    for (int is_v = 0; is_v < 2; is_v++) {
      for (int t = begin; t < end; t++) {
        for (int d = 0; d < DIMS; d++) rows[is_v][t - begin][d] = value(t, layer, is_v, d);
      }
      tensors[is_v] = (DLTensor){rows[is_v], {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, shape, NULL, 0};
    }
    args.k = &tensors[0];
    args.v = &tensors[1];
    if ((status = kvc_forward_append(cache, forward, layer, &args, error)) != KVC_OK) return status;
    if ((status = kvc_transfer_poll(cache, transfer, &info, error)) != KVC_OK) return status;
  }
  return kvc_forward_end(cache, forward, error);
}

int main(int argc, char **argv) {
  static char hex[16384];
  static unsigned char description[8192];
  int64_t bytes = 0;
  kvc_context_config context_config;
  kvc_context *context;
  kvc_cache *cache;
  kvc_transport_open_fn open_transport;
  void *library, *symbol;
  kvc_transport transport;
  kvc_seq seq;
  kvc_transfer outgoing;
  kvc_transfer_info info;
  kvc_error error = KVC_ERROR_INIT;
  if (argc != 3 || fgets(hex, sizeof hex, stdin) == NULL) return 2;
  for (unsigned byte; sscanf(hex + 2 * bytes, "%2x", &byte) == 1; bytes++) description[bytes] = (unsigned char)byte;
  kvc_context_config_init(&context_config);
  if (kvc_context_create(&context_config, &context, &error)) return report("context_create", &error);
  if (create(context, &cache, &error)) return report("cache_create", &error);
  if ((library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL)) == NULL) return 3;
  if ((symbol = dlsym(library, "kvc_transport_open")) == NULL) return 4;
  memcpy(&open_transport, &symbol, sizeof symbol); /* ISO C converts no object pointer into a function pointer */
  kvc_transport_init(&transport);
  if (open_transport(KVC_TRANSPORT_VERSION, argv[2], &transport, &error)) return report("transport_open", &error);
  if (kvc_cache_set_transport(cache, &transport, &error)) return report("cache_set_transport", &error);
  if (kvc_seq_add(cache, 1, &seq, &error)) return report("seq_add", &error);
  if (kvc_transfer_send(cache, seq, description, bytes, &outgoing, &error)) return report("transfer_send", &error);
  if (step(cache, seq, 0, FIRST, outgoing, &error)) return report("step", &error);
  if (step(cache, seq, FIRST, TOKENS, outgoing, &error)) return report("step", &error);
  kvc_transfer_info_init(&info);
  while (!info.done) {
    if (kvc_transfer_poll(cache, outgoing, &info, &error)) return report("transfer_poll", &error);
  }
  kvc_cache_destroy(cache);
  kvc_context_destroy(context);
  return 0;
}
