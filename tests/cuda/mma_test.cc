// The tensor-core kernel apart from its numbers, which tests/kernels tests: the emulated instructions, which kernel
// computes a call, how shared memory is cut, and whether tensor cores compute the products.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "kernels/common/row_formats.h"
#include "kernels/cuda/attend/mma/many_rows.cuh"
#include "kernels/cuda/attend/mma/tiles.cuh"
#include "kernels/cuda/backend.h"
#include "mma_call.h"

namespace kvc::kernels::cuda {
namespace {

// Runs body on the lanes of one warp, with shared memory.
template <class Body>
void on_warp(const Body& body) {
  cuda_emulation::launch(nullptr, {1, 1, 1}, {32, 1, 1}, 4096, body);
}

// C = A B through shared memory, as in the kernel: ldmatrix loads A, and loads B^T plainly (keys) or B transposed
// (values).
template <class T>
void check_product(bool transposed) {
  float a[16][16], b[16][16], c[16][16] = {};  // b: two tiles of 8 columns
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      a[i][j] = static_cast<float>(i * 16 + j - 100);  // all different, and exact in bfloat16
      b[i][j] = static_cast<float>((i * 16 + j) * 7 % 256 - 90);
    }
  }
  on_warp([&] {
    unsigned char *const shared = shared_bytes(), *const b_tile = shared + 2048;
    const int lane = cuda_emulation::lane();
    for (int i = lane; i < 256; i += 32) {
      T x, y;
      narrow(a[i / 16][i % 16], &x);
      narrow(transposed ? b[i / 16][i % 16] : b[i % 16][i / 16], &y);
      memcpy(shared + swizzled(i / 16, i % 16 / 8, 128) + i % 8 * 2, &x, 2);
      memcpy(b_tile + swizzled(i / 16, i % 16 / 8, 128) + i % 8 * 2, &y, 2);
    }
    __syncthreads();
    uint32_t ra[4], rb[4];
    load_matrices(ra, shared + swizzled(lane % 16, lane / 16, 128));
    if (transposed) {
      load_transposed(rb, b_tile + swizzled(lane % 16, lane / 16, 128));
    } else {
      load_matrices(rb, b_tile + swizzled(lane / 16 * 8 + lane % 8, lane / 8 % 2, 128));
    }
    float rc[2][4] = {};
    multiply(T{}, rc[0], ra, rb[0], rb[1]);
    multiply(T{}, rc[1], ra, rb[2], rb[3]);
    for (int i = 0; i < 8; ++i) {
      const MatrixPlace place = place_in_c(lane, i % 4);
      c[place.row][place.column + i / 4 * 8] = rc[i / 4][i % 4];
    }
  });
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      float sum = 0.0f;
      for (int k = 0; k < 16; ++k) sum += a[i][k] * b[k][j];
      ASSERT_EQ(c[i][j], sum) << i << " " << j;
    }
  }
}

TEST(Mma, ProductsAreThoseOfPlainMatrices) {
  for (bool transposed : {false, true}) {
    check_product<F16>(transposed);
    check_product<Bf16>(transposed);
  }
}

// Fragments as the PTX documentation draws them, at positions that distinguish rows from columns and halves from
// registers.
TEST(Mma, FragmentsAreThoseOfTheDocumentation) {
  const auto is = [](MatrixPlace place, int row, int column) { return place.row == row && place.column == column; };
  EXPECT_TRUE(is(place_in_a(5, 1), 1, 3));   // a0: row lane / 4, column lane % 4 * 2 + 1
  EXPECT_TRUE(is(place_in_a(5, 2), 9, 2));   // a1: 8 rows down
  EXPECT_TRUE(is(place_in_a(5, 5), 1, 11));  // a2: 8 columns on
  EXPECT_TRUE(is(place_in_a(31, 7), 15, 15));
  EXPECT_TRUE(is(place_in_b(5, 1), 3, 1));   // b0: row lane % 4 * 2 + 1, column lane / 4
  EXPECT_TRUE(is(place_in_b(5, 2), 10, 1));  // b1
  EXPECT_TRUE(is(place_in_c(5, 1), 1, 3));
  EXPECT_TRUE(is(place_in_c(5, 2), 9, 2));
  EXPECT_TRUE(is(place_in_loaded(5, 1, false), 1, 3));
  EXPECT_TRUE(is(place_in_loaded(5, 1, true), 3, 1));
}

