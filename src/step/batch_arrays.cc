#include "step/batch_arrays.h"

#include <algorithm>
#include <cinttypes>

#include "base/read_once.h"

namespace kvc {

BatchArrays::BatchArrays(const BatchLimits& limits)
    : ids_(limits.rows), lengths_(limits.rows), parents_(limits.tokens), span_ids_(limits.tokens), limits_(limits) {}

Status BatchArrays::read(const kvc_batch& batch) {
  num_rows_ = 0;
  num_tokens_ = 0;
  if (batch.num_sequences < 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "num_sequences %d is negative", batch.num_sequences);
  }
  if (batch.num_sequences > 0 && (batch.sequences == nullptr || batch.append_lengths == nullptr)) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL with num_sequences %d",
                         batch.sequences == nullptr ? "sequences" : "append_lengths", batch.num_sequences);
  }
  num_rows_ = batch.num_sequences;
  KVC_TRY(check_limits(limits_, "max_sequences", "max_batch_tokens"));  // with too many rows, the arrays are not read
  read_once(batch.sequences, num_rows_, ids_.data());
  read_once(batch.append_lengths, num_rows_, lengths_.data());
  int64_t tokens = 0;
  for (const int32_t length : lengths()) tokens += std::max(length, 0);
  num_tokens_ = tokens;
  KVC_TRY(check_limits(limits_, "max_sequences", "max_batch_tokens"));
  with_trees_ = batch.tree_parents != nullptr;
  with_spans_ = batch.span_ids != nullptr;
  if (with_trees_) read_once(batch.tree_parents, num_tokens_, parents_.data());
  if (with_spans_) read_once(batch.span_ids, num_tokens_, span_ids_.data());
  return Status();
}

Status BatchArrays::check_limits(const BatchLimits& limits, const char* rows_name, const char* tokens_name) const {
  if (num_rows_ > limits.rows) {
    return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "%d rows exceed %s %" PRId64, num_rows_, rows_name, limits.rows)
        .missing(num_rows_, limits.rows);
  }
  if (num_tokens_ <= limits.tokens) return Status();
  int64_t first_over = 0;
  for (int64_t tokens = 0; first_over < num_rows_; ++first_over) {
    tokens += std::max(lengths_[first_over], 0);
    if (tokens > limits.tokens) break;
  }
  return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "%" PRId64 " tokens exceed %s %" PRId64, num_tokens_, tokens_name,
                       limits.tokens)
      .at(first_over)
      .missing(num_tokens_, limits.tokens);
}

// Checks that span ids are not negative, and that nodes of trees have no span.
Status BatchArrays::check_spans() const {
  if (!with_spans_) return Status();
  int64_t token = 0;
  for (int32_t row = 0; row < num_rows_; ++row) {
    for (const int64_t end = token + std::max(lengths_[row], 0); token < end; ++token) {
      const int32_t id = span_ids_[token];
      const bool node = with_trees_ && parents_[token] != KVC_TREE_NONE;
      if (ids_[row] == 0 || (id >= 0 && (id == 0 || !node))) continue;
      return Status::error(KVC_ERROR_INVALID_ARGUMENT, "row %d: span_ids[%" PRId64 "] is %d%s", row, token, id,
                           id < 0 ? "" : ", and its token is a node of a tree")
          .at(row);
    }
  }
  return Status();
}

// Span ids of inert rows are ignored.
bool BatchArrays::has_spans() const noexcept {
  int64_t token = 0;
  for (int32_t row = 0; with_spans_ && row < num_rows_; ++row) {
    for (const int64_t end = token + lengths_[row]; token < end; ++token) {
      if (ids_[row] != 0 && span_ids_[token] > 0) return true;
    }
  }
  return false;
}

}  // namespace kvc
