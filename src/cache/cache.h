// Cache: all parts of a cache. Each subject of the C API has a class of its own, which holds a reference to the core
// and the state that is only its own. A call of the C API is one call of its subject's class.
//
// Thread safety: any thread may call any method of a part, except those that are marked "locked". The destructor must
// run when no other call runs. Members are destroyed from last to first, so `core` is the last one: until then, the
// thread of `tiers` may copy pages, and the destructor of `transfers` frees sequences.
#pragma once

#include <memory>

#include "cache/cache_core.h"
#include "cache/cache_events.h"
#include "cache/cache_prefix.h"
#include "cache/cache_reports.h"
#include "cache/cache_save.h"
#include "cache/cache_sequences.h"
#include "cache/cache_steps.h"
#include "cache/cache_tensors.h"
#include "cache/cache_tiers.h"
#include "cache/cache_transfers.h"

namespace kvc {

class Cache {
 public:
  static Status create(std::shared_ptr<Context> context, const CacheConfig& config, std::unique_ptr<Cache>* out);
  static Status estimate(const Context& context, const CacheConfig& config, int32_t group, kvc_estimate* out);

  // The 32 bytes that identify the model, or nullptr.
  const PageKey* fingerprint() const noexcept {
    return core.geometry.fingerprint ? &*core.geometry.fingerprint : nullptr;
  }

  CacheCore core;                           // the lock, and what the other parts share
  CacheEvents events{&core};                // changes of the prefix index, for routers
  CacheSteps steps{&core};                  // forwards and graphs
  CacheTransfers transfers{&core};          // sequences that are sent to other caches, or received from them
  CacheTiers tiers{&core};                  // pages in slower memory
  CacheSequences sequences{&core, &tiers};  // add, fork, truncate, commit; settings of sequences
  CachePrefix prefix{&core, &tiers};        // the prefix index
  CacheTensors tensors{&core, &steps};      // pools as tensors, exports and imports
  CacheSave save{&core};                    // sequences in files
  CacheReports reports{&core, &tiers};      // statistics, descriptions and audits

 private:
  Cache(std::unique_ptr<Layers> layers, uint32_t tag) : core(std::move(layers), tag) {}
};

}  // namespace kvc
