// Upload: sends the index arrays of a call from the host to the device, in one copy, through pinned memory.
//
// An Upload is a ring of slots. A slot has a block of pinned memory and a block of device memory. A call takes the next
// slot, writes its arrays into the pinned block, and enqueues one copy and then its kernels. It records one event after
// the copy and one after the kernels. So the host continues at once, many calls can be in flight, and different streams
// need not wait for each other:
//   - The pinned block is written again after its copy. The host waits only if the copy of the next slot is not done,
//     or if a slot must grow.
//   - The block of device memory is written again after the last kernel that reads it. For this, the stream of the next
//     call waits for the second event.
//
// create allocates all slots. Later, pinned memory and device memory are allocated only when a call needs more bytes
// than its slot has.
//
// A stateless call that calls the backend several times can keep its slot (lend), from begin_call to end_call. Then
// other calls use the other slots. If an event of a slot cannot be recorded, no call can tell when the slot is free. So
// the slot is never used again.
//
// Thread safety: the caller holds the lock from take to its last call for the slot (send_to, finish or lend), and
// during give.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <mutex>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

// One array of a call.
struct Piece {
  const void* source;  // null: the caller writes `host` before it calls send
  int64_t bytes;
  void* host;    // set by take: the place of the array in pinned memory
  void* device;  // set by take: the address of the array for kernels; unchanged if the piece has no bytes
};

template <class T>
Piece piece_of(const T* source, int64_t count) {
  return {source, source == nullptr ? 0 : count * static_cast<int64_t>(sizeof(T)), nullptr, nullptr};
}
// A piece whose bytes the caller writes after take.
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
  // Takes the next slot, places the pieces in it, and copies their sources to pinned memory. If all pieces are empty,
  // no slot is taken and nothing is sent.
  kvc_status take(Piece* pieces, int count, void* stream, kvc_error* error);
  // Enqueues the copy of the slot. After that, the caller may enqueue kernels that read the slot, on the same stream.
  kvc_status send(void* stream, kvc_error* error);
  // Instead of send: enqueues a copy of the first `bytes` bytes of the slot to `target`. Then kernels read `target`,
  // and not the slot.
  kvc_status send_to(void* target, int64_t bytes, void* stream, kvc_error* error);
  // Sets the device addresses of pieces that send_to will send to `target`. Returns the number of bytes to send.
  int64_t place_at(void* target, Piece* pieces, int count) const;
  // Records that the call has enqueued its last kernel that reads the slot.
  kvc_status finish(void* stream, kvc_error* error);
  // The index of the taken slot, for give; -1 if there was nothing to send.
  int taken_slot() const { return taken_ == nullptr ? -1 : static_cast<int>(taken_ - slots_); }
  // Keeps the slot after this call, until give. Call it instead of finish, and only if a slot was taken.
  void lend() { taken_->lent = true; }
  kvc_status give(int slot, void* stream, kvc_error* error);
  // Returns host memory that the caller may use while it holds the lock, or null if the host refused it.
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

// Runs take, send, enqueue() and finish. enqueue() must enqueue the kernels of the call. The caller holds the lock.
template <class Enqueue>
kvc_status with_locked_upload(Upload* upload, Piece* pieces, int count, void* stream, kvc_error* error,
                              const Enqueue& enqueue) {
  kvc_status status = upload->take(pieces, count, stream, error);
  if (status == KVC_OK) status = upload->send(stream, error);
  if (status != KVC_OK) return status;
  status = enqueue();
  kvc_error unsaid = KVC_ERROR_INIT;  // not used: only the first failure is reported
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
