// Attention over lists of keys: against dense float64 over the listed keys, what may differ between equal lists, and
// what is refused.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "fixture.h"

namespace kvt {
namespace {

// int32 [tokens, heads, entries].
struct Lists {
  int64_t shape[3];
  std::vector<int32_t> entries;
  DLTensor tensor;
  Lists(int64_t tokens, int64_t heads, int64_t n, int32_t value = -1)
      : shape{tokens, heads, n}, entries(static_cast<size_t>(tokens * heads * n), value) {}
  int32_t &at(int64_t token, int64_t head, int64_t i) {
    return entries[static_cast<size_t>((token * shape[1] + head) * shape[2] + i)];
  }
  const DLTensor *dl() {
    tensor = {entries.data(), test_device(), 3, {kDLInt, 32, 1}, shape, nullptr, 0};
    return &tensor;
  }
  // The keys that a list names.
  std::set<int64_t> keys(int64_t token, int64_t head, int64_t block) {
    std::set<int64_t> set;
    for (int64_t i = 0; i < shape[2]; i++) {
      const int64_t unit = at(token, shape[1] == 1 ? 0 : head, i);
      for (int64_t j = 0; unit >= 0 && j < block; j++) set.insert(unit * block + j);
    }
    return set;
  }
};

// A sequence of `past` tokens and a forward of `tokens` more. Keys and values of positions in `poison` are NaN.
struct Scene {
  World world;
  LayerSpec layer;
  int64_t past, tokens;
  std::mt19937 random{11};
  LayerTensors before, step;
  kvc_forward forward = 0;

  static CacheSpec spec_of(const LayerSpec &layer, int64_t capacity) {
    CacheSpec spec;
    spec.page_size = 16;
    spec.max_sequences = 3;
    spec.max_batch_tokens = static_cast<int32_t>(capacity);
    spec.groups = {{0, capacity / 16 + 4}};
    spec.layers = {layer};
    return spec;
  }
  Scene(const LayerSpec &l, int64_t p, int64_t n, int threads = 1, const std::set<int64_t> &poison = {})
      : world(spec_of(l, p + n + 16), threads, 0), layer(l), past(p), tokens(n), before(l, p), step(l, n) {
    fill(&before, 0, poison);
    fill(&step, past, poison);
    const kvc_forward first = world.begin({world.seq}, {static_cast<int32_t>(past)});
    const kvc_attend_args args = args_of(&before);
    EXPECT_EQ(kvc_forward_attend(world.cache, first, 0, &args, nullptr), KVC_OK);
    EXPECT_EQ(kvc_forward_end(world.cache, first, nullptr), KVC_OK);
    forward = world.begin({world.seq}, {static_cast<int32_t>(tokens)});
  }
  kvc_attend_args args_of(LayerTensors *t) const {
    kvc_attend_args args = t->attend_args();
    if (layer.latent > 0) args.v = nullptr;
    return args;
  }
  void fill(LayerTensors *t, int64_t first, const std::set<int64_t> &poison) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < t->k.dim(0); i++) {
      const bool bad = poison.count(first + i) > 0;
      for (int h = 0; h < layer.hq; h++) {
        for (int d = 0; d < layer.d; d++) t->q.set(i, h, d, normal(random));
      }
      for (int h = 0; h < layer.hkv; h++) {
        for (int d = 0; d < layer.d; d++) t->k.set(i, h, d, bad ? NAN : round_to(layer.dtype, normal(random)));
        for (int d = 0; d < layer.v_dim(); d++) t->v.set(i, h, d, bad ? NAN : round_to(layer.dtype, normal(random)));
      }
    }
  }
  // Attends once, and takes the step back, so that it can be attended again.
  kvc_status attend(const kvc_attend_args &args, kvc_error *error = nullptr) {
    const kvc_status status = kvc_forward_attend(world.cache, forward, 0, &args, error);
    EXPECT_EQ(kvc_forward_abort(world.cache, forward, nullptr), KVC_OK);
    forward = world.begin({world.seq}, {static_cast<int32_t>(tokens)});
    return status;
  }
  kvc_attend_args listed(Lists *lists, int32_t block = 1) {
    kvc_attend_args args = args_of(&step);
    args.indices = lists->dl();
    args.index_block = block;
    return args;
  }
  void check(Lists *lists, int32_t block, double tolerance = 2e-5) {
    for (int64_t t = 0; t < tokens; t++) {
      for (int h = 0; h < layer.hq; h++) check_row(lists, block, t, h, tolerance);
    }
  }
  void check_row(Lists *lists, int32_t block, int64_t t, int h, double tolerance) {
    const int kv = h / (layer.hq / layer.hkv);
    double sum = 0;
    std::vector<double> out(static_cast<size_t>(layer.v_dim()), 0.0);
    for (const int64_t key : lists->keys(t, kv, block)) {
      if (key > past + t) continue;
      LayerTensors &from = key < past ? before : step;
      const int64_t i = key < past ? key : key - past;
      double s = 0;
      for (int d = 0; d < layer.d; d++) s += double{step.q.at(t, h, d)} * double{from.k.at(i, kv, d)};
      const double p = std::exp(s * layer.softmax_scale());
      sum += p;
      for (int d = 0; d < layer.v_dim(); d++) {
        out[static_cast<size_t>(d)] += p * double{layer.latent > 0 ? from.k.at(i, kv, d) : from.v.at(i, kv, d)};
      }
    }
    for (int d = 0; d < layer.v_dim(); d++) {
      ASSERT_NEAR(step.out.at(t, h, d), sum > 0 ? out[static_cast<size_t>(d)] / sum : 0.0, tolerance)
          << "token " << t << " head " << h;
    }
    if (sum > 0) {
      ASSERT_NEAR(step.lse.at(t, h), std::log(sum), tolerance) << "token " << t << " head " << h;
    } else {
      ASSERT_EQ(step.lse.at(t, h), -INFINITY);
    }
  }
};

