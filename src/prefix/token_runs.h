// TokenRuns: token sequences as a radix tree. An edge is a run of up to kRunBlocks blocks, and a block is page_size
// tokens (the last block of a leaf may have fewer). Blocks and runs are ids, so that an owner can keep data for each of
// them in arrays.
//
// Token ids are stored in planes of 16, 8 and 8 bits, so that ids below 2^24 touch three bytes each. The last plane is
// first touched by an id that needs it.
//
// Thread safety: none; the owner locks. Allocates in the constructor only.
// Invariants
//   1. The runs of a path follow each other without a gap: a run begins at the block where its parent ends.
//   2. A run has at least one block, and all its tokens have one salt. Only the last block of a run without children
//      may be partial.
//   3. The children of a run are a treap ordered by (salt, tokens of the first block). No two have the same key.
// From: radix trees of token sequences as in SGLang's RadixAttention; treaps as in Seidel and Aragon.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/lazy_array.h"

namespace kvc {

class TokenRuns {
 public:
  static constexpr int32_t kRoot = 0;        // the run before every other: it has no block
  static constexpr int32_t kRunBlocks = 64;  // bounds the walk from a run's first block to its last one

  // What a caller looks for or adds. Tokens of different salts never match. The block that contains token salt_begin,
  // and all later ones, have the salt; earlier blocks have salt 0.
  struct Key {
    std::span<const int32_t> tokens;
    uint64_t salt = 0;
    int64_t salt_begin = 0;
  };

  TokenRuns(int64_t page_size, int64_t max_blocks);
  static int64_t bytes_needed(int64_t page_size, int64_t max_blocks) noexcept;

  int64_t page_size() const noexcept { return page_size_; }
  int64_t max_blocks() const noexcept { return next_.size(); }
  int64_t free_blocks() const noexcept { return max_blocks() - used_blocks_; }
  int64_t max_runs() const noexcept { return runs_.size(); }

  // The salt of block `block` of a key.
  uint64_t salt_of(const Key& key, int64_t block) const noexcept { return block >= first_salted(key) ? key.salt : 0; }
  int64_t first_salted(const Key& key) const noexcept { return key.salt_begin / page_size_; }

  // Finds the longest prefix of the key that the tree has, in tokens. `blocks` becomes the block ids on the path; the
  // last one may match in part. `runs` becomes their runs, without the root.
  int64_t walk(const Key& key, std::vector<int32_t>* blocks, std::vector<int32_t>* runs) const noexcept;

  int32_t parent(int32_t run) const noexcept { return runs_[run].parent; }
  int32_t first_block(int32_t run) const noexcept { return runs_[run].first; }
  int32_t last_block(int32_t run) const noexcept { return runs_[run].last; }
  int32_t num_blocks(int32_t run) const noexcept { return runs_[run].blocks; }
  int32_t next_block(int32_t block) const noexcept { return next_[block]; }
  // Tokens of a run's last block; the others are full.
  int32_t last_tokens(int32_t run) const noexcept { return runs_[run].last_tokens; }
  int64_t begin_block(int32_t run) const noexcept { return runs_[run].begin; }
  bool is_leaf(int32_t run) const noexcept { return runs_[run].child_root < 0; }
  // Some child of a run; -1 = it is a leaf.
  int32_t some_child(int32_t run) const noexcept { return runs_[run].child_root; }
  uint64_t salt(int32_t run) const noexcept { return runs_[run].salt; }
  // Token `index` of a block. 0 if the block never had so many tokens.
  int32_t token(int32_t block, int64_t index) const noexcept {
    const int64_t at = block * page_size_ + index;
    return static_cast<int32_t>(uint32_t{low_[at]} | uint32_t{middle_[at]} << 16 |
                                (wide_ ? uint32_t{high_[at]} << 24 : 0));
  }

  // Makes the first k blocks of a run a run of their own, which becomes the parent of the rest; 0 < k < num_blocks.
  // Returns the new run. The rest keeps its id and its children.
  int32_t split(int32_t run, int32_t k) noexcept;
  // Adds a run of one block below `parent`. The caller made sure of a free block, and that no child has this key.
  int32_t add_run(int32_t parent, uint64_t salt, std::span<const int32_t> tokens) noexcept;
  // Adds a block at the end of a leaf whose last block is full and which has fewer than kRunBlocks blocks. Returns the
  // block.
  int32_t add_block(int32_t run, std::span<const int32_t> tokens) noexcept;
  // Gives the partial last block of a leaf more tokens: `tokens` are all of them.
  void grow_last(int32_t run, std::span<const int32_t> tokens) noexcept;
  // Removes the last block of a leaf, and the run with its last block. Returns whether the run is gone.
  bool remove_last(int32_t run) noexcept;

  // Calls visit(run) for every run but the root, parents first.
  template <class Visit>
  void for_each_run(Visit visit) const {
    visit_children(kRoot, visit);
  }
  // Whether the invariants hold; for tests and audits.
  bool is_valid() const;

 private:
  struct Run {
    int32_t parent;
    int32_t first, last;
    int32_t blocks;
    int32_t last_tokens;  // of its last block
    int32_t child_root;   // of the treap of its children; -1 = none
    int32_t left, right;  // in the treap of its parent's children
    int64_t begin;        // index of its first block in a sequence
    uint64_t salt;
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
  int32_t find_child(int32_t parent, uint64_t salt, std::span<const int32_t> tokens, int32_t* matched) const noexcept;
  bool before(int32_t a, int32_t b) const noexcept;
  static uint32_t weight(int32_t run) noexcept { return static_cast<uint32_t>(run) * 2654435769u; }
  int32_t merge(int32_t a, int32_t b) noexcept;
  void cut(int32_t node, int32_t at, int32_t* low, int32_t* high) noexcept;
  void insert(int32_t parent, int32_t run) noexcept;
  int32_t* link_to(int32_t run) noexcept;
  void remove(int32_t run) noexcept;
  int32_t take_run() noexcept;
  int32_t take_block(std::span<const int32_t> tokens) noexcept;
  bool treap_is_valid(int32_t node, int32_t parent) const;

  int64_t page_size_;
  LazyArray<uint16_t> low_;    // [max_blocks, page_size]: bits 0 to 15 of each token id
  LazyArray<uint8_t> middle_;  // likewise: bits 16 to 23
  LazyArray<uint8_t> high_;    // likewise: bits 24 to 31, if wide_
  bool wide_ = false;          // some token id has had bits from 24 on
  LazyArray<int32_t> next_;    // [max_blocks]: the block after it in its run, or in the list of free blocks; -1 = none
  LazyArray<Run> runs_;        // [max_blocks + 1]
  int32_t free_block_ = -1, fresh_block_ = 0;
  int32_t free_run_ = -1, fresh_run_ = 1;
  int64_t used_blocks_ = 0;
};

}  // namespace kvc
