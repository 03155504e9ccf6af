// Tensors of PyTorch as the library takes them, and new ones.
#pragma once

#include <kvcache.h>
#include <torch/csrc/stable/tensor.h>

#include <vector>

namespace kvc_torch {

using torch::stable::Tensor;

// Borrows the tensor, which must stay alive. `name` is the argument in the message. Throws if the library has no such
// dtype.
DLTensor view(const Tensor& tensor, const char* name, bool written);

// The device as DLPack counts devices.
DLDevice device_of(const Tensor& tensor);

// A new contiguous tensor on the device of `like`, not initialised. `dtype` as the aoti_torch_dtype functions count.
Tensor new_tensor(const Tensor& like, const std::vector<int64_t>& shape, int32_t dtype);

}  // namespace kvc_torch
