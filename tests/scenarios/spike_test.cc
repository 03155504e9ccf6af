// Spike probes: one key has a logit of +30 over all others and the only V that is not 0. A query's output is 1 if it
// sees that key and 0 if not, so the mask is exact at every position, window edge and page edge, or the test fails.
#include <gtest/gtest.h>

#include <cmath>

#include "wrappers.h"

namespace kvt {
namespace {

struct Probe {
  int page_size;
  GroupSpec group;
  int length;
  int chunk;
  DType dtype;
  const char *simd;
  std::vector<int> spikes;
  int64_t sinks = 0, stream_window = 0;

  bool sees(int position, int key) const {
    if (key > position) return false;
    if (stream_window == 0) return key >= group.first_seen(position);
    return key < sinks || key >= std::max(sinks, position - (stream_window - sinks) + 1);
  }
};

void run(const Probe &probe) {
  const int n = static_cast<int>(probe.spikes.size()), d = 16, dv = 16;
  CacheSpec spec;
  spec.page_size = probe.page_size;
  spec.max_sequences = n;
  spec.max_batch_tokens = n * probe.chunk;
  const int64_t pages = n * (probe.length / probe.page_size + 2);
  spec.groups = {probe.group};
  spec.groups[0].pages = pages;
  spec.layers = {LayerSpec{0, 2, 1, d, dv, probe.dtype}};
  spec.streaming = probe.stream_window > 0;
  ContextPtr context = make_context(2, probe.simd);
  CachePtr cache = make_cache(context.get(), spec);
  std::vector<kvc_seq> seqs(n);
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_seq_add(cache.get(), n, seqs.data(), &error), KVC_OK) << error.message;
  if (spec.streaming) {
    const std::vector<int64_t> sinks(n, probe.sinks), windows(n, probe.stream_window);
    ASSERT_EQ(kvc_seq_set_streaming(cache.get(), n, seqs.data(), sinks.data(), windows.data(), 0, &error), KVC_OK)
        << error.message;
  }
  for (int start = 0; start < probe.length; start += probe.chunk) {
    const int32_t tokens = std::min(probe.chunk, probe.length - start);
    const std::vector<int32_t> lengths(n, tokens);
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = seqs.data();
    batch.append_lengths = lengths.data();
    batch.num_sequences = n;
    kvc_forward f = 0;
    ASSERT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &f, &error), KVC_OK) << error.message;
    const int64_t total = static_cast<int64_t>(n) * tokens;
    Tensor q(DType::kF32, {total, 2, d}), k(DType::kF32, {total, 1, d}), v(DType::kF32, {total, 1, dv}),
        out(DType::kF32, {total, 2, dv});
    for (int64_t t = 0; t < total; t++) {
      const int spike = probe.spikes[t / tokens], position = start + static_cast<int>(t % tokens);
      for (int i = 0; i < d; i++) {
        const bool hot = position == spike && i == 3;
        k.set(t, 0, i, hot ? 1.0f : 0.0f);
        v.set(t, 0, i, position == spike && i == spike % dv ? 1.0f : 0.0f);
        q.set(t, 0, i, i == 3 ? 120.0f : 0.5f);  // 120 / sqrt(16) = 30
        q.set(t, 1, i, i == 3 ? 120.0f : -2.0f);
      }
    }
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = q.dl();
    args.k = k.dl();
    args.v = v.dl();
    args.out = out.dl();
    ASSERT_EQ(kvc_forward_attend(cache.get(), f, 0, &args, &error), KVC_OK) << error.message;
    for (int64_t t = 0; t < total; t++) {
      const int spike = probe.spikes[t / tokens], position = start + static_cast<int>(t % tokens);
      const bool seen = probe.sees(position, spike);
      for (int h = 0; h < 2; h++) {
        for (int i = 0; i < dv; i++) {
          const float expected = seen && i == spike % dv ? 1.0f : 0.0f;
          ASSERT_NEAR(out.at(t, h, i), expected, seen ? 1e-5 : 0.0)
              << "query " << position << ", spike at " << spike << ", window " << probe.group.window << ", chunk "
              << probe.group.chunk << ", stream " << probe.sinks << " of " << probe.stream_window << ", page "
              << probe.page_size << ", tokens a step " << probe.chunk << ", head " << h << ", dim " << i << ", "
              << name_of(probe.dtype);
        }
      }
    }
    ASSERT_EQ(kvc_forward_end(cache.get(), f, &error), KVC_OK) << error.message;
  }
}

