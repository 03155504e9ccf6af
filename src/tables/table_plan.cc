#include "tables/table_plan.h"

#include <algorithm>
#include <cinttypes>
#include <numeric>

#include "sequence/token_tree.h"
#include "tables/plan_config.h"
#include "tensor/borrowed_tensor.h"

namespace kvc {
namespace {

// Reads an index array that must have exactly `size` elements. If `size` is -1, any number is accepted.
Status read_array(const DLTensor* tensor, const char* name, int64_t size, IndexTensor* out) {
  if (tensor == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL", name);
  return IndexTensor::read(tensor, {.name = name, .device = {kDLCPU, 0}, .size = size, .exact = true}, out);
}

}  // namespace

Status TablePlan::create(const kvc_plan_config& config, std::unique_ptr<TablePlan>* out) {
  kvc_plan_config completed;
  KVC_TRY(complete_config(config, &completed));
  out->reset(new TablePlan(completed));
  return Status();
}

TablePlan::TablePlan(const kvc_plan_config& config)
    : config_(config), draft_{std::max(config.num_steps, 1), std::max(config.top_k, 1), config.page_size} {
  const int64_t rows = config.max_rows, columns = config.max_pages_per_row;
  const int64_t branches = config.mode == KVC_PLAN_VERIFY ? config.num_draft_tokens : draft_.top_k;
  const int64_t tokens = max_tokens();
  parts_.reserve(3 * static_cast<size_t>(num_steps()));
  for (int32_t s = 0; s < num_steps(); ++s) {
    tokens_.push_back({fixed() ? TokenSet(tokens, rows) : TokenSet(), {}});
    if (draft_.top_k == 1) {
      add_part(s, KVC_TABLES_WHOLE, most_whole_rows(rules(), rows, tokens), columns,
               config.mode == KVC_PLAN_EXTEND ? tokens : branches);
    }
    if (config.mode == KVC_PLAN_VERIFY || draft_.top_k > 1) {
      const bool windowed = config.mode == KVC_PLAN_VERIFY && rules().windowed();
      if (s == prefix_step(s)) {
        add_part(s, KVC_TABLES_PREFIX, windowed ? tokens : rows, columns, windowed ? 1 : branches);
      }
      add_part(s, KVC_TABLES_BRANCHES, tokens, config.mode == KVC_PLAN_VERIFY ? branches : columns, 1);
    }
  }
  if (config.mode <= KVC_PLAN_EXTEND) {
    add_part(0, KVC_TABLES_ENCODER, rows, columns, config.mode == KVC_PLAN_EXTEND ? tokens : 1);
  }
}

// Adds a table of a step. rows, columns and queries: the capacity of the table in graph mode.
void TablePlan::add_part(int32_t step, int32_t part, int64_t rows, int64_t columns, int64_t queries) {
  TableOptions options;
  options.arrays = config_.arrays;
  options.pad_value = config_.pad_value;
  options.slots = (config_.flags & KVC_PLAN_SLOTS) != 0;
  const bool listed = part == KVC_TABLES_BRANCHES && config_.mode == KVC_PLAN_VERIFY;
  const int64_t page_size = listed ? 1 : config_.page_size;
  if (fixed()) {
    options.max_rows = static_cast<int32_t>(rows);
    options.max_columns = static_cast<int32_t>(std::min<int64_t>(columns * (options.slots ? page_size : 1), INT32_MAX));
  }
  parts_.push_back({step, part, 0, false, TableSet(options)});
  parts_.back().set.set_bounds(static_cast<int32_t>(queries),
                               static_cast<int32_t>(std::min<int64_t>(columns * page_size, INT32_MAX)));
}

int64_t TablePlan::max_tokens() const noexcept {
  if (config_.mode == KVC_PLAN_EXTEND) return config_.max_tokens;
  return int64_t{config_.max_rows} * (config_.mode == KVC_PLAN_VERIFY ? config_.num_draft_tokens : draft_.top_k);
}

int64_t TablePlan::most_tokens() const noexcept {
  return config_.max_tokens > 0 ? config_.max_tokens : kernels::kMaxRowTokens;
}

// Returns the step whose prefix table step s uses. Without windows and chunks, all steps of a draft see the same
// prefix.
int32_t TablePlan::prefix_step(int32_t s) const noexcept { return rules().windowed() ? s : 0; }

GroupRules TablePlan::rules() const noexcept {
  GroupRules rules;
  rules.visible = kernels::rule_of_plan(&config_);
  rules.page_size = config_.page_size;
  return rules;
}

Status TablePlan::check_given(const kvc_plan_args& args) const {
  if ((args.flags & ~uint32_t{KVC_PLAN_ROWS_GREW}) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", args.flags);
  }
  const auto only = [&](const char* name, bool given, bool allowed) {
    if (!given || allowed) return Status();
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s is given, and mode %d has none", name, config_.mode);
  };
  KVC_TRY(only("append_lengths", args.append_lengths != nullptr, config_.mode == KVC_PLAN_EXTEND));
  KVC_TRY(only("tree_parents", args.tree_parents != nullptr, config_.mode == KVC_PLAN_VERIFY));
  KVC_TRY(only("encoder_lens", args.encoder_lens != nullptr, config_.mode <= KVC_PLAN_EXTEND));
  if (args.block_table != nullptr && args.req_to_token != nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "block_table and req_to_token are both given");
  }
  if ((args.flags & KVC_PLAN_ROWS_GREW) != 0 && config_.mode > KVC_PLAN_EXTEND) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "KVC_PLAN_ROWS_GREW with mode %d, which drops drafts again",
                         config_.mode);
  }
  return Status();
}

