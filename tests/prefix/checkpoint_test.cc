// Checkpoints of the prefix index: sessions, priorities and expiry of states, and caches that hold states alone.
#include <random>

#include "scene.h"

namespace kvc {
namespace {

PrefixIndex::Terms in_session(uint64_t session) { return {.session = session}; }
PrefixIndex::Terms with_priority(int32_t priority, int64_t expires = 0) {
  return {.expires = expires, .priority = priority};
}

// Pages of 4 tokens. Both sessions published the first page, and each of them has states that only it published.
TEST(Checkpoints, ASessionIsDroppedWithItsStates) {
  Scene scene({full(), state()}, 100);
  scene.remember(count_to(4), in_session(7));
  scene.remember(count_to(6), in_session(7));
  scene.remember(count_to(10), in_session(8));
  EXPECT_EQ(scene.index.held_pages(1), 3);
  scene.index.drop_session(7, scene.pool);
  EXPECT_TRUE(scene.index.is_valid());
  EXPECT_EQ(scene.index.held_pages(1), 1);
  EXPECT_EQ(scene.match(count_to(4)), 0);
  EXPECT_EQ(scene.match(count_to(6)), 0);
  EXPECT_EQ(scene.match(count_to(10)), 10);
  scene.index.drop_session(8, scene.pool);
  EXPECT_EQ(scene.index.held_pages(1), 0);
  EXPECT_EQ(scene.index.held_pages(0), 2);  // of both sessions
}

TEST(Checkpoints, AStateOfSeveralSessionsStays) {
  Scene scene({full(), state()}, 100);
  scene.remember(count_to(6), in_session(7));
  scene.remember(count_to(6), in_session(8));
  scene.remember(count_to(4), in_session(9));
  scene.remember(count_to(4));
  for (const uint64_t session : {7, 8, 9}) scene.index.drop_session(session, scene.pool);
  EXPECT_EQ(scene.match(count_to(6)), 6);
  EXPECT_EQ(scene.match(count_to(5)), 4);
}

TEST(Checkpoints, LowPriorityAndExpiredStatesAreEvictedFirst) {
  Scene scene({full(), state()}, 100);
  scene.remember(count_to(6, 100), with_priority(60));  // the oldest
  scene.remember(count_to(6, 200), with_priority(80, 10));
  scene.remember(count_to(6, 300), with_priority(40));
  scene.remember(count_to(6, 400), with_priority(20));
  const auto evict = [&] {
    EXPECT_EQ(scene.index.evict(1, 1, scene.pool), 1);
    EXPECT_TRUE(scene.index.is_valid());
  };
  evict();
  EXPECT_EQ(scene.match(count_to(6, 400)), 0);
  scene.index.set_time(10);
  evict();
  EXPECT_EQ(scene.match(count_to(6, 200)), 0);
  const Tokens oldest = count_to(6, 100);
  scene.index.set_terms({oldest, 0, 0}, 30, 0);
  evict();
  EXPECT_EQ(scene.match(oldest), 0);
  EXPECT_EQ(scene.match(count_to(6, 300)), 6);
}

// set_terms is for states up to the last token of the key, and for no later ones.
TEST(Checkpoints, TermsOfAKeyAndOfASession) {
  Scene scene({full(), state()}, 100);
  scene.remember(count_to(6, 100), with_priority(40));  // the oldest
  for (const int32_t n : {3, 4, 6, 9}) scene.remember(count_to(n), {.session = 7, .priority = 50});
  const Tokens key = count_to(6);
  scene.index.set_terms({key, 0, 0}, 10, 0);
  EXPECT_EQ(scene.index.evict(1, 3, scene.pool), 3);
  EXPECT_EQ(scene.match(count_to(8)), 0);
  EXPECT_EQ(scene.match(count_to(9)), 9);
  EXPECT_EQ(scene.match(count_to(6, 100)), 6);
  scene.index.set_session_terms(7, 0, 0);
  EXPECT_EQ(scene.index.evict(1, 1, scene.pool), 1);
  EXPECT_EQ(scene.match(count_to(9)), 0);
  EXPECT_EQ(scene.match(count_to(6, 100)), 6);
}

TEST(Checkpoints, TheTermsOfTwoPublishesAreMerged) {
  Scene scene({full(), state()}, 100);
  scene.remember(count_to(6), with_priority(70));
  scene.remember(count_to(6), with_priority(5));
  scene.remember(count_to(6, 100), with_priority(30));
  EXPECT_EQ(scene.index.evict(1, 1, scene.pool), 1);
  EXPECT_EQ(scene.match(count_to(6)), 6);
}

// A full index drops an idle state of the lowest priority. If there is none, it drops a state that a sequence uses, but
// none that is pinned.
TEST(Checkpoints, AFullIndexKeepsStatesInUse) {
  Scene scene({full(), state()}, 100, true, 2);
  Sequence user = scene.run(count_to(6));
  scene.publish(user);
  scene.remember(count_to(6, 100), with_priority(10));
  scene.remember(count_to(6, 200));
  EXPECT_EQ(scene.match(count_to(6)), 6);
  EXPECT_EQ(scene.match(count_to(6, 100)), 0);
  EXPECT_EQ(scene.match(count_to(6, 200)), 6);
  Sequence second = scene.run(count_to(6, 300));
  scene.publish(second);
  scene.pool.pins = {{1, user.at(1, 0)}};
  scene.remember(count_to(6, 400));
  EXPECT_EQ(scene.match(count_to(6)), 6);
  EXPECT_EQ(scene.match(count_to(6, 300)), 0);
  EXPECT_EQ(scene.match(count_to(6, 400)), 6);
  Sequence third = scene.run(count_to(6, 500));
  scene.publish(third);
  scene.pool.pins.insert({1, third.at(1, 0)});
  scene.remember(count_to(6, 600));
  EXPECT_EQ(scene.match(count_to(6, 500)), 6);
  EXPECT_EQ(scene.match(count_to(6, 600)), 0);  // both states are pinned, so there is no room for a third one
  std::vector<Sequence> live{user, second, third};
  scene.end(live);
}

// For snapshots of events.
TEST(Checkpoints, AreListedWithTheirSessions) {
  Scene scene({full(), state()}, 100);
  scene.index.keep_keys({});
  scene.remember(count_to(8), in_session(7));
  scene.remember(count_to(12), in_session(8));
  std::map<std::pair<int32_t, int64_t>, uint64_t> sessions;  // by group and number of the page
  scene.index.for_each_named([&](const NamedPage& page) { sessions[{page.group, page.index}] = page.session; });
  const std::map<std::pair<int32_t, int64_t>, uint64_t> expected{
      {{0, 0}, 0}, {{0, 1}, 0}, {{0, 2}, 8}, {{1, 1}, 7}, {{1, 2}, 8}};
  EXPECT_EQ(sessions, expected);
}

TEST(Checkpoints, TheDigestCoversTheirTerms) {
  const auto digest = [](const PrefixIndex::Terms& terms) {
    Scene scene({full(), state()}, 100);
    scene.remember(count_to(4), with_priority(90));
    scene.remember(count_to(6), terms);
    scene.index.evict(0, 1, scene.pool);  // the second page: only the state has the terms now
    return scene.index.digest(1);
  };
  EXPECT_EQ(digest(in_session(7)), digest(in_session(7)));
  EXPECT_NE(digest(in_session(7)), digest(in_session(8)));
  EXPECT_NE(digest(with_priority(1)), digest(with_priority(2)));
  EXPECT_NE(digest(with_priority(1, 5)), digest(with_priority(1, 6)));
}

TEST(StatesAlone, ServeTheirPositions) {
  Scene scene({state(), state()}, 100);
  Sequence first = scene.run(count_to(3));
  EXPECT_EQ(scene.publish(first), 3);
  for (const int32_t more : {3, 2, 8, 5}) {  // to 6, 8, 16 and 21 tokens
    first.append(count_to(more, static_cast<int32_t>(first.length()) + 1));
    EXPECT_EQ(scene.publish(first), first.length());
  }
  PrefixIndex::Match match;
  std::vector<Sequence> live{first};
  for (const auto& [query, hit] : std::vector<std::pair<int32_t, int64_t>>{
           {2, 0}, {3, 3}, {4, 3}, {5, 3}, {6, 6}, {7, 6}, {8, 8}, {15, 8}, {16, 16}, {20, 16}, {21, 21}, {40, 21}}) {
    live.push_back(scene.attach(count_to(query), 0, 0, &match));
    EXPECT_EQ(match.tokens, hit) << query;
    EXPECT_EQ(match.known, std::min<int64_t>(query, 21)) << query;
    EXPECT_EQ(match.limited_by, match.tokens < match.known ? 0 : -1) << query;
  }
  EXPECT_TRUE(scene.index.is_valid());
  EXPECT_EQ(scene.index.used_blocks(), 5);
  scene.end(live);
}

TEST(StatesAlone, BlocksGoWithTheirStates) {
  Scene scene({state()}, 100);
  scene.remember(count_to(9), in_session(7));
  scene.remember(count_to(22));
  scene.remember(count_to(13, 100), in_session(8));
  EXPECT_EQ(scene.index.used_blocks(), 5 + 3);
  scene.index.drop_session(8, scene.pool);
  EXPECT_EQ(scene.index.used_blocks(), 5);
  EXPECT_EQ(scene.index.evict(0, 1, scene.pool), 1);
  EXPECT_EQ(scene.match(count_to(22)), 22);
  const Tokens key = count_to(21);
  scene.index.drop({key, 0, 0}, scene.pool);
  EXPECT_EQ(scene.index.used_blocks(), 0);
  EXPECT_EQ(scene.pool.used(), 0);
  EXPECT_TRUE(scene.index.is_valid());
}

// The index has 6 blocks and 2 checkpoints.
TEST(StatesAlone, AFullIndexForgetsTheOldest) {
  Scene scene({state()}, 6, true, 2);
  EXPECT_EQ(scene.remember(count_to(9)), 9);
  EXPECT_EQ(scene.remember(count_to(9, 100)), 9);
  EXPECT_EQ(scene.remember(count_to(8, 200)), 8);  // two states are enough
  EXPECT_EQ(scene.match(count_to(9)), 0);
  EXPECT_EQ(scene.index.used_blocks(), 4);
  EXPECT_EQ(scene.remember(count_to(16, 300)), 16);  // six blocks are not
  EXPECT_EQ(scene.match(count_to(9, 100)), 0);
  EXPECT_EQ(scene.match(count_to(8, 200)), 8);
  Sequence user = scene.run(count_to(9, 400));
  EXPECT_EQ(scene.publish(user), 9);
  EXPECT_EQ(scene.publish(user), 9);
  scene.pool.pins = {{0, user.at(0, 0)}};
  EXPECT_EQ(scene.remember(count_to(24, 500)), 0);  // no room, while the state after two of the six blocks is pinned
  EXPECT_EQ(scene.match(count_to(9, 400)), 9);
  EXPECT_TRUE(scene.index.is_valid());
  // The state that a full index drops is the only one of the block to which the new state belongs.
  Scene small({state()}, 6, true, 1);
  EXPECT_EQ(small.remember(count_to(4)), 4);
  EXPECT_EQ(small.remember(count_to(6)), 6);
  EXPECT_EQ(small.match(count_to(6)), 6);
  EXPECT_EQ(small.match(count_to(5)), 0);
  EXPECT_TRUE(small.index.is_valid());
}

}  // namespace
}  // namespace kvc
