/* The table of functions that a backend fills for libkvcache. The CPU backend is built in, and the CUDA backend is a
 * plug-in.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * The core decides where everything lies: pages, positions, work items. A backend moves and computes bytes. The arguments of
 * a backend are plain data, and a backend never calls the cache. Core and backend must have the same KVC_BACKEND_VERSION.
 *
 * Pools, tensors, partials and cos/sin are in memory of the backend's device. Index arrays (slots, positions, page ids,
 * copies) are in host memory that may change when a call returns, so an asynchronous device must copy them. There are two
 * exceptions:
 *   - A call that names a step (kvc_backend_step) gives addresses on the device, where the arrays of the step were staged.
 *   - A caller without a cache may give index arrays in device memory (kvc_backend_indexes). From these arrays, plan_flash
 *     and plan_tables make further arrays on the device.
 * Every array has its shape in its comment. The letters in shapes are those of kvcache.h.
 */
#ifndef KVCACHE_BACKEND_H_
#define KVCACHE_BACKEND_H_

#include "kvcache.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVC_BACKEND_VERSION 15

/* ---- Services of the core ------------------------------------------------------------------- */

/* How much work the items of one run are together. The effort decides whether other threads help. */
enum kvc_backend_effort {
  KVC_EFFORT_TINY = 0,  /* about a microsecond: the caller runs the items itself */
  KVC_EFFORT_SMALL = 1, /* less than the wake-up time of a thread (tens of microseconds): only threads that are awake help */
  KVC_EFFORT_LARGE = 2  /* more than the wake-up time of a thread: sleeping threads are woken */
};

/* The services that a backend may use of the context that opened it. */
typedef struct kvc_backend_host {
  void *self;
  int32_t num_workers; /* number of worker indices, which is more than the number of threads that run at the same time. Each
                          worker index has its own scratch */
  /* How many items run at the same time on threads of the library, the caller's thread included. If it is 1, run() may use
   * threads of the host, on which other code of the host may run. So a call under a lock of the library then runs its items
   * on the caller's thread. */
  int32_t own_threads;
  /* Runs item(arg, i, worker) once for each i in [0, n), and returns when every item is done. Threads take items from a
   * shared counter, so the caller's thread alone can finish all items. worker in [0, num_workers) selects a scratch. Two
   * items that run at the same time have different worker indices. effort: a kvc_backend_effort. */
  void (*run)(void *self, int64_t n, int32_t effort, void (*item)(void *arg, int64_t index, int32_t worker),
              void *arg);
} kvc_backend_host;

/* ---- Storage -------------------------------------------------------------------------------- */

/* Where the scales of stored elements lie. */
enum kvc_backend_scale_place {
  KVC_BACKEND_SCALES_NONE = 0,    /* there are no scales: an element is read as it is stored */
  KVC_BACKEND_SCALES_APART = 1,   /* in a separate tensor, outside of the pages. append does not write them */
  KVC_BACKEND_SCALES_SEGMENT = 2, /* in the row, after the elements of their segment */
  KVC_BACKEND_SCALES_ROW = 3,     /* in the row, after the elements of all its segments */
  KVC_BACKEND_SCALES_PAGE = 4     /* in the page, after the rows that they scale */
};

/* The scales of the elements of a segment. Neighbouring elements share a scale: one scale is for the elements of `dims`
 * dims, `tokens` tokens and `heads` heads. The dims are counted from the first dim of the segment. 0 means all of them. */
typedef struct kvc_backend_scale_format {
  DLDataType dtype;      /* type of a scale, of one or more whole bytes */
  uint16_t dims;         /* number of dims that share a scale */
  uint16_t tokens, heads; /* number of tokens and heads that share a scale; 0 or 1 where scales lie in the row */
  uint8_t place;         /* KVC_BACKEND_SCALES_* */
  uint8_t values;        /* number of values of one scale, stored side by side: 2 = a scale and an offset. 0 means 1 */
  uint8_t order;         /* r > 1: if a row has n scales, scale s lies at place (s % r) * (n / r) + s / r. Else in order */
  uint8_t reserved;
} kvc_backend_scale_format;

/* What the elements of a segment represent. */
enum kvc_backend_encoding {
  KVC_BACKEND_ENCODING_NUMBERS = 0, /* numbers of the segment's dtype */
  /* Elements 0..15 of a rotated row. The lowest 4 bits of the float32 scale are a zero point z, and count as zeros in the
   * scale. An element is read as (stored - z) * scale. The rotation multiplies each dim d by a sign. Then it multiplies each
   * block of b neighbouring dims by the Hadamard matrix of size b. kernels/common/hadamard.h defines the signs and b. */
  KVC_BACKEND_ENCODING_ROTATED = 1
};

/* Neighbouring dims of a row that are stored in the same format. Elements are packed without gaps, the first element in the
 * lowest bits of the first byte. A segment begins at a whole byte. */
typedef struct kvc_backend_segment {
  DLDataType dtype;  /* type of an element, of any number of bits */
  uint16_t dims;     /* number of dims; 0 = all remaining dims of the row */
  uint16_t encoding; /* KVC_BACKEND_ENCODING_*, or a value that only the format defines, for example for a code book */
  kvc_backend_scale_format scales; /* an element is read as stored * scale */
  kvc_backend_scale_format outer;  /* scales of the scales: an element is read as stored * scale * outer scale */
} kvc_backend_segment;

enum { KVC_BACKEND_MAX_SEGMENTS = 2 };

/* How the row of one token and head is stored. */
typedef struct kvc_backend_row_format {
  kvc_backend_segment segments[2];
  uint16_t num_segments;
  uint16_t row_multiple;    /* a row, including its scales, is padded to a multiple of this number of bytes. 0 means 1 */
  uint16_t scales_multiple; /* the scales of a row in the page are padded to a multiple of this number of bytes. 0 means 1 */
  uint16_t reserved;
} kvc_backend_row_format;

/* The order of rows and scales in a page that the library lays out. */
enum kvc_backend_page_order {
  KVC_BACKEND_PAGE_ROWS_FIRST = 0, /* rows of K, rows of V, scales of K, scales of V */
  KVC_BACKEND_PAGE_POOLS = 1,      /* rows of K, scales of K, rows of V, scales of V */
  KVC_BACKEND_PAGE_PAIRS = 2       /* for each token and head, the row of K and then the row of V; no scales after the
                                      rows */
};

/* How a layer stores K and V. kernels/common/stored_format.h computes sizes and offsets from this format. */
typedef struct kvc_backend_format {
  kvc_backend_row_format k, v;
  uint16_t page_order;    /* KVC_BACKEND_PAGE_* */
  uint16_t tokens_first;  /* 1: rows of a page are [tokens, heads]; 0: [heads, tokens] */
  uint16_t page_multiple; /* a page is padded to a multiple of this number of bytes. 0 means 1 */
  uint16_t reserved;
} kvc_backend_format;

/* One of the two pools of a layer, and where its rows lie. */
typedef struct kvc_backend_pool {
  void *data; /* row (page, head, slot) is at
                 data + page*page_stride_bytes + head*head_stride_bytes + slot*slot_stride_bytes */
  int64_t page_stride_bytes;
  int64_t head_stride_bytes;
  int64_t slot_stride_bytes;
  int64_t row_bytes; /* bytes of one row that a copy moves, including scales in the row and padding */
} kvc_backend_pool;

