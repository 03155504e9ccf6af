// Panel kernel (prefill): many rows a kv head. Blocks of keys are packed once per pass of up to kRowFloats elements of
// q, then groups of 24 rows go through scores, softmax and P*V, so that a panel is read from L2 once per 24 rows.
// Panels outside a tile's mask are skipped; where the rows of a tile disagree, keys are added row by row.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/panel_softmax.h"
#include "kernels/cpu/attend/panel_tile.h"

namespace kvc::kernels::KVC_TARGET {

// Keys [begin, begin + count) of the sequence, packed.
struct Panel {
  int32_t begin;
  int32_t count;
};

// Keys of the panel that row r sees, as indexes into the panel; nodes of a tree are picked among them (hide_nodes).
KVC_INLINE KeyRange keys_in_panel(const View& view, const Panel& panel, int r) {
  const KeyRange keys = view.scratch->masks[r].keys;
  const KeyRange in_panel = {0, panel.count};
  return intersect({keys.begin - panel.begin, keys.end - panel.begin}, in_panel);
}

// Of the rows [begin, end): keys that some row sees, and keys that all see.
struct TileRanges {
  KeyRange any, all;
};

static TileRanges tile_ranges(const View& view, const Panel& panel, int begin, int end) {
  TileRanges ranges = {{INT32_MAX, 0}, {0, panel.count}};
  for (int r = begin; r < end; ++r) {
    const KeyRange seen = keys_in_panel(view, panel, r);
    ranges.all = intersect(ranges.all, seen);
    if (seen.begin >= seen.end) continue;
    ranges.any.begin = min_of(ranges.any.begin, seen.begin);
    ranges.any.end = max_of(ranges.any.end, seen.end);
  }
  if (ranges.any.begin > ranges.any.end) ranges.any = {0, 0};
  return ranges;
}

// scores[row - first][key] of rows [first, end) over what some row of each tile sees.
template <class Format>
static void group_scores(const View& view, const PanelPass& pass, const TileRanges* ranges, int first, int end) {
  Scratch& scratch = *view.scratch;
  for (int strip = 0; strip * kStrip < pass.panel_keys; ++strip) {
    for (int r = first; r < end; r += kTileRows) {
      const KeyRange any = ranges[(r - first) / kTileRows].any;
      if (any.end <= strip * kStrip || any.begin >= (strip + 1) * kStrip) continue;
      const int vectors = min_of(kTileVectors, (any.end - strip * kStrip + kLanes - 1) / kLanes);
      const TileArgs args = {scratch.q + static_cast<int64_t>(r) * pass.q_width,
                             pass.q_width,
                             scratch.k_panel + static_cast<int64_t>(strip) * kStrip * pass.q_width,
                             kStrip,
                             pass.q_dwords,
                             scratch.scores + static_cast<int64_t>(r - first) * pass.panel_keys + strip * kStrip,
                             pass.panel_keys};
      multiply_columns<Format, false>(vectors, args);
    }
  }
}

// o[row] += p * v for keys [begin, end) of one row: what its tile does not share.
template <class Format>
static void add_row_edge(const View& view, const PanelPass& pass, const float* p, int begin, int end, float* o) {
  constexpr int kKeys = Format::kPairs ? 2 : 1;
  for (int k = begin - begin % kKeys; k < end; k += kKeys) {
    const typename Format::Vec weight = Format::broadcast(p + k / kKeys);
    for (int column = 0; column < pass.o_width; column += kLanes) {
      const int strip = column / kStrip;
      const float* source = value_strip(view, pass, strip) +
                            static_cast<int64_t>(k / kKeys) * strip_columns(pass, strip) + column % kStrip;
      const typename Format::Vec v = Format::keep_halves(Format::load_packed(source), k >= begin, k + 1 < end);
      store(o + column, Format::multiply_add(v, weight, load(o + column)));
    }
  }
}

// The same for those of the keys that row r of the pass sees: nodes of a tree that it does not see may hold NaN.
template <class Format>
static void add_row_keys(const View& view, const PanelPass& pass, const Panel& panel, int r, const float* p, int begin,
                         int end, float* o) {
  const int nodes = min_of(end, max_of(begin, view.tree.begin - panel.begin));
  if (begin < nodes) add_row_edge<Format>(view, pass, p, begin, nodes, o);
  for (int k = nodes; k < end; ++k) {
    int run_end = k;
    while (run_end < end && sees_node(&view.tree, view.scratch->masks + r, panel.begin + run_end)) ++run_end;
    if (k < run_end) add_row_edge<Format>(view, pass, p, k, run_end, o);
    k = run_end;
  }
}

// o += P * V of rows [first, end); `real_end`: rows from there on are padding.
template <class Format>
static void group_values(const View& view, const PanelPass& pass, const Panel& panel, TileRanges* ranges, int first,
                         int end, int real_end) {
  constexpr int kKeys = Format::kPairs ? 2 : 1;
  Scratch& scratch = *view.scratch;
  for (int r = first; r < end; r += kTileRows) {
    KeyRange& all = ranges[(r - first) / kTileRows].all;
    all.end = min_of(all.end, max_of(0, view.tree.begin - panel.begin));  // which nodes it sees, a row knows alone
    all.begin += all.begin % kKeys;                                       // whole pairs
    all.end -= all.end % kKeys;
    if (all.begin > all.end) all.end = all.begin;
    for (int i = r; i < min_of(r + kTileRows, real_end); ++i) {
      const KeyRange seen = keys_in_panel(view, panel, i);
      const float* p = scratch.scores + static_cast<int64_t>(i - first) * pass.panel_keys;
      float* o = scratch.o + static_cast<int64_t>(i) * pass.o_width;
      const bool split = all.begin < all.end;
      add_row_keys<Format>(view, pass, panel, i, p, seen.begin, split ? all.begin : seen.end, o);
      if (split) add_row_keys<Format>(view, pass, panel, i, p, all.end, seen.end, o);
    }
  }
  for (int strip = 0; strip * kStrip < pass.o_width; ++strip) {
    const int columns = strip_columns(pass, strip);
    for (int r = first; r < end; r += kTileRows) {
      const KeyRange all = ranges[(r - first) / kTileRows].all;
      if (all.begin >= all.end) continue;
      const TileArgs args = {scratch.scores + static_cast<int64_t>(r - first) * pass.panel_keys + all.begin / kKeys,
                             pass.panel_keys,
                             value_strip(view, pass, strip) + static_cast<int64_t>(all.begin / kKeys) * columns,
                             columns,
                             (all.end - all.begin) / kKeys,
                             scratch.o + static_cast<int64_t>(r) * pass.o_width + strip * kStrip,
                             pass.o_width};
      multiply_columns<Format, true>(columns / kLanes, args);
    }
  }
}

// Rows [first, end) over one panel. end - first <= kMaxRowGroup, a multiple of kTileRows.
template <class Format>
static void panel_group(const View& view, const PanelPass& pass, const Panel& panel, int first, int end) {
  Scratch& scratch = *view.scratch;
  const int real_end = min_of(end, pass.row_end - pass.row_begin);
  TileRanges ranges[kMaxRowGroup / kTileRows];
  bool any = false;
  for (int r = first; r < end; r += kTileRows) {
    TileRanges& tile = ranges[(r - first) / kTileRows];
    tile = tile_ranges(view, panel, r, min_of(r + kTileRows, real_end));
    any = any || tile.any.begin < tile.any.end;
  }
  if (!any) return;
  group_scores<Format>(view, pass, ranges, first, end);
  int nodes_of = -1;  // the query that nodes_seen belongs to
  for (int r = first; r < real_end; ++r) {
    const KeyRange seen = keys_in_panel(view, panel, r);
    if (seen.begin >= seen.end) continue;
    float* scores = scratch.scores + static_cast<int64_t>(r - first) * pass.panel_keys;
    if (view.options.any) score_row(view, pass, panel.begin, r, seen, scores);
    if (view.tree.begin < panel.begin + seen.end) {
      const int query = (pass.row_begin + r) / view.group;
      if (query != nodes_of) find_nodes(view, panel.begin, scratch.masks[r], seen);
      nodes_of = query;
      hide_nodes(view, seen, scores);
    }
    softmax_row<Format>(view, scores, seen, scratch.o + static_cast<int64_t>(r) * pass.o_width, pass.o_width,
                        scratch.maxima + r, scratch.sums + r);
  }
  group_values<Format>(view, pass, panel, ranges, first, end, real_end);
}

// Loads q, packed, and empties the state of the pass's rows, padding included.
template <class Format>
static void begin_panel_pass(const View& view, const PanelPass& pass, int padded_rows) {
  Scratch& scratch = *view.scratch;
  for (int i = 0; i < padded_rows; ++i) {
    float* q = scratch.q + static_cast<int64_t>(i) * pass.q_width;
    const int r = pass.row_begin + i;
    if (r < pass.row_end) {
      load_query(view, r / view.group, pass.head * view.group + r % view.group, round_up(view.head_dim, Format::kStep),
                 scratch.row);
      convert_row(Format::kPairs ? Type::kBf16 : Type::kF32, q, Type::kF32, scratch.row,
                  round_up(view.head_dim, Format::kStep));
    } else {
      memset(q, 0, static_cast<size_t>(pass.q_width) * sizeof(float));
    }
    scratch.maxima[i] = KVC_NEG_INF;
    scratch.sums[i] = 0.0f;
  }
  memset(scratch.o, 0, static_cast<size_t>(padded_rows) * static_cast<size_t>(pass.o_width) * sizeof(float));
}

template <class Format>
static void panel_pass(const View& view, const PanelPass& pass) {
  const int num_rows = pass.row_end - pass.row_begin, padded_rows = round_up(num_rows, kTileRows);
  const KeyRange keys = fill_row_masks(view, pass.row_begin, pass.row_end);
  begin_panel_pass<Format>(view, pass, padded_rows);
  PageCursor cursor = page_cursor(view.args->tables, view.item->row);
  for (int32_t begin = keys.begin; begin < keys.end; begin += pass.panel_keys) {
    const Panel panel = {begin, min_of(pass.panel_keys, keys.end - begin)};
    if (view.options.alibi_slopes != nullptr) fill_key_offsets(view, begin, panel.count);
    pack_panel<Format>(view, pass, &cursor, begin, begin + panel.count, keys.end);
    for (int first = 0; first < padded_rows; first += kMaxRowGroup) {
      panel_group<Format>(view, pass, panel, first, min_of(padded_rows, first + kMaxRowGroup));
    }
  }
  for (int i = 0; i < num_rows; ++i) {
    const int r = pass.row_begin + i;
    Format::natural_order(view.scratch->o + static_cast<int64_t>(i) * pass.o_width, view.scratch->row, view.v_head_dim);
    finish_row(view, r / view.group, pass.head * view.group + r % view.group, view.scratch->row,
               view.scratch->maxima[i], view.scratch->sums[i]);
  }
}

template <class Format>
static void panel_item(const View& view) {
  const kvc_backend_item& item = *view.item;
  PanelPass pass;
  pass.q_dwords = Format::kPairs ? (view.head_dim + 1) / 2 : view.head_dim;
  pass.q_width = round_up(view.head_dim, Format::kStep) / (Format::kPairs ? 2 : 1);
  pass.o_width = round_up(view.v_head_dim, Format::kStep);
  const int32_t key_dwords = max_of(pass.q_width, pass.o_width / (Format::kPairs ? 2 : 1));
  pass.panel_keys = min_of(kMaxPanelKeys, kPanelFloats / key_dwords / kPanelStep * kPanelStep);
  pass.value_rows = pass.panel_keys / (Format::kPairs ? 2 : 1);
  const int32_t fitting_rows =
      min_of(kMaxRows, kRowFloats / max_of(pass.q_width, pass.o_width)) / kMaxRowGroup * kMaxRowGroup;
  for (pass.head = item.head_begin; pass.head < item.head_end; ++pass.head) {
    for (pass.row_begin = 0; pass.row_begin < view.num_rows; pass.row_begin = pass.row_end) {
      pass.row_end = min_of(view.num_rows, pass.row_begin + fitting_rows);
      panel_pass<Format>(view, pass);
    }
  }
}

}  // namespace kvc::kernels::KVC_TARGET
