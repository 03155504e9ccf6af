// Selection of keys (kvc_forward_select): large prompts, keys that a query does not see, scores that are no numbers,
// and bad input.
#include <cmath>

#include "select.h"

namespace kvt {
namespace {

using Lists = SelectedLists;
using Call = SelectCall;
using Step = SelectStep;

// A sequence in a cache with one layer of keys, and its tensors of random numbers.
struct Scene {
  CacheSpec spec;
  ContextPtr context;
  CachePtr cache;
  kvc_seq seq = 0;
  std::mt19937 random{5};

  explicit Scene(const LayerSpec &layer, int64_t window = 0, int threads = 1, int tokens = 4096)
      : context(make_context(threads)) {
    spec.page_size = 8;
    spec.max_sequences = 4;
    spec.max_batch_tokens = tokens;
    spec.groups = {{window, 2 * tokens / 8}};
    spec.layers = {layer};
    cache = make_cache(context.get(), spec);
    EXPECT_EQ(kvc_seq_add(cache.get(), 1, &seq, nullptr), KVC_OK);
  }
  Tensor draw(DType type, int64_t tokens, int64_t heads) {
    std::normal_distribution<float> normal;
    Tensor tensor(type, {tokens, heads, spec.layers[0].d});
    for (int64_t t = 0; t < tokens; t++) {
      for (int64_t h = 0; h < heads; h++) {
        for (int d = 0; d < spec.layers[0].d; d++) tensor.set(t, h, d, normal(random));
      }
    }
    return tensor;
  }
  kvc_forward begin(kvc_seq of, int32_t tokens, const int32_t *parents = nullptr) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &of, batch.append_lengths = &tokens, batch.num_sequences = 1, batch.tree_parents = parents;
    kvc_forward forward = 0;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &forward, &error), KVC_OK) << error.message;
    return forward;
  }
  void append(kvc_forward forward, const DLTensor *k) {
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = k;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_forward_append(cache.get(), forward, 0, &args, &error), KVC_OK) << error.message;
  }
  void select(kvc_forward forward, const DLTensor *q, const DLTensor *weights, Lists *lists, int rule = 0) {
    kvc_select_args args;
    kvc_select_args_init(&args);
    args.q = q, args.weights = weights, args.indices = lists->dl(), args.rule = rule;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_forward_select(cache.get(), forward, 0, &args, &error), KVC_OK) << error.message;
  }
  void end(kvc_forward forward) { EXPECT_EQ(kvc_forward_end(cache.get(), forward, nullptr), KVC_OK); }
};

// Rows [begin, begin + n) of a tensor.
DLTensor rows_of(const DLTensor *tensor, int64_t begin, int64_t n, int64_t *shape) {
  DLTensor part = *tensor;
  std::copy_n(tensor->shape, tensor->ndim, shape);
  shape[0] = n;
  part.shape = shape;
  part.byte_offset += static_cast<uint64_t>(begin * tensor->strides[0] * tensor->dtype.bits / 8);
  return part;
}

// The same queries, whatever the steps and the threads are. The larger scenes need more scores than fit at once.
TEST(Select, PrefillAtOnceAndInPieces) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kI8}) {
    for (const int rule : {KVC_SELECT_RELU_SUM, KVC_SELECT_EACH_HEAD}) {
      LayerSpec layer{0, 16, 1, 64, 0, type};
      layer.keys_only = true;
      constexpr int64_t kTokens = 900;
      std::vector<int32_t> first;
      for (const auto &[piece, threads] : {std::pair{kTokens, 1}, {kTokens, 4}, {int64_t{64}, 3}, {int64_t{7}, 2}}) {
        Scene scene(layer, 0, threads);
        const DType q_type = type == DType::kBF16 ? type : DType::kF32;
        Tensor q = scene.draw(q_type, kTokens, 16), k = scene.draw(DType::kF32, kTokens, 1);
        Lists all(kTokens, rule == KVC_SELECT_EACH_HEAD ? 16 : 1, 20);
        const int64_t list = all.shape[1] * all.shape[2];
        for (int64_t begin = 0; begin < kTokens; begin += piece) {
          const int64_t n = std::min(piece, kTokens - begin);
          int64_t q_shape[3], k_shape[3];
          const DLTensor of_q = rows_of(q.dl(), begin, n, q_shape), of_k = rows_of(k.dl(), begin, n, k_shape);
          const kvc_forward forward = scene.begin(scene.seq, static_cast<int32_t>(n));
          scene.append(forward, &of_k);
          Lists part(n, all.shape[1], 20);
          scene.select(forward, &of_q, nullptr, &part, rule);
          std::copy(part.entries.begin(), part.entries.end(), all.entries.begin() + begin * list);
          scene.end(forward);
        }
        if (first.empty()) first = all.entries;
        ASSERT_TRUE(first == all.entries) << name_of(type) << " rule " << rule << " pieces of " << piece;
      }
      EXPECT_EQ(first[19], -1);  // the first query sees one token
      EXPECT_NE(first[first.size() - 1], -1);
      EXPECT_NE(std::vector<int32_t>(first.end() - 20, first.end()),
                std::vector<int32_t>(first.end() - 20 * 2, first.end() - 20));
    }
  }
}

