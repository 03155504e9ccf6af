// The cache manager: steps of 256 decoding sequences, pages, forks. No K or V moves here. The times are those of the
// bookkeeping of what changed, so they must not grow with the context.
//
// Targets (docs/internals/testing.md has them all): begin + end <= 10 us and flat from 1k to 128k tokens of context,
// with forks as well; a page allocated, shared and freed < 100 ns; a fork of 100k tokens <= 5 us at page size 16 and 1.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kvcache.h"
#include "page/page_table.h"

namespace {

using Clock = std::chrono::steady_clock;

void check(kvc_status status, const kvc_error& error) {
  if (status == KVC_OK) return;
  std::fprintf(stderr, "%s\n", error.message);
  std::exit(1);
}

// A cache whose one layer is as small as a layer can be, so that only the manager takes time.
class Cache {
 public:
  Cache(int32_t page_size, int64_t capacity_tokens, int32_t max_sequences, int64_t window = 0) {
    kvc_context_config context_config;
    kvc_context_config_init(&context_config);
    context_config.num_threads = 1;
    check(kvc_context_create(&context_config, &context_, &error_), error_);
    kvc_layer_config layers[2];
    kvc_group_config groups[2];
    for (int i = 0; i < 2; ++i) {
      kvc_layer_config_init(&layers[i]);
      layers[i].num_q_heads = layers[i].num_kv_heads = layers[i].head_dim = 1;
      layers[i].dtype = {kDLBfloat, 16, 1};
      layers[i].group = i;
      kvc_group_config_init(&groups[i]);
    }
    groups[1].visibility = KVC_VISIBLE_WINDOW;
    groups[1].window_tokens = window;
    num_layers_ = window > 0 ? 2 : 1;
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = layers;
    config.groups = groups;
    config.num_layers = config.num_groups = num_layers_;
    config.page_size = page_size;
    config.max_sequences = max_sequences;
    config.max_batch_tokens = 65536;
    config.capacity_tokens = capacity_tokens;
    check(kvc_cache_create(context_, &config, &cache_, &error_), error_);
    rows_.resize(65536);
  }
  ~Cache() {
    kvc_cache_destroy(cache_);
    kvc_context_destroy(context_);
  }

  kvc_seq add() {
    kvc_seq seq = 0;
    check(kvc_seq_add(cache_, 1, &seq, &error_), error_);
    return seq;
  }
  void remove(const std::vector<kvc_seq>& seqs) {
    check(kvc_seq_remove(cache_, static_cast<int64_t>(seqs.size()), seqs.data(), &error_), error_);
  }
  std::vector<kvc_seq> fork(kvc_seq parent, size_t n) {
    const std::vector<kvc_seq> parents(n, parent);
    std::vector<kvc_seq> children(n);
    check(kvc_seq_fork(cache_, static_cast<int64_t>(n), parents.data(), nullptr, children.data(), nullptr, &error_),
          error_);
    return children;
  }
  void fill(kvc_seq seq, int64_t tokens) {
    while (tokens > 0) {
      const auto chunk = static_cast<int32_t>(tokens < 65536 ? tokens : 65536);
      step({seq}, {chunk});
      tokens -= chunk;
    }
  }
  // Returns the nanoseconds of begin and end alone.
  double step(const std::vector<kvc_seq>& seqs, const std::vector<int32_t>& lengths) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = seqs.data();
    batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(seqs.size());
    int64_t tokens = 0;
    for (const int32_t n : lengths) tokens += n;
    kvc_forward forward = 0;
    const auto t0 = Clock::now();
    check(kvc_forward_begin(cache_, &batch, nullptr, &forward, &error_), error_);
    const auto t1 = Clock::now();
    int64_t shape[3] = {tokens, 1, 1};
    const DLTensor rows = {rows_.data(), {kDLCPU, 0}, 3, {kDLBfloat, 16, 1}, shape, nullptr, 0};
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = args.v = &rows;
    for (int32_t layer = 0; layer < num_layers_; ++layer) {
      check(kvc_forward_append(cache_, forward, layer, &args, &error_), error_);
    }
    const auto t2 = Clock::now();
    check(kvc_forward_end(cache_, forward, &error_), error_);
    const auto t3 = Clock::now();
    return std::chrono::duration<double, std::nano>((t1 - t0) + (t3 - t2)).count();
  }

 private:
  kvc_context* context_ = nullptr;
  kvc_cache* cache_ = nullptr;
  kvc_error error_ = KVC_ERROR_INIT;
  int32_t num_layers_ = 1;
  std::vector<uint16_t> rows_;
};

constexpr int kBatch = 256;

