// Forwards: begin, append, end, abort, cancel.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness.h"
#include "harness_call.h"

namespace kvt {

// ---- Forwards ----------------------------------------------------------------------------------

bool Harness::has_trees(const std::vector<Row> &rows) {
  return std::any_of(rows.begin(), rows.end(), [](const Row &row) { return !row.parents.empty(); });
}

bool Harness::has_spans(const std::vector<Row> &rows) {
  return std::any_of(rows.begin(), rows.end(), [](const Row &row) { return !row.spans.empty(); });
}

Harness::Batch::Batch(const Harness &harness, const std::vector<Row> &rows, int layer_begin, int layer_end) {
  const bool trees = has_trees(rows), any_spans = has_spans(rows);
  for (const Row &row : rows) {
    const bool exists = row.sequence >= 0;
    ids.push_back(exists ? harness.sequence(row.sequence).id : row.sequence == kRaw ? row.raw : 0);
    lengths.push_back(row.length);
    // Spans of inert rows are ignored.
    if (any_spans && row.length > 0) {
      spans.insert(spans.end(), static_cast<size_t>(row.length), row.sequence == kInert ? -3 : 0);
    }
    std::copy(row.spans.begin(), row.spans.end(), spans.end() - static_cast<std::ptrdiff_t>(row.spans.size()));
    if (!trees || row.length <= 0) continue;
    // Parents of an inert row's tokens are ignored.
    parents.insert(parents.end(), static_cast<size_t>(row.length), row.sequence == kInert ? 12345 : KVC_TREE_NONE);
    std::copy(row.parents.begin(), row.parents.end(), parents.end() - row.length);
  }
  kvc_batch_init(&batch);
  batch.num_sequences = static_cast<int32_t>(rows.size());
  batch.sequences = ids.data();
  batch.append_lengths = lengths.data();
  batch.layer_begin = layer_begin;
  batch.layer_end = layer_end;
  if (trees) batch.tree_parents = parents.data();
  if (any_spans) batch.span_ids = spans.data();
  batch.encoder_group = 1 + encoder_of(rows);
}

void Harness::apply_begin(const std::vector<Row> &rows, Open *open) {
  open->input = options_.plain_inputs ? DType::kF32 : static_cast<DType>(uniform(0, 2));
  const bool rough = chance(0.3);
  open->as_stored = !options_.plain_inputs && chance(0.1);
  open->encoder = encoder_of(rows);
  uint64_t layers = 0;
  for (int l = open->layer_begin; l < open->layer_end; l++) layers |= 1ull << l;
  for (const Row &row : rows) {
    OpenRow r{row.sequence, row.length, 0, {}, !row.parents.empty(), {}, {}, row.spans};
    open->tokens += row.length;
    if (row.sequence >= 0) {
      Sequence &s = sequence(row.sequence);
      r.start = open->encoder < 0 ? s.stored() : stored_in(s, static_cast<size_t>(open->encoder));
      Token token = new_token();
      token.input = open->input;
      token.rough = rough;
      token.as_stored = open->as_stored;
      token.layers = layers;
      const int64_t committed = static_cast<int64_t>(s.tokens.size());
      for (int32_t i = 0; i < row.length; i++) {
        Node node{token, -1, r.start + i};
        if (r.tree) {
          // Siblings are at the same position, so each has its own tag.
          node.token.tag = next_tag_++;
          node.parent = row.parents[i];
          const int64_t above = node.parent - static_cast<int64_t>(s.nodes.size());
          node.position = node.parent < 0 ? committed
                          : above < 0     ? s.nodes[node.parent].position + 1
                                          : r.entries[above].position + 1;
        }
        r.entries.push_back(node);
      }
      r.fresh.resize(pools_.size());
      r.copied.assign(pools_.size(), false);
      for (size_t g = 0; g < pools_.size(); g++) {
        if (!grows(g, open->encoder)) continue;
        const int64_t pages = static_cast<int64_t>(s.pages[g].size());
        const int64_t needed = pages_needed(s, static_cast<int>(g), row.length);
        r.copied[g] = needed > ceil_div(r.start + row.length, spec_.page_size) - pages;
        for (int64_t i = 0; i < needed; i++) r.fresh[g].push_back(take_page(static_cast<int>(g)));
      }
    }
    open->rows.push_back(std::move(r));
  }
}

void Harness::apply_end(Open *open) {
  for (OpenRow &row : open->rows) {
    if (row.sequence < 0) continue;
    Sequence &s = sequence(row.sequence);
    s.forward = -1;
    for (const Node &entry : row.entries) {
      if (open->encoder >= 0) {
        s.encoders[static_cast<size_t>(open->encoder)].push_back(entry.token);
      } else if (row.tree) {
        s.nodes.push_back(entry);
      } else {
        s.tokens.push_back(entry.token);
      }
    }
    for (size_t g = 0; g < pools_.size(); g++) {
      std::vector<int> &pages = s.pages[g];
      size_t i = 0;
      if (row.copied[g]) {
        drop_page(static_cast<int>(g), pages.back());
        pages.back() = row.fresh[g][i++];
      }
      for (; i < row.fresh[g].size(); i++) pages.push_back(row.fresh[g][i]);
    }
    slide(&s);
    if (s.doomed) {
      doomed_--;
      release(row.sequence);
    }
  }
}

void Harness::apply_abort(Open *open) {
  for (OpenRow &row : open->rows) {
    if (row.sequence < 0) continue;
    Sequence &s = sequence(row.sequence);
    s.forward = -1;
    for (size_t g = 0; g < pools_.size(); g++) {
      for (int page : row.fresh[g]) drop_page(static_cast<int>(g), page);
    }
    if (s.doomed) {
      doomed_--;
      release(row.sequence);
    }
  }
}

kvc_status Harness::begin(const std::vector<Row> &rows, int *forward, int layer_begin, int layer_end) {
  Batch built(*this, rows, layer_begin, layer_end);
  const kvc_batch &batch = built.batch;
  if (graph_ && chance(0.5) && std::none_of(forwards_.begin(), forwards_.end(), [&](const auto &forward) {
        return forward.second.id == graph_;
      })) {
    built.batch.graph = graph_;
  }
  const Faults faults = batch_faults(rows, layer_begin, layer_end, batch.graph != 0);
  // can_fit returns the same status and numbers.
  const bool ask = chance(0.5);
  kvc_error fit = KVC_ERROR_INIT, refused = KVC_ERROR_INIT;
  const kvc_status fits = ask ? kvc_cache_can_fit(cache_.get(), &batch, &fit) : KVC_OK;
  kvc_forward id = 0;
  const kvc_status status = call("kvc_forward_begin", faults, [&](kvc_error *e) {
    const kvc_status s = kvc_forward_begin(cache_.get(), &batch, nullptr, &id, e);
    if (e) refused = *e;
    return s;
  });
  if (ask && fits != status) {
    fail(std::string("can_fit said ") + kvc_status_name(fits) + ", begin " + kvc_status_name(status));
  }
  if (ask && status && refused.code == status &&
      (fit.index != refused.index || fit.required != refused.required || fit.available != refused.available ||
       fit.group != refused.group)) {
    fail("can_fit: " + kvt::describe(fit) + "; begin: " + kvt::describe(refused));
  }
  if (status) return status;
  if (id == 0 || id >> 63) fail("forward id out of range");
  if (batch.graph ? id != graph_ : id == graph_) fail("the id of a forward in a graph");
  Open open;
  open.id = id;
  open.layer_begin = layer_begin;
  open.layer_end = layer_begin || layer_end ? layer_end : static_cast<int>(spec_.layers.size());
  open.checked = chance(options_.attend_checks);
  apply_begin(rows, &open);
  for (const Row &row : rows) {
    if (row.sequence >= 0) sequence(row.sequence).forward = next_forward_;
  }
  for (const Row &row : rows) {
    note("begin forward %d: sequence %d +%d%s", next_forward_, row.sequence, row.length,
         row.parents.empty() ? "" : " (tree)");
  }
  *forward = next_forward_;
  forwards_[next_forward_++] = std::move(open);
  check_info(forwards_[*forward]);
  return status;
}

void Harness::check_info(const Open &open) {
  kvc_forward_info info;
  kvc_forward_info_init(&info);
  call("kvc_forward_get_info", {}, [&](kvc_error *e) { return kvc_forward_get_info(cache_.get(), open.id, &info, e); });
  if (info.num_sequences != static_cast<int32_t>(open.rows.size()) || info.num_tokens != open.tokens) {
    fail("kvc_forward_info counts");
  }
  int64_t t = 0;
  for (size_t i = 0; i < open.rows.size(); i++) {
    const OpenRow &row = open.rows[i];
    const int32_t last = row.length ? static_cast<int32_t>(t + row.length - 1) : -1;
    if (info.last_rows_host[i] != last) fail("last_rows_host");
    for (int32_t j = 0; j < row.length; j++, t++) {
      const int32_t position = row.sequence < 0 ? 0 : static_cast<int32_t>(row.entries[j].position);
      if (info.positions_host[t] != position) fail("positions_host");
    }
  }
  const DLTensor *tensors[] = {&info.positions, &info.last_rows};
  const int32_t *host[] = {info.positions_host, info.last_rows_host};
  int64_t sizes[] = {open.tokens, static_cast<int64_t>(open.rows.size())};
  if (open.id == graph_) sizes[0] = spec_.max_batch_tokens, sizes[1] = spec_.max_sequences;
  for (int i = 0; i < 2; i++) {
    const DLTensor &t = *tensors[i];
    if (t.ndim != 1 || t.shape[0] != sizes[i] || t.dtype.code != kDLInt || t.dtype.bits != 32 ||
        t.device.device_type != test_device().device_type) {
      fail("kvc_forward_info tensor");
    }
    const char *data = static_cast<const char *>(t.data) + t.byte_offset;
    if (sizes[i] && std::memcmp(data, host[i], sizes[i] * 4) != 0) fail("kvc_forward_info tensor contents");
  }
}

bool Harness::make_kv(const Open &open, int layer, int64_t rows, int64_t padding, int64_t offset, Tensor *k,
                      Tensor *v) {
  const LayerSpec &l = spec_.layers[layer];
  // MLA: a whole row as k, or its latent part as v and the rest as k.
  const bool parts = l.latent > 0 && l.latent < l.d && chance(0.5);
  const int first = parts ? l.latent : 0;
  *k = Tensor(open.input, {rows, l.hkv, l.d - first}, padding, offset);
  *v = Tensor(open.input, {rows, l.hkv, l.v_dim()}, padding, offset);
  for (int64_t t = 0; t < rows; t++) {
    for (int h = 0; h < l.hkv; h++) {
      // Inert rows, and rows after the batch's tokens, hold NaN, because nothing may read them.
      for (int64_t i = 0; i < k->dim(2); i++) k->set(t, h, i, NAN);
      for (int i = 0; i < l.v_dim(); i++) v->set(t, h, i, NAN);
    }
  }
  int64_t t = 0;
  for (const OpenRow &row : open.rows) {
    for (int32_t j = 0; j < row.length; j++, t++) {
      if (row.sequence < 0) continue;
      const Node &entry = row.entries[j];
      for (int h = 0; h < l.hkv; h++) {
        for (int i = first; i < l.d; i++) {
          k->set(t, h, i - first, value(entry.token, entry.position, layer, h, i, 0));
        }
        for (int i = 0; i < l.v_dim(); i++) {
          v->set(t, h, i, value(entry.token, entry.position, layer, h, i, l.latent ? 0 : 1));
        }
      }
    }
  }
  return parts || l.latent == 0;
}

void Harness::append_layer(int forward, int layer) {
  Open &open = forwards_.at(forward);
  const bool plain = options_.plain_inputs;
  const int64_t rows = open.tokens + (plain ? 0 : uniform(0, 2)), padding = plain ? 0 : uniform(0, 3),
                offset = plain ? 0 : uniform(0, 5);
  Tensor k, v;
  kvc_append_args args;
  kvc_append_args_init(&args);
  args.v = make_kv(open, layer, rows, padding, offset, &k, &v) ? v.dl(true) : nullptr;
  args.k = k.dl(true);
  if (open.as_stored) args.flags = KVC_APPEND_AS_STORED;
  call("kvc_forward_append", {},
       [&](kvc_error *e) { return kvc_forward_append(cache_.get(), open.id, layer, &args, e); });
  open.appended.insert(layer);
}

void Harness::run_layer(int forward, int layer) {
  Open &open = forwards_.at(forward);
  if (open.attended.count(layer)) return;
  if (open.encoder >= 0) {
    if (appends(open, layer) && !open.appended.count(layer)) append_layer(forward, layer);
    return;
  }
  if (const auto group = static_cast<size_t>(spec_.layers[layer].group); is_cross(group)) {
    // It attends to the tokens that are there. The forward that stored them may have skipped the layer.
    for (const OpenRow &row : open.rows) {
      if (row.sequence < 0) continue;
      for (const Token &token : sequence(row.sequence).encoders[group]) {
        if (!(token.layers >> source(layer) & 1)) return;
      }
    }
  } else if (!stores(layer)) {  // after the layer that it reads
    const int stored = source(layer);
    if (stored < open.layer_begin) return;  // the layer range has no such layer, so there is nothing to attend to
    if (!open.appended.count(stored)) append_layer(forward, stored);
  } else if (!open.appended.count(layer)) {
    if (options_.plain_inputs || chance(0.5)) return attend_layer(forward, layer);
    append_layer(forward, layer);
    if (chance(0.2)) return;  // a step may store and never attend
  }
  if (chance(0.7)) attend_layer(forward, layer);
}

void Harness::run_layers(int forward) {
  Open &open = forwards_.at(forward);
  std::vector<int> layers;
  for (int l = open.layer_begin; l < open.layer_end; l++) layers.push_back(l);
  std::shuffle(layers.begin(), layers.end(), random_);
  for (int l : layers) run_layer(forward, l);
}

void Harness::close(int forward) {
  if (forwards_.at(forward).id != graph_) stale_forwards_.push_back(forwards_.at(forward).id);
  forwards_.erase(forward);
}

kvc_status Harness::end(int forward) {
  Open &open = forwards_.at(forward);
  Faults faults;
  if (open.cancelled) faults.push_back({KVC_ERROR_CANCELLED});
  for (int l = open.layer_begin; l < open.layer_end && !open.cancelled; l++) {
    if (open.appended.count(l) || !appends(open, l)) continue;
    faults.push_back({KVC_ERROR_ORDER, l});
    if (open.tokens == 0) faults.push_back({KVC_OK});  // nothing to append, so both results are right
    break;
  }
  const kvc_status status =
      call("kvc_forward_end", faults, [&](kvc_error *e) { return kvc_forward_end(cache_.get(), open.id, e); });
  if (status) return status;
  note("end forward %d", forward);
  apply_end(&open);
  close(forward);
  return status;
}

kvc_status Harness::abort(int forward) {
  Open &open = forwards_.at(forward);
  const kvc_status status =
      call("kvc_forward_abort", {}, [&](kvc_error *e) { return kvc_forward_abort(cache_.get(), open.id, e); });
  note("abort forward %d", forward);
  apply_abort(&open);
  close(forward);
  return status;
}

kvc_status Harness::cancel(int forward) {
  Open &open = forwards_.at(forward);
  const kvc_status status =
      call("kvc_forward_cancel", {}, [&](kvc_error *e) { return kvc_forward_cancel(cache_.get(), open.id, e); });
  open.cancelled = true;
  return status;
}

kvc_status Harness::step(const std::vector<Row> &rows, int *forward) {
  int handle = -1;
  if (!forward) forward = &handle;
  if (const kvc_status status = begin(rows, forward)) return status;
  run_layers(*forward);
  return end(*forward);
}

}  // namespace kvt
