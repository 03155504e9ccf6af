// kernels/common/visible.h and mask.h, compared with the definition of what a query sees, key by key.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/common/mask.h"

namespace kvc::kernels {
namespace {

// A row in the terms of the specification. 0 = there is no such rule.
struct Definition {
  int window = 0;   // a query at p sees p - w + 1 .. p
  int chunk = 0;    // it sees keys of its own chunk
  int padding = 0;  // keys before it are not seen, and chunks are counted from it
  int stream_window = 0, stream_sinks = 0;
  int committed = 0;             // tokens before the tree
  std::vector<int> parents;      // of the nodes of the tree; -1 = root
  std::vector<int> span_ends{};  // of each token of the row: keys below it are seen; empty: causal
  bool non_causal = false;

  int length() const { return committed + static_cast<int>(parents.size()); }
  // The position of a node: the committed tokens, plus the number of its ancestors.
  int position(int key) const {
    int position = key < committed ? key : committed;
    for (int node = key - committed; node >= 0 && parents[node] >= 0; node = parents[node]) ++position;
    return position;
  }
  bool is_ancestor_or_self(int node, int of) const {
    while (of > node) of = parents[of];
    return of == node;
  }
  std::string describe() const {
    return "window " + std::to_string(window) + " chunk " + std::to_string(chunk) + " padding " +
           std::to_string(padding) + " stream " + std::to_string(stream_sinks) + " of " +
           std::to_string(stream_window) + " committed " + std::to_string(committed) + " nodes " +
           std::to_string(parents.size());
  }
};

int floor_div(int a, int b) { return a / b - (a % b < 0 ? 1 : 0); }

bool is_sink(const Definition& d, int key) { return d.stream_window > 0 && d.position(key) < d.stream_sinks; }

// Whether the token at index `query` sees the key at index `key`, by the specification alone.
bool sees(const Definition& d, int query, int key) {
  const int p = d.position(query), j = d.position(key);
  if (j < d.padding) return false;
  if (d.window > 0 && !(p - d.window < j)) return false;
  if (d.chunk > 0 && floor_div(j - d.padding, d.chunk) != floor_div(p - d.padding, d.chunk)) return false;
  if (d.stream_window > 0 && j >= d.stream_sinks && j < p - (d.stream_window - d.stream_sinks) + 1) return false;
  if (key >= d.committed) return d.is_ancestor_or_self(key - d.committed, query - d.committed);
  if (d.non_causal) return true;
  return d.span_ends.empty() ? j <= p : j < d.span_ends[static_cast<size_t>(query)];
}

// One row in the form that backends get. Every token of it is a new one.
struct Call {
  explicit Call(const Definition& definition) : d(definition) {
    const int length = d.length();
    token_begin[1] = kv_length = length;
    for (int i = 0; i < length; ++i) positions.push_back(d.position(i));
    rows.num_rows = 1;
    rows.num_tokens = length;
    rows.token_begin = token_begin;
    rows.kv_lengths = &kv_length;
    rows.positions = positions.data();
    if (!d.span_ends.empty()) rows.key_ends = d.span_ends.data();
    if (d.padding > 0) rows.key_begins = &d.padding;
    if (d.stream_window > 0) rows.stream_sinks = &d.stream_sinks, rows.stream_windows = &d.stream_window;
    number_nodes(-1);
    if (!nodes.empty()) {
      rows.tree_begin = &d.committed;
      rows.tree_offset = &offset;
      rows.tree_nodes = nodes.data();
    }
    layer.window_tokens = d.window;
    layer.chunk_tokens = d.chunk;
    plan.flags = d.non_causal ? uint32_t{KVC_ATTEND_NON_CAUSAL} : 0;
    args.plan = &plan;
    args.layer = &layer;
    item.q_end = item.key_end = length;
  }
  Call(const Call&) = delete;

