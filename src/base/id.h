// Ids of sequences and forwards. An id has 64 bits, is never 0, and is below 2^63. In this file, a slot is an entry of
// the table in which a cache keeps these objects. An id is stale once its object is removed, even if another object
// reuses the slot.
//   bits 0..44: slot + 1 and, above it, the generation (which counts reuses of the slot); 45..61: cache tag; 62: kind
// The slot takes as many bits as the size of the table needs. With 128 slots (forwards and graphs), a generation
// repeats after 2^37 reuses of its slot. With a million slots, it repeats after 2^25 reuses. A tag repeats after 2^17
// caches of one process.
#pragma once

#include <cstdint>

namespace kvc {

enum class IdKind : uint64_t { kSequence = 0, kForward = 1 };

inline constexpr int64_t kMaxSlots = (int64_t{1} << 20) - 1;
inline constexpr uint32_t kTagMask = (1u << 17) - 1;

class IdLayout {
 public:
  // num_slots: 1..kMaxSlots, the size of the table.
  constexpr IdLayout(IdKind kind, uint32_t tag, int64_t num_slots) noexcept
      : high_(static_cast<uint64_t>(kind) << 62 | static_cast<uint64_t>(tag & kTagMask) << kLowBits) {
    while ((int64_t{1} << slot_bits_) <= num_slots) ++slot_bits_;
  }

  constexpr uint64_t make(uint64_t generation, int32_t slot) const noexcept {
    const uint64_t low = generation << slot_bits_ | static_cast<uint64_t>(slot + 1);
    return high_ | (low & ((uint64_t{1} << kLowBits) - 1));
  }

  // Returns the slot of an id, or -1 for id 0. The function does not check whether the id is stale: for that, the owner
  // of the slot must compare the whole id with the id that it stores in the slot.
  constexpr int32_t slot_of(uint64_t id) const noexcept {
    return static_cast<int32_t>(id & ((uint64_t{1} << slot_bits_) - 1)) - 1;
  }

 private:
  static constexpr int kLowBits = 45;
  uint64_t high_;
  int slot_bits_ = 1;
};

constexpr IdKind kind_of(uint64_t id) noexcept { return static_cast<IdKind>(id >> 62); }
constexpr uint32_t tag_of(uint64_t id) noexcept { return static_cast<uint32_t>(id >> 45) & kTagMask; }

}  // namespace kvc