// 8 rows at one chunk, and 8 neighbouring chunks of a row, are in different banks (16 bytes are 4 of 32 banks).
TEST(Mma, SwizzledTilesHaveNoBankConflicts) {
  for (int32_t pitch : {128, 256, 384, 512, 1152}) {
    for (int32_t row = 0; row < 64; row += 8) {
      for (int32_t chunk = 0; chunk < pitch / 16; ++chunk) {
        uint32_t rows = 0, chunks = 0;
        for (int32_t i = 0; i < 8; ++i) {
          rows |= 1u << (swizzled(row + i, chunk, pitch) / 16 % 8);
          chunks |= 1u << (swizzled(row + chunk % 8, chunk / 8 * 8 + i, pitch) / 16 % 8);
        }
        ASSERT_EQ(rows, 0xffu);
        ASSERT_EQ(chunks, 0xffu);
      }
    }
  }
}

// The thread that made a copy sees it after the wait, and other threads after a barrier.
TEST(Mma, CopiesArriveWithTheirGroup) {
  alignas(16) unsigned char source[64];
  for (int i = 0; i < 64; ++i) source[i] = static_cast<unsigned char>(i + 1);
  for (int launch = 0; launch < 4; ++launch) {  // copies late and early, threads forwards and backwards
    on_warp([&] {
      unsigned char* const shared = shared_bytes();
      const int lane = cuda_emulation::lane();
      if (lane == 0) {
        begin_copy(shared, source, true);
        close_copies();
        begin_copy(shared + 16, source + 16, false);
        close_copies();
        wait_copies<1>();
        EXPECT_EQ(shared[0], 1);
        wait_copies<0>();
      }
      __syncthreads();
      EXPECT_EQ(shared[15], 16);
      EXPECT_EQ(shared[16], 0);  // no source: zeros
    });
  }
}

// Every byte of the 8-bit types is converted as convert.h does it, to both 16-bit types.
template <class T>
void check_dequantised(Type stored, int byte) {
  const uint8_t bits = static_cast<uint8_t>(byte);
  const float exact = stored == Type::kE4m3   ? to_float(E4m3{bits})
                      : stored == Type::kE5m2 ? to_float(E5m2{bits})
                                              : static_cast<float>(static_cast<int8_t>(bits));
  const uint32_t other = stored == Type::kI8 ? 0x85u : 0x05u;
  for (int place = 0; place < 4; ++place) {
    const uint32_t four = (other * 0x01010101u & ~(0xffu << (8 * place))) | static_cast<uint32_t>(byte) << (8 * place);
    const uint32_t odd = odd_bytes(stored, four),
                   pair = dequantise_pair(T{}, stored, spread(four, place / 2), odd != 0);
    ASSERT_EQ(odd, std::isfinite(exact) ? 0 : 0x80u << (8 * place)) << byte;
    const float x = to_float(T{static_cast<uint16_t>(pair >> (place % 2 * 16))});
    if (std::isnan(exact)) {
      ASSERT_TRUE(std::isnan(x)) << byte;
    } else {
      ASSERT_EQ(float_bits(x), float_bits(exact)) << byte << " at " << place << ": " << x << " not " << exact;
    }
  }
}

TEST(Mma, EightBitsAreDequantisedExactly) {
  for (Type stored : {Type::kE4m3, Type::kE5m2, Type::kI8}) {
    for (int byte = 0; byte < 256; ++byte) {
      check_dequantised<F16>(stored, byte);
      check_dequantised<Bf16>(stored, byte);
    }
  }
}

TEST(MmaPlan, WhatTensorCoresCompute) {
  for (Type q : {Type::kF16, Type::kBf16}) {
    for (Type stored : {q, Type::kE4m3, Type::kI8}) EXPECT_EQ(Call(q, stored).why(), "");
  }
  for (int32_t dim : {16, 80, 192, 256})
    EXPECT_EQ(Call(Type::kF16, Type::kF16, dim, (dim / 2 + 15) / 16 * 16).why(), "");
  EXPECT_EQ(Call(Type::kF32).why(), "q has not 16 bits");
  EXPECT_EQ(Call(Type::kF16, Type::kBf16).why(), "K has another type than q");
  EXPECT_EQ(Call(Type::kBf16, Type::kF32).why(), "K has another type than q");
  EXPECT_EQ(Call(Type::kBf16, Type::kBf16, 72).why(), "a head dim is no multiple of 16");
  EXPECT_EQ(Call(Type::kBf16, Type::kBf16, 64, 40).why(), "a head dim is no multiple of 16");
  EXPECT_EQ(Call(Type::kBf16, Type::kBf16, 272).why(), "a head dim is above 256");
  EXPECT_EQ(Call(Type::kBf16, Type::kBf16, 576, 512).why(), "a head dim is above 256");
}

