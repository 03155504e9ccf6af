// A host tier in pinned memory: pages go between the pools and the tier in asynchronous copies, and through no other
// memory of the host.
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_runtime.h"
#include "tiers_fixture.h"

namespace kvt {
namespace {

using cuda_emulation::counts;
using cuda_emulation::pinned_counts;

constexpr int64_t kTierBytes = int64_t{4} << 20;  // 64 MiB of pinned memory

class Pinned : public testing::Test {
 protected:
  Pinned() { setenv("KVC_TEST_DEVICE", "cuda", 1); }
  ~Pinned() override {
    cuda_emulation::fail_call(0, cudaSuccess);
    cuda_emulation::set_order(cuda_emulation::kAtOnce);
  }
  // Pages of 128 KiB.
  static TieredSpec large_pages() {
    TieredSpec spec;
    spec.heads = 1024;
    return spec;
  }
  static TieredSpec all_groups() {
    TieredSpec spec;
    spec.groups = {{KVC_ROW_KV, 0}, {KVC_ROW_KV, 6}, {KVC_ROW_STATE, 0}};
    return spec;
  }
};

TEST_F(Pinned, PagesAreCopiedDirectly) {
  constexpr int64_t kPages = 8, kPageBytes = 128 << 10;
  const Tokens prompt = count_to(4 * kPages);
  for (const bool pinned : {true, false}) {
    SCOPED_TRACE(pinned);
    TieredEngine engine{large_pages()};
    ASSERT_EQ(engine.add_host(kTierBytes, pinned), KVC_OK);
    int64_t copies = counts().copies, pageable = pinned_counts().pageable_bytes;
    engine.serve(prompt);
    engine.wait_stored();
    EXPECT_EQ(engine.traffic().pages_stored, kPages);
    // A copy for each page, beside the small ones of the steps and of slots.
    EXPECT_LT(counts().copies - copies, 3 * kPages);
    EXPECT_EQ(pinned_counts().pageable_bytes - pageable, pinned ? 0 : kPages * kPageBytes);
    engine.forget_all();
    copies = counts().copies, pageable = pinned_counts().pageable_bytes;
    EXPECT_EQ(engine.load(prompt), 4 * kPages);
    // Without pinned memory, pieces of 64 KiB pass through the ring of the device.
    EXPECT_EQ(counts().copies - copies, kPages * (pinned ? 2 : 3));
    EXPECT_EQ(pinned_counts().pageable_bytes, pageable);
    EXPECT_EQ(engine.serve(prompt).tokens, 4 * kPages - 1);
  }
}

TEST_F(Pinned, MemoryIsAllocatedWithTheTierAndFreedWithTheCache) {
  const auto before = pinned_counts();
  {
    TieredEngine engine{TieredSpec{}};
    const auto without = pinned_counts();
    ASSERT_EQ(engine.add_host(int64_t{40} << 20, true), KVC_OK);  // 640 MiB: two chunks of 256 MiB and the rest
    EXPECT_EQ(pinned_counts().blocks - without.blocks, 3);
    EXPECT_EQ(pinned_counts().bytes - without.bytes, int64_t{640} << 20);
    engine.context.reset();  // the cache keeps the device
    engine.serve(count_to(32));
    engine.wait_stored();
    EXPECT_EQ(pinned_counts().blocks - without.blocks, 3);
  }
  EXPECT_EQ(pinned_counts().blocks, before.blocks);
  EXPECT_EQ(pinned_counts().bytes, before.bytes);
}

TEST_F(Pinned, WithoutMemoryTheTierIsRefused) {
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add_host(kTierBytes, false), KVC_OK);  // what the first tier of a cache allocates is there
  for (int64_t n = 1;; ++n) {
    SCOPED_TRACE(n);
    const int64_t held = counts().held;
    kvc_error error = KVC_ERROR_INIT;
    cuda_emulation::fail_call(n, cudaErrorMemoryAllocation);
    const kvc_status status = engine.add_host(int64_t{40} << 20, true, &error);
    const bool failed = cuda_emulation::calls() >= n;
    cuda_emulation::fail_call(0, cudaSuccess);
    if (!failed) {
      EXPECT_EQ(status, KVC_OK) << error.message;
      EXPECT_GT(n, 6);
      break;
    }
    EXPECT_NE(status, KVC_OK);
    EXPECT_TRUE(n > 3 || status == KVC_ERROR_OUT_OF_MEMORY) << error.message;
    EXPECT_EQ(engine.traffic().num_tiers, 1);
    EXPECT_EQ(counts().held, held);
  }
  EXPECT_EQ(engine.traffic().num_tiers, 2);
  engine.serve(count_to(32));
  engine.wait_stored();
  EXPECT_EQ(engine.traffic().pages_stored, 16);
}

// While the tier works, operations wait on the device until a call of the host needs them, in any order that the
// streams allow. The tier is so small that memory of evicted objects is used again at once.
TEST_F(Pinned, WorkInFlightNeverMeetsTheMemoryOfOtherPages) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const auto deferred = [seed](auto work) {
      cuda_emulation::set_order(cuda_emulation::kInTurn + seed);
      work();
      cudaDeviceSynchronize();
      cuda_emulation::set_order(cuda_emulation::kAtOnce);
    };
    TieredSpec spec = all_groups();
    spec.pages = 80;
    TieredEngine engine{spec};
    ASSERT_EQ(engine.add_host((seed % 3 == 0 ? 200 : 60) * 4096, true), KVC_OK);
    for (int round = 0; round < 6; ++round) {
      const Tokens prompt = count_to(120, 1000 * (round % 3));
      deferred([&] { engine.load(prompt); });
      engine.serve(prompt, 0, 0, {40, 80});
      deferred([&] { engine.wait_stored(); });
      const kvc_seq seq = engine.add_sequence();
      engine.compute(seq, count_to(21), 0, 21);
      deferred([&] { ASSERT_EQ(engine.suspend(seq), KVC_OK); });
      engine.forget_all();
      engine.serve(count_to(100, -5000 * (round + 1)));
      deferred([&] {
        if (round % 2 == 0) engine.wait_stored();
        ASSERT_EQ(engine.resume(seq), KVC_OK);
      });
      engine.check(seq, count_to(21), 21);
      engine.remove(seq);
      engine.forget_all();
      deferred([&] { engine.load(prompt); });  // what the tier has kept
      engine.serve(prompt);
    }
    EXPECT_GT(engine.traffic().pages_loaded, 0);
    EXPECT_EQ(engine.traffic().pages_not_loaded, 0);
  }
}

