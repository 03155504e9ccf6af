// PrefixIndex over naive sequences. Each page records its tokens, so a wrong page is noticed at once.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "prefix/prefix_index.h"

namespace kvc {

using Tokens = std::vector<int32_t>;
constexpr int64_t kPage = 4;

inline GroupRules full() {
  GroupRules rules;
  rules.page_size = kPage;
  return rules;
}
inline GroupRules sliding(int64_t window) {
  GroupRules rules = full();
  rules.visible = kernels::see_window(static_cast<int32_t>(window));
  return rules;
}
inline GroupRules chunked(int64_t chunk) {
  GroupRules rules = full();
  rules.visible = kernels::see_chunk(static_cast<int32_t>(chunk));
  return rules;
}
inline GroupRules state() {
  GroupRules rules;
  rules.page_size = 1 << 30;
  rules.row = RowKind::kState;
  return rules;
}

// The adapter of a sequence, and its media.
struct Setting {
  std::vector<uint8_t> adapter;
  std::vector<MediaSpan> media;

  ContextRef context() const {
    return adapter.empty() && media.empty() ? ContextRef() : ContextRef(new PrefixContext(adapter, media));
  }
  // The span of the token at a position; MediaSpan() if it has none.
  MediaSpan at(int64_t position) const {
    for (const MediaSpan& span : media) {
      if (span.begin <= position && position < span.begin + span.tokens) return span;
    }
    return {};
  }
  // What the first tokens depend on, and nothing else.
  struct Part {
    std::vector<uint8_t> adapter;
    std::vector<MediaSpan> spans;  // of each token
    bool operator==(const Part&) const = default;
  };
  Part part(size_t tokens) const {
    Part part{adapter, {}};
    for (size_t i = 0; i < tokens; ++i) part.spans.push_back(at(static_cast<int64_t>(i)));
    return part;
  }
  // One of few settings, so that many sequences have the same one up to some token.
  static Setting draw(std::mt19937& random) {
    Setting setting;
    if (random() % 3 == 0) setting.adapter.push_back(static_cast<uint8_t>('a' + random() % 2));
    for (int64_t at = random() % 12; at < 30 && random() % 3 > 0; at += random() % 5) {
      MediaSpan span = {.begin = at, .tokens = static_cast<int64_t>(1 + random() % 6)};
      span.hash[31] = static_cast<uint8_t>(random() % 2);
      setting.media.push_back(span);
      at += span.tokens;
    }
    return setting;
  }
};

// Pages with reference counts and contents. The contents are the salt in force, all tokens from the sequence's first
// one on, and their setting.
class Pool : public PrefixPages {
 public:
  struct Page {
    int refs = 0;
    bool indexed = false;
    uint64_t salt = 0;
    Tokens prefix;
    Setting::Part part;
  };
  explicit Pool(size_t groups) : pages(groups) {}
  void hold(int32_t group, int32_t page) noexcept override {
    Page& p = at(group, page);
    EXPECT_GT(p.refs, 0) << "the index took a page that is free";
    EXPECT_FALSE(p.indexed);
    p.indexed = true;
    ++p.refs;
  }
  void release(int32_t group, int32_t page) noexcept override {
    Page& p = at(group, page);
    EXPECT_TRUE(p.indexed);
    p.indexed = false;
    --p.refs;
  }
  bool idle(int32_t group, int32_t page) const noexcept override {
    const Page& p = pages[static_cast<size_t>(group)][static_cast<size_t>(page)];
    return p.indexed && p.refs == 1;
  }
  bool held(int32_t group, int32_t page) const noexcept override {
    return pages[static_cast<size_t>(group)][static_cast<size_t>(page)].indexed;
  }
  bool pinned(int32_t group, int32_t page) const noexcept override { return pins.contains({group, page}); }
  int32_t take(int32_t group, uint64_t salt, Tokens prefix, const Setting& setting) {
    auto& list = pages[static_cast<size_t>(group)];
    const Setting::Part part = setting.part(prefix.size());
    list.push_back({1, false, salt, std::move(prefix), part});
    return static_cast<int32_t>(list.size()) - 1;
  }
  Page& at(int32_t group, int32_t page) { return pages[static_cast<size_t>(group)][static_cast<size_t>(page)]; }
  int64_t used() const {
    int64_t count = 0;
    for (const auto& group : pages)
      count += std::count_if(group.begin(), group.end(), [](const Page& p) { return p.refs > 0; });
    return count;
  }