TEST(MmaPlan, WhatOfLatentRowsTensorCoresCompute) {
  const auto why = [](const Call& call) { return call.why(); };
  for (Type q : {Type::kF16, Type::kBf16}) {
    for (Type stored : {q, Type::kE4m3}) {
      EXPECT_EQ(why(latent_call(q, stored, 576, 512)), "");
      EXPECT_EQ(why(latent_call(q, stored, 576, 512, true)), "");
      EXPECT_EQ(why(latent_call(q, stored, 64, 64)), "");
    }
  }
  EXPECT_EQ(why(latent_call(Type::kBf16, Type::kI8, 576, 512)), "");
  EXPECT_EQ(why(latent_call(Type::kF16, Type::kI8, 576, 512)), "a latent row cannot be float16 and bfloat16");
  EXPECT_EQ(why(latent_call(Type::kBf16, Type::kBf16, 640, 528)), "V of a latent row has more than 512 dims");
  EXPECT_EQ(why(latent_call(Type::kBf16, Type::kBf16, 72, 64)), "a head dim is no multiple of 16");
}

TEST(MmaPlan, WhatIsLeftToTheSimpleKernel) {
  const double table = 0.0;
  Call rotated = latent_call(Type::kBf16, Type::kBf16, 80, 64);
  rotated.args.key_tables = &table;
  rotated.layer.rope_dim = 16;
  rotated.layer.rope_offset = 64;
  EXPECT_EQ(rotated.why(), "");
  rotated.layer.rope_offset = 62;
  EXPECT_EQ(rotated.why(), "dims of V are rotated where they are K's");
  Call fold;
  fold.plan.fold_keys = 1024;
  EXPECT_EQ(fold.why(), "");
  fold.layer.row_kind = KVC_BACKEND_ROW_LATENT;
  EXPECT_EQ(fold.why(), "");
  for (int64_t kvc_backend_pool::* stride : {&kvc_backend_pool::page_stride_bytes, &kvc_backend_pool::head_stride_bytes,
                                             &kvc_backend_pool::slot_stride_bytes}) {
    Call k, v, bytes(Type::kBf16, Type::kE4m3);
    k.layer.k.*stride += 8;
    v.layer.v.*stride += 8;
    bytes.layer.k.*stride += 8;
    for (const Call* unaligned : {&k, &v, &bytes}) EXPECT_EQ(unaligned->why(), "rows are not aligned to 16 bytes");
    k.layer.k.*stride += 8;
    EXPECT_EQ(k.why(), "");
  }
  Call pointer;
  pointer.layer.v.data = reinterpret_cast<void*>(uintptr_t{0x1008});
  EXPECT_EQ(pointer.why(), "rows are not aligned to 16 bytes");
}

TEST(MmaPlan, RowsOfFewBits) {
  for (Type q : {Type::kF16, Type::kBf16}) {
    for (int32_t dim : {64, 128}) EXPECT_EQ(Call(q, Type::kU4, dim, dim).why(), "");
    EXPECT_EQ(Call(q, Type::kU4, 256, 256).why(), "rows of uint4 have another number of dims");
    EXPECT_EQ(Call(q, Type::kU4, 96, 96).why(), "rows of uint4 have another number of dims");
    EXPECT_EQ(Call(q, Type::kU4, 128, 64).why(), "rows of uint4 have another number of dims");
    EXPECT_EQ(latent_call(q, Type::kU4, 128, 128).why(), "rows of uint4 have another number of dims");
    Call packed(q, Type::kE2m1);  // 72 bytes
    EXPECT_EQ(packed.why(), "");
    EXPECT_EQ(copy_bytes(packed.layer), 8);
    packed.layer.k.slot_stride_bytes = 76;
    EXPECT_EQ(packed.why(), "");
    EXPECT_EQ(copy_bytes(packed.layer), 4);
    packed.layer.v.slot_stride_bytes = 74;
    EXPECT_EQ(packed.why(), "rows are not aligned to 4 bytes");
    Call ds_mla = latent_call(q, Type::kE4m3, 576, 512);
    ds_mla.layer.format = descriptor_of(*packed_row_format(KVC_ROW_FORMAT_FP8_DS_MLA), true, 576);
    EXPECT_EQ(ds_mla.why(), q == Type::kF16 ? "q has another type than the last dims of K" : "");
    EXPECT_EQ(raw_row_bytes(stored_type(ds_mla.layer), 576), 656);
  }
  const double table = 0.0;
  Call rotated(Type::kBf16, Type::kU4);
  rotated.args.key_tables = &table;
  EXPECT_EQ(rotated.why(), "keys are rotated twice on read");
}

