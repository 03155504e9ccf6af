// A cache like DeepSeek-V4's, and what a sequence of it holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "wrappers.h"

namespace kvt {

inline constexpr int kPage = 16, kWindow = 11;
// Layers: latent rows of tokens; rows of 4 with their index keys; rows of 16; keys of tokens for both kinds of rows.
enum { kLocal, kRows, kIndex, kLongRows, kRaw, kLongRaw, kLayers };

inline CacheSpec compressed_spec(DType type, uint32_t flags) {
  CacheSpec spec;
  spec.page_size = kPage;
  spec.max_sequences = 8;
  spec.max_batch_tokens = 800;
  spec.rollback = 6;
  spec.capacity_tokens = 2048;
  spec.flags = flags;
  spec.fingerprint.assign(32, 1);
  spec.groups = {{kWindow}, {}, {}, {8}, {0, 0, 16}};
  spec.groups[1].tokens_per_row = 4;
  spec.groups[2].tokens_per_row = 16;
  spec.layers.assign(kLayers, LayerSpec{0, 4, 1, 24, 0, type});
  const auto latent = [&](int layer, int group) {
    spec.layers[static_cast<size_t>(layer)].group = group;
    spec.layers[static_cast<size_t>(layer)].latent = 24;
    spec.layers[static_cast<size_t>(layer)].scale = 0.3;
  };
  latent(kLocal, 0);
  latent(kRows, 1);
  spec.layers[kLongRows] = LayerSpec{2, 4, 2, 16, 12, type};
  const auto keys = [&](int layer, int group, int heads) {
    spec.layers[static_cast<size_t>(layer)] = LayerSpec{group, heads, 1, 12, 0, DType::kF32};
    spec.layers[static_cast<size_t>(layer)].keys_only = true;
  };
  keys(kIndex, 1, 3);
  keys(kRaw, 3, 1);
  keys(kLongRaw, 4, 1);
  return spec;
}

inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct CompressedSeq {
  kvc_seq id = 0;
  std::vector<int32_t> tokens;
  std::vector<uint64_t> history;  // of each token: a hash of all tokens up to it
  int64_t longest = 0;            // windows and the margin were last moved there

  void add(int32_t token) {
    history.push_back(mix((history.empty() ? 7 : history.back()) ^ mix(static_cast<uint64_t>(token) + 1)));
    tokens.push_back(token);
    longest = std::max(longest, length());
  }
  void cut(int64_t length) {
    tokens.resize(static_cast<size_t>(length));
    history.resize(static_cast<size_t>(length));
  }
  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
};

}  // namespace kvt
