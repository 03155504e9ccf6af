// What a hit says about tiers, and which loads save time.
#include <array>
#include <random>

#include "tiers_fixture.h"

namespace kvt {
namespace {

using Group = TieredSpec::Group;

constexpr int64_t kTokens = 32, kBlocks = kTokens / 4;

// ---- A naive model --------------------------------------------------------------------------------------------------

// The objects of a prompt of kTokens tokens, as tier objects by group and block.
using Object = std::pair<std::string, std::vector<uint8_t>>;
using Objects = std::vector<std::array<Object, kBlocks>>;

Objects objects_of(const TieredSpec &spec) {
  MemoryTier tier;
  TieredEngine engine{spec};
  EXPECT_EQ(engine.add(tier), KVC_OK);
  std::vector<int64_t> ends;
  for (int64_t end = 4; end < kTokens; end += 4) ends.push_back(end);
  engine.serve(count_to(kTokens), 0, 0, ends);
  engine.wait_stored();
  Objects objects(spec.groups.size());
  for (const auto &[key, bytes] : tier.objects) {
    // The header has the number of the group in the layout, and the tokens of the block.
    const std::string text(bytes.begin(), bytes.end());
    const size_t group = static_cast<size_t>(text[text.find("group ") + 6] - '0');
    for (int32_t block = 0; block < kBlocks; block++) {
      const Tokens tokens = count_to(4, 4 * block + 1);
      const std::string wanted(reinterpret_cast<const char *>(tokens.data()), 16);
      if (text.find(wanted) != std::string::npos) objects[group][static_cast<size_t>(block)] = {key, bytes};
    }
  }
  for (const auto &group : objects) {
    for (const Object &object : group) EXPECT_FALSE(object.second.empty());
  }
  return objects;
}

struct Expected {
  int64_t load_tokens = 0, load_ns = 0;
  std::vector<int64_t> tier_tokens;
};

// Tiers with some of the objects, and what a load from them gives.
struct World {
  TieredSpec spec;
  Objects objects;
  std::vector<MemoryTier> tiers;
  std::vector<std::array<int, kBlocks>> tier_of;  // [groups, blocks]: the first tier that has the object; -1 = none

  // The first block that a query at position `tokens` needs in a group.
  int64_t first_needed(size_t group, int64_t tokens) const {
    const Group &g = spec.groups[group];
    if (g.row == KVC_ROW_STATE) return tokens / 4 - 1;
    return g.window == 0 ? 0 : std::max<int64_t>(0, tokens - g.window + 1) / 4;
  }
  // Whether the tiers have what `end` blocks need after `first` blocks, so that attach finds them, up to `most` tokens.
  bool serves(int64_t first, int64_t end, int64_t most) const {
    for (size_t g = 0; g < tier_of.size(); g++) {
      const int64_t begin = std::max(first, first_needed(g, 4 * end));
      for (int64_t b = begin; b < end; b++) {
        if (tier_of[g][static_cast<size_t>(b)] < 0) return false;
      }
      if (4 * end <= most) continue;
      if (spec.groups[g].row == KVC_ROW_STATE || std::max(first, first_needed(g, most)) < begin) return false;
    }
    return true;
  }
  int64_t ns(int64_t first, int64_t end) const {
    std::vector<int64_t> bytes(tiers.size());
    for (size_t g = 0; g < tier_of.size(); g++) {
      for (int64_t b = std::max(first, first_needed(g, 4 * end)); b < end; b++) {
        bytes[static_cast<size_t>(tier_of[g][static_cast<size_t>(b)])] +=
            static_cast<int64_t>(objects[g][static_cast<size_t>(b)].second.size());
      }
    }
    int64_t all = 0;
    for (size_t t = 0; t < tiers.size(); t++) {
      const double speed = static_cast<double>(tiers[t].bytes_per_second);
      if (speed > 0) all += static_cast<int64_t>(1e9 * static_cast<double>(bytes[t]) / speed);
    }
    return all;
  }
  // matched: tokens that the pools have. found: the same in whole pages. token_ns: -1 = any load is better.
  Expected expected(int64_t matched, int64_t found, int64_t blocks, int64_t most, int64_t token_ns) const {
    Expected e{matched, 0, std::vector<int64_t>(tiers.size())};
    const int64_t first = found / 4;
    int64_t longest = blocks;
    while (longest > first && !serves(first, longest, most)) longest--;
    for (int64_t token = matched; token < std::min(4 * longest, most); token++) {
      int tier = -1;
      for (int64_t b = token / 4; tier < 0; b++) {  // tokens before all windows are those of the next block
        for (size_t g = 0; g < tier_of.size(); g++) {
          if (b >= first_needed(g, 4 * longest)) tier = std::max(tier, tier_of[g][static_cast<size_t>(b)]);
        }
      }
      e.tier_tokens[static_cast<size_t>(tier)]++;
    }
    int64_t best = 0;
    for (int64_t end = longest; end > first; end--) {
      const int64_t gain = std::min(4 * end, most) - matched;
      if (gain <= 0 || !serves(first, end, most)) continue;
      const int64_t saved = token_ns < 0 ? 1 : gain * token_ns - ns(first, end);
      if (saved <= best) continue;
      best = saved;
      e.load_tokens = std::min(4 * end, most);
      e.load_ns = ns(first, end);
    }
    return e;
  }
};

class TierHits : public ::testing::TestWithParam<int> {
 protected:
  TierHits() {
    if (GetParam() & 1) spec.groups.push_back({KVC_ROW_KV, 2 + static_cast<int64_t>(random() % 12)});
    if (GetParam() & 2) spec.groups.push_back({KVC_ROW_STATE});
    if (GetParam() & 4) spec.groups.push_back({KVC_ROW_KV, 2 + static_cast<int64_t>(random() % 12)});
    if (GetParam() & 8) spec.groups.erase(spec.groups.begin());
  }