TEST(MmaPlan, WhatTheKernelOfManyRowsComputes) {
  const auto why = [](const Call& call) {
    const char* const reason = why_not_many(call.args);
    return std::string(reason == nullptr ? "" : reason);
  };
  for (Type type : {Type::kF16, Type::kBf16}) {
    for (int32_t dim : {64, 128}) EXPECT_EQ(why(Call(type, type, dim, dim)), "");
    EXPECT_EQ(why(Call(type, type, 192, 128)), "");
    EXPECT_EQ(why(Call(type, Type::kE4m3)), "K has another type than q");
  }
  const std::string dims = "the head dims of K and V are none of 64, 128, and 192 with 128";
  EXPECT_EQ(why(Call(Type::kF16, Type::kF16, 128, 64)), dims);
  EXPECT_EQ(why(Call(Type::kF16, Type::kF16, 192, 192)), dims);
  EXPECT_EQ(why(Call(Type::kF16, Type::kF16, 256, 256)), dims);
  EXPECT_EQ(why(latent_call(Type::kF16, Type::kF16, 128, 128)), "rows are latent");
  const double table = 0.0;
  const float value = 0.0f;
  Call rotated, folds, capped, sloped, scaled, listed;
  rotated.args.key_tables = &table;
  EXPECT_EQ(why(rotated), "keys are rotated on read");
  folds.plan.fold_keys = 1024;
  EXPECT_EQ(why(folds), "the cache is deterministic");
  capped.args.softcap = 5.0;
  EXPECT_EQ(why(capped), "scores have softcap or ALiBi");
  sloped.args.alibi_slopes = &value;
  EXPECT_EQ(why(sloped), "scores have softcap or ALiBi");
  scaled.args.q_scales.data = &value;
  EXPECT_EQ(why(scaled), "scores have scales");
  listed.args.lists.block_tokens = 1;
  EXPECT_EQ(why(listed), "keys are listed");
}

// q, a tile of K and a tile of V follow each other. Two blocks of 128 dims fit on a multiprocessor with 164 KiB, and
// one block of each instance on one with 100 KiB.
TEST(MmaPlan, SharedMemoryOfManyRows) {
  const int32_t fixed = static_cast<int32_t>(sizeof(ManyFixed));
  EXPECT_LE(fixed, 12 * 1024);  // as scripts/ptxas_report.py assumes
  for (const auto& [dim, v_dim] : {std::pair{64, 64}, {128, 128}, {192, 128}}) {
    const Call call(Type::kF16, Type::kF16, dim, v_dim);
    const MmaShape shape = many_shape(call.layer, fixed, 99 * 1024);
    EXPECT_EQ(shape.stages, dim == 192 ? 0 : 1);
    EXPECT_GE(shape.q_at, fixed);
    EXPECT_EQ(shape.q_at % 128, 0);
    EXPECT_EQ(shape.tiles_at, shape.q_at + 128 * dim * 2);
    EXPECT_EQ(shape.shared_bytes, shape.tiles_at + 64 * (dim + v_dim) * 2);
    EXPECT_EQ(many_shape(call.layer, fixed, shape.shared_bytes).stages, 1);
    EXPECT_EQ(many_shape(call.layer, fixed, shape.shared_bytes - 1).stages, 0);
    if (dim <= 128) {
      EXPECT_LE(2 * (shape.shared_bytes + 1024), 164 * 1024);
    }
  }
}

