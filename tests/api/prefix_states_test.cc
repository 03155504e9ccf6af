// Recurrent states in the prefix index: pins, sessions, priorities, and caches without any other group.
#include "tiers_fixture.h"

namespace kvt {
namespace {

// A full group and recurrent states, or states alone. The index has room for 16 states.
TieredSpec with_states(bool alone) {
  TieredSpec spec;
  if (alone) spec.groups.clear();
  spec.groups.push_back({KVC_ROW_STATE});
  spec.pages = 200;
  return spec;
}

int64_t found(const TieredEngine &engine, const Tokens &tokens) {
  kvc_prefix_query query = Prefix::query(tokens);
  query.flags = KVC_PREFIX_ALLOW_ALL;
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  EXPECT_EQ(kvc_prefix_match(engine.cache(), &query, &hit, nullptr), KVC_OK);
  return hit.tokens;
}

// Computes, publishes and removes a sequence.
void remember(TieredEngine &engine, const Tokens &tokens, uint64_t session = 0, int32_t priority = 0) {
  const kvc_seq seq = engine.add_sequence();
  engine.compute(seq, tokens, 0, static_cast<int64_t>(tokens.size()));
  const kvc_prefix_query query = Prefix::query(tokens);
  kvc_prefix_options options;
  kvc_prefix_options_init(&options);
  options.session = session;
  options.priority = priority;
  EXPECT_EQ(kvc_prefix_publish(engine.cache(), seq, &query, &options, nullptr, nullptr), KVC_OK);
  engine.remove(seq);
}

TEST(PrefixStates, PinnedAndImportantStatesStay) {
  for (const bool alone : {false, true}) {
    TieredEngine engine{with_states(alone)};
    const Tokens pinned = count_to(9), important = count_to(9, 50);
    remember(engine, pinned);
    remember(engine, important, 0, 100);
    const kvc_prefix_query query = Prefix::query(pinned);
    uint64_t pin = 0;
    ASSERT_EQ(kvc_prefix_pin(engine.cache(), &query, nullptr, &pin, nullptr), KVC_OK);
    for (int32_t i = 0; i < 40; i++) {
      remember(engine, count_to(9, 100 * (i + 1)));
      EXPECT_EQ(found(engine, count_to(9, 100 * (i + 1))), 9);
    }
    EXPECT_EQ(found(engine, pinned), 9);
    EXPECT_EQ(found(engine, important), 9);
    ASSERT_EQ(kvc_prefix_unpin(engine.cache(), pin, nullptr), KVC_OK);
    ASSERT_EQ(kvc_prefix_set_priority(engine.cache(), &query, 0, 0, nullptr), KVC_OK);
    for (int32_t i = 0; i < 20; i++) remember(engine, count_to(9, 10000 + 100 * i));
    EXPECT_EQ(found(engine, pinned), 0);
    EXPECT_EQ(found(engine, important), 9);
  }
}

TEST(PrefixStates, ASessionIsDroppedWithItsStates) {
  for (const bool alone : {false, true}) {
    TieredEngine engine{with_states(alone)};
    const int32_t states = alone ? 0 : 1;  // the group of the states
    remember(engine, count_to(8), 7);
    remember(engine, count_to(10), 7);
    remember(engine, count_to(22), 8);
    int64_t pages = 0;
    const int64_t before = engine.available_pages(states);
    ASSERT_EQ(kvc_prefix_drop_session(engine.cache(), 7, &pages, nullptr), KVC_OK);
    EXPECT_EQ(pages, 2);  // the first 8 tokens belong to session 8 too, but not the two states
    EXPECT_EQ(engine.available_pages(states), before);
    EXPECT_EQ(found(engine, count_to(10)), 0);
    EXPECT_EQ(found(engine, count_to(22)), 22);
  }
}

TEST(PrefixStates, AloneTheyAreFoundInPoolsAndTiers) {
  MemoryTier tier;
  TieredSpec spec = with_states(true);
  spec.groups.push_back({KVC_ROW_STATE});
  const Tokens prompt = count_to(21);
  Tokens other = prompt;
  other[18] = 999;
  {
    TieredEngine engine{spec};
    ASSERT_EQ(engine.add(tier), KVC_OK);
    EXPECT_EQ(engine.serve(prompt, 0, 0, {6, 16}).tokens, 0);
    EXPECT_EQ(engine.serve(prompt).tokens, 16);
    EXPECT_EQ(engine.serve(other).tokens, 16);
    EXPECT_EQ(engine.serve(count_to(9)).tokens, 6);
    EXPECT_EQ(engine.serve(prompt, 5).tokens, 0);
    engine.wait_stored();
    EXPECT_EQ(tier.num_objects(), 2);  // the states after 16 tokens: the other lengths are within pages
    engine.forget_all();
    EXPECT_EQ(engine.serve(count_to(9)).tokens, 0);
  }
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  EXPECT_EQ(engine.load(other), 16);
  EXPECT_EQ(engine.serve(other).tokens, 16);
}

}  // namespace
}  // namespace kvt
