// Validation mode: what kernels find bad in index arrays of a caller's that only the device reads.
//
// A kernel reports into one record of pinned host memory (faults.cuh); the host looks there at the next call, which
// costs a load, and waits for nothing. The first report wins: it takes the record by the number that the host expects,
// and the host expects the next number once it has read the record. So nothing is enqueued to clear it, and kernels of
// a captured graph report at each replay.
//
// Thread safety: any.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <mutex>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

// Memory of the host that the device writes.
struct FaultRecord {
  uint32_t asked;    // the host's: number of the report that it waits for, from 1 on
  uint32_t written;  // the device's: number of the report that is in `fault`, written after it
  kvc_backend_fault fault;
};

// Where kernels report to, by value.
struct FaultSink {
  FaultRecord* record;  // null: nowhere, the context does not validate
  uint32_t* taken;      // the device's: the last number that a report has taken
};

class Faults {
 public:
  ~Faults();
  kvc_status open(kvc_backend_device* device, kvc_error* error);
  const FaultSink& sink() const { return sink_; }
  // Whether there is a report; then the next one is waited for.
  bool take(kvc_backend_fault* fault);

 private:
  std::mutex mutex_;
  FaultSink sink_ = {};
  FaultRecord* record_ = nullptr;  // as the host sees it
};

}  // namespace kvc::kernels::cuda
