#include "context/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <climits>
#include <cstdio>

#include "base/steady_clock.h"
#include "system/futex.h"
#include "system/thread.h"
#include "system/thread_place.h"

namespace kvc {
namespace {

inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");  // yield is a no-op on most cores
#endif
}

}  // namespace

struct ThreadPool::Start {
  alignas(kLine) ThreadPool* pool = nullptr;
  int32_t worker = 0;
  int64_t moved_ns = 0;              // when the worker last left the caller's core; only the worker uses it
  std::atomic<bool> working{false};  // the worker may have claimed items
};

struct ThreadPool::HostJob {
  ThreadPool* pool;
  Item item;
  void* arg;
  int64_t num_items;
  std::atomic<int64_t> next{0};

  void claim_items(int32_t worker) noexcept {
    int64_t i;
    while ((i = next.fetch_add(1, std::memory_order_relaxed)) < num_items) item(arg, i, worker);
  }

  // One of the loops that the host runs. If no worker index is free, the loop returns without running items. Then other
  // loops, or the caller after all loops, run the items. The loop must not wait for an index, because the loop that has
  // the index may need the same thread of the host to continue.
  static void loop(void* self, int64_t) {
    HostJob& job = *static_cast<HostJob*>(self);
    const int slot = job.pool->slots_.try_claim();
    if (slot < 0) return;
    job.claim_items(slot);
    job.pool->slots_.release(slot);
  }
};

ThreadPool::ThreadPool(int num_threads, kvc_parallel_for_fn parallel_for, void* parallel_for_user)
    : num_threads_(num_threads),
      parallel_for_(parallel_for),
      parallel_for_user_(parallel_for_user),
      slots_(parallel_for ? num_threads + kCallerSlots - 1 : kCallerSlots),
      starts_(new Start[num_threads - 1]),
      threads_(new pthread_t[num_threads - 1]),
      fork_watch_(reset_in_child, this) {}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_seq_cst);
  signal_.fetch_add(1, std::memory_order_seq_cst);
  if (num_started_ > 0) futex_wake(signal_, INT_MAX);
  for (int i = 0; i < num_started_; i++) pthread_join(threads_[i], nullptr);
}

void ThreadPool::run(int64_t n, int32_t effort, Item item, void* arg) noexcept {
  if (n <= 0) return;
  const bool parallel = n > 1 && num_threads_ > 1 && effort != KVC_EFFORT_TINY;
  if (parallel_for_ && parallel) return run_on_host(n, item, arg);

  const int slot = slots_.claim();
  const int32_t worker = parallel_for_ ? slot : caller_worker(slot);
  int64_t i = 0;
  while (i < n) {
    if (parallel && n - i > 1 && try_take()) {
      const Job job{item, arg, i, static_cast<int32_t>(std::min(n - i, kMaxJobItems))};
      run_parallel(job, effort, worker);
      taken_.store(false, std::memory_order_release);
      i += job.num_items;
    } else {
      item(arg, i++, worker);
    }
  }
  slots_.release(slot);
}

void ThreadPool::run_on_host(int64_t n, Item item, void* arg) noexcept {
  HostJob job{this, item, arg, n};
  parallel_for_(parallel_for_user_, std::min<int64_t>(n, num_threads_), HostJob::loop, &job);
  // All claimed items are done, because their loops have returned. But a loop that finds no free index claims no items,
  // so items may remain.
  if (job.next.load(std::memory_order_relaxed) >= n) return;
  const int slot = slots_.claim();
  job.claim_items(slot);
  slots_.release(slot);
}

bool ThreadPool::try_take() noexcept {
  return !taken_.load(std::memory_order_relaxed) && !taken_.exchange(true, std::memory_order_acquire);
}

// Returns whether to wake workers that sleep. A wake costs the caller microseconds, and the worker starts tens of
// microseconds later. This is too late for a small job. But if small jobs follow each other within kSpinNs, a worker
// that wakes now helps with the next jobs.
bool ThreadPool::worth_waking(int32_t effort) noexcept {
  if (effort == KVC_EFFORT_LARGE) return true;
  const int64_t before_ns = last_small_ns_;
  last_small_ns_ = steady_ns();
  return last_small_ns_ - before_ns < kSpinNs;
}

