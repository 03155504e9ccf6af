#include "cache/cache_sequences.h"

#include <algorithm>
#include <cinttypes>

namespace kvc {

Status CacheSequences::check_exist(std::span<const kvc_seq> ids) const {
  int32_t slot = -1;
  for (size_t i = 0; i < ids.size(); ++i) KVC_TRY(core_.store.resolve(ids[i], static_cast<int64_t>(i), &slot));
  return Status();
}

Status CacheSequences::add(std::span<kvc_seq> out) {
  MutexLock lock(core_.mutex);
  return core_.store.add(out);
}

Status CacheSequences::remove(std::span<const kvc_seq> ids) {
  MutexLock lock(core_.mutex);
  KVC_TRY(core_.store.remove(ids));
  for (kvc_seq id : ids) core_.rope_sets.set(core_.store.slot_of(id), KVC_ROPE_SET_SHORT);
  if (TierJobs* const jobs = tiers_.jobs(); jobs != nullptr) {
    for (kvc_seq id : ids) jobs->forget(id);
    jobs->evicted();  // pages of these sequences may be idle now
  }
  return Status();
}

Status CacheSequences::fork(std::span<const kvc_seq> parents, std::span<const int64_t> positions,
                            std::span<kvc_seq> children, void* stream) {
  KVC_TRY(core_.context->check_stream(stream));
  MutexLock lock(core_.mutex);
  const int64_t pages = static_cast<int64_t>(children.size()) * core_.num_groups();
  KVC_TRY(core_.copies.make_room(pages));
  core_.copies.reserve(2 * pages);  // a copy and a clear for each child and group
  KVC_TRY(core_.store.fork(parents, positions, children, core_.copies.plan()));
  Status copied = core_.copies.make(stream);
  if (copied.ok()) {
    for (size_t i = 0; i < children.size(); ++i) {
      core_.rope_sets.set(core_.store.slot_of(children[i]), core_.rope_sets.of(core_.store.slot_of(parents[i])));
    }
    return Status();
  }
  Status undone = core_.store.remove(children);
  return undone.ok() ? std::move(copied) : std::move(undone);
}

Status CacheSequences::truncate(std::span<const kvc_seq> ids, std::span<const int64_t> lengths) {
  MutexLock lock(core_.mutex);
  KVC_TRY(core_.store.truncate(ids, lengths));
  for (size_t i = 0; i < ids.size(); ++i) core_.sent.note_cut(ids[i], lengths[i]);
  return Status();
}

Status CacheSequences::commit(std::span<const kvc_seq> ids, std::span<const int32_t> leaves, void* stream) {
  KVC_TRY(core_.context->check_stream(stream));
  MutexLock lock(core_.mutex);
  KVC_TRY(core_.store.plan_commit(ids, leaves, core_.copies.plan()));
  KVC_TRY(core_.copies.make_room(core_.copies.num_planned()));
  bool begun = false;
  if (Status copied = core_.copies.make(stream, &begun); !copied.ok()) {
    if (begun) core_.order.lose();  // nodes may have overwritten other nodes, so the commit cannot be repeated
    return copied;
  }
  core_.store.finish_commit(ids, leaves);
  return Status();
}

Status CacheSequences::clear() {
  MutexLock lock(core_.mutex);
  bool busy = false;
  core_.for_each_open([&](const Step&) { busy = true; });
  if (busy) return Status::error(KVC_ERROR_BUSY, "a forward is open");
  TierJobs* const jobs = tiers_.jobs();
  if (jobs != nullptr && jobs->has_jobs()) {
    return Status::error(KVC_ERROR_BUSY, "a job runs: cancel it, and poll it until it is done");
  }
  if (core_.num_received > 0) {
    return Status::error(KVC_ERROR_BUSY, "a sequence is being received: cancel the transfer");
  }
  KVC_TRY(core_.store.clear());
  if (jobs != nullptr) jobs->forget_all();
  core_.pending.clear();
  if (core_.prefixes) core_.prefixes->clear();
  core_.copies.queue().clear();
  core_.rope_sets.clear();
  return Status();
}

Status CacheSequences::lengths(std::span<const kvc_seq> ids, std::span<int64_t> out) {
  MutexLock lock(core_.mutex);
  KVC_TRY(check_exist(ids));
  for (size_t i = 0; i < ids.size(); ++i) out[i] = core_.store.length(core_.store.slot_of(ids[i]));
  return Status();
}

Status CacheSequences::tree_nodes(std::span<const kvc_seq> ids, std::span<int32_t> out) {
  MutexLock lock(core_.mutex);
  KVC_TRY(check_exist(ids));
  for (size_t i = 0; i < ids.size(); ++i) out[i] = core_.store.nodes(core_.store.slot_of(ids[i]));
  return Status();
}

Status CacheSequences::checkpoint(std::span<const kvc_seq> ids) {
  MutexLock lock(core_.mutex);
  if (ids.empty()) return Status();
  if (!core_.store.has_states()) return Status::error(KVC_ERROR_UNSUPPORTED, "no group is KVC_ROW_STATE");
  return core_.store.checkpoint(ids);
}

Status CacheSequences::encoder_lengths(int32_t group, std::span<const kvc_seq> ids, std::span<int64_t> out) {
  KVC_TRY(core_.layers.check_group(group, false));
  MutexLock lock(core_.mutex);
  if (ids.empty()) return Status();
  if (!core_.store.rules(group).holds_encoder()) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "group %d is not KVC_VISIBLE_ENCODER", group);
  }
  KVC_TRY(check_exist(ids));
  for (size_t i = 0; i < ids.size(); ++i) out[i] = core_.store.length_in(core_.store.slot_of(ids[i]), group);
  return Status();
}

