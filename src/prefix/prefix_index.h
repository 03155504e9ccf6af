// PrefixIndex: records which pages hold which tokens. For given tokens, it finds the longest prefix that every group
// can serve. A group can serve a prefix if the index has each page of the group that a query after the prefix sees. The
// index takes references to the pages of published sequences, and releases pages when a pool has too few free pages.
// token_runs.h defines blocks and runs of tokens.
//
// The index finds tokens by comparing token ids, salts and contexts, and never by a hash. It holds one reference to
// each of its pages, through PrefixPages. A page without other references is idle, and only idle pages are evicted.
// Expired runs are evicted first. Then runs of lower priority are evicted before runs of higher priority. Among runs of
// one priority, the run whose last use is earliest is evicted first. Leaves are evicted before their parents. If the
// index rewards reuse, a run that was used repeatedly counts as used later: each use after the first adds half the mean
// age of evicted runs to the time of the last use. At most kMostUses uses are counted in this way. So tokens that were
// used once are usually evicted before tokens that were used repeatedly.
//
// Pure. Thread safety: none; the owner locks. Allocates in the constructor, in keep_keys and add_listener, when a call
// needs more scratch than earlier calls, and in calls that visit all runs.
// Invariants
//   1. A block has at most one page in each group. The index holds one reference to each of these pages.
//   2. A run is in a list of a group if and only if a block of it has a page in that group. A group has one list for
//      each number of uses, ordered by last use. A parent has at least as many uses as its child, and its last use is
//      not earlier.
//   3. A leaf's last block has a page in some group. If no group holds tokens, it has a checkpoint instead, and every
//      block is whole.
//   4. A checkpoint keeps a state: it has a page in every state group. It belongs to the last whole block that ends at
//      or before its position, and stores the tokens between the end of this block and its position. It cannot belong
//      to a partial block, because several blocks may begin with the same tokens. It has the terms of the publishes
//      that ended at its position.
//   5. With a fingerprint, each whole block has a page key, even if the block has no pages. Without a fingerprint, no
//      keys are computed.
//   6. If only one session published a run, the run and all runs below it have the number of that session.
// From: prefix reuse by a radix tree with leaf-first LRU as in SGLang's RadixAttention; one lookup over groups that
// need different pages as in vLLM's hybrid cache manager.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/lazy_array.h"
#include "prefix/block_keys.h"
#include "prefix/prefix_listener.h"
#include "prefix/token_runs.h"
#include "sequence/group_rules.h"

namespace kvc {

// The references of the index to the pages of all groups.
class PrefixPages {
 public:
  virtual ~PrefixPages() = default;
  virtual void hold(int32_t group, int32_t page) noexcept = 0;          // takes a reference
  virtual void release(int32_t group, int32_t page) noexcept = 0;       // drops the reference
  virtual bool idle(int32_t group, int32_t page) const noexcept = 0;    // whether the index has the only reference
  virtual bool held(int32_t group, int32_t page) const noexcept = 0;    // whether the index has a reference
  virtual bool pinned(int32_t group, int32_t page) const noexcept = 0;  // of a page with a state: whether a pin has it
};

// The pages of a sequence that is being published.
class PublishedPages {
 public:
  virtual ~PublishedPages() = default;
  // Returns the page of list entry `index`, or -1. In a state group, returns the page of the state at the published
  // length, for any index.
  virtual int32_t at(int32_t group, int64_t index) const noexcept = 0;
  // Reads the first pages.size() entries of a group that holds tokens.
  virtual void read(int32_t group, std::span<int32_t> pages) const noexcept {
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = at(group, static_cast<int64_t>(i));
  }
  // Replaces the sequence's own page with `page`, which holds the same tokens.
  virtual void replace(int32_t group, int64_t index, int32_t page) noexcept = 0;
};

class PrefixIndex {
 public:
  static constexpr int32_t kMaxPriority = 100;

  // Terms say how long published tokens are kept, and which session published them.
  struct Terms {
    uint64_t session = 0;  // 0: no session, or several sessions
    int64_t expires = 0;   // the time (as in set_time) at which the tokens expire; 0: never
    int32_t priority = 0;  // 0..kMaxPriority
    bool operator==(const Terms&) const = default;
  };
  struct Match {
    int64_t tokens = 0;       // length of the longest prefix that every group can serve
    int64_t known = 0;        // length of the longest prefix whose tokens the index has, with or without their pages
    int32_t limited_by = -1;  // the group that limited `tokens`, because the index lacks pages of it; -1 = no group did
  };

