// SequenceStore keeps, for each sequence, its length and a page list in every group. It does the bookkeeping of add,
// remove, fork, truncate and forward steps. It uses no tensors, no device and no threads. In its methods, the `slot` of
// a sequence is the index of the sequence's record, and not a token slot.
//
// Thread safety: none; calls are made under the cache's lock. Ownership: owns all page tables. Every method makes all
// its checks, in all groups, before it changes anything.
// Invariants
// 1. Each list of a sequence of length n with m uncommitted tree nodes has ceil((n + m) / page_size) entries, or more
//    while the sequence is in an open step or is being loaded. Node i is at index n + i. Invariant 5 has the
//    exceptions.
// 2. A step writes a page only if no other sequence, checkpoint, pin or index refers to the page. A snapshot may refer
//    to the page, but reads only tokens that are before those of the step.
// 3. A busy sequence is in an open step, is suspended, or is being saved, loaded, filled, received, suspended or
//    resumed. Calls that do not belong to this operation refuse it, or only remove it. A sequence that is removed
//    during a step, save, load, suspend or resume is freed when that operation ends.
// 4. A sequence with uncommitted nodes shares no page from index n / page_size on. Except for the sequence,
//    only snapshots may refer to these pages, and no snapshot reads a token from index n on.
// 5. The list of an encoder group has entries for the encoder's tokens. The list of a state group has at most one page,
//    and each step takes a new page for it. A checkpoint holds the state pages of its position. A sequence with
//    uncommitted nodes also holds the state pages of length n (if n > 0), and those of the first max_draft_states
//    nodes whose states were stored. The state of the last node is in the list instead. The state pages for the nodes
//    of an open step are held from reserve on.
// 6. The lists of a suspended sequence keep their sizes, but have no pages. The pages that the sequence keeps are in
//    SuspendedPages. While the sequence is being resumed, its lists have pages, and SuspendedPages still exists.
// 7. A step runs only over layers that hold all tokens of its sequences (StoredLayers). The other layers then lack the
//    tokens of the step. No later step runs over these other layers until truncate, or the commit of a tree, has
//    dropped all tokens that they lack.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "page/page_table.h"
#include "sequence/group_rules.h"
#include "sequence/page_users.h"
#include "sequence/prefix_source.h"
#include "sequence/saved_sequence.h"
#include "sequence/sequence_store_config.h"
#include "sequence/shortage.h"
#include "sequence/stored_layers.h"
#include "sequence/token_tree.h"

namespace kvc {

// A copy of `tokens` token slots in every layer of the group. The slots from `source` on are copied to the slots from
// `target` on. Each of the two ranges lies in one page.
struct SlotCopy {
  int32_t group;
  int32_t tokens;
  int64_t source;  // -1: nothing is copied, and the slots from `target` on are cleared
  int64_t target;
};

// Describes what a step took for one row in one group. rollback needs it to return the pages.
struct Reservation {
  int32_t old_size = 0;      // number of entries of the list before the step
  int32_t copied_from = -1;  // the last page (shared, or of states) that the step replaced and holds; -1 = none
};

// Says what a step appends: tokens (or nodes of trees) of sequences, or tokens of the encoder sequences of one group.
struct StepKind {
  bool with_trees = false;
  int32_t encoder_group = -1;  // the group of the encoder sequences; -1 = the step appends no encoder tokens
  LayerRange layers = {};      // the layers over which the step runs
};

class SequenceStore {
 public:
  explicit SequenceStore(SequenceStoreConfig config);

  // The number of bytes of bookkeeping for a store of this config. The constructor reserves address space for all of
  // them, but they take memory only when they are used.
  static int64_t bytes_needed(const SequenceStoreConfig& config);
  int64_t bytes() const noexcept;

  int32_t num_groups() const noexcept { return num_groups_; }
  const PageTable& table(int32_t group) const noexcept { return tables_[static_cast<size_t>(group)]; }
  // For a mirror of a group's page-list nodes: see PageTable::track_changes and the methods after it.
  void track_changed_nodes(int32_t group) { edit_table(group).track_changes(); }
  std::span<const int32_t> changed_nodes(int32_t group) noexcept { return edit_table(group).changes(); }
  void forget_changed_nodes(int32_t group) noexcept { edit_table(group).forget_changes(); }
  const GroupRules& rules(int32_t group) const noexcept { return config_.groups[static_cast<size_t>(group)].rules; }
  // The number of records in use, and the number of those records whose sequence was removed while it was busy.
  int64_t num_sequences() const noexcept { return num_sequences_; }
  int64_t num_removed() const noexcept { return num_removed_; }

