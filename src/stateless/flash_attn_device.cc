#include "stateless/flash_attn_device.h"

#include <algorithm>
#include <string_view>

#include "base/checked.h"

namespace kvc {
namespace {

constexpr int64_t kMaxPartialBytes = int64_t{256} << 20;  // if partial states need more, keys have fewer splits
constexpr int64_t kItemsAtOnce = 2;                       // items that are wanted for each item that can run at once

// Returns the gap, in elements, between the last token of one row of the batch and the first token of the next row.
// Returns 0 if there is no gap.
int64_t row_stride(const TensorView& t) { return t.rank == 4 ? t.strides[0] - t.shape[1] * t.strides[1] : 0; }

// Says how the work of a call is cut into items. The values of the index tensors have no influence on the cut.
struct Cut {
  int32_t item_queries;  // largest number of queries of a tile
  int32_t key_splits;    // items of a tile, each for a part of the keys
  int64_t max_tiles, partial_floats;
};

int64_t state_floats(const FlashAttnCall& call, const Cut& cut) {
  const int64_t floats = int64_t{call.layer.num_q_heads} * (call.layer.v_head_dim + 2);
  return cut.max_tiles * cut.item_queries * floats;
}

Cut cut_of(const FlashAttnCall& call, const WorkShape& shape) {
  const kvc_backend_tiling& tiling = shape.tiling;
  const int64_t tokens = call.q.rank == 4 ? call.rows * call.row_queries : call.q.shape[0];
  Cut cut = {};
  const bool few = call.row_queries >= 0 && call.row_queries <= tiling.query_tile;
  cut.item_queries = few ? std::max(1, static_cast<int32_t>(call.row_queries)) : tiling.query_tile;
  cut.max_tiles = call.rows + tokens / cut.item_queries;
  if (call.row_queries >= 0) cut.max_tiles = call.rows * ceil_div(call.row_queries, cut.item_queries);
  int64_t splits = call.num_splits;
  if (splits == 0) {
    const int64_t most = std::max<int64_t>(1, call.capacity / tiling.min_split_keys);
    const int64_t likely = call.row_queries >= 0 ? cut.max_tiles : std::max<int64_t>(1, tokens / cut.item_queries);
    splits = std::clamp<int64_t>(kItemsAtOnce * shape.num_threads / std::max<int64_t>(1, likely), 1, most);
  }
  const int64_t bytes = std::max<int64_t>(1, state_floats(call, cut) * static_cast<int64_t>(sizeof(float)));
  cut.key_splits = static_cast<int32_t>(std::clamp<int64_t>(kMaxPartialBytes / bytes, 1, splits));
  cut.partial_floats = cut.key_splits > 1 ? cut.key_splits * state_floats(call, cut) : 0;
  return cut;
}

// Returns the offsets of rows: those of the caller if they are given, or multiples of `each`.
kvc_backend_indexes offsets(const IndexTensor& given, int64_t each) {
  return given.given() ? given.on_device() : kvc_backend_indexes{nullptr, each, 0, 0};
}

kvc_backend_flash_plan read_plan(const FlashAttnCall& call, const WorkShape& shape, const Cut& cut) {
  kvc_backend_flash_plan plan = {};
  plan.layer = &call.layer;
  plan.num_rows = static_cast<int32_t>(call.rows);
  plan.flags = call.flags;
  plan.num_tokens = call.q.rank == 4 ? call.rows * call.row_queries : call.q.shape[0];
  if (call.appends) plan.num_new = call.k.rank == 4 ? call.rows * call.row_new : call.k.shape[0];
  plan.capacity = call.capacity;
  plan.num_cache_rows = call.paged() ? call.block_table.num_rows() : call.cache.layer.num_pages;
  plan.cu_seqlens_q = offsets(call.cu_seqlens_q, std::max<int64_t>(0, call.row_queries));
  plan.cu_seqlens_k_new = offsets(call.cu_seqlens_k_new, call.appends ? std::max<int64_t>(0, call.row_new) : 0);
  plan.cache_seqlens = call.cache_seqlens.given()
                           ? call.cache_seqlens.on_device()
                           : kvc_backend_indexes{nullptr, 0, static_cast<int32_t>(call.capacity), 0};
  const bool other_name = call.cache_seqlens.given() && call.cache_seqlens.name() == std::string_view("seqused_k");
  plan.lengths_array = other_name ? KVC_BACKEND_ARRAY_SEQUSED_K : KVC_BACKEND_ARRAY_CACHE_SEQLENS;
  plan.cache_batch_idx = offsets(call.batch_idx, call.has_lists() ? 0 : 1);  // lists of slots need no cache row
  plan.cache_leftpad = call.leftpad.on_device();
  if (call.paged()) {
    plan.block_table = call.block_table.data();
    plan.table_stride = call.block_table.row_stride();
    plan.table_columns = call.block_table.num_columns();
    plan.table_wide = call.block_table.wide() ? 1 : 0;
  }
  if (call.rotary.given()) {
    plan.num_rotations = call.rotary.positions();
    plan.rotary_given = call.rotary_seqlens.given() ? 1 : 0;
    plan.rotary_seqlens = call.rotary_seqlens.on_device();
    plan.queries_advance = call.window_right >= 0 || call.layer.window_tokens > 0 ? 1 : 0;
  }
  plan.window_right = call.window_right;
  plan.item_queries = cut.item_queries;
  plan.key_splits = cut.key_splits;
  plan.split_align = shape.tiling.split_align;
  plan.min_split_keys = call.num_splits > 0 ? 1 : shape.tiling.min_split_keys;
  plan.max_tiles = cut.max_tiles;
  return plan;
}

// Counts the bytes of the plan's arrays. If `memory` is not null, also places the arrays in this memory.
class Arrays {
 public:
  explicit Arrays(CallMemory* memory) : memory_(memory) {}
  template <class T>
  void operator()(T** array, int64_t count) {
    if (memory_ != nullptr) *array = memory_->next<T>(count);
    bytes_ += CallMemory::bytes_of<T>(count);
  }
  int64_t bytes() const { return bytes_; }

