// Defines the format for bf16 q over bf16 K and V in the panel kernel of the target avx512_amx. Operands are packed as
// in BfDots, and multiplied in matrix tiles. Products of bf16 pairs are summed in float32. Subnormal operands count as
// 0. P is rounded to bf16.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/simd/avx512_bf16.h"

namespace kvc::kernels::KVC_TARGET {

// The shapes of the eight tile registers. Each has 16 rows of 64 bytes. Tiles 0..3 have sums, tiles 4 and 5 have rows
// of a, and tiles 6 and 7 have columns of b.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The tile registers are configured while an object of this class exists. The ABI makes these registers caller-saved,
// so the host loses no state. After the release of the registers, a context switch need not save them.
class Tiles {
 public:
  Tiles() {
    static constexpr TileShapes shapes;
    _tile_loadconfig(&shapes);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

struct BfTiles : BfDots {
  using Registers = Tiles;
  static constexpr bool kTiles = true;
  static constexpr int kRows = 32, kRowGroup = 32, kDecodeRows = 15;

  // Tests n dwords, each of which has two bf16. n is a multiple of kLanes. Bit 0 of the result is 1 if a lower half is
  // NaN or infinite, and bit 1 is 1 if an upper half is.
  KVC_INLINE_MEMBER uint32_t halves_not_finite(const float* p, int n) {
    __m512i largest = _mm512_setzero_si512();
    for (int i = 0; i < n; i += kLanes) {
      largest = _mm512_max_epu16(largest, _mm512_and_si512(_mm512_loadu_si512(p + i), _mm512_set1_epi16(0x7fff)));
    }
    const uint32_t halves = _mm512_cmpgt_epu16_mask(largest, _mm512_set1_epi16(0x7f7f));
    return ((halves & 0x55555555u) != 0 ? 1u : 0u) | ((halves & 0xaaaaaaaau) != 0 ? 2u : 0u);
  }

  // Computes c = a * b, or with kAccumulate c += a * b, like multiply_columns. c is [32][vectors * kLanes], a is
  // [32][n], and b is [n][vectors * kLanes]. n is a multiple of 16. An odd `vectors` is rounded up, because a strip has
  // room for one more vector.
  template <bool kAccumulate, class Args>
  KVC_INLINE_MEMBER void multiply(int vectors, const Args& args) {
    for (int v = 0; v < vectors; v += 2) multiply_pair<kAccumulate>(args, v * kLanes);
  }

 private:
  // Computes 32 columns: two tiles of rows times two tiles of columns. So each loaded tile is used twice.
  template <bool kAccumulate, class Args>
  KVC_INLINE_MEMBER void multiply_pair(const Args& args, int column) {
    const int64_t a_bytes = args.a_stride * 4, b_bytes = args.b_stride * 4, c_bytes = args.c_stride * 4;
    const float *a = args.a, *lower_a = a + 16 * args.a_stride, *b = args.b + column;
    float *c = args.c + column, *lower_c = c + 16 * args.c_stride;
    asm volatile("" ::: "memory");  // gcc 12 does not treat tile loads as reads of memory
    if constexpr (kAccumulate) {
      _tile_loadd(0, c, c_bytes);
      _tile_loadd(1, c + kLanes, c_bytes);
      _tile_loadd(2, lower_c, c_bytes);
      _tile_loadd(3, lower_c + kLanes, c_bytes);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    for (int32_t k = 0; k < args.n; k += kLanes, b += kLanes * args.b_stride) {
      _tile_loadd(6, b, b_bytes);
      _tile_loadd(4, a + k, a_bytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b + kLanes, b_bytes);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, lower_a + k, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + kLanes, c_bytes);
    _tile_stored(2, lower_c, c_bytes);
    _tile_stored(3, lower_c + kLanes, c_bytes);
    asm volatile("" ::: "memory");
  }
};

}  // namespace kvc::kernels::KVC_TARGET
