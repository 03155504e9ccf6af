// Parts of sections 5, 8, 9 and 18 of the header: caches, waiting copies, statistics and audits.
#include "api/boundary.h"
#include "layer/recurrent_layer.h"

using namespace kvc;
using namespace kvc::api;

namespace {

// The largest number of longrope factors that are copied. A larger number exceeds every rope_dim, so it is refused
// later.
constexpr int32_t kMostFactors = 65536;

// Replaces an array of longrope factors by a copy.
void own_factors(int32_t count, const double** factors, std::vector<double>* copy) {
  if (*factors == nullptr || count < 1 || count > kMostFactors) return;
  copy->resize(static_cast<size_t>(count));
  read_once(*factors, count, copy->data());
  *factors = copy->data();
}

Status read_config(const kvc_cache_config* config, CacheConfig* out) {
  KVC_TRY(read_struct(config, "config", &out->config));
  const kvc_cache_config& known = out->config;
  if (known.num_layers < 1 || known.num_layers > 4096) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "num_layers %d is outside 1..4096", known.num_layers);
  }
  const bool default_group = known.num_groups == 0 && known.groups == nullptr;
  if (!default_group && (known.num_groups < 1 || known.num_groups > 64)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "num_groups %d is outside 1..64", known.num_groups);
  }
  KVC_TRY(read_array(known.layers, known.num_layers, "layers", &out->layers));
  out->scalings.resize(out->layers.size());
  out->states.resize(out->layers.size());
  out->factors.resize(2 * out->layers.size());
  for (size_t i = 0; i < out->layers.size(); ++i) {
    const kvc_rope_scaling*& scaling = out->layers[i].rope_scaling;
    const kvc_layer_config& layer = out->layers[i];
    if (layer.states != nullptr && layer.num_states >= 1 &&
        layer.num_states <= kMaxStates) {  // other numbers are refused later
      Status status = read_array(layer.states, layer.num_states, "states", &out->states[i]);
      if (!status.ok()) return std::move(status).at(static_cast<int64_t>(i));
    }
    if (out->layers[i].rope_mode == KVC_ROPE_NONE) scaling = nullptr;  // a layer without RoPE ignores it
    if (scaling == nullptr) continue;
    Status status = read_struct(scaling, "rope_scaling", &out->scalings[i]);
    if (!status.ok()) return std::move(status).at(static_cast<int64_t>(i));
    scaling = &out->scalings[i];
    kvc_rope_scaling& known_scaling = out->scalings[i];
    own_factors(known_scaling.num_short_factors, &known_scaling.short_factors, &out->factors[2 * i]);
    own_factors(known_scaling.num_long_factors, &known_scaling.long_factors, &out->factors[2 * i + 1]);
  }
  if (!default_group) return read_array(known.groups, known.num_groups, "groups", &out->groups);
  kvc_group_config full;
  kvc_group_config_init(&full);
  out->groups = {full};
  return Status();
}

}  // namespace

kvc_status kvc_cache_estimate(kvc_context* context, const kvc_cache_config* config, int32_t group,
                              kvc_estimate* estimate, kvc_error* error) {
  return call("kvc_cache_estimate", error, [&]() -> Status {
    KVC_TRY(check_not_null(context, "context"));
    KVC_TRY(check_struct_size(estimate, "estimate"));
    CacheConfig known;
    KVC_TRY(read_config(config, &known));
    kvc_estimate out;
    kvc_estimate_init(&out);
    KVC_TRY(Cache::estimate(*context->context, known, group, &out));
    write_struct(out, estimate);
    return Status();
  });
}

kvc_status kvc_cache_create(kvc_context* context, const kvc_cache_config* config, kvc_cache** cache, kvc_error* error) {
  return call("kvc_cache_create", error, [&]() -> Status {
    KVC_TRY(check_not_null(context, "context"));
    KVC_TRY(check_not_null(cache, "cache"));
    CacheConfig known;
    KVC_TRY(read_config(config, &known));
    auto handle = std::make_unique<kvc_cache>();
    KVC_TRY(Cache::create(context->context, known, &handle->cache));
    *cache = handle.release();
    return Status();
  });
}

void kvc_cache_destroy(kvc_cache* cache) { delete cache; }

kvc_status kvc_cache_clear(kvc_cache* cache, kvc_error* error) {
  return cache_call("kvc_cache_clear", cache, error, [&](Cache& c) { return c.sequences.clear(); });
}

kvc_status kvc_cache_take_copies(kvc_cache* cache, kvc_copy* copies, uint32_t item_size, int64_t capacity,
                                 int64_t* count, kvc_error* error) {
  return cache_call("kvc_cache_take_copies", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_buffer(copies, capacity, "copies"));
    KVC_TRY(check_not_null(count, "count"));
    if (item_size != sizeof(kvc_copy)) {
      return Status::error(KVC_ERROR_STRUCT_SIZE, "item_size %u is not sizeof(kvc_copy), %zu", item_size,
                           sizeof(kvc_copy));
    }
    int64_t waiting = 0;
    Status status = c.sequences.take_copies(span_of(copies, capacity), &waiting);
    if (status.ok() || status.code() == KVC_ERROR_BUFFER_TOO_SMALL) *count = waiting;
    return status;
  });
}

kvc_status kvc_cache_stats(kvc_cache* cache, int32_t group, kvc_stats* stats, kvc_error* error) {
  return cache_call("kvc_cache_stats", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_struct_size(stats, "stats"));
    kvc_stats out;
    kvc_stats_init(&out);
    KVC_TRY(c.reports.stats(group, &out));
    write_struct(out, stats);
    return Status();
  });
}

kvc_status kvc_cache_describe(kvc_cache* cache, char* buffer, int64_t capacity, int64_t* length, kvc_error* error) {
  return audit_call("kvc_cache_describe", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_buffer(buffer, capacity, "buffer"));
    return write_text(c.reports.describe(), buffer, capacity, length);
  });
}

kvc_status kvc_cache_digest(kvc_cache* cache, uint64_t* digest, kvc_error* error) {
  return audit_call("kvc_cache_digest", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_not_null(digest, "digest"));
    *digest = c.reports.digest();
    return Status();
  });
}

kvc_status kvc_cache_check_invariants(kvc_cache* cache, kvc_error* error) {
  return audit_call("kvc_cache_check_invariants", cache, error, [&](Cache& c) { return c.reports.check_invariants(); });
}
