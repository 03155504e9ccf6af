#include "transfer/transfer_parts.h"

#include <algorithm>

namespace kvc {

std::vector<TransferPart> transfer_parts(const Layers& layers, std::span<const int64_t> begins, int64_t num_tokens) {
  std::vector<TransferPart> parts;
  for (int32_t g = 0; g < layers.num_groups(); ++g) {
    TransferPart part;
    part.group = g;
    const GroupRules& rules = layers.geometry().store.groups[static_cast<size_t>(g)].rules;
    if (rules.holds_state()) {
      part.state = true;
      part.end = RowCopy::state_bytes(layers, g);
      parts.push_back(part);
      continue;
    }
    part.row_tokens = rules.tokens_per_row;
    part.begin = part.next = rules.rows_of(begins[static_cast<size_t>(g)]);
    part.end = rules.rows_of(num_tokens);
    for (const RowRun& run : RowCopy::runs(layers, g)) {
      part.run = run;
      part.unit_bytes = run.token_bytes;
      parts.push_back(part);
    }
  }
  return parts;
}

int64_t tokens_of(const std::vector<TransferPart>& parts, int64_t num_tokens) noexcept {
  int64_t tokens = num_tokens;
  for (const TransferPart& part : parts) {
    if (!part.state && !part.complete()) tokens = std::min(tokens, part.next * part.row_tokens);
  }
  return tokens;
}

}  // namespace kvc
