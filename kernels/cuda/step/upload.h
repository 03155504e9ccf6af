// Upload: index arrays of the host to the device, one copy for all arrays of a call, from pinned staging.
//
// A ring of slots, each a block of pinned memory and one of the device's. A call takes the next slot, writes its arrays
// into the pinned block, enqueues one copy, then its kernels, and an event after each. So the host is free at once,
// many calls are in flight, and streams need no order among themselves:
//   - the pinned block is written again when its copy is done: the host waits for that only if kSlots copies are
//     queued;
//   - the device's block is written again after its last reader, by a wait on the device.
// All slots are there from create on, and grow to the largest call so far, by allocation; else nothing is allocated.
// A slot can be lent to a call that enqueues its kernels one after another. Other calls use other slots meanwhile. A
// slot whose event cannot be recorded stays lent for good, since nothing tells when it is free.
//
// Thread safety: a caller holds the lock from take to finish, or lend, and in give.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <mutex>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

// One array of a call.
struct Piece {
  const void* source;  // nullable: the caller writes `host` before it sends
  int64_t bytes;
  void* host;    // filled by take: where it is staged
  void* device;  // filled by take: where kernels read it; of a piece without bytes it stays as it is
};

template <class T>
Piece piece_of(const T* source, int64_t count) {
  return {source, source == nullptr ? 0 : count * static_cast<int64_t>(sizeof(T)), nullptr, nullptr};
}
// To be written by the caller.
template <class T>
Piece room_for(int64_t count) {
  return {nullptr, count * static_cast<int64_t>(sizeof(T)), nullptr, nullptr};
}
template <class T>
T* on_device(const Piece& piece) {
  return static_cast<T*>(piece.device);
}

class Upload {
 public:
  static constexpr int kSlots = 16;
  ~Upload();
  kvc_status create(kvc_error* error);

  std::mutex& mutex() { return mutex_; }
  // Places the pieces in the next slot and copies their sources into it. Without any bytes there is no slot, and
  // nothing to send.
  kvc_status take(Piece* pieces, int count, void* stream, kvc_error* error);
  // Enqueues the copy. Then kernels that read the slot may be enqueued on the same stream.
  kvc_status send(void* stream, kvc_error* error);
  // The same to memory of the caller's, of the first `bytes`: no kernel reads the slot.
  kvc_status send_to(void* target, int64_t bytes, void* stream, kvc_error* error);
  // The addresses of pieces that are sent to `target`; returns the bytes to send.
  int64_t place_at(void* target, Piece* pieces, int count) const;
  // After the last of those kernels.
  kvc_status finish(void* stream, kvc_error* error);
  // The slot's index, for give; -1 if there is nothing to send.
  int taken_slot() const { return taken_ == nullptr ? -1 : static_cast<int>(taken_ - slots_); }
  // In place of finish, where there is a slot.
  void lend() { taken_->lent = true; }
  kvc_status give(int slot, void* stream, kvc_error* error);
  // Host memory for the caller's own use while it holds the lock; null if there is none.
  template <class T>
  T* scratch(int64_t count) {
    return static_cast<T*>(scratch_bytes(count * static_cast<int64_t>(sizeof(T))));
  }

 private:
  struct Slot {
    unsigned char* host;
    unsigned char* device;
    int64_t capacity;
    cudaEvent_t copied, read;
    bool lent;
  };
  Slot* next_slot();
  static kvc_status record(Slot* slot, cudaEvent_t event, void* stream, kvc_error* error);
  kvc_status grow(Slot* slot, int64_t bytes, kvc_error* error);
  void drop(Slot* slot);
  void* scratch_bytes(int64_t bytes);

  std::mutex mutex_;
  Slot slots_[kSlots] = {};
  int next_ = 0;
  int64_t largest_ = 64 * 1024;
  Slot* taken_ = nullptr;
  int64_t taken_bytes_ = 0;
  void* scratch_ = nullptr;
  int64_t scratch_capacity_ = 0;
};

// All three steps for calls of one kernel: take and send, then the caller's enqueue(), then finish. The caller has the
// lock.
template <class Enqueue>
kvc_status with_locked_upload(Upload* upload, Piece* pieces, int count, void* stream, kvc_error* error,
                              const Enqueue& enqueue) {
  kvc_status status = upload->take(pieces, count, stream, error);
  if (status == KVC_OK) status = upload->send(stream, error);
  if (status != KVC_OK) return status;
  status = enqueue();
  kvc_error unsaid = KVC_ERROR_INIT;  // the first failure is what is said; of several kernels some may read the slot
  const kvc_status finished = upload->finish(stream, status == KVC_OK ? error : &unsaid);
  return status == KVC_OK ? finished : status;
}
template <class Enqueue>
kvc_status with_upload(Upload* upload, Piece* pieces, int count, void* stream, kvc_error* error,
                       const Enqueue& enqueue) {
  const std::lock_guard<std::mutex> lock(upload->mutex());
  return with_locked_upload(upload, pieces, count, stream, error, enqueue);
}

}  // namespace kvc::kernels::cuda
