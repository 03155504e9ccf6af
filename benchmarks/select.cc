// Selection of keys by an indexer: one query, or several, over 64k index keys, beside a read of the same keys.
//   select [--threads N] [--seconds S] [--simd NAME]
//
// In each round every call is measured once, and the read comes in between. Several sequences alternate, so the keys
// come from memory. Lower bounds: a read of the keys, by as many threads as the call has; and for many heads the
// multiply-adds, which the line "cached" shows: the same call over keys that fit into a cache, for each key. Ratios are
// medians of the rounds' ratios.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "figure.h"
#include "kvcache.h"
#include "list_tensors.h"

namespace {

using namespace kvc::benchmark;

constexpr int64_t kLong = 65536, kStep = 2048, kCached = 2048;
constexpr int kSequences = 6;

struct Indexer {
  const char* name;
  int32_t heads, rule, count, block, queries;
};

constexpr int32_t kDim = 128;
constexpr DLDataType kBfloat16 = {kDLBfloat, 16, 1};

class Bench {
 public:
  Bench(const Indexer& indexer, int threads, const char* simd)
      : indexer_(indexer),
        threads_(threads),
        q_(indexer.queries, indexer.heads, kDim, kBfloat16),
        k_(kStep, 1, kDim, kBfloat16) {
    q_.fill(&random_);
    k_.fill(&random_);
    kvc_context_config context_config;
    kvc_context_config_init(&context_config);
    context_config.num_threads = threads;
    context_config.simd = simd;
    check(kvc_context_create(&context_config, &context_, &error_), error_);
    kvc_layer_config layer;
    kvc_layer_config_init(&layer);
    layer.num_q_heads = indexer.heads;
    layer.num_kv_heads = 1;
    layer.head_dim = kDim;
    layer.dtype = {kDLBfloat, 16, 1};
    layer.flags = KVC_LAYER_KEYS_ONLY;
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = &layer;
    config.num_layers = 1;
    config.page_size = 64;
    config.max_sequences = kSequences + 1;
    config.max_batch_tokens = kStep;
    config.capacity_tokens = kSequences * (kLong + kStep) + 2 * kStep;
    check(kvc_cache_create(context_, &config, &cache_, &error_), error_);
    check(kvc_seq_add(cache_, kSequences, long_, &error_), error_);
    check(kvc_seq_add(cache_, 1, &short_, &error_), error_);
    for (const kvc_seq sequence : long_) {
      for (int64_t at = 0; at < kLong; at += kStep) append(sequence);
    }
    append(short_);
    const int64_t lists = indexer.rule == KVC_SELECT_EACH_HEAD ? indexer.heads : 1;
    entries_.resize(static_cast<size_t>(indexer.queries * lists * indexer.count));
    shape_[0] = indexer.queries, shape_[1] = lists, shape_[2] = indexer.count;
    lists_ = {entries_.data(), {kDLCPU, 0}, 3, {kDLInt, 32, 1}, shape_, nullptr, 0};
    memory_.resize(static_cast<size_t>(kSequences) * kLong * kDim, 1);
  }
  ~Bench() {
    kvc_cache_destroy(cache_);
    kvc_context_destroy(context_);
  }

  void run(double seconds) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> selects, reads, cached;
    const auto began = Clock::now();
    for (int round = 0; round < 5 || std::chrono::duration<double>(Clock::now() - began).count() < seconds; ++round) {
      selects.push_back(select(long_[round % kSequences]));
      reads.push_back(read(round % kSequences));
      select(short_);
      cached.push_back(select(short_) * (kLong + indexer_.queries) / (kCached + indexer_.queries));
    }
    std::vector<double> of_read, of_bound;
    for (size_t i = 0; i < selects.size(); ++i) {
      of_read.push_back(reads[i] / selects[i]);
      of_bound.push_back(std::max(reads[i], cached[i]) / selects[i]);
    }
    std::printf("%s, %zu rounds\n", indexer_.name, selects.size());
    std::printf("  select %10.1f us, read %10.1f us, cached %10.1f us\n", median(selects) * 1e6, median(reads) * 1e6,
                median(cached) * 1e6);
    const auto line = [&](const char* what, double value, double target) {
      const std::string name = std::string(indexer_.name) + ": " + what;
      print_figure("Selection of keys", name.c_str(), value, "x", target, Better::kHigher);
    };
    if (indexer_.queries == 1) line("speed, part of a read of the keys", median(of_read), 0.85);
    line("speed, part of the larger lower bound", median(of_bound), 0.85);
  }

