#include "tensor/index_array.h"

#include <cinttypes>

#include "base/dtype_text.h"
#include "tensor/host_reads.h"

namespace kvc {
namespace {

bool is_int(DLDataType t, int bits) { return t.code == kDLInt && t.bits == bits && t.lanes == 1; }

Status check(const DLTensor* t, const char* name, int32_t rank) {
  if (t == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL", name);
  if (!host_reads(*t)) {
    return Status::error(KVC_ERROR_DEVICE, "%s is on device {%d, %d}: a plan reads host memory", name,
                         static_cast<int>(t->device.device_type), t->device.device_id);
  }
  if (t->ndim != rank) return Status::error(KVC_ERROR_RANK, "%s has %d dims, not %d", name, t->ndim, rank);
  if (t->shape == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s has no shape", name);
  bool empty = false;
  for (int32_t i = 0; i < rank; ++i) {
    empty = empty || t->shape[i] == 0;
    if (t->shape[i] >= 0 && t->shape[i] <= INT32_MAX) continue;
    return Status::error(KVC_ERROR_SHAPE, "%s has %" PRId64 " elements in dim %d, not 0..2^31-1", name, t->shape[i], i);
  }
  if (!is_int(t->dtype, 32) && (rank > 1 || !is_int(t->dtype, 64))) {
    return Status::error(KVC_ERROR_DTYPE, "%s has dtype %s, not int32%s", name, DtypeText(t->dtype).c_str(),
                         rank > 1 ? "" : " or int64");
  }
  if (t->strides != nullptr && t->shape[rank - 1] > 1 && t->strides[rank - 1] != 1) {
    return Status::error(KVC_ERROR_STRIDE, "%s has innermost stride %" PRId64 ", not 1", name, t->strides[rank - 1]);
  }
  if (!empty && t->data == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s has no data", name);
  if ((reinterpret_cast<uintptr_t>(t->data) + t->byte_offset) % (t->dtype.bits / 8) != 0) {
    return Status::error(KVC_ERROR_STRIDE, "%s is not aligned to its elements", name);
  }
  return Status();
}

const char* first(const DLTensor* t) { return static_cast<const char*>(t->data) + t->byte_offset; }

}  // namespace

Status IndexArray::read(const DLTensor* tensor, const char* name, int64_t wanted_size, IndexArray* out) {
  KVC_TRY(check(tensor, name, 1));
  if (wanted_size >= 0 && tensor->shape[0] != wanted_size) {
    return Status::error(KVC_ERROR_SHAPE, "%s has %" PRId64 " elements, not %" PRId64, name, tensor->shape[0],
                         wanted_size);
  }
  out->data_ = tensor->shape[0] == 0 ? nullptr : first(tensor);
  out->size_ = tensor->shape[0];
  out->wide_ = tensor->dtype.bits == 64;
  return Status();
}

bool IndexArray::copy(int64_t least, int64_t most, int32_t* out) const noexcept {
  const auto all_of = [&]<class T>(const T* values) {
    const auto low = static_cast<T>(least), high = static_cast<T>(most);
    int32_t all = 1;
    for (int64_t i = 0; i < size_; ++i) {
      const bool inside = values[i] >= low && values[i] <= high;
      out[i] = inside ? static_cast<int32_t>(values[i]) : 0;
      all &= inside ? 1 : 0;
    }
    return all != 0;
  };
  return wide_ ? all_of(static_cast<const int64_t*>(data_)) : all_of(static_cast<const int32_t*>(data_));
}

Status IndexTable::read(const DLTensor* tensor, const char* name, IndexTable* out) {
  KVC_TRY(check(tensor, name, 2));
  const int64_t stride = tensor->strides == nullptr || tensor->shape[0] <= 1 ? tensor->shape[1] : tensor->strides[0];
  if (stride < 0 || stride > INT64_MAX / 8 / (tensor->shape[0] + 1)) {
    return Status::error(KVC_ERROR_STRIDE, "%s has stride %" PRId64 " between rows", name, stride);
  }
  *out = {reinterpret_cast<const int32_t*>(first(tensor)), tensor->shape[0], tensor->shape[1], stride};
  return Status();
}

}  // namespace kvc
