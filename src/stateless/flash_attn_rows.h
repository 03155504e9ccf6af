// FlashAttnRows: what the index tensors of a call say, as a backend takes it: rows with lengths and positions, their
// page lists, and slots of new tokens. Every value is checked here.
//
// Thread safety: none; one call at a time. Buffers stay for the next call: nothing is allocated once they are large
// enough. Throws std::bad_alloc.
#pragma once

#include <cstdint>
#include <vector>

#include "kvcache_backend.h"
#include "plan/work_plan.h"
#include "stateless/flash_attn_call.h"

namespace kvc {

class FlashAttnRows {
 public:
  // Lengths and positions. `call` must outlive what is read here.
  Status build(const FlashAttnCall& call);
  // Page ids of everything that is read (by `plan`'s rules) or written, and slots of new tokens.
  Status map_pages(const FlashAttnCall& call, const WorkPlan& plan);

  const kvc_backend_rows& rows() const noexcept { return rows_; }
  const kvc_backend_tables& tables() const noexcept { return tables_; }
  // New tokens of row r: [new_begin()[r], new_begin()[r + 1]) of k and v.
  const int32_t* new_begin() const noexcept { return new_begin_.data(); }
  const int64_t* slots() const noexcept { return slots_.data(); }  // [new tokens]
  // Rows of the caller's cos and sin, if there are any.
  const int32_t* query_rotations() const noexcept { return query_rotations_.data(); }  // [queries]
  const int32_t* new_rotations() const noexcept { return new_rotations_.data(); }      // [new tokens]

 private:
  Status build_row(const FlashAttnCall& call, int32_t row);
  Status check_unlike(const FlashAttnCall& call);
  Status rotate_row(const FlashAttnCall& call, int32_t row, int64_t cached);

  std::vector<int32_t> token_begin_, new_begin_;               // [rows + 1]
  std::vector<int32_t> kv_lengths_, key_begins_, cache_rows_;  // [rows]
  std::vector<int64_t> page_begin_;                            // [rows]
  std::vector<int32_t> positions_, key_ends_;                  // [queries]
  std::vector<int32_t> query_rotations_, new_rotations_;
  std::vector<int64_t> slots_;
  std::vector<int64_t> sorted_;  // cache rows, to find one twice
  kvc_backend_rows rows_ = {};
  kvc_backend_tables tables_ = {};
};

}  // namespace kvc
