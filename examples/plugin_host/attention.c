#include "attention.h"

#include <kvcache_tensor.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int out_of_memory(kvc_error *error) {
  snprintf(error->message, sizeof(error->message), "host: out of memory");
  return -1;
}

/* ---- By plain loops ---------------------------------------------------------------------------- */

static void attend_plainly(const float *q, const float *k, const float *v, int tokens, int past, float *out) {
  double scores[MAX_TOKENS];
  for (int t = 0; t < tokens; t++) {
    for (int h = 0; h < Q_HEADS; h++) {
      const int kv_head = h / (Q_HEADS / KV_HEADS), keys = past + t + 1;
      const float *query = q + (t * Q_HEADS + h) * HEAD_DIM;
      float *row = out + (t * Q_HEADS + h) * HEAD_DIM;
      double most = -INFINITY, sum = 0.0;
      for (int j = 0; j < keys; j++) {
        const float *key = k + (j * KV_HEADS + kv_head) * HEAD_DIM;
        scores[j] = 0.0;
        for (int d = 0; d < HEAD_DIM; d++) scores[j] += (double)query[d] * key[d];
        scores[j] /= sqrt(HEAD_DIM);
        if (scores[j] > most) most = scores[j];
      }
      for (int j = 0; j < keys; j++) sum += scores[j] = exp(scores[j] - most);
      for (int d = 0; d < HEAD_DIM; d++) {
        double value = 0.0;
        for (int j = 0; j < keys; j++) value += scores[j] * v[(j * KV_HEADS + kv_head) * HEAD_DIM + d];
        row[d] = (float)(value / sum);
      }
    }
  }
}

static int step_plainly(struct sequence *sequence, int tokens, float *q[LAYERS], float *k[LAYERS], float *v[LAYERS],
                        float *out[LAYERS], kvc_error *error) {
  const size_t row = KV_HEADS * HEAD_DIM;
  if (sequence->tokens + tokens > MAX_TOKENS) {
    snprintf(error->message, sizeof(error->message), "host: a sequence has at most %d tokens", (int)MAX_TOKENS);
    return -1;
  }
  for (int layer = 0; layer < LAYERS; layer++) {
    float *keys = sequence->k + layer * MAX_TOKENS * row, *values = sequence->v + layer * MAX_TOKENS * row;
    memcpy(keys + sequence->tokens * row, k[layer], tokens * row * sizeof(float));
    memcpy(values + sequence->tokens * row, v[layer], tokens * row * sizeof(float));
    attend_plainly(q[layer], keys, values, tokens, sequence->tokens, out[layer]);
  }
  sequence->tokens += tokens;
  return 0;
}

/* ---- By the plug-in ---------------------------------------------------------------------------- */

static int step_by_plugin(struct attention *attention, struct sequence *sequence, int tokens, float *q[LAYERS],
                          float *k[LAYERS], float *v[LAYERS], float *out[LAYERS], kvc_error *error) {
  const kvc_api *api = attention->plugin->api;
  const int32_t append = tokens;
  kvc_batch batch;
  kvc_forward step;
  kvc_batch_init(&batch);
  batch.sequences = &sequence->id;
  batch.append_lengths = &append;
  batch.num_sequences = 1;
  if (api->forward_begin(attention->cache, &batch, NULL, &step, error)) return -1;
  for (int layer = 0; layer < LAYERS; layer++) {
    kvc_tensor tq, tk, tv, tout;
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = kvc_tensor_3d(&tq, q[layer], kvc_f32(), tokens, Q_HEADS, HEAD_DIM);
    args.k = kvc_tensor_3d(&tk, k[layer], kvc_f32(), tokens, KV_HEADS, HEAD_DIM);
    args.v = kvc_tensor_3d(&tv, v[layer], kvc_f32(), tokens, KV_HEADS, HEAD_DIM);
    args.out = kvc_tensor_3d(&tout, out[layer], kvc_f32(), tokens, Q_HEADS, HEAD_DIM);
    if (api->forward_attend(attention->cache, step, layer, &args, error)) {
      api->forward_abort(attention->cache, step, NULL); /* as if it had never begun */
      return -1;
    }
  }
  if (api->forward_end(attention->cache, step, error)) return -1;
  sequence->tokens += tokens;
  return 0;
}

/* ---- Either ------------------------------------------------------------------------------------ */

int attention_open(struct attention *attention, const struct plugin *plugin, int max_sequences, kvc_error *error) {
  kvc_layer_config layers[LAYERS];
  kvc_cache_config config;
  memset(attention, 0, sizeof(*attention));
  attention->plugin = plugin;
  if (!plugin) return 0;
  if (plugin->api->context_create(NULL, &attention->context, error)) return -1;
  for (int layer = 0; layer < LAYERS; layer++) {
    kvc_layer_config_init(&layers[layer]);
    layers[layer].num_q_heads = Q_HEADS;
    layers[layer].num_kv_heads = KV_HEADS;
    layers[layer].head_dim = HEAD_DIM;
    layers[layer].dtype.code = kDLFloat;
    layers[layer].dtype.bits = 32;
    layers[layer].dtype.lanes = 1;
  }
  kvc_cache_config_init(&config);
  config.layers = layers;
  config.num_layers = LAYERS;
  config.max_sequences = max_sequences;
  config.max_open_forwards = max_sequences; /* each thread has a step of its own */
  config.capacity_tokens = (int64_t)max_sequences * MAX_TOKENS;
  if (!plugin->api->cache_create(attention->context, &config, &attention->cache, error)) return 0;
  attention_close(attention);
  return -1;
}

int attention_begin(struct attention *attention, struct sequence *sequence, kvc_error *error) {
  memset(sequence, 0, sizeof(*sequence));
  if (attention->plugin) return attention->plugin->api->seq_add(attention->cache, 1, &sequence->id, error) ? -1 : 0;
  sequence->k = malloc(sizeof(float) * LAYERS * MAX_TOKENS * KV_HEADS * HEAD_DIM);
  sequence->v = malloc(sizeof(float) * LAYERS * MAX_TOKENS * KV_HEADS * HEAD_DIM);
  if (sequence->k && sequence->v) return 0;
  attention_end(attention, sequence);
  return out_of_memory(error);
}

int attention_step(struct attention *attention, struct sequence *sequence, int tokens, float *q[LAYERS],
                   float *k[LAYERS], float *v[LAYERS], float *out[LAYERS], kvc_error *error) {
  if (attention->plugin) return step_by_plugin(attention, sequence, tokens, q, k, v, out, error);
  return step_plainly(sequence, tokens, q, k, v, out, error);
}

void attention_end(struct attention *attention, struct sequence *sequence) {
  if (attention->plugin && sequence->id) attention->plugin->api->seq_remove(attention->cache, 1, &sequence->id, NULL);
  free(sequence->k);
  free(sequence->v);
  memset(sequence, 0, sizeof(*sequence));
}

void attention_close(struct attention *attention) {
  if (!attention->plugin) return;
  attention->plugin->api->cache_destroy(attention->cache);
  attention->plugin->api->context_destroy(attention->context);
}
