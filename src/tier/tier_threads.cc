#include "tier/tier_threads.h"

#include <cerrno>
#include <cstring>
#include <new>

#include "system/thread.h"

namespace kvc {

void* TierThreads::thread_main(void* self) {
  static_cast<TierThreads*>(self)->run_();
  return nullptr;
}

Status TierThreads::start() noexcept {
  MutexLock lock(mutex_);
  if (!threads_.empty()) return Status();
  int failed = 0;
  try {
    threads_.reserve(static_cast<size_t>(count_));
  } catch (const std::bad_alloc&) {
    failed = ENOMEM;
  }
  while (failed == 0 && threads_.size() < static_cast<size_t>(count_)) {
    pthread_t thread;
    failed = start_thread(&thread, thread_main, this, ThreadSignals::kNone);
    if (failed == 0) threads_.push_back(thread);
  }
  if (!threads_.empty()) return Status();
  return Status::error(KVC_ERROR_OUT_OF_MEMORY, "threads of a tier: %s", std::strerror(failed));
}

void TierThreads::join() noexcept {
  std::vector<pthread_t> threads;
  {
    MutexLock lock(mutex_);
    threads.swap(threads_);
  }
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
}

}  // namespace kvc
