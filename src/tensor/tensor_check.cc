#include "tensor/tensor_check.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "base/checked.h"
#include "base/dtype_text.h"
#include "base/element_bytes.h"
#include "kernels/common/stored_format.h"
#include "tensor/host_reads.h"
#include "tensor/key_rows.h"
#include "tensor/latent_rows.h"

namespace kvc {
namespace {

constexpr int32_t kMaxRank = 5;

bool is_float(DLDataType t) {
  return t.lanes == 1 &&
         ((t.code == kDLFloat && (t.bits == 32 || t.bits == 16)) || (t.code == kDLBfloat && t.bits == 16));
}

bool is_quantised(DLDataType t) { return t.bits == 8 || t.bits == 4; }

bool same(DLDataType a, DLDataType b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

// Whether `device` can read memory of `tensor` in place: its own memory, and for the CPU also memory pinned for a
// GPU.
bool reachable(DLDevice tensor, DLDevice device) {
  if (device.device_type == kDLCPU) return host_reads(tensor);
  return tensor.device_type == device.device_type && tensor.device_id == device.device_id;
}

// Whether a tensor of dtype `given` may hold elements of the quantised type `stored`. Packed elements come as uint8.
bool holds_stored(DLDataType given, DLDataType stored) {
  const bool as_itself = stored.bits == 8 && same(given, stored);
  return is_quantised(stored) && (as_itself || same(given, {kDLUInt, 8, 1}));
}

// Whether a tensor of dtype `given` may hold rows as stored. Rows with scales or elements of two types come as uint8.
bool holds_rows(DLDataType given, const kvc_backend_row_format& row) {
  const DLDataType stored = row.segments[0].dtype;
  return kernels::is_array(row) ? holds_stored(given, stored) : same(given, {kDLUInt, 8, 1});
}

struct ShapeText {
  char text[128];
  ShapeText(const int64_t* shape, int32_t rank) {
    int used = std::snprintf(text, sizeof text, "[");
    for (int32_t i = 0; i < rank && used < 100; ++i) {
      used += std::snprintf(text + used, sizeof text - static_cast<size_t>(used), i == 0 ? "%" PRId64 : ", %" PRId64,
                            shape[i]);
    }
    std::snprintf(text + used, sizeof text - static_cast<size_t>(used), "]");
  }
};

Status check_device(const DLTensor& t, const char* name, DLDevice device) {
  if (reachable(t.device, device)) return Status();
  return Status::error(KVC_ERROR_DEVICE, "%s is on device {%d, %d}, the context is on {%d, %d}", name,
                       static_cast<int>(t.device.device_type), t.device.device_id, static_cast<int>(device.device_type),
                       device.device_id);
}

Status check_float32(const DLTensor& t, const char* name) {
  if (same(t.dtype, {kDLFloat, 32, 1})) return Status();
  return Status::error(KVC_ERROR_DTYPE, "%s has dtype %s, not float32", name, DtypeText(t.dtype).c_str());
}

// wanted: [rank], -1 = any size. letters: the shape as text, such as "[tokens, heads]".
Status check_rank(const DLTensor& t, const char* name, int32_t rank, const int64_t* wanted, const char* letters) {
  if (t.ndim == rank) {
    if (rank > 0 && t.shape == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s has no shape", name);
    return Status();
  }
  if (rank == 0) return Status::error(KVC_ERROR_RANK, "%s has %d dims, not 0", name, t.ndim);
  if (std::any_of(wanted, wanted + rank, [](int64_t size) { return size < 0; })) {
    return Status::error(KVC_ERROR_RANK, "%s has %d dims, not %d: it must be %s", name, t.ndim, rank, letters);
  }
  return Status::error(KVC_ERROR_RANK, "%s has %d dims, not %d: it must be %s = %s", name, t.ndim, rank, letters,
                       ShapeText(wanted, rank).text);
}

// Checks that shape[0] >= wanted[0], and that the other dims are equal.
Status check_shape(const DLTensor& t, const char* name, const int64_t* wanted, const char* letters) {
  const bool fits = t.shape[0] >= wanted[0] && std::equal(wanted + 1, wanted + t.ndim, t.shape + 1);
  if (fits) return Status();
  return Status::error(KVC_ERROR_SHAPE, "%s has shape %s, not %s = %s", name, ShapeText(t.shape, t.ndim).text, letters,
                       ShapeText(wanted, t.ndim).text);
}

// Sets `strides`, in elements, to the tensor's own strides, or to compact strides if it has none. `used` has the
// elements that the call uses in each dim. If a dim has one element, or the tensor has no elements, the given stride
// does not matter (numpy writes 0): it becomes compact. The whole tensor must lie within the address space.
Status resolve_strides(const DLTensor& t, const char* name, const int64_t* used, bool dense_rows, bool written,
                       int64_t* strides) {
  int64_t compact = 1;
  int64_t extent = 1;  // elements from the first to the end of the last
  const bool empty = std::find(used, used + t.ndim, 0) != used + t.ndim;
  for (int32_t i = t.ndim; i-- > 0;) {
    strides[i] = t.strides == nullptr || empty || used[i] <= 1 ? compact : t.strides[i];
    if (dense_rows && i == t.ndim - 1 && strides[i] != 1) {
      return Status::error(KVC_ERROR_STRIDE, "%s has innermost stride %" PRId64 ", not 1", name, strides[i]);
    }
    int64_t span = 0;
    if (strides[i] < 0 || !checked_mul(strides[i], std::max<int64_t>(used[i] - 1, 0), &span) ||
        !checked_add(extent, span, &extent) ||
        (i > 0 && !checked_mul(compact, std::max<int64_t>(t.shape[i], 1), &compact))) {
      return Status::error(KVC_ERROR_STRIDE, "%s has stride %" PRId64 " in dim %d of size %" PRId64, name, strides[i],
                           i, t.shape[i]);
    }
  }
  int64_t bytes = 0;
  uintptr_t end = reinterpret_cast<uintptr_t>(t.data);
  if (!checked_mul(extent, element_bytes(t.dtype), &bytes) || __builtin_add_overflow(end, t.byte_offset, &end) ||
      __builtin_add_overflow(end, static_cast<uintptr_t>(bytes), &end)) {
    return Status::error(KVC_ERROR_STRIDE,
                         "%s reaches %" PRId64 " elements beyond byte offset %" PRIu64 ", outside the address space",
                         name, extent, t.byte_offset);
  }
  if (!written) return Status();
  // Elements must not overlap: each stride must be larger than the distance that all smaller strides reach.
  int64_t reach = 0;
  bool done[kMaxRank] = {};
  for (int32_t round = 0; round < t.ndim; ++round) {
    int32_t dim = -1;
    for (int32_t i = 0; i < t.ndim; ++i) {
      if (!done[i] && (dim < 0 || strides[i] < strides[dim])) dim = i;
    }
    done[dim] = true;
    if (used[dim] <= 1) continue;
    if (strides[dim] <= reach) {
      return Status::error(KVC_ERROR_STRIDE,
                           "%s is written, and its stride %" PRId64 " in dim %d makes elements overlap", name,
                           strides[dim], dim);
    }
    reach += strides[dim] * (used[dim] - 1);
  }
  return Status();
}

Status data_of(const DLTensor& t, const char* name, bool empty, void** data) {
  if (empty) {
    *data = nullptr;
    return Status();
  }
  if (t.data == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s has no data", name);
  *data = static_cast<char*>(t.data) + t.byte_offset;
  if (reinterpret_cast<uintptr_t>(*data) % static_cast<uintptr_t>(element_bytes(t.dtype)) != 0) {
    return Status::error(KVC_ERROR_STRIDE, "%s is at an address that is not aligned to its %d-byte elements", name,
                         element_bytes(t.dtype));
  }
  return Status();
}

// Checks a float32 tensor [>= tokens, heads].
Status check_row_floats(const DLTensor& t, const RowsSpec& spec, float** data, int64_t* token_stride,
                        int64_t* head_stride) {
  KVC_TRY(check_device(t, spec.name, spec.device));
  KVC_TRY(check_float32(t, spec.name));
  const int64_t wanted[2] = {spec.tokens, spec.heads};
  KVC_TRY(check_rank(t, spec.name, 2, wanted, "[tokens, heads]"));
  KVC_TRY(check_shape(t, spec.name, wanted, "[tokens, heads]"));
  int64_t strides[2];
  KVC_TRY(resolve_strides(t, spec.name, wanted, false, spec.written, strides));
  *token_stride = strides[0];
  *head_stride = strides[1];
  void* bytes = nullptr;
  KVC_TRY(data_of(t, spec.name, spec.tokens == 0, &bytes));
  *data = static_cast<float*>(bytes);
  return Status();
}

}  // namespace

Status check_rows(const DLTensor* tensor, const RowsSpec& spec, kvc_backend_tensor* out) {
  if (tensor == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL", spec.name);
  const DLTensor& t = *tensor;
  KVC_TRY(check_device(t, spec.name, spec.device));
  const bool stored = spec.stored != nullptr && holds_rows(t.dtype, *spec.stored);
  if (!is_float(t.dtype) && !stored) {
    return Status::error(
        KVC_ERROR_DTYPE, "%s has dtype %s, not float32, float16 or bfloat16%s", spec.name, DtypeText(t.dtype).c_str(),
        spec.stored != nullptr && is_quantised(spec.stored->segments[0].dtype) ? ", nor the layer's" : "");
  }
  const int64_t dims = stored ? kernels::row_bytes(*spec.stored, static_cast<int32_t>(spec.dims)) : spec.dims;
  const int64_t wanted[3] = {spec.tokens, spec.heads, dims};
  KVC_TRY(check_rank(t, spec.name, 3, wanted, "[tokens, heads, dims]"));
  KVC_TRY(check_shape(t, spec.name, wanted, "[tokens, heads, dims]"));
  int64_t strides[3];
  KVC_TRY(resolve_strides(t, spec.name, wanted, true, spec.written, strides));
  *out = {nullptr, strides[0], strides[1], stored ? spec.stored->segments[0].dtype : t.dtype, 0};
  return data_of(t, spec.name, spec.tokens == 0, &out->data);
}

Status check_scale_rows(const DLTensor* tensor, const char* name, const kvc_backend_tensor& rows,
                        const kvc_backend_layer& layer, int64_t tokens, DLDevice device, kvc_backend_tensor* out) {
  const bool wanted = is_quantised(rows.dtype) && kernels::place_of_scales(layer.format) == KVC_BACKEND_SCALES_PAGE;
  if (!wanted && tensor == nullptr) return Status();
  if (!wanted) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s is given, and k and v are not stored bytes of int8 or uint4",
                         name);
  }
  if (tensor == nullptr) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL: stored bytes of %s need their scales", name,
                         DtypeText(rows.dtype).c_str());
  }
  float* data = nullptr;
  KVC_TRY(check_row_floats(*tensor, {name, tokens, layer.num_kv_heads, 1, device}, &data, &out->token_stride,
                           &out->head_stride));
  out->data = data;
  out->dtype = {kDLFloat, 32, 1};
  return Status();
}

Status check_kv_rows(const KvTensors& tensors, const kvc_backend_layer& layer, int64_t tokens, DLDevice device,
                     KvRows* out) {
  *out = {};
  if (kernels::keys_only(layer)) return check_key_rows(tensors, layer, tokens, device, out);
  if (layer.row_kind == KVC_BACKEND_ROW_LATENT) return check_latent_rows(tensors, layer, tokens, device, out);
  const int64_t heads = layer.num_kv_heads;
  const kvc_backend_row_format *k_stored = tensors.as_stored ? &layer.format.k : nullptr,
                               *v_stored = tensors.as_stored ? &layer.format.v : nullptr;
  KVC_TRY(check_rows(tensors.k, {"k", tokens, heads, layer.head_dim, device, false, k_stored}, &out->k));
  KVC_TRY(check_rows(tensors.v, {"v", tokens, heads, layer.v_head_dim, device, false, v_stored}, &out->v));
  if (is_quantised(out->k.dtype) != is_quantised(out->v.dtype)) {
    return Status::error(KVC_ERROR_DTYPE, "k has %d bits and v %d: both are stored bytes, or none", out->k.dtype.bits,
                         out->v.dtype.bits);
  }
  KVC_TRY(check_scale_rows(tensors.k_scale, "k_scale", out->k, layer, tokens, device, &out->k_scale));
  return check_scale_rows(tensors.v_scale, "v_scale", out->v, layer, tokens, device, &out->v_scale);
}

Status check_lse(const DLTensor* tensor, const RowsSpec& spec, float** data, int64_t* token_stride,
                 int64_t* head_stride) {
  if (tensor == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL", spec.name);
  return check_row_floats(*tensor, spec, data, token_stride, head_stride);
}

Status check_states(const DLTensor* tensor, const char* name, int64_t rows, DLDataType dtype, int32_t rank,
                    const int64_t* shape, DLDevice device, bool written, kvc_backend_states* out) {
  if (tensor == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL", name);
  const DLTensor& t = *tensor;
  KVC_TRY(check_device(t, name, device));
  if (!same(t.dtype, dtype)) {
    return Status::error(KVC_ERROR_DTYPE, "%s has dtype %s, the state %s", name, DtypeText(t.dtype).c_str(),
                         DtypeText(dtype).c_str());
  }
  int64_t wanted[kMaxRank] = {rows};
  std::copy_n(shape, rank, wanted + 1);
  KVC_TRY(check_rank(t, name, rank + 1, wanted, "[rows, shape of the state]"));
  KVC_TRY(check_shape(t, name, wanted, "[rows, shape of the state]"));
  int64_t strides[kMaxRank];
  KVC_TRY(resolve_strides(t, name, wanted, false, written, strides));
  int64_t compact = 1;
  for (int32_t i = rank; i > 0; compact *= wanted[i--]) {
    if (strides[i] == compact) continue;
    return Status::error(KVC_ERROR_STRIDE, "%s has stride %" PRId64 " in dim %d: a row must be compact", name,
                         strides[i], i);
  }
  out->row_stride_bytes = strides[0] * element_bytes(dtype);
  return data_of(t, name, rows == 0, &out->rows);
}

Status check_heads(const DLTensor* tensor, const char* name, int64_t heads, DLDevice device, const float** data) {
  const DLTensor& t = *tensor;
  KVC_TRY(check_device(t, name, device));
  KVC_TRY(check_float32(t, name));
  KVC_TRY(check_rank(t, name, 1, &heads, "[heads]"));
  if (t.shape[0] != heads) {
    return Status::error(KVC_ERROR_SHAPE, "%s has shape [%" PRId64 "], not [heads] = [%" PRId64 "]", name, t.shape[0],
                         heads);
  }
  int64_t stride = 0;
  KVC_TRY(resolve_strides(t, name, t.shape, true, false, &stride));
  void* bytes = nullptr;
  KVC_TRY(data_of(t, name, false, &bytes));
  *data = static_cast<const float*>(bytes);
  return Status();
}

Status check_cos_sin(const DLTensor& t, const char* name, int64_t tokens, int64_t half, DLDevice device,
                     const float** data) {
  KVC_TRY(check_device(t, name, device));
  KVC_TRY(check_float32(t, name));
  const int64_t wanted[3] = {tokens, 2, half};
  KVC_TRY(check_rank(t, name, 3, wanted, "[tokens, 2, rope_dim / 2]"));
  KVC_TRY(check_shape(t, name, wanted, "[tokens, 2, rope_dim / 2]"));
  int64_t strides[3];
  KVC_TRY(resolve_strides(t, name, wanted, true, false, strides));
  if (strides[0] != 2 * half || strides[1] != half) {
    return Status::error(KVC_ERROR_STRIDE, "%s has strides [%" PRId64 ", %" PRId64 ", 1]; it must be compact", name,
                         strides[0], strides[1]);
  }
  void* bytes = nullptr;
  KVC_TRY(data_of(t, name, tokens == 0, &bytes));
  *data = static_cast<const float*>(bytes);
  return Status();
}

Status check_pool(const DLManagedTensorVersioned& tensor, const char* name, int64_t layer, DLDevice device,
                  DLDataType dtype, int32_t rank, const int64_t* shape_wanted, int64_t* strides) {
  const DLTensor& t = tensor.dl_tensor;
  const auto check = [&]() -> Status {
    if (tensor.version.major != DLPACK_MAJOR_VERSION) {
      return Status::error(KVC_ERROR_UNSUPPORTED, "%s is of DLPack version %u", name, tensor.version.major);
    }
    if ((tensor.flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s is read-only", name);
    }
    KVC_TRY(check_device(t, name, device));
    if (!same(t.dtype, dtype) && !holds_stored(t.dtype, dtype)) {
      return Status::error(KVC_ERROR_DTYPE, "%s has dtype %s, the layer %s", name, DtypeText(t.dtype).c_str(),
                           DtypeText(dtype).c_str());
    }
    const char* const letters = rank == 5 ? "[pages, 2, heads, page_size, dims]" : "[pages, heads, page_size, dims]";
    KVC_TRY(check_rank(t, name, rank, shape_wanted, letters));
    KVC_TRY(check_shape(t, name, shape_wanted, letters));
    KVC_TRY(resolve_strides(t, name, t.shape, true, true, strides));
    void* data = nullptr;
    return data_of(t, name, false, &data);
  };
  Status status = check();
  return status.ok() ? Status() : std::move(status).in_layer(layer);
}

Status check_tensor(const DLTensor* tensor, const TensorSpec& spec, TensorView* out) {
  if (tensor == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL", spec.name);
  const DLTensor& t = *tensor;
  KVC_TRY(check_device(t, spec.name, spec.device));
  if (spec.takes != nullptr && !spec.takes(t.dtype) && !same(t.dtype, spec.stored)) {
    return Status::error(KVC_ERROR_DTYPE, "%s has dtype %s, not %s", spec.name, DtypeText(t.dtype).c_str(),
                         spec.dtypes);
  }
  KVC_TRY(check_rank(t, spec.name, spec.rank, spec.shape, spec.letters));
  if (t.dtype.lanes != 1 || t.dtype.bits == 0 || t.dtype.bits % 8 != 0) {
    return Status::error(KVC_ERROR_DTYPE, "%s has dtype %s", spec.name, DtypeText(t.dtype).c_str());
  }
  int64_t wanted[kMaxRank] = {};
  bool empty = false;
  for (int32_t i = 0; i < t.ndim; ++i) {
    if (t.shape[i] < 0) {
      return Status::error(KVC_ERROR_SHAPE, "%s has shape %s", spec.name, ShapeText(t.shape, t.ndim).text);
    }
    wanted[i] = spec.shape[i] < 0 ? t.shape[i] : spec.shape[i];
    empty = empty || wanted[i] == 0;
  }
  if (t.ndim > 0) KVC_TRY(check_shape(t, spec.name, wanted, spec.letters));
  KVC_TRY(resolve_strides(t, spec.name, wanted, spec.dense, spec.written, out->strides));
  out->dtype = t.dtype;
  out->rank = t.ndim;
  std::copy_n(wanted, t.ndim, out->shape);
  void* data = nullptr;
  KVC_TRY(data_of(t, spec.name, empty, &data));
  out->data = static_cast<char*>(data);
  return Status();
}

bool is_float32_dtype(DLDataType dtype) { return same(dtype, {kDLFloat, 32, 1}); }

bool is_float_dtype(DLDataType dtype) { return is_float(dtype); }

bool is_float8_dtype(DLDataType dtype) {
  return same(dtype, {kDLFloat8_e4m3fn, 8, 1}) || same(dtype, {kDLFloat8_e5m2, 8, 1});
}

bool same_dtype(DLDataType a, DLDataType b) { return same(a, b); }

}  // namespace kvc
