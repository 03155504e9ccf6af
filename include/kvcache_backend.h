/* The table of functions that a backend (CPU built in, CUDA as a plug-in) fills for libkvcache.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * The core decides what is where (pages, positions, work items) and a backend moves and computes bytes. Everything
 * a backend sees is plain data: it never calls back into the cache. Core and backend must agree on
 * KVC_BACKEND_VERSION exactly, until a second, independent implementation exists.
 *
 * Pools, tensors, partials and cos/sin are memory of the backend's device. Index arrays (slots, positions, page ids,
 * copies) are host memory that may change as soon as a call returns, so an asynchronous device takes copies of them.
 * There are two exceptions. A call that names a step (kvc_backend_step) gives addresses on the device, where the step's
 * arrays were staged. A caller without a cache may pass index arrays in device memory (kvc_backend_indexes), and plan_*
 * then makes further arrays of them there. Every array has its shape beside it. Shape letters are those of kvcache.h.
 */
#ifndef KVCACHE_BACKEND_H_
#define KVCACHE_BACKEND_H_

#include "kvcache.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVC_BACKEND_VERSION 13

/* ---- Services of the core ------------------------------------------------------------------- */

/* How much work the items of a run are together. It decides whether other threads help. */
enum kvc_backend_effort {
  KVC_EFFORT_TINY = 0,  /* about a microsecond: the caller runs the items itself */
  KVC_EFFORT_SMALL = 1, /* shorter than the wake-up of a thread (tens of microseconds): shared with threads that are awake */
  KVC_EFFORT_LARGE = 2  /* worth waking threads for */
};

/* What a backend may use of the context that opened it. */
typedef struct kvc_backend_host {
  void *self;
  int32_t num_workers; /* worker indices, each with a scratch of its own; more than the threads that run at once */
  /* Items that run at once on the library's own threads, the caller's thread included. If it is 1, run() may use threads of
   * the host, which may run code of the host. A call under a lock of the library then runs its items on the caller's thread. */
  int32_t own_threads;
  /* Runs item(arg, i, worker) once for each i in [0, n): items are claimed from a shared counter, so the caller can
   * finish alone. worker in [0, num_workers) selects a scratch: no two items run with one worker index at once.
   * Returns when every item is done. effort: a kvc_backend_effort. */
  void (*run)(void *self, int64_t n, int32_t effort, void (*item)(void *arg, int64_t index, int32_t worker),
              void *arg);
} kvc_backend_host;

/* ---- Storage -------------------------------------------------------------------------------- */

/* Where the scales of stored elements lie. */
enum kvc_backend_scale_place {
  KVC_BACKEND_SCALES_NONE = 0,    /* an element is read as it is */
  KVC_BACKEND_SCALES_APART = 1,   /* in a tensor of their own, outside the pages. append does not write them */
  KVC_BACKEND_SCALES_SEGMENT = 2, /* in the row, after the elements of their segment */
  KVC_BACKEND_SCALES_ROW = 3,     /* in the row, after the elements of all its segments */
  KVC_BACKEND_SCALES_PAGE = 4     /* in the page, after the rows that they scale */
};

/* Scales of the elements of a segment. Neighbouring elements share a scale: those of `dims` dims, counted from the
 * segment's first, of `tokens` tokens and of `heads` heads. 0 means all of them. */
typedef struct kvc_backend_scale_format {
  DLDataType dtype;      /* of a scale, whole bytes */
  uint16_t dims;
  uint16_t tokens, heads; /* 0 or 1 where the scales lie in the row */
  uint8_t place;         /* KVC_BACKEND_SCALES_* */
  uint8_t values;        /* values of one scale, side by side: 2 = a scale and an offset. 0 is 1 */
  uint8_t order;         /* r > 1: of the n scales of a row, the one of index s lies at place (s % r) * (n / r) + s / r */
  uint8_t reserved;
} kvc_backend_scale_format;

/* What the elements of a segment are. */
enum kvc_backend_encoding {
  KVC_BACKEND_ENCODING_NUMBERS = 0, /* numbers of the segment's dtype */
  /* Elements 0..15 of a rotated row. The lowest 4 bits of the float32 scale are a zero point z, and the scale has zeros there:
   * an element is read as (stored - z) * scale. The rotation multiplies dim d by a sign, and then each block of b neighbouring
   * dims by the Hadamard matrix of size b. kernels/common/hadamard.h defines the signs and b. */
  KVC_BACKEND_ENCODING_ROTATED = 1
};

/* Neighbouring dims of a row that are stored alike. Elements are packed without gaps, the first in the lowest bits of
 * the first byte, and a segment begins with a whole byte. */
typedef struct kvc_backend_segment {
  DLDataType dtype;  /* of an element; its bits may be fewer than 8 */
  uint16_t dims;     /* 0: all dims of the row that are left */
  uint16_t encoding; /* KVC_BACKEND_ENCODING_*, or the format's own, for example a code book */
  kvc_backend_scale_format scales; /* an element is read as stored * scale */
  kvc_backend_scale_format outer;  /* scales of these scales: an element is read as stored * scale * outer scale */
} kvc_backend_segment;

enum { KVC_BACKEND_MAX_SEGMENTS = 2 };

/* How the row of one token and head is stored. */
typedef struct kvc_backend_row_format {
  kvc_backend_segment segments[2];
  uint16_t num_segments;
  uint16_t row_multiple;    /* a row, with the scales in it, is padded to a multiple of this number of bytes. 0 is 1 */
  uint16_t scales_multiple; /* the same of a row's scales in the page */
  uint16_t reserved;
} kvc_backend_row_format;

/* The order of rows and scales in a page that the library lays out. */
enum kvc_backend_page_order {
  KVC_BACKEND_PAGE_ROWS_FIRST = 0, /* K's rows, V's rows, K's scales, V's scales */
  KVC_BACKEND_PAGE_POOLS = 1,      /* K's rows, K's scales, V's rows, V's scales */
  KVC_BACKEND_PAGE_PAIRS = 2       /* V's row follows K's row of the same token and head; no scales after the rows */
};

/* How a layer stores K and V (StoredFormat). kernels/common/stored_format.h computes sizes and offsets from it. */
typedef struct kvc_backend_format {
  kvc_backend_row_format k, v;
  uint16_t page_order;    /* KVC_BACKEND_PAGE_* */
  uint16_t tokens_first;  /* rows of a page are [tokens, heads]; 0: [heads, tokens] */
  uint16_t page_multiple; /* a page is padded to a multiple of this number of bytes. 0 is 1 */
  uint16_t reserved;
} kvc_backend_format;

