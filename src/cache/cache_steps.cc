// Steps: begin, end, abort, cancel, and calls within a step.
#include "cache/cache_steps.h"

#include <algorithm>
#include <cinttypes>

#include "base/steady_clock.h"

namespace kvc {

CacheSteps::CacheSteps(CacheCore* core)
    : core_(*core),
      ids_(IdKind::kForward, core->tag, core->geometry.max_open_forwards + kMaxGraphs),
      batch_(core->geometry.limits),
      slots_(static_cast<size_t>(core->geometry.limits.rows)) {}

Status CacheSteps::prepare() {
  MutexLock lock(core_.mutex);
  KVC_TRY(create_mirrors());
  for (int32_t i = 0; i < core_.geometry.max_open_forwards; ++i) {
    std::unique_ptr<Step> step;
    KVC_TRY(Step::create(core_.layers, &step));
    core_.steps.push_back(std::move(step));
  }
  core_.steps.resize(core_.steps.size() + kMaxGraphs);
  return Status();
}

// Creates the mirror of each group. A group has no mirror if the device reads the host's page lists, if the cache has
// KVC_STORAGE_NONE, or if the group holds states.
Status CacheSteps::create_mirrors() {
  mirrors_.resize(static_cast<size_t>(core_.num_groups()));
  if (core_.context->backend().mirror_create == nullptr || core_.geometry.tables_only) return Status();
  for (int32_t g = 0; g < core_.num_groups(); ++g) {
    if (core_.rules(g).holds_state()) continue;
    const PageTable& table = core_.store.table(g);
    core_.store.track_changed_nodes(g);
    KVC_TRY(
        NodeMirror::create(core_.context, table.node_data(), table.nodes().size(), &mirrors_[static_cast<size_t>(g)]));
  }
  node_changes_.reserve(mirrors_.size());
  return Status();
}

uint64_t CacheSteps::step_id(int32_t index) const {
  return ids_.make(core_.steps[static_cast<size_t>(index)]->generation(), index);
}

Status CacheSteps::resolve_step(kvc_forward id, Step** step) const {
  const int32_t index = ids_.slot_of(id);
  const bool in_range = index >= 0 && index < static_cast<int32_t>(core_.steps.size());
  Step* const found = in_range ? core_.steps[static_cast<size_t>(index)].get() : nullptr;
  if (found == nullptr || !(found->is_open() || found->is_graph()) || step_id(index) != id) {
    // An id that this cache returned earlier has a valid index and the tag of this cache, but an old generation.
    const bool ended = in_range && kind_of(id) == IdKind::kForward && tag_of(id) == tag_of(ids_.make(0, index));
    if (ended) return Status::error(KVC_ERROR_STALE_ID, "this forward has ended");
    return Status::error(KVC_ERROR_STALE_ID, "%" PRIu64 " is no forward of this cache", id);
  }
  if (!found->is_open()) return Status::error(KVC_ERROR_STALE, "no forward is open in graph %" PRIu64, id);
  *step = found;
  return Status();
}

Status CacheSteps::enter_step(kvc_forward id, bool even_cancelled, Step** step) {
  MutexLock lock(core_.mutex);
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

void CacheSteps::leave_step(Step& step) noexcept {
  MutexLock lock(core_.mutex);
  step.leave();
  // Until a forward ends, its work is normally ordered only on its own stream. But before the end, a poll of a transfer
  // may read the rows of this forward on another stream. So this call orders later work on all streams after the work
  // of the forward so far. If leave fails, later calls fail too (StreamOrder::check).
  if (core_.sent.note_call(step)) (void)core_.order.leave(step.stream()).ok();
  if (!step.broken() || close(step, false).code() != KVC_ERROR_ORDER) return;
  step.cancel();  // the stream is being captured, so the step stays open; after the capture, only abort is allowed
}

// Checks that pending loads have filled layers [begin, end), or waits for it. Then orders the work of the step after
// these loads, because the step may have begun before them.
Status CacheSteps::await(Step& step, int32_t begin, int32_t end) {
  KVC_TRY(step.check_filled(begin, end));
  MutexLock lock(core_.mutex);
  KVC_TRY(core_.order.check_stream(step.stream()));
  return core_.order.enter(step.stream());
}

// Finds the loads that still fill pages of the batch's sequences. Throws std::bad_alloc.
Status CacheSteps::find_pending(Step* step) {
  step->pending().clear();
  if (core_.pending.empty()) return Status();
  core_.pending.settle(&core_.store, &core_.sent);
  for (size_t i = 0; i < batch_.ids().size(); ++i) {
    const PendingPrefixes::Entry* const entry = core_.pending.find(batch_.ids()[i]);
    if (entry == nullptr) continue;
    if (step->is_graph()) return core_.store.pending_error(slots_[i], static_cast<int64_t>(i));
    KVC_TRY(entry->progress->check_not_failed());
    step->pending().push_back({entry->progress, entry->waits});
  }
  return Status();
}

// Finds the index of a step that can begin: the step of `graph` or, if graph is 0, a step that is not open.
Status CacheSteps::find_step(kvc_forward graph, int32_t* index) const {
  if (graph != 0) {
    KVC_TRY(resolve_graph(graph, index));
    if (!core_.steps[static_cast<size_t>(*index)]->is_open()) return Status();
    return Status::error(KVC_ERROR_BUSY, "a forward is open in graph %" PRIu64, graph);
  }
  const auto end = core_.steps.begin() + core_.geometry.max_open_forwards;
  const auto free = std::find_if(core_.steps.begin(), end, [](const auto& step) { return !step->is_open(); });
  *index = static_cast<int32_t>(free - core_.steps.begin());
  if (free != end) return Status();
  const int64_t most = core_.geometry.max_open_forwards;
  return Status::error(KVC_ERROR_TOO_MANY_FORWARDS, "max_open_forwards is %" PRId64 ", and as many forwards are open",
                       most)
      .missing(most + 1, most);
}

// Checks the batch of begin or can_fit. On success, *kind is the kind of the step, *index is the index of the step to
// use, and slots_[i] is the slot of row i's sequence in the store, or -1 for an inert row.
Status CacheSteps::check_batch(const kvc_batch& batch, StepKind* kind, int32_t* index) {
  const int32_t num_layers = core_.layers.size();
  const bool all = batch.layer_begin == 0 && batch.layer_end == 0;
  if (!all && (batch.layer_begin < 0 || batch.layer_end > num_layers || batch.layer_begin >= batch.layer_end)) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "layers [%d, %d) are not within [0, %d)", batch.layer_begin,
                         batch.layer_end, num_layers);
  }
  KVC_TRY(batch_.read(batch));
  KVC_TRY(find_step(batch.graph, index));
  if (const Step& target = *core_.steps[static_cast<size_t>(*index)]; target.is_graph()) {
    KVC_TRY(batch_.check_limits(target.limits(), "the graph's max_sequences", "the graph's max_tokens"));
  }
  KVC_TRY(read_kind(batch, kind));
  kind->layers = all ? LayerRange{0, num_layers} : LayerRange{batch.layer_begin, batch.layer_end};
  if (kind->with_trees) KVC_TRY(core_.store.check_trees(batch_.ids(), batch_.lengths(), batch_.parents()));
  KVC_TRY(core_.copies.check_taken());
  return core_.store.check_step(batch_.ids(), batch_.lengths(), std::span(slots_).first(batch_.ids().size()), *kind,
                                batch_.parents());
}

