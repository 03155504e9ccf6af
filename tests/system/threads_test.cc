// Threads: how they start, sleep and wake each other, and on which CPU they run.
#include <gtest/gtest.h>

#include <atomic>
#include <climits>
#include <thread>
#include <vector>

#include "base/steady_clock.h"
#include "system/cpu_count.h"
#include "system/futex.h"
#include "system/thread.h"
#include "system/thread_place.h"

namespace kvc {
namespace {

TEST(Futex, AWaitNeedsTheExpectedValue) {
  std::atomic<uint32_t> word{7};
  futex_wait(word, 8);  // returns at once
  const int64_t begin = steady_ns();
  futex_wait(word, 7, 30'000'000);
  EXPECT_GE(steady_ns() - begin, 0);  // it may return early
}

// Each sleeper is woken, by wakes of one thread or of all.
TEST(Futex, WakesSleepers) {
  constexpr uint32_t kSleepers = 4, kRounds = 200;
  for (const int count : {1, INT_MAX}) {
    std::atomic<uint32_t> word{0}, awake{0};
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kSleepers; ++i) {
      threads.emplace_back([&] {
        for (uint32_t round = 0; round < kRounds; ++round) {
          while (word.load() == round) futex_wait(word, round);
          awake.fetch_add(1);
          while (awake.load() < (round + 1) * kSleepers) std::this_thread::yield();
        }
      });
    }
    for (uint32_t round = 0; round < kRounds; ++round) {
      word.store(round + 1);
      const int wakes = count == 1 ? static_cast<int>(kSleepers) : 1;
      for (int i = 0; i < wakes; ++i) futex_wake(word, count);
      while (awake.load() < (round + 1) * kSleepers) std::this_thread::yield();
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(awake.load(), kSleepers * kRounds);
  }
}

TEST(Thread, RunsItsFunction) {
  for (const ThreadSignals signals : {ThreadSignals::kNone, ThreadSignals::kFaults}) {
    int value = 1;
    const auto main = [](void* argument) -> void* {
      *static_cast<int*>(argument) = 2;
      return argument;
    };
    pthread_t thread;
    ASSERT_EQ(start_thread(&thread, main, &value, signals), 0);
    void* result = nullptr;
    ASSERT_EQ(pthread_join(thread, &result), 0);
    EXPECT_EQ(result, &value);
    EXPECT_EQ(value, 2);
  }
}

TEST(Thread, MovesStayWithinItsCpus) {
  const int cpus = affinity_cpus();
  EXPECT_GE(cpus, 1);
  EXPECT_GE(default_num_threads(), 1);
  EXPECT_LE(default_num_threads(), cpus);
  const int cpu = current_cpu();
  EXPECT_GE(cpu, 0);
  leave_cpu(cpu);
  move_to_cpu(pthread_self(), cpu);
  for (const int none : {-1, 64, 100'000}) {
    leave_cpu(none);
    move_to_cpu(pthread_self(), none);
  }
  EXPECT_EQ(affinity_cpus(), cpus) << "a move changed the mask";
}

}  // namespace
}  // namespace kvc
