#include <algorithm>

#include "base/assert.h"
#include "tables/table_set.h"
#include "tensor/borrowed_tensor.h"

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

Status TokenSet::check(const StepTokens& tokens, const TableSource& source) const {
  for (const TokenRun& run : tokens.runs) {
    if (run.entry >= 0) KVC_TRY(source.check_slots(run.row, run.entry, run.entry + run.count));
  }
  return Status();
}

void TokenSet::write(const StepTokens& all, const TableSource& source) {
  const int64_t tokens = all.count, rows = static_cast<int64_t>(all.runs.size()) / all.runs_a_row;
  if (!fixed_) {
    slots_.reserve(tokens);
    positions_.reserve(tokens);
    last_rows_.reserve(rows);
    tokens_ = tokens;
    rows_ = rows;
  }
  KVC_ASSERT(tokens <= slots_.size() && rows <= last_rows_.size(), tokens, slots_.size());
  source.slots(all.runs, slots_.data());
  int32_t *positions = positions_.data(), *last_rows = last_rows_.data();
  const TokenRun* run = all.runs.data();
  const int32_t runs_a_row = all.runs_a_row;
  if (all.single) {
    for (int64_t i = 0; i < tokens; ++i) positions[i] = run[i].position;
    for (int32_t r = 0; r < rows; ++r) last_rows[r] = (r + 1) * runs_a_row - 1;
  } else {
    int32_t at = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const int32_t begin = at;
      for (int32_t k = 0; k < runs_a_row; ++k, ++run) {
        const int32_t count = run->count, position = run->position, step = run->entry >= 0 ? 1 : 0;
        if (run->nodes != nullptr) {
          for (int32_t i = 0; i < count; ++i) positions[at + i] = run->nodes[i].position;
        } else {
          for (int32_t i = 0; i < count; ++i) positions[at + i] = position + i * step;
        }
        at += count;
      }
      last_rows[r] = at > begin ? at - 1 : -1;
    }
  }
  for (int64_t i = tokens; i < used_tokens_; ++i) {
    slots_[i] = -1;
    positions_[i] = 0;
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
