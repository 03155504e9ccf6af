#include "plan/prefix_cost.h"

#include <algorithm>

namespace kvc {
namespace {

// From this number of stacked rows (queries x q heads of a kv head) on, rows share the work of loading a key. The panel
// kernel (docs/internals/cpu.md) packs a key once for all rows. The decode kernel, which CPUs use for up to 32 rows,
// converts a key once for 8 rows. For 16 to 32 rows, both kernels have the same cost.
constexpr double kPanelRows = 16;
// Costs, measured in bytes read: a multiply-add of the decode kernel, a multiply-add of the panel kernel, packing an
// element of K or V, and writing, reading and merging a float of a state.
constexpr double kMultiplyAdd = 0.4, kPanelMultiplyAdd = 0.25, kPackElement = 1.5, kStateFloat = 8.0;
// Rows share a prefix only if the estimated cost is below this fraction of the cost without sharing.
constexpr double kMargin = 0.95;

// Returns the cost of one key for `rows` stacked rows (queries x q heads of a kv head).
double key_cost(const PrefixCase& prefix, double rows) noexcept {
  const double dims = prefix.head_dim + prefix.v_head_dim, read = prefix.key_bytes;
  if (rows < kPanelRows) return std::max(read, kMultiplyAdd * rows * dims);
  return std::max(read, kPackElement * dims) + kPanelMultiplyAdd * rows * dims;
}

}  // namespace

double cost_apart(const PrefixCase& prefix) noexcept {
  const double rows_each = static_cast<double>(prefix.queries) / prefix.rows * prefix.group_size;
  return prefix.rows * static_cast<double>(prefix.keys) * key_cost(prefix, rows_each);
}

double cost_together(const PrefixCase& prefix) noexcept {
  const double rows = static_cast<double>(prefix.queries) * prefix.group_size;
  const double states = rows * (prefix.nested ? 1 : 2);
  return static_cast<double>(prefix.keys) * key_cost(prefix, rows) + states * (prefix.v_head_dim + 2) * kStateFloat;
}

bool sharing_pays(const PrefixCase& prefix) noexcept {
  return prefix.rows > 1 && cost_together(prefix) < kMargin * cost_apart(prefix);
}

}  // namespace kvc
