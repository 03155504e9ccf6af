// Index tensors of every accepted type and rank, and arguments that a call ignores as FlashAttention does. The results
// have the same bits.
#include <functional>

#include "flash_call.h"

namespace kvt {
namespace {

struct Result {
  std::vector<uint8_t> out, lse, k, v;
  bool operator==(const Result &) const = default;
};

FlashSetting paged() {
  FlashSetting s;
  s.page = 16, s.sk = 200, s.sq = 5, s.append = New::kRagged, s.ragged_q = true, s.pad = Pad::kLeft;
  s.which = Rows::kPermuted, s.flags = KVC_FLASH_ATTN_CAUSAL, s.rotary_dim = 32;
  return s;
}

Result run(const FlashSetting &setting, const std::function<void(FlashCall *, kvc_flash_attn_args *)> &change) {
  const ContextPtr context = make_context(2);
  FlashCall call(setting);
  kvc_flash_attn_args args = call.args();
  change(&call, &args);
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_flash_attn_with_kvcache(context.get(), &args, nullptr, &error), KVC_OK) << error.message;
  return {call.out.storage(), call.lse.storage(), call.k_cache.storage(), call.v_cache.storage()};
}

Indexes<int64_t> as_int64(const Indexes<> &narrow) {
  return Indexes<int64_t>({narrow.values.begin(), narrow.values.end()}, narrow.shape);
}

TEST(FlashAttnIndexes, Int64) {
  const Result wanted = run(paged(), [](FlashCall *, kvc_flash_attn_args *) {});
  for (int which = 0; which < 7; which++) {
    SCOPED_TRACE(which);
    Indexes<int64_t> lengths, rows, pads, table, cu_q, cu_new;
    EXPECT_TRUE(wanted == run(paged(), [&](FlashCall *call, kvc_flash_attn_args *args) {
                  const bool all = which == 6;
                  const auto convert = [&](int i, const Indexes<> &from, Indexes<int64_t> *to,
                                           const DLTensor **tensor) {
                    if (!all && which != i) return;
                    *to = as_int64(from);
                    *tensor = to->dl();
                  };
                  convert(0, call->lengths, &lengths, &args->cache_seqlens);
                  convert(1, call->cache_rows, &rows, &args->cache_batch_idx);
                  convert(2, call->pads, &pads, &args->cache_leftpad);
                  convert(3, call->table, &table, &args->block_table);
                  convert(4, call->cu_q, &cu_q, &args->cu_seqlens_q);
                  convert(5, call->cu_new, &cu_new, &args->cu_seqlens_k_new);
                }));
  }
}

TEST(FlashAttnIndexes, LengthsOfRankZero) {
  FlashSetting setting = paged();
  setting.scalar_lengths = true, setting.pad = Pad::kNone;
  const Result wanted = run(setting, [](FlashCall *, kvc_flash_attn_args *) {});
  int64_t length = FlashCall(setting).cached(0);
  DLTensor one = {&length, {kDLCPU, 0}, 0, {kDLInt, 64, 1}, nullptr, nullptr, 0};
  EXPECT_TRUE(wanted == run(setting, [&](FlashCall *, kvc_flash_attn_args *args) { args->cache_seqlens = &one; }));
  EXPECT_TRUE(wanted == run(setting, [&](FlashCall *, kvc_flash_attn_args *args) {
                args->cache_seqlens = nullptr, args->seqused_k = &one;
              }));
  EXPECT_TRUE(wanted == run(setting, [&](FlashCall *, kvc_flash_attn_args *args) { args->rotary_seqlens = &one; }));
}

// A page id that exceeds int32 is invalid, whatever its low bits are.
TEST(FlashAttnIndexes, Int64PagesThatInt32DoesNotHoldAreRefused) {
  const ContextPtr context = make_context(1);
  FlashCall call(paged());
  kvc_flash_attn_args args = call.args();
  Indexes<int64_t> table = as_int64(call.table);
  for (int64_t &page : table.values) page += int64_t{1} << 32;
  args.block_table = table.dl();
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_flash_attn_with_kvcache(context.get(), &args, nullptr, &error), KVC_ERROR_OUT_OF_RANGE);
}

// Without rotary tables, and without new tokens, rotary_seqlens is not read.
TEST(FlashAttnIndexes, RotarySeqlensWithoutRotaryIsIgnored) {
  FlashSetting setting = paged();
  setting.rotary_dim = 0;
  Indexes<> far_out(std::vector<int32_t>{-5, INT32_MAX, 7, 8, 9});
  for (const New append : {New::kRagged, New::kNone}) {
    setting.append = append;
    const Result wanted = run(setting, [](FlashCall *, kvc_flash_attn_args *) {});
    EXPECT_TRUE(wanted ==
                run(setting, [&](FlashCall *, kvc_flash_attn_args *args) { args->rotary_seqlens = far_out.dl(); }));
  }
}

TEST(FlashAttnSinks, OfSixteenBits) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (const int heads : {6, 3}) {
      FlashSetting setting = paged();
      setting.sinks = true, setting.hq = heads;
      const FlashCall known(setting);
      Array half(type, {heads}), whole(DType::kF32, {heads});
      for (int64_t h = 0; h < heads; h++) {
        half.set({h}, known.sinks.get({h}));
        whole.set({h}, half.get({h}));
      }
      const Result wanted = run(setting, [&](FlashCall *, kvc_flash_attn_args *args) { args->sinks = whole.dl(); });
      EXPECT_TRUE(wanted == run(setting, [&](FlashCall *, kvc_flash_attn_args *args) { args->sinks = half.dl(); }));
      EXPECT_FALSE(wanted == run(setting, [&](FlashCall *, kvc_flash_attn_args *args) { args->sinks = nullptr; }));
    }
  }
}

}  // namespace
}  // namespace kvt
