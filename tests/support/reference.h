// The expected results of attention and rotation, in float64, by the specification alone.
#pragma once

#include <cstdint>
#include <vector>

#include "dtype.h"

namespace kvt {

// Half-split rotation of the first `rope_dim` dims of x at `position`: pairs (i, i + rope_dim/2), angle position *
// theta^(-2i/rope_dim). `slack` gets the possible error of float32 code for each element.
void rotate(const float *x, int dim, int rope_dim, double theta, int64_t position, double *out, double *slack);

// Rotated and rounded to `type`; flip[i] is the distance between the two values that rounding may give.
void rotate_rounded(DType type, const float *x, int dim, int rope_dim, double theta, int64_t position, float *out,
                    float *flip);

// The type to which P may be rounded: that of V if it has 16 bits, or the type of bf16 dot products, in which every
// element of float8_e4m3fn and int8 is exact. On CUDA, 4-bit floats are multiplied in the type of q, and fp8_ds_mla in
// bfloat16. float32: it is not rounded.
DType type_of_p(DType q, DType v);

// One query row of one q head over n keys. Keys and values are as stored: key(j) at keys + j*key_stride, likewise v.
struct AttentionInput {
  const float *q;
  int d, dv;
  int64_t n;
  const float *keys, *values;
  int64_t key_stride, value_stride;
  double scale;
  DType p_type;                  // what P may be rounded to (type_of_p)
  double score_slack;            // possible error of scores (rotated values that are rounded in either direction)
  double softcap = 0;            // score becomes softcap * tanh(score / softcap); 0 = none
  const double *bias = nullptr;  // nullable; [n], added after that
  const float *sink = nullptr;   // nullable: a logit without a value
};

// The expected output and its tolerance: |out - ref| <= tolerance for each of the Dv elements (2 * |naive float32 -
// ref| over the row + 1e-5, and more where the inputs are uncertain).
struct AttentionOutput {
  std::vector<double> out;
  double tolerance;
  double lse;
  double lse_tolerance;
};
AttentionOutput attend_reference(const AttentionInput &in);

// Half a unit in the last place of `type` at x: the error of the final rounding.
double half_ulp(DType type, double x);

}  // namespace kvt
