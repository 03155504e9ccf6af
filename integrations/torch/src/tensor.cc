#include "tensor.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace kvc_torch {
namespace {

using torch::headeronly::ScalarType;

DLDataType dtype(uint8_t code, uint8_t bits) { return {code, bits, 1}; }

// Types that no argument may have are listed too, because the library's own message says which types it takes.
DLDataType dtype_of(const Tensor& tensor, const char* name) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float:
      return dtype(kDLFloat, 32);
    case ScalarType::Half:
      return dtype(kDLFloat, 16);
    case ScalarType::BFloat16:
      return dtype(kDLBfloat, 16);
    case ScalarType::Float8_e4m3fn:
      return dtype(kDLFloat8_e4m3fn, 8);
    case ScalarType::Float8_e5m2:
      return dtype(kDLFloat8_e5m2, 8);
    case ScalarType::Int:
      return dtype(kDLInt, 32);
    case ScalarType::Long:
      return dtype(kDLInt, 64);
    case ScalarType::Double:
      return dtype(kDLFloat, 64);
    case ScalarType::Short:
      return dtype(kDLInt, 16);
    case ScalarType::Char:
      return dtype(kDLInt, 8);
    case ScalarType::Byte:
      return dtype(kDLUInt, 8);
    case ScalarType::Bool:
      return dtype(kDLBool, 8);
    default:
      throw std::runtime_error(std::string("kvcache: ") + name + " has a dtype that libkvcache does not have");
  }
}

}  // namespace

DLDevice device_of(const Tensor& tensor) {
  return {tensor.is_cuda() ? kDLCUDA : kDLCPU, tensor.is_cuda() ? tensor.get_device_index() : 0};
}

DLTensor view(const Tensor& tensor, const char* name, bool written) {
  int64_t* sizes = nullptr;
  int64_t* strides = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor.get(), &sizes));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor.get(), &strides));
  return {.data = written ? tensor.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr()),
          .device = device_of(tensor),
          .ndim = static_cast<int32_t>(tensor.dim()),
          .dtype = dtype_of(tensor, name),
          .shape = sizes,
          .strides = strides,
          .byte_offset = 0};
}

Tensor new_tensor(const Tensor& like, const std::vector<int64_t>& shape, int32_t dtype) {
  int32_t device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size() - 1; i > 0; i--) strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<int64_t>(shape.size()), shape.data(), strides.data(),
                                                  dtype, device_type, like.get_device_index(), &handle));
  return Tensor(handle);
}

}  // namespace kvc_torch
