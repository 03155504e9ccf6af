// KeySet: a set of integers of one batch, to find out whether two of them are equal. It is a hash table with open
// addressing, and takes less time than a sort.
//
// Thread safety: none. Allocates in the constructor only.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace kvc {

class KeySet {
 public:
  // Throws std::bad_alloc.
  explicit KeySet(int64_t max_keys) { table_.reserve(max_keys > 0 ? table_size(max_keys) : 0); }
  static int64_t bytes_needed(int64_t max_keys) noexcept {
    return static_cast<int64_t>(table_size(max_keys) * sizeof(int64_t));
  }

  // Removes all keys. After that, at most `num_keys` keys may be added.
  void clear(int64_t num_keys) noexcept { table_.assign(table_size(num_keys), kFree); }
  // Adds a key, which is not negative. Returns false if the set has the key already.
  bool add(int64_t key) noexcept {
    const size_t mask = table_.size() - 1;
    // The multiplication spreads keys with a common stride. The upper half of the product depends on all bits.
    size_t at = (static_cast<uint64_t>(key) * 0x9e3779b97f4a7c15u >> 32) & mask;
    for (; table_[at] != kFree; at = (at + 1) & mask) {
      if (table_[at] == key) return false;
    }
    table_[at] = key;
    return true;
  }

 private:
  static constexpr int64_t kFree = -1;
  // The number of entries for `count` keys. It is a power of two, and at most half of the entries are used.
  static size_t table_size(int64_t count) noexcept { return std::bit_ceil(static_cast<size_t>(2 * count)); }

  std::vector<int64_t> table_;
};

}  // namespace kvc
