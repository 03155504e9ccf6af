// RopeSets: the factor set of longrope (short or long) for each sequence, indexed by the sequence's slot in the store.
// The cache's lock guards it. A slot without a sequence has the short set. With max_sequences 0, every sequence has the
// short set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvc {

class RopeSets {
 public:
  explicit RopeSets(int32_t max_sequences) : sets_(static_cast<size_t>(max_sequences)) {}

  bool empty() const noexcept { return sets_.empty(); }
  // slot -1 stands for an inert row.
  int32_t of(int32_t slot) const noexcept { return slot < 0 || empty() ? 0 : sets_[static_cast<size_t>(slot)]; }
  void set(int32_t slot, int32_t set) noexcept {
    if (!empty()) sets_[static_cast<size_t>(slot)] = static_cast<uint8_t>(set);
  }
  void clear() noexcept { sets_.assign(sets_.size(), 0); }

  // Adds the sets to a digest. Short sets do not change the digest.
  uint64_t digest(uint64_t digest) const noexcept {
    for (size_t slot = 0; slot < sets_.size(); ++slot) {
      if (sets_[slot] != 0) digest = (digest ^ (slot + 1)) * 0x100000001b3u;
    }
    return digest;
  }

 private:
  std::vector<uint8_t> sets_;  // [max_sequences]
};

}  // namespace kvc