// What a query does not see may be NaN: keys before its window, later keys of its step, and other branches of a tree.
TEST(Select, UnseenKeysMayBeNaN) {
  for (const int64_t window : {0, 20}) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      Scene scene(keys_of(0, 1, type), window);
      Tensor k = scene.draw(DType::kF32, 60, 1), q = scene.draw(DType::kF32, 6, kHeads);
      if (window > 0) {
        for (int64_t t = 0; t < 41; t++) k.set(t, 0, 3, NAN);
      }
      kvc_forward forward = scene.begin(scene.seq, 60);
      scene.append(forward, k.dl());
      scene.end(forward);
      Tensor nodes = scene.draw(DType::kF32, 6, 1);
      for (const int64_t bad : {1, 3, 5}) nodes.set(bad, 0, 2, NAN);
      const int32_t parents[] = {-1, 0, 0, 1, 2, 4};  // 0-2-4 sees no NaN
      forward = scene.begin(scene.seq, 6, parents);
      scene.append(forward, nodes.dl());
      Lists lists(6, 1, 64);
      scene.select(forward, q.dl(), nullptr, &lists);
      const int32_t *list = lists.list(4, 0);
      std::vector<int32_t> wanted;
      for (int32_t i = window > 0 ? 43 : 0; i < 60; i++) wanted.push_back(i);  // position 62: 43 to 62
      for (const int32_t node : {60, 62, 64}) wanted.push_back(node);
      wanted.resize(64, -1);
      EXPECT_EQ(std::vector<int32_t>(list, list + 64), wanted);
      Lists few(6, 1, 8), same(6, 1, 8);
      scene.select(forward, q.dl(), nullptr, &few);
      EXPECT_EQ(kvc_forward_abort(scene.cache.get(), forward, nullptr), KVC_OK);
      for (const int64_t bad : {1, 3, 5}) nodes.set(bad, 0, 2, 1e9f);
      forward = scene.begin(scene.seq, 6, parents);
      scene.append(forward, nodes.dl());
      scene.select(forward, q.dl(), nullptr, &same);
      EXPECT_TRUE(std::equal(few.list(4, 0), few.list(4, 0) + 8, same.list(4, 0)));
      EXPECT_FALSE(std::equal(few.list(5, 0), few.list(5, 0) + 8, same.list(5, 0)));  // this one sees a NaN
      EXPECT_EQ(kvc_forward_abort(scene.cache.get(), forward, nullptr), KVC_OK);
    }
  }
}

TEST(Select, NaNInfinityAndZeros) {
  Scene scene(keys_of(0, 1, DType::kF32));
  Tensor k(DType::kF32, {6, 1, kDim}), q(DType::kF32, {6, kHeads, kDim});
  const float values[] = {-1.0f, NAN, -0.0f, INFINITY, 0.0f, -INFINITY};
  for (int64_t t = 0; t < 6; t++) {
    for (int d = 0; d < kDim; d++) k.set(t, 0, d, d == 0 ? values[t] : 0.0f);
    for (int h = 0; h < kHeads; h++) {
      for (int d = 0; d < kDim; d++) q.set(t, h, d, d == 0 ? 1.0f : 0.0f);
    }
  }
  const kvc_forward forward = scene.begin(scene.seq, 6);
  scene.append(forward, k.dl());
  const std::vector<std::vector<int32_t>> highest = {{3}, {2, 3}, {2, 3, 4}, {0, 2, 3, 4}, {0, 2, 3, 4, 5}};
  for (const auto &wanted : highest) {
    Lists lists(6, kHeads, static_cast<int64_t>(wanted.size()));
    scene.select(forward, q.dl(), nullptr, &lists, KVC_SELECT_EACH_HEAD);
    EXPECT_EQ(std::vector<int32_t>(lists.list(5, 2), lists.list(5, 2) + wanted.size()), wanted);
  }
  EXPECT_EQ(kvc_forward_abort(scene.cache.get(), forward, nullptr), KVC_OK);
}

