// Attention over lists of keys beside attention over all keys, in one run: one query of a sequence of 64k tokens.
//   lists [--threads N] [--seconds S] [--simd NAME]
//
// In each round every call is measured once, in another order. Lists are new in each round, and attention over all 64k
// tokens comes in between, so the listed keys come from memory. The contiguous calls attend to a whole sequence of as
// many keys as a list has, another one in each round. Ratios are medians of the rounds' ratios. Limits: a list of 2,048
// tokens is at least 12 times as fast as all keys. A list of blocks of 128 has at least 85 % of the speed of the
// contiguous call.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "figure.h"
#include "kvcache.h"
#include "list_tensors.h"

namespace {

using namespace kvc::benchmark;

constexpr int64_t kLong = 65536, kListed = 2048, kBlock = 128, kStep = 2048;
constexpr int kShortSequences = 24;

struct Model {
  const char* name;
  int32_t q_heads, kv_heads, head_dim, latent_dim;
};

constexpr DLDataType kBf16 = {kDLBfloat, 16, 1}, kInt32 = {kDLInt, 32, 1};

class Bench {
 public:
  Bench(const Model& model, int threads, const char* simd)
      : model_(model),
        q_(kStep, model.q_heads, model.head_dim, kBf16),
        k_(kStep, model.kv_heads, model.head_dim, kBf16),
        v_(kStep, model.kv_heads, model.head_dim, kBf16),
        out_(kStep, model.q_heads, model.latent_dim > 0 ? model.latent_dim : model.head_dim, kBf16),
        tokens_(1, 1, kListed, kInt32),
        head_tokens_(1, model.kv_heads, kListed, kInt32),
        blocks_(1, 1, kListed / kBlock, kInt32) {
    kvc_context_config context_config;
    kvc_context_config_init(&context_config);
    context_config.num_threads = threads;
    context_config.simd = simd;
    check(kvc_context_create(&context_config, &context_, &error_), error_);
    kvc_layer_config layer;
    kvc_layer_config_init(&layer);
    layer.num_q_heads = model.q_heads;
    layer.num_kv_heads = model.kv_heads;
    layer.head_dim = model.head_dim;
    layer.dtype = kBf16;
    kvc_group_config group;
    kvc_group_config_init(&group);
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    if (model.latent_dim > 0) {
      group.row = KVC_ROW_LATENT;
      layer.latent_dim = model.latent_dim;
      layer.softmax_scale = 0.13523;
    }
    config.groups = &group;
    config.num_groups = 1;
    config.layers = &layer;
    config.num_layers = 1;
    config.page_size = 64;
    config.max_sequences = kShortSequences + 1;
    config.max_batch_tokens = kStep;
    config.capacity_pages = (kLong + kShortSequences * (kListed + 64)) / 64 + 64;
    check(kvc_cache_create(context_, &config, &cache_, &error_), error_);
    for (Tensor* tensor : {&q_, &k_, &v_}) tensor->fill(&random_);
    check(kvc_seq_add(cache_, 1, &long_, &error_), error_);
    check(kvc_seq_add(cache_, kShortSequences, short_, &error_), error_);
    for (int64_t at = 0; at < kLong; at += kStep) append(long_, kStep);
    for (const kvc_seq sequence : short_) append(sequence, kListed);
  }
  ~Bench() {
    kvc_cache_destroy(cache_);
    kvc_context_destroy(context_);
  }

  void run(double seconds) {
    using Clock = std::chrono::steady_clock;
    std::map<std::string, std::vector<double>> times;
    const auto began = Clock::now();
    std::vector<std::string> names = {"all", "tokens", "contiguous", "all again", "blocks"};
    if (model_.kv_heads > 1) names.push_back("tokens by head");
    for (int round = 0; round < 5 || std::chrono::duration<double>(Clock::now() - began).count() < seconds; ++round) {
      draw_lists();
      std::rotate(names.begin(), names.begin() + 1, names.end());
      for (const std::string& name : names) {
        const bool listed = name[0] == 't' || name[0] == 'b';
        const DLTensor* lists = !listed            ? nullptr
                                : name == "tokens" ? &tokens_.tensor
                                : name == "blocks" ? &blocks_.tensor
                                                   : &head_tokens_.tensor;
        const kvc_seq sequence = name == "contiguous" ? short_[round % kShortSequences] : long_;
        times[name].push_back(attend(sequence, lists, name == "blocks" ? kBlock : 1));
      }
    }
    report(times);
  }

