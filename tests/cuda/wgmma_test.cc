// Warpgroup products, barriers that count bytes and the copy engine, beside the kernel's arithmetic (tests/kernels has
// that): the emulated instructions and their rules, layouts, how shared memory is cut, tensor maps, and names.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "kernels/cuda/attend_wgmma_tiles.cuh"
#include "kernels/cuda/backend.h"

namespace kvc::kernels::cuda {
namespace {

constexpr int kShared = 160 * 1024;

// Runs body on the threads of one warpgroup, or more, with shared memory.
template <class Body>
void on_warpgroup(const Body& body, unsigned threads = kWarpgroupThreads) {
  static void (*const kernel)(int) = [](int) {};
  cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  cuda_emulation::launch(nullptr, {1, 1, 1}, {threads, 1, 1}, kShared, body);
}

unsigned char* panels() { return cuda_emulation::shared_memory(); }
bool is_first() { return threadIdx.x == 0; }

// Element (row, column) of an operand in panels of so many rows.
template <class T>
void put(unsigned char* at, int rows, int row, int column, float x) {
  T element;
  narrow(x, &element);
  memcpy(at + column / kPanelDims * rows * kPanelPitch + swizzled(row, column % kPanelDims / 8, kPanelPitch) +
             column % 8 * 2,
         &element, sizeof element);
}

// Small numbers that tell places from each other, and whose products are exact.
float number(int row, int column) { return static_cast<float>((row * 7 + column * 3) % 15 - 7); }

// D = A B^T with A [64][depth] and B [columns][depth], both K-major in panels.
template <class T, int kColumns>
void check_rows(int depth) {
  std::vector<float> d(64 * kColumns, -1.0f);
  on_warpgroup([&] {
    unsigned char *const a = panels(), *const b = panels() + depth / kPanelDims * 64 * kPanelPitch;
    for (int i = static_cast<int>(threadIdx.x); i < 64 * depth; i += kWarpgroupThreads) {
      put<T>(a, 64, i / depth, i % depth, number(i / depth, i % depth));
    }
    for (int i = static_cast<int>(threadIdx.x); i < kColumns * depth; i += kWarpgroupThreads) {
      put<T>(b, kColumns, i / depth, i % depth, number(i % depth, i / depth));
    }
    publish_writes();
    __syncthreads();
    float own[kColumns / 2];
    begin_products();
    for (int step = 0; step < depth / kMmaDepth; ++step) {
      const uint32_t panel = static_cast<uint32_t>(step / 4 * kPanelPitch),
                     within = static_cast<uint32_t>(step % 4 * 32);
      multiply_shared(T{}, own, rows_descriptor(shared_address(a) + panel * 64 + within),
                      rows_descriptor(shared_address(b) + panel * kColumns + within), step > 0);
    }
    close_products();
    wait_products<0>();
    for (int i = 0; i < kColumns / 2; ++i) {
      const MatrixPlace place = place_in_result(static_cast<int>(threadIdx.x), i);
      d[static_cast<size_t>(place.row * kColumns + place.column)] = own[i];
    }
  });
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      float sum = 0.0f;
      for (int k = 0; k < depth; ++k) sum += number(row, k) * number(k, column);
      ASSERT_EQ(d[static_cast<size_t>(row * kColumns + column)], sum) << row << " " << column;
    }
  }
}