void ThreadPool::run_parallel(const Job& job, int32_t effort, int32_t worker) noexcept {
  if (!start_tried_) start_workers();
  caller_cpu_.store(current_cpu(), std::memory_order_relaxed);
  job_ = job;
  done_.store(0, std::memory_order_relaxed);
  remaining_.store(job.num_items, std::memory_order_seq_cst);
  // Workers that are awake find the job by themselves.
  const int sleeping = sleepers_.load(std::memory_order_seq_cst);
  if (sleeping > 0 && worth_waking(effort)) {
    wake_sleepers(std::min(job.num_items - 1, num_started_) - (num_started_ - sleeping));
  }
  const uint32_t own = work(worker);
  wait_done(static_cast<uint32_t>(job.num_items) - own);
}

// Claims and runs items until none is left. Returns how many items it ran. A worker adds this number to done_.
uint32_t ThreadPool::work(int32_t worker) noexcept {
  uint32_t finished = 0;
  int32_t r;
  while ((r = remaining_.fetch_sub(1, std::memory_order_acquire)) > 0) {
    job_.item(job_.arg, job_.first_item + (job_.num_items - r), worker);
    finished++;
  }
  return finished;
}

// Waits until the workers have reported `target` items. The caller first polls, and then sleeps. While the caller
// sleeps, a worker that has claimed an item and lost its core can use the caller's core.
void ThreadPool::wait_done(uint32_t target) noexcept {
  if (done_.load(std::memory_order_acquire) == target) return;
  const int64_t begin_ns = steady_ns();
  if (poll_done(target, begin_ns + kStallNs)) return;
  if (!move_waiting_worker_here() && poll_done(target, begin_ns + kSpinNs)) return;
  caller_sleeps_.store(true, std::memory_order_seq_cst);
  uint32_t seen;
  while ((seen = done_.load(std::memory_order_seq_cst)) != target) {
    futex_wait(done_, seen, kLookNs);
    if (done_.load(std::memory_order_relaxed) != target) move_waiting_worker_here();
  }
  caller_sleeps_.store(false, std::memory_order_relaxed);
}

bool ThreadPool::poll_done(uint32_t target, int64_t until_ns) noexcept {
  do {
    for (int i = 0; i < kPausesPerCheck; i++) {
      pause();
      if (done_.load(std::memory_order_acquire) == target) return true;
    }
  } while (steady_ns() < until_ns);
  return false;
}

// If a worker may have claimed an item but is not running, moves this worker to the caller's core and returns true.
// Then the caller must sleep. The system would also move such a worker to an idle core, but only after milliseconds.
bool ThreadPool::move_waiting_worker_here() noexcept {
  for (int i = 0; i < num_started_; i++) {
    if (!starts_[i].working.load(std::memory_order_relaxed)) continue;
    const int64_t before = cpu_time(threads_[i]);
    for (int j = 0; j < kPausesPerCheck; j++) pause();
    if (before < 0 || cpu_time(threads_[i]) != before) continue;
    move_to_cpu(threads_[i], current_cpu());
    return true;
  }
  return false;
}

// Each wake costs its caller microseconds. So a thread wakes only a few sleepers, and each of these wakes some more.
void ThreadPool::wake_sleepers(int wanted) noexcept {
  if (wanted <= 0) return;
  signal_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(signal_, std::min(wanted, kWakesPerThread));
}

// ---- Workers --------------------------------------------------------------------------------

void ThreadPool::start_workers() noexcept {
  start_tried_ = true;
  // Without a fork handler, reset_in_child would not run in a child of fork(). If the child then started a job, it
  // would count on workers that do not exist there. So no worker is started.
  if (!fork_watch_.active()) return;
  while (num_started_ < num_threads_ - 1) {
    Start& start = starts_[num_started_];
    start.pool = this;
    start.worker = num_started_ + 1;
    start.working.store(false, std::memory_order_relaxed);
    // If the system refuses a thread, the threads that exist do the work.
    if (start_thread(&threads_[num_started_], worker_main, &start, ThreadSignals::kFaults) != 0) break;
    num_started_++;
  }
}