/* One of a layer's two pools: where its rows lie. */
typedef struct kvc_backend_pool {
  void *data; /* row (page, head, slot): page*page_stride_bytes + head*head_stride_bytes + slot*slot_stride_bytes after it */
  int64_t page_stride_bytes;
  int64_t head_stride_bytes;
  int64_t slot_stride_bytes;
  int64_t row_bytes; /* of one row, with the scales and the padding in it: what a copy moves */
} kvc_backend_pool;

/* Scales of a quantised pool. Scales of tokens lie in the pages. Scales of heads (fp8) lie in memory of their own. */
typedef struct kvc_backend_scales {
  void *data; /* NULL: every scale is 1. Else the scales of row (page, head, slot) lie as the row of kvc_backend_pool.data */
  int64_t page_stride_bytes;
  int64_t head_stride_bytes;
  int64_t slot_stride_bytes; /* 0: tokens have no scales of their own, and page_stride_bytes is 0 too */
  int64_t row_bytes; /* of the scales of one row that lie after the rows of a page: what a copy moves. 0: none */
} kvc_backend_scales;

/* What a layer stores of a token and kv head, and in which pools. head_dim and v_head_dim are the dims of K and of V, as a
 * query attends them, in every kind. */
enum kvc_backend_row_kind {
  /* A row of K in the pool k, and a row of V in the pool v. */
  KVC_BACKEND_ROW_KV = 0,
  /* An MLA row, [latent | rotary], in the pool k. All of it is K, and its first v_head_dim dims are V. It is written and
   * copied once. v and v_scales are equal to k and k_scales, but v.row_bytes is the size of the latent part. num_kv_heads
   * is 1, and no rotated dim is below v_head_dim. If v_head_dim is 0, the layer has keys only: num_kv_heads is any number,
   * and nothing attends to it. */
  KVC_BACKEND_ROW_LATENT = 1,
  /* The two parts of an MLA row in two pools: the latent part in v, the rotary part [head_dim - v_head_dim] in k. V is
   * the latent part, and K is both. Only attend takes such a layer. There are no scales of tokens. */
  KVC_BACKEND_ROW_LATENT_SPLIT = 2
};

/* Shape, storage and rules of one layer; constant for the life of a cache. */
typedef struct kvc_backend_layer {
  kvc_backend_pool k, v;   /* [num_pages, num_kv_heads, page_size] rows of head_dim and v_head_dim dims */
  kvc_backend_scales k_scales, v_scales;
  int64_t num_pages;
  int32_t page_size;
  int32_t num_q_heads, num_kv_heads, head_dim, v_head_dim;
  int32_t window_tokens;   /* a query at p sees keys max(0, p-w+1)..p; 0 = all of 0..p */
  int32_t chunk_tokens;    /* c > 0: of those, keys j with j/c == p/c */
  kvc_backend_format format; /* of the rows of k and v */
  float softmax_scale;
  int32_t rope_class;      /* index of the forward's cos/sin table for this layer, or -1: no rotation */
  int32_t rope_dim;        /* rotated dims: [rope_offset, rope_offset + rope_dim) */
  int32_t rope_offset;
  int32_t rope_interleaved; /* pairs of rotated dims: 0 = (i, i + rope_dim/2), 1 = (2i, 2i+1) */
  uint32_t row_kind;       /* KVC_BACKEND_ROW_* */
  uint32_t reserved;
} kvc_backend_layer;

/* ---- Page tables ---------------------------------------------------------------------------- */

/* A sequence's page list is a tree with KVC_BACKEND_NODE_FANOUT children a node, `levels` levels deep; level 1 nodes
 * hold page ids, higher ones node ids, both -1 = none. List index i is reached from the root by the base-FANOUT
 * digits of i. Lists share nodes, so a fork copies nothing. A node that an open forward can reach is never changed, so a
 * device copy of the node pool only needs the changed nodes.
 * The page lists of callers without a cache are arrays: row r's list begins at pages[page_begin[r]]. In both forms, entries
 * that no query sees are never read. */
enum { KVC_BACKEND_NODE_FANOUT_LOG2 = 5, KVC_BACKEND_NODE_FANOUT = 32 };

typedef struct kvc_backend_tables {
  const int32_t *nodes;  /* [num_nodes, FANOUT] */
  const int32_t *roots;  /* [num_rows]: root node of each row, -1 = no page */
  const int32_t *levels; /* [num_rows]: levels of each row's tree, 0 = no page */
  const int32_t *pages;  /* NULL: the lists are trees. Else they are arrays, and the three fields above are not read */
  const int64_t *page_begin; /* [num_rows]: where each list begins in `pages` */
} kvc_backend_tables;

/* The leaf of a tree that holds list index `index`: the page ids of FANOUT list indices, from index & ~(FANOUT - 1) on.
 * The caller makes sure that the tree has that index, and that no node on the way to it is -1. */
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

/* The memory in which a device keeps the index arrays of a step (kvc_backend.stage). A call that names a step gives the
 * addresses of its index arrays there. NULL in a call: its index arrays are the host's. */
typedef struct kvc_backend_step kvc_backend_step;

/* A node of a token tree: the depth-first interval [enter, exit) of its subtree, so that a node q sees node k (an ancestor,
 * or itself) iff enter(k) <= enter(q) < exit(k). Its key comes after its parent's. */
typedef struct kvc_backend_tree_node {
  int32_t enter, exit;
  int32_t position; /* committed length + depth. Windows, chunks and biases use it */
  int32_t parent;   /* node of the same tree; -1 = root */
} kvc_backend_tree_node;

/* The rows of one forward. Inert rows have kv_lengths -1 and no work item. A key's index is its place in the sequence; its
 * position is the same, but for the nodes of a tree. kernels/common/mask.h says who sees what. */
typedef struct kvc_backend_rows {
  int32_t num_rows;
  int32_t num_tokens;           /* T */
  const int32_t *token_begin;   /* [num_rows + 1]: tokens [token_begin[r], token_begin[r+1]) of q, k, v are row r's */
  const int32_t *kv_lengths;    /* [num_rows]: tokens of the sequence, the new ones included. In a cross layer: tokens of
                                   the encoder sequence, possibly 0. In a group with one row for each of several tokens:
                                   its rows, possibly fewer than new tokens */
  const int32_t *positions;     /* [num_tokens]. In a group with one row for each of several tokens: the last row that the
                                   query sees, -1 = none. So causality needs no other rule there */
  const int32_t *key_ends;      /* nullable; [num_tokens]: a query sees keys below its key_ends, not only up to itself */
  /* Streaming rows: with a window w > 0 and s sinks, s < w, a query at p sees keys j < s and max(s, p-(w-s)+1) <= j <= p.
   * Both nullable, together. */
  const int32_t *stream_sinks;   /* [num_rows] */
  const int32_t *stream_windows; /* [num_rows]; 0 = the row does not stream */
  /* Rows whose last keys are nodes of a tree: the key at index tree_begin[r] + i is tree_nodes[tree_offset[r] + i], and
   * every new token of such a row is a node. All nullable, together. */
  const int32_t *tree_begin;     /* [num_rows]; kv_lengths[r] = no tree */
  const int32_t *tree_offset;    /* [num_rows] */
  const kvc_backend_tree_node *tree_nodes;
  const int32_t *key_begins; /* nullable: all 0. [num_rows]: no query sees a key before it (left padding), and chunks are
                                counted from it. A query whose position is below it sees no key */
} kvc_backend_rows;

