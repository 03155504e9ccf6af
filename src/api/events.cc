// Section 14 of the header: events of the prefix index.
#include "api/boundary.h"

using namespace kvc;
using namespace kvc::api;

namespace {

Status read_args(const kvc_events_args* args, kvc_events_args* known) {
  KVC_TRY(read_struct(args, "args", known));
  if ((known->flags & ~uint32_t{KVC_EVENTS_ARRAYS | KVC_EVENTS_SHORT_HASHES}) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", known->flags);
  }
  if (known->events != nullptr && known->bytes != nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "both events and bytes are given");
  }
  if (known->capacity < 0 || known->capacity_bytes < 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "capacity %" PRId64 " or capacity_bytes %" PRId64 " is negative",
                         known->capacity, known->capacity_bytes);
  }
  if (known->data_parallel_rank < -1) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "data_parallel_rank %d is below -1", known->data_parallel_rank);
  }
  if (known->events != nullptr && known->event_size != sizeof(kvc_event)) {
    return Status::error(KVC_ERROR_STRUCT_SIZE, "event_size %u is not sizeof(kvc_event), %zu", known->event_size,
                         sizeof(kvc_event));
  }
  return Status();
}

template <class Body>
kvc_status events_call(const char* function, kvc_cache* cache, const kvc_events_args* args, kvc_events_range* range,
                       kvc_error* error, Body body) {
  return cache_call(function, cache, error, [&](Cache& c) -> Status {
    kvc_events_args known;
    KVC_TRY(read_args(args, &known));
    KVC_TRY(check_struct_size(range, "range"));
    kvc_events_range found;
    kvc_events_range_init(&found);
    KVC_TRY(body(c, known, &found));
    write_struct(found, range);
    return Status();
  });
}

}  // namespace

kvc_status kvc_events_read(kvc_cache* cache, const kvc_events_args* args, kvc_events_range* range, kvc_error* error) {
  return events_call(
      "kvc_events_read", cache, args, range, error,
      [](Cache& c, const kvc_events_args& known, kvc_events_range* out) { return c.events.read(known, out); });
}

kvc_status kvc_events_snapshot(kvc_cache* cache, const kvc_events_args* args, kvc_events_range* range,
                               kvc_error* error) {
  return events_call(
      "kvc_events_snapshot", cache, args, range, error,
      [](Cache& c, const kvc_events_args& known, kvc_events_range* out) { return c.events.snapshot(known, out); });
}
