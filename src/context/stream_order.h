// StreamOrder: orders a cache's work on the device, whatever streams its calls use.
//
// A call that touches bytes enters on its stream, enqueues its work, and leaves. enter makes the stream wait, on the
// device, for all work that had left before on other streams. leave records an event. So the work of a call runs after
// that of every call that left before it. Pages, nodes and buffers that those calls gave up may be used again at once.
// An open step enqueues without enter and leave, because it owns what it touches until its last leave. The host never
// waits.
//
// Thread safety: the owner locks, except for check. If the calls of a device return after their work is done, this
// class does nothing. Invariant: the event follows all work that has left, on any stream.
#pragma once

#include <atomic>
#include <memory>

#include "context/context.h"

namespace kvc {

class StreamOrder {
 public:
  static Status create(std::shared_ptr<Context> context, StreamOrder* out);
  StreamOrder() = default;
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // Returns ORDER if the stream is being captured: a replay would repeat what begins or ends a step.
  Status check_stream(void* stream) const;
  // If the wait fails, nothing was enqueued.
  Status enter(void* stream);
  // If it fails, the order is lost, and no later work would be ordered. check then reports that.
  Status leave(void* stream);
  // Call it when the enqueued work is only a part of a change, and cannot be undone.
  void lose() noexcept { lost_.store(true, std::memory_order_relaxed); }
  // Any thread.
  Status check() const;

 private:
  std::shared_ptr<Context> context_;
  kvc_backend_event* event_ = nullptr;
  bool recorded_ = false;
  std::atomic<bool> lost_{false};
};

}  // namespace kvc
