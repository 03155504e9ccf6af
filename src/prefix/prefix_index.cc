#include "prefix/prefix_index.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"

namespace kvc {
namespace {

std::vector<int32_t> groups_with(const std::vector<GroupRules>& rules, bool (GroupRules::*property)() const noexcept) {
  std::vector<int32_t> groups;
  for (size_t g = 0; g < rules.size(); ++g) {
    if ((rules[g].*property)()) groups.push_back(static_cast<int32_t>(g));
  }
  return groups;
}

}  // namespace

PrefixIndex::PrefixIndex(std::vector<GroupRules> rules, int64_t page_size, int64_t max_blocks, int64_t max_checkpoints,
                         bool rewards_reuse)
    : rules_(std::move(rules)),
      runs_(page_size, max_blocks),
      pages_(max_blocks * num_groups()),
      links_(runs_.max_runs() * num_groups()),
      terms_(runs_.max_runs()),
      uses_(runs_.max_runs()),
      rewards_reuse_(rewards_reuse),
      lists_(rules_.size() * (kMostUses + 1)),
      held_(rules_.size()),
      state_groups_(groups_with(rules_, &GroupRules::holds_state)),
      token_groups_(groups_with(rules_, &GroupRules::holds_tokens)),
      checkpoints_(max_checkpoints),
      tails_(max_checkpoints * page_size),
      state_pages_(max_checkpoints * num_groups()),
      checkpoints_of_(has_states() ? max_blocks + 1 : 0) {}

PrefixIndex::~PrefixIndex() {
  for (int32_t c = 0; c < fresh_checkpoint_; ++c) PrefixContext::release(checkpoints_[c].context);
}

int64_t PrefixIndex::bytes_needed(int64_t groups, int64_t page_size, int64_t max_blocks, int64_t max_checkpoints,
                                  bool with_keys) noexcept {
  const auto block =
      static_cast<int64_t>(groups * (sizeof(int32_t) + sizeof(Link)) + sizeof(Terms) + sizeof(Use) + sizeof(int32_t));
  const auto checkpoint = static_cast<int64_t>(sizeof(Checkpoint) + (page_size + groups) * sizeof(int32_t));
  return TokenRuns::bytes_needed(page_size, max_blocks) + (max_blocks + 1) * block + max_checkpoints * checkpoint +
         (with_keys ? BlockKeys::bytes_needed(max_blocks) : 0);
}

// ---- Pages of blocks, and lists of runs ---------------------------------------------------------------------------

bool PrefixIndex::has_pages(int32_t block) const noexcept {
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (page(block, g) != 0) return true;
  }
  return false;
}

void PrefixIndex::unlink(int32_t run, int32_t group) noexcept {
  const Link& l = link(run, group);
  List& list = this->list(group, uses_[run].number);
  (l.older >= 0 ? link(l.older, group).newer : list.oldest) = l.newer;
  (l.newer >= 0 ? link(l.newer, group).older : list.newest) = l.older;
}

// Puts a run into its list of the group directly after `older`, or first if `older` is -1.
void PrefixIndex::link_after(int32_t run, int32_t older, int32_t group) noexcept {
  List& list = this->list(group, uses_[run].number);
  Link& l = link(run, group);
  l.older = older;
  l.newer = older >= 0 ? link(older, group).newer : list.oldest;
  (older >= 0 ? link(older, group).newer : list.oldest) = run;
  (l.newer >= 0 ? link(l.newer, group).older : list.newest) = run;
}

// Makes a run and its ancestors the most recently used runs. A parent counts as used after its child. again: true to
// count one more use of each of these runs.
void PrefixIndex::touch_path(int32_t run, bool again) noexcept {
  ++clock_;
  for (; run > TokenRuns::kRoot; run = runs_.parent(run)) {
    Use& use = uses_[run];
    const int32_t number = again && rewards_reuse_ ? std::min(use.number + 1, kMostUses) : use.number;
    for (int32_t g = 0; g < num_groups(); ++g) {
      if (link(run, g).pages > 0) unlink(run, g);
    }
    use = {clock_, number};
    for (int32_t g = 0; g < num_groups(); ++g) {
      if (link(run, g).pages > 0) link_after(run, list(g, number).newest, g);
    }
  }
}

