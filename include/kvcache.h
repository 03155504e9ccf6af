/* libkvcache: a paged KV cache for LLM engines and the attention that reads it, as a C library.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * ============================================================================================
 * 1  Introduction
 * ============================================================================================
 * An engine creates three kinds of objects:
 *   - A context stands for one device and the threads that compute on it.
 *   - A cache belongs to a context. It holds the K and V of every layer of a model, in pages.
 *   - A sequence belongs to a cache. It is a list of tokens with the pages that hold their K and V.
 *
 * Each step of the model is a forward, which consists of these calls:
 *   - begin reserves pages for the new tokens of a batch.
 *   - attend is called once for each layer. It stores the new K and V of the layer. Then it computes attention over all
 *     stored tokens of each sequence, the new ones included.
 *   - end makes the new tokens part of their sequences.
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
 * This program needs no section after section 7. Sections 8 to 18 are for special uses, and section 19 is for programs that
 * load the library at run time. docs/glossary.md explains all terms.
 *
 * Words
 *   page      `page_size` consecutive token slots of one layer group.
 *   slot      The place of one token in the pools of a group: page * page_size + offset.
 *   pool      The memory of all pages of one layer.
 *   sequence  An ordered list of pages in each group, and a length in tokens.
 *   fork      A new sequence that shares the first tokens of its parent, page by page.
 *   forward   One step of the model over a batch: begin, calls for each layer, then end or abort. "Step" means the same.
 *   group     Layers that share page tables, because their queries see the same keys. A group stores K and V, latent rows or
 *             recurrent states. Its queries see all keys, a sliding window, a chunk, or the keys of an encoder sequence.
 * Letters in shapes: T is the number of tokens of a batch. Hq is the number of query heads, and Hkv is the number of key and
 * value heads (kv heads). D is the head dim of q and k, and Dv is the head dim of v. A row of a batch is one sequence. A row
 * of a tensor is one token. A range [a, b) contains a and does not contain b. Lengths are in tokens, and the first token of
 * a sequence has position 0.
 *
 * Ownership: three words say who owns memory
 *   borrowed  The library uses the memory during the call, and keeps no reference. On a GPU the memory must stay valid until
 *             the stream has done the work of the call.
 *   adopted   The library owns the object after a successful call. On failure the caller still owns it.
 *   returned  The caller owns the result, and releases it as the function's comment says.
 *
 * Rules for all calls
 *   Errors    A function that can fail returns a kvc_status. Its last argument is a nullable kvc_error. A failed call
 *             changes nothing, unless its comment says otherwise. A call with n = 0 does nothing. The following errors are
 *             possible in any call, so comments of functions do not list them: NULL_ARGUMENT, STRUCT_SIZE, INVALID_ARGUMENT
 *             (negative n or capacity), UNSUPPORTED (unknown flag bits, unknown fields that are not zero), DEVICE (stream),
 *             DEVICE_FAILED (the driver of a GPU), OUT_OF_MEMORY, INTERNAL.
 *   Threads   "any" means that any thread may make the call. The library serialises calls that change the same cache. No
 *             call may run at the same time as the kvc_cache_destroy or kvc_context_destroy of its cache or context.
 *             Otherwise the behaviour is undefined.
 *   Blocking  Only kvc_seq_save and kvc_seq_load wait for I/O. A call may wait for short work of other calls on its cache,
 *             such as copies of partial pages and of tree nodes, or kvc_cache_check_invariants. It never waits until
 *             another call has computed attention. On the CPU, a compute call returns when its result is written. At most
 *             eight compute calls run in one context at the same time, and a ninth waits until one of them is done.
 *   Streams   `stream` is a stream of the device (CUDA: CUstream; NULL is the default stream). On the CPU it must be NULL.
 *             A call with a stream only enqueues work. The library orders this work after the earlier work of the same cache
 *             on all streams. All calls of a forward use the stream that was given to kvc_forward_begin. Memory that the
 *             calls read or write must stay valid until the stream has done their work.
 *   fork()    The child of fork() may use a cache if no thread was inside a call on the cache during fork(). For stateless
 *             calls and plans, no thread may have been inside a call on the context. The child has its own copy of the
 *             cache. So each of the two processes ends or aborts its own open forwards, and releases its own exports. Worker
 *             threads start again with the child's first compute call. Behaviour is undefined for memory that both processes
 *             map as shared. It is also undefined in children of clone() or _Fork(), because these run no fork handlers.
 *   NULL      A pointer argument must not be NULL unless it is marked "nullable". The words after "nullable:" say what NULL
 *             means.
 *   Else 0    "FLAG: meaning. Else 0" means that the field must be 0 without the flag. The same holds for a kind of layer
 *             or group in place of a flag.
 *   Arrays    Memory that a call fills must not overlap memory that the call reads. All pointers point to host memory,
 *             except the data pointers of tensors. The library reads each element of an array of ids or numbers once. If
 *             another thread writes the array during the call, the library uses the old or the new value of each element.
 *
 * Structs: every extensible struct starts with `struct_size`. Call the kvc_*_init function of the struct first, then set
 * fields. (Without a C compiler, zero the struct and store its size in struct_size.) A field that is 0 has its default
 * meaning. See docs/reference/abi.md.
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

/* Describes how the loaded library was built, as one JSON object. Its members are version, abi, compiler, dlpack, backends,
 * simd (the name of every compiled SIMD target, the fastest last) and features.
 * Returns: a static string, never NULL. Threads: any. Since 0.1. */
KVC_API const char *kvc_build_info(void);

/* ============================================================================================
 * 3  Errors
 * ============================================================================================ */

/* The result of a call; 0 is success. Later releases may add codes. The band of a code says what an unknown code means:
 *   1..99     misuse: the program is wrong
 *   100..199  capacity: the call may succeed later, or with less work
 *   200..299  state: an object is in a state that does not allow the call
 *   300..399  device
 *   400..499  data and I/O
 *   900..999  internal
 * docs/reference/errors.md says what to do about each code. */
typedef int32_t kvc_status;

enum kvc_status_code {
  KVC_OK = 0,
  /* Misuse. */
  KVC_ERROR_INVALID_ARGUMENT = 1,  /* a value is out of its range, or two values contradict each other */
  KVC_ERROR_NULL_ARGUMENT = 2,     /* a pointer that is not nullable is NULL */
  KVC_ERROR_STRUCT_SIZE = 3,       /* struct_size is below that of the first release, or differs within an array */
  KVC_ERROR_UNSUPPORTED = 4,       /* the call is valid, but this library or backend cannot do it */
  KVC_ERROR_DTYPE = 5,             /* a tensor has a wrong dtype */
  KVC_ERROR_DEVICE = 6,            /* a tensor is on a wrong device, or the device does not have the stream */
  KVC_ERROR_RANK = 7,              /* a tensor has a wrong number of dimensions */
  KVC_ERROR_SHAPE = 8,             /* a tensor has a wrong shape */
  KVC_ERROR_STRIDE = 9,            /* a tensor has wrong strides or a wrong alignment */
  KVC_ERROR_OUT_OF_RANGE = 10,     /* a layer, group, position or length does not exist */
  KVC_ERROR_STALE_ID = 11,         /* a sequence or forward no longer exists, or belongs to another cache */
  KVC_ERROR_DUPLICATE = 12,        /* one call names the same sequence twice */
  KVC_ERROR_EARLIER_CALL = 13,     /* KVC_CONTEXT_VALIDATE: the device found a bad index of an earlier call, and this call
                                      did nothing */
  /* Capacity: the program made no mistake. */
  KVC_ERROR_OUT_OF_PAGES = 100,          /* required and available count pages of error->group */
  KVC_ERROR_OUT_OF_MEMORY = 101,         /* the host or the device refused memory */
  KVC_ERROR_TOO_MANY_SEQUENCES = 102,    /* required and available count sequences */
  KVC_ERROR_TOO_MANY_FORWARDS = 103,     /* required and available count open forwards */
  KVC_ERROR_BATCH_TOO_LARGE = 104,       /* required and available count tokens or rows of a batch */
  KVC_ERROR_BUFFER_TOO_SMALL = 105,      /* required and available count elements of an output array */
  KVC_ERROR_TREE_TOO_LARGE = 106,        /* required and available count uncommitted tree nodes of a sequence */
  /* State. */
  KVC_ERROR_BUSY = 200,       /* the sequence is in an open forward or a job, or another thread uses the forward */
  KVC_ERROR_ORDER = 201,      /* the calls came in a wrong order, or a call that is allowed once came twice */
  KVC_ERROR_CANCELLED = 202,  /* the forward was cancelled, so only abort is possible. Or the job of a suspend or resume was
                                 cancelled */
  KVC_ERROR_EVICTED = 203,    /* the needed keys were freed, because they left a window */
  KVC_ERROR_UNCOMMITTED = 204, /* the sequence has an uncommitted tree. Call kvc_seq_commit first */
  KVC_ERROR_STALE = 205,      /* the arrays of a plan are not those of the requested step, or no step is open in a graph */
  KVC_ERROR_SUSPENDED = 206,  /* the sequence is suspended. Call kvc_seq_resume first */
  /* Device. */
  KVC_ERROR_DEVICE_UNAVAILABLE = 300, /* no backend, driver or device of that type was found */
  KVC_ERROR_DEVICE_FAILED = 301,      /* the driver reported an error. The message has the name of the error and the call */
  /* Data and I/O. */
  KVC_ERROR_IO = 400,      /* an operation on a file failed, or a callback that writes or reads. The message says why */
  KVC_ERROR_CORRUPT = 401, /* stored bytes are damaged, cut off, or were never written by this library */
  KVC_ERROR_LAYOUT = 402,  /* stored bytes are undamaged, but belong to another model, dtype or layout. The message has
                              both layouts */
  /* Internal. */
  KVC_ERROR_INTERNAL = 900 /* a bug of the library. kvc_cache_check_invariants reports this code too */
};

/* Returns whether a status is in the capacity band. Then the call may succeed later, or with less work. */
static inline int kvc_status_is_capacity(kvc_status status) { return status >= 100 && status < 200; }

/* Says which error occurred, in numbers and in words. The caller owns the struct. The library writes to it only on failure.
 * Its layout never changes. */
typedef struct kvc_error {
  uint32_t struct_size; /* sizeof(kvc_error); KVC_ERROR_INIT sets it */
  kvc_status code;      /* the returned status */
  int64_t index;        /* the row, layer or array element that has the error; -1 = none */
  int64_t required;     /* what the call needs, for capacity errors and where a comment says so; else 0 */
  int64_t available;    /* what is available, for the same errors; else 0 */
  int64_t group;        /* the layer group that has the error; -1 = none */
  char message[472];    /* "function: error with the values"; NUL-terminated ASCII */
} kvc_error;

#define KVC_ERROR_INIT \
  { (uint32_t)sizeof(kvc_error), 0, -1, 0, 0, -1, "" }

/* Sets an existing kvc_error to KVC_ERROR_INIT. The library cannot write to a kvc_error whose struct_size is not
 * sizeof(kvc_error). A call with such an error returns KVC_ERROR_STRUCT_SIZE and does nothing. */
static inline void kvc_error_init(kvc_error *error) {
  kvc_error initial = KVC_ERROR_INIT;
  *error = initial;
}

/* Returns the name of a status, such as "KVC_ERROR_OUT_OF_PAGES". For an unknown code it returns the name of the band.
 * Returns: a static string, never NULL. Threads: any. Since 0.1. */
KVC_API const char *kvc_status_name(kvc_status status);

/* ============================================================================================
 * 4  Context: one device, its threads and scratch
 * ============================================================================================ */

typedef struct kvc_context kvc_context;

/* The type of a function that computes one item of a parallel_for. The library provides this function.
 *
 * Rules for callbacks of the host (parallel_for and log): several threads may call them at the same time. The library holds
 * no lock while it calls them. They must not unwind, and must not destroy the context or a cache. After kvc_context_destroy
 * and the kvc_cache_destroy of every cache in the context, the library calls them no more. Exported tensors never call
 * them. */
typedef void (*kvc_parallel_item_fn)(void *arg, int64_t index);

/* A callback of the host that computes n items. It calls item(arg, i) once for each i in [0, n), and returns when all calls
 * have returned. The calls may come in any order and on any threads, even all on one thread. Items never wait for each
 * other. */
typedef void (*kvc_parallel_for_fn)(void *user, int64_t n, kvc_parallel_item_fn item, void *arg);

enum kvc_context_flags {
  /* Validation mode, for tests, and to find a call that wrote outside of its pages. The device checks all values of index
   * tensors that only a GPU reads (sections 10 and 11), page ids included. The device skips a row or token that has a bad
   * value. It skips a kvc_plan_build with a bad value as a whole.
   *
   * The device keeps the first bad value since the last report. The next call on the context that has index tensors reports
   * this value as EARLIER_CALL, and so does kvc_context_check. Neither call waits for the device. The message names the
   * call, the tensor, the row and the value, and error->index is the row. The reporting call does nothing else and may be
   * repeated. But a kvc_plan_build that reports also invalidates its plan, as every failed build does. Replays of captured
   * calls are checked when they run.
   *
   * Validation costs one pass over the page ids in use. The flag has no effect on values that the host reads (on the CPU,
   * all values), because the call itself always checks them. */
  KVC_CONTEXT_VALIDATE = 1
};

enum kvc_log_level { KVC_LOG_WARNING = 1, KVC_LOG_INFO = 2, KVC_LOG_DEBUG = 3 };

/* A callback that writes a log message. The library calls it on the thread that called the library. `message` is borrowed by
 * the callback. */
typedef void (*kvc_log_fn)(void *user, int32_t level, const char *message);

