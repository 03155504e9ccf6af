// Servers that are dead, restarted, paused, full, or cut off. Each time a load misses, fails, or has the right bytes;
// nothing hangs, and nothing is leaked.
#include <set>

#include "proxy.h"

namespace kvt {
namespace {

constexpr size_t kBytes = 20000;

// Puts objects 0 .. count-1 on a server, without the short timeouts of a test.
void put(const RedisServer &server, uint64_t count) {
  const RedisConfig config(server.address());
  TierDriver tier(open_redis(config));
  for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, kBytes)), KVC_TIER_OK);
}

// The tier works again when it has tried the server again.
void expect_recovery(TierDriver &tier) {
  for (int tries = 0; tries < 3000; ++tries) {
    if (tier.store(7, payload_of(7, 0, kBytes)) == KVC_TIER_OK) break;
    ::usleep(10000);
  }
  Bytes loaded(kBytes, 'x');
  for (int tries = 0; tries < 3000 && tier.load(7, &loaded) != KVC_TIER_OK; ++tries) ::usleep(10000);
  EXPECT_TRUE(loaded == payload_of(7, 0, kBytes)) << "errno " << tier.os_error();
}

TEST(RedisFault, ServerDiesAndRestarts) {
  RedisServer server;
  const RedisConfig config(server.address());
  TierDriver tier(open_redis(config));
  const int64_t descriptors = open_descriptors();
  ASSERT_EQ(tier.store(1, payload_of(1, 0, kBytes)), KVC_TIER_OK);
  Bytes loaded(kBytes, 'x');
  for (int round = 0; round < 3; ++round) {
    server.kill();
    EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_FAILED);
    EXPECT_EQ(tier.os_error(), ECONNREFUSED);
    EXPECT_EQ(tier.store(2, payload_of(2, 0, kBytes)), KVC_TIER_FAILED);
    EXPECT_EQ(tier.remove(1), KVC_TIER_FAILED);
    EXPECT_FALSE(tier.has(3));
    EXPECT_LE(open_descriptors(), descriptors + 8);  // at most one for each thread
    server.start();
    expect_recovery(tier);
    EXPECT_TRUE(becomes(tier, 1, false));  // the server has forgotten it
    EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_MISS);
  }
  EXPECT_EQ(tier.stats().last_os_error, ECONNREFUSED);
}

// The server closes idle connections. The next call connects again by itself.
TEST(RedisFault, IdleConnectionIsClosed) {
  RedisServer server;
  const RedisConfig config(server.address());
  TierDriver tier(open_redis(config));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, kBytes)), KVC_TIER_OK);
  for (int i = 0; i < 30; ++i) {
    ASSERT_NE(server.run({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}), "");
    Bytes loaded(kBytes, 'x');
    ASSERT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
    ASSERT_EQ(tier.store(1, payload_of(1, 0, kBytes)), KVC_TIER_OK);
    EXPECT_TRUE(becomes(tier, uint64_t(100 + i), false));
  }
  EXPECT_EQ(tier.stats().failed, 0);
}

TEST(RedisFault, NoServerAtOpen) {
  RedisServer server;
  server.kill();
  RedisConfig config(server.address());
  kvc_tier none = {};
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_redis_tier_open(&config, &none, &error), KVC_ERROR_IO);
  EXPECT_NE(std::string(error.message).find(server.address() + ": Connection refused"), std::string::npos)
      << error.message;
  config.flags = KVC_REDIS_LAZY;
  TierDriver tier(open_redis(config));
  EXPECT_FALSE(tier.has(1));
  Bytes loaded(kBytes, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_FAILED);
  server.start();
  expect_recovery(tier);
}

// The second of two servers is used when the first one is dead.
TEST(RedisFault, NextAddressIsUsed) {
  RedisServer first, second;
  const RedisConfig config(first.address() + "," + second.address());
  TierDriver tier(open_redis(config));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, kBytes)), KVC_TIER_OK);
  EXPECT_EQ(second.run({"DBSIZE"}), "0");
  first.kill();
  expect_recovery(tier);
  EXPECT_EQ(second.run({"DBSIZE"}), "1");
}

TEST(RedisFault, ServerIsPaused) {
  RedisServer server;
  RedisConfig config(server.address());
  config.timeout_ms = 200;
  config.threads = 2;
  config.flags = KVC_REDIS_LAZY;
  put(server, 2);
  TierDriver tier(open_redis(config));
  expect_recovery(tier);
  server.pause();
  Bytes loaded(kBytes, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_FAILED);
  EXPECT_EQ(tier.os_error(), ETIMEDOUT);
  EXPECT_EQ(tier.store(2, payload_of(2, 0, kBytes)), KVC_TIER_FAILED);
  EXPECT_FALSE(tier.has(3));
  kvc_tier none = {};
  kvc_error error = KVC_ERROR_INIT;
  config.flags = 0;
  EXPECT_EQ(kvc_redis_tier_open(&config, &none, &error), KVC_ERROR_IO);
  server.resume();
  expect_recovery(tier);
}

