// Checks whether tensors have an element in common. The functions are pure, and any thread may call them.
#pragma once

#include "base/status.h"
#include "tensor/tensor_check.h"

namespace kvc {

// Returns whether two tensors have an element in common. The result is exact if the address ranges of the tensors do
// not overlap. It is also exact for views of different columns of one buffer, such as the latent and the rotary part of
// MLA rows, or q, k and v of one projection. In other cases, the result is true if the address ranges overlap.
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
