// Decides whether rows that share a prefix attend to it together.
//
// If the rows attend together, their queries are stacked, and K and V of the prefix are read once for all rows. But the
// state of every query over the prefix must be written, read, and merged with its state over the other keys. Costs are
// for one kv head. Their unit is one byte of K and V that is read, because reads limit decoding. The other costs were
// measured as multiples of this unit (docs/internals/cpu.md).
//
// Pure functions of their arguments.
#pragma once

#include <cstdint>

namespace kvc {

struct PrefixCase {
  int32_t rows = 0;        // number of sequences that share the prefix
  int32_t queries = 0;     // number of queries of all these sequences
  int64_t keys = 0;        // number of keys of the prefix
  bool nested = false;     // the rows already share the keys before the prefix, so their states are merged in any case
  int32_t group_size = 1;  // number of q heads for each kv head
  int32_t head_dim = 1, v_head_dim = 1;
  int32_t key_bytes = 1;  // bytes of K and V of one token and kv head
};

double cost_apart(const PrefixCase& prefix) noexcept;
double cost_together(const PrefixCase& prefix) noexcept;
bool sharing_pays(const PrefixCase& prefix) noexcept;

}  // namespace kvc
