// How a range of keys is cut into parts: at multiples of an alignment, into as many as are wanted, each of as many
// aligned blocks; the last one has fewer, and there may be fewer parts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"

namespace kvc::kernels {

struct KeySplit {
  int64_t begin, end;   // keys
  int64_t first;        // the aligned block that `begin` is in
  int64_t blocks;       // at least 1
  int64_t blocks_each;  // of a part
  int64_t align;
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

// Keys [*begin, *end) of part i.
KVC_HOST_DEVICE void keys_of_part(const KeySplit& split, int64_t i, int32_t* begin, int32_t* end) {
  const int64_t first = (split.first + i * split.blocks_each) * split.align;
  const int64_t last = first + split.blocks_each * split.align;
  *begin = static_cast<int32_t>(first > split.begin ? first : split.begin);
  *end = static_cast<int32_t>(last < split.end ? last : split.end);
}

}  // namespace kvc::kernels
