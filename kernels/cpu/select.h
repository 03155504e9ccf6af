// Declares what the selection of keys (kvc_backend_select) needs. A call computes the scores of the keys that each
// query sees, and then chooses the entries with the highest scores.
//
// Roofline: the limit is one read of the keys if there are few heads, and the rate of multiply-adds if there are many
// (64). Keys are packed once for all queries of an item, and the inner loops of the panel kernel compute the scores
// (attend/score_keys.h). Scores are written to memory as float32, so that several threads can score keys of the same
// query. This costs little, because a score has 4 bytes, and a key has hundreds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/mask.h"
#include "kernels/cpu/listed_keys.h"

namespace kvc::kernels {

// The first key of an item, and the first scored key of a query, are multiples of this number. It is a multiple of the
// number of lanes of every SIMD target.
constexpr int32_t kScoreAlign = 512;

// Returns the key to which the first score of a query belongs. For the mask of a list of candidates, the result is 0,
// the first place in the list.
constexpr int32_t first_scored(const QueryMask& mask) {
  return mask.positions.begin - mask.positions.begin % kScoreAlign;
}

// Says where the scores of an item's queries are written. The score of query i of the item, list l and key j is at
//   scores + i * query_stride + (l - list_begin) * list_stride + j - first_scored
// Scores of keys that the query does not see are undefined.
struct ScoreCall {
  const kvc_backend_select* select;
  float* scores;
  int64_t query_stride, list_stride;
  int32_t list_begin, list_end;
};

}  // namespace kvc::kernels