/* A borrowed tensor of rows [T, heads, dims]; strides in elements, innermost 1. */
typedef struct kvc_backend_tensor {
  void *data;
  int64_t token_stride;
  int64_t head_stride;
  DLDataType dtype;
  uint32_t reserved;
} kvc_backend_tensor;

/* Factors of each row and kv head. */
typedef struct kvc_backend_row_scales {
  const float *data; /* nullable: all 1. Of (row, kv head) at row*row_stride + head*head_stride */
  int64_t row_stride;
  int64_t head_stride;
} kvc_backend_row_scales;

enum kvc_backend_part {
  KVC_BACKEND_PART_ALL = 0,  /* all keys of a row; of a streaming row those of its window */
  KVC_BACKEND_PART_SINKS = 1 /* the sinks of a streaming row; q is rotated by cos_sin_sinks */
};

/* One unit of attention work, run by one thread (or thread block): the queries [q_begin, q_end) of row `row` (counted
 * within the row), the q heads of kv heads [head_begin, head_end), over keys with indexes [key_begin, key_end). Masks
 * apply on top, so key ranges may be generous. partial_offset < 0: the item covers all keys and writes out itself.
 * Otherwise it writes its unnormalised state to partials + partial_offset (floats), laid out
 *   o[q_count][Hq_of_item][Dv], then m[q_count][Hq_of_item], then l[q_count][Hq_of_item]
 * (m: largest scaled score in natural-log units, -inf if none; l: sum of exp(score - m); o: sum of exp(score - m) * v).
 * The item of `tile` that finishes last merges these states.
 * A shared item (span_begin < span_end) covers queries of several rows that share the pages of these keys. Its queries are
 * those of its spans, one span after another. It reads the page list of `row`, which is the first span's row. Its q_begin
 * is 0, q_end is the number of its queries, and tile and partial_offset are -1. It writes states only, and the
 * partial_offset of each span says where. */
typedef struct kvc_backend_item {
  int32_t row;
  int32_t q_begin, q_end;
  int32_t head_begin, head_end;
  int32_t key_begin, key_end;
  int32_t tile; /* index into tiles; -1 = not split */
  int64_t partial_offset;
  int32_t part; /* KVC_BACKEND_PART_*; the items of a streaming row's tile are its sinks and its window */
  int32_t span_begin, span_end;
  int32_t reserved;
} kvc_backend_item;

/* Queries [q_begin, q_end) of one row in a shared item. Their states go to partials + partial_offset, laid out as above
 * over all Hq heads of the layer: shared items of unlike heads may have the same spans. */
typedef struct kvc_backend_span {
  int32_t row;
  int32_t q_begin, q_end;
  int32_t tile; /* that merges them: of the same queries, and of all heads */
  int64_t partial_offset;
} kvc_backend_span;

/* States of the same queries and heads over different keys, merged left to right by the item that finishes last: first
 * those of shared items, at parts[part_begin, part_end) of the partials, then those of the items [item_begin, item_end),
 * at least one, in key order. */
typedef struct kvc_backend_tile {
  int32_t item_begin, item_end;
  int32_t part_begin, part_end;
  int32_t shared_items; /* items with a span of this tile */
  int32_t reserved;
} kvc_backend_tile;

/* How work is to be cut for a layer; a pure function of its arguments. */
typedef struct kvc_backend_tiling {
  int32_t decode_max_queries; /* rows with at most this many new tokens get items over all kv heads, split along the keys */
  int32_t query_tile;         /* other rows: new tokens that an item covers */
  int32_t heads_per_item;     /* other rows: kv heads that an item covers; also the fewest that an item of a split covers */
  int32_t split_align;        /* a split begins at a multiple of this many keys */
  int32_t min_split_keys;     /* a split has at least this many keys, so that it saves more than its merge costs */
  int32_t parallel_items;     /* items that run at once; 0 = as many as the context has threads */
} kvc_backend_tiling;

/* A caller's index array that only the device reads. A token, or row, whose value is out of range is skipped. */
typedef struct kvc_backend_indexes {
  const void *data; /* the device's: element i at i * stride. NULL: element i is value + i * stride */
  int64_t stride;
  int32_t value;
  uint32_t wide;    /* 1: int64; 0: int32 */
} kvc_backend_indexes;

/* The table of one RoPE class, from which cos and sin of any position below RADIX^LEVELS follow by complex products:
 * entry (level, digit) holds, for each pair i, cos and sin of digit * RADIX^level * f(i), in level 0 times the attention
 * factor. Sum and product in float64, in the order of kernels/common/rope_table.h, rounded to float32 at the end. */
enum { KVC_BACKEND_ROPE_RADIX_LOG2 = 6, KVC_BACKEND_ROPE_RADIX = 64, KVC_BACKEND_ROPE_LEVELS = 5 };

typedef struct kvc_backend_rope_table {
  int32_t rope_dim;                  /* even */
  uint32_t reserved;
  const double *inverse_frequencies; /* host, [rope_dim/2]: f(i), radians a position */
  double attention_factor;
  double *table;                     /* out: [LEVELS, RADIX, 2, rope_dim/2], cos then sin */
} kvc_backend_rope_table;

/* cos and sin for the tokens of a step: of one RoPE class by its tables, or rows of a caller's arrays. */
typedef struct kvc_backend_rope {
  int32_t rope_dim;          /* even */
  int32_t num_tokens;
  const double *tables;      /* [num_sets]: of each factor set a kvc_backend_rope_table.table, one after another */
  const int32_t *positions;  /* [num_tokens] */
  const int32_t *sets;       /* nullable: all 0. [num_tokens]: which table */
  float *cos_sin;            /* out: [num_tokens, 2, rope_dim/2], cos then sin */
  kvc_backend_tensor cos, sin; /* without data: by the tables. Else [positions, rope_dim/2], float32, float16 or bfloat16:
                                  rows by token_stride, and tables is not read */
  const kvc_backend_step *step; /* nullable; else positions and sets are addresses on the device */
  kvc_backend_indexes device_positions; /* if positions is NULL: rows of cos and sin, below num_positions */
  int64_t num_positions;
} kvc_backend_rope;