  // rules: [groups]. The index ignores encoder groups, because these groups hold the tokens of an encoder.
  // max_checkpoints: 0 without state groups. rewards_reuse: false for plain LRU.
  PrefixIndex(std::vector<GroupRules> rules, int64_t page_size, int64_t max_blocks, int64_t max_checkpoints,
              bool rewards_reuse = true);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;
  static int64_t bytes_needed(int64_t groups, int64_t page_size, int64_t max_blocks, int64_t max_checkpoints,
                              bool with_keys = false) noexcept;

  // Makes the index compute the page keys of its blocks, and of those that it gets later.
  void keep_keys(const PageKey& fingerprint);
  // Requires keep_keys. The listener must exist until the last call of the index.
  void add_listener(PrefixListener* listener) {
    listeners_.push_back(listener);
    is_told_ = true;
  }

  // A time before now() is ignored.
  void set_time(int64_t now) noexcept { now_ = now > now_ ? now : now_; }
  int64_t now() const noexcept { return now_; }

  // Finds the longest prefix that all groups can serve, among the first `most` tokens. matched_*, read_matched and use
  // read the result, until the index changes or match is called again.
  Match match(const TokenRuns::Key& key, int64_t most);
  // Returns the page of list entry `index` of the last match, or -1. If the match ends within a block, only the first
  // tokens of its last page match.
  int32_t matched_page(int32_t group, int64_t index) const noexcept;
  // Reads the pages of the entries from `begin` on.
  void read_matched(int32_t group, int64_t begin, std::span<int32_t> pages) const noexcept;
  // Returns the page of a state group's state after the matched tokens. The match must not be empty.
  int32_t matched_state(int32_t group) const noexcept { return state_page(matched_checkpoint_, group); }
  // Returns the page of a state group's state after the whole block `index` of the last match; -1 if there is none.
  int32_t matched_state_after(int32_t group, int64_t index) const noexcept;
  // Returns the key of the whole page `index` of the last match. Requires keep_keys.
  const PageKey& matched_key(int64_t index) const noexcept {
    return keys_->of(matched_blocks_[static_cast<size_t>(index)]);
  }
  // Makes the last match the most recently used prefix, and counts one more use.
  void use() noexcept;

  // Adds the pages of a sequence with these tokens. Where the index already has the page of a whole block, the sequence
  // then uses that page instead of its own. Returns how many tokens of the key the index then has. These are not all
  // tokens if the index is full and can evict nothing, or if neither the index nor the sequence has pages of the last
  // tokens.
  int64_t publish(const TokenRuns::Key& key, PublishedPages& sequence, PrefixPages& pages, const Terms& terms);

  // Set the priority and the expiry of the published tokens of a key, or of all tokens that only this session
  // published.
  void set_terms(const TokenRuns::Key& key, int32_t priority, int64_t expires);
  void set_session_terms(uint64_t session, int32_t priority, int64_t expires);
  // Drops every published prefix that begins with the tokens of the key. The blocks before the last token of the key
  // stay. A key without tokens drops every prefix whose first block has the salt and the adapter of the key. Sequences
  // may still use the pages.
  void drop(const TokenRuns::Key& key, PrefixPages& pages);
  // Drops all tokens that only this session published.
  void drop_session(uint64_t session, PrefixPages& pages);

  // Evicts at least `wanted` idle pages of a group, or all its idle pages. Returns the number of evicted pages of the
  // group.
  int64_t evict(int32_t group, int64_t wanted, PrefixPages& pages) noexcept;
  // Drops everything.
  void clear(PrefixPages& pages) noexcept;
  // Lists the pages with a key of the prefixes that calls of evict would shorten next, until `wanted` idle pages of the
  // group are in the list. If there are several groups, these are all pages of the prefixes, because a load needs pages
  // of every group. Requires keep_keys. Throws std::bad_alloc.
  std::vector<NamedPage> list_next(int32_t group, int64_t wanted, const PrefixPages& pages) const;
  // The largest number of pages of a group, and how many of them are free. When none is free, publish drops pages.
  int64_t capacity(int32_t group) const noexcept {
    return rules_[static_cast<size_t>(group)].holds_state() ? checkpoints_.size() : runs_.max_blocks();
  }
  int64_t room(int32_t group) const noexcept {
    return rules_[static_cast<size_t>(group)].holds_state() ? checkpoints_.size() - held_pages(group)
                                                            : runs_.free_blocks();
  }