 private:
  void append(kvc_seq sequence, int64_t tokens) {
    const kvc_forward forward = begin(sequence, static_cast<int32_t>(tokens));
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = &k_.tensor;
    args.v = model_.latent_dim > 0 ? nullptr : &v_.tensor;
    check(kvc_forward_append(cache_, forward, 0, &args, &error_), error_);
    check(kvc_forward_end(cache_, forward, &error_), error_);
  }
  kvc_forward begin(kvc_seq sequence, int32_t tokens) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &sequence;
    batch.append_lengths = &tokens;
    batch.num_sequences = 1;
    kvc_forward forward = 0;
    check(kvc_forward_begin(cache_, &batch, nullptr, &forward, &error_), error_);
    return forward;
  }
  double attend(kvc_seq sequence, const DLTensor* lists, int64_t block) {
    const kvc_forward forward = begin(sequence, 1);
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = &q_.tensor;
    args.k = &k_.tensor;
    args.v = model_.latent_dim > 0 ? nullptr : &v_.tensor;
    args.out = &out_.tensor;
    args.indices = lists;
    if (lists != nullptr) args.index_block = static_cast<int32_t>(block);
    const auto start = std::chrono::steady_clock::now();
    check(kvc_forward_attend(cache_, forward, 0, &args, &error_), error_);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    check(kvc_forward_abort(cache_, forward, &error_), error_);
    return seconds;
  }
  // Distinct entries in the order of a top-k, which is any.
  void draw(int32_t* entries, int64_t count, int64_t of) {
    places_.resize(static_cast<size_t>(of));
    std::iota(places_.begin(), places_.end(), 0);
    for (int64_t i = 0; i < count; ++i) {
      std::swap(places_[static_cast<size_t>(i)],
                places_[static_cast<size_t>(i + static_cast<int64_t>(random_() % static_cast<uint64_t>(of - i)))]);
      entries[i] = places_[static_cast<size_t>(i)];
    }
  }
  void draw_lists() {
    draw(reinterpret_cast<int32_t*>(tokens_.data.data()), kListed, kLong);
    draw(reinterpret_cast<int32_t*>(blocks_.data.data()), kListed / kBlock, kLong / kBlock);
    for (int32_t head = 0; head < model_.kv_heads; ++head) {
      draw(reinterpret_cast<int32_t*>(head_tokens_.data.data()) + head * kListed, kListed, kLong);
    }
  }
  void report(const std::map<std::string, std::vector<double>>& times) const {
    const auto ratio = [&](const char* a, const char* b) {
      std::vector<double> ratios;
      for (size_t i = 0; i < times.at(a).size(); ++i) ratios.push_back(times.at(a)[i] / times.at(b)[i]);
      return median(ratios);
    };
    std::printf("%s, %zu rounds\n", model_.name, times.at("all").size());
    for (const auto& [name, values] : times) std::printf("  %-16s %10.1f us\n", name.c_str(), median(values) * 1e6);
    const auto line = [&](const char* what, double value, double target) {
      const std::string name = std::string(model_.name) + ": " + what;
      print_figure("Lists of keys", name.c_str(), value, "x", target, Better::kHigher);
    };
    line("2,048 listed tokens of 64k, times as fast as all", ratio("all", "tokens"), 12);
    if (model_.kv_heads > 1) line("... with a list for each kv head", ratio("all", "tokens by head"), 12);
    line("16 listed blocks of 128, part of contiguous speed", ratio("contiguous", "blocks"), 0.85);
  }

  const Model model_;
  std::mt19937 random_{3};
  Tensor q_, k_, v_, out_, tokens_, head_tokens_, blocks_;
  std::vector<int32_t> places_;
  kvc_error error_ = KVC_ERROR_INIT;
  kvc_context* context_ = nullptr;
  kvc_cache* cache_ = nullptr;
  kvc_seq long_ = 0, short_[kShortSequences] = {};
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
  for (const Model& model : {Model{"32 query heads, 8 kv heads of 128", 32, 8, 128, 0},
                             Model{"64 query heads, 4 kv heads of 128", 64, 4, 128, 0},
                             Model{"MLA, 128 query heads, rows of 576", 128, 1, 576, 512}}) {
    Bench(model, threads, simd).run(seconds);
  }
  return 0;
}
