#include "context/fork_watch.h"

#include <pthread.h>

#include <mutex>
#include <type_traits>

namespace kvc {
namespace {

static_assert(std::is_trivially_destructible_v<std::mutex>, "a destructor at exit would run beside live threads");
constinit std::mutex list_mutex;
constinit ForkWatch* list_head = nullptr;

// The list is held over the fork, so that the child finds it whole.
void before_fork() { list_mutex.lock(); }
void after_fork_in_parent() { list_mutex.unlock(); }
void after_fork_in_child() {
  ForkWatch::run_all_in_child();
  list_mutex.unlock();
}

bool register_handlers() {
  static const bool registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
  return registered;
}

}  // namespace

ForkWatch::ForkWatch(void (*in_child)(void* self), void* self) noexcept : in_child_(in_child), self_(self) {
  active_ = register_handlers();
  std::lock_guard lock(list_mutex);
  next_ = list_head;
  if (next_) next_->previous_ = this;
  list_head = this;
}

ForkWatch::~ForkWatch() {
  std::lock_guard lock(list_mutex);
  if (next_) next_->previous_ = previous_;
  (previous_ ? previous_->next_ : list_head) = next_;
}

void ForkWatch::run_all_in_child() noexcept {
  for (ForkWatch* watch = list_head; watch; watch = watch->next_) watch->in_child_(watch->self_);
}

}  // namespace kvc