// Sets the page of a block in a group. The block must have no page in the group. The block is number `index` on its
// path, and matched_blocks_ has the blocks before it.
void PrefixIndex::set_page(int32_t run, int32_t block, int64_t index, int32_t group, int32_t new_page,
                           PrefixPages& pages) noexcept {
  pages.hold(group, new_page);
  page(block, group) = new_page + 1;
  ++held_[static_cast<size_t>(group)];
  if (link(run, group).pages++ == 0) link_after(run, list(group, uses_[run].number).newest, group);
  if (is_told_) tell_stored(run, block, index, group, new_page);
}

void PrefixIndex::drop_page(int32_t run, int32_t block, int32_t group, PrefixPages& pages) noexcept {
  if (page(block, group) == 0) return;
  if (is_told_) tell_removed(run, block, group);
  pages.release(group, page(block, group) - 1);
  page(block, group) = 0;
  --held_[static_cast<size_t>(group)];
  if (--link(run, group).pages == 0) unlink(run, group);
}

int32_t PrefixIndex::split(int32_t run, int32_t k) noexcept {
  const int32_t upper = runs_.split(run, k);
  terms_[upper] = terms_[run];
  uses_[upper] = uses_[run];
  count_terms(upper, 1);
  for (int32_t g = 0; g < num_groups(); ++g) {
    int32_t count = 0;
    for (int32_t b = runs_.first_block(upper); b >= 0; b = runs_.next_block(b)) count += page(b, g) != 0;
    link(upper, g) = {-1, -1, count};
    if (count == 0) continue;
    link_after(upper, run, g);
    if ((link(run, g).pages -= count) == 0) unlink(run, g);
  }
  for (int32_t b = has_states() ? runs_.first_block(upper) : -1; b >= 0; b = runs_.next_block(b)) {
    for (int32_t c = first_checkpoint(b) - 1; c >= 0; c = checkpoints_[c].next) checkpoints_[c].run = upper;
  }
  return upper;
}

// ---- Match ----------------------------------------------------------------------------------------------------------

// Returns the largest position up to `position` that the group can serve with the pages of the matched blocks.
int64_t PrefixIndex::servable(int32_t group, int64_t position) const noexcept {
  const GroupRules& rules = rules_[static_cast<size_t>(group)];
  const int64_t size = runs_.page_size();
  if (!rules.holds_tokens()) return position;
  // The group cannot serve a position if a query at this position sees a token of a missing page. In that case, the
  // loop goes on with the begin of the missing page as the position. It checks the pages before the position, down to
  // the first page that a query at the position sees.
  int64_t first = rules.first_visible(position) / size;
  for (int64_t i = ceil_div(position, size) - 1; position > 0 && i >= first; --i) {
    if (page(matched_blocks_[static_cast<size_t>(i)], group) != 0) continue;
    position = i * size;
    first = rules.first_visible(position) / size;
  }
  return position;
}

// Returns whether the tokens of a checkpoint between the end of block `blocks` - 1 and its position are those of the
// key.
bool PrefixIndex::has_tail(int32_t checkpoint, const TokenRuns::Key& key, int64_t blocks) const noexcept {
  const Checkpoint& c = checkpoints_[checkpoint];
  const int64_t begin = blocks * runs_.page_size(), end = begin + c.tail;
  const auto tail = key.tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(c.tail));
  return c.tail == 0 || (c.salt == runs_.salt_of(key, blocks) && compare_adapters(c.context, key.context) == 0 &&
                         same_media_end(c.context, key.context, begin, end) == end &&
                         std::equal(tail.begin(), tail.end(), tails_.data() + checkpoint * runs_.page_size()));
}

// Finds the checkpoint with the largest position up to `position` on the path of the key, whose blocks are in
// matched_blocks_. Sets *at to the position of the checkpoint. Returns -1, and sets *at to 0, if there is none.
int32_t PrefixIndex::find_checkpoint(const TokenRuns::Key& key, int64_t position, int64_t* at) const noexcept {
  const int64_t size = runs_.page_size();
  for (int64_t blocks = position / size; blocks >= 0; --blocks) {
    const int64_t begin = blocks * size;
    const int64_t block = blocks == 0 ? runs_.max_blocks() : matched_blocks_[static_cast<size_t>(blocks - 1)];
    int32_t best = -1;
    for (int32_t c = checkpoints_of_[block] - 1; c >= 0; c = checkpoints_[c].next) {
      const Checkpoint& checkpoint = checkpoints_[c];
      if (begin + checkpoint.tail > position || (best >= 0 && checkpoint.tail <= checkpoints_[best].tail)) continue;
      if (has_tail(c, key, blocks)) best = c;
    }
    if (best < 0) continue;
    *at = begin + checkpoints_[best].tail;
    return best;
  }
  *at = 0;
  return -1;
}

