// J: layers that read the K and V of another layer. A second cache stores the same K and V in every layer itself. The
// outputs must have the same bits, and the sharing cache has pages for its storing layers only.
#include <gtest/gtest.h>

#include <cstring>

#include "wrappers.h"

namespace kvt {
namespace {

// Layers 0 (full) and 1 (sliding) store; 2 reads 0, 3 reads 1, 4 reads 0 with other q heads and scale.
CacheSpec spec_of(DType dtype, int rope, int page_size) {
  CacheSpec spec;
  spec.page_size = page_size;
  spec.max_sequences = 4;
  spec.groups = {{0, 80}, {3, 80}};
  spec.layers.clear();
  for (const int group : {0, 1, 0, 1, 0}) spec.layers.push_back({group, 4, 2, 16, 0, dtype, rope});
  spec.layers[4].hq = 6;
  spec.layers[4].scale = 0.2;
  return spec;
}

constexpr int kSources[] = {-1, -1, 0, 1, 0};

struct Twin {
  ContextPtr context = make_context(2);
  CachePtr cache;
  kvc_seq seqs[2] = {0, 0};

  Twin(const CacheSpec &spec, bool shared) {
    BuiltConfig built(spec);
    for (size_t i = 0; shared && i < built.layers.size(); i++) built.layers[i].kv_layer = kSources[i] + 1;
    kvc_cache *raw = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_cache_create(context.get(), &built.config, &raw, &error), KVC_OK) << error.message;
    cache.reset(raw);
    EXPECT_EQ(kvc_seq_add(raw, 2, seqs, &error), KVC_OK) << error.message;
  }

  // One step of both sequences. Returns the outputs of all layers, one after another.
  std::vector<unsigned char> step(const CacheSpec &spec, bool shared, std::vector<int32_t> lengths, uint64_t seed) {
    std::vector<unsigned char> outputs;
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = seqs;
    batch.append_lengths = lengths.data();
    batch.num_sequences = 2;
    kvc_forward f = 0;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &f, &error), KVC_OK) << error.message;
    const int64_t tokens = lengths[0] + lengths[1];
    for (int i = 0; i < static_cast<int>(spec.layers.size()); i++) {
      const LayerSpec &l = spec.layers[static_cast<size_t>(i)];
      const int stored = kSources[i] < 0 ? i : kSources[i];
      std::mt19937_64 kv_random(seed * 100 + static_cast<uint64_t>(stored)),
          q_random(seed * 100 + 50 + static_cast<uint64_t>(i));
      std::normal_distribution<float> normal;
      Tensor q(DType::kF32, {tokens, l.hq, l.d}), k(DType::kF32, {tokens, l.hkv, l.d}),
          v(DType::kF32, {tokens, l.hkv, l.d}), out(DType::kF32, {tokens, l.hq, l.d});
      for (int64_t t = 0; t < tokens; t++) {
        for (int d = 0; d < l.d; d++) {
          for (int h = 0; h < l.hq; h++) q.set(t, h, d, normal(q_random));
          for (int h = 0; h < l.hkv; h++) k.set(t, h, d, normal(kv_random)), v.set(t, h, d, normal(kv_random));
        }
      }
      kvc_attend_args args;
      kvc_attend_args_init(&args);
      args.q = q.dl();
      args.k = shared && kSources[i] >= 0 ? nullptr : k.dl();
      args.v = shared && kSources[i] >= 0 ? nullptr : v.dl();
      args.out = out.dl();
      EXPECT_EQ(kvc_forward_attend(cache.get(), f, i, &args, &error), KVC_OK) << error.message;
      const std::vector<unsigned char> bytes = out.bytes();
      outputs.insert(outputs.end(), bytes.begin(), bytes.end());
    }
    EXPECT_EQ(kvc_forward_end(cache.get(), f, &error), KVC_OK) << error.message;
    EXPECT_EQ(kvc_cache_check_invariants(cache.get(), &error), KVC_OK) << error.message;
    return outputs;
  }

  int64_t storage_bytes() const {
    kvc_stats stats;
    kvc_stats_init(&stats);
    EXPECT_EQ(kvc_cache_stats(cache.get(), -1, &stats, nullptr), KVC_OK);
    return stats.storage_bytes;
  }
};

TEST(J_SharedLayers, GiveTheSameBitsAsLayersThatStoreTheSame) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    for (const int rope : {KVC_ROPE_NONE, KVC_ROPE_ON_APPEND, KVC_ROPE_ON_READ}) {
      for (const int page_size : {1, 5, 16}) {
        const CacheSpec spec = spec_of(dtype, rope, page_size);
        Twin shared(spec, true), apart(spec, false);
        uint64_t seed = 1;
        for (const std::vector<int32_t> &lengths : {std::vector<int32_t>{3, 20}, {2, 1}, {1, 7}, {1, 1}, {1, 1}}) {
          ASSERT_EQ(shared.step(spec, true, lengths, seed), apart.step(spec, false, lengths, seed))
              << name_of(dtype) << " rope " << rope << " page " << page_size << " step " << seed;
          ++seed;
        }
        // A fork inside a page copies once, in the storing layers only.
        for (Twin *twin : {&shared, &apart}) {
          kvc_seq child = 0;
          const int64_t position = 5;
          ASSERT_EQ(kvc_seq_fork(twin->cache.get(), 1, &twin->seqs[1], nullptr, &child, nullptr, nullptr), KVC_OK);
          ASSERT_EQ(kvc_seq_fork(twin->cache.get(), 1, &twin->seqs[1], &position, &twin->seqs[0], nullptr, nullptr),
                    KVC_ERROR_EVICTED);
          twin->seqs[0] = child;
        }
        ASSERT_EQ(shared.step(spec, true, {1, 4}, seed), apart.step(spec, false, {1, 4}, seed)) << "after a fork";
        EXPECT_EQ(5 * shared.storage_bytes(), 2 * apart.storage_bytes());
      }
    }
  }
}

