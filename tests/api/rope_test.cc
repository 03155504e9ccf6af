// RoPE settings, tables and factor sets that make no sense: each has its status, its values in the message, and changes
// nothing.
#include <cmath>

#include "fixture.h"

namespace kvt {
namespace {

const Statuses kBad{KVC_ERROR_INVALID_ARGUMENT};

kvc_rope_scaling linear(double factor) {
  kvc_rope_scaling scaling;
  kvc_rope_scaling_init(&scaling);
  scaling.kind = KVC_ROPE_SCALING_LINEAR;
  scaling.factor = factor;
  return scaling;
}

// The default world with a layer 2 (head dim 4, rotated) that `change` makes wrong. Create and estimate refuse it.
void config_refused(const char *what, const Statuses &statuses, const std::vector<std::string> &mentions,
                    const std::function<void(kvc_layer_config *)> &change) {
  SCOPED_TRACE(what);
  ContextPtr context = make_context();
  BuiltConfig built(World::default_spec());
  change(&built.layers[2]);
  kvc_error error = refused(
      nullptr, statuses, "kvc_cache_create",
      [&](kvc_error *e) {
        kvc_cache *cache = nullptr;
        const kvc_status status = kvc_cache_create(context.get(), &built.config, &cache, e);
        if (cache) kvc_cache_destroy(cache);
        return status;
      },
      mentions);
  EXPECT_EQ(error.index, 2);
  error = refused(
      nullptr, statuses, "kvc_cache_estimate",
      [&](kvc_error *e) {
        kvc_estimate estimate;
        kvc_estimate_init(&estimate);
        return kvc_cache_estimate(context.get(), &built.config, -1, &estimate, e);
      },
      mentions);
  EXPECT_EQ(error.index, 2);
}

TEST(Rope, Configs) {
  using L = kvc_layer_config;
  config_refused("unknown flag", {KVC_ERROR_UNSUPPORTED}, {"layer 2", "flags 0x100"}, [](L *l) { l->flags = 0x100; });
  config_refused("offset -1", kBad, {"rope_offset -1", "0..3"}, [](L *l) { l->rope_offset = -1; });
  config_refused("offset at the end", kBad, {"rope_offset 4"}, [](L *l) { l->rope_offset = 4; });
  config_refused("nothing left to rotate", kBad, {"rope_dim 1 at rope_offset 3", "head_dim 4"},
                 [](L *l) { l->rope_offset = 3; });
  config_refused("offset + dim over the head", kBad, {"rope_dim 4 at rope_offset 2", "head_dim 4"},
                 [](L *l) { l->rope_offset = 2, l->rope_dim = 4; });
  config_refused("odd dim", kBad, {"rope_dim 3"}, [](L *l) { l->rope_dim = 3; });
  config_refused("huge offset", kBad, {"rope_offset 2147483647"}, [](L *l) { l->rope_offset = INT32_MAX; });
  config_refused("huge dim", kBad, {"rope_dim 2147483646"}, [](L *l) { l->rope_dim = INT32_MAX - 1; });

  static kvc_rope_scaling scaling;
  const auto with = [](kvc_rope_scaling s) {
    scaling = s;
    return [](L *l) { l->rope_scaling = &scaling; };
  };
  config_refused("factor below 1", kBad, {"layer 2: rope_scaling: factor 0.5 of linear", "1..1e+06"},
                 with(linear(0.5)));
  config_refused("factor NaN", kBad, {"factor", "linear"}, with(linear(NAN)));
  kvc_rope_scaling s = linear(2.0);
  s.kind = KVC_ROPE_SCALING_YARN;
  config_refused("no original length", kBad, {"original_max_position 0 of yarn"}, with(s));
  s.original_max_position = 4096;
  s.kind = KVC_ROPE_SCALING_LONGROPE;
  const double three[] = {1.0, 1.0, 1.0};
  s.short_factors = s.long_factors = three;
  s.num_short_factors = 3;
  config_refused("wrong length", kBad, {"num_short_factors 3", "not 2", "rope_dim 4"}, with(s));
  s.num_short_factors = 2;
  config_refused("wrong length", kBad, {"num_long_factors 0", "not 2"}, with(s));
  s.num_long_factors = 2;
  s.long_factors = nullptr;
  config_refused("NULL", {KVC_ERROR_NULL_ARGUMENT}, {"long_factors is NULL"}, with(s));
  s = linear(2.0);
  s.struct_size = 8;
  config_refused("struct size", {KVC_ERROR_STRUCT_SIZE}, {"rope_scaling", "struct_size 8"}, with(s));
}

TEST(Rope, AScalingOfALayerThatDoesNotRotateIsIgnored) {
  ContextPtr context = make_context();
  BuiltConfig built(World::default_spec());
  kvc_rope_scaling scaling = linear(0.0);
  built.layers[0].rope_scaling = &scaling;
  kvc_estimate estimate;
  kvc_estimate_init(&estimate);
  EXPECT_EQ(kvc_cache_estimate(context.get(), &built.config, -1, &estimate, nullptr), KVC_OK);
}

TEST(Rope, NoTableForKeysThatAreReadRaw) {
  CacheSpec spec = World::default_spec();
  spec.layers[2].rope = KVC_ROPE_ON_READ;
  World w(spec);
  const kvc_forward f = w.begin({w.seq}, {3});
  LayerTensors t(w.spec.layers[2], 3);
  Tensor table(DType::kF32, {3, 2, 2});
  kvc_attend_args args = t.attend_args();
  args.rope_cos_sin = table.dl();
  refused(w.cache, kBad, "kvc_forward_attend",
          [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, 2, &args, e); },
          {"layer 2 does not rotate on append"});
}

TEST(Rope, CallersTables) {
  World w;
  const kvc_forward f = w.begin({w.seq}, {3});
  LayerTensors t(w.spec.layers[2], 3);
  const auto refuse = [&](int32_t layer, const Statuses &statuses, Tensor table,
                          const std::vector<std::string> &mentions,
                          const std::function<void(DLTensor *)> &change = nullptr) {
    DLTensor tensor = *table.dl();
    if (change) change(&tensor);
    LayerTensors of_layer(w.spec.layers[layer], 3);
    kvc_attend_args attend = of_layer.attend_args();
    attend.rope_cos_sin = &tensor;
    refused(
        w.cache, statuses, "kvc_forward_attend",
        [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, layer, &attend, e); }, mentions);
    kvc_append_args append = of_layer.append_args();
    append.rope_cos_sin = &tensor;
    refused(
        w.cache, statuses, "kvc_forward_append",
        [&](kvc_error *e) { return kvc_forward_append(w.cache, f, layer, &append, e); }, mentions);
  };
  const Tensor good(DType::kF32, {3, 2, 2});
  refuse(0, kBad, Tensor(DType::kF32, {3, 2, 4}), {"layer 0 does not rotate"});
  refuse(2, {KVC_ERROR_DTYPE}, Tensor(DType::kF16, {3, 2, 2}), {"rope_cos_sin", "float32"});
  refuse(2, {KVC_ERROR_RANK}, Tensor(DType::kF32, {3, 4}), {"2 dims, not 3"});
  refuse(2, {KVC_ERROR_SHAPE}, Tensor(DType::kF32, {2, 2, 2}), {"[2, 2, 2]", "[3, 2, 2]"});
  refuse(2, {KVC_ERROR_SHAPE}, Tensor(DType::kF32, {3, 2, 4}), {"[3, 2, 4]"});
  refuse(2, {KVC_ERROR_STRIDE}, Tensor(DType::kF32, {3, 2, 2}, 1), {"compact"});
  refuse(2, {KVC_ERROR_DEVICE}, good, {"device"}, [](DLTensor *x) { x->device.device_type = kDLCUDA; });
  refuse(2, {KVC_ERROR_NULL_ARGUMENT}, good, {"no data"}, [](DLTensor *x) { x->data = nullptr; });
  Tensor table = good;
  kvc_append_args append = t.append_args();
  append.flags = KVC_APPEND_AS_STORED;
  append.rope_cos_sin = table.dl();
  refused(w.cache, kBad, "kvc_forward_append",
          [&](kvc_error *e) { return kvc_forward_append(w.cache, f, 2, &append, e); }, {"KVC_APPEND_AS_STORED"});
  EXPECT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
}

