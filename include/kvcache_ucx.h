/* A transport over UCX, in a separate library: libkvcache_ucx.so. It carries transfers (section 17 of kvcache.h) to other
 * processes by shared memory, and to other machines by TCP or RDMA.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *   kvc_ucx_config ucx;  kvc_ucx_config_init(&ucx);
 *   kvc_transport transport;
 *   if (kvc_ucx_transport_open(&ucx, &transport, &error)) return report(error.message);
 *   if (kvc_cache_set_transport(cache, &transport, &error)) return report(error.message);  // on an error, transport.close
 *
 * The library is also a plug-in: its function kvc_transport_open takes "TRANSPORTS" or "TRANSPORTS/DEVICES" as options.
 *
 * UCX also reads its environment variables UCX_TLS and UCX_NET_DEVICES, which choose the transports and devices that it may
 * use. docs/reference/transfer.md says what the transport guarantees. */
#ifndef KVCACHE_UCX_H_
#define KVCACHE_UCX_H_

#include "kvcache_transport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A field that is NULL has its default. The strings are borrowed until open has returned. */
typedef struct kvc_ucx_config {
  uint32_t struct_size;
  uint32_t reserved;       /* 0 */
  const char *transports;  /* a value for UCX_TLS, such as "tcp" or "sm,tcp". NULL: the environment variable, or all
                              transports */
  const char *devices;     /* a value for UCX_NET_DEVICES, such as "lo" or "mlx5_0:1". NULL: the environment variable, or all
                              devices */
} kvc_ucx_config;

static inline void kvc_ucx_config_init(kvc_ucx_config *config) {
  memset(config, 0, sizeof *config);
  config->struct_size = (uint32_t)sizeof *config;
}

/* Opens an endpoint.
 *   config     borrowed
 *   transport  filled; released by its close
 *   error      nullable
 * Errors: NULL_ARGUMENT, STRUCT_SIZE, UNSUPPORTED (reserved), OUT_OF_MEMORY, IO (UCX refuses, and the message has its
 * reason). */
KVC_API kvc_status kvc_ucx_transport_open(const kvc_ucx_config *config, kvc_transport *transport, kvc_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVCACHE_UCX_H_ */
