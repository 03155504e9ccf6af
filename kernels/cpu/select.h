// Selection of keys: scores of the keys that each query sees, and then the entries with the highest ones.
//
// Roofline: one read of the keys for few heads, multiply-adds for many (64 heads). Keys are packed once for the queries
// of an item, and multiplied by the register tile of the panel kernel (attend/score_keys.h). Scores go to memory as
// float32, a few bytes for a key of hundreds, so that all threads can score the keys of one query.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/mask.h"
#include "kernels/cpu/listed_keys.h"

namespace kvc::kernels {

// Keys of an item begin at multiples of it, and so do the scores of a query. A multiple of every vector's lanes.
constexpr int32_t kScoreAlign = 512;

// The key, or the place in its list of candidates, to which the first score of a query belongs.
constexpr int32_t first_scored(const QueryMask& mask) {
  return mask.positions.begin - mask.positions.begin % kScoreAlign;
}

// Scores of the queries of one item. That of query i of the item, list l and key j is at
//   scores + i * query_stride + (l - list_begin) * list_stride + j - first_scored.
// Scores of keys that the query does not see are undefined.
struct ScoreCall {
  const kvc_backend_select* select;
  float* scores;
  int64_t query_stride, list_stride;
  int32_t list_begin, list_end;
};

}  // namespace kvc::kernels
