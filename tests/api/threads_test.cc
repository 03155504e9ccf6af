// Several threads: cancel, BUSY, concurrent forwards, queries during a compute call, and errors that move between
// threads.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "fixture.h"
#include "harness.h"

namespace kvt {
namespace {

// A pool of the host that stops before its first item until it is released. So a compute call lasts as long as a test
// needs.
class Gate {
 public:
  static void run(void *self, int64_t n, void (*item)(void *, int64_t), void *arg) {
    Gate *gate = static_cast<Gate *>(self);
    {
      std::unique_lock<std::mutex> lock(gate->mutex_);
      gate->inside_ = true;
      gate->changed_.notify_all();
      gate->changed_.wait(lock, [&] { return gate->open_; });
    }
    for (int64_t i = 0; i < n; i++) item(arg, i);
  }
  // Waits until a compute call is inside, and returns true. Returns false after 30 s, or when `done` says that no call
  // came.
  bool wait_inside(const std::atomic<bool> &done) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (int i = 0; i < 3000 && !inside_ && !done; i++) changed_.wait_for(lock, std::chrono::milliseconds(10));
    return inside_;
  }
  void let_go() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool inside_ = false, open_ = false;
};

CacheSpec large_spec() {
  CacheSpec spec;
  spec.max_sequences = 8;
  spec.max_batch_tokens = 512;
  spec.groups = {{0, 200}};
  spec.layers = {LayerSpec{0, 8, 2, 64}, LayerSpec{0, 8, 2, 64}};
  return spec;
}

struct GatedWorld {
  Gate gate;
  CacheSpec spec = large_spec();
  ContextPtr context = make_context(4, nullptr, &Gate::run, &gate);
  CachePtr owner = make_cache(context.get(), spec);
  kvc_cache *cache = owner.get();
  kvc_seq seqs[2] = {};
  kvc_forward f = 0;
  LayerTensors t{spec.layers[0], 512};
  std::atomic<bool> done{false};
  kvc_status status = -1;
  std::thread thread;

  GatedWorld() {
    EXPECT_EQ(kvc_seq_add(cache, 2, seqs, nullptr), KVC_OK);
    const int32_t n = 512;
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = seqs;
    batch.append_lengths = &n;
    batch.num_sequences = 1;
    EXPECT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, nullptr), KVC_OK);
    thread = std::thread([this] {
      const kvc_attend_args args = t.attend_args();
      status = kvc_forward_attend(cache, f, 0, &args, nullptr);
      done = true;
    });
  }
  ~GatedWorld() {
    gate.let_go();
    if (thread.joinable()) thread.join();
  }
};

