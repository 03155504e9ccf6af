#include "sequence/token_tree.h"

namespace kvc {

void number_tree(std::span<const int16_t> parents, int32_t first_position, kvc_backend_tree_node* nodes) noexcept {
  const auto count = static_cast<int32_t>(parents.size());
  // Sizes of subtrees, in `exit`: children come after their parents.
  for (int32_t i = 0; i < count; ++i) nodes[i] = {0, 1, 0, 0};
  for (int32_t i = count; i-- > 0;) {
    if (parents[static_cast<size_t>(i)] >= 0) nodes[parents[static_cast<size_t>(i)]].exit += nodes[i].exit;
  }
  // Each node's interval begins where its parent's children so far end (kept in the parent's `reserved` meanwhile).
  int32_t roots_end = 0;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t parent = parents[static_cast<size_t>(i)];
    kvc_backend_tree_node& node = nodes[i];
    int32_t& begin = parent < 0 ? roots_end : nodes[parent].reserved;
    node.enter = begin;
    node.exit = begin += node.exit;
    node.position = parent < 0 ? first_position : nodes[parent].position + 1;
    node.reserved = node.enter + 1;
  }
  for (int32_t i = 0; i < count; ++i) nodes[i].reserved = 0;
}

int32_t path_to(std::span<const int16_t> parents, int32_t leaf, std::span<int32_t> path) noexcept {
  int32_t length = 0;
  for (int32_t node = leaf; node >= 0; node = parents[static_cast<size_t>(node)]) ++length;
  int32_t at = length;
  for (int32_t node = leaf; node >= 0; node = parents[static_cast<size_t>(node)])
    path[static_cast<size_t>(--at)] = node;
  return length;
}

}  // namespace kvc
