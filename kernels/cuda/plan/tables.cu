// plan_tables: makes block tables for other kernels, from a server's arrays on the device. For arrays on the host, the
// core makes the same tables in two passes over the rows (src/tables). Both follow kernels/common/table_rules.h. On the
// device, these kernels run in this order (`read` means plan_read_kernel, and so on):
//   read    One block checks the lengths of all rows, and finds where the new tokens of each row begin.
//   trees   A thread for each row finds the depths of its tree nodes, and where the list of keys of each node begins.
//   count   A thread for each row and table counts the rows, pages, queries and keys that the row adds to the table.
//   scan    A block for each table sums these counts, and checks whether they fit.
//   check   If the context validates, a block for each row and table checks the page ids and slots that will be read.
//   write   A block for each row and table writes the rows and pages. Further blocks make unused rows inert.
//   tokens  A block for each row and step writes slots and positions.
//   finish  One thread writes the generation word: the number of this build, or 0 if a kernel refused the plan.
// One launch handles up to kGroup tables.
//
// Roofline: memory bandwidth. Every element of the tables' capacity is written.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/table_rules.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/plan/indexes.cuh"
#include "kernels/cuda/plan/table_rows.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {
namespace {

constexpr int kThreads = 128;
// The smallest number of thread blocks that must fit on a multiprocessor by their registers. With 8 blocks, a thread
// has up to 64 registers. Without this bound, ptxas plans for 2,048 threads with 32 registers each. The kernels that
// inline rows_of_table then spill registers.
constexpr int kBlocks = 8;
constexpr int kGroup = 16;

struct TablesOfLaunch {
  kvc_backend_table tables[kGroup];
  int32_t first;  // the index of tables[0] in the plan
};
struct TokensOfLaunch {
  kvc_backend_tokens steps[kGroup];
  int32_t first;
};

// Reads row r of the batch: its tokens, and its row of the server's table (*source). Returns false if a value is out of
// range.
__device__ __forceinline__ bool read_step(const TablePlan& plan, int64_t r, StepTokens* step, int32_t* source) {
  const ValueCheck& check = plan.check;
  const int64_t fresh = plan.extends ? index_at(plan.args.append_lengths, r) : plan.fresh;
  const int64_t length = index_at(plan.args.seq_lens, r), row = index_at(plan.args.rows, r);
  *step = StepTokens();
  *source = 0;
  if (!check.within(KVC_BACKEND_ARRAY_APPEND_LENGTHS, r, fresh, 0, kMaxRowTokens) ||
      !check.within(KVC_BACKEND_ARRAY_SEQ_LENS, r, length, 0, kMaxRowTokens) ||
      !check.within(KVC_BACKEND_ARRAY_ROWS, r, row, -1, plan.args.num_table_rows - 1)) {
    return false;
  }
  const int32_t tokens = static_cast<int32_t>(fresh);
  *step = step_tokens(static_cast<int32_t>(length), tokens, 0, row < 0, plan.with_new);
  *source = step->inert ? 0 : static_cast<int32_t>(row);
  if (step->inert) return true;
  const int64_t base = index_at(plan.args.encoder_lens, r);
  if (!check.within(KVC_BACKEND_ARRAY_ENCODER_LENS, r, base, 0, kMaxRowTokens)) return false;
  step->base = static_cast<int32_t>(base);
  const LengthRange range = length_range(fresh, base, plan.with_new);
  return check.within(KVC_BACKEND_ARRAY_SEQ_LENS, r, length, range.least, range.most);
}

__global__ void __launch_bounds__(kThreads, kBlocks) plan_read_kernel(const __grid_constant__ TablePlan plan) {
  int64_t* const sums = reinterpret_cast<int64_t*>(shared_bytes());
  if (threadIdx.x == 0) *plan.refused = 0;
  __syncthreads();
  int64_t tokens = 0;
  for (int64_t begin = 0; begin < plan.args.num_rows; begin += kThreads) {
    const int64_t r = begin + threadIdx.x;
    int64_t own = 0;
    if (r < plan.args.num_rows) {
      StepTokens step;
      if (!read_step(plan, r, &step, &plan.sources[r])) *plan.refused = 1;
      plan.steps[r] = step;
      own = plan.drafts ? plan.shape.top_k : step.fresh;
    }
    int64_t total;
    const int64_t before = sum_before<kThreads>(own, sums, &total);
    if (r < plan.args.num_rows) plan.token_begin[r] = static_cast<int32_t>(tokens + before);
    tokens += total;
    if (tokens > plan.args.max_tokens)
      break;  // all threads leave the loop together; the rows after this point are not read
  }
  if (threadIdx.x != 0) return;
  plan.token_begin[plan.args.num_rows] = static_cast<int32_t>(tokens);
  if (!plan.check.at_most(KVC_BACKEND_FAULT_SUM,
                          plan.extends ? KVC_BACKEND_ARRAY_APPEND_LENGTHS : KVC_BACKEND_ARRAY_SEQ_LENS, -1, tokens,
                          plan.args.max_tokens)) {
    *plan.refused = 1;
  }
}

// Finds the parent and the depth of each tree node of a row, and where the node's list of keys begins.
__global__ void __launch_bounds__(kThreads, kBlocks) plan_trees_kernel(const __grid_constant__ TablePlan plan) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (r >= plan.args.num_rows || *plan.refused != 0) return;
  const int32_t n = plan.fresh;
  const StepTokens step = plan.steps[r];
  int32_t keys = 0;
  for (int32_t i = 0; i < n; ++i) {
    const int64_t parent = index_at(plan.args.tree_parents, r * n + i);
    if (!plan.check.element(KVC_BACKEND_ARRAY_TREE_PARENTS, r, r * n + i, parent, -1, i - 1)) {
      *plan.refused = 1;
      return;
    }
    TreeNode node;
    node.parent = static_cast<int32_t>(parent);
    node.depth = parent < 0 ? 0 : plan.nodes[r * n + parent].depth + 1;
    node.first_key = keys;
    plan.nodes[r * n + i] = node;
    if (!step.inert) keys += keys_of_path(visible_path(plan.rule, step.before, node.depth));
  }
  plan.list_keys[r] = keys;
}

