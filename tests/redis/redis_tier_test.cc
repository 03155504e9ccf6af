// The Redis tier as a table: each function, several tiers on one server, ways to connect.
#include <dlfcn.h>

#include <thread>

#include "redis_server.h"

namespace kvt {
namespace {

TEST(RedisTier, StoresAndLoads) {
  RedisServer server;
  const RedisConfig config(server.address());
  TierDriver tier(open_redis(config));
  EXPECT_STREQ(tier.table().name, "redis");
  for (const size_t bytes : {0, 1, 127, 65536, 3000001}) {
    const Bytes payload = payload_of(bytes, 0, bytes);
    EXPECT_EQ(tier.lookup(bytes).result, KVC_TIER_MISS);
    ASSERT_EQ(tier.store(bytes, payload), KVC_TIER_OK) << bytes;
    const kvc_tier_found found = tier.lookup(bytes);
    EXPECT_EQ(found.result, KVC_TIER_HIT);
    EXPECT_EQ(found.bytes, static_cast<int64_t>(bytes));
    Bytes loaded(bytes, 'x');
    ASSERT_EQ(tier.load(bytes, &loaded), KVC_TIER_OK) << bytes;
    EXPECT_TRUE(loaded == payload) << bytes;
    EXPECT_EQ(server.run({"STRLEN", key_text(bytes)}), std::to_string(bytes + 128));
  }
  const kvc_tier_stats stats = tier.stats();
  EXPECT_EQ(stats.loads, 5);
  EXPECT_EQ(stats.stores, 5);
  EXPECT_EQ(stats.loaded_bytes, 3065665);
  EXPECT_EQ(stats.written_bytes, 3065665);
  EXPECT_EQ(stats.open_items, 0);
  EXPECT_GT(stats.load_bytes_per_second, 0);
  EXPECT_GT(stats.load_latency_ns, 0);
  EXPECT_GT(stats.store_bytes_per_second, 0);
}

TEST(RedisTier, ReplacesAndRemoves) {
  RedisServer server;
  const RedisConfig config(server.address());
  TierDriver tier(open_redis(config));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, 5000)), KVC_TIER_OK);
  ASSERT_EQ(tier.store(1, payload_of(1, 1, 5000)), KVC_TIER_OK);
  Bytes loaded(5000, 'x');
  ASSERT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
  EXPECT_TRUE(loaded == payload_of(1, 1, 5000));
  for (const size_t bytes : {9000, 3000}) {  // a longer one, and a shorter one
    ASSERT_EQ(tier.store(1, payload_of(1, 2, bytes)), KVC_TIER_OK);
    EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_MISS);  // of the size that it had
    EXPECT_EQ(tier.lookup(1).bytes, static_cast<int64_t>(bytes));
    Bytes other(bytes, 'x');
    ASSERT_EQ(tier.load(1, &other), KVC_TIER_OK);
    EXPECT_TRUE(other == payload_of(1, 2, bytes));
  }
  EXPECT_EQ(tier.stats().damaged, 0);
  EXPECT_EQ(tier.remove(1), KVC_TIER_OK);
  EXPECT_FALSE(tier.has(1));
  EXPECT_EQ(tier.remove(1), KVC_TIER_MISS);
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_MISS);
  EXPECT_EQ(server.run({"DBSIZE"}), "0");
}

// A lookup of a key that is new to the tier begins a search. All keys of a batch are searched at once.
TEST(RedisTier, LookupsSearchTheServer) {
  RedisServer server;
  const RedisConfig config(server.address());
  constexpr int64_t kKeys = 3000;
  {
    TierDriver writer(open_redis(config));
    for (int64_t i = 0; i < kKeys; i += 3)
      ASSERT_EQ(writer.store(uint64_t(i), payload_of(1, 0, 100 + size_t(i))), KVC_TIER_OK);
  }
  TierDriver tier(open_redis(config));
  std::vector<kvc_tier_key> keys;
  for (int64_t i = 0; i < kKeys; ++i) keys.push_back(key_of(uint64_t(i)));
  std::vector<kvc_tier_found> found(keys.size());
  tier.table().lookup(tier.table().self, kKeys, keys.data(), found.data());
  for (const kvc_tier_found &f : found) EXPECT_EQ(f.result, KVC_TIER_PENDING);
  ASSERT_TRUE(tier.has(0));
  for (int64_t i = 0; i < kKeys; ++i) EXPECT_EQ(tier.lookup(uint64_t(i)).bytes, i % 3 == 0 ? 100 + i : 0) << i;
  EXPECT_GT(tier.stats().hits, 0);
  EXPECT_GE(tier.stats().lookups, 2 * kKeys);
}

