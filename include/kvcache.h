/* libkvcache: a paged KV cache and attention over it, behind one C ABI.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * ============================================================================================
 * 1  Introduction
 * ============================================================================================
 * An engine creates a context (one device and its threads), a cache in it (page pools for every
 * layer of a model) and sequences in the cache. Each step of the model is a forward: begin
 * reserves pages for the new tokens of a batch, attend stores a layer's new K and V and computes
 * attention over everything stored, end keeps the new tokens. A first program:
 *
 *   kvc_error error = KVC_ERROR_INIT;
 *   kvc_context_config context_config;  kvc_context_config_init(&context_config);
 *   kvc_context *context = NULL;
 *   if (kvc_context_create(&context_config, &context, &error)) return report(error.message);
 *
 *   kvc_layer_config layers[NUM_LAYERS];           // per layer: kvc_layer_config_init, heads, dims
 *   kvc_cache_config config;  kvc_cache_config_init(&config);
 *   config.layers = layers;  config.num_layers = NUM_LAYERS;  config.capacity_tokens = 65536;
 *   kvc_cache *cache = NULL;
 *   if (kvc_cache_create(context, &config, &cache, &error)) return report(error.message);
 *
 *   kvc_seq seq;  kvc_seq_add(cache, 1, &seq, &error);
 *   kvc_batch batch;  kvc_batch_init(&batch);
 *   batch.sequences = &seq;  batch.append_lengths = &prompt_length;  batch.num_sequences = 1;
 *   kvc_forward step;
 *   if (kvc_forward_begin(cache, &batch, NULL, &step, &error)) return report(error.message);
 *   kvc_attend_args args;  kvc_attend_args_init(&args);
 *   for (int layer = 0; layer < NUM_LAYERS; layer++) {
 *     args.q = &q;  args.k = &k;  args.v = &v;  args.out = &out;    // DLTensors of this layer
 *     if (kvc_forward_attend(cache, step, layer, &args, &error)) { ... kvc_forward_abort ... }
 *   }
 *   kvc_forward_end(cache, step, &error);
 *
 * A newcomer can stop after section 7; sections 8 to 13 are for the rest.
 *
 * Words
 *   page      `page_size` consecutive token slots of one layer group.
 *   slot      page * page_size + offset: the place of one token in a group's pools.
 *   sequence  an ordered list of pages per group, and a length in tokens.
 *   fork      a new sequence that shares a prefix with its parent, page by page.
 *   forward   one step of the model over a batch: begin, per-layer calls, end or abort.
 *   group     layers that share page tables (full attention, sliding window, chunks, latent rows, encoder sequences, states).
 * Letters in shapes: T tokens of a batch, Hq query heads, Hkv key/value heads, D head dim of q and k, Dv head dim of v.
 * A row of a batch is one sequence; a row of a tensor is one token. Ranges are half-open, positions and lengths count tokens from 0.
 *
 * Ownership: three words, used everywhere
 *   borrowed  the library reads it during the call and keeps nothing (on a GPU: until the stream
 *             has passed the work).
 *   adopted   the library owns it from a successful return on; on failure it stays the caller's.
 *   returned  the caller owns it, and releases it as the function says.
 *
 * Calls
 *   Errors     A fallible function returns a kvc_status and takes a nullable kvc_error last. On any
 *              failure it changes nothing, unless its documentation says otherwise. Any call can also
 *              return NULL_ARGUMENT, STRUCT_SIZE, INVALID_ARGUMENT (negative n or capacity),
 *              UNSUPPORTED (unknown flag bits, unknown fields that are not zero), DEVICE (stream), DEVICE_FAILED (a GPU's driver),
 *              OUT_OF_MEMORY and INTERNAL; they are not repeated below. n = 0 does nothing.
 *   Threads    "any": may be called from any thread; calls that change one cache are serialised
 *              inside. A call that races kvc_cache_destroy or kvc_context_destroy is undefined.
 *   Blocking   No call waits for I/O. Calls on one cache wait for shorter ones (copies of partial
 *              pages and of tree nodes, audits), never for compute. Compute calls on the CPU return when the result is
 *              written; of those, eight at once run in one context, a ninth waits for one of them.
 *   Streams    `stream` is the device's stream (CUDA: CUstream; NULL is the default stream). On the CPU it must be NULL. Calls with a
 *              stream enqueue only, and make it wait on the device for the cache's earlier work, on whatever streams that is. A
 *              forward's calls go to the stream of its begin. What they read and write must live until the stream has passed it.
 *   fork()     The child of fork() may call everything on caches that no thread was inside of at that moment (stateless
 *              calls and plans: on contexts). Its copy is its own: open forwards can end or abort in both processes, worker
 *              threads start anew with the child's first compute call, exports are released in each. Undefined are other
 *              caches, memory that both map shared, and children of clone() or _Fork(), which run no fork handlers.
 *   NULL       A pointer argument must not be NULL unless it is marked "nullable".
 *   Arrays     What a call fills must not overlap what it reads.
 *   Every pointer is to host memory unless it is a tensor's data.
 *
 * Structs: every extensible struct starts with `struct_size`; call its kvc_*_init first, then set
 * fields. (Without a C compiler: zero it and store its size in struct_size.) Zero always means the
 * default. See docs/reference/abi.md.
 */
#ifndef KVCACHE_H_
#define KVCACHE_H_

#include <stddef.h>
#include <stdint.h>

#include <dlpack/dlpack.h>

#if !defined(SWIG) /* SWIG does not expand includes */
#if !defined(DLPACK_MAJOR_VERSION) || DLPACK_MAJOR_VERSION != 1 || !defined(DLPACK_FLAG_BITMASK_READ_ONLY)
#error "kvcache.h needs DLPack >= 1.1 (DLManagedTensorVersioned); another dlpack.h was included first"
#endif
#if !defined(__LP64__)
#error "kvcache.h supports LP64 platforms only"
#endif
#endif

#if defined(__GNUC__)
#define KVC_API __attribute__((visibility("default")))
#else
#define KVC_API
#endif

