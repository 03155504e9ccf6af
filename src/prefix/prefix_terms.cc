// The methods of PrefixIndex for the terms of published tokens (priority, expiry and session), and also drop and
// digest.
#include <algorithm>

#include "base/checked.h"
#include "prefix/prefix_index.h"

namespace kvc {

// Returns the terms of tokens that were published twice: the higher priority with its expiry. If the priorities are
// equal, returns the later expiry. Old terms that have expired are replaced. The session becomes 0 if the two publishes
// have different sessions.
PrefixIndex::Terms PrefixIndex::merged(const Terms& old, const Terms& fresh) const noexcept {
  const bool expired = old.expires != 0 && old.expires <= now_;
  Terms terms = expired || fresh.priority > old.priority ? fresh : old;
  if (!expired && fresh.priority == old.priority) {
    terms.expires = old.expires == 0 || fresh.expires == 0 ? 0 : std::max(old.expires, fresh.expires);
  }
  terms.session = old.session == fresh.session ? old.session : 0;
  return terms;
}

void PrefixIndex::count_terms(int32_t run, int64_t by) noexcept {
  num_at_[static_cast<size_t>(terms_[run].priority)] += by;
  if (terms_[run].expires != 0) num_expiring_ += by;
}

void PrefixIndex::set_run_terms(int32_t run, const Terms& terms) noexcept {
  count_terms(run, -1);
  terms_[run] = terms;
  count_terms(run, 1);
}

// Returns the run whose last block is number `end` - 1 of a path. If `run` has more blocks after it, splits the run
// there.
int32_t PrefixIndex::cut_path(int32_t run, int64_t end) noexcept {
  const auto blocks = static_cast<int32_t>(end - runs_.begin_block(run));
  return blocks < runs_.num_blocks(run) ? split(run, blocks) : run;
}

void PrefixIndex::merge_path(int32_t run, int64_t end, const Terms& terms) noexcept {
  if (run == TokenRuns::kRoot) return;
  if (merged(terms_[run], terms) != terms_[run]) run = cut_path(run, end);
  for (; run != TokenRuns::kRoot; run = runs_.parent(run)) set_run_terms(run, merged(terms_[run], terms));
}

void PrefixIndex::set_terms(const TokenRuns::Key& key, int32_t priority, int64_t expires) {
  const int64_t size = runs_.page_size(), length = static_cast<int64_t>(key.tokens.size());
  const int64_t known = runs_.walk(key, &matched_blocks_, &matched_runs_), whole = known / size;
  const auto blocks = static_cast<int64_t>(matched_blocks_.size());
  const auto set = [&](int32_t run) { set_run_terms(run, {terms_[run].session, expires, priority}); };
  int32_t run = matched_runs_.empty() ? TokenRuns::kRoot : matched_runs_.back();
  // If the tokens end within the first block of a run, its siblings may begin with them too.
  if (known % size > 0 && runs_.begin_block(run) == blocks - 1) {
    const int32_t parent = runs_.parent(run);
    std::vector<int32_t> last;
    runs_.children_with(parent, runs_.salt(run), key.context,
                        key.tokens.subspan(static_cast<size_t>(whole * size), static_cast<size_t>(known % size)),
                        &last);
    for (const int32_t child : last) set(cut_path(child, blocks));
    run = parent;
  } else if (run != TokenRuns::kRoot) {
    run = cut_path(run, blocks);
  }
  for (; run != TokenRuns::kRoot; run = runs_.parent(run)) set(run);
  for (int64_t index = 0; has_states() && index <= whole; ++index) {
    const int64_t block = index == 0 ? runs_.max_blocks() : matched_blocks_[static_cast<size_t>(index - 1)];
    for (int32_t c = checkpoints_of_[block] - 1; c >= 0; c = checkpoints_[c].next) {
      if (index * size + checkpoints_[c].tail > length || !has_tail(c, key, index)) continue;
      checkpoints_[c].terms = {checkpoints_[c].terms.session, expires, priority};
    }
  }
}

// Returns the runs that only this session published, parents first.
std::vector<int32_t> PrefixIndex::runs_of(uint64_t session) const {
  std::vector<int32_t> runs;
  runs_.for_each_run([&](int32_t run) {
    if (terms_[run].session == session) runs.push_back(run);
  });
  return runs;
}

void PrefixIndex::set_session_terms(uint64_t session, int32_t priority, int64_t expires) {
  for (const int32_t run : runs_of(session)) set_run_terms(run, {session, expires, priority});
  for (int32_t c = checkpoint_list_.oldest; c >= 0; c = checkpoints_[c].newer) {
    if (checkpoints_[c].terms.session == session) checkpoints_[c].terms = {session, expires, priority};
  }
}

// Removes the blocks of a run from block `index` of the path on, and all runs below it. Then removes blocks at the end
// of the remaining path that have no page.
void PrefixIndex::remove_from(int32_t run, int64_t index, PrefixPages& pages) noexcept {
  const auto remove_block = [&](int32_t of) {
    for (int32_t g = 0; g < num_groups(); ++g) drop_page(of, runs_.last_block(of), g, pages);
    return remove_last(of, pages);
  };
  while (!runs_.is_leaf(run)) {
    int32_t leaf = run;
    while (!runs_.is_leaf(leaf)) leaf = runs_.some_child(leaf);
    while (!remove_block(leaf)) {
    }
  }
  const int32_t parent = runs_.parent(run);
  bool gone = false;
  while (!gone && runs_.begin_block(run) + runs_.num_blocks(run) > index) gone = remove_block(run);
  prune(gone ? parent : run, pages);
}

// Drops the checkpoints of a block whose tails begin with the tokens of the key from `begin` on, with the key's salt,
// adapter and media. block: max_blocks for the checkpoints before the first whole block.
void PrefixIndex::drop_tails(int64_t block, const TokenRuns::Key& key, int64_t begin, PrefixPages& pages) noexcept {
  const std::span<const int32_t> tokens = key.tokens.subspan(static_cast<size_t>(begin));
  const auto end = static_cast<int64_t>(key.tokens.size());
  const uint64_t salt = tokens.empty() ? key.salt : runs_.salt_of(key, begin / runs_.page_size());
  for (int32_t c = checkpoints_of_[block] - 1; c >= 0;) {
    const Checkpoint checkpoint = checkpoints_[c];
    if (checkpoint.salt == salt && checkpoint.tail >= end - begin &&
        compare_adapters(checkpoint.context, key.context) == 0 &&
        same_media_end(checkpoint.context, key.context, begin, end) == end &&
        std::equal(tokens.begin(), tokens.end(), tails_.data() + c * runs_.page_size())) {
      evict_checkpoint(c, pages);
    }
    c = checkpoint.next;
  }
}

void PrefixIndex::drop(const TokenRuns::Key& key, PrefixPages& pages) {
  const int64_t length = static_cast<int64_t>(key.tokens.size()), size = runs_.page_size();
  if (length > 0) {
    const int64_t index = ceil_div(length, size) - 1;
    // Several blocks may begin with the last tokens of the key, so the loop runs until no such block is left.
    int64_t known = 0;
    while ((known = runs_.walk(key, &matched_blocks_, &matched_runs_)) == length) {
      remove_from(matched_runs_.back(), index, pages);
    }
    if (!has_states() || known < index * size) return;
    const int64_t before = index > 0 ? matched_blocks_[static_cast<size_t>(index - 1)] : runs_.max_blocks();
    return drop_tails(before, key, index * size, pages);
  }
  std::vector<int32_t> first;
  bool all = true;
  runs_.for_each_run([&](int32_t run) {
    if (runs_.parent(run) != TokenRuns::kRoot) return;
    const bool drops = runs_.salt(run) == key.salt && compare_adapters(runs_.context(run), key.context) == 0;
    if (drops) first.push_back(run);
    all = all && drops;
  });
  const bool each = tells_each(), was_told = is_told_;
  is_told_ = was_told && (!all || each);
  for (const int32_t run : first) remove_from(run, 0, pages);
  if (has_states()) drop_tails(runs_.max_blocks(), key, 0, pages);
  is_told_ = was_told;
  if (all && !first.empty() && !each) tell_cleared();
}

void PrefixIndex::drop_session(uint64_t session, PrefixPages& pages) {
  const std::vector<int32_t> runs = runs_of(session);
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    if (terms_[*run].session == session && runs_.num_blocks(*run) > 0) {
      remove_from(*run, runs_.begin_block(*run), pages);
    }
  }
  for (int32_t c = checkpoint_list_.oldest; c >= 0;) {  // states after tokens that other publishes have too
    const int32_t newer = checkpoints_[c].newer;
    if (checkpoints_[c].terms.session == session) evict_checkpoint(c, pages);
    c = newer;
  }
}

