// SlotCopies: the copies of slots that a fork, a commit, a step, an attach, a load or a transfer needs. A cache with
// storage makes them in every layer. A cache without storage (KVC_STORAGE_NONE) queues them for its caller.
//
// Thread safety: none; calls are made under the cache's lock. Ownership: borrows the layers and the stream order.
#pragma once

#include <span>
#include <vector>

#include "context/stream_order.h"
#include "layer/layers.h"
#include "sequence/copy_queue.h"

namespace kvc {

class SlotCopies {
 public:
  SlotCopies(const Layers& layers, StreamOrder* order);

  // Empties and returns the list to which the sequence store appends the copies of a call. The list has room for one
  // copy for each sequence and group. A call that needs more copies calls `reserve` before it changes the cache.
  std::vector<SlotCopy>* plan() noexcept {
    planned_.clear();
    return &planned_;
  }
  void reserve(int64_t copies) {
    planned_.reserve(static_cast<size_t>(copies));
    layer_copies_.reserve(static_cast<size_t>(copies));
  }
  int64_t num_planned() const noexcept { return static_cast<int64_t>(planned_.size()); }
  // Makes the planned copies: one call of the backend for each layer. A cache without storage queues the copies
  // instead. begun: nullable; false before the call. Sets *begun to true, also on failure, if some copies may have
  // begun.
  Status make(void* stream, bool* begun = nullptr);

  // ---- Only for a cache without storage; other caches queue nothing -------------------------------------------------

  // Makes room in the queue for up to `more` copies of a fork, a commit or an attach. Returns ORDER if too many copies
  // wait.
  Status make_room(int64_t more);
  // Returns ORDER if copies wait for the caller.
  Status check_taken() const;
  // Moves all waiting copies to `out`, if it has room for them. An empty `out` leaves them waiting. Sets *count to the
  // number of waiting copies.
  Status take(std::span<kvc_copy> out, int64_t* count);
  CopyQueue& queue() noexcept { return queue_; }

 private:
  Status make_in_layers(void* stream, bool* begun);

  const Layers& layers_;
  StreamOrder& order_;
  std::vector<SlotCopy> planned_;
  std::vector<kvc_backend_slot_copy> layer_copies_;  // scratch: the copies of one layer
  CopyQueue queue_;
};

}  // namespace kvc
