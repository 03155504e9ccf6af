// ForkWatch: a function to run in the child of every fork() while the object lives.
// Why not a generation that is compared on use: several threads of the child may come first at the same time, whereas
// the handler runs while the child has one thread, so it needs no lock and the hot path no test.
//
// Thread safety: construct and destroy on any thread. `in_child` runs in the child, on the thread that forked, before
// fork() returns; it must only store to memory (no allocation, no lock).
// Ownership: `self` is borrowed for the life of the object.
// Children made by raw clone() or _Fork() run no handlers and must not use the object's owner.
// The handlers go with the library at dlclose (glibc ties them to it); nothing is registered with atexit.
#pragma once

namespace kvc {

class ForkWatch {
 public:
  ForkWatch(void (*in_child)(void* self), void* self) noexcept;
  ~ForkWatch();
  ForkWatch(const ForkWatch&) = delete;
  ForkWatch& operator=(const ForkWatch&) = delete;

  // False if the system refused to register handlers (out of memory): a child will not be told.
  bool active() const noexcept { return active_; }

  // For the handlers: calls in_child of every live object.
  static void run_all_in_child() noexcept;

 private:
  void (*const in_child_)(void* self);
  void* const self_;
  bool active_ = false;
  ForkWatch* next_ = nullptr;  // the list of live objects, guarded by its mutex
  ForkWatch* previous_ = nullptr;
};

}  // namespace kvc
