// Checks of values in kernels, and reports of bad values (faults.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/faults.h"
#include "kernels/cuda/plan/indexes.cuh"

namespace kvc::kernels::cuda {

// Writes a report. Any thread may call this function. If the host has not read the previous report, this report is
// dropped.
__device__ __forceinline__ void report(const FaultSink& sink, const kvc_backend_fault& fault) {
  if (sink.record == nullptr) return;
  volatile FaultRecord* const record = sink.record;
  const uint32_t asked = record->asked;
  if (atomicMax(sink.taken, asked) >= asked) return;
  volatile kvc_backend_fault& to = record->fault;
  to.kind = fault.kind;
  to.call = fault.call;
  to.array = fault.array;
  to.row = fault.row;
  to.table_row = fault.table_row;
  to.column = fault.column;
  to.value = fault.value;
  to.least = fault.least;
  to.most = fault.most;
  __threadfence_system();
  record->written = asked;
}

// Checks of values in the arrays of one call. Each check returns whether the value is good, and reports a bad value.
struct ValueCheck {
  FaultSink sink;
  int32_t call;  // KVC_BACKEND_CALL_*

  // Checks element `row` of an array: least <= value <= most.
  __device__ __forceinline__ bool within(int32_t array, int64_t row, int64_t value, int64_t least, int64_t most) const {
    return element(array, row, -1, value, least, most);
  }
  // Checks element `at`, which belongs to row `row`: least <= value <= most.
  __device__ __forceinline__ bool element(int32_t array, int64_t row, int64_t at, int64_t value, int64_t least,
                                          int64_t most) const {
    if (is_within(value, least, most)) return true;
    report(sink, {KVC_BACKEND_FAULT_RANGE, call, array, 0, row, -1, at, value, least, most});
    return false;
  }
  // Checks a value that was computed from a row: value <= most. kind: KVC_BACKEND_FAULT_*.
  __device__ __forceinline__ bool at_most(int32_t kind, int32_t array, int64_t row, int64_t value, int64_t most) const {
    if (value <= most) return true;
    report(sink, {kind, call, array, 0, row, -1, -1, value, 0, most});
    return false;
  }
  // Checks an element of a table. row: the row of the batch. For kind KVC_BACKEND_FAULT_PAGE, the value must be a
  // multiple of `most`. For other kinds it must be in [0, most].
  __device__ __forceinline__ bool entry(int32_t kind, int32_t array, int64_t row, int64_t table_row, int64_t column,
                                        int64_t value, int64_t most) const {
    // The remainder is computed in 32 bits, because a 64-bit division is a function call. The value is a slot, and
    // slot_within has checked that it fits.
    const bool good = kind == KVC_BACKEND_FAULT_PAGE ? static_cast<int32_t>(value) % static_cast<int32_t>(most) == 0
                                                     : is_within(value, 0, most);
    if (!good) report(sink, {kind, call, array, 0, row, table_row, column, value, 0, most});
    return good;
  }
};

}  // namespace kvc::kernels::cuda
