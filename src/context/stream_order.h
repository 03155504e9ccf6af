// StreamOrder: one order for a cache's work on the device, whatever streams its calls come on.
//
// A call that touches bytes enters on its stream, enqueues, and leaves. Enter makes the stream wait, on the device, for
// all work that was there when another stream last left; leave records that. So the work of a call runs after that of
// every call that has left before it, and pages, nodes and buffers that were given up meanwhile may be used at once. A
// step that is open enqueues without either: what it touches is its own until it leaves for the last time. The host
// never waits.
//
// Thread safety: the owner locks, but for check. On a device whose calls return with their work done this does nothing.
// Invariant: the event comes after all work that has left, on any stream.
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

  // ORDER, if the stream is being captured: what begins or ends there would be replayed.
  Status check_stream(void* stream) const;
  // A failure to wait has enqueued nothing.
  Status enter(void* stream);
  // After a failure the order is lost, and with it whatever else would be enqueued: check says so from then on.
  Status leave(void* stream);
  // What was enqueued is half of something that cannot be taken back.
  void lose() noexcept { lost_.store(true, std::memory_order_relaxed); }
  // Any thread.
  Status check() const;

 private:
  std::shared_ptr<Context> context_;
  kvc_backend_event* event_ = nullptr;
  bool recorded_ = false;
  void* stream_ = nullptr;  // that has left last
  std::atomic<bool> lost_{false};
};

}  // namespace kvc