/* The scales of a quantised pool. Scales of tokens lie in the pages. Scales of heads (fp8) lie in separate memory. */
typedef struct kvc_backend_scales {
  void *data; /* NULL: every scale is 1. Else the scales of row (page, head, slot) are at an offset as in
                 kvc_backend_pool.data */
  int64_t page_stride_bytes;
  int64_t head_stride_bytes;
  int64_t slot_stride_bytes; /* 0: tokens have no scales of their own, and page_stride_bytes is 0 too */
  int64_t row_bytes; /* bytes that a copy moves: the scales of one row that lie after the rows of a page. 0: none */
} kvc_backend_scales;

/* What a layer stores for a token and kv head, and in which pools. In every kind, head_dim and v_head_dim are the dims of K
 * and of V that attention uses. */
enum kvc_backend_row_kind {
  /* A row of K in the pool k, and a row of V in the pool v. */
  KVC_BACKEND_ROW_KV = 0,
  /* An MLA row, [latent | rotary], in the pool k. The whole row is K, and its first v_head_dim dims are V. The row is
   * written and copied once. v and v_scales are equal to k and k_scales, except that v.row_bytes is the size of the latent
   * part. num_kv_heads is 1, and all rotated dims are at or above v_head_dim. If v_head_dim is 0, the layer has keys only.
   * Then num_kv_heads is any number, and no query attends to the layer. */
  KVC_BACKEND_ROW_LATENT = 1,
  /* The two parts of an MLA row in two pools: the latent part in v, and the rotary part [head_dim - v_head_dim] in k. V is
   * the latent part, and K is both parts. Only attend accepts such a layer. There are no scales of tokens. */
  KVC_BACKEND_ROW_LATENT_SPLIT = 2
};

/* Shape, storage and rules of one layer; constant for the life of a cache. */
typedef struct kvc_backend_layer {
  kvc_backend_pool k, v;   /* [num_pages, num_kv_heads, page_size] rows of head_dim and v_head_dim dims */
  kvc_backend_scales k_scales, v_scales;
  int64_t num_pages;
  int32_t page_size;
  int32_t num_q_heads, num_kv_heads, head_dim, v_head_dim;
  int32_t window_tokens;   /* w > 0: a query at position p sees keys max(0, p-w+1)..p; 0 = it sees keys 0..p */
  int32_t chunk_tokens;    /* c > 0: a query sees only those of these keys j that have j/c == p/c */
  kvc_backend_format format; /* format of the rows of k and v */
  float softmax_scale;
  int32_t rope_class;      /* index of the forward's cos/sin table for this layer; -1 = no rotation */
  int32_t rope_dim;        /* number of rotated dims, which are [rope_offset, rope_offset + rope_dim) */
  int32_t rope_offset;
  int32_t rope_interleaved; /* pairs of rotated dims: 0 = (i, i + rope_dim/2), 1 = (2i, 2i+1) */
  uint32_t row_kind;       /* KVC_BACKEND_ROW_* */
  uint32_t reserved;
} kvc_backend_layer;

/* ---- Page tables ---------------------------------------------------------------------------- */

/* The page list of each row, in one of two forms.
 *   Trees   For sequences of a cache. A node has KVC_BACKEND_NODE_FANOUT children, and a tree has `levels` levels. Nodes of
 *           level 1 hold page ids, and nodes of higher levels hold node ids; -1 = none. The digits of list index i in base
 *           FANOUT lead from the root to entry i. Lists share nodes, so a fork copies nothing. A node that an open forward
 *           can reach is never changed. So a device that has a copy of the node pool needs only the changed nodes.
 *   Arrays  For callers without a cache. The list of row r begins at pages[page_begin[r]].
 * In both forms, entries that no query sees are never read. */
enum { KVC_BACKEND_NODE_FANOUT_LOG2 = 5, KVC_BACKEND_NODE_FANOUT = 32 };

typedef struct kvc_backend_tables {
  const int32_t *nodes;  /* [num_nodes, FANOUT] */
  const int32_t *roots;  /* [num_rows]: root node of each row, -1 = no page */
  const int32_t *levels; /* [num_rows]: levels of the tree of each row, 0 = no page */
  const int32_t *pages;  /* NULL: the lists are trees. Else they are arrays, and nodes, roots and levels are not read */
  const int64_t *page_begin; /* [num_rows]: where each list begins in `pages` */
} kvc_backend_tables;

/* Returns the leaf of a tree that has list index `index`. The leaf has the page ids of FANOUT list indices, from
 * index & ~(FANOUT - 1) on. The caller ensures that the tree has this index, and that no node on the path is -1. */
#if defined(__CUDACC__)
__host__ __device__
#endif
static inline const int32_t *kvc_backend_leaf(const int32_t *nodes, int32_t root, int32_t levels, int64_t index) {
  int64_t node = root;
  int32_t level;
  for (level = levels - 1; level > 0; --level) {
    const int64_t digit = (index >> (level * KVC_BACKEND_NODE_FANOUT_LOG2)) & (KVC_BACKEND_NODE_FANOUT - 1);
    node = nodes[node * KVC_BACKEND_NODE_FANOUT + digit];
  }
  return nodes + node * KVC_BACKEND_NODE_FANOUT;
}

/* ---- A step --------------------------------------------------------------------------------- */

/* The memory in which a device keeps the index arrays of a step (kvc_backend.stage). A call that names a step gives
 * addresses of this memory for its index arrays. If a call has NULL for the step, its index arrays are in host memory. */
typedef struct kvc_backend_step kvc_backend_step;

/* A node of a token tree. [enter, exit) is the depth-first interval of its subtree. Node q sees node k, which is an ancestor
 * or q itself, if and only if enter(k) <= enter(q) < exit(k). The key of a node comes after the key of its parent. */
typedef struct kvc_backend_tree_node {
  int32_t enter, exit;
  int32_t position; /* committed length + depth. Windows, chunks and biases use it */
  int32_t parent;   /* node of the same tree; -1 = root */
} kvc_backend_tree_node;

/* The rows of one forward. Inert rows have kv_lengths -1 and no work item. The index of a key is its place in the sequence.
 * The position of a key is equal to its index, except for nodes of a tree. kernels/common/mask.h defines which keys a query
 * sees. */
typedef struct kvc_backend_rows {
  int32_t num_rows;
  int32_t num_tokens;           /* T */
  const int32_t *token_begin;   /* [num_rows + 1]: row r has the tokens [token_begin[r], token_begin[r+1]) of q, k and v */
  const int32_t *kv_lengths;    /* [num_rows]: tokens of the sequence, new tokens included. In a cross layer: tokens of the
                                   encoder sequence, possibly 0. In a group with compressed rows: number of its rows, which
                                   may be below the number of new tokens */
  const int32_t *positions;     /* [num_tokens]: position of each new token. In a group with compressed rows: the last row
                                   that the query sees, -1 = none. So causality needs no other rule there */
  const int32_t *key_ends;      /* nullable; [num_tokens]: a query sees keys below its key_ends, not only keys up to
                                   itself */
  /* Rows with a streaming window. With a window w > 0 and s sinks, s < w, a query at position p sees keys j < s and keys
   * max(s, p-(w-s)+1) <= j <= p. Nullable, together. */
  const int32_t *stream_sinks;   /* [num_rows] */
  const int32_t *stream_windows; /* [num_rows]; 0 = the row has no streaming window */
  /* Rows whose last keys are nodes of a tree. The key with index tree_begin[r] + i is tree_nodes[tree_offset[r] + i], and
   * every new token of such a row is a node. Nullable, together. */
  const int32_t *tree_begin;     /* [num_rows]; kv_lengths[r] = no tree */
  const int32_t *tree_offset;    /* [num_rows] */
  const kvc_backend_tree_node *tree_nodes;
  const int32_t *key_begins; /* nullable: all 0. [num_rows]: the first key of the row after left padding. No query sees an
                                earlier key, chunks are counted from this key, and a query at an earlier position sees no
                                key */
} kvc_backend_rows;

