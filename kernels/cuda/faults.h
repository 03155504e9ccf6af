// Validation mode: reports bad values in the caller's index arrays that only the device reads.
//
// A kernel writes a report into one record in pinned host memory (faults.cuh). The next call on the host checks the
// record without waiting. Reports have numbers. The host expects one number at a time: the first report takes this
// number, and later reports are dropped. When the host has read the report, it expects the next number. So no work is
// enqueued to clear the record, and a captured graph can report at each replay.
//
// Any threads may call these functions at once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <mutex>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

// Pinned host memory, which the device writes.
struct FaultRecord {
  uint32_t asked;    // written by the host: the number of the report that it expects, from 1 on
  uint32_t written;  // written by the device after `fault`: the number of the report in `fault`
  kvc_backend_fault fault;
};

// Where kernels write their reports. The host passes it to kernels by value.
struct FaultSink {
  FaultRecord* record;  // address on the device; null: the context does not validate
  uint32_t* taken;      // in device memory: the number of the last report that was accepted
};

class Faults {
 public:
  ~Faults();
  kvc_status open(kvc_backend_device* device, kvc_error* error);
  const FaultSink& sink() const { return sink_; }
  // Gives the report, if there is one, and lets the device write the next report. Returns whether there was a report.
  bool take(kvc_backend_fault* fault);

 private:
  std::mutex mutex_;
  FaultSink sink_ = {};
  FaultRecord* record_ = nullptr;  // address on the host
};

}  // namespace kvc::kernels::cuda
