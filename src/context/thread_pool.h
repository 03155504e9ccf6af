// ThreadPool: runs the items of a job on the caller and on worker threads, or on the host's threads.
//
// Thread safety: run() and keep_awake() may be called from any threads at once. Destroy the pool only when no call is
// running.
// Ownership: owns its threads. They start with the first job that is large enough, and the destructor joins them.
//
// Worker indices. Each item gets an index in [0, num_workers()), which selects its scratch. Two items never run with
// the same index at the same time, however many threads are in run().
// There are num_threads() + kCallerSlots - 1 indices:
//   own threads   Thread k in [1, num_threads) always has index k. During run(), a caller claims index 0 or an index in
//                 [num_threads, num_workers). If all these kCallerSlots indices are taken, the caller waits.
//   host's pool   Every loop that the host runs claims any free index while it executes items. It never waits.
// num_workers() is the number of scratches. num_threads() is the number of items of one job that run in parallel.
//
// Concurrent callers. Workers run items of one job at a time. A caller that finds the workers busy runs its items
// itself. If the workers become free between two items, the caller gives the other items to them. An item must not call
// run() of its own pool, because it would hold one index and wait for another.
//
// Invariants
//   1. A thread gets an item only through remaining_. If its fetch_sub returns r > 0, the thread has claimed item
//      num_items - r of the job in job_, even if it saw an earlier job before. If r <= 0, it has claimed nothing.
//   2. Only the thread that holds taken_ writes job_ and resets done_. It does so only while remaining_ <= 0 and every
//      claimed item is reported. So job_ does not change between a claim and its report. A thread without a claim never
//      reads job_. A worker that saw an earlier job claims an item of the current job, or nothing. Both are
//      correct, so a claim does not compare job numbers.
//   3. run() returns when done_ plus the caller's own items is num_items. It waits only for items that workers have
//      claimed, never for a worker to wake.
//   4. A worker is counted in sleepers_ before it reads remaining_ for the last time and sleeps. A caller stores
//      remaining_ before it reads sleepers_. So the worker sees the job, or the caller sees the sleeper.
//
// Busy machines. While other processes use the cores, the system may run the caller and a worker in turn on one core.
// Then a worker that has claimed an item may wait for a core while the caller waits for the item. So a worker moves
// away from the caller's core before it claims items. A caller that waits moves such a worker to its own core, and
// sleeps (thread_place.h). With one busy process on two cores, two threads are 1.3 to 1.5 times as fast as one
// thread. Without these moves, they are 1.05 to 1.3 times as fast (benchmarks/attention --beside-load).
//
// fork(): in the child, all indices are free, and the first job starts new threads. The thread that forks must not be
// inside run(). Other threads of the parent may be.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "context/worker_slots.h"
#include "kvcache_backend.h"
#include "system/fork_watch.h"

namespace kvc {

class ThreadPool {
 public:
  using Item = void (*)(void* arg, int64_t index, int32_t worker);

  // The largest number of callers that run items at the same time, if the pool has its own threads. Each caller costs a
  // scratch in the backend. Engines run only a few forwards at the same time.
  static constexpr int kCallerSlots = 8;

  // num_threads >= 1 includes the caller. With parallel_for, the pool starts no thread.
  explicit ThreadPool(int num_threads, kvc_parallel_for_fn parallel_for = nullptr, void* parallel_for_user = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs item(arg, i, worker) once for each i in [0, n), and returns when all are done. effort: a kvc_backend_effort.
  // Only the call that starts the threads allocates memory.
  void run(int64_t n, int32_t effort, Item item, void* arg) noexcept;

  // A hint. While the sum of all deltas is positive, an idle worker polls for up to kAwakeNs after its last job before
  // it sleeps. It yields to any other thread that needs its core. The call wakes no thread.
  void keep_awake(int delta) noexcept { awake_.fetch_add(delta, std::memory_order_relaxed); }

  int num_threads() const noexcept { return num_threads_; }
  int num_workers() const noexcept { return num_threads_ + kCallerSlots - 1; }

 private:
  // How long an idle worker, or a caller that waits for a claimed item, polls before it sleeps. This is a few times
  // the 20 to 30 us that it takes to wake a sleeper. It covers the gap between two calls of one layer.
  static constexpr int64_t kSpinNs = 100'000;
  // How long an idle worker polls after a job without yielding. After that, it yields each time it reads the clock.
  // If another process is busy, a worker that yields loses its core for some milliseconds. So a worker does not yield
  // in the usual gap between two jobs.
  static constexpr int64_t kKeepNs = 25'000;
  static constexpr int64_t kStallNs = 50'000;     // how long a caller polls before it looks for a worker without a core
  static constexpr int64_t kLookNs = 500'000;     // how long a caller sleeps before it looks for such a worker again
  static constexpr int64_t kMoveNs = 1'000'000;   // the shortest time between two moves of a worker
  static constexpr int64_t kAwakeNs = 2'000'000;  // how long an idle worker polls under keep_awake
  static constexpr int kPausesPerCheck = 16;      // pauses between two reads of the clock: about 1 us
  static constexpr int kWakesPerThread = 2;       // sleepers that one thread wakes; each wakes more
  static constexpr int64_t kMaxJobItems = 1 << 30;  // largest number of items of a Job: its counters have 32 bits
  static constexpr std::size_t kLine = 128;         // bytes of two cache lines: x86 prefetches pairs of lines

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
  int num_started_ = 0;                    // written by the thread that holds taken_
  bool start_tried_ = false;   // written by the thread that holds taken_; stays true if the system refuses threads
  int64_t last_small_ns_ = 0;  // written by the thread that holds taken_: when a small job last found sleepers

  // remaining_ and job_ lie together, so that a worker that claims an item also loads the job.
  alignas(kLine) std::atomic<int32_t> remaining_{0};
  std::atomic<int> caller_cpu_{-1};  // the core of the caller when it stored job_
  Job job_;

  alignas(kLine) std::atomic<uint32_t> done_{0};  // futex: number of items that workers reported
  std::atomic<bool> caller_sleeps_{false};

  // Idle workers poll these fields or sleep on them. They are rarely written.
  alignas(kLine) std::atomic<uint32_t> signal_{0};  // futex of sleeping workers; every wake increments it
  std::atomic<int32_t> sleepers_{0};
  std::atomic<int32_t> awake_{0};
  std::atomic<bool> stop_{false};

  alignas(kLine) std::atomic<bool> taken_{false};  // a caller uses the workers

  const ForkWatch fork_watch_;  // last, because its function may run as soon as it is constructed
};

}  // namespace kvc
