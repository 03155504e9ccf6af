// Priorities of keys that end within a page, compared with a naive model that has the tokens and the priority of each
// page.
#include "scene.h"

namespace kvc {
namespace {

using PageId = int32_t;

// The pages of the index, by id. It has one group.
std::map<PageId, Tokens> indexed_pages(const Scene& scene) {
  std::map<PageId, Tokens> pages;
  for (size_t i = 0; i < scene.pool.pages[0].size(); ++i) {
    const Pool::Page& page = scene.pool.pages[0][i];
    if (page.indexed) pages[static_cast<PageId>(i)] = page.prefix;
  }
  return pages;
}

int64_t shared(const Tokens& a, const Tokens& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

// Whether a page that ends `page` belongs to the first tokens of a key. known: how many of them are published.
bool has_terms_of(const Tokens& page, const Tokens& key, int64_t known) {
  const auto length = static_cast<int64_t>(page.size());
  const int64_t begin = (length - 1) / kPage * kPage;
  if (begin >= known) return false;
  return known - begin >= kPage ? length == begin + kPage && shared(page, key) == length : shared(page, key) >= known;
}

// Evicts all pages. Each is a leaf, and no other leaf has a lower priority.
void check_order(Scene& scene, std::map<PageId, int32_t> priorities) {
  for (;;) {
    const std::map<PageId, Tokens> before = indexed_pages(scene);
    if (before.empty()) return;
    ASSERT_EQ(scene.index.evict(0, 1, scene.pool), 1);
    const std::map<PageId, Tokens> after = indexed_pages(scene);
    std::map<PageId, int32_t> leaves;
    for (const auto& [id, tokens] : before) {
      const bool goes_on = std::any_of(before.begin(), before.end(), [&, &own = tokens](const auto& other) {
        return other.second.size() > own.size() && own.size() % kPage == 0 &&
               shared(own, other.second) == static_cast<int64_t>(own.size());
      });
      if (!goes_on) leaves[id] = priorities.at(id);
    }
    int32_t lowest = PrefixIndex::kMaxPriority;
    for (const auto& [id, priority] : leaves) lowest = std::min(lowest, priority);
    for (const auto& [id, tokens] : before) {
      if (after.contains(id)) continue;
      ASSERT_TRUE(leaves.contains(id)) << "a page went before one that continues it";
      ASSERT_EQ(leaves[id], lowest);
    }
  }
}

TEST(PrefixTerms, AKeyThatEndsWithinAPageIsOfAllPagesThatBeginWithIt) {
  Scene scene({full()}, 100);
  const Tokens first = {1, 2, 3, 4, 5, 6, 7, 8}, second = {1, 2, 3, 4, 5, 6, 9, 9}, third = {1, 2, 3, 4, 5, 9, 9, 9};
  for (const Tokens& tokens : {third, first, second}) scene.remember(tokens, {.priority = 50});
  const Tokens key = {1, 2, 3, 4, 5, 6};
  scene.index.set_terms({key, 0, 0}, 10, 0);
  EXPECT_EQ(scene.index.evict(0, 2, scene.pool), 2);  // both pages that begin with the end of the key
  EXPECT_EQ(scene.match(first), 5);                   // the page of the third sequence has the fifth token too
  EXPECT_EQ(scene.match(second), 5);
  EXPECT_EQ(scene.match(third), 8);
}

TEST(PrefixTerms, AKeyThatEndsWithinTheFirstPage) {
  Scene scene({full()}, 100);
  scene.remember({1, 2, 3, 4, 5}, {.priority = 50});
  scene.remember({1, 2, 9, 9}, {.priority = 50});
  scene.remember({1, 2, 3, 4}, {.priority = 50}, 7);  // of another salt
  const Tokens key = {1, 2};
  scene.index.set_terms({key, 0, 0}, 90, 0);
  EXPECT_EQ(scene.index.evict(0, 2, scene.pool), 2);
  EXPECT_EQ(scene.match({1, 2, 3, 4}, 7), 0);
  EXPECT_EQ(scene.match({1, 2, 3, 4, 5}), 4);
  EXPECT_EQ(scene.match({1, 2, 9, 9}), 4);
}

TEST(PrefixTerms, RandomKeysAgainstANaiveModel) {
  for (uint64_t seed = 0; seed < 400 && !testing::Test::HasFailure(); ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    Scene scene({full()}, 500);
    const auto draw = [&] {
      Tokens tokens(1 + random() % 20);
      for (int32_t& token : tokens) token = random() % 3 == 0 ? 1 : 0;
      return tokens;
    };
    for (int i = 0; i < 12; ++i) scene.remember(draw(), {.priority = 50});
    const std::map<PageId, Tokens> pages = indexed_pages(scene);
    std::map<PageId, int32_t> priorities;
    for (const auto& [id, tokens] : pages) priorities[id] = 50;
    for (int i = 0; i < 6; ++i) {
      const Tokens key = draw();
      const auto priority = static_cast<int32_t>(random() % 101);
      int64_t known = 0;
      for (const auto& [id, tokens] : pages) known = std::max(known, shared(tokens, key));
      for (const auto& [id, tokens] : pages) {
        if (has_terms_of(tokens, key, known)) priorities[id] = priority;
      }
      scene.index.set_terms({key, 0, 0}, priority, 0);
      ASSERT_TRUE(scene.index.is_valid());
    }
    SCOPED_TRACE("seed " + std::to_string(seed));
    check_order(scene, std::move(priorities));
  }
}

}  // namespace
}  // namespace kvc
