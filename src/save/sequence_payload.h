// SequencePayload copies the rows and states of a sequence between the pools and a saved file. The groups follow each
// other in the file. A group that holds tokens has the runs of RowCopy over all these tokens. A group of states has the
// states at the checkpoints before the sequence's length, and then the state at the length. docs/reference/format.md
// describes the order.
//
// Thread safety: one call at a time; no lock. The caller must keep the pages allocated (SequenceStore::begin_save,
// begin_load), and must order the stream. Ownership: borrows everything. Memory: about kChunkBytes.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "layer/row_copy.h"
#include "object/payload_sections.h"
#include "sequence/saved_sequence.h"

namespace kvc {

// The pages of each group. A group that holds tokens has a page for each list entry; a group of states has a page for
// each state. -1: no page. Bytes of the payload for an entry of -1 are read and dropped.
using SequencePages = std::vector<std::vector<int32_t>>;

class SequencePayload {
 public:
  static constexpr int64_t kChunkBytes = int64_t{1} << 20;  // bytes that are copied at a time

  // Sets *out to the bytes of the payload without token ids. Fails with CORRUPT if they exceed kMaxPayloadBytes.
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
