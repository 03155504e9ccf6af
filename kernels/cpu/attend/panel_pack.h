// Panel kernel, packing. A pass (PanelPass) computes attention for rows of one kv head; such a row is a query and one
// of its query heads (view.h). It packs each block of keys once, in the order in which the register tiles
// (panel_tile.h) read it. The packed block is a panel:
//
//   K panel: strips of kStrip keys. A strip is [dword of the head dim][kStrip], so K is transposed.
//   V panel: strips of kStrip columns of o; the last may be narrower. A strip is [key, or pair of keys][columns].
// A dword is a float32 or two bf16. The two bf16 are neighbouring dims of one key in K, and one dim of two keys in V.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/decode_tile.h"
#include "kernels/cpu/attend/staged_keys.h"

namespace kvc::kernels::KVC_TARGET {

static constexpr int kStrip = kTileVectors * kLanes;  // keys of a strip of K, columns of a strip of V

// PanelPass::panel_keys is a multiple of this number.
static constexpr int kPanelStep = kStrip > kKeyBlock ? kStrip : kKeyBlock;

struct PanelPass;
struct Panel;

// pack_panel for one stored format. All other code of the panel kernel is the same for all formats that convert to
// float32.
using PackPanel = void (*)(const View& view, const PanelPass& pass, PageCursor* cursor, const Panel& panel,
                           KeyRange keys);

// A pass of the panel kernel: the rows [row_begin, row_end) of one kv head.
struct PanelPass {
  PackPanel pack;
  int32_t row_begin, row_end;
  int32_t head;
  int32_t q_dwords;      // dwords of a row of q: D, or ceil(D / 2) pairs; q_width if the format has kTiles (format.h)
  int32_t q_width;       // q_dwords, padded to whole vectors: the row stride of q, and the rows of a strip of K
  int32_t o_width;       // Dv, padded to whole vectors: the row stride of o
  int32_t panel_keys;    // keys of a whole panel
  int32_t score_stride;  // row stride of scores: not a power of two, so that rows lie in different cache sets
  int32_t value_rows;    // rows of a strip of V: panel_keys, or half as many for pairs
  int32_t fold_keys;     // keys between two folds, a multiple of panel_keys (long_sums.h)
  bool in_order;         // products are added to o one by one, so o of a row does not depend on other rows of the tile
  bool keys_only;        // whether only K is packed
};

// The keys [begin, begin + count), packed. begin is a multiple of panel_keys. So keys are divided into panels, vectors
// and pairs in the same way for all rows. The rows [first_row, end_row) of the pass attend to the panel.
struct Panel {
  int32_t begin;
  int32_t count;
  int32_t first_row, end_row;
  bool folds;  // whether the sums of the rows are folded after this panel
};

KVC_INLINE int strip_columns(const PanelPass& pass, int strip) { return min_of(kStrip, pass.o_width - strip * kStrip); }
KVC_INLINE float* value_strip(const View& view, const PanelPass& pass, int strip) {
  return view.scratch->v_panel + static_cast<int64_t>(strip) * kStrip * pass.value_rows;
}

// scales: the address of the row's scales, as row_scale_of returns it.
template <class Format>
KVC_INLINE typename Format::Vec load_chunk(const View& view, const unsigned char* row, int chunk, int chunks, int tail,
                                           const float* scales) {
  if constexpr (Format::kWholeRows) {
    return Format::load_of_row(view.block_row, row, scales_of_row(view.block_row, row, scales), chunk);
  }
  const unsigned char* p = row + chunk * Format::kVecBytes;
  return chunk < chunks ? Format::load(p) : Format::load_first(p, tail);
}

// Loads a vector of a stored row, and multiplies it by the row's scale if there is one. This is done once for all rows
// of q, because the result is packed.
template <class Format>
KVC_INLINE typename Format::Vec load_scaled(const View& view, const unsigned char* row, int chunk, int chunks, int tail,
                                            const float* scale) {
  const typename Format::Vec v = load_chunk<Format>(view, row, chunk, chunks, tail, scale);
  if constexpr (Format::kTokenScales) return mul(v, set1(*scale));
  return v;
}

// Returns the address of the scales of a key's row for the head of the pass; null if the page has no scales after its
// rows. *key: the address for kv head 0.
template <class Format>
KVC_INLINE const float* row_scale_of(const View& view, const float* const* key, const kvc_backend_scales& scales,
                                     const PanelPass& pass) {
  const bool there = Format::kTokenScales || (Format::kWholeRows && view.block_row.scales_at < 0);
  return there ? *key + pass.head * scale_head_stride(&scales) : nullptr;
}

// Packs K of the block keys.now. The block's first key becomes key `first` of the panel. A block has at most kKeyBlock
// keys. If it has fewer, its last key is repeated, and no row sees the repetitions.
template <class Format>
static void pack_keys(const View& view, const PanelPass& pass, const DecodeKeys& keys, int first) {
  const int chunks = view.head_dim / Format::kStep, tail = view.head_dim % Format::kStep;
  for (int j = 0; j < kKeyBlock; j += kLanes) {
    const int key = first + j;
    float* strip = view.scratch->k_panel + static_cast<int64_t>(key / kStrip) * kStrip * pass.q_width + key % kStrip;
    for (int c = 0; c < chunks + (tail != 0); ++c) {
      F32 block[kLanes];
      KVC_UNROLL for (int i = 0; i < kLanes; ++i) {
        prefetch_line<Format>(keys.next.block->k[j + i] + keys.next.k_offset, c);
        const float* scale = row_scale_of<Format>(view, &keys.now.block->k_scale[j + i], view.layer->k_scales, pass);
        block[i] = Format::as_dwords(
            load_scaled<Format>(view, keys.now.block->k[j + i] + keys.now.k_offset, c, chunks, tail, scale));
      }
      transpose(block);
      KVC_UNROLL for (int i = 0; i < kLanes; ++i) store(strip + (c * kLanes + i) * kStrip, block[i]);
    }
  }
}

template <class Format>
static void pack_values(const View& view, const PanelPass& pass, const DecodeKeys& keys, int first) {
  constexpr int kKeys = Format::kPairs ? 2 : 1;
  const int chunks = view.v_head_dim / Format::kStep, tail = view.v_head_dim % Format::kStep;
  for (int k = 0; k < keys.now.block->count; k += kKeys) {
    const unsigned char* even = keys.now.block->v[k] + keys.now.v_offset;
    const bool has_odd = Format::kPairs && k + 1 < keys.now.block->count;
    const unsigned char* odd = has_odd ? keys.now.block->v[k + 1] + keys.now.v_offset : nullptr;
    const unsigned char* next = keys.next.block->v[k] + keys.next.v_offset;
    const unsigned char* next_odd = has_odd ? keys.next.block->v[k + 1] + keys.next.v_offset : next;
    for (int c = 0; c < chunks + (tail != 0); ++c) {
      prefetch_line<Format>(next, c);
      if (Format::kPairs) prefetch_line<Format>(next_odd, c);
      typename Format::Vec zeros = {}, spread[2];
      const float* scale = row_scale_of<Format>(view, &keys.now.block->v_scale[k], view.layer->v_scales, pass);
      Format::spread(load_scaled<Format>(view, even, c, chunks, tail, scale),
                     has_odd ? load_chunk<Format>(view, odd, c, chunks, tail, scale) : zeros, spread);
      KVC_UNROLL for (int i = 0; i < Format::kOutputs; ++i) {
        const int column = (c * Format::kOutputs + i) * kLanes, strip = column / kStrip;
        float* target = value_strip(view, pass, strip) +
                        static_cast<int64_t>((first + k) / kKeys) * strip_columns(pass, strip) + column % kStrip;
        Format::store_packed(target, spread[i]);
      }
    }
  }
}

// Packs the keys of `panel` from keys.begin on. No row sees a key before keys.begin. Prefetches keys after the panel,
// up to keys.end.
template <class Format>
static void pack_panel(const View& view, const PanelPass& pass, PageCursor* cursor, const Panel& panel, KeyRange keys) {
  const int32_t first = max_of(panel.begin, keys.begin), begin = first - first % kKeyBlock;
  const int32_t end = panel.begin + panel.count;
  const int64_t k_offset = pass.head * view.k_head_bytes, v_offset = pass.head * view.v_head_bytes;
  KeyBlock blocks[2], staged;
  int32_t coarse_of = -1;
  load_key_block(view, cursor, begin, min_of(end, begin + kKeyBlock), first, &blocks[0]);
  int current = 0;
  for (int32_t key = begin; key < end; key += kKeyBlock, current ^= 1) {
    KeyBlock *block = &blocks[current], *next = block;
    const int32_t behind = key + kKeyBlock;
    if (behind < keys.end) {
      next = &blocks[current ^ 1];
      load_key_block(view, cursor, behind, min_of(behind < end ? end : keys.end, behind + kKeyBlock), behind, next);
    }
    const HeadBlock behind_it = {next, k_offset, v_offset};
    DecodeKeys rows = {{block, k_offset, v_offset}, behind_it, behind_it, nullptr};
    if (view.key_table != nullptr) rotate_keys(view, *block, &coarse_of);
    if (view.staged) {
      rows = stage_keys(view, rows, pass.head, &staged);
    }
    pack_keys<Format>(view, pass, rows, key - panel.begin);
    if (!pass.keys_only) pack_values<Format>(view, pass, rows, key - panel.begin);
  }
}

}  // namespace kvc::kernels::KVC_TARGET
