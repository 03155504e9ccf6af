#include "harness.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <limits>
#include <sstream>
#include <thread>

#include "reference.h"

namespace kvt {
namespace {

uint64_t hash(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

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

bool same(int64_t wanted, int64_t got) { return wanted == Fault::kAny || wanted == got; }

}  // namespace

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
  if (!options.poison) return;
  for (size_t layer = 0; layer < spec.layers.size(); layer++) {
    for (int32_t pool : {KVC_POOL_K, KVC_POOL_V}) {
      DLManagedTensorVersioned *view = nullptr;
      kvc_error error = KVC_ERROR_INIT;
      if (kvc_cache_export_pool(cache_.get(), static_cast<int32_t>(layer), pool, KVC_POOL_WRITABLE, &view, &error)) {
        fail("kvc_cache_export_pool: " + kvt::describe(error));
      }
      Managed owner(view);
      const DLTensor &t = view->dl_tensor;
      for (int64_t p = 0; p < t.shape[0]; p++) {
        for (int64_t h = 0; h < t.shape[1]; h++) {
          for (int64_t s = 0; s < t.shape[2]; s++) {
            for (int64_t d = 0; d < t.shape[3]; d++) set(t, {p, h, s, d}, NAN);
          }
        }
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

template <class Call>
kvc_status Harness::call(const char *function, const Faults &faults, Call &&function_call) {
  last_call_ = function;
  calls_++;
  kvc_error error, untouched;
  std::memset(&untouched, 0x5A, sizeof(untouched));
  untouched.struct_size = sizeof(untouched);
  error = untouched;
  const bool with_error = !chance(0.05);
  const bool check_digest = options_.check_digest && !faults.empty();
  const uint64_t before = check_digest ? digest() : 0;
  const kvc_status status = function_call(with_error ? &error : nullptr);
  mix(static_cast<uint64_t>(status));
  if (status == KVC_OK) {
    if (std::memcmp(&error, &untouched, sizeof(error)) != 0) fail("wrote kvc_error on success");
    for (const Fault &f : faults) {
      if (f.status == KVC_OK) return status;
    }
    if (!faults.empty()) fail("succeeded, expected " + text(faults));
    return status;
  }
  bool accepted = false;
  for (const Fault &f : faults) {
    if (f.status != status) continue;
    if (!with_error || (same(f.index, error.index) && same(f.required, error.required) &&
                        same(f.available, error.available) && same(f.group, error.group))) {
      accepted = true;
    }
  }
  if (!accepted) {
    fail("got " + (with_error ? kvt::describe(error) : std::string(kvc_status_name(status))) + ", expected " +
         (faults.empty() ? "success" : text(faults)));
  }
  if (with_error) {
    if (error.code != status) fail("kvc_error.code is not the returned status");
    if (!std::memchr(error.message, 0, sizeof(error.message))) fail("message without NUL");
    if (std::strncmp(error.message, function, std::strlen(function)) != 0) {
      fail(std::string("message does not start with its function: ") + error.message);
    }
  }
  if (check_digest && digest() != before) fail("a refused call changed the digest: " + text(faults));
  return status;
}

// ---- Pages of the model ------------------------------------------------------------------------

int Harness::take_page(int group) {
  Pool &pool = pools_[group];
  const int page = pool.next++;
  pool.refs[page] = 1;
  pool.used++;
  pool.peak = std::max(pool.peak, pool.used);
  return page;
}
void Harness::share_page(int group, int page) { pools_[group].refs.at(page)++; }
void Harness::drop_page(int group, int page) {
  Pool &pool = pools_[group];
  if (--pool.refs.at(page) > 0) return;
  pool.refs.erase(page);
  pool.used--;
  auto it = pool.to_library.find(page);
  if (it != pool.to_library.end()) {
    pool.from_library.erase(it->second);
    pool.to_library.erase(it);
  }
}

int64_t Harness::pages_needed(const Sequence &s, int group, int64_t tokens) const {
  const int64_t length = static_cast<int64_t>(s.tokens.size()), page = spec_.page_size;
  const std::vector<int> &pages = s.pages[group];
  int64_t needed = ceil_div(length + tokens, page) - static_cast<int64_t>(pages.size());
  if (tokens > 0 && length % page != 0 && pools_[group].refs.at(pages.back()) > 1) needed++;
  return needed;
}

Harness::Need Harness::need(const std::vector<Row> &rows) const {
  Need need;
  need.total.assign(pools_.size(), 0);
  need.first_over.assign(pools_.size(), -1);
  for (size_t g = 0; g < pools_.size(); g++) {
    for (size_t i = 0; i < rows.size(); i++) {
      if (rows[i].sequence < 0) continue;
      need.total[g] += pages_needed(sequence(rows[i].sequence), static_cast<int>(g), rows[i].length);
      if (need.total[g] > free_pages(static_cast<int>(g)) && need.first_over[g] < 0) {
        need.first_over[g] = static_cast<int>(i);
      }
    }
  }
  return need;
}

Faults Harness::open_faults() const {
  if (static_cast<int>(forwards_.size()) < spec_.max_open_forwards) return {};
  return {{KVC_ERROR_TOO_MANY_FORWARDS}};
}

Faults Harness::batch_faults(const std::vector<Row> &rows, int layer_begin, int layer_end) const {
  Faults faults;
  const int layers = static_cast<int>(spec_.layers.size());
  if (layer_begin || layer_end) {
    if (layer_begin < 0 || layer_end > layers || layer_begin >= layer_end) faults.push_back({KVC_ERROR_OUT_OF_RANGE});
  }
  int64_t tokens = 0;
  std::map<kvc_seq, int> seen;
  for (size_t i = 0; i < rows.size(); i++) {
    const Row &row = rows[i];
    const int64_t index = static_cast<int64_t>(i);
    if (row.length > 0) tokens += row.length;
    const kvc_seq id = row.sequence >= 0 ? sequence(row.sequence).id : row.sequence == kRaw ? row.raw : 0;
    if (id == 0) {
      if (row.length < 0) faults.push_back({KVC_ERROR_INVALID_ARGUMENT, index});
      continue;
    }
    if (row.length < 1) faults.push_back({KVC_ERROR_INVALID_ARGUMENT, index});
    if (row.sequence == kRaw || sequence(row.sequence).doomed) {
      faults.push_back({KVC_ERROR_STALE_ID, index});
    } else if (sequence(row.sequence).forward >= 0) {
      faults.push_back({KVC_ERROR_BUSY, index});
    }
    if (seen.count(id)) {
      faults.push_back({KVC_ERROR_DUPLICATE, index});
      faults.push_back({KVC_ERROR_DUPLICATE, seen[id]});
    }
    seen.emplace(id, static_cast<int>(i));
  }
  if (tokens > spec_.max_batch_tokens) {
    faults.push_back({KVC_ERROR_BATCH_TOO_LARGE, Fault::kAny, tokens, spec_.max_batch_tokens});
  }
  if (static_cast<int>(rows.size()) > spec_.max_sequences) {
    faults.push_back({KVC_ERROR_BATCH_TOO_LARGE, Fault::kAny, static_cast<int64_t>(rows.size()), spec_.max_sequences});
  }
  for (const Fault &f : open_faults()) faults.push_back(f);
  if (!faults.empty()) return faults;
  const Need n = need(rows);
  for (size_t g = 0; g < pools_.size(); g++) {
    if (n.first_over[g] < 0) continue;
    faults.push_back({KVC_ERROR_OUT_OF_PAGES, n.first_over[g], n.total[g], free_pages(static_cast<int>(g)),
                      static_cast<int64_t>(g)});
  }
  return faults;
}

int64_t Harness::first_held(int handle, int group) const {
  const std::vector<int> &pages = sequence(handle).pages[group];
  size_t i = 0;
  while (i < pages.size() && pages[i] < 0) i++;
  return static_cast<int64_t>(i) * spec_.page_size;
}

bool Harness::position_works(int handle, int64_t position) const {
  if (position == 0) return true;
  for (size_t g = 0; g < pools_.size(); g++) {
    const int64_t window = spec_.groups[g].window;
    if (!window) continue;
    if (std::max<int64_t>(0, position - window + 1) < first_held(handle, static_cast<int>(g))) return false;
  }
  return true;
}

std::vector<int> Harness::live() const {
  std::vector<int> handles;
  for (const auto &[handle, s] : sequences_) {
    if (!s.doomed) handles.push_back(handle);
  }
  return handles;
}
std::vector<int> Harness::idle() const {
  std::vector<int> handles;
  for (const auto &[handle, s] : sequences_) {
    if (!s.doomed && s.forward < 0) handles.push_back(handle);
  }
  return handles;
}
std::vector<int> Harness::open() const {
  std::vector<int> handles;
  for (const auto &[handle, f] : forwards_) handles.push_back(handle);
  return handles;
}

// ---- Sequences ---------------------------------------------------------------------------------

kvc_status Harness::add(int n, std::vector<int> *handles) {
  const int64_t live_count = static_cast<int64_t>(sequences_.size()) - doomed_;
  Faults faults;
  if (n > spec_.max_sequences - live_count - doomed_) {
    faults.push_back({KVC_ERROR_TOO_MANY_SEQUENCES, Fault::kAny, n});
    if (n > spec_.max_sequences) faults.push_back({KVC_ERROR_INVALID_ARGUMENT});
    // A removed sequence that an open forward still uses may or may not take a place.
    if (n <= spec_.max_sequences - live_count) faults.push_back({KVC_OK});
  }
  if (n < 1) faults.push_back({KVC_ERROR_INVALID_ARGUMENT});
  std::vector<kvc_seq> ids(static_cast<size_t>(std::max(n, 1)), 0);
  const kvc_status status = call("kvc_seq_add", faults, [&](kvc_error *e) {
    return kvc_seq_add(cache_.get(), n, ids.data(), e);
  });
  if (status) return status;
  for (int i = 0; i < n; i++) {
    if (ids[i] == 0 || ids[i] >> 63) fail("sequence id out of range");
    for (const auto &[handle, s] : sequences_) {
      if (s.id == ids[i]) fail("sequence id given twice");
    }
    Sequence s;
    s.id = ids[i];
    s.pages.resize(pools_.size());
    note("add -> %d", next_handle_);
    sequences_[next_handle_] = s;
    handles->push_back(next_handle_++);
  }
  return status;
}

int Harness::add() {
  std::vector<int> handles;
  if (add(1, &handles)) fail("add refused");
  return handles[0];
}

void Harness::release(int handle) {
  Sequence &s = sequence(handle);
  for (size_t g = 0; g < pools_.size(); g++) {
    for (int page : s.pages[g]) {
      if (page >= 0) drop_page(static_cast<int>(g), page);
    }
  }
  sequences_.erase(handle);
}

kvc_status Harness::remove(const std::vector<int> &handles) {
  Faults faults;
  std::vector<kvc_seq> ids;
  std::map<int, int> seen;
  for (size_t i = 0; i < handles.size(); i++) {
    const int64_t index = static_cast<int64_t>(i);
    auto it = sequences_.find(handles[i]);
    if (handles[i] < 0 || it == sequences_.end() || it->second.doomed) {
      ids.push_back(it != sequences_.end() ? it->second.id : stale_.empty() ? 0 : stale_[hash(calls_) % stale_.size()]);
      faults.push_back({KVC_ERROR_STALE_ID, index});
      continue;
    }
    ids.push_back(it->second.id);
    if (seen.count(handles[i])) {
      faults.push_back({KVC_ERROR_DUPLICATE, index});
      faults.push_back({KVC_ERROR_DUPLICATE, seen[handles[i]]});
    }
    seen.emplace(handles[i], static_cast<int>(i));
  }
  const kvc_status status = call("kvc_seq_remove", faults, [&](kvc_error *e) {
    return kvc_seq_remove(cache_.get(), static_cast<int64_t>(ids.size()), ids.data(), e);
  });
  if (status) return status;
  for (int handle : handles) {
    note("remove %d", handle);
    Sequence &s = sequence(handle);
    stale_.push_back(s.id);
    if (s.forward >= 0) {
      s.doomed = true;
      doomed_++;
    } else {
      release(handle);
    }
  }
  return status;
}

kvc_status Harness::fork(const std::vector<int> &parents, const std::vector<int64_t> *positions,
                         std::vector<int> *children) {
  const int64_t n = static_cast<int64_t>(parents.size());
  Faults faults;
  std::vector<kvc_seq> ids;
  std::vector<int64_t> at(parents.size(), -1);
  for (size_t i = 0; i < parents.size(); i++) {
    const int64_t index = static_cast<int64_t>(i);
    auto it = sequences_.find(parents[i]);
    if (parents[i] < 0 || it == sequences_.end() || it->second.doomed) {
      ids.push_back(it != sequences_.end() ? it->second.id : stale_.empty() ? 0 : stale_.back());
      faults.push_back({KVC_ERROR_STALE_ID, index});
      continue;
    }
    const Sequence &s = it->second;
    ids.push_back(s.id);
    if (s.forward >= 0) faults.push_back({KVC_ERROR_BUSY, index});
    const int64_t length = static_cast<int64_t>(s.tokens.size());
    at[i] = positions && (*positions)[i] != -1 ? (*positions)[i] : length;
    if (at[i] < 0 || at[i] > length) {
      faults.push_back({KVC_ERROR_OUT_OF_RANGE, index});
    } else if (!position_works(parents[i], at[i])) {
      faults.push_back({KVC_ERROR_EVICTED, index});
    }
  }
  const int64_t live_count = static_cast<int64_t>(sequences_.size()) - doomed_;
  if (n > spec_.max_sequences - live_count - doomed_) {
    if (n <= spec_.max_sequences - live_count && faults.empty()) faults.push_back({KVC_OK});
    faults.push_back({KVC_ERROR_TOO_MANY_SEQUENCES, Fault::kAny, n});
    if (n > spec_.max_sequences) faults.push_back({KVC_ERROR_INVALID_ARGUMENT});
  }
  if (faults.empty()) {
    const int64_t copies = std::count_if(at.begin(), at.end(), [&](int64_t p) { return p % spec_.page_size != 0; });
    for (size_t g = 0; g < pools_.size(); g++) {
      const int64_t available = free_pages(static_cast<int>(g));
      if (copies > available) {
        faults.push_back({KVC_ERROR_OUT_OF_PAGES, Fault::kAny, copies, available, static_cast<int64_t>(g)});
      }
    }
  }
  std::vector<kvc_seq> result(parents.size() + 1, 0);
  const kvc_status status = call("kvc_seq_fork", faults, [&](kvc_error *e) {
    return kvc_seq_fork(cache_.get(), n, ids.data(), positions ? positions->data() : nullptr, result.data(), nullptr, e);
  });
  if (status) return status;
  for (size_t i = 0; i < parents.size(); i++) {
    if (result[i] == 0 || result[i] >> 63) fail("sequence id out of range");
    note("fork %d at %lld -> %d", parents[i], static_cast<long long>(at[i]), next_handle_);
    Sequence child;
    const Sequence &parent = sequence(parents[i]);
    child.id = result[i];
    child.tokens.assign(parent.tokens.begin(), parent.tokens.begin() + at[i]);
    child.pages.resize(pools_.size());
    for (size_t g = 0; g < pools_.size(); g++) {
      for (int64_t p = 0; p < at[i] / spec_.page_size; p++) {
        const int page = parent.pages[g][p];
        if (page >= 0) share_page(static_cast<int>(g), page);
        child.pages[g].push_back(page);
      }
      if (at[i] % spec_.page_size) child.pages[g].push_back(take_page(static_cast<int>(g)));
    }
    sequences_[next_handle_] = child;
    children->push_back(next_handle_++);
  }
  return status;
}

int Harness::fork(int parent, int64_t position) {
  std::vector<int> children;
  const std::vector<int64_t> positions{position};
  if (fork({parent}, &positions, &children)) fail("fork refused");
  return children[0];
}

kvc_status Harness::truncate(const std::vector<int> &handles, const std::vector<int64_t> &lengths) {
  Faults faults;
  std::vector<kvc_seq> ids;
  std::map<int, int> seen;
  for (size_t i = 0; i < handles.size(); i++) {
    const int64_t index = static_cast<int64_t>(i);
    auto it = sequences_.find(handles[i]);
    if (handles[i] < 0 || it == sequences_.end() || it->second.doomed) {
      ids.push_back(it != sequences_.end() ? it->second.id : stale_.empty() ? 0 : stale_.back());
      faults.push_back({KVC_ERROR_STALE_ID, index});
      continue;
    }
    ids.push_back(it->second.id);
    if (seen.count(handles[i])) {
      faults.push_back({KVC_ERROR_DUPLICATE, index});
      faults.push_back({KVC_ERROR_DUPLICATE, seen[handles[i]]});
    }
    seen.emplace(handles[i], static_cast<int>(i));
    if (it->second.forward >= 0) faults.push_back({KVC_ERROR_BUSY, index});
    if (lengths[i] < 0 || lengths[i] > length(handles[i])) {
      faults.push_back({KVC_ERROR_OUT_OF_RANGE, index});
    } else if (!position_works(handles[i], lengths[i])) {
      faults.push_back({KVC_ERROR_EVICTED, index});
    }
  }
  const kvc_status status = call("kvc_seq_truncate", faults, [&](kvc_error *e) {
    return kvc_seq_truncate(cache_.get(), static_cast<int64_t>(ids.size()), ids.data(), lengths.data(), e);
  });
  if (status) return status;
  for (size_t i = 0; i < handles.size(); i++) {
    Sequence &s = sequence(handles[i]);
    note("truncate %d from %zu to %lld", handles[i], s.tokens.size(), static_cast<long long>(lengths[i]));
    s.tokens.resize(lengths[i]);
    for (size_t g = 0; g < pools_.size(); g++) {
      while (static_cast<int64_t>(s.pages[g].size()) > ceil_div(lengths[i], spec_.page_size)) {
        if (s.pages[g].back() >= 0) drop_page(static_cast<int>(g), s.pages[g].back());
        s.pages[g].pop_back();
      }
    }
  }
  return status;
}

kvc_status Harness::clear() {
  Faults faults;
  if (!forwards_.empty()) faults.push_back({KVC_ERROR_BUSY});
  const kvc_status status =
      call("kvc_cache_clear", faults, [&](kvc_error *e) { return kvc_cache_clear(cache_.get(), e); });
  if (status) return status;
  while (!sequences_.empty()) {
    stale_.push_back(sequences_.begin()->second.id);
    release(sequences_.begin()->first);
  }
  return status;
}

// ---- Contents ----------------------------------------------------------------------------------

float Harness::value(const Token &token, int64_t position, int layer, int head, int dim, int which) {
  uint64_t h = hash((static_cast<uint64_t>(token.tag) << 32) ^ static_cast<uint64_t>(position));
  h = hash(h ^ (static_cast<uint64_t>(layer) << 40) ^ (static_cast<uint64_t>(head) << 24) ^
           (static_cast<uint64_t>(dim) << 4) ^ static_cast<uint64_t>(which));
  // 8 significant bits are exact in every dtype; otherwise 24 bits that have to be rounded.
  if (!token.rough) return static_cast<float>(static_cast<int8_t>(h)) / 128.0f;
  return round_to(token.input, static_cast<float>(static_cast<int32_t>(h) >> 8) / 8388608.0f);
}

Token Harness::new_token() {
  Token token;
  token.tag = next_tag_++;
  return token;
}

void Harness::expected(const Token &token, int64_t position, int layer, int head, int which, float *values,
                       float *flips) const {
  const LayerSpec &l = spec_.layers[layer];
  const int dim = which ? l.v_dim() : l.d;
  for (int i = 0; i < dim; i++) values[i] = value(token, position, layer, head, i, which);
  if (which == 0 && l.rope == KVC_ROPE_ON_APPEND && !token.as_stored) {
    std::vector<float> raw(values, values + dim);
    rotate_rounded(l.dtype, raw.data(), dim, l.rotated(), l.base(), position, values, flips);
    return;
  }
  for (int i = 0; i < dim; i++) {
    values[i] = round_to(l.dtype, values[i]);
    flips[i] = 0;
  }
}

void Harness::check_contents(int handle, int layer, int64_t begin, int64_t end) {
  const Sequence &s = sequence(handle);
  const LayerSpec &l = spec_.layers[layer];
  DLManagedTensorVersioned *k = nullptr, *v = nullptr;
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.layer = layer;
  args.position_begin = begin;
  args.position_end = end;
  call("kvc_seq_export", {}, [&](kvc_error *e) {
    return kvc_seq_export(cache_.get(), s.id, &args, &k, &v, nullptr, e);
  });
  Managed k_owner(k), v_owner(v);
  if (end == 0) end = static_cast<int64_t>(s.tokens.size());
  for (int which = 0; which < 2; which++) {
    const DLTensor &t = (which ? v : k)->dl_tensor;
    const int dim = which ? l.v_dim() : l.d;
    if (t.ndim != 3 || t.shape[0] != end - begin || t.shape[1] != l.hkv || t.shape[2] != dim) fail("export shape");
    if (!t.strides || t.byte_offset != 0 || (end > begin && reinterpret_cast<uintptr_t>(t.data) % 256 != 0)) {
      fail("export: strides NULL, byte_offset not 0, or data not 256-byte aligned");
    }
    if (dtype_of(t.dtype) != l.dtype || t.device.device_type != kDLCPU) fail("export dtype or device");
    std::vector<float> values(dim), flips(dim);
    for (int64_t p = begin; p < end; p++) {
      if (!(s.tokens[p].layers >> layer & 1)) continue;
      for (int h = 0; h < l.hkv; h++) {
        expected(s.tokens[p], p, layer, h, which, values.data(), flips.data());
        for (int i = 0; i < dim; i++) {
          const float got = at(t, {p - begin, h, i});
          if (got == values[i] || std::fabs(static_cast<double>(got) - values[i]) <= flips[i]) continue;
          std::ostringstream out;
          out << (which ? "V" : "K") << " of sequence " << handle << " layer " << layer << " position " << p << " head "
              << h << " dim " << i << ": stored " << got << ", expected " << values[i] << " (slack " << flips[i] << ")";
          fail(out.str());
        }
      }
    }
  }
}

void Harness::check_contents(int handle) {
  if (length(handle) == 0) return;
  for (size_t layer = 0; layer < spec_.layers.size(); layer++) {
    const int64_t begin = first_held(handle, spec_.layers[layer].group);
    if (begin < length(handle)) check_contents(handle, static_cast<int>(layer), begin, length(handle));
  }
}

void Harness::check_export_refused(int handle, int layer, int64_t begin, int64_t end) {
  Faults faults;
  const Sequence &s = sequence(handle);
  const int64_t length = static_cast<int64_t>(s.tokens.size());
  if (s.forward >= 0) faults.push_back({KVC_ERROR_BUSY});
  const bool layer_exists = layer >= 0 && layer < static_cast<int>(spec_.layers.size());
  if (!layer_exists) faults.push_back({KVC_ERROR_OUT_OF_RANGE});
  const int64_t last = end == 0 ? length : end;
  if (begin < 0 || last > length || begin > last) {
    faults.push_back({KVC_ERROR_OUT_OF_RANGE});
  }
  if (layer_exists && begin < first_held(handle, spec_.layers[layer].group)) {
    faults.push_back({KVC_ERROR_EVICTED});
  }
  if (faults.empty()) return;
  DLManagedTensorVersioned *k = nullptr, *v = nullptr;
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.layer = layer;
  args.position_begin = begin;
  args.position_end = end;
  call("kvc_seq_export", faults, [&](kvc_error *e) {
    return kvc_seq_export(cache_.get(), s.id, &args, &k, &v, nullptr, e);
  });
  if (k || v) fail("a refused export set its outputs");
}

// ---- Forwards ----------------------------------------------------------------------------------

void Harness::make_batch(const std::vector<Row> &rows, int layer_begin, int layer_end, std::vector<kvc_seq> *ids,
                         std::vector<int32_t> *lengths, kvc_batch *batch) const {
  for (const Row &row : rows) {
    ids->push_back(row.sequence >= 0 ? sequence(row.sequence).id : row.sequence == kRaw ? row.raw : 0);
    lengths->push_back(row.length);
  }
  kvc_batch_init(batch);
  batch->num_sequences = static_cast<int32_t>(rows.size());
  batch->sequences = ids->data();
  batch->append_lengths = lengths->data();
  batch->layer_begin = layer_begin;
  batch->layer_end = layer_end;
}

void Harness::apply_begin(const std::vector<Row> &rows, Open *open) {
  open->input = options_.plain_inputs ? DType::kF32 : static_cast<DType>(uniform(0, 2));
  const bool rough = chance(0.3);
  open->as_stored = !options_.plain_inputs && chance(0.1);
  uint64_t layers = 0;
  for (int l = open->layer_begin; l < open->layer_end; l++) layers |= 1ull << l;
  for (const Row &row : rows) {
    OpenRow r{row.sequence, row.length, 0, {}, {}, {}};
    open->tokens += row.length;
    if (row.sequence >= 0) {
      Sequence &s = sequence(row.sequence);
      r.start = static_cast<int64_t>(s.tokens.size());
      Token token = new_token();
      token.input = open->input;
      token.rough = rough;
      token.as_stored = open->as_stored;
      token.layers = layers;
      r.tokens.assign(row.length, token);
      r.fresh.resize(pools_.size());
      r.copied.assign(pools_.size(), false);
      for (size_t g = 0; g < pools_.size(); g++) {
        const int64_t pages = static_cast<int64_t>(s.pages[g].size());
        const int64_t needed = pages_needed(s, static_cast<int>(g), row.length);
        r.copied[g] = needed > ceil_div(r.start + row.length, spec_.page_size) - pages;
        for (int64_t i = 0; i < needed; i++) r.fresh[g].push_back(take_page(static_cast<int>(g)));
      }
    }
    open->rows.push_back(std::move(r));
  }
}

void Harness::apply_end(Open *open) {
  for (OpenRow &row : open->rows) {
    if (row.sequence < 0) continue;
    Sequence &s = sequence(row.sequence);
    s.forward = -1;
    s.tokens.insert(s.tokens.end(), row.tokens.begin(), row.tokens.end());
    for (size_t g = 0; g < pools_.size(); g++) {
      std::vector<int> &pages = s.pages[g];
      size_t i = 0;
      if (row.copied[g]) {
        drop_page(static_cast<int>(g), pages.back());
        pages.back() = row.fresh[g][i++];
      }
      for (; i < row.fresh[g].size(); i++) pages.push_back(row.fresh[g][i]);
      if (!spec_.groups[g].window) continue;
      const int64_t boundary =
          static_cast<int64_t>(s.tokens.size()) - spec_.rollback - spec_.groups[g].window + 1;
      for (size_t p = 0; p < pages.size() && static_cast<int64_t>(p + 1) * spec_.page_size <= boundary; p++) {
        if (pages[p] >= 0) drop_page(static_cast<int>(g), pages[p]);
        pages[p] = -1;
      }
    }
    if (s.doomed) {
      doomed_--;
      release(row.sequence);
    }
  }
}

void Harness::apply_abort(Open *open) {
  for (OpenRow &row : open->rows) {
    if (row.sequence < 0) continue;
    Sequence &s = sequence(row.sequence);
    s.forward = -1;
    for (size_t g = 0; g < pools_.size(); g++) {
      for (int page : row.fresh[g]) drop_page(static_cast<int>(g), page);
    }
    if (s.doomed) {
      doomed_--;
      release(row.sequence);
    }
  }
}

kvc_status Harness::begin(const std::vector<Row> &rows, int *forward, int layer_begin, int layer_end) {
  std::vector<kvc_seq> ids;
  std::vector<int32_t> lengths;
  kvc_batch batch;
  make_batch(rows, layer_begin, layer_end, &ids, &lengths, &batch);
  const Faults faults = batch_faults(rows, layer_begin, layer_end);
  // can_fit says the same, with the same numbers.
  const bool ask = chance(0.5);
  kvc_error fit = KVC_ERROR_INIT, refused = KVC_ERROR_INIT;
  const kvc_status fits = ask ? kvc_cache_can_fit(cache_.get(), &batch, &fit) : KVC_OK;
  kvc_forward id = 0;
  const kvc_status status = call("kvc_forward_begin", faults, [&](kvc_error *e) {
    const kvc_status s = kvc_forward_begin(cache_.get(), &batch, nullptr, &id, e);
    if (e) refused = *e;
    return s;
  });
  if (ask && fits != status) {
    fail(std::string("can_fit said ") + kvc_status_name(fits) + ", begin " + kvc_status_name(status));
  }
  if (ask && status && refused.code == status &&
      (fit.index != refused.index || fit.required != refused.required || fit.available != refused.available ||
       fit.group != refused.group)) {
    fail("can_fit: " + kvt::describe(fit) + "; begin: " + kvt::describe(refused));
  }
  if (status) return status;
  if (id == 0 || id >> 63) fail("forward id out of range");
  Open open;
  open.id = id;
  open.layer_begin = layer_begin;
  open.layer_end = layer_begin || layer_end ? layer_end : static_cast<int>(spec_.layers.size());
  open.checked = chance(options_.attend_checks);
  apply_begin(rows, &open);
  for (const Row &row : rows) {
    if (row.sequence >= 0) sequence(row.sequence).forward = next_forward_;
  }
  for (const Row &row : rows) note("begin forward %d: sequence %d +%d", next_forward_, row.sequence, row.length);
  *forward = next_forward_;
  forwards_[next_forward_++] = std::move(open);
  check_info(forwards_[*forward]);
  return status;
}

void Harness::check_info(const Open &open) {
  kvc_forward_info info;
  kvc_forward_info_init(&info);
  call("kvc_forward_get_info", {}, [&](kvc_error *e) {
    return kvc_forward_get_info(cache_.get(), open.id, &info, e);
  });
  if (info.num_sequences != static_cast<int32_t>(open.rows.size()) || info.num_tokens != open.tokens) {
    fail("kvc_forward_info counts");
  }
  int64_t t = 0;
  for (size_t i = 0; i < open.rows.size(); i++) {
    const OpenRow &row = open.rows[i];
    const int32_t last = row.length ? static_cast<int32_t>(t + row.length - 1) : -1;
    if (info.last_rows_host[i] != last) fail("last_rows_host");
    for (int32_t j = 0; j < row.length; j++, t++) {
      const int32_t position = row.sequence < 0 ? 0 : static_cast<int32_t>(row.start + j);
      if (info.positions_host[t] != position) fail("positions_host");
    }
  }
  const DLTensor *tensors[] = {&info.positions, &info.last_rows};
  const int32_t *host[] = {info.positions_host, info.last_rows_host};
  const int64_t sizes[] = {open.tokens, static_cast<int64_t>(open.rows.size())};
  for (int i = 0; i < 2; i++) {
    const DLTensor &t = *tensors[i];
    if (t.ndim != 1 || t.shape[0] != sizes[i] || t.dtype.code != kDLInt || t.dtype.bits != 32 ||
        t.device.device_type != kDLCPU) {
      fail("kvc_forward_info tensor");
    }
    const char *data = static_cast<const char *>(t.data) + t.byte_offset;
    if (sizes[i] && std::memcmp(data, host[i], sizes[i] * 4) != 0) fail("kvc_forward_info tensor contents");
  }
}

void Harness::fill_kv(const Open &open, int layer, Tensor *k, Tensor *v) {
  const LayerSpec &l = spec_.layers[layer];
  int64_t t = 0;
  for (const OpenRow &row : open.rows) {
    for (int32_t j = 0; j < row.length; j++, t++) {
      for (int h = 0; h < l.hkv; h++) {
        // Inert rows carry NaN: nothing may read them.
        for (int i = 0; i < l.d; i++) {
          k->set(t, h, i, row.sequence < 0 ? NAN : value(row.tokens[j], row.start + j, layer, h, i, 0));
        }
        for (int i = 0; i < l.v_dim(); i++) {
          v->set(t, h, i, row.sequence < 0 ? NAN : value(row.tokens[j], row.start + j, layer, h, i, 1));
        }
      }
    }
  }
  for (; t < k->dim(0); t++) {
    for (int h = 0; h < l.hkv; h++) {
      for (int i = 0; i < l.d; i++) k->set(t, h, i, NAN);
      for (int i = 0; i < l.v_dim(); i++) v->set(t, h, i, NAN);
    }
  }
}

void Harness::append_layer(int forward, int layer) {
  Open &open = forwards_.at(forward);
  const LayerSpec &l = spec_.layers[layer];
  const bool plain = options_.plain_inputs;
  const int64_t rows = open.tokens + (plain ? 0 : uniform(0, 2)), padding = plain ? 0 : uniform(0, 3),
                offset = plain ? 0 : uniform(0, 5);
  Tensor k(open.input, {rows, l.hkv, l.d}, padding, offset), v(open.input, {rows, l.hkv, l.v_dim()}, padding, offset);
  fill_kv(open, layer, &k, &v);
  kvc_append_args args;
  kvc_append_args_init(&args);
  args.k = k.dl(true);
  args.v = v.dl(true);
  if (open.as_stored) args.flags = KVC_APPEND_AS_STORED;
  call("kvc_forward_append", {}, [&](kvc_error *e) {
    return kvc_forward_append(cache_.get(), open.id, layer, &args, e);
  });
  open.appended.insert(layer);
}

void Harness::attend_layer(int forward, int layer) {
  Open &open = forwards_.at(forward);
  const LayerSpec &l = spec_.layers[layer];
  if (open.as_stored && !open.appended.count(layer)) append_layer(forward, layer);
  const bool plain = options_.plain_inputs, fused = !open.appended.count(layer);
  const int64_t rows = open.tokens + (plain ? 0 : uniform(0, 2)), padding = plain ? 0 : uniform(0, 3),
                offset = plain ? 0 : uniform(0, 5);
  const DType q_type = plain ? DType::kF32 : static_cast<DType>(uniform(0, 2));
  const DType out_type = plain ? DType::kF32 : static_cast<DType>(uniform(0, 2));
  const bool with_lse = plain || chance(0.7);
  Tensor k, v, q(q_type, {rows, l.hq, l.d}, padding, offset), out(out_type, {rows, l.hq, l.v_dim()}, padding, offset);
  Tensor lse(DType::kF32, {rows, l.hq}, padding, offset);
  const float amplitude = 1.0f + 3.0f * static_cast<float>(uniform(0, 3));
  int64_t t = 0;
  for (const OpenRow &row : open.rows) {
    for (int32_t j = 0; j < row.length; j++, t++) {
      const uint64_t base = random_();
      for (int h = 0; h < l.hq; h++) {
        for (int i = 0; i < l.d; i++) {
          const float x = static_cast<float>(static_cast<int32_t>(hash(base + h * 1024 + i)) >> 8) / 8388608.0f;
          q.set(t, h, i, row.sequence < 0 ? NAN : x * amplitude);
        }
      }
    }
  }
  for (; t < rows; t++) {
    for (int h = 0; h < l.hq; h++) {
      for (int i = 0; i < l.d; i++) q.set(t, h, i, NAN);
    }
  }
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = q.dl(true);
  args.out = out.dl(true);
  if (with_lse) args.lse = lse.dl(true);
  if (fused) {
    k = Tensor(open.input, {rows, l.hkv, l.d}, padding, offset);
    v = Tensor(open.input, {rows, l.hkv, l.v_dim()}, padding, offset);
    fill_kv(open, layer, &k, &v);
    args.k = k.dl(true);
    args.v = v.dl(true);
  }
  call("kvc_forward_attend", {}, [&](kvc_error *e) {
    return kvc_forward_attend(cache_.get(), open.id, layer, &args, e);
  });
  open.appended.insert(layer);
  open.attended.insert(layer);

  // Everything but the rows of sequences is left alone: padding, inert rows, rows from T on.
  const Tensor fresh_out(out_type, {rows, l.hq, l.v_dim()}, padding, offset);
  Tensor seen = fresh_out, seen_lse(DType::kF32, {rows, l.hq}, padding, offset);
  t = 0;
  for (const OpenRow &row : open.rows) {
    for (int32_t j = 0; j < row.length; j++, t++) {
      for (int h = 0; h < l.hq; h++) {
        const bool inert = row.sequence < 0;
        if (!inert) {
          std::memcpy(seen.bytes().data() + (offset + seen.index(t, h, 0)) * size_of(out_type),
                      out.bytes().data() + (offset + out.index(t, h, 0)) * size_of(out_type),
                      l.v_dim() * size_of(out_type));
        }
        // The LSE of a row that sees nothing: left alone, or -infinity.
        const float x = lse.at(t, h);
        if (!inert || x == -INFINITY) seen_lse.set(t, h, x);
      }
    }
  }
  if (seen.bytes() != out.bytes()) fail("attend wrote outside the rows of its sequences");
  if (with_lse && seen_lse.bytes() != lse.bytes()) fail("attend wrote lse outside the rows of its sequences");
  if (open.checked) check_attention(open, layer, q, out, with_lse ? &lse : nullptr);
}

void Harness::check_attention(const Open &open, int layer, const Tensor &q, const Tensor &out, const Tensor *lse) {
  const LayerSpec &l = spec_.layers[layer];
  const int64_t window = spec_.groups[l.group].window;
  const int ratio = l.hq / l.hkv;
  attends_checked_++;
  int64_t t0 = 0;
  for (const OpenRow &row : open.rows) {
    const int64_t first_t = t0;
    t0 += row.length;
    if (row.sequence < 0) continue;
    const Sequence &s = sequence(row.sequence);
    std::set<int> heads;
    if (l.hq <= options_.heads_checked) {
      for (int h = 0; h < l.hq; h++) heads.insert(h);
    } else {
      while (static_cast<int>(heads.size()) < options_.heads_checked) heads.insert(static_cast<int>(uniform(0, l.hq - 1)));
    }
    std::set<int32_t> queries{0, row.length - 1};
    if (row.length <= options_.rows_checked) {
      for (int32_t j = 0; j < row.length; j++) queries.insert(j);
    } else {
      for (int i = 0; i < options_.rows_checked; i++) queries.insert(static_cast<int32_t>(uniform(0, row.length - 1)));
    }
    const int64_t low = window ? std::max<int64_t>(0, row.start - window + 1) : 0, high = row.start + row.length;
    int loaded = -1;
    std::vector<float> keys((high - low) * l.d), values((high - low) * l.v_dim()), flips(l.d), unused(l.v_dim());
    std::vector<std::vector<float>> key_flips;
    std::vector<int64_t> flipped;
    for (int h : heads) {
      if (h / ratio != loaded) {
        loaded = h / ratio;
        key_flips.clear();
        flipped.clear();
        for (int64_t p = low; p < high; p++) {
          const Token &token = p < row.start ? s.tokens[p] : row.tokens[p - row.start];
          if (!(token.layers >> layer & 1)) return;  // a layer-range forward left this layer undefined
          expected(token, p, layer, loaded, 0, &keys[(p - low) * l.d], flips.data());
          expected(token, p, layer, loaded, 1, &values[(p - low) * l.v_dim()], unused.data());
          if (std::any_of(flips.begin(), flips.end(), [](float x) { return x != 0; })) {
            flipped.push_back(p);
            key_flips.push_back(flips);
          }
        }
      }
      for (int32_t j : queries) {
        const int64_t position = row.start + j;
        std::vector<float> query(l.d), query_flips(l.d, 0.0f);
        for (int i = 0; i < l.d; i++) query[i] = q.at(first_t + j, h, i);
        if (l.rope == KVC_ROPE_ON_APPEND) {
          const std::vector<float> raw = query;
          rotate_rounded(q.type(), raw.data(), l.d, l.rotated(), l.base(), position, query.data(), query_flips.data());
        }
        const int64_t first = window ? std::max<int64_t>(0, position - window + 1) : 0;
        double slack = 0, query_slack = 0;
        for (size_t f = 0; f < flipped.size(); f++) {
          double sum = 0;
          for (int i = 0; i < l.d; i++) sum += std::fabs(query[i]) * key_flips[f][i];
          slack = std::max(slack, sum);
        }
        // |k| is about 1: a rotated query that rounds either way moves a score by so much.
        for (int i = 0; i < l.d; i++) query_slack += 1.5 * query_flips[i];
        AttentionInput in;
        in.q = query.data();
        in.d = l.d;
        in.dv = l.v_dim();
        in.n = position + 1 - first;
        in.keys = &keys[(first - low) * l.d];
        in.values = &values[(first - low) * l.v_dim()];
        in.key_stride = l.d;
        in.value_stride = l.v_dim();
        in.scale = l.softmax_scale();
        in.p_may_round = q.type() != DType::kF32 && l.dtype != DType::kF32;
        in.v_type = l.dtype;
        in.score_slack = (slack + query_slack) * in.scale;
        const AttentionOutput ref = attend_reference(in);
        for (int i = 0; i < l.v_dim(); i++) {
          const double got = out.at(first_t + j, h, i);
          const double allowed = ref.tolerance + half_ulp(out.type(), std::fabs(ref.out[i]) + ref.tolerance);
          if (std::fabs(got - ref.out[i]) <= allowed) continue;
          std::ostringstream text;
          text << "attention of sequence " << row.sequence << " layer " << layer << " position " << position << " q head "
               << h << " dim " << i << ": " << got << ", expected " << ref.out[i] << " +- " << allowed << " (keys "
               << first << ".." << position << ", q " << name_of(q.type()) << ", kv " << name_of(l.dtype) << ", out "
               << name_of(out.type()) << ", D " << l.d << ", Hq/Hkv " << l.hq << "/" << l.hkv << ", threads "
               << options_.threads << ", simd " << (options_.simd ? options_.simd : "default") << ")";
          fail(text.str());
        }
        if (!lse) continue;
        const double got = lse->at(first_t + j, h);
        if (!(std::fabs(got - ref.lse) <= ref.lse_tolerance)) {
          std::ostringstream text;
          text << "lse of sequence " << row.sequence << " layer " << layer << " position " << position << " q head " << h
               << ": " << got << ", expected " << ref.lse << " +- " << ref.lse_tolerance;
          fail(text.str());
        }
      }
    }
  }
}

void Harness::run_layer(int forward, int layer) {
  Open &open = forwards_.at(forward);
  if (open.attended.count(layer)) return;
  if (!open.appended.count(layer)) {
    if (options_.plain_inputs || chance(0.5)) return attend_layer(forward, layer);
    append_layer(forward, layer);
    if (chance(0.2)) return;  // stored, never attended: allowed
  }
  if (chance(0.7)) attend_layer(forward, layer);
}

void Harness::run_layers(int forward) {
  Open &open = forwards_.at(forward);
  std::vector<int> layers;
  for (int l = open.layer_begin; l < open.layer_end; l++) layers.push_back(l);
  std::shuffle(layers.begin(), layers.end(), random_);
  for (int l : layers) run_layer(forward, l);
}

bool Harness::layers_left(int forward) const {
  const Open &open = forwards_.at(forward);
  return static_cast<int>(open.appended.size()) < open.layer_end - open.layer_begin;
}

void Harness::close(int forward) {
  stale_forwards_.push_back(forwards_.at(forward).id);
  forwards_.erase(forward);
}

kvc_status Harness::end(int forward) {
  Open &open = forwards_.at(forward);
  Faults faults;
  if (open.cancelled) faults.push_back({KVC_ERROR_CANCELLED});
  for (int l = open.layer_begin; l < open.layer_end && !open.cancelled; l++) {
    if (open.appended.count(l)) continue;
    faults.push_back({KVC_ERROR_ORDER, l});
    if (open.tokens == 0) faults.push_back({KVC_OK});  // nothing to append: either answer
    break;
  }
  const kvc_status status =
      call("kvc_forward_end", faults, [&](kvc_error *e) { return kvc_forward_end(cache_.get(), open.id, e); });
  if (status) return status;
  note("end forward %d", forward);
  apply_end(&open);
  close(forward);
  return status;
}

kvc_status Harness::abort(int forward) {
  Open &open = forwards_.at(forward);
  const kvc_status status =
      call("kvc_forward_abort", {}, [&](kvc_error *e) { return kvc_forward_abort(cache_.get(), open.id, e); });
  note("abort forward %d", forward);
  apply_abort(&open);
  close(forward);
  return status;
}

kvc_status Harness::cancel(int forward) {
  Open &open = forwards_.at(forward);
  const kvc_status status =
      call("kvc_forward_cancel", {}, [&](kvc_error *e) { return kvc_forward_cancel(cache_.get(), open.id, e); });
  open.cancelled = true;
  return status;
}

kvc_status Harness::step(const std::vector<Row> &rows, int *forward) {
  int handle = -1;
  if (!forward) forward = &handle;
  if (const kvc_status status = begin(rows, forward)) return status;
  run_layers(*forward);
  return end(*forward);
}

void Harness::check_misuse(int forward) {
  Open &open = forwards_.at(forward);
  const int layers = static_cast<int>(spec_.layers.size());
  auto with_cancel = [&](Faults faults) {
    if (open.cancelled) faults.push_back({KVC_ERROR_CANCELLED});
    return faults;
  };
  const int layer = static_cast<int>(uniform(open.layer_begin, open.layer_end - 1));
  const LayerSpec &l = spec_.layers[layer];
  Tensor k(DType::kF32, {open.tokens + 1, l.hkv, l.d}), v(DType::kF32, {open.tokens + 1, l.hkv, l.v_dim()});
  Tensor q(DType::kF32, {open.tokens + 1, l.hq, l.d}), out(DType::kF32, {open.tokens + 1, l.hq, l.v_dim()});
  kvc_append_args append;
  kvc_append_args_init(&append);
  append.k = k.dl();
  append.v = v.dl();
  kvc_attend_args attend;
  kvc_attend_args_init(&attend);
  attend.q = q.dl();
  attend.out = out.dl();
  const std::vector<uint8_t> clean = out.bytes();
  for (int bad : {-1, layers, open.layer_begin - 1, open.layer_end}) {
    call("kvc_forward_append", with_cancel({{KVC_ERROR_OUT_OF_RANGE}}), [&](kvc_error *e) {
      return kvc_forward_append(cache_.get(), open.id, bad, &append, e);
    });
    call("kvc_forward_attend", with_cancel({{KVC_ERROR_OUT_OF_RANGE}}), [&](kvc_error *e) {
      return kvc_forward_attend(cache_.get(), open.id, bad, &attend, e);
    });
  }
  if (open.appended.count(layer)) {
    call("kvc_forward_append", with_cancel({{KVC_ERROR_ORDER}}), [&](kvc_error *e) {
      return kvc_forward_append(cache_.get(), open.id, layer, &append, e);
    });
    attend.k = k.dl();
    attend.v = v.dl();
    call("kvc_forward_attend", with_cancel({{KVC_ERROR_ORDER}}), [&](kvc_error *e) {
      return kvc_forward_attend(cache_.get(), open.id, layer, &attend, e);
    });
    attend.k = attend.v = nullptr;
    if (open.attended.count(layer)) {
      call("kvc_forward_attend", with_cancel({{KVC_ERROR_ORDER}}), [&](kvc_error *e) {
        return kvc_forward_attend(cache_.get(), open.id, layer, &attend, e);
      });
    }
  } else {
    call("kvc_forward_attend", with_cancel({{KVC_ERROR_ORDER}}), [&](kvc_error *e) {
      return kvc_forward_attend(cache_.get(), open.id, layer, &attend, e);
    });
  }
  if (out.bytes() != clean) fail("a refused attend wrote its output");
  // A sequence's id is not a forward's, and a closed forward is gone.
  std::vector<kvc_forward> gone;
  if (!stale_forwards_.empty()) gone.push_back(stale_forwards_[uniform(0, static_cast<int64_t>(stale_forwards_.size()) - 1)]);
  gone.push_back(0);
  for (kvc_forward id : gone) {
    const Faults stale{{KVC_ERROR_STALE_ID}};
    call("kvc_forward_end", stale, [&](kvc_error *e) { return kvc_forward_end(cache_.get(), id, e); });
    call("kvc_forward_abort", stale, [&](kvc_error *e) { return kvc_forward_abort(cache_.get(), id, e); });
    call("kvc_forward_cancel", stale, [&](kvc_error *e) { return kvc_forward_cancel(cache_.get(), id, e); });
    call("kvc_forward_append", stale, [&](kvc_error *e) {
      return kvc_forward_append(cache_.get(), id, layer, &append, e);
    });
    call("kvc_forward_attend", stale, [&](kvc_error *e) {
      return kvc_forward_attend(cache_.get(), id, layer, &attend, e);
    });
  }
}

void Harness::check_stale(kvc_seq id) {
  const Faults stale{{KVC_ERROR_STALE_ID}};
  int64_t value = 77;
  call("kvc_seq_lengths", stale, [&](kvc_error *e) { return kvc_seq_lengths(cache_.get(), 1, &id, &value, e); });
  call("kvc_seq_max_append", stale, [&](kvc_error *e) { return kvc_seq_max_append(cache_.get(), 1, &id, &value, e); });
  call("kvc_seq_pages", stale, [&](kvc_error *e) {
    return kvc_seq_pages(cache_.get(), id, 0, nullptr, 0, &value, e);
  });
  call("kvc_seq_nearest_position", stale, [&](kvc_error *e) {
    return kvc_seq_nearest_position(cache_.get(), id, 0, &value, nullptr, e);
  });
}

kvc_status Harness::import(int handle, int tokens, bool rotate, bool bad_layer) {
  Sequence &s = sequence(handle);
  const std::vector<Row> rows{{handle, tokens}};
  Faults faults;
  bool full_of_forwards = false;
  if (tokens < 1) faults.push_back({KVC_ERROR_INVALID_ARGUMENT});
  if (tokens < 1) faults.push_back({KVC_ERROR_SHAPE});
  if (tokens >= 1) {
    for (Fault f : batch_faults(rows, 0, 0)) {
      if (f.status == KVC_ERROR_TOO_MANY_FORWARDS) {
        full_of_forwards = true;  // an import may or may not need a forward's place
        continue;
      }
      f.index = Fault::kAny;
      faults.push_back(f);
      if (f.status == KVC_ERROR_BATCH_TOO_LARGE) faults.push_back({KVC_ERROR_SHAPE});
    }
    if (full_of_forwards && faults.empty()) {
      const Need n = need(rows);
      for (size_t g = 0; g < pools_.size(); g++) {
        if (n.first_over[g] >= 0) faults.push_back({KVC_ERROR_OUT_OF_PAGES});
      }
    }
  }
  const int layers = static_cast<int>(spec_.layers.size());
  const int bad = bad_layer ? static_cast<int>(uniform(0, layers - 1)) : -1;
  if (bad_layer) faults.push_back({KVC_ERROR_SHAPE, bad});
  if (full_of_forwards) {
    if (faults.empty()) faults.push_back({KVC_OK});
    faults.push_back({KVC_ERROR_TOO_MANY_FORWARDS});
  }

  Open open;
  open.layer_end = layers;
  const bool was_as_stored = !rotate;
  open.input = static_cast<DType>(uniform(0, 2));
  Token token = new_token();
  token.input = open.input;
  token.rough = chance(0.3);
  token.as_stored = was_as_stored;
  const int64_t start = static_cast<int64_t>(s.tokens.size()), padding = uniform(0, 2);
  std::vector<Tensor> k(layers), v(layers);
  std::vector<const DLTensor *> k_pointers, v_pointers;
  for (int layer = 0; layer < layers; layer++) {
    const LayerSpec &l = spec_.layers[layer];
    k[layer] = Tensor(open.input, {tokens, l.hkv, l.d + (layer == bad)}, padding);
    v[layer] = Tensor(open.input, {tokens, l.hkv, l.v_dim()}, padding);
    for (int t = 0; t < tokens; t++) {
      for (int h = 0; h < l.hkv; h++) {
        for (int i = 0; i < l.d; i++) k[layer].set(t, h, i, value(token, start + t, layer, h, i, 0));
        for (int i = 0; i < l.v_dim(); i++) v[layer].set(t, h, i, value(token, start + t, layer, h, i, 1));
      }
    }
    k_pointers.push_back(k[layer].dl(true));
    v_pointers.push_back(v[layer].dl(true));
  }
  kvc_import_args args;
  kvc_import_args_init(&args);
  args.flags = rotate ? KVC_IMPORT_ROTATE : 0;
  args.num_layers = layers;
  args.k = k_pointers.data();
  args.v = v_pointers.data();
  const kvc_status status = call("kvc_seq_import", faults, [&](kvc_error *e) {
    return kvc_seq_import(cache_.get(), s.id, &args, nullptr, e);
  });
  if (status) return status;
  note("import %d +%d", handle, tokens);
  const bool plain = options_.plain_inputs;
  options_.plain_inputs = true;
  apply_begin(rows, &open);
  options_.plain_inputs = plain;
  open.rows[0].tokens.assign(tokens, token);
  apply_end(&open);
  return status;
}

// ---- Queries -----------------------------------------------------------------------------------

kvc_status Harness::can_fit(const std::vector<Row> &rows, int layer_begin, int layer_end) {
  std::vector<kvc_seq> ids;
  std::vector<int32_t> lengths;
  kvc_batch batch;
  make_batch(rows, layer_begin, layer_end, &ids, &lengths, &batch);
  return call("kvc_cache_can_fit", batch_faults(rows, layer_begin, layer_end), [&](kvc_error *e) {
    return kvc_cache_can_fit(cache_.get(), &batch, e);
  });
}

int64_t Harness::check_max_append(int handle) {
  const Sequence &s = sequence(handle);
  int64_t got = -1;
  call("kvc_seq_max_append", {}, [&](kvc_error *e) {
    return kvc_seq_max_append(cache_.get(), 1, &s.id, &got, e);
  });
  int64_t expected_tokens = 0;
  if (s.forward < 0) {
    auto fits = [&](int64_t n) {
      for (size_t g = 0; g < pools_.size(); g++) {
        if (pages_needed(s, static_cast<int>(g), n) > free_pages(static_cast<int>(g))) return false;
      }
      return true;
    };
    int64_t low = 0, high = spec_.max_batch_tokens;  // needs are monotonic in n
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (fits(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    expected_tokens = low;
  }
  if (!open_faults().empty()) {
    if (got != expected_tokens && got != 0) fail("max_append with every forward in use");
    return got;
  }
  if (got != expected_tokens) {
    fail("max_append is " + std::to_string(got) + ", expected " + std::to_string(expected_tokens) + " (length " +
         std::to_string(s.tokens.size()) + ")");
  }
  if (s.forward >= 0) return got;
  if (got > 0) can_fit({{handle, static_cast<int32_t>(got)}});
  if (can_fit({{handle, static_cast<int32_t>(got + 1)}}) == KVC_OK) fail("one more than max_append fits");
  return got;
}

void Harness::check_nearest(int handle, int64_t position) {
  const Sequence &s = sequence(handle);
  int64_t before = -7, after = -7;
  if (position < 0 || position > length(handle)) {
    call("kvc_seq_nearest_position", {{KVC_ERROR_OUT_OF_RANGE}}, [&](kvc_error *e) {
      return kvc_seq_nearest_position(cache_.get(), s.id, position, &before, &after, e);
    });
    return;
  }
  call("kvc_seq_nearest_position", {}, [&](kvc_error *e) {
    return kvc_seq_nearest_position(cache_.get(), s.id, position, &before, &after, e);
  });
  int64_t low = position, high = position;
  while (!position_works(handle, low)) low--;
  while (high <= length(handle) && !position_works(handle, high)) high++;
  if (high > length(handle)) high = -1;
  if (before != low || after != high) {
    fail("nearest_position(" + std::to_string(position) + ") is " + std::to_string(before) + ", " +
         std::to_string(after) + "; expected " + std::to_string(low) + ", " + std::to_string(high));
  }
}

void Harness::check_tables(int handle) {
  const Sequence &s = sequence(handle);
  int64_t got = -1;
  call("kvc_seq_lengths", {}, [&](kvc_error *e) { return kvc_seq_lengths(cache_.get(), 1, &s.id, &got, e); });
  if (got != length(handle)) fail("length is " + std::to_string(got) + ", expected " + std::to_string(length(handle)));
  mix(static_cast<uint64_t>(got));
  for (size_t g = 0; g < pools_.size(); g++) {
    const std::vector<int> &pages = s.pages[g];
    std::vector<int32_t> ids(pages.size() + 1, -99);
    int64_t count = -1;
    call("kvc_seq_pages", {}, [&](kvc_error *e) {
      return kvc_seq_pages(cache_.get(), s.id, static_cast<int32_t>(g), ids.data(), static_cast<int64_t>(ids.size()),
                           &count, e);
    });
    if (count != static_cast<int64_t>(pages.size())) {
      fail("group " + std::to_string(g) + " has " + std::to_string(count) + " pages, expected " +
           std::to_string(pages.size()) + " (length " + std::to_string(length(handle)) + ")");
    }
    if (ids.back() != -99) fail("kvc_seq_pages wrote past its count");
    Pool &pool = pools_[g];
    for (size_t i = 0; i < pages.size(); i++) {
      mix(static_cast<uint64_t>(ids[i]) + 3);
      const std::string where = "group " + std::to_string(g) + " sequence " + std::to_string(handle) + " page entry " +
                                std::to_string(i) + " is " + std::to_string(ids[i]);
      if (pages[i] < 0) {
        if (ids[i] != -1) fail(where + ", expected -1 (freed behind the window)");
        continue;
      }
      if (ids[i] < 0 || ids[i] >= pool.total) fail(where + ", expected a page held in the pool");
      auto it = pool.to_library.find(pages[i]);
      if (it != pool.to_library.end()) {
        if (it->second != ids[i]) fail(where + ", expected the same page as before, " + std::to_string(it->second));
      } else if (pool.from_library.count(ids[i])) {
        fail(where + ", a page that belongs to another table and is not shared with this one");
      } else {
        pool.to_library[pages[i]] = ids[i];
        pool.from_library[ids[i]] = pages[i];
      }
    }
  }
}

void Harness::check_stats() {
  int64_t total = 0, used = 0, held_most = 0, storage = 0;
  const bool quiet = forwards_.empty();
  int64_t logical = 0;
  for (const auto &[handle, s] : sequences_) logical += static_cast<int64_t>(s.tokens.size());
  for (size_t g = 0; g < pools_.size(); g++) {
    kvc_stats stats;
    kvc_stats_init(&stats);
    call("kvc_cache_stats", {}, [&](kvc_error *e) {
      return kvc_cache_stats(cache_.get(), static_cast<int32_t>(g), &stats, e);
    });
    const Pool &pool = pools_[g];
    auto expect = [&](const char *name, int64_t got, int64_t wanted) {
      if (got != wanted) {
        fail("stats of group " + std::to_string(g) + ": " + name + " is " + std::to_string(got) + ", expected " +
             std::to_string(wanted));
      }
    };
    int64_t token_bytes = 0;
    for (const LayerSpec &l : spec_.layers) {
      if (l.group == static_cast<int>(g)) token_bytes += l.hkv * (l.d + l.v_dim()) * size_of(l.dtype);
    }
    expect("pages_total", stats.pages_total, pool.total);
    expect("pages_used", stats.pages_used, pool.used);
    expect("pages_free", stats.pages_free, pool.total - pool.used);
    expect("pages_peak", stats.pages_peak, pool.peak);
    total += pool.total;
    used += pool.used;
    storage += pool.total * spec_.page_size * token_bytes;
    expect("storage_bytes", stats.storage_bytes, pool.total * spec_.page_size * token_bytes);
    if (!quiet) continue;
    expect("num_sequences", stats.num_sequences, static_cast<int64_t>(sequences_.size()));
    expect("tokens_logical", stats.tokens_logical, logical);
    // Tokens of a page: as many as its longest owner has; shared: as many as its second longest has.
    std::unordered_map<int, std::pair<int64_t, int64_t>> coverage;
    for (const auto &[handle, s] : sequences_) {
      for (size_t i = 0; i < s.pages[g].size(); i++) {
        if (s.pages[g][i] < 0) continue;
        const int64_t tokens = std::min<int64_t>(spec_.page_size, static_cast<int64_t>(s.tokens.size()) -
                                                                      static_cast<int64_t>(i) * spec_.page_size);
        auto &[most, second] = coverage[s.pages[g][i]];
        if (tokens > most) {
          second = most;
          most = tokens;
        } else {
          second = std::max(second, tokens);
        }
      }
    }
    int64_t held = 0, held_shared = 0, shared = 0;
    for (const auto &[page, tokens] : coverage) {
      held += tokens.first;
      held_shared += tokens.second;
      shared += pool.refs.at(page) > 1;
    }
    expect("pages_shared", stats.pages_shared, shared);
    expect("tokens_held", stats.tokens_held, held);
    expect("tokens_shared", stats.tokens_shared, held_shared);
    expect("fragmentation_bytes", stats.fragmentation_bytes, (pool.used * spec_.page_size - held) * token_bytes);
    held_most = std::max(held_most, held);
  }
  kvc_stats stats;
  kvc_stats_init(&stats);
  call("kvc_cache_stats", {}, [&](kvc_error *e) { return kvc_cache_stats(cache_.get(), -1, &stats, e); });
  if (stats.pages_total != total || stats.pages_used != used || stats.pages_free != total - used ||
      stats.storage_bytes != storage) {
    fail("stats of the whole cache: pages or bytes are not the groups' sums");
  }
  if (quiet && (stats.tokens_held != held_most || stats.tokens_logical != logical)) {
    fail("stats of the whole cache: tokens_held " + std::to_string(stats.tokens_held) + " expected " +
         std::to_string(held_most) + ", tokens_logical " + std::to_string(stats.tokens_logical) + " expected " +
         std::to_string(logical));
  }
}

void Harness::check_invariants() {
  call("kvc_cache_check_invariants", {}, [&](kvc_error *e) { return kvc_cache_check_invariants(cache_.get(), e); });
}

void Harness::check_all() {
  for (int handle : live()) {
    check_tables(handle);
    if (!is_busy(handle)) check_contents(handle);
  }
  check_stats();
  check_invariants();
  mix(digest());
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