// The parts of shared memory follow each other without overlap, and fit the device's limit.
TEST(MmaPlan, SharedMemoryIsCutWithoutOverlap) {
  for (int32_t of_block : {99, 163, 227}) {
    for (int32_t dim : {16, 64, 80, 128, 192, 256}) {
      for (Type stored : {Type::kBf16, Type::kE4m3}) {
        for (int32_t rows : {kFewRows.rows, kManyRows.rows}) {
          const Call call(Type::kBf16, stored, dim, dim > 64 ? dim - 64 : dim);
          const MmaShape shape =
              shape_of_block(call.layer, rows, {}, kMmaSizes, of_block * 1024, (of_block + 1) * 1024);
          if (shape.stages == 0) {
            EXPECT_GT(shape_of_stages(call.layer, rows, {}, kMmaSizes, 1).shared_bytes, of_block * 1024);
            continue;
          }
          EXPECT_LE(shape.shared_bytes, of_block * 1024);
          EXPECT_GE(shape.k_pitch, 2 * call.layer.head_dim);
          EXPECT_GE(shape.v_pitch, 2 * call.layer.v_head_dim);
          EXPECT_EQ(shape.k_pitch % 128 + shape.v_pitch % 128 + shape.q_at % 128, 0);
          EXPECT_EQ(shape.records_at, static_cast<int32_t>(sizeof(MmaFixed)));
          EXPECT_EQ(shape.v_rows_at - shape.records_at, (shape.stages + 1) * static_cast<int32_t>(sizeof(MmaTile)));
          EXPECT_GE(shape.q_at, shape.v_rows_at + (shape.stages + 1) * kMmaTileKeys * 8);
          EXPECT_EQ(shape.tiles_at, shape.q_at + rows * shape.k_pitch);
          const int32_t tile = kMmaTileKeys * (shape.k_pitch + shape.v_pitch);
          const bool raw = stored == Type::kE4m3;
          EXPECT_EQ(shape.raw_at, shape.tiles_at + (raw ? 1 : shape.stages) * tile);
          if (raw) {
            EXPECT_EQ(shape.k_raw, call.layer.head_dim);
            EXPECT_GE(shape.shared_bytes, shape.raw_at + shape.stages * kMmaTileKeys * (shape.k_raw + shape.v_raw));
          }
          EXPECT_GE(shape.shared_bytes, shape.q_at + kMostRows * call.layer.v_head_dim * 4);
          const MmaShape folds = shape_of_stages(call.layer, rows, {true, 0}, kMmaSizes, shape.stages);
          EXPECT_EQ(folds.raw_at, shape.raw_at);
          EXPECT_GE(folds.folded_at,
                    folds.raw_at + (raw ? shape.stages * kMmaTileKeys * (shape.k_raw + shape.v_raw) : 0));
          EXPECT_EQ(folds.shared_bytes, folds.folded_at + rows * call.layer.v_head_dim * 4);
        }
      }
    }
  }
}

// P is in the tile, after the dims of V and within the row. All rows of the block have room for their P.
TEST(MmaPlan, LatentTilesHaveRoomForP) {
  const int32_t dims[][2] = {{576, 512}, {288, 256}, {80, 64}, {112, 112}, {640, 512}, {48, 32}};
  for (const auto& dim : dims) {
    for (Type stored : {Type::kBf16, Type::kE4m3}) {
      for (bool apart : {false, true}) {
        for (int32_t rows : {kFewRows.rows, kManyRows.rows}) {
          const Call call = latent_call(Type::kBf16, stored, dim[0], dim[1], apart);
          const MmaShape shape = shape_of_stages(call.layer, rows, {}, kMmaSizes, 2);
          const int32_t keys = shape.cut.keys;
          EXPECT_GE(shape.p_chunk * 16, 2 * dim[1]);
          EXPECT_GE(shape.k_pitch, 2 * dim[0]);
          EXPECT_LE(shape.p_chunk * 16 + (rows + keys - 1) / keys * keys * 2, shape.k_pitch);
          EXPECT_EQ(shape.k_pitch % 128, 0);
          EXPECT_EQ(shape.v_pitch + shape.v_raw, 0);
          EXPECT_EQ(shape.cut.rows, rows);
          EXPECT_GE(shape.q_at, shape.v_rows_at + (apart ? 3 * keys * 8 : 0));
          const bool raw = stored == Type::kE4m3;
          EXPECT_EQ(shape.raw_at - shape.tiles_at, (raw ? 1 : 2) * keys * shape.k_pitch);
          EXPECT_GE(shape.shared_bytes, shape.raw_at + (raw ? 2 * keys * dim[0] : 0));
          EXPECT_GE(shape.shared_bytes, shape.q_at + rows * dim[1] * 4);
        }
      }
    }
  }
}

