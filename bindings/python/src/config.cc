#include "config.h"

#include <cstring>

#include "array.h"
#include "context.h"
#include "dtype.h"
#include "error.h"
#include "integers.h"

namespace kvcpy {

namespace {

int32_t int32_field(nb::handle fields, size_t index) { return saturate(integer_from_python(fields[index])); }

double float_from_python(nb::handle object) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1.0 && PyErr_Occurred()) throw nb::python_error();
  return value;
}

}  // namespace

CacheConfig::CacheConfig(nb::list layers, nb::list groups, nb::tuple sizes, DLDevice device) {
  Work work = Work::on(device, nb::none());
  kvc_cache_config_init(&config_);
  try {
    for (nb::handle layer : layers) add_layer(nb::cast<nb::tuple>(layer), work);
  } catch (...) {
    drop_storages();
    throw;
  }
  for (nb::handle fields : groups) {
    kvc_group_config& group = groups_.emplace_back();
    kvc_group_config_init(&group);
    group.row = int32_field(fields, 0);
    group.visibility = int32_field(fields, 1);
    group.window_tokens = integer_from_python(fields[2]);
    group.chunk_tokens = integer_from_python(fields[3]);
    group.num_pages = integer_from_python(fields[4]);
    group.tokens_per_row = int32_field(fields, 5);
  }
  config_.layers = layers_.data();
  config_.num_layers = saturate(static_cast<int64_t>(layers_.size()));
  config_.groups = groups_.empty() ? nullptr : groups_.data();
  config_.num_groups = saturate(static_cast<int64_t>(groups_.size()));
  config_.flags = nb::cast<uint32_t>(sizes[0]);
  config_.page_size = int32_field(sizes, 1);
  config_.max_sequences = int32_field(sizes, 2);
  config_.max_batch_tokens = int32_field(sizes, 3);
  config_.max_open_forwards = int32_field(sizes, 4);
  config_.rollback_tokens = integer_from_python(sizes[5]);
  config_.capacity_tokens = integer_from_python(sizes[6]);
  config_.capacity_pages = integer_from_python(sizes[7]);
  config_.capacity_bytes = integer_from_python(sizes[8]);
  config_.max_tree_nodes = int32_field(sizes, 9);
  config_.max_checkpoints = int32_field(sizes, 10);
  config_.storage = int32_field(sizes, 11);
  config_.prefix_pages = integer_from_python(sizes[12]);
  config_.prefix_checkpoints = integer_from_python(sizes[13]);
  config_.prefix_policy = int32_field(sizes, 14);
  if (!sizes[15].is_none()) {
    if (!PyBytes_Check(sizes[15].ptr()) ||
        PyBytes_Size(sizes[15].ptr()) != static_cast<Py_ssize_t>(fingerprint_.size()))
      raise(KVC_ERROR_INVALID_ARGUMENT, -1, "Cache: fingerprint must be 32 bytes");
    std::memcpy(fingerprint_.data(), PyBytes_AsString(sizes[15].ptr()), fingerprint_.size());
    config_.fingerprint = fingerprint_.data();
  }
  config_.events_capacity = integer_from_python(sizes[16]);
  config_.max_draft_states = int32_field(sizes, 17);
  config_.tp_size = int32_field(sizes, 18);
  config_.tp_rank = int32_field(sizes, 19);
  config_.events_tier_pages = integer_from_python(sizes[20]);
}

CacheConfig::~CacheConfig() { drop_storages(); }

