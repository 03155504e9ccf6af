// Quantises rows as append stores them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/hadamard.h"
#include "kernels/common/scales.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

// target[0, n) = row[0, n) / scale, rounded and saturated.
template <class T>
static void quantise_elements(unsigned char* target, const float* row, int32_t n, float scale) {
  const F32 divisor = set1(scale);
  int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_bytes(T{}, target + i, div(load(row + i), divisor), kLanes);
  if (i < n) store_bytes(T{}, target + i, div(load_as_first(float{}, row + i, n - i), divisor), n - i);
}

// The bits of the largest magnitude of a row.
static uint32_t largest_magnitude(const float* row, int32_t n) {
  F32 largest = zero();
  int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = max_magnitude(largest, load(row + i));
  if (i < n) largest = max_magnitude(largest, load_as_first(float{}, row + i, n - i));
  uint32_t lanes[kLanes], bits = 0;
  memcpy(lanes, &largest, sizeof lanes);
  for (const uint32_t lane : lanes) bits = lane > bits ? lane : bits;
  return bits;
}

// n: a multiple of kLanes, as the dims of all rotated rows are.
static NibbleScale nibble_scale_of_row(const float* row, int32_t n) {
  static_assert(kRotatedMultiple % kLanes == 0);
  if (largest_magnitude(row, n) >= 0x7f800000u) return nibble_scale(0.0f, __builtin_nanf(""));
  F32 largest = load(row), least = sub(zero(), largest);  // least: of all x, the largest -x
  for (int32_t i = kLanes; i < n; i += kLanes) {
    largest = max(largest, load(row + i));
    least = max(least, sub(zero(), load(row + i)));
  }
  return nibble_scale(-reduce_max(least), reduce_max(largest));
}

static float quantise_row(Type type, void* target, const float* row, int32_t n, float scale) {
  unsigned char* bytes = static_cast<unsigned char*>(target);
  if (type == Type::kE4m3) quantise_elements<E4m3>(bytes, row, n, scale);
  if (type == Type::kE5m2) quantise_elements<E5m2>(bytes, row, n, scale);
  if (type == Type::kU4) {
    const NibbleScale own = nibble_scale_of_row(row, n);
    store_nibbles(row, n, own, bytes);
    return own.stored;
  }
  if (type != Type::kI8) return scale;
  scale = row_scale(largest_magnitude(row, n));
  if (scale == scale) {
    quantise_elements<I8>(bytes, row, n, scale);
  } else {
    memset(bytes, 0, static_cast<size_t>(n));
  }
  return scale;
}

// The rotation of stored rows, and its inverse (kernels/common/hadamard.h).
static void spread_row(float* row, int32_t n, int32_t block) {
  apply_rotation_signs(row, n);
  hadamard(row, n, block);
}
static void gather_row(float* row, int32_t n, int32_t block) {
  hadamard(row, n, block);
  apply_rotation_signs(row, n);
  const float factor = 1.0f / static_cast<float>(block);
  for (int32_t d = 0; d < n; ++d) row[d] *= factor;
}

}  // namespace kvc::kernels::KVC_TARGET
