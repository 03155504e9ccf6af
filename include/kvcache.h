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
 *     stored tokens of each sequence, the new tokens included.
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
 *   forward   One step of the model over a batch: begin, calls for each layer, then end or abort. It is also called a step.
 *   group     Layers that share page tables, because their queries see the same keys. A group stores one of these: K and V,
 *             latent rows, or recurrent states. Queries of a group see all keys, a sliding window, a chunk, or the keys of
 *             an encoder sequence.
 * Letters in shapes: T is the number of tokens of a batch. Hq is the number of query heads, and Hkv is the number of key and
 * value heads (kv heads). D is the head dim of q and k, and Dv is the head dim of v. A row of a batch is one sequence. A row
 * of a tensor is one token. A range [a, b) contains a and does not contain b. Lengths are in tokens, and the first token of
 * a sequence has position 0.
 *
 * Ownership: three words say who owns memory
 *   borrowed  The library uses the memory during the call, and keeps no reference. On a GPU the memory must stay valid until
 *             the stream has done the work of the call.
 *   adopted   After a successful call, the library owns the object. After a failed call, the caller still owns the object.
 *   returned  The caller owns the result, and must release it as the function's comment says.
 *
 * Rules for all calls
 *   Errors    A function that can fail returns a kvc_status. The last argument of such a function is a nullable kvc_error. A
 *             failed call changes nothing, unless the comment of the function says otherwise. A call whose argument n is 0
 *             does nothing. The following errors are possible in any call: NULL_ARGUMENT, STRUCT_SIZE, INVALID_ARGUMENT
 *             (negative n or capacity), UNSUPPORTED (unknown flag bits, unknown fields that are not zero), DEVICE (stream),
 *             DEVICE_FAILED (the driver of a GPU), OUT_OF_MEMORY, INTERNAL. The comment of a function may leave out these
 *             errors. If the function has further causes for one of them, its comment lists the error.
 *   Threads   "Threads: any" in a comment means that any thread may make the call. The library serialises calls that change
 *             the same cache. While kvc_cache_destroy runs, no other call on that cache may run. While kvc_context_destroy
 *             runs, no other call with that context as its argument may run. Otherwise the behaviour is undefined.
 *   Blocking  Only these calls wait for I/O: kvc_seq_save, kvc_seq_load, kvc_cache_add_tier, and kvc_cache_destroy if it
 *             closes a tier (section 16) or a transport (section 17). A call may wait for short work of other calls on its
 *             cache: copies of partial pages and of tree nodes, and the checks of kvc_cache_check_invariants. On the CPU, a
 *             call that computes (such as attend) returns when its result is written. If the context has worker threads of
 *             its own, at most eight such calls run in it at the same time, and a ninth waits until one of them is done. A
 *             call that does not compute never waits for a call that computes.
 *   Streams   `stream` is a stream of the device (CUDA: CUstream; NULL is the default stream). On the CPU it must be NULL.
 *             A call with a stream enqueues work, and does not wait until the work is done. Only kvc_seq_save waits. The
 *             library orders this work after the earlier work of the same cache on all streams. All calls of a forward use
 *             the stream that was given to kvc_forward_begin. Memory that the calls read or write must stay valid until the
 *             stream has done the work of these calls.
 *   fork()    The child of fork() may use a cache if no thread was inside a call on the cache during fork(). The child may
 *             make stateless calls (section 10) and use plans (section 11) if no thread was inside a call on the context
 *             during fork(). The child has its own copy of the cache. So each of the two processes ends or aborts its own
 *             open forwards, and releases its own exports. The first compute call of the child starts new worker threads.
 *             Behaviour is undefined if a call uses memory that both processes map as shared. It is also undefined in
 *             children of clone() or _Fork(), because clone() and _Fork() run no fork handlers.
 *   NULL      A pointer argument must not be NULL unless it is marked "nullable". The words after "nullable:" say what NULL
 *             means.
 *   Else 0    "FLAG: meaning. Else 0" means that the field must be 0 without the flag. A kind of layer or group may stand
 *             before the colon instead of a flag, as in "recurrent: meaning. Else 0". Then the field must be 0 for all other
 *             kinds.
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
#if UINTPTR_MAX != 0xffffffffffffffff
#error "kvcache.h supports platforms with 64-bit pointers only"
#endif
#endif

#if defined(__GNUC__) && !defined(_WIN32) /* on Windows, the library has a list of its exports */
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

/* The ABI that this header describes: (major << 16) | minor. While major is 0, every minor release may change the ABI. */
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
  KVC_ERROR_STRUCT_SIZE = 3,       /* struct_size is smaller than in the first release, or differs between elements of an
                                      array */
  KVC_ERROR_UNSUPPORTED = 4,       /* the call is valid, but this library or backend cannot do it */
  KVC_ERROR_DTYPE = 5,             /* a tensor has a wrong dtype */
  KVC_ERROR_DEVICE = 6,            /* a tensor is on a wrong device, or the device does not have the stream */
  KVC_ERROR_RANK = 7,              /* a tensor has a wrong number of dimensions */
  KVC_ERROR_SHAPE = 8,             /* a tensor has a wrong shape */
  KVC_ERROR_STRIDE = 9,            /* a tensor has wrong strides or a wrong alignment */
  KVC_ERROR_OUT_OF_RANGE = 10,     /* a layer, group, position or length does not exist */
  KVC_ERROR_STALE_ID = 11,         /* a sequence or forward no longer exists, or belongs to another cache */
  KVC_ERROR_DUPLICATE = 12,        /* one call names the same sequence twice */
  KVC_ERROR_EARLIER_CALL = 13,     /* KVC_CONTEXT_VALIDATE: the device found a bad index in a tensor of an earlier call. The
                                      present call did nothing */
  /* Capacity: the program made no mistake. */
  KVC_ERROR_OUT_OF_PAGES = 100,          /* error->required and error->available are numbers of pages in group
                                            error->group */
  KVC_ERROR_OUT_OF_MEMORY = 101,         /* the host or the device refused memory */
  KVC_ERROR_TOO_MANY_SEQUENCES = 102,    /* error->required and error->available are numbers of sequences */
  KVC_ERROR_TOO_MANY_FORWARDS = 103,     /* error->required and error->available are numbers of open forwards */
  KVC_ERROR_BATCH_TOO_LARGE = 104,       /* error->required and error->available are numbers of tokens, or of rows, of a
                                            batch */
  KVC_ERROR_BUFFER_TOO_SMALL = 105,      /* error->required and error->available are numbers of elements of an output
                                            array */
  KVC_ERROR_TREE_TOO_LARGE = 106,        /* error->required and error->available are numbers of uncommitted tree nodes of a
                                            sequence */
  /* State. */
  KVC_ERROR_BUSY = 200,       /* the sequence is in an open forward or a kvc_job, or another thread uses the forward */
  KVC_ERROR_ORDER = 201,      /* the calls came in a wrong order, or a call that is allowed only once came twice */
  KVC_ERROR_CANCELLED = 202,  /* the forward was cancelled, so only kvc_forward_abort is possible. Or a suspend or resume was
                                 cancelled (kvc_job) */
  KVC_ERROR_EVICTED = 203,    /* the needed keys were freed when they left a window, or the needed recurrent state is not
                                 kept */
  KVC_ERROR_UNCOMMITTED = 204, /* the sequence has an uncommitted tree. Call kvc_seq_commit first */
  KVC_ERROR_STALE = 205,      /* the caller gave the generation (number) of one kvc_plan_build, but another build made the
                                 tables of the kvc_plan. Or the plan has no tables, because no build was made or the last
                                 one failed. Or no forward is open in the graph */
  KVC_ERROR_SUSPENDED = 206,  /* the sequence is suspended. Call kvc_seq_resume first */
  KVC_ERROR_PENDING = 207,    /* a prefix is still being loaded (kvc_prefix_attach_pending). In a forward, error->index is
                                 the layer, and error->required and error->available are numbers of pages: how many the
                                 layer needs, and how many of these it has */
  /* Device. */
  KVC_ERROR_DEVICE_UNAVAILABLE = 300, /* no backend, driver or device of that type was found */
  KVC_ERROR_DEVICE_FAILED = 301,      /* the driver reported an error. The message names the error and the call */
  /* Data and I/O. */
  KVC_ERROR_IO = 400,      /* an operation on a file, tier or transport failed, or a write or read callback of the caller
                              reported a failure. The message says why */
  KVC_ERROR_CORRUPT = 401, /* stored bytes are damaged or cut off, or were not written by this library */
  KVC_ERROR_LAYOUT = 402,  /* stored bytes are undamaged, but belong to another model, dtype or layout. The message has
                              both layouts */
  /* Internal. */
  KVC_ERROR_INTERNAL = 900 /* a bug of the library. kvc_cache_check_invariants reports this code too */
};

/* Returns whether a status is in the capacity band. If it is, the call may succeed later, or with less work. */
static inline int kvc_status_is_capacity(kvc_status status) { return status >= 100 && status < 200; }

/* Says which error occurred, in numbers and in words. The caller owns the struct. The library writes to the struct only on
 * failure. The layout of the struct never changes. */
typedef struct kvc_error {
  uint32_t struct_size; /* sizeof(kvc_error); KVC_ERROR_INIT sets it */
  kvc_status code;      /* the returned status */
  int64_t index;        /* the row, layer or array element that has the error; -1 = none */
  int64_t required;     /* capacity errors, and errors whose comment names this field: what the call needs; else 0 */
  int64_t available;    /* the same errors: what is available; else 0 */
  int64_t group;        /* the layer group that has the error; -1 = none */
  char message[472];    /* "function: error with the values"; NUL-terminated ASCII */
} kvc_error;

#define KVC_ERROR_INIT \
  { (uint32_t)sizeof(kvc_error), 0, -1, 0, 0, -1, "" }

/* Sets an existing kvc_error to KVC_ERROR_INIT. The library cannot write to a kvc_error whose struct_size is not
 * sizeof(kvc_error). A call that is given such a kvc_error returns KVC_ERROR_STRUCT_SIZE and does nothing. */
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
 * Rules for callbacks of the host program (parallel_for and log): several threads may call them at the same time. The
 * library holds no lock while it calls them. The callbacks must not throw an exception or call longjmp, and must not destroy
 * the context or a cache. After kvc_context_destroy, and kvc_cache_destroy for every cache in the context, the library no
 * longer calls the callbacks. The deleters of exported tensors never call them. */
typedef void (*kvc_parallel_item_fn)(void *arg, int64_t index);

/* A callback of the host program that computes n items. The callback calls item(arg, i) once for each i in [0, n), and
 * returns when all calls have returned. The calls may come in any order and on any threads, even all on one thread. Items
 * never wait for each other. */
typedef void (*kvc_parallel_for_fn)(void *user, int64_t n, kvc_parallel_item_fn item, void *arg);

enum kvc_context_flags {
  /* Validation mode. Use it in tests, or to find a call that wrote outside of its pages. The host does not read the
   * values of some index tensors (sections 10 and 11): only a GPU reads them. In this mode, the GPU checks all values of
   * these tensors, page ids included. It skips a row or token that has a bad value. If a kvc_plan_build has a bad value, the
   * GPU skips the whole build.
   *
   * The device keeps the first bad value since the last report. This value is reported once, as EARLIER_CALL. The report
   * comes from kvc_context_check, or from the next call on this context that is given index tensors. The report does not
   * wait for the device. The message names the call, the tensor, the row and the value, and error->index is the row. The
   * reporting call does nothing else and may be repeated. But a kvc_plan_build that reports also invalidates its plan, as
   * every failed build does. Replays of captured calls are checked when they run.
   *
   * Validation costs one pass over the page ids in use. The flag has no effect on values that the host reads (on the CPU,
   * all values), because the call itself always checks these values. */
  KVC_CONTEXT_VALIDATE = 1
};

enum kvc_log_level { KVC_LOG_WARNING = 1, KVC_LOG_INFO = 2, KVC_LOG_DEBUG = 3 };

/* A callback that writes a log message. The library calls it on the thread that called the library. The callback borrows
 * `message`. */
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
                                       thread pool of the host program through this callback */
  void *parallel_for_user; /* the first argument of parallel_for */
  kvc_log_fn log; /* nullable: no log */
  void *log_user; /* the first argument of log */
  const char *backend; /* nullable: the default backend of the device type. The CPU's backend is built in. The CUDA backend
                          is the file that the environment variable KVCACHE_CUDA_BACKEND names. If this variable is not set,
                          the CUDA backend is libkvcache_cuda.so in the directory of this library. If `backend` is not NULL,
                          it is the path of a backend's file (kvcache_backend.h). The file stays loaded */
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
 * Errors: INVALID_ARGUMENT, UNSUPPORTED (simd, flags, reserved), DEVICE_FAILED, OUT_OF_MEMORY, DEVICE_UNAVAILABLE (no such
 * file, a file for another version of kvcache_backend.h, no driver, no device, or a device that the backend was not built
 * for; the message says which).
 * Threads: any. Since 0.1. */
KVC_API kvc_status kvc_context_create(const kvc_context_config *config, kvc_context **context, kvc_error *error);

/* Releases the caller's reference to a context. A cache keeps a reference to its context. NULL does nothing.
 * The last reference may be released by this function, by kvc_cache_destroy, or by the deleter of an exported tensor. The
 * call that releases it also joins the worker threads of the context, which are idle then. Threads: any, once. Since 0.1. */
KVC_API void kvc_context_destroy(kvc_context *context);

/* Describes the context as one JSON object: device, device_id, threads, host_parallel_for, simd (in use), simd_available.
 *   buffer    nullable if capacity is 0; [capacity] bytes, NUL-terminated on success
 *   length    nullable: bytes of the text without its NUL, filled also on BUFFER_TOO_SMALL (error->required counts the NUL
 *             too)
 * Errors: BUFFER_TOO_SMALL (never for capacity 0). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_context_describe(kvc_context *context, char *buffer, int64_t capacity, int64_t *length,
                                        kvc_error *error);

/* In a context with KVC_CONTEXT_VALIDATE, reports a bad index that the device has found. Engines that only replay graphs
 * need this call, because a replay reports nothing. Tests should call it at their end:
 *
 *   cudaStreamSynchronize(stream);                           // without this line, the check covers only work that is done
 *   if (kvc_context_check(context, &error)) return report(error.message);
 *   // an earlier kvc_append_slots, row 3: slot_mapping[3] is 4096, not in 0..4095
 *
 * The call reads one word of memory, and does not wait for the device.
 * Errors: EARLIER_CALL (a bad index was found; the next check does not report it again). Threads: any. Since 0.1. */
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
  KVC_ROPE_ON_READ = 2   /* k is stored, exported and imported without rotation. attend rotates q as in KVC_ROPE_ON_APPEND,
                            and rotates each key in float32 when it reads the key */
};

/* How a scaling for long contexts changes f(i) of kvc_rope_mode. */
enum kvc_rope_scaling_kind {
  KVC_ROPE_SCALING_NONE = 0,
  KVC_ROPE_SCALING_LINEAR = 1,  /* f(i) / factor (position interpolation) */
  KVC_ROPE_SCALING_LLAMA3 = 2,  /* pairs that make at most low_freq_factor full rotations over original_max_position tokens
                                   have f(i) / factor. Pairs that make at least high_freq_factor rotations have f(i). Pairs
                                   between these bounds have a blend of both */
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
  double factor;                 /* linear, llama3, yarn: 1..1e6. longrope: 1..1e6, used only in the default of
                                    attention_factor; 0 = 1 */
  double low_freq_factor;        /* llama3: > 0 */
  double high_freq_factor;       /* llama3: > low_freq_factor */
  double beta_fast;              /* yarn: > 0, usually above beta_slow; 0 = the default 32 */
  double beta_slow;              /* yarn: > 0; 0 = the default 1 */
  double attention_factor;       /* yarn, longrope: > 0. cos and sin are multiplied by this factor, for q and for k. 0 = the
                                    default of the kind */
  double mscale;                 /* yarn: mscale and mscale_all_dim together set the default of attention_factor, as in
                                    DeepSeek. If one of them is 0, the other has no effect */
  double mscale_all_dim;         /* yarn: see mscale. This field does not change softmax_scale. The caller sets softmax_scale
                                    (docs/reference/rope.md) */
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
  /* The layer stores K and no V. Its keys are index keys: by them, kvc_forward_select chooses the tokens to which queries
   * attend in other layers. No query attends to index keys. The layer may be in any group that is neither recurrent nor
   * cross. The index keys have the same page ids as the K and V of the other layers of the group. v_head_dim and latent_dim
   * must be 0. v_scales, kv_storage and v_storage must be NULL, and k_storage may be given. rope_mode must not be
   * KVC_ROPE_ON_READ. num_q_heads is the number of index heads */
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
  double fill;       /* the value of all elements in the state of an empty sequence. A float dtype permits +infinity,
                        -infinity, and every number that is still finite after rounding to the dtype, but no NaN. An integer
                        dtype permits every whole number from -2^53 to 2^53 that the dtype can represent */
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
                            A quantised type stores an element x as x / scale, rounded to the nearest value of the type (ties
                            to even). If |x / scale| is above the largest finite value of the type, that value is stored,
                            with the sign of x. NaN is stored as NaN if the type has NaN. An element is read as
                            stored * scale. (uint4 has other rules: docs/reference/formats.md.)
                            int8: each row of one token and one head has its own scale, which is stored in the page. The
                            scale is amax / 127, where amax is the largest magnitude in the row. No stored element is -128.
                            If amax / 127 rounds to 0 in float32, the row has scale 1 and is read as zeros. A row that holds
                            an infinity or a NaN is read as NaN */
  int32_t rope_mode;     /* KVC_ROPE_* */
  int32_t rope_dim;      /* number of rotated dims, even; rope_offset + rope_dim <= head_dim; 0 = head_dim - rope_offset */
  int32_t rope_offset;   /* first rotated dim; MLA: at least latent_dim, and 0 = latent_dim */
  uint32_t flags;        /* KVC_LAYER_* */
  int32_t kv_layer;      /* 0 = the layer stores its own K and V. 1 + i = the layer stores nothing, and reads the K and V of
                            layer i, which must be an earlier layer of the same group. Call attend without k and v, after the
                            append of layer i. group, num_kv_heads, dims, dtype and rope_* must be equal in both layers. Give
                            storage and scales in layer i only */
  double rope_theta;     /* base of the angles, 1e-30..1e30 (yarn: > 1); 0 = 10000 */
  const kvc_rope_scaling *rope_scaling; /* borrowed; nullable: none */
  double softmax_scale;  /* 1e-30..1e30; 0 = head_dim^-0.5. MLA: must be set, because the scale does not follow from head_dim
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
                                           the library can lay out the scales in their pages. Some row formats
                                           (kvc_row_format) have scales after the rows of a page. With such a format, an MLA
                                           layer or a layer with KVC_LAYER_KEYS_ONLY can have a k_storage of [>= pages, bytes
                                           of a page] uint8. Other layers with such a format cannot have a storage of the
                                           caller */
  const float *k_scales; /* float8, float4: borrowed; [num_scales], each 1e-20..1e20; nullable if num_scales is 0 */
  const float *v_scales; /* the same for V. MLA: NULL, because V is part of K */
  int32_t num_scales;    /* float8, float4: 0 = every scale is 1; 1 = one scale for all kv heads; num_kv_heads = one scale
                            for each kv head. Other dtypes: 0 */
  int32_t num_states;    /* recurrent: number of state tensors of the layer, 1..16. Else 0 */
  const kvc_state_config *states; /* recurrent: borrowed; [num_states], the elements are states[0].struct_size bytes apart.
                                     Else NULL. In the config of a recurrent layer, all fields after struct_size must be 0,
                                     except group, num_states and states */
  int32_t latent_dim;    /* MLA: the first latent_dim dims of a row are also V; 1..head_dim. Else 0 */
  int32_t total_kv_heads; /* number of kv heads of the layer in all ranks of tensor parallelism together
                             (kvc_cache_config.tp_size), at most 65536; 0 = num_kv_heads * tp_size (MLA: 1). Let N be this
                             number, or the default. If N >= tp_size, num_kv_heads must be N / tp_size, and rank r has the
                             heads [r * num_kv_heads, (r + 1) * num_kv_heads). If N < tp_size, num_kv_heads must be 1, and
                             each head is stored by tp_size / N consecutive ranks. recurrent: 0 */
  int32_t row_format;    /* KVC_ROW_FORMAT_*; 0 = all dims have dtype. recurrent: 0 */
  uint32_t reserved;     /* 0 */
} kvc_layer_config;

