/* What the host does in each step of a sequence: attention of new tokens over all tokens so far. By the plug-in where
 * there is one, else by plain loops over arrays of its own. */
#pragma once
#include "plugin.h"

enum { LAYERS = 2, Q_HEADS = 8, KV_HEADS = 2, HEAD_DIM = 64, MAX_TOKENS = 512 };

/* One for all threads. */
struct attention {
  const struct plugin *plugin; /* NULL: plain loops */
  kvc_context *context;
  kvc_cache *cache;
};

/* One for each sequence; used by one thread. */
struct sequence {
  kvc_seq id;
  float *k, *v; /* plain loops: [LAYERS, MAX_TOKENS, KV_HEADS, HEAD_DIM] */
  int tokens;
};

/* All return 0, or -1 with what happened in error->message. */
int attention_open(struct attention *attention, const struct plugin *plugin, int max_sequences, kvc_error *error);
int attention_begin(struct attention *attention, struct sequence *sequence, kvc_error *error);
/* q, out [tokens, Q_HEADS, HEAD_DIM] and k, v [tokens, KV_HEADS, HEAD_DIM], each of them for every layer. */
int attention_step(struct attention *attention, struct sequence *sequence, int tokens, float *q[LAYERS],
                   float *k[LAYERS], float *v[LAYERS], float *out[LAYERS], kvc_error *error);
void attention_end(struct attention *attention, struct sequence *sequence);
void attention_close(struct attention *attention);
