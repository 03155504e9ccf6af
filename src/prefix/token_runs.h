// TokenRuns: stores token sequences as a radix tree. An edge of the tree is called a run, and has up to kRunBlocks
// blocks. A block has page_size tokens; the last block of a leaf may have fewer. Blocks and runs have ids, so that the
// owner can keep data for each of them in arrays.
//
// Token ids are stored in three arrays: bits 0 to 15, bits 16 to 23, and bits 24 to 31. The last array is used only
// once a token id is 2^24 or more. Before that, an id takes three bytes.
//
// Thread safety: none; the owner locks. Allocates in the constructor, in for_each_run, and in walk if a vector of the
// caller is too small.
// Invariants
//   1. The runs of a path follow each other without a gap: a run begins at the block where its parent ends.
//   2. A run other than the root has at least one block, and all its tokens have one salt. Only the last block of a run
//      without children may be partial.
//   3. A run owns a context, which has the adapter and the media of its tokens. The context may also have media before
//      and after these tokens. All runs of a path have one adapter.
//   4. The children of a run are in a treap that is ordered by (salt, adapter, first block). Two blocks are ordered by
//      the first token that differs: by its id, or, if only its medium differs, by its media span. No two children have
//      the same salt, adapter, tokens and media in their first blocks.
// From: radix trees of token sequences as in SGLang's RadixAttention; treaps as in Seidel and Aragon.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/lazy_array.h"
#include "prefix/prefix_context.h"

namespace kvc {

class TokenRuns {
 public:
  static constexpr int32_t kRoot = 0;  // the run above all others; it has no block
  // The largest number of blocks in a run. It limits the time of split and remove_last, which follow the links between
  // the blocks from the first block on.
  static constexpr int32_t kRunBlocks = 64;

  // Tokens to find or to add. Tokens with different salts, adapters or media never match. The block that contains token
  // salt_begin and all later blocks have the salt. Earlier blocks have salt 0.
  struct Key {
    std::span<const int32_t> tokens;
    uint64_t salt = 0;
    int64_t salt_begin = 0;
    const PrefixContext* context = nullptr;  // borrowed
  };

  TokenRuns(int64_t page_size, int64_t max_blocks);
  ~TokenRuns();
  TokenRuns(const TokenRuns&) = delete;
  TokenRuns& operator=(const TokenRuns&) = delete;
  static int64_t bytes_needed(int64_t page_size, int64_t max_blocks) noexcept;

  int64_t page_size() const noexcept { return page_size_; }
  int64_t max_blocks() const noexcept { return next_.size(); }
  int64_t free_blocks() const noexcept { return max_blocks() - used_blocks_; }
  int64_t max_runs() const noexcept { return runs_.size(); }

  // The salt of block `block` of a key.
  uint64_t salt_of(const Key& key, int64_t block) const noexcept { return block >= first_salted(key) ? key.salt : 0; }
  int64_t first_salted(const Key& key) const noexcept { return key.salt_begin / page_size_; }
  // The tokens of block `block` of a key.
  std::span<const int32_t> tokens_of(const Key& key, int64_t block) const noexcept {
    const auto begin = static_cast<size_t>(block * page_size_);
    return key.tokens.subspan(begin, std::min(static_cast<size_t>(page_size_), key.tokens.size() - begin));
  }

  // Finds the longest prefix of the key that the tree has, and returns its number of tokens. Fills `blocks` with the
  // ids of the blocks on the path; the last block may match only partly. Fills `runs` with the runs of these blocks.
  int64_t walk(const Key& key, std::vector<int32_t>* blocks, std::vector<int32_t>* runs) const;

  // Fills `runs` with the children of `parent` that have this salt and adapter, and whose first blocks begin with
  // `tokens`, with the media of these tokens. The tokens follow those of `parent`, and there is at least one.
  void children_with(int32_t parent, uint64_t salt, const PrefixContext* context, std::span<const int32_t> tokens,
                     std::vector<int32_t>* runs) const;

  int32_t parent(int32_t run) const noexcept { return runs_[run].parent; }
  int32_t first_block(int32_t run) const noexcept { return runs_[run].first; }
  int32_t last_block(int32_t run) const noexcept { return runs_[run].last; }
  int32_t num_blocks(int32_t run) const noexcept { return runs_[run].blocks; }
  int32_t next_block(int32_t block) const noexcept { return next_[block]; }
  // The number of tokens in a run's last block. The other blocks are full.
  int32_t last_tokens(int32_t run) const noexcept { return runs_[run].last_tokens; }
  int64_t begin_block(int32_t run) const noexcept { return runs_[run].begin; }
  bool is_leaf(int32_t run) const noexcept { return runs_[run].child_root < 0; }
  // Returns any child of a run; -1 if the run is a leaf.
  int32_t some_child(int32_t run) const noexcept { return runs_[run].child_root; }
  uint64_t salt(int32_t run) const noexcept { return runs_[run].salt; }
  const PrefixContext* context(int32_t run) const noexcept { return runs_[run].context; }
  // Returns token `index` of a block; 0 if the block never had that many tokens.
  int32_t token(int32_t block, int64_t index) const noexcept {
    const int64_t at = block * page_size_ + index;
    return static_cast<int32_t>(uint32_t{low_[at]} | uint32_t{middle_[at]} << 16 |
                                (wide_ ? uint32_t{high_[at]} << 24 : 0));
  }

