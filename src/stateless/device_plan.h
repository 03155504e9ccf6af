// DevicePlan: what a kvc_plan is: a TablePlan, and where its tables are read. On the CPU those are the plan's arrays.
// On another device they are copies: of a build over the host's arrays one upload; of a build over the device's, which
// the host does not read, the backend makes them on the stream (kvc_backend_table_plan), in graph mode, where shapes
// are those of the capacity.
//
// Thread safety: none; one thread at a time. Ownership: of plan and copies; borrows a build's arguments for the build.
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
  // The build that was asked for came to nothing: the tables are stale, on the device in the stream's order.
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
  int64_t* word_ = nullptr;                 // on the device; null until a build
  std::vector<kvc_backend_table> tables_;   // of a build on the device
  std::vector<kvc_backend_tokens> tokens_;  // [steps]
};

}  // namespace kvc