// Two engines on one server find each other's objects, and see that they are gone.
TEST(RedisTier, IsShared) {
  RedisServer server;
  const RedisConfig config(server.address());
  TierDriver one(open_redis(config)), two(open_redis(config));
  EXPECT_FALSE(two.has(1));
  ASSERT_EQ(one.store(1, payload_of(1, 0, 100)), KVC_TIER_OK);
  EXPECT_TRUE(becomes(two, 1, true));
  Bytes loaded(100, 'x');
  EXPECT_EQ(two.load(1, &loaded), KVC_TIER_OK);
  EXPECT_TRUE(loaded == payload_of(1, 0, 100));
  ASSERT_EQ(one.store(1, payload_of(1, 1, 500)), KVC_TIER_OK);
  loaded.assign(500, 'x');
  EXPECT_EQ(two.load(1, &loaded), KVC_TIER_OK);  // before a lookup says so
  ASSERT_EQ(one.remove(1), KVC_TIER_OK);
  EXPECT_TRUE(becomes(two, 1, false));
  RedisConfig elsewhere(server.address());
  elsewhere.prefix = "other:";
  TierDriver three(open_redis(elsewhere));
  ASSERT_EQ(one.store(1, payload_of(1, 0, 100)), KVC_TIER_OK);
  EXPECT_FALSE(three.has(1));
  ASSERT_EQ(three.store(1, payload_of(1, 7, 10)), KVC_TIER_OK);
  EXPECT_EQ(server.run({"STRLEN", key_text(1, "other:")}), "138");
  EXPECT_EQ(server.run({"STRLEN", key_text(1)}), "228");
}

TEST(RedisTier, FullQueueIsRefusedWhole) {
  RedisServer server;
  RedisConfig config(server.address());
  config.max_items = 256;
  TierDriver tier(open_redis(config));
  const kvc_tier &t = tier.table();
  EXPECT_EQ(t.max_job_items, 256);
  std::vector<kvc_tier_item> items(257, kvc_tier_item{key_of(1), nullptr, 0, 0, 0});
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(t.store(t.self, 1, 257, items.data(), &error), KVC_TIER_FAILED);
  EXPECT_EQ(error.code, KVC_ERROR_BATCH_TOO_LARGE);
  EXPECT_EQ(t.store(t.self, 1, 200, items.data(), &error), KVC_TIER_OK);
  EXPECT_EQ(t.store(t.self, 2, 57, items.data(), &error), KVC_TIER_RETRY);
  EXPECT_EQ(t.store(t.self, 3, 56, items.data(), &error), KVC_TIER_OK);
  EXPECT_EQ(tier.wait(256).size(), 256u);
  EXPECT_EQ(tier.stats().open_items, 0);
  EXPECT_TRUE(tier.has(1));  // no store is left open
}

TEST(RedisTier, ManyThreadsAtOnce) {
  RedisServer server;
  const RedisConfig config(server.address());
  const kvc_tier table = open_redis(config);
  constexpr uint64_t kItems = 400;
  kvc_error error = KVC_ERROR_INIT;
  std::vector<Bytes> payloads;
  for (uint64_t i = 0; i < kItems; ++i) payloads.push_back(payload_of(i, 0, 1000 + 37 * i));
  std::vector<std::unique_ptr<Parts>> parts;
  for (uint64_t i = 0; i < kItems; ++i) parts.push_back(std::make_unique<Parts>(key_of(i), &payloads[i]));
  TierDriver tier(table);
  for (uint64_t i = 0; i < kItems; ++i) {
    ASSERT_EQ(table.store(table.self, i, 1, &parts[i]->item(), &error), KVC_TIER_OK);
  }
  for (const auto &done : tier.wait(kItems)) EXPECT_EQ(done.result, KVC_TIER_OK);
  std::vector<Bytes> loaded;
  std::vector<std::unique_ptr<Parts>> into;
  for (uint64_t i = 0; i < kItems; ++i) loaded.emplace_back(payloads[i].size(), 'x');
  for (uint64_t i = 0; i < kItems; ++i) {
    into.push_back(std::make_unique<Parts>(key_of(i), &loaded[i]));
    ASSERT_EQ(table.load(table.self, i, 1, &into[i]->item(), &error), KVC_TIER_OK);
  }
  for (const auto &done : tier.wait(kItems)) EXPECT_EQ(done.result, KVC_TIER_OK);
  EXPECT_TRUE(loaded == payloads);
}

TEST(RedisTier, ObjectsExpire) {
  RedisServer server;
  RedisConfig config(server.address());
  config.time_to_live_ms = 300;
  TierDriver tier(open_redis(config));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, 100)), KVC_TIER_OK);
  EXPECT_GT(std::stoi(server.run({"PTTL", key_text(1)})), 0);
  EXPECT_TRUE(becomes(tier, 1, false));
}

