// A plan is copied to the device once: the layers of one work class that attend in one step share one copy, whatever
// the kind of call. The emulation counts the copies from the host.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>

#include "arrays.h"
#include "cuda_runtime.h"
#include "server.h"

namespace kvt {
namespace {

constexpr int kLayers = 8;
constexpr int64_t kLatent = 8, kRotary = 4, kNope = 6, kValues = 5, kHeads = 4;

// A cache of layers of one work class on the device, and one sequence.
class Layers {
 public:
  explicit Layers(bool latent) : latent_(latent) {
    LayerSpec layer;
    layer.hq = kHeads;
    layer.d = kLatent + kRotary;
    if (latent) layer.latent = kLatent, layer.scale = 0.5;
    CacheSpec spec;
    spec.layers.assign(kLayers, layer);
    spec.max_batch_tokens = 128;
    spec.capacity_tokens = 1024;
    context_ = make_context_on(kDLCUDA);
    cache_ = make_cache(context_.get(), spec);
    EXPECT_EQ(kvc_seq_add(cache_.get(), 1, &seq_, nullptr), KVC_OK);
  }

  void begin(int32_t tokens) {
    tokens_ = tokens;
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq_, batch.append_lengths = &tokens, batch.num_sequences = 1;
    ASSERT_EQ(kvc_forward_begin(cache_.get(), &batch, nullptr, &forward_, &error_), KVC_OK) << error_.message;
  }
  void append() {
    for (int layer = 0; layer < kLayers; layer++) {
      Tensor &rows = tensor({tokens_, 1, kLatent + kRotary});
      kvc_append_args args;
      kvc_append_args_init(&args);
      args.k = rows.dl();
      if (!latent_) args.v = rows.dl();
      ASSERT_EQ(kvc_forward_append(cache_.get(), forward_, layer, &args, &error_), KVC_OK) << error_.message;
    }
  }
  void attend(uint32_t flags = 0) {
    for (int layer = 0; layer < kLayers; layer++) {
      kvc_attend_args args;
      kvc_attend_args_init(&args);
      args.flags = flags;
      args.q = tensor({tokens_, kHeads, latent_ ? kNope + kRotary : kLatent + kRotary}).dl();
      args.out = tensor({tokens_, kHeads, latent_ ? kValues : kLatent + kRotary}).dl();
      if (latent_)
        args.w_uk = tensor({kHeads, kNope, kLatent}).dl(), args.w_uv = tensor({kHeads, kValues, kLatent}).dl();
      ASSERT_EQ(kvc_forward_attend(cache_.get(), forward_, layer, &args, &error_), KVC_OK) << error_.message;
    }
  }
  void end() { ASSERT_EQ(kvc_forward_end(cache_.get(), forward_, &error_), KVC_OK) << error_.message; }
  void abort() { ASSERT_EQ(kvc_forward_abort(cache_.get(), forward_, &error_), KVC_OK) << error_.message; }

 private:
  Tensor &tensor(const std::vector<int64_t> &shape) {
    Tensor &made = tensors_.emplace_back(DType::kF32, shape);
    std::fill(made.bytes().begin(), made.bytes().end(), uint8_t{0});
    return made;
  }

  const bool latent_;
  ContextPtr context_;
  CachePtr cache_;
  kvc_seq seq_ = 0;
  kvc_forward forward_ = 0;
  int32_t tokens_ = 0;
  std::deque<Tensor> tensors_;
  kvc_error error_ = KVC_ERROR_INIT;
};

template <class Body>
int64_t copies_of(const Body &body) {
  const int64_t before = cuda_emulation::counts().copies;
  body();
  return cuda_emulation::counts().copies - before;
}

struct OnCuda : testing::Test {
  OnCuda() { setenv("KVC_TEST_DEVICE", "cuda", 1); }
};
using PlanCopies = OnCuda;

TEST_F(PlanCopies, OfLayersOfOneWorkClass) {
  Layers layers(false);
  for (const int32_t tokens : {100, 1, 1, 3}) {
    EXPECT_EQ(copies_of([&] { layers.begin(tokens); }), 0) << tokens;
    EXPECT_EQ(copies_of([&] { layers.append(); }), 0) << tokens;
    EXPECT_EQ(copies_of([&] { layers.attend(); }), 0) << tokens;
    layers.end();
  }
}

// begin cannot stage plans for flags that the step before did not use. So the first layer copies the plan for all
// layers.
TEST_F(PlanCopies, OfFlagsThatAreNew) {
  Layers layers(false);
  layers.begin(100), layers.append(), layers.attend(), layers.end();
  layers.begin(1), layers.append();
  EXPECT_EQ(copies_of([&] { layers.attend(KVC_ATTEND_PAST); }), 1);
  EXPECT_EQ(copies_of([&] { layers.attend(KVC_ATTEND_SELF); }), 1);
  layers.end();
}

// Rows of latent layers in both forms: a prompt, a chunk of a prompt over earlier tokens (both forms), and one token.
TEST_F(PlanCopies, OfLatentLayers) {
  Layers layers(true);
  for (const auto &[tokens, plans] : {std::pair{100, 1}, {100, 2}, {1, 1}, {1, 1}}) {
    layers.begin(tokens), layers.append();
    EXPECT_EQ(copies_of([&] { layers.attend(); }), plans) << tokens;
    layers.end();
  }
}

}  // namespace
}  // namespace kvt
