#include "save/saved_record.h"

#include <cinttypes>
#include <cstring>

#include "base/limits.h"

namespace kvc {
namespace {

constexpr uint32_t kStreamed = 1, kHasTokens = 2;
constexpr int64_t kMaxGroups = 64, kMaxCheckpoints = 1024;

// The bytes of a record, little endian. object_header.cc checks that the CPU is little endian, too.
struct Fixed {
  int64_t length;
  int32_t sinks, window;
  uint32_t flags;
  int32_t rope_set;
  uint32_t num_groups;
  uint32_t num_checkpoints;
};
struct Group {
  int64_t tokens, hole_begin, hole_end;
};
static_assert(sizeof(Fixed) == 32 && sizeof(Group) == 24);

Status corrupt(const char* what, int64_t value) {
  return Status::error(KVC_ERROR_CORRUPT, "the saved sequence has %s %" PRId64, what, value);
}

bool in_range(int64_t value, int64_t low, int64_t high) { return value >= low && value <= high; }

Status check_fixed(const Fixed& fixed) {
  if (!in_range(fixed.length, 0, kMaxLength)) return corrupt("length", fixed.length);
  if (!in_range(fixed.window, 0, kMaxLength)) return corrupt("window", fixed.window);
  if (!in_range(fixed.sinks, 0, fixed.window == 0 ? 0 : fixed.window - 1)) return corrupt("sink tokens", fixed.sinks);
  if ((fixed.flags & ~(kStreamed | kHasTokens)) != 0) return corrupt("flags", fixed.flags);
  if (fixed.window != 0 && (fixed.flags & kStreamed) == 0) return corrupt("a window, and flags", fixed.flags);
  if (!in_range(fixed.rope_set, KVC_ROPE_SET_SHORT, KVC_ROPE_SET_LONG)) return corrupt("rope set", fixed.rope_set);
  if (!in_range(fixed.num_groups, 1, kMaxGroups)) return corrupt("groups", fixed.num_groups);
  if (!in_range(fixed.num_checkpoints, 0, kMaxCheckpoints)) return corrupt("checkpoints", fixed.num_checkpoints);
  return Status();
}

}  // namespace

std::vector<uint8_t> encode_record(const SavedRecord& record) {
  const SavedSequence& sequence = record.sequence;
  const Fixed fixed = {sequence.length,
                       sequence.stream.sinks,
                       sequence.stream.window,
                       (sequence.streamed ? kStreamed : 0) | (record.has_tokens ? kHasTokens : 0),
                       record.rope_set,
                       static_cast<uint32_t>(sequence.lists.size()),
                       static_cast<uint32_t>(sequence.checkpoints.size())};
  std::vector<uint8_t> bytes;
  const auto add = [&](const void* data, size_t size) {
    const size_t begin = bytes.size();
    bytes.resize(begin + size);
    std::memcpy(bytes.data() + begin, data, size);
  };
  add(&fixed, sizeof fixed);
  for (const SavedSequence::List& list : sequence.lists) {
    const Group group = {list.tokens, list.hole_begin, list.hole_end};
    add(&group, sizeof group);
  }
  for (const int64_t position : sequence.checkpoints) add(&position, sizeof position);
  return bytes;
}

Status decode_record(std::span<const uint8_t> bytes, SavedRecord* out) {
  Fixed fixed;
  if (bytes.size() < sizeof fixed) return corrupt("a record of bytes", static_cast<int64_t>(bytes.size()));
  std::memcpy(&fixed, bytes.data(), sizeof fixed);
  KVC_TRY(check_fixed(fixed));
  if (bytes.size() != sizeof fixed + fixed.num_groups * sizeof(Group) + fixed.num_checkpoints * sizeof(int64_t)) {
    return corrupt("a record of bytes", static_cast<int64_t>(bytes.size()));
  }
  SavedSequence& sequence = out->sequence;
  sequence.length = fixed.length;
  sequence.stream = {fixed.sinks, fixed.window};
  sequence.streamed = (fixed.flags & kStreamed) != 0;
  out->has_tokens = (fixed.flags & kHasTokens) != 0;
  out->rope_set = fixed.rope_set;
  sequence.lists.clear();
  sequence.checkpoints.clear();
  const uint8_t* next = bytes.data() + sizeof fixed;
  for (uint32_t g = 0; g < fixed.num_groups; ++g, next += sizeof(Group)) {
    Group group;
    std::memcpy(&group, next, sizeof group);
    if (!in_range(group.tokens, 0, kMaxLength)) return corrupt("tokens of a group", group.tokens);
    if (!in_range(group.hole_begin, 0, group.hole_end)) return corrupt("a hole from", group.hole_begin);
    if (!in_range(group.hole_end, 0, group.tokens)) return corrupt("a hole up to", group.hole_end);
    sequence.lists.push_back({group.tokens, group.hole_begin, group.hole_end});
  }
  int64_t before = 0;
  for (uint32_t i = 0; i < fixed.num_checkpoints; ++i, next += sizeof(int64_t)) {
    int64_t position = 0;
    std::memcpy(&position, next, sizeof position);
    if (!in_range(position, before + 1, fixed.length)) return corrupt("a checkpoint at", position);
    sequence.checkpoints.push_back(before = position);
  }
  return Status();
}

}  // namespace kvc
