// CopyQueue has the copies of token slots that a cache with KVC_STORAGE_NONE leaves to its caller, in the order of the
// calls that need them.
//
// Thread safety: none; calls are made under the cache's lock. Pages that a waiting copy reads need no reference,
// because their contents do not change before the copy. Only steps and copies write pages. No step begins while copies
// wait, and copies of a later fork or commit come later in the queue.
// Invariant: at most one open step has copies in the queue, because a step begins only when no copy waits. The copies
// of this step come first.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/assert.h"
#include "sequence/sequence_store.h"

namespace kvc {

class CopyQueue {
 public:
  std::span<const SlotCopy> copies() const noexcept { return copies_; }
  bool empty() const noexcept { return copies_.empty(); }
  int64_t size() const noexcept { return static_cast<int64_t>(copies_.size()); }

  // Makes room for `more` copies. Throws std::bad_alloc.
  void reserve(int64_t more) {
    const size_t needed = copies_.size() + static_cast<size_t>(more);
    if (needed > copies_.capacity()) copies_.reserve(std::max(needed, 2 * copies_.capacity()));
  }
  // Adds copies. reserve must have made room for them.
  void add(std::span<const SlotCopy> copies) noexcept {
    KVC_ASSERT(copies_.size() + copies.size() <= copies_.capacity(), copies_.size(), copies_.capacity());
    copies_.insert(copies_.end(), copies.begin(), copies.end());
  }
  // Assigns all waiting copies to this step. No copy waited when the step began.
  void own(const void* step) noexcept {
    KVC_ASSERT(step_ == nullptr || step_ == step || of_step_ == 0, copies_.size(), of_step_);
    step_ = step;
    of_step_ = copies_.size();
  }
  // Is called when a step closes. If `keep` is false, drops the copies of the step that still wait.
  void close_step(const void* step, bool keep) noexcept {
    if (step != step_) return;
    KVC_ASSERT(of_step_ <= copies_.size(), of_step_, copies_.size());
    if (!keep) copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(of_step_));
    step_ = nullptr;
  }
  // Is called when the caller has taken all copies, or when no copy is needed any more.
  void clear() noexcept {
    copies_.clear();
    step_ = nullptr;
  }
  uint64_t digest(uint64_t before) const noexcept {
    for (const SlotCopy& c : copies_) {
      for (const int64_t word : {int64_t{c.group} << 32 | c.tokens, c.source, c.target}) {
        before = (before ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15u;
        before ^= before >> 29;
      }
    }
    return before;
  }

 private:
  std::vector<SlotCopy> copies_;
  const void* step_ = nullptr;  // the open step that made the first of_step_ copies
  size_t of_step_ = 0;
};

}  // namespace kvc
