// One work item as both attention kernels read it: sizes and strides, addresses of keys, and the rows of a pass.
//
// A row is a pair of a query and a query head of one kv head. Row r of an item is query r / group and head r % group,
// so adjacent rows have equal or similar masks. A shared item has queries of several rows of the batch: those of its
// kvc_backend_spans, one span after another. A pass computes as many rows as fit the scratch.
//
// A key has an index, a position and a number. The index is its place in its sequence. Windows and biases use the
// position. The position differs from the index only for nodes of a token tree. The number is the key's place in the
// order in which kernels read keys. The number equals the index, with two exceptions. With lists of keys, the number is
// the place in the query's list. In a tree of a deterministic cache, it is the place on the query's path (tree_path.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/block_row.h"
#include "kernels/common/hadamard.h"
#include "kernels/common/page_walk.h"
#include "kernels/common/rope_table.h"
#include "kernels/common/scales.h"
#include "kernels/common/stored_format.h"
#include "kernels/common/tree_path.h"
#include "kernels/cpu/attend/score.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

struct View {
  const kvc_backend_attend* args;
  const kvc_backend_layer* layer;
  const kvc_backend_item* item;
  Scratch* scratch;
  int32_t group;  // q heads of a kv head
  int32_t head_dim;
  int32_t v_head_dim;
  int32_t first_query;           // the item's first query to compute; 0 unless the call has lists
  int32_t num_rows;              // queries x group
  int32_t head_begin, head_end;  // kv heads
  KeyTree tree;                  // of the item's row. Empty in a shared item, and if the call numbers keys by paths
  KeyTree path;                  // the same tree if the call numbers keys by paths (tree_path.h); else empty
  const ListedQuery* listed;     // null: no lists. Else the query to compute and its listed keys
  KeyTree listed_tree;           // with lists: the row's tree, for positions
  // From this number on, a row may see only some keys of its range (QueryMask::keys), so each of these keys is tested.
  // It is the number of the first node of `tree`, or 0 if the call has a mask.
  int32_t picked_begin;
  const int32_t* key_indexes;  // null: numbers are indexes. Else the indexes of a list's keys, or of a path's keys
  int32_t indexes_begin;       // number of the key at key_indexes[0]
  const double* key_table;     // null: K is not rotated on read. Else the table for its rotation
  // Whether K and V are copied to scratch as float32 (staged_keys.h). This is so if K is rotated on read, lies in two
  // pools, or has 4 bits. A decode kernel that loads 4 bits itself (kNibbles) sets this to false.
  bool staged;
  // The byte offset of the block scales in a row of K, and in a row of V. Used only if rows have block scales.
  int32_t k_block_scales, v_block_scales;
  BlockRow block_row;              // of block rows
  int32_t k_rotation, v_rotation;  // block sizes of rows that are stored rotated (hadamard.h); 0: not rotated
  ScoreOptions options;
  // Without score options, scores are plain dot products, because a multiplication by the scale would add a rounding
  // error to large scores. The weight of a key is p = 2^((score - m) * exp2_scale). The largest dot product is the
  // largest score only if the softmax scale is positive. So q is multiplied by the sign of that scale (by 0 for 0).
  float exp2_scale;      // |softmax scale| * log2(e); with options log2(e)
  double natural_scale;  // |softmax scale|; with options 1
  float q_sign;
  float stored_unit;     // value = loaded element * stored_unit * scale of the element; 1 except for e4m3
  int64_t k_head_bytes;  // from one kv head to the next in pool k
  int64_t v_head_bytes;  // from one kv head to the next in pool v
};

KVC_INLINE int32_t round_up(int32_t n, int32_t multiple) { return (n + multiple - 1) / multiple * multiple; }
KVC_INLINE int32_t min_of(int32_t a, int32_t b) { return a < b ? a : b; }
KVC_INLINE int32_t max_of(int32_t a, int32_t b) { return a > b ? a : b; }

