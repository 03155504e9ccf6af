#include "context/thread_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "context/process_threads.h"

namespace kvc {
namespace {

using namespace std::chrono_literals;
using testing::count_pool_threads;
using testing::eventually;
using testing::pool_threads_become;
using testing::pool_threads_fall_asleep;

using Function = std::function<void(int64_t index, int32_t worker)>;

void run(ThreadPool& pool, int64_t n, const Function& function, int32_t effort = KVC_EFFORT_LARGE) {
  const auto call = [](void* arg, int64_t index, int32_t worker) {
    (*static_cast<const Function*>(arg))(index, worker);
  };
  pool.run(n, effort, call, const_cast<Function*>(&function));
}

// Records if two items run on one worker index at once, and indices out of range.
class ScratchCheck {
 public:
  explicit ScratchCheck(const ThreadPool& pool) : users_(pool.num_workers()) {}
  void use(int32_t worker) {
    if (worker < 0 || worker >= static_cast<int32_t>(users_.size())) {
      faults++;
      return;
    }
    if (users_[worker].fetch_add(1) != 0) faults++;
    if (++uses_ % 64 == 0) std::this_thread::yield();
    users_[worker].fetch_sub(1);
  }
  std::atomic<int> faults{0};

 private:
  std::vector<std::atomic<int>> users_;
  std::atomic<int64_t> uses_{0};
};

// ---- Own threads ----------------------------------------------------------------------------

TEST(ThreadPool, RunsEveryItemOnceWithOneToSeventeenThreads) {
  for (int threads = 1; threads <= 17; threads++) {
    ThreadPool pool(threads);
    ScratchCheck scratch(pool);
    for (int64_t n : {0, 1, 2, 3, 17, 64, 1000}) {
      std::vector<std::atomic<int>> counts(n);
      run(pool, n, [&](int64_t i, int32_t worker) {
        scratch.use(worker);
        counts[i]++;
      });
      for (auto& count : counts) ASSERT_EQ(count, 1) << threads << " threads, " << n << " items";
    }
    EXPECT_EQ(scratch.faults, 0);
    EXPECT_TRUE(pool_threads_become(threads - 1));
  }
  EXPECT_TRUE(pool_threads_become(0));
}

// A worker that starts late must not touch a job whose memory is freed.
TEST(ThreadPool, LateWorkersDoNotTouchFinishedJobs) {
  struct Memory {
    std::atomic<int> magic{42};
    std::atomic<int> count{0};
  };
  for (int threads : {2, 3, 5, 17}) {
    ThreadPool pool(threads);
    std::atomic<int> faults{0};
    for (int round = 0; round < 3000; round++) {
      const int n = 1 + round % 7;
      auto memory = std::make_unique<Memory>();
      auto function = std::make_unique<Function>([&, at = memory.get()](int64_t i, int32_t) {
        if (at->magic != 42 || i >= n) faults++;
        at->count++;
      });
      run(pool, n, *function);
      ASSERT_EQ(memory->count, n);
      memory->magic = 0;
      if (round % 500 == 0) std::this_thread::sleep_for(1ms);  // let workers fall asleep now and then
    }
    EXPECT_EQ(faults, 0);
  }
}

TEST(ThreadPool, WorkersReallyHelpAwakeAndAsleep) {
  ThreadPool pool(5);
  for (int round = 0; round < 20; round++) {
    std::atomic<int> arrived{0};
    std::atomic<bool> met{true};
    run(pool, 5, [&](int64_t, int32_t) {
      arrived++;
      if (!eventually([&] { return arrived == 5; })) met = false;
    });
    ASSERT_TRUE(met) << "round " << round;
    if (round % 2) {
      ASSERT_TRUE(pool_threads_fall_asleep(4));
    }
  }
}

// Jobs that start just when the worker stops polling (after about 100 us). Each job needs the worker, so a lost wake-up
// is seen.
TEST(ThreadPool, NoWakeIsLostWhileAWorkerFallsAsleep) {
  ThreadPool pool(2);
  std::atomic<bool> met{true};
  for (int round = 0; round < 4000 && met; round++) {
    std::atomic<int> arrived{0};
    run(pool, 2, [&](int64_t, int32_t) {
      arrived++;
      if (!eventually([&] { return arrived == 2; })) met = false;
    });
    const auto until = std::chrono::steady_clock::now() + 98us + (round % 80) * 100ns;
    while (std::chrono::steady_clock::now() < until) {
    }
  }
  EXPECT_TRUE(met);
}

// Workers move between cores while others compete for them. Their masks stay those of the thread that started them.
TEST(ThreadPool, WorkersKeepTheirMasks) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> load;
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
    load.emplace_back([&stop] {
      while (!stop) {
      }
    });
  }
  {
    ThreadPool pool(3);
    std::atomic<int64_t> sum{0};
    for (int round = 0; round < 300; ++round) {
      run(pool, 8, [&sum](int64_t i, int32_t) {
        const auto until = std::chrono::steady_clock::now() + 50us;
        while (std::chrono::steady_clock::now() < until) {
        }
        sum += i;
      });
    }
    EXPECT_EQ(sum, 300 * 28);
    const auto masks = testing::thread_status("kvc-", "Cpus_allowed");
    EXPECT_EQ(masks.size(), 2u);
    const auto own = testing::thread_status("", "Cpus_allowed")[gettid()];
    for (const auto& [thread, mask] : masks) EXPECT_EQ(mask, own);
  }
  stop = true;
  for (std::thread& thread : load) thread.join();
}