/* Stores k and v of a step's tokens: element (t, h, d) to slot slots[t]. To a quantised layer: divided by the scale in
 * float32, then rounded to nearest even and saturated; int8 rows get the scale amax / 127 of their own.
 * KVC_BACKEND_ENCODING_ROTATED and rows of float4: as kernels/common/scales.h defines them. */
typedef struct kvc_backend_append {
  const kvc_backend_layer *layer;
  int64_t num_tokens;
  const int64_t *slots;      /* [num_tokens]: page * page_size + offset; negative = skip the token */
  kvc_backend_tensor k;      /* [num_tokens, Hkv, D]: float32, float16 or bfloat16, or elements as the layer stores them
                                (of fewer than 8 bits: bytes, and strides in bytes) */
  kvc_backend_tensor v;      /* [num_tokens, Hkv, Dv]; as stored if k is. KVC_BACKEND_ROW_LATENT: k is the whole row and v has
                                no data; or, not quantised, v is the latent part [num_tokens, 1, Dv] and k the rotary
                                part [num_tokens, 1, D - Dv] */
  kvc_backend_tensor k_scale, v_scale; /* [num_tokens, Hkv] float32 if k and v are stored int8 or uint4; else without data */
  const float *cos_sin;      /* nullable: store k as it is. Else as kvc_backend_rope.cos_sin */
  const kvc_backend_step *step; /* nullable; else slots is an address on the device */
  kvc_backend_indexes device_slots; /* if slots is NULL, and num_tokens is not 0 */
  kvc_backend_indexes device_positions; /* with device_slots, if num_positions is not 0: a token whose position is none */
  int64_t num_positions;                /* of them is skipped too */
  const int32_t *device_rows; /* nullable. The device's, [num_tokens]: row of each token, by which these go: */
  int64_t k_row_stride, v_row_stride;          /* as kvc_backend_attend.q_row_stride */
  kvc_backend_row_scales k_row_scales, v_row_scales; /* beside the layer's, where k and v are quantised here */
} kvc_backend_append;

/* ---- Attention ------------------------------------------------------------------------------ */

/* The arrays of a plan, by the addresses of one side: the host's, or the device's. */
typedef struct kvc_backend_plan_arrays {
  kvc_backend_rows rows;
  kvc_backend_tables tables;     /* Lists on the device that are arrays are two for each row, [num_rows, 2]: that of its
                                    items, and that of its KVC_BACKEND_PART_SINKS */
  const int32_t *key_sets;       /* nullable: all 0. [T]: by which of kvc_backend_attend.key_tables the row's keys rotate;
                                    the same for all tokens of a row */
  const kvc_backend_item *items; /* [num_items] */
  const kvc_backend_tile *tiles; /* [num_tiles] */
  const kvc_backend_span *spans; /* [num_spans] */
  const int64_t *parts;          /* [num_parts]: offsets of states in the partials */
} kvc_backend_plan_arrays;

/* What the backend keeps of a staged plan, for example its thread blocks. */
typedef struct kvc_backend_staged_plan kvc_backend_staged_plan;

/* How the attention of a step is cut into work, for all layers of one work class: those that see the same keys with the
 * same heads. It is built once a step, and staged once: by kvc_backend.stage, stage_plan or begin_call. Every layer
 * then names it, and sends nothing. Backends without these functions read `arrays` alone. */
typedef struct kvc_backend_plan {
  kvc_backend_plan_arrays arrays; /* at the addresses of the side that reads this struct. In a plan of the core: the
                                     host's. A backend's copy of the struct for its kernels has the device's here */
  kvc_backend_plan_arrays device; /* at the device's addresses. Valid while `staged` is, or device_item_queries > 0 */
  const kvc_backend_staged_plan *staged; /* NULL: not staged. Valid until the next stage of the step, the next stage_plan
                                            of its slot, or end_call */
  const kvc_backend_layer *layer;        /* of the work class: its heads, page size and masks. Its pools are not read */
  uint32_t flags;                        /* KVC_ATTEND_* of every call */
  int32_t slot;                          /* number among the plans of the step's limits */
  int64_t num_items, num_tiles, num_spans, num_parts;
  int64_t max_items, max_tiles, max_spans, max_parts; /* in any step */
  int32_t *counters; /* host, [num_tiles]: scratch for a backend that counts the finished items of each tile. A call finds any
                        values there, and sets them to 0 first */
  float *partials;   /* what the items' partial_offset index */
  /* 0: the order of sums is free, for speed. Else a multiple of 512, and the bits of an output depend only on the query, its
   * keys and its options, not on other rows. For this, the state over each fold, keys [i * fold_keys, (i + 1) * fold_keys),
   * is computed alone and rounded as partials are. States of folds are merged left to right. An item that covers several
   * folds merges them itself, and an item of a split covers one. */
  int32_t fold_keys;
  int32_t device_item_queries; /* 0: the host made the plan. Else plan_flash made it, there are no host arrays, and an
                                  item has at most this many queries, and all kv heads */
} kvc_backend_plan;

/* Lists of keys: a query attends to those listed keys that it would see without a list. Query t (a token of the rows) of kv
 * head h has the entries [num_entries] at entries + t * token_stride + h * head_stride. Entry i >= 0 is the keys with indexes
 * [i * block_tokens, (i + 1) * block_tokens) of the row; of a physical list it is the slot i = page * page_size + offset of the
 * pools, and no rule of layer or row hides it. Negative entries are none, and an entry that occurs twice counts once. Values may
 * change during the call, so a kernel reads each once and checks its range itself.
 * The key ranges of items are then ranges of places in the list that a query has after this: ascending, without repetitions and
 * without keys that it does not see. A part KVC_BACKEND_PART_SINKS has a list of its own. There are no shared items. */
typedef struct kvc_backend_lists {
  const int32_t *entries;
  int64_t token_stride;
  int64_t head_stride;  /* 0: one list for all kv heads */
  int64_t row_stride;   /* only stateless calls: as kvc_backend_attend.q_row_stride */
  int32_t num_entries;
  int32_t block_tokens; /* 0: the call has no lists. num_entries * block_tokens <= KVC_MAX_LISTED_KEYS */
  int32_t physical;     /* 1: entries are slots, and block_tokens is 1. Only stateless calls */
  uint32_t reserved;
} kvc_backend_lists;

