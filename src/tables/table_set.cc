#include "tables/table_set.h"

#include <algorithm>
#include <cinttypes>
#include <utility>

#include "base/assert.h"
#include "tensor/borrowed_tensor.h"

namespace kvc {
namespace {

// Copies whole blocks, because that needs no branch for each element. So copy_blocks copies up to kBlock - 1 elements
// more than `count`.
constexpr int32_t kBlock = 4;
void copy_blocks(const int32_t* from, int32_t count, int32_t* out) noexcept {
  for (int32_t i = 0; i < count; i += kBlock) __builtin_memcpy(out + i, from + i, kBlock * sizeof(int32_t));
}

}  // namespace

TableSet::TableSet(const TableOptions& options) : options_(options) {
  if (!options.fixed()) return;
  const int64_t rows = options.max_rows;
  stride_ = options.max_columns;
  for (GrowingArray<int32_t>* array : {&last_page_len_, &seqlens_, &starts_, &leftpad_, &row_of_}) {
    array->reserve(rows);
  }
  held_.reserve(rows);
  for (GrowingArray<int32_t>* array : {&indptr_, &cu_q_, &cu_k_}) array->reserve(rows + 1);
  for (GrowingArray<int32_t>* array : {&sinks_, &holes_}) array->reserve(options.streams ? rows : 0);
  if (has(KVC_TABLES_DENSE)) {
    dense_.reserve(rows * stride_);
    // New memory is zero already.
    if (options.pad_value != 0) std::fill_n(dense_.data(), rows * stride_, options.pad_value);
    for (int64_t r = 0; r < rows; ++r) held_[r].padded = static_cast<int32_t>(stride_);
  }
  if (has(KVC_TABLES_CSR)) {
    indices_.reserve(rows * stride_);
    if (options.pad_value != 0) std::fill_n(indices_.data(), rows * stride_, options.pad_value);
  }
  std::fill_n(row_of_.data(), rows, -1);
  row_shape_ = rows;
  border_shape_ = rows + 1;
  columns_ = stride_;
  page_shape_ = rows * stride_;
}

void TableSet::Planner::add_with_sinks(int32_t row, int32_t queries, int32_t begin, int32_t end, int32_t position,
                                       int32_t sinks) {
  const int32_t size = divider_.size(), keys = end - begin, first = divider_.page(begin), head = divider_.pages(sinks);
  // The index of the window's first key in the table row. The row has the pages of the sinks first, and then the pages
  // of the window.
  const int32_t at = head * size + (begin - first * size);
  Planned* planned = next();
  if (keys > 0 && first <= head) {  // no page is missing between sinks and window
    *planned = {row, queries, position, sinks, 0, 0, divider_.pages(end), end, 0, begin - sinks, 0};
  } else if (keys > 0) {
    const int32_t count = head + divider_.pages(end) - first;
    *planned = {row, queries, position, sinks, head, first, count, at + keys, 0, at - sinks, 0};
  } else {
    *planned = {row, queries, position, sinks, head, head, head, sinks, 0, 0, 0};
  }
  if (held_ < held_end_) ++held_;
  sinks_ = true;
  num_pages_ += planned->count;
  num_keys_ += planned->seqlen;
  widest_ = std::max(widest_, planned->count);
  set_->check_row(*planned);
}

TableSet::Planner TableSet::plan(const TableSource& source, bool causal, bool grown) {
  source_ = &source;
  divider_ = options_.slots ? PageDivider(1) : source.divider();
  lists_.clear();
  failure_ = Status();
  next_causal_ = causal;
  listed_ = false;
  return Planner(this, divider_, grown && has(KVC_TABLES_DENSE) && !has(KVC_TABLES_CSR) ? rows_ : 0);
}

TableSet::Planner TableSet::plan_lists(const TableSource& source) {
  plan(source, false);
  divider_ = PageDivider(1);
  listed_ = true;
  return Planner(this, divider_, 0);
}

// Checks those columns of the source row that `write` will read.
void TableSet::check_row(const Planned& row) {
  if (!failure_.ok() || (options_.fixed() && row.count > options_.max_columns)) return;
  const int32_t first = row.first + row.kept, end = row.first + row.count - row.head;
  const auto check = [&](int32_t begin, int32_t stop) {
    return options_.slots ? source_->check_slots(row.row, begin, stop) : source_->check_pages(row.row, begin, stop);
  };
  if (row.head > 0) failure_ = check(0, row.head);
  if (failure_.ok()) failure_ = check(first, end);
}

Status TableSet::too_wide(int32_t row, int32_t columns) const {
  return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "row %d has %d pages, more than max_pages_per_row %d", row, columns,
                       options_.max_columns)
      .at(row)
      .missing(columns, options_.max_columns);
}

