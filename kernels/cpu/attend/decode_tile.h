// This file is the inner part of the decode kernel. It computes one block of 16 keys for a tile of 1, 2, 4 or 8 rows of
// one kv head.
//
// Roofline: only a few rows use each stored byte, so the lower bound is the time of one read of K and V. The arithmetic
// must not delay the loads.
//
// Scores: kLanes accumulators run over the head dim, one for each pair of a row and a key. At the end, sum_each sums
// the lanes of each accumulator, and puts these sums into one vector. The scores of a block are laid out as [key][row].
// So the maximum, the exponentials and the sums of all rows need no operations across lanes.
//
// P*V: a tile of o stays in registers for all keys of a block.
//
// Prefetches: where a cache line begins, a load of K or V issues two prefetches. The far prefetch goes to the level-2
// cache, or to the level-1 cache with kFarInL1. It fetches the same part of a row of the next kv head, or of the head
// after the next one (DecodeKeys::far). The near prefetch goes to the level-1 cache. It fetches the line that is read
// kNearKeys keys later. Without far prefetches, loads would wait for memory, because near prefetches are issued too
// late. Without near prefetches, loads would wait for the level-2 cache. A waiting load occupies one of the few line
// buffers that other loads need.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/format.h"
#include "kernels/cpu/attend/view.h"

