// Computes the scores of keys for kvc_backend_select, with the packing and the register tiles of the panel kernel. A
// score is a sum of products in the order of dims, and other rows of the tile do not change this sum. So scores do not
// depend on the batch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/panel_pass.h"
#include "kernels/cpu/select.h"

namespace kvc::kernels::KVC_TARGET {

// Returns where the scores of a query in list `list` are, from key `key` on. first: the key of the first score
// (first_scored).
KVC_INLINE float* scores_of(const View& view, const ScoreCall& call, int query, int32_t list, int32_t first,
                            int32_t key) {
  return call.scores + (view.first_query + query) * call.query_stride + (list - call.list_begin) * call.list_stride +
         (key - first);
}

// Adds the weighted dot products of the rows [row, end) to the scores of their query. The rows are heads of one query.
// dots: the dot products of row `row`, from the first of `keys` on. keys: a range of whole vectors.
static void add_heads(const View& view, const PanelPass& pass, const ScoreCall& call, int row, int end,
                      const float* dots, KeyRange keys) {
  const kvc_backend_select& select = *call.select;
  const int place = row - pass.row_begin, head = pass.head * view.group + row % view.group;
  float weights[kMaxRowGroup];
  for (int i = 0; i < end - row; ++i) {
    weights[i] = select.weights == nullptr
                     ? 1.0f
                     : select.weights[view.scratch->places[place].token * select.weights_token_stride +
                                      (head + i) * select.weights_head_stride];
  }
  float* scores = scores_of(view, call, row / view.group, 0, first_scored(view.scratch->masks[place]), keys.begin);
  for (int32_t k = 0; k < keys.end - keys.begin; k += kLanes) {
    F32 sum = head == 0 ? zero() : load(scores + k);
    for (int i = 0; i < end - row; ++i) {
      sum = fma(set1(weights[i]), max(load(dots + i * int64_t{pass.score_stride} + k), zero()), sum);
    }
    store(scores + k, sum);
  }
}

// Writes the scores of the rows [first, end) of the pass for the keys of a panel. There are at most kMaxRowGroup rows.
[[gnu::noinline]] static void keep_scores(const View& view, const PanelPass& pass, const ScoreCall& call,
                                          const Panel& panel, KeyRange packed, int first, int end) {
  const bool sums = call.select->rule == KVC_SELECT_RELU_SUM;
  for (int i = first, next = first; i < end; i = next) {
    const int row = pass.row_begin + i, head = pass.head * view.group + row % view.group;
    next = sums ? min_of(end, i + view.group - row % view.group) : i + 1;
    const KeyRange seen = intersect(view.scratch->masks[i].keys, packed);
    if (seen.begin >= seen.end) continue;
    const KeyRange keys = {seen.begin - seen.begin % kKeyBlock, round_up(seen.end, kKeyBlock)};
    const float* dots =
        view.scratch->scores + static_cast<int64_t>(i - first) * pass.score_stride + (keys.begin - panel.begin);
    if (sums) {
      add_heads(view, pass, call, row, pass.row_begin + next, dots, keys);
    } else if (head >= call.list_begin && head < call.list_end) {
      float* scores = scores_of(view, call, row / view.group, head, first_scored(view.scratch->masks[i]), keys.begin);
      memcpy(scores, dots, static_cast<size_t>(keys.end - keys.begin) * sizeof(float));
    }
  }
}

template <class Format>
static void score_item(const View& view, const ScoreCall& call, PackPanel pack) {
  PanelPass pass = panel_shape<Format>(view, pack);
  pass.keys_only = true;
  [[maybe_unused]] const typename Format::Registers registers;
  TileRanges ranges[Format::kRowGroup / Format::kRows];
  for (pass.head = view.head_begin; pass.head < view.head_end; ++pass.head) {
    for (pass.row_begin = 0; pass.row_begin < view.num_rows; pass.row_begin = pass.row_end) {
      pass.row_end = min_of(view.num_rows, pass.row_begin + rows_that_fit<Format>(pass));
      const int num_rows = pass.row_end - pass.row_begin, padded_rows = round_up(num_rows, Format::kRows);
      const KeyRange keys = fill_row_masks(view, pass.row_begin, pass.row_end);
      load_panel_queries<Format>(view, pass, padded_rows);
      PageCursor cursor = page_cursor(&view.args->plan->arrays.tables, view.item->row);
      for (int32_t begin = keys.begin - keys.begin % pass.panel_keys; begin < keys.end; begin += pass.panel_keys) {
        const Panel panel = {begin, min_of(pass.panel_keys, keys.end - begin), 0, padded_rows, false};
        const KeyRange packed = intersect(keys, {begin, begin + panel.count});
        pass.pack(view, pass, &cursor, panel, keys);
        for (TileRanges& tile : ranges) tile.any = {packed.begin - begin, packed.end - begin};
        for (int first = 0; first < padded_rows; first += Format::kRowGroup) {
          const int end = min_of(padded_rows, first + Format::kRowGroup);
          group_scores<Format>(view, pass, ranges, first, end, num_rows);
          keep_scores(view, pass, call, panel, packed, first, min_of(end, num_rows));
        }
      }
    }
  }
}

template <class Format>
static void score_entry(const kvc_backend_attend* args, const kvc_backend_item* item, const ListedQuery* listed,
                        const ScoreCall* call, Scratch* scratch) {
  score_item<typename PanelFormatOf<Format>::Type>(make_view(args, item, listed, scratch), *call, pack_panel<Format>);
}

}  // namespace kvc::kernels::KVC_TARGET
