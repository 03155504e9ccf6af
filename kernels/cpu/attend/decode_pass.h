// This file is the outer part of the decode kernel, which computes few rows of a kv head over many keys.
//
// A pass goes through the keys in blocks of 16. Within a block, the pass goes through all kv heads of the item. If the
// page size is a multiple of 16, the pass reads whole pages one after another. K and V are prefetched for the next kv
// head, or for the one after it (decode_tile.h). The running states (m, l, o) of all rows and heads stay in the
// scratch. If the scratch has no room for all of them, there are several passes. After every kFoldKeys keys, the states
// are folded (long_sums.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/decode_values.h"
#include "kernels/cpu/attend/long_sums.h"
#include "kernels/cpu/attend/staged_keys.h"

namespace kvc::kernels::KVC_TARGET {

struct DecodePass;

// The functions and constants of a pass that depend on the format and the head dim. All other code is the same for all
// formats.
struct DecodeKernel {
  void (*begin)(const View& view, const DecodePass& pass);
  void (*head)(const View& view, const DecodePass& pass, const DecodeKeys& keys, int32_t h, bool whole,
               DecodePipeline& pipeline);
  void (*natural_order)(const float* o, float* row, int dims);
  bool token_scales, zero_points, few_tiles;  // few_tiles: tiles have 1 or 4 rows
  bool far_in_l1;                             // Format::kFarInL1, if the head dim is a constant
};

// A pass over the keys, for the rows [row_begin, row_end) of the kv heads [head_begin, head_end).
struct DecodePass {
  DecodeKernel kernel;
  int32_t row_begin, row_end;
  int32_t head_begin, head_end;
  int32_t q_width;      // floats of a packed row of q
  int32_t o_width;      // floats of a row of o, padding included
  int32_t padded_rows;  // rows of all tiles of a head, padding included
  int32_t num_tiles;    // tiles of a head
};

// Returns the number of rows of the next tile. rows: the number of rows that are in no tile yet, at least 1. The result
// is 1 for 1 row, 2 for 2 rows, 4 for 3 to 6 rows, and 8 for 7 rows or more (4 if kMaxTileRows is 4). If the result is
// larger than `rows`, the last rows of the tile are padding. few_tiles: tiles have only 1 or 4 rows.
KVC_INLINE int tile_rows(int rows, bool few_tiles) {
  if (few_tiles) return rows == 1 ? 1 : 4;
  if (rows >= 7 && kMaxTileRows >= 8) return 8;
  if (rows >= 3) return 4;
  return rows;
}

// Packs one row of q into its tile [vectors][tile rows][kLanes]. So the vectors with the same dims of all rows are
// adjacent.
template <class Format>
static void pack_query(const DecodePass& pass, const float* row, int tile_row_count, float* q) {
  constexpr int kElements = sizeof(typename Format::QueryElement) == 2 ? 2 : 1;
  const float* packed = row;
  alignas(64) float halves[kMaxHeadDim / 2];
  if constexpr (kElements == 2) {
    convert_row(Type::kBf16, halves, Type::kF32, row, pass.q_width * 2);
    packed = halves;
  }
  for (int v = 0; v < pass.q_width / kLanes; v += Format::kParts) {
    float ordered[Format::kParts * kLanes];
    Format::order_query(packed + v * kLanes, ordered);
    for (int j = 0; j < Format::kParts; ++j) {
      store(q + (v + j) * tile_row_count * kLanes, load(ordered + j * kLanes));
    }
  }
}

// Calls visit(index, first, rows, padded) for each tile. index: the number of the tile. first: its first row. rows: the
// number of its rows, padding included. padded: the number of rows of all earlier tiles, padding included.
template <class Visit>
KVC_INLINE void for_each_tile(int num_rows, bool few_tiles, Visit visit) {
  int index = 0, padded = 0;
  for (int r = 0; r < num_rows;) {
    const int rows = tile_rows(num_rows - r, few_tiles);
    visit(index++, r, rows, padded);
    r += rows;
    padded += rows;
  }
}

template <class Format>
static void begin_decode(const View& view, const DecodePass& pass) {
  Scratch& scratch = *view.scratch;
  const int num_rows = pass.row_end - pass.row_begin;
  constexpr int kQueryStep = Format::kStep;
  for (int32_t h = 0; h < pass.head_end - pass.head_begin; ++h) {
    for_each_tile(num_rows, pass.kernel.few_tiles, [&](int index, int first, int rows, int padded) {
      const int64_t row_index = static_cast<int64_t>(h) * pass.padded_rows + padded;
      float* q = scratch.q + row_index * pass.q_width;
      float factors[kMaxTileRows];
      for (int g = 0; g < rows; ++g) {
        const int r = pass.row_begin + first + g;
        if (first + g < num_rows) {
          const QueryPlace& place = scratch.places[first + g];
          const int32_t head = (pass.head_begin + h) * view.group + r % view.group;
          factors[g] = query_factor(view, place, head);
          load_query(view, place, head, round_up(view.head_dim, kQueryStep), Format::kRowFactors ? 1.0f : factors[g],
                     scratch.row);
        } else {
          memset(scratch.row, 0, sizeof scratch.row);
          factors[g] = 0.0f;
        }
        pack_query<Format>(pass, scratch.row, rows, q + g * kLanes);
      }
      memset(scratch.o + row_index * pass.o_width, 0, static_cast<size_t>(rows * pass.o_width) * sizeof(float));
      const int64_t state = (static_cast<int64_t>(h) * pass.num_tiles + index) * kLanes;
      store(scratch.maxima + state, set1(KVC_NEG_INF));
      store(scratch.sums + state, zero());
      for (int i = 0; Format::kRowFactors && i < kLanes; ++i) scratch.factors[state + i] = factors[i % rows];
    });
  }
}

// The state of one row of a pass.
struct DecodeRow {
  int32_t row;    // number of the row within the item
  int32_t place;  // index in scratch.places
  int32_t head;   // q head
  float m;
  double l;
  float* o;
  FoldedRow folded;
};

// Calls visit(row) for each row that is not padding, and sets l of the row in the scratch to zero.
template <class Visit>
static void for_each_state(const View& view, const DecodePass& pass, Visit visit) {
  Scratch& scratch = *view.scratch;
  const int num_rows = pass.row_end - pass.row_begin;
  for (int32_t h = 0; h < pass.head_end - pass.head_begin; ++h) {
    for_each_tile(num_rows, pass.kernel.few_tiles, [&](int index, int first, int rows, int padded) {
      const int64_t state = (static_cast<int64_t>(h) * pass.num_tiles + index) * kLanes;
      for (int g = 0; g < rows && first + g < num_rows; ++g) {
        double l = 0.0;
        for (int i = g; i < kLanes; i += rows) l += static_cast<double>(scratch.sums[state + i]);
        for (int i = g; i < kLanes; i += rows) scratch.sums[state + i] = 0.0f;
        const int64_t row_index = static_cast<int64_t>(h) * pass.padded_rows + padded + g;
        const int32_t r = pass.row_begin + first + g;
        visit(DecodeRow{r, first + g, (pass.head_begin + h) * view.group + r % view.group, scratch.maxima[state + g], l,
                        scratch.o + row_index * pass.o_width, folded_row(view, row_index, pass.o_width)});
      }
    });
  }
}

[[gnu::noinline]] static void fold_decode(const View& view, const DecodePass& pass, bool first) {
  if (first) begin_folded_rows(view, (pass.head_end - pass.head_begin) * pass.padded_rows);
  for_each_state(view, pass,
                 [&](const DecodeRow& row) { fold_row(view, pass.o_width, row.m, row.l, row.o, row.folded); });
}

// folded: whether fold_decode was called.
static void end_decode(const View& view, const DecodePass& pass, bool folded) {
  Scratch& scratch = *view.scratch;
  for_each_state(view, pass, [&](const DecodeRow& row) {
    const double l = folded ? unfold_row(view, pass.o_width, row.m, row.l, row.o, row.folded) : row.l;
    pass.kernel.natural_order(row.o, scratch.row, view.v_head_dim);
    finish_row(view, scratch.places[row.place], row.head, scratch.row, row.m, l);
  });
}

template <class Format, int kHeadDim>
KVC_INLINE void decode_any_tile(const View& view, const DecodeKeys& keys, const DecodeTile& tile, int rows, bool whole,
                                DecodePipeline& pipeline) {
  if (rows == 1) decode_tile<Format, 1, kHeadDim>(view, keys, tile, whole, pipeline);
  if (rows == 4) decode_tile<Format, 4, kHeadDim>(view, keys, tile, whole, pipeline);
  if constexpr (!kHasFewTiles<Format>) {
    if (rows == 2) decode_tile<Format, 2, kHeadDim>(view, keys, tile, whole, pipeline);
  }
  if constexpr (!kHasFewTiles<Format> && kMaxTileRows >= 8) {
    if (rows == 8) decode_tile<Format, 8, kHeadDim>(view, keys, tile, whole, pipeline);
  }
}

// Computes one block of one kv head for every tile of rows. Only the first tile prefetches, because the other tiles
// find the lines in the cache.
template <class Format, int kHeadDim>
static void decode_head(const View& view, const DecodePass& pass, const DecodeKeys& keys, int32_t h, bool whole,
                        DecodePipeline& pipeline) {
  Scratch& scratch = *view.scratch;
  const int num_rows = pass.row_end - pass.row_begin;
  for_each_tile(num_rows, pass.kernel.few_tiles, [&](int index, int first, int rows, int padded) {
    const int64_t row_index = static_cast<int64_t>(h) * pass.padded_rows + padded;
    const int64_t state = (static_cast<int64_t>(h) * pass.num_tiles + index) * kLanes;
    const DecodeTile tile = {scratch.q + row_index * pass.q_width,
                             scratch.o + row_index * pass.o_width,
                             scratch.maxima + state,
                             scratch.sums + state,
                             scratch.factors + state,
                             pass.o_width,
                             min_of(rows, num_rows - first),
                             pass.row_begin + first,
                             (pass.head_begin + h) * view.group,
                             scratch.masks + first,
                             Format::kTokenScales ? keys.scales->v : nullptr};
    DecodeKeys later;  // not copied for the first tile: `keys` was just written, and wider loads of it would stall
    if (index > 0) {
      later = keys;
      later.next = later.far = keys.now;
    }
    const DecodeKeys& tile_keys = index == 0 ? keys : later;
    if (kHeadDim != 0 && keys.now.block->adjacent) {
      decode_any_tile<Format, kHeadDim>(view, tile_keys, tile, rows, whole, pipeline);
    } else {
      decode_any_tile<Format, 0>(view, tile_keys, tile, rows, whole, pipeline);
    }
  });
}

// Copies the scales of a block's keys for one kv head to `scales`. keys: the addresses of the scales for kv head 0.
// After `count` keys, the last address is repeated. offset: from the scale of kv head 0 to the scale of the head, in
// floats. next, next_offset: addresses and offset, in the same form, of the scales that the function prefetches.
KVC_INLINE void copy_scales(const float* const* keys, int32_t count, int64_t offset, const float* const* next,
                            int64_t next_offset, int32_t page_size, float* scales) {
  const int32_t run = min_of(page_size, kKeyBlock);
  for (int32_t i = 0; i < kKeyBlock; i += run) __builtin_prefetch(next[i] + next_offset, 0, 3);
  // The condition is true if all 16 scales are adjacent. They then lie in one page, or in two pages whose scales are
  // adjacent.
  if (run == kKeyBlock && count == kKeyBlock && keys[1] - keys[0] == 1 &&
      keys[kKeyBlock - 1] - keys[0] == kKeyBlock - 1) {
    memcpy(scales, keys[0] + offset, kKeyBlock * sizeof(float));
    return;
  }
  for (int32_t i = 0; i < kKeyBlock; ++i) scales[i] = keys[i][offset];
}

// Separates the zero points of a block's keys from their scales.
KVC_INLINE void split_zero_points(float* scales, int32_t* zeros) {
  for (int32_t i = 0; i < kKeyBlock; ++i) {
    zeros[i] = zero_point_of(scales[i]);
    scales[i] = without_zero_point(scales[i]);
  }
}

// Loads the scales and zero points of the block keys.now for kv head `head`. Prefetches the scales of the block
// keys.next for kv head next_head.
KVC_INLINE void load_scales(const View& view, const DecodeKeys& keys, int32_t head, int32_t next_head, bool zero_points,
                            KeyScales* scales) {
  const kvc_backend_layer& layer = *view.layer;
  const int64_t k_stride = scale_head_stride(&layer.k_scales), v_stride = scale_head_stride(&layer.v_scales);
  const KeyBlock &block = *keys.now.block, &next = *keys.next.block;
  copy_scales(block.k_scale, block.count, head * k_stride, next.k_scale, next_head * k_stride, layer.page_size,
              scales->k);
  copy_scales(block.v_scale, block.count, head * v_stride, next.v_scale, next_head * v_stride, layer.page_size,
              scales->v);
  if (zero_points) {
    split_zero_points(scales->k, scales->k_zeros);
    split_zero_points(scales->v, scales->v_zeros);
  }
}

static void decode_pass(const View& view, const DecodePass& pass) {
  const KeyRange keys = fill_row_masks(view, pass.row_begin, pass.row_end);
  const DecodeKernel& kernel = pass.kernel;
  kernel.begin(view, pass);
  KeyRange common = {keys.begin, min_of(keys.end, view.picked_begin)};  // the range of the keys that every row sees
  for (int r = 0; r < pass.row_end - pass.row_begin; ++r) common = intersect(common, view.scratch->masks[r].keys);
  PageCursor cursor = page_cursor(&view.args->plan->arrays.tables, view.item->row);
  const int32_t num_heads = pass.head_end - pass.head_begin;
  KeyBlock blocks[4], staged;  // the previous block, the current block and the next two
  DecodePipeline pipeline;
  int32_t coarse_of = -1;
  auto block_end = [&](int32_t begin) { return min_of(keys.end, begin - begin % kKeyBlock + kKeyBlock); };
  int32_t loaded = 0;
  for (int32_t at = keys.begin; loaded < 2 && at < keys.end; at = block_end(at), ++loaded) {
    load_key_block(view, &cursor, at, block_end(at), at, &blocks[loaded]);
  }
  // With one row of q, loads run at nearly the bandwidth of memory. Prefetches further ahead would only wait. The rows
  // of two steps with more than 128 dims do not fit the level-1 cache.
  const bool near = pass.row_end - pass.row_begin == 1 || (kernel.far_in_l1 && view.head_dim > 128);
  const int32_t steps_ahead = near ? 1 : 2;
  KeyScales both_scales[2] = {};  // those of this head, and those of the previous head, whose V was not added yet
  int32_t current = 0, step = 0, fold_begin = keys.begin;
  for (int32_t begin = keys.begin, end; begin < keys.end; begin = end, ++current) {
    if (begin - fold_begin >= kFoldKeys) {
      if (pipeline.add_values != nullptr) finish_step(view, pipeline, pipeline.keys.next.k());
      fold_decode(view, pass, fold_begin == keys.begin);
      fold_begin = begin;
    }
    end = block_end(begin);
    const int32_t behind = block_end(end);
    if (end < keys.end && behind < keys.end) {
      load_key_block(view, &cursor, behind, block_end(behind), behind, &blocks[loaded++ % 4]);
    }
    // Returns the rows of K and V that are read `steps` heads after head h of this block. After the last block, it
    // returns rows of the last block.
    const auto head_block = [&](int32_t h, int32_t steps) __attribute__((always_inline)) {
      int32_t index = current;
      for (h += steps; h >= num_heads; h -= num_heads) ++index;
      const int64_t head = pass.head_begin + h;
      return HeadBlock{&blocks[min_of(index, loaded - 1) % 4], head * view.k_head_bytes, head * view.v_head_bytes};
    };
    KeyBlock* block = &blocks[current % 4];
    if (view.options.alibi_slopes != nullptr) fill_key_offsets(view, begin, end - begin);
    if (has_bias_keys(view)) fill_bias_keys(view, begin, end - begin);
    if (view.key_table != nullptr) rotate_keys(view, *block, &coarse_of);
    const bool whole = end - begin == kKeyBlock && begin >= common.begin && end <= common.end;
    for (int32_t h = 0; h < num_heads; ++h) {
      KeyScales& scales = both_scales[step++ % 2];
      const int32_t head = pass.head_begin + h, next_head = h + 1 < num_heads ? head + 1 : pass.head_begin;
      const DecodeKeys decode_keys = {head_block(h, 0), head_block(h, 1), head_block(h, steps_ahead), &scales};
      if (view.staged) {
        kernel.head(view, pass, stage_keys(view, decode_keys, head, &staged), h, whole, pipeline);
        continue;
      }
      if (kernel.token_scales) load_scales(view, decode_keys, head, next_head, kernel.zero_points, &scales);
      kernel.head(view, pass, decode_keys, h, whole, pipeline);
    }
  }
  if (pipeline.add_values != nullptr) finish_step(view, pipeline, pipeline.keys.next.k());
  end_decode(view, pass, fold_begin != keys.begin);
}

// Computes all rows and heads of the item, in as few passes as the scratch allows.
static void decode_rows(const View& view, DecodePass pass) {
  const int32_t fitting_rows = rows_of_pass(max_of(pass.q_width, pass.o_width)) / 8 * 8;
  for (pass.row_begin = 0; pass.row_begin < view.num_rows; pass.row_begin = pass.row_end) {
    pass.row_end = min_of(view.num_rows, pass.row_begin + fitting_rows);
    pass.num_tiles = 0;
    pass.padded_rows = 0;
    for_each_tile(pass.row_end - pass.row_begin, pass.kernel.few_tiles, [&](int, int, int rows, int) {
      ++pass.num_tiles;
      pass.padded_rows += rows;
    });
    const int32_t fitting_heads = fitting_rows / pass.padded_rows;
    for (pass.head_begin = view.head_begin; pass.head_begin < view.head_end; pass.head_begin = pass.head_end) {
      pass.head_end = min_of(view.head_end, pass.head_begin + fitting_heads);
      decode_pass(view, pass);
    }
  }
}

template <class Format, int kHeadDim>
static void decode_item(const View& view) {
  DecodePass pass = {};
  pass.kernel = {begin_decode<Format>,
                 decode_head<Format, kHeadDim>,
                 Format::natural_order,
                 Format::kTokenScales,
                 Format::kZeroPoints,
                 kHasFewTiles<Format>,
                 Format::kFarInL1 && kHeadDim != 0};
  pass.q_width = round_up(view.head_dim, Format::kStep) / (Format::kPairs ? 2 : 1);
  pass.o_width = round_up(view.v_head_dim, Format::kStep);
  decode_rows(view, pass);
}

}  // namespace kvc::kernels::KVC_TARGET