/* Numbers that are added to scores after softcap and ALiBi, and a mask. `index` is a key's index in its row. */
typedef struct kvc_backend_bias {
  /* nullable. Of query t (a token of the rows), q head h and distance d in [0, num_distances), d = p_q - p_k: entry
   * t * relative_token_stride + h * relative_head_stride + d. Without an entry for d: that of the nearest distance, or 0 with
   * KVC_ATTEND_REL_BIAS_ZERO. Sinks of streaming rows: distances as ALiBi has them. */
  const float *relative;
  int64_t relative_token_stride; /* 0: one table for all queries */
  int64_t relative_head_stride;
  /* nullable. Of row r, key `index` and kv head h: entry r * key_row_stride + index * key_stride + h * key_head_stride. */
  const float *keys;
  int64_t key_row_stride;
  int64_t key_stride;
  int64_t key_head_stride; /* 0: the same for all heads */
  /* nullable. Of query t, kv head h and key `index`: entry t * mask_token_stride + h * mask_head_stride + index. 0: the query
   * does not see the key. */
  const uint8_t *mask;
  int64_t mask_token_stride;
  int64_t mask_head_stride; /* 0: the same for all heads */
  int32_t num_distances;
  uint32_t reserved;
} kvc_backend_bias;

/* Attention of one layer over what is stored. */
typedef struct kvc_backend_attend {
  const kvc_backend_layer *layer;
  const kvc_backend_plan *plan;
  kvc_backend_tensor q;          /* [T, Hq, D]: float32, float16, bfloat16; float8 if there is no cos_sin */
  kvc_backend_tensor out;        /* [T, Hq, Dv] */
  float *lse;                    /* nullable; [T, Hq] by the strides below */
  int64_t lse_token_stride, lse_head_stride;
  const float *cos_sin;          /* nullable: q is taken as it is. Else rotate q, and round it to q's dtype */
  const float *cos_sin_sinks;    /* the same for items of KVC_BACKEND_PART_SINKS: at min(p, w-1) of a streaming row */
  const double *key_tables;      /* nullable: stored k is as it attends. Else as kvc_backend_rope.tables: stored k is raw, and
                                    is rotated at its position, in float32, when it is read */
  /* Score of q and k: s = scale * (q.k), then softcap * tanh(s / softcap), then - slope * |p_q - p_k|, or with
   * KVC_ATTEND_ALIBI_SIGNED - slope * (p_q - p_k). */
  double softmax_scale;          /* 0 = the layer's */
  double softcap;                /* 0 = none */
  const float *alibi_slopes;     /* nullable; [Hq] */
  const float *sinks;            /* nullable; [Hq]: a logit that joins the denominator once, at the final write */
  const int32_t *cancel_host;    /* nullable; read with relaxed atomic loads between items; not 0 = stop: the rest is
                                    skipped, and attend returns KVC_ERROR_CANCELLED */
  kvc_backend_lists lists;       /* only if the backend has KVC_BACKEND_LISTS */
  kvc_backend_bias bias;         /* of a call of a cache; nothing in it is set if the backend lacks KVC_BACKEND_BIASES */
  /* Only stateless calls set the fields below. They are 0 in a forward. */
  kvc_backend_tensor qv;         /* without data: q is whole. Else [T, Hq, Dv] of q's dtype: a query is qv's row, followed
                                    by that of q, [T, Hq, D - Dv] */
  int64_t q_row_stride;          /* tokens of row r lie r * so many elements after where token_stride says: batches */
  int64_t qv_row_stride;
  int64_t out_row_stride;
  int64_t lse_row_stride;
  int64_t alibi_row_stride;      /* slopes of row r: alibi_slopes + r * so many */
  kvc_backend_row_scales q_scales, k_scales, v_scales; /* beside the layer's scales; q may be float8 then. No shared items */
} kvc_backend_attend;

/* Chooses the entries with the highest scores for each query of a layer with keys only, as kvc_forward_select says. */
typedef struct kvc_backend_select {
  const kvc_backend_layer *layer;
  const kvc_backend_plan *plan; /* its rows and tables are read; it has no items */
  kvc_backend_tensor q;         /* [T, Hq, D]: float32, float16, bfloat16 */
  const float *weights;         /* nullable: all 1. [T, Hq] by the strides below */
  int64_t weights_token_stride, weights_head_stride;
  const float *cos_sin;         /* as in kvc_backend_attend */
  kvc_backend_lists candidates; /* block_tokens 0: all keys that the query sees. The head of a list is an index of the lists
                                   of entries */
  int32_t *entries;             /* out: list l of token t is [num_entries] at entries + t * token_stride + l * head_stride */
  int64_t token_stride, head_stride;
  int32_t num_entries;          /* 1 or more */
  int32_t rule;                 /* KVC_SELECT_* */
  int32_t block_tokens;
  int32_t first_blocks, last_blocks;
  uint32_t reserved;
  void *scratch;                /* of the device, 64-byte aligned: 8 bytes for each key that any query sees, and 8 KiB more */
  int64_t scratch_bytes;
  const int32_t *cancel_host;   /* as in kvc_backend_attend */
} kvc_backend_select;

/* The plan of a stateless call whose index tensors are on the device. plan_flash makes on the stream what the core makes of
 * host tensors: rows, page lists, slots and items. Arrays have the sizes of the capacity. Unused entries are inert: items
 * without queries, tiles without items, slot -1, rotation -1. A row with a value out of range has no queries, and its new
 * tokens have no slots. */
typedef struct kvc_backend_flash_plan {
  const kvc_backend_layer *layer; /* that attends */
  int32_t num_rows;
  uint32_t flags;                 /* KVC_ATTEND_* */
  int64_t num_tokens;             /* rows of q */
  int64_t num_new;                /* rows of k */
  int64_t capacity;               /* tokens that a cache row holds */
  int64_t num_cache_rows;
  kvc_backend_indexes cu_seqlens_q, cu_seqlens_k_new; /* [num_rows + 1] */
  kvc_backend_indexes cache_seqlens, cache_batch_idx, cache_leftpad, rotary_seqlens; /* [num_rows] */
  const void *block_table;        /* nullable: a cache row is a page. [num_cache_rows, table_columns], rows by table_stride */
  int64_t table_stride, table_columns;
  uint32_t table_wide;            /* 1: block_table is int64, and `pages` is there; 0: int32 */
  uint32_t reserved;
  int64_t num_rotations;          /* rows of cos and sin; 0 = nothing is rotated */
  int32_t rotary_given;           /* 0: rotations begin at cache_seqlens, not at rotary_seqlens */
  int32_t queries_advance;        /* 0: all queries of a row are rotated alike */
  int32_t window_right;           /* a query sees this many keys after itself; 0 or less: as the flags say */
  int32_t item_queries;           /* queries that a tile has at most */
  int32_t key_splits;             /* items of a tile: parts of its keys */
  int32_t split_align, min_split_keys; /* as kvc_backend_tiling */
  int32_t lengths_array;          /* KVC_BACKEND_ARRAY_*: what cache_seqlens is, for faults */
  int64_t max_tiles;              /* num_rows + num_tokens / item_queries */
  /* Out, on the device */
  int32_t *token_begin;           /* [num_rows + 1] */
  int32_t *new_begin;             /* [num_rows + 1] */
  int32_t *tile_begin;            /* [num_rows + 1] */
  int32_t *kv_lengths;            /* [num_rows] */
  int32_t *key_begins;            /* [num_rows] */
  int32_t *cache_rows;            /* [num_rows] */
  int64_t *page_begin;            /* [num_rows, 2]: twice, as lists of streaming rows are two */
  int32_t *pages;                 /* nullable; [num_rows, table_columns]: the rows' lists, as int32. Without it: block_table */
  int32_t *positions;             /* [num_tokens] */
  int32_t *key_ends;              /* nullable; [num_tokens] */
  int32_t *query_rotations;       /* nullable; [num_tokens] */
  int64_t *slots;                 /* [num_new] */
  int32_t *new_rows;              /* [num_new] */
  int32_t *new_rotations;         /* nullable; [num_new] */
  kvc_backend_item *items;        /* [max_tiles, key_splits] */
  kvc_backend_tile *tiles;        /* [max_tiles] */
  kvc_backend_plan *plan;         /* out, host: for attend, with these arrays in `device`. The caller sets partials */
} kvc_backend_flash_plan;

