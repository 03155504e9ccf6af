#include "tables/table_set.h"

#include <algorithm>
#include <cinttypes>

#include "tables/borrowed_tensor.h"

namespace kvc {

TableSet::TableSet(const TableOptions& options) : options_(options) {
  if (!options.fixed()) return;
  const int64_t rows = options.max_rows;
  stride_ = options.max_columns;
  for (GrowingArray<int32_t>* array :
       {&written_, &padded_, &first_, &owner_, &last_page_len_, &seqlens_, &starts_, &leftpad_, &row_of_}) {
    array->reserve(rows);
  }
  for (GrowingArray<int32_t>* array : {&indptr_, &cu_q_, &cu_k_}) array->reserve(rows + 1);
  for (GrowingArray<int32_t>* array : {&sinks_, &holes_}) array->reserve(options.streams ? rows : 0);
  if ((options.arrays & KVC_TABLES_DENSE) != 0) {
    dense_.reserve(rows * stride_);
    if (options.pad_value != 0) std::fill_n(dense_.data(), rows * stride_, options.pad_value);  // else not touched
    std::fill_n(padded_.data(), rows, static_cast<int32_t>(stride_));
  }
  if ((options.arrays & KVC_TABLES_CSR) != 0) {
    indices_.reserve(rows * stride_);
    if (options.pad_value != 0) std::fill_n(indices_.data(), rows * stride_, options.pad_value);
  }
  std::fill_n(row_of_.data(), rows, -1);
  row_shape_ = rows;
  border_shape_ = rows + 1;
  columns_ = stride_;
  page_shape_ = rows * stride_;
}

void TableSet::find_columns(const TableRow& row, const PageDivider& divider, Columns* out) noexcept {
  const int32_t keys = row.end - row.begin, first = divider.page(row.begin), page_begin = first * divider.size();
  out->head = out->first = out->count = out->seqlen = out->leftpad = out->hole = out->kept = 0;
  if (row.sinks == 0) {
    if (keys <= 0) return;
    out->first = first;
    out->count = divider.pages(row.end) - first;
    out->leftpad = row.begin - page_begin;
    out->seqlen = row.end - page_begin;
    return;
  }
  const int32_t head = divider.pages(row.sinks);
  if (keys > 0 && first <= head) {  // sinks and window are neighbours
    out->count = divider.pages(row.end);
    out->seqlen = row.end;
    out->hole = row.begin - row.sinks;
    return;
  }
  out->head = out->first = out->count = head;
  out->seqlen = row.sinks;
  if (keys <= 0) return;
  const int32_t at = head * divider.size() + (row.begin - page_begin);  // of the window's first key
  out->first = first;
  out->count += divider.pages(row.end) - first;
  out->seqlen = at + keys;
  out->hole = at - row.sinks;
}

// Leading columns of row `index` that already hold what they are to hold, if its source row has only grown.
int32_t TableSet::reusable(int64_t index, const TableRow& row, const Columns& c) noexcept {
  if (index >= rows_ || c.head > 0 || first_[index] != c.first || owner_[index] != row.row) return 0;
  return std::min(written_[index], c.count);
}

Status TableSet::check(const TableRows& rows, const TableSource& source, bool grown) {
  const size_t count = rows.rows.size();
  if (options_.fixed() && static_cast<int64_t>(count) > options_.max_rows) {
    return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "%zu rows of a table exceed the plan's %d", count,
                         options_.max_rows)
        .missing(static_cast<int64_t>(count), options_.max_rows);
  }
  const PageDivider divider = options_.slots || rows.listed ? PageDivider(1) : source.divider();
  const bool keeps = grown && options_.arrays != 0 && (options_.arrays & KVC_TABLES_CSR) == 0 && !rows.listed &&
                     (options_.arrays & KVC_TABLES_DENSE) != 0;
  page_size_ = divider.size();
  checked_.resize(count);
  int64_t pages = 0, keys = 0;
  int32_t widest = 0;
  for (size_t i = 0; i < count; ++i) {
    const TableRow& row = rows.rows[i];
    Columns& c = checked_[i];
    find_columns(row, divider, &c);
    if (options_.fixed() && c.count > options_.max_columns) {
      return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "row %d has %d pages, more than the plan's %d a row", row.row,
                           c.count, options_.max_columns)
          .at(row.row)
          .missing(c.count, options_.max_columns);
    }
    pages += c.count;
    keys += c.seqlen;
    widest = std::max(widest, c.count);
    if (keeps) c.kept = reusable(static_cast<int64_t>(i), row, c);
    if (rows.listed || c.count == c.kept) continue;  // keys of lists are new tokens: TokenSet's
    const int32_t first = c.first + c.kept, end = c.first + c.count - c.head;
    if (options_.slots) {
      KVC_TRY(source.check_slots(row.row, 0, c.head));
      KVC_TRY(source.check_slots(row.row, first, end));
    } else {
      KVC_TRY(source.check_pages(row.row, 0, c.head));
      KVC_TRY(source.check_pages(row.row, first, end));
    }
  }
  if (keys > INT32_MAX) {
    return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "%" PRId64 " keys of all rows do not fit cu_seqlens_k, an int32",
                         keys)
        .missing(keys, INT32_MAX);
  }
  checked_pages_ = pages;
  checked_widest_ = widest;
  return Status();
}

