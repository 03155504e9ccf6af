// Scenario L: recurrent states, and drafts that are rejected just after a window moved, with sliding, full and
// recurrent groups in one cache.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "wrappers.h"

namespace kvt {
namespace {

// Layer 0: states (16, 16) float16 and (32, 32) float32. With attention also layer 1, sliding, and layer 2, full.
struct World {
  ContextPtr context = make_context(2);
  CachePtr cache;
  std::vector<kvc_seq> seqs;
  kvc_error error = KVC_ERROR_INIT;
  kvc_state_config states[2];
  kvc_layer_config layers[3];
  kvc_group_config groups[3];
  kvc_cache_config config;

  explicit World(bool attention) {
    for (kvc_state_config &s : states) kvc_state_config_init(&s), s.rank = 2;
    states[0].dtype = {kDLFloat, 16, 1};
    states[0].shape[0] = states[0].shape[1] = 16;
    states[1].shape[0] = states[1].shape[1] = 32;
    for (int i = 0; i < 3; i++) {
      kvc_layer_config_init(&layers[i]);
      kvc_group_config_init(&groups[i]);
      layers[i].group = i;
      if (i == 0) continue;
      layers[i].num_q_heads = layers[i].num_kv_heads = 1;
      layers[i].head_dim = 8;
    }
    layers[0].states = states;
    layers[0].num_states = 2;
    groups[0].row = KVC_ROW_STATE;
    groups[1].visibility = KVC_VISIBLE_WINDOW;
    groups[1].window_tokens = 8;
    kvc_cache_config_init(&config);
    config.layers = layers;
    config.groups = groups;
    config.num_layers = config.num_groups = attention ? 3 : 1;
    config.max_sequences = 4;
    config.page_size = 4;
    config.max_batch_tokens = 64;
    config.rollback_tokens = attention ? 4 : 0;
    config.capacity_tokens = attention ? 256 : 0;
    config.max_checkpoints = 3;
  }
  void open() {
    kvc_cache *raw = nullptr;
    ASSERT_EQ(kvc_cache_create(context.get(), &config, &raw, &error), KVC_OK) << error.message;
    cache.reset(raw);
    seqs.resize(4);
    ASSERT_EQ(kvc_seq_add(raw, 4, seqs.data(), &error), KVC_OK);
  }