__global__ void __launch_bounds__(kThreads, kBlocks)
    plan_count_kernel(const __grid_constant__ TablePlan plan, const __grid_constant__ TablesOfLaunch launch) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (r >= plan.args.num_rows || *plan.refused != 0) return;
  const kvc_backend_table& table = launch.tables[blockIdx.y];
  const StepTokens step = plan.steps[r];
  const TableLayout layout = layout_of(plan, table);
  RowCounts counts = {0, 0, 0, 0, 0};
  if (layout.listed) {
    const int32_t keys = step.inert ? 0 : plan.list_keys[r];
    counts = {plan.fresh, keys, plan.fresh, keys,
              keys};  // the table has room for each list, because no path is longer than its tree
  } else {
    CountingRows rows = {&plan, layout, table.max_columns, static_cast<int32_t>(r), &counts, true};
    rows_of_table(plan, table, step, static_cast<int32_t>(r), rows);
    if (!rows.fits) *plan.refused = 1;
  }
  // New tokens need slots. So the server's table must have the column of the last new token.
  for (int32_t k = 0; k < plan.shape.top_k && !step.inert && (plan.drafts || step.fresh > 0); ++k) {
    const int32_t last =
        plan.drafts ? draft_token(plan.shape, step, k, table.step) : step.base + step.before + step.fresh - 1;
    if (!plan.check.at_most(KVC_BACKEND_FAULT_COLUMNS, array_of_table(plan), r,
                            columns_to(plan, true, int64_t{last} + 1), plan.args.num_columns)) {
      *plan.refused = 1;
    }
  }
  plan.counts[(launch.first + blockIdx.y) * plan.args.num_rows + r] = counts;
}

// Replaces the counts of each row by the sums over all earlier rows, and writes the sums over all rows to `totals`. If
// the plan is refused, the counts may be arbitrary, but no later kernel reads the sums.
__global__ void __launch_bounds__(kThreads, kBlocks)
    plan_scan_kernel(const __grid_constant__ TablePlan plan, const __grid_constant__ TablesOfLaunch launch) {
  const kvc_backend_table& table = launch.tables[blockIdx.x];
  RowCounts* const counts = plan.counts + (launch.first + blockIdx.x) * plan.args.num_rows;
  int64_t* const sums = reinterpret_cast<int64_t*>(shared_bytes());
  int64_t rows = 0, pages = 0, queries = 0, lengths = 0, keys = 0;
  const auto next = [&](int64_t own, int64_t* so_far) {
    int64_t total;
    const int64_t before = *so_far + sum_before<kThreads>(own, sums, &total);
    *so_far += total;
    return static_cast<int32_t>(before);
  };
  for (int64_t begin = 0; begin < plan.args.num_rows; begin += kThreads) {
    const int64_t r = begin + threadIdx.x;
    RowCounts own = {0, 0, 0, 0, 0};
    if (r < plan.args.num_rows) own = counts[r];
    own.rows = next(own.rows, &rows);
    own.pages = next(own.pages, &pages);
    own.queries = next(own.queries, &queries);
    own.lengths = next(own.lengths, &lengths);
    own.keys = next(own.keys, &keys);
    if (r < plan.args.num_rows) counts[r] = own;
  }
  if (threadIdx.x != 0) return;
  plan.totals[launch.first + blockIdx.x] = {static_cast<int32_t>(rows), static_cast<int32_t>(pages),
                                            static_cast<int32_t>(queries), static_cast<int32_t>(lengths),
                                            static_cast<int32_t>(keys)};
  if (!plan.check.at_most(KVC_BACKEND_FAULT_SUM, KVC_BACKEND_ARRAY_SEQ_LENS, -1, rows, table.max_rows) ||
      !plan.check.at_most(KVC_BACKEND_FAULT_SUM, KVC_BACKEND_ARRAY_SEQ_LENS, -1, lengths, INT32_MAX)) {
    *plan.refused = 1;
  }
}

