// A tensor of ONNX Runtime as a DLTensor, with other shapes over the same memory.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ort_api.h"

namespace kvc_ort {

// The shape and the address of a tensor that a kernel call borrows from ONNX Runtime.
struct Operand {
  const void* data = nullptr;  // NULL: the node has no such input or output
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  std::vector<int64_t> shape;

  explicit operator bool() const { return data != nullptr; }
  int64_t dim(size_t i) const { return shape[i]; }
  std::string text() const;  // "[2, 8, 64]"
};

Operand input(const OrtKernelContext* context, size_t index);
Operand output(OrtKernelContext* context, size_t index, const std::vector<int64_t>& shape);

// Refuses a tensor that does not have `rank` dimensions.
void expect_rank(const Operand& operand, size_t rank, const char* name);

DLDataType dl_type(ONNXTensorElementDataType type);
size_t element_bytes(ONNXTensorElementDataType type);

// A DLTensor that owns its shape and strides, of at most 4 dimensions.
class View {
 public:
  View() = default;
  View(const void* data, DLDataType type, std::initializer_list<int64_t> shape, std::initializer_list<int64_t> strides);
  View(const Operand& operand, std::initializer_list<int64_t> shape, std::initializer_list<int64_t> strides,
       int64_t first_element = 0);
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  const DLTensor* get() const { return &tensor_; }

 private:
  DLTensor tensor_ = {};
  int64_t shape_[4] = {};
  int64_t strides_[4] = {};
};

}  // namespace kvc_ort