Status CacheSequences::pages(kvc_seq id, int32_t group, std::span<int32_t> out, int64_t* count) {
  KVC_TRY(core_.layers.check_group(group, false));
  MutexLock lock(core_.mutex);
  int32_t slot = -1;
  KVC_TRY(core_.store.resolve(id, 0, &slot));
  *count = ceil_div(core_.store.length_in(slot, group), core_.store.rules(group).page_size);
  if (out.empty()) return Status();
  if (*count > static_cast<int64_t>(out.size())) {
    return Status::error(KVC_ERROR_BUFFER_TOO_SMALL, "%" PRId64 " entries do not fit in a capacity of %zu", *count,
                         out.size())
        .missing(*count, static_cast<int64_t>(out.size()));
  }
  std::fill_n(out.begin(), *count, -1);
  core_.store.table(group).for_each(core_.store.list(slot, group), 0, *count,
                                    [&](int64_t index, int32_t page) { out[static_cast<size_t>(index)] = page; });
  if (!core_.store.busy(slot)) return Status();
  // An open step may have replaced a shared last page with a copy. Until the step ends, report the original page.
  core_.for_each_open([&](const Step& step) {
    const auto rows = step.slots();
    const auto row = std::find(rows.begin(), rows.end(), slot);
    if (row == rows.end()) return;
    const Reservation& reservation =
        step.reservations()[static_cast<size_t>((row - rows.begin()) * core_.num_groups() + group)];
    if (reservation.copied_from < 0 || reservation.old_size > *count) return;  // no copy, or a copy of tree nodes
    out[static_cast<size_t>(reservation.old_size - 1)] = reservation.copied_from;
  });
  return Status();
}

Status CacheSequences::nearest_position(kvc_seq id, int64_t position, int64_t* before, int64_t* after) {
  MutexLock lock(core_.mutex);
  int32_t slot = -1;
  KVC_TRY(core_.store.resolve(id, 0, &slot));
  if (position < 0 || position > core_.store.length(slot)) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "position %" PRId64 " is outside the sequence's length %" PRId64,
                         position, core_.store.length(slot));
  }
  core_.store.nearest_position(slot, position, before, after);
  return Status();
}

Status CacheSequences::take_copies(std::span<kvc_copy> out, int64_t* count) {
  MutexLock lock(core_.mutex);
  return core_.copies.take(out, count);
}

