// PrefixIndex, compared with naive sequences.
#include <random>
#include <tuple>

#include "scene.h"

namespace kvc {
namespace {

TEST(PrefixIndex, ServesAnyLengthOfAFullGroup) {
  Scene scene({full()}, 100);
  Sequence first = scene.run(count_to(10));
  EXPECT_EQ(scene.publish(first), 10);
  for (int32_t n = 0; n <= 10; ++n) EXPECT_EQ(scene.match(count_to(n)), n);
  EXPECT_EQ(scene.match(count_to(12)), 10);
  EXPECT_EQ(scene.index.match({count_to(10), 0, 0}, 9).tokens, 9);
  first.remove();
  EXPECT_EQ(scene.match(count_to(10)), 10);
  EXPECT_EQ(scene.pool.used(), 3);
}

TEST(PrefixIndex, PagesOfEqualTokensAreReplaced) {
  Scene scene({full()}, 100);
  Sequence first = scene.run(count_to(10)), second = scene.run(count_to(11));
  EXPECT_EQ(scene.pool.used(), 6);
  scene.publish(first);
  scene.publish(second);
  EXPECT_EQ(scene.pool.used(), 4);  // two pages are shared; each has a last page of its own
  EXPECT_EQ(first.at(0, 1), second.at(0, 1));
  EXPECT_EQ(scene.match(count_to(11)), 11);
}

TEST(PrefixIndex, AWindowServesOnlyWhereItsPagesAre) {
  Scene scene({full(), sliding(8)}, 100);
  Sequence first = scene.run(count_to(40));
  scene.publish(first);
  // The pages of the window at 40 hold tokens 33.. (32 in the same page): they serve 40, and nothing before 39.
  EXPECT_EQ(scene.match(count_to(40)), 40);
  PrefixIndex::Match match = scene.index.match({count_to(30), 0, 0}, 30);
  EXPECT_EQ(match.known, 30);
  EXPECT_EQ(match.tokens, 0);
  EXPECT_EQ(match.limited_by, 1);
  // A sequence that was also published at 20 serves 20 too.
  Sequence second = scene.run(count_to(20));
  scene.publish(second);
  second.append(count_to(20, 21));
  scene.publish(second);
  match = scene.index.match({count_to(30), 0, 0}, 30);
  EXPECT_EQ(match.tokens, 20);
}

// The blocks of the tokens after the first page are evicted, so only the checkpoint has these tokens.
TEST(PrefixIndex, TheDigestCoversTheTailsOfCheckpoints) {
  const auto digest = [](const Tokens& tokens, uint64_t salt) {
    Scene scene({full(), state()}, 100);
    Sequence sequence = scene.make(salt, kPage);  // the salt begins after the first page
    sequence.append(tokens);
    scene.publish(sequence);
    sequence.remove();
    EXPECT_EQ(scene.index.evict(0, 1, scene.pool), 1);
    EXPECT_EQ(scene.pool.used(), 2) << "the first page and the state";
    return scene.index.digest(1);
  };
  const uint64_t one = digest({1, 2, 3, 4, 5, 6}, 8);
  EXPECT_EQ(digest({1, 2, 3, 4, 5, 6}, 8), one);
  EXPECT_NE(digest({1, 2, 3, 4, 5, 7}, 8), one);
  EXPECT_NE(digest({1, 2, 3, 4, 6, 6}, 8), one);
  EXPECT_NE(digest({1, 2, 3, 4, 5, 6}, 9), one);
}

TEST(PrefixIndex, AStateWithinAPageNeedsTheAdapterAndTheMediaOfItsTail) {
  Scene scene({full(), state()}, 100);
  const auto match = [&](const Setting& setting) {
    const ContextRef context = setting.context();
    return scene.index.match({count_to(9), 0, 0, context.get()}, 9).tokens;
  };
  const Setting image{{'a'}, {{.begin = 1, .tokens = 9, .hash = {5}}}};
  for (const int32_t length : {3, 6}) {  // the first has no whole page
    Sequence sequence = scene.make();
    sequence.set(image);
    sequence.append(count_to(length));
    scene.publish(sequence);
    sequence.remove();
    EXPECT_EQ(match(image), length);
    EXPECT_EQ(match({{'b'}, image.media}), 0);
    EXPECT_EQ(match({{'a'}, {{.begin = 1, .tokens = 9, .hash = {6}}}}), 0);
    EXPECT_EQ(match({{'a'}, {{.begin = 1, .tokens = 8, .hash = {5}}}}), 0);
    EXPECT_EQ(match({}), 0);
  }
  scene.index.evict(0, 100, scene.pool);  // the state of three tokens has no block
  EXPECT_TRUE(scene.index.is_valid());
}

TEST(PrefixIndex, TheDigestCoversAdaptersAndMedia) {
  const auto digest = [](const Setting& setting) {
    Scene scene({full(), state()}, 100);
    Sequence sequence = scene.make();
    sequence.set(setting);
    sequence.append(count_to(6));
    scene.publish(sequence);
    return scene.index.digest(1);
  };
  const Setting image{{'a'}, {{.begin = 1, .tokens = 3, .hash = {5}}}};
  const uint64_t one = digest(image);
  EXPECT_EQ(digest(image), one);
  EXPECT_NE(digest({{'b'}, image.media}), one);
  EXPECT_NE(digest({{'a'}, {{.begin = 2, .tokens = 3, .hash = {5}}}}), one);
  EXPECT_NE(digest({{'a'}, {{.begin = 1, .tokens = 2, .hash = {5}}}}), one);
  EXPECT_NE(digest({{'a'}, {{.begin = 1, .tokens = 3, .hash = {6}}}}), one);
  EXPECT_NE(digest({}), one);
}

TEST(PrefixIndex, WithoutTokensADropTakesTheAdapterOfTheKey) {
  Scene scene({full()}, 100);
  std::vector<Sequence> live;
  for (const Setting& setting : {Setting{}, Setting{{'a'}, {}}, Setting{{'a', 'b'}, {}}}) {
    live.push_back(scene.make());
    live.back().set(setting);
    live.back().append(count_to(8));
    scene.publish(live.back());
  }
  scene.index.drop({{}, 0, 0, live[1].context.get()}, scene.pool);
  EXPECT_EQ(scene.index.match(live[0].key(), 8).tokens, 8);
  EXPECT_EQ(scene.index.match(live[1].key(), 8).tokens, 0);
  EXPECT_EQ(scene.index.match(live[2].key(), 8).tokens, 8);
  scene.end(live);
}

// The checkpoints lie before the first whole block. A drop leaves those of other adapters and media.
TEST(PrefixIndex, ADropLeavesCheckpointsOfOtherAdaptersAndMedia) {
  Scene scene({full(), state()}, 100);
  std::vector<Sequence> live;
  const MediaSpan image = {.begin = 1, .tokens = 1, .hash = {5}}, other = {.begin = 1, .tokens = 1, .hash = {6}};
  for (const Setting& setting : {Setting{}, Setting{{'a'}, {}}, Setting{{'a'}, {image}}, Setting{{'a'}, {other}}}) {
    live.push_back(scene.make());
    live.back().set(setting);
    live.back().append(count_to(3));
    scene.publish(live.back());
  }
  EXPECT_EQ(scene.index.held_pages(1), 4);
  scene.index.drop(live[2].key(), scene.pool);
  EXPECT_EQ(scene.index.held_pages(1), 3);
  EXPECT_EQ(scene.index.match(live[2].key(), 3).tokens, 0);
  EXPECT_EQ(scene.index.match(live[3].key(), 3).tokens, 3);
  scene.index.drop({{}, 0, 0, live[1].context.get()}, scene.pool);  // of the adapter, with any media
  EXPECT_EQ(scene.index.held_pages(1), 1);
  EXPECT_EQ(scene.index.match(live[0].key(), 3).tokens, 3);
  scene.end(live);
}

TEST(PrefixIndex, AStateServesItsOwnPosition) {
  Scene scene({full(), state()}, 100);
  Sequence first = scene.run(count_to(6));
  scene.publish(first);
  first.append(count_to(8, 7));
  scene.publish(first);
  EXPECT_EQ(scene.match(count_to(20)), 14);
  EXPECT_EQ(scene.match(count_to(13)), 6);
  EXPECT_EQ(scene.match(count_to(5)), 0);
  EXPECT_EQ(scene.index.match({count_to(13), 0, 0}, 13).limited_by, 1);
}

TEST(PrefixIndex, EvictsLeavesFirstAndLeastRecentlyUsed) {
  Scene scene({full()}, 100);
  Sequence base = scene.run(count_to(8));
  scene.publish(base);
  for (const int32_t branch : {100, 200, 300}) {
    PrefixIndex::Match match;
    Sequence sequence = scene.attach(count_to(8), 0, 0, &match);
    sequence.append(count_to(4, branch));
    scene.publish(sequence);
    sequence.remove();
  }
  const auto with = [&](int32_t branch) {
    Tokens tokens = count_to(8);
    const Tokens more = count_to(4, branch);
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  };
  EXPECT_EQ(scene.match(with(100)), 12);
  scene.index.use();  // 200 is the oldest now
  EXPECT_EQ(scene.index.evict(0, 1, scene.pool), 1);
  EXPECT_EQ(scene.match(with(200)), 8);
  EXPECT_EQ(scene.match(with(100)), 12);
  EXPECT_EQ(scene.index.evict(0, 100, scene.pool), 2);  // `base` still uses its pages
  EXPECT_EQ(scene.match(with(100)), 8);
  base.remove();
  EXPECT_EQ(scene.index.evict(0, 100, scene.pool), 2);
  EXPECT_EQ(scene.pool.used(), 0);
  EXPECT_EQ(scene.index.used_blocks(), 0);
}

TEST(PrefixIndex, AScanDoesNotDriveOutWhatIsUsedAgain) {
  const auto found_after_scan = [](bool rewards_reuse) {
    Scene scene({full()}, 100, rewards_reuse);
    const auto request = [&](const Tokens& tokens) {
      while (scene.index.held_pages(0) > 20 - static_cast<int64_t>(tokens.size()) / kPage) {
        scene.index.evict(0, 1, scene.pool);
      }
      PrefixIndex::Match match;
      Sequence sequence = scene.attach(tokens, 0, 0, &match);
      sequence.append(Tokens(tokens.begin() + match.tokens, tokens.end()));
      scene.publish(sequence);
      sequence.remove();
      return match.tokens;
    };
    for (int32_t i = 1; i < 30; ++i) request(count_to(8, 1000 * i));  // prefixes reach their age of eviction
    for (int use = 0; use < 4; ++use) request(count_to(16));
    for (int32_t i = 50; i < 62; ++i) request(count_to(8, 1000 * i));
    return request(count_to(16));
  };
  EXPECT_EQ(found_after_scan(true), 16);
  EXPECT_EQ(found_after_scan(false), 0);
}

TEST(PrefixIndex, WhatGoesOnAfterAMatchIsNotUsed) {
  Scene scene({full()}, 100);
  Sequence base = scene.run(count_to(16)), other = scene.run(count_to(8, 500));
  scene.publish(base);
  scene.publish(other);
  base.remove();
  other.remove();
  EXPECT_EQ(scene.match(count_to(8)), 8);  // half of base
  scene.index.use();
  EXPECT_EQ(scene.index.evict(0, 2, scene.pool), 2);
  EXPECT_EQ(scene.match(count_to(16)), 8);  // the other half was the oldest
  EXPECT_EQ(scene.match(count_to(8, 500)), 8);
}

TEST(PrefixIndex, AFullIndexForgetsTheOldestOrTakesLess) {
  Scene scene({full()}, 4);
  Sequence first = scene.run(count_to(8)), second = scene.run(count_to(12, 50));
  EXPECT_EQ(scene.publish(first), 8);
  EXPECT_EQ(scene.publish(second), 8);  // two blocks are left, and `first` uses its pages
  first.remove();
  EXPECT_EQ(scene.publish(second), 12);
  EXPECT_EQ(scene.match(count_to(8)), 4);
  EXPECT_TRUE(scene.index.is_valid());
}

TEST(PrefixIndex, ALastPageThatIsNotFullStaysItsOwners) {
  Scene scene({full()}, 100);
  Sequence first = scene.run(count_to(6)), second = scene.run(count_to(6));
  scene.publish(first);
  scene.publish(second);
  EXPECT_EQ(first.at(0, 0), second.at(0, 0));
  EXPECT_NE(first.at(0, 1), second.at(0, 1));  // both sequences continue to write there
}

TEST(PrefixIndex, ARunThatGrowsIsNotEvicted) {
  Scene scene({sliding(4)}, 4);
  Sequence first = scene.run(count_to(8));
  scene.publish(first);
  first.remove();
  Sequence second = scene.run(count_to(40));  // only `first` had pages of its first tokens
  EXPECT_EQ(scene.publish(second), 8);
  EXPECT_TRUE(scene.index.is_valid());
  EXPECT_EQ(scene.match(count_to(8)), 8);
}

TEST(PrefixIndex, ARunWithoutPagesStaysWhileOneGrowsBelowIt) {
  Scene scene({sliding(4)}, 2);
  Sequence first = scene.run(count_to(8));  // the first page left the window
  scene.publish(first);
  first.remove();
  Tokens tokens = count_to(4);
  for (const int32_t token : count_to(4, 50)) tokens.push_back(token);
  Sequence second = scene.run(tokens);
  EXPECT_EQ(scene.publish(second), 8);  // the other branch is evicted to make room
  EXPECT_TRUE(scene.index.is_valid());
  EXPECT_EQ(scene.match(tokens), 8);
}

TEST(PrefixIndex, ABlockTakesItsCheckpointsAlong) {
  Scene scene({full(), state()}, 2);
  Sequence first = scene.run(count_to(8));
  scene.publish(first);
  first.remove();
  EXPECT_EQ(scene.index.evict(0, 2, scene.pool), 2);
  EXPECT_EQ(scene.index.held_pages(1), 0);
  EXPECT_EQ(scene.pool.used(), 0);
  Sequence second = scene.run(count_to(8, 50));  // the same block ids, other tokens
  scene.publish(second);
  PrefixIndex::Match match;
  scene.attach(count_to(8, 50), 0, 0, &match);
  EXPECT_EQ(match.tokens, 8);
}

// Checkpoints that are not at the end of a whole block: of 3 tokens, and of 6 and 7 tokens that begin alike.
TEST(PrefixIndex, ADropTakesCheckpointsWithinABlock) {
  Scene scene({full(), state()}, 100);
  for (const Tokens& tokens : std::vector<Tokens>{{1, 2, 3}, count_to(6), count_to(7), {1, 2, 3, 4, 5, 9}}) {
    for (const uint64_t salt : {0, 8}) {
      Sequence sequence = scene.run(tokens, salt);
      scene.publish(sequence);
      sequence.remove();
    }
  }
  const auto drop = [&](const Tokens& tokens, uint64_t salt) {
    scene.index.drop({tokens, salt, 0}, scene.pool);
    EXPECT_TRUE(scene.index.is_valid());
    return scene.index.held_pages(1);
  };
  EXPECT_EQ(scene.index.held_pages(1), 8);
  EXPECT_EQ(drop({1, 2, 3, 9}, 0), 8);
  EXPECT_EQ(drop({1, 2, 3, 4, 5, 8}, 0), 8);
  EXPECT_EQ(drop(count_to(6), 9), 8);
  EXPECT_EQ(drop(count_to(6), 0), 6);
  EXPECT_EQ(scene.match({1, 2, 3, 4, 5, 9}), 6);
  EXPECT_EQ(drop({1, 2}, 0), 4);
  EXPECT_EQ(drop({}, 8), 0);
  EXPECT_EQ(scene.pool.used(), 0);
}

using Published = std::vector<std::tuple<Tokens, uint64_t, int64_t, Setting>>;  // tokens, salt, where it begins

// The definition: over everything published, the longest run of equal tokens under equal salts, adapters and media from
// the beginning.
int64_t longest_known(const Published& published, const Tokens& query, uint64_t salt, int64_t salt_begin,
                      const Setting& setting) {
  const auto in_force = [](int64_t position, uint64_t s, int64_t begin) {
    return (position / kPage + 1) * kPage > begin ? s : 0;
  };
  int64_t longest = 0;
  for (const auto& [tokens, other_salt, other_begin, other] : published) {
    if (setting.adapter != other.adapter) continue;
    int64_t same = 0;
    while (same < static_cast<int64_t>(std::min(tokens.size(), query.size())) &&
           in_force(same, salt, salt_begin) == in_force(same, other_salt, other_begin) &&
           tokens[static_cast<size_t>(same)] == query[static_cast<size_t>(same)] &&
           setting.at(same) == other.at(same)) {
      ++same;
    }
    longest = std::max(longest, same);
  }
  return longest;
}

// The same for states alone: the longest published length at which all tokens are equal.
int64_t longest_state(const Published& published, const Tokens& query, uint64_t salt, int64_t salt_begin,
                      const Setting& setting) {
  int64_t longest = 0;
  for (const auto& one : published) {
    const auto length = static_cast<int64_t>(std::get<0>(one).size());
    if (longest_known({one}, query, salt, salt_begin, setting) == length) longest = std::max(longest, length);
  }
  return longest;
}

// Checks what an index that never evicts finds.
void check_longest(const PrefixIndex::Match& match, const Published& published, const Tokens& query, uint64_t salt,
                   int64_t salt_begin, const Setting& setting, const std::vector<GroupRules>& groups) {
  const int64_t longest = longest_known(published, query, salt, salt_begin, setting);
  if (groups[0].holds_state()) {  // states alone
    ASSERT_EQ(match.tokens, longest_state(published, query, salt, salt_begin, setting));
    ASSERT_LE(match.known, longest);
    return;
  }
  ASSERT_EQ(match.known, longest);
  if (groups.size() == 1) {  // a full group
    ASSERT_EQ(match.tokens, longest);
  }
}

class PrefixWalk : public testing::TestWithParam<int> {};

// After any publishes, attaches, evictions and removals: an attached sequence has pages of its own tokens, salt,
// adapter and media, the references are right, and without evictions the longest known prefix is found.
TEST_P(PrefixWalk, HoldsWhatItSays) {
  const int seed = GetParam();
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  const std::vector<std::vector<GroupRules>> mixtures{
      {full()},          {full(), sliding(6)}, {sliding(5), chunked(12)},
      {full(), state()}, {state(), state()},   {full(), sliding(9), chunked(8), state()}};
  const auto& mixture = mixtures[static_cast<size_t>(seed) % mixtures.size()];
  const bool evicts = seed / static_cast<int>(mixtures.size()) % 2 == 0;
  Scene scene(mixture, evicts ? 60 : 100000, seed % 3 != 0, evicts ? 30 : 10000);
  std::vector<Sequence> live;
  Published published;
  int64_t hits = 0;
  for (int step = 0; step < 600; ++step) {
    const int64_t what = below(10);
    if (what < 4 || live.empty()) {
      Tokens query;
      const uint64_t salt = static_cast<uint64_t>(below(3));
      const int64_t salt_begin = below(2) == 0 ? 0 : below(12);
      Setting setting = Setting::draw(random);
      if (!published.empty() && below(4) > 0) {
        const auto& old = published[static_cast<size_t>(below(static_cast<uint32_t>(published.size())))];
        query = std::get<0>(old);
        if (below(3) > 0) setting = std::get<3>(old);
        if (below(3) == 0) setting.media.resize(setting.media.size() / 2);
        query.resize(static_cast<size_t>(below(static_cast<uint32_t>(query.size() + 1))));
      }
      for (int64_t more = below(6); more-- > 0;) query.push_back(static_cast<int32_t>(below(2)));
      PrefixIndex::Match match;
      live.push_back(scene.attach(query, salt, salt_begin, &match, setting));
      hits += match.tokens > 0;
      ASSERT_LE(match.tokens, match.known);
      ASSERT_EQ(match.limited_by >= 0, match.tokens < match.known);
      if (!evicts) check_longest(match, published, query, salt, salt_begin, setting, mixture);
    } else {
      const auto who = static_cast<size_t>(below(static_cast<uint32_t>(live.size())));
      Sequence& sequence = live[who];
      if (what < 6) {
        Tokens more(static_cast<size_t>(1 + below(7)));
        for (int32_t& token : more) token = static_cast<int32_t>(below(2));
        sequence.append(more);
      } else if (what < 8) {
        PrefixIndex::Terms terms;
        if (below(2) == 0) terms.session = static_cast<uint64_t>(1 + below(3));
        if (below(2) == 0) terms.priority = static_cast<int32_t>(below(101));
        const int64_t known = scene.publish(sequence, terms);
        ASSERT_TRUE(evicts || known == sequence.length());
        published.emplace_back(sequence.prefix(known), sequence.salt, sequence.salt_begin, sequence.setting);
      } else if (what < 9) {
        sequence.remove();
        live.erase(live.begin() + static_cast<int64_t>(who));
      } else if (evicts && below(4) == 0) {
        scene.index.drop_session(static_cast<uint64_t>(1 + below(3)), scene.pool);
      } else if (evicts) {
        const auto group = static_cast<int32_t>(below(static_cast<uint32_t>(mixture.size())));
        const int64_t before = scene.index.held_pages(group), wanted = 1 + below(5);
        const int64_t given = scene.index.evict(group, wanted, scene.pool);
        ASSERT_EQ(before - scene.index.held_pages(group), given);
      }
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed << " step " << step;
    ASSERT_TRUE(scene.index.is_valid()) << "seed " << seed << " step " << step;
  }
  EXPECT_GT(hits, 2);
  scene.end(live);
}
INSTANTIATE_TEST_SUITE_P(Seeds, PrefixWalk, testing::Range(1, 61));

}  // namespace
}  // namespace kvc
