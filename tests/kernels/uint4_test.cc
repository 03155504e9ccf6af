// Rows of uint4: what append stores, byte for byte. Every unused slot and scale is poison.
#include "tests/support/uint4.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/common/hadamard.h"
#include "pool.h"
#include "scene.h"

namespace kvc::kernels::test {
namespace {

std::vector<float> rotated_row(const std::vector<float>& row, int block) {
  std::vector<float> rotated = row;
  kvt::rotate_row(block, &rotated);
  return rotated;
}

// A pool of pages of 4 tokens for one kv head, with a scale for each token.
struct Uint4Pool {
  static constexpr int kSlots = 8;

  Uint4Pool(int dims, int v_dims, uint32_t row_kind) {
    layer.num_pages = kSlots / 4;
    layer.page_size = 4;
    layer.num_q_heads = layer.num_kv_heads = 1;
    layer.head_dim = dims;
    layer.v_head_dim = v_dims;
    layer.row_kind = row_kind;
    layer.format = stored_format(dtype_of(Kind::kU4));
    layer.rope_class = -1;
    const auto fill = [](std::vector<unsigned char>& bytes, std::vector<float>& scales, int row_dims,
                         kvc_backend_pool* pool, kvc_backend_scales* of_pool) {
      const int row = row_dims / 2;
      bytes.assign(static_cast<size_t>(kSlots) * static_cast<size_t>(row), 0xee);
      scales.assign(kSlots, -5.0f);
      *pool = pool_of(dtype_of(Kind::kU4), bytes.data(), int64_t{4} * row, int64_t{4} * row, row, row);
      *of_pool = scales_of_tokens(scales.data(), 4, 4, 1);
    };
    fill(k_bytes, k_scales, dims, &layer.k, &layer.k_scales);
    fill(v_bytes, v_scales, v_dims, &layer.v, &layer.v_scales);
  }
  Uint4Pool(const Uint4Pool&) = delete;
  Uint4Pool& operator=(const Uint4Pool&) = delete;

  void append(kvc_backend_device* device, Kind source, void* k, void* v, int64_t tokens, float* scales = nullptr) {
    const int64_t slots[] = {1, 6};
    kvc_backend_append args = {};
    args.layer = &layer;
    args.num_tokens = tokens;
    args.slots = slots;
    const int dims_of_unit = source == Kind::kU4 ? 2 : 1;
    args.k = {k, layer.head_dim / dims_of_unit, layer.head_dim / dims_of_unit, dtype_of(source), 0};
    args.v = {v, layer.v_head_dim / dims_of_unit, layer.v_head_dim / dims_of_unit, dtype_of(source), 0};
    args.k_scale = args.v_scale = {scales, 1, 1, {kDLFloat, 32, 1}, 0};
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(test_backend()->append(device, &args, nullptr, &error), KVC_OK) << error.message;
  }

