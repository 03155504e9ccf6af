// PrefixContext: comparisons of media, against the spans of single tokens.
#include "prefix/prefix_context.h"

#include "scene.h"

namespace kvc {
namespace {

TEST(PrefixContext, MediaAreEqualUpToTheFirstTokenThatDiffers) {
  std::mt19937 random(1);
  int64_t differ = 0;
  for (int round = 0; round < 20000; ++round) {
    const Setting a = Setting::draw(random), b = random() % 2 == 0 ? Setting::draw(random) : a;
    const ContextRef left = a.context(), right = b.context();
    const int64_t begin = random() % 30, end = begin + random() % 12;
    int64_t same = begin;
    while (same < end && a.at(same) == b.at(same)) ++same;
    ASSERT_EQ(same_media_end(left.get(), right.get(), begin, end), same);
    const auto order = compare_media(left.get(), right.get(), begin);
    ASSERT_EQ(order == 0, a.at(begin) == b.at(begin));
    ASSERT_EQ(compare_media(right.get(), left.get(), begin) < 0, order > 0);
    ASSERT_EQ(compare_adapters(left.get(), right.get()) == 0, a.adapter == b.adapter);
    ASSERT_EQ(compare_adapters(left.get(), right.get()) < 0, a.adapter < b.adapter);
    std::vector<MediaSpan> in_range;
    for (const MediaSpan& span : a.media) {
      if (span.begin < end && span.begin + span.tokens > begin) in_range.push_back(span);
    }
    const auto found = PrefixContext::media_in(left.get(), begin, end);
    ASSERT_TRUE(begin == end || std::equal(found.begin(), found.end(), in_range.begin(), in_range.end()));
    differ += same < end;
  }
  EXPECT_GT(differ, 1000);
}

TEST(TokenRunsContext, ChildrenWithEqualTokensAndOtherMedia) {
  TokenRuns tree(4, 4000);
  std::mt19937 random(2);
  std::vector<std::pair<Tokens, Setting>> all;
  const auto same = [](const Tokens& a, const Setting& of_a, const Tokens& b, const Setting& of_b) {
    if (of_a.adapter != of_b.adapter) return 0;
    int32_t n = 0;
    while (n < 4 && a[static_cast<size_t>(n)] == b[static_cast<size_t>(n)] && of_a.at(n) == of_b.at(n)) ++n;
    return n;
  };
  const auto draw = [&] {
    Tokens tokens(4);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 2);
    Setting setting = Setting::draw(random);
    for (MediaSpan& span : setting.media) span.begin -= std::min<int64_t>(span.begin, 8);
    if (setting.media.size() > 1) setting.media.resize(1);
    return std::pair(tokens, setting);
  };
  for (int i = 0; i < 3000; ++i) {
    const auto [tokens, setting] = draw();
    const ContextRef context = setting.context();
    int32_t longest = 0;
    for (const auto& [other, of_other] : all) longest = std::max(longest, same(tokens, setting, other, of_other));
    std::vector<int32_t> blocks, runs;
    ASSERT_EQ(tree.walk({tokens, 0, 0, context.get()}, &blocks, &runs), longest) << i;
    const auto length = static_cast<int32_t>(1 + random() % 4);
    const auto begins = std::count_if(all.begin(), all.end(), [&, &own = tokens, &of_own = setting](const auto& other) {
      return same(own, of_own, other.first, other.second) >= length;
    });
    tree.children_with(TokenRuns::kRoot, 0, context.get(), std::span(tokens).first(static_cast<size_t>(length)), &runs);
    ASSERT_EQ(static_cast<int64_t>(runs.size()), begins) << i;
    if (longest == 4) continue;
    tree.add_run(TokenRuns::kRoot, 0, tokens, context.get());
    all.emplace_back(tokens, setting);
  }
  EXPECT_GT(all.size(), 100u);
  EXPECT_TRUE(tree.is_valid());
}

}  // namespace
}  // namespace kvc
