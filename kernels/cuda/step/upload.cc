// See step/upload.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/step/upload.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 16;
constexpr const char* kPurpose = "the upload of index arrays";

int64_t padded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Upload::~Upload() {
  for (Slot& slot : slots_) drop(&slot);
  free(scratch_);
}

kvc_status Upload::create(kvc_error* error) {
  kvc_status status = KVC_OK;
  for (Slot& slot : slots_) {
    if (status == KVC_OK) status = grow(&slot, largest_, error);
  }
  return status;
}

void* Upload::scratch_bytes(int64_t bytes) {
  if (bytes <= scratch_capacity_) return scratch_;
  void* const grown = realloc(scratch_, static_cast<size_t>(2 * bytes));
  if (grown == nullptr) return nullptr;
  scratch_ = grown;
  scratch_capacity_ = 2 * bytes;
  return grown;
}

void Upload::drop(Slot* slot) {
  if (slot->copied != nullptr) {
    cudaEventSynchronize(slot->copied);
    cudaEventDestroy(slot->copied);
  }
  if (slot->read != nullptr) {
    cudaEventSynchronize(slot->read);
    cudaEventDestroy(slot->read);
  }
  if (slot->host != nullptr) cudaFreeHost(slot->host);
  if (slot->device != nullptr) cudaFree(slot->device);
  *slot = {};
}

kvc_status Upload::grow(Slot* slot, int64_t bytes, kvc_error* error) {
  drop(slot);
  while (largest_ < bytes) largest_ *= 2;
  void *host = nullptr, *device = nullptr;
  kvc_status status = check(cudaHostAlloc(&host, static_cast<size_t>(largest_), cudaHostAllocDefault), "cudaHostAlloc",
                            kPurpose, error);
  slot->host = static_cast<unsigned char*>(host);
  if (status == KVC_OK) {
    status = check(cudaMalloc(&device, static_cast<size_t>(largest_)), "cudaMalloc", kPurpose, error);
    slot->device = static_cast<unsigned char*>(device);
  }
  for (cudaEvent_t* event : {&slot->copied, &slot->read}) {
    if (status == KVC_OK) {
      status = check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreate", kPurpose, error);
    }
  }
  if (status == KVC_OK) {
    slot->capacity = largest_;
  } else {
    drop(slot);
  }
  return status;
}

// Returns the next slot that is not lent, or null if all slots are lent. The device may still use the slot.
Upload::Slot* Upload::next_slot() {
  for (int i = 0; i < kSlots; ++i) {
    Slot* const slot = &slots_[next_];
    next_ = (next_ + 1) % kSlots;
    if (!slot->lent) return slot;
  }
  return nullptr;
}

kvc_status Upload::take(Piece* pieces, int count, void* stream, kvc_error* error) {
  int64_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += padded(pieces[i].bytes);
  taken_ = nullptr;
  taken_bytes_ = bytes;
  if (bytes == 0) return KVC_OK;
  const kvc_status outside = check_not_captured(stream, "a call sends index arrays of its own", error);
  if (outside != KVC_OK) return outside;
  Slot* const slot = next_slot();
  if (slot == nullptr) {
    return fail(error, KVC_ERROR_OUT_OF_MEMORY, "more than %d calls use the device at once", kSlots);
  }
  if (slot->capacity < bytes) {
    const kvc_status grown = grow(slot, bytes, error);
    if (grown != KVC_OK) return grown;
  } else {
    const kvc_status copied = check(cudaEventSynchronize(slot->copied), "cudaEventSynchronize", kPurpose, error);
    if (copied != KVC_OK) return copied;
    const kvc_status read = check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), slot->read, 0),
                                  "cudaStreamWaitEvent", kPurpose, error);
    if (read != KVC_OK) return read;
  }
  int64_t offset = 0;
  for (int i = 0; i < count; ++i) {
    Piece& piece = pieces[i];
    if (piece.bytes == 0) continue;
    piece.host = slot->host + offset;
    piece.device = slot->device + offset;
    if (piece.source != nullptr) {
      memcpy(piece.host, piece.source, static_cast<size_t>(piece.bytes));
    }
    offset += padded(piece.bytes);
  }
  taken_ = slot;
  return KVC_OK;
}

kvc_status Upload::send(void* stream, kvc_error* error) {
  return taken_bytes_ == 0 ? KVC_OK : send_to(taken_->device, taken_bytes_, stream, error);
}

kvc_status Upload::send_to(void* target, int64_t bytes, void* stream, kvc_error* error) {
  const kvc_status status = check(cudaMemcpyAsync(target, taken_->host, static_cast<size_t>(bytes),
                                                  cudaMemcpyHostToDevice, static_cast<cudaStream_t>(stream)),
                                  "cudaMemcpyAsync", kPurpose, error);
  return status != KVC_OK ? status : record(taken_, taken_->copied, stream, error);
}

int64_t Upload::place_at(void* target, Piece* pieces, int count) const {
  for (int i = 0; i < count; ++i) {
    Piece& piece = pieces[i];
    if (piece.bytes == 0) continue;
    piece.device = static_cast<unsigned char*>(target) + (static_cast<unsigned char*>(piece.host) - taken_->host);
  }
  return taken_bytes_;
}

kvc_status Upload::finish(void* stream, kvc_error* error) {
  return taken_ == nullptr ? KVC_OK : record(taken_, taken_->read, stream, error);
}

kvc_status Upload::record(Slot* slot, cudaEvent_t event, void* stream, kvc_error* error) {
  const kvc_status status =
      check(cudaEventRecord(event, static_cast<cudaStream_t>(stream)), "cudaEventRecord", kPurpose, error);
  slot->lent = status != KVC_OK;
  return status;
}

kvc_status Upload::give(int slot, void* stream, kvc_error* error) {
  return record(&slots_[slot], slots_[slot].read, stream, error);
}

}  // namespace kvc::kernels::cuda
