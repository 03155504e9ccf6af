// Random operations, compared with the naive model of tests/support/harness.h.
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
#include "specs.h"

namespace kvt {
namespace {

int64_t from_environment(const char *name, int64_t otherwise) {
  const char *text = std::getenv(name);
  return text && *text ? std::strtoll(text, nullptr, 10) : otherwise;
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

// Every call is drawn, succeeds, and is refused for each reason that a caller can cause. Every kind of group is
// attended by every kind of row and with every option. The tests above do not test what is missing here.
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
    for (const char *what : {"plain", "tree", "spans", "softcap", "scale", "alibi", "sinks", "non-causal", "reader",
                             "lists", "relative bias", "key bias", "mask", "no spans", "step window"}) {
      expect(std::string(kind) + " " + what, 10);
    }
    if (!cross) expect(std::string(kind) + " parts", 10);
  }
  for (const char *kind : {"full", "mla"}) expect(std::string(kind) + " streaming", 10);
  if (!testing::Test::HasFailure()) return;
  for (const auto &[what, count] : drawn) std::printf("%8lld  %s\n", static_cast<long long>(count), what.c_str());
}

// The same calls on another cache, with other threads, give the same digests, page ids and statuses.
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
