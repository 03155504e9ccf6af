// CacheTensors: exports pools as tensors, and exports and imports K and V of a sequence.
#pragma once

#include <vector>

#include "cache/cache_core.h"
#include "cache/cache_steps.h"

namespace kvc {

class CacheTensors {
 public:
  // steps: an import appends its rows in a step of its own.
  CacheTensors(CacheCore* core, CacheSteps* steps) : core_(*core), steps_(*steps) {}

  Status export_pool(int32_t layer, int32_t pool, uint32_t flags, DLManagedTensorVersioned** out, void* stream);
  Status export_sequence(kvc_seq id, const kvc_export_args& args, kvc_exported* out, void* stream);
  Status import_sequence(kvc_seq id, const kvc_import_args& args, void* stream);

 private:
  Status find_slots(int32_t slot, int32_t layer, int64_t begin, int64_t end, std::vector<int64_t>* slots) const
      KVC_REQUIRES(core_.mutex);

  CacheCore& core_;
  CacheSteps& steps_;
};

}  // namespace kvc
