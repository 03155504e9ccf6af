#include "base/id.h"

#include <gtest/gtest.h>

#include <set>

namespace kvc {
namespace {

TEST(Id, IsNeverZeroAndBelow2To63) {
  EXPECT_NE(IdLayout(IdKind::kSequence, 0, 1).make(0, 0), 0u);
  const IdLayout last(IdKind::kForward, ~0u, kMaxSlots);
  EXPECT_LT(last.make(~uint64_t{0}, static_cast<int32_t>(kMaxSlots) - 1), uint64_t{1} << 63);
}

TEST(Id, PartsDoNotOverlap) {
  std::set<uint64_t> ids;
  for (const int64_t num_slots : {int64_t{3}, int64_t{64}, kMaxSlots}) {
    ids.clear();
    for (const IdKind kind : {IdKind::kSequence, IdKind::kForward}) {
      for (const uint32_t tag : {0u, 1u, kTagMask}) {
        const IdLayout layout(kind, tag, num_slots);
        for (const uint64_t generation : {0u, 1u, (1u << 25) - 1}) {
          for (const int32_t slot : {0, 1, static_cast<int32_t>(num_slots) - 1}) {
            const uint64_t id = layout.make(generation, slot);
            EXPECT_TRUE(ids.insert(id).second);
            EXPECT_EQ(layout.slot_of(id), slot);
            EXPECT_EQ(kind_of(id), kind);
            EXPECT_EQ(tag_of(id), tag);
          }
        }
      }
    }
  }
}

TEST(Id, ZeroHasNoSlot) { EXPECT_EQ(IdLayout(IdKind::kSequence, 1, 64).slot_of(0), -1); }

// A regression: with few slots an id came back after 2^25 reuses, within seconds.
TEST(Id, FewSlotsLeaveManyGenerations) {
  const IdLayout layout(IdKind::kSequence, 1, 64);
  EXPECT_NE(layout.make(1, 5), layout.make(1 + (uint64_t{1} << 25), 5));
  EXPECT_NE(layout.make(1, 5), layout.make(1 + (uint64_t{1} << 37), 5));
}

}  // namespace
}  // namespace kvc
