// plan_flash: makes the plan of a stateless call from index tensors on the device, with two kernels:
//   - plan_rows_kernel: the first block reads and checks the values of all rows, and numbers the tiles of queries. The
//     other blocks make all entries inert that plan_fill_kernel may leave unwritten.
//   - plan_fill_kernel: a block for each row writes the positions and rotations of its tokens, the slots of its new
//     tokens, and the items of its tiles. It converts the page ids of an int64 block table to int32. If the context
//     validates, it first checks the page ids that will be read. A row with a bad page id stays inert.
//
// Roofline: the bytes of the index arrays. plan_rows_kernel takes as long as its first block: about 2 us for 256 rows.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/key_split.h"
#include "kernels/common/mask.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/faults.cuh"
#include "kernels/cuda/plan/indexes.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// The parameter of both kernels, passed by value. The device must not read args.layer, which is a host address; `layer`
// is its copy.
struct FlashPlanCall {
  kvc_backend_flash_plan args;
  kvc_backend_layer layer;
  FaultSink sink;
};

KVC_HOST_DEVICE kvc_backend_rows rows_of_plan(const kvc_backend_flash_plan& args) {
  kvc_backend_rows rows = {};
  rows.num_rows = args.num_rows;
  rows.num_tokens = static_cast<int32_t>(args.num_tokens);
  rows.token_begin = args.token_begin;
  rows.kv_lengths = args.kv_lengths;
  rows.positions = args.positions;
  rows.key_ends = args.key_ends;
  rows.key_begins = args.key_begins;
  return rows;
}

// The array that page_begin indexes: the page lists as int32. Without a block table, a cache row is one page, so the
// number of the cache row is the page id.
KVC_HOST_DEVICE const int32_t* page_lists(const kvc_backend_flash_plan& args) {
  if (args.block_table == nullptr) return args.cache_rows;
  return args.table_wide != 0 ? args.pages : static_cast<const int32_t*>(args.block_table);
}

// Fills the plan that attend gets.
void fill_plan(const kvc_backend_flash_plan& args) {
  float* const partials = args.plan->partials;
  kvc_backend_plan& plan = *args.plan;
  plan = {};
  plan.device.rows = rows_of_plan(args);
  plan.device.tables.pages = page_lists(args);
  plan.device.tables.page_begin = args.page_begin;
  plan.device.items = args.items;
  plan.device.tiles = args.tiles;
  plan.layer = args.layer;
  plan.flags = args.flags;
  plan.num_items = plan.max_items = args.max_tiles * args.key_splits;
  plan.num_tiles = plan.max_tiles = args.key_splits > 1 ? args.max_tiles : 0;
  plan.partials = partials;
  plan.device_item_queries = args.item_queries;
}

// The checked index values of a row. fresh: the number of its new tokens, which begin at new_begin.
struct FlashRow {
  int64_t token_begin, queries;
  int64_t new_begin, fresh;
  int64_t length;  // in tokens, new ones included; -1: a value of the row is bad
  int64_t pad, cache_row;
};

__device__ __forceinline__ int64_t first_rotation(const kvc_backend_flash_plan& args, int64_t row, int64_t cached) {
  return args.rotary_given != 0 ? index_at(args.rotary_seqlens, row) : cached;
}

// Whether the tables of cos and sin have rows for all rotations of a row's queries and new tokens.
__device__ __forceinline__ bool turns_within(const kvc_backend_flash_plan& args, int64_t r, const FlashRow& row,
                                             const ValueCheck& check) {
  const int64_t queries = args.queries_advance != 0 || row.queries == 0 ? row.queries : 1;
  const int64_t count = queries > row.fresh ? queries : row.fresh;
  if (count == 0) return true;
  return check.within(args.rotary_given != 0 ? KVC_BACKEND_ARRAY_ROTARY_SEQLENS : args.lengths_array, r,
                      first_rotation(args, r, row.length - row.fresh), 0, args.num_rotations - count);
}

// Whether the offsets of a row's tokens are valid: 0 <= begin <= begin + count <= tokens, and begin is 0 in row 0.
__device__ __forceinline__ bool offsets_within(int32_t array, int64_t r, int64_t begin, int64_t count, int64_t tokens,
                                               const ValueCheck& check) {
  return check.within(array, r, begin, 0, r == 0 ? 0 : tokens) &&
         check.element(array, r, r + 1, begin + count, begin, tokens);
}

