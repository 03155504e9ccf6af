// The second kernel of select: chooses the entries with the highest orders (call.cuh). A thread block handles one list.
// It finds the k-th largest order digit by digit. It writes all entries with a higher order, and the first entries with
// this order, up to k entries. Entries are written by ascending place. If an entry is a block of keys, its order is the
// largest order of its keys. That order is written at the place of the block's first key.
//
// Roofline: four reads of the orders, from the L2 cache. Blocks of keys need another read, and so do entries that are
// always chosen.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device.h"
#include "kernels/cuda/select/call.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {
namespace {

constexpr int kChoiceThreads = 512, kChoiceWarps = kChoiceThreads / kWarpSize, kDigitBits = 11, kDigits = 1 << 11;

struct ChoiceFixed {
  SeenKeys seen;
  uint32_t counts[kDigits];
  int32_t above[kChoiceWarps], equal[kChoiceWarps];
  uint32_t prefix, known;
  int32_t left;  // the number of entries with the known digits that are still to be taken
};

// The entry (a key, or a block of keys) of the key at place `at`.
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

// Finds the k-th largest of n orders, from the highest digit to the lowest. Before the call, fixed->left is k. After
// it, fixed->prefix is the k-th largest order, and fixed->left is the number of entries with this order that are taken.
// If fewer than k entries are present, prefix is kAbsentOrder and left is 0.
__device__ void find_highest(const uint32_t* orders, int32_t n, ChoiceFixed* fixed) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  for (int shift = 32 - kDigitBits;; shift = shift > kDigitBits ? shift - kDigitBits : 0) {
    for (int32_t d = thread; d < kDigits; d += kChoiceThreads) fixed->counts[d] = 0;
    __syncthreads();
    const uint32_t known = fixed->known, prefix = fixed->prefix;
    uint32_t digit = 0, run = 0;  // equal digits in a row are counted together, because ReLU makes many zeros
    for (int32_t i = thread; i < n; i += kChoiceThreads) {
      const uint32_t order = orders[i];
      if (order == kAbsentOrder || (order & known) != prefix) continue;
      const uint32_t next = (order >> shift) & (kDigits - 1);
      if (next != digit && run > 0) {
        atomicAdd(&fixed->counts[digit], run);
        run = 0;
      }
      digit = next;
      ++run;
    }
    if (run > 0) atomicAdd(&fixed->counts[digit], run);
    __syncthreads();
    if (thread == 0) {
      // The last digit may overlap the digit before it. The bits that they share are already known.
      int32_t left = fixed->left, d = kDigits - 1;
      while (d >= 0 && static_cast<int32_t>(fixed->counts[d]) < left) left -= static_cast<int32_t>(fixed->counts[d--]);
      if (d < 0) {
        fixed->prefix = kAbsentOrder;
        fixed->left = 0;
      } else {
        fixed->left = left;
        fixed->prefix |= static_cast<uint32_t>(d) << shift;
      }
      fixed->known |= static_cast<uint32_t>(kDigits - 1) << shift;
    }
    __syncthreads();
    if (shift == 0 || fixed->prefix == kAbsentOrder) return;
  }
}

// Writes the chosen entries in the order of their places, and -1 after them.
__device__ void write_highest(const SelectCall& call, const int32_t* keys, const uint32_t* orders, int32_t n,
                              int32_t* out, ChoiceFixed* fixed) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x), warp = thread / kWarpSize, lane = thread % kWarpSize;
  const int32_t k = call.select.num_entries;
  const uint32_t before = (1u << lane) - 1, least = fixed->prefix;
  int32_t written = 0, ties = fixed->left;  // all threads have the same values
  for (int32_t begin = 0; begin < n; begin += kChoiceThreads) {
    const uint32_t order = begin + thread < n ? orders[begin + thread] : kAbsentOrder;
    const uint32_t above = __ballot_sync(kAllLanes, order > least);
    const uint32_t equal = __ballot_sync(kAllLanes, order == least && order != kAbsentOrder);
    if (lane == 0) {
      fixed->above[warp] = __popc(above);
      fixed->equal[warp] = __popc(equal);
    }
    __syncthreads();
    int32_t above_before = __popc(above & before), equal_before = __popc(equal & before), all_above = 0, all_equal = 0;
    for (int32_t w = 0; w < kChoiceWarps; ++w) {
      if (w < warp) {
        above_before += fixed->above[w];
        equal_before += fixed->equal[w];
      }
      all_above += fixed->above[w];
      all_equal += fixed->equal[w];
    }
    const bool is_equal = ((equal >> lane) & 1u) != 0 && equal_before < ties;
    const int32_t taken_before = equal_before < ties ? equal_before : ties;
    if (((above >> lane) & 1u) != 0 || is_equal) {
      out[written + above_before + taken_before] = unit_at(call, fixed->seen, keys, begin + thread);
    }
    const int32_t taken = all_equal < ties ? all_equal : ties;
    written += all_above + taken;
    ties -= taken;
    __syncthreads();
  }
  for (int32_t i = written + thread; i < k; i += kChoiceThreads) out[i] = -1;
}

// The second launch bound lets a thread use as many registers as two blocks on a multiprocessor allow. Without this
// bound, ptxas plans for more blocks on some GPUs, and spills registers.
__global__ void __launch_bounds__(kChoiceThreads, 2) choice_kernel(const __grid_constant__ SelectCall call) {
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
