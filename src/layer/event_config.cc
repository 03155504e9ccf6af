// Reads the settings for programs that follow the pages of the cache: the model's fingerprint, on which page keys
// depend, the number of events that are kept, and the number of pages in tiers of which events tell.
#include <cinttypes>
#include <cstring>

#include "layer/geometry.h"

namespace kvc {

Status read_event_config(const kvc_cache_config& config, Geometry* geometry) {
  const int64_t events = config.events_capacity;
  if (events < 0 || events > INT32_MAX) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "events_capacity %" PRId64 " is outside 0..%d", events, INT32_MAX);
  }
  if (events != 0 && (!geometry->store.indexed || config.fingerprint == nullptr)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "events_capacity %" PRId64 " without %s", events,
                         geometry->store.indexed ? "fingerprint" : "KVC_CACHE_PREFIX_INDEX");
  }
  geometry->events_capacity = events;
  const int64_t tier_pages = config.events_tier_pages;
  if (tier_pages < 0 || tier_pages > INT32_MAX) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "events_tier_pages %" PRId64 " is outside 0..%d", tier_pages,
                         INT32_MAX);
  }
  if (tier_pages != 0 && events == 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "events_tier_pages %" PRId64 " without events_capacity",
                         tier_pages);
  }
  geometry->events_tier_pages = tier_pages;
  if (config.fingerprint != nullptr) {
    std::memcpy(geometry->fingerprint.emplace().data(), config.fingerprint, kPageKeyBytes);
  }
  if (events != 0) geometry->prefixes.fingerprint = geometry->fingerprint;
  return Status();
}

}  // namespace kvc