/* A borrowed tensor of rows [T, heads, dims]. Strides are in elements, and the innermost stride is 1. */
typedef struct kvc_backend_tensor {
  void *data;
  int64_t token_stride;
  int64_t head_stride;
  DLDataType dtype;
  uint32_t reserved;
} kvc_backend_tensor;

/* A factor for each row and kv head. */
typedef struct kvc_backend_row_scales {
  const float *data; /* nullable: all 1. The factor of (row, kv head) is at data[row*row_stride + head*head_stride] */
  int64_t row_stride;
  int64_t head_stride;
} kvc_backend_row_scales;

enum kvc_backend_part {
  KVC_BACKEND_PART_ALL = 0,  /* all keys of a row; in a row with a streaming window, the keys of the window */
  KVC_BACKEND_PART_SINKS = 1 /* the sinks of a row with a streaming window; q is rotated by cos_sin_sinks */
};

/* A work item: one unit of attention work, which one thread or thread block computes. It covers the queries [q_begin, q_end)
 * of row `row` (counted within the row), the q heads of kv heads [head_begin, head_end), and the keys with indices
 * [key_begin, key_end). Masks still hide keys in this range, so the range may contain keys that no query sees. If
 * partial_offset < 0, the item covers all keys of its queries, and writes out. Otherwise it writes its unnormalised state to
 * the floats from partials + partial_offset on:
 *   o[q_count][Hq_of_item][Dv], then m[q_count][Hq_of_item], then l[q_count][Hq_of_item]
 * m is the largest scaled score in natural-log units (-inf if there is none), l is the sum of exp(score - m), and o is the
 * sum of exp(score - m) * v. The item of `tile` that finishes last merges the states of the tile.
 *
 * A shared item (span_begin < span_end) covers queries of several rows that share the pages of these keys. Its queries are
 * the queries of its spans, one span after another. It reads the page list of `row`, which is the row of its first span. Its
 * q_begin is 0, its q_end is the number of its queries, and its tile and partial_offset are -1. It only writes states. The
 * partial_offset of each span says where. */
typedef struct kvc_backend_item {
  int32_t row;
  int32_t q_begin, q_end;
  int32_t head_begin, head_end;
  int32_t key_begin, key_end;
  int32_t tile; /* index into tiles; -1 = not split */
  int64_t partial_offset;
  int32_t part; /* KVC_BACKEND_PART_*. In a row with a streaming window, a tile has items for the sinks and for the window */
  int32_t span_begin, span_end;
  int32_t reserved;
} kvc_backend_item;

/* The queries [q_begin, q_end) of one row in a shared item. Their states go to partials + partial_offset. The layout is that
 * of kvc_backend_item over all Hq heads of the layer. So shared items of different heads may have the same spans. */
typedef struct kvc_backend_span {
  int32_t row;
  int32_t q_begin, q_end;
  int32_t tile; /* the tile that merges these states. It has the same queries, and all heads */
  int64_t partial_offset;
} kvc_backend_span;

/* States of the same queries and heads over different keys. The item that finishes last merges them from left to right.
 * First come the states of shared items, at parts[part_begin, part_end) of the partials. Then come the states of the items
 * [item_begin, item_end) in the order of their keys. There is at least one such item. */
typedef struct kvc_backend_tile {
  int32_t item_begin, item_end;
  int32_t part_begin, part_end;
  int32_t shared_items; /* number of shared items that have a span of this tile */
  int32_t reserved;
} kvc_backend_tile;

/* How the work of a layer is divided into items. The tiling depends only on the arguments of kvc_backend.tiling. */
typedef struct kvc_backend_tiling {
  int32_t decode_max_queries; /* rows with at most this many new tokens: an item covers all kv heads, and the keys are
                                 split */
  int32_t query_tile;         /* other rows: number of new tokens of an item */
  int32_t heads_per_item;     /* other rows: number of kv heads of an item. Also the smallest number of kv heads of an item
                                 of a split */
  int32_t split_align;        /* a split begins at a multiple of this many keys */
  int32_t min_split_keys;     /* a split has at least this many keys, so that it saves more time than its merge costs */
  int32_t parallel_items;     /* number of items that run at the same time; 0 = the number of threads of the context */
  int32_t resident_items;     /* the most items of one query that run at the same time, if each further item waits until one
                                 of them has ended. Then the plan cuts keys so that few items never run alone in the end. 0 =
                                 the number of items does not matter */
} kvc_backend_tiling;

/* An index array of the caller that only the device reads. A token or row whose value is out of range is skipped. */
typedef struct kvc_backend_indexes {
  const void *data; /* address on the device: element i is at i * stride. NULL: element i is the number value + i * stride */
  int64_t stride;
  int32_t value;
  uint32_t wide;    /* type of elements: 1 = int64, 0 = int32 */
} kvc_backend_indexes;

/* A table for one RoPE class, from which cos and sin of every position below RADIX^LEVELS follow by complex products. For
 * each pair i, entry (level, digit) has cos and sin of digit * RADIX^level * f(i). In level 0 they are multiplied by the
 * attention factor. Sums and products are float64, in the order of kernels/common/rope_table.h. The result is rounded to
 * float32. */
enum { KVC_BACKEND_ROPE_RADIX_LOG2 = 6, KVC_BACKEND_ROPE_RADIX = 64, KVC_BACKEND_ROPE_LEVELS = 5 };

typedef struct kvc_backend_rope_table {
  int32_t rope_dim;                  /* even */
  uint32_t reserved;
  const double *inverse_frequencies; /* on the host, [rope_dim/2]: f(i), in radians per position */
  double attention_factor;
  double *table;                     /* out: [LEVELS, RADIX, 2, rope_dim/2], cos then sin */
} kvc_backend_rope_table;

/* Computes cos and sin for the tokens of a step, from the tables of one RoPE class or from rows of a caller's arrays. */
typedef struct kvc_backend_rope {
  int32_t rope_dim;          /* even */
  int32_t num_tokens;
  const double *tables;      /* [num_sets]: a kvc_backend_rope_table.table for each factor set, one after another */
  const int32_t *positions;  /* [num_tokens] */
  const int32_t *sets;       /* nullable: all 0. [num_tokens]: index of the table for each token */
  float *cos_sin;            /* out: [num_tokens, 2, rope_dim/2], cos then sin */
  kvc_backend_tensor cos, sin; /* without data: the tables are used. Else [positions, rope_dim/2], float32, float16 or
                                  bfloat16, with token_stride between rows, and `tables` is not read */
  const kvc_backend_step *step; /* nullable. Else positions and sets are addresses on the device */
  kvc_backend_indexes device_positions; /* if positions is NULL: rows of cos and sin, below num_positions */
  int64_t num_positions;
} kvc_backend_rope;

/* Stores k and v of the tokens of a step: token t goes to slot slots[t]. For a quantised layer, an element is divided by its
 * scale in float32, and rounded to nearest even. A larger magnitude is stored as the largest finite value. A row of int8
 * gets its own scale, amax / 127. kernels/common/scales.h defines KVC_BACKEND_ENCODING_ROTATED and rows of float4. */
