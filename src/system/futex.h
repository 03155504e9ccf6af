// The two futex calls that ThreadPool and WorkerSlots need. Thread safety: any thread. The calls do not order memory:
// the callers' atomics must.
//
// std::atomic::wait is not used: it has no time limit, and notify wakes one thread or all threads. Callers also could
// not tell when notify makes a system call, which costs microseconds.
#pragma once

#include <atomic>
#include <cstdint>

namespace kvc {

// Sleeps while word == expected. If most_ns > 0, the sleep ends after most_ns nanoseconds, or at the next tick of the
// system's timer, if this timer is coarser. The function may also return early.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, int64_t most_ns = 0) noexcept;

// Wakes up to `count` threads that sleep on word.
void futex_wake(const std::atomic<uint32_t>& word, int count) noexcept;

}  // namespace kvc
