// Biases and masks of attend: against dense float64, against lists of the same keys, and what is refused.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "fixture.h"

namespace kvt {
namespace {

constexpr int kHq = 6, kHkv = 2, kD = 16, kKeys = 64;

CacheSpec one_layer(uint32_t flags = 0) {
  CacheSpec spec;
  spec.page_size = 4;
  spec.max_sequences = 4;
  spec.max_batch_tokens = 64;
  spec.groups = {{0, 64}};
  spec.flags = flags;
  spec.layers = {LayerSpec{0, kHq, kHkv, kD}};
  return spec;
}

// uint8 [tokens, heads, kKeys].
struct Mask {
  std::vector<uint8_t> bits;
  int64_t shape[3];
  DLTensor tensor;
  Mask(int64_t tokens, int64_t heads)
      : bits(static_cast<size_t>(tokens * heads * kKeys), 1), shape{tokens, heads, kKeys}, tensor{} {}
  uint8_t &at(int64_t token, int64_t head, int64_t key) {
    return bits[static_cast<size_t>((token * shape[1] + head) * kKeys + key)];
  }
  const DLTensor *dl() {
    tensor = {bits.data(), test_device(), 3, {kDLUInt, 8, 1}, shape, nullptr, 0};
    return &tensor;
  }
};

// Numbers of all tokens of one sequence, and steps over parts of them.
struct Text {
  LayerTensors all;
  std::mt19937 random{17};
  explicit Text(int64_t tokens) : all(one_layer().layers[0], tokens) {
    for (Tensor *tensor : {&all.q, &all.k, &all.v}) fill(tensor);
  }
  void fill(Tensor *tensor) {
    std::normal_distribution<float> normal;
    for (int64_t a = 0; a < tensor->dim(0); a++) {
      for (int64_t b = 0; b < tensor->dim(1); b++) {
        for (int64_t c = 0; c < tensor->dim(2); c++) tensor->set(a, b, c, normal(random));
      }
    }
  }
  LayerTensors part(int64_t begin, int64_t end) const {
    LayerTensors part(one_layer().layers[0], end - begin);
    const auto copy = [&](const Tensor &from, Tensor *to) {
      for (int64_t a = begin; a < end; a++) {
        for (int64_t b = 0; b < from.dim(1); b++) {
          for (int64_t c = 0; c < from.dim(2); c++) to->set(a - begin, b, c, from.at(a, b, c));
        }
      }
    };
    copy(all.q, &part.q), copy(all.k, &part.k), copy(all.v, &part.v);
    return part;
  }
};

// out [tokens][hq][d] of a text that is attended in steps of these lengths. set: the options of the step that begins at
// a token.
std::vector<float> outputs(const Text &text, const std::vector<int32_t> &steps,
                           const std::function<void(kvc_attend_args *, int64_t)> &set) {
  World world(one_layer(), 2, 0);
  std::vector<float> all;
  int64_t begin = 0;
  for (const int32_t tokens : steps) {
    LayerTensors part = text.part(begin, begin + tokens);
    const kvc_forward forward = world.begin({world.seq}, {tokens});
    kvc_attend_args args = part.attend_args();
    set(&args, begin);
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_forward_attend(world.cache, forward, 0, &args, &error), KVC_OK) << error.message;
    EXPECT_EQ(kvc_forward_end(world.cache, forward, nullptr), KVC_OK);
    for (int64_t t = 0; t < tokens; t++) {
      for (int h = 0; h < kHq; h++) {
        for (int d = 0; d < kD; d++) all.push_back(part.out.at(t, h, d));
      }
    }
    begin += tokens;
  }
  return all;
}

void expect_near(const std::vector<float> &a, const std::vector<float> &b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); i++) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

