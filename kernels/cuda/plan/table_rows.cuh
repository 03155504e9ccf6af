// Counts, checks and writes the rows that one row of the batch has in one table, for the kernels of plan/tables.cu.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/table_rules.h"
#include "kernels/cuda/faults.cuh"
#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

// A node of a row's token tree.
struct TreeNode {
  int32_t parent;  // -1: the node is a root
  int32_t depth;
  int32_t first_key;  // where the node's list of keys begins, within the lists of the row
};

// What one row of the batch adds to one table. After plan_scan_kernel: what all rows before it add.
struct RowCounts {
  int32_t rows, pages, queries;
  int32_t lengths;  // the sum of cache_seqlens
  int32_t keys;     // the sum of cache_seqlens without leftpad
};

// A plan as its kernels get it, by value. The arrays of the plan are in device memory.
struct TablePlan {
  kvc_backend_table_plan args;  // the kernels do not read its config, tables and tokens
  VisibleRule rule;
  DraftShape shape;
  int32_t page_size, pad_value, max_rows;
  int64_t num_pages;  // the number of pages of the server's pool
  int32_t fresh;      // the number of new tokens of each row; with `extends`, each row has its own number
  bool extends, drafts, verifies, with_new, slots;
  ValueCheck check;
  int32_t* refused;      // [1]
  StepTokens* steps;     // [B]
  int32_t* sources;      // [B]: the row of the server's table for each row of the batch
  int32_t* token_begin;  // [B + 1]
  TreeNode* nodes;       // nullable; [B, fresh]
  int32_t* list_keys;    // [B]: the number of keys in the lists of the row's tree
  RowCounts* counts;     // [tables, B]
  RowCounts* totals;     // [tables]
};

struct TableDivider {
  int32_t page_size;
  __host__ __device__ int32_t size() const { return page_size; }
  __host__ __device__ int32_t page(int32_t entry) const { return entry / page_size; }
  __host__ __device__ int32_t pages(int32_t entries) const { return (entries + page_size - 1) / page_size; }
};

struct TableLayout {
  TableDivider divider;
  bool listed;    // rows list their keys one by one
  bool of_slots;  // the new table names slots, not pages
};

__device__ __forceinline__ TableLayout layout_of(const TablePlan& plan, const kvc_backend_table& table) {
  TableLayout layout;
  layout.listed = plan.verifies && table.part == KVC_TABLES_BRANCHES;
  layout.of_slots = plan.slots || layout.listed;
  layout.divider.page_size = layout.of_slots ? 1 : plan.page_size;
  return layout;
}

// `slots` says what `end` counts: slots (true) or pages (false). Returns how many columns of the server's table are
// read for all slots, or all pages, below `end`.
__host__ __device__ __forceinline__ int64_t columns_to(const TablePlan& plan, bool slots, int64_t end) {
  const bool of_slots = plan.args.table_of_slots != 0;
  if (slots == of_slots) return end;
  return slots ? (end + plan.page_size - 1) / plan.page_size : (end - 1) * plan.page_size + 1;
}

__device__ __forceinline__ int64_t slot_of_entry(const TablePlan& plan, int32_t source, int32_t entry) {
  const int32_t* const row = plan.args.table + source * plan.args.table_stride;
  if (plan.args.table_of_slots != 0) return row[entry];
  return int64_t{row[entry / plan.page_size]} * plan.page_size + entry % plan.page_size;
}
// Returns what the new table gets for page `page` of a row: the page id. If layout.of_slots, each page has one entry
// (layout.divider), so `page` is the number of an entry, and the new table gets the slot of this entry.
__device__ __forceinline__ int32_t column_of(const TablePlan& plan, const TableLayout& layout, int32_t source,
                                             int32_t page) {
  if (layout.of_slots) return static_cast<int32_t>(slot_of_entry(plan, source, page));
  const int32_t* const row = plan.args.table + source * plan.args.table_stride;
  return plan.args.table_of_slots != 0 ? row[static_cast<int64_t>(page) * plan.page_size] / plan.page_size : row[page];
}

__device__ __forceinline__ int32_t array_of_table(const TablePlan& plan) {
  return plan.args.table_of_slots != 0 ? KVC_BACKEND_ARRAY_REQ_TO_TOKEN : KVC_BACKEND_ARRAY_BLOCK_TABLE;
}

