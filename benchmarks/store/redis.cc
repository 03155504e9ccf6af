// Stores and loads of the Redis tier at full speed, for scripts/benchmark.sh redis, which compares them with
// redis-benchmark.
//   redis ADDRESS BYTES ITEMS SET GET [CA_FILE]
// SET and GET: what redis-benchmark reached, in megabytes a second. Best of five runs. With CA_FILE the connections
// have TLS.
#include <kvcache_redis.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "figure.h"

namespace {

constexpr int64_t kOpenItems = 64;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "redis: %s\n", what);
  std::exit(1);
}

// Moves `items` objects of `bytes`, of which kOpenItems are open at once. Returns megabytes a second.
double move(const kvc_tier& tier, bool store, int64_t bytes, int64_t items) {
  static std::vector<std::vector<char>> memory(kOpenItems);
  std::vector<kvc_tier_buffer> buffers(kOpenItems);
  std::vector<kvc_tier_item> open(kOpenItems);
  kvc_error error = KVC_ERROR_INIT;
  const auto begin = std::chrono::steady_clock::now();
  int64_t submitted = 0, done = 0;
  const auto submit = [&](int64_t place) {
    memory[place].resize(static_cast<size_t>(bytes), 'x');
    buffers[place] = {memory[place].data(), bytes};
    open[place] = {{}, &buffers[place], 1, 0, bytes};
    for (size_t at = 0; at < sizeof open[place].key.bytes; at += 8) {  // keys are hashes, so all their bytes differ
      const uint64_t part = (static_cast<uint64_t>(submitted) + at) * 0x9e3779b97f4a7c15u;
      std::memcpy(open[place].key.bytes + at, &part, sizeof part);
    }
    ++submitted;
    const auto job = static_cast<uint64_t>(place);
    const int32_t result = store ? tier.store(tier.self, job, 1, &open[place], &error)
                                 : tier.load(tier.self, job, 1, &open[place], &error);
    if (result != KVC_TIER_OK) fail(error.message);
  };
  for (int64_t place = 0; place < std::min(items, kOpenItems); ++place) submit(place);
  while (done < items) {
    kvc_tier_completion completions[16];
    pollfd waiting = {tier.descriptor(tier.self), POLLIN, 0};
    if (::poll(&waiting, 1, 30000) != 1) fail("no completion in 30 s");
    const int64_t count = tier.poll(tier.self, completions, 16);
    for (int64_t i = 0; i < count; ++i, ++done) {
      if (completions[i].result != KVC_TIER_OK) fail(std::strerror(completions[i].os_error));
      if (submitted < items) submit(static_cast<int64_t>(completions[i].job));
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(bytes * items) / seconds.count() / 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6 && argc != 7) fail("redis ADDRESS BYTES ITEMS SET GET [CA_FILE]");
  kvc_redis_config config;
  kvc_redis_config_init(&config);
  config.address = argv[1];
  config.prefix = "benchmark:";
  config.threads = 8;
  config.tls_ca_file = argv[6];
  if (argc == 7) config.flags = KVC_REDIS_TLS;
  kvc_tier tier;
  kvc_error error = KVC_ERROR_INIT;
  if (kvc_redis_tier_open(&config, &tier, &error) != KVC_OK) fail(error.message);
  double stores = 0, loads = 0;
  for (int round = 0; round < 5; ++round) {
    stores = std::max(stores, move(tier, true, std::atoll(argv[2]), std::atoll(argv[3])));
    loads = std::max(loads, move(tier, false, std::atoll(argv[2]), std::atoll(argv[3])));
  }
  const auto print = [&](const char* work, double rate, const char* command, double theirs) {
    char name[80], note[80];
    std::snprintf(name, sizeof name, "%s, %lld KiB", work, std::atoll(argv[2]) / 1024);
    std::snprintf(note, sizeof note, "%.0f MB/s, %s of redis-benchmark %.0f", rate, command, theirs);
    kvc::benchmark::print_figure("Redis tier", name, rate / theirs, "x", 0.8, kvc::benchmark::Better::kHigher, note);
  };
  print("store", stores, "SET", std::atof(argv[4]));
  print("load", loads, "GET", std::atof(argv[5]));
  tier.close(tier.self);
}
