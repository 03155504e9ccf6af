// PageTable: the pages of one layer group, and the page lists that share them.
//
// A PageList is a persistent tree. Each node has 32 children, and the leaves hold page ids (kvc_backend_tables
// describes the format). Forks share nodes, and a change copies only the shared nodes on its path. So a fork copies at
// most one node of each level, even if its parent is a fork.
//
// Thread safety: none; calls are made under the owner's lock. A thread may read node_data() without the lock while the
// list that it reads exists and does not change.
// Invariants
//   refs(page) = leaf entries that hold it + holds of hold_page and take_page + 1 if the prefix index refers to it
//   refs(node) = parents that hold it + lists whose root it is
//   a node is never written if it, or a node above it, has more than one reference
//   entries [kept, first) of a list (its hole) and entries from size on are -1; kept <= first <= size; without a hole,
//   kept and first are 0
// The comment of a method says how many pages it needs. The caller first compares this number with free_pages(), so
// that no change stops half way. For lists that share pages by share(), nodes never run out, because the owner passes
// at least nodes_needed(...) to the constructor. Before append_shared and replace, the owner must check that nodes are
// free.
#pragma once

#include <cstdint>
#include <span>

#include "base/lazy_array.h"
#include "kvcache_backend.h"
#include "page/ref_pool.h"

namespace kvc {

struct PageList {
  int32_t root = -1;   // node id, -1 = no node
  int32_t levels = 0;  // number of levels of the tree, which has room for 32^levels entries
  int32_t size = 0;    // number of entries, freed ones included
  // Entries [kept, first) are the hole: their pages were freed. The hole lies before a window (then kept is 0), or
  // between the sinks and the newest tokens of a streaming window.
  int32_t kept = 0;        // start of the hole; 0 without a hole
  int32_t first = 0;       // end of the hole; 0 without a hole
  int32_t tail_page = -1;  // page at size - 1, or -1
  // If false, the owner of the list may write the free slots of the last page. If true, other lists may use the page:
  // before a write, the owner must check that exclusive() is true, or replace the page.
  bool tail_shared = false;

  bool has_hole() const noexcept { return kept < first; }
};

class PageTable {
 public:
  static constexpr int32_t kFanoutLog2 = KVC_BACKEND_NODE_FANOUT_LOG2;
  static constexpr int32_t kFanout = KVC_BACKEND_NODE_FANOUT;

  PageTable() = default;
  PageTable(int64_t num_pages, int64_t num_nodes)
      : pages_(num_pages), nodes_(num_nodes), children_(num_nodes * kFanout) {}

  // An upper bound of the number of nodes that `lists` lists over `num_pages` pages have at once, if they share pages
  // only by share(). All indices are below `max_index`. edges: the number of ends of a hole that are inside its list.
  // It is 0 if lists have no holes, 1 if holes begin at entry 0, and 2 if holes follow sinks.
  // Derivation: order the lists by their common prefixes. At each level, a list adds to the nodes of the list before it
  // the nodes that have only pages of its own and no free entry. It also adds at most one node where the two lists
  // divide, one at its end, and two at each edge of a hole.
  static int64_t nodes_needed(int64_t num_pages, int64_t lists, int64_t max_index, int32_t edges);
  static int32_t levels_for(int64_t max_index) noexcept;

  int64_t num_pages() const noexcept { return pages_.size(); }
  int64_t free_pages() const noexcept { return pages_.free(); }
  // The number of free pages, and of pages that become free when the prefix index evicts all idle pages.
  int64_t available_pages() const noexcept { return pages_.free() + pages_.idle(); }
  const RefPool& pages() const noexcept { return pages_; }
  const RefPool& nodes() const noexcept { return nodes_; }
  const int32_t* node_data() const noexcept { return children_.data(); }
  int64_t bytes() const noexcept {
    return pages_.bytes() + nodes_.bytes() + children_.bytes() + changed_.bytes() + is_changed_.bytes();
  }

  // Starts to record which nodes are written, so that a device's copy of the nodes can be updated. Throws
  // std::bad_alloc.
  void track_changes() {
    changed_ = LazyArray<int32_t>(nodes_.size());
    is_changed_ = LazyArray<uint8_t>(nodes_.size());
  }
  // The nodes in use that were written since the last forget_changes, each once.
  std::span<const int32_t> changes() noexcept;
  void forget_changes() noexcept;

  // The page at `index`, which is in [0, size). Returns -1 if the page was freed.
  int32_t at(const PageList& list, int64_t index) const noexcept;

