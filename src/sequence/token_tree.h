// Token trees: nodes that a step drafts after a sequence's last token, given as the parent of each node. Pure functions
// of the parents, which come before their children (is_parent); a root's parent is KVC_TREE_ROOT.
#pragma once

#include <cstdint>
#include <span>

#include "kvcache_backend.h"

namespace kvc {

inline constexpr int64_t kMaxTreeNodes = 1024;  // nodes are counted in 16 bits

// Whether `parent` may be the parent of node `node`.
constexpr bool is_parent(int32_t parent, int64_t node) noexcept { return parent >= KVC_TREE_ROOT && parent < node; }

// Fills nodes[0..parents.size()): depth-first intervals, children in index order, roots one after another; positions
// are `first_position` + depth.
void number_tree(std::span<const int16_t> parents, int32_t first_position, kvc_backend_tree_node* nodes) noexcept;

// The nodes from a root to `leaf`, in order (so ascending), to the front of `path`; leaf -1: none. Returns how many.
// Room for all nodes.
int32_t path_to(std::span<const int16_t> parents, int32_t leaf, std::span<int32_t> path) noexcept;

}  // namespace kvc
