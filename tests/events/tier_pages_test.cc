// TierPages, compared with a plain list of pages, and with a reader that applies the events of the ring.
#include "events/tier_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "events/event_log.h"

namespace kvc {
namespace {

constexpr int64_t kPage = 4;
constexpr int kObjects = 24;

PageKey key_of(int number, uint8_t kind) {
  PageKey key = {};
  key[0] = static_cast<uint8_t>(number % 3);  // so that many objects share a bucket
  key[8] = static_cast<uint8_t>(number);
  key[31] = kind;
  return key;
}

// What the pages of a model or of a reader are compared by: all that a stored event says.
using Seen = std::tuple<int32_t, int32_t, PageKey, PageKey, int64_t, uint64_t, uint32_t, std::vector<int32_t>, uint8_t>;

Seen seen(const kvc_event& event, std::span<const int32_t> tokens, const PrefixContext* context) {
  PageKey key, parent;
  std::memcpy(key.data(), event.key, key.size());
  std::memcpy(parent.data(), event.parent, parent.size());
  const auto adapter = PrefixContext::adapter_of(context);
  return {event.tier,
          event.group,
          key,
          parent,
          event.position,
          event.session,
          event.flags,
          {tokens.begin(), tokens.end()},
          adapter.empty() ? uint8_t{0} : adapter[0]};
}

// The pages that a reader has after all events of the ring.
class Reader {
 public:
  void read(const EventRing& ring) {
    ASSERT_LE(ring.oldest(), next_) << "events were lost";
    for (; next_ < ring.newest(); ++next_) {
      const kvc_event& event = ring.at(next_);
      ASSERT_EQ(event.number, next_);
      PageKey key;
      std::memcpy(key.data(), event.key, key.size());
      const std::tuple<int32_t, int32_t, PageKey> name{event.tier, event.group, key};
      if (event.kind == KVC_EVENT_STORED) {
        ASSERT_TRUE(pages_.try_emplace(name, seen(event, ring.tokens(next_), ring.context(next_))).second) << "twice";
      } else {
        ASSERT_EQ(event.kind, KVC_EVENT_REMOVED);
        ASSERT_EQ(pages_.erase(name), 1u) << "removed, but not stored";
        ASSERT_EQ(ring.context(next_), nullptr);
      }
    }
  }
  std::multiset<Seen> pages() const {
    std::multiset<Seen> all;
    for (const auto& [name, page] : pages_) all.insert(page);
    return all;
  }

 private:
  uint64_t next_ = 0;
  std::map<std::tuple<int32_t, int32_t, PageKey>, Seen> pages_;
};

// Objects with their tiers, the least recently used first.
struct Model {
  std::vector<std::pair<int, std::set<int32_t>>> used;

  auto find(int object) {
    return std::find_if(used.begin(), used.end(), [=](const auto& entry) { return entry.first == object; });
  }
  bool use(int object, int32_t tier) {
    const auto at = find(object);
    if (at == used.end()) return false;
    at->second.insert(tier);
    std::rotate(at, at + 1, used.end());
    return true;
  }
  void remove(int object, int32_t tier) {
    const auto at = find(object);
    if (at == used.end()) return;
    at->second.erase(tier);
    if (at->second.empty()) used.erase(at);
  }
};

class Walk {
 public:
  Walk(uint64_t seed, int64_t capacity) : random_(seed), capacity_(capacity), pages_(capacity, &ring_) {
    for (uint8_t i = 0; i < 3; ++i) contexts_.emplace_back(new PrefixContext({i}, {}));
  }
  void step() {
    const int object = static_cast<int>(random_() % kObjects);
    const auto tier = static_cast<int32_t>(random_() % 3);
    switch (random_() % 8) {
      case 0:
        EXPECT_EQ(pages_.find(key_of(object, 1), tier), model_.use(object, tier));
        break;
      case 1:
      case 2:
        pages_.remove(key_of(object, 1), tier);
        model_.remove(object, tier);
        break;
      case 3: {
        const auto keeps = [=](int other) { return other % 5 != object % 5; };
        pages_.keep_if(tier, [&](const PageKey& key) { return keeps(key[8]); });
        for (int other = 0; other < kObjects; ++other) {
          if (!keeps(other)) model_.remove(other, tier);
        }
        break;
      }
      default:
        add(object, tier);
    }
    check();
  }

