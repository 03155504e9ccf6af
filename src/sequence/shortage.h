// Shortage: where a batch, or a list of forks, is out of pages first.
//
// Of several groups that have too few pages it is the one whose first row without its pages comes first: the rows
// before that one fit in every group, so a scheduler can go on with them. (A tie goes to the lower group.) Thread
// safety: a value.
#pragma once

#include <cstdint>

namespace kvc {

struct Shortage {
  int32_t group = 0;
  int64_t required = 0;  // pages of the group over all rows; 0 = none is short
  int64_t row = INT64_MAX;

  // A group needs `pages`; `first` is the first row for which they do not suffice, -1 = they do.
  void add(int32_t of, int64_t pages, int64_t first) noexcept {
    if (first >= 0 && first < row) *this = {of, pages, first};
  }
};

}  // namespace kvc