  // Finds the slot of a sequence. If no sequence has this id, returns STALE_ID with `index`, the place of the id in the
  // caller's array.
  Status resolve(uint64_t id, int64_t index, int32_t* slot) const {
    const int32_t candidate = ids_.slot_of(id);
    if (candidate < 0 || candidate >= records_.size() || records_[candidate].id != id) return stale(id, index);
    *slot = candidate;
    return Status();
  }
  // The slot of an id that resolve has found before.
  int32_t slot_of(uint64_t id) const noexcept { return ids_.slot_of(id); }
  int64_t length(int32_t slot) const noexcept { return records_[slot].stored - records_[slot].nodes; }
  // The length plus the number of uncommitted nodes. This number is also the index of the next token or node.
  int64_t stored(int32_t slot) const noexcept { return records_[slot].stored; }
  // The number of tokens in the sequence's list of a group: stored(slot), or the number of tokens of its encoder
  // sequence in this group.
  int64_t stored_in(int32_t slot, int32_t group) const noexcept {
    return rules(group).holds_encoder() ? encoder_tokens_[int64_t{slot} * num_groups() + group] : stored(slot);
  }
  int64_t length_in(int32_t slot, int32_t group) const noexcept {
    return rules(group).holds_encoder() ? stored_in(slot, group) : length(slot);
  }
  // How many of the length_in tokens a layer holds (StoredLayers). The layer must store tokens itself.
  int64_t held(int32_t slot, int32_t group, int32_t layer) const noexcept {
    return stored_layers_.held(slot, layer, length_in(slot, group));
  }
  int32_t nodes(int32_t slot) const noexcept { return records_[slot].nodes; }
  // Whether the sequence is busy (invariant 3). Most calls refuse a busy sequence.
  bool busy(int32_t slot) const noexcept { return (records_[slot].state & (kBusy | kSuspended)) != 0; }
  bool is_suspended(int32_t slot) const noexcept { return (records_[slot].state & kSuspended) != 0; }
  // The error for a busy sequence: BUSY or SUSPENDED.
  Status busy_error(int32_t slot, int64_t index) const;
  // Whether a load still fills pages of the sequence. Steps may use such a sequence. The caller makes sure that they
  // read only what was filled, and that they commit only when all was filled. Other calls refuse the sequence.
  bool is_pending(int32_t slot) const noexcept { return (records_[slot].state & kPending) != 0; }
  void set_pending(int32_t slot, bool pending) noexcept;
  Status pending_error(int32_t slot, int64_t index) const;
  const PageList& list(int32_t slot, int32_t group) const noexcept {
    return lists_[int64_t{slot} * num_groups() + group];
  }
  StreamWindow stream(int32_t slot) const noexcept { return records_[slot].stream; }
  bool has_streamed(int32_t slot) const noexcept { return records_[slot].streamed; }

  Status add(std::span<uint64_t> out);
  Status remove(std::span<const uint64_t> ids);
  // positions: the length of each child. -1, or an empty array, stands for the length of the parent. Appends to
  // `copies` what the caller must copy and clear: at most one copy and one clear for each child and group.
  Status fork(std::span<const uint64_t> parents, std::span<const int64_t> positions, std::span<uint64_t> children,
              std::vector<SlotCopy>* copies);
  // Also drops uncommitted nodes.
  Status truncate(std::span<const uint64_t> ids, std::span<const int64_t> lengths);
  Status clear();
  void nearest_position(int32_t slot, int64_t position, int64_t* before, int64_t* after) const noexcept;

  // Sets the streaming windows of sequences, and frees pages that no later query sees. Each window must have sinks <
  // window, or both must be 0. prefix_is_sink: the present tokens of a sequence become sinks. (streams.cc)
  Status set_streams(std::span<const uint64_t> ids, std::span<const StreamWindow> streams, bool prefix_is_sink);
  int64_t max_append(int32_t slot, int64_t limit) const noexcept;
  // The number of pages of a group that become available when the sequence is removed. (audit.cc)
  int64_t exclusive_pages(int32_t slot, int32_t group) const noexcept;

  // ---- Steps. `ids` may contain 0 (an inert row). ------------------------------------------------------------------

