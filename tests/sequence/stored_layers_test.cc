// StoredLayers, compared with a naive model that has the set of layers that stored each token.
#include "sequence/stored_layers.h"

#include <gtest/gtest.h>

#include <random>

namespace kvc {
namespace {

// Layers 0, 2, 5 and 6 store the first list, 1 and 4 the second; 3 stores nothing.
const std::vector<int32_t> kLists = {0, 1, 0, -1, 1, 0, 0};
constexpr int32_t kSequences = 3, kNumLists = 2;

using Token = std::vector<bool>;  // [layers]

struct Model {
  StoredLayers layers{kSequences, kLists, kNumLists};
  std::vector<Token> tokens[kSequences][kNumLists];
  std::mt19937 random;

  explicit Model(uint32_t seed) : random(seed) {
    for (int32_t slot = 0; slot < kSequences; ++slot) layers.clear(slot);
  }
  int64_t uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); }
  int64_t held(int32_t slot, int32_t list, size_t layer) {
    int64_t count = 0;
    for (const Token& token : tokens[slot][list]) {
      if (!token[layer]) break;
      ++count;
    }
    return count;
  }

  void append(int32_t slot, int32_t list) {
    auto& known = tokens[slot][list];
    LayerRange range;
    range.begin = static_cast<int32_t>(uniform(0, 6));
    range.end = static_cast<int32_t>(uniform(range.begin + 1, 7));
    if (uniform(0, 1) == 0) range = {0, 7};
    const StoredLayers::LayerSet set = layers.layers_of(list, range);
    Token token(kLists.size());
    int32_t lacking = -1;
    for (int32_t layer = range.end; layer-- > range.begin;) {
      if (kLists[static_cast<size_t>(layer)] != list) continue;
      token[static_cast<size_t>(layer)] = true;
      if (held(slot, list, static_cast<size_t>(layer)) < static_cast<int64_t>(known.size())) lacking = layer;
    }
    ASSERT_EQ(layers.complete(slot, list, set), lacking < 0);
    if (lacking >= 0) {
      ASSERT_EQ(layers.first_incomplete(slot, list, set), lacking);
      return;
    }
    layers.append(slot, list, set, static_cast<int64_t>(known.size()));
    known.resize(known.size() + static_cast<size_t>(uniform(1, 4)), token);
  }
  void truncate(int32_t slot, int32_t list) {
    auto& known = tokens[slot][list];
    known.resize(static_cast<size_t>(uniform(0, static_cast<int64_t>(known.size()))));
    layers.truncate(slot, list, static_cast<int64_t>(known.size()));
  }
  void keep_path(int32_t slot, int32_t list) {
    auto& known = tokens[slot][list];
    const auto first = static_cast<size_t>(uniform(0, static_cast<int64_t>(known.size())));
    std::vector<int32_t> path;
    std::vector<Token> kept(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(first));
    for (size_t i = first; i < known.size(); ++i) {
      if (uniform(0, 1) == 0) continue;
      path.push_back(static_cast<int32_t>(i - first));
      kept.push_back(known[i]);
    }
    known = kept;
    layers.keep_path(slot, list, static_cast<int64_t>(first), path);
  }
  void copy(int32_t from, int32_t to) {
    layers.clear(to);
    for (int32_t list = 0; list < kNumLists; ++list) {
      const auto& known = tokens[from][list];
      const int64_t count = uniform(0, static_cast<int64_t>(known.size()));
      tokens[to][list].assign(known.begin(), known.begin() + count);
      layers.copy(from, to, list, count);
    }
  }
  void check() {
    for (int32_t slot = 0; slot < kSequences; ++slot) {
      for (size_t layer = 0; layer < kLists.size(); ++layer) {
        const int32_t list = kLists[layer];
        if (list < 0) continue;
        const auto count = static_cast<int64_t>(tokens[slot][list].size());
        ASSERT_EQ(layers.held(slot, static_cast<int32_t>(layer), count), held(slot, list, layer)) << "layer " << layer;
        ASSERT_TRUE(layers.sound(slot, list, count));
      }
    }
  }
};

TEST(StoredLayers, AgreesWithASetOfLayersForEachToken) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model model(seed);
    for (int i = 0; i < 100 && !testing::Test::HasFatalFailure(); ++i) {
      const auto slot = static_cast<int32_t>(model.uniform(0, kSequences - 1));
      const auto list = static_cast<int32_t>(model.uniform(0, kNumLists - 1));
      switch (model.uniform(0, 7)) {
        case 0:
          model.truncate(slot, list);
          break;
        case 1:
          model.keep_path(slot, list);
          break;
        case 2:
          model.copy(slot, (slot + 1) % kSequences);
          break;
        default:
          model.append(slot, list);
      }
      model.check();
    }
  }
}

TEST(StoredLayers, SoundSeesALayerThatHoldsMoreThanItsList) {
  StoredLayers layers(1, kLists, kNumLists);
  layers.clear(0);
  layers.append(0, 0, layers.layers_of(0, {0, 3}), 5);
  EXPECT_TRUE(layers.sound(0, 0, 6));
  EXPECT_FALSE(layers.sound(0, 0, 5)) << "layer 5 holds 5 tokens of 5, so it is complete";
}

TEST(StoredLayers, ARangeWithoutALayerOfTheListStoresNothing) {
  StoredLayers layers(1, kLists, kNumLists);
  layers.clear(0);
  const StoredLayers::LayerSet none = layers.layers_of(1, {2, 4});
  EXPECT_TRUE(none.empty());
  layers.append(0, 1, none, 0);
  EXPECT_EQ(layers.held(0, 1, 3), 0);
  EXPECT_EQ(layers.held(0, 4, 3), 0);
  EXPECT_FALSE(layers.complete(0, 1, layers.layers_of(1, {1, 2})));
  EXPECT_EQ(layers.first_incomplete(0, 1, layers.layers_of(1, {2, 7})), 4);
  layers.truncate(0, 1, 0);
  EXPECT_TRUE(layers.complete(0, 1, layers.layers_of(1, {0, 7})));
}

}  // namespace
}  // namespace kvc
