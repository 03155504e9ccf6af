// The parts of a transfer between two ranks: what both sides count. The rows of one run (RowCopy) are a part, counted
// in rows, and so are the states of a group, counted in bytes. A run has those heads that travel between the two ranks.
// A row is of one token, but in groups with a row for each of several tokens. Equal layouts give equal parts. Pure
// functions; any thread.
#pragma once

#include <span>
#include <vector>

#include "layer/row_copy.h"

namespace kvc {

struct TransferPart {
  int32_t group = 0;
  bool state = false;
  RowRun run;              // of rows
  int64_t unit_bytes = 1;  // of one row
  int64_t row_tokens = 1;  // GroupRules::tokens_per_row
  int64_t begin = 0;       // the units that travel: [begin, end)
  int64_t end = 0;
  int64_t next = 0;  // units before it were sent, or received

  bool complete() const noexcept { return next == end; }
};

// The ranks of a transfer. One of them is this cache's.
struct TransferRanks {
  TpRank sender, receiver;
};

// begins: of each group, the first token that travels. States travel between equal ranks alone. Throws std::bad_alloc.
std::vector<TransferPart> transfer_parts(const Layers& layers, TransferRanks ranks, std::span<const int64_t> begins,
                                         int64_t num_tokens);
// Whether anything travels between two ranks.
bool have_parts(const Geometry& geometry, TransferRanks ranks) noexcept;
// Whether caches of so many ranks can have these layers.
bool can_have_ranks(const Geometry& geometry, int32_t tp_size) noexcept;

// Tokens that all parts with rows have, and all tokens if they are complete.
int64_t tokens_of(const std::vector<TransferPart>& parts, int64_t num_tokens) noexcept;

}  // namespace kvc
