/* The table of functions that a tier fills for libkvcache. A tier is slower memory that keeps objects after the cache evicts
 * them.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * ============================================================================================
 * 1  Introduction
 * ============================================================================================
 * A tier stores objects. An object is a run of bytes under a key of 32 bytes. The tier does not interpret the key or the
 * bytes. A disk, host memory and a shared store can be tiers. A tier can be written in C, or in a language that exports C
 * functions. examples/tier_memory.c is a complete tier, and docs/reference/tiers.md explains it.
 *
 * A program that uses a tier:
 *
 *   kvc_tier_found found;
 *   tier.lookup(tier.self, 1, &key, &found);                // answers from memory
 *   if (found.result != KVC_TIER_HIT) return compute_instead();
 *
 *   kvc_tier_buffer buffer = {memory, found.bytes};
 *   kvc_tier_item item = {key, &buffer, 1, 0, found.bytes};
 *   if (tier.load(tier.self, 7, 1, &item, &error) != KVC_TIER_OK) return compute_instead();   // RETRY = the queue is full
 *
 *   kvc_tier_completion done;                               // later: poll() of tier.descriptor says when
 *   while (tier.poll(tier.self, &done, 1) == 0) work_on_something_else();
 *   if (done.result == KVC_TIER_OK) use(memory);            // job 7, item 0. On any other result, compute
 *
 * A program that is a tier fills the struct:
 *
 *   kvc_status open_my_tier(kvc_tier *tier, kvc_error *error) {
 *     kvc_tier_init(tier);
 *     tier->name = "mine";  tier->self = my_state;
 *     tier->max_job_items = 256;  tier->max_object_bytes = 1 << 30;
 *     tier->lookup = my_lookup;  tier->load = my_load;  ...       // every function but `removed`
 *     return KVC_OK;
 *   }
 *
 * Words
 *   item        One object of a job, with the memory from which or to which its bytes are copied.
 *   job         The items that one call submits. The caller chooses the id of the job.
 *   completion  The result of one item. Each item of an accepted job has exactly one completion, even if the job is
 *               cancelled.
 *
 * Rules for all functions
 *   Blocking  Only close waits for I/O. A function may wait for a lock that is held for a short time.
 *   Threads   Any thread may call any function. No call may run at the same time as close, or behaviour is undefined.
 *   Order     Items run in any order, also those of one job. A caller that needs an order must wait for completions.
 *   Memory    The items of a job, their lists of buffers and the memory of the buffers must stay valid until the completion
 *             of the item was polled, or close has returned. After a cancel they must still stay valid until then.
 *   Errors    A tier may lose any object at any time. It never returns bytes that differ from those that were stored under
 *             the key. If a tier cannot tell whether bytes are right, it reports a miss.
 *   fork()    A child of fork() may call close. If a tier has threads or connections, all its other functions fail in the
 *             child: lookups return MISS, and store, load and remove return FAILED.
 *   Unwinding No exception and no panic may leave a function.
 */
#ifndef KVCACHE_TIER_H_
#define KVCACHE_TIER_H_

#include <string.h>

#include "kvcache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this table. While the version of libkvcache is 0.x, caller and tier must have the same KVC_TIER_VERSION. */
#define KVC_TIER_VERSION 2

enum { KVC_TIER_KEY_BYTES = 32 };

/* ============================================================================================
 * 2  Results
 * ============================================================================================ */

/* Results of functions and of items. The comment of a function says which of them it returns. */
enum kvc_tier_result {
  KVC_TIER_OK = 0,        /* the item is done; for store, load and remove: the job was accepted */
  KVC_TIER_HIT = 1,       /* the object is stored, as far as the tier can tell without I/O. A load of it may still miss */
  KVC_TIER_MISS = 2,      /* the object is not stored, its bytes are damaged, or its size differs from that of the item */
  KVC_TIER_PENDING = 3,   /* the tier is finding the answer. Call lookup again later */
  KVC_TIER_RETRY = 4,     /* the tier has too much work. Nothing was done, and the same call may succeed later */
  KVC_TIER_CANCELLED = 5, /* the item was cancelled before it began */
  KVC_TIER_FAILED = 6     /* I/O failed, or an argument was wrong */
};

typedef struct kvc_tier_key {
  uint8_t bytes[32];
} kvc_tier_key;