PrefixIndex::Match PrefixIndex::match(const TokenRuns::Key& key, int64_t most) {
  Match match;
  match.known = runs_.walk(key, &matched_blocks_, &matched_runs_);
  match.tokens = std::min(match.known, most);
  if (token_groups_.empty()) {  // the blocks lack the tail of a checkpoint, which find_checkpoint compares
    const int64_t size = runs_.page_size(), length = static_cast<int64_t>(key.tokens.size());
    match.tokens = std::min({most, length, match.known / size * size + size - 1});
  }
  matched_checkpoint_ = -1;
  for (bool again = true; again;) {
    again = false;
    for (int32_t g = 0; g < num_groups(); ++g) {
      int64_t position = servable(g, match.tokens);
      if (rules_[static_cast<size_t>(g)].holds_state()) {
        matched_checkpoint_ = find_checkpoint(key, match.tokens, &position);
      }
      if (position == match.tokens) continue;
      match.tokens = position;
      match.limited_by = g;
      again = true;
    }
  }
  match.known = std::max(match.known, match.tokens);
  if (match.tokens == std::min(match.known, most)) match.limited_by = -1;
  const auto blocks = static_cast<size_t>(ceil_div(match.tokens, runs_.page_size()));
  matched_blocks_.resize(std::min(matched_blocks_.size(), blocks));
  while (!matched_runs_.empty() &&
         runs_.begin_block(matched_runs_.back()) >= static_cast<int64_t>(matched_blocks_.size())) {
    matched_runs_.pop_back();
  }
  return match;
}

int32_t PrefixIndex::matched_page(int32_t group, int64_t index) const noexcept {
  return page(matched_blocks_[static_cast<size_t>(index)], group) - 1;
}

void PrefixIndex::read_matched(int32_t group, int64_t begin, std::span<int32_t> pages) const noexcept {
  for (size_t i = 0; i < pages.size(); ++i) {
    pages[i] = page(matched_blocks_[static_cast<size_t>(begin) + i], group) - 1;
  }
}

void PrefixIndex::use() noexcept {
  // cut_path splits the last run if the match ends within it, because the tokens after the match were not used.
  if (!matched_runs_.empty()) {
    touch_path(cut_path(matched_runs_.back(), static_cast<int64_t>(matched_blocks_.size())), true);
  }
  if (matched_checkpoint_ >= 0) use_checkpoint(matched_checkpoint_);
}

// ---- Publish --------------------------------------------------------------------------------------------------------

// Compares the pages of a block with those of a sequence that has all tokens of the block. In groups where the index
// has no page, the index takes the sequence's page. In the other groups, the sequence then uses the page of the index,
// if the block is whole.
void PrefixIndex::adopt(int32_t run, int32_t block, int64_t index, PublishedPages& sequence,
                        PrefixPages& pages) noexcept {
  for (const int32_t g : token_groups_) {
    const int32_t own = sequence.at(g, index);
    if (own < 0) continue;
    if (page(block, g) == 0) {
      // If the index already holds this page, the page belongs to a block with other tokens or another salt.
      if (!pages.held(g, own)) set_page(run, block, index, g, own, pages);
    } else if (page(block, g) != own + 1 &&
               (block != runs_.last_block(run) || runs_.last_tokens(run) == runs_.page_size())) {
      sequence.replace(g, index, page(block, g) - 1);
    }
  }
}

// The index already has the first whole_blocks blocks of the sequence. Calls adopt for those of these blocks in which
// the sequence has other pages than the index. Returns the run of the last block.
int32_t PrefixIndex::adopt_known(int64_t whole_blocks, PublishedPages& sequence, PrefixPages& pages) noexcept {
  const auto blocks = static_cast<int64_t>(own_pages_.size()) / num_groups();
  int32_t run = TokenRuns::kRoot;
  int64_t end = 0;
  for (int64_t index = 0, r = -1; index < whole_blocks; ++index) {
    if (index == end) {
      run = matched_runs_[static_cast<size_t>(++r)];
      end = runs_.begin_block(run) + runs_.num_blocks(run);
    }
    const int32_t block = matched_blocks_[static_cast<size_t>(index)];
    bool is_same = true;
    for (int32_t g = 0; g < num_groups(); ++g) {
      const int32_t own = own_pages_[static_cast<size_t>(g * blocks + index)];
      is_same = is_same && (own < 0 || page(block, g) == own + 1);
    }
    if (!is_same) adopt(run, block, index, sequence, pages);
  }
  return run;
}

