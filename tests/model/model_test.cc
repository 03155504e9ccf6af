// Random operations against the naive model of tests/support/harness.h.
//
//   KVC_MODEL_OPERATIONS  operations of the whole run (default 500000), spread over the configurations
//   KVC_MODEL_ROUNDS      caches tried in each of the 20 configurations (default 12)
//   KVC_MODEL_SEED        first seed (default: fixed); each configuration prints the seed it runs with
//   KVC_MODEL_TRACE       1: print every operation
// A failure prints the environment that repeats it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "harness.h"

namespace kvt {
namespace {

int64_t from_environment(const char *name, int64_t otherwise) {
  const char *text = std::getenv(name);
  return text && *text ? std::strtoll(text, nullptr, 10) : otherwise;
}

enum class Kind { kFull, kSliding, kTiny, kBoth, kThree };

struct Case {
  int page_size;
  Kind kind;
};

std::string name_of(const Case &c) {
  const char *kinds[] = {"full", "sliding", "window1", "both", "three"};
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
  }
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16};
  spec.layers.clear();
  const int layers = static_cast<int>(spec.groups.size()) + static_cast<int>(random() % 2);
  for (int i = 0; i < layers; i++) {
    LayerSpec l;
    l.group = i % static_cast<int>(spec.groups.size());
    l.hkv = static_cast<int>(pick({1, 1, 2}));
    l.hq = l.hkv * static_cast<int>(pick({1, 2, 3}));
    l.d = deep ? 2 : static_cast<int>(pick({1, 2, 4, 6}));
    l.dv = static_cast<int>(pick({0, 0, 3}));
    l.dtype = types[random() % 3];
    if (l.d % 2 == 0 && random() % 3 == 0) {
      l.rope = KVC_ROPE_ON_APPEND;
      l.theta = random() % 2 ? 0 : 1e6;
      l.rope_dim = random() % 2 ? 0 : 2;
    }
    l.scale = random() % 4 ? 0 : 0.5;
    spec.layers.push_back(l);
  }
  return spec;
}

// One random operation after another. Deterministic: depends on the seed and on what the model predicts alone.
class Driver {
 public:
  Driver(const CacheSpec &spec, const Options &options) : h_(spec, options), random_(options.seed * 77 + 1) {}

  void run(int64_t operations) {
    for (int64_t i = 0; i < operations; i++) {
      one();
      if (i % 64 == 63) h_.check_all();
    }
    for (int f : h_.open()) h_.abort(f);
    h_.check_all();
    std::vector<int> all = h_.live();
    std::shuffle(all.begin(), all.end(), random_);
    if (!all.empty()) h_.remove(all);
    for (size_t g = 0; g < h_.spec().groups.size(); g++) {
      if (h_.used(static_cast<int>(g)) != 0) throw Mismatch("model: pages left over");
    }
    h_.check_all();
  }
  Harness &harness() { return h_; }

 private:
  int64_t uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  int pick(const std::vector<int> &from) { return from[uniform(0, static_cast<int64_t>(from.size()) - 1)]; }

  // A position at which fork and truncate probably work: most tokens of a long sequence are behind its windows.
  int64_t some_position(int handle) {
    const int64_t length = h_.length(handle), page = h_.spec().page_size;
    switch (uniform(0, 5)) {
      case 0: return uniform(0, length);
      case 1: return std::min(length, uniform(0, length) / page * page);
      case 2: return length - std::min(length, uniform(0, h_.spec().rollback + 1));
      case 3: return length - std::min<int64_t>(length, uniform(0, 3));
      case 4: return length;
      default: return chance(0.3) ? 0 : length - std::min(length, uniform(0, page));
    }
  }