TEST(RedisFault, ServerSleeps) {
  RedisServer server;
  RedisConfig config(server.address());
  config.timeout_ms = 200;
  config.flags = KVC_REDIS_LAZY;
  put(server, 2);
  TierDriver tier(open_redis(config));
  expect_recovery(tier);
  std::thread sleeper([&] { server.run({"DEBUG", "SLEEP", "2"}); });
  int32_t result = KVC_TIER_OK;
  for (int tries = 0; tries < 100000 && result == KVC_TIER_OK; ++tries) {
    Bytes loaded(kBytes, 'x');
    result = tier.load(1, &loaded);
    EXPECT_TRUE(result != KVC_TIER_OK || loaded == payload_of(1, 0, kBytes));
  }
  EXPECT_EQ(result, KVC_TIER_FAILED);
  EXPECT_EQ(tier.os_error(), ETIMEDOUT);
  sleeper.join();
  expect_recovery(tier);
}

// Items that have not begun are cancelled; those that have begun end with the server's answer or by their deadline.
TEST(RedisFault, CancelWhileThePausedServerIsWaitedFor) {
  RedisServer server;
  RedisConfig config(server.address());
  config.timeout_ms = 20000;
  config.threads = 2;
  TierDriver tier(open_redis(config));
  const kvc_tier &t = tier.table();
  for (uint64_t i = 0; i < 20; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, kBytes)), KVC_TIER_OK);
  std::vector<Bytes> loaded(20, Bytes(kBytes, 'x'));
  std::vector<std::unique_ptr<Parts>> parts;
  std::vector<kvc_tier_item> items;
  for (uint64_t i = 0; i < 20; ++i) {
    parts.push_back(std::make_unique<Parts>(key_of(i), &loaded[i]));
    items.push_back(parts.back()->item());
  }
  server.pause();
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(t.load(t.self, 99, 20, items.data(), &error), KVC_TIER_OK);
  ::usleep(50000);
  t.cancel(t.self, 99);
  t.cancel(t.self, 12345);  // of no job
  ::usleep(50000);
  server.resume();  // it answers late, after the cancel
  std::map<int32_t, int> results;
  std::set<int64_t> indices;
  for (const auto &done : tier.wait(20)) {
    EXPECT_EQ(done.job, 99u);
    ++results[done.result];
    indices.insert(done.index);
    if (done.result == KVC_TIER_OK) {
      EXPECT_TRUE(loaded[size_t(done.index)] == payload_of(uint64_t(done.index), 0, kBytes));
    }
  }
  EXPECT_EQ(indices.size(), 20u);
  EXPECT_GE(results[KVC_TIER_CANCELLED], 18);  // each of two threads may have begun one
  EXPECT_EQ(results[KVC_TIER_OK], 20 - results[KVC_TIER_CANCELLED]);
  EXPECT_EQ(tier.stats().cancelled, results[KVC_TIER_CANCELLED]);
  EXPECT_EQ(tier.stats().open_items, 0);
  Bytes again(kBytes, 'x');
  EXPECT_EQ(tier.load(5, &again), KVC_TIER_OK);
  EXPECT_TRUE(again == payload_of(5, 0, kBytes));
}

// A reply that comes after its deadline is never taken for the reply of a later call.
TEST(RedisFault, LateReplies) {
  RedisServer server;
  Proxy proxy(server.port());
  RedisConfig config(proxy.address());
  config.timeout_ms = 100;
  config.threads = 1;
  config.flags = KVC_REDIS_LAZY;
  put(server, 8);
  TierDriver tier(open_redis(config));
  int failed = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    proxy.stall = i % 4 == 1;
    Bytes loaded(kBytes, 'x');
    const int32_t result = tier.load(i % 8, &loaded);
    failed += result == KVC_TIER_FAILED;
    EXPECT_TRUE(result == KVC_TIER_FAILED || (result == KVC_TIER_OK && loaded == payload_of(i % 8, 0, kBytes)));
  }
  EXPECT_GE(failed, 10);
  proxy.stall = false;
  expect_recovery(tier);
}

TEST(RedisFault, ServerIsFull) {
  RedisServer server({"--maxmemory", "3mb", "--maxmemory-policy", "noeviction"});
  const RedisConfig config(server.address());
  TierDriver tier(open_redis(config));
  uint64_t stored = 0;
  while (stored < 1000 && tier.store(stored, payload_of(stored, 0, kBytes)) == KVC_TIER_OK) ++stored;
  EXPECT_EQ(tier.os_error(), ENOSPC);
  EXPECT_GT(stored, 5u);
  EXPECT_LT(stored, 1000u);
  EXPECT_FALSE(tier.has(stored));
  for (uint64_t i = 0; i < stored; ++i) {
    Bytes loaded(kBytes, 'x');
    ASSERT_EQ(tier.load(i, &loaded), KVC_TIER_OK);
    EXPECT_TRUE(loaded == payload_of(i, 0, kBytes));
  }
  EXPECT_EQ(tier.remove(0), KVC_TIER_OK);
  server.run({"CONFIG", "SET", "maxmemory", "100mb"});
  EXPECT_EQ(tier.store(stored, payload_of(stored, 0, kBytes)), KVC_TIER_OK);
}

