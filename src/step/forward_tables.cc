#include "step/forward_tables.h"

#include <algorithm>
#include <cinttypes>

#include "tensor/borrowed_tensor.h"

namespace kvc {
namespace {

// The nodes of a row's tree, in the order of its keys. Empty if the row has no tree.
StepTree tree_of(const kvc_backend_rows& rows, int32_t row) noexcept {
  if (rows.tree_nodes == nullptr || rows.kv_lengths[row] < 0) return {};
  const int32_t begin = rows.tree_begin[row];
  return {{rows.tree_nodes + rows.tree_offset[row], static_cast<size_t>(rows.kv_lengths[row] - begin)}, begin};
}

}  // namespace

bool ForwardTables::only_chains(const kvc_backend_rows& rows) noexcept {
  for (int32_t row = 0; row < rows.num_rows; ++row) {
    const StepTree tree = tree_of(rows, row);
    for (size_t i = 0; i < tree.nodes.size(); ++i) {
      if (tree.nodes[i].position != tree.begin + static_cast<int32_t>(i)) return false;
    }
  }
  return true;
}

void ForwardTables::read_rows(const kvc_backend_rows& rows) {
  step_.clear();
  for (int32_t r = 0; r < rows.num_rows; ++r) {
    StepRow row;
    row.fresh = rows.token_begin[r + 1] - rows.token_begin[r];
    row.inert = rows.kv_lengths[r] < 0;
    row.before = row.inert ? 0 : rows.kv_lengths[r] - row.fresh;
    if (!streams_.empty()) row.stream = streams_[static_cast<size_t>(r)];
    step_.push_back(row);
  }
}

// The options of the tables that a call requests. In a graph, tables have the graph's capacity.
TableOptions ForwardTables::options_of(const Group& group, const kvc_tables& wanted) const {
  TableOptions options;
  options.arrays = wanted.arrays != 0 ? wanted.arrays : KVC_TABLES_DENSE | KVC_TABLES_CSR | KVC_TABLES_TOKENS;
  options.pad_value = (wanted.flags & KVC_TABLES_PAD_VALUE) != 0 ? wanted.pad_value : of_graph() ? 0 : -1;
  options.slots = (wanted.flags & KVC_TABLES_SLOTS) != 0;
  if (!of_graph()) return options;
  options.streams = limits_.streaming && group.rules.streams();
  const int64_t a_page = options.slots ? group.rules.page_size : 1;
  int64_t rows = limits_.rows, columns = (pages_per_row_ > 0 ? pages_per_row_ : group.num_pages) * a_page;
  if (wanted.part == KVC_TABLES_BRANCHES) {
    rows = limits_.tokens;
    columns = std::max(limits_.tree_nodes, limits_.tokens);  // a row without a tree has entries for its new tokens
  } else if (wanted.part == KVC_TABLES_PREFIX && (group.rules.windowed() || options.streams)) {
    rows = limits_.rows + limits_.tokens;
  } else if (!group.cross) {
    rows = most_whole_rows(group.rules, limits_.rows, limits_.tokens);
  }
  options.max_rows = static_cast<int32_t>(rows);
  options.max_columns = static_cast<int32_t>(std::min<int64_t>(columns, INT32_MAX));
  return options;
}

Status ForwardTables::find(const Group& group, const kvc_tables& wanted, Part** out) {
  const TableOptions options = options_of(group, wanted);
  for (std::unique_ptr<Part>& part : parts_) {
    if (part->group != group.index || part->part != wanted.part || part->slots != options.slots) continue;
    *out = part.get();
    if (part->options.arrays == options.arrays && part->options.pad_value == options.pad_value) return Status();
    if (of_graph()) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                           "arrays 0x%x with padding %d: the graph's table of part %d has arrays 0x%x and padding %d",
                           options.arrays, options.pad_value, wanted.part, part->options.arrays,
                           part->options.pad_value)
          .in_group(group.index);
    }
    part->set = TableSet(options);
    part->options = options;
    return Status();
  }
  auto part = std::make_unique<Part>(Part{group.index, wanted.part, options.slots, options, TableSet(options)});
  if (of_graph()) {
    const int64_t page = options.slots || wanted.part == KVC_TABLES_BRANCHES ? 1 : group.rules.page_size;
    part->set.set_bounds(wanted.part == KVC_TABLES_BRANCHES ? 1 : static_cast<int32_t>(limits_.tokens),
                         static_cast<int32_t>(std::min<int64_t>(options.max_columns * page, INT32_MAX)));
  }
  parts_.push_back(std::move(part));
  *out = parts_.back().get();
  return Status();
}