// T5: one table of buckets for all queries, whose last entry holds for all greater distances. Prompts and single steps
// agree with dense float64.
TEST(Biases, RelativeBiasOfT5) {
  constexpr int64_t kTokens = 40, kDistances = 13;
  const Text text(kTokens);
  Tensor table(DType::kF32, {kHq, kDistances});
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int h = 0; h < kHq; h++) {
    for (int d = 0; d < kDistances; d++) table.set(h, d, normal(random));
  }
  for (const uint32_t flags : {0u, uint32_t{KVC_ATTEND_REL_BIAS_ZERO}}) {
    const auto set = [&](kvc_attend_args *args, int64_t) {
      args->rel_bias = table.dl();
      args->softmax_scale = 1.0;
      args->flags = flags;
    };
    std::vector<float> expected;
    for (int64_t t = 0; t < kTokens; t++) {
      for (int h = 0; h < kHq; h++) {
        double sum = 0, out[kD] = {};
        for (int64_t j = 0; j <= t; j++) {
          double s = 0;
          for (int d = 0; d < kD; d++) s += double{text.all.q.at(t, h, d)} * double{text.all.k.at(j, h / 3, d)};
          if (t - j < kDistances || flags == 0) s += double{table.at(h, std::min(t - j, kDistances - 1))};
          sum += std::exp(s);
          for (int d = 0; d < kD; d++) out[d] += std::exp(s) * double{text.all.v.at(j, h / 3, d)};
        }
        for (int d = 0; d < kD; d++) expected.push_back(static_cast<float>(out[d] / sum));
      }
    }
    expect_near(outputs(text, {40}, set), expected, 3e-5f);
    expect_near(outputs(text, {25, 1, 1, 5, 8}, set), expected, 3e-5f);
  }
}

// A mask and lists of the same keys give the same result; so do a mask and a key bias of -infinity.
TEST(Biases, MasksAreListsOfKeys) {
  constexpr int64_t kTokens = 33;
  const Text text(kTokens);
  Mask mask(kTokens, kHkv);
  std::mt19937 random(5);
  for (uint8_t &bit : mask.bits) bit = random() % 3 == 0 ? 0 : 200;
  const auto rows_from = [](DLTensor tensor, int64_t begin, int64_t *shape, int64_t row_bytes) {
    std::copy_n(tensor.shape, tensor.ndim, shape);
    shape[0] -= begin;
    tensor.shape = shape;
    tensor.byte_offset = static_cast<uint64_t>(begin * row_bytes);
    return tensor;
  };
  int64_t shape[3];
  DLTensor tensor;
  const auto masked = [&](kvc_attend_args *args, int64_t begin) {
    tensor = rows_from(*mask.dl(), begin, shape, kHkv * kKeys);
    args->mask = &tensor;
  };
  std::vector<int32_t> lists;
  for (int64_t row = 0; row < kTokens * kHkv; row++) {
    for (int32_t key = 0; key < kKeys; key++) {
      const bool held = key < kTokens && mask.bits[static_cast<size_t>(row * kKeys + key)] != 0;
      lists.push_back(held && key <= row / kHkv ? key : -1);
    }
  }
  const int64_t list_shape[3] = {kTokens, kHkv, kKeys};
  const DLTensor list = {
      lists.data(), test_device(), 3, {kDLInt, 32, 1}, const_cast<int64_t *>(list_shape), nullptr, 0};
  const auto listed = [&](kvc_attend_args *args, int64_t begin) {
    tensor = rows_from(list, begin, shape, kHkv * kKeys * 4);
    args->indices = &tensor;
  };
  const std::vector<int32_t> steps = {20, 1, 3, 1, 8};
  expect_near(outputs(text, steps, masked), outputs(text, steps, listed), 3e-5f);
  expect_near(outputs(text, steps, masked), outputs(text, {33}, masked), 3e-5f);

  Mask of_keys(kTokens, 1);
  Tensor bias(DType::kF32, {1, kKeys, 1});
  for (int key = 0; key < kKeys; key++) {
    const bool hidden = key % 3 == 1;
    bias.set(0, key, 0, hidden ? -INFINITY : 0.0f);
    for (int64_t t = 0; t < kTokens; t++) of_keys.at(t, 0, key) = hidden ? 0 : 1;
  }
  const auto by_mask = [&](kvc_attend_args *args, int64_t) { args->mask = of_keys.dl(); };
  const auto by_bias = [&](kvc_attend_args *args, int64_t) { args->key_bias = bias.dl(); };
  expect_near(outputs(text, steps, by_mask), outputs(text, steps, by_bias), 3e-5f);
}

// With NON_CAUSAL, a mask alone says what a query sees: here only the keys after it.
TEST(Biases, MasksReplaceCausality) {
  constexpr int64_t kTokens = 20;
  const Text text(kTokens);
  Mask mask(kTokens, 1);
  for (int64_t t = 0; t < kTokens; t++) {
    for (int64_t key = 0; key < kKeys; key++) mask.at(t, 0, key) = key > t ? 1 : 0;
  }
  const std::vector<float> got = outputs(text, {20}, [&](kvc_attend_args *args, int64_t) {
    args->mask = mask.dl();
    args->flags = KVC_ATTEND_NON_CAUSAL;
  });
  for (int h = 0; h < kHq; h++) {
    for (int d = 0; d < kD; d++) {
      const size_t element = static_cast<size_t>(h * kD + d), row = kHq * kD;
      EXPECT_EQ(got[(kTokens - 1) * row + element], 0.0f);  // it sees nothing
      EXPECT_NEAR(got[(kTokens - 2) * row + element], text.all.v.at(kTokens - 1, h / 3, d), 1e-6f);
    }
  }
}