Status TablePlan::read_batch(const kvc_plan_args& args, Batch* out) const {
  KVC_TRY(read_array(args.seq_lens, "seq_lens", -1, &out->seq_lens));
  const int64_t size = out->size = out->seq_lens.size();
  if (size > kMaxPlanRows) return Status::error(KVC_ERROR_SHAPE, "seq_lens has %" PRId64 " rows, more than 2^20", size);
  KVC_TRY(check_given(args));
  if (config_.mode == KVC_PLAN_EXTEND) {
    KVC_TRY(read_array(args.append_lengths, "append_lengths", size, &out->append_lengths));
  }
  if (args.rows != nullptr) KVC_TRY(read_array(args.rows, "rows", size, &out->rows));
  if (args.encoder_lens != nullptr) KVC_TRY(read_array(args.encoder_lens, "encoder_lens", size, &out->encoder_lens));
  if (args.tree_parents != nullptr) {
    KVC_TRY(read_array(args.tree_parents, "tree_parents", size * config_.num_draft_tokens, &out->parents));
  }
  out->slots = args.req_to_token != nullptr;
  out->grown = (args.flags & KVC_PLAN_ROWS_GREW) != 0;
  const char* const name = out->slots ? "req_to_token" : "block_table";
  KVC_TRY(IndexTable::read(out->slots ? args.req_to_token : args.block_table, {name, {kDLCPU, 0}}, "[rows, columns]",
                           false, &out->table));
  if (args.rows == nullptr && size > out->table.num_rows()) {
    return Status::error(KVC_ERROR_SHAPE, "seq_lens has %" PRId64 " rows, and %s %" PRId64, size, name,
                         out->table.num_rows());
  }
  if (!fixed() || size <= config_.max_rows) return Status();
  return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "%" PRId64 " rows exceed max_rows %d", size, config_.max_rows)
      .missing(size, config_.max_rows);
}

// Returns the number of new tokens of row i.
int32_t TablePlan::fresh_of(int64_t i) const noexcept {
  if (config_.mode == KVC_PLAN_EXTEND) return fresh_[static_cast<size_t>(i)];
  return config_.mode == KVC_PLAN_VERIFY ? config_.num_draft_tokens : 1;
}

// Checks that the copied values of row i are in their ranges, and adds the row's new tokens to *tokens. In an inert
// row, the encoder tokens may be any number, and become 0. Messages show the values of the caller, because the copies
// were cut to the range of int32.
Status TablePlan::check_row(const Batch& batch, int64_t i, int64_t* tokens) {
  const auto at = static_cast<size_t>(i);
  const auto is_length = [](int64_t value) { return value >= 0 && value <= kernels::kMaxRowTokens; };
  const int64_t fresh = fresh_of(i), length = lengths_[at], source = row_index_[at];
  if (!is_length(fresh)) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "append_lengths[%" PRId64 "] is %" PRId64 ", not in 0..2^30", i,
                         batch.append_lengths[i])
        .at(i);
  }
  *tokens += fresh;
  if (*tokens > most_tokens()) {
    return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "%" PRId64 " new tokens up to row %" PRId64 " exceed %" PRId64,
                         *tokens, i, most_tokens())
        .at(i)
        .missing(*tokens, most_tokens());
  }
  if (source < -1 || source >= batch.table.num_rows()) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "rows[%" PRId64 "] is %" PRId64 ", not in -1..%" PRId64, i,
                         batch.rows[i], batch.table.num_rows() - 1)
        .at(i);
  }
  if (!is_length(length)) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "seq_lens[%" PRId64 "] is %" PRId64 ", not in 0..2^30", i,
                         batch.seq_lens[i])
        .at(i);
  }
  if (source < 0 || (lengths_with_new() && length == 0)) {
    if (encoders_) encoder_lengths_[at] = 0;
    return Status();
  }
  const int64_t before = lengths_with_new() ? length - fresh : length;
  if (before < 0) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE,
                         "seq_lens[%" PRId64 "] is %" PRId64 ", less than its %" PRId64 " new tokens", i, length, fresh)
        .at(i);
  }
  const int64_t base = encoders_ ? encoder_lengths_[at] : 0;
  if (is_length(base) && base + before + fresh <= kernels::kMaxRowTokens) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE,
                       "row %" PRId64 " has %" PRId64 " encoder tokens and %" PRId64 " of its own, not 0..2^30", i,
                       encoders_ ? batch.encoder_lens[i] : 0, before + fresh)
      .at(i);
}

Status TablePlan::check_rows(const Batch& batch) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < batch.size; ++i) KVC_TRY(check_row(batch, i, &tokens));
  return Status();
}

// Checks that the server's table has columns for all tokens of each row, including new tokens. So unless a row is
// inert, it has at most as many new tokens as a row of the server's table has room for. This limits the size of the
// tables that a build makes, because a table has at most one row for each new token, and one for each row of the batch.
Status TablePlan::check_room(const TableSource& source) const {
  const bool draft = config_.mode == KVC_PLAN_DRAFT_DECODE;
  for (size_t i = 0; i < step_.size(); ++i) {
    const StepRow& row = step_[i];
    if (row.inert || row.fresh == 0) continue;
    const int64_t entries = draft ? int64_t{kernels::draft_token(draft_, row, draft_.top_k - 1, num_steps() - 1)} + 1
                                  : int64_t{row.base} + row.before + row.fresh;
    KVC_TRY(source.check_room(static_cast<int32_t>(i), entries));
  }
  return Status();
}

// For KVC_PLAN_ROWS_GREW: checks that the rows are those of the last build, and that none became shorter.
Status TablePlan::check_grown(const Batch& batch) const {
  if (last_step_.size() != step_.size()) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "KVC_PLAN_ROWS_GREW with %" PRId64 " rows after a build of %zu",
                         batch.size, last_step_.size());
  }
  for (size_t i = 0; i < step_.size(); ++i) {
    const StepRow &now = step_[i], &then = last_step_[i];
    const bool same = now.inert == then.inert && now.base == then.base && row_index_[i] == last_row_index_[i];
    if (same && now.before >= then.before) continue;
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "KVC_PLAN_ROWS_GREW: row %zu is row %d with %d tokens before the step, and was row %d with %d",
                         i, row_index_[i], now.before, last_row_index_[i], then.before)
        .at(static_cast<int64_t>(i));
  }
  return Status();
}

// Copies the arrays, and makes rows of the step from the copies. The passes over the rows have no branches on values.
// If a pass finds that some row is wrong, check_rows finds which row.
Status TablePlan::read_rows(const Batch& batch) {
  const auto size = static_cast<size_t>(batch.size);
  const bool extend = config_.mode == KVC_PLAN_EXTEND, with_new = lengths_with_new();
  step_.resize(size);
  for (std::vector<int32_t>* array : {&row_index_, &lengths_, &fresh_, &encoder_lengths_}) array->resize(size);
  bool sound = batch.seq_lens.copy(0, kernels::kMaxRowTokens, lengths_.data());
  if (extend) sound &= batch.append_lengths.copy(0, kernels::kMaxRowTokens, fresh_.data());
  if (encoders_) sound &= batch.encoder_lens.copy(0, kernels::kMaxRowTokens, encoder_lengths_.data());
  if (batch.rows.size() > 0) {
    sound &= batch.rows.copy(-1, std::min<int64_t>(batch.table.num_rows() - 1, INT32_MAX), row_index_.data());
  } else {
    std::iota(row_index_.begin(), row_index_.end(), 0);
  }
  // After this check, all values are small enough for int32 sums, because check_rows has refused larger values.
  if (!sound) KVC_TRY(check_rows(batch));
  const int32_t each = extend || size == 0 ? 0 : fresh_of(0);
  const int32_t *lengths = lengths_.data(), *appends = extend ? fresh_.data() : nullptr;
  int32_t *sources = row_index_.data(), *bases = encoders_ ? encoder_lengths_.data() : nullptr;
  StepRow* step = step_.data();
  int64_t tokens = 0;
  sound = true;
  for (size_t i = 0; i < size; ++i) {
    const int32_t fresh = appends != nullptr ? appends[i] : each, base = bases != nullptr ? bases[i] : 0;
    const kernels::StepTokens row = kernels::step_tokens(lengths[i], fresh, base, sources[i] < 0, with_new);
    const kernels::LengthRange range = kernels::length_range(fresh, base, with_new);
    sound &= row.inert || (lengths[i] >= range.least && lengths[i] <= range.most);
    tokens += fresh;
    step[i] = {row, {}};
  }
  if (!sound || tokens > most_tokens()) KVC_TRY(check_rows(batch));
  for (size_t i = 0; i < size; ++i) {
    if (!step[i].inert) continue;
    sources[i] = 0;
    if (bases != nullptr) bases[i] = 0;
  }
  return batch.grown && size > 0 ? check_grown(batch) : Status();
}

Status TablePlan::read_trees(const Batch& batch) {
  if (!trees_) return Status();
  const int32_t n = config_.num_draft_tokens;
  nodes_.resize(static_cast<size_t>(batch.size * n));
  int16_t parents[kMaxTreeNodes];
  for (int64_t row = 0; row < batch.size; ++row) {
    for (int32_t i = 0; i < n; ++i) {
      const int64_t parent = batch.parents[row * n + i];
      if (parent < KVC_TREE_ROOT || parent >= i) {
        return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                             "row %" PRId64 ": the parent of node %d is %" PRId64 ", not in -1..%d", row, i, parent,
                             i - 1)
            .at(row);
      }
      parents[i] = static_cast<int16_t>(parent);
    }
    number_tree({parents, static_cast<size_t>(n)}, step_[static_cast<size_t>(row)].before, nodes_.data() + row * n);
  }
  return Status();
}

// Makes the rows of a part. The table of the part checks these rows.
Status TablePlan::plan_part(const Batch& batch, const TableSource& source, Part* part) {
  const auto tree_of = [&](int32_t row) {
    const auto n = static_cast<size_t>(config_.num_draft_tokens);
    return trees_ ? StepTree{{nodes_.data() + static_cast<size_t>(row) * n, n}, step_[static_cast<size_t>(row)].before}
                  : StepTree{};
  };
  const bool draft = config_.mode == KVC_PLAN_DRAFT_DECODE;
  const bool grown = batch.grown && part->build == builds_;
  TableSet& set = part->set;
  const GroupRules seen = rules();
  if (part->part == KVC_TABLES_ENCODER) {
    return set.check(encoder_rows(step_, encoder_lengths_, set.plan(source, false, grown)));
  }
  if (draft && part->part == KVC_TABLES_PREFIX) {
    return set.check(draft_prefix_rows(step_, seen, draft_, part->step, set.plan(source, false)));
  }
  if (draft) {  // each row has one query, so `causal` (true) makes no difference
    return set.check(draft_branch_rows(step_, seen, draft_, part->step, set.plan(source, true)));
  }
  if (part->part == KVC_TABLES_PREFIX) {
    return set.check(prefix_rows(step_, seen, tree_of, set.plan(source, false)));
  }
  if (part->part == KVC_TABLES_WHOLE) {
    return set.check(whole_rows(step_, seen, set.plan(source, true, grown)));
  }
  KVC_TRY(check_branch_keys(step_, seen, tree_of));
  return set.check(branch_rows(step_, seen, tree_of, set.lists(), set.plan_lists(source)));
}

void TablePlan::make_tokens(int32_t step) {
  StepTokens& tokens = tokens_[static_cast<size_t>(step)].tokens;
  const DraftShape shape = draft_;
  const bool draft = config_.mode == KVC_PLAN_DRAFT_DECODE;
  const int32_t num_nodes = trees_ ? config_.num_draft_tokens : 0;
  const kvc_backend_tree_node* nodes = trees_ ? nodes_.data() : nullptr;
  tokens.runs.resize(step_.size() * static_cast<size_t>(shape.top_k));
  tokens.runs_a_row = shape.top_k;  // 1 without drafts
  tokens.single = draft || config_.mode == KVC_PLAN_DECODE;
  TokenRun* run = tokens.runs.data();
  int64_t count = 0;
  for (size_t i = 0; i < step_.size(); ++i, nodes += num_nodes) {
    const StepRow& row = step_[i];
    const auto index = static_cast<int32_t>(i);
    const int32_t position = row.before + step, fresh = draft ? 1 : row.fresh;
    count += int64_t{fresh} * shape.top_k;
    if (row.inert) {
      for (int32_t k = 0; k < shape.top_k; ++k) *run++ = {index, fresh, -1, 0, nullptr};
    } else {
      for (int32_t k = 0; k < shape.top_k; ++k) {
        *run++ = {index, fresh, kernels::draft_token(shape, row, k, step), position,
                  shape.top_k == 1 ? nodes : nullptr};
      }
    }
  }
  tokens.count = count;
}

bool TablePlan::makes(int32_t part) const noexcept {
  if (part == KVC_TABLES_ENCODER) return encoders_;
  return config_.mode != KVC_PLAN_VERIFY || trees_ == (part != KVC_TABLES_WHOLE);
}

uint64_t TablePlan::start_on_device(bool with_trees, bool with_encoders) noexcept {
  trees_ = with_trees;
  encoders_ = with_encoders;
  for (Part& part : parts_) part.made = makes(part.part);
  last_step_.clear();
  on_device_ = true;
  word_ = static_cast<int64_t>(++builds_);
  return builds_;
}

Status TablePlan::write(const Batch& batch, const TableSource& source) {
  KVC_TRY(check_room(source));
  // New tokens are keys too, so the checks of the tables cover their pages. But two cases need this check of all slots
  // of new tokens. With trees, the tables do not check the lists of tree nodes. With req_to_token, a table of pages
  // checks only the first slot of each page.
  if (batch.slots || trees_) {
    for (Tokens& tokens : tokens_) KVC_TRY(tokens.set.check(tokens.tokens, source));
  }
  for (Part& part : parts_) {
    part.made = makes(part.part);
    if (!part.made) continue;
    KVC_TRY(plan_part(batch, source, &part));
  }
  word_ = 0;  // if an allocation fails, the build counts as refused
  on_device_ = false;
  last_step_.clear();
  for (Part& part : parts_) {
    if (!part.made) continue;
    part.set.write();
    part.build = builds_ + 1;
  }
  for (Tokens& tokens : tokens_) {
    if ((config_.arrays & KVC_TABLES_TOKENS) != 0) tokens.set.write(tokens.tokens, source);
  }
  return Status();
}

