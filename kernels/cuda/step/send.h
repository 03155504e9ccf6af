// How a step's arrays come to the device: a kernel reads them from pinned memory. It moves only what the step has of
// them, and the host enqueues it sooner than a copy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "kernels/common/fail.h"

namespace kvc::kernels::cuda {

// Parts of a buffer, each of whole words of kWord bytes.
struct StepParts {
  static constexpr int64_t kWord = 16;
  static constexpr int kMost = 48;
  struct Part {
    int32_t begin, end;  // words
  };
  Part parts[kMost];
  int32_t count, words;  // of parts; of all parts together

  // Adds bytes [begin, end). If there are kMost parts, the last one becomes as long as needed.
  void add(int64_t begin, int64_t end) {
    if (begin >= end) return;
    const auto first = static_cast<int32_t>(begin / kWord), behind = static_cast<int32_t>((end + kWord - 1) / kWord);
    if (count < kMost) {
      parts[count++] = {first, behind};
      words += behind - first;
      return;
    }
    Part& last = parts[kMost - 1];
    words -= last.end - last.begin;
    last = {first < last.begin ? first : last.begin, behind > last.end ? behind : last.end};
    words += last.end - last.begin;
  }
};

// Changed nodes of page lists: FANOUT numbers from values + i * FANOUT go to targets[i], for each i. Both are in pinned
// memory.
struct ChangedNodes {
  int32_t* const* targets;
  const int32_t* values;
  int64_t count;
};

// step/send.cu: enqueues the kernel. It copies the parts of the pinned buffer to the same places of `device`, and the
// nodes to theirs.
kvc_status send_parts(unsigned char* device, const unsigned char* pinned, const StepParts& parts,
                      const ChangedNodes& nodes, void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda
