// What events of tiers cost: stores into a host tier, and lookups of its pages, with and without events_tier_pages.
//   tier_events [rounds]     default 15
// A cache of one layer with a head of 128 float32 dims publishes 4,096 pages of 16 tokens, which a host tier stores.
// Both caches have events. Time is CPU time of the process, so other work on the machine lengthens it less. The two
// kinds alternate, and medians are printed.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "figure.h"
#include "kvcache.h"

namespace {

constexpr int32_t kPageSize = 16, kPages = 4096, kTokens = kPages * kPageSize, kDim = 128, kBatch = 4096;

double now_us() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

double median(std::vector<double> samples) {
  std::nth_element(samples.begin(), samples.begin() + static_cast<int64_t>(samples.size() / 2), samples.end());
  return samples[samples.size() / 2];
}

void check(kvc_status status, const kvc_error& error) {
  if (status == KVC_OK) return;
  std::fprintf(stderr, "%s\n", error.message);
  std::exit(1);
}

struct Times {
  double store_us = 0, match_us = 0;  // of a page
};

// A cache with a sequence of kTokens tokens, which are not published yet, and a host tier.
struct Scene {
  explicit Scene(int64_t tier_pages) {
    kvc_context_config options;
    kvc_context_config_init(&options);
    options.num_threads = 1;
    check(kvc_context_create(&options, &context, &error), error);
    kvc_layer_config layer;
    kvc_layer_config_init(&layer);
    layer.num_q_heads = layer.num_kv_heads = 1;
    layer.head_dim = kDim;
    const uint8_t fingerprint[32] = {1};
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = &layer;
    config.num_layers = 1;
    config.page_size = kPageSize;
    config.max_batch_tokens = kBatch;
    config.capacity_pages = kPages + 16;
    config.flags = KVC_CACHE_PREFIX_INDEX;
    config.fingerprint = fingerprint;
    config.events_capacity = 4 * kPages;
    config.events_tier_pages = tier_pages;
    check(kvc_cache_create(context, &config, &cache, &error), error);
    kvc_tier_config tier;
    kvc_tier_config_init(&tier);
    tier.flags = KVC_TIER_HOST;
    tier.capacity_bytes = int64_t{1} << 30;
    check(kvc_cache_add_tier(cache, &tier, &error), error);
    check(kvc_seq_add(cache, 1, &sequence, &error), error);
    for (int32_t done = 0; done < kTokens; done += kBatch) append();
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;
  ~Scene() {
    kvc_cache_destroy(cache);
    kvc_context_destroy(context);
  }
  void append() {
    std::vector<float> rows(size_t{kBatch} * kDim, 1.0f);
    int64_t shape[3] = {kBatch, 1, kDim};
    const DLTensor tensor = {rows.data(), {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, shape, nullptr, 0};
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &sequence;
    batch.append_lengths = &kBatch;
    batch.num_sequences = 1;
    kvc_forward forward = 0;
    check(kvc_forward_begin(cache, &batch, nullptr, &forward, &error), error);
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = args.v = &tensor;
    check(kvc_forward_append(cache, forward, 0, &args, &error), error);
    check(kvc_forward_end(cache, forward, &error), error);
  }

  kvc_error error = KVC_ERROR_INIT;
  kvc_context* context = nullptr;
  kvc_cache* cache = nullptr;
  kvc_seq sequence = 0;
};

Times measure(int64_t tier_pages) {
  Scene scene(tier_pages);
  kvc_error& error = scene.error;
  std::vector<int32_t> tokens(kTokens);
  for (int32_t i = 0; i < kTokens; ++i) {
    tokens[static_cast<size_t>(i)] = static_cast<int32_t>(static_cast<uint32_t>(i) * 2654435761u >> 15);
  }
  kvc_prefix_query query;
  kvc_prefix_query_init(&query);
  query.tokens = tokens.data();
  query.num_tokens = kTokens;
  Times times;
  const double begin = now_us();
  check(kvc_prefix_publish(scene.cache, scene.sequence, &query, nullptr, nullptr, &error), error);
  kvc_tier_traffic traffic;
  kvc_tier_traffic_init(&traffic);
  const timespec pause = {0, 1'000'000};
  do {
    nanosleep(&pause, nullptr);
    check(kvc_cache_tier_traffic(scene.cache, &traffic, &error), error);
  } while (traffic.pages_waiting > 0);
  times.store_us = (now_us() - begin) / kPages;
  check(kvc_seq_remove(scene.cache, 1, &scene.sequence, &error), error);
  query.num_tokens = 0;
  check(kvc_prefix_drop(scene.cache, &query, nullptr, &error), error);
  query.num_tokens = kTokens;
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  constexpr int kMatches = 5;
  const double matches = now_us();
  for (int i = 0; i < kMatches; ++i) check(kvc_prefix_match(scene.cache, &query, &hit, &error), error);
  times.match_us = (now_us() - matches) / kMatches / kPages;
  if (hit.tier_tokens[0] < kTokens - kPageSize) {
    std::fprintf(stderr, "the tier lacks pages\n");
    std::exit(1);
  }
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  std::vector<double> store[2], match[2];
  for (int i = 0; i < rounds; ++i) {
    for (const int told : {0, 1}) {
      const Times times = measure(told * 2 * kPages);
      store[told].push_back(times.store_us);
      match[told].push_back(times.match_us);
    }
  }
  const char* names[2][2] = {{"store of a page in a host tier", "the same with events of tiers"},
                             {"match of a page in a host tier", "the same with events of tiers"}};
  for (const int told : {0, 1}) {
    kvc::benchmark::print_figure("tier_events", names[0][told], median(store[told]), "us", 0,
                                 kvc::benchmark::Better::kLower);
  }
  for (const int told : {0, 1}) {
    kvc::benchmark::print_figure("tier_events", names[1][told], median(match[told]), "us", 0,
                                 kvc::benchmark::Better::kLower);
  }
}