  std::vector<Harness::Row> some_batch() {
    std::vector<int> from = h_.idle();
    std::shuffle(from.begin(), from.end(), random_);
    std::vector<Harness::Row> rows;
    int64_t room = h_.spec().max_batch_tokens;
    const bool decode = chance(0.5);
    const int64_t count = uniform(1, 5);
    for (int handle : from) {
      if (static_cast<int64_t>(rows.size()) >= count || room < 1) break;
      const int64_t n = decode && !chance(0.2) ? 1 : uniform(1, std::max<int64_t>(1, room / 2));
      rows.push_back({handle, static_cast<int32_t>(n)});
      room -= n;
    }
    while (chance(0.15)) {  // inert rows anywhere
      const int64_t n = std::min<int64_t>(room, uniform(0, 3));
      if (n < 0) break;
      room -= n;
      rows.insert(rows.begin() + uniform(0, static_cast<int64_t>(rows.size())), {Harness::kInert, static_cast<int32_t>(n)});
      if (static_cast<int>(rows.size()) > h_.spec().max_sequences) rows.pop_back();
    }
    if (chance(0.06)) spoil(&rows);
    return rows;
  }

  // Something that begin has to refuse (mostly).
  void spoil(std::vector<Harness::Row> *rows) {
    switch (uniform(0, 6)) {
      case 0:
        if (!rows->empty()) rows->push_back((*rows)[0]);
        break;
      case 1:
        if (!rows->empty()) (*rows)[uniform(0, static_cast<int64_t>(rows->size()) - 1)].length = 0;
        break;
      case 2:
        rows->push_back({Harness::kInert, h_.spec().max_batch_tokens + 1});
        break;
      case 3:
        if (!h_.stale().empty()) {
          rows->push_back({Harness::kRaw, 1, h_.stale()[uniform(0, static_cast<int64_t>(h_.stale().size()) - 1)]});
        }
        break;
      case 4:
        for (int handle : h_.live()) {
          if (h_.is_busy(handle)) rows->push_back({handle, 1});
        }
        break;
      case 5:
        if (!rows->empty()) (*rows)[0].length = -3;
        break;
      default:
        while (static_cast<int>(rows->size()) <= h_.spec().max_sequences) rows->push_back({Harness::kInert, 0});
        break;
    }
  }

  void touched(int handle) {
    h_.check_tables(handle);
    if (h_.is_busy(handle)) return;
    if (chance(0.5)) h_.check_contents(handle);
  }

  void one() {
    const std::vector<int> live = h_.live(), idle = h_.idle(), open = h_.open();
    const int64_t dice = uniform(0, 99);
    if (live.empty() || dice < 5) {
      std::vector<int> added;
      h_.add(static_cast<int>(chance(0.03) ? uniform(-1, 30) : uniform(1, 2)), &added);
      for (int handle : added) h_.check_tables(handle);
    } else if (dice < 11) {
      remove(live);
    } else if (dice < 21) {
      fork(live);
    } else if (dice < 30) {
      truncate(live);
    } else if (dice < 58) {
      step();
    } else if (dice < 76) {
      if (!open.empty()) advance(pick(open));
    } else if (dice < 80) {
      if (!idle.empty()) {
        const int handle = pick(idle);
        h_.import(handle, static_cast<int>(uniform(1, chance(0.05) ? h_.spec().max_batch_tokens + 3 : 9)), chance(0.5),
                  chance(0.1));
        touched(handle);
      }
    } else if (dice < 84) {
      h_.check_max_append(pick(live));
    } else if (dice < 87) {
      h_.can_fit(some_batch());
    } else if (dice < 90) {
      const int handle = pick(live);
      h_.check_nearest(handle, uniform(chance(0.1) ? -2 : 0, h_.length(handle) + (chance(0.1) ? 2 : 0)));
    } else if (dice < 93) {
      exports(pick(live));
    } else if (dice < 95) {
      h_.check_stats();
    } else if (dice < 96) {
      if (!h_.stale().empty()) h_.check_stale(h_.stale()[uniform(0, static_cast<int64_t>(h_.stale().size()) - 1)]);
      h_.check_stale(0);
      if (!open.empty()) h_.check_stale(h_.forward_id(open[0]));
    } else if (dice < 97) {
      if (chance(0.1)) h_.clear();
    } else {
      touched(pick(live));
    }
    h_.check_invariants();
  }

