// merge: merges normalised results of attention over disjoint keys by their LSE, from left to right.
//
// A thread block merges one token. Each of its warps merges kRowsOfWarp heads at a time, and each lane some dims of
// these heads. Then lane r computes the LSE of the warp's head r.
//
// Roofline: memory bandwidth. The parts are read once, and the result is written once.
//
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/convert.h"
#include "kernels/common/merge.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarpSize;
constexpr int kRowsOfWarp = 4;
constexpr int kFewParts = 32;

// The kernel's parameter, passed by value. Up to kFewParts parts are passed in `few`. Then the call uploads nothing,
// and can be captured.
struct MergeCall {
  kvc_backend_merge args;  // args.parts is in device memory; null: the parts are in `few`
  Type out_type;
  kvc_backend_state few[kFewParts];
};

// The elements of a part that a lane loads at once: four float32, four elements of 16 bits, or one element of any type.
// Four and HalfFour convert elements later, in value(), so that all loads of a lane can be in flight. value(type, k) is
// element k as float32. type(dtype) is the type of a part.
struct alignas(16) Four {
  static constexpr int kDims = 4;
  __device__ __forceinline__ static Type type(DLDataType) { return Type::kF32; }
  float x[4];
  __device__ __forceinline__ float value(Type, int k) const { return x[k]; }
};
struct alignas(8) HalfFour {
  static constexpr int kDims = 4;
  __device__ __forceinline__ static Type type(DLDataType dtype) {
    return dtype.code == kDLFloat ? Type::kF16 : Type::kBf16;
  }
  uint16_t x[4];
  __device__ __forceinline__ float value(Type type, int k) const {
    return type == Type::kF16 ? to_float(F16{x[k]}) : to_float(Bf16{x[k]});
  }
};
struct One {
  static constexpr int kDims = 1;
  __device__ __forceinline__ static Type type(DLDataType dtype) { return type_of(dtype); }
  float x;
  __device__ __forceinline__ float value(Type, int) const { return x; }
};

template <class Group>
__device__ __forceinline__ Group load_group(Type, const unsigned char* at) {
  return *reinterpret_cast<const Group*>(at);
}
template <>
__device__ __forceinline__ One load_group<One>(Type type, const unsigned char* at) {
  return {load_element(type, at, 0)};
}

// A lane's dims of one part in kRowsOfWarp heads, and the LSE of each head. A head beyond the last has LSE -inf.
template <class Group>
struct PartRows {
  Group o[kRowsOfWarp];
  float lse[kRowsOfWarp];
  Type type;
};

// Loads the lane's dims (from dim d on) of part i, for kRowsOfWarp heads from `first` on. rows: the number of heads
// from `first` on.
template <class Group>
__device__ __forceinline__ void load_rows(const MergeCall& call, int32_t i, int64_t token, int32_t first, int32_t rows,
                                          int32_t d, PartRows<Group>* loaded) {
  const kvc_backend_state& part = call.args.parts != nullptr ? call.args.parts[i] : call.few[i];
  const kvc_backend_tensor& out = part.out;
  const float* lse = part.lse + (token * part.lse_token_stride + first * part.lse_head_stride);
  loaded->type = Group::type(out.dtype);
  const int64_t size = element_bytes(loaded->type), row_bytes = out.head_stride * size;
  const unsigned char* o =
      static_cast<const unsigned char*>(out.data) + (token * out.token_stride + first * out.head_stride + d) * size;
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    loaded->lse[r] = r < rows ? *lse : -INFINITY;
    loaded->o[r] = {};
    if (r < rows && d < call.args.dims) loaded->o[r] = load_group<Group>(loaded->type, o);
    lse += part.lse_head_stride;
    o += row_bytes;
  }
}

// Divides kDims dims of a row by the row's sum l, and writes them.
template <int kDims>
__device__ __forceinline__ void store_dims(Type type, unsigned char* to, float* o, float l) {
  const float scale = final_scale(0.0f, l, nullptr);
#pragma unroll
  for (int k = 0; k < kDims; ++k) o[k] *= scale;
  if (kDims == 4 && type == Type::kF32) {
    Four four;
#pragma unroll
    for (int k = 0; k < kDims; ++k) four.x[k] = o[k];
    *reinterpret_cast<Four*>(to) = four;
    return;
  }
#pragma unroll
  for (int k = 0; k < kDims; ++k) store_element(type, to, k, o[k]);
}