  // Checks that a step with lengths[i] new tokens for ids[i] fits. On success, slots[i] is the slot of ids[i], or -1
  // for an inert row. kind.with_trees: the step has passed check_trees, so sequences may have uncommitted nodes.
  // parents: the array that check_trees got, or empty.
  Status check_step(std::span<const uint64_t> ids, std::span<const int32_t> lengths, std::span<int32_t> slots,
                    StepKind kind = {}, std::span<const int32_t> parents = {});
  // The largest number of copies and clears that reserve appends for the last checked step. rows: its number of rows.
  int64_t most_copies(int64_t rows) const noexcept;
  // Reserves the pages of a checked step, and fills `reservations`, [rows, groups]. Appends to `copies` what the caller
  // must copy and clear. `copies` must have room for most_copies(rows) more entries.
  void reserve(std::span<const int32_t> slots, std::span<const int32_t> lengths, std::span<Reservation> reservations,
               std::vector<SlotCopy>* copies, StepKind kind = {}, std::span<const int32_t> parents = {}) noexcept;
  // Keeps the step's tokens, frees pages that no later query sees, and frees sequences that were removed during the
  // step. stored_states: for rows whose tokens are nodes, bit i says whether the states after token i were stored.
  void commit(std::span<const int32_t> slots, std::span<const int32_t> lengths,
              std::span<const Reservation> reservations, StepKind kind = {},
              uint64_t stored_states = UINT64_MAX) noexcept;
  // Gives back all that reserve took.
  void rollback(std::span<const int32_t> slots, std::span<const Reservation> reservations) noexcept;

  // ---- Token trees (trees.cc). `parents`: [tokens], as in kvc_batch. ---------------------------------------------

  // A step with trees also calls check_trees, add_nodes and close_nodes. A commit calls plan_commit and finish_commit.

  // Checks that the parents of each row fit the nodes of its sequence.
  Status check_trees(std::span<const uint64_t> ids, std::span<const int32_t> lengths,
                     std::span<const int32_t> parents) const;
  // Adds the nodes of the tree rows of a reserved step.
  void add_nodes(std::span<const int32_t> slots, std::span<const int32_t> lengths,
                 std::span<const int32_t> parents) noexcept;
  // Keeps the nodes of a step as uncommitted nodes, or drops them. Must be called before commit or rollback.
  void close_nodes(std::span<const int32_t> slots, std::span<const int32_t> lengths, bool keep) noexcept;
  // Whether an open step adds nodes to the sequence.
  bool grows_tree(int32_t slot) const noexcept { return (records_[slot].state & kGrowsTree) != 0; }
  // The parents of the uncommitted nodes, and of `fresh` nodes that an open step adds.
  std::span<const int16_t> tree(int32_t slot, int32_t fresh) const noexcept {
    return {tree_parents_.data() + slot * config_.max_tree_nodes, static_cast<size_t>(records_[slot].nodes + fresh)};
  }
  // Checks a commit of the paths to `leaves` (-1: commits no node). Appends to `copies` the copies that the commit
  // needs. The caller must make the copies in this order. Changes nothing else. Throws std::bad_alloc.
  Status plan_commit(std::span<const uint64_t> ids, std::span<const int32_t> leaves, std::vector<SlotCopy>* copies);
  // Finishes the commit after the copies were made. Lengths grow, other nodes are dropped, and pages that no later
  // query sees are freed.
  void finish_commit(std::span<const uint64_t> ids, std::span<const int32_t> leaves) noexcept;

  // ---- State groups: checkpoints (states.cc) ----------------------------------------------------------------------

  bool has_states() const noexcept { return num_state_groups_ > 0; }
  // Makes a checkpoint of each sequence at its length. A sequence that has max_checkpoints checkpoints loses the oldest
  // one. Nothing is done at length 0, or if the checkpoint exists.
  Status checkpoint(std::span<const uint64_t> ids);
  // Positions of a sequence's checkpoints, ascending.
  std::span<const int64_t> checkpoints(int32_t slot) const noexcept {
    return {checkpoint_positions_.data() + slot * config_.max_checkpoints,
            static_cast<size_t>(records_[slot].checkpoints)};
  }
  // The page that is held for the state after an uncommitted node, or -1. Node -1: the state before all nodes. ordinal:
  // the index of the group among the state groups.
  int32_t tree_state(int32_t slot, int32_t ordinal, int32_t node) const noexcept {
    return tree_states_[tree_state_index(slot, ordinal, node)];
  }
  bool keeps_state_of(int64_t node) const noexcept { return node < config_.max_draft_states; }