namespace kvc::kernels::KVC_TARGET {

static constexpr int kMaxTileRows = kLanes < 8 ? kLanes : 8;
// Whether tiles have 1 or 4 rows only, so that there is less code.
template <class Format>
static constexpr bool kHasFewTiles = kFewTiles || Format::kNibbles;

// The place of a tile in the scratch, and the masks of its rows.
struct DecodeTile {
  const float* q;  // [chunks][kParts][kRows][kLanes]: a chunk is Format::kStep dims
  float* o;        // [kRows][o_stride]
  float* m;        // [kLanes]: lane i belongs to row i % kRows
  float* l;
  const float* factors;  // [kLanes], in the order of m; only with kRowFactors
  int32_t o_stride;
  int32_t num_rows;        // rows that exist; kRows - num_rows are padding
  int32_t row;             // number of the first row within the item
  int32_t q_head;          // the first q head of the kv head
  const QueryMask* masks;  // [num_rows]
  const float* v_scales;   // scales of V of the block's keys; only with kTokenScales
};

static constexpr int kNearKeys = 8;  // the distance of a near prefetch, in keys

// Rows of K or V: the address of each key's row for kv head 0, and the offset of the head that is used.
struct KeyRows {
  const unsigned char* const* rows;  // [kKeyBlock]
  int64_t offset;                    // bytes from kv head 0
};

// The rows of a block of keys for one kv head.
struct HeadBlock {
  const KeyBlock* block;
  int64_t k_offset;
  int64_t v_offset;
  __attribute__((always_inline)) KeyRows k() const { return {block->k, k_offset}; }
  __attribute__((always_inline)) KeyRows v() const { return {block->v, v_offset}; }
};

// Scales and zero points of a block's keys for one kv head.
struct KeyScales {
  float k[kKeyBlock + kMaxLanes];  // scales; kMaxLanes more floats, because a load may read past the last scale; only
                                   // with kTokenScales
  float v[kKeyBlock + kMaxLanes];
  int32_t k_zeros[kKeyBlock];  // only with kZeroPoints
  int32_t v_zeros[kKeyBlock];
};

// The keys of one kv head that are multiplied now, and keys to prefetch. next: the keys of the next kv head, or of the
// first kv head in the next block. These keys are prefetched into the level-1 cache. far: the same as `next`, or the
// keys one head later. These keys are prefetched into the level-2 cache, or into the level-1 cache with kFarInL1.
struct DecodeKeys {
  HeadBlock now, next, far;
  const KeyScales* scales;  // of `now`; only with kTokenScales
};

// The addresses of rows. If kRowBytes is 0, each address is loaded. Otherwise all rows are kRowBytes apart. Then the
// address of row i is the first address plus a constant, which costs no load and no addition. Rows that are only
// prefetched need not be kRowBytes apart, because a wrong address only makes the prefetch useless.
template <int kRowBytes>
struct RowAddresses {
  const unsigned char* first;
  explicit RowAddresses(KeyRows keys) : first(keys.rows[0] + keys.offset) {}
  __attribute__((always_inline)) const unsigned char* operator[](int i) const { return first + i * kRowBytes; }
};
template <>
struct RowAddresses<0> {
  KeyRows keys;
  explicit RowAddresses(KeyRows k) : keys(k) {}
  __attribute__((always_inline)) const unsigned char* operator[](int i) const { return keys.rows[i] + keys.offset; }
};

// The value of kRowBytes in RowAddresses. It is 0 if kHeadDim is 0.
template <class Format, int kHeadDim>
static constexpr int kRowBytesOf = kHeadDim / Format::kStep * (Format::kVecBytes + Format::kScaleBytes);

// Returns p, but hides from the compiler that it is the same pointer. So an address in the array p is loaded where it
// is used, and not before a loop. There are more addresses to prefetch than general registers. Without this function,
// gcc keeps some addresses in vector registers. A move from a vector register to a general register occupies an
// execution port that multiplications need.
template <class T>
KVC_INLINE T* reload(T* p) {
  __asm__("" : "+r"(p));
  return p;
}

// Returns whether a cache line begins at vector `chunk` of a row.
template <class Format>
KVC_INLINE bool begins_line(int chunk) {
  constexpr int kVectorsPerLine = Format::kVecBytes >= 64 ? 1 : 64 / static_cast<int>(Format::kVecBytes);
  return chunk % kVectorsPerLine == 0;
}

// Prefetches vector `chunk` of a row if a cache line begins there.
template <class Format>
KVC_INLINE void prefetch_line(const unsigned char* row, int chunk) {
  if (begins_line<Format>(chunk)) prefetch(row + chunk * Format::kVecBytes);
}

// Loads the first n dims of vector `chunk` of a row, 1 <= n <= Format::kStep. key: the number of the row's key within
// the block of keys. zeros: the zero points of the keys of this block, read only with kZeroPoints. block_scales: the
// byte of the row at which the scales of its blocks of dims begin.
template <class Format>
KVC_INLINE typename Format::Raw load_dims(const unsigned char* row, int chunk, int n, const int32_t* zeros, int key,
                                          int block_scales) {
  const unsigned char* const p = row + chunk * Format::kVecBytes;
  if constexpr (Format::kZeroPoints) {
    return n == Format::kStep ? Format::load(p, zeros[key]) : Format::load_first(p, n, zeros[key]);
  } else if constexpr (Format::kScaleBytes > 0) {
    const unsigned char* const scales = row + block_scales + chunk * Format::kScaleBytes;
    return n == Format::kStep ? Format::load(p, scales) : Format::load_first(p, n, scales);
  } else {
    return n == Format::kStep ? Format::load(p) : Format::load_first(p, n);
  }
}

// Calls visit(c) for each chunk of a row. With kUnrolled, `chunks` must be a constant, and the loop is unrolled.
template <bool kUnrolled, class Visit>
KVC_INLINE void for_each_chunk(int chunks, Visit visit) {
  if constexpr (kUnrolled) {
    _Pragma("GCC unroll 4") for (int c = 0; c < chunks; ++c) visit(c);
  } else {
    for (int c = 0; c < chunks; ++c) visit(c);
  }
}

// Computes scores[key][row] = q . k, times the factor of the row (kRowFactors) and the scale of the key (kTokenScales).
// If kHeadDim is not 0, the block is adjacent, and its rows have kHeadDim dims. If kHeadDim is 0, rows have
// view.head_dim dims and may lie anywhere. following: the rows that are read after K.
template <class Format, int kRows, int kHeadDim>
KVC_INLINE void tile_scores(const View& view, const DecodeKeys& keys, KeyRows following, const DecodeTile& tile,
                            float* scores) {
  const float* q = tile.q;
  constexpr int kKeys = kLanes / kRows;
  const int head_dim = kHeadDim != 0 ? kHeadDim : view.head_dim;
  const int chunks = head_dim / Format::kStep, tail = head_dim % Format::kStep;
  const int count = kHeadDim != 0 ? kKeyBlock : keys.now.block->count;
  constexpr int kRowBytes = kRowBytesOf<Format, kHeadDim>;
  // 5 % faster for elements of 16 and 32 bits. The loops for 8 bits do more for each load, and gain nothing.
  constexpr int kChunks = kHeadDim / Format::kStep;
  constexpr bool kUnrolled = kHeadDim != 0 && kChunks <= 8 && Format::kVecBytes / Format::kStep >= 2;
  const RowAddresses<kRowBytes> current(keys.now.k()), far(keys.far.k()), behind(following);
  const int32_t* const zeros = Format::kZeroPoints ? keys.scales->k_zeros : nullptr;
  const int block_scales = kHeadDim != 0 ? kHeadDim / 2 : view.k_block_scales;
  for (int k = 0; k < count; k += kKeys) {
    F32 sums[kLanes];
    const unsigned char* rows[kKeys];
    KVC_UNROLL for (int i = 0; i < kLanes; ++i) sums[i] = zero();
    KVC_UNROLL for (int i = 0; i < kKeys; ++i) rows[i] = current[k + i];
    // Adds chunk c of the keys [first, first + kCount).
    const auto add_chunks = [&]<int kCount>(int first, int c, int count) __attribute__((always_inline)) {
      typename Format::Raw raws[kCount];
      KVC_UNROLL for (int i = 0; i < kCount; ++i) {
        raws[i] = load_dims<Format>(rows[first + i], c, count, zeros, k + first + i, block_scales);
      }
      KVC_UNROLL for (int j = 0; j < Format::kParts; ++j) {
        typename Format::Vec x[kCount];
        KVC_UNROLL for (int i = 0; i < kCount; ++i) x[i] = Format::part(raws[i], j);
        KVC_UNROLL for (int g = 0; g < kRows; ++g) {
          const typename Format::Vec y = Format::load_packed(q + ((c * Format::kParts + j) * kRows + g) * kLanes);
          KVC_UNROLL for (int i = 0; i < kCount; ++i) {
            F32& sum = sums[(first + i) * kRows + g];
            sum = Format::multiply_add(x[i], y, sum);
          }
        }
      }
    };
    // If kKeys is at most 4, a vector of q is multiplied with all keys before the next vector is loaded, so q stays in
    // registers. If kKeys is larger, one key is completed before the next, because the addresses of all keys would not
    // fit in registers. A group has at most kNearKeys keys. So the keys that come kNearKeys later are all in this
    // block, or all in `following`. AVX2 has only 16 registers. There the products of all keys of a group are computed
    // one vector of q after another. Otherwise gcc would keep some sums on the stack.
    constexpr bool kKeysTogether = kLanes == 8 && Format::kParts > 1;
    constexpr int kGroup = kKeys < kNearKeys ? kKeys : kNearKeys;
    KVC_UNROLL for (int first = 0; first < kKeys; first += kGroup) {
      const int ahead = k + first + kNearKeys;
      const auto prefetch_chunk = [&](int i, int c) __attribute__((always_inline)) {
        if (!begins_line<Format>(c)) return;
        const int64_t byte = c * Format::kVecBytes;
        if constexpr (kHeadDim != 0) {
          prefetch_far<Format::kFarInL1>(far[k + first + i] + byte);
          prefetch((ahead < kKeyBlock ? current[ahead + i] : behind[ahead - kKeyBlock + i]) + byte);
        } else {
          const KeyRows near = ahead < kKeyBlock ? KeyRows{keys.now.block->k + ahead, keys.now.k_offset}
                                                 : KeyRows{following.rows + (ahead - kKeyBlock), following.offset};
          const unsigned char* const* far_rows = keys.far.block->k + k + first;
          constexpr bool kReload = Format::kVecBytes >= 64;  // f16 (two vectors in a line) is faster without reload
          prefetch_far<false>((kReload ? reload(far_rows) : far_rows)[i] + keys.far.k_offset + byte);
          prefetch((kReload ? reload(near.rows) : near.rows)[i] + near.offset + byte);
        }
      };
      if constexpr (kKeys <= 4) {
        for_each_chunk<kUnrolled>(chunks, [&](int c) __attribute__((always_inline)) {
          if constexpr (kKeysTogether) {
            KVC_UNROLL for (int i = 0; i < kGroup; ++i) prefetch_chunk(i, c);
            add_chunks.template operator()<kGroup>(first, c, Format::kStep);
          } else {
            KVC_UNROLL for (int i = 0; i < kGroup; ++i) {
              prefetch_chunk(i, c);
              add_chunks.template operator()<1>(first + i, c, Format::kStep);
            }
          }
        });
      } else {
        KVC_UNROLL for (int i = 0; i < kGroup; ++i) {
          for_each_chunk<kUnrolled>(chunks, [&](int c) __attribute__((always_inline)) {
            prefetch_chunk(i, c);
            add_chunks.template operator()<1>(first + i, c, Format::kStep);
          });
        }
      }
    }
    for (int i = 0; i < kKeys && tail != 0; ++i) {
      prefetch_far<false>(far[k + i] + chunks * Format::kVecBytes);
      add_chunks.template operator()<1>(i, chunks, tail);
    }
    F32 dots = sum_each(sums);
    if constexpr (Format::kRowFactors) dots = mul(dots, load(tile.factors));
    if constexpr (Format::kTokenScales) dots = mul(dots, load_repeated<kRows>(keys.scales->k + k));
    store(scores + k * kRows, dots);
  }
}

// Returns the QueryPlace of row g of a tile.
KVC_INLINE const QueryPlace& place_of_row(const View& view, const DecodeTile& tile, int g) {
  return view.scratch->places[tile.masks - view.scratch->masks + g];
}

// Adds the biases of a block to the scores [key][stride] of a tile. count: the number of keys of the block.
[[gnu::noinline]] static void add_tile_biases(const View& view, const DecodeTile& tile, int count, int stride,
                                              float* scores) {
  for (int g = 0; g < tile.num_rows; ++g) {
    const int32_t head = tile.q_head + (tile.row + g) % view.group;
    const BiasRow row = {place_of_row(view, tile, g), tile.masks[g].position, head, tile.q_head / view.group};
    add_biases(*view.args, row, bias_keys(view, 0, count), scores + g, stride);
  }
}

// Applies the score options to a tile. count: the number of keys of the block.
template <int kRows>
static void score_tile(const View& view, const DecodeTile& tile, int32_t block_begin, int count, int vectors,
                       float* scores) {
  const bool alibi = view.options.alibi_slopes != nullptr;
  float slopes[kLanes] = {}, positions[kLanes] = {}, distances[kLanes] = {};
  for (int i = 0; alibi && i < kLanes; ++i) {
    const int g = i % kRows;
    if (g >= tile.num_rows) continue;
    slopes[i] = view.options.alibi_slopes[tile.q_head + (tile.row + g) % view.group];
    positions[i] = static_cast<float>(tile.masks[g].position - block_begin);
  }
  for (int z = 0; z < vectors; ++z) {
    const float* offsets = view.scratch->key_offsets + z * (kLanes / kRows);
    for (int i = 0; alibi && i < kLanes; ++i) distances[i] = positions[i] - offsets[i / kRows];
    store(scores + z * kLanes, score_of(view.options, load(scores + z * kLanes), load(slopes), load(distances)));
  }
  if (view.options.biases) add_tile_biases(view, tile, count, kRows, scores);
}

// TileMask says which keys of a block each row of a tile sees. Bit i is for key i. Padding rows see nothing.
template <int kRows>
struct TileMask {
  uint32_t rows[kRows];
  uint32_t common;  // the keys that all rows except padding see
};

// Removes the keys that the call's mask hides from the rows of a tile.
[[gnu::noinline]] static void remove_masked_keys(const View& view, const DecodeTile& tile, int count, uint32_t* rows) {
  for (int g = 0; g < tile.num_rows; ++g) {
    const int32_t token = place_of_row(view, tile, g).token;
    rows[g] &= unmasked_keys(*view.args, token, tile.q_head / view.group, bias_keys(view, 0, count));
  }
}

template <int kRows>
KVC_INLINE TileMask<kRows> tile_mask(const View& view, const DecodeTile& tile, const KeyBlock& block) {
  TileMask<kRows> mask;
  mask.common = ~0u;
  for (int g = 0; g < kRows; ++g) {
    mask.rows[g] = g < tile.num_rows ? seen_bits(&view.tree, tile.masks + g, block.begin, block.count) : 0;
  }
  if (view.args->bias.mask != nullptr) remove_masked_keys(view, tile, block.count, mask.rows);
  for (int g = 0; g < tile.num_rows; ++g) mask.common &= mask.rows[g];
  return mask;
}

// Sets the scores of keys that a row does not see to -inf.
template <int kRows>
KVC_INLINE void mask_scores(const TileMask<kRows>& mask, int vectors, float* scores) {
  uint32_t rows[kLanes], bit[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    rows[i] = mask.rows[i % kRows];
    bit[i] = 1u << (i / kRows);
  }
  for (int z = 0; z < vectors; ++z) {
    for (int i = 0; i < kLanes; ++i) {
      float& score = scores[z * kLanes + i];
      score = (rows[i] & bit[i]) != 0 ? score : KVC_NEG_INF;
      bit[i] <<= kLanes / kRows;
    }
  }
}

// Raises the running maximum of each row to the maximum of the block where that is larger, and rescales l and o. After
// the first blocks, this happens rarely.
template <int kRows>
KVC_INLINE void raise_maximum(const View& view, const DecodeTile& tile, F32 block_max) {
  const F32 old_m = load(tile.m), m = max(block_max, old_m);
  const F32 factor = exp2(mul(sub(old_m, max(m, set1(KVC_LOWEST))), set1(view.exp2_scale)));
  store(tile.m, m);
  store(tile.l, mul(load(tile.l), factor));
  float factors[kLanes];
  store(factors, factor);
  for (int g = 0; g < kRows; ++g) {
    const F32 f = set1(factors[g]);
    float* o = tile.o + g * tile.o_stride;
    for (int d = 0; d < tile.o_stride; d += kLanes) store(o + d, mul(load(o + d), f));
  }
}

// Converts scores to P in place, and updates m and l of the tile. With kTokenScales, P is multiplied by the scales of
// V. With kPairs, P becomes dwords [key / 2][row].
template <class Format, int kRows>
KVC_INLINE void tile_softmax(const View& view, const DecodeTile& tile, int vectors, float* scores) {
  F32 block_max = load(scores);
  for (int z = 1; z < vectors; ++z) block_max = max(block_max, load(scores + z * kLanes));
  block_max = max_by_stride<kRows>(block_max);
  if (any_greater(block_max, load(tile.m))) raise_maximum<kRows>(view, tile, block_max);
  const F32 scale = set1(view.exp2_scale);
  const F32 m = max(load(tile.m), set1(KVC_LOWEST));  // not -inf, because -inf - -inf is NaN
  F32 l = load(tile.l);
  if constexpr (Format::kPairs) {
    for (int z = 0; z < vectors; z += 2) {
      const auto weights = [&](int y) __attribute__((always_inline)) {
        const F32 score = load(scores + y * kLanes);
        const F32 p = exp2(mul(sub(score, m), scale));
        l = add(l, p);
        if constexpr (!Format::kTokenScales) return p;
        // A dword holds the weights of two keys. If the row does not see one of these keys, its weight is 0, even if
        // its scale is NaN.
        const F32 scaled = mul(p, load_repeated<kRows>(tile.v_scales + y * (kLanes / kRows)));
        return select_less(score, set1(KVC_LOWEST), zero(), scaled);
      };
      const F32 a = weights(z), b = z + 1 < vectors ? weights(z + 1) : zero();
      Format::template store_pairs<kRows>(scores + z / 2 * kLanes, a, b);
    }
  } else {
    for (int z = 0; z < vectors; ++z) {
      F32 p = exp2(mul(sub(load(scores + z * kLanes), m), scale));
      l = add(l, p);
      if constexpr (Format::kTokenScales) p = mul(p, load_repeated<kRows>(tile.v_scales + z * (kLanes / kRows)));
      store(scores + z * kLanes, p);
    }
  }
  store(tile.l, l);
}

}  // namespace kvc::kernels::KVC_TARGET
