// SavedSequence: the description of a sequence, without the bytes of its rows and states. Its numbers count tokens, so
// they do not depend on a page size. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "sequence/group_rules.h"

namespace kvc {

struct SavedSequence {
  struct List {
    int64_t tokens = 0;                    // length of the sequence, or of its encoder sequence; 0 in a group of states
    int64_t hole_begin = 0, hole_end = 0;  // tokens [begin, end) were freed; equal = no hole

    int64_t held() const noexcept { return tokens - (hole_end - hole_begin); }
  };

  int64_t length = 0;
  StreamWindow stream = {};
  bool streamed = false;             // has or had a streaming window
  std::vector<List> lists;           // [groups]
  std::vector<int64_t> checkpoints;  // positions, ascending; the last one may equal length

  // The number of states in a group of states: one for each checkpoint before the length, and one for the length.
  int64_t num_states() const noexcept {
    const bool at_end = !checkpoints.empty() && checkpoints.back() == length;
    return static_cast<int64_t>(checkpoints.size()) - (at_end ? 1 : 0) + (length > 0 ? 1 : 0);
  }
};

}  // namespace kvc
