// A std::mutex that clang's thread safety analysis understands (-Wthread-safety); the annotations are empty elsewhere.
// Also a condition variable for it. Unlike std::condition_variable, it needs no symbol of a libstdc++ newer than 11.
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
  // Unlocks the mutex, waits to be notified (or wakes for no reason), and locks it again.
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
