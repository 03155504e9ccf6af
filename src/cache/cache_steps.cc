// Steps: begin, end, abort, cancel, and calls within a step.
#include <algorithm>
#include <cinttypes>

#include "cache/cache.h"

namespace kvc {

uint64_t Cache::step_id(int32_t index) const {
  return step_ids_.make(steps_[static_cast<size_t>(index)]->generation(), index);
}

Status Cache::resolve_step(kvc_forward id, Step** step) const {
  const int32_t index = step_ids_.slot_of(id);
  const bool in_range = index >= 0 && index < static_cast<int32_t>(steps_.size());
  Step* const found = in_range ? steps_[static_cast<size_t>(index)].get() : nullptr;
  if (found == nullptr || !(found->is_open() || found->is_graph()) || step_id(index) != id) {
    // An id that this cache returned earlier has the right slot and tag, and an old generation.
    const bool ended = in_range && kind_of(id) == IdKind::kForward && tag_of(id) == tag_of(step_ids_.make(0, index));
    if (ended) return Status::error(KVC_ERROR_STALE_ID, "this forward has ended");
    return Status::error(KVC_ERROR_STALE_ID, "%" PRIu64 " is no forward of this cache", id);
  }
  if (!found->is_open()) return Status::error(KVC_ERROR_STALE, "no forward is open in graph %" PRIu64, id);
  *step = found;
  return Status();
}

Status Cache::enter_step(kvc_forward id, bool even_cancelled, Step** step) {
  MutexLock lock(mutex_);
  Step* found = nullptr;
  KVC_TRY(resolve_step(id, &found));
  if (found->in_use()) return Status::error(KVC_ERROR_BUSY, "this forward is in use by another thread");
  if (!even_cancelled && found->cancelled()) {
    return Status::error(KVC_ERROR_CANCELLED, "this forward was cancelled");
  }
  found->enter();
  *step = found;
  return Status();
}

void Cache::leave_step(Step& step) noexcept {
  MutexLock lock(mutex_);
  step.leave();
  if (transfers_) transfers_->note_call(step);
  if (!step.broken() || close(step, false).code() != KVC_ERROR_ORDER) return;
  step.cancel();  // its stream is being captured, so it stays open; after the capture, only abort is allowed
}

// Finds the index of a step that can begin: a free step, or the step of `graph`.
Status Cache::find_step(kvc_forward graph, int32_t* index) const {
  if (graph != 0) {
    KVC_TRY(resolve_graph(graph, index));
    if (!steps_[static_cast<size_t>(*index)]->is_open()) return Status();
    return Status::error(KVC_ERROR_BUSY, "a forward is open in graph %" PRIu64, graph);
  }
  const auto end = steps_.begin() + geometry_.max_open_forwards;
  const auto free = std::find_if(steps_.begin(), end, [](const auto& step) { return !step->is_open(); });
  *index = static_cast<int32_t>(free - steps_.begin());
  if (free != end) return Status();
  const int64_t most = geometry_.max_open_forwards;
  return Status::error(KVC_ERROR_TOO_MANY_FORWARDS, "max_open_forwards is %" PRId64 ", and as many forwards are open",
                       most)
      .missing(most + 1, most);
}

// Makes the checks of begin and can_fit. On success, slots[i] is the slot of the sequence in row i, and *index is the
// index of the step to use.
Status Cache::check_batch(const kvc_batch& batch, std::span<int32_t> slots, StepKind* kind, int32_t* index) {
  const int32_t num_layers = layers_.size();
  const bool all = batch.layer_begin == 0 && batch.layer_end == 0;
  if (!all && (batch.layer_begin < 0 || batch.layer_end > num_layers || batch.layer_begin >= batch.layer_end)) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "layers [%d, %d) are not within [0, %d)", batch.layer_begin,
                         batch.layer_end, num_layers);
  }
  KVC_TRY(batch_.read(batch));
  KVC_TRY(find_step(batch.graph, index));
  if (const Step& target = *steps_[static_cast<size_t>(*index)]; target.is_graph()) {
    KVC_TRY(batch_.check_limits(target.limits(), "the graph's max_sequences", "the graph's max_tokens"));
  }
  KVC_TRY(read_kind(batch, kind));
  kind->layers = all ? LayerRange{0, num_layers} : LayerRange{batch.layer_begin, batch.layer_end};
  if (kind->with_trees) KVC_TRY(store_.check_trees(batch_.ids(), batch_.lengths(), batch_.parents()));
  KVC_TRY(check_copies_taken());
  return store_.check_step(batch_.ids(), batch_.lengths(), slots.first(batch_.ids().size()), *kind, batch_.parents());
}

// Refuses a call that needs one stored row for each token, if a group stores one row for several tokens.
Status Cache::check_no_compressed_group(const char* what) const {
  for (int32_t g = 0; g < num_groups(); ++g) {
    const GroupRules& rules = geometry_.store.groups[static_cast<size_t>(g)].rules;
    if (!rules.compresses()) continue;
    return Status::error(KVC_ERROR_UNSUPPORTED, "%s, and group %d has a row for each %" PRId64 " tokens", what, g,
                         rules.tokens_per_row)
        .in_group(g);
  }
  return Status();
}