Status TableSet::check(const Planner& planner) {
  int64_t count = 0;
  if (planner.rows_ != nullptr) count = planner.rows_ - planned_.data();
  if (planner.list_ != nullptr) count = planner.list_ - planned_lists_.data();
  next_rows_ = count;
  if (options_.fixed() && count > options_.max_rows) {
    return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "%" PRId64 " rows of a table exceed its room for %d", count,
                         options_.max_rows)
        .missing(count, options_.max_rows);
  }
  for (int64_t i = 0; options_.fixed() && planner.widest_ > options_.max_columns && i < count; ++i) {
    const int32_t columns = listed_ ? planned_lists_[i].count : planned_[i].count;
    if (columns > options_.max_columns) return too_wide(listed_ ? planned_lists_[i].row : planned_[i].row, columns);
  }
  if (!failure_.ok()) return std::move(failure_);
  const int64_t keys = listed_ ? static_cast<int64_t>(lists_.keys.size()) : planner.num_keys_;
  KVC_TRY(check_key_sum(keys));
  next_pages_ = listed_ ? keys : planner.num_pages_;
  next_streams_ = planner.sinks_;
  widest_ = planner.widest_;
  return Status();
}

// Reads columns [skip, count) of a row to `out`. If row.head is not 0, skip must be 0.
void TableSet::read(const Planned& row, int32_t skip, int32_t* out) const noexcept {
  const int32_t first = row.first + skip, end = row.first + row.count - row.head;
  if (options_.slots) {
    if (row.head > 0) source_->slots(row.row, 0, row.head, out);
    source_->slots(row.row, first, end, out + row.head);
  } else {
    if (row.head > 0) source_->pages(row.row, 0, row.head, out);
    source_->pages(row.row, first, end, out + row.head);
  }
}

void TableSet::reserve() {
  if (options_.fixed()) return;
  const auto count = next_rows_;
  for (GrowingArray<int32_t>* array : {&last_page_len_, &seqlens_, &starts_, &leftpad_, &row_of_, &sinks_, &holes_}) {
    array->reserve(count);
  }
  for (GrowingArray<int32_t>* array : {&indptr_, &cu_q_, &cu_k_}) array->reserve(count + 1);
  if (has(KVC_TABLES_CSR)) indices_.reserve(next_pages_);
  columns_ = widest_;
  if (!has(KVC_TABLES_DENSE)) return;
  held_.reserve(count);
  if (columns_ > stride_) add_columns(count, (columns_ + columns_ / 4 + 7) / 8 * 8);
  dense_.reserve(count * stride_);
}

// Makes room for `columns` columns in each row of the block table, and keeps the pages of the rows.
void TableSet::add_columns(int64_t rows, int64_t columns) {
  GrowingArray<int32_t> wider;
  const int64_t had = stride_ == 0 ? 0 : dense_.size() / stride_;
  wider.reserve(std::max(rows, had) * columns);
  for (int64_t r = 0; r < held_.size(); ++r) {
    if (r < had) std::copy_n(dense_.data() + r * stride_, held_[r].written, wider.data() + r * columns);
    held_[r].padded = held_[r].written;
  }
  dense_ = std::move(wider);
  stride_ = columns;
}