  std::vector<std::vector<Page>> pages;
  std::set<std::pair<int32_t, int32_t>> pins;  // pages with states
};

struct Sequence : PublishedPages {
  Pool* pool = nullptr;
  const std::vector<GroupRules>* rules = nullptr;
  Tokens tokens;
  uint64_t salt = 0;
  int64_t salt_begin = 0;
  Setting setting;
  ContextRef context;
  std::vector<std::map<int64_t, int32_t>> lists;  // [groups]: page by list index; of a state group at index 0

  TokenRuns::Key key() const { return {tokens, salt, salt_begin, context.get()}; }
  void set(const Setting& s) {
    setting = s;
    context = s.context();
  }
  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  uint64_t salt_at(int64_t index) const { return (index + 1) * kPage > salt_begin ? salt : 0; }
  Tokens prefix(int64_t end) const { return Tokens(tokens.begin(), tokens.begin() + std::min(end, length())); }
  bool is_state(size_t g) const { return (*rules)[g].holds_state(); }

  int32_t at(int32_t group, int64_t index) const noexcept override {
    const auto& list = lists[static_cast<size_t>(group)];
    const auto found = list.find(is_state(static_cast<size_t>(group)) ? 0 : index);
    return found == list.end() ? -1 : found->second;
  }
  void replace(int32_t group, int64_t index, int32_t page) noexcept override {
    int32_t& own = lists[static_cast<size_t>(group)].at(index);
    EXPECT_EQ(pool->at(group, own).prefix, pool->at(group, page).prefix);
    EXPECT_EQ(pool->at(group, own).salt, pool->at(group, page).salt);
    EXPECT_TRUE(pool->at(group, own).part == pool->at(group, page).part);
    --pool->at(group, own).refs;
    ++pool->at(group, page).refs;
    own = page;
  }
  // Appends tokens as a step does: fresh pages, a copy of a shared last page, a fresh state. Then it frees the pages
  // that no query will see.
  void append(const Tokens& more) {
    const int64_t before = length();
    tokens.insert(tokens.end(), more.begin(), more.end());
    for (size_t g = 0; g < lists.size(); ++g) {
      const auto group = static_cast<int32_t>(g);
      if (is_state(g)) {
        drop(group, 0);
        lists[g][0] = pool->take(group, salt_at((length() - 1) / kPage), tokens, setting);
        continue;
      }
      for (int64_t i = before / kPage; i * kPage < length(); ++i) {
        drop(group, i);
        lists[g][i] = pool->take(group, salt_at(i), prefix((i + 1) * kPage), setting);
      }
      while (!lists[g].empty() && (lists[g].begin()->first + 1) * kPage <= (*rules)[g].first_visible(length())) {
        drop(group, lists[g].begin()->first);
      }
    }
  }
  void drop(int32_t group, int64_t index) {
    auto& list = lists[static_cast<size_t>(group)];
    const auto found = list.find(index);
    if (found == list.end()) return;
    --pool->at(group, found->second).refs;
    list.erase(found);
  }
  void remove() {
    for (size_t g = 0; g < lists.size(); ++g) {
      while (!lists[g].empty()) drop(static_cast<int32_t>(g), lists[g].begin()->first);
    }
  }
};

class Scene {
 public:
  Scene(std::vector<GroupRules> group_rules, int64_t max_blocks, bool rewards_reuse = true,
        int64_t max_checkpoints = 50)
      : rules(std::move(group_rules)),
        pool(rules.size()),
        index(rules, kPage, max_blocks, max_checkpoints, rewards_reuse) {}