[[gnu::noinline]] static View make_view(const kvc_backend_attend* args, const kvc_backend_item* item,
                                        const ListedQuery* listed, Scratch* scratch) {
  const kvc_backend_layer* layer = args->layer;
  View view;
  view.args = args;
  view.layer = layer;
  view.item = item;
  view.scratch = scratch;
  view.group = layer->num_q_heads / layer->num_kv_heads;
  view.head_dim = layer->head_dim;
  view.v_head_dim = layer->v_head_dim;
  view.first_query = 0;
  view.num_rows = (item->q_end - item->q_begin) * view.group;
  view.head_begin = item->head_begin;
  view.head_end = item->head_end;
  constexpr KeyTree kNoTree = {INT32_MAX, nullptr};
  view.tree = is_shared(item) ? kNoTree : tree_of_row(&args->plan->arrays.rows, item->row);
  view.path = kNoTree;
  if (args->plan->fold_keys > 0) {
    view.path = view.tree;
    view.tree = kNoTree;
  }
  view.listed = listed;
  view.listed_tree = kNoTree;
  view.key_indexes = nullptr;
  view.indexes_begin = 0;
  if (listed != nullptr) {
    view.first_query = listed->query;
    view.num_rows = view.group;
    view.head_begin = listed->head_begin;
    view.head_end = listed->head_end;
    view.listed_tree = view.path.nodes != nullptr ? view.path : view.tree;
    view.tree = view.path = kNoTree;
    view.key_indexes = listed->keys;
  }
  view.picked_begin = args->bias.mask != nullptr ? 0 : view.tree.begin;
  view.key_table = key_table_of_row(args, item->row);
  view.staged =
      view.key_table != nullptr || layer->row_kind == KVC_BACKEND_ROW_LATENT_SPLIT || is_packed(stored_type(*layer));
  view.block_row = has_block_rows(layer->format) ? block_row(*layer) : BlockRow{};
  view.k_block_scales = block_scales_at(*layer, layer->head_dim);
  view.v_block_scales = block_scales_at(*layer, layer->v_head_dim);
  view.k_rotation = rotation_block(*layer, layer->head_dim);
  view.v_rotation = rotation_block(*layer, layer->v_head_dim);
  const double scale = args->softmax_scale != 0.0 ? args->softmax_scale : static_cast<double>(layer->softmax_scale);
  view.q_sign = scale > 0.0 ? 1.0f : scale < 0.0 ? -1.0f : 0.0f;
  view.natural_scale = scale > 0.0 ? scale : scale < 0.0 ? -scale : 1.0;
  view.options = score_options(args, item->row, view.natural_scale);
  if (view.options.any) view.natural_scale = 1.0;
  view.exp2_scale = static_cast<float>(view.natural_scale * 1.44269504088896340736);
  view.stored_unit = stored_type(*layer) == Type::kE4m3 ? kE4m3Unit : 1.0f;
  view.k_head_bytes = layer->k.head_stride_bytes;
  view.v_head_bytes = layer->v.head_stride_bytes;
  return view;
}

// Returns what a query sees of the places in its list: all places that belong to the item.
static QueryMask listed_mask(const View& view, const QueryPlace& place) {
  const KeyRange item_keys = {view.item->key_begin, view.item->key_end}, listed = {0, view.listed->num_keys};
  QueryMask mask = {};
  mask.keys = intersect(item_keys, listed);
  mask.position = bias_position(view.args, view.item, place.row, place.token);
  return mask;
}

// Returns the position of the key with number `key`.
KVC_INLINE int32_t position_of_key(const View& view, int32_t key) {
  if (view.listed == nullptr) return key_position(&view.tree, key);
  return key_position(&view.listed_tree, view.key_indexes[key]);
}

// Fills masks and places of the rows [row_begin, row_end), at indexes from 0 on. Returns the smallest range of numbers
// that covers the keys of all these rows.
[[gnu::noinline]] static KeyRange fill_row_masks(const View& view, int32_t row_begin, int32_t row_end) {
  KeyRange all = {INT32_MAX, 0};
  QueryMask mask = {};
  QueryPlace place = {};
  QueryCursor cursor = query_cursor(view.args, view.item);
  for (int32_t r = row_begin; r < row_end; ++r) {
    if (r == row_begin || r % view.group == 0) {
      place = place_of_query(&cursor, view.first_query + r / view.group);
      mask = view.listed != nullptr       ? listed_mask(view, place)
             : view.path.nodes != nullptr ? path_mask(view.args, view.item, place.row, place.query)
                                          : query_mask(view.args, view.item, place.row, place.query);
      if (mask.keys.begin < mask.keys.end) {
        all.begin = min_of(all.begin, mask.keys.begin);
        all.end = max_of(all.end, mask.keys.end);
      }
    }
    view.scratch->masks[r - row_begin] = mask;
    view.scratch->places[r - row_begin] = place;
  }
  if (all.begin > all.end) all = {0, 0};
  return all;
}

// Fills key_offsets for the keys [begin, begin + count).
static void fill_key_offsets(const View& view, int32_t begin, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    view.scratch->key_offsets[i] = static_cast<float>(position_of_key(view, begin + i) - begin);
  }
}

// Whether the call needs fill_bias_keys.
KVC_INLINE bool has_bias_keys(const View& view) { return view.options.biases || view.args->bias.mask != nullptr; }

// Fills bias_indexes and bias_positions for the keys [begin, begin + count).
[[gnu::noinline]] static void fill_bias_keys(const View& view, int32_t begin, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    const bool numbered = view.key_indexes != nullptr;
    view.scratch->bias_indexes[i] = numbered ? view.key_indexes[begin - view.indexes_begin + i] : begin + i;
    view.scratch->bias_positions[i] = position_of_key(view, begin + i);
  }
}

