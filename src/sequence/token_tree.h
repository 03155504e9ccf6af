// Token trees: draft tokens (nodes) after a sequence's last token. A tree is given as the parent of each node. A
// parent comes before its children (is_parent), and the parent of a root is KVC_TREE_ROOT. These are pure functions
// of the parents.
#pragma once

#include <cstdint>
#include <span>

#include "kvcache_backend.h"

namespace kvc {

inline constexpr int64_t kMaxTreeNodes = 1024;  // nodes are counted in 16 bits

// Whether `parent` may be the parent of node `node`.
constexpr bool is_parent(int32_t parent, int64_t node) noexcept { return parent >= KVC_TREE_ROOT && parent < node; }

// Fills nodes[0..parents.size()) with depth-first intervals. Siblings are numbered in the order of their indices, and
// roots too. The position of a node is `first_position` + its depth.
void number_tree(std::span<const int16_t> parents, int32_t first_position, kvc_backend_tree_node* nodes) noexcept;

// Writes the nodes from a root to `leaf`, in ascending order, to the front of `path`, which has room for all nodes.
// For leaf -1, writes no node. Returns the number of nodes.
int32_t path_to(std::span<const int16_t> parents, int32_t leaf, std::span<int32_t> path) noexcept;

}  // namespace kvc
