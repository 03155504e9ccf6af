/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdio.h>
#include <string.h>

void model_config(kvc_cache_config *config) {
  static kvc_layer_config layers[LAYERS];
  static kvc_group_config groups[2];
  for (int32_t i = 0; i < LAYERS; i++) {
    kvc_layer_config_init(&layers[i]);
    layers[i].group = i;
    layers[i].num_q_heads = Q_HEADS;
    layers[i].num_kv_heads = KV_HEADS;
    layers[i].head_dim = HEAD_DIM;
    layers[i].rope_mode = KVC_ROPE_ON_APPEND;
    kvc_group_config_init(&groups[i]);
  }
  groups[SLIDING].visibility = KVC_VISIBLE_WINDOW;
  groups[SLIDING].window_tokens = WINDOW;
  kvc_cache_config_init(config);
  config->layers = layers;
  config->num_layers = LAYERS;
  config->groups = groups;
  config->num_groups = 2;
}

int32_t encode(const char *text, int32_t *tokens) {
  int32_t n = 0;
  for (; text[n]; n++) tokens[n] = (unsigned char)text[n];
  return n;
}

const char *decode(const int32_t *tokens, int32_t n, char *text) {
  for (int32_t i = 0; i < n; i++) text[i] = (char)tokens[i];
  text[n] = '\0';
  return text;
}

static float number(int32_t token, int32_t i) {
  uint32_t x = ((uint32_t)token * WIDTH + (uint32_t)i + 1) * 2654435761u;
  x ^= x >> 15;
  x *= 2246822519u;
  return ((float)(x >> 24) - 128) / 64;
}

void embed(const int32_t *tokens, int32_t n, float *hidden) {
  for (int32_t t = 0; t < n; t++)
    for (int32_t i = 0; i < WIDTH; i++) hidden[t * WIDTH + i] = number(tokens[t], i);
}

void project(const float *hidden, int32_t n, float *q, float *k, float *v) {
  memcpy(q, hidden, sizeof(float) * (size_t)n * WIDTH);
  for (int32_t t = 0; t < n; t++) {
    memcpy(k + t * HEAD_DIM, hidden + t * WIDTH, sizeof(float) * HEAD_DIM);
    memcpy(v + t * HEAD_DIM, hidden + t * WIDTH + HEAD_DIM, sizeof(float) * HEAD_DIM);
  }
}

void add(float *hidden, const float *out, int32_t n) {
  for (int32_t i = 0; i < n * WIDTH; i++) hidden[i] += out[i];
}

void predict(const float *hidden, int32_t n, int32_t *next) {
  for (int32_t t = 0; t < n; t++) {
    double best = -1e30;
    for (int32_t letter = 'a'; letter <= 'z'; letter++) {
      double score = 0;
      for (int32_t i = 0; i < WIDTH; i++) score += (double)hidden[t * WIDTH + i] * (double)number(256 + letter, i);
      if (score > best) best = score, next[t] = letter;
    }
  }
}

kvc_status run(kvc_cache *cache, kvc_forward step, const int32_t *tokens, int32_t n, int32_t *next, kvc_error *error) {
  float hidden[MAX_TOKENS * WIDTH], q[MAX_TOKENS * WIDTH], k[MAX_TOKENS * HEAD_DIM], v[MAX_TOKENS * HEAD_DIM],
      out[MAX_TOKENS * WIDTH];
  kvc_tensor tensors[4];
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = kvc_tensor_3d(&tensors[0], q, kvc_f32(), n, Q_HEADS, HEAD_DIM);
  args.k = kvc_tensor_3d(&tensors[1], k, kvc_f32(), n, KV_HEADS, HEAD_DIM);
  args.v = kvc_tensor_3d(&tensors[2], v, kvc_f32(), n, KV_HEADS, HEAD_DIM);
  args.out = kvc_tensor_3d(&tensors[3], out, kvc_f32(), n, Q_HEADS, HEAD_DIM);
  embed(tokens, n, hidden);
  for (int32_t layer = 0; layer < LAYERS; layer++) {
    project(hidden, n, q, k, v);
    kvc_status status = kvc_forward_attend(cache, step, layer, &args, error);
    if (status) {
      kvc_forward_abort(cache, step, NULL); /* the new tokens go, and the first error is reported */
      return status;
    }
    add(hidden, out, n);
  }
  predict(hidden, n, next);
  return KVC_OK;
}

int with_cache(const kvc_cache_config *config, kvc_status (*program)(kvc_cache *cache, kvc_error *error)) {
  kvc_error error = KVC_ERROR_INIT;
  kvc_context *context = NULL;
  kvc_cache *cache = NULL;
  kvc_status status = kvc_context_create(NULL, &context, &error);
  if (!status) status = kvc_cache_create(context, config, &cache, &error);
  if (!status) status = program(cache, &error);
  if (status) fprintf(stderr, "%s: %s\n", kvc_status_name(status), error.message);
  kvc_cache_destroy(cache);
  kvc_context_destroy(context);
  return status != KVC_OK;
}
