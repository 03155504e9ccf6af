/* A tier in Redis or Valkey, in a separate library: libkvcache_redis.so. Several machines can share stored pages through it.
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
 *   if (kvc_cache_add_tier(cache, &config, &error)) return report(error.message);   // first call tier.close(tier.self)
 *
 * With TLS also: redis.flags = KVC_REDIS_TLS, and redis.tls_ca_file if the system does not have the authority.
 *
 * The library is also a plug-in: its function kvc_tier_open (kvcache_tier.h) takes a URL as options. docs/reference/tiers.md
 * has the parameters of the URL, and says what the tier guarantees. */
#ifndef KVCACHE_REDIS_H_
#define KVCACHE_REDIS_H_

#include "kvcache_tier.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kvc_redis_flag {
  KVC_REDIS_LAZY = 1,         /* open does not connect. Until a server answers, all lookups return a miss */
  KVC_REDIS_TLS = 2,          /* connections have TLS 1.2 or later. Open loads OpenSSL 3 (libssl.so.3) */
  KVC_REDIS_TLS_NO_VERIFY = 4 /* any certificate is accepted, so another machine could pretend to be the server */
};

/* A field that is 0 or NULL has its default. The strings are borrowed until open has returned. */
typedef struct kvc_redis_config {
  uint32_t struct_size;
  uint32_t flags;          /* KVC_REDIS_* */
  const char *address;     /* "host:port", "[IPv6]:port", or the path of a Unix socket, which begins with '/'. Several
                              addresses are separated by commas, and the first one that answers is used. If it is a node of a
                              cluster, the tier finds the other nodes itself. NULL: "127.0.0.1:6379" */
  const char *user;        /* name of an ACL user, which needs a password. NULL: the default user */
  const char *password;    /* NULL: no AUTH is sent */
  const char *prefix;      /* prefix of every key, at most 256 bytes. It must not contain '{', which would put all keys into
                              one slot. NULL: "kvcache:" */
  /* With KVC_REDIS_TLS. The files are in PEM format. Open reads them, and they are not read again. */
  const char *tls_ca_file;          /* certificates of the authorities that may sign the server's certificate. NULL: those
                                       of the system */
  const char *tls_certificate_file; /* the client's certificate, and then those between it and the authority's. NULL: the
                                       client has none */
  const char *tls_key_file;         /* the key of the client's certificate, without a password. NULL: it is in
                                       tls_certificate_file */
  const char *tls_server_name;      /* the name or IP address that the server's certificate must contain; a name is also
                                       sent to the server (SNI). NULL: the host of the address, and in a cluster the host
                                       of each node */
  int32_t database;        /* number of the database, from 0; a cluster has only 0 */
  int32_t timeout_ms;      /* how long a request to the server may take, without the transfer of its bytes; 1..600000. 0:
                              1000 */
  int64_t time_to_live_ms; /* the server removes an object this long after its store. 0: the server removes objects only by
                              its own eviction policy */
  int32_t lookup_ms;       /* how long the tier reuses the answer of a lookup; 100..600000. 0: 1000 */
  int32_t threads;         /* number of threads, 1..64. Each thread has its own connection to each node. 0: 8 */
  int32_t max_items;       /* largest number of open items in all jobs, 1..1048576. 0: 1024 */
  uint32_t reserved;       /* 0 */
} kvc_redis_config;

static inline void kvc_redis_config_init(kvc_redis_config *config) {
  memset(config, 0, sizeof *config);
  config->struct_size = (uint32_t)sizeof *config;
}

/* Opens a tier. Without KVC_REDIS_LAZY it also connects to the server, and with TLS it verifies the server's certificate.
 * The call waits at most timeout_ms, plus the time that the system takes to resolve a host name.
 *   config  borrowed
 *   tier    filled; released by its close
 *   error   nullable
 * Errors: NULL_ARGUMENT, STRUCT_SIZE, INVALID_ARGUMENT, OUT_OF_RANGE, UNSUPPORTED (unknown flags, or OpenSSL 3 cannot be
 * loaded), OUT_OF_MEMORY, IO (no server answers, or the server refuses, and the message has its reply; or TLS fails, or a
 * file of TLS cannot be used, and the message has OpenSSL's reason). */
KVC_API kvc_status kvc_redis_tier_open(const kvc_redis_config *config, kvc_tier *tier, kvc_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVCACHE_REDIS_H_ */
