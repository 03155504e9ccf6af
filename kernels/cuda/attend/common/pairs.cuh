// Pairs of 16-bit elements in one register: exact conversion from 8 and 4 bits, and detection of odd elements. An
// element is odd if it is NaN or infinity.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "kernels/common/convert.h"
#include "kernels/cuda/attend/mma/instructions.cuh"

namespace kvc::kernels::cuda {

// ---- 8 bits to 16, exactly --------------------------------------------------------------------

// Moves bytes 2 i and 2 i + 1 of `four` into the upper bytes of the two halves of a register.
__device__ __forceinline__ uint32_t spread(uint32_t four, int i) {
  return pick_bytes(four, 0, i == 0 ? 0x1404u : 0x3424u);
}

// Sets the upper bit of each byte of the result whose element is odd. An odd element has all bits after the sign set in
// e4m3 (NaN), and all bits of the exponent set in e5m2.
__device__ __forceinline__ uint32_t odd_bytes(Type stored, uint32_t four) {
  if (stored == Type::kI8) return 0;
  const uint32_t ones = stored == Type::kE4m3 ? 0x7fu : 0x7cu, carry = 0x80u - ones;
  return ((four & (ones * 0x01010101u)) + carry * 0x01010101u) & 0x80808080u;
}

// The bits to set in a converted pair where an element is odd: in e4m3 all bits after the sign (NaN), in e5m2 the
// exponent. The other bits of e5m2 are already right.
__device__ __forceinline__ uint32_t bits_of_odd(Type stored, uint32_t pair) {
  return (odd_bytes(stored, pair) >> 15) * (stored == Type::kE4m3 ? 0x7fffu : 0x7f80u);
}

// Converts a pair of stored elements, which are in the upper bytes of the halves. For floats, sign and magnitude are
// shifted to their places in the larger type. The exponent is then too small by the difference of the biases. A product
// with a power of two corrects the exponent, also for subnormals. has_odd: an element may be odd.
__device__ __forceinline__ uint32_t dequantise_pair(F16 type, Type stored, uint32_t pair, bool has_odd) {
  if (stored == Type::kI8) {  // 1024 + (x + 128), minus 1152
    return multiply_add(type, (pair >> 8) ^ 0x64806480u, 0x3c003c00u, 0xe480e480u);
  }
  if (stored == Type::kE5m2) return pair;
  const uint32_t low = (pair & 0x80008000u) | (pair & 0x7f007f00u) >> 1;
  const uint32_t wide = multiply_add(type, low, 0x5c005c00u, 0x80008000u);  // 2^8
  return has_odd ? wide | bits_of_odd(stored, pair) : wide;
}
__device__ __forceinline__ uint32_t dequantise_pair(Bf16 type, Type stored, uint32_t pair, bool has_odd) {
  if (stored == Type::kI8) {  // 128 + the lower 7 bits, minus 128, or minus 256 if x is negative
    const uint32_t low = pair >> 8;
    return multiply_add(type, (low & 0x007f007fu) | 0x43004300u, 0x3f803f80u, (low & 0x00800080u) | 0xc300c300u);
  }
  const uint32_t sign = pair & 0x80008000u, magnitude = pair & 0x7f007f00u;
  const uint32_t wide = stored == Type::kE4m3
                            ? multiply_add(type, sign | magnitude >> 4, 0x7b807b80u, 0x80008000u)   // 2^120
                            : multiply_add(type, sign | magnitude >> 3, 0x77807780u, 0x80008000u);  // 2^112
  return has_odd ? wide | bits_of_odd(stored, pair) : wide;
}

// Converts eight stored elements to a chunk of 16 bytes.
template <class T>
__device__ __forceinline__ void dequantise_eight(T type, Type stored, const uint32_t (&from)[2], bool has_odd,
                                                 uint32_t (&to)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) to[j] = dequantise_pair(type, stored, spread(from[j / 2], j % 2), has_odd);
}

// Pair i has the elements i and i + 4 of eight. Makes a chunk of the eight elements in order.
__device__ __forceinline__ void in_order(const uint32_t (&pairs)[4], uint32_t (&to)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[i] = pick_bytes(pairs[i % 2 * 2], pairs[i % 2 * 2 + 1], i < 2 ? 0x5410u : 0x7632u);
  }
}

// ---- uint4 to 16 bits, exactly -----------------------------------------------------------------

// Converts a pair of levels minus their zero points. The levels are in the lowest bits of the halves, and `zeros` has
// the zero points in the same places. The bits 0x6400 of float16 are 1024, and 0x4300 of bfloat16 are 128. A level in
// the lowest bits is added to these numbers.
__device__ __forceinline__ uint32_t pair_of_levels(F16 type, uint32_t levels, uint32_t zeros) {
  return multiply_add(type, levels | 0x64006400u, 0x3c003c00u, zeros | 0xe400e400u);
}
__device__ __forceinline__ uint32_t pair_of_levels(Bf16 type, uint32_t levels, uint32_t zeros) {
  return multiply_add(type, levels | 0x43004300u, 0x3f803f80u, zeros | 0xc300c300u);
}

// ---- 4-bit floats to 16 bits, exactly -------------------------------------------------------------

// The factor 2^(bias - 1) of the larger type, in both halves: 1 is the bias of a 4-bit float.
__device__ __forceinline__ uint32_t bias_of_nibbles(F16) { return 0x74007400u; }
__device__ __forceinline__ uint32_t bias_of_nibbles(Bf16) { return 0x7e807e80u; }

// Converts eight 4-bit floats, times the scale of their block, to a chunk of 16 bytes. The product has at most 6
// significant bits. scale: as stored; its sign is ignored.
template <class T>
__device__ __forceinline__ void dequantise_nibbles(T type, uint32_t eight, uint32_t scale, uint32_t (&to)[4]) {
  constexpr int kUp = std::is_same_v<T, F16> ? 9 : 6;  // from the lowest bit to the place of exponent and mantissa
  constexpr uint32_t kMagnitude = 0x00070007u << kUp;
  const uint32_t factor = dequantise_pair(type, Type::kE4m3, (scale & 0x7fu) * 0x01000100u, true);
  uint32_t pairs[4];  // of the elements i and i + 4
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t placed = i * 4 > kUp ? eight >> (i * 4 - kUp) : eight << (kUp - i * 4);
    const uint32_t pair = (placed & kMagnitude) | (eight << (12 - i * 4) & 0x80008000u);
    pairs[i] = multiply_add(type, multiply_add(type, pair, bias_of_nibbles(type), 0x80008000u), factor, 0x80008000u);
  }
  in_order(pairs, to);
}

// ---- NaN and infinity ----------------------------------------------------------------------------

// Sets the upper bit of each half whose element is NaN or infinity: adding 1 to an exponent whose bits are all set
// carries into the sign bit.
__device__ __forceinline__ uint32_t not_finite(F16, uint32_t pair) {
  return ((pair & 0x7c007c00u) + 0x04000400u) & 0x80008000u;
}
__device__ __forceinline__ uint32_t not_finite(Bf16, uint32_t pair) {
  return ((pair & 0x7f807f80u) + 0x00800080u) & 0x80008000u;
}

// Replaces NaN and infinity among pairs of elements by zero. Returns 0 if there were none.
template <class P, int kPairs>
__device__ __forceinline__ uint32_t take_not_finite(uint32_t (&b)[kPairs]) {
  uint32_t found = 0;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const uint32_t bad = not_finite(P{}, b[j]);
    b[j] &= ~((bad >> 15) * 0xffffu);
    found |= bad;
  }
  return found;
}

}  // namespace kvc::kernels::cuda
