// One work item as both attention kernels read it: shapes in bytes and vectors, addresses of keys, and the rows of a
// pass. Rows are (query, head of the group) pairs of one kv head. Row r is query r / group and head r % group, so
// adjacent rows have equal or similar masks. The queries of a shared item are those of its spans.
// SPDX-License-Identifier: Apache-2.0
#pragma once

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
  int32_t group;  // q heads a kv head
  int32_t head_dim;
  int32_t v_head_dim;
  int32_t first_query;           // of the item; 0 unless the call has lists
  int32_t num_rows;              // queries x group
  int32_t head_begin, head_end;  // kv heads
  KeyTree tree;                  // of the item's row; rows share no nodes. None if the call numbers keys by paths
  KeyTree path;                  // the same tree if the call numbers keys by paths (tree_path.h); else none
  const ListedQuery* listed;  // null: no lists. Else the one query, whose keys are numbered by their places in its list
  KeyTree listed_tree;        // with lists: the row's tree, for positions
  int32_t picked_begin;  // the number of the first key that rows may not see in spite of their ranges: the first node
                         // of `tree`, or 0 if the call has a mask
  const int32_t* key_indexes;  // with lists, or with paths in a panel of one query: the index of each key
  int32_t indexes_begin;       // number of key_indexes[0]
  const double* key_table;     // null: K is stored as it attends. Else K is rotated as it is read
  // Blocks of K go through scratch as float32: K is rotated, or lies in two pools, or has 4 bits (staged_keys.h).
  bool staged;
  int32_t k_block_scales, v_block_scales;  // the bytes of rows at which they begin, if blocks of dims have scales
  int32_t k_rotation, v_rotation;          // the blocks of the rotations in which rows are stored; 0: none (hadamard.h)
  ScoreOptions options;
  // Without options, scores stay unscaled, so a large score has no error but that of its dot product: p = 2^((score -
  // m) * exp2_scale). The maximum of unscaled scores is right only for a positive scale, so the sign of the scale is
  // multiplied into q (0: q is 0).
  float exp2_scale;      // |softmax scale| x log2(e); with options log2(e)
  double natural_scale;  // |softmax scale|; with options 1
  float q_sign;
  float stored_unit;     // a factor of all loaded elements, in addition to their scales
  int64_t k_head_bytes;  // from one kv head to the next
  int64_t v_head_bytes;
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

// The mask of a query over the places of its list: it sees all keys there.
static QueryMask listed_mask(const View& view, const QueryPlace& place) {
  const KeyRange item_keys = {view.item->key_begin, view.item->key_end}, listed = {0, view.listed->num_keys};
  QueryMask mask = {};
  mask.keys = intersect(item_keys, listed);
  mask.position = bias_position(view.args, view.item, place.row, place.token);
  return mask;
}

// The position of the key with number `key`.
KVC_INLINE int32_t position_of_key(const View& view, int32_t key) {
  if (view.listed == nullptr) return key_position(&view.tree, key);
  return key_position(&view.listed_tree, view.key_indexes[key]);
}

// Fills masks and places of rows [row_begin, row_end), at indexes from 0 on. Returns the smallest range of keys that
// covers all of them.
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

// Whether the call reads what fill_bias_keys fills.
KVC_INLINE bool has_bias_keys(const View& view) { return view.options.biases || view.args->bias.mask != nullptr; }

// Fills bias_indexes and bias_positions for the keys [begin, begin + count).
[[gnu::noinline]] static void fill_bias_keys(const View& view, int32_t begin, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    const bool numbered = view.key_indexes != nullptr;
    view.scratch->bias_indexes[i] = numbered ? view.key_indexes[begin - view.indexes_begin + i] : begin + i;
    view.scratch->bias_positions[i] = position_of_key(view, begin + i);
  }
}

// The keys [begin, end) of the block or panel for which fill_bias_keys ran.
KVC_INLINE BiasKeys bias_keys(const View& view, int begin, int end) {
  return {view.scratch->bias_indexes + begin, view.scratch->bias_positions + begin, end - begin};
}

// Addresses of up to kKeyBlock consecutive keys, for kv head 0.
struct KeyBlock {
  int32_t begin;  // position of key 0
  int32_t count;
  bool adjacent;  // there are kKeyBlock keys, and their rows of K (and of V) follow each other directly
  const unsigned char* k[kKeyBlock];  // [count], then the last one repeated
  const unsigned char* v[kKeyBlock];
  const float* k_scale[kKeyBlock];  // if tokens have scales
  const float* v_scale[kKeyBlock];
};

// Loads the scales of keys [i, end) of the block. They lie in one page, key i in slot first_slot + i.
KVC_INLINE void load_key_scales(const kvc_backend_layer& layer, int64_t page, int32_t first_slot, int32_t i,
                                int32_t end, KeyBlock* block) {
  for (; i < end; ++i) {
    block->k_scale[i] = token_scale(&layer.k_scales, page, 0, first_slot + i);
    block->v_scale[i] = token_scale(&layer.v_scales, page, 0, first_slot + i);
  }
}

// Loads the addresses of keys [i, end) of the block. Key i is in slot `slot` of the page with index `page_index`.
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

// Loads the addresses of keys [begin, end), at most kKeyBlock. Keys before `first` are not looked up; they get the
// address of key `first`.
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
// Prefetches into the level-2 cache.
KVC_INLINE void prefetch_far(const unsigned char* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace kvc::kernels::KVC_TARGET
