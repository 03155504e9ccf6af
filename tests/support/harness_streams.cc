// Streaming windows by the specification: what queries see, what is freed, and what still works.
#include <algorithm>

#include "harness.h"
#include "harness_call.h"

namespace kvt {

// Whether a query at `position` of a sequence sees a key at `key` <= position, by windows and chunks.
bool Harness::sees(const Sequence &s, const GroupSpec &group, int64_t position, int64_t key) {
  if (s.window == 0 || !group.full()) return key >= group.first_seen(position);
  return key < s.sinks || key >= std::max(s.sinks, position - (s.window - s.sinks) + 1);
}

Harness::Freed Harness::freed(const Sequence &s, int group) const {
  const std::vector<int> &pages = s.pages[static_cast<size_t>(group)];
  const auto first = std::find(pages.begin(), pages.end(), -1);
  const auto last = std::find_if(first, pages.end(), [](int page) { return page >= 0; });
  return {(first - pages.begin()) * spec_.page_size, (last - pages.begin()) * spec_.page_size};
}
Harness::Freed Harness::freed(int handle, int group) const { return freed(sequence(handle), group); }

// Whether the sequence can be cut at `position` and continue: all that the next query sees is there, and so is the slot
// of its own key.
bool Harness::works(const Sequence &s, int64_t position) const {
  for (size_t g = 0; g < pools_.size(); g++) {
    const Freed gone = freed(s, static_cast<int>(g));
    if (gone.begin == gone.end || position <= gone.begin) continue;
    if (position < gone.end) return false;
    for (int64_t key = gone.begin; key < gone.end; key++) {
      if (sees(s, spec_.groups[g], position, key)) return false;
    }
  }
  return true;
}
bool Harness::position_works(int handle, int64_t position) const { return works(sequence(handle), position); }

// Frees the pages of which no later query of a sequence sees a token.
void Harness::slide(Sequence *s) {
  const int64_t page_size = spec_.page_size;
  const int64_t earliest = std::max<int64_t>(0, static_cast<int64_t>(s->tokens.size()) - spec_.rollback);
  for (size_t g = 0; g < pools_.size(); g++) {
    const GroupSpec &group = spec_.groups[g];
    const bool streams = s->window > 0 && group.full();
    const int64_t left =
        streams ? std::max(s->sinks, earliest - (s->window - s->sinks) + 1) : group.first_seen(earliest);
    const int64_t begin = streams ? ceil_div(s->sinks, page_size) : 0, end = left / page_size;
    const Freed gone = freed(*s, static_cast<int>(g));
    // The hole grows at its end. If the margin covers all of it, the earlier sinks are kept.
    if (gone.begin < gone.end && end * page_size <= gone.end) continue;
    std::vector<int> &pages = s->pages[g];
    for (int64_t p = begin; p < std::min(end, static_cast<int64_t>(pages.size())); p++) {
      if (pages[static_cast<size_t>(p)] >= 0) drop_page(static_cast<int>(g), pages[static_cast<size_t>(p)]);
      pages[static_cast<size_t>(p)] = -1;
    }
  }
}

kvc_status Harness::set_streaming(const std::vector<int> &handles, const std::vector<int64_t> &sinks,
                                  const std::vector<int64_t> &windows, bool prefix_is_sink) {
  Faults faults;
  const auto sinks_of = [&](size_t i, const Sequence &s) {
    const int64_t length = static_cast<int64_t>(s.tokens.size());
    return prefix_is_sink && windows[i] > 0 ? std::max(sinks[i], length) : sinks[i];
  };
  const std::vector<kvc_seq> ids = resolve(handles, &faults, [&](size_t i, const Sequence &s) {
    const int64_t index = static_cast<int64_t>(i);
    if (s.forward >= 0) {
      faults.push_back({KVC_ERROR_BUSY, index});
    } else if (!s.nodes.empty()) {
      faults.push_back({KVC_ERROR_UNCOMMITTED, index});
    }
    Sequence after = s;
    after.sinks = sinks_of(i, s);
    after.window = windows[i];
    const bool off = windows[i] == 0 && sinks[i] == 0;
    if (!off && (windows[i] < 1 || sinks[i] < 0 || after.window <= after.sinks)) {
      faults.push_back({KVC_ERROR_INVALID_ARGUMENT, index});
    } else if (!works(after, static_cast<int64_t>(s.tokens.size()))) {
      faults.push_back({KVC_ERROR_EVICTED, index});
    }
  });
  for (size_t i = 0; i < handles.size(); i++) {  // values that are wrong for any sequence
    if (windows[i] < 0 || sinks[i] < 0 || (windows[i] == 0 && sinks[i] > 0)) {
      faults.push_back({KVC_ERROR_INVALID_ARGUMENT, static_cast<int64_t>(i)});
    }
  }
  if (!spec_.streaming) faults = {{KVC_ERROR_UNSUPPORTED}};
  const kvc_status status = call("kvc_seq_set_streaming", faults, [&](kvc_error *e) {
    return kvc_seq_set_streaming(cache_.get(), static_cast<int64_t>(ids.size()), ids.data(), sinks.data(),
                                 windows.data(), prefix_is_sink ? KVC_STREAMING_PREFIX_IS_SINK : 0, e);
  });
  if (status) return status;
  for (size_t i = 0; i < handles.size(); i++) {
    Sequence &s = sequence(handles[i]);
    s.sinks = sinks_of(i, s);
    s.window = windows[i];
    slide(&s);
    note("stream %d: %lld sinks, window %lld", handles[i], static_cast<long long>(s.sinks),
         static_cast<long long>(s.window));
    int64_t got_sinks = -1, got_window = -1;
    call("kvc_seq_get_streaming", {},
         [&](kvc_error *e) { return kvc_seq_get_streaming(cache_.get(), 1, &s.id, &got_sinks, &got_window, e); });
    if (got_sinks != s.sinks || got_window != s.window) fail("get_streaming is not what was set");
  }
  return status;
}

}  // namespace kvt
