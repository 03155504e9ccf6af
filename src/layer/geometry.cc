#include "layer/geometry.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "base/limits.h"
#include "context/context.h"
#include "kernels/common/stored_format.h"
#include "layer/group_config.h"
#include "layer/layer_storage.h"
#include "layer/layout_manifest.h"
#include "layer/page_layout.h"
#include "layer/recurrent_layer.h"
#include "layer/row_format.h"
#include "tensor/key_rows.h"
#include "tensor/latent_rows.h"

namespace kvc {
namespace {

constexpr int32_t kDefaultTreeNodes = 64;
constexpr double kSmallestNumber = 1e-30;  // least softmax scale or RoPE base: results stay finite
constexpr double kLargestNumber = 1e30;
constexpr double kSmallestScale = 1e-20f;  // least scale of float8 and float4: products stay finite and normal
constexpr double kLargestScale = 1e20f;
// The default size of a prefix index without groups that hold tokens: pages for each checkpoint, and the largest number
// of checkpoints that counts.
constexpr int64_t kPagesOfCheckpoint = 1024, kMostCheckpoints = 16384;
constexpr int64_t kMaxSnapshots = 32;  // largest number of exports that run at once

Status check_range(const char* what, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return Status();
  if (low == high)
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s %" PRId64 " must be %" PRId64, what, value, low);
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s %" PRId64 " is outside %" PRId64 "..%" PRId64, what, value, low,
                       high);
}

// Checks one number of a layer's config. The message is like "layer 3: head_dim 0 is outside 1..512".
Status check_layer_field(int64_t index, const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": %s %" PRId64 " is outside %" PRId64 "..%" PRId64,
                       index, name, value, low, high)
      .at(index);
}

Status check_layer_heads(const kvc_layer_config& c, int64_t index) {
  KVC_TRY(check_layer_field(index, "num_kv_heads", c.num_kv_heads, 1, 4096));
  KVC_TRY(check_layer_field(index, "num_q_heads", c.num_q_heads, 1, 65536));
  if (c.num_q_heads % c.num_kv_heads != 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64 ": num_q_heads %d is no multiple of num_kv_heads %d", index, c.num_q_heads,
                         c.num_kv_heads)
        .at(index);
  }
  if (c.latent_dim != 0) return Status();  // read_latent_layer checked its dims
  KVC_TRY(check_layer_field(index, "head_dim", c.head_dim, 1, 512));
  return check_layer_field(index, "v_head_dim", c.v_head_dim, 0, 512);
}

Status check_layer_numbers(const kvc_layer_config& c, int64_t index) {
  if (c.softmax_scale != 0 && !(c.softmax_scale >= kSmallestNumber && c.softmax_scale <= kLargestNumber)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": softmax_scale %g is outside %g..%g", index,
                         c.softmax_scale, kSmallestNumber, kLargestNumber)
        .at(index);
  }
  if (c.num_states != 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": num_states %d must be 0", index, c.num_states)
        .at(index);
  }
  if (c.states != nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": states of a layer that is not recurrent",
                         index)
        .at(index);
  }
  if ((c.flags & ~uint32_t{KVC_LAYER_ROPE_INTERLEAVED | KVC_LAYER_KEYS_ONLY}) == 0 && c.reserved == 0) return Status();
  return Status::error(KVC_ERROR_UNSUPPORTED, "layer %" PRId64 ": flags 0x%x or reserved 0x%x has unknown bits", index,
                       c.flags, c.reserved)
      .at(index);
}

double theta_of(const kvc_layer_config& c) { return c.rope_theta == 0 ? 10000.0 : c.rope_theta; }
int32_t rope_dim_of(const kvc_layer_config& c) { return c.rope_dim == 0 ? c.head_dim - c.rope_offset : c.rope_dim; }

Status check_layer_rope(const kvc_layer_config& c, int64_t index) {
  KVC_TRY(check_layer_field(index, "rope_mode", c.rope_mode, KVC_ROPE_NONE, KVC_ROPE_ON_READ));
  if (c.rope_mode == KVC_ROPE_NONE) return Status();
  if (c.rope_theta != 0 && !(c.rope_theta >= kSmallestNumber && c.rope_theta <= kLargestNumber)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": rope_theta %g is outside %g..%g", index,
                         c.rope_theta, kSmallestNumber, kLargestNumber)
        .at(index);
  }
  KVC_TRY(check_layer_field(index, "rope_offset", c.rope_offset, 0, c.head_dim - 1));
  const int32_t rope_dim = rope_dim_of(c);
  if (rope_dim < 2 || rope_dim > c.head_dim - c.rope_offset || rope_dim % 2 != 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64 ": rope_dim %d at rope_offset %d is not even and within head_dim %d", index,
                         rope_dim, c.rope_offset, c.head_dim)
        .at(index);
  }
  if (c.rope_scaling == nullptr) return Status();
  Status scaling = check_rope_scaling(*c.rope_scaling, rope_dim, theta_of(c), index);
  return scaling.ok() ? Status() : std::move(scaling).at(index);
}

