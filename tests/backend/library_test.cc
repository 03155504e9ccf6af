// The library on the example backend, beside the library on the reference. The example calls the reference, so the bits
// are equal.
#include <gtest/gtest.h>

#include <cstring>

#include "wrappers.h"

namespace kvt {
namespace {

constexpr int64_t kStateBytes = 24;

CacheSpec spec_of_all() {
  CacheSpec spec;
  spec.page_size = 4;
  spec.groups = {{0, 40}, {8, 40}, {0, 40}};
  spec.layers = {LayerSpec{0, 4, 2, 8}, LayerSpec{1, 2, 2, 6, 4, DType::kBF16, KVC_ROPE_ON_APPEND},
                 LayerSpec{0, 2, 1, 8, 0, DType::kI8, KVC_ROPE_ON_READ}};
  LayerSpec latent{2, 4, 1, 24, 0, DType::kF16};
  latent.latent = 16;
  latent.scale = 0.25;
  spec.layers.push_back(latent);
  return spec;
}

class Engine {
 public:
  Engine(const char *backend, const char *simd) {
    kvc_context_config context_config;
    kvc_context_config_init(&context_config);
    context_config.backend = backend;
    context_config.simd = simd;
    context_config.num_threads = 2;
    kvc_context *context = nullptr;
    EXPECT_EQ(kvc_context_create(&context_config, &context, &error_), KVC_OK) << error_.message;
    context_.reset(context);

    BuiltConfig built(spec_);
    kvc_state_config state;  // and one recurrent layer, in a group of its own
    kvc_state_config_init(&state);
    state.rank = 1;
    state.shape[0] = kStateBytes / 4;
    kvc_layer_config recurrent;
    kvc_layer_config_init(&recurrent);
    recurrent.group = static_cast<int32_t>(built.groups.size());
    recurrent.states = &state;
    recurrent.num_states = 1;
    built.layers.push_back(recurrent);
    kvc_group_config group;
    kvc_group_config_init(&group);
    group.row = KVC_ROW_STATE;
    built.groups.push_back(group);
    built.config.layers = built.layers.data();
    built.config.groups = built.groups.data();
    built.config.num_layers++;
    built.config.num_groups++;
    kvc_cache *cache = nullptr;
    EXPECT_EQ(kvc_cache_create(context, &built.config, &cache, &error_), KVC_OK) << error_.message;
    cache_.reset(cache);
  }

  std::string describe_context() const {
    int64_t length = 0;
    EXPECT_EQ(kvc_context_describe(context_.get(), nullptr, 0, &length, nullptr), KVC_OK);
    std::string text(static_cast<size_t>(length) + 1, '\0');
    EXPECT_EQ(kvc_context_describe(context_.get(), text.data(), length + 1, &length, nullptr), KVC_OK);
    return text;
  }
  kvc_seq add() {
    kvc_seq seq = 0;
    EXPECT_EQ(kvc_seq_add(cache_.get(), 1, &seq, &error_), KVC_OK) << error_.message;
    return seq;
  }
  kvc_seq fork(kvc_seq parent) {
    kvc_seq child = 0;
    EXPECT_EQ(kvc_seq_fork(cache_.get(), 1, &parent, nullptr, &child, nullptr, &error_), KVC_OK) << error_.message;
    return child;
  }

  // Appends tokens and attends in every layer. bytes() then has all outputs, their LSEs and the loaded state.
  void step(kvc_seq seq, int32_t tokens) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq;
    batch.append_lengths = &tokens;
    batch.num_sequences = 1;
    kvc_forward forward = 0;
    ASSERT_EQ(kvc_forward_begin(cache_.get(), &batch, nullptr, &forward, &error_), KVC_OK) << error_.message;
    for (size_t i = 0; i < spec_.layers.size(); i++) attend(forward, static_cast<int32_t>(i), tokens);
    const auto recurrent = static_cast<int32_t>(spec_.layers.size());
    Tensor state(DType::kF32, {1, kStateBytes / 4});
    ASSERT_EQ(kvc_forward_load_state(cache_.get(), forward, recurrent, 0, -1, state.dl(), &error_), KVC_OK)
        << error_.message;
    keep(state);
    for (int64_t i = 0; i < kStateBytes / 4; i++) state.set(0, i, next());
    ASSERT_EQ(kvc_forward_store_state(cache_.get(), forward, recurrent, 0, -1, state.dl(), &error_), KVC_OK)
        << error_.message;
    ASSERT_EQ(kvc_forward_end(cache_.get(), forward, &error_), KVC_OK) << error_.message;
  }

