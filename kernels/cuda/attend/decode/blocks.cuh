// Attention of few rows over K and V of float4_e2m1fn: the elements of the two products. ByteRows
// (attend/decode/bytes.cuh) computes with them.
//
// A row in a tile has the bytes of a stored row: the elements, and then a scale for each block of 16 dims. Its bytes
// are no multiple of 16, so ldmatrix cannot load it. Each lane loads words of the rows instead, and chooses the order
// of dims so that the eight elements of a word have the same scale (g = lane / 4, t = lane % 4):
//
//   - K: a lane has the blocks t and t + 4 of the keys g and g + 8 (D 64: the block t). q has its dims in the same
//     order.
//   - V: a lane has the dims [D / 8 g, D / 8 (g + 1)) of four keys. They lie in one block. The words of two
//     neighbouring keys are joined, so that a pair has the same dim of both keys.
//
// An element has a sign, 2 bits of exponent and 1 of mantissa. At the places of these fields in a float16 (bits 15 and
// 11 to 9), they are the element / 2^14, also if it is subnormal. Its product with a float8 scale is a multiple of
// 2^-24 and has at most 6 significant bits, so float16 represents it exactly. kFloat4Unit corrects the factor in the
// scores and in the output.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend/common/pairs.cuh"
#include "kernels/cuda/attend/decode/instructions.cuh"
#include "kernels/cuda/attend/mma/instructions.cuh"

namespace kvc::kernels::cuda {

constexpr float kFloat4Unit = 0x1p14f;

// The place of dim d of a query in a row of q in shared memory, in elements.
__device__ __forceinline__ int32_t place_of_float4(int32_t d) {
  return d / 64 * 64 + d % 16 / 4 * 16 + d % 2 * 8 + d % 64 / 16 * 2 + d % 4 / 2;
}

// Eight elements of four bits, as the upper bytes of float16: byte i of `even` is element 2 i, and byte i of `odd` is
// element 2 i + 1.
struct Float4Bytes {
  uint32_t even, odd;
};
__device__ __forceinline__ Float4Bytes bytes_of_float4(uint32_t eight) {
  constexpr uint32_t kMagnitudes = 0x0e0e0e0eu;
  const uint32_t signs = select_bits(0x88888888u, eight, 0);
  return {select_bits(kMagnitudes, eight << 1, signs << 4), select_bits(kMagnitudes, eight >> 3, signs)};
}

// Bytes i and j as a pair, times a pair of scales.
template <int i, int j>
__device__ __forceinline__ uint32_t scaled_pair(uint32_t bytes, uint32_t scales) {
  return multiply_add(F16{}, pick_bytes(bytes, 0, 0x0404u | i << 4 | j << 12), scales, 0x80008000u);
}

// Loads kCount words. A row of D 64 is aligned to 4 bytes only.
template <int kCount>
__device__ __forceinline__ void load_words(const unsigned char* from, uint32_t (&words)[kCount]) {
  if constexpr (kCount == 2) {
    memcpy(words, __builtin_assume_aligned(from, 8), sizeof words);
  } else {
    memcpy(words, __builtin_assume_aligned(from, 4), sizeof words);
  }
}

// ---- K --------------------------------------------------------------------------------------------

// The lane's parts of the keys g and g + 8 of 16 rows.
template <class Kind>
class Float4Keys {
 public:
  static constexpr int kBlocks = Kind::kDims / 64;  // the number of blocks of a key that a lane has

  // rows: the first of 16 rows in a tile.
  __device__ __forceinline__ Float4Keys(const unsigned char* rows, int32_t lane)
      : own_(rows + lane / 4 * Kind::kKeyPitch + lane % 4 * 8) {
    const unsigned char* const scales = rows + lane / 4 * Kind::kKeyPitch + Kind::kDims / 2;
    const uint32_t own = static_cast<uint32_t>(lane % 4), two = own | (own + 4) << 4;
    uint32_t first[kBlocks], second[kBlocks], four;  // bytes of `four`: the block t of both keys, the block t + 4
    load_words(scales, first);
    load_words(scales + 8 * Kind::kKeyPitch, second);
    if constexpr (kBlocks == 2) {
      four = pick_bytes(pick_bytes(first[0], first[1], two), pick_bytes(second[0], second[1], two), 0x5140u);
    } else {
      four = pick_bytes(first[0], second[0], two);
    }
    pairs_of_e4m3(four & 0x7f7f7f7fu, &scales_[0], &scales_[1]);
  }

