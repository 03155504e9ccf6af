#include <algorithm>

#include "tables/borrowed_tensor.h"
#include "tables/table_set.h"

namespace kvc {

TokenSet::TokenSet(int64_t max_tokens, int64_t max_rows) : fixed_(max_tokens > 0) {
  if (!fixed_) return;
  slots_.reserve(max_tokens);
  positions_.reserve(max_tokens);
  last_rows_.reserve(max_rows);
  std::fill_n(slots_.data(), max_tokens, int64_t{-1});
  std::fill_n(last_rows_.data(), max_rows, -1);
  tokens_ = max_tokens;
  rows_ = max_rows;
}

Status TokenSet::check(std::span<const TokenRun> runs, const TableSource& source) const {
  for (const TokenRun& run : runs) {
    if (run.entry >= 0) KVC_TRY(source.check_slots(run.row, run.entry, run.entry + run.count));
  }
  return Status();
}

void TokenSet::write(std::span<const TokenRun> runs, std::span<const StepRow> step, int32_t tokens_a_row,
                     const TableSource& source) {
  int64_t tokens = 0;
  for (const TokenRun& run : runs) tokens += run.count;
  const auto rows = static_cast<int64_t>(step.size());
  if (!fixed_) {
    slots_.reserve(tokens);
    positions_.reserve(tokens);
    last_rows_.reserve(rows);
    tokens_ = tokens;
    rows_ = rows;
  }
  int64_t at = 0;
  for (const TokenRun& run : runs) {
    if (run.count == 1 && run.entry >= 0) {  // decode
      source.slots(run.row, run.entry, run.entry + 1, slots_.data() + at);
      positions_[at++] = run.nodes != nullptr ? run.nodes->position : run.position;
      continue;
    }
    if (run.entry >= 0) {
      source.slots(run.row, run.entry, run.entry + run.count, slots_.data() + at);
    } else {
      std::fill_n(slots_.data() + at, run.count, int64_t{-1});
    }
    if (run.nodes != nullptr) {
      for (int32_t i = 0; i < run.count; ++i) positions_[at + i] = run.nodes[i].position;
    } else {
      for (int32_t i = 0; i < run.count; ++i) positions_[at + i] = run.entry >= 0 ? run.position + i : 0;
    }
    at += run.count;
  }
  int32_t last = -1;
  for (int64_t r = 0; r < rows; ++r) {
    const int32_t fresh = tokens_a_row > 0 ? tokens_a_row : step[static_cast<size_t>(r)].fresh;
    last += fresh;
    last_rows_[r] = fresh > 0 ? last : -1;
  }
  for (; at < used_tokens_; ++at) {
    slots_[at] = -1;
    positions_[at] = 0;
  }
  for (int64_t r = rows; r < used_rows_; ++r) last_rows_[r] = -1;
  used_tokens_ = fixed_ ? tokens : 0;
  used_rows_ = fixed_ ? rows : 0;
}

void TokenSet::describe(kvc_tables* out) noexcept {
  out->slot_mapping = borrowed_tensor(slots_.data(), &tokens_);
  out->positions = borrowed_tensor(positions_.data(), &tokens_);
  out->last_rows = borrowed_tensor(last_rows_.data(), &rows_);
}

}  // namespace kvc
