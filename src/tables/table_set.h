// TableSet: the arrays of one table, planned row by row (table_rows.h), written from a TableSource, and handed out as
// borrowed DLTensors. Two passes over the rows: begin, add, add, ..., check finds what each is to hold, and whether the
// source has that; write makes it so.
//
// Thread safety: none. Ownership: of its arrays; borrows the source from begin to write. Invariants
//   1. Until write nothing of the last table changes.
//   2. With a capacity (graph mode) addresses and shapes never change, and rows, pages and tokens that are not used are
//      inert: no keys, no queries, the padding value, slot -1.
//   3. held_[r].written columns of row r of the block table hold pages, those from there to .padded the padding value.
//   4. write allocates only for more rows, pages or columns than ever before, and before it writes anything.
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
  bool slots = false;  // of page size 1: slots in place of pages
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

// slot_mapping, positions and last_rows of a step's tokens.
class TokenSet {
 public:
  explicit TokenSet(int64_t max_tokens = 0, int64_t max_rows = 0);  // not 0: fixed, as TableSet

  Status check(std::span<const TokenRun> runs, const TableSource& source) const;
  // tokens: of all runs. Each row of the batch has `runs_a_row` of them.
  void write(std::span<const TokenRun> runs, int32_t runs_a_row, int64_t tokens, const TableSource& source);
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

  // causal: the queries of a row are the last of its keys, and each sees those up to itself. grown: the source's rows
  // hold what they held at the last write, in the same order.
  void begin(const TableSource& source, bool causal, bool grown = false);
  void add(const TableRow& row);
  // Instead: rows of one query each, whose keys are keys [begin, end) of the lists that begin_lists returns.
  KeyLists* begin_lists(const TableSource& source);
  void add_list(int32_t row, int32_t begin, int32_t end);
  // Whether the rows fit and name only what the source has. (Slots of lists are those of new tokens: TokenSet's.)
  Status check();
  // After check. Throws std::bad_alloc before it has changed anything.
  void write();
  // All but the tokens' arrays and the generation.
  void describe(kvc_tables* out) noexcept;
  // Host maxima by capacity, for launches that are recorded: graph mode.
  void set_bounds(int32_t max_seqlen_q, int32_t max_seqlen_k) noexcept {
    bound_q_ = max_seqlen_q, bound_k_ = max_seqlen_k;
  }

 private:
  // What a row is to hold. Columns: pages [0, head) of its source row, then [first, first + count - head); of a list
  // its keys from `first` on.
  struct Planned {
    int32_t row, queries;
    int32_t position, sinks;
    int32_t head, first, count;
    int32_t seqlen, leftpad, hole;
    int32_t kept;  // leading columns that the block table holds already
  };
  // What a row of the block table holds.
  struct Held {
    int32_t written, padded;
    int32_t first, row;
  };
  bool has(uint32_t arrays) const noexcept { return (options_.arrays & arrays) != 0; }
  static void place(const TableRow& row, const PageDivider& divider, Planned* out) noexcept;
  static void place_with_sinks(const TableRow& row, const PageDivider& divider, Planned* out) noexcept;
  void check_row(const Planned& row);
  void read(const Planned& row, int32_t skip, int32_t* out) const noexcept;
  void reserve();
  void widen(int64_t rows, int64_t columns);
  void list_slots();
  void write_dense(int64_t index, const Planned& row) noexcept;
  void write_csr() noexcept;
  void write_rows() noexcept;
  void clear_rows(int64_t begin, int64_t end) noexcept;

  TableOptions options_;
  // The table that is being made.
  const TableSource* source_ = nullptr;
  PageDivider divider_{1};
  KeyLists lists_;
  std::vector<Planned> planned_;
  Status failure_;  // the first row's that is not as it should be
  bool next_causal_ = false, reuses_ = false, listed_ = false;
  int64_t planned_pages_ = 0, planned_keys_ = 0;
  int32_t widest_ = 0, most_sinks_ = 0;
  std::vector<int32_t> list_slots_;   // of lists_.keys
  std::vector<int32_t> range_slots_;  // of a range of entries

  GrowingArray<int32_t> dense_;  // [rows, stride_]
  GrowingArray<Held> held_;
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

// Inline, since every row of every table comes by here.
inline void TableSet::place(const TableRow& row, const PageDivider& divider, Planned* out) noexcept {
  *out = {row.row, row.queries, row.position, row.sinks, 0, 0, 0, 0, 0, 0, 0};
  if (row.sinks > 0) return place_with_sinks(row, divider, out);
  if (row.end <= row.begin) return;
  out->first = divider.page(row.begin);
  out->count = divider.pages(row.end) - out->first;
  out->leftpad = row.begin - out->first * divider.size();
  out->seqlen = row.end - out->first * divider.size();
}

inline void TableSet::add(const TableRow& row) {
  Planned planned;
  place(row, divider_, &planned);
  const size_t index = planned_.size();
  if (reuses_ && index < static_cast<size_t>(rows_)) {  // the source row has only grown
    const Held& held = held_[static_cast<int64_t>(index)];
    const bool same = planned.head == 0 && held.first == planned.first && held.row == planned.row;
    planned.kept = same ? std::min(held.written, planned.count) : 0;
  }
  planned_pages_ += planned.count;
  planned_keys_ += planned.seqlen;
  widest_ = std::max(widest_, planned.count);
  most_sinks_ = std::max(most_sinks_, planned.sinks);
  if (planned.count != planned.kept) check_row(planned);
  planned_.push_back(planned);
}

inline void TableSet::add_list(int32_t row, int32_t begin, int32_t end) {
  const int32_t count = end - begin;
  planned_pages_ += count;
  planned_keys_ += count;
  widest_ = std::max(widest_, count);
  planned_.push_back({row, 1, 0, 0, 0, begin, count, count, 0, 0, 0});
}

}  // namespace kvc
