#include "step/forward.h"

#include <algorithm>

#include "base/assert.h"

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

int64_t rotation_bytes(const Geometry& geometry, const RopeClass& rope) {
  const auto sets = static_cast<int64_t>(rope.sets.size() > 1 ? sizeof(int32_t) : 0);
  const int64_t tables = geometry.limits.streaming ? 2 : 1;
  return geometry.limits.tokens * (tables * rope.rope_dim * static_cast<int64_t>(sizeof(float)) + sets);
}

}  // namespace

int64_t Forward::scratch_bytes(const Context& context, const Geometry& geometry,
                               const std::vector<WorkClass>& classes) {
  int64_t bytes = partial_bytes(geometry, classes);
  for (const RopeClass& rope : geometry.rope_classes) bytes += rotation_bytes(geometry, rope);
  for (const WorkClass& c : classes) {
    bytes += WorkPlan::bytes_needed(c.shape, geometry.limits);
  }
  const auto groups = static_cast<int32_t>(geometry.store.groups.size());
  bytes += BatchPlan::bytes_needed(geometry.limits, groups);
  if (!context.is_host()) {  // the device's copy of both, and its staging
    int64_t arrays = BatchPlan::bytes_needed(geometry.limits, groups);
    for (const WorkClass& c : classes) arrays += WorkPlan::bytes_needed(c.shape, geometry.limits);
    bytes += 2 * arrays;
  }
  bytes += geometry.limits.rows * (16 + groups * static_cast<int64_t>(sizeof(Reservation)));
  return bytes * geometry.max_open_forwards;
}

Status Forward::create(const std::shared_ptr<Context>& context, const Geometry& geometry,
                       const std::vector<WorkClass>& classes, std::span<const kvc_backend_layer* const> layers,
                       std::unique_ptr<Forward>* out) {
  auto forward = std::make_unique<Forward>();
  forward->limits = geometry.limits;
  const int64_t rows = geometry.limits.rows;
  const auto groups = static_cast<int64_t>(geometry.store.groups.size());
  forward->slots = LazyArray<int32_t>(rows);
  forward->append_lengths = LazyArray<int32_t>(rows);
  forward->rope_sets = LazyArray<int32_t>(rows);
  forward->reservations = LazyArray<Reservation>(rows * groups);
  forward->batch = std::make_unique<BatchPlan>(geometry.limits, static_cast<int32_t>(groups));
  for (int32_t g = 0; g < groups; ++g) {
    if (!geometry.store.groups[static_cast<size_t>(g)].rules.holds_state()) continue;
    forward->state_pages.push_back({g, LazyArray<int32_t>(rows), LazyArray<int32_t>(rows)});
  }
  forward->layer_state.resize(geometry.layers.size());
  forward->stored_states.resize(geometry.layers.size());
  forward->recorded_layers.resize(geometry.layers.size());
  forward->recorded_states.resize(geometry.layers.size());
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
  KVC_TRY(forward->create_device_step(context, geometry, layers));
  if (!geometry.tables_only) KVC_TRY(LatentScratch::create(context, geometry, &forward->latent));
  *out = std::move(forward);
  return Status();
}

void Forward::start() noexcept {
  __atomic_store_n(&cancelled, 0, __ATOMIC_RELAXED);
  std::fill(layer_state.begin(), layer_state.end(), uint8_t{0});
  std::fill(stored_states.begin(), stored_states.end(), uint16_t{0});
  for (Planned& planned : plans_) {
    planned.made = planned.staged = false;
  }
  for (Rotation& rotation : rotations_) rotation.made = rotation.made_sinks = rotation.sets_made = false;
}

void Forward::finish_batch() noexcept {
  if (graph) batch->clear_rest();
  info_shapes[0] = graph ? limits.tokens : batch->rows().num_tokens;
  info_shapes[1] = graph ? limits.rows : num_rows;
}

void Forward::make_plan(Planned& planned, uint32_t flags) noexcept {
  const int32_t sets = planned.plan.shape().key_sets_class;
  planned.plan.build(batch->rows(planned.group), flags, &batch->tables(planned.group),
                     sets >= 0 ? rope_sets_of(static_cast<size_t>(sets)) : nullptr);
  planned.made = true;
  planned.staged = false;
  planned.flags = flags;
}

const WorkPlan& Forward::work_plan(size_t work_class, uint32_t flags) noexcept {
  KVC_ASSERT(work_class < plans_.size(), work_class, plans_.size());
  Planned& planned = plans_[work_class];
  if (!planned.made || planned.flags != flags) make_plan(planned, flags);
  planned.asked = true;
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
  args.step = step();
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context.backend().rope(context.device(), &args, stream, &error), error);
}

// Always the same arrays in the same order, so that those of a graph have their places.
void Forward::list_arrays() {
  arrays_.clear();
  batch->for_each_array(graph,
                        [&](const auto* data, int64_t count, int64_t capacity) { arrays_.add(data, count, capacity); });
  for (const StatePages& pages : state_pages) {
    for (const LazyArray<int32_t>* array : {&pages.before, &pages.after}) {
      arrays_.add(array->data(), num_rows, array->size());
    }
  }
  for (const Rotation& rotation : rotations_) {
    arrays_.add(rotation.sets.data(), rotation.sets_made ? batch->rows().num_tokens : 0, rotation.sets.size());
  }
  for (const Planned& planned : plans_) {
    const auto list = [&](const auto& array) {
      arrays_.add(array.data(), planned.made ? static_cast<int64_t>(array.size()) : 0,
                  static_cast<int64_t>(array.capacity()));
    };
    list(planned.plan.items());
    list(planned.plan.tiles());
    list(planned.plan.spans());
    list(planned.plan.parts());
  }
}