TEST(ThreadPool, CallersAtOnceNeverShareScratch) {
  constexpr int kCallers = ThreadPool::kCallerSlots + 4;
  ThreadPool pool(4);
  ScratchCheck scratch(pool);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; c++) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; round++) {
        run(
            pool, 20,
            [&](int64_t i, int32_t worker) {
              scratch.use(worker);
              sum += i;
            },
            round % 5 == 0);
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(scratch.faults, 0);
  EXPECT_EQ(sum, int64_t{kCallers} * 200 * 190);
}

TEST(ThreadPool, ACallerFinishesAloneWhileAnotherHasTheWorkers) {
  ThreadPool pool(2);
  std::atomic<int> blocked{0};
  std::atomic<bool> go{false};
  std::thread first([&] {
    run(pool, 2, [&](int64_t, int32_t) {
      blocked++;
      eventually([&] { return go.load(); });
    });
  });
  ASSERT_TRUE(eventually([&] { return blocked == 2; }));
  int count = 0;
  run(pool, 100, [&](int64_t, int32_t) { count++; });  // on this thread only: a plain int
  EXPECT_EQ(count, 100);
  EXPECT_FALSE(go);
  go = true;
  first.join();
}

TEST(ThreadPool, ACallerGetsTheWorkersWhenTheyBecomeFree) {
  ThreadPool pool(2);
  std::atomic<int> blocked{0}, arrived{0};
  std::atomic<bool> go{false}, met{true};
  std::thread first([&] {
    run(pool, 2, [&](int64_t, int32_t) {
      blocked++;
      eventually([&] { return go.load(); });
    });
  });
  ASSERT_TRUE(eventually([&] { return blocked == 2; }));
  run(pool, 3, [&](int64_t i, int32_t) {
    if (i == 0) {
      go = true;
      first.join();
      return;
    }
    arrived++;
    if (!eventually([&] { return arrived == 2; })) met = false;
  });
  EXPECT_TRUE(met);
}

TEST(ThreadPool, AnItemMayUseAnotherPool) {
  ThreadPool outer(3), inner(3);
  std::atomic<int> count{0};
  run(outer, 50, [&](int64_t, int32_t) { run(inner, 10, [&](int64_t, int32_t) { count++; }); });
  EXPECT_EQ(count, 500);
}

