// Shortage: which group, and which row of a batch or list of forks, is the first without enough pages.
//
// If several groups have too few pages, the result is the group whose first row without pages comes first. On a tie,
// it is the group with the lower index. The rows before that row fit in every group, so a scheduler can continue with
// them. Plain data.
#pragma once

#include <cstdint>

namespace kvc {

struct Shortage {
  int32_t group = 0;
  int64_t required = 0;  // pages of the group over all rows; 0 = no group has too few
  int64_t row = INT64_MAX;

  bool found() const noexcept { return row != INT64_MAX; }
  // Adds a group that needs `pages` pages. `first` is the first row for which there are too few, or -1 if there are
  // enough.
  void add(int32_t of, int64_t pages, int64_t first) noexcept {
    if (first >= 0 && first < row) *this = {of, pages, first};
  }
};

}  // namespace kvc