// Reads row r of the batch. Sets the length to -1 if a value of the row is out of range.
__device__ __forceinline__ FlashRow read_row(const kvc_backend_flash_plan& args, int64_t r, const ValueCheck& check) {
  FlashRow row;
  row.token_begin = index_at(args.cu_seqlens_q, r);
  row.queries = index_at(args.cu_seqlens_q, r + 1) - row.token_begin;
  row.new_begin = index_at(args.cu_seqlens_k_new, r);
  row.fresh = index_at(args.cu_seqlens_k_new, r + 1) - row.new_begin;
  row.pad = index_at(args.cache_leftpad, r);
  row.cache_row = index_at(args.cache_batch_idx, r);
  const int64_t cached = index_at(args.cache_seqlens, r);
  row.length = cached + row.fresh;
  const bool good =
      offsets_within(KVC_BACKEND_ARRAY_CU_SEQLENS_Q, r, row.token_begin, row.queries, args.num_tokens, check) &&
      offsets_within(KVC_BACKEND_ARRAY_CU_SEQLENS_K_NEW, r, row.new_begin, row.fresh, args.num_new, check) &&
      check.within(args.lengths_array, r, cached, 0, args.capacity - row.fresh) &&
      check.within(KVC_BACKEND_ARRAY_CACHE_LEFTPAD, r, row.pad, 0, cached) &&
      check.within(KVC_BACKEND_ARRAY_CACHE_BATCH_IDX, r, row.cache_row, 0, args.num_cache_rows - 1) &&
      (args.num_rotations == 0 || turns_within(args, r, row, check));
  if (!good) row.length = -1;
  return row;
}

__device__ __forceinline__ void write_row(const kvc_backend_flash_plan& args, int64_t r, const FlashRow& row) {
  const bool refused = row.length < 0;
  args.token_begin[r] = static_cast<int32_t>(row.token_begin);
  args.new_begin[r] = static_cast<int32_t>(row.new_begin);
  if (r + 1 == args.num_rows) {
    args.token_begin[r + 1] = static_cast<int32_t>(row.token_begin + row.queries);
    args.new_begin[r + 1] = static_cast<int32_t>(row.new_begin + row.fresh);
  }
  args.kv_lengths[r] = static_cast<int32_t>(row.length);
  args.key_begins[r] = refused ? 0 : static_cast<int32_t>(row.pad);
  args.cache_rows[r] = refused ? 0 : static_cast<int32_t>(row.cache_row);
  int64_t list = r;
  if (args.block_table != nullptr) {
    list = args.table_wide != 0 ? r * args.table_columns : row.cache_row * args.table_stride;
  }
  args.page_begin[2 * r] = args.page_begin[2 * r + 1] = refused ? 0 : list;
}

__device__ __forceinline__ void number_rows(const kvc_backend_flash_plan& args, const ValueCheck& check) {
  int32_t* const sums = reinterpret_cast<int32_t*>(shared_bytes());
  int32_t tiles = 0;
  for (int64_t begin = 0; begin < args.num_rows; begin += kThreads) {
    const int64_t r = begin + threadIdx.x;
    int32_t own = 0;
    if (r < args.num_rows) {
      const FlashRow row = read_row(args, r, check);
      write_row(args, r, row);
      if (row.length >= 0) own = static_cast<int32_t>((row.queries + args.item_queries - 1) / args.item_queries);
    }
    int32_t total;
    const int32_t before = sum_before<kThreads>(own, sums, &total);
    if (r < args.num_rows) args.tile_begin[r] = tiles + before;
    tiles += total;
  }
  if (threadIdx.x == 0) args.tile_begin[args.num_rows] = tiles;
}

__global__ void __launch_bounds__(kThreads) plan_rows_kernel(const __grid_constant__ FlashPlanCall call) {
  const kvc_backend_flash_plan& args = call.args;
  if (blockIdx.x == 0) {
    number_rows(args, {call.sink, KVC_BACKEND_CALL_FLASH_ATTN});
    return;
  }
  const int64_t threads = static_cast<int64_t>(gridDim.x - 1) * kThreads;
  const int64_t thread = static_cast<int64_t>(blockIdx.x - 1) * kThreads + threadIdx.x;
  const kvc_backend_item no_item = {0, 0, 0, 0, 0, 0, 0, -1, -1, 0, 0, 0, 0};
  const kvc_backend_tile no_tile = {0, 0, 0, 0, 0, 0};
  for (int64_t i = thread; i < args.max_tiles * args.key_splits; i += threads) args.items[i] = no_item;
  for (int64_t i = thread; i < args.max_tiles; i += threads) args.tiles[i] = no_tile;
  for (int64_t i = thread; i < args.num_tokens && args.query_rotations != nullptr; i += threads) {
    args.query_rotations[i] = -1;
  }
  for (int64_t i = thread; i < args.num_new; i += threads) {
    args.slots[i] = -1;
    args.new_rows[i] = 0;
    if (args.new_rotations != nullptr) args.new_rotations[i] = -1;
  }
}

