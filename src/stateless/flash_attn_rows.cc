#include "stateless/flash_attn_rows.h"

#include <algorithm>
#include <cinttypes>

#include "base/checked.h"
#include "tensor/key_lists.h"

namespace kvc {
namespace {

// Fills [rows + 1] offsets with those of the caller or, if the caller gives none, with multiples of `each`. The
// caller's offsets must begin with 0, never decrease, and be at most `tokens`.
Status fill_offsets(const IndexTensor& offsets, int64_t rows, int64_t each, int64_t tokens, std::vector<int32_t>* out) {
  out->resize(static_cast<size_t>(rows) + 1);
  int32_t* begin = out->data();
  if (!offsets.given()) {
    for (int64_t r = 0; r <= rows; ++r) begin[r] = static_cast<int32_t>(r * each);
    return Status();
  }
  for (int64_t r = 0; r <= rows; ++r) {
    const int64_t value = offsets[r], least = r == 0 ? 0 : begin[r - 1], most = r == 0 ? 0 : tokens;
    if (value < least || value > most) {
      return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s[%" PRId64 "] is %" PRId64 ", not in %" PRId64 "..%" PRId64,
                           offsets.name(), r, value, least, most)
          .at(r);
    }
    begin[r] = static_cast<int32_t>(value);
  }
  return Status();
}

Status check_in(const char* name, int64_t row, int64_t value, int64_t most) {
  if (value >= 0 && value <= most) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s of row %" PRId64 " is %" PRId64 ", not in 0..%" PRId64, name, row,
                       value, most)
      .at(row);
}

}  // namespace

Status FlashAttnRows::build(const FlashAttnCall& call) {
  const auto rows = static_cast<size_t>(call.rows);
  KVC_TRY(fill_offsets(call.cu_seqlens_q, call.rows, call.row_queries, call.q.shape[0], &token_begin_));
  if (call.appends) {
    KVC_TRY(fill_offsets(call.cu_seqlens_k_new, call.rows, call.row_new, call.k.shape[0], &new_begin_));
  } else {
    new_begin_.assign(rows + 1, 0);
  }
  const auto queries = static_cast<size_t>(token_begin_.back()), fresh = static_cast<size_t>(new_begin_.back());
  kv_lengths_.resize(rows);
  key_begins_.resize(rows);
  cache_rows_.resize(rows);
  page_begin_.resize(rows);
  positions_.resize(queries);
  const bool ends = call.window_right > 0;  // other windows need no key_ends
  if (ends) key_ends_.resize(queries);
  slots_.resize(fresh);
  if (call.rotary.given()) {
    query_rotations_.resize(queries);
    new_rotations_.resize(fresh);
  }
  rows_ = {};
  rows_.num_rows = static_cast<int32_t>(rows);
  rows_.num_tokens = token_begin_.back();
  rows_.token_begin = token_begin_.data();
  rows_.kv_lengths = kv_lengths_.data();
  rows_.positions = positions_.data();
  rows_.key_ends = ends ? key_ends_.data() : nullptr;
  rows_.key_begins = key_begins_.data();
  for (int32_t row = 0; row < rows_.num_rows; ++row) {
    KVC_TRY(call.has_lists() ? build_listed_row(call, row) : build_row(call, row));
  }
  place_lists(call);
  return call.appends && call.batch_idx.given() ? check_unlike(call) : Status();
}

// Places the page list of each row. With a block table, the list has as many pages as the row's keys need. Without a
// block table, the only page of the list is the row of the cache, which is one large page.
void FlashAttnRows::place_lists(const FlashAttnCall& call) {
  int64_t pages = 0;
  for (size_t r = 0; r < page_begin_.size(); ++r) {
    page_begin_[r] = pages;
    pages += call.paged() ? ceil_div(kv_lengths_[r], call.cache.layer.page_size) : 1;
  }
  if (call.paged() && pages > pages_.size()) pages_ = LazyArray<int32_t>(pages + pages / 4);
  tables_ = {};
  // If tables_.pages were null, the lists would be read as trees of nodes. So if pages_ is empty, because the block
  // table has no columns, cache_rows_ takes its place.
  tables_.pages = call.paged() && pages_.size() > 0 ? pages_.data() : cache_rows_.data();
  tables_.page_begin = page_begin_.data();
  if (!call.has_lists() || call.host_reads_lists()) return;
  // If lists of keys are on the device, the kernels use the slots in them, and no page ids. But the device still copies
  // as many page ids as a row's length needs. So all rows share one list of zeros.
  const int64_t entries = ceil_div(call.attend.lists.num_entries, call.cache.layer.page_size) + 1;
  if (entries > pages_.size()) pages_ = LazyArray<int32_t>(entries);
  std::fill_n(pages_.data(), entries, 0);
  std::fill(page_begin_.begin(), page_begin_.end(), 0);
  tables_.pages = pages_.data();
}

