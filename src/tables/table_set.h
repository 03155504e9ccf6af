// A TableSet has the arrays of one table. The table is planned row by row (table_rows.h), written from a TableSource,
// and returned as borrowed DLTensors. A table is made in two passes. The first pass (plan, add, add, ..., check)
// determines which pages each row will have, and checks that the source has these pages. The second pass (write) fills
// the arrays.
//
// Thread safety: none. Ownership: a TableSet owns its arrays, and borrows the source from plan to write.
// Invariants
//   1. The last table does not change before write.
//   2. With a capacity (graph mode), addresses and shapes never change. Rows, pages and tokens that are not used are
//      inert: no keys, no queries, the padding value, slot -1.
//   3. In row r of the block table, the first held_[r].written columns have pages. The columns from there to
//      held_[r].padded have the padding value.
//   4. write allocates only if it needs more rows, pages or columns than any write so far. It allocates before it
//      writes anything.
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

// Says what a TableSet makes. max_rows and max_columns are the capacity in graph mode. In other modes they are 0, and
// tables are as large as the steps need.
struct TableOptions {
  uint32_t arrays = 0;  // KVC_TABLES_DENSE | _CSR | _TOKENS
  int32_t pad_value = -1;
  bool slots = false;    // the table has page size 1, with slots in place of pages
  bool streams = false;  // rows may have sinks, so graph mode always has arrays of sinks
  int32_t max_rows = 0;
  int32_t max_columns = 0;

  bool fixed() const noexcept { return max_rows > 0; }
};

// An array that can grow. Elements that were not written are zero.
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

// The new tokens of a step.
struct StepTokens {
  std::vector<TokenRun> runs;  // [rows, runs_a_row]
  int32_t runs_a_row = 1;
  bool single = false;  // every run is one token
  int64_t count = 0;    // tokens of all runs
};

// Makes slot_mapping, positions and last_rows of a step's tokens.
class TokenSet {
 public:
  explicit TokenSet(int64_t max_tokens = 0, int64_t max_rows = 0);  // if not 0, sizes are fixed, as in graph mode

  Status check(const StepTokens& tokens, const TableSource& source) const;
  void write(const StepTokens& tokens, const TableSource& source);
  void describe(kvc_tables* out) noexcept;

 private:
  const bool fixed_;
  GrowingArray<int64_t> slots_;
  GrowingArray<int32_t> positions_, last_rows_;
  int64_t tokens_ = 0, rows_ = 0;            // shapes
  int64_t used_tokens_ = 0, used_rows_ = 0;  // of the last write, if sizes are fixed
};

class TableSet {
 public:
  // Throws std::bad_alloc.
  explicit TableSet(const TableOptions& options = {});

  class Planner;

  // Begins the next table. The caller adds the rows of the table to the returned Planner. causal: the queries of a row
  // are its last keys, and each query sees the keys up to itself. grown: the source's rows are those of the last write,
  // in the same order, and only grew.
  Planner plan(const TableSource& source, bool causal, bool grown = false);
  // Begins a table whose rows have one query each. The keys of the queries are in lists(), which is empty after this
  // call. The caller must fill it before check.
  Planner plan_lists(const TableSource& source);
  KeyLists* lists() noexcept { return &lists_; }
  // Checks that the rows fit in the table, and name only pages or slots that the source has. It does not check the
  // slots of listed keys, because these keys are new tokens, whose slots TokenSet checks.
  Status check(const Planner& planner);
  // Must be called after check. May throw std::bad_alloc, before it changes anything.
  void write();
  // Fills all fields except the arrays of tokens and the generation.
  void describe(kvc_tables* out) noexcept;
  // Sets max_seqlen_q and max_seqlen_k that describe returns in graph mode, for kernel launches that are recorded.
  void set_bounds(int32_t max_seqlen_q, int32_t max_seqlen_k) noexcept {
    bound_q_ = max_seqlen_q, bound_k_ = max_seqlen_k;
  }

 private:
  // A planned row. Its columns have the pages [0, head) of its source row, and then those of [first, first + count -
  // head).
  struct Planned {
    int32_t row, queries;
    int32_t position, sinks;
    int32_t head, first, count;
    int32_t seqlen, leftpad, hole;
    int32_t kept;  // number of leading columns that are in the block table already
  };
  // A planned row of lists, which has the keys [first, first + count) of lists_.
  struct List {
    int32_t row, first, count;
  };
  // What a row of the block table has (see invariant 3), with `first` and `row` of its plan.
  struct Held {
    int32_t written, padded;
    int32_t first, row;
  };
  bool has(uint32_t arrays) const noexcept { return (options_.arrays & arrays) != 0; }
  void check_row(const Planned& row);
  template <class Row>
  static Row* more_rows(GrowingArray<Row>& rows, const Row* end, Row** capacity_end);
  Status too_wide(int32_t row, int32_t columns) const;
  void read(const Planned& row, int32_t skip, int32_t* out) const noexcept;
  void reserve();
  void add_columns(int64_t rows, int64_t columns);
  void list_slots();
  void pad(int64_t index, const List& row) noexcept;
  void write_csr() noexcept;
  void write_rows() noexcept;
  void write_lists() noexcept;
  void fill_unused() noexcept;
  void clear_rows(int64_t begin, int64_t end) noexcept;