static inline void kvc_layer_config_init(kvc_layer_config *config) {
  kvc_layer_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

/* How a layer stores its rows (kvc_layer_config.row_format). docs/reference/formats.md has the bytes of each format, and
 * says how views, exports and storage of the caller look. A layer with a row_format other than 0 must leave
 * dtype at {0,0,0}, or set it to float32. The row format replaces this dtype. In these formats, blocks of neighbouring dims
 * have a scale, which append computes. If one dim of a block is infinite or NaN, the whole block is read as NaN. */
enum kvc_row_format {
  KVC_ROW_FORMAT_DTYPE = 0,      /* all dims have the type kvc_layer_config.dtype */
  KVC_ROW_FORMAT_FP8_DS_MLA = 1, /* the row of DeepSeek-V3.2, as vLLM ("fp8_ds_mla") and FlashMLA store it. It has 656 bytes:
                                    512 latent dims as float8_e4m3fn, then 4 float32 scales of 128 latent dims each, then 64
                                    rotary dims as bfloat16. For MLA groups with head_dim 576 and latent_dim 512 */
  KVC_ROW_FORMAT_FP8_DS_V4 = 2,  /* the row of DeepSeek-V4, as vLLM and FlashMLA store it. It has 576 bytes: 448 dims as
                                    float8_e4m3fn, then 64 rotary dims as bfloat16. The rows of a page are followed by 8
                                    bytes for each row: 7 powers of two, each the scale of 64 dims, and a zero. For MLA
                                    groups with head_dim 512 and latent_dim 512: V is the whole row */
  KVC_ROW_FORMAT_MXFP4 = 3,      /* float4_e2m1fn. The rows of a page are followed by the scales of each row: a power of two
                                    (float8_e8m0fnu) for each 32 dims. Index keys of DeepSeek-V4: 68 bytes for 128 dims */
  KVC_ROW_FORMAT_MXFP8 = 4,      /* the same with float8_e4m3fn. Rows of DeepSeek-V4.1: 528 bytes for 512 dims */
  KVC_ROW_FORMAT_FP8_BLOCKS = 5, /* float8_e4m3fn. The rows of a page are followed by the scales of each row: a float32 for
                                    each 128 dims, which append chooses as a power of two. Index keys of DeepSeek-V3.2: 132
                                    bytes for 128 dims */
  KVC_ROW_FORMAT_NVFP4 = 6,      /* float4_e2m1fn. The rows of a page are followed by the scales of each row: a float8_e4m3fn
                                    for each 16 dims. Compressed rows of DeepSeek-V4.1: 288 bytes for 512 dims */
  KVC_ROW_FORMAT_NVFP4_DS_MLA = 7 /* the row of DeepSeek-V3.2 with 352 bytes: 512 latent dims as float4_e2m1fn, then 64
                                     rotary dims as float8_e4m3fn without a scale, then 32 float8_e4m3fn, the scales of 16
                                     latent dims each. The scale of block s is byte 320 + 8 * (s % 4) + s / 4 of the row. For
                                     MLA groups with head_dim 576 and latent_dim 512 */
};

/* The kind of row of a group says what the group stores for a token. A group also has a visibility (kvc_visibility). Every
 * kind of row can be combined with every visibility, except that KVC_ROW_STATE needs KVC_VISIBLE_ALL. */
enum kvc_row {
  KVC_ROW_KV = 0,     /* K and V */
  KVC_ROW_LATENT = 1, /* multi-head latent attention (MLA): one row [latent | rotary] for each token, which all heads share.
                         K is the whole row (num_kv_heads is 1, head_dim is the width of the row). V is the first latent_dim
                         dims of the row */
  KVC_ROW_STATE = 2   /* recurrent: the group stores no keys. Each layer of the group keeps state tensors of fixed size for a
                         sequence. A forward loads and stores these tensors (kvc_forward_load_state). A page holds the states
                         of all layers of the group. Needs KVC_VISIBLE_ALL */
};

/* The visibility of a group says which keys its queries see. */
enum kvc_visibility {
  KVC_VISIBLE_ALL = 0,    /* a full group: a query at position p sees keys 0..p. Memory grows with the sequence */
  KVC_VISIBLE_WINDOW = 1, /* a sliding group: a query at position p sees keys p-w+1..p, where w = window_tokens. A page is
                             freed at the end of a forward when all tokens of the page lie before the window and the rollback
                             margin */
  KVC_VISIBLE_CHUNK = 2,  /* a chunked group: a query at position p sees the keys j <= p of the query's own chunk. These are
                             the keys with j / c == p / c (integer division), where c = chunk_tokens. A page is freed at the
                             end of a forward when all tokens of the page lie before the chunk and the rollback margin */
  KVC_VISIBLE_ENCODER = 3 /* a cross group: each sequence has an encoder sequence (image, audio, source text). A query sees
                             all keys of the encoder sequence that belongs to the query's sequence. The encoder sequence has
                             its own length. Its tokens are appended in separate forwards (kvc_batch.encoder_group). A fork
                             shares the encoder sequence with its parent, and truncate does not change the encoder sequence.
                             Layers of the group must have KVC_ROPE_NONE */
};

/* Returns how many compressed rows one sequence of a batch completes in a step, in a group with tokens_per_row
 * r > 1 (DeepSeek-V4, GLM-5.3, Qwen4).
 *
 * Such a group stores one row for r tokens. The row is called a compressed row. A sequence of L tokens has L / r rows
 * (integer division). Row w stands for the tokens [w r, (w + 1) r). The row closes in the step that appends the last of
 * these tokens. A query at position p sees row w if (w + 1) r <= p + 1.
 *
 * The caller computes the rows. k and v of append and attend have only the rows that close in the step, in the order of the
 * batch. q and outputs have T rows, as in other groups. A layer needs no append in a step in which no row closes. Entries of
 * lists (kvc_attend_args.indices, kvc_forward_select) are indices of compressed rows instead of tokens.
 *
 *   groups[1].row = KVC_ROW_LATENT;  groups[1].tokens_per_row = 4;
 *   for (i = 0, rows = 0; i < n; i++) rows += kvc_rows_closed(lengths[i], append_lengths[i], 4);
 *   args.q = &q;  args.k = &closed;  args.out = &out;  args.lse = &lse;             // q [T, Hq, D], closed [rows, 1, D]
 *   kvc_forward_attend(cache, step, layer, &args, &error);
 *
 * Page lists, lengths, truncate, fork and prefixes count tokens, as in other groups. A page has the rows of page_size
 * tokens. So r must divide page_size, and pools and storages have page_size / r slots for each page.
 *
 * When tokens are dropped, their rows are dropped too. A dropped row closes again when a later step appends its tokens
 * again. Then the caller must compute the row again from the inputs of the row, such as the keys of single tokens. A layer
 * of a sliding group can store these inputs. The window_tokens of the sliding group is the number of tokens from which one
 * row is computed: r, or r + o if the row is computed from its r tokens and the o tokens before them. With such a group,
 * fork and truncate return EVICTED at a position where these inputs are no longer stored. docs/reference/rows.md has a
 * program.
 *
 * A group with compressed rows needs KVC_VISIBLE_ALL. The `row` of the group must be KVC_ROW_KV or KVC_ROW_LATENT. Its
 * layers must have KVC_ROPE_NONE. The cache must have KVC_STORAGE_OWN, and must not have KVC_CACHE_STREAMING. In such a
 * cache, graphs, kvc_seq_import, and steps with tree_parents or span_ids are UNSUPPORTED. For the layers of such a group,
 * PAST, SELF, alibi_slopes, rel_bias, w_uk and kvc_forward_tables are UNSUPPORTED. */
static inline int64_t kvc_rows_closed(int64_t length, int64_t append_length, int64_t tokens_per_row) {
  return (length + append_length) / tokens_per_row - length / tokens_per_row;
}

/* A group of layers. Every group must have at least one layer (else INVALID_ARGUMENT). A pipeline stage with a cache of its
 * own configures only the layers that it computes, and the groups of these layers. */
typedef struct kvc_group_config {
  uint32_t struct_size;
  int32_t row;            /* KVC_ROW_* */
  int32_t visibility;     /* KVC_VISIBLE_* */
  int32_t tokens_per_row; /* r > 1: the group stores one row for r tokens, see kvc_rows_closed; 0 = 1 */
  int64_t window_tokens;  /* KVC_VISIBLE_WINDOW: w, 1..2^30. Else 0 */
  int64_t chunk_tokens;   /* KVC_VISIBLE_CHUNK: c, 1..2^30, not necessarily a multiple of the page size. Else 0 */
  int64_t num_pages;      /* number of pages in the pools of this group, below 2^31. 0 = the number follows from the cache's
                             capacity; in a recurrent group, it follows from other limits instead: it is
                             max_sequences * (2 + max_checkpoints + n), plus prefix_checkpoints if the cache has a prefix
                             index. If max_draft_states is 0, n is 0. Otherwise n is the smaller of max_draft_states + 1 and
                             max_tree_nodes - 1. In a recurrent group, a sequence takes one page, one more page in an open
                             forward, and one page for each checkpoint. An uncommitted tree takes one page for the state
                             before the tree, unless this state is a checkpoint. It also takes one page for each node whose
                             state is kept, except for the last node: the sequence's own page has the state of that node */
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
                                partial results of each query: one over the sinks, and one over the window. The flag needs a
                                full group */
  /* The next two flags are for comparisons and tests. Set at most one of them. In a forward, several rows may begin with the
   * same pages, for example forks of one sequence. Such rows can attend to the common pages together, so that the pages are
   * read only once. For each row, the result over the common pages is then merged with the result over the other pages.
   * Without either flag, a cost model decides for each common prefix. Rows attend together only in groups without a window
   * or chunk. The rows must also have few new tokens and no streaming window. With and without sharing, the results are
   * equal within rounding. kvc_forward_describe counts the common prefixes to which rows attend together as "prefix groups".
   * From: Hydragen; FlashInfer's cascade. */
  KVC_CACHE_NO_PREFIX_SHARING = 4,  /* rows never attend together: each row reads all of its keys */
  KVC_CACHE_SHARE_ALL_PREFIXES = 8, /* rows attend together to all pages that they have in common */
  /* On one SIMD target, the bits of an output do not depend on the batch, the threads, the page ids or forks. They also do
   * not depend on how tokens are divided into steps. One kernel computes a partial result for every 1,024 keys, and these
   * results are merged from left to right. Rows do not attend to common pages together. Decoding takes about twice as long.
   * benchmarks/results/README.md lists figures. */
  KVC_CACHE_DETERMINISTIC = 16,
  /* The cache has a prefix index. Published tokens can then be found even after their sequence is removed (section 12). */
  KVC_CACHE_PREFIX_INDEX = 32,
  /* When a sequence takes a new page, the K and V of the page are set to zero before any other work reads the page. (In
   * spite of the flag's name, this does not happen when a page is freed.) So no kernel, not even a kernel of the engine,
   * reads bytes of another sequence in a new page. The cost is one write of each new page. The flag needs pools
   * (KVC_STORAGE_OWN) */
  KVC_CACHE_ZERO_ON_FREE = 64
};

/* A prefix is idle if only the prefix index refers to its pages. The policy says which idle prefix the index evicts first,
 * among idle prefixes of equal priority. If a longer prefix continues a shorter prefix, the longer prefix is evicted first.
 * benchmarks/results/README.md has hit rates of both policies. */
enum kvc_prefix_policy {
  KVC_PREFIX_POLICY_REUSE = 0, /* the prefix with the smallest t + n * a / 2. t is the time of the prefix's last use. n is
                                  the number of its uses after the first, at most 3. a is the mean time from the last use of
                                  a prefix to its eviction, over recently evicted prefixes. So a prefix that was used only
                                  once is evicted earlier than a prefix that is used again and again */
  KVC_PREFIX_POLICY_LRU = 1    /* the least recently used prefix */
};

enum kvc_storage {
  KVC_STORAGE_OWN = 0, /* the cache has a page pool for every layer. The pool is in memory of the cache or of the caller
                          (kvc_layer_config.kv_storage) */
  KVC_STORAGE_NONE = 1 /* the cache has tables only, for engines with pools and kernels of their own. Sequences, pages and
                          steps work as usual, but the cache stores no K and V. The engine must copy some tokens from page to
                          page: kvc_cache_take_copies returns these copies. append, attend, exports and imports are
                          UNSUPPORTED. The layer configs say how many bytes a page has, and one layer for each group is
                          enough. The cache does store recurrent states, so kvc_forward_load_state works */
};

typedef struct kvc_cache_config {
  uint32_t struct_size;
  uint32_t flags;                 /* KVC_CACHE_* */
  const kvc_layer_config *layers; /* borrowed; [num_layers], the elements are layers[0].struct_size bytes apart */
  const kvc_group_config *groups; /* borrowed; [num_groups], the elements are groups[0].struct_size bytes apart; nullable:
                                     one full group */
  int32_t num_layers;             /* 1..4096 */
  int32_t num_groups;             /* 1..64; 0 if groups is NULL */
  int32_t page_size;              /* tokens of a page, 1..65536; 0 = 16 */
  int32_t max_sequences;          /* 1..1048575; 0 = 64 */
  int32_t max_batch_tokens;       /* tokens of one forward, 1..1048576; 0 = 2048 */
  int32_t max_open_forwards;      /* 1..64; 0 = 2 */
  int64_t rollback_tokens;        /* the rollback margin: how many tokens are kept before every window (streaming windows
                                     included) and before every chunk. truncate and fork can then drop up to this many
                                     tokens, such as rejected drafts. At most 2^30; 0 = max_tree_nodes */
  /* Capacity: set exactly one of the next three fields. (None is needed if every group that is not recurrent sets
   * num_pages.) Full and cross groups get this capacity. A sliding or chunked group gets max_sequences times the peak of one
   * sequence, but at most the capacity. The peak is the window or chunk, plus rollback_tokens, plus one page, plus the
   * larger of max_batch_tokens and max_tree_nodes. */
  int64_t capacity_tokens;        /* number of tokens that a full group can store, rounded up to pages */
  int64_t capacity_pages;         /* number of pages of a full group */
  int64_t capacity_bytes;         /* largest size in bytes of all pools of all layers together */
  int32_t max_tree_nodes;         /* largest number of uncommitted tree nodes of a sequence, 1..1024; 0 = 64 */
  int32_t max_checkpoints;        /* cache with a recurrent group: the largest number of checkpoints of one sequence,
                                     1..1024; 0 = 1. Else 0 */
  int32_t storage;                /* KVC_STORAGE_* */
  int32_t prefix_policy;          /* KVC_CACHE_PREFIX_INDEX: KVC_PREFIX_POLICY_*. Else 0 */
  int64_t prefix_pages;           /* KVC_CACHE_PREFIX_INDEX: the largest number of pages that the index can hold in each
                                     group, below 2^31, without those of recurrent groups. 0 = the number of pages of the
                                     largest group; if all groups are recurrent, 1,024 * prefix_checkpoints. Else 0 */
  int64_t prefix_checkpoints;     /* KVC_CACHE_PREFIX_INDEX with a recurrent group: the largest number of positions whose
                                     states the index can hold, below 2^31; 0 = max_sequences. A recurrent group whose
                                     num_pages is 0 gets this many pages in addition. Else 0 */
  const uint8_t *fingerprint;     /* borrowed; nullable: pages of this cache have no page keys (section 13), so there are
                                     no events and no tiers. [32]: identifies the model (weights, quantisation, tokenizer),
                                     as in kvc_page_keys_args */
  int64_t events_capacity;        /* KVC_CACHE_PREFIX_INDEX and a fingerprint: number of events that the cache keeps until
                                     they are read (section 14), below 2^31; 0 = none. Else 0 */
  int32_t max_draft_states;       /* cache with a recurrent group: the first max_draft_states nodes of an uncommitted tree
                                     keep their recurrent states, so that any of these nodes can be committed; 0..63, at most
                                     max_tree_nodes. Else 0 */
  int32_t tp_size;                /* number of ranks of tensor parallelism, 1..4096; 0 = 1. Each rank has a cache of its own,
                                     with a share of the kv heads of each layer. A rank does not find the pages of another
                                     rank in tiers, even if both have the same fingerprint. A transfer (section 17) may go to
                                     caches with another tp_size */
  int32_t tp_rank;                /* rank of this cache, 0..tp_size - 1 */
  uint32_t reserved;              /* 0 */
  int64_t events_tier_pages;      /* events_capacity above 0: number of pages in tiers of which events tell (section 14),
                                     below 2^31; 0 = events tell only of the pools. Else 0 */
} kvc_cache_config;

static inline void kvc_cache_config_init(kvc_cache_config *config) {
  kvc_cache_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

/* The memory that a cache with a given config would need, or that one group of this cache would need. */
typedef struct kvc_estimate {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t num_pages;         /* pages of the group, or of all groups together */
  int64_t page_bytes;        /* bytes of one page in all layers of the group; 0 in an estimate of the whole cache */
  int64_t token_bytes;       /* bytes that one stored token takes in all layers, or in all layers of the group */
  int64_t storage_bytes;     /* bytes of pools; with KVC_STORAGE_NONE, only the bytes of the pools of recurrent groups */
  int64_t bookkeeping_bytes; /* bytes of host memory for page tables and sequences */
  int64_t scratch_bytes;     /* bytes of host and device memory for the largest batches; 0 in an estimate of one group */
} kvc_estimate;

static inline void kvc_estimate_init(kvc_estimate *estimate) {
  kvc_estimate zero = KVC_ZERO_STRUCT;
  *estimate = zero;
  estimate->struct_size = (uint32_t)sizeof(zero);
}

/* Computes how much memory kvc_cache_create would allocate, or returns the error that kvc_cache_create would return. The
 * call allocates no pool and adopts nothing.
 *   group     group index, or -1 for the whole cache
 *   estimate  filled
 * Errors: as kvc_cache_create, except OUT_OF_MEMORY for pools. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_estimate(kvc_context *context, const kvc_cache_config *config, int32_t group,
                                      kvc_estimate *estimate, kvc_error *error);

/* Creates a cache. The call reserves the pools of all layers, and the bookkeeping of max_sequences sequences and
 * max_open_forwards forwards. A graph takes memory of its own (kvc_graph_create).
 *   config   borrowed, arrays included; storages in it are adopted
 *   cache    returned; released by kvc_cache_destroy
 * A pool that the cache allocates holds zeros until K and V are stored in it.
 * Errors:
 *   INVALID_ARGUMENT, OUT_OF_RANGE, UNSUPPORTED, DTYPE, DEVICE, RANK, SHAPE, STRIDE
 *                  error->index is the index of the layer or group. For a group, error->group is the same index.
 *                  For a layer, error->group is -1
 *   DUPLICATE      a storage is given twice, or two storages overlap; error->index is the layer
 *   STRUCT_SIZE    error->index is the element
 *   OUT_OF_MEMORY  also: the pools of all layers together exceed the memory plus swap of the host; required and available
 *                  are in bytes
 * Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_create(kvc_context *context, const kvc_cache_config *config, kvc_cache **cache,
                                    kvc_error *error);

/* Aborts open forwards and releases the cache. A pool stays allocated as long as an exported view of the pool exists. NULL
 * does nothing. No other call on the cache may run at the same time.
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

/* Adds n empty sequences. The call takes no page.
 *   sequences  [n], filled
 * Errors: TOO_MANY_SEQUENCES. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_add(kvc_cache *cache, int64_t n, kvc_seq *sequences, kvc_error *error);

/* Removes n sequences, and frees every page that nothing else holds: no other sequence, prefix index, pin, save or load. If
 * a sequence is in an open forward, its id becomes stale at once, and its pages are freed when the forward closes.
 *   sequences  [n], distinct, any order
 * Errors (nothing removed): STALE_ID, DUPLICATE; error->index is the index in sequences. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_remove(kvc_cache *cache, int64_t n, const kvc_seq *sequences, kvc_error *error);

/* Makes n forks of sequences. Child i has the first positions[i] tokens of parents[i]. The child shares all whole pages of
 * these tokens. If the last page of these tokens is partial, the child gets a copy of this page. A parent must not have an
 * uncommitted tree. The call makes all children, or none.
 *   parents    [n]; a parent may occur several times
 *   positions  nullable: every child is as long as its parent. [n]; -1 = the length of the parent, 0 = an empty child
 *   children   [n], filled
 *   stream     the device's stream for page copies; NULL on the CPU
 * The cost of a child grows with the logarithm of its length.
 * Errors: STALE_ID, BUSY, UNCOMMITTED, OUT_OF_RANGE, EVICTED (see kvc_seq_nearest_position), TOO_MANY_SEQUENCES,
 * OUT_OF_PAGES (as kvc_forward_begin; required and available are the numbers for all children together), ORDER
 * (KVC_STORAGE_NONE: the engine must take queued copies first, see kvc_cache_take_copies). Threads: any. Since 0.1.
 * From: persistent vectors; page sharing as in vLLM's PagedAttention. */
KVC_API kvc_status kvc_seq_fork(kvc_cache *cache, int64_t n, const kvc_seq *parents, const int64_t *positions,
                                kvc_seq *children, void *stream, kvc_error *error);

/* Drops the tokens of sequence i from position lengths[i] on. Also drops all uncommitted tree nodes of the sequence. Other
 * sequences that share the pages keep their tokens. The call takes no page. But the new end may lie inside a shared page.
 * Then the next forward that appends to the sequence copies the kept part of this page to a new page. kvc_cache_can_fit
 * counts the new page. If one forward appends to all sequences that share the page, it takes a new page for each of these
 * sequences. If separate forwards append to the sequences, the last sequence keeps the shared page.
 *   sequences  [n], distinct
 *   lengths    [n], the new length of each sequence: from 0 to its present length
 * Errors (nothing truncated): STALE_ID, BUSY, DUPLICATE, OUT_OF_RANGE, EVICTED. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_truncate(kvc_cache *cache, int64_t n, const kvc_seq *sequences, const int64_t *lengths,
                                    kvc_error *error);

/* Gives the lengths of n sequences in tokens. Tokens of open forwards and uncommitted tree nodes do not count. The cost is
 * O(1) for each sequence.
 *   lengths  [n], filled
 * Errors: STALE_ID. Threads: any, also while a forward computes. Since 0.1. */
KVC_API kvc_status kvc_seq_lengths(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *lengths,
                                   kvc_error *error);

/* Gives the page ids of one sequence in one group, in order. Entry i is the page of positions
 * [i * page_size, (i+1) * page_size). An entry is -1 if the page was freed because no later query sees its tokens
 * (kvc_visibility, kvc_seq_set_streaming). Pages of an open forward and of an uncommitted tree are not included.
 *   pages     nullable if capacity is 0; [capacity], filled
 *   count     nullable: number of entries, filled also on BUFFER_TOO_SMALL
 * Errors: STALE_ID, OUT_OF_RANGE (group), BUFFER_TOO_SMALL (never for capacity 0). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_pages(kvc_cache *cache, kvc_seq sequence, int32_t group, int32_t *pages, int64_t capacity,
                                 int64_t *count, kvc_error *error);

/* Gives the positions nearest to `position` at which fork and truncate work in every group. If a group has freed the pages
 * of tokens [b, e), all positions up to b work in this group. No position between b and e works. A position p >= e works
 * if the query at p would see none of these tokens. With a recurrent group, only position 0, checkpoints
 * (kvc_seq_checkpoint) and the end of the sequence work.
 *   position         0..the sequence's length
 *   before           nullable: the largest working position <= position (0 always works)
 *   after            nullable: the smallest working position >= position; -1 = none
 * Errors: STALE_ID, OUT_OF_RANGE. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_nearest_position(kvc_cache *cache, kvc_seq sequence, int64_t position, int64_t *before,
                                            int64_t *after, kvc_error *error);

/* Computes for each sequence how many tokens one forward could append to it now, if the forward appended to no other
 * sequence. The result is in 0..max_batch_tokens. For a sequence with an uncommitted tree, the result is a number of tree
 * nodes. The result takes account of the room in a partial last page, shared pages that must be copied, windows, and the
 * free pages of every group. Pages that can be evicted from the prefix index count as free.
 *   tokens  [n], filled; 0 for a sequence in an open forward
 * Errors: STALE_ID. Threads: any. The cost is O(1) for each sequence and group. Since 0.1. */
KVC_API kvc_status kvc_seq_max_append(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *tokens,
                                      kvc_error *error);

/* Computes for each sequence how many pages of a group would become available if this sequence alone were removed. These are
 * the pages that no other sequence, pin, save or load holds. Pages of an open forward, of an uncommitted tree and of
 * checkpoints count too. A page that the prefix index also holds counts, because it could be evicted after the removal. An
 * engine that is short of pages can compare sequences by this number, to choose the sequence that it removes.
 *   pages  [n], filled
 * Errors: STALE_ID, OUT_OF_RANGE (group). Threads: any. The cost is O(pages) for each sequence. Since 0.1. */
KVC_API kvc_status kvc_seq_exclusive_pages(kvc_cache *cache, int32_t group, int64_t n, const kvc_seq *sequences,
                                           int64_t *pages, kvc_error *error);

enum kvc_streaming_flags {
  KVC_STREAMING_PREFIX_IS_SINK = 1 /* the present tokens of each sequence become sinks: s = max(sink_tokens, present length).
                                      Not allowed for a sequence whose window is 0 */
};

/* Gives n sequences a streaming window, so that they can grow without end in bounded memory. Let s be the number of sink
 * tokens and w the window. In a full group, a query at position p then sees the keys j < s, and the keys with
 * max(s, p-(w-s)+1) <= j <= p. Both ranges together have w keys, the query's own key included (fewer while p < w - 1). Which
 * keys a query sees does not depend on how the tokens are divided into steps. Sliding and chunked groups keep their own
 * rules.
 *   Positions  Attention gives the result that it would give if the kept tokens had consecutive positions. Stored keys are
 *              not rotated again. Instead attend rotates q twice: at p for the window, and at min(p, w-1) for the sinks.
 *              Then attend merges the two results. Distances for ALiBi are computed from these two positions too. If the
 *              caller rotates q, the scores of the sinks depend on the true distance between sink and query. Lengths and
 *              positions count every token, evicted tokens included, up to 2^30.
 *   Memory     The rollback margin is the last rollback_tokens tokens before the window. This call, and the end of each
 *              forward, release each page whose tokens all lie after the sinks and before the rollback margin. From then
 *              on, during steps too, the sequence holds at most the pages for w + rollback_tokens + t tokens, plus two
 *              pages, where t is the number of tokens that a step appends to the sequence. If a later call sets fewer sinks,
 *              the pages of the former sinks are freed when the next page leaves the window and the rollback margin.
 *   Rollback   fork and truncate work at positions within the pages of the sinks. They also work at positions where all keys
 *              in the window of the next query are still stored (kvc_seq_nearest_position). At other positions they return
 *              EVICTED.
 * A fork has the window of its parent. truncate does not change the window. A new sequence has no window.
 *   sequences      [n], distinct
 *   sink_tokens    nullable: no sinks. [n]: s, 0..2^30
 *   window_tokens  [n]: w, above s, at most 2^30. 0 = the sequence has no streaming window from now on; s must then be 0
 *   flags          KVC_STREAMING_* or 0
 * Errors (nothing changed): UNSUPPORTED (a cache without KVC_CACHE_STREAMING), and with the index of the sequence in
 * error->index: STALE_ID, DUPLICATE, BUSY, UNCOMMITTED, INVALID_ARGUMENT (w <= s; s > 0 with w = 0; a value outside of
 * 0..2^30), EVICTED (keys that the next query would see were freed).
 * Threads: any. The cost grows with the number of pages that the call frees. Since 0.1.
 * From: attention sinks as in StreamingLLM (Xiao et al.). */
KVC_API kvc_status kvc_seq_set_streaming(kvc_cache *cache, int64_t n, const kvc_seq *sequences,
                                         const int64_t *sink_tokens, const int64_t *window_tokens, uint32_t flags,
                                         kvc_error *error);

/* Gives the streaming windows of n sequences. A sequence without a streaming window has sink_tokens 0 and window_tokens 0.
 *   sink_tokens    [n], filled: s, including the tokens that KVC_STREAMING_PREFIX_IS_SINK made sinks
 *   window_tokens  [n], filled: w
 * Errors: STALE_ID. Threads: any, also while a forward computes. The cost is O(1) for each sequence. Since 0.1. */
KVC_API kvc_status kvc_seq_get_streaming(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int64_t *sink_tokens,
                                         int64_t *window_tokens, kvc_error *error);

enum kvc_rope_set { KVC_ROPE_SET_SHORT = 0, KVC_ROPE_SET_LONG = 1 };

/* Chooses the factors by which longrope rotates the keys and queries of n sequences: short_factors or long_factors of
 * kvc_rope_scaling. A new sequence has the short factors, and a fork has the factors of its parent. Choose the long factors
 * for a sequence that will pass original_max_position. If a layer with longrope rotates on append, call this function before
 * the first token of the sequence is stored. In a cache with such a layer, sequences with different factors never share a
 * page. For layers that rotate on read, this choice is not needed: in the step that passes original_max_position, the
 * library changes to the long factors.
 *   sequences  [n]
 *   set        KVC_ROPE_SET_*
 * Errors (nothing changed): STALE_ID, BUSY, INVALID_ARGUMENT (set), ORDER (a sequence is not empty, and a layer with
 * longrope rotates on append), UNSUPPORTED (no layer has longrope). Threads: any. Since 0.1. From: LongRoPE, as in Phi-3. */
KVC_API kvc_status kvc_seq_set_rope(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int32_t set,
                                    kvc_error *error);

/* Makes checkpoints of the present recurrent states of n sequences. fork and truncate can then return to the present lengths
 * later. Make a checkpoint before drafts that may be rejected, or at the end of a prompt that other sequences will share.
 * The call copies nothing: the checkpoint is a reference to the page of the state. A fork inherits the checkpoints up to the
 * fork's position. truncate drops the checkpoints after the new end. When a sequence has more than max_checkpoints, its
 * oldest checkpoint is dropped.
 *   sequences  [n], distinct
 * Errors (no checkpoint made): UNSUPPORTED (no recurrent group), STALE_ID, DUPLICATE, BUSY, UNCOMMITTED. Threads: any.
 * Since 0.1. */
KVC_API kvc_status kvc_seq_checkpoint(kvc_cache *cache, int64_t n, const kvc_seq *sequences, kvc_error *error);

/* Gives the lengths of the encoder sequences that n sequences have in a cross group. Tokens of open forwards do not count.
 * The cost is O(1) for each sequence.
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
                                     in this range that stores new K and V in this forward must get them, by
                                     kvc_forward_append or by attend with k and v, before kvc_forward_end. (With
                                     encoder_group, only layers of the group that it names store. Without encoder_group,
                                     cross layers store nothing. Layers with compressed rows store only if a row closes.)
                                     Give a range in two cases: one cache serves several pipeline stages, each of which has
                                     its own sequences; or the step is a draft that computes only the first layers. The
                                     layers outside of the range then lack the tokens of this forward, until truncate drops
                                     these tokens. While a layer lacks tokens, ORDER is returned by exports of these tokens,
                                     and by forwards whose range contains the layer */
  int32_t layer_end;
  const int32_t *tree_parents;    /* nullable: no trees. [T]: the parent node of each new token, or KVC_TREE_ROOT (token
                                     trees: see kvc_seq_commit). In a row without a tree, all tokens have KVC_TREE_NONE.
                                     Ignored in inert rows */
  const int32_t *span_ids;        /* nullable: no spans. [T]: the id of the span of each new token; 0 = no span. Adjacent
                                     tokens of one row with the same id form a span, such as an image within a text. Each
                                     token of a span sees all tokens of the span, later ones included. But windows and chunks
                                     still hide keys. All tokens of a span must be in the same forward. Ignored in inert
                                     rows */
  int32_t encoder_group;          /* 0 = the new tokens belong to the sequences. 1 + g = the new tokens are appended to the
                                     encoder sequences in cross group g. In such a forward, call kvc_forward_append for
                                     layers of group g, and no attend. The lengths of the sequences do not change */
  uint32_t reserved;              /* 0 */
  kvc_forward graph;              /* 0 = the forward is in no graph, and gets its own id. Else a graph from kvc_graph_create:
                                     the forward opens in this graph, and has the id of the graph */
} kvc_batch;

static inline void kvc_batch_init(kvc_batch *batch) {
  kvc_batch zero = KVC_ZERO_STRUCT;
  *batch = zero;
  batch->struct_size = (uint32_t)sizeof(zero);
}

/* Checks whether kvc_forward_begin would succeed now. The call returns the status that kvc_forward_begin would return, and
 * fills `error` with the same numbers. The call changes nothing.
 * Errors: as kvc_forward_begin. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_can_fit(kvc_cache *cache, const kvc_batch *batch, kvc_error *error);

/* Begins a step, and reserves all pages that the new tokens of the batch need in every group. The call checks the batch
 * first. If the call fails, it reserves nothing. The T rows of q, k and v are the tokens of the batch: first the
 * append_lengths[0] tokens of sequence 0, then the append_lengths[1] tokens of sequence 1, and so on.
 *   batch    borrowed, arrays included
 *   stream   the device's stream for the whole forward; NULL on the CPU
 *   forward  filled; closed by kvc_forward_end or kvc_forward_abort
 * The cost grows with the number of rows, new tokens and new pages. It does not grow with the lengths of the sequences.
 * Errors with the row in error->index:
 *   STALE_ID, DUPLICATE, BUSY (also: a forward is open in the graph), TREE_TOO_LARGE
 *   UNCOMMITTED         plain or encoder tokens for a sequence that has an uncommitted tree
 *   INVALID_ARGUMENT    encoder_group does not name a cross group, or is set together with trees or spans; a span id is
 *                       negative, or belongs to a tree node
 *   OUT_OF_PAGES        error->index is the first row that does not fit. required and available are numbers of pages in
 *                       group error->group, for the whole batch. Idle pages of the prefix index count as available, because
 *                       begin evicts idle pages when it needs pages. Evicted pages stay evicted even if the forward is
 *                       aborted
 *   OUT_OF_RANGE        a sequence would become longer than 2^30 tokens
 *   ORDER               a layer in the range lacks tokens of the sequence. required is the number of tokens of the sequence,
 *                       and available is how many of these tokens the layer has
 * Other errors: BATCH_TOO_LARGE (for the cache, or for the graph), TOO_MANY_FORWARDS, OUT_OF_RANGE (layers), ORDER
 * (KVC_STORAGE_NONE: the engine has not taken all queued copies). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_begin(kvc_cache *cache, const kvc_batch *batch, void *stream, kvc_forward *forward,
                                     kvc_error *error);

enum kvc_append_flags {
  KVC_APPEND_AS_STORED = 1 /* k already has the rotation that the cache stores, so the library does not rotate k. With this
                              flag, k and v of a quantised layer may be given as the bytes that the cache stores (both of
                              them, or neither). The dtype of stored bytes is the dtype of the layer, or uint8. A row of
                              uint4 has D/2 bytes, and a row of float4 has D/2 + D/16 bytes */
};

