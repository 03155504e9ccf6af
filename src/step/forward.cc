#include "step/forward.h"

#include <algorithm>

#include "base/assert.h"
#include "kernels/common/stored_format.h"

namespace kvc {
namespace {

// Bytes of partial states, for the class that needs most of them. A cache with KVC_STORAGE_NONE needs none.
int64_t partial_bytes(const Geometry& geometry, const std::vector<WorkClass>& classes) {
  if (geometry.tables_only) return 0;
  int64_t floats = 0;
  for (const WorkClass& c : classes) floats = std::max(floats, WorkPlan::max_partial_floats(c.shape, geometry.limits));
  return floats * static_cast<int64_t>(sizeof(float));
}

// Bytes of scratch in which select keeps the scores of queries. There is always room for one query with all keys that a
// group can hold.
int64_t select_bytes(const Geometry& geometry) {
  constexpr int64_t kKeyBytes = 8, kMoreBytes = 8192, kManyScores = 8 << 20;
  int64_t bytes = 0;
  for (const LayerGeometry& of : geometry.layers) {
    if (geometry.tables_only || !kernels::keys_only(of.layer)) continue;
    const int64_t keys = geometry.store.groups[static_cast<size_t>(of.group)].num_pages * of.layer.page_size;
    const int64_t all = std::min(geometry.limits.tokens * of.layer.num_q_heads * keys, kManyScores / kKeyBytes);
    bytes = std::max(bytes, kKeyBytes * std::max(keys, all) + kMoreBytes);
  }
  return bytes;
}

int64_t rotation_bytes(const Geometry& geometry, const RopeClass& rope) {
  const auto sets = static_cast<int64_t>(rope.sets.size() > 1 ? sizeof(int32_t) : 0);
  const int64_t tables = geometry.limits.streaming ? 2 : 1;
  return geometry.limits.tokens * (tables * rope.rope_dim * static_cast<int64_t>(sizeof(float)) + sets);
}

}  // namespace

int64_t Forward::scratch_bytes(const Context& context, const Geometry& geometry,
                               const std::vector<WorkClass>& classes) {
  int64_t bytes = partial_bytes(geometry, classes) + select_bytes(geometry);
  for (const RopeClass& rope : geometry.rope_classes) bytes += rotation_bytes(geometry, rope);
  for (const WorkClass& c : classes) {
    bytes += WorkPlan::bytes_needed(c.shape, geometry.limits);
  }
  const auto groups = static_cast<int32_t>(geometry.store.groups.size());
  bytes += BatchPlan::bytes_needed(geometry.limits, groups);
  if (!context.is_host()) {  // the device's copies, and their staging
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
    const int64_t count = rows * (1 + geometry.store.max_draft_states);
    forward->state_pages.push_back({g, StepArray<int32_t>(count), StepArray<int32_t>(count)});
  }
  std::vector<int32_t> num_states;
  for (const LayerGeometry& layer : geometry.layers) num_states.push_back(static_cast<int32_t>(layer.states.size()));
  forward->calls = LayerCalls(num_states);
  int64_t tiles = 0;
  for (size_t i = 0; i < classes.size(); ++i) {
    const WorkClass& c = classes[i];
    forward->plans_.push_back({WorkPlan(c.shape, geometry.limits), c.group, layers[i]});
    tiles = std::max(tiles, WorkPlan::max_tiles(c.shape, geometry.limits));
  }
  forward->tile_counters_.resize(static_cast<size_t>(tiles));
  if (const int64_t bytes = partial_bytes(geometry, classes); bytes > 0) {
    KVC_TRY(DeviceMemory::allocate(context, bytes, DeviceMemory::kPageAlignment, false, &forward->partials_));
  }
  if (const int64_t bytes = select_bytes(geometry); bytes > 0) {
    KVC_TRY(DeviceMemory::allocate(context, bytes, DeviceMemory::kPageAlignment, false, &forward->select_scratch_));
  }
  for (size_t i = 0; i < classes.size(); ++i) {
    kvc_backend_plan& plan = forward->plans_[i].plan;
    plan.slot = static_cast<int32_t>(i);
    plan.counters = forward->tile_counters_.data();
    plan.partials = forward->partials_ ? static_cast<float*>(forward->partials_->data()) : nullptr;
    forward->plans_[i].work.fill({}, {}, nullptr, *layers[i], &plan);
  }
  forward->rotations_.resize(geometry.rope_classes.size());
  for (size_t i = 0; i < geometry.rope_classes.size(); ++i) {
    const RopeClass& rope = geometry.rope_classes[i];
    const int64_t bytes = geometry.limits.tokens * rope.rope_dim * static_cast<int64_t>(sizeof(float));
    KVC_TRY(
        DeviceMemory::allocate(context, bytes, DeviceMemory::kPageAlignment, false, &forward->rotations_[i].cos_sin));
    if (geometry.limits.streaming) {
      KVC_TRY(DeviceMemory::allocate(context, bytes, DeviceMemory::kPageAlignment, false,
                                     &forward->rotations_[i].cos_sin_sinks));
    }
    if (rope.sets.size() > 1) forward->rotations_[i].sets = StepArray<int32_t>(geometry.limits.tokens);
    forward->rotations_[i].long_from = rope.long_from;
  }
  const auto num_classes = static_cast<int32_t>(classes.size());
  if (!geometry.tables_only) KVC_TRY(LatentScratch::create(context, geometry, num_classes, &forward->latent));
  KVC_TRY(forward->create_device_step(context, geometry));
  *out = std::move(forward);
  return Status();
}

void Forward::start() noexcept {
  __atomic_store_n(&cancelled, 0, __ATOMIC_RELAXED);
  calls.start();
  for (Planned& planned : plans_) {
    planned.made = false;
    planned.plan.staged = nullptr;
  }
  if (latent) latent->start();
  for (Rotation& rotation : rotations_) rotation.made = rotation.made_sinks = rotation.sets_made = false;
}

void Forward::finish_batch() noexcept {
  if (graph) batch->clear_rest();
  info_shapes[0] = graph ? limits.tokens : batch->rows().num_tokens;
  info_shapes[1] = graph ? limits.rows : num_rows;
}

// Returns which table rotates the stored keys of each token. Null: the first table rotates all of them, or stored
// keys are not rotated.
const int32_t* Forward::key_sets_of(const Planned& planned) noexcept {
  const int32_t sets = planned.work.shape().key_sets_class;
  return sets >= 0 ? rope_sets_of(static_cast<size_t>(sets)) : nullptr;
}

void Forward::make_plan(Planned& planned, uint32_t flags, int32_t listed_keys) noexcept {
  const kvc_backend_rows& rows = batch->rows(planned.group);
  const kvc_backend_tables& tables = batch->tables(planned.group);
  const int32_t* const key_sets = key_sets_of(planned);
  planned.work.build(rows, flags, &tables, key_sets, listed_keys);
  planned.listed_keys = listed_keys;
  planned.work.fill(rows, tables, key_sets, *planned.layer, &planned.plan);
  planned.made = true;
}

const WorkPlan& Forward::work_plan(size_t work_class, uint32_t flags, int32_t listed_keys) noexcept {
  KVC_ASSERT(work_class < plans_.size(), work_class, plans_.size());
  Planned& planned = plans_[work_class];
  if (!planned.made || planned.plan.flags != flags || planned.listed_keys != listed_keys) {
    make_plan(planned, flags, listed_keys);
  }
  return planned.work;
}

Status Forward::plan(size_t work_class, uint32_t flags, int32_t listed_keys, const kvc_backend_plan** out) {
  work_plan(work_class, flags, listed_keys);
  Planned& planned = plans_[work_class];
  planned.used = true;
  *out = &planned.plan;
  if (step() == nullptr || planned.plan.staged != nullptr) return Status();
  return device_step_.stage_plan(&planned.plan, stream);
}

kvc_backend_plan Forward::plan_without_items(size_t work_class, uint32_t flags) noexcept {
  const Planned& planned = plans_[work_class];
  kvc_backend_plan plan = {};
  plan.arrays.rows = batch->rows(planned.group);
  plan.arrays.tables = batch->tables(planned.group);
  plan.arrays.key_sets = key_sets_of(planned);
  plan.device = planned.plan.device;
  plan.flags = flags;
  return plan;
}

const int32_t* Forward::rope_sets_of(size_t rope_class) noexcept {
  Rotation& rotation = rotations_[rope_class];
  if (rotation.sets.size() == 0) return nullptr;
  if (rotation.sets_made) return rotation.sets.data();
  const kvc_backend_rows& rows = batch->rows();
  const int32_t* windows = batch->stream_windows();  // with a streaming window, positions count kept tokens only
  for (int32_t row = 0; row < num_rows; ++row) {
    const int32_t* begin = rows.positions + rows.token_begin[row];
    const int32_t* end = rows.positions + rows.token_begin[row + 1];
    int64_t reaches = begin == end ? 0 : int64_t{*std::max_element(begin, end)} + 1;  // tree nodes may share a position
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
  if (rope_sets_of(rope_class) != nullptr) args.sets = rotations_[rope_class].sets.for_backend();
  args.cos_sin = values;
  args.step = step();
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context.backend().rope(context.device(), &args, stream, &error), error);
}

// Lists the same arrays in the same order in every step, so that in a graph each array has a fixed place.
void Forward::list_arrays(const void* device, bool by_capacity) {
  arrays_.start(device, by_capacity);
  const auto list = [&](auto& array, int64_t count) { arrays_.add(array.data(), count, array.size(), &array.device); };
  batch->for_each_array(graph, list);
  for (StatePages& pages : state_pages) {
    const int64_t count = state_begin(limits.draft_states);
    list(pages.before, count);
    list(pages.after, count);
  }
  for (Rotation& rotation : rotations_) {
    list(rotation.sets, rotation.sets_made ? batch->rows().num_tokens : 0);
  }
  for (Planned& planned : plans_) {
    const kvc_backend_plan_arrays& host = planned.plan.arrays;
    const kvc_backend_plan& plan = planned.plan;
    kvc_backend_plan_arrays& on_device = planned.plan.device;
    const bool made = planned.made;
    arrays_.add(host.items, made ? plan.num_items : 0, plan.max_items, &on_device.items);
    arrays_.add(host.tiles, made ? plan.num_tiles : 0, plan.max_tiles, &on_device.tiles);
    arrays_.add(host.spans, made ? plan.num_spans : 0, plan.max_spans, &on_device.spans);
    arrays_.add(host.parts, made ? plan.num_parts : 0, plan.max_parts, &on_device.parts);
  }
}

// Sets the device addresses that all plans of a class share, including plans that are made later in the step.
void Forward::point_to_device(Planned& planned) noexcept {
  kvc_backend_plan_arrays& device = planned.plan.device;
  device.rows = batch->device_rows(planned.group);
  device.tables = batch->device_tables(planned.group);
  const int32_t sets = planned.work.shape().key_sets_class;
  device.key_sets = sets >= 0 ? rotations_[static_cast<size_t>(sets)].sets.device : nullptr;
}

Status Forward::create_device_step(const std::shared_ptr<Context>& context, const Geometry& geometry) {
  if (context->backend().step_create == nullptr) return Status();
  list_arrays(nullptr, true);
  std::vector<const kvc_backend_plan*> plans;
  for (const Planned& planned : plans_) plans.push_back(&planned.plan);
  if (latent) latent->list_plans(&plans);
  // In most steps, each row changes a leaf and a node above it in each group. Long prompts change more leaves.
  const auto groups = static_cast<int64_t>(geometry.store.groups.size());
  const int64_t leaves = geometry.limits.tokens / geometry.page_size / KVC_BACKEND_NODE_FANOUT;
  kvc_backend_step_limits limits = {};
  limits.array_bytes = arrays_.bytes();
  limits.num_changes = groups * (2 * geometry.limits.rows + leaves);
  limits.max_tokens = geometry.limits.tokens;
  limits.plans = plans.data();
  limits.num_plans = static_cast<int32_t>(plans.size());
  limits.num_stage_plans = static_cast<int32_t>(plans_.size());
  return DeviceStep::create(context, limits, &device_step_);
}

Status Forward::stage(std::span<const kvc_backend_node_changes> changes) {
  if (step() == nullptr) return Status();
  const bool attends = kind.encoder_group < 0;
  for (size_t i = 0; i < rotations_.size(); ++i) rope_sets_of(i);
  staged_.clear();
  for (Planned& planned : plans_) {
    if (!attends || (!planned.used && !graph)) continue;
    make_plan(planned, planned.plan.flags, planned.listed_keys);
    planned.used = false;
    staged_.push_back(&planned.plan);
  }
  list_arrays(device_step_.arrays(), graph);
  for (Planned& planned : plans_) point_to_device(planned);
  kvc_backend_stage args = {};
  args.arrays = arrays_.arrays().data();
  args.num_arrays = static_cast<int32_t>(arrays_.arrays().size());
  args.changes = changes.data();
  args.num_changes = static_cast<int32_t>(changes.size());
  args.plans = staged_.data();
  args.num_plans = static_cast<int32_t>(staged_.size());
  args.num_tokens = batch->rows().num_tokens;
  args.num_rows = attends ? num_rows : 0;
  args.max_tokens = graph ? static_cast<int32_t>(limits.tokens) : 0;
  args.max_rows = graph ? static_cast<int32_t>(limits.rows) : 0;
  return device_step_.stage(args, stream);
}

Status Forward::unstage() { return replayed() ? device_step_.unstage(stream) : Status(); }

void Forward::device_rows(const int32_t** positions, const int32_t** last_rows) const noexcept {
  const bool empty = step() != nullptr && !graph && num_rows == 0;  // the step has no such arrays
  *positions = empty ? nullptr : batch->backend_positions();
  *last_rows = empty ? nullptr : batch->backend_last_rows();
}

Status Forward::cos_sin(const Context& context, const RopeTables& tables, size_t rope_class, const float** out) {
  Rotation& rotation = rotations_[rope_class];
  auto* values = static_cast<float*>(rotation.cos_sin->data());
  if (!rotation.made && tensor_rows() > 0) {
    KVC_TRY(rotate(context, tables, rope_class, batch->backend_positions(), values));
    rotation.made = true;
  }
  *out = values;
  return Status();
}

Status Forward::cos_sin_sinks(const Context& context, const RopeTables& tables, size_t rope_class, const float** out) {
  Rotation& rotation = rotations_[rope_class];
  *out = nullptr;
  // A captured call may be replayed in a later step, in which rows have streaming windows.
  const bool later = replayed() && limits.streaming;
  if (batch->stream_windows() == nullptr && !later) return Status();
  auto* values = static_cast<float*>(rotation.cos_sin_sinks->data());
  if (!rotation.made_sinks) {
    KVC_TRY(rotate(context, tables, rope_class, batch->backend_sink_positions(), values));
    rotation.made_sinks = true;
  }
  *out = values;
  return Status();
}

}  // namespace kvc
