/* libkvcache: a paged KV cache for LLM engines and the attention that reads it, as a C library.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * ============================================================================================
 * 1  Introduction
 * ============================================================================================
 * An engine creates three objects:
 *   - a context: one device and its threads;
 *   - a cache in it: memory for the K and V of every layer of a model, in pages;
 *   - sequences in the cache: each is a list of tokens with their pages.
 *
 * Each step of the model is a forward:
 *   - begin reserves pages for the new tokens of a batch;
 *   - attend, once for each layer, stores the layer's new K and V, and computes attention over everything stored;
 *   - end keeps the new tokens.
 *
 * A first program:
 *
 *   kvc_error error = KVC_ERROR_INIT;
 *   kvc_context_config context_config;  kvc_context_config_init(&context_config);
 *   kvc_context *context = NULL;
 *   if (kvc_context_create(&context_config, &context, &error)) return report(error.message);
 *
 *   kvc_layer_config layers[NUM_LAYERS];           // for each layer: kvc_layer_config_init, heads, dims
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
 * A newcomer can stop after section 7. Sections 8 to 17 are for special uses. docs/glossary.md explains all terms.
 *
 * Words
 *   page      `page_size` consecutive token slots of one layer group.
 *   slot      The place of one token in the pools of a group: page * page_size + offset.
 *   sequence  An ordered list of pages in each group, and a length in tokens.
 *   fork      A new sequence that shares the first tokens of its parent, page by page.
 *   forward   One step of the model over a batch: begin, calls for each layer, end or abort.
 *   group     Layers that share page tables, because their queries see the same keys. A group has full attention, a sliding
 *             window, chunks, latent rows, encoder sequences or recurrent states.
 * Letters in shapes: T tokens of a batch, Hq query heads, Hkv key and value heads, D head dim of q and k, Dv head dim of v.
 * A row of a batch is one sequence. A row of a tensor is one token. Ranges are half-open. Positions and lengths count
 * tokens from 0.
 *
 * Ownership: three words, used everywhere
 *   borrowed  The library uses the memory during the call, and keeps no reference. On a GPU the memory must stay valid until
 *             the stream has done the work of the call.
 *   adopted   The library owns it after a successful call. On failure the caller still owns it.
 *   returned  The caller owns the result, and releases it as the function's comment says.
 *
 * Rules for all calls
 *   Errors    A function that can fail returns a kvc_status, and takes a nullable kvc_error as its last argument. A failed
 *             call changes nothing, unless its comment says otherwise. These errors are possible in any call, and are not
 *             repeated below: NULL_ARGUMENT, STRUCT_SIZE, INVALID_ARGUMENT (negative n or capacity), UNSUPPORTED (unknown
 *             flag bits, unknown fields that are not zero), DEVICE (stream), DEVICE_FAILED (the driver of a GPU),
 *             OUT_OF_MEMORY, INTERNAL. A call with n = 0 does nothing.
 *   Threads   "any" means that any thread may make the call. Calls that change one cache are serialised by the library. A
 *             call that races kvc_cache_destroy or kvc_context_destroy is undefined.
 *   Blocking  No call waits for I/O, except kvc_seq_save and kvc_seq_load. Calls on one cache wait for each other's short
 *             work (copies of partial pages and of tree nodes, kvc_cache_check_invariants), never for compute. On the CPU, a
 *             compute call returns when its result is written. Eight compute calls can run in one context at once; a ninth
 *             waits for one of them.
 *   Streams   `stream` is a stream of the device (CUDA: CUstream; NULL is the default stream). On the CPU it must be NULL.
 *             A call with a stream only enqueues work. The library makes this stream wait for the earlier work of the cache
 *             on every other stream. All calls of a forward use the stream of its begin. Memory that they read and write
 *             must stay valid until the stream has done this work.
 *   fork()    The child of fork() may use a cache if no thread was inside a call on it during fork(). For stateless calls
 *             and plans, no thread may have been inside a call on the context. The child has its own copy of the cache: each
 *             process can end or abort open forwards, and each releases its exports. Worker threads start again with the
 *             child's first compute call. Behaviour is undefined for caches on which a thread was inside a call, for memory
 *             that both processes map as shared, and for children of clone() or _Fork(), which run no fork handlers.
 *   NULL      A pointer argument must not be NULL unless it is marked "nullable". The words after "nullable:" say what NULL
 *             means. "flag: meaning. Else 0" means that the field must be 0 without the flag.
 *   Arrays    Memory that a call fills must not overlap memory that it reads. Every pointer is to host memory, except a
 *             tensor's data. An array of ids or numbers is read once: if another thread writes it meanwhile, each element
 *             has its old or its new value.
 *
 * Structs: every extensible struct starts with `struct_size`. Call its kvc_*_init first, then set fields. (Without a C
 * compiler, zero the struct and store its size in struct_size.) Zero always means the default. See docs/reference/abi.md.
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

/* The ABI that this header describes: (major << 16) | minor. While major is 0, every minor release may change it. */
#define KVC_ABI_VERSION ((KVC_VERSION_MAJOR << 16) | KVC_VERSION_MINOR)

/* Returns the version of the loaded library as text, such as "0.1.0".
 * Returns: a static string, never NULL. Threads: any. Since 0.1. */
KVC_API const char *kvc_version(void);

/* Returns the KVC_ABI_VERSION of the loaded library. Threads: any. Since 0.1. */
KVC_API uint32_t kvc_abi_version(void);

/* Describes what the loaded library was built with, as one JSON object: version, abi, compiler, dlpack, backends, simd
 * (every compiled CPU target, best last), features.
 * Returns: a static string, never NULL. Threads: any. Since 0.1. */
KVC_API const char *kvc_build_info(void);

/* ============================================================================================
 * 3  Errors
 * ============================================================================================ */

/* The result of a call; 0 is success. Treat an unknown code by its band: 1..99 misuse (the program is wrong), 100..199
 * capacity (try later, or with less), 200..299 state, 300..399 device, 400..499 data and I/O, 900..999 internal.
 * docs/reference/errors.md says what to do about each. */
typedef int32_t kvc_status;

enum kvc_status_code {
  KVC_OK = 0,
  /* Misuse. */
  KVC_ERROR_INVALID_ARGUMENT = 1,  /* a value out of its range, or values that contradict each other */
  KVC_ERROR_NULL_ARGUMENT = 2,     /* NULL where a pointer is needed */
  KVC_ERROR_STRUCT_SIZE = 3,       /* struct_size is below that of the first release, or differs within an array */
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
  KVC_ERROR_BUSY = 200,       /* the sequence is in an open forward or a job, or another thread uses the forward */
  KVC_ERROR_ORDER = 201,      /* calls in the wrong order, or the same call twice */
  KVC_ERROR_CANCELLED = 202,  /* the forward was cancelled (only abort is left), or the job of a suspend or resume was
                                 cancelled */
  KVC_ERROR_EVICTED = 203,    /* the needed keys were freed, because they left a window */
  KVC_ERROR_UNCOMMITTED = 204, /* the sequence has an uncommitted tree: kvc_seq_commit first */
  KVC_ERROR_STALE = 205,      /* a plan's arrays hold another step than the requested one, or no step is open in a graph */
  KVC_ERROR_SUSPENDED = 206,  /* the sequence is suspended: kvc_seq_resume it first */
  /* Device. */
  KVC_ERROR_DEVICE_UNAVAILABLE = 300, /* no backend, driver or device of that type */
  KVC_ERROR_DEVICE_FAILED = 301,      /* the driver reported an error: the message has its name and the call */
  /* Data and I/O. */
  KVC_ERROR_IO = 400,      /* a file, or a callback that writes or reads, failed: the message has the reason */
  KVC_ERROR_CORRUPT = 401, /* stored bytes are damaged, cut off, or were never written by this library */
  KVC_ERROR_LAYOUT = 402,  /* stored bytes are whole, but of another model, dtype or layout: the message has both */
  /* Internal. */
  KVC_ERROR_INTERNAL = 900 /* a bug of the library; kvc_cache_check_invariants reports with this code */
};

/* Whether a status is of the capacity band: nothing is wrong, and the call may succeed later, or with less. */
static inline int kvc_status_is_capacity(kvc_status status) { return status >= 100 && status < 200; }

/* What went wrong, in numbers and in words. The caller owns it, and the library writes it only on failure. The layout of
 * this struct is frozen. */
typedef struct kvc_error {
  uint32_t struct_size; /* sizeof(kvc_error); KVC_ERROR_INIT sets it */
  kvc_status code;      /* the returned status */
  int64_t index;        /* row, layer or array element at fault; -1 = none */
  int64_t required;     /* what the call needs, for capacity errors and where a comment says so; else 0 */
  int64_t available;    /* what is available, for the same errors; else 0 */
  int64_t group;        /* layer group at fault; -1 = none */
  char message[472];    /* "function: what, with the values"; NUL-terminated ASCII */
} kvc_error;

#define KVC_ERROR_INIT \
  { (uint32_t)sizeof(kvc_error), 0, -1, 0, 0, -1, "" }

/* Does what KVC_ERROR_INIT does, for an existing error. If struct_size of a kvc_error is not sizeof(kvc_error), the
 * library cannot write to it: the call returns KVC_ERROR_STRUCT_SIZE and does nothing. */
static inline void kvc_error_init(kvc_error *error) {
  kvc_error initial = KVC_ERROR_INIT;
  *error = initial;
}

/* Returns the name of a status, such as "KVC_ERROR_OUT_OF_PAGES". For an unknown code it returns the name of the code's
 * band.
 * Returns: a static string, never NULL. Threads: any. Since 0.1. */
KVC_API const char *kvc_status_name(kvc_status status);

/* ============================================================================================
 * 4  Context: one device, its threads and scratch
 * ============================================================================================ */

typedef struct kvc_context kvc_context;

/* Rules for the host's callbacks. Several threads may call them at once. The library holds no lock while it calls them.
 * They must not unwind, and must not destroy the context or a cache. They are not called again after kvc_context_destroy
 * and kvc_cache_destroy of every cache in the context. Exported tensors never call them. */
typedef void (*kvc_parallel_item_fn)(void *arg, int64_t index);

/* Runs item(arg, i) once for each i in [0, n), and returns when all are done. The items may run in any order and on any
 * threads, even on one. Items never wait for each other. */
typedef void (*kvc_parallel_for_fn)(void *user, int64_t n, kvc_parallel_item_fn item, void *arg);

enum kvc_context_flags {
  /* Validation mode: for tests, and to find a call that wrote outside of its pages. The device checks all values of index
   * tensors that only a GPU reads (sections 10 and 11), page ids too. A row or token with a bad value is skipped. A
   * kvc_plan_build with a bad value is skipped as a whole.
   *
   * The device keeps the first bad value since the last report. The next call with index tensors on the context, or
   * kvc_context_check, reports this value as EARLIER_CALL without waiting. The message names the call, the tensor, the row
   * and the value; error->index is the row. The reporting call has no other effect and may be repeated, except that
   * kvc_plan_build also invalidates its plan, as a refused build does. Replays of captured calls are checked as they run.
   *
   * The cost is a pass over the page ids in use; without the flag there is none. Values that the host reads (on the CPU,
   * all values) are checked by the call itself, with or without the flag. */
  KVC_CONTEXT_VALIDATE = 1
};

enum kvc_log_level { KVC_LOG_WARNING = 1, KVC_LOG_INFO = 2, KVC_LOG_DEBUG = 3 };

/* Called on the thread that called the library; `message` is borrowed. */
typedef void (*kvc_log_fn)(void *user, int32_t level, const char *message);

