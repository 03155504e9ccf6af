// Lists of slots in the stateless call: against float64 over the listed slots, and what is refused.
#include <sys/mman.h>

#include <cmath>
#include <functional>
#include <set>

#include "../api/fixture.h"
#include "flash_call.h"

namespace kvt {
namespace {

constexpr const char *kName = "kvc_flash_attn_with_kvcache";

struct Case {
  DType q = DType::kF32, kv = DType::kF32;
  int hq = 6, hkv = 2, d = 64, dv = 48, page = 16;
  bool qv = false;  // q and k are rotary parts, qv and v the latent ones, in one buffer
  bool ragged = false;
  int queries = 2, entries = 200, splits = 0, list_heads = 1;
  double softcap = 0;
};

// Three rows over 30 pages, which none of them owns.
class ListedCall {
 public:
  explicit ListedCall(const Case &c) : of(c), random_(7) {
    const int64_t tokens = 3 * c.queries;
    const Index rows = c.ragged ? Index{tokens} : Index{3, c.queries};
    const auto shape = [&](int64_t heads, int64_t dims) {
      Index all = rows;
      all.insert(all.end(), {heads, dims});
      return all;
    };
    q = Array(c.q, shape(c.hq, c.d));
    out = Array(DType::kF32, shape(c.hq, c.dv));
    lse = Array(DType::kF32, c.ragged ? Index{c.hq, tokens} : Index{3, c.hq, c.queries});
    joint = Array(c.kv, {30, c.page, c.hkv, c.dv + c.d});
    joint.fill_random(&random_);
    v_cache = joint.columns(0, c.dv);
    k_cache = joint.columns(c.dv, c.d);
    q.fill_random(&random_);
    if (c.qv) {
      qv = Array(c.q, shape(c.hq, c.dv));
      qv.fill_random(&random_, 0.3f);
    }
    Index list_shape = shape(c.list_heads, c.entries);
    std::vector<int32_t> entries;
    for (int64_t i = 0; i < tokens * c.list_heads * c.entries; i++) {
      entries.push_back(static_cast<int32_t>(random_() % static_cast<uint64_t>(33 * c.page)) - 3 * c.page);
    }
    indices = Indexes<>(entries, list_shape);
    cu = Indexes<>({0, c.queries, 2 * c.queries, 3 * c.queries});
  }
  kvc_flash_attn_args args() {
    kvc_flash_attn_args a;
    kvc_flash_attn_args_init(&a);
    a.q = q.dl();
    if (of.qv) a.qv = qv.dl();
    a.k_cache = k_cache.dl();
    a.v_cache = v_cache.dl();
    a.out = out.dl();
    a.softmax_lse = lse.dl();
    a.indices = indices.dl();
    if (of.ragged) a.cu_seqlens_q = cu.dl();
    a.num_splits = of.splits;
    a.softcap = of.softcap;
    return a;
  }
  void check() const {
    cache_.clear();
    read_cache();
    for (int t = 0; t < 3 * of.queries; t++) {
      for (int h = 0; h < of.hq; h++) check_query(t, h);
    }
  }

  const Case of;
  Array q, qv, k_cache, v_cache, joint, out, lse;
  Indexes<> indices, cu;

