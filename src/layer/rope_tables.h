// RopeTables: the tables of a cache's RoPE classes in device memory. A backend computes cos and sin of any position
// from them (kvc_backend_rope_table). They are made with the cache, and are constant.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "context/context.h"
#include "layer/geometry.h"

namespace kvc {

class RopeTables {
 public:
  static Status create(const std::shared_ptr<Context>& context, const std::vector<RopeClass>& classes, RopeTables* out);

  // The number of bytes of device memory that create allocates.
  static int64_t bytes_needed(const std::vector<RopeClass>& classes) noexcept;

  const RopeClass& rope(size_t rope_class) const noexcept { return tables_[rope_class].rope; }
  // [sets of the class, KVC_BACKEND_ROPE_LEVELS, KVC_BACKEND_ROPE_RADIX, 2, rope_dim / 2]
  const double* data(size_t rope_class) const noexcept {
    return static_cast<const double*>(tables_[rope_class].memory->data());
  }

 private:
  struct Table {
    RopeClass rope;
    std::shared_ptr<DeviceMemory> memory;
  };
  std::vector<Table> tables_;  // [classes]
};

}  // namespace kvc
