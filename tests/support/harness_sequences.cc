// Sequences: add, remove, fork, truncate, clear, and the import of tokens.
#include <algorithm>
#include <map>

#include "harness.h"
#include "harness_call.h"

namespace kvt {

// ---- Sequences ---------------------------------------------------------------------------------

kvc_status Harness::add(int n, std::vector<int> *handles) {
  const int64_t live_count = static_cast<int64_t>(sequences_.size()) - doomed_;
  Faults faults;
  if (n > spec_.max_sequences - live_count - doomed_) {
    faults.push_back({KVC_ERROR_TOO_MANY_SEQUENCES, Fault::kAny, n});
    if (n > spec_.max_sequences) faults.push_back({KVC_ERROR_INVALID_ARGUMENT});
    // A removed sequence that an open forward still uses may count or not count as one.
    if (n <= spec_.max_sequences - live_count) faults.push_back({KVC_OK});
  }
  if (n < 0) faults.push_back({KVC_ERROR_INVALID_ARGUMENT});
  std::vector<kvc_seq> ids(static_cast<size_t>(std::max(n, 1)), 0);
  const kvc_status status =
      call("kvc_seq_add", faults, [&](kvc_error *e) { return kvc_seq_add(cache_.get(), n, ids.data(), e); });
  if (status) return status;
  for (int i = 0; i < n; i++) {
    if (ids[i] == 0 || ids[i] >> 63) fail("sequence id out of range");
    for (const auto &[handle, s] : sequences_) {
      if (s.id == ids[i]) fail("sequence id given twice");
    }
    Sequence s;
    s.id = ids[i];
    s.pages.resize(pools_.size());
    s.encoders.resize(pools_.size());
    note("add -> %d", next_handle_);
    sequences_[next_handle_] = s;
    handles->push_back(next_handle_++);
  }
  return status;
}

int Harness::add() {
  std::vector<int> handles;
  if (add(1, &handles)) fail("add refused");
  return handles[0];
}

void Harness::release(int handle) {
  Sequence &s = sequence(handle);
  for (size_t g = 0; g < pools_.size(); g++) {
    for (int page : s.pages[g]) {
      if (page >= 0) drop_page(static_cast<int>(g), page);
    }
  }
  sequences_.erase(handle);
}

std::vector<kvc_seq> Harness::resolve(const std::vector<int> &handles, Faults *faults,
                                      const std::function<void(size_t, const Sequence &)> &visit) {
  std::vector<kvc_seq> ids;
  std::map<int, int64_t> seen;
  for (size_t i = 0; i < handles.size(); i++) {
    const int64_t index = static_cast<int64_t>(i);
    const auto it = sequences_.find(handles[i]);
    if (handles[i] < 0 || it == sequences_.end() || it->second.doomed) {
      ids.push_back(it != sequences_.end() ? it->second.id : stale_.empty() ? 0 : stale_[hash(calls_) % stale_.size()]);
      faults->push_back({KVC_ERROR_STALE_ID, index});
      continue;
    }
    ids.push_back(it->second.id);
    if (seen.count(handles[i])) {
      faults->push_back({KVC_ERROR_DUPLICATE, index});
      faults->push_back({KVC_ERROR_DUPLICATE, seen[handles[i]]});
    }
    seen.emplace(handles[i], index);
    visit(i, it->second);
  }
  return ids;
}

kvc_status Harness::remove(const std::vector<int> &handles) {
  Faults faults;
  const std::vector<kvc_seq> ids = resolve(handles, &faults, [](size_t, const Sequence &) {});
  const kvc_status status = call("kvc_seq_remove", faults, [&](kvc_error *e) {
    return kvc_seq_remove(cache_.get(), static_cast<int64_t>(ids.size()), ids.data(), e);
  });
  if (status) return status;
  for (int handle : handles) {
    note("remove %d", handle);
    Sequence &s = sequence(handle);
    stale_.push_back(s.id);
    if (s.forward >= 0) {
      s.doomed = true;
      doomed_++;
    } else {
      release(handle);
    }
  }
  return status;
}

// The contents of a fork of `parent` at `position`: it shares whole pages and encoder sequences, and copies a partial
// page.
Harness::Sequence Harness::child_of(const Sequence &parent, kvc_seq id, int64_t position) {
  Sequence child;
  child.id = id;
  child.tokens.assign(parent.tokens.begin(), parent.tokens.begin() + position);
  child.sinks = parent.sinks;
  child.window = parent.window;
  child.pages.resize(pools_.size());
  child.encoders = parent.encoders;
  for (size_t g = 0; g < pools_.size(); g++) {
    const int64_t whole = is_cross(g) ? static_cast<int64_t>(parent.pages[g].size()) : position / spec_.page_size;
    for (int64_t p = 0; p < whole; p++) {
      const int page = parent.pages[g][p];
      if (page >= 0) share_page(static_cast<int>(g), page);
      child.pages[g].push_back(page);
    }
    if (!is_cross(g) && position % spec_.page_size) child.pages[g].push_back(take_page(static_cast<int>(g)));
  }
  return child;
}

kvc_status Harness::fork(const std::vector<int> &parents, const std::vector<int64_t> *positions,
                         std::vector<int> *children) {
  const int64_t n = static_cast<int64_t>(parents.size());
  Faults faults;
  std::vector<kvc_seq> ids;
  std::vector<int64_t> at(parents.size(), -1);
  for (size_t i = 0; i < parents.size(); i++) {
    const int64_t index = static_cast<int64_t>(i);
    auto it = sequences_.find(parents[i]);
    if (parents[i] < 0 || it == sequences_.end() || it->second.doomed) {
      ids.push_back(it != sequences_.end() ? it->second.id : stale_.empty() ? 0 : stale_.back());
      faults.push_back({KVC_ERROR_STALE_ID, index});
      continue;
    }
    const Sequence &s = it->second;
    ids.push_back(s.id);
    if (s.forward >= 0) faults.push_back({KVC_ERROR_BUSY, index});
    if (!s.nodes.empty()) faults.push_back({KVC_ERROR_UNCOMMITTED, index});
    const int64_t length = static_cast<int64_t>(s.tokens.size());
    at[i] = positions && (*positions)[i] != -1 ? (*positions)[i] : length;
    if (at[i] < 0 || at[i] > length) {
      faults.push_back({KVC_ERROR_OUT_OF_RANGE, index});
    } else if (!position_works(parents[i], at[i])) {
      faults.push_back({KVC_ERROR_EVICTED, index});
    }
  }
  const int64_t live_count = static_cast<int64_t>(sequences_.size()) - doomed_;
  if (n > spec_.max_sequences - live_count - doomed_) {
    if (n <= spec_.max_sequences - live_count && faults.empty()) faults.push_back({KVC_OK});
    faults.push_back({KVC_ERROR_TOO_MANY_SEQUENCES, Fault::kAny, n});
    if (n > spec_.max_sequences) faults.push_back({KVC_ERROR_INVALID_ARGUMENT});
  }
  if (faults.empty()) {
    const int64_t copies = std::count_if(at.begin(), at.end(), [&](int64_t p) { return p % spec_.page_size != 0; });
    for (size_t g = 0; g < pools_.size(); g++) {
      const int64_t available = free_pages(static_cast<int>(g));
      if (copies > available && !is_cross(g)) {
        faults.push_back({KVC_ERROR_OUT_OF_PAGES, Fault::kAny, copies, available, static_cast<int64_t>(g)});
      }
    }
  }
  std::vector<kvc_seq> result(parents.size() + 1, 0);
  const kvc_status status = call("kvc_seq_fork", faults, [&](kvc_error *e) {
    return kvc_seq_fork(cache_.get(), n, ids.data(), positions ? positions->data() : nullptr, result.data(), nullptr,
                        e);
  });
  if (status) return status;
  for (size_t i = 0; i < parents.size(); i++) {
    if (result[i] == 0 || result[i] >> 63) fail("sequence id out of range");
    note("fork %d at %lld -> %d", parents[i], static_cast<long long>(at[i]), next_handle_);
    sequences_[next_handle_] = child_of(sequence(parents[i]), result[i], at[i]);
    children->push_back(next_handle_++);
  }
  return status;
}

int Harness::fork(int parent, int64_t position) {
  std::vector<int> children;
  const std::vector<int64_t> positions{position};
  if (fork({parent}, &positions, &children)) fail("fork refused");
  return children[0];
}

kvc_status Harness::truncate(const std::vector<int> &handles, const std::vector<int64_t> &lengths) {
  Faults faults;
  const std::vector<kvc_seq> ids = resolve(handles, &faults, [&](size_t i, const Sequence &s) {
    const int64_t index = static_cast<int64_t>(i);
    if (s.forward >= 0) faults.push_back({KVC_ERROR_BUSY, index});
    if (lengths[i] < 0 || lengths[i] > length(handles[i])) {
      faults.push_back({KVC_ERROR_OUT_OF_RANGE, index});
    } else if (!position_works(handles[i], lengths[i])) {
      faults.push_back({KVC_ERROR_EVICTED, index});
    }
  });
  const kvc_status status = call("kvc_seq_truncate", faults, [&](kvc_error *e) {
    return kvc_seq_truncate(cache_.get(), static_cast<int64_t>(ids.size()), ids.data(), lengths.data(), e);
  });
  if (status) return status;
  for (size_t i = 0; i < handles.size(); i++) {
    Sequence &s = sequence(handles[i]);
    note("truncate %d from %zu to %lld", handles[i], s.tokens.size(), static_cast<long long>(lengths[i]));
    s.tokens.resize(lengths[i]);
    drop_nodes(&s, lengths[i]);
  }
  return status;
}

kvc_status Harness::clear() {
  Faults faults;
  if (!forwards_.empty()) faults.push_back({KVC_ERROR_BUSY});
  const kvc_status status =
      call("kvc_cache_clear", faults, [&](kvc_error *e) { return kvc_cache_clear(cache_.get(), e); });
  if (status) return status;
  while (!sequences_.empty()) {
    stale_.push_back(sequences_.begin()->second.id);
    release(sequences_.begin()->first);
  }
  return status;
}

kvc_status Harness::import(int handle, int tokens, bool rotate, bool bad_layer) {
  Sequence &s = sequence(handle);
  const std::vector<Row> rows{{handle, tokens}};
  Faults faults;
  bool full_of_forwards = false;
  if (tokens < 1) faults.push_back({KVC_ERROR_INVALID_ARGUMENT});
  if (tokens < 1) faults.push_back({KVC_ERROR_SHAPE});
  if (tokens >= 1) {
    for (Fault f : batch_faults(rows, 0, 0)) {
      if (f.status == KVC_ERROR_TOO_MANY_FORWARDS) {
        full_of_forwards = true;  // an import may or may not need a forward's place
        continue;
      }
      f.index = Fault::kAny;
      faults.push_back(f);
      if (f.status == KVC_ERROR_BATCH_TOO_LARGE) faults.push_back({KVC_ERROR_SHAPE});
    }
    if (full_of_forwards && faults.empty()) {
      const Need n = need(rows);
      for (size_t g = 0; g < pools_.size(); g++) {
        if (n.first_over[g] >= 0) faults.push_back({KVC_ERROR_OUT_OF_PAGES});
      }
    }
  }
  const int layers = static_cast<int>(spec_.layers.size());
  int bad = bad_layer ? source(static_cast<int>(uniform(0, layers - 1))) : -1;
  if (bad_layer && is_cross(static_cast<size_t>(spec_.layers[bad].group))) bad = -1;
  if (bad >= 0) faults.push_back({KVC_ERROR_SHAPE, bad});
  if (full_of_forwards) {
    if (faults.empty()) faults.push_back({KVC_OK});
    faults.push_back({KVC_ERROR_TOO_MANY_FORWARDS});
  }

  Open open;
  open.layer_end = layers;
  const bool was_as_stored = !rotate;
  open.input = static_cast<DType>(uniform(0, 2));
  Token token = new_token();
  token.input = open.input;
  token.rough = chance(0.3);
  token.as_stored = was_as_stored;
  const int64_t start = static_cast<int64_t>(s.tokens.size()), padding = uniform(0, 2);
  std::vector<Tensor> k(layers), v(layers);
  std::vector<const DLTensor *> k_pointers, v_pointers;
  for (int layer = 0; layer < layers; layer++) {
    const LayerSpec &l = spec_.layers[layer];
    if (!stores(layer) || is_cross(static_cast<size_t>(l.group))) {
      k_pointers.push_back(nullptr);
      v_pointers.push_back(nullptr);
      continue;
    }
    k[layer] = Tensor(open.input, {tokens, l.hkv, l.d + (layer == bad)}, padding);
    v[layer] = Tensor(open.input, {tokens, l.hkv, l.v_dim()}, padding);
    for (int t = 0; t < tokens; t++) {
      for (int h = 0; h < l.hkv; h++) {
        for (int i = 0; i < l.d; i++) k[layer].set(t, h, i, value(token, start + t, layer, h, i, 0));
        for (int i = 0; i < l.v_dim(); i++) v[layer].set(t, h, i, value(token, start + t, layer, h, i, 1));
      }
    }
    k_pointers.push_back(k[layer].dl(true));
    v_pointers.push_back(l.latent ? nullptr : v[layer].dl(true));
  }
  kvc_import_args args;
  kvc_import_args_init(&args);
  args.flags = rotate ? 0 : KVC_IMPORT_AS_STORED;
  args.num_layers = layers;
  args.k = k_pointers.data();
  args.v = v_pointers.data();
  const kvc_status status = call("kvc_seq_import", faults,
                                 [&](kvc_error *e) { return kvc_seq_import(cache_.get(), s.id, &args, nullptr, e); });
  if (status) return status;
  note("import %d +%d", handle, tokens);
  const bool plain = options_.plain_inputs;
  options_.plain_inputs = true;
  apply_begin(rows, &open);
  options_.plain_inputs = plain;
  for (Node &entry : open.rows[0].entries) entry.token = token;
  apply_end(&open);
  return status;
}

}  // namespace kvt