  int64_t held_pages(int32_t group) const noexcept { return held_[static_cast<size_t>(group)]; }
  int64_t used_blocks() const noexcept { return runs_.max_blocks() - runs_.free_blocks(); }
  // Calls visit(group, page) for every page that the index holds.
  template <class Visit>
  void for_each_page(Visit visit) const {
    runs_.for_each_run([&](int32_t run) {
      for (int32_t b = runs_.first_block(run); b >= 0; b = runs_.next_block(b)) {
        for (int32_t g = 0; g < num_groups(); ++g) {
          if (page(b, g) != 0) visit(g, page(b, g) - 1);
        }
      }
    });
    for (int32_t c = checkpoint_list_.oldest; c >= 0; c = checkpoints_[c].newer) {
      for (const int32_t g : state_groups_) visit(g, state_page(c, g));
    }
  }
  // Calls visit(NamedPage) for every page of a whole block and for every state after a whole block, parents first.
  // Requires keep_keys.
  template <class Visit>
  void for_each_named(Visit visit) const;
  // Reads the tokens of a whole block. tokens.size() must be the page size.
  void read_block(int32_t block, std::span<int32_t> tokens) const noexcept;
  // Returns a digest of `digest` and of the time, tokens, salts, pages, terms, uses and checkpoints of the index.
  uint64_t digest(uint64_t digest) const;
  // Returns whether the invariants hold.
  bool is_valid() const;

 private:
  // The place of a run in the list of a group.
  struct Link {
    int32_t older, newer;  // -1 = none
    int32_t pages;         // number of pages of the run in this group; 0: the run is not in the list
  };
  struct List {
    int32_t oldest = -1, newest = -1;
  };
  struct Use {
    int64_t at;      // value of clock_ at the last use
    int32_t number;  // number of uses after the first, limited to kMostUses; always 0 without rewards_reuse
  };
  static constexpr int32_t kMostUses = 3;
  static constexpr int64_t kAgeUnit = 16;
  struct Checkpoint {
    int32_t block;         // id of the whole block to which it belongs; max_blocks if there is none
    int32_t run;           // the run of this block; kRoot if there is none
    int32_t next;          // the next checkpoint of the same block; -1: none
    int32_t older, newer;  // in the list that is ordered by last use
    int32_t tail;          // number of tokens between the block's end and its position, less than page_size
    uint64_t salt;         // the salt of these tokens; 0 without a tail
    Terms terms;
    const PrefixContext* context;  // owned: of its tokens; null if the checkpoint is free
  };

  int32_t num_groups() const noexcept { return static_cast<int32_t>(rules_.size()); }
  bool has_states() const noexcept { return !state_groups_.empty(); }
  int32_t& page(int32_t block, int32_t group) noexcept { return pages_[int64_t{block} * num_groups() + group]; }
  int32_t page(int32_t block, int32_t group) const noexcept { return pages_[int64_t{block} * num_groups() + group]; }
  Link& link(int32_t run, int32_t group) noexcept { return links_[int64_t{run} * num_groups() + group]; }
  const Link& link(int32_t run, int32_t group) const noexcept { return links_[int64_t{run} * num_groups() + group]; }

  List& list(int32_t group, int32_t uses) noexcept {
    return lists_[static_cast<size_t>(group) * (kMostUses + 1) + static_cast<size_t>(uses)];
  }
  const List& list(int32_t group, int32_t uses) const noexcept {
    return lists_[static_cast<size_t>(group) * (kMostUses + 1) + static_cast<size_t>(uses)];
  }
  // Returns the time that decides the order of eviction, in ticks of clock_: the time of the last use, plus half the
  // mean age of evicted runs for each counted use after the first.
  int64_t time_of(int32_t run) const noexcept { return uses_[run].at + uses_[run].number * age_ / (2 * kAgeUnit); }
  template <class Visit>
  void for_each_oldest(int32_t group, Visit visit) const;
  template <class Visit>
  void for_each_whole(int32_t run, Visit visit) const;
  template <class Visit>
  void for_each_named(int32_t run, Visit visit) const;