  kvc_forward begin(std::vector<kvc_seq> batch_seqs, std::vector<int32_t> lengths) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = batch_seqs.data();
    batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(batch_seqs.size());
    kvc_forward f = 0;
    EXPECT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &f, &error), KVC_OK) << error.message;
    return f;
  }
  static Tensor rows(int state, int64_t n, float value) {
    const int64_t side = state == 0 ? 16 : 32;
    Tensor t(state == 0 ? DType::kF16 : DType::kF32, {n, side, side});
    for (int64_t i = 0; i < n * side * side; i++) store(t.type(), t.data(), i, value);
    return t;
  }
  // One step: every state of row i becomes values[i] (state 1 becomes half of it). Returns the values before.
  std::vector<float> step(std::vector<kvc_seq> batch_seqs, std::vector<int32_t> lengths, std::vector<float> values) {
    const auto n = static_cast<int64_t>(batch_seqs.size());
    const kvc_forward f = begin(batch_seqs, lengths);
    std::vector<float> before;
    for (int state = 0; state < 2; state++) {
      Tensor loaded = rows(state, n, -1.0f), next = rows(state, n, 0.0f);
      EXPECT_EQ(kvc_forward_load_state(cache.get(), f, 0, state, -1, loaded.dl(), &error), KVC_OK) << error.message;
      const int64_t last = next.dim(1) - 1;
      for (int64_t i = 0; i < n; i++) {
        const float first = loaded.at(i, 0, 0);
        EXPECT_EQ(loaded.at(i, last, last), first);
        if (state == 0) before.push_back(first);
        if (state == 1) {
          EXPECT_EQ(first, before[static_cast<size_t>(i)] / 2);
        }
        for (int64_t a = 0; a <= last; a++) {
          for (int64_t b = 0; b <= last; b++) next.set(i, a, b, values[static_cast<size_t>(i)] / (state == 0 ? 1 : 2));
        }
      }
      EXPECT_EQ(kvc_forward_store_state(cache.get(), f, 0, state, -1, next.dl(), &error), KVC_OK) << error.message;
    }
    int64_t total = 0;
    for (int32_t l : lengths) total += l;
    for (int32_t layer = 1; layer < config.num_layers; layer++) {
      Tensor q(DType::kF32, {total, 1, 8}), k(DType::kF32, {total, 1, 8});
      outs[layer] = Tensor(DType::kF32, {total, 1, 8});
      for (int64_t t = 0; t < total; t++) {
        for (int d = 0; d < 8; d++) {
          k.set(t, 0, d, static_cast<float>(next_key + t));
          q.set(t, 0, d, 0.01f * static_cast<float>(d - 3));
        }
      }
      kvc_attend_args args;
      kvc_attend_args_init(&args);
      args.q = q.dl();
      args.k = args.v = k.dl();
      args.out = outs[layer].dl();
      EXPECT_EQ(kvc_forward_attend(cache.get(), f, layer, &args, &error), KVC_OK) << error.message;
    }
    next_key += static_cast<float>(total);
    EXPECT_EQ(kvc_forward_end(cache.get(), f, &error), KVC_OK) << error.message;
    EXPECT_EQ(kvc_cache_check_invariants(cache.get(), &error), KVC_OK) << error.message;
    return before;
  }
  kvc_status truncate(kvc_seq seq, int64_t length) { return kvc_seq_truncate(cache.get(), 1, &seq, &length, &error); }
  kvc_status checkpoint(kvc_seq seq) { return kvc_seq_checkpoint(cache.get(), 1, &seq, &error); }
  // First element of keys [begin, end) of a layer.
  std::vector<float> keys(kvc_seq seq, int32_t layer, int64_t begin, int64_t end) {
    kvc_export_args args;
    kvc_export_args_init(&args);
    args.layer = layer;
    args.position_begin = begin;
    args.position_end = end;
    DLManagedTensorVersioned *k = nullptr;
    EXPECT_EQ(export_kv(cache.get(), seq, &args, &k, nullptr, nullptr, &error), KVC_OK) << error.message;
    const Managed owner(k);
    std::vector<float> out;
    for (int64_t t = 0; k != nullptr && t < end - begin; t++) {
      out.push_back(static_cast<const float *>(k->dl_tensor.data)[t * 8]);
    }
    return out;
  }

  // Expected attention over keys whose dims all are one number, which is also their value.
  static float attention(const std::vector<float> &keys) {
    double sum = 0, out = 0;
    for (const float key : keys) {
      const double weight = std::exp(0.01 * (0 + 1 + 2 + 3 + 4 + 5 + 6 + 7 - 8 * 3) / std::sqrt(8.0) * double{key});
      sum += weight;
      out += weight * double{key};
    }
    return static_cast<float>(out / sum);
  }
  // The output of the last step's attention over a layer, for its token i.
  float out(int layer, int64_t i) const { return outs[layer].at(i, 0, 0); }

  float next_key = 0;
  Tensor outs[3];
};

using Floats = std::vector<float>;

TEST(L_Recurrent, SettingABatchLeavesTheOthersAlone) {
  World w(false);
  w.open();
  EXPECT_EQ(w.step({w.seqs[0], w.seqs[1], w.seqs[2]}, {1, 1, 1}, {10, 20, 30}), (Floats{0, 0, 0}));
  EXPECT_EQ(w.step({w.seqs[0], w.seqs[2]}, {3, 1}, {11, 31}), (Floats{10, 30}));
  EXPECT_EQ(w.step({w.seqs[2], w.seqs[1], w.seqs[0]}, {1, 1, 1}, {32, 21, 12}), (Floats{31, 20, 11}));
}