// Writes the items of the tile with the queries [q_begin, q_end) of a row. attend: only its plan and layer are set,
// which query_mask reads.
__device__ __forceinline__ void cut_tile(const FlashPlanCall& call, const kvc_backend_attend& attend, int32_t row,
                                         int64_t tile, int32_t q_begin, int32_t q_end) {
  const kvc_backend_flash_plan& args = call.args;
  const int32_t length = args.kv_lengths[row];
  kvc_backend_item item = {row, q_begin, q_end, 0, call.layer.num_kv_heads, 0, length, -1, -1, 0, 0, 0, 0};
  // Positions ascend. So the first key that any query of the tile sees is the first key of its first query, and the
  // last key is the last key of its last query.
  const int32_t begin = query_mask(&attend, &item, row, q_begin).keys.begin;
  const int32_t end = query_mask(&attend, &item, row, q_end - 1).keys.end;
  const int64_t keys = end > begin ? end - begin : 0, wanted = keys / args.min_split_keys;
  const KeySplit split =
      split_keys(begin < end ? begin : end, end, args.split_align, wanted < args.key_splits ? wanted : args.key_splits);
  const int32_t parts = static_cast<int32_t>(count_parts(split));
  const int64_t first = tile * args.key_splits;
  const int64_t floats = int64_t{args.item_queries} * call.layer.num_q_heads * (call.layer.v_head_dim + 2);
  for (int32_t i = 0; i < parts; ++i) {
    keys_of_part(split, i, &item.key_begin, &item.key_end);
    if (parts > 1) {
      item.tile = static_cast<int32_t>(tile);
      item.partial_offset = (first + i) * floats;
    }
    args.items[first + i] = item;
  }
  if (parts == 1) return;
  const kvc_backend_tile merged = {static_cast<int32_t>(first), static_cast<int32_t>(first) + parts, 0, 0, 0, 0};
  args.tiles[tile] = merged;
}

// Writes the positions and rotations of a row's queries.
__device__ __forceinline__ void fill_queries(const kvc_backend_flash_plan& args, int32_t r, int32_t length,
                                             int32_t turn) {
  const int32_t token_begin = args.token_begin[r];
  const int32_t queries = static_cast<int32_t>(index_at(args.cu_seqlens_q, r + 1)) - token_begin;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < queries; i += kThreads) {
    const int32_t position = length - (queries - i);
    args.positions[token_begin + i] = position;
    if (args.key_ends != nullptr) {
      const int64_t end = int64_t{position} + 1 + args.window_right;
      args.key_ends[token_begin + i] = static_cast<int32_t>(end < length ? end : length);
    }
    if (args.query_rotations != nullptr) {
      args.query_rotations[token_begin + i] = turn + (args.queries_advance != 0 ? i : 0);
    }
  }
}

// The page list of a row, as int32.
__device__ __forceinline__ const int32_t* list_of_row(const kvc_backend_flash_plan& args, int32_t r) {
  return page_lists(args) + args.page_begin[2 * r];
}

// The first entry of a row's page list that is read or written. This page has the first key that the row's first query
// sees, or the first new token, whichever comes first.
__device__ __forceinline__ int32_t first_page(const FlashPlanCall& call, const kvc_backend_attend& attend, int32_t r,
                                              int32_t length, int32_t first_new) {
  const kvc_backend_flash_plan& args = call.args;
  int32_t first = first_new;
  if (static_cast<int32_t>(index_at(args.cu_seqlens_q, r + 1)) > args.token_begin[r]) {
    const kvc_backend_item item = {r, 0, 1, 0, 1, 0, length, -1, -1, 0, 0, 0, 0};
    const int32_t seen = query_mask(&attend, &item, r, 0).keys.begin;
    first = seen < first ? seen : first;
  }
  return first / call.layer.page_size;
}

__device__ __forceinline__ int32_t pages_of(const FlashPlanCall& call, int32_t length) {
  return (length + call.layer.page_size - 1) / call.layer.page_size;
}

// Converts entries [begin, end) of a row of an int64 block table to int32. A number that is no int32 page id becomes
// -1.
__device__ __forceinline__ void narrow_pages(const FlashPlanCall& call, int32_t r, int32_t begin, int32_t end) {
  const kvc_backend_flash_plan& args = call.args;
  const int64_t* const from = static_cast<const int64_t*>(args.block_table) + args.cache_rows[r] * args.table_stride;
  int32_t* const to = args.pages + args.page_begin[2 * r];
  for (int32_t i = begin + static_cast<int32_t>(threadIdx.x); i < end; i += kThreads) {
    to[i] = is_within(from[i], 0, INT32_MAX) ? static_cast<int32_t>(from[i]) : -1;
  }
}

