// Forwards over a range of layers. A token cannot be read in a layer that did not store it. Its page may hold the
// values of another sequence there, so every test first fills all pages with values of another sequence.
#include <cmath>

#include "fixture.h"
#include "hybrid.h"

namespace kvt {
namespace {

constexpr float kMine = 1, kTheirs = 77;
constexpr int kAll = kKinds + 1;
const Statuses kOrder{KVC_ERROR_ORDER};

struct Ranges {
  Hybrid h;
  ContextPtr context = make_context(1);
  CachePtr owner;
  kvc_cache *cache = nullptr;
  kvc_error error = KVC_ERROR_INIT;

  Ranges() {
    h.config.max_checkpoints = 4;
    EXPECT_EQ(kvc_cache_create(context.get(), &h.config, &cache, &error), KVC_OK) << error.message;
    owner.reset(cache);
    const kvc_seq tenant = add();
    step(tenant, 9, 0, kAll, kTheirs, kCrossGroup + 1);
    step(tenant, 20, 0, kAll, kTheirs);
    EXPECT_EQ(kvc_seq_remove(cache, 1, &tenant, &error), KVC_OK);
  }
  kvc_seq add() {
    kvc_seq id = 0;
    EXPECT_EQ(kvc_seq_add(cache, 1, &id, &error), KVC_OK);
    return id;
  }
  // The arguments live as long as the batch.
  kvc_batch batch(const kvc_seq *id, const int32_t *tokens, int begin, int end, int encoder = 0) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = id;
    batch.append_lengths = tokens;
    batch.num_sequences = 1;
    batch.layer_begin = begin;
    batch.layer_end = end;
    batch.encoder_group = encoder;
    return batch;
  }
  kvc_forward begin(kvc_seq id, int32_t tokens, int begin, int end, int encoder = 0, const int32_t *parents = nullptr) {
    kvc_batch b = batch(&id, &tokens, begin, end, encoder);
    b.tree_parents = parents;
    kvc_forward f = 0;
    EXPECT_EQ(kvc_forward_begin(cache, &b, nullptr, &f, &error), KVC_OK) << error.message;
    return f;
  }
  void run(kvc_forward f, int64_t tokens, int begin, int end, float value, bool encoder) {
    for (int layer = begin; layer < end; layer++) {
      if (layer == kSharing || encoder != (layer == kCrossGroup)) continue;
      if (layer == kRecurrentGroup) {
        Tensor state(DType::kF32, {6, 5});
        fill(&state, value);
        for (int i = 0; i < 2; i++) {
          EXPECT_EQ(kvc_forward_store_state(cache, f, layer, i, -1, state.dl(), &error), KVC_OK) << error.message;
        }
        continue;
      }
      Tensor k(DType::kF32, {tokens, layer == kMlaGroup ? 1 : kKvHeads, kDim});
      fill(&k, value);
      kvc_append_args args;
      kvc_append_args_init(&args);
      args.k = k.dl();
      args.v = layer == kMlaGroup ? nullptr : k.dl();
      EXPECT_EQ(kvc_forward_append(cache, f, layer, &args, &error), KVC_OK) << error.message;
    }
  }
  static void fill(Tensor *tensor, float value) {
    float *data = reinterpret_cast<float *>(tensor->bytes().data());
    std::fill_n(data, tensor->bytes().size() / sizeof(float), value);
  }
  void step(kvc_seq id, int32_t tokens, int first, int last, float value, int encoder = 0,
            const int32_t *parents = nullptr) {
    const kvc_forward f = begin(id, tokens, first, last, encoder, parents);
    run(f, tokens, first, last, value, encoder != 0);
    EXPECT_EQ(kvc_forward_end(cache, f, &error), KVC_OK) << error.message;
  }

