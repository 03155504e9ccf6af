// Which keys the rows of a table name. Every kind of step (decode, extend, verify, drafts, windows, chunks, sinks,
// trees, encoders) is turned into such rows here, from lengths alone, and TableSet writes rows of any kind. From a
// definition to rows there is one idea: a kernel that knows lengths and causality, and no mask, may compute attention
// over a row if its queries see all of the row's keys (or, causal, all up to their own).
//
// Pure functions, which hand each row to `rows.add(TableRow)` as soon as they know it, and return `rows`: nothing is
// kept on the way, so a row costs one pass. Thread safety: none. Nothing is allocated after the first step of a size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcache_backend.h"
#include "sequence/group_rules.h"
#include "sequence/token_tree.h"

namespace kvc {

// A row of a step. Its tokens before this step are entries [base, base + before) of its source row, the new ones come
// behind them.
struct StepRow {
  int32_t before = 0;
  int32_t fresh = 0;         // new tokens: queries
  int32_t base = 0;          // entries of something else (an encoder's tokens) before the row's own
  bool inert = false;        // padding: has tokens, sees nothing
  StreamWindow stream = {};  // a streaming window, in groups that go by it
};

// Keys of rows that name them one by one: row after row, each as its distance from the first entry of its range.
struct KeyLists {
  struct Range {
    int32_t row;                     // the step's
    int32_t begin, end;              // of keys
    int32_t entry_begin, entry_end;  // of what they name
  };
  std::vector<int32_t> keys;
  std::vector<Range> ranges;

  void clear() noexcept {
    keys.clear();
    ranges.clear();
  }
};

// The most rows that whole_rows makes of a step. A row of q queries touches at most q chunks, and at most q / c + 2;
// without any it is a row too.
inline int64_t most_whole_rows(const GroupRules& rules, int64_t rows, int64_t tokens) noexcept {
  return rules.chunk_tokens > 0 ? std::min(tokens / rules.chunk_tokens + 2 * rows, tokens + rows) : rows;
}

// Trees. Node i of a row sees what is before the tree, its ancestors and itself. Two tables name that without a mask:
// the keys before (of all queries of a row alike), and for each query a list of its ancestors.
struct StepTree {
  std::span<const kvc_backend_tree_node> nodes;  // of earlier rounds too: the row's new tokens are the last
  int32_t begin = 0;                             // tokens before the tree; node i is entry base + begin + i
};

// Step s of a draft of `num_steps` tokens in each of `top_k` branches. One branch: token s goes to entry before + s.
// More: the branches have regions of whole pages behind the whole pages of the prefix, each with the tokens of the
// partial last page first, so that the prefix is whole pages alone:
//   [ prefix, whole pages | branch 0: last tokens, drafts | branch 1: last tokens, drafts | ... ]
struct DraftShape {
  int32_t num_steps = 1;
  int32_t top_k = 1;
  int32_t page_size = 1;

