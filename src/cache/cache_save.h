// CacheSave: writes a sequence to a sink of bytes, and reads a sequence from a source of bytes. I/O, and the copies of
// K, V and states, run outside the lock. The sequence is busy until they are done, so its pages do not change.
#pragma once

#include <span>

#include "cache/cache_core.h"
#include "save/saved_record.h"
#include "save/sequence_payload.h"

namespace kvc {

class CacheSave {
 public:
  explicit CacheSave(CacheCore* core) : core_(*core) {}

  Status save(kvc_seq id, std::span<const int32_t> tokens, int64_t section_bytes, ByteSink* sink, void* stream);
  static Status check_token_count(int64_t num_tokens, int64_t length);
  // Sets *num_tokens to the number of token ids in the source, even if `tokens` has fewer elements. If `tokens` is
  // empty, the ids are skipped.
  Status load(ByteSource* source, std::span<int32_t> tokens, int64_t* num_tokens, void* stream, kvc_seq* out);

 private:
  SequencePages pages_of(int32_t slot, const SavedSequence& saved, bool loading) const KVC_REQUIRES(core_.mutex);
  Status begin_load(const SavedRecord& record, void* stream, int32_t* slot, SequencePages* pages);

  CacheCore& core_;
};

}  // namespace kvc