  kvc_status exported(kvc_seq id, int layer, int64_t first, int64_t last, kvc_error *e) {
    kvc_export_args args;
    kvc_export_args_init(&args);
    args.layer = layer;
    args.position_begin = first;
    args.position_end = last;
    args.parts = KVC_EXPORT_K;
    kvc_exported out;
    kvc_exported_init(&out);
    const kvc_status status = kvc_seq_export(cache, id, &args, &out, nullptr, e);
    if (status) return status;
    const DLTensor &k = out.k->dl_tensor;
    const auto *data = static_cast<const float *>(k.data);
    for (int64_t i = 0; i < k.shape[0] * k.shape[1] * k.shape[2]; i++) EXPECT_EQ(data[i], kMine) << "layer " << layer;
    out.k->deleter(out.k);
    return status;
  }
  // A layer holds `held` of a sequence's `tokens` tokens. No more can be exported, and no forward covers the layer
  // unless it holds all.
  void expect_held(kvc_seq id, int layer, int64_t held, int64_t tokens) {
    SCOPED_TRACE("layer " + std::to_string(layer));
    const bool complete = held == tokens;
    if (layer != kRecurrentGroup) {
      if (held > 0) {
        EXPECT_EQ(exported(id, layer, held - 1, held, &error), KVC_OK) << error.message;
      }
      if (!complete) {
        const kvc_error e = refused(cache, kOrder, "kvc_seq_export",
                                    [&](kvc_error *e) { return exported(id, layer, held, held + 1, e); },
                                    {"holds " + std::to_string(held), "layer " + std::to_string(layer % kSharing)});
        EXPECT_EQ(e.available, held);
        refused(cache, kOrder, "kvc_seq_export", [&](kvc_error *e) { return exported(id, layer, 0, 0, e); });
      }
    }
    const int encoder = layer == kCrossGroup ? kCrossGroup + 1 : 0;
    const int32_t one = 1;
    for (const int kind : {0, encoder}) {
      const kvc_batch b = batch(&id, &one, layer, layer + 1, kind);
      kvc_forward f = 0;
      if (complete || layer == kSharing) {
        EXPECT_EQ(kvc_cache_can_fit(cache, &b, &error), KVC_OK) << error.message;
      } else {
        refused(cache, kOrder, "kvc_cache_can_fit", [&](kvc_error *e) { return kvc_cache_can_fit(cache, &b, e); });
        const kvc_error e =
            refused(cache, kOrder, "kvc_forward_begin",
                    [&](kvc_error *e) { return kvc_forward_begin(cache, &b, nullptr, &f, e); },
                    {"row 0", "layer " + std::to_string(layer), std::to_string(held), std::to_string(tokens)});
        EXPECT_EQ(e.index, 0);
        EXPECT_EQ(e.required, tokens);
        EXPECT_EQ(e.available, held);
      }
    }
  }
  void expect_own_held(kvc_seq id, int begin, int end, int64_t held, int64_t tokens) {
    for (int layer = 0; layer < kAll; layer++) {
      if (layer == kCrossGroup) continue;
      const int source = layer == kSharing ? 0 : layer;
      expect_held(id, layer, source >= begin && source < end ? tokens : held, tokens);
    }
    EXPECT_EQ(kvc_cache_check_invariants(cache, &error), KVC_OK) << error.message;
  }
  // After a whole forward, the states and the K and V belong to the sequence.
  void expect_usable(kvc_seq id) {
    const kvc_forward f = begin(id, 1, 0, kAll);
    Tensor state(DType::kF32, {6, 5});
    fill(&state, kTheirs);
    EXPECT_EQ(kvc_forward_load_state(cache, f, kRecurrentGroup, 1, -1, state.dl(), &error), KVC_OK) << error.message;
    for (int i = 0; i < 5; i++) EXPECT_NE(reinterpret_cast<const float *>(state.bytes().data())[i], kTheirs);
    EXPECT_EQ(kvc_forward_abort(cache, f, &error), KVC_OK);
  }
};

TEST(LayerRanges, ALayerThatAForwardSkippedIsNotRead) {
  Ranges r;
  const kvc_seq id = r.add();
  r.step(id, 9, 1, 3, kMine);
  r.expect_own_held(id, 1, 3, 0, 9);
  r.step(id, 2, 1, 2, kMine);
  r.expect_held(id, 2, 9, 11);
  r.expect_held(id, 1, 11, 11);
}

TEST(LayerRanges, WhatAllLayersHoldStaysReadable) {
  Ranges r;
  const kvc_seq id = r.add();
  r.step(id, 6, 0, kAll, kMine);
  ASSERT_EQ(kvc_seq_checkpoint(r.cache, 1, &id, &r.error), KVC_OK);
  r.step(id, 2, 0, 2, kMine);
  r.expect_own_held(id, 0, 2, 6, 8);
  kvc_seq end = 0, before = 0;
  const int64_t at_six = 6;
  ASSERT_EQ(kvc_seq_fork(r.cache, 1, &id, nullptr, &end, nullptr, &r.error), KVC_OK) << r.error.message;
  ASSERT_EQ(kvc_seq_fork(r.cache, 1, &id, &at_six, &before, nullptr, &r.error), KVC_OK) << r.error.message;
  r.expect_own_held(end, 0, 2, 6, 8);
  r.expect_own_held(before, 0, kAll, 6, 6);
  r.expect_usable(before);
  ASSERT_EQ(kvc_seq_truncate(r.cache, 1, &id, &at_six, &r.error), KVC_OK) << r.error.message;
  r.expect_own_held(id, 0, kAll, 6, 6);
  r.expect_usable(id);
  const int64_t none = 0;
  ASSERT_EQ(kvc_seq_truncate(r.cache, 1, &end, &none, &r.error), KVC_OK) << r.error.message;
  r.expect_usable(end);
}

// A checkpoint at a position where one layer had stored no state.
TEST(LayerRanges, ACheckpointDoesNotRestoreAStateThatWasNotStored) {
  Ranges r;
  const kvc_seq id = r.add();
  r.step(id, 6, 0, 2, kMine);
  ASSERT_EQ(kvc_seq_checkpoint(r.cache, 1, &id, &r.error), KVC_OK);
  r.step(id, 2, 0, 2, kMine);
  const int64_t six = 6;
  ASSERT_EQ(kvc_seq_truncate(r.cache, 1, &id, &six, &r.error), KVC_OK) << r.error.message;
  r.expect_own_held(id, 0, 2, 0, 6);
}

TEST(LayerRanges, AnAbortedForwardChangesNothing) {
  Ranges r;
  const kvc_seq id = r.add();
  r.step(id, 5, 0, kAll, kMine);
  for (const bool cancel : {false, true}) {
    const kvc_forward f = r.begin(id, 3, 0, 2);
    r.run(f, 3, 0, 2, kTheirs, false);
    if (cancel) {
      ASSERT_EQ(kvc_forward_cancel(r.cache, f, &r.error), KVC_OK);
    }
    ASSERT_EQ(kvc_forward_abort(r.cache, f, &r.error), KVC_OK);
    r.expect_own_held(id, 0, kAll, 5, 5);
    r.expect_usable(id);
  }
}

TEST(LayerRanges, EncoderTokensCountApart) {
  Ranges r;
  const kvc_seq id = r.add();
  r.step(id, 5, 0, kCrossGroup, kMine, kCrossGroup + 1);  // without the cross layer, which stores nothing
  r.expect_held(id, kCrossGroup, 0, 5);
  const int32_t five = 5;
  const kvc_batch whole = r.batch(&id, &five, 0, 0);
  refused(r.cache, kOrder, "kvc_cache_can_fit", [&](kvc_error *e) { return kvc_cache_can_fit(r.cache, &whole, e); },
          {"encoder"});
  r.step(id, 5, 0, kCrossGroup, kMine);
  r.expect_own_held(id, 0, kCrossGroup, 0, 5);

  const kvc_seq other = r.add();
  r.step(other, 5, kCrossGroup, kCrossGroup + 1, kMine, kCrossGroup + 1);
  r.expect_held(other, kCrossGroup, 5, 5);
  r.expect_usable(other);
}

TEST(LayerRanges, ALayerDoesNotReadOneOutsideOfTheForward) {
  Ranges r;
  const kvc_seq id = r.add();
  r.step(id, 5, 0, kAll, kMine);
  const kvc_forward f = r.begin(id, 1, 1, kAll);
  Tensor q(DType::kF32, {1, kHeads, kDim}), out(DType::kF32, {1, kHeads, kDim});
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = q.dl();
  args.out = out.dl();
  for (const uint32_t flags : {0u, uint32_t{KVC_ATTEND_PAST}}) {
    args.flags = flags;
    refused(r.cache, kOrder, "kvc_forward_attend",
            [&](kvc_error *e) { return kvc_forward_attend(r.cache, f, kSharing, &args, e); }, {"layer 0", "[1, 7)"});
  }
  ASSERT_EQ(kvc_forward_abort(r.cache, f, &r.error), KVC_OK);
}

TEST(LayerRanges, NodesOfATree) {
  Ranges r;
  const kvc_seq id = r.add();
  r.step(id, 5, 0, kAll, kMine);
  const int32_t first[2] = {KVC_TREE_ROOT, 0}, second[2] = {1, 2};
  for (const int32_t leaf : {-1, 3}) {
    r.step(id, 2, 0, kAll, kMine, 0, first);
    r.step(id, 2, 0, 2, kMine, 0, second);
    ASSERT_EQ(kvc_seq_commit(r.cache, 1, &id, &leaf, nullptr, &r.error), KVC_OK) << r.error.message;
    if (leaf < 0) {
      r.expect_own_held(id, 0, kAll, 5, 5);
      r.expect_usable(id);
    } else {
      r.expect_own_held(id, 0, 2, 7, 9);
    }
  }
}

TEST(LayerRanges, InAGraph) {
  Ranges r;
  const kvc_seq id = r.add();
  const kvc_forward graph = make_graph(r.cache, 1, 8);
  const int32_t five = 5;
  kvc_batch b = r.batch(&id, &five, 0, 2);
  b.graph = graph;
  kvc_forward f = 0;
  ASSERT_EQ(kvc_forward_begin(r.cache, &b, nullptr, &f, &r.error), KVC_OK) << r.error.message;
  r.run(f, 8, 0, 2, kMine, false);
  ASSERT_EQ(kvc_forward_end(r.cache, f, &r.error), KVC_OK) << r.error.message;
  r.expect_own_held(id, 0, 2, 0, 5);
}

TEST(LayerRanges, AnImportCoversAllLayers) {
  World w;
  const kvc_seq id = w.seq;
  const int32_t two = 2;
  kvc_batch b;
  kvc_batch_init(&b);
  b.sequences = &id;
  b.append_lengths = &two;
  b.num_sequences = 1;
  b.layer_end = 1;
  kvc_forward f = 0;
  ASSERT_EQ(kvc_forward_begin(w.cache, &b, nullptr, &f, nullptr), KVC_OK);
  LayerTensors t(w.spec.layers[0], 2);
  const kvc_append_args append = t.append_args();
  ASSERT_EQ(kvc_forward_append(w.cache, f, 0, &append, nullptr), KVC_OK);
  ASSERT_EQ(kvc_forward_end(w.cache, f, nullptr), KVC_OK);
  std::vector<LayerTensors> tensors;
  for (const LayerSpec &layer : w.spec.layers) tensors.emplace_back(layer, 3);
  std::vector<const DLTensor *> k, v;
  for (LayerTensors &layer : tensors) {
    k.push_back(layer.k.dl());
    v.push_back(layer.v.dl());
  }
  kvc_import_args args;
  kvc_import_args_init(&args);
  args.num_layers = static_cast<int32_t>(k.size());
  args.k = k.data();
  args.v = v.data();
  refused(w.cache, kOrder, "kvc_seq_import",
          [&](kvc_error *e) { return kvc_seq_import(w.cache, id, &args, nullptr, e); }, {"layer 1"});
  const int64_t length = 20;
  ASSERT_EQ(kvc_seq_truncate(w.cache, 1, &id, &length, nullptr), KVC_OK);
  ASSERT_EQ(kvc_seq_import(w.cache, id, &args, nullptr, nullptr), KVC_OK);
}

}  // namespace
}  // namespace kvt
