// Rows of float4_e2m1fn in tests: the definition by values and distances, which shares nothing with the library.
// docs/reference/formats.md has it in words.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvt {

// Magnitude of the lowest 3 bits of an element.
inline double e2m1_magnitude(int bits) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return kMagnitudes[bits];
}

// Value of the scale of a block.
inline double block_scale_value(int byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  if ((byte & 127) == 127) return NAN;
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

// The number of the nearest of the values 0..last of an ascending function, ties to the even number.
template <class Value>
int nearest_number(double x, int last, Value value) {
  int best = 0;
  for (int i = 1; i <= last; ++i) {
    const double distance = std::fabs(value(i) - x), known = std::fabs(value(best) - x);
    if (distance < known || (distance == known && i % 2 == 0)) best = i;
  }
  return best;
}

// Stores a row: the elements, the even dim in the low 4 bits, then the scale of each 16 dims.
inline void quantise_e2m1(const std::vector<float>& row, float head_scale, unsigned char* target) {
  const size_t dims = row.size();
  std::fill_n(target, dims / 2, static_cast<unsigned char>(0));
  for (size_t begin = 0; begin < dims; begin += 16) {
    float quotients[16], largest = 0.0f;
    bool finite = true;
    for (size_t i = 0; i < 16; ++i) {
      quotients[i] = row[begin + i] / head_scale;
      finite = finite && std::isfinite(quotients[i]);
      largest = std::fmax(largest, std::fabs(quotients[i]));
    }
    const float wanted = std::clamp(largest / 6.0f, 0.001953125f, 448.0f);
    const int scale = finite ? nearest_number(static_cast<double>(wanted), 126, block_scale_value) : 127;
    target[dims / 2 + begin / 16] = static_cast<unsigned char>(scale);
    if (!finite) continue;
    for (size_t i = 0; i < 16; ++i) {
      const float x = std::fabs(quotients[i]) / static_cast<float>(block_scale_value(scale));
      const int element = nearest_number(std::fmin(static_cast<double>(x), 6.0), 7, e2m1_magnitude) +
                          (std::signbit(quotients[i]) ? 8 : 0);
      target[(begin + i) / 2] =
          static_cast<unsigned char>(target[(begin + i) / 2] + (i % 2 == 0 ? element : 16 * element));
    }
  }
}

// What the bytes of a row say. row_dims: of the whole row, of which the first `dims` are read.
inline void read_e2m1_row(const unsigned char* row, int row_dims, float head_scale, int dims, float* values) {
  for (int d = 0; d < dims; ++d) {
    const int element = d % 2 == 0 ? row[d / 2] % 16 : row[d / 2] / 16;
    const double scale = block_scale_value(row[row_dims / 2 + d / 16]) * static_cast<double>(head_scale);
    values[d] = static_cast<float>(e2m1_magnitude(element % 8) * scale * (element < 8 ? 1.0 : -1.0));
  }
}

// A row as a layer reads it. slack: the possible error of each x. flips[i]: the distance between the values that
// rounding may give.
inline void quantise_e2m1_row(float head_scale, const std::vector<double>& x, const std::vector<double>& slack,
                              float* values, float* flips) {
  const size_t dims = x.size();
  const auto row_at = [&](double sign) {
    std::vector<float> row(dims), read(dims);
    for (size_t i = 0; i < dims; ++i) {
      row[i] = static_cast<float>(x[i] + sign * std::copysign(slack[i], x[i]));
    }
    std::vector<unsigned char> bytes(dims / 2 + dims / 16);
    quantise_e2m1(row, head_scale, bytes.data());
    read_e2m1_row(bytes.data(), static_cast<int>(dims), head_scale, static_cast<int>(dims), read.data());
    return std::pair(bytes, read);
  };
  const auto [bytes, read] = row_at(0);
  const auto [low_bytes, low] = row_at(-1);
  const auto [high_bytes, high] = row_at(1);
  for (size_t i = 0; i < dims; ++i) {
    const size_t scale = dims / 2 + i / 16;
    const double step = block_scale_value(bytes[scale]) * static_cast<double>(head_scale);
    values[i] = read[i];
    flips[i] = std::fabs(high[i] - low[i]);
    // With another scale for its block, an element may be any of its neighbours.
    if (low_bytes[scale] != high_bytes[scale]) flips[i] = static_cast<float>(3.0 * step);
  }
}

}  // namespace kvt