Status CacheSequences::set_rope(std::span<const kvc_seq> ids, int32_t set) {
  if (set != KVC_ROPE_SET_SHORT && set != KVC_ROPE_SET_LONG) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "set %d is neither KVC_ROPE_SET_SHORT nor KVC_ROPE_SET_LONG", set);
  }
  if (ids.empty()) return Status();
  if (!core_.geometry.has_rope_sets()) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "no layer has KVC_ROPE_SCALING_LONGROPE");
  }
  const bool stored = std::any_of(core_.geometry.rope_classes.begin(), core_.geometry.rope_classes.end(),
                                  [](const RopeClass& rope) { return rope.sets.size() > 1 && !rope.on_read; });
  MutexLock lock(core_.mutex);
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    int32_t slot = -1;
    KVC_TRY(core_.store.resolve(ids[i], index, &slot));
    if (core_.store.busy(slot)) return core_.store.busy_error(slot, index);
    if (!stored || core_.store.stored(slot) == 0) continue;
    return Status::error(KVC_ERROR_ORDER, "sequence %" PRIu64 " holds %" PRId64 " tokens rotated by its set", ids[i],
                         core_.store.stored(slot))
        .at(index);
  }
  for (kvc_seq id : ids) core_.rope_sets.set(core_.store.slot_of(id), set);
  return Status();
}

Status CacheSequences::set_streaming(std::span<const kvc_seq> ids, std::span<const int64_t> sinks,
                                     std::span<const int64_t> windows, uint32_t flags) {
  if ((flags & ~uint32_t{KVC_STREAMING_PREFIX_IS_SINK}) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", flags);
  }
  if (ids.empty()) return Status();
  if (!core_.geometry.limits.streaming) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "the cache was created without KVC_CACHE_STREAMING");
  }
  std::vector<StreamWindow> streams(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t s = sinks.empty() ? 0 : sinks[i];
    const int64_t most = core_.geometry.store.max_length;
    if (windows[i] == 0 && s != 0) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                           "sink_tokens %" PRId64 " at index %zu must be 0, as window_tokens is", s, i)
          .at(static_cast<int64_t>(i));
    }
    if (windows[i] < 0 || windows[i] > most || s < 0 || s > most) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                           "window_tokens %" PRId64 " or sink_tokens %" PRId64 " at index %zu is outside 0..%" PRId64
                           " or 0..%" PRId64,
                           windows[i], s, i, most, most)
          .at(static_cast<int64_t>(i));
    }
    streams[i] = {static_cast<int32_t>(s), static_cast<int32_t>(windows[i])};
  }
  MutexLock lock(core_.mutex);
  return core_.store.set_streams(ids, streams, (flags & KVC_STREAMING_PREFIX_IS_SINK) != 0);
}

Status CacheSequences::streaming(std::span<const kvc_seq> ids, std::span<int64_t> sinks, std::span<int64_t> windows) {
  MutexLock lock(core_.mutex);
  KVC_TRY(check_exist(ids));
  for (size_t i = 0; i < ids.size(); ++i) {
    const StreamWindow stream = core_.store.stream(core_.store.slot_of(ids[i]));
    sinks[i] = stream.sinks;
    windows[i] = stream.window;
  }
  return Status();
}

Status CacheSequences::max_append(std::span<const kvc_seq> ids, std::span<int64_t> out) {
  MutexLock lock(core_.mutex);
  KVC_TRY(check_exist(ids));
  for (size_t i = 0; i < ids.size(); ++i)
    out[i] = core_.store.max_append(core_.store.slot_of(ids[i]), core_.geometry.limits.tokens);
  return Status();
}

Status CacheSequences::exclusive_pages(int32_t group, std::span<const kvc_seq> ids, std::span<int64_t> out) {
  KVC_TRY(core_.layers.check_group(group, false));
  MutexLock lock(core_.mutex);
  KVC_TRY(check_exist(ids));
  for (size_t i = 0; i < ids.size(); ++i) out[i] = core_.store.exclusive_pages(core_.store.slot_of(ids[i]), group);
  return Status();
}

}  // namespace kvc
