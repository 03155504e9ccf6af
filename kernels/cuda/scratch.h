// Scratch: device memory for the work of one call.
//
// A call owns a block of memory from take to give. give records the block's event on the stream of the call. The event
// completes when the work of the call is done. take chooses a block as follows:
//   - A later call on the same stream may get the same block at once, because the stream orders the two calls.
//   - A call on another stream gets a block whose event has completed, or a new block. If all kBlocks blocks exist and
//     no event has completed, the call gets a block that no other call owns. Then the stream of the call waits on the
//     device for the block's event.
//   - The calls on one captured stream share blocks that belong to the capture. These blocks are kept until the device
//     is closed, because a graph may be replayed at any time.
//
// take allocates memory only if the chosen block is new or too small. Any threads may call take and give at once.
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
    cudaEvent_t passed;         // the event of the last call that owned the block; null for a block of a capture
    unsigned long long stream;  // the id of the last stream that used the block; in a capture the stream's handle
    unsigned long long capture;
    bool lent;
    Block* next;  // the next block in the list captured_
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
