// BlockKeys: the page keys of the whole blocks of a prefix index, by block id. docs/reference/keys.md defines the keys.
// The salt in these keys is TokenRuns::Key::salt as 8 bytes, little-endian. Salt 0 means no salt.
//
// Keys are computed in the order of the blocks, for up to kAhead pages in one call. Hashing two pages at once takes
// less time than hashing one after the other.
//
// Pure. Thread safety: none; the owner locks. Allocates in the constructor only.
#pragma once

#include <array>
#include <cstdint>

#include "base/lazy_array.h"
#include "keys/page_key.h"
#include "prefix/token_runs.h"

namespace kvc {

class BlockKeys {
 public:
  BlockKeys(int64_t page_size, int64_t max_blocks, const PageKey& fingerprint)
      : page_size_(page_size), keys_(max_blocks), fingerprint_(fingerprint) {}
  static int64_t bytes_needed(int64_t max_blocks) noexcept { return max_blocks * kPageKeyBytes; }

  // Returns the key of a whole block.
  const PageKey& of(int32_t block) const noexcept { return keys_[block]; }

  void set(int32_t block, const PageKey& key) noexcept { keys_[block] = key; }

  // Call it before `assign`. The next calls of `assign` must be for block `index` of the key and the blocks after it,
  // in this order. before: id of block `index` - 1 of the key; -1 if `index` is 0. The tokens of the key must exist
  // until the last `assign`, and its context too.
  void start(const TokenRuns::Key& key, int64_t index, int32_t before) noexcept;
  // Sets the key of the next whole block, whose id is `block`.
  void assign(int32_t block) noexcept;

  // Computes the key of page `index` of a sequence, for checks. parent: the key of the page before it; null for the
  // first page. salt: the salt that begins at this page; 0 if none does.
  PageKey compute(const PageKey* parent, int64_t index, std::span<const int32_t> tokens, uint64_t salt,
                  const PrefixContext* context) const noexcept;

 private:
  static constexpr int64_t kAhead = 32;  // largest number of pages in one call of page_keys

  void compute_next() noexcept;

  int64_t page_size_;
  LazyArray<PageKey> keys_;  // [max_blocks]
  PageKey fingerprint_;

  TokenRuns::Key key_;   // the tokens, the salt and the context whose blocks get page keys
  int64_t index_ = 0;    // number of the block of key_ that the next `assign` gets
  PageKey parent_ = {};  // page key of block index_ - 1, if index_ > 0
  // Page keys that were computed ahead. Entries [ready_, ready_end_) are the keys of the blocks from index_ on.
  std::array<PageKey, kAhead> next_ = {};
  int64_t ready_ = 0, ready_end_ = 0;
};

}  // namespace kvc
