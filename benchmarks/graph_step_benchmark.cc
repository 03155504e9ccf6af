// What a server pays on the host for each token: begin and end of a decode step of 256 rows, in a graph of 32 layers.
// The attention between them is one replay of recorded calls, so it is not measured here.
//
// On the CPU, the step has only the bookkeeping, because the plan of the attention is made by the first attend. A GPU
// also needs the plan at begin, and its arrays are sent. KVCACHE_CUDA_BACKEND names the plug-in. With
// libkvcache_cuda_emulated_plugin.so (tests/cuda), this part can be followed without a GPU: the emulation only queues
// the work of the device during begin and end, and does it outside of the measured time.
//
// Target: <= 20 us through Python on the host of an H200 (benchmarks/cuda/works.py).
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kvcache.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int32_t kRows = 256, kLayers = 32, kHeads = 8, kHeadDim = 16, kPageSize = 16, kFirstTokens = 112;

void check(kvc_status status, const kvc_error& error) {
  if (status == KVC_OK) return;
  std::fprintf(stderr, "%s\n", error.message);
  std::exit(1);
}

// Functions of the emulated plug-in (tests/cuda/emulation/exports.cc). Another plug-in has none of them.
class Emulation {
 public:
  Emulation() {
    const char* const path = std::getenv("KVCACHE_CUDA_BACKEND");
    plugin_ = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    call("emulation_set_multiprocessors", 132);
    call("emulation_defer", 1);
  }
  // Does the queued work.
  void synchronize() {
    if (void* const function = find("emulation_synchronize")) reinterpret_cast<void (*)()>(function)();
  }

 private:
  void* find(const char* name) { return plugin_ == nullptr ? nullptr : dlsym(plugin_, name); }
  void call(const char* name, int argument) {
    if (void* const function = find(name)) reinterpret_cast<void (*)(int)>(function)(argument);
  }
  void* plugin_;
};

class Server {
 public:
  // room: the largest length of a sequence. spread: the lengths differ, so each step takes new pages for one row in 16.
  // Otherwise all rows take a new page in the same step, one step in 16.
  Server(DLDeviceType type, int32_t room, bool spread) : device_{type, 0} {
    for (int32_t row = 0; row < kRows; ++row) first_tokens_[row] = kFirstTokens - (spread ? row % kPageSize : 0);
    kvc_context_config context_config;
    kvc_context_config_init(&context_config);
    context_config.device_type = type;
    context_config.num_threads = 1;
    if (kvc_context_create(&context_config, &context_, &error_) != KVC_OK) return;
    kvc_layer_config layers[kLayers];
    for (kvc_layer_config& layer : layers) {
      kvc_layer_config_init(&layer);
      layer.num_q_heads = layer.num_kv_heads = kHeads;
      layer.head_dim = kHeadDim;
      layer.dtype = {kDLBfloat, 16, 1};
    }
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = layers;
    config.num_layers = kLayers;
    config.page_size = kPageSize;
    config.max_sequences = kRows;
    config.max_batch_tokens = kRows;
    config.capacity_tokens = kRows * room;
    check(kvc_cache_create(context_, &config, &cache_, &error_), error_);
    check(kvc_seq_add(cache_, kRows, ids_.data(), &error_), error_);
    kvc_graph_config graph_config;
    kvc_graph_config_init(&graph_config);
    graph_config.max_sequences = kRows;
    graph_config.max_tokens = kRows;
    check(kvc_graph_create(cache_, &graph_config, &graph_, &error_), error_);
    // A GPU replays the recorded calls of the first step.
    for (int i = 0; i < kFirstTokens; ++i) step(type == kDLCPU || i == 0);
    rewind();
  }
  ~Server() {
    emulation_.synchronize();
    kvc_cache_destroy(cache_);
    kvc_context_destroy(context_);
  }
  Server(const Server&) = delete;