// Columns [skip, count) of a row to `out`; skip is 0 of rows with a head.
void TableSet::read(const TableRows& rows, const TableRow& row, const Columns& c, int32_t skip,
                    const TableSource& source, int32_t* out) const noexcept {
  if (c.count <= skip) return;
  const int32_t first = c.first + skip, end = c.first + c.count - c.head;
  if (rows.listed) {
    const int32_t* keys = listed_.data() + row.begin;
    for (int32_t i = 0; i < c.count; ++i) out[i] = keys[i];
  } else if (options_.slots) {
    if (c.head > 0) source.slots(row.row, 0, c.head, out);
    source.slots(row.row, first, end, out + c.head);
  } else {
    if (c.head > 0) source.pages(row.row, 0, c.head, out);
    source.pages(row.row, first, end, out + c.head);
  }
}

void TableSet::reserve(const TableRows& rows) {
  if (options_.fixed()) return;
  const auto count = static_cast<int64_t>(rows.rows.size());
  for (GrowingArray<int32_t>* array : {&last_page_len_, &seqlens_, &starts_, &leftpad_, &row_of_, &sinks_, &holes_}) {
    array->reserve(count);
  }
  for (GrowingArray<int32_t>* array : {&indptr_, &cu_q_, &cu_k_}) array->reserve(count + 1);
  if ((options_.arrays & KVC_TABLES_CSR) != 0) indices_.reserve(checked_pages_);
  columns_ = checked_widest_;
  if ((options_.arrays & KVC_TABLES_DENSE) == 0) return;
  for (GrowingArray<int32_t>* array : {&written_, &padded_, &first_, &owner_}) array->reserve(count);
  if (columns_ > stride_) widen(count, (columns_ + columns_ / 4 + 31) / 32 * 32);
  dense_.reserve(count * stride_);
}

// Makes rows of the block table `columns` long; pages in it stay.
void TableSet::widen(int64_t rows, int64_t columns) {
  GrowingArray<int32_t> wider;
  const int64_t held = stride_ == 0 ? 0 : dense_.size() / stride_;
  wider.reserve(std::max(rows, held) * columns);
  for (int64_t r = 0; r < std::min(held, written_.size()); ++r) {
    std::copy_n(dense_.data() + r * stride_, written_[r], wider.data() + r * columns);
  }
  std::copy_n(written_.data(), written_.size(), padded_.data());
  dense_ = std::move(wider);
  stride_ = columns;
}

// Slots of listed keys: those of each range of entries are read once.
void TableSet::list_slots(const TableRows& rows, const TableSource& source) {
  listed_.resize(rows.keys.size());
  for (const TableRows::Range& range : rows.ranges) {
    range_.resize(static_cast<size_t>(range.entry_end - range.entry_begin));
    source.slots(range.row, range.entry_begin, range.entry_end, range_.data());
    for (int32_t k = range.begin; k < range.end; ++k) {
      const auto at = static_cast<size_t>(k);
      listed_[at] = range_[static_cast<size_t>(rows.keys[at] - range.entry_begin)];
    }
  }
}

void TableSet::write_dense(int64_t index, const TableRows& rows, const TableSource& source) noexcept {
  const TableRow& row = rows.rows[static_cast<size_t>(index)];
  const Columns& c = checked_[static_cast<size_t>(index)];
  int32_t* out = dense_.data() + index * stride_;
  const int32_t written = written_[index], padded = std::max(padded_[index], std::max(written, c.count));
  const auto width = static_cast<int32_t>(columns_);
  if (c.kept < c.count) read(rows, row, c, c.kept, source, out + c.kept);
  for (int32_t i = c.count; i < written; ++i) out[i] = options_.pad_value;
  for (int32_t i = padded; i < width; ++i) out[i] = options_.pad_value;
  written_[index] = c.count;
  padded_[index] = std::max(padded, width);
  first_[index] = c.first;
  owner_[index] = row.row;
}

// Makes rows that the last write used, and this one does not, inert.
void TableSet::clear_rows(int64_t begin, int64_t end) noexcept {
  for (int64_t i = begin; i < end; ++i) {
    if ((options_.arrays & KVC_TABLES_DENSE) != 0) {
      std::fill_n(dense_.data() + i * stride_, written_[i], options_.pad_value);
    }
    written_[i] = first_[i] = 0;
    row_of_[i] = owner_[i] = -1;
    last_page_len_[i] = seqlens_[i] = starts_[i] = leftpad_[i] = 0;
    if (options_.streams) sinks_[i] = holes_[i] = 0;
  }
}

