// Rows of uint4 in tests: the definition in float64, which shares nothing with the library. docs/reference/formats.md
// has it in words.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kvt {

// The sign by which the rotation multiplies a dim.
inline double rotation_sign(int dim) {
  static const std::vector<double> signs = [] {
    std::vector<double> made;
    for (uint32_t x = 0x9e3779b9u; made.size() < 2048; made.push_back(x >= 0x80000000u ? -1.0 : 1.0)) {
      x ^= x << 13;
      x ^= x >> 17;
      x ^= x << 5;
    }
    return made;
  }();
  return signs[static_cast<size_t>(dim)];
}

// The product of the Hadamard matrix of size n with x, by halves.
inline void multiply_hadamard(double* x, int n) {
  if (n == 1) return;
  for (int i = 0; i < n / 2; ++i) {
    const double a = x[i], b = x[i + n / 2];
    x[i] = a + b;
    x[i + n / 2] = a - b;
  }
  multiply_hadamard(x, n / 2);
  multiply_hadamard(x + n / 2, n / 2);
}

// A row as it is stored, rotated, and the scale with the zero point in its lowest 4 bits. rotated: float32.
inline float quantise_uint4(const std::vector<float>& rotated, unsigned char* target) {
  const auto [least, largest] = std::minmax_element(rotated.begin(), rotated.end());
  const float scale = std::fmax((*largest - *least) / 15.0f, 1e-6f), inverse = 1.0f / scale;
  const auto limited = [](float x) { return std::clamp(static_cast<int>(std::floor(x + 0.5f)), 0, 15); };
  const int zero = limited(std::clamp(-*least / scale, -1.0f, 16.0f));
  for (size_t i = 0; i < rotated.size(); i += 2) {
    int pair[2];
    for (size_t j = 0; j < 2; ++j) {
      const volatile float product = rotated[i + j] * inverse;
      pair[j] = limited(std::clamp(product + static_cast<float>(zero), -1.0f, 16.0f));
    }
    target[i / 2] = static_cast<unsigned char>(pair[0] + 16 * pair[1]);
  }
  uint32_t bits;
  std::memcpy(&bits, &scale, 4);
  bits = bits / 16 * 16 + static_cast<uint32_t>(zero);
  float stored;
  std::memcpy(&stored, &bits, 4);
  return stored;
}

// The rotation in float32, with the rounding that the format defines: neighbours are added first.
inline void rotate_row(int block, std::vector<float>* row) {
  std::vector<float>& x = *row;
  for (size_t d = 0; d < x.size(); ++d) x[d] = rotation_sign(static_cast<int>(d)) < 0 ? -x[d] : x[d];
  for (int apart = 1; apart < block; apart *= 2) {
    const std::vector<float> y = x;
    for (size_t d = 0; d < x.size(); ++d) {
      const size_t other = d ^ static_cast<size_t>(apart);
      x[d] = (d & static_cast<size_t>(apart)) == 0 ? y[d] + y[other] : y[other] - y[d];
    }
  }
}

// What the bytes of a row and its scale say, not rotated.
inline void read_uint4_row(const unsigned char* row, float stored_scale, int dims, int block, float* values) {
  uint32_t bits;
  std::memcpy(&bits, &stored_scale, 4);
  const int zero = static_cast<int>(bits % 16);
  bits -= bits % 16;
  float scale;
  std::memcpy(&scale, &bits, 4);
  std::vector<double> x;
  for (int d = 0; d < dims; ++d) x.push_back((d % 2 == 0 ? row[d / 2] % 16 : row[d / 2] / 16) - zero);
  for (int begin = 0; begin < dims; begin += block) multiply_hadamard(&x[static_cast<size_t>(begin)], block);
  for (int d = 0; d < dims; ++d) {
    values[d] = static_cast<float>(x[static_cast<size_t>(d)] * static_cast<double>(scale) * rotation_sign(d) / block);
  }
}

// Stores a row, and replaces `values` by what it is read as. Returns the scale to store.
inline float store_uint4_row(float* values, int dims, int block, unsigned char* target) {
  std::vector<double> x;
  for (int d = 0; d < dims; ++d) x.push_back(static_cast<double>(values[d]) * rotation_sign(d));
  for (int begin = 0; begin < dims; begin += block) multiply_hadamard(&x[static_cast<size_t>(begin)], block);
  const float scale = quantise_uint4(std::vector<float>(x.begin(), x.end()), target);
  read_uint4_row(target, scale, dims, block, values);
  return scale;
}

}  // namespace kvt
