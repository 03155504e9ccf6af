// See scratch.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/scratch.h"

#include <new>

#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {
namespace {

constexpr const char* kPurpose = "scratch of a call";

}  // namespace

Scratch::~Scratch() {
  for (Block& block : blocks_) drop(&block);
  while (captured_ != nullptr) {
    Block* const next = captured_->next;
    drop(captured_);
    delete captured_;
    captured_ = next;
  }
}

void Scratch::drop(Block* block) {
  if (block->passed != nullptr) {
    cudaEventSynchronize(block->passed);
    cudaEventDestroy(block->passed);
  }
  if (block->memory != nullptr) cudaFree(block->memory);
  *block = {};
}

kvc_status Scratch::resize(Block* block, int64_t bytes, kvc_error* error) {
  const bool captured = block->capture != 0;
  while (!captured && largest_ < bytes) largest_ *= 2;
  const int64_t size = captured ? bytes : largest_;
  void* memory = nullptr;
  kvc_status status = check(cudaMalloc(&memory, static_cast<size_t>(size)), "cudaMalloc", kPurpose, error);
  if (status != KVC_OK) return status;
  if (!captured && block->passed == nullptr) {
    status =
        check(cudaEventCreateWithFlags(&block->passed, cudaEventDisableTiming), "cudaEventCreate", kPurpose, error);
  } else if (!captured) {
    status = check(cudaEventSynchronize(block->passed), "cudaEventSynchronize", kPurpose, error);
  }
  if (status != KVC_OK) {
    cudaFree(memory);
    return status;
  }
  if (block->memory != nullptr) cudaFree(block->memory);
  block->memory = memory;
  block->bytes = size;
  return KVC_OK;
}

// Returns the best block for a call on `stream` (scratch.h), or null if all blocks are lent.
Scratch::Block* Scratch::find(unsigned long long stream) {
  Block *passed = nullptr, *fresh = nullptr, *any = nullptr;
  for (Block& block : blocks_) {
    if (block.lent) continue;
    if (block.memory == nullptr) {
      fresh = fresh == nullptr ? &block : fresh;
    } else if (is_last(block, stream)) {
      return &block;
    } else {
      if (passed == nullptr && cudaEventQuery(block.passed) == cudaSuccess) passed = &block;
      any = &block;
    }
  }
  return passed != nullptr ? passed : fresh != nullptr ? fresh : any;
}

kvc_status Scratch::take(const PrimaryContext& context, int64_t bytes, void* stream, void** memory, kvc_error* error) {
  unsigned long long capture = 0, stream_id = kNoStream;
  kvc_status status = capture_of(stream, "a call takes scratch", &capture, error);
  if (status == KVC_OK && capture == 0) status = context.id_of(stream, &stream_id, error);  // a capture forbids id_of
  if (status != KVC_OK) return status;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (capture != 0) return take_captured(bytes, stream, capture, memory, error);
  Block* const block = find(stream_id);
  if (block == nullptr) {
    return fail(error, KVC_ERROR_OUT_OF_MEMORY, "more than %d calls use the device at once", kBlocks);
  }
  if (block->bytes < bytes) {
    status = resize(block, bytes, error);
  } else if (!is_last(*block, stream_id)) {
    status = check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), block->passed, 0), "cudaStreamWaitEvent",
                   kPurpose, error);
  }
  if (status != KVC_OK) return status;
  block->stream = stream_id;
  block->lent = true;
  *memory = block->memory;
  return KVC_OK;
}

// Returns a block of the capture. The capture gets a new block if no block of the stream has enough bytes. A stream is
// identified by its handle, which is unique while the stream is captured.
kvc_status Scratch::take_captured(int64_t bytes, void* stream, unsigned long long capture, void** memory,
                                  kvc_error* error) {
  const auto handle = reinterpret_cast<uintptr_t>(stream);
  for (const Block* block = captured_; block != nullptr; block = block->next) {
    if (block->capture != capture || block->stream != handle || block->bytes < bytes) continue;
    *memory = block->memory;
    return KVC_OK;
  }
  Block* const block = new (std::nothrow) Block{nullptr, 0, nullptr, handle, capture, false, captured_};
  if (block == nullptr) return fail(error, KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for %s", kPurpose);
  const kvc_status status = resize(block, bytes, error);
  if (status != KVC_OK) {
    delete block;
    return status;
  }
  captured_ = block;
  *memory = block->memory;
  return KVC_OK;
}

kvc_status Scratch::give(void* memory, void* stream, kvc_error* error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Block& block : blocks_) {
    if (!block.lent || block.memory != memory) continue;
    const kvc_status status =
        check(cudaEventRecord(block.passed, static_cast<cudaStream_t>(stream)), "cudaEventRecord", kPurpose, error);
    block.lent = status != KVC_OK;  // without the event, no call can tell when the block is free
    return status;
  }
  return KVC_OK;  // the block belongs to a capture
}

kvc_status take_scratch_of(Device& device, int64_t bytes, void* stream, void** memory, kvc_error* error) {
  const CurrentDevice current(device);
  return device.scratch.take(device.context, bytes, stream, memory, error);
}

kvc_status take_scratch(kvc_backend_device* opened, int64_t bytes, void* stream, void** memory, kvc_error* error) {
  return take_scratch_of(*device_of(opened), bytes, stream, memory, error);
}

kvc_status give_scratch(kvc_backend_device* opened, void* memory, void* stream, kvc_error* error) {
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  return device.scratch.give(memory, stream, error);
}

}  // namespace kvc::kernels::cuda