TEST(L_Recurrent, TruncateWorksAtCheckpointsAndNowhereElse) {
  World w(false);
  w.open();
  const kvc_seq s = w.seqs[0];
  w.step({s}, {5}, {50});
  ASSERT_EQ(w.checkpoint(s), KVC_OK) << w.error.message;
  w.step({s}, {3}, {80});
  w.step({s}, {1}, {90});
  EXPECT_EQ(w.truncate(s, 8), KVC_ERROR_EVICTED);
  EXPECT_NE(std::strstr(w.error.message, "nearest positions: 5 and 9"), nullptr) << w.error.message;
  EXPECT_EQ(w.truncate(s, 9), KVC_OK);
  int64_t before = 0, after = 0;
  ASSERT_EQ(kvc_seq_nearest_position(w.cache.get(), s, 6, &before, &after, nullptr), KVC_OK);
  EXPECT_EQ(before, 5);
  EXPECT_EQ(after, 9);
  ASSERT_EQ(w.truncate(s, 5), KVC_OK) << w.error.message;
  EXPECT_EQ(w.step({s}, {2}, {70}), (Floats{50}));
  ASSERT_EQ(w.truncate(s, 5), KVC_OK) << "the checkpoint is still there";
  EXPECT_EQ(w.step({s}, {1}, {60}), (Floats{50}));
  ASSERT_EQ(w.truncate(s, 0), KVC_OK);
  EXPECT_EQ(w.step({s}, {1}, {1}), (Floats{0})) << "empty again, then append";
  EXPECT_EQ(w.truncate(s, 5), KVC_ERROR_OUT_OF_RANGE);
}

TEST(L_Recurrent, AForkAtAPositionLeavesTheParentAlone) {
  World w(false);
  w.open();
  const kvc_seq parent = w.seqs[0];
  ASSERT_EQ(kvc_seq_remove(w.cache.get(), 3, &w.seqs[1], nullptr), KVC_OK);
  w.step({parent}, {4}, {40});
  ASSERT_EQ(w.checkpoint(parent), KVC_OK);
  w.step({parent}, {4}, {80});
  kvc_seq children[2];
  const kvc_seq parents[2] = {parent, parent};
  int64_t positions[2] = {4, 6};
  EXPECT_EQ(kvc_seq_fork(w.cache.get(), 2, parents, positions, children, nullptr, &w.error), KVC_ERROR_EVICTED);
  EXPECT_EQ(w.error.index, 1);
  positions[1] = -1;
  ASSERT_EQ(kvc_seq_fork(w.cache.get(), 2, parents, positions, children, nullptr, &w.error), KVC_OK);
  EXPECT_EQ(w.step({children[0], children[1]}, {1, 1}, {41, 81}), (Floats{40, 80}));
  ASSERT_EQ(w.truncate(children[1], 4), KVC_OK) << "checkpoints are inherited: " << w.error.message;
  EXPECT_EQ(w.step({children[1], parent}, {1, 1}, {42, 82}), (Floats{40, 80}));
  ASSERT_EQ(kvc_seq_remove(w.cache.get(), 1, &parent, nullptr), KVC_OK);
  EXPECT_EQ(w.step({children[1], children[0]}, {1, 1}, {43, 44}), (Floats{42, 41}));
}

TEST(L_Recurrent, TheOldestCheckpointGoes) {
  World w(false);
  w.open();
  const kvc_seq s = w.seqs[0];
  for (int i = 1; i <= 5; i++) {
    w.step({s}, {1}, {static_cast<float>(i)});
    ASSERT_EQ(w.checkpoint(s), KVC_OK);
    ASSERT_EQ(w.checkpoint(s), KVC_OK) << "twice at one length is once";
  }
  EXPECT_EQ(w.truncate(s, 2), KVC_ERROR_EVICTED);
  ASSERT_EQ(w.truncate(s, 3), KVC_OK);
  EXPECT_EQ(w.step({s}, {1}, {0}), (Floats{3}));
}