 private:
  Seen page_of(int object, int32_t tier) const {
    const bool parent = object % 4 > 0;
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < kPage; ++i) tokens.push_back(100 * object + i);
    uint32_t flags = 0;
    if (parent) flags |= KVC_EVENT_HAS_PARENT;
    if (object % 2 == 1) flags |= KVC_EVENT_SALTED;
    return {tier + 1,
            object % 2,
            key_of(object, 2),
            parent ? key_of(object, 3) : PageKey{},
            object % 4 * kPage,
            static_cast<uint64_t>(object) * 7,
            flags,
            tokens,
            static_cast<uint8_t>(object % 3)};
  }
  void add(int object, int32_t tier) {
    const Seen page = page_of(object, tier);
    TierPageName name;
    name.group = std::get<1>(page);
    name.key = std::get<2>(page);
    if (object % 4 > 0) name.parent = &std::get<3>(page);
    name.position = std::get<4>(page);
    name.session = std::get<5>(page);
    name.salted = object % 2 == 1;
    name.tokens = std::get<7>(page);
    name.context = contexts_[static_cast<size_t>(object % 3)].get();
    pages_.add(key_of(object, 1), tier, name);
    if (capacity_ == 0 || model_.use(object, tier)) return;
    if (static_cast<int64_t>(model_.used.size()) == capacity_) model_.used.erase(model_.used.begin());
    model_.used.push_back({object, {tier}});
  }
  void check() {
    std::multiset<Seen> expected;
    for (const auto& [object, tiers] : model_.used) {
      for (const int32_t tier : tiers) expected.insert(page_of(object, tier));
    }
    EXPECT_EQ(pages_.size(), static_cast<int64_t>(model_.used.size()));
    reader_.read(ring_);
    EXPECT_TRUE(reader_.pages() == expected);
    EventList list;
    pages_.list_pages(&list);
    ASSERT_EQ(list.events.size(), expected.size());
    std::multiset<Seen> listed;
    for (size_t i = 0; i < list.events.size(); ++i) {
      EXPECT_EQ(list.events[i].kind, KVC_EVENT_STORED);
      if (i > 0 && list.events[i - 1].tier == list.events[i].tier) {
        EXPECT_LE(list.events[i - 1].position, list.events[i].position);  // parents come first
      } else if (i > 0) {
        EXPECT_LT(list.events[i - 1].tier, list.events[i].tier);
      }
      listed.insert(seen(list.events[i], std::span(list.tokens).subspan(i * kPage, kPage), list.contexts[i].get()));
    }
    EXPECT_TRUE(listed == expected);
  }

  std::mt19937_64 random_;
  const int64_t capacity_;
  std::vector<ContextRef> contexts_;
  EventRing ring_{100, kPage};
  TierPages pages_;
  Model model_;
  Reader reader_;
};

TEST(TierPages, RandomChangesAgainstAPlainList) {
  for (const int64_t capacity : {0, 1, 2, 5, 16, 100}) {
    Walk walk(static_cast<uint64_t>(capacity), capacity);
    for (int i = 0; i < 3000 && !testing::Test::HasFailure(); ++i) walk.step();
  }
}

// Contexts are released with their pages.
TEST(TierPages, ReleasesItsContexts) {
  static_assert(TierPages::kMaxTiers == 8);
  EventRing ring(1, kPage);
  const std::vector<int32_t> tokens(kPage);
  const ContextRef context(new PrefixContext({1}, {}));
  {
    TierPages pages(2, &ring);
    for (int object = 0; object < 5; ++object) {
      TierPageName name;
      name.key = key_of(object, 2);
      name.context = context.get();
      name.tokens = tokens;
      pages.add(key_of(object, 1), 7, name);
    }
    EXPECT_EQ(pages.size(), 2);
  }  // a leak is reported by the address sanitizer
  EXPECT_GT(TierPages::bytes_needed(2, kPage), TierPages::bytes_needed(1, kPage));
  EXPECT_EQ(TierPages::bytes_needed(0, kPage), 0);
}

}  // namespace
}  // namespace kvc