// The median is the figure, because the mean includes what else the machine did. One step in page_size takes new pages,
// and the 97th percentile is the median of those steps.
void report_median(benchmark::State& state, std::vector<double>& us, double target_us) {
  std::sort(us.begin(), us.end());
  state.counters["median_us"] = us[us.size() / 2];
  state.counters["p97_us"] = us[us.size() * 97 / 100];
  state.counters["target_us"] = target_us;
}

// Arguments: context in tokens; whether the sequences are forks of one; window of a second group (0 = no such group).
void BeginEnd256(benchmark::State& state) {
  const int64_t context = state.range(0);
  const bool forked = state.range(1) != 0;
  Cache cache(16, forked ? context + kBatch * 65536 : kBatch * (context + 8192), kBatch + 1, state.range(2));
  std::vector<kvc_seq> seqs;
  if (forked) {
    const kvc_seq parent = cache.add();
    cache.fill(parent, context);
    seqs = cache.fork(parent, kBatch);
  } else {
    for (int i = 0; i < kBatch; ++i) {
      seqs.push_back(cache.add());
      cache.fill(seqs.back(), context);
    }
  }
  const std::vector<int32_t> lengths(kBatch, 1);
  for (int i = 0; i < 64; ++i) cache.step(seqs, lengths);
  std::vector<double> us;
  us.reserve(4000);
  for (auto _ : state) {
    us.push_back(cache.step(seqs, lengths) * 1e-3);
    state.SetIterationTime(us.back() * 1e-6);
  }
  report_median(state, us, 10);
}
BENCHMARK(BeginEnd256)
    ->ArgNames({"context", "forked", "window"})
    ->ArgsProduct({{1 << 10, 1 << 12, 1 << 15, 1 << 17}, {0, 1}, {0}})
    ->Args({1 << 15, 1, 512})
    ->UseManualTime()
    ->Iterations(4000)
    ->Unit(benchmark::kMicrosecond);

void PageAllocateShareFree(benchmark::State& state) {
  constexpr int64_t kPages = 1 << 16;
  kvc::PageTable table(kPages, kvc::PageTable::nodes_needed(kPages, 4, kPages, false));
  constexpr int kAtOnce = 4096;
  for (auto _ : state) {
    kvc::PageList list;
    for (int i = 0; i < kAtOnce; ++i) table.append(list);
    kvc::PageList shared = table.share(list, kAtOnce);
    table.release(list);
    table.release(shared);
  }
  state.SetItemsProcessed(state.iterations() * kAtOnce);
  state.counters["ns_a_page"] = benchmark::Counter(static_cast<double>(state.iterations()) * kAtOnce * 1e-9,
                                                   benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["target_ns_a_page"] = 100;
}
BENCHMARK(PageAllocateShareFree);

// Arguments: page size; whether the position is in the middle of a page or at the end of one.
void Fork100k(benchmark::State& state) {
  const auto page_size = static_cast<int32_t>(state.range(0));
  Cache cache(page_size, 200000, 70);
  const kvc_seq parent = cache.add();
  cache.fill(parent, 100000 + (state.range(1) != 0 ? 5 : 0));
  std::vector<double> us;
  us.reserve(1 << 14);
  for (auto _ : state) {
    const auto begin = Clock::now();
    const std::vector<kvc_seq> child = cache.fork(parent, 1);
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    state.SetIterationTime(us.back() * 1e-6);
    cache.remove(child);
  }
  report_median(state, us, 5);
}
BENCHMARK(Fork100k)
    ->ArgNames({"page_size", "partial"})
    ->Args({16, 0})
    ->Args({16, 1})
    ->Args({1, 0})
    ->UseManualTime()
    ->Iterations(1 << 14)
    ->Unit(benchmark::kMicrosecond);

// The bookkeeping that 256 forks of a long sequence add. They share every page, so it is nodes alone.
void ForkBytes(benchmark::State& state) {
  constexpr int64_t kTokens = 131072;
  const int64_t page_size = state.range(0);
  const int64_t pages = kTokens / page_size;
  double bytes = 0;
  for (auto _ : state) {
    kvc::PageTable table(2 * pages, kvc::PageTable::nodes_needed(2 * pages, 300, 2 * pages, false));
    kvc::PageList parent;
    for (int64_t i = 0; i < pages; ++i) table.append(parent);
    const int64_t before = table.nodes().used();
    std::vector<kvc::PageList> children;
    for (int i = 0; i < 256; ++i) children.push_back(table.share(parent, pages - 3 * i));
    bytes = static_cast<double>(table.nodes().used() - before) * (kvc::PageTable::kFanout * 4 + 8);
  }
  state.counters["KiB_256_forks"] = bytes / 1024;
}
BENCHMARK(ForkBytes)->ArgName("page_size")->Arg(16)->Arg(1)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
