// Events of the prefix index: reading them, and snapshots.
#include "cache/cache_events.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "system/random.h"

namespace kvc {
namespace {

// kChunkEvents: the largest number of events that are copied without releasing the lock. kMessageEvents: the largest
// number of events that read() puts into one message. A message of snapshot() has every page of the index.
constexpr uint64_t kChunkEvents = 1024, kMessageEvents = 4096;

// Copies the events with the numbers [begin, begin + count) to `out`, the first one to index `at`. All these events
// must be in the ring.
void copy_events(const EventRing& ring, uint64_t begin, uint64_t count, const EventBuffer& out, size_t at) {
  const auto size = static_cast<size_t>(ring.page_size());
  for (uint64_t i = 0; i < count; ++i, ++at) {
    out.events[at] = ring.at(begin + i);
    if (!out.contexts.empty()) out.contexts[at] = ContextRef(ring.context(begin + i));
    if (out.tokens.empty()) continue;
    const std::span<const int32_t> tokens = ring.tokens(begin + i);
    std::copy(tokens.begin(), tokens.end(), out.tokens.subspan(at * size).begin());
  }
}

// Draws a random number other than 0.
Status draw_epoch(uint64_t* epoch) {
  do {
    if (!fill_random(epoch, sizeof(*epoch))) {
      return Status::error(KVC_ERROR_INTERNAL, "random bytes: %s", std::strerror(errno));
    }
  } while (*epoch == 0);
  return Status();
}

}  // namespace

Status CacheEvents::prepare() {
  if (core_.geometry.events_capacity == 0) return Status();
  uint64_t epoch = 0;
  KVC_TRY(draw_epoch(&epoch));
  MutexLock lock(core_.mutex);
  log_ = std::make_unique<EventLog>(core_.geometry.events_capacity, core_.geometry.page_size,
                                    core_.geometry.events_tier_pages, epoch, core_.prefixes->index());
  core_.prefixes->add_listener(log_.get());
  core_.tier_pages = &log_->tier_pages();
  return Status();
}

Status CacheEvents::check_events() const {
  if (log_) return Status();
  return Status::error(KVC_ERROR_UNSUPPORTED, "the cache was created without events_capacity");
}

MessageFormat CacheEvents::message_format(const kvc_events_args& args) const {
  MessageFormat format;
  for (const auto& group : core_.geometry.store.groups) format.groups.push_back(MessageFormat::group_of(group.rules));
  format.media.push_back({core_.context->is_host() ? "CPU" : "GPU", false});
  for (const TierWorker::Tier& tier : tiers_.all()) {
    format.media.push_back({tier.medium, (tier.table.flags & KVC_TIER_REMOTE) != 0});
  }
  format.page_size = core_.geometry.page_size;
  format.timestamp = args.timestamp;
  format.rank = args.data_parallel_rank;
  format.arrays = (args.flags & KVC_EVENTS_ARRAYS) != 0;
  format.short_hashes = (args.flags & KVC_EVENTS_SHORT_HASHES) != 0;
  return format;
}

// Copies events until `out.events` is full, or no newer event exists. The first one is event number `next` or, if the
// ring no longer has this event, the oldest event in the ring. Releases the lock between chunks. If the next events
// were overwritten meanwhile, stops before them.
Status CacheEvents::copy_new_events(uint64_t next, const EventBuffer& out, kvc_events_range* range) {
  for (;;) {
    MutexLock lock(core_.mutex);
    KVC_TRY(check_events());
    if (range->count == 0) tiers_.take_removals();
    const EventRing& ring = log_->ring();
    if (next > ring.newest()) {
      return Status::error(KVC_ERROR_OUT_OF_RANGE,
                           "next %" PRIu64 " is above %" PRIu64 ", the number of the next event", next, ring.newest());
    }
    range->epoch = log_->epoch();
    range->newest = ring.newest();
    if (range->count == 0) range->begin = range->end = std::max(next, ring.oldest());
    if (range->end < ring.oldest()) return Status();  // the next events were overwritten meanwhile
    const auto copied = static_cast<size_t>(range->count);
    const uint64_t count = std::min({ring.newest() - range->end, kChunkEvents, uint64_t{out.events.size() - copied}});
    if (count == 0) return Status();
    copy_events(ring, range->end, count, out, copied);
    range->end += count;
    range->count += static_cast<int64_t>(count);
  }
}

Status CacheEvents::read(const kvc_events_args& args, kvc_events_range* range) {
  const auto size = static_cast<size_t>(core_.geometry.page_size);
  if (args.bytes == nullptr) {
    const auto capacity = static_cast<size_t>(args.events == nullptr ? 0 : args.capacity);
    return copy_new_events(
        args.next, {{args.events, capacity}, {args.tokens, args.tokens == nullptr ? 0 : capacity * size}, {}}, range);
  }
  const auto bytes = static_cast<uint64_t>(args.capacity_bytes);
  const uint64_t most = std::min(kMessageEvents, bytes / sizeof(uint64_t) + 1);  // an event needs more than 8 bytes
  EventList list;
  list.events.resize(most);
  list.contexts.resize(most);
  list.tokens.resize(most * size);
  KVC_TRY(copy_new_events(args.next, {list.events, list.tokens, list.contexts}, range));
  if (range->count == 0) return Status();
  list.events.resize(static_cast<size_t>(range->count));
  const MessageSize message = write_message(message_format(args), list, {args.bytes, bytes});
  if (message.events == 0) {
    return Status::error(KVC_ERROR_BUFFER_TOO_SMALL,
                         "a message with one event has %zu bytes, capacity_bytes is %" PRIu64, message.bytes, bytes)
        .missing(static_cast<int64_t>(message.bytes), args.capacity_bytes);
  }
  range->count = static_cast<int64_t>(message.events);
  range->end = range->begin + message.events;
  range->num_bytes = static_cast<int64_t>(message.bytes);
  return Status();
}

Status CacheEvents::snapshot(const kvc_events_args& args, kvc_events_range* range) {
  EventList list;
  {
    MutexLock lock(core_.mutex);
    KVC_TRY(check_events());
    tiers_.take_removals();
    range->epoch = log_->epoch();
    range->begin = range->end = range->newest = log_->ring().newest();
    log_->list_pages(args.events == nullptr, &list);
  }
  const size_t pages = list.events.size() - (args.events == nullptr ? 1 : 0);
  range->count = static_cast<int64_t>(pages);
  if (args.events != nullptr) {
    if (range->count > args.capacity) {
      return Status::error(KVC_ERROR_BUFFER_TOO_SMALL, "%zu pages do not fit in a capacity of %" PRId64, pages,
                           args.capacity)
          .missing(range->count, args.capacity);
    }
    std::copy(list.events.begin(), list.events.end(), args.events);
    if (args.tokens != nullptr) std::copy(list.tokens.begin(), list.tokens.end(), args.tokens);
    return Status();
  }
  const MessageFormat format = message_format(args);
  MessageSize message;
  if (args.bytes != nullptr) {
    message = write_message(format, list, {args.bytes, static_cast<size_t>(args.capacity_bytes)});
  }
  const bool fits =
      args.bytes != nullptr && message.events == list.events.size() && message.bytes <= uint64_t(args.capacity_bytes);
  if (!fits) message = write_message(format, list, {}, true);
  range->num_bytes = static_cast<int64_t>(message.bytes);
  if (args.bytes == nullptr || fits) return Status();
  return Status::error(KVC_ERROR_BUFFER_TOO_SMALL, "a message of %zu bytes does not fit in capacity_bytes %" PRId64,
                       message.bytes, args.capacity_bytes)
      .missing(range->num_bytes, args.capacity_bytes);
}

}  // namespace kvc
