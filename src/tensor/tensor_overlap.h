// Whether two tensors have an element in common. Pure; any thread.
#pragma once

#include "base/status.h"
#include "tensor/tensor_check.h"

namespace kvc {

// Exact for tensors apart from each other, and for views that divide the rows of one buffer among them (the latent and
// the rotary part of MLA's rows, q, k and v of one projection); else, yes if one begins within the other's range.
bool elements_overlap(const TensorView& a, const TensorView& b) noexcept;

// Rows [tokens, heads, dims] as a backend takes them.
TensorView view_of(const kvc_backend_tensor& rows, int64_t tokens, int64_t heads, int64_t dims) noexcept;

struct NamedTensor {
  const char* name;
  const TensorView* tensor;  // nullable
};

// Refuses a written tensor that has elements of another, written or read.
Status check_overlaps(const NamedTensor* written, int num_written, const NamedTensor* read, int num_read);

}  // namespace kvc
