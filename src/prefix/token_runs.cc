#include "prefix/token_runs.h"

#include <algorithm>

namespace kvc {

TokenRuns::TokenRuns(int64_t page_size, int64_t max_blocks)
    : page_size_(page_size),
      tokens_(max_blocks * page_size),
      counts_(max_blocks),
      next_(max_blocks),
      runs_(max_blocks + 1) {
  runs_[kRoot] = {-1, -1, -1, 0, -1, -1, -1, 0, 0};
}

int64_t TokenRuns::bytes_needed(int64_t page_size, int64_t max_blocks) noexcept {
  return max_blocks * (page_size + 2) * static_cast<int64_t>(sizeof(int32_t)) +
         (max_blocks + 1) * static_cast<int64_t>(sizeof(Run));
}

int32_t TokenRuns::common(int32_t block, std::span<const int32_t> tokens) const noexcept {
  const std::span<const int32_t> own = this->tokens(block);
  const size_t most = std::min(own.size(), tokens.size());
  return static_cast<int32_t>(
      std::mismatch(own.begin(), own.begin() + static_cast<int64_t>(most), tokens.begin()).first - own.begin());
}

// The child that shares most tokens with `tokens`. Children are ordered, so it is one of those that the search passes.
int32_t TokenRuns::find_child(int32_t parent, uint64_t salt, std::span<const int32_t> tokens,
                              int32_t* matched) const noexcept {
  int32_t best = -1;
  *matched = 0;
  for (int32_t node = runs_[parent].child_root; node >= 0;) {
    const Run& run = runs_[node];
    if (run.salt != salt) {
      node = salt < run.salt ? run.left : run.right;
      continue;
    }
    const std::span<const int32_t> own = this->tokens(run.first);
    const int32_t same = common(run.first, tokens);
    if (same > *matched) {
      best = node;
      *matched = same;
    }
    const auto at = static_cast<size_t>(same);
    if (at == own.size() && at == tokens.size()) return node;
    const bool lower = at == tokens.size() || (at < own.size() && tokens[at] < own[at]);
    node = lower ? run.left : run.right;
  }
  return best;
}

int64_t TokenRuns::walk(const Key& key, std::vector<int32_t>* blocks, std::vector<int32_t>* runs) const noexcept {
  blocks->clear();
  runs->clear();
  const auto length = static_cast<int64_t>(key.tokens.size());
  const auto rest = [&](int64_t position) {
    return key.tokens.subspan(static_cast<size_t>(position),
                              static_cast<size_t>(std::min(page_size_, length - position)));
  };
  int32_t run = kRoot;
  int64_t position = 0;
  while (position < length) {
    const uint64_t salt = salt_of(key, position / page_size_);
    int32_t same = 0;
    run = find_child(run, salt, rest(position), &same);
    if (run < 0) return position;
    runs->push_back(run);
    const int32_t end = next_[runs_[run].last];
    for (int32_t block = runs_[run].first;;) {
      blocks->push_back(block);
      position += same;
      if (same < page_size_ || position == length) return position;
      block = next_[block];
      if (block == end) break;
      if (salt_of(key, position / page_size_) != salt) return position;
      same = common(block, rest(position));
      if (same == 0) return position;
    }
  }
  return position;
}

bool TokenRuns::before(int32_t a, int32_t b) const noexcept {
  if (runs_[a].salt != runs_[b].salt) return runs_[a].salt < runs_[b].salt;
  const std::span<const int32_t> left = tokens(runs_[a].first), right = tokens(runs_[b].first);
  return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end());
}

// All of a are before all of b. (Loops, since a caller chooses the tokens, and so how deep a treap gets.)
int32_t TokenRuns::merge(int32_t a, int32_t b) noexcept {
  int32_t merged = -1;
  int32_t* link = &merged;
  while (a >= 0 && b >= 0) {
    if (weight(a) > weight(b)) {
      *link = a;
      link = &runs_[a].right;
      a = *link;
    } else {
      *link = b;
      link = &runs_[b].left;
      b = *link;
    }
  }
  *link = a >= 0 ? a : b;
  return merged;
}

// Nodes before run `at`, and the others.
void TokenRuns::cut(int32_t node, int32_t at, int32_t* low, int32_t* high) noexcept {
  while (node >= 0) {
    int32_t** const side = before(node, at) ? &low : &high;
    **side = node;
    *side = side == &low ? &runs_[node].right : &runs_[node].left;
    node = **side;
  }
  *low = *high = -1;
}

void TokenRuns::insert(int32_t parent, int32_t run) noexcept {
  int32_t low = -1, high = -1;
  cut(runs_[parent].child_root, run, &low, &high);
  runs_[run].parent = parent;
  runs_[run].left = runs_[run].right = -1;
  runs_[parent].child_root = merge(merge(low, run), high);
}

