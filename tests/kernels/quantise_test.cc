// The quantiser and its inverse, bit by bit, compared with ml_dtypes (fp8_golden.inc) and with plain arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "kernels/common/scales.h"
#include "pool.h"
#include "scene.h"

namespace kvc::kernels::test {
namespace {

#include "fp8_golden.inc"

float from_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// A pool for one kv head: `slots` tokens of `dims` elements in pages of 4. There is a scale for each token if the kind
// has scales.
struct Pool {
  Pool(Kind kind, int slots, int dims) {
    bytes.assign(static_cast<size_t>(slots) * dims, 0xee);
    scales.assign(static_cast<size_t>(slots), -5.0f);
    layer.num_pages = slots / 4;
    layer.page_size = 4;
    layer.num_q_heads = layer.num_kv_heads = 1;
    layer.head_dim = layer.v_head_dim = dims;
    layer.format = stored_format(dtype_of(kind));
    layer.rope_dim = dims;
    layer.k = pool_of(dtype_of(kind), bytes.data(), int64_t{4} * dims, int64_t{4} * dims, dims, dims);
    other = bytes;
    layer.v = layer.k;
    layer.v.data = other.data();
    if (kind != Kind::kI8) return;
    layer.k_scales = scales_of_tokens(scales.data(), 4, 4, 1);
    other_scales = scales;
    layer.v_scales = layer.k_scales;
    layer.v_scales.data = other_scales.data();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Stores tokens [0, tokens) of `dims` numbers each, as K and as V, to the slots of the same numbers.
  void append(kvc_backend_device* device, Kind source, void* data, int64_t tokens,
              const float* given_scales = nullptr) {
    std::vector<int64_t> slots;
    for (int64_t t = 0; t < tokens; ++t) slots.push_back(t);
    kvc_backend_append args = {};
    args.layer = &layer;
    args.num_tokens = tokens;
    args.slots = slots.data();
    args.k = {data, layer.head_dim, layer.head_dim, dtype_of(source), 0};
    args.v = args.k;
    args.k_scale = args.v_scale = {const_cast<float*>(given_scales), 1, 1, {kDLFloat, 32, 1}, 0};
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(test_backend()->append(device, &args, nullptr, &error), KVC_OK) << error.message;
  }

  kvc_backend_layer layer = {};
  std::vector<unsigned char> bytes, other;
  std::vector<float> scales, other_scales;
};

void check_encoding(Kind kind, std::span<const uint32_t> inputs, std::span<const uint8_t> encoded) {
  ASSERT_EQ(inputs.size(), encoded.size());
  for (int dims : {1, 21, 128}) {
    const int tokens = static_cast<int>((inputs.size() + dims - 1) / dims);
    std::vector<uint32_t> rows(static_cast<size_t>(tokens) * dims, 0);
    std::copy(inputs.begin(), inputs.end(), rows.begin());
    for_each_implementation(
        2,
        [&](const std::string& name, kvc_backend_device* device) {
          Pool pool(kind, (tokens + 3) / 4 * 4, dims);
          pool.append(device, Kind::kF32, rows.data(), tokens);
          for (size_t i = 0; i < inputs.size(); ++i) {
            ASSERT_EQ(pool.bytes[i], encoded[i]) << name << " " << name_of(kind) << " of " << from_bits(inputs[i]);
            ASSERT_EQ(pool.other[i], encoded[i]) << name << " " << name_of(kind) << " of " << from_bits(inputs[i]);
          }
        },
        true);
  }
}

TEST(Quantise, Float8AsMlDtypes) {
  check_encoding(Kind::kE4m3, kE4m3Inputs, kE4m3Encoded);
  check_encoding(Kind::kE5m2, kE5m2Inputs, kE5m2Encoded);
}

TEST(Quantise, NaNStaysNaN) {
  for (uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu}) {
    for (Kind kind : {Kind::kE4m3, Kind::kE5m2}) {
      for_each_implementation(
          1,
          [&](const std::string& name, kvc_backend_device* device) {
            Pool pool(kind, 4, 20);
            std::vector<uint32_t> row(20, nan);
            pool.append(device, Kind::kF32, row.data(), 1);
            for (int d = 0; d < 20; ++d) {
              ASSERT_EQ(pool.bytes[d], (kind == Kind::kE4m3 ? 0x7f : 0x7e) | (nan >> 24 & 0x80)) << name;
            }
          },
          true);
    }
  }
}

// The value that V of a single key is read as, for all 256 bytes, with and without a scale.
TEST(Quantise, EveryByteIsReadAsMlDtypesReadsIt) {
  for (Kind kind : {Kind::kE4m3, Kind::kE5m2}) {
    for (int queries : {1, 20}) {
      for (int head_scales : {0, 1}) {
        SceneConfig config;
        config.q_heads = config.kv_heads = 1;
        config.head_dim = config.v_head_dim = 256;
        config.page_size = 1;
        config.kv = kind;
        config.head_scales = head_scales;
        config.rows = {{queries, queries}};
        Scene scene(config);
        const kvc_backend_layer layer = scene.layer();
        for (int64_t page = 0; page < layer.num_pages; ++page) {
          unsigned char* row = address_of_row(layer.v, page, 0, 0);
          for (int d = 0; d < 256; ++d) row[d] = static_cast<unsigned char>(d);
        }
        const float scale = head_scales == 0 ? 1.0f : *static_cast<const float*>(layer.v_scales.data);
        for_each_implementation(
            1,
            [&](const std::string& name, kvc_backend_device* device) {
              scene.attend(test_backend(), device);
              for (int d = 0; d < 256; ++d) {
                const float value = from_bits((kind == Kind::kE4m3 ? kE4m3Decoded : kE5m2Decoded)[d]) * scale;
                // With one key the value is exact. With several equal keys it is equal but for the rounding of the sum
                // of their weights.
                for (int t = 0; t < queries; ++t) {
                  if (std::isnan(value)) {
                    ASSERT_TRUE(std::isnan(scene.out(t, 0, d))) << name << " byte " << d;
                  } else if (std::isinf(value) || t == 0) {
                    ASSERT_EQ(scene.out(t, 0, d), value) << name << " byte " << d;
                  } else {
                    ASSERT_NEAR(scene.out(t, 0, d), value, std::fabs(value) * 1e-6f) << name << " byte " << d;
                  }
                }
              }
            },
            true);
      }
    }
  }
}

// The same for int8. Append makes no -128, but rows that a caller has quantised may contain it.
TEST(Quantise, EveryByteOfInt8IsRead) {
  constexpr float kScale = 0.5f;
  for (Kind q : {Kind::kF32, Kind::kF16, Kind::kBf16}) {
    for (int queries : {1, 20}) {
      SceneConfig config;
      config.q_heads = config.kv_heads = 1;
      config.head_dim = config.v_head_dim = 256;
      config.page_size = 1;
      config.q = q;
      config.kv = Kind::kI8;
      config.rows = {{queries, queries}};
      Scene scene(config);
      const kvc_backend_layer layer = scene.layer();
      for (int64_t page = 0; page < layer.num_pages; ++page) {
        std::memset(address_of_row(layer.k, page, 0, 0), 0, 256);  // so all keys have the same weight
        unsigned char* row = address_of_row(layer.v, page, 0, 0);
        for (int d = 0; d < 256; ++d) row[d] = static_cast<unsigned char>(d);
        *token_scale(&layer.v_scales, page, 0, 0) = kScale;
      }
      for_each_implementation(
          1,
          [&](const std::string& name, kvc_backend_device* device) {
            scene.attend(test_backend(), device);
            for (int d = 0; d < 256; ++d) {
              const float value = kScale * static_cast<float>(static_cast<int8_t>(d));
              for (int t = 0; t < queries; ++t) {
                ASSERT_NEAR(scene.out(t, 0, d), value, std::fabs(value) * 1e-6f) << name << " byte " << d;
              }
            }
          },
          true);
    }
  }
}

// x / scale in float32, then rounded: for every type of source.
TEST(Quantise, Float8DividesByItsScale) {
  std::mt19937 random(21);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (Kind kind : {Kind::kE4m3, Kind::kE5m2}) {
    for (Kind source : {Kind::kF32, Kind::kF16, Kind::kBf16}) {
      const int dims = 77;
      std::vector<unsigned char> row(dims * 4);
      for (int d = 0; d < dims; ++d) write_number(source, &row[d * bytes_of(source)], normal(random));
      for (float scale : {0.37f, 1e-20f, 1e20f}) {
        for_each_implementation(
            1,
            [&](const std::string& name, kvc_backend_device* device) {
              Pool pool(kind, 4, dims);
              std::vector<float> scales = {scale};
              pool.layer.k_scales.data = pool.layer.v_scales.data = scales.data();
              pool.append(device, source, row.data(), 1);
              for (int d = 0; d < dims; ++d) {
                const float quotient = read_number(source, &row[d * bytes_of(source)]) / scale;
                ASSERT_EQ(pool.bytes[d], nearest_byte(kind, static_cast<double>(quotient))) << name << " " << quotient;
              }
            },
            true);
      }
    }
  }
}

void check_int8_row(const std::vector<float>& row, float scale) {
  const int dims = static_cast<int>(row.size());
  for_each_implementation(
      1,
      [&](const std::string& name, kvc_backend_device* device) {
        Pool pool(Kind::kI8, 4, dims);
        std::vector<float> data = row;
        pool.append(device, Kind::kF32, data.data(), 1);
        ASSERT_EQ(std::isnan(pool.scales[0]), std::isnan(scale)) << name;
        ASSERT_TRUE(std::isnan(scale) || pool.scales[0] == scale) << name << " " << pool.scales[0];
        ASSERT_EQ(pool.scales[1], -5.0f) << name << " writes the next token's scale";
        for (int d = 0; d < dims; ++d) {
          const uint8_t expected = std::isnan(scale) ? 0 : nearest_byte(Kind::kI8, static_cast<double>(row[d] / scale));
          ASSERT_EQ(pool.bytes[d], expected) << name << " " << row[d] << " with scale " << scale;
        }
      },
      true);
}

TEST(Quantise, Int8ScalesEachTokenAndHead) {
  std::mt19937 random(22);
  for (int dims : {1, 16, 37, 128}) {
    for (float deviation : {1.0f, 1e-30f, 1e30f}) {
      std::normal_distribution<float> normal(0.0f, deviation);
      std::vector<float> row(dims);
      for (float& x : row) x = normal(random);
      check_int8_row(row, int8_scale(row.data(), dims));
    }
  }
  // Ties are rounded to the even side, with a scale of 1 (the largest value is 127).
  check_int8_row({127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f, -0.0f}, 1.0f);
  check_int8_row(std::vector<float>(20, 0.0f), 1.0f);
  // Subnormal: the scale rounds to 2 * 2^-149, and to 0, which counts as a row of zeros.
  check_int8_row({190 * 0x1p-149f, 0x1p-149f}, 0x1p-149f);
  check_int8_row({-60 * 0x1p-149f, 0x1p-149f}, 1.0f);
  check_int8_row({1.0f, INFINITY}, NAN);
  check_int8_row({-INFINITY, 1.0f, 2.0f}, NAN);
  std::vector<float> with_nan(20, 1.0f);
  with_nan[18] = NAN;
  check_int8_row(with_nan, NAN);
}

// Rows of stored bytes keep their bits. int8 rows keep the scales that come with them.
TEST(Quantise, StoredBytesAreCopied) {
  for (Kind kind : {Kind::kE4m3, Kind::kE5m2, Kind::kI8}) {
    for_each_implementation(
        1,
        [&](const std::string& name, kvc_backend_device* device) {
          const int dims = 40;
          std::vector<unsigned char> rows(4 * dims);
          for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<unsigned char>(i * 37);
          const std::vector<float> scales = {0.5f, NAN, -3.0f, 1e20f};
          Pool pool(kind, 8, dims);
          pool.append(device, kind, rows.data(), 4, scales.data());
          EXPECT_EQ(0, std::memcmp(pool.bytes.data(), rows.data(), rows.size())) << name;
          EXPECT_EQ(pool.bytes[rows.size()], 0xee) << name;
          if (kind != Kind::kI8) return;
          EXPECT_EQ(0, std::memcmp(pool.scales.data(), scales.data(), scales.size() * sizeof(float))) << name;
          EXPECT_EQ(0, std::memcmp(pool.other_scales.data(), scales.data(), scales.size() * sizeof(float))) << name;
        },
        true);
  }
}

TEST(Quantise, PagesAreCopiedAndGatheredWithTheirScales) {
  for_each_implementation(2, [&](const std::string&, kvc_backend_device* device) {
    const int dims = 24;
    Pool pool(Kind::kI8, 16, dims);
    for (size_t i = 0; i < pool.scales.size(); ++i) pool.scales[i] = 1.0f + static_cast<float>(i);
    for (size_t i = 0; i < pool.other_scales.size(); ++i) pool.other_scales[i] = -1.0f - static_cast<float>(i);
    const kvc_backend_slot_copy copy = {4, 12, 3, 0};
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(test_backend()->copy_slots(device, &pool.layer, &copy, 1, nullptr, &error), KVC_OK);
    for (int slot = 0; slot < 4; ++slot) {
      const float expected = slot < 3 ? 5.0f + static_cast<float>(slot) : 16.0f;
      EXPECT_EQ(pool.scales[12 + slot], expected);
      EXPECT_EQ(pool.other_scales[12 + slot], -expected);
    }
    const int64_t slots[] = {13, 2, 0};
    std::vector<float> k_scales(3), v_scales(3);
    kvc_backend_gather gather = {};
    gather.layer = &pool.layer;
    gather.num_tokens = 3;
    gather.slots = slots;
    gather.k_scale = k_scales.data();
    gather.v_scale = v_scales.data();
    ASSERT_EQ(test_backend()->gather(device, &gather, nullptr, &error), KVC_OK);
    EXPECT_EQ(k_scales, (std::vector<float>{6.0f, 3.0f, 1.0f}));
    EXPECT_EQ(v_scales, (std::vector<float>{-6.0f, -3.0f, -1.0f}));
  });
}

}  // namespace
}  // namespace kvc::kernels::test
