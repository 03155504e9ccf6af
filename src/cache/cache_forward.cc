// Forward steps: begin, append, attend, end, abort, cancel.
#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "cache/cache.h"

namespace kvc {

// Marks a step as in use by this call: a second call on it meanwhile gets BUSY.
class Cache::ForwardUse {
 public:
  explicit ForwardUse(Cache& cache) : cache_(cache) {}
  ~ForwardUse() {
    if (forward_ == nullptr) return;
    MutexLock lock(cache_.mutex_);
    forward_->in_use = false;
    if (broken_) cache_.close(*forward_, false);
  }
  ForwardUse(const ForwardUse&) = delete;
  ForwardUse& operator=(const ForwardUse&) = delete;

  Status enter(kvc_forward id) {
    MutexLock lock(cache_.mutex_);
    int32_t slot = -1;
    KVC_TRY(cache_.resolve_forward(id, &slot));
    Forward& forward = *cache_.forwards_[static_cast<size_t>(slot)];
    if (forward.in_use) return Status::error(KVC_ERROR_BUSY, "forward %" PRIu64 " is in use by another thread", id);
    forward.in_use = true;
    forward_ = &forward;
    return Status();
  }

  Status enter_unless_cancelled(kvc_forward id) {
    KVC_TRY(enter(id));
    if (__atomic_load_n(&forward_->cancelled, __ATOMIC_RELAXED) == 0) return Status();
    return Status::error(KVC_ERROR_CANCELLED, "forward %" PRIu64 " was cancelled", id);
  }

  // What the device said: any failure but a cancellation closes the step as abort.
  Status done(Status status) {
    broken_ = !status.ok() && status.code() != KVC_ERROR_CANCELLED;
    return status;
  }

  Forward& operator*() const { return *forward_; }
  Forward* operator->() const { return forward_; }

 private:
  Cache& cache_;
  Forward* forward_ = nullptr;
  bool broken_ = false;
};

uint64_t Cache::forward_id(int32_t slot) const {
  return forward_ids_.make(forwards_[static_cast<size_t>(slot)]->generation, slot);
}

Status Cache::resolve_forward(kvc_forward id, int32_t* slot) const {
  const int32_t candidate = forward_ids_.slot_of(id);
  if (candidate >= 0 && candidate < static_cast<int32_t>(forwards_.size()) &&
      forwards_[static_cast<size_t>(candidate)]->open && forward_id(candidate) == id) {
    *slot = candidate;
    return Status();
  }
  return Status::error(KVC_ERROR_STALE_ID, "forward %" PRIu64 " is not open in this cache", id);
}

// The checks of begin and can_fit. On success slots[i] is row i's slot, and *forward a free Forward.
Status Cache::check_batch(const kvc_batch& batch, std::span<int32_t> slots, int32_t* forward) {
  const auto num_layers = static_cast<int32_t>(layers_.size());
  const bool all = batch.layer_begin == 0 && batch.layer_end == 0;
  if (!all && (batch.layer_begin < 0 || batch.layer_end > num_layers || batch.layer_begin >= batch.layer_end)) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "layers [%d, %d) are not within [0, %d)", batch.layer_begin,
                         batch.layer_end, num_layers);
  }
  const int32_t rows = batch.num_sequences;
  if (rows < 0) return Status::error(KVC_ERROR_INVALID_ARGUMENT, "num_sequences %d is negative", rows);
  if (rows > 0 && (batch.sequences == nullptr || batch.append_lengths == nullptr)) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL with num_sequences %d",
                         batch.sequences == nullptr ? "sequences" : "append_lengths", rows);
  }
  if (rows > geometry_.limits.rows) {
    return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "%d rows exceed max_sequences %" PRId64, rows,
                         geometry_.limits.rows)
        .missing(rows, geometry_.limits.rows);
  }
  int64_t tokens = 0;
  int64_t first_over = -1;
  for (int32_t i = 0; i < rows; ++i) {
    tokens += std::max(batch.append_lengths[i], 0);
    if (tokens > geometry_.limits.tokens && first_over < 0) first_over = i;
  }
  if (first_over >= 0) {
    return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "%" PRId64 " tokens exceed max_batch_tokens %" PRId64, tokens,
                         geometry_.limits.tokens)
        .at(first_over)
        .missing(tokens, geometry_.limits.tokens);
  }
  const auto free = std::find_if(forwards_.begin(), forwards_.end(), [](const auto& f) { return !f->open; });
  if (free == forwards_.end()) {
    const auto most = static_cast<int64_t>(forwards_.size());
    return Status::error(KVC_ERROR_TOO_MANY_FORWARDS, "%" PRId64 " forwards are open already", most)
        .missing(most + 1, most);
  }
  *forward = static_cast<int32_t>(free - forwards_.begin());
  const auto n = static_cast<size_t>(rows);
  const bool trees = batch.tree_parents != nullptr;
  if (trees) {
    const std::span<const int32_t> parents = {batch.tree_parents, static_cast<size_t>(tokens)};
    KVC_TRY(store_.check_trees({batch.sequences, n}, {batch.append_lengths, n}, parents));
  }
  return store_.check_step({batch.sequences, n}, {batch.append_lengths, n}, slots.first(n), trees);
}

