// How soon a request can use the first layer of a prefix that a tier has: attached after the load, or to the load that
// runs (kvc_prefix_attach_pending).
//   pending FOLDER [rounds]     default 9. FOLDER is on the disk to measure, and needs 300 MiB
// The model has 32 layers of 8 KV heads and 128 dims in 16 bits, so a page of 16 tokens has 2 MiB. The prefix has 2048
// tokens. The layers are one group, or four groups of 8 layers, or 26 layers with a window of 512 tokens and 6 full
// layers. Layers of a group are ready together. Printed are medians in ms, from the begin of the load on. The ways are
// measured in turn:
//   load       the whole load, and the attach after it
//   first      the first layer is ready in a pending sequence
//   half       half of the layers are
//   all        all layers are
//
// SPDX-License-Identifier: Apache-2.0
#include <kvcache.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <string>
#include <vector>

#include "figure.h"

namespace {

constexpr int32_t kLayers = 32, kPageSize = 16, kTokens = 2048;

void check(kvc_status status, const kvc_error &error) {
  if (status == KVC_OK) return;
  std::fprintf(stderr, "%s\n", error.message);
  std::exit(1);
}

double ms_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double median(std::vector<double> samples) {
  std::nth_element(samples.begin(), samples.begin() + samples.size() / 2, samples.end());
  return samples[samples.size() / 2];
}

struct Shape {
  const char *name;
  int32_t groups;
  int64_t window;  // of group 0; 0 = none
  int32_t group_of(int32_t layer) const {
    if (window > 0) return layer % 6 == 5 || layer == 31 ? 1 : 0;
    return layer / (kLayers / groups);
  }
};

class Model {
 public:
  Model(const Shape &shape, const char *folder) {
    kvc_error error = KVC_ERROR_INIT;
    check(kvc_context_create(nullptr, &context_, &error), error);
    std::vector<kvc_layer_config> layers(kLayers);
    std::vector<kvc_group_config> groups(static_cast<size_t>(shape.groups));
    for (kvc_group_config &group : groups) {
      kvc_group_config_init(&group);
      group.num_pages = kTokens / kPageSize + 4;
    }
    if (shape.window > 0) {
      groups[0].visibility = KVC_VISIBLE_WINDOW;
      groups[0].window_tokens = shape.window;
    }
    for (int32_t i = 0; i < kLayers; i++) {
      kvc_layer_config &layer = layers[static_cast<size_t>(i)];
      kvc_layer_config_init(&layer);
      layer.group = shape.group_of(i);
      layer.num_q_heads = layer.num_kv_heads = 8;
      layer.head_dim = 128;
      layer.dtype = {kDLBfloat, 16, 1};
    }
    const uint8_t fingerprint[32] = {1};
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = layers.data();
    config.num_layers = kLayers;
    config.groups = groups.data();
    config.num_groups = shape.groups;
    config.page_size = kPageSize;
    config.max_sequences = 4;
    config.max_batch_tokens = kTokens;
    config.flags = KVC_CACHE_PREFIX_INDEX;
    config.fingerprint = fingerprint;
    check(kvc_cache_create(context_, &config, &cache_, &error), error);
    kvc_tier_config tier;
    kvc_tier_config_init(&tier);
    tier.directory = folder;
    tier.flags = folder == nullptr ? KVC_TIER_HOST : 0;
    tier.capacity_bytes = int64_t{400} << 20;
    tier.sync = folder == nullptr ? 0 : KVC_TIER_SYNC_NONE;
    check(kvc_cache_add_tier(cache_, &tier, &error), error);
    std::iota(tokens_.begin(), tokens_.end(), 1);
    kvc_prefix_query_init(&query_);
    query_.tokens = tokens_.data();
    query_.num_tokens = kTokens + 1;
    store();
  }
  ~Model() {
    kvc_cache_destroy(cache_);
    kvc_context_destroy(context_);
  }
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  // Loads the prefix. pending: attaches at once, and fills `ready` with the times of 1, half and all layers.
  // Otherwise fills ready[0] with the time of the attach.
  void load(bool pending, double ready[3]) {
    kvc_error error = KVC_ERROR_INIT;
    kvc_job job = 0;
    kvc_seq seq = 0;
    kvc_prefix_load_options options;
    kvc_prefix_load_options_init(&options);
    options.token_ns = INT64_MAX;
    const double begin = ms_now();
    check(kvc_prefix_load(cache_, &query_, &options, nullptr, &job, &error), error);
    if (pending) {
      check(kvc_prefix_attach_pending(cache_, job, nullptr, &seq, nullptr, &error), error);
      const int32_t layers[3] = {1, kLayers / 2, kLayers};
      for (int i = 0; i < 3; i++) {
        wait([&] { return ready_layers(seq) >= layers[i]; });
        ready[i] = ms_now() - begin;
      }
    }
    kvc_job_info info;
    kvc_job_info_init(&info);
    wait([&] {
      check(kvc_job_poll(cache_, job, &info, &error), error);
      return info.done != 0;
    });
    if (!pending) {
      check(kvc_prefix_attach(cache_, &query_, nullptr, nullptr, &seq, &error), error);
      ready[0] = ms_now() - begin;
    }
    check(kvc_seq_remove(cache_, 1, &seq, &error), error);
    drop();
  }

