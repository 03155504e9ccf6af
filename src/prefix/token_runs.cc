#include "prefix/token_runs.h"

#include <algorithm>
#include <utility>

namespace kvc {

TokenRuns::TokenRuns(int64_t page_size, int64_t max_blocks)
    : page_size_(page_size),
      low_(max_blocks * page_size),
      middle_(max_blocks * page_size),
      high_(max_blocks * page_size),
      next_(max_blocks),
      runs_(max_blocks + 1) {
  runs_[kRoot] = {-1, -1, -1, 0, 0, -1, -1, -1, 0, 0, nullptr};
}

TokenRuns::~TokenRuns() {
  for (int32_t run = kRoot; run < fresh_run_; ++run) PrefixContext::release(runs_[run].context);
}

int64_t TokenRuns::bytes_needed(int64_t page_size, int64_t max_blocks) noexcept {
  return max_blocks * (page_size + 1) * static_cast<int64_t>(sizeof(int32_t)) +
         (max_blocks + 1) * static_cast<int64_t>(sizeof(Run));
}

// Returns whether a block begins with these `count` tokens. If count is above page_size, compares the other
// tokens with the blocks whose ids follow.
bool TokenRuns::same(int32_t block, const int32_t* tokens, int64_t count) const noexcept {
  const uint16_t* const low = low_.data() + block * page_size_;
  const uint8_t* const middle = middle_.data() + block * page_size_;
  uint32_t differences = 0;  // the loops below have no branches, so that the compiler can vectorise them
  if (!wide_) {
    for (int64_t i = 0; i < count; ++i) {
      differences |= static_cast<uint32_t>(tokens[i]) ^ (uint32_t{low[i]} | uint32_t{middle[i]} << 16);
    }
    return differences == 0;
  }
  const uint8_t* const high = high_.data() + block * page_size_;
  for (int64_t i = 0; i < count; ++i) {
    differences |=
        static_cast<uint32_t>(tokens[i]) ^ (uint32_t{low[i]} | uint32_t{middle[i]} << 16 | uint32_t{high[i]} << 24);
  }
  return differences == 0;
}

// Returns the length of the common prefix of `tokens` and the first `count` tokens of a block.
int32_t TokenRuns::common(int32_t block, int32_t count, std::span<const int32_t> tokens) const noexcept {
  const auto most = std::min<int32_t>(count, static_cast<int32_t>(tokens.size()));
  if (same(block, tokens.data(), most)) return most;
  int32_t common = 0;
  while (token(block, common) == tokens[static_cast<size_t>(common)]) ++common;
  return common;
}

void TokenRuns::store(int32_t block, std::span<const int32_t> tokens) noexcept {
  const int64_t begin = block * page_size_;
  uint32_t all = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<uint32_t>(tokens[i]);
    low_[begin + static_cast<int64_t>(i)] = static_cast<uint16_t>(token);
    middle_[begin + static_cast<int64_t>(i)] = static_cast<uint8_t>(token >> 16);
    all |= token;
  }
  wide_ = wide_ || all >> 24 != 0;
  if (!wide_) return;
  for (size_t i = 0; i < tokens.size(); ++i) {
    high_[begin + static_cast<int64_t>(i)] = static_cast<uint8_t>(static_cast<uint32_t>(tokens[i]) >> 24);
  }
}

// Among the children with this salt and adapter, finds the child whose first block shares the longest prefix with
// `tokens` and their media. Sets *matched to the length of this prefix. Returns -1 if no child shares a token. The
// treap is ordered by tokens, so a binary search for `tokens` visits the child.
int32_t TokenRuns::find_child(int32_t parent, uint64_t salt, const PrefixContext* context,
                              std::span<const int32_t> tokens, int32_t* matched) const noexcept {
  const int64_t begin = (runs_[parent].begin + runs_[parent].blocks) * page_size_;
  int32_t best = -1;
  *matched = 0;
  for (int32_t node = runs_[parent].child_root; node >= 0;) {
    const Run& run = runs_[node];
    if (run.salt != salt) {
      node = salt < run.salt ? run.left : run.right;
      continue;
    }
    if (const auto order = compare_adapters(context, run.context); order != 0) {
      node = order < 0 ? run.left : run.right;
      continue;
    }
    const auto own = static_cast<size_t>(first_tokens(node));
    const int32_t equal = common(run.first, static_cast<int32_t>(own), tokens);
    const auto same = static_cast<int32_t>(same_media_end(context, run.context, begin, begin + equal) - begin);
    if (same > *matched) {
      best = node;
      *matched = same;
    }
    const auto at = static_cast<size_t>(same);
    if (at == own && at == tokens.size()) return node;
    bool lower = at == tokens.size() || (at < own && tokens[at] < token(run.first, same));
    if (same < equal) lower = compare_media(context, run.context, begin + same) < 0;
    node = lower ? run.left : run.right;
  }
  return best;
}

