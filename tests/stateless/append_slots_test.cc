// kvc_append_slots: every byte of the cache, compared with what the header says is stored there.
#include <cmath>
#include <cstdlib>

#include "arrays.h"
#include "flash_call.h"

namespace kvt {
namespace {

struct SlotSetting {
  DType kv = DType::kF32, fresh = DType::kF32;
  bool hnd = false, latent = false, interleaved = false;
  int rotary_dim = 0;  // 0: none
  int scales = 0;      // 0: none, 1: one for all, 2: one each
};

constexpr int64_t kPages = 9, kPage = 5, kTokens = 40, kPositions = 64;

float product(float a, float b) {
  volatile float p = a * b;
  return p;
}

class SlotCall {
 public:
  explicit SlotCall(const SlotSetting &s)
      : setting(s), hkv(s.latent ? 1 : 3), d(s.latent ? 8 : 24), dv(s.latent ? 16 : 10), random_(7) {
    const std::vector<int> order = s.hnd ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{};
    k_cache = Array(s.kv, {kPages, kPage, hkv, s.latent ? d + dv : d}, order, 2);
    v_cache = Array(s.kv, {kPages, kPage, hkv, dv}, order);
    k = Array(s.fresh, {kTokens + 3, hkv, d}, {}, 1);
    v = Array(s.fresh, {kTokens + 3, hkv, dv});
    k.fill_random(&random_);
    v.fill_random(&random_);
    cos = Array(DType::kF32, {kPositions, std::max(1, s.rotary_dim / 2)});
    sin = cos;
    cos.fill_random(&random_);
    sin.fill_random(&random_);
    std::vector<int64_t> all(kPages * kPage);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random_);
    all.resize(kTokens);
    for (size_t i = 0; i < all.size(); i += 7) all[i] = -1 - static_cast<int64_t>(i);
    slots = Indexes<int64_t>(all);
    std::vector<int32_t> where;
    for (int64_t i = 0; i < kTokens; i++)
      where.push_back(slots.values[static_cast<size_t>(i)] < 0 ? -5 : static_cast<int32_t>(random_() % kPositions));
    positions = Indexes<>(where);
    k_scale = Array(DType::kF32, {s.scales == 2 ? hkv : 1});
    v_scale = k_scale;
    for (int64_t h = 0; h < k_scale.shape[0]; h++) {
      k_scale.set({h}, 0.3f + 0.1f * static_cast<float>(h));
      v_scale.set({h}, 0.7f - 0.2f * static_cast<float>(h));
    }
  }

  kvc_append_slots_args args() {
    kvc_append_slots_args a;
    kvc_append_slots_args_init(&a);
    if (setting.interleaved) a.flags = KVC_APPEND_SLOTS_ROTARY_INTERLEAVED;
    a.k = k.dl();
    a.v = v.dl();
    a.k_cache = k_cache.dl();
    if (!setting.latent) a.v_cache = v_cache.dl();
    a.slot_mapping = slots.dl();
    if (setting.scales) a.k_scale = k_scale.dl();
    if (setting.scales && !setting.latent) a.v_scale = v_scale.dl();
    if (setting.rotary_dim) {
      a.rotary_cos = cos.dl();
      a.rotary_sin = sin.dl();
      a.positions = positions.dl();
    }
    return a;
  }

  void run_and_check(kvc_context *context) {
    Array k_expected = k_cache, v_expected = v_cache;
    for (int64_t t = 0; t < kTokens; t++) {
      const int64_t slot = slots.values[static_cast<size_t>(t)];
      for (int64_t h = 0; h < hkv && slot >= 0; h++) {
        const Index to = {slot / kPage, slot % kPage, h, 0};
        const bool scaled = setting.scales != 0 && !is_quantised(setting.fresh);
        const int64_t scale_of = setting.scales == 2 ? h : 0;
        put(row(k, t, h, true), to, setting.latent ? dv : 0, scaled ? k_scale.get({scale_of}) : 1.0f, &k_expected);
        const float v_factor = !scaled ? 1.0f : setting.latent ? k_scale.get({scale_of}) : v_scale.get({scale_of});
        put(row(v, t, h, false), to, 0, v_factor, setting.latent ? &k_expected : &v_expected);
      }
    }
    const kvc_append_slots_args a = args();
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_append_slots(context, &a, nullptr, &error), KVC_OK) << error.message;
    EXPECT_TRUE(k_cache.bytes == k_expected.bytes);
    EXPECT_TRUE(v_cache.bytes == v_expected.bytes);
  }

  const SlotSetting setting;
  const int64_t hkv, d, dv;
  Array k, v, k_cache, v_cache, cos, sin, k_scale, v_scale;
  Indexes<int64_t> slots;
  Indexes<> positions;