TEST(RedisFault, PasswordChanges) {
  RedisServer server;
  const RedisConfig config(server.address());
  TierDriver tier(open_redis(config));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, kBytes)), KVC_TIER_OK);
  server.run({"CONFIG", "SET", "requirepass", "word"});
  server.password = "word";
  server.run({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  Bytes loaded(kBytes, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_FAILED);
  EXPECT_EQ(tier.os_error(), EACCES);
  EXPECT_TRUE(becomes(tier, 1, false));
  server.run({"CONFIG", "SET", "requirepass", ""});
  expect_recovery(tier);
}

// The connection breaks after any number of bytes of a reply.
TEST(RedisFault, CutReplies) {
  RedisServer server;
  Proxy proxy(server.port());
  const RedisConfig config(proxy.address());
  TierDriver tier(open_redis(config));
  const int64_t descriptors = open_descriptors();
  ASSERT_EQ(tier.store(1, payload_of(1, 0, 300)), KVC_TIER_OK);
  int failed = 0;
  for (int64_t room = 1; room < 500; room += room < 60 ? 1 : 13) {
    proxy.room = room;
    Bytes loaded(300, 'x');
    const int32_t result = tier.load(1, &loaded);
    failed += result == KVC_TIER_FAILED;
    EXPECT_TRUE(result == KVC_TIER_FAILED || (result == KVC_TIER_OK && loaded == payload_of(1, 0, 300))) << room;
    proxy.room = -1;
    for (int tries = 0; tries < 1000 && tier.load(1, &loaded) != KVC_TIER_OK; ++tries) ::usleep(5000);
  }
  EXPECT_GT(failed, 20);
  EXPECT_LE(open_descriptors(), descriptors + 40);  // the proxy's, some of which it has not closed yet
}

// A byte of a reply changes on the way.
TEST(RedisFault, ChangedReplies) {
  RedisServer server;
  Proxy proxy(server.port());
  RedisConfig config(proxy.address());
  config.threads = 1;
  config.timeout_ms = 200;  // a changed length makes the tier wait for bytes that do not come
  config.flags = KVC_REDIS_LAZY;
  TierDriver tier(open_redis(config));
  const Bytes payload = payload_of(1, 0, 300);
  for (int64_t at = 0; at < 440; at += at < 10 ? 1 : 23) {
    for (int tries = 0; tries < 1000 && tier.store(1, payload) != KVC_TIER_OK; ++tries) ::usleep(5000);
    proxy.change = proxy.passed + at;
    Bytes loaded(300, 'x');
    const int32_t result = tier.load(1, &loaded);
    EXPECT_TRUE(result != KVC_TIER_OK || loaded == payload) << at;
    proxy.change = -1;
  }
}

// A server that sends a few bytes at a time is cut off at the deadline of the whole call.
TEST(RedisFault, TricklingReplies) {
  RedisServer server;
  Proxy proxy(server.port());
  RedisConfig config(proxy.address());
  config.timeout_ms = 300;
  config.flags = KVC_REDIS_LAZY;
  put(server, 2);
  TierDriver tier(open_redis(config));
  expect_recovery(tier);
  proxy.chunk = 10, proxy.delay_ms = 20;  // 40 s for the object
  const int64_t passed = proxy.passed;
  Bytes loaded(kBytes, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_FAILED);
  EXPECT_EQ(tier.os_error(), ETIMEDOUT);
  EXPECT_LT(proxy.passed - passed, int64_t{kBytes} / 2);
  proxy.chunk = 1 << 16, proxy.delay_ms = 0;
  expect_recovery(tier);
}

// Closing does not wait for longer than the call that runs.
TEST(RedisFault, CloseWhileTheServerIsPaused) {
  RedisServer server;
  RedisConfig config(server.address());
  config.timeout_ms = 1000;
  const int64_t descriptors = open_descriptors();
  TierDriver tier(open_redis(config));
  const kvc_tier &t = tier.table();
  std::vector<Bytes> payloads(100, payload_of(1, 0, kBytes));
  std::vector<std::unique_ptr<Parts>> parts;
  server.pause();
  kvc_error error = KVC_ERROR_INIT;
  for (uint64_t i = 0; i < 100; ++i) {
    parts.push_back(std::make_unique<Parts>(key_of(i), &payloads[i]));
    ASSERT_EQ(t.store(t.self, i, 1, &parts[i]->item(), &error), KVC_TIER_OK);
  }
  tier.close();
  EXPECT_EQ(open_descriptors(), descriptors);
  server.resume();
}

}  // namespace
}  // namespace kvt
