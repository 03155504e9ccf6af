// SequenceStore: sequences as page lists in every group and a length; the bookkeeping behind add, remove, fork,
// truncate and forward steps. Pure: no tensors, no device, no threads.
//
// Thread safety: none; the cache locks. Ownership: of all page tables.
// Every method checks everything, in all groups, before it changes anything.
// Invariants
//   a sequence of length n holds ceil(n / page_size) entries in every list (more while it is in an open step)
//   a page with more than one reference is never handed out for writing
//   a busy sequence (in an open step) is changed by that step only; removed then, it is freed when the step closes
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "page/page_table.h"
#include "sequence/group_rules.h"

namespace kvc {

// The first `tokens` slots of page `source` are to be copied to page `target` of `group`, in every layer.
struct PageCopy {
  int32_t group;
  int32_t source;
  int32_t target;
  int32_t tokens;
};

struct SequenceStoreConfig {
  struct Group {
    GroupRules rules;
    int64_t num_pages = 0;
  };
  std::vector<Group> groups;
  int64_t max_sequences = 0;
  int64_t max_snapshots = 0;
  uint32_t cache_tag = 0;
  int64_t max_length = 0;  // tokens a sequence may reach
};

// What a step took for one row in one group, so that it can be given back.
struct Reservation {
  int32_t old_size = 0;      // entries of the list before the step
  int32_t copied_from = -1;  // the shared tail page that was replaced (and is held), or -1
};

class SequenceStore {
 public:
  explicit SequenceStore(SequenceStoreConfig config);

  // Bookkeeping bytes of a store of this config (what the constructor allocates, lazily touched).
  static int64_t bytes_needed(const SequenceStoreConfig& config);
  int64_t bytes() const noexcept;

  int32_t num_groups() const noexcept { return static_cast<int32_t>(tables_.size()); }
  const PageTable& table(int32_t group) const noexcept { return tables_[static_cast<size_t>(group)]; }
  const GroupRules& rules(int32_t group) const noexcept { return config_.groups[static_cast<size_t>(group)].rules; }
  // Slots in use, and those of them that were removed within a step that is still open.
  int64_t num_sequences() const noexcept { return num_sequences_; }
  int64_t num_removed() const noexcept { return num_removed_; }

  // Slot of a live sequence, or STALE_ID naming the array element.
  Status resolve(uint64_t id, int64_t index, int32_t* slot) const {
    const int32_t candidate = ids_.slot_of(id);
    if (candidate < 0 || candidate >= records_.size() || records_[candidate].id != id) return stale(id, index);
    *slot = candidate;
    return Status();
  }
  // Slot of an id that was resolved before.
  int32_t slot_of(uint64_t id) const noexcept { return ids_.slot_of(id); }
  int64_t length(int32_t slot) const noexcept { return records_[slot].length; }
  bool busy(int32_t slot) const noexcept { return records_[slot].busy; }
  const PageList& list(int32_t slot, int32_t group) const noexcept {
    return lists_[int64_t{slot} * num_groups() + group];
  }

  Status add(std::span<uint64_t> out);
  Status remove(std::span<const uint64_t> ids);
  // positions empty: all at the end. Appends the copies to make to `copies` (at most one a child and group).
  Status fork(std::span<const uint64_t> parents, std::span<const int64_t> positions, std::span<uint64_t> children,
              std::vector<PageCopy>* copies);
  Status truncate(std::span<const uint64_t> ids, std::span<const int64_t> lengths);
  Status clear();
  void nearest_position(int32_t slot, int64_t position, int64_t* before, int64_t* after) const noexcept;
  int64_t max_append(int32_t slot, int64_t limit) const noexcept;

  // ---- Steps. `ids` may hold 0 (an inert row). --------------------------------------------------------------------

