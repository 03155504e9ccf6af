// Which copies of slots run in parallel, and which in one chain.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/cuda/copy/plan.h"

namespace kvc::kernels::cuda {
namespace {

using Copies = std::vector<kvc_backend_slot_copy>;

struct Cut {
  explicit Cut(const Copies& copies, bool may_be_apart = true)
      : memory(static_cast<size_t>(bytes_to_cut(static_cast<int64_t>(copies.size()))) / 8),
        of(cut_copies(copies.data(), static_cast<int64_t>(copies.size()), may_be_apart, memory.data())) {}
  std::vector<int64_t> memory;
  CopyCut of;
};

std::set<int64_t> slots_of(const kvc_backend_slot_copy& copy) {
  std::set<int64_t> slots;
  for (int32_t i = 0; i < copy.num_slots; ++i) slots.insert({copy.source_slot + i, copy.target_slot + i});
  return slots;
}

using Key = std::tuple<int64_t, int64_t, int32_t>;
Key key_of(const kvc_backend_slot_copy& copy) { return {copy.source_slot, copy.target_slot, copy.num_slots}; }

// Every copy is in exactly one chain, in the order of the list. No slot belongs to two chains.
void check_chains(const Copies& copies, const CopyCut& cut) {
  std::map<int64_t, int64_t> chain_of_slot;
  std::multiset<Key> given, found;
  for (const kvc_backend_slot_copy& copy : copies) given.insert(key_of(copy));
  ASSERT_EQ(cut.begins[0], 0);
  ASSERT_EQ(cut.begins[cut.chains], static_cast<int64_t>(copies.size()));
  for (int64_t c = 0; c < cut.chains; ++c) {
    ASSERT_LT(cut.begins[c], cut.begins[c + 1]) << "a chain of nothing";
    size_t at = 0;  // in the list
    for (int64_t i = cut.begins[c]; i < cut.begins[c + 1]; ++i, ++at) {
      found.insert(key_of(cut.copies[i]));
      while (at < copies.size() && key_of(copies[at]) != key_of(cut.copies[i])) ++at;
      ASSERT_LT(at, copies.size()) << "chain " << c << " is not in the list's order";
      for (const int64_t slot : slots_of(cut.copies[i])) {
        ASSERT_EQ(chain_of_slot.try_emplace(slot, c).first->second, c) << "slot " << slot;
      }
    }
  }
  EXPECT_EQ(given, found);
}

TEST(CopyPlan, NoSlotIsTwoChainsBusiness) {
  std::mt19937 random(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  int64_t most_chains = 0;
  for (int round = 0; round < 400; ++round) {
    const int64_t slots = 20 + below(400), longest = 1 + below(6);
    Copies copies;
    for (int64_t i = 0, count = 1 + below(40); i < count; ++i) {
      copies.push_back({below(slots), below(slots), static_cast<int32_t>(below(longest + 1)), 0});
    }
    const Cut cut(copies);
    if (cut.of.begins == nullptr) continue;
    check_chains(copies, cut.of);
    most_chains = std::max(most_chains, cut.of.chains);
  }
  EXPECT_GT(most_chains, 20);
}

// The copies of a commit of many trees: nodes of a path move to the front, where other nodes were. No tree waits for
// another one. Within a tree, a node waits only for nodes whose slots it takes or whose slot it gives up.
TEST(CopyPlan, TreesAreChainsOfTheirOwn) {
  constexpr int64_t kTrees = 9, kNodes = 127, kSlots = 144;
  Copies shifted, halved;
  for (int64_t tree = 0; tree < kTrees; ++tree) {
    for (int64_t node = 0; node + 1 < kNodes; ++node) {
      shifted.push_back({tree * kSlots + node + 1, tree * kSlots + node, 1, 0});
    }
    for (int64_t node = 1; 2 * node < kNodes; ++node) {
      halved.push_back({tree * kSlots + 2 * node, tree * kSlots + node, 1, 0});
    }
  }
  constexpr int64_t kOdd = 32;  // chains over node numbers below 64: each is followed by its double
  for (const auto& [copies, chains] : {std::pair{shifted, kTrees}, std::pair{halved, kTrees * kOdd}}) {
    const Cut cut(copies);
    ASSERT_NE(cut.of.begins, nullptr);
    EXPECT_EQ(cut.of.chains, chains);
    check_chains(copies, cut.of);
  }
}

// Forks of one page: all copies read its slots, and none writes them.
TEST(CopyPlan, WhatIsReadTwiceIsApart) {
  Copies copies;
  for (int64_t child = 1; child < 9; ++child) copies.push_back({0, child * 16, 13, 0});
  EXPECT_EQ(Cut(copies).of.begins, nullptr);
  EXPECT_EQ(Cut(copies).of.copies, copies.data());
  copies.push_back({32, 0, 1, 0});  // now a slot is written too, so all run in order
  EXPECT_EQ(Cut(copies).of.chains, 1);
  check_chains(copies, Cut(copies).of);
  copies = {{0, 100, 1, 0}, {1, 101, 1, 0}, {7, 107, 0, 0}};  // apart, and more than a grid takes: chains of one
  const Cut cut(copies, false);
  EXPECT_EQ(cut.of.chains, 3);
  check_chains(copies, cut.of);
}

}  // namespace
}  // namespace kvc::kernels::cuda