// A step of three tokens in a layer with keys only and in an ordinary one. Nothing is appended yet.
struct SelectRefusals {
  CacheSpec spec = spec_of_layers();
  ContextPtr context = make_context();
  CachePtr owner = make_cache(context.get(), spec);
  kvc_cache *cache = owner.get();
  kvc_seq seq = 0;
  kvc_forward forward = 0;
  std::mt19937 random{1};
  Step step{&random, 3, DType::kF32};
  LayerTensors tensors{spec.layers[0], 3};
  Lists out{3, 1, 4};

  static CacheSpec spec_of_layers() {
    CacheSpec spec;
    spec.page_size = 4;
    spec.max_batch_tokens = 32;
    spec.streaming = true;
    spec.groups = {{0, 20}};
    spec.layers = {keys_of(0, 2, DType::kF32), LayerSpec{0, 2, 1, 8}};
    return spec;
  }
  SelectRefusals() {
    EXPECT_EQ(kvc_seq_add(cache, 1, &seq, nullptr), KVC_OK);
    begin();
  }
  ~SelectRefusals() { EXPECT_EQ(kvc_forward_abort(cache, forward, nullptr), KVC_OK); }
  void begin() {
    const std::vector<kvc_seq> ids = {seq};
    const std::vector<int32_t> lengths = {3};
    const kvc_batch batch = batch_of(ids, lengths, 0);
    EXPECT_EQ(kvc_forward_begin(cache, &batch, nullptr, &forward, nullptr), KVC_OK);
  }
  void append(int32_t layer = 0) {
    LayerTensors rows(spec.layers[static_cast<size_t>(layer)], 3);
    kvc_append_args args = rows.append_args();
    if (layer == 0) args.v = nullptr;
    EXPECT_EQ(kvc_forward_append(cache, forward, layer, &args, nullptr), KVC_OK);
  }
  template <class Change>
  kvc_error refuse(kvc_status status, const std::vector<std::string> &words, Change change, int32_t layer = 0) {
    kvc_select_args args = step.args({}, &out);
    change(&args);
    const auto call = [&](kvc_error *e) { return kvc_forward_select(cache, forward, layer, &args, e); };
    return refused(cache, {status}, "kvc_forward_select", call, words);
  }
};

constexpr auto kSame = [](kvc_select_args *) {};

TEST(Select, RefusesOtherLayersAndWrongOrder) {
  SelectRefusals scene;
  scene.refuse(KVC_ERROR_ORDER, {"layer 0 was not appended"}, kSame);
  const kvc_append_args append = scene.tensors.append_args();
  refused(scene.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_append",
          [&](kvc_error *e) { return kvc_forward_append(scene.cache, scene.forward, 0, &append, e); },
          {"v is given", "keys only"});
  scene.append();
  const kvc_attend_args attend = scene.tensors.attend_args(false);
  refused(scene.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_attend",
          [&](kvc_error *e) { return kvc_forward_attend(scene.cache, scene.forward, 0, &attend, e); },
          {"layer 0 stores keys only", "nothing attends"});
  scene.refuse(KVC_ERROR_INVALID_ARGUMENT, {"layer 1 does not store keys only"}, kSame, 1);
  scene.refuse(KVC_ERROR_OUT_OF_RANGE, {"layer 2"}, kSame, 2);
  kvc_select_args good = scene.step.args({}, &scene.out);
  EXPECT_EQ(kvc_forward_select(scene.cache, scene.forward, 0, &good, nullptr), KVC_OK);
  Lists none(3, 1, 0);
  good.indices = none.dl();
  EXPECT_EQ(kvc_forward_select(scene.cache, scene.forward, 0, &good, nullptr), KVC_OK);
  EXPECT_EQ(kvc_forward_cancel(scene.cache, scene.forward, nullptr), KVC_OK);
  scene.refuse(KVC_ERROR_CANCELLED, {}, kSame);
}

