// What a layer group's kind, and a streaming window of a sequence, mean for page lists: what they hold, which pages may
// be freed, and which positions still work. Pure functions of lengths; all in tokens unless named otherwise.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/checked.h"

namespace kvc {

// What a page of a group holds.
enum class PageContent : uint8_t {
  kTokens,   // K and V of the sequence's tokens
  kEncoder,  // K and V of another sequence's, with a length of its own; grows in steps of its own
  kState     // the state after all of the sequence's tokens: one page, a fresh one for each step
};

// A streaming window of a sequence: of its first `sinks` tokens and of those before it, itself included, a query sees
// `window` in all. 0 <= sinks < window; window 0 = the sequence does not stream.
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
  int64_t window_tokens = 0;  // a query at p sees p-w+1..p; 0 = everything
  int64_t rollback_tokens = 0;
  int64_t page_size = 1;     // of states: more than any length, so that a list has one page
  int64_t chunk_tokens = 0;  // instead of a window: it sees its chunk up to itself, positions from p/c*c on
  PageContent content = PageContent::kTokens;
  int64_t sink_tokens = 0;  // beside a window: it sees positions below s too

  bool holds_tokens() const noexcept { return content == PageContent::kTokens; }
  bool holds_encoder() const noexcept { return content == PageContent::kEncoder; }
  bool holds_state() const noexcept { return content == PageContent::kState; }
  bool windowed() const noexcept { return window_tokens > 0 || chunk_tokens > 0; }

  bool streams() const noexcept { return holds_tokens() && !windowed(); }  // goes by streaming windows: a full group

  // The rules of a group for a sequence with such a streaming window: other groups keep theirs. In a full group query p
  // sees j < s and max(s, p-(w-s)+1) <= j <= p: s sinks, and a sliding window of w - s.
  GroupRules with(StreamWindow stream) const noexcept {
    GroupRules rules = *this;
    if (!stream.on() || !streams()) return rules;
    rules.window_tokens = stream.window - stream.sinks;
    rules.sink_tokens = stream.sinks;
    return rules;
  }

  // First position, sinks aside, that a query at `position` may read.
  int64_t first_visible(int64_t position) const noexcept {
    if (chunk_tokens > 0) return position - position % chunk_tokens;
    return window_tokens > 0 ? std::max(sink_tokens, position - window_tokens + 1) : 0;
  }

  // Pages with a sink in them: never freed.
  int64_t sink_pages() const noexcept { return ceil_div(sink_tokens, page_size); }

  // Tokens that no query from `length - rollback` on can read, sinks aside, and the whole pages of them: those from
  // sink_pages() on are freed when a sequence reaches `length`.
  int64_t droppable_tokens(int64_t length) const noexcept {
    return first_visible(std::max<int64_t>(0, length - rollback_tokens));
  }
  int64_t droppable_pages(int64_t length) const noexcept { return droppable_tokens(length) / page_size; }

  // Whether a sequence with such a hole can be cut at `position` and go on from there. With H and F the tokens before
  // and at the hole's end: position <= H (nothing below it is gone), or s <= H and first_visible(position) >= F
  // (nothing that a query there or later sees is gone). As first_visible(p) = p-(w-s)+1 where it is beyond H >= s, and
  // grows with p, the positions that work are 0..H and F+(w-s)-1.. (chunks: the multiple of c that is not below F, and
  // up).
  bool works_at(int64_t position, Hole hole) const noexcept {
    const int64_t before = hole.begin * page_size;
    if (hole.empty() || position <= before) return true;
    return sink_tokens <= before && first_visible(position) >= hole.end * page_size;
  }

  // The largest position before the hole that works, and the smallest behind it.
  int64_t last_before(Hole hole) const noexcept { return hole.begin * page_size; }
  int64_t first_behind(Hole hole) const noexcept {
    const int64_t first = hole.end * page_size;
    return chunk_tokens > 0 ? ceil_div(first, chunk_tokens) * chunk_tokens : first + window_tokens - 1;
  }

  // Most pages one sequence holds: its sinks, behind the next query its window or chunk and the rollback margin, the
  // tokens of a step, and one page because neither end needs to be aligned.
  int64_t peak_pages(int64_t step_tokens) const noexcept {
    const int64_t behind = std::max(window_tokens, chunk_tokens) - 1 + rollback_tokens;
    return sink_pages() + ceil_div(behind + step_tokens, page_size) + 1;
  }
};

}  // namespace kvc
