// Pairs of 16-bit elements, one register each: from 8 bits as stored, exactly, and which of them are no numbers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/mma.cuh"

namespace kvc::kernels::cuda {

// ---- 8 bits to 16, exactly --------------------------------------------------------------------

// Bytes 2 i and 2 i + 1 of four, to the upper bytes of two halves.
__device__ __forceinline__ uint32_t spread(uint32_t four, int i) {
  return pick_bytes(four, 0, i == 0 ? 0x1404u : 0x3424u);
}

// Whether one of four bytes has all bits of `ones` (the upper ones of the lower seven).
__device__ __forceinline__ bool any_has(uint32_t four, uint32_t ones) {
  const uint32_t carry = 0x80u - ones;
  return (((four & (ones * 0x01010101u)) + carry * 0x01010101u) & 0x80808080u) != 0;
}

// By the definition: for what is no number, and rare.
template <class T>
__device__ __forceinline__ uint32_t widen_slowly(T type, uint32_t spreaded, bool e4m3) {
  const uint8_t low = static_cast<uint8_t>(spreaded >> 8), high = static_cast<uint8_t>(spreaded >> 24);
  return e4m3 ? pack(type, widen(E4m3{low}), widen(E4m3{high})) : pack(type, widen(E5m2{low}), widen(E5m2{high}));
}

// Sign and magnitude of a float are shifted to where the wider type has them, which leaves its exponent too low by the
// difference of the biases: a power of two, which a product makes good, subnormals and all.
__device__ __forceinline__ uint32_t widen_pair(F16 type, Type stored, uint32_t pair, bool slow) {
  if (stored == Type::kI8) {  // 1024 + (x + 128), less 1152
    return multiply_add(type, (pair >> 8) ^ 0x64806480u, 0x3c003c00u, 0xe480e480u);
  }
  if (stored == Type::kE5m2) return pair;
  if (slow) return widen_slowly(type, pair, true);
  return multiply_add(type, (pair & 0x80008000u) | (pair & 0x7f007f00u) >> 1, 0x5c005c00u, 0x80008000u);  // 2^8
}
__device__ __forceinline__ uint32_t widen_pair(Bf16 type, Type stored, uint32_t pair, bool slow) {
  if (stored == Type::kI8) {  // 128 + its lower bits, less 128, or 256 where it is negative
    const uint32_t low = pair >> 8;
    return multiply_add(type, (low & 0x007f007fu) | 0x43004300u, 0x3f803f80u, (low & 0x00800080u) | 0xc300c300u);
  }
  if (slow) return widen_slowly(type, pair, stored == Type::kE4m3);
  const uint32_t sign = pair & 0x80008000u, magnitude = pair & 0x7f007f00u;
  return stored == Type::kE4m3 ? multiply_add(type, sign | magnitude >> 4, 0x7b807b80u, 0x80008000u)   // 2^120
                               : multiply_add(type, sign | magnitude >> 3, 0x77807780u, 0x80008000u);  // 2^112
}

// Eight elements as stored to a chunk of 16 bytes.
template <class T>
__device__ __forceinline__ void widen_eight(T type, Type stored, const uint32_t (&from)[2], uint32_t (&to)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t four = from[j / 2];
    const bool slow = stored == Type::kE4m3 ? any_has(four, 0x7fu) : stored == Type::kE5m2 && any_has(four, 0x7cu);
    to[j] = widen_pair(type, stored, spread(four, j % 2), slow);
  }
}

// ---- What is no number ------------------------------------------------------------------------

// Exponent bits of a pair, and what added to them carries into the signs if all are set: no number.
__device__ __forceinline__ uint32_t not_finite(F16, uint32_t pair) {
  return ((pair & 0x7c007c00u) + 0x04000400u) & 0x80008000u;
}
__device__ __forceinline__ uint32_t not_finite(Bf16, uint32_t pair) {
  return ((pair & 0x7f807f80u) + 0x00800080u) & 0x80008000u;
}

// Takes elements that are no numbers out of eight. Not 0: there were some.
template <class P>
__device__ __forceinline__ uint32_t take_not_finite(uint32_t (&b)[4]) {
  uint32_t found = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t bad = not_finite(P{}, b[j]);
    b[j] &= ~((bad >> 15) * 0xffffu);
    found |= bad;
  }
  return found;
}

}  // namespace kvc::kernels::cuda
