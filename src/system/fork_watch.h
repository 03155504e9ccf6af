// ForkWatch: while the object lives, a function runs in the child of every fork(). The child has only one thread then,
// so the function needs no lock. Other code need not compare process ids to find out that the process was forked.
//
// Thread safety: construct and destroy on any thread. `in_child` runs in the child, on the thread that forked, before
// fork() returns; it must only store to memory (no allocation, no lock).
// Ownership: `self` is borrowed for the life of the object.
// clone() and _Fork() run no handlers. So their children must not use an object that has a ForkWatch. The library stays
// loaded after dlclose (-z nodelete), so the handlers stay valid. No destructor runs at exit, when threads may be live.
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