  // Calls visit(index, page) for entries [begin, end) that are not freed.
  template <class Visit>
  void for_each(const PageList& list, int64_t begin, int64_t end, Visit visit) const {
    for (int64_t i = begin; i < end;) {
      if (i >= list.kept && i < list.first) {
        i = list.first;
        continue;
      }
      const int32_t* leaf = leaf_of(list, i);
      const int64_t leaf_end = (i | (kFanout - 1)) + 1;
      for (const int64_t stop = leaf_end < end ? leaf_end : end; i < stop; ++i) {
        if (leaf != nullptr && leaf[i & (kFanout - 1)] >= 0) visit(i, leaf[i & (kFanout - 1)]);
      }
    }
  }

  // Whether this list has the only reference to the page at `index`.
  bool exclusive(const PageList& list, int64_t index) const noexcept;
  // Whether the page at `index` becomes available (free or idle) when the reference of this list and a number of holds
  // of the page (`holds`; hold_page makes one) are dropped.
  bool available_without(const PageList& list, int64_t index, uint32_t holds) const noexcept;

  // Returns a list that shares the first `count` entries of `list`.
  PageList share(const PageList& list, int64_t count) noexcept;

  // Appends a fresh page and returns it. Needs one page.
  int32_t append(PageList& list) noexcept;

  // Appends `count` entries of -1, which become the hole of the list. The list must not have a hole yet.
  void skip(PageList& list, int64_t count) noexcept;
  // Appends pages that already have other references, and takes a reference to each.
  void append_shared(PageList& list, std::span<const int32_t> pages) noexcept;
  // Replaces the page at `index` by `page`, which already has other references, and takes a reference to it. The old
  // page loses this list's reference.
  void replace(PageList& list, int64_t index, int32_t page) noexcept;

  // Drops the entries from `count` on, last first; count <= size. If the owner drops tokens of the last page without
  // dropping entries, it must call truncate with count == size.
  void truncate(PageList& list, int64_t count) noexcept;

  // Drops this list's references to the entries [keep, count), which then read as -1 and are the hole of the list. A
  // hole never shrinks: if the existing hole ends at `count` or later, nothing changes. If there is a hole, `keep`
  // must be at most list.kept.
  void drop_front(PageList& list, int64_t count, int64_t keep = 0) noexcept;

  // Replaces the last entry by a fresh page, and returns it. The old page loses this list's reference. Needs one page.
  int32_t replace_tail(PageList& list) noexcept;
  // Replaces the last entry by `page`. The caller's hold of `page` becomes this list's reference. The old page loses
  // this list's reference. shared: the new value of list.tail_shared.
  void restore_tail(PageList& list, int32_t page, bool shared) noexcept;

  // Drops all references; the list is empty afterwards.
  void release(PageList& list) noexcept;

  // Allocates a page that is in no list, and takes one hold of it. Needs one page.
  int32_t take_page() noexcept { return pages_.allocate(); }
  // A hold is a reference to a page that belongs neither to a list entry nor to the prefix index. unhold_page drops it.
  void hold_page(int32_t page) noexcept { pages_.ref(page); }
  void unhold_page(int32_t page) noexcept { pages_.unref(page); }
  // Takes, or drops, the reference of the prefix index to a page.
  void index_page(int32_t page) noexcept { pages_.index(page); }
  void unindex_page(int32_t page) noexcept { pages_.unindex(page); }

 private:
  int32_t* children(int32_t node) noexcept { return children_.data() + int64_t{node} * kFanout; }
  const int32_t* children(int32_t node) const noexcept { return children_.data() + int64_t{node} * kFanout; }
  const int32_t* leaf_of(const PageList& list, int64_t index) const noexcept;
  int32_t unshared_at(const PageList& list, int64_t index) const noexcept;
  void mark(int32_t node) noexcept {
    if (is_changed_.size() == 0 || is_changed_[node] != 0) return;
    is_changed_[node] = 1;
    changed_[num_changed_++] = node;
  }
  int32_t new_node() noexcept;
  void unref_child(int32_t child, int32_t level) noexcept;
  void unref_node(int32_t node, int32_t level) noexcept;
  int32_t own(int32_t node, int32_t level, int32_t keep_begin, int32_t keep_end) noexcept;
  int32_t* own_path_to(PageList& list, int64_t index) noexcept;
  void cut(PageList& list, int64_t count) noexcept;
  int32_t without(int32_t node, int32_t level, int64_t begin, int64_t end) noexcept;
  void grow_to(PageList& list, int64_t index) noexcept;
  void append_page(PageList& list, int32_t page, bool shared) noexcept;

  RefPool pages_;
  RefPool nodes_;
  LazyArray<int32_t> children_;    // [num_nodes, kFanout]
  LazyArray<int32_t> changed_;     // [num_nodes], or empty if changes are not tracked
  LazyArray<uint8_t> is_changed_;  // [num_nodes], or empty if changes are not tracked
  int64_t num_changed_ = 0;
};

}  // namespace kvc