typedef struct kvc_backend_append {
  const kvc_backend_layer *layer;
  int64_t num_tokens;
  const int64_t *slots;      /* [num_tokens]: page * page_size + offset; negative = skip the token */
  kvc_backend_tensor k;      /* [num_tokens, Hkv, D]: float32, float16 or bfloat16, or elements as the layer stores them
                                (elements of fewer than 8 bits: bytes, with strides in bytes) */
  kvc_backend_tensor v;      /* [num_tokens, Hkv, Dv]; as stored if k is as stored. KVC_BACKEND_ROW_LATENT: k is the whole
                                row and v has no data. Or, if the layer is not quantised, v is the latent part
                                [num_tokens, 1, Dv] and k the rotary part [num_tokens, 1, D - Dv] */
  kvc_backend_tensor k_scale, v_scale; /* if k and v are stored int8 or uint4: [num_tokens, Hkv] float32. Else without
                                          data */
  const float *cos_sin;      /* nullable: k is stored without rotation. Else as kvc_backend_rope.cos_sin */
  const kvc_backend_step *step; /* nullable. Else slots is an address on the device */
  kvc_backend_indexes device_slots; /* used if slots is NULL and num_tokens is not 0 */
  kvc_backend_indexes device_positions; /* used with device_slots, if num_positions is not 0. A token whose position is not
                                           below num_positions is skipped too */
  int64_t num_positions;
  const int32_t *device_rows; /* nullable. On the device, [num_tokens]: the row of each token, which the next four fields
                                 need */
  int64_t k_row_stride, v_row_stride;          /* as kvc_backend_attend.q_row_stride */
  kvc_backend_row_scales k_row_scales, v_row_scales; /* multiplied by the scales of the layer, where this call quantises k
                                                        and v */
} kvc_backend_append;

/* ---- Attention ------------------------------------------------------------------------------ */

/* The arrays of a plan, with addresses on one side: the host, or the device. */
typedef struct kvc_backend_plan_arrays {
  kvc_backend_rows rows;
  kvc_backend_tables tables;     /* On the device, page lists in the form of arrays are two for each row, [num_rows, 2]. The
                                    first is for the items of the row, and the second for its KVC_BACKEND_PART_SINKS */
  const int32_t *key_sets;       /* nullable: all 0. [T]: index of the table of kvc_backend_attend.key_tables that rotates
                                    the keys of the row. It is the same for all tokens of a row */
  const kvc_backend_item *items; /* [num_items] */
  const kvc_backend_tile *tiles; /* [num_tiles] */
  const kvc_backend_span *spans; /* [num_spans] */
  const int64_t *parts;          /* [num_parts]: offsets of states in the partials */
} kvc_backend_plan_arrays;

/* What the backend keeps of a staged plan, for example its thread blocks. */
typedef struct kvc_backend_staged_plan kvc_backend_staged_plan;

/* How the attention of a step is divided into work items, for all layers of one work class. These are the layers whose
 * queries see the same keys with the same heads. A plan is built once a step. It is also staged once, by kvc_backend.stage,
 * stage_plan or begin_call. Then the call of every layer names the plan, and sends nothing. Backends without these functions
 * read only `arrays`. */
typedef struct kvc_backend_plan {
  kvc_backend_plan_arrays arrays; /* addresses on the side that reads this struct. In a plan of the core these are addresses
                                     on the host. In a backend's copy of the struct for its kernels they are addresses on the
                                     device */
  kvc_backend_plan_arrays device; /* addresses on the device. Valid while `staged` is valid, or if device_item_queries > 0 */
  const kvc_backend_staged_plan *staged; /* NULL: not staged. Valid until the next stage of the step, the next stage_plan
                                            of its slot, or end_call */
  const kvc_backend_layer *layer;        /* a layer of the work class: its heads, page size and masks are read, not its
                                            pools */
  uint32_t flags;                        /* KVC_ATTEND_* of every call */
  int32_t slot;                          /* index of the plan in kvc_backend_step_limits.plans */
  int64_t num_items, num_tiles, num_spans, num_parts;
  int64_t max_items, max_tiles, max_spans, max_parts; /* the largest numbers in any step */
  int64_t max_split_items; /* of the items that no rows share, the most beyond two for each range of queries and heads. Several
                              items have the same queries and heads if the keys are split */
  int32_t *counters; /* on the host, [num_tiles]: memory in which a backend can count the finished items of each tile. A call
                        finds any values there, and sets them to 0 first */
  float *partials;   /* the memory to which partial_offset of items refers */
  /* 0: sums may be computed in any order, for speed. Else a multiple of 512, and the bits of an output depend only on the
   * query, its keys and its options, not on other rows. For this, the keys are divided into folds: fold i has the keys
   * [i * fold_keys, (i + 1) * fold_keys). The state over each fold is computed alone, and rounded as partials are. States of
   * folds are merged from left to right. An item that covers several folds merges them itself. An item of a split covers one
   * fold. */
  int32_t fold_keys;
  int32_t device_item_queries; /* 0: the host made the plan. Else plan_flash made it, and there are no host arrays. An item
                                  then has at most this many queries, and all kv heads */
  int32_t exact_items; /* 1: if an item has one query, this query sees every key of the item. There are no trees, and no
                          shared items. 0: only the rules of the layer and the row say which keys a query sees */
  int32_t reserved;
} kvc_backend_plan;

/* Lists of keys. With lists, a query attends to those listed keys that it would see without a list. For query t (a token of
 * the rows) and kv head h, the list is [num_entries] at entries + t * token_stride + h * head_stride. Entry i >= 0 names the
 * keys with indices [i * block_tokens, (i + 1) * block_tokens) of the row. In a physical list, entry i names the slot i =
 * page * page_size + offset of the pools, and no rule of the layer or row hides it. Negative entries name nothing, and an
 * entry that occurs twice counts once. Values may change during the call, so a kernel reads each value once and checks its
 * range itself.
 *
 * A backend removes repeated entries and keys that the query does not see, and sorts the rest in ascending order. The key
 * ranges of items are then ranges of places in the result. KVC_BACKEND_PART_SINKS has a list of its own. There are no shared
 * items. */
typedef struct kvc_backend_lists {
  const int32_t *entries;
  int64_t token_stride;
  int64_t head_stride;  /* 0: one list for all kv heads */
  int64_t row_stride;   /* only in stateless calls: as kvc_backend_attend.q_row_stride */
  int32_t num_entries;
  int32_t block_tokens; /* 0: the call has no lists. num_entries * block_tokens <= KVC_MAX_LISTED_KEYS */
  int32_t physical;     /* 1: entries are slots, and block_tokens is 1. Only in stateless calls */
  uint32_t reserved;
} kvc_backend_lists;

/* Biases that are added to scores after softcap and ALiBi, and a mask. `index` is the index of a key in its row. */
typedef struct kvc_backend_bias {
  /* nullable: no bias by distance. For query t (a token of the rows), q head h and distance d = p_q - p_k,
   * 0 <= d < num_distances, the bias is element t * relative_token_stride + h * relative_head_stride + d. For other d it is
   * that of the nearest distance, or 0 with KVC_ATTEND_REL_BIAS_ZERO. For streaming sinks, d is the distance that ALiBi
   * uses. */
  const float *relative;
  int64_t relative_token_stride; /* 0: one table for all queries */
  int64_t relative_head_stride;
  /* nullable: no bias by key. For row r, key `index` and kv head h: element
   * r * key_row_stride + index * key_stride + h * key_head_stride. */
  const float *keys;
  int64_t key_row_stride;
  int64_t key_stride;
  int64_t key_head_stride; /* 0: the same for all heads */
  /* nullable: no mask. For query t, kv head h and key `index`: element t * mask_token_stride + h * mask_head_stride + index.
   * If it is 0, the query does not see the key. */
  const uint8_t *mask;
  int64_t mask_token_stride;
  int64_t mask_head_stride; /* 0: the same for all heads */
  int32_t num_distances;
  uint32_t reserved;
} kvc_backend_bias;