TEST(ThreadPool, StartsThreadsWithTheFirstJobThatIsWorthThem) {
  ThreadPool pool(3);
  EXPECT_EQ(count_pool_threads(), 0);
  run(pool, 1, [](int64_t, int32_t) {});
  run(pool, 100, [](int64_t, int32_t) {}, KVC_EFFORT_TINY);
  EXPECT_EQ(count_pool_threads(), 0);
  run(pool, 2, [](int64_t, int32_t) {});
  EXPECT_TRUE(pool_threads_become(2));
  std::vector<std::string> sorted;
  for (const auto& [id, name] : testing::thread_status("kvc-", "Name")) sorted.push_back(name);
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, (std::vector<std::string>{"kvc-1", "kvc-2"}));
}

TEST(ThreadPool, WorkersBlockSignalsOfTheHost) {
  sigset_t none, before, after;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, &before);
  ThreadPool pool(2);
  run(pool, 2, [](int64_t, int32_t) {});
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int s = 1; s < SIGRTMAX; s++) EXPECT_FALSE(sigismember(&after, s)) << s;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);

  ASSERT_TRUE(pool_threads_become(1));
  const std::string mask_text = testing::thread_status("kvc-", "SigBlk").begin()->second;
  const uint64_t mask = std::stoull(mask_text, nullptr, 16);
  for (int s : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD, SIGPROF, SIGPIPE, SIGURG}) {
    EXPECT_TRUE(mask >> (s - 1) & 1) << s;
  }
  for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) EXPECT_FALSE(mask >> (s - 1) & 1) << s;
}

TEST(ThreadPool, IsDestroyedQuicklyAwakeAndAsleep) {
  for (bool asleep : {false, true}) {
    for (int round = 0; round < 50; round++) {
      auto pool = std::make_unique<ThreadPool>(4);
      run(*pool, 4, [](int64_t, int32_t) {});
      if (asleep) {
        ASSERT_TRUE(pool_threads_fall_asleep(3));
      }
      const auto begin = std::chrono::steady_clock::now();
      pool.reset();
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
      ASSERT_TRUE(pool_threads_become(0));
    }
  }
}

TEST(ThreadPool, SleepsAlsoWhenKeptAwake) {
  ThreadPool pool(3);
  pool.keep_awake(1);
  run(pool, 3, [](int64_t, int32_t) {});
  EXPECT_TRUE(pool_threads_fall_asleep(2));
  std::atomic<int> count{0};
  run(pool, 100, [&](int64_t, int32_t) { count++; });
  EXPECT_EQ(count, 100);
  pool.keep_awake(-1);
}

TEST(ThreadPool, ASmallJobWakesNobody) {
  ThreadPool pool(2);
  run(pool, 2, [](int64_t, int32_t) {});
  std::atomic<int> on_worker{0};
  for (int round = 0; round < 20; round++) {
    ASSERT_TRUE(pool_threads_fall_asleep(1));
    std::this_thread::sleep_for(2ms);
    const auto item = [&](int64_t, int32_t worker) {
      const auto until = std::chrono::steady_clock::now() + 50us;
      while (std::chrono::steady_clock::now() < until) {
      }
      on_worker += worker != 0;
    };
    run(pool, 8, item, KVC_EFFORT_SMALL);
  }
  EXPECT_EQ(on_worker, 0);
}

TEST(ThreadPool, AStreamOfSmallJobsDoes) {
  ThreadPool pool(2);
  run(pool, 2, [](int64_t, int32_t) {});
  ASSERT_TRUE(pool_threads_fall_asleep(1));
  std::atomic<bool> helped{false};
  EXPECT_TRUE(eventually([&] {
    run(pool, 64, [&](int64_t, int32_t worker) { helped = helped || worker != 0; }, KVC_EFFORT_SMALL);
    return helped.load();
  }));
}

// ---- The host's pool ------------------------------------------------------------------------

struct Host {
  const char* name;
  kvc_parallel_for_fn parallel_for;
};

