#include "prefix/prefix_store.h"

#include <algorithm>
#include <cinttypes>

namespace kvc {
namespace {

std::vector<GroupRules> rules_of(const SequenceStore& store) {
  std::vector<GroupRules> rules;
  for (int32_t g = 0; g < store.num_groups(); ++g) rules.push_back(store.rules(g));
  return rules;
}

// A sequence that is being published.
class Publishing final : public PublishedPages {
 public:
  Publishing(SequenceStore* store, int32_t slot, int64_t tokens) : store_(*store), slot_(slot), tokens_(tokens) {}
  int32_t at(int32_t group, int64_t index) const noexcept override {
    return store_.page_at(slot_, group, index, tokens_);
  }
  void read(int32_t group, std::span<int32_t> pages) const noexcept override { store_.read_pages(slot_, group, pages); }
  void replace(int32_t group, int64_t index, int32_t page) noexcept override {
    const int64_t free = store_.table(group).free_pages();
    store_.replace_page(slot_, group, index, page);
    freed += store_.table(group).free_pages() - free;
  }

  int64_t freed = 0;

 private:
  SequenceStore& store_;
  const int32_t slot_;
  const int64_t tokens_;
};

}  // namespace

PrefixStore::PrefixStore(const Config& config, SequenceStore* store)
    : store_(*store),
      index_(rules_of(*store), config.page_size, config.max_blocks, config.max_checkpoints, config.rewards_reuse),
      pages_(store),
      matched_(*this),
      evicted_(static_cast<size_t>(store->num_groups())) {
  if (config.fingerprint) index_.keep_keys(*config.fingerprint);
  store_.set_evictor(this);
}

bool PrefixStore::Pages::pinned(int32_t group, int32_t page) const noexcept {
  return std::any_of(pinned_states.begin(), pinned_states.end(), [=](const SequenceStore::PageReference& reference) {
    return reference.group == group && reference.page == page;
  });
}

PrefixStore::~PrefixStore() { store_.set_evictor(nullptr); }

int32_t PrefixStore::Matched::at(int32_t group, int64_t index) const noexcept {
  return prefixes_.store_.rules(group).holds_state() ? prefixes_.index_.matched_state(group)
                                                     : prefixes_.index_.matched_page(group, index);
}

Status PrefixStore::attach(const TokenRuns::Key& key, int64_t most, Match* match, uint64_t* id,
                           std::vector<SlotCopy>* copies) {
  *match = index_.match(key, most);
  KVC_TRY(store_.attach(matched_, match->tokens, id, copies));
  index_.use();
  ++counts_.attaches;
  counts_.attached_tokens += match->tokens;
  return Status();
}

int64_t PrefixStore::held_pages() const noexcept {
  int64_t pages = 0;
  for (int32_t g = 0; g < store_.num_groups(); ++g) pages += index_.held_pages(g);
  return pages;
}

Status PrefixStore::publish(uint64_t id, const TokenRuns::Key& key, const Terms& terms, Published* published) {
  const auto tokens = static_cast<int64_t>(key.tokens.size());
  int32_t slot = -1;
  KVC_TRY(store_.check_publish(id, tokens, &slot));
  Publishing sequence(&store_, slot, tokens);
  const int64_t held = pages_.held_so_far;
  published->known = index_.publish(key, sequence, pages_, terms);
  published->added = pages_.held_so_far - held;
  published->freed = sequence.freed;
  store_.protect_tail(slot);
  return Status();
}

int64_t PrefixStore::drop(const TokenRuns::Key& key) {
  const int64_t held = held_pages();
  index_.drop(key, pages_);
  return held - held_pages();
}

int64_t PrefixStore::drop_session(uint64_t session) {
  const int64_t held = held_pages();
  index_.drop_session(session, pages_);
  return held - held_pages();
}

PrefixStore::Match PrefixStore::pin(const TokenRuns::Key& key, uint64_t* pin) {
  const Match match = index_.match(key, static_cast<int64_t>(key.tokens.size()));
  std::vector<SequenceStore::PageReference> pages;
  for (int32_t g = 0; match.tokens > 0 && g < store_.num_groups(); ++g) {
    const GroupRules& rules = store_.rules(g);
    if (rules.holds_encoder()) continue;
    const int64_t count = ceil_div(match.tokens, rules.page_size);
    for (int64_t i = store_.first_entry(matched_, g, match.tokens); i < count; ++i) {
      pages.push_back({g, matched_.at(g, i)});
    }
  }
  pages_.pinned_states.reserve(pages_.pinned_states.size() + static_cast<size_t>(store_.num_groups()));
  const auto& kept = pins_.emplace(last_pin_ + 1, std::move(pages)).first->second;
  *pin = ++last_pin_;
  for (const auto& [group, page] : kept) {
    store_.hold_page(group, page);
    if (store_.rules(group).holds_state()) pages_.pinned_states.push_back({group, page});
  }
  return match;
}

void PrefixStore::end_pin(const std::vector<SequenceStore::PageReference>& pages) noexcept {
  for (const auto& [group, page] : pages) {
    store_.unhold_page(group, page);
    if (!store_.rules(group).holds_state()) continue;
    std::vector<SequenceStore::PageReference>& states = pages_.pinned_states;
    states.erase(std::find_if(states.begin(), states.end(), [&](const SequenceStore::PageReference& reference) {
      return reference.group == group && reference.page == page;
    }));
  }
}

Status PrefixStore::unpin(uint64_t pin) {
  const auto found = pins_.find(pin);
  if (found == pins_.end()) return Status::error(KVC_ERROR_STALE_ID, "pin %" PRIu64 " does not exist", pin);
  end_pin(found->second);
  pins_.erase(found);
  return Status();
}

void PrefixStore::clear() noexcept {
  for (const auto& [pin, pages] : pins_) end_pin(pages);
  pins_.clear();
  index_.clear(pages_);
}

void PrefixStore::evict(int32_t group, int64_t pages) noexcept {
  for (int32_t g = 0; g < store_.num_groups(); ++g) evicted_[static_cast<size_t>(g)] += index_.held_pages(g);
  index_.evict(group, pages, pages_);
  for (int32_t g = 0; g < store_.num_groups(); ++g) evicted_[static_cast<size_t>(g)] -= index_.held_pages(g);
  if (pages_.watcher != nullptr) pages_.watcher->evicted();
}

std::vector<SequenceStore::PageReference> PrefixStore::references() const {
  std::vector<SequenceStore::PageReference> references;
  index_.for_each_page([&](int32_t group, int32_t page) { references.push_back({group, page}); });
  for (const auto& [pin, pages] : pins_) references.insert(references.end(), pages.begin(), pages.end());
  return references;
}

uint64_t PrefixStore::digest(uint64_t digest) const {
  digest = index_.digest(digest) ^ last_pin_;
  for (const auto& [pin, pages] : pins_) digest = (digest ^ pin) * 0x100000001b3u;
  return digest;
}

Status PrefixStore::check_invariants() const {
  Status status;
  index_.for_each_page([&](int32_t group, int32_t page) {
    if (store_.is_indexed(group, page)) return;
    status = Status::error(KVC_ERROR_INTERNAL, "group %d: the index has page %d without a reference", group, page);
  });
  if (!status.ok()) return status;
  return index_.is_valid() ? Status() : Status::error(KVC_ERROR_INTERNAL, "the prefix index is not consistent");
}

}  // namespace kvc