TEST(Select, RefusesTensorsThatDoNotFit) {
  SelectRefusals scene;
  scene.append();
  Lists heads(3, kHeads, 4), candidates(3, 1, 2);
  std::fill(candidates.entries.begin(), candidates.entries.end(), 1);
  const auto refuse = [&](kvc_status status, const std::vector<std::string> &words, auto change) {
    return scene.refuse(status, words, change);
  };
  refuse(KVC_ERROR_INVALID_ARGUMENT, {"weights", "EACH_HEAD"}, [](kvc_select_args *a) { a->rule = 1; });
  refuse(KVC_ERROR_SHAPE, {"indices", "[3, 1, 4]"},
         [](kvc_select_args *a) { a->rule = KVC_SELECT_EACH_HEAD, a->weights = nullptr; });
  refuse(KVC_ERROR_SHAPE, {"indices", "[3, 6, 4]"}, [&](kvc_select_args *a) { a->indices = heads.dl(); });
  refuse(KVC_ERROR_NULL_ARGUMENT, {"indices is NULL"}, [](kvc_select_args *a) { a->indices = nullptr; });
  refuse(KVC_ERROR_NULL_ARGUMENT, {"q is NULL"}, [](kvc_select_args *a) { a->q = nullptr; });
  refuse(KVC_ERROR_SHAPE, {"q has shape"}, [&](kvc_select_args *a) { a->q = scene.tensors.k.dl(); });
  refuse(KVC_ERROR_RANK, {"weights"}, [&](kvc_select_args *a) { a->weights = scene.tensors.k.dl(); });
  refuse(KVC_ERROR_INVALID_ARGUMENT, {"rope_cos_sin"},
         [&](kvc_select_args *a) { a->rope_cos_sin = scene.tensors.k.dl(); });
  candidates.entries[5] = 3;
  const kvc_error beyond = refuse(KVC_ERROR_OUT_OF_RANGE, {"candidates[2, 0, 1] is 3", "query 2 of row 0"},
                                  [&](kvc_select_args *a) { a->candidates = candidates.dl(); });
  EXPECT_EQ(beyond.index, 0);
  std::fill(scene.out.entries.begin(), scene.out.entries.end(), 0);
  refuse(KVC_ERROR_INVALID_ARGUMENT, {"indices", "candidates"}, [](kvc_select_args *a) { a->candidates = a->indices; });
}

TEST(Select, RefusesNumbersOutOfRange) {
  SelectRefusals scene;
  scene.append();
  Lists candidates(3, 1, 2);
  std::fill(candidates.entries.begin(), candidates.entries.end(), 1);
  const auto refuse = [&](kvc_status status, const std::vector<std::string> &words, auto change) {
    scene.refuse(status, words, change);
  };
  refuse(KVC_ERROR_INVALID_ARGUMENT, {"rule 2"}, [](kvc_select_args *a) { a->rule = 2; });
  refuse(KVC_ERROR_INVALID_ARGUMENT, {"rule -1"}, [](kvc_select_args *a) { a->rule = -1; });
  refuse(KVC_ERROR_OUT_OF_RANGE, {"index_block -1"}, [](kvc_select_args *a) { a->index_block = -1; });
  refuse(KVC_ERROR_OUT_OF_RANGE, {"4 blocks of 20000"}, [](kvc_select_args *a) { a->index_block = 20000; });
  refuse(KVC_ERROR_OUT_OF_RANGE, {"first_blocks -1 is not in 0..4"}, [](kvc_select_args *a) { a->first_blocks = -1; });
  refuse(KVC_ERROR_OUT_OF_RANGE, {"first_blocks 5 is not in 0..4"}, [](kvc_select_args *a) { a->first_blocks = 5; });
  refuse(KVC_ERROR_OUT_OF_RANGE, {"last_blocks 2 is not in 0..1"},
         [](kvc_select_args *a) { a->first_blocks = 3, a->last_blocks = 2; });
  refuse(KVC_ERROR_INVALID_ARGUMENT, {"candidate_block is 3", "candidates is NULL"},
         [](kvc_select_args *a) { a->candidate_block = 3; });
  refuse(KVC_ERROR_OUT_OF_RANGE, {"candidate_block -3"},
         [&](kvc_select_args *a) { a->candidates = candidates.dl(), a->candidate_block = -3; });
}