// Writes the slots and rotations of a row's new tokens, from position `first` on.
__device__ __forceinline__ void fill_slots(const FlashPlanCall& call, int32_t r, int32_t first, int32_t fresh,
                                           int32_t turn) {
  const kvc_backend_flash_plan& args = call.args;
  const int32_t new_begin = args.new_begin[r];
  const int32_t* const list = list_of_row(args, r);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < fresh; i += kThreads) {
    const int32_t position = first + i, size = call.layer.page_size;
    const int64_t page = list[position / size];
    args.new_rows[new_begin + i] = r;
    args.slots[new_begin + i] = page * size + position % size;  // append skips slots outside the cache
    if (args.new_rotations != nullptr) args.new_rotations[new_begin + i] = turn + i;
  }
}

// Whether entries [begin, end) of a row's list are pages of the cache. Each thread checks some of them, and returns the
// result for these.
__device__ __forceinline__ bool own_pages_within(const FlashPlanCall& call, int32_t r, int32_t begin, int32_t end) {
  const kvc_backend_flash_plan& args = call.args;
  const ValueCheck check = {call.sink, KVC_BACKEND_CALL_FLASH_ATTN};
  const int32_t* const list = list_of_row(args, r);
  bool good = true;
  for (int32_t i = begin + static_cast<int32_t>(threadIdx.x); i < end; i += kThreads) {
    good = check.entry(KVC_BACKEND_FAULT_RANGE, KVC_BACKEND_ARRAY_BLOCK_TABLE, r, args.cache_rows[r], i, list[i],
                       call.layer.num_pages - 1) &&
           good;
  }
  return good;
}

// The arguments of query_mask, in shared memory, and whether a thread found a bad page id.
struct Masks {
  kvc_backend_attend attend;
  kvc_backend_plan plan;
  kvc_backend_layer layer;
  int32_t bad_pages;
};

__global__ void __launch_bounds__(kThreads) plan_fill_kernel(const __grid_constant__ FlashPlanCall call) {
  const kvc_backend_flash_plan& args = call.args;
  const int32_t row = static_cast<int32_t>(blockIdx.x), length = args.kv_lengths[row];
  if (length < 0) return;
  Masks& masks = *reinterpret_cast<Masks*>(shared_bytes());
  if (threadIdx.x == 0) {
    masks.plan.arrays.rows = rows_of_plan(args);
    masks.plan.flags = args.flags;
    masks.layer = call.layer;
    masks.attend.layer = &masks.layer;
    masks.attend.plan = &masks.plan;
    masks.bad_pages = 0;
  }
  const int32_t fresh = static_cast<int32_t>(index_at(args.cu_seqlens_k_new, row + 1)) - args.new_begin[row];
  const int32_t turn = args.num_rotations > 0 ? static_cast<int32_t>(first_rotation(args, row, length - fresh)) : 0;
  fill_queries(args, row, length, turn);
  __syncthreads();
  if (args.block_table != nullptr && (args.table_wide != 0 || call.sink.record != nullptr)) {
    const int32_t first = first_page(call, masks.attend, row, length, length - fresh), end = pages_of(call, length);
    if (args.table_wide != 0) narrow_pages(call, row, first, end);
    __syncthreads();
    if (call.sink.record != nullptr && !own_pages_within(call, row, first, end)) masks.bad_pages = 1;
    __syncthreads();
    if (masks.bad_pages != 0) return;
  }
  fill_slots(call, row, length - fresh, fresh, turn);
  const int32_t begin = args.tile_begin[row], end = args.tile_begin[row + 1];
  const int32_t queries = static_cast<int32_t>(index_at(args.cu_seqlens_q, row + 1)) - args.token_begin[row];
  for (int32_t tile = begin + static_cast<int32_t>(threadIdx.x); tile < end && tile < args.max_tiles;
       tile += kThreads) {
    const int32_t first = (tile - begin) * args.item_queries, last = first + args.item_queries;
    cut_tile(call, masks.attend, row, tile, first, last < queries ? last : queries);
  }
}

}  // namespace

kvc_status plan_flash(kvc_backend_device* opened, const kvc_backend_flash_plan* args, void* stream, kvc_error* error) {
  fill_plan(*args);
  if (args->num_rows == 0) return KVC_OK;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  const FlashPlanCall call = {*args, *args->layer, device.faults.sink()};
  const int64_t most = args->max_tiles * args->key_splits + args->num_new + args->num_tokens;
  constexpr int64_t kClearing = 8 * kThreads;  // the number of elements that a block makes inert
  const unsigned blocks = 1 + blocks_for(most, kClearing);
  kvc_status status = launch("the rows of a stateless call", stream, {blocks, 1, 1}, kThreads,
                             2 * kThreads * sizeof(int32_t), error, plan_rows_kernel, call);
  if (status != KVC_OK) return status;
  return launch("the items of a stateless call", stream, {static_cast<unsigned>(args->num_rows), 1, 1}, kThreads,
                sizeof(Masks), error, plan_fill_kernel, call);
}

}  // namespace kvc::kernels::cuda