/* Attention of one layer over all stored keys. */
typedef struct kvc_backend_attend {
  const kvc_backend_layer *layer;
  const kvc_backend_plan *plan;
  kvc_backend_tensor q;          /* [T, Hq, D]: float32, float16, bfloat16; without cos_sin also float8 */
  kvc_backend_tensor out;        /* [T, Hq, Dv] */
  float *lse;                    /* nullable; [T, Hq] with the strides of the next line */
  int64_t lse_token_stride, lse_head_stride;
  const float *cos_sin;          /* nullable: q is not rotated. Else q is rotated, and rounded to its dtype */
  const float *cos_sin_sinks;    /* the same for items of KVC_BACKEND_PART_SINKS, with cos and sin at min(p, w-1) of the
                                    row */
  const double *key_tables;      /* nullable: stored k needs no rotation. Else as kvc_backend_rope.tables: stored k is not
                                    rotated, and the kernel rotates it at its position, in float32, when it reads it */
  /* The score of q and k is s = scale * (q.k), then softcap * tanh(s / softcap). Then slope * |p_q - p_k| is subtracted, or
   * slope * (p_q - p_k) with KVC_ATTEND_ALIBI_SIGNED. */
  double softmax_scale;          /* 0 = the softmax_scale of the layer */
  double softcap;                /* 0 = no cap */
  const float *alibi_slopes;     /* nullable; [Hq] */
  const float *sinks;            /* nullable; [Hq]: a logit that is added to the denominator once, at the final write */
  const int32_t *cancel_host;    /* nullable. Read between items by relaxed atomic loads. If it is not 0, the remaining items
                                    are skipped, and attend returns KVC_ERROR_CANCELLED */
  kvc_backend_lists lists;       /* only if the backend has KVC_BACKEND_LISTS */
  kvc_backend_bias bias;         /* only in calls of a cache, and only if the backend has KVC_BACKEND_BIASES */
  /* Only stateless calls set the fields below. They are 0 in a forward. */
  kvc_backend_tensor qv;         /* without data: q is the whole query. Else [T, Hq, Dv] of q's dtype. A query is then a row
                                    of qv, followed by a row of q, which is [T, Hq, D - Dv] */
  int64_t q_row_stride;          /* for batches: the tokens of row r lie r * q_row_stride elements after the place that
                                    token_stride gives */
  int64_t qv_row_stride;
  int64_t out_row_stride;
  int64_t lse_row_stride;
  int64_t alibi_row_stride;      /* the slopes of row r are at alibi_slopes + r * alibi_row_stride */
  kvc_backend_row_scales q_scales, k_scales, v_scales; /* multiplied by the scales of the layer. With them q may be float8,
                                                          and there are no shared items */
} kvc_backend_attend;

/* Chooses the entries with the highest scores for each query of a layer with keys only: see kvc_forward_select. */
typedef struct kvc_backend_select {
  const kvc_backend_layer *layer;
  const kvc_backend_plan *plan; /* only its rows and tables are read; it has no items */
  kvc_backend_tensor q;         /* [T, Hq, D]: float32, float16, bfloat16 */
  const float *weights;         /* nullable: all 1. [T, Hq] with the strides of the next line */
  int64_t weights_token_stride, weights_head_stride;
  const float *cos_sin;         /* as in kvc_backend_attend */
  kvc_backend_lists candidates; /* block_tokens 0: all keys that the query sees are scored. The head of a candidate list is
                                   the index of a list of `entries` */
  int32_t *entries;             /* out: list l of token t is [num_entries] at entries + t * token_stride + l * head_stride */
  int64_t token_stride, head_stride;
  int32_t num_entries;          /* 1 or more */
  int32_t rule;                 /* KVC_SELECT_* */
  int32_t block_tokens;
  int32_t first_blocks, last_blocks;
  uint32_t reserved;
  void *scratch;                /* on the device, 64-byte aligned: 8 bytes for each key that any query sees, and 8 KiB
                                   more */
  int64_t scratch_bytes;
  const int32_t *cancel_host;   /* as in kvc_backend_attend */
} kvc_backend_select;

/* The plan of a stateless call whose index tensors are on the device. plan_flash makes it on the stream, as the core makes a
 * plan from host tensors: rows, page lists, slots and items. Arrays have the sizes of the capacity. Unused elements are
 * inert: items without queries, tiles without items, slot -1, rotation -1. A row with a value out of range has no queries,
 * and its new tokens have no slots. */
typedef struct kvc_backend_flash_plan {
  const kvc_backend_layer *layer; /* the layer that attend gets */
  int32_t num_rows;
  uint32_t flags;                 /* KVC_ATTEND_* */
  int64_t num_tokens;             /* rows of q */
  int64_t num_new;                /* rows of k */
  int64_t capacity;               /* largest number of tokens of a cache row */
  int64_t num_cache_rows;
  kvc_backend_indexes cu_seqlens_q, cu_seqlens_k_new; /* [num_rows + 1] */
  kvc_backend_indexes cache_seqlens, cache_batch_idx, cache_leftpad, rotary_seqlens; /* [num_rows] */
  const void *block_table;        /* nullable: a cache row is one page. [num_cache_rows, table_columns], table_stride between
                                     rows */
  int64_t table_stride, table_columns;
  uint32_t table_wide;            /* 1: block_table is int64, and `pages` is given; 0: int32 */
  uint32_t reserved;
  int64_t num_rotations;          /* rows of cos and sin; 0 = nothing is rotated */
  int32_t rotary_given;           /* 1: rotations begin at rotary_seqlens; 0: at cache_seqlens */
  int32_t queries_advance;        /* 0: all queries of a row have the same rotation */
  int32_t window_right;           /* > 0: a query sees this many keys after itself. Else the flags decide */
  int32_t item_queries;           /* the largest number of queries of a tile */
  int32_t key_splits;             /* number of items of a tile, each for a part of its keys */
  int32_t split_align, min_split_keys; /* as in kvc_backend_tiling */
  int32_t lengths_array;          /* KVC_BACKEND_ARRAY_*: the name that a fault in cache_seqlens reports */
  int64_t max_tiles;              /* num_rows + num_tokens / item_queries */
  /* Outputs, on the device. */
  int32_t *token_begin;           /* [num_rows + 1] */
  int32_t *new_begin;             /* [num_rows + 1] */
  int32_t *tile_begin;            /* [num_rows + 1] */
  int32_t *kv_lengths;            /* [num_rows] */
  int32_t *key_begins;            /* [num_rows] */
  int32_t *cache_rows;            /* [num_rows] */
  int64_t *page_begin;            /* [num_rows, 2]: each value twice, because rows with a streaming window have two lists */
  int32_t *pages;                 /* nullable: block_table is used. [num_rows, table_columns]: the page lists of the rows, as
                                     int32 */
  int32_t *positions;             /* [num_tokens] */
  int32_t *key_ends;              /* nullable; [num_tokens] */
  int32_t *query_rotations;       /* nullable; [num_tokens] */
  int64_t *slots;                 /* [num_new] */
  int32_t *new_rows;              /* [num_new] */
  int32_t *new_rotations;         /* nullable; [num_new] */
  kvc_backend_item *items;        /* [max_tiles, key_splits] */
  kvc_backend_tile *tiles;        /* [max_tiles] */
  kvc_backend_plan *plan;         /* out, on the host: the plan for attend, with these arrays in `device`. The caller sets
                                     partials */
} kvc_backend_flash_plan;

