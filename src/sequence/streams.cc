// Sets, changes and ends the streaming windows of sequences.
#include <cinttypes>

#include "base/assert.h"
#include "sequence/sequence_store.h"

namespace kvc {
namespace {

// Returns the streaming window of a sequence of `length` tokens. If prefix_is_sink is set, these tokens become sinks.
StreamWindow with_prefix(StreamWindow stream, int64_t length, bool prefix_is_sink) noexcept {
  if (stream.on() && prefix_is_sink && length > stream.sinks) stream.sinks = static_cast<int32_t>(length);
  return stream;
}

}  // namespace

Status SequenceStore::set_streams(std::span<const uint64_t> ids, std::span<const StreamWindow> streams,
                                  bool prefix_is_sink) {
  start_marking();
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    int32_t slot = -1;
    KVC_TRY(resolve_first(ids[i], index, &slot));
    KVC_TRY(check_idle(slot, index));
    const StreamWindow stream = with_prefix(streams[i], length(slot), prefix_is_sink);
    if (stream.on() && stream.window <= stream.sinks) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                           "window_tokens %d at index %" PRId64
                           " does not exceed its %d sinks (sink_tokens %d, length %" PRId64 ")",
                           stream.window, index, stream.sinks, streams[i].sinks, length(slot))
          .at(index);
    }
    for (int32_t g = 0; g < num_groups(); ++g) {
      const GroupRules rules = this->rules(g).with(stream);
      const Hole freed = hole(slot, g);
      if (rules.works_at(length(slot), freed)) continue;
      return Status::error(KVC_ERROR_EVICTED,
                           "window_tokens %d with %d sinks at length %" PRId64 " needs keys below %d and from %" PRId64
                           " on, but group %d has freed [%" PRId64 ", %" PRId64 ")",
                           stream.window, stream.sinks, length(slot), stream.sinks, rules.first_visible(length(slot)),
                           g, freed.begin * rules.page_size, freed.end * rules.page_size)
          .at(index)
          .in_group(g);
    }
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t slot = slot_of(ids[i]);
    records_[slot].stream = with_prefix(streams[i], length(slot), prefix_is_sink);
    records_[slot].streamed = records_[slot].streamed || records_[slot].stream.on();
    KVC_ASSERT(!stream(slot).on() || stream(slot).sinks < stream(slot).window, stream(slot).sinks, stream(slot).window);
    drop_unseen(slot);
  }
  return Status();
}

}  // namespace kvc