  // ---- Prefix index (published.cc) --------------------------------------------------------------------------------

  // Sets the object that frees idle pages when a call has too few pages; null without an index. The store does not own
  // the object.
  void set_evictor(PageEvictor* evictor) noexcept { evictor_ = evictor; }
  // Checks that the first `tokens` tokens of a sequence may be published.
  Status check_publish(uint64_t id, int64_t tokens, int32_t* slot) const;
  // The page of list entry `index`, or -1. For a state group, the page of the state after `tokens` tokens, or -1.
  int32_t page_at(int32_t slot, int32_t group, int64_t index, int64_t tokens) const noexcept;
  // Reads the first entries of a list. Entries without a page read as -1. The group must hold tokens.
  void read_pages(int32_t slot, int32_t group, std::span<int32_t> pages) const noexcept;
  // Replaces a page of the sequence by `page`, which holds the same tokens. Does nothing if too few nodes for page
  // lists are free.
  void replace_page(int32_t slot, int32_t group, int64_t index, int32_t page) noexcept;
  // If the index refers to the last page of a list, marks the page as shared, so that the sequence does not write it.
  void protect_tail(int32_t slot) noexcept;
  // Makes a sequence with the pages of a prefix. For each group whose last page is not full, appends to `copies` one
  // copy of this page, and at most one clear.
  Status attach(const PrefixSource& source, int64_t tokens, uint64_t* id, std::vector<SlotCopy>* copies);
  // ---- Fills from tiers (filled.cc). Numbers of tokens are multiples of the page size. -----------------------------

  // Makes a sequence of `tokens` tokens. It shares the pages of a prefix for the first `found` tokens, and gets new
  // pages without contents for the other tokens. The sequence is busy until finish_fill, so no other call uses it.
  Status begin_fill(const PrefixSource& source, int64_t found, int64_t tokens, uint64_t* id);
  void finish_fill(uint64_t id) noexcept;
  // Makes a sequence that shares the first `tokens` tokens of a sequence that is being filled.
  Status share_filled(uint64_t filled, int64_t tokens, uint64_t* id);

  // The index of the first list entry that a sequence of `tokens` tokens takes from the source.
  int64_t first_entry(const PrefixSource& source, int32_t group, int64_t tokens) const noexcept;
  // These methods read, take and drop the references to pages that the prefix index and its pins have.
  bool is_indexed(int32_t group, int32_t page) const noexcept { return table(group).pages().is_indexed(page); }
  bool is_idle(int32_t group, int32_t page) const noexcept { return table(group).pages().is_idle(page); }
  void index_page(int32_t group, int32_t page) noexcept { edit_table(group).index_page(page); }
  void unindex_page(int32_t group, int32_t page) noexcept { edit_table(group).unindex_page(page); }
  void hold_page(int32_t group, int32_t page) noexcept { edit_table(group).hold_page(page); }
  void unhold_page(int32_t group, int32_t page) noexcept { edit_table(group).unhold_page(page); }

  // ---- Saved sequences (saved.cc) ---------------------------------------------------------------------------------

  // Describes a sequence, and makes it busy until end_save. Until then, its pages do not change, even if the sequence
  // is removed.
  Status begin_save(uint64_t id, SavedSequence* out, int32_t* slot);
  void end_save(int32_t slot) noexcept;
  // Makes a sequence with new pages for all tokens and states that a saved sequence holds. Until finish_load or
  // abandon_load, the sequence is busy, and other calls see an empty sequence. Appends to `clears` at most one clear
  // for each group, for a last page that is not full.
  Status begin_load(const SavedSequence& saved, int32_t* slot, std::vector<SlotCopy>* clears);
  // Returns STALE_ID if the sequence was removed since begin_load.
  Status finish_load(const SavedSequence& saved, int32_t slot, uint64_t* id);
  void abandon_load(int32_t slot) noexcept;
  // The number of checkpoints that a load drops, oldest first, because a sequence has at most max_checkpoints of them.
  int64_t dropped_checkpoints(const SavedSequence& saved) const noexcept;
  // The state page of a group at checkpoint `index` of a sequence.
  int32_t checkpoint_page(int32_t slot, int32_t group, int64_t index) const noexcept;

  // ---- Sequences from other caches (received.cc) --------------------------------------------------------------------

