#include "cache/cache_save.h"

#include <algorithm>
#include <cinttypes>

#include "layer/layout_manifest.h"

namespace kvc {
namespace {

// Checks that the object is a saved sequence of this model and layout.
Status check_header(const ObjectHeader& header, const Geometry& geometry) {
  if (header.kind != ObjectKind::kSequence) {
    return Status::error(KVC_ERROR_CORRUPT, "the object has kind %u, and a saved sequence has kind %u",
                         static_cast<unsigned>(header.kind), static_cast<unsigned>(ObjectKind::kSequence));
  }
  return check_same_model({"file", "File"}, header.fingerprint, header.manifest, geometry,
                          layout_manifest(geometry, -1, 0));
}

Status read_header(ByteSource* source, ObjectSizes* sizes, uint64_t* seed, ObjectHeader* out) {
  std::vector<uint8_t> bytes(kObjectFixedBytes);
  KVC_TRY(source->read(bytes));
  KVC_TRY(read_object_sizes(bytes, sizes));
  bytes.resize(static_cast<size_t>(sizes->header_bytes));
  KVC_TRY(source->read(std::span(bytes).subspan(kObjectFixedBytes)));
  *seed = section_seed(bytes);
  return decode_object_header(bytes, out);
}

// Reads the `count` token ids at the begin of the payload. If `tokens` is empty, skips them. Otherwise `tokens` has
// `count` entries.
Status read_tokens(PayloadReader* reader, int64_t count, std::span<int32_t> tokens) {
  if (tokens.empty()) return reader->skip(4 * count);
  return reader->read({reinterpret_cast<uint8_t*>(tokens.data()), static_cast<size_t>(4 * count)});
}

}  // namespace

Status CacheSave::check_token_count(int64_t num_tokens, int64_t length) {
  if (num_tokens == length) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "num_tokens %" PRId64 " is not the sequence's length %" PRId64,
                       num_tokens, length);
}

// Returns the pages of each group. In a group of tokens, entry i is the page of list entry i, or -1 if it was freed. In
// a group of states, there is one entry for each state in the payload: the page of the state, or -1 if a load drops it.
SequencePages CacheSave::pages_of(int32_t slot, const SavedSequence& saved, bool loading) const {
  SequencePages pages(saved.lists.size());
  for (int32_t g = 0; g < core_.num_groups(); ++g) {
    std::vector<int32_t>& own = pages[static_cast<size_t>(g)];
    const PageList& list = core_.store.list(slot, g);
    if (!core_.rules(g).holds_state()) {
      own.assign(static_cast<size_t>(list.size), -1);
      core_.store.table(g).for_each(list, 0, list.size,
                                    [&](int64_t index, int32_t page) { own[static_cast<size_t>(index)] = page; });
      continue;
    }
    const int64_t dropped = loading ? core_.store.dropped_checkpoints(saved) : 0;
    for (int64_t i = 0; i < static_cast<int64_t>(saved.checkpoints.size()); ++i) {
      if (saved.checkpoints[static_cast<size_t>(i)] == saved.length) break;
      own.push_back(i < dropped ? -1 : core_.store.checkpoint_page(slot, g, i - dropped));
    }
    if (saved.length > 0) own.push_back(list.tail_page);
  }
  return pages;
}

Status CacheSave::save(kvc_seq id, std::span<const int32_t> tokens, int64_t section_bytes, ByteSink* sink,
                       void* stream) {
  KVC_TRY(core_.context->check_stream(stream));
  KVC_TRY(core_.layers.check_has_storage(0));
  SavedRecord record;
  record.has_tokens = !tokens.empty();
  SequencePages pages;
  int32_t slot = -1;
  {
    MutexLock lock(core_.mutex);
    KVC_TRY(core_.order.check_stream(stream));
    KVC_TRY(core_.store.begin_save(id, &record.sequence, &slot));
    Status begun = core_.order.enter(stream);
    if (begun.ok() && record.has_tokens) {
      begun = check_token_count(static_cast<int64_t>(tokens.size()), record.sequence.length);
    }
    if (!begun.ok()) {
      core_.store.end_save(slot);
      return begun;
    }
    record.rope_set = core_.rope_sets.of(slot);
  }
  const auto write = [&]() -> Status {
    {
      MutexLock lock(core_.mutex);
      pages = pages_of(slot, record.sequence, false);
    }
    ObjectHeader header;
    header.kind = ObjectKind::kSequence;
    header.fingerprint = core_.geometry.fingerprint.value_or(ObjectKey{});
    header.num_tokens = record.sequence.length;
    header.manifest = layout_manifest(core_.geometry, -1, 0);
    header.details = encode_record(record);
    header.section_bytes = section_bytes;
    KVC_TRY(SequencePayload::bytes_of(core_.layers, record.sequence, &header.payload_bytes));
    header.payload_bytes += 4 * static_cast<int64_t>(tokens.size());
    const std::vector<uint8_t> bytes = encode_object_header(header);
    KVC_TRY(sink->write(bytes));
    PayloadWriter writer(sink, {static_cast<int64_t>(bytes.size()), header.payload_bytes, header.section_bytes},
                         section_seed(bytes));
    KVC_TRY(writer.write({reinterpret_cast<const uint8_t*>(tokens.data()), 4 * tokens.size()}));
    KVC_TRY(SequencePayload(core_.layers, record.sequence, pages).write(&writer, stream));
    return writer.finish();
  };
  const auto finish = [&] {
    MutexLock lock(core_.mutex);
    core_.store.end_save(slot);
    return core_.order.leave(stream);
  };
  try {
    Status written = write();
    Status left = finish();
    return written.ok() ? std::move(left) : std::move(written);
  } catch (...) {
    (void)finish().ok();
    throw;
  }
}