  TableOptions options_;
  // The table that is being made.
  const TableSource* source_ = nullptr;
  PageDivider divider_{1};
  KeyLists lists_;
  GrowingArray<Planned> planned_;
  GrowingArray<List> planned_lists_;  // used in place of planned_ if the table has rows of lists
  Status failure_;                    // the error of the first wrong row
  bool next_causal_ = false, listed_ = false, next_streams_ = false;
  int64_t next_rows_ = 0, next_pages_ = 0;
  int32_t widest_ = 0;
  std::vector<int32_t> list_slots_;   // slots of lists_.keys
  std::vector<int32_t> range_slots_;  // slots of one range of entries

  GrowingArray<int32_t> dense_;  // [rows, stride_]
  GrowingArray<Held> held_;
  GrowingArray<int32_t> indptr_, indices_, last_page_len_;
  GrowingArray<int32_t> seqlens_, cu_q_, cu_k_, starts_, leftpad_, row_of_, sinks_, holes_;
  int64_t stride_ = 0;  // columns for which dense_ has room
  // Sizes and sums of the last write.
  int64_t rows_ = 0, columns_ = 0, pages_ = 0, keys_ = 0, queries_ = 0;
  int64_t zeros_ = 0;  // number of leading rows whose leftpad and key_starts are 0, as rows of lists need
  int32_t max_q_ = 0, max_k_ = 0, page_size_ = 1, bound_q_ = 0, bound_k_ = 0;
  bool causal_ = false, streams_ = false;
  // The shapes to which the tensors of describe() point.
  int64_t dense_shape_[2] = {0, 0}, dense_strides_[2] = {0, 1}, row_shape_ = 0, border_shape_ = 0, page_shape_ = 0;
};

// Makes room for one more row at `end` (null: the first row), and returns the place of this row. *capacity_end becomes
// the end of the memory.
template <class Row>
Row* TableSet::more_rows(GrowingArray<Row>& rows, const Row* end, Row** capacity_end) {
  const int64_t count = end == nullptr ? 0 : end - rows.data();
  rows.reserve(count + 1);
  *capacity_end = rows.data() + rows.size();
  return rows.data() + count;
}

// A Planner receives the rows of a table. Its functions for rows without sinks are inline, so that the Planner can stay
// in registers in the loop that makes the rows.
class TableSet::Planner {
 public:
  [[gnu::always_inline]] void add(int32_t row, int32_t queries, int32_t begin, int32_t end) {
    add_window(row, queries, begin, end, 0, 0);
  }
  [[gnu::always_inline]] void add_window(int32_t row, int32_t queries, int32_t begin, int32_t end, int32_t position,
                                         int32_t sinks) {
    if (sinks > 0) return add_with_sinks(row, queries, begin, end, position, sinks);
    const auto [first, count, leftpad, seqlen] = kernels::pages_of_keys(divider_, begin, end);
    int32_t kept = 0;
    if (held_ < held_end_) {  // the source row has only grown
      if (held_->first == first && held_->row == row) kept = std::min(held_->written, count);
      ++held_;
    }
    Planned* planned = next();
    *planned = {row, queries, position, 0, 0, first, count, seqlen, leftpad, 0, kept};
    num_pages_ += count;
    num_keys_ += seqlen;
    widest_ = std::max(widest_, count);
    if (count != kept) set_->check_row(*planned);
  }
  // Adds a row with keys [begin, end) of the lists.
  [[gnu::always_inline]] void add_list(int32_t row, int32_t begin, int32_t end) {
    if (list_ == list_end_) list_ = TableSet::more_rows(set_->planned_lists_, list_, &list_end_);
    *list_++ = {row, begin, end - begin};
    widest_ = std::max(widest_, end - begin);
  }

 private:
  friend class TableSet;
  Planner(TableSet* set, const PageDivider& divider, int64_t held) noexcept
      : set_(set), divider_(divider), held_(set->held_.data()), held_end_(held_ + held) {}
  [[gnu::always_inline]] Planned* next() {
    if (rows_ == end_) rows_ = TableSet::more_rows(set_->planned_, rows_, &end_);
    return rows_++;
  }
  void add_with_sinks(int32_t row, int32_t queries, int32_t begin, int32_t end, int32_t position, int32_t sinks);

  TableSet* set_;
  PageDivider divider_;
  const Held *held_, *held_end_;
  Planned *rows_ = nullptr, *end_ = nullptr;
  List *list_ = nullptr, *list_end_ = nullptr;
  int64_t num_pages_ = 0, num_keys_ = 0;
  int32_t widest_ = 0;
  bool sinks_ = false;
};

}  // namespace kvc
