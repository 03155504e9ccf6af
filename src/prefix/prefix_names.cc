// Calls the listeners of the prefix index, with the keys of pages.
#include <algorithm>
#include <new>

#include "prefix/prefix_index.h"

namespace kvc {

bool PrefixIndex::is_whole(int32_t run, int32_t block) const noexcept {
  return block != runs_.last_block(run) || runs_.last_tokens(run) == runs_.page_size();
}

void PrefixIndex::read_block(int32_t block, std::span<int32_t> tokens) const noexcept {
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = runs_.token(block, static_cast<int64_t>(i));
}

NamedPage PrefixIndex::named(int32_t run, int32_t block, int64_t index, int32_t before, int32_t group,
                             int32_t page) const noexcept {
  return {.key = &keys_->of(block),
          .parent = before >= 0 ? &keys_->of(before) : nullptr,
          .group = group,
          .page = page,
          .block = block,
          .index = index,
          .session = terms_[run].session,
          .salted = runs_.salt(run) != 0,
          .context = runs_.context(run)};
}

// The block is number `index` on its path, and matched_blocks_ has the blocks before it.
void PrefixIndex::tell_stored(int32_t run, int32_t block, int64_t index, int32_t group, int32_t page) noexcept {
  if (!is_whole(run, block)) return;
  const int32_t before = index > 0 ? matched_blocks_[static_cast<size_t>(index - 1)] : -1;
  const NamedPage name = named(run, block, index, before, group, page);
  for (PrefixListener* listener : listeners_) listener->stored(name);
}

void PrefixIndex::tell_removed(int32_t run, int32_t block, int32_t group) noexcept {
  if (!is_whole(run, block)) return;
  const int32_t parent = runs_.parent(run);
  int32_t before = parent == TokenRuns::kRoot ? -1 : runs_.last_block(parent);
  int64_t index = runs_.begin_block(run);
  for (int32_t b = runs_.first_block(run); b != block; b = runs_.next_block(b), ++index) before = b;
  const NamedPage name = named(run, block, index, before, group, page(block, group) - 1);
  for (PrefixListener* listener : listeners_) listener->removed(name);
}

// Reports a checkpoint whose position is the end of a whole block. Does nothing for another checkpoint, because it has
// no key. The block is number `index` of matched_blocks_.
void PrefixIndex::tell_state_stored(int32_t checkpoint, int64_t index, const TokenRuns::Key& key) noexcept {
  const Checkpoint& c = checkpoints_[checkpoint];
  if (c.tail > 0 || c.block == runs_.max_blocks()) return;
  for (const int32_t g : state_groups_) {
    const NamedPage name = {.key = &keys_->of(c.block),
                            .parent = index > 0 ? &keys_->of(matched_blocks_[static_cast<size_t>(index - 1)]) : nullptr,
                            .group = g,
                            .page = state_page(checkpoint, g),
                            .block = c.block,
                            .index = index,
                            .session = c.terms.session,
                            .salted = runs_.salt_of(key, index) != 0,
                            .context = c.context};
    for (PrefixListener* listener : listeners_) listener->stored(name);
  }
}

void PrefixIndex::tell_state_removed(int32_t checkpoint) noexcept {
  const Checkpoint& c = checkpoints_[checkpoint];
  if (c.tail > 0 || c.block == runs_.max_blocks()) return;
  for (const int32_t g : state_groups_) {
    NamedPage name = {};
    name.key = &keys_->of(c.block);
    name.group = g;
    name.page = state_page(checkpoint, g);
    name.block = c.block;
    for (PrefixListener* listener : listeners_) listener->removed(name);
  }
}

void PrefixIndex::tell_cleared() noexcept {
  for (PrefixListener* listener : listeners_) listener->cleared();
}

bool PrefixIndex::tells_each() const noexcept {
  return std::any_of(listeners_.begin(), listeners_.end(), [](const PrefixListener* l) { return l->needs_each(); });
}

// Computes the key of a whole block from the key of the block before it. tokens: scratch, of page_size tokens.
PageKey PrefixIndex::compute_key(int32_t run, int32_t block, int64_t index, int32_t before,
                                 std::span<int32_t> tokens) const {
  read_block(block, tokens);
  const bool begins_salt =
      block == runs_.first_block(run) && (before < 0 || runs_.salt(runs_.parent(run)) != runs_.salt(run));
  return keys_->compute(before >= 0 ? &keys_->of(before) : nullptr, index, tokens, begins_salt ? runs_.salt(run) : 0,
                        runs_.context(run));
}

void PrefixIndex::keep_keys(const PageKey& fingerprint) {
  if (keys_) return;
  std::vector<int32_t> tokens(static_cast<size_t>(runs_.page_size()));
  keys_ = std::make_unique<BlockKeys>(runs_.page_size(), runs_.max_blocks(), fingerprint);
  try {
    runs_.for_each_run([&](int32_t run) {
      for_each_whole(run, [&](int32_t block, int64_t index, int32_t before) {
        keys_->set(block, compute_key(run, block, index, before, tokens));
      });
    });
  } catch (const std::bad_alloc&) {
    keys_.reset();
    throw;
  }
}

std::vector<NamedPage> PrefixIndex::list_next(int32_t group, int64_t wanted, const PrefixPages& pages) const {
  std::vector<NamedPage> next;
  std::vector<bool> listed(static_cast<size_t>(runs_.max_runs()));
  const auto list = [&](int32_t run) {
    for (; run > TokenRuns::kRoot && !listed[static_cast<size_t>(run)]; run = runs_.parent(run)) {
      listed[static_cast<size_t>(run)] = true;
      for_each_named(run, [&](const NamedPage& name) { next.push_back(name); });
      if (num_groups() == 1) return;
    }
  };
  const bool states = rules_[static_cast<size_t>(group)].holds_state();
  for (int32_t level = 0, next_level = 0; wanted > 0 && level < kLevels; level = next_level) {
    next_level = states ? kLevels : level + 1;
    for (int32_t c = states ? checkpoint_list_.oldest : -1; c >= 0 && wanted > 0; c = checkpoints_[c].newer) {
      const int32_t own = level_of(checkpoints_[c].terms);
      if (own > level) next_level = std::min(next_level, own);
      if (own != level || !pages.idle(group, state_page(c, group))) continue;
      list(checkpoints_[c].run);
      --wanted;
    }
    if (states || !may_have_level(level)) continue;
    for_each_oldest(group, [&](int32_t run) {
      if (level_of(run) != level) return true;
      for (int32_t b = runs_.first_block(run); b >= 0; b = runs_.next_block(b)) {
        wanted -= page(b, group) != 0 && pages.idle(group, page(b, group) - 1) ? 1 : 0;
      }
      list(run);
      return wanted > 0;
    });
  }
  return next;
}

bool PrefixIndex::keys_are_valid() const {
  if (!keys_) return true;
  bool valid = true;
  std::vector<int32_t> tokens(static_cast<size_t>(runs_.page_size()));
  runs_.for_each_run([&](int32_t run) {
    for_each_whole(run, [&](int32_t block, int64_t index, int32_t before) {
      valid = valid && keys_->of(block) == compute_key(run, block, index, before, tokens);
    });
  });
  return valid;
}

}  // namespace kvc
