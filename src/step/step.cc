#include "step/step.h"

#include <algorithm>

#include "base/assert.h"

namespace kvc {

Status Step::create(const Layers& layers, std::unique_ptr<Step>* out) {
  std::unique_ptr<Forward> forward;
  KVC_TRY(Forward::create(layers.context(), layers.geometry(), layers.work_classes(), layers.class_layers(), &forward));
  out->reset(new Step(layers, std::move(forward)));
  return Status();
}

Status Step::create_graph(const Layers& layers, const BatchLimits& limits, int32_t pages_per_row,
                          std::unique_ptr<Step>* out) {
  Geometry sized = layers.geometry();
  sized.limits = limits;
  std::unique_ptr<Forward> forward;
  KVC_TRY(Forward::create(layers.context(), sized, layers.work_classes(), layers.class_layers(), &forward));
  forward->graph = true;
  forward->tables = ForwardTables(limits, pages_per_row);
  out->reset(new Step(layers, std::move(forward)));
  return Status();
}

void Step::start(StepKind kind, const BatchArrays& batch, std::span<const int32_t> slots, const RopeSets& rope_sets,
                 void* stream) noexcept {
  KVC_ASSERT(!open_ && !in_use_, generation_, slots.size());
  forward_->start();
  broken_ = false;
  forward_->kind = kind;
  forward_->num_rows = batch.num_rows();
  forward_->stream = stream;
  std::copy_n(slots.begin(), forward_->num_rows, forward_->slots.data());
  std::copy_n(batch.lengths().begin(), forward_->num_rows, forward_->append_lengths.data());
  if (rope_sets.empty()) return;
  for (int32_t row = 0; row < forward_->num_rows; ++row) forward_->rope_sets[row] = rope_sets.of(forward_->slots[row]);
}

void Step::open(SequenceStore* store, const BatchArrays& batch) noexcept {
  BatchPlan& plan = *forward_->batch;
  const bool own_tokens = kind().encoder_group < 0, streaming = layers_.geometry().limits.streaming;
  if (own_tokens) find_state_pages(*store, batch.parents());
  plan.build(*store, slots(), lengths(), kind().encoder_group);
  if (kind().with_trees) {
    store->add_nodes(slots(), lengths(), batch.parents());
    plan.add_trees(*store, slots(), lengths());
  }
  if (batch.has_spans()) plan.add_spans(batch.span_ids());
  if (streaming && own_tokens) plan.add_streams(*store, slots());
  std::vector<StreamWindow>& streams = forward_->tables.streams();
  streams.clear();
  if (streaming) {
    for (const int32_t slot : slots()) streams.push_back(slot < 0 ? StreamWindow{} : store->stream(slot));
  }
  forward_->finish_batch();
  open_ = true;
}

Status Step::stage(std::span<const kvc_backend_node_changes> changes) { return forward_->stage(changes); }

Status Step::unstage() {
  Status done = forward_->unstage();
  if (Status stale = forward_->tables.close(context(), forward_->stream); done.ok()) done = std::move(stale);
  return done;
}

void Step::close() noexcept {
  KVC_ASSERT(open_ && !in_use_, generation_, forward_->num_rows);
  open_ = false;
  pending_.clear();
}

Status Step::check_filled(int32_t begin, int32_t end) const {
  for (const bool waits : {false, true}) {  // a call that cannot continue does not wait first
    for (const PendingLoad& load : pending_) {
      if (load.waits != waits) continue;
      for (int32_t layer = begin; layer < end; ++layer) {
        KVC_TRY(load.progress->wait(layer, waits, &forward_->cancelled));
      }
    }
  }
  return Status();
}

bool Step::appends(int32_t layer) const {
  const Layer& l = layers_[layer];
  if (l.kv_layer >= 0 || l.states) return false;
  return layers_.rules(l).grows(l.group, forward_->kind.encoder_group);
}

Status Step::check_complete() const {
  const uint64_t lasts = forward_->state_pages.empty() ? 0 : last_tokens();  // only states need them
  for (int32_t layer = forward_->kind.layers.begin; layer < forward_->kind.layers.end; ++layer) {
    const auto index = static_cast<size_t>(layer);
    if (forward_->batch->rows().num_tokens == 0) continue;  // nothing to append
    if (layers_[layer].states && forward_->kind.encoder_group < 0) {
      for (int32_t state = 0; state < forward_->calls.num_states(index); ++state) {
        const uint64_t stored = forward_->calls.stored_state(index, state, forward_->replayed());
        if ((stored & LayerCalls::kLast) != 0 || (stored != 0 && (lasts & ~stored) == 0)) continue;
        return Status::error(KVC_ERROR_ORDER, "state %d of layer %d was not stored%s", state, layer,
                             stored == 0 ? "" : " after the last token of every row")
            .at(layer);
      }
      continue;
    }
    if (layers_.geometry().tables_only || !appends(layer)) continue;
    if (forward_->calls.has_append(index, forward_->replayed()) || has_appended(layer)) continue;
    const bool attended = forward_->calls.attended(index, LayerCalls::kPast | LayerCalls::kSelf);
    return Status::error(KVC_ERROR_ORDER, "layer %d was %s", layer,
                         attended ? "not appended" : "neither attended nor appended")
        .at(layer);
  }
  return Status();
}

int64_t Step::computed_tokens() const noexcept {
  const LayerRange range = kind().layers;
  if (range.begin != 0 || range.end != layers_.size() || kind().encoder_group >= 0) return 0;
  for (int32_t layer = 0; layer < range.end; ++layer) {
    if (forward_->calls.attended(static_cast<size_t>(layer), LayerCalls::kPast | LayerCalls::kSelf)) {
      return forward_->batch->rows().num_tokens;
    }
  }
  return 0;
}

Status Step::info(kvc_forward_info* out) const {
  const kvc_backend_rows& rows = forward_->batch->rows();
  static constexpr int64_t kStride = 1;
  out->num_sequences = rows.num_rows;
  out->num_tokens = rows.num_tokens;
  out->positions_host = rows.positions;
  out->last_rows_host = forward_->batch->last_rows();
  const auto tensor = [&](const int32_t* data, int64_t* shape) {
    return DLTensor{const_cast<int32_t*>(data),
                    context().dl_device(),
                    1,
                    {kDLInt, 32, 1},
                    shape,
                    const_cast<int64_t*>(&kStride),
                    0};
  };
  const int32_t *positions, *last_rows;
  forward_->device_rows(&positions, &last_rows);
  out->positions = tensor(positions, &forward_->info_shapes[0]);
  out->last_rows = tensor(last_rows, &forward_->info_shapes[1]);
  return Status();
}

}  // namespace kvc