// Returns UNSUPPORTED if a group stores one row for several tokens. what: the argument or object of the caller that
// needs one row for each token.
Status CacheSteps::check_no_compressed_group(const char* what) const {
  for (int32_t g = 0; g < core_.num_groups(); ++g) {
    const GroupRules& rules = core_.rules(g);
    if (!rules.compresses()) continue;
    return Status::error(KVC_ERROR_UNSUPPORTED, "%s, and group %d has a row for each %" PRId64 " tokens", what, g,
                         rules.tokens_per_row)
        .in_group(g);
  }
  return Status();
}

Status CacheSteps::read_kind(const kvc_batch& batch, StepKind* out) const {
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
  if (out->encoder_group >= core_.num_groups() || !core_.rules(out->encoder_group).holds_encoder()) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "encoder_group names group %d, which is no cross group",
                         out->encoder_group);
  }
  if (!out->with_trees && !batch_.with_spans()) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s is given, and encoder_group names group %d",
                       out->with_trees ? "tree_parents" : "span_ids", out->encoder_group);
}

Status CacheSteps::can_fit(const kvc_batch& batch) {
  MutexLock lock(core_.mutex);
  int32_t index = -1;
  StepKind kind;
  return check_batch(batch, &kind, &index);
}

Status CacheSteps::begin(const kvc_batch& batch, void* stream, kvc_forward* out) {
  KVC_TRY(core_.context->check_stream(stream));
  MutexLock lock(core_.mutex);
  int32_t index = -1;
  StepKind kind;
  KVC_TRY(check_batch(batch, &kind, &index));
  KVC_TRY(core_.order.check_stream(stream));
  Step& step = *core_.steps[static_cast<size_t>(index)];
  KVC_TRY(find_pending(&step));
  KVC_TRY(core_.order.enter(stream));
  if (!step.is_graph()) step.set_generation(step.generation() + 1);
  step.start(kind, batch_, slots_, core_.rope_sets, stream);
  if (core_.measures_tokens()) step.set_begin_ns(steady_ns());
  std::vector<SlotCopy>* const copies = core_.copies.plan();
  core_.copies.reserve(core_.store.most_copies(static_cast<int64_t>(batch_.ids().size())));
  core_.store.reserve(step.slots(), step.lengths(), step.reservations(), copies, kind, batch_.parents());
  if (Status copied = core_.copies.make(stream); !copied.ok()) {
    core_.store.rollback(step.slots(), step.reservations());
    return copied;
  }
  core_.copies.queue().own(&step);
  step.open(&core_.store, batch_);
  core_.context->pool().keep_awake(1);
  Status ready = stage(step);
  if (ready.ok()) ready = core_.order.leave(stream);  // so that later calls on any stream read the changed page lists
  if (!ready.ok()) {
    give_back(step, false);
    return ready;
  }
  *out = step_id(index);
  return Status();
}

