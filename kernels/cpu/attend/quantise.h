// Quantises rows to types of 8 bits, as append stores them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/common/scales.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

// Sets target[0, n) to row[0, n) / scale, rounded and saturated.
template <class T>
static void quantise_elements(unsigned char* target, const float* row, int32_t n, float scale) {
  const F32 divisor = set1(scale);
  int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_bytes(T{}, target + i, div(load(row + i), divisor), kLanes);
  if (i < n) store_bytes(T{}, target + i, div(load_as_first(float{}, row + i, n - i), divisor), n - i);
}

static float scale_of_row(const float* row, int32_t n) {
  F32 largest = zero();
  int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = max_magnitude(largest, load(row + i));
  if (i < n) largest = max_magnitude(largest, load_as_first(float{}, row + i, n - i));
  uint32_t lanes[kLanes], bits = 0;
  memcpy(lanes, &largest, sizeof lanes);
  for (const uint32_t lane : lanes) bits = lane > bits ? lane : bits;
  return row_scale(bits);
}

static float quantise_row(Type type, void* target, const float* row, int32_t n, float scale) {
  unsigned char* bytes = static_cast<unsigned char*>(target);
  if (type == Type::kE4m3) quantise_elements<E4m3>(bytes, row, n, scale);
  if (type == Type::kE5m2) quantise_elements<E5m2>(bytes, row, n, scale);
  if (type != Type::kI8) return scale;
  scale = scale_of_row(row, n);
  if (scale == scale) {
    quantise_elements<I8>(bytes, row, n, scale);
  } else {
    memset(bytes, 0, static_cast<size_t>(n));
  }
  return scale;
}

}  // namespace kvc::kernels::KVC_TARGET
