// Cache: all parts of a cache. Each subject of the C API has its own class. Each class refers to the core, and has the
// state that only its subject needs. The functions of the C API call these classes.
//
// Thread safety: any thread may call any method of a part, except methods that are marked "locked". The caller of such
// a method must hold the lock of the core. The destructor must run when no other call runs. Members are destroyed from
// last to first, so `core` is destroyed last. Before that, the thread of `tiers` may still copy pages, and the
// destructor of `transfers` frees sequences.
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

  // Returns the 32 bytes that identify the model, or nullptr if the config has none.
  const PageKey* fingerprint() const noexcept {
    return core.geometry.fingerprint ? &*core.geometry.fingerprint : nullptr;
  }

  CacheCore core;                           // the lock, and what the other parts share
  CacheEvents events{&core, &tiers};        // events: changes of the prefix index and of tiers, for routers
  CacheSteps steps{&core};                  // forwards and graphs
  CacheTransfers transfers{&core};          // sequences that are sent to, or received from, other caches
  CacheTiers tiers{&core};                  // pages in slower memory
  CacheSequences sequences{&core, &tiers};  // add, fork, truncate, commit; settings of sequences
  CachePrefix prefix{&core, &tiers};        // the prefix index
  CacheTensors tensors{&core, &steps};      // pools as tensors, exports and imports
  CacheSave save{&core};                    // saved sequences
  CacheReports reports{&core, &tiers};      // statistics, descriptions and audits

 private:
  Cache(std::unique_ptr<Layers> layers, uint32_t tag) : core(std::move(layers), tag) {}
};

}  // namespace kvc
