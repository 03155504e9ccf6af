#include "layer/layout_manifest.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/dtype_text.h"
#include "kernels/common/stored_format.h"
#include "keys/sha256.h"
#include "layer/row_format.h"

namespace kvc {
namespace {

constexpr char kFirstLine[] = "kvcache layout 1\n";

// The shortest text from which exactly this number can be read, in every locale.
std::string number(double value) {
  char text[40];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, value);
  return std::string(text, end.ptr);
}

std::string number(int64_t value) { return std::to_string(value); }

// The first 8 bytes of a SHA-256, in hexadecimal.
std::string short_digest(Sha256* hash) {
  uint8_t digest[kSha256Bytes];
  hash->finish(digest);
  std::string text;
  for (int i = 0; i < 8; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

void add_number(double value, Sha256* hash) { hash->update(&value, sizeof value); }

std::string rank_text(TpRank tp) { return "rank " + number(int64_t{tp.rank}) + " of " + number(int64_t{tp.size}); }

// A digest of all numbers of a scaling, as float64. For YaRN, beta_fast and beta_slow of 0 are replaced by their
// defaults. Other numbers that were left out stay 0.
std::string scaling_digest(const kvc_rope_scaling& s) {
  Sha256 hash;
  const auto beta = [&](double given, double fallback) { return given == 0 ? fallback : given; };
  const bool yarn = s.kind == KVC_ROPE_SCALING_YARN;
  for (const double value : {static_cast<double>(s.flags), static_cast<double>(s.original_max_position), s.factor,
                             s.low_freq_factor, s.high_freq_factor, yarn ? beta(s.beta_fast, 32) : 0,
                             yarn ? beta(s.beta_slow, 1) : 0, s.attention_factor, s.mscale, s.mscale_all_dim}) {
    add_number(value, &hash);
  }
  for (int32_t i = 0; i < s.num_short_factors; ++i) add_number(s.short_factors[i], &hash);
  for (int32_t i = 0; i < s.num_long_factors; ++i) add_number(s.long_factors[i], &hash);
  return short_digest(&hash);
}

// Whose kv heads a manifest names.
struct HeadsOf {
  bool all_ranks = false;
  TpRank tp;
};

// Describes the scales of a float8 or float4 layer that are constant for each head. They are not stored with the rows.
std::string scales_text(const LayerGeometry& layer, HeadsOf heads) {
  const auto unit = [](float scale) { return scale == 1.0f; };
  if (std::all_of(layer.k_scales.begin(), layer.k_scales.end(), unit) &&
      std::all_of(layer.v_scales.begin(), layer.v_scales.end(), unit)) {
    return "scales 1";
  }
  // A rank has the scales of its own heads only. If these are all equal, the text has this one scale for all ranks.
  // Otherwise the text names the rank.
  const auto equal = [](const std::vector<float>& scales) {
    return std::all_of(scales.begin(), scales.end(), [&](float scale) { return scale == scales[0]; });
  };
  const bool same = heads.all_ranks && equal(layer.k_scales) && equal(layer.v_scales);
  const auto count = [&](const std::vector<float>& scales) {
    return same ? std::min<size_t>(scales.size(), 1) : scales.size();
  };
  Sha256 hash;
  hash.update(layer.k_scales.data(), count(layer.k_scales) * sizeof(float));
  hash.update(layer.v_scales.data(), count(layer.v_scales) * sizeof(float));
  std::string text = "scales " + short_digest(&hash);
  if (heads.all_ranks && !same) text.append(" of ").append(rank_text(heads.tp));
  return text;
}

std::string state_text(const LayerGeometry& layer) {
  std::string text = "states";
  for (const StateGeometry& state : layer.states) {
    text.append(" ").append(DtypeText(state.dtype).c_str()).append("[");
    for (int32_t i = 0; i < state.rank; ++i) text.append(i == 0 ? "" : ",").append(number(state.shape[i]));
    text.append("]");
  }
  return text;
}

// Describes what a layer stores, without the number of the layer.
std::string layer_text(const LayerGeometry& geometry, HeadsOf heads) {
  if (!geometry.states.empty()) return state_text(geometry);
  const kvc_backend_layer& layer = geometry.layer;
  std::string text = format_name(layer.format);
  const int32_t num_heads = heads.all_ranks ? geometry.total_kv_heads : layer.num_kv_heads;
  text.append(", ").append(number(int64_t{num_heads})).append(" heads, k ");
  text.append(number(int64_t{layer.head_dim})).append(", v ").append(number(int64_t{layer.v_head_dim}));
  if (kernels::place_of_scales(layer.format) == KVC_BACKEND_SCALES_APART)
    text.append(", ").append(scales_text(geometry, heads));
  if (layer.k_scales.row_bytes > 0) text.append(", scales of tokens and heads");
  return text.append(", rope ").append(geometry.rope);
}

std::string group_text(const GroupRules& rules) {
  std::string text = rules.row_name();
  if (rules.holds_encoder()) return text + ", encoder";
  kvc_backend_layer visible = {};
  kernels::set_rule_of_layer(rules.visible, &visible);
  if (visible.window_tokens > 0) return text + ", window " + number(int64_t{visible.window_tokens});
  if (visible.chunk_tokens > 0) return text + ", chunk " + number(int64_t{visible.chunk_tokens});
  if (rules.compresses()) text += ", " + number(rules.tokens_per_row) + " tokens a row";
  return text + ", all";
}

// "3", or "0-4,6" for layers that are alike.
std::string layer_numbers(const std::vector<size_t>& layers) {
  std::string text;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    text.append(text.empty() ? "" : ",").append(std::to_string(layers[i]));
    if (end > i + 1) text.append("-").append(std::to_string(layers[end - 1]));
    i = end;
  }
  return text;
}

void add_group(const Geometry& geometry, int32_t group, HeadsOf heads, std::string* text) {
  text->append("group ").append(std::to_string(group)).append(": ");
  text->append(group_text(geometry.store.groups[static_cast<size_t>(group)].rules)).append("\n");
  std::vector<std::pair<std::string, std::vector<size_t>>> kinds;
  for (size_t i = 0; i < geometry.layers.size(); ++i) {
    const LayerGeometry& layer = geometry.layers[i];
    if (layer.group != group || layer.kv_layer >= 0) continue;
    const std::string own = layer_text(layer, heads);
    const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.first == own; });
    if (known == kinds.end()) {
      kinds.push_back({own, {i}});
    } else {
      known->second.push_back(i);
    }
  }
  for (const auto& [own, layers] : kinds) {
    text->append(layers.size() == 1 ? "layer " : "layers ").append(layer_numbers(layers)).append(": ");
    text->append(own).append("\n");
  }
}

