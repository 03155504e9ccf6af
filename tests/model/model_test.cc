// Random operations against the naive model of tests/support/harness.h.
//
//   KVC_MODEL_OPERATIONS  operations of the whole run (default 500000), spread over the configurations
//   KVC_MODEL_ROUNDS      caches tried in each of the 28 configurations (default 12)
//   KVC_MODEL_SEED        first seed (default: fixed); each configuration prints the seed it runs with
//   KVC_MODEL_TRACE       1: print every operation
// A failure prints the environment that repeats it.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "driver.h"

namespace kvt {
namespace {

int64_t from_environment(const char *name, int64_t otherwise) {
  const char *text = std::getenv(name);
  return text && *text ? std::strtoll(text, nullptr, 10) : otherwise;
}

enum class Kind { kFull, kSliding, kTiny, kBoth, kThree, kChunked, kMixed };

struct Case {
  int page_size;
  Kind kind;
};

std::string name_of(const Case &c) {
  const char *kinds[] = {"full", "sliding", "window1", "both", "three", "chunked", "mixed"};
  return std::string("page") + std::to_string(c.page_size) + "_" + kinds[static_cast<int>(c.kind)];
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
  int64_t pages = pick({6, 11, 24}) + (c.page_size < 16 ? 60 / c.page_size : 0);
  // Page lists that are trees of two and three levels (more than 32 and 1,024 pages).
  const bool deep = c.page_size < 16 && random() % 4 == 0;
  if (deep) {
    pages = 2600;
    spec.max_batch_tokens = 900;
  }
  const int64_t window = pick({2, 3, c.page_size, c.page_size + 1, 2 * c.page_size, 17});
  switch (c.kind) {
    case Kind::kFull:
      spec.groups = {{0, pages}};
      break;
    case Kind::kSliding:
      spec.groups = {{window, pages}};
      break;
    case Kind::kTiny:
      spec.groups = {{1, pages}, {window, pages + 3}};
      break;
    case Kind::kBoth:
      spec.groups = {{window, pages}, {0, pages + 2}};
      break;
    case Kind::kThree:
      spec.groups = {{0, pages + 1}, {window, pages}, {3 * window, pages + 2}};
      break;
    case Kind::kChunked:
      spec.groups = {{0, pages, window}};
      break;
    case Kind::kMixed:
      spec.groups = {{0, pages, window}, {0, pages + 3}, {window, pages + 1}, {0, pages, 1}};
      break;
  }
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
    if (l.d % 2 == 0 && random() % 3 == 0) {
      l.rope = random() % 2 ? KVC_ROPE_ON_APPEND : KVC_ROPE_ON_READ;
      l.theta = random() % 2 ? 0 : 1e6;
      l.rope_dim = random() % 2 ? 0 : 2;
    }
    l.scale = random() % 4 ? 0 : 0.5;
    spec.layers.push_back(l);
  }
  return spec;
}

const int kPageSizes[] = {1, 3, 16, 64};
const Kind kKinds[] = {Kind::kFull,  Kind::kSliding, Kind::kTiny, Kind::kBoth,
                       Kind::kThree, Kind::kChunked, Kind::kMixed};
constexpr int64_t kCases = 28;

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
