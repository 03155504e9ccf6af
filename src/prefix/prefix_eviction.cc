// Eviction from the prefix index. The code below decides which pages and blocks are released when there are too few
// free ones, and in which order.
#include <algorithm>
#include <utility>

#include "prefix/prefix_index.h"

namespace kvc {

// Removes the last block of a leaf, and the checkpoints that belong to the block. The block must have no page. Returns
// whether this removed the whole run.
bool PrefixIndex::remove_last(int32_t run, PrefixPages& pages) noexcept {
  const int32_t block = runs_.last_block(run);
  while (has_states() && first_checkpoint(block) != 0) drop_checkpoint(first_checkpoint(block) - 1, pages);
  if (!runs_.remove_last(run)) return false;
  count_terms(run, -1);
  return true;
}

// Removes blocks that need not stay from the end of a leaf. If no block is left, does the same for the parent, if the
// parent is a leaf now.
void PrefixIndex::prune(int32_t run, PrefixPages& pages) noexcept {
  while (run > TokenRuns::kRoot && run != growing_ && runs_.is_leaf(run) && !stays(runs_.last_block(run))) {
    const int32_t parent = runs_.parent(run);
    if (remove_last(run, pages)) run = parent;
  }
}

// If all pages of a leaf's last block are idle, releases them and removes the block. Returns whether it removed the
// block.
bool PrefixIndex::trim(int32_t run, PrefixPages& pages) noexcept {
  if (!runs_.is_leaf(run) || run == growing_) return false;
  const int32_t block = runs_.last_block(run);
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (page(block, g) != 0 && !pages.idle(g, page(block, g) - 1)) return false;
  }
  for (int32_t g = 0; g < num_groups(); ++g) drop_page(run, block, g, pages);
  prune(run, pages);
  return true;
}

// Drops checkpoints whose page in the group is idle, until the index holds `until` pages of the group. Lower levels
// come first, and within a level the least recently used checkpoints. Each round finds the level of the next round.
void PrefixIndex::evict_states(int32_t group, int64_t until, PrefixPages& pages) noexcept {
  for (int32_t level = 0, next_level = 0; held_pages(group) > until && level < kLevels; level = next_level) {
    next_level = kLevels;
    for (int32_t c = checkpoint_list_.oldest; c >= 0 && held_pages(group) > until;) {
      const int32_t newer = checkpoints_[c].newer, own = level_of(checkpoints_[c].terms);
      if (own > level) {
        next_level = std::min(next_level, own);
      } else if (pages.idle(group, state_page(c, group))) {
        evict_checkpoint(c, pages);
      }
      c = newer;
    }
  }
}

// Releases idle pages of runs whose level is at most `level`, until the index holds `until` pages of the group. If the
// group has a window, or if the level is kLevels (above the level of every run), releases idle pages anywhere in these
// runs. Otherwise releases pages at the ends of leaves only.
void PrefixIndex::evict_level(int32_t group, int32_t level, int64_t until, PrefixPages& pages) noexcept {
  const bool any = level == kLevels || rules_[static_cast<size_t>(group)].windowed();
  for_each_oldest(group, [&](int32_t run) {
    if (level_of(run) > level) return true;
    const int64_t before = held_pages(group), at = uses_[run].at;
    if (any) {
      for (int32_t b = runs_.first_block(run); b >= 0 && held_pages(group) > until; b = runs_.next_block(b)) {
        if (page(b, group) != 0 && pages.idle(group, page(b, group) - 1)) drop_page(run, b, group, pages);
      }
      prune(run, pages);
    } else {  // trim removes the last block, because no sequence can use the blocks after a missing page
      while (held_pages(group) > until && link(run, group).pages > 0 && trim(run, pages)) {
      }
    }
    if (held_pages(group) < before) age_ += clock_ - at - age_ / kAgeUnit;
    return held_pages(group) > until;
  });
}

int64_t PrefixIndex::evict(int32_t group, int64_t wanted, PrefixPages& pages) noexcept {
  const int64_t before = held_pages(group), until = std::max<int64_t>(0, before - wanted);
  if (rules_[static_cast<size_t>(group)].holds_state()) {
    evict_states(group, until, pages);
  } else {
    for (int32_t level = 0; held_pages(group) > until && level < kLevels; ++level) {
      if (may_have_level(level)) evict_level(group, level, until, pages);
    }
    // If a sequence uses a block's page of another group, trim keeps the block, even if the block's page of this group
    // is idle. The call below releases such pages too.
    if (held_pages(group) > until) evict_level(group, kLevels, until, pages);
  }
  return before - held_pages(group);
}

void PrefixIndex::clear(PrefixPages& pages) noexcept {
  const bool each = tells_each(), was_told = std::exchange(is_told_, is_told_ && each);
  while (checkpoint_list_.oldest >= 0) evict_checkpoint(checkpoint_list_.oldest, pages);
  for (int32_t group = 0; group < num_groups(); ++group) {
    for_each_oldest(group, [&](int32_t run) {
      for (int32_t b = runs_.first_block(run); b >= 0; b = runs_.next_block(b)) drop_page(run, b, group, pages);
      prune(run, pages);
      return true;
    });
  }
  is_told_ = was_told;
  if (!each) tell_cleared();
}

bool PrefixIndex::make_block(PrefixPages& pages) noexcept {
  while (token_groups_.empty() && runs_.free_blocks() == 0) {
    const int32_t checkpoint = next_evicted(pages);
    if (checkpoint < 0) return false;
    evict_checkpoint(checkpoint, pages);
  }
  for (int32_t level = 0; runs_.free_blocks() == 0 && level < kLevels; ++level) {
    if (!may_have_level(level)) continue;
    for (int32_t g = 0; runs_.free_blocks() == 0 && g < num_groups(); ++g) {
      for_each_oldest(g, [&](int32_t run) {
        if (level_of(run) <= level) trim(run, pages);
        return runs_.free_blocks() == 0;
      });
    }
  }
  return runs_.free_blocks() > 0;
}

}  // namespace kvc
