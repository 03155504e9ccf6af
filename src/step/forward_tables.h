// ForwardTables: the tables of one open step for kernels outside of this library. The first call that requests an
// array allocates it, and later steps use it again. In a graph, arrays never move, and have the shapes of the graph's
// limits.
//
// Thread safety: none; only the call that is inside the step uses them. Ownership: owns the arrays, and borrows the
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
  // For a graph. pages_per_row: the number of columns of block tables; 0 = the number of pages of the group.
  ForwardTables(const BatchLimits& limits, int32_t pages_per_row) : limits_(limits), pages_per_row_(pages_per_row) {}

  // Whether every tree of the batch is a chain, so that its rows can be treated as rows without trees.
  static bool only_chains(const kvc_backend_rows& rows) noexcept;

  // The streaming window of each row, or empty if no row streams. The caller fills it before make.
  std::vector<StreamWindow>& streams() noexcept { return streams_; }
  // A group of the cache. cross: the queries of the step attend to its encoder tokens.
  struct Group {
    int32_t index;
    const GroupRules& rules;
    int64_t num_pages;
    bool cross;
  };
  // Fills all arrays except slot_mapping, positions and last_rows. `wanted` must have been checked.
  Status make(const BatchPlan& batch, const Group& group, kvc_tables* wanted);
  // If the host does not share the device's memory: copies all arrays of `tables`, which the last call of make filled,
  // to the device.
  Status place(const std::shared_ptr<Context>& context, void* stream, kvc_tables* tables);
  // Marks the tables of the last call of make as stale, because that call failed.
  void refuse(const Context& context, void* stream) noexcept;
  // Marks all tables as stale, because the step ended.
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
  Part* made_ = nullptr;                      // the part of the last make
  std::vector<std::unique_ptr<Part>> parts_;  // one for each group, part and value of `slots`
  std::vector<StreamWindow> streams_;         // [rows] or empty
  std::vector<StepRow> step_;
};

}  // namespace kvc
