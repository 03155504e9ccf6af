#include "tables/table_source.h"

#include <algorithm>
#include <cinttypes>

#include "base/checked.h"

namespace kvc {
namespace {

// Writes the slots of the entries [begin, end), page by page. pages(j) returns the id of page j. Returns the end of the
// written slots.
template <class T, class Pages>
T* slots_of_pages(const PageDivider& divider, int32_t begin, int32_t end, Pages&& pages, T* out) noexcept {
  for (int32_t entry = begin; entry < end;) {
    const int32_t page = divider.page(entry), offset = entry - page * divider.size();
    const int32_t count = std::min(end - entry, divider.size() - offset);
    const T slot = static_cast<T>(int64_t{pages(page)} * divider.size() + offset);
    for (int32_t i = 0; i < count; ++i) out[i] = slot + i;
    out += count;
    entry += count;
  }
  return out;
}

// Writes the slots of runs. pages_of(row) returns the function `pages` for a row.
template <class PagesOf>
void slots_of_runs(const PageDivider& divider, std::span<const TokenRun> runs, PagesOf pages_of,
                   int64_t* out) noexcept {
  for (const TokenRun& run : runs) {
    if (run.entry < 0) {
      out = std::fill_n(out, run.count, int64_t{-1});
    } else if (run.count == 1) {  // decode
      const int32_t page = divider.page(run.entry);
      *out++ = int64_t{pages_of(run.row)(page)} * divider.size() + (run.entry - page * divider.size());
    } else {
      out = slots_of_pages(divider, run.entry, run.entry + run.count, pages_of(run.row), out);
    }
  }
}

// Reads a row's page list, one leaf at a time.
class ListReader {
 public:
  ListReader(const kvc_backend_tables& tables, int32_t row) noexcept
      : nodes_(tables.nodes), root_(tables.roots[row]), levels_(tables.levels[row]) {}

  // Returns the ids of the pages from `page` to the end of the leaf that has `page`.
  const int32_t* from(int32_t page) noexcept {
    if (page >> KVC_BACKEND_NODE_FANOUT_LOG2 != index_) {
      index_ = page >> KVC_BACKEND_NODE_FANOUT_LOG2;
      leaf_ = kvc_backend_leaf(nodes_, root_, levels_, page);
    }
    return leaf_ + (page & (KVC_BACKEND_NODE_FANOUT - 1));
  }
  int32_t operator()(int32_t page) noexcept { return *from(page); }

 private:
  const int32_t* nodes_;
  int32_t root_, levels_;
  int32_t index_ = -1;  // number of the leaf to which leaf_ points; -1 = no leaf was read
  const int32_t* leaf_ = nullptr;
};

Status too_narrow(const char* what, int32_t row, int64_t needed, int64_t columns) {
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "row %d needs %" PRId64 " columns of %s, which has %" PRId64, row,
                       needed, what, columns)
      .at(row);
}

Status bad_entry(const char* what, const ServerTable& table, int32_t row, int64_t column, int32_t value,
                 int64_t limit) {
  const int32_t source = table.rows == nullptr ? row : table.rows[row];
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s[%d, %" PRId64 "], of row %d of the batch, is %d, not in 0..%" PRId64,
                       what, source, column, row, value, limit - 1)
      .at(row);
}

// Checks that column `begin`, and each `step`-th column after it before `end`, has an id in [0, limit).
Status check_columns(const char* what, const ServerTable& table, int32_t row, int64_t begin, int64_t end, int64_t step,
                     int64_t limit) {
  if (end <= begin) return Status();
  if (end > table.num_columns) return too_narrow(what, row, end, table.num_columns);
  const int32_t* columns = table.row(row);
  // An id below 0 sets the sign bit of `outside`. An id above `last` sets this bit too, because last - id is below 0.
  const auto last = static_cast<uint32_t>(limit - 1);
  uint32_t outside = 0;
  if (step == 1) {
    for (int64_t j = begin; j < end; ++j) {
      outside |= static_cast<uint32_t>(columns[j]) | (last - static_cast<uint32_t>(columns[j]));
    }
  } else {
    for (int64_t j = begin; j < end; j += step) {
      outside |= static_cast<uint32_t>(columns[j]) | (last - static_cast<uint32_t>(columns[j]));
    }
  }
  if (static_cast<int32_t>(outside) >= 0) return Status();
  for (int64_t j = begin; j < end; j += step) {
    const int32_t value = columns[j];
    if (value < 0 || value >= limit) return bad_entry(what, table, row, j, value, limit);
  }
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s was written during the call, in row %d of the batch", what, row)
      .at(row);
}

}  // namespace

