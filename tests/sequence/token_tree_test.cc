#include "sequence/token_tree.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace kvc {
namespace {

using Parents = std::vector<int16_t>;

std::vector<kvc_backend_tree_node> number(const Parents& parents, int32_t first_position = 0) {
  std::vector<kvc_backend_tree_node> nodes(parents.size(), kvc_backend_tree_node{-7, -7, -7, -7});
  number_tree(parents, first_position, nodes.data());
  return nodes;
}

bool is_ancestor(const Parents& parents, int32_t ancestor, int32_t node) {
  while (node > ancestor) node = parents[static_cast<size_t>(node)];
  return node == ancestor;
}

TEST(TokenTree, NumbersDepthFirstInIndexOrder) {
  //   0       2
  //  1 4      5
  //  3
  const std::vector<kvc_backend_tree_node> nodes = number({-1, 0, -1, 1, 0, 2}, 10);
  const int32_t expected[6][3] = {{0, 4, 10}, {1, 3, 11}, {4, 6, 10}, {2, 3, 12}, {3, 4, 11}, {5, 6, 11}};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(nodes[i].enter, expected[i][0]) << i;
    EXPECT_EQ(nodes[i].exit, expected[i][1]) << i;
    EXPECT_EQ(nodes[i].position, expected[i][2]) << i;
    EXPECT_EQ(nodes[i].parent, (std::array{-1, 0, -1, 1, 0, 2})[i]) << i;
  }
}

TEST(TokenTree, IntervalsSayWhoIsAnAncestor) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Parents parents(1 + random() % 40);
    for (size_t i = 0; i < parents.size(); ++i) {
      const auto reach = static_cast<int32_t>(round % 3 == 0 ? 2 : i + 1);  // chains, and anything
      const int32_t parent =
          static_cast<int32_t>(i) - 1 - static_cast<int32_t>(random() % static_cast<uint32_t>(reach));
      parents[i] = static_cast<int16_t>(parent < -1 ? -1 : parent);
    }
    const std::vector<kvc_backend_tree_node> nodes = number(parents, 5);
    for (int32_t q = 0; q < static_cast<int32_t>(parents.size()); ++q) {
      int32_t depth = 0;
      for (int32_t k = 0; k < static_cast<int32_t>(parents.size()); ++k) {
        const auto& query = nodes[static_cast<size_t>(q)];
        const auto& key = nodes[static_cast<size_t>(k)];
        const bool sees = key.enter <= query.enter && query.enter < key.exit;
        EXPECT_EQ(sees, is_ancestor(parents, k, q)) << "seed 7 round " << round << " nodes " << q << " " << k;
        depth += sees;
      }
      EXPECT_EQ(nodes[static_cast<size_t>(q)].position, 5 + depth - 1);
    }
  }
}

TEST(TokenTree, LaterRoundsNumberAllNodesAnew) {
  // Node 3 is added a round later, as a child in the first subtree. So the intervals after it move.
  EXPECT_EQ(number({-1, 0, -1})[2].enter, 2);
  const std::vector<kvc_backend_tree_node> nodes = number({-1, 0, -1, 0});
  EXPECT_EQ(nodes[3].enter, 2);
  EXPECT_EQ(nodes[0].exit, 3);
  EXPECT_EQ(nodes[2].enter, 3);
}

TEST(TokenTree, TheLargestChainAndTheLargestForest) {
  Parents chain(kMaxTreeNodes);
  for (size_t i = 0; i < chain.size(); ++i) chain[i] = static_cast<int16_t>(i) - 1;
  const std::vector<kvc_backend_tree_node> nodes = number(chain);
  EXPECT_EQ(nodes.back().position, kMaxTreeNodes - 1);
  EXPECT_EQ(nodes.front().exit, kMaxTreeNodes);
  const std::vector<kvc_backend_tree_node> roots = number(Parents(kMaxTreeNodes, -1));
  EXPECT_EQ(roots.back().enter, kMaxTreeNodes - 1);
  EXPECT_EQ(roots.back().position, 0);
}

TEST(TokenTree, PathsRunFromTheRootToTheLeaf) {
  const Parents parents = {-1, 0, -1, 1, 0, 2, 3};
  std::vector<int32_t> path(parents.size());
  EXPECT_EQ(path_to(parents, 6, path), 4);
  EXPECT_EQ(std::vector<int32_t>(path.begin(), path.begin() + 4), (std::vector<int32_t>{0, 1, 3, 6}));
  EXPECT_EQ(path_to(parents, 2, path), 1);
  EXPECT_EQ(path[0], 2);
  EXPECT_EQ(path_to(parents, -1, path), 0);
}

TEST(TokenTree, ParentsComeBeforeTheirChildren) {
  EXPECT_TRUE(is_parent(KVC_TREE_ROOT, 0));
  EXPECT_TRUE(is_parent(2, 3));
  EXPECT_FALSE(is_parent(3, 3));
  EXPECT_FALSE(is_parent(4, 3));
  EXPECT_FALSE(is_parent(KVC_TREE_NONE, 3));
}

}  // namespace
}  // namespace kvc