// The treap is ordered by tokens, so these children follow each other, and a search for them visits few others.
void TokenRuns::children_with(int32_t parent, uint64_t salt, const PrefixContext* context,
                              std::span<const int32_t> tokens, std::vector<int32_t>* runs) const {
  const int64_t begin = (runs_[parent].begin + runs_[parent].blocks) * page_size_;
  runs->clear();
  std::vector<int32_t> stack{runs_[parent].child_root};
  while (!stack.empty()) {
    const int32_t node = stack.back();
    stack.pop_back();
    if (node < 0) continue;
    const Run& run = runs_[node];
    std::strong_ordering order = salt <=> run.salt;  // of what is searched, relative to the node
    if (order == 0) order = compare_adapters(context, run.context);
    if (order == 0) {
      const int32_t own = first_tokens(node), equal = common(run.first, own, tokens);
      const auto same = static_cast<int32_t>(same_media_end(context, run.context, begin, begin + equal) - begin);
      const auto at = static_cast<size_t>(same);
      if (same < equal) {
        order = compare_media(context, run.context, begin + same);
      } else if (at < tokens.size()) {
        order = same == own ? std::strong_ordering::greater : tokens[at] <=> token(run.first, same);
      }
    }
    if (order == 0) runs->push_back(node);
    if (order <= 0) stack.push_back(run.left);
    if (order >= 0) stack.push_back(run.right);
  }
}

int64_t TokenRuns::walk(const Key& key, std::vector<int32_t>* blocks, std::vector<int32_t>* runs) const {
  blocks->clear();
  runs->clear();
  auto length = static_cast<int64_t>(key.tokens.size());
  const int64_t first_salted = this->first_salted(key);
  const auto rest = [&](int64_t position) {
    return key.tokens.subspan(static_cast<size_t>(position),
                              static_cast<size_t>(std::min(page_size_, length - position)));
  };
  int32_t id = kRoot;
  int64_t index = 0, position = 0;  // number of the next block, and position of the next token
  while (position < length) {
    int32_t same = 0;
    id = find_child(id, index >= first_salted ? key.salt : 0, key.context, rest(position), &same);
    if (id < 0) return position;
    runs->push_back(id);
    const Run& run = runs_[id];
    blocks->push_back(run.first);
    position += same;
    if (same < page_size_ || position == length) return position;
    ++index;
    // All tokens of a run have one salt. So a run with salt 0 can match only the blocks of the key that have no salt.
    const int64_t run_end = run.begin + run.blocks;
    const int64_t end = run.salt == key.salt ? run_end : std::min(run_end, first_salted);
    // Where the media of the run differ from those of the key, the match ends as if the key ended.
    const int64_t most_tokens = std::min(length, run_end * page_size_);
    const int64_t alike = same_media_end(key.context, run.context, position, most_tokens);
    if (alike < most_tokens) length = alike;
    if (position == length) return position;
    for (int32_t block = next_[run.first]; index < end;) {
      // Blocks that were added one after the other usually have consecutive ids. Then one call compares their tokens.
      const int64_t last_full = run_end - (run.last_tokens < page_size_ ? 1 : 0);
      const int64_t most = std::min({end, last_full, length / page_size_}) - index;
      int64_t count = std::min<int64_t>(most, 1);
      while (count > 0 && count < most && next_[block + count - 1] == block + count) ++count;
      if (count > 0 && this->same(block, key.tokens.data() + position, count * page_size_)) {
        for (int64_t i = 0; i < count; ++i) blocks->push_back(block + static_cast<int32_t>(i));
        block = next_[block + count - 1];
        index += count;
        position += count * page_size_;
        if (position == length) return position;
        continue;
      }
      for (;; ++index, block = next_[block]) {  // adds the blocks up to the end of the match, then returns
        const auto own = static_cast<int32_t>(block == run.last ? run.last_tokens : page_size_);
        same = position < length ? common(block, own, rest(position)) : 0;
        if (same == 0) return position;
        blocks->push_back(block);
        position += same;
        if (same < page_size_) return position;
      }
    }
    if (end < run_end) return position;
  }
  return position;
}

