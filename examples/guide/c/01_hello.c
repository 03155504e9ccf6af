/* One sequence: read a prompt, then decode one token after another.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "model.h"

/* Appends n tokens to a sequence, and gives the token that comes next. */
static kvc_status forward(kvc_cache *cache, kvc_seq sequence, const int32_t *tokens, int32_t n, int32_t *next,
                          kvc_error *error) {
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &sequence;
  batch.append_lengths = &n;
  batch.num_sequences = 1;
  kvc_forward step;
  kvc_status status = kvc_forward_begin(cache, &batch, NULL, &step, error); /* reserves the pages */
  if (status) return status;

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
    status =
        kvc_forward_attend(cache, step, layer, &args, error); /* stores k and v, then attends to everything stored */
    if (status) {
      kvc_forward_abort(cache, step, NULL); /* the new tokens go */
      return status;
    }
    add(hidden, out, n);
  }
  status = kvc_forward_end(cache, step, error); /* the new tokens stay */
  if (status) return status;
  predict(hidden + (n - 1) * WIDTH, 1, next);
  return KVC_OK;
}

static kvc_status show(kvc_cache *cache, kvc_seq sequence, kvc_error *error) {
  int64_t length, live[2] = {0, 0};
  kvc_status status = kvc_seq_lengths(cache, 1, &sequence, &length, error);
  for (int32_t group = 0; group < 2 && !status; group++) {
    int32_t pages[MAX_TOKENS];
    int64_t count = 0;
    status = kvc_seq_pages(cache, sequence, group, pages, MAX_TOKENS, &count, error);
    for (int64_t i = 0; i < count; i++) live[group] += pages[i] >= 0; /* -1: the page has left the window */
  }
  if (!status)
    printf("%lld tokens in %lld pages of the sliding layer and %lld of the full layer\n", (long long)length,
           (long long)live[SLIDING], (long long)live[FULL]);
  return status;
}

static kvc_status hello(kvc_cache *cache, kvc_error *error) {
  int32_t prompt[MAX_TOKENS], answer[40];
  int32_t n = encode("Once upon a time there was a cache that kept what it had read.", prompt);
  kvc_seq sequence;
  kvc_status status = kvc_seq_add(cache, 1, &sequence, error);
  if (!status) status = forward(cache, sequence, prompt, n, &answer[0], error);
  if (!status) status = show(cache, sequence, error);
  for (int32_t i = 1; i < 40 && !status; i++) status = forward(cache, sequence, &answer[i - 1], 1, &answer[i], error);
  if (!status) status = show(cache, sequence, error);
  if (status) return status;

  char text[41];
  printf("answer: %s\n", decode(answer, 40, text));
  status = kvc_seq_remove(cache, 1, &sequence, error);
  kvc_stats stats;
  kvc_stats_init(&stats);
  if (!status) status = kvc_cache_stats(cache, -1, &stats, error);
  if (!status) printf("%lld pages in use\n", (long long)stats.pages_used);
  return status;
}

int main(void) {
  kvc_cache_config config;
  model_config(&config);
  config.capacity_tokens = 1024;
  config.rollback_tokens = 8; /* the window keeps 8 tokens more, so that 8 tokens can be taken back */
  config.flags = KVC_CACHE_DETERMINISTIC;

  kvc_error error = KVC_ERROR_INIT;
  kvc_context *context = NULL; /* the CPU, with all its cores */
  kvc_cache *cache = NULL;     /* all memory is reserved here */
  kvc_status status = kvc_context_create(NULL, &context, &error);
  if (!status) status = kvc_cache_create(context, &config, &cache, &error);
  if (!status) status = hello(cache, &error);
  if (status) fprintf(stderr, "%s: %s\n", kvc_status_name(status), error.message);
  kvc_cache_destroy(cache);
  kvc_context_destroy(context);
  return status != KVC_OK;
}
