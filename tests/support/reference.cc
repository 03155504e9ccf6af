#include "reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvt {

void rotate(const float *x, int dim, int rope_dim, double theta, int64_t position, double *out, double *slack) {
  for (int i = 0; i < dim; i++) {
    out[i] = x[i];
    slack[i] = 0;
  }
  const int half = rope_dim / 2;
  for (int i = 0; i < half; i++) {
    const double angle = static_cast<double>(position) * std::pow(theta, -2.0 * i / rope_dim);
    const double c = std::cos(angle), s = std::sin(angle);
    const double a = x[i], b = x[i + half];
    out[i] = a * c - b * s;
    out[i + half] = b * c + a * s;
    // cos and sin rounded to float32, two products and a sum in float32.
    slack[i] = slack[i + half] = 2.5e-7 * (std::fabs(a) + std::fabs(b));
  }
}

void rotate_rounded(DType type, const float *x, int dim, int rope_dim, double theta, int64_t position, float *out,
                    float *flip) {
  std::vector<double> exact(dim), slack(dim);
  rotate(x, dim, rope_dim, theta, position, exact.data(), slack.data());
  for (int i = 0; i < dim; i++) {
    out[i] = round_double(type, exact[i]);
    flip[i] = round_double(type, exact[i] + slack[i]) - round_double(type, exact[i] - slack[i]);
  }
}

double half_ulp(DType type, double x) {
  if (type == DType::kF32) return std::ldexp(std::fabs(x), -24);
  const int bits = type == DType::kF16 ? 11 : 8;
  const int lowest = type == DType::kF16 ? -14 : -126;
  const int exponent = x == 0 ? lowest : std::max(lowest, std::ilogb(x));
  return std::ldexp(0.5, exponent - bits + 1) * 1.001;
}

DType type_of_p(DType q, DType v) {
  if (q != DType::kF16 && q != DType::kBF16) return DType::kF32;
  if (v == DType::kF16 || v == DType::kBF16) return v;
  if (test_device().device_type == kDLCUDA && (v == DType::kE2M1 || (v == DType::kDsMla && q == DType::kBF16)))
    return q;
  return q == DType::kBF16 && (v == DType::kE4M3 || v == DType::kI8) ? DType::kBF16 : DType::kF32;
}

AttentionOutput attend_reference(const AttentionInput &in) {
  AttentionOutput result;
  result.out.assign(in.dv, 0.0);
  result.tolerance = 1e-5;
  result.lse = -std::numeric_limits<double>::infinity();
  result.lse_tolerance = 1e-5;
  if (in.n == 0) {
    if (in.sink != nullptr) result.lse = *in.sink;
    return result;
  }

  std::vector<double> score(in.n), p(in.n);
  std::vector<float> score32(in.n);
  double largest = -std::numeric_limits<double>::infinity();
  float largest32 = -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < in.n; j++) {
    const float *key = in.keys + j * in.key_stride;
    double dot = 0;
    float dot32 = 0;
    for (int i = 0; i < in.d; i++) {
      dot += static_cast<double>(in.q[i]) * key[i];
      dot32 += in.q[i] * key[i];
    }
    score[j] = dot * in.scale;
    score32[j] = dot32 * static_cast<float>(in.scale);
    if (in.softcap > 0) {
      const auto cap = static_cast<float>(in.softcap);
      score[j] = in.softcap * std::tanh(score[j] / in.softcap);
      score32[j] = cap * std::tanh(score32[j] / cap);
    }
    if (in.bias != nullptr) {
      score[j] += in.bias[j];
      score32[j] += static_cast<float>(in.bias[j]);
    }
    largest = std::max(largest, score[j]);
    largest32 = std::max(largest32, score32[j]);
  }
  double sum = 0;
  float sum32 = 0;
  if (in.sink != nullptr) {
    largest = std::max(largest, static_cast<double>(*in.sink));
    largest32 = std::max(largest32, *in.sink);
    sum = std::exp(*in.sink - largest);
    sum32 = std::exp(*in.sink - largest32);
  }
  for (int64_t j = 0; j < in.n; j++) {
    p[j] = std::exp(score[j] - largest);
    sum += p[j];
    score32[j] = std::exp(score32[j] - largest32);
    sum32 += score32[j];
  }
  for (int64_t j = 0; j < in.n; j++) {
    p[j] /= sum;
    const float *value = in.values + j * in.value_stride;
    for (int i = 0; i < in.dv; i++) result.out[i] += p[j] * value[i];
  }
  result.lse = largest + std::log(sum);
  const double lse32 = largest32 + std::log(sum32);

  // Naive float32 code with P unrounded, and rounded as allowed.
  double worst = 0, spread = 0, extent = 0;
  std::vector<float> naive(in.dv), naive_rounded(in.dv);
  for (int64_t j = 0; j < in.n; j++) {
    const float *value = in.values + j * in.value_stride;
    const float p32 = score32[j] / sum32;
    const float p_rounded = in.p_type == DType::kF32 ? p32 : round_to(in.p_type, score32[j]) / sum32;
    for (int i = 0; i < in.dv; i++) {
      naive[i] += p32 * value[i];
      naive_rounded[i] += p_rounded * value[i];
      extent = std::max(extent, std::fabs(static_cast<double>(value[i])));
    }
  }
  for (int i = 0; i < in.dv; i++) {
    worst = std::max({worst, std::fabs(naive[i] - result.out[i]), std::fabs(naive_rounded[i] - result.out[i])});
  }
  if (in.p_type != DType::kF32) {
    // The roundings of P are independent of those of the naive sum, and the sum of P may be rounded or not. The
    // tolerance is five standard deviations of their sum.
    const double unit = in.p_type == DType::kBF16 ? 0x1p-9 : 0x1p-12;
    for (int i = 0; i < in.dv; i++) {
      double square = 0;
      for (int64_t j = 0; j < in.n; j++) {
        const double v = in.values[j * in.value_stride + i];
        const double x = p[j] * std::max(std::fabs(v), std::fabs(v - result.out[i]));
        square += x * x;
      }
      spread = std::max(spread, std::sqrt(square));
    }
    spread *= 2.9 * unit;
  }
  // A float32 score of the size s may be off by 4 times s / 2^24, and a weight then by as much of its value. The naive
  // sum may have less error by chance.
  const double rounding = 0x1p-22 * std::fabs(largest) * extent;
  result.tolerance = 2 * worst + 1e-5 + spread + rounding + 4 * in.score_slack * extent;
  result.lse_tolerance = 2 * std::fabs(lse32 - result.lse) + 1e-5 + 2e-6 * std::fabs(result.lse) + 2 * in.score_slack;
  return result;
}

}  // namespace kvt