// The line that begins at `begin`, without its newline.
std::string line_at(const std::string& text, size_t begin) {
  if (begin >= text.size()) return "(nothing)";
  return text.substr(begin, text.find('\n', begin) - begin);
}

std::string fingerprint_text(const PageKey& key) {
  if (key == PageKey{}) return "none";
  std::string text;
  for (size_t i = 0; i < 8; ++i) {
    text += "0123456789abcdef"[key[i] >> 4];
    text += "0123456789abcdef"[key[i] & 15];
  }
  return text;
}

}  // namespace

Status check_same_model(OtherSide other, const PageKey& fingerprint, const std::string& manifest,
                        const Geometry& geometry, const std::string& own) {
  if (manifest != own) {
    const ManifestDifference lines = first_difference(manifest, own);
    return Status::error(KVC_ERROR_LAYOUT, "the %s has another layout. %s: \"%.140s\". Cache: \"%.140s\"", other.name,
                         other.title, lines.a.c_str(), lines.b.c_str());
  }
  const PageKey own_fingerprint = geometry.fingerprint.value_or(PageKey{});
  if (fingerprint == own_fingerprint) return Status();
  return Status::error(KVC_ERROR_LAYOUT, "the %s is of another model. Fingerprint of the %s: %s. Of the cache: %s",
                       other.name, other.name, fingerprint_text(fingerprint).c_str(),
                       fingerprint_text(own_fingerprint).c_str());
}

std::string layout_manifest(const Geometry& geometry, int32_t group, int64_t page_size) {
  std::string text = kFirstLine;
  if (geometry.tp.size > 1) text.append(rank_text(geometry.tp)).append("\n");
  for (int32_t g = 0; g < static_cast<int32_t>(geometry.store.groups.size()); ++g) {
    if (group < 0 || g == group) add_group(geometry, g, {}, &text);
  }
  if (page_size > 0) text.append("page ").append(number(page_size)).append(" tokens\n");
  return text;
}

std::string layout_manifest_of_all_ranks(const Geometry& geometry) {
  std::string text = kFirstLine;
  for (int32_t g = 0; g < static_cast<int32_t>(geometry.store.groups.size()); ++g) {
    add_group(geometry, g, {true, geometry.tp}, &text);
  }
  return text;
}

std::string rope_text(const kvc_layer_config& config, int32_t rope_dim) {
  if (config.rope_mode == KVC_ROPE_NONE) return "none";
  static constexpr const char* kScalings[] = {"", " linear ", " llama3 ", " yarn ", " longrope "};
  std::string text = config.rope_mode == KVC_ROPE_ON_READ ? "read " : "append ";
  text.append(number(int64_t{config.rope_offset})).append("+").append(number(int64_t{rope_dim}));
  text.append((config.flags & KVC_LAYER_ROPE_INTERLEAVED) != 0 ? " pairs" : " halves");
  text.append(" theta ").append(number(config.rope_theta == 0 ? 10000.0 : config.rope_theta));
  if (config.rope_scaling == nullptr || config.rope_scaling->kind == KVC_ROPE_SCALING_NONE) return text;
  return text.append(kScalings[config.rope_scaling->kind]).append(scaling_digest(*config.rope_scaling));
}

ManifestDifference first_difference(const std::string& a, const std::string& b) {
  size_t begin = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()) && a[i] == b[i]; ++i) {
    if (a[i] == '\n') begin = i + 1;
  }
  return {line_at(a, begin), line_at(b, begin)};
}

}  // namespace kvc