// D += A B with A [64][keys] in registers and B [keys][columns] as it is stored: a row a key.
template <class T, int kColumns>
void check_columns(int keys) {
  std::vector<float> d(64 * kColumns, -1.0f);
  on_warpgroup([&] {
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < keys * kColumns; i += kWarpgroupThreads) {
      put<T>(panels(), keys, i / kColumns, i % kColumns, number(i / kColumns, i % kColumns));
    }
    publish_writes();
    __syncthreads();
    float own[kColumns / 2];
    for (float& x : own) x = 100.0f;
    uint32_t a[8][4];
    for (int step = 0; step < keys / kMmaDepth; ++step) {
      for (int i = 0; i < 8; i += 2) {
        const MatrixPlace place = place_in_a(thread % 32, i);
        const int row = thread / 32 * 16 + place.row, column = step * kMmaDepth + place.column;
        a[step][i / 2] = pack(T{}, number(row, column), number(row, column + 1));
      }
    }
    begin_products();
    for (int step = 0; step < keys / kMmaDepth; ++step) {
      const uint32_t at = shared_address(panels()) + static_cast<uint32_t>(step * kMmaDepth * kPanelPitch);
      multiply_registers(T{}, own, a[step], columns_descriptor(at, keys));
    }
    close_products();
    wait_products<0>();
    for (int i = 0; i < kColumns / 2; ++i) {
      const MatrixPlace place = place_in_result(thread, i);
      d[static_cast<size_t>(place.row * kColumns + place.column)] = own[i];
    }
  });
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      float sum = 100.0f;
      for (int k = 0; k < keys; ++k) sum += number(row, k) * number(k, column);
      ASSERT_EQ(d[static_cast<size_t>(row * kColumns + column)], sum) << row << " " << column;
    }
  }
}

TEST(Wgmma, ProductsAreThoseOfPlainMatrices) {
  check_rows<Bf16, 128>(64);
  check_rows<F16, 128>(128);
  check_rows<Bf16, 64>(256);
  check_columns<F16, 64>(128);
  check_columns<Bf16, 128>(128);
  check_columns<Bf16, 256>(64);
}

// Fields and fragments as the PTX documentation draws them.
TEST(Wgmma, LayoutsAreThoseOfTheDocumentation) {
  const uint64_t rows = rows_descriptor(0x1420), columns = columns_descriptor(0x2c00, 128);
  EXPECT_EQ(rows & 0x3fff, 0x142u);       // the address, in units of 16 bytes
  EXPECT_EQ(rows >> 32 & 0x3fff, 0x40u);  // 1024 bytes to the next 8 rows
  EXPECT_EQ(rows >> 49 & 7, 0u);          // patterns begin at multiples of 1024
  EXPECT_EQ(rows >> 62, 1u);              // 128 bytes
  EXPECT_EQ(columns & 0x3fff, 0x2c0u);
  EXPECT_EQ(columns >> 16 & 0x3fff, 0x400u);  // 16 KiB to the next 64 columns: 128 keys of 128 bytes
  EXPECT_EQ(columns >> 32 & 0x3fff, 0x40u);   // 1024 bytes to the next 8 keys
  const auto is = [](MatrixPlace place, int row, int column) { return place.row == row && place.column == column; };
  EXPECT_TRUE(is(place_in_result(0, 1), 0, 1));
  EXPECT_TRUE(is(place_in_result(5, 2), 9, 2));     // 8 rows down
  EXPECT_TRUE(is(place_in_result(5, 4), 1, 10));    // the next 8 columns
  EXPECT_TRUE(is(place_in_result(37, 7), 25, 11));  // the second warp
  EXPECT_TRUE(is(place_in_result(127, 63), 63, 127));
}

// ---- Rules ----------------------------------------------------------------------------------------

// One product of zeros, with what a test does in between.
struct Steps {
  bool begin = true, publish = true, wait = true;
  std::function<void(float* d, uint32_t* a)> in_flight = [](float*, uint32_t*) {};
  std::function<void(float* d)> behind = [](float*) {};
};
void multiply_once(const Steps& steps) {
  on_warpgroup([&] {
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < 16 * 64; i += kWarpgroupThreads) put<Bf16>(panels(), 16, i / 64, i % 64, 1.0f);
    if (steps.publish) publish_writes();
    __syncthreads();
    float d[32] = {};
    uint32_t a[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
    if (steps.begin) begin_products();
    multiply_registers(Bf16{}, d, a, columns_descriptor(shared_address(panels()), 16));
    close_products();
    steps.in_flight(d, a);
    __syncthreads();
    if (steps.wait) wait_products<0>();
    steps.behind(d);
  });
}

