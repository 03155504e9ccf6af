#include "objects.h"

#include <algorithm>
#include <cstdarg>

namespace fuzz {
namespace {

// The number of elements from the lowest one to the highest one that a tensor reaches. `*first` is the index of the
// tensor's first element.
__int128 reach(const Tensor &t, int rank, __int128 *first) {
  __int128 low = 0, high = 0;
  for (int i = 0; i < rank; i++) {
    if (t.shape[i] <= 0) return 0;
    const __int128 span = static_cast<__int128>(t.shape[i] - 1) * t.strides[i];
    (span < 0 ? low : high) += span;
  }
  *first = -low;
  return high - low + 1;
}

void fill(DLDataType dtype, char *element, int64_t value) {
  const int bytes = (dtype.bits + 7) / 8;
  if (dtype.code == kDLInt || dtype.code == kDLUInt) {
    std::memcpy(element, &value, static_cast<size_t>(std::min(bytes, 8)));
  } else if (bytes == 4 || bytes == 2) {
    const kvt::DType type = bytes == 4                ? kvt::DType::kF32
                            : dtype.code == kDLBfloat ? kvt::DType::kBF16
                                                      : kvt::DType::kF16;
    kvt::store(type, element, 0, static_cast<float>(value));
  }  // elements of other types keep what allocate wrote
}

}  // namespace

void die(const char *format, ...) {
  va_list values;
  va_start(values, format);
  std::fprintf(stderr, "fuzz: ");
  std::vfprintf(stderr, format, values);
  std::fprintf(stderr, "\n");
  va_end(values);
  std::abort();
}

World::~World() {
  for (Plan &plan : plans) kvc_plan_destroy(plan.plan);
  for (Cache &c : caches) close(&c);
  kvc_context_destroy(context);
  for (DLManagedTensorVersioned *view : views) view->deleter(view);
}

void World::close(Cache *c) {
  kvc_cache_destroy(c->cache);
  *c = Cache();
}

char *World::allocate(size_t bytes) {
  memory.emplace_back(new char[bytes]);
  std::memset(memory.back().get(), 0x11, bytes);  // a small number in every float dtype
  return memory.back().get();
}

kvc_error *World::error() {
  kvc_error_init(&last_error);
  error_given_ = !in.wrong();
  if (!error_given_) return nullptr;
  if (in.wrong()) last_error.struct_size = 8, error_given_ = false;
  return &last_error;
}

void World::check_refusal(const char *name, kvc_status status, bool unchanged) {
  if (status == KVC_ERROR_INTERNAL) die("%s: INTERNAL: %s", name, last_error.message);
  if (!unchanged) die("%s: %s, and the digest changed", name, kvc_status_name(status));
  if (!error_given_) return;
  if (last_error.code != status) die("%s: %d in kvc_error, %d returned", name, last_error.code, status);
  if (std::strncmp(last_error.message, name, std::strlen(name)) != 0) die("%s: message %s", name, last_error.message);
}

uint64_t World::digest(kvc_cache *cache) {
  uint64_t digest = 0;
  if (cache && kvc_cache_digest(cache, &digest, nullptr)) die("kvc_cache_digest failed");
  return digest;
}

uint64_t World::wrong_id(Cache &c, bool of_sequence) {
  const Cache &other = caches[&c == &caches[0]];
  std::vector<uint64_t> ids = {0, 1, in.byte() * uint64_t{0x0101010101010101}};
  ids.insert(ids.end(), c.stale.begin(), c.stale.end());
  for (const Step &step : (of_sequence ? c : other).steps) ids.push_back(step.id);
  for (const Sequence &s : (of_sequence ? other : c).sequences) ids.push_back(s.id);
  return ids[in.below(std::ssize(ids))];
}

kvc_seq World::some_sequence(Cache &c) {
  if (in.wrong() || c.sequences.empty()) return wrong_id(c, true);
  return c.sequences[in.below(static_cast<int64_t>(c.sequences.size()))].id;
}

Step *World::some_step(Cache &c) {
  return c.steps.empty() ? nullptr : &c.steps[in.below(static_cast<int64_t>(c.steps.size()))];
}

// A hostile shape or stride stays within memory: dims that would reach beyond it get stride 0, as in a broadcast array.
// Sizes that exceed every address space are kept, because the library must notice them.
DLTensor *World::tensor(DLDataType dtype, const std::vector<int64_t> &shape, const std::vector<int64_t> &values,
                        bool by_element) {
  if (in.wrong()) return nullptr;
  Tensor &t = tensors.emplace_back();
  int rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), t.shape);
  int64_t compact = 1;
  for (int i = rank; i-- > 0; compact *= std::max<int64_t>(t.shape[i], 1)) t.strides[i] = compact;
  t.dl = {nullptr, {kDLCPU, 0}, rank, dtype, t.shape, t.strides, 0};
  if (in.wrong()) {
    constexpr DLDataType kOthers[] = {{kDLInt, 32, 1}, {kDLFloat, 64, 1}, {kDLFloat, 16, 1},       {kDLUInt, 8, 1},
                                      {kDLInt, 8, 1},  {kDLFloat, 32, 4}, {kDLOpaqueHandle, 0, 1}, {77, 3, 0}};
    t.dl.dtype = kOthers[in.below(8)];
  }
  if (rank > 0 && in.wrong()) t.shape[in.below(rank)] = in.hostile<int64_t>(2);
  if (rank > 0 && in.wrong()) t.strides[in.below(rank)] = in.hostile<int64_t>(2);
  if (in.wrong()) t.dl.device = {in.one_in(2) ? kDLCUDA : kDLCUDAHost, static_cast<int32_t>(in.below(2))};
  __int128 first = 0;
  const int bytes = std::max(1, t.dl.dtype.bits * std::max<int>(t.dl.dtype.lanes, 1) / 8);
  for (int i = 0; reach(t, rank, &first) * bytes > (1 << 16) && i < rank; i++) {
    const __int128 span = static_cast<__int128>(t.shape[i] - 1) * t.strides[i] * bytes;
    if (span > (1 << 12) && span >> 64 == 0) t.strides[i] = 0;
    if (span >> 64 != 0 && t.shape[i] > (1 << 20)) t.strides[i] = 0;
  }
  __int128 elements = reach(t, rank, &first);
  if (elements * bytes > (1 << 20)) elements = 1 << 14, first = 0;
  const size_t reached_bytes = static_cast<size_t>(elements) * bytes;
  t.memory = allocate(reached_bytes);
  char *const data = t.memory + static_cast<size_t>(first) * bytes;
  const int64_t row = rank > 0 && !by_element ? std::max<int64_t>(t.strides[0], 1) : 1;
  for (int64_t i = 0; !values.empty() && i < elements - first; i++) {
    fill(t.dl.dtype, data + i * bytes, values[static_cast<size_t>(i / row) % values.size()]);
  }
  t.dl.data = in.pointer(data);
  if (in.wrong())
    t.dl.byte_offset = in.one_in(2) && bytes > 1 ? 1 : UINT64_MAX - 7;  // misaligned, or before the first byte
  if (in.wrong()) t.dl.strides = nullptr;                               // NULL means a compact tensor
  if (in.wrong()) t.dl.shape = nullptr;
  if (in.wrong()) t.dl.ndim = in.one_in(2) ? rank - 1 : in.one_in(2) ? INT32_MAX : -1;
  return &t.dl;
}

// Compares what the library says of every live sequence with the model.
void World::check_model(Cache &c) {
  kvc_error why = KVC_ERROR_INIT;
  if (kvc_cache_check_invariants(c.cache, &why)) die("%s", why.message);
  for (const Sequence &s : c.sequences) {
    int64_t length = -1;
    int32_t nodes = -1;
    if (kvc_seq_lengths(c.cache, 1, &s.id, &length, nullptr) ||
        kvc_seq_tree_nodes(c.cache, 1, &s.id, &nodes, nullptr)) {
      die("a live sequence is refused");
    }
    if (length != static_cast<int64_t>(s.tokens.size())) {
      die("length %lld, the model has %zu", static_cast<long long>(length), s.tokens.size());
    }
    if (nodes != static_cast<int32_t>(s.nodes.size())) die("%d nodes, the model has %zu", nodes, s.nodes.size());
    for (const auto &[group, tokens] : s.encoders) {
      if (kvc_seq_encoder_lengths(c.cache, group, 1, &s.id, &length, nullptr)) die("encoder lengths are refused");
      if (length != static_cast<int64_t>(tokens.size())) die("encoder length differs from the model's");
    }
  }
}

}  // namespace fuzz