// Builds a row whose queries attend to lists of slots. Its length is the length of the lists.
Status FlashAttnRows::build_listed_row(const FlashAttnCall& call, int32_t row) {
  const auto r = static_cast<size_t>(row);
  const kvc_backend_lists& lists = call.attend.lists;
  const kvc_backend_layer& cache = call.cache.layer;
  kv_lengths_[r] = lists.num_entries;
  key_begins_[r] = cache_rows_[r] = 0;
  // Kernels count slots in int32, so no list can name slot 2^31 - 1.
  const int64_t slots = std::min<int64_t>(cache.num_pages * cache.page_size, INT32_MAX);
  BadEntry bad;
  for (int32_t token = token_begin_[r]; token < token_begin_[r + 1]; ++token) {
    positions_[static_cast<size_t>(token)] = 0;
    if (!call.host_reads_lists()) continue;
    if (!find_entry_beyond(lists, row, token, cache.num_kv_heads, slots, &bad)) continue;
    return Status::error(KVC_ERROR_OUT_OF_RANGE,
                         "indices has the slot %d in query %d of row %d, head %" PRId64 ", entry %" PRId64
                         "; lists can name the first %" PRId64 " slots of k_cache",
                         bad.value, token - token_begin_[r], row, bad.head, bad.place, slots)
        .at(row);
  }
  return Status();
}

Status FlashAttnRows::build_row(const FlashAttnCall& call, int32_t row) {
  const auto r = static_cast<size_t>(row);
  const int64_t cached = call.cache_seqlens.given() ? call.cache_seqlens[row] : call.capacity;
  const int64_t fresh = new_begin_[r + 1] - new_begin_[r], length = cached + fresh;
  KVC_TRY(
      check_in(call.cache_seqlens.given() ? call.cache_seqlens.name() : "cache_seqlens", row, cached, call.capacity));
  if (length > call.capacity) {
    return Status::error(KVC_ERROR_BUFFER_TOO_SMALL,
                         "the cache of row %d holds %" PRId64 " tokens: %" PRId64 " and %" PRId64
                         " new ones are %" PRId64 " too many",
                         row, call.capacity, cached, fresh, length - call.capacity)
        .at(row)
        .missing(length, call.capacity);
  }
  const int64_t pad = call.leftpad.given() ? call.leftpad[row] : 0;
  KVC_TRY(check_in("cache_leftpad", row, pad, cached));
  const int64_t cache_rows = call.paged() ? call.block_table.num_rows() : call.cache.layer.num_pages;
  const int64_t cache_row = call.batch_idx.given() ? call.batch_idx[row] : row;
  KVC_TRY(check_in("cache_batch_idx", row, cache_row, cache_rows - 1));
  kv_lengths_[r] = static_cast<int32_t>(length);
  key_begins_[r] = static_cast<int32_t>(pad);
  cache_rows_[r] = static_cast<int32_t>(cache_row);
  const int32_t begin = token_begin_[r], end = token_begin_[r + 1];
  for (int32_t t = begin; t < end; ++t) {
    const int64_t position = length - (end - t);
    positions_[static_cast<size_t>(t)] = static_cast<int32_t>(position);
    if (call.window_right <= 0) continue;
    key_ends_[static_cast<size_t>(t)] = static_cast<int32_t>(std::min(length, position + 1 + call.window_right));
  }
  return call.rotary.given() ? rotate_row(call, row, cached) : Status();
}

