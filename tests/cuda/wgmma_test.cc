// Warpgroup products, barriers that count bytes, and TMA, apart from the kernel's numbers, which tests/kernels tests:
// the emulated instructions and their rules, layouts, and tensor maps.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "kernels/cuda/attend/wgmma/tiles.cuh"
#include "kernels/cuda/backend.h"
#include "pool.h"

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

// Index of element (row, column) of an operand in panels of this many rows.
template <class T>
void put(unsigned char* at, int rows, int row, int column, float x) {
  T element;
  narrow(x, &element);
  memcpy(at + column / kPanelDims * rows * kPanelPitch + swizzled(row, column % kPanelDims / 8, kPanelPitch) +
             column % 8 * 2,
         &element, sizeof element);
}

// Small numbers that differ between places, and whose products are exact.
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

// D += A B with A [64][keys], in registers or in panels, and B [keys][columns] as it is stored: one row for each key.
template <class T, int kColumns>
void check_columns(int keys, bool a_shared) {
  std::vector<float> d(64 * kColumns, -1.0f);
  on_warpgroup([&] {
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < keys * kColumns; i += kWarpgroupThreads) {
      put<T>(panels(), keys, i / kColumns, i % kColumns, number(i / kColumns, i % kColumns));
    }
    unsigned char* const left = panels() + kColumns / kPanelDims * keys * kPanelPitch;
    for (int i = thread; i < 64 * keys; i += kWarpgroupThreads) {
      put<T>(left, 64, i / keys, i % keys, number(i / keys, i % keys));
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
      const uint32_t left_at = static_cast<uint32_t>(step / 4 * 64 * kPanelPitch + step % 4 * 32);
      if (a_shared) {
        multiply_columns(T{}, own, rows_descriptor(shared_address(left) + left_at), columns_descriptor(at, keys));
      } else {
        multiply_registers(T{}, own, a[step], columns_descriptor(at, keys));
      }
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
  for (const bool a_shared : {false, true}) {
    check_columns<F16, 64>(128, a_shared);
    check_columns<Bf16, 128>(128, a_shared);
    check_columns<Bf16, 256>(64, a_shared);
  }
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

// One product of zeros, with code of a test between its parts.
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
  EXPECT_DEATH(multiply_once(steps), "no thread waited for");
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

// Two of four warps meet at a barrier several times, and each sees what the other wrote before. The other two do not
// wait.
TEST(Wgmma, SomeThreadsOfABlockMeet) {
  on_warpgroup([] {
    auto* const rounds = reinterpret_cast<int*>(panels());
    const int thread = static_cast<int>(threadIdx.x), other = thread ^ 32;
    if (thread >= 64) return;
    for (int round = 0; round < 3; ++round) {
      rounds[thread] = round;
      sync_threads_of<64>(3);
      EXPECT_EQ(rounds[other], round);
      sync_threads_of<64>(4);
    }
  });
}

// One warp writes and goes on. The other one waits for it, and sees what it wrote.
TEST(Wgmma, OneOfTwoWarpsDoesNotWait) {
  on_warpgroup([] {
    auto* const rounds = reinterpret_cast<int*>(panels());
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < 32) {
      rounds[thread] = thread + 1;
      notify_threads_of<64>(5);
    } else if (thread < 64) {
      sync_threads_of<64>(5);
      EXPECT_EQ(rounds[thread - 32], thread - 31);
    }
  });
}

TEST(WgmmaDeathTest, RulesOfMeetings) {
  EXPECT_DEATH(on_warpgroup([] { sync_threads_of<64>(0); }), "not from 1 to 15");
  EXPECT_DEATH(on_warpgroup([] { threadIdx.x < 32 ? sync_threads_of<64>(1) : sync_threads_of<96>(1); }), "disagree");
  EXPECT_DEATH(on_warpgroup([] {
                 if (threadIdx.x < 32) sync_threads_of<64>(1);
               }),
               "threads wait");
}

// ---- TMA ------------------------------------------------------------------------------------------

struct Pool {
  std::vector<uint16_t> elements;
  kvc_backend_layer layer = {};
  Pool(int pages, int heads, int slots, int dims, bool nhd) {
    layer.num_pages = pages;
    layer.num_kv_heads = layer.num_q_heads = heads;
    layer.page_size = slots;
    layer.head_dim = layer.v_head_dim = dims;
    layer.format = stored_format({kDLBfloat, 16, 1});
    const int64_t slot = nhd ? heads * dims : dims, head = nhd ? dims : slots * dims, page = heads * slots * dims + 8;
    elements.resize(static_cast<size_t>(pages * page + 8));
    for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<uint16_t>(i);
    void* const data = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(elements.data()) + 15) / 16 * 16);
    layer.k = layer.v = test::pool_of(stored_dtype(layer), data, page, head, slot, dims);
  }
  CUresult encode(int32_t keys, CUtensorMap* map) const {
    const PoolBoxes boxes = pool_boxes(layer, layer.k, layer.head_dim, keys);
    const cuuint32_t steps[4] = {1, 1, 1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, layer.k.data, boxes.sizes, boxes.strides,
                                  boxes.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
  uint16_t at(int page, int head, int slot, int dim) const {
    return reinterpret_cast<const uint16_t*>(test::address_of_row(layer.k, page, head, slot))[dim];
  }
};

// Copies slots of a page and head, 64 dims, to 8 rows of a panel. Positions after the last page are zeros. Early and
// late, in any order.
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
          for (int i = 0; i < 2; ++i) {  // page 1, and a page that does not exist
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
      wait_phase(barrier, 1);  // of a new barrier, this phase counts as over
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
  EXPECT_DEATH(with([](uint64_t* b) { wait_phase(b, 1); }), "no thread began");
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

// The demands of the driver's documentation on a tensor map.
TEST(Wgmma, MapsThatTheDriverRefuses) {
  const Pool pool(2, 2, 16, 64, false);
  CUtensorMap map;
  EXPECT_EQ(pool.encode(16, &map), CUDA_SUCCESS);
  EXPECT_EQ(pool.encode(512, &map), CUDA_ERROR_INVALID_VALUE);  // a box has at most 256
  Pool odd = pool;
  odd.layer.k.slot_stride_bytes += 8;
  EXPECT_EQ(odd.encode(16, &map), CUDA_ERROR_INVALID_VALUE);
  odd = pool;
  odd.layer.k.data = static_cast<unsigned char*>(odd.layer.k.data) + 8;
  EXPECT_EQ(odd.encode(16, &map), CUDA_ERROR_INVALID_VALUE);
  odd = pool;
  odd.layer.k.page_stride_bytes = int64_t{1} << 40;
  EXPECT_EQ(odd.encode(16, &map), CUDA_ERROR_INVALID_VALUE);
}

TEST(Wgmma, StridesOfPools) {
  Pool hnd(3, 2, 24, 128, false), nhd(3, 2, 24, 128, true), one(3, 1, 24, 128, true);
  const auto boxes = [](const Pool& pool) { return pool_boxes(pool.layer, pool.layer.k, 128, 8); };
  EXPECT_EQ(boxes(hnd).heads_first, 0);
  EXPECT_EQ(boxes(hnd).strides[1], 24u * 128 * 2);
  EXPECT_EQ(boxes(hnd).box[1], 8u);
  EXPECT_EQ(boxes(nhd).heads_first, 1);
  EXPECT_EQ(boxes(nhd).strides[0], 128u * 2);
  EXPECT_EQ(boxes(nhd).box[2], 8u);
  one.layer.k.head_stride_bytes = 0;  // may be anything
  EXPECT_EQ(boxes(one).heads_first, 0);
  EXPECT_EQ(boxes(one).strides[1], kStrideOfOne);
  hnd.layer.format = stored_format({kDLFloat8_e4m3fn, 8, 1});  // rows as stored
  EXPECT_EQ(boxes(hnd).box[0], 128u);
  one.layer.num_pages = 0;  // unknown
  EXPECT_EQ(boxes(one).sizes[3], static_cast<uint64_t>(INT32_MAX));
}

// The one page of decompressed K has more slots than any sequence, and no stride. So has the one head of a pool.
TEST(Wgmma, MapsOfASinglePage) {
  CUtensorMap map;
  for (int heads : {1, 2}) {
    Pool pool(1, heads, 16, 64, true);
    pool.layer.page_size = 1 << 30;
    pool.layer.k.page_stride_bytes = 0;
    if (heads == 1) pool.layer.k.head_stride_bytes = 0;
    pool.layer.k.slot_stride_bytes = 6144;
    EXPECT_EQ(why_not_boxes(pool.layer), nullptr);
    EXPECT_EQ(pool.encode(16, &map), CUDA_SUCCESS) << heads;
  }
}

}  // namespace
}  // namespace kvc::kernels::cuda