// The link in the treap of its parent's children that leads to the run.
int32_t* TokenRuns::link_to(int32_t run) noexcept {
  int32_t* link = &runs_[runs_[run].parent].child_root;
  while (*link != run) link = before(run, *link) ? &runs_[*link].left : &runs_[*link].right;
  return link;
}

void TokenRuns::remove(int32_t run) noexcept { *link_to(run) = merge(runs_[run].left, runs_[run].right); }

int32_t TokenRuns::take_run() noexcept {
  if (free_run_ < 0) return fresh_run_++;
  const int32_t run = free_run_;
  free_run_ = runs_[run].parent;
  return run;
}

int32_t TokenRuns::take_block(std::span<const int32_t> tokens) noexcept {
  int32_t block = fresh_block_;
  if (free_block_ >= 0) {
    block = free_block_;
    free_block_ = next_[block];
  } else {
    ++fresh_block_;
  }
  ++used_blocks_;
  std::copy(tokens.begin(), tokens.end(), tokens_.data() + block * page_size_);
  counts_[block] = static_cast<int32_t>(tokens.size());
  next_[block] = -1;
  return block;
}

int32_t TokenRuns::split(int32_t run, int32_t k) noexcept {
  const int32_t upper = take_run();
  Run& rest = runs_[run];
  int32_t last = rest.first;
  for (int32_t i = 1; i < k; ++i) last = next_[last];
  int32_t* const link = link_to(run);
  runs_[upper] = rest;
  runs_[upper].last = last;
  runs_[upper].blocks = k;
  runs_[upper].child_root = run;
  // The upper part has another weight than the run had: take the run out and put the upper part in.
  *link = merge(rest.left, rest.right);
  insert(rest.parent, upper);
  rest.parent = upper;
  rest.first = next_[last];
  rest.blocks -= k;
  rest.begin += k;
  rest.left = rest.right = -1;
  next_[last] = -1;
  return upper;
}

int32_t TokenRuns::add_run(int32_t parent, uint64_t salt, std::span<const int32_t> tokens) noexcept {
  const int32_t run = take_run(), block = take_block(tokens);
  runs_[run] = {parent, block, block, 1, -1, -1, -1, runs_[parent].begin + runs_[parent].blocks, salt};
  insert(parent, run);
  return run;
}

int32_t TokenRuns::add_block(int32_t run, std::span<const int32_t> tokens) noexcept {
  const int32_t block = take_block(tokens);
  next_[runs_[run].last] = block;
  runs_[run].last = block;
  ++runs_[run].blocks;
  return block;
}

void TokenRuns::grow_last(int32_t run, std::span<const int32_t> tokens) noexcept {
  const int32_t block = runs_[run].last, parent = runs_[run].parent;
  const bool is_key = runs_[run].blocks == 1;  // its place among its siblings may change
  if (is_key) remove(run);
  std::copy(tokens.begin(), tokens.end(), tokens_.data() + block * page_size_);
  counts_[block] = static_cast<int32_t>(tokens.size());
  if (is_key) insert(parent, run);
}

bool TokenRuns::remove_last(int32_t run) noexcept {
  Run& r = runs_[run];
  const int32_t block = r.last;
  const bool gone = r.blocks == 1;
  if (gone) {
    remove(run);
    r.blocks = 0;
    r.parent = free_run_;
    free_run_ = run;
  } else {
    int32_t last = r.first;
    while (next_[last] != block) last = next_[last];
    r.last = last;
    next_[last] = -1;
    --r.blocks;
  }
  next_[block] = free_block_;
  free_block_ = block;
  --used_blocks_;
  return gone;
}

bool TokenRuns::treap_is_valid(int32_t node, int32_t parent) const {
  if (node < 0) return true;
  const Run& run = runs_[node];
  const auto below = [&](int32_t child, bool left) {
    return child < 0 || (weight(child) <= weight(node) && (left ? before(child, node) : before(node, child)));
  };
  return run.parent == parent && below(run.left, true) && below(run.right, false) && treap_is_valid(run.left, parent) &&
         treap_is_valid(run.right, parent);
}

bool TokenRuns::is_valid() const {
  int64_t blocks = 0;
  bool valid = treap_is_valid(runs_[kRoot].child_root, kRoot);
  for_each_run([&](int32_t r) {
    const Run& run = runs_[r];
    int32_t count = 0, last = -1;
    for (int32_t b = run.first; b >= 0; b = next_[b], ++count) {
      last = b;
      const bool partial_allowed = next_[b] < 0 && run.child_root < 0;
      valid = valid && counts_[b] > 0 && counts_[b] <= page_size_ && (partial_allowed || counts_[b] == page_size_);
    }
    const Run& above = runs_[run.parent];
    valid = valid && count == run.blocks && count > 0 && count <= kRunBlocks && last == run.last &&
            run.begin == above.begin + above.blocks && treap_is_valid(run.child_root, r);
    blocks += count;
  });
  return valid && blocks == used_blocks_;
}

}  // namespace kvc
