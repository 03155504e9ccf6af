// CacheEvents: the calls that read events (changes of the prefix index and of the pages in tiers), and the calls that
// take snapshots of these pages. They write to structs of the caller, or write messages for routers. The caller has
// checked everything in the args that can be checked without the cache.
//
// Ownership: owns the log of events, which listens to the prefix index.
#pragma once

#include <memory>
#include <span>

#include "cache/cache_core.h"
#include "cache/cache_tiers.h"
#include "events/event_log.h"
#include "events/event_message.h"

namespace kvc {

// Memory to which events are copied.
struct EventBuffer {
  std::span<kvc_event> events;
  std::span<int32_t> tokens;       // [events, page_size], or empty
  std::span<ContextRef> contexts;  // [events], or empty
};

class CacheEvents {
 public:
  // The tiers must exist when a call reads events, and may be constructed later.
  CacheEvents(CacheCore* core, CacheTiers* tiers) : core_(*core), tiers_(*tiers) {}
  // Creates the log if events_capacity is not 0. Must be called once, before any other call.
  Status prepare();

  Status read(const kvc_events_args& args, kvc_events_range* range);
  Status snapshot(const kvc_events_args& args, kvc_events_range* range);

 private:
  Status check_events() const KVC_REQUIRES(core_.mutex);
  MessageFormat message_format(const kvc_events_args& args) const;
  Status copy_new_events(uint64_t next, const EventBuffer& out, kvc_events_range* range);

  CacheCore& core_;
  CacheTiers& tiers_;
  std::unique_ptr<EventLog> log_ KVC_GUARDED_BY(core_.mutex);  // null if events_capacity is 0
};

}  // namespace kvc
