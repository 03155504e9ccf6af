#include "save/sequence_payload.h"

#include <algorithm>
#include <cinttypes>

#include "base/checked.h"

namespace kvc {

Status SequencePayload::bytes_of(const Layers& layers, const SavedSequence& saved, int64_t* out) {
  int64_t total = 0;
  for (int32_t g = 0; g < layers.num_groups(); ++g) {
    const GroupRules& rules = layers.rules(g);
    const bool states = rules.holds_state();
    const int64_t count = states ? saved.num_states() : rules.rows_of(saved.lists[static_cast<size_t>(g)].held());
    int64_t bytes = states ? RowCopy::state_bytes(layers, g) : RowCopy::token_bytes(layers, g);
    if (checked_mul(bytes, count, &bytes) && checked_add(total, bytes, &total) && total <= kMaxPayloadBytes) continue;
    return Status::error(KVC_ERROR_CORRUPT, "%" PRId64 " tokens or states of group %d take more than %" PRId64 " bytes",
                         count, g, kMaxPayloadBytes)
        .in_group(g);
  }
  *out = total;
  return Status();
}

// Calls tokens(group, run) for each run, and states(group, page) for each state, in the order of the payload.
template <class Tokens, class States>
Status SequencePayload::for_each_part(Tokens tokens, States states) {
  for (int32_t g = 0; g < layers_.num_groups(); ++g) {
    if (layers_.rules(g).holds_state()) {
      buffer_.resize(std::max(buffer_.size(), static_cast<size_t>(RowCopy::state_bytes(layers_, g))));
      for (const int32_t page : pages_[static_cast<size_t>(g)]) KVC_TRY(states(g, page));
      continue;
    }
    for (const RowRun& run : RowCopy::runs(layers_, g)) KVC_TRY(tokens(g, run));
  }
  return Status();
}

// Divides the rows of a run that the group holds into chunks of at most kChunkBytes (but at least one row). For each
// chunk, sets slots_ and calls visit(bytes) with a buffer for the chunk's rows. Only groups with a row for each token
// have holes.
template <class Visit>
Status SequencePayload::for_each_chunk(int32_t group, const RowRun& run, Visit visit) {
  const SavedSequence::List& list = saved_.lists[static_cast<size_t>(group)];
  const std::vector<int32_t>& pages = pages_[static_cast<size_t>(group)];
  const GroupRules& rules = layers_.rules(group);
  const int64_t page_rows = rules.rows_of(layers_.geometry().page_size);
  const int64_t most = std::max<int64_t>(1, kChunkBytes / run.token_bytes);
  int64_t position = list.hole_begin > 0 || list.hole_end == 0 ? 0 : list.hole_end;
  for (int64_t left = rules.rows_of(list.held()); left > 0;) {
    const int64_t count = std::min(left, most);
    slots_.clear();
    while (static_cast<int64_t>(slots_.size()) < count) {
      const int32_t page = pages[static_cast<size_t>(position / page_rows)];
      slots_.push_back(page < 0 ? -1 : page * page_rows + position % page_rows);
      if (++position == list.hole_begin && list.hole_end > list.hole_begin) position = list.hole_end;
    }
    buffer_.resize(std::max(buffer_.size(), static_cast<size_t>(count * run.token_bytes)));
    KVC_TRY(visit(std::span(buffer_).first(static_cast<size_t>(count * run.token_bytes))));
    left -= count;
  }
  return Status();
}

Status SequencePayload::write(PayloadWriter* writer, void* stream) {
  std::unique_ptr<RowCopy> copy;
  KVC_TRY(RowCopy::create(layers_, &copy));
  return for_each_part(
      [&](int32_t group, const RowRun& run) {
        return for_each_chunk(group, run, [&](std::span<uint8_t> bytes) {
          Status read = copy->read_run(run, slots_, bytes.data(), stream);
          return read.ok() ? writer->write(bytes) : std::move(read);
        });
      },
      [&](int32_t group, int32_t page) {
        const auto bytes = std::span(buffer_).first(static_cast<size_t>(RowCopy::state_bytes(layers_, group)));
        Status read = copy->read_states(group, page, bytes.data(), stream);
        return read.ok() ? writer->write(bytes) : std::move(read);
      });
}

Status SequencePayload::read(PayloadReader* reader, void* stream) {
  std::unique_ptr<RowCopy> copy;
  KVC_TRY(RowCopy::create(layers_, &copy));
  return for_each_part(
      [&](int32_t group, const RowRun& run) {
        return for_each_chunk(group, run, [&](std::span<uint8_t> bytes) {
          Status read = reader->read(bytes);
          return read.ok() ? copy->write_run(run, slots_, bytes.data(), stream) : std::move(read);
        });
      },
      [&](int32_t group, int32_t page) {
        const auto bytes = std::span(buffer_).first(static_cast<size_t>(RowCopy::state_bytes(layers_, group)));
        Status read = reader->read(bytes);
        return !read.ok() || page < 0 ? std::move(read) : copy->write_states(group, page, bytes.data(), stream);
      });
}

}  // namespace kvc
