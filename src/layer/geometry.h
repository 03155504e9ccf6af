// Geometry: a checked kvc_cache_config, with every default filled in and every size computed. Allocates no pool.
// Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "keys/page_key.h"
#include "layer/head_shares.h"
#include "plan/work_plan.h"
#include "prefix/prefix_store.h"
#include "rope/frequencies.h"
#include "sequence/sequence_store.h"

namespace kvc {

class Context;

// A state tensor of a recurrent layer.
struct StateGeometry {
  DLDataType dtype = {};
  int32_t rank = 0;
  int64_t shape[4] = {};
  int64_t bytes = 0;         // for one sequence
  uint64_t fill = 0;         // of a new state: kvc_backend_states.fill
  int64_t offset_bytes = 0;  // in a page
};

struct LayerGeometry {
  int32_t group = 0;
  int32_t total_kv_heads = 0;         // in all ranks of tensor parallelism; 0 in a recurrent layer
  int32_t kv_layer = -1;              // the layer whose K and V it reads; -1 = it stores its own
  int32_t row_format = 0;             // KVC_ROW_FORMAT_*
  kvc_backend_layer layer = {};       // data pointers unset
  std::vector<StateGeometry> states;  // of a recurrent layer, which has no K and V
  int64_t page_bytes = 0;             // K and V, or the states, of one page
  int64_t token_bytes = 0;            // bytes of a page without padding, divided by its tokens and rounded down
  std::vector<float> k_scales;        // [Hkv] in a float8 or float4 layer, otherwise empty
  std::vector<float> v_scales;
  std::string rope;                                // how its keys are rotated, as text (layout_manifest.h)
  DLManagedTensorVersioned* kv_storage = nullptr;  // owned by the caller until adopted
  DLManagedTensorVersioned* k_storage = nullptr;
  DLManagedTensorVersioned* v_storage = nullptr;
};

// Layers whose rotations have the same angles. Their cos and sin are computed once in a step.
struct RopeClass {
  int32_t rope_dim = 0;
  std::vector<RopeFrequencies> sets;  // one set, or the short and the long set of longrope
  bool on_read = false;               // keys are stored without rotation
  int64_t long_from = INT64_MAX;      // sequences of more tokens use the long set, even if the short set was chosen
  bool operator==(const RopeClass&) const = default;
};

struct Geometry {
  std::vector<LayerGeometry> layers;
  SequenceStoreConfig store;
  PrefixStore::Config prefixes;  // used if store.indexed is set
  std::vector<RopeClass> rope_classes;
  TpRank tp;
  int32_t page_size = 0;
  int32_t max_open_forwards = 0;
  BatchLimits limits;
  PrefixSharing sharing = PrefixSharing::kByCost;
  bool deterministic = false;
  bool tables_only = false;            // KVC_STORAGE_NONE
  std::optional<PageKey> fingerprint;  // of the model
  int64_t events_capacity = 0;         // events of the prefix index that are kept; 0 = none are made
  int64_t events_tier_pages = 0;       // pages in tiers of which events tell

  int64_t group_page_bytes(int32_t group) const noexcept;
  int64_t group_token_bytes(int32_t group) const noexcept;
  // Bytes of the pools of a group, and of all groups. make_geometry has checked that they fit in 64 bits.
  int64_t group_storage_bytes(int32_t group) const noexcept;
  int64_t storage_bytes() const noexcept;
  bool has_rope_sets() const noexcept;  // whether a RoPE class has several factor sets (longrope)
};

// A kvc_cache_config with its layers and groups. The caller's structs may be of another version. They were copied to
// structs of this library's version.
struct CacheConfig {
  kvc_cache_config config = {};
  std::vector<kvc_layer_config> layers;
  std::vector<kvc_rope_scaling> scalings;    // [num_layers]: targets of layers[i].rope_scaling that are not NULL
  std::vector<std::vector<double>> factors;  // [2 * num_layers]: short and long factors, to which the scalings point
  std::vector<std::vector<kvc_state_config>> states;  // [num_layers]
  std::vector<kvc_group_config> groups;
};

// Checks and reads the flags of a config (cache_flags.cc).
Status read_cache_flags(uint32_t flags, int32_t storage, Geometry* geometry);

// Reads the model's fingerprint, and the settings for events of the prefix index. Call read_cache_flags before.
Status read_event_config(const kvc_cache_config& config, Geometry* geometry);

// Checks everything except adopted storage. Calls check_layer of the context's backend for each layer.
Status make_geometry(const Context& context, const CacheConfig& config, Geometry* geometry);

}  // namespace kvc
