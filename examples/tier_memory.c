/* A tier in host memory, as small as a tier can be: begin your own from it. docs/reference/tiers.md explains the rules.
 *
 * It does its work inside the submit, so it needs no thread. That is allowed because copying memory does not block. A
 * tier that waits for a disk or a network gives its items to threads instead. If it is full, it forgets the oldest
 * object.
 *
 * Locks: `mutex` guards everything. Ownership: an object's bytes belong to its slot.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvcache_tier.h"

enum { SLOTS = 1024, OPEN_ITEMS = 256 };

struct slot {
  kvc_tier_key key;
  int64_t bytes; /* -1: the slot is free */
  char *data;
};

struct memory_tier {
  pthread_mutex_t mutex;
  struct slot slots[SLOTS];
  int next; /* the slot of the next new object, in a circle: its old object is the oldest */
  kvc_tier_completion done[OPEN_ITEMS];
  int64_t num_done; /* every open item has completed, so this is also the number of open items */
  kvc_tier_stats stats;
};

static struct slot *find(struct memory_tier *tier, const kvc_tier_key *key) {
  for (int i = 0; i < SLOTS; i++) {
    struct slot *slot = &tier->slots[i];
    if (slot->bytes >= 0 && memcmp(slot->key.bytes, key->bytes, sizeof key->bytes) == 0) return slot;
  }
  return NULL;
}

static void forget(struct memory_tier *tier, struct slot *slot) {
  if (slot->bytes < 0) return;
  tier->stats.objects--;
  tier->stats.stored_bytes -= slot->bytes;
  free(slot->data);
  slot->data = NULL;
  slot->bytes = -1;
}

static int32_t store_one(struct memory_tier *tier, const kvc_tier_item *item) {
  struct slot *slot = find(tier, &item->key);
  char *data = malloc(item->bytes > 0 ? (size_t)item->bytes : 1), *to = data;
  if (data == NULL) return KVC_TIER_FAILED;
  for (int i = 0; i < item->num_buffers; to += item->buffers[i++].bytes) {
    if (item->buffers[i].bytes > 0) memcpy(to, item->buffers[i].data, (size_t)item->buffers[i].bytes);
  }
  if (slot == NULL) {
    slot = &tier->slots[tier->next++ % SLOTS];
    tier->stats.evictions += slot->bytes >= 0;
  }
  forget(tier, slot);
  slot->key = item->key;
  slot->bytes = item->bytes;
  slot->data = data;
  tier->stats.objects++;
  tier->stats.stored_bytes += item->bytes;
  return KVC_TIER_OK;
}

static int32_t load_one(struct memory_tier *tier, const kvc_tier_item *item) {
  const struct slot *slot = find(tier, &item->key);
  if (slot == NULL || slot->bytes != item->bytes) return KVC_TIER_MISS; /* never a part of an object */
  const char *from = slot->data;
  for (int i = 0; i < item->num_buffers; from += item->buffers[i++].bytes) {
    if (item->buffers[i].bytes > 0) memcpy(item->buffers[i].data, from, (size_t)item->buffers[i].bytes);
  }
  return KVC_TIER_OK;
}

static int32_t remove_one(struct memory_tier *tier, const kvc_tier_item *item) {
  struct slot *slot = find(tier, &item->key);
  if (slot == NULL) return KVC_TIER_MISS;
  forget(tier, slot);
  return KVC_TIER_OK;
}

/* A job is accepted whole or not at all. Each item gets one completion. */
static int32_t submit(struct memory_tier *tier, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *error,
                      int32_t (*one)(struct memory_tier *, const kvc_tier_item *), int64_t *count) {
  if (n < 1 || n > OPEN_ITEMS) {
    error->code = KVC_ERROR_BATCH_TOO_LARGE;
    error->required = n;
    error->available = OPEN_ITEMS;
    snprintf(error->message, sizeof error->message, "a job of %lld items; the tier takes %d", (long long)n, OPEN_ITEMS);
    return KVC_TIER_FAILED;
  }
  pthread_mutex_lock(&tier->mutex);
  const int full = n > OPEN_ITEMS - tier->num_done;
  for (int64_t i = 0; !full && i < n; i++) {
    const kvc_tier_completion done = {job, i, one(tier, &items[i]), 0};
    tier->done[tier->num_done++] = done;
    *count += done.result == KVC_TIER_OK;
    tier->stats.misses += done.result == KVC_TIER_MISS;
    tier->stats.failed += done.result == KVC_TIER_FAILED;
  }
  pthread_mutex_unlock(&tier->mutex);
  return full ? KVC_TIER_RETRY : KVC_TIER_OK;
}

