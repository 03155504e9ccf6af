#include "tables/table_source.h"

#include <algorithm>
#include <cinttypes>

namespace kvc {
namespace {

// Slots of entries [begin, end), page by page: page_of(j) is the id of page j.
template <class T, class PageOf>
void slots_of_pages(const PageDivider& divider, int32_t begin, int32_t end, T* out, PageOf page_of) noexcept {
  if (end - begin == 1) {  // decode
    const int32_t page = divider.page(begin);
    *out = static_cast<T>(static_cast<int64_t>(page_of(page)) * divider.size() + (begin - page * divider.size()));
    return;
  }
  for (int32_t entry = begin; entry < end;) {
    const int32_t page = divider.page(entry), page_begin = page * divider.size();
    const int32_t stop = std::min<int64_t>(end, int64_t{page_begin} + divider.size());
    T slot = static_cast<T>(static_cast<int64_t>(page_of(page)) * divider.size() + (entry - page_begin));
    for (; entry < stop; ++entry) *out++ = slot++;
  }
}

// A page list's leaf, which holds the ids of pages [leaf * FANOUT, (leaf + 1) * FANOUT).
const int32_t* leaf_of(const kvc_backend_tables& tables, int32_t row, int32_t leaf) noexcept {
  int64_t node = tables.roots[row];
  for (int32_t level = tables.levels[row] - 2; level >= 0; --level) {
    const int32_t digit = (leaf >> (level * KVC_BACKEND_NODE_FANOUT_LOG2)) & (KVC_BACKEND_NODE_FANOUT - 1);
    node = tables.nodes[node * KVC_BACKEND_NODE_FANOUT + digit];
  }
  return tables.nodes + node * KVC_BACKEND_NODE_FANOUT;
}

Status too_narrow(const char* what, int32_t row, int64_t needed, int64_t columns) {
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "row %d needs %" PRId64 " columns of %s, which has %" PRId64, row,
                       needed, what, columns)
      .at(row);
}

Status bad_entry(const char* what, const ServerTable& table, int32_t row, int64_t column, int64_t limit) {
  const int32_t source = table.rows == nullptr ? row : table.rows[row];
  const int32_t value = table.row(row)[column];
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s[%d, %" PRId64 "], of row %d of the batch, is %d, not in 0..%" PRId64,
                       what, source, column, row, value, limit - 1)
      .at(row);
}

// Whether columns [begin, end) by `step` are in [0, limit).
Status check_columns(const char* what, const ServerTable& table, int32_t row, int64_t begin, int64_t end, int64_t step,
                     int64_t limit) {
  if (end <= begin) return Status();
  if (end > table.num_columns) return too_narrow(what, row, end, table.num_columns);
  const int32_t* columns = table.row(row);
  // The sign of `outside` is that of an id below 0, or of one above the last: limit - 1 - id is below 0.
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
  for (int64_t j = begin;; j += step) {
    if (columns[j] < 0 || columns[j] >= limit) return bad_entry(what, table, row, j, limit);
  }
}

}  // namespace

void ListSource::pages(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept {
  constexpr int32_t kFanout = KVC_BACKEND_NODE_FANOUT;
  for (int32_t i = begin; i < end;) {
    const int32_t stop = std::min(end, (i / kFanout + 1) * kFanout);
    const int32_t* leaf = leaf_of(tables_, row, i / kFanout);
    out = std::copy(leaf + i % kFanout, leaf + i % kFanout + (stop - i), out);
    i = stop;
  }
}

void ListSource::slots(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept {
  slots_of_pages(divider(), begin, end, out, [&](int32_t page) {
    return leaf_of(tables_, row, page / KVC_BACKEND_NODE_FANOUT)[page % KVC_BACKEND_NODE_FANOUT];
  });
}
void ListSource::slots(int32_t row, int32_t begin, int32_t end, int64_t* out) const noexcept {
  slots_of_pages(divider(), begin, end, out, [&](int32_t page) {
    return leaf_of(tables_, row, page / KVC_BACKEND_NODE_FANOUT)[page % KVC_BACKEND_NODE_FANOUT];
  });
}

void BlockTableSource::pages(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept {
  const int32_t* columns = table_.row(row);
  std::copy(columns + begin, columns + end, out);
}

void BlockTableSource::slots(int32_t row, int32_t begin, int32_t end, int32_t* out) const noexcept {
  const int32_t* columns = table_.row(row);
  slots_of_pages(divider(), begin, end, out, [&](int32_t page) { return columns[page]; });
}
void BlockTableSource::slots(int32_t row, int32_t begin, int32_t end, int64_t* out) const noexcept {
  const int32_t* columns = table_.row(row);
  slots_of_pages(divider(), begin, end, out, [&](int32_t page) { return columns[page]; });
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
void SlotTableSource::slots(int32_t row, int32_t begin, int32_t end, int64_t* out) const noexcept {
  const int32_t* columns = table_.row(row);
  std::copy(columns + begin, columns + end, out);
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
