// What a layer group's kind means for its page lists: which pages may be freed, and which positions still work.
// Pure functions of lengths; all in tokens unless named otherwise.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/checked.h"

namespace kvc {

struct GroupRules {
  int64_t window_tokens = 0;  // a query at p sees p-w+1..p; 0 = everything
  int64_t rollback_tokens = 0;
  int64_t page_size = 1;
  int64_t chunk_tokens = 0;  // instead of a window: it sees its chunk up to itself, positions from p/c*c on

  bool windowed() const noexcept { return window_tokens > 0 || chunk_tokens > 0; }

  // First position that a query at `position` may read.
  int64_t first_visible(int64_t position) const noexcept {
    if (chunk_tokens > 0) return position - position % chunk_tokens;
    return window_tokens > 0 ? std::max<int64_t>(0, position - window_tokens + 1) : 0;
  }

  // Tokens that no query from `length - rollback` on can read, and the whole pages of them: these are freed when a
  // sequence reaches `length`.
  int64_t droppable_tokens(int64_t length) const noexcept {
    return first_visible(std::max<int64_t>(0, length - rollback_tokens));
  }
  int64_t droppable_pages(int64_t length) const noexcept { return droppable_tokens(length) / page_size; }

  // Whether a sequence whose first `dropped` pages are gone can be cut at `position` and go on from there.
  bool works_at(int64_t position, int64_t dropped_pages) const noexcept {
    return dropped_pages == 0 || position == 0 || dropped_pages * page_size <= first_visible(position);
  }

  // The smallest position > 0 at which that works.
  int64_t first_working(int64_t dropped_pages) const noexcept {
    if (dropped_pages == 0) return 0;
    const int64_t first = dropped_pages * page_size;
    return chunk_tokens > 0 ? ceil_div(first, chunk_tokens) * chunk_tokens : first + window_tokens - 1;
  }

  // Most pages one sequence holds: behind the next query its window or chunk and the rollback margin, the tokens of a
  // step, and one page because neither end needs to be aligned.
  int64_t peak_pages(int64_t step_tokens) const noexcept {
    return ceil_div(std::max(window_tokens, chunk_tokens) - 1 + rollback_tokens + step_tokens, page_size) + 1;
  }
};

}  // namespace kvc
