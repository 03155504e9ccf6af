// Runs an operation over [0, n) in chunks, on the workers of the context.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/device.h"
#include "kernels/cpu/float_environment.h"

namespace kvc::kernels {

// A call that moves fewer bytes than this runs on the calling thread.
constexpr int64_t kInlineBytes = 64 * 1024;
constexpr int64_t kSmallChunks = 4;  // this many chunks take less time than the wake-up of a worker

constexpr int64_t kLineBytes = 64;  // bytes of a cache line

struct Range {
  int64_t begin, end;
};

// Divides [0, n) into `shares` shares, and returns share number `index`. Shares begin at multiples of `unit`.
inline Range share_of(int64_t n, int64_t unit, int64_t index, int64_t shares) {
  const int64_t units = (n + unit - 1) / unit;
  const int64_t begin = units * index / shares * unit, end = units * (index + 1) / shares * unit;
  return {begin, end < n ? end : n};
}

// Calls op(begin, end) for chunks of [0, n). bytes_each: the bytes that op moves for one index. A chunk moves about
// kInlineBytes. Chunks begin at multiples of `unit`, unless n is below kSmallChunks * unit. op is borrowed for the
// call.
template <class Op>
void parallel_chunks(const kvc_backend_device* device, int64_t n, int64_t bytes_each, const Op& op, int64_t unit = 1) {
  if (n <= 0) return;
  struct Job {
    const Op* op;
    int64_t n, chunk;
  };
  int64_t chunk = kInlineBytes / (bytes_each > 0 ? bytes_each : 1);
  if (chunk < 1) chunk = 1;
  if (n >= kSmallChunks * unit) chunk = (chunk + unit - 1) / unit * unit;
  Job job = {&op, n, chunk};
  const auto item = [](void* arg, int64_t index, int32_t) {
    const Job& j = *static_cast<const Job*>(arg);
    const DefaultFloatEnvironment environment;
    const int64_t begin = index * j.chunk;
    (*j.op)(begin, begin + j.chunk < j.n ? begin + j.chunk : j.n);
  };
  const int64_t chunks = (n + chunk - 1) / chunk;
  if (chunks == 1) {
    item(&job, 0, 0);
    return;
  }
  const bool small = n * bytes_each <= kSmallChunks * kInlineBytes;
  device->host->run(device->host->self, chunks, small ? KVC_EFFORT_SMALL : KVC_EFFORT_LARGE, item, &job);
}

}  // namespace kvc::kernels