kvc_backend_planned Forward::describe_plan(const Planned& planned, const kvc_backend_layer* layer) const noexcept {
  const WorkShape& shape = planned.plan.shape();
  kvc_backend_planned args = {};
  args.layer = layer;
  args.rows = &batch->rows(planned.group);
  args.tables = &batch->tables(planned.group);
  args.items = planned.plan.items().data();
  args.num_items = static_cast<int64_t>(planned.plan.items().size());
  args.max_items = static_cast<int64_t>(planned.plan.items().capacity());
  args.num_tiles = static_cast<int64_t>(planned.plan.tiles().size());
  args.max_tiles = static_cast<int64_t>(planned.plan.tiles().capacity());
  args.fold_keys = shape.fixed_splits ? shape.tiling.split_align : 0;
  return args;
}

Status Forward::create_device_step(const std::shared_ptr<Context>& context, const Geometry& geometry,
                                   std::span<const kvc_backend_layer* const> layers) {
  if (context->backend().step_create == nullptr) return Status();
  list_arrays();
  kvc_backend_step_limits limits = {};
  for (const kvc_backend_array& array : arrays_.arrays()) limits.array_bytes += array.capacity_bytes;
  planned_.clear();
  for (size_t i = 0; i < plans_.size(); ++i) planned_.push_back(describe_plan(plans_[i], layers[i]));
  limits.planned = planned_.data();
  // A leaf and a node above it for each row and group in most steps, and what long prompts fill.
  const auto groups = static_cast<int64_t>(geometry.store.groups.size());
  const int64_t leaves = geometry.limits.tokens / geometry.page_size / KVC_BACKEND_NODE_FANOUT;
  limits.num_changes = groups * (2 * geometry.limits.rows + leaves);
  limits.num_arrays = static_cast<int32_t>(arrays_.arrays().size());
  limits.num_planned = static_cast<int32_t>(plans_.size());
  return DeviceStep::create(context, limits, &device_step_);
}

Status Forward::stage(std::span<const kvc_backend_layer* const> layers,
                      std::span<const kvc_backend_node_changes> changes) {
  if (device_step_.get() == nullptr) return Status();
  for (size_t i = 0; i < rotations_.size(); ++i) rope_sets_of(i);
  planned_.clear();
  for (size_t i = 0; i < plans_.size() && kind.encoder_group < 0; ++i) {
    Planned& planned = plans_[i];
    if (!planned.asked && !graph) continue;
    make_plan(planned, planned.flags);
    planned.staged = true;
    planned.asked = false;
    planned_.push_back(describe_plan(planned, layers[i]));
  }
  list_arrays();
  kvc_backend_stage args = {};
  args.arrays = arrays_.arrays().data();
  args.num_arrays = static_cast<int32_t>(arrays_.arrays().size());
  args.changes = changes.data();
  args.num_changes = static_cast<int32_t>(changes.size());
  args.planned = planned_.data();
  args.num_planned = static_cast<int32_t>(planned_.size());
  args.num_tokens = batch->rows().num_tokens;
  args.num_rows = kind.encoder_group < 0 ? num_rows : 0;
  args.max_tokens = graph ? static_cast<int32_t>(limits.tokens) : 0;
  args.max_rows = graph ? static_cast<int32_t>(limits.rows) : 0;
  return device_step_.stage(args, stream);
}

Status Forward::unstage() { return graph && device_step_.get() != nullptr ? device_step_.unstage(stream) : Status(); }

void Forward::device_rows(const int32_t** positions, const int32_t** last_rows) const noexcept {
  *positions = batch->rows().positions;
  *last_rows = batch->last_rows();
  if (device_step_.get() == nullptr) return;
  *positions = device_step_.staged(*positions);
  *last_rows = device_step_.staged(*last_rows);
}

Status Forward::cos_sin(const Context& context, const RopeTables& tables, size_t rope_class, const float** out) {
  Rotation& rotation = rotations_[rope_class];
  auto* values = static_cast<float*>(rotation.cos_sin->data());
  if (!rotation.made && tensor_rows() > 0) {
    KVC_TRY(rotate(context, tables, rope_class, batch->rows().positions, values));
    rotation.made = true;
  }
  *out = values;
  return Status();
}

Status Forward::cos_sin_sinks(const Context& context, const RopeTables& tables, size_t rope_class, const float** out) {
  Rotation& rotation = rotations_[rope_class];
  *out = nullptr;
  // A captured call finds them in a later step, when rows stream.
  const bool later = graph && device_step_.get() != nullptr && limits.streaming;
  if (batch->stream_windows() == nullptr && !later) return Status();
  auto* values = static_cast<float*>(rotation.cos_sin_sinks->data());
  if (!rotation.made_sinks) {
    KVC_TRY(rotate(context, tables, rope_class, batch->sink_positions(), values));
    rotation.made_sinks = true;
  }
  *out = values;
  return Status();
}

}  // namespace kvc
