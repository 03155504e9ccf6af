// Whether rows that share a prefix should attend to it as one group.
//
// Together, K and V of the prefix are read once and queries are stacked; in return every query's state over the prefix
// is written, read and merged with that over the rest. Costs are in bytes of K and V read, for one kv head: what limits
// decoding, and what the other costs were measured against (docs/internals/cpu.md).
//
// Pure functions of their arguments.
#pragma once

#include <cstdint>

namespace kvc {

struct PrefixCase {
  int32_t rows = 0;        // sequences that share the prefix
  int32_t queries = 0;     // of all of them
  int64_t keys = 0;        // of the prefix
  bool nested = false;     // the rows share what is before these keys already: their states are merged in any case
  int32_t group_size = 1;  // q heads a kv head
  int32_t head_dim = 1, v_head_dim = 1;
  int32_t key_bytes = 1;  // K and V of one token and kv head
};

double cost_apart(const PrefixCase& prefix) noexcept;
double cost_together(const PrefixCase& prefix) noexcept;
bool sharing_pays(const PrefixCase& prefix) noexcept;

}  // namespace kvc