TEST(Threads, OneForwardIsUsedByOneThreadAtATime) {
  GatedWorld w;
  ASSERT_TRUE(w.gate.wait_inside(w.done)) << "a prefill of 512 tokens did not use the host's pool";
  LayerTensors other(w.spec.layers[1], 512);
  const kvc_append_args append = other.append_args();
  const kvc_attend_args attend = other.attend_args();
  const Statuses busy{KVC_ERROR_BUSY};
  auto expect_busy = [&](const char *function, const std::function<kvc_status(kvc_error *)> &call) {
    refused(nullptr, busy, function, call);
  };
  expect_busy("kvc_forward_append", [&](kvc_error *e) { return kvc_forward_append(w.cache, w.f, 1, &append, e); });
  expect_busy("kvc_forward_attend", [&](kvc_error *e) { return kvc_forward_attend(w.cache, w.f, 1, &attend, e); });
  expect_busy("kvc_forward_end", [&](kvc_error *e) { return kvc_forward_end(w.cache, w.f, e); });
  expect_busy("kvc_forward_abort", [&](kvc_error *e) { return kvc_forward_abort(w.cache, w.f, e); });
  // Queries, and calls on other sequences, never wait for the compute call.
  int64_t n = 0;
  EXPECT_EQ(kvc_seq_lengths(w.cache, 1, w.seqs, &n, nullptr), KVC_OK);
  EXPECT_EQ(n, 0);
  kvc_seq fresh = 0;
  EXPECT_EQ(kvc_seq_add(w.cache, 1, &fresh, nullptr), KVC_OK);
  EXPECT_EQ(kvc_seq_max_append(w.cache, 1, &fresh, &n, nullptr), KVC_OK);
  EXPECT_EQ(n, 512);
  kvc_stats stats;
  kvc_stats_init(&stats);
  EXPECT_EQ(kvc_cache_stats(w.cache, -1, &stats, nullptr), KVC_OK);
  EXPECT_EQ(kvc_cache_check_invariants(w.cache, nullptr), KVC_OK);
  kvc_forward_info info;
  kvc_forward_info_init(&info);
  EXPECT_EQ(kvc_forward_get_info(w.cache, w.f, &info, nullptr), KVC_OK);
  kvc_batch batch;
  kvc_batch_init(&batch);
  const int32_t one = 1;
  batch.sequences = &fresh;
  batch.append_lengths = &one;
  batch.num_sequences = 1;
  kvc_forward g = 0;
  EXPECT_EQ(kvc_forward_begin(w.cache, &batch, nullptr, &g, nullptr), KVC_OK);
  EXPECT_EQ(kvc_forward_abort(w.cache, g, nullptr), KVC_OK);
  EXPECT_FALSE(w.done);
  w.gate.let_go();
  w.thread.join();
  EXPECT_EQ(w.status, KVC_OK);
  EXPECT_EQ(kvc_forward_append(w.cache, w.f, 1, &append, nullptr), KVC_OK);
  EXPECT_EQ(kvc_forward_end(w.cache, w.f, nullptr), KVC_OK);
}

TEST(Threads, CancelFromAnotherThread) {
  GatedWorld w;
  ASSERT_TRUE(w.gate.wait_inside(w.done));
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_forward_cancel(w.cache, w.f, &error), KVC_OK) << error.message;  // does not wait
  EXPECT_FALSE(w.done);
  w.gate.let_go();
  w.thread.join();
  EXPECT_EQ(w.status, KVC_ERROR_CANCELLED);
  EXPECT_EQ(kvc_forward_end(w.cache, w.f, &error), KVC_ERROR_CANCELLED);
  EXPECT_EQ(kvc_forward_abort(w.cache, w.f, &error), KVC_OK);
  kvc_stats stats;
  kvc_stats_init(&stats);
  EXPECT_EQ(kvc_cache_stats(w.cache, -1, &stats, &error), KVC_OK);
  EXPECT_EQ(stats.pages_used, 0);
}

// A cancel at a random moment of a compute call on the library's own threads.
TEST(Threads, CancelAtAnyMoment) {
  CacheSpec spec = large_spec();
  World w(spec, 3, 0);
  LayerTensors t(spec.layers[0], 512);
  int cancelled = 0;
  // On a busy machine the other thread may always come too late, so there are as many more rounds as one needs to be in
  // time.
  for (int round = 0; round < 30 || (cancelled == 0 && round < 3000); round++) {
    const kvc_forward f = w.begin({w.seq}, {512});
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(round % 30 * 40));
      EXPECT_EQ(kvc_forward_cancel(w.cache, f, nullptr), KVC_OK);
    });
    const kvc_attend_args args = t.attend_args();
    const kvc_status status = kvc_forward_attend(w.cache, f, 0, &args, nullptr);
    other.join();
    EXPECT_TRUE(status == KVC_OK || status == KVC_ERROR_CANCELLED) << kvc_status_name(status);
    cancelled += status == KVC_ERROR_CANCELLED;
    EXPECT_EQ(kvc_forward_end(w.cache, f, nullptr), KVC_ERROR_CANCELLED);
    EXPECT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
  }
  EXPECT_GT(cancelled, 0);
}

