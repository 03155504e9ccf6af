#include "layer/recurrent_layer.h"

#include <algorithm>
#include <cfloat>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/dtype_text.h"
#include "base/element_bytes.h"
#include "kernels/common/convert.h"
#include "tensor/tensor_check.h"

namespace kvc {
namespace {

constexpr int64_t kStateAlignment = 64;
constexpr int64_t kMaxDraftStates = 63;  // LayerCalls has one bit for each draft state, and one for the last token
constexpr int64_t kMaxStateBytes = int64_t{1} << 40;

bool is_state_dtype(DLDataType t) { return is_float_dtype(t) || (t.code == kDLInt && (t.bits == 32 || t.bits == 64)); }

// Sets *fill to the bytes of an element with this value, repeated to 8 bytes (kvc_backend_states.fill). Returns false
// if the dtype cannot hold the value.
bool read_fill(double value, DLDataType dtype, uint64_t* fill) {
  unsigned char element[8] = {};
  const auto bytes = static_cast<size_t>(element_bytes(dtype));
  if (dtype.code == kDLInt) {
    const double most = bytes == 4 ? INT32_MAX : 0x1p53;
    if (!(value >= (bytes == 4 ? INT32_MIN : -most) && value <= most) || value != std::trunc(value)) return false;
    const auto whole = static_cast<int64_t>(value);
    std::memcpy(element, &whole, sizeof whole);  // little-endian: the low bytes come first
  } else {
    if (std::isnan(value) || (std::isfinite(value) && std::fabs(value) > FLT_MAX)) return false;
    const kernels::Type type = kernels::type_of(dtype);
    kernels::store_element(type, element, 0, static_cast<float>(value));
    if (std::isfinite(value) && !std::isfinite(kernels::load_element(type, element, 0))) return false;
  }
  for (size_t i = bytes; i < sizeof element; ++i) element[i] = element[i - bytes];
  std::memcpy(fill, element, sizeof element);
  return true;
}

Status make_state(const kvc_state_config& config, int64_t layer, size_t index, StateGeometry* out) {
  const auto fail = [&](kvc_status code, const char* what, int64_t value, const char* wanted) {
    return Status::error(code, "layer %" PRId64 ": state %zu: %s %" PRId64 " is not %s", layer, index, what, value,
                         wanted)
        .at(layer);
  };
  out->dtype = same_dtype(config.dtype, {0, 0, 0}) ? DLDataType{kDLFloat, 32, 1} : config.dtype;
  if (!is_state_dtype(out->dtype)) {
    return Status::error(KVC_ERROR_DTYPE,
                         "layer %" PRId64 ": state %zu: dtype %s is not float32, float16, bfloat16, int32 or int64",
                         layer, index, DtypeText(out->dtype).c_str())
        .at(layer);
  }
  if (!read_fill(config.fill, out->dtype, &out->fill)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": state %zu: fill %g is no value of %s", layer,
                         index, config.fill, DtypeText(out->dtype).c_str())
        .at(layer);
  }
  if (config.reserved != 0) return fail(KVC_ERROR_UNSUPPORTED, "reserved", config.reserved, "0");
  if (config.rank < 1 || config.rank > 4) return fail(KVC_ERROR_INVALID_ARGUMENT, "rank", config.rank, "in 1..4");
  out->rank = config.rank;
  out->bytes = element_bytes(out->dtype);
  for (int32_t i = 0; i < 4; ++i) {
    const bool used = i < config.rank;
    if (used ? config.shape[i] < 1 : config.shape[i] != 0) {
      return fail(KVC_ERROR_INVALID_ARGUMENT, "shape entry", config.shape[i],
                  used ? "1 or more" : "0 after the last dim");
    }
    if (!used) continue;
    out->shape[i] = config.shape[i];
    if (!checked_mul(out->bytes, config.shape[i], &out->bytes) || out->bytes > kMaxStateBytes) {
      return fail(KVC_ERROR_INVALID_ARGUMENT, "shape entry", config.shape[i], "within 2^40 bytes in all");
    }
  }
  return Status();
}

Status refuse(const kvc_layer_config& config, int64_t index, const char* what) {
  return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                       "layer %" PRId64 " is in recurrent group %d: it has states, and no %s", index, config.group,
                       what)
      .at(index);
}

