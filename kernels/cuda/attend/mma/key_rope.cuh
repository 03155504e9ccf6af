// Attention on tensor cores over keys that are rotated on read (RoPE on read).
//
// Such a key is float32 (kvc_backend_attend.key_tables), 24 bits, and the products' types have 11 or 8; rounded to one
// of them its scores would be off by as much again as P's rounding. So a rotated key is the sum of 2 numbers of float16
// or 3 of bfloat16, each the rounding of what those before it left: it is rotated once, by all threads, the first part
// lies where the key lay in the tile, the others in tiles of their own, and S is the sum of the products with all of
// them. Lower bounds: 2 or 3 times the operations of Q K^T over the rotated dims, those of P V as ever; and cos and sin
// once a key, pair of dims, kv head and block of rows, some 6 to 12 operations in float64 (rope_table.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/common/rope_table.h"
#include "kernels/cuda/attend/mma/layout.h"
#include "kernels/cuda/attend/mma/plan.h"
#include "kernels/cuda/attend/mma/tiles.cuh"
#include "kernels/cuda/rotate.cuh"

namespace kvc::kernels::cuda {

// The first part is that of the key times kFirst, each one after it that of what is left times kNext.
template <class T>
struct TurnedParts;
// A rotated key may be larger than a stored one, by sqrt(2) times RoPE's attention factor: by 11 at most. What the
// first part leaves is at most 2^-12 of it, and would be subnormal.
template <>
struct TurnedParts<F16> {
  static constexpr int32_t kCount = turned_parts(Type::kF16);
  static constexpr float kFirst = 0x1p-4f, kNext = 0x1p11f;
  static constexpr bool kIsScaled = true;
};
template <>
struct TurnedParts<Bf16> {
  static constexpr int32_t kCount = turned_parts(Type::kBf16);
  static constexpr float kFirst = 1.0f, kNext = 1.0f;
  static constexpr bool kIsScaled = false;
};

// Dims of q and of a tile that are multiplied: steps of kMmaDepth from `chunk` (of 16 bytes) of the tile's rows on, and
// from `q_chunk` of q's.
struct KeySteps {
  const unsigned char* tile;
  int32_t pitch, chunk, q_chunk, steps;
};

// The products that S of rotated keys is the sum of, in order: those of the lower parts, the last one first; of the
// first part; of the dims before and after the rotated ones.
template <class T>
__device__ __forceinline__ KeySteps turned_steps(const MmaState& state, const unsigned char* k_tile, int32_t i) {
  constexpr int32_t kFirstPart = TurnedParts<T>::kCount - 1;
  const MmaShape& shape = state.call->shape;
  const int32_t part = kFirstPart - 1 - i, dims = state.call->attend.layer.head_dim;
  int32_t begin = shape.turned_begin, end = shape.turned_end;
  if (i < kFirstPart) {
    const unsigned char* const tile = state.shared + shape.lower_at + part * shape.cut.keys * shape.lower_pitch;
    return {tile, shape.lower_pitch, 0, begin / 8, (end - begin) / kMmaDepth};
  }
  if (i > kFirstPart) {
    end = i == kFirstPart + 1 ? begin : dims;
    begin = i == kFirstPart + 1 ? 0 : shape.turned_end;
  }
  return {k_tile, shape.k_pitch, begin / 8, begin / 8, (end - begin) / kMmaDepth};
}

// What the sum is multiplied by after the i-th of them.
template <class T>
__device__ __forceinline__ float factor_behind(int32_t i) {
  constexpr int32_t kFirstPart = TurnedParts<T>::kCount - 1;
  return i < kFirstPart ? 1.0f / TurnedParts<T>::kNext : i == kFirstPart ? 1.0f / TurnedParts<T>::kFirst : 1.0f;
}

// Element d of a key in a tile of `pitch`.
__device__ __forceinline__ unsigned char* element_at(unsigned char* tile, int32_t key, int32_t d, int32_t pitch) {
  return tile + swizzled(key, d / 8, pitch) + d % 8 * 2;
}

// Writes the parts of a key's dims d[0] and d[1], which are x[0] and x[1].
template <class T>
__device__ __forceinline__ void put_parts(const MmaState& state, unsigned char* k_tile, int32_t key,
                                          const int32_t (&d)[2], const float (&x)[2]) {
  const MmaShape& shape = state.call->shape;
  float rest[2] = {x[0] * TurnedParts<T>::kFirst, x[1] * TurnedParts<T>::kFirst};
#pragma unroll
  for (int32_t part = 0; part < TurnedParts<T>::kCount; ++part) {
    const uint32_t packed = pack(T{}, rest[0], rest[1]);
    unsigned char* const lower = state.shared + shape.lower_at + (part - 1) * shape.cut.keys * shape.lower_pitch;
#pragma unroll
    for (int32_t i = 0; i < 2; ++i) {
      const T rounded = {static_cast<uint16_t>(packed >> (16 * i))};
      unsigned char* const place = part == 0 ? element_at(k_tile, key, d[i], shape.k_pitch)
                                             : element_at(lower, key, d[i] - shape.turned_begin, shape.lower_pitch);
      memcpy(__builtin_assume_aligned(place, 2), &rounded, sizeof rounded);
      const float left = rest[i] - widen(rounded);
      rest[i] = fabsf(left) < INFINITY ? left * TurnedParts<T>::kNext : 0.0f;  // of no number nothing is left
    }
  }
}

// Rotates a tile's keys in place, each by its position. (Zeros, where no row sees a key, stay zeros.) All threads; what
// is written is read after the next barrier.
template <class T>
__device__ __forceinline__ void turn_keys(const MmaState& state, const MmaTile& tile, unsigned char* k_tile) {
  const kvc_backend_layer& layer = state.call->attend.layer;
  const MmaShape& shape = state.call->shape;
  const double* const table = key_table_of_row(&state.fixed->args, state.fixed->item->row);
  // Work of a key: the pairs, then dims beside them that are in steps with them.
  const int32_t pairs = layer.rope_dim / 2, all = shape.turned_end - shape.turned_begin - pairs;
  const auto element = [&](int32_t key, int32_t d) {
    T x;
    memcpy(&x, __builtin_assume_aligned(element_at(k_tile, key, d, shape.k_pitch), 2), sizeof x);
    return widen(x);
  };
#pragma unroll 1
  for (int32_t i = state.thread; i < shape.cut.keys * all; i += state.threads()) {
    const int32_t key = i / all, index = i % all;
    if (index < pairs) {
      const Pair first = pair_of(layer, layer.rope_offset + (layer.rope_interleaved != 0 ? 2 * index : index));
      const Pair second = {first.first, first.second, index, true};
      const float a = element(key, first.first), b = element(key, first.second);
      float cos, sin;
      rope_angle(table, pairs, tile.position[key], index, &cos, &sin);
      put_parts<T>(state, k_tile, key, {first.first, first.second},
                   {turned(first, a, b, cos, sin), turned(second, a, b, cos, sin)});
    } else {
      const int32_t beside = shape.turned_begin + index - pairs;
      const int32_t d = beside < layer.rope_offset ? beside : beside + layer.rope_dim;
      const float x = element(key, d);
      put_parts<T>(state, k_tile, key, {d, d}, {x, x});
    }
  }
}

}  // namespace kvc::kernels::cuda