  kvc_backend_layer layer = {};
  std::vector<unsigned char> k_bytes, v_bytes;
  std::vector<float> k_scales, v_scales;
};

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

void expect_row(const std::vector<float>& row, int block, const unsigned char* stored, float stored_scale,
                const std::string& name) {
  std::vector<unsigned char> expected(row.size() / 2);
  const float scale = kvt::quantise_uint4(rotated_row(row, block), expected.data());
  ASSERT_EQ(bits_of(stored_scale), bits_of(scale)) << name << " " << stored_scale << ", not " << scale;
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(stored[i], expected[i]) << name << " byte " << i;
}

TEST(Uint4, AppendStoresWhatTheFormatDefines) {
  std::mt19937 random(31);
  const int dims[][3] = {{16, 16, 16}, {64, 64, 64},    {80, 48, 16},   {96, 96, 32},
                         {128, 64, 0}, {256, 256, 256}, {1024, 512, 0}, {192, 128, 0}};
  for (const auto& dim : dims) {
    for (Kind source : {Kind::kF32, Kind::kF16, Kind::kBf16}) {
      for (float deviation : {1.0f, 1e-8f, 300.0f}) {
        std::normal_distribution<float> normal(0.1f * deviation, deviation);
        const auto make = [&](int n, std::vector<float>* row) {
          std::vector<unsigned char> data(static_cast<size_t>(n * bytes_of(source)));
          for (int d = 0; d < n; ++d) {
            row->push_back(rounded(source, normal(random)));
            write_number(source, &data[static_cast<size_t>(d * bytes_of(source))], row->back());
          }
          return data;
        };
        std::vector<float> k, v;
        std::vector<unsigned char> k_data = make(dim[0], &k), v_data = make(dim[1], &v);
        for_each_implementation(
            1,
            [&](const std::string& name, kvc_backend_device* device) {
              Uint4Pool pool(dim[0], dim[1], KVC_BACKEND_ROW_KV);
              pool.append(device, source, k_data.data(), v_data.data(), 1);
              expect_row(k, dim[0] & -dim[0], &pool.k_bytes[static_cast<size_t>(dim[0] / 2)], pool.k_scales[1], name);
              expect_row(v, dim[1] & -dim[1], &pool.v_bytes[static_cast<size_t>(dim[1] / 2)], pool.v_scales[1], name);
              EXPECT_EQ(pool.k_bytes[static_cast<size_t>(dim[0] / 2) - 1], 0xee) << name;
              EXPECT_EQ(pool.k_bytes[static_cast<size_t>(dim[0])], 0xee) << name;
              EXPECT_EQ(pool.k_scales[2], -5.0f) << name << " writes the next token's scale";
            },
            true);
      }
    }
  }
}

// An MLA row has the blocks that fit its latent part too.
TEST(Uint4, LatentRowsHaveBlocksOfBothParts) {
  std::mt19937 random(32);
  std::normal_distribution<float> normal;
  for (const auto& [dims, v_dims, block] : {std::tuple(576, 512, 64), {48, 32, 16}, {256, 128, 128}}) {
    std::vector<float> row(static_cast<size_t>(dims));
    for (float& x : row) x = normal(random);
    for_each_implementation(
        1,
        [&](const std::string& name, kvc_backend_device* device) {
          Uint4Pool pool(dims, v_dims, KVC_BACKEND_ROW_LATENT);
          std::vector<float> data = row;
          pool.append(device, Kind::kF32, data.data(), nullptr, 1);
          expect_row(row, block, &pool.k_bytes[static_cast<size_t>(dims / 2)], pool.k_scales[1], name);
        },
        true);
  }
}

// Rows of zeros are read as zeros. Rows that are not finite, or whose range is not, have scale NaN and zeros.
TEST(Uint4, RowsWithoutARange) {
  struct Case {
    float first, other;
    bool nan;
  };
  for (const Case& c : {Case{0.0f, 0.0f, false},
                        {NAN, 1.0f, true},
                        {INFINITY, 1.0f, true},
                        {-INFINITY, 0.0f, true},
                        {3e38f, 3e38f, true}}) {
    for_each_implementation(
        1,
        [&](const std::string& name, kvc_backend_device* device) {
          std::vector<float> row(64, c.other);
          row[0] = c.first;
          Uint4Pool pool(64, 64, KVC_BACKEND_ROW_KV);
          pool.append(device, Kind::kF32, row.data(), row.data(), 1);
          EXPECT_EQ(bits_of(pool.k_scales[1]), c.nan ? 0x7fc00000u : bits_of(1e-6f) & ~15u) << name << c.first;
          for (int i = 0; i < 32; ++i) ASSERT_EQ(pool.v_bytes[static_cast<size_t>(32 + i)], 0) << name << c.first;
        },
        true);
  }
}

TEST(Uint4, StoredBytesAreCopied) {
  for_each_implementation(
      1,
      [&](const std::string& name, kvc_backend_device* device) {
        std::vector<unsigned char> k(2 * 32), v(2 * 16);
        for (size_t i = 0; i < k.size(); ++i) k[i] = static_cast<unsigned char>(i * 37);
        for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<unsigned char>(i * 51);
        std::vector<float> scales = {0.75f, NAN};
        Uint4Pool pool(64, 32, KVC_BACKEND_ROW_KV);
        pool.append(device, Kind::kU4, k.data(), v.data(), 2, scales.data());
        EXPECT_EQ(0, std::memcmp(&pool.k_bytes[32], k.data(), 32)) << name;
        EXPECT_EQ(0, std::memcmp(&pool.k_bytes[6 * 32], &k[32], 32)) << name;
        EXPECT_EQ(0, std::memcmp(&pool.v_bytes[6 * 16], &v[16], 16)) << name;
        EXPECT_EQ(0, std::memcmp(&pool.v_scales[1], &scales[0], 4)) << name;
        EXPECT_EQ(0, std::memcmp(&pool.k_scales[6], &scales[1], 4)) << name;
        EXPECT_EQ(pool.k_scales[2], -5.0f) << name;
      },
      true);
}

// The rotation is what makes 16 levels enough: one large dim no longer takes the range of all others.
TEST(Uint4, ALargeDimCostsTheOthersLittle) {
  std::mt19937 random(33);
  std::normal_distribution<float> normal;
  std::vector<float> row(128);
  for (float& x : row) x = normal(random);
  row[17] = 60.0f;
  std::vector<float> rotated = row, plain = row;
  std::vector<unsigned char> bytes(64);
  kvt::store_uint4_row(rotated.data(), 128, 128, bytes.data());
  kvt::store_uint4_row(plain.data(), 128, 1, bytes.data());
  const auto error = [&](const std::vector<float>& read) {
    double sum = 0.0;
    for (size_t d = 0; d < 128; ++d) {
      if (d != 17) sum += std::pow(static_cast<double>(read[d] - row[d]), 2.0);
    }
    return std::sqrt(sum / 127.0);
  };
  EXPECT_LT(error(rotated), 0.5 * error(plain)) << error(rotated) << " and " << error(plain);
}

}  // namespace
}  // namespace kvc::kernels::test
