// Pages of the model, and the pages that a batch needs.
#include <algorithm>
#include <map>

#include "harness.h"
#include "harness_call.h"

namespace kvt {

// ---- Pages of the model ------------------------------------------------------------------------

int Harness::take_page(int group) {
  Pool &pool = pools_[group];
  const int page = pool.next++;
  pool.refs[page] = 1;
  pool.used++;
  pool.peak = std::max(pool.peak, pool.used);
  return page;
}
void Harness::share_page(int group, int page) { pools_[group].refs.at(page)++; }
void Harness::drop_page(int group, int page) {
  Pool &pool = pools_[group];
  if (--pool.refs.at(page) > 0) return;
  pool.refs.erase(page);
  pool.used--;
  auto it = pool.to_library.find(page);
  if (it != pool.to_library.end()) {
    pool.from_library.erase(it->second);
    pool.to_library.erase(it);
  }
}

int64_t Harness::pages_needed(const Sequence &s, int group, int64_t tokens) const {
  const int64_t length = stored_in(s, static_cast<size_t>(group)), page = spec_.page_size;
  const std::vector<int> &pages = s.pages[group];
  int64_t needed = ceil_div(length + tokens, page) - static_cast<int64_t>(pages.size());
  if (tokens > 0 && length % page != 0 && pools_[group].refs.at(pages.back()) > 1) needed++;
  return needed;
}

Harness::Need Harness::need(const std::vector<Row> &rows) const {
  Need need;
  need.total.assign(pools_.size(), 0);
  need.first_over.assign(pools_.size(), -1);
  for (size_t g = 0; g < pools_.size(); g++) {
    for (size_t i = 0; i < rows.size(); i++) {
      if (rows[i].sequence < 0 || !grows(g, encoder_of(rows))) continue;
      need.total[g] += pages_needed(sequence(rows[i].sequence), static_cast<int>(g), rows[i].length);
      if (need.total[g] > free_pages(static_cast<int>(g)) && need.first_over[g] < 0) {
        need.first_over[g] = static_cast<int>(i);
      }
    }
  }
  return need;
}

Faults Harness::open_faults() const {
  const auto open = std::count_if(forwards_.begin(), forwards_.end(),
                                  [&](const auto &forward) { return forward.second.id != graph_; });
  if (open < spec_.max_open_forwards) return {};
  return {{KVC_ERROR_TOO_MANY_FORWARDS}};
}

// Whether a layer in range lacks a token that the row's sequence has.
bool Harness::lacks_tokens(const Row &row, int encoder, int layer_begin, int layer_end) const {
  const Sequence &s = sequence(row.sequence);
  for (int l = layer_begin; l < layer_end; l++) {
    const auto g = static_cast<size_t>(spec_.layers[l].group);
    if (!stores(l) || (encoder >= 0 && static_cast<int>(g) != encoder)) continue;
    const auto lacks = [&](const Token &token) { return !(token.layers >> l & 1); };
    const std::vector<Token> &tokens = tokens_in(s, g);
    if (std::any_of(tokens.begin(), tokens.end(), lacks)) return true;
    if (is_cross(g)) continue;
    if (std::any_of(s.nodes.begin(), s.nodes.end(), [&](const Node &node) { return lacks(node.token); })) return true;
  }
  return false;
}

Faults Harness::batch_faults(const std::vector<Row> &rows, int layer_begin, int layer_end, bool in_graph) const {
  Faults faults;
  const int layers = static_cast<int>(spec_.layers.size());
  if (layer_begin || layer_end) {
    if (layer_begin < 0 || layer_end > layers || layer_begin >= layer_end) faults.push_back({KVC_ERROR_OUT_OF_RANGE});
  }
  int64_t tokens = 0;
  std::map<kvc_seq, int> seen;
  for (size_t i = 0; i < rows.size(); i++) {
    const Row &row = rows[i];
    const int64_t index = static_cast<int64_t>(i);
    if (row.length > 0) tokens += row.length;
    const kvc_seq id = row.sequence >= 0 ? sequence(row.sequence).id : row.sequence == kRaw ? row.raw : 0;
    if (id == 0) {
      if (row.length < 0) faults.push_back({KVC_ERROR_INVALID_ARGUMENT, index});
      continue;
    }
    if (row.length < 1) faults.push_back({KVC_ERROR_INVALID_ARGUMENT, index});
    if (row.sequence == kRaw || sequence(row.sequence).doomed) {
      faults.push_back({KVC_ERROR_STALE_ID, index});
    } else if (sequence(row.sequence).forward >= 0) {
      faults.push_back({KVC_ERROR_BUSY, index});
    } else if (row.parents.empty() && row.length > 0 && nodes(row.sequence) > 0) {
      faults.push_back({KVC_ERROR_UNCOMMITTED, index});
    } else if (lacks_tokens(row, encoder_of(rows), layer_begin,
                            layer_end == 0 ? layers : std::min(layer_end, layers))) {
      faults.push_back({KVC_ERROR_ORDER, index});
    }
    if (seen.count(id)) {
      faults.push_back({KVC_ERROR_DUPLICATE, index});
      faults.push_back({KVC_ERROR_DUPLICATE, seen[id]});
    }
    seen.emplace(id, static_cast<int>(i));
  }
  if (has_trees(rows)) tree_faults(rows, &faults);
  for (size_t i = 0; i < rows.size(); i++) {
    const Row &row = rows[i];
    if (row.sequence == kInert) continue;
    for (const int32_t id : row.spans) {
      if (id < 0 || (id > 0 && !row.parents.empty())) {
        faults.push_back({KVC_ERROR_INVALID_ARGUMENT, static_cast<int64_t>(i)});
      }
    }
  }
  if (tokens > spec_.max_batch_tokens) {
    faults.push_back({KVC_ERROR_BATCH_TOO_LARGE, Fault::kAny, tokens, spec_.max_batch_tokens});
  }
  if (static_cast<int>(rows.size()) > spec_.max_sequences) {
    faults.push_back({KVC_ERROR_BATCH_TOO_LARGE, Fault::kAny, static_cast<int64_t>(rows.size()), spec_.max_sequences});
  }
  for (const Fault &f : in_graph ? Faults{} : open_faults()) faults.push_back(f);
  if (!faults.empty()) return faults;
  const Need n = need(rows);
  int first = -1;  // the group that runs out at the earliest row
  for (size_t g = 0; g < pools_.size(); g++) {
    if (n.first_over[g] >= 0 && (first < 0 || n.first_over[g] < n.first_over[first])) first = static_cast<int>(g);
  }
  if (first >= 0)
    faults.push_back({KVC_ERROR_OUT_OF_PAGES, n.first_over[first], n.total[first], free_pages(first), first});
  return faults;
}

std::vector<int> Harness::live() const {
  std::vector<int> handles;
  for (const auto &[handle, s] : sequences_) {
    if (!s.doomed) handles.push_back(handle);
  }
  return handles;
}
std::vector<int> Harness::idle() const {
  std::vector<int> handles;
  for (const auto &[handle, s] : sequences_) {
    if (!s.doomed && s.forward < 0) handles.push_back(handle);
  }
  return handles;
}
std::vector<int> Harness::open() const {
  std::vector<int> handles;
  for (const auto &[handle, f] : forwards_) handles.push_back(handle);
  return handles;
}

}  // namespace kvt