bool TokenRuns::before(int32_t a, int32_t b) const noexcept {
  if (runs_[a].salt != runs_[b].salt) return runs_[a].salt < runs_[b].salt;
  const PrefixContext *const context_a = runs_[a].context, *const context_b = runs_[b].context;
  if (const auto order = compare_adapters(context_a, context_b); order != 0) return order < 0;
  const int32_t left = first_tokens(a), right = first_tokens(b), both = std::min(left, right);
  int32_t i = 0;
  while (i < both && token(runs_[a].first, i) == token(runs_[b].first, i)) ++i;
  const int64_t begin = runs_[a].begin * page_size_;
  if (const int64_t at = same_media_end(context_a, context_b, begin, begin + i); at < begin + i) {
    return compare_media(context_a, context_b, at) < 0;
  }
  return i < both ? token(runs_[a].first, i) < token(runs_[b].first, i) : left < right;
}

// Merges two treaps. All nodes of `a` must come before all nodes of `b`. The function is not recursive, because the
// depth of a treap depends on the calls of a user and has no limit.
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

// Splits a treap: `low` gets the nodes before run `at`, and `high` gets the other nodes.
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

// Returns the link to a run in the treap of its parent's children.
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
  store(block, tokens);
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
  PrefixContext::hold(rest.context);
  runs_[upper].last = last;
  runs_[upper].blocks = k;
  runs_[upper].last_tokens = static_cast<int32_t>(page_size_);
  runs_[upper].child_root = run;
  // The weight of a run depends on its id. So the upper part cannot take the place of the run in the treap: the run is
  // removed, and the upper part is inserted.
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

// Makes the run an owner of a context in place of its present one, which may be the same.
void TokenRuns::set_context(int32_t run, const PrefixContext* context) noexcept {
  PrefixContext::hold(context);
  PrefixContext::release(std::exchange(runs_[run].context, context));
}

int32_t TokenRuns::add_run(int32_t parent, uint64_t salt, std::span<const int32_t> tokens,
                           const PrefixContext* context) noexcept {
  const int32_t run = take_run(), block = take_block(tokens);
  const auto count = static_cast<int32_t>(tokens.size());
  runs_[run] = {parent, block, block, 1, count, -1, -1, -1, runs_[parent].begin + runs_[parent].blocks, salt, nullptr};
  set_context(run, context);
  insert(parent, run);
  return run;
}

int32_t TokenRuns::add_block(int32_t run, std::span<const int32_t> tokens, const PrefixContext* context) noexcept {
  set_context(run, context);
  const int32_t block = take_block(tokens);
  next_[runs_[run].last] = block;
  runs_[run].last = block;
  runs_[run].last_tokens = static_cast<int32_t>(tokens.size());
  ++runs_[run].blocks;
  return block;
}

void TokenRuns::grow_last(int32_t run, std::span<const int32_t> tokens, const PrefixContext* context) noexcept {
  const int32_t block = runs_[run].last, parent = runs_[run].parent;
  const bool is_key = runs_[run].blocks == 1;  // the tokens of this block order the run among its siblings
  if (is_key) remove(run);
  set_context(run, context);
  store(block, tokens);
  runs_[run].last_tokens = static_cast<int32_t>(tokens.size());
  if (is_key) insert(parent, run);
}

bool TokenRuns::remove_last(int32_t run) noexcept {
  Run& r = runs_[run];
  const int32_t block = r.last;
  const bool gone = r.blocks == 1;
  if (gone) {
    remove(run);
    set_context(run, nullptr);
    r.blocks = 0;
    r.parent = free_run_;
    free_run_ = run;
  } else {
    int32_t last = r.first;
    while (next_[last] != block) last = next_[last];
    r.last = last;
    r.last_tokens = static_cast<int32_t>(page_size_);
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
    for (int32_t b = run.first; b >= 0; b = next_[b], ++count) last = b;
    valid = valid && run.last_tokens > 0 && run.last_tokens <= page_size_ &&
            (run.child_root < 0 || run.last_tokens == page_size_);
    const Run& above = runs_[run.parent];
    valid = valid && count == run.blocks && count > 0 && count <= kRunBlocks && last == run.last &&
            run.begin == above.begin + above.blocks && treap_is_valid(run.child_root, r);
    // The context of a run describes its parent too.
    const int64_t end = run.begin * page_size_;
    valid = valid && (run.parent == kRoot || compare_adapters(above.context, run.context) == 0) &&
            same_media_end(above.context, run.context, above.begin * page_size_, end) == end;
    blocks += count;
  });
  return valid && blocks == used_blocks_;
}

}  // namespace kvc