 private:
  CallMemory* memory_;
  int64_t bytes_ = 0;
};

// Arrays of floats: partial states, cos and sin of the queries, cos and sin of the new tokens, and sinks as float32.
struct Floats {
  float *partials, *queries, *fresh, *sinks;
};

void place(const FlashAttnCall& call, const Cut& cut, Arrays* arrays, kvc_backend_flash_plan* plan, Floats* floats) {
  const int64_t rows = plan->num_rows, tokens = plan->num_tokens, fresh = plan->num_new;
  for (int32_t** array : {&plan->token_begin, &plan->new_begin, &plan->tile_begin}) (*arrays)(array, rows + 1);
  for (int32_t** array : {&plan->kv_lengths, &plan->key_begins, &plan->cache_rows}) (*arrays)(array, rows);
  (*arrays)(&plan->page_begin, 2 * rows);
  if (plan->table_wide != 0) (*arrays)(&plan->pages, rows * plan->table_columns);
  (*arrays)(&plan->positions, tokens);
  if (call.window_right > 0) (*arrays)(&plan->key_ends, tokens);  // other windows need no key_ends
  (*arrays)(&plan->slots, fresh);
  (*arrays)(&plan->new_rows, fresh);
  (*arrays)(&plan->items, cut.max_tiles* cut.key_splits);
  (*arrays)(&plan->tiles, cut.max_tiles);
  (*arrays)(&floats->partials, cut.partial_floats);
  (*arrays)(&floats->sinks, call.sink_floats());
  if (!call.rotary.given()) return;
  (*arrays)(&plan->query_rotations, tokens);
  (*arrays)(&plan->new_rotations, fresh);
  (*arrays)(&floats->queries, call.rotary.cos_sin_floats(tokens));
  (*arrays)(&floats->fresh, call.rotary.cos_sin_floats(fresh));
}

Status append(const Context& context, const FlashAttnCall& call, const kvc_backend_flash_plan& plan,
              const float* cos_sin, void* stream) {
  kvc_backend_append args = {};
  args.layer = &call.cache.layer;
  args.num_tokens = plan.num_new;
  args.device_slots = {plan.slots, 1, 0, 1};
  args.device_rows = plan.new_rows;
  args.k = rows_of(call.k);
  args.v = rows_of(call.v);
  args.k_row_stride = row_stride(call.k);
  args.v_row_stride = row_stride(call.v);
  args.k_row_scales = call.attend.k_scales;
  args.v_row_scales = call.attend.v_scales;
  args.cos_sin = cos_sin;
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context.backend().append(context.device(), &args, stream, &error), error);
}

}  // namespace

Status flash_attn_on_device(const std::shared_ptr<Context>& context, StatelessScratch& scratch, FlashAttnCall* call,
                            void* stream) {
  const WorkShape shape = shape_of(*context, *call);
  const Cut cut = cut_of(*call, shape);
  kvc_backend_flash_plan plan = read_plan(*call, shape, cut);
  kvc_backend_plan work = {};
  plan.plan = &work;
  if (plan.num_rows == 0 || (plan.num_tokens == 0 && plan.num_new == 0)) return Status();
  Floats floats = {};
  Arrays sizes(nullptr);
  place(*call, cut, &sizes, &plan, &floats);
  CallMemory memory(context, stream);
  KVC_TRY(memory.take(scratch, sizes.bytes()));
  Arrays arrays(&memory);
  place(*call, cut, &arrays, &plan, &floats);
  work.partials = floats.partials;
  kvc_error error = KVC_ERROR_INIT;
  KVC_TRY(Status::from(context->backend().plan_flash(context->device(), &plan, stream, &error), error));
  if (call->rotary.given()) {
    KVC_TRY(call->rotary.rows_at(*context, {plan.query_rotations, 1, 0, 0}, plan.num_tokens, stream, floats.queries));
    KVC_TRY(call->rotary.rows_at(*context, {plan.new_rotations, 1, 0, 0}, plan.num_new, stream, floats.fresh));
    call->attend.cos_sin = floats.queries;
  }
  if (call->sink_floats() > 0) {
    KVC_TRY(to_float32(*context, call->sinks, stream, floats.sinks));
    call->attend.sinks = floats.sinks;
  }
  if (plan.num_new > 0) KVC_TRY(append(*context, *call, plan, floats.fresh, stream));
  if (plan.num_tokens == 0) return Status();
  call->attend.plan = &work;
  return Status::from(context->backend().attend(context->device(), &call->attend, stream, &error), error);
}

}  // namespace kvc
