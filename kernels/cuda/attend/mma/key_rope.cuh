// Attention on tensor cores over keys that are rotated on read: by RoPE on read, or to undo the rotation with which
// uint4 is stored (kernels/common/hadamard.h).
//
// A rotated key is multiplied as a sum of two float16 or three bfloat16 numbers, its parts. The first part is the
// rounded key. Each later part is the rounded difference of the key and the sum of the earlier parts. The reason: a
// rotated key is float32 (kvc_backend_attend.key_tables), with 24 bits, but an operand of a product has only 11 or 8
// bits. Rounding the key once would add an error as large as that of rounding P.
//
// All threads together rotate the keys of a tile, once. The first part replaces the key in the tile. The other parts
// are called the lower parts, and have tiles of their own. S is the sum of the products with all parts.
//
// Lower bounds: Q K^T takes 2 or 3 times the operations over the rotated dims; P V does not change. cos and sin take 6
// to 12 float64 operations for each key, pair of dims, kv head and block of rows (rope_table.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/common/rope_table.h"
#include "kernels/cuda/attend/mma/layout.h"
#include "kernels/cuda/attend/mma/plan.h"
#include "kernels/cuda/attend/mma/tiles.cuh"
#include "kernels/cuda/hadamard.cuh"
#include "kernels/cuda/rotate.cuh"

namespace kvc::kernels::cuda {

// The first part is the key times kFirst, rounded. Each later part is the rest times kNext, rounded.
template <class T>
struct RotatedParts;
// kFirst prevents overflow, because rotation can make an element of a key up to 11 times as large (sqrt(2) times RoPE's
// attention factor). kNext prevents subnormals, because the rest after the first part is at most 2^-12 of the key.
template <>
struct RotatedParts<F16> {
  static constexpr int32_t kCount = rotated_parts(Type::kF16);
  static constexpr float kFirst = 0x1p-4f, kNext = 0x1p11f;
  static constexpr bool kIsScaled = true;
};
template <>
struct RotatedParts<Bf16> {
  static constexpr int32_t kCount = rotated_parts(Type::kBf16);
  static constexpr float kFirst = 1.0f, kNext = 1.0f;
  static constexpr bool kIsScaled = false;
};

// A range of dims to multiply, in steps of kMmaDepth dims. chunk: the first 16-byte chunk in rows of the tile. q_chunk:
// the first chunk in rows of q.
struct KeySteps {
  const unsigned char* tile;
  int32_t pitch, chunk, q_chunk, steps;
};

// S of rotated keys is a sum of products. Returns the operands of product i. The order is: the lower parts, from the
// last to the first; the first part; the dims before the rotated dims; the dims after them.
template <class T>
__device__ __forceinline__ KeySteps rotated_steps(const MmaState& state, const unsigned char* k_tile, int32_t i) {
  constexpr int32_t kFirstPart = RotatedParts<T>::kCount - 1;
  const MmaShape& shape = state.call->shape;
  const int32_t part = kFirstPart - 1 - i, dims = state.call->attend.layer.head_dim;
  int32_t begin = shape.rotated_begin, end = shape.rotated_end;
  if (i < kFirstPart) {
    const unsigned char* const tile = state.shared + shape.lower_at + part * shape.cut.keys * shape.lower_pitch;
    return {tile, shape.lower_pitch, 0, begin / 8, (end - begin) / kMmaDepth};
  }
  if (i > kFirstPart) {
    end = i == kFirstPart + 1 ? begin : dims;
    begin = i == kFirstPart + 1 ? 0 : shape.rotated_end;
  }
  return {k_tile, shape.k_pitch, begin / 8, begin / 8, (end - begin) / kMmaDepth};
}

// The factor by which the sum is multiplied after product i.
template <class T>
__device__ __forceinline__ float factor_behind(int32_t i) {
  constexpr int32_t kFirstPart = RotatedParts<T>::kCount - 1;
  return i < kFirstPart ? 1.0f / RotatedParts<T>::kNext : i == kFirstPart ? 1.0f / RotatedParts<T>::kFirst : 1.0f;
}

// The address of element d of a key, in a tile whose rows have `pitch` bytes.
__device__ __forceinline__ unsigned char* element_at(unsigned char* tile, int32_t key, int32_t d, int32_t pitch) {
  return tile + swizzled(key, d / 8, pitch) + d % 8 * 2;
}

// Splits the values x[0] and x[1] of dims d[0] and d[1] of a key into parts, and writes the parts.
template <class T>
__device__ __forceinline__ void put_parts(const MmaState& state, unsigned char* k_tile, int32_t key,
                                          const int32_t (&d)[2], const float (&x)[2]) {
  const MmaShape& shape = state.call->shape;
  float rest[2] = {x[0] * RotatedParts<T>::kFirst, x[1] * RotatedParts<T>::kFirst};
#pragma unroll
  for (int32_t part = 0; part < RotatedParts<T>::kCount; ++part) {
    const uint32_t packed = pack(T{}, rest[0], rest[1]);
    unsigned char* const lower = state.shared + shape.lower_at + (part - 1) * shape.cut.keys * shape.lower_pitch;
#pragma unroll
    for (int32_t i = 0; i < 2; ++i) {
      const T rounded = {static_cast<uint16_t>(packed >> (16 * i))};
      unsigned char* const place = part == 0 ? element_at(k_tile, key, d[i], shape.k_pitch)
                                             : element_at(lower, key, d[i] - shape.rotated_begin, shape.lower_pitch);
      memcpy(__builtin_assume_aligned(place, 2), &rounded, sizeof rounded);
      const float left = rest[i] - to_float(rounded);
      rest[i] = fabsf(left) < INFINITY ? left * RotatedParts<T>::kNext : 0.0f;  // NaN and infinity have no rest
    }
  }
}

// Rotates the keys of a tile in place, each by its position. Keys that no row sees are zeros and stay zeros. All
// threads call it. The result may be read after the next barrier.
template <class T>
__device__ __forceinline__ void rotate_keys(const MmaState& state, const MmaTile& tile, unsigned char* k_tile) {
  const kvc_backend_layer& layer = state.call->attend.layer;
  const MmaShape& shape = state.call->shape;
  const double* const table = key_table_of_row(&state.fixed->args, state.fixed->item->row);
  // For each key there are `all` pieces of work: its rotated pairs, and then the dims that are in the same groups of
  // kMmaDepth dims as rotated dims, but are not rotated.
  const int32_t pairs = layer.rope_dim / 2, all = shape.rotated_end - shape.rotated_begin - pairs;
  const auto element = [&](int32_t key, int32_t d) {
    T x;
    memcpy(&x, __builtin_assume_aligned(element_at(k_tile, key, d, shape.k_pitch), 2), sizeof x);
    return to_float(x);
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
                   {rotated_dim(first, a, b, cos, sin), rotated_dim(second, a, b, cos, sin)});
    } else {
      const int32_t beside = shape.rotated_begin + index - pairs;
      const int32_t d = beside < layer.rope_offset ? beside : beside + layer.rope_dim;
      const float x = element(key, d);
      put_parts<T>(state, k_tile, key, {d, d}, {x, x});
    }
  }
}

