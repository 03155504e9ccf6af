// Defines which keys a query sees. The library has no other rule for windows, chunks, sinks, left padding, spans and
// trees.
//
// A query at position p sees the positions visible_keys(rule, p, end), and the sinks. The sinks are the positions [0,
// visible_sinks(rule, end)). `end` is causal_end(p), unless the call or a span sets another end. With
// KVC_ATTEND_STEP_WINDOW, the positions begin for all queries of a row where they begin for the first query of this row
// in the step (mask.h).
//
// The key at index i of a row is at position i, unless the key is a node of a token tree. The nodes are the last keys
// of the row. A query that is a node sees no other nodes than itself and its ancestors. It sees such a node only if the
// node's position is visible.
//
// Attention (mask.h), tables for other kernels (table_rules.h), the freeing of pages (src/sequence/group_rules.h) and
// the work plan (src/plan/work_plan.cc) use these functions. Positions are below 2^30, and a row has at most 2^30
// tokens.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

// A range [begin, end). It is empty if begin >= end.
struct KeyRange {
  int32_t begin;
  int32_t end;
};

KVC_HOST_DEVICE KeyRange intersect(KeyRange a, KeyRange b) {
  KeyRange range;
  range.begin = a.begin > b.begin ? a.begin : b.begin;
  range.end = a.end < b.end ? a.end : b.end;
  if (range.end < range.begin) range.end = range.begin;
  return range;
}

// Says which positions are hidden from a query at p. If all fields are 0, only the positions after p are hidden.
struct VisibleRule {
  int32_t window;  // > 0: positions up to p - window are hidden
  int32_t chunk;   // > 0: other chunks are hidden; a chunk has `chunk` positions, and the first one begins at `first`
  int32_t sinks;   // > 0: positions below `sinks` are visible despite the window, and `first` equals `sinks`
  int32_t first;   // the left padding, or the number of sinks; positions below `first` are hidden, except sinks

  friend bool operator==(const VisibleRule&, const VisibleRule&) = default;
};

KVC_HOST_DEVICE VisibleRule see_window(int32_t window) {
  const VisibleRule rule = {window, 0, 0, 0};
  return rule;
}
KVC_HOST_DEVICE VisibleRule see_chunk(int32_t chunk) {
  const VisibleRule rule = {0, chunk, 0, 0};
  return rule;
}
// Returns the rule of a streaming window, which has `stream_window` positions: the first `sinks` positions, and the
// newest stream_window - sinks positions. sinks < stream_window.
KVC_HOST_DEVICE VisibleRule see_stream(int32_t sinks, int32_t stream_window) {
  const VisibleRule rule = {stream_window - sinks, 0, sinks, sinks};
  return rule;
}

// Converts a layer's fields to a rule, and a rule to fields. A layer's rule has no sinks and no left padding.
KVC_HOST_DEVICE VisibleRule rule_of_layer(const kvc_backend_layer* layer) {
  const VisibleRule rule = {layer->window_tokens, layer->chunk_tokens, 0, 0};
  return rule;
}
inline void set_rule_of_layer(const VisibleRule& rule, kvc_backend_layer* layer) {
  layer->window_tokens = rule.window;
  layer->chunk_tokens = rule.chunk;
}

// Returns the rule of a plan for kernels of other projects. The caller has checked `config`.
KVC_HOST_DEVICE VisibleRule rule_of_plan(const kvc_plan_config* config) {
  const VisibleRule rule = {static_cast<int32_t>(config->window_tokens), static_cast<int32_t>(config->chunk_tokens), 0,
                            0};
  return rule;
}

// Returns the rule of a row. of_layer: the rule of its layer. Rows have streaming windows only in layers that hide
// nothing.
KVC_HOST_DEVICE VisibleRule rule_of_row(VisibleRule of_layer, const kvc_backend_rows* rows, int32_t row) {
  if (rows->stream_windows != nullptr && rows->stream_windows[row] > 0) {
    return see_stream(rows->stream_sinks[row], rows->stream_windows[row]);
  }
  if (rows->key_begins != nullptr) of_layer.first = rows->key_begins[row];
  return of_layer;
}

KVC_HOST_DEVICE bool hides_nothing(const VisibleRule& rule) { return rule.window <= 0 && rule.chunk <= 0; }

// Returns the end of the positions that a causal query at p sees.
KVC_HOST_DEVICE int32_t causal_end(int32_t p) { return p + 1; }

// Returns the first position of the chunk of p. It may be below rule.first.
KVC_HOST_DEVICE int32_t chunk_begin(const VisibleRule& rule, int32_t p) {
  const int32_t rest = (p - rule.first) % rule.chunk;
  return p - (rest < 0 ? rest + rule.chunk : rest);
}

// Returns the first position that a query at p sees, not counting sinks. The result never decreases as p grows.
KVC_HOST_DEVICE int32_t visible_begin(const VisibleRule& rule, int32_t p) {
  int32_t begin = rule.first;
  if (rule.window > 0 && p - rule.first >= rule.window) begin = p - rule.window + 1;
  if (rule.chunk <= 0) return begin;
  const int32_t of_chunk = chunk_begin(rule, p);
  return of_chunk > begin ? of_chunk : begin;
}