Status Cache::can_fit(const kvc_batch& batch) {
  MutexLock lock(mutex_);
  int32_t forward = -1;
  return check_batch(batch, checked_slots_, &forward);
}

Status Cache::begin(const kvc_batch& batch, void* stream, kvc_forward* out) {
  KVC_TRY(check_stream(stream));
  MutexLock lock(mutex_);
  int32_t index = -1;
  KVC_TRY(check_batch(batch, checked_slots_, &index));
  Forward& forward = *forwards_[static_cast<size_t>(index)];
  forward.start();
  ++forward.generation;
  forward.num_rows = batch.num_sequences;
  forward.layer_begin = batch.layer_begin;
  forward.layer_end = batch.layer_end == 0 ? static_cast<int32_t>(layers_.size()) : batch.layer_end;
  forward.stream = stream;
  std::copy_n(checked_slots_.begin(), forward.num_rows, forward.slots.data());
  std::copy_n(batch.append_lengths, forward.num_rows, forward.append_lengths.data());
  for (int32_t row = 0; row < forward.num_rows; ++row) forward.rope_sets[row] = rope_sets_.of(forward.slots[row]);
  copies_.clear();
  store_.reserve(forward.row_slots(), forward.row_lengths(), forward.row_reservations(num_groups()), &copies_);
  if (Status copied = copy_slots(copies_, stream); !copied.ok()) {
    store_.rollback(forward.row_slots(), forward.row_reservations(num_groups()));
    return copied;
  }
  forward.batch->build(store_, forward.row_slots(), forward.row_lengths());
  forward.trees = batch.tree_parents != nullptr;
  if (forward.trees) {
    const auto tokens = static_cast<size_t>(forward.batch->rows().num_tokens);
    store_.add_nodes(forward.row_slots(), forward.row_lengths(), {batch.tree_parents, tokens});
    forward.batch->add_trees(store_, forward.row_slots(), forward.row_lengths());
  }
  forward.info_shapes[0] = forward.batch->rows().num_tokens;
  forward.info_shapes[1] = forward.num_rows;
  forward.open = true;
  context_->pool().keep_awake(1);
  *out = forward_id(index);
  return Status();
}

void Cache::close(Forward& forward, bool keep) {
  if (forward.trees) store_.close_nodes(forward.row_slots(), forward.row_lengths(), keep);
  if (keep) {
    store_.commit(forward.row_slots(), forward.row_lengths(), forward.row_reservations(num_groups()));
  } else {
    store_.rollback(forward.row_slots(), forward.row_reservations(num_groups()));
  }
  forward.open = false;
  context_->pool().keep_awake(-1);
}