  // Depth first: a node's interval holds those of its descendants.
  void number_nodes(int parent) {
    nodes.resize(d.parents.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (d.parents[i] != parent) continue;
      nodes[i].position = d.position(d.committed + static_cast<int>(i));
      nodes[i].parent = parent;
      nodes[i].enter = next++;
      number_nodes(static_cast<int>(i));
      nodes[i].exit = next;
    }
  }

  Definition d;
  int32_t token_begin[2] = {0, 0}, kv_length = 0, offset = 0, next = 0;
  std::vector<int32_t> positions;
  std::vector<kvc_backend_tree_node> nodes;
  kvc_backend_layer layer = {};
  kvc_backend_plan plan = {};
  kvc_backend_rows& rows = plan.arrays.rows;
  kvc_backend_attend args = {};
  kvc_backend_item item = {};
};

// Checks every query of the row with every key, in both parts that items of a streaming row have.
void check_row(const Definition& definition) {
  Call call(definition);
  const Definition& d = call.d;
  const KeyTree tree = tree_of_row(&call.rows, 0);
  for (const int part : {KVC_BACKEND_PART_ALL, KVC_BACKEND_PART_SINKS}) {
    if (part == KVC_BACKEND_PART_SINKS && d.stream_sinks == 0) continue;
    call.item.part = part;
    for (int query = 0; query < d.length(); ++query) {
      const QueryMask mask = query_mask(&call.args, &call.item, 0, query);
      const int p = d.position(query);
      ASSERT_EQ(mask.position, part == KVC_BACKEND_PART_SINKS ? std::min(p, d.stream_window - 1) : p);
      for (int key = 0; key < d.length(); ++key) {
        const bool in_part = is_sink(d, key) == (part == KVC_BACKEND_PART_SINKS);
        const bool expected = in_part && sees(d, query, key);
        ASSERT_EQ(key_position(&tree, key), d.position(key));
        ASSERT_EQ(sees_key(&tree, &mask, key), expected)
            << d.describe() << " part " << part << " query " << query << " at " << p << " key " << key;
        ASSERT_EQ(seen_bits(&tree, &mask, key / 16 * 16, 16) >> key % 16 & 1, expected ? 1u : 0u)
            << d.describe() << " part " << part << " query " << query << " at " << p << " key " << key;
      }
    }
  }
}

TEST(Visible, PlainRowsWindowsAndChunks) {
  for (const int padding : {0, 1, 7, 40}) {
    for (const int window : {0, 1, 2, 5, 24, 25, 100}) {
      for (const int chunk : {0, 1, 2, 6, 24, 25, 100}) {
        for (const bool non_causal : {false, true}) {
          Definition d;
          d.window = window;
          d.chunk = chunk;
          d.padding = padding;
          d.committed = 25;
          d.non_causal = non_causal;
          ASSERT_NO_FATAL_FAILURE(check_row(d));
        }
      }
    }
  }
}

TEST(Visible, Streams) {
  for (const auto& [sinks, window] : {std::pair{0, 1}, {0, 6}, {1, 2}, {4, 9}, {7, 8}, {3, 25}, {3, 26}, {30, 40}}) {
    Definition d;
    d.stream_sinks = sinks;
    d.stream_window = window;
    d.committed = 26;
    ASSERT_NO_FATAL_FAILURE(check_row(d));
  }
}

TEST(Visible, Spans) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    Definition d;
    d.committed = 30;
    d.window = round % 3 == 1 ? 1 + static_cast<int>(random() % 20) : 0;
    d.chunk = round % 3 == 2 ? 1 + static_cast<int>(random() % 20) : 0;
    while (d.span_ends.size() < 30) {
      const size_t size = std::min<size_t>(1 + random() % 9, 30 - d.span_ends.size());
      const int end = static_cast<int>(d.span_ends.size() + size);
      d.span_ends.insert(d.span_ends.end(), size, end);
    }
    ASSERT_NO_FATAL_FAILURE(check_row(d));
  }
}

