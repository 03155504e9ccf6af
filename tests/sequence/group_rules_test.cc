#include "sequence/group_rules.h"

#include <gtest/gtest.h>

#include <set>

namespace kvc {
namespace {

GroupRules sliding(int64_t window, int64_t rollback, int64_t page_size) { return {window, rollback, page_size}; }
GroupRules chunked(int64_t chunk, int64_t rollback, int64_t page_size) { return {0, rollback, page_size, chunk}; }

TEST(GroupRules, FullKeepsEverything) {
  const GroupRules full = {0, 0, 16};
  EXPECT_EQ(full.first_visible(100000), 0);
  EXPECT_EQ(full.droppable_pages(100000), 0);
  EXPECT_TRUE(full.works_at(5, 0));
  EXPECT_EQ(full.first_working(0), 0);
}

TEST(GroupRules, AWindowCountsTheQueryItself) {
  const GroupRules rules = sliding(3, 0, 1);
  EXPECT_EQ(rules.first_visible(10), 8);
  EXPECT_EQ(rules.first_visible(2), 0);
  EXPECT_EQ(sliding(1, 0, 1).first_visible(10), 10);
}

TEST(GroupRules, AChunkStartsAtItsMultiple) {
  const GroupRules rules = chunked(8, 0, 3);
  EXPECT_EQ(rules.first_visible(0), 0);
  EXPECT_EQ(rules.first_visible(7), 0);
  EXPECT_EQ(rules.first_visible(8), 8);
  EXPECT_EQ(rules.first_visible(23), 16);
  EXPECT_EQ(rules.droppable_pages(8), 2)
      << "tokens 0..7 are gone with the first query of the next chunk; page 2 is not";
  EXPECT_EQ(chunked(8, 1, 3).droppable_pages(8), 0) << "the query at 7 may come again";
}

TEST(GroupRules, AChunkDropsExactlyWhatNoLaterQuerySees) {
  for (const int64_t chunk : {1, 2, 3, 16, 100}) {
    for (const int64_t rollback : {0, 1, 7, 64}) {
      for (const int64_t page_size : {1, 3, 16}) {
        const GroupRules rules = chunked(chunk, rollback, page_size);
        for (int64_t length = 0; length < 300; ++length) {
          const int64_t dropped = rules.droppable_pages(length);
          const int64_t visible = std::max<int64_t>(0, length - rollback) / chunk * chunk;
          EXPECT_LE(dropped * page_size, visible);
          EXPECT_GT((dropped + 1) * page_size, visible);
          for (int64_t back = 0; back <= std::min(rollback, length); ++back) {
            EXPECT_TRUE(rules.works_at(length - back, dropped)) << length << " - " << back;
          }
          for (int64_t p = 1; dropped > 0 && p < length; ++p) {
            EXPECT_EQ(rules.works_at(p, dropped), p >= rules.first_working(dropped)) << p;
          }
        }
      }
    }
  }
}

// Every page that is dropped is invisible to the query at length - rollback and to all later ones; the next is not.
TEST(GroupRules, DropsExactlyWhatNoLaterQuerySees) {
  for (const int64_t window : {1, 2, 3, 16, 100}) {
    for (const int64_t rollback : {0, 1, 7, 64}) {
      for (const int64_t page_size : {1, 3, 16}) {
        const GroupRules rules = sliding(window, rollback, page_size);
        for (int64_t length = 0; length < 300; ++length) {
          const int64_t dropped = rules.droppable_pages(length);
          const int64_t earliest = std::max<int64_t>(0, length - rollback);
          EXPECT_LE(dropped * page_size, std::max<int64_t>(0, earliest - window + 1));
          EXPECT_GT((dropped + 1) * page_size, std::max<int64_t>(0, earliest - window + 1));
          for (int64_t back = 0; back <= std::min(rollback, length); ++back) {
            EXPECT_TRUE(rules.works_at(length - back, dropped)) << length << " - " << back;
          }
        }
      }
    }
  }
}

TEST(GroupRules, FirstWorkingIsTheSmallestThatWorks) {
  for (const int64_t window : {1, 5, 16}) {
    for (const int64_t dropped : {1, 2, 9}) {
      const GroupRules rules = sliding(window, 4, 3);
      const int64_t first = rules.first_working(dropped);
      EXPECT_TRUE(rules.works_at(first, dropped));
      EXPECT_FALSE(rules.works_at(first - 1, dropped));
      EXPECT_TRUE(rules.works_at(0, dropped));
    }
  }
}

// The peak is what a sequence really holds, stepped with any chunk up to the largest.
TEST(GroupRules, PeakIsReachedAndNeverExceeded) {
  for (const int64_t page_size : {1, 3, 16}) {
    for (const GroupRules& rules : {sliding(20, 7, page_size), chunked(20, 7, page_size)}) {
      const int64_t chunk = 11;
      int64_t most = 0;
      int64_t length = 0;
      int64_t dropped = 0;
      for (int step = 0; step < 2000; ++step) {
        length += step % 3 == 0 ? chunk : 1 + step % chunk;
        most = std::max(most, ceil_div(length, page_size) - dropped);
        dropped = std::max(dropped, rules.droppable_pages(length));
      }
      EXPECT_LE(most, rules.peak_pages(chunk));
      EXPECT_GE(most, rules.peak_pages(chunk) - 1);
    }
  }
}

}  // namespace
}  // namespace kvc
