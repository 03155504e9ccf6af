#include "base/id.h"

#include <gtest/gtest.h>

#include <set>

namespace kvc {
namespace {

TEST(Id, IsNeverZeroAndBelow2To63) {
  EXPECT_NE(make_id(IdKind::kSequence, 0, 0, 0), 0u);
  const uint64_t largest = make_id(IdKind::kForward, ~0u, ~0u, static_cast<int32_t>(kMaxSlots) - 1);
  EXPECT_LT(largest, uint64_t{1} << 63);
}

TEST(Id, PartsDoNotOverlap) {
  std::set<uint64_t> ids;
  for (const IdKind kind : {IdKind::kSequence, IdKind::kForward}) {
    for (const uint32_t tag : {0u, 1u, kTagMask}) {
      for (const uint32_t generation : {0u, 1u, kGenerationMask}) {
        for (const int32_t slot : {0, 1, static_cast<int32_t>(kMaxSlots) - 1}) {
          const uint64_t id = make_id(kind, tag, generation, slot);
          EXPECT_TRUE(ids.insert(id).second);
          EXPECT_EQ(slot_of(id), slot);
        }
      }
    }
  }
}

TEST(Id, ZeroHasNoSlot) { EXPECT_EQ(slot_of(0), -1); }

}  // namespace
}  // namespace kvc
