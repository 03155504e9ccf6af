// Token trees: what steps may add, what each node sees, and the commit of a path.
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

// What is stored at an index of the row's sequence, the new tokens included.
Harness::Node Harness::stored_at(const OpenRow &row, int64_t index) const {
  const Sequence &s = sequence(row.sequence);
  const int64_t committed = static_cast<int64_t>(s.tokens.size());
  if (index >= row.start) return row.entries[index - row.start];
  if (index >= committed) return s.nodes[index - committed];
  return {s.tokens[index], -1, index};
}

// Indices that a new token of a row sees, in order.
std::vector<int64_t> Harness::visible(const OpenRow &row, int32_t query, const GroupSpec &group) const {
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
  const int64_t first = group.first_seen(position);
  const auto outside = [&](int64_t index) { return stored_at(row, index).position < first; };
  seen.erase(std::remove_if(seen.begin(), seen.end(), outside), seen.end());
  std::reverse(seen.begin(), seen.end());
  return seen;
}

// Frees what lies wholly behind the windows of a sequence of this length.
void Harness::slide(Sequence *s) {
  for (size_t g = 0; g < pools_.size(); g++) {
    std::vector<int> &pages = s->pages[g];
    const int64_t earliest = std::max<int64_t>(0, static_cast<int64_t>(s->tokens.size()) - spec_.rollback);
    const int64_t boundary = spec_.groups[g].first_seen(earliest);
    for (size_t p = 0; p < pages.size() && static_cast<int64_t>(p + 1) * spec_.page_size <= boundary; p++) {
      if (pages[p] >= 0) drop_page(static_cast<int>(g), pages[p]);
      pages[p] = -1;
    }
  }
}

// Drops the nodes, and the pages beyond `length` tokens.
void Harness::drop_nodes(Sequence *s, int64_t length) {
  s->nodes.clear();
  for (size_t g = 0; g < pools_.size(); g++) {
    while (static_cast<int64_t>(s->pages[g].size()) > ceil_div(length, spec_.page_size)) {
      if (s->pages[g].back() >= 0) drop_page(static_cast<int>(g), s->pages[g].back());
      s->pages[g].pop_back();
    }
  }
}

kvc_status Harness::commit(const std::vector<int> &handles, const std::vector<int32_t> &leaves) {
  Faults faults;
  std::vector<kvc_seq> ids;
  std::map<int, int> seen;
  for (size_t i = 0; i < handles.size(); i++) {
    const int64_t index = static_cast<int64_t>(i);
    auto it = sequences_.find(handles[i]);
    if (handles[i] < 0 || it == sequences_.end() || it->second.doomed) {
      ids.push_back(it != sequences_.end() ? it->second.id : stale_.empty() ? 0 : stale_.back());
      faults.push_back({KVC_ERROR_STALE_ID, index});
      continue;
    }
    const Sequence &s = it->second;
    ids.push_back(s.id);
    if (seen.count(handles[i])) {
      faults.push_back({KVC_ERROR_DUPLICATE, index});
      faults.push_back({KVC_ERROR_DUPLICATE, seen[handles[i]]});
    }
    seen.emplace(handles[i], static_cast<int>(i));
    if (s.forward >= 0) {
      faults.push_back({KVC_ERROR_BUSY, index});
    } else if (s.nodes.empty()) {
      faults.push_back({KVC_ERROR_ORDER, index});
    } else if (leaves[i] < -1 || leaves[i] >= nodes(handles[i])) {
      faults.push_back({KVC_ERROR_OUT_OF_RANGE, index});
    }
  }
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
