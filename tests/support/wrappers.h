// Owners of C objects, and descriptions of caches in numbers.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "dtype.h"
#include "pools.h"
#include "tensor.h"

namespace kvt {

struct LayerSpec {
  int group = 0, hq = 2, hkv = 1, d = 4, dv = 0;
  DType dtype = DType::kF32;
  int rope = KVC_ROPE_NONE, rope_dim = 0;
  double theta = 0, scale = 0;
  int num_scales = 0;      // of float8: 0, 1 or hkv
  int kv_layer = -1;       // reads the K and V of this earlier layer, and has none of its own
  bool keys_only = false;  // KVC_LAYER_KEYS_ONLY
  int latent = 0;  // MLA: V is the first `latent` dims of K's row of d; its group is an MLA group. Needs a scale

  // Of float8, for K (which = 0) and V (1): makes numbers below 1 large enough for normal values.
  float head_scale(int which, int head) const {
    return num_scales == 0 ? 1.0f : (which ? 0.0037f : 0.0011f) * static_cast<float>(1 + (num_scales > 1 ? head : 0));
  }
  int64_t token_bytes() const {  // of all heads: rows, and their scales
    const int rows = latent ? 1 : 2;
    return int64_t{hkv} *
           (row_bytes(dtype, d) + (latent ? 0 : row_bytes(dtype, v_dim())) + (has_row_scales(dtype) ? rows * 4 : 0));
  }
  int64_t page_bytes(int page_size) const {
    if (!has_row_scales(dtype)) return page_size * token_bytes();
    const auto pool = [&](int64_t row) {  // rows, scales from a multiple of 4, whole lines
      const int64_t slots = int64_t{hkv} * page_size, rows = (slots * row + 3) / 4 * 4;
      return (rows + slots * (d == v_dim() && !latent ? 8 : 4) + 63) / 64 * 64;
    };
    const int k_row = row_bytes(dtype, d), v_row = row_bytes(dtype, v_dim());
    if (latent) return pool(k_row);
    return d == v_dim() ? pool(2 * k_row) : pool(k_row) + pool(v_row);
  }
  // Of uint4: the largest power of two that divides the dims of a row, and of V where V is a part of K.
  int rotation_block(int which) const {
    const int dims = latent ? d | latent : which ? v_dim() : d;
    return dims & -dims;
  }
  int v_dim() const { return latent ? latent : dv ? dv : d; }
  int rotated() const { return rope_dim ? rope_dim : d - latent; }  // from dim `latent` on
  double base() const { return theta > 0 ? theta : 10000.0; }
  double softmax_scale() const { return scale > 0 ? scale : 1.0 / std::sqrt(static_cast<double>(d)); }
};

struct GroupSpec {
  int64_t window = 0;  // 0 = full
  int64_t pages = 0;   // 0 = from the capacity
  int64_t chunk = 0;   // instead of a window
  bool cross = false;  // of encoder sequences
  int tokens_per_row = 0;

  bool full() const { return window == 0 && chunk == 0 && !cross; }
  // First position that a query at `position` sees.
  int64_t first_seen(int64_t position) const {
    if (chunk > 0) return position / chunk * chunk;
    return window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
  }
};

struct CacheSpec {
  std::vector<LayerSpec> layers{LayerSpec{}};
  std::vector<GroupSpec> groups{GroupSpec{}};
  int page_size = 16, max_sequences = 16, max_batch_tokens = 64, max_open_forwards = 2;
  int64_t rollback = 0;  // tokens; 0 = KVC_CACHE_NO_ROLLBACK
  int64_t capacity_tokens = 0;
  int max_tree_nodes = 0;  // 0 = the default, 64
  bool streaming = false;  // KVC_CACHE_STREAMING
  uint32_t flags = 0;      // KVC_CACHE_* beside that
  int32_t storage = KVC_STORAGE_OWN;
  Layout layout = Layout::kOwn;  // of its pools
  std::vector<uint8_t> fingerprint;
  int64_t events_capacity = 0;

