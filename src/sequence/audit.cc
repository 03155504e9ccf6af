// The methods of SequenceStore that read whole tables: counts, digest and invariants.
#include <algorithm>

#include "sequence/sequence_store.h"

namespace kvc {
namespace {

// Finds, for each page of a group, how many of its tokens are in at least one list, and how many are in two or more
// lists. All pages of a list except the last one are full.
class OwnerCount {
 public:
  OwnerCount(const PageTable& table, int32_t page_size)
      : table_(table),
        page_size_(page_size),
        visits_(static_cast<size_t>(table.nodes().size())),
        pages_(static_cast<size_t>(table.num_pages())) {}

  void add(const PageList& list, int64_t length) {
    const int64_t size = ceil_div(length, page_size_);
    if (size == 0 || list.root < 0) return;
    walk_full(list.root, list.levels, 0, size - 1);
    const int32_t tail = table_.at(list, size - 1);
    if (tail < 0) return;
    Page& page = pages_[static_cast<size_t>(tail)];
    const auto tokens = static_cast<int32_t>(length - (size - 1) * page_size_);
    page.tail_second = std::max(page.tail_second, std::min(page.tail_first, tokens));
    page.tail_first = std::max(page.tail_first, tokens);
  }

  void sum(SequenceStore::Counts* counts) const {
    for (const Page& page : pages_) {
      const int32_t held = page.full_owners > 0 ? page_size_ : page.tail_first;
      const int32_t shared = page.full_owners > 1    ? page_size_
                             : page.full_owners == 1 ? page.tail_first
                                                     : page.tail_second;
      counts->tokens_held += held;
      counts->tokens_shared += shared;
      counts->pages_shared += shared > 0;
    }
  }

 private:
  struct Page {
    int32_t full_owners = 0;  // number of lists in which pages follow this page, so that it is full; 2 = two or more
    int32_t tail_first = 0;   // largest number of tokens in this page, among the lists that end with this page
    int32_t tail_second = 0;  // second largest number of tokens, among the same lists
  };

  // Counts the pages of entries [base, end) under `node` as full. `base` is the index of the first entry under the
  // node. A node whose entries all lie before `end` is visited at most twice. After that, all its pages are known to be
  // shared.
  void walk_full(int32_t node, int32_t level, int64_t base, int64_t end) {
    const int64_t span = int64_t{1} << (PageTable::kFanoutLog2 * level);
    if (node < 0 || base >= end) return;
    if (base + span <= end) {
      auto& visits = visits_[static_cast<size_t>(node)];
      if (visits == 2) return;
      ++visits;
    }
    const int32_t* children = table_.node_data() + int64_t{node} * PageTable::kFanout;
    const int64_t child_span = span / PageTable::kFanout;
    for (int32_t i = 0; i < PageTable::kFanout && base + i * child_span < end; ++i) {
      if (children[i] < 0) continue;
      if (level > 1) {
        walk_full(children[i], level - 1, base + i * child_span, end);
      } else {
        int32_t& owners = pages_[static_cast<size_t>(children[i])].full_owners;
        owners = std::min(owners + 1, 2);
      }
    }
  }

  const PageTable& table_;
  const int32_t page_size_;
  std::vector<uint8_t> visits_;
  std::vector<Page> pages_;
};

// Counts the references to the pages and nodes of a group, and compares the numbers with the reference counts of the
// table.
class ReferenceCount {
 public:
  ReferenceCount(const PageTable& table, int32_t group)
      : table_(table),
        group_(group),
        page_refs_(static_cast<size_t>(table.num_pages())),
        node_refs_(static_cast<size_t>(table.nodes().size())),
        node_level_(static_cast<size_t>(table.nodes().size())) {}

  void hold(int32_t page) { ++page_refs_[static_cast<size_t>(page)]; }

  Status add(const PageList& list) {
    if (list.root < 0) return Status();
    return visit(list.root, list.levels);
  }

  Status compare() const {
    KVC_TRY(compare_pool(table_.pages(), page_refs_, "page"));
    return compare_pool(table_.nodes(), node_refs_, "node");
  }