Status FlashAttnRows::rotate_row(const FlashAttnCall& call, int32_t row, int64_t cached) {
  const auto r = static_cast<size_t>(row);
  const int64_t first = call.rotary_seqlens.given() ? call.rotary_seqlens[row] : cached;
  const bool advances = call.window_right >= 0 || call.layer.window_tokens > 0;
  const auto fill = [&](int32_t begin, int32_t end, bool moves, std::vector<int32_t>* out) {
    if (begin == end) return Status();
    const int64_t last = first + (moves ? end - begin - 1 : 0), positions = call.rotary.positions();
    if (first < 0 || last >= positions) {
      return Status::error(KVC_ERROR_OUT_OF_RANGE,
                           "row %d is rotated at positions %" PRId64 "..%" PRId64 ", and rotary_cos has %" PRId64, row,
                           first, last, positions)
          .at(row);
    }
    for (int32_t t = begin; t < end; ++t) {
      (*out)[static_cast<size_t>(t)] = static_cast<int32_t>(first + (moves ? t - begin : 0));
    }
    return Status();
  };
  KVC_TRY(fill(token_begin_[r], token_begin_[r + 1], advances, &query_rotations_));
  return fill(new_begin_[r], new_begin_[r + 1], true, &new_rotations_);
}

// Refuses two rows that append to the same cache row, because both would write the same slots.
Status FlashAttnRows::check_unlike(const FlashAttnCall& call) {
  sorted_.resize(cache_rows_.size());
  for (size_t r = 0; r < sorted_.size(); ++r) {
    sorted_[r] = int64_t{cache_rows_[r]} * (int64_t{1} << 32) + static_cast<int64_t>(r);
  }
  std::sort(sorted_.begin(), sorted_.end());
  for (size_t i = 1; i < sorted_.size(); ++i) {
    if (sorted_[i - 1] >> 32 != sorted_[i] >> 32) continue;
    const int64_t one = sorted_[i - 1] & UINT32_MAX, other = sorted_[i] & UINT32_MAX;
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "%s has %" PRId64 " in rows %" PRId64 " and %" PRId64 ", and both append",
                         call.batch_idx.name(), sorted_[i] >> 32, one, other)
        .at(other);
  }
  return Status();
}

// Reads the page ids of columns [begin, end) of a row.
Status FlashAttnRows::read_pages(const FlashAttnCall& call, int32_t row, int64_t begin, int64_t end) {
  const int64_t cache_row = cache_rows_[static_cast<size_t>(row)], pages = call.cache.layer.num_pages;
  int32_t* const list = pages_.data() + page_begin_[static_cast<size_t>(row)];
  if (call.block_table.copy_columns(cache_row, begin, end, pages - 1, list)) return Status();
  const int32_t* const bad =
      std::find_if(list + begin, list + end, [pages](int32_t page) { return page < 0 || page >= pages; });
  return Status::error(KVC_ERROR_OUT_OF_RANGE,
                       "block_table has page %d for row %d in row %" PRId64 ", column %td; k_cache has %" PRId64
                       " pages",
                       *bad, row, cache_row, bad - list, pages)
      .at(row);
}

Status FlashAttnRows::map_pages(const FlashAttnCall& call, const WorkPlan& plan) {
  const int64_t page_size = call.cache.layer.page_size;
  if (call.has_lists()) return Status();
  for (int32_t row = 0; row < rows_.num_rows; ++row) {
    const auto r = static_cast<size_t>(row);
    const int32_t length = kv_lengths_[r], queries = token_begin_[r + 1] - token_begin_[r];
    const int32_t fresh = new_begin_[r + 1] - new_begin_[r];
    int64_t first = queries > 0 ? plan.first_key(rows_, row, length - queries) : length;
    first = std::min<int64_t>(first, length - fresh);
    if (first >= length) continue;  // no key is read or written
    if (call.paged()) KVC_TRY(read_pages(call, row, first / page_size, ceil_div(length, page_size)));
    const int32_t* const list = tables_.pages + page_begin_[r];
    for (int32_t i = 0; i < fresh; ++i) {
      const int64_t position = length - fresh + i;
      slots_[static_cast<size_t>(new_begin_[r]) + static_cast<size_t>(i)] =
          list[position / page_size] * page_size + position % page_size;
    }
  }
  return Status();
}

}  // namespace kvc