  int32_t tail(int32_t before) const noexcept { return top_k > 1 ? before % page_size : 0; }
  // Entries of a branch's region.
  int32_t region(int32_t before) const noexcept {
    const int32_t tokens = tail(before) + num_steps;
    return (tokens + page_size - 1) / page_size * page_size;
  }
  // Entry of a branch's first token of the tail.
  int32_t branch_begin(const StepRow& row, int32_t branch) const noexcept {
    return row.base + row.before - tail(row.before) + branch * (top_k > 1 ? region(row.before) : 0);
  }
};

// Adds a row of `queries` queries from position `position` on, over the positions [first visible, end).
template <class Rows>
[[gnu::always_inline]] inline void add_visible(const StepRow& step, int32_t index, const GroupRules& rules,
                                               int32_t position, int32_t queries, int32_t end, Rows& rows) {
  if (step.inert) {
    rows.add(index, queries, 0, 0);
  } else if (!rules.windowed() && !step.stream.on()) {
    rows.add(index, queries, step.base, step.base + end);
  } else {
    const GroupRules own = rules.with(step.stream);
    const auto first = static_cast<int32_t>(own.first_visible(position));
    const auto sinks = static_cast<int32_t>(std::min<int64_t>(own.sink_tokens, end));
    const int32_t begin = std::max(std::min(first, end), sinks);
    rows.add_window(index, queries, step.base + begin, step.base + end, begin, sinks);
  }
}

// All that the new tokens of each row see, causal: from the first key of the first query on. Rows of a chunked group
// are cut at the edges of chunks: a query's row is its chunk up to itself.
template <class Rows>
Rows whole_rows(std::span<const StepRow> step, const GroupRules& rules, Rows rows) {
  const auto chunk = static_cast<int32_t>(rules.chunk_tokens);
  for (size_t i = 0; i < step.size(); ++i) {
    const StepRow& row = step[i];
    const auto index = static_cast<int32_t>(i);
    const int32_t end = row.before + row.fresh;
    if (row.fresh == 0) {  // sees nothing
      rows.add(index, 0, 0, 0);
    } else if (chunk == 0 || row.inert) {
      add_visible(row, index, rules, row.before, row.fresh, end, rows);
    } else {
      for (int32_t p = row.before; p < end;) {
        const auto edge = static_cast<int32_t>(std::min<int64_t>(end, (int64_t{p} / chunk + 1) * chunk));
        add_visible(row, index, rules, p, edge - p, edge, rows);
        p = edge;
      }
    }
  }
  return rows;
}

// The keys before the tree; tree_of(row) is the StepTree of a step's row, which has no nodes if it has no tree.
template <class TreeOf, class Rows>
Rows prefix_rows(std::span<const StepRow> step, const GroupRules& rules, TreeOf tree_of, Rows rows) {
  for (size_t i = 0; i < step.size(); ++i) {
    const StepRow& row = step[i];
    const auto index = static_cast<int32_t>(i);
    const StepTree tree = tree_of(index);
    const int32_t end = tree.nodes.empty() ? row.before : tree.begin;
    if (row.inert || !rules.with(row.stream).windowed()) {  // all queries see the same
      add_visible(row, index, rules, end, row.fresh, end, rows);
      continue;
    }
    for (int32_t q = 0; q < row.fresh; ++q) {
      const int32_t position =
          tree.nodes.empty() ? row.before + q : tree.nodes[tree.nodes.size() - row.fresh + q].position;
      add_visible(row, index, rules, position, 1, end, rows);
    }
  }
  return rows;
}

// Of its path a node at `depth` sees depths [0, sinks) and [first, depth]: positions grow by one from node to node.
struct VisiblePath {
  int32_t depth, sinks = 0, first = 0;