  Sequence make(uint64_t salt = 0, int64_t salt_begin = 0) {
    Sequence sequence;
    sequence.pool = &pool;
    sequence.rules = &rules;
    sequence.salt = salt;
    sequence.salt_begin = salt_begin;
    sequence.lists.resize(rules.size());
    return sequence;
  }
  Sequence run(const Tokens& tokens, uint64_t salt = 0) {
    Sequence sequence = make(salt);
    sequence.append(tokens);
    return sequence;
  }
  int64_t publish(Sequence& sequence, const PrefixIndex::Terms& terms = {}) {
    return index.publish(sequence.key(), sequence, pool, terms);
  }
  // Publishes a sequence of these tokens, and removes it.
  int64_t remember(const Tokens& tokens, const PrefixIndex::Terms& terms = {}, uint64_t salt = 0) {
    Sequence sequence = run(tokens, salt);
    const int64_t known = publish(sequence, terms);
    sequence.remove();
    return known;
  }

  // A sequence that begins with the pages that the index finds. Every page is checked.
  Sequence attach(const Tokens& query, uint64_t salt, int64_t salt_begin, PrefixIndex::Match* match,
                  const Setting& setting = {}) {
    Sequence sequence = make(salt, salt_begin);
    sequence.set(setting);
    *match = index.match({query, salt, salt_begin, sequence.context.get()}, static_cast<int64_t>(query.size()));
    sequence.tokens = Tokens(query.begin(), query.begin() + match->tokens);
    for (size_t g = 0; g < rules.size() && match->tokens > 0; ++g) {
      const auto group = static_cast<int32_t>(g);
      const int64_t last = (match->tokens - 1) / kPage;
      if (rules[g].holds_state()) {
        const int32_t page = index.matched_state(group);
        EXPECT_EQ(pool.at(group, page).prefix, sequence.tokens);
        EXPECT_EQ(pool.at(group, page).salt, sequence.salt_at(last));
        EXPECT_TRUE(pool.at(group, page).part == setting.part(sequence.tokens.size()));
        sequence.lists[g][0] = pool.take(group, sequence.salt_at(last), sequence.tokens, setting);
        continue;
      }
      for (int64_t i = rules[g].first_visible(match->tokens) / kPage; i <= last; ++i) {
        const int32_t page = index.matched_page(group, i);
        EXPECT_GE(page, 0) << "group " << g << " entry " << i << " of " << match->tokens;
        if (page < 0) continue;
        const Tokens& held = pool.at(group, page).prefix;
        const int64_t end = std::min((i + 1) * kPage, match->tokens);
        EXPECT_GE(static_cast<int64_t>(held.size()), end);
        EXPECT_TRUE(std::equal(query.begin(), query.begin() + end, held.begin())) << "a page of other tokens";
        EXPECT_EQ(pool.at(group, page).salt, sequence.salt_at(i));
        Setting::Part part = pool.at(group, page).part;
        part.spans.resize(static_cast<size_t>(end));
        EXPECT_TRUE(part == setting.part(static_cast<size_t>(end))) << "a page of another adapter or other media";
        if (end == (i + 1) * kPage) {
          ++pool.at(group, page).refs;
          sequence.lists[g][i] = page;
        } else {
          sequence.lists[g][i] = pool.take(group, sequence.salt_at(i), sequence.tokens, setting);
        }
      }
    }
    index.use();
    return sequence;
  }
  // Checks that only the index and the live sequences have references. Then removes them all, and checks that none is
  // left.
  void end(std::vector<Sequence>& live) {
    for (Sequence& sequence : live) sequence.remove();
    int64_t held = 0;
    for (size_t g = 0; g < rules.size(); ++g) held += index.held_pages(static_cast<int32_t>(g));
    EXPECT_EQ(pool.used(), held);
    index.clear(pool);
    EXPECT_EQ(pool.used(), 0);
    EXPECT_EQ(index.used_blocks(), 0);
    EXPECT_TRUE(index.is_valid());
  }
  int64_t match(const Tokens& query, uint64_t salt = 0) {
    return index.match({query, salt, 0}, static_cast<int64_t>(query.size())).tokens;
  }

  std::vector<GroupRules> rules;
  Pool pool;
  PrefixIndex index;
};

inline Tokens count_to(int32_t n, int32_t first = 1) {
  Tokens tokens;
  for (int32_t i = 0; i < n; ++i) tokens.push_back(first + i);
  return tokens;
}

}  // namespace kvc
