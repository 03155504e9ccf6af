// Rows of float4: what append stores, byte for byte, on every target. Every unused byte is poison.
#include <gtest/gtest.h>

#include <random>

#include "pool.h"
#include "scene.h"
#include "tests/support/e2m1.h"

namespace kvc::kernels::test {
namespace {

size_t bytes_of_row(int dims) { return static_cast<size_t>(dims / 2 + dims / 16); }

// A pool of 4 slots for one kv head, and the row that append stores in slot 1.
struct Float4Pool {
  Float4Pool(int dims, float head_scale) : scales{head_scale} {
    layer.num_pages = 1;
    layer.page_size = 4;
    layer.num_q_heads = layer.num_kv_heads = 1;
    layer.head_dim = layer.v_head_dim = dims;
    layer.format = stored_format(dtype_of(Kind::kE2m1));
    layer.rope_class = -1;
    const auto row = static_cast<int64_t>(bytes_of_row(dims));
    for (std::vector<unsigned char>* bytes : {&k_bytes, &v_bytes}) bytes->assign(static_cast<size_t>(4 * row), 0xee);
    layer.k = pool_of(dtype_of(Kind::kE2m1), k_bytes.data(), 4 * row, 4 * row, row, row);
    layer.v = pool_of(dtype_of(Kind::kE2m1), v_bytes.data(), 4 * row, 4 * row, row, row);
    if (head_scale != 1.0f) layer.k_scales = layer.v_scales = scales_of_heads(scales.data(), 0);
  }
  Float4Pool(const Float4Pool&) = delete;
  Float4Pool& operator=(const Float4Pool&) = delete;

  std::vector<unsigned char> append(kvc_backend_device* device, Kind source, void* row, int64_t elements) {
    const int64_t slot = 1;
    kvc_backend_append args = {};
    args.layer = &layer;
    args.num_tokens = 1;
    args.slots = &slot;
    args.k = args.v = {row, elements, elements, dtype_of(source), 0};
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(test_backend()->append(device, &args, nullptr, &error), KVC_OK) << error.message;
    const auto bytes = static_cast<std::ptrdiff_t>(layer.k.row_bytes);
    EXPECT_EQ(k_bytes, v_bytes);
    EXPECT_EQ(std::count(k_bytes.begin(), k_bytes.begin() + bytes, 0xee), bytes) << "writes before the row";
    EXPECT_EQ(std::count(k_bytes.begin() + 2 * bytes, k_bytes.end(), 0xee), 2 * bytes) << "writes after the row";
    return {k_bytes.begin() + bytes, k_bytes.begin() + 2 * bytes};
  }

