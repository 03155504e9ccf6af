// WorkerSlots: which of a fixed number of slots are in use; a slot is a scratch of its own while it is held.
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
  // Waits for a slot. Must not be called by a thread that others need for releasing theirs.
  int claim() noexcept;
  void release(int slot) noexcept;

  // Frees every slot. For the child of a fork, where the holders are gone; only stores.
  void reset() noexcept;

 private:
  const int count_;
  const int num_words_;
  const std::unique_ptr<std::atomic<uint64_t>[]> words_;
  std::atomic<uint32_t> waiters_{0};
  std::atomic<uint32_t> releases_{0};  // futex: counts releases that found waiters
};

}  // namespace kvc
