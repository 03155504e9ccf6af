#include "layer/row_format.h"

#include <cinttypes>

#include "base/dtype_text.h"
#include "kernels/common/stored_format.h"
#include "tensor/tensor_check.h"

namespace kvc {

using kernels::kDsMlaDims;
using kernels::kDsMlaLatentDims;

Status read_row_format(const kvc_layer_config& config, bool latent, int64_t index, kvc_backend_format* out) {
  constexpr DLDataType kDefault = {kDLFloat, 32, 1};
  const DLDataType dtype = same_dtype(config.dtype, {0, 0, 0}) ? kDefault : config.dtype;
  if (config.row_format == KVC_ROW_FORMAT_DTYPE) {
    *out = kernels::stored_format(dtype);
    if (kernels::type_of(dtype) != kernels::Type::kNone) return Status();
    return Status::error(KVC_ERROR_DTYPE, "layer %" PRId64 ": dtype %s is none of %s", index, DtypeText(dtype).c_str(),
                         kernels::kStoredDtypes)
        .at(index);
  }
  if (config.row_format != KVC_ROW_FORMAT_FP8_DS_MLA) {
    return Status::error(KVC_ERROR_UNSUPPORTED,
                         "layer %" PRId64
                         ": row_format %d is neither KVC_ROW_FORMAT_DTYPE (%d) nor "
                         "KVC_ROW_FORMAT_FP8_DS_MLA (%d)",
                         index, config.row_format, KVC_ROW_FORMAT_DTYPE, KVC_ROW_FORMAT_FP8_DS_MLA)
        .at(index);
  }
  *out = kernels::ds_mla_format();
  if (!same_dtype(dtype, kDefault)) {
    return Status::error(
               KVC_ERROR_INVALID_ARGUMENT,
               "layer %" PRId64
               ": dtype %s with KVC_ROW_FORMAT_FP8_DS_MLA, which has types of its own: leave dtype at its default",
               index, DtypeText(dtype).c_str())
        .at(index);
  }
  static_assert(kDsMlaDims == 576 && kDsMlaLatentDims == 512);
  if (latent && config.head_dim == kDsMlaDims && config.latent_dim == kDsMlaLatentDims) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                       "layer %" PRId64
                       ": KVC_ROW_FORMAT_FP8_DS_MLA needs MLA rows with head_dim 576 and latent_dim 512; head_dim is "
                       "%d and latent_dim %d",
                       index, config.head_dim, config.latent_dim)
      .at(index);
}

std::string format_name(const kvc_backend_format& format) {
  if (kernels::has_ds_mla_rows(format)) return "fp8_ds_mla";
  return DtypeText(format.k.segments[0].dtype).c_str();
}

}  // namespace kvc
