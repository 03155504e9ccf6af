// What a Geometry computes from its layers.
#include <algorithm>

#include "layer/geometry.h"

namespace kvc {

int64_t Geometry::group_page_bytes(int32_t group) const noexcept {
  int64_t bytes = 0;
  for (const LayerGeometry& layer : layers) bytes += layer.group == group ? layer.page_bytes : 0;
  return bytes;
}

int64_t Geometry::group_token_bytes(int32_t group) const noexcept {
  int64_t bytes = 0;
  for (const LayerGeometry& layer : layers) bytes += layer.group == group ? layer.token_bytes : 0;
  return bytes;
}

int64_t Geometry::group_storage_bytes(int32_t group) const noexcept {
  const SequenceStoreConfig::Group& g = store.groups[static_cast<size_t>(group)];
  return tables_only && !g.rules.holds_state() ? 0 : g.num_pages * group_page_bytes(group);
}

int64_t Geometry::storage_bytes() const noexcept {
  int64_t bytes = 0;
  for (size_t g = 0; g < store.groups.size(); ++g) bytes += group_storage_bytes(static_cast<int32_t>(g));
  return bytes;
}

bool Geometry::has_rope_sets() const noexcept {
  return std::any_of(rope_classes.begin(), rope_classes.end(),
                     [](const RopeClass& rope) { return rope.sets.size() > 1; });
}

}  // namespace kvc