Status Cache::read_kind(const kvc_batch& batch, StepKind* out) const {
  out->with_trees = batch_.with_trees();
  out->encoder_group = std::max(batch.encoder_group, 0) - 1;
  if (batch.reserved != 0) return Status::error(KVC_ERROR_UNSUPPORTED, "reserved 0x%x is not 0", batch.reserved);
  KVC_TRY(batch_.check_spans());
  if (out->with_trees || batch_.with_spans()) {
    KVC_TRY(check_no_compressed_group(out->with_trees ? "tree_parents" : "span_ids"));
  }
  if (batch.encoder_group == 0) return Status();
  if (batch.encoder_group < 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "encoder_group %d is negative", batch.encoder_group);
  }
  const auto group = static_cast<size_t>(out->encoder_group);
  if (out->encoder_group >= num_groups() || !geometry_.store.groups[group].rules.holds_encoder()) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "encoder_group names group %d, which is no cross group",
                         out->encoder_group);
  }
  if (!out->with_trees && !batch_.with_spans()) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s is given, and encoder_group names group %d",
                       out->with_trees ? "tree_parents" : "span_ids", out->encoder_group);
}

Status Cache::can_fit(const kvc_batch& batch) {
  MutexLock lock(mutex_);
  int32_t index = -1;
  StepKind kind;
  return check_batch(batch, checked_slots_, &kind, &index);
}

Status Cache::begin(const kvc_batch& batch, void* stream, kvc_forward* out) {
  KVC_TRY(context_->check_stream(stream));
  MutexLock lock(mutex_);
  int32_t index = -1;
  StepKind kind;
  KVC_TRY(check_batch(batch, checked_slots_, &kind, &index));
  KVC_TRY(order_.check_stream(stream));
  KVC_TRY(order_.enter(stream));
  Step& step = *steps_[static_cast<size_t>(index)];
  if (!step.is_graph()) step.set_generation(step.generation() + 1);
  step.start(kind, batch_, checked_slots_, rope_sets_, stream);
  copies_.clear();
  copies_.reserve(static_cast<size_t>(store_.most_copies(static_cast<int64_t>(batch_.ids().size()))));
  store_.reserve(step.slots(), step.lengths(), step.reservations(), &copies_, kind, batch_.parents());
  if (Status copied = copy_slots(copies_, stream); !copied.ok()) {
    store_.rollback(step.slots(), step.reservations());
    return copied;
  }
  copy_queue_.own(&step);
  step.open(&store_, batch_);
  context_->pool().keep_awake(1);
  Status ready = stage(step);
  if (ready.ok()) ready = order_.leave(stream);  // later calls on any stream then read the changed page lists
  if (!ready.ok()) {
    give_back(step, false);
    return ready;
  }
  *out = step_id(index);
  return Status();
}

// Sends the index arrays of the step to the device, and the nodes of page lists that changed since the last step.
Status Cache::stage(Step& step) {
  if (!step.is_staged()) return Status();
  node_changes_.clear();
  for (int32_t g = 0; g < num_groups(); ++g) {
    kvc_backend_mirror* const mirror = mirrors_[static_cast<size_t>(g)].get();
    if (mirror == nullptr) continue;
    const std::span<const int32_t> ids = store_.changed_nodes(g);
    step.set_device_nodes(g, mirrors_[static_cast<size_t>(g)].nodes());
    node_changes_.push_back({mirror, ids.data(), static_cast<int64_t>(ids.size())});
  }
  KVC_TRY(step.stage(node_changes_));
  for (int32_t g = 0; g < num_groups(); ++g) store_.forget_changed_nodes(g);
  return Status();
}

// Closes a step. Later work on other streams may reuse its pages, so that work is ordered after the work of the step.
Status Cache::close(Step& step, bool keep) {
  Status left = order_.check_stream(step.stream());
  if (!left.ok()) return left;
  left = step.unstage();
  if (Status ordered = order_.leave(step.stream()); left.ok()) left = std::move(ordered);
  give_back(step, keep && left.ok());
  return left;
}

void Cache::give_back(Step& step, bool keep) {
  if (step.kind().with_trees) store_.close_nodes(step.slots(), step.lengths(), keep);
  if (keep) {
    store_.commit(step.slots(), step.lengths(), step.reservations(), step.kind(), step.stored_states());
  } else {
    store_.rollback(step.slots(), step.reservations());
  }
  if (transfers_) transfers_->note_end(step, keep);
  copy_queue_.close_step(&step, keep);
  step.close();
  context_->pool().keep_awake(-1);
}

Status Cache::end(kvc_forward id) {
  MutexLock lock(mutex_);
  Step* step = nullptr;
  KVC_TRY(resolve_step(id, &step));
  if (step->in_use()) return Status::error(KVC_ERROR_BUSY, "this forward is in use by another thread");
  if (step->cancelled()) return Status::error(KVC_ERROR_CANCELLED, "this forward was cancelled");
  KVC_TRY(step->check_complete());
  return close(*step, true);
}

Status Cache::abort(kvc_forward id) {
  MutexLock lock(mutex_);
  Step* step = nullptr;
  KVC_TRY(resolve_step(id, &step));
  if (step->in_use()) {
    return Status::error(KVC_ERROR_BUSY, "this forward computes on another thread: cancel it first");
  }
  return close(*step, false);
}

Status Cache::cancel(kvc_forward id) {
  MutexLock lock(mutex_);
  Step* step = nullptr;
  KVC_TRY(resolve_step(id, &step));
  step->cancel();
  return Status();
}

Status Cache::info(kvc_forward id, kvc_forward_info* out) {
  MutexLock lock(mutex_);
  Step* step = nullptr;
  KVC_TRY(resolve_step(id, &step));
  return step->info(out);
}

}  // namespace kvc