TEST(L_Recurrent, PoolFullInTheMiddleOfABatchChangesNothing) {
  World w(false);
  w.groups[0].num_pages = 3;
  w.open();
  w.step({w.seqs[0]}, {1}, {1});
  ASSERT_EQ(w.checkpoint(w.seqs[0]), KVC_OK);
  w.step({w.seqs[0]}, {1}, {2});  // two pages: the checkpoint's, and the last
  uint64_t before = 0, after = 0;
  ASSERT_EQ(kvc_cache_digest(w.cache.get(), &before, nullptr), KVC_OK);
  kvc_batch batch;
  kvc_batch_init(&batch);
  const kvc_seq seqs[2] = {w.seqs[0], w.seqs[1]};
  const int32_t lengths[2] = {1, 1};
  batch.sequences = seqs;
  batch.append_lengths = lengths;
  batch.num_sequences = 2;
  kvc_forward f = 0;
  EXPECT_EQ(kvc_cache_can_fit(w.cache.get(), &batch, nullptr), KVC_ERROR_OUT_OF_PAGES);
  EXPECT_EQ(kvc_forward_begin(w.cache.get(), &batch, nullptr, &f, &w.error), KVC_ERROR_OUT_OF_PAGES);
  EXPECT_EQ(w.error.index, 1);
  EXPECT_EQ(w.error.required, 2);
  EXPECT_EQ(w.error.available, 1);
  ASSERT_EQ(kvc_cache_digest(w.cache.get(), &after, nullptr), KVC_OK);
  EXPECT_EQ(before, after);
  int64_t room[2] = {-1, -1};
  ASSERT_EQ(kvc_seq_max_append(w.cache.get(), 2, seqs, room, nullptr), KVC_OK);
  EXPECT_EQ(room[0], 64);
  EXPECT_EQ(room[1], 64);
  EXPECT_EQ(w.step({w.seqs[0]}, {1}, {3}), (Floats{2}));
}

// Verifies a draft of four tokens and accepts one, repeatedly while the window moves. Each time it goes back to the
// checkpoint and runs the accepted token alone. Then everything is as if the draft had never existed.
TEST(RejectedDrafts, RightAfterAWindowSlidOnSlidingFullAndRecurrent) {
  World drafted(true), plain(true);
  drafted.open();
  plain.open();
  const kvc_seq s = drafted.seqs[0], p = plain.seqs[0];
  drafted.step({s}, {7}, {7});
  plain.step({p}, {7}, {7});
  for (int64_t length = 7; length < 60; length++) {
    const auto state = static_cast<float>(length);
    ASSERT_EQ(drafted.checkpoint(s), KVC_OK);
    ASSERT_EQ(drafted.step({s}, {4}, {-1}), (Floats{state}));
    ASSERT_EQ(drafted.truncate(s, length), KVC_OK) << length << ": " << drafted.error.message;
    drafted.next_key = plain.next_key;
    ASSERT_EQ(drafted.step({s}, {1}, {state + 1}), (Floats{state})) << "the state before the draft";
    ASSERT_EQ(plain.step({p}, {1}, {state + 1}), (Floats{state}));
    const int64_t from = std::max<int64_t>(0, length - 7);
    ASSERT_EQ(drafted.keys(s, 1, from, length + 1), plain.keys(p, 1, from, length + 1)) << length;
    ASSERT_EQ(drafted.keys(s, 2, 0, length + 1), plain.keys(p, 2, 0, length + 1)) << length;
    for (int layer = 1; layer < 3; layer++) {
      const float wanted = World::attention(plain.keys(p, layer, layer == 1 ? from : 0, length + 1));
      ASSERT_NEAR(drafted.out(layer, 0), wanted, 1e-5 * wanted) << "layer " << layer << " at " << length;
    }
  }
}

