#include "system/thread_place.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace kvc {
namespace {

cpu_set_t mask_of(pthread_t thread) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(pthread_getaffinity_np(thread, sizeof mask, &mask), 0);
  return mask;
}

std::vector<int> cpus_of(const cpu_set_t& mask) {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

cpu_set_t only(int cpu) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(cpu, &mask);
  return mask;
}

// A thread that computes until it is destroyed.
class Busy {
 public:
  Busy() : thread_([this] { compute(); }) {
    while (cpu_.load() < 0) std::this_thread::yield();
  }
  ~Busy() {
    stop_ = true;
    thread_.join();
  }
  int cpu() const { return cpu_; }
  pthread_t handle() { return thread_.native_handle(); }

 private:
  void compute() {
    while (!stop_) cpu_ = sched_getcpu();
  }

  std::atomic<bool> stop_{false};
  std::atomic<int> cpu_{-1};
  std::thread thread_;  // last: it uses the members above
};

// In a thread of its own, whose mask the test may change.
template <class Function>
void in_a_thread(Function function) {
  std::thread(function).join();
}

TEST(ThreadPlace, AThreadLeavesItsCpuAndKeepsItsMask) {
  in_a_thread([] {
    const cpu_set_t before = mask_of(pthread_self());
    for (int cpu : cpus_of(before)) {
      const cpu_set_t pinned = only(cpu);
      ASSERT_EQ(sched_setaffinity(0, sizeof pinned, &pinned), 0);
      EXPECT_EQ(current_cpu(), cpu);
      leave_cpu(cpu);  // its mask has no other CPU
      EXPECT_EQ(current_cpu(), cpu);
      const cpu_set_t still = mask_of(pthread_self());
      EXPECT_TRUE(CPU_EQUAL(&still, &pinned));
      bool left = CPU_COUNT(&before) == 1;  // the kernel may move it back at once
      for (int round = 0; round < 1000 && !left; ++round) {
        ASSERT_EQ(sched_setaffinity(0, sizeof pinned, &pinned), 0);
        ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
        leave_cpu(cpu);
        left = current_cpu() != cpu;
      }
      EXPECT_TRUE(left);
      ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
      leave_cpu(cpu);
      const cpu_set_t after = mask_of(pthread_self());
      EXPECT_TRUE(CPU_EQUAL(&after, &before));
    }
  });
}

TEST(ThreadPlace, AnotherThreadMovesAndKeepsItsMask) {
  Busy busy;
  const cpu_set_t before = mask_of(busy.handle());
  for (int cpu : cpus_of(before)) {
    bool seen = false;  // the kernel may move it on at once
    for (int round = 0; round < 1000 && !seen; ++round) {
      move_to_cpu(busy.handle(), cpu);
      const cpu_set_t after = mask_of(busy.handle());
      ASSERT_TRUE(CPU_EQUAL(&after, &before));
      for (int i = 0; i < 100 && !seen; ++i) {
        seen = busy.cpu() == cpu;
        std::this_thread::yield();
      }
    }
    EXPECT_TRUE(seen) << "CPU " << cpu;
  }
}

TEST(ThreadPlace, CpusThatAMaskLacksAreRefused) {
  Busy busy;
  const cpu_set_t before = mask_of(busy.handle());
  const cpu_set_t pinned = only(cpus_of(before).front());
  ASSERT_EQ(pthread_setaffinity_np(busy.handle(), sizeof pinned, &pinned), 0);
  for (int cpu : {-1, 100'000, cpus_of(before).back()}) {
    move_to_cpu(busy.handle(), cpu);
    leave_cpu(cpu == cpus_of(before).back() ? -1 : cpu);
    const cpu_set_t after = mask_of(busy.handle());
    EXPECT_TRUE(CPU_EQUAL(&after, &pinned)) << "CPU " << cpu;
  }
}

TEST(ThreadPlace, CpuTimeGrowsWhileAThreadRuns) {
  std::atomic<bool> stop{false};
  std::thread asleep([&stop] { stop.wait(false); });
  Busy busy;
  const auto until_it_grows = [](pthread_t thread, std::chrono::milliseconds most) {
    const int64_t before = cpu_time(thread);
    EXPECT_GE(before, 0);
    const auto end = std::chrono::steady_clock::now() + most;
    while (std::chrono::steady_clock::now() < end) {
      if (cpu_time(thread) > before) return true;
    }
    return false;
  };
  EXPECT_TRUE(until_it_grows(busy.handle(), std::chrono::seconds(20)));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it falls asleep
  EXPECT_FALSE(until_it_grows(asleep.native_handle(), std::chrono::milliseconds(20)));
  stop = true;
  stop.notify_one();
  asleep.join();
}

}  // namespace
}  // namespace kvc
