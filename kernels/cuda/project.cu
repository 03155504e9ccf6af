// project: multiplies rows of tokens by a matrix for each head.
//
// With weights of 16 bits, tensor cores multiply (project_mma_kernel). A thread block computes 64 outputs of one head
// for 64 tokens, in steps of 64 inputs. Each warp computes 16 of the outputs. Weights are copied to shared memory
// asynchronously, two steps ahead. Inputs are loaded into registers one step ahead. A float32 input is split into three
// bfloat16 numbers, whose sum is the input. Then the inputs are stored in shared memory. Roofline: with few tokens,
// memory bandwidth is the limit, because the weights are read once. With many tokens, the arithmetic rate is the limit.
//
// Other types and unaligned rows are multiplied in float32 (project_kernel). A block computes a tile of 16 tokens and
// 16 outputs, from tiles of both operands in shared memory.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/mma/instructions.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {
namespace {

constexpr int32_t kTile = 16, kThreads = kTile * kTile;

struct Tiles {
  float rows[kTile][kTile + 1];     // [token][in]
  float weights[kTile][kTile + 1];  // [in][out]
};

// blockIdx.x is the tile of tokens, .y the tile of outputs, .z the head. Blocks whose .y is beyond the last tile of
// outputs copy the tail: `tail_dims` dims of each row, which are not multiplied.
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

// ---- Tensor cores ---------------------------------------------------------------------------------

constexpr int32_t kMmaTile = 64, kMmaThreads = 128,
                  kMmaWarps = kMmaThreads / kWarpSize;  // kMmaTile: tokens, outputs and inputs of a tile
constexpr int32_t kMmaPitch = kMmaTile * 2,
                  kMmaTileBytes = kMmaTile * kMmaPitch;  // bytes of a row, and of a tile, of 16-bit elements
constexpr int32_t kMmaStages = 3;                        // the number of tiles of weights in shared memory
constexpr int32_t kColumnsOfWarp = kMmaTile / kMmaWarps, kRowTiles = kMmaTile / kMmaRows;
constexpr int32_t kChunksOfThread =
    kMmaTile * kMmaTile / 8 / kMmaThreads;  // the number of chunks of 8 inputs that a thread loads in a step

// The thread block's arguments and its place in the work.
struct MmaBlock {
  const kvc_backend_project* args;
  unsigned char* shared;
  int64_t head, first_token, first_out;
  int32_t thread, warp, lane;
};

// Starts the copy of the weights of step `step`. The tile keeps the layout of the matrix: a row has the weights of one
// input, or of one output if the matrix is transposed.
__device__ __forceinline__ void begin_weights(const MmaBlock& block, int32_t step) {
  const kvc_backend_project& args = *block.args;
  const bool transposed = args.transposed != 0;
  unsigned char* const tile = block.shared + step % kMmaStages * kMmaTileBytes;
  const int64_t first_row = transposed ? block.first_out : int64_t{step} * kMmaTile;
  const int64_t first_column = transposed ? int64_t{step} * kMmaTile : block.first_out;
  const int64_t rows = transposed ? args.out_dims : args.in_dims, columns = transposed ? args.in_dims : args.out_dims;
  for (int32_t i = block.thread; i < kMmaTile * kMmaTile / 8; i += kMmaThreads) {
    const int64_t row = first_row + i / 8, column = first_column + i % 8 * 8;
    const bool there = row < rows && column < columns;
    const int64_t element = block.head * args.weights.token_stride + row * args.weights.head_stride + column;
    const unsigned char* const source =
        static_cast<const unsigned char*>(args.weights.data) + (there ? element * 2 : 0);
    begin_copy(tile + swizzled(i / 8, i % 8, kMmaPitch), source, there);
  }
}

// The inputs that a thread loads for a step: 8 inputs of each of the tokens `thread / 8` + 16 i.
template <class In>
struct Inputs {
  In x[kChunksOfThread][8];
};

template <class In>
__device__ __forceinline__ void load_inputs(const MmaBlock& block, int32_t step, Inputs<In>* inputs) {
  const kvc_backend_project& args = *block.args;
  const int64_t d = int64_t{step} * kMmaTile + block.thread % 8 * 8;
#pragma unroll
  for (int i = 0; i < kChunksOfThread; ++i) {
    const int64_t token = block.first_token + block.thread / 8 + i * (kMmaThreads / 8);
    uint32_t words[sizeof(In) * 2] = {};
    if (token < args.num_tokens && d < args.in_dims) {
      const In* const source =
          static_cast<const In*>(args.in.data) + token * args.in.token_stride + block.head * args.in.head_stride + d;
#pragma unroll
      for (size_t half = 0; half < sizeof(In) / 2; ++half) {
        memcpy(words + half * 4, __builtin_assume_aligned(static_cast<const void*>(source + half * 4), 16), 16);
      }
    }
    memcpy(inputs->x[i], words, sizeof words);
  }
}

// Gives the next 16-bit part of each of eight inputs. A float32 input is a sum of three bfloat16 parts. Each call
// rounds x to the next part, and subtracts this part from x. A 16-bit input has only one part, which is the input.
__device__ __forceinline__ void take_part(float (&x)[8], uint32_t (&words)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    words[j] = pack(Bf16{}, x[j * 2], x[j * 2 + 1]);
    const float low = to_float(Bf16{static_cast<uint16_t>(words[j])}),
                high = to_float(Bf16{static_cast<uint16_t>(words[j] >> 16)});
    x[j * 2] = fabsf(low) < INFINITY ? x[j * 2] - low : 0.0f;
    x[j * 2 + 1] = fabsf(high) < INFINITY ? x[j * 2 + 1] - high : 0.0f;
  }
}
template <class T>
__device__ __forceinline__ void take_part(T (&x)[8], uint32_t (&words)[4]) {
  memcpy(words, x, sizeof words);
}

