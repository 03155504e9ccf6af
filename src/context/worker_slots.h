// WorkerSlots: a fixed number of slots, free or in use. The holder of a slot owns its scratch.
//
// Thread safety: any thread; release on any thread.
// Ownership: the holder of a slot releases it, once.
// Invariants
//   1. A slot is held by at most one claimer: bit s of words_ is 1 exactly while s is free.
//   2. A thread that sleeps in claim() is counted in waiters_, and a release that sees waiters wakes one of them.
//   3. No allocation after construction; an uncontended claim and release are one atomic operation each, and a load.
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

  // The lowest free slot, or -1.
  int try_claim() noexcept;
  // Waits for a slot. A thread that other holders need before they can release must not call it.
  int claim() noexcept;
  void release(int slot) noexcept;

  // Frees every slot. For the child of a fork, in which the holders do not exist. It only stores.
  void reset() noexcept;

 private:
  const int count_;
  const int num_words_;
  const std::unique_ptr<std::atomic<uint64_t>[]> words_;
  std::atomic<uint32_t> waiters_{0};
  std::atomic<uint32_t> releases_{0};  // futex: counts releases that found waiters
};

}  // namespace kvc
