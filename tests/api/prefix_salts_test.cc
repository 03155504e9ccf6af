// A million lookups with 64 salts, while prefixes are published, dropped and evicted. A prefix is never found under
// another salt than its own.
#include <random>
#include <unordered_set>

#include "prefix_fixture.h"

namespace kvt {
namespace {

constexpr int64_t kPage = 4;
constexpr uint64_t kSalts = 64;
#if defined(NDEBUG)
constexpr int kLookups = 1000;  // after each of 1,000 publishes
#else
constexpr int kLookups = 10;  // a debug build of the library checks its invariants after every call
#endif

struct Key {
  Tokens tokens;
  uint64_t salt = 0;
  int64_t salt_begin = 0;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  uint64_t salt_at(int64_t position) const { return (position / kPage + 1) * kPage > salt_begin ? salt : 0; }
  kvc_prefix_query query() const { return Prefix::query(tokens, salt, salt_begin); }
  // Calls visit(n, hash) for the first n tokens and their salts, n = 1, 2, ..., until it returns false.
  template <class Visit>
  void for_each_prefix(Visit visit) const {
    uint64_t hash = 0x243F6A8885A308D3u;
    for (int64_t i = 0; i < length(); i++) {
      for (const uint64_t part : {static_cast<uint64_t>(tokens[static_cast<size_t>(i)]), salt_at(i)}) {
        hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
      }
      if (!visit(i + 1, hash)) return;
    }
  }
};

class Tenants {
 public:
  explicit Tenants(int64_t pages) : prefix_(pages) {}

  // There are few tokens and few lengths, so that most tenants publish and look up the same tokens.
  Key draw() {
    Key key;
    key.tokens.resize(1 + random_() % 20);
    for (int32_t &token : key.tokens) token = static_cast<int32_t>(random_() % 2);
    key.salt = random_() % kSalts;
    key.salt_begin = static_cast<int64_t>(random_() % 3) * kPage;
    return key;
  }
  void publish(const Key &key) {
    prefix_.remember(key.query());
    key.for_each_prefix([&](int64_t, uint64_t hash) {
      published_.insert(hash);
      return true;
    });
  }
  // How many tokens were published with this salt.
  int64_t longest(const Key &key) const {
    int64_t longest = 0;
    key.for_each_prefix([&](int64_t n, uint64_t hash) {
      if (published_.count(hash) == 0) return false;
      longest = n;
      return true;
    });
    return longest;
  }
  // Returns how many tokens are found. That is never more than `longest`. If `evicts`, it may be fewer.
  void look_up(const Key &key, bool evicts) {
    const int64_t found = prefix_.found(key.query()), most = longest(key);
    if (evicts ? found > most : found != most) {
      ADD_FAILURE() << "salt " << key.salt << " from " << key.salt_begin << ": found " << found << " of " << most;
    }
    found_ += found > 0;
  }
  int64_t found() const { return found_; }
  Prefix &prefix() { return prefix_; }

 private:
  Prefix prefix_;
  std::mt19937_64 random_{1};
  std::unordered_set<uint64_t> published_;
  int64_t found_ = 0;
};

TEST(PrefixSalts, AMillionLookupsOver64SaltsFindNothingOfAnother) {
  Tenants tenants(12000);
  for (int i = 0; i < 1000 && !testing::Test::HasFailure(); i++) {
    tenants.publish(tenants.draw());
    for (int lookup = 0; lookup < kLookups; lookup++) tenants.look_up(tenants.draw(), false);
  }
  EXPECT_GT(tenants.found(), 100 * kLookups);
  EXPECT_EQ(tenants.prefix().stats().pages_evicted, 0);
}

TEST(PrefixSalts, EvictionMovesNothingToAnotherSalt) {
  Tenants tenants(100);
  for (int i = 0; i < 2000 && !testing::Test::HasFailure(); i++) {
    tenants.publish(tenants.draw());
    for (int lookup = 0; lookup < 50; lookup++) tenants.look_up(tenants.draw(), true);
  }
  EXPECT_GT(tenants.found(), 1000);
  EXPECT_GT(tenants.prefix().stats().pages_evicted, 1000);
}

}  // namespace
}  // namespace kvt
