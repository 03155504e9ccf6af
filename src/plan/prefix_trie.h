// PrefixTrie: which rows of a batch begin with the same pages.
//
// It is found from the page lists alone, for rows in any order and at any depth. Lists are trees that share nodes, so
// equal node ids mean equal subtrees, and to compare two lists costs their height. For rows that share nothing, only
// the first page is read. The result is a trie: each group of rows shares its leading pages, and the groups within it
// share more.
//
// Pure. Thread safety: none. Allocates in the constructor only.
// Invariants: a group has two rows or more; groups come before the groups within them; two groups are disjoint or one
// holds the other, and then the inner one shares more pages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvcache_backend.h"

namespace kvc {

// rows()[begin, end) share their first `pages` pages, and no further page that all of them share.
struct PrefixGroup {
  int32_t begin, end;
  int32_t pages;
};

class PrefixTrie {
 public:
  // Throws std::bad_alloc.
  explicit PrefixTrie(int64_t max_rows);

  // Removes all rows. Then add each row once.
  void clear() noexcept;
  // pages: number of leading pages of the row that may be shared; none of them is a hole. kind: rows of unlike kinds
  // never share.
  void add(int32_t row, int32_t pages, int32_t kind) noexcept;
  void find(const kvc_backend_tables& tables) noexcept;

  std::span<const PrefixGroup> groups() const noexcept { return groups_; }
  int32_t row(int32_t index) const noexcept { return members_[static_cast<size_t>(index)].row; }

  // Leading entries in which the lists of two rows agree, at most `limit`.
  static int64_t common_pages(const kvc_backend_tables& tables, int32_t row_a, int32_t row_b, int64_t limit) noexcept;

  static int64_t bytes_needed(int64_t max_rows) noexcept;

 private:
  struct Member {
    int64_t key;  // members with equal keys are in one group. First the kind and first page, then the page at which the
                  // group divides
    int32_t row;
    int32_t pages;
  };
  struct Run {
    int32_t begin, end;
  };
  // Pushes the runs of two or more members with equal keys in [begin, end). Members with negative keys are in no run.
  void push_runs(int32_t begin, int32_t end) noexcept;

  std::vector<Member> members_;
  std::vector<PrefixGroup> groups_;
  std::vector<Run> runs_;  // to be looked at
};

}  // namespace kvc
