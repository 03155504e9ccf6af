// SentMarks: records what the engine does with the sequences that transfers send. Steps and truncates make the records
// here, so that their code does not depend on the transfers. A transfer reads its mark when it is polled.
//
// Thread safety: none; calls are made under the cache's lock. Invariant: if tokens of a sequence were dropped since the
// last poll of its transfer, Mark::restart is the position of the first dropped token.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sequence/sequence_store.h"
#include "step/step.h"

namespace kvc {

class SentMarks {
 public:
  struct Mark {
    uint64_t sequence = 0;
    int64_t restart = INT64_MAX;    // tokens from this position on were dropped, so their rows must be sent again
    int64_t in_step = 0;            // number of tokens that an open forward appends to the sequence
    std::vector<uint8_t> appended;  // [layers]: 1 if the forward has appended these tokens to the layer
  };

  explicit SentMarks(const SequenceStore& store) : store_(store) {}

  // Throws std::bad_alloc.
  void add(uint64_t transfer, Mark mark) { marks_.emplace(transfer, std::move(mark)); }
  void remove(uint64_t transfer) noexcept { marks_.erase(transfer); }
  Mark& of(uint64_t transfer) { return marks_.at(transfer); }

  // Records that a call in the step has ended. Returns whether the step appends to a sequence that a transfer sends.
  // Returns false for a broken step. Also returns false for a step of a graph, because its rows are sent only after it
  // has ended.
  bool note_call(const Step& step) noexcept;
  // Records that the step was ended (kept) or undone.
  void note_end(const Step& step, bool kept) noexcept;
  // Records that the sequence was truncated to `length`.
  void note_cut(uint64_t sequence, int64_t length) noexcept;

 private:
  template <class Visit>
  void for_each_in(const Step& step, Visit visit) noexcept;

  const SequenceStore& store_;
  std::map<uint64_t, Mark> marks_;  // the key is the id of the transfer
};

}  // namespace kvc