TEST(RedisTier, UsersDatabasesAndSockets) {
  RedisServer server;
  ASSERT_EQ(server.run({"ACL", "SETUSER", "engine", "on", ">secret", "~kv:*", "+@all"}), "OK");
  ASSERT_EQ(server.run({"CONFIG", "SET", "requirepass", "word"}), "OK");
  server.password = "word";
  kvc_tier none = {};
  kvc_error error = KVC_ERROR_INIT;
  RedisConfig config(server.address());
  EXPECT_EQ(kvc_redis_tier_open(&config, &none, &error), KVC_ERROR_IO);
  EXPECT_NE(std::string(error.message).find("NOAUTH"), std::string::npos) << error.message;
  config.password = "wrong";
  EXPECT_EQ(kvc_redis_tier_open(&config, &none, &error), KVC_ERROR_IO);
  EXPECT_NE(std::string(error.message).find("WRONGPASS"), std::string::npos) << error.message;
  EXPECT_EQ(none.self, nullptr);
  config.password = "word";
  config.database = 99;
  EXPECT_EQ(kvc_redis_tier_open(&config, &none, &error), KVC_ERROR_IO);
  EXPECT_NE(std::string(error.message).find("DB index is out of range"), std::string::npos) << error.message;
  config.database = 3;
  TierDriver third(open_redis(config));
  ASSERT_EQ(third.store(1, payload_of(1, 0, 100)), KVC_TIER_OK);
  EXPECT_NE(server.run({"INFO", "keyspace"}).find("db3:keys=1"), std::string::npos);
  RedisConfig by_socket(server.socket_path());
  by_socket.user = "engine", by_socket.password = "secret", by_socket.prefix = "kv:";
  TierDriver user(open_redis(by_socket));
  ASSERT_EQ(user.store(2, payload_of(2, 0, 100)), KVC_TIER_OK);
  by_socket.prefix = "forbidden:";
  TierDriver refused(open_redis(by_socket));
  EXPECT_EQ(refused.store(2, payload_of(2, 0, 100)), KVC_TIER_FAILED);
  EXPECT_EQ(refused.os_error(), EACCES);
  EXPECT_FALSE(refused.has(2));
}

TEST(RedisTier, IsAPlugIn) {
  RedisServer server;
  void *plugin = dlopen("libkvcache_redis.so.0", RTLD_NOW | RTLD_NOLOAD);  // the one that the test links
  ASSERT_NE(plugin, nullptr) << dlerror();
  const auto open = reinterpret_cast<kvc_tier_open_fn>(dlsym(plugin, "kvc_tier_open"));
  kvc_tier table;
  kvc_tier_init(&table);
  kvc_error error = KVC_ERROR_INIT;
  const std::string url = "redis://" + server.address() + "/2?prefix=a%3Ab&ttl_ms=60000&threads=2&max_items=7";
  ASSERT_EQ(open(KVC_TIER_VERSION, url.c_str(), &table, &error), KVC_OK) << error.message;
  TierDriver tier(table);
  EXPECT_EQ(table.max_job_items, 7);
  ASSERT_EQ(tier.store(1, payload_of(1, 0, 10)), KVC_TIER_OK);
  EXPECT_NE(server.run({"INFO", "keyspace"}).find("db2:keys=1,expires=1"), std::string::npos);
  EXPECT_EQ(open(KVC_TIER_VERSION + 1, url.c_str(), &table, &error), KVC_ERROR_UNSUPPORTED);
  const std::string by_socket = "unix://" + server.socket_path() + "?database=2&prefix=a:b";
  kvc_tier second = {};
  ASSERT_EQ(open(KVC_TIER_VERSION, by_socket.c_str(), &second, &error), KVC_OK) << error.message;
  TierDriver other(second);
  EXPECT_TRUE(other.has(1));
  dlclose(plugin);
}

TEST(RedisTier, ChildOfForkIsRefused) {
  RedisServer server;
  const RedisConfig config(server.address());
  TierDriver tier(open_redis(config));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, 100)), KVC_TIER_OK);
  const pid_t child = fork();
  if (child == 0) {
    const kvc_tier &t = tier.table();
    const kvc_tier_item item = {key_of(1), nullptr, 0, 0, 0};
    kvc_error error = KVC_ERROR_INIT;
    const bool refused =
        !tier.has(1) && t.remove(t.self, 1, 1, &item, &error) == KVC_TIER_FAILED && error.code == KVC_ERROR_UNSUPPORTED;
    tier.close();
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(tier.has(1));
  Bytes loaded(100, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
}

TEST(RedisTier, LeaksNoDescriptors) {
  RedisServer server;
  const RedisConfig config(server.address());
  const int64_t before = open_descriptors();
  for (int i = 0; i < 10; ++i) {
    TierDriver tier(open_redis(config));
    ASSERT_EQ(tier.store(1, payload_of(1, 0, 100)), KVC_TIER_OK);
    EXPECT_GT(open_descriptors(), before);
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace kvt