  // Whether a step that appends lengths[i] tokens to ids[i] fits. On success slots[i] is the slot, or -1.
  Status check_step(std::span<const uint64_t> ids, std::span<const int32_t> lengths, std::span<int32_t> slots);
  // Reserves the pages of a checked step: reservations [rows, groups]; page copies to make are appended to `copies`
  // (at most one a row and group; the vector has the room).
  void reserve(std::span<const int32_t> slots, std::span<const int32_t> lengths, std::span<Reservation> reservations,
               std::vector<PageCopy>* copies) noexcept;
  // Keeps the step's tokens, frees what is behind windows, and frees sequences removed meanwhile.
  void commit(std::span<const int32_t> slots, std::span<const int32_t> lengths,
              std::span<const Reservation> reservations) noexcept;
  // Gives everything back that reserve took.
  void rollback(std::span<const int32_t> slots, std::span<const Reservation> reservations) noexcept;

  // ---- Snapshots: a list that stays as it is while its pages are read outside the lock ---------------------------

  // -1 if all are taken.
  int32_t take_snapshot(int32_t slot, int32_t group) noexcept;
  const PageList& snapshot(int32_t index) const noexcept { return snapshots_[index].list; }
  void drop_snapshot(int32_t index) noexcept;

  // ---- Audit (audit.cc) ------------------------------------------------------------------------------------------
  struct Counts {
    int64_t pages_used = 0, pages_shared = 0, tokens_held = 0, tokens_shared = 0, tokens_logical = 0;
  };
  // Throws std::bad_alloc; the other two as well.
  Counts count(int32_t group) const;
  uint64_t digest() const;
  // The reservations of all open steps, each [rows, groups]: they hold pages of their own.
  Status check_invariants(const std::vector<std::span<const Reservation>>& open_steps) const;

 private:
  struct Record {
    int64_t length;
    uint64_t id;  // 0 if the slot is free, or if the sequence was removed while busy
    uint64_t generation;
    uint32_t mark;  // equals mark_ while the sequence was seen in the current call
    bool used;
    bool busy;
    bool removed() const noexcept { return id == 0; }
  };
  struct Snapshot {
    PageList list;
    int32_t group;
    bool used;
  };

  PageTable& edit_table(int32_t group) noexcept { return tables_[static_cast<size_t>(group)]; }
  PageList& edit_list(int32_t slot, int32_t group) noexcept { return lists_[int64_t{slot} * num_groups() + group]; }
  int32_t take_slot() noexcept;
  void free_slot(int32_t slot) noexcept;
  Status stale(uint64_t id, int64_t index) const;
  void start_marking() noexcept;
  // resolve, but DUPLICATE for a sequence that was seen since start_marking.
  Status resolve_first(uint64_t id, int64_t index, int32_t* slot) {
    KVC_TRY(resolve(id, index, slot));
    if (records_[*slot].mark == mark_) return duplicate(id, index);
    records_[*slot].mark = mark_;
    return Status();
  }
  Status duplicate(uint64_t id, int64_t index) const;
  Status check_idle(int32_t slot, int64_t index) const { return records_[slot].busy ? in_step(slot, index) : Status(); }
  Status in_step(int32_t slot, int64_t index) const;
  Status check_works_at(int32_t slot, int64_t position, int64_t index) const;
  Status check_pages(int32_t group, int64_t required, int64_t index) const;
  int64_t pages_for_append(int32_t slot, int32_t group, int64_t tokens) const noexcept;
  Status check_row(uint64_t id, int32_t length, int64_t row, int32_t* slot);
  int64_t tail_room(int32_t slot, int32_t group) const noexcept;
  bool fits_tail(int32_t slot, int32_t group, int64_t tokens) const noexcept;
  bool tail_needs_copy(int32_t slot, int32_t group) const noexcept;

  SequenceStoreConfig config_;
  IdLayout ids_;
  std::vector<PageTable> tables_;
  LazyArray<Record> records_;      // [max_sequences]
  LazyArray<PageList> lists_;      // [max_sequences, groups]
  LazyArray<int32_t> free_slots_;  // stack
  LazyArray<Snapshot> snapshots_;
  int64_t free_slots_size_ = 0;
  int32_t fresh_slot_ = 0;
  int64_t num_sequences_ = 0;
  int64_t num_removed_ = 0;
  uint32_t mark_ = 0;
};

}  // namespace kvc