// The entry of the i-th new token of a row, in step `s`. An entry is a place in the row's list of tokens.
__device__ __forceinline__ int32_t entry_of_token(const TablePlan& plan, const StepTokens& step, int32_t i, int32_t s) {
  return plan.drafts ? draft_token(plan.shape, step, i, s) : step.base + step.before + i;
}

// Checks what plan_write_kernel and plan_tokens_kernel read of the server's table. Rows that name pages also name the
// pages of their new tokens, so these pages are checked. If the table has slots, or if tree nodes list their keys, the
// slot of each new token is checked too.
__global__ void __launch_bounds__(kThreads, kBlocks)
    plan_check_kernel(const __grid_constant__ TablePlan plan, const __grid_constant__ TablesOfLaunch launch) {
  const int32_t r = static_cast<int32_t>(blockIdx.x);
  if (*plan.refused != 0) return;
  const StepTokens step = plan.steps[r];
  if (step.inert) return;
  const kvc_backend_table& table = launch.tables[blockIdx.y];
  CheckingRows rows = {&plan, &table};
  if (!layout_of(plan, table).listed) rows_of_table(plan, table, step, r, rows);
  if (plan.args.table_of_slots == 0 && plan.nodes == nullptr) return;
  const int32_t tokens = plan.token_begin[r + 1] - plan.token_begin[r];
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < tokens; i += kThreads) {
    const int32_t entry = entry_of_token(plan, step, i, table.step);
    if (!slot_within(plan, r, plan.sources[r], entry)) *plan.refused = 1;
  }
}

// Makes the rows from total.rows on inert, and sets the entries of `indices` from total.pages on to the pad value.
// `threads` threads share the work.
__device__ __forceinline__ void clear_rest(const TablePlan& plan, const kvc_backend_table& table,
                                           const RowCounts& total, int64_t thread, int64_t threads) {
  const int64_t rows = table.max_rows - total.rows;
  for (int64_t i = thread; i < rows; i += threads) {
    const int64_t r = total.rows + i;
    table.cache_seqlens[r] = table.key_starts[r] = table.leftpad[r] = 0;
    table.batch_rows[r] = -1;
    table.cu_seqlens_q[r + 1] = total.queries;
    table.cu_seqlens_k[r + 1] = total.keys;
    if (table.indptr == nullptr) continue;
    table.indptr[r + 1] = total.pages;
    table.last_page_len[r] = 0;
  }
  if (table.block_table != nullptr) {
    int32_t* const first = table.block_table + total.rows * table.table_stride;
    for (int64_t i = thread; i < rows * table.table_stride; i += threads) first[i] = plan.pad_value;
  }
  if (table.indices == nullptr) return;
  const int64_t entries = int64_t{table.max_rows} * table.table_stride;
  for (int64_t i = total.pages + thread; i < entries; i += threads) table.indices[i] = plan.pad_value;
}

__global__ void __launch_bounds__(kThreads, kBlocks)
    plan_write_kernel(const __grid_constant__ TablePlan plan, const __grid_constant__ TablesOfLaunch launch) {
  if (*plan.refused != 0) return;
  const kvc_backend_table& table = launch.tables[blockIdx.y];
  const int64_t of_table = launch.first + blockIdx.y;
  const RowCounts total = plan.totals[of_table];
  const int64_t r = blockIdx.x;
  if (r >= plan.args.num_rows) {
    const int64_t threads = (static_cast<int64_t>(gridDim.x) - plan.args.num_rows) * kThreads;
    const int64_t thread = (r - plan.args.num_rows) * kThreads + threadIdx.x;
    if (thread == 0) {
      table.cu_seqlens_q[0] = table.cu_seqlens_k[0] = 0;
      if (table.indptr != nullptr) table.indptr[0] = 0;
    }
    clear_rest(plan, table, total, thread, threads);
    return;
  }
  const RowCounts first = plan.counts[of_table * plan.args.num_rows + r];
  const TableLayout layout = layout_of(plan, table);
  const StepTokens step = plan.steps[r];
  if (layout.listed) {
    write_lists(plan, table, step, static_cast<int32_t>(r), first);
    return;
  }
  WritingRows rows = {&plan, &table, layout, plan.sources[r], first};
  rows_of_table(plan, table, step, static_cast<int32_t>(r), rows);
}

