// PendingPrefixes: the pending sequences of a cache. A pending sequence shares the pages of a load that has not ended
// (TierJobs::attach).
//
// Thread safety: none; calls are made under the cache's lock. Invariant: a sequence is in `entries` exactly while the
// store says that it is pending.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/sent_marks.h"
#include "sequence/sequence_store.h"
#include "tier/load_progress.h"

namespace kvc {

class PendingPrefixes {
 public:
  struct Entry {
    uint64_t sequence = 0;
    std::shared_ptr<LoadProgress> progress;
    bool waits = false;   // calls wait for layers
    int64_t tokens = 0;   // number of tokens that the load fills
    int64_t length = -1;  // >= 0: the load has failed, and the sequence will have at most this length
  };

  bool empty() const noexcept { return entries_.empty(); }
  const Entry* find(uint64_t sequence) const noexcept;
  // Makes room for an entry, for the caller to fill, and `add` adds it. Throws std::bad_alloc.
  Entry& reserve();
  void add(SequenceStore* store) noexcept;
  // Removes the entry of a sequence that was removed. Returns the job of its load if no other entry has this job; else
  // 0.
  uint64_t forget(uint64_t sequence) noexcept;
  // Says that the load has ended, and has only the first `length` tokens.
  void shorten(const LoadProgress& progress, int64_t length) noexcept;
  // Ends the entries of sequences that are not in a forward, and whose load has ended. Shortens these sequences, if
  // the load has failed.
  void settle(SequenceStore* store, SentMarks* sent);
  void clear() noexcept { entries_.clear(); }

 private:
  std::vector<Entry> entries_;
  Entry next_;
};

}  // namespace kvc
