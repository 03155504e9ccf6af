/* A transport over NIXL, in a library of its own: libkvcache_nixl.so. It carries transfers (section 17 of kvcache.h) to other
 * processes and machines, over a backend of NIXL that sends notifications: UCX.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *   kvc_nixl_config nixl;  kvc_nixl_config_init(&nixl);
 *   nixl.library = "/opt/nixl/lib/libnixl_capi.so";
 *   kvc_transport transport;
 *   if (kvc_nixl_transport_open(&nixl, &transport, &error)) return report(error.message);
 *   if (kvc_cache_set_transport(cache, &transport, &error)) return report(error.message);  // on an error, transport.close
 *
 * The library is a plug-in too: its symbol kvc_transport_open takes "NAME=VALUE;NAME=VALUE" as options. The names `library`,
 * `agent` and `backend` set the fields of kvc_nixl_config, and every other name is a parameter of the backend.
 *
 * NIXL is not linked. Its C API, libnixl_capi.so, is loaded at the first open, and stays loaded. NIXL's wheels have their own
 * UCX, so a process must not also link UCX itself. docs/reference/transfer.md says what the transport guarantees.
 *
 * Over shared memory, which NIXL uses only if the parameter ucx_error_handling_mode is "none", a process that is killed while
 * it sends may block the receiving agent: no process reaches it any more. Use the default, TCP or RDMA, or libkvcache_ucx.so. */
#ifndef KVCACHE_NIXL_H_
#define KVCACHE_NIXL_H_

#include "kvcache_transport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A parameter of a NIXL backend. */
typedef struct kvc_nixl_param {
  const char *name;
  const char *value;
} kvc_nixl_param;

/* 0 and NULL give the default of a field. All memory is borrowed until open has returned. */
typedef struct kvc_nixl_config {
  uint32_t struct_size;
  int32_t num_params;
  const char *library;          /* file of libnixl_capi.so. NULL: the file that the variable KVCACHE_NIXL_CAPI names, or else what the
                                   system's loader finds. A process loads one only; later opens must name the same file, or none */
  const char *agent;            /* the name of the NIXL agent, 1..63 bytes, unique among all agents that reach each other.
                                   NULL: a random one */
  const char *backend;          /* NULL: "UCX" */
  const kvc_nixl_param *params; /* of the backend; num_params of them */
} kvc_nixl_config;

static inline void kvc_nixl_config_init(kvc_nixl_config *config) {
  memset(config, 0, sizeof *config);
  config->struct_size = (uint32_t)sizeof *config;
}

/* Opens an endpoint: an agent with one backend.
 *   config     borrowed
 *   transport  filled; released by its close
 *   error      nullable
 * Errors: NULL_ARGUMENT, STRUCT_SIZE, INVALID_ARGUMENT (agent, another library than that of an earlier open), OUT_OF_RANGE
 * (num_params), OUT_OF_MEMORY, IO (the library cannot be loaded, or NIXL refuses the agent or the backend; NIXL writes its reasons
 * to stderr). */
KVC_API kvc_status kvc_nixl_transport_open(const kvc_nixl_config *config, kvc_transport *transport, kvc_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVCACHE_NIXL_H_ */
