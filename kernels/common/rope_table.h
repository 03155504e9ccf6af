// Computes cos and sin of a position from a table (kvc_backend_rope_table). Layers whose rotations have the same angles
// form a RoPE class, and share their tables. The position is written in base RADIX, and the table has a complex factor
// for each digit. The factors are multiplied in float64, and the product is rounded to float32. All SIMD targets
// compute the same products and sums in the same order. So rotated keys have the same bits on every SIMD target,
// whether the keys are rotated when they are stored or when they are read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <math.h>

#include "kernels/common/annotate.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

// Returns the entry (level, digit) of a table: cos and sin of digit * RADIX^level * f(i) for each pair i, as [2, half].
// In level 0 they are multiplied by the attention factor. half: rope_dim / 2.
KVC_HOST_DEVICE const double* rope_entry(const double* table, int32_t half, int32_t level, int32_t digit) {
  return table + (static_cast<int64_t>(level) * KVC_BACKEND_ROPE_RADIX + digit) * 2 * half;
}

// Returns table number `set` of a RoPE class that has several tables.
KVC_HOST_DEVICE const double* rope_table_of_set(const double* tables, int32_t half, int32_t set) {
  return rope_entry(tables, half, set * KVC_BACKEND_ROPE_LEVELS, 0);
}

// Returns the table by which the keys of a row are rotated on read. Returns null if these keys are not rotated on read.
KVC_HOST_DEVICE const double* key_table_of_row(const kvc_backend_attend* args, int32_t row) {
  if (args->key_tables == nullptr) return nullptr;
  const kvc_backend_plan_arrays* arrays = &args->plan->arrays;
  const int32_t token = arrays->rows.token_begin[row];
  return rope_table_of_set(args->key_tables, args->layer->rope_dim / 2,
                           arrays->key_sets != nullptr ? arrays->key_sets[token] : 0);
}

// Computes the product of all factors except that of the lowest digit. Positions with the same position / RADIX share
// this product. coarse: [2, half].
KVC_HOST_DEVICE void rope_coarse(const double* table, int32_t half, int32_t position, double* coarse) {
  uint32_t rest = static_cast<uint32_t>(position) >> KVC_BACKEND_ROPE_RADIX_LOG2;
  constexpr uint32_t kDigit = KVC_BACKEND_ROPE_RADIX - 1;
  memcpy(coarse, rope_entry(table, half, 1, static_cast<int32_t>(rest & kDigit)),
         2 * static_cast<size_t>(half) * sizeof(double));
  rest >>= KVC_BACKEND_ROPE_RADIX_LOG2;
  for (int32_t level = 2; rest != 0; ++level, rest >>= KVC_BACKEND_ROPE_RADIX_LOG2) {
    const double* entry = rope_entry(table, half, level, static_cast<int32_t>(rest & kDigit));
    double* __restrict cos = coarse;
    double* __restrict sin = coarse + half;
    for (int32_t i = 0; i < half; ++i) {
      const double c = cos[i], s = sin[i];
      cos[i] = c * entry[i] - s * entry[half + i];
      sin[i] = s * entry[i] + c * entry[half + i];
    }
  }
}

// Computes cos and sin of a position: cos_sin [2, half]. coarse: the result of rope_coarse for this position.
KVC_HOST_DEVICE void rope_fine(const double* table, int32_t half, int32_t position, const double* coarse,
                               float* __restrict cos_sin) {
  const double* entry = rope_entry(table, half, 0, position & (KVC_BACKEND_ROPE_RADIX - 1));
  for (int32_t i = 0; i < half; ++i) {
    cos_sin[i] = static_cast<float>(coarse[i] * entry[i] - coarse[half + i] * entry[half + i]);
    cos_sin[half + i] = static_cast<float>(coarse[half + i] * entry[i] + coarse[i] * entry[half + i]);
  }
}

// Computes cos and sin of one pair of dims at a position, by the same products and sums as rope_coarse and rope_fine.
KVC_HOST_DEVICE void rope_angle(const double* table, int32_t half, int32_t position, int32_t pair, float* cos,
                                float* sin) {
  uint32_t rest = static_cast<uint32_t>(position) >> KVC_BACKEND_ROPE_RADIX_LOG2;
  constexpr uint32_t kDigit = KVC_BACKEND_ROPE_RADIX - 1;
  const double* entry = rope_entry(table, half, 1, static_cast<int32_t>(rest & kDigit)) + pair;
  double c = entry[0], s = entry[half];
  rest >>= KVC_BACKEND_ROPE_RADIX_LOG2;
  for (int32_t level = 2; rest != 0; ++level, rest >>= KVC_BACKEND_ROPE_RADIX_LOG2) {
    entry = rope_entry(table, half, level, static_cast<int32_t>(rest & kDigit)) + pair;
    const double next = c * entry[0] - s * entry[half];
    s = s * entry[0] + c * entry[half];
    c = next;
  }
  entry = rope_entry(table, half, 0, position & (KVC_BACKEND_ROPE_RADIX - 1)) + pair;
  *cos = static_cast<float>(c * entry[0] - s * entry[half]);
  *sin = static_cast<float>(s * entry[0] + c * entry[half]);
}

// Computes cos and sin of the exact product a * b. The rounded product is off by up to 1e-7 for the largest positions.
// The function computes this error, and corrects cos and sin by it. Only code of the host calls this function.
[[maybe_unused]] static void exact_rotation(double a, double b, double* cosine, double* sine) {
  const double angle = a * b, error = fma(a, b, -angle);
  const double c = cos(angle), s = sin(angle);
  *cosine = c - error * s;
  *sine = s + error * c;
}

// Fills a table of a RoPE class, [LEVELS, RADIX, 2, rope_dim/2], in host memory.
[[maybe_unused]] static void fill_rope_table(const kvc_backend_rope_table* args, double* table) {
  const int32_t half = args->rope_dim / 2;
  double* entry = table;
  for (int32_t level = 0; level < KVC_BACKEND_ROPE_LEVELS; ++level) {
    const double factor = level == 0 ? args->attention_factor : 1.0;
    for (int32_t digit = 0; digit < KVC_BACKEND_ROPE_RADIX; ++digit, entry += 2 * half) {
      const double position = ldexp(digit, level * KVC_BACKEND_ROPE_RADIX_LOG2);
      for (int32_t i = 0; i < half; ++i) {
        exact_rotation(position, args->inverse_frequencies[i], &entry[i], &entry[half + i]);
        entry[i] *= factor;
        entry[half + i] *= factor;
      }
    }
  }
}

}  // namespace kvc::kernels