std::vector<int> every(int length) {
  std::vector<int> all;
  for (int i = 0; i < length; i++) all.push_back(i);
  return all;
}

TEST(Spike, EveryQueryAndEveryKey) {
  for (int page : {1, 3, 16, 64}) {
    for (int64_t window : {0, 1, 2, 15, 16, 17, 33}) {
      for (int chunk : {70, 7}) {
        const DType dtype = chunk == 7 ? DType::kBF16 : DType::kF32;
        run({page, {window}, 70, chunk, dtype, nullptr, every(70)});
        if (window > 0) run({page, {0, 0, window}, 70, chunk, dtype, nullptr, every(70)});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Spike, Decode) {
  for (int page : {3, 16}) {
    for (int64_t window : {0, 3, 16, 17}) {
      for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        run({page, {window}, 50, 1, dtype, nullptr, every(50)});
        if (window > 0) run({page, {0, 0, window}, 50, 1, dtype, nullptr, every(50)});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The edges of sinks and window of streams, in decode, in short and in long steps.
TEST(Spike, Streams) {
  for (int page : {1, 3, 16}) {
    for (const auto &[sinks, window] : {std::pair{0, 9}, {1, 2}, {4, 17}, {16, 33}, {20, 24}}) {
      for (int chunk : {1, 7, 70}) {
        const DType dtype = chunk == 7 ? DType::kBF16 : DType::kF32;
        run({page, {}, 70, chunk, dtype, nullptr, every(70), sinks, window});
        if (HasFatalFailure()) return;
      }
    }
  }
  const std::vector<int> spikes{0, 1, 15, 16, 31, 32, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 699};
  for (const auto &[sinks, window] : {std::pair{1, 130}, {64, 129}, {128, 300}, {300, 310}}) {
    for (int chunk : {700, 129}) {
      run({16, {}, 700, chunk, DType::kF32, nullptr, spikes, sinks, window});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Spike, FullyMaskedFirstTilesAndTileEdges) {
  // Long prompts: whole tiles of keys lie before the window, or after the query.
  const std::vector<int> spikes{0, 1, 15, 16, 31, 32, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 699};
  for (int64_t window : {0, 1, 17, 64, 128, 129, 300}) {
    for (int chunk : {700, 129}) {
      run({16, {window}, 700, chunk, DType::kF32, nullptr, spikes});
      if (window > 0) run({16, {0, 0, window}, 700, chunk, DType::kF32, nullptr, spikes});
      if (HasFatalFailure()) return;
    }
    run({5, {window}, 700, 350, DType::kBF16, nullptr, spikes});
    if (HasFatalFailure()) return;
  }
}

TEST(Spike, EveryTarget) {
  std::vector<std::string> targets = simd_targets();
  ASSERT_FALSE(targets.empty());
  targets.push_back("reference");
  for (const std::string &target : targets) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      run({16, {17}, 90, 90, dtype, target.c_str(), every(90)});
      run({16, {0, 0, 17}, 90, 90, dtype, target.c_str(), every(90)});
      run({16, {}, 90, 1, dtype, target.c_str(), {0, 15, 16, 17, 31, 32, 63, 64, 88, 89}});
      run({16, {}, 90, 90, dtype, target.c_str(), every(90), 5, 22});
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace kvt
