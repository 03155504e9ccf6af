// Which keys a query sees: the one rule of windows, chunks, sinks, left padding, spans and trees.
//
// A query at position p sees the positions visible_keys(rule, p, end), and the sinks below visible_sinks(rule, end).
// `end` is causal_end(p), unless the call or a span says otherwise. The key at index i of a row is at position i,
// except for the nodes of a token tree, which are the last keys of their row. Of those a query sees itself and its
// ancestors, if their positions are visible.
//
// Attention (mask.h), tables for other kernels (table_rules.h), the freeing of pages (src/sequence/group_rules.h) and
// the work plan (src/plan/work_plan.cc) all call these functions. Positions and tokens are below 2^30.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

// [begin, end); empty when begin >= end.
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

// Which positions are hidden from a query at p. All zeros hide nothing but what is after the query.
struct VisibleRule {
  int32_t window;  // > 0: positions up to p - window are hidden
  int32_t chunk;   // > 0: positions of other chunks are hidden; chunks are `chunk` positions long and begin at `first`
  int32_t sinks;   // positions below it are visible in spite of the window; then `first` is the same number
  int32_t first;   // positions below it are hidden unless they are sinks: left padding, or the number of sinks

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
// A streaming window: `sinks` first positions and the newest ones, `stream_window` in all. sinks < stream_window.
KVC_HOST_DEVICE VisibleRule see_stream(int32_t sinks, int32_t stream_window) {
  const VisibleRule rule = {stream_window - sinks, 0, sinks, sinks};
  return rule;
}

// A layer's rule, as its fields say it, and the fields from a rule. Neither has sinks or left padding.
KVC_HOST_DEVICE VisibleRule rule_of_layer(const kvc_backend_layer* layer) {
  const VisibleRule rule = {layer->window_tokens, layer->chunk_tokens, 0, 0};
  return rule;
}
inline void set_rule_of_layer(const VisibleRule& rule, kvc_backend_layer* layer) {
  layer->window_tokens = rule.window;
  layer->chunk_tokens = rule.chunk;
}

// The rule of a plan for other kernels, whose config was checked.
KVC_HOST_DEVICE VisibleRule rule_of_plan(const kvc_plan_config* config) {
  const VisibleRule rule = {static_cast<int32_t>(config->window_tokens), static_cast<int32_t>(config->chunk_tokens), 0,
                            0};
  return rule;
}

// The rule of a row in a layer with this rule. A row streams only in layers that hide nothing.
KVC_HOST_DEVICE VisibleRule rule_of_row(VisibleRule of_layer, const kvc_backend_rows* rows, int32_t row) {
  if (rows->stream_windows != nullptr && rows->stream_windows[row] > 0) {
    return see_stream(rows->stream_sinks[row], rows->stream_windows[row]);
  }
  if (rows->key_begins != nullptr) of_layer.first = rows->key_begins[row];
  return of_layer;
}

KVC_HOST_DEVICE bool hides_nothing(const VisibleRule& rule) { return rule.window <= 0 && rule.chunk <= 0; }

// A causal query at p sees positions below this.
KVC_HOST_DEVICE int32_t causal_end(int32_t p) { return p + 1; }

// The first position of the chunk of p, which may be below rule.first.
KVC_HOST_DEVICE int32_t chunk_begin(const VisibleRule& rule, int32_t p) {
  const int32_t rest = (p - rule.first) % rule.chunk;
  return p - (rest < 0 ? rest + rule.chunk : rest);
}

// The first position that a query at p sees, sinks aside. It never decreases as p grows.
KVC_HOST_DEVICE int32_t visible_begin(const VisibleRule& rule, int32_t p) {
  int32_t begin = rule.first;
  if (rule.window > 0 && p - rule.first >= rule.window) begin = p - rule.window + 1;
  if (rule.chunk <= 0) return begin;
  const int32_t of_chunk = chunk_begin(rule, p);
  return of_chunk > begin ? of_chunk : begin;
}

// The end of what a query at p sees: its chunk's, if that is before `end`.
KVC_HOST_DEVICE int32_t visible_end(const VisibleRule& rule, int32_t p, int32_t end) {
  if (rule.chunk <= 0) return end;
  const int32_t of_chunk = chunk_begin(rule, p) + rule.chunk;
  return of_chunk < end ? of_chunk : end;
}

// The positions that a query at p sees below `end`, sinks aside; empty when begin >= end.
KVC_HOST_DEVICE KeyRange visible_keys(const VisibleRule& rule, int32_t p, int32_t end) {
  const KeyRange range = {visible_begin(rule, p), visible_end(rule, p, end)};
  return range;
}

// The sinks below `end` are the positions [0, visible_sinks).
KVC_HOST_DEVICE int32_t visible_sinks(const VisibleRule& rule, int32_t end) {
  return rule.sinks < end ? rule.sinks : end;
}

// The position from which a query at p sees sinks: the tokens that a streaming row keeps count as contiguous.
KVC_HOST_DEVICE int32_t position_for_sinks(int32_t stream_window, int32_t p) {
  return p < stream_window ? p : stream_window - 1;
}

// The smallest p from which on no query sees positions below `begin`, sinks aside: the inverse of visible_begin.
// `begin` is above rule.first, and the rule hides something.
KVC_HOST_DEVICE int64_t first_query_beyond(const VisibleRule& rule, int32_t begin) {
  int64_t first = INT64_MAX;
  if (rule.window > 0) first = int64_t{begin} + rule.window - 1;
  if (rule.chunk <= 0) return first;
  const int64_t of_chunk = int64_t{chunk_begin(rule, begin - 1)} + rule.chunk;
  return of_chunk < first ? of_chunk : first;
}

// The most positions before its own that a query sees, sinks aside. The rule hides something.
KVC_HOST_DEVICE int32_t most_before(const VisibleRule& rule) {
  return (rule.window > 0 && (rule.chunk <= 0 || rule.window < rule.chunk) ? rule.window : rule.chunk) - 1;
}

// The token tree of a row: keys from index `begin` on are nodes[index - begin].
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

// What one query sees: of the keys with an index in `keys` those that are no nodes, and the nodes that sees_node picks.
struct QueryMask {
  KeyRange keys;       // indexes, within the row
  KeyRange positions;  // of the nodes that it may see
  int32_t enter;       // of the query's own node
  int32_t position;    // of the query, for biases
};

// Indexes of the keys that a query sees if it sees `positions`. own_index: of the query's key.
KVC_HOST_DEVICE KeyRange visible_indexes(const KeyTree& tree, KeyRange positions, int32_t own_index) {
  // Ancestors come before their descendants, and no node's position is above its index.
  if (positions.end > tree.begin) positions.end = causal_end(own_index);
  return positions;
}

// Whether the query sees the node at index `key`, which is in mask->keys and not below tree->begin.
KVC_HOST_DEVICE bool sees_node(const KeyTree* tree, const QueryMask* mask, int32_t key) {
  const kvc_backend_tree_node* node = tree->nodes + (key - tree->begin);
  return node->enter <= mask->enter && mask->enter < node->exit && node->position >= mask->positions.begin &&
         node->position < mask->positions.end;
}

// Whether the query sees the key at index `key`.
KVC_HOST_DEVICE bool sees_key(const KeyTree* tree, const QueryMask* mask, int32_t key) {
  if (key < mask->keys.begin || key >= mask->keys.end) return false;
  return key < tree->begin || sees_node(tree, mask, key);
}

// The same for the keys [begin, begin + count), count <= 16: bit i is key begin + i.
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
