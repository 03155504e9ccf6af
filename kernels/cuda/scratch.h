// Scratch: device memory for the work of one call.
//
// A block belongs to a call from take to give. give records an event, which passes when the call's work is done. Which
// block a call gets depends on its stream:
//   - The next call on the same stream may have the same block at once, because the stream orders the two.
//   - A call on another stream gets a block whose event has passed, or a new block. If there are kBlocks already, its
//     stream waits for one, on the device.
//   - All calls of one captured stream share a block of that capture. It is kept until the device is closed, because a
//     graph may be replayed at any time.
//
// Thread safety: any. A block is allocated when a call needs more than every call before. After that nothing is
// allocated.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <mutex>

#include "kernels/cuda/current.h"
#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

class Scratch {
 public:
  static constexpr int kBlocks = 16;
  ~Scratch();

  kvc_status take(const PrimaryContext& context, int64_t bytes, void* stream, void** memory, kvc_error* error);
  kvc_status give(void* memory, void* stream, kvc_error* error);

 private:
  struct Block {
    void* memory;
    int64_t bytes;
    cudaEvent_t passed;         // null for a block of a capture
    unsigned long long stream;  // the id of the last one that used it; in a capture its handle
    unsigned long long capture;
    bool lent;
    Block* next;  // the next in captured_
  };
  kvc_status take_captured(int64_t bytes, void* stream, unsigned long long capture, void** memory, kvc_error* error);
  kvc_status resize(Block* block, int64_t bytes, kvc_error* error);
  Block* find(unsigned long long stream);
  static void drop(Block* block);
  static bool is_last(const Block& block, unsigned long long stream) {
    return block.stream == stream && stream != kNoStream;
  }

  std::mutex mutex_;
  Block blocks_[kBlocks] = {};
  Block* captured_ = nullptr;
  int64_t largest_ = 256 * 1024;
};

}  // namespace kvc::kernels::cuda
