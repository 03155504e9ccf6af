// Pools of the caller: a cache that adopts them computes, copies and stores the same bits as one with its own pools.
#include <gtest/gtest.h>

#include <cstring>

#include "replicas.h"

namespace kvt {
namespace {

LayerSpec layer(int group, int hq, int hkv, int d, DType dtype = DType::kF32, int dv = 0) {
  LayerSpec l;
  l.group = group;
  l.hq = hq;
  l.hkv = hkv;
  l.d = d;
  l.dv = dv;
  l.dtype = dtype;
  return l;
}

// Full and sliding groups, V of the width of K and of another one, float8 with scales, rotated keys.
CacheSpec spec_of(Layout layout) {
  CacheSpec spec;
  spec.page_size = 5;
  spec.max_sequences = 12;
  spec.max_batch_tokens = 64;
  spec.rollback = 6;
  spec.groups = {{0, 300}, {9, 120}};
  spec.layers = {layer(0, 4, 2, 16), layer(1, 3, 1, 8, DType::kBF16), layer(0, 2, 2, 8, DType::kF16, 24),
                 layer(0, 4, 2, 16, DType::kE4M3), layer(1, 2, 2, 6)};
  spec.layers[3].num_scales = 2;
  spec.layers[4].rope = KVC_ROPE_ON_APPEND;
  spec.layout = layout;
  return spec;
}

// The contents of a sequence in a layer, as bytes.
std::vector<uint8_t> contents(kvc_cache *cache, kvc_seq seq, int32_t layer) {
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.layer = layer;
  DLManagedTensorVersioned *k = nullptr, *v = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(export_kv(cache, seq, &args, &k, &v, nullptr, &error), KVC_OK) << error.message;
  std::vector<uint8_t> bytes;
  for (const Managed &part : {Managed(k), Managed(v)}) {
    const DLTensor &t = part->dl_tensor;
    const auto *data = static_cast<const uint8_t *>(t.data);
    bytes.insert(bytes.end(), data, data + t.shape[0] * t.shape[1] * t.shape[2] * t.dtype.bits / 8);
  }
  return bytes;
}

struct Known {
  int seq;
  int64_t length;
};

// A step of about half of the sequences, in both: outputs are the same bits. Returns how many were compared.
int step_both(Replica *own, Replica *adopted, std::vector<Known> *live, std::mt19937_64 &random, uint64_t *tag) {
  std::vector<int> rows;
  std::vector<int32_t> lengths;
  std::vector<uint64_t> tags;
  for (Known &known : *live) {
    if (random() % 2 || known.length > 90) continue;
    rows.push_back(known.seq);
    lengths.push_back(static_cast<int32_t>(1 + (random() % 3 ? 0 : random() % 5)));
    for (int32_t t = 0; t < lengths.back(); t++) tags.push_back((*tag)++);
    known.length += lengths.back();
  }
  if (rows.empty()) return 0;
  const StepOutputs a = own->step(rows, lengths, tags), b = adopted->step(rows, lengths, tags);
  for (size_t l = 0; l < a.out.size(); l++) {
    EXPECT_EQ(a.out[l].bytes(), b.out[l].bytes()) << "layer " << l;
    EXPECT_EQ(a.lse[l].bytes(), b.lse[l].bytes()) << "layer " << l;
  }
  return static_cast<int>(a.out.size());
}

class Adopted : public testing::TestWithParam<Layout> {};

TEST_P(Adopted, PoolsGiveTheSameBitsAsTheCachesOwn) {
  {
    Replica own(spec_of(Layout::kOwn), 2), adopted(spec_of(GetParam()), 2);
    std::mt19937_64 random(17);
    std::vector<Known> live;
    uint64_t tag = 1;
    int compared = 0;
    for (int i = 0; i < 300 && !HasFailure(); i++) {
      SCOPED_TRACE(i);
      const auto pick = [&]() -> Known & { return live[random() % live.size()]; };
      const uint64_t dice = live.empty() ? 0 : random() % 10;
      if (dice == 0 && live.size() < 10) {
        live.push_back({own.add(), 0});
        ASSERT_EQ(adopted.add(), live.back().seq);
      } else if (dice == 1 && live.size() < 12) {
        const Known parent = pick();  // within the rollback margin, or at the end
        const int64_t position = parent.length - static_cast<int64_t>(random() % 4) % (parent.length + 1);
        const int child = own.fork(parent.seq, position);
        ASSERT_EQ(adopted.fork(parent.seq, position), child);
        live.push_back({child, position});
      } else if (dice == 2) {
        Known &known = pick();
        known.length -= static_cast<int64_t>(random() % 4) % (known.length + 1);
        own.truncate(known.seq, known.length);
        adopted.truncate(known.seq, known.length);
      } else if (dice == 3 && live.size() > 3) {
        const size_t index = random() % live.size();
        own.remove(live[index].seq);
        adopted.remove(live[index].seq);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
      } else if (!live.empty()) {
        compared += step_both(&own, &adopted, &live, random, &tag);
      }
    }
    EXPECT_GT(compared, 400);
    uint64_t digests[2];
    ASSERT_EQ(kvc_cache_digest(own.cache(), &digests[0], nullptr), KVC_OK);
    ASSERT_EQ(kvc_cache_digest(adopted.cache(), &digests[1], nullptr), KVC_OK);
    EXPECT_EQ(digests[0], digests[1]);
    for (const Known &known : live) {
      for (int32_t l : {0, 2, 3}) {  // full groups: nothing was freed
        if (known.length == 0) continue;
        EXPECT_EQ(contents(own.cache(), own.id(known.seq), l), contents(adopted.cache(), adopted.id(known.seq), l));
      }
    }
    kvc_stats stats;
    kvc_stats_init(&stats);
    ASSERT_EQ(kvc_cache_stats(adopted.cache(), -1, &stats, nullptr), KVC_OK);
    EXPECT_GT(stats.storage_bytes, 0);
    EXPECT_GT(Pool::alive, 0);
  }
  EXPECT_EQ(Pool::alive, 0) << "every deleter ran, once";
}

// The cache stores tokens at the places where the server's own kernels look for them.
TEST_P(Adopted, ExportedViewsAreTheServersMemory) {
  ContextPtr context = make_context();
  const CacheSpec spec = spec_of(GetParam());
  BuiltConfig built(spec);
  add_pools(GetParam(), {300, 120}, spec.page_size, &built.layers);
  kvc_cache *raw = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_cache_create(context.get(), &built.config, &raw, &error), KVC_OK) << error.message;
  CachePtr cache(raw);
  for (int32_t l = 0; l < 5; l++) {
    const kvc_layer_config &layer = built.layers[static_cast<size_t>(l)];
    for (const int32_t pool : {KVC_POOL_KV, KVC_POOL_K, KVC_POOL_V}) {
      DLManagedTensorVersioned *given = pool == KVC_POOL_K ? layer.k_storage : layer.v_storage;
      if (layer.kv_storage) given = layer.kv_storage;
      DLManagedTensorVersioned *view = nullptr;
      const kvc_status status = kvc_cache_export_pool(raw, l, pool, KVC_POOL_WRITABLE, &view, nullptr, &error);
      ASSERT_EQ(status, pool == KVC_POOL_KV && !layer.kv_storage ? KVC_ERROR_UNSUPPORTED : KVC_OK) << error.message;
      if (status) continue;
      const Managed owner(view);
      const DLTensor &a = view->dl_tensor, &b = given->dl_tensor;
      const bool half = layer.kv_storage && pool != KVC_POOL_KV;  // of one tensor for both
      const int64_t skipped = half && pool == KVC_POOL_V ? b.strides[1] * b.dtype.bits / 8 : 0;
      EXPECT_EQ(a.data, static_cast<char *>(b.data) + b.byte_offset + skipped);
      for (int i = 0, j = 0; i < a.ndim; i++, j++) {
        if (half && j == 1) j++;
        if (a.shape[i] > 1) {
          EXPECT_EQ(a.strides[i], b.strides[j]) << "layer " << l << " pool " << pool << " dim " << i;
        }
        EXPECT_EQ(a.shape[i], b.shape[j] - (i == 0)) << "of the pages, those that the cache uses";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Adopted, testing::ValuesIn(kAdoptedLayouts),
                         [](const testing::TestParamInfo<Layout> &info) {
                           std::string name = name_of(info.param);
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace kvt
