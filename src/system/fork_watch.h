// ForkWatch: while the object exists, a function runs in the child of every fork(). The child has only one thread then,
// so the function needs no lock. Other code need not compare process ids to find out that the process was forked.
//
// Thread safety: construct and destroy on any thread. `in_child` runs in the child, on the thread that forked, before
// fork() returns. It may only store to memory: it must not allocate memory or lock a mutex.
// Ownership: `self` is borrowed as long as the object exists.
// clone() and _Fork() run no handlers. So their children must not use an object that has a ForkWatch. The library stays
// loaded after dlclose (-z nodelete), so the handlers stay valid. The list and its mutex have no destructor that runs
// at exit, because other threads may still run then.
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
  static void after_fork_in_child() KVC_RELEASE(list_mutex_);  // calls in_child of every object

  // The list of all ForkWatch objects that exist.
  static Mutex list_mutex_;
  static ForkWatch* list_head_ KVC_GUARDED_BY(list_mutex_);

  void (*const in_child_)(void* self);
  void* const self_;
  const bool active_;
  ForkWatch* next_ KVC_GUARDED_BY(list_mutex_) = nullptr;
  ForkWatch* previous_ KVC_GUARDED_BY(list_mutex_) = nullptr;
};

}  // namespace kvc
