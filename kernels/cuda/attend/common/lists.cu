// list_keys: makes the arrays of slots that attend/common/lists.h describes. A thread block makes one list:
//   1. It sets a bit in shared memory for each key that an entry names and the query may see.
//   2. It clears the bits of keys that a tree hides.
//   3. It writes the keys of the set bits in order. So keys ascend, and each key occurs once.
//   4. It replaces the keys by their slots.
// If a sequence has more keys than there are bits, steps 1 to 3 are repeated for ranges of keys. Each repetition reads
// the entries again.
//
// Roofline: latency. A list of 2,048 entries has 8 KiB, and the bits of 64k keys have 8 KiB.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/bias.h"
#include "kernels/common/page_walk.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/common/lists.h"
#include "kernels/cuda/attend/common/seen_keys.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/step/staged_plan.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {
namespace {

constexpr int kListThreads = 1024, kListWarps = kListThreads / kWarpSize;
constexpr int32_t kWordBits = 32, kListWords = 8192;

struct ListCall {
  AttendCall attend;
  const kvc_backend_staged_plan::Live* live;  // null: the call does not belong to a graph
};

struct ListFixed {
  SeenKeys seen;
  int32_t sums[kListWarps];
  uint32_t words[kListWords];
};
static_assert(sizeof(ListFixed) <= kMaxSharedBytes);

// Sets the bits of the keys in [begin, end) that entries name. Bit 0 is key `base`. All threads call it.
__device__ void set_bits(const ListCall& call, const int32_t* entries, int32_t base, int32_t begin, int32_t end,
                         ListFixed* fixed) {
  const kvc_backend_lists& lists = call.attend.args.lists;
  const int32_t block = lists.block_tokens, words_each = (block + kWordBits - 2) / kWordBits + 1;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < lists.num_entries * words_each; i += kListThreads) {
    const int64_t unit = *const_cast<const volatile int32_t*>(entries + i / words_each);
    int64_t first = unit * block, last = first + block;
    if (first < begin) first = begin;
    if (last > end) last = end;
    if (unit < 0 || first >= last) continue;
    const int32_t word = static_cast<int32_t>(first - base) / kWordBits + i % words_each;
    const int32_t from = static_cast<int32_t>(first - base) - word * kWordBits;
    const int32_t to = static_cast<int32_t>(last - base) - word * kWordBits;
    if (to <= 0) continue;
    const uint32_t below = to < kWordBits ? (1u << to) - 1 : ~0u;
    atomicOr(fixed->words + word, from > 0 ? below & ~((1u << from) - 1) : below);
  }
}

// Clears the bits of tree nodes that the query does not see, in the words [0, words).
__device__ void clear_nodes(int32_t base, int32_t words, ListFixed* fixed) {
  const int32_t tree = fixed->seen.tree.begin, first = tree > base ? (tree - base) / kWordBits : 0;
  for (int32_t w = first + static_cast<int32_t>(threadIdx.x); w < words; w += kListThreads) {
    uint32_t kept = fixed->words[w];
    for (uint32_t left = kept; left != 0; left &= left - 1) {
      const int32_t key = base + w * kWordBits + __ffs(static_cast<int>(left)) - 1;
      if (key >= tree && !sees_node(&fixed->seen.tree, &fixed->seen.mask, key)) kept &= ~(left & (0u - left));
    }
    fixed->words[w] = kept;
  }
}

__device__ int32_t warp_sum_of(int32_t x) {
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  return x;
}

// Appends the keys of the set bits in the words [0, words) to slots[count..most). Returns the new number of keys, which
// may exceed `most`.
__device__ int32_t write_keys(int32_t base, int32_t words, int32_t count, int64_t most, uint32_t* slots,
                              ListFixed* fixed) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / kWarpSize,
                lane = static_cast<int32_t>(threadIdx.x) % kWarpSize;
  const int32_t of_warp = (words + kListWarps - 1) / kListWarps, first = warp * of_warp;
  const int32_t last = first + of_warp < words ? first + of_warp : words;
  int32_t found = 0;
  for (int32_t w = first + lane; w < last; w += kWarpSize) found += __popc(fixed->words[w]);
  found = warp_sum_of(found);
  if (lane == 0) fixed->sums[warp] = found;
  __syncthreads();
  int64_t at = count;
  for (int32_t i = 0; i < kListWarps; ++i) {
    if (i < warp) at += fixed->sums[i];
    count += fixed->sums[i];
  }
  for (int32_t w = first; w < last; w += kWarpSize) {
    uint32_t bits = w + lane < last ? fixed->words[w + lane] : 0;
    const int32_t own = __popc(bits);
    int32_t up_to = own;
    for (int32_t step = 1; step < kWarpSize; step *= 2) {
      const int32_t before = __shfl_sync(kAllLanes, up_to, lane >= step ? lane - step : lane);
      if (lane >= step) up_to += before;
    }
    const int32_t all = __shfl_sync(kAllLanes, up_to, kWarpSize - 1);
    for (int64_t to = at + up_to - own; bits != 0 && to < most; ++to, bits &= bits - 1) {
      slots[to] = static_cast<uint32_t>(base + (w + lane) * kWordBits + __ffs(static_cast<int>(bits)) - 1);
    }
    at += all;
  }
  return count;
}