void CacheConfig::add_layer(nb::tuple fields, Work& work) {
  kvc_layer_config& layer = layers_.emplace_back();
  kvc_layer_config_init(&layer);
  layer.group = int32_field(fields, 0);
  layer.num_q_heads = int32_field(fields, 1);
  layer.num_kv_heads = int32_field(fields, 2);
  layer.head_dim = int32_field(fields, 3);
  layer.v_head_dim = int32_field(fields, 4);
  layer.dtype = dtype_from_python(fields[5]);
  layer.rope_mode = int32_field(fields, 6);
  layer.rope_dim = int32_field(fields, 7);
  layer.rope_theta = float_from_python(fields[8]);
  layer.softmax_scale = float_from_python(fields[9]);
  const auto read_scales = [&](nb::handle list) {
    for (nb::handle scale : nb::borrow<nb::list>(list))
      scales_.back().push_back(static_cast<float>(float_from_python(scale)));
    return scales_.back().empty() ? nullptr : scales_.back().data();
  };
  scales_.emplace_back();
  layer.k_scales = read_scales(fields[13]);
  layer.num_scales = saturate(static_cast<int64_t>(scales_.back().size()));
  scales_.emplace_back();
  layer.v_scales = read_scales(fields[14]);
  if (layer.k_scales && layer.v_scales && scales_.back().size() != static_cast<size_t>(layer.num_scales))
    raise(KVC_ERROR_INVALID_ARGUMENT, static_cast<int64_t>(layers_.size()) - 1, "Layer: %d k_scales but %zu v_scales",
          layer.num_scales, scales_.back().size());
  if (!layer.k_scales) layer.num_scales = saturate(static_cast<int64_t>(scales_.back().size()));
  if (!fields[10].is_none()) layer.kv_storage = take_storage(fields[10], "kv_storage", layer.dtype, work);
  if (!fields[11].is_none()) layer.k_storage = take_storage(fields[11], "k_storage", layer.dtype, work);
  if (!fields[12].is_none()) layer.v_storage = take_storage(fields[12], "v_storage", layer.dtype, work);
  layer.rope_offset = int32_field(fields, 15);
  layer.flags = nb::cast<uint32_t>(fields[16]);
  if (!fields[17].is_none()) add_scaling(nb::cast<nb::tuple>(fields[17]), layer);
  layer.kv_layer = int32_field(fields, 18);
  add_states(nb::cast<nb::tuple>(fields[19]), layer);
  layer.latent_dim = int32_field(fields, 20);
  layer.total_kv_heads = int32_field(fields, 21);
  layer.row_format = int32_field(fields, 22);
}

void CacheConfig::add_states(nb::tuple states, kvc_layer_config& layer) {
  if (states.size() == 0) return;
  std::vector<kvc_state_config>& owned = states_.emplace_back();
  for (nb::handle fields : states) {
    kvc_state_config& state = owned.emplace_back();
    kvc_state_config_init(&state);
    const Integers shape = integers_from_python(fields[0]);
    state.rank = saturate(shape.size());
    for (size_t i = 0; i < shape.values.size() && i < std::size(state.shape); ++i) state.shape[i] = shape.values[i];
    state.dtype = dtype_from_python(fields[1]);
    state.fill = nb::cast<double>(fields[2]);
  }
  layer.states = owned.data();
  layer.num_states = saturate(static_cast<int64_t>(owned.size()));
}

void CacheConfig::add_scaling(nb::tuple fields, kvc_layer_config& layer) {
  Scaling& owned = scalings_.emplace_back();
  kvc_rope_scaling& scaling = owned.scaling;
  kvc_rope_scaling_init(&scaling);
  scaling.kind = int32_field(fields, 0);
  scaling.flags = nb::cast<uint32_t>(fields[1]);
  scaling.original_max_position = integer_from_python(fields[2]);
  double* const numbers[] = {&scaling.factor,    &scaling.low_freq_factor, &scaling.high_freq_factor,
                             &scaling.beta_fast, &scaling.beta_slow,       &scaling.attention_factor,
                             &scaling.mscale,    &scaling.mscale_all_dim};
  for (size_t i = 0; i < std::size(numbers); ++i) *numbers[i] = float_from_python(fields[3][i]);
  const auto read = [](nb::handle items, std::vector<double>* out) {
    for (nb::handle item : items) out->push_back(float_from_python(item));
    return saturate(static_cast<int64_t>(out->size()));
  };
  scaling.num_short_factors = read(fields[4], &owned.short_factors);
  scaling.num_long_factors = read(fields[5], &owned.long_factors);
  scaling.short_factors = owned.short_factors.data();
  scaling.long_factors = owned.long_factors.data();
  layer.rope_scaling = &scaling;
}

void CacheConfig::drop_storages() noexcept {
  if (!owns_storages_) return;
  owns_storages_ = false;
  for (const kvc_layer_config& layer : layers_)
    for (DLManagedTensorVersioned* storage : {layer.kv_storage, layer.k_storage, layer.v_storage})
      if (storage && storage->deleter) storage->deleter(storage);
}

std::vector<int32_t> CacheConfig::v_head_dims() const {
  std::vector<int32_t> dims;
  for (const kvc_layer_config& layer : layers_) {
    // No query attends to a layer with keys only, so an output of it has 0 dims.
    dims.push_back(layer.flags & KVC_LAYER_KEYS_ONLY ? 0
                   : layer.latent_dim                ? layer.latent_dim
                   : layer.v_head_dim                ? layer.v_head_dim
                                                     : layer.head_dim);
  }
  return dims;
}

std::vector<DLDataType> CacheConfig::dtypes() const {
  std::vector<DLDataType> dtypes;
  for (const kvc_layer_config& layer : layers_) dtypes.push_back(layer.dtype);
  return dtypes;
}

}  // namespace kvcpy