// Merges kDims dims of kRowsOfWarp heads, from dim d of head `first` on, and writes those dims that exist. The next
// part is loaded before the current part is merged. m, l: [kRowsOfWarp], set to the maximum and the sum of each head.
template <class Group>
__device__ __forceinline__ void merge_dims(const MergeCall& call, int64_t token, int32_t first, int32_t d, float* m,
                                           float* l) {
  const kvc_backend_merge& args = call.args;
  constexpr int kDims = Group::kDims;
  float o[kRowsOfWarp][kDims] = {};
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) m[r] = -INFINITY, l[r] = 0.0f;
  const int32_t rows = args.num_heads - first;
  PartRows<Group> next;
  load_rows(call, 0, token, first, rows, d, &next);
  for (int32_t i = 0; i < args.num_parts; ++i) {
    const PartRows<Group> part = next;
    if (i + 1 < args.num_parts) load_rows(call, i + 1, token, first, rows, d, &next);
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      float own[kDims];
#pragma unroll
      for (int k = 0; k < kDims; ++k) own[k] = part.o[r].value(part.type, k);
      if (part.lse[r] != -INFINITY) merge_state(o[r], &m[r], &l[r], own, part.lse[r], 1.0f, kDims);
    }
  }
  if (d >= args.dims) return;
  const kvc_backend_tensor& out = args.result.out;
  const int64_t size = element_bytes(call.out_type), row_bytes = out.head_stride * size;
  unsigned char* to =
      static_cast<unsigned char*>(out.data) + (token * out.token_stride + first * out.head_stride + d) * size;
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r, to += row_bytes) {
    if (r < rows) store_dims<kDims>(call.out_type, to, o[r], l[r]);
  }
}

// Merges kRowsOfWarp heads of a token, from head `first` on. The result may overwrite the first part. So each LSE is
// written only after all lanes have read the LSEs of these heads.
template <class Group>
__device__ __forceinline__ void merge_heads(const MergeCall& call, int64_t token, int32_t first) {
  const kvc_backend_merge& args = call.args;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize, heads = static_cast<int32_t>(args.num_heads);
  float m[kRowsOfWarp] = {}, l[kRowsOfWarp] = {};
  // All lanes run every iteration, even if their dims are beyond the last dim.
  constexpr int32_t kDims = Group::kDims;
  for (int32_t d = 0; d < args.dims; d += kDims * kWarpSize) {
    merge_dims<Group>(call, token, first, d + kDims * lane, m, l);
  }
  float m_of_lane = -INFINITY, l_of_lane = 0.0f;  // of head `first` + lane
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    m_of_lane = lane == r ? m[r] : m_of_lane;
    l_of_lane = lane == r ? l[r] : l_of_lane;
  }
  __syncwarp();
  if (args.result.lse == nullptr || lane >= kRowsOfWarp || first + lane >= heads) return;
  args.result.lse[token * args.result.lse_token_stride + (first + lane) * args.result.lse_head_stride] =
      final_lse(m_of_lane, l_of_lane, nullptr);
}

template <class Group>
__global__ void __launch_bounds__(kThreads, 4) merge_kernel(const __grid_constant__ MergeCall call) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / kWarpSize;
  for (int32_t first = warp * kRowsOfWarp; first < call.args.num_heads; first += kWarps * kRowsOfWarp) {
    merge_heads<Group>(call, blockIdx.x, first);
  }
}

// Chooses the kernel. Four elements at a time are merged on two conditions: all parts have elements of the same size,
// and addresses and strides allow aligned access to four elements.
void (*kernel_of(const kvc_backend_merge& args))(MergeCall) {
  const kvc_backend_tensor& out = args.result.out;
  const int64_t size = element_bytes(type_of(args.parts[0].out.dtype));
  int64_t elements = args.dims | out.token_stride | out.head_stride;
  uintptr_t addresses = type_of(out.dtype) == Type::kF32 ? reinterpret_cast<uintptr_t>(out.data) : 0;
  bool alike = true;
  for (int32_t i = 0; i < args.num_parts; ++i) {
    const kvc_backend_tensor& part = args.parts[i].out;
    alike = alike && element_bytes(type_of(part.dtype)) == size;
    elements |= part.token_stride | part.head_stride;
    // Four elements of 16 bits need an alignment of 8 bytes, and four of 32 bits need 16. Addresses of 16-bit elements
    // are doubled, so that one test for multiples of 16 is enough for both sizes.
    addresses |= reinterpret_cast<uintptr_t>(part.data) * (size == 4 ? 1 : 2);
  }
  if (!alike || elements % 4 != 0 || addresses % 16 != 0) return merge_kernel<One>;
  return size == 4 ? merge_kernel<Four> : merge_kernel<HalfFour>;
}

}  // namespace

kvc_status merge(kvc_backend_device* opened, const kvc_backend_merge* args, void* stream, kvc_error* error) {
  if (args->num_tokens == 0 || args->num_heads == 0) return KVC_OK;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  MergeCall call = {*args, type_of(args->result.out.dtype), {}};
  const auto kernel = kernel_of(*args);
  const auto run = [&] {
    return launch("merge", stream, {blocks_for(args->num_tokens, 1), 1, 1}, kThreads, 0, error, kernel, call);
  };
  if (args->num_parts <= kFewParts) {
    call.args.parts = nullptr;
    memcpy(call.few, args->parts, static_cast<size_t>(args->num_parts) * sizeof(kvc_backend_state));
    return run();
  }
  Piece parts = piece_of(args->parts, args->num_parts);
  return with_upload(&device.upload, &parts, 1, stream, error, [&] {
    call.args.parts = on_device<const kvc_backend_state>(parts);
    return run();
  });
}

}  // namespace kvc::kernels::cuda