LayerSpec gqa(DType type = DType::kF32) { return LayerSpec{0, 6, 2, 32, 24, type}; }
LayerSpec mla() {
  LayerSpec layer{0, 12, 1, 48, 0};
  layer.latent = 40;
  layer.scale = 0.14;
  return layer;
}

// Lists of `n` units that are drawn from those of [0, length) for which `takes`.
template <class Takes>
Lists draw(std::mt19937 *random, int64_t tokens, int64_t heads, int64_t n, int64_t units, Takes takes) {
  Lists lists(tokens, heads, n);
  for (int32_t &entry : lists.entries) {
    do
      entry = static_cast<int32_t>((*random)() % static_cast<uint64_t>(units + units / 8)) -
              static_cast<int32_t>(units / 8);
    while (entry >= 0 && !takes(entry));
  }
  return lists;
}

// NaN in every key that no list names changes nothing: they are not read. From decode to prefill, with and without
// splits.
TEST(Lists, KeysThatAreNotListedAreNotRead) {
  for (const LayerSpec &layer : {gqa(), gqa(DType::kBF16), mla()}) {
    for (int64_t tokens : {1, 30}) {
      for (int64_t block : {1, 8}) {
        for (int threads : {1, 4}) {
          for (int64_t heads : {1, layer.hkv}) {
            SCOPED_TRACE(std::to_string(layer.latent) + " tokens " + std::to_string(tokens) + " block " +
                         std::to_string(block) + " threads " + std::to_string(threads));
            std::set<int64_t> poison;
            for (int64_t unit = 0; unit * block < 300; unit += 3) {
              for (int64_t j = 0; j < block && unit * block + j < 300; j++) poison.insert(unit * block + j);
            }
            Scene scene(layer, 300, tokens, threads, poison);
            Lists lists = draw(&scene.random, tokens, heads, 200 / block, (300 + tokens + block - 1) / block,
                               [&](int32_t unit) { return poison.count(unit * block) == 0; });
            const kvc_attend_args args = scene.listed(&lists, static_cast<int32_t>(block));
            kvc_error error = KVC_ERROR_INIT;
            ASSERT_EQ(kvc_forward_attend(scene.world.cache, scene.forward, 0, &args, &error), KVC_OK) << error.message;
            // A weight may be rounded to bf16 where V is.
            scene.check(&lists, static_cast<int32_t>(block), layer.dtype == DType::kBF16 ? 1e-2 : 2e-5);
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

// Long lists are split among threads, and merged.
TEST(Lists, LongListsInManyThreads) {
  Scene scene(gqa(), 12000, 1, 5);
  std::vector<int32_t> all(12001);
  for (size_t i = 0; i < all.size(); i++) all[i] = static_cast<int32_t>(i);
  std::shuffle(all.begin(), all.end(), scene.random);
  Lists lists(1, 1, 9000);
  std::copy_n(all.begin(), 9000, lists.entries.begin());
  const kvc_attend_args args = scene.listed(&lists);
  ASSERT_EQ(kvc_forward_attend(scene.world.cache, scene.forward, 0, &args, nullptr), KVC_OK);
  scene.check(&lists, 1);
}

// A list is a set: bits do not depend on order, repetitions, padding, or on the unit in which the same keys are named.
TEST(Lists, EqualSetsGiveEqualBits) {
  for (const LayerSpec &layer : {gqa(), mla()}) {
    for (int threads : {1, 3}) {
      Scene scene(layer, 400, 6, threads);
      const int64_t heads = layer.hkv;
      Lists blocks(6, heads, 40), tokens(6, heads, 400);
      for (int64_t t = 0; t < 6; t++) {
        for (int64_t h = 0; h < heads; h++) {
          std::vector<int32_t> units;
          for (int32_t unit = 0; unit < 50; unit++) {
            if (scene.random() % 2) units.push_back(unit);
          }
          units.resize(std::min<size_t>(units.size(), 35));
          for (size_t i = 0; i < units.size(); i++) {
            blocks.at(t, h, static_cast<int64_t>(i)) = units[i];
            for (int64_t j = 0; j < 8; j++)
              tokens.at(t, h, static_cast<int64_t>(i) * 8 + j) = units[i] * 8 + static_cast<int32_t>(j);
          }
        }
      }
      const auto bits = [&](Lists *lists, int32_t block) {
        const kvc_attend_args args = scene.listed(lists, block);
        EXPECT_EQ(scene.attend(args), KVC_OK);
        std::vector<uint8_t> bytes = scene.step.out.bytes();
        bytes.insert(bytes.end(), scene.step.lse.bytes().begin(), scene.step.lse.bytes().end());
        return bytes;
      };
      const std::vector<uint8_t> first = bits(&tokens, 1);
      scene.check(&tokens, 1);
      for (int64_t list = 0; list < 6 * heads; list++) {  // the places after the padding get repetitions
        int32_t *entries = tokens.entries.data() + list * 400;
        for (int i = 300; i < 350; i++) entries[i] = entries[scene.random() % 200];
        std::shuffle(entries, entries + 400, scene.random);
      }
      EXPECT_TRUE(first == bits(&tokens, 1));
      blocks.at(0, 0, 39) = blocks.at(0, 0, 0);
      blocks.at(0, 0, 38) = INT32_MIN;
      if (threads == 1) {  // more places can be cut in another way
        EXPECT_TRUE(first == bits(&blocks, 8));
      }
      blocks.at(0, 0, 0) = blocks.at(0, 0, 39) = -1;  // and the test can fail
      EXPECT_FALSE(first == bits(&blocks, 8));
    }
  }
}

// Up-projections: a list of all keys gives what no list gives, though the rows are not decompressed.
TEST(Lists, ProjectedHeads) {
  const LayerSpec layer = mla();
  constexpr int kNope = 12, kOut = 10;
  Scene scene(layer, 40, 70);
  Tensor q(DType::kF32, {70, layer.hq, kNope + 8}), out(DType::kF32, {70, layer.hq, kOut});
  Tensor w_uk(DType::kF32, {layer.hq, kNope, layer.latent}), w_uv(DType::kF32, {layer.hq, kOut, layer.latent});
  std::normal_distribution<float> normal;
  const auto fill = [&](Tensor *tensor) {
    for (int64_t a = 0; a < tensor->dim(0); a++) {
      for (int64_t b = 0; b < tensor->dim(1); b++) {
        for (int64_t c = 0; c < tensor->dim(2); c++) tensor->set(a, b, c, normal(scene.random) / 4);
      }
    }
  };
  for (Tensor *tensor : {&q, &w_uk, &w_uv}) fill(tensor);
  Lists lists(70, 1, 110);
  for (int64_t t = 0; t < 70; t++) {
    for (int32_t i = 0; i < 110; i++) lists.at(t, 0, i) = i;
  }
  kvc_attend_args args = scene.args_of(&scene.step);
  args.q = q.dl();
  args.out = out.dl();
  args.w_uk = w_uk.dl();
  args.w_uv = w_uv.dl();
  ASSERT_EQ(scene.attend(args), KVC_OK);
  const Tensor dense = out;
  args.indices = lists.dl();
  ASSERT_EQ(scene.attend(args), KVC_OK);
  double largest = 0;
  for (int64_t t = 0; t < 70; t++) {
    for (int h = 0; h < layer.hq; h++) {
      for (int d = 0; d < kOut; d++) {
        ASSERT_NEAR(out.at(t, h, d), dense.at(t, h, d), 2e-5);
        largest = std::max(largest, std::fabs(double{dense.at(t, h, d)}));
      }
    }
  }
  EXPECT_GT(largest, 0.05);
  std::fill_n(lists.entries.begin(), 110, -1);  // of the first query
  ASSERT_EQ(scene.attend(args), KVC_OK);
  for (int d = 0; d < kOut; d++) EXPECT_EQ(out.at(0, 0, d), 0.0f);
}

// Layers of one work class with and without lists, in one step: each has its own cut.
TEST(Lists, NextToLayersWithoutLists) {
  CacheSpec spec = Scene::spec_of(gqa(), 3000);
  spec.layers = {gqa(), gqa(), gqa()};
  World world(spec, 4, 2900);
  LayerTensors tensors(gqa(), 1);
  const kvc_forward forward = world.begin({world.seq}, {1});
  std::vector<float> sums;
  for (int32_t layer = 0; layer < 3; layer++) {
    Lists lists(1, 1, 1, 7);
    kvc_attend_args args = tensors.attend_args();
    if (layer == 1) args.indices = lists.dl();
    ASSERT_EQ(kvc_forward_attend(world.cache, forward, layer, &args, nullptr), KVC_OK);
    sums.push_back(tensors.lse.at(0, 0));
  }
  EXPECT_EQ(sums[0], sums[2]);
  EXPECT_LT(sums[1], sums[0] - 5);  // of one key, not of 2,901
}

TEST(Lists, EmptyLists) {
  Scene scene(gqa(), 30, 3);
  Tensor sinks(DType::kF32, {6});
  for (int h = 0; h < 6; h++) store(DType::kF32, sinks.data(), h, static_cast<float>(h));
  Lists none(3, 2, 0), padding(3, 1, 5), later(3, 1, 2, 32);
  for (Lists *lists : {&none, &padding, &later}) {
    kvc_attend_args args = scene.listed(lists);
    ASSERT_EQ(scene.attend(args), KVC_OK);
    scene.check(lists, 1);
    args.sinks = sinks.dl();
    ASSERT_EQ(scene.attend(args), KVC_OK);
    EXPECT_EQ(scene.step.out.at(0, 5, 0), 0.0f);
    EXPECT_EQ(scene.step.lse.at(1, 5), lists == &later ? 5.0f : 5.0f);
  }
}

TEST(Lists, RefusesWhatMakesNoSense) {
  Scene scene(gqa(), 30, 3);
  kvc_cache *cache = scene.world.cache;
  const auto refuse = [&](kvc_status status, const std::vector<std::string> &words, const kvc_attend_args &args) {
    return refused(
        cache, {status}, "kvc_forward_attend",
        [&](kvc_error *e) { return kvc_forward_attend(cache, scene.forward, 0, &args, e); }, words);
  };
  Lists good(3, 2, 4, 3);
  {
    Lists lists = good;
    lists.at(2, 1, 3) = 33;
    const kvc_error error =
        refuse(KVC_ERROR_OUT_OF_RANGE, {"indices[2, 1, 3]", "33", "query 2", "row 0"}, scene.listed(&lists));
    EXPECT_EQ(error.index, 0);
    lists.at(2, 1, 3) = INT32_MAX;
    refuse(KVC_ERROR_OUT_OF_RANGE, {"indices[2, 1, 3]", "2147483647"}, scene.listed(&lists));
    lists.at(2, 1, 2) = 34;
    refuse(KVC_ERROR_OUT_OF_RANGE, {"indices[2, 1, 2] is 34"}, scene.listed(&lists));  // of two, the first
    lists.at(2, 1, 2) = 7;
    lists.at(2, 1, 3) = 8;  // 33 tokens are 9 blocks of 4
    lists.at(0, 0, 0) = 9;
    refuse(KVC_ERROR_OUT_OF_RANGE, {"indices[0, 0, 0]", "is 9", "9 blocks of 4"}, scene.listed(&lists, 4));
  }
  for (const int32_t block : {-1, KVC_MAX_LISTED_KEYS + 1, INT32_MAX, INT32_MIN}) {
    refuse(KVC_ERROR_OUT_OF_RANGE, {"index_block " + std::to_string(block)}, scene.listed(&good, block));
  }
  refuse(KVC_ERROR_OUT_OF_RANGE, {"4 blocks of 20000", "65536"}, scene.listed(&good, 20000));
  Lists longest(3, 1, KVC_MAX_LISTED_KEYS), longer(3, 1, KVC_MAX_LISTED_KEYS + 1);
  refuse(KVC_ERROR_OUT_OF_RANGE, {"65537 blocks of 1"}, scene.listed(&longer));
  refuse(KVC_ERROR_OUT_OF_RANGE, {"65536 blocks of 2"}, scene.listed(&longest, 2));
  kvc_attend_args alone = scene.args_of(&scene.step);
  alone.index_block = 4;
  refuse(KVC_ERROR_INVALID_ARGUMENT, {"index_block is 4", "indices is NULL"}, alone);

  const int64_t odd_strides[] = {16, 8, 2}, two[] = {2, 2, 4}, three_heads[] = {3, 3, 4}, flat[] = {3, 8};
  const auto spoil = [&](kvc_status status, const std::vector<std::string> &words, auto change) {
    DLTensor tensor = *good.dl();
    change(&tensor);
    kvc_attend_args args = scene.listed(&good);
    args.indices = &tensor;
    refuse(status, words, args);
  };
  spoil(KVC_ERROR_DTYPE, {"indices", "int64", "int32"}, [](DLTensor *t) { t->dtype = {kDLInt, 64, 1}; });
  spoil(KVC_ERROR_DTYPE, {"indices", "int32"}, [](DLTensor *t) { t->dtype = {kDLUInt, 32, 1}; });
  spoil(KVC_ERROR_SHAPE, {"indices"}, [&](DLTensor *t) { t->shape = const_cast<int64_t *>(two); });
  spoil(KVC_ERROR_SHAPE, {"3 heads", "1 or 2"}, [&](DLTensor *t) { t->shape = const_cast<int64_t *>(three_heads); });
  spoil(KVC_ERROR_RANK, {"indices"}, [&](DLTensor *t) { t->ndim = 2, t->shape = const_cast<int64_t *>(flat); });
  spoil(KVC_ERROR_STRIDE, {"indices"}, [&](DLTensor *t) { t->strides = const_cast<int64_t *>(odd_strides); });
  spoil(KVC_ERROR_STRIDE, {"indices"}, [](DLTensor *t) { t->byte_offset = 2; });
  spoil(KVC_ERROR_DEVICE, {"indices"}, [](DLTensor *t) { t->device.device_type = kDLCUDA; });
  spoil(KVC_ERROR_NULL_ARGUMENT, {"indices"}, [](DLTensor *t) { t->data = nullptr; });
  spoil(KVC_ERROR_INVALID_ARGUMENT, {"indices"}, [&](DLTensor *t) { t->data = scene.step.out.bytes().data(); });

  // Nothing was stored, and the good call still works; so does the longest list.
  const kvc_attend_args args = scene.listed(&longest);
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(scene.attend(args, &error), KVC_OK) << error.message;
  ASSERT_EQ(scene.attend(scene.listed(&good)), KVC_OK);
  scene.check(&good, 1);
}

TEST(Lists, EntriesOfInertRowsAndLaterRowsAreNotRead) {
  Scene scene(gqa(), 30, 3);
  ASSERT_EQ(kvc_forward_abort(scene.world.cache, scene.forward, nullptr), KVC_OK);
  kvc_batch batch;
  kvc_batch_init(&batch);
  const kvc_seq ids[] = {0, scene.world.seq};
  const int32_t lengths[] = {1, 2};
  batch.sequences = ids;
  batch.append_lengths = lengths;
  batch.num_sequences = 2;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_forward_begin(scene.world.cache, &batch, nullptr, &scene.forward, &error), KVC_OK) << error.message;
  Lists lists(5, 1, 2, INT32_MAX);
  for (int64_t t : {1, 2}) lists.at(t, 0, 0) = 4, lists.at(t, 0, 1) = -1;
  LayerTensors tensors(gqa(), 5);
  kvc_attend_args args = tensors.attend_args();
  args.indices = lists.dl();
  ASSERT_EQ(kvc_forward_attend(scene.world.cache, scene.forward, 0, &args, &error), KVC_OK) << error.message;
  EXPECT_TRUE(std::isfinite(tensors.lse.at(2, 0)));
}

}  // namespace
}  // namespace kvt
