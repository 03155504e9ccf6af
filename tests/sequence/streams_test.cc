// Streaming windows of sequences in the store: holes of page lists, positions that still work, and other owners of the
// pages.
#include <gtest/gtest.h>

#include <vector>

#include "store_fixture.h"

namespace kvc {
namespace {

SequenceStoreConfig stream_config(int64_t page_size, int64_t pages, int64_t rollback = 0, int64_t window = 0) {
  SequenceStoreConfig config = config_of(page_size, pages, window, window > 0 ? pages : 0, rollback);
  config.groups[0].rules.rollback_tokens = rollback;
  config.max_tree_nodes = 16;
  config.streaming = true;
  return config;
}

Status set(Fixture& f, uint64_t id, StreamWindow stream, bool prefix_is_sink = false) {
  const Ids ids = {id};
  const std::vector<StreamWindow> streams = {stream};
  return f.store.set_streams(ids, streams, prefix_is_sink);
}

Status truncate(Fixture& f, uint64_t id, int64_t length) {
  return f.store.truncate(Ids{id}, std::vector<int64_t>{length});
}

std::pair<int64_t, int64_t> nearest(Fixture& f, uint64_t id, int64_t position) {
  int64_t before = -7;
  int64_t after = -7;
  f.store.nearest_position(f.store.slot_of(id), position, &before, &after);
  return {before, after};
}

// A refused call changes nothing.
void expect_refused(Fixture& f, const Status& status, kvc_status code, uint64_t digest_before) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_EQ(f.store.digest(), digest_before);
}

TEST(Streams, PagesBetweenSinksAndWindowAreFreedWhenAStepEnds) {
  Fixture f(stream_config(4, 32));
  const uint64_t id = f.add(1)[0];
  ASSERT_TRUE(set(f, id, {5, 13}).ok());
  f.append({id}, {13});
  EXPECT_EQ(f.pages(id), (std::vector<int32_t>{0, 1, 2, 3})) << "nothing has slid yet";
  // The query at 16 sees 0..4 and from 16 - 8 + 1 = 9 on; the one at 19 from 12 on.
  f.append({id}, {3});
  EXPECT_EQ(f.pages(id), (std::vector<int32_t>{0, 1, 2, 3}));
  f.append({id}, {3});
  EXPECT_EQ(f.pages(id), (std::vector<int32_t>{0, 1, -1, 3, 4}));
  f.append({id}, {1});
  f.append({id}, {8});
  EXPECT_EQ(f.pages(id), (std::vector<int32_t>{0, 1, -1, -1, -1, 2, 5}));
  EXPECT_EQ(f.store.table(0).pages().used(), 4);
}

TEST(Streams, TheMarginKeepsWhatADroppedDraftNeeds) {
  Fixture f(stream_config(2, 64, 6));
  const uint64_t id = f.add(1)[0];
  ASSERT_TRUE(set(f, id, {2, 8}).ok());
  for (int i = 0; i < 40; ++i) f.append({id}, {1});
  ASSERT_TRUE(truncate(f, id, 34).ok());
  f.append({id}, {6});
  const uint64_t before = f.store.digest();
  // 28 is the first held key, because the query at 34 needs 29, whose page begins with 28.
  expect_refused(f, truncate(f, id, 32), KVC_ERROR_EVICTED, before);
  EXPECT_EQ(nearest(f, id, 32), std::pair(int64_t{2}, int64_t{33}));
}

TEST(Streams, ForkAndTruncateWorkInTheSinksAndBehindTheHole) {
  Fixture f(stream_config(4, 64));
  const uint64_t id = f.add(1)[0];
  ASSERT_TRUE(set(f, id, {6, 14}).ok());  // sinks in pages 0 and 1
  f.append({id}, {10});
  for (int i = 0; i < 37; ++i) f.append({id}, {1});
  // Length 47, window from 40 on: pages 2..9 are freed. A query at 47 needs 40..46, and the smallest position that
  // works is 40 + 8 - 1.
  ASSERT_EQ(f.pages(id)[1], 1);
  ASSERT_EQ(f.pages(id)[2], -1);
  ASSERT_EQ(f.pages(id)[9], -1);
  ASSERT_GE(f.pages(id)[10], 0);
  EXPECT_EQ(nearest(f, id, 0), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(nearest(f, id, 5), std::pair(int64_t{5}, int64_t{5}));
  EXPECT_EQ(nearest(f, id, 8), std::pair(int64_t{8}, int64_t{8}));
  EXPECT_EQ(nearest(f, id, 9), std::pair(int64_t{8}, int64_t{47}));
  EXPECT_EQ(nearest(f, id, 46), std::pair(int64_t{8}, int64_t{47}));
  const uint64_t before = f.store.digest();
  for (const int64_t position : {9, 20, 40, 46}) {
    expect_refused(f, truncate(f, id, position), KVC_ERROR_EVICTED, before);
    std::vector<SlotCopy> copies;
    Ids child(1);
    expect_refused(f, f.store.fork(Ids{id}, std::vector<int64_t>{position}, child, &copies), KVC_ERROR_EVICTED, before);
  }
  for (const int64_t position : {0, 3, 4, 7, 8, 47}) {
    const uint64_t child = f.fork(id, position);
    EXPECT_EQ(f.store.stream(f.store.slot_of(child)).sinks, 6);
    EXPECT_EQ(f.store.stream(f.store.slot_of(child)).window, 14);
    for (int i = 0; i < 30; ++i) f.append({child}, {1});
    ASSERT_TRUE(f.store.remove(Ids{child}).ok());
  }
  ASSERT_TRUE(truncate(f, id, 7).ok());
  EXPECT_EQ(f.pages(id), (std::vector<int32_t>{0, 1}));
  for (int i = 0; i < 40; ++i) f.append({id}, {1});
  EXPECT_EQ(f.store.stream(f.store.slot_of(id)).window, 14) << "truncate keeps the window";
  ASSERT_TRUE(f.store.remove(Ids{id}).ok());
  EXPECT_EQ(f.store.table(0).pages().used(), 0);
  EXPECT_EQ(f.store.table(0).nodes().used(), 0);
}

TEST(Streams, SlidingDropsOnlyThisSequencesReferences) {
  Fixture f(stream_config(4, 64));
  const uint64_t plain = f.add(1)[0];
  f.append({plain}, {40});
  uint64_t streaming = plain;
  for (int depth = 0; depth < 4; ++depth) streaming = f.fork(streaming, 40);
  const std::vector<int32_t> pages = f.pages(plain);
  ASSERT_TRUE(set(f, streaming, {4, 12}).ok());
  EXPECT_EQ(f.pages(plain), pages);
  EXPECT_EQ(f.pages(streaming)[0], pages[0]);
  EXPECT_EQ(f.pages(streaming)[1], -1);
  EXPECT_EQ(f.pages(streaming)[9], pages[9]);
  EXPECT_EQ(f.store.table(0).pages().used(), 10);
  f.append({plain, streaming}, {4, 4});
  EXPECT_EQ(f.store.table(0).pages().used(), 12);
  ASSERT_TRUE(f.store.remove(Ids{streaming}).ok());
  EXPECT_EQ(f.store.table(0).pages().used(), 11);
}

TEST(Streams, PrefixIsSink) {
  Fixture f(stream_config(4, 64));
  const Ids ids = f.add(3);
  f.append({ids[0], ids[1]}, {10, 3});
  const std::vector<StreamWindow> streams = {{4, 16}, {4, 16}, {4, 16}};
  ASSERT_TRUE(f.store.set_streams(ids, streams, true).ok());
  EXPECT_EQ(f.store.stream(f.store.slot_of(ids[0])).sinks, 10);
  EXPECT_EQ(f.store.stream(f.store.slot_of(ids[1])).sinks, 4);
  EXPECT_EQ(f.store.stream(f.store.slot_of(ids[2])).sinks, 4);
  const uint64_t before = f.store.digest();
  ASSERT_TRUE(f.store.set_streams(ids, std::vector<StreamWindow>{{1, 12}, {2, 12}, {0, 5}}, false).ok());
  EXPECT_NE(f.store.digest(), before);
  f.append({ids[0]}, {6});
  const uint64_t longer = f.store.digest();
  const Status refused = set(f, ids[0], {2, 16}, true);
  expect_refused(f, refused, KVC_ERROR_INVALID_ARGUMENT, longer);
  EXPECT_NE(std::string(refused.message()).find("window_tokens 16"), std::string::npos) << refused.message();
  EXPECT_NE(std::string(refused.message()).find("length 16"), std::string::npos) << refused.message();
}

TEST(Streams, SettingsThatNeedFreedKeysAreRefused) {
  Fixture f(stream_config(4, 64));
  const uint64_t id = f.add(1)[0];
  ASSERT_TRUE(set(f, id, {4, 12}).ok());
  for (int i = 0; i < 10; ++i) f.append({id}, {4});
  // Length 40, freed [4, 32).
  const uint64_t before = f.store.digest();
  expect_refused(f, set(f, id, {0, 0}), KVC_ERROR_EVICTED, before);
  expect_refused(f, set(f, id, {4, 14}), KVC_ERROR_EVICTED, before);
  expect_refused(f, set(f, id, {5, 12}), KVC_ERROR_EVICTED, before);
  expect_refused(f, set(f, id, {36, 41}), KVC_ERROR_EVICTED, before);
  expect_refused(f, set(f, id, {6, 6}), KVC_ERROR_INVALID_ARGUMENT, before);
  // A smaller window and fewer sinks never need more pages.
  ASSERT_TRUE(set(f, id, {1, 10}).ok());
  EXPECT_EQ(nearest(f, id, 3), std::pair(int64_t{3}, int64_t{3})) << "nothing but the window's side slid meanwhile";
  ASSERT_TRUE(set(f, id, {0, 4}).ok());
  f.append({id}, {4});
  EXPECT_EQ(f.pages(id)[0], -1);
  EXPECT_EQ(nearest(f, id, 3), std::pair(int64_t{0}, int64_t{43}));
  // A sequence that is cut within its sinks has lost nothing, so streaming may be switched off.
  ASSERT_TRUE(truncate(f, id, 0).ok());
  ASSERT_TRUE(set(f, id, {0, 0}).ok());
  f.append({id}, {40});
  EXPECT_EQ(f.pages(id).size(), 10u);
  EXPECT_EQ(f.store.table(0).pages().used(), 10);
}

TEST(Streams, BusyStaleTwiceAndUncommitted) {
  Fixture f(stream_config(4, 64));
  const Ids ids = f.add(2);
  f.append(ids, {9, 9});
  Fixture::Step step;
  ASSERT_TRUE(f.begin({ids[0]}, {2}, std::vector<int32_t>{-1, 0}, &step).ok());
  const uint64_t open = f.store.digest();
  expect_refused(f, set(f, ids[0], {1, 5}), KVC_ERROR_BUSY, open);
  ASSERT_TRUE(f.commit(step).ok());
  const uint64_t before = f.store.digest();
  expect_refused(f, set(f, ids[0], {1, 5}), KVC_ERROR_UNCOMMITTED, before);
  const std::vector<StreamWindow> two = {{1, 5}, {1, 5}};
  expect_refused(f, f.store.set_streams(Ids{ids[1], ids[1]}, two, false), KVC_ERROR_DUPLICATE, before);
  expect_refused(f, f.store.set_streams(Ids{ids[1], 5}, two, false), KVC_ERROR_STALE_ID, before);
  ASSERT_TRUE(f.store.remove(Ids{ids[1]}).ok());
  EXPECT_EQ(set(f, ids[1], {1, 5}).code(), KVC_ERROR_STALE_ID);
}

TEST(Streams, ASlotIsUsedAgainWithoutAWindow) {
  Fixture f(stream_config(4, 64));
  const uint64_t id = f.add(1)[0];
  ASSERT_TRUE(set(f, id, {1, 5}).ok());
  ASSERT_TRUE(f.store.remove(Ids{id}).ok());
  const uint64_t fresh = f.add(1)[0];
  EXPECT_FALSE(f.store.stream(f.store.slot_of(fresh)).on());
  ASSERT_TRUE(set(f, fresh, {1, 5}).ok());
  ASSERT_TRUE(f.store.clear().ok());
  EXPECT_FALSE(f.store.stream(f.store.slot_of(f.add(1)[0])).on());
}

// After a rejected tree nothing must be computed again. Pages that leave the window after a commit are freed.
TEST(Streams, TreesSlideWhenTheyAreCommitted) {
  Fixture f(stream_config(2, 64));
  const uint64_t id = f.add(1)[0];
  ASSERT_TRUE(set(f, id, {2, 8}).ok());
  f.append({id}, {8});
  const std::vector<int32_t> pages = f.pages(id);
  for (const int32_t leaf : {-1, 5}) {
    Fixture::Step step;
    ASSERT_TRUE(f.begin({id}, {6}, std::vector<int32_t>{-1, 0, 1, 2, 3, 4}, &step).ok());
    ASSERT_TRUE(f.commit(step).ok());
    std::vector<SlotCopy> copies;
    const std::vector<int32_t> leaves = {leaf};
    ASSERT_TRUE(f.store.plan_commit(Ids{id}, leaves, &copies).ok());
    f.store.finish_commit(Ids{id}, leaves);
    ASSERT_TRUE(f.store.check_invariants({}).ok());
    if (leaf < 0) {
      EXPECT_EQ(f.pages(id), pages);
    }
  }
  EXPECT_EQ(f.pages(id)[0], pages[0]);
  EXPECT_EQ(f.pages(id)[1], -1);
  EXPECT_EQ(f.pages(id)[3], -1);
  EXPECT_GE(f.pages(id)[4], 0);
}

TEST(Streams, ASlidingGroupBesideItKeepsItsOwnRules) {
  Fixture f(stream_config(4, 64, 0, 6));
  const uint64_t id = f.add(1)[0];
  ASSERT_TRUE(set(f, id, {9, 20}).ok());
  for (int i = 0; i < 30; ++i) f.append({id}, {2});
  // Length 60: the stream sees 0..8 and from 50 on, the sliding group from 55 on.
  EXPECT_EQ(f.pages(id, 0)[2], 2);
  EXPECT_EQ(f.pages(id, 0)[3], -1);
  EXPECT_EQ(f.pages(id, 1)[0], -1);
  EXPECT_EQ(f.pages(id, 1)[12], -1);
  EXPECT_GE(f.pages(id, 1)[13], 0);
  // Within the sinks the sliding group has freed its keys, so only 0 works, and positions that work in both groups.
  EXPECT_EQ(nearest(f, id, 9), std::pair(int64_t{0}, int64_t{58}));
  ASSERT_TRUE(truncate(f, id, 58).ok());
  EXPECT_EQ(truncate(f, id, 9).code(), KVC_ERROR_EVICTED);
}

TEST(Streams, AbortLeavesTheHoleAsItWas) {
  Fixture f(stream_config(4, 64));
  const uint64_t id = f.add(1)[0];
  ASSERT_TRUE(set(f, id, {4, 12}).ok());
  for (int i = 0; i < 9; ++i) f.append({id}, {3});
  const uint64_t child = f.fork(id, 27);
  const uint64_t before = f.store.digest();
  Fixture::Step step;
  ASSERT_TRUE(f.begin({child, id}, {30, 17}, &step).ok());
  ASSERT_TRUE(f.rollback(step).ok());
  EXPECT_EQ(f.store.digest(), before);
}

}  // namespace
}  // namespace kvc