  kvc_backend_layer layer = {};
  std::vector<float> scales;  // of the head: a GPU could not read them on the stack
  std::vector<unsigned char> k_bytes, v_bytes;
};

TEST(Float4, AppendStoresWhatTheFormatDefines) {
  std::mt19937 random(41);
  for (int dims : {16, 48, 64, 128, 576}) {
    for (Kind source : {Kind::kF32, Kind::kF16, Kind::kBf16}) {
      for (float deviation : {1.0f, 1e-4f, 0.001f, 300.0f, 3000.0f}) {
        for (float head_scale : {1.0f, 0.37f}) {
          std::normal_distribution<float> normal(0.0f, deviation);
          std::vector<float> row;
          std::vector<unsigned char> data(static_cast<size_t>(dims * bytes_of(source)));
          for (int d = 0; d < dims; ++d) {
            row.push_back(rounded(source, normal(random)));
            write_number(source, &data[static_cast<size_t>(d * bytes_of(source))], row.back());
          }
          std::vector<unsigned char> expected(bytes_of_row(dims));
          kvt::quantise_e2m1(row, head_scale, expected.data());
          for_each_implementation(
              1,
              [&](const std::string& name, kvc_backend_device* device) {
                Float4Pool pool(dims, head_scale);
                EXPECT_EQ(pool.append(device, source, data.data(), dims), expected)
                    << name << " " << dims << " dims of " << name_of(source) << " around " << deviation;
              },
              true);
        }
      }
    }
  }
}

// Numbers between two elements go to the even one, and a block's largest magnitude to 6. The bytes are worked out by
// hand.
TEST(Float4, TiesAndLimits) {
  std::vector<float> row = {0.25f, -0.25f, 0.75f,      -1.25f, 1.75f, 2.5f, -3.5f, 5.0f,
                            6.0f,  -0.0f,  0.2500001f, 4.9f,   0,     0,    0,     0};
  const std::vector<unsigned char> ties = {0x80, 0xa2, 0x44, 0x6e, 0x87, 0x61, 0x00, 0x00, 0x38};  // scale 1
  std::vector<float> large(16, 2e4f), small(16, 1e-6f), none(16, 0.0f), zero_scale(16, -0.0021f);
  large[0] = -448.0f * 3.0f;
  const std::vector<unsigned char> of_large = {0x7d, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x7e};
  std::vector<unsigned char> of_none(9, 0), of_small(9, 0), of_least(9, 0xaa);
  of_none[8] = of_small[8] = of_least[8] = 0x01;  // 2^-9: the least scale
  for_each_implementation(
      1,
      [&](const std::string& name, kvc_backend_device* device) {
        const auto stored = [&](std::vector<float>& x) {
          return Float4Pool(16, 1.0f).append(device, Kind::kF32, x.data(), 16);
        };
        EXPECT_EQ(stored(row), ties) << name;
        EXPECT_EQ(stored(large), of_large) << name;
        EXPECT_EQ(stored(none), of_none) << name;
        EXPECT_EQ(stored(small), of_small) << name;
        EXPECT_EQ(stored(zero_scale), of_least) << name;
      },
      true);
}

// Only the block that holds a NaN or an infinity becomes NaN.
TEST(Float4, BlocksThatAreNotFinite) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> row(48, 6.0f);
    row[20] = bad;
    std::vector<unsigned char> expected(27, 0x77);
    std::fill_n(expected.begin() + 8, 8, static_cast<unsigned char>(0));
    expected[24] = expected[26] = 0x38;
    expected[25] = 0x7f;
    for_each_implementation(
        1,
        [&](const std::string& name, kvc_backend_device* device) {
          EXPECT_EQ(Float4Pool(48, 1.0f).append(device, Kind::kF32, row.data(), 48), expected) << name << " " << bad;
        },
        true);
  }
}

TEST(Float4, StoredBytesAreCopied) {
  std::vector<unsigned char> row(bytes_of_row(80));
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<unsigned char>(i * 37);
  for_each_implementation(
      1,
      [&](const std::string& name, kvc_backend_device* device) {
        EXPECT_EQ(Float4Pool(80, 1.0f).append(device, Kind::kE2m1, row.data(), static_cast<int64_t>(row.size())), row)
            << name;
      },
      true);
}

// Expects attention over one key, whose V has these bytes, to give the values of the bytes.
void expect_read(const std::vector<unsigned char>& row, int dims, Kind q) {
  std::vector<float> expected(static_cast<size_t>(dims));
  kvt::read_e2m1_row(row.data(), dims, 1.0f, dims, expected.data());
  SceneConfig config;
  config.q = q;
  config.kv = Kind::kE2m1;
  config.q_heads = config.kv_heads = 1;
  config.head_dim = config.v_head_dim = dims;
  config.scale = 0.125;  // a power of two, so that every backend converts the score exactly
  config.rows = {{1, 1}};
  Scene scene(config);
  scene.store_value_bytes(0, 0, row);
  for_each_implementation(
      1,
      [&](const std::string& name, kvc_backend_device* device) {
        scene.attend(test_backend(), device);
        for (int d = 0; d < dims; ++d) {
          const float wanted = expected[static_cast<size_t>(d)], got = scene.out(0, 0, d);
          EXPECT_TRUE(std::isnan(wanted) ? std::isnan(got) : got == wanted)
              << name << " " << name_of(q) << " dim " << d << ": " << got << ", not " << wanted;
        }
      },
      true);
}

// Every scale byte and every element is read as its value. Tensor cores read rows of 64 dims or more of queries of 16
// bits.
TEST(Float4, EveryByteIsRead) {
  for (Kind q : {Kind::kF32, Kind::kF16, Kind::kBf16}) {
    for (int dims : {16, 64, 128, 256}) {
      for (int scale = 0; scale < 256; scale += dims / 16) {
        std::vector<unsigned char> row(bytes_of_row(dims));
        for (int d = 0; d < dims / 2; ++d) {
          row[static_cast<size_t>(d)] = static_cast<unsigned char>(17 * (d % 16) + d / 16);
        }
        for (size_t i = static_cast<size_t>(dims / 2); i < row.size(); ++i) {
          row[i] = static_cast<unsigned char>(scale + static_cast<int>(i));
        }
        expect_read(row, dims, q);
      }
    }
  }
}

}  // namespace
}  // namespace kvc::kernels::test
