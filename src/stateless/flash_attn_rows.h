// FlashAttnRows has the values of a call's index tensors in the form that a backend needs: rows with lengths and
// positions, their page lists, and the slots of new tokens. Each value is read once, into this object, and then
// checked. So a thread that writes the caller's tensors during the call can change results, but not the addresses that
// the call reads or writes.
//
// Thread safety: none; one call at a time. Buffers are kept for later calls, so a call allocates only if a buffer is
// too small. The functions may throw std::bad_alloc.
#pragma once

#include <cstdint>
#include <vector>

#include "base/lazy_array.h"
#include "kvcache_backend.h"
#include "plan/work_plan.h"
#include "stateless/flash_attn_call.h"

namespace kvc {

class FlashAttnRows {
 public:
  // Reads and checks lengths and positions.
  Status build(const FlashAttnCall& call);
  // Must be called after build. Reads and checks the page ids of all keys that the call writes, or that the items of
  // `plan` read. Then computes the slots of new tokens.
  Status map_pages(const FlashAttnCall& call, const WorkPlan& plan);

  const kvc_backend_rows& rows() const noexcept { return rows_; }
  const kvc_backend_tables& tables() const noexcept { return tables_; }
  // The new tokens of row r are [new_begin()[r], new_begin()[r + 1]) of k and v.
  const int32_t* new_begin() const noexcept { return new_begin_.data(); }
  const int64_t* slots() const noexcept { return slots_.data(); }  // [new tokens]
  // The numbers of the rows of the caller's cos and sin, if the call has cos and sin.
  const int32_t* query_rotations() const noexcept { return query_rotations_.data(); }  // [queries]
  const int32_t* new_rotations() const noexcept { return new_rotations_.data(); }      // [new tokens]

 private:
  Status build_listed_row(const FlashAttnCall& call, int32_t row);
  Status build_row(const FlashAttnCall& call, int32_t row);
  Status check_unlike(const FlashAttnCall& call);
  Status rotate_row(const FlashAttnCall& call, int32_t row, int64_t cached);
  void place_lists(const FlashAttnCall& call);
  Status read_pages(const FlashAttnCall& call, int32_t row, int64_t begin, int64_t end);

  std::vector<int32_t> token_begin_, new_begin_;               // [rows + 1]
  std::vector<int32_t> kv_lengths_, key_begins_, cache_rows_;  // [rows]
  std::vector<int64_t> page_begin_;                            // [rows]: where a row's page list begins
  LazyArray<int32_t> pages_;                                   // page lists; only ids that the call needs are written
  std::vector<int32_t> positions_, key_ends_;                  // [queries]
  std::vector<int32_t> query_rotations_, new_rotations_;
  std::vector<int64_t> slots_;
  std::vector<int64_t> sorted_;  // cache rows and batch rows, sorted to find equal cache rows
  kvc_backend_rows rows_ = {};
  kvc_backend_tables tables_ = {};
};

}  // namespace kvc