  // Splits a run. Its first k blocks become a new run, and the remaining run becomes the child of the new run. Requires
  // 0 < k < num_blocks. Returns the new run. The remaining run keeps its id and its children.
  int32_t split(int32_t run, int32_t k) noexcept;
  // In the next three calls, the run becomes an owner of `context`, instead of its previous context. `context` must
  // have the adapter of the path, and the media of all earlier tokens of the path.
  //
  // Adds a run of one block below `parent`. There must be a free block, and `parent` must not have a child with the
  // same salt, adapter, tokens and media.
  int32_t add_run(int32_t parent, uint64_t salt, std::span<const int32_t> tokens,
                  const PrefixContext* context = nullptr) noexcept;
  // Adds a block at the end of a leaf, and returns it. The last block of the leaf must be full, and the leaf must have
  // fewer than kRunBlocks blocks.
  int32_t add_block(int32_t run, std::span<const int32_t> tokens, const PrefixContext* context = nullptr) noexcept;
  // Adds tokens to the partial last block of a leaf. `tokens` are all tokens of the block, including those that the
  // block has already.
  void grow_last(int32_t run, std::span<const int32_t> tokens, const PrefixContext* context = nullptr) noexcept;
  // Removes the last block of a leaf. If it was the only block, removes the run too. Returns whether the run was
  // removed.
  bool remove_last(int32_t run) noexcept;

  // Calls visit(run) for every run except the root, parents first.
  template <class Visit>
  void for_each_run(Visit visit) const {
    visit_children(kRoot, visit);
  }
  // Returns whether the invariants hold.
  bool is_valid() const;

 private:
  struct Run {
    int32_t parent;
    int32_t first, last;  // ids of its first and its last block
    int32_t blocks;
    int32_t last_tokens;  // number of tokens in its last block
    int32_t child_root;   // root of the treap of its children; -1 = none
    int32_t left, right;  // links in the treap of its parent's children
    int32_t begin;        // number of blocks on the path before this run
    uint64_t salt;
    const PrefixContext* context;  // owned; null if the run has no context, or is free
  };

  template <class Visit>
  void visit_children(int32_t run, Visit visit) const {
    std::vector<int32_t> stack{runs_[run].child_root};
    while (!stack.empty()) {
      const int32_t node = stack.back();
      stack.pop_back();
      if (node < 0) continue;
      stack.push_back(runs_[node].right);
      stack.push_back(runs_[node].left);
      visit(node);
      stack.push_back(runs_[node].child_root);
    }
  }
  int32_t first_tokens(int32_t run) const noexcept {
    return runs_[run].blocks == 1 ? runs_[run].last_tokens : static_cast<int32_t>(page_size_);
  }
  bool same(int32_t block, const int32_t* tokens, int64_t count) const noexcept;
  int32_t common(int32_t block, int32_t count, std::span<const int32_t> tokens) const noexcept;
  void store(int32_t block, std::span<const int32_t> tokens) noexcept;
  int32_t find_child(int32_t parent, uint64_t salt, const PrefixContext* context, std::span<const int32_t> tokens,
                     int32_t* matched) const noexcept;
  [[gnu::noinline]] bool before(int32_t a, int32_t b) const noexcept;
  static uint32_t weight(int32_t run) noexcept { return static_cast<uint32_t>(run) * 2654435769u; }
  int32_t merge(int32_t a, int32_t b) noexcept;
  void cut(int32_t node, int32_t at, int32_t* low, int32_t* high) noexcept;
  void insert(int32_t parent, int32_t run) noexcept;
  int32_t* link_to(int32_t run) noexcept;
  void remove(int32_t run) noexcept;
  int32_t take_run() noexcept;
  [[gnu::noinline]] void set_context(int32_t run, const PrefixContext* context) noexcept;
  int32_t take_block(std::span<const int32_t> tokens) noexcept;
  bool treap_is_valid(int32_t node, int32_t parent) const;

  int64_t page_size_;
  LazyArray<uint16_t> low_;    // [max_blocks, page_size]: bits 0 to 15 of each token id
  LazyArray<uint8_t> middle_;  // [max_blocks, page_size]: bits 16 to 23
  LazyArray<uint8_t> high_;    // [max_blocks, page_size]: bits 24 to 31, if wide_
  bool wide_ = false;          // whether a token id of 2^24 or more was ever stored
  LazyArray<int32_t> next_;    // [max_blocks]: next block of the run, or of the free list; -1 = none
  LazyArray<Run> runs_;        // [max_blocks + 1]
  int32_t free_block_ = -1, fresh_block_ = 0;
  int32_t free_run_ = -1, fresh_run_ = 1;
  int64_t used_blocks_ = 0;
};

}  // namespace kvc