// Checks that every field except group, num_states and states is 0.
Status check_states_alone(const kvc_layer_config& config, int64_t index) {
  const struct {
    const char* name;
    int64_t value;
  } integers[] = {{"num_q_heads", config.num_q_heads}, {"num_kv_heads", config.num_kv_heads},
                  {"head_dim", config.head_dim},       {"v_head_dim", config.v_head_dim},
                  {"rope_mode", config.rope_mode},     {"rope_dim", config.rope_dim},
                  {"rope_offset", config.rope_offset}, {"flags", config.flags},
                  {"kv_layer", config.kv_layer},       {"num_scales", config.num_scales},
                  {"latent_dim", config.latent_dim},   {"total_kv_heads", config.total_kv_heads},
                  {"row_format", config.row_format},   {"reserved", config.reserved}};
  char text[64];
  for (const auto& field : integers) {
    if (field.value == 0) continue;
    std::snprintf(text, sizeof text, "%s %" PRId64, field.name, field.value);
    return refuse(config, index, text);
  }
  for (const auto& [name, value] :
       {std::pair{"rope_theta", config.rope_theta}, {"softmax_scale", config.softmax_scale}}) {
    if (value == 0) continue;
    std::snprintf(text, sizeof text, "%s %g", name, value);
    return refuse(config, index, text);
  }
  kvc_layer_config plain;
  kvc_layer_config_init(&plain);
  plain.group = config.group;
  plain.num_states = config.num_states;
  plain.states = config.states;
  plain.struct_size = config.struct_size;
  // The structs can be compared byte by byte: they have no padding, and fields that the caller did not set are 0.
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
  if (std::memcmp(&plain, &config, sizeof plain) == 0) return Status();
  return refuse(config, index, "dtype, rope_scaling, storage or scales of a layer");
}

}  // namespace

Status read_state_limits(const kvc_cache_config& config, bool recurrent, Geometry* geometry) {
  const struct {
    const char* name;
    int32_t value;
    int64_t most;
  } limits[] = {
      {"max_checkpoints", config.max_checkpoints, 1024},
      {"max_draft_states", config.max_draft_states, std::min<int64_t>(kMaxDraftStates, geometry->limits.tree_nodes)}};
  for (const auto& [name, value, most] : limits) {
    if (value < 0 || value > most) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s %d is outside 0..%" PRId64, name, value, most);
    }
    if (value == 0 || recurrent) continue;
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s %d, and no group is recurrent", name, value);
  }
  geometry->store.max_checkpoints = !recurrent ? 0 : config.max_checkpoints == 0 ? 1 : config.max_checkpoints;
  geometry->store.max_draft_states = geometry->limits.draft_states = config.max_draft_states;
  return Status();
}

Status make_recurrent_layer(const kvc_layer_config& config, const std::vector<kvc_state_config>& states, int64_t index,
                            Geometry* geometry) {
  KVC_TRY(check_states_alone(config, index));
  if (config.num_states < 1 || config.num_states > kMaxStates) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": num_states %d is outside 1..%d", index,
                         config.num_states, kMaxStates)
        .at(index);
  }
  if (config.states == nullptr) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "layer %" PRId64 ": states is NULL with num_states %d", index,
                         config.num_states)
        .at(index);
  }
  LayerGeometry geo;
  geo.group = config.group;
  for (size_t i = 0; i < states.size(); ++i) {
    StateGeometry state;
    KVC_TRY(make_state(states[i], index, i, &state));
    state.offset_bytes = geo.page_bytes;
    geo.page_bytes += ceil_div(state.bytes, kStateAlignment) * kStateAlignment;
    geo.states.push_back(state);
  }
  geometry->layers.push_back(std::move(geo));
  return Status();
}

}  // namespace kvc
