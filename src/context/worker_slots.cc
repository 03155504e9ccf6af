#include "context/worker_slots.h"

#include <bit>

#include "system/futex.h"

namespace kvc {

WorkerSlots::WorkerSlots(int count)
    : count_(count), num_words_((count + 63) / 64), words_(new std::atomic<uint64_t>[num_words_]) {
  reset();
}

int WorkerSlots::try_claim() noexcept {
  for (int w = 0; w < num_words_; w++) {
    uint64_t free = words_[w].load(std::memory_order_seq_cst);
    while (free) {
      // Acquire order pairs with the release by the slot's last holder, which wrote to the scratch. Sequential
      // consistency is needed by claim(), whose waiter must not miss a release.
      if (words_[w].compare_exchange_weak(free, free & (free - 1), std::memory_order_seq_cst)) {
        return w * 64 + std::countr_zero(free);
      }
    }
  }
  return -1;
}

int WorkerSlots::claim() noexcept {
  int slot = try_claim();
  if (slot >= 0) return slot;
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const uint32_t seen = releases_.load(std::memory_order_seq_cst);
    // A release either sees this waiter and increments releases_, or this call finds the released slot.
    slot = try_claim();
    if (slot >= 0) break;
    futex_wait(releases_, seen);
  }
  waiters_.fetch_sub(1, std::memory_order_seq_cst);
  return slot;
}

void WorkerSlots::release(int slot) noexcept {
  words_[slot / 64].fetch_or(uint64_t{1} << (slot % 64), std::memory_order_seq_cst);
  if (waiters_.load(std::memory_order_seq_cst) == 0) return;
  releases_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(releases_, 1);
}

void WorkerSlots::reset() noexcept {
  for (int w = 0; w < num_words_; w++) {
    const int bits = count_ - w * 64;
    words_[w].store(bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1, std::memory_order_relaxed);
  }
  waiters_.store(0, std::memory_order_relaxed);
}

}  // namespace kvc
