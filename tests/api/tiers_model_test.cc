// Random calls over a host tier and a folder, both far too small: publishes, loads, drops, suspends, resumes and forks
// of 64 tenants, each with a salt, an adapter or an image of its own. Whatever is found has the contents of its own
// tenant's tokens, and nothing leaks.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <set>

#include "tiers_fixture.h"

namespace kvt {
namespace {

constexpr uint64_t kSalts = 64;
constexpr int64_t kSmallHostBytes = 40 * 4096, kDiskBytes = 100 * 4096;

int64_t operations() {
  const char *text = std::getenv("KVC_TIERS_OPERATIONS");
  return text != nullptr ? std::atoll(text) : 4000;
}

TieredSpec spec_of() {
  TieredSpec spec;
  spec.groups = {{KVC_ROW_KV, 0}, {KVC_ROW_KV, 6}, {KVC_ROW_STATE, 0}};
  spec.pages = 48;
  spec.sequences = 12;
  return spec;
}

class ModelledCache {
 public:
  // store: what the folder stores.
  ModelledCache(uint64_t seed, int32_t store) : random(seed) {
    EXPECT_EQ(engine.add_host(kSmallHostBytes), KVC_OK);
    EXPECT_EQ(engine.add(folder, kDiskBytes, KVC_TIER_SYNC_NONE, store), KVC_OK);
  }

  void step() {
    switch (random() % 12) {
      case 0:
      case 1:
      case 2:
        return attach();
      case 3:
      case 4:
        return load();
      case 5:
        return drop();
      case 6:
        return suspend();
      case 7:
        return resume();
      case 8:
        return fork();
      case 9:
        return remove_some();
      default:
        return grow();
    }
  }
  // The end: nothing is held.
  void end() {
    while (!live.empty()) remove(live.size() - 1);
    for (uint64_t salt = 0; salt < kSalts; salt++) drop_all(salt);
    for (int32_t g = 0; g < 2; g++) EXPECT_EQ(engine.available_pages(g), 48);
    EXPECT_EQ(engine.traffic().sequences_suspended, 0);
    EXPECT_EQ(engine.traffic().pages_loading, 0);
  }
  void check_counts() {
    EXPECT_EQ(kvc_cache_check_invariants(engine.cache(), nullptr), KVC_OK);
    int64_t suspended = 0;
    for (const Live &l : live) suspended += l.suspended;
    EXPECT_EQ(engine.traffic().sequences_suspended, suspended);
  }

  int64_t lookups = 0, loaded_tokens = 0, attached_tokens = 0, suspends = 0, resumes = 0, lost = 0;

 private:
  // A sequence. Its contents are those of its tokens and of its tenant.
  struct Live {
    kvc_seq seq = 0;
    uint64_t salt = 0;
    Tokens tokens;
    int64_t length = 0;
    bool suspended = false;
  };

