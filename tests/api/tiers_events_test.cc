// Events of the pages in tiers: what a router is told when a tier gets and loses pages.
#include <algorithm>
#include <atomic>
#include <thread>

#include "told_tiers.h"

namespace kvt {
namespace {

// A text of up to 31 bytes as MessagePack.
std::string packed(const std::string &text) { return static_cast<char>(0xA0 + text.size()) + text; }
int64_t occurrences(const std::string &bytes, const std::string &part) {
  int64_t count = 0;
  for (size_t at = bytes.find(part); at != std::string::npos; at = bytes.find(part, at + 1)) ++count;
  return count;
}
bool on_host() { return test_device().device_type == kDLCPU; }

TEST(TiersEvents, SayWhatATierGetsAndLoses) {
  ToldTiers t;
  ASSERT_EQ(t.engine.add_host(3 * kObjectBytes), KVC_OK);
  t.serve(count_to(10), 5);
  std::vector<kvc_event> events = t.read(0);
  ASSERT_EQ(events.size(), 4u);
  for (size_t i = 0; i < 4; i++) {  // two pages in the pools, and then in the tier
    EXPECT_EQ(events[i].kind, KVC_EVENT_STORED);
    EXPECT_EQ(events[i].tier, i < 2 ? 0 : 1);
    EXPECT_EQ(events[i].position, static_cast<int64_t>(i % 2) * 4);
    EXPECT_EQ(events[i].flags, KVC_EVENT_SALTED | (i % 2 == 1 ? uint32_t{KVC_EVENT_HAS_PARENT} : 0u));
    EXPECT_EQ(std::memcmp(events[i].key, events[i % 2].key, 32), 0);
    EXPECT_EQ(std::memcmp(events[i].parent, events[i % 2].parent, 32), 0);
  }
  t.serve(count_to(8, 500));  // one page too many
  events = t.read(4);
  ASSERT_EQ(events.size(), 5u);
  const auto lost =
      std::find_if(events.begin(), events.end(), [](const auto &e) { return e.kind != KVC_EVENT_STORED; });
  ASSERT_NE(lost, events.end());
  EXPECT_EQ(lost->kind, KVC_EVENT_REMOVED);
  EXPECT_EQ(lost->tier, 1);
  EXPECT_EQ(std::memcmp(lost->key, t.read(0)[0].key, 32), 0);  // the page that was stored first
  EXPECT_EQ(t.in_tier(1), 3u);
}

TEST(TiersEvents, AreNotMadeByDefault) {
  ToldTiers t(told_spec(0));
  ASSERT_EQ(t.engine.add_host(3 * kObjectBytes), KVC_OK);
  t.serve(count_to(16));
  t.match(count_to(17));
  EXPECT_EQ(t.in_tier(1), 0u);
  EXPECT_EQ(t.read(0).size(), 4u);
  ASSERT_EQ(kvc_cache_clear(t.engine.cache(), nullptr), KVC_OK);
  EXPECT_EQ(t.read(4).at(0).kind, KVC_EVENT_CLEARED);
}

// The session of a tier's page is that of the publish, also if the pools store the page when they evict it.
TEST(TiersEvents, HaveTheSessionOfThePublish) {
  for (const int32_t store : {KVC_TIER_STORE_PUBLISHED, KVC_TIER_STORE_EVICTED}) {
    MemoryTier tier;
    ToldTiers t;
    ASSERT_EQ(t.engine.add(tier, store), KVC_OK);
    const Tokens tokens = count_to(8);
    kvc_prefix_query query = Prefix::query(tokens, 3, 4);  // the second page has a salt
    query.adapter = t.model.data(), query.adapter_bytes = 2;
    kvc_prefix_options options;
    kvc_prefix_options_init(&options);
    options.session = 77;
    kvc_seq seq = 0;
    ASSERT_EQ(kvc_seq_add(t.engine.cache(), 1, &seq, nullptr), KVC_OK);
    t.engine.compute(seq, tokens, 0, 8);
    ASSERT_EQ(kvc_prefix_publish(t.engine.cache(), seq, &query, &options, nullptr, nullptr), KVC_OK);
    t.engine.remove(seq);
    t.reader.remember(query);
    for (int32_t i = 1; store == KVC_TIER_STORE_EVICTED && i < 8; i++) t.serve(count_to(20, 1000 * i));
    t.engine.wait_stored();
    const std::vector<kvc_event> events = t.read(0);
    int pages = 0;
    for (const kvc_event &e : events) {
      if (e.tier == 0 || std::memcmp(e.key, events[e.position == 0 ? 0 : 1].key, 32) != 0) continue;
      EXPECT_EQ(e.session, 77u);
      EXPECT_EQ((e.flags & KVC_EVENT_SALTED) != 0, e.position == 4);
      ++pages;
    }
    EXPECT_EQ(pages, 2) << store;
    EXPECT_GT(t.in_tier(1), 1u);
    EXPECT_EQ(occurrences(t.message(), packed("77")), 4) << store;  // one page has a salt, so they are apart
  }
}

TEST(TiersEvents, MessagesNameTheMedium) {
  const Folder first, second;
  MemoryTier remote, named;
  remote.flags = KVC_TIER_REMOTE;
  ToldTiers t;
  ASSERT_EQ(t.engine.add_host(1 << 20), KVC_OK);
  ASSERT_EQ(t.engine.add_host(1 << 20), KVC_OK);
  ASSERT_EQ(t.engine.add(first), KVC_OK);
  ASSERT_EQ(t.engine.add(second), KVC_OK);
  ASSERT_EQ(t.engine.add(remote), KVC_OK);
  const kvc_tier table = named.table();
  kvc_tier_config config;
  kvc_tier_config_init(&config);
  config.tier = &table;
  config.medium = "Flash 7~";
  ASSERT_EQ(kvc_cache_add_tier(t.engine.cache(), &config, nullptr), KVC_OK);
  t.serve(count_to(8));
  for (int32_t tier = 1; tier <= 6; tier++) EXPECT_EQ(t.in_tier(tier), 2u) << tier;
  const std::string host = on_host() ? "HOST" : "CPU", message = t.message(), snapshot = t.message(true);
  for (const std::string &bytes : {message, snapshot}) {
    for (const std::string &medium : {on_host() ? std::string("CPU") : "GPU", host, host + "2", std::string("STORAGE"),
                                      std::string("STORAGE2"), std::string("STORAGE3"), std::string("Flash 7~")}) {
      const int64_t events = occurrences(bytes, packed("medium") + packed(medium));
      EXPECT_GE(events, 1) << medium;
      EXPECT_LE(events, medium.starts_with("STORAGE") ? 2 : 1) << medium;  // a disk ends stores in any order
    }
    EXPECT_EQ(occurrences(bytes, packed("REMOTE")), 1);
    EXPECT_EQ(occurrences(bytes, packed("LOCAL")) + 1, occurrences(bytes, packed("BlockStored")));
    EXPECT_LT(bytes.find(packed("STORAGE3")), bytes.find(packed("REMOTE")));
  }
  EXPECT_EQ(occurrences(snapshot, packed("AllBlocksCleared")), 1);
}

TEST(TiersEvents, AMediumIsATextThatNoOtherTierHas) {
  ToldTiers t;
  ASSERT_EQ(t.engine.add_host(1 << 20, false, nullptr, "12345678901234567890123456789012"), KVC_OK);
  const auto add = [&](const char *medium, const char *mention) {
    kvc_tier_config config;
    kvc_tier_config_init(&config);
    config.flags = KVC_TIER_HOST;
    config.capacity_bytes = 1 << 20;
    config.medium = medium;
    refused(t.engine.cache(), {KVC_ERROR_INVALID_ARGUMENT}, "kvc_cache_add_tier",
            [&](kvc_error *e) { return kvc_cache_add_tier(t.engine.cache(), &config, e); }, {mention});
  };
  add("", "printable");
  add("123456789012345678901234567890123", "1..32");
  add("a\tb", "printable");
  add("caf\xC3\xA9", "printable");
  add("12345678901234567890123456789012", "is taken");
  add(on_host() ? "CPU" : "GPU", "is taken");
  EXPECT_EQ(t.engine.traffic().num_tiers, 1);
}

TEST(TiersEvents, NeedEvents) {
  const auto create = [](int64_t events, int64_t tier_pages, const char *mention) {
    CacheSpec spec = Prefix::spec_of({GroupSpec{}}, 40);
    BuiltConfig built(spec);
    const std::vector<uint8_t> model(32);
    built.config.fingerprint = model.data();
    built.config.events_capacity = events;
    built.config.events_tier_pages = tier_pages;
    const ContextPtr context = make_context();
    kvc_cache *cache = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_cache_create(context.get(), &built.config, &cache, &error), KVC_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.message).find(mention), std::string::npos) << error.message;
  };
  create(0, 1, "events_tier_pages 1 without events_capacity");
  create(1, -1, "events_tier_pages -1 is outside");
  create(1, int64_t{1} << 31, "events_tier_pages 2147483648 is outside");
}