/* One table of a plan: a step and a part of it, in arrays of the device, by their capacity. */
typedef struct kvc_backend_table {
  int32_t part;         /* KVC_TABLES_* */
  int32_t step;         /* of KVC_PLAN_DRAFT_DECODE; else 0 */
  int32_t max_rows;     /* R */
  int32_t max_columns;  /* pages of a row */
  int32_t *block_table; /* nullable; [R, max_columns], rows by table_stride */
  int64_t table_stride;
  int32_t *indptr;        /* nullable, with the next two; [R + 1] */
  int32_t *indices;       /* [R * max_columns] */
  int32_t *last_page_len; /* [R] */
  int32_t *cache_seqlens; /* [R] */
  int32_t *key_starts;    /* [R] */
  int32_t *leftpad;       /* [R] */
  int32_t *batch_rows;    /* [R] */
  int32_t *cu_seqlens_q;  /* [R + 1] */
  int32_t *cu_seqlens_k;  /* [R + 1] */
} kvc_backend_table;

/* The new tokens of one step, likewise. */
typedef struct kvc_backend_tokens {
  int64_t *slot_mapping; /* [max_tokens] */
  int32_t *positions;    /* [max_tokens] */
  int32_t *last_rows;    /* [max_rows of the config] */
} kvc_backend_tokens;

/* A build of a graph plan over arrays that only the device reads. It writes on the stream what kvc_plan_build writes, every
 * element of every array. Lengths, rows, parents or a capacity that the core would refuse leave the arrays as they were and
 * set the generation word to 0. A device that validates also checks ids. */
typedef struct kvc_backend_table_plan {
  const kvc_plan_config *config; /* with every default filled in */
  int64_t num_rows;              /* B, at most max_rows */
  int64_t max_tokens;            /* of a step */
  kvc_backend_indexes seq_lens, append_lengths, rows, encoder_lens; /* [B] */
  kvc_backend_indexes tree_parents; /* [B * num_draft_tokens]; without data: no trees */
  const int32_t *table;          /* [num_table_rows, num_columns], rows by table_stride: page ids */
  int64_t num_table_rows, num_columns, table_stride;
  int32_t table_of_slots;        /* 1: slots of tokens */
  int32_t num_tables;
  const kvc_backend_table *tables; /* host, [num_tables] */
  const kvc_backend_tokens *tokens; /* host, nullable; one for each step */
  int64_t generation;            /* written to generation_word */
  int64_t *generation_word;
} kvc_backend_table_plan;

/* Results of attention over some keys: normalised outputs [T, H, Dv], float32, float16 or bfloat16, and
 * LSEs [T, H]. */
typedef struct kvc_backend_state {
  kvc_backend_tensor out;
  float *lse; /* of a result: nullable */
  int64_t lse_token_stride, lse_head_stride;
} kvc_backend_state;

/* Merges states over disjoint keys, left to right. A part with an LSE of -inf is empty, and its out is not read. The result
 * may overwrite parts[0]. */
typedef struct kvc_backend_merge {
  const kvc_backend_state *parts; /* [num_parts] */
  int32_t num_parts;              /* 1 or more */
  int32_t num_heads, dims;        /* H, Dv */
  uint32_t reserved;
  int64_t num_tokens;             /* T */
  kvc_backend_state result;
} kvc_backend_merge;

/* A product with a matrix for each head: out[t, h, 0..out_dims) = in[t, h, 0..in_dims) W[h], summed in float32. W[h] is
 * weights[h], [in_dims, out_dims], or its transpose. The tail is copied: out[t, h, out_dims..out_dims+tail_dims) =
 * in[t, h, in_dims..in_dims+tail_dims). No dims exceed 1024. out overlaps no input. */
typedef struct kvc_backend_project {
  int64_t num_tokens;         /* T */
  int32_t num_heads;          /* H */
  int32_t in_dims, out_dims, tail_dims;
  int32_t transposed;         /* 0: weights is [H, in_dims, out_dims]; 1: [H, out_dims, in_dims] */
  uint32_t reserved;
  kvc_backend_tensor in;      /* [T, H, in_dims + tail_dims]; head_stride 0 = one row for all heads */
  kvc_backend_tensor weights; /* token_stride is from head to head, head_stride from row to row */
  kvc_backend_tensor out;     /* [T, H, out_dims + tail_dims] */
} kvc_backend_project;

/* Copies num_slots slots within one page, or from one page to another: all heads, K and V with their scales. Copies take
 * effect in order, and source and target may overlap. It runs under the cache's lock, so it uses only the library's own
 * threads (kvc_backend_host.own_threads): code on the host's threads could call the library back. */
typedef struct kvc_backend_slot_copy {
  int64_t source_slot, target_slot; /* page * page_size + offset; source_slot -1: the target becomes zero bytes */
  int32_t num_slots;
  int32_t reserved;
} kvc_backend_slot_copy;