// slot_within and column_within check the ids that slot_of_entry and column_of read from the server's table for row r:
// they must be in the pool. If
// pages are made from slots, column_within also checks that the first slot of a page is a multiple of page_size.
__device__ __forceinline__ bool slot_within(const TablePlan& plan, int32_t r, int32_t source, int32_t entry) {
  const bool of_slots = plan.args.table_of_slots != 0;
  const int32_t column = of_slots ? entry : entry / plan.page_size;
  const int64_t limit = plan.num_pages * (of_slots ? plan.page_size : 1);
  return plan.check.entry(KVC_BACKEND_FAULT_RANGE, array_of_table(plan), r, source, column,
                          plan.args.table[source * plan.args.table_stride + column], limit - 1);
}
__device__ __forceinline__ bool column_within(const TablePlan& plan, const TableLayout& layout, int32_t r,
                                              int32_t source, int32_t page) {
  if (layout.of_slots) return slot_within(plan, r, source, page);
  if (!slot_within(plan, r, source, page * plan.page_size)) return false;
  if (plan.args.table_of_slots == 0) return true;
  const int64_t column = static_cast<int64_t>(page) * plan.page_size;
  return plan.check.entry(KVC_BACKEND_FAULT_PAGE, KVC_BACKEND_ARRAY_REQ_TO_TOKEN, r, source, column,
                          plan.args.table[source * plan.args.table_stride + column], plan.page_size);
}

// Counts what `row`, a row of the batch, adds to a table.
struct CountingRows {
  const TablePlan* plan;
  TableLayout layout;
  int32_t max_columns;
  int32_t row;
  RowCounts* counts;
  bool fits;

  __host__ __device__ void add(int32_t index, int32_t queries, int32_t begin, int32_t end) {
    add_window(index, queries, begin, end, 0, 0);
  }
  __host__ __device__ void add_window(int32_t, int32_t queries, int32_t begin, int32_t end, int32_t, int32_t) {
    const RowPages pages = pages_of_keys(layout.divider, begin, end);
#if !defined(__CUDACC__) || defined(__CUDA_ARCH__)
    const int64_t columns = columns_to(*plan, layout.of_slots, int64_t{pages.first} + pages.count);
    fits = plan->check.at_most(KVC_BACKEND_FAULT_PAGES, array_of_table(*plan), row, pages.count, max_columns) &&
           (pages.count == 0 || plan->check.at_most(KVC_BACKEND_FAULT_COLUMNS, array_of_table(*plan), row, columns,
                                                    plan->args.num_columns)) &&
           fits;
#endif
    counts->rows += 1;
    counts->pages += pages.count;
    counts->queries += queries;
    counts->lengths += pages.seqlen;
    counts->keys += pages.seqlen - pages.leftpad;
  }
};

// Checks the ids that WritingRows reads for the block's row of the batch. Each thread checks some of them.
struct CheckingRows {
  const TablePlan* plan;
  const kvc_backend_table* table;

  __host__ __device__ void add(int32_t index, int32_t queries, int32_t begin, int32_t end) {
    add_window(index, queries, begin, end, 0, 0);
  }
  __host__ __device__ void add_window(int32_t, int32_t, int32_t begin, int32_t end, int32_t, int32_t) {
#if !defined(__CUDACC__) || defined(__CUDA_ARCH__)
    const TableLayout layout = layout_of(*plan, *table);
    const int32_t row = static_cast<int32_t>(blockIdx.x), source = plan->sources[row];
    const RowPages pages = pages_of_keys(layout.divider, begin, end);
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < pages.count; i += static_cast<int32_t>(blockDim.x)) {
      if (!column_within(*plan, layout, row, source, pages.first + i)) *plan->refused = 1;
    }
#else
    (void)begin, (void)end;
#endif
  }
};

// Writes rows of a table, from row next.rows on. All threads of a block call it with the same values.
struct WritingRows {
  const TablePlan* plan;
  const kvc_backend_table* table;
  TableLayout layout;
  int32_t source;
  RowCounts next;