/* One table of a plan, for one step and one part. The arrays are on the device, and have the sizes of the capacity. */
typedef struct kvc_backend_table {
  int32_t part;         /* KVC_TABLES_* */
  int32_t step;         /* number of the draft step of KVC_PLAN_DRAFT_DECODE. Else 0 */
  int32_t max_rows;     /* R */
  int32_t max_columns;  /* pages of a row */
  int32_t *block_table; /* nullable; [R, max_columns], table_stride between rows */
  int64_t table_stride;
  int32_t *indptr;        /* nullable, together with indices and last_page_len; [R + 1] */
  int32_t *indices;       /* [R * max_columns] */
  int32_t *last_page_len; /* [R] */
  int32_t *cache_seqlens; /* [R] */
  int32_t *key_starts;    /* [R] */
  int32_t *leftpad;       /* [R] */
  int32_t *batch_rows;    /* [R] */
  int32_t *cu_seqlens_q;  /* [R + 1] */
  int32_t *cu_seqlens_k;  /* [R + 1] */
} kvc_backend_table;

/* The arrays for the new tokens of one step, on the device. */
typedef struct kvc_backend_tokens {
  int64_t *slot_mapping; /* [max_tokens] */
  int32_t *positions;    /* [max_tokens] */
  int32_t *last_rows;    /* [max_rows of the config] */
} kvc_backend_tokens;

/* A build of a graph plan from arrays that only the device reads. It enqueues work that writes every element that
 * kvc_plan_build writes. If the core would refuse lengths, rows, parents or a capacity, the device does not change the
 * arrays, and sets the generation word to 0. A device that validates also checks ids. */
typedef struct kvc_backend_table_plan {
  const kvc_plan_config *config; /* with the values of all defaults */
  int64_t num_rows;              /* B, at most max_rows */
  int64_t max_tokens;            /* largest number of new tokens of a step */
  kvc_backend_indexes seq_lens, append_lengths, rows, encoder_lens; /* [B] */
  kvc_backend_indexes tree_parents; /* [B * num_draft_tokens]; without data: no trees */
  const int32_t *table;          /* [num_table_rows, num_columns], table_stride between rows: page ids, or slots */
  int64_t num_table_rows, num_columns, table_stride;
  int32_t table_of_slots;        /* 1: table has the slots of tokens; 0: page ids */
  int32_t num_tables;
  const kvc_backend_table *tables; /* on the host, [num_tables] */
  const kvc_backend_tokens *tokens; /* on the host, nullable; one element for each step */
  int64_t generation;            /* the value that is written to generation_word */
  int64_t *generation_word;
} kvc_backend_table_plan;

/* Results of attention over some keys: normalised outputs [T, H, Dv] in float32, float16 or bfloat16, and LSEs [T, H]. */
typedef struct kvc_backend_state {
  kvc_backend_tensor out;
  float *lse; /* nullable in a result */
  int64_t lse_token_stride, lse_head_stride;
} kvc_backend_state;

/* Merges states over disjoint sets of keys, from left to right. A part with LSE -inf is empty, and its out is not read. The
 * result may overwrite parts[0]. */
typedef struct kvc_backend_merge {
  const kvc_backend_state *parts; /* [num_parts] */
  int32_t num_parts;              /* 1 or more */
  int32_t num_heads, dims;        /* H, Dv */
  uint32_t reserved;
  int64_t num_tokens;             /* T */
  kvc_backend_state result;
} kvc_backend_merge;

/* Multiplies by a matrix for each head: out[t, h, 0..out_dims) = in[t, h, 0..in_dims) W[h], with sums in float32. W[h] is
 * weights[h], [in_dims, out_dims], or its transpose. Further dims are copied: out[t, h, out_dims..out_dims+tail_dims) =
 * in[t, h, in_dims..in_dims+tail_dims). in_dims, out_dims and tail_dims are at most 1024. out overlaps no input. */
typedef struct kvc_backend_project {
  int64_t num_tokens;         /* T */
  int32_t num_heads;          /* H */
  int32_t in_dims, out_dims, tail_dims;
  int32_t transposed;         /* 0: weights is [H, in_dims, out_dims]; 1: [H, out_dims, in_dims] */
  uint32_t reserved;
  kvc_backend_tensor in;      /* [T, H, in_dims + tail_dims]; head_stride 0 = one row for all heads */
  kvc_backend_tensor weights; /* token_stride is the stride between heads, and head_stride the stride between rows */
  kvc_backend_tensor out;     /* [T, H, out_dims + tail_dims] */
} kvc_backend_project;

/* Copies num_slots slots within one page, or from one page to another: all heads, K and V with their scales. Copies take
 * effect in order, and source and target may overlap. The function runs under the cache's lock. So it uses only threads of
 * the library (kvc_backend_host.own_threads), because code on threads of the host could call the library. */
typedef struct kvc_backend_slot_copy {
  int64_t source_slot, target_slot; /* page * page_size + offset. source_slot -1: the target is filled with zero bytes */
  int32_t num_slots;
  int32_t reserved;
} kvc_backend_slot_copy;

/* Copies stored rows to dense arrays, or back, without a change of bytes. k and v are
 * [num_tokens, Hkv, row_bytes of the pool]. */
typedef struct kvc_backend_gather {
  const kvc_backend_layer *layer;
  int64_t num_tokens;
  const int64_t *slots;         /* [num_tokens]. In a store they are distinct, and a negative slot skips the token. In a
                                   call without a step they are in host memory, unless slots_on_device is 1 */
  void *k;                      /* nullable */
  void *v;                      /* nullable */
  void *k_scale;                /* nullable; [num_tokens, Hkv, row_bytes of the scales], compact */
  void *v_scale;                /* nullable */
  const kvc_backend_step *step; /* nullable. Else slots is an address on the device */
  int32_t store;                /* 1: copy arrays to slots; 0: copy slots to arrays */
  uint32_t slots_on_device;     /* 1: slots is an address on the device, also without a step */
} kvc_backend_gather;

/* Copies states of the sequences of a batch between a pool and a tensor. Row i of the tensor belongs to page pages[i]. */
typedef struct kvc_backend_states {
  void *pool;                /* the state of page p is at pool + p * page_stride_bytes */
  int64_t page_stride_bytes;
  void *rows;                /* row i is at rows + i * row_stride_bytes */
  int64_t row_stride_bytes;
  int64_t state_bytes;
  const int32_t *pages;      /* [num_rows]: a page, or KVC_BACKEND_STATE_* */
  int32_t num_rows;
  int32_t store;             /* 1: copy rows to pages; 0: copy pages to rows */
  const kvc_backend_step *step; /* nullable. Else pages is an address on the device */
  uint64_t fill;             /* the bytes of the state of an empty sequence: its byte j is byte j % 8 of this word in
                                memory */
} kvc_backend_states;

enum kvc_backend_state_page {
  KVC_BACKEND_STATE_FILL = -1, /* load: the row gets the state of an empty sequence. Not in a store */
  KVC_BACKEND_STATE_SKIP = -2  /* the row or page is not written */
};

/* ---- Asynchronous devices --------------------------------------------------------------------- */

/* The core orders streams by events. Before the first call of a step it sends the index arrays of the step and the plans of
 * its attends in one copy. The core chooses where each array lies in the memory of the step on the device. So it has both
 * addresses of an array before the copy. */
typedef struct kvc_backend_device kvc_backend_device;
typedef struct kvc_backend_event kvc_backend_event;   /* a point in the work of a stream */
typedef struct kvc_backend_mirror kvc_backend_mirror; /* the device's copy of a node pool */

enum { KVC_BACKEND_ARRAY_ALIGNMENT = 16 }; /* bytes, of every array in a step's memory */

typedef struct kvc_backend_array {
  const void *data; /* address on the host */
  int64_t bytes;
  const void *device; /* address on the device. stage: in, within the memory of the step. begin_call: out */
} kvc_backend_array;

