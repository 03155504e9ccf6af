// Determines which keys the rows of a table name. For every kind of step (decode, extend, verify, drafts, windows,
// chunks, sinks, trees, encoders), the rows are computed from lengths and from parents of nodes. TableSet writes these
// rows. A kernel of another project takes lengths and a causal flag, but no mask. So the queries of a table row must
// see all keys of that row. In a causal table row, a query must see all keys up to its own.
//
// The functions are pure. Each function makes one pass, gives every row to `rows` (rows.add, add_window or add_list) as
// soon as the row is made, and returns `rows`. Thread safety: none. Only a step that is larger than all earlier steps
// allocates.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/common/table_rules.h"
#include "kvcache_backend.h"
#include "sequence/group_rules.h"
#include "sequence/token_tree.h"

namespace kvc {

using kernels::DraftShape;
using kernels::VisibleRule;

// A row of a step. `stream` is the streaming window of the row's sequence, if the group applies streaming windows.
struct StepRow : kernels::StepTokens {
  StreamWindow stream = {};
};

// Returns the rule by which the queries of a row of the group see keys.
inline VisibleRule rule_of(const GroupRules& rules, const StepRow& row) noexcept {
  return row.stream.on() ? rules.with(row.stream).visible : rules.visible;
}

// The keys of table rows that list their keys one by one. The keys are divided into ranges. A range has the keys of one
// row of the step, and each key is stored as its distance from entry_begin of the range.
struct KeyLists {
  struct Range {
    int32_t row;                     // row of the step
    int32_t begin, end;              // indices in `keys`
    int32_t entry_begin, entry_end;  // the entries that these keys may name
  };
  std::vector<int32_t> keys;
  std::vector<Range> ranges;

  void clear() noexcept {
    keys.clear();
    ranges.clear();
  }
};

// Checks that the number of keys of all rows fits in cu_seqlens_k, which is int32.
inline Status check_key_sum(int64_t keys) {
  if (keys <= INT32_MAX) return Status();
  return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "%" PRId64 " keys of all rows do not fit cu_seqlens_k, an int32",
                       keys)
      .missing(keys, INT32_MAX);
}

// Returns an upper bound of the number of rows that whole_rows makes for a step. The queries of a row with q queries
// are in at most q chunks, and in at most q / c + 2 chunks of c tokens. A row without queries gets one table row.
inline int64_t most_whole_rows(const GroupRules& rules, int64_t rows, int64_t tokens) noexcept {
  const int32_t chunk = rules.visible.chunk;
  return chunk > 0 ? std::min(tokens / chunk + 2 * rows, tokens + rows) : rows;
}

// The token tree of a row. A node sees the keys before the tree, its ancestors and itself. Two tables name these keys
// without a mask. The first table has the keys before the tree. The second table has, for each query, a list of the
// query's ancestors and the query itself.
struct StepTree {
  std::span<const kvc_backend_tree_node> nodes;  // with nodes of earlier steps; the row's new tokens come last
  int32_t begin = 0;                             // tokens before the tree; node i is entry base + begin + i
};

// Makes causal rows of all keys that the new tokens of each row see (kernels::whole_row).
template <class Rows>
Rows whole_rows(std::span<const StepRow> step, const GroupRules& rules, Rows rows) {
  for (size_t i = 0; i < step.size(); ++i) {
    kernels::whole_row(step[i], static_cast<int32_t>(i), rule_of(rules, step[i]), rows);
  }
  return rows;
}

// Makes rows of the keys before each tree, or before the new tokens of a row without a tree. tree_of(row) returns the
// StepTree of a row. A row without a tree has a StepTree without nodes.
template <class TreeOf, class Rows>
Rows prefix_rows(std::span<const StepRow> step, const GroupRules& rules, TreeOf tree_of, Rows rows) {
  for (size_t i = 0; i < step.size(); ++i) {
    const StepRow& row = step[i];
    const StepTree tree = tree_of(static_cast<int32_t>(i));
    const size_t first = tree.nodes.empty() ? 0 : tree.nodes.size() - static_cast<size_t>(row.fresh);
    const auto position_of = [&](int32_t q) {
      return tree.nodes.empty() ? row.before + q : tree.nodes[first + static_cast<size_t>(q)].position;
    };
    kernels::prefix_row(row, static_cast<int32_t>(i), rule_of(rules, row), tree.nodes.empty() ? row.before : tree.begin,
                        position_of, rows);
  }
  return rows;
}

// For a row whose new tokens form a chain, lists the keys of the chain that each new token sees.
template <class Rows>
void list_chain(const StepRow& row, int32_t index, const VisibleRule& rule, KeyLists* lists, Rows& rows) {
  const auto first_key = static_cast<int32_t>(lists->keys.size());
  int32_t end = first_key;
  for (int32_t depth = 0; depth < row.fresh; ++depth) {
    const kernels::VisiblePath seen = kernels::visible_path(rule, row.before, depth);
    for (int32_t d = 0; d < seen.sinks; ++d) lists->keys.push_back(d);
    for (int32_t d = seen.first; d <= depth; ++d) lists->keys.push_back(d);
    rows.add_list(index, end, end + keys_of_path(seen));
    end += keys_of_path(seen);
  }
  const int32_t entry = row.base + row.before;
  lists->ranges.push_back({index, first_key, end, entry, entry + row.fresh});
}

