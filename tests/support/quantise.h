// Quantised elements of the tests, by values and distances (they share nothing with the library).
#pragma once

#include <algorithm>
#include <vector>

#include "ds_mla.h"
#include "dtype.h"
#include "e2m1.h"
#include "uint4.h"

namespace kvt {

// Value of a stored byte, without its scale.
inline double byte_value(DType type, uint8_t bits) {
  if (type == DType::kI8) return static_cast<int8_t>(bits);
  const bool e4m3 = type == DType::kE4M3;
  const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const int exponent = (bits & 127) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 128 ? -1 : 1;
  if (e4m3 ? (bits & 127) == 127 : exponent == 31) return !e4m3 && mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// Magnitudes of a float8 type's finite bytes, which are ordered as the bytes.
inline const std::vector<double> &magnitudes(DType type) {
  const auto make = [](DType t, uint8_t largest) {
    std::vector<double> values;
    for (uint8_t byte = 0; byte <= largest; byte++) values.push_back(byte_value(t, byte));
    return values;
  };
  static const std::vector<double> e4m3 = make(DType::kE4M3, 0x7e), e5m2 = make(DType::kE5M2, 0x7b);
  return type == DType::kE4M3 ? e4m3 : e5m2;
}

// The nearest value of a finite byte, ties to the even byte.
inline double nearest_value(DType type, double x) {
  if (type == DType::kI8) return std::nearbyint(std::clamp(x, -127.0, 127.0));
  const std::vector<double> &values = magnitudes(type);
  const double magnitude = std::min(std::fabs(x), values.back());
  const auto above = std::upper_bound(values.begin() + 1, values.end() - 1, magnitude);
  const double to_low = magnitude - above[-1], to_high = *above - magnitude;
  const bool up = to_high < to_low || (to_high == to_low && (above - values.begin()) % 2 == 0);
  return std::copysign(up ? *above : above[-1], x);
}

// A row as a uint4 layer reads it, in blocks of `block` dims. A rotated value that is off by `off` may be stored as a
// neighbour, and all dims of its block then change.
inline void quantise_uint4_row(int block, const std::vector<double> &x, const std::vector<double> &slack, float *values,
                               float *flips) {
  std::vector<float> rotated(x.begin(), x.end());
  rotate_row(block, &rotated);
  std::vector<unsigned char> bytes(x.size() / 2), other(x.size() / 2);
  const float scale = quantise_uint4(rotated, bytes.data());
  read_uint4_row(bytes.data(), scale, static_cast<int>(x.size()), block, values);
  const double worst = *std::max_element(slack.begin(), slack.end());
  std::fill_n(flips, x.size(), 0.0f);
  if (worst == 0) return;
  // The sum of `block` values may be off by as much. The scale is off by 2/15 of that, and so is each value.
  const double off = 1.01 * block * worst, of_scale = 16.0 * off / 7.0;
  const double step = static_cast<double>(scale) + off;
  for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(block)) {
    double sum = 0;
    for (size_t i = begin; i < begin + static_cast<size_t>(block); i++) {
      const double place = static_cast<double>(rotated[i]) / static_cast<double>(scale);
      const double to_half = std::fabs(place - std::floor(place) - 0.5) * static_cast<double>(scale);
      sum += of_scale + (to_half <= 4 * off ? step : 0);
    }
    for (size_t i = begin; i < begin + static_cast<size_t>(block); i++) flips[i] = static_cast<float>(sum / block);
  }
}

// A row as a quantised layer reads it. x: the computed row; slack: the possible error of each x; head_scale: for
// float8. flips[i]: the distance between the two values that rounding may give.
inline void quantise_row(DType type, float head_scale, const std::vector<double> &x, const std::vector<double> &slack,
                         float *values, float *flips) {
  float scale = head_scale;
  double uncertain = 0;  // of the scale, relative
  if (type == DType::kI8) {
    float largest = 0;
    for (size_t i = 0; i < x.size(); i++) {
      largest = std::max(largest, std::fabs(static_cast<float>(x[i])));
      if (slack[i] > 0) uncertain = std::max(uncertain, slack[i]);
    }
    scale = largest / 127.0f;
    uncertain = largest > 0 ? uncertain / static_cast<double>(largest) : 0;
    if (scale == 0.0f) scale = 1.0f;
  }
  for (size_t i = 0; i < x.size(); i++) {
    const double quotient = static_cast<double>(static_cast<float>(x[i]) / scale);
    const double off = slack[i] / static_cast<double>(scale) + uncertain * 127.0;
    const double nearest = nearest_value(type, quotient);
    const double spread = nearest_value(type, quotient + off) - nearest_value(type, quotient - off);
    values[i] = static_cast<float>(nearest) * scale;
    flips[i] = static_cast<float>((spread + uncertain * std::fabs(nearest)) * static_cast<double>(scale));
  }
}

}  // namespace kvt