  // Checks that a sequence may be the prefix of a received sequence of `tokens` tokens.
  Status check_prefix(uint64_t id, int64_t tokens, int32_t* slot) const;
  // The index of the first token that a sequence of `tokens` tokens needs in a group and does not share with the
  // prefix, rounded down to the begin of a page. prefix: the slot of the prefix, or -1.
  int64_t first_received(int32_t group, int32_t prefix, int64_t tokens) const noexcept;
  // Makes a sequence that shares the prefix's whole pages, as far as the sequence needs them. From first_received on,
  // it has fresh pages without contents. The sequence is busy until finish_fill or abandon_load. Appends to `clears` at
  // most one clear for each group.
  Status begin_receive(int32_t prefix, int64_t tokens, uint64_t* id, std::vector<SlotCopy>* clears);

  // ---- Suspended sequences (suspended.cc) ---------------------------------------------------------------------------

  // A sequence is busy from begin_suspend until a resume has succeeded, or until the suspend has failed. Its pages are
  // copied between begin_suspend and end_suspend, and between begin_resume and end_resume.
  struct PageReference {
    int32_t group, page;
  };
  struct MovedPage {
    int32_t group, page;
    int64_t position;  // index of its first token; for a page of states, the number of tokens that the states include
  };
  // moved: gets the pages that become available when the sequence drops them.
  Status begin_suspend(uint64_t id, std::vector<MovedPage>* moved);
  // If `done`, the sequence drops the moved pages and is suspended. Returns false if the sequence was removed since
  // begin_suspend, and then frees its pages.
  bool end_suspend(uint64_t id, bool done) noexcept;
  // fresh: gets pages without contents in place of the moved pages, in the same order.
  Status begin_resume(uint64_t id, std::vector<PageReference>* fresh);
  // If `done`, the sequence is as it was before the suspend. Otherwise drops the fresh pages, and the sequence stays
  // suspended. Returns false if the sequence was removed since begin_resume.
  bool end_resume(uint64_t id, bool done) noexcept;

  // ---- Snapshots: unchanging copies of lists whose pages are read outside the lock ---------------------------

  // Returns the index of a new snapshot, or -1 if all snapshots are in use.
  int32_t take_snapshot(int32_t slot, int32_t group) noexcept;
  const PageList& snapshot(int32_t index) const noexcept { return snapshots_[index].list; }
  void drop_snapshot(int32_t index) noexcept;

  // ---- Audit (audit.cc) ------------------------------------------------------------------------------------------
  struct Counts {
    int64_t pages_used = 0, pages_shared = 0, tokens_held = 0, tokens_shared = 0, tokens_logical = 0;
  };
  // Like describe and check_invariants, throws std::bad_alloc.
  Counts count(int32_t group) const;
  // Writes an array of the sequences. users[group][page]: the sequences that use the page. numbers[slot]: the index of
  // the slot's sequence in the array, or -1. numbers has an entry for each slot that was ever used. (describe.cc)
  void describe(JsonText* out, std::vector<std::vector<PageUsers>>* users, std::vector<int32_t>* numbers) const;
  uint64_t digest() const;
  // open_steps: the reservations of each open step, [rows, groups]. Reservations also hold pages. others: the
  // references of the prefix index and its pins.
  Status check_invariants(const std::vector<std::span<const Reservation>>& open_steps,
                          std::span<const PageReference> others = {}) const;

 private:
  // Bits of Record::state.
  static constexpr uint8_t kBusy = 1;       // is busy for the reason in Record::busy_with
  static constexpr uint8_t kTree = 2;       // has uncommitted nodes
  static constexpr uint8_t kGrowsTree = 4;  // the open step adds nodes
  static constexpr uint8_t kSuspended = 8;  // is suspended, or is being resumed
  static constexpr uint8_t kPending = 16;   // a load still fills its pages
  // Why kBusy is set. kFill: the sequence is being loaded from a file or from tiers, or it is being received.
  enum class BusyWith : uint8_t { kForward, kSave, kFill, kSuspend, kResume };
  struct Record {
    int64_t stored;  // number of tokens in the lists: the length plus the number of uncommitted nodes
    uint64_t id;     // 0 if the slot is free, or if the sequence was removed while busy
    uint64_t generation;
    uint32_t mark;        // equals mark_ if resolve_first has found the sequence since start_marking
    int32_t checkpoints;  // number of checkpoints
    int16_t nodes;        // number of uncommitted nodes
    uint8_t state;
    BusyWith busy_with;  // only with kBusy
    bool used;
    bool streamed;     // has or had a streaming window
    bool takes_pages;  // in the last checked step, the sequence needs a page in some group
    StreamWindow stream;
    bool removed() const noexcept { return id == 0; }
  };
  struct Snapshot {
    PageList list;
    int32_t group;
    bool used;
  };

