#include "sequence/group_rules.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvc {
namespace {

GroupRules sliding(int32_t window, int64_t rollback, int64_t page_size) {
  return {kernels::see_window(window), rollback, page_size};
}
GroupRules chunked(int32_t chunk, int64_t rollback, int64_t page_size) {
  return {kernels::see_chunk(chunk), rollback, page_size};
}
GroupRules streaming(int32_t sinks, int32_t window, int64_t rollback, int64_t page_size) {
  return GroupRules{{}, rollback, page_size}.with({sinks, window});
}

TEST(GroupRules, FullKeepsEverything) {
  const GroupRules full = {{}, 0, 16};
  EXPECT_EQ(full.first_visible(100000), 0);
  EXPECT_EQ(full.droppable_pages(100000), 0);
  EXPECT_TRUE(full.works_at(5, {}));
}

// Which of 4 pages of 16 tokens the query at position 64 needs.
TEST(GroupRules, FirstPageThatAPrefixNeeds) {
  const GroupRules full = {{}, 0, 16}, state = {.page_size = int64_t{1} << 30, .row = RowKind::kState};
  EXPECT_EQ(full.first_needed(4, 16), 0);
  EXPECT_EQ(sliding(17, 5, 16).first_needed(4, 16), 3) << "tokens 48..63; no rollback margin";
  EXPECT_EQ(sliding(18, 0, 16).first_needed(4, 16), 2);
  EXPECT_EQ(chunked(64, 0, 16).first_needed(4, 16), 4) << "a new chunk sees no token before it";
  EXPECT_EQ(state.first_needed(4, 16), 3) << "only the state after the last page";
  EXPECT_EQ(GroupRules{.encoder = true}.first_needed(4, 16), 4);
}

TEST(GroupRules, WhichGroupsAStepAppendsTo) {
  const GroupRules own = {}, encoder = {.encoder = true};
  EXPECT_TRUE(own.grows(0, -1));
  EXPECT_FALSE(encoder.grows(1, -1));
  EXPECT_FALSE(own.grows(0, 1));
  EXPECT_TRUE(encoder.grows(1, 1));
  EXPECT_FALSE(encoder.grows(2, 1)) << "the encoder tokens of another group";
}

TEST(GroupRules, WhichGroupsKeepAllPages) {
  EXPECT_TRUE(GroupRules{}.keeps_all());
  EXPECT_FALSE(sliding(3, 0, 1).keeps_all());
  EXPECT_FALSE(GroupRules{.row = RowKind::kState}.keeps_all());
  EXPECT_FALSE(GroupRules{.encoder = true}.keeps_all());
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
  for (const int32_t chunk : {1, 2, 3, 16, 100}) {
    for (const int64_t rollback : {0, 1, 7, 64}) {
      for (const int64_t page_size : {1, 3, 16}) {
        const GroupRules rules = chunked(chunk, rollback, page_size);
        for (int64_t length = 0; length < 300; ++length) {
          const int64_t dropped = rules.droppable_pages(length);
          const int64_t visible = std::max<int64_t>(0, length - rollback) / chunk * chunk;
          EXPECT_LE(dropped * page_size, visible);
          EXPECT_GT((dropped + 1) * page_size, visible);
          for (int64_t back = 0; back <= std::min(rollback, length); ++back) {
            EXPECT_TRUE(rules.works_at(length - back, {0, dropped})) << length << " - " << back;
          }
          for (int64_t p = 1; dropped > 0 && p < length; ++p) {
            EXPECT_EQ(rules.works_at(p, {0, dropped}), p >= rules.first_after({0, dropped})) << p;
          }
        }
      }
    }
  }
}

// A dropped page is invisible to the query at length - rollback and to all later ones. The next page is not.
TEST(GroupRules, DropsExactlyWhatNoLaterQuerySees) {
  for (const int32_t window : {1, 2, 3, 16, 100}) {
    for (const int64_t rollback : {0, 1, 7, 64}) {
      for (const int64_t page_size : {1, 3, 16}) {
        const GroupRules rules = sliding(window, rollback, page_size);
        for (int64_t length = 0; length < 300; ++length) {
          const int64_t dropped = rules.droppable_pages(length);
          const int64_t earliest = std::max<int64_t>(0, length - rollback);
          EXPECT_LE(dropped * page_size, std::max<int64_t>(0, earliest - window + 1));
          EXPECT_GT((dropped + 1) * page_size, std::max<int64_t>(0, earliest - window + 1));
          for (int64_t back = 0; back <= std::min(rollback, length); ++back) {
            EXPECT_TRUE(rules.works_at(length - back, {0, dropped})) << length << " - " << back;
          }
        }
      }
    }
  }
}

TEST(GroupRules, FirstAfterIsTheSmallestThatWorks) {
  for (const int32_t window : {1, 5, 16}) {
    for (const int64_t dropped : {1, 2, 9}) {
      const GroupRules rules = sliding(window, 4, 3);
      const int64_t first = rules.first_after({0, dropped});
      EXPECT_TRUE(rules.works_at(first, {0, dropped}));
      EXPECT_FALSE(rules.works_at(first - 1, {0, dropped}));
      EXPECT_TRUE(rules.works_at(0, {0, dropped}));
      EXPECT_EQ(rules.last_before({0, dropped}), 0);
    }
  }
}

TEST(GroupRules, OnlyFullGroupsStream) {
  const StreamWindow stream = {2, 6};
  EXPECT_EQ(sliding(3, 1, 4).with(stream).sink_tokens(), 0);
  EXPECT_EQ(sliding(3, 1, 4).with(stream).first_visible(10), 8);
  EXPECT_EQ(chunked(3, 1, 4).with(stream).first_visible(10), 9);
  EXPECT_EQ((GroupRules{{}, 1, 4}.with(stream).sink_tokens()), 2);
  EXPECT_EQ((GroupRules{{}, 1, 4}.with(stream).first_visible(10)), 7);
  EXPECT_FALSE((GroupRules{{}, 1, 4}.with({}).windowed()));
  for (const GroupRules& of_one : {sliding(1, 1, 4), chunked(1, 1, 4)}) {
    EXPECT_TRUE(of_one.windowed());
    EXPECT_EQ(of_one.with(stream).sink_tokens(), 0);
    EXPECT_EQ(of_one.with(stream).first_visible(10), 10);
  }
}

// The keys that a query of a streaming sequence sees, by the definition: j < s, and max(s, p-(w-s)+1) <= j <= p.
bool sees(int64_t sinks, int64_t window, int64_t p, int64_t j) {
  return j <= p && (j < sinks || j >= std::max(sinks, p - (window - sinks) + 1));
}

// The tokens that are held after every length up to `length` was reached. They are in pages of which a query from
// length - rollback on sees a token, or which are not full.
std::vector<bool> held_at(int64_t sinks, int64_t window, int64_t rollback, int64_t page_size, int64_t length) {
  const int64_t last = length + window + page_size;
  std::vector<bool> held(static_cast<size_t>(ceil_div(last, page_size) * page_size), false);
  for (int64_t p = std::max<int64_t>(0, length - rollback); p < last; ++p) {
    for (int64_t j = 0; j <= p; ++j) {
      if (!sees(sinks, window, p, j)) continue;
      for (int64_t k = j / page_size * page_size; k < (j / page_size + 1) * page_size; ++k)
        held[static_cast<size_t>(k)] = true;
    }
  }
  for (int64_t k = 0; k < ceil_div(sinks, page_size) * page_size; ++k) held[static_cast<size_t>(k)] = true;
  return held;
}

// Dropped pages and working positions of streaming windows, compared with the definition of what queries see.
TEST(GroupRules, AStreamDropsAndAllowsExactlyWhatItsQueriesSay) {
  for (const auto& [sinks, window] : {std::pair{0, 5}, {1, 2}, {4, 7}, {6, 20}, {5, 6}, {3, 30}}) {
    for (const int64_t rollback : {0, 1, 9}) {
      for (const int64_t page_size : {1, 3, 8}) {
        const GroupRules rules = streaming(sinks, window, rollback, page_size);
        for (int64_t length = 1; length < 60; ++length) {
          const std::vector<bool> held = held_at(sinks, window, rollback, page_size, length);
          const Hole hole = {rules.sink_pages(), std::max(rules.sink_pages(), rules.droppable_pages(length))};
          for (int64_t j = 0; j < length; ++j) {
            const bool dropped = j >= hole.begin * page_size && j < hole.end * page_size;
            ASSERT_EQ(!dropped, held[static_cast<size_t>(j)])
                << "s " << sinks << " w " << window << " rollback " << rollback << " page " << page_size << " length "
                << length << " key " << j;
          }
          for (int64_t position = 0; position <= length; ++position) {
            // After a cut there, the next query sees itself, and only held tokens before it.
            bool works = position <= hole.begin * page_size || position >= hole.end * page_size;
            for (int64_t j = 0; j < position; ++j) {
              works = works && (!sees(sinks, window, position, j) || held[static_cast<size_t>(j)]);
            }
            ASSERT_EQ(rules.works_at(position, hole), works)
                << "s " << sinks << " w " << window << " rollback " << rollback << " page " << page_size << " length "
                << length << " position " << position;
            if (!works) {
              ASSERT_LT(rules.last_before(hole), position);
              ASSERT_GT(rules.first_after(hole), position);
            }
          }
          if (hole.empty()) continue;
          ASSERT_TRUE(rules.works_at(rules.last_before(hole), hole));
          for (int64_t p = rules.last_before(hole) + 1; p < rules.first_after(hole); ++p) {
            ASSERT_FALSE(rules.works_at(p, hole)) << p;
          }
          ASSERT_TRUE(rules.works_at(rules.first_after(hole), hole));
          for (int64_t back = 0; back <= std::min(rollback, length); ++back) {
            ASSERT_TRUE(rules.works_at(length - back, hole)) << length << " - " << back;
          }
        }
      }
    }
  }
}

// The peak is what a sequence holds at most, with steps of any length up to the largest.
TEST(GroupRules, PeakIsReachedAndNeverExceeded) {
  for (const int64_t page_size : {1, 3, 16}) {
    for (const GroupRules& rules :
         {sliding(20, 7, page_size), sliding(20, 3, page_size), chunked(20, 7, page_size), chunked(20, 3, page_size),
          streaming(6, 26, 7, page_size), streaming(6, 26, 3, page_size)}) {
      const int64_t chunk = 11;
      int64_t most = 0;
      int64_t length = 0;
      int64_t dropped = 0;
      for (int step = 0; step < 2000; ++step) {
        length += step % 3 == 0 ? chunk : 1 + step % chunk;
        most = std::max(most, ceil_div(length, page_size) - dropped);
        dropped = std::max(dropped, rules.droppable_pages(length) - rules.sink_pages());
      }
      EXPECT_EQ(most, rules.peak_pages(chunk)) << page_size << " rollback " << rules.rollback_tokens;
    }
  }
}

}  // namespace
}  // namespace kvc
