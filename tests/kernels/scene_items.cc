// The work items of a scene. Its config says how they are cut, and not a plan.
#include <algorithm>
#include <cmath>

#include "scene.h"

namespace kvc::kernels::test {

// Adds the splits of one tile over the keys of the row.
void Scene::add_items(const kvc_backend_item& whole, int key_begin, int key_end, int splits, int64_t* offset) {
  for (int s = 0; s < splits; ++s) {
    kvc_backend_item item = whole;
    item.key_begin = static_cast<int32_t>(key_begin + int64_t{key_end - key_begin} * s / splits);
    item.key_end = static_cast<int32_t>(key_begin + int64_t{key_end - key_begin} * (s + 1) / splits);
    item.partial_offset = *offset;
    const int64_t states =
        int64_t{item.q_end - item.q_begin} * (item.head_end - item.head_begin) * (config_.q_heads / config_.kv_heads);
    *offset += states * (config_.v_head_dim + 2);
    items_.push_back(item);
  }
}

// Adds the shared items, and the tiles of their rows with these states as parts. The parts of a tile must be
// neighbours, so the items are listed by rows later.
void Scene::add_shared_items(int64_t* offset) {
  shared_keys_.assign(config_.rows.size(), 0);
  shared_tiles_.assign(config_.rows.size(), -1);
  const int heads = config_.heads_per_item > 0 ? config_.heads_per_item : config_.kv_heads;
  std::vector<std::vector<int64_t>> parts(config_.rows.size());
  std::vector<int> finishes(config_.rows.size(), 0);
  for (const SceneShare& share : config_.shares) {
    for (int row : share.rows) {
      if (shared_tiles_[row] < 0) {
        shared_tiles_[row] = static_cast<int>(tiles_.size());
        tiles_.push_back({});
      }
      shared_keys_[row] = share.end;
    }
    for (int s = 0; s < config_.splits; ++s) {
      kvc_backend_item item = {};
      item.row = share.rows[0];
      item.tile = -1;
      item.partial_offset = -1;
      item.key_begin = share.begin + (share.end - share.begin) * s / config_.splits;
      item.key_end = share.begin + (share.end - share.begin) * (s + 1) / config_.splits;
      item.span_begin = static_cast<int32_t>(spans_.size());
      for (int row : share.rows) {
        const int queries = config_.rows[row].queries;
        spans_.push_back({row, 0, queries, shared_tiles_[row], *offset});
        parts[row].push_back(*offset);
        *offset += int64_t{queries} * config_.q_heads * (config_.v_head_dim + 2);
        item.q_end += queries;
      }
      item.span_end = static_cast<int32_t>(spans_.size());
      for (int h = 0; h < config_.kv_heads; h += heads) {
        item.head_begin = h;
        item.head_end = std::min(h + heads, config_.kv_heads);
        items_.push_back(item);
        for (int row : share.rows) ++finishes[row];
      }
    }
  }
  for (size_t r = 0; r < parts.size(); ++r) {
    if (shared_tiles_[r] < 0) continue;
    const auto begin = static_cast<int32_t>(parts_.size());
    parts_.insert(parts_.end(), parts[r].begin(), parts[r].end());
    tiles_[shared_tiles_[r]] = {0, 0, begin, static_cast<int32_t>(parts_.size()), finishes[r], 0};
  }
}

void Scene::build_items() {
  int64_t offset = 0;
  add_shared_items(&offset);
  for (size_t r = 0; r < config_.rows.size(); ++r) {
    const SceneRow& row = config_.rows[r];
    const bool shares = shared_tiles_[r] >= 0;
    const int tile = config_.query_tile > 0 && !shares ? config_.query_tile : row.queries;
    const int heads = config_.heads_per_item > 0 && !shares ? config_.heads_per_item : config_.kv_heads;
    for (int q = 0; q < row.queries; q += tile) {
      for (int h = 0; h < config_.kv_heads; h += heads) {
        kvc_backend_item item = {};
        item.row = static_cast<int32_t>(r);
        item.q_begin = q;
        item.q_end = std::min(q + tile, row.queries);
        item.head_begin = h;
        item.head_end = std::min(h + heads, config_.kv_heads);
        item.tile = -1;
        item.partial_offset = -1;
        item.key_end = row.kv_length + 1000;  // more than there are
        if (config_.splits <= 1 && row.stream_window == 0 && !shares) {
          items_.push_back(item);
          continue;
        }
        item.tile = shares ? shared_tiles_[r] : static_cast<int32_t>(tiles_.size());
        if (!shares) tiles_.push_back({});
        tiles_[item.tile].item_begin = static_cast<int32_t>(items_.size());
        if (row.stream_window > 0) {
          item.part = KVC_BACKEND_PART_SINKS;
          add_items(item, 0, row.kv_length, 1, &offset);
          item.part = KVC_BACKEND_PART_ALL;
        }
        add_items(item, shared_keys_[r], row.kv_length, config_.splits, &offset);
        tiles_[item.tile].item_end = static_cast<int32_t>(items_.size());
      }
    }
  }
  partials_.assign(static_cast<size_t>(offset), NAN);
  counters_.resize(tiles_.size());
}

}  // namespace kvc::kernels::test
