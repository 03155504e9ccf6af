// Values that are not what was stored. Each is a miss, and what is damaged is deleted.
#include "redis_server.h"

namespace kvt {
namespace {

constexpr size_t kDamagedBytes = 1000;

class RedisDamage : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(tier.store(1, payload), KVC_TIER_OK);
    value = server.run({"GET", key_text(1)});
    ASSERT_EQ(value.size(), kDamagedBytes + 128);
  }
  // Puts a value as another client does, and loads the object.
  int32_t load_of(const Bytes &other) {
    server.run({"SET", key_text(1), other});
    loaded.assign(kDamagedBytes, 'x');
    return tier.load(1, &loaded);
  }
  bool deleted() { return server.run({"EXISTS", key_text(1)}) == "0"; }

  RedisServer server;
  RedisConfig config{server.address()};
  TierDriver tier{open_redis(config)};
  const Bytes payload = payload_of(1, 0, kDamagedBytes);
  Bytes value, loaded;
};

TEST_F(RedisDamage, EveryByteOfTheHeader) {
  for (size_t at = 0; at < 128; ++at) {
    for (const char flip : {'\x01', '\x80'}) {
      Bytes other = value;
      other[at] = static_cast<char>(other[at] ^ flip);
      EXPECT_EQ(load_of(other), KVC_TIER_MISS) << at;
      EXPECT_TRUE(deleted()) << at;
    }
  }
  EXPECT_EQ(tier.stats().damaged, 256);
  EXPECT_EQ(load_of(value), KVC_TIER_OK);
  EXPECT_TRUE(loaded == payload);
}

TEST_F(RedisDamage, BitsOfThePayload) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    Bytes other = value;
    other[128 + random() % kDamagedBytes] ^= static_cast<char>(1 << random() % 8);
    EXPECT_EQ(load_of(other), KVC_TIER_MISS);
    EXPECT_TRUE(deleted());
  }
}

TEST_F(RedisDamage, EveryLength) {
  for (size_t bytes = 0; bytes < value.size(); bytes += bytes < 140 ? 1 : 97) {
    EXPECT_EQ(load_of(value.substr(0, bytes)), KVC_TIER_MISS) << bytes;
    EXPECT_TRUE(bytes == 0 || deleted()) << bytes;
  }
  EXPECT_EQ(load_of(value + "x"), KVC_TIER_MISS);
  EXPECT_TRUE(deleted());
  EXPECT_EQ(load_of(value + value), KVC_TIER_MISS);
  EXPECT_TRUE(deleted());
  EXPECT_EQ(load_of("12345"), KVC_TIER_MISS);
  server.run({"SET", key_text(2), "short"});
  EXPECT_FALSE(tier.has(2));  // too short for any object
}

TEST_F(RedisDamage, ObjectOfAnotherKeyOrSize) {
  ASSERT_EQ(tier.store(2, payload_of(2, 0, kDamagedBytes)), KVC_TIER_OK);
  EXPECT_EQ(load_of(server.run({"GET", key_text(2)})), KVC_TIER_MISS);
  EXPECT_TRUE(deleted());
  // An object that another engine has stored with another size is not damaged.
  ASSERT_EQ(tier.store(1, payload_of(1, 1, 2 * kDamagedBytes)), KVC_TIER_OK);
  loaded.assign(kDamagedBytes, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_MISS);
  EXPECT_FALSE(deleted());
}

TEST_F(RedisDamage, OtherTypesOfKeys) {
  server.run({"DEL", key_text(1)});
  server.run({"LPUSH", key_text(1), "a"});
  loaded.assign(kDamagedBytes, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_MISS);
  EXPECT_EQ(server.run({"LLEN", key_text(1)}), "1");  // another program's list stays
  server.run({"LPUSH", key_text(2), "a"});
  EXPECT_FALSE(tier.has(2));
}

// What was damaged is stored again.
TEST_F(RedisDamage, IsRepaired) {
  Bytes other = value;
  other.back() ^= 1;
  EXPECT_EQ(load_of(other), KVC_TIER_MISS);
  EXPECT_FALSE(tier.has(1));
  ASSERT_EQ(tier.store(1, payload), KVC_TIER_OK);
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
  EXPECT_TRUE(loaded == payload);
}

}  // namespace
}  // namespace kvt
