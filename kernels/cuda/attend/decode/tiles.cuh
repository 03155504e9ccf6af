// What attention of few rows does before the products: it finds the rows of the block and the keys that they see, and
// copies the tiles of each warp to shared memory.
//
// When a lane has started its copies of a tile, it finds the page of its key in the warp's next tile. So the copies do
// not wait for page ids. Lane i finds the page of key i of the tile. If the tile has 16 keys, lane 16 + i finds the
// same page. A key that no row sees is not read; its place in the tile holds zeros.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "kernels/common/mask.h"
#include "kernels/common/page_walk.h"
#include "kernels/common/query_place.h"
#include "kernels/common/scales.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/decode/plan.h"
#include "kernels/cuda/attend/mma/instructions.cuh"
#include "kernels/cuda/attend/mma/layout.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

struct DecodeCall {
  AttendCall attend;
  int32_t stages;
  int32_t has_units;         // scores are multiplied by scales of K or q that do not belong to tokens
  int32_t has_token_scales;  // tokens have scales
  int32_t q_is_plain;        // q is copied unchanged, 16 aligned bytes at a time
  int32_t one_page;    // 16 keys from a multiple of 16 on are in one page, and byte offsets within a page fit in int32
  int32_t group;       // the number of query heads of a kv head
  int32_t page_shift;  // the page size is 2 to this power; -1: it is no power of two
};

constexpr int kMostDecodeWarps = 4;

// Data of the whole block, in shared memory.
struct DecodeFixed {
  const kvc_backend_item* item;
  AttendBlock block;
  int32_t rows;
  int32_t token;  // the token of the item's first query
  int32_t exact;  // 1: every row sees all keys of the item, and the item has one query (kvc_backend_plan.exact_items)
  int32_t entries_on,
      slots_on;  // the distance, in page-list entries and slots, from a lane's key to its key in the warp's next tile
  kvc_backend_attend args;       // only layer and plan are set, because the rules of kernels/common read only these
  QueryMask masks[kDecodeRows];  // not set if the rows are exact
  QueryPlace places[kDecodeRows];
  int32_t heads[kDecodeRows];  // the q head of a row
  KeyTree tree;
  PageCursor pages;         // the page list of the item, with no leaf loaded
  uint64_t k_rows, v_rows;  // the addresses of the head's rows in slot 0 of page 0
  float units[kDecodeRows];
  float m[kMostDecodeWarps][kDecodeRows], l[kMostDecodeWarps][kDecodeRows];
  float factors[kMostDecodeWarps][kDecodeRows];  // a merge multiplies warp w's output for row r by factors[w][r]
  uint32_t keys_begin, keys_end;                 // this range has all keys that any row sees
  uint32_t full_begin, full_end;                 // all rows see all keys of this range
};
constexpr int32_t kDecodeFixedBytes = (static_cast<int32_t>(sizeof(DecodeFixed)) + 127) / 128 * 128;
static_assert(kDecodeFixedBytes <= kMostDecodeFixedBytes);

// The types and dims of an instance of the kernel. Q: the type of q and K in products. P: the type of P and V in
// products.
template <class QType, class PType, Type kStoredType, int kKeyDims, int kDimsOfV>
struct DecodeKind {
  using Q = QType;
  using P = PType;
  static constexpr Type kStored = kStoredType;
  static constexpr bool kFloat4 = kStored == Type::kE2m1, kNibbles = kStored == Type::kU4;
  static constexpr bool kNarrow = kStored == Type::kE4m3 || kStored == Type::kI8 || kFloat4;  // ByteRows computes
  static constexpr bool kHasScales = tokens_have_scales(kStored);
  static constexpr int kDims = kKeyDims, kValueDims = kDimsOfV, kKeys = decode_tile_keys(kDims, kStored);
  static constexpr int kQueryParts = query_parts(std::is_same_v<Q, F16> ? Type::kF16 : Type::kBf16, kStored);
  static constexpr int kPartBytes = kDecodeRows * kDims * 2;
  static constexpr int kWarps = decode_warps(kDims, kStored), kThreads = kWarps * kWarpSize;
  static constexpr int kBlocks = decode_blocks(kDims, kValueDims, kStored);
  static constexpr int kKeyPitch = decode_row_bytes(kDims, kStored),
                       kValuePitch = decode_row_bytes(kValueDims, kStored);
  static constexpr int kScalesAt = kKeys * (kKeyPitch + kValuePitch);
  static constexpr int kTileBytes = decode_tile_bytes(kDims, kValueDims, kStored);
  static constexpr int kStep = kKeys * kWarps;  // the distance from a warp's tile to its next tile, in keys
};

