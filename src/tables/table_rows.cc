#include "tables/table_rows.h"

#include <algorithm>

namespace kvc {

void whole_rows(std::span<const StepRow> step, const GroupRules& rules, TableRows* out) {
  out->clear(true);
  const auto chunk = static_cast<int32_t>(rules.chunk_tokens);
  for (size_t i = 0; i < step.size(); ++i) {
    const StepRow& row = step[i];
    const auto index = static_cast<int32_t>(i);
    const int32_t end = row.before + row.fresh;
    if (row.fresh == 0) {  // sees nothing
      out->rows.push_back({index, 0, 0, 0, 0, 0});
    } else if (chunk == 0 || row.inert) {
      add_row(row, index, rules, row.before, row.fresh, end, out);
    } else {
      for (int32_t p = row.before; p < end;) {
        const auto edge = static_cast<int32_t>(std::min<int64_t>(end, (int64_t{p} / chunk + 1) * chunk));
        add_row(row, index, rules, p, edge - p, edge, out);
        p = edge;
      }
    }
  }
}

int32_t list_keys(const StepRow& row, const GroupRules& rules, const StepTree& tree, int32_t q,
                  int32_t* keys) noexcept {
  const GroupRules own = rules.with(row.stream);
  const bool all = !own.windowed();
  const auto count = static_cast<int32_t>(tree.nodes.size());
  int32_t found = 0;
  if (count == 0) {
    const auto first = static_cast<int32_t>(own.first_visible(row.before + q));
    for (int32_t p = row.before; p <= row.before + q; ++p) {
      if (all || p >= first || p < own.sink_tokens) keys[found++] = row.base + p;
    }
    return found;
  }
  const int32_t last = count - row.fresh + q, tree_entry = row.base + tree.begin;
  const kvc_backend_tree_node* nodes = tree.nodes.data();
  const int32_t enter = nodes[last].enter;
  const auto first = static_cast<int32_t>(own.first_visible(nodes[last].position));
  for (int32_t k = 0; k <= last; ++k) {  // without branches: most nodes are no ancestors, and nobody knows which
    const bool ancestor = nodes[k].enter <= enter && enter < nodes[k].exit;
    const bool in_reach = all || nodes[k].position >= first || nodes[k].position < own.sink_tokens;
    keys[found] = tree_entry + k;
    found += static_cast<int32_t>(ancestor) & static_cast<int32_t>(in_reach);
  }
  return found;
}

void draft_prefix_rows(std::span<const StepRow> step, const GroupRules& rules, const DraftShape& shape, int32_t s,
                       TableRows* out) {
  out->clear(false);
  for (size_t i = 0; i < step.size(); ++i) {
    const int32_t end = step[i].before - shape.tail(step[i].before);
    add_row(step[i], static_cast<int32_t>(i), rules, step[i].before + s, shape.top_k, end, out);
  }
}

void draft_branch_rows(std::span<const StepRow> step, const GroupRules& rules, const DraftShape& shape, int32_t s,
                       TableRows* out) {
  out->clear(true);  // of one query: causal or not is the same
  for (size_t i = 0; i < step.size(); ++i) {
    const StepRow& row = step[i];
    const auto index = static_cast<int32_t>(i);
    const int32_t end = row.before + s + 1;
    if (shape.top_k == 1 || row.inert) {
      for (int32_t k = 0; k < shape.top_k; ++k) add_row(row, index, rules, row.before + s, 1, end, out);
      continue;
    }
    const int32_t shared = row.before - shape.tail(row.before);
    const auto first = static_cast<int32_t>(std::max<int64_t>(shared, rules.first_visible(row.before + s)));
    for (int32_t k = 0; k < shape.top_k; ++k) {
      const int32_t begin = shape.branch_begin(row, k);
      out->rows.push_back({index, 1, begin + first - shared, begin + end - shared, first, 0});
    }
  }
}

void encoder_rows(std::span<const StepRow> step, std::span<const int32_t> lengths, TableRows* out) {
  out->clear(false);
  for (size_t i = 0; i < step.size(); ++i) {
    const bool sees = !step[i].inert && step[i].fresh > 0;
    out->rows.push_back({static_cast<int32_t>(i), step[i].fresh, 0, sees ? lengths[i] : 0, 0, 0});
  }
}

}  // namespace kvc
