// MLA with up-projections of so many heads that scratch has room for some at a time, and with more items than a call of
// the backend takes. A token gets the same output as alone, where neither limit is reached.
#include <random>

#include "fixture.h"

namespace kvt {
namespace {

constexpr int64_t kManyHeads = 5000, kTokens = 256, kDims = 2;  // of each part of q, and of an output

class ManyHeads {
 public:
  ManyHeads() {
    LayerSpec layer{0, kManyHeads, 1, 6};
    layer.latent = 4;
    layer.scale = 0.5;
    spec_.page_size = 16;
    spec_.max_sequences = 1;
    spec_.max_batch_tokens = spec_.capacity_tokens = kTokens;
    spec_.layers = {layer};
    fill(&rows_, kTokens * 6);
    fill(&q_, kTokens * kManyHeads * 2 * kDims);
    fill(&rel_bias_, kManyHeads * 300);
    fill(&key_bias_, kTokens);
    for (Tensor *weights : {&w_uk_, &w_uv_}) fill(weights, kManyHeads * kDims * 4);
    for (Tensor *of_heads : {&slopes_, &sinks_}) fill(of_heads, kManyHeads);
  }

  // Attends to the tokens from `first` on in one step, after those before it.
  void attend(int32_t first) {
    out = Tensor(DType::kF32, {kTokens, kManyHeads, kDims});
    lse = Tensor(DType::kF32, {kTokens, kManyHeads});
    const ContextPtr context = make_context(2);
    const CachePtr cache = make_cache(context.get(), spec_);
    kvc_seq seq = 0;
    ASSERT_EQ(kvc_seq_add(cache.get(), 1, &seq, nullptr), KVC_OK);
    if (first > 0) step(cache.get(), seq, 0, first, false);
    step(cache.get(), seq, first, static_cast<int32_t>(kTokens) - first, true);
  }

  Tensor out, lse;

 private:
  void fill(Tensor *tensor, int64_t count) {
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (int64_t i = 0; i < count; i++) static_cast<float *>(tensor->data())[i] = uniform(random_);
  }
  void step(kvc_cache *cache, kvc_seq seq, int32_t begin, int32_t tokens, bool attends) {
    int64_t shapes[4][3];
    const auto part = [&](Tensor &tensor, int64_t *shape) {
      DLTensor of_step = *tensor.dl();
      std::copy_n(of_step.shape, of_step.ndim, shape);
      shape[0] = tokens;
      of_step.shape = shape;
      of_step.byte_offset += static_cast<uint64_t>(begin * of_step.strides[0]) * sizeof(float);
      return of_step;
    };
    const DLTensor k = part(rows_, shapes[0]), q = part(q_, shapes[1]), to = part(out, shapes[2]),
                   sums = part(lse, shapes[3]);
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq;
    batch.append_lengths = &tokens;
    batch.num_sequences = 1;
    kvc_forward forward = 0;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_forward_begin(cache, &batch, nullptr, &forward, &error), KVC_OK) << error.message;
    kvc_append_args append;
    kvc_append_args_init(&append);
    append.k = &k;
    ASSERT_EQ(kvc_forward_append(cache, forward, 0, &append, &error), KVC_OK) << error.message;
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = &q, args.out = &to, args.lse = &sums;
    args.w_uk = w_uk_.dl(), args.w_uv = w_uv_.dl(), args.alibi_slopes = slopes_.dl(), args.sinks = sinks_.dl();
    args.rel_bias = rel_bias_.dl(), args.key_bias = key_bias_.dl();
    if (attends) {
      ASSERT_EQ(kvc_forward_attend(cache, forward, 0, &args, &error), KVC_OK) << error.message;
    }
    ASSERT_EQ(kvc_forward_end(cache, forward, &error), KVC_OK) << error.message;
  }

  CacheSpec spec_;
  std::mt19937 random_{5};
  Tensor rows_{DType::kF32, {kTokens, 1, 6}}, q_{DType::kF32, {kTokens, kManyHeads, 2 * kDims}},
      w_uk_{DType::kF32, {kManyHeads, kDims, 4}}, w_uv_{DType::kF32, {kManyHeads, kDims, 4}},
      slopes_{DType::kF32, {kManyHeads}}, sinks_{DType::kF32, {kManyHeads}}, rel_bias_{DType::kF32, {kManyHeads, 300}},
      key_bias_{DType::kF32, {1, kTokens, 1}};
};

TEST(Projected, MoreHeadsThanScratchHolds) {
  ManyHeads scene;
  scene.attend(kTokens - 1);
  const Tensor alone = scene.out, alone_lse = scene.lse;
  for (const int32_t first : {0, 128}) {  // a part of the heads at a time; all heads, each as an item
    scene.attend(first);
    for (int64_t h = 0; h < kManyHeads; h++) {
      ASSERT_NEAR(scene.lse.at(kTokens - 1, h), alone_lse.at(kTokens - 1, h), 1e-4) << first << ", " << h;
      for (int64_t d = 0; d < kDims; d++) {
        ASSERT_NEAR(scene.out.at(kTokens - 1, h, d), alone.at(kTokens - 1, h, d), 1e-4) << first << ", " << h;
      }
    }
  }
}

}  // namespace
}  // namespace kvt