#ifdef __cplusplus
extern "C" {
#define KVC_ZERO_STRUCT \
  {}
#else
#define KVC_ZERO_STRUCT \
  { 0 }
#endif

/* ============================================================================================
 * 2  Version
 * ============================================================================================ */

#define KVC_VERSION_MAJOR 0
#define KVC_VERSION_MINOR 1
#define KVC_VERSION_PATCH 0

/* The ABI this header describes: (major << 16) | minor. While major is 0 every minor may change it. */
#define KVC_ABI_VERSION ((KVC_VERSION_MAJOR << 16) | KVC_VERSION_MINOR)

/* Version of the loaded library as text, "0.1.0".
 * Returns: a static string, never NULL. Threads: any. Since 0.1. */
KVC_API const char *kvc_version(void);

/* KVC_ABI_VERSION of the loaded library. Threads: any. Since 0.1. */
KVC_API uint32_t kvc_abi_version(void);

/* What the loaded library was built with, as one JSON object: version, abi, compiler, dlpack,
 * backends, simd (every CPU target compiled in, best last), features.
 * Returns: a static string, never NULL. Threads: any. Since 0.1. */
KVC_API const char *kvc_build_info(void);

/* ============================================================================================
 * 3  Errors
 * ============================================================================================ */

/* 0 is success. An unknown code is treated by its band: 1..99 misuse (the program is wrong),
 * 100..199 capacity (try later, or with less), 200..299 state, 300..399 device,
 * 400..499 data and I/O, 900..999 internal. */
typedef int32_t kvc_status;

enum kvc_status_code {
  KVC_OK = 0,
  /* Misuse. */
  KVC_ERROR_INVALID_ARGUMENT = 1,  /* a value out of its range, or values that contradict each other */
  KVC_ERROR_NULL_ARGUMENT = 2,     /* NULL where a pointer is needed */
  KVC_ERROR_STRUCT_SIZE = 3,       /* struct_size below the first release's, or unlike its neighbours' */
  KVC_ERROR_UNSUPPORTED = 4,       /* well formed, but this library or backend cannot do it */
  KVC_ERROR_DTYPE = 5,             /* a tensor's dtype */
  KVC_ERROR_DEVICE = 6,            /* a tensor's device, or a stream that the device does not have */
  KVC_ERROR_RANK = 7,              /* a tensor's number of dimensions */
  KVC_ERROR_SHAPE = 8,             /* a tensor's shape */
  KVC_ERROR_STRIDE = 9,            /* a tensor's strides, or its alignment */
  KVC_ERROR_OUT_OF_RANGE = 10,     /* a layer, group, position or length that does not exist */
  KVC_ERROR_STALE_ID = 11,         /* a sequence or forward that is gone, or is of another cache */
  KVC_ERROR_DUPLICATE = 12,        /* the same sequence twice in one call */
  KVC_ERROR_EARLIER_CALL = 13,     /* KVC_CONTEXT_VALIDATE: the device met a bad index of an earlier call; this one did nothing */
  /* Capacity: an outcome, not a mistake. */
  KVC_ERROR_OUT_OF_PAGES = 100,          /* required, available: pages of `group` */
  KVC_ERROR_OUT_OF_MEMORY = 101,         /* the host or the device refused memory */
  KVC_ERROR_TOO_MANY_SEQUENCES = 102,    /* required, available: sequences */
  KVC_ERROR_TOO_MANY_FORWARDS = 103,     /* required, available: open forwards */
  KVC_ERROR_BATCH_TOO_LARGE = 104,       /* required, available: tokens or rows of a batch */
  KVC_ERROR_BUFFER_TOO_SMALL = 105,      /* required, available: elements of an output array */
  KVC_ERROR_TREE_TOO_LARGE = 106,        /* required, available: uncommitted tree nodes of a sequence */
  /* State. */
  KVC_ERROR_BUSY = 200,       /* the sequence is in an open forward, or the forward is in use by another thread */
  KVC_ERROR_ORDER = 201,      /* calls in the wrong order, or the same call twice */
  KVC_ERROR_CANCELLED = 202,  /* the forward was cancelled: only abort is left */
  KVC_ERROR_EVICTED = 203,    /* the keys that this needs were freed behind a window */
  KVC_ERROR_UNCOMMITTED = 204, /* the sequence has an uncommitted tree: kvc_seq_commit first */
  KVC_ERROR_STALE = 205,      /* a plan's arrays hold another step than the one asked for, or a graph holds none */
  /* Device. */
  KVC_ERROR_DEVICE_UNAVAILABLE = 300, /* no backend, driver or device of that type */
  KVC_ERROR_DEVICE_FAILED = 301,      /* the driver reported an error: the message has its name and the call */
  /* Internal. */
  KVC_ERROR_INTERNAL = 900 /* a bug of the library; kvc_cache_check_invariants reports with this code */
};

/* What went wrong, in numbers and in words. Owned by the caller, written only on failure.
 * The layout of this struct is frozen. */
typedef struct kvc_error {
  uint32_t struct_size; /* sizeof(kvc_error), by KVC_ERROR_INIT */
  kvc_status code;      /* the returned status */
  int64_t index;        /* row, layer or array element at fault; -1 = none */
  int64_t required;     /* capacity errors: what the call needs, else 0 */
  int64_t available;    /* capacity errors: what there is, else 0 */
  int64_t group;        /* layer group at fault; -1 = none */
  char message[472];    /* "function: what, with the values"; NUL-terminated ASCII */
} kvc_error;

#define KVC_ERROR_INIT \
  { (uint32_t)sizeof(kvc_error), 0, -1, 0, 0, -1, "" }

/* The same for an error that exists already. A kvc_error whose struct_size is not sizeof(kvc_error) cannot be written:
 * the call returns KVC_ERROR_STRUCT_SIZE and does nothing. */
static inline void kvc_error_init(kvc_error *error) {
  kvc_error initial = KVC_ERROR_INIT;
  *error = initial;
}

/* Name of a status, "KVC_ERROR_OUT_OF_PAGES"; for an unknown code the name of its band.
 * Returns: a static string, never NULL. Threads: any. Since 0.1. */
KVC_API const char *kvc_status_name(kvc_status status);

/* ============================================================================================
 * 4  Context: one device, its threads and scratch
 * ============================================================================================ */

typedef struct kvc_context kvc_context;

/* The host's callbacks may be called by several threads at once, never with a lock of the library held. They must not
 * unwind, and not destroy the context or a cache. After kvc_context_destroy and kvc_cache_destroy of every cache in it
 * they are not called again; exported tensors never call them. */
typedef void (*kvc_parallel_item_fn)(void *arg, int64_t index);

/* Runs item(arg, i) once for each i in [0, n), in any order, on any threads, even on one; returns
 * when all are done. Items never wait for each other. */
typedef void (*kvc_parallel_for_fn)(void *user, int64_t n, kvc_parallel_item_fn item, void *arg);

enum kvc_context_flags {
  /* Validation mode, for tests, and for finding what wrote outside of its pages. All values of index tensors that only a
   * GPU reads (sections 10 and 11) are checked there, page ids too: a row, token or build with a bad one is left out. The
   * first one that was met since the last report is reported by the next of those calls on the context, or by
   * kvc_context_check, without waiting: EARLIER_CALL, whose message names call, tensor, row and value, error->index being the
   * row. The call that reports did nothing (but a build that does leaves its plan stale, as a refused one), and may be
   * repeated. Replays of captured calls are checked as they run. Costs a pass over the page ids that are used; without the
   * flag, nothing. What the host reads (on the CPU everything) is checked by the call itself, with the flag or without. */
  KVC_CONTEXT_VALIDATE = 1
};

enum kvc_log_level { KVC_LOG_WARNING = 1, KVC_LOG_INFO = 2, KVC_LOG_DEBUG = 3 };

/* Called on the thread that called the library; `message` is borrowed. */
typedef void (*kvc_log_fn)(void *user, int32_t level, const char *message);

typedef struct kvc_context_config {
  uint32_t struct_size;
  int32_t device_type;  /* a DLDeviceType; 0 = kDLCPU */
  int32_t device_id;    /* ordinal of the device; 0 on the CPU */
  int32_t num_threads;  /* CPU: threads that compute, the caller's included; 0 = min(affinity mask, cgroup quota).
                           With parallel_for: the most threads that it uses at once. At most 1024. */
  const char *simd;     /* nullable: the best that this CPU has. Else a target's name from kvc_context_describe,
                           or "reference" (float64, for tests). avx512_amx asks Linux for AMX tiles, process-wide */
  kvc_parallel_for_fn parallel_for; /* nullable: threads of its own, started on first use. Else the host's pool */
  void *parallel_for_user;
  kvc_log_fn log; /* nullable: silence */
  void *log_user;
  const char *backend; /* nullable: the CPU's is built in; of CUDA the file $KVCACHE_CUDA_BACKEND, else
                          libkvcache_cuda.so beside this library. Else the file of a backend (kvcache_backend.h). It stays
                          loaded */
  uint32_t flags;      /* KVC_CONTEXT_* */
  uint32_t reserved;   /* 0 */
} kvc_context_config;

static inline void kvc_context_config_init(kvc_context_config *config) {
  kvc_context_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

/* Opens a device.
 *
 *   kvc_context_config config;
 *   kvc_context_config_init(&config);
 *   config.device_type = kDLCUDA;
 *   status = kvc_context_create(&config, &context, &error);
 *   if (status == KVC_ERROR_DEVICE_UNAVAILABLE) status = kvc_context_create(NULL, &context, &error);  // error says why
 *
 *   config   nullable: a CPU context with every default
 *   context  returned; released by kvc_context_destroy
 * Errors: INVALID_ARGUMENT, UNSUPPORTED (simd), DEVICE_UNAVAILABLE (no such file, another version of the backend's table,
 * no driver, no device, a device that the backend was not built for: the message says which), DEVICE_FAILED, OUT_OF_MEMORY.
 * Threads: any. Starts no thread: workers start with the first large enough compute call. Since 0.1. */
KVC_API kvc_status kvc_context_create(const kvc_context_config *config, kvc_context **context, kvc_error *error);

/* Gives up the caller's reference; caches keep their context alive. NULL does nothing.
 * Threads: any, once. Whoever gives up the last reference, by this, kvc_cache_destroy or a tensor's deleter, joins the
 * context's idle worker threads. Since 0.1. */
KVC_API void kvc_context_destroy(kvc_context *context);

/* Describes the context as one JSON object: device, device_id, threads, host_parallel_for, simd (in use),
 * simd_available.
 *   buffer    nullable if capacity is 0; [capacity] bytes, NUL-terminated on success
 *   length    nullable: bytes of the text without its NUL, also on BUFFER_TOO_SMALL (error->required counts the NUL)
 * Errors: BUFFER_TOO_SMALL (never for capacity 0). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_context_describe(kvc_context *context, char *buffer, int64_t capacity, int64_t *length,
                                        kvc_error *error);

/* With KVC_CONTEXT_VALIDATE: whether the device has met a bad index by now. For engines that only replay graphs, and at the
 * end of a test:
 *
 *   cudaStreamSynchronize(stream);                           // without it: what has run so far
 *   if (kvc_context_check(context, &error)) return report(error.message);
 *   // an earlier kvc_append_slots, row 3: slot_mapping[3] is 4096, not in 0..4095
 *
 * Errors: EARLIER_CALL, once for each report. Threads: any. Costs a load, and waits for nothing. Since 0.1. */
KVC_API kvc_status kvc_context_check(kvc_context *context, kvc_error *error);

/* ============================================================================================
 * 5  Cache: layers, groups, capacity
 * ============================================================================================ */

typedef struct kvc_cache kvc_cache;

/* Rotary position embedding (RoPE). Pair i of a rotated vector of rope_dim dims turns by the angle
 * position * f(i), f(i) = rope_theta^(-2i/rope_dim), which a scaling changes; docs/reference/rope.md has every formula. */
enum kvc_rope_mode {
  KVC_ROPE_NONE = 0,     /* q and k are taken as they are; the other rope_* fields are ignored */
  KVC_ROPE_ON_APPEND = 1, /* the library rotates q and k at their positions and stores rotated k; rotated q is rounded
                            to q's dtype, as if the caller had rotated it */
  KVC_ROPE_ON_READ = 2   /* k is stored, exported and imported as it is; attend rotates q as above, and each key, in
                            float32, when it reads it */
};

enum kvc_rope_scaling_kind {
  KVC_ROPE_SCALING_NONE = 0,
  KVC_ROPE_SCALING_LINEAR = 1,  /* f(i) / factor (position interpolation) */
  KVC_ROPE_SCALING_LLAMA3 = 2,  /* long waves / factor, short ones unchanged, blended between low_ and high_freq_factor */
  KVC_ROPE_SCALING_YARN = 3,    /* blended by pair between beta_fast and beta_slow turns; scales cos and sin */
  KVC_ROPE_SCALING_LONGROPE = 4 /* f(i) / short_factors[i] or / long_factors[i]; scales cos and sin */
};
enum kvc_rope_scaling_flags {
  KVC_ROPE_SCALING_NO_TRUNCATE = 1 /* yarn: the bounds of the blend are not rounded to whole pairs ("truncate": false) */
};

/* How a model was stretched beyond the length it was trained for: the fields of "rope_scaling" in its config.json.
 * Fields of other kinds must be 0. */
typedef struct kvc_rope_scaling {
  uint32_t struct_size;
  int32_t kind;                  /* KVC_ROPE_SCALING_* */
  uint32_t flags;                /* KVC_ROPE_SCALING_NO_TRUNCATE */
  int32_t num_short_factors;     /* longrope: rope_dim / 2 */
  int32_t num_long_factors;      /* longrope: rope_dim / 2 */
  uint32_t reserved;             /* 0 */
  int64_t original_max_position; /* llama3, yarn, longrope: tokens the model was trained for before, 2..2^30 */
  double factor;                 /* 1..1e6. longrope: only for the default of attention_factor; 0 = 1 */
  double low_freq_factor;        /* llama3: > 0 */
  double high_freq_factor;       /* llama3: > low_freq_factor */
  double beta_fast;              /* yarn: > 0, usually above beta_slow; 0 = 32 */
  double beta_slow;              /* yarn: > 0; 0 = 1 */
  double attention_factor;       /* yarn, longrope: multiplies cos and sin of q and of k, > 0; 0 = a default */
  double mscale;                 /* yarn: with mscale_all_dim, gives that default as in DeepSeek; alone: no effect */
  double mscale_all_dim;         /* yarn: with mscale. It does not change softmax_scale: docs/reference/rope.md */
  const double *short_factors;   /* longrope: borrowed; [num_short_factors], each 1e-6..1e6 */
  const double *long_factors;    /* longrope: borrowed; [num_long_factors], each 1e-6..1e6 */
} kvc_rope_scaling;

static inline void kvc_rope_scaling_init(kvc_rope_scaling *scaling) {
  kvc_rope_scaling zero = KVC_ZERO_STRUCT;
  *scaling = zero;
  scaling->struct_size = (uint32_t)sizeof(zero);
}

enum kvc_layer_flags {
  KVC_LAYER_ROPE_INTERLEAVED = 1 /* rotated pairs are dims 2i, 2i+1 (GPT-J); without: i, i + rope_dim/2 (GPT-NeoX) */
};

/* One state tensor of a recurrent layer: what it keeps of one sequence (a convolution's last inputs, an SSM's or linear
 * attention's state). */
typedef struct kvc_state_config {
  uint32_t struct_size;
  DLDataType dtype;  /* float32, float16, bfloat16; {0,0,0} = float32 */
  int32_t rank;      /* 1..4 */
  uint32_t reserved; /* 0 */
  int64_t shape[4];  /* shape[0..rank - 1], each >= 1; the rest 0 */
} kvc_state_config;

static inline void kvc_state_config_init(kvc_state_config *config) {
  kvc_state_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

typedef struct kvc_layer_config {
  uint32_t struct_size;
  int32_t group;         /* index into groups[] */
  int32_t num_q_heads;   /* Hq, a multiple of num_kv_heads, at most 65536 */
  int32_t num_kv_heads;  /* Hkv, 1..4096; q head h reads kv head h / (Hq / Hkv) */
  int32_t head_dim;      /* D, 1..512 (MLA: 1..1024); multiples of 16 are fast */
  int32_t v_head_dim;    /* Dv, 1..512; 0 = head_dim (MLA: latent_dim) */
  DLDataType dtype;      /* of stored K and V: float32, float16, bfloat16; {0,0,0} = float32. Quantised: float8_e4m3fn,
                            float8_e5m2, int8. An element x is stored as x / scale in float32, rounded to nearest even and
                            saturated to the largest finite value (NaN stays NaN), and is read as stored * scale. int8: each
                            token and head has the scale amax / 127 of its row, in its page, and never holds -128; a row of
                            zeros has scale 1, and one that holds an infinity or a NaN is read as NaN */
  int32_t rope_mode;     /* KVC_ROPE_* */
  int32_t rope_dim;      /* rotated dims, even, rope_offset + rope_dim <= head_dim; 0 = head_dim - rope_offset */
  int32_t rope_offset;   /* first rotated dim; MLA: 0 = latent_dim, and never below it */
  uint32_t flags;        /* KVC_LAYER_* */
  int32_t kv_layer;      /* 0 = K and V of its own. Else 1 + the index of an earlier layer of the group: this one stores
                            nothing and attends over what that layer stores (attend without k and v, after that layer's
                            append). What says how K and V are stored must be equal in both: group, num_kv_heads, dims,
                            dtype, rope_*; storage and scales are given there alone */
  double rope_theta;     /* base of the angles, 1e-30..1e30; yarn: above 1. 0 = 10000 */
  const kvc_rope_scaling *rope_scaling; /* borrowed; nullable: none */
  double softmax_scale;  /* 1e-30..1e30; 0 = head_dim^-0.5. MLA: needed, since the row's width says nothing about it
                            (DeepSeek-V3: 0.13523, docs/reference/mla.md) */
  DLManagedTensorVersioned *kv_storage; /* nullable; adopted by kvc_cache_create: the layer's page pool in the caller's
                            memory, [>= pages, 2, Hkv, page_size, D] by any strides with innermost 1 (so HND and
                            NHD); index 0 of dim 1 is K, 1 is V. Needs D == Dv. Writable. Neither a tensor nor memory
                            may be given twice: pools may interleave, but not overlap. Its deleter runs once, when the
                            cache and all exported views of it are gone; NULL: the memory outlives them all.
                            docs/reference/storage.md has layouts */
  DLManagedTensorVersioned *k_storage;  /* nullable; adopted; K alone: [>= pages, Hkv, page_size, D] */
  DLManagedTensorVersioned *v_storage;  /* nullable; adopted; V alone: [>= pages, Hkv, page_size, Dv]; with k_storage
                            (MLA: k_storage alone).
                            Storage is of the layer's dtype; that of float8 may be uint8. int8 has none: its pages hold
                            their scales, and the library lays them out */
  const float *k_scales; /* float8: borrowed; [num_scales], each 1e-20..1e20; nullable if num_scales is 0 */
  const float *v_scales; /* the same for V (MLA: NULL, V's are K's) */
  int32_t num_scales;    /* float8: 0 = every scale is 1; 1 = one for all kv heads; num_kv_heads = one each. Else 0 */
  int32_t num_states;    /* recurrent: state tensors of the layer, 1..16. Else 0 */
  const kvc_state_config *states; /* recurrent: borrowed; [num_states], elements states[0].struct_size bytes apart; every
                            field but group is 0 then. Else NULL */
  int32_t latent_dim;    /* MLA: leading dims of the row that are V too, 1..head_dim; else 0 */
  uint32_t reserved;     /* 0 */
} kvc_layer_config;

static inline void kvc_layer_config_init(kvc_layer_config *config) {
  kvc_layer_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

enum kvc_group_kind {
  KVC_GROUP_FULL = 0,    /* a query at position p sees keys 0..p; memory grows with the sequence */
  KVC_GROUP_SLIDING = 1, /* it sees keys p-w+1..p (w = window_tokens, itself included); pages wholly behind
                            the window and the rollback margin are freed when a forward ends */
  KVC_GROUP_CHUNKED = 2, /* it sees keys j <= p of its own chunk: j / c == p / c (c = chunk_tokens, integer division);
                            pages of earlier chunks are freed likewise */
  KVC_GROUP_MLA = 3,     /* multi-head latent attention: sees what a full group sees. A token is one row [latent | rotary]
                            for all heads, stored once: K is the row (num_kv_heads 1, head_dim its width), V its first
                            latent_dim dims */
  KVC_GROUP_CROSS = 4,   /* it sees all keys of the sequence's encoder sequence (image, audio, source text), which has a
                            length of its own and is appended in forwards of its own (kvc_batch.encoder_group). Forks
                            share it, truncate leaves it. Layers have KVC_ROPE_NONE */
  KVC_GROUP_RECURRENT = 5 /* no keys: each layer keeps state tensors of fixed size a sequence, which a forward loads and
                            stores (kvc_forward_load_state). A page is one state of all layers of the group */
};

typedef struct kvc_group_config {
  uint32_t struct_size;
  int32_t kind;           /* KVC_GROUP_* */
  int64_t window_tokens;  /* sliding: w, 1..2^30; else 0 */
  int64_t chunk_tokens;   /* chunked: c, 1..2^30, no multiple of the page size needed; else 0 */
  int64_t num_pages;      /* pages of this group's pool, below 2^31; 0 = from the cache's capacity. Recurrent: each
                             sequence has one, and one more in an open forward, for each checkpoint, and while it has an
                             uncommitted tree; 0 = max_sequences * (2 + max_checkpoints) */
} kvc_group_config;

static inline void kvc_group_config_init(kvc_group_config *config) {
  kvc_group_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

enum kvc_cache_flags {
  KVC_CACHE_NO_ROLLBACK = 1, /* keep nothing behind windows: rollback_tokens is 0, not its default */
  KVC_CACHE_STREAMING = 2,   /* sequences may get streaming windows (kvc_seq_set_streaming): bookkeeping for lists that go
                                on for ever, and scratch for two parts of each query. Needs a full or MLA group */
  /* Rows of a forward that begin with the same pages (forks) are attended there as one group where a cost model says that
   * it pays: the shared part is read once, with all their queries, and merged with each row's rest. Full groups, rows with
   * few new tokens. Results agree within rounding; kvc_forward_describe counts the groups. These two, of which at most
   * one is set, decide it for all: for comparisons and tests. (Hydragen; FlashInfer's cascade.) */
  KVC_CACHE_NO_PREFIX_SHARING = 4,  /* never: each row reads all of its keys */
  KVC_CACHE_SHARE_ALL_PREFIXES = 8, /* wherever rows have a page in common, whatever it costs */
  /* A query's output has the same bits whatever else is in the batch, however its tokens were cut into steps, on any number of
   * threads, with any page ids, forked or not, on one SIMD target. States over every 1,024 keys are computed apart by one
   * kernel and merged left to right; prefixes are not attended together. Decoding with it takes longer: docs/internals/cpu.md
   * has how much. */
  KVC_CACHE_DETERMINISTIC = 16
};

enum kvc_storage {
  KVC_STORAGE_OWN = 0, /* the cache has page pools for every layer: in memory of its own, or the caller's
                          (kvc_layer_config.kv_storage) */
  KVC_STORAGE_NONE = 1 /* tables only, for engines with pools and kernels of their own: sequences, pages and steps as
                          always, but no K and V. Copies of tokens are handed over (kvc_cache_take_copies); append,
                          attend, exports and imports are UNSUPPORTED. Layers say what a page takes (one a group is
                          enough). Recurrent states stay in the cache: kvc_forward_load_state works */
};

typedef struct kvc_cache_config {
  uint32_t struct_size;
  uint32_t flags;                 /* KVC_CACHE_* */
  const kvc_layer_config *layers; /* borrowed; [num_layers], elements layers[0].struct_size bytes apart */
  const kvc_group_config *groups; /* borrowed; [num_groups], likewise; nullable: one full group */
  int32_t num_layers;             /* 1..4096 */
  int32_t num_groups;             /* 1..64; 0 with groups == NULL */
  int32_t page_size;              /* tokens a page, 1..65536; 0 = 16 */
  int32_t max_sequences;          /* 1..1048575; 0 = 64 */
  int32_t max_batch_tokens;       /* tokens of one forward, 1..1048576; 0 = 2048 */
  int32_t max_open_forwards;      /* 1..64; 0 = 2 */
  int64_t rollback_tokens;        /* kept behind every window so that up to so many tokens can be dropped again
                                     (rejected drafts) by truncate or fork, at most 2^30; 0 = max_tree_nodes. Behind
                                     streaming windows too */
  /* Capacity: at most one of the three; none only if every group but recurrent ones sets num_pages. It sizes
   * full, MLA and cross groups;
   * a sliding or chunked group gets max_sequences times the peak of one sequence (window or chunk + rollback + the
   * larger of max_batch_tokens and max_tree_nodes + 1 page), but never more than the capacity. */
  int64_t capacity_tokens;        /* tokens a full or MLA group holds, rounded up to pages */
  int64_t capacity_pages;         /* the same in pages */
  int64_t capacity_bytes;         /* all pools of all layers together fit in so many bytes */
  int32_t max_tree_nodes;         /* uncommitted tree nodes of a sequence, all its rounds together, 1..1024; 0 = 64 */
  int32_t max_checkpoints;        /* kvc_seq_checkpoint of one sequence, 1..1024; 0 = 1. Only with a recurrent group */
  int32_t storage;                /* KVC_STORAGE_* */
  uint32_t reserved;              /* 0 */
} kvc_cache_config;

static inline void kvc_cache_config_init(kvc_cache_config *config) {
  kvc_cache_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

/* What a cache of this config would need. */
typedef struct kvc_estimate {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t num_pages;         /* pages (all groups: their sum) */
  int64_t page_bytes;        /* bytes of one page in all layers of the group (all groups: 0) */
  int64_t token_bytes;       /* bytes one token takes in all layers (of the group) while it is stored */
  int64_t storage_bytes;     /* pools; with KVC_STORAGE_NONE those of recurrent groups alone */
  int64_t bookkeeping_bytes; /* host memory for page tables and sequences */
  int64_t scratch_bytes;     /* host and device memory for the largest batches (all groups only) */
} kvc_estimate;

static inline void kvc_estimate_init(kvc_estimate *estimate) {
  kvc_estimate zero = KVC_ZERO_STRUCT;
  *estimate = zero;
  estimate->struct_size = (uint32_t)sizeof(zero);
}

/* Says what kvc_cache_create would allocate, or why it would refuse; allocates no pool and adopts nothing.
 *   group     group index, or -1 for the whole cache
 *   estimate  filled
 * Errors: as kvc_cache_create, without OUT_OF_MEMORY for pools. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_estimate(kvc_context *context, const kvc_cache_config *config, int32_t group,
                                      kvc_estimate *estimate, kvc_error *error);

/* Creates a cache: reserves the pools of every layer and all bookkeeping (nothing grows later).
 *   config   borrowed, arrays included; storages in it are adopted
 *   cache    returned; released by kvc_cache_destroy
 * Errors: INVALID_ARGUMENT, OUT_OF_RANGE, UNSUPPORTED, DTYPE, DEVICE, RANK, SHAPE, STRIDE, DUPLICATE (a storage given
 * twice, or two that overlap), with the layer or group in error->index (a group's in error->group too); STRUCT_SIZE (with the
 * element), OUT_OF_MEMORY.
 * Threads: any. Pools are zeroed on first touch. Since 0.1. */
KVC_API kvc_status kvc_cache_create(kvc_context *context, const kvc_cache_config *config, kvc_cache **cache,
                                    kvc_error *error);

/* Aborts open forwards and releases the cache; pools live on while exported views of them do.
 * NULL does nothing. Threads: any, once, and no other call may be inside the cache. Since 0.1. */
KVC_API void kvc_cache_destroy(kvc_cache *cache);

/* Removes every sequence; ids become stale, pool memory stays reserved.
 * Errors: BUSY (a forward is open). Threads: any. Costs what it frees. Since 0.1. */
KVC_API kvc_status kvc_cache_clear(kvc_cache *cache, kvc_error *error);

/* ============================================================================================
 * 6  Sequences
 * ============================================================================================ */

/* Id of a sequence: opaque, never 0, below 2^63. A stale id is an error, never undefined behaviour. */
typedef uint64_t kvc_seq;

/* Adds n empty sequences; takes no page.
 *   sequences  [n], filled
 * Errors: TOO_MANY_SEQUENCES. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_add(kvc_cache *cache, int64_t n, kvc_seq *sequences, kvc_error *error);

/* Removes n sequences and frees every page that no other sequence shares. A sequence in an open forward is
 * gone for every later call, and its pages are freed when that forward closes.
 *   sequences  [n], distinct, any order
 * Errors (nothing removed): STALE_ID, DUPLICATE with the index. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_remove(kvc_cache *cache, int64_t n, const kvc_seq *sequences, kvc_error *error);

/* Forks n children: child i holds the first positions[i] tokens of parents[i], sharing every whole page and
 * copying a partial last one. A parent with an uncommitted tree is refused. Atomic over the arrays. Costs
 * the logarithm of the length, not the length.
 *   parents    [n]; one parent may occur often
 *   positions  nullable: all at the end. [n]; -1 = the parent's length, 0 = empty
 *   children   [n], filled
 *   stream     the device's stream for page copies; NULL on the CPU
 * Errors: STALE_ID, BUSY, UNCOMMITTED, OUT_OF_RANGE, EVICTED (see kvc_seq_nearest_position), TOO_MANY_SEQUENCES,
 * OUT_OF_PAGES (as kvc_forward_begin, of all children), ORDER (KVC_STORAGE_NONE: too many copies wait).
 * Threads: any. Since 0.1. From: persistent vectors; page sharing as in vLLM's PagedAttention. */
KVC_API kvc_status kvc_seq_fork(kvc_cache *cache, int64_t n, const kvc_seq *parents, const int64_t *positions,
                                kvc_seq *children, void *stream, kvc_error *error);

/* Drops the tokens from lengths[i] on, across shared pages too, and every uncommitted tree node. Needs no page: if
 * the new end lies inside a shared page, the next forward that appends copies the kept part of it (and can_fit counts
 * that page).
 *   sequences  [n], distinct
 *   lengths    [n], 0..the sequence's length
 * Errors (nothing truncated): STALE_ID, BUSY, DUPLICATE, OUT_OF_RANGE, EVICTED. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_truncate(kvc_cache *cache, int64_t n, const kvc_seq *sequences, const int64_t *lengths,
                                    kvc_error *error);

/* Lengths in tokens, without the tokens of open forwards and uncommitted tree nodes. O(1) a sequence.
 *   lengths  [n], filled
 * Errors: STALE_ID. Threads: any, also while a forward computes. Since 0.1. */
KVC_API kvc_status kvc_seq_lengths(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *lengths,
                                   kvc_error *error);

/* Page ids of one sequence in one group, in order: entry i holds positions [i * page_size, (i+1) * page_size);
 * -1 where the page was freed behind a window, or between the sinks and the window of a stream. Pages of
 * an open forward and of an uncommitted tree are not included.
 *   pages     nullable if capacity is 0; [capacity], filled
 *   count     nullable: number of entries, also on BUFFER_TOO_SMALL
 * Errors: STALE_ID, OUT_OF_RANGE (group), BUFFER_TOO_SMALL (never for capacity 0). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_pages(kvc_cache *cache, kvc_seq sequence, int32_t group, int32_t *pages, int64_t capacity,
                                 int64_t *count, kvc_error *error);

/* Positions nearest to `position` where fork and truncate work in every group: not in pages freed behind a window,
 * whatever a query there sees; over recurrent state at 0, at checkpoints (kvc_seq_checkpoint) and at the end alone.
 *   position         0..the sequence's length
 *   before           nullable: the largest such position <= position (0 always works)
 *   after            nullable: the smallest such position >= position; -1 = none
 * Errors: STALE_ID, OUT_OF_RANGE. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_nearest_position(kvc_cache *cache, kvc_seq sequence, int64_t position, int64_t *before,
                                            int64_t *after, kvc_error *error);

/* Tokens that each sequence, alone, could append in one forward now: 0..max_batch_tokens; if it has an uncommitted tree,
 * tree nodes. Counts the room in a partial last page, shared pages that must be copied, windows, and pages free in every
 * group.
 *   tokens  [n], filled; 0 for a sequence in an open forward
 * Errors: STALE_ID. Threads: any. O(1) a sequence and group. Since 0.1. */
KVC_API kvc_status kvc_seq_max_append(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *tokens,
                                      kvc_error *error);

enum kvc_streaming_flags {
  KVC_STREAMING_PREFIX_IS_SINK = 1 /* what a sequence holds now are sinks too: s = max(sink_tokens, its length). Not where
                                      the window is 0 */
};

/* Gives n sequences a streaming window, so that they can go on for ever in bounded memory. With s sink tokens and a window
 * w, a query at position p of a full group sees keys j < s and max(s, p-(w-s)+1) <= j <= p: w keys, itself included, for
 * any chunking. Sliding and chunked groups keep their own rules.
 *   Positions  are as if the kept tokens were contiguous, without rotating a key again: attend rotates q at p for the window,
 *              at min(p, w-1) for the sinks, and merges; ALiBi's distances likewise. q that the caller rotates itself
 *              meets its sinks at their true distance. Lengths and positions go on counting every token, to 2^30.
 *   Memory     Pages wholly between the sinks and the window (and the rollback margin) lose this sequence's reference when the
 *              window is set, and when a forward ends. A sequence then holds at most w + rollback_tokens + the tokens of a
 *              step, in two pages more than they fill. Pages of sinks that a later window has no more go with the next page.
 *   Rollback   fork and truncate work within the pages of the sinks, and where the window of the next query is still there
 *              (kvc_seq_nearest_position); elsewhere they are EVICTED.
 * A fork has its parent's window, truncate keeps it, and a new sequence has none.
 *   sequences      [n], distinct
 *   sink_tokens    nullable: 0 of each. [n]: s, 0..2^30
 *   window_tokens  [n]: w, above s, at most 2^30; 0 = the sequence streams no more, and s must be 0
 *   flags          KVC_STREAMING_* or 0
 * Errors (nothing changed): STALE_ID, DUPLICATE, BUSY, UNCOMMITTED, INVALID_ARGUMENT (w <= s; other values), EVICTED (keys
 * that the next query would see are gone), each with the index; UNSUPPORTED (a cache without KVC_CACHE_STREAMING).
 * Threads: any. Costs what it frees. Since 0.1. From: attention sinks as in StreamingLLM (Xiao et al.). */
KVC_API kvc_status kvc_seq_set_streaming(kvc_cache *cache, int64_t n, const kvc_seq *sequences,
                                         const int64_t *sink_tokens, const int64_t *window_tokens, uint32_t flags,
                                         kvc_error *error);

/* Streaming windows of n sequences; 0 and 0 where there is none.
 *   sink_tokens    [n], filled: s, with the prefix that KVC_STREAMING_PREFIX_IS_SINK made part of it
 *   window_tokens  [n], filled: w
 * Errors: STALE_ID. Threads: any, also while a forward computes. O(1) a sequence. Since 0.1. */
KVC_API kvc_status kvc_seq_get_streaming(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *sink_tokens,
                                         int64_t *window_tokens, kvc_error *error);

enum kvc_rope_set { KVC_ROPE_SET_SHORT = 0, KVC_ROPE_SET_LONG = 1 };

/* Chooses which of longrope's factor sets turn the keys and queries of n sequences. A new sequence has the short set, a
 * fork its parent's. Choose the long one when a sequence will pass original_max_position. Where a layer rotates on
 * append, the choice is fixed by the first stored key, and sequences with unlike sets never share a page. Layers that
 * rotate on read go over to the long set by themselves in the step that passes original_max_position.
 *   sequences  [n]
 *   set        KVC_ROPE_SET_*
 * Errors (nothing changed): STALE_ID, BUSY, INVALID_ARGUMENT (set), ORDER (a sequence is not empty, and a layer with
 * longrope rotates on append), UNSUPPORTED (no
 * layer has longrope). Threads: any. Since 0.1. From: LongRoPE, as in Phi-3. */
KVC_API kvc_status kvc_seq_set_rope(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int32_t set,
                                    kvc_error *error);

/* Keeps the recurrent states that n sequences have now, so that fork and truncate work at their present lengths later (as
 * before drafts that may be rejected, or at the end of a prompt that others will share). Costs a reference, no copy; what
 * it keeps stays in its page. Children inherit the checkpoints up to their position; truncate drops those behind it. Of
 * more than max_checkpoints the oldest is dropped.
 *   sequences  [n], distinct
 * Errors (nothing kept): UNSUPPORTED (no recurrent group), STALE_ID, DUPLICATE, BUSY, UNCOMMITTED. Threads: any.
 * Since 0.1. */
KVC_API kvc_status kvc_seq_checkpoint(kvc_cache *cache, int64_t n, const kvc_seq *sequences, kvc_error *error);

/* Lengths of encoder sequences in a cross group, without the tokens of open forwards. O(1) a sequence.
 *   lengths  [n], filled
 * Errors: STALE_ID, OUT_OF_RANGE (group), INVALID_ARGUMENT (no cross group). Threads: any, also while a forward computes.
 * Since 0.1. */
KVC_API kvc_status kvc_seq_encoder_lengths(kvc_cache *cache, int32_t group, int64_t n, const kvc_seq *sequences,
                                           int64_t *lengths, kvc_error *error);

/* ============================================================================================
 * 7  Forward: one step of the model over a batch
 * ============================================================================================ */

/* Id of an open forward: opaque, never 0, below 2^63. */
typedef uint64_t kvc_forward;

enum kvc_tree_parent {
  KVC_TREE_ROOT = -1, /* the node follows the sequence's last committed token */
  KVC_TREE_NONE = -2  /* no node: its row appends plain tokens */
};

typedef struct kvc_batch {
  uint32_t struct_size;
  int32_t num_sequences;          /* rows of the batch, 0..max_sequences */
  const kvc_seq *sequences;       /* [num_sequences], distinct; 0 = an inert row: its tokens are padding */
  const int32_t *append_lengths;  /* [num_sequences], new tokens of each row, >= 1; an inert row may have 0 */
  int32_t layer_begin;            /* the forward covers layers [layer_begin, layer_end); both 0 = all */
  int32_t layer_end;
  const int32_t *tree_parents;    /* nullable: no trees. [T]: of each new token its parent node or KVC_TREE_ROOT, or in
                                     all tokens of a plain row KVC_TREE_NONE (see kvc_seq_commit); ignored in inert rows */
  const int32_t *span_ids;        /* nullable: no spans. [T]: tokens that stand next to each other in one row and have the
                                     same id > 0 see each other, later ones too (an image within a text); 0 = none.
                                     Windows and chunks begin where they do. A span is whole within one forward. Ignored
                                     in inert rows */
  int32_t encoder_group;          /* 0 = the tokens are the sequences' own. 1 + the index of a cross group: they are of
                                     the encoder sequences in that group, at whose ends they are appended. Its layers
                                     take kvc_forward_append alone; lengths of the sequences themselves stay */
  uint32_t reserved;              /* 0 */
  kvc_forward graph;              /* 0 = none: the forward gets an id of its own. Else of kvc_graph_create: the forward is
                                     open in that graph, and has its id */
} kvc_batch;

static inline void kvc_batch_init(kvc_batch *batch) {
  kvc_batch zero = KVC_ZERO_STRUCT;
  *batch = zero;
  batch->struct_size = (uint32_t)sizeof(zero);
}

/* Says whether kvc_forward_begin would succeed now, without any effect: the same status and numbers.
 * Errors: as kvc_forward_begin. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_can_fit(kvc_cache *cache, const kvc_batch *batch, kvc_error *error);

/* Begins a step: checks the batch, reserves every page for its new tokens in every group, plans the work.
 * The T rows of q, k and v are the rows of the batch one after another, append_lengths[i] tokens each.
 * Everything is reserved, or nothing changed. Costs what the batch and its new pages cost, not the context.
 *   batch    borrowed, arrays included
 *   stream   the device's stream for the whole forward; NULL on the CPU
 *   forward  filled; closed by kvc_forward_end or kvc_forward_abort
 * Errors: STALE_ID, DUPLICATE, BUSY (also: a forward is open in the graph), UNCOMMITTED (plain or encoder tokens of a sequence
 * with a tree), TREE_TOO_LARGE, INVALID_ARGUMENT (each with the row in error->index; an encoder_group that is no cross group, or
 * with trees or spans; a span id below 0, or in a tree), BATCH_TOO_LARGE (for the cache, or for the graph), TOO_MANY_FORWARDS, OUT_OF_PAGES
 * (error->index = the first row that does not fit: those before it do; required and available in pages of error->group over the
 * whole batch), OUT_OF_RANGE (layers; a row that would pass 2^30 tokens), ORDER (KVC_STORAGE_NONE: copies wait to be taken).
 * Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_begin(kvc_cache *cache, const kvc_batch *batch, void *stream, kvc_forward *forward,
                                     kvc_error *error);

enum kvc_append_flags {
  KVC_APPEND_AS_STORED = 1 /* k is already as the cache stores it: do not rotate it. Of a quantised layer k and v may be
                              stored bytes then, both: of its dtype or uint8 */
};

typedef struct kvc_append_args {
  uint32_t struct_size;
  uint32_t flags;     /* KVC_APPEND_* */
  const DLTensor *k;  /* borrowed; [>= T, Hkv, D] float32, float16 or bfloat16; innermost stride 1 */
  const DLTensor *v;  /* borrowed; [>= T, Hkv, Dv] likewise. MLA: NULL, and k has whole rows; or the latent parts
                         [>= T, 1, latent_dim], and k the rotary ones [>= T, 1, D - latent_dim] */
  const DLTensor *rope_cos_sin; /* nullable: what the layer's rope fields and the tokens' positions give. Borrowed;
                         [>= T, 2, rope_dim / 2] float32, compact: cos, then sin of each pair's angle, times any
                         attention factor, for positions that only the caller knows (M-RoPE, dynamic NTK: docs/reference/rope.md).
                         Needs KVC_ROPE_ON_APPEND. The layer's attend takes the same table */
  const DLTensor *k_scale; /* borrowed; [>= T, Hkv] float32, with stored bytes of int8: their scales. Else NULL: stored
                              bytes of float8 are taken to be by the layer's scales */
  const DLTensor *v_scale; /* likewise */
} kvc_append_args;

static inline void kvc_append_args_init(kvc_append_args *args) {
  kvc_append_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Stores a layer's new K and V, rounded or quantised to the layer's dtype (and rotated, if the layer says so).
 *   layer  a layer of the forward; each once, in any order
 * Errors: STALE_ID, BUSY, ORDER (appended already), INVALID_ARGUMENT (a layer that reads another's K and V, or is
 * recurrent; a cross layer outside of its encoder_group's forwards, any other within them), CANCELLED, OUT_OF_RANGE, DTYPE,
 * DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED (KVC_STORAGE_NONE). An error of the device itself closes the forward as kvc_forward_abort does.
 * Threads: one at a time for one forward, any between forwards. Since 0.1. */
KVC_API kvc_status kvc_forward_append(kvc_cache *cache, kvc_forward forward, int32_t layer, const kvc_append_args *args,
                                      kvc_error *error);

enum kvc_attend_flags {
  KVC_ATTEND_NON_CAUSAL = 1, /* a query sees every key of its row, the tokens after it too; windows still begin, and
                                chunks begin and end, where they do. Nodes of a tree see their ancestors only */
  KVC_ATTEND_PAST = 2,       /* only keys of earlier steps */
  KVC_ATTEND_SELF = 4        /* only keys of this step's tokens. To compute the two parts apart, call attend twice for a
                                layer, and merge by LSE (kvc_merge_states) */
};

typedef struct kvc_attend_args {
  uint32_t struct_size;
  uint32_t flags;       /* KVC_ATTEND_*; PAST and SELF exclude each other */
  const DLTensor *q;    /* borrowed; [>= T, Hq, D] float32, float16 or bfloat16; innermost stride 1 (MLA: see w_uk) */
  const DLTensor *k;    /* nullable, with v: the layer was appended already, reads another's (kvc_layer_config.kv_layer),
                           or is a cross layer. Borrowed; as kvc_append_args */
  const DLTensor *v;    /* nullable, with k; as kvc_append_args.v (MLA: nullable alone) */
  const DLTensor *out;  /* borrowed, its data is written; [>= T, Hq, Dv], any of the three dtypes. Must not overlap q, k
                           or v. Rows of inert rows and rows from T on are left alone */
  const DLTensor *lse;  /* nullable; borrowed, written; [>= T, Hq] float32: natural-log sum of exponentials of the
                           scores, the sink's included; rows as in out */
  double softmax_scale; /* 1e-30..1e30; 0 = the layer's */
  double softcap;       /* scores become softcap * tanh(score / softcap); 1e-6..1e30; 0 = none */
  const DLTensor *alibi_slopes; /* nullable; borrowed; [Hq] float32: scores get - slope * |p_q - p_k| */
  const DLTensor *sinks; /* nullable; borrowed; [Hq] float32: a logit of each head that takes part in the softmax, without
                            a value, neither scaled nor capped. Of two parts, give it to one */
  const DLTensor *rope_cos_sin; /* nullable; as kvc_append_args.rope_cos_sin, for q, and for k if it is given. UNSUPPORTED
                            in a full group with a sequence longer than its streaming window (in a deterministic cache:
                            with any that has sinks): q turns twice there */
  /* MLA: up-projections of K and V, as a model has them. NULL, both: q and out are in latent space already, [T, Hq, D] and
   * [T, Hq, latent_dim]. Else, R being the rotary dims D - latent_dim: q is [T, Hq, Dn + R], out [T, Hq, Dv], and the
   * library projects. kv_b_proj.weight seen as [Hq, Dn + Dv, latent_dim] holds both: w_uk is its rows 0..Dn-1 of each
   * head, w_uv the rest. */
  const DLTensor *w_uk; /* nullable, with w_uv. Borrowed; [Hq, Dn, latent_dim] float32, float16 or bfloat16; innermost
                           stride 1; Dn 1..1024 - R */
  const DLTensor *w_uv; /* nullable, with w_uk. Borrowed; [Hq, Dv, latent_dim] likewise; Dv 1..1024 */
} kvc_attend_args;

static inline void kvc_attend_args_init(kvc_attend_args *args) {
  kvc_attend_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Stores a layer's new K and V and computes out = softmax(scores, masked) V over all that is stored, the new tokens
 * included. Scores are scale * q.k, then softcap, then ALiBi; positions are absolute, in partial calls too. Scores, sums
 * and partial outputs are float32, weights too or, unless q is float32, rounded to 16 bits; K and V are always read as
 * rounded for storage. A row that sees nothing has output 0 and LSE -inf (with a sink: the sink's logit).
 *   layer  a layer of the forward; each once, or once with PAST and once with SELF; in any order
 * Errors: as kvc_forward_append; ORDER also without k and v before kvc_forward_append (PAST needs neither), and for a
 * second attend of the same part, and in a forward of encoder tokens; OUT_OF_RANGE (softmax_scale, softcap),
 * INVALID_ARGUMENT (PAST with SELF; either of a cross layer, which is all past; a recurrent layer; out or lse has an
 * element of the other, or of q, k or v).
 * CANCELLED within one work item of kvc_forward_cancel: out is then undefined, k and v may have been stored.
 * Threads: one at a time for one forward, any between forwards. Since 0.1.
 * With up-projections an MLA layer absorbs them into q and out where queries are few, and decompresses K and V of the new
 * tokens where they are many, each the same within rounding (docs/reference/mla.md).
 * From: latent attention and its absorbed form as in DeepSeek-V2; online softmax as in FlashAttention-2; split-KV and
 * merge by LSE as in Flash-Decoding; softcap as in Gemma 2, slopes as in ALiBi (Press et al.), sinks as in gpt-oss. */
KVC_API kvc_status kvc_forward_attend(kvc_cache *cache, kvc_forward forward, int32_t layer, const kvc_attend_args *args,
                                      kvc_error *error);

/* Copies a state tensor of a recurrent layer out of the cache: row i of the tensor becomes the state of the batch's
 * sequence i before this forward, zeros if it is empty. Rows of inert rows are left alone. Any number of times.
 *   layer   a recurrent layer of the forward
 *   state   0..num_states - 1
 *   tensor  borrowed, its data is written; [>= num_sequences, shape...] of the state's dtype; rows by any stride, each compact
 * Errors: STALE_ID, BUSY, CANCELLED, OUT_OF_RANGE (layer, state), INVALID_ARGUMENT (the layer is not recurrent, a
 * forward of encoder tokens), DTYPE, DEVICE, RANK, SHAPE, STRIDE. An error of the device itself closes the forward as
 * kvc_forward_abort does. Threads: one at a time for one forward, any between forwards. Since 0.1. */
KVC_API kvc_status kvc_forward_load_state(kvc_cache *cache, kvc_forward forward, int32_t layer, int32_t state,
                                          const DLTensor *tensor, kvc_error *error);

/* Copies it in: row i becomes the state of the batch's sequence i after this forward, once it ends; aborted, the sequence
 * has the state it had. Every state of every recurrent layer in range is to be stored before kvc_forward_end; stored again,
 * the last one counts.
 *   tensor  borrowed; as kvc_forward_load_state's
 * Errors, threads: as kvc_forward_load_state. Since 0.1. */
KVC_API kvc_status kvc_forward_store_state(kvc_cache *cache, kvc_forward forward, int32_t layer, int32_t state,
                                           const DLTensor *tensor, kvc_error *error);

typedef struct kvc_merge_args {
  uint32_t struct_size;
  int32_t num_parts;                /* 1 or more */
  const DLTensor *const *outputs;   /* [num_parts], borrowed; each [T, H, Dv] float32, innermost stride 1 */
  const DLTensor *const *lses;      /* [num_parts], borrowed; each [T, H] float32 */
  const DLTensor *out;              /* borrowed, written; [T, H, Dv] float32: T, H and Dv are its shape. It may be
                                       outputs[0] itself; must not overlap other parts */
  const DLTensor *lse;              /* nullable; borrowed, written; [T, H] float32; it may be lses[0] itself */
} kvc_merge_args;

static inline void kvc_merge_args_init(kvc_merge_args *args) {
  kvc_merge_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Merges results of attention over disjoint sets of keys, by their LSE, left to right: what attention over all the keys
 * would have given. A part with LSE -inf saw nothing, and its output is not read; of nothing but such parts the result is
 * 0 and -inf. Tensors are on the context's device; parts may have more than T rows.
 *   stream  the device's stream; NULL on the CPU
 * Errors: INVALID_ARGUMENT (num_parts), NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE; error->index = the part.
 * Threads: any. Since 0.1. From: split-KV as in Flash-Decoding; cascade merge as in FlashInfer. */
KVC_API kvc_status kvc_merge_states(kvc_context *context, const kvc_merge_args *args, void *stream, kvc_error *error);

/* Closes a step and keeps its tokens: lengths grow, pages behind windows are freed, removed sequences go. Nodes of trees
 * are kept uncommitted, until kvc_seq_commit.
 * Errors: ORDER (error->index = the first layer in range without its append, but for KVC_STORAGE_NONE, or with a state that
 * was not stored), CANCELLED, BUSY, STALE_ID; the forward stays open. An error of the device itself closes it as
 * kvc_forward_abort does. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_end(kvc_cache *cache, kvc_forward forward, kvc_error *error);

/* Closes a step and drops its tokens: its pages and lengths are given back, everything else is untouched.
 * Errors: BUSY (a call is computing: cancel first), STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_abort(kvc_cache *cache, kvc_forward forward, kvc_error *error);

/* Stops a step, also while it computes on another thread: an attend in progress stops after the work items that run now
 * and returns CANCELLED (or OK, if none was left), and from then on append, attend and end return CANCELLED: only
 * kvc_forward_abort closes the forward. Does not wait.
 * Errors: STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_cancel(kvc_cache *cache, kvc_forward forward, kvc_error *error);

/* Where the rows of an open forward are. Pointers, the tensors' shapes and strides too, are borrowed from the library
 * until the forward closes; of a graph until kvc_graph_destroy, and the arrays have its capacity in place of T and
 * num_sequences, position 0 and last row -1 where the step has nothing. */
typedef struct kvc_forward_info {
  uint32_t struct_size;
  int32_t num_sequences;              /* rows of the batch, inert rows included */
  int64_t num_tokens;                 /* T */
  const int32_t *positions_host;      /* [T]: position of each token in its sequence (tree nodes: length + depth); 0 in
                                         inert rows */
  const int32_t *last_rows_host;      /* [num_sequences]: index in [0, T) of each row's last token; -1 if it has none */
  DLTensor positions;                 /* the same arrays on the context's device, int32 [T] */
  DLTensor last_rows;                 /* int32 [num_sequences] */
} kvc_forward_info;

static inline void kvc_forward_info_init(kvc_forward_info *info) {
  kvc_forward_info zero = KVC_ZERO_STRUCT;
  *info = zero;
  info->struct_size = (uint32_t)sizeof(zero);
}

/* Fills `info` for engines that rotate q and k themselves, or that pick logits.
 * Errors: STALE_ID. Threads: any until the forward closes. Since 0.1. */
KVC_API kvc_status kvc_forward_get_info(kvc_cache *cache, kvc_forward forward, kvc_forward_info *info,
                                        kvc_error *error);

/* Describes what was planned as one JSON object: rows, tokens, and per group the kernels, work items, splits,
 * prefix groups and bytes of K/V that an attend reads.
 *   buffer, capacity, length  as kvc_context_describe
 * Errors: STALE_ID, BUSY, BUFFER_TOO_SMALL. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_describe(kvc_cache *cache, kvc_forward forward, char *buffer, int64_t capacity,
                                        int64_t *length, kvc_error *error);

/* Graph mode, for steps whose calls are recorded once and replayed: by a CUDA graph, or by a compiled program that
 * holds its arguments as constants.
 *
 *   kvc_graph_config config;  kvc_graph_config_init(&config);                  // once
 *   config.max_sequences = config.max_tokens = 64;                             // decode, up to 64 rows
 *   if (kvc_graph_create(cache, &config, &graph, &error)) return report(error.message);
 *   batch.graph = graph;
 *   for (;;) {                                                                 // each step
 *     ... this step's batch.sequences, batch.append_lengths, batch.num_sequences ...
 *     if (kvc_forward_begin(cache, &batch, NULL, &step, &error)) return report(error.message);
 *     replay();        // recorded: the model, with kvc_forward_attend(cache, graph, layer, &args[layer], &error) in it
 *     kvc_forward_end(cache, graph, &error);
 *   }
 *
 *   Ids        A forward in a graph has the graph's id, in every step: whatever takes a forward takes it, and means the one
 *              that is open in the graph. While none is, a replay is stale: such calls return KVC_ERROR_STALE and touch nothing.
 *   Addresses  What kvc_forward_get_info and kvc_forward_tables give is at the same addresses in every step, in shapes of the
 *              graph's capacity. What a step does not use is inert: position 0, slot -1, last row -1, table rows without keys.
 *              Tables are filled by kvc_forward_tables in each step; until then, and between steps, their generation word is 0.
 *   Tensors    of recorded calls have max_tokens rows, those of states max_sequences; rows behind the step's are left alone.
 *   CUDA       Capture append, attend, load_state and store_state between a begin and an end, after such a step that was not
 *              captured; all other calls are outside (ORDER). Layers are run by the replay: end does not ask which.
 *              A replay while no forward is open writes nothing. One stream for all forwards of a graph.
 *
 * A graph has buffers of its own for one forward, which does not count towards max_open_forwards. It serves recordings of any
 * size up to its capacity, so one is enough for a server that records several batch sizes. */
typedef struct kvc_graph_config {
  uint32_t struct_size;
  uint32_t flags;            /* 0 */
  int32_t max_sequences;     /* rows of a step, 1..the cache's max_sequences; 0 = that */
  int32_t max_tokens;        /* tokens of a step, 1..the cache's max_batch_tokens; 0 = that */
  int32_t max_pages_per_row; /* columns of block tables, 1..2^26; 0 = the pages of the group. BRANCHES have their own */
  uint32_t reserved;         /* 0 */
} kvc_graph_config;

static inline void kvc_graph_config_init(kvc_graph_config *config) {
  kvc_graph_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

/* Makes a graph: the memory that its forwards need, of which kvc_cache_estimate tells the size of one at the cache's limits.
 *   graph  filled
 * Errors: OUT_OF_RANGE, UNSUPPORTED (flags, reserved), OUT_OF_MEMORY, TOO_MANY_FORWARDS (64 graphs exist). Threads: any.
 * Since 0.1. */
KVC_API kvc_status kvc_graph_create(kvc_cache *cache, const kvc_graph_config *config, kvc_forward *graph,
                                    kvc_error *error);

/* Frees it, and what was borrowed from it. kvc_cache_destroy frees the others.
 * Errors: STALE_ID (no graph of this cache), BUSY (a forward is open in it: end or abort it). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_graph_destroy(kvc_cache *cache, kvc_forward graph, kvc_error *error);

/* Token trees, for speculative decoding: one step computes many possible continuations, and the accepted path is kept.
 *
 *   //   0        drafted after the sequence's last token, most likely first
 *   //  1 2
 *   // 3 4 5
 *   int32_t num_nodes = 6, parents[6] = {KVC_TREE_ROOT, 0, 0, 1, 1, 2};
 *   batch.sequences = &seq;  batch.num_sequences = 1;
 *   batch.append_lengths = &num_nodes;  batch.tree_parents = parents;
 *   if (kvc_forward_begin(cache, &batch, NULL, &step, &error)) return report(error.message);
 *   ...                                        // attend in every layer: 6 rows, each sees the sequence and its ancestors
 *   kvc_forward_end(cache, step, &error);
 *   int32_t leaf = deepest_accepted(logits);   // say 4: its path 0, 1, 4 is kept, and the length grows by 3
 *   kvc_seq_commit(cache, 1, &seq, &leaf, NULL, &error);
 *
 * Nodes of a sequence are counted from 0 in the order in which they came, through all steps since its last commit: a later
 * step may go on with them (its first node is kvc_seq_tree_nodes). A parent comes before its children; several roots are
 * allowed, and any node may be committed. A node's position is the sequence's length + its depth (0 for a root), and RoPE,
 * windows and biases go by it. A sequence with uncommitted nodes refuses forks and plain appends (UNCOMMITTED), and frees
 * nothing behind windows until it is committed: a rejected tree costs no recompute. Aborting a step drops its nodes alone.
 * Over recurrent state trees are chains, and are kept whole or dropped, as no state between their nodes is kept. Where
 * the first few of a chain are accepted, drop it (-1) and append those as plain tokens. */

/* Keeps the path from a root to node leaves[i] as tokens of sequences[i], and drops its other uncommitted nodes. Takes any
 * sequences with uncommitted nodes, in any order, each with a leaf of its own; atomic over the arrays. Moves K and V of kept
 * nodes that do not lie in order yet; needs no page. An error of the device itself leaves the nodes' K and V undefined:
 * what remains is to drop them (-1).
 *   sequences  [n], distinct
 *   leaves     [n]: a node, 0..kvc_seq_tree_nodes - 1; -1 = drop all
 *   stream     as kvc_seq_fork
 * Errors (nothing committed): STALE_ID, DUPLICATE, BUSY, ORDER (no uncommitted nodes; as kvc_seq_fork), OUT_OF_RANGE,
 * EVICTED (a node in the middle of a chain over recurrent state: see above), each with the index.
 * Threads: any. Costs what it moves and frees. Since 0.1. From: tree attention as in SpecInfer and Medusa. */
KVC_API kvc_status kvc_seq_commit(kvc_cache *cache, int64_t n, const kvc_seq *sequences, const int32_t *leaves,
                                  void *stream, kvc_error *error);

/* Numbers of uncommitted tree nodes, without those of open forwards. O(1) a sequence.
 *   nodes  [n], filled
 * Errors: STALE_ID. Threads: any, also while a forward computes. Since 0.1. */
KVC_API kvc_status kvc_seq_tree_nodes(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int32_t *nodes,
                                      kvc_error *error);

/* ============================================================================================
 * 8  Tensors: views, exports, imports
 * ============================================================================================ */

enum kvc_pool {
  KVC_POOL_KV = 0, /* K and V together: [pages, 2, Hkv, page_size, D]; only if they are stored so */
  KVC_POOL_K = 1,  /* [pages, Hkv, page_size, D] */
  KVC_POOL_V = 2,  /* [pages, Hkv, page_size, Dv]; MLA: the leading dims of KVC_POOL_K */
  KVC_POOL_K_SCALE = 3, /* float32: [pages, Hkv, page_size] of int8, [Hkv] of float8 (ones if none were given) */
  KVC_POOL_V_SCALE = 4
};
enum kvc_pool_flags {
  KVC_POOL_WRITABLE = 1 /* without it the view carries DLPack's READ_ONLY flag */
};

/* A view of a layer's page pool, no copy. It keeps the memory alive, not the contents: pages are reused.
 * It has the layer's dtype; float8 comes as uint8, which every DLPack consumer knows. What is enqueued on the stream behind
 * this call sees what the cache's calls before it stored; what the cache does later waits for none of it.
 *   pool    KVC_POOL_*
 *   flags   KVC_POOL_WRITABLE or 0
 *   tensor  returned; released by its deleter, on any thread, also after kvc_cache_destroy
 *   stream  as kvc_seq_fork
 * Errors: OUT_OF_RANGE (layer), INVALID_ARGUMENT, UNSUPPORTED (KVC_POOL_KV of pools stored apart, a recurrent layer,
 * scales of a layer that is not quantised, writable scales of float8, KVC_STORAGE_NONE), OUT_OF_MEMORY.
 * Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_export_pool(kvc_cache *cache, int32_t layer, int32_t pool, uint32_t flags,
                                         DLManagedTensorVersioned **tensor, void *stream, kvc_error *error);

enum kvc_export_parts {
  KVC_EXPORT_K = 1,
  KVC_EXPORT_V = 2,
  KVC_EXPORT_K_SCALE = 4, /* only of a quantised layer */
  KVC_EXPORT_V_SCALE = 8
};

typedef struct kvc_export_args {
  uint32_t struct_size;
  int32_t layer;
  uint32_t parts;         /* KVC_EXPORT_*; 0 = all that the layer has (MLA: K and its scales, of which V is a part) */
  uint32_t reserved;      /* 0 */
  int64_t position_begin; /* tokens [position_begin, position_end) of the sequence */
  int64_t position_end;   /* 0 = the sequence's length (so [0, 0) cannot be asked for). Cross layers: of the
                             encoder sequence, as position_begin */
} kvc_export_args;

static inline void kvc_export_args_init(kvc_export_args *args) {
  kvc_export_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* What an export returned: NULL where it was not wanted. Each is released by its deleter. */
typedef struct kvc_exported {
  uint32_t struct_size;
  uint32_t reserved;
  DLManagedTensorVersioned *k;       /* [tokens, Hkv, D] of the layer's dtype (float8: uint8) */
  DLManagedTensorVersioned *v;       /* [tokens, Hkv, Dv] */
  DLManagedTensorVersioned *k_scale; /* float32, what k is to be multiplied by: [tokens, Hkv] of int8, [Hkv] of float8 */
  DLManagedTensorVersioned *v_scale;
} kvc_exported;

static inline void kvc_exported_init(kvc_exported *exported) {
  kvc_exported zero = KVC_ZERO_STRUCT;
  *exported = zero;
  exported->struct_size = (uint32_t)sizeof(zero);
}

/* Copies K and V of one layer of one sequence into dense tensors, as stored (rotated, rounded or quantised).
 *   exported  filled; its tensors are returned, 256-byte aligned
 *   stream    as kvc_seq_fork
 * Errors: STALE_ID, BUSY (the sequence is in an open forward, or 32 exports run already), OUT_OF_RANGE (uncommitted
 * tree nodes cannot be exported), EVICTED (keys of the range are gone), UNSUPPORTED (scales of a layer without, a recurrent
 * layer, KVC_STORAGE_NONE). Threads: any. The copy runs outside the cache's lock and holds the sequence's pages
 * meanwhile: for page ids that are equal on all ranks, change the cache only when it has returned. Since 0.1. */
KVC_API kvc_status kvc_seq_export(kvc_cache *cache, kvc_seq sequence, const kvc_export_args *args,
                                  kvc_exported *exported, void *stream, kvc_error *error);

enum kvc_import_flags {
  KVC_IMPORT_AS_STORED = 1 /* k is as exported, and k and v may be stored bytes: as KVC_APPEND_AS_STORED */
};

typedef struct kvc_import_args {
  uint32_t struct_size;
  uint32_t flags;           /* KVC_IMPORT_* */
  int32_t num_layers;       /* all layers of the cache */
  uint32_t reserved;        /* 0 */
  const DLTensor *const *k; /* [num_layers], each [T, Hkv, D] of that layer; T the same in all, 1..max_batch_tokens. NULL
                               for a layer that reads another's (kvc_layer_config.kv_layer) or is a cross layer; v likewise */
  const DLTensor *const *v; /* [num_layers], each [T, Hkv, Dv], or as kvc_append_args.v. Nullable if every layer is MLA */
  const DLTensor *const *k_scale; /* nullable: none. [num_layers], each as kvc_append_args.k_scale, NULL where none */
  const DLTensor *const *v_scale; /* likewise */
} kvc_import_args;

static inline void kvc_import_args_init(kvc_import_args *args) {
  kvc_import_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Appends T tokens of dense K and V to a sequence in every layer, as kvc_forward_append would: with KVC_IMPORT_AS_STORED
 * the inverse of kvc_seq_export for a sequence of which nothing was freed behind a window yet (rotated keys of longrope: give
 * it the same set first, kvc_seq_set_rope). A forward of its own: one must be free (max_open_forwards).
 *   args    borrowed, tensors included
 *   stream  as kvc_seq_fork
 * Errors: those of kvc_forward_begin, and those of kvc_forward_append with error->index = the layer; UNSUPPORTED with a
 * recurrent group (there: a forward, with KVC_APPEND_AS_STORED and kvc_forward_store_state), with cross groups alone, and with
 * KVC_STORAGE_NONE.
 * Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_import(kvc_cache *cache, kvc_seq sequence, const kvc_import_args *args, void *stream,
                                  kvc_error *error);

/* Copies that a cache with KVC_STORAGE_NONE leaves to the engine, which makes them in its own pools:
 *
 *   config.storage = KVC_STORAGE_NONE;                       // page ids and tables, no K and V
 *   ...
 *   kvc_seq_fork(cache, n, parents, positions, children, NULL, &error);
 *   if (kvc_cache_take_copies(cache, copies, sizeof copies[0], CAPACITY, &num_copies, &error)) return report(error.message);
 *   copy_in_my_pools(copies, num_copies);                    // one after another, in each layer of copies[i].group
 *   if (kvc_forward_begin(cache, &batch, NULL, &step, &error)) return report(error.message);
 *   ... kvc_cache_take_copies, copy_in_my_pools ...          // begin replaces a shared last page by a copy
 *   ... store the new tokens, attend ...
 *   kvc_forward_end(cache, step, &error);
 *
 * A fork queues a copy of a partial last page, begin one of a last page that is shared, a commit those that bring the kept
 * nodes in order; at most one a sequence and group, but for a commit's. Nothing else moves tokens. What must hold:
 *   Order   Copies are right one after another, in the order in which they come. A fork's and a commit's are made before the
 *           next step stores or reads anything, begin's before its own step reads.
 *   Taking  kvc_forward_begin is refused (ORDER) while copies of earlier calls wait, so that nothing overwrites what they
 *           read. kvc_seq_fork and kvc_seq_commit are refused once max_sequences * num_groups of them wait.
 *   Abort   drops those of its own step that were not taken; kvc_cache_clear drops all.
 * The layout of this struct is frozen. */
typedef struct kvc_copy {
  int64_t source_slot; /* first slot to read; count slots from there on are in one page */
  int64_t target_slot; /* first slot to write; likewise. Of a commit the two may overlap, target_slot below source_slot:
                          copy as memmove does */
  int32_t group;
  int32_t count;       /* tokens, >= 1 */
} kvc_copy;

/* Hands over all copies that wait, and forgets them.
 *   copies     nullable if capacity is 0; [capacity], filled, elements item_size bytes apart
 *   item_size  sizeof(kvc_copy)
 *   count      how many there are, also on BUFFER_TOO_SMALL; with capacity 0 they go on waiting
 * Errors: BUFFER_TOO_SMALL (never for capacity 0; nothing was taken), STRUCT_SIZE (item_size). A cache with storage has
 * none. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_take_copies(kvc_cache *cache, kvc_copy *copies, uint32_t item_size, int64_t capacity,
                                         int64_t *count, kvc_error *error);

/* ============================================================================================
 * 9  Statistics
 * ============================================================================================ */

typedef struct kvc_stats {
  uint32_t struct_size;
  int32_t num_sequences;       /* sequences that exist */
  int64_t pages_total;         /* pages of the group (whole cache: of all groups) */
  int64_t pages_used;          /* pages with at least one reference */
  int64_t pages_free;
  int64_t pages_shared;        /* used pages that belong to two or more sequences */
  int64_t pages_peak;          /* most pages ever used at once since create */
  int64_t tokens_held;         /* tokens stored, a shared one counted once (whole cache: the largest group's) */
  int64_t tokens_shared;       /* of those, tokens that belong to two or more sequences */
  int64_t tokens_logical;      /* sum of the sequences' lengths: what a cache without sharing would hold */
  int64_t fragmentation_bytes; /* bytes of used pages that hold no token */
  int64_t storage_bytes;       /* bytes of the pools; as kvc_estimate.storage_bytes */
} kvc_stats;

static inline void kvc_stats_init(kvc_stats *stats) {
  kvc_stats zero = KVC_ZERO_STRUCT;
  *stats = zero;
  stats->struct_size = (uint32_t)sizeof(zero);
}

/* Counts of one group or of the whole cache. Pages of open forwards and uncommitted trees count as used, their tokens
 * not as held.
 *   group  group index, or -1 for the whole cache
 *   stats  filled
 * Errors: OUT_OF_RANGE. Threads: any. Walks the page tables in use under the cache's lock, microseconds a thousand pages:
 * for dashboards, not for every step (there: kvc_cache_can_fit, kvc_seq_max_append). Since 0.1. */
KVC_API kvc_status kvc_cache_stats(kvc_cache *cache, int32_t group, kvc_stats *stats, kvc_error *error);

/* ============================================================================================
 * 10  Stateless calls: attention over a cache of the caller's own
 * ============================================================================================ */

/* For engines that keep K and V in tensors of their own: no kvc_cache is needed, only a context. A decode step over a paged
 * cache:
 *
 *   kvc_flash_attn_args args;  kvc_flash_attn_args_init(&args);
 *   args.q = &q;  args.k = &k;  args.v = &v;  args.out = &out;           // of the new tokens, [B, 1, heads, dims]
 *   args.k_cache = &k_cache;  args.v_cache = &v_cache;                   // [pages, page_size, Hkv, dims]
 *   args.cache_seqlens = &lengths;  args.block_table = &table;           // int32 [B], [B, max_pages]
 *   args.flags = KVC_FLASH_ATTN_CAUSAL;
 *   if (kvc_flash_attn_with_kvcache(context, &args, NULL, &error)) return report(error.message);
 *
 * More letters: B rows (sequences) of a call, Sq and Sn queries and new tokens of a row, Tq and Tn those of all rows. Tensors are on
 * the context's device and borrowed. Index tensors (lengths, offsets, cache rows, slots, block_table) are int32, by any stride:
 * 0 means one value for all. On a GPU those of a call are all on the host, where every value is checked, or all on the device
 * (single numbers may be the host's): then nothing is read back, uploaded or waited for, work is cut by the capacity that
 * shapes say, and a call that is captured in a graph does at each replay what its tensors hold then. A row of which a value
 * there is out of its range is left out: nothing of it is stored, out keeps what it had; page ids that are read are
 * checked only with KVC_CONTEXT_VALIDATE, which also says what was bad. */

enum kvc_flash_attn_flags {
  KVC_FLASH_ATTN_CAUSAL = 1,             /* a query sees no later key: window_right is 0 */
  KVC_FLASH_ATTN_ROTARY_INTERLEAVED = 2, /* rotated pairs are dims 2i, 2i+1; without: i, i + rotary_dim/2 */
  KVC_FLASH_ATTN_WINDOW_LEFT = 4,        /* window_left counts; without, a query sees everything before it */
  KVC_FLASH_ATTN_WINDOW_RIGHT = 8        /* window_right counts; without, a query sees everything after it */
};

typedef struct kvc_flash_attn_args {
  uint32_t struct_size;
  uint32_t flags;          /* KVC_FLASH_ATTN_* */
  const DLTensor *q;       /* [B, Sq, Hq, D], or with cu_seqlens_q [>= Tq, Hq, D]; float32, float16 or bfloat16, or without
                              rotary also float8. Of this and all tensors below with dims last: innermost stride 1 */
  const DLTensor *k_cache; /* [pages, page_size, Hkv, D] with block_table, else [cache rows, capacity, Hkv, D]; float32,
                              float16, bfloat16, float8_e4m3fn or float8_e5m2, by any strides (a cache in HND order is a
                              transposed view). Written if k is given. Any page size, any D and Dv up to 1024 */
  const DLTensor *v_cache; /* [likewise, Dv], of the same dtype. The two may be views into one buffer, of different elements */
  const DLTensor *k;       /* nullable, with v: nothing is appended. [B, Sn, Hkv, D], or with cu_seqlens_k_new
                              [>= Tn, Hkv, D]: stored behind each row's cached tokens before anything attends. float32, float16,
                              bfloat16, or of the cache's dtype as it is */
  const DLTensor *v;       /* nullable, with k; [likewise, Dv] */
  const DLTensor *qv;      /* nullable; as q, of its dtype, with Dv for D: scores are q.k + qv.v (absorbed latent attention: v_cache
                              has the latent rows, k_cache their rotary parts). D + Dv <= 1024. Fast where Hkv is 1 and a row of k_cache
                              is stored right behind that of v_cache */
  const DLTensor *out;     /* written; [B, Sq, Hq, Dv] or [>= Tq, Hq, Dv]; float32, float16 or bfloat16 */
  const DLTensor *softmax_lse;  /* nullable; written; [B, Hq, Sq], or with cu_seqlens_q [Hq, >= Tq], float32: natural-log sum of
                              exponentials of the scores, the sink's included */
  const DLTensor *cache_seqlens;     /* [B], or of rank 0: tokens in each row's cache, without the new ones; this call does not
                              advance it. Nullable, without k: the cache's whole capacity */
  const DLTensor *seqused_k;         /* nullable: the other name of cache_seqlens; only one of them may be given */
  const DLTensor *cache_batch_idx;   /* nullable: row b's cache is cache row b. [B]: which one (with block_table: which row of
                              that); none twice if k is given */
  const DLTensor *cache_leftpad;     /* nullable: 0. [B]: first valid key of each row, at most cache_seqlens */
  const DLTensor *block_table;       /* nullable: not paged. [rows, max_pages], columns by stride 1: page ids in order. Entries of
                              which nothing is read or written may be anything, -1 for example */
  const DLTensor *cu_seqlens_q;      /* nullable. [B + 1], from 0 on, not descending: row b's queries are
                              [cu_seqlens_q[b], cu_seqlens_q[b+1]) */
  const DLTensor *cu_seqlens_k_new;  /* nullable; [B + 1]: the same of k and v; ignored without k */
  const DLTensor *rotary_cos;        /* nullable, with rotary_sin, only with k. [positions, rotary_dim/2] float32, float16 or
                              bfloat16; the first rotary_dim dims of q and k turn: row b's new keys at cache_seqlens[b],
                              cache_seqlens[b] + 1 ..., its queries likewise; without causal and windows all its queries at
                              cache_seqlens[b]. Left padding does not change that */
  const DLTensor *rotary_sin;
  const DLTensor *rotary_seqlens;    /* nullable; [B]: positions count from here, not from cache_seqlens */
  const DLTensor *q_descale;         /* nullable; [B, Hkv] float32, with float8 q: what q is to be multiplied by */
  const DLTensor *k_descale;         /* nullable; [B, Hkv] float32, with a float8 cache: what k_cache is to be multiplied by. New k
                              that is not float8 is stored as k / k_descale, rounded to nearest even and saturated */
  const DLTensor *v_descale;         /* nullable; [B, Hkv]: the same for v */
  const DLTensor *alibi_slopes;      /* nullable; [Hq] or [B, Hq] float32: scores get - slope * |p_q - p_k| */
  const DLTensor *sinks;             /* nullable; [Hq] float32: a logit of each head that joins the softmax without a value */
  double softmax_scale;    /* 1e-30..1e30; 0 = D^-0.5, with qv (D + Dv)^-0.5 */
  double softcap;          /* scores become softcap * tanh(score / softcap); 1e-6..1e30; 0 = none */
  int32_t window_left;     /* a query at p sees keys from p - window_left on; with its flag; >= 0, else 0 */
  int32_t window_right;    /* ... and up to p + window_right, included; likewise */
  int32_t attention_chunk; /* c > 0: of those, keys j with j/c == p/c, both counted from the first valid key; 0 = none */
  int32_t num_splits;      /* parts that each row's keys are cut into, at most 256, fewer where keys are few; 0 = as it pays */
} kvc_flash_attn_args;

static inline void kvc_flash_attn_args_init(kvc_flash_attn_args *args) {
  kvc_flash_attn_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Appends k and v to the caller's cache, if they are given, and computes attention over it: the contract of
 * flash_attn_with_kvcache of FlashAttention 2 and 3. Of a row with L valid keys, the new ones included, query i of n stands
 * at p = L - n + i (so the last one sees the last key); where p is negative, a causal query sees nothing. Queries that see nothing have
 * output 0 and LSE -inf (with a sink: the sink's logit). Rows of q behind the last cu_seqlens_q are left alone in out.
 *   args    borrowed, tensors included; every value of index tensors that the host reads is checked before anything is written
 *   stream  the device's stream; NULL on the CPU
 * Errors (nothing written): NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED (rotary of float8; qv with
 * k_descale or v_descale; dims), INVALID_ARGUMENT (arguments that contradict each other; what is written overlaps
 * anything else in elements; a cache row twice with k), OUT_OF_RANGE (a page id, index, length or position, with the row
 * in error->index), BUFFER_TOO_SMALL (a cache row that has no room for its new tokens: error->required and available in tokens, error->index = the row).
 * Two rows must not append to one slot through their tables. Threads: any, on unlike caches. Allocates nothing once calls as
 * large as this were made. Since 0.1.
 * From: FlashAttention 2 and 3; paged caches as in vLLM's PagedAttention; the rest as kvc_forward_attend. */
KVC_API kvc_status kvc_flash_attn_with_kvcache(kvc_context *context, const kvc_flash_attn_args *args, void *stream,
                                               kvc_error *error);

enum kvc_append_slots_flags {
  KVC_APPEND_SLOTS_ROTARY_INTERLEAVED = 1 /* as KVC_FLASH_ATTN_ROTARY_INTERLEAVED */
};

typedef struct kvc_append_slots_args {
  uint32_t struct_size;
  uint32_t flags;               /* KVC_APPEND_SLOTS_* */
  const DLTensor *k;            /* [>= T, Hkv, D] float32, float16, bfloat16, or of the cache's dtype as it is; innermost stride
                                   1. Latent form: the rotary parts, [>= T, 1, D - L], not float8 */
  const DLTensor *v;            /* [>= T, Hkv, Dv] likewise. Latent form: the latent parts, [>= T, 1, L], not
                                   float8 */
  const DLTensor *k_cache;      /* written; [pages, page_size, Hkv, D] as kvc_flash_attn_args.k_cache. Latent form:
                                   [pages, page_size, 1, D], rows [latent | rotary] */
  const DLTensor *v_cache;      /* written; [pages, page_size, Hkv, Dv] of the same dtype. NULL: the latent form */
  const DLTensor *slot_mapping; /* int32 or int64 [T]: where each row goes, page * page_size + offset; negative: nowhere */
  const DLTensor *k_scale;      /* nullable: 1. [1] or [Hkv] float32, with a float8 cache: k is stored as k / k_scale, rounded to
                                   nearest even and saturated (latent form: whole rows) */
  const DLTensor *v_scale;      /* nullable; the same for v (latent form: NULL) */
  const DLTensor *rotary_cos;   /* nullable, with rotary_sin and positions; as in kvc_flash_attn_args: the first dims of k turn */
  const DLTensor *rotary_sin;
  const DLTensor *positions;    /* nullable, with rotary_cos; int32 or int64 [T]: the row of cos and sin of each token that is
                                   stored */
} kvc_append_slots_args;

static inline void kvc_append_slots_args_init(kvc_append_slots_args *args) {
  kvc_append_slots_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Stores rows of k and v in a caller's own paged cache, at the slots that the caller says, T being slot_mapping's length. Of two
 * rows with one slot, either stays.
 *   args    borrowed, tensors included; every slot and position that the host reads is checked before anything is written.
 *           slot_mapping and positions on a GPU: a token whose slot is not one of the cache's, or
 *           whose position has no cos and sin, is skipped
 *   stream  the device's stream; NULL on the CPU
 * Errors (nothing written): NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED (rotary of float8 k; dims),
 * INVALID_ARGUMENT (arguments that contradict each other, a cache that overlaps anything else), OUT_OF_RANGE (a slot or
 * position, with the token in error->index). Threads: any, on unlike slots. Since 0.1.
 * From: reshape_and_cache and concat_and_cache_mla of vLLM. */
KVC_API kvc_status kvc_append_slots(kvc_context *context, const kvc_append_slots_args *args, void *stream,
                                    kvc_error *error);

/* ============================================================================================
 * 11  Tables for other kernels
 * ============================================================================================
 * What foreign attention kernels want to know of a step: block tables, lengths, slots. From a cache's forward
 * (kvc_forward_tables), or from what a server with an allocator of its own has (kvc_plan_*). docs/reference/tables.md has a table
 * of the kinds of steps, and what each array means.
 *
 *   kvc_tables tables;  kvc_tables_init(&tables);
 *   if (kvc_forward_tables(cache, step, group, &tables, &error)) return report(error.message);
 *   fa3(q, k_pool, v_pool, &tables.block_table, &tables.cache_seqlens, &tables.cu_seqlens_q, tables.max_seqlen_q, tables.causal);
 *
 * A table names exactly the keys that queries see, so no kernel needs a mask beyond "causal" (and a window, where one
 * row has several queries of a sliding group or of a stream). Where one table cannot, there are two, and attention over
 * them merges by LSE (kvc_merge_states) to the exact result. */

enum kvc_tables_part {
  KVC_TABLES_WHOLE = 0,    /* all keys of each row */
  KVC_TABLES_PREFIX = 1,   /* steps that branch (trees; drafts with top_k > 1): keys that all branches share */
  KVC_TABLES_BRANCHES = 2, /* and each branch's own: a row a token, with its visible ancestors alone and itself */
  KVC_TABLES_ENCODER = 3   /* plans with encoder_lens: the encoder's keys */
};

enum kvc_tables_flags {
  KVC_TABLES_PAD_VALUE = 1, /* pad_value is the padding; without it -1 (graph mode: 0) */
  KVC_TABLES_SLOTS = 2      /* tables of page size 1: slots where pages were, and no leftpad */
};

enum kvc_tables_arrays {
  KVC_TABLES_DENSE = 1, /* block_table */
  KVC_TABLES_CSR = 2,   /* indptr, indices, last_page_len */
  KVC_TABLES_TOKENS = 4 /* slot_mapping, positions, last_rows */
};

/* Tables of one step. Rows of a table are rows of the batch, in their order, unless a row is cut (chunks) or branches;
 * batch_rows says whose each is. Tensors are borrowed, on the device, int32 and compact unless said otherwise; those that
 * were not asked for have ndim 0. In graph mode shapes and maxima are those of the capacity. */
typedef struct kvc_tables {
  uint32_t struct_size;
  /* In: set before the call. Of a plan only part; the rest is its config's. */
  uint32_t flags;           /* KVC_TABLES_PAD_VALUE | KVC_TABLES_SLOTS */
  int32_t part;             /* KVC_TABLES_* part */
  int32_t pad_value;        /* with KVC_TABLES_PAD_VALUE: of block_table behind a row's pages */
  uint32_t arrays;          /* KVC_TABLES_DENSE | ...; 0 = all */
  /* Out */
  uint32_t causal;          /* 1: a row's queries are the last of its keys, and each sees those up to itself. 0: all of them */
  /* Of a plan's build over arrays on the device the host knows shapes alone: num_rows and num_queries are the capacity,
   * num_pages and num_keys -1. */
  int32_t num_rows;         /* R, rows of the table */
  int32_t num_queries;      /* of all rows: T */
  int32_t page_size;        /* of block_table and the CSR: the group's, or 1 */
  int32_t max_seqlen_q;     /* host maxima: queries of a row, */
  int32_t max_seqlen_k;     /* cache_seqlens, */
  int32_t max_pages;        /* columns of block_table */
  int64_t num_pages;        /* columns of all rows together: entries of indices that are used */
  int64_t num_keys;         /* the last of cu_seqlens_k */
  uint64_t generation;      /* of a plan: number of the build (kvc_plan_check); of a graph: of the step; else 0 */
  DLTensor block_table;     /* [R, max_pages], rows by their stride: page ids, then padding (FlashAttention) */
  DLTensor cache_seqlens;   /* [R]: tokens in the row's pages up to its last key, leftpad and hole included; 0 = no keys */
  DLTensor cu_seqlens_q;    /* [R + 1]: the row's queries are tokens [cu_seqlens_q[r], cu_seqlens_q[r+1]) of the step */
  DLTensor cu_seqlens_k;    /* [R + 1]: sums of the keys that rows have, leftpad and hole not counted */
  DLTensor indptr;          /* [R + 1]: the row's pages are indices[indptr[r]..indptr[r+1]) (FlashInfer) */
  DLTensor indices;         /* [num_pages] */
  DLTensor last_page_len;   /* [R]: tokens in the row's last page, 1..page_size; 0 of a row without pages */
  DLTensor key_starts;      /* [R]: position of the row's first key, sinks aside (k_start); 0 where keys are listed one by one */
  DLTensor leftpad;         /* [R]: tokens of the row's first page before its first key (cache_leftpad) */
  DLTensor batch_rows;      /* [R]: row of the batch; -1 = unused (graph mode) */
  DLTensor sink_tokens;     /* [R], only if a row streams: the row's first tokens, that every query sees */
  DLTensor hole_tokens;     /* [R], with it: tokens behind the sinks that no query sees; the window's keys follow */
  DLTensor slot_mapping;    /* int64 [T]: slot of each new token; -1 = padding */
  DLTensor positions;       /* [T]: position of each new token, by depth in trees */
  DLTensor last_rows;       /* [rows of the batch]: index in [0, T) of the row's last token; -1 = none */
  DLTensor generation_word; /* int64 [1], of a plan or a graph: the generation of what the arrays hold, for kernels of a captured
                               graph to look at. 0 = stale: write nothing */
} kvc_tables;

static inline void kvc_tables_init(kvc_tables *tables) {
  kvc_tables zero = KVC_ZERO_STRUCT;
  *tables = zero;
  tables->struct_size = (uint32_t)sizeof(zero);
}

/* Tables of an open forward in one group, the new tokens included. What the group's kind means:
 *   full, MLA  all keys; rows with a streaming window: pages of sinks, then of the window, and what lies between
 *   sliding    the last pages only: from the first key that the row's first query sees
 *   chunked    virtual rows: one for each chunk that a row's queries touch, from the first key of the chunk on
 *   cross      the encoder's keys
 *   trees      PREFIX and BRANCHES, of plain rows in the same batch too; WHOLE if every tree is a chain
 *   tables     in: flags, part, arrays, pad_value. The rest is filled; valid until the next kvc_forward_tables of the
 *              forward and group with the same part and flags, or until the forward closes
 * Errors: STALE_ID, BUSY, OUT_OF_RANGE (group), INVALID_ARGUMENT (a recurrent group, an unknown part, a group to which the
 * forward does not append encoder tokens; WHOLE of a tree that branches; PREFIX without trees; other arrays or padding than
 * the graph's first call had), UNSUPPORTED (spans; slots of a pool beyond 2^31 tokens), BATCH_TOO_LARGE (2^31 keys and more;
 * a row with more than the graph's max_pages_per_row). Threads: as kvc_forward_attend. Costs the pages that it names. Since 0.1. */
KVC_API kvc_status kvc_forward_tables(kvc_cache *cache, kvc_forward forward, int32_t group, kvc_tables *tables,
                                      kvc_error *error);

/* Plans: the same tables for a server that has an allocator of its own.
 *
 *   kvc_plan_config config;  kvc_plan_config_init(&config);      // once for each kind of step
 *   config.mode = KVC_PLAN_VERIFY;  config.num_draft_tokens = 4;  config.page_size = 16;
 *   if (kvc_plan_create(context, &config, &plan, &error)) return report(error.message);
 *   kvc_plan_args args;  kvc_plan_args_init(&args);              // each step
 *   args.seq_lens = &seq_lens;  args.req_to_token = &req_to_token;  args.rows = &req_pool_indices;
 *   if (kvc_plan_build(plan, &args, stream, NULL, &error)) return report(error.message);
 *   kvc_tables tables;  kvc_tables_init(&tables);
 *   if (kvc_plan_tables(plan, 0, &tables, &error)) return report(error.message);
 *
 * An entry of a row is the place of a token in it: columns of req_to_token, page_size of them to a column of block_table.
 * A row holds its encoder's tokens, if any, then its own by position, new ones too: the server has allocated those. */
enum kvc_plan_mode {
  KVC_PLAN_DECODE = 0,      /* one new token a row. Parts: WHOLE (and ENCODER) */
  KVC_PLAN_EXTEND = 1,      /* append_lengths[i] new tokens: prefill, with a cached prefix or without, mixed with decoding
                               rows, and draft extend. Parts: WHOLE (and ENCODER) */
  KVC_PLAN_VERIFY = 2,      /* num_draft_tokens new tokens. A chain: WHOLE. With tree_parents: PREFIX and BRANCHES */
  KVC_PLAN_DRAFT_DECODE = 3 /* step s of num_steps adds token s to each of top_k branches: all steps in one build. top_k 1:
                               WHOLE, the token is entry seq_len + s. Above: PREFIX, whole pages, and BRANCHES. Behind the
                               whole pages each branch has a region of whole pages: the tokens of the partial last page
                               (copied there by the server, in branch 0 they are in place), then its drafts */
};

enum kvc_plan_flags {
  KVC_PLAN_GRAPH = 1,           /* capacity-sized arrays whose addresses never change: max_* are needed */
  KVC_PLAN_PAD_VALUE = 2,       /* pad_value is the padding; without it -1 (graph mode: 0) */
  KVC_PLAN_SLOTS = 4,           /* tables of page size 1: slots where pages were, and no leftpad */
  KVC_PLAN_LENGTHS_WITH_NEW = 8 /* seq_lens count this step's new tokens (not in DRAFT_DECODE); a row of 0 is inert.
                                   Without it they count the tokens before the step */
};

typedef struct kvc_plan_config {
  uint32_t struct_size;
  uint32_t flags;            /* KVC_PLAN_* */
  int32_t mode;              /* KVC_PLAN_* mode */
  int32_t page_size;         /* tokens a page, 1..65536; 0 = 16 */
  int32_t num_draft_tokens;  /* VERIFY: 1..1024; else 0 */
  int32_t num_steps;         /* DRAFT_DECODE: 1..64; else 0 */
  int32_t top_k;             /* DRAFT_DECODE: branches of a row, 1..64; 0 = 1; else 0 */
  int32_t pad_value;         /* with KVC_PLAN_PAD_VALUE */
  uint32_t arrays;           /* KVC_TABLES_DENSE | ...; 0 = all */
  int32_t max_rows;          /* graph mode: rows of a batch, 1..1048576; else 0 */
  int32_t max_tokens;        /* graph mode, EXTEND: new tokens of a batch, 1..1048576; else 0 */
  int32_t max_pages_per_row; /* graph mode: columns of block_table, 1..2^26; else 0 */
  int64_t window_tokens;     /* queries see this many keys, themselves included: only the last pages. 0 = all */
  int64_t chunk_tokens;      /* queries see their chunk up to themselves: virtual rows. 0 = all; not with window_tokens */
  int64_t num_pool_pages;    /* pages of the server's pool, against which tables are checked: 1..2^31 / page_size, since slots
                                are int32; 0 = unknown, as many */
} kvc_plan_config;

static inline void kvc_plan_config_init(kvc_plan_config *config) {
  kvc_plan_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

enum kvc_plan_build_flags {
  KVC_PLAN_ROWS_GREW = 1 /* DECODE, EXTEND; a promise: the rows are those of the last build, in the same order, each at least as long, with
                            the pages that it had. Only what is new is read. (CSR arrays are written anew anyway) */
};

/* A step's arrays, all borrowed, all on the host, or, of a plan with KVC_PLAN_GRAPH, all on the context's device. One-dimensional
 * ones are int32 or int64, compact; tables int32 with innermost stride 1. */
typedef struct kvc_plan_args {
  uint32_t struct_size;
  uint32_t flags;                 /* KVC_PLAN_ROWS_GREW */
  const DLTensor *seq_lens;       /* [B]: tokens of each row, 0..2^30, without encoder tokens. B may be 0 */
  const DLTensor *append_lengths; /* EXTEND: [B], >= 0; else NULL */
  const DLTensor *rows;           /* nullable: row i of the batch is row i of the table. [B]: rows of the table; -1 = inert,
                                     its tokens are padding */
  const DLTensor *block_table;    /* [rows, columns]: page ids. Either this */
  const DLTensor *req_to_token;   /* [rows, columns]: the slot of each token, or this. With pages above 1, each page's tokens
                                     have consecutive slots, the first a multiple of page_size */
  const DLTensor *encoder_lens;   /* nullable; [B]: encoder tokens that lie before the row's own; DECODE and EXTEND */
  const DLTensor *tree_parents;   /* nullable: chains. VERIFY: [B * num_draft_tokens], as kvc_batch.tree_parents, of each row
                                     by itself: parents come before their children, -1 = root */
} kvc_plan_args;

static inline void kvc_plan_args_init(kvc_plan_args *args) {
  kvc_plan_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

typedef struct kvc_plan kvc_plan;

/* Creates a plan, which owns the arrays of the tables that it makes.
 *   plan  returned; released by kvc_plan_destroy
 * Errors: INVALID_ARGUMENT, OUT_OF_RANGE (config), OUT_OF_MEMORY.
 * Threads: any. Since 0.1. */
KVC_API kvc_status kvc_plan_create(kvc_context *context, const kvc_plan_config *config, kvc_plan **plan,
                                   kvc_error *error);

/* Releases a plan and its tables. NULL does nothing. Threads: any, once. Since 0.1. */
KVC_API void kvc_plan_destroy(kvc_plan *plan);

/* Makes the tables of a step, of all its draft steps and parts. Tables are checked before anything is written: a refused
 * build leaves the arrays, and makes them stale (the generation word is 0) until a build succeeds. In graph mode arrays keep
 * their addresses, and what a smaller batch does not use is inert. Tables are made on the context's device, in the stream's
 * order; of arrays on a device by its kernels, without a wait: there a build whose lengths, rows, parents or sizes would be
 * refused leaves the tables and makes the generation word 0, page ids and slots are checked only with KVC_CONTEXT_VALIDATE,
 * and kvc_plan_check says only what was enqueued last.
 *   args        borrowed, arrays included
 *   stream      the device's stream; NULL on the CPU
 *   generation  nullable; filled: the number of this build
 * Errors: NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE; INVALID_ARGUMENT (arrays that the mode has not, both tables,
 * rows that did not only grow, tokens of a page that does not begin at one); OUT_OF_RANGE (a length; an entry of a table:
 * the message has row, column, id and limit; a table with too few columns); BATCH_TOO_LARGE (graph mode: required,
 * available; 2^31 keys and more). error->index = the row. Threads: one at a time for one plan. Nothing is
 * allocated but for steps larger than ever before. Since 0.1.
 * From: metadata as SGLang's FlashAttention backend makes it; virtual batches for chunks as in Llama 4's local attention. */
KVC_API kvc_status kvc_plan_build(kvc_plan *plan, const kvc_plan_args *args, void *stream, uint64_t *generation,
                                  kvc_error *error);

/* Hands out the tables that the last build made.
 *   step    DRAFT_DECODE: 0..num_steps - 1; else 0
 *   tables  in: part; filled. Valid until the next build, in graph mode until kvc_plan_destroy
 * Errors: STALE (no build, or the last was refused), OUT_OF_RANGE (step), INVALID_ARGUMENT (a part that the plan has not;
 * fields that are the config's). Threads: as kvc_plan_build. Since 0.1. */
KVC_API kvc_status kvc_plan_tables(kvc_plan *plan, int32_t step, kvc_tables *tables, kvc_error *error);

/* To be asked before recorded calls over a plan's tables are replayed: whether the arrays hold build `generation`.
 * Errors: STALE (they hold another, or the last build was refused). Threads: as kvc_plan_build. Since 0.1. */
KVC_API kvc_status kvc_plan_check(kvc_plan *plan, uint64_t generation, kvc_error *error);

/* ============================================================================================
 * 12  Advanced: proofs and comparisons
 * ============================================================================================ */

/* A hash of all bookkeeping (ids, lengths, page tables, free lists): equal after equal calls on equal configs, so
 * ranks and replays can be compared. Not stable between versions.
 *   digest  filled
 * Errors: none but misuse. Threads: any. Costs what the tables hold. Since 0.1. */
KVC_API kvc_status kvc_cache_digest(kvc_cache *cache, uint64_t *digest, kvc_error *error);

/* Checks that references add up, that free + used = total, and that no page is in two tables unless its count says
 * so. Errors: INTERNAL with what does not hold. Threads: any. Costs what the tables hold. Since 0.1. */
KVC_API kvc_status kvc_cache_check_invariants(kvc_cache *cache, kvc_error *error);

/* ============================================================================================
 * 13  One symbol for all
 * ============================================================================================ */

/* BEGIN GENERATED by scripts/generate_api.py */
typedef struct kvc_api {
  uint32_t struct_size;
  uint32_t abi; /* KVC_ABI_VERSION of the library */
  const char *(*version)(void);
  uint32_t (*abi_version)(void);
  const char *(*build_info)(void);
  const char *(*status_name)(kvc_status status);
  kvc_status (*context_create)(const kvc_context_config *config, kvc_context **context, kvc_error *error);
  void (*context_destroy)(kvc_context *context);
  kvc_status (*context_describe)(kvc_context *context, char *buffer, int64_t capacity, int64_t *length,
                                 kvc_error *error);
  kvc_status (*cache_estimate)(kvc_context *context, const kvc_cache_config *config, int32_t group,
                               kvc_estimate *estimate, kvc_error *error);
  kvc_status (*cache_create)(kvc_context *context, const kvc_cache_config *config, kvc_cache **cache, kvc_error *error);
  void (*cache_destroy)(kvc_cache *cache);
  kvc_status (*cache_clear)(kvc_cache *cache, kvc_error *error);
  kvc_status (*seq_add)(kvc_cache *cache, int64_t n, kvc_seq *sequences, kvc_error *error);
  kvc_status (*seq_remove)(kvc_cache *cache, int64_t n, const kvc_seq *sequences, kvc_error *error);
  kvc_status (*seq_fork)(kvc_cache *cache, int64_t n, const kvc_seq *parents, const int64_t *positions,
                         kvc_seq *children, void *stream, kvc_error *error);
  kvc_status (*seq_truncate)(kvc_cache *cache, int64_t n, const kvc_seq *sequences, const int64_t *lengths,
                             kvc_error *error);
  kvc_status (*seq_lengths)(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *lengths, kvc_error *error);
  kvc_status (*seq_pages)(kvc_cache *cache, kvc_seq sequence, int32_t group, int32_t *pages, int64_t capacity,
                          int64_t *count, kvc_error *error);
  kvc_status (*seq_nearest_position)(kvc_cache *cache, kvc_seq sequence, int64_t position, int64_t *before,
                                     int64_t *after, kvc_error *error);
  kvc_status (*seq_max_append)(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *tokens,
                               kvc_error *error);
  kvc_status (*cache_can_fit)(kvc_cache *cache, const kvc_batch *batch, kvc_error *error);
  kvc_status (*forward_begin)(kvc_cache *cache, const kvc_batch *batch, void *stream, kvc_forward *forward,
                              kvc_error *error);
  kvc_status (*forward_append)(kvc_cache *cache, kvc_forward forward, int32_t layer, const kvc_append_args *args,
                               kvc_error *error);
  kvc_status (*forward_attend)(kvc_cache *cache, kvc_forward forward, int32_t layer, const kvc_attend_args *args,
                               kvc_error *error);
  kvc_status (*forward_end)(kvc_cache *cache, kvc_forward forward, kvc_error *error);
  kvc_status (*forward_abort)(kvc_cache *cache, kvc_forward forward, kvc_error *error);
  kvc_status (*forward_cancel)(kvc_cache *cache, kvc_forward forward, kvc_error *error);
  kvc_status (*forward_get_info)(kvc_cache *cache, kvc_forward forward, kvc_forward_info *info, kvc_error *error);
  kvc_status (*forward_describe)(kvc_cache *cache, kvc_forward forward, char *buffer, int64_t capacity, int64_t *length,
                                 kvc_error *error);
  kvc_status (*cache_export_pool)(kvc_cache *cache, int32_t layer, int32_t pool, uint32_t flags,
                                  DLManagedTensorVersioned **tensor, void *stream, kvc_error *error);
  kvc_status (*seq_export)(kvc_cache *cache, kvc_seq sequence, const kvc_export_args *args, kvc_exported *exported,
                           void *stream, kvc_error *error);
  kvc_status (*seq_import)(kvc_cache *cache, kvc_seq sequence, const kvc_import_args *args, void *stream,
                           kvc_error *error);
  kvc_status (*cache_stats)(kvc_cache *cache, int32_t group, kvc_stats *stats, kvc_error *error);
  kvc_status (*cache_digest)(kvc_cache *cache, uint64_t *digest, kvc_error *error);
  kvc_status (*cache_check_invariants)(kvc_cache *cache, kvc_error *error);
  kvc_status (*seq_commit)(kvc_cache *cache, int64_t n, const kvc_seq *sequences, const int32_t *leaves, void *stream,
                           kvc_error *error);
  kvc_status (*seq_tree_nodes)(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int32_t *nodes, kvc_error *error);
  kvc_status (*merge_states)(kvc_context *context, const kvc_merge_args *args, void *stream, kvc_error *error);
  kvc_status (*seq_set_rope)(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int32_t set, kvc_error *error);
  kvc_status (*seq_checkpoint)(kvc_cache *cache, int64_t n, const kvc_seq *sequences, kvc_error *error);
  kvc_status (*seq_encoder_lengths)(kvc_cache *cache, int32_t group, int64_t n, const kvc_seq *sequences,
                                    int64_t *lengths, kvc_error *error);
  kvc_status (*forward_load_state)(kvc_cache *cache, kvc_forward forward, int32_t layer, int32_t state,
                                   const DLTensor *tensor, kvc_error *error);
  kvc_status (*forward_store_state)(kvc_cache *cache, kvc_forward forward, int32_t layer, int32_t state,
                                    const DLTensor *tensor, kvc_error *error);
  kvc_status (*seq_set_streaming)(kvc_cache *cache, int64_t n, const kvc_seq *sequences, const int64_t *sink_tokens,
                                  const int64_t *window_tokens, uint32_t flags, kvc_error *error);
  kvc_status (*seq_get_streaming)(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *sink_tokens,
                                  int64_t *window_tokens, kvc_error *error);
  kvc_status (*cache_take_copies)(kvc_cache *cache, kvc_copy *copies, uint32_t item_size, int64_t capacity,
                                  int64_t *count, kvc_error *error);
  kvc_status (*flash_attn_with_kvcache)(kvc_context *context, const kvc_flash_attn_args *args, void *stream,
                                        kvc_error *error);
  kvc_status (*append_slots)(kvc_context *context, const kvc_append_slots_args *args, void *stream, kvc_error *error);
  kvc_status (*forward_tables)(kvc_cache *cache, kvc_forward forward, int32_t group, kvc_tables *tables,
                               kvc_error *error);
  kvc_status (*plan_create)(kvc_context *context, const kvc_plan_config *config, kvc_plan **plan, kvc_error *error);
  void (*plan_destroy)(kvc_plan *plan);
  kvc_status (*plan_build)(kvc_plan *plan, const kvc_plan_args *args, void *stream, uint64_t *generation,
                           kvc_error *error);
  kvc_status (*plan_tables)(kvc_plan *plan, int32_t step, kvc_tables *tables, kvc_error *error);
  kvc_status (*plan_check)(kvc_plan *plan, uint64_t generation, kvc_error *error);
  kvc_status (*graph_create)(kvc_cache *cache, const kvc_graph_config *config, kvc_forward *graph, kvc_error *error);
  kvc_status (*graph_destroy)(kvc_cache *cache, kvc_forward graph, kvc_error *error);
  kvc_status (*context_check)(kvc_context *context, kvc_error *error);
} kvc_api;
/* END GENERATED */

/* The library's functions as a table, for hosts that load it by dlopen and want one symbol. Members are only ever
 * appended: check struct_size (or offsetof) before using a newer one.
 *   abi_version  KVC_ABI_VERSION of the caller's header
 * Returns: a static table; NULL unless the major versions are equal, and while major is 0 the minors too, from 1.0 on
 * unless the caller's minor is not above the library's. Threads: any. Since 0.1. */
KVC_API const struct kvc_api *kvc_get_api(uint32_t abi_version);

#undef KVC_ZERO_STRUCT

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVCACHE_H_ */