typedef struct kvc_context_config {
  uint32_t struct_size;
  int32_t device_type;  /* a DLDeviceType; 0 = kDLCPU */
  int32_t device_id;    /* ordinal of the device; 0 on the CPU */
  int32_t num_threads;  /* CPU: threads that compute, the caller's included; 0 = min(affinity mask, cgroup quota). With
                           parallel_for: the largest number of threads that it uses at once. At most 1024. */
  const char *simd;     /* SIMD target. nullable: the best one of this CPU. Else the name of a target from
                           kvc_context_describe, or "reference" (float64, for tests). avx512_amx requests AMX tiles for the
                           whole process */
  kvc_parallel_for_fn parallel_for; /* nullable: the context has its own threads, started on first use. Else the host's
                                       pool */
  void *parallel_for_user;
  kvc_log_fn log; /* nullable: silence */
  void *log_user;
  const char *backend; /* nullable: the default backend. (The CPU's is built in. CUDA's is the file $KVCACHE_CUDA_BACKEND, or
                          libkvcache_cuda.so beside this library.) Else the file of a backend (kvcache_backend.h), which
                          stays loaded */
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
 * It starts no thread: workers start with the first compute call that is large enough.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED (simd), DEVICE_UNAVAILABLE (no such file, another version of the backend's table, no
 * driver, no device, or a device that the backend was not built for; the message says which), DEVICE_FAILED, OUT_OF_MEMORY.
 * Threads: any. Since 0.1. */
KVC_API kvc_status kvc_context_create(const kvc_context_config *config, kvc_context **context, kvc_error *error);

/* Gives up the caller's reference to a context. Caches keep their context alive. NULL does nothing.
 * The call that gives up the last reference (this one, kvc_cache_destroy, or a tensor's deleter) joins the idle worker
 * threads of the context. Threads: any, once. Since 0.1. */
KVC_API void kvc_context_destroy(kvc_context *context);

/* Describes the context as one JSON object: device, device_id, threads, host_parallel_for, simd (in use), simd_available.
 *   buffer    nullable if capacity is 0; [capacity] bytes, NUL-terminated on success
 *   length    nullable: bytes of the text without its NUL, also on BUFFER_TOO_SMALL (error->required counts the NUL)
 * Errors: BUFFER_TOO_SMALL (never for capacity 0). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_context_describe(kvc_context *context, char *buffer, int64_t capacity, int64_t *length,
                                        kvc_error *error);

/* Reports whether the device has found a bad index by now, in a context with KVC_CONTEXT_VALIDATE. Engines that only replay
 * graphs need it, and tests call it at their end:
 *
 *   cudaStreamSynchronize(stream);                           // without it, the check covers only work that has run by now
 *   if (kvc_context_check(context, &error)) return report(error.message);
 *   // an earlier kvc_append_slots, row 3: slot_mapping[3] is 4096, not in 0..4095
 *
 * Errors: EARLIER_CALL, once for each report. Threads: any. It costs one load, and waits for nothing. Since 0.1. */
KVC_API kvc_status kvc_context_check(kvc_context *context, kvc_error *error);

/* ============================================================================================
 * 5  Cache: layers, groups, capacity
 * ============================================================================================ */

typedef struct kvc_cache kvc_cache;

/* Whether the library rotates q and k (rotary position embedding, RoPE), and when. Pair i of a rotated vector of rope_dim
 * dims is rotated by the angle position * f(i), where f(i) = rope_theta^(-2i/rope_dim) unless a scaling changes it.
 * docs/reference/rope.md has every formula. */
enum kvc_rope_mode {
  KVC_ROPE_NONE = 0,     /* q and k are used unchanged, and the other rope_* fields are ignored */
  KVC_ROPE_ON_APPEND = 1, /* the library rotates q and k at their positions, and stores rotated k. Rotated q is rounded to q's
                             dtype, as if the caller had rotated it */
  KVC_ROPE_ON_READ = 2   /* k is stored, exported and imported unrotated. attend rotates q as above, and rotates each key in
                            float32 when it reads it */
};

enum kvc_rope_scaling_kind {
  KVC_ROPE_SCALING_NONE = 0,
  KVC_ROPE_SCALING_LINEAR = 1,  /* f(i) / factor (position interpolation) */
  KVC_ROPE_SCALING_LLAMA3 = 2,  /* f(i) / factor for long wavelengths, f(i) for short ones, and a blend of both between
                                   low_freq_factor and high_freq_factor */
  KVC_ROPE_SCALING_YARN = 3,    /* f(i) / factor for pairs with at most beta_slow rotations over the original length, f(i)
                                   for pairs with at least beta_fast, and a blend of both between them; scales cos and sin */
  KVC_ROPE_SCALING_LONGROPE = 4 /* f(i) / short_factors[i] or / long_factors[i]; scales cos and sin */
};
enum kvc_rope_scaling_flags {
  KVC_ROPE_SCALING_NO_TRUNCATE = 1 /* yarn: the bounds of the blend are not rounded to whole pairs ("truncate": false) */
};

/* How a model was extended beyond the length that it was trained for: the fields of "rope_scaling" in its config.json.
 * Fields that `kind` does not use must be 0. */
typedef struct kvc_rope_scaling {
  uint32_t struct_size;
  int32_t kind;                  /* KVC_ROPE_SCALING_* */
  uint32_t flags;                /* KVC_ROPE_SCALING_NO_TRUNCATE */
  int32_t num_short_factors;     /* longrope: rope_dim / 2 */
  int32_t num_long_factors;      /* longrope: rope_dim / 2 */
  uint32_t reserved;             /* 0 */
  int64_t original_max_position; /* llama3, yarn, longrope: the length in tokens that the model was first trained for,
                                    2..2^30 */
  double factor;                 /* 1..1e6. longrope: only for the default of attention_factor; 0 = 1 */
  double low_freq_factor;        /* llama3: > 0 */
  double high_freq_factor;       /* llama3: > low_freq_factor */
  double beta_fast;              /* yarn: > 0, usually above beta_slow; 0 = 32 */
  double beta_slow;              /* yarn: > 0; 0 = 1 */
  double attention_factor;       /* yarn, longrope: multiplies cos and sin of q and of k, > 0; 0 = the kind's default */
  double mscale;                 /* yarn: with mscale_all_dim, sets the default of attention_factor, as in DeepSeek. Alone it
                                    has no effect */
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
  KVC_LAYER_ROPE_INTERLEAVED = 1, /* rotated pairs are dims 2i, 2i+1 (GPT-J). Without this flag they are i, i + rope_dim/2
                                     (GPT-NeoX) */
  /* The layer stores K and no V: the index keys of a model with an indexer. kvc_forward_select chooses tokens by them, and
   * nothing attends to them. The layer may be in any group that is neither recurrent nor cross, so index keys lie beside the
   * K and V of other layers, under the same page ids. v_head_dim and latent_dim are 0, storage is k_storage alone, v_scales
   * is NULL, and rope_mode is not KVC_ROPE_ON_READ. num_q_heads is the number of index heads */
  KVC_LAYER_KEYS_ONLY = 2
};

/* One state tensor of a recurrent layer: what the layer keeps of one sequence, such as the last inputs of a convolution, or
 * the state of linear attention or of a state-space model. */
typedef struct kvc_state_config {
  uint32_t struct_size;
  DLDataType dtype;  /* float32, float16, bfloat16, int32, int64; {0,0,0} = float32 */
  int32_t rank;      /* 1..4 */
  uint32_t reserved; /* 0 */
  int64_t shape[4];  /* shape[0..rank - 1], each >= 1; the rest 0 */
  double fill;       /* the value of all elements in the state of an empty sequence. It must fit the dtype: it is infinite,
                        or it rounds to a finite number. For integers it is a whole number of at most 2^53 */
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
  int32_t head_dim;      /* D, 1..512 (MLA: 1..1152); multiples of 16 are fast */
  int32_t v_head_dim;    /* Dv, 1..512; 0 = head_dim (MLA: latent_dim) */
  DLDataType dtype;      /* of stored K and V: float32, float16, bfloat16; {0,0,0} = float32. Quantised: float8_e4m3fn,
                            float8_e5m2, int8, uint4, float4_e2m1fn (docs/reference/formats.md). x is stored as x / scale, rounded to
                            even, and saturated to the largest finite value (NaN stays NaN). It is read as stored * scale. int8: the
                            row of each token and head has its own scale amax / 127, stored in its page, where amax is the
                            largest magnitude in the row. No stored element is -128. If amax / 127 rounds to 0 in float32,
                            the row has scale 1 and is read as zeros. A row that holds an infinity or a NaN is read as NaN */
  int32_t rope_mode;     /* KVC_ROPE_* */
  int32_t rope_dim;      /* rotated dims, even, rope_offset + rope_dim <= head_dim; 0 = head_dim - rope_offset */
  int32_t rope_offset;   /* first rotated dim; MLA: at least latent_dim, and 0 = latent_dim */
  uint32_t flags;        /* KVC_LAYER_* */
  int32_t kv_layer;      /* 0 = the layer stores its own K and V. 1 + i = it stores nothing, and reads the K and V of layer i,
                            an earlier layer of the same group: call attend without k and v, after the append of layer i.
                            group, num_kv_heads, dims, dtype and rope_* must be equal in both. Give storage and scales in
                            layer i only */
  double rope_theta;     /* base of the angles, 1e-30..1e30; yarn: above 1. 0 = 10000 */
  const kvc_rope_scaling *rope_scaling; /* borrowed; nullable: none */
  double softmax_scale;  /* 1e-30..1e30; 0 = head_dim^-0.5. MLA: required, because the row's width does not imply it
                            (DeepSeek-V3: 0.13523, docs/reference/mla.md) */
  DLManagedTensorVersioned *kv_storage; /* nullable; adopted by kvc_cache_create: the layer's page pool in the caller's
                                           memory, [>= pages, 2, Hkv, page_size, D] with innermost stride 1 and any other
                                           strides (so HND and NHD both fit). Index 0 of dim 1 is K, 1 is V. Needs D == Dv.
                                           Must be writable. No tensor may be given twice. Pools may interleave in memory,
                                           but not overlap. Its deleter runs once, when the cache and all exported views of
                                           it are gone. Without a deleter, the caller keeps the memory until then.
                                           docs/reference/storage.md has layouts */
  DLManagedTensorVersioned *k_storage;  /* nullable; adopted; K alone: [>= pages, Hkv, page_size, D] */
  DLManagedTensorVersioned *v_storage;  /* nullable; adopted; V alone: [>= pages, Hkv, page_size, Dv]; given together with
                                           k_storage. (MLA and KVC_LAYER_KEYS_ONLY: only k_storage.) Storage has the layer's
                                           dtype; for float8 it may be uint8. int8, uint4 and float4 layers cannot have it,
                                           because their pages hold scales, which the library lays out */
  const float *k_scales; /* float8, float4: borrowed; [num_scales], each 1e-20..1e20; nullable if num_scales is 0 */
  const float *v_scales; /* the same for V (MLA: NULL, because V is part of K) */
  int32_t num_scales;    /* float8, float4: 0 = every scale is 1; 1 = one scale for all kv heads; num_kv_heads = one for each. Other
                            dtypes: 0 */
  int32_t num_states;    /* recurrent: state tensors of the layer, 1..16. Else 0 */
  const kvc_state_config *states; /* recurrent: borrowed; [num_states], elements states[0].struct_size bytes apart; in a
                            recurrent layer all fields but group, num_states and states are 0. Else NULL */
  int32_t latent_dim;    /* MLA: the first latent_dim dims of the row are also V; 1..head_dim; else 0 */
  int32_t total_kv_heads; /* kv heads of the layer in all ranks together (kvc_cache_config.tp_size), at most 65536; 0 = num_kv_heads *
                            tp_size, and 1 for MLA. If it is at least tp_size, num_kv_heads = total_kv_heads / tp_size: rank r
                            has the heads from r * num_kv_heads on. If it is less, num_kv_heads = 1: tp_size / total_kv_heads
                            consecutive ranks have the same head. recurrent: 0 */
} kvc_layer_config;

static inline void kvc_layer_config_init(kvc_layer_config *config) {
  kvc_layer_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

/* A group has a kind of row (what it stores for a token) and a visibility (which keys its queries see). Any kind of row goes
 * with any visibility, except that KVC_ROW_STATE needs KVC_VISIBLE_ALL. */
enum kvc_row {
  KVC_ROW_KV = 0,     /* K and V */
  KVC_ROW_LATENT = 1, /* multi-head latent attention (MLA): a token is one row [latent | rotary] for all heads, stored once.
                         K is the row (num_kv_heads 1, head_dim its width), and V is its first latent_dim dims */
  KVC_ROW_STATE = 2   /* recurrent: no keys. Each layer keeps state tensors of fixed size for a sequence, which a forward
                         loads and stores (kvc_forward_load_state). A page holds one state of each layer of the group. Needs
                         KVC_VISIBLE_ALL */
};

enum kvc_visibility {
  KVC_VISIBLE_ALL = 0,    /* a full group: a query at position p sees keys 0..p. Memory grows with the sequence */
  KVC_VISIBLE_WINDOW = 1, /* a sliding group: the query sees keys p-w+1..p (w = window_tokens, its own key included). Pages
                             that lie wholly before the window and the rollback margin are freed when a forward ends */
  KVC_VISIBLE_CHUNK = 2,  /* a chunked group: the query sees keys j <= p of its own chunk: j / c == p / c (c = chunk_tokens,
                             integer division). Pages of earlier chunks are freed in the same way */
  KVC_VISIBLE_ENCODER = 3 /* a cross group: the query sees all keys of the sequence's encoder sequence (image, audio, source
                             text). The encoder sequence has its own length, and is appended in its own forwards
                             (kvc_batch.encoder_group). Forks share it, and truncate does not change it. Layers of the group
                             must have KVC_ROPE_NONE */
};

/* Groups with tokens_per_row r > 1 (DeepSeek-V4, GLM-5.3, Qwen4). A sequence of L tokens has L / r rows (integer division). Row w
 * stands for the tokens [w r, (w + 1) r): it closes in the step that appends the last of them, and a query at position p sees it if
 * (w + 1) r <= p + 1. The caller computes the rows. A step takes only the rows that close in it: kvc_rows_closed gives their
 * number for one sequence of the batch. k and v of append and attend have these rows, in the order of the batch. q and
 * outputs have T rows as always. A layer for which no row closes needs no append. Entries of lists (indices,
 * kvc_forward_select) count rows.
 *
 *   groups[1].row = KVC_ROW_LATENT;  groups[1].tokens_per_row = 4;
 *   for (i = 0, rows = 0; i < n; i++) rows += kvc_rows_closed(lengths[i], append_lengths[i], 4);
 *   args.q = &q;  args.k = &closed;  args.out = &out;  args.lse = &lse;             // q [T, Hq, D], closed [rows, 1, D]
 *   kvc_forward_attend(cache, step, layer, &args, &error);
 *
 * Page lists, lengths, truncate, fork and prefixes count tokens, as in other groups. A page has the rows of page_size tokens, so r
 * divides page_size; pools and storages have page_size / r slots a page. When tokens are dropped, their rows are dropped
 * too. These rows close again when a later step appends the tokens again. To close a row again, the caller needs its inputs,
 * such as the keys of single tokens. A layer of a sliding group can keep them (window_tokens = the number of tokens from
 * which a row is computed). Then fork and truncate return EVICTED at a position whose inputs are gone.
 * docs/reference/rows.md has a program.
 *
 * Such a group needs KVC_VISIBLE_ALL, KVC_ROW_KV or KVC_ROW_LATENT, KVC_ROPE_NONE, and a cache with storage and without
 * KVC_CACHE_STREAMING. Steps with tree_parents or span_ids are UNSUPPORTED, as are PAST, SELF, alibi_slopes, rel_bias, w_uk,
 * tables, kvc_seq_import and graphs of such caches. */
static inline int64_t kvc_rows_closed(int64_t length, int64_t append_length, int64_t tokens_per_row) {
  return (length + append_length) / tokens_per_row - length / tokens_per_row;
}

/* Every group needs a layer (else INVALID_ARGUMENT), because page tables without one would waste memory. A pipeline stage
 * configures the layers that it runs, and their groups. */
typedef struct kvc_group_config {
  uint32_t struct_size;
  int32_t row;            /* KVC_ROW_* */
  int32_t visibility;     /* KVC_VISIBLE_* */
  int32_t tokens_per_row; /* r > 1: the group stores one row for each r tokens, see above; 0 = 1 */
  int64_t window_tokens;  /* KVC_VISIBLE_WINDOW: w, 1..2^30; else 0 */
  int64_t chunk_tokens;   /* KVC_VISIBLE_CHUNK: c, 1..2^30, need not be a multiple of the page size; else 0 */
  int64_t num_pages;      /* pages of this group's pool, below 2^31; 0 = from the cache's capacity. Recurrent: a sequence has
                             one page, one more in an open forward, and one for each checkpoint. While it has an uncommitted
                             tree, it has one more, and one for each node whose state is kept. 0 = max_sequences * (2 +
                             max_checkpoints + max_draft_states) */
} kvc_group_config;

static inline void kvc_group_config_init(kvc_group_config *config) {
  kvc_group_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

enum kvc_cache_flags {
  KVC_CACHE_NO_ROLLBACK = 1, /* no rollback margin: rollback_tokens 0 then means 0, not the default */
  KVC_CACHE_STREAMING = 2,   /* sequences may get streaming windows (kvc_seq_set_streaming). The cache then reserves
                                bookkeeping for page lists that grow without end, and scratch for two partial results of each
                                query (over the sinks, and over the window). Needs a full group */
  /* Rows of a forward that begin with the same pages (forks) can attend to these pages together: they are read once for all
   * the queries, and the result is merged with that of each row's own pages. By default a cost model decides. This applies
   * to full groups, and to rows with few new tokens. Results agree within rounding, and kvc_forward_describe counts these
   * "prefix groups". The next two flags override the cost model, for comparisons and tests; set at most one. (Hydragen;
   * FlashInfer's cascade.) */
  KVC_CACHE_NO_PREFIX_SHARING = 4,  /* never share: each row reads all of its keys */
  KVC_CACHE_SHARE_ALL_PREFIXES = 8, /* share wherever rows have a page in common */
  /* On one SIMD target, the bits of an output do not depend on the batch, the cut into steps, the threads, the page ids or
   * forks. The partial result over each 1,024 keys is computed alone, by one kernel, and partial results are merged from
   * left to right. Shared prefixes are not attended together. Decoding takes about twice as long:
   * benchmarks/results/README.md lists figures. */
  KVC_CACHE_DETERMINISTIC = 16,
  /* The cache has a prefix index: tokens that were published stay findable after their sequence is removed (section 12). */
  KVC_CACHE_PREFIX_INDEX = 32,
  /* A step, a fork and an attach clear the K and V of pages that they take, before anything else reads them. So no kernel,
   * not even one of the engine, reads another sequence's bytes in a new page. It costs one write of each new page. Needs
   * pools (KVC_STORAGE_OWN) */
  KVC_CACHE_ZERO_ON_FREE = 64
};

/* Which idle prefix the prefix index evicts first, among those of equal priority. A prefix is never evicted before a longer
 * one that continues it. benchmarks/results/README.md has hit rates of both policies. */
enum kvc_prefix_policy {
  KVC_PREFIX_POLICY_REUSE = 0, /* the least recently used one. But for each use after the first, three at most, the time of a
                                  prefix's last use counts as later by half of the usual age at eviction. So prefixes that
                                  were used once are evicted first */
  KVC_PREFIX_POLICY_LRU = 1    /* the least recently used one */
};

enum kvc_storage {
  KVC_STORAGE_OWN = 0, /* the cache has page pools for every layer, in its own memory or in the caller's
                          (kvc_layer_config.kv_storage) */
  KVC_STORAGE_NONE = 1 /* tables only, for engines with pools and kernels of their own. Sequences, pages and steps work as
                          always, but the cache has no K and V. kvc_cache_take_copies returns the copies of tokens that the
                          engine must make. append, attend, exports and imports are UNSUPPORTED. The layers' config gives the
                          size of a page (one layer for each group is enough). Recurrent states are in the cache, so
                          kvc_forward_load_state works */
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
  int64_t rollback_tokens;        /* tokens kept before every window, streaming windows too, so that truncate or fork can drop
                                     up to this many tokens (rejected drafts). At most 2^30; 0 = max_tree_nodes */
  /* Capacity: set exactly one of the three. (None is needed if every group except recurrent ones sets num_pages.) It sizes
   * full and cross groups. A sliding or chunked group gets max_sequences times the peak of one sequence, but never more
   * than the capacity. The peak is the window or chunk, plus rollback_tokens, plus one page, plus the larger of
   * max_batch_tokens and max_tree_nodes. */
  int64_t capacity_tokens;        /* tokens that a full group holds, rounded up to pages */
  int64_t capacity_pages;         /* the same in pages */
  int64_t capacity_bytes;         /* all pools of all layers together fit in this many bytes */
  int32_t max_tree_nodes;         /* uncommitted tree nodes of a sequence since its last commit, 1..1024; 0 = 64 */
  int32_t max_checkpoints;        /* checkpoints of one sequence, 1..1024; 0 = 1. Only with a recurrent group */
  int32_t storage;                /* KVC_STORAGE_* */
  int32_t prefix_policy;          /* KVC_CACHE_PREFIX_INDEX: KVC_PREFIX_POLICY_*. Else 0 */
  int64_t prefix_pages;           /* KVC_CACHE_PREFIX_INDEX: the largest number of pages of tokens that the index holds in
                                     each group, below 2^31; 0 = the pages of the largest group. Else 0 */
  int64_t prefix_checkpoints;     /* KVC_CACHE_PREFIX_INDEX with a recurrent group: the largest number of positions whose
                                     states the index holds, below 2^31; 0 = max_sequences. A recurrent group without
                                     num_pages gets this many pages in addition. Else 0 */
  const uint8_t *fingerprint;     /* borrowed; nullable; [32]: names the model (weights, quantisation, tokenizer), as in
                                     kvc_page_keys_args. Without it, the pages of this cache have no keys that others could
                                     use, so there are no events */
  int64_t events_capacity;        /* KVC_CACHE_PREFIX_INDEX and a fingerprint: events of the index that the cache keeps for readers,
                                     below 2^31; 0 = none. Else 0 */
  int32_t max_draft_states;       /* how many nodes of an uncommitted tree, from its first on, keep their recurrent states,
                                     so that each of them can be committed; 0..63, at most max_tree_nodes. Only with a
                                     recurrent group */
  int32_t tp_size;                /* ranks of tensor parallelism, each with a cache of its own for its share of the kv heads;
                                     1..4096; 0 = 1. Ranks store objects of their own in tiers, even with one fingerprint. A
                                     transfer may go to caches of another tp_size */
  int32_t tp_rank;                /* of this cache, in [0, tp_size) */
  uint32_t reserved;              /* 0 */
} kvc_cache_config;

static inline void kvc_cache_config_init(kvc_cache_config *config) {
  kvc_cache_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

/* What a cache with a given config would need. */
typedef struct kvc_estimate {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t num_pages;         /* pages (all groups: their sum) */
  int64_t page_bytes;        /* bytes of one page in all layers of the group (all groups: 0) */
  int64_t token_bytes;       /* bytes that one token takes in all layers (of the group) while it is stored */
  int64_t storage_bytes;     /* pools; with KVC_STORAGE_NONE those of recurrent groups alone */
  int64_t bookkeeping_bytes; /* host memory for page tables and sequences */
  int64_t scratch_bytes;     /* host and device memory for the largest batches (all groups only) */
} kvc_estimate;

static inline void kvc_estimate_init(kvc_estimate *estimate) {
  kvc_estimate zero = KVC_ZERO_STRUCT;
  *estimate = zero;
  estimate->struct_size = (uint32_t)sizeof(zero);
}

/* Says what kvc_cache_create would allocate, or why it would refuse. It allocates no pool and adopts nothing.
 *   group     group index, or -1 for the whole cache
 *   estimate  filled
 * Errors: as kvc_cache_create, without OUT_OF_MEMORY for pools. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_estimate(kvc_context *context, const kvc_cache_config *config, int32_t group,
                                      kvc_estimate *estimate, kvc_error *error);

/* Creates a cache. It reserves the pools of every layer and all bookkeeping; nothing grows later.
 *   config   borrowed, arrays included; storages in it are adopted
 *   cache    returned; released by kvc_cache_destroy
 * Pools are zeroed on first touch.
 * Errors: INVALID_ARGUMENT, OUT_OF_RANGE, UNSUPPORTED, DTYPE, DEVICE, RANK, SHAPE, STRIDE, DUPLICATE (a storage given twice,
 * or two that overlap), each with the layer or group in error->index (a group also in error->group); STRUCT_SIZE
 * (error->index = the element), OUT_OF_MEMORY (also: the pools of all layers together exceed the host's memory and swap;
 * required and available in bytes). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_create(kvc_context *context, const kvc_cache_config *config, kvc_cache **cache,
                                    kvc_error *error);

/* Aborts open forwards and releases the cache. Pools stay allocated as long as exported views of them exist. NULL does
 * nothing.
 * Threads: any, once, and no other call may be inside the cache. Since 0.1. */
KVC_API void kvc_cache_destroy(kvc_cache *cache);

/* Removes every sequence, everything that the prefix index holds, and every pin. Their ids become stale, and the memory of the
 * pools stays reserved.
 * Errors: BUSY (a forward is open). Threads: any. The cost grows with what it frees. Since 0.1. */
KVC_API kvc_status kvc_cache_clear(kvc_cache *cache, kvc_error *error);

/* ============================================================================================
 * 6  Sequences
 * ============================================================================================ */

/* Id of a sequence: opaque, never 0, below 2^63. Using a stale id is an error, never undefined behaviour. */
typedef uint64_t kvc_seq;

/* Adds n empty sequences; takes no page.
 *   sequences  [n], filled
 * Errors: TOO_MANY_SEQUENCES. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_add(kvc_cache *cache, int64_t n, kvc_seq *sequences, kvc_error *error);

/* Removes n sequences, and frees every page that no other sequence shares. A sequence in an open forward is gone for every
 * later call; its pages are freed when that forward closes.
 *   sequences  [n], distinct, any order
 * Errors (nothing removed): STALE_ID, DUPLICATE with the index. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_remove(kvc_cache *cache, int64_t n, const kvc_seq *sequences, kvc_error *error);

/* Forks n children. Child i holds the first positions[i] tokens of parents[i]. It shares every whole page, and copies a
 * partial last one. A parent with an uncommitted tree is refused. All children are made, or none.
 *   parents    [n]; one parent may occur often
 *   positions  nullable: every child is as long as its parent. [n]; -1 = the parent's length, 0 = empty
 *   children   [n], filled
 *   stream     the device's stream for page copies; NULL on the CPU
 * The cost grows with the logarithm of the length, not the length.
 * Errors: STALE_ID, BUSY, UNCOMMITTED, OUT_OF_RANGE, EVICTED (see kvc_seq_nearest_position), TOO_MANY_SEQUENCES, OUT_OF_PAGES
 * (as kvc_forward_begin, for all children), ORDER (KVC_STORAGE_NONE: too many copies wait). Threads: any. Since 0.1.
 * From: persistent vectors; page sharing as in vLLM's PagedAttention. */
KVC_API kvc_status kvc_seq_fork(kvc_cache *cache, int64_t n, const kvc_seq *parents, const int64_t *positions,
                                kvc_seq *children, void *stream, kvc_error *error);

/* Drops the tokens from lengths[i] on, also in shared pages, and every uncommitted tree node. It needs no page. If the new
 * end lies inside a shared page, the next forward that appends copies the kept part of that page, and kvc_cache_can_fit
 * counts the copy. Each sequence counts its own copy: if all sequences that share the page append in one forward, the forward
 * takes a new page for each of them. If they append in separate forwards, the last of them keeps the page.
 *   sequences  [n], distinct
 *   lengths    [n], 0..the sequence's length
 * Errors (nothing truncated): STALE_ID, BUSY, DUPLICATE, OUT_OF_RANGE, EVICTED. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_truncate(kvc_cache *cache, int64_t n, const kvc_seq *sequences, const int64_t *lengths,
                                    kvc_error *error);

/* Gives lengths in tokens, without the tokens of open forwards and without uncommitted tree nodes. O(1) a sequence.
 *   lengths  [n], filled
 * Errors: STALE_ID. Threads: any, also while a forward computes. Since 0.1. */
KVC_API kvc_status kvc_seq_lengths(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *lengths,
                                   kvc_error *error);

/* Gives the page ids of one sequence in one group, in order. Entry i holds positions [i * page_size, (i+1) * page_size).
 * Entry i is -1 if its page was freed because the page left a window, or lies between the sinks and the window of a stream.
 * Pages of an open forward and of an uncommitted tree are not included.
 *   pages     nullable if capacity is 0; [capacity], filled
 *   count     nullable: number of entries, also on BUFFER_TOO_SMALL
 * Errors: STALE_ID, OUT_OF_RANGE (group), BUFFER_TOO_SMALL (never for capacity 0). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_pages(kvc_cache *cache, kvc_seq sequence, int32_t group, int32_t *pages, int64_t capacity,
                                 int64_t *count, kvc_error *error);

/* Gives the positions nearest to `position` where fork and truncate work in every group. They never work at a position in a
 * freed page, even if no query there would read that page. With recurrent states only 0, checkpoints (kvc_seq_checkpoint)
 * and the end work.
 *   position         0..the sequence's length
 *   before           nullable: the largest such position <= position (0 always works)
 *   after            nullable: the smallest such position >= position; -1 = none
 * Errors: STALE_ID, OUT_OF_RANGE. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_nearest_position(kvc_cache *cache, kvc_seq sequence, int64_t position, int64_t *before,
                                            int64_t *after, kvc_error *error);

/* Says how many tokens each sequence, alone, could append in one forward now: 0..max_batch_tokens. For a sequence with an
 * uncommitted tree it counts tree nodes. It considers the room in a partial last page, shared pages that must be copied,
 * windows, and the free pages of every group, with those that can be evicted from the prefix index.
 *   tokens  [n], filled; 0 for a sequence in an open forward
 * Errors: STALE_ID. Threads: any. O(1) a sequence and group. Since 0.1. */
KVC_API kvc_status kvc_seq_max_append(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *tokens,
                                      kvc_error *error);

/* Says, for each sequence, how many pages of a group would become available if this sequence alone were removed. These are
 * the pages that no other sequence, pin, save or load holds. A page that the prefix index also holds counts, because it can
 * be evicted then. The pages of an open forward, of an uncommitted tree and of checkpoints count too. An engine that is
 * short of pages compares sequences by this number to choose which one to remove.
 *   pages  [n], filled
 * Errors: STALE_ID, OUT_OF_RANGE (group). Threads: any. O(pages) a sequence. Since 0.1. */
KVC_API kvc_status kvc_seq_exclusive_pages(kvc_cache *cache, int32_t group, int64_t n, const kvc_seq *sequences,
                                           int64_t *pages, kvc_error *error);

enum kvc_streaming_flags {
  KVC_STREAMING_PREFIX_IS_SINK = 1 /* all tokens that a sequence holds now are sinks: s = max(sink_tokens, its length). Not
                                      allowed where the window is 0 */
};

/* Gives n sequences a streaming window, so that they can continue without end in bounded memory. With s sink tokens and a
 * window w, a query at position p of a full group sees keys j < s and max(s, p-(w-s)+1) <= j <= p. These are w keys, the
 * query's own included, however the tokens are divided into steps. Sliding and chunked groups keep their own rules.
 *   Positions  Attention works as if the kept tokens were contiguous, and no key is rotated again. attend rotates q at p for
 *              the window and at min(p, w-1) for the sinks, and merges the two results. Distances for ALiBi follow the same
 *              rule. If the caller rotates q, the scores of sinks follow from their true distance. Lengths and positions
 *              count every token, to 2^30.
 *   Memory     Pages that lie wholly between the sinks and the window (with its rollback margin) lose this sequence's
 *              reference when the window is set, and when a forward ends. A sequence then holds at most the
 *              pages of w + rollback_tokens + the tokens of a step, plus two pages. If a later window has
 *              fewer sinks, the pages of the former sinks are freed when the next page leaves the window.
 *   Rollback   fork and truncate work within the pages of the sinks, and where the window of the next query is complete
 *              (kvc_seq_nearest_position). Elsewhere they return EVICTED.
 * A fork has its parent's window, truncate keeps it, and a new sequence has none.
 *   sequences      [n], distinct
 *   sink_tokens    nullable: no sinks. [n]: s, 0..2^30
 *   window_tokens  [n]: w, above s, at most 2^30; 0 = streaming ends, and s must be 0
 *   flags          KVC_STREAMING_* or 0
 * Errors (nothing changed), each with the index: STALE_ID, DUPLICATE, BUSY, UNCOMMITTED, INVALID_ARGUMENT (w <= s; other
 * values), EVICTED (keys that the next query would see are gone). Also UNSUPPORTED (a cache without KVC_CACHE_STREAMING).
 * Threads: any. The cost grows with what it frees. Since 0.1. From: attention sinks as in StreamingLLM (Xiao et al.). */
KVC_API kvc_status kvc_seq_set_streaming(kvc_cache *cache, int64_t n, const kvc_seq *sequences,
                                         const int64_t *sink_tokens, const int64_t *window_tokens, uint32_t flags,
                                         kvc_error *error);

/* Gives the streaming windows of n sequences; 0 and 0 for a sequence without one.
 *   sink_tokens    [n], filled: s, including the prefix that KVC_STREAMING_PREFIX_IS_SINK added
 *   window_tokens  [n], filled: w
 * Errors: STALE_ID. Threads: any, also while a forward computes. O(1) a sequence. Since 0.1. */
KVC_API kvc_status kvc_seq_get_streaming(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *sink_tokens,
                                         int64_t *window_tokens, kvc_error *error);

enum kvc_rope_set { KVC_ROPE_SET_SHORT = 0, KVC_ROPE_SET_LONG = 1 };

/* Chooses which factor set of longrope rotates the keys and queries of n sequences. A new sequence has the short set, and a
 * fork has its parent's. Choose the long set if a sequence will pass original_max_position. In layers that rotate on append,
 * the first stored key fixes the choice, and sequences with different sets never share a page. Layers that rotate on read
 * change to the long set by themselves, in the step that passes original_max_position.
 *   sequences  [n]
 *   set        KVC_ROPE_SET_*
 * Errors (nothing changed): STALE_ID, BUSY, INVALID_ARGUMENT (set), ORDER (a sequence is not empty, and a layer with longrope
 * rotates on append), UNSUPPORTED (no layer has longrope). Threads: any. Since 0.1. From: LongRoPE, as in Phi-3. */
KVC_API kvc_status kvc_seq_set_rope(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int32_t set,
                                    kvc_error *error);

/* Keeps the recurrent states that n sequences have now, so that fork and truncate work later at their present lengths. Use it
 * before drafts that may be rejected, or at the end of a prompt that others will share. It costs a reference and no copy;
 * the state stays in its page. Children inherit the checkpoints up to their position, and truncate drops those after it.
 * Beyond max_checkpoints, the oldest one is dropped.
 *   sequences  [n], distinct
 * Errors (nothing kept): UNSUPPORTED (no recurrent group), STALE_ID, DUPLICATE, BUSY, UNCOMMITTED. Threads: any.
 * Since 0.1. */
KVC_API kvc_status kvc_seq_checkpoint(kvc_cache *cache, int64_t n, const kvc_seq *sequences, kvc_error *error);

/* Gives the lengths of encoder sequences in a cross group, without the tokens of open forwards. O(1) a sequence.
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
  const kvc_seq *sequences;       /* [num_sequences], distinct; 0 = an inert row, whose tokens are padding */
  const int32_t *append_lengths;  /* [num_sequences], new tokens of each row, >= 1; an inert row may have 0 */
  int32_t layer_begin;            /* the forward covers layers [layer_begin, layer_end); both 0 = all. Every layer in this
                                     range that stores K and V must be appended before kvc_forward_end. A pipeline stage, or
                                     a draft that exits early, gives its own range. The other layers then lack the forward's
                                     tokens. Until truncate drops these tokens, those layers do not export them, and a range
                                     with such a layer is refused (ORDER) */
  int32_t layer_end;
  const int32_t *tree_parents;    /* nullable: no trees. [T]: the parent node of each new token, or KVC_TREE_ROOT; in a plain
                                     row KVC_TREE_NONE for all tokens (see kvc_seq_commit). Ignored in inert rows */
  const int32_t *span_ids;        /* nullable: no spans. [T]: adjacent tokens of one row with the same id > 0 see each other,
                                     later ones too (an image within a text); 0 = no span. Windows and chunks stay as they
                                     are: a query sees no token of its span that its window or chunk hides. A span must be
                                     whole within one forward. Ignored in inert rows */
  int32_t encoder_group;          /* 0 = the tokens belong to the sequences. 1 + the index of a cross group: they are appended
                                     to the encoder sequences in that group. Its layers accept kvc_forward_append only, and
                                     the lengths of the sequences stay the same */
  uint32_t reserved;              /* 0 */
  kvc_forward graph;              /* 0 = none: the forward gets its own id. Else a graph from kvc_graph_create: the forward
                                     is open in it, and has the graph's id */
} kvc_batch;

static inline void kvc_batch_init(kvc_batch *batch) {
  kvc_batch zero = KVC_ZERO_STRUCT;
  *batch = zero;
  batch->struct_size = (uint32_t)sizeof(zero);
}

/* Says whether kvc_forward_begin would succeed now, with the same status and numbers, and changes nothing.
 * Errors: as kvc_forward_begin. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_can_fit(kvc_cache *cache, const kvc_batch *batch, kvc_error *error);

/* Begins a step: checks the batch, reserves every page for its new tokens in every group, and plans the work. Either
 * everything is reserved, or nothing changes. The T rows of q, k and v are the rows of the batch one after another, with
 * append_lengths[i] tokens each.
 *   batch    borrowed, arrays included
 *   stream   the device's stream for the whole forward; NULL on the CPU
 *   forward  filled; closed by kvc_forward_end or kvc_forward_abort
 * The cost grows with the batch and its new pages, not the context.
 * Errors with the row in error->index:
 *   STALE_ID, DUPLICATE, BUSY (also: a forward is open in the graph), TREE_TOO_LARGE
 *   UNCOMMITTED         plain or encoder tokens for a sequence with a tree
 *   INVALID_ARGUMENT    encoder_group is no cross group, or comes with trees or spans; a span id below 0, or in a tree
 *   OUT_OF_PAGES        error->index is the first row that does not fit; those before it fit. required and available are
 *                       pages of error->group for the whole batch. Idle pages of the prefix index count as available: begin
 *                       evicts them first. An abort does not bring them back
 *   OUT_OF_RANGE        a row that would pass 2^30 tokens
 *   ORDER               a layer in range lacks tokens of the row; required = the sequence's tokens, available = those that
 *                       the layer holds
 * Other errors: BATCH_TOO_LARGE (for the cache, or for the graph), TOO_MANY_FORWARDS, OUT_OF_RANGE (layers), ORDER
 * (KVC_STORAGE_NONE: copies wait to be taken). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_begin(kvc_cache *cache, const kvc_batch *batch, void *stream, kvc_forward *forward,
                                     kvc_error *error);

enum kvc_append_flags {
  KVC_APPEND_AS_STORED = 1 /* k is already as the cache stores it, and is not rotated. For a quantised layer, k and v may then
                              both be stored bytes, of its dtype or uint8 (uint4: D / 2 bytes a row; float4: D / 2 + D / 16) */
};

typedef struct kvc_append_args {
  uint32_t struct_size;
  uint32_t flags;     /* KVC_APPEND_* */
  const DLTensor *k;  /* borrowed; [>= T, Hkv, D] float32, float16 or bfloat16; innermost stride 1 */
  const DLTensor *v;  /* borrowed; [>= T, Hkv, Dv], as k. KVC_LAYER_KEYS_ONLY: NULL. MLA: NULL, and k has whole rows;
                         or v has the latent parts [>= T, 1, latent_dim], and k the rotary parts
                         [>= T, 1, D - latent_dim] */
  const DLTensor *rope_cos_sin; /* nullable: the layer's rope fields and the tokens' positions give the angles. Borrowed;
                                   [>= T, 2, rope_dim / 2] float32, compact: cos, then sin of each pair's angle, times any
                                   attention factor. For positions that only the caller has (M-RoPE, dynamic NTK:
                                   docs/reference/rope.md). Needs KVC_ROPE_ON_APPEND. Give the layer's attend the same
                                   table */
  const DLTensor *k_scale; /* borrowed; [>= T, Hkv] float32: the scales of stored bytes of int8 and uint4. Else NULL: stored
                              bytes of float8 and float4 use the layer's scales */
  const DLTensor *v_scale; /* the same for v */
} kvc_append_args;

static inline void kvc_append_args_init(kvc_append_args *args) {
  kvc_append_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Stores a layer's new K and V without computing attention. They are rounded or quantised to the layer's dtype, and rotated if
 * the layer's config says so.
 *   layer  a layer of the forward; each once, in any order
 * Errors: STALE_ID, BUSY, ORDER (appended already), CANCELLED, OUT_OF_RANGE, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED
 * (KVC_STORAGE_NONE), INVALID_ARGUMENT (a layer that reads another's K and V, or is recurrent; a cross layer outside of
 * forwards of its encoder_group, any other layer within them). An error of the device closes the forward, as
 * kvc_forward_abort does. Threads: any, one at a time for each forward. Since 0.1. */
KVC_API kvc_status kvc_forward_append(kvc_cache *cache, kvc_forward forward, int32_t layer, const kvc_append_args *args,
                                      kvc_error *error);

enum kvc_attend_flags {
  KVC_ATTEND_NON_CAUSAL = 1, /* a query sees every key of its row, also those of later tokens. A window still limits the
                                first key, and a chunk the first and the last. Nodes of a tree see their ancestors only */
  KVC_ATTEND_PAST = 2,       /* only keys of earlier steps */
  KVC_ATTEND_SELF = 4,       /* only keys of this step's tokens. To compute the two parts apart, call attend twice for a
                                layer, and merge the results by their LSE (kvc_merge_states) */
  KVC_ATTEND_ALIBI_SIGNED = 8, /* slope * (p_q - p_k) is subtracted from scores, so keys after the query score higher. It
                                 matters where queries see such keys: with NON_CAUSAL, and in spans */
  KVC_ATTEND_REL_BIAS_ZERO = 16, /* rel_bias adds 0 at distances that it has no entry for */
  KVC_ATTEND_NO_SPANS = 32,      /* this layer ignores the step's spans */
  KVC_ATTEND_STEP_WINDOW = 64    /* the window, or chunk, of every query begins where the window, or chunk, of the row's
                                    first new token begins. So with NON_CAUSAL all queries of a step see the same keys.
                                    UNSUPPORTED in steps with trees */
};

typedef struct kvc_attend_args {
  uint32_t struct_size;
  uint32_t flags;       /* KVC_ATTEND_*; PAST and SELF exclude each other */
  const DLTensor *q;    /* borrowed; [>= T, Hq, D] float32, float16 or bfloat16; innermost stride 1 (MLA: see w_uk) */
  const DLTensor *k;    /* nullable, with v: the layer was appended already, reads another layer's K and V
                           (kvc_layer_config.kv_layer), or is a cross layer. Borrowed; as kvc_append_args */
  const DLTensor *v;    /* nullable, with k; as kvc_append_args.v (MLA: nullable alone) */
  const DLTensor *out;  /* borrowed, its data is written; [>= T, Hq, Dv], any of the three dtypes. Must not overlap q, k or v.
                           Tokens of inert rows, and rows from T on, are not written */
  const DLTensor *lse;  /* nullable; borrowed, written; [>= T, Hq] float32: natural logarithm of the sum of exponentials of
                           the scores, the sink's included; rows as in out */
  double softmax_scale; /* 1e-30..1e30; 0 = the layer's */
  double softcap;       /* scores become softcap * tanh(score / softcap); 1e-6..1e30; 0 = none */
  const DLTensor *alibi_slopes; /* nullable; borrowed; [Hq] float32: slope * |p_q - p_k| is subtracted from scores (see
                                   KVC_ATTEND_ALIBI_SIGNED) */
  const DLTensor *sinks; /* nullable; borrowed; [Hq] float32: a logit of each head that takes part in the softmax, without a
                            value. It is neither scaled nor capped. If a layer is computed in two parts, give it to one of
                            them */
  const DLTensor *rope_cos_sin; /* nullable; as kvc_append_args.rope_cos_sin, for q, and for k if it is given. UNSUPPORTED in
                                   a full group with a sequence longer than its streaming window (in a deterministic cache:
                                   with any sequence that has sinks), because q is rotated twice there */
  /* MLA: the model's up-projections of K and V. If both are NULL, q and out are in latent space, [T, Hq, D] and
   * [T, Hq, latent_dim]. Else the library projects: q is [T, Hq, Dn + R] and out is [T, Hq, Dv], where R is the number of
   * rotary dims, D - latent_dim. kv_b_proj.weight seen as [Hq, Dn + Dv, latent_dim] holds both: w_uk is rows 0..Dn-1 of each
   * head, and w_uv is the rest. */
  const DLTensor *w_uk; /* nullable, with w_uv. Borrowed; [Hq, Dn, latent_dim] float32, float16 or bfloat16; innermost
                           stride 1; Dn 1..1152 - R */
  const DLTensor *w_uv; /* nullable, with w_uk. Borrowed; [Hq, Dv, latent_dim], as w_uk; Dv 1..1024 */
  const DLTensor *indices; /* nullable: no lists. Borrowed; [>= T, 1 or Hkv, k] int32, rows as in q, innermost stride 1: the list
                              of each query, for all heads or for each kv head. k * index_block <= KVC_MAX_LISTED_KEYS */
  int32_t index_block;     /* b: an entry i is the tokens [i * b, (i + 1) * b). Any b from 1 on; 0 = 1 */
  int32_t reserved;        /* 0 */
  const DLTensor *rel_bias; /* nullable; borrowed; [Hq, E] or [>= T, Hq, E] float32, innermost stride 1: the head's entry at
                               d = p_q - p_k is added to the score. E is 1 or more. A larger d gets the last entry, and a
                               negative d the first (but see KVC_ATTEND_REL_BIAS_ZERO) */
  const DLTensor *key_bias; /* nullable; borrowed; [>= num_sequences, >= keys, 1 or Hkv] float32: entry [r, j] is added to
                               scores of key j in row r. Keys are numbered as in indices. `keys` is the largest number of
                               tokens, new ones included, of the rows that have queries */
  const DLTensor *mask; /* nullable; borrowed; [>= T, >= keys] or [>= T, 1 or Hkv, >= keys] bool or uint8, innermost stride 1: 0
                           hides key j from the query. A mask cannot show a key that the layer hides. With NON_CAUSAL, in a
                           layer without window and chunks, the mask alone decides what a query sees. Rows and keys as in q
                           and key_bias */
} kvc_attend_args;

enum {
  KVC_MAX_LISTED_KEYS = 65536 /* tokens that a list may name */
};

static inline void kvc_attend_args_init(kvc_attend_args *args) {
  kvc_attend_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Stores a layer's new K and V, and computes out = softmax(masked scores) V over everything stored, the new tokens included.
 *   layer  a layer of the forward; each once, or once with PAST and once with SELF; in any order
 * A score is scale * q.k, to which softcap, ALiBi, rel_bias and key_bias are applied in this order
 * (docs/reference/biases.md). Positions are absolute, in partial calls too. Scores, sums and partial outputs are float32.
 * Softmax weights are float32, or have 16 bits if q has 16 bits. K and V of new tokens too are read as stored, after
 * rounding. A row that sees nothing has output 0 and LSE -inf (or its sink's logit). An MLA layer with up-projections
 * absorbs them into q and out where queries are few. Where they are many, it decompresses K and V of the new tokens. Both
 * give the same result within rounding (docs/reference/mla.md).
 * With indices, a query attends to those listed keys that it would see without a list. Entry i is token i of the sequence
 * (in a cross layer: of the encoder sequence), counted from its first token. Tree nodes are counted in the order in which
 * they were appended. So one list serves several layers. A list is a set: its order is free, and an entry that occurs twice
 * counts once. Negative entries are padding, at any place. A list that names no visible key gives output 0 and LSE -inf, as
 * above. K and V of keys that no list names are not read. Lists in ascending order are read fastest
 * (docs/reference/lists.md).
 * Errors: those of kvc_forward_append, and
 *   ORDER             the layer was not appended, and k and v are NULL (PAST needs neither); the same part was attended before;
 *                     the layer reads the K and V of a layer outside of the forward's range; a forward of encoder tokens
 *   OUT_OF_RANGE      softmax_scale, softcap, index_block, or k * index_block; on the CPU, an entry whose first token is not
 *                     in the sequence, the new tokens included (error->index = its row). On a GPU such an entry names no key
 *   SHAPE             also: key_bias or mask has fewer keys than a row (error->index = the row)
 *   UNSUPPORTED       indices on a backend that does not attend over lists; STEP_WINDOW with trees; key_bias
 *                     or mask in a graph whose calls a device replays
 *   INVALID_ARGUMENT  PAST with SELF; PAST or SELF in a cross layer (all its keys are past); a recurrent layer; a layer with
 *                     KVC_LAYER_KEYS_ONLY; out or lse shares an element with the other, or with a tensor that is read;
 *                     REL_BIAS_ZERO without rel_bias; on the CPU, a NaN or +infinity in rel_bias or key_bias (-infinity
 *                     hides a key)
 *   CANCELLED         after kvc_forward_cancel, when the running work items are done. out is then undefined, and k and v may
 *                     have been stored
 * Threads: any, one at a time for each forward. Since 0.1.
 * From: latent attention and its absorbed form as in DeepSeek-V2; online softmax as in FlashAttention-2; split-KV and merge by
 * LSE as in Flash-Decoding; softcap as in Gemma 2, slopes as in ALiBi (Press et al.), sinks as in gpt-oss. */
KVC_API kvc_status kvc_forward_attend(kvc_cache *cache, kvc_forward forward, int32_t layer, const kvc_attend_args *args,
                                      kvc_error *error);

enum kvc_select_rule {
  KVC_SELECT_RELU_SUM = 0, /* a token's score is the sum over heads h of weights[h] * max(0, q[h].k): one list a query */
  KVC_SELECT_EACH_HEAD = 1 /* a token's score in head h is q[h].k: a list for each head */
};

typedef struct kvc_select_args {
  uint32_t struct_size;
  int32_t rule;            /* KVC_SELECT_* */
  const DLTensor *q;       /* borrowed; [>= T, Hq, D] float32, float16 or bfloat16; innermost stride 1. Head h scores the keys of
                              head h / (Hq / Hkv) */
  const DLTensor *weights; /* KVC_SELECT_RELU_SUM: borrowed; [>= T, Hq] float32, of any sign; nullable: all 1. Else NULL */
  const DLTensor *indices; /* borrowed, written; [>= T, lists, k] int32, innermost stride 1; lists is 1, or Hq with
                              KVC_SELECT_EACH_HEAD. k * index_block <= KVC_MAX_LISTED_KEYS. It must not overlap another
                              tensor. Tokens of inert rows, and rows from T on, are not written */
  const DLTensor *candidates;   /* nullable: all tokens that the query sees. Borrowed; [>= T, 1 or lists, n] int32, as
                                   kvc_attend_args.indices: only tokens that it names are scored */
  const DLTensor *rope_cos_sin; /* nullable; as kvc_append_args.rope_cos_sin, for q */
  int32_t index_block;     /* b: an entry i is the tokens [i * b, (i + 1) * b), and its score is the largest of those that the
                              query sees. Any b from 1 on; 0 = 1 */
  int32_t candidate_block; /* the same for entries of candidates; 0 = 1 */
  int32_t first_blocks;    /* this many entries at the start of the sequence are always chosen. They count towards k */
  int32_t last_blocks;     /* the same for this many entries that end with the one of the query's own token. first_blocks +
                              last_blocks is at most k */
} kvc_select_args;

static inline void kvc_select_args_init(kvc_select_args *args) {
  kvc_select_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Chooses, for each query, the k tokens or blocks with the highest scores among those that the query sees. The result can be
 * kvc_attend_args.indices of other layers in the same forward.
 *   layer  a layer with KVC_LAYER_KEYS_ONLY, after its append in this forward. Any number of calls
 * Windows, chunks, spans and trees hide tokens as in kvc_forward_attend. Scores are float32. They are not scaled, because a
 * positive factor changes no choice. Among equal scores, the lowest entry is chosen. A score that is NaN is lower than all
 * others; in KVC_SELECT_RELU_SUM max(0, NaN) is 0. A list is in ascending order. If fewer than k entries have a token that
 * the query sees, all of them are chosen, and the rest of the list is -1. The choice does not depend on the batch, the cut
 * into steps or the threads (docs/reference/select.md).
 * Errors: STALE_ID, BUSY, CANCELLED, NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, and
 *   ORDER             the layer was not appended in this forward; the forward's stream is being captured
 *   OUT_OF_RANGE      layer; index_block, candidate_block or k * index_block; first_blocks and last_blocks; on the CPU, an
 *                     entry of candidates whose first token is not in the sequence (error->index = its row of the batch)
 *   UNSUPPORTED       a backend that does not select; a sequence longer than its streaming window; no storage
 *   INVALID_ARGUMENT  rule, or weights with KVC_SELECT_EACH_HEAD; a layer without KVC_LAYER_KEYS_ONLY; indices shares an element
 *                     with another tensor
 * After CANCELLED, indices is undefined. Threads: any, one at a time for each forward. Since 0.1.
 * From: the lightning indexer of DeepSeek-V3.2, and block selection as in MiniMax-M3. */
KVC_API kvc_status kvc_forward_select(kvc_cache *cache, kvc_forward forward, int32_t layer, const kvc_select_args *args,
                                      kvc_error *error);

/* Copies a state tensor of a recurrent layer out of the cache. Row i of the tensor becomes the state that sequence i of the
 * batch had before this forward; the fill value (kvc_state_config) for an empty sequence. Rows of inert rows are not written.
 * It may be called any number of times.
 *   layer   a recurrent layer of the forward
 *   state   0..num_states - 1
 *   token   -1 = the state before each row's first token; i = before its token i, 0..max_draft_states - 1. The state before
 *           a tree node is the state after its parent, which this forward may have stored. Rows without such a token, or
 *           without its state, are not written
 *   tensor  borrowed, its data is written; [>= num_sequences, shape...] of the state's dtype; any stride between rows, and
 *           each row compact
 * Errors: STALE_ID, BUSY, CANCELLED, OUT_OF_RANGE (layer, state, token), INVALID_ARGUMENT (the layer is not recurrent, a forward of
 * encoder tokens), DTYPE, DEVICE, RANK, SHAPE, STRIDE. An error of the device closes the forward, as kvc_forward_abort does.
 * Threads: any, one at a time for each forward. Since 0.1. */
KVC_API kvc_status kvc_forward_load_state(kvc_cache *cache, kvc_forward forward, int32_t layer, int32_t state, int32_t token,
                                          const DLTensor *tensor, kvc_error *error);

/* Copies a state tensor of a recurrent layer into the cache. Row i becomes the state of sequence i of the batch when this
 * forward ends. After an abort the sequence has the state that it had. Store every state of every recurrent layer in range
 * before kvc_forward_end. If a state is stored twice, the second one counts.
 * Drafts: with max_draft_states, a cache also keeps the states after uncommitted nodes, and kvc_seq_commit keeps that of its
 * leaf. For drafts of 4 tokens, with states [num_sequences, 4, shape...], call it for tokens 0 to 3, each with one slice.
 *   token   -1 = the state after each row's last token; i = after its token i, 0..max_draft_states - 1. Rows that have no
 *           such token are not read. Rows whose state is not kept are not read either. A state is kept after a row's last
 *           token, and after nodes below max_draft_states
 *   tensor  borrowed; as kvc_forward_load_state's
 * Errors, threads: as kvc_forward_load_state. Since 0.1. From: a state for each draft as in vLLM's speculative Mamba. */
KVC_API kvc_status kvc_forward_store_state(kvc_cache *cache, kvc_forward forward, int32_t layer, int32_t state, int32_t token,
                                           const DLTensor *tensor, kvc_error *error);

typedef struct kvc_merge_args {
  uint32_t struct_size;
  int32_t num_parts;                /* 1 or more */
  const DLTensor *const *outputs;   /* [num_parts], borrowed; each [T, H, Dv] float32, float16 or bfloat16; innermost
                                       stride 1 */
  const DLTensor *const *lses;      /* [num_parts], borrowed; each [T, H] float32 */
  const DLTensor *out;              /* borrowed, written; [T, H, Dv] of any of the three dtypes: T, H and Dv are its
                                       shape. It may be outputs[0] itself; must not overlap other parts */
  const DLTensor *lse;              /* nullable; borrowed, written; [T, H] float32; it may be lses[0] itself */
} kvc_merge_args;

static inline void kvc_merge_args_init(kvc_merge_args *args) {
  kvc_merge_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Merges results of attention over disjoint sets of keys, by their LSE, from left to right. The result is that of attention over
 * all the keys. A part with LSE -inf saw nothing, and its output is not read. If every part saw nothing, the result is 0 and
 * -inf. Tensors are on the context's device. Parts may have more than T rows.
 *   stream  the device's stream; NULL on the CPU
 * Errors: INVALID_ARGUMENT (num_parts), NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE; error->index = the part.
 * Threads: any. Since 0.1. From: split-KV as in Flash-Decoding; cascade merge as in FlashInfer. */
KVC_API kvc_status kvc_merge_states(kvc_context *context, const kvc_merge_args *args, void *stream, kvc_error *error);

/* Closes a step and keeps its tokens. Lengths grow, pages that left a window are freed, and removed sequences are released.
 * Nodes of trees stay uncommitted until kvc_seq_commit.
 * Every layer in range must have stored its tokens, because its pages may still hold tokens of another sequence. Layers that a
 * step does not run must lie outside of its range (kvc_batch.layer_begin). In graphs and with KVC_STORAGE_NONE the engine ensures
 * this itself.
 * Errors (the forward stays open): ORDER (error->index = the first layer in range that was not appended, or that has a state
 * which was not stored; with KVC_STORAGE_NONE, appends are not checked), CANCELLED, BUSY, STALE_ID. An error of the device
 * closes the forward, as kvc_forward_abort does. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_end(kvc_cache *cache, kvc_forward forward, kvc_error *error);

/* Closes a step and drops its tokens. Its pages are given back, and everything is as it was before begin.
 * Errors: BUSY (a call is computing: cancel first), STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_abort(kvc_cache *cache, kvc_forward forward, kvc_error *error);

/* Stops a step, also while it computes on another thread. It does not wait. An attend in progress stops after the work items
 * that run now, and returns CANCELLED (or OK, if no item was left). From then on append, attend and end return CANCELLED, and
 * only kvc_forward_abort closes the forward.
 * Errors: STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_cancel(kvc_cache *cache, kvc_forward forward, kvc_error *error);

/* The position of each token of an open forward, and the last token of each row. All pointers, those of the tensors' shapes
 * and strides too, are borrowed from the library until the forward closes. In a graph they are borrowed until
 * kvc_graph_destroy, and the arrays have the graph's capacity in place of T and num_sequences: position 0 and last row -1
 * for entries that the step does not use. */
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

/* Fills `info`, for engines that rotate q and k themselves, or that select logits.
 * Errors: STALE_ID. Threads: any until the forward closes. Since 0.1. */
KVC_API kvc_status kvc_forward_get_info(kvc_cache *cache, kvc_forward forward, kvc_forward_info *info,
                                        kvc_error *error);

/* Describes what was planned as one JSON object: rows, tokens, and for each group the kernels, work items, splits, prefix groups,
 * and bytes of K and V that an attend reads.
 *   buffer, capacity, length  as kvc_context_describe
 * Errors: STALE_ID, BUSY, BUFFER_TOO_SMALL. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_describe(kvc_cache *cache, kvc_forward forward, char *buffer, int64_t capacity,
                                        int64_t *length, kvc_error *error);

/* Graph mode is for steps whose calls are recorded once and replayed, by a CUDA graph, or by a compiled program that holds
 * its arguments as constants.
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
 *   Ids        A forward in a graph has the graph's id, in every step. A call with that id acts on the forward that is open in
 *              the graph. While none is open, a replay is stale: such calls return KVC_ERROR_STALE and touch nothing.
 *   Addresses  kvc_forward_get_info and kvc_forward_tables give the same addresses in every step, in shapes of the graph's
 *              capacity. Entries that a step does not use are inert: position 0, slot -1, last row -1, table rows without
 *              keys. Call kvc_forward_tables in each step to fill tables. Until then, and between steps, their generation word
 *              is 0.
 *   Tensors    Tensors of recorded calls have max_tokens rows, those of states max_sequences. Rows beyond those of the step
 *              are not written.
 *   CUDA       Run one step without a capture first. Then capture append, attend, load_state and store_state between a begin
 *              and an end. All other calls must be outside (ORDER). kvc_forward_end checks that each layer in range was appended
 *              in the graph at least once. It cannot see what a replay ran, so replay all captured layers before it. A
 *              replay while no forward is open writes nothing. Use one stream for all forwards of a graph.
 *
 * A graph has buffers for one forward, which does not count towards max_open_forwards. It serves recordings of any size up to
 * its capacity, so one graph is enough for a server that records several batch sizes. */
typedef struct kvc_graph_config {
  uint32_t struct_size;
  uint32_t flags;            /* 0 */
  int32_t max_sequences;     /* rows of a step, at most the cache's max_sequences; 0 = as many */
  int32_t max_tokens;        /* tokens of a step, at most the cache's max_batch_tokens; 0 = as many */
  int32_t max_pages_per_row; /* columns of block tables, 1..2^26; 0 = the pages of the group. Tables of KVC_TABLES_BRANCHES
                                have their own number of columns */
  uint32_t reserved;         /* 0 */
} kvc_graph_config;

static inline void kvc_graph_config_init(kvc_graph_config *config) {
  kvc_graph_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

/* Makes a graph: the memory that its forwards need. kvc_cache_estimate includes the size of one graph at the cache's limits.
 *   graph  filled
 * Errors: OUT_OF_RANGE, UNSUPPORTED (flags, reserved), OUT_OF_MEMORY, TOO_MANY_FORWARDS (64 graphs exist). Threads: any.
 * Since 0.1. */
KVC_API kvc_status kvc_graph_create(kvc_cache *cache, const kvc_graph_config *config, kvc_forward *graph,
                                    kvc_error *error);

/* Frees a graph, and everything that was borrowed from it. kvc_cache_destroy frees all graphs that are left.
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
 * Numbering: nodes of a sequence are counted from 0 in the order in which they came, over all steps since its last commit. So a
 * later step may extend the tree (its first node is kvc_seq_tree_nodes). A parent comes before its children. Several roots are
 * allowed, and any node may be committed.
 * Positions: a node's position is the sequence's length + its depth (0 for a root). RoPE, windows and biases use it.
 * Limits: a sequence with uncommitted nodes refuses forks and plain appends (UNCOMMITTED). It frees no page that left a window
 * until the commit, so rejecting a tree costs no recomputation. Aborting a step drops the nodes of that step only.
 * Recurrent states: the state after the last node of the newest step is always kept. The states after the first
 * max_draft_states nodes are kept too, if each was stored (kvc_forward_store_state). Only nodes with a state can be
 * committed (EVICTED), or get children in a later step. Without max_draft_states, trees are chains, and are kept whole or
 * dropped: if the first few nodes are accepted, drop the chain (-1) and append those tokens as plain tokens. */

/* Keeps the path from a root to node leaves[i] as tokens of sequences[i], and drops its other uncommitted nodes. Each sequence
 * has a leaf of its own. All are committed, or none. K and V of kept nodes move to their final slots where needed; no page is
 * needed.
 *   sequences  [n], distinct, any order, each with uncommitted nodes
 *   leaves     [n]: a node, 0..kvc_seq_tree_nodes - 1; -1 = drop all
 *   stream     as kvc_seq_fork
 * Errors (nothing committed), each with the index: STALE_ID, DUPLICATE, BUSY, ORDER (no uncommitted nodes; or
 * KVC_STORAGE_NONE: too many copies wait), OUT_OF_RANGE, EVICTED (a node whose recurrent state is not kept: see above). An
 * error of the device leaves K and V of the nodes undefined; then only dropping them (-1) works. Threads: any. The cost
 * grows with what it moves and frees.
 * Since 0.1. From: tree attention as in SpecInfer and Medusa. */
KVC_API kvc_status kvc_seq_commit(kvc_cache *cache, int64_t n, const kvc_seq *sequences, const int32_t *leaves,
                                  void *stream, kvc_error *error);

/* Gives the numbers of uncommitted tree nodes, without those of open forwards. O(1) a sequence.
 *   nodes  [n], filled
 * Errors: STALE_ID. Threads: any, also while a forward computes. Since 0.1. */
KVC_API kvc_status kvc_seq_tree_nodes(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int32_t *nodes,
                                      kvc_error *error);

/* ============================================================================================
 * 8  Tensors: views, exports, imports
 * ============================================================================================ */

enum kvc_pool {
  KVC_POOL_KV = 0, /* K and V together: [pages, 2, Hkv, page_size, D]; only if they are stored together */
  KVC_POOL_K = 1,  /* [pages, Hkv, page_size, D] */
  KVC_POOL_V = 2,  /* [pages, Hkv, page_size, Dv]; MLA: the leading dims of KVC_POOL_K */
  KVC_POOL_K_SCALE = 3, /* float32: [pages, Hkv, page_size] of int8, uint4; [Hkv] of float8, float4 (ones if none given) */
  KVC_POOL_V_SCALE = 4
};
enum kvc_pool_flags {
  KVC_POOL_WRITABLE = 1 /* without it the view carries DLPack's READ_ONLY flag */
};

/* Returns a view of a layer's page pool, without a copy. The view keeps the memory alive, but not the contents: pages are reused.
 * It has the layer's dtype; float8 comes as uint8, and rows of 4 bits as their bytes. Work enqueued on the stream after this
 * call sees what earlier calls on the cache stored. Later calls on the cache do not wait for that work. The view shows all
 * sequences and free slots: a slot in which this layer stored no token holds what it held before.
 *   pool    KVC_POOL_*
 *   flags   KVC_POOL_WRITABLE or 0
 *   tensor  returned; released by its deleter, on any thread, also after kvc_cache_destroy
 *   stream  as kvc_seq_fork
 * Errors: OUT_OF_RANGE (layer), INVALID_ARGUMENT, UNSUPPORTED (KVC_POOL_KV of pools stored apart, a recurrent layer, scales of a
 * layer that is not quantised, writable scales of float8, KVC_STORAGE_NONE), OUT_OF_MEMORY. Threads: any. Since 0.1. */
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
  uint32_t parts;         /* KVC_EXPORT_*; 0 = all that the layer has (MLA: K and its scales; V is a part of K) */
  uint32_t reserved;      /* 0 */
  int64_t position_begin; /* tokens [position_begin, position_end) of the sequence */
  int64_t position_end;   /* 0 = the sequence's length (so [0, 0) cannot be requested). Cross layers: both positions are in
                             the encoder sequence */
} kvc_export_args;

static inline void kvc_export_args_init(kvc_export_args *args) {
  kvc_export_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* What an export returned. A part that was not requested is NULL. Release each tensor by its deleter. */
typedef struct kvc_exported {
  uint32_t struct_size;
  uint32_t reserved;
  DLManagedTensorVersioned *k;       /* [tokens, Hkv, D] of the layer's dtype; float8: uint8; 4 bits: uint8, the bytes of a row */
  DLManagedTensorVersioned *v;       /* [tokens, Hkv, Dv] */
  DLManagedTensorVersioned *k_scale; /* float32, the factors of k: [tokens, Hkv] of int8, uint4; [Hkv] of float8, float4 */
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
 * The copy runs outside the cache's lock, and holds the sequence's pages meanwhile. If page ids must be equal on all ranks, do
 * not change the cache before the call has returned.
 * Errors: STALE_ID, BUSY (the sequence is in an open forward, or 32 exports run already), OUT_OF_RANGE (uncommitted tree nodes
 * cannot be exported), ORDER (a forward that stored these tokens did not cover the layer; available = the tokens that it
 * holds), EVICTED (keys of the range are gone), UNSUPPORTED (scales of a layer without scales, a recurrent layer,
 * KVC_STORAGE_NONE). Threads: any. Since 0.1. */
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
  const DLTensor *const *k; /* [num_layers], each [T, Hkv, D] of that layer; T the same in all, 1..max_batch_tokens. NULL for
                               a layer that reads another's K and V (kvc_layer_config.kv_layer), and for a cross layer */
  const DLTensor *const *v; /* [num_layers], each [T, Hkv, Dv], or as kvc_append_args.v; NULL where k is. Nullable if every
                               layer is MLA */
  const DLTensor *const *k_scale; /* nullable: none. [num_layers], each as kvc_append_args.k_scale, or NULL */
  const DLTensor *const *v_scale; /* the same for v */
} kvc_import_args;

static inline void kvc_import_args_init(kvc_import_args *args) {
  kvc_import_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Appends T tokens of dense K and V to a sequence in every layer, as kvc_forward_append would. With KVC_IMPORT_AS_STORED it
 * is the inverse of kvc_seq_export, for a sequence without freed pages. (For rotated keys of longrope, give the sequence the
 * same factor set first: kvc_seq_set_rope.) The import opens a forward of its own, which counts towards max_open_forwards.
 *   args    borrowed, tensors included
 *   stream  as kvc_seq_fork
 * Errors: those of kvc_forward_begin; those of kvc_forward_append, with error->index = the layer; UNSUPPORTED with a recurrent
 * group (use a forward, with KVC_APPEND_AS_STORED and kvc_forward_store_state), with cross groups alone, and with
 * KVC_STORAGE_NONE. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_import(kvc_cache *cache, kvc_seq sequence, const kvc_import_args *args, void *stream,
                                  kvc_error *error);

/* One copy that a cache with KVC_STORAGE_NONE leaves to the engine, which makes it in its own pools:
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
 * Three calls queue copies: a fork, of a partial last page; begin, of a shared last page; and a commit, to move kept nodes to the
 * front. A commit can queue several for a sequence and group, the others at most one. Nothing else moves tokens.
 *   Order   Make the copies one after another, in the order in which they come. Make those of a fork or commit before the next
 *           step stores or reads anything, and those of begin before its own step reads.
 *   Taking  While copies of earlier calls wait, kvc_forward_begin is refused (ORDER), so that nothing overwrites what they read.
 *           Once max_sequences * num_groups copies wait, kvc_seq_fork and kvc_seq_commit are refused too.
 *   Abort   An abort drops the copies of its step that were not taken. kvc_cache_clear drops all copies.
 * The layout of this struct is frozen. */
typedef struct kvc_copy {
  int64_t source_slot; /* first slot to read; count slots from there on are in one page */
  int64_t target_slot; /* first slot to write, likewise in one page. In a commit the two ranges may overlap, with target_slot
                          below source_slot: copy as memmove does */
  int32_t group;
  int32_t count;       /* tokens, >= 1 */
} kvc_copy;

/* Gives all copies that wait, and removes them from the cache.
 *   copies     nullable if capacity is 0; [capacity], filled, elements item_size bytes apart
 *   item_size  sizeof(kvc_copy)
 *   count      how many there are, also on BUFFER_TOO_SMALL; with capacity 0 they continue to wait
 * A cache with storage has no copies.
 * Errors: BUFFER_TOO_SMALL (never for capacity 0; nothing was taken), STRUCT_SIZE (item_size). Threads: any. Since 0.1. */
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
  int64_t pages_published;     /* pages that the prefix index holds */
  int64_t pages_idle;          /* of those, pages that nothing else holds: a call that is short of pages evicts them. They count
                                  as used */
  int64_t pages_evicted;       /* pages that such calls have evicted since create */
  int64_t prefix_attaches;     /* kvc_prefix_attach calls that succeeded since create (of the cache, in every group) */
  int64_t prefix_tokens;       /* tokens that these calls found */
} kvc_stats;

static inline void kvc_stats_init(kvc_stats *stats) {
  kvc_stats zero = KVC_ZERO_STRUCT;
  *stats = zero;
  stats->struct_size = (uint32_t)sizeof(zero);
}

/* Counts pages and tokens of one group or of the whole cache. Pages of open forwards and uncommitted trees count as used; their
 * tokens do not count as held.
 *   group  group index, or -1 for the whole cache
 *   stats  filled
 * It walks the page tables in use under the cache's lock, in microseconds for a thousand pages. Use it for dashboards, and
 * kvc_cache_can_fit or kvc_seq_max_append in a step.
 * Errors: OUT_OF_RANGE. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_stats(kvc_cache *cache, int32_t group, kvc_stats *stats, kvc_error *error);

/* Describes the cache at this moment as one JSON object: the pages of each group, sequences and which pages they share, the prefix
 * index, tiers, and open forwards. It has no tokens, and no keys of pages. docs/reference/describe.md lists the fields.
 *   buffer, capacity, length  as kvc_context_describe. The text may grow between two calls
 * It walks the page tables in use under the cache's lock, and takes a few times as long as kvc_cache_stats. `kvcache
 * inspect` shows the text.
 * Errors: BUFFER_TOO_SMALL. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_describe(kvc_cache *cache, char *buffer, int64_t capacity, int64_t *length,
                                      kvc_error *error);

/* ============================================================================================
 * 10  Stateless calls: attention over a cache of the caller's own
 * ============================================================================================ */

/* These calls are for engines that keep K and V in their own tensors. They need a context, and no kvc_cache. A decode step over a
 * paged cache:
 *
 *   kvc_flash_attn_args args;  kvc_flash_attn_args_init(&args);
 *   args.q = &q;  args.k = &k;  args.v = &v;  args.out = &out;           // of the new tokens, [B, 1, heads, dims]
 *   args.k_cache = &k_cache;  args.v_cache = &v_cache;                   // [pages, page_size, Hkv, dims]
 *   args.cache_seqlens = &lengths;  args.block_table = &table;           // int32 [B], [B, max_pages]
 *   args.flags = KVC_FLASH_ATTN_CAUSAL;
 *   if (kvc_flash_attn_with_kvcache(context, &args, NULL, &error)) return report(error.message);
 *
 * More letters: B rows (sequences) of a call; Sq and Sn queries and new tokens of a row; Tq and Tn those of all rows.
 * Tensors are on the context's device and borrowed. Index tensors (lengths, offsets, cache rows, slots, block_table) are int32
 * or int64, with any stride; stride 0 means one value for all. Lengths may have rank 0.
 * On a GPU, the index tensors of a call are all on the host, or all on the device (single numbers may be on the host).
 *   On the host    Every value is read once and checked by the call.
 *   On the device  Nothing is read back, uploaded or waited for. The shapes give a capacity, which decides how the work is
 *                  divided. A captured call uses, at each replay, what its tensors hold then. A row with a value out of its
 *                  range is skipped: nothing of it is stored, and out keeps its contents. Page ids are checked only with
 *                  KVC_CONTEXT_VALIDATE, which also reports what was bad. */

enum kvc_flash_attn_flags {
  KVC_FLASH_ATTN_CAUSAL = 1,             /* a query sees no later key: window_right is 0 */
  KVC_FLASH_ATTN_ROTARY_INTERLEAVED = 2, /* rotated pairs are dims 2i, 2i+1; without it: i, i + rotary_dim/2 */
  KVC_FLASH_ATTN_WINDOW_LEFT = 4,        /* window_left applies; without it, a query sees everything before it */
  KVC_FLASH_ATTN_WINDOW_RIGHT = 8,       /* window_right applies; without it, a query sees everything after it */
  KVC_FLASH_ATTN_ALIBI_SIGNED = 16       /* as KVC_ATTEND_ALIBI_SIGNED */
};

typedef struct kvc_flash_attn_args {
  uint32_t struct_size;
  uint32_t flags;          /* KVC_FLASH_ATTN_* */
  const DLTensor *q;       /* [B, Sq, Hq, D], or with cu_seqlens_q [>= Tq, Hq, D]; float32, float16 or bfloat16, or without
                              rotary also float8. This tensor, and all tensors below whose last dimension is the head dim,
                              have innermost stride 1 */
  const DLTensor *k_cache; /* [pages, page_size, Hkv, D] with block_table, else [cache rows, capacity, Hkv, D]; float32,
                              float16, bfloat16, float8_e4m3fn or float8_e5m2, by any strides (a cache in HND order is a
                              transposed view). Written if k is given. Any page size, any D and Dv up to 1024 */
  const DLTensor *v_cache; /* [likewise, Dv], of the same dtype. The two may be views into one buffer, without a common
                              element */
  const DLTensor *k;       /* nullable, with v: nothing is appended. [B, Sn, Hkv, D], or with cu_seqlens_k_new
                              [>= Tn, Hkv, D]: stored after each row's cached tokens before anything attends. float32,
                              float16, bfloat16, or the cache's dtype, which is stored unchanged */
  const DLTensor *v;       /* nullable, with k; [likewise, Dv] */
  const DLTensor *qv;      /* nullable; as q, of its dtype, with Dv for D: scores are q.k + qv.v (absorbed latent attention:
                              v_cache has the latent rows, k_cache their rotary parts). D + Dv <= 1152. Fast where Hkv is 1
                              and each row of k_cache is stored right after that of v_cache */
  const DLTensor *out;     /* written; [B, Sq, Hq, Dv] or [>= Tq, Hq, Dv]; float32, float16 or bfloat16 */
  const DLTensor *softmax_lse;  /* nullable; written; [B, Hq, Sq], or with cu_seqlens_q [Hq, >= Tq], float32: natural-log sum of
                              exponentials of the scores, the sink's included */
  const DLTensor *cache_seqlens;     /* [B], or of rank 0: tokens in each row's cache, without the new ones. This call does
                                        not change it. Nullable without k: the cache's whole capacity */
  const DLTensor *seqused_k;         /* nullable: the other name of cache_seqlens; only one of them may be given */
  const DLTensor *cache_batch_idx;   /* nullable: row b's cache is cache row b. [B]: the cache row of each row (with
                              block_table: the row of block_table). With k, all must differ */
  const DLTensor *cache_leftpad;     /* nullable: 0. [B]: first valid key of each row, at most cache_seqlens */
  const DLTensor *block_table;       /* nullable: not paged. [rows, max_pages], columns by stride 1: page ids in order.
                                        Entries that the call does not use may have any value, such as -1 */
  const DLTensor *cu_seqlens_q;      /* nullable. [B + 1], from 0 on, not descending: row b's queries are
                              [cu_seqlens_q[b], cu_seqlens_q[b+1]) */
  const DLTensor *cu_seqlens_k_new;  /* nullable; [B + 1]: the same of k and v; ignored without k */
  const DLTensor *rotary_cos;        /* nullable, with rotary_sin, only with k. [positions, rotary_dim/2] float32, float16 or
                                        bfloat16; the first rotary_dim dims of q and k are rotated. Row b's new keys have
                                        positions cache_seqlens[b], cache_seqlens[b] + 1 ..., and so have its queries; without
                                        causal and windows all its queries have position cache_seqlens[b]. Left padding does
                                        not change that */
  const DLTensor *rotary_sin;
  const DLTensor *rotary_seqlens;    /* nullable; [B]: positions count from here, not from cache_seqlens. Ignored without
                              k or rotary_cos */
  const DLTensor *q_descale;         /* nullable; [B, Hkv] float32, with float8 q: q is multiplied by it */
  const DLTensor *k_descale;         /* nullable; [B, Hkv] float32, with a float8 cache: k_cache is multiplied by it. New k
                                        that is not float8 is stored as k / k_descale, rounded to nearest even and
                                        saturated */
  const DLTensor *v_descale;         /* nullable; [B, Hkv]: the same for v */
  const DLTensor *alibi_slopes;      /* nullable; [Hq] or [B, Hq] float32: slope * |p_q - p_k| is subtracted from scores (see
                              KVC_ATTEND_ALIBI_SIGNED) */
  const DLTensor *sinks;             /* nullable; [Hq] float32, float16 or bfloat16: a logit of each head that joins the softmax
                              without a value */
  double softmax_scale;    /* 1e-30..1e30; 0 = D^-0.5, with qv (D + Dv)^-0.5 */
  double softcap;          /* scores become softcap * tanh(score / softcap); 1e-6..1e30; 0 = none */
  int32_t window_left;     /* a query at p sees keys from p - window_left on; with its flag; >= 0, else 0 */
  int32_t window_right;    /* ... and up to p + window_right, included; with its flag; >= 0, else 0 */
  int32_t attention_chunk; /* c > 0: of those, keys j with j/c == p/c, both counted from the first valid key; 0 = none */
  int32_t num_splits;      /* parts that each row's keys are cut into, at most 256, fewer where keys are few; 0 = chosen by
                              cost */
  const DLTensor *indices; /* nullable: no lists. [B, Sq, 1 or Hkv, k] int32, or with cu_seqlens_q [>= Tq, 1 or Hkv, k]; k at most
                              KVC_MAX_LISTED_KEYS. See below */
} kvc_flash_attn_args;

static inline void kvc_flash_attn_args_init(kvc_flash_attn_args *args) {
  kvc_flash_attn_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Appends k and v to the caller's cache, if they are given, and computes attention over it. The contract is that of
 * flash_attn_with_kvcache of FlashAttention 2 and 3. In a row with L valid keys, the new ones included, query i of n has position
 * p = L - n + i, so the last query sees the last key. Where p is negative, a causal query sees nothing. A query that sees nothing
 * has output 0 and LSE -inf (with a sink: the sink's logit). Rows of q after the last cu_seqlens_q are not written in out.
 *   args    borrowed, tensors included; every value of index tensors that the host reads is checked before anything is written
 *   stream  the device's stream; NULL on the CPU
 * With indices, a query attends to the listed slots of k_cache, page * page_size + offset, and nothing else hides a key: the
 * contract of FlashMLA's sparse decoding. k_cache is [pages, page_size, Hkv, D]. Negative entries are padding, and a slot that
 * occurs twice counts once. Slots have no positions, so what needs lengths or positions must be absent: k, v, block_table,
 * cache_seqlens and its other name, cache_batch_idx, cache_leftpad, alibi_slopes, windows, chunks, and KVC_FLASH_ATTN_CAUSAL.
 * Two rows must not append to one slot through their tables. A call allocates memory only if it is larger than all calls
 * before it.
 * Errors (nothing written): NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED (rotary of float8; qv with k_descale or
 * v_descale; dims; indices on a backend that does not attend over lists), INVALID_ARGUMENT (arguments that contradict each other;
 * a tensor that is written shares elements with another one; a cache row twice with k), OUT_OF_RANGE (a page id, slot,
 * index, length or position, with the row in error->index), BUFFER_TOO_SMALL (a cache row without room for its new tokens:
 * error->required and available in tokens, error->index = the row).
 * Threads: any, on different caches. Since 0.1.
 * From: FlashAttention 2 and 3; paged caches as in vLLM's PagedAttention; the rest as kvc_forward_attend. */
KVC_API kvc_status kvc_flash_attn_with_kvcache(kvc_context *context, const kvc_flash_attn_args *args, void *stream,
                                               kvc_error *error);

enum kvc_append_slots_flags {
  KVC_APPEND_SLOTS_ROTARY_INTERLEAVED = 1 /* as KVC_FLASH_ATTN_ROTARY_INTERLEAVED */
};

typedef struct kvc_append_slots_args {
  uint32_t struct_size;
  uint32_t flags;               /* KVC_APPEND_SLOTS_* */
  const DLTensor *k;            /* [>= T, Hkv, D] float32, float16, bfloat16, or the cache's dtype, which is stored
                                   unchanged; innermost stride 1. Latent form: the rotary parts, [>= T, 1, D - L], not
                                   float8 */
  const DLTensor *v;            /* [>= T, Hkv, Dv], as k. Latent form: the latent parts, [>= T, 1, L], not float8 */
  const DLTensor *k_cache;      /* written; [pages, page_size, Hkv, D] as kvc_flash_attn_args.k_cache. Latent form:
                                   [pages, page_size, 1, D], rows [latent | rotary] */
  const DLTensor *v_cache;      /* written; [pages, page_size, Hkv, Dv] of the same dtype. NULL: the latent form */
  const DLTensor *slot_mapping; /* int32 or int64 [T]: where each row goes, page * page_size + offset; negative: the row is
                                   skipped. T is at most 2^26 */
  const DLTensor *k_scale;      /* nullable: 1. [1] or [Hkv] float32, with a float8 cache: k is stored as k / k_scale, rounded to
                                   nearest even and saturated (latent form: whole rows) */
  const DLTensor *v_scale;      /* nullable; the same for v (latent form: NULL) */
  const DLTensor *rotary_cos;   /* nullable, with rotary_sin and positions; as in kvc_flash_attn_args: the first dims of k are
                                   rotated */
  const DLTensor *rotary_sin;
  const DLTensor *positions;    /* nullable, with rotary_cos; int32 or int64 [T]: the row of cos and sin of each token that is
                                   stored */
} kvc_append_slots_args;

static inline void kvc_append_slots_args_init(kvc_append_slots_args *args) {
  kvc_append_slots_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Stores rows of k and v in the caller's own paged cache, at the slots in slot_mapping, whose length is T. If two rows have
 * the same slot, one of them is stored; which one is not defined.
 *   args    borrowed, tensors included; every slot and position that the host reads is checked before anything is written.
 *           slot_mapping and positions on a GPU: a token whose slot is not one of the cache's, or
 *           whose position has no cos and sin, is skipped
 *   stream  the device's stream; NULL on the CPU
 * Errors (nothing written): NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED (rotary of float8 k; dims),
 * INVALID_ARGUMENT (arguments that contradict each other, a cache that overlaps anything else), OUT_OF_RANGE (a slot or position,
 * with the token in error->index). Threads: any, on different slots. Since 0.1.
 * From: reshape_and_cache and concat_and_cache_mla of vLLM. */
KVC_API kvc_status kvc_append_slots(kvc_context *context, const kvc_append_slots_args *args, void *stream,
                                    kvc_error *error);

/* ============================================================================================
 * 11  Tables for other kernels
 * ============================================================================================
 * Tables give other attention kernels what they need from a step: block tables, lengths, slots. They come from a cache's
 * forward (kvc_forward_tables), or from the arrays of a server with its own allocator (kvc_plan_*). docs/reference/tables.md
 * lists the kinds of steps, and says what each array means.
 *
 *   kvc_tables tables;  kvc_tables_init(&tables);
 *   if (kvc_forward_tables(cache, step, group, &tables, &error)) return report(error.message);
 *   fa3(q, k_pool, v_pool, &tables.block_table, &tables.cache_seqlens, &tables.cu_seqlens_q, tables.max_seqlen_q, tables.causal);
 *
 * A table holds exactly the keys that queries see. So a kernel needs no mask except "causal". It needs a window only if one
 * row has several queries of a sliding group or of a stream. If one table cannot express this, there are two, and merging
 * attention over both by LSE (kvc_merge_states) gives the exact result. */

enum kvc_tables_part {
  KVC_TABLES_WHOLE = 0,    /* all keys of each row */
  KVC_TABLES_PREFIX = 1,   /* steps that branch (trees; drafts with top_k > 1): keys that all branches share */
  KVC_TABLES_BRANCHES = 2, /* the other keys of each branch: one row for each token, with the token itself and its visible
                              ancestors only */
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

/* Tables of one step. Rows of a table are rows of the batch in their order, unless a row is cut (chunks) or branches; batch_rows
 * names the row of the batch. Tensors are borrowed, on the device, int32 and compact unless said otherwise. A tensor that was not
 * requested has ndim 0. In graph mode, shapes and maxima are those of the capacity. */
typedef struct kvc_tables {
  uint32_t struct_size;
  /* In: set before the call. For a plan set only part; its config has the rest. */
  uint32_t flags;           /* KVC_TABLES_PAD_VALUE | KVC_TABLES_SLOTS */
  int32_t part;             /* KVC_TABLES_* part */
  int32_t pad_value;        /* with KVC_TABLES_PAD_VALUE: entries of block_table after a row's pages */
  uint32_t arrays;          /* KVC_TABLES_DENSE | ...; 0 = all */
  /* Out */
  uint32_t causal;          /* 1: a row's queries are the last of its keys, and each sees the keys up to itself. 0: each
                               query sees all keys */
  /* After a plan's build over arrays on the device, the host has shapes only: num_rows and num_queries are the capacity, and
   * num_pages and num_keys are -1. */
  int32_t num_rows;         /* R, rows of the table */
  int32_t num_queries;      /* of all rows: T */
  int32_t page_size;        /* of block_table and the CSR: the group's, or 1 */
  int32_t max_seqlen_q;     /* on the host: the largest number of queries of a row */
  int32_t max_seqlen_k;     /* on the host: the largest of cache_seqlens */
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
  DLTensor hole_tokens;     /* [R], with it: tokens after the sinks that no query sees; the window's keys follow */
  DLTensor slot_mapping;    /* int64 [T]: slot of each new token; -1 = padding */
  DLTensor positions;       /* [T]: position of each new token, by depth in trees */
  DLTensor last_rows;       /* [rows of the batch]: index in [0, T) of the row's last token; -1 = none */
  DLTensor generation_word; /* int64 [1], of a plan or a graph: the generation of the arrays' contents, for kernels of a
                               captured graph to compare. 0 = stale: write nothing */
} kvc_tables;

static inline void kvc_tables_init(kvc_tables *tables) {
  kvc_tables zero = KVC_ZERO_STRUCT;
  *tables = zero;
  tables->struct_size = (uint32_t)sizeof(zero);
}

/* Gives the tables of an open forward in one group, the new tokens included. The kind of the group decides the keys:
 *   full       all keys; rows with a streaming window: pages of sinks, then of the window, and what lies between
 *   sliding    the last pages only: from the first key that the row's first query sees
 *   chunked    virtual rows: one for each chunk that a row's queries touch, from the first key of the chunk on
 *   cross      the encoder's keys
 *   trees      PREFIX and BRANCHES, of plain rows in the same batch too; WHOLE if every tree is a chain
 *   tables     in: flags, part, arrays, pad_value. The rest is filled; valid until the next kvc_forward_tables of the
 *              forward and group with the same part and flags, or until the forward closes
 * Errors: STALE_ID, BUSY, OUT_OF_RANGE (group), INVALID_ARGUMENT (a recurrent group, an unknown part, a group to which the
 * forward does not append encoder tokens; WHOLE of a tree that branches; PREFIX without trees; other arrays or padding than
 * the graph's first call had), UNSUPPORTED (spans; slots of a pool beyond 2^31 tokens), BATCH_TOO_LARGE (2^31 keys and more;
 * a row with more than the graph's max_pages_per_row). Threads: as kvc_forward_attend. The cost grows with the pages in the
 * tables.
 * Since 0.1. */
KVC_API kvc_status kvc_forward_tables(kvc_cache *cache, kvc_forward forward, int32_t group, kvc_tables *tables,
                                      kvc_error *error);

/* Plans make the same tables for a server with its own allocator.
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
 * Each entry of a row is the place of one token: a column of req_to_token, or one of the page_size places in a column of
 * block_table. A row holds its encoder's tokens, if any, and then its own by position. The new tokens are included, and the
 * server has allocated places for them. */
enum kvc_plan_mode {
  KVC_PLAN_DECODE = 0,      /* one new token a row. Parts: WHOLE (and ENCODER) */
  KVC_PLAN_EXTEND = 1,      /* append_lengths[i] new tokens: prefill, with a cached prefix or without, mixed with decoding
                               rows, and draft extend. Parts: WHOLE (and ENCODER) */
  KVC_PLAN_VERIFY = 2,      /* num_draft_tokens new tokens. A chain: WHOLE. With tree_parents: PREFIX and BRANCHES */
  KVC_PLAN_DRAFT_DECODE = 3 /* step s of num_steps adds token s to each of top_k branches: all steps in one build. top_k 1:
                               WHOLE, the token is entry seq_len + s. Larger top_k: PREFIX, whole pages, and BRANCHES. After
                               the whole pages each branch has a region of whole pages: the tokens of the partial last page
                               (copied there by the server, in branch 0 they are in place), then its drafts */
};

enum kvc_plan_flags {
  KVC_PLAN_GRAPH = 1,           /* capacity-sized arrays whose addresses never change; max_* are required */
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
  KVC_PLAN_ROWS_GREW = 1 /* DECODE, EXTEND: the caller promises that the rows are those of the last build, in the same order,
                            each at least as long, with the pages that it had. Then only what is new is read. (CSR arrays are
                            always written whole) */
};

/* The arrays of a step. All are borrowed. All are on the host or, for a plan with KVC_PLAN_GRAPH, all on the context's device.
 * One-dimensional ones are int32 or int64, compact; tables are int32 with innermost stride 1. */
typedef struct kvc_plan_args {
  uint32_t struct_size;
  uint32_t flags;                 /* KVC_PLAN_ROWS_GREW */
  const DLTensor *seq_lens;       /* [B]: tokens of each row, 0..2^30, without encoder tokens. B may be 0 */
  const DLTensor *append_lengths; /* EXTEND: [B], >= 0; else NULL */
  const DLTensor *rows;           /* nullable: row i of the batch is row i of the table. [B]: rows of the table; -1 = inert,
                                     its tokens are padding */
  const DLTensor *block_table;    /* [rows, columns]: page ids. Give this or req_to_token */
  const DLTensor *req_to_token;   /* [rows, columns]: the slot of each token. With a page size above 1, the tokens of a page
                                     have consecutive slots, the first a multiple of page_size */
  const DLTensor *encoder_lens;   /* nullable; [B]: encoder tokens that lie before the row's own; DECODE and EXTEND */
  const DLTensor *tree_parents;   /* nullable: chains. VERIFY: [B * num_draft_tokens], as kvc_batch.tree_parents, but for each
                                     row by itself: parents come before their children, -1 = root */
} kvc_plan_args;

static inline void kvc_plan_args_init(kvc_plan_args *args) {
  kvc_plan_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

typedef struct kvc_plan kvc_plan;

/* Creates a plan. It owns the arrays of the tables that it makes.
 *   plan  returned; released by kvc_plan_destroy
 * Errors: INVALID_ARGUMENT, OUT_OF_RANGE (config), OUT_OF_MEMORY. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_plan_create(kvc_context *context, const kvc_plan_config *config, kvc_plan **plan,
                                   kvc_error *error);

/* Releases a plan and its tables. NULL does nothing. Threads: any, once. Since 0.1. */
KVC_API void kvc_plan_destroy(kvc_plan *plan);

/* Makes the tables of a step, for all its draft steps and parts. Tables are checked before anything is written. A refused
 * build does not change the arrays, but makes them stale (the generation word is 0) until a build succeeds. In graph mode
 * the arrays keep their addresses, and entries that a smaller batch does not use are inert.
 *   args        borrowed, arrays included
 *   stream      the device's stream; NULL on the CPU
 *   generation  nullable; filled: the number of this build
 * Tables are made on the context's device, in the order of the stream. Arrays on a device are read by its kernels, without a
 * wait. If their lengths, rows, parents or sizes are wrong, the tables do not change, and the generation word is set to 0.
 * Page ids and slots are checked only with KVC_CONTEXT_VALIDATE, and kvc_plan_check reports only what was enqueued last.
 * Memory is allocated only for a step that is larger than all before.
 * Errors: NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE; INVALID_ARGUMENT (arrays that the mode does not use, both tables, rows
 * that did not only grow, tokens of a page that do not begin at a page); OUT_OF_RANGE (a length; an entry of a table: the message
 * has row, column, id and limit; a table with too few columns); BATCH_TOO_LARGE (graph mode: required, available; 2^31 keys and
 * more). error->index = the row. Threads: one at a time for one plan. Since 0.1.
 * From: metadata as SGLang's FlashAttention backend makes it; virtual batches for chunks as in Llama 4's local attention. */
KVC_API kvc_status kvc_plan_build(kvc_plan *plan, const kvc_plan_args *args, void *stream, uint64_t *generation,
                                  kvc_error *error);

/* Gives the tables that the last build made.
 *   step    DRAFT_DECODE: 0..num_steps - 1; else 0
 *   tables  in: part; filled. Valid until the next build, in graph mode until kvc_plan_destroy
 * Errors: STALE (no build, or the last was refused), OUT_OF_RANGE (step), INVALID_ARGUMENT (a part that the plan does not have;
 * fields that belong to the config). Threads: as kvc_plan_build. Since 0.1. */
KVC_API kvc_status kvc_plan_tables(kvc_plan *plan, int32_t step, kvc_tables *tables, kvc_error *error);

/* Checks that a plan's arrays hold build `generation`. Call it before replaying recorded calls over its tables.
 * Errors: STALE (they hold another build, or the last build was refused). Threads: as kvc_plan_build. Since 0.1. */
KVC_API kvc_status kvc_plan_check(kvc_plan *plan, uint64_t generation, kvc_error *error);

/* ============================================================================================
 * 12  Prefix index: what the cache remembers
 * ============================================================================================
 * A cache with KVC_CACHE_PREFIX_INDEX can keep the pages of tokens after their sequence is gone. A later request that begins with
 * the same tokens gets these pages, and computes only the rest. The loop of an engine:
 *
 *   kvc_prefix_query query;  kvc_prefix_query_init(&query);
 *   query.tokens = prompt;  query.num_tokens = n;  query.salt = tenant;
 *   kvc_prefix_hit hit;  kvc_prefix_hit_init(&hit);
 *   kvc_seq seq;
 *   if (kvc_prefix_attach(cache, &query, stream, &hit, &seq, &error)) return report(error.message);
 *   ... a forward that appends prompt[hit.tokens .. n) to seq ...         // at least one token: its logits are needed
 *   kvc_prefix_publish(cache, seq, &query, NULL, NULL, &error);           // others find the prompt while this one decodes
 *   ... forwards that append one token each; `prompt` and n grow ...
 *   query.tokens = prompt;  query.num_tokens = n;
 *   kvc_prefix_publish(cache, seq, &query, NULL, NULL, &error);           // the answer too: the next request begins with it
 *   kvc_seq_remove(cache, 1, &seq, &error);                               // the pages stay, until they are needed
 *
 *   Sharing   Whole pages are shared. A part of a page, down to one token, is copied into a fresh page of the new sequence.
 *   Groups    A hit is the longest prefix that every group can serve. Full groups and latent rows need every page up to the hit.
 *             Sliding and chunked groups need what the next query sees. Recurrent groups need the states after exactly these
 *             tokens: the index holds those of the lengths at which sequences were published. The index ignores cross
 *             groups: the new sequence has no encoder tokens.
 *   Eviction  A published page that no sequence and no pin holds is idle. Calls that are short of pages evict idle pages:
 *             kvc_forward_begin, kvc_seq_fork, kvc_seq_import and kvc_prefix_attach. Expired prefixes go first, then those of
 *             lower priority, then those that kvc_cache_config.prefix_policy chooses, and a continuation before what it continues.
 *             OUT_OF_PAGES means that even eviction of all idle pages would not help. What a failed or aborted call evicted
 *             stays evicted. Equal calls evict equal pages, so page ids are equal on every rank.
 *   Salts     Tokens under different salts never match. K and V must depend only on the tokens so far and on the salt. So
 *             use a different salt for each tenant, adapter, image, and anything else that changes K and V.
 *   Time      The library reads no clock. kvc_cache_set_time gives it the time.
 * Every call of this section except kvc_cache_set_time is UNSUPPORTED in a cache without KVC_CACHE_PREFIX_INDEX. */

enum kvc_prefix_query_flags {
  KVC_PREFIX_ALLOW_ALL = 1 /* match and attach may find all tokens of the query. By default they leave out the last token,
                              because an engine needs its logits */
};

typedef struct kvc_prefix_query {
  uint32_t struct_size;
  uint32_t flags;        /* KVC_PREFIX_*; ignored outside of match and attach */
  const int32_t *tokens; /* borrowed; [num_tokens], host; nullable if num_tokens is 0. Any numbers */
  int64_t num_tokens;    /* 0..2^30 */
  uint64_t salt;         /* any number; 0 = no salt */
  int64_t salt_begin;    /* the salt begins with the page that contains this token, and earlier pages have salt 0. So tenants
                            can share a system prompt, and nothing after it. >= 0 */
} kvc_prefix_query;

static inline void kvc_prefix_query_init(kvc_prefix_query *query) {
  kvc_prefix_query zero = KVC_ZERO_STRUCT;
  *query = zero;
  query->struct_size = (uint32_t)sizeof(zero);
}

/* What the index holds of a query. */
typedef struct kvc_prefix_hit {
  uint32_t struct_size;
  int32_t limited_by;    /* the group that makes `tokens` smaller than known_tokens and the query allow; -1 = none. It lacks
                            the page that begins at `tokens`, or (recurrent) a state at a later position */
  int64_t tokens;        /* the longest prefix that every group can serve */
  int64_t copied_tokens; /* of these, the tokens in a last page that is not full: attach copies it */
  int64_t known_tokens;  /* tokens that were published in this order, even if their pages were evicted */
  int64_t load_tokens;   /* with tiers: what `tokens` would be after kvc_prefix_load, as far as they have searched; else `tokens` */
  int64_t load_ns;       /* with tiers: how long that load takes, as the tiers measured it; 0 = nothing to load, or not measured */
} kvc_prefix_hit;

static inline void kvc_prefix_hit_init(kvc_prefix_hit *hit) {
  kvc_prefix_hit zero = KVC_ZERO_STRUCT;
  *hit = zero;
  hit->struct_size = (uint32_t)sizeof(zero);
}

/* Says what kvc_prefix_attach would find, and changes nothing.
 *   query  borrowed, tokens included
 *   hit    filled
 * The cost grows with the pages that it looks at.
 * Errors: OUT_OF_RANGE (num_tokens or salt_begin). Threads: any. Since 0.1. From: prefix reuse as in SGLang's RadixAttention. */
KVC_API kvc_status kvc_prefix_match(kvc_cache *cache, const kvc_prefix_query *query, kvc_prefix_hit *hit,
                                    kvc_error *error);

/* Makes a new sequence that holds the longest prefix of the query that every group can serve; nothing found gives an empty
 * sequence. The sequence is like any other: it can be appended to, forked, truncated and published. In groups with a window
 * it holds the keys that its next query sees, and the part of the rollback margin that the index has.
 *   query     borrowed, tokens included
 *   stream    the device's stream for copies of partial pages; NULL on the CPU
 *   hit       nullable: filled
 *   sequence  filled
 * Errors: OUT_OF_RANGE (num_tokens or salt_begin), TOO_MANY_SEQUENCES, OUT_OF_PAGES (one page a group for the copy), ORDER
 * (KVC_STORAGE_NONE: too many copies wait), OUT_OF_MEMORY (nodes of page lists). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_prefix_attach(kvc_cache *cache, const kvc_prefix_query *query, void *stream, kvc_prefix_hit *hit,
                                     kvc_seq *sequence, kvc_error *error);

enum kvc_prefix_options_flags {
  KVC_PREFIX_KEEP_PRIVATE = 1 /* no tier stores what this publish adds */
};

typedef struct kvc_prefix_options {
  uint32_t struct_size;
  int32_t priority;     /* 0..100: prefixes of lower priority are evicted first. Tokens that several publishes share have the
                           highest of their priorities */
  uint64_t session;     /* 0 = none. Any other number: kvc_prefix_drop_session drops what no other session published */
  int64_t time_to_live; /* 0 = no limit. Else, in the unit of kvc_cache_set_time: the tokens expire this long after now. They
                           are still found, but evicted before all others */
  uint32_t flags;       /* KVC_PREFIX_KEEP_PRIVATE or 0 */
  uint32_t reserved;    /* 0 */
} kvc_prefix_options;

static inline void kvc_prefix_options_init(kvc_prefix_options *options) {
  kvc_prefix_options zero = KVC_ZERO_STRUCT;
  *options = zero;
  options->struct_size = (uint32_t)sizeof(zero);
}

typedef struct kvc_prefix_published {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t known_tokens; /* tokens of the query that the index holds now; fewer than all if it is full of pages in use */
  int64_t pages_added;  /* pages that the index did not hold before, in all groups */
  int64_t pages_freed;  /* pages of the sequence that became free, because the index had others with the same tokens */
} kvc_prefix_published;

static inline void kvc_prefix_published_init(kvc_prefix_published *published) {
  kvc_prefix_published zero = KVC_ZERO_STRUCT;
  *published = zero;
  published->struct_size = (uint32_t)sizeof(zero);
}

/* Makes the first tokens of a sequence findable. The index takes references to its pages, and nothing is copied. The sequence uses
 * whole pages that the index already holds for the same tokens in place of its own. Publish again while the sequence grows.
 *   sequence   the library cannot check its tokens: the tokens of the query must be those that were appended
 *   query      borrowed; num_tokens is the sequence's length, or less. Recurrent groups: less only at a checkpoint of the
 *              sequence (kvc_seq_checkpoint); else the tokens are not found by themselves
 *   options    nullable: all zero; borrowed
 *   published  nullable: filled
 * The next forward that appends to the sequence copies its last page, if this is not full and was published.
 * Errors: STALE_ID, BUSY, UNCOMMITTED, OUT_OF_RANGE (num_tokens above the length, salt_begin, priority, time_to_live), ORDER (a
 * layer lacks some of the tokens, because a forward did not cover it), UNSUPPORTED (the sequence has or had a streaming window,
 * or its keys are rotated by the long set of longrope). Threads: any. The cost grows with the tokens. Since 0.1. */
KVC_API kvc_status kvc_prefix_publish(kvc_cache *cache, kvc_seq sequence, const kvc_prefix_query *query,
                                      const kvc_prefix_options *options, kvc_prefix_published *published,
                                      kvc_error *error);

/* Forgets every published prefix that begins with the query's tokens: their last page and all that continues it. Without tokens it
 * forgets all that was published with this salt from the first page on. Sequences keep their pages.
 *   query  borrowed, tokens included
 *   pages  nullable: how many pages the index gave back
 * Errors: OUT_OF_RANGE (num_tokens or salt_begin). Threads: any. The cost grows with what it gives back. Since 0.1. */
KVC_API kvc_status kvc_prefix_drop(kvc_cache *cache, const kvc_prefix_query *query, int64_t *pages, kvc_error *error);

/* Forgets what one session published, except what a publish with another session, or with none, shares.
 *   session  not 0
 *   pages    nullable: how many pages the index gave back
 * Errors: none but misuse. Threads: any. The cost grows with the size of the index. Since 0.1. */
KVC_API kvc_status kvc_prefix_drop_session(kvc_cache *cache, uint64_t session, int64_t *pages, kvc_error *error);

/* Sets the priority and the time to live of the query's published tokens, from the first one on, in place of what they had.
 * A page gets the new values if it has one of these tokens. Later pages keep what they have.
 *   query         borrowed, tokens included
 *   priority      0..100
 *   time_to_live  as in kvc_prefix_options
 * Errors: OUT_OF_RANGE (num_tokens, salt_begin, priority or time_to_live). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_prefix_set_priority(kvc_cache *cache, const kvc_prefix_query *query, int32_t priority,
                                           int64_t time_to_live, kvc_error *error);

/* Sets the priority and the time to live of all that kvc_prefix_drop_session would drop.
 *   session       not 0
 *   priority      0..100
 *   time_to_live  as in kvc_prefix_options
 * Errors: OUT_OF_RANGE (priority or time_to_live). Threads: any. The cost grows with the size of the index. Since 0.1. */
KVC_API kvc_status kvc_prefix_set_session_priority(kvc_cache *cache, uint64_t session, int32_t priority,
                                                   int64_t time_to_live, kvc_error *error);

/* Keeps the pages of a published prefix from being evicted. The prefix is the one that match finds with KVC_PREFIX_ALLOW_ALL.
 *   query  borrowed, tokens included
 *   hit    nullable: filled with what is pinned
 *   pin    filled: an id, never 0; ended by kvc_prefix_unpin or kvc_cache_clear
 * Errors: OUT_OF_RANGE (num_tokens or salt_begin). Threads: any. The cost grows with the pages. Since 0.1. */
KVC_API kvc_status kvc_prefix_pin(kvc_cache *cache, const kvc_prefix_query *query, kvc_prefix_hit *hit, uint64_t *pin,
                                  kvc_error *error);

/* Ends a pin. Pages that nothing else holds become idle, or free if they were dropped meanwhile.
 * Errors: STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_prefix_unpin(kvc_cache *cache, uint64_t pin, kvc_error *error);

/* Tells the cache the time, in any unit. It starts at 0 and never goes back: an earlier time changes nothing. Give all ranks of an
 * engine the same times.
 *   now  >= 0
 * Errors: OUT_OF_RANGE. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_set_time(kvc_cache *cache, int64_t now, kvc_error *error);

/* ============================================================================================
 * 13  Page keys: names of tokens outside of a cache
 * ============================================================================================
 * A page key names the content of one page of tokens in 32 bytes. It is equal in every process, on every machine and in every
 * language. docs/reference/keys.md defines the bytes that are hashed (SHA-256), and has test vectors. A cache does not need keys:
 * its prefix index compares tokens. */

typedef struct kvc_page_keys_args {
  uint32_t struct_size;
  uint32_t reserved;           /* 0 */
  const int32_t *tokens;       /* [num_tokens]; nullable if num_tokens is 0. Any numbers */
  int64_t num_tokens;          /* 0..2^30; a last page that is not full has no key */
  int64_t page_size;           /* 1..2^20 */
  int64_t begin;               /* position of tokens[0] in its sequence: a multiple of page_size up to 2^30, 0 without a parent */
  const uint8_t *parent;       /* nullable: [32], the key of the page that ends at begin. It covers fingerprint and adapter */
  const uint8_t *fingerprint;  /* [32]: computed by the engine from weights, quantisation and tokenizer; nullable with a parent */
  const uint8_t *adapter;      /* [adapter_bytes]; nullable if adapter_bytes is 0 = no adapter */
  int64_t adapter_bytes;       /* 0..2^20 */
  const uint8_t *salt;         /* [salt_bytes]; nullable if salt_bytes is 0 = no salt */
  int64_t salt_bytes;          /* 0..2^20 */
  int64_t salt_begin;          /* the salt begins with the page that contains this position; >= 0 */
  int64_t num_media;           /* spans of tokens that stand for an image or the like; 0..2^30 */
  const int64_t *media_begins; /* [num_media]: position in the sequence of the first token of each, ascending */
  const int64_t *media_tokens; /* [num_media]: tokens of each, > 0. The spans do not overlap */
  const uint8_t *media_hashes; /* [num_media, 32]: of the content, and of what changes how the model sees it */
} kvc_page_keys_args;

static inline void kvc_page_keys_args_init(kvc_page_keys_args *args) {
  kvc_page_keys_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Computes the keys of all whole pages of a token array. It needs no context and no cache.
 *   args  borrowed, arrays included
 *   keys  [num_tokens / page_size, 32], filled; not read if there is no whole page
 * Errors (nothing written): NULL_ARGUMENT (an array that is needed), OUT_OF_RANGE (a number outside of what its field says, a span
 * with its index in error->index), INVALID_ARGUMENT (begin without a parent, or not at a page; reserved). Threads: any. O(tokens
 * and media). Since 0.1. From: block hashes of vLLM's prefix cache. */
KVC_API kvc_status kvc_page_keys(const kvc_page_keys_args *args, uint8_t *keys, kvc_error *error);

/* ============================================================================================
 * 14  Events: what the prefix index holds, told to others
 * ============================================================================================
 * A router sends a request to the engine that holds most of its prompt. Events tell it how the prefix index of each engine
 * changes: a whole page can now be found (stored), a page can no longer be found (removed), or no page can be found
 * (cleared). A cache with events_capacity keeps the newest events in a ring buffer. No call waits for room in it: a new
 * event replaces the oldest one.
 *
 * Events are numbered from 0. A reader says which number it needs next, and learns which numbers it got:
 *
 *   kvc_events_args args;  kvc_events_args_init(&args);
 *   args.events = events;  args.tokens = tokens;  args.capacity = 256;         // kvc_event[256], int32_t[256 * page_size]
 *   kvc_events_range range;  kvc_events_range_init(&range);
 *   for (;;) {
 *     if (kvc_events_read(cache, &args, &range, &error)) return report(error.message);
 *     if (range.epoch != epoch || range.begin != args.next) return start_again();   // another cache, or events are lost
 *     for (int64_t i = 0; i < range.count; i++) apply(&events[i], tokens + i * page_size);
 *     args.next = range.end;
 *   }
 *
 * start_again forgets what it knew, takes a snapshot (kvc_events_snapshot), and reads on from the snapshot's range.end. A snapshot
 * and the events after it give exactly the pages that the index holds.
 *
 *   Pages     Events name whole pages by their key (section 13), with the query's salt as 8 bytes, little-endian, if it is not 0.
 *             Each group has its own events for a page. A recurrent group has events only for states at the end of a whole
 *             page.
 *   Bytes     Instead of records, a call can write one message as vLLM's consumers read it: docs/reference/events.md.
 * Every call of this section is UNSUPPORTED in a cache whose events_capacity is 0. */

enum kvc_event_kind {
  KVC_EVENT_STORED = 1,  /* the page with this key can be found in this group */
  KVC_EVENT_REMOVED = 2, /* the page can no longer be found: it was evicted or dropped */
  KVC_EVENT_CLEARED = 3  /* no page can be found in any group */
};

enum kvc_event_flags {
  KVC_EVENT_HAS_PARENT = 1, /* a stored page that is not the first of its sequence */
  KVC_EVENT_SALTED = 2      /* a stored page under a salt that is not 0 */
};

typedef struct kvc_event {
  uint64_t number;    /* in the epoch, from 0; in a snapshot 0 */
  int32_t kind;       /* KVC_EVENT_* */
  int32_t group;      /* -1 = all */
  uint32_t flags;     /* KVC_EVENT_HAS_PARENT, KVC_EVENT_SALTED */
  uint32_t reserved;
  int64_t position;   /* stored: of the page's first token in its sequence */
  uint64_t session;   /* stored: the only session that published it; 0 = none, or several */
  uint8_t key[32];    /* not of KVC_EVENT_CLEARED */
  uint8_t parent[32]; /* key of the page before, if KVC_EVENT_HAS_PARENT */
} kvc_event;

enum kvc_events_flags {
  KVC_EVENTS_ARRAYS = 1,      /* bytes: each event is an array, as in older consumers. The default is a map */
  KVC_EVENTS_SHORT_HASHES = 2 /* bytes: a key is its low 64 bits as an integer. The default is 32 bytes */
};

typedef struct kvc_events_args {
  uint32_t struct_size;
  uint32_t flags;             /* KVC_EVENTS_* */
  uint64_t next;              /* kvc_events_read: the number of the first event that the reader needs */
  kvc_event *events;          /* [capacity], filled; nullable. Give events, or bytes, or neither */
  int32_t *tokens;            /* [capacity, page_size], filled: the tokens of stored pages, else 0; nullable */
  int64_t capacity;           /* of events */
  uint8_t *bytes;             /* [capacity_bytes], filled: one message; nullable */
  int64_t capacity_bytes;
  double timestamp;           /* bytes: of the message, in seconds */
  int32_t data_parallel_rank; /* bytes: -1 = nil */
  uint32_t event_size;        /* sizeof(kvc_event), with events */
} kvc_events_args;

static inline void kvc_events_args_init(kvc_events_args *args) {
  kvc_events_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
  args->event_size = (uint32_t)sizeof(kvc_event);
}

/* What a call of this section returned. */
typedef struct kvc_events_range {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t epoch;    /* of this cache: a random number from the system, chosen when the cache was created, and never 0 */
  uint64_t begin;    /* number of the first event that was returned. Above args->next: the ones between are lost */
  uint64_t end;      /* number of the event after the last one that was returned: the next to read */
  uint64_t newest;   /* number that the next event will get. Above `end`: there is more to read */
  int64_t count;     /* events or pages that were returned; without a buffer, what there is */
  int64_t num_bytes; /* bytes that were written; for a snapshot without a buffer, the size that it needs */
} kvc_events_range;

static inline void kvc_events_range_init(kvc_events_range *range) {
  kvc_events_range zero = KVC_ZERO_STRUCT;
  *range = zero;
  range->struct_size = (uint32_t)sizeof(zero);
}

/* Returns events from a number on, as many as the buffer takes. Without a buffer it returns no event, and fills only the
 * range: `begin` is the oldest event that can be read from args->next on, and so is `end`.
 *   args   borrowed; its arrays are filled
 *   range  filled
 * Errors: OUT_OF_RANGE (next above `newest`), BUFFER_TOO_SMALL (not even one event fits in capacity_bytes), STRUCT_SIZE
 * (event_size), INVALID_ARGUMENT (events and bytes; data_parallel_rank below -1). Threads: any. The cost grows with what it
 * returns.
 * Since 0.1. */
KVC_API kvc_status kvc_events_read(kvc_cache *cache, const kvc_events_args *args, kvc_events_range *range,
                                   kvc_error *error);

/* Returns a KVC_EVENT_STORED for each page that the index holds, each after the page that it continues. A message in bytes
 * begins with AllBlocksCleared. Events from range.end on happened after the snapshot. Without a buffer, the call says how
 * large one must be.
 *   args   borrowed; its arrays are filled
 *   range  filled
 * Errors: BUFFER_TOO_SMALL (nothing returned; required: elements or bytes), STRUCT_SIZE (event_size), INVALID_ARGUMENT as in
 * kvc_events_read. Threads: any. The cost grows with the size of the index, and other calls on the cache wait while its
 * pages are listed. Since 0.1. */
KVC_API kvc_status kvc_events_snapshot(kvc_cache *cache, const kvc_events_args *args, kvc_events_range *range,
                                       kvc_error *error);

/* ============================================================================================
 * 15  Saved sequences: to a file and back
 * ============================================================================================
 * A saved sequence is one file with all that a sequence has: K and V of every group as stored, encoder tokens, recurrent states
 * with their checkpoints, its streaming window and factor set of longrope, and its token ids if the caller gives them. A sequence
 * that was loaded continues with the same bits as the one that was saved.
 *
 *   kvc_save_args save;  kvc_save_args_init(&save);
 *   save.path = "chat.kvc";
 *   save.tokens = tokens;  save.num_tokens = num_tokens;             // optional: then a load gives them back
 *   if (kvc_seq_save(cache, chat, &save, NULL, &error)) return report(error.message);
 *
 *   kvc_load_args load;  kvc_load_args_init(&load);                  // later, in another process
 *   load.path = "chat.kvc";
 *   load.tokens = tokens;  load.capacity = MAX_TOKENS;
 *   if (kvc_seq_load(cache, &load, NULL, &chat, &num_tokens, &error)) return report(error.message);
 *
 * docs/reference/format.md describes the bytes. Files of this version stay readable in later versions. */

/* Takes the next bytes of a saved sequence.
 *   user   kvc_save_args.write_user
 *   data   borrowed; [bytes]
 * Returns: 0, or any other number if it failed: it appears in the message. Called on the thread of the call, without a lock. */
typedef int32_t (*kvc_write_fn)(void *user, const void *data, int64_t bytes);

/* Gives the next bytes of a saved sequence.
 *   user   kvc_load_args.read_user
 *   data   filled; [bytes]
 * Returns: how many bytes it gave, 1..bytes; 0 at the end; below 0 if it failed: the number appears in the message. Called as
 * kvc_write_fn. */
typedef int64_t (*kvc_read_fn)(void *user, void *data, int64_t bytes);

typedef struct kvc_save_args {
  uint32_t struct_size;
  uint32_t flags;         /* 0 */
  const char *path;       /* borrowed; nullable if write is given. The file appears whole, or not at all: the bytes go to a new
                             file in the same folder, which is synchronised with the disk and then renamed */
  kvc_write_fn write;     /* nullable if path is given: gives the bytes to the caller instead */
  void *write_user;
  const int32_t *tokens;  /* borrowed; nullable: not saved. [num_tokens]: the ids of the sequence's tokens */
  int64_t num_tokens;     /* the length of the sequence; 0 without tokens */
  int64_t section_bytes;  /* payload bytes that one checksum covers, and that a load holds at once: a power of two,
                             4096..2^24; 0 = 2^20 */
} kvc_save_args;

static inline void kvc_save_args_init(kvc_save_args *args) {
  kvc_save_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

typedef struct kvc_load_args {
  uint32_t struct_size;
  uint32_t flags;     /* 0 */
  const char *path;   /* borrowed; nullable if read is given */
  kvc_read_fn read;   /* nullable if path is given: the bytes come from the caller */
  void *read_user;
  int32_t *tokens;    /* nullable if capacity is 0; [capacity], filled with the token ids. Undefined after a failure */
  int64_t capacity;   /* 0: the ids are not wanted */
} kvc_load_args;

static inline void kvc_load_args_init(kvc_load_args *args) {
  kvc_load_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Saves a sequence. Meanwhile the sequence is busy, as in an open forward, and all other sequences can be used. To use this
 * one too, save a fork instead. The call waits until its bytes are written, and until the device has done earlier work of
 * the cache.
 *   args    borrowed, with all it names
 *   stream  as kvc_seq_fork
 * Errors: STALE_ID, BUSY, UNCOMMITTED, INVALID_ARGUMENT (path and write, or neither; num_tokens is not the length), OUT_OF_RANGE
 * (section_bytes), ORDER (a forward did not cover a layer, so it lacks tokens), IO, UNSUPPORTED (KVC_STORAGE_NONE). After an
 * error the file of that name is as it was. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_save(kvc_cache *cache, kvc_seq sequence, const kvc_save_args *args, void *stream,
                                kvc_error *error);

/* Adds a sequence with the contents of a saved one. The cache must have the same layers, groups, dtypes and RoPE settings, and the
 * same fingerprint. Capacity, pools and limits may differ. The page size may differ too, unless the sequence has freed
 * tokens that the other page size cannot leave out. The call holds one section of the file at a time, and checks it before
 * it uses it. No other call sees the sequence before all of it is there. Pages of the prefix index that it evicts stay
 * evicted.
 *   args        borrowed, with all it names
 *   sequence    filled
 *   num_tokens  nullable: how many token ids the file has, also on BUFFER_TOO_SMALL
 *   stream      as kvc_seq_fork
 * Errors (no sequence was added): IO, CORRUPT (damaged bytes), LAYOUT (another model, dtype or layout; the message has what the
 * file and the cache say; or holes of the saved sequence that this page size cannot have), BUFFER_TOO_SMALL (capacity; never for
 * 0), TOO_MANY_SEQUENCES, OUT_OF_PAGES (of error->group), INVALID_ARGUMENT (path and read, or neither), UNSUPPORTED (a later
 * format; KVC_STORAGE_NONE; a streaming window, and a cache without KVC_CACHE_STREAMING). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_load(kvc_cache *cache, const kvc_load_args *args, void *stream, kvc_seq *sequence,
                                int64_t *num_tokens, kvc_error *error);

/* ============================================================================================
 * 16  Tiers: memory below the pools
 * ============================================================================================
 * A tier keeps published pages in slower memory, such as a folder on a disk. It finds them after the pools have evicted them, and
 * after a restart of the process. The loop of section 12 with a tier:
 *
 *   config.flags |= KVC_CACHE_PREFIX_INDEX;  config.fingerprint = fingerprint;       // and kvc_cache_create
 *   kvc_tier_config tier;  kvc_tier_config_init(&tier);
 *   tier.directory = "/var/cache/engine";  tier.capacity_bytes = 100LL << 30;
 *   if (kvc_cache_add_tier(cache, &tier, &error)) return report(error.message);
 *
 *   kvc_job job;
 *   kvc_prefix_load(cache, &query, NULL, NULL, &job, &error);             // what the pools lack and a tier has
 *   kvc_job_info info;  kvc_job_info_init(&info);
 *   while (job != 0) {                                                    // other requests run meanwhile
 *     ... poll() of kvc_cache_job_descriptor, or a step of other sequences ...
 *     if (kvc_job_poll(cache, job, &info, &error)) return report(error.message);
 *     if (info.done) job = 0;
 *   }
 *   kvc_prefix_attach(cache, &query, NULL, &hit, &seq, &error);           // finds what was loaded
 *
 *   Store     kvc_prefix_publish queues the whole pages that a tier lacks. A thread of the cache copies each of them, and gives it to
 *             the tier. A page that is evicted before that is not stored.
 *   Load      kvc_prefix_load reserves pages, and starts. The pages become findable in kvc_job_poll, all at once. A load that fails
 *             in part gives a shorter prefix. If a tier must search first, as Redis does, kvc_job_poll reserves the pages later.
 *   Objects   A tier keeps one object for each page of a group, under a key that covers the fingerprint, the tokens, the salt and the
 *             layout of the group (docs/reference/keys.md). The object has a checksum, the layout and the tokens. What does
 *             not match exactly is a miss. So engines with the same fingerprint and layout share a tier.
 *   Order     Pages are taken in kvc_prefix_load and become findable in kvc_job_poll. So ranks that make equal calls, and poll until
 *             the same job is done, have equal page ids, unless a tier searches.
 *   Suspend   kvc_seq_suspend moves the pages of a sequence to a tier and frees them, and kvc_seq_resume brings them back.
 *   fork()    Tiers work in the parent alone. In the child nothing is loaded or stored.
 *   Streams   On a GPU the pages are copied on a stream of the cache's own, in order with the work of other calls. No call waits
 *             on the host for these copies, and no stream of the caller waits for the bytes to reach the host.
 * Tiers need a cache with a prefix index, a fingerprint and pools. */

/* A tier of the engine's own: kvcache_tier.h defines it. */
typedef struct kvc_tier kvc_tier;

enum kvc_tier_sync {
  KVC_TIER_SYNC_DATA = 0, /* an object is on the disk before it becomes visible */
  KVC_TIER_SYNC_NONE = 1, /* the system decides when to write it. After a loss of power it can be missing, but is never
                             wrong */
  KVC_TIER_SYNC_FULL = 2  /* as DATA, and the name of the object is on the disk too. So a stored object survives a loss of
                             power */
};

enum kvc_tier_flag {
  KVC_TIER_HOST = 1 /* the tier is memory of this process, of at most capacity_bytes. It holds what the pools evict */
};

/* Which published pages a tier stores. */
enum kvc_tier_store {
  KVC_TIER_STORE_PUBLISHED = 0, /* all */
  KVC_TIER_STORE_REUSED = 1,    /* those that the index already had before the publish, because another request had published
                                   them */
  KVC_TIER_STORE_NOTHING = 2    /* none: the tier is read only, and takes no suspended sequence */
};

typedef struct kvc_tier_config {
  uint32_t struct_size;
  int32_t sync;               /* disk: KVC_TIER_SYNC_* */
  const char *directory;      /* nullable; disk: a folder, made if it does not exist. Several processes may share it */
  const kvc_tier *tier;       /* nullable; adopted: a tier of the engine. One of directory, tier and KVC_TIER_HOST is given */
  int64_t capacity_bytes;     /* disk and host: beyond this limit, the objects that were used least recently are removed.
                                 Disk: 0 = no limit. Host: at least 4096; memory is taken when objects fill it */
  int32_t store;              /* KVC_TIER_STORE_* */
  uint32_t flags;             /* KVC_TIER_HOST or 0 */
  int64_t min_tokens;         /* a publish of fewer tokens is not stored; >= 0 */
} kvc_tier_config;

static inline void kvc_tier_config_init(kvc_tier_config *config) {
  kvc_tier_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

/* Adds a tier below the pools, and below the tiers that were added before: lookups take the first tier that has a page.
 *   config  borrowed; its tier is adopted: kvc_cache_destroy closes it
 * It may wait for I/O: it reads the names in the directory.
 * Errors: INVALID_ARGUMENT (directory, tier, store, sync or the capacity of a host tier), OUT_OF_RANGE (capacity_bytes,
 * min_tokens), UNSUPPORTED (no prefix index, no fingerprint, no pools, a ninth tier, another version of kvcache_tier.h, or
 * flags), IO (the directory cannot be used), OUT_OF_MEMORY. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_add_tier(kvc_cache *cache, const kvc_tier_config *config, kvc_error *error);

/* Work in the background. 0 = none. */
typedef uint64_t kvc_job;

typedef struct kvc_prefix_load_options {
  uint32_t struct_size;
  int32_t priority;     /* as in kvc_prefix_options: of the pages that are loaded */
  uint64_t session;     /* likewise */
  int64_t time_to_live; /* likewise */
  int64_t token_ns;     /* the time to compute one token, in nanoseconds. Nothing is loaded if loading would take longer by
                           the tiers' measurements. 0 = load in any case */
} kvc_prefix_load_options;

static inline void kvc_prefix_load_options_init(kvc_prefix_load_options *options) {
  kvc_prefix_load_options zero = KVC_ZERO_STRUCT;
  *options = zero;
  options->struct_size = (uint32_t)sizeof(zero);
}

/* Starts to load the part of a prefix that the tiers have and the pools lack. While the load runs it holds one sequence and
 * the pages.
 *   query    borrowed, tokens included
 *   options  nullable: all zero; borrowed
 *   hit      nullable: filled as by kvc_prefix_match
 *   job      filled; 0 = nothing is to be loaded, or computing is faster
 * Errors: OUT_OF_RANGE (num_tokens, salt_begin, priority, time_to_live, token_ns), UNSUPPORTED (the cache has no tier),
 * TOO_MANY_SEQUENCES, OUT_OF_PAGES, OUT_OF_MEMORY. Threads: any. The cost grows with the pages, because tiers answer from
 * memory.
 * Since 0.1. */
KVC_API kvc_status kvc_prefix_load(kvc_cache *cache, const kvc_prefix_query *query, const kvc_prefix_load_options *options,
                                   kvc_prefix_hit *hit, kvc_job *job, kvc_error *error);

typedef struct kvc_job_info {
  uint32_t struct_size;
  int32_t done;         /* 1 = the job has ended, and its id is stale from now on */
  int64_t tokens;       /* done: tokens of the query that were loaded. They are findable now. Suspend and resume: the sequence's
                           length */
} kvc_job_info;

static inline void kvc_job_info_init(kvc_job_info *info) {
  kvc_job_info zero = KVC_ZERO_STRUCT;
  *info = zero;
  info->struct_size = (uint32_t)sizeof(zero);
}

/* Says whether a job has ended. The call that first says so ends the job: it publishes what was loaded, frees the pages of the
 * suspended sequence, or makes the resumed one usable. If a suspend or resume has failed, the error says so and ends the job too.
 *   info  filled
 * Errors: STALE_ID (no such job; or the sequence of a suspend or resume was removed, which ends the job), IO (no tier took a page of
 * the sequence, or a tier has lost one), CANCELLED (a suspend or resume). Threads: any. It waits for nothing. Since 0.1. */
KVC_API kvc_status kvc_job_poll(kvc_cache *cache, kvc_job job, kvc_job_info *info, kvc_error *error);

/* Ends a job early. It still waits for pages that are being read or written, so poll it until it is done. What was loaded by
 * then is kept. A suspend or resume leaves its sequence as it was.
 * Errors: STALE_ID. Threads: any. It waits for nothing. Since 0.1. */
KVC_API kvc_status kvc_job_cancel(kvc_cache *cache, kvc_job job, kvc_error *error);

/* Gives a file descriptor that is readable while a job has ended and was not polled since, for poll(), epoll and the like. The cache
 * owns it: do not read or close it. It is valid until kvc_cache_destroy.
 *   descriptor  filled
 * Errors: UNSUPPORTED (the cache has no tier). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_job_descriptor(kvc_cache *cache, int32_t *descriptor, kvc_error *error);

/* Traffic between the pools and all tiers since create, in pages of groups. */
typedef struct kvc_tier_traffic {
  uint32_t struct_size;
  int32_t num_tiers;
  int64_t pages_waiting;       /* queued for their store, or being stored. 0: the tiers have all that they will get */
  int64_t pages_stored;
  int64_t pages_dropped;       /* evicted before they were copied, or too many for the queue */
  int64_t pages_not_stored;    /* that a tier refused, or failed to store */
  int64_t pages_loading;       /* of jobs that run */
  int64_t pages_loaded;
  int64_t pages_not_loaded;    /* that a tier no longer had, or whose object did not match */
  int64_t sequences_suspended; /* sequences that are suspended now */
} kvc_tier_traffic;

static inline void kvc_tier_traffic_init(kvc_tier_traffic *traffic) {
  kvc_tier_traffic zero = KVC_ZERO_STRUCT;
  *traffic = zero;
  traffic->struct_size = (uint32_t)sizeof(zero);
}

/* Counts the traffic of the tiers. An engine that shuts down polls until pages_waiting is 0, so that nothing is lost.
 *   traffic  filled
 * Errors: none but misuse. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_tier_traffic(kvc_cache *cache, kvc_tier_traffic *traffic, kvc_error *error);

/* Starts to move the pages of a sequence to a tier. The loop of an engine that has too few pages for a step:
 *
 *   kvc_seq victim = latest_request();
 *   if (kvc_seq_suspend(cache, victim, &job, &error)) return report(error.message);
 *   ...                                                        // poll the job until it is done: then its pages are available
 *   if (kvc_seq_resume(cache, victim, &job, &error) == KVC_ERROR_OUT_OF_PAGES) continue;     // later, when others have ended
 *   ...                                                        // poll the job until it is done: then the sequence is as before
 *
 * The pages are those that kvc_seq_exclusive_pages counts. Pages that another sequence or an export uses too stay, and the sequence
 * keeps its references. Each page goes to the first tier that takes it, in the order in which the tiers were added. A host tier
 * never evicts it, and refuses a page for which it has no room; another tier may evict it. Until the job is done the
 * sequence is busy, as in an open forward, and a failure leaves it as it was.
 *   A suspended sequence keeps its id, length, settings and checkpoints, and counts as one of max_sequences. Calls that read or
 * change its contents return SUSPENDED, and kvc_seq_pages gives -1 for its pages. kvc_seq_remove and kvc_cache_clear remove
 * it, and its objects from the tiers. A process that is killed leaves its objects in a folder, until the capacity evicts them.
 *   job  filled; never 0
 * Errors: STALE_ID, BUSY, UNCOMMITTED, SUSPENDED, UNSUPPORTED (the cache has no tier, or they all have KVC_TIER_STORE_NOTHING),
 * OUT_OF_MEMORY. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_suspend(kvc_cache *cache, kvc_seq sequence, kvc_job *job, kvc_error *error);

/* Starts to bring back a suspended sequence. It takes all pages at once, and evicts as kvc_forward_begin does. The sequence stays
 * suspended until the job is done. If a tier has lost an object, the job fails, and the sequence stays suspended: remove it and
 * compute its tokens again.
 *   job  filled; never 0
 * Errors: STALE_ID, BUSY (a resume runs), ORDER (the sequence is not suspended), OUT_OF_PAGES (of error->group), OUT_OF_MEMORY,
 * UNSUPPORTED (the cache has no tier). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_resume(kvc_cache *cache, kvc_seq sequence, kvc_job *job, kvc_error *error);

/* ============================================================================================
 * 17  Transfer: a sequence to another cache
 * ============================================================================================
 * One process computes a prompt, and another one decodes. The receiver reserves pages, and describes what it expects:
 *
 *   kvc_receive_args receive;  kvc_receive_args_init(&receive);
 *   receive.num_tokens = prompt_length;
 *   kvc_transfer incoming;
 *   if (kvc_transfer_receive(cache, &receive, &incoming, &error)) return report(error.message);
 *   kvc_transfer_describe(cache, incoming, description, sizeof description, &bytes, &error);
 *   ... the bytes go to the sender, in any way ...
 *   kvc_transfer_info info;  kvc_transfer_info_init(&info);
 *   while (!info.done) {                                       // steps of other sequences run meanwhile
 *     if (kvc_transfer_poll(cache, incoming, &info, &error)) return compute_the_prompt_here();
 *   }
 *   decode(info.sequence);
 *
 * The sender opens the description over its sequence, before, while or after it computes the prompt:
 *
 *   kvc_transfer outgoing;
 *   if (kvc_transfer_send(cache, seq, description, bytes, &outgoing, &error)) return report(error.message);
 *   ... a step; after each layer, or less often: kvc_transfer_poll(cache, outgoing, &info, &error) ...
 *   ... and then until info.done: the receiver has everything ...
 *
 *   Rows      Tokens travel as rows, in the order of kvc_seq_save. The two caches may have different page sizes, capacities
 *             and SIMD code. Their layouts and fingerprints must be equal, which kvc_transfer_send checks before a byte
 *             moves.
 *   Ranks     Both sides may be several ranks of tensor parallelism, with a cache each, and need not have equally many. Each receiving
 *             rank has a transfer of its own. Give its description to every sending rank. kvc_transfer_send sends those heads that
 *             the receiver needs and the sender has. Of ranks with the same head, one sends it. Other tp_size than the
 *             receiver's: no recurrent groups, and all heads of a layer must have equal scales.
 *   Layers    A poll sends what the cache holds. Of an open forward, it sends the layers that were appended. An engine that
 *             polls after each layer sends layer by layer. If the forward is aborted, its tokens are sent again when they
 *             are appended again.
 *   Windows   Of a group with a window, only the pages that the query after the last token sees are reserved and sent.
 *   Length    The sender's sequence reaches num_tokens, and is not extended before the transfer is done: groups with windows and with
 *             states forget what the receiver needs.
 *   Failure   If the peer ends, fails, cancels or is silent for timeout_ms, the next poll returns IO and ends the transfer: its pages
 *             are free again. A sender's sequence stays as it was.
 *   Polls     A side that does not poll is silent. A poll copies a few MiB at most, and waits for nothing.
 *   Transport A cache without a transport of its own reaches caches of the same process. libkvcache_ucx.so reaches other processes
 *             and machines (kvcache_ucx.h).
 *   fork()    Transfers work in the parent alone. In the child they fail.
 * Transfers need a cache with pools, without encoder groups. On a GPU the rows pass through host memory: a poll waits until the
 * copies of what it sends have arrived there, and those run after the forward's calls that made the rows. */

/* How bytes reach another cache: kvcache_transport.h defines it. */
typedef struct kvc_transport kvc_transport;

/* Sets the cache's transport. Call it once, before the cache's first transfer.
 *   transport  adopted: kvc_cache_destroy closes it
 * Errors: UNSUPPORTED (no pools, encoder groups, another version of kvcache_transport.h), INVALID_ARGUMENT (it lacks a
 * function), ORDER (the cache has one, or had a transfer), OUT_OF_MEMORY. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_set_transport(kvc_cache *cache, const kvc_transport *transport, kvc_error *error);

/* Id of a transfer. 0 = none. */
typedef uint64_t kvc_transfer;

typedef struct kvc_receive_args {
  uint32_t struct_size;
  int32_t timeout_ms;   /* how long the peer may be silent; 0 = 30000; 1..3600000. Both sides use it */
  int64_t num_tokens;   /* the length of the sequence when the transfer is done; >= 1 */
  kvc_seq prefix;       /* 0, or a sequence with the first tokens, as kvc_prefix_attach gives it: only the others travel. The new
                           sequence shares its whole pages. The cache must have no group of states */
} kvc_receive_args;

static inline void kvc_receive_args_init(kvc_receive_args *args) {
  kvc_receive_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Starts to receive a sequence. It takes its pages at once, and evicts as kvc_forward_begin does.
 *   args      borrowed
 *   transfer  filled; never 0
 * Errors: OUT_OF_RANGE (num_tokens, timeout_ms), STALE_ID, BUSY, UNCOMMITTED, SUSPENDED (prefix), INVALID_ARGUMENT (the prefix has
 * num_tokens or more), ORDER (some layer lacks tokens of the prefix), UNSUPPORTED (no pools, encoder groups; a prefix with a
 * streaming window or beside a group of states), TOO_MANY_SEQUENCES, OUT_OF_PAGES (of error->group), OUT_OF_MEMORY, IO (the
 * transport has no address). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_transfer_receive(kvc_cache *cache, const kvc_receive_args *args, kvc_transfer *transfer,
                                        kvc_error *error);

/* Writes the description of a transfer that the cache receives: its layout, the tokens that it needs, and where to send them. It is
 * valid once, for one sequence: each rank of the sender opens it once.
 *   buffer  nullable if capacity is 0, which only gives `bytes`; filled
 *   bytes   filled with the length of the description
 * Errors: STALE_ID, INVALID_ARGUMENT (the cache sends this transfer), BUFFER_TOO_SMALL. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_transfer_describe(kvc_cache *cache, kvc_transfer transfer, void *buffer, int64_t capacity,
                                         int64_t *bytes, kvc_error *error);

/* Starts to send a sequence to the cache that a description is from. Nothing is sent before the first poll.
 *   description  borrowed; [bytes], from kvc_transfer_describe
 *   transfer     filled; never 0. If the receiver needs no heads of this cache's rank, it is done at its first poll
 * Errors: STALE_ID, UNSUPPORTED (no pools, encoder groups; a streaming window; a description of a later version), CORRUPT
 * (the description is damaged, or is none), LAYOUT (the caches differ in model, layout or transport: the message has both
 * values), OUT_OF_RANGE (the sequence is longer than the receiver expects), EVICTED (a window has freed tokens that the
 * receiver needs), IO (the transport cannot reach the address), OUT_OF_MEMORY. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_transfer_send(kvc_cache *cache, kvc_seq sequence, const void *description, int64_t bytes,
                                     kvc_transfer *transfer, kvc_error *error);

typedef struct kvc_transfer_info {
  uint32_t struct_size;
  int32_t done;       /* 1 = the receiver has everything, and the id is stale from now on */
  int64_t tokens;     /* that all layers have received, or sent; the prefix and what windows skip included */
  int64_t bytes;      /* of rows and states, sent or received so far */
  kvc_seq sequence;   /* receiver, done: the new sequence; else 0 */
} kvc_transfer_info;

static inline void kvc_transfer_info_init(kvc_transfer_info *info) {
  kvc_transfer_info zero = KVC_ZERO_STRUCT;
  *info = zero;
  info->struct_size = (uint32_t)sizeof(zero);
}

/* Moves a transfer on, and says how far it is. The transfer ends with the call that first says that it is done, or with a
 * call that fails.
 *   info  filled
 * Errors: STALE_ID (no such transfer; or the sender's sequence was removed), EVICTED (a window has freed tokens before they were sent),
 * ORDER (the sender's sequence was extended, and its state at num_tokens is gone), IO (the peer failed, cancelled or is silent; the
 * transport failed), CORRUPT (a message does not fit the description), OUT_OF_MEMORY. All but "no such transfer" end it.
 * Threads: any. Since 0.1. */
KVC_API kvc_status kvc_transfer_poll(kvc_cache *cache, kvc_transfer transfer, kvc_transfer_info *info, kvc_error *error);

/* Ends a transfer. What was received is dropped. If this side has heard of the peer, it tells the peer, whose poll then
 * returns IO. Otherwise the peer waits until its timeout.
 * Errors: STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_transfer_cancel(kvc_cache *cache, kvc_transfer transfer, kvc_error *error);

/* ============================================================================================
 * 18  Advanced: proofs and comparisons
 * ============================================================================================ */

/* Computes a hash of all bookkeeping: ids, lengths, page tables, free lists. Equal calls on equal configs give equal hashes, so
 * ranks and replays can be compared. The hash may differ between versions of the library.
 *   digest  filled
 * Errors: none but misuse. Threads: any. The cost grows with the size of the tables. Since 0.1. */
KVC_API kvc_status kvc_cache_digest(kvc_cache *cache, uint64_t *digest, kvc_error *error);

/* Checks that references add up, that free + used = total, and that no page is in two tables unless its count says so.
 * Errors: INTERNAL, with the invariant that does not hold. Threads: any. The cost grows with the size of the tables.
 * Since 0.1. */
KVC_API kvc_status kvc_cache_check_invariants(kvc_cache *cache, kvc_error *error);

/* ============================================================================================
 * 19  One symbol for all
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
  kvc_status (*forward_load_state)(kvc_cache *cache, kvc_forward forward, int32_t layer, int32_t state, int32_t token,
                                   const DLTensor *tensor, kvc_error *error);
  kvc_status (*forward_store_state)(kvc_cache *cache, kvc_forward forward, int32_t layer, int32_t state, int32_t token,
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
  kvc_status (*prefix_match)(kvc_cache *cache, const kvc_prefix_query *query, kvc_prefix_hit *hit, kvc_error *error);
  kvc_status (*prefix_attach)(kvc_cache *cache, const kvc_prefix_query *query, void *stream, kvc_prefix_hit *hit,
                              kvc_seq *sequence, kvc_error *error);
  kvc_status (*prefix_publish)(kvc_cache *cache, kvc_seq sequence, const kvc_prefix_query *query,
                               const kvc_prefix_options *options, kvc_prefix_published *published, kvc_error *error);
  kvc_status (*prefix_drop)(kvc_cache *cache, const kvc_prefix_query *query, int64_t *pages, kvc_error *error);
  kvc_status (*prefix_drop_session)(kvc_cache *cache, uint64_t session, int64_t *pages, kvc_error *error);
  kvc_status (*prefix_set_priority)(kvc_cache *cache, const kvc_prefix_query *query, int32_t priority,
                                    int64_t time_to_live, kvc_error *error);
  kvc_status (*prefix_set_session_priority)(kvc_cache *cache, uint64_t session, int32_t priority, int64_t time_to_live,
                                            kvc_error *error);
  kvc_status (*prefix_pin)(kvc_cache *cache, const kvc_prefix_query *query, kvc_prefix_hit *hit, uint64_t *pin,
                           kvc_error *error);
  kvc_status (*prefix_unpin)(kvc_cache *cache, uint64_t pin, kvc_error *error);
  kvc_status (*cache_set_time)(kvc_cache *cache, int64_t now, kvc_error *error);
  kvc_status (*page_keys)(const kvc_page_keys_args *args, uint8_t *keys, kvc_error *error);
  kvc_status (*events_read)(kvc_cache *cache, const kvc_events_args *args, kvc_events_range *range, kvc_error *error);
  kvc_status (*events_snapshot)(kvc_cache *cache, const kvc_events_args *args, kvc_events_range *range,
                                kvc_error *error);
  kvc_status (*seq_save)(kvc_cache *cache, kvc_seq sequence, const kvc_save_args *args, void *stream, kvc_error *error);
  kvc_status (*seq_load)(kvc_cache *cache, const kvc_load_args *args, void *stream, kvc_seq *sequence,
                         int64_t *num_tokens, kvc_error *error);
  kvc_status (*cache_add_tier)(kvc_cache *cache, const kvc_tier_config *config, kvc_error *error);
  kvc_status (*prefix_load)(kvc_cache *cache, const kvc_prefix_query *query, const kvc_prefix_load_options *options,
                            kvc_prefix_hit *hit, kvc_job *job, kvc_error *error);
  kvc_status (*job_poll)(kvc_cache *cache, kvc_job job, kvc_job_info *info, kvc_error *error);
  kvc_status (*job_cancel)(kvc_cache *cache, kvc_job job, kvc_error *error);
  kvc_status (*cache_job_descriptor)(kvc_cache *cache, int32_t *descriptor, kvc_error *error);
  kvc_status (*cache_tier_traffic)(kvc_cache *cache, kvc_tier_traffic *traffic, kvc_error *error);
  kvc_status (*seq_exclusive_pages)(kvc_cache *cache, int32_t group, int64_t n, const kvc_seq *sequences,
                                    int64_t *pages, kvc_error *error);
  kvc_status (*seq_suspend)(kvc_cache *cache, kvc_seq sequence, kvc_job *job, kvc_error *error);
  kvc_status (*seq_resume)(kvc_cache *cache, kvc_seq sequence, kvc_job *job, kvc_error *error);
  kvc_status (*forward_select)(kvc_cache *cache, kvc_forward forward, int32_t layer, const kvc_select_args *args,
                               kvc_error *error);
  kvc_status (*cache_describe)(kvc_cache *cache, char *buffer, int64_t capacity, int64_t *length, kvc_error *error);
  kvc_status (*cache_set_transport)(kvc_cache *cache, const kvc_transport *transport, kvc_error *error);
  kvc_status (*transfer_receive)(kvc_cache *cache, const kvc_receive_args *args, kvc_transfer *transfer,
                                 kvc_error *error);
  kvc_status (*transfer_describe)(kvc_cache *cache, kvc_transfer transfer, void *buffer, int64_t capacity,
                                  int64_t *bytes, kvc_error *error);
  kvc_status (*transfer_send)(kvc_cache *cache, kvc_seq sequence, const void *description, int64_t bytes,
                              kvc_transfer *transfer, kvc_error *error);
  kvc_status (*transfer_poll)(kvc_cache *cache, kvc_transfer transfer, kvc_transfer_info *info, kvc_error *error);
  kvc_status (*transfer_cancel)(kvc_cache *cache, kvc_transfer transfer, kvc_error *error);
} kvc_api;
/* END GENERATED */

/* Returns the library's functions as a table, for hosts that load it by dlopen and need one symbol. Members are only appended:
 * check struct_size (or offsetof) before using a newer one.
 *   abi_version  KVC_ABI_VERSION of the caller's header
 * Returns: a static table. NULL if the major versions differ; while major is 0, if the minor versions differ; from 1.0 on, if the
 * caller's minor version is above the library's. Threads: any. Since 0.1. */
KVC_API const struct kvc_api *kvc_get_api(uint32_t abi_version);

#undef KVC_ZERO_STRUCT

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVCACHE_H_ */