 private:
  std::vector<float> row(const Array &from, int64_t t, int64_t h, bool turns) const {
    std::vector<float> x;
    for (int64_t i = 0; i < from.shape[2]; i++) x.push_back(from.get({t, h, i}));
    for (int i = 0; i < setting.rotary_dim / 2 && turns; i++) {
      float &a = x[static_cast<size_t>(setting.interleaved ? 2 * i : i)];
      float &b = x[static_cast<size_t>(setting.interleaved ? 2 * i + 1 : i + setting.rotary_dim / 2)];
      const int64_t p = positions.values[static_cast<size_t>(t)];
      const float c = cos.get({p, i}), s = sin.get({p, i}), first = a, second = b;
      a = product(first, c) - product(second, s);
      b = product(second, c) + product(first, s);
    }
    return x;
  }
  void put(const std::vector<float> &x, Index to, int64_t first, float scale, Array *cache) const {
    for (size_t i = 0; i < x.size(); i++) {
      to[3] = first + static_cast<int64_t>(i);
      volatile float stored = x[i] / scale;
      cache->set(to, stored);
    }
  }
  std::mt19937 random_;
};

TEST(AppendSlots, StoresWhatTheHeaderSays) {
  const ContextPtr context = make_context(2);
  constexpr DType f32 = DType::kF32, f16 = DType::kF16, bf16 = DType::kBF16, e4 = DType::kE4M3, e5 = DType::kE5M2;
  const DType types[][2] = {{f32, f32}, {f16, f32}, {bf16, bf16}, {f32, f16}, {e4, bf16}, {e5, f32}, {e4, e4}};
  for (const auto &type : types) {
    for (int variant = 0; variant < 48; variant++) {
      SlotSetting s;
      s.kv = type[0], s.fresh = type[1];
      s.hnd = (variant & 1) != 0, s.latent = (variant & 2) != 0, s.interleaved = (variant & 4) != 0;
      s.rotary_dim = (variant & 8) != 0 && !is_quantised(s.fresh) ? 8 : 0;
      s.scales = is_quantised(s.kv) ? variant / 16 : 0;
      if (s.latent && is_quantised(s.fresh)) continue;  // refused
      SCOPED_TRACE(std::string(name_of(s.kv)) + " from " + name_of(s.fresh) + " variant " + std::to_string(variant));
      SlotCall(s).run_and_check(context.get());
      if (HasFailure()) return;
    }
  }
}

TEST(AppendSlots, TakesInt32SlotsAndNoTokens) {
  const ContextPtr context = make_context(1);
  SlotCall call({});
  kvc_append_slots_args args = call.args();
  Indexes<> one(std::vector<int32_t>{11}), none(std::vector<int32_t>{});
  args.slot_mapping = one.dl();
  ASSERT_EQ(kvc_append_slots(context.get(), &args, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(call.k_cache.get({2, 1, 2, 23}), call.k.get({0, 2, 23}));
  EXPECT_EQ(call.v_cache.get({2, 1, 0, 0}), call.v.get({0, 0, 0}));
  const std::vector<uint8_t> before = call.k_cache.bytes;
  none.shape = {0};
  args.slot_mapping = none.dl();
  EXPECT_EQ(kvc_append_slots(context.get(), &args, nullptr, nullptr), KVC_OK);
  EXPECT_TRUE(call.k_cache.bytes == before);
}

// If all tokens are padding, none has a position, so cos and sin may have no rows. A token that is stored needs a row.
TEST(AppendSlots, PaddingAloneNeedsNoRowsOfCosAndSin) {
  const ContextPtr context = make_context(2);
  for (const bool latent : {false, true}) {
    SlotSetting setting;
    setting.rotary_dim = 8, setting.latent = latent;
    SlotCall call(setting);
    const auto before = std::make_pair(call.k_cache.bytes, call.v_cache.bytes);
    std::fill(call.slots.values.begin(), call.slots.values.end(), -1);
    call.cos.shape[0] = call.sin.shape[0] = 0;
    const kvc_append_slots_args args = call.args();
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_append_slots(context.get(), &args, nullptr, &error), KVC_OK) << error.message;
    if (std::getenv("KVC_TEST_INDEXES") == nullptr) {  // only where the host reads slots and positions
      call.slots.values[3] = 0, call.positions.values[3] = 0;
      EXPECT_EQ(kvc_append_slots(context.get(), &args, nullptr, &error), KVC_ERROR_OUT_OF_RANGE);
      EXPECT_EQ(error.index, 3);
    }
    EXPECT_TRUE(before == std::make_pair(call.k_cache.bytes, call.v_cache.bytes));
  }
}

// Tensors of stride 0 have any number of tokens and little memory.
TEST(AppendSlots, BroadcastTensorsOfTooManyTokensAreRefused) {
  const ContextPtr context = make_context(1);
  SlotCall call({});
  kvc_append_slots_args args = call.args();
  int64_t slot = -1, shape[3] = {int64_t{1} << 52, call.hkv, call.d}, v_shape[3] = {shape[0], call.hkv, call.dv};
  int64_t strides[3] = {0, call.k.strides[1], 1}, v_strides[3] = {0, call.v.strides[1], 1};
  DLTensor k = *args.k, v = *args.v, slots = *args.slot_mapping;
  k.shape = shape, k.strides = strides, v.shape = v_shape, v.strides = v_strides;
  slots.data = &slot, slots.shape = shape, slots.strides = strides;
  args.k = &k, args.v = &v, args.slot_mapping = &slots;
  for (const int64_t tokens : {int64_t{1} << 52, int64_t{1} << 33, (int64_t{1} << 26) + 1}) {
    shape[0] = v_shape[0] = tokens;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_append_slots(context.get(), &args, nullptr, &error), KVC_ERROR_SHAPE) << error.message;
  }
}

}  // namespace
}  // namespace kvt
