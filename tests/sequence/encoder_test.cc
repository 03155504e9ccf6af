// Encoder groups of the store: their lists have lengths and steps of their own, and forks share them whole.
#include <gtest/gtest.h>

#include "store_fixture.h"

namespace kvc {
namespace {

// Group 0 holds the sequences' tokens, group 1 encoder tokens.
SequenceStoreConfig encoder_config() {
  SequenceStoreConfig config = config_of(4, 20);
  config.groups.push_back({{{}, 0, 4}, 20});
  config.groups[1].rules.encoder = true;
  return config;
}

std::vector<SlotCopy> encode(Fixture* f, uint64_t id, int32_t tokens) {
  Fixture::Step step;
  step.kind.encoder_group = 1;
  EXPECT_TRUE(f->begin({id}, {tokens}, &step).ok());
  EXPECT_TRUE(f->commit(step).ok());
  return step.copies;
}

// Two sequences hold the same last page. The first one that writes to it gets a copy.
TEST(EncoderLists, ASharedLastPageIsWrittenByNeither) {
  for (const bool parent_first : {true, false}) {
    Fixture f(encoder_config());
    const uint64_t parent = f.add(1)[0];
    EXPECT_TRUE(encode(&f, parent, 6).empty());
    const uint64_t child = f.fork(parent, 0);
    const uint64_t first = parent_first ? parent : child, second = parent_first ? child : parent;
    const std::vector<int32_t> shared = f.pages(second, 1);
    const std::vector<SlotCopy> copies = encode(&f, first, 1);
    ASSERT_EQ(copies.size(), 1u);
    EXPECT_EQ(copies[0].tokens, 2);
    EXPECT_EQ(f.pages(second, 1), shared);
    EXPECT_EQ(f.pages(first, 1)[0], shared[0]);
    EXPECT_NE(f.pages(first, 1)[1], shared[1]);
    EXPECT_TRUE(encode(&f, second, 1).empty()) << "alone by then";
    EXPECT_EQ(f.store.stored_in(f.store.slot_of(parent), 1), 7);
    EXPECT_EQ(f.store.stored(f.store.slot_of(parent)), 0);
  }
}

TEST(EncoderLists, AreAsLongAsASequenceMayBe) {
  SequenceStoreConfig config = encoder_config();
  config.max_length = 9;
  Fixture f(config);
  const uint64_t id = f.add(1)[0];
  encode(&f, id, 6);
  Fixture::Step step;
  step.kind.encoder_group = 1;
  EXPECT_EQ(f.begin({id}, {4}, &step).code(), KVC_ERROR_OUT_OF_RANGE);
  encode(&f, id, 3);
  EXPECT_EQ(f.store.stored_in(f.store.slot_of(id), 1), 9);
}

// The next step takes a fresh page for the state and reads the old one. The encoder's step changed nothing.
TEST(EncoderLists, AnAbortedStepLeavesTheStateAlone) {
  SequenceStoreConfig config = encoder_config();
  config.groups.push_back({{{}, 0, int64_t{1} << 31}, 4});
  config.groups[2].rules.row = RowKind::kState;
  Fixture f(config);
  const uint64_t id = f.add(1)[0];
  Fixture::Step tokens, encoder, next;
  ASSERT_TRUE(f.begin({id}, {3}, &tokens).ok());
  ASSERT_TRUE(f.commit(tokens).ok());
  const int32_t state = f.pages(id, 2)[0];
  encoder.kind.encoder_group = 1;
  ASSERT_TRUE(f.begin({id}, {5}, &encoder).ok());
  EXPECT_TRUE(f.rollback(encoder).ok());
  ASSERT_TRUE(f.begin({id}, {1}, &next).ok());
  EXPECT_EQ(next.reservations[2].copied_from, state);
  EXPECT_TRUE(f.rollback(next).ok());
  EXPECT_EQ(f.pages(id, 2)[0], state);
}

}  // namespace
}  // namespace kvc
