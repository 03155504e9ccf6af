// MLA rows of fp8_ds_mla in tests: the definition by values and distances, which shares nothing with the library.
// docs/reference/formats.md has it in words.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "e2m1.h"

namespace kvt {

constexpr int kDsMlaDims = 576, kDsMlaLatentDims = 512, kDsMlaRowBytes = 656;

// The byte of the nearest float8_e4m3fn, ties to the even byte; magnitudes above 448 become 448.
inline uint8_t e4m3_byte(double x) {
  static const std::vector<double> magnitudes = [] {
    std::vector<double> values;
    for (int byte = 0; byte <= 126; byte++) values.push_back(block_scale_value(byte));
    return values;
  }();
  const double magnitude = std::min(std::fabs(x), magnitudes.back());
  const auto above = std::upper_bound(magnitudes.begin() + 1, magnitudes.end() - 1, magnitude);
  const double to_low = magnitude - above[-1], to_high = *above - magnitude;
  const auto byte = above - magnitudes.begin();
  const bool up = to_high < to_low || (to_high == to_low && byte % 2 == 0);
  return static_cast<uint8_t>((up ? byte : byte - 1) + (std::signbit(x) ? 128 : 0));
}

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

inline void quantise_ds_mla(const float *row, unsigned char *target) {
  for (int begin = 0; begin < kDsMlaLatentDims; begin += 128) {
    float largest = 0;
    bool finite = true;
    for (int d = begin; d < begin + 128; d++) {
      finite = finite && std::isfinite(row[d]);
      largest = std::fmax(largest, std::fabs(row[d]));
    }
    const float wanted = std::fmax(largest / 448.0f, 1e-4f);
    float scale = finite ? 0x1p-40f : NAN;
    while (scale < wanted) scale *= 2;
    std::memcpy(target + 512 + begin / 32, &scale, 4);
    for (int d = begin; d < begin + 128; d++) {
      target[d] = finite ? e4m3_byte(static_cast<double>(row[d]) / static_cast<double>(scale)) : 0;
    }
  }
  for (int d = kDsMlaLatentDims; d < kDsMlaDims; d++) store_bfloat16(row[d], target + 528 + 2 * (d - kDsMlaLatentDims));
}

// What the bytes of a row say in its first dims.
inline void read_ds_mla(const unsigned char *row, int dims, float *values) {
  for (int d = 0; d < std::min(dims, kDsMlaLatentDims); d++) {
    float scale;
    std::memcpy(&scale, row + 512 + d / 128 * 4, 4);
    const double element = block_scale_value(row[d] % 128) * (row[d] < 128 ? 1.0 : -1.0);
    values[d] = static_cast<float>(element * static_cast<double>(scale));
  }
  for (int d = kDsMlaLatentDims; d < dims; d++) values[d] = read_bfloat16(row + 528 + 2 * (d - kDsMlaLatentDims));
}

// A row as a layer reads it. slack: the possible error of each x; the latent dims have none. flips[i]: the distance
// between the values that rounding may give.
inline void quantise_ds_mla_row(const std::vector<double> &x, const std::vector<double> &slack, float *values,
                                float *flips) {
  const auto read = [&](double sign, float *out) {
    std::vector<float> row(x.size());
    for (size_t i = 0; i < x.size(); i++) row[i] = static_cast<float>(x[i] + sign * slack[i]);
    unsigned char bytes[kDsMlaRowBytes];
    quantise_ds_mla(row.data(), bytes);
    read_ds_mla(bytes, kDsMlaDims, out);
  };
  read(0, values);
  std::fill_n(flips, x.size(), 0.0f);
  if (std::all_of(slack.begin(), slack.end(), [](double s) { return s == 0; })) return;
  std::vector<float> low(x.size()), high(x.size());
  read(-1, low.data());
  read(1, high.data());
  for (size_t i = 0; i < x.size(); i++) flips[i] = std::fabs(high[i] - low[i]);
}

}  // namespace kvt
