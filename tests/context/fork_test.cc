// The pool in the child of a fork(). Sanitizers skip this: TSan refuses threads there, and ASan's allocator hangs if
// another thread of the parent held its lock (seen with gcc 12).
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "context/process_threads.h"
#include "context/thread_pool.h"
#include "system/fork_watch.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SKIP_UNDER_SANITIZERS() GTEST_SKIP() << "no threads after fork under sanitizers"
#else
#define SKIP_UNDER_SANITIZERS() (void)0
#endif

namespace kvc {
namespace {

// Runs `body` in a forked child and returns its exit code. An alarm ends a child that hangs (128 + signal).
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void count_item(void* arg, int64_t, int32_t) { ++*static_cast<std::atomic<int>*>(arg); }

// Two items that wait for each other, which needs a worker. Without one, the child's alarm ends the wait.
void meet(void* arg, int64_t, int32_t) {
  auto& arrived = *static_cast<std::atomic<int>*>(arg);
  arrived++;
  while (arrived < 2) std::this_thread::yield();
}

int items_of_a_job(ThreadPool& pool) {
  std::atomic<int> count{0};
  pool.run(100, KVC_EFFORT_LARGE, count_item, &count);
  return count;
}

TEST(Fork, TheChildStartsWorkersOfItsOwn) {
  SKIP_UNDER_SANITIZERS();
  ThreadPool pool(3);
  ASSERT_EQ(items_of_a_job(pool), 100);
  EXPECT_EQ(in_child([&] {
              if (testing::count_pool_threads() != 0) return 1;
              std::atomic<int> arrived{0};
              pool.run(2, KVC_EFFORT_LARGE, meet, &arrived);
              if (items_of_a_job(pool) != 100) return 2;
              return testing::pool_threads_become(2) ? 0 : 3;
            }),
            0);
  EXPECT_EQ(items_of_a_job(pool), 100);  // the parent's pool is untouched
  EXPECT_TRUE(testing::pool_threads_become(2));
}

TEST(Fork, TheChildMayDestroyThePool) {
  SKIP_UNDER_SANITIZERS();
  for (bool used_before : {false, true}) {
    for (bool used_after : {false, true}) {
      auto pool = std::make_unique<ThreadPool>(3);
      if (used_before) items_of_a_job(*pool);
      EXPECT_EQ(in_child([&] {
                  if (used_after && items_of_a_job(*pool) != 100) return 1;
                  pool.reset();
                  return testing::pool_threads_become(0) ? 0 : 2;
                }),
                0);
    }
  }
}

TEST(Fork, OtherThreadsInsidePoolsDoNotHangTheChild) {
  SKIP_UNDER_SANITIZERS();
  ThreadPool busy(2), idle(2);
  const kvc_parallel_for_fn serial = [](void*, int64_t n, void (*item)(void*, int64_t), void* arg) {
    for (int64_t i = 0; i < n; i++) item(arg, i);
  };
  ThreadPool host(2, serial);
  items_of_a_job(idle);
  struct {
    std::atomic<int> inside{0};
    std::atomic<bool> go{false};
  } state;
  const auto block = [](void* arg, int64_t, int32_t) {
    auto& s = *static_cast<decltype(state)*>(arg);
    s.inside++;
    while (!s.go) std::this_thread::yield();
  };
  // Every caller's index of `busy` is taken, and its workers too.
  std::vector<std::thread> callers;
  for (int i = 0; i < ThreadPool::kCallerSlots; i++) {
    callers.emplace_back([&] { busy.run(2, KVC_EFFORT_LARGE, block, &state); });
  }
  callers.emplace_back([&] { host.run(2, KVC_EFFORT_LARGE, block, &state); });
  while (state.inside < ThreadPool::kCallerSlots + 2) std::this_thread::yield();
  EXPECT_EQ(in_child([&] {
              if (items_of_a_job(idle) != 100) return 1;
              if (items_of_a_job(busy) != 100) return 2;
              if (items_of_a_job(host) != 100) return 3;
              std::atomic<int> arrived{0};
              busy.run(2, KVC_EFFORT_LARGE, meet, &arrived);
              return 0;
            }),
            0);
  state.go = true;
  for (auto& caller : callers) caller.join();
}

TEST(Fork, SeveralThreadsOfTheChildMayComeFirst) {
  SKIP_UNDER_SANITIZERS();
  ThreadPool pool(3);
  items_of_a_job(pool);
  EXPECT_EQ(in_child([&] {
              std::atomic<int> sum{0};
              std::vector<std::thread> threads;
              for (int i = 0; i < 4; i++) threads.emplace_back([&] { sum += items_of_a_job(pool); });
              for (auto& thread : threads) thread.join();
              return sum == 400 ? 0 : 1;
            }),
            0);
}

TEST(Fork, AGrandchildWorksToo) {
  SKIP_UNDER_SANITIZERS();
  ThreadPool pool(2);
  items_of_a_job(pool);
  EXPECT_EQ(in_child([&] {
              if (items_of_a_job(pool) != 100) return 1;
              return in_child([&] { return items_of_a_job(pool) == 100 ? 0 : 2; });
            }),
            0);
}

TEST(Fork, WhilePoolsComeAndGo) {
  SKIP_UNDER_SANITIZERS();
  std::atomic<bool> stop{false};
  std::thread churn([&] {
    while (!stop) {
      ThreadPool pool(2);
      items_of_a_job(pool);
    }
  });
  ThreadPool pool(2);
  for (int i = 0; i < 30; i++) {
    EXPECT_EQ(in_child([&] { return items_of_a_job(pool) == 100 ? 0 : 1; }), 0);
  }
  stop = true;
  churn.join();
}

TEST(Fork, WatchesAreCalledInTheChildOnlyAndOnlyWhileTheyLive) {
  int calls = 0;
  const auto count = [](void* self) { ++*static_cast<int*>(self); };
  ForkWatch first(count, &calls);
  {
    ForkWatch gone(count, &calls);
  }
  ForkWatch second(count, &calls);
  EXPECT_TRUE(first.active());
  EXPECT_EQ(in_child([&] { return calls; }), 2);
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace kvc
