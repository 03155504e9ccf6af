// The two futex calls that ThreadPool and WorkerSlots need. Thread safety: any thread. The calls do not order memory:
// the callers' atomics must.
//
// std::atomic::wait is not used: it has no time limit, and notify wakes one thread or all threads. Callers also could
// not tell when notify makes a system call, which costs microseconds.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace kvc {

// Sleeps while word == expected. If most_ns > 0, the sleep ends after most_ns nanoseconds. The function may also return
// early.
inline void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, int64_t most_ns = 0) noexcept {
  const timespec most = {most_ns / 1'000'000'000, most_ns % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, most_ns > 0 ? &most : nullptr, nullptr, 0);
}

// Wakes up to `count` threads that sleep on word.
inline void futex_wake(const std::atomic<uint32_t>& word, int count) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

}  // namespace kvc
