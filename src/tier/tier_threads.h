// TierThreads: the threads of a tier. They start with its first work, and block all signals.
//
// Thread safety: any thread, but join() is the last call.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace kvc {

class TierThreads {
 public:
  // Each thread calls run(), and ends when it returns.
  TierThreads(int32_t count, std::function<void()> run) : count_(count), run_(std::move(run)) {}

  // Does nothing if they run. OUT_OF_MEMORY if none can be started; one is enough.
  Status start() noexcept;
  void join() noexcept;

 private:
  const int32_t count_;
  const std::function<void()> run_;
  Mutex mutex_;
  std::vector<std::thread> threads_ KVC_GUARDED_BY(mutex_);
};

}  // namespace kvc