TEST(Wgmma, ResultsComeWithTheWait) {
  Steps steps;
  steps.in_flight = [](float* d, uint32_t*) { EXPECT_TRUE(std::isnan(d[0])); };
  steps.behind = [](float* d) { EXPECT_EQ(d[31], 16.0f); };
  multiply_once(steps);
}

TEST(Wgmma, WritesThatAreNotPublishedAreNotSeen) {
  Steps steps;
  steps.publish = false;
  steps.behind = [](float* d) { EXPECT_TRUE(std::isnan(d[0])); };
  multiply_once(steps);
}

TEST(WgmmaDeathTest, RulesOfProducts) {
  Steps steps;
  steps.begin = false;
  EXPECT_DEATH(multiply_once(steps), "no begin_products");
  steps = {};
  steps.wait = false;
  EXPECT_DEATH(multiply_once(steps), "nobody waited for");
  steps = {};
  steps.in_flight = [](float* d, uint32_t*) { d[3] = 0.0f; };
  EXPECT_DEATH(multiply_once(steps), "results were written");
  steps.in_flight = [](float*, uint32_t* a) { a[2] = 0; };
  EXPECT_DEATH(multiply_once(steps), "operand in registers was written");
  steps.in_flight = [](float*, uint32_t*) {
    if (is_first()) put<Bf16>(panels(), 16, 3, 3, 2.0f);
    publish_writes();
  };
  EXPECT_DEATH(multiply_once(steps), "operand in shared memory was written");
}

// ---- The copy engine ------------------------------------------------------------------------------

