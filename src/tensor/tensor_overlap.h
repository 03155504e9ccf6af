// Whether two tensors have an element in common. Pure; any thread.
#pragma once

#include "base/status.h"
#include "tensor/tensor_check.h"

namespace kvc {

// The result is exact if the ranges of the tensors do not overlap, and for views of different columns of one buffer.
// Examples of such views are the latent and the rotary part of MLA rows, or q, k and v of one projection. In other
// cases it is true if the ranges overlap.
bool elements_overlap(const TensorView& a, const TensorView& b) noexcept;

// Describes a tensor [tokens, heads, dims] of a backend call as a TensorView.
TensorView view_of(const kvc_backend_tensor& rows, int64_t tokens, int64_t heads, int64_t dims) noexcept;

struct NamedTensor {
  const char* name;
  const TensorView* tensor;  // nullable
};

// Refuses a written tensor that shares elements with another tensor, which is written or read.
Status check_overlaps(const NamedTensor* written, int num_written, const NamedTensor* read, int num_read);

}  // namespace kvc