// Sets the part's generation word to 0, on the device too. If the upload fails, the device has failed, and every
// later call reports this failure. So the result is ignored here.
void ForwardTables::mark_stale(Part* part, const Context& context, void* stream) noexcept {
  part->word = 0;
  int64_t* const copy = part->on_device.copy_of(&part->word);
  if (copy != nullptr) (void)context.upload(copy, &part->word, sizeof(part->word), stream);
}

void ForwardTables::refuse(const Context& context, void* stream) noexcept {
  if (made_ != nullptr) mark_stale(made_, context, stream);
}

void ForwardTables::close(const Context& context, void* stream) noexcept {
  for (const std::unique_ptr<Part>& part : parts_) {
    if (part->word != 0) mark_stale(part.get(), context, stream);
  }
}

Status ForwardTables::place(const std::shared_ptr<Context>& context, void* stream, kvc_tables* tables) {
  if (context->is_host()) return Status();
  DeviceArrays& arrays = made_->on_device;
  arrays.clear();
  for_each_tensor(tables, [&](DLTensor* tensor) { arrays.add(*tensor); });
  KVC_TRY(arrays.upload(context, stream));
  for_each_tensor(tables, [&](DLTensor* tensor) { arrays.point(tensor); });
  return Status();
}

Status ForwardTables::make(const BatchPlan& batch, const Group& group, kvc_tables* wanted) {
  const kvc_backend_rows& rows = batch.rows(group.index);
  const GroupRules& rules = group.rules;
  const auto tree = [&](int32_t row) { return tree_of(rows, row); };
  read_rows(group.cross ? batch.rows() : rows);
  Part* part = nullptr;
  made_ = nullptr;
  KVC_TRY(find(group, *wanted, &part));
  made_ = part;
  part->word = 0;  // it stays 0 until all arrays are written
  TableSet& set = part->set;
  const ListSource source(batch.tables(group.index), static_cast<int32_t>(rules.page_size));
  if (group.cross) {
    for (int32_t r = 0; r < rows.num_rows; ++r) {
      if (rows.kv_lengths[r] < 0) step_[static_cast<size_t>(r)].inert = true;
    }
    const std::span<const int32_t> lengths(rows.kv_lengths, static_cast<size_t>(rows.num_rows));
    KVC_TRY(set.check(encoder_rows(step_, lengths, set.plan(source, false))));
  } else if (wanted->part == KVC_TABLES_PREFIX) {
    KVC_TRY(set.check(prefix_rows(step_, rules, tree, set.plan(source, false))));
  } else if (wanted->part == KVC_TABLES_BRANCHES) {
    int64_t keys = 0;
    for (int32_t r = 0; r < rows.num_rows; ++r) {
      const int64_t nodes = static_cast<int64_t>(tree(r).nodes.size()), fresh = step_[static_cast<size_t>(r)].fresh;
      keys += fresh * (nodes > 0 ? nodes : fresh);
    }
    if (keys > INT32_MAX) {
      return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "%" PRId64 " keys of branches do not fit int32", keys)
          .missing(keys, INT32_MAX);
    }
    KVC_TRY(set.check(branch_rows(step_, rules, tree, set.lists(), set.plan_lists(source))));
  } else {
    KVC_TRY(set.check(whole_rows(step_, rules, set.plan(source, true))));
  }
  set.write();
  set.describe(wanted);
  if (!of_graph()) return Status();
  part->word = ++calls_;
  wanted->generation = static_cast<uint64_t>(part->word);
  wanted->generation_word = borrowed_tensor(&part->word, &part->word_shape);
  return Status();
}

}  // namespace kvc
