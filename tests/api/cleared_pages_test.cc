// KVC_CACHE_ZERO_ON_FREE: a page never shows the bytes that its earlier owner stored.
#include "prefix_fixture.h"

namespace kvt {
namespace {

constexpr float kOld = 7;

CacheSpec spec_of(uint32_t flags) {
  CacheSpec spec = Prefix::spec_of({GroupSpec{}}, 12);
  spec.flags |= flags;
  return spec;
}

struct Pools {
  explicit Pools(const Prefix &p) {
    for (const int32_t pool : {KVC_POOL_K, KVC_POOL_V}) {
      DLManagedTensorVersioned *raw = nullptr;
      EXPECT_EQ(kvc_cache_export_pool(p.cache(), 0, pool, KVC_POOL_WRITABLE, &raw, nullptr, nullptr), KVC_OK);
      owners.emplace_back(raw);
    }
  }
  // The last element of a slot; the layer has one head.
  float slot(size_t pool, int32_t page, int64_t index) const {
    const DLTensor &t = owners[pool]->dl_tensor;
    return t.shape[1] == 4 ? at(t, {page, index, 0, t.shape[3] - 1}) : at(t, {page, 0, index, t.shape[3] - 1});
  }
  void fill() {
    for (const Managed &owner : owners) {
      const DLTensor &t = owner->dl_tensor;
      for (int64_t page = 0; page < t.shape[0]; page++) {
        for (int64_t i = 0; i < t.shape[1] * t.shape[2] * t.shape[3]; i++) {
          set(t, {page, i / t.shape[3] / t.shape[2], i / t.shape[3] % t.shape[2], i % t.shape[3]}, kOld);
        }
      }
    }
  }
  // The value of slots [begin, 4) of a page if all are 0 or all are old bytes; else -1.
  float rest(int32_t page, int64_t begin) const {
    const float first = slot(0, page, begin);
    for (size_t pool = 0; pool < owners.size(); pool++) {
      for (int64_t i = begin; i < 4; i++) {
        if (slot(pool, page, i) != first) return -1;
      }
    }
    return first;
  }

  std::vector<Managed> owners;
};

// The part of a last page that a step, a fork or an attach does not fill.
std::vector<float> left_by_calls(uint32_t flags) {
  std::vector<float> left;
  Prefix p(spec_of(flags));
  Pools pools(p);
  pools.fill();
  const Tokens tokens = count_to(6);
  const kvc_seq seq = p.add();
  EXPECT_EQ(p.step(seq, 6), KVC_OK);
  left.push_back(pools.rest(p.pages(seq)[1], 2));
  p.publish(seq, Prefix::query(tokens));
  pools.fill();
  EXPECT_EQ(p.step(seq, 1), KVC_OK);  // the last page was published, so a copy of its 2 tokens replaces it
  left.push_back(pools.rest(p.pages(seq)[1], 3));
  EXPECT_EQ(pools.slot(0, p.pages(seq)[1], 1), kOld) << "a copied token was cleared";
  pools.fill();
  kvc_seq child = 0;
  const int64_t position = 5;
  EXPECT_EQ(kvc_seq_fork(p.cache(), 1, &seq, &position, &child, nullptr, nullptr), KVC_OK);
  left.push_back(pools.rest(p.pages(child)[1], 1));
  EXPECT_EQ(pools.slot(1, p.pages(child)[1], 0), kOld) << "a copied token was cleared";
  kvc_prefix_hit hit;
  const kvc_seq attached = p.attach(Prefix::query(tokens), &hit);
  EXPECT_EQ(hit.copied_tokens, 2);
  left.push_back(pools.rest(p.pages(attached)[1], 2));
  EXPECT_EQ(pools.slot(0, p.pages(attached)[1], 1), kOld) << "a copied token was cleared";
  return left;
}

TEST(ClearedPages, HoldNothingOfAnotherSequence) {
  EXPECT_EQ(left_by_calls(KVC_CACHE_ZERO_ON_FREE), std::vector<float>(4, 0.0f));
  EXPECT_EQ(left_by_calls(0), std::vector<float>(4, kOld)) << "the test would not see old bytes";
}

// A step takes pages that were evicted from the index. All of them are cleared before the step stores anything.
TEST(ClearedPages, EvictedPagesAreClearedWhenAStepBegins) {
  Prefix p(spec_of(KVC_CACHE_ZERO_ON_FREE));
  Pools pools(p);
  for (int32_t i = 0; i < 3; i++) p.remember(Prefix::query(count_to(16, 100 * i)));
  EXPECT_EQ(p.stats().pages_idle, 12);
  pools.fill();
  const kvc_seq seq = p.add();
  kvc_forward f = 0;
  ASSERT_EQ(p.begin(seq, 16, &f), KVC_OK);
  int cleared = 0;
  for (int32_t page = 0; page < 12; page++) cleared += pools.rest(page, 0) == 0;
  EXPECT_EQ(cleared, 4);
  EXPECT_EQ(kvc_forward_abort(p.cache(), f, nullptr), KVC_OK);
}

TEST(ClearedPages, NeedPools) {
  CacheSpec spec = spec_of(KVC_CACHE_ZERO_ON_FREE);
  spec.storage = KVC_STORAGE_NONE;
  const ContextPtr context = make_context();
  EXPECT_THROW(make_cache(context.get(), spec), std::runtime_error);
}

}  // namespace
}  // namespace kvt