  World make_world(const Objects &objects) {
    World world{spec, objects, std::vector<MemoryTier>(1 + random() % 3),
                std::vector<std::array<int, kBlocks>>(spec.groups.size())};
    const uint32_t dense = 40 + random() % 70;  // percent
    for (auto &group : world.tier_of) group.fill(-1);
    for (size_t t = 0; t < world.tiers.size(); t++) {
      if (random() % 4 != 0) world.tiers[t].bytes_per_second = int64_t{1000} << random() % 12;
      for (size_t g = 0; g < spec.groups.size(); g++) {
        for (size_t b = 0; b < kBlocks; b++) {
          if (random() % 100 >= dense) continue;
          world.tiers[t].objects.insert(objects[g][b]);
          if (world.tier_of[g][b] < 0) world.tier_of[g][b] = static_cast<int>(t);
        }
      }
    }
    return world;
  }
  static kvc_prefix_hit match(const TieredEngine &engine, const kvc_prefix_query &query) {
    kvc_prefix_hit hit;
    kvc_prefix_hit_init(&hit);
    EXPECT_EQ(kvc_prefix_match(engine.cache(), &query, &hit, nullptr), KVC_OK);
    return hit;
  }
  // The longest prefix of whole pages that can be attached from the pools, up to `tokens` tokens.
  static int64_t found(const TieredEngine &engine, kvc_prefix_query query, int64_t tokens) {
    query.flags = KVC_PREFIX_ALLOW_ALL;
    for (query.num_tokens = tokens / 4 * 4; query.num_tokens > 0; query.num_tokens -= 4) {
      if (match(engine, query).tokens == query.num_tokens) break;
    }
    return query.num_tokens;
  }
  void check(const World &world, const kvc_prefix_hit &hit, const Expected &expected) {
    EXPECT_EQ(hit.load_tokens, expected.load_tokens);
    EXPECT_EQ(hit.load_ns, expected.load_ns);
    EXPECT_EQ(hit.token_ns, 0);
    EXPECT_EQ(hit.num_tiers, static_cast<int32_t>(world.tiers.size()));
    EXPECT_EQ(std::vector(hit.tier_tokens, hit.tier_tokens + hit.num_tiers), expected.tier_tokens);
    int64_t all = hit.tokens, tiers = 0;
    for (const int64_t tokens : hit.tier_tokens) all += tokens, tiers += tokens > 0;
    EXPECT_LE(hit.load_tokens, all);
    partial += hit.load_tokens > hit.tokens && hit.load_tokens < all;
    several += tiers > 1;
  }
  void play(World world) {
    TieredEngine engine{spec};
    if (const int32_t served = static_cast<int32_t>(random() % 20); served > 0) {
      engine.serve(count_to(served), 0, KVC_PREFIX_KEEP_PRIVATE, {served / 4 * 4});
    }
    for (MemoryTier &tier : world.tiers) ASSERT_EQ(engine.add(tier, KVC_TIER_STORE_NOTHING), KVC_OK);
    const Tokens prompt = count_to(static_cast<int32_t>(1 + random() % kTokens));
    kvc_prefix_query query = Prefix::query(prompt);
    query.flags = random() % 2 == 0 ? KVC_PREFIX_ALLOW_ALL : 0;
    const int64_t most = query.num_tokens - (query.flags == 0 ? 1 : 0), blocks = query.num_tokens / 4;
    const kvc_prefix_hit hit = match(engine, query);
    const int64_t whole = found(engine, query, hit.tokens);
    check(world, hit, world.expected(hit.tokens, whole, blocks, most, -1));

    kvc_prefix_load_options options;
    kvc_prefix_load_options_init(&options);
    const int64_t some_ns = int64_t{1000} << (4 + random() % 14);
    options.token_ns = std::array<int64_t, 5>{0, INT64_MAX, 1000, some_ns, some_ns}[random() % 5];
    const int64_t token_ns = options.token_ns == 0 || options.token_ns == INT64_MAX ? -1 : options.token_ns;
    kvc_prefix_hit start;
    kvc_prefix_hit_init(&start);
    kvc_job job = 0;
    ASSERT_EQ(kvc_prefix_load(engine.cache(), &query, &options, &start, &job, nullptr), KVC_OK);
    EXPECT_EQ(start.tokens, hit.tokens);
    check(world, start, world.expected(hit.tokens, whole, blocks, most, token_ns));
    EXPECT_EQ(job != 0, start.load_tokens > start.tokens);
    engine.wait(job);
    EXPECT_GE(match(engine, query).tokens, start.load_tokens);  // more, if the pools have more past a gap
    engine.serve(prompt);                                       // checks the contents
    loads += job != 0;
  }

