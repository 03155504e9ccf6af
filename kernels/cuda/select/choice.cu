// The second kernel of select: chooses the entries with the highest orders (call.cuh). A thread block handles one list.
// It finds the k-th largest order digit by digit. It writes all entries with a higher order, and the first entries with
// this order, up to k entries. Entries are written by ascending place. If an entry is a block of keys, its order is the
// largest order of its keys. That order is written at the place of the block's first key.
//
// Digits have 8 bits, so shared memory has room for a counter for each digit and lane. The lanes of a warp then never
// count in the same bank. A list begins at a multiple of 16 bytes, and a thread reads 4 orders at a time.
//
// Roofline: five reads of the orders, from the L2 cache. Blocks of keys need another read, and so do entries that are
// always chosen.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device.h"
#include "kernels/cuda/select/call.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {
namespace {

constexpr int kChoiceThreads = 1024, kChoiceWarps = kChoiceThreads / kWarpSize, kDigitBits = 8, kDigits = 1 << 8;
static_assert(kChoiceWarps == kWarpSize, "a warp adds what all warps counted");

struct ChoiceFixed {
  SeenKeys seen;
  uint32_t counts[kDigits][kWarpSize];  // for each digit and lane
  uint32_t digits[kDigits];             // sums over the lanes
  uint32_t warps[2][kChoiceWarps];      // the counts of each warp, for even and odd steps (write_highest)
  uint32_t prefix, known;               // the digits of the k-th largest order found so far, and a mask of their bits
  int32_t left;                         // the number of entries with the known digits that are still to be taken
};
static_assert(sizeof(ChoiceFixed) <= kMaxSharedBytes);

// Four orders, from place `at` on. Those beyond n are kAbsentOrder.
struct FourOrders {
  uint32_t at[4];
};
__device__ __forceinline__ FourOrders four_orders(const uint32_t* orders, int32_t at, int32_t n) {
  FourOrders four = {};
  if (at >= n) return four;
  memcpy(four.at, __builtin_assume_aligned(orders + at, 16), sizeof four.at);  // a list has room for a multiple of 4
#pragma unroll
  for (int i = 0; i < 4; ++i) four.at[i] = at + i < n ? four.at[i] : kAbsentOrder;
  return four;
}

// Returns the sum of x over the lanes before this lane. Sets *sum to the sum over all lanes.
__device__ __forceinline__ uint32_t sum_before(uint32_t x, int32_t lane, uint32_t* sum) {
  uint32_t with = x;
#pragma unroll
  for (int step = 1; step < kWarpSize; step *= 2) {
    const uint32_t from = __shfl_sync(kAllLanes, with, lane >= step ? lane - step : lane);
    if (lane >= step) with += from;
  }
  *sum = __shfl_sync(kAllLanes, with, kWarpSize - 1);
  return with - x;
}

// Returns the number of the entry (a key, or a block of keys) that has the key at place `at`.
__device__ __forceinline__ int32_t unit_at(const SelectCall& call, const SeenKeys& seen, const int32_t* keys,
                                           int32_t at) {
  return (keys == nullptr ? seen.keys.begin + at : keys[at]) / call.select.block_tokens;
}

// Replaces the order at the first key of each block of keys by the largest order in the block. The orders at the other
// places become kAbsentOrder.
__device__ void reduce_blocks(const SelectCall& call, const SeenKeys& seen, const int32_t* keys, int32_t n,
                              uint32_t* orders) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  if (call.select.block_tokens == 1) return;
  const auto begins = [&](int32_t i) {
    return i == 0 || unit_at(call, seen, keys, i) != unit_at(call, seen, keys, i - 1);
  };
  for (int32_t i = thread; i < n; i += kChoiceThreads) {
    if (!begins(i)) continue;
    uint32_t most = orders[i];
    for (int32_t j = i + 1; j < n && !begins(j); ++j) most = orders[j] > most ? orders[j] : most;
    orders[i] = most;
  }
  __syncthreads();
  for (int32_t i = thread; i < n; i += kChoiceThreads) {
    if (!begins(i)) orders[i] = kAbsentOrder;
  }
  __syncthreads();
}