// Reads the scales of a float8 or float4 layer, one for each kv head. Other layers have none.
Status read_scales(const kvc_layer_config& c, const kvc_backend_format& format, const float* scales, const char* name,
                   int64_t index, std::vector<float>* out) {
  const bool scaled = kernels::place_of_scales(format) == KVC_BACKEND_SCALES_APART;
  const bool counted = c.num_scales == 0 || (scaled && (c.num_scales == 1 || c.num_scales == c.num_kv_heads));
  if (!counted) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64
                         ": num_scales %d; a float8 or float4 layer has 0, 1 or num_kv_heads %d, others 0",
                         index, c.num_scales, c.num_kv_heads)
        .at(index);
  }
  if ((scales == nullptr) != (c.num_scales == 0)) {
    return Status::error(scales == nullptr ? KVC_ERROR_NULL_ARGUMENT : KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64 ": %s is %s with num_scales %d", index, name,
                         scales == nullptr ? "NULL" : "given", c.num_scales)
        .at(index);
  }
  if (!scaled) return Status();
  for (int32_t h = 0; h < c.num_kv_heads; ++h) {
    const float scale = c.num_scales == 0 ? 1.0f : scales[c.num_scales == 1 ? 0 : h];
    const auto value = static_cast<double>(scale);
    if (!(value >= kSmallestScale && value <= kLargestScale)) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": %s[%d] %g is outside %g..%g", index, name,
                           c.num_scales == 1 ? 0 : h, value, kSmallestScale, kLargestScale)
          .at(index);
    }
    out->push_back(scale);
  }
  return Status();
}

// Returns the index of the layer's RoPE class, or -1 without rotation. Adds a class if no equal class exists.
int32_t rope_class(const kvc_layer_config& config, std::vector<RopeClass>* classes) {
  if (config.rope_mode == KVC_ROPE_NONE) return -1;
  RopeClass wanted;
  wanted.rope_dim = rope_dim_of(config);
  wanted.sets = make_rope_frequencies(config.rope_scaling == nullptr ? kvc_rope_scaling{} : *config.rope_scaling,
                                      wanted.rope_dim, theta_of(config));
  wanted.on_read = config.rope_mode == KVC_ROPE_ON_READ;
  if (wanted.on_read && wanted.sets.size() > 1) wanted.long_from = config.rope_scaling->original_max_position;
  const auto known = std::find(classes->begin(), classes->end(), wanted);
  const auto index = static_cast<int32_t>(known - classes->begin());
  if (known == classes->end()) classes->push_back(std::move(wanted));
  return index;
}

void set_rope(const kvc_layer_config& config, Geometry* geometry, kvc_backend_layer* layer) {
  layer->rope_class = rope_class(config, &geometry->rope_classes);
  if (layer->rope_class < 0) return;
  layer->rope_dim = rope_dim_of(config);
  layer->rope_offset = config.rope_offset;
  layer->rope_interleaved = (config.flags & KVC_LAYER_ROPE_INTERLEAVED) != 0 ? 1 : 0;
}