  // A query of a tenant.
  static kvc_prefix_query query_of(uint64_t tenant, const Tokens &tokens) {
    static constexpr int64_t begin = 0, all = 1000;
    static std::array<std::array<uint8_t, 32>, kSalts> names;
    kvc_prefix_query query = Prefix::query(tokens, tenant % 3 == 0 ? tenant : 0);
    names[tenant][0] = static_cast<uint8_t>(1 + tenant);
    if (tenant % 3 == 1) query.adapter = names[tenant].data(), query.adapter_bytes = 1;
    if (tenant % 3 == 2) {
      query.num_media = 1;
      query.media_begins = &begin, query.media_tokens = &all, query.media_hashes = names[tenant].data();
    }
    return query;
  }
  // What is stored for the tokens of a tenant, so that nothing of one equals that of another.
  static Tokens contents(uint64_t salt, const Tokens &tokens) {
    Tokens own = tokens;
    for (int32_t &token : own) token += 100000 * static_cast<int32_t>(salt);
    return own;
  }
  // Prompts of a tenant share prefixes: each position has one of two tokens, and the first is the likelier one.
  Tokens prompt() {
    Tokens tokens;
    bool other = false;
    for (uint64_t i = 0, n = 1 + random() % 44; i < n; i++) {
      other = other || random() % 24 == 0;
      tokens.push_back(static_cast<int32_t>(2 * i + other + 1));
    }
    return tokens;
  }
  uint64_t salt() { return random() % 4 == 0 ? random() % kSalts : random() % 3; }
  // The most tokens of a prompt that any publish of the tenant had. Nothing longer can be found.
  int64_t known(uint64_t salt, const Tokens &tokens) {
    int64_t most = 0;
    for (const Tokens &p : published[salt]) {
      const auto end = std::mismatch(p.begin(), p.end(), tokens.begin(), tokens.end()).first;
      most = std::max<int64_t>(most, end - p.begin());
    }
    return most;
  }
  kvc_prefix_hit match(uint64_t salt, const Tokens &tokens) {
    const kvc_prefix_query query = query_of(salt, tokens);
    kvc_prefix_hit hit;
    kvc_prefix_hit_init(&hit);
    EXPECT_EQ(kvc_prefix_match(engine.cache(), &query, &hit, nullptr), KVC_OK);
    EXPECT_LE(hit.tokens, known(salt, tokens));
    EXPECT_LE(hit.load_tokens, known(salt, tokens));
    EXPECT_EQ(hit.num_tiers, 2);
    EXPECT_EQ(hit.load_tokens, hit.tokens + hit.tier_tokens[0] + hit.tier_tokens[1]);  // no time is measured
    lookups += static_cast<int64_t>(tokens.size()) / 4 * 3;
    return hit;
  }
  bool fits(kvc_seq seq, int32_t tokens) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq, batch.append_lengths = &tokens, batch.num_sequences = 1;
    return kvc_cache_can_fit(engine.cache(), &batch, nullptr) == KVC_OK;
  }
  void check(const Live &l) {
    if (fits(l.seq, 1)) engine.check(l.seq, contents(l.salt, l.tokens), l.length);  // it takes a step
  }
  void compute(Live &l, int64_t end) {
    if (end == l.length || !fits(l.seq, static_cast<int32_t>(end - l.length))) return;
    engine.compute(l.seq, contents(l.salt, l.tokens), l.length, end);
    l.length = end;
  }
  void publish(const Live &l) {
    if (l.length == 0) return;
    kvc_prefix_query query = query_of(l.salt, l.tokens);
    query.num_tokens = l.length;
    EXPECT_EQ(kvc_prefix_publish(engine.cache(), l.seq, &query, nullptr, nullptr, nullptr), KVC_OK);
    published[l.salt].insert(Tokens(l.tokens.begin(), l.tokens.begin() + l.length));
  }
  void attach() {
    if (live.size() >= 8) return remove(random() % live.size());
    Live l;
    l.salt = salt();
    l.tokens = prompt();
    const kvc_prefix_hit expected = match(l.salt, l.tokens);
    const kvc_prefix_query query = query_of(l.salt, l.tokens);
    kvc_prefix_hit hit;
    kvc_prefix_hit_init(&hit);
    const kvc_status status = kvc_prefix_attach(engine.cache(), &query, nullptr, &hit, &l.seq, nullptr);
    if (status == KVC_ERROR_OUT_OF_PAGES) return;
    ASSERT_EQ(status, KVC_OK);
    EXPECT_EQ(hit.tokens, expected.tokens);
    l.length = hit.tokens;
    attached_tokens += hit.tokens;
    check(l);
    compute(l, static_cast<int64_t>(l.tokens.size()));
    publish(l);
    live.push_back(l);
  }
  void cancel(kvc_job job) { EXPECT_EQ(kvc_job_cancel(engine.cache(), job, nullptr), KVC_OK); }
  void load() {
    const uint64_t tenant = salt();
    const Tokens tokens = prompt();
    const kvc_prefix_query query = query_of(tenant, tokens);
    kvc_prefix_hit hit;
    kvc_prefix_hit_init(&hit);
    const int64_t failed = engine.traffic().pages_not_loaded;
    kvc_job job = 0;
    const kvc_status status = kvc_prefix_load(engine.cache(), &query, nullptr, &hit, &job, nullptr);
    if (status == KVC_ERROR_OUT_OF_PAGES) return;
    ASSERT_EQ(status, KVC_OK);
    if (job == 0) return;
    const bool cancels = random() % 8 == 0;
    if (cancels) cancel(job);
    const int64_t tokens_loaded = engine.wait(job);
    EXPECT_EQ(tokens_loaded % 4, 0);
    EXPECT_LE(tokens_loaded, known(tenant, tokens));
    loaded_tokens += tokens_loaded;
    const kvc_prefix_hit after = match(tenant, tokens);
    if (!cancels && engine.traffic().pages_not_loaded == failed) {
      EXPECT_GE(after.tokens, hit.load_tokens);
    }
  }
  void drop_all(uint64_t tenant) {
    const kvc_prefix_query query = query_of(tenant, {});
    EXPECT_EQ(kvc_prefix_drop(engine.cache(), &query, nullptr, nullptr), KVC_OK);
    EXPECT_EQ(match(tenant, count_to(40)).tokens, 0);
  }
  void drop() { drop_all(salt()); }
  Live *some(bool suspended) {
    for (size_t tries = 0; tries < 4 && !live.empty(); tries++) {
      Live &l = live[random() % live.size()];
      if (l.suspended == suspended) return &l;
    }
    return nullptr;
  }
  void suspend() {
    Live *l = some(false);
    if (l == nullptr) return;
    kvc_job job = 0;
    ASSERT_EQ(kvc_seq_suspend(engine.cache(), l->seq, &job, nullptr), KVC_OK);
    if (random() % 8 == 0) cancel(job);
    const kvc_status status = engine.end(job);
    ASSERT_TRUE(status == KVC_OK || status == KVC_ERROR_CANCELLED || status == KVC_ERROR_IO) << status;
    l->suspended = status == KVC_OK;
    suspends += l->suspended;
    if (!l->suspended) check(*l);
  }
  void resume() {
    Live *l = some(true);
    if (l == nullptr) return;
    kvc_job job = 0;
    const kvc_status begun = kvc_seq_resume(engine.cache(), l->seq, &job, nullptr);
    if (begun == KVC_ERROR_OUT_OF_PAGES) return;
    ASSERT_EQ(begun, KVC_OK);
    if (random() % 8 == 0) cancel(job);
    const kvc_status status = engine.end(job);
    if (status == KVC_ERROR_IO) {  // the folder has evicted a page
      ++lost;
      return remove(static_cast<size_t>(l - live.data()));
    }
    if (status == KVC_ERROR_CANCELLED) return;
    ASSERT_EQ(status, KVC_OK);
    l->suspended = false;
    ++resumes;
    check(*l);
  }
  void fork() {
    Live *l = some(false);
    if (l == nullptr || live.size() >= 8) return;
    Live child = *l;
    const kvc_status status = kvc_seq_fork(engine.cache(), 1, &l->seq, nullptr, &child.seq, nullptr, nullptr);
    if (status == KVC_ERROR_OUT_OF_PAGES) return;
    ASSERT_EQ(status, KVC_OK);
    child.tokens.resize(static_cast<size_t>(child.length));
    const Tokens rest = prompt();
    for (const int32_t token : rest) child.tokens.push_back(token + 500);
    child.tokens.resize(std::min<size_t>(child.tokens.size(), 60));
    live.push_back(child);
  }
  void grow() {
    Live *l = some(false);
    if (l == nullptr) return;
    const auto most = static_cast<int64_t>(l->tokens.size());
    compute(*l, std::min<int64_t>(most, l->length + 1 + static_cast<int64_t>(random() % 8)));
    check(*l);
    if (random() % 2 == 0) publish(*l);
  }
  void remove(size_t index) {
    engine.remove(live[index].seq);
    live.erase(live.begin() + static_cast<ptrdiff_t>(index));
  }
  void remove_some() {
    if (!live.empty()) remove(random() % live.size());
  }

  std::mt19937_64 random;
  const Folder folder;
  TieredEngine engine{spec_of()};
  std::vector<Live> live;
  std::set<Tokens> published[kSalts];
};

class TiersModel : public ::testing::TestWithParam<int32_t> {};

TEST_P(TiersModel, RandomCallsFindOnlyWhatWasStored) {
  ModelledCache world(1, GetParam());
  for (int64_t i = 0; i < operations() && !::testing::Test::HasFailure(); i++) {
    world.step();
    if (i % 20 == 0) world.check_counts();
  }
  world.end();
  // The calls reached what they are about.
  EXPECT_GT(world.loaded_tokens, operations() / 100);
  EXPECT_GT(world.attached_tokens, operations() / 10);
  EXPECT_GT(world.suspends, operations() / 100);
  EXPECT_GT(world.resumes, operations() / 100);
  RecordProperty("lookups", std::to_string(world.lookups));
  RecordProperty("lost", std::to_string(world.lost));
}

INSTANTIATE_TEST_SUITE_P(Policies, TiersModel, ::testing::Values(KVC_TIER_STORE_PUBLISHED, KVC_TIER_STORE_EVICTED));

}  // namespace
}  // namespace kvt