Status TablePlan::build(const kvc_plan_args& args, uint64_t* generation) {
  Batch batch;
  KVC_TRY(read_batch(args, &batch));
  encoders_ = args.encoder_lens != nullptr;
  KVC_TRY(read_rows(batch));
  trees_ = args.tree_parents != nullptr;
  KVC_TRY(read_trees(batch));
  const bool tokens = (config_.arrays & KVC_TABLES_TOKENS) != 0 || batch.slots || trees_;
  for (int32_t s = 0; tokens && s < num_steps(); ++s) make_tokens(s);
  const ServerTable table = {batch.table.narrow(), batch.table.row_stride(), batch.table.num_columns(),
                             row_index_.data(),
                             config_.num_pool_pages > 0 ? config_.num_pool_pages : kMaxPlanSlots / config_.page_size};
  if (batch.slots) {
    KVC_TRY(write(batch, SlotTableSource(table, config_.page_size)));
  } else {
    KVC_TRY(write(batch, BlockTableSource(table, config_.page_size)));
  }
  std::swap(step_, last_step_);
  std::swap(row_index_, last_row_index_);
  word_ = static_cast<int64_t>(++builds_);
  if (generation != nullptr) *generation = builds_;
  return Status();
}

Status TablePlan::tables(int32_t step, kvc_tables* out) {
  if (out->flags != 0 || out->pad_value != 0 || out->arrays != 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "flags 0x%x, pad_value %d, arrays 0x%x: a plan's are in its config", out->flags,
                         out->pad_value, out->arrays);
  }
  if (step < 0 || step >= num_steps()) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "step %d is not in 0..%d", step, num_steps() - 1).at(step);
  }
  if (word_ == 0)
    return Status::error(KVC_ERROR_STALE, "the plan holds no step: %s",
                         builds_ == 0 ? "nothing was built" : "the last build was refused");
  const int32_t made_by = out->part == KVC_TABLES_PREFIX ? prefix_step(step) : step;
  for (Part& part : parts_) {
    if (part.step != made_by || part.part != out->part || !part.made) continue;
    part.set.describe(out);
    if (on_device_) {  // the host does not have the values, so it reports the capacity, or -1
      const bool verify = config_.mode == KVC_PLAN_VERIFY, branches = part.part == KVC_TABLES_BRANCHES;
      out->causal = part.part == KVC_TABLES_WHOLE || (branches && !verify) ? 1 : 0;
      out->page_size = (config_.flags & KVC_PLAN_SLOTS) != 0 || (branches && verify) ? 1 : config_.page_size;
      out->num_rows = static_cast<int32_t>(out->cache_seqlens.shape[0]);
      out->num_queries = static_cast<int32_t>(max_tokens());
      out->num_pages = out->num_keys = -1;
    }
    if ((config_.arrays & KVC_TABLES_TOKENS) != 0) tokens_[static_cast<size_t>(step)].set.describe(out);
    out->generation = static_cast<uint64_t>(word_);
    out->generation_word = generation_word();
    return Status();
  }
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "part %d: the last build of this plan (mode %d%s) has none",
                       out->part, config_.mode, trees_ ? ", with trees" : "");
}

Status TablePlan::check(uint64_t generation) const {
  if (word_ != 0 && generation == static_cast<uint64_t>(word_)) return Status();
  if (word_ == 0) {
    return Status::error(KVC_ERROR_STALE,
                         "generation %" PRIu64 " was requested, but the last build was refused or none was made",
                         generation);
  }
  return Status::error(KVC_ERROR_STALE, "generation %" PRIu64 " was requested, but the tables hold %" PRId64,
                       generation, word_);
}

}  // namespace kvc
