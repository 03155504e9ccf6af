// 64-bit ids of sequences and forwards: never 0, below 2^63, and stale after their slot is reused.
//   bits 0..19 slot + 1, 20..44 generation, 45..61 cache tag, 62 kind
// A generation wraps after 2^25 reuses of one slot; a tag after 2^17 caches of one process.
#pragma once

#include <cstdint>

namespace kvc {

enum class IdKind : uint64_t { kSequence = 0, kForward = 1 };

inline constexpr int64_t kMaxSlots = (int64_t{1} << 20) - 1;
inline constexpr uint32_t kGenerationMask = (1u << 25) - 1;
inline constexpr uint32_t kTagMask = (1u << 17) - 1;

constexpr uint64_t make_id(IdKind kind, uint32_t tag, uint32_t generation, int32_t slot) noexcept {
  return static_cast<uint64_t>(kind) << 62 | static_cast<uint64_t>(tag & kTagMask) << 45 |
         static_cast<uint64_t>(generation & kGenerationMask) << 20 | static_cast<uint64_t>(slot + 1);
}

// Slot of an id: -1 for id 0. Whether the id is alive is for the owner of the slot to say, by comparing whole ids.
constexpr int32_t slot_of(uint64_t id) noexcept { return static_cast<int32_t>(id & ((1u << 20) - 1)) - 1; }

}  // namespace kvc
