// SequencePayload: the bytes of a sequence's rows and states, between the pools and a saved file. Groups follow each
// other. A group that holds tokens has the runs of RowCopy over all tokens that it holds. A group of states has those
// of the checkpoints before the length, and then those of the length. docs/reference/format.md describes the order.
//
// Thread safety: one call at a time; no lock. The caller keeps the pages (SequenceStore::begin_save, begin_load) and
// orders the stream. Ownership: borrows everything. Memory: about kChunkBytes.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "layer/row_copy.h"
#include "object/payload_sections.h"
#include "sequence/saved_sequence.h"

namespace kvc {

// Where rows and states lie: of each group a page for each list entry. Of a group of states, a page for each state.
// -1: none; what the payload has for it is skipped.
using SequencePages = std::vector<std::vector<int32_t>>;

class SequencePayload {
 public:
  static constexpr int64_t kChunkBytes = int64_t{1} << 20;  // that are copied at a time

  // Bytes of the payload without token ids. CORRUPT if they do not fit in kMaxPayloadBytes.
  static Status bytes_of(const Layers& layers, const SavedSequence& saved, int64_t* out);

  SequencePayload(const Layers& layers, const SavedSequence& saved, const SequencePages& pages)
      : layers_(layers), saved_(saved), pages_(pages) {}
  Status write(PayloadWriter* writer, void* stream);
  Status read(PayloadReader* reader, void* stream);

 private:
  template <class Tokens, class States>
  Status for_each_part(Tokens tokens, States states);
  template <class Visit>
  Status for_each_chunk(int32_t group, const RowRun& run, Visit visit);

  const Layers& layers_;
  const SavedSequence& saved_;
  const SequencePages& pages_;
  std::vector<uint8_t> buffer_;
  std::vector<int64_t> slots_;
};

}  // namespace kvc