// The softmax state of a warp's 16 rows. A lane has parts of the rows lane / 4 and lane / 4 + 8: of each 8 columns, the
// columns lane % 4 * 2 and lane % 4 * 2 + 1.
template <int kDims>
struct DecodeSums {
  float m[2], l[2];  // l: the sum over the lane's keys only
  float o[kDims / 8][4];
};

// The place of a 16-byte chunk of a row in a tile, in bytes. Chunks of 8 adjacent rows lie in different banks, and so
// do adjacent chunks of a row.
template <int kPitch>
__device__ __forceinline__ int32_t tile_place(int32_t row, int32_t chunk) {
  static_assert(kPitch == 32 || kPitch == 64 || kPitch % 128 == 0);
  if (kPitch == 32) return row * 32 + ((chunk ^ (row / 4 & 1)) << 4);
  return kPitch == 64 ? row * 64 + ((chunk ^ (row / 2 & 3)) << 4) : swizzled(row, chunk, kPitch);
}

// Whether all rows see all keys of the tile of kKeys keys that begins at key `begin`.
template <int kKeys>
__device__ __forceinline__ bool is_full_tile(const DecodeFixed& fixed, int32_t begin) {
  const uint32_t first = static_cast<uint32_t>(begin);
  return first >= fixed.full_begin && first + kKeys <= fixed.full_end;
}

__device__ __forceinline__ bool sees_decode_key(const DecodeFixed& fixed, int32_t row, int32_t key) {
  if (fixed.exact != 0)
    return key >= static_cast<int32_t>(fixed.full_begin) && key < static_cast<int32_t>(fixed.full_end);
  return row < fixed.rows && sees_key(&fixed.tree, &fixed.masks[row], key);
}

__device__ __forceinline__ uint64_t first_row_of(const kvc_backend_pool& pool, int32_t head) {
  return reinterpret_cast<uint64_t>(pool.data) + static_cast<uint64_t>(head * pool.head_stride_bytes);
}

// The place of key `key` in a page list: an entry, and a slot of its page.
struct KeyEntry {
  int32_t entry, slot;
};
__device__ __forceinline__ KeyEntry entry_of_key(const DecodeCall& call, int32_t key) {
  if (call.page_shift >= 0) return {key >> call.page_shift, key & ((1 << call.page_shift) - 1)};
  return {key / call.attend.layer.page_size, key % call.attend.layer.page_size};
}

// Finds the places, masks and scales of the block's rows, and the keys that they see. Ends with a barrier.
KVC_OUT_OF_LINE void find_decode_rows(const DecodeCall& call, int32_t thread, DecodeFixed* fixed) {
  const AttendBlock& block = fixed->block;
  if (thread < fixed->rows) {
    find_row(call.attend, *fixed->item, block, call.group, thread, fixed);
    fixed->heads[thread] = block.head * call.group + (block.row_begin + thread) % call.group;
  } else if (thread < kDecodeRows) {
    fixed->units[thread] = 0.0f;
  }
  __syncwarp();
  if (thread < kWarpSize) find_key_bounds(fixed, fixed->rows, thread);
  __syncthreads();
}

// Finds the places and scales of rows that see all keys of their item. Ends with a barrier.
__device__ __forceinline__ void find_exact_rows(const DecodeCall& call, int32_t thread, DecodeFixed* fixed) {
  const kvc_backend_item& item = *fixed->item;
  const AttendBlock& block = fixed->block;
  if (thread < fixed->rows) {
    QueryPlace place;
    place.row = item.row;
    place.query = item.q_begin;
    place.token = fixed->token;
    place.states = (item.head_end - item.head_begin) * call.group;
    place.first_state = -item.head_begin * call.group;
    place.partial_offset = item.partial_offset;
    fixed->places[thread] = place;
    fixed->units[thread] = unit_of_row(call.attend, item.row, block.head);
    fixed->heads[thread] = block.head * call.group + block.row_begin + thread;
  } else if (thread < kDecodeRows) {
    fixed->units[thread] = 0.0f;
  }
  __syncthreads();
}

