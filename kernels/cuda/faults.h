// Validation mode: reports bad values in index arrays of a caller that only the device reads.
//
// A kernel reports into one record in pinned host memory (faults.cuh). The host reads the record at the next call; that
// is one load, without a wait. The first report wins: it takes the number that the host expects next, and the host
// expects another number once it has read the record. So no work is enqueued to clear the record, and kernels of a
// captured graph can report at each replay.
//
// Thread safety: any.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <mutex>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

// Host memory that the device writes.
struct FaultRecord {
  uint32_t asked;    // written by the host: the number of the report that it waits for, from 1 on
  uint32_t written;  // written by the device, last: the number of the report in `fault`
  kvc_backend_fault fault;
};

// The destination of a kernel's reports. Passed by value.
struct FaultSink {
  FaultRecord* record;  // null: the context does not validate
  uint32_t* taken;      // on the device: the last number that a report has taken
};

class Faults {
 public:
  ~Faults();
  kvc_status open(kvc_backend_device* device, kvc_error* error);
  const FaultSink& sink() const { return sink_; }
  // Returns whether there is a report. If so, the host waits for the next one.
  bool take(kvc_backend_fault* fault);

 private:
  std::mutex mutex_;
  FaultSink sink_ = {};
  FaultRecord* record_ = nullptr;  // at the host's address
};

}  // namespace kvc::kernels::cuda
