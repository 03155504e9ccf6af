// See attend/common/arrays.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/common/arrays.h"

#include "kernels/common/fail.h"

namespace kvc::kernels::cuda {
namespace {

// The nodes that rows refer to.
int64_t count_nodes(const kvc_backend_rows& rows) {
  int64_t count = 0;
  for (int32_t r = 0; rows.tree_begin != nullptr && r < rows.num_rows; ++r) {
    const int64_t nodes = rows.kv_lengths[r] - rows.tree_begin[r];
    if (nodes > 0 && rows.tree_offset[r] + nodes > count) count = rows.tree_offset[r] + nodes;
  }
  return count;
}

void list_pieces(const kvc_backend_attend& args, Piece* pieces) {
  const kvc_backend_rows& rows = *args.rows;
  const kvc_backend_step *step = args.step, *planned = args.planned != 0 ? step : nullptr;
  pieces[kItems] = piece_of(planned, args.items, args.num_items);
  pieces[kTiles] = piece_of(planned, args.tiles, args.num_tiles);
  pieces[kSpans] = piece_of(planned, args.spans, args.num_spans);
  pieces[kParts] = piece_of(planned, args.parts, args.num_parts);
  pieces[kTokenBegin] = piece_of(step, rows.token_begin, rows.num_rows + 1);
  pieces[kLengths] = piece_of(step, rows.kv_lengths, rows.num_rows);
  pieces[kPositions] = piece_of(step, rows.positions, rows.num_tokens);
  pieces[kKeyEnds] = piece_of(step, rows.key_ends, rows.num_tokens);
  pieces[kStreamSinks] = piece_of(step, rows.stream_sinks, rows.num_rows);
  pieces[kStreamWindows] = piece_of(step, rows.stream_windows, rows.num_rows);
  pieces[kTreeBegin] = piece_of(step, rows.tree_begin, rows.num_rows);
  pieces[kTreeOffset] = piece_of(step, rows.tree_offset, rows.num_rows);
  pieces[kTreeNodes] = piece_of(step, rows.tree_nodes, count_nodes(rows));
  pieces[kKeyBegins] = piece_of(step, rows.key_begins, rows.num_rows);
  pieces[kKeySets] = piece_of(step, args.key_tables != nullptr ? args.key_sets : nullptr, rows.num_tokens);
  for (int i = kRoots; i < kNumPieces; ++i) pieces[i] = {};
}

template <class T>
Piece on_device_at(const T* address) {
  return {nullptr, 0, nullptr, const_cast<T*>(address)};
}

}  // namespace

const int32_t* mirrored_nodes(const kvc_backend_attend& args) {
  return args.tables->pages != nullptr ? nullptr
                                       : static_cast<const int32_t*>(staged_address(args.step, args.tables->nodes));
}

kvc_status find_arrays(const kvc_backend_attend& args, const BlockCut& many, Upload* upload, Piece* pieces, Made* made,
                       kvc_error* error) {
  list_pieces(args, pieces);
  const kvc_backend_step::Blocks* const staged = args.planned != 0 ? staged_blocks(args.step, args.items) : nullptr;
  made->staged = staged;
  made->own_blocks = staged == nullptr;
  made->blocks = staged != nullptr ? staged->count : count_all_blocks(args, many);
  pieces[kBlocks] = staged != nullptr ? on_device_at(staged->blocks) : room_for<AttendBlock>(made->blocks.both());
  const int32_t num_rows = args.rows->num_rows;
  if (mirrored_nodes(args) != nullptr) {
    pieces[kRoots] = piece_of(args.step, args.tables->roots, num_rows);
    pieces[kLevels] = piece_of(args.step, args.tables->levels, num_rows);
    return KVC_OK;
  }
  if (staged != nullptr && staged->pages != nullptr) {
    pieces[kPages] = on_device_at(staged->pages);
    pieces[kPageBegin] = on_device_at(staged->page_begin);
    return KVC_OK;
  }
  PageRange* const ranges = upload->scratch<PageRange>(2 * int64_t{num_rows});
  if (ranges == nullptr) return fail(error, KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for page ranges");
  made->ranges = ranges;
  const int64_t pages = find_page_ranges(args, ranges);
  pieces[kPages] = room_for<int32_t>(pages > 0 ? pages : 1);  // null would mean trees
  pieces[kPageBegin] = room_for<int64_t>(2 * int64_t{num_rows});
  return KVC_OK;
}

void write_made(const kvc_backend_attend& args, const BlockCut& many, const Made& made, const Piece* pieces) {
  if (made.own_blocks) list_all_blocks(args, many, static_cast<AttendBlock*>(pieces[kBlocks].host));
  if (made.ranges == nullptr) return;
  flatten_pages(args, made.ranges, static_cast<int32_t*>(pieces[kPages].host),
                static_cast<int64_t*>(pieces[kPageBegin].host));
}

}  // namespace kvc::kernels::cuda
