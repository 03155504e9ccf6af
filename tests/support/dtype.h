// Element types of the tests, with their own conversions (they share nothing with the library).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kvcache.h"

namespace kvt {

enum class DType {
  kF32 = 0,
  kF16 = 1,
  kBF16 = 2,
  kE4M3 = 3,
  kE5M2 = 4,
  kI8 = 5,
  kU4 = 6,
  kE2M1 = 7,
  kDsMla = 8  // rows of fp8_ds_mla, of 576 dims
};  // from kE4M3 on only in layers

inline bool is_quantised(DType type) { return type >= DType::kE4M3; }
// Whether each token and head has a scale.
inline bool has_row_scales(DType type) { return type == DType::kI8 || type == DType::kU4; }
// Whether the scales of each head come from the config.
inline bool has_head_scales(DType type) { return is_quantised(type) && !has_row_scales(type) && type != DType::kDsMla; }
// Whether two elements share a byte; dims are then multiples of 16.
inline bool is_packed(DType type) { return type == DType::kU4 || type == DType::kE2M1; }
inline DLDataType dl_type(DType type) {
  constexpr DLDataType kTypes[] = {{kDLFloat, 32, 1},        {kDLFloat, 16, 1},        {kDLBfloat, 16, 1},
                                   {kDLFloat8_e4m3fn, 8, 1}, {kDLFloat8_e5m2, 8, 1},   {kDLInt, 8, 1},
                                   {kDLUInt, 4, 1},          {kDLFloat4_e2m1fn, 4, 1}, {kDLUInt, 8, 1}};
  return kTypes[static_cast<int>(type)];
}
// Bytes of an element; of packed ones, of two. Of kDsMla, one byte.
inline int size_of(DType type) { return type == DType::kF32 ? 4 : is_quantised(type) ? 1 : 2; }
// Of kE2M1 and kDsMla with the scales in the row. Of kDsMla, V is the latent part, and four scales.
inline int row_bytes(DType type, int dims) {
  if (type == DType::kDsMla) return dims == 576 ? 656 : dims + 16;
  return type == DType::kE2M1 ? dims / 2 + dims / 16 : is_packed(type) ? dims / 2 : dims * size_of(type);
}
inline const char *name_of(DType type) {
  constexpr const char *kNames[] = {"f32", "f16", "bf16", "e4m3", "e5m2", "i8", "u4", "e2m1", "fp8_ds_mla"};
  return kNames[static_cast<int>(type)];
}

// The device of contexts and tensors: the CPU, or, with KVC_TEST_DEVICE=cuda, that of the emulated CUDA backend
// (tests/cuda). The host can read its memory.
inline DLDevice test_device() {
  const char *name = std::getenv("KVC_TEST_DEVICE");
  return {name != nullptr && std::strcmp(name, "cuda") == 0 ? kDLCUDA : kDLCPU, 0};
}

// Later calls of test_device return this one: "cpu" or "cuda".
inline void use_device(const char *device) { setenv("KVC_TEST_DEVICE", device, 1); }

// The device of index tensors of calls without a cache: the host, or, with KVC_TEST_INDEXES=device, the device of the
// other tensors.
inline DLDevice index_test_device() {
  const char *name = std::getenv("KVC_TEST_INDEXES");
  return name != nullptr && std::strcmp(name, "device") == 0 ? test_device() : DLDevice{kDLCPU, 0};
}

// Large grids run every n-th case where each case is slow: KVC_TEST_EVERY.
inline unsigned test_every() {
  const char *every = std::getenv("KVC_TEST_EVERY");
  return every != nullptr ? static_cast<unsigned>(std::atoi(every)) : 1;
}

inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

// Round to nearest, ties to even; NaN stays NaN, overflow goes to infinity.
inline uint16_t to_bf16(float x) {
  if (std::isnan(x)) return 0x7fc0;
  const uint32_t bits = bits_of(x);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline float from_bf16(uint16_t h) { return float_of(static_cast<uint32_t>(h) << 16); }

inline uint16_t to_f16(float x) {
  const uint16_t sign = static_cast<uint16_t>((bits_of(x) >> 16) & 0x8000);
  if (std::isnan(x)) return sign | 0x7e00;
  const double a = std::fabs(static_cast<double>(x));
  if (a >= 65520.0) return sign | 0x7c00;
  if (a < 0x1p-24 / 2) return sign;
  int exponent = std::ilogb(a);
  if (exponent < -14) exponent = -14;
  // 10 mantissa bits: the unit in the last place is 2^(exponent-10); nearbyint rounds ties to even.
  const double units = std::nearbyint(std::ldexp(a, 10 - exponent));
  const int64_t n = static_cast<int64_t>(units);  // 0..2048
  if (n >= 2048) return static_cast<uint16_t>(sign | ((exponent + 1 + 15) << 10));
  if (n < 1024) return static_cast<uint16_t>(sign | n);  // subnormal
  return static_cast<uint16_t>(sign | ((exponent + 15) << 10) | (n - 1024));
}
inline float from_f16(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  double a;
  if (exponent == 31) {
    a = mantissa ? NAN : INFINITY;
  } else if (exponent == 0) {
    a = std::ldexp(mantissa, -24);
  } else {
    a = std::ldexp(1024 + mantissa, exponent - 25);
  }
  return static_cast<float>(h & 0x8000 ? -a : a);
}

inline float load(DType type, const void *data, int64_t i) {
  if (type == DType::kF32) {
    float x;
    std::memcpy(&x, static_cast<const char *>(data) + 4 * i, 4);
    return x;
  }
  uint16_t h;
  std::memcpy(&h, static_cast<const char *>(data) + 2 * i, 2);
  return type == DType::kF16 ? from_f16(h) : from_bf16(h);
}
inline void store(DType type, void *data, int64_t i, float x) {
  if (type == DType::kF32) {
    std::memcpy(static_cast<char *>(data) + 4 * i, &x, 4);
    return;
  }
  const uint16_t h = type == DType::kF16 ? to_f16(x) : to_bf16(x);
  std::memcpy(static_cast<char *>(data) + 2 * i, &h, 2);
}
inline float round_to(DType type, float x) {
  if (type == DType::kF32) return x;
  return type == DType::kF16 ? from_f16(to_f16(x)) : from_bf16(to_bf16(x));
}
// A double, rounded to f32 to nearest, or to 16 bits through f32. This double rounding differs by less than the
// tolerance that callers allow for rotated values.
inline float round_double(DType type, double x) { return round_to(type, static_cast<float>(x)); }

}  // namespace kvt