typedef struct kvc_context_config {
  uint32_t struct_size;
  int32_t device_type;  /* a DLDeviceType; 0 = kDLCPU */
  int32_t device_id;    /* ordinal of the device; 0 on the CPU */
  int32_t num_threads;  /* CPU: the number of threads that compute, the thread of the caller included; 0 = the number of CPUs
                           in the affinity mask, but at most the cgroup quota. With parallel_for: the largest number of
                           threads that parallel_for uses at the same time. At most 1024 */
  const char *simd;     /* nullable: the best SIMD target of this CPU. Else the name of a SIMD target from
                           kvc_context_describe, or "reference" (float64, for tests). avx512_amx requests AMX tiles for the
                           whole process */
  kvc_parallel_for_fn parallel_for; /* nullable: the context starts its own threads on first use. Else the context uses the
                                       thread pool of the host through this callback */
  void *parallel_for_user; /* the first argument of parallel_for */
  kvc_log_fn log; /* nullable: no log */
  void *log_user; /* the first argument of log */
  const char *backend; /* nullable: the default backend of the device type. The CPU's backend is built in. The CUDA backend
                          is the file $KVCACHE_CUDA_BACKEND, or libkvcache_cuda.so in the directory of this library. Else the
                          path of a backend's file (kvcache_backend.h), which stays loaded */
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
 * This call starts no thread. The first compute call that is large enough starts the worker threads.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED (simd), DEVICE_FAILED, OUT_OF_MEMORY, DEVICE_UNAVAILABLE (no such file, another
 * version of the backend's table, no driver, no device, or a device that the backend was not built for; the message says
 * which).
 * Threads: any. Since 0.1. */
KVC_API kvc_status kvc_context_create(const kvc_context_config *config, kvc_context **context, kvc_error *error);

/* Releases the caller's reference to a context. A cache keeps a reference to its context. NULL does nothing.
 * The call that releases the last reference joins the idle worker threads of the context. This call can be the present
 * function, kvc_cache_destroy or the deleter of an exported tensor. Threads: any, once. Since 0.1. */
KVC_API void kvc_context_destroy(kvc_context *context);

/* Describes the context as one JSON object: device, device_id, threads, host_parallel_for, simd (in use), simd_available.
 *   buffer    nullable if capacity is 0; [capacity] bytes, NUL-terminated on success
 *   length    nullable: bytes of the text without its NUL, filled also on BUFFER_TOO_SMALL (error->required counts the NUL
 *             too)
 * Errors: BUFFER_TOO_SMALL (never for capacity 0). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_context_describe(kvc_context *context, char *buffer, int64_t capacity, int64_t *length,
                                        kvc_error *error);

/* Reports a bad index that the device has found, in a context with KVC_CONTEXT_VALIDATE. Engines that only replay graphs
 * need this call. Tests call it at their end:
 *
 *   cudaStreamSynchronize(stream);                           // without it, the check covers only work that is done
 *   if (kvc_context_check(context, &error)) return report(error.message);
 *   // an earlier kvc_append_slots, row 3: slot_mapping[3] is 4096, not in 0..4095
 *
 * The call reads one word of memory, and does not wait for the device.
 * Errors: EARLIER_CALL, once for each report. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_context_check(kvc_context *context, kvc_error *error);

/* ============================================================================================
 * 5  Cache: layers, groups, capacity
 * ============================================================================================ */

typedef struct kvc_cache kvc_cache;

/* The RoPE mode of a layer says whether and when the library rotates q and k (rotary position embedding, RoPE). Only
 * rope_dim dims of a vector are rotated, in pairs. Pair i is rotated by the angle position * f(i), where f(i) =
 * rope_theta^(-2i/rope_dim) unless a scaling changes f(i). docs/reference/rope.md has every formula. */
enum kvc_rope_mode {
  KVC_ROPE_NONE = 0,     /* q and k are used unchanged, and the other rope_* fields are ignored */
  KVC_ROPE_ON_APPEND = 1, /* the library rotates q and k at their positions, and stores rotated k. Rotated q is rounded to
                             q's dtype, as if the caller had rotated it */
  KVC_ROPE_ON_READ = 2   /* k is stored, exported and imported without rotation. attend rotates q as in KVC_ROPE_ON_APPEND.
                            It rotates each key in float32 when it reads the key */
};

/* How a scaling for long contexts changes f(i) of kvc_rope_mode. */
enum kvc_rope_scaling_kind {
  KVC_ROPE_SCALING_NONE = 0,
  KVC_ROPE_SCALING_LINEAR = 1,  /* f(i) / factor (position interpolation) */
  KVC_ROPE_SCALING_LLAMA3 = 2,  /* pairs with long wavelengths have f(i) / factor, and pairs with short wavelengths have
                                   f(i). Pairs between low_freq_factor and high_freq_factor have a blend of both */
  KVC_ROPE_SCALING_YARN = 3,    /* pairs that make at most beta_slow full rotations over original_max_position tokens have
                                   f(i) / factor. Pairs that make at least beta_fast rotations have f(i). Pairs between these
                                   bounds have a blend of both. cos and sin are multiplied by attention_factor */
  KVC_ROPE_SCALING_LONGROPE = 4 /* f(i) / short_factors[i] or f(i) / long_factors[i] (see kvc_seq_set_rope). cos and sin are
                                   multiplied by attention_factor */
};
enum kvc_rope_scaling_flags {
  KVC_ROPE_SCALING_NO_TRUNCATE = 1 /* yarn: the bounds of the blend are not rounded to whole pairs ("truncate": false) */
};

/* The fields of "rope_scaling" in the config.json of a model. They say how the model was extended beyond the length that it
 * was first trained for. Fields that `kind` does not use must be 0. */
typedef struct kvc_rope_scaling {
  uint32_t struct_size;
  int32_t kind;                  /* KVC_ROPE_SCALING_* */
  uint32_t flags;                /* KVC_ROPE_SCALING_NO_TRUNCATE */
  int32_t num_short_factors;     /* longrope: rope_dim / 2 */
  int32_t num_long_factors;      /* longrope: rope_dim / 2 */
  uint32_t reserved;             /* 0 */
  int64_t original_max_position; /* llama3, yarn, longrope: the length in tokens that the model was first trained for,
                                    2..2^30 */
  double factor;                 /* 1..1e6. longrope: used only in the default of attention_factor; 0 = 1 */
  double low_freq_factor;        /* llama3: > 0 */
  double high_freq_factor;       /* llama3: > low_freq_factor */
  double beta_fast;              /* yarn: > 0, usually above beta_slow; 0 = 32 */
  double beta_slow;              /* yarn: > 0; 0 = 1 */
  double attention_factor;       /* yarn, longrope: cos and sin are multiplied by it, for q and for k. > 0; 0 = the default
                                    of the kind */
  double mscale;                 /* yarn: with mscale_all_dim, sets the default of attention_factor, as in DeepSeek. Without
                                    mscale_all_dim it has no effect */
  double mscale_all_dim;         /* yarn: see mscale. It does not change softmax_scale, which the caller sets: see
                                    docs/reference/rope.md */
  const double *short_factors;   /* longrope: borrowed; [num_short_factors], each 1e-6..1e6 */
  const double *long_factors;    /* longrope: borrowed; [num_long_factors], each 1e-6..1e6 */
} kvc_rope_scaling;

static inline void kvc_rope_scaling_init(kvc_rope_scaling *scaling) {
  kvc_rope_scaling zero = KVC_ZERO_STRUCT;
  *scaling = zero;
  scaling->struct_size = (uint32_t)sizeof(zero);
}

enum kvc_layer_flags {
  KVC_LAYER_ROPE_INTERLEAVED = 1, /* pair i of rotated dims is (2i, 2i+1), as in GPT-J. Without this flag, pair i is
                                     (i, i + rope_dim/2), as in GPT-NeoX */
  /* The layer stores K and no V. Its keys are the index keys of a model with an indexer. kvc_forward_select chooses tokens
   * by these keys, and no query attends to them. The layer may be in any group that is neither recurrent nor cross. So its
   * index keys have the same page ids as the K and V of the other layers of the group. v_head_dim and latent_dim are 0,
   * v_scales is NULL, rope_mode is not KVC_ROPE_ON_READ, and of the storages only k_storage may be given. num_q_heads is the
   * number of index heads */
  KVC_LAYER_KEYS_ONLY = 2
};

/* One state tensor of a recurrent layer. The layer keeps one such tensor for each sequence. Examples are the last inputs of
 * a convolution, and the state of linear attention or of a state-space model. */
typedef struct kvc_state_config {
  uint32_t struct_size;
  DLDataType dtype;  /* float32, float16, bfloat16, int32, int64; {0,0,0} = float32 */
  int32_t rank;      /* 1..4 */
  uint32_t reserved; /* 0 */
  int64_t shape[4];  /* shape[0..rank - 1] are at least 1, and the rest is 0 */
  double fill;       /* the value of all elements in the state of an empty sequence. For a float dtype it is infinite, or a
                        number that rounds to a finite number of the dtype. For an integer dtype it is a whole number from
                        -2^53 to 2^53 that the dtype can represent */
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
  DLDataType dtype;      /* the type of stored K and V: float32, float16, bfloat16; {0,0,0} = float32. Quantised:
                            float8_e4m3fn, float8_e5m2, int8, uint4, float4_e2m1fn (docs/reference/formats.md).
                            A quantised element x is stored as x / scale, rounded to the nearest value of the type (ties to
                            even). A larger magnitude is stored as the largest finite value. NaN is stored as NaN where the
                            type has NaN. An element is read as stored * scale.
                            int8: each row of one token and one head has its own scale, which is stored in the page. The
                            scale is amax / 127, where amax is the largest magnitude in the row. No stored element is -128.
                            If amax / 127 rounds to 0 in float32, the row has scale 1 and is read as zeros. A row that holds
                            an infinity or a NaN is read as NaN */
  int32_t rope_mode;     /* KVC_ROPE_* */
  int32_t rope_dim;      /* number of rotated dims, even; rope_offset + rope_dim <= head_dim; 0 = head_dim - rope_offset */
  int32_t rope_offset;   /* first rotated dim; MLA: at least latent_dim, and 0 = latent_dim */
  uint32_t flags;        /* KVC_LAYER_* */
  int32_t kv_layer;      /* 0 = the layer stores its own K and V. 1 + i = the layer stores nothing, and reads the K and V of
                            layer i, which is an earlier layer of the same group. Call attend without k and v, after the
                            append of layer i. group, num_kv_heads, dims, dtype and rope_* must be equal in both layers. Give
                            storage and scales in layer i only */
  double rope_theta;     /* base of the angles, 1e-30..1e30; yarn: above 1. 0 = 10000 */
  const kvc_rope_scaling *rope_scaling; /* borrowed; nullable: none */
  double softmax_scale;  /* 1e-30..1e30; 0 = head_dim^-0.5. MLA: must be set, because it does not follow from head_dim
                            (DeepSeek-V3: 0.13523, docs/reference/mla.md) */
  DLManagedTensorVersioned *kv_storage; /* nullable: the cache allocates the pool, unless k_storage is given. Adopted by
                                           kvc_cache_create: the layer's page pool in memory of the caller,
                                           [>= pages, 2, Hkv, page_size, D]. Index 0 of dim 1 is K, and index 1 is V. The
                                           innermost stride is 1. All other strides are free, so both HND and NHD layouts are
                                           possible. D must equal Dv. The memory must be writable. No tensor may be given
                                           twice. Pools of several layers may interleave in memory, but must not overlap.
                                           The library calls the tensor's deleter once, when the cache and all exported views
                                           of the pool are gone. If the tensor has no deleter, the caller must keep the
                                           memory until then. docs/reference/storage.md has layouts */
  DLManagedTensorVersioned *k_storage;  /* nullable; adopted; like kv_storage, for K alone: [>= pages, Hkv, page_size, D] */
  DLManagedTensorVersioned *v_storage;  /* nullable; adopted; like kv_storage, for V alone: [>= pages, Hkv, page_size, Dv].
                                           Give it together with k_storage. MLA and KVC_LAYER_KEYS_ONLY have only k_storage.
                                           A storage has the dtype of the layer; for float8 the dtype may also be uint8.
                                           int8, uint4 and float4 layers cannot have a storage of the caller, because only
                                           the library can lay out the scales in their pages */
  const float *k_scales; /* float8, float4: borrowed; [num_scales], each 1e-20..1e20; nullable if num_scales is 0 */
  const float *v_scales; /* the same for V. MLA: NULL, because V is part of K */
  int32_t num_scales;    /* float8, float4: 0 = every scale is 1; 1 = one scale for all kv heads; num_kv_heads = one scale
                            for each kv head. Other dtypes: 0 */
  int32_t num_states;    /* recurrent: number of state tensors of the layer, 1..16. Else 0 */
  const kvc_state_config *states; /* recurrent: borrowed; [num_states], elements states[0].struct_size bytes apart. In the
                                     config of a recurrent layer, all fields except group, num_states and states are 0.
                                     Else NULL */
  int32_t latent_dim;    /* MLA: the first latent_dim dims of a row are also V; 1..head_dim. Else 0 */
  uint32_t reserved;     /* 0 */
} kvc_layer_config;

static inline void kvc_layer_config_init(kvc_layer_config *config) {
  kvc_layer_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

/* The kind of row of a group says what the group stores for a token. A group also has a visibility (kvc_visibility). Every
 * kind of row can be combined with every visibility, except that KVC_ROW_STATE needs KVC_VISIBLE_ALL. */
enum kvc_row {
  KVC_ROW_KV = 0,     /* K and V */
  KVC_ROW_LATENT = 1, /* multi-head latent attention (MLA): one row [latent | rotary] for each token, which all heads share.
                         K is the whole row (num_kv_heads is 1, head_dim is the width of the row). V is the first latent_dim
                         dims of the row */
  KVC_ROW_STATE = 2   /* recurrent: the group stores no keys. Each of its layers keeps state tensors of fixed size for a
                         sequence. A forward loads and stores them (kvc_forward_load_state). A page holds the states of all
                         layers of the group. Needs KVC_VISIBLE_ALL */
};

/* The visibility of a group says which keys its queries see. */
enum kvc_visibility {
  KVC_VISIBLE_ALL = 0,    /* a full group: a query at position p sees keys 0..p. Memory grows with the sequence */
  KVC_VISIBLE_WINDOW = 1, /* a sliding group: the query sees keys p-w+1..p, where w = window_tokens. A page is freed at the
                             end of a forward when all its tokens lie before the window and the rollback margin */
  KVC_VISIBLE_CHUNK = 2,  /* a chunked group: the query sees keys j <= p of its own chunk. These are the keys with
                             j / c == p / c (integer division), where c = chunk_tokens. A page is freed at the end of a
                             forward when all its tokens lie before the chunk and the rollback margin */
  KVC_VISIBLE_ENCODER = 3 /* a cross group: the query sees all keys of the encoder sequence (image, audio, source text) that
                             belongs to its sequence. The encoder sequence has its own length. Its tokens are appended in
                             forwards of their own (kvc_batch.encoder_group). A fork shares the encoder sequence with its
                             parent, and truncate does not change the encoder sequence. Layers of the group must have
                             KVC_ROPE_NONE */
};

/* Returns how many compressed rows close for one sequence of a batch, in a group with tokens_per_row r > 1 (DeepSeek-V4,
 * GLM-5.3, Qwen4).
 *
 * Such a group stores one row for r tokens, which is called a compressed row. A sequence of L tokens has L / r rows (integer
 * division). Row w stands for the tokens [w r, (w + 1) r). It closes in the step that appends the last of these tokens. A
 * query at position p sees row w if (w + 1) r <= p + 1.
 *
 * The caller computes the rows. k and v of append and attend have only the rows that close in the step, in the order of the
 * batch. q and outputs have T rows, as in other groups. A layer needs no append in a step in which no row closes. Entries of
 * lists (kvc_attend_args.indices, kvc_forward_select) count compressed rows.
 *
 *   groups[1].row = KVC_ROW_LATENT;  groups[1].tokens_per_row = 4;
 *   for (i = 0, rows = 0; i < n; i++) rows += kvc_rows_closed(lengths[i], append_lengths[i], 4);
 *   args.q = &q;  args.k = &closed;  args.out = &out;  args.lse = &lse;             // q [T, Hq, D], closed [rows, 1, D]
 *   kvc_forward_attend(cache, step, layer, &args, &error);
 *
 * Page lists, lengths, truncate, fork and prefixes count tokens, as in other groups. A page has the rows of page_size
 * tokens. So r must divide page_size, and pools and storages have page_size / r slots a page.
 *
 * When tokens are dropped, their rows are dropped too. A dropped row closes again when a later step appends its tokens
 * again. Then the caller must compute the row again, and needs the inputs of the row for that, such as the keys of single
 * tokens. A layer of a sliding group can store these inputs. Its window_tokens is the number of tokens from which a row is
 * computed. Then fork and truncate return EVICTED at a position whose inputs were freed. docs/reference/rows.md has a
 * program.
 *
 * A group with compressed rows needs KVC_VISIBLE_ALL, KVC_ROW_KV or KVC_ROW_LATENT, and KVC_ROPE_NONE. Its cache must have
 * storage, and must not have KVC_CACHE_STREAMING. In such a cache, graphs, kvc_seq_import, and steps with tree_parents or
 * span_ids are UNSUPPORTED. For the layers of such a group, PAST, SELF, alibi_slopes, rel_bias, w_uk and kvc_forward_tables
 * are UNSUPPORTED. */
static inline int64_t kvc_rows_closed(int64_t length, int64_t append_length, int64_t tokens_per_row) {
  return (length + append_length) / tokens_per_row - length / tokens_per_row;
}

/* A group of layers. Every group must have at least one layer (else INVALID_ARGUMENT). A pipeline stage configures only the
 * layers that it computes, and the groups of these layers. */
typedef struct kvc_group_config {
  uint32_t struct_size;
  int32_t row;            /* KVC_ROW_* */
  int32_t visibility;     /* KVC_VISIBLE_* */
  int32_t tokens_per_row; /* r > 1: the group stores one row for r tokens, see kvc_rows_closed; 0 = 1 */
  int64_t window_tokens;  /* KVC_VISIBLE_WINDOW: w, 1..2^30. Else 0 */
  int64_t chunk_tokens;   /* KVC_VISIBLE_CHUNK: c, 1..2^30, need not be a multiple of the page size. Else 0 */
  int64_t num_pages;      /* number of pages in the pools of this group, below 2^31. 0 = the number follows from the cache's
                             capacity. Recurrent: a sequence takes one page, one more in an open forward, and one for each
                             checkpoint. While it has an uncommitted tree, it takes one more page, and one for each node
                             whose state is kept. 0 = max_sequences * (2 + max_checkpoints + max_draft_states) */
} kvc_group_config;

static inline void kvc_group_config_init(kvc_group_config *config) {
  kvc_group_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

enum kvc_cache_flags {
  KVC_CACHE_NO_ROLLBACK = 1, /* no rollback margin: rollback_tokens = 0 then means 0, not the default */
  KVC_CACHE_STREAMING = 2,   /* sequences may have streaming windows (kvc_seq_set_streaming). The cache then reserves
                                bookkeeping for page lists that can grow to 2^30 tokens. It also reserves scratch for two
                                partial results of each query: one over the sinks, and one over the window. Needs a full
                                group */
  /* The next two flags are for comparisons and tests. Set at most one of them. They concern rows of a forward that begin
   * with the same pages, such as forks. Such rows can attend to the common pages together: the pages are read once for the
   * queries of all these rows, and the result is merged with that over the other pages of each row. Without either flag, a
   * cost model decides for each common prefix. Only full groups and rows with few new tokens can attend together. Both ways
   * give the same result within rounding. kvc_forward_describe counts the common prefixes that are attended together as
   * "prefix groups". (Hydragen; FlashInfer's cascade.) */
  KVC_CACHE_NO_PREFIX_SHARING = 4,  /* rows never attend together: each row reads all of its keys */
  KVC_CACHE_SHARE_ALL_PREFIXES = 8, /* rows attend together to all pages that they have in common */
  /* On one SIMD target, the bits of an output do not depend on the batch, the threads, the page ids or forks. Nor do they
   * depend on how tokens are divided into steps. One kernel computes a partial result for every 1,024 keys, and these
   * results are merged from left to right. Rows do not attend to common pages together. Decoding takes about twice as long.
   * benchmarks/results/README.md lists figures. */
  KVC_CACHE_DETERMINISTIC = 16,
  /* The cache has a prefix index. Published tokens can then be found after their sequence is removed (section 12). */
  KVC_CACHE_PREFIX_INDEX = 32,
  /* A step, a fork or an attach that takes new pages sets their K and V to zero before any other work reads the pages. So no
   * kernel, not even one of the engine, reads bytes of another sequence in a new page. The cost is one write of each new
   * page. Needs pools (KVC_STORAGE_OWN) */
  KVC_CACHE_ZERO_ON_FREE = 64
};

/* Which idle prefix the prefix index evicts first, among idle prefixes of equal priority. If a longer prefix continues a
 * shorter one, the longer one is evicted first. benchmarks/results/README.md has hit rates of both policies. */
enum kvc_prefix_policy {
  KVC_PREFIX_POLICY_REUSE = 0, /* the least recently used prefix, where repeated use makes a prefix count as younger. Each
                                  use after the first, up to three of them, moves the time of the last use later by half of
                                  the usual age at eviction. So prefixes that were used only once are evicted first */
  KVC_PREFIX_POLICY_LRU = 1    /* the least recently used prefix */
};

enum kvc_storage {
  KVC_STORAGE_OWN = 0, /* the cache has a page pool for every layer. The pool is in memory of the cache or of the caller
                          (kvc_layer_config.kv_storage) */
  KVC_STORAGE_NONE = 1 /* the cache has tables only, for engines with pools and kernels of their own. Sequences, pages and
                          steps work as usual, but the cache stores no K and V. The engine must copy some tokens from page to
                          page: kvc_cache_take_copies returns these copies. append, attend, exports and imports are
                          UNSUPPORTED. The layer configs give the size of a page, and one layer for each group is enough. The
                          cache does store recurrent states, so kvc_forward_load_state works */
};

typedef struct kvc_cache_config {
  uint32_t struct_size;
  uint32_t flags;                 /* KVC_CACHE_* */
  const kvc_layer_config *layers; /* borrowed; [num_layers], elements layers[0].struct_size bytes apart */
  const kvc_group_config *groups; /* borrowed; [num_groups], elements groups[0].struct_size bytes apart; nullable: one full
                                     group */
  int32_t num_layers;             /* 1..4096 */
  int32_t num_groups;             /* 1..64; 0 if groups is NULL */
  int32_t page_size;              /* tokens a page, 1..65536; 0 = 16 */
  int32_t max_sequences;          /* 1..1048575; 0 = 64 */
  int32_t max_batch_tokens;       /* tokens of one forward, 1..1048576; 0 = 2048 */
  int32_t max_open_forwards;      /* 1..64; 0 = 2 */
  int64_t rollback_tokens;        /* the rollback margin: how many tokens are kept before every window, also before streaming
                                     windows. truncate and fork can then drop up to this many tokens, such as rejected
                                     drafts. At most 2^30; 0 = max_tree_nodes */
  /* Capacity: set exactly one of the next three fields. (None is needed if every group that is not recurrent sets
   * num_pages.) Full and cross groups get this capacity. A sliding or chunked group gets max_sequences times the peak of one
   * sequence, but at most the capacity. The peak is the window or chunk, plus rollback_tokens, plus one page, plus the
   * larger of max_batch_tokens and max_tree_nodes. */
  int64_t capacity_tokens;        /* number of tokens that a full group can store, rounded up to pages */
  int64_t capacity_pages;         /* number of pages of a full group */
  int64_t capacity_bytes;         /* largest size in bytes of all pools of all layers together */
  int32_t max_tree_nodes;         /* uncommitted tree nodes of a sequence since its last commit, 1..1024; 0 = 64 */
  int32_t max_checkpoints;        /* checkpoints of one sequence, 1..1024; 0 = 1. Only with a recurrent group */
  int32_t storage;                /* KVC_STORAGE_* */
  int32_t prefix_policy;          /* KVC_CACHE_PREFIX_INDEX: KVC_PREFIX_POLICY_*. Else 0 */
  int64_t prefix_pages;           /* KVC_CACHE_PREFIX_INDEX: the largest number of pages that the index can hold in each
                                     group, below 2^31; 0 = the number of pages of the largest group. Pages of recurrent
                                     groups do not count. Else 0 */
  int64_t prefix_checkpoints;     /* KVC_CACHE_PREFIX_INDEX with a recurrent group: the largest number of positions whose
                                     states the index can hold, below 2^31; 0 = max_sequences. A recurrent group whose
                                     num_pages is 0 gets this many pages in addition. Else 0 */
  const uint8_t *fingerprint;     /* borrowed; nullable: pages of this cache have no keys (section 13), so there are no
                                     events and no tiers. [32]: identifies the model (weights, quantisation, tokenizer), as
                                     in kvc_page_keys_args */
  int64_t events_capacity;        /* KVC_CACHE_PREFIX_INDEX and a fingerprint: number of events that the cache keeps until
                                     they are read (section 14), below 2^31; 0 = none. Else 0 */
  int32_t max_draft_states;       /* the first max_draft_states nodes of an uncommitted tree keep their recurrent states, so
                                     that each of them can be committed; 0..63, at most max_tree_nodes. Only with a recurrent
                                     group */
  uint32_t reserved;              /* 0 */
} kvc_cache_config;

static inline void kvc_cache_config_init(kvc_cache_config *config) {
  kvc_cache_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

/* The memory that a cache with a given config would need, or that one of its groups would need. */
typedef struct kvc_estimate {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t num_pages;         /* pages of the group, or of all groups together */
  int64_t page_bytes;        /* bytes of one page in all layers of the group; 0 for all groups */
  int64_t token_bytes;       /* bytes that one stored token takes in all layers, or in all layers of the group */
  int64_t storage_bytes;     /* bytes of pools; with KVC_STORAGE_NONE only those of recurrent groups */
  int64_t bookkeeping_bytes; /* bytes of host memory for page tables and sequences */
  int64_t scratch_bytes;     /* bytes of host and device memory for the largest batches; 0 for one group */
} kvc_estimate;

static inline void kvc_estimate_init(kvc_estimate *estimate) {
  kvc_estimate zero = KVC_ZERO_STRUCT;
  *estimate = zero;
  estimate->struct_size = (uint32_t)sizeof(zero);
}

/* Computes how much memory kvc_cache_create would allocate, or returns the error that kvc_cache_create would return. It
 * allocates no pool and adopts nothing.
 *   group     group index, or -1 for the whole cache
 *   estimate  filled
 * Errors: as kvc_cache_create, without OUT_OF_MEMORY for pools. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_estimate(kvc_context *context, const kvc_cache_config *config, int32_t group,
                                      kvc_estimate *estimate, kvc_error *error);

/* Creates a cache. It reserves the pools of all layers and all bookkeeping, so that no later call has to allocate more.
 *   config   borrowed, arrays included; storages in it are adopted
 *   cache    returned; released by kvc_cache_destroy
 * A pool that the cache allocates holds zeros until K and V are stored in it.
 * Errors:
 *   INVALID_ARGUMENT, OUT_OF_RANGE, UNSUPPORTED, DTYPE, DEVICE, RANK, SHAPE, STRIDE
 *                  error->index is the layer or group. For a group, error->group is the group too
 *   DUPLICATE      a storage is given twice, or two storages overlap; error->index is the layer
 *   STRUCT_SIZE    error->index is the element
 *   OUT_OF_MEMORY  also: the pools of all layers together exceed the memory and swap of the host; required and available are
 *                  in bytes
 * Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_create(kvc_context *context, const kvc_cache_config *config, kvc_cache **cache,
                                    kvc_error *error);

/* Aborts open forwards and releases the cache. Pools stay allocated as long as exported views of them exist. NULL does
 * nothing. No other call on the cache may run at the same time.
 * Threads: any, once. Since 0.1. */
KVC_API void kvc_cache_destroy(kvc_cache *cache);

/* Removes every sequence, every published prefix and every pin. The ids of removed sequences and pins become stale. The
 * pools stay allocated.
 * Errors: BUSY (a forward is open). Threads: any. The cost grows with the number of pages that become free. Since 0.1. */
KVC_API kvc_status kvc_cache_clear(kvc_cache *cache, kvc_error *error);

/* ============================================================================================
 * 6  Sequences
 * ============================================================================================ */

/* Id of a sequence: opaque, never 0, below 2^63. A call with a stale id returns STALE_ID and has no other effect. */
typedef uint64_t kvc_seq;

/* Adds n empty sequences. It takes no page.
 *   sequences  [n], filled
 * Errors: TOO_MANY_SEQUENCES. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_add(kvc_cache *cache, int64_t n, kvc_seq *sequences, kvc_error *error);

/* Removes n sequences, and frees every page that no other sequence shares. If a sequence is in an open forward, its id
 * becomes stale at once, and its pages are freed when the forward closes.
 *   sequences  [n], distinct, any order
 * Errors (nothing removed): STALE_ID, DUPLICATE; error->index is the index in sequences. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_remove(kvc_cache *cache, int64_t n, const kvc_seq *sequences, kvc_error *error);

/* Makes n forks of sequences. Child i has the first positions[i] tokens of parents[i]. The child shares all whole pages of
 * these tokens. If the last page is partial, the child gets a copy of it. A parent must not have an uncommitted tree. The
 * call makes all children, or none.
 *   parents    [n]; a parent may occur several times
 *   positions  nullable: every child is as long as its parent. [n]; -1 = the parent's length, 0 = empty
 *   children   [n], filled
 *   stream     the device's stream for page copies; NULL on the CPU
 * The cost of a child grows with the logarithm of its length.
 * Errors: STALE_ID, BUSY, UNCOMMITTED, OUT_OF_RANGE, EVICTED (see kvc_seq_nearest_position), TOO_MANY_SEQUENCES,
 * OUT_OF_PAGES (as kvc_forward_begin; required and available count for all children together), ORDER (KVC_STORAGE_NONE: too
 * many copies wait). Threads: any. Since 0.1.
 * From: persistent vectors; page sharing as in vLLM's PagedAttention. */
KVC_API kvc_status kvc_seq_fork(kvc_cache *cache, int64_t n, const kvc_seq *parents, const int64_t *positions,
                                kvc_seq *children, void *stream, kvc_error *error);

/* Drops the tokens of sequence i from position lengths[i] on, also in shared pages, and drops every uncommitted tree node.
 * The call takes no page. But if the new end lies inside a shared page, the next forward that appends to the sequence copies
 * the kept part of this page to a new page. kvc_cache_can_fit counts the new page. If one forward appends to all sequences
 * that share the page, it takes a new page for each of them. If they append in separate forwards, the last sequence keeps
 * the shared page.
 *   sequences  [n], distinct
 *   lengths    [n], the new length of each sequence: from 0 to its present length
 * Errors (nothing truncated): STALE_ID, BUSY, DUPLICATE, OUT_OF_RANGE, EVICTED. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_truncate(kvc_cache *cache, int64_t n, const kvc_seq *sequences, const int64_t *lengths,
                                    kvc_error *error);

/* Gives the lengths of n sequences in tokens. Tokens of open forwards and uncommitted tree nodes do not count. O(1) a
 * sequence.
 *   lengths  [n], filled
 * Errors: STALE_ID. Threads: any, also while a forward computes. Since 0.1. */
KVC_API kvc_status kvc_seq_lengths(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *lengths,
                                   kvc_error *error);

/* Gives the page ids of one sequence in one group, in order. Entry i is the page of positions
 * [i * page_size, (i+1) * page_size). An entry is -1 if its page was freed. A page is freed when it leaves a window, or when
 * it lies between the sinks and the streaming window. Pages of an open forward and of an uncommitted tree are not included.
 *   pages     nullable if capacity is 0; [capacity], filled
 *   count     nullable: number of entries, filled also on BUFFER_TOO_SMALL
 * Errors: STALE_ID, OUT_OF_RANGE (group), BUFFER_TOO_SMALL (never for capacity 0). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_pages(kvc_cache *cache, kvc_seq sequence, int32_t group, int32_t *pages, int64_t capacity,
                                 int64_t *count, kvc_error *error);

/* Gives the positions nearest to `position` at which fork and truncate work in every group. A position in a freed page does
 * not work, even if no query there would read this page. With a recurrent group, only position 0, checkpoints
 * (kvc_seq_checkpoint) and the end of the sequence work.
 *   position         0..the sequence's length
 *   before           nullable: the largest working position <= position (0 always works)
 *   after            nullable: the smallest working position >= position; -1 = none
 * Errors: STALE_ID, OUT_OF_RANGE. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_nearest_position(kvc_cache *cache, kvc_seq sequence, int64_t position, int64_t *before,
                                            int64_t *after, kvc_error *error);

/* Computes how many tokens each sequence could append in one forward now if no other sequence appended: 0..max_batch_tokens.
 * For a sequence with an uncommitted tree, the result is a number of tree nodes. The result takes account of the room in a
 * partial last page, shared pages that must be copied, windows, and the free pages of every group. Pages that can be evicted
 * from the prefix index count as free.
 *   tokens  [n], filled; 0 for a sequence in an open forward
 * Errors: STALE_ID. Threads: any. O(1) a sequence and group. Since 0.1. */
KVC_API kvc_status kvc_seq_max_append(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *tokens,
                                      kvc_error *error);

/* Computes for each sequence how many pages of a group would become available if this sequence alone were removed. These are
 * the pages that no other sequence, pin, save or load holds. Pages of an open forward, of an uncommitted tree and of
 * checkpoints count too. A page that the prefix index also holds counts, because it could be evicted after the removal. An
 * engine that is short of pages can compare sequences by this number to choose one to remove.
 *   pages  [n], filled
 * Errors: STALE_ID, OUT_OF_RANGE (group). Threads: any. O(pages) a sequence. Since 0.1. */
KVC_API kvc_status kvc_seq_exclusive_pages(kvc_cache *cache, int32_t group, int64_t n, const kvc_seq *sequences,
                                           int64_t *pages, kvc_error *error);

enum kvc_streaming_flags {
  KVC_STREAMING_PREFIX_IS_SINK = 1 /* all tokens that a sequence has now become sinks: s = max(sink_tokens, its length). Not
                                      allowed for a sequence whose window is 0 */
};

/* Gives n sequences a streaming window, so that they can grow without end in bounded memory. Let s be the number of sink
 * tokens and w the window. A query at position p of a full group then sees the keys j < s, and the keys with
 * max(s, p-(w-s)+1) <= j <= p. These are w keys, the query's own key included. They do not depend on how the tokens are
 * divided into steps. Sliding and chunked groups keep their own rules.
 *   Positions  Attention gives the result that it would give if the kept tokens were contiguous. Stored keys are not rotated
 *              again. Instead attend rotates q twice: at p for the window, and at min(p, w-1) for the sinks. Then it merges
 *              the two results. Distances for ALiBi are computed from these two positions too. If the caller rotates q, the
 *              scores of the sinks depend on their true distance to the query. Lengths and positions count every token, up
 *              to 2^30.
 *   Memory     A sequence releases each page whose tokens all lie between the sinks and the rollback margin before the
 *              window. This happens in this call, and at the end of each forward. After that, the sequence holds at most the
 *              pages for w tokens, rollback_tokens and the tokens of a step, plus two pages. If a later window has fewer
 *              sinks, the pages of former sinks are freed when the next page leaves the window.
 *   Rollback   fork and truncate work at positions within the pages of the sinks. They also work at positions where all keys
 *              in the window of the next query are still stored (kvc_seq_nearest_position). At other positions they return
 *              EVICTED.
 * A fork has the window of its parent. truncate does not change the window. A new sequence has no window.
 *   sequences      [n], distinct
 *   sink_tokens    nullable: no sinks. [n]: s, 0..2^30
 *   window_tokens  [n]: w, above s, at most 2^30. 0 = the sequence has no streaming window any more, and s must be 0
 *   flags          KVC_STREAMING_* or 0
 * Errors (nothing changed): UNSUPPORTED (a cache without KVC_CACHE_STREAMING), and with the sequence in error->index:
 * STALE_ID, DUPLICATE, BUSY, UNCOMMITTED, INVALID_ARGUMENT (w <= s; other values), EVICTED (keys that the next query would
 * see were freed).
 * Threads: any. The cost grows with the number of pages that it frees. Since 0.1.
 * From: attention sinks as in StreamingLLM (Xiao et al.). */
KVC_API kvc_status kvc_seq_set_streaming(kvc_cache *cache, int64_t n, const kvc_seq *sequences,
                                         const int64_t *sink_tokens, const int64_t *window_tokens, uint32_t flags,
                                         kvc_error *error);

/* Gives the streaming windows of n sequences. A sequence without a streaming window has sink_tokens 0 and window_tokens 0.
 *   sink_tokens    [n], filled: s, including the tokens that KVC_STREAMING_PREFIX_IS_SINK made sinks
 *   window_tokens  [n], filled: w
 * Errors: STALE_ID. Threads: any, also while a forward computes. O(1) a sequence. Since 0.1. */
KVC_API kvc_status kvc_seq_get_streaming(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *sink_tokens,
                                         int64_t *window_tokens, kvc_error *error);

enum kvc_rope_set { KVC_ROPE_SET_SHORT = 0, KVC_ROPE_SET_LONG = 1 };

/* Chooses the factors by which longrope rotates the keys and queries of n sequences: short_factors or long_factors of
 * kvc_rope_scaling. A new sequence has the short factors, and a fork has those of its parent. Choose the long factors for a
 * sequence that will pass original_max_position. If a layer with longrope rotates on append, call this function before the
 * first token of the sequence is stored. Sequences with different factors never share a page in such a cache. For layers
 * that rotate on read, the library changes to the long factors in the step that passes original_max_position.
 *   sequences  [n]
 *   set        KVC_ROPE_SET_*
 * Errors (nothing changed): STALE_ID, BUSY, INVALID_ARGUMENT (set), ORDER (a sequence is not empty, and a layer with
 * longrope rotates on append), UNSUPPORTED (no layer has longrope). Threads: any. Since 0.1. From: LongRoPE, as in Phi-3. */
KVC_API kvc_status kvc_seq_set_rope(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int32_t set,
                                    kvc_error *error);

/* Makes checkpoints of the present recurrent states of n sequences. fork and truncate can then return to the present lengths
 * later. Make a checkpoint before drafts that may be rejected, or at the end of a prompt that other sequences will share.
 * The call copies nothing: the checkpoint is a reference to the page of the state. A fork inherits the checkpoints up to its
 * position. truncate drops the checkpoints after the new end. When a sequence has more than max_checkpoints, its oldest
 * checkpoint is dropped.
 *   sequences  [n], distinct
 * Errors (no checkpoint made): UNSUPPORTED (no recurrent group), STALE_ID, DUPLICATE, BUSY, UNCOMMITTED. Threads: any.
 * Since 0.1. */
KVC_API kvc_status kvc_seq_checkpoint(kvc_cache *cache, int64_t n, const kvc_seq *sequences, kvc_error *error);

/* Gives the lengths of the encoder sequences that n sequences have in a cross group. Tokens of open forwards do not count.
 * O(1) a sequence.
 *   lengths  [n], filled
 * Errors: STALE_ID, OUT_OF_RANGE (group), INVALID_ARGUMENT (not a cross group). Threads: any, also while a forward computes.
 * Since 0.1. */
KVC_API kvc_status kvc_seq_encoder_lengths(kvc_cache *cache, int32_t group, int64_t n, const kvc_seq *sequences,
                                           int64_t *lengths, kvc_error *error);

/* ============================================================================================
 * 7  Forward: one step of the model over a batch
 * ============================================================================================ */

/* Id of an open forward: opaque, never 0, below 2^63. */
typedef uint64_t kvc_forward;

/* Values of kvc_batch.tree_parents other than the number of a parent node. */
enum kvc_tree_parent {
  KVC_TREE_ROOT = -1, /* the node is a root: it follows the last committed token of its sequence */
  KVC_TREE_NONE = -2  /* the token is not a node, but a plain token */
};

typedef struct kvc_batch {
  uint32_t struct_size;
  int32_t num_sequences;          /* rows of the batch, 0..max_sequences */
  const kvc_seq *sequences;       /* [num_sequences], distinct; 0 = an inert row, whose tokens are padding */
  const int32_t *append_lengths;  /* [num_sequences], number of new tokens of each row, >= 1; an inert row may have 0 */
  int32_t layer_begin;            /* the forward covers the layers [layer_begin, layer_end); both 0 = all layers. Every layer
                                     in this range that stores K and V must be appended before kvc_forward_end. Give a range
                                     for a pipeline stage, or for a draft that exits early. The layers outside of the range
                                     then lack the tokens of this forward, until truncate drops these tokens. While a layer
                                     lacks tokens, it cannot export them, and a forward whose range contains the layer
                                     returns ORDER */
  int32_t layer_end;
  const int32_t *tree_parents;    /* nullable: no trees. [T]: the parent node of each new token, or KVC_TREE_ROOT (token
                                     trees: see kvc_seq_commit). In a row without a tree, KVC_TREE_NONE for all tokens.
                                     Ignored in inert rows */
  const int32_t *span_ids;        /* nullable: no spans. [T]: the id of the span of each new token; 0 = no span. Adjacent
                                     tokens of one row with the same id form a span, such as an image within a text. Each
                                     token of a span sees all tokens of the span, later ones included. But windows and chunks
                                     still hide keys. All tokens of a span must be in the same forward. Ignored in inert
                                     rows */
  int32_t encoder_group;          /* 0 = the new tokens belong to the sequences. 1 + g = the new tokens are appended to the
                                     encoder sequences in cross group g. Then the layers of that group accept
                                     kvc_forward_append only, and the lengths of the sequences do not change */
  uint32_t reserved;              /* 0 */
  kvc_forward graph;              /* 0 = the forward is in no graph, and gets its own id. Else a graph from kvc_graph_create:
                                     the forward is open in this graph, and has the id of the graph */
} kvc_batch;

static inline void kvc_batch_init(kvc_batch *batch) {
  kvc_batch zero = KVC_ZERO_STRUCT;
  *batch = zero;
  batch->struct_size = (uint32_t)sizeof(zero);
}

/* Checks whether kvc_forward_begin would succeed now. It returns the status that kvc_forward_begin would return, with the
 * same numbers in `error`, and changes nothing.
 * Errors: as kvc_forward_begin. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_can_fit(kvc_cache *cache, const kvc_batch *batch, kvc_error *error);

/* Begins a step, and reserves all pages that the new tokens of the batch need in every group. It also checks the batch, and
 * plans the work. If it fails, it reserves nothing. The T rows of q, k and v are the tokens of the batch: first the
 * append_lengths[0] tokens of sequence 0, then the append_lengths[1] tokens of sequence 1, and so on.
 *   batch    borrowed, arrays included
 *   stream   the device's stream for the whole forward; NULL on the CPU
 *   forward  filled; closed by kvc_forward_end or kvc_forward_abort
 * The cost grows with the number of rows, new tokens and new pages. It does not grow with the lengths of the sequences.
 * Errors with the row in error->index:
 *   STALE_ID, DUPLICATE, BUSY (also: a forward is open in the graph), TREE_TOO_LARGE
 *   UNCOMMITTED         plain or encoder tokens for a sequence that has an uncommitted tree
 *   INVALID_ARGUMENT    encoder_group is not a cross group, or is set together with trees or spans; a span id below 0, or in
 *                       a tree
 *   OUT_OF_PAGES        error->index is the first row that does not fit. required and available count pages of error->group
 *                       for the whole batch. Idle pages of the prefix index count as available, because begin evicts them
 *                       when it needs pages. They stay evicted even if the forward is aborted
 *   OUT_OF_RANGE        a sequence would become longer than 2^30 tokens
 *   ORDER               a layer in the range lacks tokens of the sequence. required is the number of tokens of the sequence,
 *                       and available is how many of them the layer has
 * Other errors: BATCH_TOO_LARGE (for the cache, or for the graph), TOO_MANY_FORWARDS, OUT_OF_RANGE (layers), ORDER
 * (KVC_STORAGE_NONE: copies are queued that the engine has not taken). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_begin(kvc_cache *cache, const kvc_batch *batch, void *stream, kvc_forward *forward,
                                     kvc_error *error);

enum kvc_append_flags {
  KVC_APPEND_AS_STORED = 1 /* k is already rotated as the cache stores it, so the library does not rotate k. For a quantised
                              layer, k and v may then both be stored bytes. Their dtype is that of the layer, or uint8. A row
                              of uint4 has D / 2 bytes, and a row of float4 has D / 2 + D / 16 bytes */
};

typedef struct kvc_append_args {
  uint32_t struct_size;
  uint32_t flags;     /* KVC_APPEND_* */
  const DLTensor *k;  /* borrowed; [>= T, Hkv, D] float32, float16 or bfloat16; innermost stride 1 */
  const DLTensor *v;  /* borrowed; [>= T, Hkv, Dv], as k. KVC_LAYER_KEYS_ONLY: NULL. MLA: NULL, and k has whole rows. Or v
                         has the latent parts [>= T, 1, latent_dim], and k has the rotary parts [>= T, 1, D - latent_dim] */
  const DLTensor *rope_cos_sin; /* nullable: the angles follow from the rope fields of the layer and the positions of the
                                   tokens. Borrowed; [>= T, 2, rope_dim / 2] float32, compact: [t, 0, i] is the cos of the
                                   angle of pair i, and [t, 1, i] its sin, both times any attention factor. Use it for
                                   positions that only the caller has (M-RoPE, dynamic NTK: docs/reference/rope.md). Needs
                                   KVC_ROPE_ON_APPEND. Give the same table to the attend of the layer */
  const DLTensor *k_scale; /* int8 and uint4, with stored bytes in k and v: borrowed; [>= T, Hkv] float32: the scale of each
                              row. Else NULL. (Stored bytes of float8 and float4 have the scales of the layer) */
  const DLTensor *v_scale; /* the same for v */
} kvc_append_args;

static inline void kvc_append_args_init(kvc_append_args *args) {
  kvc_append_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Stores the new K and V of a layer without computing attention. It rounds or quantises them to the layer's dtype, and
 * rotates K if the layer has KVC_ROPE_ON_APPEND.
 *   layer  a layer of the forward. Append each layer once, in any order of layers
 * Errors: STALE_ID, BUSY, ORDER (appended already), CANCELLED, OUT_OF_RANGE, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED
 * (KVC_STORAGE_NONE), INVALID_ARGUMENT (a layer that reads K and V of another layer; a recurrent layer; a cross layer in a
 * forward that is not of its encoder_group; a layer of another group in a forward of an encoder_group). An error of the
 * device closes the forward, as kvc_forward_abort does. Threads: any, one at a time for each forward. Since 0.1. */
KVC_API kvc_status kvc_forward_append(kvc_cache *cache, kvc_forward forward, int32_t layer, const kvc_append_args *args,
                                      kvc_error *error);

enum kvc_attend_flags {
  KVC_ATTEND_NON_CAUSAL = 1, /* a query also sees the later tokens of its row. A window still limits the first key that a
                                query sees, and a chunk limits the first and the last. Nodes of a tree still see only their
                                ancestors */
  KVC_ATTEND_PAST = 2,       /* attend only to keys of earlier steps */
  KVC_ATTEND_SELF = 4,       /* attend only to keys of this step's tokens. To compute these two parts separately, call attend
                                for a layer with PAST and again with SELF. Merge the two results with kvc_merge_states */
  KVC_ATTEND_ALIBI_SIGNED = 8, /* ALiBi subtracts slope * (p_q - p_k), not slope * |p_q - p_k|. So keys after the query get
                                  higher scores. Queries see such keys only with NON_CAUSAL and in spans */
  KVC_ATTEND_REL_BIAS_ZERO = 16, /* rel_bias adds 0 at distances for which it has no entry */
  KVC_ATTEND_NO_SPANS = 32,      /* this layer ignores the spans of the step */
  KVC_ATTEND_STEP_WINDOW = 64    /* all queries of a row use the start of the window, or chunk, of the row's first new token.
                                    With NON_CAUSAL, all queries of a row then see the same keys. UNSUPPORTED in steps with
                                    trees */
};

typedef struct kvc_attend_args {
  uint32_t struct_size;
  uint32_t flags;       /* KVC_ATTEND_*; not PAST and SELF together */
  const DLTensor *q;    /* borrowed; [>= T, Hq, D] float32, float16 or bfloat16; innermost stride 1 (MLA: see w_uk) */
  const DLTensor *k;    /* borrowed; as kvc_append_args.k. nullable, together with v: nothing is stored, because the layer
                           was appended already, reads K and V of another layer (kvc_layer_config.kv_layer), or is a cross
                           layer */
  const DLTensor *v;    /* nullable, together with k (MLA: also alone); as kvc_append_args.v */
  const DLTensor *out;  /* borrowed, its data is written; [>= T, Hq, Dv] float32, float16 or bfloat16. Must not overlap q, k
                           or v. Tokens of inert rows, and rows from T on, are not written */
  const DLTensor *lse;  /* nullable: not computed. Borrowed, its data is written; [>= T, Hq] float32: the natural logarithm
                           of the sum of exponentials of the scores. The logit of a sink counts as a score. A row that is not
                           written in out is not written in lse */
  double softmax_scale; /* 1e-30..1e30; 0 = the softmax_scale of the layer */
  double softcap;       /* a score becomes softcap * tanh(score / softcap); 1e-6..1e30; 0 = no cap */
  const DLTensor *alibi_slopes; /* nullable: no ALiBi. Borrowed; [Hq] float32: slope * |p_q - p_k| is subtracted from scores,
                                   where p_q and p_k are the positions of query and key (see also KVC_ATTEND_ALIBI_SIGNED) */
  const DLTensor *sinks; /* nullable: no attention sinks. Borrowed; [Hq] float32: a logit for each head, which takes part in
                            the softmax without a value. It is neither scaled nor capped. If two calls compute the parts PAST
                            and SELF of a layer, give sinks to only one of them */
  const DLTensor *rope_cos_sin; /* nullable; as kvc_append_args.rope_cos_sin. It rotates q, and k if k is given. UNSUPPORTED
                                   in a full group if a sequence is longer than its streaming window (in a deterministic
                                   cache: if a sequence has streaming sinks), because q is then rotated twice */
  /* MLA: the up-projections of K and V of the model. If both are NULL, q and out are in latent space: q is [T, Hq, D] and
   * out is [T, Hq, latent_dim]. Else the library projects. Then q is [T, Hq, Dn + R] and out is [T, Hq, Dv], where R =
   * D - latent_dim is the number of rotary dims. Models usually have both matrices in one weight, kv_b_proj.weight. Reshape
   * it to [Hq, Dn + Dv, latent_dim]: for each head, rows 0..Dn-1 are w_uk, and the other rows are w_uv. */
  const DLTensor *w_uk; /* nullable, together with w_uv. Borrowed; [Hq, Dn, latent_dim] float32, float16 or bfloat16;
                           innermost stride 1; Dn 1..1152 - R */
  const DLTensor *w_uv; /* nullable, together with w_uk. Borrowed; [Hq, Dv, latent_dim], as w_uk; Dv 1..1024 */
  const DLTensor *indices; /* nullable: no lists. Borrowed; [>= T, 1 or Hkv, k] int32, innermost stride 1: a list of k
                              entries for each query, for all heads or for each kv head. k * index_block <=
                              KVC_MAX_LISTED_KEYS. An entry names tokens by their index in the sequence */
  int32_t index_block;     /* b >= 1: an entry i names the tokens [i * b, (i + 1) * b); 0 = 1 */
  int32_t reserved;        /* 0 */
  const DLTensor *rel_bias; /* nullable: no bias by distance. Borrowed; [Hq, E] or [>= T, Hq, E] float32, E >= 1, innermost
                               stride 1: entry d of the head is added to the score, where d = p_q - p_k. If d is E or more,
                               the last entry is added. If d is negative, the first entry is added (see also
                               KVC_ATTEND_REL_BIAS_ZERO) */
  const DLTensor *key_bias; /* nullable: no bias by key. Borrowed; [>= num_sequences, >= keys, 1 or Hkv] float32: entry
                               [r, j] is added to the scores of key j in row r of the batch. Key j is the token with index j,
                               as in indices. `keys` is the length of the longest row that has queries, new tokens
                               included */
  const DLTensor *mask; /* nullable: no mask. Borrowed; [>= T, >= keys] or [>= T, 1 or Hkv, >= keys] bool or uint8, innermost
                           stride 1: where an entry is 0, key j is hidden from the query. Rows are tokens as in q, and keys
                           are as in key_bias. A mask cannot show a key that the layer hides. With NON_CAUSAL, in a layer
                           without window and chunks, only the mask hides keys */
} kvc_attend_args;

enum {
  KVC_MAX_LISTED_KEYS = 65536 /* the largest number of tokens that a list may name */
};

static inline void kvc_attend_args_init(kvc_attend_args *args) {
  kvc_attend_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Stores the new K and V of a layer, and computes out = softmax(scores) V. A query attends to all stored keys that it sees,
 * the keys of new tokens included.
 *   layer  a layer of the forward, in any order of layers. Attend each layer once, or once with PAST and once with SELF
 * Scores     A score is scale * q.k. Then softcap, ALiBi, rel_bias and key_bias are applied in this order
 *            (docs/reference/biases.md). Scores, sums and partial outputs are float32. Softmax weights are float32, or have
 *            16 bits if q has 16 bits. Also K and V of new tokens are read as they are stored, after rounding.
 * No key     A query that sees no key has output 0 and LSE -inf. With an attention sink, its LSE is the logit of the sink.
 * MLA        With up-projections, a row with few queries is computed in the absorbed form: the library projects q into
 *            latent space, and out back. For a row with many queries, it decompresses K and V of the new tokens. Both forms
 *            give the same result within rounding (docs/reference/mla.md).
 * Lists      With indices, a query attends to those listed keys that it would see without a list. Entry i is token i of the
 *            sequence, counted from its first token. In a cross layer it is token i of the encoder sequence. Nodes of a tree
 *            come after the tokens, in the order in which they were appended. So one list can be used in several layers. A
 *            list is a set: entries may be in any order, and an entry that occurs twice counts once. Negative entries are
 *            padding, at any place. If a list names no key that the query sees, the result is as in "No key". K and V of
 *            keys that no list names are not read. Ascending lists are fastest (docs/reference/lists.md).
 * Errors: those of kvc_forward_append, and
 *   ORDER             the layer was not appended, and k and v are NULL (with PAST both may be NULL); the same part was
 *                     attended before; the layer reads K and V of a layer outside of the forward's range; a forward of
 *                     encoder tokens
 *   OUT_OF_RANGE      softmax_scale, softcap, index_block, or k * index_block; on the CPU, an entry whose first token is not
 *                     in the sequence, new tokens included (error->index is the row). On a GPU such an entry names no key
 *   SHAPE             also: key_bias or mask has fewer keys than a row (error->index is the row)
 *   UNSUPPORTED       indices on a backend that does not attend over lists; STEP_WINDOW with trees; key_bias or mask in a
 *                     graph whose calls a device replays
 *   INVALID_ARGUMENT  PAST with SELF; PAST or SELF in a cross layer, because all its keys are past; a recurrent layer; a
 *                     layer with KVC_LAYER_KEYS_ONLY; out and lse share an element, or one of them shares an element with a
 *                     tensor that is read; REL_BIAS_ZERO without rel_bias; on the CPU, a NaN or +infinity in rel_bias or
 *                     key_bias (-infinity hides a key)
 *   CANCELLED         after kvc_forward_cancel, when the running work items are done. out is then undefined, and k and v may
 *                     have been stored
 * Threads: any, one at a time for each forward. Since 0.1.
 * From: latent attention and its absorbed form as in DeepSeek-V2; online softmax as in FlashAttention-2; split-KV and merge
 * by LSE as in Flash-Decoding; softcap as in Gemma 2, slopes as in ALiBi (Press et al.), sinks as in gpt-oss. */
KVC_API kvc_status kvc_forward_attend(kvc_cache *cache, kvc_forward forward, int32_t layer, const kvc_attend_args *args,
                                      kvc_error *error);

/* How kvc_forward_select scores a token. */
enum kvc_select_rule {
  KVC_SELECT_RELU_SUM = 0, /* the score is the sum over all heads h of weights[h] * max(0, q[h].k); one list a query */
  KVC_SELECT_EACH_HEAD = 1 /* the score in head h is q[h].k; one list for each head of a query */
};

typedef struct kvc_select_args {
  uint32_t struct_size;
  int32_t rule;            /* KVC_SELECT_* */
  const DLTensor *q;       /* borrowed; [>= T, Hq, D] float32, float16 or bfloat16; innermost stride 1. Head h scores the
                              keys of kv head h / (Hq / Hkv) */
  const DLTensor *weights; /* KVC_SELECT_RELU_SUM: borrowed; [>= T, Hq] float32, of any sign; nullable: all 1. Else NULL */
  const DLTensor *indices; /* borrowed, its data is written: the chosen entries. [>= T, lists, k] int32, innermost stride 1.
                              `lists` is 1, or Hq with KVC_SELECT_EACH_HEAD. k * index_block <= KVC_MAX_LISTED_KEYS. It must
                              not overlap another tensor. Tokens of inert rows, and rows from T on, are not written */
  const DLTensor *candidates;   /* nullable: all tokens that the query sees are scored. Borrowed; [>= T, 1 or lists, n]
                                   int32, with entries as in kvc_attend_args.indices: only tokens that candidates names are
                                   scored */
  const DLTensor *rope_cos_sin; /* nullable; as kvc_append_args.rope_cos_sin, for q */
  int32_t index_block;     /* b >= 1: an entry i of indices names the tokens [i * b, (i + 1) * b). The score of the entry is
                              the largest score of those of its tokens that the query sees. 0 = 1 */
  int32_t candidate_block; /* the number of tokens that an entry of candidates names, like index_block for indices; 0 = 1 */
  int32_t first_blocks;    /* the entries 0..first_blocks - 1 are always chosen. They count towards k */
  int32_t last_blocks;     /* the entries e - last_blocks + 1..e are always chosen, where e is the entry of the query's own
                              token. They count towards k. first_blocks + last_blocks is at most k */
} kvc_select_args;

static inline void kvc_select_args_init(kvc_select_args *args) {
  kvc_select_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Chooses, for each query, the k entries with the highest scores among the tokens or blocks that the query sees. The result
 * can be kvc_attend_args.indices of other layers in the same forward.
 *   layer  a layer with KVC_LAYER_KEYS_ONLY, after its append in this forward. Select may be called several times for a
 *          layer
 * Windows, chunks, spans and trees hide tokens as in kvc_forward_attend. Scores are float32. No scale is applied, because a
 * positive factor changes no choice. Among equal scores, the lowest entry is chosen. A score that is NaN is lower than all
 * others, and in KVC_SELECT_RELU_SUM max(0, NaN) is 0. The chosen entries are in ascending order. If fewer than k entries
 * have a token that the query sees, all these entries are chosen, and the rest of the list is -1. The choice does not depend
 * on the batch, the cut into steps or the threads (docs/reference/select.md).
 * Errors: STALE_ID, BUSY, CANCELLED, NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, and
 *   ORDER             the layer was not appended in this forward; the forward's stream is being captured
 *   OUT_OF_RANGE      layer; index_block, candidate_block or k * index_block; first_blocks and last_blocks; on the CPU, an
 *                     entry of candidates whose first token is not in the sequence (error->index is the row of the batch)
 *   UNSUPPORTED       a backend that does not select; a sequence longer than its streaming window; no storage
 *   INVALID_ARGUMENT  rule; weights with KVC_SELECT_EACH_HEAD; a layer without KVC_LAYER_KEYS_ONLY; indices shares an
 *                     element with another tensor
 * After CANCELLED, the data of indices is undefined. Threads: any, one at a time for each forward. Since 0.1.
 * From: the lightning indexer of DeepSeek-V3.2, and block selection as in MiniMax-M3. */
KVC_API kvc_status kvc_forward_select(kvc_cache *cache, kvc_forward forward, int32_t layer, const kvc_select_args *args,
                                      kvc_error *error);

/* Copies a state tensor of a recurrent layer out of the cache. Row i of the tensor becomes the state that sequence i of the
 * batch had before this forward. For an empty sequence it is the fill value (kvc_state_config). For inert rows of the batch,
 * nothing is written. The call may be repeated.
 *   layer   a recurrent layer of the forward
 *   state   index of the state tensor, 0..num_states - 1
 *   token   -1: load the state before the first new token of each row. 0..max_draft_states - 1: load the state before the
 *           row's new token with this index. The state before a tree node is the state after its parent, which an earlier
 *           kvc_forward_store_state of this forward may have stored. Rows that lack this token or this state are not written
 *   tensor  borrowed, its data is written; [>= num_sequences, shape...] of the state's dtype. Each row is compact, and the
 *           stride between rows is free
 * Errors: STALE_ID, BUSY, CANCELLED, OUT_OF_RANGE (layer, state, token), INVALID_ARGUMENT (the layer is not recurrent, or
 * the forward has encoder tokens), DTYPE, DEVICE, RANK, SHAPE, STRIDE. An error of the device closes the forward, as
 * kvc_forward_abort does. Threads: any, one at a time for each forward. Since 0.1. */
KVC_API kvc_status kvc_forward_load_state(kvc_cache *cache, kvc_forward forward, int32_t layer, int32_t state, int32_t token,
                                          const DLTensor *tensor, kvc_error *error);

/* Copies a state tensor of a recurrent layer into the cache. Row i becomes the state of sequence i of the batch when this
 * forward ends. If the forward is aborted, the sequence keeps its earlier state. Store every state of every recurrent layer
 * in the range before kvc_forward_end. If a state is stored twice, the later call replaces the earlier one.
 *   token   -1: store the state after the last new token of each row. 0..max_draft_states - 1: store the state after the
 *           row's new token with this index. Rows that lack this token, or that do not keep the state after it, are not
 *           read. A row keeps the state after its last token, and after tree nodes with numbers below max_draft_states
 *   tensor  borrowed; shape and strides as in kvc_forward_load_state
 * Drafts: with max_draft_states, the cache keeps the states after several uncommitted nodes. kvc_seq_commit then makes the
 * state after the committed leaf the state of the sequence. An example is a draft of 4 tokens with states
 * [num_sequences, 4, shape...]: call this function for tokens 0 to 3, each time with one slice of the states.
 * Errors, threads: as kvc_forward_load_state. Since 0.1. From: a state for each draft as in vLLM's speculative Mamba. */
KVC_API kvc_status kvc_forward_store_state(kvc_cache *cache, kvc_forward forward, int32_t layer, int32_t state, int32_t token,
                                           const DLTensor *tensor, kvc_error *error);

typedef struct kvc_merge_args {
  uint32_t struct_size;
  int32_t num_parts;                /* number of results to merge, 1 or more */
  const DLTensor *const *outputs;   /* [num_parts], borrowed; each [>= T, H, Dv] float32, float16 or bfloat16; innermost
                                       stride 1 */
  const DLTensor *const *lses;      /* [num_parts], borrowed; each [>= T, H] float32 */
  const DLTensor *out;              /* borrowed, its data is written; [T, H, Dv] float32, float16 or bfloat16. Its shape
                                       defines T, H and Dv. It may be outputs[0]; it must not overlap any other part */
  const DLTensor *lse;              /* nullable: not computed. Borrowed, its data is written; [T, H] float32. It may be
                                       lses[0] */
} kvc_merge_args;

static inline void kvc_merge_args_init(kvc_merge_args *args) {
  kvc_merge_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Merges results of attention over disjoint sets of keys into the result of attention over all these keys. Each part is
 * weighted by its LSE. The parts are merged in order, from part 0 on. The output of a part with LSE -inf is not read. If all
 * parts have LSE -inf, out is 0 and lse is -inf. Tensors are on the context's device.
 *   stream  the device's stream; NULL on the CPU
 * Errors: INVALID_ARGUMENT (num_parts), NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE; error->index is the part.
 * Threads: any. Since 0.1. From: split-KV as in Flash-Decoding; cascade merge as in FlashInfer. */
KVC_API kvc_status kvc_merge_states(kvc_context *context, const kvc_merge_args *args, void *stream, kvc_error *error);

/* Closes a step and keeps its tokens. The lengths of its sequences grow. Pages that left a window are freed. The pages of
 * sequences that were removed during the step are released. Nodes of trees stay uncommitted until kvc_seq_commit.
 *
 * Every layer in the range must have stored its tokens. Otherwise the pages of the layer could still have tokens of another
 * sequence. Layers that a step does not compute must be outside of its range (kvc_batch.layer_begin). In graphs and with
 * KVC_STORAGE_NONE, the library cannot check this fully, so the engine must ensure that every layer stores its tokens.
 *
 * Errors (the forward stays open): ORDER (error->index is the first layer in the range that was not appended, or that has a
 * state which was not stored; with KVC_STORAGE_NONE, appends are not checked), CANCELLED, BUSY, STALE_ID. An error of the
 * device closes the forward, as kvc_forward_abort does. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_end(kvc_cache *cache, kvc_forward forward, kvc_error *error);

/* Closes a step and drops its tokens. Its pages become free, and sequences are as they were before kvc_forward_begin.
 * Errors: BUSY (a call of the forward is computing; call kvc_forward_cancel first), STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_abort(kvc_cache *cache, kvc_forward forward, kvc_error *error);

/* Stops a step, also while it computes on another thread. The call does not wait. An attend that is computing finishes the
 * work items that run now, and returns CANCELLED (or OK if no item was left). After this call, append, attend and end return
 * CANCELLED, and only kvc_forward_abort closes the forward.
 * Errors: STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_cancel(kvc_cache *cache, kvc_forward forward, kvc_error *error);

/* The position of each token of an open forward, and the last token of each row. The library owns the arrays, and the shapes
 * and strides of the tensors. They are valid until the forward closes, or in a graph until kvc_graph_destroy. In a graph the
 * arrays have max_tokens and max_sequences of kvc_graph_config in place of T and num_sequences. Entries that the step does
 * not use have position 0 and last row -1. */
typedef struct kvc_forward_info {
  uint32_t struct_size;
  int32_t num_sequences;              /* rows of the batch, inert rows included */
  int64_t num_tokens;                 /* T */
  const int32_t *positions_host;      /* [T]: position of each token in its sequence. A tree node has position length +
                                         depth, and a token of an inert row has position 0 */
  const int32_t *last_rows_host;      /* [num_sequences]: index in [0, T) of the last token of each row; -1 = the row has no
                                         tokens */
  DLTensor positions;                 /* the data of positions_host on the context's device: int32 [T] */
  DLTensor last_rows;                 /* the data of last_rows_host on the context's device: int32 [num_sequences] */
} kvc_forward_info;

static inline void kvc_forward_info_init(kvc_forward_info *info) {
  kvc_forward_info zero = KVC_ZERO_STRUCT;
  *info = zero;
  info->struct_size = (uint32_t)sizeof(zero);
}

/* Fills `info`, for engines that rotate q and k themselves, or that need the logits of the last tokens only.
 * Errors: STALE_ID. Threads: any until the forward closes. Since 0.1. */
KVC_API kvc_status kvc_forward_get_info(kvc_cache *cache, kvc_forward forward, kvc_forward_info *info,
                                        kvc_error *error);

/* Describes the plan of a forward as one JSON object: rows, tokens, and for each group the kernels, work items, splits,
 * prefix groups, and bytes of K and V that one attend reads.
 *   buffer, capacity, length  as kvc_context_describe
 * Errors: STALE_ID, BUSY, BUFFER_TOO_SMALL. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_describe(kvc_cache *cache, kvc_forward forward, char *buffer, int64_t capacity,
                                        int64_t *length, kvc_error *error);

/* Settings of a graph. A graph is for steps whose calls are recorded once and replayed, by a CUDA graph, or by a compiled
 * program that has the arguments of its calls as constants.
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
 *   Ids        In every step, the forward in a graph has the id of the graph. A call with that id acts on the forward that
 *              is open in the graph. If no forward is open in the graph, the call returns KVC_ERROR_STALE and does nothing.
 *   Addresses  kvc_forward_get_info and kvc_forward_tables give the same addresses in every step, in shapes of the graph's
 *              capacity. Entries that a step does not use are inert: position 0, slot -1, last row -1, table rows without
 *              keys. Call kvc_forward_tables in each step to fill the tables. Between kvc_forward_end and this call, the
 *              generation word of the tables is 0.
 *   Tensors    Tensors of recorded calls have max_tokens rows, and tensors of states have max_sequences rows. Rows that the
 *              step does not have are not written.
 *   CUDA       Run one step without a capture first. Then capture append, attend, load_state and store_state between a begin
 *              and an end. All other calls must be outside of the capture (else ORDER). kvc_forward_end checks that each
 *              layer in the range was appended in the graph at least once. It cannot check which calls a replay ran, so
 *              replay all captured layers before kvc_forward_end. A replay while no forward is open writes nothing. Use one
 *              stream for all forwards of a graph.
 *
 * A graph has buffers for one forward, which does not count towards max_open_forwards. Recordings of several batch sizes can
 * use the same graph, up to its capacity. So a server needs only one graph. */
typedef struct kvc_graph_config {
  uint32_t struct_size;
  uint32_t flags;            /* 0 */
  int32_t max_sequences;     /* rows of a step, at most max_sequences of the cache; 0 = max_sequences of the cache */
  int32_t max_tokens;        /* tokens of a step, at most max_batch_tokens of the cache; 0 = max_batch_tokens of the cache */
  int32_t max_pages_per_row; /* columns of block tables, 1..2^26; 0 = num_pages of the group. Tables of KVC_TABLES_BRANCHES
                                have their own number of columns */
  uint32_t reserved;         /* 0 */
} kvc_graph_config;

static inline void kvc_graph_config_init(kvc_graph_config *config) {
  kvc_graph_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

/* Creates a graph, which owns the memory for its forwards. kvc_cache_estimate includes one graph of the largest size.
 *   graph  filled
 * Errors: OUT_OF_RANGE, UNSUPPORTED (flags, reserved), OUT_OF_MEMORY, TOO_MANY_FORWARDS (64 graphs exist). Threads: any.
 * Since 0.1. */
KVC_API kvc_status kvc_graph_create(kvc_cache *cache, const kvc_graph_config *config, kvc_forward *graph,
                                    kvc_error *error);

/* Frees a graph, and all memory that was borrowed from it. kvc_cache_destroy frees the remaining graphs.
 * Errors: STALE_ID (no graph of this cache), BUSY (a forward is open in the graph; end or abort it). Threads: any.
 * Since 0.1. */
KVC_API kvc_status kvc_graph_destroy(kvc_cache *cache, kvc_forward graph, kvc_error *error);

/* Token trees, for speculative decoding. One step computes several possible continuations, and the accepted path is kept.
 *
 *   //   0        node 0 is drafted after the sequence's last token
 *   //  1 2
 *   // 3 4 5
 *   int32_t num_nodes = 6, parents[6] = {KVC_TREE_ROOT, 0, 0, 1, 1, 2};
 *   batch.sequences = &seq;  batch.num_sequences = 1;
 *   batch.append_lengths = &num_nodes;  batch.tree_parents = parents;
 *   if (kvc_forward_begin(cache, &batch, NULL, &step, &error)) return report(error.message);
 *   ...                                        // attend in every layer: each query sees the sequence and its ancestors
 *   kvc_forward_end(cache, step, &error);
 *   int32_t leaf = deepest_accepted(logits);   // say 4: the path 0, 1, 4 is kept, and the length grows by 3
 *   kvc_seq_commit(cache, 1, &seq, &leaf, NULL, &error);
 *
 * Numbering: the nodes of a sequence are numbered from 0 in the order of their appends, over all steps since the last
 * commit. A later step may add nodes to the tree. Its first node has the number that kvc_seq_tree_nodes gives before the
 * step. A parent must come before its children. A tree may have several roots, and any node can be committed.
 * Positions: the position of a node is the length of the sequence plus the depth of the node (0 for a root). RoPE, windows
 * and biases use this position.
 * Limits: while a sequence has uncommitted nodes, forks and plain appends return UNCOMMITTED. The sequence then frees no
 * page that left a window, so all its keys are still there if the tree is dropped. An abort drops only the nodes of its own
 * step.
 * Recurrent states: the state after the last node of the newest step is always kept. The states after the first
 * max_draft_states nodes are kept too, if they were stored (kvc_forward_store_state). Only a node with a state can be
 * committed (else EVICTED), or can get children in a later step. If max_draft_states is 0, a tree must be a chain, and it
 * can only be kept or dropped as a whole. If only its first nodes are accepted, drop the chain (-1) and append their tokens
 * as plain tokens. */

/* Keeps the path from a root to node leaves[i] as tokens of sequences[i], and drops the other uncommitted nodes of the
 * sequence. Either all n sequences are committed, or none. K and V of kept nodes move to their final slots where needed. The
 * call takes no page.
 *   sequences  [n], distinct, any order, each with uncommitted nodes
 *   leaves     [n]: a node for each sequence, 0..kvc_seq_tree_nodes - 1; -1 = drop all nodes
 *   stream     as kvc_seq_fork
 * Errors (nothing committed), with the sequence in error->index: STALE_ID, DUPLICATE, BUSY, ORDER (no uncommitted nodes; or
 * KVC_STORAGE_NONE: too many copies wait), OUT_OF_RANGE, EVICTED (the recurrent state of the node is not kept, see above).
 * After an error of the device, K and V of the nodes are undefined, and the nodes can only be dropped (-1). Threads: any.
 * The cost grows with the number of moved nodes and freed pages.
 * Since 0.1. From: tree attention as in SpecInfer and Medusa. */
KVC_API kvc_status kvc_seq_commit(kvc_cache *cache, int64_t n, const kvc_seq *sequences, const int32_t *leaves,
                                  void *stream, kvc_error *error);

/* Gives the number of uncommitted tree nodes of each of n sequences. Nodes of open forwards do not count. O(1) a sequence.
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

/* Returns a view of a layer's page pool, without a copy. The view keeps the memory alive, but not the contents: pages are
 * reused. It has the layer's dtype; float8 comes as uint8, and rows of 4 bits as their bytes. Work enqueued on the stream
 * after this call sees what earlier calls on the cache stored. Later calls on the cache do not wait for that work. The view
 * shows all sequences and free slots: a slot in which this layer stored no token holds what it held before.
 *   pool    KVC_POOL_*
 *   flags   KVC_POOL_WRITABLE or 0
 *   tensor  returned; released by its deleter, on any thread, also after kvc_cache_destroy
 *   stream  as kvc_seq_fork
 * Errors: OUT_OF_RANGE (layer), INVALID_ARGUMENT, UNSUPPORTED (KVC_POOL_KV of pools stored apart, a recurrent layer, scales
 * of a layer that is not quantised, writable scales of float8, KVC_STORAGE_NONE), OUT_OF_MEMORY. Threads: any. Since 0.1. */
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
  DLManagedTensorVersioned *k;       /* [tokens, Hkv, D] of the layer's dtype; float8: uint8; 4 bits: uint8, the bytes of a
                                        row */
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
 * The copy runs outside the cache's lock, and holds the sequence's pages meanwhile. If page ids must be equal on all ranks,
 * do not change the cache before the call has returned.
 * Errors: STALE_ID, BUSY (the sequence is in an open forward, or 32 exports run already), OUT_OF_RANGE (uncommitted tree
 * nodes cannot be exported), ORDER (a forward that stored these tokens did not cover the layer; available = the tokens that
 * it holds), EVICTED (keys of the range are gone), UNSUPPORTED (scales of a layer without scales, a recurrent layer,
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
 * Errors: those of kvc_forward_begin; those of kvc_forward_append, with error->index = the layer; UNSUPPORTED with a
 * recurrent group (use a forward, with KVC_APPEND_AS_STORED and kvc_forward_store_state), with cross groups alone, and with
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
 * Three calls queue copies: a fork, of a partial last page; begin, of a shared last page; and a commit, to move kept nodes
 * to the front. A commit can queue several for a sequence and group, the others at most one. Nothing else moves tokens.
 *   Order   Make the copies one after another, in the order in which they come. Make those of a fork or commit before the
 *           next step stores or reads anything, and those of begin before its own step reads.
 *   Taking  While copies of earlier calls wait, kvc_forward_begin is refused (ORDER), so that nothing overwrites what they
 *           read. Once max_sequences * num_groups copies wait, kvc_seq_fork and kvc_seq_commit are refused too.
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
  int64_t pages_idle;          /* of those, pages that nothing else holds: a call that is short of pages evicts them. They
                                  count as used */
  int64_t pages_evicted;       /* pages that such calls have evicted since create */
  int64_t prefix_attaches;     /* kvc_prefix_attach calls that succeeded since create (of the cache, in every group) */
  int64_t prefix_tokens;       /* tokens that these calls found */
} kvc_stats;

static inline void kvc_stats_init(kvc_stats *stats) {
  kvc_stats zero = KVC_ZERO_STRUCT;
  *stats = zero;
  stats->struct_size = (uint32_t)sizeof(zero);
}

/* Counts pages and tokens of one group or of the whole cache. Pages of open forwards and uncommitted trees count as used;
 * their tokens do not count as held.
 *   group  group index, or -1 for the whole cache
 *   stats  filled
 * It walks the page tables in use under the cache's lock, in microseconds for a thousand pages. Use it for dashboards, and
 * kvc_cache_can_fit or kvc_seq_max_append in a step.
 * Errors: OUT_OF_RANGE. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_stats(kvc_cache *cache, int32_t group, kvc_stats *stats, kvc_error *error);

/* Describes the cache at this moment as one JSON object: the pages of each group, sequences and which pages they share, the
 * prefix index, tiers, and open forwards. It has no tokens, and no keys of pages. docs/reference/describe.md lists the
 * fields.
 *   buffer, capacity, length  as kvc_context_describe. The text may grow between two calls
 * It walks the page tables in use under the cache's lock, and takes a few times as long as kvc_cache_stats. `kvcache
 * inspect` shows the text.
 * Errors: BUFFER_TOO_SMALL. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_describe(kvc_cache *cache, char *buffer, int64_t capacity, int64_t *length,
                                      kvc_error *error);

/* ============================================================================================
 * 10  Stateless calls: attention over a cache of the caller's own
 * ============================================================================================ */

/* These calls are for engines that keep K and V in their own tensors. They need a context, and no kvc_cache. A decode step
 * over a paged cache:
 *
 *   kvc_flash_attn_args args;  kvc_flash_attn_args_init(&args);
 *   args.q = &q;  args.k = &k;  args.v = &v;  args.out = &out;           // of the new tokens, [B, 1, heads, dims]
 *   args.k_cache = &k_cache;  args.v_cache = &v_cache;                   // [pages, page_size, Hkv, dims]
 *   args.cache_seqlens = &lengths;  args.block_table = &table;           // int32 [B], [B, max_pages]
 *   args.flags = KVC_FLASH_ATTN_CAUSAL;
 *   if (kvc_flash_attn_with_kvcache(context, &args, NULL, &error)) return report(error.message);
 *
 * More letters: B rows (sequences) of a call; Sq and Sn queries and new tokens of a row; Tq and Tn those of all rows.
 * Tensors are on the context's device and borrowed. Index tensors (lengths, offsets, cache rows, slots, block_table) are
 * int32 or int64, with any stride; stride 0 means one value for all. Lengths may have rank 0. On a GPU, the index tensors of
 * a call are all on the host, or all on the device (single numbers may be on the host).
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
  const DLTensor *softmax_lse;  /* nullable; written; [B, Hq, Sq], or with cu_seqlens_q [Hq, >= Tq], float32: natural-log sum
                                   of
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
                                        positions cache_seqlens[b], cache_seqlens[b] + 1 ..., and so have its queries;
                                        without causal and windows all its queries have position cache_seqlens[b]. Left
                                        padding does not change that */
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
  const DLTensor *sinks;             /* nullable; [Hq] float32, float16 or bfloat16: a logit of each head that joins the
                                        softmax
                              without a value */
  double softmax_scale;    /* 1e-30..1e30; 0 = D^-0.5, with qv (D + Dv)^-0.5 */
  double softcap;          /* scores become softcap * tanh(score / softcap); 1e-6..1e30; 0 = none */
  int32_t window_left;     /* a query at p sees keys from p - window_left on; with its flag; >= 0, else 0 */
  int32_t window_right;    /* ... and up to p + window_right, included; with its flag; >= 0, else 0 */
  int32_t attention_chunk; /* c > 0: of those, keys j with j/c == p/c, both counted from the first valid key; 0 = none */
  int32_t num_splits;      /* parts that each row's keys are cut into, at most 256, fewer where keys are few; 0 = chosen by
                              cost */
  const DLTensor *indices; /* nullable: no lists. [B, Sq, 1 or Hkv, k] int32, or with cu_seqlens_q [>= Tq, 1 or Hkv, k]; k at
                              most KVC_MAX_LISTED_KEYS. See below */
} kvc_flash_attn_args;

static inline void kvc_flash_attn_args_init(kvc_flash_attn_args *args) {
  kvc_flash_attn_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Appends k and v to the caller's cache, if they are given, and computes attention over it. The contract is that of
 * flash_attn_with_kvcache of FlashAttention 2 and 3. In a row with L valid keys, the new ones included, query i of n has
 * position p = L - n + i, so the last query sees the last key. Where p is negative, a causal query sees nothing. A query
 * that sees nothing has output 0 and LSE -inf (with a sink: the sink's logit). Rows of q after the last cu_seqlens_q are not
 * written in out.
 *   args    borrowed, tensors included; every value of index tensors that the host reads is checked before anything is
 *           written
 *   stream  the device's stream; NULL on the CPU
 * With indices, a query attends to the listed slots of k_cache, page * page_size + offset, and nothing else hides a key: the
 * contract of FlashMLA's sparse decoding. k_cache is [pages, page_size, Hkv, D]. Negative entries are padding, and a slot
 * that occurs twice counts once. Slots have no positions, so what needs lengths or positions must be absent: k, v,
 * block_table, cache_seqlens and its other name, cache_batch_idx, cache_leftpad, alibi_slopes, windows, chunks, and
 * KVC_FLASH_ATTN_CAUSAL. Two rows must not append to one slot through their tables. A call allocates memory only if it is
 * larger than all calls before it.
 * Errors (nothing written): NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED (rotary of float8; qv with
 * k_descale or v_descale; dims; indices on a backend that does not attend over lists), INVALID_ARGUMENT (arguments that
 * contradict each other; a tensor that is written shares elements with another one; a cache row twice with k), OUT_OF_RANGE
 * (a page id, slot, index, length or position, with the row in error->index), BUFFER_TOO_SMALL (a cache row without room for
 * its new tokens: error->required and available in tokens, error->index = the row).
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
  const DLTensor *k_scale;      /* nullable: 1. [1] or [Hkv] float32, with a float8 cache: k is stored as k / k_scale,
                                   rounded to nearest even and saturated (latent form: whole rows) */
  const DLTensor *v_scale;      /* nullable; the same for v (latent form: NULL) */
  const DLTensor *rotary_cos;   /* nullable, with rotary_sin and positions; as in kvc_flash_attn_args: the first dims of k
                                   are rotated */
  const DLTensor *rotary_sin;
  const DLTensor *positions;    /* nullable, with rotary_cos; int32 or int64 [T]: the row of cos and sin of each token that
                                   is stored */
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
 * INVALID_ARGUMENT (arguments that contradict each other, a cache that overlaps anything else), OUT_OF_RANGE (a slot or
 * position, with the token in error->index). Threads: any, on different slots. Since 0.1.
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

/* Tables of one step. Rows of a table are rows of the batch in their order, unless a row is cut (chunks) or branches;
 * batch_rows names the row of the batch. Tensors are borrowed, on the device, int32 and compact unless said otherwise. A
 * tensor that was not requested has ndim 0. In graph mode, shapes and maxima are those of the capacity. */
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
  DLTensor key_starts;      /* [R]: position of the row's first key, sinks aside (k_start); 0 where keys are listed one by
                               one */
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
  int64_t num_pool_pages;    /* pages of the server's pool, against which tables are checked: 1..2^31 / page_size, since
                                slots are int32; 0 = unknown, as many */
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

/* The arrays of a step. All are borrowed. All are on the host or, for a plan with KVC_PLAN_GRAPH, all on the context's
 * device. One-dimensional ones are int32 or int64, compact; tables are int32 with innermost stride 1. */
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
  const DLTensor *tree_parents;   /* nullable: chains. VERIFY: [B * num_draft_tokens], as kvc_batch.tree_parents, but for
                                     each row by itself: parents come before their children, -1 = root */
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
 * Errors: NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE; INVALID_ARGUMENT (arrays that the mode does not use, both
 * tables, rows that did not only grow, tokens of a page that do not begin at a page); OUT_OF_RANGE (a length; an entry of a
 * table: the message has row, column, id and limit; a table with too few columns); BATCH_TOO_LARGE (graph mode: required,
 * available; 2^31 keys and more). error->index = the row. Threads: one at a time for one plan. Since 0.1.
 * From: metadata as SGLang's FlashAttention backend makes it; virtual batches for chunks as in Llama 4's local attention. */
KVC_API kvc_status kvc_plan_build(kvc_plan *plan, const kvc_plan_args *args, void *stream, uint64_t *generation,
                                  kvc_error *error);

/* Gives the tables that the last build made.
 *   step    DRAFT_DECODE: 0..num_steps - 1; else 0
 *   tables  in: part; filled. Valid until the next build, in graph mode until kvc_plan_destroy
 * Errors: STALE (no build, or the last was refused), OUT_OF_RANGE (step), INVALID_ARGUMENT (a part that the plan does not
 * have; fields that belong to the config). Threads: as kvc_plan_build. Since 0.1. */
KVC_API kvc_status kvc_plan_tables(kvc_plan *plan, int32_t step, kvc_tables *tables, kvc_error *error);

/* Checks that a plan's arrays hold build `generation`. Call it before replaying recorded calls over its tables.
 * Errors: STALE (they hold another build, or the last build was refused). Threads: as kvc_plan_build. Since 0.1. */
KVC_API kvc_status kvc_plan_check(kvc_plan *plan, uint64_t generation, kvc_error *error);

/* ============================================================================================
 * 12  Prefix index: what the cache remembers
 * ============================================================================================
 * A cache with KVC_CACHE_PREFIX_INDEX can keep the pages of tokens after their sequence is gone. A later request that begins
 * with the same tokens gets these pages, and computes only the rest. The loop of an engine:
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
 *   Groups    A hit is the longest prefix that every group can serve. Full groups and latent rows need every page up to the
 *             hit. Sliding and chunked groups need what the next query sees. Recurrent groups need the states after exactly
 *             these tokens: the index holds those of the lengths at which sequences were published. The index ignores cross
 *             groups: the new sequence has no encoder tokens.
 *   Eviction  A published page that no sequence and no pin holds is idle. Calls that are short of pages evict idle pages:
 *             kvc_forward_begin, kvc_seq_fork, kvc_seq_import and kvc_prefix_attach. Expired prefixes go first, then those
 *             of lower priority, then those that kvc_cache_config.prefix_policy chooses, and a continuation before what it
 *             continues. OUT_OF_PAGES means that even eviction of all idle pages would not help. What a failed or aborted
 *             call evicted stays evicted. Equal calls evict equal pages, so page ids are equal on every rank.
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
  int64_t load_tokens;   /* with tiers: what `tokens` would be after kvc_prefix_load, as far as they have searched; else
                            `tokens` */
  int64_t load_ns;       /* with tiers: how long that load takes, as the tiers measured it; 0 = nothing to load, or not
                            measured */
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
 * Errors: OUT_OF_RANGE (num_tokens or salt_begin). Threads: any. Since 0.1. From: prefix reuse as in SGLang's
 * RadixAttention. */
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

/* Makes the first tokens of a sequence findable. The index takes references to its pages, and nothing is copied. The
 * sequence uses whole pages that the index already holds for the same tokens in place of its own. Publish again while the
 * sequence grows.
 *   sequence   the library cannot check its tokens: the tokens of the query must be those that were appended
 *   query      borrowed; num_tokens is the sequence's length, or less. Recurrent groups: less only at a checkpoint of the
 *              sequence (kvc_seq_checkpoint); else the tokens are not found by themselves
 *   options    nullable: all zero; borrowed
 *   published  nullable: filled
 * The next forward that appends to the sequence copies its last page, if this is not full and was published.
 * Errors: STALE_ID, BUSY, UNCOMMITTED, OUT_OF_RANGE (num_tokens above the length, salt_begin, priority, time_to_live), ORDER
 * (a layer lacks some of the tokens, because a forward did not cover it), UNSUPPORTED (the sequence has or had a streaming
 * window, or its keys are rotated by the long set of longrope). Threads: any. The cost grows with the tokens. Since 0.1. */
KVC_API kvc_status kvc_prefix_publish(kvc_cache *cache, kvc_seq sequence, const kvc_prefix_query *query,
                                      const kvc_prefix_options *options, kvc_prefix_published *published,
                                      kvc_error *error);

/* Forgets every published prefix that begins with the query's tokens: their last page and all that continues it. Without
 * tokens it forgets all that was published with this salt from the first page on. Sequences keep their pages.
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

/* Keeps the pages of a published prefix from being evicted. The prefix is the one that match finds with
 * KVC_PREFIX_ALLOW_ALL.
 *   query  borrowed, tokens included
 *   hit    nullable: filled with what is pinned
 *   pin    filled: an id, never 0; ended by kvc_prefix_unpin or kvc_cache_clear
 * Errors: OUT_OF_RANGE (num_tokens or salt_begin). Threads: any. The cost grows with the pages. Since 0.1. */
KVC_API kvc_status kvc_prefix_pin(kvc_cache *cache, const kvc_prefix_query *query, kvc_prefix_hit *hit, uint64_t *pin,
                                  kvc_error *error);

/* Ends a pin. Pages that nothing else holds become idle, or free if they were dropped meanwhile.
 * Errors: STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_prefix_unpin(kvc_cache *cache, uint64_t pin, kvc_error *error);

/* Tells the cache the time, in any unit. It starts at 0 and never goes back: an earlier time changes nothing. Give all ranks
 * of an engine the same times.
 *   now  >= 0
 * Errors: OUT_OF_RANGE. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_set_time(kvc_cache *cache, int64_t now, kvc_error *error);

/* ============================================================================================
 * 13  Page keys: names of tokens outside of a cache
 * ============================================================================================
 * A page key names the content of one page of tokens in 32 bytes. It is equal in every process, on every machine and in
 * every language. docs/reference/keys.md defines the bytes that are hashed (SHA-256), and has test vectors. A cache does not
 * need keys: its prefix index compares tokens. */

typedef struct kvc_page_keys_args {
  uint32_t struct_size;
  uint32_t reserved;           /* 0 */
  const int32_t *tokens;       /* [num_tokens]; nullable if num_tokens is 0. Any numbers */
  int64_t num_tokens;          /* 0..2^30; a last page that is not full has no key */
  int64_t page_size;           /* 1..2^20 */
  int64_t begin;               /* position of tokens[0] in its sequence: a multiple of page_size up to 2^30, 0 without a
                                  parent */
  const uint8_t *parent;       /* nullable: [32], the key of the page that ends at begin. It covers fingerprint and
                                  adapter */
  const uint8_t *fingerprint;  /* [32]: computed by the engine from weights, quantisation and tokenizer; nullable with a
                                  parent */
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
 * Errors (nothing written): NULL_ARGUMENT (an array that is needed), OUT_OF_RANGE (a number outside of what its field says,
 * a span with its index in error->index), INVALID_ARGUMENT (begin without a parent, or not at a page; reserved).
 * Threads: any. O(tokens and media). Since 0.1. From: block hashes of vLLM's prefix cache. */
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
 * start_again forgets what it knew, takes a snapshot (kvc_events_snapshot), and reads on from the snapshot's range.end. A
 * snapshot and the events after it give exactly the pages that the index holds.
 *
 *   Pages     Events name whole pages by their key (section 13), with the query's salt as 8 bytes, little-endian, if it is
 *             not 0. Each group has its own events for a page. A recurrent group has events only for states at the end of a
 *             whole page.
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
 * A saved sequence is one file with all that a sequence has: K and V of every group as stored, encoder tokens, recurrent
 * states with their checkpoints, its streaming window and factor set of longrope, and its token ids if the caller gives
 * them. A sequence that was loaded continues with the same bits as the one that was saved.
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
 * Returns: 0, or any other number if it failed: it appears in the message. Called on the thread of the call, without a
 * lock. */
typedef int32_t (*kvc_write_fn)(void *user, const void *data, int64_t bytes);

/* Gives the next bytes of a saved sequence.
 *   user   kvc_load_args.read_user
 *   data   filled; [bytes]
 * Returns: how many bytes it gave, 1..bytes; 0 at the end; below 0 if it failed: the number appears in the message. Called
 * as kvc_write_fn. */
typedef int64_t (*kvc_read_fn)(void *user, void *data, int64_t bytes);

typedef struct kvc_save_args {
  uint32_t struct_size;
  uint32_t flags;         /* 0 */
  const char *path;       /* borrowed; nullable if write is given. The file appears whole, or not at all: the bytes go to a
                             new file in the same folder, which is synchronised with the disk and then renamed */
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
 * Errors: STALE_ID, BUSY, UNCOMMITTED, INVALID_ARGUMENT (path and write, or neither; num_tokens is not the length),
 * OUT_OF_RANGE (section_bytes), ORDER (a forward did not cover a layer, so it lacks tokens), IO, UNSUPPORTED
 * (KVC_STORAGE_NONE). After an error the file of that name is as it was. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_save(kvc_cache *cache, kvc_seq sequence, const kvc_save_args *args, void *stream,
                                kvc_error *error);

/* Adds a sequence with the contents of a saved one. The cache must have the same layers, groups, dtypes and RoPE settings,
 * and the same fingerprint. Capacity, pools and limits may differ. The page size may differ too, unless the sequence has
 * freed tokens that the other page size cannot leave out. The call holds one section of the file at a time, and checks it
 * before it uses it. No other call sees the sequence before all of it is there. Pages of the prefix index that it evicts
 * stay evicted.
 *   args        borrowed, with all it names
 *   sequence    filled
 *   num_tokens  nullable: how many token ids the file has, also on BUFFER_TOO_SMALL
 *   stream      as kvc_seq_fork
 * Errors (no sequence was added): IO, CORRUPT (damaged bytes), LAYOUT (another model, dtype or layout; the message has what
 * the file and the cache say; or holes of the saved sequence that this page size cannot have), BUFFER_TOO_SMALL (capacity;
 * never for 0), TOO_MANY_SEQUENCES, OUT_OF_PAGES (of error->group), INVALID_ARGUMENT (path and read, or neither),
 * UNSUPPORTED (a later format; KVC_STORAGE_NONE; a streaming window, and a cache without KVC_CACHE_STREAMING). Threads: any.
 * Since 0.1. */
KVC_API kvc_status kvc_seq_load(kvc_cache *cache, const kvc_load_args *args, void *stream, kvc_seq *sequence,
                                int64_t *num_tokens, kvc_error *error);

/* ============================================================================================
 * 16  Tiers: memory below the pools
 * ============================================================================================
 * A tier keeps published pages in slower memory, such as a folder on a disk. It finds them after the pools have evicted
 * them, and after a restart of the process. The loop of section 12 with a tier:
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
 *   Store     kvc_prefix_publish queues the whole pages that a tier lacks. A thread of the cache copies each of them, and
 *             gives it to the tier. A page that is evicted before that is not stored.
 *   Load      kvc_prefix_load reserves pages, and starts. The pages become findable in kvc_job_poll, all at once. A load
 *             that fails in part gives a shorter prefix. If a tier must search first, as Redis does, kvc_job_poll reserves
 *             the pages later.
 *   Objects   A tier keeps one object for each page of a group, under a key that covers the fingerprint, the tokens, the
 *             salt and the layout of the group (docs/reference/keys.md). The object has a checksum, the layout and the
 *             tokens. What does not match exactly is a miss. So engines with the same fingerprint and layout share a tier.
 *   Order     Pages are taken in kvc_prefix_load and become findable in kvc_job_poll. So ranks that make equal calls, and
 *             poll until the same job is done, have equal page ids, unless a tier searches.
 *   Suspend   kvc_seq_suspend moves the pages of a sequence to a tier and frees them, and kvc_seq_resume brings them back.
 *   fork()    Tiers work in the parent alone. In the child nothing is loaded or stored.
 *   Streams   On a GPU the pages are copied on a stream of the cache's own, in order with the work of other calls. No call
 *             waits on the host for these copies, and no stream of the caller waits for the bytes to reach the host.
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
  const kvc_tier *tier;       /* nullable; adopted: a tier of the engine. One of directory, tier and KVC_TIER_HOST is
                                 given */
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
  int64_t tokens;       /* done: tokens of the query that were loaded. They are findable now. Suspend and resume: the
                           sequence's length */
} kvc_job_info;

static inline void kvc_job_info_init(kvc_job_info *info) {
  kvc_job_info zero = KVC_ZERO_STRUCT;
  *info = zero;
  info->struct_size = (uint32_t)sizeof(zero);
}

/* Says whether a job has ended. The call that first says so ends the job: it publishes what was loaded, frees the pages of
 * the suspended sequence, or makes the resumed one usable. If a suspend or resume has failed, the error says so and ends the
 * job too.
 *   info  filled
 * Errors: STALE_ID (no such job; or the sequence of a suspend or resume was removed, which ends the job), IO (no tier took a
 * page of the sequence, or a tier has lost one), CANCELLED (a suspend or resume). Threads: any. It waits for nothing.
 * Since 0.1. */
KVC_API kvc_status kvc_job_poll(kvc_cache *cache, kvc_job job, kvc_job_info *info, kvc_error *error);

/* Ends a job early. It still waits for pages that are being read or written, so poll it until it is done. What was loaded by
 * then is kept. A suspend or resume leaves its sequence as it was.
 * Errors: STALE_ID. Threads: any. It waits for nothing. Since 0.1. */
KVC_API kvc_status kvc_job_cancel(kvc_cache *cache, kvc_job job, kvc_error *error);

/* Gives a file descriptor that is readable while a job has ended and was not polled since, for poll(), epoll and the like.
 * The cache owns it: do not read or close it. It is valid until kvc_cache_destroy.
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
 * The pages are those that kvc_seq_exclusive_pages counts. Pages that another sequence or an export uses too stay, and the
 * sequence keeps its references. Each page goes to the first tier that takes it, in the order in which the tiers were added.
 * A host tier never evicts it, and refuses a page for which it has no room; another tier may evict it. Until the job is done
 * the sequence is busy, as in an open forward, and a failure leaves it as it was.
 *   A suspended sequence keeps its id, length, settings and checkpoints, and counts as one of max_sequences. Calls that read
 *   or
 * change its contents return SUSPENDED, and kvc_seq_pages gives -1 for its pages. kvc_seq_remove and kvc_cache_clear remove
 * it, and its objects from the tiers. A process that is killed leaves its objects in a folder, until the capacity evicts
 * them.
 *   job  filled; never 0
 * Errors: STALE_ID, BUSY, UNCOMMITTED, SUSPENDED, UNSUPPORTED (the cache has no tier, or they all have
 * KVC_TIER_STORE_NOTHING), OUT_OF_MEMORY. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_suspend(kvc_cache *cache, kvc_seq sequence, kvc_job *job, kvc_error *error);

/* Starts to bring back a suspended sequence. It takes all pages at once, and evicts as kvc_forward_begin does. The sequence
 * stays suspended until the job is done. If a tier has lost an object, the job fails, and the sequence stays suspended:
 * remove it and compute its tokens again.
 *   job  filled; never 0
 * Errors: STALE_ID, BUSY (a resume runs), ORDER (the sequence is not suspended), OUT_OF_PAGES (of error->group),
 * OUT_OF_MEMORY, UNSUPPORTED (the cache has no tier). Threads: any. Since 0.1. */
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
 *   Layers    A poll sends what the cache holds. Of an open forward, it sends the layers that were appended. An engine that
 *             polls after each layer sends layer by layer. If the forward is aborted, its tokens are sent again when they
 *             are appended again.
 *   Windows   Of a group with a window, only the pages that the query after the last token sees are reserved and sent.
 *   Length    The sender's sequence reaches num_tokens, and is not extended before the transfer is done: groups with windows
 *             and with states forget what the receiver needs.
 *   Failure   If the peer ends, fails, cancels or is silent for timeout_ms, the next poll returns IO and ends the transfer:
 *             its pages are free again. A sender's sequence stays as it was.
 *   Polls     A side that does not poll is silent. A poll copies a few MiB at most, and waits for nothing.
 *   Transport A cache without a transport of its own reaches caches of the same process. libkvcache_ucx.so reaches other
 *   processes
 *             and machines (kvcache_ucx.h).
 *   fork()    Transfers work in the parent alone. In the child they fail.
 * Transfers need a cache with pools, without encoder groups. On a GPU the rows pass through host memory: a poll waits until
 * the copies of what it sends have arrived there, and those run after the forward's calls that made the rows. */

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
  kvc_seq prefix;       /* 0, or a sequence with the first tokens, as kvc_prefix_attach gives it: only the others travel. The
                           new sequence shares its whole pages. The cache must have no group of states */
} kvc_receive_args;

static inline void kvc_receive_args_init(kvc_receive_args *args) {
  kvc_receive_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Starts to receive a sequence. It takes its pages at once, and evicts as kvc_forward_begin does.
 *   args      borrowed
 *   transfer  filled; never 0
 * Errors: OUT_OF_RANGE (num_tokens, timeout_ms), STALE_ID, BUSY, UNCOMMITTED, SUSPENDED (prefix), INVALID_ARGUMENT (the
 * prefix has num_tokens or more), ORDER (some layer lacks tokens of the prefix), UNSUPPORTED (no pools, encoder groups; a
 * prefix with a streaming window or beside a group of states), TOO_MANY_SEQUENCES, OUT_OF_PAGES (of error->group),
 * OUT_OF_MEMORY, IO (the transport has no address). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_transfer_receive(kvc_cache *cache, const kvc_receive_args *args, kvc_transfer *transfer,
                                        kvc_error *error);

/* Writes the description of a transfer that the cache receives: its layout, the tokens that it needs, and where to send
 * them. It is valid once, for one sender.
 *   buffer  nullable if capacity is 0, which only gives `bytes`; filled
 *   bytes   filled with the length of the description
 * Errors: STALE_ID, INVALID_ARGUMENT (the cache sends this transfer), BUFFER_TOO_SMALL. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_transfer_describe(kvc_cache *cache, kvc_transfer transfer, void *buffer, int64_t capacity,
                                         int64_t *bytes, kvc_error *error);

/* Starts to send a sequence to the cache that a description is from. Nothing is sent before the first poll.
 *   description  borrowed; [bytes], from kvc_transfer_describe
 *   transfer     filled; never 0
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
 * Errors: STALE_ID (no such transfer; or the sender's sequence was removed), EVICTED (a window has freed tokens before they
 * were sent), ORDER (the sender's sequence was extended, and its state at num_tokens is gone), IO (the peer failed,
 * cancelled or is silent; the transport failed), CORRUPT (a message does not fit the description), OUT_OF_MEMORY. All but
 * "no such transfer" end it.
 * Threads: any. Since 0.1. */
KVC_API kvc_status kvc_transfer_poll(kvc_cache *cache, kvc_transfer transfer, kvc_transfer_info *info, kvc_error *error);

/* Ends a transfer. What was received is dropped. If this side has heard of the peer, it tells the peer, whose poll then
 * returns IO. Otherwise the peer waits until its timeout.
 * Errors: STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_transfer_cancel(kvc_cache *cache, kvc_transfer transfer, kvc_error *error);

/* ============================================================================================
 * 18  Advanced: proofs and comparisons
 * ============================================================================================ */

/* Computes a hash of all bookkeeping: ids, lengths, page tables, free lists. Equal calls on equal configs give equal hashes,
 * so ranks and replays can be compared. The hash may differ between versions of the library.
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

/* Returns the library's functions as a table, for hosts that load it by dlopen and need one symbol. Members are only
 * appended: check struct_size (or offsetof) before using a newer one.
 *   abi_version  KVC_ABI_VERSION of the caller's header
 * Returns: a static table. NULL if the major versions differ; while major is 0, if the minor versions differ; from 1.0 on,
 * if the caller's minor version is above the library's. Threads: any. Since 0.1. */
KVC_API const struct kvc_api *kvc_get_api(uint32_t abi_version);

#undef KVC_ZERO_STRUCT

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVCACHE_H_ */
