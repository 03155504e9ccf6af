#include "tensor.h"

#include <algorithm>

namespace kvc_ort {
namespace {

Operand operand_of(const OrtValue* value, const void* data) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(ort->GetTensorTypeAndShape(value, &info));
  Operand operand;
  operand.data = data;
  size_t rank = 0;
  OrtStatus* status = ort->GetTensorElementType(info, &operand.type);
  if (status == nullptr) status = ort->GetDimensionsCount(info, &rank);
  operand.shape.resize(rank);
  if (status == nullptr) status = ort->GetDimensions(info, operand.shape.data(), rank);
  ort->ReleaseTensorTypeAndShapeInfo(info);
  check(status);
  return operand;
}

}  // namespace

std::string Operand::text() const {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); i++) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

Operand input(const OrtKernelContext* context, size_t index) {
  size_t count = 0;
  check(ort->KernelContext_GetInputCount(context, &count));
  const OrtValue* value = nullptr;
  if (index < count) check(ort->KernelContext_GetInput(context, index, &value));
  if (value == nullptr) return {};
  const void* data = nullptr;
  check(ort->GetTensorData(value, &data));
  return operand_of(value, data);
}

Operand output(OrtKernelContext* context, size_t index, const std::vector<int64_t>& shape) {
  size_t count = 0;
  check(ort->KernelContext_GetOutputCount(context, &count));
  OrtValue* value = nullptr;
  if (index < count) check(ort->KernelContext_GetOutput(context, index, shape.data(), shape.size(), &value));
  if (value == nullptr) return {};
  void* data = nullptr;
  check(ort->GetTensorMutableData(value, &data));
  return operand_of(value, data);
}

void expect_rank(const Operand& operand, size_t rank, const char* name) {
  if (operand.shape.size() == rank) return;
  refuse(std::string(name) + " has shape " + operand.text() + ", but must have " + std::to_string(rank) +
         " dimensions");
}

DLDataType dl_type(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
      return {kDLFloat, 32, 1};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
      return {kDLFloat, 16, 1};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
      return {kDLBfloat, 16, 1};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32:
      return {kDLInt, 32, 1};
    default:
      refuse("a tensor has the element type " + std::to_string(type) + " of ONNX, which this plug-in does not use");
  }
}

size_t element_bytes(ONNXTensorElementDataType type) { return dl_type(type).bits / 8u; }

View::View(const void* data, DLDataType type, std::initializer_list<int64_t> shape,
           std::initializer_list<int64_t> strides) {
  std::copy(shape.begin(), shape.end(), shape_);
  std::copy(strides.begin(), strides.end(), strides_);
  tensor_.data = const_cast<void*>(data);
  tensor_.device = {kDLCPU, 0};
  tensor_.ndim = static_cast<int32_t>(shape.size());
  tensor_.dtype = type;
  tensor_.shape = shape_;
  tensor_.strides = strides_;
}

View::View(const Operand& operand, std::initializer_list<int64_t> shape, std::initializer_list<int64_t> strides,
           int64_t first_element)
    : View(static_cast<const char*>(operand.data) + first_element * static_cast<int64_t>(element_bytes(operand.type)),
           dl_type(operand.type), shape, strides) {}

}  // namespace kvc_ort