TEST(J_SharedLayers, StoreNothing) {
  const CacheSpec spec = spec_of(DType::kF32, KVC_ROPE_NONE, 4);
  Twin w(spec, true);
  kvc_batch batch;
  kvc_batch_init(&batch);
  const int32_t length = 2;
  batch.sequences = w.seqs;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  kvc_forward f = 0;
  ASSERT_EQ(kvc_forward_begin(w.cache.get(), &batch, nullptr, &f, nullptr), KVC_OK);
  Tensor q(DType::kF32, {2, 4, 16}), kv(DType::kF32, {2, 2, 16}), out(DType::kF32, {2, 4, 16});
  kvc_error error = KVC_ERROR_INIT;
  kvc_append_args append;
  kvc_append_args_init(&append);
  append.k = append.v = kv.dl();
  EXPECT_EQ(kvc_forward_append(w.cache.get(), f, 2, &append, &error), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(error.index, 2);
  EXPECT_NE(std::strstr(error.message, "reads layer 0's"), nullptr) << error.message;
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = q.dl();
  args.out = out.dl();
  EXPECT_EQ(kvc_forward_attend(w.cache.get(), f, 2, &args, &error), KVC_ERROR_ORDER) << "before layer 0's append";
  EXPECT_NE(std::strstr(error.message, "layer 0"), nullptr) << error.message;
  ASSERT_EQ(kvc_forward_append(w.cache.get(), f, 0, &append, &error), KVC_OK);
  args.k = args.v = kv.dl();
  EXPECT_EQ(kvc_forward_attend(w.cache.get(), f, 2, &args, &error), KVC_ERROR_INVALID_ARGUMENT);
  args.k = args.v = nullptr;
  EXPECT_EQ(kvc_forward_attend(w.cache.get(), f, 2, &args, &error), KVC_OK) << error.message;
  EXPECT_EQ(kvc_forward_end(w.cache.get(), f, &error), KVC_ERROR_ORDER);
  EXPECT_EQ(error.index, 1) << "the sharing layers need no append, layer 1 does";
  ASSERT_EQ(kvc_forward_append(w.cache.get(), f, 1, &append, &error), KVC_OK);
  EXPECT_EQ(kvc_forward_end(w.cache.get(), f, &error), KVC_OK) << error.message;
}

TEST(J_SharedLayers, ImportsSkipThemAndExportsGiveWhatTheyRead) {
  const CacheSpec spec = spec_of(DType::kF32, KVC_ROPE_NONE, 4);
  Twin w(spec, true);
  Tensor k(DType::kF32, {6, 2, 16}), v(DType::kF32, {6, 2, 16});
  for (int64_t t = 0; t < 6; t++) {
    for (int d = 0; d < 16; d++)
      k.set(t, 0, d, static_cast<float>(t * 16 + d)), v.set(t, 1, d, static_cast<float>(d - t));
  }
  const DLTensor *ks[5] = {k.dl(), k.dl(), nullptr, nullptr, nullptr},
                 *vs[5] = {v.dl(), v.dl(), nullptr, nullptr, nullptr};
  kvc_import_args args;
  kvc_import_args_init(&args);
  args.num_layers = 5;
  args.k = ks;
  args.v = vs;
  kvc_error error = KVC_ERROR_INIT;
  ks[3] = k.dl();
  EXPECT_EQ(kvc_seq_import(w.cache.get(), w.seqs[0], &args, nullptr, &error), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(error.index, 3);
  ks[3] = nullptr;
  ASSERT_EQ(kvc_seq_import(w.cache.get(), w.seqs[0], &args, nullptr, &error), KVC_OK) << error.message;
  for (const int layer : {0, 2, 4}) {
    kvc_export_args exports;
    kvc_export_args_init(&exports);
    exports.layer = layer;
    kvc_exported exported;
    kvc_exported_init(&exported);
    ASSERT_EQ(kvc_seq_export(w.cache.get(), w.seqs[0], &exports, &exported, nullptr, &error), KVC_OK) << error.message;
    EXPECT_EQ(std::memcmp(exported.k->dl_tensor.data, k.dl()->data, 6 * 2 * 16 * 4), 0) << "layer " << layer;
    EXPECT_EQ(std::memcmp(exported.v->dl_tensor.data, v.dl()->data, 6 * 2 * 16 * 4), 0) << "layer " << layer;
    exported.k->deleter(exported.k);
    exported.v->deleter(exported.v);
  }
}

}  // namespace
}  // namespace kvt