Status Cache::end(kvc_forward id) {
  MutexLock lock(mutex_);
  int32_t slot = -1;
  KVC_TRY(resolve_forward(id, &slot));
  Forward& forward = *forwards_[static_cast<size_t>(slot)];
  if (forward.in_use) return Status::error(KVC_ERROR_BUSY, "forward %" PRIu64 " is in use by another thread", id);
  if (__atomic_load_n(&forward.cancelled, __ATOMIC_RELAXED) != 0) {
    return Status::error(KVC_ERROR_CANCELLED, "forward %" PRIu64 " was cancelled", id);
  }
  for (int32_t layer = forward.layer_begin; layer < forward.layer_end; ++layer) {
    if ((forward.layer_state[static_cast<size_t>(layer)] & Forward::kAppended) != 0) continue;
    if (forward.batch->rows().num_tokens == 0) continue;  // nothing to append
    return Status::error(KVC_ERROR_ORDER, "layer %d was not appended", layer).at(layer);
  }
  close(forward, true);
  return Status();
}

Status Cache::abort(kvc_forward id) {
  MutexLock lock(mutex_);
  int32_t slot = -1;
  KVC_TRY(resolve_forward(id, &slot));
  Forward& forward = *forwards_[static_cast<size_t>(slot)];
  if (forward.in_use)
    return Status::error(KVC_ERROR_BUSY, "forward %" PRIu64 " computes on another thread: cancel it first", id);
  close(forward, false);
  return Status();
}

Status Cache::cancel(kvc_forward id) {
  MutexLock lock(mutex_);
  int32_t slot = -1;
  KVC_TRY(resolve_forward(id, &slot));
  __atomic_store_n(&forwards_[static_cast<size_t>(slot)]->cancelled, 1, __ATOMIC_RELAXED);
  return Status();
}

Status Cache::info(kvc_forward id, kvc_forward_info* out) {
  MutexLock lock(mutex_);
  int32_t slot = -1;
  KVC_TRY(resolve_forward(id, &slot));
  Forward& forward = *forwards_[static_cast<size_t>(slot)];
  const kvc_backend_rows& rows = forward.batch->rows();
  static constexpr int64_t kStride = 1;
  out->num_sequences = rows.num_rows;
  out->num_tokens = rows.num_tokens;
  out->positions_host = rows.positions;
  out->last_rows_host = forward.batch->last_rows();
  const auto tensor = [&](const int32_t* data, int64_t* shape) {
    return DLTensor{const_cast<int32_t*>(data),
                    context_->dl_device(),
                    1,
                    {kDLInt, 32, 1},
                    shape,
                    const_cast<int64_t*>(&kStride),
                    0};
  };
  out->positions = tensor(rows.positions, &forward.info_shapes[0]);
  out->last_rows = tensor(forward.batch->last_rows(), &forward.info_shapes[1]);
  return Status();
}

Status Cache::check_forward_layer(const Forward& forward, int32_t layer) const {
  KVC_TRY(check_layer(layer));
  if (layer >= forward.layer_begin && layer < forward.layer_end) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "layer %d is outside the forward's layers [%d, %d)", layer,
                       forward.layer_begin, forward.layer_end)
      .at(layer);
}

RowsSpec Cache::rows_spec(const char* name, int64_t tokens, int64_t heads, int64_t dims, bool written) const {
  return {name, tokens, heads, dims, context_->dl_device(), written};
}

Status Cache::check_kv(const Forward& forward, int32_t layer, const KvTensors& tensors, NewKv* out) const {
  if ((forward.layer_state[static_cast<size_t>(layer)] & Forward::kAppended) != 0) {
    return Status::error(KVC_ERROR_ORDER, "layer %d was appended already in this forward", layer).at(layer);
  }
  out->as_stored = tensors.as_stored;
  return check_kv_rows(tensors, layers_[static_cast<size_t>(layer)].backend(), forward.batch->rows().num_tokens,
                       context_->dl_device(), &out->rows);
}

