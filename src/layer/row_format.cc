#include "layer/row_format.h"

#include <cctype>
#include <cinttypes>

#include "base/dtype_text.h"
#include "kernels/common/row_formats.h"
#include "tensor/tensor_check.h"

namespace kvc {
namespace {

// Checks the dims of a layer with packed rows. The error says which dims the format needs.
Status check_packed_dims(const kernels::PackedRowFormat& format, const kvc_layer_config& config, bool latent,
                         int64_t index) {
  const int32_t dims = config.head_dim, v_dims = latent                   ? config.latent_dim
                                                 : config.v_head_dim != 0 ? config.v_head_dim
                                                                          : dims;
  if (format.use == kernels::RowUse::kLatent) {
    if (latent && dims == format.dims && v_dims == format.v_dims) return Status();
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64
                         ": KVC_ROW_FORMAT_%s needs MLA rows with head_dim %d and latent_dim %d; head_dim is "
                         "%d and latent_dim %d",
                         index, format.name, format.dims, format.v_dims, config.head_dim, config.latent_dim)
        .at(index);
  }
  if (dims % format.dims == 0 && v_dims % format.dims == 0 && (!latent || dims == v_dims)) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                       "layer %" PRId64
                       ": KVC_ROW_FORMAT_%s needs multiples of %d dims, and MLA rows whose latent_dim is head_dim; "
                       "head_dim is %d, v_head_dim %d and latent_dim %d",
                       index, format.name, format.dims, config.head_dim, config.v_head_dim, config.latent_dim)
      .at(index);
}

}  // namespace

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
  const kernels::PackedRowFormat* const format = kernels::packed_row_format(config.row_format);
  if (format == nullptr) {
    return Status::error(KVC_ERROR_UNSUPPORTED,
                         "layer %" PRId64
                         ": row_format %d is none of KVC_ROW_FORMAT_DTYPE (%d) to KVC_ROW_FORMAT_NVFP4_DS_MLA (%d)",
                         index, config.row_format, KVC_ROW_FORMAT_DTYPE, KVC_ROW_FORMAT_NVFP4_DS_MLA)
        .at(index);
  }
  *out = kernels::descriptor_of(*format, latent, config.head_dim);
  if (!same_dtype(dtype, kDefault)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64
                         ": dtype %s with KVC_ROW_FORMAT_%s, which has types of its own: leave dtype at its default",
                         index, DtypeText(dtype).c_str(), format->name)
        .at(index);
  }
  return check_packed_dims(*format, config, latent, index);
}

std::string format_name(int32_t row_format, const kvc_backend_format& format) {
  if (const auto* const packed = kernels::packed_row_format(row_format)) {
    std::string name = packed->name;
    for (char& letter : name) letter = static_cast<char>(std::tolower(letter));
    return name;
  }
  return DtypeText(format.k.segments[0].dtype).c_str();
}

std::string format_name(const kvc_backend_layer& layer) {
  const auto* const packed = kernels::packed_row_format(layer);
  return format_name(packed != nullptr ? packed->id : KVC_ROW_FORMAT_DTYPE, layer.format);
}

}  // namespace kvc
