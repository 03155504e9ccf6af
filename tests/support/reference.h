// What attention and rotation should give, in float64, written from the specification alone.
#pragma once

#include <cstdint>
#include <vector>

#include "dtype.h"

namespace kvt {

// Half-split rotation of the leading `rope_dim` of x at `position`: pairs (i, i + rope_dim/2), angle
// position * theta^(-2i/rope_dim). `slack` receives, for each element, how far a float32 computation may be off.
void rotate(const float *x, int dim, int rope_dim, double theta, int64_t position, double *out, double *slack);

// Rotated and rounded to `type`; flip[i] is the distance between the two values that rounding may give.
void rotate_rounded(DType type, const float *x, int dim, int rope_dim, double theta, int64_t position, float *out,
                    float *flip);

// One query row of one q head over n keys. Keys and values are as stored: key(j) at keys + j*key_stride, likewise v.
// What P may be rounded to: V's type where that is of 16 bits, or the type that bf16 dot products take, in which every
// element of float8_e4m3fn and int8 is exact; float32: not at all.
DType type_of_p(DType q, DType v);

struct AttentionInput {
  const float *q;
  int d, dv;
  int64_t n;
  const float *keys, *values;
  int64_t key_stride, value_stride;
  double scale;
  DType p_type;                  // what P may be rounded to (type_of_p)
  double score_slack;            // scores may be off by so much (rotated values that round either way)
  double softcap = 0;            // score becomes softcap * tanh(score / softcap); 0 = none
  const double *bias = nullptr;  // nullable; [n], added after that
  const float *sink = nullptr;   // nullable: a logit without a value
};

// Expected output, and how far the result may be off: |out - ref| <= tolerance for each of the Dv elements
// (2 * |naive float32 - ref| over the row + 1e-5, more where the inputs themselves are uncertain).
struct AttentionOutput {
  std::vector<double> out;
  double tolerance;
  double lse;
  double lse_tolerance;
};
AttentionOutput attend_reference(const AttentionInput &in);

// Half a unit in the last place of `type` at x: what the final rounding may add.
double half_ulp(DType type, double x);

}  // namespace kvt
