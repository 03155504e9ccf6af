/* Stores the keys and values of 10 tokens, and attends to them. All values are 1, so the output is 1 too.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <kvcache_tensor.h>
#include <stdio.h>

static kvc_status attend(kvc_cache *cache, float *out, kvc_error *error) {
  static float q[10 * 4 * 8], k[10 * 8], v[10 * 8];
  for (int i = 0; i < 10 * 8; i++) v[i] = 1.0f;
  kvc_seq sequence;
  kvc_batch batch;
  kvc_batch_init(&batch);
  int32_t length = 10;
  batch.sequences = &sequence;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  kvc_forward step;
  kvc_status status = kvc_seq_add(cache, 1, &sequence, error);
  if (!status) status = kvc_forward_begin(cache, &batch, NULL, &step, error);
  if (status) return status;
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  kvc_tensor tensors[4];
  args.q = kvc_tensor_3d(&tensors[0], q, kvc_f32(), 10, 4, 8);
  args.k = kvc_tensor_3d(&tensors[1], k, kvc_f32(), 10, 1, 8);
  args.v = kvc_tensor_3d(&tensors[2], v, kvc_f32(), 10, 1, 8);
  args.out = kvc_tensor_3d(&tensors[3], out, kvc_f32(), 10, 4, 8);
  status = kvc_forward_attend(cache, step, 0, &args, error);
  return status ? status : kvc_forward_end(cache, step, error);
}

int main(void) {
  kvc_error error = KVC_ERROR_INIT;
  kvc_layer_config layer;
  kvc_layer_config_init(&layer);
  layer.num_q_heads = 4;
  layer.num_kv_heads = 1;
  layer.head_dim = 8;
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = &layer;
  config.num_layers = 1;
  config.capacity_tokens = 64;
  kvc_context *context = NULL;
  kvc_cache *cache = NULL;
  static float out[10 * 4 * 8];
  kvc_status status = kvc_context_create(NULL, &context, &error);
  if (!status) status = kvc_cache_create(context, &config, &cache, &error);
  if (!status) status = attend(cache, out, &error);
  if (status) fprintf(stderr, "%s: %s\n", kvc_status_name(status), error.message);
  kvc_cache_destroy(cache);
  kvc_context_destroy(context);
  printf("out[0] = %g\n", out[0]);
  return status || out[0] != 1.0f;
}
