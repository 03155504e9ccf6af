// ThreadPool: runs the items of a job on the caller and on worker threads, or on the host's threads.
//
// Thread safety: run() and keep_awake() may be called from any threads at once. Destroy when no call is inside.
// Ownership: owns its threads. They start with the first job that is worth them and are joined by the destructor.
//
// Worker indices. Each item gets an index in [0, num_workers()) that names a scratch of its own. No two items run with
// one index at once, however many threads are in run(). num_workers() = num_threads() + kCallerSlots - 1:
//   own threads   Thread k in [1, num_threads) always has index k. A caller claims 0, or one of [num_threads,
//   num_workers),
//                 for the length of its run(). If all kCallerSlots are taken, it waits for one.
//   host's pool   Every loop that the host runs claims any index while it executes items. It never waits for one.
// num_workers() is the number of scratches. num_threads() is the number of items of one job that run in parallel.
//
// Concurrent callers. Workers serve one job at a time. A caller that finds them busy runs its items itself. If the
// workers become free between two items, it gives them the rest. An item must not call run() of its own pool, because
// it would hold one index and wait for another.
//
// Invariants
//   1. A thread gets an item only through remaining_. If its fetch_sub returns r > 0, it has claimed item num_items - r
//   of
//      the job in job_, whatever it read before. If r <= 0, it has claimed nothing.
//   2. Only the thread that holds taken_ writes job_ and done_, and only while remaining_ <= 0 and every claimed item
//   is
//      reported. So job_ stays the same from a claim to its report, and a thread without a claim never reads job_. A
//      worker may be late by several jobs: it claims from the current job or touches no job. No epoch is needed.
//   3. run() returns when done_ + own items = num_items. It waits for items that workers claimed, never for a worker to
//      arrive.
//   4. A worker is counted in sleepers_ before it reads remaining_ for the last time and sleeps. A publisher stores
//      remaining_ before it reads sleepers_. So one of them sees the other.
//
// Busy machines. While other processes use the cores, the kernel may run the caller and a worker in turn on one core,
// and a worker that has claimed an item may wait for a core while the caller waits for it. So a worker moves away from
// the caller's core before it claims, and a caller that waits moves such a worker to its own core and sleeps
// (thread_place.h). Beside one busy process on two cores, two threads are 1.3 to 1.5 times as fast as one, and without
// this 1.05 to 1.3 times (benchmarks/attention --beside-load).
//
// fork(): in the child the pool is like new: all indices are free, and the first job starts threads. Other threads of
// the parent may have been anywhere, but the forking thread must not be inside run().
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "context/fork_watch.h"
#include "context/worker_slots.h"
#include "kvcache_backend.h"

namespace kvc {

class ThreadPool {
 public:
  using Item = void (*)(void* arg, int64_t index, int32_t worker);

  // The most callers that run items at the same time. Each costs a scratch in the backend. Engines run few forwards at
  // once.
  static constexpr int kCallerSlots = 8;