// Replaces keys of a row by their slots, and copies the keys to `keys`, unless `keys` is null.
__device__ void find_slots(const ListCall& call, int32_t count, uint32_t* slots, int32_t* keys, ListFixed* fixed) {
  const uint32_t page_size = static_cast<uint32_t>(call.attend.layer.page_size);
  PageCursor cursor = pages_of_item(&plan_of(call.attend)->arrays.tables, &fixed->seen.item);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kListThreads) {
    const uint32_t key = slots[i];
    if (keys != nullptr) keys[i] = static_cast<int32_t>(key);
    slots[i] = static_cast<uint32_t>(page_at(&cursor, key / page_size)) * page_size + key % page_size;
  }
}

// Each step is a chain of loads, so each thread has few keys.
__global__ void __launch_bounds__(kListThreads, 1) list_keys_kernel(const __grid_constant__ ListCall call) {
  ListFixed& fixed = *reinterpret_cast<ListFixed*>(shared_bytes());
  const ListedKeys& listed = call.attend.listed;
  const kvc_backend_lists& lists = call.attend.args.lists;
  const int32_t thread = static_cast<int32_t>(threadIdx.x), part = static_cast<int32_t>(blockIdx.y);
  const int32_t token = static_cast<int32_t>(blockIdx.x) / listed.heads,
                head = static_cast<int32_t>(blockIdx.x) % listed.heads;
  if (call.live != nullptr && call.live->few + call.live->many == 0) return;
  if (token >= plan_of(call.attend)->arrays.rows.num_tokens) return;
  if (thread == 0) find_seen_keys(call.attend, token, part, &fixed.seen);
  __syncthreads();
  const KeyRange keys = fixed.seen.keys;
  const int64_t list = list_of(listed, part, token, head);
  uint32_t* const slots = listed.slots + list * listed.most;
  const int32_t* const entries =
      lists.entries + fixed.seen.item.row * lists.row_stride + token * lists.token_stride + head * lists.head_stride;
  int32_t count = 0;
  for (int32_t begin = keys.begin; begin < keys.end;) {
    const int32_t base = begin / kWordBits * kWordBits;
    const int32_t end = keys.end - base > kListWords * kWordBits ? base + kListWords * kWordBits : keys.end;
    const int32_t words = (end - base + kWordBits - 1) / kWordBits;
    for (int32_t w = thread; w < words; w += kListThreads) fixed.words[w] = 0;
    __syncthreads();
    set_bits(call, entries, base, begin, end, &fixed);
    __syncthreads();
    if (end > fixed.seen.tree.begin) {
      clear_nodes(base, words, &fixed);
      __syncthreads();
    }
    count = write_keys(base, words, count, listed.most, slots, &fixed);
    __syncthreads();
    begin = end;
  }
  if (count > listed.most)
    count = static_cast<int32_t>(listed.most);  // possible if the entries changed while they were read
  if (thread == 0) listed.counts[list] = count;
  if (lists.physical != 0 || count == 0) return;
  find_slots(call, count, slots, listed.keys == nullptr ? nullptr : listed.keys + list * listed.most, &fixed);
}

}  // namespace

kvc_status list_keys(Device& device, const kvc_backend_staged_plan* staged, int32_t heads, AttendCall* call,
                     void* stream, void** memory, kvc_error* error) {
  const kvc_backend_attend& args = call->args;
  const bool live = staged != nullptr && staged->live != nullptr;
  const int64_t slots = call->layer.num_pages * call->layer.page_size;
  ListedKeys& listed = call->listed;
  listed.most = int64_t{args.lists.num_entries} * args.lists.block_tokens;
  if (listed.most > slots) listed.most = slots;
  listed.tokens = live ? staged->max_tokens : call->plan.arrays.rows.num_tokens;
  listed.heads = args.lists.head_stride == 0 ? 1 : heads;
  listed.parts = live || call->plan.arrays.rows.stream_windows != nullptr ? 2 : 1;
  const int64_t lists = int64_t{listed.parts} * listed.tokens * listed.heads;
  const bool indexed =
      staged == nullptr || call->has_options != 0 || args.key_tables != nullptr || has_bias_or_mask(args.bias);
  const int64_t all = lists * listed.most, bytes = static_cast<int64_t>(sizeof(int32_t));
  const kvc_status taken = take_scratch_of(device, (lists + (indexed ? 2 : 1) * all) * bytes, stream, memory, error);
  if (taken != KVC_OK || lists == 0) return taken;
  listed.counts = static_cast<int32_t*>(*memory);
  listed.slots = static_cast<uint32_t*>(*memory) + lists;
  listed.keys = indexed && args.lists.physical == 0 ? listed.counts + lists + all : nullptr;
  const ListCall parameters = {*call, live ? staged->live : nullptr};
  const dim3 grid = {static_cast<unsigned>(int64_t{listed.tokens} * listed.heads), static_cast<unsigned>(listed.parts),
                     1};
  return launch("lists of keys", stream, grid, kListThreads, sizeof(ListFixed), error, list_keys_kernel, parameters);
}

}  // namespace kvc::kernels::cuda