// Undoes the rotation of K of uint4, whose rows have kEach * 32 dims, for all keys of a tile. Warp w computes every
// cut.warps-th key, from key w on. The result is not multiplied by the scales of the tokens.
template <class T, int kEach>
__device__ __forceinline__ void unspread_rows(const MmaState& state, const MmaTile& tile, const unsigned char* raw,
                                              unsigned char* k_tile) {
  constexpr int32_t kDims = kEach * kWarpSize;
#pragma unroll 1
  for (int32_t key = state.warp; key < state.call->shape.cut.keys; key += state.call->shape.cut.warps) {
    const float zero = static_cast<float>(zero_point_of(tile.k_scale[key]));
    float x[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int32_t d = i * kWarpSize + state.lane;
      x[i] = static_cast<float>(raw[key * (kDims / 2) + d / 2] >> (d % 2 * 4) & 15) - zero;
    }
    hadamard_of_lanes(x, state.lane);
#pragma unroll
    for (int i = 0; i < kEach; i += 2) {
      const int32_t d[2] = {i * kWarpSize + state.lane, (i + 1) * kWarpSize + state.lane};
      put_parts<T>(state, k_tile, key, d,
                   {with_sign(x[i], d[0]) * (1.0f / kDims), with_sign(x[i + 1], d[1]) * (1.0f / kDims)});
    }
  }
}

// Calls unspread_rows for the layer's dims. The result may be read after the next barrier.
template <class T>
__device__ __forceinline__ void unspread_keys(const MmaState& state, const MmaTile& tile, const unsigned char* raw,
                                              unsigned char* k_tile) {
  const int32_t dims = state.call->attend.layer.head_dim;
  if (dims == 64) unspread_rows<T, 2>(state, tile, raw, k_tile);
  if (dims == 128) unspread_rows<T, 4>(state, tile, raw, k_tile);
}

}  // namespace kvc::kernels::cuda
