// ForwardTables: the tables of one open step for other kernels. Their arrays are made by the first call that requests
// them, and later steps use them again. In a graph they never move, and have the shapes of the graph's limits.
//
// Thread safety: none. They belong to the call that is inside the step. Ownership: they own their arrays, and borrow
// the BatchPlan and the page lists of the call.
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
  // For a graph. pages_per_row: columns of block tables; 0 = the pages of the group.
  ForwardTables(const BatchLimits& limits, int32_t pages_per_row) : limits_(limits), pages_per_row_(pages_per_row) {}

  // Whether every tree of the batch is a chain, so that its rows are like plain rows.
  static bool only_chains(const kvc_backend_rows& rows) noexcept;

  // Fill it before make. It has a streaming window for each row, or is empty if no row streams.
  std::vector<StreamWindow>& streams() noexcept { return streams_; }
  // A group of the cache: its rules, its pages, and whether it holds encoder sequences.
  struct Group {
    int32_t index;
    const GroupRules& rules;
    int64_t num_pages;
    bool cross;
  };
  // Fills all but the tokens' arrays. `wanted` was checked.
  Status make(const BatchPlan& batch, const Group& group, kvc_tables* wanted);
  // If the host does not share the device's memory: copies all arrays of `tables`, which the last make filled, to the
  // device.
  Status place(const std::shared_ptr<Context>& context, void* stream, kvc_tables* tables);
  // The last make failed, so its tables become stale.
  void refuse(const Context& context, void* stream) noexcept;
  // The step ended, so its tables become stale.
  void close(const Context& context, void* stream) noexcept;

 private:
  struct Part {
    int32_t group;
    int32_t part;
    bool slots;
    TableOptions options;
    TableSet set;
    int64_t word = 0;  // in a graph: the number of the call that filled the set in an open step; else 0
    int64_t word_shape = 1;
    DeviceArrays on_device = {};  // used if the device does not read the host's arrays in place
  };
  static void mark_stale(Part* part, const Context& context, void* stream) noexcept;
  Status find(const Group& group, const kvc_tables& wanted, Part** out);
  TableOptions options_of(const Group& group, const kvc_tables& wanted) const;
  bool of_graph() const noexcept { return limits_.rows > 0; }
  void read_rows(const kvc_backend_rows& rows);

  BatchLimits limits_;  // of the graph
  int32_t pages_per_row_ = 0;
  int64_t calls_ = 0;
  Part* made_ = nullptr;                      // by the last make
  std::vector<std::unique_ptr<Part>> parts_;  // one for each group, part and page size
  std::vector<StreamWindow> streams_;         // [rows] or none
  std::vector<StepRow> step_;
};

}  // namespace kvc