// Sets the order of the entries that are always chosen to kForcedOrder, the highest order.
__device__ void force(const SelectCall& call, const SeenKeys& seen, const int32_t* keys, int32_t token, int32_t n,
                      uint32_t* orders) {
  const kvc_backend_select& select = call.select;
  if (select.first_blocks == 0 && select.last_blocks == 0) return;
  const kvc_backend_rows& rows = call.attend.plan.arrays.rows;
  const int32_t row = seen.item.row, length = rows.kv_lengths[row];
  const int32_t first_new = length - (rows.token_begin[row + 1] - rows.token_begin[row]);
  const int32_t own_key = seen.tree.begin < length ? first_new + seen.query : rows.positions[token];
  const int32_t own = own_key / select.block_tokens;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < n; i += kChoiceThreads) {
    const int32_t unit = unit_at(call, seen, keys, i);
    const bool last = unit <= own && unit > own - select.last_blocks;
    if (orders[i] != kAbsentOrder && (unit < select.first_blocks || last)) orders[i] = kForcedOrder;
  }
  __syncthreads();
}

// Finds the digit of the k-th largest order that begins at bit `shift`. One warp calls it. Each lane has 8 values of
// the digit. Lane 0 has the highest values.
__device__ __forceinline__ void find_digit(int shift, int32_t lane, ChoiceFixed* fixed) {
  constexpr int kEach = kDigits / kWarpSize;
  const uint32_t left = static_cast<uint32_t>(fixed->left);
  uint32_t own = 0, all = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) own += fixed->digits[kDigits - 1 - (lane * kEach + i)];
  uint32_t before = sum_before(own, lane, &all);
  __syncwarp();  // all lanes have read `left`
  if (all < left) {
    if (lane != 0) return;
    fixed->prefix = kAbsentOrder;
    fixed->left = 0;
    return;
  }
  if (before >= left || before + own < left) return;
  int32_t digit = kDigits - 1 - lane * kEach;  // only the lane that has the digit comes here
  while (before + fixed->digits[digit] < left) before += fixed->digits[digit--];
  fixed->prefix |= static_cast<uint32_t>(digit) << shift;
  fixed->known |= static_cast<uint32_t>(kDigits - 1) << shift;
  fixed->left = static_cast<int32_t>(left - before);
}

// Finds the k-th largest of n orders, from the highest digit to the lowest. Before the call, fixed->left is k. After
// it, fixed->prefix is the k-th largest order, and fixed->left is the number of entries with this order that are taken.
// Entries that are absent count too, as the lowest ones. So if fewer than k entries are present, prefix is
// kAbsentOrder.
__device__ void find_highest(const uint32_t* orders, int32_t n, ChoiceFixed* fixed) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x), warp = thread / kWarpSize, lane = thread % kWarpSize;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    for (int32_t i = warp; i < kDigits; i += kChoiceWarps) fixed->counts[i][lane] = 0;
    __syncthreads();
    const uint32_t known = fixed->known, prefix = fixed->prefix;
#pragma unroll 4
    for (int32_t at = thread * 4; at < n; at += kChoiceThreads * 4) {
      const FourOrders four = four_orders(orders, at, n);
#pragma unroll
      for (const uint32_t order : four.at) {
        if (((order ^ prefix) & known) == 0) atomicAdd(&fixed->counts[order >> shift & (kDigits - 1)][lane], 1u);
      }
    }
    __syncthreads();
    for (int32_t i = warp; i < kDigits; i += kChoiceWarps) {
      uint32_t sum = 0;
      sum_before(fixed->counts[i][lane], lane, &sum);
      if (lane == 0) fixed->digits[i] = sum;
    }
    __syncthreads();
    if (warp == 0) find_digit(shift, lane, fixed);
    __syncthreads();
    if (fixed->left == 0) return;  // too few entries
  }
}