typedef struct kvc_tier_found {
  int32_t result;    /* HIT, MISS, PENDING or RETRY */
  uint32_t reserved; /* 0 */
  int64_t bytes;     /* HIT: size of the object. Else 0 */
} kvc_tier_found;

/* ============================================================================================
 * 3  Jobs
 * ============================================================================================ */

/* Host memory of one part of an object. */
typedef struct kvc_tier_buffer {
  void *data;    /* a store reads this memory, and a load writes it. May be NULL if bytes is 0 */
  int64_t bytes; /* >= 0 */
} kvc_tier_buffer;

enum kvc_tier_item_flag {
  KVC_TIER_ITEM_KEEP = 1 /* store: the object is not evicted; only remove removes it. Only for tiers with KVC_TIER_KEEPS */
};

typedef struct kvc_tier_item {
  kvc_tier_key key;
  const kvc_tier_buffer *buffers; /* [num_buffers]: the parts of the object in order, without gaps. remove: NULL */
  int32_t num_buffers;            /* >= 0 */
  uint32_t flags;                 /* KVC_TIER_ITEM_KEEP or 0 */
  int64_t bytes;                  /* size of the object, which is the sum over all buffers. remove: 0 */
} kvc_tier_item;

typedef struct kvc_tier_completion {
  uint64_t job;     /* id of the job */
  int64_t index;    /* index of the item in its job */
  int32_t result;   /* OK, MISS, RETRY, CANCELLED or FAILED */
  int32_t os_error; /* FAILED: an errno, or 0 if there is none */
} kvc_tier_completion;

/* ============================================================================================
 * 4  Measurements
 * ============================================================================================ */

/* Counts since open, and what the tier stores now. A caller can estimate the time of a load of n bytes as
 *   load_latency_ns + n * 1e9 / load_bytes_per_second
 * nanoseconds, and compare it with the time to compute the same tokens. */
typedef struct kvc_tier_stats {
  uint32_t struct_size;
  int32_t last_os_error;         /* errno of the latest item that failed; 0 = none */
  int64_t objects;               /* number of objects that are stored now, as far as the tier can tell */
  int64_t stored_bytes;          /* memory or disk space of these objects, including what the tier adds to them */
  int64_t capacity_bytes;        /* 0 = unknown, or no limit */
  int64_t open_items;            /* accepted items whose completions were not polled yet */
  int64_t lookups;               /* keys that were looked up */
  int64_t hits;                  /* lookups with the result HIT */
  int64_t loads, stores, removes; /* items with the result OK */
  int64_t misses;                /* items with the result MISS */
  int64_t cancelled;             /* items with the result CANCELLED */
  int64_t failed;                /* items with the result FAILED */
  int64_t evictions;             /* objects that were removed to stay within capacity_bytes */
  int64_t damaged;               /* objects that were removed because their bytes differed from the stored bytes */
  int64_t loaded_bytes;          /* bytes of loaded objects, without what the tier adds to them */
  int64_t written_bytes;         /* bytes of stored objects, without what the tier adds to them */
  int64_t load_latency_ns;       /* measured time of a load, without the transfer of its bytes; 0 = not measured yet */
  int64_t store_latency_ns;      /* measured time of a store, without the transfer of its bytes; 0 = not measured yet */
  int64_t load_bytes_per_second; /* measured while items were loaded; 0 = not measured yet */
  int64_t store_bytes_per_second; /* measured while items were stored; 0 = not measured yet */
} kvc_tier_stats;

static inline void kvc_tier_stats_init(kvc_tier_stats *stats) {
  memset(stats, 0, sizeof *stats);
  stats->struct_size = (uint32_t)sizeof *stats;
}

/* ============================================================================================
 * 5  The table
 * ============================================================================================ */

enum kvc_tier_table_flag {
  KVC_TIER_KEEPS = 1, /* the tier supports KVC_TIER_ITEM_KEEP. If it has no room for such an item, the store completes as
                         RETRY */
  KVC_TIER_REMOTE = 2, /* the objects are on another machine, or may be. Messages of events say so */
  KVC_TIER_READS_BY_IO_URING = 4 /* the disk tier reads several files at once by io_uring. For information */
};