// Two forwards over disjoint sequences, each on its own thread, in one context. The bits equal those of each forward
// alone.
TEST(Threads, TwoForwardsAtOnce) {
  for (int threads : {1, 3}) {
    CacheSpec spec = large_spec();
    spec.groups.push_back({37, 200});
    spec.layers[1].group = 1;
    auto run = [&](World &w, kvc_seq s, int32_t n, std::vector<uint8_t> *bytes) {
      for (int step = 0; step < 6; step++) {
        const std::vector<kvc_seq> seqs{s};
        const int32_t tokens = step ? 1 + step % 3 : n;
        const kvc_forward f = w.begin(seqs, {tokens});
        for (int l = 0; l < 2; l++) {
          LayerTensors t(spec.layers[l], tokens);
          const kvc_attend_args args = t.attend_args();
          EXPECT_EQ(kvc_forward_attend(w.cache, f, l, &args, nullptr), KVC_OK);
          bytes->insert(bytes->end(), t.out.bytes().begin(), t.out.bytes().end());
        }
        EXPECT_EQ(kvc_forward_end(w.cache, f, nullptr), KVC_OK);
      }
    };
    World w(spec, threads, 0), alone(spec, threads, 0);
    std::vector<uint8_t> a, b, a_alone, b_alone;
    std::thread first([&] { run(w, w.seq, 200, &a); });
    std::thread second([&] { run(w, w.forked, 130, &b); });
    first.join();
    second.join();
    run(alone, alone.seq, 200, &a_alone);
    run(alone, alone.forked, 130, &b_alone);
    EXPECT_EQ(a, a_alone);
    EXPECT_EQ(b, b_alone);
    EXPECT_EQ(kvc_cache_check_invariants(w.cache, nullptr), KVC_OK);
  }
}

// Many threads, each with its own sequences: add, step, fork, truncate, remove, queries.
TEST(Threads, ManyThreadsOnOneCache) {
  CacheSpec spec = World::default_spec();
  spec.max_sequences = 64;
  spec.max_open_forwards = 8;
  spec.groups = {{0, 2000}, {8, 2000}};
  World w(spec, 2, 5);
  std::vector<std::thread> threads;
  for (int id = 0; id < 6; id++) {
    threads.emplace_back([&, id] {
      std::mt19937_64 random(id);
      std::vector<kvc_seq> mine;
      kvc_error error = KVC_ERROR_INIT;
      for (int i = 0; i < 150; i++) {
        kvc_seq s = 0;
        if (mine.size() < 4 && kvc_seq_add(w.cache, 1, &s, &error) == KVC_OK) mine.push_back(s);
        const kvc_seq pick = mine[random() % mine.size()];
        w.step(pick, 1 + static_cast<int32_t>(random() % 5));
        const int64_t n = w.length(pick), cut = n - 1;
        if (mine.size() < 6 && kvc_seq_fork(w.cache, 1, &pick, nullptr, &s, nullptr, &error) == KVC_OK)
          mine.push_back(s);
        if (random() % 3 == 0) {
          const kvc_status status = kvc_seq_truncate(w.cache, 1, &pick, &cut, &error);
          EXPECT_TRUE(status == KVC_OK || status == KVC_ERROR_EVICTED) << error.message;
        }
        kvc_stats stats;
        kvc_stats_init(&stats);
        EXPECT_EQ(kvc_cache_stats(w.cache, -1, &stats, &error), KVC_OK);
        if (random() % 4 == 0) {
          EXPECT_EQ(kvc_cache_check_invariants(w.cache, &error), KVC_OK) << error.message;
        }
        if (mine.size() > 3) {
          const size_t at = random() % mine.size();
          EXPECT_EQ(kvc_seq_remove(w.cache, 1, &mine[at], &error), KVC_OK) << error.message;
          mine.erase(mine.begin() + static_cast<int64_t>(at));
        }
      }
      EXPECT_EQ(kvc_seq_remove(w.cache, static_cast<int64_t>(mine.size()), mine.data(), &error), KVC_OK);
    });
  }
  for (std::thread &t : threads) t.join();
  EXPECT_EQ(kvc_cache_clear(w.cache, nullptr), KVC_OK);
  kvc_stats stats;
  kvc_stats_init(&stats);
  EXPECT_EQ(kvc_cache_stats(w.cache, -1, &stats, nullptr), KVC_OK);
  EXPECT_EQ(stats.pages_used, 0);
}