struct Pool {
  std::vector<uint16_t> elements;
  kvc_backend_layer layer = {};
  Pool(int pages, int heads, int slots, int dims, bool nhd) {
    layer.num_pages = pages;
    layer.num_kv_heads = layer.num_q_heads = heads;
    layer.page_size = slots;
    layer.head_dim = layer.v_head_dim = dims;
    layer.dtype = {kDLBfloat, 16, 1};
    const int64_t slot = nhd ? heads * dims : dims, head = nhd ? dims : slots * dims, page = heads * slots * dims + 8;
    elements.resize(static_cast<size_t>(pages * page + 8));
    for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<uint16_t>(i);
    void* const data = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(elements.data()) + 15) / 16 * 16);
    layer.k = layer.v = {data, page, head, slot};
  }
  CUresult encode(int32_t keys, CUtensorMap* map) const {
    const PoolBoxes boxes = pool_boxes(layer, layer.k, layer.head_dim, keys);
    const cuuint32_t steps[4] = {1, 1, 1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, layer.k.data, boxes.sizes, boxes.strides,
                                  boxes.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
  uint16_t at(int page, int head, int slot, int dim) const {
    const auto* const data = static_cast<const uint16_t*>(layer.k.data);
    return data[page * layer.k.page_stride + head * layer.k.head_stride + slot * layer.k.slot_stride + dim];
  }
};

// Slots of a page and head, 64 dims, to 8 rows of a panel; zeros behind the last page. Early and late, in any order.
TEST(Wgmma, BoxesAreSlotsOfAPage) {
  for (bool nhd : {false, true}) {
    const Pool pool(3, 2, 24, 128, nhd);
    CUtensorMap map;
    ASSERT_EQ(pool.encode(8, &map), CUDA_SUCCESS);
    for (int launch = 0; launch < 4; ++launch) {
      on_warpgroup([&] {
        auto* const barrier = reinterpret_cast<uint64_t*>(panels() + 8192);
        if (is_first()) {
          init_barrier(barrier, 1);
          publish_barriers();
          arrive_expecting(barrier, 2 * 1024);
          for (int i = 0; i < 2; ++i) {  // of page 1, and of one that is not there
            begin_box(panels() + i * 1024, &map, barrier, 64, nhd ? 1 : 16, nhd ? 16 : 1, 1 + i * 2);
          }
        }
        __syncthreads();
        wait_phase(barrier, 0);
        for (int i = static_cast<int>(threadIdx.x); i < 512; i += kWarpgroupThreads) {
          uint16_t element, none;
          const int32_t place = swizzled(i / 64, i % 64 / 8, kPanelPitch) + i % 8 * 2;
          memcpy(&element, panels() + place, 2);
          memcpy(&none, panels() + 1024 + place, 2);
          ASSERT_EQ(element, pool.at(1, 1, 16 + i / 64, 64 + i % 64)) << i;
          ASSERT_EQ(none, 0);
        }
      });
    }
  }
}

TEST(Wgmma, PhasesEndWithThreadsAndBytes) {
  const Pool pool(1, 1, 8, 64, false);
  CUtensorMap map;
  ASSERT_EQ(pool.encode(8, &map), CUDA_SUCCESS);
  for (int launch = 0; launch < 4; ++launch) {
    on_warpgroup([&] {
      auto* const barrier = reinterpret_cast<uint64_t*>(panels() + 8192);
      if (is_first()) init_barrier(barrier, 2);
      __syncthreads();
      wait_phase(barrier, 1);  // of a new barrier: over
      __syncthreads();
      if (threadIdx.x == 32) arrive(barrier);
      if (is_first()) {
        arrive_expecting(barrier, 1024);
        begin_box(panels(), &map, barrier, 0, 0, 0, 0);
      }
      wait_phase(barrier, 0);
      uint16_t element;
      memcpy(&element, panels(), 2);
      EXPECT_EQ(element, pool.at(0, 0, 0, 0));
    });
  }
}

TEST(WgmmaDeathTest, RulesOfBarriersAndBoxes) {
  const Pool pool(1, 1, 8, 64, false);
  CUtensorMap map;
  ASSERT_EQ(pool.encode(8, &map), CUDA_SUCCESS);
  const auto with = [&](const std::function<void(uint64_t*)>& body) {
    for (int launch = 0; launch < 4; ++launch) {
      on_warpgroup([&] {
        auto* const barrier = reinterpret_cast<uint64_t*>(panels() + 8192);
        if (is_first()) body(barrier);
      });
    }
  };
  EXPECT_DEATH(with([](uint64_t* b) { wait_phase(b, 1); }), "nobody began");
  EXPECT_DEATH(with([](uint64_t* b) {
                 init_barrier(b, 1);
                 wait_phase(b, 0);
               }),
               "threads wait");
  EXPECT_DEATH(with([&](uint64_t* b) {
                 init_barrier(b, 1);
                 arrive_expecting(b, 1024);
                 begin_box(panels(), &map, b, 0, 0, 0, 0);
               }),
               "before its boxes are there");
  EXPECT_DEATH(with([&](uint64_t* b) { begin_box(panels() + 16, &map, b, 0, 0, 0, 0); }), "aligned to 128 bytes");
}

// What the driver's documentation asks of a map.
TEST(Wgmma, MapsThatTheDriverRefuses) {
  const Pool pool(2, 2, 16, 64, false);
  CUtensorMap map;
  EXPECT_EQ(pool.encode(16, &map), CUDA_SUCCESS);
  EXPECT_EQ(pool.encode(512, &map), CUDA_ERROR_INVALID_VALUE);  // a box has at most 256
  Pool odd = pool;
  odd.layer.k.slot_stride += 4;
  EXPECT_EQ(odd.encode(16, &map), CUDA_ERROR_INVALID_VALUE);
  odd = pool;
  odd.layer.k.data = static_cast<unsigned char*>(odd.layer.k.data) + 8;
  EXPECT_EQ(odd.encode(16, &map), CUDA_ERROR_INVALID_VALUE);
  odd = pool;
  odd.layer.k.page_stride = int64_t{1} << 39;
  EXPECT_EQ(odd.encode(16, &map), CUDA_ERROR_INVALID_VALUE);
}

// ---- Plan -----------------------------------------------------------------------------------------

struct Call {
  kvc_backend_layer layer = {};
  kvc_backend_attend args = {};
  explicit Call(int32_t dims = 128) : Call(dims, dims) {}
  Call(int32_t dims, int32_t v_dims) {
    layer.dtype = args.q.dtype = {kDLBfloat, 16, 1};
    layer.head_dim = dims;
    layer.v_head_dim = v_dims;
    layer.page_size = 16;
    layer.num_q_heads = 8;
    layer.num_kv_heads = 2;
    for (kvc_backend_pool* pool : {&layer.k, &layer.v}) *pool = {nullptr, 4096, 1024, 128};
  }
  std::string why() {
    args.layer = &layer;
    const char* const reason = why_not_wgmma(args);
    return reason == nullptr ? "" : reason;
  }
};

constexpr int32_t kDimsOfInstances[][2] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};

