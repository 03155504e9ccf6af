#include "tier/tier_threads.h"

#include <pthread.h>
#include <signal.h>

#include <exception>

namespace kvc {

Status TierThreads::start() noexcept {
  MutexLock lock(mutex_);
  if (!threads_.empty()) return Status();
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);  // the new threads inherit this mask
  Status status;
  try {
    threads_.reserve(static_cast<size_t>(count_));
    for (int32_t i = 0; i < count_; ++i) threads_.emplace_back(run_);
  } catch (const std::exception& error) {
    if (threads_.empty()) status = Status::error(KVC_ERROR_OUT_OF_MEMORY, "threads of a tier: %s", error.what());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

void TierThreads::join() noexcept {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kvc
