// The stateless calls. After one call of a size, calls of that size allocate nothing. Running out of memory changes
// nothing.
#include <gtest/gtest.h>

#include "../stateless/arrays.h"
#include "interpose.h"
#include "wrappers.h"

namespace kvt {
namespace {

// Four rows of a paged cache with new tokens and rotation. They are long enough that their keys are split.
struct Call {
  static constexpr int64_t kRows = 4, kPages = 200, kPage = 16;
  Array q{DType::kF32, {kRows, 1, 8, 32}}, k{DType::kF32, {kRows, 1, 2, 32}}, v{DType::kF32, {kRows, 1, 2, 32}};
  Array k_cache{DType::kBF16, {kPages, kPage, 2, 32}}, v_cache{DType::kBF16, {kPages, kPage, 2, 32}};
  Array out{DType::kF32, {kRows, 1, 8, 32}}, cos{DType::kF32, {800, 16}}, sin{DType::kF32, {800, 16}};
  Indexes<> table{std::vector<int32_t>(kPages), {kRows, kPages / kRows}}, lengths{{700, 650, 3, 600}};
  Indexes<> slots{{1, 2, 3, 4}}, positions{{5, 6, 7, 8}};
  kvc_flash_attn_args args;
  kvc_append_slots_args slot_args;

  Call() {
    std::mt19937 random(1);
    for (Array *a : {&q, &k, &v, &k_cache, &v_cache, &cos, &sin}) a->fill_random(&random);
    std::iota(table.values.begin(), table.values.end(), 0);
    kvc_flash_attn_args_init(&args);
    args.flags = KVC_FLASH_ATTN_CAUSAL;
    args.q = q.dl(), args.k = k.dl(), args.v = v.dl(), args.k_cache = k_cache.dl(), args.v_cache = v_cache.dl();
    args.out = out.dl(), args.block_table = table.dl(), args.cache_seqlens = lengths.dl();
    args.rotary_cos = cos.dl(), args.rotary_sin = sin.dl(), args.num_splits = 3;
    kvc_append_slots_args_init(&slot_args);
    Array *const rows[] = {&k, &v};
    for (Array *a : rows) a->shape = {kRows, 2, 32}, a->strides = {64, 32, 1};
    rows_[0] = *k.dl(), rows_[1] = *v.dl();
    slot_args.k = &rows_[0], slot_args.v = &rows_[1], slot_args.k_cache = args.k_cache,
    slot_args.v_cache = args.v_cache;
    slot_args.slot_mapping = slots.dl(), slot_args.positions = positions.dl();
    slot_args.rotary_cos = args.rotary_cos, slot_args.rotary_sin = args.rotary_sin;
    k4_ = k, v4_ = v;
    for (Array *a : {&k4_, &v4_}) a->shape = {kRows, 1, 2, 32}, a->strides = {64, 64, 32, 1};
    args.k = k4_.dl(), args.v = v4_.dl();
  }

 private:
  DLTensor rows_[2];
  Array k4_, v4_;
};

TEST(StatelessFaults, NothingIsAllocatedTwice) {
  const ContextPtr context = make_context(1);
  Call call;
  kvc_error error = KVC_ERROR_INIT;
  const auto round = [&](int i) {
    call.lengths.values[0] = 700 - i % 50;
    return kvc_flash_attn_with_kvcache(context.get(), &call.args, nullptr, &error) == KVC_OK &&
           kvc_append_slots(context.get(), &call.slot_args, nullptr, &error) == KVC_OK;
  };
  for (int i = 0; i < 3; i++) ASSERT_TRUE(round(0)) << error.message;
  count_from_now();
  bool ok = true;
  for (int i = 0; i < 200 && ok; i++) ok = round(i);
  EXPECT_EQ(counts().allocations, 0);
  EXPECT_TRUE(ok) << error.message;
}

TEST(StatelessFaults, EveryAllocation) {
  int failures = 0;
  for (int64_t n = 1;; n++) {
    const ContextPtr context = make_context(1);
    Call call;
    const std::vector<uint8_t> k_before = call.k_cache.bytes, out_before = call.out.bytes;
    kvc_error error = KVC_ERROR_INIT;
    fail_allocation(n);
    const kvc_status status = kvc_flash_attn_with_kvcache(context.get(), &call.args, nullptr, &error);
    const bool happened = failed();
    fail_allocation(0);
    if (!happened) {
      EXPECT_EQ(status, KVC_OK) << error.message;
      break;
    }
    failures++;
    if (status == KVC_OK) continue;  // the call did not need this allocation
    EXPECT_EQ(status, KVC_ERROR_OUT_OF_MEMORY) << error.message;
    EXPECT_TRUE(call.k_cache.bytes == k_before) << "allocation " << n;
    EXPECT_TRUE(call.out.bytes == out_before) << "allocation " << n;
    EXPECT_EQ(kvc_flash_attn_with_kvcache(context.get(), &call.args, nullptr, &error), KVC_OK) << error.message;
  }
  EXPECT_GT(failures, 5);
}

}  // namespace
}  // namespace kvt
