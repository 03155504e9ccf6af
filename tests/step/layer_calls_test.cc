#include "step/layer_calls.h"

#include <gtest/gtest.h>

namespace kvc {
namespace {

TEST(LayerCalls, AStepForgetsTheLastOne) {
  const int32_t num_states[] = {0, 0, 5};
  LayerCalls calls(num_states);
  calls.note_append(1);
  calls.note_state(2, 4, -1);
  calls.note_state(2, 4, 1);
  calls.note_attend(1, LayerCalls::kPast);
  EXPECT_TRUE(calls.appended(1));
  EXPECT_FALSE(calls.appended(0));
  EXPECT_TRUE(calls.attended(1, LayerCalls::kPast));
  EXPECT_FALSE(calls.attended(1, LayerCalls::kSelf)) << "the other part can still run";
  EXPECT_TRUE(calls.attended(1, LayerCalls::kPast | LayerCalls::kSelf)) << "but not both parts in one call";
  EXPECT_EQ(calls.stored_state(2, 4, false), LayerCalls::kLast | 0b10u);
  EXPECT_EQ(calls.stored_state(2, 3, false), 0u);
  calls.start();
  for (size_t layer = 0; layer < 3; ++layer) {
    EXPECT_FALSE(calls.appended(layer));
    EXPECT_FALSE(calls.attended(layer, LayerCalls::kPast | LayerCalls::kSelf));
    EXPECT_FALSE(calls.has_append(layer, false));
  }
  EXPECT_EQ(calls.stored_state(2, 4, false), 0u);
}

// A later step may replay these calls, which the host does not see.
TEST(LayerCalls, RecordedCallsStay) {
  const int32_t num_states[] = {1, 4};
  LayerCalls calls(num_states);
  calls.note_append(0);
  calls.note_state(1, 2, 0);
  calls.start();
  calls.note_state(1, 2, 3);
  EXPECT_TRUE(calls.has_append(0, true));
  EXPECT_FALSE(calls.has_append(1, true));
  EXPECT_EQ(calls.stored_state(1, 2, true), 0b1001u);
  EXPECT_EQ(calls.stored_state(1, 2, false), 0b1000u);
}

}  // namespace
}  // namespace kvc