KVC_OUT_OF_LINE AttendBlock block_of_device(const AttendCall& call, int64_t index) {
  return device_block(call.plan, call.layer, call.many_rows, index);
}

// Finds the work of block `index` of the call, and the keys that its rows see. Also finds the rows, except if they are
// exact: then find_exact_rows does this later, so that the first copies begin earlier. Returns false if the block has
// no work. Ends with a barrier. keys_on: the distance from a warp's tile to its next tile, in keys.
__device__ __forceinline__ bool begin_decode_block(const DecodeCall& call, int64_t index, int32_t thread,
                                                   int32_t keys_on, DecodeFixed* fixed) {
  const AttendBlock block =
      call.attend.blocks != nullptr ? call.attend.blocks[index] : block_of_device(call.attend, index);
  if (block.row_begin >= block.row_end) return false;
  const kvc_backend_item& item = call.attend.plan.arrays.items[block.item];
  const kvc_backend_plan* const plan = plan_of(call.attend);
  // These loads are independent, so that the block waits for one of them only.
  const int32_t queries = item.q_end - item.q_begin, key_begin = item.key_begin, key_end = item.key_end;
  const bool exact = (plan->exact_items != 0) & (queries == 1);
  if (thread == 0) {
    fixed->item = &item;
    fixed->block = block;
    fixed->rows = block.row_end - block.row_begin;
    fixed->exact = exact ? 1 : 0;
    fixed->k_rows = first_row_of(call.attend.layer.k, block.head);
    fixed->v_rows = first_row_of(call.attend.layer.v, block.head);
    const KeyEntry on = entry_of_key(call, keys_on);
    fixed->entries_on = on.entry;
    fixed->slots_on = on.slot;
    fixed->args.layer = &call.attend.layer;
    fixed->args.plan = plan;
    fixed->tree = KeyTree{INT32_MAX, nullptr};
    if (exact) {
      fixed->keys_begin = fixed->full_begin = static_cast<uint32_t>(key_begin);
      fixed->keys_end = fixed->full_end = static_cast<uint32_t>(key_end);
    } else if (!is_shared(&item)) {
      fixed->tree = tree_of_row(&plan->arrays.rows, item.row);
    }
  }
  if (thread == kWarpSize) {
    fixed->pages = pages_of_item(&call.attend.plan.arrays.tables, &item);
    fixed->token = plan->arrays.rows.token_begin[item.row] + item.q_begin;
  }
  __syncthreads();
  if (!exact) find_decode_rows(call, thread, fixed);
  return true;
}

// Waits until the lane's copies of the oldest tile in the ring have arrived.
__device__ __forceinline__ void wait_for_stage(int32_t stages) {
  if (stages == 2) wait_copies<0>();
  if (stages == 3) wait_copies<1>();
  if (stages == 4) wait_copies<2>();
}

// The same as page_leaf, in a form that needs few registers. A lane needs a leaf once for each 32 pages.
__device__ __forceinline__ const int32_t* leaf_of_pages(const PageCursor& pages, int32_t leaf_index) {
  if (pages.pages != nullptr) return pages.pages + leaf_index * int64_t{KVC_BACKEND_NODE_FANOUT};
  int32_t node = pages.root;
#pragma unroll 1
  for (int32_t level = pages.levels - 2; level >= 0; --level) {
    const int32_t digit = leaf_index >> (level * KVC_BACKEND_NODE_FANOUT_LOG2) & (KVC_BACKEND_NODE_FANOUT - 1);
    node = pages.nodes[node * int64_t{KVC_BACKEND_NODE_FANOUT} + digit];
  }
  return pages.nodes + node * int64_t{KVC_BACKEND_NODE_FANOUT};
}