  __host__ __device__ void add(int32_t index, int32_t queries, int32_t begin, int32_t end) {
    add_window(index, queries, begin, end, 0, 0);
  }
  __host__ __device__ void add_window(int32_t index, int32_t queries, int32_t begin, int32_t end, int32_t position,
                                      int32_t) {
#if !defined(__CUDACC__) || defined(__CUDA_ARCH__)
    const RowPages pages = pages_of_keys(layout.divider, begin, end);
    const kvc_backend_table& to = *table;
    const int64_t row = next.rows, thread = threadIdx.x, threads = blockDim.x;
    if (thread == 0) {
      to.cache_seqlens[row] = pages.seqlen;
      to.leftpad[row] = pages.leftpad;
      to.key_starts[row] = position;
      to.batch_rows[row] = index;
      to.cu_seqlens_q[row + 1] = next.queries + queries;
      to.cu_seqlens_k[row + 1] = next.keys + pages.seqlen - pages.leftpad;
      if (to.indptr != nullptr) {
        to.indptr[row + 1] = next.pages + pages.count;
        to.last_page_len[row] = pages.count == 0 ? 0 : pages.seqlen - (pages.count - 1) * layout.divider.page_size;
      }
    }
    int32_t* const dense = to.block_table == nullptr ? nullptr : to.block_table + row * to.table_stride;
    for (int64_t i = thread; i < pages.count; i += threads) {
      const int32_t id = column_of(*plan, layout, source, pages.first + static_cast<int32_t>(i));
      if (dense != nullptr) dense[i] = id;
      if (to.indices != nullptr) to.indices[next.pages + i] = id;
    }
    for (int64_t i = pages.count + thread; dense != nullptr && i < to.table_stride; i += threads) {
      dense[i] = plan->pad_value;
    }
    next.rows += 1;
    next.pages += pages.count;
    next.queries += queries;
    next.keys += pages.seqlen - pages.leftpad;
#else
    (void)index, (void)queries, (void)begin, (void)end, (void)position;
#endif
  }
};

struct PositionsOfNodes {
  int32_t before;
  const TreeNode* nodes;
  __host__ __device__ int32_t operator()(int32_t q) const { return before + nodes[q].depth; }
};

// Calls `rows` for each row that row r of the batch has in a table. Lists of tree nodes are written by write_lists
// instead.
template <class Rows>
__device__ __forceinline__ void rows_of_table(const TablePlan& plan, const kvc_backend_table& table,
                                              const StepTokens& step, int32_t r, Rows& rows) {
  if (table.part == KVC_TABLES_ENCODER) {
    encoder_row(step, r, step.base, rows);
  } else if (plan.drafts && table.part == KVC_TABLES_PREFIX) {
    draft_prefix_row(step, r, plan.rule, plan.shape, table.step, rows);
  } else if (plan.drafts) {
    draft_branch_row(step, r, plan.rule, plan.shape, table.step, rows);
  } else if (table.part == KVC_TABLES_PREFIX) {
    const PositionsOfNodes positions = {step.before, plan.nodes + static_cast<int64_t>(r) * plan.fresh};
    prefix_row(step, r, plan.rule, step.before, positions, rows);
  } else {
    whole_row(step, r, plan.rule, rows);
  }
}

// Writes the key lists of a row's tree nodes. Each thread writes the list of a node: it goes from the node to the root,
// and writes the list from its end to its begin.
__device__ __forceinline__ void write_lists(const TablePlan& plan, const kvc_backend_table& table,
                                            const StepTokens& step, int32_t r, const RowCounts& first) {
  const TreeNode* const nodes = plan.nodes + static_cast<int64_t>(r) * plan.fresh;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < plan.fresh; i += static_cast<int32_t>(blockDim.x)) {
    const int64_t row = first.rows + i;
    VisiblePath path = {-1, 0, 0};
    if (!step.inert) path = visible_path(plan.rule, step.before, nodes[i].depth);
    const int32_t keys = keys_of_path(path), key = first.keys + (step.inert ? 0 : nodes[i].first_key);
    table.cache_seqlens[row] = keys;
    table.leftpad[row] = table.key_starts[row] = 0;
    table.batch_rows[row] = r;
    table.cu_seqlens_q[row + 1] = static_cast<int32_t>(row) + 1;
    table.cu_seqlens_k[row + 1] = key + keys;
    if (table.indptr != nullptr) {
      table.indptr[row + 1] = key + keys;
      table.last_page_len[row] = keys > 0 ? 1 : 0;
    }
    int32_t* const dense = table.block_table == nullptr ? nullptr : table.block_table + row * table.table_stride;
    for (int32_t depth = path.depth, at = i; depth >= 0; --depth, at = nodes[at].parent) {
      if (depth < path.first && depth >= path.sinks) continue;
      const int32_t to = depth < path.first ? depth : path.sinks + depth - path.first;
      const int32_t slot = static_cast<int32_t>(slot_of_entry(plan, plan.sources[r], step.base + step.before + at));
      if (dense != nullptr) dense[to] = slot;
      if (table.indices != nullptr) table.indices[key + to] = slot;
    }
    for (int64_t to = keys; dense != nullptr && to < table.table_stride; ++to) dense[to] = plan.pad_value;
  }
}

}  // namespace kvc::kernels::cuda
