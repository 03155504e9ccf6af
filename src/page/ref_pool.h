// RefPool: ids 0..size-1 with reference counts, used for the pages of a group and for the nodes of its page lists.
// Allocation is deterministic: it returns the id that was freed last, or else the lowest id that was never used.
// The prefix index may have one reference to an id: index() takes it, and unindex() drops it. An id is idle while the
// prefix index has its only reference.
//
// Thread safety: none; calls are made under the owner's lock. Memory: 8 bytes for each id.
// Invariants: free() + used() == size(); an id is used iff its count > 0; idle() is the number of idle ids.
#pragma once

#include <cstdint>

#include "base/assert.h"
#include "base/lazy_array.h"

namespace kvc {

class RefPool {
 public:
  RefPool() = default;
  explicit RefPool(int64_t size) : refs_(size), free_stack_(size) {}

  int64_t size() const noexcept { return refs_.size(); }
  int64_t used() const noexcept { return used_; }
  int64_t free() const noexcept { return size() - used_; }
  int64_t peak() const noexcept { return peak_; }
  int64_t bytes() const noexcept { return refs_.bytes() + free_stack_.bytes(); }

  // Returns a free id, and takes one reference to it. Needs free() > 0.
  int32_t allocate() noexcept {
    KVC_ASSERT(used_ < size(), used_, size());
    const int32_t id = stack_size_ > 0 ? free_stack_[--stack_size_] : fresh_++;
    KVC_ASSERT(refs_[id] == 0, id, refs_[id]);
    refs_[id] = 1;
    if (++used_ > peak_) peak_ = used_;
    return id;
  }

  void ref(int32_t id) noexcept {
    KVC_ASSERT(is_used(id), id, size());
    if (++refs_[id] == (kIndexed | 2)) --idle_;
  }

  // Drops a reference. Returns true if it was the last reference, so that the id is now free.
  bool unref(int32_t id) noexcept {
    KVC_ASSERT(is_used(id), id, size());
    if (const uint32_t left = --refs_[id]; left > 0) {
      if (left == (kIndexed | 1)) ++idle_;
      return false;
    }
    // Lowering fresh_ has the same effect as pushing the id on the stack: later allocations return the same ids in the
    // same order.
    if (stack_size_ == 0 && id == fresh_ - 1) {
      --fresh_;
    } else {
      free_stack_[stack_size_++] = id;
    }
    --used_;
    return true;
  }

  uint32_t refs(int32_t id) const noexcept { return refs_[id] & ~kIndexed; }

  // Adds the reference of the prefix index. An id has at most one reference of this kind.
  void index(int32_t id) noexcept {
    KVC_ASSERT(is_used(id) && !is_indexed(id), id, refs_[id]);
    refs_[id] = (refs_[id] + 1) | kIndexed;
    ++indexed_;
  }
  bool unindex(int32_t id) noexcept {
    KVC_ASSERT(is_indexed(id), id, refs_[id]);
    idle_ -= is_idle(id);
    refs_[id] &= ~kIndexed;
    --indexed_;
    return unref(id);
  }
  bool is_indexed(int32_t id) const noexcept { return (refs_[id] & kIndexed) != 0; }
  bool is_idle(int32_t id) const noexcept { return refs_[id] == (kIndexed | 1); }
  int64_t indexed() const noexcept { return indexed_; }
  int64_t idle() const noexcept { return idle_; }

  // Calls visit(id) for every free id, in the order in which allocate would return them.
  template <class Visit>
  void for_each_free(Visit visit) const {
    for (int64_t i = stack_size_; i-- > 0;) visit(free_stack_[i]);
    for (int64_t id = fresh_; id < size(); ++id) visit(static_cast<int32_t>(id));
  }
  // Calls visit(id) for the free ids on the stack. These ids and fresh() determine the order of later allocations.
  template <class Visit>
  void for_each_freed(Visit visit) const {
    for (int64_t i = stack_size_; i-- > 0;) visit(free_stack_[i]);
  }
  int32_t fresh() const noexcept { return fresh_; }

 private:
  static constexpr uint32_t kIndexed = 1u << 31;  // flag in refs_: the prefix index has one of the references
  bool is_used(int32_t id) const noexcept { return id >= 0 && id < size() && refs_[id] > 0; }

  LazyArray<uint32_t> refs_;
  LazyArray<int32_t> free_stack_;
  int64_t stack_size_ = 0;
  int32_t fresh_ = 0;  // ids from this one on are free and not on the stack
  int64_t used_ = 0;
  int64_t peak_ = 0;
  int64_t indexed_ = 0;
  int64_t idle_ = 0;
};

}  // namespace kvc
