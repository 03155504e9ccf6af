// The naive model of recurrent states: what a sequence's states are after each of its tokens and nodes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "wrappers.h"

namespace kvt {

inline constexpr int32_t kMaxNodes = 16;
inline constexpr int kPageSize = 4, kWindow = 5, kChunk = 6, kRollback = 6, kSequences = 6, kCheckpoints = 2;

inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u ^ (b + 0x7F4A7C15u) * 0xBF58476D1CE4E5B9u;
  x ^= x >> 31;
  return x * 0x94D049BB133111EBu;
}

struct StateSpec {
  int layer, index, rank;
  DLDataType dtype;
  int64_t shape[4];
  double fill;

  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= shape[i];
    return n;
  }
};

// Layers: 0 sliding, 1 and 3 recurrent (group 1), 2 full, 4 recurrent (group 3), 5 chunked, 6 MLA.
inline constexpr int kNumLayers = 7, kNumGroups = 6, kDim = 4;
inline constexpr int kAttending[] = {0, 2, 5, 6};
inline constexpr DLDataType kF32 = {kDLFloat, 32, 1}, kF16 = {kDLFloat, 16, 1}, kBF16 = {kDLBfloat, 16, 1},
                            kI32 = {kDLInt, 32, 1}, kI64 = {kDLInt, 64, 1};
inline const StateSpec kStates[] = {{1, 0, 2, kF32, {3, 5}, -1e30}, {1, 1, 1, kBF16, {7}, 0},
                                    {1, 2, 1, kI64, {3}, 151643},   {3, 0, 4, kF16, {1, 2, 3, 2}, 0.5},
                                    {4, 0, 3, kF32, {2, 2, 2}, 0},  {4, 1, 2, kI32, {1, 3}, -7}};

// States of rows, for `tokens` tokens of each row: [rows, tokens, shape].
struct States {
  const StateSpec &spec;
  int64_t rows, tokens, element_bytes = spec.dtype.bits / 8;
  std::vector<uint8_t> bytes =
      std::vector<uint8_t>(static_cast<size_t>(rows * tokens * spec.elements() * element_bytes));
  int64_t shape[5] = {}, strides[5] = {};
  DLTensor view = {};

  uint8_t *at(int64_t row, int64_t token) {
    return bytes.data() + (row * tokens + token) * spec.elements() * element_bytes;
  }
  // The state after a history; history 1 is the empty one.
  void set(int64_t row, int64_t token, uint64_t history) {
    for (int64_t e = 0; e < spec.elements(); e++) {
      const double value =
          history == 1 ? spec.fill : static_cast<double>(mix(history, static_cast<uint64_t>(e + spec.layer)) % 251);
      uint8_t *const to = at(row, token) + e * element_bytes;
      const auto whole = static_cast<int64_t>(value);
      if (spec.dtype.code == kDLInt) {
        std::memcpy(to, &whole, static_cast<size_t>(element_bytes));
      } else {
        store(element_bytes == 4            ? DType::kF32
              : spec.dtype.code == kDLFloat ? DType::kF16
                                            : DType::kBF16,
              to, 0, static_cast<float>(value));
      }
    }
  }
  // The states at one token: [rows, shape].
  const DLTensor *at_token(int64_t token) {
    shape[0] = rows;
    strides[0] = tokens * spec.elements();
    for (int64_t i = spec.rank, compact = 1; i > 0; compact *= shape[i--]) {
      shape[i] = spec.shape[i - 1];
      strides[i] = compact;
    }
    view = {at(0, token), test_device(), spec.rank + 1, spec.dtype, shape, strides, 0};
    return &view;
  }
};

struct Node {
  uint64_t token;
  int32_t parent;
  bool kept;  // its state is
};

struct Sequence {
  std::vector<uint64_t> tokens;      // of its length
  std::vector<Node> nodes;           // an uncommitted tree
  std::vector<int64_t> checkpoints;  // ascending
  int64_t dropped = 0;               // pages that left the window,
  int64_t dropped_chunks = 0;        // and of earlier chunks

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  void slide() {
    const int64_t from = std::max<int64_t>(0, length() - kRollback);
    dropped = std::max(dropped, std::max<int64_t>(0, from - kWindow + 1) / kPageSize);
    dropped_chunks = std::max(dropped_chunks, from / kChunk * kChunk / kPageSize);
  }
  bool works_at(int64_t position) const {
    const bool window =
        dropped == 0 || position == 0 || dropped * kPageSize <= std::max<int64_t>(0, position - kWindow + 1);
    const bool chunk = dropped_chunks == 0 || position == 0 || dropped_chunks * kPageSize <= position / kChunk * kChunk;
    const bool state = position == 0 || position == length() ||
                       std::find(checkpoints.begin(), checkpoints.end(), position) != checkpoints.end();
    return window && chunk && state;
  }
  void cut(int64_t position) {
    tokens.resize(static_cast<size_t>(position));
    nodes.clear();
    while (!checkpoints.empty() && checkpoints.back() > position) checkpoints.pop_back();
    dropped = std::min(dropped, (position + kPageSize - 1) / kPageSize);
    dropped_chunks = std::min(dropped_chunks, (position + kPageSize - 1) / kPageSize);
  }
  // All tokens up to a node; -1: those of its length.
  std::vector<uint64_t> tokens_to(int32_t node) const {
    std::vector<uint64_t> all;
    for (; node >= 0; node = nodes[static_cast<size_t>(node)].parent) {
      all.insert(all.begin(), nodes[static_cast<size_t>(node)].token);
    }
    all.insert(all.begin(), tokens.begin(), tokens.end());
    return all;
  }
  uint64_t history(int32_t node) const {
    uint64_t h = 1;
    for (uint64_t t : tokens_to(node)) h = mix(h, t);
    return h;
  }
  bool has_state_of(int32_t node, int32_t draft_states) const {
    const auto count = static_cast<int32_t>(nodes.size());
    return node == count - 1 || (node < draft_states && nodes[static_cast<size_t>(node)].kept);
  }
  int32_t num_nodes() const { return static_cast<int32_t>(nodes.size()); }
};

// A row of a step.
struct Row {
  kvc_seq seq;
  bool tree;
  Sequence after;     // the sequence with the row's tokens or nodes
  int32_t first = 0;  // node of its first token
  std::vector<uint64_t> fresh;

  int32_t length() const { return static_cast<int32_t>(fresh.size()); }
  // All tokens up to token i of the row, itself included.
  std::vector<uint64_t> tokens_to(int32_t i) const {
    if (tree) return after.tokens_to(first + i);
    std::vector<uint64_t> all = after.tokens;
    all.resize(all.size() - fresh.size() + static_cast<size_t>(i) + 1);
    return all;
  }
  uint64_t history_to(int32_t i) const {
    uint64_t h = 1;
    for (uint64_t t : tokens_to(i)) h = mix(h, t);
    return h;
  }
};

}  // namespace kvt
