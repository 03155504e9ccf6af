#include "step/layer_calls.h"

#include <gtest/gtest.h>

namespace kvc {
namespace {

TEST(LayerCalls, AStepForgetsTheLastOne) {
  LayerCalls calls(3);
  calls.note_append(1);
  calls.note_state(2, 4);
  calls.note_attend(1, LayerCalls::kPast);
  EXPECT_TRUE(calls.appended(1));
  EXPECT_FALSE(calls.appended(0));
  EXPECT_TRUE(calls.attended(1, LayerCalls::kPast));
  EXPECT_FALSE(calls.attended(1, LayerCalls::kSelf)) << "the other part can still run";
  EXPECT_TRUE(calls.attended(1, LayerCalls::kPast | LayerCalls::kSelf)) << "but not both parts in one call";
  EXPECT_EQ(calls.states(2, false), 1u << 4);
  calls.start();
  for (size_t layer = 0; layer < 3; ++layer) {
    EXPECT_FALSE(calls.appended(layer));
    EXPECT_FALSE(calls.attended(layer, LayerCalls::kPast | LayerCalls::kSelf));
    EXPECT_FALSE(calls.has_append(layer, false));
    EXPECT_EQ(calls.states(layer, false), 0u);
  }
}

// A later step may replay these calls, which the host does not see.
TEST(LayerCalls, RecordedCallsStay) {
  LayerCalls calls(2);
  calls.note_append(0);
  calls.note_state(1, 0);
  calls.start();
  calls.note_state(1, 3);
  EXPECT_TRUE(calls.has_append(0, true));
  EXPECT_FALSE(calls.has_append(1, true));
  EXPECT_EQ(calls.states(1, true), 0b1001u);
  EXPECT_EQ(calls.states(1, false), 0b1000u);
}

}  // namespace
}  // namespace kvc