template <class In>
constexpr int kPartsOf = sizeof(In) == 4 ? 3 : 1;

template <class In>
__device__ __forceinline__ void store_inputs(const MmaBlock& block, unsigned char* tiles, Inputs<In>* inputs) {
#pragma unroll
  for (int i = 0; i < kChunksOfThread; ++i) {
    const int32_t row = block.thread / 8 + i * (kMmaThreads / 8);
#pragma unroll
    for (int part = 0; part < kPartsOf<In>; ++part) {
      uint32_t words[4];
      take_part(inputs->x[i], words);
      unsigned char* const target = tiles + part * kMmaTileBytes + swizzled(row, block.thread % 8, kMmaPitch);
      memcpy(__builtin_assume_aligned(target, 16), words, sizeof words);
    }
  }
}

// Multiplies the tiles of one step, and adds the products to sums.
template <class T, int kParts>
__device__ __forceinline__ void multiply_tiles(const MmaBlock& block, const unsigned char* inputs,
                                               const unsigned char* weights,
                                               float (&sums)[kRowTiles][kColumnsOfWarp / kMmaColumns][4]) {
  static_assert(kColumnsOfWarp == 2 * kMmaColumns, "one load gives the weights of a warp and 16 inputs");
  const int32_t matrix = block.lane / 8, row = block.lane % 8, first = block.warp * kColumnsOfWarp;
#pragma unroll
  for (int32_t k = 0; k < kMmaTile; k += kMmaDepth) {
    uint32_t b[4];
    if (block.args->transposed != 0) {
      load_matrices(b, weights + swizzled(first + matrix / 2 * 8 + row, k / 8 + matrix % 2, kMmaPitch));
    } else {
      load_transposed(b, weights + swizzled(k + matrix % 2 * 8 + row, first / 8 + matrix / 2, kMmaPitch));
    }
#pragma unroll
    for (int32_t tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        uint32_t a[4];
        load_matrices(a, inputs + part * kMmaTileBytes +
                             swizzled(tile * kMmaRows + matrix % 2 * 8 + row, k / 8 + matrix / 2, kMmaPitch));
        multiply(T{}, sums[tile][0], a, b[0], b[1]);
        multiply(T{}, sums[tile][1], a, b[2], b[3]);
      }
    }
  }
}

// Copies the tails of the block's tokens.
__device__ __forceinline__ void copy_tails(const MmaBlock& block) {
  const kvc_backend_project& args = *block.args;
  for (int32_t i = block.thread; i < kMmaTile * args.tail_dims; i += kMmaThreads) {
    const int64_t token = block.first_token + i / args.tail_dims, d = i % args.tail_dims;
    if (token >= args.num_tokens) return;
    const int64_t from = token * args.in.token_stride + block.head * args.in.head_stride + args.in_dims + d;
    const int64_t to = token * args.out.token_stride + block.head * args.out.head_stride + args.out_dims + d;
    store_element(type_of(args.out.dtype), args.out.data, to, load_element(type_of(args.in.dtype), args.in.data, from));
  }
}

