// CacheCore: what the classes of a cache share. It owns the lock, the sequences, the layers with their pools, the
// prefix index and the open steps. Sequences, and the order of work on streams, change only under the lock. Each class
// that uses the core has its own header in this folder.
//
// Thread safety: clang checks that the lock is held where a guarded member is used. The lock also guards `order`,
// except for StreamOrder::check. The other members do not change. Ownership: the core keeps the context alive, and
// shares pools with exported views. Invariants
//   1. A step's sequences are busy from begin to end or abort, so the page lists that its kernels read do not change.
//   2. A call that fails has changed nothing, with these exceptions. A device error in a step closes the step, as abort
//      does. Pages that were evicted from the prefix index stay evicted. A poll that reports the failure of a job or a
//      transfer ends the job or the transfer. If a commit fails after it may have begun copies, or if work on streams
//      can no longer be ordered, the cache cannot be used any more (StreamOrder::lose).
//   3. Step::in_use is true exactly while a call is inside that step (CacheSteps::in_step).
#pragma once

#include <memory>
#include <vector>

#include "base/id.h"
#include "base/mutex.h"
#include "cache/pending_prefixes.h"
#include "cache/sent_marks.h"
#include "cache/slot_copies.h"
#include "context/stream_order.h"
#include "events/tier_pages.h"
#include "layer/layers.h"
#include "prefix/prefix_store.h"
#include "sequence/rope_sets.h"
#include "sequence/sequence_store.h"
#include "step/step.h"
#include "step/token_meter.h"

namespace kvc {

struct CacheCore {
  // tag: the number of the cache. The ids of its sequences and forwards contain the tag.
  CacheCore(std::unique_ptr<Layers> owned, uint32_t tag);
  ~CacheCore();
  CacheCore(const CacheCore&) = delete;
  CacheCore& operator=(const CacheCore&) = delete;

  // Returns DEVICE_FAILED if the backend reports that the device has failed permanently, or if the order of the cache's
  // work on the device is lost. Then no call on the cache works, except audits (src/api). Returns OK if the backend has
  // no function `health`.
  Status check_usable() const;

  int32_t num_groups() const noexcept { return layers.num_groups(); }
  const GroupRules& rules(int32_t group) const noexcept { return layers.rules(group); }
  // Whether forwards are measured for the gate of loads. On a GPU, work is in flight at the end of a forward.
  bool measures_tokens() const noexcept { return geometry.store.indexed && context->is_host(); }
  // Visits all open steps, including open steps of graphs.
  template <class Visit>
  void for_each_open(Visit visit) const KVC_REQUIRES(mutex) {
    for (const auto& step : steps) {
      if (step && step->is_open()) visit(*step);
    }
  }

  const std::unique_ptr<Layers> owned_layers;
  const Layers& layers;
  const std::shared_ptr<Context> context;
  const Geometry& geometry;
  const uint32_t tag;

  Mutex mutex;
  StreamOrder order;
  SequenceStore store KVC_GUARDED_BY(mutex);
  std::unique_ptr<PrefixStore> prefixes KVC_GUARDED_BY(mutex);  // null without an index
  // The pages in tiers of which events tell. It belongs to CacheEvents; null without events.
  TierPages* tier_pages KVC_GUARDED_BY(mutex) = nullptr;
  RopeSets rope_sets KVC_GUARDED_BY(mutex);
  SlotCopies copies KVC_GUARDED_BY(mutex);
  SentMarks sent KVC_GUARDED_BY(mutex);
  PendingPrefixes pending KVC_GUARDED_BY(mutex);
  TokenMeter token_meter KVC_GUARDED_BY(mutex);    // fed by forwards that compute (CacheSteps)
  int64_t num_received KVC_GUARDED_BY(mutex) = 0;  // number of sequences that transfers are receiving
  // [max_open_forwards], then [CacheSteps::kMaxGraphs] for graphs: null where no graph exists.
  std::vector<std::unique_ptr<Step>> steps KVC_GUARDED_BY(mutex);
};

}  // namespace kvc
