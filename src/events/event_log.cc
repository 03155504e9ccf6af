#include "events/event_log.h"

#include <algorithm>
#include <cstring>

namespace kvc {
namespace {

kvc_event event_of(const NamedPage& page, int32_t kind, int64_t page_size) noexcept {
  kvc_event event = {};
  event.kind = kind;
  event.group = page.group;
  std::memcpy(event.key, page.key->data(), sizeof(event.key));
  if (kind != KVC_EVENT_STORED) return event;
  event.position = page.index * page_size;
  event.session = page.session;
  event.flags = page.salted ? KVC_EVENT_SALTED : 0;
  if (page.parent == nullptr) return event;
  event.flags |= KVC_EVENT_HAS_PARENT;
  std::memcpy(event.parent, page.parent->data(), sizeof(event.parent));
  return event;
}

kvc_event clear_event() noexcept {
  kvc_event event = {};
  event.kind = KVC_EVENT_CLEARED;
  event.group = -1;
  return event;
}

}  // namespace

void EventLog::stored(const NamedPage& page) noexcept {
  index_.read_block(page.block, ring_.add(event_of(page, KVC_EVENT_STORED, ring_.page_size()), page.context));
}

void EventLog::removed(const NamedPage& page) noexcept {
  const std::span<int32_t> tokens = ring_.add(event_of(page, KVC_EVENT_REMOVED, ring_.page_size()));
  std::fill(tokens.begin(), tokens.end(), 0);
}

void EventLog::cleared() noexcept {
  const std::span<int32_t> tokens = ring_.add(clear_event());
  std::fill(tokens.begin(), tokens.end(), 0);
}

void EventLog::list_pages(bool after_clear, EventList* out) const {
  const auto size = static_cast<size_t>(ring_.page_size());
  size_t count = after_clear ? 1 : 0;
  index_.for_each_named([&](const NamedPage&) { ++count; });
  out->events.reserve(count);
  out->contexts.resize(count);
  out->tokens.resize(count * size);
  if (after_clear) out->events.push_back(clear_event());
  index_.for_each_named([&](const NamedPage& page) {
    index_.read_block(page.block, std::span(out->tokens).subspan(out->events.size() * size, size));
    out->contexts[out->events.size()] = ContextRef(page.context);
    out->events.push_back(event_of(page, KVC_EVENT_STORED, ring_.page_size()));
  });
  tier_pages_.list_pages(out);
}

}  // namespace kvc