  int tree_nodes() const { return max_tree_nodes ? max_tree_nodes : 64; }
};

// The C structs of a CacheSpec; not copyable because they point into themselves.
struct BuiltConfig {
  std::vector<kvc_layer_config> layers;
  std::vector<kvc_group_config> groups;
  std::vector<std::vector<float>> scales;  // of K and V of each layer
  kvc_cache_config config;

  explicit BuiltConfig(const CacheSpec &spec) {
    for (const LayerSpec &l : spec.layers) {
      kvc_layer_config layer;
      kvc_layer_config_init(&layer);
      layer.group = l.group;
      layer.num_q_heads = l.hq;
      layer.num_kv_heads = l.hkv;
      layer.head_dim = l.d;
      layer.v_head_dim = l.dv;
      if (l.dtype == DType::kDsMla) {
        layer.row_format = KVC_ROW_FORMAT_FP8_DS_MLA;
      } else {
        layer.dtype = dl_type(l.dtype);
      }
      layer.rope_mode = l.rope;
      layer.rope_dim = l.rope_dim;
      layer.rope_theta = l.theta;
      layer.softmax_scale = l.scale;
      layer.num_scales = l.num_scales;
      layer.latent_dim = l.latent;
      if (l.keys_only) layer.flags |= KVC_LAYER_KEYS_ONLY;
      layer.kv_layer = l.kv_layer + 1;
      for (int which = 0; which < (l.latent || l.keys_only ? 1 : 2) && l.num_scales > 0; which++) {
        std::vector<float> values;
        for (int h = 0; h < l.num_scales; h++) values.push_back(l.head_scale(which, h));
        scales.push_back(std::move(values));
        (which ? layer.v_scales : layer.k_scales) = scales.back().data();
      }
      layers.push_back(layer);
    }
    for (const GroupSpec &g : spec.groups) {
      kvc_group_config group;
      kvc_group_config_init(&group);
      group.visibility = g.cross    ? KVC_VISIBLE_ENCODER
                         : g.chunk  ? KVC_VISIBLE_CHUNK
                         : g.window ? KVC_VISIBLE_WINDOW
                                    : KVC_VISIBLE_ALL;
      for (const LayerSpec &l : spec.layers) {
        if (l.latent && l.group == &g - spec.groups.data()) group.row = KVC_ROW_LATENT;
      }
      group.window_tokens = g.window;
      group.chunk_tokens = g.chunk;
      group.num_pages = g.pages;
      group.tokens_per_row = g.tokens_per_row;
      groups.push_back(group);
    }
    kvc_cache_config_init(&config);
    config.layers = layers.data();
    config.num_layers = static_cast<int32_t>(layers.size());
    config.groups = groups.data();
    config.num_groups = static_cast<int32_t>(groups.size());
    config.page_size = spec.page_size;
    config.max_sequences = spec.max_sequences;
    config.max_batch_tokens = spec.max_batch_tokens;
    config.max_open_forwards = spec.max_open_forwards;
    config.rollback_tokens = spec.rollback;
    config.flags = spec.flags;
    if (spec.rollback == 0) config.flags |= KVC_CACHE_NO_ROLLBACK;
    if (spec.streaming) config.flags |= KVC_CACHE_STREAMING;
    config.capacity_tokens = spec.capacity_tokens;
    config.max_tree_nodes = spec.max_tree_nodes;
    config.storage = spec.storage;
    config.fingerprint = spec.fingerprint.empty() ? nullptr : spec.fingerprint.data();
    config.events_capacity = spec.events_capacity;
  }
  BuiltConfig(const BuiltConfig &) = delete;
  BuiltConfig &operator=(const BuiltConfig &) = delete;
};

struct ContextDeleter {
  void operator()(kvc_context *context) const { kvc_context_destroy(context); }
};
struct CacheDeleter {
  void operator()(kvc_cache *cache) const { kvc_cache_destroy(cache); }
};
using ContextPtr = std::unique_ptr<kvc_context, ContextDeleter>;
using CachePtr = std::unique_ptr<kvc_cache, CacheDeleter>;

inline std::string describe(const kvc_error &error) {
  return std::string(kvc_status_name(error.code)) + " index " + std::to_string(error.index) + " required " +
         std::to_string(error.required) + " available " + std::to_string(error.available) + " group " +
         std::to_string(error.group) + " \"" + error.message + "\"";
}

inline ContextPtr make_context(int threads = 1, const char *simd = nullptr, kvc_parallel_for_fn parallel_for = nullptr,
                               void *user = nullptr) {
  kvc_context_config config;
  kvc_context_config_init(&config);
  config.device_type = test_device().device_type;
  config.num_threads = threads;
  config.simd = simd;
  config.parallel_for = parallel_for;
  config.parallel_for_user = user;
  kvc_context *context = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  if (kvc_context_create(&config, &context, &error)) throw std::runtime_error("context: " + describe(error));
  return ContextPtr(context);
}

inline ContextPtr make_context_on(int32_t device_type, uint32_t flags = 0) {
  kvc_context_config config;
  kvc_context_config_init(&config);
  config.device_type = device_type;
  config.flags = flags;
  kvc_context *context = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  if (kvc_context_create(&config, &context, &error)) throw std::runtime_error("context: " + describe(error));
  return ContextPtr(context);
}

inline CachePtr make_cache(kvc_context *context, const CacheSpec &spec) {
  BuiltConfig built(spec);
  kvc_cache *cache = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  std::vector<int64_t> pages;
  for (int32_t g = 0; spec.layout != Layout::kOwn && g < built.config.num_groups; g++) {
    kvc_estimate estimate;
    kvc_estimate_init(&estimate);
    if (kvc_cache_estimate(context, &built.config, g, &estimate, &error)) break;  // create reports the same error
    pages.push_back(estimate.num_pages);
  }
  if (pages.size() == built.groups.size()) add_pools(spec.layout, pages, spec.page_size, &built.layers);
  if (kvc_cache_create(context, &built.config, &cache, &error)) {
    drop_pools(&built.layers);
    throw std::runtime_error("cache: " + describe(error));
  }
  return CachePtr(cache);
}

// kvc_seq_export of K and V: nullable each, and then not kept.
inline kvc_status export_kv(kvc_cache *cache, kvc_seq sequence, const kvc_export_args *args,
                            DLManagedTensorVersioned **k, DLManagedTensorVersioned **v, void *stream,
                            kvc_error *error) {
  kvc_exported exported;
  kvc_exported_init(&exported);
  const kvc_status status = kvc_seq_export(cache, sequence, args, &exported, stream, error);
  Managed k_owner(exported.k), v_owner(exported.v);
  const Managed k_scale(exported.k_scale), v_scale(exported.v_scale);
  if (k != nullptr) *k = k_owner.release();
  if (v != nullptr) *v = v_owner.release();
  return status;
}

// The text of a JSON describe function.
template <class Describe>
std::string text_of(Describe describe_fn) {
  int64_t length = 0;
  if (describe_fn(nullptr, 0, &length)) return "";
  std::string text(static_cast<size_t>(length) + 1, '\0');
  if (describe_fn(text.data(), length + 1, &length)) return "";
  text.resize(static_cast<size_t>(length));
  return text;
}

// Names in the JSON list "simd_available" of a context.
inline std::vector<std::string> simd_targets() {
  ContextPtr context = make_context();
  const std::string json = text_of([&](char *buffer, int64_t capacity, int64_t *length) {
    return kvc_context_describe(context.get(), buffer, capacity, length, nullptr);
  });
  std::vector<std::string> names;
  size_t at = json.find("\"simd_available\"");
  if (at == std::string::npos) return names;
  const size_t begin = json.find('[', at), end = json.find(']', at);
  for (size_t i = begin; i < end;) {
    const size_t open = json.find('"', i);
    if (open == std::string::npos || open > end) break;
    const size_t close = json.find('"', open + 1);
    names.push_back(json.substr(open + 1, close - open - 1));
    i = close + 1;
  }
  return names;
}

}  // namespace kvt
