// Fuzz target of saved sequences: a load of any bytes succeeds or is refused, and leaves nothing after a refusal.
//
// The first byte chooses whether the rest is read as it is, or with checksums that are made right. With right
// checksums, a changed length, record or payload reaches the checks that follow those of the checksums.
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kvcache.h"
#include "reached.h"

namespace {

struct Source {
  const uint8_t *data;
  size_t left;
  static int64_t read(void *user, void *data, int64_t bytes) {
    auto &self = *static_cast<Source *>(user);
    const size_t count = std::min(static_cast<size_t>(bytes), self.left);
    if (count > 0) std::memcpy(data, self.data, count);
    self.data += count;
    self.left -= count;
    return static_cast<int64_t>(count);
  }
};

void check(bool holds, const char *what, const kvc_error &error) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s: %s\n", what, error.message);
  std::abort();
}

// A small cache with a group of each kind. The corpus has files of it (fuzz/saved_seeds.py).
kvc_cache *make_cache() {
  kvc_context *context = nullptr;
  kvc_context_config threads;
  kvc_context_config_init(&threads);
  threads.num_threads = 1;
  kvc_error error = KVC_ERROR_INIT;
  check(kvc_context_create(&threads, &context, &error) == KVC_OK, "no context", error);
  kvc_state_config state;
  kvc_state_config_init(&state);
  state.rank = 1;
  state.shape[0] = 1;
  kvc_layer_config layers[4];
  kvc_group_config groups[4];
  for (int i = 0; i < 4; i++) {
    kvc_layer_config_init(&layers[i]);
    kvc_group_config_init(&groups[i]);
    layers[i].group = i;
    if (i == 3) continue;
    layers[i].num_q_heads = layers[i].num_kv_heads = 1;
    layers[i].head_dim = 2;
  }
  layers[3].states = &state;
  layers[3].num_states = 1;
  groups[1].visibility = KVC_VISIBLE_WINDOW;
  groups[1].window_tokens = 3;
  groups[2].visibility = KVC_VISIBLE_ENCODER;
  groups[3].row = KVC_ROW_STATE;
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = layers;
  config.groups = groups;
  config.num_layers = config.num_groups = 4;
  config.page_size = 2;
  config.max_sequences = 3;
  config.max_checkpoints = 2;
  config.capacity_tokens = 64;
  config.rollback_tokens = 2;
  config.flags = KVC_CACHE_STREAMING;
  kvc_cache *cache = nullptr;
  check(kvc_cache_create(context, &config, &cache, &error) == KVC_OK, "no cache", error);
  kvc_context_destroy(context);  // the cache holds a reference
  return cache;
}

uint64_t number_at(const std::vector<uint8_t> &bytes, size_t at, size_t size) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, size);
  return value;
}

void write_checksum(std::vector<uint8_t> *bytes, size_t begin, size_t end, uint64_t seed) {
  XXH128_canonical_t checksum;
  XXH128_canonicalFromHash(&checksum, XXH3_128bits_withSeed(bytes->data() + begin, end - begin, seed));
  std::memcpy(bytes->data() + end, checksum.digest, 16);
}

// Makes the sizes of the header and all checksums right, as far as the bytes reach.
void repair(std::vector<uint8_t> *bytes) {
  if (bytes->size() < 208) return;
  const uint64_t used = 208 + number_at(*bytes, 20, 4) + 4 * number_at(*bytes, 24, 4) + number_at(*bytes, 28, 4);
  const size_t header = (used + 63) / 64 * 64;
  if (header > bytes->size()) return;
  const auto stored = static_cast<uint32_t>(header);
  std::memcpy(bytes->data() + 16, &stored, 4);
  write_checksum(bytes, 0, header - 16, 0);
  const uint64_t section = number_at(*bytes, 40, 4), seed = number_at(*bytes, header - 16, 8);
  uint64_t left = number_at(*bytes, 32, 8), index = 0;
  for (size_t at = header; left > 0 && section > 0; index++) {
    const uint64_t size = std::min(left, section);
    if (size + 16 > bytes->size() - at) return;
    write_checksum(bytes, at, at + size, seed + index);
    at += size + 16;
    left -= size;
  }
}

int64_t pages_used(kvc_cache *cache) {
  kvc_stats stats;
  kvc_stats_init(&stats);
  kvc_error error = KVC_ERROR_INIT;
  check(kvc_cache_stats(cache, -1, &stats, &error) == KVC_OK, "stats", error);
  return stats.pages_used;
}

// Checks that the sequence is whole: every call that reads its bookkeeping works.
void use(kvc_cache *cache, kvc_seq seq) {
  kvc_error error = KVC_ERROR_INIT;
  check(kvc_cache_check_invariants(cache, &error) == KVC_OK, "invariants", error);
  int64_t length = 0, before = 0, after = 0;
  check(kvc_seq_lengths(cache, 1, &seq, &length, &error) == KVC_OK, "length", error);
  check(kvc_seq_nearest_position(cache, seq, length / 2, &before, &after, &error) == KVC_OK, "nearest", error);
  kvc_seq child = 0;
  const kvc_status forked = kvc_seq_fork(cache, 1, &seq, nullptr, &child, nullptr, &error);
  check(forked == KVC_OK || forked == KVC_ERROR_OUT_OF_PAGES, "fork", error);
  check(kvc_seq_truncate(cache, 1, &seq, &before, &error) == KVC_OK, "truncate", error);
  check(kvc_cache_check_invariants(cache, &error) == KVC_OK, "invariants", error);
  check(kvc_seq_remove(cache, 1, &seq, &error) == KVC_OK, "remove", error);
  check(forked != KVC_OK || kvc_seq_remove(cache, 1, &child, &error) == KVC_OK, "remove", error);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static kvc_cache *const cache = make_cache();
  if (size == 0) return 0;
  std::vector<uint8_t> bytes(data + 1, data + size);
  if (data[0] % 2 == 1) repair(&bytes);
  Source source = {bytes.data(), bytes.size()};
  int32_t tokens[8];
  kvc_load_args args;
  kvc_load_args_init(&args);
  args.read = &Source::read;
  args.read_user = &source;
  args.tokens = tokens;
  args.capacity = data[0] % 4 < 2 ? 0 : 8;
  kvc_seq seq = 0;
  int64_t count = 0;
  kvc_error error = KVC_ERROR_INIT;
  const kvc_status status = kvc_seq_load(cache, &args, nullptr, &seq, &count, &error);
  fuzz::reached["kvc_seq_load"].count(status == KVC_OK);
  if (status == KVC_OK) use(cache, seq);
  check(status != KVC_ERROR_INTERNAL, "load", error);
  check(pages_used(cache) == 0, "pages are left", error);
  check(kvc_cache_check_invariants(cache, &error) == KVC_OK, "invariants", error);
  return 0;
}