TEST(Select, RefusesStreams) {
  SelectRefusals scene;
  for (const int32_t layer : {0, 1}) scene.append(layer);
  ASSERT_EQ(kvc_forward_end(scene.cache, scene.forward, nullptr), KVC_OK);
  const int64_t sinks = 1, window = 4;
  ASSERT_EQ(kvc_seq_set_streaming(scene.cache, 1, &scene.seq, &sinks, &window, 0, nullptr), KVC_OK);
  scene.begin();
  scene.append();
  const kvc_error error = scene.refuse(KVC_ERROR_UNSUPPORTED, {"row 0", "streaming window of 4"}, kSame);
  EXPECT_EQ(error.index, 0);
}

// The library rotates q as it rotated k: a query is closest to the key of its own position.
TEST(Select, RotatesQueries) {
  for (const bool given : {false, true}) {
    LayerSpec layer{0, 2, 1, 8, 0, DType::kF32, KVC_ROPE_ON_APPEND};
    layer.keys_only = true;
    Scene scene(layer);
    Tensor k(DType::kF32, {20, 1, 8}), q(DType::kF32, {20, 2, 8}), table(DType::kF32, {20, 2, 4});
    for (int64_t t = 0; t < 20; t++) {
      for (int d = 0; d < 8; d++) k.set(t, 0, d, 1.0f), q.set(t, 0, d, 1.0f), q.set(t, 1, d, -1.0f);
      for (int i = 0; i < 4; i++) {
        const double angle = static_cast<double>(t) / 9 * (i + 1);
        table.set(t, 0, i, static_cast<float>(std::cos(angle))),
            table.set(t, 1, i, static_cast<float>(std::sin(angle)));
      }
    }
    const kvc_forward forward = scene.begin(scene.seq, 20);
    kvc_append_args append;
    kvc_append_args_init(&append);
    append.k = k.dl(), append.rope_cos_sin = given ? table.dl() : nullptr;
    ASSERT_EQ(kvc_forward_append(scene.cache.get(), forward, 0, &append, nullptr), KVC_OK);
    Lists lists(20, 2, 1);
    kvc_select_args args;
    kvc_select_args_init(&args);
    args.q = q.dl(), args.indices = lists.dl(), args.rule = KVC_SELECT_EACH_HEAD;
    args.rope_cos_sin = append.rope_cos_sin;
    ASSERT_EQ(kvc_forward_select(scene.cache.get(), forward, 0, &args, nullptr), KVC_OK);
    for (int32_t t = 0; t < 20; t++) EXPECT_EQ(*lists.list(t, 0), t);
    EXPECT_LT(*lists.list(19, 1), 19);
    EXPECT_EQ(kvc_forward_abort(scene.cache.get(), forward, nullptr), KVC_OK);
  }
}

// What a cache refuses when it is created, with the layer.
TEST(Select, ConfigsOfKeysOnly) {
  const ContextPtr context = make_context();
  const auto refuse = [&](const std::string &word, auto change) {
    CacheSpec spec;
    spec.capacity_tokens = 64;
    spec.layers = {LayerSpec{}, keys_of(0, 1, DType::kF32)};
    change(&spec);
    BuiltConfig built(spec);
    if (word == "v_scales") built.layers[1].v_scales = built.layers[1].k_scales;
    kvc_cache *cache = nullptr;
    const kvc_error error = refused(
        nullptr, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_cache_create",
        [&](kvc_error *e) { return kvc_cache_create(context.get(), &built.config, &cache, e); }, {"layer 1", word});
    EXPECT_EQ(error.index, 1);
  };
  refuse("v_head_dim 8", [](CacheSpec *s) { s->layers[1].dv = 8; });
  refuse("latent_dim 4",
         [](CacheSpec *s) { s->layers[1].latent = 4, s->layers[1].group = 1, s->groups.push_back({}); });
  refuse("kv_layer 1", [](CacheSpec *s) { s->layers[1].kv_layer = 0; });
  refuse("rope_mode 2", [](CacheSpec *s) { s->layers[1].rope = KVC_ROPE_ON_READ; });
  refuse("cross group 1", [](CacheSpec *s) {
    s->groups.push_back({});
    s->groups[1].cross = true;
    s->layers[1].group = 1;
  });
  refuse("v_scales", [](CacheSpec *s) { s->layers[1].dtype = DType::kE4M3, s->layers[1].num_scales = 1; });
}

}  // namespace
}  // namespace kvt