 private:
  Status visit(int32_t node, int32_t level) {
    if (node < 0 || node >= table_.nodes().size()) return broken("node", node, "is in a list and does not exist");
    uint8_t& known = node_level_[static_cast<size_t>(node)];
    if (known != 0 && known != level) return broken("node", node, "stands at two heights");
    if (++node_refs_[static_cast<size_t>(node)] > 1) return Status();
    known = static_cast<uint8_t>(level);
    const int32_t* children = table_.node_data() + int64_t{node} * PageTable::kFanout;
    for (int32_t i = 0; i < PageTable::kFanout; ++i) {
      if (children[i] < 0) continue;
      if (level > 1) {
        KVC_TRY(visit(children[i], level - 1));
      } else if (children[i] >= table_.num_pages()) {
        return broken("page", children[i], "is in a list and does not exist");
      } else {
        ++page_refs_[static_cast<size_t>(children[i])];
      }
    }
    return Status();
  }

  Status compare_pool(const RefPool& pool, const std::vector<uint32_t>& expected, const char* what) const {
    int64_t used = 0;
    for (int64_t id = 0; id < pool.size(); ++id) {
      const uint32_t refs = pool.refs(static_cast<int32_t>(id));
      used += refs > 0;
      if (refs != expected[static_cast<size_t>(id)]) {
        return Status::error(KVC_ERROR_INTERNAL, "group %d: %s %d has count %u and %u references", group_, what,
                             static_cast<int>(id), refs, expected[static_cast<size_t>(id)])
            .in_group(group_);
      }
    }
    int64_t free = 0;
    int32_t bad = -1;
    pool.for_each_free([&](int32_t id) {
      ++free;
      if (pool.refs(id) != 0) bad = id;
    });
    if (bad >= 0) return broken(what, bad, "is free and has references");
    if (used != pool.used() || free != pool.free() || used + free != pool.size()) {
      return Status::error(KVC_ERROR_INTERNAL, "group %d: %lld used and %lld free of %lld %ss, counted %lld and %lld",
                           group_, static_cast<long long>(pool.used()), static_cast<long long>(pool.free()),
                           static_cast<long long>(pool.size()), what, static_cast<long long>(used),
                           static_cast<long long>(free))
          .in_group(group_);
    }
    return Status();
  }

  Status broken(const char* what, int32_t id, const char* how) const {
    return Status::error(KVC_ERROR_INTERNAL, "group %d: %s %d %s", group_, what, id, how).in_group(group_);
  }

  const PageTable& table_;
  const int32_t group_;
  std::vector<uint32_t> page_refs_, node_refs_;
  std::vector<uint8_t> node_level_;
};

class Digest {
 public:
  void add(uint64_t word) noexcept {
    state_ = (state_ ^ word) * 0x9E3779B97F4A7C15u;
    state_ ^= state_ >> 29;
  }
  uint64_t value() const noexcept { return state_; }

