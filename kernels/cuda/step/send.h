// Sends the arrays of a step to the device. A kernel reads them from pinned memory. The kernel moves only the parts of
// the buffer that the current step uses. It also takes less time to enqueue than a copy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "kernels/common/fail.h"

namespace kvc::kernels::cuda {

// Parts of a buffer. Each part consists of whole words of kWord bytes.
struct StepParts {
  static constexpr int64_t kWord = 16;
  static constexpr int kMost = 48;
  struct Part {
    int32_t begin, end;  // in words
  };
  Part parts[kMost];
  int32_t count, words;  // the number of parts, and of the words in all parts

  // Adds bytes [begin, end). If there are kMost parts already, the last part is extended to include these bytes.
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

// Changed nodes of page lists. For each i < count, the kernel copies FANOUT numbers from values + i * FANOUT to
// targets[i]. Both arrays are in pinned memory. Each targets[i] is an address in device memory.
struct ChangedNodes {
  int32_t* const* targets;
  const int32_t* values;
  int64_t count;
};

// In step/send.cu: enqueues the kernel. It copies each part of `pinned` to the same place of `device`, and each node to
// its target.
kvc_status send_parts(unsigned char* device, const unsigned char* pinned, const StepParts& parts,
                      const ChangedNodes& nodes, void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda
