#include "transfer/transfer_parts.h"

#include <algorithm>

namespace kvc {

std::vector<TransferPart> transfer_parts(const Layers& layers, TransferRanks ranks, std::span<const int64_t> begins,
                                         int64_t num_tokens) {
  std::vector<TransferPart> parts;
  for (int32_t g = 0; g < layers.num_groups(); ++g) {
    TransferPart part;
    part.group = g;
    const GroupRules& rules = layers.rules(g);
    if (rules.holds_state()) {
      part.state = true;
      part.end = RowCopy::state_bytes(layers, g);
      if (ranks.sender == ranks.receiver) parts.push_back(part);
      continue;
    }
    part.row_tokens = rules.tokens_per_row;
    part.begin = part.next = rules.rows_of(begins[static_cast<size_t>(g)]);
    part.end = rules.rows_of(num_tokens);
    for (const RowRun& run : RowCopy::runs(layers, g)) {
      const int32_t total = layers.geometry(run.layer).total_kv_heads;
      HeadRange heads = sent_heads(total, ranks.sender, ranks.receiver);
      if (heads.count == 0) continue;
      heads.first -= heads_of_rank(total, layers.geometry().tp).first;
      part.run = run.of_heads(heads);
      part.unit_bytes = part.run.token_bytes;
      parts.push_back(part);
    }
  }
  return parts;
}

bool have_parts(const Geometry& geometry, TransferRanks ranks) noexcept {
  return ranks.sender == ranks.receiver ||
         std::any_of(geometry.layers.begin(), geometry.layers.end(), [&](const LayerGeometry& layer) {
           return layer.states.empty() && sent_heads(layer.total_kv_heads, ranks.sender, ranks.receiver).count > 0;
         });
}

bool can_have_ranks(const Geometry& geometry, int32_t tp_size) noexcept {
  return tp_size >= 1 && tp_size <= kMaxTpSize &&
         std::all_of(geometry.layers.begin(), geometry.layers.end(), [&](const LayerGeometry& layer) {
           return layer.states.empty() ? can_share_heads(layer.total_kv_heads, tp_size) : tp_size == geometry.tp.size;
         });
}

int64_t tokens_of(const std::vector<TransferPart>& parts, int64_t num_tokens) noexcept {
  int64_t tokens = num_tokens;
  for (const TransferPart& part : parts) {
    if (!part.state && !part.complete()) tokens = std::min(tokens, part.next * part.row_tokens);
  }
  return tokens;
}

}  // namespace kvc
