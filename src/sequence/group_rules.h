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

  bool windowed() const noexcept { return window_tokens > 0; }

  // First position that a query at `position` may read.
  int64_t first_visible(int64_t position) const noexcept {
    return windowed() ? std::max<int64_t>(0, position - window_tokens + 1) : 0;
  }

  // Pages that no query from `length - rollback` on can read: they are freed when a sequence reaches `length`.
  int64_t droppable_pages(int64_t length) const noexcept {
    return first_visible(std::max<int64_t>(0, length - rollback_tokens)) / page_size;
  }

  // Whether a sequence whose first `dropped` pages are gone can be cut at `position` and go on from there.
  bool works_at(int64_t position, int64_t dropped_pages) const noexcept {
    return dropped_pages == 0 || position == 0 || dropped_pages * page_size <= first_visible(position);
  }

  // The smallest position > 0 at which that works.
  int64_t first_working(int64_t dropped_pages) const noexcept {
    return dropped_pages == 0 ? 0 : dropped_pages * page_size + window_tokens - 1;
  }

  // Most pages one sequence holds: behind the next query its window and the rollback margin, the chunk, and one page
  // because neither end needs to be aligned.
  int64_t peak_pages(int64_t chunk_tokens) const noexcept {
    return ceil_div(window_tokens - 1 + rollback_tokens + chunk_tokens, page_size) + 1;
  }
};

}  // namespace kvc