// Copies the tiles of a warp, one after another. Each lane of the warp has its own reader.
template <class Kind>
class DecodeReader {
 public:
  // The warp's tiles begin at the keys first, first + kStep, ... below `end`.
  int32_t first, end, tiles;

  __device__ __forceinline__ DecodeReader(const DecodeCall& call, const DecodeFixed& fixed, int32_t warp, int32_t lane)
      : lane_(lane), leaf_index_(-1), leaf_(nullptr) {
    const bool any = fixed.keys_begin < fixed.keys_end;
    first = (any ? static_cast<int32_t>(fixed.keys_begin) / Kind::kKeys + warp : warp) * Kind::kKeys;
    end = any ? static_cast<int32_t>(fixed.keys_end) : 0;
    tiles = first < end ? (end - first + Kind::kStep - 1) / Kind::kStep : 0;
    next_ = first;
    const KeyEntry at = entry_of_key(call, first + lane % Kind::kKeys);
    entry_ = at.entry;
    slot_ = at.slot;
    find_page(fixed);
  }

  // Starts the copies of the next tile, and finds the pages of the tile after it.
  __device__ __forceinline__ void begin_tile(const DecodeCall& call, const DecodeFixed& fixed, unsigned char* tile) {
    if (next_ >= end) return;
    const kvc_backend_layer& layer = call.attend.layer;
    unsigned char* const v_tile = tile + Kind::kKeys * Kind::kKeyPitch;
    if constexpr (Kind::kFloat4) {
      if (call.one_page != 0 && __ballot_sync(kAllLanes, page_ >= 0) == kAllLanes) {
        copy_adjacent_rows(layer, fixed, tile);
      } else {
        copy_pieces(layer, fixed, tile);
      }
    } else if (call.one_page != 0) {
      const uint32_t all_seen = __ballot_sync(kAllLanes, page_ >= 0);  // bit i: whether some row sees key i of the tile
#pragma unroll
      for (int part = 0; part < Kind::kKeys / kDecodeKeys; ++part) {
        constexpr int kBit = kDecodeKeys - 1;
        const int32_t first_lane = part * kDecodeKeys;
        const uint32_t seen = all_seen >> first_lane & 0xffffu;
        const int32_t owner = first_lane + __ffs(static_cast<int>(seen | 1u << kBit)) - 1;
        const int32_t page = __shfl_sync(kAllLanes, page_, owner), slot = __shfl_sync(kAllLanes, slot_, first_lane);
        copy_page_rows<Kind::kKeyPitch>(layer.k, fixed.k_rows, page < 0 ? 0 : page, slot, seen,
                                        tile + first_lane * Kind::kKeyPitch);
        copy_page_rows<Kind::kValuePitch>(layer.v, fixed.v_rows, page < 0 ? 0 : page, slot, seen,
                                          v_tile + first_lane * Kind::kValuePitch);
      }
    } else {
      copy_rows<Kind::kKeyPitch>(layer.k, fixed.k_rows, tile);
      copy_rows<Kind::kValuePitch>(layer.v, fixed.v_rows, v_tile);
    }
    if (Kind::kHasScales && call.has_token_scales != 0) {
      float* const scales = reinterpret_cast<float*>(tile + Kind::kScalesAt) + lane_;
      if (Kind::kKeys == kWarpSize || lane_ < Kind::kKeys) copy_scale(layer.k_scales, fixed, scales);
      if (Kind::kKeys == kWarpSize) copy_scale(layer.v_scales, fixed, scales + Kind::kKeys);
      if (Kind::kKeys < kWarpSize && lane_ >= Kind::kKeys) copy_scale(layer.v_scales, fixed, scales);
    }
    next_ += Kind::kStep;
    entry_ += fixed.entries_on;
    slot_ += fixed.slots_on;
    if (slot_ >= call.attend.layer.page_size) {
      slot_ -= call.attend.layer.page_size;
      ++entry_;
    }
    find_page(fixed);
  }

