// The kernel of few rows (kernels/cuda/attend/decode): which calls it computes, its shared memory, and its tiles. The
// scenes of tests/kernels compare its results.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "kernels/cuda/attend/decode/blocks.cuh"
#include "kernels/cuda/attend/decode/instructions.cuh"
#include "kernels/cuda/attend/decode/tiles.cuh"
#include "mma_call.h"

namespace kvc::kernels::cuda {
namespace {

std::string why(const Call& call) {
  const char* const reason = why_not_decode(call.args);
  return reason == nullptr ? "" : reason;
}

TEST(DecodePlan, WhatTheKernelComputes) {
  for (Type q : {Type::kF16, Type::kBf16}) {
    for (Type stored : {q, Type::kE4m3, Type::kI8}) {
      for (int32_t dim : {64, 128, 256}) EXPECT_EQ(why(Call(q, stored, dim, dim)), "");
    }
    for (Type stored : {Type::kU4, Type::kE2m1}) {
      for (int32_t dim : {64, 128}) EXPECT_EQ(why(Call(q, stored, dim, dim)), "");
      EXPECT_EQ(why(Call(q, stored, 256, 256)), "256 dims of 4 bits have no instance");
    }
    EXPECT_EQ(why(Call(q, q, 192, 128)), "");
    EXPECT_EQ(why(Call(q, Type::kE4m3, 192, 128)), "head dims have no instance");
    EXPECT_EQ(why(Call(q, q, 128, 64)), "head dims have no instance");
    EXPECT_EQ(why(Call(q, q, 96, 96)), "head dims have no instance");
    EXPECT_EQ(why(Call(q, Type::kE5m2)), "K is float8_e5m2");
  }
  EXPECT_EQ(why(latent_call(Type::kBf16, Type::kBf16, 576, 512)), "V is part of K");
}

TEST(DecodePlan, RareOptionsAreLeftToOtherKernels) {
  Call fold, rotated, softcap, alibi;
  fold.plan.fold_keys = 1024;
  EXPECT_EQ(why(fold), "states are folded");
  const double table = 0.0;
  rotated.args.key_tables = &table;
  EXPECT_EQ(why(rotated), "");  // no dim is rotated
  rotated.layer.rope_dim = 64;
  EXPECT_EQ(why(rotated), "keys are rotated on read");
  softcap.args.softcap = 20.0;
  EXPECT_EQ(why(softcap), "scores have options");
  const float slope = 0.5f;
  alibi.args.alibi_slopes = &slope;
  EXPECT_EQ(why(alibi), "scores have options");
}

TEST(DecodePlan, RowsOfFloat4) {
  for (int32_t dim : {64, 128}) {
    const int32_t row = dim / 2 + dim / 16;
    EXPECT_EQ(decode_row_bytes(dim, Type::kE2m1), raw_row_bytes(Type::kE2m1, dim));
    const auto with = [&](const std::function<void(kvc_backend_pool*)>& change) {
      Call call(Type::kBf16, Type::kE2m1, dim, dim);
      for (kvc_backend_pool* pool : {&call.layer.k, &call.layer.v}) {
        pool->slot_stride_bytes = row;
        pool->head_stride_bytes = int64_t{row} * 16;
        pool->page_stride_bytes = int64_t{row} * 64;
      }
      change(&call.layer.v);
      return std::pair(why(call), has_adjacent_rows(call.layer));
    };
    const std::pair<std::string, bool> adjacent = {"", true}, apart = {"", false};
    EXPECT_EQ(with([](kvc_backend_pool*) {}), adjacent);
    EXPECT_EQ(with([](kvc_backend_pool* pool) { pool->slot_stride_bytes += 8; }), apart);
    EXPECT_EQ(with([](kvc_backend_pool* pool) { pool->head_stride_bytes += 8; }), apart);
    EXPECT_EQ(with([](kvc_backend_pool* pool) { pool->page_stride_bytes += 8; }), apart);
    EXPECT_EQ(with([](kvc_backend_pool* pool) { pool->page_stride_bytes += int64_t{1} << 32; }), apart);
    EXPECT_EQ(with([](kvc_backend_pool* pool) { pool->data = reinterpret_cast<void*>(uint64_t{1} << 20 | 8); }), apart);
    const auto odd = with([](kvc_backend_pool* pool) { pool->slot_stride_bytes += 4; });
    EXPECT_EQ(odd.first, dim == 128 ? "rows are not aligned to 8 bytes" : "");
    EXPECT_FALSE(odd.second);
  }
}

// With the shared memory of sm_86, sm_80 and sm_90, in KiB.
TEST(DecodePlan, RingsFitInSharedMemory) {
  EXPECT_LE(kDecodeFixedBytes, 3584);  // scripts/ptxas_report.py assumes this size
  for (int32_t of_block : {99, 163, 227}) {
    for (int32_t dim : {64, 128, 192, 256}) {
      for (Type stored : {Type::kBf16, Type::kE4m3, Type::kI8, Type::kU4, Type::kE2m1}) {
        const Call call(Type::kBf16, stored, dim, dim == 192 ? 128 : dim);
        const DecodeShape shape =
            decode_shape(call.layer, Type::kBf16, kDecodeFixedBytes, of_block * 1024, (of_block + 1) * 1024);
        EXPECT_EQ(decode_bits(stored), element_bits(stored));
        const int32_t warps = decode_warps(dim, stored);
        const int32_t tile = decode_tile_bytes(dim, call.layer.v_head_dim, stored);
        ASSERT_GE(shape.stages, 2) << dim;
        EXPECT_LE(shape.stages, kMaxDecodeStages);
        EXPECT_LE(shape.shared_bytes, of_block * 1024);
        const int32_t before = kDecodeFixedBytes + kDecodeRows * dim * 2 * (stored == Type::kU4 ? 3 : 1);
        EXPECT_GE(shape.shared_bytes, before + warps * shape.stages * tile);
        EXPECT_GE(shape.shared_bytes, before + warps * kDecodeRows * call.layer.v_head_dim * 4);
        EXPECT_EQ(tile % 16 + before % 16, 0);
      }
    }
  }
  // Not even two tiles of each warp.
  EXPECT_EQ(decode_shape(Call().layer, Type::kBf16, kDecodeFixedBytes, 32 * 1024, 64 * 1024).stages, 0);
}

template <int kPitch>
void check_banks() {
  for (int32_t row = 0; row < kDecodeKeys; row += 8) {
    for (int32_t chunk = 0; chunk < kPitch / 16; ++chunk) {
      uint32_t banks = 0;
      for (int32_t i = 0; i < 8; ++i) banks |= 1u << (tile_place<kPitch>(row + i, chunk) / 16 % 8);
      EXPECT_EQ(banks, 0xffu) << kPitch << " " << row << " " << chunk;
    }
  }
  std::vector<int> used(kDecodeKeys * kPitch / 16);
  for (int32_t row = 0; row < kDecodeKeys; ++row) {
    for (int32_t chunk = 0; chunk < kPitch / 16; ++chunk) ++used.at(tile_place<kPitch>(row, chunk) / 16);
  }
  for (int times : used) EXPECT_EQ(times, 1);
}

TEST(DecodePlan, TilesHaveNoBankConflicts) {
  check_banks<32>();
  check_banks<64>();
  check_banks<128>();
  check_banks<256>();
  check_banks<384>();
  check_banks<512>();
}

// The code for GPUs without an instruction for it.
TEST(DecodeBytes, EveryByteOfE4m3BecomesFloat16) {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t low, high;
    pairs_of_e4m3(byte | 0x38u << 8 | 0x7fu << 16 | byte << 24, &low, &high);
    const float expected = to_float(E4m3{static_cast<uint8_t>(byte)});
    const float first = to_float(F16{static_cast<uint16_t>(low)}),
                last = to_float(F16{static_cast<uint16_t>(high >> 16)});
    EXPECT_EQ(to_float(F16{static_cast<uint16_t>(low >> 16)}), 1.0f);
    EXPECT_TRUE(std::isnan(to_float(F16{static_cast<uint16_t>(high)})));
    EXPECT_EQ(std::isnan(first), std::isnan(expected)) << byte;
    EXPECT_EQ(std::isnan(last), std::isnan(expected)) << byte;
    if (std::isnan(expected)) continue;
    EXPECT_EQ(first, expected) << byte;
    EXPECT_EQ(last, expected) << byte;
    EXPECT_EQ(std::signbit(first), std::signbit(expected)) << byte;
  }
}

TEST(DecodeFloat4, EveryElementTimesEveryScale) {
  for (uint32_t scale = 0; scale < 128; ++scale) {
    uint32_t pair = 0, other = 0;
    pairs_of_e4m3(scale * 0x01010101u, &pair, &other);
    for (uint32_t first = 0; first < 16; ++first) {
      uint32_t eight = 0;
      for (uint32_t i = 0; i < 8; ++i) eight |= ((first + i * 5) & 15u) << (i * 4);
      const Float4Bytes bytes = bytes_of_float4(eight);
      const uint32_t pairs[4] = {scaled_pair<0, 1>(bytes.even, pair), scaled_pair<0, 1>(bytes.odd, pair),
                                 scaled_pair<2, 3>(bytes.even, pair), scaled_pair<2, 3>(bytes.odd, pair)};
      for (int i = 0; i < 8; ++i) {
        const float stored = to_float(E2m1{static_cast<uint8_t>(eight >> (i * 4) & 15u)});
        const float expected = stored * to_float(E4m3{static_cast<uint8_t>(scale)});
        const float found =
            kFloat4Unit * to_float(F16{static_cast<uint16_t>(pairs[i / 4 * 2 + i % 2] >> (i % 4 / 2 * 16))});
        if (scale == 127) {
          EXPECT_TRUE(std::isnan(found));
        } else {
          EXPECT_EQ(found, expected) << scale << " " << stored;
        }
      }
    }
  }
}

TEST(DecodeFloat4, EachDimOfAQueryHasAPlace) {
  for (int32_t dims : {64, 128}) {
    std::vector<int> used(dims);
    for (int32_t d = 0; d < dims; ++d) ++used.at(place_of_float4(d));
    for (int times : used) EXPECT_EQ(times, 1);
  }
}

}  // namespace
}  // namespace kvc::kernels::cuda