  VisiblePath(const GroupRules& rules, int32_t root_position, int32_t node_depth) noexcept : depth(node_depth) {
    if (!rules.windowed()) return;
    const int64_t visible = rules.first_visible(int64_t{root_position} + depth) - root_position;
    sinks = static_cast<int32_t>(std::clamp<int64_t>(rules.sink_tokens - root_position, 0, depth + 1));
    first = static_cast<int32_t>(std::clamp<int64_t>(visible, sinks, depth + 1));
  }
  int32_t size() const noexcept { return sinks + depth + 1 - first; }
};

// What each new token of a row sees of the chain that they are.
template <class Rows>
void list_chain(const StepRow& row, int32_t index, const GroupRules& rules, KeyLists* lists, Rows& rows) {
  const auto first_key = static_cast<int32_t>(lists->keys.size());
  int32_t end = first_key;
  for (int32_t depth = 0; depth < row.fresh; ++depth) {
    const VisiblePath seen(rules, row.before, depth);
    for (int32_t d = 0; d < seen.sinks; ++d) lists->keys.push_back(d);
    for (int32_t d = seen.first; d <= depth; ++d) lists->keys.push_back(d);
    rows.add_list(index, end, end + seen.size());
    end += seen.size();
  }
  const int32_t entry = row.base + row.before;
  lists->ranges.push_back({index, first_key, end, entry, entry + row.fresh});
}

// What each new token of a row sees of the row's tree: from itself up the path to its root, written from the end.
template <class Rows>
void list_tree(const StepRow& row, int32_t index, const GroupRules& rules, const StepTree& tree, KeyLists* lists,
               Rows& rows) {
  const auto first_key = static_cast<int32_t>(lists->keys.size()), count = static_cast<int32_t>(tree.nodes.size());
  const kvc_backend_tree_node* nodes = tree.nodes.data();
  const int32_t root = tree.begin, begin = count - row.fresh;
  const bool all = !rules.windowed();
  int32_t end = first_key;
  for (int32_t node = begin; node < count; ++node) {
    const int32_t depth = nodes[node].position - root;
    end += all ? depth + 1 : VisiblePath(rules, root, depth).size();
  }
  lists->keys.resize(static_cast<size_t>(end));
  int32_t* keys = lists->keys.data();
  int32_t list = first_key;
  for (int32_t node = begin; node < count; ++node) {
    int32_t at = node, d = nodes[node].position - root, size = d + 1;
    if (all) {
      for (int32_t* out = keys + list; d >= 0; --d, at = nodes[at].parent) out[d] = at;
    } else {
      const VisiblePath seen(rules, root, d);
      int32_t* window = keys + list - (seen.first - seen.sinks);
      size = seen.size();
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

// A row for each new token: rows.add_list(index, begin, end), of keys that are appended to `lists`. They are the
// token's ancestors and itself, in order; of a row without a tree the new tokens before it.
template <class TreeOf, class Rows>
Rows branch_rows(std::span<const StepRow> step, const GroupRules& rules, TreeOf tree_of, KeyLists* lists, Rows rows) {
  for (size_t i = 0; i < step.size(); ++i) {
    const StepRow& row = step[i];
    const auto index = static_cast<int32_t>(i), here = static_cast<int32_t>(lists->keys.size());
    const StepTree tree = tree_of(index);
    if (row.inert) {
      for (int32_t q = 0; q < row.fresh; ++q) rows.add_list(index, here, here);
    } else if (tree.nodes.empty()) {
      list_chain(row, index, rules.with(row.stream), lists, rows);
    } else {
      list_tree(row, index, rules.with(row.stream), tree, lists, rows);
    }
  }
  return rows;
}

// Of step s, what all branches share. With one branch all is in draft_branch_rows; this is empty.
template <class Rows>
Rows draft_prefix_rows(std::span<const StepRow> step, const GroupRules& rules, const DraftShape& shape, int32_t s,
                       Rows rows) {
  for (size_t i = 0; i < step.size(); ++i) {
    const int32_t end = step[i].before - shape.tail(step[i].before);
    add_visible(step[i], static_cast<int32_t>(i), rules, step[i].before + s, shape.top_k, end, rows);
  }
  return rows;
}

template <class Rows>
Rows draft_branch_rows(std::span<const StepRow> step, const GroupRules& rules, const DraftShape& shape, int32_t s,
                       Rows rows) {
  for (size_t i = 0; i < step.size(); ++i) {
    const StepRow& row = step[i];
    const auto index = static_cast<int32_t>(i);
    const int32_t end = row.before + s + 1;
    if (shape.top_k == 1 || row.inert) {
      for (int32_t k = 0; k < shape.top_k; ++k) add_visible(row, index, rules, row.before + s, 1, end, rows);
      continue;
    }
    const int32_t shared = row.before - shape.tail(row.before);
    const auto first = static_cast<int32_t>(std::max<int64_t>(shared, rules.first_visible(row.before + s)));
    for (int32_t k = 0; k < shape.top_k; ++k) {
      const int32_t begin = shape.branch_begin(row, k);
      rows.add_window(index, 1, begin + first - shared, begin + end - shared, first, 0);
    }
  }
  return rows;
}

// The keys of encoder sequences: entries [0, lengths[row]), seen by all queries.
template <class Rows>
Rows encoder_rows(std::span<const StepRow> step, std::span<const int32_t> lengths, Rows rows) {
  for (size_t i = 0; i < step.size(); ++i) {
    const bool sees = !step[i].inert && step[i].fresh > 0;
    rows.add(static_cast<int32_t>(i), step[i].fresh, 0, sees ? lengths[i] : 0);
  }
  return rows;
}

}  // namespace kvc
