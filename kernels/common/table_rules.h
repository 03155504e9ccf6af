// Which keys the rows of a table name, of one row of a step: the rules by which block tables for other kernels are
// made, on the host (src/tables) and by the plan kernels of a device. A kernel that knows lengths and causality, and no
// mask, may compute attention over a row if its queries see all of the row's keys (or, causal, all up to their own).
//
// Each function hands rows to `rows`:
//   rows.add(index, queries, begin, end)                            queries over the entries [begin, end)
//   rows.add_window(index, queries, begin, end, position, sinks)    the same behind `sinks` entries; begin is
//   `position`
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"

// Into the loops that call them.
#if defined(__CUDACC__)
#define KVC_INLINE_HOST_DEVICE __host__ __device__ static inline
#else
#define KVC_INLINE_HOST_DEVICE [[maybe_unused, gnu::always_inline]] static inline
#endif

namespace kvc::kernels {

// Which keys a query at p sees up to itself: all; a window's, p - w + 1 and on, and those below the sinks; or those of
// its chunk.
struct KeyRules {
  int64_t window_tokens;
  int64_t chunk_tokens;  // in place of a window
  int64_t sink_tokens;   // beside a window
};

KVC_HOST_DEVICE bool is_windowed(const KeyRules& rules) { return rules.window_tokens > 0 || rules.chunk_tokens > 0; }

// First position, sinks aside, that a query at `position` sees.
KVC_INLINE_HOST_DEVICE int64_t first_visible(const KeyRules& rules, int64_t position) {
  if (rules.chunk_tokens > 0) return position - position % rules.chunk_tokens;
  if (rules.window_tokens <= 0) return 0;
  const int64_t first = position - rules.window_tokens + 1;
  return first > rules.sink_tokens ? first : rules.sink_tokens;
}

// A row of a step. Its tokens before this step are entries [base, base + before) of its source row, the new ones come
// behind them.
struct StepTokens {
  int32_t before = 0;
  int32_t fresh = 0;   // new tokens: queries
  int32_t base = 0;    // entries of something else (an encoder's tokens) before the row's own
  bool inert = false;  // padding: has tokens, sees nothing
};

constexpr int64_t kMaxRowTokens = int64_t{1} << 30;  // its encoder's included

// with_new: `length` counts the new tokens, and 0 is an inert row's.
KVC_INLINE_HOST_DEVICE StepTokens step_tokens(int32_t length, int32_t fresh, int32_t base, bool inert, bool with_new) {
  StepTokens step;
  step.inert = inert || (with_new && length == 0);
  step.before = step.inert ? 0 : length - (with_new ? fresh : 0);
  step.fresh = fresh;
  step.base = step.inert ? 0 : base;
  return step;
}
// What `length` may be for a row that is not inert: its new tokens at least, if it counts them, and at most what a row
// has, with the new tokens and what is before it.
struct LengthRange {
  int64_t least, most;
};
KVC_INLINE_HOST_DEVICE LengthRange length_range(int64_t fresh, int64_t base, bool with_new) {
  const int64_t counted = with_new ? fresh : 0;
  return {counted, kMaxRowTokens - base - (fresh - counted)};
}

// `queries` queries from `position` on, over the positions [first visible, end).
template <class Rows>
KVC_INLINE_HOST_DEVICE void add_visible(const StepTokens& step, int32_t index, const KeyRules& rules, int32_t position,
                                        int32_t queries, int32_t end, Rows& rows) {
  if (step.inert) {
    rows.add(index, queries, 0, 0);
  } else if (!is_windowed(rules)) {
    rows.add(index, queries, step.base, step.base + end);
  } else {
    const int32_t first = static_cast<int32_t>(first_visible(rules, position));
    const int32_t sinks = static_cast<int32_t>(rules.sink_tokens < end ? rules.sink_tokens : end);
    const int32_t seen = first < end ? first : end, begin = seen > sinks ? seen : sinks;
    rows.add_window(index, queries, step.base + begin, step.base + end, begin, sinks);
  }
}

// All that the new tokens see, causal: from the first key of the first query on. In a chunked group the row is cut at
// the edges of chunks: a query's row is its chunk up to itself.
template <class Rows>
KVC_INLINE_HOST_DEVICE void whole_row(const StepTokens& row, int32_t index, const KeyRules& rules, Rows& rows) {
  const int32_t chunk = static_cast<int32_t>(rules.chunk_tokens), end = row.before + row.fresh;
  if (row.fresh == 0) {  // sees nothing
    rows.add(index, 0, 0, 0);
  } else if (chunk == 0 || row.inert) {
    add_visible(row, index, rules, row.before, row.fresh, end, rows);
  } else {
    for (int32_t p = row.before; p < end;) {
      const int64_t next = (int64_t{p} / chunk + 1) * chunk;
      const int32_t edge = next < end ? static_cast<int32_t>(next) : end;
      add_visible(row, index, rules, p, edge - p, edge, rows);
      p = edge;
    }
  }
}

// The keys below `end`, before the row's tree (or its new tokens); query q stands at position_of(q).
template <class PositionOf, class Rows>
KVC_INLINE_HOST_DEVICE void prefix_row(const StepTokens& row, int32_t index, const KeyRules& rules, int32_t end,
                                       PositionOf position_of, Rows& rows) {
  if (row.inert || !is_windowed(rules)) {  // all queries see the same
    add_visible(row, index, rules, end, row.fresh, end, rows);
    return;
  }
  for (int32_t q = 0; q < row.fresh; ++q) add_visible(row, index, rules, position_of(q), 1, end, rows);
}

// Of its path a node at `depth` sees depths [0, sinks) and [first, depth]: positions grow by one from node to node.
struct VisiblePath {
  int32_t depth, sinks, first;
};
KVC_INLINE_HOST_DEVICE VisiblePath visible_path(const KeyRules& rules, int32_t root_position, int32_t depth) {
  VisiblePath path = {depth, 0, 0};
  if (!is_windowed(rules)) return path;
  const int64_t visible = first_visible(rules, int64_t{root_position} + depth) - root_position, most = depth + 1;
  const int64_t sinks = rules.sink_tokens - root_position;
  path.sinks = static_cast<int32_t>(sinks < 0 ? 0 : sinks > most ? most : sinks);
  path.first = static_cast<int32_t>(visible < path.sinks ? path.sinks : visible > most ? most : visible);
  return path;
}
KVC_HOST_DEVICE int32_t keys_of_path(const VisiblePath& path) { return path.sinks + path.depth + 1 - path.first; }

// Step s of a draft of `num_steps` tokens in each of `top_k` branches. One branch: token s goes to entry before + s.
// More: the branches have regions of whole pages behind the whole pages of the prefix, each with the tokens of the
// partial last page first, so that the prefix is whole pages alone:
//   [ prefix, whole pages | branch 0: last tokens, drafts | branch 1: last tokens, drafts | ... ]
struct DraftShape {
  int32_t num_steps = 1;
  int32_t top_k = 1;
  int32_t page_size = 1;
};
KVC_INLINE_HOST_DEVICE int32_t draft_tail(const DraftShape& shape, int32_t before) {
  return shape.top_k > 1 ? before % shape.page_size : 0;
}
// Entries of a branch's region.
KVC_INLINE_HOST_DEVICE int32_t draft_region(const DraftShape& shape, int32_t before) {
  const int32_t tokens = draft_tail(shape, before) + shape.num_steps;
  return (tokens + shape.page_size - 1) / shape.page_size * shape.page_size;
}
// Entry of a branch's first token of the tail.
KVC_INLINE_HOST_DEVICE int32_t draft_branch_begin(const DraftShape& shape, const StepTokens& row, int32_t branch) {
  return row.base + row.before - draft_tail(shape, row.before) +
         branch * (shape.top_k > 1 ? draft_region(shape, row.before) : 0);
}
// Entry of the token that step s adds to a branch.
KVC_INLINE_HOST_DEVICE int32_t draft_token(const DraftShape& shape, const StepTokens& row, int32_t branch, int32_t s) {
  if (shape.top_k == 1) return row.base + row.before + s;
  return draft_branch_begin(shape, row, branch) + draft_tail(shape, row.before) + s;
}

// Of step s, what all branches share. With one branch all is in draft_branch_row; this is empty.
template <class Rows>
KVC_INLINE_HOST_DEVICE void draft_prefix_row(const StepTokens& row, int32_t index, const KeyRules& rules,
                                             const DraftShape& shape, int32_t s, Rows& rows) {
  add_visible(row, index, rules, row.before + s, shape.top_k, row.before - draft_tail(shape, row.before), rows);
}

// A row for each branch of step s.
template <class Rows>
KVC_INLINE_HOST_DEVICE void draft_branch_row(const StepTokens& row, int32_t index, const KeyRules& rules,
                                             const DraftShape& shape, int32_t s, Rows& rows) {
  const int32_t end = row.before + s + 1;
  if (shape.top_k == 1 || row.inert) {
    for (int32_t k = 0; k < shape.top_k; ++k) add_visible(row, index, rules, row.before + s, 1, end, rows);
    return;
  }
  const int32_t shared = row.before - draft_tail(shape, row.before);
  const int64_t visible = first_visible(rules, row.before + s);
  const int32_t first = visible > shared ? static_cast<int32_t>(visible) : shared;
  for (int32_t k = 0; k < shape.top_k; ++k) {
    const int32_t begin = draft_branch_begin(shape, row, k);
    rows.add_window(index, 1, begin + first - shared, begin + end - shared, first, 0);
  }
}

// The keys of an encoder's sequence: entries [0, length), seen by all queries.
template <class Rows>
KVC_INLINE_HOST_DEVICE void encoder_row(const StepTokens& row, int32_t index, int32_t length, Rows& rows) {
  rows.add(index, row.fresh, 0, !row.inert && row.fresh > 0 ? length : 0);
}

// The pages that a row of entries [begin, end) names: [first, first + count), its length in them, and the entries of
// the first one that are not the row's. divider: page(entry), pages(entries), size().
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
