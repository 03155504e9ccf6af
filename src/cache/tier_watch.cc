#include "cache/tier_watch.h"

#include <bit>
#include <iterator>

namespace kvc {

static_assert(TierWorker::kMaxTiers <= TierPages::kMaxTiers);

PageKey TierWatch::key_of(const kvc_tier_key& object) noexcept { return std::bit_cast<PageKey>(object); }

bool TierWatch::has(const kvc_tier& table, const kvc_tier_key& object) noexcept {
  kvc_tier_found found = {};
  table.lookup(table.self, 1, &object, &found);
  return found.result == KVC_TIER_HIT;
}

void TierWatch::add(int32_t tier, const TierPage& page) {
  const int64_t page_size = core_.geometry.page_size, position = page.block * page_size;
  TierPageName name;
  name.key = page.page_key;
  if (page.block > 0) name.parent = &page.parent_key;
  name.group = page.group;
  name.position = position;
  name.session = page.terms->session;
  name.salted = position + page_size > page.terms->salt_begin;
  name.context = page.terms->context.get();
  name.tokens = std::span(*page.tokens)
                    .subspan(static_cast<size_t>(position - page.tokens_begin), static_cast<size_t>(page_size));
  pages().add(key_of(page.key), tier, name);
}

void TierWatch::changed(int32_t tier, const TierPage& page, bool has) {
  core_.mutex.assert_held();
  const kvc_tier& table = worker_.tier(tier).table;
  if (table.removed != nullptr) has = TierWatch::has(table, page.key);
  if (has) {
    add(tier, page);
  } else {
    pages().remove(key_of(page.key), tier);
  }
}

void TierWatch::take_removals() {
  core_.mutex.assert_held();
  if (worker_.in_child()) return;
  for (int32_t tier = 0; tier < worker_.num_tiers(); ++tier) {
    const kvc_tier& table = worker_.tier(tier).table;
    kvc_tier_key keys[64];
    int64_t count = table.removed == nullptr ? 0 : std::ssize(keys);
    while (count == std::ssize(keys) || count < 0) {
      count = table.removed(table.self, keys, std::ssize(keys));
      for (int64_t i = 0; i < count; ++i) {
        if (!has(table, keys[i])) pages().remove(key_of(keys[i]), tier);
      }
      if (count < 0) {
        pages().keep_if(tier, [&](const PageKey& object) { return has(table, std::bit_cast<kvc_tier_key>(object)); });
      }
    }
  }
}

}  // namespace kvc
