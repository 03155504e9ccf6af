// Mutex: a std::mutex with annotations for clang's thread safety analysis (-Wthread-safety). Other compilers ignore
// them.
// Condition: a condition variable for a Mutex. It calls pthread_cond_wait, because std::condition_variable::wait would
// need version 12 of libstdc++ or newer.
#pragma once

#include <condition_variable>
#include <mutex>

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
#define KVC_RELEASE(...) KVC_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

namespace kvc {

class KVC_CAPABILITY("mutex") Mutex {
 public:
  void lock() KVC_ACQUIRE() { mutex_.lock(); }
  void unlock() KVC_RELEASE() { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

class Condition {
 public:
  // Unlocks the mutex, waits for a notification, and locks the mutex again. It may also return without a
  // notification.
  void wait(Mutex& mutex) KVC_REQUIRES(mutex) {
    pthread_cond_wait(condition_.native_handle(), mutex.mutex_.native_handle());
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