__global__ void __launch_bounds__(kThreads, kBlocks)
    plan_tokens_kernel(const __grid_constant__ TablePlan plan, const __grid_constant__ TokensOfLaunch launch) {
  if (*plan.refused != 0) return;
  const kvc_backend_tokens& tokens = launch.steps[blockIdx.y];
  const int32_t s = launch.first + static_cast<int32_t>(blockIdx.y);
  const int64_t r = blockIdx.x, num_rows = plan.args.num_rows;
  if (r >= num_rows) {
    const int64_t threads = (static_cast<int64_t>(gridDim.x) - num_rows) * kThreads;
    const int64_t thread = (r - num_rows) * kThreads + threadIdx.x;
    for (int64_t i = plan.token_begin[num_rows] + thread; i < plan.args.max_tokens; i += threads) {
      tokens.slot_mapping[i] = -1;
      tokens.positions[i] = 0;
    }
    for (int64_t i = num_rows + thread; i < plan.max_rows; i += threads) tokens.last_rows[i] = -1;
    return;
  }
  const StepTokens step = plan.steps[r];
  const int32_t begin = plan.token_begin[r], end = plan.token_begin[r + 1];
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < end - begin; i += kThreads) {
    if (step.inert) {
      tokens.slot_mapping[begin + i] = -1;
      tokens.positions[begin + i] = 0;
      continue;
    }
    const int32_t entry = entry_of_token(plan, step, i, s);
    const int32_t depth = plan.nodes != nullptr ? plan.nodes[r * plan.fresh + i].depth : plan.drafts ? s : i;
    tokens.slot_mapping[begin + i] = slot_of_entry(plan, plan.sources[r], entry);
    tokens.positions[begin + i] = step.before + depth;
  }
  if (threadIdx.x == 0) tokens.last_rows[r] = end > begin ? end - 1 : -1;
}

__global__ void plan_finish_kernel(const __grid_constant__ TablePlan plan) {
  *plan.args.generation_word = *plan.refused != 0 ? 0 : plan.args.generation;
}

// Fills the plan for its kernels, and places its arrays in `memory`. Returns the number of bytes of the arrays. memory:
// null if only this number is needed.
int64_t place(const kvc_backend_table_plan& args, unsigned char* memory, TablePlan* plan) {
  int64_t bytes = 0;
  const auto next = [&]<class T>(T** array, int64_t count) {
    *array = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + bytes);
    bytes += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  };
  const kvc_plan_config& config = *args.config;
  plan->args = args;
  plan->rule = rule_of_plan(&config);
  plan->shape.num_steps = config.num_steps > 1 ? config.num_steps : 1;
  plan->shape.top_k = config.top_k > 1 ? config.top_k : 1;
  plan->shape.page_size = plan->page_size = config.page_size;
  plan->pad_value = config.pad_value;
  plan->max_rows = config.max_rows;
  plan->num_pages = config.num_pool_pages > 0 ? config.num_pool_pages : (int64_t{1} << 31) / config.page_size;
  plan->fresh = config.mode == KVC_PLAN_VERIFY ? config.num_draft_tokens : 1;
  plan->extends = config.mode == KVC_PLAN_EXTEND;
  plan->drafts = config.mode == KVC_PLAN_DRAFT_DECODE;
  plan->verifies = config.mode == KVC_PLAN_VERIFY;
  plan->with_new = (config.flags & KVC_PLAN_LENGTHS_WITH_NEW) != 0;
  plan->slots = (config.flags & KVC_PLAN_SLOTS) != 0;
  const bool trees = args.tree_parents.data != nullptr;
  next(&plan->refused, 1);
  next(&plan->steps, args.num_rows);
  next(&plan->sources, args.num_rows);
  next(&plan->token_begin, args.num_rows + 1);
  next(&plan->nodes, trees ? args.num_rows * plan->fresh : 0);
  next(&plan->list_keys, trees ? args.num_rows : 0);
  next(&plan->counts, args.num_tables * args.num_rows);
  next(&plan->totals, args.num_tables);
  if (!trees) plan->nodes = nullptr;
  return bytes;
}

