// Upload: sends index arrays of the host to the device, in one copy for all arrays of a call, through pinned memory.
//
// A ring of slots. A slot is a block of pinned memory and one of device memory. A call takes the next slot, writes its
// arrays into the pinned block, and enqueues one copy and then its kernels, with an event after each. So the host
// continues at once, many calls are in flight, and their streams need no order among themselves:
//   - The pinned block is written again when its copy is done. The host waits for that only if kSlots copies are
//     queued.
//   - The device's block is written again after its last reader. The device waits for that. All slots exist from create
//     on, and grow to the largest call so far; otherwise nothing is allocated. A call that enqueues its kernels one
//     after another can keep a slot (lend); other calls then use the other slots. If the event of a slot cannot be
//     recorded, no call can tell when the slot is free, and it stays lent.
//
// Thread safety: the caller holds the lock from take to finish or lend, and during give.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <mutex>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

// One array of a call.
struct Piece {
  const void* source;  // nullable: then the caller writes `host` before it sends
  int64_t bytes;
  void* host;    // set by take: its place in pinned memory
  void* device;  // set by take: its address for kernels; unchanged if the piece has no bytes
};

template <class T>
Piece piece_of(const T* source, int64_t count) {
  return {source, source == nullptr ? 0 : count * static_cast<int64_t>(sizeof(T)), nullptr, nullptr};
}
// A piece that the caller will write.
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
  // Places the pieces in the next slot, and copies their sources into it. If there are no bytes at all, no slot is
  // taken and nothing is sent.
  kvc_status take(Piece* pieces, int count, void* stream, kvc_error* error);
  // Enqueues the copy. Kernels that read the slot may then be enqueued on the same stream.
  kvc_status send(void* stream, kvc_error* error);
  // Enqueues a copy of the first `bytes` to memory of the caller. No kernel may read the slot.
  kvc_status send_to(void* target, int64_t bytes, void* stream, kvc_error* error);
  // Sets the device addresses of pieces that will be sent to `target`. Returns the bytes to send.
  int64_t place_at(void* target, Piece* pieces, int count) const;
  // Call it after the last kernel that reads the slot.
  kvc_status finish(void* stream, kvc_error* error);
  // The index of the slot, for give. -1 if there was nothing to send.
  int taken_slot() const { return taken_ == nullptr ? -1 : static_cast<int>(taken_ - slots_); }
  // Keeps the slot beyond this call. It takes the place of finish, where there is a slot.
  void lend() { taken_->lent = true; }
  kvc_status give(int slot, void* stream, kvc_error* error);
  // Host memory for the caller while it holds the lock. Null if there is none.
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

// Makes all steps for a call with one kernel: take, send, the caller's enqueue(), and finish. The caller holds the
// lock.
template <class Enqueue>
kvc_status with_locked_upload(Upload* upload, Piece* pieces, int count, void* stream, kvc_error* error,
                              const Enqueue& enqueue) {
  kvc_status status = upload->take(pieces, count, stream, error);
  if (status == KVC_OK) status = upload->send(stream, error);
  if (status != KVC_OK) return status;
  status = enqueue();
  kvc_error unsaid = KVC_ERROR_INIT;  // the first failure is reported; some of several kernels may read the slot
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
