// TokenRuns, compared with a plain list of token sequences: the longest common prefix, after any additions, splits,
// growth and removals.
#include "prefix/token_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace kvc {
namespace {

using Tokens = std::vector<int32_t>;

std::span<const int32_t> part(const Tokens& tokens, int64_t begin, int64_t end) {
  return std::span<const int32_t>(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

// Adds tokens below the root as runs of one block.
int32_t add_chain(TokenRuns& tree, const Tokens& tokens) {
  int32_t run = TokenRuns::kRoot;
  const int64_t size = tree.page_size(), length = static_cast<int64_t>(tokens.size());
  for (int64_t begin = 0; begin < length; begin += size)
    run = tree.add_run(run, 0, part(tokens, begin, std::min(length, begin + size)));
  return run;
}

int64_t walk(const TokenRuns& tree, const Tokens& tokens, uint64_t salt = 0, int64_t salt_begin = 0) {
  std::vector<int32_t> blocks, runs;
  const int64_t known = tree.walk({tokens, salt, salt_begin}, &blocks, &runs);
  EXPECT_EQ(static_cast<int64_t>(blocks.size()), (known + tree.page_size() - 1) / tree.page_size());
  return known;
}

TEST(TokenRuns, FindsTheLongestCommonPrefix) {
  TokenRuns tree(4, 100);
  EXPECT_EQ(walk(tree, {1, 2, 3}), 0);
  add_chain(tree, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(walk(tree, {}), 0);
  EXPECT_EQ(walk(tree, {1}), 1);
  EXPECT_EQ(walk(tree, {1, 2, 3, 4, 5, 9}), 5);
  EXPECT_EQ(walk(tree, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), 9);
  EXPECT_EQ(walk(tree, {2}), 0);
  EXPECT_TRUE(tree.is_valid());
}

TEST(TokenRuns, ChildrenThatShareHalfABlock) {
  TokenRuns tree(4, 100);
  for (const Tokens& tokens : {Tokens{1, 1, 1, 1}, {1, 1, 2, 2}, {1, 2, 1, 1}, {1, 1, 2}, {2, 0, 0, 0}})
    tree.add_run(0, 0, tokens);
  EXPECT_EQ(walk(tree, {1, 1, 2, 3}), 3);
  EXPECT_EQ(walk(tree, {1, 1, 2, 2}), 4);
  EXPECT_EQ(walk(tree, {1, 1, 0, 0}), 2);
  EXPECT_EQ(walk(tree, {1, 2, 1, 0}), 3);
  EXPECT_EQ(walk(tree, {1, 3}), 1);
  EXPECT_TRUE(tree.is_valid());
}

TEST(TokenRuns, SaltsNeverMatchEachOther) {
  TokenRuns tree(4, 100);
  const Tokens tokens{1, 2, 3, 4, 5, 6, 7, 8};
  const int32_t first = tree.add_run(0, 7, part(tokens, 0, 4));
  tree.add_block(first, part(tokens, 4, 8));
  EXPECT_EQ(walk(tree, tokens), 0);
  EXPECT_EQ(walk(tree, tokens, 7), 8);
  EXPECT_EQ(walk(tree, tokens, 8), 0);
  EXPECT_EQ(walk(tree, tokens, 7, 4), 0);  // the first block of this key has salt 0
  const int32_t shared = tree.add_run(0, 0, part(tokens, 0, 4));
  tree.add_run(shared, 9, part(tokens, 4, 8));
  EXPECT_EQ(walk(tree, tokens, 9, 4), 8);
  EXPECT_EQ(walk(tree, tokens, 9, 3), 0);  // token 3 is in the first block
  EXPECT_EQ(walk(tree, tokens, 8, 4), 4);  // the shared prompt, and no token of another tenant
  EXPECT_EQ(walk(tree, tokens), 4);
  EXPECT_TRUE(tree.is_valid());
}

TEST(TokenRuns, AKeyWhoseSaltBeginsInsideARunStopsThere) {
  TokenRuns tree(4, 100);
  const Tokens tokens{1, 2, 3, 4, 5, 6, 7, 8};
  tree.add_block(tree.add_run(0, 0, part(tokens, 0, 4)), part(tokens, 4, 8));
  EXPECT_EQ(walk(tree, tokens, 3, 4), 4);
}

TEST(TokenRuns, SplitsGrowsAndRemoves) {
  TokenRuns tree(2, 100);
  const int32_t run = tree.add_run(0, 0, Tokens{1, 2});
  tree.add_block(run, Tokens{3, 4});
  tree.add_block(run, Tokens{5});
  tree.grow_last(run, Tokens{5, 6});
  EXPECT_EQ(walk(tree, {1, 2, 3, 4, 5, 6}), 6);
  const int32_t upper = tree.split(run, 2);
  EXPECT_EQ(tree.parent(run), upper);
  EXPECT_EQ(tree.num_blocks(upper), 2);
  EXPECT_EQ(tree.begin_block(run), 2);
  EXPECT_EQ(walk(tree, {1, 2, 3, 4, 5, 6}), 6);
  EXPECT_TRUE(tree.is_valid());
  EXPECT_TRUE(tree.remove_last(run));
  EXPECT_FALSE(tree.remove_last(upper));
  EXPECT_EQ(walk(tree, {1, 2, 3, 4}), 2);
  EXPECT_TRUE(tree.remove_last(upper));
  EXPECT_EQ(tree.free_blocks(), 100);
  EXPECT_TRUE(tree.is_valid());
}

TEST(TokenRuns, GrowingALeafKeepsTheOrderOfItsSiblings) {
  TokenRuns tree(3, 100);
  const int32_t leaf = tree.add_run(0, 0, Tokens{1});
  for (int32_t t = 0; t < 20; ++t) tree.add_run(0, 0, Tokens{1, t, 0});
  EXPECT_TRUE(tree.is_valid());
  tree.grow_last(leaf, Tokens{1, 10, 5});
  EXPECT_TRUE(tree.is_valid());
  EXPECT_EQ(walk(tree, {1, 10, 5}), 3);
}

// Ids are stored in planes, and the last plane is used from the first id on that needs it.
TEST(TokenRuns, TokensMayBeAnyNumbers) {
  for (const int32_t bit : {0, 7, 8, 15, 16, 23, 24, 30, 31}) {
    TokenRuns tree(4, 100);
    Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    const Tokens before = tokens;
    tree.add_block(tree.add_run(0, 0, part(before, 0, 4)), part(before, 4, 8));
    for (int32_t& token : tokens) token = static_cast<int32_t>(static_cast<uint32_t>(token) ^ 1u << bit);
    EXPECT_EQ(walk(tree, tokens), 0) << bit;
    add_chain(tree, tokens);
    EXPECT_EQ(walk(tree, tokens), 13) << bit;
    EXPECT_EQ(walk(tree, before), 8) << bit;
    for (size_t i = 1; i < tokens.size(); ++i) {
      Tokens query = tokens;
      query[i] = static_cast<int32_t>(static_cast<uint32_t>(query[i]) ^ 1u << bit);
      EXPECT_EQ(walk(tree, query), static_cast<int64_t>(i)) << bit << " at " << i;
    }
    EXPECT_TRUE(tree.is_valid());
  }
}

TEST(TokenRuns, ManyChildrenAgainstAPlainList) {
  std::mt19937 random(1);
  TokenRuns tree(4, 4000);
  std::vector<Tokens> all;
  for (int i = 0; i < 2000; ++i) {
    Tokens tokens(4);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 7);
    if (std::find(all.begin(), all.end(), tokens) == all.end()) {
      tree.add_run(0, 0, tokens);
      all.push_back(tokens);
    }
    Tokens query(4);
    for (int32_t& token : query) token = static_cast<int32_t>(random() % 8);
    int64_t longest = 0;
    for (const Tokens& other : all) {
      longest = std::max(longest, std::mismatch(query.begin(), query.end(), other.begin()).first - query.begin());
    }
    ASSERT_EQ(walk(tree, query), longest) << "query " << i;
    query.resize(1 + random() % 4);
    std::vector<int32_t> found;
    tree.children_with(0, 0, nullptr, query, &found);
    std::vector<Tokens> begins, wanted;
    for (const int32_t run : found) {
      begins.emplace_back();
      for (int64_t t = 0; t < 4; ++t) begins.back().push_back(tree.token(tree.first_block(run), t));
    }
    for (const Tokens& other : all) {
      if (std::equal(query.begin(), query.end(), other.begin())) wanted.push_back(other);
    }
    std::sort(begins.begin(), begins.end());
    std::sort(wanted.begin(), wanted.end());
    ASSERT_EQ(begins, wanted) << "query " << i;
    tree.children_with(0, 3, nullptr, query, &found);  // of another salt
    ASSERT_TRUE(found.empty());
  }
  EXPECT_TRUE(tree.is_valid());
}

}  // namespace
}  // namespace kvc