  PageTable& edit_table(int32_t group) noexcept { return tables_[static_cast<size_t>(group)]; }
  PageList& edit_list(int32_t slot, int32_t group) noexcept { return lists_[int64_t{slot} * num_groups() + group]; }
  // The rules of a group for a sequence, with its streaming window.
  GroupRules rules_of(int32_t slot, int32_t group) const noexcept { return rules(group).with(records_[slot].stream); }
  static void set_busy(Record& record, BusyWith with) noexcept {
    record.state |= kBusy;
    record.busy_with = with;
  }
  void set_busy(int32_t slot, BusyWith with) noexcept { set_busy(records_[slot], with); }
  const char* busy_text(int32_t slot) const noexcept;
  const char* state_text(int32_t slot) const noexcept;
  Hole hole(int32_t slot, int32_t group) const noexcept { return {list(slot, group).kept, list(slot, group).first}; }
  bool lists_work_at(int32_t slot, int64_t position) const noexcept;
  void drop_unseen(int32_t slot) noexcept;
  int32_t take_slot() noexcept;
  void free_slot(int32_t slot) noexcept;
  Status stale(uint64_t id, int64_t index) const;
  void start_marking() noexcept;
  // Like resolve, but returns DUPLICATE if resolve_first has already found the sequence since start_marking.
  Status resolve_first(uint64_t id, int64_t index, int32_t* slot) {
    KVC_TRY(resolve(id, index, slot));
    if (records_[*slot].mark == mark_) return duplicate(id, index);
    records_[*slot].mark = mark_;
    return Status();
  }
  Status duplicate(uint64_t id, int64_t index) const;
  // Refuses a busy sequence, and a sequence with uncommitted nodes.
  Status check_idle(int32_t slot, int64_t index) const {
    return (records_[slot].state & (kBusy | kTree | kSuspended | kPending)) == 0 ? Status() : not_idle(slot, index);
  }
  Status not_idle(int32_t slot, int64_t index) const {
    if (busy(slot)) return busy_error(slot, index);
    return is_pending(slot) ? pending_error(slot, index) : uncommitted(slot, index);
  }
  Status uncommitted(int32_t slot, int64_t index) const;
  Status check_tree_row(int32_t slot, int64_t row, std::span<const int32_t> parents, int64_t first_token) const;
  void drop_nodes(int32_t slot) noexcept;
  bool grows(int32_t group, StepKind kind) const noexcept { return rules(group).grows(group, kind.encoder_group); }
  // Calls visit(group, ordinal) for each state group (states.cc).
  template <class Visit>
  void for_each_state_group(Visit visit) const {
    for (int32_t g = 0, ordinal = 0; ordinal < num_state_groups_; ++g) {
      if (rules(g).holds_state()) visit(g, ordinal++);
    }
  }
  // Calls visit(group, page) for the state pages that a sequence holds besides its lists.
  template <class Visit>
  void for_each_state_page(int32_t slot, Visit visit) const {
    for_each_state_group([&](int32_t g, int32_t ordinal) {
      for (int64_t i = 0; i < records_[slot].checkpoints; ++i) {
        if (const int32_t page = checkpoint_pages(slot, i)[ordinal]; page >= 0) visit(g, page);  // -1: suspended
      }
      for (int32_t node = -1; keeps_state_of(node); ++node) {
        const int32_t page = tree_state(slot, ordinal, node);
        if (page >= 0) visit(g, page);
      }
    });
  }
  int64_t tree_state_index(int32_t slot, int32_t ordinal, int32_t node) const noexcept {
    return (int64_t{slot} * num_state_groups_ + ordinal) * (1 + config_.max_draft_states) + 1 + node;
  }
  int32_t& edit_tree_state(int32_t slot, int32_t ordinal, int32_t node) noexcept {
    return tree_states_[tree_state_index(slot, ordinal, node)];
  }
  int32_t* checkpoint_pages(int32_t slot, int64_t index) noexcept {
    return checkpoint_pages_.data() + (slot * config_.max_checkpoints + index) * num_state_groups_;
  }
  const int32_t* checkpoint_pages(int32_t slot, int64_t index) const noexcept {
    return checkpoint_pages_.data() + (slot * config_.max_checkpoints + index) * num_state_groups_;
  }
  int64_t find_checkpoint(int32_t slot, int64_t position) const noexcept;
  void drop_checkpoint(int32_t slot, int64_t index) noexcept;
  void drop_checkpoints_after(int32_t slot, int64_t position) noexcept;
  void copy_checkpoints(int32_t from, int32_t to, int64_t last) noexcept;
  void nearest_checkpoint(int32_t slot, int64_t position, int64_t* before, int64_t* after) const noexcept;
  Status check_states_at(int32_t slot, int64_t position, int64_t index) const;
  void restore_states(int32_t slot, int64_t position) noexcept;
  bool has_state_of(int32_t slot, int32_t node) const noexcept;
  bool keeps_drafts(int32_t group, std::span<const int32_t> parents) const noexcept {
    return config_.max_draft_states > 0 && !parents.empty() && rules(group).holds_state();
  }
  int64_t draft_pages(int32_t slot, int64_t nodes) const noexcept;
  int64_t max_nodes(int32_t slot, int32_t group) const noexcept;
  void take_draft_pages(int32_t slot, int32_t group, int64_t nodes) noexcept;
  void drop_tree_states(int32_t slot, int32_t group, int32_t first) noexcept;
  int32_t ordinal_of(int32_t group) const noexcept { return ordinals_[static_cast<size_t>(group)]; }
  void keep_tree_states(int32_t slot, int32_t added, std::span<const Reservation> row, uint64_t stored) noexcept;
  void close_tree_states(int32_t slot, int32_t leaf) noexcept;
  Status check_state_parents(int32_t slot, int64_t row, std::span<const int32_t> parents) const;
  void plan_moves(int32_t slot, int32_t group, std::span<const int32_t> path, std::vector<SlotCopy>* copies) const;
  Status check_works_at(int32_t slot, int64_t position, int64_t index) const;
  // Checks for shortages. Every call that takes sequences or pages reports shortages by these functions. So the two
  // numbers of the error always mean the same: what the whole call needs, and what is available to it. Errors of
  // check_nodes have no such numbers.
  Status check_slots(int64_t n) const;  // n more sequences
  Status check_pages(int32_t group, int64_t required, int64_t available) const;
  Status check_needed_pages() const;  // needed_pages_ of each group
  Status check_rows(const Shortage& shortage) const;
  // Checks that enough page-list nodes are free for a list with the entries [first, count), and that reserved_nodes_
  // nodes remain free.
  Status check_nodes(int32_t group, int64_t first, int64_t count) const;
  // Evicts idle pages until each group has needed_pages_ free pages. A check must have found that this number of pages
  // is available.
  void make_room() noexcept;
  int32_t find_donor(int32_t group, std::span<const int32_t> pages) const noexcept;
  std::span<const int32_t> read_source(const PrefixSource& source, int32_t group, int64_t tokens) noexcept;
  Status check_attach(const PrefixSource& source, int64_t tokens);
  // Returns ORDER if a layer lacks one of the first `tokens` tokens or, with encoder_too, of the encoder tokens.
  Status check_held(int32_t slot, int64_t tokens, bool encoder_too) const;
  Status check_receive(int32_t prefix, int64_t tokens);
  Status check_saved_list(const SavedSequence& saved, int32_t group);
  Status check_load(const SavedSequence& saved);
  // A suspended sequence's reference to a page; -1 = none. If `moved`, the sequence gave up this page when it was
  // suspended.
  struct Place {
    int32_t page = -1;
    bool moved = false;
    bool is_kept() const noexcept { return page >= 0 && !moved; }
  };
  using SuspendedPages = std::vector<std::vector<Place>>;  // [groups], [places]
  static bool is_first(const std::vector<Place>& places, size_t index) noexcept;
  void find_places(int32_t slot, int32_t group, std::vector<Place>* places) const;
  template <class Visit>
  void for_each_moved(const SuspendedPages& suspended, Visit visit) const;
  // Calls visit(group, page) for the pages that suspended sequences keep.
  template <class Visit>
  void for_each_kept(Visit visit) const {
    for (const auto& [slot, pages] : suspended_) {
      if (!is_suspended(slot)) continue;  // until the suspend has ended, the lists have the pages
      for (int32_t g = 0; g < num_groups(); ++g) {
        for (const Place& place : pages[static_cast<size_t>(g)]) {
          if (place.is_kept()) visit(g, place.page);
        }
      }
    }
  }
  void drop_lists(int32_t slot) noexcept;
  void drop_suspended(int32_t slot) noexcept;
  Status check_resume(int32_t slot);
  void fill_list(int32_t slot, int32_t group, const std::vector<Place>& places,
                 std::vector<PageReference>* fresh) noexcept;
  void fill_states(int32_t slot, int32_t group, int32_t ordinal, const std::vector<Place>& places,
                   std::vector<PageReference>* fresh) noexcept;
  void take_state_pages(const SavedSequence& saved, int32_t slot) noexcept;
  int64_t first_filled_entry(const PrefixSource& source, int32_t group, int64_t found, int64_t tokens) const noexcept;
  Status check_fill(const PrefixSource& source, int64_t found, int64_t tokens);
  int64_t pages_for_append(int32_t slot, int32_t group, int64_t tokens) const noexcept;
  Status check_row(uint64_t id, int32_t length, int64_t row, StepKind kind, int32_t* slot);
  void take_pages(int32_t slot, int32_t tokens, bool draft, std::span<Reservation> row, std::vector<SlotCopy>* copies,
                  StepKind kind, std::span<const int32_t> parents) noexcept;
  int32_t list_of(int32_t group) const noexcept { return lists_of_groups_[static_cast<size_t>(group)]; }
  void share_prefix(int32_t parent, int32_t child, int64_t position, std::vector<SlotCopy>* copies) noexcept;
  void find_step_layers(StepKind kind) noexcept;
  bool layers_complete(int32_t slot) const noexcept;
  Status check_layers(int32_t slot, int64_t row, StepKind kind) const;
  int64_t tail_room(int32_t slot, int32_t group) const noexcept;
  bool fits_tail(int32_t slot, int32_t group, int64_t tokens) const noexcept;
  bool tail_needs_copy(int32_t slot, int32_t group) const noexcept;
  void clear_rest(int32_t group, int32_t page, int64_t filled, std::vector<SlotCopy>* copies) const;
  Status check_tree(int32_t slot, int32_t group) const;
  Status check_idle_pages(int32_t group) const;

