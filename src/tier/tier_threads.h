// TierThreads: the threads of a tier. The threads block all signals.
//
// Thread safety: any thread. join() must be the last call.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace kvc {

class TierThreads {
 public:
  // Each thread calls run(), and ends when run() returns.
  TierThreads(int32_t count, std::function<void()> run) : count_(count), run_(std::move(run)) {}

  // Starts the threads, unless they run already. Returns OUT_OF_MEMORY if no thread can start. Fewer threads than
  // `count` are no error.
  Status start() noexcept;
  void join() noexcept;

 private:
  static void* thread_main(void* self);

  const int32_t count_;
  const std::function<void()> run_;
  Mutex mutex_;
  std::vector<pthread_t> threads_ KVC_GUARDED_BY(mutex_);
};

}  // namespace kvc
