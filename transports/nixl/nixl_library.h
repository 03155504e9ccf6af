// The functions of libnixl_capi.so that the transport calls. The library is loaded at run time.
//
// The declarations follow NIXL 1.5.1 (the wheels nixl-cu12 and nixl-cu13). All handles are pointers.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace kvc {

struct NixlAgentConfig {
  bool progress_thread = false, listen_thread = false;
  int listen_port = 0;
  int thread_sync = 0;  // no locks in NIXL, because calls are made one at a time
  unsigned num_workers = 0;
  uint64_t progress_delay_us = 0, listen_delay_us = 0;
  bool telemetry = false;
  char later_fields[128] = {};  // zeros for fields that a later version of NIXL may read
};

struct NixlLibrary {
  // Each function returns 0 on success.
  int (*create_agent)(const char* name, const NixlAgentConfig* config, void** agent);
  int (*destroy_agent)(void* agent);
  int (*create_params)(void** params);
  int (*add_param)(void* params, const char* name, const char* value);
  int (*destroy_params)(void* params);
  int (*create_backend)(void* agent, const char* name, void* params, void** backend);
  int (*destroy_backend)(void* backend);                                           // frees the handle
  int (*get_metadata)(void* agent, void** data, size_t* bytes);                    // the caller frees data
  int (*load_metadata)(void* agent, const void* data, size_t bytes, char** name);  // the caller frees name
  int (*forget_metadata)(void* agent, const char* name);
  int (*notify)(void* agent, const char* to, const void* data, size_t bytes, void* options);  // copies data
  int (*create_notes)(void** notes);
  int (*destroy_notes)(void* notes);
  int (*take_notes)(void* agent, void* notes, void* options);  // also makes progress with what was sent
  int (*count_agents)(void* notes, size_t* count);
  int (*agent_at)(void* notes, size_t index, const char** name);
  int (*count_notes)(void* notes, const char* agent, size_t* count);
  int (*note_at)(void* notes, const char* agent, size_t index, const void** data, size_t* bytes);

  // Loads the library once for the process. file: null or empty for the default.
  static Status load(const char* file, const NixlLibrary** out);
};

// The meaning of a result of NIXL's C API, as text.
const char* nixl_result_name(int result);

}  // namespace kvc
