/* The table of functions that a tier fills for libkvcache: slower memory that keeps objects after the cache evicts them.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * ============================================================================================
 * 1  Introduction
 * ============================================================================================
 * A tier stores objects. An object is a run of bytes under a key of 32 bytes. The tier does not interpret either of them.
 * A disk, host memory and a shared store are tiers. Anyone can write one, in C or in a language that exports C functions:
 * examples/tier_memory.c is a complete tier, and docs/reference/tiers.md explains it.
 *
 * A program that uses a tier:
 *
 *   kvc_tier_found found;
 *   tier.lookup(tier.self, 1, &key, &found);                // answers from memory
 *   if (found.result != KVC_TIER_HIT) return compute_instead();
 *
 *   kvc_tier_buffer buffer = {memory, found.bytes};
 *   kvc_tier_item item = {key, &buffer, 1, 0, found.bytes};
 *   if (tier.load(tier.self, 7, 1, &item, &error) != KVC_TIER_OK) return compute_instead();   // RETRY: the queue is full
 *
 *   kvc_tier_completion done;                               // later: poll() of tier.descriptor says when
 *   while (tier.poll(tier.self, &done, 1) == 0) work_on_something_else();
 *   if (done.result == KVC_TIER_OK) use(memory);            // job 7, item 0; on any other result, compute
 *
 * A program that is a tier fills the struct:
 *
 *   kvc_status open_my_tier(kvc_tier *tier, kvc_error *error) {
 *     kvc_tier_init(tier);
 *     tier->name = "mine";  tier->self = my_state;
 *     tier->max_job_items = 256;  tier->max_object_bytes = 1 << 30;
 *     tier->lookup = my_lookup;  tier->load = my_load;  ...       // every function
 *     return KVC_OK;
 *   }
 *
 * Words
 *   item        One object of a job, with the memory that it is copied from or to.
 *   job         Items that were submitted by one call. The caller chooses its id.
 *   completion  The result of one item. Each item of an accepted job has exactly one, whatever happens to the job.
 *
 * Rules for all functions
 *   Blocking  No function but close waits for I/O. A function may wait for a lock that is held for a short time.
 *   Threads   Any thread may call any function. A call that races close is undefined.
 *   Order     Items run in any order, also those of one job. A caller that needs an order waits for completions.
 *   Memory    The items of a job, their lists of buffers and the memory of the buffers stay valid until the item's completion
 *             was polled, or close has returned. Only the completion ends this: cancel does not.
 *   Errors    A tier may lose any object at any time. It never returns bytes other than those that were stored under the key.
 *             A tier that cannot tell whether bytes are right reports a miss.
 *   fork()    A child of fork() may call close. A tier with threads or connections refuses all else in the child: lookups
 *             miss, and submits fail.
 *   Unwinding No exception and no panic leaves a function.
 */
#ifndef KVCACHE_TIER_H_
#define KVCACHE_TIER_H_

#include <string.h>

#include "kvcache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Caller and tier agree on it exactly, while the version of libkvcache is 0.x. */
#define KVC_TIER_VERSION 1

enum { KVC_TIER_KEY_BYTES = 32 };

/* ============================================================================================
 * 2  Results
 * ============================================================================================ */

/* The comment of a function says which of these it gives. */
enum kvc_tier_result {
  KVC_TIER_OK = 0,        /* the item is done; of a submit: the job was accepted */
  KVC_TIER_HIT = 1,       /* the object is stored, as far as the tier can tell without I/O. A load may still miss */
  KVC_TIER_MISS = 2,      /* the object is not stored, or its bytes were damaged, or its size is another */
  KVC_TIER_PENDING = 3,   /* the answer comes later: look up again. Something is under way that will give it */
  KVC_TIER_RETRY = 4,     /* the tier is full of work. Nothing was done; the same call may succeed later */
  KVC_TIER_CANCELLED = 5, /* the item was cancelled before it began */
  KVC_TIER_FAILED = 6     /* I/O failed, or the call was wrong */
};

typedef struct kvc_tier_key {
  uint8_t bytes[32];
} kvc_tier_key;

typedef struct kvc_tier_found {
  int32_t result;    /* HIT, MISS, PENDING or RETRY */
  uint32_t reserved; /* 0 */
  int64_t bytes;     /* HIT: size of the object; else 0 */
} kvc_tier_found;

/* ============================================================================================
 * 3  Jobs
 * ============================================================================================ */

/* Host memory of one part of an object. */
typedef struct kvc_tier_buffer {
  void *data;    /* a store reads it, and a load writes it */
  int64_t bytes; /* >= 0; 0: data may be NULL */
} kvc_tier_buffer;

enum kvc_tier_item_flag {
  KVC_TIER_ITEM_KEEP = 1 /* store: the object is not evicted before it is removed. Only of a tier with KVC_TIER_KEEPS */
};

typedef struct kvc_tier_item {
  kvc_tier_key key;
  const kvc_tier_buffer *buffers; /* [num_buffers]: the parts of the object in order, without gaps. remove: NULL */
  int32_t num_buffers;            /* >= 0 */
  uint32_t flags;                 /* KVC_TIER_ITEM_KEEP or 0 */
  int64_t bytes;                  /* the sum of all buffers' bytes: the size of the object. remove: 0 */
} kvc_tier_item;

typedef struct kvc_tier_completion {
  uint64_t job;
  int64_t index;    /* of the item in its job */
  int32_t result;   /* OK, MISS, RETRY, CANCELLED or FAILED */
  int32_t os_error; /* FAILED: an errno, or 0 if there is none */
} kvc_tier_completion;