// Checks a layer that reads the K and V of another layer. Both layers must describe the stored rows in the same way.
Status check_shared(const kvc_layer_config& config, int64_t index, const LayerGeometry& own, const Geometry& geometry) {
  if (config.kv_layer < 0) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "layer %" PRId64 ": kv_layer %d is negative", index, config.kv_layer)
        .at(index);
  }
  if (config.kv_layer > index) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE,
                         "layer %" PRId64 ": kv_layer names layer %d, which is not an earlier layer", index,
                         config.kv_layer - 1)
        .at(index);
  }
  const int32_t source = config.kv_layer - 1;
  const LayerGeometry& other = geometry.layers[static_cast<size_t>(source)];
  if (other.kv_layer >= 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": layer %d stores nothing, it reads layer %d's",
                         index, source, other.kv_layer)
        .at(index);
  }
  if (config.kv_storage != nullptr || config.k_storage != nullptr || config.v_storage != nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": it has a storage, and kv_layer names layer %d",
                         index, source)
        .at(index);
  }
  if (config.num_scales != 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64 ": num_scales %d, and kv_layer names layer %d, whose scales it uses", index,
                         config.num_scales, source)
        .at(index);
  }
  const kvc_backend_layer &a = own.layer, &b = other.layer;
  const struct {
    const char* name;
    int32_t own, other;
  } fields[] = {
      {"group", own.group, other.group},
      {"num_kv_heads", a.num_kv_heads, b.num_kv_heads},
      {"total_kv_heads", own.total_kv_heads, other.total_kv_heads},
      {"head_dim", a.head_dim, b.head_dim},
      {"v_head_dim", a.v_head_dim, b.v_head_dim},
      {"row_format", config.row_format, other.row_format},
      {"dtype code", kernels::stored_dtype(a).code, kernels::stored_dtype(b).code},
      {"dtype bits", kernels::stored_dtype(a).bits, kernels::stored_dtype(b).bits},
      {"rope class", a.rope_class, b.rope_class},
      {"rope_offset", a.rope_offset, b.rope_offset},
      {"rope interleaved", a.rope_interleaved, b.rope_interleaved},
  };
  for (const auto& field : fields) {
    if (field.own == field.other) continue;
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64 ": %s %d is not layer %d's %d, whose K and V it reads", index, field.name,
                         field.own, source, field.other)
        .at(index);
  }
  return Status();
}

Status check_layer_group(const kvc_layer_config& c, int64_t index, int64_t num_groups) {
  if (c.group >= 0 && c.group < num_groups) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "layer %" PRId64 ": group %d is outside [0, %" PRId64 ")", index,
                       c.group, num_groups)
      .at(index);
}

// Sets the bytes of a row of K and of V, and of their scales in a page.
void set_row_bytes(kvc_backend_layer* layer) {
  layer->k.row_bytes = kernels::row_bytes(layer->format.k, layer->head_dim);
  layer->v.row_bytes = kernels::row_bytes(layer->format.v, layer->v_head_dim);
  layer->k_scales.row_bytes = kernels::page_scale_bytes(layer->format.k, layer->head_dim);
  layer->v_scales.row_bytes = kernels::page_scale_bytes(layer->format.v, layer->v_head_dim);
}

Status make_layer(const Context& context, const CacheConfig& in, int64_t index, Geometry* geometry) {
  kvc_layer_config config = in.layers[static_cast<size_t>(index)];
  const GroupRules& rules = geometry->store.groups[static_cast<size_t>(config.group)].rules;
  const bool keys_only = (config.flags & KVC_LAYER_KEYS_ONLY) != 0,
             latent = rules.row == RowKind::kLatent && !keys_only;
  if (keys_only) KVC_TRY(read_key_layer(index, rules.encoder, &config));
  if (latent) KVC_TRY(read_latent_layer(index, &config));
  KVC_TRY(check_layer_heads(config, index));
  KVC_TRY(check_layer_numbers(config, index));
  KVC_TRY(check_layer_rope(config, index));
  KVC_TRY(check_layer_of_group(config, index, rules));
  kvc_backend_format format = {};
  KVC_TRY(read_row_format(config, latent, index, &format));
  KVC_TRY(check_storage(config, format, index));
  LayerGeometry geo;
  KVC_TRY(read_scales(config, format, config.k_scales, "k_scales", index, &geo.k_scales));
  KVC_TRY(read_scales(config, format, config.v_scales, "v_scales", index, &geo.v_scales));
  geo.group = config.group;
  KVC_TRY(
      read_total_heads(config.num_kv_heads, config.total_kv_heads, latent, geometry->tp, index, &geo.total_kv_heads));
  geo.row_format = config.row_format;
  kvc_backend_layer& layer = geo.layer;
  layer.page_size = static_cast<int32_t>(rules.rows_of(geometry->page_size));
  layer.num_q_heads = config.num_q_heads;
  layer.num_kv_heads = config.num_kv_heads;
  layer.head_dim = config.head_dim;
  layer.v_head_dim = config.v_head_dim != 0 || keys_only ? config.v_head_dim : config.head_dim;
  layer.row_kind = latent || keys_only ? KVC_BACKEND_ROW_LATENT : KVC_BACKEND_ROW_KV;
  kernels::set_rule_of_layer(rules.visible, &layer);
  layer.format = format;
  set_row_bytes(&layer);
  layer.softmax_scale =
      static_cast<float>(config.softmax_scale == 0 ? 1.0 / std::sqrt(config.head_dim) : config.softmax_scale);
  set_rope(config, geometry, &layer);
  geo.rope = rope_text(config, layer.rope_dim);
  if (config.kv_layer != 0) {
    KVC_TRY(check_shared(config, index, geo, *geometry));
    geo.kv_layer = config.kv_layer - 1;
  } else {
    const PageLayout layout = page_layout(layer);
    geo.page_bytes = layout.page_bytes;
    geo.token_bytes = rules.rows_of(layout.token_bytes);
  }
  geo.kv_storage = config.kv_storage;
  geo.k_storage = config.k_storage;
  geo.v_storage = config.v_storage;
  kvc_error error = KVC_ERROR_INIT;
  const kvc_status checked = context.backend().check_layer(context.device(), &layer, &error);
  if (checked != KVC_OK) return Status::from(checked, error).at(index);
  geometry->layers.push_back(std::move(geo));
  return Status();
}

