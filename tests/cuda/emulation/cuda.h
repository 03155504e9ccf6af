// The part of the driver's header that kernels/cuda uses, on the host: contexts and tensor maps. Names are CUDA's. The
// encoding of tensor maps is the emulation's own. It checks arguments as the driver's documentation demands
// (warpgroup.cc).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

using cuuint32_t = uint32_t;
using cuuint64_t = uint64_t;
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900 };
using CUdevice = int;
using CUcontext = struct CudaContext*;
CUresult cuDeviceGet(CUdevice* device, int ordinal);
// A device's primary context. The runtime also makes one when a thread without a context calls it.
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuCtxGetCurrent(CUcontext* context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy(CUcontext context);
using CUstream = struct CudaStream*;
CUresult cuStreamGetId(CUstream stream, unsigned long long* id);

enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0, CU_TENSOR_MAP_DATA_TYPE_UINT16 = 1 };
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_NONE = 0, CU_TENSOR_MAP_SWIZZLE_128B = 3 };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_NONE = 0, CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3 };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };

struct alignas(64) CUtensorMap {
  const unsigned char* data;
  cuuint64_t dims[4], strides[3];  // strides in bytes
  cuuint32_t box[4];
  cuuint32_t element_bytes;
  cuuint32_t swizzles;  // with the 128-byte pattern; else no swizzle
  unsigned char rest[128 - 8 - 32 - 24 - 16 - 8];
};
static_assert(sizeof(CUtensorMap) == 128);

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill);
