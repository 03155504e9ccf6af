// The panel kernel computes many rows of a kv head (prefill). A pass has as many rows as fit in the scratch. The pass
// packs each block of keys once, as a panel (panel_pack.h). Then groups of 24 rows (32 with AMX) compute scores,
// softmax and P*V one after another, so each group reads the panel from the level-2 cache once. A group consists of
// register tiles (panel_tile.h). A group is skipped if none of its rows sees a key of the panel. Without AMX, keys that
// only some rows of a tile see are added row by row. With AMX, this is so only for keys whose V is not finite
// (panel_steps.h).
//
// Deterministic caches (kvc_backend_plan.fold_keys) compute all rows with this kernel. The keys of a row are added in
// ascending order, by fused multiply-adds to accumulators of that row, and panels begin at fixed places. So the bits of
// a row do not depend on other rows. Queries that are nodes of a tree may see different keys, so each of them has
// panels of its own (tree_path.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/long_sums.h"
#include "kernels/cpu/attend/panel_softmax.h"
#include "kernels/cpu/attend/panel_steps.h"

namespace kvc::kernels::KVC_TARGET {

// Returns the range of the panel's keys that row r sees, counted from the panel's first key. The range may have keys
// from view.picked_begin on that the row does not see. hide_nodes removes these keys later.
KVC_INLINE KeyRange keys_in_panel(const View& view, const Panel& panel, int r) {
  if (r < panel.first_row || r >= panel.end_row) return {0, 0};
  const KeyRange keys = view.scratch->masks[r].keys;
  const KeyRange in_panel = {0, panel.count};
  return intersect({keys.begin - panel.begin, keys.end - panel.begin}, in_panel);
}

// Ranges of a panel's keys for the rows of a tile. any: a range that contains all keys that some row sees. all: keys
// that all rows see.
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

// Computes scores[row - first][key] of the rows [first, end). Each tile of rows computes the keys that some row of the
// tile sees. Rows from real_end on are padding.
template <class Format>
static void group_scores(const View& view, const PanelPass& pass, const TileRanges* ranges, int first, int end,
                         int real_end) {
  Scratch& scratch = *view.scratch;
  for (int strip = 0; strip * kStrip < pass.panel_keys; ++strip) {
    for (int r = first; r < end; r += Format::kRows) {
      const KeyRange any = ranges[(r - first) / Format::kRows].any;
      if (any.end <= strip * kStrip || any.begin >= (strip + 1) * kStrip) continue;
      const int vectors = min_of(kTileVectors, (any.end - strip * kStrip + kLanes - 1) / kLanes);
      const TileArgs args = {scratch.q + static_cast<int64_t>(r) * pass.q_width,
                             pass.q_width,
                             scratch.k_panel + static_cast<int64_t>(strip) * kStrip * pass.q_width,
                             kStrip,
                             pass.q_dwords,
                             scratch.scores + static_cast<int64_t>(r - first) * pass.score_stride + strip * kStrip,
                             pass.score_stride,
                             true};
      multiply_columns<Format, false>(real_end - r, vectors, args);
    }
  }
}

// Adds p * v of the keys [begin, end) to o of one row.
template <class Format>
static void add_row_edge(const View& view, const PanelPass& pass, const float* p, int begin, int end, float* o) {
  constexpr int kKeys = Format::kPairs ? 2 : 1;
  for (int column = 0; column < pass.o_width; column += kLanes) {
    const int strip = column / kStrip, columns = strip_columns(pass, strip);
    const float* values = value_strip(view, pass, strip) + column % kStrip;
    F32 sum = pass.in_order ? load(o + column) : zero();
    for (int k = begin - begin % kKeys; k < end; k += kKeys) {
      const typename Format::Vec weight = Format::broadcast(p + k / kKeys);
      const typename Format::Vec v = Format::load_packed(values + static_cast<int64_t>(k / kKeys) * columns);
      sum = Format::multiply_add(Format::keep_halves(v, k >= begin, k + 1 < end), weight, sum);
    }
    store(o + column, pass.in_order ? sum : add(load(o + column), sum));
  }
}

// Adds p * v to o of row r of the pass, for those of the keys [begin, end) that the row sees. V of other keys may be
// NaN.
template <class Format>
static void add_row_keys(const View& view, const PanelPass& pass, const Panel& panel, int r, const float* p, int begin,
                         int end, float* o) {
  const int picked = min_of(end, max_of(begin, view.picked_begin - panel.begin));
  if (begin < picked) add_row_edge<Format>(view, pass, p, begin, picked, o);
  for (int k = picked; k < end; ++k) {
    int run_end = k;
    while (run_end < end && row_sees(view, r, pass.head, panel.begin + run_end, run_end)) ++run_end;
    if (k < run_end) add_row_edge<Format>(view, pass, p, k, run_end, o);
    k = run_end;
  }
}

// Adds to each row the keys that it sees outside the range that all rows of its tile share. If `behind` is true, the
// function adds the keys after that range. Otherwise the function adds the keys before that range, or all keys that the
// row sees if the rows of the tile share none.
template <class Format>
static void add_edges(const View& view, const PanelPass& pass, const Panel& panel, const TileRanges* ranges, int first,
                      int real_end, bool behind) {
  for (int r = first; r < real_end; ++r) {
    const KeyRange all = ranges[(r - first) / Format::kRows].all, any = ranges[(r - first) / Format::kRows].any;
    if (all.begin == any.begin && all.end == any.end) continue;  // all rows see the same keys
    const KeyRange seen = keys_in_panel(view, panel, r);
    const bool shares = all.begin < all.end;
    if (behind && !shares) continue;
    const float* p = view.scratch->scores + static_cast<int64_t>(r - first) * pass.score_stride;
    float* o = view.scratch->o + static_cast<int64_t>(r) * pass.o_width;
    const int begin = behind ? all.end : seen.begin, end = behind || !shares ? seen.end : all.begin;
    add_row_keys<Format>(view, pass, panel, r, p, begin, end, o);
  }
}

// Adds P * V to o for the rows [first, end). Rows from real_end on are padding.
template <class Format>
static void group_values(const View& view, const PanelPass& pass, const Panel& panel, TileRanges* ranges, int first,
                         int end, int real_end) {
  constexpr int kKeys = Format::kPairs ? 2 : 1;
  Scratch& scratch = *view.scratch;
  for (int r = first; r < end; r += Format::kRows) {
    KeyRange& all = ranges[(r - first) / Format::kRows].all;
    // Keys from picked_begin on are tested one by one for each row.
    all.end = min_of(all.end, max_of(0, view.picked_begin - panel.begin));
    all.begin += all.begin % kKeys;  // whole pairs
    all.end -= all.end % kKeys;
    if (all.begin > all.end) all.end = all.begin;
  }
  add_edges<Format>(view, pass, panel, ranges, first, real_end, false);
  for (int strip = 0; strip * kStrip < pass.o_width; ++strip) {
    const int columns = strip_columns(pass, strip);
    for (int r = first; r < end; r += Format::kRows) {
      const KeyRange all = ranges[(r - first) / Format::kRows].all;
      if (all.begin >= all.end) continue;
      const TileArgs args = {scratch.scores + static_cast<int64_t>(r - first) * pass.score_stride + all.begin / kKeys,
                             pass.score_stride,
                             value_strip(view, pass, strip) + static_cast<int64_t>(all.begin / kKeys) * columns,
                             columns,
                             (all.end - all.begin) / kKeys,
                             scratch.o + static_cast<int64_t>(r) * pass.o_width + strip * kStrip,
                             pass.o_width,
                             pass.in_order};
      multiply_columns<Format, true>(real_end - r, columns / kLanes, args);
    }
  }
  add_edges<Format>(view, pass, panel, ranges, first, real_end, true);
}

// Adds P * V to o for the rows of a tile, from row `first` on. Used only for formats with kTiles, whose groups have one
// tile.
template <class Format>
static void tile_values(const View& view, const PanelPass& pass, const Panel& panel, TileRanges ranges, int first,
                        int real_end) {
  Scratch& scratch = *view.scratch;
  const KeyRange steps = whole_steps(ranges.any);
  for (int i = 0; i < Format::kRows; ++i) {
    const KeyRange seen = first + i < real_end ? keys_in_panel(view, panel, first + i) : KeyRange{0, 0};
    clear_weights<Format>(seen, steps, scratch.scores + static_cast<int64_t>(i) * pass.score_stride);
  }
  ranges.all.end = min_of(ranges.all.end, max_of(0, view.picked_begin - panel.begin));
  float* o = scratch.o + static_cast<int64_t>(first) * pass.o_width;
  add_all_steps<Format>(view, pass, scratch.scores, steps, ranges.all, o, [&](int key) {
    for (int r = first; r < real_end; ++r) {
      const KeyRange seen = intersect(keys_in_panel(view, panel, r), {key, key + 1});
      const float* p = scratch.scores + static_cast<int64_t>(r - first) * pass.score_stride;
      float* row = o + static_cast<int64_t>(r - first) * pass.o_width;
      if (seen.begin < seen.end) add_row_keys<Format>(view, pass, panel, r, p, seen.begin, seen.end, row);
    }
  });
}

// Converts the scores of rows [first, end) to P.
template <class Format>
static void group_softmax(const View& view, const PanelPass& pass, const Panel& panel, int first, int end) {
  Scratch& scratch = *view.scratch;
  int nodes_of = -1;  // the query for which nodes_seen was filled
  // Applies options and masks to the scores of row r, and returns these scores.
  const auto masked_scores = [&](int r) {
    const KeyRange seen = r < end ? keys_in_panel(view, panel, r) : KeyRange{0, 0};
    if (seen.begin >= seen.end) return RowScores{nullptr, {0, 0}};
    const RowScores row = {scratch.scores + static_cast<int64_t>(r - first) * pass.score_stride,
                           {seen.begin / kLanes, (seen.end - 1) / kLanes + 1}};
    if (view.options.any) score_row(view, pass, panel.begin, r, seen, row.scores);
    if (view.picked_begin < panel.begin + seen.end) {
      const int query = (pass.row_begin + r) / view.group;
      if (query != nodes_of) find_nodes(view, pass, panel.begin, r, seen);
      nodes_of = query;
      hide_nodes(view, seen, row.scores);
    }
    hide_edges(seen, row.scores);
    return row;
  };
  RowScores next = masked_scores(first);
  F32 largest = largest_scores(next.scores, next.vectors);
  for (int r = first; r < end; ++r) {
    const RowScores row = next;
    next = masked_scores(r + 1);
    const RowSums sums = {scratch.o + static_cast<int64_t>(r) * pass.o_width, pass.o_width, scratch.maxima + r,
                          scratch.sums + r};
    largest = softmax_row<Format>(view, row, next, largest, sums);
  }
}

// Folds the rows [first, end). The kernel has just written o of these rows, so o is in the cache.
static void fold_group(const View& view, const PanelPass& pass, int first, int end) {
  Scratch& scratch = *view.scratch;
  for (int r = first; r < end; ++r) {
    fold_row(view, pass.o_width, scratch.maxima[r], static_cast<double>(scratch.sums[r]),
             scratch.o + static_cast<int64_t>(r) * pass.o_width, folded_row(view, r, pass.o_width));
    scratch.sums[r] = 0.0f;
  }
}

// Computes the rows [first, end) over one panel. end - first is a multiple of kRows, and at most kRowGroup.
template <class Format>
static void panel_group(const View& view, const PanelPass& pass, const Panel& panel, int first, int end) {
  const int real_end = min_of(end, pass.row_end - pass.row_begin);
  TileRanges ranges[Format::kRowGroup / Format::kRows];
  bool any = false;
  for (int r = first; r < end; r += Format::kRows) {
    TileRanges& tile = ranges[(r - first) / Format::kRows];
    tile = tile_ranges(view, panel, r, min_of(r + Format::kRows, real_end));
    any = any || tile.any.begin < tile.any.end;
  }
  if (!any) return;
  group_scores<Format>(view, pass, ranges, first, end, real_end);
  group_softmax<Format>(view, pass, panel, first, real_end);
  if constexpr (Format::kTiles) {
    tile_values<Format>(view, pass, panel, ranges[0], first, real_end);
  } else {
    group_values<Format>(view, pass, panel, ranges, first, end, real_end);
  }
  if (panel.folds) fold_group(view, pass, first, real_end);
}

static constexpr int kRowsAhead = 8;  // rows of q and out are prefetched this many rows before their use

// Loads and packs the rows of q of a pass. Padding rows are 0.
template <class Format>
static void load_panel_queries(const View& view, const PanelPass& pass, int padded_rows) {
  Scratch& scratch = *view.scratch;
  for (int i = 0; i < padded_rows; ++i) {
    float* q = scratch.q + static_cast<int64_t>(i) * pass.q_width;
    const int r = pass.row_begin + i;
    if (r < pass.row_end) {
      const int32_t padded = round_up(view.head_dim, Format::kStep), ahead = r + kRowsAhead;
      if (ahead < pass.row_end) {
        prefetch_query(view, scratch.places[i + kRowsAhead], pass.head * view.group + ahead % view.group);
      }
      const QueryPlace& place = scratch.places[i];
      const int32_t head = pass.head * view.group + r % view.group;
      if (!Format::kPairs) {
        load_query(view, place, head, padded, query_factor(view, place, head), q);
      } else if (takes_query_as_it_is(view, place, head)) {
        const int64_t bytes = view.head_dim * int64_t{sizeof(Bf16)};
        memcpy(q, query_row(view.args->q, view.args->q_row_stride, place, head), static_cast<size_t>(bytes));
        memset(reinterpret_cast<unsigned char*>(q) + bytes, 0, static_cast<size_t>(padded * 2 - bytes));
      } else {
        load_query(view, place, head, padded, query_factor(view, place, head), scratch.row);
        convert_row(Type::kBf16, q, Type::kF32, scratch.row, padded);
      }
    } else {
      memset(q, 0, static_cast<size_t>(pass.q_width) * sizeof(float));
    }
  }
}

// Computes one panel. Only the keys in `keys` are packed. padded_rows: the rows of the pass, padding included.
template <class Format>
static void attend_panel(const View& view, const PanelPass& pass, int padded_rows, PageCursor* cursor,
                         const Panel& panel, KeyRange keys) {
  if (view.options.alibi_slopes != nullptr) fill_key_offsets(view, panel.begin, panel.count);
  if (has_bias_keys(view)) fill_bias_keys(view, panel.begin, panel.count);
  pass.pack(view, pass, cursor, panel, keys);
  if constexpr (Format::kTiles) clear_values_behind(view, pass, panel.count);
  const int first_group = panel.first_row / Format::kRowGroup * Format::kRowGroup;
  for (int first = first_group; first < min_of(padded_rows, panel.end_row); first += Format::kRowGroup) {
    panel_group<Format>(view, pass, panel, first, min_of(padded_rows, first + Format::kRowGroup));
  }
}

// Computes panels for keys of token trees. Each query of the pass gets a panel of its own, with the keys of the query's
// path. begin: the key number at which all these panels begin. keys: the range of key numbers to compute.
template <class Format>
[[gnu::noinline]] static void attend_path_panels(const View& view, const PanelPass& pass, int padded_rows,
                                                 PageCursor* cursor, int32_t begin, KeyRange keys) {
  const int num_rows = pass.row_end - pass.row_begin;
  for (int first = 0, end; first < num_rows; first = end) {
    end = min_of(num_rows, first + view.group - (pass.row_begin + first) % view.group);
    const QueryMask& mask = view.scratch->masks[first];
    const KeyRange seen = intersect(intersect(mask.keys, keys), {begin, begin + pass.panel_keys});
    if (seen.begin >= seen.end) continue;
    for (int32_t key = seen.begin; key < seen.end; ++key) {
      view.scratch->key_indexes[key - begin] = index_on_path(&view.path, &mask, key);
    }
    View of_query = view;
    of_query.key_indexes = view.scratch->key_indexes;
    of_query.indexes_begin = begin;
    attend_panel<Format>(of_query, pass, padded_rows, cursor, {begin, seen.end - begin, first, end, false}, seen);
  }
}

// Adds the keys in `keys` to the states of the pass's rows.
template <class Format>
static void attend_panels(const View& view, const PanelPass& pass, int padded_rows, PageCursor* cursor, KeyRange keys) {
  for (int32_t begin = keys.begin - keys.begin % pass.panel_keys; begin < keys.end; begin += pass.panel_keys) {
    const int32_t count = min_of(pass.panel_keys, keys.end - begin);
    if (begin + count > view.path.begin) {
      attend_path_panels<Format>(view, pass, padded_rows, cursor, begin, keys);
    } else {
      const bool folds = !pass.in_order && begin + count < keys.end && (begin + count) % pass.fold_keys == 0;
      attend_panel<Format>(view, pass, padded_rows, cursor, {begin, count, 0, padded_rows, folds}, keys);
    }
  }
}

// Sets the states of the pass's rows, padding included, to the empty state.
static void begin_panel_rows(const View& view, const PanelPass& pass, int padded_rows) {
  Scratch& scratch = *view.scratch;
  for (int i = 0; i < padded_rows; ++i) {
    scratch.maxima[i] = KVC_NEG_INF;
    scratch.sums[i] = 0.0f;
  }
  memset(scratch.o, 0, static_cast<size_t>(padded_rows) * static_cast<size_t>(pass.o_width) * sizeof(float));
}

// Computes the states of the pass's rows in a deterministic cache (kvc_backend_plan.fold_keys). The keys are divided
// into blocks of fold_keys keys. The state over each block is rounded as a partial state is. Then it is merged into the
// state over all earlier blocks, in the way in which merge_tile merges parts. The merged o is in the order of dims.
template <class Format>
static void merge_blocks(const View& view, const PanelPass& pass, int padded_rows, PageCursor* cursor, KeyRange keys) {
  Scratch& scratch = *view.scratch;
  const int num_rows = pass.row_end - pass.row_begin, fold_keys = view.args->plan->fold_keys;
  memset(scratch.fold_o, 0, static_cast<size_t>(num_rows) * static_cast<size_t>(pass.o_width) * sizeof(double));
  begin_folded_rows(view, num_rows);
  for (int i = 0; i < num_rows; ++i) scratch.fold_l[i] = 0.0;
  for (int32_t begin = keys.begin, end; begin < keys.end; begin = end) {
    end = min_of(keys.end, begin - begin % fold_keys + fold_keys);
    begin_panel_rows(view, pass, padded_rows);
    attend_panels<Format>(view, pass, padded_rows, cursor, {begin, end});
    for (int i = 0; i < num_rows; ++i) {
      Format::natural_order(scratch.o + static_cast<int64_t>(i) * pass.o_width, scratch.row, view.v_head_dim);
      const RowState state = round_state(view, pass.head * view.group, scratch.row, scratch.maxima[i], scratch.sums[i]);
      const FoldedRow folded = folded_row(view, i, pass.o_width);
      merge_state(folded.o, folded.m, folded.l, scratch.row, state.m, state.l, view.v_head_dim);
    }
  }
}

// Computes the states of the pass's rows over all keys. If there are many keys, the states are folded.
template <class Format>
static void sum_panels(const View& view, const PanelPass& pass, int padded_rows, PageCursor* cursor, KeyRange keys) {
  begin_panel_rows(view, pass, padded_rows);
  begin_folded_rows(view, pass.row_end - pass.row_begin);
  attend_panels<Format>(view, pass, padded_rows, cursor, keys);
}

// Writes row i of the pass, whose state merge_blocks has computed. head: the q head of the row.
static void finish_merged_row(const View& view, const PanelPass& pass, int i, int32_t head) {
  Scratch& scratch = *view.scratch;
  const QueryPlace& place = scratch.places[i];
  const FoldedRow folded = folded_row(view, i, pass.o_width);
  // o and l are rounded to float32 even if the row becomes an output and not a partial state. So the output has the
  // same bits as if the state were first written as a partial state and merged with empty states.
  for (int32_t d = 0; d < view.v_head_dim; ++d) scratch.row[d] = static_cast<float>(folded.o[d]);
  const RowState state = {*folded.m, static_cast<float>(*folded.l)};
  if (place.partial_offset >= 0) {
    store_state(view, place, head, scratch.row, state);
  } else {
    write_output(view, place, head, scratch.row, static_cast<double>(state.m), static_cast<double>(state.l));
  }
}

// Writes row i of the pass, whose state sum_panels has computed. head: the q head of the row.
template <class Format>
static void finish_summed_row(const View& view, const PanelPass& pass, int i, int32_t head) {
  Scratch& scratch = *view.scratch;
  float *o = scratch.o + static_cast<int64_t>(i) * pass.o_width, *row = Format::kPairs ? scratch.row : o;
  const float m = scratch.maxima[i];
  double l = static_cast<double>(scratch.sums[i]);
  const FoldedRow folded = folded_row(view, i, pass.o_width);
  if (*folded.m != KVC_NEG_INF) l = unfold_row(view, pass.o_width, m, l, o, folded);
  if (Format::kPairs) Format::natural_order(o, row, view.v_head_dim);
  finish_row(view, scratch.places[i], head, row, m, l);
}

template <class Format>
static void panel_pass(const View& view, const PanelPass& pass) {
  Scratch& scratch = *view.scratch;
  const int num_rows = pass.row_end - pass.row_begin, padded_rows = round_up(num_rows, Format::kRows);
  const KeyRange keys = fill_row_masks(view, pass.row_begin, pass.row_end);
  load_panel_queries<Format>(view, pass, padded_rows);
  PageCursor cursor = page_cursor(&view.args->plan->arrays.tables, view.item->row);
  if (pass.in_order) {
    merge_blocks<Format>(view, pass, padded_rows, &cursor, keys);
  } else {
    sum_panels<Format>(view, pass, padded_rows, &cursor, keys);
  }
  for (int i = 0; i < num_rows; ++i) {
    const int32_t head = pass.head * view.group + (pass.row_begin + i) % view.group;
    if (i + kRowsAhead < num_rows) {
      prefetch_output(view, scratch.places[i + kRowsAhead],
                      pass.head * view.group + (pass.row_begin + i + kRowsAhead) % view.group);
    }
    if (pass.in_order) {
      finish_merged_row(view, pass, i, head);
    } else {
      finish_summed_row<Format>(view, pass, i, head);
    }
  }
}

// Returns the shape of a pass. The caller sets the rows and the head of the pass.
template <class Format>
KVC_INLINE PanelPass panel_shape(const View& view, PackPanel pack) {
  PanelPass pass;
  pass.pack = pack;
  pass.keys_only = false;
  pass.q_width = round_up(view.head_dim, Format::kStep) / (Format::kPairs ? 2 : 1);
  pass.q_dwords = Format::kTiles ? pass.q_width : Format::kPairs ? (view.head_dim + 1) / 2 : view.head_dim;
  pass.o_width = round_up(view.v_head_dim, Format::kStep);
  const int32_t key_dwords = max_of(pass.q_width, pass.o_width / (Format::kPairs ? 2 : 1));
  static_assert(kMinPanelKeys % kPanelStep == 0);
  pass.panel_keys = min_of(kMaxPanelKeys, max_of(kMinPanelKeys, kPanelFloats / key_dwords / kPanelStep * kPanelStep));
  while (view.args->plan->fold_keys > 0 && kMaxPanelKeys % pass.panel_keys != 0) pass.panel_keys -= kPanelStep;
  pass.in_order = view.args->plan->fold_keys > 0;
  pass.fold_keys = kPanelFoldKeys / pass.panel_keys * pass.panel_keys;
  pass.score_stride = pass.panel_keys + kMaxLanes;
  pass.value_rows = pass.panel_keys / (Format::kPairs ? 2 : 1);
  return pass;
}

// Returns how many rows of a pass fit the scratch.
template <class Format>
KVC_INLINE int32_t rows_that_fit(const PanelPass& pass) {
  return rows_of_pass(max_of(pass.q_width, pass.o_width)) / Format::kRowGroup * Format::kRowGroup;
}

template <class Format>
static void panel_item(const View& view, PackPanel pack) {
  PanelPass pass = panel_shape<Format>(view, pack);
  [[maybe_unused]] const typename Format::Registers registers;
  const int32_t fitting_rows = rows_that_fit<Format>(pass);
  for (pass.head = view.head_begin; pass.head < view.head_end; ++pass.head) {
    for (pass.row_begin = 0; pass.row_begin < view.num_rows; pass.row_begin = pass.row_end) {
      pass.row_end = min_of(view.num_rows, pass.row_begin + fitting_rows);
      panel_pass<Format>(view, pass);
    }
  }
}

}  // namespace kvc::kernels::KVC_TARGET
