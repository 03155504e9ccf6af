// A cache config with a group of every row and visibility, and a layer that shares the K and V of another.
#pragma once

#include "wrappers.h"

namespace kvt {

// Group i, and the index of its layer.
enum { kFullGroup, kSlidingGroup, kChunkedGroup, kMlaGroup, kCrossGroup, kRecurrentGroup, kKinds };
inline constexpr int kSharing = kKinds;  // one more layer reads layer 0's K and V
inline constexpr int kHeads = 4, kKvHeads = 2, kDim = 16, kLatent = 12;
inline const char *const kNames[] = {"full", "sliding", "chunked", "mla", "cross", "recurrent"};

struct Hybrid {
  kvc_state_config states[2];
  kvc_layer_config layers[kKinds + 1];
  kvc_group_config groups[kKinds];
  kvc_cache_config config;

  Hybrid() {
    for (kvc_state_config &state : states) {
      kvc_state_config_init(&state);
      state.rank = 1;
      state.shape[0] = 5;
    }
    for (int i = 0; i <= kKinds; i++) {
      kvc_layer_config &layer = layers[i];
      kvc_layer_config_init(&layer);
      layer.group = i % kKinds;
      if (i == kRecurrentGroup) {
        layer.states = states;
        layer.num_states = 2;
        continue;
      }
      layer.num_q_heads = kHeads;
      layer.num_kv_heads = i == kMlaGroup ? 1 : kKvHeads;
      layer.head_dim = kDim;
    }
    layers[kMlaGroup].latent_dim = kLatent;
    layers[kMlaGroup].softmax_scale = 0.25;
    layers[kSharing].kv_layer = 1;
    for (int g = 0; g < kKinds; g++) {
      kvc_group_config_init(&groups[g]);
    }
    groups[kSlidingGroup].visibility = KVC_VISIBLE_WINDOW;
    groups[kChunkedGroup].visibility = KVC_VISIBLE_CHUNK;
    groups[kCrossGroup].visibility = KVC_VISIBLE_ENCODER;
    groups[kMlaGroup].row = KVC_ROW_LATENT;
    groups[kRecurrentGroup].row = KVC_ROW_STATE;
    groups[kSlidingGroup].window_tokens = 7;
    groups[kChunkedGroup].chunk_tokens = 6;
    kvc_cache_config_init(&config);
    config.layers = layers;
    config.groups = groups;
    config.num_layers = kKinds + 1;
    config.num_groups = kKinds;
    config.page_size = 4;
    config.max_sequences = 6;
    config.max_batch_tokens = 32;
    config.max_tree_nodes = 8;
    config.capacity_tokens = 512;
    config.flags = KVC_CACHE_STREAMING;
  }
  Hybrid(const Hybrid &) = delete;
  Hybrid &operator=(const Hybrid &) = delete;
};

}  // namespace kvt