  SequenceStoreConfig config_;
  IdLayout ids_;
  int32_t num_groups_;
  std::vector<PageTable> tables_;
  LazyArray<Record> records_;      // [max_sequences]
  LazyArray<PageList> lists_;      // [max_sequences, groups]
  LazyArray<int32_t> free_slots_;  // stack of the slots that were freed
  LazyArray<Snapshot> snapshots_;
  LazyArray<int16_t> tree_parents_;          // [max_sequences, max_tree_nodes]
  LazyArray<int64_t> encoder_tokens_;        // [max_sequences, groups] if a group has encoder sequences
  LazyArray<int64_t> checkpoint_positions_;  // [max_sequences, max_checkpoints]
  LazyArray<int32_t> checkpoint_pages_;      // [max_sequences, max_checkpoints, state groups]
  LazyArray<int32_t> tree_states_;           // [max_sequences, state groups, 1 + max_draft_states]: see tree_state
  std::vector<int32_t> path_;                // [max_tree_nodes]: scratch of a commit
  StoredLayers stored_layers_;
  std::map<int32_t, SuspendedPages> suspended_;      // by slot; also of sequences that are being suspended
  std::vector<int32_t> lists_of_groups_;             // [groups]: a group's list in stored_layers_
  std::vector<StoredLayers::LayerSet> step_layers_;  // [lists]: scratch of check_step, the layers that a step needs
  std::vector<int32_t> ordinals_;                    // [groups]: the index of a state group among the state groups
  int32_t num_state_groups_ = 0;
  bool has_encoders_ = false;
  bool has_windows_ = false;  // whether a group has a window or chunks
  int64_t free_slots_size_ = 0;
  int32_t fresh_slot_ = 0;  // the lowest slot that was never used
  int64_t num_sequences_ = 0;
  int64_t num_removed_ = 0;
  uint32_t mark_ = 0;
  PageEvictor* evictor_ = nullptr;
  std::vector<int64_t> needed_pages_;    // [groups]: the number of pages that the last checked call takes
  std::vector<int64_t> reserved_nodes_;  // [groups]: the number of page-list nodes that check_nodes leaves free
  std::vector<int32_t> donors_;          // [groups]: scratch of attach
  std::vector<int32_t> source_pages_;    // [entries]: scratch of attach, the pages that a new list takes
};

}  // namespace kvc