/* ============================================================================================
 * 4  Measurements
 * ============================================================================================ */

/* Counts since open, and what the tier holds now. A caller estimates a load of n bytes in m items as
 *   load_latency_ns + n / load_bytes_per_second
 * and compares that with the time that computing would take. */
typedef struct kvc_tier_stats {
  uint32_t struct_size;
  int32_t last_os_error;         /* errno of the latest item that failed; 0 = none */
  int64_t objects;               /* stored now, as far as the tier can tell */
  int64_t stored_bytes;          /* memory or disk that they take, with what the tier adds */
  int64_t capacity_bytes;        /* 0 = unknown, or no limit */
  int64_t open_items;            /* accepted, and their completions not polled yet */
  int64_t lookups;               /* keys looked up */
  int64_t hits;                  /* of them */
  int64_t loads, stores, removes; /* items with the result OK */
  int64_t misses;                /* items with the result MISS */
  int64_t cancelled;             /* items with the result CANCELLED */
  int64_t failed;                /* items with the result FAILED */
  int64_t evictions;             /* objects that were removed to stay within capacity_bytes */
  int64_t damaged;               /* objects that were removed because their bytes were not those stored */
  int64_t loaded_bytes;          /* of objects, without what the tier adds */
  int64_t written_bytes;         /* of objects, without what the tier adds */
  int64_t load_latency_ns;       /* measured time of a load beyond the transfer of its bytes; 0 = not measured yet */
  int64_t store_latency_ns;      /* the same of a store */
  int64_t load_bytes_per_second; /* measured while items were loaded; 0 = not measured yet */
  int64_t store_bytes_per_second;
} kvc_tier_stats;

static inline void kvc_tier_stats_init(kvc_tier_stats *stats) {
  memset(stats, 0, sizeof *stats);
  stats->struct_size = (uint32_t)sizeof *stats;
}

/* ============================================================================================
 * 5  The table
 * ============================================================================================ */

enum kvc_tier_table_flag {
  KVC_TIER_KEEPS = 1 /* the tier honours KVC_TIER_ITEM_KEEP. A store without room completes as RETRY */
};

/* A tier. The struct may be copied; every copy names the same tier. All functions are set. */
struct kvc_tier { /* kvc_tier: kvcache.h */
  uint32_t struct_size;
  uint32_t version;         /* KVC_TIER_VERSION */
  const char *name;         /* "disk"; valid until close */
  void *self;               /* the first argument of every function */
  int64_t max_object_bytes; /* the largest object; constant */
  int32_t max_job_items;    /* the most items of one job; constant */
  uint32_t flags;           /* KVC_TIER_KEEPS or 0 */

  /* Answers for n keys. It only reads memory: a tier that must search elsewhere starts to search, and answers PENDING.
   *   keys   borrowed; [n]
   *   found  out; [n]
   * Results: HIT, MISS, PENDING (it is being stored or searched), RETRY. It cannot fail. */
  void (*lookup)(void *self, int64_t n, const kvc_tier_key *keys, kvc_tier_found *found);

  /* Submit a job of n items. Either the whole job is accepted, or nothing was done.
   *   job    chosen by the caller; no other open job has it
   *   n      1..max_job_items
   *   items  [n]; stays valid, as "Memory" above says
   *   error  out, never NULL; filled if the result is FAILED
   * store writes objects. An object that is stored under the key is replaced, and a load sees the old or the new one.
   * The completion is OK when the object can be loaded; a tier documents whether it then survives a loss of power.
   * load reads objects into buffers of their exact size. Unless the completion is OK, the contents of the buffers are
   * undefined.
   * remove forgets objects. Its completion is MISS if there was none.
   * Results: OK, RETRY (too many items are open), FAILED (an argument is wrong, or this is a child of fork()). */
  int32_t (*store)(void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *error);
  int32_t (*load)(void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *error);
  int32_t (*remove)(void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *error);

  /* Takes up to `capacity` completions, oldest first, and returns their number.
   *   done   out; [capacity] */
  int64_t (*poll)(void *self, kvc_tier_completion *done, int64_t capacity);

  /* A file descriptor that is readable while completions wait to be polled; the caller only passes it to poll() or the
   * like, and never reads or closes it. -1: the tier has none, so the caller polls at times. Constant until close. */
  int32_t (*descriptor)(void *self);

  /* Items of the job that have not begun complete as CANCELLED. Items that have begun complete as if nothing was cancelled.
   * An id of no open job does nothing. */
  void (*cancel)(void *self, uint64_t job);

  /* Fills the fields that stats->struct_size covers. */
  void (*stats)(void *self, kvc_tier_stats *stats);

  /* Cancels items that wait, finishes those that have begun, and releases the tier. Completions not polled are dropped.
   * It may wait for I/O. */
  void (*close)(void *self);
};

static inline void kvc_tier_init(kvc_tier *tier) {
  memset(tier, 0, sizeof *tier);
  tier->struct_size = (uint32_t)sizeof *tier;
  tier->version = KVC_TIER_VERSION;
}

/* The one symbol of a plug-in: "kvc_tier_open". It fills `tier`, for which the caller has called kvc_tier_init.
 *   version  the caller's KVC_TIER_VERSION. UNSUPPORTED if the plug-in was built for another
 *   options  text that the plug-in defines
 *   tier     returned; released by its close
 *   error    out, never NULL; filled if the status is not KVC_OK */
typedef kvc_status (*kvc_tier_open_fn)(uint32_t version, const char *options, kvc_tier *tier, kvc_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVCACHE_TIER_H_ */
