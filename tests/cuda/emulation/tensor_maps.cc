// Tensor maps, with the limits that the driver documents.
#include <algorithm>

#include "cuda_runtime.h"

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(data) % 16 + reinterpret_cast<uintptr_t>(map) % 64;
  if (rank != 4 || addresses != 0) return CUDA_ERROR_INVALID_VALUE;
  const cuuint32_t bytes = type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2;
  const bool swizzles = swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
  if (box[0] * bytes % 16 != 0 || (swizzles && box[0] * bytes > 128)) return CUDA_ERROR_INVALID_VALUE;
  for (int d = 0; d < 4; ++d) {
    const bool fits = dims[d] > 0 && dims[d] <= uint64_t{1} << 32 && box[d] > 0 && box[d] <= 256;
    if (!fits || element_strides[d] != 1) return CUDA_ERROR_INVALID_VALUE;
    if (d > 0 && (strides[d - 1] == 0 || strides[d - 1] % 16 != 0 || strides[d - 1] >= uint64_t{1} << 40 ||
                  strides[d - 1] < dims[d - 1])) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  *map = {};
  map->data = static_cast<const unsigned char*>(data);
  std::copy(dims, dims + 4, map->dims);
  std::copy(strides, strides + 3, map->strides);
  std::copy(box, box + 4, map->box);
  map->element_bytes = bytes;
  map->swizzles = swizzles ? 1 : 0;
  return CUDA_SUCCESS;
}
