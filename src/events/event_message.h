// Encodes events as messages that vLLM's consumers can read: MessagePack [timestamp, [event, ...],
// data_parallel_rank]. docs/reference/events.md describes each byte. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "events/event_log.h"
#include "sequence/group_rules.h"

namespace kvc {

struct MessageFormat {
  // What a message says about a layer group.
  struct Group {
    std::string_view kind;
    int64_t window_tokens = 0;  // 0 = no window
  };
  static Group group_of(const GroupRules& rules) noexcept;

  std::vector<Group> groups;
  // Where pages are. kvc_event::tier is the index of its medium.
  struct Medium {
    std::string_view name;
    bool remote = false;
  };
  std::vector<Medium> media;
  int64_t page_size = 0;  // in tokens
  double timestamp = 0;
  int32_t rank = -1;  // data_parallel_rank; -1 = nil
  bool arrays = false;
  bool short_hashes = false;
};

struct MessageSize {
  size_t events = 0;  // number of kvc_events in the message
  size_t bytes = 0;   // bytes of the message; if `events` is 0, bytes of a message with only the first event
};

// Writes a message with the first events, as many as fit in `out`. If `measure` is set, the result counts all events,
// even if they do not fit.
MessageSize write_message(const MessageFormat& format, const EventList& list, std::span<uint8_t> out,
                          bool measure = false);

}  // namespace kvc
