// StreamOrder: orders the work of a cache on the device, although its calls may run on different streams.
//
// A call that reads or writes device memory calls enter with its stream, enqueues its work, and calls leave. enter
// makes the stream wait, on the device, for the work of all calls that have called leave before. leave records an
// event. So the work of a call runs after the work of every call that left before it entered. Therefore this work may
// use pages, nodes and buffers that the earlier calls have freed. Calls within an open step enqueue work without
// enter and leave. No other call uses the memory of the step until the call that closes the step has left. There is one
// exception: a transfer sends rows before the step ends. Therefore a call that appends such rows does call leave
// (CacheSteps::leave_step). The host never waits.
//
// Thread safety: any thread may call check. The other calls are made under the owner's lock. On a device that is not
// asynchronous, this class does nothing. Invariant: the event follows the work of all calls that have left, on any
// stream.
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

  // Returns ORDER if the stream is being captured, because a replay must not repeat work that begins or ends a step.
  Status check_stream(void* stream) const;
  // If enter fails, it has enqueued nothing.
  Status enter(void* stream);
  // If leave fails, later work can no longer be ordered. From then on, check fails.
  Status leave(void* stream);
  // Must be called if a change was enqueued only in part and cannot be undone. From then on, check fails.
  void lose() noexcept { lost_.store(true, std::memory_order_relaxed); }
  // Returns DEVICE_FAILED if leave has failed, or lose was called. Any thread may call it.
  Status check() const;

 private:
  std::shared_ptr<Context> context_;
  kvc_backend_event* event_ = nullptr;
  bool recorded_ = false;
  std::atomic<bool> lost_{false};
};

}  // namespace kvc
