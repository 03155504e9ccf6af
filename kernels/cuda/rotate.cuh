// Rotates one dim of a row (RoPE). Products and sums are float32. The compiler does not fuse them (-fmad=false), so
// every backend stores the same bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

// The two dims of a rotated pair. index: which angle the pair has. is_second: whether the requested dim is `second`.
struct Pair {
  int32_t first, second, index;
  bool is_second;
};

// The pair of dim d, which must be a rotated dim.
__device__ __forceinline__ Pair pair_of(const kvc_backend_layer& layer, int32_t d) {
  const int32_t half = layer.rope_dim / 2, within = d - layer.rope_offset;
  Pair pair;
  if (layer.rope_interleaved != 0) {
    pair.index = within / 2;
    pair.is_second = within % 2 != 0;
    pair.first = layer.rope_offset + 2 * pair.index;
    pair.second = pair.first + 1;
  } else {
    pair.is_second = within >= half;
    pair.index = pair.is_second ? within - half : within;
    pair.first = layer.rope_offset + pair.index;
    pair.second = pair.first + half;
  }
  return pair;
}

__device__ __forceinline__ bool is_rotated(const kvc_backend_layer& layer, int32_t d) {
  return d >= layer.rope_offset && d < layer.rope_offset + layer.rope_dim;
}

__device__ __forceinline__ float rotated_dim(const Pair& pair, float a, float b, float cos, float sin) {
  return pair.is_second ? b * cos + a * sin : a * cos - b * sin;
}

}  // namespace kvc::kernels::cuda
