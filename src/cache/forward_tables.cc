#include "cache/forward_tables.h"

#include <cinttypes>

namespace kvc {
namespace {

// Nodes of the tree that a row has, in the order of its keys; none: it has no tree.
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

TableSet& ForwardTables::find(int32_t group, const kvc_tables& wanted) {
  TableOptions options;
  options.arrays = wanted.arrays != 0 ? wanted.arrays : KVC_TABLES_DENSE | KVC_TABLES_CSR | KVC_TABLES_TOKENS;
  options.pad_value = (wanted.flags & KVC_TABLES_PAD_VALUE) != 0 ? wanted.pad_value : -1;
  options.slots = (wanted.flags & KVC_TABLES_SLOTS) != 0;
  for (std::unique_ptr<Part>& part : parts_) {
    if (part->group != group || part->part != wanted.part || part->slots != options.slots) continue;
    if (part->options.arrays != options.arrays || part->options.pad_value != options.pad_value) {
      part->set = TableSet(options);
      part->options = options;
    }
    return part->set;
  }
  parts_.push_back(std::make_unique<Part>(Part{group, wanted.part, options.slots, options, TableSet(options)}));
  return parts_.back()->set;
}

Status ForwardTables::make(const BatchPlan& batch, int32_t group, const GroupRules& rules, bool cross,
                           kvc_tables* wanted) {
  const kvc_backend_rows& rows = batch.rows(group);
  const auto tree = [&](int32_t row) { return tree_of(rows, row); };
  read_rows(cross ? batch.rows() : rows);
  TableSet& set = find(group, *wanted);
  const ListSource source(batch.tables(group), static_cast<int32_t>(rules.page_size));
  if (cross) {
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
  return Status();
}

}  // namespace kvc
