// Cuts a range of keys into parts, which are ranges too. The first part begins where the range begins. Every other part
// begins at a multiple of `align`. All parts have the same number of blocks of `align` keys, but the last part may have
// fewer. There may be fewer than `wanted` parts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"

namespace kvc::kernels {

struct KeySplit {
  int64_t begin, end;   // the range of keys
  int64_t first;        // number of the block that contains `begin`; block i is [i * align, (i + 1) * align)
  int64_t blocks;       // number of blocks that the range touches; at least 1
  int64_t blocks_each;  // number of blocks of every part except the last
  int64_t align;        // keys of a block
};

KVC_HOST_DEVICE KeySplit split_keys(int64_t begin, int64_t end, int64_t align, int64_t wanted) {
  KeySplit split;
  split.begin = begin;
  split.end = end;
  split.align = align;
  split.first = begin / align;
  split.blocks = (end + align - 1) / align - split.first;
  if (split.blocks < 1) split.blocks = 1;
  split.blocks_each = wanted > 1 ? (split.blocks + wanted - 1) / wanted : split.blocks;
  return split;
}

KVC_HOST_DEVICE int64_t count_parts(const KeySplit& split) {
  return (split.blocks + split.blocks_each - 1) / split.blocks_each;
}

// Returns the keys [*begin, *end) of part i.
KVC_HOST_DEVICE void keys_of_part(const KeySplit& split, int64_t i, int32_t* begin, int32_t* end) {
  const int64_t first = (split.first + i * split.blocks_each) * split.align;
  const int64_t last = first + split.blocks_each * split.align;
  *begin = static_cast<int32_t>(first > split.begin ? first : split.begin);
  *end = static_cast<int32_t>(last < split.end ? last : split.end);
}

}  // namespace kvc::kernels