  bool opened() const { return cache_ != nullptr; }
  // Reads 16 MiB, so that what the next step reads is in no cache of its own core.
  void cool() {
    for (size_t i = 0; i < other_.size(); i += 64) benchmark::DoNotOptimize(sum_ += other_[i]);
  }
  // Begins a step and aborts it, so that what the next step reads is in the caches of the CPU.
  void warm() {
    kvc_forward forward = 0;
    const kvc_batch batch = this->batch();
    check(kvc_forward_begin(cache_, &batch, nullptr, &forward, &error_), error_);
    check(kvc_forward_abort(cache_, forward, &error_), error_);
  }
  // Returns the microseconds of begin and end.
  double step(bool appends) {
    const kvc_batch batch = this->batch();
    kvc_forward forward = 0;
    const auto t0 = Clock::now();
    check(kvc_forward_begin(cache_, &batch, nullptr, &forward, &error_), error_);
    const auto t1 = Clock::now();
    if (appends) append(forward);
    const auto t2 = Clock::now();
    check(kvc_forward_end(cache_, forward, &error_), error_);
    const auto t3 = Clock::now();
    emulation_.synchronize();
    return std::chrono::duration<double, std::micro>((t1 - t0) + (t3 - t2)).count();
  }
  // All sequences return to their first length.
  void rewind() { check(kvc_seq_truncate(cache_, kRows, ids_.data(), first_tokens_.data(), &error_), error_); }

 private:
  kvc_batch batch() const {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = ids_.data();
    batch.append_lengths = lengths_.data();
    batch.num_sequences = kRows;
    batch.graph = graph_;
    return batch;
  }
  void append(kvc_forward forward) {
    int64_t shape[3] = {kRows, kHeads, kHeadDim};
    const DLTensor rows = {rows_.data(), device_, 3, {kDLBfloat, 16, 1}, shape, nullptr, 0};
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = args.v = &rows;
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      check(kvc_forward_append(cache_, forward, layer, &args, &error_), error_);
    }
  }

  Emulation emulation_;
  const DLDevice device_;
  kvc_context* context_ = nullptr;
  kvc_cache* cache_ = nullptr;
  kvc_forward graph_ = 0;
  kvc_error error_ = KVC_ERROR_INIT;
  std::vector<kvc_seq> ids_ = std::vector<kvc_seq>(kRows);
  std::vector<int32_t> lengths_ = std::vector<int32_t>(kRows, 1);
  std::vector<int64_t> first_tokens_ = std::vector<int64_t>(kRows);
  std::vector<char> other_ = std::vector<char>(16 << 20, 1);
  int sum_ = 0;
  std::vector<uint16_t> rows_ = std::vector<uint16_t>(kRows * kHeads * kHeadDim);
};

// The median is the figure, because the mean includes what else the machine did.
void GraphStep256(benchmark::State& state) {
  const bool on_cpu = state.range(0) == 0;
  constexpr int32_t kRoom = 256;
  Server server(on_cpu ? kDLCPU : kDLCUDA, kRoom, state.range(2) != 0);
  if (!server.opened()) {
    state.SkipWithError("the device cannot be opened");
    return;
  }
  std::vector<double> us;
  us.reserve(1 << 14);
  int32_t tokens = kFirstTokens;
  for (auto _ : state) {
    if (tokens++ == kRoom) {
      server.rewind();
      tokens = kFirstTokens + 1;
    }
    if (state.range(1) != 0) {
      server.warm();
    } else {
      server.cool();
    }
    us.push_back(server.step(on_cpu));
    state.SetIterationTime(us.back() * 1e-6);
  }
  std::sort(us.begin(), us.end());
  state.counters["median_us"] = us[us.size() / 2];
  state.counters["p97_us"] = us[us.size() * 97 / 100];
}
BENCHMARK(GraphStep256)
    ->ArgNames({"cuda", "warm", "spread"})
    ->ArgsProduct({{0, 1}, {0, 1}, {0, 1}})
    ->UseManualTime()
    ->Iterations(2000)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
