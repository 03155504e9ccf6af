// Keys that are rotated on read, on tensor cores: their place in shared memory, and how often they are multiplied.
// tests/kernels/rotated_test.cc and fold_test.cc test the numbers.
#include "kernels/cuda/attend/mma/tiles.cuh"
#include "mma_call.h"

namespace kvc::kernels::cuda {
namespace {

// The lower parts of keys that are rotated on read are between the tiles and the folded states: one part in float16,
// two in bfloat16. They have whole steps of 16 dims around the rotated ones.
TEST(MmaRotated, KeysHaveRoomForTheirLowerParts) {
  const double table = 0.0;
  for (Type q : {Type::kF16, Type::kBf16}) {
    for (Type stored : {q, Type::kE4m3}) {
      Call call(q, stored);
      EXPECT_EQ(needs_of(call.args).lower_parts, 0);
      call.args.key_tables = &table;
      call.plan.fold_keys = 512;
      call.layer.rope_dim = 70;
      call.layer.rope_offset = 15;
      const MmaNeeds needs = needs_of(call.args);
      EXPECT_EQ(needs.lower_parts, q == Type::kF16 ? 1 : 2);
      for (int32_t rows : {kFewRows.rows, kManyRows.rows}) {
        const MmaShape shape = shape_of_stages(call.layer, rows, needs, kMmaSizes, 2);
        EXPECT_EQ(shape.rotated_begin, 0);
        EXPECT_EQ(shape.rotated_end, 96);
        EXPECT_EQ(shape.lower_pitch, 256);
        EXPECT_EQ(shape.lower_at % 128, 0);
        EXPECT_EQ(shape.lower_at, shape.raw_at + (stored == q ? 0 : 2 * kMmaTileKeys * 256));
        EXPECT_EQ(shape.folded_at, shape.lower_at + needs.lower_parts * kMmaTileKeys * 256);
        EXPECT_EQ(shape.shared_bytes, shape.folded_at + rows * 128 * 4);
      }
    }
  }
}

// Keys rotated in their last 32 of 64 dims: 2 of 4 steps are multiplied twice in float16.
TEST(MmaRotated, KeysAreMultipliedPartByPart) {
  EXPECT_EQ(attend_on("sm_90_simple", 1, 64, Type::kF16, 0, 32).products, 0);
  EXPECT_EQ(attend_on("sm_90", 1, 64, Type::kF16, 0, 32).products, 4 * 4 * (2 * (4 + 2) + 8));
  EXPECT_EQ(attend_on("sm_90_mma", 40, 64, Type::kF16, 0, 32).products, 4 * 3 * (8 * (4 + 2) + 4 * 8));
  EXPECT_EQ(attend_on("sm_90", 1, 80, Type::kF16, 64, 16).products, 7 * (4 * (5 + 1) + 2 * 8));
  EXPECT_FLOAT_EQ(attend_on("sm_90_mma", 40, 80, Type::kF16, 64, 16).out, 0.5f);
}

}  // namespace
}  // namespace kvc::kernels::cuda
