#include "tensor/index_tensor.h"

#include "base/dtype_text.h"

namespace kvc {

DLDevice index_device(const DLTensor& tensor, DLDevice device) noexcept {
  return host_reads(tensor) ? DLDevice{kDLCPU, 0} : device;
}

Status IndexTensor::read(const DLTensor* tensor, const char* name, int64_t n, bool wide, bool scalar, DLDevice device,
                         IndexTensor* out) {
  *out = IndexTensor();
  if (tensor == nullptr) return Status();
  const bool one = scalar && tensor->ndim == 0;
  KVC_TRY(check_tensor(tensor, {name, index_device(*tensor, device), one ? 0 : 1, &n, "[n]", false}, &out->view_));
  out->on_host_ = host_reads(*tensor);
  const DLDataType dtype = out->view_.dtype;
  out->wide_ = wide && same_dtype(dtype, {kDLInt, 64, 1});
  if (!out->wide_ && !same_dtype(dtype, {kDLInt, 32, 1})) {
    return Status::error(KVC_ERROR_DTYPE, "%s has dtype %s, not int32%s", name, DtypeText(dtype).c_str(),
                         wide ? " or int64" : "");
  }
  out->name_ = name;
  out->data_ = out->view_.data;
  out->stride_ = one ? 0 : out->view_.strides[0];
  out->size_ = one ? n : out->view_.shape[0];
  return Status();
}

}  // namespace kvc