// A cleared event would end the pages of tiers too. So while a tier has pages, each page of the pools is told.
TEST(TiersEvents, AClearLeavesTheTiers) {
  TieredSpec spec = told_spec();
  spec.groups = {{KVC_ROW_KV, 0}, {KVC_ROW_KV, 6}, {KVC_ROW_STATE, 0}};
  ToldTiers t(spec);
  const kvc_prefix_query all = Prefix::query({});
  t.serve(count_to(16));
  ASSERT_EQ(kvc_prefix_drop(t.engine.cache(), &all, nullptr, nullptr), KVC_OK);
  t.reader.read();
  EXPECT_EQ(t.reader.clears(), 1);  // there is no tier yet
  ASSERT_EQ(t.engine.add_host(1 << 20), KVC_OK);
  t.serve(count_to(16));
  t.serve(count_to(22, 100), 9);
  const size_t stored = t.in_tier(1);
  EXPECT_GT(stored, 8u);
  ASSERT_EQ(kvc_cache_clear(t.engine.cache(), nullptr), KVC_OK);
  EXPECT_EQ(t.in_tier(1), stored);
  EXPECT_EQ(t.reader.pages().size(), stored);
  t.serve(count_to(16));
  EXPECT_GT(t.reader.pages().size(), 0u);
  ASSERT_EQ(kvc_prefix_drop(t.engine.cache(), &all, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(t.in_tier(1), stored);
  EXPECT_EQ(t.reader.pages().size(), stored);
  EXPECT_EQ(t.reader.clears(), 1);
}

// A folder has pages of an earlier process. They are told when a call finds them.
TEST(TiersEvents, PagesOfAnEarlierProcessAreToldWhenTheyAreFound) {
  const Folder folder;
  {
    ToldTiers earlier;
    ASSERT_EQ(earlier.engine.add(folder), KVC_OK);
    earlier.serve(count_to(20));
    earlier.serve(count_to(8, 300), 2);
  }
  ToldTiers t;
  ASSERT_EQ(t.engine.add(folder), KVC_OK);
  EXPECT_EQ(t.in_tier(1), 0u);
  t.reader.remember(Prefix::query(count_to(20)));
  t.match(count_to(14));
  EXPECT_EQ(t.in_tier(1), 3u);
  EXPECT_EQ(t.engine.load(count_to(20)), 20);
  EXPECT_EQ(t.in_tier(1), 5u);
  t.serve(count_to(8, 300), 2);  // a publish finds that the folder has them
  EXPECT_EQ(t.in_tier(1), 7u);
}

TEST(TiersEvents, ThePageThatWasFoundLeastRecentlyMakesRoom) {
  ToldTiers t(told_spec(4));
  ASSERT_EQ(t.engine.add_host(1 << 20), KVC_OK);
  t.serve(count_to(8));
  t.serve(count_to(8, 100));
  t.engine.forget_all();
  t.match(count_to(9));
  t.serve(count_to(4, 200));
  EXPECT_EQ(t.in_tier(1), 4u);
  uint64_t next = 0;
  const EventFollower::Pages pages = t.reader.snapshot(&next);
  const auto has = [&](int32_t token) {
    return std::count_if(pages.begin(), pages.end(),
                         [=](const auto &p) { return std::get<2>(p.first) == 1 && p.second.tokens[0] == token; });
  };
  EXPECT_EQ(has(1) + has(5) + has(104) + has(200), 4);
  EXPECT_EQ(has(100), 0);
}

TEST(TiersEvents, ATierThatDoesNotReportIsAHint) {
  MemoryTier tier;
  ToldTiers t;
  ASSERT_EQ(t.engine.add(tier), KVC_OK);
  t.serve(count_to(16));
  EXPECT_EQ(t.in_tier(1), 4u);
  tier.lose(0);
  t.engine.forget_all();
  EXPECT_EQ(t.in_tier(1), 4u);
  t.match(count_to(17));
  EXPECT_EQ(t.in_tier(1), 3u);
}

// The tier has a page when a load begins, and not when it is read.
TEST(TiersEvents, ALoadThatMissesIsTold) {
  MemoryTier tier;
  ToldTiers t;
  ASSERT_EQ(t.engine.add(tier), KVC_OK);
  t.serve(count_to(8));
  t.engine.forget_all();
  tier.fail_load = tier.loads;
  EXPECT_EQ(t.engine.load(count_to(8)), 0);
  EXPECT_EQ(t.in_tier(1), 1u);
  tier.fail_load = -1;
  t.match(count_to(9));
  EXPECT_EQ(t.in_tier(1), 2u);
}

// An object with other contents is removed from the tier.
TEST(TiersEvents, ADamagedObjectIsTold) {
  for (const bool reports : {false, true}) {
    MemoryTier tier;
    tier.reports = reports;
    ToldTiers t;
    ASSERT_EQ(t.engine.add(tier), KVC_OK);
    t.serve(count_to(4));
    t.engine.forget_all();
    tier.flip(0, 50);
    EXPECT_EQ(t.in_tier(1), 1u);
    EXPECT_EQ(t.engine.load(count_to(4)), 0);
    ASSERT_TRUE(tier.becomes_empty());
    for (int tries = 0; t.in_tier(1) > 0 && tries < 10000; tries++)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(t.in_tier(1), 0u);
  }
}

TEST(TiersEvents, ATierThatReportsIsExactAtEachRead) {
  MemoryTier tier;
  tier.reports = true;
  ToldTiers t;
  ASSERT_EQ(t.engine.add(tier), KVC_OK);
  t.serve(count_to(40));
  EXPECT_EQ(t.in_tier(1), 10u);
  tier.lose(3);
  EXPECT_EQ(t.in_tier(1), 9u);
  for (int i = 0; i < 3; i++) tier.lose(0);
  tier.forgets = true;  // there were too many: every page is looked up
  EXPECT_EQ(t.in_tier(1), 6u);
  t.engine.forget_all();
  t.serve(count_to(40));  // stores them again
  EXPECT_EQ(t.in_tier(1), 10u);
}

// A page was lost and stored again before the report was read.
TEST(TiersEvents, AnOldReportDoesNotEndAPage) {
  MemoryTier tier;
  tier.reports = true;
  ToldTiers t;
  ASSERT_EQ(t.engine.add(tier), KVC_OK);
  t.serve(count_to(4));
  EXPECT_EQ(t.in_tier(1), 1u);
  const auto objects = tier.objects;
  tier.lose(0);
  {
    std::lock_guard lock(tier.mutex);
    tier.objects = objects;
  }
  EXPECT_EQ(t.in_tier(1), 1u);
}

TEST(TiersEvents, ObjectsOfSuspendedSequencesAreNotTold) {
  ToldTiers t;
  ASSERT_EQ(t.engine.add_host(1 << 20), KVC_OK);
  kvc_seq seq = 0;
  ASSERT_EQ(kvc_seq_add(t.engine.cache(), 1, &seq, nullptr), KVC_OK);
  t.engine.compute(seq, count_to(20), 0, 20);
  kvc_job job = 0;
  ASSERT_EQ(kvc_seq_suspend(t.engine.cache(), seq, &job, nullptr), KVC_OK);
  ASSERT_EQ(t.engine.end(job), KVC_OK);
  EXPECT_EQ(t.read(0).size(), 0u);
  t.engine.remove(seq);
  EXPECT_EQ(t.read(0).size(), 0u);
}

// Threads read events and snapshots while tiers store and evict.
TEST(TiersEvents, ThreadsReadWhileTiersWork) {
  const Folder folder;
  ToldTiers t;
  ASSERT_EQ(t.engine.add_host(5 * kObjectBytes), KVC_OK);
  ASSERT_EQ(t.engine.add(folder, 9 * kObjectBytes, KVC_TIER_SYNC_NONE), KVC_OK);
  for (int32_t i = 0; i < 40; i++) t.reader.remember(Prefix::query(count_to(16, 100 * i)));
  std::atomic<bool> ends = false;
  std::thread reads([&] {
    while (!ends) t.reader.read();
  });
  std::thread snapshots([&] {
    uint64_t next = 0;
    while (!ends) t.message(true), t.read(next);
  });
  for (int32_t i = 0; i < 40; i++) t.engine.serve(count_to(16, 100 * i));
  t.engine.wait_stored();
  ends = true;
  reads.join();
  snapshots.join();
  EXPECT_EQ(t.in_tier(1), 5u);
  EXPECT_EQ(t.in_tier(2), 9u);
}

}  // namespace
}  // namespace kvt
