// Forward steps: what begin checks, reserves and plans.
#include <algorithm>
#include <cinttypes>

#include "cache/cache.h"

namespace kvc {

// A forward for a new step: a free one, or the graph's.
Status Cache::find_forward(kvc_forward graph, int32_t* slot) const {
  if (graph != 0) {
    KVC_TRY(resolve_graph(graph, slot));
    if (!forwards_[static_cast<size_t>(*slot)]->open) return Status();
    return Status::error(KVC_ERROR_BUSY, "a forward is open in graph %" PRIu64, graph);
  }
  const auto end = forwards_.begin() + geometry_.max_open_forwards;
  const auto free = std::find_if(forwards_.begin(), end, [](const auto& f) { return !f->open; });
  *slot = static_cast<int32_t>(free - forwards_.begin());
  if (free != end) return Status();
  const int64_t most = geometry_.max_open_forwards;
  return Status::error(KVC_ERROR_TOO_MANY_FORWARDS, "%" PRId64 " forwards are open already", most)
      .missing(most + 1, most);
}

// The checks of begin and can_fit. On success slots[i] is row i's slot, and *forward the Forward to use.
Status Cache::check_batch(const kvc_batch& batch, std::span<int32_t> slots, StepKind* kind, int32_t* forward) {
  const auto num_layers = static_cast<int32_t>(layers_.size());
  const bool all = batch.layer_begin == 0 && batch.layer_end == 0;
  if (!all && (batch.layer_begin < 0 || batch.layer_end > num_layers || batch.layer_begin >= batch.layer_end)) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "layers [%d, %d) are not within [0, %d)", batch.layer_begin,
                         batch.layer_end, num_layers);
  }
  KVC_TRY(batch_.read(batch));
  KVC_TRY(find_forward(batch.graph, forward));
  if (const Forward& target = *forwards_[static_cast<size_t>(*forward)]; target.graph) {
    KVC_TRY(batch_.check_limits(target.limits, "the graph's max_sequences", "the graph's max_tokens"));
  }
  KVC_TRY(read_kind(batch, kind));
  kind->layers = all ? LayerRange{0, num_layers} : LayerRange{batch.layer_begin, batch.layer_end};
  if (kind->with_trees) KVC_TRY(store_.check_trees(batch_.ids(), batch_.lengths(), batch_.parents()));
  KVC_TRY(check_copies_taken());
  return store_.check_step(batch_.ids(), batch_.lengths(), slots.first(batch_.ids().size()), *kind);
}

Status Cache::read_kind(const kvc_batch& batch, StepKind* out) const {
  out->with_trees = batch_.with_trees();
  out->encoder_group = batch.encoder_group - 1;
  if (batch.reserved != 0) return Status::error(KVC_ERROR_UNSUPPORTED, "reserved 0x%x is not 0", batch.reserved);
  KVC_TRY(batch_.check_spans());
  if (batch.encoder_group == 0) return Status();
  const bool known = batch.encoder_group > 0 && out->encoder_group < num_groups();
  const auto group = static_cast<size_t>(out->encoder_group);
  if (!known || !geometry_.store.groups[group].rules.holds_encoder()) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "encoder_group %d is not 1 + the index of a cross group",
                         batch.encoder_group);
  }
  if (!out->with_trees && !batch_.with_spans()) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s with encoder_group %d",
                       out->with_trees ? "tree_parents" : "span_ids", batch.encoder_group);
}

Status Cache::can_fit(const kvc_batch& batch) {
  MutexLock lock(mutex_);
  int32_t forward = -1;
  StepKind kind;
  return check_batch(batch, checked_slots_, &kind, &forward);
}

Status Cache::begin(const kvc_batch& batch, void* stream, kvc_forward* out) {
  KVC_TRY(context_->check_stream(stream));
  MutexLock lock(mutex_);
  int32_t index = -1;
  StepKind kind;
  KVC_TRY(check_batch(batch, checked_slots_, &kind, &index));
  KVC_TRY(order_.check_stream(stream));
  KVC_TRY(order_.enter(stream));
  Forward& forward = *forwards_[static_cast<size_t>(index)];
  forward.start();
  forward.kind = kind;
  if (!forward.graph) ++forward.generation;
  forward.num_rows = batch_.num_rows();
  forward.stream = stream;
  std::copy_n(checked_slots_.begin(), forward.num_rows, forward.slots.data());
  std::copy_n(batch_.lengths().begin(), forward.num_rows, forward.append_lengths.data());
  for (int32_t row = 0; row < forward.num_rows && !rope_sets_.empty(); ++row) {
    forward.rope_sets[row] = rope_sets_.of(forward.slots[row]);
  }
  copies_.clear();
  store_.reserve(forward.row_slots(), forward.row_lengths(), forward.row_reservations(num_groups()), &copies_,
                 forward.kind);
  if (Status copied = copy_slots(copies_, stream); !copied.ok()) {
    store_.rollback(forward.row_slots(), forward.row_reservations(num_groups()));
    return copied;
  }
  copy_queue_.own(&forward);
  if (kind.encoder_group < 0) find_state_pages(forward);
  forward.batch->build(store_, forward.row_slots(), forward.row_lengths(), kind.encoder_group);
  if (forward.kind.with_trees) {
    store_.add_nodes(forward.row_slots(), forward.row_lengths(), batch_.parents());
    forward.batch->add_trees(store_, forward.row_slots(), forward.row_lengths());
  }
  if (batch_.has_spans()) forward.batch->add_spans(batch_.span_ids());
  if (geometry_.limits.streaming && kind.encoder_group < 0) forward.batch->add_streams(store_, forward.row_slots());
  forward.finish_batch();
  forward.open = true;
  context_->pool().keep_awake(1);
  Status ready = stage(forward);
  if (ready.ok()) ready = order_.leave(stream);  // what it changed in the page lists is for everybody
  if (!ready.ok()) {
    give_back(forward, false);
    return ready;
  }
  *out = forward_id(index);
  return Status();
}

// Sends the step's index arrays to the device, and what changed in the page lists since the last step.
Status Cache::stage(Forward& forward) {
  if (forward.step() == nullptr) return Status();
  node_changes_.clear();
  for (int32_t g = 0; g < num_groups(); ++g) {
    kvc_backend_mirror* const mirror = mirrors_[static_cast<size_t>(g)].get();
    if (mirror == nullptr) continue;
    const std::span<const int32_t> ids = store_.changed_nodes(g);
    node_changes_.push_back({mirror, ids.data(), static_cast<int64_t>(ids.size())});
  }
  KVC_TRY(forward.stage(class_layers_, node_changes_));
  for (int32_t g = 0; g < num_groups(); ++g) store_.forget_changed_nodes(g);
  return Status();
}

}  // namespace kvc
