// Rows with scales of blocks of dims (KVC_ROW_FORMAT_*) in tests: the definition by values and distances, which shares
// nothing with the library. docs/reference/formats.md has it in words.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "e2m1.h"
#include "kvcache.h"

namespace kvt {

enum class ScaleKind {
  kFloat,  // float32, a power of two
  kPower,  // a byte: exponent + 127; 255 is NaN
  kE4m3
};

struct BlockFormat {
  const char *name;
  int32_t id;        // KVC_ROW_FORMAT_*
  int dims, v_dims;  // of an MLA row; 0: any
  int bits;          // of an element in a block: 8 = float8_e4m3fn, 4 = float4_e2m1fn
  int in_blocks;     // number of dims with scales; 0 = all
  ScaleKind scale;
  int each;              // dims of a block
  int rest_bits;         // of the other dims: 16 = bfloat16, 8 = float8_e4m3fn
  int page_scale_bytes;  // of a row of `dims` dims, or of 128; 0: scales lie in the row
  float least;           // the least scale of kFloat and kPower, before it is rounded up to a power of two

  bool in_page() const { return page_scale_bytes != 0; }
  bool any_dims() const { return dims == 0; }
  int block_dims(int row_dims) const { return in_blocks == 0 ? row_dims : std::min(in_blocks, row_dims); }
  int scale_size() const { return scale == ScaleKind::kFloat ? 4 : 1; }
  int num_scales(int row_dims) const { return (block_dims(row_dims) + each - 1) / each; }
  int scales_bytes(int row_dims) const { return num_scales(row_dims) * scale_size(); }
  // Bytes of the scales of a row after the rows of its page.
  int page_bytes(int row_dims) const {
    return !in_page() ? 0 : id == KVC_ROW_FORMAT_FP8_DS_V4 ? 8 : (scales_bytes(row_dims) + 3) / 4 * 4;
  }
  // Bytes of a row, without scales that lie in the page.
  int row_bytes(int row_dims) const {
    const int blocks = block_dims(row_dims);
    return blocks * bits / 8 + (row_dims - blocks) * rest_bits / 8 + (in_page() ? 0 : scales_bytes(row_dims));
  }
  // The byte of a row at which the dims without scales begin, and at which the scales begin.
  int rest_at(int row_dims) const {
    const bool scales_first = id == KVC_ROW_FORMAT_FP8_DS_MLA;
    return block_dims(row_dims) * bits / 8 + (scales_first ? scales_bytes(row_dims) : 0);
  }
  int scales_at(int row_dims) const {
    const bool scales_last = id == KVC_ROW_FORMAT_NVFP4_DS_MLA;
    return block_dims(row_dims) * bits / 8 + (scales_last ? (row_dims - block_dims(row_dims)) * rest_bits / 8 : 0);
  }
  // The byte, among the scales of a row, of the scale of a block.
  int scale_byte(int block) const {
    return id == KVC_ROW_FORMAT_NVFP4_DS_MLA ? 8 * (block % 4) + block / 4 : block * scale_size();
  }
};

// In the order of DType and of the kernel tests' Kind, from kDsMla on.
inline constexpr BlockFormat kBlockFormats[] = {
    {"fp8_ds_mla", KVC_ROW_FORMAT_FP8_DS_MLA, 576, 512, 8, 512, ScaleKind::kFloat, 128, 16, 0, 1e-4f},
    {"fp8_ds_v4", KVC_ROW_FORMAT_FP8_DS_V4, 512, 512, 8, 448, ScaleKind::kPower, 64, 16, 8, 1e-4f / 448},
    {"mxfp4", KVC_ROW_FORMAT_MXFP4, 0, 0, 4, 0, ScaleKind::kPower, 32, 0, 4, 0x1p-126f},
    {"mxfp8", KVC_ROW_FORMAT_MXFP8, 0, 0, 8, 0, ScaleKind::kPower, 32, 0, 4, 1e-4f / 448},
    {"fp8_blocks", KVC_ROW_FORMAT_FP8_BLOCKS, 0, 0, 8, 0, ScaleKind::kFloat, 128, 0, 4, 1e-4f / 448},
    {"nvfp4", KVC_ROW_FORMAT_NVFP4, 0, 0, 4, 0, ScaleKind::kE4m3, 16, 0, 8, 0},
    {"nvfp4_ds_mla", KVC_ROW_FORMAT_NVFP4_DS_MLA, 576, 512, 4, 512, ScaleKind::kE4m3, 16, 8, 0, 0},
};
inline constexpr int kNumBlockFormats = sizeof kBlockFormats / sizeof kBlockFormats[0];

// The byte of the nearest float8_e4m3fn, ties to the even byte; magnitudes above 448 become 448.
inline uint8_t e4m3_byte(double x) {
  static const std::vector<double> magnitudes = [] {
    std::vector<double> values;
    for (int byte = 0; byte <= 126; byte++) values.push_back(block_scale_value(byte));
    return values;
  }();
  if (std::isnan(x)) return 127;
  const double magnitude = std::min(std::fabs(x), magnitudes.back());
  const auto above = std::upper_bound(magnitudes.begin() + 1, magnitudes.end() - 1, magnitude);
  const double to_low = magnitude - above[-1], to_high = *above - magnitude;
  const auto byte = above - magnitudes.begin();
  const bool up = to_high < to_low || (to_high == to_low && byte % 2 == 0);
  return static_cast<uint8_t>((up ? byte : byte - 1) + (std::signbit(x) ? 128 : 0));
}

inline double e4m3_value(uint8_t byte) { return block_scale_value(byte % 128) * (byte < 128 ? 1.0 : -1.0); }

// The two bytes of the nearest bfloat16, the lower one first; ties to the even one.
inline void store_bfloat16(float x, unsigned char *target) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  uint32_t upper = bits / 65536;
  const uint32_t rest = bits % 65536;
  if (std::isnan(x)) {
    upper |= 64;
  } else if (rest > 32768 || (rest == 32768 && upper % 2 == 1)) {
    upper++;
  }
  target[0] = static_cast<unsigned char>(upper % 256);
  target[1] = static_cast<unsigned char>(upper / 256);
}