 private:
  template <class Condition>
  static void wait(Condition condition) {
    const timespec pause = {0, 50'000};
    while (!condition()) nanosleep(&pause, nullptr);
  }
  int32_t ready_layers(kvc_seq seq) {
    kvc_pending_info info;
    kvc_pending_info_init(&info);
    kvc_error error = KVC_ERROR_INIT;
    check(kvc_seq_pending(cache_, seq, &info, &error), error);
    return info.ready_layers;
  }
  void drop() {
    kvc_prefix_query none;
    kvc_prefix_query_init(&none);
    kvc_error error = KVC_ERROR_INIT;
    check(kvc_prefix_drop(cache_, &none, nullptr, &error), error);
  }
  // Publishes the prefix, and waits until the tier has it.
  void store() {
    kvc_error error = KVC_ERROR_INIT;
    kvc_seq seq = 0;
    check(kvc_seq_add(cache_, 1, &seq, &error), error);
    const int32_t length = kTokens;
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq;
    batch.append_lengths = &length;
    batch.num_sequences = 1;
    kvc_forward step = 0;
    check(kvc_forward_begin(cache_, &batch, nullptr, &step, &error), error);
    std::vector<uint16_t> rows(size_t{kTokens} * 8 * 128, 0x3c00);
    int64_t shape[3] = {kTokens, 8, 128};
    const DLTensor tensor = {rows.data(), {kDLCPU, 0}, 3, {kDLBfloat, 16, 1}, shape, nullptr, 0};
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = args.v = &tensor;
    for (int32_t i = 0; i < kLayers; i++) check(kvc_forward_append(cache_, step, i, &args, &error), error);
    check(kvc_forward_end(cache_, step, &error), error);
    kvc_prefix_query query = query_;
    query.num_tokens = kTokens;
    check(kvc_prefix_publish(cache_, seq, &query, nullptr, nullptr, &error), error);
    check(kvc_seq_remove(cache_, 1, &seq, &error), error);
    kvc_tier_traffic traffic;
    kvc_tier_traffic_init(&traffic);
    wait([&] {
      check(kvc_cache_tier_traffic(cache_, &traffic, &error), error);
      return traffic.pages_waiting == 0;
    });
    drop();
  }

  kvc_context *context_ = nullptr;
  kvc_cache *cache_ = nullptr;
  std::vector<int32_t> tokens_ = std::vector<int32_t>(kTokens + 1);
  kvc_prefix_query query_;
};

void measure(const Shape &shape, const char *folder, int rounds) {
  Model model(shape, folder);
  std::vector<double> load, ready[3];
  for (int i = 0; i < rounds; i++) {
    double times[3] = {};
    model.load(false, times);
    load.push_back(times[0]);
    model.load(true, times);
    for (int j = 0; j < 3; j++) ready[j].push_back(times[j]);
  }
  const char *const names[] = {"first", "half", "all"};
  const std::string row = std::string(folder == nullptr ? "host" : "disk") + " tier, " + shape.name;
  const double loaded = median(load);
  using kvc::benchmark::Better;
  kvc::benchmark::print_figure("pending", (row + ": load").c_str(), loaded, "ms", 0, Better::kLower);
  for (int j = 0; j < 3; j++) {
    char note[80];
    std::snprintf(note, sizeof note, "%.2f of load", median(ready[j]) / loaded);
    kvc::benchmark::print_figure("pending", (row + ": " + names[j]).c_str(), median(ready[j]), "ms", 0, Better::kLower,
                                 note);
  }
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2) {
    std::fprintf(stderr, "pending FOLDER [rounds]\n");
    return 2;
  }
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  const Shape shapes[] = {{"1 group", 1, 0}, {"4 groups", 4, 0}, {"windows", 2, 512}};
  for (const Shape &shape : shapes) {
    measure(shape, nullptr, rounds);
    measure(shape, (std::string(argv[1]) + "/" + std::to_string(shape.groups)).c_str(), rounds);
  }
}