struct Refusals {
  World world;
  LayerTensors tensors;
  kvc_forward forward;

  // Two sequences of 20 tokens get 3 and 2 more.
  Refusals() : world(one_layer(), 1, 20), tensors(one_layer().layers[0], 5) {
    forward = world.begin({world.seq, world.forked}, {3, 2});
  }
  kvc_error refuse(const Statuses &statuses, const std::vector<std::string> &words,
                   const std::function<void(kvc_attend_args *)> &change) {
    kvc_attend_args args = tensors.attend_args();
    change(&args);
    return refused(
        world.cache, statuses, "kvc_forward_attend",
        [&](kvc_error *e) { return kvc_forward_attend(world.cache, forward, 0, &args, e); }, words);
  }
  kvc_error rel(Tensor bias, kvc_status status, const std::vector<std::string> &words) {
    return refuse({status}, words, [&](kvc_attend_args *a) { a->rel_bias = bias.dl(); });
  }
  kvc_error key(Tensor bias, kvc_status status, const std::vector<std::string> &words) {
    return refuse({status}, words, [&](kvc_attend_args *a) { a->key_bias = bias.dl(); });
  }
};

constexpr DType f32 = DType::kF32, f16 = DType::kF16;

TEST(Biases, RefusesWrongTensors) {
  Refusals r;
  r.rel({f16, {kHq, 4}}, KVC_ERROR_DTYPE, {"rel_bias", "float32"});
  r.rel({f32, {4}}, KVC_ERROR_RANK, {"rel_bias"});
  r.rel({f32, {kHq + 1, 4}}, KVC_ERROR_SHAPE, {"rel_bias has 7 heads, not 6"});
  r.rel({f32, {kHq - 1, 4}}, KVC_ERROR_SHAPE, {"rel_bias"});
  r.rel({f32, {4, kHq, 4}}, KVC_ERROR_SHAPE, {"rel_bias", "[4, 6, 4]"});
  r.rel({f32, {5, kHq + 1, 4}}, KVC_ERROR_SHAPE, {"rel_bias"});
  r.rel({f32, {kHq, 0}}, KVC_ERROR_SHAPE, {"rel_bias has 0 distances"});
  r.key({f16, {2, 23, 1}}, KVC_ERROR_DTYPE, {"key_bias", "float32"});
  r.key({f32, {2, 23}}, KVC_ERROR_RANK, {"key_bias"});
  r.key({f32, {1, 23, 1}}, KVC_ERROR_SHAPE, {"key_bias", "[1, 23, 1]"});
  r.key({f32, {2, 23, 3}}, KVC_ERROR_SHAPE, {"key_bias has 3 heads, not 1 or 2"});
  EXPECT_EQ(r.key({f32, {2, 22, 1}}, KVC_ERROR_SHAPE, {"key_bias has 22 keys, and row 0 has 23 tokens"}).index, 0);
  int64_t shape[3] = {5, 1, 22};
  std::vector<float> bytes(5 * 3 * 23);
  DLTensor mask = {bytes.data(), test_device(), 3, {kDLUInt, 8, 1}, shape, nullptr, 0};
  const auto masked = [&](std::initializer_list<int64_t> dims, DLDataType dtype, kvc_status status,
                          const std::vector<std::string> &words) {
    std::copy(dims.begin(), dims.end(), shape);
    mask.ndim = static_cast<int32_t>(dims.size());
    mask.dtype = dtype;
    return r.refuse({status}, words, [&](kvc_attend_args *a) { a->mask = &mask; });
  };
  EXPECT_EQ(masked({5, 1, 22}, {kDLUInt, 8, 1}, KVC_ERROR_SHAPE, {"mask has 22 keys, and row 0 has 23"}).index, 0);
  masked({5, 22}, {kDLBool, 8, 1}, KVC_ERROR_SHAPE, {"mask has 22 keys"});
  masked({4, 23}, {kDLBool, 8, 1}, KVC_ERROR_SHAPE, {"mask", "[4, 23]"});
  masked({5, 3, 23}, {kDLBool, 8, 1}, KVC_ERROR_SHAPE, {"mask has 3 heads, not 1 or 2"});
  masked({23}, {kDLBool, 8, 1}, KVC_ERROR_RANK, {"mask"});
  masked({5, 23}, {kDLInt, 32, 1}, KVC_ERROR_DTYPE, {"mask", "bool or uint8"});
  masked({5, 23}, {kDLFloat, 32, 1}, KVC_ERROR_DTYPE, {"mask"});
}

