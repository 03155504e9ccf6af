// StreamOrder: orders a cache's work on the device, on whatever streams its calls run.
//
// A call that reads or writes device memory calls enter with its stream, enqueues its work, and calls leave. enter
// makes the stream wait, on the device, for the work of all calls that left before. leave records an event. So the
// work of a call runs after the work of every call that left before it. It may at once reuse pages, nodes and buffers
// that these calls freed. Calls of an open step enqueue without enter and leave, because the step owns the memory
// that it uses until its last leave. The host never waits.
//
// Thread safety: the owner locks, except for check. On a device that is not asynchronous, this class does nothing.
// Invariant: the event follows the work of all calls that have left, on any stream.
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

  // Returns ORDER if the stream is being captured. A replay must not repeat work that begins or ends a step.
  Status check_stream(void* stream) const;
  // If it fails, it has enqueued nothing.
  Status enter(void* stream);
  // If it fails, later work can no longer be ordered. From then on, check fails.
  Status leave(void* stream);
  // Must be called if a change was enqueued only in part and cannot be undone. From then on, check fails.
  void lose() noexcept { lost_.store(true, std::memory_order_relaxed); }
  // Any thread may call it.
  Status check() const;

 private:
  std::shared_ptr<Context> context_;
  kvc_backend_event* event_ = nullptr;
  bool recorded_ = false;
  std::atomic<bool> lost_{false};
};

}  // namespace kvc
