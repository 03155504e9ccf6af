// The parts of a transfer between two ranks. Both sides count the progress of each part. A part is either a run or the
// states of a group. A run has the rows of one layer that are of one kind, such as K (RowRun), with the heads that the
// sender sends to the receiver. Its progress is counted in rows: a row represents one token, or several tokens in a
// group of compressed rows. The progress of states is counted in bytes. Both sides have equal parts, because their
// layouts are equal. The functions are pure, and any thread may call them.
#pragma once

#include <span>
#include <vector>

#include "layer/row_copy.h"

namespace kvc {

struct TransferPart {
  int32_t group = 0;
  bool state = false;
  RowRun run;              // unused for states
  int64_t unit_bytes = 1;  // the unit of progress: the bytes of a row; 1 for states
  int64_t row_tokens = 1;  // GroupRules::tokens_per_row
  int64_t begin = 0;       // units [begin, end) are sent
  int64_t end = 0;
  int64_t next = 0;  // units [begin, next) were sent, or received

  bool complete() const noexcept { return next == end; }
};

// The ranks of a transfer. One of them is the rank of this cache.
struct TransferRanks {
  TpRank sender, receiver;
};

// Returns the parts of a transfer between two ranks. States are a part only if the two ranks are equal.
//   begins  for each group, the first token that is sent
// Throws std::bad_alloc.
std::vector<TransferPart> transfer_parts(const Layers& layers, TransferRanks ranks, std::span<const int64_t> begins,
                                         int64_t num_tokens);
// Returns whether the sender has anything to send to the receiver.
bool have_parts(const Geometry& geometry, TransferRanks ranks) noexcept;
// Returns whether the other side of a transfer may have `tp_size` ranks. Each layer must be able to share its heads
// among them. If a layer has states, tp_size must equal that of this cache.
bool can_have_ranks(const Geometry& geometry, int32_t tp_size) noexcept;

// Returns how many leading tokens were sent, or received, in every part. A complete part counts as num_tokens.
// Parts of states are ignored.
int64_t tokens_of(const std::vector<TransferPart>& parts, int64_t num_tokens) noexcept;

}  // namespace kvc