  TieredSpec spec;
  std::mt19937 random{static_cast<unsigned>(GetParam())};
  int64_t partial = 0, loads = 0, several = 0;  // hits of which a part is loaded, loads, and hits in several tiers
};

TEST_P(TierHits, AgreeWithAModel) {
  if (spec.groups.empty()) return;
  const Objects objects = objects_of(spec);
  for (int round = 0; round < 200; round++) {
    play(make_world(objects));
    ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
  }
  EXPECT_GT(loads, 40);
  EXPECT_GT(partial, 0);
  if (GetParam() < 8) {  // with a full group
    EXPECT_GT(several, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, TierHits, ::testing::Range(0, 16));

// ---- Single cases ---------------------------------------------------------------------------------------------------

TEST(Tiers, AHitSaysHowManyTokensEachTierHas) {
  MemoryTier memory, disk;
  TieredEngine engine{TieredSpec{}};
  const Tokens prompt = count_to(30);
  ASSERT_EQ(engine.add(memory), KVC_OK);
  engine.serve(count_to(16));
  engine.wait_stored();
  const auto of_first = memory.objects;
  ASSERT_EQ(engine.add(disk), KVC_OK);
  engine.serve(prompt);
  engine.wait_stored();
  memory.objects = of_first;
  engine.forget_all();
  engine.serve(count_to(10), 0, KVC_PREFIX_KEEP_PRIVATE);
  const kvc_prefix_query query = Prefix::query(prompt);
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  ASSERT_EQ(kvc_prefix_match(engine.cache(), &query, &hit, nullptr), KVC_OK);
  EXPECT_EQ(hit.tokens, 10);
  EXPECT_EQ(hit.load_tokens, 28);
  EXPECT_EQ(hit.num_tiers, 2);
  EXPECT_EQ(hit.tier_tokens[0], 6);
  EXPECT_EQ(hit.tier_tokens[1], 12);
  EXPECT_EQ(engine.serve(prompt).num_tiers, 0);  // attach does not search tiers
}

// ---- The time of a token --------------------------------------------------------------------------------------------

struct OwnsTier {
  MemoryTier tier;
};
// An engine whose forwards attend, and take `ns` or more for each token.
struct ComputingEngine : OwnsTier, TieredEngine {  // the cache is destroyed before its tier
  ComputingEngine() : TieredEngine(TieredSpec{}) { EXPECT_EQ(add(tier), KVC_OK); }

  kvc_forward begin(kvc_seq seq, int32_t tokens) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq, batch.append_lengths = &tokens, batch.num_sequences = 1;
    kvc_forward f = 0;
    EXPECT_EQ(kvc_forward_begin(cache(), &batch, nullptr, &f, nullptr), KVC_OK);
    return f;
  }
  void attend(kvc_forward f, const Tokens &tokens, int64_t first, int32_t count) {
    std::vector<float> k = rows(tokens, first, first + count, 0, 0), v = rows(tokens, first, first + count, 0, 1),
                       q = k;
    std::vector<float> o(q.size());
    int64_t shape[3] = {count, 1, kDims};
    const auto tensor = [&](std::vector<float> &data) {
      return DLTensor{data.data(), test_device(), 3, {kDLFloat, 32, 1}, shape, nullptr, 0};
    };
    const DLTensor tq = tensor(q), tk = tensor(k), tv = tensor(v), to = tensor(o);
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = &tq, args.k = &tk, args.v = &tv, args.out = &to;
    EXPECT_EQ(kvc_forward_attend(cache(), f, 0, &args, nullptr), KVC_OK);
  }
  void compute(const Tokens &tokens, int64_t ns) {
    const kvc_seq seq = add_sequence();
    const auto count = static_cast<int32_t>(tokens.size());
    const kvc_forward f = begin(seq, count);
    std::this_thread::sleep_for(std::chrono::nanoseconds(ns * count));
    attend(f, tokens, 0, count);
    EXPECT_EQ(kvc_forward_end(cache(), f, nullptr), KVC_OK);
    const kvc_prefix_query query = Prefix::query(tokens);
    EXPECT_EQ(kvc_prefix_publish(cache(), seq, &query, nullptr, nullptr, nullptr), KVC_OK);
    remove(seq);
  }
  kvc_prefix_hit match(const Tokens &tokens) {
    const kvc_prefix_query query = Prefix::query(tokens);
    kvc_prefix_hit hit;
    kvc_prefix_hit_init(&hit);
    EXPECT_EQ(kvc_prefix_match(cache(), &query, &hit, nullptr), KVC_OK);
    return hit;
  }
};

TEST(TierGate, UsesTheMeasuredTimeOfAToken) {
  ComputingEngine engine;
  const Tokens prompt = count_to(17);
  EXPECT_EQ(engine.match(prompt).token_ns, 0);
  engine.compute(prompt, 1'000'000);
  engine.wait_stored();
  engine.forget_all();
  kvc_prefix_hit hit = engine.match(prompt);
  EXPECT_GE(hit.token_ns, 1'000'000);
  EXPECT_EQ(hit.load_tokens, 16);
  EXPECT_EQ(hit.tier_tokens[0], 16);

  engine.tier.bytes_per_second = 1;  // a load would take many minutes
  hit = engine.match(prompt);
  EXPECT_EQ(hit.load_tokens, 0);
  EXPECT_EQ(hit.load_ns, 0);
  EXPECT_EQ(hit.tier_tokens[0], 16);
  EXPECT_EQ(engine.start(prompt, &hit), 0u);
  EXPECT_EQ(hit.load_tokens, 0);
  EXPECT_EQ(hit.tier_tokens[0], 16);
  EXPECT_EQ(engine.wait(engine.start(prompt, &hit, 0, INT64_MAX)), 16);  // the caller's time counts instead
  EXPECT_GT(hit.load_ns, 60'000'000'000);

  engine.forget_all();
  engine.tier.bytes_per_second = 1'000'000'000;  // a load takes some microseconds
  EXPECT_EQ(engine.start(prompt, &hit, 0, 1), 0u);
  EXPECT_GE(hit.token_ns, 1'000'000);  // the measured time, not that of the caller
  EXPECT_EQ(engine.wait(engine.start(prompt)), 16);
}

// A search in the tiers ends in a new plan, which has the time of the token at the begin of the load.
TEST(TierGate, CountsAfterASearchToo) {
  ComputingEngine engine;
  const Tokens prompt = count_to(17);
  engine.compute(prompt, 1'000'000);
  engine.wait_stored();
  for (const int64_t speed : {int64_t{1}, int64_t{1'000'000'000}}) {
    engine.forget_all();
    engine.tier.bytes_per_second = speed;
    engine.tier.pending = 4;
    const kvc_job job = engine.start(prompt);
    EXPECT_NE(job, 0u);
    EXPECT_EQ(engine.wait(job), speed == 1 ? 0 : 16);
  }
}

// Only forwards that compute all layers of new tokens are measured.
TEST(TierGate, DoesNotMeasureOtherForwards) {
  ComputingEngine engine;
  const Tokens prompt = count_to(17);
  engine.serve(prompt);  // appends K and V, and does not attend
  EXPECT_EQ(engine.match(prompt).token_ns, 0);
  const kvc_seq seq = engine.add_sequence();
  kvc_forward f = engine.begin(seq, 8);
  engine.attend(f, prompt, 0, 8);
  EXPECT_EQ(kvc_forward_abort(engine.cache(), f, nullptr), KVC_OK);
  EXPECT_EQ(engine.match(prompt).token_ns, 0);
  f = engine.begin(seq, 8);
  engine.attend(f, prompt, 0, 8);
  EXPECT_EQ(kvc_forward_end(engine.cache(), f, nullptr), KVC_OK);
  EXPECT_EQ(engine.match(prompt).token_ns > 0, test_device().device_type == kDLCPU);
  engine.remove(seq);
}

}  // namespace
}  // namespace kvt