// T: the type of the weights. In: the type of the inputs, T or float. blockIdx.x is the tile of tokens, .y the tile of
// outputs, .z the head. If there are tails, the blocks with the last .y copy them.
template <class T, class In>
__global__ void __launch_bounds__(kMmaThreads) project_mma_kernel(const __grid_constant__ kvc_backend_project args) {
  constexpr int kParts = kPartsOf<In>;
  MmaBlock block = {&args,
                    shared_bytes(),
                    blockIdx.z,
                    int64_t{blockIdx.x} * kMmaTile,
                    int64_t{blockIdx.y} * kMmaTile,
                    static_cast<int32_t>(threadIdx.x),
                    0,
                    0};
  block.warp = block.thread / kWarpSize;
  block.lane = block.thread % kWarpSize;
  if (block.first_out >= args.out_dims) return copy_tails(block);
  const int32_t steps = (args.in_dims + kMmaTile - 1) / kMmaTile;
  unsigned char* const input_tiles = block.shared + kMmaStages * kMmaTileBytes;
  float sums[kRowTiles][kColumnsOfWarp / kMmaColumns][4] = {};
  Inputs<In> inputs;
  for (int32_t step = 0; step < kMmaStages - 1; ++step) {
    if (step < steps) begin_weights(block, step);
    close_copies();
  }
  load_inputs(block, 0, &inputs);
  for (int32_t step = 0; step < steps; ++step) {
    unsigned char* const tiles = input_tiles + step % 2 * kParts * kMmaTileBytes;
    store_inputs(block, tiles, &inputs);
    wait_copies<kMmaStages - 2>();
    __syncthreads();  // the inputs are stored, and the tiles of the previous step are no longer read
    if (step + kMmaStages - 1 < steps) begin_weights(block, step + kMmaStages - 1);
    close_copies();
    if (step + 1 < steps) load_inputs(block, step + 1, &inputs);
    multiply_tiles<T, kParts>(block, tiles, block.shared + step % kMmaStages * kMmaTileBytes, sums);
  }
  wait_copies<0>();
  const Type type = type_of(args.out.dtype);
#pragma unroll
  for (int32_t i = 0; i < kRowTiles * (kColumnsOfWarp / kMmaColumns) * 4; ++i) {
    const MatrixPlace place = place_in_c(block.lane, i % 4);
    const int64_t token = block.first_token + i / 8 * kMmaRows + place.row;
    const int64_t out = block.first_out + block.warp * kColumnsOfWarp + i / 4 % 2 * kMmaColumns + place.column;
    if (token >= args.num_tokens || out >= args.out_dims) continue;
    const int64_t to = token * args.out.token_stride + block.head * args.out.head_stride + out;
    const float sum = sums[i / 8][i / 4 % 2][i % 4];
    if (type == Type::kF32) {
      static_cast<float*>(args.out.data)[to] = sum;
    } else {
      const uint32_t bits = type == Type::kF16 ? pack(F16{}, sum, 0.0f) : pack(Bf16{}, sum, 0.0f);
      static_cast<uint16_t*>(args.out.data)[to] = static_cast<uint16_t>(bits);
    }
  }
}

// Whether tensor cores can compute the call. Float32 inputs need weights of bfloat16, because float16 parts cannot
// represent every float32 number.
bool has_products(const kvc_backend_project& args) {
  const Type in = type_of(args.in.dtype), weights = type_of(args.weights.dtype);
  if (weights != Type::kBf16 && (weights != Type::kF16 || in != weights)) return false;
  if (in != weights && in != Type::kF32) return false;
  const int64_t columns = args.transposed != 0 ? args.in_dims : args.out_dims;
  const int64_t of_weights = args.weights.token_stride | args.weights.head_stride | columns | args.in_dims;
  const int64_t of_in = (args.in.token_stride | args.in.head_stride) * element_bytes(in);
  const uintptr_t addresses =
      reinterpret_cast<uintptr_t>(args.weights.data) | reinterpret_cast<uintptr_t>(args.in.data);
  return of_weights % 8 == 0 && of_in % 16 == 0 && addresses % 16 == 0;
}

using ProjectKernel = void (*)(kvc_backend_project);
ProjectKernel mma_kernel_of(const kvc_backend_project& args) {
  if (type_of(args.weights.dtype) == Type::kF16) return project_mma_kernel<F16, F16>;
  return type_of(args.in.dtype) == Type::kF32 ? project_mma_kernel<Bf16, float> : project_mma_kernel<Bf16, Bf16>;
}

}  // namespace

kvc_status project(kvc_backend_device* opened, const kvc_backend_project* args, void* stream, kvc_error* error) {
  if (args->num_tokens == 0) return KVC_OK;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  if (!device.simple && has_products(*args)) {
    const auto tiles = [](int64_t n) { return static_cast<unsigned>((n + kMmaTile - 1) / kMmaTile); };
    const dim3 grid = {tiles(args->num_tokens), tiles(args->out_dims) + (args->tail_dims > 0 ? 1 : 0),
                       static_cast<unsigned>(args->num_heads)};
    const int32_t parts = type_of(args->in.dtype) == Type::kF32 ? kPartsOf<float> : 1;
    const auto shared = static_cast<size_t>((kMmaStages + 2 * parts) * kMmaTileBytes);
    const ProjectKernel kernel = mma_kernel_of(*args);
    const kvc_status status = allow_shared(device, kernel, "project", error);
    if (status != KVC_OK) return status;
    return launch("project", stream, grid, kMmaThreads, shared, error, kernel, *args);
  }
  const auto tiles = [](int64_t n) { return static_cast<unsigned>((n + kTile - 1) / kTile); };
  const dim3 grid = {tiles(args->num_tokens), tiles(args->out_dims) + tiles(args->tail_dims),
                     static_cast<unsigned>(args->num_heads)};
  return launch("project", stream, grid, kThreads, sizeof(Tiles), error, project_kernel, *args);
}

}  // namespace kvc::kernels::cuda
