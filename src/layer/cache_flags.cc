// The flags KVC_CACHE_*: what each flag sets, and which flags exclude each other.
#include "layer/geometry.h"

namespace kvc {

Status read_cache_flags(uint32_t flags, int32_t storage, Geometry* geometry) {
  constexpr uint32_t kNever = KVC_CACHE_NO_PREFIX_SHARING | KVC_CACHE_DETERMINISTIC;
  if ((flags & ~(KVC_CACHE_NO_ROLLBACK | KVC_CACHE_STREAMING | KVC_CACHE_SHARE_ALL_PREFIXES | KVC_CACHE_PREFIX_INDEX |
                 KVC_CACHE_ZERO_ON_FREE | kNever)) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", flags);
  }
  if ((flags & KVC_CACHE_SHARE_ALL_PREFIXES) != 0 && (flags & kNever) != 0) {
    return Status::error(
        KVC_ERROR_INVALID_ARGUMENT, "flags 0x%x: KVC_CACHE_SHARE_ALL_PREFIXES contradicts %s", flags,
        (flags & KVC_CACHE_DETERMINISTIC) != 0 ? "KVC_CACHE_DETERMINISTIC" : "KVC_CACHE_NO_PREFIX_SHARING");
  }
  if ((flags & KVC_CACHE_ZERO_ON_FREE) != 0 && storage == KVC_STORAGE_NONE) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "KVC_CACHE_ZERO_ON_FREE with KVC_STORAGE_NONE: no pools to clear");
  }
  geometry->store.streaming = geometry->limits.streaming = (flags & KVC_CACHE_STREAMING) != 0;
  geometry->store.cleared = (flags & KVC_CACHE_ZERO_ON_FREE) != 0;
  geometry->store.indexed = (flags & KVC_CACHE_PREFIX_INDEX) != 0;
  geometry->deterministic = geometry->limits.sinks_apart = (flags & KVC_CACHE_DETERMINISTIC) != 0;
  geometry->sharing = (flags & kNever) != 0                         ? PrefixSharing::kNever
                      : (flags & KVC_CACHE_SHARE_ALL_PREFIXES) != 0 ? PrefixSharing::kAlways
                                                                    : PrefixSharing::kByCost;
  return Status();
}

}  // namespace kvc