  void remove(const std::vector<int> &live) {
    std::vector<int> handles{pick(live)};
    while (chance(0.3)) handles.push_back(chance(0.05) ? handles[0] : pick(live));
    if (!chance(0.1)) {
      std::sort(handles.begin(), handles.end());
      handles.erase(std::unique(handles.begin(), handles.end()), handles.end());
      std::shuffle(handles.begin(), handles.end(), random_);
    }
    if (chance(0.03)) handles.push_back(-5);  // a stale id
    h_.remove(handles);
  }

  void fork(const std::vector<int> &live) {
    std::vector<int> parents, children;
    std::vector<int64_t> positions;
    do {
      parents.push_back(pick(live));
      positions.push_back(chance(0.2) ? -1 : some_position(parents.back()));
      if (chance(0.02)) positions.back() = h_.length(parents.back()) + uniform(1, 3);
      if (chance(0.02)) positions.back() = -uniform(2, 4);
    } while (chance(0.25));
    if (chance(0.02)) parents.push_back(-5), positions.push_back(0);
    h_.fork(parents, chance(0.1) ? nullptr : &positions, &children);
    for (int handle : parents) {
      if (handle >= 0) touched(handle);
    }
    for (int handle : children) touched(handle);
  }

  void truncate(const std::vector<int> &live) {
    std::vector<int> handles{pick(live)};
    while (chance(0.2)) handles.push_back(pick(live));
    if (!chance(0.1)) {
      std::sort(handles.begin(), handles.end());
      handles.erase(std::unique(handles.begin(), handles.end()), handles.end());
    }
    std::vector<int64_t> lengths;
    for (int handle : handles) {
      lengths.push_back(chance(0.03) ? h_.length(handle) + 1 : chance(0.02) ? -1 : some_position(handle));
    }
    h_.truncate(handles, lengths);
    for (int handle : handles) touched(handle);
  }

  void step() {
    const std::vector<Harness::Row> rows = some_batch();
    int forward = -1, layer_begin = 0, layer_end = 0;
    const int layers = static_cast<int>(h_.spec().layers.size());
    if (chance(0.05)) {
      layer_begin = static_cast<int>(uniform(0, layers - 1));
      layer_end = static_cast<int>(uniform(layer_begin + 1, layers));
      if (chance(0.2)) layer_end = layers + 1;
    }
    if (h_.begin(rows, &forward, layer_begin, layer_end)) return;
    if (chance(0.3)) return;  // stays open
    h_.run_layers(forward);
    if (chance(0.1)) {
      h_.abort(forward);
    } else {
      h_.end(forward);
    }
    for (const Harness::Row &row : rows) {
      if (row.sequence >= 0) touched(row.sequence);
    }
  }

  // Something on an open forward.
  void advance(int forward) {
    switch (uniform(0, 11)) {
      case 0:
        h_.abort(forward);
        cancelled_.erase(forward);
        break;
      case 1:
        if (chance(0.5)) {
          h_.cancel(forward);
          cancelled_.insert(forward);
        }
        break;
      case 2:
      case 3:
        h_.check_misuse(forward);
        break;
      case 4:
      case 5:
        if (h_.end(forward) == KVC_OK) cancelled_.erase(forward);
        break;
      default:
        if (cancelled_.count(forward)) {
          h_.check_misuse(forward);
          h_.end(forward);
          h_.abort(forward);
          cancelled_.erase(forward);
          break;
        }
        h_.run_layers(forward);
        if (chance(0.8)) h_.end(forward);
        break;
    }
  }

