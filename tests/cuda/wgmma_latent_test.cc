// Attention over latent rows by warpgroups, apart from its numbers, which tests/kernels tests: which calls they
// compute, how shared memory is cut, and queries that come in two parts, rotated or unaligned.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "kernels/common/row_formats.h"
#include "kernels/cuda/attend/wgmma/latent.cuh"
#include "mma_call.h"
#include "opened.h"

namespace kvc::kernels::cuda {
namespace {

struct LatentCall : Call {
  explicit LatentCall(int32_t heads = 128) : Call(Type::kBf16, Type::kBf16, 576, 512) {
    layer.row_kind = KVC_BACKEND_ROW_LATENT;
    layer.num_kv_heads = 1;
    layer.num_q_heads = heads;
  }
  std::string why(const BlockCut& cut = kWideRows) const {
    const char* const reason = why_not_wgmma_latent(args, cut);
    return reason == nullptr ? "" : reason;
  }
};

TEST(WgmmaLatentPlan, WhatWarpgroupsCompute) {
  const auto but = [](const std::function<void(LatentCall&)>& change) {
    LatentCall call;
    change(call);
    return call.why();
  };
  EXPECT_EQ(LatentCall().why(), "");
  EXPECT_EQ(
      but([](LatentCall& c) { c.args.q.dtype = {kDLFloat, 16, 1}, c.layer.format = stored_format(c.args.q.dtype); }),
      "");
  EXPECT_EQ(but([](LatentCall& c) { c.layer.row_kind = KVC_BACKEND_ROW_LATENT_SPLIT; }), "");
  EXPECT_EQ(but([](LatentCall& c) { c.layer.row_kind = KVC_BACKEND_ROW_KV; }), "V is not in K's row");
  EXPECT_EQ(but([](LatentCall& c) { c.layer.head_dim = 512; }), "rows are not 512 + 64 dims");
  EXPECT_EQ(but([](LatentCall& c) { c.layer.v_head_dim = 256; }), "rows are not 512 + 64 dims");
  EXPECT_EQ(but([](LatentCall& c) { c.args.q.dtype = {kDLFloat, 32, 1}; }), "q has not 16 bits");
  EXPECT_EQ(but([](LatentCall& c) { c.args.q.dtype = {kDLFloat, 16, 1}; }), "K has another type than q");
  EXPECT_EQ(but([](LatentCall& c) { c.layer.format = stored_format({kDLFloat8_e4m3fn, 8, 1}); }),
            "K has another type than q");
  const uint8_t mask = 1;
  EXPECT_EQ(but([&](LatentCall& c) { c.args.bias.mask = &mask; }), "scores have a bias or a mask");
  const double table = 0.0;
  EXPECT_EQ(but([&](LatentCall& c) { c.args.key_tables = &table; }), "keys are rotated on read");
  EXPECT_EQ(but([](LatentCall& c) { c.plan.fold_keys = 1024; }), "the cache is deterministic");
  EXPECT_EQ(but([](LatentCall& c) { c.layer.page_size = 12; }), "the page size is no multiple of 8");
  EXPECT_EQ(but([](LatentCall& c) { c.layer.v.slot_stride_bytes += 8; }), "rows are not aligned to 16 bytes");
}

// They are copied without TMA, so any number of slots will do.
TEST(WgmmaLatentPlan, RowsOfFp8DsMla) {
  const auto but = [](const std::function<void(LatentCall&)>& change) {
    LatentCall call;
    call.layer.format = descriptor_of(*packed_row_format(KVC_ROW_FORMAT_FP8_DS_MLA), true, 576);
    change(call);
    return call.why();
  };
  EXPECT_EQ(but([](LatentCall&) {}), "");
  EXPECT_EQ(but([](LatentCall& c) { c.layer.page_size = 1; }), "");
  EXPECT_EQ(but([](LatentCall& c) { c.args.alibi_slopes = reinterpret_cast<const float*>(&c); }), "");
  EXPECT_EQ(but([](LatentCall& c) { c.args.q.dtype = {kDLFloat, 16, 1}; }),
            "q has another type than the last dims of K");
  EXPECT_EQ(but([](LatentCall& c) { c.layer.k.slot_stride_bytes += 8; }), "rows are not aligned to 16 bytes");
  const double table = 0.0;
  EXPECT_EQ(but([&](LatentCall& c) { c.args.key_tables = &table; }), "keys are rotated on read");
  EXPECT_EQ(but([](LatentCall& c) { c.plan.fold_keys = 1024; }), "the cache is deterministic");
  for (const int32_t other : {KVC_ROW_FORMAT_FP8_DS_V4, KVC_ROW_FORMAT_NVFP4_DS_MLA, KVC_ROW_FORMAT_FP8_BLOCKS}) {
    EXPECT_EQ(but([&](LatentCall& c) { c.layer.format = descriptor_of(*packed_row_format(other), true, 576); }),
              "K has another type than q");
  }
}

TEST(WgmmaLatentPlan, BlocksOfFewRowsThatAQueryFills) {
  EXPECT_EQ(LatentCall(16).why(kFewRows), "");
  EXPECT_EQ(LatentCall(15).why(kFewRows), "rows are few");
  EXPECT_EQ(LatentCall(2).why(kFewRows), "rows are few");
  EXPECT_EQ(LatentCall(2).why(kWideRows), "");
}

TEST(WgmmaLatentPlan, SharedMemoryIsCutWithoutOverlap) {
  const LatentCall call;
  const WgmmaShape shape = wgmma_latent_shape(call.layer, static_cast<int32_t>(sizeof(LatentFixed)));
  EXPECT_GE(shape.q_at, static_cast<int32_t>(sizeof(LatentFixed)));
  EXPECT_EQ((shape.q_at | shape.k_at) % kPatternBytes, 0);
  EXPECT_EQ(shape.k_at, shape.q_at + 64 * 576 * 2);
  EXPECT_EQ(shape.v_at, shape.k_at);
  EXPECT_EQ(shape.shared_bytes, shape.k_at + 2 * 64 * 576 * 2);
  EXPECT_LE(shape.shared_bytes, 225 * 1024);  // scripts/ptxas_report.py assumes this size
  EXPECT_EQ(shape.box_keys, 16);
}

TEST(WgmmaLatentPlan, RotaryDimsAreBehindThoseOfV) {
  LatentCall call;
  EXPECT_EQ(rotary_dims(call.layer).dims, 576);
  EXPECT_EQ(rotary_dims(call.layer).first, 512);
  call.layer.row_kind = KVC_BACKEND_ROW_LATENT_SPLIT;
  EXPECT_EQ(rotary_dims(call.layer).dims, 64);
  EXPECT_EQ(rotary_dims(call.layer).first, 0);
}

// ---- Queries --------------------------------------------------------------------------------------

constexpr int kRows = 2, kHeads = 24, kRope = 64, kKeys = 90, kPage = 16, kPages = 6;

// Two rows, each with a query of 24 heads, over one page list. parted: the first 512 dims are in a tensor of their own.
// shift: elements from an alignment of 16 bytes to the queries.
struct QueryCall : LatentCall {
  std::vector<uint16_t> pool_memory, q_memory, qv_memory;
  std::vector<float> cos_sin, out;
  std::vector<int32_t> nodes;
  int32_t token_begin[kRows + 1] = {0, 1, 2}, lengths[kRows] = {kKeys, 51}, positions[kRows] = {kKeys - 1, 50};
  int32_t roots[kRows] = {}, levels[kRows] = {1, 1};
  kvc_backend_rows rows = {};
  kvc_backend_tables tables = {};
  kvc_backend_item items[kRows] = {};