// Allocates pages for a saved sequence, and enqueues clears of the slots that it leaves empty in its last pages.
Status CacheSave::begin_load(const SavedRecord& record, void* stream, int32_t* slot, SequencePages* pages) {
  MutexLock lock(core_.mutex);
  KVC_TRY(core_.order.check_stream(stream));
  if (record.rope_set != 0 && core_.rope_sets.empty()) {
    return Status::error(KVC_ERROR_CORRUPT, "the saved sequence has rope set %d, and no layer has longrope",
                         record.rope_set);
  }
  KVC_TRY(core_.store.begin_load(record.sequence, slot, core_.copies.plan()));
  Status begun = core_.order.enter(stream);
  if (begun.ok()) begun = core_.copies.make(stream);
  if (begun.ok()) {
    try {
      *pages = pages_of(*slot, record.sequence, true);
      return Status();
    } catch (const std::bad_alloc&) {
      begun = Status::error(KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for the pages of a saved sequence");
    }
  }
  core_.store.abandon_load(*slot);
  return begun;
}

Status CacheSave::load(ByteSource* source, std::span<int32_t> tokens, int64_t* num_tokens, void* stream, kvc_seq* out) {
  KVC_TRY(core_.context->check_stream(stream));
  KVC_TRY(core_.layers.check_has_storage(0));
  ObjectSizes sizes;
  ObjectHeader header;
  uint64_t seed = 0;
  KVC_TRY(read_header(source, &sizes, &seed, &header));
  KVC_TRY(check_header(header, core_.geometry));
  SavedRecord record;
  KVC_TRY(decode_record(header.details, &record));
  const SavedSequence& saved = record.sequence;
  if (saved.lists.size() != static_cast<size_t>(core_.num_groups()) || saved.length != header.num_tokens) {
    return Status::error(KVC_ERROR_CORRUPT, "the record has %zu groups and %" PRId64 " tokens, not %d and %" PRId64,
                         saved.lists.size(), saved.length, core_.num_groups(), header.num_tokens);
  }
  *num_tokens = record.has_tokens ? saved.length : 0;
  if (!tokens.empty() && *num_tokens > static_cast<int64_t>(tokens.size())) {
    return Status::error(KVC_ERROR_BUFFER_TOO_SMALL, "%" PRId64 " token ids do not fit in a capacity of %zu",
                         *num_tokens, tokens.size())
        .missing(*num_tokens, static_cast<int64_t>(tokens.size()));
  }
  int64_t payload_bytes = 0;
  KVC_TRY(SequencePayload::bytes_of(core_.layers, saved, &payload_bytes));
  if (payload_bytes + 4 * *num_tokens != sizes.payload_bytes) {
    return Status::error(KVC_ERROR_CORRUPT, "the payload has %" PRId64 " bytes, and the sequence takes %" PRId64,
                         sizes.payload_bytes, payload_bytes + 4 * *num_tokens);
  }
  PayloadReader reader(source, sizes, seed);
  SequencePages pages;
  int32_t slot = -1;
  KVC_TRY(begin_load(record, stream, &slot, &pages));
  const auto finish = [&](Status loaded) -> Status {
    MutexLock lock(core_.mutex);
    Status left = core_.order.leave(stream);
    if (loaded.ok()) loaded = std::move(left);
    if (!loaded.ok()) {
      core_.store.abandon_load(slot);
      return loaded;
    }
    KVC_TRY(core_.store.finish_load(saved, slot, out));
    core_.rope_sets.set(slot, record.rope_set);
    return Status();
  };
  try {
    Status loaded = read_tokens(&reader, *num_tokens, tokens);
    if (loaded.ok()) loaded = SequencePayload(core_.layers, saved, pages).read(&reader, stream);
    if (loaded.ok()) loaded = source->check_end();
    return finish(std::move(loaded));
  } catch (const std::bad_alloc&) {
    return finish(Status::error(KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for a section of the file"));
  }
}

}  // namespace kvc
