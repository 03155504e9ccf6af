// What the prefix index costs: match, a request's calls, eviction, and memory. Prints medians beside targets.
//   prefixes [rounds]     default 41
// The lower bounds, taken in the same run:
//   compare   memcmp of the 512 KiB of token ids that a match of 131,072 tokens compares
// Caches have no pools (KVC_STORAGE_NONE), so that only bookkeeping is measured. Time is CPU time, so other work on the
// machine lengthens it less.
//
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <vector>

#include "figure.h"
#include "kvcache.h"

namespace {

constexpr int32_t kPageSize = 16;

double now_us() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

double time_us(const std::function<void()>& work) {
  const double begin = now_us();
  work();
  return now_us() - begin;
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

std::vector<int32_t> make_tokens(int64_t count, int32_t seed) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  uint32_t x = static_cast<uint32_t>(seed) * 2654435769u + 1;
  for (int32_t& token : tokens) token = static_cast<int32_t>((x = x * 1664525u + 1013904223u) >> 15);
  return tokens;
}

// A cache with a prefix index and without pools: a full group, or also a sliding and a chunked one.
class Cache {
 public:
  Cache(int32_t groups, int64_t pages, int32_t max_batch_tokens, int32_t max_sequences = 64) {
    kvc_context_config context_config;
    kvc_context_config_init(&context_config);
    context_config.num_threads = 1;
    check(kvc_context_create(&context_config, &context_, &error_), error_);
    kvc_layer_config layers[3];
    kvc_group_config configs[3];
    for (int32_t g = 0; g < groups; ++g) {
      kvc_layer_config_init(&layers[g]);
      layers[g].num_q_heads = layers[g].num_kv_heads = layers[g].head_dim = 1;
      layers[g].dtype = {kDLBfloat, 16, 1};
      layers[g].group = g;
      kvc_group_config_init(&configs[g]);
      configs[g].num_pages = pages;
    }
    configs[1].visibility = KVC_VISIBLE_WINDOW;
    configs[1].window_tokens = 1024;
    configs[2].visibility = KVC_VISIBLE_CHUNK;
    configs[2].chunk_tokens = 8192;
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = layers;
    config.groups = configs;
    config.num_layers = config.num_groups = groups;
    config.page_size = kPageSize;
    config.max_sequences = max_sequences;
    config.max_batch_tokens = max_batch_tokens;
    config.storage = KVC_STORAGE_NONE;
    config.flags = KVC_CACHE_PREFIX_INDEX;
    check(kvc_cache_create(context_, &config, &cache_, &error_), error_);
  }
  ~Cache() {
    kvc_cache_destroy(cache_);
    kvc_context_destroy(context_);
  }
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  static kvc_prefix_query query(const std::vector<int32_t>& tokens) {
    kvc_prefix_query query;
    kvc_prefix_query_init(&query);
    query.tokens = tokens.data();
    query.num_tokens = static_cast<int64_t>(tokens.size());
    query.flags = KVC_PREFIX_ALLOW_ALL;
    return query;
  }
  int64_t match(const kvc_prefix_query& query) {
    kvc_prefix_hit hit;
    kvc_prefix_hit_init(&hit);
    check(kvc_prefix_match(cache_, &query, &hit, &error_), error_);
    return hit.tokens;
  }
  kvc_seq attach(const kvc_prefix_query& query) {
    kvc_seq seq = 0;
    check(kvc_prefix_attach(cache_, &query, nullptr, nullptr, &seq, &error_), error_);
    return seq;
  }
  void publish(kvc_seq seq, const kvc_prefix_query& query) {
    check(kvc_prefix_publish(cache_, seq, &query, nullptr, nullptr, &error_), error_);
  }
  void remove(kvc_seq seq) { check(kvc_seq_remove(cache_, 1, &seq, &error_), error_); }
  // Begins a step of this many tokens, and ends or aborts it.
  void step(kvc_seq seq, int32_t tokens, bool keep = true) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq;
    batch.append_lengths = &tokens;
    batch.num_sequences = 1;
    kvc_forward forward = 0;
    check(kvc_forward_begin(cache_, &batch, nullptr, &forward, &error_), error_);
    check(keep ? kvc_forward_end(cache_, forward, &error_) : kvc_forward_abort(cache_, forward, &error_), error_);
  }
  // Stores a prompt in steps of a few thousand tokens, as an engine does.
  kvc_seq prompt(const std::vector<int32_t>& tokens) {
    const kvc_prefix_query all = query(tokens);
    const kvc_seq seq = attach(all);
    for (int64_t done = match(all); done < all.num_tokens;) {
      const auto count = static_cast<int32_t>(std::min<int64_t>(all.num_tokens - done, 4096));
      step(seq, count);
      done += count;
    }
    publish(seq, all);
    return seq;
  }
  int64_t published() const {
    kvc_stats stats;
    kvc_stats_init(&stats);
    kvc_error error = KVC_ERROR_INIT;
    check(kvc_cache_stats(cache_, 0, &stats, &error), error);
    return stats.pages_published;
  }

 private:
  kvc_context* context_ = nullptr;
  kvc_cache* cache_ = nullptr;
  kvc_error error_ = KVC_ERROR_INIT;
};

void print(const char* what, double value, const char* unit, double target, const char* note = "") {
  kvc::benchmark::print_figure("Prefix index", what, value, unit, target, kvc::benchmark::Better::kLower, note);
}

void measure_match(int rounds) {
  const std::vector<int32_t> tokens = make_tokens(131072, 1), copy = tokens;
  Cache cache(1, 8192 + 64, 4096);
  cache.remove(cache.prompt(tokens));
  const kvc_prefix_query query = Cache::query(tokens);
  std::vector<double> matches, compares;
  int different = 0;
  for (int i = 0; i < rounds; ++i) {
    matches.push_back(time_us([&] {
      if (cache.match(query) != query.num_tokens) std::exit(1);
    }));
    compares.push_back(
        time_us([&] { different += std::memcmp(tokens.data(), copy.data(), tokens.size() * sizeof(int32_t)); }));
  }
  if (different != 0) std::exit(1);
  char note[80];
  std::snprintf(note, sizeof note, "a compare of the 512 KiB of ids takes %.1f us", median(compares));
  print("match of 131,072 tokens, page size 16", median(matches), "us", 150, note);
}

void measure_request(int32_t groups, int rounds) {
  const std::vector<int32_t> tokens = make_tokens(4096, 2);
  Cache cache(groups, 4096, 4096);
  cache.remove(cache.prompt(tokens));
  const kvc_prefix_query query = Cache::query(tokens);
  std::vector<double> all, parts[4];
  for (int i = 0; i < rounds * 8; ++i) {
    kvc_seq seq = 0;
    const double times[] = {time_us([&] { cache.match(query); }), time_us([&] { seq = cache.attach(query); }),
                            time_us([&] { cache.publish(seq, query); }), time_us([&] { cache.remove(seq); })};
    for (int part = 0; part < 4; ++part) parts[part].push_back(times[part]);
    all.push_back(times[0] + times[1] + times[2] + times[3]);
  }
  char what[80], note[80];
  std::snprintf(what, sizeof what, "request of 4,096 tokens, %d group%s", groups, groups == 1 ? "" : "s");
  std::snprintf(note, sizeof note, "match %.1f + attach %.1f + publish %.1f + remove %.1f us", median(parts[0]),
                median(parts[1]), median(parts[2]), median(parts[3]));
  print(what, median(all), "us", 10, note);
}

// The difference between the times of two equal steps. The first one must evict pages.
void measure_eviction(int rounds) {
  constexpr int64_t kPages = 65536, kStep = 1024;
  Cache cache(1, kPages, kStep * kPageSize);
  std::vector<double> nanoseconds;
  int32_t seed = 100;
  for (int64_t filled = 0; filled < kPages; filled += 64)
    cache.remove(cache.prompt(make_tokens(64 * kPageSize, ++seed)));
  for (int i = 0; i < rounds; ++i) {
    const kvc_seq seq = cache.attach(Cache::query({}));
    const double evicting = time_us([&] { cache.step(seq, kStep * kPageSize, false); });
    const double free = time_us([&] { cache.step(seq, kStep * kPageSize, false); });
    nanoseconds.push_back((evicting - free) * 1e3 / kStep);
    cache.remove(seq);
    for (int64_t filled = 0; filled < kStep; filled += 64) {
      cache.remove(cache.prompt(make_tokens(64 * kPageSize, ++seed)));
    }
  }
  print("eviction of a page", median(nanoseconds), "ns", 100);
}

int64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long long size = 0, resident = 0;
  if (file == nullptr || std::fscanf(file, "%lld %lld", &size, &resident) != 2) std::exit(1);
  std::fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

// Memory that is touched while the index fills, minus that of the reference counts of pages, which every cache has.
void measure_memory() {
  constexpr int64_t kPages = 1 << 20;
  Cache cache(1, kPages, 4096);
  cache.remove(cache.prompt(make_tokens(4096, 1)));
  const int64_t before = resident_bytes(), published = cache.published();
  for (int32_t seed = 2; seed <= kPages / 256; ++seed) cache.remove(cache.prompt(make_tokens(4096, seed)));
  const double bytes =
      static_cast<double>(resident_bytes() - before) / static_cast<double>(cache.published() - published);
  print("memory of a published page of 16 tokens", bytes, "bytes", 64, "16 token ids have 48 bytes, at 24 bits");
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(3, std::atoi(argv[1])) : 41;
  measure_memory();  // first, since memory that others free may be used again, and stays resident
  measure_match(rounds);
  measure_request(1, rounds);
  measure_request(3, rounds);
  measure_eviction(rounds);
  return 0;
}
