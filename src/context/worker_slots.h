// WorkerSlots: a fixed number of slots, which are free or in use. Each slot belongs to one worker index of a
// ThreadPool. The holder of a slot owns the scratch of that slot.
//
// Thread safety: any thread. A slot may be released on another thread than the thread that claimed it.
// Ownership: the holder of a slot releases it, once.
// Invariants
//   1. A slot is held by at most one claimer: bit s of words_ is 1 exactly while s is free.
//   2. A thread that sleeps in claim() is counted in waiters_, and a release that sees waiters wakes one of them.
//   3. Nothing is allocated after construction. Without contention, a claim or a release is one atomic operation and a
//      load.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace kvc {

class WorkerSlots {
 public:
  explicit WorkerSlots(int count);
  WorkerSlots(const WorkerSlots&) = delete;
  WorkerSlots& operator=(const WorkerSlots&) = delete;

  int count() const noexcept { return count_; }

  // Claims the lowest free slot and returns it, or returns -1.
  int try_claim() noexcept;
  // Claims a slot, and waits if none is free. Holders of slots must not wait for a thread that is in claim().
  int claim() noexcept;
  void release(int slot) noexcept;

  // Frees every slot. Must be called in the child of a fork, where the holders of the slots do not exist. Only stores
  // to memory.
  void reset() noexcept;

 private:
  const int count_;
  const int num_words_;
  const std::unique_ptr<std::atomic<uint64_t>[]> words_;
  std::atomic<uint32_t> waiters_{0};
  std::atomic<uint32_t> releases_{0};  // futex: number of releases that found waiters
};

}  // namespace kvc