// Reads the limits of the prefix index, except the default of prefix_pages.
Status make_prefixes(const kvc_cache_config& config, bool recurrent, Geometry* geometry) {
  const bool indexed = geometry->store.indexed;
  KVC_TRY(check_range("prefix_pages", config.prefix_pages, 0, INT32_MAX));
  KVC_TRY(check_range("prefix_checkpoints", config.prefix_checkpoints, 0, INT32_MAX));
  KVC_TRY(check_range("prefix_policy", config.prefix_policy, KVC_PREFIX_POLICY_REUSE, KVC_PREFIX_POLICY_LRU));
  if (!indexed && (config.prefix_pages != 0 || config.prefix_checkpoints != 0 || config.prefix_policy != 0)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "prefix_pages %" PRId64 ", prefix_checkpoints %" PRId64
                         " or prefix_policy %d without KVC_CACHE_PREFIX_INDEX",
                         config.prefix_pages, config.prefix_checkpoints, config.prefix_policy);
  }
  if (config.prefix_checkpoints != 0 && !recurrent) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "prefix_checkpoints %" PRId64 ", and no group is recurrent",
                         config.prefix_checkpoints);
  }
  KVC_TRY(read_event_config(config, geometry));
  geometry->prefixes.page_size = geometry->page_size;
  geometry->prefixes.max_blocks = config.prefix_pages;
  geometry->prefixes.rewards_reuse = config.prefix_policy == KVC_PREFIX_POLICY_REUSE;
  if (!indexed || !recurrent) return Status();
  geometry->prefixes.max_checkpoints =
      config.prefix_checkpoints != 0 ? config.prefix_checkpoints : geometry->store.max_sequences;
  return Status();
}

Status make_groups(const CacheConfig& in, Geometry* geometry) {
  const kvc_cache_config& config = in.config;
  if ((config.flags & KVC_CACHE_NO_ROLLBACK) != 0 && config.rollback_tokens != 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "rollback_tokens %" PRId64 " contradicts KVC_CACHE_NO_ROLLBACK",
                         config.rollback_tokens);
  }
  const int64_t rollback = (config.flags & KVC_CACHE_NO_ROLLBACK) != 0 ? 0
                           : config.rollback_tokens == 0               ? geometry->limits.tree_nodes
                                                                       : config.rollback_tokens;
  for (size_t g = 0; g < in.groups.size(); ++g) {
    SequenceStoreConfig::Group out;
    KVC_TRY(read_group(in.groups[g], static_cast<int64_t>(g), geometry->page_size, &out.rules));
    out.rules.rollback_tokens = rollback;
    out.rules.page_size = out.rules.holds_state() ? kMaxLength : geometry->page_size;
    out.num_pages = in.groups[g].num_pages;
    geometry->store.groups.push_back(out);
  }
  return Status();
}

// The number of blocks of a prefix index whose config does not set this number.
int64_t default_blocks(const Geometry& geometry) {
  int64_t blocks = 0;
  for (const auto& group : geometry.store.groups) {
    if (group.rules.holds_tokens()) blocks = std::max(blocks, group.num_pages);
  }
  return blocks > 0 ? blocks : std::min(geometry.prefixes.max_checkpoints, kMostCheckpoints) * kPagesOfCheckpoint;
}

