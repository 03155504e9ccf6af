// Chooses the instance of the warpgroup kernels for a call, makes the tensor maps of the layer's pools, and launches
// the instance.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/wgmma/kernel.cuh"
#include "kernels/cuda/attend/wgmma/latent.cuh"
#include "kernels/cuda/attend/wgmma/launch.h"

namespace kvc::kernels::cuda {
namespace {

constexpr const char* kPurpose = "attend by warpgroups";

using EncodeMap = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                               const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                               CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// Makes the tensor map of a pool, with which TMA copies its rows. TMA copies elements unchanged, so the map may name
// any type of the right size. raw: the elements have 8 bits. Their rows are copied as stored, without a swizzle.
kvc_status encode_map(const Device& device, const kvc_backend_pool& pool, bool raw, const PoolBoxes& boxes,
                      CUtensorMap* map, kvc_error* error) {
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  cuuint64_t sizes[4], strides[3];
  for (int i = 0; i < 4; ++i) sizes[i] = boxes.sizes[i];
  for (int i = 0; i < 3; ++i) strides[i] = boxes.strides[i];
  const CUresult result = reinterpret_cast<EncodeMap>(device.encode_map)(
      map, raw ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, pool.data, sizes, strides,
      boxes.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, raw ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return KVC_OK;
  return fail(error, KVC_ERROR_DEVICE_FAILED,
              "cuTensorMapEncodeTiled gave %d for a pool with strides of %lld, %lld, %lld", static_cast<int>(result),
              static_cast<long long>(pool.page_stride_bytes), static_cast<long long>(pool.head_stride_bytes),
              static_cast<long long>(pool.slot_stride_bytes));
}

// A kernel and how it is launched. threads: the number of threads of a block. parts: the number of thread blocks for
// each block of the plan. k_dims: the number of dims of a row in the pool of K. by_boxes: the kernel reads the pools by
// TMA.
struct Instance {
  WgmmaKernel kernel;
  int32_t threads, parts, k_dims;
  bool by_boxes;
};

kvc_status launch_instance(const Device& device, const AttendCall& call, const Instance& instance,
                           const WgmmaShape& shape, int64_t blocks, void* stream, kvc_error* error) {
  const kvc_backend_layer& layer = call.layer;
  const bool raw = is_quantised(stored_type(layer));
  WgmmaCall wgmma = {};
  wgmma.attend = call;
  wgmma.shape = shape;
  wgmma.parts = instance.parts;
  const PoolBoxes k = pool_boxes(layer, layer.k, instance.k_dims, shape.box_keys);
  const PoolBoxes v = pool_boxes(layer, layer.v, layer.v_head_dim, shape.box_keys);
  wgmma.k_heads_first = k.heads_first;
  wgmma.v_heads_first = v.heads_first;
  const bool scaled = call.args.q_scales.data != nullptr || call.args.k_scales.data != nullptr;
  wgmma.has_units = scaled || layer.k_scales.data != nullptr ? 1 : 0;
  kvc_status status = KVC_OK;
  if (instance.by_boxes) {
    status = encode_map(device, layer.k, raw, k, &wgmma.k_map, error);
    if (status == KVC_OK) status = encode_map(device, layer.v, raw, v, &wgmma.v_map, error);
    if (status != KVC_OK) return status;
  }
  status = allow_shared(device, instance.kernel, kPurpose, error);
  if (status != KVC_OK) return status;
  return launch(kPurpose, stream, {static_cast<unsigned>(blocks * instance.parts), 1, 1},
                static_cast<unsigned>(instance.threads), static_cast<size_t>(shape.shared_bytes), error,
                instance.kernel, wgmma);
}

}  // namespace

bool has_wgmma_image() {
  // If the plug-in has no code for sm_90a, the kernel that the device runs has an empty body (attend/wgmma/kernel.cuh).
  // An empty body needs few registers.
  constexpr int kLeastRegisters = 128;
  cudaFuncAttributes attributes;
  const cudaError_t result =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(wgmma_kernel_of_bf16(128, false)));
  if (result != cudaSuccess) cudaGetLastError();
  return result == cudaSuccess && attributes.numRegs >= kLeastRegisters;
}

kvc_status use_wgmma(Device* device, kvc_error* error) {
  constexpr unsigned kVersion = 12000;  // the version of CUDA that introduced the function
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t result =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kVersion, cudaEnableDefault, &found);
  const kvc_status status = check(result, "cudaGetDriverEntryPointByVersion", kPurpose, error);
  if (status != KVC_OK) return status;
  if (found != cudaDriverEntryPointSuccess || function == nullptr) return KVC_OK;
  device->encode_map = function;
  return KVC_OK;
}

kvc_status launch_wgmma(const Device& device, const AttendCall& call, int64_t blocks, void* stream, kvc_error* error) {
  const kvc_backend_layer& layer = call.layer;
  const int32_t dims = layer.head_dim;
  const bool raw = is_quantised(stored_type(layer)), is_f16 = type_of(call.args.q.dtype) == Type::kF16;
  const WgmmaKernel kernel = is_f16 ? wgmma_kernel_of_f16(dims, raw) : wgmma_kernel_of_bf16(dims, raw);
  return launch_instance(device, call, {kernel, wgmma_threads(raw), 1, dims, true},
                         wgmma_shape(layer, static_cast<int32_t>(sizeof(WgmmaFixed))), blocks, stream, error);
}

kvc_status launch_wgmma_latent(const Device& device, const AttendCall& call, const BlockCut& cut, int64_t blocks,
                               void* stream, kvc_error* error) {
  const kvc_backend_layer& layer = call.layer;
  const int32_t parts = has_lists(call) ? call.listed.row_blocks : (cut.rows + kWarpgroupRows - 1) / kWarpgroupRows;
  if (blocks * parts > INT32_MAX) {
    return fail(error, KVC_ERROR_BATCH_TOO_LARGE, "%lld thread blocks of attention",
                static_cast<long long>(blocks * parts));
  }
  const bool listed = has_lists(call);
  const Instance instance = {wgmma_latent_kernel(type_of(call.args.q.dtype), listed, is_ds_mla(layer.format)),
                             kLatentThreads, parts, rotary_dims(layer).dims, has_latent_boxes(layer, listed)};
  return launch_instance(device, call, instance, wgmma_latent_shape(layer, static_cast<int32_t>(sizeof(LatentFixed))),
                         blocks, stream, error);
}

}  // namespace kvc::kernels::cuda
