// BatchArrays: the arrays of a kvc_batch in memory of the cache's own. The caller's arrays are read once, so what is
// checked is what the step uses, even if another thread of the caller writes them meanwhile.
//
// Thread safety: none; the cache locks. Allocates when it is created only.
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

  // Reads a batch whose rows and tokens are within the limits, and checks its spans.
  Status read(const kvc_batch& batch);
  // Whether it is within other limits too, those of a graph.
  Status check_limits(const BatchLimits& limits, const char* rows_name, const char* tokens_name) const;
  Status check_spans() const;

  std::span<const kvc_seq> ids() const noexcept { return {ids_.data(), static_cast<size_t>(num_rows_)}; }
  std::span<const int32_t> lengths() const noexcept { return {lengths_.data(), static_cast<size_t>(num_rows_)}; }
  // [tokens], or empty where the batch has none: as kvc_batch's tree_parents.
  std::span<const int32_t> parents() const noexcept {
    return {parents_.data(), static_cast<size_t>(with_trees_ ? num_tokens_ : 0)};
  }
  bool with_trees() const noexcept { return with_trees_; }
  bool with_spans() const noexcept { return with_spans_; }
  // Whether some token of a row has a span, and the ids then: [tokens].
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