/* Copies stored rows to dense arrays, or back, byte by byte: k and v are [num_tokens, Hkv, row_bytes of the pool]. */
typedef struct kvc_backend_gather {
  const kvc_backend_layer *layer;
  int64_t num_tokens;
  const int64_t *slots;         /* [num_tokens]; in a store distinct, and negative = skip the token. In a call without a
                                 * step, host memory, unless slots_on_device is 1 */
  void *k;                      /* nullable */
  void *v;                      /* nullable */
  void *k_scale;                /* nullable; [num_tokens, Hkv, row_bytes of the scales], compact */
  void *v_scale;                /* nullable */
  const kvc_backend_step *step; /* nullable; else slots is an address on the device */
  int32_t store;                /* 1: arrays to slots; 0: slots to arrays */
  uint32_t slots_on_device;     /* 1: slots is an address on the device, also without a step */
} kvc_backend_gather;

/* Copies states of a batch's sequences between a pool and a tensor: row i of the tensor and page pages[i]. */
typedef struct kvc_backend_states {
  void *pool;                /* state p is at pool + p * page_stride_bytes */
  int64_t page_stride_bytes;
  void *rows;                /* row i is at rows + i * row_stride_bytes */
  int64_t row_stride_bytes;
  int64_t state_bytes;
  const int32_t *pages;      /* [num_rows] */
  int32_t num_rows;
  int32_t store;             /* 1: rows to pages; 0: pages to rows */
  const kvc_backend_step *step; /* nullable; else pages is an address on the device */
  uint64_t fill;             /* the bytes of a fresh state: byte j is byte j % 8 of this word in memory */
} kvc_backend_states;

enum kvc_backend_state_page {
  KVC_BACKEND_STATE_FILL = -1, /* load: the row becomes a fresh state. Not in a store */
  KVC_BACKEND_STATE_SKIP = -2  /* the row is not changed */
};

/* ---- What a device keeps of a cache's bookkeeping --------------------------------------------- */

/* For asynchronous devices. The core orders streams by events. Before the first call of a step it sends the step's
 * index arrays and the plans of its attends in one copy. The core chooses where each array lies in the step's memory, so
 * it has both addresses of an array before the copy. */
typedef struct kvc_backend_device kvc_backend_device;
typedef struct kvc_backend_event kvc_backend_event;   /* a point in a stream's work */
typedef struct kvc_backend_mirror kvc_backend_mirror; /* the device's copy of a node pool */

enum { KVC_BACKEND_ARRAY_ALIGNMENT = 16 }; /* bytes, of every array in a step's memory */

typedef struct kvc_backend_array {
  const void *data; /* host */
  int64_t bytes;
  const void *device; /* of stage: in, within the step's memory. Of begin_call: out */
} kvc_backend_array;

/* Nodes of a pool that changed since the last stage of any step: as they are now, in the host's pool. */
typedef struct kvc_backend_node_changes {
  kvc_backend_mirror *mirror;
  const int32_t *ids; /* [num_ids] */
  int64_t num_ids;
} kvc_backend_node_changes;

typedef struct kvc_backend_stage {
  const kvc_backend_array *arrays;         /* [num_arrays] */
  const kvc_backend_node_changes *changes; /* [num_changes] */
  /* [num_plans]: complete, their arrays among `arrays` and in `device`. Each gets its `staged`. */
  kvc_backend_plan *const *plans;
  int32_t num_arrays, num_changes, num_plans;
  int32_t num_tokens, num_rows; /* rows: those that have states */
  /* 0 outside graphs. In a graph: the most tokens and rows that a step has. Arrays then lie at the same addresses in every
   * step. Captured calls may be replayed in later steps, and read the sizes of those steps on the device. */
  int32_t max_tokens, max_rows;
  uint32_t reserved;
} kvc_backend_stage;

/* What a step has memory for. Changes beyond num_changes are sent in further copies. */
typedef struct kvc_backend_step_limits {
  int64_t array_bytes;                  /* memory in which the core places arrays */
  int64_t num_changes;                  /* nodes */
  const kvc_backend_plan *const *plans; /* [num_plans], by slot: their layers and max_* are read */
  int32_t num_plans;
  int32_t num_stage_plans; /* these first plans are sent by stage or stage_plan; the others by stage_plan alone */
} kvc_backend_step_limits;

/* ---- Validation ------------------------------------------------------------------------------- */

/* Calls of kvcache.h whose arrays a device checks, and those arrays. */
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
  KVC_BACKEND_FAULT_RANGE = 0,   /* the value is not in [least, most] */
  KVC_BACKEND_FAULT_PAGE = 1,    /* no page of `most` tokens begins at the slot `value` */
  KVC_BACKEND_FAULT_COLUMNS = 2, /* the row needs `value` columns of the table, which has `most` */
  KVC_BACKEND_FAULT_PAGES = 3,   /* the row has `value` pages, and the plan has room for `most` */
  KVC_BACKEND_FAULT_SUM = 4      /* the rows have `value` tokens or keys together, and there is room for `most` */
};

/* A bad value that a kernel found in an array that only the device reads. Its row, token or build was skipped. */
typedef struct kvc_backend_fault {
  int32_t kind;  /* KVC_BACKEND_FAULT_* */
  int32_t call;  /* KVC_BACKEND_CALL_* */
  int32_t array; /* KVC_BACKEND_ARRAY_* */
  int32_t reserved;
  int64_t row;       /* of the batch; -1 = all of them */
  int64_t table_row; /* of a table: its element [table_row, column]; else -1 */
  int64_t column;    /* else element of the array; -1 = `row` */
  int64_t value;
  int64_t least, most;
} kvc_backend_fault;

/* ---- The table ------------------------------------------------------------------------------ */

typedef struct kvc_backend_open_args {
  const kvc_backend_host *host; /* valid until close */
  int32_t device_id;
  uint32_t validate;            /* 1: faults are recorded, and the device checks page ids that only it reads */
  const char *simd;             /* nullable; as kvc_context_config.simd */
} kvc_backend_open_args;

/* What a backend can do beyond what all of them must. */
enum kvc_backend_features {
  KVC_BACKEND_LISTS = 1, /* kvc_backend_attend.lists */
  KVC_BACKEND_BIASES = 2, /* kvc_backend_attend.bias */
  KVC_BACKEND_SELECT = 4 /* kvc_backend.select */
};

/* Functions return a kvc_status, and on failure fill `error` (never NULL). No function of the hot path (those that take
 * a stream) allocates. Arguments were checked by the core: shapes, dtypes and ids are right. */