// The number of further blocks, which make up to `elements` unused elements inert.
unsigned extra_blocks(int64_t elements) { return blocks_for(elements, 16 * kThreads); }

kvc_status launch_tables(const TablePlan& plan, const TablesOfLaunch& group, unsigned count, void* stream,
                         kvc_error* error) {
  const unsigned row_blocks = blocks_for(plan.args.num_rows, kThreads);
  constexpr size_t kSums = 2 * kThreads * sizeof(int64_t);
  int64_t largest = 0;
  for (unsigned i = 0; i < count; ++i) {
    const int64_t elements = group.tables[i].max_rows * (1 + 2 * group.tables[i].table_stride);
    largest = elements > largest ? elements : largest;
  }
  kvc_status status = launch("the rows of a plan's tables", stream, {row_blocks, count, 1}, kThreads, 0, error,
                             plan_count_kernel, plan, group);
  if (status == KVC_OK) {
    status = launch("the sums of a plan's tables", stream, {count, 1, 1}, kThreads, kSums, error, plan_scan_kernel,
                    plan, group);
  }
  if (status == KVC_OK && plan.check.sink.record != nullptr && plan.args.num_rows > 0) {
    status = launch("the ids of a plan's tables", stream, {static_cast<unsigned>(plan.args.num_rows), count, 1},
                    kThreads, 0, error, plan_check_kernel, plan, group);
  }
  if (status != KVC_OK) return status;
  const unsigned blocks = static_cast<unsigned>(plan.args.num_rows) + extra_blocks(largest);
  return launch("a plan's tables", stream, {blocks, count, 1}, kThreads, 0, error, plan_write_kernel, plan, group);
}

kvc_status launch_plan(const TablePlan& plan, void* stream, kvc_error* error) {
  const kvc_backend_table_plan& args = plan.args;
  constexpr size_t kSums = 2 * kThreads * sizeof(int64_t);
  kvc_status status = launch("the rows of a plan", stream, {1, 1, 1}, kThreads, kSums, error, plan_read_kernel, plan);
  if (status == KVC_OK && plan.nodes != nullptr) {
    status = launch("the trees of a plan", stream, {blocks_for(args.num_rows, kThreads), 1, 1}, kThreads, 0, error,
                    plan_trees_kernel, plan);
  }
  for (int32_t first = 0; first < args.num_tables && status == KVC_OK; first += kGroup) {
    TablesOfLaunch group = {};
    group.first = first;
    const int32_t count = args.num_tables - first < kGroup ? args.num_tables - first : kGroup;
    for (int32_t i = 0; i < count; ++i) group.tables[i] = args.tables[first + i];
    status = launch_tables(plan, group, static_cast<unsigned>(count), stream, error);
  }
  for (int32_t first = 0; args.tokens != nullptr && first < plan.shape.num_steps && status == KVC_OK; first += kGroup) {
    TokensOfLaunch group = {};
    group.first = first;
    const int32_t count = plan.shape.num_steps - first < kGroup ? plan.shape.num_steps - first : kGroup;
    for (int32_t i = 0; i < count; ++i) group.steps[i] = args.tokens[first + i];
    const unsigned blocks = static_cast<unsigned>(args.num_rows) + extra_blocks(args.max_tokens + plan.max_rows);
    status = launch("the tokens of a plan", stream, {blocks, static_cast<unsigned>(count), 1}, kThreads, 0, error,
                    plan_tokens_kernel, plan, group);
  }
  if (status != KVC_OK) return status;
  return launch("the end of a plan", stream, {1, 1, 1}, 1, 0, error, plan_finish_kernel, plan);
}

}  // namespace

kvc_status plan_tables(kvc_backend_device* opened, const kvc_backend_table_plan* args, void* stream, kvc_error* error) {
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  TablePlan plan = {};
  plan.check = {device.faults.sink(), KVC_BACKEND_CALL_PLAN_BUILD};
  void* memory = nullptr;
  kvc_status status = take_scratch(opened, place(*args, nullptr, &plan), stream, &memory, error);
  if (status != KVC_OK) return status;
  place(*args, static_cast<unsigned char*>(memory), &plan);
  status = launch_plan(plan, stream, error);
  kvc_error unsaid = KVC_ERROR_INIT;
  const kvc_status given = device.scratch.give(memory, stream, status == KVC_OK ? error : &unsaid);
  return status != KVC_OK ? status : given;
}

}  // namespace kvc::kernels::cuda
