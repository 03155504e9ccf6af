#include "system/fork_watch.h"

#include <pthread.h>

#include <type_traits>

namespace kvc {

static_assert(std::is_trivially_destructible_v<Mutex>, "a destructor at exit would run beside live threads");
constinit Mutex ForkWatch::list_mutex_;
constinit ForkWatch* ForkWatch::list_head_ = nullptr;

// The lock is held during fork(), so that the child gets a consistent list.
void ForkWatch::before_fork() { list_mutex_.lock(); }
void ForkWatch::after_fork_in_parent() { list_mutex_.unlock(); }
void ForkWatch::after_fork_in_child() {
  for (ForkWatch* watch = list_head_; watch; watch = watch->next_) watch->in_child_(watch->self_);
  list_mutex_.unlock();
}

bool ForkWatch::register_handlers() {
  static const bool registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
  return registered;
}

ForkWatch::ForkWatch(void (*in_child)(void* self), void* self) noexcept
    : in_child_(in_child), self_(self), active_(register_handlers()) {
  MutexLock lock(list_mutex_);
  next_ = list_head_;
  if (next_) next_->previous_ = this;
  list_head_ = this;
}

ForkWatch::~ForkWatch() {
  MutexLock lock(list_mutex_);
  if (next_) next_->previous_ = previous_;
  (previous_ ? previous_->next_ : list_head_) = next_;
}

}  // namespace kvc