void PrintTo(const Host& host, std::ostream* out) { *out << host.name; }

const Host kHosts[] = {
    {"serial",
     [](void*, int64_t n, void (*item)(void*, int64_t), void* arg) {
       for (int64_t i = 0; i < n; i++) item(arg, i);
     }},
    {"reversed",
     [](void*, int64_t n, void (*item)(void*, int64_t), void* arg) {
       for (int64_t i = n; i-- > 0;) item(arg, i);
     }},
    {"threads",
     [](void*, int64_t n, void (*item)(void*, int64_t), void* arg) {
       std::vector<std::thread> threads;
       for (int64_t i = 0; i < n; i++) threads.emplace_back(item, arg, i);
       for (auto& thread : threads) thread.join();
     }},
};

class HostPool : public ::testing::TestWithParam<Host> {};

TEST_P(HostPool, RunsEveryItemOnce) {
  for (int threads : {1, 2, 3, 8, 17}) {
    ThreadPool pool(threads, GetParam().parallel_for);
    ScratchCheck scratch(pool);
    for (int64_t n : {0, 1, 2, 5, 100}) {
      std::vector<std::atomic<int>> counts(n);
      run(pool, n, [&](int64_t i, int32_t worker) {
        scratch.use(worker);
        counts[i]++;
      });
      for (auto& count : counts) ASSERT_EQ(count, 1) << threads << " threads, " << n << " items";
    }
    EXPECT_EQ(scratch.faults, 0);
  }
  EXPECT_EQ(count_pool_threads(), 0);
}

TEST_P(HostPool, CallersAtOnceNeverShareScratch) {
  ThreadPool pool(3, GetParam().parallel_for);
  ScratchCheck scratch(pool);
  std::atomic<int> count{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 14; c++) {
    callers.emplace_back([&] {
      for (int round = 0; round < 30; round++) {
        run(pool, 10, [&](int64_t, int32_t worker) {
          scratch.use(worker);
          count++;
        });
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(scratch.faults, 0);
  EXPECT_EQ(count, 14 * 30 * 10);
}

INSTANTIATE_TEST_SUITE_P(Hosts, HostPool, ::testing::ValuesIn(kHosts),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(HostPool, IsAskedForAtMostNumThreadsLoops) {
  std::vector<int64_t> asked;
  const kvc_parallel_for_fn note = [](void* user, int64_t n, void (*item)(void*, int64_t), void* arg) {
    static_cast<std::vector<int64_t>*>(user)->push_back(n);
    for (int64_t i = 0; i < n; i++) item(arg, i);
  };
  ThreadPool pool(4, note, &asked);
  for (int64_t n : {1, 2, 4, 5, 1000}) run(pool, n, [](int64_t, int32_t) {});
  run(pool, 1000, [](int64_t, int32_t) {}, KVC_EFFORT_TINY);
  EXPECT_EQ(asked, (std::vector<int64_t>{2, 4, 4, 4}));
}

// While a host waits inside parallel_for, it may run another task on the same stack, also one of ours (work stealing).
TEST(HostPool, AWaitingHostThreadMayEnterAgain) {
  struct Stealing {
    ThreadPool* pool = nullptr;
    int depth = 0;
    std::atomic<int> count{0};
  } stealing;
  const kvc_parallel_for_fn steal = [](void* user, int64_t n, void (*item)(void*, int64_t), void* arg) {
    auto& state = *static_cast<Stealing*>(user);
    if (state.depth++ < 40) run(*state.pool, 7, [&](int64_t, int32_t) { state.count++; });
    for (int64_t i = 0; i < n; i++) item(arg, i);
  };
  ThreadPool pool(2, steal, &stealing);
  stealing.pool = &pool;
  run(pool, 7, [&](int64_t, int32_t) { stealing.count++; });
  EXPECT_EQ(stealing.count, 41 * 7);
}

}  // namespace
}  // namespace kvc
