// GroupRules: the rules of a layer group for page lists. They can include the streaming window of a sequence. They
// determine what pages hold, which pages may be freed, and at which positions a sequence can be cut (forked or
// truncated). A group combines a kind of row with a visibility. All combinations are possible, except that queries of a
// group of states always see all tokens (src/layer/group_config.h). The methods are pure functions. Their numbers count
// tokens, unless a name says otherwise. Positions are below 2^30.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/checked.h"
#include "kernels/common/visible.h"

namespace kvc {

// What a group stores for a token.
enum class RowKind : uint8_t {
  kKeyValue,  // K and V
  kLatent,    // one row [latent | rotary] for all heads (MLA): K is the row, and V its latent part
  kState      // no rows: one page with the state after all tokens; each step writes a new page
};

// A streaming window of a sequence. A query sees the first `sinks` tokens and the newest tokens, itself included:
// `window` tokens in all. 0 <= sinks < window. window 0 = the sequence does not stream.
struct StreamWindow {
  int32_t sinks = 0;
  int32_t window = 0;

  bool on() const noexcept { return window > 0; }
};

// Entries of a page list that were freed: [begin, end).
struct Hole {
  int64_t begin = 0;
  int64_t end = 0;

  bool empty() const noexcept { return begin >= end; }
};

struct GroupRules {
  kernels::VisibleRule visible = {};  // which of the sequence's own tokens a query sees: all, a window or a chunk
  int64_t rollback_tokens = 0;
  int64_t page_size = 1;       // in tokens; for states, more than any length, so that a list has one page
  int64_t tokens_per_row = 1;  // r: row w represents tokens [w r, (w + 1) r), and a page has page_size / r rows
  RowKind row = RowKind::kKeyValue;
  bool encoder = false;  // queries see all rows of an encoder sequence, which has its own length and steps

  bool holds_tokens() const noexcept { return row != RowKind::kState && !encoder; }
  bool holds_encoder() const noexcept { return encoder; }
  bool holds_state() const noexcept { return row == RowKind::kState; }
  bool windowed() const noexcept { return !kernels::hides_nothing(visible); }
  // Whether every page of a sequence's own tokens is kept, because queries see all tokens.
  bool keeps_all() const noexcept { return holds_tokens() && !windowed(); }
  // The kind of row in texts: descriptions and layouts.
  const char* row_name() const noexcept {
    return row == RowKind::kState ? "state" : row == RowKind::kLatent ? "latent" : "kv";
  }

  // Whether a step appends to this group, which is number `group`. encoder_group: the group whose encoder tokens the
  // step appends; -1 = it appends the sequences' own tokens.
  bool grows(int32_t group, int32_t encoder_group) const noexcept {
    return encoder_group < 0 ? !encoder : group == encoder_group;
  }

  // The number of rows that the first `tokens` tokens have closed. The function also converts the slot of a token to
  // the slot of its row, because each page begins with a row.
  int64_t rows_of(int64_t tokens) const noexcept { return tokens / tokens_per_row; }
  bool compresses() const noexcept { return tokens_per_row > 1; }

  // Whether the streaming window of a sequence applies to this group.
  bool streams() const noexcept { return keeps_all(); }

  // The rules of the group for a sequence with this streaming window.
  GroupRules with(StreamWindow stream) const noexcept {
    GroupRules rules = *this;
    if (stream.on() && streams()) rules.visible = kernels::see_stream(stream.sinks, stream.window);
    return rules;
  }

  // The first position that a query at `position` sees, apart from sinks.
  int64_t first_visible(int64_t position) const noexcept {
    return kernels::visible_begin(visible, static_cast<int32_t>(position));
  }

  // The index of the first block that a sequence of `blocks` blocks needs. A block is a whole page of `block_tokens`
  // tokens. For states, the result is the last block, because only the state after it is needed. For encoder tokens,
  // the result is `blocks`, because they are no part of a prefix.
  int64_t first_needed(int64_t blocks, int64_t block_tokens) const noexcept {
    if (holds_tokens()) return first_visible(blocks * block_tokens) / block_tokens;
    return encoder ? blocks : blocks - 1;
  }

  int64_t sink_tokens() const noexcept { return kernels::visible_sinks(visible, INT32_MAX); }
  // The number of pages that hold a sink. These pages are never freed.
  int64_t sink_pages() const noexcept { return ceil_div(sink_tokens(), page_size); }

  // droppable_tokens is the number of leading tokens that no query at or after position `length - rollback_tokens`
  // sees, apart from sinks. droppable_pages counts the whole pages of these tokens. When a sequence reaches `length`,
  // these pages are freed, except the first sink_pages().
  int64_t droppable_tokens(int64_t length) const noexcept {
    return first_visible(std::max<int64_t>(0, length - rollback_tokens));
  }
  int64_t droppable_pages(int64_t length) const noexcept { return droppable_tokens(length) / page_size; }

  // Whether a sequence with this hole can be cut at `position` and continue from there. Let s be the number of sinks,
  // and [H, F) the tokens of the hole. The sequence can be cut if one of these holds:
  //   position <= H                               no key before the cut is gone
  //   s <= H and first_visible(position) >= F     no key that a query from there on sees is gone
  // first_visible never decreases. So these are the positions 0..H, and the positions from first_after(hole) on.
  bool works_at(int64_t position, Hole hole) const noexcept {
    if (hole.empty() || position <= last_before(hole)) return true;
    return sink_tokens() <= last_before(hole) && first_visible(position) >= hole.end * page_size;
  }

  // last_before is the largest position before the hole at which works_at is true, and first_after is the smallest such
  // position after it.
  int64_t last_before(Hole hole) const noexcept { return hole.begin * page_size; }
  int64_t first_after(Hole hole) const noexcept {
    return kernels::first_query_beyond(visible, static_cast<int32_t>(hole.end * page_size));
  }

  // The largest number of pages that one sequence holds. These pages hold its sinks, its window or chunk with the
  // rollback margin, and the tokens of a step. In the worst case, the first token of a step is the last token of a
  // page.
  int64_t peak_pages(int64_t step_tokens) const noexcept {
    const int64_t before = kernels::most_before(visible) + rollback_tokens;
    return sink_pages() + 1 + ceil_div(before + step_tokens - 1, page_size);
  }
};

}  // namespace kvc
