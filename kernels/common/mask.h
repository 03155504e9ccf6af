// Which keys a query sees: the only place where masks are decided.
//
// Windows, chunks, streaming windows and spans are ranges of positions, and so are past and self of indexes: what a
// query sees is one range of key indexes. Only nodes of a token tree, the last keys of their row, are picked one by
// one.
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

// The tree of a row: keys from index `begin` on are nodes[index - begin].
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

// What one query of an item sees: the keys of `keys` that are no nodes, and of the nodes there those that sees_node.
struct QueryMask {
  KeyRange keys;       // indexes, within the row
  KeyRange positions;  // of the nodes that it may see
  int32_t enter;       // of the query's own node
  int32_t position;    // of the query, for biases
};

KVC_HOST_DEVICE int32_t floor_to(int32_t n, int32_t multiple) {
  const int32_t rest = n % multiple;
  return n - (rest < 0 ? rest + multiple : rest);
}

// The first key that is not left padding.
KVC_HOST_DEVICE int32_t first_key_of_row(const kvc_backend_rows* rows, int32_t row) {
  return rows->key_begins == nullptr ? 0 : rows->key_begins[row];
}

// Positions that the rules of layer, row and call let a query see, whatever the item covers.
KVC_HOST_DEVICE KeyRange visible_positions(const kvc_backend_attend* args, const kvc_backend_item* item, int32_t row,
                                           int32_t token) {
  const kvc_backend_rows* rows = args->rows;
  const int32_t p = rows->positions[token], first_key = first_key_of_row(rows, row);
  const int32_t window = args->layer->window_tokens, chunk = args->layer->chunk_tokens;
  KeyRange range = {window > 0 && p - first_key >= window ? p - window + 1 : first_key, p + 1};
  if (rows->key_ends != nullptr) range.end = rows->key_ends[token];
  if ((args->flags & KVC_ATTEND_NON_CAUSAL) != 0) range.end = INT32_MAX;
  if (chunk > 0) {
    const int32_t begin = first_key + floor_to(p - first_key, chunk);
    const KeyRange of_chunk = {begin, begin + chunk};
    range = intersect(range, of_chunk);
  }
  const int32_t stream_window = rows->stream_windows == nullptr ? 0 : rows->stream_windows[row];
  if (stream_window > 0) {
    const int32_t sinks = rows->stream_sinks[row], first = p - (stream_window - sinks) + 1;
    const KeyRange part =
        item->part == KVC_BACKEND_PART_SINKS ? KeyRange{0, sinks} : KeyRange{first > sinks ? first : sinks, INT32_MAX};
    range = intersect(range, part);
  }
  return range;
}

// Where a query stands for biases: the kept tokens of a streaming row count as contiguous.
KVC_HOST_DEVICE int32_t bias_position(const kvc_backend_attend* args, const kvc_backend_item* item, int32_t row,
                                      int32_t token) {
  const int32_t p = args->rows->positions[token];
  if (item->part != KVC_BACKEND_PART_SINKS) return p;
  const int32_t last = args->rows->stream_windows[row] - 1;
  return p < last ? p : last;
}

// Mask of query `query` of `row`, over the item's keys.
KVC_HOST_DEVICE QueryMask query_mask(const kvc_backend_attend* args, const kvc_backend_item* item, int32_t row,
                                     int32_t query) {
  const kvc_backend_rows* rows = args->rows;
  const int32_t token = rows->token_begin[row] + query, length = rows->kv_lengths[row];
  const int32_t first_new = length - (rows->token_begin[row + 1] - rows->token_begin[row]);
  const KeyTree tree = tree_of_row(rows, row);
  QueryMask mask;
  mask.position = bias_position(args, item, row, token);
  mask.positions = visible_positions(args, item, row, token);
  mask.enter = 0;
  KeyRange covered = {item->key_begin, item->key_end < length ? item->key_end : length};
  if ((args->flags & KVC_ATTEND_PAST) != 0 && first_new < covered.end) covered.end = first_new;
  if ((args->flags & KVC_ATTEND_SELF) != 0 && first_new > covered.begin) covered.begin = first_new;
  mask.keys = mask.positions;
  if (mask.positions.end > tree.begin) {
    // Ancestors come before their descendants, and no node's position is above its index.
    mask.enter = tree.nodes[first_new + query - tree.begin].enter;
    mask.keys.end = first_new + query + 1;
  }
  mask.keys = intersect(mask.keys, covered);
  return mask;
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
