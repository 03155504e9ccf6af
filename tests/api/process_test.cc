// The process around the library: fork(), floating-point modes, standard output.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <cmath>
#include <filesystem>
#include <thread>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "fixture.h"

namespace kvt {
namespace {

std::vector<uint8_t> prefill(World &w, kvc_seq s, int32_t n) {
  std::vector<uint8_t> bytes;
  const kvc_forward f = w.begin({s}, {n});
  for (size_t l = 0; l < w.spec.layers.size(); l++) {
    LayerTensors t(w.spec.layers[l], n);
    const kvc_attend_args args = t.attend_args();
    EXPECT_EQ(kvc_forward_attend(w.cache, f, static_cast<int32_t>(l), &args, nullptr), KVC_OK);
    bytes.insert(bytes.end(), t.out.bytes().begin(), t.out.bytes().end());
  }
  EXPECT_EQ(kvc_forward_end(w.cache, f, nullptr), KVC_OK);
  return bytes;
}

CacheSpec fork_spec() {
  CacheSpec spec;
  spec.max_sequences = 8;
  spec.max_batch_tokens = 256;
  spec.groups = {{0, 100}, {50, 100}};
  spec.layers = {LayerSpec{0, 8, 2, 64}, LayerSpec{1, 8, 2, 64}};
  return spec;
}

#if defined(__SANITIZE_THREAD__)
constexpr bool kCanFork = false;  // the thread sanitizer does not follow threads into a child
#else
constexpr bool kCanFork = true;
#endif

// After fork() the child's tables and compute calls work, and its worker threads start anew. The parent's work too.
TEST(Process, ForkedChildComputes) {
  if (!kCanFork) GTEST_SKIP();
  for (bool warm : {false, true}) {
    World w(fork_spec(), 3, 0);
    if (warm) prefill(w, w.seq, 200);  // workers have started
    const kvc_forward open = w.begin({w.forked}, {5});
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      int failures = 0;
      kvc_seq s = 0;
      failures += kvc_seq_add(w.cache, 1, &s, nullptr) != KVC_OK;
      const std::vector<uint8_t> bytes = prefill(w, s, 200);
      World fresh(fork_spec(), 3, 0);
      failures += bytes != prefill(fresh, fresh.seq, 200);
      failures += kvc_forward_abort(w.cache, open, nullptr) != KVC_OK;
      failures += kvc_cache_check_invariants(w.cache, nullptr) != KVC_OK;
      failures += testing::Test::HasFailure();
      w.cache_owner.reset();
      w.context.reset();
      _exit(failures ? 1 : 0);
    }
    kvc_seq s = 0;
    EXPECT_EQ(kvc_seq_add(w.cache, 1, &s, nullptr), KVC_OK);
    prefill(w, s, 150);
    w.attend_all(open, 5);
    EXPECT_EQ(kvc_forward_end(w.cache, open, nullptr), KVC_OK);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "child ended with " << status;
    EXPECT_EQ(kvc_cache_check_invariants(w.cache, nullptr), KVC_OK);
  }
}

int64_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

// The process forks while another thread is inside a call of one cache. The child may use the other caches, also those
// of the same context.
TEST(Process, ForkWhileAnotherThreadComputes) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "gcc 12's address sanitizer does not free its allocator's locks in a child";
#endif
  if (!kCanFork) GTEST_SKIP();
  World busy(fork_spec(), 3, 0), other(fork_spec(), 3, 0);
  other.cache_owner = make_cache(busy.context.get(), fork_spec());
  other.cache = other.cache_owner.get();
  ASSERT_EQ(kvc_seq_add(other.cache, 1, &other.seq, nullptr), KVC_OK);
  const std::vector<uint8_t> expected = prefill(other, other.seq, 200);
  std::atomic<bool> stop{false};
  std::thread computing([&] {
    const int64_t nothing = 0;
    while (!stop) {
      prefill(busy, busy.seq, 200);
      kvc_seq_truncate(busy.cache, 1, &busy.seq, &nothing, nullptr);
    }
  });
  for (int i = 0; i < 20; i++) {
    usleep(static_cast<useconds_t>(500 * i));  // each time at another place of the other thread's step
    const pid_t child = ::fork();
    if (child == 0) {
      alarm(60);
      const int64_t nothing = 0, alone = threads_of_this_process();  // an emulator has threads of its own
      const bool good = kvc_seq_truncate(other.cache, 1, &other.seq, &nothing, nullptr) == KVC_OK &&
                        prefill(other, other.seq, 200) == expected &&
                        threads_of_this_process() == alone + 2 &&  // the child's own workers
                        kvc_cache_check_invariants(other.cache, nullptr) == KVC_OK;
      _exit(good && !testing::Test::HasFailure() ? 0 : 1);
    }
    int status = 1;
    EXPECT_TRUE(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT_EQ(status, 0) << "fork " << i;
  }
  stop = true;
  computing.join();
  EXPECT_EQ(kvc_cache_check_invariants(busy.cache, nullptr), KVC_OK);
}

#if defined(__x86_64__)
// The host's flush-to-zero, rounding mode and exception flags change no bit of the result, and are not changed.
TEST(Process, FloatingPointModesOfTheHost) {
  for (int threads : {1, 3}) {
    auto compute = [&](unsigned mode) {
      CacheSpec spec;
      spec.max_batch_tokens = 256;
      spec.groups = {{0, 100}};
      spec.layers = {LayerSpec{0, 8, 2, 32}, LayerSpec{0, 2, 2, 32, 0, DType::kF16}};
      World w(spec, threads, 0);
      std::vector<uint8_t> bytes;
      for (int32_t n : {120, 1}) {
        const kvc_forward f = w.begin({w.seq}, {n});
        for (int l = 0; l < 2; l++) {
          LayerTensors t(spec.layers[l], n);
          for (int64_t i = 0; i < n; i++) {
            for (int h = 0; h < spec.layers[l].hkv; h++) {
              // Subnormal in float32 (layer 0), and in float16 (layer 1).
              for (int d = 0; d < 32; d++)
                t.v.set(i, h, d, (l ? 3e-7f : 1e-39f) * static_cast<float>(1 + (i * 7 + d) % 50));
            }
          }
          const kvc_attend_args args = t.attend_args();
          const unsigned before = _mm_getcsr();
          _mm_setcsr(mode ? (before & ~0x3fu) | mode : before);
          const unsigned set = _mm_getcsr();
          const kvc_status status = kvc_forward_attend(w.cache, f, l, &args, nullptr);
          const unsigned after = _mm_getcsr();
          _mm_setcsr(before);
          EXPECT_EQ(status, KVC_OK);
          EXPECT_EQ(after & ~0x3fu, set & ~0x3fu) << "modes changed by attend";
          bytes.insert(bytes.end(), t.out.bytes().begin(), t.out.bytes().end());
          bool subnormal = l == 1;
          for (int d = 0; d < 32; d++) subnormal = subnormal || t.out.at(n - 1, 0, d) != 0.0f;
          EXPECT_TRUE(subnormal) << "subnormal values were flushed";
        }
        EXPECT_EQ(kvc_forward_end(w.cache, f, nullptr), KVC_OK);
      }
      return bytes;
    };
    const std::vector<uint8_t> normal = compute(0);
    EXPECT_EQ(normal, compute(0x8040)) << "flush to zero, denormals are zero";
    EXPECT_EQ(normal, compute(0x6000)) << "rounding toward zero";
    EXPECT_EQ(normal, compute(0xA040)) << "rounding down, both flushes";
  }
}
#endif

TEST(Process, NothingOnStandardOutputOrError) {
  std::fflush(nullptr);
  const int file = memfd_create("output", 0), out = dup(1), err = dup(2);
  ASSERT_GE(file, 0);
  dup2(file, 1);
  dup2(file, 2);
  {
    World w(fork_spec(), 3, 100);
    kvc_error error = KVC_ERROR_INIT;
    kvc_seq_remove(w.cache, 1, nullptr, &error);
    kvc_forward_end(w.cache, 12345, &error);
    w.begin({w.seq}, {3});  // left open at destroy
  }
  std::fflush(nullptr);
  dup2(out, 1);
  dup2(err, 2);
  EXPECT_EQ(lseek(file, 0, SEEK_END), 0);
  close(file);
  close(out);
  close(err);
}

}  // namespace
}  // namespace kvt