// The number of pages of a group whose config does not set this number. Groups whose queries see all tokens get
// `capacity`.
int64_t default_pages(const GroupRules& rules, int64_t capacity, const Geometry& geometry) {
  // At its peak, a sequence needs a page for each checkpoint, for the state before its tree, and for the new state of
  // a step. It also needs pages for states of older nodes: the first max_draft_states nodes, and the last node before
  // the step. A cache without draft states gets no pages for nodes, because most such caches have no trees, and states
  // are large. The index has checkpoints of its own.
  if (rules.holds_state()) {
    const SequenceStoreConfig& store = geometry.store;
    const int64_t drafts = store.max_draft_states;
    const int64_t older_nodes = drafts > 0 ? std::min<int64_t>(drafts + 1, geometry.limits.tree_nodes - 1) : 0;
    return store.max_sequences * (2 + store.max_checkpoints + older_nodes) + geometry.prefixes.max_checkpoints;
  }
  if (!rules.windowed()) return capacity;
  int64_t wanted = 0;
  const int64_t uncommitted = std::max(geometry.limits.tokens, geometry.limits.tree_nodes);
  if (!checked_mul(rules.peak_pages(uncommitted), geometry.store.max_sequences, &wanted)) return capacity;
  return std::min(wanted, capacity);
}

// Bytes of all pools for a capacity in pages. INT64_MAX if they do not fit in 64 bits.
int64_t bytes_at(const Geometry& geometry, const std::vector<kvc_group_config>& groups, int64_t capacity) {
  int64_t total = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const int64_t pages = groups[g].num_pages > 0 ? groups[g].num_pages
                                                  : default_pages(geometry.store.groups[g].rules, capacity, geometry);
    int64_t bytes = 0;
    if (!checked_mul(pages, geometry.group_page_bytes(static_cast<int32_t>(g)), &bytes) ||
        !checked_add(total, bytes, &total)) {
      return INT64_MAX;
    }
  }
  return total;
}

Status make_capacity(const CacheConfig& in, Geometry* geometry) {
  const kvc_cache_config& config = in.config;
  const bool all_set = std::all_of(in.groups.begin(), in.groups.end(),
                                   [](const auto& g) { return g.num_pages > 0 || g.row == KVC_ROW_STATE; });
  const int given = (config.capacity_tokens != 0) + (config.capacity_pages != 0) + (config.capacity_bytes != 0);
  if (given > 1 || (given == 0 && !all_set) || config.capacity_tokens < 0 || config.capacity_pages < 0 ||
      config.capacity_bytes < 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "capacity_tokens %" PRId64 ", capacity_pages %" PRId64 ", capacity_bytes %" PRId64
                         ": exactly one must be positive, or num_pages of every group",
                         config.capacity_tokens, config.capacity_pages, config.capacity_bytes);
  }
  int64_t capacity = config.capacity_pages;
  if (config.capacity_tokens > 0) capacity = ceil_div(config.capacity_tokens, geometry->page_size);
  if (config.capacity_bytes > 0) {
    int64_t low = 0, high = kMaxPages;  // low: the largest capacity whose pools fit
    while (low < high) {
      const int64_t middle = low + (high - low + 1) / 2;
      const int64_t bytes = bytes_at(*geometry, in.groups, middle);
      const bool fits = bytes != INT64_MAX && bytes <= config.capacity_bytes;
      low = fits ? middle : low;
      high = fits ? high : middle - 1;
    }
    if (low == 0) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                           "capacity_bytes %" PRId64 " is less than one page in every group takes, %" PRId64,
                           config.capacity_bytes, bytes_at(*geometry, in.groups, 1));
    }
    capacity = low;
  }
  for (size_t g = 0; g < in.groups.size(); ++g) {
    int64_t& pages = geometry->store.groups[g].num_pages;
    if (pages == 0) pages = default_pages(geometry->store.groups[g].rules, capacity, *geometry);
    KVC_TRY(check_group_field(static_cast<int64_t>(g), "pages", pages, 1, kMaxPages));
  }
  if (bytes_at(*geometry, in.groups, capacity) == INT64_MAX) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "the pools of %" PRId64 " pages take more than 2^63 bytes",
                         capacity);
  }
  return Status();
}

}  // namespace

