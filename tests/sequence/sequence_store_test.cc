#include <gtest/gtest.h>

#include <vector>

#include "store_fixture.h"

namespace kvc {
namespace {

TEST(SequenceStore, IdsGoStaleAndAreNotReused) {
  Fixture f(config_of(4, 8));
  const Ids first = f.add(1);
  ASSERT_TRUE(f.store.remove(first).ok());
  const Ids second = f.add(1);
  EXPECT_NE(first[0], second[0]);
  EXPECT_EQ(f.store.remove(first).code(), KVC_ERROR_STALE_ID);
  EXPECT_EQ(f.store.num_sequences(), 1);
}

TEST(SequenceStore, SaysWhyAnIdIsStale) {
  Fixture f(config_of(4, 8));
  int32_t slot = -1;
  const auto message = [&](uint64_t id) { return std::string(f.store.resolve(id, 0, &slot).message()); };
  EXPECT_NE(message(0).find("no sequence (0)"), std::string::npos);
  EXPECT_NE(message(IdLayout(IdKind::kForward, 7, 16).make(1, 0)).find("forward's id"), std::string::npos);
  EXPECT_NE(message(IdLayout(IdKind::kSequence, 8, 16).make(1, 0)).find("another cache"), std::string::npos);
  EXPECT_NE(message(IdLayout(IdKind::kSequence, 7, 16).make(1, 0)).find("no longer exists"), std::string::npos);
  EXPECT_NE(message(UINT64_MAX).find("no id of this library"), std::string::npos);
}

TEST(SequenceStore, AForkSharesWholePagesAndCopiesAPartialOne) {
  Fixture f(config_of(4, 16));
  const Ids parent = f.add(1);
  f.append(parent, {10});
  std::vector<SlotCopy> copies;
  const uint64_t child = f.fork(parent[0], 7, &copies);
  EXPECT_EQ(f.pages(parent[0]), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(f.pages(child), (std::vector<int32_t>{0, 3}));
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].source, 1 * 4);
  EXPECT_EQ(copies[0].target, 3 * 4);
  EXPECT_EQ(copies[0].tokens, 3);
  EXPECT_EQ(f.store.table(0).pages().used(), 4);
  f.append({parent[0], child}, {1, 1});  // neither needs a copy now
  EXPECT_EQ(f.pages(child), (std::vector<int32_t>{0, 3}));
}

TEST(SequenceStore, TruncateIntoASharedPageDelaysTheCopy) {
  Fixture f(config_of(4, 4));
  const Ids parent = f.add(1);
  f.append(parent, {8});
  const uint64_t child = f.fork(parent[0], 8);
  ASSERT_TRUE(f.store.truncate(Ids{child}, std::vector<int64_t>{6}).ok());
  EXPECT_EQ(f.store.table(0).pages().used(), 2);
  EXPECT_EQ(f.store.max_append(f.store.slot_of(child), 100), 2 + 4);  // one page for the copy, and one more
  Fixture::Step step;
  ASSERT_TRUE(f.begin({child}, {1}, &step).ok());
  ASSERT_EQ(step.copies.size(), 1u);
  EXPECT_EQ(step.copies[0].source, 1 * 4);
  EXPECT_EQ(step.copies[0].target, 2 * 4);
  EXPECT_EQ(step.copies[0].tokens, 2);
  ASSERT_TRUE(f.rollback(step).ok());
  EXPECT_EQ(f.pages(child), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(f.store.table(0).pages().used(), 2);
  ASSERT_TRUE(f.store.remove(parent).ok());
  Fixture::Step alone;
  ASSERT_TRUE(f.begin({child}, {1}, &alone).ok());
  EXPECT_TRUE(alone.copies.empty());  // the page is no longer shared
}

// A regression: the page list kept all its pages, and did not notice that its last page was shared and no longer full.
TEST(SequenceStore, TruncateWithinTheLastSharedPageNeedsACopyToo) {
  Fixture f(config_of(4, 8));
  const Ids parent = f.add(1);
  f.append(parent, {8});
  f.fork(parent[0], 8);
  ASSERT_TRUE(f.store.truncate(parent, std::vector<int64_t>{6}).ok());
  Fixture::Step step;
  ASSERT_TRUE(f.begin(parent, {1}, &step).ok());
  ASSERT_EQ(step.copies.size(), 1u);
  EXPECT_EQ(step.copies[0].tokens, 2);
}

// Regression: an inert row kept the reservation of an earlier step's row, and the audit counted its page.
// The free slots of a shared last page are of use to a sequence that has a page for the copy.
TEST(SequenceStore, ASharedTailHasRoomIfItCanBeCopied) {
  for (const int64_t pages : {2, 3, 4}) {
    Fixture f(config_of(4, pages));
    const Ids parent = f.add(1);
    f.append(parent, {8});
    const Ids child = {f.fork(parent[0], 8)};
    const std::vector<int64_t> length = {6};
    ASSERT_TRUE(f.store.truncate(child, length).ok());
    const int64_t most = f.store.max_append(f.store.slot_of(child[0]), 100);
    EXPECT_EQ(most, pages == 2 ? 0 : 2 + 4 * (pages - 3)) << pages;
    Fixture::Step step;
    EXPECT_EQ(f.begin(child, {static_cast<int32_t>(most + 1)}, &step).code(), KVC_ERROR_OUT_OF_PAGES);
    if (most > 0) f.append(child, {static_cast<int32_t>(most)});
  }
}

TEST(SequenceStore, AnInertRowReservesNothing) {
  Fixture f(config_of(4, 8));
  const Ids parent = f.add(1);
  f.append(parent, {8});
  const uint64_t child = f.fork(parent[0], 8);
  ASSERT_TRUE(f.store.truncate(Ids{child}, std::vector<int64_t>{6}).ok());
  Fixture::Step step;
  ASSERT_TRUE(f.begin({child}, {1}, &step).ok());
  ASSERT_GE(step.reservations[0].copied_from, 0);
  ASSERT_TRUE(f.commit(step).ok());
  EXPECT_TRUE(f.begin({0}, {3}, &step).ok());
  EXPECT_EQ(step.reservations[0].copied_from, -1);
}

TEST(SequenceStore, AStepThatDoesNotFitChangesNothing) {
  Fixture f(config_of(4, 4));
  const Ids ids = f.add(3);
  f.append({ids[0]}, {5});
  const uint64_t before = f.store.digest();
  Fixture::Step step;
  const Status status = f.begin({ids[0], ids[1], ids[2]}, {3, 4, 8}, &step);
  EXPECT_EQ(status.code(), KVC_ERROR_OUT_OF_PAGES);
  kvc_error error = KVC_ERROR_INIT;
  status.write_to("f", &error);
  EXPECT_EQ(error.index, 2);
  EXPECT_EQ(error.required, 3);
  EXPECT_EQ(error.available, 2);
  EXPECT_EQ(error.group, 0);
  EXPECT_EQ(f.store.digest(), before);
}

TEST(SequenceStore, RollbackRestoresTheDigest) {
  Fixture f(config_of(4, 32, 6, 16, 2));
  const Ids ids = f.add(3);
  f.append(ids, {9, 4, 1});
  const uint64_t child = f.fork(ids[0], 8);
  ASSERT_TRUE(f.store.truncate(Ids{child}, std::vector<int64_t>{7}).ok());
  const uint64_t before = f.store.digest();
  Fixture::Step step;
  ASSERT_TRUE(f.begin({ids[1], child, ids[0], 0}, {5, 9, 1, 3}, &step).ok());
  EXPECT_NE(f.store.digest(), before);
  ASSERT_TRUE(f.rollback(step).ok());
  EXPECT_EQ(f.store.digest(), before);
}

TEST(SequenceStore, AWindowGivesPagesBackAndKeepsTheMargin) {
  Fixture f(config_of(2, 64, 5, 16, 3));
  const Ids ids = f.add(1);
  for (int i = 0; i < 40; ++i) f.append(ids, {1});
  // Length 40: the earliest possible query is at 37 and sees 33..37, so the pages before 32 / 2 are freed.
  const std::vector<int32_t> pages = f.pages(ids[0], 1);
  EXPECT_EQ(std::count(pages.begin(), pages.end(), -1), 16);
  EXPECT_TRUE(f.store.truncate(ids, std::vector<int64_t>{37}).ok());
  const Status evicted = f.store.truncate(ids, std::vector<int64_t>{35});
  EXPECT_EQ(evicted.code(), KVC_ERROR_EVICTED);
  int64_t before = -1;
  int64_t after = -1;
  f.store.nearest_position(f.store.slot_of(ids[0]), 35, &before, &after);
  EXPECT_EQ(before, 0);
  EXPECT_EQ(after, 36);
  EXPECT_TRUE(f.store.truncate(ids, std::vector<int64_t>{36}).ok());
  EXPECT_TRUE(f.store.truncate(ids, std::vector<int64_t>{0}).ok());
  EXPECT_EQ(f.store.table(1).pages().used(), 0);
  f.append(ids, {3});
}

TEST(SequenceStore, ARemovedSequenceLivesUntilItsStepCloses) {
  Fixture f(config_of(4, 8));
  const Ids ids = f.add(2);
  f.append(ids, {4, 4});
  Fixture::Step step;
  ASSERT_TRUE(f.begin({ids[0]}, {1}, &step).ok());
  ASSERT_TRUE(f.store.remove(Ids{ids[0]}).ok());
  int32_t slot = -1;
  EXPECT_EQ(f.store.resolve(ids[0], 0, &slot).code(), KVC_ERROR_STALE_ID);
  EXPECT_EQ(f.store.table(0).pages().used(), 3);
  ASSERT_TRUE(f.commit(step).ok());
  EXPECT_EQ(f.store.table(0).pages().used(), 1);
  EXPECT_EQ(f.store.num_sequences(), 1);
}

TEST(SequenceStore, ASnapshotKeepsPagesThatTheirSequenceLost) {
  Fixture f(config_of(4, 8));
  const Ids ids = f.add(1);
  f.append(ids, {8});
  const int32_t snapshot = f.store.take_snapshot(f.store.slot_of(ids[0]), 0);
  ASSERT_GE(snapshot, 0);
  ASSERT_TRUE(f.store.remove(ids).ok());
  EXPECT_EQ(f.store.table(0).pages().used(), 2);
  EXPECT_EQ(f.store.table(0).at(f.store.snapshot(snapshot), 1), 1);
  ASSERT_TRUE(f.store.check_invariants({}).ok());
  f.store.drop_snapshot(snapshot);
  EXPECT_EQ(f.store.table(0).pages().used(), 0);
}

TEST(SequenceStore, CountsSharedTokensOnce) {
  Fixture f(config_of(4, 64));
  const Ids ids = f.add(1);
  f.append(ids, {40});
  const uint64_t child = f.fork(ids[0], 22);                                // shares 5 pages, copies 2 tokens
  const uint64_t twin = f.fork(ids[0], 40);                                 // shares everything
  ASSERT_TRUE(f.store.truncate(Ids{twin}, std::vector<int64_t>{27}).ok());  // its last page is shared in 3 tokens
  const SequenceStore::Counts counts = f.store.count(0);
  EXPECT_EQ(counts.pages_used, 11);
  EXPECT_EQ(counts.tokens_held, 42);
  EXPECT_EQ(counts.tokens_shared, 27);
  EXPECT_EQ(counts.pages_shared, 7);
  EXPECT_EQ(counts.tokens_logical, 40 + 22 + 27);
  ASSERT_TRUE(f.store.remove(Ids{ids[0]}).ok());
  EXPECT_EQ(f.store.count(0).tokens_shared, 20);
  ASSERT_TRUE(f.store.remove(Ids{child}).ok());
  EXPECT_EQ(f.store.count(0).tokens_shared, 0);
}

TEST(SequenceStore, BookkeepingStaysWithinItsBudget) {
  for (const int64_t pages : {1000, 100000, 1000000}) {
    for (const int64_t sequences : {64, 1024}) {
      SequenceStoreConfig config = config_of(16, pages);
      config.max_sequences = sequences;
      config.max_snapshots = 8;
      config.max_tree_nodes = 64;
      EXPECT_LE(SequenceStore::bytes_needed(config), 16 * pages + 1024 * sequences + 16384)
          << pages << " " << sequences;
      EXPECT_EQ(SequenceStore(config).bytes(), SequenceStore::bytes_needed(config));
    }
  }
}

}  // namespace
}  // namespace kvc
