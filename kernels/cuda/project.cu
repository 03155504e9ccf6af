// project: multiplies rows of tokens by a matrix for each head. A block computes a tile of 16 x 16 outputs in float32,
// from tiles of both operands in shared memory.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {
namespace {

constexpr int32_t kTile = 16, kThreads = kTile * kTile;

struct Tiles {
  float rows[kTile][kTile + 1];     // [token][in]
  float weights[kTile][kTile + 1];  // [in][out]
};

// Tile (tokens, outs) of a head: blockIdx.x is the tile of tokens, .y the tile of outs, .z the head. Values of .y after
// the last tile of outs copy the tail, which is not multiplied.
__global__ void __launch_bounds__(kThreads) project_kernel(const __grid_constant__ kvc_backend_project args) {
  Tiles& tiles = *reinterpret_cast<Tiles*>(shared_bytes());
  const Type in_type = type_of(args.in.dtype), weight_type = type_of(args.weights.dtype);
  const int64_t head = blockIdx.z, x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kTile + y, out_tiles = (args.out_dims + kTile - 1) / kTile;
  const int64_t in = token * args.in.token_stride + head * args.in.head_stride;
  const int64_t to = token * args.out.token_stride + head * args.out.head_stride;
  if (blockIdx.y >= out_tiles) {
    const int64_t d = (blockIdx.y - out_tiles) * kTile + x;
    if (token < args.num_tokens && d < args.tail_dims) {
      store_element(type_of(args.out.dtype), args.out.data, to + args.out_dims + d,
                    load_element(in_type, args.in.data, in + args.in_dims + d));
    }
    return;
  }
  const int64_t out_begin = static_cast<int64_t>(blockIdx.y) * kTile, out = out_begin + x;
  const int64_t matrix = head * args.weights.token_stride, stride = args.weights.head_stride;
  float sum = 0.0f;
  for (int64_t begin = 0; begin < args.in_dims; begin += kTile) {
    tiles.rows[y][x] = token < args.num_tokens && begin + x < args.in_dims
                           ? load_element(in_type, args.in.data, in + begin + x)
                           : 0.0f;
    // Neighbouring threads read neighbouring weights in either layout of the matrix.
    const int64_t i = begin + (args.transposed != 0 ? x : y), o = out_begin + (args.transposed != 0 ? y : x);
    float weight = 0.0f;
    if (i < args.in_dims && o < args.out_dims) {
      weight = load_element(weight_type, args.weights.data,
                            matrix + (args.transposed != 0 ? o * stride + i : i * stride + o));
    }
    tiles.weights[i - begin][o - out_begin] = weight;
    __syncthreads();
#pragma unroll
    for (int32_t step = 0; step < kTile; ++step) sum = fmaf(tiles.rows[y][step], tiles.weights[step][x], sum);
    __syncthreads();
  }
  if (token < args.num_tokens && out < args.out_dims) {
    store_element(type_of(args.out.dtype), args.out.data, to + out, sum);
  }
}

}  // namespace

kvc_status project(kvc_backend_device* opened, const kvc_backend_project* args, void* stream, kvc_error* error) {
  if (args->num_tokens == 0) return KVC_OK;
  const CurrentDevice current(*device_of(opened));
  const auto tiles = [](int64_t n) { return static_cast<unsigned>((n + kTile - 1) / kTile); };
  const dim3 grid = {tiles(args->num_tokens), tiles(args->out_dims) + tiles(args->tail_dims),
                     static_cast<unsigned>(args->num_heads)};
  return launch("project", stream, grid, kThreads, sizeof(Tiles), error, project_kernel, *args);
}

}  // namespace kvc::kernels::cuda