 private:
  kvc_forward begin(kvc_seq sequence, int32_t tokens) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &sequence;
    batch.append_lengths = &tokens;
    batch.num_sequences = 1;
    kvc_forward forward = 0;
    check(kvc_forward_begin(cache_, &batch, nullptr, &forward, &error_), error_);
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = &k_.tensor;
    check(kvc_forward_append(cache_, forward, 0, &args, &error_), error_);
    return forward;
  }
  void append(kvc_seq sequence) { check(kvc_forward_end(cache_, begin(sequence, kStep), &error_), error_); }
  double select(kvc_seq sequence) {
    const kvc_forward forward = begin(sequence, indexer_.queries);
    kvc_select_args args;
    kvc_select_args_init(&args);
    args.rule = indexer_.rule;
    args.q = &q_.tensor;
    args.indices = &lists_;
    args.index_block = indexer_.block;
    args.last_blocks = indexer_.block > 1 ? 1 : 0;
    const auto start = std::chrono::steady_clock::now();
    check(kvc_forward_select(cache_, forward, 0, &args, &error_), error_);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    check(kvc_forward_abort(cache_, forward, &error_), error_);
    return seconds;
  }
  // Reads as many bytes as the keys of a sequence have.
  double read(int which) {
    const size_t share = kLong * kDim * sizeof(uint16_t) / sizeof(uint64_t) / static_cast<size_t>(threads_);
    const auto* words = reinterpret_cast<const uint64_t*>(memory_.data() + which * kLong * kDim);
    std::vector<uint64_t> sums(static_cast<size_t>(threads_));
    const auto part = [&](size_t index) {
      uint64_t sum[8] = {};
      for (size_t i = index * share; i < (index + 1) * share; i += 8) {
        for (size_t j = 0; j < 8; ++j) sum[j] += words[i + j];
      }
      sums[index] = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
    };
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> others;
    for (size_t i = 1; i < static_cast<size_t>(threads_); ++i) others.emplace_back(part, i);
    part(0);
    for (std::thread& other : others) other.join();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const uint64_t sum : sums) total_ = total_ + sum;
    return seconds;
  }

  const Indexer indexer_;
  const int threads_;
  std::mt19937 random_{3};
  Tensor q_, k_;
  std::vector<int32_t> entries_;
  int64_t shape_[3];
  DLTensor lists_ = {};
  std::vector<uint16_t> memory_;
  volatile uint64_t total_ = 0;
  kvc_error error_ = KVC_ERROR_INIT;
  kvc_context* context_ = nullptr;
  kvc_cache* cache_ = nullptr;
  kvc_seq long_[kSequences] = {}, short_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  int threads = 1;
  double seconds = 5;
  const char* simd = nullptr;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--threads") == 0) threads = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--seconds") == 0) seconds = std::atof(argv[i + 1]);
    if (std::strcmp(argv[i], "--simd") == 0) simd = argv[i + 1];
  }
  for (const Indexer& indexer :
       {Indexer{"DeepSeek-V3.2: 64 heads, 2,048 tokens", 64, KVC_SELECT_RELU_SUM, 2048, 1, 1},
        Indexer{"MiniMax-M3: 4 heads, 16 blocks of 128 each", 4, KVC_SELECT_EACH_HEAD, 16, 128, 1},
        Indexer{"the first, prefill of 64 tokens", 64, KVC_SELECT_RELU_SUM, 2048, 1, 64}}) {
    Bench(indexer, threads, simd).run(seconds);
  }
  return 0;
}