 private:
  // Finds the page of the lane's key in the next tile, if some row sees that key.
  __device__ __forceinline__ void find_page(const DecodeFixed& fixed) {
    page_ = -1;
    if (next_ >= end) return;
    bool seen = is_full_tile<Kind::kKeys>(fixed, next_);
    if (!seen) {
      for (int32_t r = 0; r < fixed.rows && !seen; ++r) seen = sees_decode_key(fixed, r, next_ + lane_ % Kind::kKeys);
    }
    if (!seen) return;
    const int32_t leaf_index = entry_ >> KVC_BACKEND_NODE_FANOUT_LOG2;
    if (leaf_index != leaf_index_) {
      leaf_ = leaf_of_pages(fixed.pages, leaf_index);
      leaf_index_ = leaf_index;
    }
    page_ = leaf_[entry_ & (KVC_BACKEND_NODE_FANOUT - 1)];
  }

  // Copies the scale of the lane's key.
  __device__ __forceinline__ void copy_scale(const kvc_backend_scales& scales, const DecodeFixed& fixed,
                                             float* target) {
    const bool there = page_ >= 0;
    begin_float_copy(target, there ? token_scale(&scales, page_, fixed.block.head, slot_) : scales.data, there);
  }

  // Copies 16 rows of a page, from slot `slot` on. rows: the address of the head's rows in slot 0 of page 0. seen: bit
  // i is set if row i is to be copied. A row whose bit is not set becomes zeros.
  template <int kPitch>
  __device__ __forceinline__ void copy_page_rows(const kvc_backend_pool& pool, uint64_t rows, int32_t page,
                                                 int32_t slot, uint32_t seen, unsigned char* target) {
    constexpr int kChunks = kPitch / 16, kCopies = kDecodeKeys * kChunks / kWarpSize;
    const int32_t row_bytes = static_cast<int32_t>(pool.slot_stride_bytes);
    const unsigned char* const of_page =
        reinterpret_cast<const unsigned char*>(rows + static_cast<uint64_t>(page * pool.page_stride_bytes));
    if (!Kind::kNibbles && kWarpSize % kChunks == 0 && seen == (1u << kDecodeKeys) - 1) {
      // A lane copies the same chunk of every kEach-th row. So its places in the tile differ by constants, apart from
      // the bits by which tile_place permutes the chunks of a row.
      constexpr int kEach = kChunks < kWarpSize ? kWarpSize / kChunks : 1;
      const int32_t first = lane_ / kChunks, place = tile_place<kPitch>(first, lane_ % kChunks);
      const unsigned char* const source = of_page + ((slot + first) * row_bytes + lane_ % kChunks * 16);
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        begin_copy(target + (place ^ tile_place<kPitch>(i * kEach, 0) % kPitch) + i * kEach * kPitch,
                   source + i * kEach * row_bytes, true);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int32_t index = i * kWarpSize + lane_, row = index / kChunks, chunk = index % kChunks;
      begin_copy(target + tile_place<kPitch>(row, chunk), of_page + ((slot + row) * row_bytes + chunk * 16),
                 ((seen >> row) & 1u) != 0);
    }
  }

  // Copies the rows of a tile whose keys may be in any pages. rows: the address of the head's rows in slot 0 of page 0.
  template <int kPitch>
  __device__ __forceinline__ void copy_rows(const kvc_backend_pool& pool, uint64_t rows, unsigned char* target) {
    constexpr int kChunks = kPitch / 16;
    const uint64_t own =
        page_ < 0 ? 0 : rows + static_cast<uint64_t>(page_ * pool.page_stride_bytes + slot_ * pool.slot_stride_bytes);
#pragma unroll
    for (int i = 0; i < Kind::kKeys * kChunks / kWarpSize; ++i) {
      const int32_t index = i * kWarpSize + lane_, row = index / kChunks, chunk = index % kChunks;
      const uint64_t source = __shfl_sync(kAllLanes, own, row);
      const void* const from = source == 0 ? pool.data : reinterpret_cast<const unsigned char*>(source) + chunk * 16;
      begin_copy(target + tile_place<kPitch>(row, chunk), from, source != 0);
    }
  }

