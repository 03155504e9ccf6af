// PrefixStore: the prefix index over the pages of a SequenceStore. It attaches and publishes sequences, keeps pins, and
// evicts idle pages when the sequence store has too few free pages. It also counts attaches and evicted pages.
//
// Pure. Thread safety: none; the owner locks. It must not outlive the sequence store.
// Invariants
//   1. The index has one reference to each of its pages (RefPool::index). A pin has one reference to each page of its
//      prefix.
//   2. A sequence does not write to a page to which the index refers. If the last page of a sequence is such a page, a
//      copy replaces it before the sequence writes.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "prefix/prefix_index.h"
#include "sequence/sequence_store.h"

namespace kvc {

// Receives a call for each page that the index releases. After that, the page may hold other tokens.
class PageWatcher {
 public:
  virtual ~PageWatcher() = default;
  virtual void released(int32_t group, int32_t page) noexcept = 0;
  // Called when the index has evicted pages because a pool was short of pages.
  virtual void evicted() noexcept = 0;
};

class PrefixStore final : public PageEvictor {
 public:
  struct Config {
    int64_t page_size = 0;
    int64_t max_blocks = 0;
    int64_t max_checkpoints = 0;
    bool rewards_reuse = true;           // true: KVC_PREFIX_POLICY_REUSE; false: LRU
    std::optional<PageKey> fingerprint;  // set if pages need keys, for events or tiers
  };
  using Match = PrefixIndex::Match;
  using Terms = PrefixIndex::Terms;

  struct Published {
    int64_t known = 0;  // number of the key's tokens that the index has after the publish
    int64_t added = 0;  // number of pages that the index added
    int64_t freed = 0;  // number of the sequence's own pages that became free, because it now uses pages of the index
  };
  struct Counts {
    int64_t attaches = 0;
    int64_t attached_tokens = 0;
  };

  // Registers itself as the evictor of the sequence store.
  PrefixStore(const Config& config, SequenceStore* store);
  ~PrefixStore() override;
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  void set_time(int64_t now) noexcept { index_.set_time(now); }
  int64_t now() const noexcept { return index_.now(); }

  // As PrefixIndex::keep_keys.
  void keep_keys(const PageKey& fingerprint) { index_.keep_keys(fingerprint); }
  // For listeners, and for code that reads keys.
  void add_listener(PrefixListener* listener) { index_.add_listener(listener); }
  const PrefixIndex& index() const noexcept { return index_; }
  // As PrefixIndex::list_next.
  std::vector<NamedPage> list_next(int32_t group, int64_t wanted) const {
    return index_.list_next(group, wanted, pages_);
  }

  Match match(const TokenRuns::Key& key, int64_t most) { return index_.match(key, most); }
  // Appends to `copies` the copies that the caller must make. After a failure, nothing has changed, except that pages
  // may have been evicted.
  Status attach(const TokenRuns::Key& key, int64_t most, Match* match, uint64_t* id, std::vector<SlotCopy>* copies);
  // Makes a sequence of `tokens` tokens. The first `found` tokens use the pages of the last match, and the other tokens
  // get new pages (SequenceStore::begin_fill).
  Status begin_fill(int64_t found, int64_t tokens, uint64_t* id) {
    return store_.begin_fill(matched_, found, tokens, id);
  }
  // The pages of the last match; missing entries are -1.
  const PrefixSource& matched() const noexcept { return matched_; }
  // watcher: nullable, not owned.
  void set_watcher(PageWatcher* watcher) noexcept { pages_.watcher = watcher; }
  // The key's tokens must be the first tokens of the sequence.
  Status publish(uint64_t id, const TokenRuns::Key& key, const Terms& terms, Published* published);
  // These return how many pages the index released.
  int64_t drop(const TokenRuns::Key& key);
  int64_t drop_session(uint64_t session);
  void set_terms(const TokenRuns::Key& key, int32_t priority, int64_t expires) {
    index_.set_terms(key, priority, expires);
  }
  void set_session_terms(uint64_t session, int32_t priority, int64_t expires) {
    index_.set_session_terms(session, priority, expires);
  }
  Match pin(const TokenRuns::Key& key, uint64_t* pin);
  Status unpin(uint64_t pin);
  // Releases all pages, and ends all pins.
  void clear() noexcept;

  void evict(int32_t group, int64_t pages) noexcept override;

  const Counts& counts() const noexcept { return counts_; }
  int64_t evicted(int32_t group) const noexcept { return evicted_[static_cast<size_t>(group)]; }
  int64_t num_pins() const noexcept { return static_cast<int64_t>(pins_.size()); }
  // Calls visit(group, page) for every reference of a pin.
  template <class Visit>
  void for_each_pinned(Visit visit) const {
    for (const auto& [pin, pages] : pins_) {
      for (const auto& [group, page] : pages) visit(group, page);
    }
  }
  // Returns every reference of the index and of pins. Throws std::bad_alloc.
  std::vector<SequenceStore::PageReference> references() const;
  uint64_t digest(uint64_t digest) const;
  Status check_invariants() const;

 private:
  // Implements PrefixPages for the pages of the sequence store.
  class Pages final : public PrefixPages {
   public:
    explicit Pages(SequenceStore* store) : store_(*store) {}
    void hold(int32_t group, int32_t page) noexcept override {
      store_.index_page(group, page);
      ++held_so_far;
    }
    void release(int32_t group, int32_t page) noexcept override {
      store_.unindex_page(group, page);
      if (watcher != nullptr) watcher->released(group, page);
    }
    bool idle(int32_t group, int32_t page) const noexcept override { return store_.is_idle(group, page); }
    bool held(int32_t group, int32_t page) const noexcept override { return store_.is_indexed(group, page); }
    bool pinned(int32_t group, int32_t page) const noexcept override;

    PageWatcher* watcher = nullptr;
    int64_t held_so_far = 0;                                  // number of calls of hold
    std::vector<SequenceStore::PageReference> pinned_states;  // the references of pins to pages with states

   private:
    SequenceStore& store_;
  };

  // Implements PrefixSource for the pages that the last match found.
  class Matched final : public PrefixSource {
   public:
    explicit Matched(const PrefixStore& prefixes) : prefixes_(prefixes) {}
    int32_t at(int32_t group, int64_t index) const noexcept override;
    void read(int32_t group, int64_t begin, std::span<int32_t> pages) const noexcept override {
      prefixes_.index_.read_matched(group, begin, pages);
    }

   private:
    const PrefixStore& prefixes_;
  };

  int64_t held_pages() const noexcept;
  void end_pin(const std::vector<SequenceStore::PageReference>& pages) noexcept;

  SequenceStore& store_;
  PrefixIndex index_;
  Pages pages_;
  Matched matched_;
  std::map<uint64_t, std::vector<SequenceStore::PageReference>> pins_;
  uint64_t last_pin_ = 0;
  Counts counts_;
  std::vector<int64_t> evicted_;  // [groups]
};

}  // namespace kvc