// Whether stored keys are raw, and turn where they are read.
bool Cache::on_read(const kvc_backend_layer& layer) const {
  return layer.rope_class >= 0 && rope_tables_.rope(static_cast<size_t>(layer.rope_class)).on_read;
}

// A caller's cos and sin, or null.
Status Cache::check_rotation(const Forward& forward, int32_t layer, const DLTensor* cos_sin, const float** out) const {
  *out = nullptr;
  if (cos_sin == nullptr) return Status();
  const kvc_backend_layer& shape = layers_[static_cast<size_t>(layer)].backend();
  if (shape.rope_class < 0 || on_read(shape)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "rope_cos_sin is given, and layer %d does not rotate on append",
                         layer)
        .at(layer);
  }
  return check_cos_sin(*cos_sin, "rope_cos_sin", forward.batch->rows().num_tokens, shape.rope_dim / 2,
                       context_->dl_device(), out);
}

// cos and sin for the tokens of a step: the caller's, those of the layer's RoPE class, or null where nothing turns.
Status Cache::find_rotation(Forward& forward, const kvc_backend_layer& layer, const float* given,
                            const float** out) const {
  *out = given;
  if (layer.rope_class < 0 || given != nullptr) return Status();
  return forward.cos_sin(*context_, rope_tables_, static_cast<size_t>(layer.rope_class), out);
}

Status Cache::run_append(Forward& forward, int32_t layer, const NewKv& kv) {
  const Layer& target = layers_[static_cast<size_t>(layer)];
  kvc_backend_append args = {};
  args.layer = &target.backend();
  args.num_tokens = forward.batch->rows().num_tokens;
  args.slots = forward.batch->slot_mapping(target.group);
  args.k = kv.rows.k;
  args.v = kv.rows.v;
  args.k_scale = kv.rows.k_scale;
  args.v_scale = kv.rows.v_scale;
  if (!kv.as_stored && !on_read(*args.layer)) KVC_TRY(find_rotation(forward, *args.layer, kv.cos_sin, &args.cos_sin));
  if (args.num_tokens > 0) {
    kvc_error error = KVC_ERROR_INIT;
    KVC_TRY(Status::from(context_->backend().append(context_->device(), &args, forward.stream, &error), error));
  }
  forward.layer_state[static_cast<size_t>(layer)] |= Forward::kAppended;
  return Status();
}

Status Cache::append(kvc_forward id, int32_t layer, const kvc_append_args& args) {
  ForwardUse forward(*this);
  KVC_TRY(forward.enter_unless_cancelled(id));
  KVC_TRY(check_forward_layer(*forward, layer));
  if ((args.flags & ~uint32_t{KVC_APPEND_AS_STORED}) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", args.flags);
  }
  NewKv kv;
  const bool as_stored = (args.flags & KVC_APPEND_AS_STORED) != 0;
  KVC_TRY(check_kv(*forward, layer, {args.k, args.v, args.k_scale, args.v_scale, as_stored}, &kv));
  KVC_TRY(check_rotation(*forward, layer, args.rope_cos_sin, &kv.cos_sin));
  if (kv.as_stored && args.rope_cos_sin != nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "rope_cos_sin contradicts KVC_APPEND_AS_STORED").at(layer);
  }
  return forward.done(run_append(*forward, layer, kv));
}

namespace {

// Which parts of a layer's attention a call computes, as bits of Forward::layer_state.
uint8_t parts_of(uint32_t flags) {
  if ((flags & KVC_ATTEND_PAST) != 0) return Forward::kAttendedPast;
  if ((flags & KVC_ATTEND_SELF) != 0) return Forward::kAttendedSelf;
  return Forward::kAttendedPast | Forward::kAttendedSelf;
}

Status check_attend_flags(uint32_t flags) {
  if ((flags & ~uint32_t{KVC_ATTEND_NON_CAUSAL | KVC_ATTEND_PAST | KVC_ATTEND_SELF}) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", flags);
  }
  if ((flags & KVC_ATTEND_PAST) == 0 || (flags & KVC_ATTEND_SELF) == 0) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "flags 0x%x: PAST and SELF are two calls", flags);
}