// Returns the keys [begin, end) of the block or panel for which fill_bias_keys was called.
KVC_INLINE BiasKeys bias_keys(const View& view, int begin, int end) {
  return {view.scratch->bias_indexes + begin, view.scratch->bias_positions + begin, end - begin};
}

// The addresses of up to kKeyBlock consecutive keys, for kv head 0.
struct KeyBlock {
  int32_t begin;  // number of key 0
  int32_t count;
  bool adjacent;  // there are kKeyBlock keys, and their rows follow each other directly, both of K and of V
  const unsigned char* k[kKeyBlock];  // [count], then the last address repeated
  const unsigned char* v[kKeyBlock];
  const float* k_scale[kKeyBlock];  // set if the page has scales of its rows
  const float* v_scale[kKeyBlock];
};

// Sets the addresses of the scales of keys [i, end) of the block. They lie in one page, key i in slot first_slot + i.
KVC_INLINE void load_key_scales(const kvc_backend_layer& layer, int64_t page, int32_t first_slot, int32_t i,
                                int32_t end, KeyBlock* block) {
  for (; i < end; ++i) {
    block->k_scale[i] = token_scale(&layer.k_scales, page, 0, first_slot + i);
    block->v_scale[i] = token_scale(&layer.v_scales, page, 0, first_slot + i);
  }
}

// Sets the addresses of keys [i, end) of the block. They lie in the page of entry page_index of the page list, key i in
// slot `slot`. In a physical list, page_index is the page.
KVC_INLINE void load_page_keys(const View& view, PageCursor* cursor, int32_t page_index, int32_t slot, int32_t i,
                               int32_t end, KeyBlock* block) {
  const kvc_backend_layer& layer = *view.layer;
  const int64_t page = view.args->lists.physical != 0 ? page_index : page_at(cursor, page_index);
  const kvc_backend_pool &of_k = layer.k, &of_v = layer.v;
  const unsigned char* k =
      static_cast<const unsigned char*>(of_k.data) + page * of_k.page_stride_bytes + slot * of_k.slot_stride_bytes;
  const unsigned char* v =
      static_cast<const unsigned char*>(of_v.data) + page * of_v.page_stride_bytes + slot * of_v.slot_stride_bytes;
  if (has_token_scales(&layer.k_scales)) load_key_scales(layer, page, slot - i, i, end, block);
  for (; i < end; ++i, k += of_k.slot_stride_bytes, v += of_v.slot_stride_bytes) {
    block->k[i] = k;
    block->v[i] = v;
  }
}

// Sets the addresses of the keys [begin, end), of which there are at most kKeyBlock. Keys before `first` are not looked
// up. They get the address of key `first`.
static void load_key_block(const View& view, PageCursor* cursor, int32_t begin, int32_t end, int32_t first,
                           KeyBlock* block) {
  const kvc_backend_layer& layer = *view.layer;
  block->begin = begin;
  block->count = end - begin;
  block->adjacent = false;
  int32_t page_index = first / layer.page_size, slot = first % layer.page_size;
  int32_t i = first - begin;
  while (i < block->count) {
    int32_t run_end = 0;
    if (view.key_indexes != nullptr) {
      const int32_t* const indexes = view.key_indexes + (begin - view.indexes_begin);
      page_index = indexes[i] / layer.page_size;
      slot = indexes[i] % layer.page_size;
      const int32_t most = min_of(block->count, i + layer.page_size - slot);
      for (run_end = i + 1; run_end < most && indexes[run_end] - indexes[i] == run_end - i;) ++run_end;
    } else {
      run_end = min_of(block->count, i + layer.page_size - slot);
    }
    if (run_end - i == kKeyBlock) {
      block->adjacent =
          layer.k.slot_stride_bytes == layer.k.row_bytes && layer.v.slot_stride_bytes == layer.v.row_bytes;
    }
    load_page_keys(view, cursor, page_index, slot, i, run_end, block);
    i = run_end;
    ++page_index;
    slot = 0;
  }
  const auto repeat = [&](int32_t from, int32_t to) {
    block->k[to] = block->k[from];
    block->v[to] = block->v[from];
    if (!has_token_scales(&layer.k_scales)) return;
    block->k_scale[to] = block->k_scale[from];
    block->v_scale[to] = block->v_scale[from];
  };
  for (; i < kKeyBlock; ++i) repeat(block->count - 1, i);
  for (i = 0; i < first - begin; ++i) repeat(first - begin, i);
}

KVC_INLINE void prefetch(const unsigned char* p) { __builtin_prefetch(p, 0, 3); }
// Prefetches into the level-2 cache, or into the level-1 cache if in_l1.
template <bool in_l1>
KVC_INLINE void prefetch_far(const unsigned char* p) {
  __builtin_prefetch(p, 0, in_l1 ? 3 : 2);
}

}  // namespace kvc::kernels::KVC_TARGET
