// RoPE on read: a block of raw keys of one kv head becomes a block of rotated float32 keys in scratch, with its values
// in float32 beside it, on which the kernels run as on stored float32. So do keys that lie in two pools
// (KVC_BACKEND_ROW_LATENT_SPLIT): a block has one part after the other.
//
// Cost: cos and sin of a key once for all heads of an item (a complex product in float64 an angle), and of each key and
// head one pass over its row in L1. Bits are those that an append would have stored in a float32 layer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/decode_tile.h"
#include "kernels/cpu/attend/rows.h"

namespace kvc::kernels::KVC_TARGET {

// cos and sin of the keys of a block, to scratch.key_cos_sin. coarse_of: position / RADIX that scratch.coarse is of, -1
// at first.
[[gnu::noinline]] static void turn_keys(const View& view, const KeyBlock& block, int32_t* coarse_of) {
  Scratch& scratch = *view.scratch;
  const int32_t rope_dim = view.layer->rope_dim, half = rope_dim / 2;
  for (int32_t i = 0; i < block.count; ++i) {
    const int32_t position = key_position(&view.tree, block.begin + i);
    if (position >> KVC_BACKEND_ROPE_RADIX_LOG2 != *coarse_of) {
      rope_coarse(view.key_table, half, position, scratch.coarse);
      *coarse_of = position >> KVC_BACKEND_ROPE_RADIX_LOG2;
    }
    rope_fine(view.key_table, half, position, scratch.coarse, scratch.key_cos_sin + i * rope_dim);
  }
}

KVC_INLINE void scale_row(float scale, int32_t n, float* row) {
  for (int32_t i = 0; i < n; ++i) row[i] *= scale;
}

// The block of `keys`, of kv head `head`, rotated, as a block of its own that lies in scratch; prefetches what `keys`
// names as next.
[[gnu::noinline]] static DecodeKeys stage_keys(const View& view, const DecodeKeys& keys, int32_t head,
                                               KeyBlock* staged) {
  Scratch& scratch = *view.scratch;
  const Type type = stored_type(*view.layer);
  const bool token_scales = has_token_scales(&view.layer->k_scales);
  // The dim of K where the rows of pool k begin.
  const int32_t k_begin = view.layer->row_kind == KVC_BACKEND_ROW_LATENT_SPLIT ? view.v_head_dim : 0;
  staged->begin = keys.now.block->begin;
  staged->count = keys.now.block->count;
  staged->adjacent = false;
  for (int32_t i = 0; i < staged->count; ++i) {
    prefetch_row(keys.next.block->k[i] + keys.next.k_offset, static_cast<int32_t>(view.layer->k.row_bytes));
    prefetch_row(keys.next.block->v[i] + keys.next.v_offset, static_cast<int32_t>(view.layer->v.row_bytes));
    float* k = scratch.staged_k + i * kMaxHeadDim;
    if (k_begin > 0) widen_row(type, keys.now.block->v[i] + keys.now.v_offset, k_begin, k);
    widen_row(type, keys.now.block->k[i] + keys.now.k_offset, view.head_dim - k_begin, k + k_begin);
    if (token_scales)
      scale_row(keys.now.block->k_scale[i][head * scale_head_stride(&view.layer->k_scales)], view.head_dim, k);
    if (view.key_table != nullptr) rotate_row(view.layer, scratch.key_cos_sin + i * view.layer->rope_dim, k);
    staged->k[i] = reinterpret_cast<const unsigned char*>(k);
    staged->v[i] = keys.now.block->v[i] + keys.now.v_offset;
    if (type == Type::kF32) continue;
    float* v = scratch.staged_v + i * kMaxHeadDim;
    widen_row(type, staged->v[i], view.v_head_dim, v);
    if (token_scales)
      scale_row(keys.now.block->v_scale[i][head * scale_head_stride(&view.layer->v_scales)], view.v_head_dim, v);
    staged->v[i] = reinterpret_cast<const unsigned char*>(v);
  }
  for (int32_t i = staged->count; i < kKeyBlock; ++i) {
    staged->k[i] = staged->k[staged->count - 1];
    staged->v[i] = staged->v[staged->count - 1];
  }
  const HeadBlock block = {staged, 0, 0};
  return {block, block, block, nullptr, nullptr};
}

}  // namespace kvc::kernels::KVC_TARGET