// Returns the run that ends after the first whole_blocks blocks of the matched path, where the sequence branches off.
// Splits a run if needed.
int32_t PrefixIndex::branch_point(int64_t whole_blocks) noexcept {
  while (!matched_runs_.empty() && runs_.begin_block(matched_runs_.back()) >= whole_blocks) matched_runs_.pop_back();
  if (matched_runs_.empty()) return TokenRuns::kRoot;
  const int32_t run = matched_runs_.back();
  const auto shared = static_cast<int32_t>(whole_blocks - runs_.begin_block(run));
  return shared == runs_.num_blocks(run) ? run : split(run, shared);
}

// Reads the pages of the sequence's first `blocks` blocks into own_pages_, in every group that holds tokens.
void PrefixIndex::read_own(const PublishedPages& sequence, size_t blocks) noexcept {
  for (const int32_t g : token_groups_) {
    sequence.read(g, std::span(own_pages_).subspan(static_cast<size_t>(g) * blocks, blocks));
  }
}

// Adds block `index` of the key after the last block of a run: at the end of the run, or as a new child of the run.
// Returns the run of the block.
int32_t PrefixIndex::extend(int32_t run, const TokenRuns::Key& key, int64_t index, const Terms& terms) noexcept {
  const uint64_t salt = runs_.salt_of(key, index);
  const std::span<const int32_t> tokens = runs_.tokens_of(key, index);
  const bool grows = run != TokenRuns::kRoot && runs_.is_leaf(run) && runs_.num_blocks(run) < TokenRuns::kRunBlocks &&
                     runs_.salt(run) == salt && merged(terms_[run], terms) == terms;
  if (grows) {
    runs_.add_block(run, tokens, key.context);
  } else {
    run = runs_.add_run(run, salt, tokens, key.context);
    for (int32_t g = 0; g < num_groups(); ++g) link(run, g) = {-1, -1, 0};
    uses_[run] = {clock_, 0};
    terms_[run] = terms;
    count_terms(run, 1);
  }
  for (int32_t g = 0; g < num_groups(); ++g) page(runs_.last_block(run), g) = 0;
  return run;
}

// Adds the blocks of the key from block *index on, after the matched path, until the index has no room. Sets *index to
// the number of the first block that was not added. Returns the run of the block before it.
int32_t PrefixIndex::add_blocks(const TokenRuns::Key& key, int64_t* index, PublishedPages& sequence, PrefixPages& pages,
                                const Terms& terms) noexcept {
  int32_t run = branch_point(*index);
  for (; *index * runs_.page_size() < static_cast<int64_t>(key.tokens.size()); ++*index) {
    growing_ = run;
    const bool has_room = make_block(pages);
    growing_ = -1;
    if (!has_room) break;
    run = extend(run, key, *index, terms);
    const int32_t block = runs_.last_block(run);
    if (keys_ && is_whole(run, block)) keys_->assign(block);
    adopt(run, block, *index, sequence, pages);
    matched_blocks_.resize(static_cast<size_t>(*index));
    matched_blocks_.push_back(block);
  }
  return run;
}