// Lists the nodes of the row's tree that each new token sees. These nodes are on the path from the root to the token. A
// list is written from the token to the root.
template <class Rows>
void list_tree(const StepRow& row, int32_t index, const VisibleRule& rule, const StepTree& tree, KeyLists* lists,
               Rows& rows) {
  const auto first_key = static_cast<int32_t>(lists->keys.size()), count = static_cast<int32_t>(tree.nodes.size());
  const kvc_backend_tree_node* nodes = tree.nodes.data();
  const int32_t root = tree.begin, begin = count - row.fresh;
  const bool all = kernels::hides_nothing(rule);
  int32_t end = first_key;
  for (int32_t node = begin; node < count; ++node) {
    const int32_t depth = nodes[node].position - root;
    end += all ? depth + 1 : keys_of_path(kernels::visible_path(rule, root, depth));
  }
  lists->keys.resize(static_cast<size_t>(end));
  int32_t* keys = lists->keys.data();
  int32_t list = first_key;
  for (int32_t node = begin; node < count; ++node) {
    int32_t at = node, d = nodes[node].position - root, size = d + 1;
    if (all) {
      for (int32_t* out = keys + list; d >= 0; --d, at = nodes[at].parent) out[d] = at;
    } else {
      const kernels::VisiblePath seen = kernels::visible_path(rule, root, d);
      int32_t* window = keys + list - (seen.first - seen.sinks);
      size = keys_of_path(seen);
      for (; d >= seen.first; --d, at = nodes[at].parent) window[d] = at;
      for (; d >= seen.sinks; --d) at = nodes[at].parent;
      for (; d >= 0; --d, at = nodes[at].parent) keys[list + d] = at;
    }
    rows.add_list(index, list, list + size);
    list += size;
  }
  const int32_t entry = row.base + root;
  lists->ranges.push_back({index, first_key, end, entry, row.base + row.before + row.fresh});
}

// most_branch_keys returns, in O(1), an upper bound of the number of keys that branch_rows lists for a row.
// count_branch_keys returns the exact number.
inline int64_t most_branch_keys(const StepRow& row, const StepTree& tree) noexcept {
  return int64_t{row.fresh} * (tree.nodes.empty() ? row.fresh : static_cast<int64_t>(tree.nodes.size()));
}
inline int64_t count_branch_keys(const StepRow& row, const VisibleRule& rule, const StepTree& tree) noexcept {
  const int64_t first = static_cast<int64_t>(tree.nodes.size()) - row.fresh;
  const int32_t root = tree.nodes.empty() ? row.before : tree.begin;
  int64_t keys = 0;
  for (int32_t q = 0; q < row.fresh && !row.inert; ++q) {
    const size_t node = static_cast<size_t>(first) + static_cast<size_t>(q);
    const int32_t depth = tree.nodes.empty() ? q : tree.nodes[node].position - root;
    keys += keys_of_path(kernels::visible_path(rule, root, depth));
  }
  return keys;
}
// Checks that all lists together have at most INT32_MAX keys, so that an int32 can count them. Must be called before
// branch_rows makes the lists.
template <class TreeOf>
Status check_branch_keys(std::span<const StepRow> step, const GroupRules& rules, TreeOf tree_of) {
  int64_t most = 0, keys = 0;
  for (size_t i = 0; i < step.size(); ++i) most += most_branch_keys(step[i], tree_of(static_cast<int32_t>(i)));
  if (most <= INT32_MAX) return Status();
  for (size_t i = 0; i < step.size(); ++i) {
    keys += count_branch_keys(step[i], rule_of(rules, step[i]), tree_of(static_cast<int32_t>(i)));
  }
  return check_key_sum(keys);
}

// Makes a row for each new token with rows.add_list(index, begin, end), and appends its keys to `lists`. The keys are
// the token's ancestors and the token itself, in order. In a row without a tree, the ancestors of a token are the new
// tokens before it.
template <class TreeOf, class Rows>
Rows branch_rows(std::span<const StepRow> step, const GroupRules& rules, TreeOf tree_of, KeyLists* lists, Rows rows) {
  for (size_t i = 0; i < step.size(); ++i) {
    const StepRow& row = step[i];
    const auto index = static_cast<int32_t>(i), here = static_cast<int32_t>(lists->keys.size());
    const StepTree tree = tree_of(index);
    if (row.inert) {
      for (int32_t q = 0; q < row.fresh; ++q) rows.add_list(index, here, here);
    } else if (tree.nodes.empty()) {
      list_chain(row, index, rule_of(rules, row), lists, rows);
    } else {
      list_tree(row, index, rule_of(rules, row), tree, lists, rows);
    }
  }
  return rows;
}

// These two functions make the rows of step s of a draft. draft_prefix_rows makes rows with the keys that all branches
// share, and draft_branch_rows makes rows with the keys of each branch.
template <class Rows>
Rows draft_prefix_rows(std::span<const StepRow> step, const GroupRules& rules, const DraftShape& shape, int32_t s,
                       Rows rows) {
  for (size_t i = 0; i < step.size(); ++i) {
    kernels::draft_prefix_row(step[i], static_cast<int32_t>(i), rules.visible, shape, s, rows);
  }
  return rows;
}

template <class Rows>
Rows draft_branch_rows(std::span<const StepRow> step, const GroupRules& rules, const DraftShape& shape, int32_t s,
                       Rows rows) {
  for (size_t i = 0; i < step.size(); ++i) {
    kernels::draft_branch_row(step[i], static_cast<int32_t>(i), rules.visible, shape, s, rows);
  }
  return rows;
}

// Makes rows of the keys of encoder sequences.
template <class Rows>
Rows encoder_rows(std::span<const StepRow> step, std::span<const int32_t> lengths, Rows rows) {
  for (size_t i = 0; i < step.size(); ++i) {
    kernels::encoder_row(step[i], static_cast<int32_t>(i), lengths[i], rows);
  }
  return rows;
}

}  // namespace kvc