  // Copies a tile of 4-bit floats whose keys may be in any pages. A row of K or V is copied in 9 pieces of 8 or 4
  // bytes: 8 pieces of elements, and the scales of its blocks.
  __device__ __forceinline__ void copy_pieces(const kvc_backend_layer& layer, const DecodeFixed& fixed,
                                              unsigned char* tile) {
    constexpr int kPieces = 9, kBytes = Kind::kKeyPitch / kPieces;
    uint64_t own[2] = {};  // the addresses of the lane's row of K and of V
    if (page_ >= 0) {
      own[0] =
          fixed.k_rows + static_cast<uint64_t>(page_ * layer.k.page_stride_bytes + slot_ * layer.k.slot_stride_bytes);
      own[1] =
          fixed.v_rows + static_cast<uint64_t>(page_ * layer.v.page_stride_bytes + slot_ * layer.v.slot_stride_bytes);
    }
#pragma unroll 3
    for (int i = 0; i < kPieces * 2; ++i) {
      const int32_t index = i % kPieces * kWarpSize + lane_, piece = index % kPieces;
      const uint64_t row = __shfl_sync(kAllLanes, i < kPieces ? own[0] : own[1], index / kPieces);
      const uint64_t from = row == 0 ? fixed.k_rows : row + static_cast<uint64_t>(piece * kBytes);
      unsigned char* const target = tile + (i * kWarpSize + lane_) * kBytes;
      if constexpr (kBytes == 8) {
        begin_half_copy(target, reinterpret_cast<const void*>(from), row != 0);
      } else {
        begin_float_copy(reinterpret_cast<float*>(target), reinterpret_cast<const void*>(from), row != 0);
      }
    }
  }

  // Copies a tile of 4-bit floats of which some row sees every key. 16 rows of a page from a multiple of 16 on are
  // adjacent, and begin at a multiple of 16 bytes (has_tiles_in_pages). They are one run of kKeyPitch chunks. The tile
  // has four runs, two of K and two of V. Each lane copies the same chunks of every run, and one chunk of the last
  // chunks of all runs.
  __device__ __forceinline__ void copy_adjacent_rows(const kvc_backend_layer& layer, const DecodeFixed& fixed,
                                                     unsigned char* tile) {
    static_assert(Kind::kKeys == 2 * kDecodeKeys && Kind::kKeyPitch == Kind::kValuePitch);
    constexpr int kRun = Kind::kKeyPitch * kDecodeKeys, kWhole = kRun / (kWarpSize * 16);
    constexpr int kLast = kRun / 16 % kWarpSize;  // the number of last chunks of a run
    const auto k_stride = static_cast<uint32_t>(layer.k.page_stride_bytes),
               v_stride = static_cast<uint32_t>(layer.v.page_stride_bytes);
    uint64_t runs[4];
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const auto page = static_cast<uint32_t>(__shfl_sync(kAllLanes, page_, part * kDecodeKeys));
      const int32_t slot = __shfl_sync(kAllLanes, slot_, part * kDecodeKeys);
      const auto first = static_cast<uint32_t>(slot * Kind::kKeyPitch + lane_ * 16);
      runs[part] = fixed.k_rows + static_cast<uint64_t>(page) * k_stride + first;
      runs[part + 2] = fixed.v_rows + static_cast<uint64_t>(page) * v_stride + first;
    }
    unsigned char* const target = tile + lane_ * 16;
#pragma unroll
    for (int i = 0; i < 4 * kWhole; ++i) {
      const int run = i / kWhole, at = i % kWhole * kWarpSize * 16;
      begin_copy(target + run * kRun + at, reinterpret_cast<const unsigned char*>(runs[run]) + at, true);
    }
    const int32_t run = lane_ / kLast, chunk = kWhole * kWarpSize + lane_ % kLast;
    if (run < 4) {
      const uint64_t from = run == 0 ? runs[0] : run == 1 ? runs[1] : run == 2 ? runs[2] : runs[3];
      begin_copy(tile + run * kRun + chunk * 16,
                 reinterpret_cast<const unsigned char*>(from) + (chunk - lane_) * int64_t{16}, true);
    }
  }

  int32_t lane_, next_, entry_, slot_;
  int32_t leaf_index_;  // the index of the page-list leaf that the lane read last; -1: none
  const int32_t* leaf_;
  int32_t page_;  // the page of the lane's key in the next tile; -1: no row sees the key
};

}  // namespace kvc::kernels::cuda
