// Pairs of 16-bit elements, one register each: from 8 bits as stored, exactly, and which of them are no numbers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/cuda/attend/mma/instructions.cuh"

namespace kvc::kernels::cuda {

// ---- 8 bits to 16, exactly --------------------------------------------------------------------

// Bytes 2 i and 2 i + 1 of four, to the upper bytes of two halves.
__device__ __forceinline__ uint32_t spread(uint32_t four, int i) {
  return pick_bytes(four, 0, i == 0 ? 0x1404u : 0x3424u);
}

// Of four bytes, the upper bits of those that are no numbers: all bits of a float after the sign are set (e4m3), or
// all of its exponent (e5m2).
__device__ __forceinline__ uint32_t odd_bytes(Type stored, uint32_t four) {
  if (stored == Type::kI8) return 0;
  const uint32_t ones = stored == Type::kE4m3 ? 0x7fu : 0x7cu, carry = 0x80u - ones;
  return ((four & (ones * 0x01010101u)) + carry * 0x01010101u) & 0x80808080u;
}

// Bits to set in a converted pair: NaN is all ones; the exponent of an infinity or NaN is, and the rest is there.
__device__ __forceinline__ uint32_t bits_of_odd(Type stored, uint32_t pair) {
  return (odd_bytes(stored, pair) >> 15) * (stored == Type::kE4m3 ? 0x7fffu : 0x7f80u);
}

// Sign and magnitude of a float are shifted to where the wider type has them, which leaves its exponent too low by the
// difference of the biases: a power of two, which a product makes good, subnormals and all. has_odd: one may be no
// number.
__device__ __forceinline__ uint32_t widen_pair(F16 type, Type stored, uint32_t pair, bool has_odd) {
  if (stored == Type::kI8) {  // 1024 + (x + 128), less 1152
    return multiply_add(type, (pair >> 8) ^ 0x64806480u, 0x3c003c00u, 0xe480e480u);
  }
  if (stored == Type::kE5m2) return pair;
  const uint32_t low = (pair & 0x80008000u) | (pair & 0x7f007f00u) >> 1;
  const uint32_t wide = multiply_add(type, low, 0x5c005c00u, 0x80008000u);  // 2^8
  return has_odd ? wide | bits_of_odd(stored, pair) : wide;
}
__device__ __forceinline__ uint32_t widen_pair(Bf16 type, Type stored, uint32_t pair, bool has_odd) {
  if (stored == Type::kI8) {  // 128 + its lower bits, less 128, or 256 where it is negative
    const uint32_t low = pair >> 8;
    return multiply_add(type, (low & 0x007f007fu) | 0x43004300u, 0x3f803f80u, (low & 0x00800080u) | 0xc300c300u);
  }
  const uint32_t sign = pair & 0x80008000u, magnitude = pair & 0x7f007f00u;
  const uint32_t wide = stored == Type::kE4m3
                            ? multiply_add(type, sign | magnitude >> 4, 0x7b807b80u, 0x80008000u)   // 2^120
                            : multiply_add(type, sign | magnitude >> 3, 0x77807780u, 0x80008000u);  // 2^112
  return has_odd ? wide | bits_of_odd(stored, pair) : wide;
}

// Eight elements as stored to a chunk of 16 bytes.
template <class T>
__device__ __forceinline__ void widen_eight(T type, Type stored, const uint32_t (&from)[2], bool has_odd,
                                            uint32_t (&to)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) to[j] = widen_pair(type, stored, spread(from[j / 2], j % 2), has_odd);
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
