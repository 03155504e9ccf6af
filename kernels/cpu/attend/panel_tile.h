// Computes a register tile of the panel kernel: c = a * b, or c += a * b. The shapes are a[kTileRows][n], b[n][kVectors
// * kLanes] and c[kTileRows][kVectors * kLanes].
//
// Roofline: the limit is the rate of multiply-adds. On AVX-512, a tile has 6 x 4 vectors. Its registers are 24
// accumulators, 4 vectors of b and a broadcast of a. Each 24 multiply-adds need 4 loads and 6 broadcasts. So both FMA
// ports stay busy while b is read from the level-1 or level-2 cache. On AVX2 a tile has 6 x 2 vectors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/panel_pack.h"

namespace kvc::kernels::KVC_TARGET {

// The number of rows of a small tile. If 16, 64 or 256 rows are cut into tiles of 6 rows, the last tile has 4 rows.
// Such numbers of rows occur in MLA decode and with shared prefixes.
static constexpr int kFewRows = 4;

struct TileArgs {
  const float* a;  // [Format::kRows][n] dwords, row stride a_stride
  int64_t a_stride;
  const float* b;  // [n][b_stride] dwords
  int64_t b_stride;
  int32_t n;
  float* c;  // [Format::kRows][...], row stride c_stride
  int64_t c_stride;
  bool in_order;  // with c += a * b: each product is added to c; else the products are summed first, and the sum is
                  // added to c
};

// Computes one tile. kAccumulate: c += a * b; otherwise c = a * b.
template <class Format, int kRows, int kVectors, bool kAccumulate>
static void multiply_tile(const TileArgs& args) {
  F32 sums[kRows][kVectors];
  KVC_UNROLL for (int r = 0; r < kRows; ++r) { KVC_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = zero(); }
  if (kAccumulate && args.in_order) {
    KVC_UNROLL for (int r = 0; r < kRows; ++r) {
      KVC_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = load(args.c + r * args.c_stride + v * kLanes);
    }
  }
  const float *a = args.a, *b = args.b;
  const int64_t a_stride = args.a_stride, b_stride = args.b_stride;
  for (int32_t k = 0; k < args.n; ++k, b += b_stride, ++a) {
    typename Format::Vec columns[kVectors];
    KVC_UNROLL for (int v = 0; v < kVectors; ++v) columns[v] = Format::load_packed(b + v * kLanes);
    KVC_UNROLL for (int r = 0; r < kRows; ++r) {
      const typename Format::Vec x = Format::broadcast(a + r * a_stride);
      KVC_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = Format::multiply_add(columns[v], x, sums[r][v]);
    }
  }
  if (kAccumulate && !args.in_order) {
    KVC_UNROLL for (int r = 0; r < kRows; ++r) {
      KVC_UNROLL for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = add(load(args.c + r * args.c_stride + v * kLanes), sums[r][v]);
      }
    }
  }
  KVC_UNROLL for (int r = 0; r < kRows; ++r) {
    KVC_UNROLL for (int v = 0; v < kVectors; ++v) { store(args.c + r * args.c_stride + v * kLanes, sums[r][v]); }
  }
}

// Computes a tile with rows of `vectors` vectors. rows: how many rows of the tile are needed. The other rows may be
// computed or not.
template <class Format, bool kAccumulate>
KVC_INLINE void multiply_columns(int rows, int vectors, const TileArgs& args) {
  if constexpr (Format::kTiles) {
    Format::template multiply<kAccumulate>(vectors, args);
  } else {
    if constexpr (kTileRows > kFewRows) {
      if (rows <= kFewRows && vectors == kTileVectors) {
        multiply_tile<Format, kFewRows, kTileVectors, kAccumulate>(args);
        return;
      }
    }
    if (vectors == 1) multiply_tile<Format, kTileRows, 1, kAccumulate>(args);
    if (vectors == 2) multiply_tile<Format, kTileRows, 2, kAccumulate>(args);
    if constexpr (kTileVectors >= 4) {
      if (vectors == 3) multiply_tile<Format, kTileRows, 3, kAccumulate>(args);
      if (vectors == 4) multiply_tile<Format, kTileRows, 4, kAccumulate>(args);
    }
  }
}

}  // namespace kvc::kernels::KVC_TARGET