/* The nodes of a pool that changed since the last stage of any step. Their present values are in the host's pool. */
typedef struct kvc_backend_node_changes {
  kvc_backend_mirror *mirror;
  const int32_t *ids; /* [num_ids] */
  int64_t num_ids;
} kvc_backend_node_changes;

typedef struct kvc_backend_stage {
  const kvc_backend_array *arrays;         /* [num_arrays] */
  const kvc_backend_node_changes *changes; /* [num_changes] */
  /* [num_plans]: complete plans, whose arrays are among `arrays`, with their addresses in `device`. stage sets `staged` of
   * each. */
  kvc_backend_plan *const *plans;
  int32_t num_arrays, num_changes, num_plans;
  int32_t num_tokens, num_rows; /* num_rows counts the rows that have states */
  /* Outside of graphs 0. In a graph: the largest numbers of tokens and rows of a step. Arrays then lie at the same addresses
   * in every step. Captured calls may be replayed in later steps, and read the sizes of those steps on the device. */
  int32_t max_tokens, max_rows;
  uint32_t reserved;
} kvc_backend_stage;

/* The sizes of the memory of a step. If more than num_changes nodes change, they are sent in several copies. */
typedef struct kvc_backend_step_limits {
  int64_t array_bytes;                  /* size of the memory in which the core places arrays */
  int64_t num_changes;                  /* number of changed nodes that fit in one copy */
  int64_t max_tokens;                   /* the most tokens of a step */
  const kvc_backend_plan *const *plans; /* [num_plans], by slot: their layers and max_* are read */
  int32_t num_plans;
  int32_t num_stage_plans; /* the first num_stage_plans plans are sent by stage or stage_plan, and the others only by
                              stage_plan */
} kvc_backend_step_limits;

/* ---- Validation ------------------------------------------------------------------------------- */

/* Calls of kvcache.h whose arrays a device checks, and the names of these arrays. */
enum kvc_backend_call {
  KVC_BACKEND_CALL_FLASH_ATTN = 0,
  KVC_BACKEND_CALL_APPEND_SLOTS = 1,
  KVC_BACKEND_CALL_PLAN_BUILD = 2
};
enum kvc_backend_array_name {
  KVC_BACKEND_ARRAY_CACHE_SEQLENS = 0,
  KVC_BACKEND_ARRAY_SEQUSED_K = 1,
  KVC_BACKEND_ARRAY_CACHE_BATCH_IDX = 2,
  KVC_BACKEND_ARRAY_CACHE_LEFTPAD = 3,
  KVC_BACKEND_ARRAY_CU_SEQLENS_Q = 4,
  KVC_BACKEND_ARRAY_CU_SEQLENS_K_NEW = 5,
  KVC_BACKEND_ARRAY_ROTARY_SEQLENS = 6,
  KVC_BACKEND_ARRAY_BLOCK_TABLE = 7,
  KVC_BACKEND_ARRAY_SLOT_MAPPING = 8,
  KVC_BACKEND_ARRAY_POSITIONS = 9,
  KVC_BACKEND_ARRAY_SEQ_LENS = 10,
  KVC_BACKEND_ARRAY_APPEND_LENGTHS = 11,
  KVC_BACKEND_ARRAY_ROWS = 12,
  KVC_BACKEND_ARRAY_ENCODER_LENS = 13,
  KVC_BACKEND_ARRAY_TREE_PARENTS = 14,
  KVC_BACKEND_ARRAY_REQ_TO_TOKEN = 15
};
enum kvc_backend_fault_kind {
  KVC_BACKEND_FAULT_RANGE = 0,   /* `value` is not in [least, most] */
  KVC_BACKEND_FAULT_PAGE = 1,    /* the slot `value` is not the first slot of a page, with pages of `most` tokens */
  KVC_BACKEND_FAULT_COLUMNS = 2, /* the row needs `value` columns of the table, which has `most` */
  KVC_BACKEND_FAULT_PAGES = 3,   /* the row has `value` pages, and the plan has room for `most` */
  KVC_BACKEND_FAULT_SUM = 4      /* all rows together have `value` tokens or keys, and there is room for `most` */
};

/* A bad value that a kernel found in an array that only the device reads. Its row, token or build was skipped. */
typedef struct kvc_backend_fault {
  int32_t kind;  /* KVC_BACKEND_FAULT_* */
  int32_t call;  /* KVC_BACKEND_CALL_* */
  int32_t array; /* KVC_BACKEND_ARRAY_* */
  int32_t reserved;
  int64_t row;       /* row of the batch; -1 = all rows */
  int64_t table_row; /* if the array is a table: the value is element [table_row, column]. Else -1 */
  int64_t column;    /* if the array is not a table: index of the element; -1 = `row` */
  int64_t value;
  int64_t least, most;
} kvc_backend_fault;

/* ---- The table ------------------------------------------------------------------------------ */

typedef struct kvc_backend_open_args {
  const kvc_backend_host *host; /* valid until close */
  int32_t device_id;
  uint32_t validate;            /* 1: the device records faults, and checks page ids that only the device reads */
  const char *simd;             /* nullable; as kvc_context_config.simd */
} kvc_backend_open_args;

/* Optional features of a backend. */
enum kvc_backend_features {
  KVC_BACKEND_LISTS = 1, /* kvc_backend_attend.lists */
  KVC_BACKEND_BIASES = 2, /* kvc_backend_attend.bias */
  KVC_BACKEND_SELECT = 4 /* kvc_backend.select */
};

/* A backend. Functions return a kvc_status, and on failure fill `error`, which is never NULL. Functions of the hot path are
 * those that take a stream, except where a comment says otherwise. They do not allocate memory. The core has checked all
 * arguments: shapes, dtypes and ids are right. */
