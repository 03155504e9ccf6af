/* One layer, one head of two dims, pages of four tokens: a prompt of two tokens, a fork, and a decode step of both
 * sequences, small enough to be computed by hand. Included by a program that says how functions are called:
 *   #define CALL(name) kvc_##name        linked
 *   #define CALL(name) api->name         loaded */
#include <dlpack/dlpack.h>
#include <kvcache.h>
#include <math.h>
#include <stdio.h>

static int report(const char *what, const kvc_error *error) {
  fprintf(stderr, "FAILED: %s: %s\n", what, error->message);
  return 1;
}

/* A compact float32 tensor [tokens, 1, 2] in host memory. */
static DLTensor rows(float *data, int64_t *shape, int64_t tokens) {
  DLTensor tensor = {data, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, shape, NULL, 0};
  shape[0] = tokens;
  shape[1] = 1;
  shape[2] = 2;
  return tensor;
}

static int step(SCENARIO_API kvc_cache *cache, const kvc_seq *sequences, const int32_t *lengths, int32_t n, float *q,
                float *k, float *v, float *out, float *lse) {
  kvc_error error = KVC_ERROR_INIT;
  kvc_batch batch;
  kvc_forward forward = 0;
  kvc_attend_args args;
  int64_t shape[3], lse_shape[2], tokens = 0;
  DLTensor tq, tk, tv, tout, tlse = {lse, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, lse_shape, NULL, 0};
  for (int32_t i = 0; i < n; i++) tokens += lengths[i];
  tq = rows(q, shape, tokens);
  tk = rows(k, shape, tokens);
  tv = rows(v, shape, tokens);
  tout = rows(out, shape, tokens);
  lse_shape[0] = tokens;
  lse_shape[1] = 1;

  kvc_batch_init(&batch);
  batch.sequences = sequences;
  batch.append_lengths = lengths;
  batch.num_sequences = n;
  if (CALL(forward_begin)(cache, &batch, NULL, &forward, &error)) return report("forward_begin", &error);
  kvc_attend_args_init(&args);
  args.q = &tq;
  args.k = &tk;
  args.v = &tv;
  args.out = &tout;
  args.lse = &tlse;
  if (CALL(forward_attend)(cache, forward, 0, &args, &error)) return report("forward_attend", &error);
  if (CALL(forward_end)(cache, forward, &error)) return report("forward_end", &error);
  return 0;
}

static int expect(const char *what, const float *values, const float *wanted, int count) {
  for (int i = 0; i < count; i++) {
    if (fabsf(values[i] - wanted[i]) <= 1e-5f * fabsf(wanted[i]) + 1e-6f) continue;
    fprintf(stderr, "FAILED: %s[%d] is %.8g, by hand %.8g\n", what, i, values[i], wanted[i]);
    return 1;
  }
  return 0;
}

static int scenario(SCENARIO_API kvc_context *context) {
  kvc_error error = KVC_ERROR_INIT;
  kvc_layer_config layer;
  kvc_cache_config config;
  kvc_stats stats;
  kvc_cache *cache = NULL;
  kvc_seq both[2];
  int64_t lengths[2];
  const int32_t prompt_length = 2, ones[2] = {1, 1};
  const float ln3 = 1.0986122887f;

  kvc_layer_config_init(&layer);
  layer.num_q_heads = layer.num_kv_heads = 1;
  layer.head_dim = 2;
  layer.softmax_scale = 1.0;
  kvc_cache_config_init(&config);
  config.layers = &layer;
  config.num_layers = 1;
  config.page_size = 4;
  config.capacity_tokens = 64;
  if (CALL(cache_create)(context, &config, &cache, &error)) return report("cache_create", &error);

  /* Prompt: keys (0,0) and (0,0), values (1,2) and (3,4). The second token sees both with equal weight. */
  float q0[4] = {5, -7, 2, 9}, k0[4] = {0, 0, 0, 0}, v0[4] = {1, 2, 3, 4}, out0[4] = {0}, lse0[2] = {0};
  const float want0[4] = {1, 2, 2, 3}, want_lse0[2] = {0, 0.6931471806f};
  if (CALL(seq_add)(cache, 1, both, &error)) return report("seq_add", &error);
  if (step(SCENARIO_PASS cache, both, &prompt_length, 1, q0, k0, v0, out0, lse0)) return 1;
  if (expect("prefill", out0, want0, 4) || expect("prefill's lse", lse0, want_lse0, 2)) return 1;

  /* The fork decodes key (1,0), value (10,20) with q = (ln 3, 0): weights 1, 1, 3 of 5. Its parent decodes key (0,0),
   * value (8,9): weights 1, 1, 1 of 3. */
  float q1[4] = {ln3, 0, ln3, 0}, k1[4] = {0, 0, 1, 0}, v1[4] = {8, 9, 10, 20}, out1[4] = {0}, lse1[2] = {0};
  const float want1[4] = {4, 5, 6.8f, 13.2f}, want_lse1[2] = {1.0986122887f, 1.6094379124f};
  if (CALL(seq_fork)(cache, 1, &both[0], NULL, &both[1], NULL, &error)) return report("seq_fork", &error);
  if (step(SCENARIO_PASS cache, both, ones, 2, q1, k1, v1, out1, lse1)) return 1;
  if (expect("decode", out1, want1, 4) || expect("decode's lse", lse1, want_lse1, 2)) return 1;

  if (CALL(seq_lengths)(cache, 2, both, lengths, &error)) return report("seq_lengths", &error);
  kvc_stats_init(&stats);
  if (CALL(cache_stats)(cache, -1, &stats, &error)) return report("cache_stats", &error);
  if (lengths[0] != 3 || lengths[1] != 3 || stats.num_sequences != 2 || stats.pages_used != 2) {
    fprintf(stderr, "FAILED: lengths %lld %lld, %d sequences, %lld pages\n", (long long)lengths[0],
            (long long)lengths[1], stats.num_sequences, (long long)stats.pages_used);
    return 1;
  }
  if (CALL(seq_remove)(cache, 2, both, &error)) return report("seq_remove", &error);
  if (CALL(seq_lengths)(cache, 1, both, lengths, &error) != KVC_ERROR_STALE_ID || error.index != 0) {
    fprintf(stderr, "FAILED: a removed sequence is not stale\n");
    return 1;
  }
  CALL(cache_destroy)(cache);
  return 0;
}
