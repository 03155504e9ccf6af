// Set-up, and a host's pool.
#include "harness.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <thread>

#include "harness_call.h"

namespace kvt {

std::string text(const Faults &faults) {
  std::ostringstream out;
  for (const Fault &f : faults) {
    out << (&f == faults.data() ? "" : " or ") << kvc_status_name(f.status);
    if (f.index != Fault::kAny) out << " index " << f.index;
    if (f.required != Fault::kAny) out << " required " << f.required;
    if (f.available != Fault::kAny) out << " available " << f.available;
    if (f.group != Fault::kAny) out << " group " << f.group;
  }
  return out.str();
}

// ---- Set-up ------------------------------------------------------------------------------------

Harness::Harness(const CacheSpec &spec, const Options &options)
    : spec_(spec), options_(options), random_(options.seed) {
  context_ = make_context(options.threads, options.simd, options.parallel_for, options.parallel_for_user);
  cache_ = make_cache(context_.get(), spec);
  pools_.resize(spec.groups.size());
  for (size_t g = 0; g < pools_.size(); g++) {
    kvc_stats stats;
    kvc_stats_init(&stats);
    if (kvc_cache_stats(cache_.get(), static_cast<int32_t>(g), &stats, nullptr)) fail("kvc_cache_stats");
    pools_[g].total = stats.pages_total;
    if (spec.groups[g].pages && spec.groups[g].pages != stats.pages_total) fail("pages_total is not num_pages");
  }
  if (options.graph) {
    kvc_graph_config config;
    kvc_graph_config_init(&config);
    if (kvc_graph_create(cache_.get(), &config, &graph_, nullptr)) fail("kvc_graph_create");
  }
  if (!options.poison) return;
  for (size_t layer = 0; layer < spec.layers.size(); layer++) {
    poison_pool(static_cast<int32_t>(layer), KVC_POOL_K);
    if (spec_.layers[layer].latent == 0) poison_pool(static_cast<int32_t>(layer), KVC_POOL_V);
    if (row_scale_bytes(spec.layers[layer].dtype, spec.layers[layer].d) == 0) continue;
    for (int32_t pool : {KVC_POOL_K_SCALE, KVC_POOL_V_SCALE}) poison_pool(static_cast<int32_t>(layer), pool);
  }
}

// Sets every byte to 0xff, which is NaN in every float type. (int8 has no NaN, but its scales have.)
void Harness::poison_pool(int32_t layer, int32_t pool) {
  DLManagedTensorVersioned *view = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  if (kvc_cache_export_pool(cache_.get(), layer, pool, KVC_POOL_WRITABLE, &view, nullptr, &error)) {
    fail("kvc_cache_export_pool: " + kvt::describe(error));
  }
  Managed owner(view);
  const DLTensor &t = view->dl_tensor;
  const int64_t bytes = t.dtype.bits / 8, dims = t.ndim == 4 ? t.shape[3] : 1;
  for (int64_t p = 0; p < t.shape[0]; p++) {
    for (int64_t h = 0; h < t.shape[1]; h++) {
      for (int64_t s = 0; s < t.shape[2]; s++) {
        const int64_t element = p * t.strides[0] + h * t.strides[1] + s * t.strides[2];
        std::memset(static_cast<char *>(t.data) + element * bytes, 0xff, static_cast<size_t>(dims * bytes));
      }
    }
  }
}

Harness::~Harness() = default;

void Harness::fail(const std::string &what) const {
  throw Mismatch(what + "  [seed " + std::to_string(options_.seed) + ", call " + std::to_string(calls_) + " " +
                 last_call_ + ", page size " + std::to_string(spec_.page_size) + "]");
}

void Harness::note(const char *format, ...) const {
  if (!options_.trace) return;
  std::printf("%llu ", static_cast<unsigned long long>(calls_));
  va_list values;
  va_start(values, format);
  std::vprintf(format, values);
  va_end(values);
  std::printf("\n");
}

uint64_t Harness::digest() {
  uint64_t digest = 0;
  if (kvc_cache_digest(cache_.get(), &digest, nullptr)) fail("kvc_cache_digest failed");
  return digest;
}

// ---- A host's pool -----------------------------------------------------------------------------

void RandomPool::run(void *self, int64_t n, void (*item)(void *, int64_t), void *arg) {
  RandomPool *pool = static_cast<RandomPool *>(self);
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; i++) order[i] = i;
  std::shuffle(order.begin(), order.end(), pool->random_);
  pool->runs_++;
  std::atomic<int64_t> next{0};
  auto work = [&] {
    for (int64_t i; (i = next.fetch_add(1)) < n;) item(arg, order[i]);
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < pool->threads_ && t < n; t++) threads.emplace_back(work);
  work();
  for (std::thread &t : threads) t.join();
}

}  // namespace kvt
