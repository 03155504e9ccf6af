// ForkWatch: while the object lives, a function runs in the child of every fork(). It runs while the child has only
// one thread. So it needs no lock, and other code need not test whether the process was forked.
//
// Thread safety: construct and destroy on any thread. `in_child` runs in the child, on the thread that forked, before
// fork() returns; it must only store to memory (no allocation, no lock).
// Ownership: `self` is borrowed for the life of the object.
// Children of clone() or _Fork() run no handlers, and must not use the object's owner. When dlclose closes the
// library, glibc removes the handlers. Nothing is registered with atexit.
#pragma once

#include "base/mutex.h"

namespace kvc {

class ForkWatch {
 public:
  ForkWatch(void (*in_child)(void* self), void* self) noexcept;
  ~ForkWatch();
  ForkWatch(const ForkWatch&) = delete;
  ForkWatch& operator=(const ForkWatch&) = delete;

  // False if the system could not register the handlers (out of memory). Then in_child does not run.
  bool active() const noexcept { return active_; }

 private:
  static bool register_handlers();
  static void before_fork() KVC_ACQUIRE(list_mutex_);
  static void after_fork_in_parent() KVC_RELEASE(list_mutex_);
  static void after_fork_in_child() KVC_RELEASE(list_mutex_);  // calls in_child of every live object

  // The list of live objects.
  static Mutex list_mutex_;
  static ForkWatch* list_head_ KVC_GUARDED_BY(list_mutex_);

  void (*const in_child_)(void* self);
  void* const self_;
  const bool active_;
  ForkWatch* next_ KVC_GUARDED_BY(list_mutex_) = nullptr;
  ForkWatch* previous_ KVC_GUARDED_BY(list_mutex_) = nullptr;
};

}  // namespace kvc
