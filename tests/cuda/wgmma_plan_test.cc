// Which calls warpgroups compute, how shared memory and pools are cut for them, and the names that choose them.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "kernels/cuda/attend/wgmma/tiles.cuh"
#include "kernels/cuda/backend.h"
#include "mma_call.h"

namespace kvc::kernels::cuda {
namespace {

// ---- Plan -----------------------------------------------------------------------------------------

struct WideCall : Call {
  explicit WideCall(int32_t dims = 128) : WideCall(dims, dims) {}
  WideCall(int32_t dims, int32_t v_dims) : Call(Type::kBf16, Type::kBf16, dims, v_dims) {}
  std::string why() const {
    const char* const reason = why_not_wgmma(args);
    return reason == nullptr ? "" : reason;
  }
};

constexpr int32_t kDimsOfInstances[][2] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};

TEST(WgmmaPlan, WhatWarpgroupsCompute) {
  for (const auto& [dims, v_dims] : kDimsOfInstances) EXPECT_EQ(WideCall(dims, v_dims).why(), "") << dims;
  for (const auto& [dims, v_dims] : {std::pair{192, 192}, {128, 64}, {128, 192}, {96, 96}, {192, 64}}) {
    EXPECT_EQ(WideCall(dims, v_dims).why(), "the head dims of K and V are none of 64, 128, 256, and 192 with 128")
        << dims;
  }
  const double table = 0.0;
  const auto but = [](const std::function<void(WideCall&)>& change) {
    WideCall call;
    change(call);
    return call.why();
  };
  EXPECT_EQ(but([](WideCall& c) { c.args.q.dtype = {kDLFloat, 32, 1}; }), "q has not 16 bits");
  EXPECT_EQ(but([](WideCall& c) { c.args.q.dtype = {kDLFloat, 16, 1}; }), "K has another type than q");
  EXPECT_EQ(but([](WideCall& c) { c.layer.format = stored_format({kDLInt, 8, 1}); }), "tokens have scales");
  for (const uint8_t code : {kDLFloat8_e4m3fn, kDLFloat8_e5m2}) {
    for (const auto& [dims, v_dims] : kDimsOfInstances) {
      WideCall call(dims, v_dims);
      call.layer.format = stored_format({code, 8, 1});
      EXPECT_EQ(call.why(), dims > 128 ? "K and V have 8 bits and more than 128 dims" : "") << dims;
    }
  }
  const float bias = 0.0f;
  const uint8_t mask = 1;
  EXPECT_EQ(but([&](WideCall& c) { c.args.bias.relative = &bias; }), "scores have a bias or a mask");
  EXPECT_EQ(but([&](WideCall& c) { c.args.bias.keys = &bias; }), "scores have a bias or a mask");
  EXPECT_EQ(but([&](WideCall& c) { c.args.bias.mask = &mask; }), "scores have a bias or a mask");
  EXPECT_EQ(but([&](WideCall& c) { c.args.key_tables = &table; }), "keys are rotated on read");
  EXPECT_EQ(but([](WideCall& c) { c.layer.row_kind = KVC_BACKEND_ROW_LATENT_SPLIT; }), "K is in two pools");
  EXPECT_EQ(but([](WideCall& c) { c.plan.fold_keys = 1024; }), "the cache is deterministic");
  for (int32_t page_size : {1, 4, 12, 100}) {
    EXPECT_EQ(but([&](WideCall& c) { c.layer.page_size = page_size; }), "the page size is no multiple of 8");
  }
  for (int64_t kvc_backend_pool::* stride : {&kvc_backend_pool::page_stride_bytes, &kvc_backend_pool::head_stride_bytes,
                                             &kvc_backend_pool::slot_stride_bytes}) {
    EXPECT_EQ(but([&](WideCall& c) { c.layer.v.*stride += 8; }), "rows are not aligned to 16 bytes");
    EXPECT_EQ(but([&](WideCall& c) { c.layer.k.*stride = int64_t{1} << 40; }), "TMA takes no such stride");
  }
  const std::string out_of_range = "TMA takes no such stride";
  EXPECT_EQ(but([](WideCall& c) { c.layer.v.slot_stride_bytes = 0; }), out_of_range);
  EXPECT_EQ(but([](WideCall& c) { c.layer.k.head_stride_bytes = 0; }), out_of_range);
  EXPECT_EQ(but([](WideCall& c) { c.layer.k.page_stride_bytes = 0; }), "");
}

// The parts of shared memory do not overlap, begin where the pattern of the swizzle begins, and fit a block of the GPU.
TEST(WgmmaPlan, SharedMemoryIsCutWithoutOverlap) {
  EXPECT_LE(sizeof(WgmmaFixed), size_t{14} * 1024);  // scripts/ptxas_report.py assumes this size
  for (const auto& [dims, v_dims] : kDimsOfInstances) {
    const WideCall call(dims, v_dims);
    const WgmmaShape shape = wgmma_shape(call.layer, static_cast<int32_t>(sizeof(WgmmaFixed)));
    const int32_t keys = wgmma_tile_keys(v_dims);
    EXPECT_GE(shape.q_at, static_cast<int32_t>(sizeof(WgmmaFixed)));
    EXPECT_EQ((shape.q_at | shape.k_at | shape.v_at) % kPatternBytes, 0);
    EXPECT_EQ(shape.k_at, shape.q_at + 128 * dims * 2);
    EXPECT_EQ(shape.v_at, shape.k_at + wgmma_stages(dims) * keys * dims * 2);
    EXPECT_EQ(shape.shared_bytes, shape.v_at + wgmma_value_stages(dims, false) * keys * v_dims * 2);
    EXPECT_LE(shape.shared_bytes, 227 * 1024);
    if (dims > 128) continue;
    WideCall bytes(dims);
    bytes.layer.format = stored_format({kDLFloat8_e4m3fn, 8, 1});
    const WgmmaShape raw = wgmma_shape(bytes.layer, static_cast<int32_t>(sizeof(WgmmaFixed)));
    EXPECT_EQ(raw.raw_at, raw.v_at + wgmma_value_stages(dims, true) * keys * dims * 2);
    EXPECT_EQ(raw.shared_bytes, raw.raw_at + 3 * 128 * dims);
    EXPECT_LE(raw.shared_bytes, 227 * 1024);
  }
}

// Tiles and pages consist of whole boxes, and boxes of whole patterns. Each box has a lane.
TEST(WgmmaPlan, BoxesDivideTilesAndPages) {
  for (int32_t tile : {64, 128}) {
    for (int32_t page = 8; page <= 1024; page += 8) {
      const int32_t keys = box_keys(page, tile);
      ASSERT_EQ(page % keys + tile % keys + keys % kPatternRows, 0) << page;
      ASSERT_LE(tile / keys, kWarpSize);
    }
    EXPECT_EQ(box_keys(16, tile), 16);
    EXPECT_EQ(box_keys(4096, tile), tile);
    EXPECT_EQ(box_keys(48, tile), 16);
  }
}

// ---- Names ----------------------------------------------------------------------------------------

kvc_status open_by(const char* name, std::string* implementation, std::string* message) {
  kvc_backend_open_args args = {};
  args.simd = name;
  kvc_backend_device* device = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  const kvc_backend* const table = backend_of(KVC_BACKEND_VERSION);
  const kvc_status status = table->open(&args, &device, &error);
  *message = error.message;
  if (status == KVC_OK) {
    *implementation = table->implementation(device);
    table->close(device);
  }
  return status;
}

TEST(WgmmaNames, TheDefaultAndTheOtherOne) {
  std::string implementation, message;
  ASSERT_EQ(open_by(nullptr, &implementation, &message), KVC_OK);
  EXPECT_EQ(implementation, "sm_90");
  for (const char* const name : {"sm_90", "sm_90_mma", "sm_90_simple"}) {
    ASSERT_EQ(open_by(name, &implementation, &message), KVC_OK) << message;
    EXPECT_EQ(implementation, name);
  }
  ASSERT_EQ(open_by("sm_80_mma", &implementation, &message), KVC_ERROR_UNSUPPORTED);
  EXPECT_EQ(message, "simd \"sm_80_mma\"; this device has sm_90_simple, sm_90_mma and sm_90");
}

// Each runtime call of an open fails in turn. The open reports which one it was.
TEST(WgmmaNames, CallsThatFail) {
  std::string implementation, message, messages;
  for (int64_t n = 1;; ++n) {
    ASSERT_LT(n, 300);
    cuda_emulation::fail_call(n, cudaErrorInvalidValue);
    const kvc_status status = open_by("sm_90", &implementation, &message);
    const bool reached = cuda_emulation::calls() >= n && status != KVC_OK;
    cuda_emulation::fail_call(0, cudaSuccess);
    if (!reached) break;
    messages += message + "\n";
    if (status == KVC_ERROR_UNSUPPORTED) continue;  // the device counts as one without warpgroup products
    EXPECT_EQ(status, n == 1 ? KVC_ERROR_DEVICE_UNAVAILABLE : KVC_ERROR_DEVICE_FAILED) << message;
    EXPECT_NE(message.find("cudaErrorInvalidValue"), std::string::npos) << message;
  }
  for (const char* call :
       {"cudaGetDeviceCount", "cudaDeviceGetAttribute", "cudaFuncGetAttributes", "cudaGetDriverEntryPointByVersion"}) {
    EXPECT_NE(messages.find(call), std::string::npos) << call << " is in none of:\n" << messages;
  }
}

}  // namespace
}  // namespace kvc::kernels::cuda
