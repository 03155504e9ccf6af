// ForwardTables: the tables for other kernels of one open step. Their arrays are made when they are first asked for,
// and used again by later steps; of a graph they never move, and have the shapes of its limits.
//
// Thread safety: none: they belong to the call that is inside the step. Ownership: of their arrays; borrows the
// BatchPlan and the page lists of the call.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "context/device_arrays.h"
#include "kvcache.h"
#include "plan/batch_plan.h"
#include "tables/table_set.h"

namespace kvc {

class ForwardTables {
 public:
  ForwardTables() = default;
  // Of a graph. pages_per_row: columns of block tables; 0 = the pages of the group.
  ForwardTables(const BatchLimits& limits, int32_t pages_per_row) : limits_(limits), pages_per_row_(pages_per_row) {}

  // Whether every tree of the batch is a chain, so that its rows are plain ones.
  static bool only_chains(const kvc_backend_rows& rows) noexcept;

  // Before make: the rows' streaming windows, on or not; empty: no row streams.
  std::vector<StreamWindow>& streams() noexcept { return streams_; }
  // A group of the cache: its rules and pages, and whether its keys are an encoder's.
  struct Group {
    int32_t index;
    const GroupRules& rules;
    int64_t num_pages;
    bool cross;
  };
  // Fills all but the tokens' arrays. `wanted` was checked.
  Status make(const BatchPlan& batch, const Group& group, kvc_tables* wanted);
  // Where the context's device is not the host: all arrays of `tables`, which the last make filled, go there.
  Status place(const std::shared_ptr<Context>& context, void* stream, kvc_tables* tables);
  // The last make has failed: its tables are stale.
  void refuse(const Context& context, void* stream) noexcept;
  // The step has ended: its tables are stale.
  void close(const Context& context, void* stream) noexcept;

 private:
  struct Part {
    int32_t group;
    int32_t part;
    bool slots;
    TableOptions options;
    TableSet set;
    int64_t word = 0;  // of a graph: the number of the call that filled the set, in an open step; else 0
    int64_t word_shape = 1;
    DeviceArrays on_device = {};  // where the host's arrays are not read in place
  };
  static void mark_stale(Part* part, const Context& context, void* stream) noexcept;
  Status find(const Group& group, const kvc_tables& wanted, Part** out);
  TableOptions options_of(const Group& group, const kvc_tables& wanted) const;
  bool of_graph() const noexcept { return limits_.rows > 0; }
  void read_rows(const kvc_backend_rows& rows);

  BatchLimits limits_;  // of a graph
  int32_t pages_per_row_ = 0;
  int64_t calls_ = 0;
  Part* made_ = nullptr;                      // by the last make
  std::vector<std::unique_ptr<Part>> parts_;  // one for each group, part and page size
  std::vector<StreamWindow> streams_;         // [rows] or none
  std::vector<StepRow> step_;
};

}  // namespace kvc