// The calls of one forward, and one error struct, move from thread to thread, as goroutines and JVM threads do.
TEST(Threads, AForwardAndItsErrorMigrate) {
  World w;
  kvc_error error = KVC_ERROR_INIT;
  kvc_forward f = 0;
  auto on_a_thread = [](auto body) { std::thread(body).join(); };
  on_a_thread([&] { f = w.begin({w.seq}, {2}); });
  for (int l = 0; l < 3; l++) {
    on_a_thread([&] {
      EXPECT_EQ(kvc_forward_end(w.cache, f, &error), KVC_ERROR_ORDER);
      EXPECT_EQ(error.index, l);
    });
    EXPECT_EQ(error.index, l) << "readable where the error struct is, not where the call was";
    on_a_thread([&] {
      LayerTensors t(w.spec.layers[l], 2);
      const kvc_attend_args args = t.attend_args();
      EXPECT_EQ(kvc_forward_attend(w.cache, f, l, &args, &error), KVC_OK);
    });
  }
  on_a_thread([&] { EXPECT_EQ(kvc_forward_end(w.cache, f, &error), KVC_OK); });
  EXPECT_EQ(w.length(w.seq), 22);
}

TEST(Threads, OneContextTwoCaches) {
  ContextPtr context = make_context(2);
  CacheSpec spec = World::default_spec();
  CachePtr a = make_cache(context.get(), spec), b = make_cache(context.get(), spec);
  kvc_context_destroy(context.release());  // caches keep their context alive
  std::vector<std::thread> threads;
  uint64_t digests[2] = {0, 1};
  for (int i = 0; i < 2; i++) {
    threads.emplace_back([&, i] {
      kvc_cache *cache = (i ? b : a).get();
      kvc_seq s = 0;
      EXPECT_EQ(kvc_seq_add(cache, 1, &s, nullptr), KVC_OK);
      for (int step = 0; step < 30; step++) {
        const int32_t n = 1 + step % 2;
        kvc_batch batch;
        kvc_batch_init(&batch);
        batch.sequences = &s;
        batch.append_lengths = &n;
        batch.num_sequences = 1;
        kvc_forward f = 0;
        EXPECT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, nullptr), KVC_OK);
        for (int l = 0; l < 3; l++) {
          LayerTensors t(spec.layers[l], n);
          const kvc_attend_args args = t.attend_args();
          EXPECT_EQ(kvc_forward_attend(cache, f, l, &args, nullptr), KVC_OK);
        }
        EXPECT_EQ(kvc_forward_end(cache, f, nullptr), KVC_OK);
      }
      EXPECT_EQ(kvc_cache_digest(cache, &digests[i], nullptr), KVC_OK);
    });
  }
  for (std::thread &t : threads) t.join();
  EXPECT_EQ(digests[0], digests[1]);
}

struct Log {
  std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> elsewhere{0}, lines{0};
};

// The log callback runs on the thread of the call, with no lock held. So it may call the library.
TEST(Threads, LogOnTheCallingThread) {
  Log log;
  kvc_context_config config;
  kvc_context_config_init(&config);
  config.num_threads = 3;
  config.log_user = &log;
  config.log = [](void *user, int32_t level, const char *message) {
    Log *l = static_cast<Log *>(user);
    if (std::this_thread::get_id() != l->caller) l->elsewhere++;
    EXPECT_GE(level, KVC_LOG_WARNING);
    EXPECT_LE(level, KVC_LOG_DEBUG);
    EXPECT_NE(message, nullptr);
    l->lines++;
  };
  kvc_context *context = nullptr;
  ASSERT_EQ(kvc_context_create(&config, &context, nullptr), KVC_OK);
  ContextPtr owner(context);
  CacheSpec spec = large_spec();
  CachePtr cache = make_cache(context, spec);
  kvc_seq s = 0;
  ASSERT_EQ(kvc_seq_add(cache.get(), 1, &s, nullptr), KVC_OK);
  EXPECT_EQ(log.elsewhere, 0);
}

}  // namespace
}  // namespace kvt
