#include "sequence/token_tree.h"

namespace kvc {

void number_tree(std::span<const int16_t> parents, int32_t first_position, kvc_backend_tree_node* nodes) noexcept {
  struct Place {
    int32_t size;  // number of nodes in its subtree, itself included
    int32_t next;  // where the interval of its next child begins
    int32_t position;
  };
  const size_t count = parents.size();
  Place places[kMaxTreeNodes + 1];  // places[0] is the parent of the roots, and places[i + 1] is node i
  for (size_t i = 0; i <= count; ++i) places[i].size = 1;
  for (size_t i = count; i-- > 0;) places[parents[i] + 1].size += places[i + 1].size;  // children come after parents
  places[0].next = 0;
  places[0].position = first_position - 1;
  for (size_t i = 0; i < count; ++i) {
    Place &parent = places[parents[i] + 1], &place = places[i + 1];
    const int32_t enter = parent.next, exit = enter + place.size, position = parent.position + 1;
    parent.next = exit;
    place.next = enter + 1;
    place.position = position;
    nodes[i] = {enter, exit, position, parents[i]};
  }
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