Status check_option(double value, double smallest, const char* name) {
  if (value == 0.0 || (value >= smallest && value <= 1e30)) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s %g is not 0 and not in %g..1e30", name, value, smallest);
}

Status read_attend_options(const kvc_attend_args& args, int32_t num_q_heads, DLDevice device,
                           kvc_backend_attend* attend) {
  KVC_TRY(check_option(args.softmax_scale, 1e-30, "softmax_scale"));
  KVC_TRY(check_option(args.softcap, 1e-6, "softcap"));
  attend->flags = args.flags;
  attend->softmax_scale = args.softmax_scale;
  attend->softcap = args.softcap;
  if (args.alibi_slopes != nullptr) {
    KVC_TRY(check_heads(args.alibi_slopes, "alibi_slopes", num_q_heads, device, &attend->alibi_slopes));
  }
  if (args.sinks == nullptr) return Status();
  return check_heads(args.sinks, "sinks", num_q_heads, device, &attend->sinks);
}

}  // namespace

Status Cache::run_attend(Forward& forward, int32_t layer, kvc_backend_attend* args) {
  const Layer& source = layers_[static_cast<size_t>(layer)];
  const WorkPlan& plan = forward.work_plan(source.work_class, args->flags);
  args->layer = &source.backend();
  args->rows = &forward.batch->rows();
  args->tables = &forward.batch->tables(source.group);
  args->items = plan.items().data();
  args->num_items = static_cast<int64_t>(plan.items().size());
  args->tiles = plan.tiles().data();
  args->num_tiles = static_cast<int64_t>(plan.tiles().size());
  args->tile_counters = forward.tile_counters();
  args->partials = forward.partials();
  args->cancel_host = &forward.cancelled;
  KVC_TRY(find_rotation(forward, *args->layer, args->cos_sin, &args->cos_sin));
  if (const auto rope = static_cast<size_t>(args->layer->rope_class); on_read(*args->layer)) {
    args->key_tables = rope_tables_.data(rope);
    args->key_sets = forward.rope_sets_of(rope);
  }
  std::fill_n(args->tile_counters, args->num_tiles, 0);
  if (args->num_items > 0) {
    kvc_error error = KVC_ERROR_INIT;
    KVC_TRY(Status::from(context_->backend().attend(context_->device(), args, forward.stream, &error), error));
  }
  forward.layer_state[static_cast<size_t>(layer)] |= parts_of(args->flags);
  return Status();
}

Status Cache::attend(kvc_forward id, int32_t layer, const kvc_attend_args& args) {
  ForwardUse forward(*this);
  KVC_TRY(forward.enter_unless_cancelled(id));
  KVC_TRY(check_forward_layer(*forward, layer));
  KVC_TRY(check_attend_flags(args.flags));
  if ((args.k == nullptr) != (args.v == nullptr)) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL and %s is not: give both or neither",
                         args.k == nullptr ? "k" : "v", args.k == nullptr ? "v" : "k");
  }
  const uint8_t state = forward->layer_state[static_cast<size_t>(layer)];
  if ((state & parts_of(args.flags)) != 0) {
    return Status::error(KVC_ERROR_ORDER, "layer %d was attended already in this forward", layer).at(layer);
  }
  if (args.k == nullptr && (state & Forward::kAppended) == 0 && (args.flags & KVC_ATTEND_PAST) == 0) {
    return Status::error(KVC_ERROR_ORDER, "layer %d has no k and v, and was not appended before", layer).at(layer);
  }
  const kvc_backend_layer& shape = layers_[static_cast<size_t>(layer)].backend();
  const int64_t tokens = forward->batch->rows().num_tokens;
  kvc_backend_attend attend = {};
  NewKv kv;
  KVC_TRY(check_rows(args.q, rows_spec("q", tokens, shape.num_q_heads, shape.head_dim, false), &attend.q));
  if (args.k != nullptr) KVC_TRY(check_kv(*forward, layer, {args.k, args.v, nullptr, nullptr, false}, &kv));
  KVC_TRY(check_rotation(*forward, layer, args.rope_cos_sin, &kv.cos_sin));
  attend.cos_sin = kv.cos_sin;
  KVC_TRY(check_rows(args.out, rows_spec("out", tokens, shape.num_q_heads, shape.v_head_dim, true), &attend.out));
  if (args.lse != nullptr) {
    KVC_TRY(check_lse(args.lse, rows_spec("lse", tokens, shape.num_q_heads, 1, true), &attend.lse,
                      &attend.lse_token_stride, &attend.lse_head_stride));
  }
  KVC_TRY(read_attend_options(args, shape.num_q_heads, context_->dl_device(), &attend));
  if (args.k != nullptr) KVC_TRY(forward.done(run_append(*forward, layer, kv)));
  return forward.done(run_attend(*forward, layer, &attend));
}

