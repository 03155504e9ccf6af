/* A tier in Redis or Valkey, in a library of its own: libkvcache_redis.so. Several machines share one cache through it.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *   kvc_redis_config redis;  kvc_redis_config_init(&redis);
 *   redis.address = "cache.internal:6379";  redis.password = password;
 *   kvc_tier tier;
 *   if (kvc_redis_tier_open(&redis, &tier, &error)) return report(error.message);
 *
 *   kvc_tier_config config;  kvc_tier_config_init(&config);
 *   config.tier = &tier;
 *   if (kvc_cache_add_tier(cache, &config, &error)) return report(error.message);   // on an error, call tier.close(tier.self)
 *
 * The library is a plug-in too: its symbol kvc_tier_open (kvcache_tier.h) takes a URL as options. docs/reference/tiers.md has the
 * parameters of the URL, and says what the tier guarantees. */
#ifndef KVCACHE_REDIS_H_
#define KVCACHE_REDIS_H_

#include "kvcache_tier.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kvc_redis_flag {
  KVC_REDIS_LAZY = 1 /* open does not connect. The tier misses while no server answers, and works as soon as one does */
};

/* 0 and NULL give the default of a field. The texts are borrowed until open has returned. */
typedef struct kvc_redis_config {
  uint32_t struct_size;
  uint32_t flags;          /* KVC_REDIS_* */
  const char *address;     /* "host:port", "[IPv6]:port", or the path of a Unix socket, which begins with '/'. Several, with commas between
                              them: the first one that answers is used. NULL: "127.0.0.1:6379". If it is a node of a cluster, the
                              tier learns of the other nodes by itself */
  const char *user;        /* an ACL user; NULL: the default user. It needs a password */
  const char *password;    /* NULL: no AUTH is sent */
  const char *prefix;      /* of every key; NULL: "kvcache:". At most 256 bytes, without '{', which would put all keys into one slot */
  int32_t database;        /* 0..; a cluster has only 0 */
  int32_t timeout_ms;      /* how long a call to the server may take, without the transfer of its bytes; 1..600000. 0: 1000 */
  int64_t time_to_live_ms; /* the server removes an object so long after its store. 0: never, it evicts by its own policy */
  int32_t lookup_ms;       /* how long the answer of a lookup is used again; 100..600000. 0: 1000 */
  int32_t threads;         /* 1..64, each with a connection of its own to each node. 0: 8 */
  int32_t max_items;       /* 1..1048576 items that are open at once, in all jobs. 0: 1024 */
  uint32_t reserved;       /* 0 */
} kvc_redis_config;

static inline void kvc_redis_config_init(kvc_redis_config *config) {
  memset(config, 0, sizeof *config);
  config->struct_size = (uint32_t)sizeof *config;
}

/* Opens a tier, and connects to the server (without KVC_REDIS_LAZY). It blocks for timeout_ms at most, and for as long as the
 * system takes to resolve a name.
 *   config  borrowed
 *   tier    filled; released by its close
 *   error   nullable
 * Errors: NULL_ARGUMENT, STRUCT_SIZE, INVALID_ARGUMENT, OUT_OF_RANGE, UNSUPPORTED (unknown flags), OUT_OF_MEMORY, IO (no server answers,
 * or it refuses: the message has its words). */
KVC_API kvc_status kvc_redis_tier_open(const kvc_redis_config *config, kvc_tier *tier, kvc_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVCACHE_REDIS_H_ */