int64_t PrefixIndex::publish(const TokenRuns::Key& all_tokens, PublishedPages& sequence, PrefixPages& pages,
                             const Terms& terms) {
  TokenRuns::Key key = all_tokens;
  const int64_t size = runs_.page_size();
  if (token_groups_.empty()) {  // every block is whole
    key.tokens = key.tokens.first(key.tokens.size() - key.tokens.size() % static_cast<size_t>(size));
  }
  const auto length = static_cast<int64_t>(key.tokens.size());
  const auto most_blocks = static_cast<size_t>(std::min(ceil_div(length, size), runs_.max_blocks()));
  // These three statements may throw. After them, nothing can fail.
  matched_blocks_.reserve(most_blocks);
  matched_runs_.reserve(most_blocks);
  own_pages_.assign(static_cast<size_t>(num_groups()) * most_blocks, -1);
  const int64_t known = runs_.walk(key, &matched_blocks_, &matched_runs_);
  read_own(sequence, most_blocks);
  int64_t index = known / size;
  int32_t run = adopt_known(index, sequence, pages);
  if (keys_) keys_->start(key, index, index > 0 ? matched_blocks_[static_cast<size_t>(index - 1)] : -1);
  if (known % size != 0) {  // a block of the index begins with the same tokens as the sequence's next block
    const int32_t partial = matched_blocks_[static_cast<size_t>(index)];
    const int32_t last = matched_runs_.back();
    const int64_t same = known % size, count = partial == runs_.last_block(last) ? runs_.last_tokens(last) : size;
    const bool all = known == length;
    if (all || same == count) {
      run = last;
      if (!all) {  // the sequence's block is longer, and replaces the block of the index
        for (const int32_t g : token_groups_) drop_page(run, partial, g, pages);
        runs_.grow_last(run, runs_.tokens_of(key, index), key.context);
        if (keys_ && is_whole(run, partial)) keys_->assign(partial);
      }
      if (same == count || !all) adopt(run, partial, index, sequence, pages);
      ++index;
    }
  }
  if (index * size < length) run = add_blocks(key, &index, sequence, pages, terms);
  int64_t published = std::min(length, index * size);
  merge_path(run, index, terms);
  touch_path(run, false);
  const auto keeps_state = [&] {
    return has_states() && published == length && !all_tokens.tokens.empty() &&
           publish_state(all_tokens, run, sequence, pages, terms);
  };
  if (token_groups_.empty() && keeps_state()) return static_cast<int64_t>(all_tokens.tokens.size());
  // If neither the index nor the sequence had pages for the last blocks, prune removes these blocks.
  const bool whole = run == TokenRuns::kRoot || stays(runs_.last_block(run));
  prune(run, pages);
  if (!whole) {
    published = runs_.walk(key, &matched_blocks_, &matched_runs_);
    run = matched_runs_.empty() ? TokenRuns::kRoot : matched_runs_.back();
  }
  if (!token_groups_.empty()) keeps_state();
  return published;
}

bool PrefixIndex::is_valid() const {
  std::vector<int64_t> held(rules_.size());
  bool valid = runs_.is_valid() && keys_are_valid();
  runs_.for_each_run([&](int32_t run) {
    for (int32_t g = 0; g < num_groups(); ++g) {
      int32_t count = 0;
      for (int32_t b = runs_.first_block(run); b >= 0; b = runs_.next_block(b)) count += page(b, g) != 0;
      valid = valid && count == link(run, g).pages;
      held[static_cast<size_t>(g)] += count;
    }
    const int32_t parent = runs_.parent(run);
    valid = valid && (!runs_.is_leaf(run) || stays(runs_.last_block(run))) &&
            (parent == TokenRuns::kRoot ||
             (uses_[parent].at >= uses_[run].at && uses_[parent].number >= uses_[run].number));
  });
  int64_t kept = 0;
  for (int32_t c = checkpoint_list_.oldest, older = -1; c >= 0; older = c, c = checkpoints_[c].newer, ++kept) {
    const Checkpoint& checkpoint = checkpoints_[c];
    int32_t block = checkpoint.run == TokenRuns::kRoot ? -1 : runs_.first_block(checkpoint.run);
    while (block >= 0 && block != checkpoint.block) block = runs_.next_block(block);
    valid = valid && checkpoint.older == older &&
            (checkpoint.run == TokenRuns::kRoot ? checkpoint.block == runs_.max_blocks() : block >= 0);
  }
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (rules_[static_cast<size_t>(g)].holds_state()) {
      valid = valid && held_[static_cast<size_t>(g)] == kept;
      continue;
    }
    int64_t listed = 0;
    for (int32_t uses = 0; uses <= kMostUses; ++uses) {
      int32_t older = -1;
      std::vector<bool> seen(static_cast<size_t>(runs_.max_runs()));
      for (int32_t run = list(g, uses).oldest; run >= 0; run = link(run, g).newer) {
        valid = valid && link(run, g).older == older && link(run, g).pages > 0 && uses_[run].number == uses &&
                (older < 0 || uses_[older].at <= uses_[run].at) && !seen[static_cast<size_t>(runs_.parent(run))];
        listed += link(run, g).pages;
        older = run;
        seen[static_cast<size_t>(run)] = true;
      }
      valid = valid && older == list(g, uses).newest;
    }
    valid = valid && listed == held[static_cast<size_t>(g)] && listed == held_[static_cast<size_t>(g)];
  }
  return valid;
}

}  // namespace kvc
