// Random operations against the naive model of tests/support/harness.h.
//
//   KVC_MODEL_OPERATIONS  operations of the whole run (default 500000), spread over the configurations
//   KVC_MODEL_ROUNDS      caches tried in each of the 40 configurations (default 12)
//   KVC_MODEL_SEED        first seed (default: fixed); each configuration prints the seed it runs with
//   KVC_MODEL_TRACE       1: print every operation
// A failure prints the environment that repeats it.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "driver.h"

namespace kvt {
namespace {

int64_t from_environment(const char *name, int64_t otherwise) {
  const char *text = std::getenv(name);
  return text && *text ? std::strtoll(text, nullptr, 10) : otherwise;
}

enum class Kind { kFull, kSliding, kTiny, kBoth, kThree, kChunked, kMixed, kLatent, kCross, kAny };

struct Case {
  int page_size;
  Kind kind;
};

std::string name_of(const Case &c) {
  const char *kinds[] = {"full", "sliding", "window1", "both", "three", "chunked", "mixed", "latent", "cross", "any"};
  return std::string("page") + std::to_string(c.page_size) + "_" + kinds[static_cast<int>(c.kind)];
}

// A layer of an MLA group; its row is rotated in the dims after the latent ones.
void make_latent(bool deep, std::mt19937_64 &random, LayerSpec *l) {
  l->hq *= 8 / l->hkv;
  l->hkv = 1;
  l->d = deep ? 4 : random() % 2 ? 6 : 10;
  l->latent = l->rope != KVC_ROPE_NONE ? l->d - 2 : random() % 2 ? l->d : 1;
  l->rope_dim = l->dv = 0;
  l->num_scales = std::min(l->num_scales, 1);
  l->scale = 0.5;
}

// A layer over the K and V of another, with queries of its own.
void add_reader(std::mt19937_64 &random, CacheSpec *spec) {
  const int source = static_cast<int>(random() % spec->layers.size());
  LayerSpec l = spec->layers[static_cast<size_t>(source)];
  l.kv_layer = source;
  l.hq = l.hkv * static_cast<int>(1 + random() % 4);
  l.scale = l.latent || random() % 2 ? 0.7 : 0;
  l.num_scales = 0;
  spec->layers.push_back(l);
}

// Two to five groups of any kinds, the first of the sequences' own tokens; those of latent rows are in *latent.
std::vector<GroupSpec> any_groups(int64_t pages, int64_t window, std::mt19937_64 &random, std::set<int> *latent) {
  std::vector<GroupSpec> groups;
  const int count = 2 + static_cast<int>(random() % 4);
  for (int g = 0; g < count; g++) {
    const auto more = pages + static_cast<int64_t>(random() % 4);
    const uint64_t kind = random() % (g == 0 ? 4 : 5);
    if (kind == 1) latent->insert(g);
    groups.push_back(kind == 2   ? GroupSpec{window, more}
                     : kind == 3 ? GroupSpec{0, more, window}
                     : kind == 4 ? GroupSpec{0, more, 0, true}
                                 : GroupSpec{0, more});
  }
  return groups;
}

std::vector<GroupSpec> groups_of(Kind kind, int64_t pages, int64_t window, std::mt19937_64 &random,
                                 std::set<int> *latent) {
  switch (kind) {
    case Kind::kFull:
      return {{0, pages}};
    case Kind::kSliding:
      return {{window, pages}};
    case Kind::kTiny:
      return {{1, pages}, {window, pages + 3}};
    case Kind::kBoth:
      return {{window, pages}, {0, pages + 2}};
    case Kind::kThree:
      return {{0, pages + 1}, {window, pages}, {3 * window, pages + 2}};
    case Kind::kChunked:
      return {{0, pages, window}};
    case Kind::kMixed:
      return {{0, pages, window}, {0, pages + 3}, {window, pages + 1}, {0, pages, 1}};
    case Kind::kLatent:  // MLA, sliding, full
      latent->insert(0);
      return {{0, pages + 1}, {window, pages}, {0, pages + 2}};
    case Kind::kCross:
      return {{0, pages + 1}, {0, pages, 0, true}, {window, pages}};
    case Kind::kAny:
      return any_groups(pages, window, random, latent);
  }
  return {};
}

CacheSpec make_spec(const Case &c, std::mt19937_64 &random) {
  auto pick = [&](std::initializer_list<int64_t> values) {
    return *(values.begin() + static_cast<int64_t>(random() % values.size()));
  };
  CacheSpec spec;
  spec.page_size = c.page_size;
  spec.max_sequences = static_cast<int>(pick({5, 9, 12}));
  spec.max_batch_tokens = static_cast<int>(pick({7, 24, 40 + c.page_size}));
  spec.max_open_forwards = static_cast<int>(pick({1, 2, 3}));
  spec.rollback = pick({0, 1, 5, c.page_size, 20});
  spec.max_tree_nodes = static_cast<int>(pick({0, 4, 13, 1024}));
  const uint32_t flags[] = {0, KVC_CACHE_NO_PREFIX_SHARING, KVC_CACHE_SHARE_ALL_PREFIXES, KVC_CACHE_DETERMINISTIC};
  spec.flags = flags[random() % 4];
  int64_t pages = pick({6, 11, 24}) + (c.page_size < 16 ? 60 / c.page_size : 0);
  // Page lists that are trees of two and three levels (more than 32 and 1,024 pages).
  const bool deep = c.page_size < 16 && random() % 4 == 0;
  if (deep) {
    pages = 2600;
    spec.max_batch_tokens = 900;
  }
  const int64_t window = pick({2, 3, c.page_size, c.page_size + 1, 2 * c.page_size, 17});
  std::set<int> latent;
  spec.groups = groups_of(c.kind, pages, window, random, &latent);
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kI8};
  spec.layers.clear();
  const int layers = static_cast<int>(spec.groups.size()) + static_cast<int>(random() % 2);
  for (int i = 0; i < layers; i++) {
    LayerSpec l;
    l.group = i % static_cast<int>(spec.groups.size());
    l.hkv = static_cast<int>(pick({1, 1, 2}));
    l.hq = l.hkv * static_cast<int>(pick({1, 2, 3}));
    l.d = deep ? 2 : static_cast<int>(pick({1, 2, 4, 6}));
    l.dv = static_cast<int>(pick({0, 0, 3}));
    l.dtype = types[random() % 6];
    if (l.dtype == DType::kE4M3 || l.dtype == DType::kE5M2) l.num_scales = static_cast<int>(pick({0, 1, l.hkv}));
    if (l.d % 2 == 0 && random() % 3 == 0 && !spec.groups[static_cast<size_t>(l.group)].cross) {
      l.rope = random() % 2 ? KVC_ROPE_ON_APPEND : KVC_ROPE_ON_READ;
      l.theta = random() % 2 ? 0 : 1e6;
      l.rope_dim = random() % 2 ? 0 : 2;
    }
    l.scale = random() % 4 ? 0 : 0.5;
    if (latent.count(l.group) > 0) make_latent(deep, random, &l);
    spec.layers.push_back(l);
  }
  if (random() % 2) add_reader(random, &spec);
  const bool full = std::any_of(spec.groups.begin(), spec.groups.end(), [](const GroupSpec &g) { return g.full(); });
  spec.streaming = random() % 2 == 0 && full;
  if (random() % 2) spec.layout = kAdoptedLayouts[random() % std::size(kAdoptedLayouts)];
  return spec;
}

const int kPageSizes[] = {1, 3, 16, 64};
const Kind kKinds[] = {Kind::kFull,    Kind::kSliding, Kind::kTiny,   Kind::kBoth,  Kind::kThree,
                       Kind::kChunked, Kind::kMixed,   Kind::kLatent, Kind::kCross, Kind::kAny};
constexpr int64_t kCases = 40;

class Model : public testing::TestWithParam<Case> {};

TEST_P(Model, RandomOperations) {
  const int64_t operations = from_environment("KVC_MODEL_OPERATIONS", 500000) / kCases;
  const uint64_t first_seed = static_cast<uint64_t>(from_environment("KVC_MODEL_SEED", 20261121));
  const int64_t rounds = from_environment("KVC_MODEL_ROUNDS", 12);
  uint64_t attends = 0;
  for (int64_t round = 0; round < rounds; round++) {
    Options options;
    options.seed = first_seed + static_cast<uint64_t>(round) * 1000 + static_cast<uint64_t>(GetParam().page_size) * 10 +
                   static_cast<uint64_t>(GetParam().kind);
    options.attend_checks = 0.25;
    options.graph = round % 2 == 1;
    options.trace = from_environment("KVC_MODEL_TRACE", 0) != 0;
    std::mt19937_64 random(options.seed);
    const CacheSpec spec = make_spec(GetParam(), random);
    std::printf("seed %llu, %lld operations\n", static_cast<unsigned long long>(options.seed),
                static_cast<long long>(operations / rounds));
    const std::string mismatch = mismatch_of([&] {
      Driver driver(spec, options);
      driver.run(operations / rounds);
      attends += driver.harness().attends_checked();
    });
    ASSERT_EQ(mismatch, "") << "KVC_MODEL_SEED="
                            << options.seed - static_cast<uint64_t>(GetParam().page_size) * 10 -
                                   static_cast<uint64_t>(GetParam().kind)
                            << " KVC_MODEL_ROUNDS=1 KVC_MODEL_OPERATIONS=" << operations / rounds * kCases;
  }
  std::printf("%llu attends compared\n", static_cast<unsigned long long>(attends));
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (int page_size : kPageSizes) {
    for (Kind kind : kKinds) cases.push_back({page_size, kind});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, Model, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<Case> &info) { return name_of(info.param); });

// Every call is drawn, succeeds, and is refused for each reason that a caller can have; every kind of group is attended
// to by every kind of row and with every option. What is missing here the tests above do not test.
TEST(ModelCoverage, EveryOperationKindAndOption) {
  std::map<std::string, int64_t> drawn;
  uint64_t seed = 1;
  for (const Kind kind : kKinds) {
    for (int round = 0; round < 6; round++) {
      Options options;
      options.seed = seed++;
      options.attend_checks = 0.5;
      options.graph = round % 2 == 1;
      std::mt19937_64 random(options.seed);
      CacheSpec spec = make_spec({3, kind}, random);
      if (spec.max_batch_tokens > 100) spec.max_batch_tokens = 100;
      const std::string mismatch = mismatch_of([&] {
        Driver driver(spec, options);
        driver.run(1500);
        for (const auto &[what, count] : driver.harness().drawn()) drawn[what] += count;
      });
      ASSERT_EQ(mismatch, "") << "kind " << static_cast<int>(kind) << ", seed " << options.seed;
    }
  }
  const auto expect = [&](const std::string &what, int64_t least) {
    EXPECT_GE(drawn[what], least) << what << " was drawn too seldom";
  };
  const std::pair<const char *, std::vector<const char *>> calls[] = {
      {"kvc_seq_add", {"TOO_MANY_SEQUENCES", "INVALID_ARGUMENT"}},
      {"kvc_seq_remove", {"STALE_ID", "DUPLICATE"}},
      {"kvc_seq_fork",
       {"STALE_ID", "BUSY", "UNCOMMITTED", "OUT_OF_RANGE", "EVICTED", "TOO_MANY_SEQUENCES", "OUT_OF_PAGES"}},
      {"kvc_seq_truncate", {"BUSY", "DUPLICATE", "OUT_OF_RANGE", "EVICTED"}},
      {"kvc_seq_commit", {"STALE_ID", "DUPLICATE", "BUSY", "ORDER", "OUT_OF_RANGE"}},
      {"kvc_seq_set_streaming", {"DUPLICATE", "BUSY", "UNCOMMITTED", "INVALID_ARGUMENT", "EVICTED"}},
      {"kvc_seq_import", {"BUSY", "BATCH_TOO_LARGE", "OUT_OF_PAGES"}},
      {"kvc_seq_export", {"BUSY", "OUT_OF_RANGE", "EVICTED"}},
      {"kvc_forward_begin",
       {"STALE_ID", "DUPLICATE", "BUSY", "UNCOMMITTED", "TREE_TOO_LARGE", "INVALID_ARGUMENT", "BATCH_TOO_LARGE",
        "TOO_MANY_FORWARDS", "OUT_OF_PAGES", "OUT_OF_RANGE"}},
      {"kvc_forward_append", {"ORDER", "CANCELLED", "INVALID_ARGUMENT", "OUT_OF_RANGE", "STALE_ID"}},
      {"kvc_forward_attend", {"ORDER", "CANCELLED", "OUT_OF_RANGE", "STALE_ID"}},
      {"kvc_forward_end", {"ORDER", "CANCELLED", "STALE_ID"}},
      {"kvc_forward_abort", {"STALE_ID"}},
      {"kvc_forward_cancel", {"STALE_ID"}},
      {"kvc_merge_states", {}},
      {"kvc_cache_can_fit", {"OUT_OF_PAGES", "BATCH_TOO_LARGE"}},
      {"kvc_cache_clear", {}},
      {"kvc_seq_max_append", {"STALE_ID"}},
      {"kvc_seq_nearest_position", {"STALE_ID", "OUT_OF_RANGE"}}};
  for (const auto &[call, statuses] : calls) {
    expect(std::string(call) + " KVC_OK", 10);
    for (const char *status : statuses) expect(std::string(call) + " KVC_ERROR_" + status, 1);
  }
  for (const char *kind : {"full", "sliding", "chunked", "mla", "cross"}) {
    const bool cross = kind[0] == 'c' && kind[1] == 'r';
    for (const char *what : {"plain", "tree", "spans", "softcap", "scale", "alibi", "sinks", "non-causal", "reader"}) {
      expect(std::string(kind) + " " + what, 10);
    }
    if (!cross) expect(std::string(kind) + " parts", 10);
  }
  for (const char *kind : {"full", "mla"}) expect(std::string(kind) + " streaming", 10);
  if (!testing::Test::HasFailure()) return;
  for (const auto &[what, count] : drawn) std::printf("%8lld  %s\n", static_cast<long long>(count), what.c_str());
}

// The same calls give the same bookkeeping: digests, page ids and statuses, on another cache, with other threads.
TEST(ModelDeterminism, SameOperationsSameDigestsAndPages) {
  const int64_t operations = std::min<int64_t>(2000, from_environment("KVC_MODEL_OPERATIONS", 500000) / 20);
  for (const Case &c : {Case{1, Kind::kBoth}, Case{3, Kind::kThree}, Case{16, Kind::kBoth}, Case{64, Kind::kFull}}) {
    uint64_t trails[3];
    for (int i = 0; i < 3; i++) {
      Options options;
      options.seed = 4242 + static_cast<uint64_t>(c.page_size);
      options.threads = i == 2 ? 3 : 1;
      options.attend_checks = 0;
      std::mt19937_64 random(options.seed);
      const CacheSpec spec = make_spec(c, random);
      const std::string mismatch = mismatch_of([&] {
        // A neighbour in another context shifts every address.
        ContextPtr context = make_context();
        CachePtr other = make_cache(context.get(), spec);
        kvc_seq ids[3];
        if (i) kvc_seq_add(other.get(), 3, ids, nullptr);
        Driver driver(spec, options);
        driver.run(operations);
        trails[i] = driver.harness().trail();
      });
      ASSERT_EQ(mismatch, "") << name_of(c);
    }
    EXPECT_EQ(trails[0], trails[1]) << name_of(c);
    EXPECT_EQ(trails[0], trails[2]) << name_of(c) << " (3 threads)";
  }
}

}  // namespace
}  // namespace kvt