/* A tier. The struct may be copied, and every copy stands for the same tier. All functions but `removed` must be set. */
struct kvc_tier { /* kvc_tier: kvcache.h */
  uint32_t struct_size;
  uint32_t version;         /* KVC_TIER_VERSION */
  const char *name;         /* a name such as "disk"; valid until close */
  void *self;               /* the first argument of every function */
  int64_t max_object_bytes; /* size of the largest object that the tier can store; constant */
  int32_t max_job_items;    /* the largest number of items of one job; constant */
  uint32_t flags;           /* KVC_TIER_KEEPS, KVC_TIER_REMOTE, KVC_TIER_READS_BY_IO_URING */

  /* Says for each of n keys whether the tier has its object. The function reads memory only. A tier that must search
   * elsewhere starts the search and returns PENDING.
   *   keys   borrowed; [n]
   *   found  out; [n]
   * Results: HIT, MISS, PENDING (the object is being stored or searched), RETRY. The function cannot fail. */
  void (*lookup)(void *self, int64_t n, const kvc_tier_key *keys, kvc_tier_found *found);

  /* Submit a job of n items. The tier accepts the whole job, or does nothing.
   *   job    an id that the caller chooses, and that no other open job has
   *   n      1..max_job_items
   *   items  [n]; must stay valid: see "Memory" above
   *   error  out, never NULL; filled if the result is FAILED
   * store writes objects. It replaces an object that is already stored under the key. A load at the same time returns the
   * old or the new object. A store completes as OK when the object can be loaded. The documentation of a tier says whether
   * the object then survives a loss of power.
   * load reads objects into buffers of their exact size. If the completion is not OK, the contents of the buffers are
   * undefined.
   * remove removes objects. If there is no object under the key, the completion is MISS.
   * Results: OK, RETRY (too many items are open), FAILED (an argument is wrong, or this is a child of fork()). */
  int32_t (*store)(void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *error);
  int32_t (*load)(void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *error);
  int32_t (*remove)(void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *error);

  /* Takes up to `capacity` completions, oldest first, and returns their number.
   *   done   out; [capacity] */
  int64_t (*poll)(void *self, kvc_tier_completion *done, int64_t capacity);

  /* Returns a file descriptor that is readable while completions wait to be polled. The caller only gives it to poll() or
   * similar functions, and never reads or closes it. -1: the tier has no descriptor, so the caller must poll from time to
   * time. Constant until close. On Windows it is the handle of an event, for WaitForSingleObject and similar functions. */
  int32_t (*descriptor)(void *self);

  /* Cancels a job. Items that have not begun complete as CANCELLED. Items that have begun complete as without the cancel. If
   * no open job has this id, the function does nothing. */
  void (*cancel)(void *self, uint64_t job);

  /* Fills the fields that stats->struct_size covers. */
  void (*stats)(void *self, kvc_tier_stats *stats);

  /* Cancels items that have not begun, finishes items that have begun, and releases the tier. Completions that were not
   * polled are dropped. The function may wait for I/O. */
  void (*close)(void *self);

  /* Nullable: the tier does not report removals. Takes up to `capacity` keys of objects that the tier has lost since the
   * previous call, for any reason: an eviction, a remove, damage. The first call returns 0, and from then on the tier
   * records keys. It records a key at the moment from which lookup no longer returns HIT for the key. The object may have
   * been stored again since then, so the caller looks up each key.
   *   keys  out; [capacity]
   * Returns the number of keys, or -1: there were more keys than the tier can record, and it has dropped them all. The
   * caller must then look up every key whose object it believes to be stored. */
  int64_t (*removed)(void *self, kvc_tier_key *keys, int64_t capacity);
};

static inline void kvc_tier_init(kvc_tier *tier) {
  memset(tier, 0, sizeof *tier);
  tier->struct_size = (uint32_t)sizeof *tier;
  tier->version = KVC_TIER_VERSION;
}

/* The type of the function "kvc_tier_open", which is the only symbol that a plug-in must export. It fills `tier`, for which
 * the caller has already called kvc_tier_init.
 *   version  the caller's KVC_TIER_VERSION. UNSUPPORTED if the plug-in was built for another version
 *   options  text whose meaning the plug-in defines
 *   tier     returned; released by its close
 *   error    out, never NULL; filled if the status is not KVC_OK */
typedef kvc_status (*kvc_tier_open_fn)(uint32_t version, const char *options, kvc_tier *tier, kvc_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVCACHE_TIER_H_ */