void* ThreadPool::worker_main(void* argument) {
  Start& start = *static_cast<Start*>(argument);
  ThreadPool& pool = *start.pool;
  char name[16];
  std::snprintf(name, sizeof name, "kvc-%d", start.worker);
  pthread_setname_np(pthread_self(), name);
  while (pool.wait_for_job()) {
    pool.leave_callers_cpu(&start);
    start.working.store(true, std::memory_order_relaxed);
    const uint32_t finished = pool.work(start.worker);
    start.working.store(false, std::memory_order_relaxed);
    if (finished == 0) continue;
    // After this addition, the caller may change job_.
    pool.done_.fetch_add(finished, std::memory_order_seq_cst);
    if (pool.caller_sleeps_.load(std::memory_order_seq_cst)) futex_wake(pool.done_, 1);
  }
  return nullptr;
}

// Returns true when there may be items to claim, and false when the pool is being destroyed.
bool ThreadPool::wait_for_job() noexcept {
  const int64_t begin_ns = steady_ns();
  int64_t in_job_ns = begin_ns;  // when a job was last in progress
  for (;;) {
    for (int i = 0; i < kPausesPerCheck; i++) {
      if (remaining_.load(std::memory_order_relaxed) > 0) return true;
      if (stop_.load(std::memory_order_relaxed)) return false;
      pause();
    }
    const int64_t time_ns = steady_ns();
    const bool awake = awake_.load(std::memory_order_relaxed) > 0;
    if (time_ns - begin_ns >= (awake ? kAwakeNs : kSpinNs)) return sleep_for_job();
    // At first, taken_ is not read, so that its cache line stays with the caller, which may take the workers again
    // soon.
    if (time_ns - begin_ns >= kKeepNs / 4 && taken_.load(std::memory_order_relaxed)) in_job_ns = time_ns;
    // A worker that polls on the caller's core and never yields delays the caller by kSpinNs (measured).
    if (time_ns - in_job_ns >= kKeepNs || current_cpu() == caller_cpu_.load(std::memory_order_relaxed)) sched_yield();
  }
}

void ThreadPool::leave_callers_cpu(Start* start) noexcept {
  const int cpu = caller_cpu_.load(std::memory_order_relaxed);
  if (cpu < 0 || current_cpu() != cpu) return;
  const int64_t time_ns = steady_ns();
  if (time_ns - start->moved_ns < kMoveNs) return;
  start->moved_ns = time_ns;
  leave_cpu(cpu);
}

bool ThreadPool::sleep_for_job() noexcept {
  const uint32_t seen = signal_.load(std::memory_order_seq_cst);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (remaining_.load(std::memory_order_seq_cst) <= 0 && !stop_.load(std::memory_order_seq_cst)) {
    futex_wait(signal_, seen);
  }
  const int others = sleepers_.fetch_sub(1, std::memory_order_seq_cst) - 1;
  const int32_t left = remaining_.load(std::memory_order_relaxed) - 1;
  if (left > 0) wake_sleepers(std::min(others, left));
  return !stop_.load(std::memory_order_relaxed);
}

// In a child of fork(), only the thread that called fork() exists, and this thread was not inside run(). So all worker
// indices are free there, and no worker exists.
void ThreadPool::reset_in_child(void* self) noexcept {
  ThreadPool& pool = *static_cast<ThreadPool*>(self);
  pool.slots_.reset();
  pool.num_started_ = 0;
  pool.start_tried_ = false;
  pool.remaining_.store(0, std::memory_order_relaxed);
  pool.caller_sleeps_.store(false, std::memory_order_relaxed);
  pool.sleepers_.store(0, std::memory_order_relaxed);
  pool.taken_.store(false, std::memory_order_relaxed);
}

}  // namespace kvc