TEST(Visible, Trees) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 400; ++round) {
    Definition d;
    d.committed = below(3) * below(20);
    for (int i = 0, count = 1 + below(40); i < count; ++i) d.parents.push_back(below(i + 1) - 1);
    if (round % 4 == 1) d.window = 1 + below(20);
    if (round % 4 == 2) d.chunk = 1 + below(20);
    if (round % 4 == 3) d.stream_sinks = below(12), d.stream_window = d.stream_sinks + 1 + below(12);
    // Plain queries before the tree see none of its nodes. A row with a tree has no new tokens but its nodes.
    Call call(d);
    const KeyTree tree = tree_of_row(&call.rows, 0);
    call.token_begin[1] = static_cast<int32_t>(d.parents.size());
    for (const int part : {KVC_BACKEND_PART_ALL, KVC_BACKEND_PART_SINKS}) {
      if (part == KVC_BACKEND_PART_SINKS && d.stream_sinks == 0) continue;
      call.item.part = part;
      call.rows.positions = call.positions.data() + d.committed;
      for (int node = 0; node < static_cast<int>(d.parents.size()); ++node) {
        const QueryMask mask = query_mask(&call.args, &call.item, 0, node);
        for (int key = 0; key < d.length(); ++key) {
          ASSERT_EQ(key_position(&tree, key), d.position(key)) << d.describe() << " key " << key;
          const bool in_part = is_sink(d, key) == (part == KVC_BACKEND_PART_SINKS);
          ASSERT_EQ(sees_key(&tree, &mask, key), in_part && sees(d, d.committed + node, key))
              << d.describe() << " part " << part << " node " << node << " key " << key;
        }
      }
    }
  }
}

// The functions that the freeing of pages and tables use, compared with what single queries see.
TEST(Visible, WhatLaterQueriesSee) {
  std::vector<Definition> definitions;
  for (const int n : {1, 2, 7, 16}) {
    definitions.resize(definitions.size() + 3);
    (definitions.end() - 3)->window = n;
    (definitions.end() - 2)->chunk = n;
    (definitions.end() - 1)->stream_window = n + 3;
    (definitions.end() - 1)->stream_sinks = 3;
  }
  for (Definition& d : definitions) {
    constexpr int kLength = 70;
    d.committed = kLength;
    const Call call(d);
    const VisibleRule rule = rule_of_row({d.window, d.chunk, 0, 0}, &call.rows, 0);
    EXPECT_FALSE(hides_nothing(rule));
    EXPECT_EQ(visible_sinks(rule, INT32_MAX), d.stream_sinks);
    EXPECT_EQ(visible_sinks(rule, 2), std::min(d.stream_sinks, 2));
    std::vector<int> first(kLength), next(kLength);  // keys of each query, sinks aside: [first, next)
    int most = 0;
    for (int p = 0; p < kLength; ++p) {
      for (int j = 0; j < kLength; ++j) {
        if (is_sink(d, j) || !sees(d, p, j)) continue;
        if (next[p] == 0) first[p] = j;
        next[p] = j + 1;
        most = std::max(most, p - j);
      }
      if (next[p] == 0) continue;  // it sees sinks alone
      EXPECT_EQ(visible_begin(rule, p), first[p]) << d.describe() << " p " << p;
      EXPECT_EQ(visible_end(rule, p, causal_end(p)), next[p]) << d.describe() << " p " << p;
    }
    EXPECT_EQ(most_before(rule), most) << d.describe();
    for (int begin = d.stream_sinks + 1; begin < kLength - 20; ++begin) {
      int p = 0;
      while (next[p] == 0 || first[p] < begin) ++p;
      EXPECT_EQ(first_query_beyond(rule, begin), p) << d.describe() << " begin " << begin;
    }
    for (int p = 0; p < kLength; ++p) {  // the queries in p's chunk
      int end = p + 1;
      while (d.chunk > 0 && end < kLength && sees(d, end, p)) ++end;
      EXPECT_EQ(visible_end(rule, p, kLength), d.chunk > 0 ? end : kLength) << d.describe() << " p " << p;
    }
  }
  EXPECT_TRUE(hides_nothing({}));
}

}  // namespace
}  // namespace kvc::kernels