// Returns the end of the positions that a query at p sees: the end of its chunk, or `end` if that is lower.
KVC_HOST_DEVICE int32_t visible_end(const VisibleRule& rule, int32_t p, int32_t end) {
  if (rule.chunk <= 0) return end;
  const int32_t of_chunk = chunk_begin(rule, p) + rule.chunk;
  return of_chunk < end ? of_chunk : end;
}

// Returns the positions below `end` that a query at p sees, without sinks. The range is empty if begin >= end.
KVC_HOST_DEVICE KeyRange visible_keys(const VisibleRule& rule, int32_t p, int32_t end) {
  const KeyRange range = {visible_begin(rule, p), visible_end(rule, p, end)};
  return range;
}

// Returns the end of the sinks that are below `end`. These sinks are at the positions [0, result).
KVC_HOST_DEVICE int32_t visible_sinks(const VisibleRule& rule, int32_t end) {
  return rule.sinks < end ? rule.sinks : end;
}

// Returns the position from which the distances of a query at p to its sinks are counted. These distances leave out the
// tokens between the sinks and the window.
KVC_HOST_DEVICE int32_t position_for_sinks(int32_t stream_window, int32_t p) {
  return p < stream_window ? p : stream_window - 1;
}

// Returns the smallest p for which no query at p or later sees a position below `begin`, not counting sinks. This
// function is the inverse of visible_begin. `begin` must be above rule.first, and the rule must hide something.
KVC_HOST_DEVICE int64_t first_query_beyond(const VisibleRule& rule, int32_t begin) {
  int64_t first = INT64_MAX;
  if (rule.window > 0) first = int64_t{begin} + rule.window - 1;
  if (rule.chunk <= 0) return first;
  const int64_t of_chunk = int64_t{chunk_begin(rule, begin - 1)} + rule.chunk;
  return of_chunk < first ? of_chunk : first;
}

// Returns the largest number of earlier positions that a query sees, not counting sinks. The rule must hide something.
KVC_HOST_DEVICE int32_t most_before(const VisibleRule& rule) {
  return (rule.window > 0 && (rule.chunk <= 0 || rule.window < rule.chunk) ? rule.window : rule.chunk) - 1;
}

// The token tree of a row. The key at index i is nodes[i - begin], for i >= begin.
struct KeyTree {
  int32_t begin;  // INT32_MAX = no tree
  const kvc_backend_tree_node* nodes;
};

KVC_HOST_DEVICE KeyTree tree_of_row(const kvc_backend_rows* rows, int32_t row) {
  KeyTree tree = {INT32_MAX, nullptr};
  if (rows->tree_begin == nullptr || rows->tree_begin[row] >= rows->kv_lengths[row]) return tree;
  tree.begin = rows->tree_begin[row];
  tree.nodes = rows->tree_nodes + rows->tree_offset[row];
  return tree;
}

KVC_HOST_DEVICE int32_t key_position(const KeyTree* tree, int32_t key) {
  return key < tree->begin ? key : tree->nodes[key - tree->begin].position;
}

// QueryMask says what one query sees: the keys with an index in `keys` that are not nodes, and those nodes in `keys`
// for which sees_node returns true.
struct QueryMask {
  KeyRange keys;       // indexes, within the row
  KeyRange positions;  // the positions that a visible node may have
  int32_t enter;       // kvc_backend_tree_node.enter of the query's own node; 0 if the query is not a node
  int32_t position;    // position of the query, for biases
};

// Returns the indexes that a query can see if it sees `positions`. own_index: the index of the query's own key.
KVC_HOST_DEVICE KeyRange visible_indexes(const KeyTree& tree, KeyRange positions, int32_t own_index) {
  // If the query is a node, its own key is the last key that it can see, because ancestors come before their
  // descendants. The position of a node is at most its index, so no visible node has an index below positions.begin.
  if (positions.end > tree.begin) positions.end = causal_end(own_index);
  return positions;
}

// Returns whether the query sees the node at index `key`. `key` must be in mask->keys, and at least tree->begin.
KVC_HOST_DEVICE bool sees_node(const KeyTree* tree, const QueryMask* mask, int32_t key) {
  const kvc_backend_tree_node* node = tree->nodes + (key - tree->begin);
  return node->enter <= mask->enter && mask->enter < node->exit && node->position >= mask->positions.begin &&
         node->position < mask->positions.end;
}

// Returns whether the query sees the key at index `key`.
KVC_HOST_DEVICE bool sees_key(const KeyTree* tree, const QueryMask* mask, int32_t key) {
  if (key < mask->keys.begin || key >= mask->keys.end) return false;
  return key < tree->begin || sees_node(tree, mask, key);
}

// Returns which of the keys [begin, begin + count) the query sees. Bit i of the result is for key begin + i. count is
// at most 16.
KVC_HOST_DEVICE uint32_t seen_bits(const KeyTree* tree, const QueryMask* mask, int32_t begin, int32_t count) {
  const KeyRange block = {begin, begin + count}, keys = intersect(mask->keys, block);
  if (keys.begin >= keys.end) return 0;
  uint32_t bits = (1u << (keys.end - begin)) - (1u << (keys.begin - begin));
  for (int32_t key = keys.begin > tree->begin ? keys.begin : tree->begin; key < keys.end; ++key) {
    if (!sees_node(tree, mask, key)) bits &= ~(1u << (key - begin));
  }
  return bits;
}

}  // namespace kvc::kernels