 private:
  uint64_t state_ = 0x6B76636163686530u;
};

}  // namespace

SequenceStore::Counts SequenceStore::count(int32_t group) const {
  Counts counts;
  OwnerCount owners(table(group), static_cast<int32_t>(rules(group).page_size));
  for (int32_t slot = 0; slot < fresh_slot_; ++slot) {
    if (!records_[slot].used) continue;
    owners.add(list(slot, group), length_in(slot, group));
    if (!records_[slot].removed()) counts.tokens_logical += length_in(slot, group);
  }
  counts.pages_used = table(group).pages().used();
  owners.sum(&counts);
  if (rules(group).holds_state()) counts.tokens_held = counts.tokens_shared = 0;
  return counts;
}

int64_t SequenceStore::exclusive_pages(int32_t slot, int32_t group) const noexcept {
  const PageTable& pages = table(group);
  const PageList& own = list(slot, group);
  int64_t count = 0;
  // A sequence may hold one state page several times: as the last checkpoint, as the state before the tree, and as the
  // current state. So the loop adds up the holds of each page.
  int32_t held = -1;
  uint32_t holds = 0, tail_holds = 0;
  const auto count_held = [&] {
    if (holds > 0 && pages.pages().refs(held) - pages.pages().is_indexed(held) == holds) ++count;
  };
  if (rules(group).holds_state()) {
    for_each_state_page(slot, [&](int32_t g, int32_t page) {
      if (g != group) return;
      if (page == own.tail_page) {
        ++tail_holds;
        return;
      }
      if (page != held) count_held(), holds = 0;
      held = page;
      ++holds;
    });
    count_held();
  }
  pages.for_each(own, 0, own.size, [&](int64_t i, int32_t) { count += pages.available_without(own, i, tail_holds); });
  return count;
}

uint64_t SequenceStore::digest() const {
  Digest digest;
  digest.add(static_cast<uint64_t>(num_sequences_));
  for (int32_t slot = 0; slot < fresh_slot_; ++slot) {
    const Record& record = records_[slot];
    if (!record.used) continue;
    digest.add(static_cast<uint64_t>(slot));
    digest.add(static_cast<uint64_t>(record.stored));
    digest.add(static_cast<uint64_t>(record.state) << 1 | static_cast<uint64_t>(record.removed()));
    digest.add(static_cast<uint64_t>(record.stream.window) << 32 | static_cast<uint64_t>(record.stream.sinks));
    for (const int16_t parent : tree(slot, 0)) digest.add(static_cast<uint64_t>(parent));
    for_each_state_page(slot, [&](int32_t, int32_t page) { digest.add(static_cast<uint64_t>(page)); });
    if (has_states()) {
      for (const int64_t position : checkpoints(slot)) digest.add(static_cast<uint64_t>(position));
    }
    for (int32_t g = 0; g < num_groups(); ++g) {
      const PageList& pages = list(slot, g);
      if (rules(g).holds_encoder()) digest.add(static_cast<uint64_t>(stored_in(slot, g)));
      digest.add(static_cast<uint64_t>(pages.size) << 32 | static_cast<uint64_t>(pages.first));
      digest.add(static_cast<uint64_t>(pages.kept));
      table(g).for_each(pages, 0, pages.size, [&](int64_t, int32_t page) { digest.add(static_cast<uint64_t>(page)); });
    }
  }
  for_each_kept([&](int32_t, int32_t page) { digest.add(static_cast<uint64_t>(page)); });
  for (int32_t g = 0; g < num_groups(); ++g) {
    digest.add(static_cast<uint64_t>(table(g).pages().fresh()));
    table(g).pages().for_each_freed([&](int32_t page) { digest.add(static_cast<uint64_t>(page)); });
  }
  return digest.value();
}

// Checks the number of nodes, and that each parent comes before its node. If no snapshot exists, also checks that only
// this sequence refers to the nodes' pages.
Status SequenceStore::check_tree(int32_t slot, int32_t group) const {
  const Record& record = records_[slot];
  bool sound = record.nodes >= 0 && record.nodes <= config_.max_tree_nodes && record.nodes <= record.stored &&
               ((record.state & kTree) != 0) == (record.nodes > 0) && (!grows_tree(slot) || busy(slot));
  const std::span<const int16_t> parents = sound ? tree(slot, 0) : std::span<const int16_t>();
  for (size_t i = 0; i < parents.size(); ++i) sound = sound && is_parent(parents[i], static_cast<int64_t>(i));
  bool read = false;  // whether a snapshot exists; it may also refer to these pages (invariant 4)
  for (int32_t i = 0; i < snapshots_.size(); ++i) read = read || snapshots_[i].used;
  const PageList& pages = list(slot, group);
  for (int64_t i = length(slot) / rules(group).page_size; sound && !read && record.nodes > 0 && i < pages.size; ++i) {
    sound = table(group).exclusive(pages, i);
  }
  if (sound) return Status();
  return Status::error(KVC_ERROR_INTERNAL, "group %d: slot %d has a tree of %d nodes, state %d, that does not hold",
                       group, slot, record.nodes, record.state)
      .in_group(group);
}

// Checks the counts of pages to which the prefix index refers.
Status SequenceStore::check_idle_pages(int32_t group) const {
  const RefPool& pages = table(group).pages();
  int64_t indexed = 0, idle = 0;
  for (int32_t page = 0; page < pages.size(); ++page) {
    indexed += pages.is_indexed(page);
    idle += pages.is_idle(page);
  }
  if (indexed == pages.indexed() && idle == pages.idle()) return Status();
  return Status::error(KVC_ERROR_INTERNAL,
                       "group %d: the index has %lld pages and %lld of them alone, counted %lld and %lld", group,
                       static_cast<long long>(pages.indexed()), static_cast<long long>(pages.idle()),
                       static_cast<long long>(indexed), static_cast<long long>(idle))
      .in_group(group);
}

Status SequenceStore::check_invariants(const std::vector<std::span<const Reservation>>& open_steps,
                                       std::span<const PageReference> others) const {
  for (int32_t g = 0; g < num_groups(); ++g) {
    ReferenceCount references(table(g), g);
    for (int32_t slot = 0; slot < fresh_slot_; ++slot) {
      const Record& record = records_[slot];
      if (!record.used) continue;
      const PageList& pages = list(slot, g);
      const int64_t size = ceil_div(stored_in(slot, g), rules(g).page_size);
      const bool fits = busy(slot) ? pages.size >= size : pages.size == size;
      const int32_t last = pages.size == 0 ? -1 : table(g).at(pages, pages.size - 1);
      const bool tail = last == pages.tail_page;
      // Windows and chunks make holes. The next query sees no key in a hole.
      const bool whole = pages.first <= pages.size && (pages.has_hole() || (pages.kept == 0 && pages.first == 0)) &&
                         rules_of(slot, g).works_at(length(slot), hole(slot, g));
      if (!fits || !tail || !whole) {
        return Status::error(KVC_ERROR_INTERNAL,
                             "group %d: slot %d has length %lld and %d entries without [%d, %d), tail %d", g, slot,
                             static_cast<long long>(stored_in(slot, g)), pages.size, pages.kept, pages.first,
                             pages.tail_page)
            .in_group(g);
      }
      KVC_TRY(references.add(pages));
      for_each_state_page(slot, [&](int32_t group, int32_t page) {
        if (group == g) references.hold(page);
      });
      if (!rules(g).holds_encoder()) KVC_TRY(check_tree(slot, g));
      if (!stored_layers_.sound(slot, list_of(g), stored_in(slot, g))) {
        return Status::error(KVC_ERROR_INTERNAL, "group %d: layers hold more tokens of slot %d than it has", g, slot)
            .in_group(g);
      }
    }
    for (int32_t i = 0; i < snapshots_.size(); ++i) {
      if (snapshots_[i].used && snapshots_[i].group == g) KVC_TRY(references.add(snapshots_[i].list));
    }
    for (const std::span<const Reservation> step : open_steps) {
      for (size_t i = static_cast<size_t>(g); i < step.size(); i += static_cast<size_t>(num_groups())) {
        if (step[i].copied_from >= 0) references.hold(step[i].copied_from);
      }
    }
    for_each_kept([&](int32_t group, int32_t page) {
      if (group == g) references.hold(page);
    });
    for (const PageReference& other : others) {
      if (other.group == g) references.hold(other.page);
    }
    KVC_TRY(references.compare());
    KVC_TRY(check_idle_pages(g));
  }
  int64_t used = 0;
  for (int32_t slot = 0; slot < fresh_slot_; ++slot) used += records_[slot].used;
  if (used != num_sequences_ || fresh_slot_ - free_slots_size_ != used) {
    return Status::error(KVC_ERROR_INTERNAL, "%lld sequences counted, %lld recorded", static_cast<long long>(used),
                         static_cast<long long>(num_sequences_));
  }
  return Status();
}

}  // namespace kvc
