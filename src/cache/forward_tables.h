// ForwardTables: the tables for other kernels of one open step. Their arrays are made when they are first asked for,
// and used again by later steps.
//
// Thread safety: none: they belong to the call that is inside the step. Ownership: of their arrays; borrows the
// BatchPlan and the page lists of the call.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kvcache.h"
#include "plan/batch_plan.h"
#include "tables/table_set.h"

namespace kvc {

class ForwardTables {
 public:
  // Whether every tree of the batch is a chain, so that its rows are plain ones.
  static bool only_chains(const kvc_backend_rows& rows) noexcept;

  // Before make: the rows' streaming windows, on or not; empty: no row streams.
  std::vector<StreamWindow>& streams() noexcept { return streams_; }
  // Fills all but the tokens' arrays. cross: the group's keys are an encoder's. `wanted` was checked.
  Status make(const BatchPlan& batch, int32_t group, const GroupRules& rules, bool cross, kvc_tables* wanted);

 private:
  struct Part {
    int32_t group;
    int32_t part;
    bool slots;
    TableOptions options;
    TableSet set;
  };
  TableSet& find(int32_t group, const kvc_tables& wanted);
  void read_rows(const kvc_backend_rows& rows);

  std::vector<std::unique_ptr<Part>> parts_;  // one for each group, part and page size
  std::vector<StreamWindow> streams_;         // [rows] or none
  std::vector<StepRow> step_;
};

}  // namespace kvc
