// Calls of attend for the tests of the tensor-core kernels.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "kernels/cuda/attend/mma/plan.h"
#include "kernels/cuda/backend.h"
#include "pool.h"
#include "staged_attend.h"

namespace kvc::kernels::cuda {

inline DLDataType dtype(Type type) {
  switch (type) {
    case Type::kF32:
      return {kDLFloat, 32, 1};
    case Type::kF16:
      return {kDLFloat, 16, 1};
    case Type::kE4m3:
      return {kDLFloat8_e4m3fn, 8, 1};
    case Type::kE5m2:
      return {kDLFloat8_e5m2, 8, 1};
    case Type::kI8:
      return {kDLInt, 8, 1};
    case Type::kU4:
      return {kDLUInt, 4, 1};
    case Type::kE2m1:
      return {kDLFloat4_e2m1fn, 4, 1};
    default:
      return {kDLBfloat, 16, 1};
  }
}

struct Call {
  kvc_backend_layer layer = {};
  kvc_backend_plan plan = {};
  kvc_backend_attend args = {};
  explicit Call(Type q = Type::kBf16, Type stored = Type::kBf16, int32_t head_dim = 128, int32_t v_head_dim = 128) {
    layer.format = stored_format(dtype(stored));
    layer.head_dim = head_dim;
    layer.v_head_dim = v_head_dim;
    layer.page_size = 16;
    layer.num_q_heads = 8;
    layer.num_kv_heads = 2;
    layer.k = test::pool_of(dtype(stored), nullptr, 4096, 1024, 128, head_dim);
    layer.v = test::pool_of(dtype(stored), nullptr, 4096, 1024, 128, v_head_dim);
    args.q.dtype = dtype(q);
    point();
  }
  Call(const Call& other) : layer(other.layer), plan(other.plan), args(other.args) { point(); }
  Call& operator=(const Call&) = delete;
  std::string why() const {
    const char* const reason = why_simple(args);
    return reason == nullptr ? "" : reason;
  }

 private:
  void point() {
    plan.layer = args.layer = &layer;
    args.plan = &plan;
  }
};

// A call with a layer whose V is in K, or whose K rows are in two pools.
inline Call latent_call(Type q, Type stored, int32_t head_dim, int32_t v_head_dim, bool apart = false) {
  Call call(q, stored, head_dim, v_head_dim);
  call.layer.num_kv_heads = 1;
  call.layer.row_kind = apart ? KVC_BACKEND_ROW_LATENT_SPLIT : KVC_BACKEND_ROW_LATENT;
  return call;
}

// A device does as it was told, and the simple kernel multiplies no matrices.
struct Attended {
  int64_t products;
  float out;
};
inline Attended attend_on(const char* simd, int rows, int32_t head_dim, Type stored, int32_t latent_dim = 0,
                          int32_t rope_dim = 0) {
  const int32_t length = 200, token_begin[] = {0, rows}, root = 0, levels = 1;
  std::vector<int32_t> positions, nodes(32);
  for (int i = 0; i < rows; ++i) positions.push_back(length - rows + i);
  for (int i = 0; i < 32; ++i) nodes[i] = i;
  const size_t bytes = static_cast<size_t>(element_bytes(stored));
  std::vector<uint16_t> q(static_cast<size_t>(rows * head_dim), 0x3c00);
  std::vector<float> out(q.size(), -1.0f);
  unsigned char* const pool = static_cast<unsigned char*>(aligned_alloc(16, 32 * 16 * head_dim * bytes));
  for (int i = 0; i < 32 * 16 * head_dim; ++i) store_element(stored, pool, i, 0.5f);
  const int32_t v_dim = latent_dim > 0 ? latent_dim : head_dim;
  Call call(Type::kF16, stored, head_dim, v_dim);
  call.layer.row_kind = latent_dim > 0 ? KVC_BACKEND_ROW_LATENT : KVC_BACKEND_ROW_KV;
  call.layer.num_q_heads = call.layer.num_kv_heads = 1;
  call.layer.softmax_scale = 0.1f;
  call.layer.rope_dim = rope_dim;
  call.layer.rope_offset = head_dim - rope_dim;
  const std::vector<double> key_table(static_cast<size_t>(KVC_BACKEND_ROPE_LEVELS * KVC_BACKEND_ROPE_RADIX * rope_dim));
  call.args.key_tables = rope_dim > 0 ? key_table.data() : nullptr;
  call.layer.k = call.layer.v = test::pool_of(dtype(stored), pool, 16 * head_dim, 16 * head_dim, head_dim, head_dim);
  kvc_backend_rows all_rows = {};
  all_rows.num_rows = 1;
  all_rows.num_tokens = rows;
  all_rows.token_begin = token_begin;
  all_rows.kv_lengths = &length;
  all_rows.positions = positions.data();
  const kvc_backend_tables tables = {nodes.data(), &root, &levels, nullptr, nullptr};
  kvc_backend_item item = {};
  item.q_end = rows;
  item.head_end = 1;
  item.key_end = length;
  item.tile = -1;
  item.partial_offset = -1;
  call.plan.arrays.rows = all_rows;
  call.plan.arrays.tables = tables;
  call.plan.arrays.items = &item;
  call.plan.num_items = 1;
  call.args.q = {q.data(), head_dim, head_dim, dtype(Type::kF16), 0};
  call.args.out = {out.data(), v_dim, v_dim, dtype(Type::kF32), 0};
  kvc_backend_open_args open = {};
  open.simd = simd;
  kvc_backend_device* device = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  const kvc_backend* const table = backend_of(KVC_BACKEND_VERSION);
  EXPECT_EQ(table->open(&open, &device, &error), KVC_OK) << error.message;
  const int64_t before = cuda_emulation::counts().products;
  EXPECT_EQ(test::staged_attend(table, device, call.args, call.plan, nullptr, &error), KVC_OK) << error.message;
  const int64_t products = cuda_emulation::counts().products - before;
  table->close(device);
  free(pool);
  return {products, out[static_cast<size_t>(rows * v_dim - 1)]};
}

}  // namespace kvc::kernels::cuda