// Finds the slots of listed keys. Each range of entries is read once.
void TableSet::list_slots() {
  list_slots_.resize(lists_.keys.size() + kBlock);
  int32_t* out = list_slots_.data();
  const int32_t* keys = lists_.keys.data();
  for (const KeyLists::Range& range : lists_.ranges) {
    range_slots_.resize(static_cast<size_t>(range.entry_end - range.entry_begin));
    const int32_t* slots = range_slots_.data();
    source_->slots(range.row, range.entry_begin, range.entry_end, range_slots_.data());
    for (int32_t k = range.begin; k < range.end; ++k) out[k] = slots[keys[k]];
  }
}

// Writes the padding value after a row's pages: over pages of the last write, and in columns that have no padding yet.
void TableSet::pad(int64_t index, const List& row) noexcept {
  int32_t* out = dense_.data() + index * stride_;
  Held& held = held_[index];
  const auto width = static_cast<int32_t>(columns_);
  const int32_t padded = std::max({held.padded, held.written, row.count});
  for (int32_t i = row.count; i < held.written; ++i) out[i] = options_.pad_value;
  for (int32_t i = padded; i < width; ++i) out[i] = options_.pad_value;
  held = {row.count, std::max(padded, width), row.first, row.row};
}

// Makes rows [begin, end) inert. The last write used these rows, and this write does not.
void TableSet::clear_rows(int64_t begin, int64_t end) noexcept {
  for (int64_t i = begin; i < end; ++i) {
    if (has(KVC_TABLES_DENSE)) {
      std::fill_n(dense_.data() + i * stride_, held_[i].written, options_.pad_value);
    }
    held_[i] = {0, held_[i].padded, 0, -1};
    row_of_[i] = -1;
    last_page_len_[i] = seqlens_[i] = starts_[i] = leftpad_[i] = 0;
    if (options_.streams) sinks_[i] = holes_[i] = 0;
  }
}

void TableSet::write() {
  if (listed_) list_slots();
  reserve();
  page_size_ = divider_.size();
  if (listed_) {
    write_lists();
  } else {
    write_rows();
    if (has(KVC_TABLES_CSR)) write_csr();
  }
  fill_unused();
  rows_ = next_rows_;
  pages_ = next_pages_;
  causal_ = next_causal_;
  source_ = nullptr;
}

void TableSet::write_csr() noexcept {
  const int64_t count = next_rows_;
  int32_t *indices = indices_.data(), *indptr = indptr_.data(), *last = last_page_len_.data();
  const int32_t page_size = page_size_;
  int32_t pages = 0;
  indptr[0] = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Planned& row = planned_[i];
    KVC_ASSERT(pages + row.count <= indices_.size(), pages + row.count, indices_.size());
    if (row.count > 0) read(row, 0, indices + pages);
    last[i] = row.count == 0 ? 0 : row.seqlen - (row.count - 1) * page_size;
    indptr[i + 1] = pages += row.count;
  }
}

void TableSet::write_rows() noexcept {
  zeros_ = 0;
  const auto count = static_cast<size_t>(next_rows_);
  const Planned* planned = planned_.data();
  const bool dense = has(KVC_TABLES_DENSE);
  int32_t *seqlens = seqlens_.data(), *leftpad = leftpad_.data(), *starts = starts_.data(), *owners = row_of_.data();
  int32_t *cu_q = cu_q_.data(), *cu_k = cu_k_.data(), *sinks = sinks_.data(), *holes = holes_.data();
  const Held* held = held_.data();
  const auto width = static_cast<int32_t>(columns_);
  int32_t queries = 0, keys = 0, max_q = 0, max_k = 0;
  cu_q[0] = cu_k[0] = 0;
  for (size_t i = 0; i < count; ++i) {
    const Planned& row = planned[i];
    KVC_ASSERT(row.kept >= 0 && row.kept <= row.count && row.head <= row.count, row.kept, row.count);
    KVC_ASSERT(!dense || row.count <= width, row.count, width);
    if (dense) {
      const auto index = static_cast<int64_t>(i);
      if (row.kept != row.count) read(row, row.kept, dense_.data() + index * stride_ + row.kept);
      if (held[i].written != row.count || held[i].padded < width || row.kept != row.count) {
        pad(index, {row.row, row.first, row.count});
      }
    }
    seqlens[i] = row.seqlen;
    leftpad[i] = row.leftpad;
    starts[i] = row.position;
    owners[i] = row.row;
    cu_q[i + 1] = queries += row.queries;
    cu_k[i + 1] = keys += row.seqlen - row.leftpad - row.hole;
    max_q = std::max(max_q, row.queries);
    max_k = std::max(max_k, row.seqlen);
  }
  streams_ = next_streams_ || options_.streams;
  for (size_t i = 0; streams_ && i < count; ++i) {
    sinks[i] = planned[i].sinks;
    holes[i] = planned[i].hole;
  }
  queries_ = queries;
  keys_ = keys;
  max_q_ = max_q;
  max_k_ = max_k;
}