  bool has_pages(int32_t block) const noexcept;
  // Whether the last block of a leaf stays in the index (invariant 3).
  bool stays(int32_t block) const noexcept {
    return has_pages(block) || (token_groups_.empty() && checkpoints_of_[block] != 0);
  }
  int64_t servable(int32_t group, int64_t position) const noexcept;
  bool has_tail(int32_t checkpoint, const TokenRuns::Key& key, int64_t blocks) const noexcept;
  int32_t find_checkpoint(const TokenRuns::Key& key, int64_t position, int64_t* at) const noexcept;
  int32_t& first_checkpoint(int32_t block) noexcept { return checkpoints_of_[block]; }
  int32_t& state_page(int32_t checkpoint, int32_t group) noexcept {
    return state_pages_[int64_t{checkpoint} * num_groups() + group];
  }
  int32_t state_page(int32_t checkpoint, int32_t group) const noexcept {
    return state_pages_[int64_t{checkpoint} * num_groups() + group];
  }
  void unlink_checkpoint(int32_t checkpoint) noexcept;
  void use_checkpoint(int32_t checkpoint) noexcept;
  void drop_checkpoint(int32_t checkpoint, PrefixPages& pages) noexcept;
  void evict_checkpoint(int32_t checkpoint, PrefixPages& pages) noexcept;
  int32_t next_evicted(const PrefixPages& pages) const noexcept;
  void drop_tails(int64_t block, const TokenRuns::Key& key, int64_t begin, PrefixPages& pages) noexcept;
  bool publish_state(const TokenRuns::Key& key, int32_t run, PublishedPages& sequence, PrefixPages& pages,
                     const Terms& terms) noexcept;
  bool remove_last(int32_t run, PrefixPages& pages) noexcept;
  void remove_from(int32_t run, int64_t index, PrefixPages& pages) noexcept;
  // Lower levels are evicted first. Level 0 has the expired runs, and level 1 + p has the runs of priority p.
  static constexpr int32_t kLevels = kMaxPriority + 2;
  int32_t level_of(const Terms& terms) const noexcept {
    return terms.expires != 0 && terms.expires <= now_ ? 0 : 1 + terms.priority;
  }
  int32_t level_of(int32_t run) const noexcept { return level_of(terms_[run]); }
  bool may_have_level(int32_t level) const noexcept {
    return level == 0 ? num_expiring_ > 0 : num_at_[static_cast<size_t>(level - 1)] > 0;
  }
  Terms merged(const Terms& old, const Terms& fresh) const noexcept;
  void count_terms(int32_t run, int64_t by) noexcept;
  void set_run_terms(int32_t run, const Terms& terms) noexcept;
  int32_t cut_path(int32_t run, int64_t end) noexcept;
  void merge_path(int32_t run, int64_t end, const Terms& terms) noexcept;
  std::vector<int32_t> runs_of(uint64_t session) const;
  void evict_level(int32_t group, int32_t level, int64_t until, PrefixPages& pages) noexcept;
  void evict_states(int32_t group, int64_t until, PrefixPages& pages) noexcept;
  void touch_path(int32_t run, bool again) noexcept;
  void unlink(int32_t run, int32_t group) noexcept;
  void link_after(int32_t run, int32_t older, int32_t group) noexcept;
  void set_page(int32_t run, int32_t block, int64_t index, int32_t group, int32_t new_page,
                PrefixPages& pages) noexcept;
  void drop_page(int32_t run, int32_t block, int32_t group, PrefixPages& pages) noexcept;
  int32_t split(int32_t run, int32_t k) noexcept;
  void adopt(int32_t run, int32_t block, int64_t index, PublishedPages& sequence, PrefixPages& pages) noexcept;
  void read_own(const PublishedPages& sequence, size_t blocks) noexcept;
  int32_t adopt_known(int64_t whole_blocks, PublishedPages& sequence, PrefixPages& pages) noexcept;
  int32_t branch_point(int64_t whole_blocks) noexcept;
  bool make_block(PrefixPages& pages) noexcept;
  int32_t extend(int32_t run, const TokenRuns::Key& key, int64_t index, const Terms& terms) noexcept;
  int32_t add_blocks(const TokenRuns::Key& key, int64_t* index, PublishedPages& sequence, PrefixPages& pages,
                     const Terms& terms) noexcept;
  bool trim(int32_t run, PrefixPages& pages) noexcept;
  void prune(int32_t run, PrefixPages& pages) noexcept;
  bool is_whole(int32_t run, int32_t block) const noexcept;
  NamedPage named(int32_t run, int32_t block, int64_t index, int32_t before, int32_t group,
                  int32_t page) const noexcept;
  void tell_stored(int32_t run, int32_t block, int64_t index, int32_t group, int32_t page) noexcept;
  void tell_removed(int32_t run, int32_t block, int32_t group) noexcept;
  void tell_state_stored(int32_t checkpoint, int64_t index, const TokenRuns::Key& key) noexcept;
  void tell_state_removed(int32_t checkpoint) noexcept;
  void tell_cleared() noexcept;
  bool tells_each() const noexcept;
  PageKey compute_key(int32_t run, int32_t block, int64_t index, int32_t before, std::span<int32_t> tokens) const;
  bool keys_are_valid() const;

