// Rotates one dim of a row. Products and sums are float32 and never fused (a compiler option), as on every backend,
// because stored bits are part of the contract.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

// The two dims of a rotated pair.
struct Pair {
  int32_t first, second, index;
  bool is_second;
};

// The pair of dim d. d must be a rotated dim.
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

__device__ __forceinline__ float turned(const Pair& pair, float a, float b, float cos, float sin) {
  return pair.is_second ? b * cos + a * sin : a * cos - b * sin;
}

}  // namespace kvc::kernels::cuda