// Stages for 512 + 64 dims in 16 bits, by the shared memory of each GPU.
TEST(MmaPlan, LatentStagesOfTheCards) {
  const Call call = latent_call(Type::kBf16, Type::kBf16, 576, 512);
  const auto stages = [&](int32_t rows, int32_t of_block) {
    return shape_of_block(call.layer, rows, {}, kMmaSizes, of_block * 1024, (of_block + 1) * 1024).stages;
  };
  EXPECT_EQ(stages(kManyRows.rows, 227), 2);  // uses all of sm_90's limit
  EXPECT_EQ(stages(kManyRows.rows, 163), 1);
  EXPECT_EQ(stages(kManyRows.rows, 99), 0);  // blocks of few rows in rounds
  EXPECT_EQ(stages(kFewRows.rows, 227), 2);  // of each of two blocks
  EXPECT_EQ(stages(kFewRows.rows, 163), 1);
  EXPECT_EQ(stages(kFewRows.rows, 99), 1);  // of one block
}

// scripts/ptxas_report.py assumes this size.
TEST(MmaPlan, FixedPartIsAtMost16KiB) {
  EXPECT_LE(sizeof(MmaFixed) + (kMaxStages + 1) * (sizeof(MmaTile) + kMmaTileKeys * 8), size_t{16} * 1024);
}

// As many stages as fit if a multiprocessor runs two blocks. If not even one does, as many as one block has room for.
TEST(MmaPlan, StagesLeaveRoomForASecondBlock) {
  const Call call;  // a stage is 32 KiB
  const auto stages = [&](int32_t rows, int32_t of_block, int32_t of_multiprocessor) {
    return shape_of_block(call.layer, rows, {}, {4 * 1024, 3 * 512}, of_block * 1024, of_multiprocessor * 1024).stages;
  };
  EXPECT_EQ(stages(kFewRows.rows, 227, 228), 3);   // 112 KiB
  EXPECT_EQ(stages(kFewRows.rows, 163, 164), 2);   // 80
  EXPECT_EQ(stages(kFewRows.rows, 99, 100), 1);    // 48
  EXPECT_EQ(stages(kManyRows.rows, 227, 228), 2);  // 92
  EXPECT_EQ(stages(kManyRows.rows, 163, 164), 1);
  EXPECT_EQ(stages(kManyRows.rows, 99, 100), 2);  // one block
  EXPECT_EQ(stages(kManyRows.rows, 54, 100), 0);
}

TEST(MmaPlan, ItemsAreSortedByTheirRows) {
  Call call;  // groups of 4
  std::vector<kvc_backend_item> items(3);
  items[0].q_end = 4, items[0].head_end = 2;   // 16 rows
  items[1].q_end = 5, items[1].head_end = 2;   // 20
  items[2].q_end = 33, items[2].head_end = 1;  // 132
  call.plan.arrays.items = items.data();
  call.plan.num_items = 3;
  ASSERT_EQ(count_all_blocks(call.plan, kManyRows).few, 2);
  ASSERT_EQ(count_all_blocks(call.plan, kManyRows).many, 2 + 3);
  AttendBlock blocks[5];
  list_blocks(call.plan, kManyRows, blocks);
  EXPECT_EQ(blocks[0].item, 1);
  EXPECT_EQ(blocks[4].item, 2);
  EXPECT_EQ(blocks[4].row_begin, 128);
  EXPECT_EQ(blocks[4].row_end, 132);
}

