// What listeners of a prefix index are told, compared with the contents of the pages.
#include <random>
#include <set>

#include "keys/page_key.h"
#include "scene.h"

namespace kvc {
namespace {

const PageKey kModel = {1, 2, 3};

// The key of the last whole page of a sequence, by definition.
PageKey key_of(const Tokens& tokens, uint64_t salt, int64_t salt_begin, const Setting& setting = {}) {
  std::vector<PageKey> keys(tokens.size() / kPage);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&salt);
  page_keys({.fingerprint = kModel,
             .adapter = setting.adapter,
             .salt = {bytes, salt == 0 ? 0 : sizeof(salt)},
             .salt_begin = salt_begin,
             .parent = nullptr,
             .begin = 0,
             .page_size = kPage,
             .tokens = tokens,
             .media = setting.media},
            keys[0].data());
  return keys.back();
}

// A listener that records its pages, and checks each with the pool and the index.
class Follower : public PrefixListener {
 public:
  using Name = std::pair<PageKey, int32_t>;  // and the group

  explicit Follower(Scene* scene) : scene_(*scene) {
    scene_.index.keep_keys(kModel);
    scene_.index.add_listener(this);
  }

  void stored(const NamedPage& page) noexcept override {
    EXPECT_TRUE(pages.insert({{*page.key, page.group}, page.page}).second) << "stored twice";
    const Pool::Page& held = scene_.pool.at(page.group, page.page);
    EXPECT_EQ(static_cast<int64_t>(held.prefix.size()), (page.index + 1) * kPage);
    EXPECT_EQ(page.salted, held.salt != 0);
    EXPECT_EQ(page.parent == nullptr, page.index == 0);
    check_context(page, held);
    Tokens tokens(kPage);
    scene_.index.read_block(page.block, tokens);
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), held.prefix.end() - kPage));
    ++heard;
  }
  void removed(const NamedPage& page) noexcept override {
    const auto found = pages.find({*page.key, page.group});
    ASSERT_NE(found, pages.end()) << "removed, but not stored";
    EXPECT_EQ(found->second, page.page);
    if (!scene_.rules[static_cast<size_t>(page.group)].holds_state()) {
      EXPECT_EQ((page.index + 1) * kPage, static_cast<int64_t>(scene_.pool.at(page.group, page.page).prefix.size()));
      EXPECT_EQ(page.parent == nullptr, page.index == 0);
    }
    pages.erase(found);
    ++heard;
  }
  void cleared() noexcept override {
    pages.clear();
    ++clears;
  }

  // The pages are those that the index holds and that end at a whole page, and those that it lists.
  void check() {
    std::map<Name, int32_t> listed;
    std::set<PageKey> parents;
    scene_.index.for_each_named([&](const NamedPage& page) {
      EXPECT_TRUE(listed.insert({{*page.key, page.group}, page.page}).second);
      EXPECT_EQ(page.parent == nullptr, page.index == 0);
      check_context(page, scene_.pool.at(page.group, page.page));
    });
    EXPECT_EQ(listed, pages);
    size_t whole = 0;
    for (size_t g = 0; g < scene_.pool.pages.size(); ++g) {
      for (const Pool::Page& page : scene_.pool.pages[g]) {
        whole += page.indexed && !page.prefix.empty() && page.prefix.size() % kPage == 0;
      }
    }
    EXPECT_EQ(pages.size(), whole);
  }

  std::map<Name, int32_t> pages;  // page ids
  int64_t heard = 0, clears = 0;

 private:
  static void check_context(const NamedPage& page, const Pool::Page& held) {
    const auto adapter = PrefixContext::adapter_of(page.context);
    EXPECT_TRUE(std::equal(adapter.begin(), adapter.end(), held.part.adapter.begin(), held.part.adapter.end()));
    std::vector<MediaSpan> spans;  // those with a token in the page
    for (size_t i = held.part.spans.size() - kPage; i < held.part.spans.size(); ++i) {
      const MediaSpan& span = held.part.spans[i];
      if (span.tokens > 0 && (spans.empty() || spans.back() != span)) spans.push_back(span);
    }
    const auto media = PrefixContext::media_in(page.context, page.index * kPage, (page.index + 1) * kPage);
    EXPECT_TRUE(std::equal(media.begin(), media.end(), spans.begin(), spans.end()));
  }
  Scene& scene_;
};

TEST(PrefixListener, HearsOfWholePagesUnderTheirKeys) {
  Scene scene({full(), sliding(6)}, 100);
  Follower follower(&scene);
  Sequence first = scene.run(count_to(10), 7);
  scene.publish(first);
  EXPECT_EQ(follower.pages.size(), 3u);  // the first page left the window
  EXPECT_TRUE(follower.pages.contains({key_of(count_to(4), 7, 0), 0}));
  EXPECT_TRUE(follower.pages.contains({key_of(count_to(8), 7, 0), 1}));
  EXPECT_FALSE(follower.pages.contains({key_of(count_to(4), 0, 0), 0})) << "the salt is in the key";
  scene.match(count_to(9), 7);
  EXPECT_EQ(scene.index.matched_key(1), key_of(count_to(8), 7, 0));
  first.append(count_to(6, 11));  // fills the partial page, and one more
  scene.publish(first);
  EXPECT_TRUE(follower.pages.contains({key_of(count_to(12), 7, 0), 0}));
  follower.check();
}

