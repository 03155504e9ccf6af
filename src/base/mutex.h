// Mutex: a std::mutex with annotations for clang's thread safety analysis (-Wthread-safety). Other compilers ignore the
// annotations.
// Condition: a condition variable for a Mutex. It calls pthread_cond_wait, because std::condition_variable::wait would
// need version 12 of libstdc++ or newer.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "base/assert.h"

#if defined(__clang__)
#define KVC_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define KVC_THREAD_ANNOTATION(x)
#endif

#define KVC_CAPABILITY(name) KVC_THREAD_ANNOTATION(capability(name))
#define KVC_SCOPED_CAPABILITY KVC_THREAD_ANNOTATION(scoped_lockable)
#define KVC_GUARDED_BY(mutex) KVC_THREAD_ANNOTATION(guarded_by(mutex))
#define KVC_REQUIRES(mutex) KVC_THREAD_ANNOTATION(requires_capability(mutex))
#define KVC_ACQUIRE(...) KVC_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define KVC_ASSERT_CAPABILITY(mutex) KVC_THREAD_ANNOTATION(assert_capability(mutex))
#define KVC_RELEASE(...) KVC_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

namespace kvc {

class KVC_CAPABILITY("mutex") Mutex {
 public:
  void lock() KVC_ACQUIRE() {
    mutex_.lock();
    set_owner(true);
  }
  void unlock() KVC_RELEASE() {
    set_owner(false);
    mutex_.unlock();
  }
  // Tells the analysis that the calling thread holds the mutex. A method calls assert_held if its caller has locked the
  // mutex through another object, because the analysis cannot see that both objects have the same mutex. Builds with
  // assertions also check that the thread holds the mutex.
  void assert_held() const KVC_ASSERT_CAPABILITY(this) {
#if defined(KVCACHE_ASSERTIONS)
    KVC_ASSERT(owner_.load(std::memory_order_relaxed) == this_thread(), 0, 0);
#endif
  }

 private:
  friend class Condition;
#if defined(KVCACHE_ASSERTIONS)
  static const void* this_thread() noexcept {
    static thread_local char mark;
    return &mark;
  }
  void set_owner(bool held) noexcept { owner_.store(held ? this_thread() : nullptr, std::memory_order_relaxed); }
  std::atomic<const void*> owner_ = nullptr;
#else
  void set_owner(bool) noexcept {}
#endif
  std::mutex mutex_;
};

class Condition {
 public:
  // Unlocks the mutex, waits for a notification, and locks the mutex again. The function may also return without a
  // notification.
  void wait(Mutex& mutex) KVC_REQUIRES(mutex) {
    mutex.set_owner(false);
    pthread_cond_wait(condition_.native_handle(), mutex.mutex_.native_handle());
    mutex.set_owner(true);
  }
  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

class KVC_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) KVC_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() KVC_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace kvc
