#include "cache/forward.h"

#include <algorithm>

namespace kvc {
namespace {

constexpr int64_t kAlignment = 4096;

// A cache without storage attends to nothing.
int64_t partial_bytes(const Geometry& geometry, const std::vector<WorkClass>& classes) {
  if (geometry.tables_only) return 0;
  int64_t floats = 0;
  for (const WorkClass& c : classes) floats = std::max(floats, WorkPlan::max_partial_floats(c.shape, geometry.limits));
  return floats * static_cast<int64_t>(sizeof(float));
}

int64_t device_rows_bytes(const Context& context, const Geometry& geometry) {
  if (context.is_host()) return 0;
  return (geometry.limits.tokens + geometry.limits.rows) * static_cast<int64_t>(sizeof(int32_t));
}

int64_t rotation_bytes(const Geometry& geometry, const RopeClass& rope) {
  const auto sets = static_cast<int64_t>(rope.sets.size() > 1 ? sizeof(int32_t) : 0);
  const int64_t tables = geometry.limits.streaming ? 2 : 1;
  return geometry.limits.tokens * (tables * rope.rope_dim * static_cast<int64_t>(sizeof(float)) + sets);
}

}  // namespace

int64_t Forward::scratch_bytes(const Context& context, const Geometry& geometry,
                               const std::vector<WorkClass>& classes) {
  int64_t bytes = partial_bytes(geometry, classes) + device_rows_bytes(context, geometry);
  for (const RopeClass& rope : geometry.rope_classes) bytes += rotation_bytes(geometry, rope);
  for (const WorkClass& c : classes) {
    bytes += WorkPlan::bytes_needed(c.shape, geometry.limits);
  }
  const auto groups = static_cast<int32_t>(geometry.store.groups.size());
  bytes += BatchPlan::bytes_needed(geometry.limits, groups);
  bytes += geometry.limits.rows * (16 + groups * static_cast<int64_t>(sizeof(Reservation)));
  return bytes * geometry.max_open_forwards;
}

Status Forward::create(const std::shared_ptr<Context>& context, const Geometry& geometry,
                       const std::vector<WorkClass>& classes, std::unique_ptr<Forward>* out) {
  auto forward = std::make_unique<Forward>();
  forward->limits = geometry.limits;
  const int64_t rows = geometry.limits.rows;
  const auto groups = static_cast<int64_t>(geometry.store.groups.size());
  forward->slots = LazyArray<int32_t>(rows);
  forward->append_lengths = LazyArray<int32_t>(rows);
  forward->rope_sets = LazyArray<int32_t>(rows);
  forward->reservations = LazyArray<Reservation>(rows * groups);
  forward->batch = std::make_unique<BatchPlan>(geometry.limits, static_cast<int32_t>(groups));
  forward->state_pages = LazyArray<int32_t>(rows);
  forward->layer_state.resize(geometry.layers.size());
  forward->stored_states.resize(geometry.layers.size());
  int64_t tiles = 0;
  for (const WorkClass& c : classes) {
    forward->plans_.push_back({WorkPlan(c.shape, geometry.limits), c.group});
    tiles = std::max(tiles, WorkPlan::max_tiles(c.shape, geometry.limits));
  }
  forward->tile_counters_.resize(static_cast<size_t>(tiles));
  if (const int64_t bytes = partial_bytes(geometry, classes); bytes > 0) {
    KVC_TRY(DeviceMemory::allocate(context, bytes, kAlignment, false, &forward->partials_));
  }
  forward->rotations_.resize(geometry.rope_classes.size());
  for (size_t i = 0; i < geometry.rope_classes.size(); ++i) {
    const RopeClass& rope = geometry.rope_classes[i];
    const int64_t bytes = geometry.limits.tokens * rope.rope_dim * static_cast<int64_t>(sizeof(float));
    KVC_TRY(DeviceMemory::allocate(context, bytes, kAlignment, false, &forward->rotations_[i].cos_sin));
    if (geometry.limits.streaming) {
      KVC_TRY(DeviceMemory::allocate(context, bytes, kAlignment, false, &forward->rotations_[i].cos_sin_sinks));
    }
    if (rope.sets.size() > 1) forward->rotations_[i].sets = LazyArray<int32_t>(geometry.limits.tokens);
    forward->rotations_[i].long_from = rope.long_from;
  }
  forward->max_tokens_ = geometry.limits.tokens;
  if (const int64_t bytes = device_rows_bytes(*context, geometry); bytes > 0) {
    KVC_TRY(DeviceMemory::allocate(context, bytes, kAlignment, false, &forward->device_rows_));
  }
  if (!geometry.tables_only) KVC_TRY(LatentScratch::create(context, geometry, &forward->latent));
  *out = std::move(forward);
  return Status();
}

void Forward::start() noexcept {
  __atomic_store_n(&cancelled, 0, __ATOMIC_RELAXED);
  std::fill(layer_state.begin(), layer_state.end(), uint8_t{0});
  std::fill(stored_states.begin(), stored_states.end(), uint16_t{0});
  for (Planned& planned : plans_) planned.made = false;
  device_rows_made_ = false;
  for (Rotation& rotation : rotations_) rotation.made = rotation.made_sinks = rotation.sets_made = false;
}

void Forward::finish_batch() noexcept {
  if (graph) batch->clear_rest();
  info_shapes[0] = graph ? limits.tokens : batch->rows().num_tokens;
  info_shapes[1] = graph ? limits.rows : num_rows;
}

const WorkPlan& Forward::work_plan(size_t work_class, uint32_t flags) noexcept {
  Planned& planned = plans_[work_class];
  if (!planned.made || planned.flags != flags) {
    const int32_t sets = planned.plan.shape().key_sets_class;
    planned.plan.build(batch->rows(planned.group), flags, &batch->tables(planned.group),
                       sets >= 0 ? rope_sets_of(static_cast<size_t>(sets)) : nullptr);
  }
  planned.made = true;
  planned.flags = flags;
  return planned.plan;
}

const int32_t* Forward::rope_sets_of(size_t rope_class) noexcept {
  Rotation& rotation = rotations_[rope_class];
  if (rotation.sets.size() == 0) return nullptr;
  if (rotation.sets_made) return rotation.sets.data();
  const kvc_backend_rows& rows = batch->rows();
  const int32_t* windows =
      batch->stream_windows();  // the tokens that a streaming sequence keeps are all that there are
  for (int32_t row = 0; row < num_rows; ++row) {
    const int32_t* begin = rows.positions + rows.token_begin[row];
    const int32_t* end = rows.positions + rows.token_begin[row + 1];
    int64_t reaches = begin == end ? 0 : int64_t{*std::max_element(begin, end)} + 1;  // nodes of a tree: by depth
    if (windows != nullptr && windows[row] > 0) reaches = std::min<int64_t>(reaches, windows[row]);
    const bool is_long = rope_sets[row] == KVC_ROPE_SET_LONG || reaches > rotation.long_from;
    std::fill(rotation.sets.data() + rows.token_begin[row], rotation.sets.data() + rows.token_begin[row + 1],
              is_long ? KVC_ROPE_SET_LONG : KVC_ROPE_SET_SHORT);
  }
  rotation.sets_made = true;
  return rotation.sets.data();
}

Status Forward::rotate(const Context& context, const RopeTables& tables, size_t rope_class, const int32_t* positions,
                       float* values) {
  kvc_backend_rope args = {};
  args.rope_dim = tables.rope(rope_class).rope_dim;
  args.num_tokens = batch->rows().num_tokens;
  args.tables = tables.data(rope_class);
  args.positions = positions;
  args.sets = rope_sets_of(rope_class);
  args.cos_sin = values;
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context.backend().rope(context.device(), &args, stream, &error), error);
}

