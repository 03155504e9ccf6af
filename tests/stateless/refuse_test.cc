// Bad input: each fault has its status and a message with the values, and no byte is written.
#include <functional>
#include <set>

#include "../api/fixture.h"
#include "flash_call.h"

namespace kvt {
namespace {

constexpr const char *kName = "kvc_flash_attn_with_kvcache";

FlashSetting paged_setting() {
  FlashSetting s;
  s.page = 16, s.sk = 100, s.sq = 3, s.append = New::kEqual, s.flags = KVC_FLASH_ATTN_CAUSAL, s.rotary_dim = 32;
  return s;
}

// A good call, a change that makes it bad, and the words of the error.
class Refusal {
 public:
  explicit Refusal(const FlashSetting &setting = paged_setting()) : call(setting), args(call.args()) {
    static std::set<std::string> accepted;  // settings whose unchanged call was accepted
    if (!accepted.insert(describe(setting)).second) return;
    kvc_error error = KVC_ERROR_INIT;
    FlashCall good(setting);
    const kvc_flash_attn_args a = good.args();
    EXPECT_EQ(kvc_flash_attn_with_kvcache(context(), &a, nullptr, &error), KVC_OK) << error.message;
  }
  kvc_error expect(kvc_status status, const std::vector<std::string> &mentions = {}) {
    const auto bytes = [&] {
      std::vector<std::vector<uint8_t>> all;
      for (const Array *a : {&call.out, &call.lse, &call.k_cache, &call.v_cache}) all.push_back(a->storage());
      return all;
    };
    const auto before = bytes();
    const kvc_error error = refused(
        nullptr, {status}, kName,
        [&](kvc_error *e) { return kvc_flash_attn_with_kvcache(context(), &args, nullptr, e); }, mentions);
    EXPECT_TRUE(bytes() == before) << "a refused call wrote something: " << error.message;
    return error;
  }
  static kvc_context *context() {
    static const ContextPtr context = make_context(2);
    return context.get();
  }

