// Staged keys. A block of keys of one kv head is copied to scratch as float32, and the kernels for float32 run on the
// copy. Three kinds of layers need this (the third only if the kernel cannot load 4 bits, see kNibbles in format.h):
//   RoPE on read: the copy of K is rotated.
//   K in two pools (KVC_BACKEND_ROW_LATENT_SPLIT): the copy joins the two parts.
//   rows of 4 bits: the copy is dequantised.
//
// Cost of RoPE on read: cos and sin of a key are computed once for all heads of an item, by a complex product in
// float64 for each angle. Then the row of each key and head is rotated in the level-1 cache. The rotated keys have the
// same bits as keys that append stores in a float32 layer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/decode_tile.h"
#include "kernels/cpu/attend/rows.h"

namespace kvc::kernels::KVC_TARGET {

// Computes cos and sin of the keys of a block, in scratch.key_cos_sin. coarse_of: the position / RADIX for which
// scratch.coarse is valid; -1 at first.
[[gnu::noinline]] static void rotate_keys(const View& view, const KeyBlock& block, int32_t* coarse_of) {
  Scratch& scratch = *view.scratch;
  const int32_t rope_dim = view.layer->rope_dim, half = rope_dim / 2;
  for (int32_t i = 0; i < block.count; ++i) {
    const int32_t position = position_of_key(view, block.begin + i);
    if (position >> KVC_BACKEND_ROPE_RADIX_LOG2 != *coarse_of) {
      rope_coarse(view.key_table, half, position, scratch.coarse);
      *coarse_of = position >> KVC_BACKEND_ROPE_RADIX_LOG2;
    }
    rope_fine(view.key_table, half, position, scratch.coarse, scratch.key_cos_sin + i * rope_dim);
  }
}

// Converts the first n dims of a block row to float32. page_scales: as in scales_of_row.
static void dequantise_block_row(const BlockRow& shape, const unsigned char* from, const void* page_scales, int32_t n,
                                 float* row) {
  const unsigned char* const scales = scales_of_row(shape, from, page_scales);
  for (int32_t d = 0; d < n; d += Blocks::kStep) {
    store(row + d, Blocks::load_of_row(shape, from, scales, d / Blocks::kStep));
  }
}

// Converts the n elements of a stored row to float32, and multiplies them by all their scales except the scale of the
// head. key_scale: the key's scale for kv head 0; null if tokens have no scales. offset: from key_scale to the scale of
// the row's head, in floats. block_scales: the byte of the row at which the scales of its blocks of dims begin. n: a
// multiple of 16 if elements have 4 bits.
[[gnu::noinline]] static void dequantise_row(const View& view, Type type, const unsigned char* from,
                                             const float* key_scale, int64_t offset, int32_t block_scales, int32_t n,
                                             float* row) {
  if (type == Type::kBlockRow) {
    return dequantise_block_row(view.block_row, from, key_scale == nullptr ? nullptr : key_scale + offset, n, row);
  }
  if (type == Type::kE2m1) return dequantise_blocks(from, from + block_scales, n, row);
  if (key_scale == nullptr) return row_to_float(type, from, n, row);
  const float scale = key_scale[offset];
  if (type == Type::kU4) {
    const float zero_point = static_cast<float>(zero_point_of(scale)), own = without_zero_point(scale);
    for (int32_t i = 0; i < n / 2; ++i) {
      row[2 * i] = (static_cast<float>(from[i] & 15) - zero_point) * own;
      row[2 * i + 1] = (static_cast<float>(from[i] >> 4) - zero_point) * own;
    }
    return;
  }
  row_to_float(type, from, n, row);
  for (int32_t i = 0; i < n; ++i) row[i] *= scale;
}

// Copies the block keys.now of kv head `head` to scratch, with K rotated if the call rotates on read. Returns the copy
// as a block. Prefetches the block keys.next.
[[gnu::noinline]] static DecodeKeys stage_keys(const View& view, const DecodeKeys& keys, int32_t head,
                                               KeyBlock* staged) {
  Scratch& scratch = *view.scratch;
  const Type type = stored_type(*view.layer);
  const bool token_scales = has_token_scales(&view.layer->k_scales);
  // If K is in two pools, the pool v holds its first dims, and the pool k holds the dims from this one on.
  const int32_t k_begin = view.layer->row_kind == KVC_BACKEND_ROW_LATENT_SPLIT ? view.v_head_dim : 0;
  staged->begin = keys.now.block->begin;
  staged->count = keys.now.block->count;
  staged->adjacent = false;
  for (int32_t i = 0; i < staged->count; ++i) {
    prefetch_row(keys.next.block->k[i] + keys.next.k_offset, static_cast<int32_t>(view.layer->k.row_bytes));
    prefetch_row(keys.next.block->v[i] + keys.next.v_offset, static_cast<int32_t>(view.layer->v.row_bytes));
    float* k = scratch.staged_k + i * kMaxHeadDim;
    if (k_begin > 0) row_to_float(type, keys.now.block->v[i] + keys.now.v_offset, k_begin, k);
    dequantise_row(view, type, keys.now.block->k[i] + keys.now.k_offset,
                   token_scales ? keys.now.block->k_scale[i] : nullptr, head * scale_head_stride(&view.layer->k_scales),
                   view.k_block_scales, view.head_dim - k_begin, k + k_begin);
    if (view.key_table != nullptr && view.k_rotation > 0) gather_row(k, view.head_dim, view.k_rotation);
    if (view.key_table != nullptr) rotate_row(view.layer, scratch.key_cos_sin + i * view.layer->rope_dim, k);
    staged->k[i] = reinterpret_cast<const unsigned char*>(k);
    staged->v[i] = keys.now.block->v[i] + keys.now.v_offset;
    if (type == Type::kF32) continue;
    float* v = scratch.staged_v + i * kMaxHeadDim;
    dequantise_row(view, type, staged->v[i], token_scales ? keys.now.block->v_scale[i] : nullptr,
                   head * scale_head_stride(&view.layer->v_scales), view.v_block_scales, view.v_head_dim, v);
    staged->v[i] = reinterpret_cast<const unsigned char*>(v);
  }
  for (int32_t i = staged->count; i < kKeyBlock; ++i) {
    staged->k[i] = staged->k[staged->count - 1];
    staged->v[i] = staged->v[staged->count - 1];
  }
  const HeadBlock block = {staged, 0, 0};
  return {block, block, block, nullptr};
}

}  // namespace kvc::kernels::KVC_TARGET
