// The host's part of attend: what runs where. Pure functions, tested without a device.
//
//   - blocks: an item becomes a thread block for each of its kv heads and each few rows of it, where rows are (query,
//     head of the group) pairs: row r is query r / group, head r % group;
//   - page lists: of each row those entries that a query sees, walked from the host's trees into arrays. A streaming
//     row has two lists, that of its sinks and that of its window.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/mask.h"
#include "kernels/common/page_walk.h"
#include "kernels/common/query_place.h"

namespace kvc::kernels::cuda {

// A thread block's work: rows [row_begin, row_end) of kv head `head` of an item.
struct AttendBlock {
  int32_t item;
  int32_t head;
  int32_t row_begin, row_end;
};

constexpr int32_t kMaxBlockRows = 16;
constexpr int32_t kBlockKeys = 32;  // keys that a block looks at together: one a lane
constexpr int32_t kBlockDims = 64;  // dims of them that it stages together

// Floats of a block's shared memory but for the fixed part: q, o, and, if states are folded, those of earlier keys.
constexpr int64_t block_floats(int32_t rows, int32_t head_dim, int32_t v_head_dim, bool folds) {
  return int64_t{rows} * (head_dim + (folds ? 2 : 1) * v_head_dim);
}

// The most rows of a block that fit into `floats`: a power of two, at least 1 at every head dim there is.
inline int32_t rows_of_block(int64_t floats, int32_t head_dim, int32_t v_head_dim, bool folds) {
  int32_t rows = kMaxBlockRows;
  while (rows > 1 && block_floats(rows, head_dim, v_head_dim, folds) > floats) rows /= 2;
  return rows;
}

// How items become blocks: those whose rows are in [min_rows, max_rows], `rows` of them a block.
struct BlockCut {
  int32_t rows;
  int32_t min_rows = 0, max_rows = INT32_MAX;
};

inline int32_t rows_of_item(const kvc_backend_attend& args, const kvc_backend_item& item) {
  return (item.q_end - item.q_begin) * (args.layer->num_q_heads / args.layer->num_kv_heads);
}

inline int64_t count_blocks(const kvc_backend_attend& args, const BlockCut& cut) {
  const int64_t rows = cut.rows;
  int64_t count = 0;
  for (int64_t i = 0; i < args.num_items; ++i) {
    const kvc_backend_item& item = args.items[i];
    const int64_t item_rows = rows_of_item(args, item);
    if (item_rows < cut.min_rows || item_rows > cut.max_rows) continue;
    count += (item.head_end - item.head_begin) * ((item_rows + rows - 1) / rows);
  }
  return count;
}

// blocks: [count_blocks].
inline void list_blocks(const kvc_backend_attend& args, const BlockCut& cut, AttendBlock* blocks) {
  const int32_t rows = cut.rows;
  for (int32_t i = 0; i < args.num_items; ++i) {
    const kvc_backend_item& item = args.items[i];
    const int32_t item_rows = rows_of_item(args, item);
    if (item_rows < cut.min_rows || item_rows > cut.max_rows) continue;
    for (int32_t head = item.head_begin; head < item.head_end; ++head) {
      for (int32_t row = 0; row < item_rows; row += rows) {
        *blocks++ = {i, head, row, row + rows < item_rows ? row + rows : item_rows};
      }
    }
  }
}

// Pages [begin, end) of one list, as list indexes; first: where entry `begin` is in the array of all.
struct PageRange {
  int32_t begin, end;
  int64_t first;
};

// The list that an item reads.
KVC_HOST_DEVICE int32_t list_of_item(const kvc_backend_item* item) {
  return 2 * item->row + (item->part == KVC_BACKEND_PART_SINKS ? 1 : 0);
}

// Fills ranges [2 * num_rows]; returns how many entries they have together.
inline int64_t find_page_ranges(const kvc_backend_attend& args, PageRange* ranges) {
  const int32_t lists = 2 * args.rows->num_rows, page_size = args.layer->page_size;
  for (int32_t i = 0; i < lists; ++i) ranges[i] = {INT32_MAX, 0, 0};
  for (int64_t i = 0; i < args.num_items; ++i) {
    const kvc_backend_item& item = args.items[i];
    PageRange& range = ranges[list_of_item(&item)];
    QueryCursor cursor = query_cursor(&args, &item);
    for (int32_t q = 0; q < item.q_end - item.q_begin; ++q) {
      const QueryPlace place = place_of_query(&cursor, q);
      const KeyRange keys = query_mask(&args, &item, place.row, place.query).keys;
      if (keys.begin >= keys.end) continue;
      const int32_t begin = keys.begin / page_size, end = (keys.end - 1) / page_size + 1;
      range.begin = begin < range.begin ? begin : range.begin;
      range.end = end > range.end ? end : range.end;
    }
  }
  int64_t total = 0;
  for (int32_t i = 0; i < lists; ++i) {
    if (ranges[i].begin >= ranges[i].end) ranges[i] = {0, 0, 0};
    ranges[i].first = total;
    total += ranges[i].end - ranges[i].begin;
  }
  return total;
}

// pages: [find_page_ranges]; page_begin: [2 * num_rows], so that entry e of list i is pages[page_begin[i] + e].
inline void flatten_pages(const kvc_backend_attend& args, const PageRange* ranges, int32_t* pages,
                          int64_t* page_begin) {
  for (int32_t list = 0; list < 2 * args.rows->num_rows; ++list) {
    const PageRange& range = ranges[list];
    page_begin[list] = range.first - range.begin;
    if (range.begin == range.end) continue;
    PageCursor cursor = page_cursor(args.tables, list / 2);
    for (int32_t entry = range.begin; entry < range.end; ++entry) *pages++ = page_at(&cursor, entry);
  }
}

}  // namespace kvc::kernels::cuda
