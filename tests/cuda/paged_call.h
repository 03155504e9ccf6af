// Calls over the paged cache of a server. The index tensors are on the device of KVC_TEST_DEVICE.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "arrays.h"
#include "wrappers.h"

namespace kvt {

// As long as it lives, index tensors are on the device, which is CUDA's.
struct DeviceIndexes {
  DeviceIndexes() {
    setenv("KVC_TEST_DEVICE", "cuda", 1);
    setenv("KVC_TEST_INDEXES", "device", 1);
  }
  ~DeviceIndexes() {
    setenv("KVC_TEST_DEVICE", "cuda", 1);
    unsetenv("KVC_TEST_INDEXES");
  }
};

// A call over a paged cache with rotation: 3 rows with 2 queries and 2 new tokens each; and kvc_append_slots to that
// cache.
struct PagedCall {
  static constexpr int kRows = 3, kEach = 2, kTokens = kRows * kEach, kPage = 4, kColumns = 5, kPages = 18, kHq = 2,
                       kDim = 8, kPositions = 40;

  explicit PagedCall(bool ragged = false) {
    std::mt19937 random(5);
    const Index tokens = ragged ? Index{kTokens} : Index{kRows, kEach};
    const auto make = [&](int64_t heads) {
      Index dims = tokens;
      dims.insert(dims.end(), {heads, kDim});
      Array array(DType::kF32, dims);
      array.fill_random(&random, 0.5f);
      return array;
    };
    q = make(kHq), k = make(1), v = make(1), out = make(kHq);
    k_cache = v_cache = Array(DType::kF32, {kPages, kPage, 1, kDim});
    cos = sin = Array(DType::kF32, {kPositions, kDim / 2});
    for (Array *array : {&k_cache, &v_cache, &cos, &sin}) array->fill_random(&random, 0.5f);
    if (ragged) cu_q = cu_new = Indexes<>({0, 2, 4, 6});
  }
  kvc_flash_attn_args args() {
    kvc_flash_attn_args args;
    kvc_flash_attn_args_init(&args);
    args.q = q.dl(), args.k = k.dl(), args.v = v.dl(), args.out = out.dl();
    args.k_cache = k_cache.dl(), args.v_cache = v_cache.dl();
    (other_name ? args.seqused_k : args.cache_seqlens) = lengths.dl();
    args.cache_batch_idx = cache_rows.dl(), args.cache_leftpad = pads.dl(), args.block_table = table.dl();
    args.rotary_cos = cos.dl(), args.rotary_sin = sin.dl();
    if (turns) args.rotary_seqlens = rotary.dl();
    if (!cu_q.values.empty()) args.cu_seqlens_q = cu_q.dl(), args.cu_seqlens_k_new = cu_new.dl();
    args.flags = KVC_FLASH_ATTN_CAUSAL;
    args.num_splits = num_splits;
    return args;
  }
  kvc_status attend(kvc_context *context, void *stream = nullptr) {
    const kvc_flash_attn_args given = args();
    error = KVC_ERROR_INIT;
    return kvc_flash_attn_with_kvcache(context, &given, stream, &error);
  }
  kvc_append_slots_args append_args() {
    kvc_append_slots_args args;
    kvc_append_slots_args_init(&args);
    args.k = k.dl(), args.v = v.dl(), args.k_cache = k_cache.dl(), args.v_cache = v_cache.dl();
    args.slot_mapping = slots.dl(), args.positions = positions.dl();
    args.rotary_cos = cos.dl(), args.rotary_sin = sin.dl();
    return args;
  }
  kvc_status append(kvc_context *context, void *stream = nullptr) {
    const kvc_append_slots_args given = append_args();
    error = KVC_ERROR_INIT;
    return kvc_append_slots(context, &given, stream, &error);
  }
  kvc_status check(kvc_context *context) {
    error = KVC_ERROR_INIT;
    return kvc_context_check(context, &error);
  }

  // Takes the values of another call. The addresses stay the same, because captured calls have them.
  void reset_from(const PagedCall &other) {
    out.bytes = other.out.bytes;
    k_cache.bytes = other.k_cache.bytes, v_cache.bytes = other.v_cache.bytes;
  }

  Array q, k, v, out, k_cache, v_cache, cos, sin;
  Indexes<> lengths{{9, 0, 14}}, cache_rows{{2, 0, 1}}, pads{{1, 0, 3}}, rotary{{9, 0, 14}}, cu_q, cu_new;
  Indexes<> table{{7, 1, 12, 3, 99, 2, 17, 0, 5, -9, 4, 6, 8, 10, -1}, {kRows, kColumns}};  // the last are not read
  Indexes<int64_t> slots{{5, 70, -1, 0, 33, 71}}, positions{{0, 39, 99, 3, 1, 2}};          // 99 is not read
  bool turns = true, other_name = false;
  int32_t num_splits = 0;
  kvc_error error = KVC_ERROR_INIT;
};

}  // namespace kvt