// Writes the chosen entries by ascending place, and -1 after them. `least` is the k-th largest order. The lower 16 bits
// of a count are the number of orders above `least`, and the upper 16 bits are the number of orders equal to it.
// Neither number overflows, because all threads together process 4096 orders in a step.
__device__ void write_highest(const SelectCall& call, const int32_t* keys, const uint32_t* orders, int32_t n,
                              int32_t* out, ChoiceFixed* fixed) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x), warp = thread / kWarpSize, lane = thread % kWarpSize;
  const int32_t k = call.select.num_entries;
  const uint32_t least = fixed->prefix;
  int32_t written = 0, ties = fixed->left;  // all threads have the same values
  FourOrders next = four_orders(orders, thread * 4, n);
  for (int32_t begin = 0, turn = 0; begin < n; begin += kChoiceThreads * 4, turn ^= 1) {
    const FourOrders four = next;
    next = four_orders(orders, begin + (kChoiceThreads + thread) * 4, n);
    uint32_t own = 0;
#pragma unroll
    for (const uint32_t order : four.at) {
      own += (order > least ? 1u : 0u) + (order == least && order != kAbsentOrder ? 1u << 16 : 0u);
    }
    uint32_t of_warp = 0, all = 0;
    uint32_t before = sum_before(own, lane, &of_warp);
    if (lane == 0) fixed->warps[turn][warp] = of_warp;
    __syncthreads();  // `warps` is written again two steps later
    const uint32_t warps_before = sum_before(fixed->warps[turn][lane], lane, &all);
    before += __shfl_sync(kAllLanes, warps_before, warp);
    int32_t above_before = static_cast<int32_t>(before & 0xffffu), equal_before = static_cast<int32_t>(before >> 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t order = four.at[i];
      const bool above = order > least, equal = order == least && order != kAbsentOrder;
      const int32_t taken_before = equal_before < ties ? equal_before : ties;
      if (above || (equal && equal_before < ties)) {
        out[written + above_before + taken_before] = unit_at(call, fixed->seen, keys, begin + thread * 4 + i);
      }
      above_before += above ? 1 : 0;
      equal_before += equal ? 1 : 0;
    }
    const int32_t all_equal = static_cast<int32_t>(all >> 16), taken = all_equal < ties ? all_equal : ties;
    written += static_cast<int32_t>(all & 0xffffu) + taken;
    ties -= taken;
  }
  for (int32_t i = written + thread; i < k; i += kChoiceThreads) out[i] = -1;
}

__global__ void __launch_bounds__(kChoiceThreads, 1) choice_kernel(const __grid_constant__ SelectCall call) {
  ChoiceFixed& fixed = *reinterpret_cast<ChoiceFixed*>(shared_bytes());
  const int32_t lists = call.list_end - call.list_begin;
  const int32_t token = call.token_begin + static_cast<int32_t>(blockIdx.x) / lists;
  const int32_t list = call.list_begin + static_cast<int32_t>(blockIdx.x) % lists;
  const kvc_backend_select& select = call.select;
  if (threadIdx.x == 0) {
    find_seen_keys(call.attend, token, 0, &fixed.seen);
    fixed.prefix = fixed.known = 0;
    fixed.left = select.num_entries;
  }
  __syncthreads();
  const SeenKeys& seen = fixed.seen;
  if (call.attend.plan.arrays.rows.kv_lengths[seen.item.row] < 0) return;
  const ListedKeys& listed = call.attend.listed;
  const int32_t* const keys =
      has_lists(call.attend) ? listed.keys + list_of(listed, 0, token, list) * listed.most : nullptr;
  const int32_t n = keys_of(call, seen, token, list);
  uint32_t* const orders = orders_of(call, token, list);
  reduce_blocks(call, seen, keys, n, orders);
  force(call, seen, keys, token, n, orders);
  find_highest(orders, n, &fixed);
  write_highest(call, keys, orders, n, select.entries + token * select.token_stride + list * select.head_stride,
                &fixed);
}

}  // namespace

kvc_status launch_choice(const SelectCall& call, int32_t queries, void* stream, kvc_error* error) {
  const int64_t lists = int64_t{queries} * (call.list_end - call.list_begin);
  return launch("choice of keys", stream, {static_cast<unsigned>(lists), 1, 1}, kChoiceThreads, sizeof(ChoiceFixed),
                error, choice_kernel, call);
}

}  // namespace kvc::kernels::cuda