  // Reads the stored K and V of a sequence in a layer.
  void keep_stored(kvc_seq seq, int32_t layer, uint32_t parts) {
    kvc_export_args args;
    kvc_export_args_init(&args);
    args.layer = layer;
    args.parts = parts;
    kvc_exported exported;
    kvc_exported_init(&exported);
    ASSERT_EQ(kvc_seq_export(cache_.get(), seq, &args, &exported, nullptr, &error_), KVC_OK) << error_.message;
    for (DLManagedTensorVersioned *tensor : {exported.k, exported.v, exported.k_scale, exported.v_scale}) {
      const Managed owner(tensor);
      if (tensor == nullptr) continue;
      int64_t bytes = tensor->dl_tensor.dtype.bits / 8;
      for (int32_t i = 0; i < tensor->dl_tensor.ndim; i++) bytes *= tensor->dl_tensor.shape[i];
      const auto *data = static_cast<const uint8_t *>(tensor->dl_tensor.data) + tensor->dl_tensor.byte_offset;
      bytes_.insert(bytes_.end(), data, data + bytes);
    }
  }
  const std::vector<uint8_t> &bytes() const { return bytes_; }

 private:
  float next() {
    number_ = number_ * 1664525u + 1013904223u;
    return static_cast<float>(static_cast<int32_t>(number_) >> 8) / static_cast<float>(1 << 22);
  }
  Tensor rows(DType type, int64_t tokens, int heads, int dims) {
    Tensor tensor(type, {tokens, heads, dims});
    for (int64_t t = 0; t < tokens; t++) {
      for (int h = 0; h < heads; h++) {
        for (int d = 0; d < dims; d++) tensor.set(t, h, d, next());
      }
    }
    return tensor;
  }
  void keep(const Tensor &tensor) { bytes_.insert(bytes_.end(), tensor.bytes().begin(), tensor.bytes().end()); }
  void attend(kvc_forward forward, int32_t layer, int64_t tokens) {
    const LayerSpec &l = spec_.layers[static_cast<size_t>(layer)];
    const DType type = is_quantised(l.dtype) ? DType::kF32 : l.dtype;
    Tensor q = rows(type, tokens, l.hq, l.d), k = rows(type, tokens, l.hkv, l.d),
           v = rows(type, tokens, l.hkv, l.v_dim());
    Tensor out(DType::kF32, {tokens, l.hq, l.v_dim()}), lse(DType::kF32, {tokens, l.hq});
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = q.dl();
    args.k = k.dl();
    args.v = l.latent > 0 ? nullptr : v.dl();
    args.out = out.dl();
    args.lse = lse.dl();
    ASSERT_EQ(kvc_forward_attend(cache_.get(), forward, layer, &args, &error_), KVC_OK) << error_.message;
    keep(out);
    keep(lse);
  }

  const CacheSpec spec_ = spec_of_all();
  ContextPtr context_;
  CachePtr cache_;
  kvc_error error_ = KVC_ERROR_INIT;
  uint32_t number_ = 1;
  std::vector<uint8_t> bytes_;
};

// A long prompt whose keys are split, single tokens, and a fork that copies the last page of its parent.
void run(Engine *engine) {
  const kvc_seq seq = engine->add();
  engine->step(seq, 30);
  for (int i = 0; i < 3; i++) engine->step(seq, 1);
  const kvc_seq child = engine->fork(seq);
  engine->step(child, 2);
  engine->step(seq, 5);
  for (const kvc_seq s : {seq, child}) {
    engine->keep_stored(s, 0, KVC_EXPORT_K | KVC_EXPORT_V);
    engine->keep_stored(s, 2, KVC_EXPORT_K | KVC_EXPORT_V | KVC_EXPORT_K_SCALE | KVC_EXPORT_V_SCALE);
    engine->keep_stored(s, 3, KVC_EXPORT_K);
  }
}

TEST(ExampleBackend, ComputesWhatTheReferenceComputes) {
  Engine example(EXAMPLE_BACKEND, nullptr), reference(nullptr, "reference");
  EXPECT_NE(example.describe_context().find("\"example\""), std::string::npos) << example.describe_context();
  run(&example);
  run(&reference);
  ASSERT_GT(example.bytes().size(), 10000u);
  EXPECT_EQ(example.bytes(), reference.bytes());
}

TEST(ExampleBackend, HasOneImplementation) {
  kvc_context_config config;
  kvc_context_config_init(&config);
  config.backend = EXAMPLE_BACKEND;
  config.simd = "avx2";
  kvc_context *context = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_context_create(&config, &context, &error), KVC_ERROR_UNSUPPORTED);
  EXPECT_NE(std::string(error.message).find("it can run: example"), std::string::npos) << error.message;
}

}  // namespace
}  // namespace kvt