  // Finds the A fragments of the steps 4 j + 2 w and 4 j + 2 w + 1.
  __device__ __forceinline__ void fragments(int j, int w, uint32_t (&first)[4], uint32_t (&second)[4]) const {
    const unsigned char* const word = own_ + j * 32 + w * 4;
#pragma unroll
    for (int key = 0; key < 2; ++key) {
      uint32_t eight[1];
      load_words(word + key * 8 * Kind::kKeyPitch, eight);
      const Float4Bytes bytes = bytes_of_float4(eight[0]);
      const uint32_t scale = pick_bytes(j == 0 ? scales_[0] : scales_[1], 0, key == 0 ? 0x1010u : 0x3232u);
      first[key] = scaled_pair<0, 1>(bytes.even, scale);
      first[key + 2] = scaled_pair<0, 1>(bytes.odd, scale);
      second[key] = scaled_pair<2, 3>(bytes.even, scale);
      second[key + 2] = scaled_pair<2, 3>(bytes.odd, scale);
    }
  }

 private:
  const unsigned char* own_;
  uint32_t scales_[2];  // of block t and of block t + 4: pairs of both keys
};

// ---- V --------------------------------------------------------------------------------------------

// The lane's parts of the keys 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of 16 rows.
template <class Kind>
class Float4Values {
 public:
  static constexpr int kWords = Kind::kValueDims / 64;  // the number of words of a key that a lane has

  // rows: the first of 16 rows in a tile.
  __device__ __forceinline__ Float4Values(const unsigned char* rows, int32_t lane) {
    const unsigned char* const first = rows + lane % 4 * 2 * Kind::kValuePitch;
    uint32_t four = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned char* const row = first + (i % 2 + i / 2 * 8) * Kind::kValuePitch;
      load_words(row + lane / 4 * kWords * 4, words_[i]);
      four |= static_cast<uint32_t>(row[Kind::kValueDims / 2 + lane / 4 * kWords / 2]) << (i * 8);
    }
    pairs_of_e4m3(four & 0x7f7f7f7fu, &scales[0], &scales[1]);
  }

  // Finds the A fragments of the steps 4 w + 2 half and 4 w + 2 half + 1. Step i has the lane's dims 2 i and 2 i + 1.
  __device__ __forceinline__ void fragments(int w, int half, uint32_t (&first)[4], uint32_t (&second)[4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t joined = pick_bytes(words_[i * 2][w], words_[i * 2 + 1][w], half == 0 ? 0x5410u : 0x7632u);
      const Float4Bytes bytes = bytes_of_float4(joined);
      first[i * 2] = scaled_pair<0, 2>(bytes.even, scales[i]);
      first[i * 2 + 1] = scaled_pair<0, 2>(bytes.odd, scales[i]);
      second[i * 2] = scaled_pair<1, 3>(bytes.even, scales[i]);
      second[i * 2 + 1] = scaled_pair<1, 3>(bytes.odd, scales[i]);
    }
  }

  uint32_t scales[2];  // of the keys 2 t and 2 t + 1, and of the other two

 private:
  uint32_t words_[4][kWords];
};

// Whether the scale of the lane's dims of a key is NaN. row: the key's row of V.
template <class Kind>
__device__ __forceinline__ bool has_nan_scale(const unsigned char* row, int32_t lane) {
  return (row[Kind::kValueDims / 2 + lane / 4 * Kind::kValueDims / 128] & 0x7f) == 0x7f;
}

}  // namespace kvc::kernels::cuda