  void exports(int handle) {
    const int layer = static_cast<int>(uniform(0, static_cast<int64_t>(h_.spec().layers.size()) - 1));
    const int64_t length = h_.length(handle), held = h_.first_held(handle, h_.spec().layers[layer].group);
    if (h_.is_busy(handle) || length == 0) {
      if (h_.is_busy(handle)) h_.check_export_refused(handle, layer, 0, 0);
      return;
    }
    if (held < length) {
      const int64_t begin = uniform(held, length - 1);
      h_.check_contents(handle, layer, begin, uniform(begin + 1, length));
    }
    if (held > 0) h_.check_export_refused(handle, layer, uniform(0, held - 1), length);
    h_.check_export_refused(handle, layer, 0, length + uniform(1, 5));
    h_.check_export_refused(handle, -1, 0, 0);
    h_.check_export_refused(handle, layer, -1, 0);
  }

  Harness h_;
  std::mt19937_64 random_;
  std::set<int> cancelled_;
};

const int kPageSizes[] = {1, 3, 16, 64};
const Kind kKinds[] = {Kind::kFull, Kind::kSliding, Kind::kTiny, Kind::kBoth, Kind::kThree};
constexpr int64_t kCases = 20;

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
    ASSERT_EQ(mismatch, "") << "KVC_MODEL_SEED=" << options.seed - static_cast<uint64_t>(GetParam().page_size) * 10 -
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

// Attention of every thread count and every SIMD target, with batches large enough to be shared out.
CacheSpec larger_spec(int page_size, DType dtype, int rope) {
  CacheSpec spec;
  spec.page_size = page_size;
  spec.max_sequences = 8;
  spec.max_batch_tokens = 96;
  spec.rollback = 8;
  spec.groups = {{0, 1500 / page_size}, {20, 1000 / page_size}};
  spec.layers.clear();
  for (int i = 0; i < 2; i++) {
    LayerSpec l;
    l.group = i;
    l.hq = 6;
    l.hkv = i ? 1 : 2;
    l.d = i ? 32 : 18;
    l.dv = i ? 0 : 33;
    l.dtype = dtype;
    l.rope = rope;
    spec.layers.push_back(l);
  }
  return spec;
}

class Threads : public testing::TestWithParam<int> {};
TEST_P(Threads, AttentionIsRight) {
  Options options;
  options.threads = GetParam();
  options.seed = static_cast<uint64_t>(GetParam());
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16};
  const std::string mismatch = mismatch_of([&] {
    Driver driver(larger_spec(GetParam() % 2 ? 16 : 3, types[GetParam() % 3], GetParam() % 2), options);
    driver.run(120);
  });
  EXPECT_EQ(mismatch, "");
}
INSTANTIATE_TEST_SUITE_P(Counts, Threads, testing::Range(1, 18));

TEST(Simd, EveryTargetIsRight) {
  std::vector<std::string> targets = simd_targets();
  ASSERT_FALSE(targets.empty());
  targets.push_back("reference");
  for (const std::string &target : targets) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      Options options;
      options.simd = target.c_str();
      options.seed = 99 + static_cast<uint64_t>(dtype);
      const std::string mismatch = mismatch_of([&] {
        Driver driver(larger_spec(16, dtype, KVC_ROPE_ON_APPEND), options);
        driver.run(150);
      });
      EXPECT_EQ(mismatch, "") << target << " " << name_of(dtype);
    }
  }
}

TEST(HostPool, RandomOrderAndThreads) {
  for (int threads : {1, 2, 5}) {
    RandomPool pool(threads, 5);
    Options options;
    options.threads = threads;
    options.parallel_for = &RandomPool::run;
    options.parallel_for_user = &pool;
    options.seed = 31 + static_cast<uint64_t>(threads);
    const std::string mismatch = mismatch_of([&] {
      Driver driver(larger_spec(16, DType::kF32, KVC_ROPE_NONE), options);
      driver.run(200);
    });
    EXPECT_EQ(mismatch, "") << threads;
  }
}

}  // namespace
}  // namespace kvt
