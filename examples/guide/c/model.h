/* A stand-in for a model, without weights: two layers, and tokens that are the bytes of a text. Every number is a hash
 * of a token, so the programs in all five languages compute the same.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_H_
#define MODEL_H_

#include <kvcache.h>
#include <kvcache_tensor.h>

enum {
  LAYERS = 2,
  Q_HEADS = 2,
  KV_HEADS = 1,
  HEAD_DIM = 16,
  WIDTH = Q_HEADS * HEAD_DIM, /* numbers of a token between two layers */
  WINDOW = 32,                /* keys that a query of the first layer sees */
  SLIDING = 0,                /* the groups: layers that see the same keys share page tables */
  FULL = 1,
  MAX_TOKENS = 256 /* of one step, and of one conversation */
};

/* Starts the config of a cache for this model: layers and groups. The program adds the capacity. */
void model_config(kvc_cache_config *config);

/* Gives the tokens of a text, and returns how many they are. */
int32_t encode(const char *text, int32_t *tokens);

/* Gives the text of n tokens. It returns `text`, which has room for n + 1 bytes. */
const char *decode(const int32_t *tokens, int32_t n, char *text);

/* Gives each token a vector of WIDTH numbers from -2 to 2. */
void embed(const int32_t *tokens, int32_t n, float *hidden);

/* Gives q, k and v of a layer. A real model multiplies by weights here. */
void project(const float *hidden, int32_t n, float *q, float *k, float *v);

/* Adds the output of attention to `hidden`. */
void add(float *hidden, const float *out, int32_t n);

/* Gives, for each of n rows, the letter that comes next. */
void predict(const float *hidden, int32_t n, int32_t *next);

/* Runs the layers in an open step of n tokens. Gives, for each of the tokens, the one that comes next. If a call fails,
 * it aborts the step. */
kvc_status run(kvc_cache *cache, kvc_forward step, const int32_t *tokens, int32_t n, int32_t *next, kvc_error *error);

/* Makes a cache, calls the program, reports its error, and releases everything. Returns the exit code. */
int with_cache(const kvc_cache_config *config, kvc_status (*program)(kvc_cache *cache, kvc_error *error));

#endif /* MODEL_H_ */