typedef struct kvc_append_args {
  uint32_t struct_size;
  uint32_t flags;     /* KVC_APPEND_* */
  const DLTensor *k;  /* borrowed; [>= T, Hkv, D] float32, float16 or bfloat16; innermost stride 1 */
  const DLTensor *v;  /* borrowed; [>= T, Hkv, Dv], as k. KVC_LAYER_KEYS_ONLY: NULL. MLA: either v is NULL and k has whole
                         rows, or v has the latent parts [>= T, 1, latent_dim] and k has the rotary parts [>= T, 1,
                         D - latent_dim] */
  const DLTensor *rope_cos_sin; /* nullable: the angles follow from the rope fields of the layer and the positions of the
                                   tokens. Borrowed; [>= T, 2, rope_dim / 2] float32, compact: [t, 0, i] is the cos of the
                                   angle of pair i for token t, and [t, 1, i] is the sin of this angle. If the scaling has an
                                   attention factor, the caller multiplies cos and sin by the factor. Use the table for
                                   angles that only the caller can compute (M-RoPE, dynamic NTK: docs/reference/rope.md).
                                   Needs KVC_ROPE_ON_APPEND. Give the same table to the attend of the layer */
  const DLTensor *k_scale; /* needed if k and v are stored bytes of a format with scales after the rows of a page; else NULL.
                              Borrowed. int8 and uint4: [>= T, Hkv] float32, the scale of each row. Row
                              formats: the scales of each row, in the dtype and shape of an export (kvc_exported.k_scale).
                              (For stored bytes of float8 and float4, k_scale is NULL: k_scales of the layer's config apply,
                              and the block scales of float4 are part of the stored bytes) */
  const DLTensor *v_scale; /* the same for v */
} kvc_append_args;

