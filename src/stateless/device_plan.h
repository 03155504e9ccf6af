// A DevicePlan is a kvc_plan. It has a TablePlan, which makes tables on the host, and copies of the tables on the
// device. On the CPU there are no copies. If the arrays of a build are on the host, one upload sends the tables. If the
// arrays are on the device, the host does not read them, and the backend makes the tables on the stream
// (kvc_backend_table_plan). Arrays on the device need graph mode, in which the shapes of tables depend on the capacity
// only.
//
// Thread safety: none; one thread at a time. Ownership: a DevicePlan owns the TablePlan and the copies, and borrows the
// arguments of a build during the build.
#pragma once

#include <memory>
#include <vector>

#include "context/device_arrays.h"
#include "kvcache_backend.h"
#include "tables/table_plan.h"

namespace kvc {

class DevicePlan {
 public:
  // `config` has every field of this library's version.
  static Status create(std::shared_ptr<Context> context, const kvc_plan_config& config,
                       std::unique_ptr<DevicePlan>* out);

  Status build(const kvc_plan_args& args, void* stream, uint64_t* generation);
  // Must be called when a build was refused. Makes the tables stale. Tables on the device become stale in the order of
  // the stream.
  void refuse(void* stream) noexcept;
  Status tables(int32_t step, kvc_tables* out);
  Status check(uint64_t generation) const { return plan_->check(generation); }

 private:
  explicit DevicePlan(std::shared_ptr<Context> context) noexcept : context_(std::move(context)) {}
  void place();
  Status build_on_device(const kvc_plan_args& args, void* stream, uint64_t* generation);
  Status read_arrays(const kvc_plan_args& args, kvc_backend_table_plan* build) const;
  void list_tables(const kvc_plan_args& args);

  const std::shared_ptr<Context> context_;
  std::unique_ptr<TablePlan> plan_;
  DeviceArrays arrays_;
  int64_t* word_ = nullptr;                 // the generation word on the device; null before the first build
  std::vector<kvc_backend_table> tables_;   // the tables of a build that the device makes
  std::vector<kvc_backend_tokens> tokens_;  // [steps]
};

}  // namespace kvc