// Writes rows of lists. Each row has one query, and the keys of its list.
void TableSet::write_lists() noexcept {
  const auto count = static_cast<int32_t>(next_rows_), width = static_cast<int32_t>(columns_);
  const bool dense = has(KVC_TABLES_DENSE), csr = has(KVC_TABLES_CSR);
  const int64_t stride = stride_;
  const int32_t pad_value = options_.pad_value;
  const List* planned = planned_lists_.data();
  Held* held = held_.data();
  const int32_t* slots = list_slots_.data();
  int32_t *seqlens = seqlens_.data(), *owners = row_of_.data(), *cu_q = cu_q_.data(), *cu_k = cu_k_.data();
  int32_t *last = last_page_len_.data(), *table = dense_.data();
  cu_q[0] = cu_k[0] = 0;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t first = planned[i].first, keys = planned[i].count;
    KVC_ASSERT(first >= 0 && (!dense || keys <= width), keys, width);
    seqlens[i] = keys;
    owners[i] = planned[i].row;
    cu_q[i + 1] = i + 1;
    cu_k[i + 1] = first + keys;
    if (csr) last[i] = keys > 0 ? 1 : 0;
    if (!dense) continue;
    int32_t* out = table + i * stride;
    if (keys + kBlock > stride) {
      std::copy_n(slots + first, keys, out);
      pad(i, planned[i]);
      continue;
    }
    copy_blocks(slots + first, keys, out);
    const int32_t padding[kBlock] = {pad_value, pad_value, pad_value, pad_value};
    __builtin_memcpy(out + keys, padding, sizeof(padding));  // overwrites elements that were copied beyond the end
    if (held[i].written <= keys + kBlock && held[i].padded >= width) {
      held[i].written = keys;
    } else {
      pad(i, planned[i]);
    }
  }
  for (; zeros_ < count; ++zeros_) leftpad_[zeros_] = starts_[zeros_] = 0;
  const auto keys = static_cast<int32_t>(next_pages_);
  if (csr) {
    std::copy_n(cu_k, count + 1, indptr_.data());
    std::copy_n(slots, keys, indices_.data());
  }
  streams_ = false;
  queries_ = count;
  keys_ = keys;
  max_q_ = count > 0 ? 1 : 0;
  max_k_ = widest_;
}

// In graph mode, fills the arrays after the rows of a step: clears old entries, and continues the sums.
void TableSet::fill_unused() noexcept {
  if (!options_.fixed()) return;
  const int64_t count = next_rows_, most = options_.max_rows;
  KVC_ASSERT(count <= most, count, most);
  std::fill(cu_q_.data() + count + 1, cu_q_.data() + most + 1, static_cast<int32_t>(queries_));
  std::fill(cu_k_.data() + count + 1, cu_k_.data() + most + 1, static_cast<int32_t>(keys_));
  if (has(KVC_TABLES_CSR)) {
    const auto pages = static_cast<int32_t>(next_pages_);
    std::fill(indptr_.data() + count + 1, indptr_.data() + most + 1, pages);
    if (pages_ > pages) std::fill(indices_.data() + pages, indices_.data() + pages_, options_.pad_value);
  }
  clear_rows(count, rows_);
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
  if (has(KVC_TABLES_DENSE)) {
    out->block_table = borrowed_tensor(dense_.data(), dense_shape_);
    out->block_table.ndim = 2;
    out->block_table.strides = dense_strides_;
  }
  if (has(KVC_TABLES_CSR)) {
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