// NaN and +infinity. (-infinity hides a key.)
TEST(Biases, RefusesWrongNumbers) {
  Refusals r;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Tensor table(f32, {5, kHq, 4}), of_heads(f32, {kHq, 9}), keys(f32, {2, 30, 2});
    table.set(2, 1, 3, bad);
    of_heads.set(4, 7, bad);
    keys.set(1, 21, 1, bad);
    r.rel(table, KVC_ERROR_INVALID_ARGUMENT, {"rel_bias[2, 1, 3] is", "not finite or -infinity"});
    r.rel(of_heads, KVC_ERROR_INVALID_ARGUMENT, {"rel_bias[0, 4, 7] is"});
    EXPECT_EQ(r.key(keys, KVC_ERROR_INVALID_ARGUMENT, {"key_bias", "[0, 21, 1] is"}).index, 1);
    // A number that no row reads is no mistake.
    Tensor more(f32, {3, 30, 1});
    more.set(1, 22, 0, bad);
    more.set(2, 0, 0, bad);
    kvc_attend_args args = r.tensors.attend_args();
    args.key_bias = more.dl();
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_forward_attend(r.world.cache, r.forward, 0, &args, &error), KVC_OK) << error.message;
    EXPECT_EQ(kvc_forward_abort(r.world.cache, r.forward, nullptr), KVC_OK);
    r.forward = r.world.begin({r.world.seq, r.world.forked}, {3, 2});
  }
}

// Outputs over inputs, and flags without what they are for.
TEST(Biases, RefusesContradictions) {
  Refusals r;
  r.refuse({KVC_ERROR_INVALID_ARGUMENT}, {"REL_BIAS_ZERO"},
           [](kvc_attend_args *a) { a->flags = KVC_ATTEND_REL_BIAS_ZERO; });
  r.refuse({KVC_ERROR_INVALID_ARGUMENT}, {"out is written and overlaps rel_bias"}, [&](kvc_attend_args *a) {
    static int64_t heads_shape[2] = {kHq, 4};
    static DLTensor over;
    over = {r.tensors.out.dl()->data, test_device(), 2, {kDLFloat, 32, 1}, heads_shape, nullptr, 0};
    a->rel_bias = &over;
  });
  r.refuse({KVC_ERROR_INVALID_ARGUMENT}, {"lse is written and overlaps mask"}, [&](kvc_attend_args *a) {
    static int64_t mask_shape[2] = {5, 23};
    static DLTensor over;
    over = {r.tensors.lse.dl()->data, test_device(), 2, {kDLUInt, 8, 1}, mask_shape, nullptr, 0};
    a->mask = &over;
  });
}

// Trees: nodes have masks and biases as other keys have, but no window of the step.
TEST(Biases, Trees) {
  World world(one_layer(), 1, 20);
  kvc_batch batch;
  kvc_batch_init(&batch);
  const int32_t length = 5, parents[5] = {-1, 0, 0, 1, 2};
  batch.sequences = &world.seq;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  batch.tree_parents = parents;
  kvc_forward forward = 0;
  ASSERT_EQ(kvc_forward_begin(world.cache, &batch, nullptr, &forward, nullptr), KVC_OK);
  LayerTensors tensors(one_layer().layers[0], 5);
  Mask mask(5, 1);
  for (int64_t t = 0; t < 5; t++) {
    for (int key = 0; key < kKeys; key++) mask.at(t, 0, key) = key == 21 ? 1 : 0;
  }
  kvc_attend_args args = tensors.attend_args();
  args.mask = mask.dl();
  args.flags = KVC_ATTEND_STEP_WINDOW;
  refused(world.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_forward_attend",
          [&](kvc_error *e) { return kvc_forward_attend(world.cache, forward, 0, &args, e); },
          {"STEP_WINDOW in a step with trees"});
  args.flags = KVC_ATTEND_NON_CAUSAL;
  ASSERT_EQ(kvc_forward_attend(world.cache, forward, 0, &args, nullptr), KVC_OK);
  for (int node = 0; node < 5; node++) {
    const bool sees = node == 1 || node == 3;  // node 1 is key 21, and node 3 its child
    for (int d = 0; d < kD; d++) ASSERT_EQ(tensors.out.at(node, 0, d), sees ? tensors.v.at(1, 0, d) : 0.0f) << node;
  }
}

}  // namespace
}  // namespace kvt
