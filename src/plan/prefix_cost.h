// Whether rows that share a prefix should attend to it as one group.
//
// Together, K and V of the prefix are read once and queries are stacked; in return, the state of every query over the
// prefix is written, read, and merged with its state over the other keys. Costs are for one kv head, and in bytes of K
// and V that are read: reads limit decoding, and the other costs were measured as multiples of them
// (docs/internals/cpu.md).
//
// Pure functions of their arguments.
#pragma once

#include <cstdint>

namespace kvc {

struct PrefixCase {
  int32_t rows = 0;        // sequences that share the prefix
  int32_t queries = 0;     // of all of them
  int64_t keys = 0;        // of the prefix
  bool nested = false;     // the rows already share the keys before these, so their states are merged in any case
  int32_t group_size = 1;  // q heads a kv head
  int32_t head_dim = 1, v_head_dim = 1;
  int32_t key_bytes = 1;  // K and V of one token and kv head
};

double cost_apart(const PrefixCase& prefix) noexcept;
double cost_together(const PrefixCase& prefix) noexcept;
bool sharing_pays(const PrefixCase& prefix) noexcept;

}  // namespace kvc