TEST(Rope, FactorSets) {
  World plain;
  refused(plain.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_seq_set_rope",
          [&](kvc_error *e) { return kvc_seq_set_rope(plain.cache, 1, &plain.seq, KVC_ROPE_SET_LONG, e); },
          {"KVC_ROPE_SCALING_LONGROPE"});

  kvc_rope_scaling scaling = linear(0.0);
  const double factors[] = {1.0, 2.0};
  scaling.kind = KVC_ROPE_SCALING_LONGROPE;
  scaling.original_max_position = 16;
  scaling.short_factors = scaling.long_factors = factors;
  scaling.num_short_factors = scaling.num_long_factors = 2;
  ContextPtr context = make_context();
  BuiltConfig built(World::default_spec());
  built.layers[2].rope_scaling = &scaling;
  kvc_cache *cache = nullptr;
  ASSERT_EQ(kvc_cache_create(context.get(), &built.config, &cache, nullptr), KVC_OK);
  const CachePtr owner(cache);
  kvc_seq ids[2];
  ASSERT_EQ(kvc_seq_add(cache, 2, ids, nullptr), KVC_OK);
  const auto refuse = [&](const Statuses &statuses, int64_t n, const kvc_seq *sequences, int32_t set,
                          const std::vector<std::string> &mentions) {
    return refused(
        cache, statuses, "kvc_seq_set_rope",
        [&](kvc_error *e) { return kvc_seq_set_rope(cache, n, sequences, set, e); }, mentions);
  };
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_seq_set_rope",
          [&](kvc_error *e) { return kvc_seq_set_rope(nullptr, 1, ids, KVC_ROPE_SET_LONG, e); });
  refuse({KVC_ERROR_NULL_ARGUMENT}, 1, nullptr, KVC_ROPE_SET_LONG, {"sequences"});
  refuse(kBad, -1, ids, KVC_ROPE_SET_LONG, {"-1"});
  refuse(kBad, 2, ids, 2, {"set 2"});
  refuse(kBad, 2, ids, -1, {"set -1"});
  const kvc_seq stale[] = {ids[0], ids[1] + (kvc_seq{1} << 40)};
  EXPECT_EQ(refuse({KVC_ERROR_STALE_ID}, 2, stale, KVC_ROPE_SET_LONG, {}).index, 1);
  const int32_t one = 1;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &ids[1];
  batch.append_lengths = &one;
  batch.num_sequences = 1;
  kvc_forward f = 0;
  ASSERT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, nullptr), KVC_OK);
  EXPECT_EQ(refuse({KVC_ERROR_BUSY}, 2, ids, KVC_ROPE_SET_LONG, {}).index, 1);
  for (int32_t l = 0; l < 3; l++) {
    LayerTensors t(World::default_spec().layers[l], 1);
    const kvc_append_args args = t.append_args();
    ASSERT_EQ(kvc_forward_append(cache, f, l, &args, nullptr), KVC_OK);
  }
  ASSERT_EQ(kvc_forward_end(cache, f, nullptr), KVC_OK);
  EXPECT_EQ(refuse({KVC_ERROR_ORDER}, 2, ids, KVC_ROPE_SET_LONG, {"1 tokens"}).index, 1);
  EXPECT_EQ(kvc_seq_set_rope(cache, 1, ids, KVC_ROPE_SET_LONG, nullptr), KVC_OK);
  EXPECT_EQ(kvc_seq_set_rope(cache, 0, nullptr, KVC_ROPE_SET_LONG, nullptr), KVC_OK);
}

}  // namespace
}  // namespace kvt