// If the device keeps copies of a step's index arrays, sends it these arrays, and the nodes of page lists that changed
// since the last step.
Status CacheSteps::stage(Step& step) {
  if (!step.is_staged()) return Status();
  node_changes_.clear();
  for (int32_t g = 0; g < core_.num_groups(); ++g) {
    kvc_backend_mirror* const mirror = mirrors_[static_cast<size_t>(g)].get();
    if (mirror == nullptr) continue;
    const std::span<const int32_t> ids = core_.store.changed_nodes(g);
    step.set_device_nodes(g, mirrors_[static_cast<size_t>(g)].nodes());
    node_changes_.push_back({mirror, ids.data(), static_cast<int64_t>(ids.size())});
  }
  KVC_TRY(step.stage(node_changes_));
  for (int32_t g = 0; g < core_.num_groups(); ++g) core_.store.forget_changed_nodes(g);
  return Status();
}

// Closes a step, and orders later work on other streams after the work of the step, because this later work may use
// pages that the step has freed.
Status CacheSteps::close(Step& step, bool keep) {
  Status left = core_.order.check_stream(step.stream());
  if (left.code() == KVC_ERROR_ORDER) return left;
  if (Status unstaged = step.unstage(); left.ok()) left = std::move(unstaged);
  if (Status ordered = core_.order.leave(step.stream()); left.ok()) left = std::move(ordered);
  give_back(step, keep && left.ok());
  return left;
}

void CacheSteps::give_back(Step& step, bool keep) {
  if (step.kind().with_trees) core_.store.close_nodes(step.slots(), step.lengths(), keep);
  if (keep) {
    core_.store.commit(step.slots(), step.lengths(), step.reservations(), step.kind(), step.stored_states());
  } else {
    core_.store.rollback(step.slots(), step.reservations());
  }
  core_.sent.note_end(step, keep);
  core_.copies.queue().close_step(&step, keep);
  step.close();
  if (!core_.pending.empty()) core_.pending.settle(&core_.store, &core_.sent);
  core_.context->pool().keep_awake(-1);
}

// Checks that nothing of a step is pending, before it ends.
Status CacheSteps::await_all(kvc_forward id) {
  {
    MutexLock lock(core_.mutex);
    Step* step = nullptr;
    KVC_TRY(resolve_step(id, &step));
    if (!step->has_pending()) return Status();
  }
  return in_step(id, false, [&](Step& step) { return await(step, 0, core_.layers.size()); });
}

Status CacheSteps::end(kvc_forward id) {
  KVC_TRY(await_all(id));
  MutexLock lock(core_.mutex);
  Step* step = nullptr;
  KVC_TRY(resolve_step(id, &step));
  if (step->in_use()) return Status::error(KVC_ERROR_BUSY, "this forward is in use by another thread");
  if (step->cancelled()) return Status::error(KVC_ERROR_CANCELLED, "this forward was cancelled");
  KVC_TRY(step->check_complete());
  const int64_t tokens = core_.measures_tokens() ? step->computed_tokens() : 0, begin_ns = step->begin_ns();
  Status closed = close(*step, true);
  if (closed.ok() && tokens > 0) core_.token_meter.add(tokens, begin_ns, steady_ns());
  return closed;
}

Status CacheSteps::abort(kvc_forward id) {
  MutexLock lock(core_.mutex);
  Step* step = nullptr;
  KVC_TRY(resolve_step(id, &step));
  if (step->in_use()) {
    return Status::error(KVC_ERROR_BUSY, "this forward computes on another thread: cancel it first");
  }
  return close(*step, false);
}

Status CacheSteps::cancel(kvc_forward id) {
  MutexLock lock(core_.mutex);
  Step* step = nullptr;
  KVC_TRY(resolve_step(id, &step));
  step->cancel();
  return Status();
}

Status CacheSteps::info(kvc_forward id, kvc_forward_info* out) {
  MutexLock lock(core_.mutex);
  Step* step = nullptr;
  KVC_TRY(resolve_step(id, &step));
  return step->info(out);
}

}  // namespace kvc
