// The emulation of kernels/cuda/attend/mma/instructions.cuh. The lanes of a warp exchange their registers or addresses.
// Each lane computes its results from all of them, by the layouts of kernels/cuda/attend/mma/layout.h. Asynchronous
// copies arrive either at once or when they are waited for, in alternate launches. A GPU may do both, so a missing wait
// or barrier gives wrong data in one of the two.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

#include "kernels/common/convert.h"
#include "kernels/cuda/attend/mma/layout.h"

namespace cuda_emulation {

using kvc::kernels::Bf16;
using kvc::kernels::F16;

constexpr size_t kMostBrought = 32;  // bytes of a lane
// Waits for the whole warp, and returns the values of its lanes, [32][kMostBrought]. They are valid until the next
// exchange.
const unsigned char (*gather_warp(const void* brought, size_t bytes))[kMostBrought];

void begin_copy(void* shared, const void* global, bool there);
void begin_half_copy(void* shared, const void* global, bool there);
void begin_float_copy(float* shared, const void* global, bool there);
void close_copies();
void wait_for_copies(int groups);
template <int kGroups>
void wait_copies() {
  wait_for_copies(kGroups);
}

struct Fragments {
  uint32_t a[4], b[2];
};

template <class T>
float half_of(const uint32_t* registers, int i) {
  return kvc::kernels::to_float(T{static_cast<uint16_t>(registers[i / 2] >> (i % 2 * 16))});
}

template <class T>
void multiply(T, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  using namespace kvc::kernels::cuda;
  const Fragments mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const auto* brought = gather_warp(&mine, sizeof mine);
  float rows[kMmaRows][kMmaDepth], columns[kMmaColumns][kMmaDepth];
  const int own = lane();
  // Only the parts that this lane's results need: two rows of A and two columns of B.
  for (int other = 0; other < 32; ++other) {
    Fragments theirs;
    memcpy(&theirs, brought[other], sizeof theirs);
    for (int i = 0; i < 8 && other / 4 == own / 4; ++i) {
      const MatrixPlace place = place_in_a(other, i);
      rows[place.row][place.column] = half_of<T>(theirs.a, i);
    }
    for (int i = 0; i < 4 && (other / 4) / 2 == own % 4; ++i) {
      const MatrixPlace place = place_in_b(other, i);
      columns[place.column][place.row] = half_of<T>(theirs.b, i);
    }
  }
  for (int i = 0; i < 4; ++i) {
    const MatrixPlace place = place_in_c(own, i);
    for (int k = 0; k < kMmaDepth; ++k) c[i] += rows[place.row][k] * columns[place.column][k];
  }
  count_product();
}

inline void load(uint32_t (&to)[4], const void* row, bool transposed) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) die("a row of ldmatrix that is not aligned to 16 bytes");
  const auto* brought = gather_warp(&row, sizeof row);
  for (int matrix = 0; matrix < 4; ++matrix) {
    to[matrix] = 0;
    for (int half = 0; half < 2; ++half) {
      const auto place = kvc::kernels::cuda::place_in_loaded(lane(), half, transposed);
      const unsigned char* source;
      memcpy(&source, brought[8 * matrix + place.row], sizeof source);
      uint16_t element;
      memcpy(&element, source + 2 * place.column, sizeof element);
      to[matrix] |= static_cast<uint32_t>(element) << (16 * half);
    }
  }
}
inline void load_matrices(uint32_t (&to)[4], const void* row) { load(to, row, false); }
inline void load_transposed(uint32_t (&to)[4], const void* row) { load(to, row, true); }

// The lane has two neighbouring elements of row lane / 4, before and after.
inline uint32_t transpose(uint32_t pair) {
  const auto* brought = gather_warp(&pair, sizeof pair);
  uint32_t transposed = 0;
  for (int half = 0; half < 2; ++half) {
    const int row = lane() % 4 * 2 + half, column = lane() / 4;
    uint16_t element;
    memcpy(&element, brought[row * 4 + column / 2] + column % 2 * 2, sizeof element);
    transposed |= static_cast<uint32_t>(element) << (16 * half);
  }
  return transposed;
}

template <class T>
uint32_t pack(T, float low, float high) {
  T halves[2];
  kvc::kernels::narrow(low, &halves[0]);
  kvc::kernels::narrow(high, &halves[1]);
  return halves[0].bits | static_cast<uint32_t>(halves[1].bits) << 16;
}
template <class T>
uint32_t multiply_add(T type, uint32_t a, uint32_t b, uint32_t c) {
  const auto of_half = [&](int i) { return fmaf(half_of<T>(&a, i), half_of<T>(&b, i), half_of<T>(&c, i)); };
  return pack(type, of_half(0), of_half(1));
}

inline float fast_exp2(float x) { return exp2f(x); }

inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t both = a | static_cast<uint64_t>(b) << 32;
  uint32_t picked = 0;
  for (int i = 0; i < 4; ++i) {
    picked |= static_cast<uint32_t>((both >> (8 * ((selector >> (4 * i)) & 7u))) & 0xffu) << (8 * i);
  }
  return picked;
}

}  // namespace cuda_emulation
