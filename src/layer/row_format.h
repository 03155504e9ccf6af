// How the config of a layer names the format of its rows: a dtype, or a row format (KVC_ROW_FORMAT_*).
#pragma once

#include <string>

#include "base/status.h"
#include "kvcache_backend.h"

namespace kvc {

// Reads dtype and row_format. latent: whether the layer stores MLA rows.
Status read_row_format(const kvc_layer_config& config, bool latent, int64_t index, kvc_backend_format* out);

// The name of a format: that of its dtype, or "fp8_ds_mla". Layout manifests contain it.
std::string format_name(const kvc_backend_format& format);

}  // namespace kvc
