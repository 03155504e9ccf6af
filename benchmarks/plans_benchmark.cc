// Plans without a cache: the time that a server spends on the tables of a step, on the host. The lower bound is the
// time to write the tables into the cache of the CPU that holds them.
//
// Targets: 256 rows of decode <= 5 us, verify of 256 x 8 drafts <= 50 us, local virtual batches of 64 sequences of 32k
// <= 100 us.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "kvcache.h"

namespace {

void check(kvc_status status, const kvc_error& error) {
  if (status == KVC_OK) return;
  std::fprintf(stderr, "%s\n", error.message);
  std::exit(1);
}

// A server's arrays for `rows` sequences of `length` tokens in shuffled pages.
class Server {
 public:
  Server(int64_t rows, int64_t length, int64_t columns, int32_t page_size)
      : lengths_(static_cast<size_t>(rows), static_cast<int32_t>(length)), pages_(static_cast<size_t>(rows * columns)) {
    kvc_context_config context_config;
    kvc_context_config_init(&context_config);
    context_config.num_threads = 1;
    check(kvc_context_create(&context_config, &context_, &error_), error_);
    std::iota(pages_.begin(), pages_.end(), 0);
    std::shuffle(pages_.begin(), pages_.end(), std::mt19937(1));
    shapes_[0] = rows;
    shapes_[1] = columns;
    kvc_plan_config_init(&config);
    config.page_size = page_size;
    config.num_pool_pages = rows * columns;
    kvc_plan_args_init(&args);
    args.seq_lens = tensor(lengths_.data(), 1, shapes_, &tensors_[0]);
    args.block_table = tensor(pages_.data(), 2, shapes_, &tensors_[1]);
  }
  ~Server() {
    kvc_plan_destroy(plan_);
    kvc_context_destroy(context_);
  }
  Server(const Server&) = delete;

  static DLTensor* tensor(int32_t* data, int32_t ndim, int64_t* shape, DLTensor* out) {
    *out = {data, {kDLCPU, 0}, ndim, {kDLInt, 32, 1}, shape, nullptr, 0};
    return out;
  }
  std::vector<int32_t>& lengths() { return lengths_; }
  void make() { check(kvc_plan_create(context_, &config, &plan_, &error_), error_); }
  void build() { check(kvc_plan_build(plan_, &args, nullptr, nullptr, &error_), error_); }

  kvc_plan_config config;
  kvc_plan_args args;

 private:
  std::vector<int32_t> lengths_, pages_;
  int64_t shapes_[2];
  DLTensor tensors_[2];
  kvc_context* context_ = nullptr;
  kvc_plan* plan_ = nullptr;
  kvc_error error_ = KVC_ERROR_INIT;
};

// Times builds one by one. Before each, `next` changes the server's arrays. The median is the figure, because the mean
// includes what else the machine did.
template <class Next>
void measure(benchmark::State& state, Server& server, double target_us, Next next) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> us;
  server.build();
  for (auto _ : state) {
    next();
    const auto begin = Clock::now();
    server.build();
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    state.SetIterationTime(us.back() * 1e-6);
  }
  std::nth_element(us.begin(), us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2), us.end());
  state.counters["median_us"] = us[us.size() / 2];
  state.counters["target_us"] = target_us;
}

// 256 rows, each one token longer than in the step before. Only what is new is read.
void Decode(benchmark::State& state) {
  const int64_t context = state.range(0);
  const bool grown = state.range(1) != 0;
  Server server(256, context, (context + 8192) / 16, 16);
  server.config.mode = KVC_PLAN_DECODE;
  server.config.arrays = KVC_TABLES_DENSE | KVC_TABLES_TOKENS;
  server.make();
  measure(state, server, grown ? 5 : 0, [&] {
    for (int32_t& length : server.lengths()) ++length;
    server.args.flags = grown ? KVC_PLAN_ROWS_GREW : 0;
  });
}
BENCHMARK(Decode)
    ->ArgNames({"context", "grown"})
    ->ArgsProduct({{1024, 32768}, {1, 0}})
    ->Iterations(4000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// 256 rows of 8 drafts: chains, or trees by their parts. Prefixes of 2k tokens.
void Verify(benchmark::State& state) {
  Server server(256, 2000, 160, 16);
  server.config.mode = KVC_PLAN_VERIFY;
  server.config.num_draft_tokens = 8;
  server.config.arrays =
      state.range(1) != 0 ? KVC_TABLES_CSR | KVC_TABLES_TOKENS : KVC_TABLES_DENSE | KVC_TABLES_TOKENS;
  std::vector<int32_t> parents;
  for (int row = 0; row < 256; ++row) {
    for (int i = 0; i < 8; ++i) parents.push_back((i - 1) / 2 - (i == 0 ? 1 : 0));
  }
  int64_t size = static_cast<int64_t>(parents.size());
  DLTensor tensor;
  if (state.range(0) != 0) server.args.tree_parents = Server::tensor(parents.data(), 1, &size, &tensor);
  server.make();
  measure(state, server, 50, [] {});
}
BENCHMARK(Verify)
    ->ArgNames({"tree", "csr"})
    ->ArgsProduct({{0, 1}, {0, 1}})
    ->Iterations(4000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// 256 rows after prefixes of 2k tokens: five draft steps of k branches in one build. It has no target. With branches,
// each of the five tables has two parts.
void DraftDecode(benchmark::State& state) {
  Server server(256, 2000, 160, 16);
  server.config.mode = KVC_PLAN_DRAFT_DECODE;
  server.config.num_steps = 5;
  server.config.top_k = static_cast<int32_t>(state.range(0));
  server.config.arrays = KVC_TABLES_DENSE | KVC_TABLES_TOKENS;
  server.make();
  measure(state, server, 0, [] {});
}
BENCHMARK(DraftDecode)
    ->ArgName("top_k")
    ->Arg(1)
    ->Arg(4)
    ->Iterations(4000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// 64 prompts of 32k tokens in chunks of 8k: 256 virtual rows. Slots and positions are not built here, because the plan
// of the full layers has them.
void LocalVirtualBatches(benchmark::State& state) {
  Server server(64, 0, 2048, 16);
  server.config.mode = KVC_PLAN_EXTEND;
  server.config.chunk_tokens = state.range(0);
  server.config.arrays = KVC_TABLES_DENSE;
  std::vector<int32_t> fresh(64, 32768);
  int64_t size = 64;
  DLTensor tensor;
  server.args.append_lengths = Server::tensor(fresh.data(), 1, &size, &tensor);
  server.make();
  measure(state, server, 100, [] {});
}
BENCHMARK(LocalVirtualBatches)
    ->ArgName("chunk")
    ->Arg(8192)
    ->Arg(8190)
    ->Iterations(4000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