TEST(WgmmaPlan, WhatWarpgroupsCompute) {
  for (const auto& [dims, v_dims] : kDimsOfInstances) EXPECT_EQ(Call(dims, v_dims).why(), "") << dims;
  for (const auto& [dims, v_dims] : {std::pair{192, 192}, {128, 64}, {128, 192}, {96, 96}, {192, 64}}) {
    EXPECT_EQ(Call(dims, v_dims).why(), "the head dims of K and V are none of 64, 128, 256, and 192 with 128") << dims;
  }
  const double table = 0.0;
  const auto but = [](const std::function<void(Call&)>& change) {
    Call call;
    change(call);
    return call.why();
  };
  EXPECT_EQ(but([](Call& c) { c.args.q.dtype = {kDLFloat, 32, 1}; }), "q has not 16 bits");
  EXPECT_EQ(but([](Call& c) { c.args.q.dtype = {kDLFloat, 16, 1}; }), "K has another type than q");
  EXPECT_EQ(but([](Call& c) { c.layer.dtype = {kDLInt, 8, 1}; }), "tokens have scales");
  for (const uint8_t code : {kDLFloat8_e4m3fn, kDLFloat8_e5m2}) {
    for (const auto& [dims, v_dims] : kDimsOfInstances) {
      Call call(dims, v_dims);
      call.layer.dtype = {code, 8, 1};
      EXPECT_EQ(call.why(), dims > 128 ? "K and V have 8 bits and more than 128 dims" : "") << dims;
    }
  }
  EXPECT_EQ(but([&](Call& c) { c.args.key_tables = &table; }), "keys turn where they are read");
  EXPECT_EQ(but([](Call& c) { c.layer.k_behind_v = 1; }), "K is in two pools");
  EXPECT_EQ(but([](Call& c) { c.args.fold_keys = 1024; }), "the cache is deterministic");
  for (int32_t page_size : {1, 4, 12, 100}) {
    EXPECT_EQ(but([&](Call& c) { c.layer.page_size = page_size; }), "the page size is no multiple of 8");
  }
  for (int64_t kvc_backend_pool::* stride :
       {&kvc_backend_pool::page_stride, &kvc_backend_pool::head_stride, &kvc_backend_pool::slot_stride}) {
    EXPECT_EQ(but([&](Call& c) { c.layer.v.*stride += 4; }), "rows are not aligned to 16 bytes");
    EXPECT_EQ(but([&](Call& c) { c.layer.k.*stride = int64_t{1} << 39; }),
              "a stride is not in the copy engine's range");
  }
}

