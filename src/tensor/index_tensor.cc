#include "tensor/index_tensor.h"

#include <algorithm>

#include "base/dtype_text.h"

namespace kvc {
namespace {

int32_t nearest_int32(int64_t value) noexcept {
  return static_cast<int32_t>(std::clamp<int64_t>(value, INT32_MIN, INT32_MAX));
}

// Copies values to `out`, and returns whether all values are in least..most. Another thread may write `values`, so the
// comparisons read the copies in `out`. Atomic loads of `values` would prevent vector code, so the loads are plain, and
// the thread sanitizer is off here.
template <class T>
__attribute__((no_sanitize("thread"))) bool copy_values(const T* values, int64_t stride, int64_t count, int64_t least,
                                                        int64_t most, int32_t* out) noexcept {
  for (int64_t i = 0; i < count; ++i) out[i] = nearest_int32(values[i * stride]);
  int32_t smallest = INT32_MAX, largest = INT32_MIN;
  for (int64_t i = 0; i < count; ++i) {
    smallest = std::min(smallest, out[i]);
    largest = std::max(largest, out[i]);
  }
  return count == 0 || (smallest >= least && largest <= most);
}

// Checks that `dtype` is int32 or, if `wide_allowed`, int64. Sets *wide to whether it is int64.
Status check_integers(const char* name, DLDataType dtype, bool wide_allowed, bool* wide) {
  *wide = wide_allowed && same_dtype(dtype, {kDLInt, 64, 1});
  if (*wide || same_dtype(dtype, {kDLInt, 32, 1})) return Status();
  return Status::error(KVC_ERROR_DTYPE, "%s has dtype %s, not int32%s", name, DtypeText(dtype).c_str(),
                       wide_allowed ? " or int64" : "");
}

}  // namespace

DLDevice index_device(const DLTensor& tensor, DLDevice device) noexcept {
  return host_reads(tensor) ? DLDevice{kDLCPU, 0} : device;
}

Status IndexTensor::read(const DLTensor* tensor, const IndexSpec& spec, IndexTensor* out) {
  *out = IndexTensor();
  if (tensor == nullptr) return Status();
  const bool one = spec.scalar && tensor->ndim == 0;
  KVC_TRY(check_integers(spec.name, tensor->dtype, true, &out->wide_));
  KVC_TRY(check_tensor(
      tensor, {spec.name, index_device(*tensor, spec.device), one ? 0 : 1, &spec.size, "[n]", spec.exact && !one},
      &out->view_));
  if (spec.exact && spec.size >= 0 && !one && tensor->shape[0] != spec.size) {
    return Status::error(KVC_ERROR_SHAPE, "%s has %" PRId64 " elements, not %" PRId64, spec.name, tensor->shape[0],
                         spec.size);
  }
  out->on_host_ = host_reads(*tensor);
  out->name_ = spec.name;
  out->data_ = out->view_.data;
  out->stride_ = one ? 0 : out->view_.strides[0];
  out->size_ = one ? spec.size : out->view_.shape[0];
  return Status();
}

kvc_backend_indexes IndexTensor::on_device() const noexcept {
  if (!given()) return {};
  if (constant()) return {nullptr, 0, nearest_int32((*this)[0]), 0};
  return {data_, stride_, 0, wide_ ? 1u : 0u};
}

bool IndexTensor::copy(int64_t least, int64_t most, int32_t* out) const noexcept {
  // Stride 1 is passed as a constant, so that the compiler makes vector code for it.
  const auto copy_as = [&]<class T>(const T* values) {
    return stride_ == 1 ? copy_values(values, 1, size_, least, most, out)
                        : copy_values(values, stride_, size_, least, most, out);
  };
  return wide_ ? copy_as(static_cast<const int64_t*>(data_)) : copy_as(static_cast<const int32_t*>(data_));
}

Status IndexTable::read(const DLTensor* tensor, const IndexSpec& spec, const char* letters, bool wide,
                        IndexTable* out) {
  *out = IndexTable();
  if (tensor == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL", spec.name);
  KVC_TRY(check_integers(spec.name, tensor->dtype, wide, &out->wide_));
  static constexpr int64_t kAny[2] = {-1, -1};
  KVC_TRY(check_tensor(tensor, {spec.name, index_device(*tensor, spec.device), 2, kAny, letters}, &out->view_));
  out->on_host_ = host_reads(*tensor);
  return Status();
}

bool IndexTable::copy_columns(int64_t row, int64_t begin, int64_t end, int64_t most, int32_t* out) const noexcept {
  const int64_t at = row * row_stride() + begin;
  if (wide_) {
    return copy_values(reinterpret_cast<const int64_t*>(view_.data) + at, 1, end - begin, 0, most, out + begin);
  }
  return copy_values(narrow() + at, 1, end - begin, 0, most, out + begin);
}

}  // namespace kvc
