// Events: they stay signalled until they are cleared, and a wait for several of them ends with any of them.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/steady_clock.h"
#include "system/wake_event.h"

namespace kvc {
namespace {

class Events : public testing::Test {
 protected:
  Events() {
    for (int& event : events_) event = open_event();
  }
  ~Events() override {
    for (const int event : events_) close_event(event);
  }
  bool first_is_signalled() const { return wait_for_events(events_, 0); }

  int events_[3];
};

TEST_F(Events, AreSignalledUntilTheyAreCleared) {
  for (const int event : events_) ASSERT_GE(event, 0);
  EXPECT_FALSE(first_is_signalled());
  for (int round = 0; round < 2; ++round) {
    write_event(events_[0]);
    write_event(events_[0]);  // the same as once
    EXPECT_TRUE(first_is_signalled());
    EXPECT_TRUE(first_is_signalled());
    clear_event(events_[0]);
    EXPECT_FALSE(first_is_signalled());
    clear_event(events_[0]);
    EXPECT_FALSE(first_is_signalled());
  }
}

TEST_F(Events, AnyOfThemEndsAWait) {
  for (size_t i = 0; i < 3; ++i) {
    std::thread later([this, i] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      write_event(events_[i]);
    });
    EXPECT_EQ(wait_for_events(events_, -1), i == 0);
    later.join();
    clear_event(events_[i]);
  }
}

TEST_F(Events, AWaitWithoutThemEnds) {
  const int64_t begin = steady_ns();
  EXPECT_FALSE(wait_for_events(events_, 30));
  EXPECT_GE(steady_ns() - begin, 20'000'000);
}

}  // namespace
}  // namespace kvc
