// A TableSource says where each token of a batch row is stored. Either a cache has that information (page lists), or a
// server with its own allocator (a block table, or a table of token slots). Code that makes tables reads both kinds
// through this class.
//
// An entry is the index of a token in its source row. Page j of a row holds entries [j * page_size, (j + 1) *
// page_size). Thread safety: any thread may read while the borrowed data does not change.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "kvcache_backend.h"

namespace kvc {

// Divides non-negative numbers by a page size. For a power of two, the division is a shift.
class PageDivider {
 public:
  explicit PageDivider(int32_t page_size) noexcept
      : size_(page_size),
        shift_((page_size & (page_size - 1)) == 0 ? __builtin_ctz(static_cast<uint32_t>(page_size)) : -1) {}

  int32_t size() const noexcept { return size_; }
  int32_t page(int32_t entry) const noexcept {
    return shift_ >= 0 ? entry >> shift_
                       : static_cast<int32_t>(static_cast<uint32_t>(entry) / static_cast<uint32_t>(size_));
  }
  int32_t pages(int32_t entries) const noexcept { return page(entries + size_ - 1); }
  int32_t offset(int32_t entry) const noexcept { return entry - page(entry) * size_; }

 private:
  int32_t size_;
  int32_t shift_;
};

// A run of `count` new tokens. They are the entries from `entry` on of the source row, and have the positions from
// `position` on.
struct TokenRun {
  int32_t row = 0;
  int32_t count = 0;
  int32_t entry = 0;                             // -1 = an inert row; its tokens have position 0
  int32_t position = 0;                          // position of the first token
  const kvc_backend_tree_node* nodes = nullptr;  // nullable; [count]: nodes whose positions replace `position`
};

class TableSource {
 public:
  explicit TableSource(int32_t page_size) noexcept : divider_(page_size) {}
  virtual ~TableSource() = default;

  const PageDivider& divider() const noexcept { return divider_; }

  // Writes the ids of the pages [begin, end) of a row to `out`.
  virtual void pages(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept = 0;
  // Writes the slots of the entries [begin, end) of a row to `out`.
  virtual void slots(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept = 0;
  // Writes the slots of all tokens of `runs` to `out`. Tokens of inert rows get -1.
  virtual void slots(std::span<const TokenRun> runs, int64_t* out) const noexcept = 0;

  // Checks that a row has columns for entries [0, entries).
  virtual Status check_room(int32_t row, int64_t entries) const = 0;
  // check_pages checks that the pages [begin, end) of a row exist and have valid ids. check_slots does the same for
  // entries.
  virtual Status check_pages(int32_t row, int32_t begin, int32_t end) const = 0;
  virtual Status check_slots(int32_t row, int32_t begin, int32_t end) const = 0;

 private:
  PageDivider divider_;
};

// The page lists of a forward's rows in one group. The library made these lists, so they need no check.
class ListSource final : public TableSource {
 public:
  ListSource(const kvc_backend_tables& tables, int32_t page_size) noexcept : TableSource(page_size), tables_(tables) {}

  void pages(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept override;
  void slots(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept override;
  void slots(std::span<const TokenRun> runs, int64_t* out) const noexcept override;
  Status check_room(int32_t, int64_t) const override { return Status(); }
  Status check_pages(int32_t, int32_t, int32_t) const override { return Status(); }
  Status check_slots(int32_t, int32_t, int32_t) const override { return Status(); }

 private:
  const kvc_backend_tables& tables_;
};

// A server's table. Row r of the batch is row rows[r] of the table.
struct ServerTable {
  const int32_t* data;  // borrowed; rows of `row_stride` elements
  int64_t row_stride;
  int64_t num_columns;
  const int32_t* rows;  // borrowed; [batch rows]: rows of the table, already checked; null = row r of the batch is row
                        // r of the table
  int64_t num_pages;    // page ids are below num_pages; num_pages * page_size <= 2^31
  const int32_t* row(int32_t r) const noexcept { return data + (rows == nullptr ? r : rows[r]) * row_stride; }
};

// A server's block table. Column j has the id of page j.
class BlockTableSource final : public TableSource {
 public:
  BlockTableSource(const ServerTable& table, int32_t page_size) noexcept : TableSource(page_size), table_(table) {}

  void pages(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept override;
  void slots(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept override;
  void slots(std::span<const TokenRun> runs, int64_t* out) const noexcept override;
  Status check_room(int32_t row, int64_t entries) const override;
  Status check_pages(int32_t row, int32_t begin, int32_t end) const override;
  Status check_slots(int32_t row, int32_t begin, int32_t end) const override;

 private:
  ServerTable table_;
};

// A server's table of token slots (req_to_token). Column j has the slot of token j. Tokens of one page have consecutive
// slots.
class SlotTableSource final : public TableSource {
 public:
  SlotTableSource(const ServerTable& table, int32_t page_size) noexcept : TableSource(page_size), table_(table) {}

  void pages(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept override;
  void slots(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept override;
  void slots(std::span<const TokenRun> runs, int64_t* out) const noexcept override;
  Status check_room(int32_t row, int64_t entries) const override;
  Status check_pages(int32_t row, int32_t begin, int32_t end) const override;
  Status check_slots(int32_t row, int32_t begin, int32_t end) const override;

 private:
  ServerTable table_;
};

}  // namespace kvc