TEST(PrefixListener, ASaltBeginsAtItsPage) {
  Scene scene({full()}, 100);
  Follower follower(&scene);
  Sequence first = scene.make(9, 5);
  first.append(count_to(12));
  scene.publish(first);
  EXPECT_TRUE(follower.pages.contains({key_of(count_to(4), 0, 0), 0}));
  EXPECT_TRUE(follower.pages.contains({key_of(count_to(12), 9, 5), 0}));
}

TEST(PrefixListener, HearsOnceThatAllIsGone) {
  Scene scene({full(), state()}, 100);
  Follower follower(&scene);
  Sequence plain = scene.run(count_to(8)), salted = scene.run(count_to(8), 3);
  scene.publish(plain);
  scene.publish(salted);
  follower.check();
  scene.index.drop({{}, 3, 0}, scene.pool);  // pages without a salt stay
  EXPECT_EQ(follower.clears, 0);
  follower.check();
  const int64_t heard = follower.heard;
  scene.index.drop({{}, 0, 0}, scene.pool);
  EXPECT_EQ(follower.clears, 1);
  EXPECT_EQ(follower.heard, heard);
  follower.check();
  scene.index.drop({{}, 0, 0}, scene.pool);  // nothing is left
  EXPECT_EQ(follower.clears, 1);
  scene.publish(plain);
  scene.index.clear(scene.pool);
  EXPECT_EQ(follower.clears, 2);
  follower.check();
}

class ListenerWalk : public testing::TestWithParam<int> {};

// After any publishes, evictions and drops, a listener has the pages that the index holds, under the keys of their
// tokens, salts, adapters and media.
TEST_P(ListenerWalk, HasThePagesOfTheIndex) {
  const int seed = GetParam();
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  const std::vector<std::vector<GroupRules>> mixtures{
      {full()}, {full(), sliding(9), chunked(8), state()}, {full(), state()}, {state()}};
  const auto& mixture = mixtures[static_cast<size_t>(seed) % mixtures.size()];
  Scene scene(mixture, seed % 2 == 0 ? 40 : 10000);
  Follower follower(&scene);
  std::map<PageKey, std::tuple<Tokens, uint64_t, Setting::Part>> meanings;
  std::vector<Sequence> live;
  for (int step = 0; step < 500; ++step) {
    const int64_t what = below(12);
    if (live.empty() || (what < 3 && live.size() < 8)) {
      live.push_back(scene.make(static_cast<uint64_t>(below(3)), below(2) == 0 ? 0 : below(12)));
      if (below(2) == 0) live.back().set(Setting::draw(random));
    }
    Sequence& sequence = live[static_cast<size_t>(below(static_cast<uint32_t>(live.size())))];
    if (what < 5) {
      Tokens more(static_cast<size_t>(1 + below(9)));
      for (int32_t& token : more) token = static_cast<int32_t>(below(2));
      sequence.append(more);
    } else if (what < 8) {
      scene.index.publish(sequence.key(), sequence, scene.pool, {static_cast<uint64_t>(below(3)), 0, 0});
      for (int64_t end = kPage; end <= sequence.length(); end += kPage) {
        const PageKey key = key_of(sequence.prefix(end), sequence.salt, sequence.salt_begin, sequence.setting);
        const std::tuple meaning{sequence.prefix(end), sequence.salt_at(end / kPage - 1),
                                 sequence.setting.part(static_cast<size_t>(end))};
        ASSERT_EQ(meanings.try_emplace(key, meaning).first->second, meaning);
      }
    } else if (what < 9) {
      sequence.remove();
      live.erase(live.begin() + (&sequence - live.data()));
    } else if (what < 10) {
      scene.index.evict(static_cast<int32_t>(below(static_cast<uint32_t>(mixture.size()))), 1 + below(4), scene.pool);
    } else if (what < 11) {
      scene.index.drop_session(static_cast<uint64_t>(1 + below(2)), scene.pool);
    } else if (below(4) == 0) {
      scene.index.drop({{}, sequence.salt, 0, sequence.context.get()}, scene.pool);
    } else {
      TokenRuns::Key key = sequence.key();
      key.tokens = key.tokens.first(static_cast<size_t>(below(static_cast<uint32_t>(sequence.length() + 1))));
      if (!key.tokens.empty()) scene.index.drop(key, scene.pool);
    }
    ASSERT_NO_FATAL_FAILURE(follower.check());
    ASSERT_FALSE(HasFailure()) << "seed " << seed << " step " << step;
    for (const auto& [name, page] : follower.pages) {
      const auto found = meanings.find(name.first);
      ASSERT_NE(found, meanings.end()) << "a key of tokens that were never published";
      const Pool::Page& held = scene.pool.at(name.second, page);
      ASSERT_TRUE(found->second == std::tuple(held.prefix, held.salt, held.part));
    }
    ASSERT_TRUE(scene.index.is_valid()) << "seed " << seed << " step " << step;
  }
  EXPECT_GT(follower.heard, mixture[0].holds_state() ? 20 : 100);
  scene.end(live);
  follower.check();
}
INSTANTIATE_TEST_SUITE_P(Seeds, ListenerWalk, testing::Range(1, 41));

}  // namespace
}  // namespace kvc