// The same with an uncommitted chain. The state before it is restored without a checkpoint.
TEST(RejectedDrafts, AsChainsOverRecurrentState) {
  World w(true);
  w.open();
  const kvc_seq s = w.seqs[0];
  w.step({s}, {7}, {7});
  float state = 7;
  for (int round = 0; round < 30; round++) {
    for (int stacked = 0; stacked < 1 + round % 3; stacked++) {
      kvc_batch batch;
      kvc_batch_init(&batch);
      const int32_t length = 2, parents[2] = {2 * stacked - 1, 2 * stacked};
      batch.sequences = &s;
      batch.append_lengths = &length;
      batch.num_sequences = 1;
      const int32_t forked[2] = {KVC_TREE_ROOT, KVC_TREE_ROOT};
      kvc_forward f = 0;
      batch.tree_parents = forked;
      ASSERT_EQ(kvc_forward_begin(w.cache.get(), &batch, nullptr, &f, &w.error), KVC_ERROR_INVALID_ARGUMENT);
      ASSERT_NE(std::strstr(w.error.message, "chains"), nullptr) << w.error.message;
      batch.tree_parents = parents;
      ASSERT_EQ(kvc_forward_begin(w.cache.get(), &batch, nullptr, &f, &w.error), KVC_OK) << w.error.message;
      for (int i = 0; i < 2; i++) {
        Tensor next = World::rows(i, 1, (state + static_cast<float>(stacked) + 1) / (i == 0 ? 1 : 2));
        ASSERT_EQ(kvc_forward_store_state(w.cache.get(), f, 0, i, -1, next.dl(), &w.error), KVC_OK);
      }
      for (int32_t layer = 1; layer < 3; layer++) {
        Tensor k(DType::kF32, {2, 1, 8});
        kvc_append_args args;
        kvc_append_args_init(&args);
        args.k = args.v = k.dl();
        ASSERT_EQ(kvc_forward_append(w.cache.get(), f, layer, &args, &w.error), KVC_OK);
      }
      ASSERT_EQ(kvc_forward_end(w.cache.get(), f, &w.error), KVC_OK) << w.error.message;
    }
    const int32_t nodes = 2 * (1 + round % 3), middle = 0, last = nodes - 1, none = -1;
    ASSERT_EQ(w.checkpoint(s), KVC_ERROR_UNCOMMITTED);
    ASSERT_EQ(kvc_seq_commit(w.cache.get(), 1, &s, &middle, nullptr, &w.error), KVC_ERROR_EVICTED);
    const bool keep = round % 4 == 1;
    ASSERT_EQ(kvc_seq_commit(w.cache.get(), 1, &s, keep ? &last : &none, nullptr, &w.error), KVC_OK) << w.error.message;
    if (keep) state += static_cast<float>(1 + round % 3);
    ASSERT_EQ(w.step({s}, {1}, {state + 1}), (Floats{state})) << "round " << round;
    state += 1;
  }
}

