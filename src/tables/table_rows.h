// TableRows: which keys the rows of a table name. Every kind of step (decode, extend, verify, drafts, windows, chunks,
// sinks, trees, encoders) is turned into such rows here, from lengths alone, and TableSet writes rows of any kind.
// From a definition to rows there is one idea: a kernel that knows lengths and causality, and no mask, may compute
// attention over a row if its queries see all of the row's keys (or, causal, all up to their own).
//
// Pure functions. Thread safety: none. Vectors keep their capacity: nothing is allocated after the first step of a
// size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcache_backend.h"
#include "sequence/group_rules.h"

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

// A row of a table: `queries` queries of a step's row, and their keys. Those are entries [begin, end) of the source
// row, of which the first has position `position`; and before them entries [0, sinks). In a list of keys, [begin, end)
// are places in it.
struct TableRow {
  int32_t row = 0;  // the step's
  int32_t queries = 0;
  int32_t begin = 0, end = 0;
  int32_t position = 0;
  int32_t sinks = 0;
};

struct TableRows {
  std::vector<TableRow> rows;
  // Rows that name keys one by one: entries, and for each row of the step where its keys are, and in which range.
  std::vector<int32_t> keys;
  struct Range {
    int32_t row;
    int32_t begin, end;              // of keys
    int32_t entry_begin, entry_end;  // of what they name
  };
  std::vector<Range> ranges;
  bool listed = false;  // they do
  bool causal = false;  // the queries of a row are the last of its keys, and each sees those up to itself

  void clear(bool is_causal, bool is_listed = false) noexcept {
    rows.clear();
    keys.clear();
    ranges.clear();
    causal = is_causal;
    listed = is_listed;
  }
};

// All that the new tokens of each row see, causal: from the first key of the first query on. Rows of a chunked group
// are cut at the edges of chunks: a query's row is its chunk up to itself.
void whole_rows(std::span<const StepRow> step, const GroupRules& rules, TableRows* out);

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
// tree_of(row) is the StepTree of a step's row; a row that has none (no nodes) is a chain of its new tokens.
template <class TreeOf>
void prefix_rows(std::span<const StepRow> step, const GroupRules& rules, TreeOf tree_of, TableRows* out);
template <class TreeOf>
void branch_rows(std::span<const StepRow> step, const GroupRules& rules, TreeOf tree_of, TableRows* out);

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
// With one branch all is in the second; the first is empty.
void draft_prefix_rows(std::span<const StepRow> step, const GroupRules& rules, const DraftShape& shape, int32_t s,
                       TableRows* out);
void draft_branch_rows(std::span<const StepRow> step, const GroupRules& rules, const DraftShape& shape, int32_t s,
                       TableRows* out);

// The keys of encoder sequences: entries [0, lengths[row]), seen by all queries.
void encoder_rows(std::span<const StepRow> step, std::span<const int32_t> lengths, TableRows* out);

// Fills keys with those that query q of the row's new tokens sees of the row's tree, or chain; returns how many.
int32_t list_keys(const StepRow& row, const GroupRules& rules, const StepTree& tree, int32_t q, int32_t* keys) noexcept;

// Appends a row of `queries` queries from position `position` on, over the positions [first visible, end).
inline void add_row(const StepRow& step, int32_t index, const GroupRules& rules, int32_t position, int32_t queries,
                    int32_t end, TableRows* out) {
  TableRow& row = out->rows.emplace_back();
  row.row = index;
  row.queries = queries;
  if (!step.inert && !rules.windowed() && !step.stream.on()) {
    row.begin = step.base;
    row.end = step.base + end;
  } else if (!step.inert) {
    const GroupRules own = rules.with(step.stream);
    const auto first = static_cast<int32_t>(own.first_visible(position));
    row.sinks = static_cast<int32_t>(std::min<int64_t>(own.sink_tokens, end));
    row.position = std::max(std::min(first, end), row.sinks);
    row.begin = step.base + row.position;
    row.end = step.base + end;
  }
}

template <class TreeOf>
void prefix_rows(std::span<const StepRow> step, const GroupRules& rules, TreeOf tree_of, TableRows* out) {
  out->clear(false);
  for (size_t i = 0; i < step.size(); ++i) {
    const StepRow& row = step[i];
    const auto index = static_cast<int32_t>(i);
    const StepTree tree = tree_of(index);
    const int32_t end = tree.nodes.empty() ? row.before : tree.begin;
    if (row.inert || !rules.with(row.stream).windowed()) {  // all queries see the same
      add_row(row, index, rules, end, row.fresh, end, out);
      continue;
    }
    for (int32_t q = 0; q < row.fresh; ++q) {
      const int32_t position =
          tree.nodes.empty() ? row.before + q : tree.nodes[tree.nodes.size() - row.fresh + q].position;
      add_row(row, index, rules, position, 1, end, out);
    }
  }
}

template <class TreeOf>
void branch_rows(std::span<const StepRow> step, const GroupRules& rules, TreeOf tree_of, TableRows* out) {
  out->clear(false, true);
  for (size_t i = 0; i < step.size(); ++i) {
    const StepRow& row = step[i];
    const auto index = static_cast<int32_t>(i);
    const StepTree tree = tree_of(index);
    const int32_t begin = row.base + (tree.nodes.empty() ? row.before : tree.begin);
    const size_t most = tree.nodes.empty() ? static_cast<size_t>(row.fresh) : tree.nodes.size();  // keys of a query
    const size_t first_key = out->keys.size();
    out->keys.resize(first_key + (row.inert ? 0 : most * static_cast<size_t>(row.fresh)));
    int32_t* keys = out->keys.data();
    auto at = static_cast<int32_t>(first_key);
    for (int32_t q = 0; q < row.fresh; ++q) {
      TableRow& target = out->rows.emplace_back();  // filled in place: copies of rows cost more than what is in them
      target.row = index;
      target.queries = 1;
      target.begin = at;
      if (!row.inert) at += list_keys(row, rules, tree, q, keys + at);
      target.end = at;
    }
    out->keys.resize(static_cast<size_t>(at));
    if (!row.inert) {
      out->ranges.push_back({index, static_cast<int32_t>(first_key), at, begin, row.base + row.before + row.fresh});
    }
  }
}

}  // namespace kvc