  FlashCall call;
  kvc_flash_attn_args args;
};

TEST(FlashAttnRefuses, MoreEntriesThanHeads) {
  FlashSetting setting = paged_setting();
  setting.alibi = 1, setting.sinks = true;
  Refusal sinks(setting), slopes(setting);
  Array more(DType::kF32, {setting.hq + 1});
  sinks.args.sinks = more.dl();
  sinks.expect(KVC_ERROR_SHAPE, {"sinks", std::to_string(setting.hq + 1), std::to_string(setting.hq)});
  slopes.args.alibi_slopes = more.dl();
  slopes.expect(KVC_ERROR_SHAPE, {"alibi_slopes", std::to_string(setting.hq + 1), std::to_string(setting.hq)});
}

TEST(FlashAttnRefuses, PageIdsOutOfRange) {
  for (int32_t id : {-1, INT32_MAX, INT32_MIN}) {
    Refusal bad;
    const int64_t columns = bad.call.table.shape[1];
    bad.call.table.values[static_cast<size_t>(1 * columns + 0)] = id;
    const kvc_error error = bad.expect(KVC_ERROR_OUT_OF_RANGE, {"block_table", std::to_string(id), "row 1", "column 0",
                                                                std::to_string(bad.call.k_cache.shape[0])});
    EXPECT_EQ(error.index, 1);
  }
  Refusal limit;
  limit.call.table.values[2] = static_cast<int32_t>(limit.call.k_cache.shape[0]);
  limit.expect(KVC_ERROR_OUT_OF_RANGE, {"row 0", "column 2"});
  Refusal appended;  // only the new tokens are there
  const int64_t last = (appended.call.length(0) - 1) / 16;
  appended.call.table.values[static_cast<size_t>(last)] = -1;
  appended.expect(KVC_ERROR_OUT_OF_RANGE, {"row 0", "column " + std::to_string(last)});
}

TEST(FlashAttnRefuses, CachesTooSmallForTheAppend) {
  Refusal bad;
  const auto capacity = static_cast<int32_t>(bad.call.table.shape[1] * 16);
  bad.call.lengths.values[2] = capacity - 1;
  const kvc_error error = bad.expect(KVC_ERROR_BUFFER_TOO_SMALL, {"row 2", std::to_string(capacity), "2 too many"});
  EXPECT_EQ(error.index, 2);
  EXPECT_EQ(error.required, capacity + 2);
  EXPECT_EQ(error.available, capacity);
  FlashSetting contiguous = paged_setting();
  contiguous.page = 0;
  Refusal other(contiguous);
  other.call.lengths.values[0] = static_cast<int32_t>(other.call.k_cache.shape[1]);
  other.expect(KVC_ERROR_BUFFER_TOO_SMALL, {"row 0", "3 too many"});
}

TEST(FlashAttnRefuses, ValuesOfIndexTensors) {
  const auto check = [](
                         const std::function<void(Refusal *)> &change, const std::vector<std::string> &mentions,
                         const std::function<void(FlashSetting *)> &adjust = [](FlashSetting *) {},
                         kvc_status status = KVC_ERROR_OUT_OF_RANGE) {
    FlashSetting setting = paged_setting();
    adjust(&setting);
    Refusal bad(setting);
    change(&bad);
    return bad.expect(status, mentions).index;
  };
  check([](Refusal *b) { b->call.lengths.values[1] = -1; }, {"cache_seqlens", "row 1", "-1"});
  check([](Refusal *b) { b->call.lengths.values[1] = 1 << 20; }, {"cache_seqlens", "row 1", "1048576"});
  const auto padded = [](FlashSetting *s) { s->pad = Pad::kLeft; };
  check([](Refusal *b) { b->call.pads.values[2] = -3; }, {"cache_leftpad", "row 2", "-3"}, padded);
  check([](Refusal *b) { b->call.pads.values[2] = b->call.lengths.values[2] + 1; }, {"cache_leftpad", "row 2"}, padded);
  const auto permuted = [](FlashSetting *s) { s->which = Rows::kPermuted; };
  check([](Refusal *b) { b->call.cache_rows.values[0] = 5; }, {"cache_batch_idx", "row 0", "5", "0..4"}, permuted);
  check([](Refusal *b) { b->call.cache_rows.values[0] = -1; }, {"cache_batch_idx", "-1"}, permuted);
  EXPECT_EQ(check([](Refusal *b) { b->call.cache_rows.values[2] = b->call.cache_rows.values[0]; },
                  {"cache_batch_idx", "rows 0 and 2"}, permuted, KVC_ERROR_INVALID_ARGUMENT),
            2);
  const auto ragged = [](FlashSetting *s) { s->ragged_q = true, s->append = New::kRagged; };
  check([](Refusal *b) { b->call.cu_q.values[0] = 1; }, {"cu_seqlens_q[0]", "1"}, ragged);
  check([](Refusal *b) { b->call.cu_q.values[3] = 1000; }, {"cu_seqlens_q[3]", "1000"}, ragged);
  check([](Refusal *b) { b->call.cu_new.values[1] = -1; }, {"cu_seqlens_k_new[1]", "-1"}, ragged);
  check([](Refusal *b) { b->call.cos.shape[0] = b->call.sin.shape[0] = 50, b->args = b->call.args(); },
        {"row 0", "rotary_cos", "50"});
  check(
      [](Refusal *b) { b->call.cos.shape[0] = b->call.sin.shape[0] = b->call.length(0) - 1, b->args = b->call.args(); },
      {"row 0", "rotary_cos"});  // one row too few
}

TEST(FlashAttnRefuses, Overlaps) {
  Refusal bad;
  FlashCall &c = bad.call;
  bad.args.out = bad.args.q;
  bad.expect(KVC_ERROR_INVALID_ARGUMENT, {"out", "q", "overlaps"});
  bad.args = c.args();
  c.out.begin = 4;
  bad.args.softmax_lse = c.lse.dl();
  DLTensor inside = *c.lse.dl();
  inside.data = c.k_cache.bytes.data() + 64;
  bad.args.softmax_lse = &inside;
  bad.expect(KVC_ERROR_INVALID_ARGUMENT, {"softmax_lse", "k_cache"});
  bad.args = c.args();
  DLTensor same = *c.k_cache.dl();
  bad.args.v_cache = &same;
  bad.expect(KVC_ERROR_INVALID_ARGUMENT, {"k_cache", "v_cache"});
  bad.args = c.args();
  DLTensor k_inside = *c.k.dl();
  k_inside.data = c.k_cache.bytes.data();
  bad.args.k = &k_inside;
  bad.expect(KVC_ERROR_INVALID_ARGUMENT, {"k_cache", "k"});
}

TEST(FlashAttnRefuses, ViewsThatShareOneElement) {
  FlashSetting setting = paged_setting();
  setting.qv = Qv::kOneBuffer;
  Refusal bad(setting);
  bad.call.k_cache = bad.call.joint.columns(setting.dv - 1, setting.d);
  bad.args = bad.call.args();
  bad.expect(KVC_ERROR_INVALID_ARGUMENT, {"k_cache", "v_cache", "overlaps"});
}

TEST(FlashAttnRefuses, TensorsAndContradictions) {
  using Args = kvc_flash_attn_args;
  const auto check = [](kvc_status status, const std::function<void(Args *, FlashCall *)> &change,
                        const std::vector<std::string> &mentions, const FlashSetting &setting = paged_setting()) {
    Refusal bad(setting);
    change(&bad.args, &bad.call);
    bad.expect(status, mentions);
  };
  check(KVC_ERROR_NULL_ARGUMENT, [](Args *a, FlashCall *) { a->q = nullptr; }, {"q"});
  check(KVC_ERROR_NULL_ARGUMENT, [](Args *a, FlashCall *) { a->out = nullptr; }, {"out"});
  check(KVC_ERROR_NULL_ARGUMENT, [](Args *a, FlashCall *) { a->v_cache = nullptr; }, {"v_cache"});
  check(KVC_ERROR_NULL_ARGUMENT, [](Args *a, FlashCall *) { a->k = nullptr; }, {"k is NULL"});
  check(KVC_ERROR_NULL_ARGUMENT, [](Args *a, FlashCall *) { a->cache_seqlens = nullptr; }, {"cache_seqlens"});
  check(KVC_ERROR_INVALID_ARGUMENT, [](Args *a, FlashCall *) { a->seqused_k = a->cache_seqlens; }, {"seqused_k"});
  check(KVC_ERROR_NULL_ARGUMENT, [](Args *a, FlashCall *) { a->rotary_sin = nullptr; }, {"rotary_sin"});
  check(KVC_ERROR_INVALID_ARGUMENT, [](Args *a, FlashCall *) { a->k = a->v = nullptr; }, {"rotary_cos", "k is not"});
  check(KVC_ERROR_INVALID_ARGUMENT, [](Args *a, FlashCall *c) { a->k_descale = c->k_descale.dl(); },
        {"k_descale", "float8"});
  check(KVC_ERROR_INVALID_ARGUMENT, [](Args *a, FlashCall *) { a->window_left = 3; }, {"window_left", "flag"});
  check(KVC_ERROR_UNSUPPORTED, [](Args *a, FlashCall *) { a->flags = 64; }, {"flags 0x40"});
  check(KVC_ERROR_OUT_OF_RANGE, [](Args *a, FlashCall *) { a->num_splits = 257; }, {"num_splits 257"});
  check(KVC_ERROR_OUT_OF_RANGE, [](Args *a, FlashCall *) { a->softcap = -1; }, {"softcap -1"});
  check(KVC_ERROR_OUT_OF_RANGE, [](Args *a, FlashCall *) { a->attention_chunk = -1; }, {"attention_chunk -1"});
  check(KVC_ERROR_SHAPE, [](Args *a, FlashCall *c) { c->q.shape[3] = 60, a->q = c->q.dl(); }, {"q has 60 dims", "64"});
  check(KVC_ERROR_SHAPE, [](Args *a, FlashCall *c) { c->q.shape[2] = 5, a->q = c->q.dl(); }, {"5 heads", "3"});
  check(KVC_ERROR_SHAPE, [](Args *a, FlashCall *c) { c->out.shape[1] = 2, a->out = c->out.dl(); }, {"out"});
  check(KVC_ERROR_SHAPE, [](Args *a, FlashCall *c) { c->lse.shape[1] = 5, a->softmax_lse = c->lse.dl(); },
        {"softmax_lse"});
  check(KVC_ERROR_SHAPE, [](Args *a, FlashCall *c) { c->v.shape[1] = 2, a->v = c->v.dl(); }, {"v has shape"});
  check(KVC_ERROR_SHAPE, [](Args *a, FlashCall *c) { c->v_cache.shape[1] = 8, a->v_cache = c->v_cache.dl(); },
        {"v_cache"});
  check(KVC_ERROR_SHAPE, [](Args *a, FlashCall *c) { c->table.shape[0] = 2, a->block_table = c->table.dl(); },
        {"block_table has 2 rows"});
  check(KVC_ERROR_RANK, [](Args *a, FlashCall *c) { a->cu_seqlens_q = c->cu_q.dl(); }, {"q has 4 dims, not 3"});
  check(KVC_ERROR_STRIDE, [](Args *a, FlashCall *c) { c->q.strides[3] = 2, a->q = c->q.dl(); }, {"q", "stride 2"});
  check(KVC_ERROR_STRIDE, [](Args *a, FlashCall *c) { c->k_cache.strides[0] = 0, a->k_cache = c->k_cache.dl(); },
        {"k_cache is written"});
  const auto retype = [](const DLTensor **t, DLDataType type, DLTensor *copy) {
    *copy = **t, copy->dtype = type, *t = copy;
  };
  DLTensor copy;
  check(KVC_ERROR_DTYPE, [&](Args *a, FlashCall *) { retype(&a->q, {kDLInt, 32, 1}, &copy); }, {"q has dtype"});
  check(KVC_ERROR_DTYPE, [&](Args *a, FlashCall *) { retype(&a->k_cache, {kDLInt, 8, 1}, &copy); },
        {"k_cache has dtype"});
  check(KVC_ERROR_DTYPE, [&](Args *a, FlashCall *) { retype(&a->block_table, {kDLFloat, 32, 1}, &copy); },
        {"block_table", "int32"});
  check(KVC_ERROR_DTYPE, [&](Args *a, FlashCall *) { retype(&a->cache_seqlens, {kDLInt, 4, 1}, &copy); },
        {"cache_seqlens"});
  check(KVC_ERROR_DEVICE, [&](Args *a, FlashCall *) { copy = *a->q, copy.device = {kDLMetal, 0}, a->q = &copy; },
        {"q is on device"});
  check(KVC_ERROR_DTYPE, [&](Args *a, FlashCall *) { retype(&a->k, {kDLInt, 32, 1}, &copy); },
        {"k has dtype", "cache"});
  check(KVC_ERROR_DTYPE, [&](Args *a, FlashCall *) { retype(&a->v_cache, {kDLFloat, 16, 1}, &copy); },
        {"v_cache has dtype", "k_cache"});
  check(KVC_ERROR_DTYPE, [&](Args *a, FlashCall *) { retype(&a->cache_seqlens, {kDLUInt, 64, 1}, &copy); },
        {"cache_seqlens has dtype", "int32 or int64"});
  check(KVC_ERROR_DTYPE, [&](Args *a, FlashCall *) { retype(&a->rotary_sin, {kDLInt, 32, 1}, &copy); },
        {"rotary_sin has dtype"});
  const int64_t wide[2] = {8, 33};
  check(KVC_ERROR_SHAPE,
        [&](Args *a, FlashCall *c) {
          copy = *a->rotary_cos, copy.shape = const_cast<int64_t *>(wide), copy.strides = nullptr;
          copy.data = c->k_cache.bytes.data();  // refused before it is read
          a->rotary_cos = a->rotary_sin = &copy;
        },
        {"66 dims of 64"});
}

// Options that float8 and MLA rows do not support.
TEST(FlashAttnRefuses, RotationAndScalesThatDoNotFit) {
  FlashSetting float8 = paged_setting();
  float8.kv = float8.fresh = DType::kE4M3, float8.rotary_dim = 0;
  Refusal rotated(float8);
  Array table(DType::kF32, {200, 16});
  rotated.args.rotary_cos = rotated.args.rotary_sin = table.dl();
  rotated.expect(KVC_ERROR_UNSUPPORTED, {"rotary_cos", "float8 k", "before quantising"});
  FlashSetting latent = paged_setting();
  latent.kv = latent.fresh = DType::kE4M3, latent.rotary_dim = 0, latent.qv = Qv::kApart, latent.append = New::kNone;
  Refusal scaled(latent);
  Array scale(DType::kF32, {latent.rows, latent.hkv});
  scaled.args.k_descale = scale.dl();
  scaled.expect(KVC_ERROR_UNSUPPORTED, {"qv with k_descale"});
}

TEST(AppendSlotsRefuses, BadInput) {
  const ContextPtr context = make_context(1);
  Array k(DType::kF32, {6, 2, 8}), v(DType::kF32, {6, 2, 4}), k_cache(DType::kF32, {5, 4, 2, 8}),
      v_cache(DType::kF32, {5, 4, 2, 4});
  Array cos(DType::kF32, {10, 2}), sin(DType::kF32, {10, 2}), scale(DType::kF32, {1}), wide(DType::kF32, {5, 4, 1, 12});
  Indexes<int64_t> slots({0, 5, -1, 7, 19, 3}), too_far({0, 5, -1, 20, 19, 3});
  Indexes<> positions({0, 9, 100, 1, 2, 3}), beyond({0, 10, 1, 1, 2, 3});
  const auto check = [&](kvc_status status, const std::function<void(kvc_append_slots_args *)> &change,
                         const std::vector<std::string> &mentions) {
    kvc_append_slots_args args;
    kvc_append_slots_args_init(&args);
    args.k = k.dl(), args.v = v.dl(), args.k_cache = k_cache.dl(), args.v_cache = v_cache.dl(),
    args.slot_mapping = slots.dl();
    change(&args);
    const auto before = std::make_pair(k_cache.bytes, v_cache.bytes);
    const kvc_error error = refused(
        nullptr, {status}, "kvc_append_slots",
        [&](kvc_error *e) { return kvc_append_slots(context.get(), &args, nullptr, e); }, mentions);
    EXPECT_TRUE(before == std::make_pair(k_cache.bytes, v_cache.bytes));
    return error.index;
  };
  using Args = kvc_append_slots_args;
  EXPECT_EQ(check(KVC_ERROR_OUT_OF_RANGE, [&](Args *a) { a->slot_mapping = too_far.dl(); }, {"slot_mapping[3]", "20"}),
            3);
  const auto rotate = [&](Args *a, Indexes<> *p) {
    a->rotary_cos = cos.dl(), a->rotary_sin = sin.dl(), a->positions = p->dl();
  };
  EXPECT_EQ(check(KVC_ERROR_OUT_OF_RANGE, [&](Args *a) { rotate(a, &beyond); }, {"positions[1]", "10"}), 1);
  check(KVC_ERROR_INVALID_ARGUMENT, [&](Args *a) { rotate(a, &positions), a->positions = nullptr; }, {"positions"});
  check(KVC_ERROR_INVALID_ARGUMENT, [&](Args *a) { a->k_scale = scale.dl(); }, {"k_scale", "float8"});
  DLTensor inside = *v_cache.dl();
  inside.data = k_cache.bytes.data() + 4;
  check(KVC_ERROR_INVALID_ARGUMENT, [&](Args *a) { a->v_cache = &inside; }, {"v_cache", "k_cache"});
  check(KVC_ERROR_SHAPE, [&](Args *a) { a->v_cache = nullptr; }, {"v_cache is NULL", "2 heads"});
  check(KVC_ERROR_SHAPE, [&](Args *a) { a->v_cache = nullptr, a->k_cache = wide.dl(); }, {"v", "heads"});
  check(KVC_ERROR_NULL_ARGUMENT, [](Args *a) { a->slot_mapping = nullptr; }, {"slot_mapping"});
  check(KVC_ERROR_NULL_ARGUMENT, [](Args *a) { a->k = nullptr; }, {"k"});
  check(KVC_ERROR_UNSUPPORTED, [](Args *a) { a->flags = 2; }, {"flags 0x2"});
  DLTensor copy;
  const auto retype = [&copy](const DLTensor **t, DLDataType type) { copy = **t, copy.dtype = type, *t = &copy; };
  check(KVC_ERROR_DTYPE, [&](Args *a) { retype(&a->k, {kDLInt, 32, 1}); }, {"k has dtype", "cache"});
  check(KVC_ERROR_DTYPE, [&](Args *a) { retype(&a->slot_mapping, {kDLFloat, 32, 1}); }, {"slot_mapping", "int64"});
  check(KVC_ERROR_DTYPE, [&](Args *a) { rotate(a, &positions), retype(&a->rotary_cos, {kDLInt, 32, 1}); },
        {"rotary_cos has dtype"});
  Array k8(DType::kE4M3, {6, 2, 8}), v8(DType::kE4M3, {6, 2, 4}), k_pages(DType::kE4M3, {5, 4, 2, 8}),
      v_pages(DType::kE4M3, {5, 4, 2, 4}), scales(DType::kF32, {3});
  const auto float8 = [&](Args *a) { a->k_cache = k_pages.dl(), a->v_cache = v_pages.dl(); };
  check(KVC_ERROR_UNSUPPORTED, [&](Args *a) { float8(a), a->k = k8.dl(), a->v = v8.dl(), rotate(a, &positions); },
        {"rotary_cos with float8 k"});
  check(KVC_ERROR_SHAPE, [&](Args *a) { float8(a), a->k_scale = scales.dl(); }, {"k_scale has 3 elements", "1 or 2"});
  check(KVC_ERROR_DTYPE, [&](Args *a) { float8(a), a->k_scale = scale.dl(), retype(&a->k_scale, {kDLInt, 32, 1}); },
        {"k_scale has dtype", "float32"});
  kvc_append_slots_args args;
  kvc_append_slots_args_init(&args);
  args.k = k.dl(), args.v = v.dl(), args.k_cache = k_cache.dl(), args.v_cache = v_cache.dl(),
  args.slot_mapping = slots.dl();
  rotate(&args, &positions);  // tokens that are not stored may have any position
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_append_slots(context.get(), &args, nullptr, &error), KVC_OK) << error.message;
}

}  // namespace
}  // namespace kvt
