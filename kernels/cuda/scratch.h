// Scratch: memory of the device for what one call enqueues.
//
// A block is lent from take to give, and is again free then: an event says when what was enqueued has run. The next
// call on the same stream needs no more than the stream's order; one on another stream takes a block whose event has
// passed, or one more block, and only if there are kBlocks already waits for one, on the device. A captured stream's
// calls share a block of that capture's own, since a graph runs at any time and as often as it likes: it is kept until
// the device is closed.
//
// Thread safety: any. Blocks grow to the largest call so far, by allocation; from then on nothing is allocated.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <mutex>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

class Scratch {
 public:
  static constexpr int kBlocks = 16;
  ~Scratch();

  kvc_status take(int64_t bytes, void* stream, void** memory, kvc_error* error);
  kvc_status give(void* memory, void* stream, kvc_error* error);

 private:
  struct Block {
    void* memory;
    int64_t bytes;
    cudaEvent_t passed;  // null of a capture's
    void* stream;        // that used it last
    unsigned long long capture;
    bool lent;
    Block* next;  // of captured_
  };
  kvc_status take_captured(int64_t bytes, void* stream, unsigned long long capture, void** memory, kvc_error* error);
  kvc_status resize(Block* block, int64_t bytes, kvc_error* error);
  Block* find(void* stream);
  static void drop(Block* block);
  // One name is another stream in each thread.
  static bool is_last(const Block& block, void* stream) {
    return block.stream == stream && stream != static_cast<void*>(cudaStreamPerThread);
  }

  std::mutex mutex_;
  Block blocks_[kBlocks] = {};
  Block* captured_ = nullptr;
  int64_t largest_ = 256 * 1024;
};

}  // namespace kvc::kernels::cuda
