// How a plan becomes thread blocks. Pure functions, tested without a device.
//
//   - Blocks: an item is cut into thread blocks. A block has one kv head and some rows of the item. A row is a pair of
//     a query and a query head of the group that shares the kv head: row r is query r / group, head r % group.
//   - Page lists: in the plan of a forward they are trees, which the device reads in its mirror. In other plans, the
//     entries that some query sees are copied to one array. In that array, each row of the batch has two lists: one for
//     its window, and one for the sinks of a streaming row.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/mask.h"
#include "kernels/common/page_walk.h"
#include "kernels/common/query_place.h"

namespace kvc::kernels::cuda {

// The work of a thread block: rows [row_begin, row_end) of kv head `head` of an item.
struct AttendBlock {
  int32_t item;
  int32_t head;
  int32_t row_begin, row_end;
};

// Which items become blocks: those of min_rows to max_rows rows. Their blocks have up to `rows` rows. Blocks of few
// rows (decode) and blocks of many rows (prefill) are launched separately. In the list of a call, the blocks of few
// rows come first.
struct BlockCut {
  int32_t rows;
  int32_t min_rows, max_rows;
};
constexpr BlockCut kFewRows = {16, 0, 16}, kManyRows = {64, 17, INT32_MAX};
// How Device::many cuts blocks of many rows. Kernels whose blocks have kManyRows compute such a block in two halves.
constexpr BlockCut kWideRows = {128, 17, INT32_MAX};
// The largest number of rows of an item if its blocks are cut by `many`. Only two kinds of items can have more rows:
// those whose group of heads is larger, and those that several sequences share.
constexpr int32_t most_item_rows(const BlockCut& many) { return many.rows; }

struct BlockCounts {
  int64_t few, many;
  int64_t both() const { return few + many; }
};

inline int32_t rows_of_item(const kvc_backend_plan& plan, const kvc_backend_item& item) {
  return (item.q_end - item.q_begin) * (plan.layer->num_q_heads / plan.layer->num_kv_heads);
}

inline int64_t count_blocks(const kvc_backend_plan& plan, const BlockCut& cut) {
  const int64_t rows = cut.rows;
  int64_t count = 0;
  for (int64_t i = 0; i < plan.num_items; ++i) {
    const kvc_backend_item& item = plan.arrays.items[i];
    const int64_t item_rows = rows_of_item(plan, item);
    if (item_rows < cut.min_rows || item_rows > cut.max_rows) continue;
    count += (item.head_end - item.head_begin) * ((item_rows + rows - 1) / rows);
  }
  return count;
}
// many: kManyRows or kWideRows.
inline BlockCounts count_all_blocks(const kvc_backend_plan& plan, const BlockCut& many) {
  return {count_blocks(plan, kFewRows), count_blocks(plan, many)};
}

// blocks: [count_blocks(plan, cut)], filled.
inline void list_blocks(const kvc_backend_plan& plan, const BlockCut& cut, AttendBlock* blocks) {
  const int32_t rows = cut.rows;
  for (int32_t i = 0; i < plan.num_items; ++i) {
    const kvc_backend_item& item = plan.arrays.items[i];
    const int32_t item_rows = rows_of_item(plan, item);
    if (item_rows < cut.min_rows || item_rows > cut.max_rows) continue;
    for (int32_t head = item.head_begin; head < item.head_end; ++head) {
      for (int32_t row = 0; row < item_rows; row += rows) {
        *blocks++ = {i, head, row, row + rows < item_rows ? row + rows : item_rows};
      }
    }
  }
}

// blocks: [count_all_blocks(plan, many).both()], filled.
inline void list_all_blocks(const kvc_backend_plan& plan, const BlockCut& many, AttendBlock* blocks) {
  list_blocks(plan, kFewRows, blocks);
  list_blocks(plan, many, blocks + count_blocks(plan, kFewRows));
}

// The blocks of items that the device made. For every item, the host launches as many blocks as the largest possible
// item has. many_rows: the largest number of rows of a block of many rows.
KVC_HOST_DEVICE int32_t rows_of_device_block(const kvc_backend_plan& plan, const kvc_backend_layer& layer,
                                             int32_t many_rows) {
  const int32_t most = plan.device_item_queries * (layer.num_q_heads / layer.num_kv_heads);
  return most <= kFewRows.max_rows ? kFewRows.rows : many_rows;
}
KVC_HOST_DEVICE int32_t blocks_of_head(const kvc_backend_plan& plan, const kvc_backend_layer& layer,
                                       int32_t many_rows) {
  const int32_t rows = rows_of_device_block(plan, layer, many_rows);
  return (plan.device_item_queries * (layer.num_q_heads / layer.num_kv_heads) + rows - 1) / rows;
}
// Returns block number `index`. It has work only if row_begin < row_end.
KVC_HOST_DEVICE AttendBlock device_block(const kvc_backend_plan& plan, const kvc_backend_layer& layer,
                                         int32_t many_rows, int64_t index) {
  const int32_t each = blocks_of_head(plan, layer, many_rows), rows = rows_of_device_block(plan, layer, many_rows);
  const int32_t row = static_cast<int32_t>(index % each) * rows;
  AttendBlock block = {static_cast<int32_t>(index / each / layer.num_kv_heads),
                       static_cast<int32_t>(index / each % layer.num_kv_heads), row, row + rows};
  const kvc_backend_item& item = plan.arrays.items[block.item];
  const int32_t item_rows = (item.q_end - item.q_begin) * (layer.num_q_heads / layer.num_kv_heads);
  if (block.row_end > item_rows) block.row_end = item_rows;
  return block;
}

// Entries [begin, end) of one page list. first: the place of entry `begin` in the array of all lists.
struct PageRange {
  int32_t begin, end;
  int64_t first;
};

// The page list that an item reads. If lists are arrays, each row has two: list 2 * row, and list 2 * row + 1 for its
// sinks. If lists are trees, each row has one.
KVC_HOST_DEVICE int32_t list_of_item(const kvc_backend_item* item) {
  return 2 * item->row + (item->part == KVC_BACKEND_PART_SINKS ? 1 : 0);
}
KVC_HOST_DEVICE PageCursor pages_of_item(const kvc_backend_tables* tables, const kvc_backend_item* item) {
  return page_cursor(tables, tables->pages == nullptr ? item->row : list_of_item(item));
}

// Fills ranges [2 * num_rows] with the entries of each list that items read. Returns the number of entries in all
// ranges.
inline int64_t find_page_ranges(const kvc_backend_plan& plan, PageRange* ranges) {
  const int32_t lists = 2 * plan.arrays.rows.num_rows, page_size = plan.layer->page_size;
  kvc_backend_attend args = {};
  args.layer = plan.layer;
  args.plan = &plan;
  for (int32_t i = 0; i < lists; ++i) ranges[i] = {INT32_MAX, 0, 0};
  for (int64_t i = 0; i < plan.num_items; ++i) {
    const kvc_backend_item& item = plan.arrays.items[i];
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

// Copies the entries of all ranges to `pages`, in order. Entry e of list i becomes pages[page_begin[i] + e]. pages:
// [find_page_ranges()], filled. page_begin: [2 * num_rows], filled.
inline void flatten_pages(const kvc_backend_plan& plan, const PageRange* ranges, int32_t* pages, int64_t* page_begin) {
  for (int32_t list = 0; list < 2 * plan.arrays.rows.num_rows; ++list) {
    const PageRange& range = ranges[list];
    page_begin[list] = range.first - range.begin;
    if (range.begin == range.end) continue;
    PageCursor cursor = page_cursor(&plan.arrays.tables, list / 2);
    for (int32_t entry = range.begin; entry < range.end; ++entry) *pages++ = page_at(&cursor, entry);
  }
}

}  // namespace kvc::kernels::cuda
