// Defines which keys the rows of a block table name. Such tables are for attention kernels of other projects. The host
// (src/tables) and the plan kernels of a device make the tables by these rules.
//
// A kernel of another project takes lengths and a causal flag, but no mask. So each query of a table row must see all
// keys of that row. In a causal call, each query must see all keys up to its own. visible.h says which keys a query
// sees.
//
// An entry is the place of a token in the page list of a row. Each function passes table rows to `rows`:
//   rows.add(index, queries, begin, end)
//       `queries` queries of row `index` of the step, over the entries [begin, end)
//   rows.add_window(index, queries, begin, end, position, sinks)
//       the same, but the queries also see the first `sinks` entries of the list, the sinks. The token of entry
//       `begin` is at position `position`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/visible.h"

// Functions with this mark are inlined into the loops that call them.
#if defined(__CUDACC__)
#define KVC_INLINE_HOST_DEVICE __host__ __device__ static inline
#else
#define KVC_INLINE_HOST_DEVICE [[maybe_unused, gnu::always_inline]] static inline
#endif

namespace kvc::kernels {

// The tokens of one row of a step. The entries [base, base + before) are the tokens that the row had before this step.
// The new tokens follow them.
struct StepTokens {
  int32_t before = 0;
  int32_t fresh = 0;   // new tokens, which are the queries
  int32_t base = 0;    // number of entries before the row's own, such as an encoder's tokens
  bool inert = false;  // a padding row: it has tokens, but its queries see nothing
};

constexpr int64_t kMaxRowTokens = int64_t{1} << 30;  // the tokens of an encoder included

// with_new: whether `length` counts the new tokens. If it does, a length of 0 marks an inert row.
KVC_INLINE_HOST_DEVICE StepTokens step_tokens(int32_t length, int32_t fresh, int32_t base, bool inert, bool with_new) {
  StepTokens step;
  step.inert = inert || (with_new && length == 0);
  step.before = step.inert ? 0 : length - (with_new ? fresh : 0);
  step.fresh = fresh;
  step.base = step.inert ? 0 : base;
  return step;
}
// LengthRange has the smallest and the largest value that `length` (see step_tokens) may have in a row that is not
// inert. If `length` counts the new tokens, it is at least their number. A row has at most kMaxRowTokens entries:
// `base` entries before its own, its earlier tokens, and its new tokens.
struct LengthRange {
  int64_t least, most;
};
KVC_INLINE_HOST_DEVICE LengthRange length_range(int64_t fresh, int64_t base, bool with_new) {
  const int64_t counted = with_new ? fresh : 0;
  return {counted, kMaxRowTokens - base - (fresh - counted)};
}

// Adds a table row of `queries` queries. The first query is at `position`. The table row names the positions below
// `end` that this query sees.
template <class Rows>
KVC_INLINE_HOST_DEVICE void add_visible(const StepTokens& step, int32_t index, const VisibleRule& rule,
                                        int32_t position, int32_t queries, int32_t end, Rows& rows) {
  if (step.inert) {
    rows.add(index, queries, 0, 0);
  } else if (hides_nothing(rule)) {
    rows.add(index, queries, step.base, step.base + end);
  } else {
    const int32_t first = visible_begin(rule, position), sinks = visible_sinks(rule, end);
    const int32_t begin = first < end ? first : end;
    rows.add_window(index, queries, step.base + begin, step.base + end, begin, sinks);
  }
}

// Adds a table row with all keys that the new tokens see, for a causal kernel. The table row begins at the first key
// that the first query sees. In a layer with chunks, each chunk gets a table row, because queries of different chunks
// see no common key.
template <class Rows>
KVC_INLINE_HOST_DEVICE void whole_row(const StepTokens& row, int32_t index, const VisibleRule& rule, Rows& rows) {
  const int32_t end = row.before + row.fresh;
  if (row.fresh == 0) {  // there is no query
    rows.add(index, 0, 0, 0);
  } else if (row.inert) {
    add_visible(row, index, rule, row.before, row.fresh, end, rows);
  } else {
    for (int32_t p = row.before; p < end;) {
      const int32_t edge = visible_end(rule, p, end);
      add_visible(row, index, rule, p, edge - p, edge, rows);
      p = edge;
    }
  }
}

// Adds the keys below `end`, which come before the row's tree, or before its new tokens. Query q is at position_of(q).
// If queries may see different keys, each query gets a table row. Otherwise all queries share one table row.
template <class PositionOf, class Rows>
KVC_INLINE_HOST_DEVICE void prefix_row(const StepTokens& row, int32_t index, const VisibleRule& rule, int32_t end,
                                       PositionOf position_of, Rows& rows) {
  if (row.inert || hides_nothing(rule)) {  // all queries see the same keys
    add_visible(row, index, rule, end, row.fresh, end, rows);
    return;
  }
  for (int32_t q = 0; q < row.fresh; ++q) add_visible(row, index, rule, position_of(q), 1, end, rows);
}

// VisiblePath says which nodes on the path from the root a node at `depth` sees: those at the depths [0, sinks) and
// [first, depth]. Each node of a path is one position after its parent.
struct VisiblePath {
  int32_t depth, sinks, first;
};
KVC_INLINE_HOST_DEVICE VisiblePath visible_path(const VisibleRule& rule, int32_t root_position, int32_t depth) {
  VisiblePath path = {depth, 0, 0};
  if (hides_nothing(rule)) return path;
  const int32_t position = root_position + depth, end = causal_end(position);
  const int32_t sinks = visible_sinks(rule, end) - root_position, first = visible_begin(rule, position) - root_position;
  path.sinks = sinks > 0 ? sinks : 0;
  path.first = first < path.sinks ? path.sinks : first < end - root_position ? first : end - root_position;
  return path;
}
KVC_HOST_DEVICE int32_t keys_of_path(const VisiblePath& path) {
  return path.sinks + causal_end(path.depth) - path.first;
}

// DraftShape is the shape of a draft, which has `num_steps` tokens in each of `top_k` branches. With one branch, the
// token of step s is entry base + before + s. With several branches, each branch has a region of whole pages, after the
// whole pages of the prefix. If the last page of the prefix is partial, each region begins with a copy of the tokens of
// that page. So the branches share only whole pages:
//   [ prefix, whole pages | branch 0: last tokens, drafts | branch 1: last tokens, drafts | ... ]
struct DraftShape {
  int32_t num_steps = 1;
  int32_t top_k = 1;
  int32_t page_size = 1;
};
// Returns the number of tokens of the prefix that are copied to the begin of each region.
KVC_INLINE_HOST_DEVICE int32_t draft_tail(const DraftShape& shape, int32_t before) {
  return shape.top_k > 1 ? before % shape.page_size : 0;
}
// Returns the number of entries in a branch's region.
KVC_INLINE_HOST_DEVICE int32_t draft_region(const DraftShape& shape, int32_t before) {
  const int32_t tokens = draft_tail(shape, before) + shape.num_steps;
  return (tokens + shape.page_size - 1) / shape.page_size * shape.page_size;
}
// Returns the first entry of a branch's region.
KVC_INLINE_HOST_DEVICE int32_t draft_branch_begin(const DraftShape& shape, const StepTokens& row, int32_t branch) {
  return row.base + row.before - draft_tail(shape, row.before) +
         branch * (shape.top_k > 1 ? draft_region(shape, row.before) : 0);
}
// Returns the entry of the token that step s adds to a branch.
KVC_INLINE_HOST_DEVICE int32_t draft_token(const DraftShape& shape, const StepTokens& row, int32_t branch, int32_t s) {
  if (shape.top_k == 1) return row.base + row.before + s;
  return draft_branch_begin(shape, row, branch) + draft_tail(shape, row.before) + s;
}

// Adds a table row with the keys that all branches see in step s. This function is only called if there are several
// branches. For a single branch, draft_branch_row adds all keys.
template <class Rows>
KVC_INLINE_HOST_DEVICE void draft_prefix_row(const StepTokens& row, int32_t index, const VisibleRule& rule,
                                             const DraftShape& shape, int32_t s, Rows& rows) {
  add_visible(row, index, rule, row.before + s, shape.top_k, row.before - draft_tail(shape, row.before), rows);
}

// Adds a table row for each branch of step s. The table row has the branch's own keys, or all keys if there is only one
// branch.
template <class Rows>
KVC_INLINE_HOST_DEVICE void draft_branch_row(const StepTokens& row, int32_t index, const VisibleRule& rule,
                                             const DraftShape& shape, int32_t s, Rows& rows) {
  const int32_t end = causal_end(row.before + s);
  if (shape.top_k == 1 || row.inert) {
    for (int32_t k = 0; k < shape.top_k; ++k) add_visible(row, index, rule, row.before + s, 1, end, rows);
    return;
  }
  const int32_t shared = row.before - draft_tail(shape, row.before);
  const int32_t visible = visible_begin(rule, row.before + s), first = visible > shared ? visible : shared;
  for (int32_t k = 0; k < shape.top_k; ++k) {
    const int32_t begin = draft_branch_begin(shape, row, k);
    rows.add_window(index, 1, begin + first - shared, begin + end - shared, first, 0);
  }
}

// Adds the keys of an encoder's sequence: the entries [0, length), which all queries see.
template <class Rows>
KVC_INLINE_HOST_DEVICE void encoder_row(const StepTokens& row, int32_t index, int32_t length, Rows& rows) {
  rows.add(index, row.fresh, 0, !row.inert && row.fresh > 0 ? length : 0);
}

// The pages [first, first + count) that hold the entries [begin, end). leftpad: the number of entries of the first page
// that come before `begin`. seqlen: the number of keys plus leftpad. divider: an object with three functions. size() is
// the number of entries of a page, page(entry) is the page that has an entry, and pages(n) is the number of pages that
// n entries need.
struct RowPages {
  int32_t first, count, leftpad, seqlen;
};
template <class Divider>
KVC_INLINE_HOST_DEVICE RowPages pages_of_keys(const Divider& divider, int32_t begin, int32_t end) {
  RowPages pages = {0, 0, 0, 0};
  if (end <= begin) return pages;
  pages.first = divider.page(begin);
  pages.count = divider.pages(end) - pages.first;
  pages.leftpad = begin - pages.first * divider.size();
  pages.seqlen = end - begin + pages.leftpad;
  return pages;
}

}  // namespace kvc::kernels