static int32_t store(void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *error) {
  struct memory_tier *tier = self;
  return submit(tier, job, n, items, error, store_one, &tier->stats.stores);
}

static int32_t load(void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *error) {
  struct memory_tier *tier = self;
  return submit(tier, job, n, items, error, load_one, &tier->stats.loads);
}

static int32_t remove_objects(void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *error) {
  struct memory_tier *tier = self;
  return submit(tier, job, n, items, error, remove_one, &tier->stats.removes);
}

static void lookup(void *self, int64_t n, const kvc_tier_key *keys, kvc_tier_found *found) {
  struct memory_tier *tier = self;
  pthread_mutex_lock(&tier->mutex);
  for (int64_t i = 0; i < n; i++) {
    const struct slot *slot = find(tier, &keys[i]);
    found[i].result = slot ? KVC_TIER_HIT : KVC_TIER_MISS;
    found[i].reserved = 0;
    found[i].bytes = slot ? slot->bytes : 0;
    tier->stats.hits += slot != NULL;
  }
  tier->stats.lookups += n;
  pthread_mutex_unlock(&tier->mutex);
}

static int64_t poll_completions(void *self, kvc_tier_completion *done, int64_t capacity) {
  struct memory_tier *tier = self;
  pthread_mutex_lock(&tier->mutex);
  const int64_t n = tier->num_done < capacity ? tier->num_done : capacity;
  memcpy(done, tier->done, (size_t)n * sizeof *done);
  tier->num_done -= n;
  memmove(tier->done, tier->done + n, (size_t)tier->num_done * sizeof *done);
  pthread_mutex_unlock(&tier->mutex);
  return n;
}

static int32_t descriptor(void *self) {
  (void)self;
  return -1; /* nothing to wait for: completions are there when the submit returns */
}

static void cancel(void *self, uint64_t job) { (void)self, (void)job; /* no item waits to begin */ }

static void fill_stats(void *self, kvc_tier_stats *stats) {
  struct memory_tier *tier = self;
  pthread_mutex_lock(&tier->mutex);
  kvc_tier_stats all = tier->stats;
  all.open_items = tier->num_done;
  all.struct_size = stats->struct_size; /* the caller's struct may be older, and shorter */
  memcpy(stats, &all, stats->struct_size < sizeof all ? stats->struct_size : sizeof all);
  pthread_mutex_unlock(&tier->mutex);
}

static void close_tier(void *self) {
  struct memory_tier *tier = self;
  for (int i = 0; i < SLOTS; i++) free(tier->slots[i].data);
  pthread_mutex_destroy(&tier->mutex);
  free(tier);
}

/* The symbol of a plug-in. This tier has no options. */
kvc_status kvc_tier_open(uint32_t version, const char *options, kvc_tier *tier, kvc_error *error) {
  struct memory_tier *memory = calloc(1, sizeof *memory);
  (void)options;
  if (version != KVC_TIER_VERSION || memory == NULL) {
    free(memory);
    error->code = version != KVC_TIER_VERSION ? KVC_ERROR_UNSUPPORTED : KVC_ERROR_OUT_OF_MEMORY;
    snprintf(error->message, sizeof error->message, "version %u of the table, and this tier has %d", version,
             KVC_TIER_VERSION);
    return error->code;
  }
  pthread_mutex_init(&memory->mutex, NULL);
  for (int i = 0; i < SLOTS; i++) memory->slots[i].bytes = -1;
  tier->name = "memory";
  tier->self = memory;
  tier->max_object_bytes = (int64_t)1 << 30;
  tier->max_job_items = OPEN_ITEMS;
  tier->lookup = lookup;
  tier->store = store;
  tier->load = load;
  tier->remove = remove_objects;
  tier->poll = poll_completions;
  tier->descriptor = descriptor;
  tier->cancel = cancel;
  tier->stats = fill_stats;
  tier->close = close_tier;
  return KVC_OK;
}