// Parts of shared memory follow each other, begin where the swizzle's pattern does, and fit a block of the card.
TEST(WgmmaPlan, SharedMemoryIsCutWithoutOverlap) {
  EXPECT_LE(sizeof(WgmmaFixed), size_t{14} * 1024);  // scripts/ptxas_report.py counts with so much
  for (const auto& [dims, v_dims] : kDimsOfInstances) {
    const Call call(dims, v_dims);
    const WgmmaShape shape = wgmma_shape(call.layer, static_cast<int32_t>(sizeof(WgmmaFixed)));
    const int32_t rows = wgmma_stages(dims) * wgmma_tile_keys(v_dims);
    EXPECT_GE(shape.q_at, static_cast<int32_t>(sizeof(WgmmaFixed)));
    EXPECT_EQ((shape.q_at | shape.k_at | shape.v_at) % kPatternBytes, 0);
    EXPECT_EQ(shape.k_at, shape.q_at + 128 * dims * 2);
    EXPECT_EQ(shape.v_at, shape.k_at + rows * dims * 2);
    EXPECT_EQ(shape.shared_bytes, shape.v_at + rows * v_dims * 2);
    EXPECT_LE(shape.shared_bytes, 227 * 1024);
    if (dims > 128) continue;
    Call bytes(dims);
    bytes.layer.dtype = {kDLFloat8_e4m3fn, 8, 1};
    const WgmmaShape raw = wgmma_shape(bytes.layer, static_cast<int32_t>(sizeof(WgmmaFixed)));
    EXPECT_EQ(raw.raw_at, shape.shared_bytes);
    EXPECT_EQ(raw.shared_bytes, raw.raw_at + 3 * 128 * dims);
    EXPECT_LE(raw.shared_bytes, 227 * 1024);
  }
}

// Tiles and pages are both made of whole boxes, and boxes of whole patterns; a lane has a box.
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

TEST(WgmmaPlan, StridesOfPools) {
  Pool hnd(3, 2, 24, 128, false), nhd(3, 2, 24, 128, true), one(3, 1, 24, 128, true);
  const auto boxes = [](const Pool& pool) { return pool_boxes(pool.layer, pool.layer.k, 128, 8); };
  EXPECT_EQ(boxes(hnd).heads_first, 0);
  EXPECT_EQ(boxes(hnd).strides[1], 24u * 128 * 2);
  EXPECT_EQ(boxes(hnd).box[1], 8u);
  EXPECT_EQ(boxes(nhd).heads_first, 1);
  EXPECT_EQ(boxes(nhd).strides[0], 128u * 2);
  EXPECT_EQ(boxes(nhd).box[2], 8u);
  one.layer.k.head_stride = 0;  // may be anything
  EXPECT_EQ(boxes(one).heads_first, 0);
  EXPECT_EQ(boxes(one).strides[1], 24u * 128 * 2);
  hnd.layer.dtype = {kDLFloat8_e4m3fn, 8, 1};  // rows as stored
  EXPECT_EQ(boxes(hnd).strides[1], 24u * 128);
  EXPECT_EQ(boxes(hnd).box[0], 128u);
  one.layer.num_pages = 0;  // not known
  EXPECT_EQ(boxes(one).sizes[3], static_cast<uint64_t>(INT32_MAX));
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

TEST(WgmmaNames, ChosenByNameOnly) {
  std::string implementation, message;
  ASSERT_EQ(open_by(nullptr, &implementation, &message), KVC_OK);
  EXPECT_EQ(implementation, "sm_90");
  ASSERT_EQ(open_by("sm_90_wgmma", &implementation, &message), KVC_OK) << message;
  EXPECT_EQ(implementation, "sm_90_wgmma");
  ASSERT_EQ(open_by("sm_80_wgmma", &implementation, &message), KVC_ERROR_UNSUPPORTED);
  EXPECT_EQ(message, "simd \"sm_80_wgmma\"; this device has sm_90_simple, sm_90_wgmma and sm_90");
}

// The calls of the runtime on the way, each failing in its turn: opening says which it was.
TEST(WgmmaNames, CallsThatFail) {
  std::string implementation, message, messages;
  for (int64_t n = 1;; ++n) {
    ASSERT_LT(n, 300);
    cuda_emulation::fail_call(n, cudaErrorInvalidValue);
    const kvc_status status = open_by("sm_90_wgmma", &implementation, &message);
    const bool reached = cuda_emulation::calls() >= n && status != KVC_OK;
    cuda_emulation::fail_call(0, cudaSuccess);
    if (!reached) break;
    messages += message + "\n";
    if (status == KVC_ERROR_UNSUPPORTED) continue;  // taken for a device without warpgroup products
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