typedef struct kvc_backend {
  uint32_t struct_size;
  uint32_t version;      /* KVC_BACKEND_VERSION */
  int32_t device_type;   /* DLDeviceType */
  uint32_t features;     /* KVC_BACKEND_* of kvc_backend_features */
  const char *name;      /* "cpu" */

  kvc_status (*open)(const kvc_backend_open_args *args, kvc_backend_device **device, kvc_error *error);
  void (*close)(kvc_backend_device *device);
  /* Names of implementations that this machine can run, best last, and the one in use; static strings. */
  int32_t (*implementations)(kvc_backend_device *device, const char **names, int32_t capacity);
  const char *(*implementation)(kvc_backend_device *device);

  /* Whether the layer can be stored and attended: KVC_OK, or UNSUPPORTED with the reason. data pointers may be NULL. */
  kvc_status (*check_layer)(kvc_backend_device *device, const kvc_backend_layer *layer, kvc_error *error);
  /* tokens: tokens of the batch; a hint. */
  void (*tiling)(kvc_backend_device *device, const kvc_backend_layer *layer, kvc_backend_tiling *tiling);

  /* Device memory of zeros (zeroed lazily where the system can). alignment: a power of two. huge: 1 = use huge pages. */
  kvc_status (*allocate)(kvc_backend_device *device, int64_t bytes, int64_t alignment, int32_t huge, void **memory,
                         kvc_error *error);
  void (*release)(kvc_backend_device *device, void *memory, int64_t bytes);
  /* Copies host memory, which may change as soon as it returns, to the device's, in the stream's order. wait: 1 = the copy
   * is done on return, for all streams; not on the hot path. */
  kvc_status (*upload)(kvc_backend_device *device, void *target, const void *source, int64_t bytes, int32_t wait,
                       void *stream, kvc_error *error);

  /* Copies the device's memory to the host's, after what the stream has now, and waits for it. Not on the hot path. */
  kvc_status (*download)(kvc_backend_device *device, void *target, const void *source, int64_t bytes, void *stream,
                         kvc_error *error);

  /* Called once for each RoPE class of a cache, not on the hot path. */
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
  /* NULL without KVC_BACKEND_SELECT. */
  kvc_status (*select)(kvc_backend_device *device, const kvc_backend_select *args, void *stream, kvc_error *error);

  /* All that follow are NULL in backends whose calls return with their work done. */
  /* KVC_OK, or why the device can never work again. Any thread; costs one load. */
  kvc_status (*health)(kvc_backend_device *device, kvc_error *error);
  /* ORDER, if the stream is being captured. */
  kvc_status (*check_stream)(kvc_backend_device *device, void *stream, kvc_error *error);
  kvc_status (*event_create)(kvc_backend_device *device, kvc_backend_event **event, kvc_error *error);
  void (*event_destroy)(kvc_backend_device *device, kvc_backend_event *event);
  /* The event becomes the end of the work that the stream has now. */
  kvc_status (*event_record)(kvc_backend_device *device, kvc_backend_event *event, void *stream, kvc_error *error);
  /* Work enqueued on the stream after this call runs after the event as last recorded. The host does not wait. If the
   * event was recorded on the same stream, there is nothing to do. */
  kvc_status (*event_wait)(kvc_backend_device *device, kvc_backend_event *event, void *stream, kvc_error *error);
  /* A stream of the device that is ordered with no other one but by events, for copies beside the caller's work. Destroying
   * it waits for its work. */
  kvc_status (*stream_create)(kvc_backend_device *device, void **stream, kvc_error *error);
  void (*stream_destroy)(kvc_backend_device *device, void *stream);
  /* nodes: the host's pool [num_nodes, FANOUT], which stays at this address while the mirror exists. on_device: out, the
   * address of the copy, for kvc_backend_plan.device. */
  kvc_status (*mirror_create)(kvc_backend_device *device, const int32_t *nodes, int64_t num_nodes,
                              kvc_backend_mirror **mirror, const int32_t **on_device, kvc_error *error);
  void (*mirror_destroy)(kvc_backend_device *device, kvc_backend_mirror *mirror);
  /* arrays: out, the device address of limits->array_bytes bytes, in which the core places arrays. */
  kvc_status (*step_create)(kvc_backend_device *device, const kvc_backend_step_limits *limits, kvc_backend_step **step,
                            void **arrays, kvc_error *error);
  void (*step_destroy)(kvc_backend_device *device, kvc_backend_step *step);
  /* Enqueues the copy of a step's arrays and of changed nodes. It replaces what was staged in this step before. The caller
   * has already made the stream wait for all work that reads the replaced arrays, or the nodes that change. Host memory
   * may change as soon as it returns. */
  kvc_status (*stage)(kvc_backend_device *device, kvc_backend_step *step, const kvc_backend_stage *args, void *stream,
                      kvc_error *error);
  /* Stages one plan that was made after the step's stage: its items, tiles, spans and parts, in one copy. The other
   * arrays of its `device` are filled. It replaces the plan in its slot, after calls that are enqueued have run. ORDER,
   * if the stream is being captured. */
  kvc_status (*stage_plan)(kvc_backend_device *device, kvc_backend_step *step, kvc_backend_plan *plan, void *stream,
                           kvc_error *error);
  /* For a step of a graph. Captured calls that run after it and before the next stage read and write nothing. */
  kvc_status (*unstage)(kvc_backend_device *device, kvc_backend_step *step, void *stream, kvc_error *error);
  /* The stage of a stateless call, which makes several calls of the backend. One copy sends its arrays and all of `plan`
   * (nullable), and their device addresses are filled in. They stay on the device until end_call, which the core calls after
   * the last of those calls on the stream. step: out; NULL = there was nothing to send. */
  kvc_status (*begin_call)(kvc_backend_device *device, kvc_backend_array *arrays, int32_t num_arrays,
                           kvc_backend_plan *plan, void *stream, const kvc_backend_step **step, kvc_error *error);
  kvc_status (*end_call)(kvc_backend_device *device, const kvc_backend_step *step, void *stream, kvc_error *error);
  /* Memory for the work that one call enqueues on a stream. No other call gets it before the work that was enqueued until
   * give_scratch has run. If the stream is being captured, the memory stays with that capture. It allocates only when more
   * memory, or a larger block, is in use than ever before. */
  kvc_status (*take_scratch)(kvc_backend_device *device, int64_t bytes, void *stream, void **memory, kvc_error *error);
  kvc_status (*give_scratch)(kvc_backend_device *device, void *memory, void *stream, kvc_error *error);
  kvc_status (*plan_flash)(kvc_backend_device *device, const kvc_backend_flash_plan *args, void *stream,
                           kvc_error *error);
  kvc_status (*plan_tables)(kvc_backend_device *device, const kvc_backend_table_plan *args, void *stream,
                            kvc_error *error);
  /* 1 and the first fault since the last one was taken, or 0. Any thread; costs one load and does not wait. */
  int32_t (*take_fault)(kvc_backend_device *device, kvc_backend_fault *fault);
} kvc_backend;

/* The one symbol of a plug-in: "kvc_backend_get". NULL if it cannot serve that version. */
typedef const kvc_backend *(*kvc_backend_get_fn)(uint32_t version);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVCACHE_BACKEND_H_ */