std::string Cache::describe_group(Forward& forward, int32_t group) const {
  std::string text;
  char line[512];
  for (size_t c = 0; c < work_classes_.size(); ++c) {
    if (work_classes_[c].group != group) continue;
    const WorkPlan& plan = forward.work_plan(c);
    const auto first = std::find_if(layers_.begin(), layers_.end(), [&](const Layer& l) { return l.work_class == c; });
    const int64_t layers = std::count_if(first, layers_.end(), [&](const Layer& l) { return l.work_class == c; });
    const kvc_backend_layer& layer = first->backend();
    const int64_t scale_bytes = layer.k_scales.slot_stride != 0 ? 2 * int64_t{sizeof(float)} : 0;
    const int64_t key_bytes = int64_t{layer.head_dim + layer.v_head_dim} * (layer.dtype.bits / 8) + scale_bytes;
    int64_t bytes = 0;
    int64_t decode_items = 0;
    for (const kvc_backend_item& item : plan.items()) {
      bytes += int64_t{item.key_end - item.key_begin} * (item.head_end - item.head_begin) * key_bytes;
      decode_items += item.q_end - item.q_begin <= work_classes_[c].shape.tiling.decode_max_queries;
    }
    int64_t split_items = 0;
    for (const kvc_backend_tile& tile : plan.tiles()) split_items += tile.item_end - tile.item_begin;
    std::snprintf(line, sizeof line,
                  "%s{\"group\": %d, \"layers\": %" PRId64
                  ", \"kernel\": \"%s\", \"items\": %zu, \"decode_items\": %" PRId64
                  ", \"split_tiles\": %zu, \"splits\": %" PRId64 ", \"prefix_groups\": 0, \"kv_bytes\": %" PRId64 "}",
                  text.empty() ? "" : ", ", group, layers, context_->backend().implementation(context_->device()),
                  plan.items().size(), decode_items, plan.tiles().size(), split_items, bytes);
    text += line;
  }
  return text;
}

Status Cache::describe(kvc_forward id, std::string* out) {
  ForwardUse forward(*this);
  KVC_TRY(forward.enter(id));
  const kvc_backend_rows& rows = forward->batch->rows();
  *out = "{\"rows\": " + std::to_string(rows.num_rows) + ", \"tokens\": " + std::to_string(rows.num_tokens) +
         ", \"layer_begin\": " + std::to_string(forward->layer_begin) +
         ", \"layer_end\": " + std::to_string(forward->layer_end) + ", \"work\": [";
  for (int32_t g = 0; g < num_groups(); ++g) {
    const std::string work = describe_group(*forward, g);
    if (g > 0 && !work.empty()) *out += ", ";
    *out += work;
  }
  *out += "]}";
  return Status();
}

}  // namespace kvc