static inline void kvc_append_args_init(kvc_append_args *args) {
  kvc_append_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Stores the new K and V of a layer without computing attention. The call rotates K if the layer has KVC_ROPE_ON_APPEND, and
 * rounds or quantises K and V to the layer's dtype.
 *   layer  a layer of the forward. Append each layer once, in any order of layers
 * Errors: STALE_ID, BUSY, ORDER (appended already), CANCELLED, OUT_OF_RANGE, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED
 * (KVC_STORAGE_NONE), INVALID_ARGUMENT (a layer that reads K and V of another layer; a recurrent layer; without
 * encoder_group, a cross layer; with encoder_group, a layer of any other group). An error of the device closes the forward,
 * as kvc_forward_abort does. Threads: any, one at a time for each forward. Since 0.1. */
KVC_API kvc_status kvc_forward_append(kvc_cache *cache, kvc_forward forward, int32_t layer, const kvc_append_args *args,
                                      kvc_error *error);

enum kvc_attend_flags {
  KVC_ATTEND_NON_CAUSAL = 1, /* a query also sees the later tokens of its row. A window still limits the first key that a
                                query sees, and a chunk limits the first and the last key. Nodes of a tree still see only
                                their ancestors */
  KVC_ATTEND_PAST = 2,       /* attend only to keys of earlier steps */
  KVC_ATTEND_SELF = 4,       /* attend only to keys of this step's tokens. To compute the two parts separately, call attend
                                twice for a layer: once with PAST, and once with SELF. Then merge the two results with
                                kvc_merge_states */
  KVC_ATTEND_ALIBI_SIGNED = 8, /* ALiBi subtracts slope * (p_q - p_k), not slope * |p_q - p_k|. So keys after the query get
                                  higher scores. Queries see such keys only with NON_CAUSAL and in spans */
  KVC_ATTEND_REL_BIAS_ZERO = 16, /* rel_bias adds 0 at distances for which it has no entry */
  KVC_ATTEND_NO_SPANS = 32,      /* this layer ignores the spans of the step */
  KVC_ATTEND_STEP_WINDOW = 64    /* for all queries of a row, the window (or chunk) begins where it begins for the row's
                                    first new token. With NON_CAUSAL, all queries of a row then see the same keys (in a
                                    chunked group, if the new tokens of the row lie in one chunk). UNSUPPORTED in steps with
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
                           of the sum of exponentials of the scores. The logit of an attention sink (`sinks`) counts as a
                           score. A row that is not written in out is not written in lse */
  double softmax_scale; /* 1e-30..1e30; 0 = the softmax_scale of the layer */
  double softcap;       /* a score becomes softcap * tanh(score / softcap); 1e-6..1e30; 0 = no cap */
  const DLTensor *alibi_slopes; /* nullable: no ALiBi. Borrowed; [Hq] float32: slope * |p_q - p_k| is subtracted from scores,
                                   where p_q and p_k are the positions of query and key (see also KVC_ATTEND_ALIBI_SIGNED) */
  const DLTensor *sinks; /* nullable: no attention sinks. Borrowed; [Hq] float32: a logit for each head. The logit takes part
                            in the softmax, but has no value vector. It is neither scaled nor capped. If two calls compute
                            the parts PAST and SELF of a layer, give sinks to only one of the calls */
  const DLTensor *rope_cos_sin; /* nullable; as kvc_append_args.rope_cos_sin. The table rotates q, and k if k is given.
                                   In a full group, the table is UNSUPPORTED if a sequence is longer than its streaming
                                   window, because q is then rotated twice. In a full group of a deterministic cache, it is
                                   UNSUPPORTED if any sequence of the step has streaming sinks, whatever its length */
  /* MLA: the up-projections of K and V of the model. If both are NULL, q and out are in latent space: q is [T, Hq, D] and
   * out is [T, Hq, latent_dim]. If both are given, the library projects q and the result. Then q is [T, Hq, Dn + R] and out
   * is [T, Hq, Dv]. A query head has Dn dims without RoPE, and R = D - latent_dim rotary dims. Models usually have both
   * matrices in one weight, kv_b_proj.weight. Reshape it to [Hq, Dn + Dv, latent_dim]: for each head, rows 0..Dn-1 are w_uk,
   * and the other rows are w_uv. */
  const DLTensor *w_uk; /* nullable, together with w_uv. Borrowed; [Hq, Dn, latent_dim] float32, float16 or bfloat16;
                           innermost stride 1; Dn 1..1024 - R */
  const DLTensor *w_uv; /* nullable, together with w_uk. Borrowed; [Hq, Dv, latent_dim], as w_uk; Dv 1..1024 */
  const DLTensor *indices; /* nullable: no lists. Borrowed; [>= T, 1 or Hkv, k] int32, innermost stride 1: lists of k
                              entries. A query has one list for all heads, or one list for each kv head.
                              k * index_block <= KVC_MAX_LISTED_KEYS. An entry names tokens by their index in the sequence */
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
                           stride 1: an entry [t, j] or [t, head, j] that is 0 hides key j from the query of token t. Tokens
                           are counted as in q, and keys as in key_bias. A mask cannot show a key that the layer hides.
                           To let the mask alone decide, set NON_CAUSAL: in a layer without window and chunks, a query then
                           sees all keys of its row, unless the row has a tree or a streaming window */
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
 *            16 bits if q has 16 bits. K and V of new tokens are rounded to the stored dtype before they are used.
 * No key     A query that sees no key has output 0 and LSE -inf. With an attention sink, its LSE is the logit of the sink.
 * MLA        With up-projections, a row with few queries is computed in the absorbed form: the library projects q into
 *            latent space, and projects the result back to out. For a row with many queries, the library decompresses K and
 *            V of the new tokens, but not of earlier tokens. Both forms agree within rounding (docs/reference/mla.md).
 * Lists      With indices, a query attends to those listed keys that it would see without a list. An entry i names token i
 *            of the sequence (or block i, see index_block), counted from the first token of the sequence. In a cross layer
 *            it names token i of the encoder sequence. Nodes of a tree come after the tokens, in the order in which they
 *            were appended. Entries do not depend on the layer's window or pages, so one list can be used in several layers.
 *            A list is a set: entries may be in any order, and an entry that occurs twice counts once. Negative entries are
 *            padding, and may be at any place. If a list names no key that the query sees, the result is as in "No key". K
 *            and V of keys that no list names are not read. Ascending lists are fastest (docs/reference/lists.md).
 * Errors: those of kvc_forward_append, and
 *   ORDER             k and v are NULL, and the layer was not appended (with PAST, no append is needed); the same part was
 *                     attended before; the layer reads K and V of a layer outside of the forward's range; the forward
 *                     appends encoder tokens
 *   OUT_OF_RANGE      softmax_scale, softcap, index_block, or k * index_block; on the CPU, an entry whose first token is not
 *                     in the sequence (the sequence includes the new tokens; error->index is the row). On a GPU such an
 *                     entry names no key
 *   SHAPE             also: key_bias or mask has fewer keys than a row (error->index is the row)
 *   UNSUPPORTED       indices on a backend that does not attend over lists; STEP_WINDOW with trees; key_bias or mask in a
 *                     graph on a GPU, because a later step may have more keys
 *   INVALID_ARGUMENT  PAST with SELF; PAST or SELF in a cross layer, because all its keys are past; a recurrent layer; a
 *                     layer with KVC_LAYER_KEYS_ONLY; out and lse share an element, or one of the two shares an element with
 *                     a tensor that is read; REL_BIAS_ZERO without rel_bias; on the CPU, a NaN or +infinity in rel_bias or
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
  KVC_SELECT_RELU_SUM = 0, /* the score is the sum over all heads h of weights[h] * max(0, q[h].k); each query has one
                              list */
  KVC_SELECT_EACH_HEAD = 1 /* the score in head h is q[h].k; each query has one list for each head */
};

typedef struct kvc_select_args {
  uint32_t struct_size;
  int32_t rule;            /* KVC_SELECT_* */
  const DLTensor *q;       /* borrowed; [>= T, Hq, D] float32, float16 or bfloat16; innermost stride 1. Head h scores the
                              keys of kv head h / (Hq / Hkv) */
  const DLTensor *weights; /* KVC_SELECT_RELU_SUM: borrowed; [>= T, Hq] float32, of any sign; nullable: all 1. Else NULL */
  const DLTensor *indices; /* borrowed, its data is written: the chosen entries. [>= T, lists, k] int32, innermost stride 1.
                              `lists` is 1, or Hq with KVC_SELECT_EACH_HEAD. k * index_block <= KVC_MAX_LISTED_KEYS. The data
                              must not overlap another tensor. Tokens of inert rows, and rows from T on, are not written */
  const DLTensor *candidates;   /* nullable: all tokens that the query sees are scored. Borrowed; [>= T, 1 or lists, n]
                                   int32, with entries as in kvc_attend_args.indices: a token is scored only if an entry of
                                   this tensor names it */
  const DLTensor *rope_cos_sin; /* nullable; as kvc_append_args.rope_cos_sin, for q */
  int32_t index_block;     /* b >= 1: an entry i of indices names the tokens [i * b, (i + 1) * b). The score of an entry is
                              the largest score among its tokens that the query sees. 0 = 1 */
  int32_t candidate_block; /* the number of tokens that an entry of candidates names, like index_block for indices; 0 = 1 */
  int32_t first_blocks;    /* the entries 0..first_blocks - 1 are always chosen. These entries count towards k */
  int32_t last_blocks;     /* the entries e - last_blocks + 1..e are always chosen, where e is the entry of the query's own
                              token. These entries count towards k. first_blocks + last_blocks is at most k */
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
 * Windows, chunks, spans and trees decide which tokens a query sees, as in kvc_forward_attend. Scores are float32. No scale
 * is applied, because a positive factor changes no choice. Among equal scores, the lowest entry is chosen. A score that is
 * NaN is lower than all others, and in KVC_SELECT_RELU_SUM max(0, NaN) is 0. The chosen entries are in ascending order. If
 * fewer than k entries have a token that the query sees, all these entries are chosen, and the rest of the list is -1. The
 * choice does not depend on the batch, on the threads, or on how tokens are divided into steps (docs/reference/select.md).
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

/* Copies a state tensor of a recurrent layer out of the cache. Row i of the tensor becomes a state of sequence i of the
 * batch: the state before this forward, or the state before one of its new tokens (see `token`). For an empty sequence, all
 * elements are the fill value (kvc_state_config). For inert rows of the batch, nothing is written. The call may be repeated.
 *   layer   a recurrent layer of the forward
 *   state   index of the state tensor, 0..num_states - 1
 *   token   -1: load the state before the first new token of each row. 0..max_draft_states - 1: load the state before the
 *           row's new token with this index. The state before a tree node is the state after the node's parent. This can be
 *           a state that kvc_forward_store_state stored earlier in this forward. If a row of the batch lacks this token or
 *           this state, the same row of the tensor is not written
 *   tensor  borrowed, its data is written; [>= num_sequences, shape...] of the state's dtype. Each row is compact, and the
 *           stride between rows is free
 * Errors: STALE_ID, BUSY, CANCELLED, OUT_OF_RANGE (layer, state, token), INVALID_ARGUMENT (the layer is not recurrent, or
 * the forward has encoder tokens), DTYPE, DEVICE, RANK, SHAPE, STRIDE. An error of the device closes the forward, as
 * kvc_forward_abort does. Threads: any, one at a time for each forward. Since 0.1. */
KVC_API kvc_status kvc_forward_load_state(kvc_cache *cache, kvc_forward forward, int32_t layer, int32_t state, int32_t token,
                                          const DLTensor *tensor, kvc_error *error);

/* Copies a state tensor of a recurrent layer into the cache. With token -1, row i becomes the state of sequence i of the
 * batch when this forward ends. If the forward is aborted, the sequence keeps its earlier state. Store every state of every
 * recurrent layer in the range before kvc_forward_end. If a state is stored twice, the later call replaces the earlier
 * state.
 *   token   -1: store the state after the last new token of each row. 0..max_draft_states - 1: store the state after the
 *           row's new token with this index. If a row of the batch lacks this token, or does not keep the state after this
 *           token, the same row of the tensor is not read. A row keeps the state after its last token, and after tree nodes
 *           with numbers below max_draft_states
 *   tensor  borrowed; shape and strides as in kvc_forward_load_state
 * Drafts: with max_draft_states, the cache keeps the states after several uncommitted nodes. kvc_seq_commit then sets
 * the state of the sequence to the state after the committed leaf. An example is a draft of 4 tokens with states
 * [num_sequences, 4, shape...]: call this function for tokens 0 to 3, each time with one slice of the states.
 * Errors, threads: as kvc_forward_load_state. Since 0.1. From: a state for each draft as in vLLM's speculative Mamba. */
KVC_API kvc_status kvc_forward_store_state(kvc_cache *cache, kvc_forward forward, int32_t layer, int32_t state,
                                           int32_t token, const DLTensor *tensor, kvc_error *error);

typedef struct kvc_merge_args {
  uint32_t struct_size;
  int32_t num_parts;                /* number of results to merge, 1 or more */
  const DLTensor *const *outputs;   /* [num_parts], borrowed; each [>= T, H, Dv] float32, float16 or bfloat16; innermost
                                       stride 1 */
  const DLTensor *const *lses;      /* [num_parts], borrowed; each [>= T, H] float32 */
  const DLTensor *out;              /* borrowed, its data is written; [T, H, Dv] float32, float16 or bfloat16. The shape of
                                       out defines T, H and Dv. out may be outputs[0], but must not overlap any other part */
  const DLTensor *lse;              /* nullable: not computed. Borrowed, its data is written; [T, H] float32. lse may be
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

/* Closes a step and keeps its tokens. The lengths of the step's sequences grow. Pages that left a window or chunk are freed.
 * The pages of sequences that were removed during the step are released. Nodes of trees stay uncommitted until
 * kvc_seq_commit.
 *
 * Every layer in the range that stores new K and V or states in this forward must have stored them. In a layer that has not
 * stored them, the new pages could still have K and V of another sequence. Layers that a step does not compute
 * must be outside of its range (kvc_batch.layer_begin). In graphs and with KVC_STORAGE_NONE, the library cannot check this
 * fully, so the engine must ensure that every layer stores the new tokens.
 *
 * Errors (the forward stays open): ORDER (error->index is the first layer in the range that was not appended, or that has a
 * state that was not stored; with KVC_STORAGE_NONE, appends are not checked), CANCELLED, BUSY, STALE_ID. An error of the
 * device closes the forward, as kvc_forward_abort does. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_end(kvc_cache *cache, kvc_forward forward, kvc_error *error);

/* Closes a step and drops its tokens. The pages that the step reserved become free. The sequences are as they were before
 * kvc_forward_begin.
 * Errors: BUSY (a call of the forward is computing; call kvc_forward_cancel first), STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_abort(kvc_cache *cache, kvc_forward forward, kvc_error *error);

/* Stops a step, also while the step computes on another thread. The call does not wait. An attend that is computing finishes
 * the work items that run now, and returns CANCELLED (or OK if no item was left). After this call, append, attend, select,
 * load_state, store_state and end return CANCELLED, and only kvc_forward_abort closes the forward.
 * Errors: STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_forward_cancel(kvc_cache *cache, kvc_forward forward, kvc_error *error);

/* The position of each token of an open forward, and the last token of each row. The library owns the arrays, and the shapes
 * and strides of the tensors. All of them are valid until the forward closes, or in a graph until kvc_graph_destroy. In a
 * graph the arrays have max_tokens and max_sequences of kvc_graph_config in place of T and num_sequences. Entries that the
 * step does not use have position 0 and last row -1. */
typedef struct kvc_forward_info {
  uint32_t struct_size;
  int32_t num_sequences;              /* rows of the batch, inert rows included */
  int64_t num_tokens;                 /* T */
  const int32_t *positions_host;      /* [T]: position of each token in its sequence. A tree node has position
                                         length + depth, and a token of an inert row has position 0 */
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

/* Settings of a graph. A graph is for steps whose calls are recorded once and then replayed. The recording is a CUDA graph,
 * or a compiled program that has the arguments of its calls as constants.
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
 *   Addresses  kvc_forward_get_info and kvc_forward_tables give the same addresses in every step. The shapes are those of
 *              the graph's capacity. Entries that a step does not use are inert: position 0, slot -1, last row -1, table
 *              rows without keys. Call kvc_forward_tables in each step to fill the tables. When a forward closes, the
 *              generation word of its tables (kvc_tables.generation_word) becomes 0, which means stale. The word stays 0
 *              until the next call of kvc_forward_tables.
 *   Tensors    On a GPU, tensors of recorded calls have at least max_tokens rows, and tensors of states have at least
 *              max_sequences rows, because a later step may have more rows. On the CPU, the rows of the step suffice. Rows
 *              after the last row of the step are not written.
 *   CUDA       Run one step without a capture first. Then capture append, attend, load_state and store_state between a begin
 *              and an end. All other calls on the cache that use a stream must be outside of the capture (else ORDER).
 *              Stateless calls and kvc_merge_states may be captured too. kvc_forward_end checks that each layer in the range
 *              was appended in the graph at least once. But it cannot check what a replay has stored, so replay all captured
 *              layers before kvc_forward_end. A replay while no forward is open writes nothing. Use one stream for all
 *              forwards of a graph.
 *
 * A graph has buffers for one forward. This forward does not count towards max_open_forwards. Recordings for several batch
 * sizes can use the same graph, up to its capacity. So a server needs only one graph. */
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

/* Creates a graph. The graph owns the memory for its forwards. kvc_cache_estimate includes one graph of the largest size.
 *   graph  filled
 * Errors: OUT_OF_RANGE, UNSUPPORTED (flags, reserved), OUT_OF_MEMORY, TOO_MANY_FORWARDS (64 graphs exist). Threads: any.
 * Since 0.1. */
KVC_API kvc_status kvc_graph_create(kvc_cache *cache, const kvc_graph_config *config, kvc_forward *graph,
                                    kvc_error *error);

/* Frees a graph and its memory. The arrays that kvc_forward_get_info and kvc_forward_tables gave for the graph become
 * invalid. kvc_cache_destroy frees the remaining graphs.
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
 *   ...                                        // attend in every layer: a node's query sees the sequence and the node's
 *                                              // ancestors
 *   kvc_forward_end(cache, step, &error);
 *   int32_t leaf = deepest_accepted(logits);   // say 4: the path 0, 1, 4 is kept, and the length grows by 3
 *   kvc_seq_commit(cache, 1, &seq, &leaf, NULL, &error);
 *
 * Numbering: the nodes of a sequence are numbered from 0 in the order of their appends, over all steps since the last
 * commit. A later step may add nodes to the tree. The first node of that step has the number that kvc_seq_tree_nodes gives
 * before the step. A parent must come before its children. A tree may have several roots, and any node can be committed.
 * Positions: the position of a node is the length of the sequence plus the depth of the node (0 for a root). RoPE, windows
 * and biases use this position.
 * Limits: while a sequence has uncommitted nodes, forks and plain appends return UNCOMMITTED. The sequence then frees no
 * page that left a window, so all its keys are still there if the tree is dropped. An abort drops only the nodes of its own
 * step.
 * Recurrent states, in a cache with a recurrent group: the state after the last node of the newest step is always kept. The
 * states after the first max_draft_states nodes are kept too, if they were stored (kvc_forward_store_state). Only a node
 * with a state can be committed (else EVICTED), or can get children in a later step. If max_draft_states is 0, a tree must
 * be a chain, and the chain can be kept or dropped only as a whole. If only the first nodes of the chain are accepted, drop
 * the chain (-1), and append the tokens of these nodes as plain tokens. */

/* Keeps the path from a root to node leaves[i] as tokens of sequences[i], and drops the other uncommitted nodes of the
 * sequence. Either all n sequences are committed, or none. K and V of kept nodes move to their final slots where needed. The
 * call takes no page.
 *   sequences  [n], distinct, any order, each with uncommitted nodes
 *   leaves     [n]: a node for each sequence, 0..kvc_seq_tree_nodes - 1; -1 = drop all nodes
 *   stream     as kvc_seq_fork
 * Errors (nothing committed), with the index of the sequence in error->index: STALE_ID, DUPLICATE, BUSY, ORDER (no
 * uncommitted nodes; KVC_STORAGE_NONE: the engine must take queued copies first), OUT_OF_RANGE, EVICTED (the recurrent state
 * of the node is not kept, see above). After an error of the device, K and V of the nodes are undefined, and the nodes can
 * only be dropped (-1). Threads: any. The cost grows with the number of moved nodes and freed pages.
 * Since 0.1. From: tree attention as in SpecInfer and Medusa. */
KVC_API kvc_status kvc_seq_commit(kvc_cache *cache, int64_t n, const kvc_seq *sequences, const int32_t *leaves,
                                  void *stream, kvc_error *error);

/* Gives the number of uncommitted tree nodes of each of n sequences. Nodes of open forwards do not count. The cost is O(1)
 * for each sequence.
 *   nodes  [n], filled
 * Errors: STALE_ID. Threads: any, also while a forward computes. Since 0.1. */
KVC_API kvc_status kvc_seq_tree_nodes(kvc_cache *cache, int64_t n, const kvc_seq *sequences, int32_t *nodes,
                                      kvc_error *error);

/* ============================================================================================
 * 8  Tensors: views, exports, imports
 * ============================================================================================ */

enum kvc_pool {
  KVC_POOL_KV = 0, /* K and V together: [pages, 2, Hkv, page_size, D]; only if the cache stores them in one pool */
  KVC_POOL_K = 1,  /* [pages, Hkv, page_size, D] */
  KVC_POOL_V = 2,  /* [pages, Hkv, page_size, Dv]; MLA: the first latent_dim dims of KVC_POOL_K */
  KVC_POOL_K_SCALE = 3, /* scales of K, float32: [pages, Hkv, page_size] for int8 and uint4; [Hkv] for float8 and float4
                           (ones if the config gives no scales). Row formats with scales after the rows of a page: [pages,
                           Hkv, page_size, scales of a row] uint8. FP8_BLOCKS has float32 instead, and no last dim if a row
                           has one scale (128 dims) */
  KVC_POOL_V_SCALE = 4  /* scales of V, in the same shapes */
};
enum kvc_pool_flags {
  KVC_POOL_WRITABLE = 1 /* the view may be written. Without this flag, the view has DLPack's READ_ONLY flag */
};

/* Returns a view of a layer's page pool, without a copy. The view keeps the memory allocated, but pages are reused, so the
 * contents change. The view has the layer's dtype, except that float8 is uint8, and a row of 4-bit elements is given as
 * bytes. The view shows the pages of all sequences, and free pages too. In a slot in which this layer stored no token, it
 * shows old bytes. Work enqueued on the stream after this call sees what earlier calls on the cache stored. But later calls
 * on the cache do not wait for this work, so the caller must order them after it.
 *   pool    KVC_POOL_*
 *   flags   KVC_POOL_WRITABLE or 0
 *   tensor  returned; released by its deleter, on any thread, also after kvc_cache_destroy
 *   stream  as kvc_seq_fork
 * Errors: OUT_OF_RANGE (layer), INVALID_ARGUMENT, UNSUPPORTED (KVC_POOL_KV if K and V are in separate pools, a recurrent
 * layer, scales of a layer that is not quantised, writable scales of float8, KVC_STORAGE_NONE), OUT_OF_MEMORY. Threads: any.
 * Since 0.1. */
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
  uint32_t parts;         /* KVC_EXPORT_*; 0 = all parts that the layer has (MLA: only K and its scales, because V is part of
                             K) */
  uint32_t reserved;      /* 0 */
  int64_t position_begin; /* tokens [position_begin, position_end) of the sequence are exported */
  int64_t position_end;   /* 0 = the sequence's length, so [0, 0) cannot be requested. Cross layers: both positions are
                             positions in the encoder sequence */
} kvc_export_args;

static inline void kvc_export_args_init(kvc_export_args *args) {
  kvc_export_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* The tensors that an export returned. A part that was not requested is NULL. Release each tensor by its deleter. */
typedef struct kvc_exported {
  uint32_t struct_size;
  uint32_t reserved;
  DLManagedTensorVersioned *k;       /* [tokens, Hkv, D] of the layer's dtype. float8: as uint8. uint4, float4 and row
                                        formats: uint8, with the bytes of a row in the last dim */
  DLManagedTensorVersioned *v;       /* [tokens, Hkv, Dv], with a dtype as k */
  DLManagedTensorVersioned *k_scale; /* scales of k, float32: [tokens, Hkv] for int8 and uint4; [Hkv] for float8 and
                                        float4. Row formats with scales after the rows of a page: [tokens, Hkv, scales of a
                                        row] uint8. FP8_BLOCKS has float32 instead, and no last dim if a row has one scale
                                        (128 dims) */
  DLManagedTensorVersioned *v_scale; /* scales of v, in the same shapes */
} kvc_exported;

static inline void kvc_exported_init(kvc_exported *exported) {
  kvc_exported zero = KVC_ZERO_STRUCT;
  *exported = zero;
  exported->struct_size = (uint32_t)sizeof(zero);
}

/* Copies K and V of one layer of one sequence into dense tensors. The copies are as stored: rotated, rounded or quantised.
 *   exported  filled; its tensors are returned, 256-byte aligned
 *   stream    as kvc_seq_fork
 * Other calls on the cache can run during the copy, and the pages of the sequence stay allocated meanwhile. Pages that
 * another call drops during the copy become free only after the copy. So if page ids must be equal on all ranks, make no
 * other call that changes the cache until this call has returned.
 * Errors: STALE_ID, BUSY (the sequence is in an open forward, or 32 exports run already), OUT_OF_RANGE (uncommitted tree
 * nodes cannot be exported), ORDER (a forward that stored these tokens did not cover the layer; available is the number of
 * tokens that the layer has), EVICTED (keys of the range were freed), UNSUPPORTED (scales of a layer without scales, a
 * recurrent layer, KVC_STORAGE_NONE). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_export(kvc_cache *cache, kvc_seq sequence, const kvc_export_args *args,
                                  kvc_exported *exported, void *stream, kvc_error *error);

enum kvc_import_flags {
  KVC_IMPORT_AS_STORED = 1 /* k and v are as kvc_seq_export gave them: see KVC_APPEND_AS_STORED */
};

typedef struct kvc_import_args {
  uint32_t struct_size;
  uint32_t flags;           /* KVC_IMPORT_* */
  int32_t num_layers;       /* number of layers of the cache */
  uint32_t reserved;        /* 0 */
  const DLTensor *const *k; /* [num_layers], each [T, Hkv, D] of that layer; T is the same in all, 1..max_batch_tokens. NULL
                               for a layer that reads K and V of another layer (kvc_layer_config.kv_layer), and for a cross
                               layer */
  const DLTensor *const *v; /* [num_layers], each [T, Hkv, Dv], or as kvc_append_args.v; NULL where k is NULL. Nullable if
                               every layer is MLA */
  const DLTensor *const *k_scale; /* nullable: no scales. [num_layers], each as kvc_append_args.k_scale, or NULL */
  const DLTensor *const *v_scale; /* the same for v */
} kvc_import_args;

static inline void kvc_import_args_init(kvc_import_args *args) {
  kvc_import_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Appends T tokens of dense K and V to a sequence in every layer, as kvc_forward_append does. With KVC_IMPORT_AS_STORED it
 * reverses kvc_seq_export, for a sequence without freed pages. (If keys are rotated by longrope, first give the new sequence
 * the same factors: kvc_seq_set_rope.) The import opens a forward of its own, which counts towards max_open_forwards.
 *   args    borrowed, tensors included
 *   stream  as kvc_seq_fork
 * Errors: those of kvc_forward_begin; those of kvc_forward_append, with the layer in error->index; UNSUPPORTED with a
 * recurrent group (use a forward, with KVC_APPEND_AS_STORED and kvc_forward_store_state), in a cache that has only cross
 * groups, and with KVC_STORAGE_NONE. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_import(kvc_cache *cache, kvc_seq sequence, const kvc_import_args *args, void *stream,
                                  kvc_error *error);

/* A copy of tokens that the engine must make in its own pools. Only a cache with KVC_STORAGE_NONE has such copies:
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
 * Four calls queue copies. kvc_seq_fork and kvc_prefix_attach copy a partial last page. begin copies a shared last page. A
 * commit moves kept nodes to the front, and can queue several copies for one sequence and group. The other calls queue at
 * most one for each sequence and group.
 *   Order   Make the copies one after another, in the order in which kvc_cache_take_copies gives them. Make the copies of a
 *           fork, attach or commit before the next step stores or reads anything. Make the copies of begin before the step
 *           that it begins reads the sequence.
 *   Taking  While copies of earlier calls wait, kvc_forward_begin returns ORDER, so that no step overwrites what they read.
 *           When max_sequences * num_groups copies wait, kvc_seq_fork, kvc_prefix_attach and kvc_seq_commit return
 *           ORDER too.
 *   Abort   An abort drops those copies of its step that were not taken. kvc_cache_clear drops all copies.
 * The layout of this struct never changes. */
typedef struct kvc_copy {
  int64_t source_slot; /* first slot to read. The `count` slots from there on are in one page */
  int64_t target_slot; /* first slot to write. The `count` slots from there on are in one page. The two ranges of a commit
                          may overlap, with target_slot below source_slot: copy as memmove does */
  int32_t group;       /* the copy is needed in every layer of this group */
  int32_t count;       /* number of tokens, >= 1 */
} kvc_copy;

/* Gives all copies that wait, and removes them from the cache. A cache with storage has no copies.
 *   copies     nullable if capacity is 0; [capacity], filled, elements item_size bytes apart
 *   item_size  sizeof(kvc_copy)
 *   count      filled with the number of waiting copies, also on BUFFER_TOO_SMALL. With capacity 0 they continue to wait
 * Errors: BUFFER_TOO_SMALL (never for capacity 0; nothing was taken), STRUCT_SIZE (item_size). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_take_copies(kvc_cache *cache, kvc_copy *copies, uint32_t item_size, int64_t capacity,
                                         int64_t *count, kvc_error *error);

/* ============================================================================================
 * 9  Statistics
 * ============================================================================================ */

/* Counts of one group or of the whole cache. "Since create" means since kvc_cache_create. */
typedef struct kvc_stats {
  uint32_t struct_size;
  int32_t num_sequences;       /* sequences that exist */
  int64_t pages_total;         /* pages of the group, or of all groups together */
  int64_t pages_used;          /* pages with at least one reference */
  int64_t pages_free;          /* pages_total - pages_used */
  int64_t pages_shared;        /* used pages that belong to two or more sequences */
  int64_t pages_peak;          /* the largest pages_used since create */
  int64_t tokens_held;         /* stored tokens; a shared token counts once (whole cache: those of the largest group) */
  int64_t tokens_shared;       /* those of tokens_held that belong to two or more sequences */
  int64_t tokens_logical;      /* sum of the lengths of all sequences, which a cache without sharing would store */
  int64_t fragmentation_bytes; /* bytes of slots without a token in used pages */
  int64_t storage_bytes;       /* bytes of the pools; as kvc_estimate.storage_bytes */
  int64_t pages_published;     /* pages that the prefix index refers to */
  int64_t pages_idle;          /* pages that only the prefix index refers to. Calls that are short of pages evict them. They
                                  count as used */
  int64_t pages_evicted;       /* idle pages that were evicted since create */
  int64_t prefix_attaches;     /* kvc_prefix_attach calls that succeeded since create. This number is the same in every
                                  group */
  int64_t prefix_tokens;       /* tokens that these attach calls found */
} kvc_stats;

static inline void kvc_stats_init(kvc_stats *stats) {
  kvc_stats zero = KVC_ZERO_STRUCT;
  *stats = zero;
  stats->struct_size = (uint32_t)sizeof(zero);
}

/* Counts pages and tokens of one group or of the whole cache. Pages of open forwards and of uncommitted trees count as used.
 * Tokens of open forwards and uncommitted trees do not count as held.
 *   group  group index, or -1 for the whole cache
 *   stats  filled
 * The call walks the page tables in use under the cache's lock, which takes microseconds for a thousand pages. It is meant
 * for dashboards. In a step, use kvc_cache_can_fit or kvc_seq_max_append.
 * Errors: OUT_OF_RANGE. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_stats(kvc_cache *cache, int32_t group, kvc_stats *stats, kvc_error *error);

/* Describes the present state of the cache as one JSON object: the pages of each group, the sequences and which pages they
 * share, the prefix index, tiers, and open forwards. The text has no tokens, and no keys of pages.
 * docs/reference/describe.md lists the fields.
 *   buffer, capacity, length  as kvc_context_describe. The text may be longer in a second call
 * The call walks the page tables in use under the cache's lock, and takes a few times as long as kvc_cache_stats. The
 * program `kvcache inspect` shows the text.
 * Errors: BUFFER_TOO_SMALL. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_describe(kvc_cache *cache, char *buffer, int64_t capacity, int64_t *length,
                                      kvc_error *error);

/* ============================================================================================
 * 10  Stateless calls: attention over a cache of the caller's own
 * ============================================================================================ */

/* These calls are for engines that keep K and V in their own tensors. They need a context, and no kvc_cache. The following
 * is a decode step over a paged cache:
 *
 *   kvc_flash_attn_args args;  kvc_flash_attn_args_init(&args);
 *   args.q = &q;  args.k = &k;  args.v = &v;  args.out = &out;           // of the new tokens, [B, 1, heads, dims]
 *   args.k_cache = &k_cache;  args.v_cache = &v_cache;                   // [pages, page_size, Hkv, dims]
 *   args.cache_seqlens = &lengths;  args.block_table = &table;           // int32 [B], [B, max_pages]
 *   args.flags = KVC_FLASH_ATTN_CAUSAL;
 *   if (kvc_flash_attn_with_kvcache(context, &args, NULL, &error)) return report(error.message);
 *
 * More letters: a call has B rows, which are sequences. A row has Sq queries and Sn new tokens. All rows together have Tq
 * queries and Tn new tokens.
 *
 * Tensors are borrowed and on the context's device. Index tensors (lengths, offsets, cache rows, slots, block_table) are
 * int32 or int64. They may have any stride, and stride 0 means one value for all. Lengths may have rank 0. On a GPU, the
 * index tensors of a call are either all on the host or all on the device. (An index tensor of rank 0 may be on the host in
 * both cases.)
 *   On the host    The call reads and checks every value once.
 *   On the device  The call reads nothing back, uploads nothing and waits for nothing. The shapes give the largest possible
 *                  sizes, which decide how the work is divided. At each replay, a captured call uses the values that its
 *                  index tensors have then. The call skips a row with a value out of its range: it stores nothing of the
 *                  row, and does not write the row of out. It checks page ids only with KVC_CONTEXT_VALIDATE, which also
 *                  reports the bad value. */

enum kvc_flash_attn_flags {
  KVC_FLASH_ATTN_CAUSAL = 1,             /* a query sees no later key, as with window_right 0 */
  KVC_FLASH_ATTN_ROTARY_INTERLEAVED = 2, /* rotated pair i is dims 2i, 2i+1. Without this flag: i, i + rotary_dim/2 */
  KVC_FLASH_ATTN_WINDOW_LEFT = 4,        /* window_left applies. Without this flag, a query sees all keys before it */
  KVC_FLASH_ATTN_WINDOW_RIGHT = 8,       /* window_right applies. Without this flag, a query sees all keys after it */
  KVC_FLASH_ATTN_ALIBI_SIGNED = 16       /* as KVC_ATTEND_ALIBI_SIGNED */
};

typedef struct kvc_flash_attn_args {
  uint32_t struct_size;
  uint32_t flags;          /* KVC_FLASH_ATTN_* */
  const DLTensor *q;       /* [B, Sq, Hq, D], or with cu_seqlens_q [>= Tq, Hq, D]. float32, float16 or bfloat16; without
                              rotary also float8. In this tensor, and in all tensors below whose last dimension is the head
                              dim, the innermost stride is 1 */
  const DLTensor *k_cache; /* [pages, page_size, Hkv, D] with block_table, else [cache rows, capacity, Hkv, D]. float32,
                              float16, bfloat16, float8_e4m3fn or float8_e5m2. The other strides are free, so a cache in HND
                              order can be given as a transposed view. It is written if k is given. Any page size, any D and
                              Dv up to 1024 */
  const DLTensor *v_cache; /* the shape of k_cache with Dv in place of D, of the same dtype. k_cache and v_cache may be views
                              of one buffer if they have no element in common */
  const DLTensor *k;       /* nullable, together with v: nothing is appended. [B, Sn, Hkv, D], or with cu_seqlens_k_new
                              [>= Tn, Hkv, D]. The new keys are stored after the cached tokens of each row, before attention
                              is computed. float32, float16, bfloat16, or the dtype of the cache, which is stored
                              unchanged */
  const DLTensor *v;       /* nullable, together with k; the shape of k with Dv in place of D */
  const DLTensor *qv;      /* nullable: none. Absorbed latent attention: the latent part of the queries, with the shape of q
                              with Dv in place of D, and the dtype of q. Scores are then q.k + qv.v: v_cache has the latent
                              rows, and k_cache has their rotary parts. D + Dv <= 1152. It is fast if Hkv is 1 and each row
                              of k_cache is stored directly after the same row of v_cache */
  const DLTensor *out;     /* written; [B, Sq, Hq, Dv] or [>= Tq, Hq, Dv]; float32, float16 or bfloat16 */
  const DLTensor *softmax_lse;  /* nullable: not computed. Written; [B, Hq, Sq], or with cu_seqlens_q [Hq, >= Tq], float32:
                                   the natural logarithm of the sum of exponentials of the scores, with the logit of the
                                   sink */
  const DLTensor *cache_seqlens;     /* [B], or of rank 0: the number of cached tokens of each row, without the new tokens.
                                        The call does not change it. Nullable without k: each row has the whole capacity */
  const DLTensor *seqused_k;         /* nullable: another name for cache_seqlens. Only one of the two may be given */
  const DLTensor *cache_batch_idx;   /* nullable: row b uses cache row b. [B]: the cache row of each row, or with block_table
                                        the row of block_table. With k, all entries must differ */
  const DLTensor *cache_leftpad;     /* nullable: 0. [B]: index of the first valid key of each row, at most cache_seqlens */
  const DLTensor *block_table;       /* nullable: the cache is not paged. [rows, max_pages], stride 1 between columns: the
                                        page ids of each row, in order of position. Entries that the call does not use may
                                        have any value, such as -1 */
  const DLTensor *cu_seqlens_q;      /* nullable: q is [B, Sq, Hq, D]. [B + 1], begins with 0 and never descends: the queries
                                        of row b are [cu_seqlens_q[b], cu_seqlens_q[b+1]) */
  const DLTensor *cu_seqlens_k_new;  /* nullable; [B + 1]: the same for k and v; ignored without k */
  const DLTensor *rotary_cos;        /* nullable, together with rotary_sin; only with k. [positions, rotary_dim/2] float32,
                                        float16 or bfloat16. The first rotary_dim dims of q and k are rotated. The new keys
                                        of row b have the positions cache_seqlens[b], cache_seqlens[b] + 1, and so on. Its
                                        queries have the same positions. But without causal and windows, all queries of row b
                                        have position cache_seqlens[b]. Left padding does not change the positions */
  const DLTensor *rotary_sin;        /* as rotary_cos */
  const DLTensor *rotary_seqlens;    /* nullable; [B]: the position of the first new token of each row, in place of
                                        cache_seqlens. Ignored without k or rotary_cos */
  const DLTensor *q_descale;         /* nullable; [B, Hkv] float32, with float8 q: q is multiplied by it */
  const DLTensor *k_descale;         /* nullable; [B, Hkv] float32, with a float8 cache: k_cache is multiplied by it. New k
                                        that is not float8 is stored as k / k_descale, rounded to the nearest value (ties to
                                        even). If the quotient is out of the range of the type, the largest finite value is
                                        stored, with its sign */
  const DLTensor *v_descale;         /* nullable; [B, Hkv]: the same for v */
  const DLTensor *alibi_slopes;      /* nullable; [Hq] or [B, Hq] float32: slope * |p_q - p_k| is subtracted from scores (see
                                        KVC_ATTEND_ALIBI_SIGNED) */
  const DLTensor *sinks;             /* nullable; [Hq] float32, float16 or bfloat16: a logit for each head, which takes part
                                        in the softmax without a value */
  double softmax_scale;    /* 1e-30..1e30; 0 = D^-0.5, with qv (D + Dv)^-0.5 */
  double softcap;          /* a score becomes softcap * tanh(score / softcap); 1e-6..1e30; 0 = no cap */
  int32_t window_left;     /* with KVC_FLASH_ATTN_WINDOW_LEFT: >= 0, a query at position p sees no key before
                              p - window_left. Else 0 */
  int32_t window_right;    /* with KVC_FLASH_ATTN_WINDOW_RIGHT: >= 0, a query at position p sees no key after
                              p + window_right. Else 0 */
  int32_t attention_chunk; /* c > 0: a query at position p sees only keys j with j/c == p/c. p and j are counted from the
                              first valid key. 0 = no chunks */
  int32_t num_splits;      /* number of parts into which the keys of each row are divided, at most 256; fewer if there are
                              few keys. 0 = chosen by cost */
  const DLTensor *indices; /* nullable: no lists. [B, Sq, 1 or Hkv, k] int32, or with cu_seqlens_q [>= Tq, 1 or Hkv, k]; k at
                              most KVC_MAX_LISTED_KEYS. See kvc_flash_attn_with_kvcache */
} kvc_flash_attn_args;

static inline void kvc_flash_attn_args_init(kvc_flash_attn_args *args) {
  kvc_flash_attn_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Appends k and v to the caller's cache, if they are given, and computes attention over the cache. Arguments and results are
 * those of flash_attn_with_kvcache of FlashAttention 2 and 3.
 *   args    borrowed, tensors included. The call checks every value of index tensors on the host before it writes anything
 *   stream  the device's stream; NULL on the CPU
 * Let a row have L valid keys, the new ones included, and n queries. Query i has position p = L - n + i, so the last query
 * sees the last key. If p is negative, a causal query sees no key. A query that sees no key has output 0 and LSE -inf. With
 * a sink, its LSE is the logit of the sink. Rows of q from cu_seqlens_q[B] on are not written in out.
 *
 * With indices, a query attends to the slots of k_cache that its list names, and nothing else hides a key. (FlashMLA's
 * sparse decoding works in the same way.) A slot is page * page_size + offset, and k_cache is [pages, page_size, Hkv, D].
 * Negative entries are padding. A slot that occurs twice counts once. Slots have no positions, so all arguments that need
 * lengths or positions must be absent: k, v, block_table, cache_seqlens, seqused_k, cache_batch_idx, cache_leftpad,
 * alibi_slopes, windows, chunks, and KVC_FLASH_ATTN_CAUSAL.
 *
 * Two rows must not append to the same slot. A call allocates memory only if it needs more than all earlier calls.
 * Errors (nothing written): NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED (rotary of float8; qv with
 * k_descale or v_descale; dims; indices on a backend that does not attend over lists), INVALID_ARGUMENT (arguments that
 * contradict each other; a tensor that is written shares elements with another one; a cache row twice with k), OUT_OF_RANGE
 * (a page id, slot, index, length or position, with the row in error->index), BUFFER_TOO_SMALL (a cache row without room for
 * its new tokens; required and available are in tokens, and error->index is the row).
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
  const DLTensor *k;            /* [>= T, Hkv, D] float32, float16, bfloat16, or the dtype of the cache, which is stored
                                   unchanged; innermost stride 1. Latent form: the rotary parts, [>= T, 1, D - L], not
                                   float8 */
  const DLTensor *v;            /* [>= T, Hkv, Dv], as k. Latent form: the latent parts, [>= T, 1, L], not float8 */
  const DLTensor *k_cache;      /* written; [pages, page_size, Hkv, D] as kvc_flash_attn_args.k_cache. Latent form:
                                   [pages, page_size, 1, D], whose rows are [latent | rotary] */
  const DLTensor *v_cache;      /* written; [pages, page_size, Hkv, Dv] of the same dtype. NULL = the latent form, in which
                                   k_cache has whole MLA rows */
  const DLTensor *slot_mapping; /* int32 or int64 [T]: the slot of each row, page * page_size + offset. A row with a negative
                                   slot is skipped. T is at most 2^26 */
  const DLTensor *k_scale;      /* nullable: every scale is 1. [1] or [Hkv] float32, with a float8 cache: k (latent form: the
                                   whole row) is stored as k / k_scale, rounded to the nearest value (ties to even). If the
                                   quotient is out of the range of the type, the largest finite value is stored, with its
                                   sign */
  const DLTensor *v_scale;      /* nullable; the same for v (latent form: NULL) */
  const DLTensor *rotary_cos;   /* nullable, together with rotary_sin and positions: k is not rotated. As in
                                   kvc_flash_attn_args: the first dims of k are rotated */
  const DLTensor *rotary_sin;   /* as rotary_cos */
  const DLTensor *positions;    /* nullable, together with rotary_cos; int32 or int64 [T]: for each stored token, the row of
                                   rotary_cos and rotary_sin by which it is rotated */
} kvc_append_slots_args;

static inline void kvc_append_slots_args_init(kvc_append_slots_args *args) {
  kvc_append_slots_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Stores rows of k and v in the caller's own paged cache, at the slots in slot_mapping, whose length is T. If several rows
 * have the same slot, one of them is stored, but it is not defined which one.
 *   args    borrowed, tensors included. The call checks every slot and position on the host before it writes anything. If
 *           slot_mapping and positions are on a GPU, a token is skipped if its slot is outside of the cache, or if its
 *           position has no cos and sin
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
 * Tables tell the attention kernels of an engine where the keys of a step are: block tables, lengths, slots. A cache makes
 * them for an open forward (kvc_forward_tables). For a server with its own allocator, a plan makes them from the arrays of
 * the server (kvc_plan_*). docs/reference/tables.md lists the kinds of steps, and says what each array means.
 *
 *   kvc_tables tables;  kvc_tables_init(&tables);
 *   if (kvc_forward_tables(cache, step, group, &tables, &error)) return report(error.message);
 *   fa3(q, k_pool, v_pool, &tables.block_table, &tables.cache_seqlens, &tables.cu_seqlens_q, tables.max_seqlen_q,
 *       tables.causal);
 *
 * A table lists exactly the keys that queries see, so a kernel needs no mask except causality. It needs a window only if a
 * row has several queries, in a sliding group or with a streaming window. Where one table cannot express what queries see,
 * there are two tables. Compute attention with each of them, and merge the two results by kvc_merge_states. */

enum kvc_tables_part {
  KVC_TABLES_WHOLE = 0,    /* all keys of each row */
  KVC_TABLES_PREFIX = 1,   /* in steps with branches (trees; drafts with top_k > 1): the keys that all branches share */
  KVC_TABLES_BRANCHES = 2, /* in steps with branches: the other keys of each branch. Each token has a row with its visible
                              ancestors and the token itself */
  KVC_TABLES_ENCODER = 3   /* in plans with encoder_lens: the keys of the encoder */
};

enum kvc_tables_flags {
  KVC_TABLES_PAD_VALUE = 1, /* pad_value is the padding. Without this flag it is -1, and in graph mode 0 */
  KVC_TABLES_SLOTS = 2      /* tables have page size 1: they list slots in place of pages, and have no leftpad */
};

enum kvc_tables_arrays {
  KVC_TABLES_DENSE = 1, /* block_table */
  KVC_TABLES_CSR = 2,   /* indptr, indices, last_page_len */
  KVC_TABLES_TOKENS = 4 /* slot_mapping, positions, last_rows */
};

/* Tables of one step. A table has one row for each row of the batch, in the same order. But a row of the batch with chunks
 * or branches has several rows of the table, and batch_rows gives the row of the batch for each of them. Tensors are
 * borrowed, on the device, int32 and compact unless their comments say otherwise. A tensor that was not requested has ndim
 * 0. In graph mode, shapes and maxima are those of the capacity. */
typedef struct kvc_tables {
  uint32_t struct_size;
  /* Inputs, which are set before the call. For a plan, set only part: its config has the other inputs. */
  uint32_t flags;           /* KVC_TABLES_PAD_VALUE | KVC_TABLES_SLOTS */
  int32_t part;             /* KVC_TABLES_* part */
  int32_t pad_value;        /* with KVC_TABLES_PAD_VALUE: the entries of block_table after the pages of a row */
  uint32_t arrays;          /* KVC_TABLES_DENSE | ...; 0 = all */
  /* Outputs. */
  uint32_t causal;          /* 1: the queries of a row are its last keys, and each query sees the keys up to itself. 0: each
                               query sees all keys of its row */
  /* If a plan is built from arrays on the device, the host has only shapes. Then num_rows and num_queries are the capacity,
   * and num_pages and num_keys are -1. */
  int32_t num_rows;         /* R, the number of rows of the table */
  int32_t num_queries;      /* T, the number of queries of all rows */
  int32_t page_size;        /* page size of block_table and of the CSR arrays: that of the group, or 1 with
                               KVC_TABLES_SLOTS */
  int32_t max_seqlen_q;     /* a number on the host: the largest number of queries of a row */
  int32_t max_seqlen_k;     /* a number on the host: the largest element of cache_seqlens */
  int32_t max_pages;        /* columns of block_table */
  int64_t num_pages;        /* number of pages of all rows together, which is the used length of indices */
  int64_t num_keys;         /* the last element of cu_seqlens_k */
  uint64_t generation;      /* of a plan: the number of the build (kvc_plan_check). Of a graph: the number of the step. Else
                               0 */
  DLTensor block_table;     /* [R, max_pages], with a stride between rows: page ids, then padding (FlashAttention) */
  DLTensor cache_seqlens;   /* [R]: tokens in the row's pages up to its last key, leftpad and hole included; 0 = no keys */
  DLTensor cu_seqlens_q;    /* [R + 1]: the queries of row r are tokens [cu_seqlens_q[r], cu_seqlens_q[r+1]) of the step */
  DLTensor cu_seqlens_k;    /* [R + 1]: running sums of the number of keys of each row; leftpad and hole do not count */
  DLTensor indptr;          /* [R + 1]: the pages of row r are indices[indptr[r]..indptr[r+1]) (FlashInfer) */
  DLTensor indices;         /* [num_pages]: page ids of all rows */
  DLTensor last_page_len;   /* [R]: tokens in the last page of the row, 1..page_size; 0 for a row without pages */
  DLTensor key_starts;      /* [R]: position of the first key of the row after any sinks (k_start); 0 in a table that lists
                               keys one by one */
  DLTensor leftpad;         /* [R]: tokens of the row's first page before its first key (cache_leftpad) */
  DLTensor batch_rows;      /* [R]: row of the batch; -1 = unused (graph mode) */
  DLTensor sink_tokens;     /* [R], only if a row has a streaming window: the number of tokens at the start of the row that
                               every query sees */
  DLTensor hole_tokens;     /* [R], together with sink_tokens: the number of tokens after the sinks that no query sees. The
                               keys of the window follow after them */
  DLTensor slot_mapping;    /* int64 [T]: slot of each new token; -1 = padding */
  DLTensor positions;       /* [T]: position of each new token; a tree node has length + depth */
  DLTensor last_rows;       /* [rows of the batch]: index in [0, T) of the last token of each row; -1 = none */
  DLTensor generation_word; /* int64 [1], of a plan or a graph: the generation of the contents of the arrays. Kernels of a
                               captured graph can compare it. 0 = the arrays are stale, and kernels must write nothing */
} kvc_tables;

static inline void kvc_tables_init(kvc_tables *tables) {
  kvc_tables zero = KVC_ZERO_STRUCT;
  *tables = zero;
  tables->struct_size = (uint32_t)sizeof(zero);
}

/* Gives the tables of an open forward in one group, the new tokens included. The kind of the group decides which keys a row
 * lists:
 *   full       all keys. For a row with a streaming window: the pages of the sinks, then the pages of the window. The tokens
 *              between the two are the hole (hole_tokens)
 *   sliding    the last pages only, beginning with the first key that the first query of the row sees
 *   chunked    for each row of the batch, one table row for each chunk in which it has queries. The keys begin with the
 *              first key of the chunk
 *   cross      the keys of the encoder
 *   trees      parts PREFIX and BRANCHES, also for rows without a tree in the same batch. WHOLE if every tree is a chain
 *   tables     inputs: flags, part, arrays, pad_value. The call fills the rest. It is valid until the next
 *              kvc_forward_tables for the same forward, group, part and flags, or until the forward closes
 * Errors: STALE_ID, BUSY, OUT_OF_RANGE (group), INVALID_ARGUMENT (a recurrent group; an unknown part; a forward of encoder
 * tokens, with another group than its encoder_group; WHOLE of a tree that branches; PREFIX without trees; other arrays or
 * padding than in the graph's first call), UNSUPPORTED (spans; slots of a pool beyond 2^31 tokens), BATCH_TOO_LARGE (2^31
 * keys and more; a row with more than the graph's max_pages_per_row). Threads: as kvc_forward_attend. The cost grows with
 * the number of pages in the tables.
 * Since 0.1. */
KVC_API kvc_status kvc_forward_tables(kvc_cache *cache, kvc_forward forward, int32_t group, kvc_tables *tables,
                                      kvc_error *error);

/* A plan makes the same tables for a server with its own allocator. The mode of a plan is the kind of its steps.
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
 * The server lists where the tokens of a row are, as slots in a row of req_to_token or as page ids in a row of block_table.
 * Entry i of a row is the place of one token: the slot in column i of req_to_token, or place i % page_size of the page in
 * column i / page_size of block_table. A row has the tokens of its encoder first, if any, and then its own tokens by
 * position. New tokens are included: the server must allocate places for them before the build. */
enum kvc_plan_mode {
  KVC_PLAN_DECODE = 0,      /* each row has one new token. Parts: WHOLE (and ENCODER) */
  KVC_PLAN_EXTEND = 1,      /* row i has append_lengths[i] new tokens: prefill with or without a cached prefix, also mixed
                               with decoding rows, and draft extend. Parts: WHOLE (and ENCODER) */
  KVC_PLAN_VERIFY = 2,      /* each row has num_draft_tokens new tokens. Parts: WHOLE for a chain. With tree_parents: PREFIX
                               and BRANCHES */
  KVC_PLAN_DRAFT_DECODE = 3 /* num_steps draft steps in one build. Step s adds token s to each of the top_k branches of a
                               row. If top_k is 1, the part is WHOLE, and the new token of step s is entry seq_len + s. If
                               top_k is larger, the parts are PREFIX, with whole pages only, and BRANCHES. In the row, a
                               region of whole pages for each branch follows after the whole pages of the prefix. A region
                               begins with the tokens of the prefix's partial last page, and then has the drafts of the
                               branch. In branch 0 these first tokens are in place, and the server copies them to the other
                               regions */
};

enum kvc_plan_flags {
  KVC_PLAN_GRAPH = 1,           /* graph mode: arrays have the size of the capacity, and their addresses never change. Set
                                   the max_* fields */
  KVC_PLAN_PAD_VALUE = 2,       /* pad_value is the padding. Without this flag it is -1, and in graph mode 0 */
  KVC_PLAN_SLOTS = 4,           /* tables have page size 1: they list slots in place of pages, and have no leftpad */
  KVC_PLAN_LENGTHS_WITH_NEW = 8 /* seq_lens count the new tokens of the step too, and a row of length 0 is inert. Not with
                                   DRAFT_DECODE. Without this flag, seq_lens count only the tokens before the step */
};

typedef struct kvc_plan_config {
  uint32_t struct_size;
  uint32_t flags;            /* KVC_PLAN_* */
  int32_t mode;              /* KVC_PLAN_* mode */
  int32_t page_size;         /* tokens of a page, 1..65536; 0 = 16 */
  int32_t num_draft_tokens;  /* VERIFY: 1..1024. Else 0 */
  int32_t num_steps;         /* DRAFT_DECODE: 1..64. Else 0 */
  int32_t top_k;             /* DRAFT_DECODE: branches of a row, 1..64; 0 = 1. Else 0 */
  int32_t pad_value;         /* with KVC_PLAN_PAD_VALUE: the entries of block_table after the pages of a row */
  uint32_t arrays;           /* KVC_TABLES_DENSE | ...; 0 = all */
  int32_t max_rows;          /* graph mode: rows of a batch, 1..1048576. Else 0 */
  int32_t max_tokens;        /* graph mode with EXTEND: new tokens of a batch, 1..1048576. Else 0 */
  int32_t max_pages_per_row; /* graph mode: columns of block_table, 1..2^26. Else 0 */
  int64_t window_tokens;     /* w > 0: a query sees the last w keys, its own included, so tables list the last pages only.
                                0 = a query sees all keys */
  int64_t chunk_tokens;      /* c > 0: a query sees the keys of its own chunk of c positions, up to itself. A row with
                                queries in several chunks has a table row for each of these chunks. 0 = no chunks. Not with
                                window_tokens */
  int64_t num_pool_pages;    /* number of pages of the server's pool, 1..2^31 / page_size. Entries of tables are checked
                                against it. 0 = unknown, which allows ids up to 2^31 / page_size */
} kvc_plan_config;

static inline void kvc_plan_config_init(kvc_plan_config *config) {
  kvc_plan_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

enum kvc_plan_build_flags {
  KVC_PLAN_ROWS_GREW = 1 /* DECODE, EXTEND: the caller promises that the rows are those of the last build, in the same order.
                            Each row is at least as long as before, and still has all pages that it had. Then the build reads
                            only what is new. (It always writes CSR arrays whole) */
};

/* The arrays of a step. All are borrowed. All are on the host, or, for a plan with KVC_PLAN_GRAPH, all are on the context's
 * device. Arrays of one dimension are int32 or int64, and compact. Tables are int32 with innermost stride 1. */
typedef struct kvc_plan_args {
  uint32_t struct_size;
  uint32_t flags;                 /* KVC_PLAN_ROWS_GREW */
  const DLTensor *seq_lens;       /* [B]: tokens of each row, 0..2^30, without encoder tokens. B may be 0 */
  const DLTensor *append_lengths; /* EXTEND: [B], the number of new tokens of each row, >= 0. Else NULL */
  const DLTensor *rows;           /* nullable: row i of the batch uses row i of block_table or req_to_token. [B]: the row
                                     that each row of the batch uses; -1 = an inert row, whose tokens are padding */
  const DLTensor *block_table;    /* [rows, columns]: page ids. Give either block_table or req_to_token */
  const DLTensor *req_to_token;   /* [rows, columns]: the slot of each token. With a page size above 1, the tokens of a page
                                     must have consecutive slots, and the first slot must be a multiple of page_size */
  const DLTensor *encoder_lens;   /* nullable: no encoder tokens. DECODE, EXTEND: [B], the number of encoder tokens before
                                     the tokens of each row */
  const DLTensor *tree_parents;   /* nullable: drafts are chains. VERIFY: [B * num_draft_tokens], the parent of each draft
                                     within its row, or -1 for a root. Parents come before their children */
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

/* Makes the tables of a step, for all its draft steps and parts. It reads the arrays on the stream and writes on the
 * context's device.
 *   args        borrowed, arrays included
 *   stream      the device's stream; NULL on the CPU
 *   generation  nullable; filled: the number of this build
 * Arrays on the host are checked before anything is written. A build that fails does not change the tables, but makes them
 * stale: their generation word is 0 until a build succeeds. Arrays on a device are read by kernels, and the call does not
 * wait for them. If lengths, rows, parents or sizes in such arrays are wrong, the device does not change the tables, and
 * sets the generation word to 0. It checks page ids and slots only with KVC_CONTEXT_VALIDATE. kvc_plan_check then reports
 * only which build was enqueued last.
 *
 * In graph mode the arrays keep their addresses, and entries that a smaller batch does not use are inert. Memory is
 * allocated only for a step that is larger than all earlier steps.
 * Errors: NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE; INVALID_ARGUMENT (arrays that the mode does not use; both
 * block_table and req_to_token; KVC_PLAN_ROWS_GREW with other rows than the last build, or with a shorter row; in
 * req_to_token, a page whose first slot is not a multiple of page_size); OUT_OF_RANGE (a length; an entry of a table, where
 * the message has row, column, id and limit; a table with too few columns); BATCH_TOO_LARGE (graph mode: required and
 * available; 2^31 keys and more). error->index is the row. Threads: one at a time for one plan. Since 0.1.
 * From: metadata as SGLang's FlashAttention backend makes it; virtual batches for chunks as in Llama 4's local attention. */
KVC_API kvc_status kvc_plan_build(kvc_plan *plan, const kvc_plan_args *args, void *stream, uint64_t *generation,
                                  kvc_error *error);

/* Gives the tables that the last build made.
 *   step    DRAFT_DECODE: 0..num_steps - 1; else 0
 *   tables  input: part. The call fills the rest, which is valid until the next build, or in graph mode until
 *           kvc_plan_destroy
 * Errors: STALE (there was no build, or the last build failed), OUT_OF_RANGE (step), INVALID_ARGUMENT (a part that the plan
 * does not have; inputs that belong to the config). Threads: as kvc_plan_build. Since 0.1. */
KVC_API kvc_status kvc_plan_tables(kvc_plan *plan, int32_t step, kvc_tables *tables, kvc_error *error);

/* Checks that the arrays of a plan are those of build `generation`. Call it before you replay recorded calls over the
 * tables.
 * Errors: STALE (the arrays are those of another build, or the last build failed). Threads: as kvc_plan_build. Since 0.1. */
KVC_API kvc_status kvc_plan_check(kvc_plan *plan, uint64_t generation, kvc_error *error);

/* ============================================================================================
 * 12  Prefix index: what the cache remembers
 * ============================================================================================
 * A cache with KVC_CACHE_PREFIX_INDEX can keep the pages of tokens after their sequence is removed. A later request that
 * begins with the same tokens uses these pages, and computes only the rest. The loop of an engine:
 *
 *   kvc_prefix_query query;  kvc_prefix_query_init(&query);
 *   query.tokens = prompt;  query.num_tokens = n;  query.salt = tenant;
 *   kvc_prefix_hit hit;  kvc_prefix_hit_init(&hit);
 *   kvc_seq seq;
 *   if (kvc_prefix_attach(cache, &query, stream, &hit, &seq, &error)) return report(error.message);
 *   ... a forward that appends prompt[hit.tokens .. n) to seq ...         // at least one token, for its logits
 *   kvc_prefix_publish(cache, seq, &query, NULL, NULL, &error);           // other requests can now find the prompt
 *   ... forwards that append one token each; `prompt` and n grow ...
 *   query.tokens = prompt;  query.num_tokens = n;
 *   kvc_prefix_publish(cache, seq, &query, NULL, NULL, &error);           // the answer too, for the next request
 *   kvc_seq_remove(cache, 1, &seq, &error);                               // the pages stay until other calls need them
 *
 *   Sharing   Whole pages are shared. A part of a page, of one token or more, is copied to a new page of the new sequence.
 *   Groups    A hit is the longest prefix that every group can serve. Full groups need every page up to the end of the hit.
 *             Sliding and chunked groups need the pages that the next query sees. Recurrent groups need the states after
 *             exactly these tokens. The index has states for the lengths at which sequences were published. The index
 *             ignores cross groups, so the new sequence has no encoder tokens.
 *   Eviction  A published page that no sequence and no pin holds is idle. kvc_forward_begin, kvc_seq_fork, kvc_seq_import
 *             and kvc_prefix_attach evict idle pages when they are short of pages. They evict expired prefixes first, then
 *             prefixes of lower priority, then those that kvc_cache_config.prefix_policy chooses. A prefix is evicted after
 *             all prefixes that continue it. OUT_OF_PAGES means that there are too few pages even if all idle pages were
 *             evicted. Pages that a failed or aborted call evicted stay evicted. Equal calls evict equal pages, so page ids
 *             are equal on every rank.
 *   Salts     Tokens under different salts, adapters or media never match. K and V must depend only on these and on the
 *             tokens so far. So use a different salt for each tenant, and for everything else that changes K and V.
 *   Media     A span of tokens may stand for an image or other media, as in section 13. Give the spans with each query.
 *             Equal tokens before the first difference of the media still match.
 *   Time      The library reads no clock. Give it the time with kvc_cache_set_time.
 * In a cache without KVC_CACHE_PREFIX_INDEX, every call of this section except kvc_cache_set_time returns UNSUPPORTED. */

enum kvc_prefix_query_flags {
  KVC_PREFIX_ALLOW_ALL = 1 /* match and attach may find all tokens of the query. By default they leave out the last token,
                              because an engine needs its logits */
};

/* The tokens that a call looks for in the prefix index. */
typedef struct kvc_prefix_query {
  uint32_t struct_size;
  uint32_t flags;        /* KVC_PREFIX_*; only match and attach use it */
  const int32_t *tokens; /* borrowed; [num_tokens], on the host; nullable if num_tokens is 0. Any numbers are allowed */
  int64_t num_tokens;    /* 0..2^30 */
  uint64_t salt;         /* any number; 0 = no salt */
  int64_t salt_begin;    /* >= 0: the salt applies to the page that contains this token, and to all later pages. Earlier
                            pages have salt 0. So several tenants can share a system prompt, and nothing after it. The
                            fields below are those of kvc_page_keys_args. Their arrays are borrowed, and on the host */
  const uint8_t *adapter;      /* [adapter_bytes]; nullable if adapter_bytes is 0 = no adapter. It applies to all tokens */
  int64_t adapter_bytes;       /* 0..2^20 */
  int64_t num_media;           /* number of spans of tokens that stand for an image or other media; 0..2^30. They may lie
                                  beyond the tokens of the query */
  const int64_t *media_begins; /* [num_media]: position in the sequence of the first token of each span, ascending */
  const int64_t *media_tokens; /* [num_media]: number of tokens of each span, > 0. The spans do not overlap */
  const uint8_t *media_hashes; /* [num_media, 32]: a hash of the media of each span, and of all settings that change how the
                                  model encodes the media */
} kvc_prefix_query;

static inline void kvc_prefix_query_init(kvc_prefix_query *query) {
  kvc_prefix_query zero = KVC_ZERO_STRUCT;
  *query = zero;
  query->struct_size = (uint32_t)sizeof(zero);
}

/* What the index has of the tokens of a query. */
typedef struct kvc_prefix_hit {
  uint32_t struct_size;
  int32_t limited_by;    /* -1 = no group makes the hit shorter than known_tokens and the query allow. Else a group that
                            does: it lacks the page that begins at `tokens`, or (recurrent) a state at a later position */
  int64_t tokens;        /* length of the longest prefix that every group can serve */
  int64_t copied_tokens; /* how many of these tokens are in a partial last page, which attach copies */
  int64_t known_tokens;  /* length of the longest prefix that was published, even if its pages were evicted */
  int64_t load_tokens;   /* with tiers: what `tokens` would be after kvc_prefix_load, as far as the tiers have searched. It
                            leaves out tokens that are faster to compute (section 16). Without tiers: `tokens` */
  int64_t load_ns;       /* with tiers: estimated time of this load in nanoseconds, from measurements of the tiers;
                            0 = nothing to load, or not measured */
  int64_t token_ns;      /* the time to compute one token, in nanoseconds, as the cache has measured it (section 16);
                            0 = not measured */
  int32_t num_tiers;     /* number of tiers that the call has searched, 0..8: match and load search all tiers of the cache,
                            attach and pin search none */
  uint32_t reserved;     /* 0 */
  int64_t tier_tokens[8]; /* [num_tiers], in the order in which the tiers were added: number of tokens after `tokens` that
                            each tier has, so far as all groups can serve them, also where computing is faster. A token whose
                            pages are in several tiers counts for the last tier from which a load would take one of them */
} kvc_prefix_hit;

static inline void kvc_prefix_hit_init(kvc_prefix_hit *hit) {
  kvc_prefix_hit zero = KVC_ZERO_STRUCT;
  *hit = zero;
  hit->struct_size = (uint32_t)sizeof(zero);
}

/* Finds what kvc_prefix_attach would find, and changes nothing.
 *   query  borrowed, tokens included
 *   hit    filled
 * The cost grows with the number of pages that the call looks up.
 * Errors: OUT_OF_RANGE (a field of the query). Threads: any. Since 0.1. From: prefix reuse as in SGLang's
 * RadixAttention. */
KVC_API kvc_status kvc_prefix_match(kvc_cache *cache, const kvc_prefix_query *query, kvc_prefix_hit *hit,
                                    kvc_error *error);

/* Makes a new sequence that holds the longest prefix of the query that every group can serve. If nothing is found, the
 * sequence is empty. Like any other sequence, it can be appended to, forked, truncated and published. In groups with a
 * window it holds the keys that its next query sees, and the part of the rollback margin that the index has.
 *   query     borrowed, tokens included
 *   stream    the device's stream for copies of partial pages; NULL on the CPU
 *   hit       nullable: filled
 *   sequence  filled
 * Errors: OUT_OF_RANGE (a field of the query), TOO_MANY_SEQUENCES, OUT_OF_PAGES (one page a group for the copy), ORDER
 * (KVC_STORAGE_NONE: too many copies wait), OUT_OF_MEMORY (nodes of page lists). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_prefix_attach(kvc_cache *cache, const kvc_prefix_query *query, void *stream, kvc_prefix_hit *hit,
                                     kvc_seq *sequence, kvc_error *error);

enum kvc_prefix_options_flags {
  KVC_PREFIX_KEEP_PRIVATE = 1 /* no tier stores the pages that this publish adds to the index */
};

typedef struct kvc_prefix_options {
  uint32_t struct_size;
  int32_t priority;     /* 0..100: prefixes of lower priority are evicted first. If several publishes share tokens, these
                           tokens have the highest priority of all these publishes */
  uint64_t session;     /* 0 = no session. Else a number of the caller's choice, under which kvc_prefix_drop_session can drop
                           the prefix */
  int64_t time_to_live; /* 0 = no limit. Else, in the unit of kvc_cache_set_time: the tokens expire this long after now.
                           Expired tokens can still be found, but are evicted first */
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
  int64_t known_tokens; /* tokens of the query that the index has now. These are not all tokens if the index is full of pages
                           in use */
  int64_t pages_added;  /* pages of all groups that were not in the index before */
  int64_t pages_freed;  /* pages of the sequence that became free, because the index had other pages with the same tokens */
} kvc_prefix_published;

static inline void kvc_prefix_published_init(kvc_prefix_published *published) {
  kvc_prefix_published zero = KVC_ZERO_STRUCT;
  *published = zero;
  published->struct_size = (uint32_t)sizeof(zero);
}

/* Makes the first tokens of a sequence findable for other requests. The index takes references to the pages of the sequence,
 * and copies nothing. If the index already has whole pages with the same tokens, the sequence uses them in place of its own
 * pages. Publish again while the sequence grows.
 *   sequence   its appended tokens must be the tokens of the query, which the library cannot check
 *   query      borrowed; num_tokens is at most the length of the sequence. With a recurrent group, a smaller num_tokens must
 *              be a checkpoint of the sequence (kvc_seq_checkpoint). Otherwise a search finds these tokens only as a part of
 *              a longer published prefix
 *   options    nullable: all zero; borrowed
 *   published  nullable: filled
 * If the last page of the sequence is partial and was published, the next forward that appends to the sequence copies this
 * page.
 * Errors: STALE_ID, BUSY, UNCOMMITTED, OUT_OF_RANGE (a field of the query, priority, time_to_live), ORDER
 * (a layer lacks some of the tokens, because a forward did not cover it), UNSUPPORTED (the sequence has or had a streaming
 * window, or its keys are rotated by the long factors of longrope). Threads: any. The cost grows with the number of tokens.
 * Since 0.1. */
KVC_API kvc_status kvc_prefix_publish(kvc_cache *cache, kvc_seq sequence, const kvc_prefix_query *query,
                                      const kvc_prefix_options *options, kvc_prefix_published *published,
                                      kvc_error *error);

/* Drops every published prefix that begins with the tokens of the query. The index releases the last page of these tokens
 * and all pages that continue them. If the query has no tokens, the call drops every prefix whose first page has this salt
 * and adapter. Sequences keep their pages.
 *   query  borrowed, tokens included
 *   pages  nullable: filled with the number of pages that the index released
 * Errors: OUT_OF_RANGE (a field of the query). Threads: any. The cost grows with the number of released pages.
 * Since 0.1. */
KVC_API kvc_status kvc_prefix_drop(kvc_cache *cache, const kvc_prefix_query *query, int64_t *pages, kvc_error *error);

/* Drops what was published under one session. Tokens stay if they were also published under another session, or without one.
 *   session  not 0
 *   pages    nullable: filled with the number of pages that the index released
 * Errors: only those that any call can return. Threads: any. The cost grows with the size of the index. Since 0.1. */
KVC_API kvc_status kvc_prefix_drop_session(kvc_cache *cache, uint64_t session, int64_t *pages, kvc_error *error);

/* Sets the priority and the time to live of the published tokens of a query, in place of earlier values. The pages of these
 * tokens get the new values. If the tokens end within a page, every page that begins with the last of them gets the new
 * values, whatever follows in the page. Later pages keep their values.
 *   query         borrowed, tokens included
 *   priority      0..100
 *   time_to_live  as in kvc_prefix_options
 * Errors: OUT_OF_RANGE (a field of the query, priority or time_to_live). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_prefix_set_priority(kvc_cache *cache, const kvc_prefix_query *query, int32_t priority,
                                           int64_t time_to_live, kvc_error *error);

/* Sets the priority and the time to live of all tokens that kvc_prefix_drop_session would drop.
 *   session       not 0
 *   priority      0..100
 *   time_to_live  as in kvc_prefix_options
 * Errors: OUT_OF_RANGE (priority or time_to_live). Threads: any. The cost grows with the size of the index. Since 0.1. */
KVC_API kvc_status kvc_prefix_set_session_priority(kvc_cache *cache, uint64_t session, int32_t priority,
                                                   int64_t time_to_live, kvc_error *error);

/* Keeps the pages of a published prefix from being evicted. The prefix is the one that kvc_prefix_match finds with
 * KVC_PREFIX_ALLOW_ALL.
 *   query  borrowed, tokens included
 *   hit    nullable: filled with what is pinned
 *   pin    filled: an id, never 0; ended by kvc_prefix_unpin or kvc_cache_clear
 * Errors: OUT_OF_RANGE (a field of the query). Threads: any. The cost grows with the number of pages. Since 0.1. */
KVC_API kvc_status kvc_prefix_pin(kvc_cache *cache, const kvc_prefix_query *query, kvc_prefix_hit *hit, uint64_t *pin,
                                  kvc_error *error);

/* Ends a pin. Pages that nothing else holds become idle, or become free if they were dropped from the index meanwhile.
 * Errors: STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_prefix_unpin(kvc_cache *cache, uint64_t pin, kvc_error *error);

/* Tells the cache the time, in any unit. The time starts at 0 and never decreases: a call with an earlier time has no
 * effect. Give the same times on all ranks of an engine.
 *   now  >= 0
 * Errors: OUT_OF_RANGE. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_set_time(kvc_cache *cache, int64_t now, kvc_error *error);

/* ============================================================================================
 * 13  Page keys: names of tokens outside of a cache
 * ============================================================================================
 * A page key identifies the content of one page of tokens in 32 bytes. The same page has the same key in every process, on
 * every machine and in every language. docs/reference/keys.md defines the bytes that are hashed (SHA-256), and has test
 * vectors. The prefix index of a cache does not need keys, because it compares tokens. */

/* The tokens whose page keys are computed, and all else that the keys depend on. */
typedef struct kvc_page_keys_args {
  uint32_t struct_size;
  uint32_t reserved;           /* 0 */
  const int32_t *tokens;       /* [num_tokens]; nullable if num_tokens is 0. Any numbers are allowed */
  int64_t num_tokens;          /* 0..2^30; a partial last page has no key */
  int64_t page_size;           /* 1..2^20 */
  int64_t begin;               /* position of tokens[0] in its sequence: a multiple of page_size, up to 2^30. 0 without a
                                  parent */
  const uint8_t *parent;       /* nullable: tokens[0] is the first token of its sequence. [32]: the key of the page that ends
                                  at begin. The parent's key depends on fingerprint and adapter, so the new keys do too */
  const uint8_t *fingerprint;  /* [32]: a hash of weights, quantisation and tokenizer, which the engine computes; nullable
                                  with a parent */
  const uint8_t *adapter;      /* [adapter_bytes]; nullable if adapter_bytes is 0 = no adapter */
  int64_t adapter_bytes;       /* 0..2^20 */
  const uint8_t *salt;         /* [salt_bytes]; nullable if salt_bytes is 0 = no salt */
  int64_t salt_bytes;          /* 0..2^20 */
  int64_t salt_begin;          /* >= 0: the salt applies to the page that contains this position, and to all later pages */
  int64_t num_media;           /* number of spans of tokens that stand for an image or other media; 0..2^30 */
  const int64_t *media_begins; /* [num_media]: position in the sequence of the first token of each span, ascending */
  const int64_t *media_tokens; /* [num_media]: number of tokens of each span, > 0. The spans do not overlap */
  const uint8_t *media_hashes; /* [num_media, 32]: a hash of the media of each span, and of all settings that change how the
                                  model encodes the media */
} kvc_page_keys_args;

static inline void kvc_page_keys_args_init(kvc_page_keys_args *args) {
  kvc_page_keys_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Computes the keys of all whole pages of a token array. It needs no context and no cache.
 *   args  borrowed, arrays included
 *   keys  [num_tokens / page_size, 32], filled; ignored if there is no whole page
 * Errors (nothing written): NULL_ARGUMENT (an array that is needed), OUT_OF_RANGE (a number outside of the range of its
 * field; for a span, its index is in error->index), INVALID_ARGUMENT (begin without a parent, or not at the start of a page;
 * reserved).
 * Threads: any. O(tokens and media). Since 0.1. From: block hashes of vLLM's prefix cache. */
KVC_API kvc_status kvc_page_keys(const kvc_page_keys_args *args, uint8_t *keys, kvc_error *error);

/* ============================================================================================
 * 14  Events: what the prefix index holds, told to others
 * ============================================================================================
 * A router sends a request to the engine that has most of its prompt in a prefix index. Events tell the router how the
 * prefix index of each engine changes. There are three kinds: a whole page can now be found (stored), a page can no longer
 * be found (removed), or no page can be found any more (cleared). A cache with events_capacity keeps the newest events in a
 * ring buffer. If the buffer is full, a new event replaces the oldest one, and no call waits.
 *
 * Events are numbered from 0. A reader gives the number of the next event that it needs, and gets the range of numbers that
 * the call returned:
 *
 *   kvc_events_args args;  kvc_events_args_init(&args);
 *   args.events = events;  args.tokens = tokens;  args.capacity = 256;         // kvc_event[256], int32_t[256 * page_size]
 *   kvc_events_range range;  kvc_events_range_init(&range);
 *   for (;;) {
 *     if (kvc_events_read(cache, &args, &range, &error)) return report(error.message);
 *     if (range.epoch != epoch || range.begin != args.next) return start_again();   // another cache, or events were lost
 *     for (int64_t i = 0; i < range.count; i++) apply(&events[i], tokens + i * page_size);
 *     args.next = range.end;
 *   }
 *
 * start_again drops all pages that the reader has recorded, and takes a snapshot (kvc_events_snapshot). Then it reads events
 * from the snapshot's range.end on. A snapshot and all events after it give exactly the pages of the index, and the pages in
 * tiers of which events tell.
 *
 *   Pages     Events name whole pages by their keys (section 13). A salt that is not 0 goes into a key as 8 bytes,
 *             little-endian. Only messages name the adapter and the media of a page. Each group has its own events for a
 *             page.
 *             A recurrent group has events only for states at the end of a whole page.
 *   Tiers     With kvc_cache_config.events_tier_pages, events also tell which pages the tiers of the cache have. A stored
 *             event of a tier says that the cache has stored the page there, or that kvc_prefix_match or kvc_prefix_load has
 *             found it there. A removed event says that the tier no longer has the page. Disk and host tiers report every
 *             page that they lose. Other tiers may lose a page without an event, until a call looks for the page. If there
 *             is no room for another page, the page that was stored or found least recently is told as removed
 *             (docs/reference/events.md).
 *   Bytes     Instead of records, a call can write one message in the format of vLLM's consumers: docs/reference/events.md.
 * In a cache whose events_capacity is 0, every call of this section returns UNSUPPORTED. */

enum kvc_event_kind {
  KVC_EVENT_STORED = 1,  /* the page with this key can be found in this group */
  KVC_EVENT_REMOVED = 2, /* the page can no longer be found: it was evicted or dropped */
  KVC_EVENT_CLEARED = 3  /* no page can be found in any group or tier. While events tell of a page in a tier, there is a
                            removed event for each page of the pools instead */
};

enum kvc_event_flags {
  KVC_EVENT_HAS_PARENT = 1, /* the stored page is not the first page of its sequence */
  KVC_EVENT_SALTED = 2      /* the stored page has a salt that is not 0 */
};

typedef struct kvc_event {
  uint64_t number;    /* number of the event in the epoch, from 0; in a snapshot 0 */
  int32_t kind;       /* KVC_EVENT_* */
  int32_t group;      /* -1 = all groups */
  uint32_t flags;     /* KVC_EVENT_HAS_PARENT, KVC_EVENT_SALTED */
  int32_t tier;       /* where the page is: 0 = in the pools; i = in the tier that was added i-th, counted from 1 */
  int64_t position;   /* stored: position of the page's first token in its sequence */
  uint64_t session;   /* stored: the session that published the page; 0 = none, or several, or (in a tier) unknown */
  uint8_t key[32];    /* stored, removed: key of the page */
  uint8_t parent[32]; /* with KVC_EVENT_HAS_PARENT: key of the page before */
} kvc_event;

enum kvc_events_flags {
  KVC_EVENTS_ARRAYS = 1,      /* in the message, each event is an array, as in older consumers. Without this flag it is a
                                 map */
  KVC_EVENTS_SHORT_HASHES = 2 /* in the message, a key is an integer: its low 64 bits. Without this flag it is 32 bytes */
};

/* What a call returns: records in `events`, or one message in `bytes`, or only the range if both are NULL. */
typedef struct kvc_events_args {
  uint32_t struct_size;
  uint32_t flags;             /* KVC_EVENTS_* */
  uint64_t next;              /* kvc_events_read: the number of the first event that the reader needs */
  kvc_event *events;          /* nullable: no records. [capacity], filled. Not together with bytes */
  int32_t *tokens;            /* nullable: no tokens. [capacity, page_size], filled: row i has the tokens of events[i] if it
                                 is a stored page, else 0 */
  int64_t capacity;           /* number of elements of events */
  uint8_t *bytes;             /* nullable: no message. [capacity_bytes], filled: one message */
  int64_t capacity_bytes;     /* size of bytes */
  double timestamp;           /* with bytes: timestamp of the message, in seconds */
  int32_t data_parallel_rank; /* with bytes: the data-parallel rank in the message; -1 = nil */
  uint32_t event_size;        /* with events: sizeof(kvc_event) */
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
  uint64_t epoch;    /* identifies this cache: a random number from the system, chosen when the cache is created, never 0 */
  uint64_t begin;    /* number of the first returned event. If it is above args->next, the events between the two are lost */
  uint64_t end;      /* the number of the next event to read, after the returned events */
  uint64_t newest;   /* number that the next event of the cache will have. If it is above `end`, there is more to read */
  int64_t count;     /* number of returned events or pages; without a buffer, the number of those that exist */
  int64_t num_bytes; /* number of written bytes; for a snapshot without a buffer, the size that the message needs */
} kvc_events_range;

static inline void kvc_events_range_init(kvc_events_range *range) {
  kvc_events_range zero = KVC_ZERO_STRUCT;
  *range = zero;
  range->struct_size = (uint32_t)sizeof(zero);
}

/* Returns events from number args->next on, as many as the buffer can hold. Without a buffer it returns no event, and fills
 * only the range. `begin` and `end` are then args->next, or, if that event is lost, the number of the oldest event that can
 * still be read.
 *   args   borrowed; its arrays are filled
 *   range  filled
 * Errors: OUT_OF_RANGE (next above `newest`), BUFFER_TOO_SMALL (not even one event fits in capacity_bytes), STRUCT_SIZE
 * (event_size), INVALID_ARGUMENT (events and bytes; data_parallel_rank below -1). Threads: any. The cost grows with the
 * number of returned events.
 * Since 0.1. */
KVC_API kvc_status kvc_events_read(kvc_cache *cache, const kvc_events_args *args, kvc_events_range *range,
                                   kvc_error *error);

/* Returns a KVC_EVENT_STORED for each page of the index, each after the page that it continues. Those of the tiers follow,
 * tier by tier, also each after the page that it continues, if the tier has that page. A message in bytes begins with
 * AllBlocksCleared. Events from range.end on happened after the snapshot. Without a buffer, the call fills `range` with
 * the size of the buffer that it needs.
 *   args   borrowed; its arrays are filled
 *   range  filled
 * Errors: BUFFER_TOO_SMALL (nothing returned; error->required counts elements or bytes), STRUCT_SIZE (event_size),
 * INVALID_ARGUMENT as in kvc_events_read. Threads: any. The cost grows with the size of the index. While the call lists the
 * pages, other calls on the cache wait. Since 0.1. */
KVC_API kvc_status kvc_events_snapshot(kvc_cache *cache, const kvc_events_args *args, kvc_events_range *range,
                                       kvc_error *error);

/* ============================================================================================
 * 15  Saved sequences: to a file and back
 * ============================================================================================
 * A saved sequence is one file with all that a sequence has: K and V of every group as stored, encoder tokens, recurrent
 * states and their checkpoints, the streaming window, and the choice of longrope factors. It also has the token ids, if the
 * caller gives them. A loaded sequence continues with the same bits as the saved sequence.
 *
 *   kvc_save_args save;  kvc_save_args_init(&save);
 *   save.path = "chat.kvc";
 *   save.tokens = tokens;  save.num_tokens = num_tokens;             // optional: then a load returns the tokens
 *   if (kvc_seq_save(cache, chat, &save, NULL, &error)) return report(error.message);
 *
 *   kvc_load_args load;  kvc_load_args_init(&load);                  // later, in another process
 *   load.path = "chat.kvc";
 *   load.tokens = tokens;  load.capacity = MAX_TOKENS;
 *   if (kvc_seq_load(cache, &load, NULL, &chat, &num_tokens, &error)) return report(error.message);
 *
 * docs/reference/format.md describes the bytes. Files of this version stay readable in later versions. */

/* A callback that takes the next bytes of a saved sequence. It runs on the thread that called kvc_seq_save, while the
 * library holds no lock.
 *   user   kvc_save_args.write_user
 *   data   borrowed; [bytes]
 * Returns: 0 = success. Any other number = failure, and the error message has this number. */
typedef int32_t (*kvc_write_fn)(void *user, const void *data, int64_t bytes);

/* A callback that gives the next bytes of a saved sequence. It runs on the thread that called kvc_seq_load, while the
 * library holds no lock.
 *   user   kvc_load_args.read_user
 *   data   filled; [bytes]
 * Returns: how many bytes it gave, 1..bytes. 0 = the end. Below 0 = failure, and the error message has this number. */
typedef int64_t (*kvc_read_fn)(void *user, void *data, int64_t bytes);

typedef struct kvc_save_args {
  uint32_t struct_size;
  uint32_t flags;         /* 0 */
  const char *path;       /* borrowed; nullable if write is given. A failed or interrupted save leaves no partial file of
                             this name: the bytes go to a new file in the same folder, which is synchronised with the disk
                             and then renamed. In UTF-8, on Windows too */
  kvc_write_fn write;     /* nullable if path is given: receives the bytes in place of a file */
  void *write_user;       /* the first argument of write */
  const int32_t *tokens;  /* borrowed; nullable: not saved. [num_tokens]: the ids of the sequence's tokens */
  int64_t num_tokens;     /* the length of the sequence; 0 without tokens */
  int64_t section_bytes;  /* how many payload bytes one checksum covers. A load needs memory for one such section. A power of
                             two, 4096..2^24; 0 = 2^20 */
} kvc_save_args;

static inline void kvc_save_args_init(kvc_save_args *args) {
  kvc_save_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

typedef struct kvc_load_args {
  uint32_t struct_size;
  uint32_t flags;     /* 0 */
  const char *path;   /* borrowed, in UTF-8; nullable if read is given */
  kvc_read_fn read;   /* nullable if path is given: gives the bytes in place of a file */
  void *read_user;    /* the first argument of read */
  int32_t *tokens;    /* nullable if capacity is 0; [capacity], filled with the token ids. Undefined after a failure */
  int64_t capacity;   /* number of elements of tokens; 0 = the load returns no token ids */
} kvc_load_args;

static inline void kvc_load_args_init(kvc_load_args *args) {
  kvc_load_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Saves a sequence. During the call the sequence is busy, as in an open forward, and all other sequences can be used. To
 * continue the sequence meanwhile, save a fork of it. The call waits until the device has done earlier work of the cache,
 * and until the bytes are written.
 *   args    borrowed, arrays and path included
 *   stream  as kvc_seq_fork
 * Errors: STALE_ID, BUSY, UNCOMMITTED, INVALID_ARGUMENT (path and write, or neither; num_tokens is not the length),
 * OUT_OF_RANGE (section_bytes), ORDER (a layer lacks tokens, because a forward did not cover it), IO, UNSUPPORTED
 * (KVC_STORAGE_NONE). After an error, an earlier file at `path` is unchanged. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_save(kvc_cache *cache, kvc_seq sequence, const kvc_save_args *args, void *stream,
                                kvc_error *error);

/* Adds a sequence with the contents of a saved sequence. The cache must have the same layers, groups, dtypes, RoPE settings
 * and fingerprint as the cache that saved it. Capacity, pools and limits may differ. The page size may differ too. If tokens
 * of the saved sequence were freed, the load leaves out every page that contains some of them. If the next query sees
 * another token of such a page, the load fails with LAYOUT. The call reads one section of the file at a time, and checks a
 * section before it uses it. Other calls can use the sequence only when it is complete. Pages of the prefix index that the
 * call evicts stay evicted.
 *   args        borrowed, arrays and path included
 *   sequence    filled
 *   num_tokens  nullable: filled with the number of token ids in the file, also on BUFFER_TOO_SMALL
 *   stream      as kvc_seq_fork
 * Errors (no sequence was added): IO, CORRUPT (damaged bytes), LAYOUT (another model, dtype or layout, and the message has
 * those of the file and of the cache; or a needed token is in one page with freed tokens), BUFFER_TOO_SMALL (capacity; never
 * for 0), TOO_MANY_SEQUENCES, OUT_OF_PAGES (of error->group), INVALID_ARGUMENT (path and read, or neither), UNSUPPORTED (a
 * later format; KVC_STORAGE_NONE; a streaming window, and a cache without KVC_CACHE_STREAMING). Threads: any.
 * Since 0.1. */
KVC_API kvc_status kvc_seq_load(kvc_cache *cache, const kvc_load_args *args, void *stream, kvc_seq *sequence,
                                int64_t *num_tokens, kvc_error *error);

/* ============================================================================================
 * 16  Tiers: memory below the pools
 * ============================================================================================
 * A tier keeps published pages in slower memory, such as a folder on a disk. The pages can still be found there after the
 * pools have evicted them, and after a restart of the process. The following is the loop of section 12 with a tier:
 *
 *   config.flags |= KVC_CACHE_PREFIX_INDEX;  config.fingerprint = fingerprint;       // and kvc_cache_create
 *   kvc_tier_config tier;  kvc_tier_config_init(&tier);
 *   tier.directory = "/var/cache/engine";  tier.capacity_bytes = 100LL << 30;
 *   if (kvc_cache_add_tier(cache, &tier, &error)) return report(error.message);
 *
 *   kvc_job job;
 *   kvc_prefix_load(cache, &query, NULL, NULL, &job, &error);             // loads pages that only a tier has
 *   kvc_job_info info;  kvc_job_info_init(&info);
 *   while (job != 0) {                                                    // other requests run meanwhile
 *     ... poll() of kvc_cache_job_descriptor, or a step of other sequences ...
 *     if (kvc_job_poll(cache, job, &info, &error)) return report(error.message);
 *     if (info.done) job = 0;
 *   }
 *   kvc_prefix_attach(cache, &query, NULL, &hit, &seq, &error);           // finds what was loaded
 *
 * Instead of waiting for the job, an engine can attach at once, and begin with the first layers while others are loaded:
 *
 *   kvc_pending_options pending;  kvc_pending_options_init(&pending);
 *   pending.flags = KVC_PENDING_WAIT;                                     // calls in a forward wait for their layer
 *   kvc_prefix_attach_pending(cache, job, &pending, &seq, &tokens, &error);
 *   ... begin a forward of seq with the query's tokens from `tokens` on ...
 *   for (int layer = 0; layer < num_layers; layer++) {
 *     kvc_status status = kvc_forward_attend(cache, step, layer, &args, &error);
 *     if (status == KVC_ERROR_IO || status == KVC_ERROR_CANCELLED) {      // a page is lost, or the load was too late
 *       kvc_forward_abort(cache, step, &error);
 *       do kvc_job_poll(cache, job, &info, &error); while (!info.done);   // now seq is shorter: compute the rest
 *       ...
 *     }
 *   }
 *
 *   Store     kvc_prefix_publish queues the whole pages that a tier lacks (kvc_tier_config.store says which pages). A
 *             thread of the cache copies each page, and gives the copy to the tier. A page that is evicted before its copy
 *             is made is not stored.
 *   Load      kvc_prefix_load reserves pages and starts the load. When the load is done, kvc_job_poll makes all its pages
 *             findable at once. If only some pages can be loaded, the result is a shorter prefix. Some tiers, such as Redis,
 *             must search for the pages first. Then kvc_job_poll reserves the pages after the search.
 *   Pending   kvc_prefix_attach_pending makes a sequence that has the pages of a running load. The sequence is pending until
 *             the load has ended. kvc_job_poll notices the end, and if all layers are ready, kvc_forward_begin and
 *             kvc_forward_end notice it too. A layer is ready when the job has loaded all pages of its group. The groups are
 *             loaded one after another, in the order of their first layers. In a forward of a pending sequence,
 *             kvc_forward_attend, kvc_forward_select and kvc_forward_load_state need a ready layer. kvc_forward_tables needs
 *             all layers of its group, and kvc_forward_end needs all layers. If a layer is not ready, these calls wait with
 *             KVC_PENDING_WAIT. Otherwise they return PENDING, have no effect, and can be repeated. If the load cannot
 *             complete, these calls and kvc_forward_begin return IO (a tier has lost a page) or CANCELLED (kvc_job_cancel,
 *             or the time limit). Then abort the forward. The kvc_job_poll that reports the end of the job shortens the
 *             sequence to the tokens that were loaded. If a forward is open then, its abort does this. With windows or
 *             recurrent layers, the sequence can become shorter than that, or empty.
 *             kvc_seq_remove removes a pending sequence. If no other sequence is attached to the job, it also cancels the
 *             job. Calls that only read lengths, page ids or settings work too. Other calls, and forwards in a graph, return
 *             PENDING. A transfer sends nothing of a pending sequence until the load has ended.
 *   Gate      A load ends where computing is faster: it loads the prefix that saves most time, which may be nothing. The
 *             tiers measure how fast they load. The cache measures how long a token takes, from begin to end of forwards of
 *             all layers that call kvc_forward_attend, and uses the forwards of most tokens. kvc_prefix_load_options can
 *             give another time. On a GPU nothing is measured, because work is in flight at the end of a forward. What was
 *             not measured yet, and was not given, ends no load.
 *   Objects   A tier keeps one object for each page of a group. The key of the object depends on the page key (of the
 *             fingerprint, tokens, salt, adapter and media) and on the layout of the group. The object has a checksum, the
 *             layout, the page key and the tokens. If any of these does not match, the page counts as not found. So
 *             engines with the same fingerprint and layout can share a tier.
 *   Order     kvc_prefix_load takes the pages, and kvc_job_poll makes them findable. So ranks have equal page ids if they
 *             make equal calls, load without the gate (token_ns = INT64_MAX), and poll until the same job is done. This does
 *             not hold for tiers that must search first.
 *   Suspend   kvc_seq_suspend moves the pages of a sequence to a tier and frees them, and kvc_seq_resume brings them back.
 *   fork()    Tiers work only in the parent. The child loads and stores nothing.
 *   Streams   On a GPU the pages are copied on a stream of the cache, in order with the work of other calls. No call waits
 *             on the host for these copies, and no stream of the caller waits until the bytes are on the host.
 * Tiers need a cache with a prefix index, a fingerprint and pools. */

/* The functions of a tier that the engine implements. kvcache_tier.h defines the struct. */
typedef struct kvc_tier kvc_tier;

/* What a disk tier does to keep a stored object through a loss of power. */
enum kvc_tier_sync {
  KVC_TIER_SYNC_DATA = 0, /* the data of an object is on the disk before the object can be found. After a loss of power the
                             object can be missing */
  KVC_TIER_SYNC_NONE = 1, /* the operating system decides when it writes an object. After a loss of power the object can be
                             missing, but its bytes are never wrong */
  KVC_TIER_SYNC_FULL = 2  /* as DATA, and the file name of the object is on the disk too. So a stored object survives a loss
                             of power */
};

enum kvc_tier_flag {
  KVC_TIER_HOST = 1,    /* the tier is memory of this process, of at most capacity_bytes. It keeps the pages that the pools
                           evict */
  KVC_TIER_PINNED = 2,  /* with KVC_TIER_HOST, in a cache on a GPU: the memory is locked, and the GPU copies pages to and
                           from it directly. kvc_cache_add_tier allocates all of it, which can take seconds, and
                           kvc_cache_destroy frees it */
  KVC_TIER_BLOCKING = 4, /* disk: each thread of the tier reads one file at a time, in system calls that block. Without this
                            flag, a thread reads several small objects at once by io_uring, where the kernel allows that */
  KVC_TIER_IO_URING = 8 /* disk: if the kernel does not allow io_uring, kvc_cache_add_tier returns UNSUPPORTED with the
                           reason. Not with KVC_TIER_BLOCKING */
};

/* Which published pages a tier stores. */
enum kvc_tier_store {
  KVC_TIER_STORE_PUBLISHED = 0, /* all pages */
  KVC_TIER_STORE_REUSED = 1,    /* pages that were already in the index before the publish, because another request had
                                   published them */
  KVC_TIER_STORE_NOTHING = 2,   /* no pages: the tier is read only, and stores no suspended sequence */
  KVC_TIER_STORE_EVICTED = 3    /* the pages that the pools will evict next, as soon as fewer than a quarter of a group's
                                   pages, and fewer than 1024, are free. Pages that stay in the pools are not stored */
};

/* Settings of a tier. Give exactly one of directory, tier and KVC_TIER_HOST. */
typedef struct kvc_tier_config {
  uint32_t struct_size;
  int32_t sync;               /* disk: KVC_TIER_SYNC_* */
  const char *directory;      /* nullable; disk: path of a folder, which is created if it does not exist. Several processes
                                 may share the folder */
  const kvc_tier *tier;       /* nullable; adopted: a tier that the engine implements */
  int64_t capacity_bytes;     /* disk and host: the largest size of all objects. When it is exceeded, the least recently used
                                 objects are removed. Disk: 0 = no limit. Host: at least 4096; memory is allocated only when
                                 objects need it. KVC_TIER_PINNED: at least 65536 */
  int32_t store;              /* KVC_TIER_STORE_* */
  uint32_t flags;             /* KVC_TIER_HOST, PINNED, BLOCKING, IO_URING, or 0 */
  int64_t min_tokens;         /* >= 0: a publish of fewer tokens is not stored */
  const char *medium;         /* nullable; borrowed: the name of the tier in messages of events, 1..32 printable ASCII
                                 characters, which neither the pools ("CPU" or "GPU") nor another tier has. NULL = "STORAGE",
                                 for a host tier "CPU" if the cache is on a GPU, else "HOST"; with a number if this name is
                                 taken */
} kvc_tier_config;

static inline void kvc_tier_config_init(kvc_tier_config *config) {
  kvc_tier_config zero = KVC_ZERO_STRUCT;
  *config = zero;
  config->struct_size = (uint32_t)sizeof(zero);
}

/* Adds a tier to a cache. If several tiers have a page, it is loaded from the tier that was added first.
 *   config  borrowed; its tier is adopted, and kvc_cache_destroy closes the tier
 * The call may wait for I/O, because it lists the directory.
 * Errors: INVALID_ARGUMENT (directory, tier, store, sync, medium, flags that exclude each other, or the capacity of a host
 * tier), OUT_OF_RANGE (capacity_bytes, min_tokens), UNSUPPORTED (no prefix index, no fingerprint, no pools, a ninth tier,
 * another version of kvcache_tier.h, unknown flags, KVC_TIER_PINNED on the CPU, or KVC_TIER_IO_URING where the kernel
 * forbids it), IO (the directory cannot be used), OUT_OF_MEMORY (also if the device cannot lock as much memory). After a
 * failure, the cache has no new tier. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_add_tier(kvc_cache *cache, const kvc_tier_config *config, kvc_error *error);

/* Id of a job: a load, suspend or resume in the background. 0 = no job. */
typedef uint64_t kvc_job;

typedef struct kvc_prefix_load_options {
  uint32_t struct_size;
  int32_t priority;     /* of the loaded pages, as in kvc_prefix_options */
  uint64_t session;     /* of the loaded pages, as in kvc_prefix_options */
  int64_t time_to_live; /* of the loaded pages, as in kvc_prefix_options */
  int64_t token_ns;     /* the time to compute one token, in nanoseconds, for the gate that is described above. 0 = as the
                           cache has measured it. INT64_MAX = load in any case */
} kvc_prefix_load_options;

static inline void kvc_prefix_load_options_init(kvc_prefix_load_options *options) {
  kvc_prefix_load_options zero = KVC_ZERO_STRUCT;
  *options = zero;
  options->struct_size = (uint32_t)sizeof(zero);
}

/* Starts to load the part of a prefix that the tiers have and the pools lack. While the load runs, it uses one of
 * max_sequences, and the pages that it has reserved.
 *   query    borrowed, tokens included
 *   options  nullable: all zero; borrowed
 *   hit      nullable: filled as by kvc_prefix_match
 *   job      filled; 0 = there is nothing to load, or computing is faster
 * Errors: OUT_OF_RANGE (num_tokens, salt_begin, priority, time_to_live, token_ns), UNSUPPORTED (the cache has no tier),
 * TOO_MANY_SEQUENCES, OUT_OF_PAGES, OUT_OF_MEMORY. Threads: any. The call does no I/O, and its cost grows with the number of
 * pages.
 * Since 0.1. */
KVC_API kvc_status kvc_prefix_load(kvc_cache *cache, const kvc_prefix_query *query, const kvc_prefix_load_options *options,
                                   kvc_prefix_hit *hit, kvc_job *job, kvc_error *error);

typedef struct kvc_job_info {
  uint32_t struct_size;
  int32_t done;         /* 1 = the job has ended, and its id is stale now */
  int64_t tokens;       /* load, done: number of tokens of the query that were loaded and can be found now. Suspend and
                           resume: the length of the sequence */
} kvc_job_info;

static inline void kvc_job_info_init(kvc_job_info *info) {
  kvc_job_info zero = KVC_ZERO_STRUCT;
  *info = zero;
  info->struct_size = (uint32_t)sizeof(zero);
}

/* Reports whether a job has ended. The first call that reports the end also completes the job: it publishes the loaded
 * pages, frees the pages of the suspended sequence, or makes the resumed sequence usable. If a suspend or resume has failed,
 * the call returns the error, and the job has ended too.
 *   info  filled
 * Errors: STALE_ID (no such job; or the sequence of a suspend or resume was removed, which ends the job), IO (no tier stored
 * a page of the sequence, or a tier has lost a page), CANCELLED (a suspend or resume). Threads: any. The call does not wait.
 * Since 0.1. */
KVC_API kvc_status kvc_job_poll(kvc_cache *cache, kvc_job job, kvc_job_info *info, kvc_error *error);

/* Ends a job early. The job still has to wait for pages that are being read or written, so poll it until it is done. Pages
 * that were loaded by then are kept. A cancelled suspend or resume leaves its sequence as it was.
 * Errors: STALE_ID. Threads: any. The call does not wait. Since 0.1. */
KVC_API kvc_status kvc_job_cancel(kvc_cache *cache, kvc_job job, kvc_error *error);

enum kvc_pending_flag {
  KVC_PENDING_WAIT = 1 /* calls in a forward wait until their layer is ready. Without the flag they return PENDING */
};

typedef struct kvc_pending_options {
  uint32_t struct_size;
  uint32_t flags;     /* KVC_PENDING_WAIT or 0 */
  int64_t timeout_ns; /* 0 = no limit. Else the job is cancelled if it has not ended this many nanoseconds after the call */
} kvc_pending_options;

static inline void kvc_pending_options_init(kvc_pending_options *options) {
  kvc_pending_options zero = KVC_ZERO_STRUCT;
  *options = zero;
  options->struct_size = (uint32_t)sizeof(zero);
}

/* Makes a new sequence with the prefix of a load that still runs (kvc_prefix_load). "Pending" above says what works before
 * the job has ended. The length of the sequence is a multiple of the page size. Without
 * KVC_PREFIX_ALLOW_ALL in the query of the load, it is less than num_tokens of the query. Several sequences can be attached
 * to one job, and they share its pages. From this call on, the job loads all pages of the group that has the first layer,
 * then those of the next group, and so on. Layers in several groups are ready earlier than in one, and a job that ends early
 * has usually loaded fewer tokens than without this call. The job must still be polled until it is done.
 *   job       a job of kvc_prefix_load that kvc_job_poll has not reported as done
 *   options   nullable: all zero; borrowed
 *   sequence  filled
 *   num_tokens  nullable: filled with the length of the sequence
 * Errors: STALE_ID (no such job), PENDING (a tier still searches for pages: poll the job, and call again), INVALID_ARGUMENT
 * (the job is no load), OUT_OF_RANGE (timeout_ns), EVICTED (a window at this length needs a page that the job does not
 * load: attach after the job), TOO_MANY_SEQUENCES, UNSUPPORTED (the cache has no tier, or flags). Threads: any. The call
 * does not wait. Since 0.1. */
KVC_API kvc_status kvc_prefix_attach_pending(kvc_cache *cache, kvc_job job, const kvc_pending_options *options,
                                             kvc_seq *sequence, int64_t *num_tokens, kvc_error *error);

/* What a pending sequence waits for. */
typedef struct kvc_pending_info {
  uint32_t struct_size;
  int32_t ready_layers; /* the layers [0, ready_layers) are ready; the number of layers if the sequence is not pending */
  kvc_job job;          /* the job that loads the prefix; 0 = the sequence is not pending, and the fields below are 0 */
  int64_t tokens;       /* number of tokens of the sequence whose pages the job loads */
  int64_t pages;        /* number of pages of all groups that the job loads */
  int64_t pages_loaded; /* how many of these pages have all their layers in the pools */
  int32_t failed;       /* 1 = the load cannot complete, so the sequence will become shorter */
  uint32_t reserved;    /* 0 */
} kvc_pending_info;

static inline void kvc_pending_info_init(kvc_pending_info *info) {
  kvc_pending_info zero = KVC_ZERO_STRUCT;
  *info = zero;
  info->struct_size = (uint32_t)sizeof(zero);
}

/* Says what a sequence of kvc_prefix_attach_pending still waits for. Any sequence can be given.
 *   info  filled
 * Errors: STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_pending(kvc_cache *cache, kvc_seq sequence, kvc_pending_info *info, kvc_error *error);

/* Gives a file descriptor for poll(), epoll and similar functions. It is readable from the end of a job until kvc_job_poll
 * has reported this end. The cache owns the descriptor: do not read from it, and do not close it. It is valid until
 * kvc_cache_destroy. On Windows it is the handle of an event, for WaitForSingleObject and similar functions.
 *   descriptor  filled
 * Errors: UNSUPPORTED (the cache has no tier). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_job_descriptor(kvc_cache *cache, int32_t *descriptor, kvc_error *error);

/* Traffic between the pools and all tiers since kvc_cache_create. A page counts once for each group. */
typedef struct kvc_tier_traffic {
  uint32_t struct_size;
  int32_t num_tiers;
  int64_t pages_waiting;       /* pages that are queued for a store, or are being stored. 0: there is nothing left to
                                  store */
  int64_t pages_stored;        /* pages that a tier has stored */
  int64_t pages_dropped;       /* pages that were evicted before they were copied, or did not fit in the queue */
  int64_t pages_not_stored;    /* pages that a tier refused, or failed to store */
  int64_t pages_loading;       /* pages of running loads and resumes */
  int64_t pages_loaded;        /* pages that were loaded */
  int64_t pages_not_loaded;    /* pages that a tier no longer had, or whose object did not match */
  int64_t sequences_suspended; /* sequences that are suspended now */
} kvc_tier_traffic;

static inline void kvc_tier_traffic_init(kvc_tier_traffic *traffic) {
  kvc_tier_traffic zero = KVC_ZERO_STRUCT;
  *traffic = zero;
  traffic->struct_size = (uint32_t)sizeof(zero);
}

/* Counts the traffic of the tiers. Before an engine shuts down, it can call this until pages_waiting is 0, so that all
 * queued pages are stored.
 *   traffic  filled
 * Errors: only those that any call can return. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_tier_traffic(kvc_cache *cache, kvc_tier_traffic *traffic, kvc_error *error);

/* Starts to move the pages of a sequence to a tier. The loop of an engine that has too few pages for a step:
 *
 *   kvc_seq victim = latest_request();
 *   if (kvc_seq_suspend(cache, victim, &job, &error)) return report(error.message);
 *   ...                                      // poll the job until it is done: then its pages are available
 *   if (kvc_seq_resume(cache, victim, &job, &error) == KVC_ERROR_OUT_OF_PAGES) continue;    // later, when others ended
 *   ...                                      // poll the job until it is done: then the sequence is as before
 *
 * The moved pages are those that kvc_seq_exclusive_pages counts. Pages that another sequence or an export also uses stay in
 * the pools, and the sequence keeps its references to them. The first tier that accepts a page stores it; tiers are tried in
 * the order in which they were added. A host tier refuses a page for which it has no room, and never evicts a page of a
 * suspended sequence. Other tiers may evict it. Until the job is done the sequence is busy, as in an open forward. If the
 * job fails, the sequence is as before.
 *
 * A suspended sequence keeps its id, length, settings and checkpoints, and counts towards max_sequences. Calls that read or
 * change its contents return SUSPENDED, and kvc_seq_pages gives -1 for its moved pages. kvc_seq_remove and kvc_cache_clear
 * remove the sequence, and also its objects in the tiers. If the process is killed, its objects stay in the folder of a disk
 * tier until they are evicted.
 *   job  filled; never 0
 * Errors: STALE_ID, BUSY, UNCOMMITTED, SUSPENDED, UNSUPPORTED (the cache has no tier, or all tiers have
 * KVC_TIER_STORE_NOTHING), OUT_OF_MEMORY. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_suspend(kvc_cache *cache, kvc_seq sequence, kvc_job *job, kvc_error *error);

/* Starts to bring back a suspended sequence. The call takes all pages for it at once, and evicts idle pages as
 * kvc_forward_begin does. The sequence stays suspended until the job is done. If a tier has lost an object, the job fails,
 * and the sequence stays suspended. Then remove the sequence and compute its tokens again.
 *   job  filled; never 0
 * Errors: STALE_ID, BUSY (a resume runs), ORDER (the sequence is not suspended), OUT_OF_PAGES (of error->group),
 * OUT_OF_MEMORY, UNSUPPORTED (the cache has no tier). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_seq_resume(kvc_cache *cache, kvc_seq sequence, kvc_job *job, kvc_error *error);

/* ============================================================================================
 * 17  Transfer: a sequence to another cache
 * ============================================================================================
 * With a transfer, one process computes a prompt, and another process decodes. The receiver reserves pages, and describes
 * what it needs:
 *
 *   kvc_receive_args receive;  kvc_receive_args_init(&receive);
 *   receive.num_tokens = prompt_length;
 *   kvc_transfer incoming;
 *   if (kvc_transfer_receive(cache, &receive, &incoming, &error)) return report(error.message);
 *   kvc_transfer_describe(cache, incoming, description, sizeof description, &bytes, &error);
 *   ... send the description to the sender, by any means ...
 *   kvc_transfer_info info;  kvc_transfer_info_init(&info);
 *   while (!info.done) {                                       // steps of other sequences run meanwhile
 *     if (kvc_transfer_poll(cache, incoming, &info, &error)) return compute_the_prompt_here();
 *   }
 *   decode(info.sequence);
 *
 * The sender starts with this description and its sequence. It may do so before, while or after it computes the prompt:
 *
 *   kvc_transfer outgoing;
 *   if (kvc_transfer_send(cache, seq, description, bytes, &outgoing, &error)) return report(error.message);
 *   ... a step; after each layer, or less often: kvc_transfer_poll(cache, outgoing, &info, &error) ...
 *   ... and then poll until info.done: the receiver has everything ...
 *
 *   Rows      Tokens are sent as rows, in the order of kvc_seq_save. The two caches may have different page sizes,
 *             capacities and SIMD code. Their layouts and fingerprints must be equal. kvc_transfer_send checks this before
 *             any byte is sent.
 *   Ranks     Both sides can consist of several ranks of tensor parallelism, each with a cache of its own. Their tp_size may
 *             differ. Each rank of the receiver starts its own transfer, and the engine gives its description to every rank
 *             of the sender. kvc_transfer_send finds the heads that its cache has and that the receiver needs. If several
 *             ranks of the sender have the same head, one of them sends it. If tp_size differs, the caches must have no
 *             recurrent groups, and all heads of a layer must have equal k_scales and v_scales.
 *   Layers    A poll sends what the cache has stored. If a forward is open, it also sends the layers that were appended. So
 *             an engine that polls after each layer sends layer by layer. If the forward is aborted, its tokens are sent
 *             again when they are appended again.
 *   Windows   In a group with a window, only the pages that the query after the last token sees are reserved and sent.
 *   Length    The sender's sequence must reach num_tokens, and must not be extended until the transfer is done. If it is
 *             extended, groups with windows or states free what the receiver needs.
 *   Failure   If the other side ends, fails, cancels or is silent for timeout_ms, the next poll returns IO. This poll ends
 *             the transfer and frees its pages. A sender's sequence stays as it was.
 *   Polls     A side that does not poll is silent for the other side. A poll copies a few MiB at most, and waits for no
 *             message.
 *   Transport A cache without a transport of its own reaches only caches of the same process. libkvcache_ucx.so reaches
 *             other processes and machines (kvcache_ucx.h).
 *   fork()    Transfers work only in the parent. In the child they fail.
 * Transfers need a cache with pools and without encoder groups. On a GPU the rows are sent through host memory. A poll waits
 * until the rows that it sends are copied to host memory. These copies run after the calls of the forward that stored the
 * rows. */

/* The functions that carry bytes to another cache. kvcache_transport.h defines the struct. */
typedef struct kvc_transport kvc_transport;

/* Sets the transport of a cache. Call it at most once, before the first transfer of the cache.
 *   transport  adopted: kvc_cache_destroy closes it
 * Errors: UNSUPPORTED (no pools, encoder groups, another version of kvcache_transport.h), INVALID_ARGUMENT (the transport
 * lacks a function), ORDER (the cache has a transport, or had a transfer), OUT_OF_MEMORY. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_cache_set_transport(kvc_cache *cache, const kvc_transport *transport, kvc_error *error);

/* Id of a transfer. 0 = no transfer. */
typedef uint64_t kvc_transfer;

typedef struct kvc_receive_args {
  uint32_t struct_size;
  int32_t timeout_ms;   /* how long the other side may be silent, in milliseconds, 1..3600000; 0 = 30000. Both sides use
                           it */
  int64_t num_tokens;   /* the length of the sequence when the transfer is done; >= 1 */
  kvc_seq prefix;       /* 0 = none. Else a sequence that has the first tokens, as from kvc_prefix_attach. Only the tokens
                           after these are sent, and the new sequence shares the whole pages of the prefix. The cache must
                           have no recurrent group */
} kvc_receive_args;

static inline void kvc_receive_args_init(kvc_receive_args *args) {
  kvc_receive_args zero = KVC_ZERO_STRUCT;
  *args = zero;
  args->struct_size = (uint32_t)sizeof(zero);
}

/* Starts to receive a sequence. The call takes all pages at once, and evicts idle pages as kvc_forward_begin does.
 *   args      borrowed
 *   transfer  filled; never 0
 * Errors: OUT_OF_RANGE (num_tokens, timeout_ms), STALE_ID, BUSY, UNCOMMITTED, SUSPENDED (prefix), INVALID_ARGUMENT (the
 * prefix has num_tokens or more), ORDER (some layer lacks tokens of the prefix), UNSUPPORTED (no pools; encoder groups; a
 * prefix that has a streaming window, or in a cache with a recurrent group), TOO_MANY_SEQUENCES, OUT_OF_PAGES (of
 * error->group), OUT_OF_MEMORY, IO (the transport has no address). Threads: any. Since 0.1. */
KVC_API kvc_status kvc_transfer_receive(kvc_cache *cache, const kvc_receive_args *args, kvc_transfer *transfer,
                                        kvc_error *error);

/* Writes the description of a transfer that the cache receives: its layout, the tokens that it needs, and the address to
 * which they are sent. Only one sender can use a description. Each rank of this sender uses it once.
 *   buffer  nullable if capacity is 0, which only gives `bytes`; filled
 *   bytes   filled with the length of the description
 * Errors: STALE_ID, INVALID_ARGUMENT (the cache sends this transfer), BUFFER_TOO_SMALL. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_transfer_describe(kvc_cache *cache, kvc_transfer transfer, void *buffer, int64_t capacity,
                                         int64_t *bytes, kvc_error *error);

/* Starts to send a sequence to the cache that made a description. Nothing is sent before the first poll.
 *   description  borrowed; [bytes], from kvc_transfer_describe
 *   transfer     filled; never 0. If the receiver needs no heads of this cache's rank, the transfer is done at its first
 *                poll
 * Errors: STALE_ID, UNSUPPORTED (no pools, encoder groups; a streaming window; a description of a later version), CORRUPT
 * (the bytes are damaged, or are no description), LAYOUT (the caches differ in model, layout or transport, and the message
 * has both values), OUT_OF_RANGE (the sequence is longer than the receiver expects), EVICTED (a window has freed tokens that
 * the receiver needs), IO (the transport cannot reach the address), OUT_OF_MEMORY. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_transfer_send(kvc_cache *cache, kvc_seq sequence, const void *description, int64_t bytes,
                                     kvc_transfer *transfer, kvc_error *error);

typedef struct kvc_transfer_info {
  uint32_t struct_size;
  int32_t done;       /* 1 = the receiver has everything, and the id is stale now */
  int64_t tokens;     /* how many tokens all layers have received or sent. Tokens of the prefix and tokens before a window
                         count too */
  int64_t bytes;      /* bytes of rows and states that were sent or received so far */
  kvc_seq sequence;   /* receiver, when done: the new sequence. Else 0 */
} kvc_transfer_info;

static inline void kvc_transfer_info_init(kvc_transfer_info *info) {
  kvc_transfer_info zero = KVC_ZERO_STRUCT;
  *info = zero;
  info->struct_size = (uint32_t)sizeof(zero);
}

/* Continues a transfer, and reports its progress. The first call that reports done = 1 ends the transfer. A call that fails
 * ends it too.
 *   info  filled
 * Errors: STALE_ID (no such transfer; or the sender's sequence was removed), EVICTED (a window has freed tokens before they
 * were sent), ORDER (the sender's sequence was extended, and its state at num_tokens is gone), IO (the other side failed,
 * cancelled or is silent; the transport failed), CORRUPT (a message does not fit the description), OUT_OF_MEMORY. All errors
 * except "no such transfer" end the transfer.
 * Threads: any. Since 0.1. */
KVC_API kvc_status kvc_transfer_poll(kvc_cache *cache, kvc_transfer transfer, kvc_transfer_info *info, kvc_error *error);

/* Ends a transfer. Received tokens are dropped. If this side has received a message from the other side, it sends a message
 * that ends the transfer, and the next poll of the other side returns IO. Otherwise the other side waits until its timeout.
 * Errors: STALE_ID. Threads: any. Since 0.1. */
KVC_API kvc_status kvc_transfer_cancel(kvc_cache *cache, kvc_transfer transfer, kvc_error *error);

/* ============================================================================================
 * 18  Advanced: proofs and comparisons
 * ============================================================================================ */

/* Computes a hash of all bookkeeping: ids, lengths, page tables, free lists. After equal calls on caches with equal configs,
 * the hashes are equal. So the hash can be used to compare ranks, or a replay with its original. The hash may differ between
 * versions of the library.
 *   digest  filled
 * Errors: only those that any call can return. Threads: any. The cost grows with the size of the tables. Since 0.1. */
KVC_API kvc_status kvc_cache_digest(kvc_cache *cache, uint64_t *digest, kvc_error *error);

/* Checks the bookkeeping: reference counts are right, free and used pages add up to the total, and a page in two tables has
 * a count of at least two.
 * Errors: INTERNAL, and the message names the broken invariant. Threads: any. The cost grows with the size of the tables.
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
  kvc_status (*prefix_attach_pending)(kvc_cache *cache, kvc_job job, const kvc_pending_options *options,
                                      kvc_seq *sequence, int64_t *num_tokens, kvc_error *error);
  kvc_status (*seq_pending)(kvc_cache *cache, kvc_seq sequence, kvc_pending_info *info, kvc_error *error);
} kvc_api;
/* END GENERATED */

/* Returns the library's functions as a table, for programs that load the library by dlopen and look up one symbol. Later
 * releases only append members. Before you use a member of a later release, check that struct_size (with offsetof) covers
 * it.
 *   abi_version  KVC_ABI_VERSION of the caller's header
 * Returns: a static table, or NULL if the versions do not match. While major is 0, major and minor must be equal. From 1.0
 * on, major must be equal, and the caller's minor must not be above the library's. Threads: any. Since 0.1. */
KVC_API const struct kvc_api *kvc_get_api(uint32_t abi_version);

#undef KVC_ZERO_STRUCT

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVCACHE_H_ */
