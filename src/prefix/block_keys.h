// BlockKeys: the page keys of the whole blocks of a prefix index, by block id. The salt of a query counts as its 8
// bytes, little-endian; salt 0 is no salt (docs/reference/keys.md).
//
// Keys are computed in order, a few pages at once, because two pages side by side take less time than one after
// another.
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

  // The key of a whole block.
  const PageKey& of(int32_t block) const noexcept { return keys_[block]; }

  // Begins at block `index` of the key: the next calls of `assign` are for this block and those after it. before: the
  // block before it, -1 if `index` is 0. Borrows the key's tokens.
  void start(const TokenRuns::Key& key, int64_t index, int32_t before) noexcept;
  // Gives the next whole block its key.
  void assign(int32_t block) noexcept;

  // The key of one page with these tokens, for audits. parent: the key of the page before, null = the first page.
  // begins_salt: the page before has another salt, or no page is before.
  PageKey compute(const PageKey* parent, std::span<const int32_t> tokens, uint64_t salt,
                  bool begins_salt) const noexcept;

 private:
  static constexpr int64_t kAhead = 32;  // pages that are hashed at once

  void compute_next() noexcept;

  int64_t page_size_;
  LazyArray<PageKey> keys_;  // [max_blocks]
  PageKey fingerprint_;

  TokenRuns::Key key_;   // the query whose blocks get keys
  int64_t index_ = 0;    // the next block of key_
  PageKey parent_ = {};  // page key of the block before it, if index_ > 0
  std::array<PageKey, kAhead> next_ =
      {};  // keys of the blocks from index_ on, of which `ready_end_` - `ready_` are left
  int64_t ready_ = 0, ready_end_ = 0;
};

}  // namespace kvc