  QueryCall(bool parted, bool rotated, int shift, bool negative) : LatentCall(kHeads) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](size_t count, std::vector<uint16_t>* memory) {
      memory->resize(count + 16);
      for (uint16_t& x : *memory) {
        Bf16 element;
        narrow(normal(random), &element);
        x = element.bits;
      }
      const uintptr_t at = reinterpret_cast<uintptr_t>(memory->data());
      return reinterpret_cast<uint16_t*>((at + 15) / 16 * 16);
    };
    layer.num_pages = kPages;
    layer.page_size = kPage;
    layer.softmax_scale = negative ? -0.05f : 0.05f;
    layer.rope_dim = kRope;
    layer.rope_offset = 512;
    layer.k = layer.v = test::pool_of(stored_dtype(layer), fill(kPages * kPage * 576, &pool_memory), kPage * 576,
                                      kPage * 576, 576, 576);
    const int behind = parted ? 0 : 512, width = behind + kRope;
    const DLDataType type = dtype(Type::kBf16);
    uint16_t* const q = fill(static_cast<size_t>(kRows * kHeads * 576 + 8), &q_memory);
    uint16_t* const qv = fill(static_cast<size_t>(kRows * kHeads * 512 + 24), &qv_memory);
    args.q = {q + shift, kHeads * width, width, type, 0};
    args.q_row_stride = 8;
    if (parted) args.qv = {qv + shift, kHeads * 512, 512, type, 0};
    args.qv_row_stride = 24;
    for (int i = 0; i < kRows * kRope; ++i) cos_sin.push_back(i % kRope < kRope / 2 ? 0.6f : 0.8f);
    args.cos_sin = rotated ? cos_sin.data() : nullptr;
    out.assign(kRows * kHeads * 512, -1.0f);
    args.out = {out.data(), kHeads * 512, 512, dtype(Type::kF32), 0};
    for (int i = 0; i < 32; ++i) nodes.push_back(i);
    rows.num_rows = rows.num_tokens = kRows;
    rows.token_begin = token_begin;
    rows.kv_lengths = lengths;
    rows.positions = positions;
    tables = {nodes.data(), roots, levels, nullptr, nullptr};
    for (int i = 0; i < kRows; ++i) {
      items[i].row = i;
      items[i].q_end = items[i].head_end = 1;
      items[i].key_end = lengths[i];
      items[i].tile = items[i].partial_offset = -1;
    }
    plan.arrays.rows = rows;
    plan.arrays.tables = tables;
    plan.arrays.items = items;
    plan.num_items = kRows;
  }
  std::vector<float> attend_by(const char* simd, bool by_warpgroups) {
    const Opened opened = open_device(0, simd);
    EXPECT_EQ(opened.status, KVC_OK) << opened.error.message;
    const int64_t before = cuda_emulation::counts().warpgroup_products;
    kvc_error error = KVC_ERROR_INIT;
    const kvc_backend* const table = backend_of(KVC_BACKEND_VERSION);
    EXPECT_EQ(test::staged_attend(table, opened.device, args, plan, nullptr, &error), KVC_OK) << error.message;
    EXPECT_EQ(cuda_emulation::counts().warpgroup_products > before, by_warpgroups);
    table->close(opened.device);
    return out;
  }
};

// The same call, computed by mma.sync.
TEST(WgmmaLatent, QueriesInPartsRotatedAndNotAligned) {
  std::vector<float> plain;
  for (const bool rotated : {false, true}) {
    for (const bool parted : {false, true}) {
      for (const int shift : {0, 1}) {
        QueryCall call(parted, rotated, shift, parted);
        const std::vector<float> other = call.attend_by("sm_90_mma", false), own = call.attend_by("sm_90", true);
        for (size_t i = 0; i < own.size(); ++i) ASSERT_NEAR(own[i], other[i], 6e-3f) << rotated << parted << shift << i;
        if (!rotated && !parted && shift == 0) plain = own;
        if (rotated && !parted && shift == 0) {
          EXPECT_NE(own, plain);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvc::kernels::cuda