typedef struct kvc_backend {
  uint32_t struct_size;
  uint32_t version;      /* KVC_BACKEND_VERSION */
  int32_t device_type;   /* DLDeviceType */
  uint32_t features;     /* KVC_BACKEND_* of kvc_backend_features */
  const char *name;      /* "cpu" */

  kvc_status (*open)(const kvc_backend_open_args *args, kvc_backend_device **device, kvc_error *error);
  void (*close)(kvc_backend_device *device);
  /* Gives the names of the SIMD targets or other implementations that this machine can run, the fastest last, and the name
   * of the one in use. The names are static strings. */
  int32_t (*implementations)(kvc_backend_device *device, const char **names, int32_t capacity);
  const char *(*implementation)(kvc_backend_device *device);

  /* Checks whether the layer can be stored and attended. Returns KVC_OK, or UNSUPPORTED with the reason. data pointers may
   * be NULL. */
  kvc_status (*check_layer)(kvc_backend_device *device, const kvc_backend_layer *layer, kvc_error *error);
  void (*tiling)(kvc_backend_device *device, const kvc_backend_layer *layer, kvc_backend_tiling *tiling);

  /* Allocates device memory of zeros. alignment is a power of two. huge: 1 = use huge pages. */
  kvc_status (*allocate)(kvc_backend_device *device, int64_t bytes, int64_t alignment, int32_t huge, void **memory,
                         kvc_error *error);
  void (*release)(kvc_backend_device *device, void *memory, int64_t bytes);
  /* Copies host memory to device memory, in the order of the stream. The host memory may change when the call returns. wait:
   * 1 = the copy is done when the call returns, for all streams; not on the hot path. */
  kvc_status (*upload)(kvc_backend_device *device, void *target, const void *source, int64_t bytes, int32_t wait,
                       void *stream, kvc_error *error);

  /* Copies device memory to host memory, after the work that the stream has now, and waits for the copy. Not on the hot
   * path. */
  kvc_status (*download)(kvc_backend_device *device, void *target, const void *source, int64_t bytes, void *stream,
                         kvc_error *error);

  /* Fills a table. Called once for each RoPE class of a cache, not on the hot path. */
  kvc_status (*rope_table)(kvc_backend_device *device, const kvc_backend_rope_table *args, kvc_error *error);
  kvc_status (*rope)(kvc_backend_device *device, const kvc_backend_rope *args, void *stream, kvc_error *error);
  kvc_status (*append)(kvc_backend_device *device, const kvc_backend_append *args, void *stream, kvc_error *error);
  kvc_status (*attend)(kvc_backend_device *device, const kvc_backend_attend *args, void *stream, kvc_error *error);
  kvc_status (*copy_slots)(kvc_backend_device *device, const kvc_backend_layer *layer,
                           const kvc_backend_slot_copy *copies, int64_t num_copies, void *stream, kvc_error *error);
  kvc_status (*gather)(kvc_backend_device *device, const kvc_backend_gather *args, void *stream, kvc_error *error);
  kvc_status (*merge)(kvc_backend_device *device, const kvc_backend_merge *args, void *stream, kvc_error *error);
  kvc_status (*states)(kvc_backend_device *device, const kvc_backend_states *args, void *stream, kvc_error *error);
  kvc_status (*project)(kvc_backend_device *device, const kvc_backend_project *args, void *stream, kvc_error *error);
  /* NULL in a backend without KVC_BACKEND_SELECT. */
  kvc_status (*select)(kvc_backend_device *device, const kvc_backend_select *args, void *stream, kvc_error *error);

  /* The functions below are for asynchronous devices. They are NULL in backends whose calls return when their work is
   * done. */
  /* Returns KVC_OK, or an error if the device can never work again. Any thread may call it. It reads one word of memory. */
  kvc_status (*health)(kvc_backend_device *device, kvc_error *error);
  /* Returns ORDER if the stream is being captured. */
  kvc_status (*check_stream)(kvc_backend_device *device, void *stream, kvc_error *error);
  kvc_status (*event_create)(kvc_backend_device *device, kvc_backend_event **event, kvc_error *error);
  void (*event_destroy)(kvc_backend_device *device, kvc_backend_event *event);
  /* Sets the event to the end of the work that the stream has now. */
  kvc_status (*event_record)(kvc_backend_device *device, kvc_backend_event *event, void *stream, kvc_error *error);
  /* Orders later work of the stream after the point at which the event was last recorded. The host does not wait. If the
   * event was recorded on the same stream, there is nothing to do. */
  kvc_status (*event_wait)(kvc_backend_device *device, kvc_backend_event *event, void *stream, kvc_error *error);
  /* Creates a stream that only events order with other streams, for copies at the same time as the caller's work.
   * stream_destroy waits for the work of the stream. */
  kvc_status (*stream_create)(kvc_backend_device *device, void **stream, kvc_error *error);
  void (*stream_destroy)(kvc_backend_device *device, void *stream);
  /* Allocates host memory that is locked, so that the device copies it while the host runs on. Its bytes may be anything. The
   * memory is that of this process, and a child of fork() must not use it. Not on the hot path. */
  kvc_status (*pin)(kvc_backend_device *device, int64_t bytes, void **memory, kvc_error *error);
  void (*unpin)(kvc_backend_device *device, void *memory);
  /* Copies between device memory and memory of `pin`, in either direction, in the order of the stream. The host must not
   * change or free the memory before the copy is done. wait: 1 = waits for all work of the stream, this copy included; then
   * bytes may be 0. Not on the hot path. */
  kvc_status (*copy_pinned)(kvc_backend_device *device, void *target, const void *source, int64_t bytes, int32_t wait,
                            void *stream, kvc_error *error);
  /* Creates the device's copy of a node pool. nodes: the host's pool [num_nodes, FANOUT], which stays at this address while
   * the mirror exists. on_device: out, the address of the copy, for kvc_backend_plan.device. */
  kvc_status (*mirror_create)(kvc_backend_device *device, const int32_t *nodes, int64_t num_nodes,
                              kvc_backend_mirror **mirror, const int32_t **on_device, kvc_error *error);
  void (*mirror_destroy)(kvc_backend_device *device, kvc_backend_mirror *mirror);
  /* Creates the memory of a step. arrays: out, the device address of limits->array_bytes bytes, in which the core places
   * arrays. */
  kvc_status (*step_create)(kvc_backend_device *device, const kvc_backend_step_limits *limits, kvc_backend_step **step,
                            void **arrays, kvc_error *error);
  void (*step_destroy)(kvc_backend_device *device, kvc_backend_step *step);
  /* Enqueues the copy of the arrays of a step and of changed nodes. It replaces what was staged in this step before. The
   * caller has already ordered the stream after all work that reads the replaced arrays, or the nodes that change. Host
   * memory may change when the call returns. */
  kvc_status (*stage)(kvc_backend_device *device, kvc_backend_step *step, const kvc_backend_stage *args, void *stream,
                      kvc_error *error);
  /* Stages one plan that was made after the stage of its step. One copy sends its items, tiles, spans and parts. The caller
   * has filled the other arrays of plan->device. The new plan replaces the plan in its slot after the calls that are already
   * enqueued. Returns ORDER if the stream is being captured. */
  kvc_status (*stage_plan)(kvc_backend_device *device, kvc_backend_step *step, kvc_backend_plan *plan, void *stream,
                           kvc_error *error);
  /* For the step of a graph: captured calls that run between this call and the next stage read and write nothing. */
  kvc_status (*unstage)(kvc_backend_device *device, kvc_backend_step *step, void *stream, kvc_error *error);
  /* Stages the arrays of a stateless call, which makes several calls of the backend. One copy sends its arrays and all of
   * `plan` (nullable), and begin_call fills in their device addresses. They stay on the device until end_call, which the
   * core calls after the last of these calls on the stream. step: out; NULL = there was nothing to send. */
  kvc_status (*begin_call)(kvc_backend_device *device, kvc_backend_array *arrays, int32_t num_arrays,
                           kvc_backend_plan *plan, void *stream, const kvc_backend_step **step, kvc_error *error);
  kvc_status (*end_call)(kvc_backend_device *device, const kvc_backend_step *step, void *stream, kvc_error *error);
  /* Gives memory for the work that one call enqueues on a stream. No other call gets this memory before the work that was
   * enqueued until give_scratch is done. If the stream is being captured, the memory stays with this capture. take_scratch
   * allocates only if more memory, or a larger block, is in use than ever before. */
  kvc_status (*take_scratch)(kvc_backend_device *device, int64_t bytes, void *stream, void **memory, kvc_error *error);
  kvc_status (*give_scratch)(kvc_backend_device *device, void *memory, void *stream, kvc_error *error);
  kvc_status (*plan_flash)(kvc_backend_device *device, const kvc_backend_flash_plan *args, void *stream,
                           kvc_error *error);
  kvc_status (*plan_tables)(kvc_backend_device *device, const kvc_backend_table_plan *args, void *stream,
                            kvc_error *error);
  /* Returns 1 and gives the first fault since the last call that returned 1, or returns 0. Any thread may call it. It reads
   * one word of memory, and does not wait. */
  int32_t (*take_fault)(kvc_backend_device *device, kvc_backend_fault *fault);
} kvc_backend;

/* The type of the function "kvc_backend_get", which is the only symbol that a plug-in must export. It returns NULL if the
 * plug-in does not have this version. */
typedef const kvc_backend *(*kvc_backend_get_fn)(uint32_t version);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVCACHE_BACKEND_H_ */