  // num_threads >= 1, the caller's included. With parallel_for no thread is ever started.
  explicit ThreadPool(int num_threads, kvc_parallel_for_fn parallel_for = nullptr, void* parallel_for_user = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs item(arg, i, worker) once for each i in [0, n), and returns when all are done. effort: a kvc_backend_effort.
  // Only the first job allocates memory.
  void run(int64_t n, int32_t effort, Item item, void* arg) noexcept;

  // A hint. While the sum of deltas is positive, idle workers poll for up to kAwakeNs after their last job before they
  // sleep. They yield to any other thread that needs their core. The call wakes no thread.
  void keep_awake(int delta) noexcept { awake_.fetch_add(delta, std::memory_order_relaxed); }

  int num_threads() const noexcept { return num_threads_; }
  int num_workers() const noexcept { return num_threads_ + kCallerSlots - 1; }

 private:
  // How long an idle worker polls before it sleeps, and a caller before it sleeps for a claimed item. Waking a sleeper
  // takes 20 to 30 us, and this is a few times as long. So it covers the gap between two calls of one layer, and costs
  // little when a wait is longer.
  static constexpr int64_t kSpinNs = 100'000;
  // How long an idle worker polls after the end of a job before it yields, each time it reads the clock. To yield
  // beside a busy process costs the worker its share of the core for some milliseconds, so it does not do so in the
  // usual gap between two jobs.
  static constexpr int64_t kKeepNs = 25'000;
  static constexpr int64_t kStallNs = 50'000;     // how long a caller polls before it looks for a worker without a core
  static constexpr int64_t kLookNs = 500'000;     // time between two such looks of a sleeping caller
  static constexpr int64_t kMoveNs = 1'000'000;   // the least time between two moves of a worker
  static constexpr int64_t kAwakeNs = 2'000'000;  // the same under keep_awake
  static constexpr int kPausesPerCheck = 16;      // about 1 us between two reads of the clock
  static constexpr int kWakesPerThread = 2;       // sleepers that one thread wakes; those wake the next ones
  static constexpr int64_t kMaxJobItems = 1 << 30;  // remaining_ and done_ count in 32 bits
  static constexpr std::size_t kLine = 128;         // two cache lines: x86 prefetches pairs

  struct Job {
    Item item = nullptr;
    void* arg = nullptr;
    int64_t first_item = 0;
    int32_t num_items = 0;
  };
  struct Start;    // arguments of a new worker
  struct HostJob;  // a job on the host's pool

  void run_on_host(int64_t n, Item item, void* arg) noexcept;
  void run_parallel(const Job& job, int32_t effort, int32_t worker) noexcept;
  bool worth_waking(int32_t effort) noexcept;
  uint32_t work(int32_t worker) noexcept;
  void wait_done(uint32_t target) noexcept;
  bool poll_done(uint32_t target, int64_t until_ns) noexcept;
  bool move_waiting_worker_here() noexcept;
  void wake_sleepers(int wanted) noexcept;
  bool try_take() noexcept;

  void start_workers() noexcept;
  static void* worker_main(void* start);
  bool wait_for_job() noexcept;
  void leave_callers_cpu(Start* start) noexcept;
  bool sleep_for_job() noexcept;
  static void reset_in_child(void* self) noexcept;

  int32_t caller_worker(int slot) const noexcept { return slot == 0 ? 0 : num_threads_ - 1 + slot; }

  const int num_threads_;
  const kvc_parallel_for_fn parallel_for_;
  void* const parallel_for_user_;
  WorkerSlots slots_;
  const std::unique_ptr<Start[]> starts_;  // [num_threads - 1]
  std::unique_ptr<pthread_t[]> threads_;   // [num_threads - 1], the first num_started_ are running
  int num_started_ = 0;                    // written by the holder of taken_
  bool start_tried_ = false;               // likewise; a refusal is not repeated
  int64_t last_small_ns_ = 0;              // likewise: when a small job last found sleepers

  // On one cache line, so that a claim also loads the job.
  alignas(kLine) std::atomic<int32_t> remaining_{0};
  std::atomic<int> caller_cpu_{-1};  // where job_ was published
  Job job_;

  alignas(kLine) std::atomic<uint32_t> done_{0};  // futex: items that workers reported
  std::atomic<bool> caller_sleeps_{false};

  // What idle workers poll or sleep on; rarely written.
  alignas(kLine) std::atomic<uint32_t> signal_{0};  // futex of sleeping workers; moves with every wake
  std::atomic<int32_t> sleepers_{0};
  std::atomic<int32_t> awake_{0};
  std::atomic<bool> stop_{false};

  alignas(kLine) std::atomic<bool> taken_{false};  // a caller uses the workers

  const ForkWatch fork_watch_;  // last: it may run as soon as it is constructed
};

}  // namespace kvc
