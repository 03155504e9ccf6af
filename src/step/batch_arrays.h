// BatchArrays: copies of the arrays of a kvc_batch. The caller's arrays are read only once. So the step uses the
// values that were checked, even if another thread of the caller writes the arrays during the call.
//
// Thread safety: none; calls are made under the cache's lock. Allocates memory in the constructor only.
#pragma once

#include <span>

#include "base/lazy_array.h"
#include "base/status.h"
#include "plan/batch_plan.h"

namespace kvc {

class BatchArrays {
 public:
  // Throws std::bad_alloc.
  explicit BatchArrays(const BatchLimits& limits);

  // Copies the arrays of a batch, and checks that its rows and tokens are within the limits.
  Status read(const kvc_batch& batch);
  // Checks the batch against other limits, such as those of a graph. The names are for the message.
  Status check_limits(const BatchLimits& limits, const char* rows_name, const char* tokens_name) const;
  Status check_spans() const;

  std::span<const kvc_seq> ids() const noexcept { return {ids_.data(), static_cast<size_t>(num_rows_)}; }
  std::span<const int32_t> lengths() const noexcept { return {lengths_.data(), static_cast<size_t>(num_rows_)}; }
  // kvc_batch.tree_parents: [tokens], or empty if the batch has none.
  std::span<const int32_t> parents() const noexcept {
    return {parents_.data(), static_cast<size_t>(with_trees_ ? num_tokens_ : 0)};
  }
  bool with_trees() const noexcept { return with_trees_; }
  bool with_spans() const noexcept { return with_spans_; }
  // Whether a token of a row is in a span. Then span_ids has the ids: [tokens].
  bool has_spans() const noexcept;
  const int32_t* span_ids() const noexcept { return span_ids_.data(); }
  int32_t num_rows() const noexcept { return num_rows_; }

 private:
  LazyArray<kvc_seq> ids_;       // [rows]
  LazyArray<int32_t> lengths_;   // [rows]
  LazyArray<int32_t> parents_;   // [tokens]
  LazyArray<int32_t> span_ids_;  // [tokens]
  BatchLimits limits_;
  int32_t num_rows_ = 0;
  int64_t num_tokens_ = 0;
  bool with_trees_ = false;
  bool with_spans_ = false;
};

}  // namespace kvc