 private:
  Index at(int t, Index rest) const {
    Index index = of.ragged ? Index{t} : Index{t / of.queries, t % of.queries};
    index.insert(index.end(), rest.begin(), rest.end());
    return index;
  }
  // Row (slot, kv head) of K and V, [slots][kv heads][dv + d], read once.
  void read_cache() const {
    for (int64_t slot = 0; slot < 30 * of.page; slot++) {
      for (int64_t kv = 0; kv < of.hkv; kv++) {
        for (int i = 0; i < of.dv; i++) cache_.push_back(v_cache.get({slot / of.page, slot % of.page, kv, i}));
        for (int i = 0; i < of.d; i++) cache_.push_back(k_cache.get({slot / of.page, slot % of.page, kv, i}));
      }
    }
  }
  void check_query(int t, int h) const {
    const int kv = h / (of.hq / of.hkv), list = of.list_heads == 1 ? 0 : kv, width = of.dv + of.d;
    const int32_t *entries = indices.values.data() + (static_cast<int64_t>(t) * of.list_heads + list) * of.entries;
    const std::set<int32_t> slots(entries, entries + of.entries);
    std::vector<float> query;  // of latent rows, its part for V comes first
    for (int i = 0; i < of.dv; i++) query.push_back(of.qv ? qv.get(at(t, {h, i})) : 0.0f);
    for (int i = 0; i < of.d; i++) query.push_back(q.get(at(t, {h, i})));
    const double scale = 1 / std::sqrt(of.qv ? width : of.d);
    double sum = 0;
    std::vector<double> expected(static_cast<size_t>(of.dv), 0.0);
    for (const int32_t slot : slots) {
      if (slot < 0) continue;
      const float *row = cache_.data() + (static_cast<int64_t>(slot) * of.hkv + kv) * width;
      double s = 0;
      for (int i = of.qv ? 0 : of.dv; i < width; i++) s += double{query[static_cast<size_t>(i)]} * double{row[i]};
      s *= scale;
      if (of.softcap > 0) s = of.softcap * std::tanh(s / of.softcap);
      sum += std::exp(s);
      for (int i = 0; i < of.dv; i++) expected[static_cast<size_t>(i)] += std::exp(s) * double{row[i]};
    }
    const double tolerance = of.kv == DType::kF32 && of.q == DType::kF32 ? 3e-5 : 2e-2;
    for (int i = 0; i < of.dv; i++) {
      ASSERT_NEAR(out.get(at(t, {h, i})), sum > 0 ? expected[static_cast<size_t>(i)] / sum : 0.0, tolerance);
    }
    const Index place = of.ragged ? Index{h, t} : Index{t / of.queries, h, t % of.queries};
    if (sum > 0) {
      ASSERT_NEAR(lse.get(place), std::log(sum), tolerance);
    } else {
      ASSERT_EQ(lse.get(place), -INFINITY);
    }
  }
  mutable std::vector<float> cache_;
  std::mt19937 random_;
};

TEST(FlashAttnLists, AgreeWithDenseAttention) {
  const ContextPtr context = make_context(3);
  std::vector<Case> cases = {
      {},
      {.list_heads = 2},
      {.ragged = true, .list_heads = 2},
      {.queries = 1, .entries = 3000, .list_heads = 2},
      {.queries = 20},
      {.entries = 0},
      {.softcap = 2},
      {.page = 1, .splits = 5},
      {.q = DType::kBF16, .kv = DType::kBF16, .page = 64},
      {.q = DType::kF32, .kv = DType::kE4M3},
      {.hq = 16, .hkv = 1, .d = 16, .dv = 64, .qv = true},
      {.q = DType::kBF16, .kv = DType::kBF16, .hq = 40, .hkv = 1, .d = 64, .dv = 512, .qv = true, .queries = 1}};
  for (size_t i = 0; i < cases.size(); i++) {
    SCOPED_TRACE("case " + std::to_string(i));
    ListedCall call(cases[i]);
    const kvc_flash_attn_args args = call.args();
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_flash_attn_with_kvcache(context.get(), &args, nullptr, &error), KVC_OK) << error.message;
    call.check();
  }
}

// Slots that no list names may hold NaN.
TEST(FlashAttnLists, OtherSlotsAreNotRead) {
  const ContextPtr context = make_context();
  ListedCall call({});
  const std::set<int32_t> listed(call.indices.values.begin(), call.indices.values.end());
  int poisoned = 0;
  for (int32_t slot = 0; slot < 30 * 16; slot++) {
    if (slot % 3 != 0) continue;
    poisoned++;
    for (int32_t &entry : call.indices.values) entry = entry == slot ? -1 : entry;
    for (int h = 0; h < 2; h++) {
      for (int i = 0; i < 64 + 48; i++) call.joint.set({slot / 16, slot % 16, h, i}, NAN);
    }
  }
  ASSERT_GT(poisoned, 100);
  const kvc_flash_attn_args args = call.args();
  ASSERT_EQ(kvc_flash_attn_with_kvcache(context.get(), &args, nullptr, nullptr), KVC_OK);
  call.check();
}

TEST(FlashAttnLists, RefusesWhatMakesNoSense) {
  const ContextPtr context = make_context();
  ListedCall call({.list_heads = 2});
  const auto refuse = [&](kvc_status status, const std::vector<std::string> &words, const kvc_flash_attn_args &args) {
    return refused(
        nullptr, {status}, kName,
        [&](kvc_error *e) { return kvc_flash_attn_with_kvcache(context.get(), &args, nullptr, e); }, words);
  };
  int32_t &last = call.indices.values.back(), good = last;
  last = 30 * 16;
  EXPECT_EQ(refuse(KVC_ERROR_OUT_OF_RANGE, {"480", "query 1", "row 2", "head 1", "entry 199"}, call.args()).index, 2);
  last = good;
  Indexes<> lengths({4, 5, 6}), table({0, 1, 2}, {3, 1});
  Array slopes(DType::kF32, {6});
  slopes.fill_random(std::make_unique<std::mt19937>(1).get());
  const auto contradict = [&](const char *name, const std::function<void(kvc_flash_attn_args *)> &change) {
    kvc_flash_attn_args args = call.args();
    change(&args);
    refuse(KVC_ERROR_INVALID_ARGUMENT, {name, "indices"}, args);
  };
  contradict("cache_seqlens", [&](kvc_flash_attn_args *a) { a->cache_seqlens = lengths.dl(); });
  contradict("seqused_k", [&](kvc_flash_attn_args *a) { a->seqused_k = lengths.dl(); });
  contradict("cache_batch_idx", [&](kvc_flash_attn_args *a) { a->cache_batch_idx = lengths.dl(); });
  contradict("cache_leftpad", [&](kvc_flash_attn_args *a) { a->cache_leftpad = lengths.dl(); });
  contradict("block_table", [&](kvc_flash_attn_args *a) { a->block_table = table.dl(); });
  contradict("alibi_slopes", [&](kvc_flash_attn_args *a) { a->alibi_slopes = slopes.dl(); });
  contradict("attention_chunk", [&](kvc_flash_attn_args *a) { a->attention_chunk = 4; });
  contradict("causal", [&](kvc_flash_attn_args *a) { a->flags = KVC_FLASH_ATTN_CAUSAL; });
  contradict("window_left", [&](kvc_flash_attn_args *a) { a->flags = KVC_FLASH_ATTN_WINDOW_LEFT; });
  contradict("window_right", [&](kvc_flash_attn_args *a) { a->flags = KVC_FLASH_ATTN_WINDOW_RIGHT; });
  kvc_flash_attn_args overlapping = call.args();
  DLTensor inside = *overlapping.indices;
  inside.data = call.out.storage().data();
  overlapping.indices = &inside;
  refuse(KVC_ERROR_INVALID_ARGUMENT, {"out", "indices"}, overlapping);
  call.indices.shape = {3, 2, 1, 2, 200};
  refuse(KVC_ERROR_RANK, {"indices"}, call.args());
  call.indices.shape = {3, 2, 4, 100};
  refuse(KVC_ERROR_SHAPE, {"4 heads", "1 or 2"}, call.args());
  call.indices.shape = {3, 2, 2, 200};
  kvc_flash_attn_args args = call.args();
  ASSERT_EQ(kvc_flash_attn_with_kvcache(context.get(), &args, nullptr, nullptr), KVC_OK);
  call.check();
}

// Kernels count slots in int32, so no list can name slot 2^31 - 1. An entry that names it is refused, and not skipped.
TEST(FlashAttnLists, RefusesTheLastSlotOfInt32) {
  constexpr int64_t kPages = (int64_t{1} << 31) / 16 + 1, kDims = 8, kBytes = kPages * 16 * kDims * 2;
  void *const memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space for a sparse cache";
  const ContextPtr context = make_context();
  Array q(DType::kBF16, {1, 1, 1, kDims}), out(DType::kF32, {1, 1, 1, kDims});
  int64_t shape[4] = {kPages, 16, 1, kDims};
  DLTensor cache = {memory, {kDLCPU, 0}, 4, {kDLBfloat, 16, 1}, shape, nullptr, 0};
  Indexes<> list({INT32_MAX - 1, 0}, {1, 1, 1, 2});
  kvc_flash_attn_args args;
  kvc_flash_attn_args_init(&args);
  args.q = q.dl(), args.out = out.dl(), args.k_cache = args.v_cache = &cache, args.indices = list.dl();
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_flash_attn_with_kvcache(context.get(), &args, nullptr, &error), KVC_OK) << error.message;
  list.values[0] = INT32_MAX;
  refused(nullptr, {KVC_ERROR_OUT_OF_RANGE}, kName,
          [&](kvc_error *e) { return kvc_flash_attn_with_kvcache(context.get(), &args, nullptr, e); },
          {"2147483647", "entry 0", "the first 2147483647 slots"});
  munmap(memory, kBytes);
}

}  // namespace
}  // namespace kvt