void ListSource::pages(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept {
  constexpr int32_t kFanout = KVC_BACKEND_NODE_FANOUT;
  ListReader pages(tables_, row);
  for (int32_t i = begin; i < end;) {
    const int32_t count = std::min(end, (i / kFanout + 1) * kFanout) - i;
    out = std::copy_n(pages.from(i), count, out);
    i += count;
  }
}
void ListSource::slots(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept {
  slots_of_pages(divider(), begin, end, ListReader(tables_, row), out);
}
void ListSource::slots(std::span<const TokenRun> runs, int64_t* out) const noexcept {
  slots_of_runs(divider(), runs, [this](int32_t row) { return ListReader(tables_, row); }, out);
}

void BlockTableSource::pages(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept {
  std::copy_n(table_.row(row) + begin, end - begin, out);
}
void BlockTableSource::slots(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept {
  const int32_t* columns = table_.row(row);
  slots_of_pages(divider(), begin, end, [columns](int32_t page) { return columns[page]; }, out);
}
void BlockTableSource::slots(std::span<const TokenRun> runs, int64_t* out) const noexcept {
  const ServerTable table = table_;  // a copy, because the compiler must assume that writes to `out` change table_
  const auto pages_of = [&table](int32_t row) {
    return [columns = table.row(row)](int32_t page) { return columns[page]; };
  };
  slots_of_runs(PageDivider(divider()), runs, pages_of, out);
}

Status BlockTableSource::check_room(int32_t row, int64_t entries) const {
  const int64_t columns = ceil_div(entries, divider().size());
  return columns <= table_.num_columns ? Status() : too_narrow("block_table", row, columns, table_.num_columns);
}
Status BlockTableSource::check_pages(int32_t row, int32_t begin, int32_t end) const {
  return check_columns("block_table", table_, row, begin, end, 1, table_.num_pages);
}
Status BlockTableSource::check_slots(int32_t row, int32_t begin, int32_t end) const {
  return begin >= end ? Status() : check_pages(row, divider().page(begin), divider().page(end - 1) + 1);
}

void SlotTableSource::pages(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept {
  const int32_t* columns = table_.row(row);
  const int64_t step = divider().size();
  for (int32_t j = begin; j < end; ++j) *out++ = divider().page(columns[j * step]);
}

void SlotTableSource::slots(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept {
  const int32_t* columns = table_.row(row);
  std::copy(columns + begin, columns + end, out);
}
void SlotTableSource::slots(std::span<const TokenRun> runs, int64_t* out) const noexcept {
  for (const TokenRun& run : runs) {
    if (run.entry < 0) {
      out = std::fill_n(out, run.count, int64_t{-1});
    } else {
      out = std::copy_n(table_.row(run.row) + run.entry, run.count, out);
    }
  }
}

Status SlotTableSource::check_room(int32_t row, int64_t entries) const {
  return entries <= table_.num_columns ? Status() : too_narrow("req_to_token", row, entries, table_.num_columns);
}
Status SlotTableSource::check_pages(int32_t row, int32_t begin, int32_t end) const {
  const int64_t size = divider().size();
  if (begin >= end) return Status();
  KVC_TRY(
      check_columns("req_to_token", table_, row, begin * size, (end - 1) * size + 1, size, table_.num_pages * size));
  const int32_t* columns = table_.row(row);
  for (int64_t j = begin; size > 1 && j < end; ++j) {
    if (divider().offset(columns[j * size]) == 0) continue;
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "req_to_token[%d, %" PRId64 "] of row %d is %d: a page of %" PRId64
                         " tokens does not begin there",
                         table_.rows == nullptr ? row : table_.rows[row], j * size, row, columns[j * size], size)
        .at(row);
  }
  return Status();
}
Status SlotTableSource::check_slots(int32_t row, int32_t begin, int32_t end) const {
  return check_columns("req_to_token", table_, row, begin, end, 1, table_.num_pages * divider().size());
}

}  // namespace kvc
