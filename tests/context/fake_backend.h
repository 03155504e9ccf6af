// A CPU backend without kernels, under the symbol of the real one. It opens, lists names and gives memory.
#pragma once

#include <cstdint>

#include "kvcache_backend.h"

namespace kvc::testing {

// What the fake must do, and what it saw. One test uses it at a time.
struct FakeBackend {
  uint32_t version = KVC_BACKEND_VERSION;  // of the table it serves
  bool served = true;                      // whether it serves a table at all
  kvc_status open_status = KVC_OK;
  kvc_status allocate_status = KVC_OK;
  int devices_open = 0;
  int64_t bytes_held = 0;
  kvc_backend_host host{};  // of the last open

  static FakeBackend& get();
  static void reset() { get() = FakeBackend(); }
};

}  // namespace kvc::testing
