// The calls of kvcache.Cache for events. kvcache/_events.py wraps the tuples in classes.
#include "cache.h"
#include "error.h"

namespace kvcpy {

namespace {

constexpr size_t kKeyBytes = sizeof(kvc_event::key);

using EventsCall = kvc_status (*)(kvc_cache*, const kvc_events_args*, kvc_events_range*, kvc_error*);

EventsCall function_of(bool snapshot) { return snapshot ? kvc_events_snapshot : kvc_events_read; }

kvc_events_range call(const CacheHandle& handle, bool snapshot, const kvc_events_args& args) {
  kvc_events_range range;
  kvc_events_range_init(&range);
  call_without_gil([&](kvc_error* error) { return function_of(snapshot)(handle.cache, &args, &range, error); });
  return range;
}

nb::object bytes_or_none(const uint8_t* bytes, bool there) {
  if (!there) return nb::none();
  return nb::bytes(reinterpret_cast<const char*>(bytes), kKeyBytes);
}

nb::tuple event_tuple(const kvc_event& event, const int32_t* tokens, int64_t page_size) {
  nb::list ids;
  for (int64_t i = 0; event.kind == KVC_EVENT_STORED && i < page_size; ++i) ids.append(tokens[i]);
  return nb::make_tuple(event.number, event.kind, event.group,
                        bytes_or_none(event.key, event.kind != KVC_EVENT_CLEARED),
                        bytes_or_none(event.parent, (event.flags & KVC_EVENT_HAS_PARENT) != 0), event.position, ids,
                        event.session, (event.flags & KVC_EVENT_SALTED) != 0, event.tier);
}

// Returns the numbers of a range, and a list of events. capacity: the largest number of events. For a snapshot it must
// be the number of pages (snapshot_size) or more.
nb::tuple read_events(const Cache& self, bool snapshot, uint64_t next, int64_t capacity) {
  auto handle = self.open();
  kvc_events_args args;
  kvc_events_args_init(&args);
  args.next = next;
  if (capacity < 0) raise(KVC_ERROR_INVALID_ARGUMENT, -1, "events.read: most %" PRId64 " is negative", capacity);
  const auto count = static_cast<size_t>(capacity), size = static_cast<size_t>(self.page_size());
  std::vector<kvc_event> events(count);
  std::vector<int32_t> tokens(count * size);
  args.events = events.data();
  args.tokens = tokens.data();
  args.capacity = capacity;
  const kvc_events_range range = call(*handle, snapshot, args);
  nb::list list;
  for (int64_t i = 0; i < range.count; ++i) {
    list.append(event_tuple(events[static_cast<size_t>(i)], tokens.data() + i * self.page_size(), self.page_size()));
  }
  return nb::make_tuple(range.epoch, range.begin, range.end, range.newest, list);
}

// Returns the numbers of a range, the number of events, and a message.
nb::tuple read_message(const Cache& self, bool snapshot, uint64_t next, int64_t capacity, uint32_t flags,
                       double timestamp, int64_t rank) {
  auto handle = self.open();
  kvc_events_args args;
  kvc_events_args_init(&args);
  args.next = next;
  args.flags = flags;
  args.timestamp = timestamp;
  args.data_parallel_rank = saturate(rank);
  if (capacity < 0) raise(KVC_ERROR_INVALID_ARGUMENT, -1, "events: %" PRId64 " bytes is a negative capacity", capacity);
  std::vector<uint8_t> bytes(static_cast<size_t>(capacity) + 1);  // + 1, so that the pointer is not null
  args.bytes = bytes.data();
  args.capacity_bytes = capacity;
  const kvc_events_range range = call(*handle, snapshot, args);
  return nb::make_tuple(range.epoch, range.begin, range.end, range.newest, range.count,
                        nb::bytes(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(range.num_bytes)));
}

// Returns the number of pages that a snapshot has now, and the number of bytes of its message.
nb::tuple snapshot_size(const Cache& self, uint32_t flags) {
  auto handle = self.open();
  kvc_events_args args;
  kvc_events_args_init(&args);
  args.flags = flags;
  const kvc_events_range range = call(*handle, true, args);
  return nb::make_tuple(range.count, range.num_bytes);
}

}  // namespace

void Cache::bind_events(nb::class_<Cache>& cls) {
  cls.def("_read_events", &read_events, nb::arg("snapshot"), nb::arg("next"), nb::arg("capacity"))
      .def("_read_event_message", &read_message, nb::arg("snapshot"), nb::arg("next"), nb::arg("capacity"),
           nb::arg("flags"), nb::arg("timestamp"), nb::arg("rank"))
      .def("_event_snapshot_size", &snapshot_size, nb::arg("flags"));
}

}  // namespace kvcpy
