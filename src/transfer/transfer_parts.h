// The parts of a transfer: what both sides count. The rows of one run (RowCopy) are a part, counted in rows, and so are
// the states of a group, counted in bytes. A row is of one token, but in groups with a row for each of several tokens.
// Equal layouts give equal parts. Pure functions; any thread.
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

// begins: of each group, the first token that travels. Throws std::bad_alloc.
std::vector<TransferPart> transfer_parts(const Layers& layers, std::span<const int64_t> begins, int64_t num_tokens);

// Tokens that all parts with rows have, and all tokens if they are complete.
int64_t tokens_of(const std::vector<TransferPart>& parts, int64_t num_tokens) noexcept;

}  // namespace kvc
