// Messages of events in the form that vLLM's consumers read: MessagePack [timestamp, [event, ...], data_parallel_rank].
// docs/reference/events.md has it byte by byte. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvcache.h"
#include "sequence/group_rules.h"

namespace kvc {

struct MessageFormat {
  // What a message says of a layer group.
  struct Group {
    std::string_view kind;
    int64_t window_tokens = 0;  // 0 = none
  };
  static Group group_of(const GroupRules& rules) noexcept;

  std::vector<Group> groups;
  std::string_view medium;  // where pages are: "CPU" or "GPU"
  int64_t page_size = 0;
  double timestamp = 0;
  int32_t rank = -1;  // -1 = nil
  bool arrays = false;
  bool short_hashes = false;
};

struct MessageSize {
  size_t events = 0;  // that the message has
  size_t bytes = 0;   // of the message; without events, what a message with the first one takes
};

// Writes a message with as many of the events as fit in `out`, from the first one on. tokens: [events, page_size].
// measure: counts the bytes of all events, and writes none.
MessageSize write_message(const MessageFormat& format, std::span<const kvc_event> events,
                          std::span<const int32_t> tokens, std::span<uint8_t> out, bool measure = false);

}  // namespace kvc
