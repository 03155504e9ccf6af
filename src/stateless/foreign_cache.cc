#include "stateless/foreign_cache.h"

#include <cinttypes>

#include "base/dtype_text.h"
#include "base/element_bytes.h"
#include "kernels/common/stored_format.h"

namespace kvc {
namespace {

constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxDims = 1024;

kvc_backend_pool pool_of(const TensorView& t) noexcept {
  const int64_t bytes = element_bytes(t.dtype);
  return {t.data, t.strides[0] * bytes, t.strides[2] * bytes, t.strides[1] * bytes, t.shape[3] * bytes};
}

bool is_stored_dtype(DLDataType dtype) { return is_float_dtype(dtype) || is_float8_dtype(dtype); }
constexpr const char* kStoredDtypes = "float32, float16, bfloat16, float8_e4m3fn or float8_e5m2";

Status check_sizes(const TensorView& t, const char* name) {
  const int64_t* shape = t.shape;
  if (shape[0] <= INT32_MAX && shape[1] >= 1 && shape[1] <= INT32_MAX && shape[2] >= 1 && shape[2] <= kMaxHeads &&
      shape[3] >= 1 && shape[3] <= kMaxDims)
    return Status();
  return Status::error(KVC_ERROR_SHAPE,
                       "%s has shape [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                       "]; pages and their size below 2^31, 1..%" PRId64 " heads, 1..%" PRId64 " dims",
                       name, shape[0], shape[1], shape[2], shape[3], kMaxHeads, kMaxDims);
}

}  // namespace

Status ForeignCache::read(const DLTensor* k, const DLTensor* v, bool written, DLDevice device, ForeignCache* out) {
  *out = {};
  static constexpr int64_t kAny[4] = {-1, -1, -1, -1};
  const char* letters = "[pages, page_size, heads, dims]";
  KVC_TRY(
      check_tensor(k, {"k_cache", device, 4, kAny, letters, true, written, is_stored_dtype, kStoredDtypes}, &out->k));
  KVC_TRY(check_sizes(out->k, "k_cache"));
  kvc_backend_layer& layer = out->layer;
  layer.format = kernels::stored_format(out->k.dtype);
  layer.num_pages = out->k.shape[0];
  layer.page_size = static_cast<int32_t>(out->k.shape[1]);
  layer.num_q_heads = layer.num_kv_heads = static_cast<int32_t>(out->k.shape[2]);
  layer.head_dim = static_cast<int32_t>(out->k.shape[3]);
  layer.rope_class = -1;
  layer.k = pool_of(out->k);
  if (v == nullptr) return Status();
  const int64_t wanted[4] = {layer.num_pages, layer.page_size, layer.num_kv_heads, -1};
  KVC_TRY(
      check_tensor(v, {"v_cache", device, 4, wanted, letters, true, written, is_stored_dtype, kStoredDtypes}, &out->v));
  if (!same_dtype(out->v.dtype, out->k.dtype)) {
    return Status::error(KVC_ERROR_DTYPE, "v_cache has dtype %s, but k_cache has %s", DtypeText(out->v.dtype).c_str(),
                         DtypeText(out->k.dtype).c_str());
  }
  KVC_TRY(check_sizes(out->v, "v_cache"));
  layer.v_head_dim = static_cast<int32_t>(out->v.shape[3]);
  layer.v = pool_of(out->v);
  return Status();
}

Status RotaryTables::read(const DLTensor* cos, const DLTensor* sin, int32_t head_dim, DLDevice device,
                          RotaryTables* out) {
  *out = {};
  if (cos == nullptr && sin == nullptr) return Status();
  static constexpr int64_t kAny[2] = {-1, -1};
  const char* letters = "[positions, rotary_dim / 2]";
  const char* dtypes = "float32, float16 or bfloat16";
  KVC_TRY(check_tensor(cos, {"rotary_cos", device, 2, kAny, letters, true, false, is_float_dtype, dtypes}, &out->cos));
  KVC_TRY(check_tensor(sin, {"rotary_sin", device, 2, out->cos.shape, letters, true, false, is_float_dtype, dtypes},
                       &out->sin));
  const int64_t half = out->cos.shape[1];
  if (half >= 1 && half <= head_dim / 2) return Status();
  return Status::error(KVC_ERROR_SHAPE, "rotary_cos rotates %" PRId64 " dims of %d: 2, 4 .. up to the head dim",
                       2 * half, head_dim);
}

Status RotaryTables::rows_at(const Context& context, kvc_backend_rope* args, int64_t tokens, void* stream,
                             float* cos_sin) const {
  args->rope_dim = rotary_dim();
  args->num_tokens = static_cast<int32_t>(tokens);
  args->cos_sin = cos_sin;
  args->cos = {cos.data, cos.strides[0], 0, cos.dtype, 0};
  args->sin = {sin.data, sin.strides[0], 0, sin.dtype, 0};
  // If cos and sin have no rows, no token may be rotated. The backend is not called, because for cos and sin without
  // data it reads args->tables, which is not set here.
  if (tokens == 0 || positions() == 0) return Status();
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context.backend().rope(context.device(), args, stream, &error), error);
}

Status RotaryTables::rows_at(const Context& context, const int32_t* rows, int64_t tokens, const kvc_backend_step* step,
                             void* stream, float* cos_sin) const {
  kvc_backend_rope args = {};
  args.positions = rows;
  args.step = step;
  return rows_at(context, &args, tokens, stream, cos_sin);
}

Status RotaryTables::rows_at(const Context& context, const kvc_backend_indexes& rows, int64_t tokens, void* stream,
                             float* cos_sin) const {
  kvc_backend_rope args = {};
  args.device_positions = rows;
  args.num_positions = positions();
  return rows_at(context, &args, tokens, stream, cos_sin);
}

// Calls the backend's rope. When rope gets a caller's cos and sin, it copies rows of these two tensors as float32. Here
// both tensors are `numbers`, and row 0 is the only row.
Status to_float32(const Context& context, const TensorView& numbers, void* stream, float* out) {
  static constexpr int32_t kFirst = 0;
  const kvc_backend_tensor row = {numbers.data, numbers.shape[0], 0, numbers.dtype, 0};
  kvc_backend_rope args = {};
  args.rope_dim = static_cast<int32_t>(2 * numbers.shape[0]);
  args.num_tokens = 1;
  args.positions = context.is_host() ? &kFirst : nullptr;
  args.num_positions = 1;
  args.cos = args.sin = row;
  args.cos_sin = out;
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context.backend().rope(context.device(), &args, stream, &error), error);
}

kvc_backend_tensor rows_of(const TensorView& t) noexcept {
  const int64_t* strides = t.strides + (t.rank == 4 ? 1 : 0);
  return {t.data, strides[0], strides[1], t.dtype, 0};
}

}  // namespace kvc