  std::vector<GroupRules> rules_;
  TokenRuns runs_;
  LazyArray<int32_t> pages_;                           // [max_blocks, groups]: page + 1, 0 = none
  LazyArray<Link> links_;                              // [max_runs, groups]
  LazyArray<Terms> terms_;                             // [max_runs]
  std::array<int64_t, kMaxPriority + 1> num_at_ = {};  // number of runs of each priority
  int64_t num_expiring_ = 0;                           // number of runs with an expiry
  int64_t now_ = 0;
  LazyArray<Use> uses_;  // [max_runs]
  const bool rewards_reuse_;
  int64_t clock_ = 0;          // number of calls that used or published a prefix
  int64_t age_ = 0;            // kAgeUnit times the moving average of the ages of evicted runs, in ticks of clock_
  std::vector<List> lists_;    // [groups, kMostUses + 1]
  std::vector<int64_t> held_;  // [groups]: number of pages to which the index has a reference
  // The groups that hold states, and those that hold tokens.
  const std::vector<int32_t> state_groups_, token_groups_;
  LazyArray<Checkpoint> checkpoints_;  // [max_checkpoints]
  LazyArray<int32_t> tails_;           // [max_checkpoints, page_size]: tokens of each tail
  LazyArray<int32_t> state_pages_;     // [max_checkpoints, groups]: page of each state group
  // [max_blocks + 1]: 1 + the first checkpoint of each block; 0 = none. The last entry is for checkpoints without a
  // whole block before them.
  LazyArray<int32_t> checkpoints_of_;
  List checkpoint_list_;
  int32_t free_checkpoint_ = -1, fresh_checkpoint_ = 0;

  std::vector<int32_t> own_pages_;  // [groups, blocks]: pages of the sequence that is being published
  std::vector<int32_t> matched_blocks_, matched_runs_;
  int32_t matched_checkpoint_ = -1;
  int32_t growing_ = -1;  // the run after which publish adds a block; make_block must not evict this run

  std::unique_ptr<BlockKeys> keys_;  // null without a fingerprint
  std::vector<PrefixListener*> listeners_;
  // Whether listeners are called for single pages: false without listeners, and while a call removes all pages, unless
  // tells_each().
  bool is_told_ = false;
};

// Calls visit(run) for the runs that have pages in a group, in the order of time_of, until visit returns false. visit
// may change or remove the run.
template <class Visit>
void PrefixIndex::for_each_oldest(int32_t group, Visit visit) const {
  std::array<int32_t, kMostUses + 1> next = {};
  for (int32_t uses = 0; uses <= kMostUses; ++uses) next[static_cast<size_t>(uses)] = list(group, uses).oldest;
  for (;;) {
    int32_t* first = nullptr;
    for (int32_t& run : next) {
      if (run >= 0 && (first == nullptr || time_of(run) < time_of(*first))) first = &run;
    }
    if (first == nullptr) return;
    const int32_t run = *first;
    *first = link(run, group).newer;
    if (!visit(run)) return;
  }
}

// Calls visit(block, index, before) for the whole blocks of a run. index: the number of the block on its path. before:
// the id of the block before it; -1 = none.
template <class Visit>
void PrefixIndex::for_each_whole(int32_t run, Visit visit) const {
  const int32_t parent = runs_.parent(run);
  int32_t before = parent == TokenRuns::kRoot ? -1 : runs_.last_block(parent);
  int64_t index = runs_.begin_block(run);
  for (int32_t b = runs_.first_block(run); b >= 0 && is_whole(run, b); before = b, b = runs_.next_block(b), ++index) {
    visit(b, index, before);
  }
}

template <class Visit>
void PrefixIndex::for_each_named(int32_t run, Visit visit) const {
  for_each_whole(run, [&](int32_t block, int64_t index, int32_t before) {
    for (int32_t g = 0; g < num_groups(); ++g) {
      if (page(block, g) != 0) visit(named(run, block, index, before, g, page(block, g) - 1));
    }
    for (int32_t c = has_states() ? checkpoints_of_[block] - 1 : -1; c >= 0; c = checkpoints_[c].next) {
      if (checkpoints_[c].tail > 0) continue;
      for (const int32_t g : state_groups_) {
        NamedPage name = named(run, block, index, before, g, state_page(c, g));
        name.session = checkpoints_[c].terms.session;
        visit(name);
      }
    }
  });
}

template <class Visit>
void PrefixIndex::for_each_named(Visit visit) const {
  runs_.for_each_run([&](int32_t run) { for_each_named(run, visit); });
}

}  // namespace kvc