TEST(Mma, TheKernelThatWasAskedForRuns) {
  EXPECT_EQ(attend_on("sm_90_simple", 1, 64, Type::kF16).products, 0);
  EXPECT_EQ(attend_on("sm_90", 1, 64, Type::kBf16).products, 0);  // another type than q
  // Keys 0..199 are four tiles. In each, a warp multiplies 2 fragments of 8 keys with D / 16 of q, and D / 8 of V with
  // one of P. A warp that has rows of its own does 4 times as much. The kernel of few rows has tiles of 16 keys: 13 of
  // them, each of one warp.
  EXPECT_EQ(attend_on("sm_90", 1, 80, Type::kF16).products, 4 * 4 * (2 * 5 + 10));
  EXPECT_EQ(attend_on("sm_90", 1, 64, Type::kF16).products, 13 * (2 * 4 + 8));
  EXPECT_FLOAT_EQ(attend_on("sm_90", 1, 64, Type::kF16).out, 0.5f);
  // Of the kernel of many rows, a warp has two groups of 16 rows, and 2 of 4 warps have rows.
  EXPECT_EQ(attend_on("sm_90_mma", 40, 64, Type::kF16).products, 4 * 4 * (8 * 4 + 4 * 8));
  EXPECT_FLOAT_EQ(attend_on("sm_90_mma", 40, 64, Type::kF16).out, 0.5f);
}

// Seven tiles of 32 keys. In each, 4 warps multiply a fragment of 8 keys with 5 of q, and 2 of P with 8 column groups
// of V. 40 rows take four tiles of 64 keys: 3 groups of rows times 8 fragments of keys, and 4 of P.
TEST(Mma, LatentRowsAreMultipliedTwice) {
  EXPECT_EQ(attend_on("sm_90_simple", 1, 80, Type::kF16, 64).products, 0);
  EXPECT_EQ(attend_on("sm_90", 1, 80, Type::kF16, 64).products, 7 * (4 * 5 + 2 * 8));
  EXPECT_EQ(attend_on("sm_90_mma", 40, 80, Type::kF16, 64).products, 4 * 3 * (8 * 5 + 4 * 8));
  EXPECT_FLOAT_EQ(attend_on("sm_90", 1, 80, Type::kF16, 64).out, 0.5f);
  EXPECT_FLOAT_EQ(attend_on("sm_90_mma", 40, 80, Type::kF16, 64).out, 0.5f);
}

// With little shared memory there is one stage. If not even that fits, the simple kernel computes the call.
TEST(Mma, SmallDevices) {
  const auto with = [](int block_kib, int rows, Type stored) {
    cuda_emulation::set_shared(block_kib * 1024, (block_kib + 1) * 1024);
    const Attended attended = attend_on("sm_90_mma", rows, 256, stored);
    cuda_emulation::set_shared(227 * 1024, 228 * 1024);
    return attended;
  };
  for (Type stored : {Type::kF16, Type::kE4m3}) {
    for (int rows : {1, 70}) {
      for (int kib : {150, 227}) {
        const Attended attended = with(kib, rows, stored);
        EXPECT_GT(attended.products, 0);
        EXPECT_FLOAT_EQ(attended.out, 0.5f) << kib;
      }
    }
  }
  for (int rows : {1, 70}) {
    cuda_emulation::set_shared(99 * 1024, 100 * 1024);
    const Attended attended = attend_on("sm_90_mma", rows, 576, Type::kF16, 512);
    cuda_emulation::set_shared(60 * 1024, 61 * 1024);
    EXPECT_EQ(attend_on("sm_90_mma", rows, 576, Type::kF16, 512).products, 0);
    cuda_emulation::set_shared(227 * 1024, 228 * 1024);
    EXPECT_GT(attended.products, 0);
    EXPECT_FLOAT_EQ(attended.out, 0.5f);
  }
  EXPECT_GT(with(90, 1, Type::kF16).products, 0);
  EXPECT_EQ(with(60, 1, Type::kF16).products, 0);
  EXPECT_FLOAT_EQ(with(60, 1, Type::kF16).out, 0.5f);
}

// Images of sm_90 and later count the kilobyte that the system takes of each block. So a launch may have that much
// less.
TEST(Mma, ImagesWithSharedMemoryOfTheirOwn) {
  cuda_emulation::set_shared(227 * 1024, 228 * 1024, 1024);
  const Attended latent = attend_on("sm_90_mma", 70, 576, Type::kF16, 512),
                 wide = attend_on("sm_90_mma", 70, 256, Type::kF16);
  cuda_emulation::set_shared(227 * 1024, 228 * 1024);
  EXPECT_GT(latent.products, 0);
  EXPECT_FLOAT_EQ(latent.out, 0.5f);
  EXPECT_FLOAT_EQ(wide.out, 0.5f);
}

}  // namespace
}  // namespace kvc::kernels::cuda
