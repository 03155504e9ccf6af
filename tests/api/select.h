// Layers of index keys, calls of kvc_forward_select, and their lists.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "fixture.h"

namespace kvt {

inline constexpr int kHeads = 6, kDim = 24;

struct SelectedLists {
  int64_t shape[3];
  std::vector<int32_t> entries;
  DLTensor tensor = {};
  SelectedLists(int64_t tokens, int64_t heads, int64_t n)
      : shape{tokens, heads, n}, entries(static_cast<size_t>(tokens * heads * n), -7) {}
  int32_t *list(int64_t token, int64_t head) {
    return entries.data() + (token * shape[1] + (shape[1] == 1 ? 0 : head)) * shape[2];
  }
  const DLTensor *dl() {
    tensor = {entries.data(), test_device(), 3, {kDLInt, 32, 1}, shape, nullptr, 0};
    return &tensor;
  }
};

inline LayerSpec keys_of(int group, int key_heads, DType type) {
  LayerSpec layer{group, kHeads, key_heads, kDim, 0, type};
  layer.keys_only = true;
  return layer;
}

// One call: its numbers, and the rows of its queries.
struct SelectCall {
  int rule = KVC_SELECT_RELU_SUM;
  int block = 1, k = 4, first = 0, last = 0, candidate_block = 0;
  bool weighted = true;

  int lists() const { return rule == KVC_SELECT_EACH_HEAD ? kHeads : 1; }
};

// Queries of a step, and the rows of K that it appends.
struct SelectStep {
  std::vector<std::vector<std::vector<int>>> q;  // [tokens][heads]
  std::vector<std::vector<float>> weights;       // [tokens][heads]
  Tensor q_tensor, weight_tensor;

  SelectStep(std::mt19937 *random, int64_t tokens, DType type)
      : q_tensor(type, {tokens, kHeads, kDim}, 3), weight_tensor(DType::kF32, {tokens, kHeads}, 1) {
    for (int64_t t = 0; t < tokens; t++) {
      q.emplace_back(kHeads, std::vector<int>(kDim));
      weights.emplace_back(kHeads);
      for (int h = 0; h < kHeads; h++) {
        weights.back()[static_cast<size_t>(h)] = static_cast<float>(static_cast<int>((*random)() % 7) - 3) / 2;
        weight_tensor.set(t, h, weights.back()[static_cast<size_t>(h)]);
        for (int d = 1; d < kDim; d++)
          q.back()[static_cast<size_t>(h)][static_cast<size_t>(d)] = static_cast<int>((*random)() % 5) - 2;
        for (int d = 0; d < kDim; d++)
          q_tensor.set(t, h, d, static_cast<float>(q.back()[static_cast<size_t>(h)][static_cast<size_t>(d)]));
      }
    }
  }
  kvc_select_args args(const SelectCall &call, SelectedLists *out) {
    kvc_select_args args;
    kvc_select_args_init(&args);
    args.rule = call.rule;
    args.q = q_tensor.dl();
    if (call.weighted && call.rule == KVC_SELECT_RELU_SUM) args.weights = weight_tensor.dl();
    args.indices = out->dl();
    args.index_block = call.block;
    args.first_blocks = call.first;
    args.last_blocks = call.last;
    return args;
  }
};

}  // namespace kvt
