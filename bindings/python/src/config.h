// Converts the arguments of kvcache.Cache and kvcache.estimate to a kvc_cache_config.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <deque>
#include <vector>

#include "kvcache.h"
#include "work.h"

namespace kvcpy {

namespace nb = nanobind;

// Owns what a kvc_cache_config points to. Not movable.
class CacheConfig {
 public:
  // `layers` and `groups`: lists of the tuples that Layer, Full, Sliding and so on make of themselves
  // (kvcache/_config.py); `sizes`: the tuple (flags, page_size, max_sequences, max_batch_tokens, max_open_forwards,
  // rollback_tokens, capacity_tokens, capacity_pages, capacity_bytes, max_tree_nodes, max_checkpoints, storage,
  // prefix_pages, prefix_checkpoints, prefix_policy, fingerprint, events_capacity, max_draft_states,
  // tp_size, tp_rank).
  // Takes the storages of the layers, which must be on `device`.
  CacheConfig(nb::list layers, nb::list groups, nb::tuple sizes, DLDevice device);
  ~CacheConfig();
  CacheConfig(const CacheConfig&) = delete;
  CacheConfig& operator=(const CacheConfig&) = delete;

  const kvc_cache_config& get() const { return config_; }

  // Call it when the library has adopted the storages.
  void release_storages() { owns_storages_ = false; }

  // Returns the head dim of V of each layer. The output of an attend has the same head dim.
  std::vector<int32_t> v_head_dims() const;

  // Returns the element type of each layer; kNoDtype if it was not given.
  std::vector<DLDataType> dtypes() const;

 private:
  void add_layer(nb::tuple fields, Work& work);
  void add_states(nb::tuple states, kvc_layer_config& layer);
  void add_scaling(nb::tuple fields, kvc_layer_config& layer);
  void drop_storages() noexcept;

  struct Scaling {
    kvc_rope_scaling scaling;
    std::vector<double> short_factors, long_factors;
  };

  kvc_cache_config config_;
  std::vector<kvc_layer_config> layers_;
  std::vector<std::vector<float>> scales_;            // k_scales and v_scales of the layers point to these
  std::deque<Scaling> scalings_;                      // rope_scaling of the layers points to these
  std::deque<std::vector<kvc_state_config>> states_;  // `states` of the layers points to these
  std::vector<kvc_group_config> groups_;
  std::array<uint8_t, 32> fingerprint_;  // unused if config_.fingerprint is null
  bool owns_storages_ = true;
};

}  // namespace kvcpy
