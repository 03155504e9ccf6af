// A cluster of three servers: where objects go, slots that move, a node that dies.
#include "redis_cluster.h"

#include <map>

namespace kvt {
namespace {

constexpr uint64_t kObjects = 60;

TEST_F(RedisCluster, ObjectsGoToTheirNodes) {
  const RedisConfig config(nodes[0]->address());  // one node names the others
  TierDriver tier(open_redis(config));
  std::map<size_t, int> counts;
  for (uint64_t i = 0; i < kObjects; ++i) {
    ASSERT_EQ(tier.store(i, payload_of(i, 0, kBytes)), KVC_TIER_OK) << i;
    ++counts[node_of(i)];
  }
  EXPECT_EQ(counts.size(), 3u);
  for (size_t n = 0; n < 3; ++n) EXPECT_EQ(nodes[n]->run({"DBSIZE"}), std::to_string(counts[n]));
  for (uint64_t i = 0; i < kObjects; ++i) expect_loads(tier, i);
  // Another process, which begins at another node with a search of many keys.
  const RedisConfig second(nodes[2]->address());
  TierDriver other(open_redis(second));
  std::vector<kvc_tier_key> keys;
  for (uint64_t i = 0; i < 2 * kObjects; ++i) keys.push_back(key_of(i));
  std::vector<kvc_tier_found> found(keys.size());
  other.table().lookup(other.table().self, int64_t(keys.size()), keys.data(), found.data());
  for (uint64_t i = 0; i < 2 * kObjects; ++i) EXPECT_EQ(other.has(i), i < kObjects) << i;
  for (uint64_t i = 0; i < kObjects; ++i) EXPECT_EQ(other.remove(i), KVC_TIER_OK);
  for (size_t n = 0; n < 3; ++n) EXPECT_EQ(nodes[n]->run({"DBSIZE"}), "0");
}

// While a slot moves its node answers ASK for keys that it no longer has, and MOVED when all have moved.
TEST_F(RedisCluster, SlotsMove) {
  const RedisConfig config(nodes[0]->address());
  TierDriver tier(open_redis(config));
  for (uint64_t i = 0; i < kObjects; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, kBytes)), KVC_TIER_OK);
  const size_t from = node_of(7), to = (from + 1) % 3;
  const std::string moving = std::to_string(slot(7));
  ASSERT_EQ(nodes[to]->run({"CLUSTER", "SETSLOT", moving, "IMPORTING", ids[from]}), "OK");
  ASSERT_EQ(nodes[from]->run({"CLUSTER", "SETSLOT", moving, "MIGRATING", ids[to]}), "OK");
  expect_loads(tier, 7);  // not moved yet
  ASSERT_EQ(nodes[from]->run({"MIGRATE", "127.0.0.1", std::to_string(nodes[to]->port()), key_text(7), "0", "5000"}),
            "OK");
  expect_loads(tier, 7);  // by ASK
  ASSERT_EQ(tier.store(7, payload_of(7, 0, kBytes)), KVC_TIER_OK);
  ::usleep(150000);  // answers of lookups are kept for 100 ms
  EXPECT_TRUE(tier.has(7));
  for (const size_t n : {to, from, 3 - from - to}) {
    ASSERT_EQ(nodes[n]->run({"CLUSTER", "SETSLOT", moving, "NODE", ids[to]}), "OK");
  }
  for (uint64_t i = 0; i < kObjects; ++i) expect_loads(tier, i);
  ASSERT_EQ(tier.remove(7), KVC_TIER_OK);
  EXPECT_TRUE(becomes(tier, 7, false));
}

// Objects of a node that is dead are lost, and the others are found.
TEST_F(RedisCluster, NodeDies) {
  RedisConfig config(nodes[0]->address() + "," + nodes[1]->address());
  config.timeout_ms = 500;
  TierDriver tier(open_redis(config));
  for (uint64_t i = 0; i < kObjects; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, kBytes)), KVC_TIER_OK);
  std::vector<bool> alive;
  for (uint64_t i = 0; i < kObjects; ++i) alive.push_back(node_of(i) != 0);
  nodes[0]->kill();
  for (uint64_t i = 0; i < kObjects; ++i) {
    Bytes loaded(kBytes, 'x');
    EXPECT_EQ(tier.load(i, &loaded), alive[i] ? KVC_TIER_OK : KVC_TIER_FAILED) << i;
    EXPECT_TRUE(!alive[i] || loaded == payload_of(i, 0, kBytes));
    EXPECT_TRUE(becomes(tier, i, alive[i]));
  }
  // A new tier begins at the node that lives.
  TierDriver other(open_redis(config));
  for (uint64_t i = 0; i < kObjects; ++i) {
    if (alive[i]) expect_loads(other, i);
  }
}

}  // namespace
}  // namespace kvt
