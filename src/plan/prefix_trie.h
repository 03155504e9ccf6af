// PrefixTrie: finds rows of a batch that begin with the same pages.
//
// It compares only page lists, for rows in any order and forks of any depth. Lists are trees that share nodes, and
// equal node ids mean equal subtrees. So a comparison of two lists that share nodes reads one node of each level. For
// rows that share nothing, only the first page is read. The result is a trie: each group of rows shares its leading
// pages, and groups within this group share more pages.
//
// Pure. Thread safety: none. Allocates in the constructor only. Invariants: A group has two or more rows. A group comes
// before the groups within it. Two groups are disjoint, or one contains the other; then the inner group shares more
// pages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvcache_backend.h"

namespace kvc {

// The rows row(begin) to row(end - 1). They all share their first `pages` pages. They do not all share the next page,
// or one of them may not share it (PrefixTrie::add).
struct PrefixGroup {
  int32_t begin, end;
  int32_t pages;
};

class PrefixTrie {
 public:
  // Throws std::bad_alloc.
  explicit PrefixTrie(int64_t max_rows);

  // Removes all rows. After that, add each row of the batch once, and then call find.
  void clear() noexcept;
  // pages: the number of leading pages of the row that may be shared. They must not include entries of a hole. kind:
  // rows of different kinds never share pages.
  void add(int32_t row, int32_t pages, int32_t kind) noexcept;
  void find(const kvc_backend_tables& tables) noexcept;

  std::span<const PrefixGroup> groups() const noexcept { return groups_; }
  int32_t row(int32_t index) const noexcept { return members_[static_cast<size_t>(index)].row; }

  // Returns entry `index` of a row's list.
  static int32_t page_of(const kvc_backend_tables& tables, int32_t row, int64_t index) noexcept {
    const int32_t* leaf = kvc_backend_leaf(tables.nodes, tables.roots[row], tables.levels[row], index);
    return leaf[index & (KVC_BACKEND_NODE_FANOUT - 1)];
  }
  // Returns the number of leading entries, at most `limit`, that are equal in the lists of two rows.
  static int64_t common_pages(const kvc_backend_tables& tables, int32_t row_a, int32_t row_b, int64_t limit) noexcept;

  static int64_t bytes_needed(int64_t max_rows) noexcept;

 private:
  struct Member {
    // Members with equal keys are in one group. At first, the key is the kind and the first page; later, it is the page
    // after the shared pages.
    int64_t key;
    int32_t row;
    int32_t pages;
  };
  struct Run {
    int32_t begin, end;
  };
  // Sorts members [begin, end) by key, and adds each run of two or more members with equal keys to runs_. Members with
  // negative keys are in no run.
  void push_runs(int32_t begin, int32_t end) noexcept;

  std::vector<Member> members_;
  std::vector<PrefixGroup> groups_;
  std::vector<Run> runs_;  // runs that find has not processed yet
};

}  // namespace kvc