inline float read_bfloat16(const unsigned char *p) {
  const uint32_t bits = (p[0] + 256u * p[1]) * 65536u;
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

// Stores the scale of a block whose largest magnitude is `largest`, or NaN. Returns its value.
inline double store_block_scale(const BlockFormat &f, float largest, unsigned char *target) {
  if (f.scale == ScaleKind::kE4m3) {
    const float wanted = std::fmin(std::fmax(largest / 6.0f, 0x1p-9f), 448.0f);
    *target = std::isnan(largest) ? 127 : e4m3_byte(static_cast<double>(wanted));
    return block_scale_value(*target);
  }
  const float wanted = std::fmax(largest / (f.bits == 4 ? 6.0f : 448.0f), f.least);
  float scale = 0x1p-126f;
  int exponent = -126;
  for (; scale < wanted; exponent++) scale *= 2;
  if (std::isnan(largest)) scale = NAN;
  if (f.scale == ScaleKind::kFloat) std::memcpy(target, &scale, 4);
  if (f.scale == ScaleKind::kPower) *target = static_cast<unsigned char>(std::isnan(scale) ? 255 : exponent + 127);
  return static_cast<double>(scale);
}

// page_scales: where the row's scales lie after the rows of the page; not used if they lie in the row.
inline void quantise_block_row(const BlockFormat &f, const float *row, int dims, unsigned char *target,
                               unsigned char *page_scales) {
  std::fill_n(target, f.row_bytes(dims), static_cast<unsigned char>(0));
  unsigned char *const scales = f.in_page() ? page_scales : target + f.scales_at(dims);
  if (f.in_page()) std::fill_n(scales, f.page_bytes(dims), static_cast<unsigned char>(0));
  const int blocks = f.block_dims(dims);
  for (int begin = 0; begin < blocks; begin += f.each) {
    const int end = std::min(begin + f.each, blocks);
    float largest = 0;
    for (int d = begin; d < end; d++) largest = std::isfinite(row[d]) ? std::max(largest, std::fabs(row[d])) : NAN;
    for (int d = begin; d < end; d++) largest = std::isfinite(row[d]) ? largest : NAN;
    const double scale = store_block_scale(f, largest, scales + f.scale_byte(begin / f.each));
    for (int d = begin; d < end && !std::isnan(largest); d++) {
      const double x = static_cast<double>(row[d] / static_cast<float>(scale));
      if (f.bits == 8) {
        target[d] = e4m3_byte(x);
        continue;
      }
      const int element =
          nearest_number(std::fmin(std::fabs(x), 6.0), 7, e2m1_magnitude) + (std::signbit(row[d]) ? 8 : 0);
      target[d / 2] = static_cast<unsigned char>(target[d / 2] + (d % 2 == 0 ? element : 16 * element));
    }
  }
  for (int d = blocks; d < dims; d++) {
    unsigned char *const rest = target + f.rest_at(dims) + (d - blocks) * f.rest_bits / 8;
    if (f.rest_bits == 16) store_bfloat16(row[d], rest);
    if (f.rest_bits == 8) *rest = e4m3_byte(static_cast<double>(row[d]));
  }
}

// What the bytes of a row of row_dims dims say in its first dims.
inline void read_block_row(const BlockFormat &f, const unsigned char *row, const unsigned char *page_scales,
                           int row_dims, int dims, float *values) {
  const unsigned char *const scales = f.in_page() ? page_scales : row + f.scales_at(row_dims);
  const int blocks = f.block_dims(row_dims);
  for (int d = 0; d < std::min(dims, blocks); d++) {
    const unsigned char *const p = scales + f.scale_byte(d / f.each);
    float scale = static_cast<float>(block_scale_value(*p % 128));
    if (f.scale == ScaleKind::kFloat) std::memcpy(&scale, p, 4);
    if (f.scale == ScaleKind::kPower) scale = *p == 255 ? NAN : std::ldexp(1.0f, *p - 127);
    const int nibble = d % 2 == 0 ? row[d / 2] % 16 : row[d / 2] / 16;
    const double element = f.bits == 8 ? e4m3_value(row[d]) : e2m1_magnitude(nibble % 8) * (nibble < 8 ? 1.0 : -1.0);
    values[d] = static_cast<float>(element * static_cast<double>(scale));
  }
  for (int d = blocks; d < dims; d++) {
    const unsigned char *const rest = row + f.rest_at(row_dims) + (d - blocks) * f.rest_bits / 8;
    values[d] = f.rest_bits == 16 ? read_bfloat16(rest) : static_cast<float>(e4m3_value(*rest));
  }
}

// A row as a layer reads it. slack: the possible error of each x. flips[i]: the distance between the values that
// rounding may give.
inline void quantise_block_row_as_read(const BlockFormat &f, const std::vector<double> &x,
                                       const std::vector<double> &slack, float *values, float *flips) {
  const int dims = static_cast<int>(x.size());
  std::vector<unsigned char> scales[3];
  const auto read = [&](double sign, int which, float *out) {
    std::vector<float> row(x.size());
    for (size_t i = 0; i < x.size(); i++) {
      row[i] = static_cast<float>(x[i] + sign * std::copysign(slack[i], x[i]));
    }
    std::vector<unsigned char> bytes(static_cast<size_t>(f.row_bytes(dims)));
    scales[which].resize(static_cast<size_t>(std::max(f.page_bytes(dims), 1)));
    quantise_block_row(f, row.data(), dims, bytes.data(), scales[which].data());
    read_block_row(f, bytes.data(), scales[which].data(), dims, dims, out);
    if (!f.in_page()) scales[which].assign(bytes.begin() + f.scales_at(dims), bytes.end());
  };
  read(0, 0, values);
  std::fill_n(flips, x.size(), 0.0f);
  if (std::all_of(slack.begin(), slack.end(), [](double s) { return s == 0; })) return;
  std::vector<float> low(x.size()), high(x.size());
  read(-1, 1, low.data());
  read(1, 2, high.data());
  for (int i = 0; i < dims; i++) {
    const auto d = static_cast<size_t>(i);
    flips[i] = std::fabs(high[d] - low[d]);
    if (i >= f.block_dims(dims)) continue;
    // With another scale for its block, an element may be any of its neighbours, at most 2 scales away (4 bits), or a
    // sixteenth of its value (8 bits).
    const auto at = static_cast<size_t>(f.scale_byte(i / f.each));
    if (std::memcmp(&scales[1][at], &scales[2][at], static_cast<size_t>(f.scale_size())) == 0) continue;
    float largest = 0;
    for (int j = i / f.each * f.each; j < std::min((i / f.each + 1) * f.each, dims); j++) {
      largest = std::fmax(largest, std::fabs(static_cast<float>(x[static_cast<size_t>(j)])));
    }
    flips[i] = std::fmax(flips[i], f.bits == 4 ? largest * 0.7f : std::fabs(values[i]) / 8 + largest / 448);
  }
}

}  // namespace kvt
