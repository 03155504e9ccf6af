// The methods of PrefixIndex for its checkpoints: the list of them, and publishes of states.
#include <algorithm>
#include <utility>

#include "prefix/prefix_index.h"

namespace kvc {

int32_t PrefixIndex::matched_state_after(int32_t group, int64_t index) const noexcept {
  int32_t c = checkpoints_of_[matched_blocks_[static_cast<size_t>(index)]] - 1;
  while (c >= 0 && checkpoints_[c].tail > 0) c = checkpoints_[c].next;
  return c < 0 ? -1 : state_page(c, group);
}

void PrefixIndex::unlink_checkpoint(int32_t checkpoint) noexcept {
  const Checkpoint& c = checkpoints_[checkpoint];
  (c.older >= 0 ? checkpoints_[c.older].newer : checkpoint_list_.oldest) = c.newer;
  (c.newer >= 0 ? checkpoints_[c.newer].older : checkpoint_list_.newest) = c.older;
}

void PrefixIndex::use_checkpoint(int32_t checkpoint) noexcept {
  if (checkpoint == checkpoint_list_.newest) return;
  unlink_checkpoint(checkpoint);
  checkpoints_[checkpoint].older = checkpoint_list_.newest;
  checkpoints_[checkpoint].newer = -1;
  checkpoints_[checkpoint_list_.newest].newer = checkpoint;
  checkpoint_list_.newest = checkpoint;
}

void PrefixIndex::drop_checkpoint(int32_t checkpoint, PrefixPages& pages) noexcept {
  Checkpoint& c = checkpoints_[checkpoint];
  if (is_told_) tell_state_removed(checkpoint);
  for (const int32_t g : state_groups_) {
    pages.release(g, state_page(checkpoint, g));
    --held_[static_cast<size_t>(g)];
  }
  int32_t* first = &first_checkpoint(c.block);
  if (*first == checkpoint + 1) {
    *first = c.next + 1;
  } else {
    int32_t before = *first - 1;
    while (checkpoints_[before].next != checkpoint) before = checkpoints_[before].next;
    checkpoints_[before].next = c.next;
  }
  unlink_checkpoint(checkpoint);
  PrefixContext::release(std::exchange(c.context, nullptr));
  c.next = free_checkpoint_;
  free_checkpoint_ = checkpoint;
}

// Drops a checkpoint, and the blocks that only it needed.
void PrefixIndex::evict_checkpoint(int32_t checkpoint, PrefixPages& pages) noexcept {
  const int32_t run = checkpoints_[checkpoint].run;
  drop_checkpoint(checkpoint, pages);
  prune(run, pages);
}

// Returns the checkpoint that a full index drops: the least recently used one of the lowest level whose pages are all
// idle or, if there is none, whose pages are not pinned. Returns -1 if all checkpoints are pinned.
int32_t PrefixIndex::next_evicted(const PrefixPages& pages) const noexcept {
  int32_t next = -1;
  bool next_is_idle = false;
  for (int32_t c = checkpoint_list_.oldest; c >= 0; c = checkpoints_[c].newer) {
    bool idle = true, pinned = false;
    for (const int32_t g : state_groups_) {
      idle = idle && pages.idle(g, state_page(c, g));
      pinned = pinned || pages.pinned(g, state_page(c, g));
    }
    if (pinned || (next_is_idle && !idle)) continue;
    const bool is_lower = next < 0 || level_of(checkpoints_[c].terms) < level_of(checkpoints_[next].terms);
    if (idle == next_is_idle && !is_lower) continue;
    next = c;
    next_is_idle = idle;
  }
  return next;
}

// Makes a checkpoint of the state after the key's last token, or merges the terms with those of the checkpoint that the
// index has there. The index must have all whole blocks of the key, and matched_blocks_ must be these blocks. run: the
// run of the last of them, or a run below that run. Returns whether the index has a checkpoint there now.
bool PrefixIndex::publish_state(const TokenRuns::Key& key, int32_t run, PublishedPages& sequence, PrefixPages& pages,
                                const Terms& terms) noexcept {
  const int64_t size = runs_.page_size(), length = static_cast<int64_t>(key.tokens.size());
  int64_t at = 0;
  if (const int32_t known = find_checkpoint(key, length, &at); known >= 0 && at == length) {
    use_checkpoint(known);
    checkpoints_[known].terms = merged(checkpoints_[known].terms, terms);
    return true;
  }
  for (const int32_t g : state_groups_) {
    if (const int32_t own = sequence.at(g, 0); own < 0 || pages.held(g, own)) return false;
  }
  const int64_t blocks = length / size;
  while (run != TokenRuns::kRoot && runs_.begin_block(run) >= blocks) run = runs_.parent(run);
  int32_t checkpoint = free_checkpoint_;
  if (checkpoint < 0 && fresh_checkpoint_ == checkpoints_.size()) {
    if ((checkpoint = next_evicted(pages)) < 0) return false;
    growing_ = run;
    evict_checkpoint(checkpoint, pages);
    growing_ = -1;
  }
  if (checkpoint >= 0) {
    free_checkpoint_ = checkpoints_[checkpoint].next;
  } else {
    checkpoint = fresh_checkpoint_++;
  }
  Checkpoint& c = checkpoints_[checkpoint];
  c.block = blocks == 0 ? static_cast<int32_t>(runs_.max_blocks()) : matched_blocks_[static_cast<size_t>(blocks - 1)];
  c.run = run;
  c.tail = static_cast<int32_t>(length % size);
  c.terms = terms;
  c.salt = c.tail > 0 ? runs_.salt_of(key, blocks) : 0;
  c.context = PrefixContext::hold(key.context);
  std::copy(key.tokens.end() - c.tail, key.tokens.end(), tails_.data() + checkpoint * size);
  c.next = first_checkpoint(c.block) - 1;
  first_checkpoint(c.block) = checkpoint + 1;
  c.older = checkpoint_list_.newest;
  c.newer = -1;
  (c.older >= 0 ? checkpoints_[c.older].newer : checkpoint_list_.oldest) = checkpoint;
  checkpoint_list_.newest = checkpoint;
  for (const int32_t g : state_groups_) {
    state_page(checkpoint, g) = sequence.at(g, 0);
    pages.hold(g, sequence.at(g, 0));
    ++held_[static_cast<size_t>(g)];
  }
  if (is_told_) tell_state_stored(checkpoint, blocks - 1, key);
  prune(run, pages);  // the blocks after the new checkpoint, if it replaced the checkpoint that needed them
  return true;
}

}  // namespace kvc
