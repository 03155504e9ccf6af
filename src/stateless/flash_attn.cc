#include "stateless/flash_attn.h"

#include <algorithm>

#include "base/element_bytes.h"
#include "plan/work_shape.h"
#include "stateless/flash_attn_device.h"
#include "stateless/staged_call.h"

namespace kvc {

WorkShape shape_of(const Context& context, const FlashAttnCall& call) {
  kvc_backend_tiling tiling = {};
  context.backend().tiling(context.device(), &call.layer, &tiling);
  WorkShape shape = work_shape_of(call.layer, tiling, context.parallel_items(tiling));
  shape.key_splits = call.num_splits;
  shape.sharing = PrefixSharing::kNever;
  return shape;
}

namespace {

// Makes room in the scratch's plan for the call. The plan is built later.
void prepare_plan(const WorkShape& shape, const kvc_backend_rows& rows, StatelessScratch* scratch) {
  const BatchLimits limits = {rows.num_rows, rows.num_tokens, 0, false};
  const int64_t items = WorkPlan::max_items(shape, limits), tiles = WorkPlan::max_tiles(shape, limits);
  if (!scratch->plan || items > scratch->plan_items || tiles > scratch->plan_tiles) {
    const int64_t more_items = std::max(items, scratch->plan_items), more_tiles = std::max(tiles, scratch->plan_tiles);
    // The constructor may throw, so the sizes are set after it.
    scratch->plan = std::make_unique<WorkPlan>(more_items, more_tiles);
    scratch->plan_items = more_items;
    scratch->plan_tiles = more_tiles;
  }
  scratch->plan->set_shape(shape);
}

// Returns the part of a tensor that begins at `token`. This token belongs to batch row `row`.
kvc_backend_tensor tokens_from(const TensorView& t, int64_t row, int64_t token, int64_t row_tokens) {
  kvc_backend_tensor tensor = rows_of(t);
  int64_t element = token * tensor.token_stride;
  if (t.rank == 4) element += row * (t.strides[0] - row_tokens * t.strides[1]);
  tensor.data = t.data == nullptr ? nullptr : t.data + element * element_bytes(t.dtype);
  return tensor;
}

kvc_backend_scales scales_of_row(const kvc_backend_row_scales& scales, int64_t row) {
  if (scales.data == nullptr) return {};
  const int64_t head_stride_bytes = scales.head_stride * static_cast<int64_t>(sizeof(float));
  return {const_cast<float*>(scales.data) + row * scales.row_stride, 0, head_stride_bytes, 0, 0};
}

// Returns whether the rows of a batch follow each other in memory without a gap.
bool uniform(const TensorView& t) {
  return t.rank == 3 || t.shape[0] <= 1 || t.strides[0] == t.shape[1] * t.strides[1];
}

// Stores new K and V by one call of the backend. If rows have their own scales, or if there are gaps between rows,
// makes a call for each row. slots: the address that calls of the backend use (for_backend).
Status append(const Context& context, const FlashAttnCall& call, const FlashAttnRows& rows, const int64_t* slots,
              const float* cos_sin, const kvc_backend_step* staged, void* stream) {
  const int32_t* begin = rows.new_begin();
  const bool at_once = !call.unlike_scales && uniform(call.k) && uniform(call.v);
  const int64_t step = at_once ? std::max<int64_t>(call.rows, 1) : 1;
  for (int64_t row = 0; row < call.rows; row += step) {
    kvc_backend_layer layer = call.cache.layer;
    layer.k_scales = scales_of_row(call.attend.k_scales, row);
    layer.v_scales = scales_of_row(call.attend.v_scales, row);
    kvc_backend_append args = {};
    args.layer = &layer;
    args.num_tokens = begin[row + step] - begin[row];
    args.slots = slots + begin[row];
    args.k = tokens_from(call.k, row, begin[row], call.row_new);
    args.v = tokens_from(call.v, row, begin[row], call.row_new);
    if (cos_sin != nullptr) args.cos_sin = cos_sin + int64_t{begin[row]} * call.rotary.rotary_dim();
    args.step = staged;
    if (args.num_tokens == 0) continue;
    kvc_error error = KVC_ERROR_INIT;
    KVC_TRY(Status::from(context.backend().append(context.device(), &args, stream, &error), error));
  }
  return Status();
}

// Returns the plan for the backend's attend. Its `partials` is set later.
kvc_backend_plan plan_of(const FlashAttnCall& call, StatelessScratch& scratch) {
  kvc_backend_plan plan = {};
  scratch.plan->fill(scratch.rows.rows(), scratch.rows.tables(), nullptr, call.layer, &plan);
  scratch.tile_counters.resize(std::max(scratch.tile_counters.size(), scratch.plan->tiles().size()));
  plan.counters = scratch.tile_counters.data();
  return plan;
}

}  // namespace

Status flash_attn_with_kvcache(const std::shared_ptr<Context>& context, StatelessScratch& scratch,
                               const kvc_flash_attn_args& args, void* stream) {
  KVC_TRY(context->check_stream(stream));
  FlashAttnCall call;
  KVC_TRY(FlashAttnCall::read(args, *context, &call));
  if (call.indexes_on_device) return flash_attn_on_device(context, scratch, &call, stream);
  FlashAttnRows& rows = scratch.rows;
  KVC_TRY(rows.build(call));
  prepare_plan(shape_of(*context, call), rows.rows(), &scratch);
  KVC_TRY(rows.map_pages(call, *scratch.plan));
  scratch.plan->build(rows.rows(), call.flags, nullptr, nullptr, WorkPlan::listed_keys(call.attend.lists));
  kvc_backend_plan plan = plan_of(call, scratch);
  const int32_t queries = rows.rows().num_tokens, fresh = rows.new_begin()[call.rows];
  const int64_t partials = scratch.plan->partial_floats();
  const int64_t query_turns = call.rotary.cos_sin_floats(queries), new_turns = call.rotary.cos_sin_floats(fresh);
  CallMemory memory(context, stream);
  const int64_t sink_floats = call.sink_floats();
  int64_t bytes = 0;
  for (const int64_t floats : {partials, query_turns, new_turns, sink_floats}) {
    bytes += CallMemory::bytes_of<float>(floats);
  }
  KVC_TRY(memory.take(scratch, bytes));
  plan.partials = memory.next<float>(partials);
  float *const query_cos_sin = memory.next<float>(query_turns), *const new_cos_sin = memory.next<float>(new_turns);
  const bool rotates = call.rotary.given(), attends = plan.num_items > 0;
  float* const sinks = memory.next<float>(sink_floats);
  if (sink_floats > 0) call.attend.sinks = sinks;
  StagedCall staged(*context, stream);
  kvc_backend_array arrays[] = {array_of(rows.query_rotations(), rotates ? queries : 0),
                                array_of(rows.new_rotations(), rotates ? fresh : 0), array_of(rows.slots(), fresh)};
  KVC_TRY(staged.begin(arrays, attends ? &plan : nullptr));
  const auto* const query_rotations = for_backend<int32_t>(arrays[0]);
  const auto* const new_rotations = for_backend<int32_t>(arrays[1]);
  const auto* const slots = for_backend<int64_t>(arrays[2]);
  if (rotates) {
    KVC_TRY(call.rotary.rows_at(*context, query_rotations, queries, staged.step(), stream, query_cos_sin));
    KVC_TRY(call.rotary.rows_at(*context, new_rotations, fresh, staged.step(), stream, new_cos_sin));
    call.attend.cos_sin = query_cos_sin;
  }
  if (sink_floats > 0) KVC_TRY(to_float32(*context, call.sinks, stream, sinks));
  if (call.appends) {
    KVC_TRY(append(*context, call, rows, slots, rotates ? new_cos_sin : nullptr, staged.step(), stream));
  }
  if (attends) {
    call.attend.plan = &plan;
    kvc_error error = KVC_ERROR_INIT;
    KVC_TRY(Status::from(context->backend().attend(context->device(), &call.attend, stream, &error), error));
  }
  return staged.end();
}

}  // namespace kvc
