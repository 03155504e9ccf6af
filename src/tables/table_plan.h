// A TablePlan is the host's part of a kvc_plan. It makes the tables of one kind of step from the arrays of a server
// with its own allocator. A build reads the server's arrays into rows of the step. It converts these rows to rows of
// tables (table_rows.h), and checks the rows of tables against the server's table. Then it writes the tables
// (table_set.h). Before a row of a table is made, the build checks that the server's table has room for all tokens, and
// that the number of new tokens is within its limit.
//
// Thread safety: none; one thread at a time. Ownership: a TablePlan owns its tables, and borrows the arguments of a
// build during the build. Lengths, rows and parents are read once. Ids of the server's table are read twice: the first
// time to check them, and the second time to write them. If another thread writes the server's table during a build,
// only the ids in the result change.
// Invariant: generation_word() is the number of the build whose tables are in the arrays, or 0 if the last build was
// refused.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tables/table_set.h"
#include "tensor/borrowed_tensor.h"
#include "tensor/index_tensor.h"

namespace kvc {

class TablePlan {
 public:
  // `config` has every field of this library's version.
  static Status create(const kvc_plan_config& config, std::unique_ptr<TablePlan>* out);

  Status build(const kvc_plan_args& args, uint64_t* generation);
  Status tables(int32_t step, kvc_tables* out);
  Status check(uint64_t generation) const;
  void refuse() noexcept { word_ = 0; }  // must be called when a build was refused

  // The functions below are for builds that a device makes in graph mode. The device's arrays are copies of this plan's
  // arrays, with equal shapes.
  const kvc_plan_config& config() const noexcept { return config_; }
  bool fixed() const noexcept { return (config_.flags & KVC_PLAN_GRAPH) != 0; }
  int32_t num_steps() const noexcept { return config_.mode == KVC_PLAN_DRAFT_DECODE ? config_.num_steps : 1; }
  int64_t max_tokens() const noexcept;  // largest number of new tokens of a step in graph mode
  DLTensor generation_word() noexcept { return borrowed_tensor(&word_, &word_shape_); }
  // Checks that the mode accepts the arguments that are given. Does not read the contents of the arrays.
  Status check_given(const kvc_plan_args& args) const;
  // Records a build that a device makes, and which parts it makes. Returns the number of the build.
  uint64_t start_on_device(bool with_trees, bool with_encoders) noexcept;
  // Calls visit(step, part, kvc_tables*) for each table that the last build made. In graph mode, where arrays never
  // move, every table is visited. Part -1 means the tokens of a step.
  template <class Visit>
  void for_each_table(Visit visit);

 private:
  struct Part {
    int32_t step;
    int32_t part;    // KVC_TABLES_*
    uint64_t build;  // number of the last build that made this part
    bool made;       // whether the last build made this part
    TableSet set;
  };
  struct Tokens {
    TokenSet set;
    StepTokens tokens;
  };
  // The arguments of a build.
  struct Batch {
    IndexTensor seq_lens, append_lengths, rows, encoder_lens, parents;
    IndexTable table;
    bool slots = false;  // the table is req_to_token
    int64_t size = 0;    // rows of the batch
    bool grown = false;  // KVC_PLAN_ROWS_GREW is given
  };

  explicit TablePlan(const kvc_plan_config& config);

  bool lengths_with_new() const noexcept { return (config_.flags & KVC_PLAN_LENGTHS_WITH_NEW) != 0; }
  int64_t most_tokens() const noexcept;
  int32_t prefix_step(int32_t s) const noexcept;
  GroupRules rules() const noexcept;
  bool makes(int32_t part) const noexcept;  // whether a build makes the part, by trees_ and encoders_
  void add_part(int32_t step, int32_t part, int64_t rows, int64_t columns, int64_t queries);
  Status read_batch(const kvc_plan_args& args, Batch* out) const;
  Status read_rows(const Batch& batch);
  int32_t fresh_of(int64_t i) const noexcept;
  Status check_row(const Batch& batch, int64_t i, int64_t* tokens);
  Status check_rows(const Batch& batch);
  Status check_room(const TableSource& source) const;
  Status check_grown(const Batch& batch) const;
  Status read_trees(const Batch& batch);
  Status plan_part(const Batch& batch, const TableSource& source, Part* part);
  void make_tokens(int32_t step);
  Status write(const Batch& batch, const TableSource& source);

  const kvc_plan_config config_;
  const DraftShape draft_;
  bool trees_ = false, encoders_ = false;  // whether the last build had tree_parents, or encoder_lens
  bool on_device_ = false;  // whether a device made the last build; then the host does not have its values
  std::vector<Part> parts_;
  std::vector<Tokens> tokens_;  // [steps]
  // The batch of the last build, and scratch of the current one.
  std::vector<StepRow> step_, last_step_;
  std::vector<int32_t> row_index_, last_row_index_;  // rows of the server's table; 0 for inert rows
  std::vector<int32_t> lengths_, fresh_, encoder_lengths_;
  std::vector<kvc_backend_tree_node> nodes_;  // [B, num_draft_tokens]
  uint64_t builds_ = 0;                       // number of builds so far
  int64_t word_ = 0, word_shape_ = 1;
};

template <class Visit>
void TablePlan::for_each_table(Visit visit) {
  for (Part& part : parts_) {
    if (!fixed() && !part.made) continue;
    kvc_tables tables;
    kvc_tables_init(&tables);
    part.set.describe(&tables);
    visit(part.step, part.part, &tables);
  }
  for (int32_t step = 0; step < num_steps() && (config_.arrays & KVC_TABLES_TOKENS) != 0; ++step) {
    kvc_tables tables;
    kvc_tables_init(&tables);
    tokens_[static_cast<size_t>(step)].set.describe(&tables);
    visit(step, -1, &tables);
  }
}

}  // namespace kvc
