// TableSet: the arrays of one table, written from TableRows and a TableSource, and handed out as borrowed DLTensors.
//
// Thread safety: none. Ownership: of its arrays. Invariants
//   1. With a capacity (graph mode) addresses and shapes never change, and rows, pages and tokens that are not used are
//      inert: no keys, no queries, the padding value, slot -1.
//   2. written_[r] columns of row r of the block table hold pages, those from there to padded_[r] the padding value.
//   3. write allocates only for more rows, pages or columns than ever before, and before it writes anything.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/lazy_array.h"
#include "base/status.h"
#include "kvcache.h"
#include "tables/table_rows.h"
#include "tables/table_source.h"

namespace kvc {

// What to make, and how large (all 0 without graph mode: as large as the steps).
struct TableOptions {
  uint32_t arrays = 0;  // KVC_TABLES_DENSE | _CSR | _TOKENS
  int32_t pad_value = -1;
  bool slots = false;    // of page size 1: slots in place of pages
  bool streams = false;  // rows may have sinks: their arrays are there in every step of graph mode
  int32_t max_rows = 0;
  int32_t max_columns = 0;

  bool fixed() const noexcept { return max_rows > 0; }
};

// An array that grows, and is zero where it was not written.
template <class T>
class GrowingArray {
 public:
  // Throws std::bad_alloc.
  void reserve(int64_t size) {
    if (size <= array_.size()) return;
    LazyArray<T> larger(std::max(size, 2 * array_.size()));
    std::copy_n(array_.data(), array_.size(), larger.data());
    array_ = std::move(larger);
  }
  T* data() noexcept { return array_.data(); }
  T& operator[](int64_t i) noexcept { return array_[i]; }
  int64_t size() const noexcept { return array_.size(); }

 private:
  LazyArray<T> array_;
};

// Runs of new tokens: `count` of them, at entries `entry` and on of the source row, with positions `position` and on.
struct TokenRun {
  int32_t row = 0;
  int32_t count = 0;
  int32_t entry = 0;  // -1: an inert row's
  int32_t position = 0;
  const kvc_backend_tree_node* nodes = nullptr;  // nullable; [count]: theirs are the positions
};

// slot_mapping, positions and last_rows of a step's tokens.
class TokenSet {
 public:
  explicit TokenSet(int64_t max_tokens = 0, int64_t max_rows = 0);  // not 0: fixed, as TableSet

  Status check(std::span<const TokenRun> runs, const TableSource& source) const;
  void write(std::span<const TokenRun> runs, std::span<const StepRow> step, int32_t tokens_a_row,
             const TableSource& source);
  void describe(kvc_tables* out) noexcept;

 private:
  const bool fixed_;
  GrowingArray<int64_t> slots_;
  GrowingArray<int32_t> positions_, last_rows_;
  int64_t tokens_ = 0, rows_ = 0;  // shapes
  int64_t used_tokens_ = 0, used_rows_ = 0;
};

class TableSet {
 public:
  // Throws std::bad_alloc.
  explicit TableSet(const TableOptions& options = {});

  // Whether `rows` fit and name only what the source has. grown: the source's rows hold what they held at the last
  // write, in the same order.
  Status check(const TableRows& rows, const TableSource& source, bool grown);
  // After check of the same. Throws std::bad_alloc before it has changed anything.
  void write(const TableRows& rows, const TableSource& source);
  // All but the tokens' arrays and the generation.
  void describe(kvc_tables* out) noexcept;
  // Host maxima by capacity, for launches that are recorded: graph mode.
  void set_bounds(int32_t max_seqlen_q, int32_t max_seqlen_k) noexcept {
    bound_q_ = max_seqlen_q, bound_k_ = max_seqlen_k;
  }

 private:
  // Columns of a row: pages [0, head) of its source row, then [first, first + count - head); of lists its keys.
  struct Columns {
    int32_t head, first, count;
    int32_t seqlen, leftpad, hole;
    int32_t kept;  // leading ones that the block table holds already
  };
  static void find_columns(const TableRow& row, const PageDivider& divider, Columns* out) noexcept;
  int32_t reusable(int64_t index, const TableRow& row, const Columns& columns) noexcept;
  void read(const TableRows& rows, const TableRow& row, const Columns& columns, int32_t skip, const TableSource& source,
            int32_t* out) const noexcept;
  void reserve(const TableRows& rows);
  void widen(int64_t rows, int64_t columns);
  void list_slots(const TableRows& rows, const TableSource& source);
  void write_dense(int64_t index, const TableRows& rows, const TableSource& source) noexcept;
  void write_csr(const TableRows& rows, const TableSource& source) noexcept;
  void write_lengths(const TableRows& rows) noexcept;
  void clear_rows(int64_t begin, int64_t end) noexcept;

  TableOptions options_;
  std::vector<Columns> checked_;  // of the rows that check saw
  int64_t checked_pages_ = 0;
  int32_t checked_widest_ = 0;
  std::vector<int32_t> listed_;  // slots of listed keys
  std::vector<int32_t> range_;   // slots of a range of entries
  GrowingArray<int32_t> dense_;  // [rows, stride_]
  GrowingArray<int32_t> written_, padded_, first_, owner_;
  GrowingArray<int32_t> indptr_, indices_, last_page_len_;
  GrowingArray<int32_t> seqlens_, cu_q_, cu_k_, starts_, leftpad_, row_of_, sinks_, holes_;
  int64_t stride_ = 0;
  // The last write's.
  int64_t rows_ = 0, columns_ = 0, pages_ = 0, keys_ = 0, queries_ = 0;
  int32_t max_q_ = 0, max_k_ = 0, page_size_ = 1, bound_q_ = 0, bound_k_ = 0;
  bool causal_ = false, streams_ = false;
  // Shapes that describe's tensors point to.
  int64_t dense_shape_[2] = {0, 0}, dense_strides_[2] = {0, 1}, row_shape_ = 0, border_shape_ = 0, page_shape_ = 0;
};

}  // namespace kvc