void TableSet::write(const TableRows& rows, const TableSource& source) {
  if (rows.listed) list_slots(rows, source);
  reserve(rows);
  const auto count = static_cast<int64_t>(rows.rows.size());
  if ((options_.arrays & KVC_TABLES_DENSE) != 0) {
    for (int64_t i = 0; i < count; ++i) write_dense(i, rows, source);
  }
  if ((options_.arrays & KVC_TABLES_CSR) != 0) write_csr(rows, source);
  write_lengths(rows);
  if (options_.fixed() && rows_ > count) clear_rows(count, rows_);
  rows_ = count;
  pages_ = checked_pages_;
  causal_ = rows.causal;
}

void TableSet::write_csr(const TableRows& rows, const TableSource& source) noexcept {
  const auto count = static_cast<int64_t>(rows.rows.size());
  int32_t* indices = indices_.data();
  int32_t pages = 0;
  indptr_[0] = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Columns& c = checked_[static_cast<size_t>(i)];
    if (!rows.listed) read(rows, rows.rows[static_cast<size_t>(i)], c, 0, source, indices + pages);
    last_page_len_[i] = c.count == 0 ? 0 : c.seqlen - (c.count - 1) * page_size_;
    indptr_[i + 1] = pages += c.count;
  }
  if (rows.listed) std::copy_n(listed_.data(), pages, indices);  // they are the keys, row after row
  for (int64_t i = count; i < options_.max_rows; ++i) indptr_[i + 1] = pages;
  if (options_.fixed() && pages_ > pages) std::fill(indices + pages, indices + pages_, options_.pad_value);
}

void TableSet::write_lengths(const TableRows& rows) noexcept {
  const size_t count = rows.rows.size();
  int32_t *seqlens = seqlens_.data(), *leftpad = leftpad_.data(), *starts = starts_.data(), *owners = row_of_.data();
  int32_t *cu_q = cu_q_.data(), *cu_k = cu_k_.data(), *sinks = sinks_.data(), *holes = holes_.data();
  int32_t queries = 0, keys = 0, max_q = 0, max_k = 0, all_sinks = 0;
  cu_q[0] = cu_k[0] = 0;
  for (size_t i = 0; i < count; ++i) {
    const TableRow& row = rows.rows[i];
    const Columns& c = checked_[i];
    seqlens[i] = c.seqlen;
    leftpad[i] = c.leftpad;
    starts[i] = row.position;
    owners[i] = row.row;
    cu_q[i + 1] = queries += row.queries;
    cu_k[i + 1] = keys += c.seqlen - c.leftpad - c.hole;
    max_q = std::max(max_q, row.queries);
    max_k = std::max(max_k, c.seqlen);
    all_sinks |= row.sinks;
  }
  for (size_t i = count; i < static_cast<size_t>(options_.max_rows); ++i) cu_q[i + 1] = queries, cu_k[i + 1] = keys;
  streams_ = all_sinks > 0 || options_.streams;
  for (size_t i = 0; streams_ && i < count; ++i) {
    sinks[i] = rows.rows[i].sinks;
    holes[i] = checked_[i].hole;
  }
  queries_ = queries;
  keys_ = keys;
  max_q_ = max_q;
  max_k_ = max_k;
}

void TableSet::describe(kvc_tables* out) noexcept {
  if (!options_.fixed()) {
    row_shape_ = rows_;
    border_shape_ = rows_ + 1;
    page_shape_ = pages_;
  }
  dense_shape_[0] = row_shape_;
  dense_shape_[1] = columns_;
  dense_strides_[0] = stride_;
  out->causal = causal_ ? 1 : 0;
  out->num_rows = static_cast<int32_t>(rows_);
  out->page_size = page_size_;
  out->num_queries = static_cast<int32_t>(queries_);
  out->max_seqlen_q = options_.fixed() ? bound_q_ : max_q_;
  out->max_seqlen_k = options_.fixed() ? bound_k_ : max_k_;
  out->max_pages = static_cast<int32_t>(columns_);
  out->num_pages = pages_;
  out->num_keys = keys_;
  const auto of_rows = [&](GrowingArray<int32_t>& array) { return borrowed_tensor(array.data(), &row_shape_); };
  const auto of_borders = [&](GrowingArray<int32_t>& array) { return borrowed_tensor(array.data(), &border_shape_); };
  if ((options_.arrays & KVC_TABLES_DENSE) != 0) {
    out->block_table = borrowed_tensor(dense_.data(), dense_shape_);
    out->block_table.ndim = 2;
    out->block_table.strides = dense_strides_;
  }
  if ((options_.arrays & KVC_TABLES_CSR) != 0) {
    out->indptr = of_borders(indptr_);
    out->indices = borrowed_tensor(indices_.data(), &page_shape_);
    out->last_page_len = of_rows(last_page_len_);
  }
  out->cache_seqlens = of_rows(seqlens_);
  out->cu_seqlens_q = of_borders(cu_q_);
  out->cu_seqlens_k = of_borders(cu_k_);
  out->key_starts = of_rows(starts_);
  out->leftpad = of_rows(leftpad_);
  out->batch_rows = of_rows(row_of_);
  if (streams_) {
    out->sink_tokens = of_rows(sinks_);
    out->hole_tokens = of_rows(holes_);
  }
}

}  // namespace kvc