uint64_t PrefixIndex::digest(uint64_t digest) const {
  const auto add = [&](uint64_t word) {
    digest = (digest ^ word) * 0x9E3779B97F4A7C15u;
    digest ^= digest >> 29;
  };
  const auto add_terms = [&](const Terms& terms) {
    add(terms.session);
    add(static_cast<uint64_t>(terms.expires));
    add(static_cast<uint64_t>(terms.priority));
  };
  const auto add_context = [&](const PrefixContext* context) {
    for (const uint8_t byte : PrefixContext::adapter_of(context)) add(byte);
    for (const MediaSpan& span : PrefixContext::media_of(context)) {
      add(static_cast<uint64_t>(span.begin));
      add(static_cast<uint64_t>(span.tokens));
      for (const uint8_t byte : span.hash) add(byte);
    }
  };
  add(static_cast<uint64_t>(now_));
  runs_.for_each_run([&](int32_t run) {
    add(static_cast<uint64_t>(run) << 32 | static_cast<uint64_t>(runs_.parent(run)));
    add(runs_.salt(run));
    add_context(runs_.context(run));
    add_terms(terms_[run]);
    for (int32_t b = runs_.first_block(run); b >= 0; b = runs_.next_block(b)) {
      const int64_t count = b == runs_.last_block(run) ? runs_.last_tokens(run) : runs_.page_size();
      for (int64_t i = 0; i < count; ++i) add(static_cast<uint32_t>(runs_.token(b, i)));
      for (int32_t g = 0; g < num_groups(); ++g) add(static_cast<uint64_t>(page(b, g)));
    }
  });
  add(static_cast<uint64_t>(clock_));
  add(static_cast<uint64_t>(age_));
  for (int32_t group = 0; group < num_groups(); ++group) {
    for (int32_t uses = 0; uses <= kMostUses; ++uses) {
      for (int32_t run = list(group, uses).oldest; run >= 0; run = link(run, group).newer) {
        add(static_cast<uint64_t>(run) << 32 | static_cast<uint64_t>(uses));
        add(static_cast<uint64_t>(uses_[run].at));
      }
    }
  }
  for (int32_t c = checkpoint_list_.oldest; c >= 0; c = checkpoints_[c].newer) {
    add(static_cast<uint64_t>(c) << 32 | static_cast<uint64_t>(checkpoints_[c].block));
    add(static_cast<uint64_t>(checkpoints_[c].tail));
    add(checkpoints_[c].salt);
    add_terms(checkpoints_[c].terms);
    add_context(checkpoints_[c].context);
    for (int32_t i = 0; i < checkpoints_[c].tail; ++i) {
      add(static_cast<uint32_t>(tails_[c * runs_.page_size() + i]));
    }
    for (int32_t g = 0; g < num_groups(); ++g) add(static_cast<uint64_t>(state_page(c, g)));
  }
  return digest;
}

}  // namespace kvc