Status make_geometry(const Context& context, const CacheConfig& in, Geometry* geometry) {
  const kvc_cache_config& config = in.config;
  KVC_TRY(read_cache_flags(config.flags, config.storage, geometry));
  const auto or_default = [](int32_t value, int32_t fallback) { return value == 0 ? fallback : value; };
  geometry->page_size = or_default(config.page_size, 16);
  geometry->store.max_sequences = or_default(config.max_sequences, 64);
  geometry->limits.rows = geometry->store.max_sequences;
  geometry->limits.tokens = or_default(config.max_batch_tokens, 2048);
  geometry->limits.tree_nodes = or_default(config.max_tree_nodes, kDefaultTreeNodes);
  geometry->max_open_forwards = or_default(config.max_open_forwards, 2);
  KVC_TRY(check_range("page_size", geometry->page_size, 1, 65536));
  KVC_TRY(check_range("max_sequences", geometry->store.max_sequences, 1, kMaxSlots));
  KVC_TRY(check_range("max_batch_tokens", geometry->limits.tokens, 1, 1 << 20));
  KVC_TRY(check_range("max_open_forwards", geometry->max_open_forwards, 1, 64));
  KVC_TRY(check_range("rollback_tokens", config.rollback_tokens, 0, kMaxLength));
  KVC_TRY(check_range("max_tree_nodes", geometry->limits.tree_nodes, 1, kMaxTreeNodes));
  if (config.reserved != 0) return Status::error(KVC_ERROR_UNSUPPORTED, "reserved 0x%x is not 0", config.reserved);
  geometry->tp = {config.tp_rank, or_default(config.tp_size, 1)};
  KVC_TRY(check_range("tp_size", geometry->tp.size, 1, kMaxTpSize));
  KVC_TRY(check_range("tp_rank", geometry->tp.rank, 0, geometry->tp.size - 1));
  KVC_TRY(check_range("storage", config.storage, KVC_STORAGE_OWN, KVC_STORAGE_NONE));
  geometry->tables_only = config.storage == KVC_STORAGE_NONE;
  const bool recurrent =
      std::any_of(in.groups.begin(), in.groups.end(), [](const auto& g) { return g.row == KVC_ROW_STATE; });
  KVC_TRY(read_state_limits(config, recurrent, geometry));
  KVC_TRY(make_prefixes(config, recurrent, geometry));
  geometry->store.max_tree_nodes = geometry->limits.tree_nodes;
  geometry->store.max_length = kMaxLength;
  geometry->store.max_snapshots = kMaxSnapshots;
  KVC_TRY(make_groups(in, geometry));
  KVC_TRY(check_compressed_groups(geometry->store.groups, geometry->store.streaming, geometry->tables_only));
  const auto& groups = geometry->store.groups;
  if (geometry->store.streaming &&
      std::none_of(groups.begin(), groups.end(), [](const auto& group) { return group.rules.streams(); })) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "KVC_CACHE_STREAMING, and none of %zu groups is KVC_VISIBLE_ALL",
                         groups.size());
  }
  for (size_t i = 0; i < in.layers.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const kvc_layer_config& layer = in.layers[i];
    KVC_TRY(check_layer_group(layer, index, static_cast<int64_t>(geometry->store.groups.size())));
    const bool holds_state = geometry->store.groups[static_cast<size_t>(layer.group)].rules.holds_state();
    KVC_TRY(holds_state ? make_recurrent_layer(layer, in.states[i], index, geometry)
                        : make_layer(context, in, index, geometry));
  }
  KVC_TRY(check_storages(geometry->layers, geometry->tables_only));
  for (size_t g = 0; g < in.groups.size(); ++g) {
    if (geometry->group_page_bytes(static_cast<int32_t>(g)) == 0) {
      const auto index = static_cast<int64_t>(g);
      return Status::error(KVC_ERROR_INVALID_ARGUMENT, "group %zu has no layer", g).at(index).in_group(index);
    }
  }
  KVC_TRY(make_capacity(in, geometry));
  if (geometry->store.indexed && config.prefix_pages == 0) geometry->prefixes.max_blocks = default_blocks(*geometry);
  if (geometry->tables_only) {  // the caller rotates
    geometry->rope_classes.clear();
    for (LayerGeometry& layer : geometry->layers) layer.layer.rope_class = -1;
  }
  for (LayerGeometry& layer : geometry->layers) {
    layer.layer.num_pages = geometry->store.groups[static_cast<size_t>(layer.group)].num_pages;
    geometry->store.layer_groups.push_back(layer.kv_layer >= 0 ? -1 : layer.group);
  }
  return Status();
}

}  // namespace kvc