// Whether the order of the streams was lost. Then only the destruction of the cache is left.
bool is_lost(const TieredEngine &engine) {
  const kvc_seq none = 0;
  kvc_seq copy = 0;
  return kvc_seq_fork(engine.cache(), 1, &none, nullptr, &copy, nullptr, nullptr) == KVC_ERROR_DEVICE_FAILED;
}

// A call of the runtime fails while pages are stored or loaded. What is found later is right.
TEST_F(Pinned, FailedCopiesLeaveNothingWrong) {
  const Tokens prompt = count_to(32);
  for (int64_t n = 1; n < 60; ++n) {
    SCOPED_TRACE(n);
    TieredEngine engine{all_groups()};
    ASSERT_EQ(engine.add_host(kTierBytes, true), KVC_OK);
    if (n % 2 == 0) {
      engine.serve(prompt);
      engine.wait_stored();
      engine.forget_all();
      cuda_emulation::fail_call(n / 2, cudaErrorInvalidValue);
      const kvc_job job = engine.start(prompt);
      kvc_error error = KVC_ERROR_INIT;
      if (job != 0) engine.end(job, &error);
    } else {
      const kvc_seq seq = engine.add_sequence();
      engine.compute(seq, count_to(19), 0, 19);
      cuda_emulation::fail_call(n / 2 + 1, cudaErrorInvalidValue);
      const bool suspended = engine.suspend(seq) == KVC_OK;
      cuda_emulation::fail_call(0, cudaSuccess);
      if (is_lost(engine)) continue;
      if (suspended) {
        ASSERT_EQ(engine.resume(seq), KVC_OK);
      }
      engine.check(seq, count_to(19), 19);
      engine.remove(seq);
    }
    cuda_emulation::fail_call(0, cudaSuccess);
    if (is_lost(engine)) continue;
    kvc_prefix_query query = Prefix::query(prompt);
    kvc_prefix_hit hit;
    kvc_prefix_hit_init(&hit);
    kvc_seq seq = 0;
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status attached = kvc_prefix_attach(engine.cache(), &query, nullptr, &hit, &seq, &error);
    ASSERT_EQ(attached, KVC_OK) << error.message;
    engine.check(seq, prompt, hit.tokens);
    engine.remove(seq);
  }
}

// The child uses no pinned memory, and does not free it.
TEST_F(Pinned, AChildOfForkLeavesItAlone) {
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add_host(kTierBytes, true), KVC_OK);
  const Tokens prompt = count_to(32);
  engine.serve(prompt);
  engine.wait_stored();
  engine.forget_all();
  const pid_t child = fork();
  if (child == 0) {
    const int64_t calls = cuda_emulation::calls();
    bool ok = engine.start(prompt) == 0 && engine.traffic().pages_waiting == 0 && cuda_emulation::calls() == calls;
    kvc_cache_destroy(engine.made);
    ok = ok && pinned_counts().bytes >= 16 * kTierBytes;
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(engine.load(prompt), 32);
  EXPECT_EQ(engine.serve(prompt).tokens, 31);
}

}  // namespace
}  // namespace kvt