TEST(RecurrentMisuse, HasAStatusAndAMessage) {
  World w(true);
  w.open();
  const kvc_forward f = w.begin({w.seqs[0], w.seqs[1]}, {1, 2});
  Tensor right = World::rows(0, 2, 1), few = World::rows(0, 1, 1), other = World::rows(1, 2, 1);
  Tensor rank(DType::kF16, {2, 16});
  kvc_cache *c = w.cache.get();
  EXPECT_EQ(kvc_forward_load_state(c, f, 0, 0, -1, nullptr, &w.error), KVC_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(kvc_forward_load_state(c, f, 0, 2, -1, right.dl(), &w.error), KVC_ERROR_OUT_OF_RANGE);
  EXPECT_EQ(kvc_forward_load_state(c, f, 7, 0, -1, right.dl(), &w.error), KVC_ERROR_OUT_OF_RANGE);
  EXPECT_EQ(kvc_forward_load_state(c, f, 1, 0, -1, right.dl(), &w.error), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(kvc_forward_load_state(c, f, 0, 0, -1, few.dl(), &w.error), KVC_ERROR_SHAPE);
  EXPECT_EQ(kvc_forward_load_state(c, f, 0, 0, -1, other.dl(), &w.error), KVC_ERROR_DTYPE);
  EXPECT_EQ(kvc_forward_load_state(c, f, 0, 0, -1, rank.dl(), &w.error), KVC_ERROR_RANK);
  DLTensor overlapping = *right.dl();
  int64_t strides[3] = {0, 16, 1};
  overlapping.strides = strides;
  EXPECT_EQ(kvc_forward_load_state(c, f, 0, 0, -1, &overlapping, &w.error), KVC_ERROR_STRIDE);
  EXPECT_EQ(kvc_forward_store_state(c, f, 0, 0, -1, &overlapping, &w.error), KVC_OK) << "one state for all rows";
  int64_t transposed[3] = {256, 1, 16};
  overlapping.strides = transposed;
  EXPECT_EQ(kvc_forward_store_state(c, f, 0, 0, -1, &overlapping, &w.error), KVC_ERROR_STRIDE);
  EXPECT_EQ(kvc_seq_checkpoint(c, 1, w.seqs.data(), &w.error), KVC_ERROR_BUSY);
  Tensor k(DType::kF32, {3, 1, 8});
  kvc_append_args append;
  kvc_append_args_init(&append);
  append.k = append.v = k.dl();
  EXPECT_EQ(kvc_forward_append(c, f, 0, &append, &w.error), KVC_ERROR_INVALID_ARGUMENT);
  kvc_attend_args attend;
  kvc_attend_args_init(&attend);
  attend.q = attend.out = k.dl();
  EXPECT_EQ(kvc_forward_attend(c, f, 0, &attend, &w.error), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(kvc_forward_end(c, f, &w.error), KVC_ERROR_ORDER);
  EXPECT_NE(std::strstr(w.error.message, "state 1 of layer 0"), nullptr) << w.error.message;
  ASSERT_EQ(kvc_forward_abort(c, f, nullptr), KVC_OK);
  EXPECT_EQ(kvc_forward_load_state(c, f, 0, 0, -1, right.dl(), &w.error), KVC_ERROR_STALE_ID);
  DLManagedTensorVersioned *view = nullptr;
  EXPECT_EQ(kvc_cache_export_pool(c, 0, KVC_POOL_K, 0, &view, nullptr, &w.error), KVC_ERROR_UNSUPPORTED);
}

TEST(RecurrentMisuse, ConfigsAreRefused) {
  const auto status_of = [](const std::function<void(World *)> &change, const char *text) {
    World w(true);
    change(&w);
    kvc_cache *raw = nullptr;
    const kvc_status status = kvc_cache_create(w.context.get(), &w.config, &raw, &w.error);
    kvc_cache_destroy(raw);
    EXPECT_NE(std::strstr(w.error.message, text), nullptr) << w.error.message;
    return status;
  };
  EXPECT_EQ(status_of([](World *w) { w->layers[0].num_q_heads = 4; }, "num_q_heads 4"), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](World *w) { w->layers[0].num_states = 0; }, "num_states 0"), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](World *w) { w->layers[0].num_states = 17; }, "num_states 17"), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](World *w) { w->layers[0].states = nullptr; }, "states is NULL"), KVC_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(status_of([](World *w) { w->layers[1].num_states = 1; }, "num_states 1 must be 0"),
            KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](World *w) { w->layers[1].states = w->states; }, "not recurrent"), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](World *w) { w->states[1].rank = 5; }, "rank 5 is not in 1..4"), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](World *w) { w->states[1].shape[1] = 0; }, "shape entry 0 is not 1 or more"),
            KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](World *w) { w->states[1].shape[3] = 2; }, "shape entry 2 is not 0 after the last dim"),
            KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](World *w) { w->states[0].shape[0] = INT64_MAX; }, "2^40 bytes"), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](World *w) { w->states[0].dtype = {kDLInt, 8, 1}; }, "dtype int8"), KVC_ERROR_DTYPE);
  EXPECT_EQ(status_of([](World *w) { w->groups[0].window_tokens = 3; }, "window_tokens 3"), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](World *w) { w->config.max_checkpoints = 1025; }, "1025"), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](World *w) { w->groups[0].row = KVC_ROW_KV; }, "max_checkpoints 3"),
            KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](World *w) { w->states[1].struct_size = 40; }, "struct_size"), KVC_ERROR_STRUCT_SIZE);
}

}  // namespace
}  // namespace kvt
