#include "plan/prefix_trie.h"

#include <algorithm>

namespace kvc {
namespace {

constexpr int32_t kFanout = KVC_BACKEND_NODE_FANOUT, kFanoutLog2 = KVC_BACKEND_NODE_FANOUT_LOG2;
// The largest number of comparisons of two lists, for each row of a batch. After these comparisons, the search ends,
// because a deeper trie would take more time than it saves.
constexpr int64_t kComparisonsPerRow = 64;

// Returns the number of entries under a node at `level`. At level 0, a node is a page.
constexpr int64_t span_of(int32_t level) noexcept { return int64_t{1} << (kFanoutLog2 * level); }

// Returns the number of leading entries, at most `limit`, that are equal in two subtrees.
int64_t agree(const int32_t* nodes, int32_t a, int32_t b, int32_t level, int64_t limit) noexcept {
  if (a == b) return std::min(limit, span_of(level));
  if (level == 0 || a < 0 || b < 0) return 0;
  const int32_t *children_a = nodes + int64_t{a} * kFanout, *children_b = nodes + int64_t{b} * kFanout;
  const int64_t span = span_of(level - 1);
  int64_t total = 0;
  for (int32_t i = 0; i < kFanout && total < limit; ++i) {
    const int64_t wanted = std::min(span, limit - total);
    const int64_t same = agree(nodes, children_a[i], children_b[i], level - 1, wanted);
    total += same;
    if (same < wanted) break;
  }
  return total;
}

}  // namespace

int64_t PrefixTrie::bytes_needed(int64_t max_rows) noexcept {
  return max_rows * static_cast<int64_t>(sizeof(Member) + sizeof(PrefixGroup) + sizeof(Run));
}

PrefixTrie::PrefixTrie(int64_t max_rows) {
  members_.reserve(static_cast<size_t>(max_rows));
  groups_.reserve(static_cast<size_t>(max_rows));
  runs_.reserve(static_cast<size_t>(max_rows));
}

void PrefixTrie::clear() noexcept {
  members_.clear();
  groups_.clear();
}

void PrefixTrie::add(int32_t row, int32_t pages, int32_t kind) noexcept {
  if (pages > 0) members_.push_back({int64_t{kind} << 32, row, pages});
}

int64_t PrefixTrie::common_pages(const kvc_backend_tables& tables, int32_t row_a, int32_t row_b,
                                 int64_t limit) noexcept {
  int32_t a = tables.roots[row_a], b = tables.roots[row_b];
  int32_t levels_a = tables.levels[row_a], levels_b = tables.levels[row_b];
  // In the tree with more levels, descends to the first node that has as many levels as the other tree.
  for (; levels_a > levels_b; --levels_a) a = tables.nodes[int64_t{a} * kFanout];
  for (; levels_b > levels_a; --levels_b) b = tables.nodes[int64_t{b} * kFanout];
  return agree(tables.nodes, a, b, levels_a, limit);
}

void PrefixTrie::push_runs(int32_t begin, int32_t end) noexcept {
  const auto first = members_.begin();
  std::sort(first + begin, first + end,
            [](const Member& a, const Member& b) { return a.key != b.key ? a.key < b.key : a.row < b.row; });
  for (int32_t i = begin; i < end;) {
    int32_t run_end = i + 1;
    const int64_t key = members_[static_cast<size_t>(i)].key;
    while (run_end < end && members_[static_cast<size_t>(run_end)].key == key) ++run_end;
    if (run_end - i > 1 && key >= 0) runs_.push_back({i, run_end});
    i = run_end;
  }
}

void PrefixTrie::find(const kvc_backend_tables& tables) noexcept {
  const auto count = static_cast<int32_t>(members_.size());
  for (Member& member : members_) member.key |= page_of(tables, member.row, 0);
  runs_.clear();
  push_runs(0, count);
  for (int64_t comparisons = kComparisonsPerRow * count; !runs_.empty() && comparisons > 0;) {
    const Run run = runs_.back();
    runs_.pop_back();
    const Member& first = members_[static_cast<size_t>(run.begin)];
    int64_t pages = first.pages;
    for (int32_t i = run.begin + 1; i < run.end; ++i) {
      const Member& member = members_[static_cast<size_t>(i)];
      pages = common_pages(tables, first.row, member.row, std::min<int64_t>(pages, member.pages));
    }
    comparisons -= run.end - run.begin;
    groups_.push_back({run.begin, run.end, static_cast<int32_t>(pages)});
    for (int32_t i = run.begin; i < run.end; ++i) {
      Member& member = members_[static_cast<size_t>(i)];
      member.key = member.pages > pages ? page_of(tables, member.row, pages) : -1;
    }
    push_runs(run.begin, run.end);
  }
}

}  // namespace kvc