Status Forward::device_rows(const Context& context, const int32_t** positions, const int32_t** last_rows) {
  const kvc_backend_rows& rows = batch->rows();
  *positions = rows.positions;
  *last_rows = batch->last_rows();
  if (!device_rows_) return Status();
  auto* data = static_cast<int32_t*>(device_rows_->data());
  if (!device_rows_made_) {
    constexpr int64_t kBytes = sizeof(int32_t);
    // In the shapes that callers see: of a graph with the rest that is inert.
    KVC_TRY(context.upload(data, rows.positions, info_shapes[0] * kBytes, stream));
    KVC_TRY(context.upload(data + max_tokens_, batch->last_rows(), info_shapes[1] * kBytes, stream));
    device_rows_made_ = true;
  }
  *positions = data;
  *last_rows = data + max_tokens_;
  return Status();
}

Status Forward::cos_sin(const Context& context, const RopeTables& tables, size_t rope_class, const float** out) {
  Rotation& rotation = rotations_[rope_class];
  auto* values = static_cast<float*>(rotation.cos_sin->data());
  if (!rotation.made && batch->rows().num_tokens > 0) {
    KVC_TRY(rotate(context, tables, rope_class, batch->rows().positions, values));
    rotation.made = true;
  }
  *out = values;
  return Status();
}

Status Forward::cos_sin_sinks(const Context& context, const RopeTables& tables, size_t rope_class, const float** out) {
  Rotation& rotation = rotations_[rope_class];
  *out = nullptr;
  if (batch->stream_windows() == nullptr) return Status();
  auto* values = static_cast<float*>(rotation.cos_sin_sinks->data());
  if (!rotation.made_sinks) {
    KVC_TRY(rotate(context, tables, rope_class, batch->sink_positions(), values));
    rotation.made_sinks = true;
  }
  *out = values;
  return Status();
}

}  // namespace kvc
