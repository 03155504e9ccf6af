// Token trees: nodes that steps may add, what each node sees, and the commit of a path.
#include <algorithm>
#include <map>

#include "harness.h"
#include "harness_call.h"

namespace kvt {

void Harness::tree_faults(const std::vector<Row> &rows, Faults *faults) const {
  for (size_t i = 0; i < rows.size(); i++) {
    const Row &row = rows[i];
    const int64_t index = static_cast<int64_t>(i);
    if (row.parents.empty() || row.sequence < 0) continue;
    const int32_t before = nodes(row.sequence);
    if (before + row.length > spec_.tree_nodes()) {
      faults->push_back({KVC_ERROR_TREE_TOO_LARGE, index, before + row.length, spec_.tree_nodes()});
    }
    for (int32_t j = 0; j < row.length; j++) {
      if (row.parents[j] < -1 || row.parents[j] >= before + j) faults->push_back({KVC_ERROR_INVALID_ARGUMENT, index});
    }
  }
}

// The token at an index of the row's sequence, with the new tokens.
Harness::Node Harness::stored_at(const OpenRow &row, int64_t index) const {
  const Sequence &s = sequence(row.sequence);
  const int64_t committed = static_cast<int64_t>(s.tokens.size());
  if (index >= row.start) return row.entries[index - row.start];
  if (index >= committed) return s.nodes[index - committed];
  return {s.tokens[index], -1, index};
}

// The indices that a new token of a row sees, in order.
std::vector<int64_t> Harness::visible(const OpenRow &row, int32_t query, const GroupSpec &group,
                                      const Attended &how) const {
  const int64_t committed = static_cast<int64_t>(sequence(row.sequence).tokens.size());
  const int64_t position = row.entries[query].position, self = row.start + query;
  std::vector<int64_t> seen;
  // From itself up to the root, or to the first new token.
  for (int64_t index = self; index >= committed;) {
    seen.push_back(index);
    const int32_t parent = stored_at(row, index).parent;
    index = !row.tree ? index - 1 : parent < 0 ? -1 : committed + parent;
  }
  for (int64_t index = committed; index-- > 0;) seen.push_back(index);
  std::reverse(seen.begin(), seen.end());
  // Not causal: the row's later tokens too, except for nodes of a tree. Causal: only those of the query's span.
  for (int32_t later = query + 1; !row.tree && later < row.length; later++) {
    const bool in_span =
        !how.no_spans && !row.spans.empty() && row.spans[query] > 0 && row.spans[later] == row.spans[query];
    if (how.causal && !in_span) break;
    seen.push_back(row.start + later);
  }
  const int64_t end = group.chunk > 0 ? group.first_seen(position) + group.chunk : INT64_MAX;
  const int64_t begins_at = how.step_window ? row.start : position;
  const auto outside = [&](int64_t index) {
    const int64_t key = stored_at(row, index).position;
    return key >= end || !sees(sequence(row.sequence), group, begins_at, key);
  };
  seen.erase(std::remove_if(seen.begin(), seen.end(), outside), seen.end());
  return seen;
}

// Drops the nodes, and the pages beyond `length` tokens.
void Harness::drop_nodes(Sequence *s, int64_t length) {
  s->nodes.clear();
  for (size_t g = 0; g < pools_.size(); g++) {
    while (!is_cross(g) && static_cast<int64_t>(s->pages[g].size()) > ceil_div(length, spec_.page_size)) {
      if (s->pages[g].back() >= 0) drop_page(static_cast<int>(g), s->pages[g].back());
      s->pages[g].pop_back();
    }
  }
}

kvc_status Harness::commit(const std::vector<int> &handles, const std::vector<int32_t> &leaves) {
  Faults faults;
  const std::vector<kvc_seq> ids = resolve(handles, &faults, [&](size_t i, const Sequence &s) {
    const int64_t index = static_cast<int64_t>(i);
    if (s.forward >= 0) {
      faults.push_back({KVC_ERROR_BUSY, index});
    } else if (s.nodes.empty()) {
      faults.push_back({KVC_ERROR_ORDER, index});
    } else if (leaves[i] < -1 || leaves[i] >= nodes(handles[i])) {
      faults.push_back({KVC_ERROR_OUT_OF_RANGE, index});
    }
  });
  const kvc_status status = call("kvc_seq_commit", faults, [&](kvc_error *e) {
    return kvc_seq_commit(cache_.get(), static_cast<int64_t>(ids.size()), ids.data(), leaves.data(), nullptr, e);
  });
  if (status) return status;
  for (size_t i = 0; i < handles.size(); i++) {
    note("commit %d leaf %d of %d", handles[i], leaves[i], nodes(handles[i]));
    Sequence &s = sequence(handles[i]);
    std::vector<Token> path;
    for (int32_t node = leaves[i]; node >= 0; node = s.nodes[node].parent) path.push_back(s.nodes[node].token);
    s.tokens.insert(s.tokens.end(), path.rbegin(), path.rend());
    drop_nodes(&s, static_cast<int64_t>(s.tokens.size()));
    slide(&s);
  }
  return status;
}

}  // namespace kvt
