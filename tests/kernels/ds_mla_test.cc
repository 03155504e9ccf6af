// MLA rows of fp8_ds_mla: what append stores, byte for byte, on every target, and attention over such rows, compared
// with float64 on the values of the stored bytes. Every unused byte is poison.
#include "tests/support/ds_mla.h"

#include <gtest/gtest.h>

#include <random>

#include "pool.h"
#include "scene.h"

namespace kvc::kernels::test {
namespace {

using kvt::kDsMlaDims;
using kvt::kDsMlaLatentDims;
using kvt::kDsMlaRowBytes;
using Bytes = std::vector<unsigned char>;

// A pool of 4 slots, and the row that append stores in slot 1.
struct PackedPool {
  PackedPool() {
    layer.num_pages = 1;
    layer.page_size = 4;
    layer.num_q_heads = layer.num_kv_heads = 1;
    layer.head_dim = kDsMlaDims;
    layer.v_head_dim = kDsMlaLatentDims;
    layer.row_kind = KVC_BACKEND_ROW_LATENT;
    layer.format = ds_mla_format();
    layer.rope_class = -1;
    bytes.assign(size_t{4} * kDsMlaRowBytes, 0xee);
    layer.k = layer.v = pool_of(dtype_of(Kind::kDsMla), bytes.data(), 4 * kDsMlaRowBytes, 4 * kDsMlaRowBytes,
                                kDsMlaRowBytes, kDsMlaRowBytes);
  }
  PackedPool(const PackedPool&) = delete;
  PackedPool& operator=(const PackedPool&) = delete;

  Bytes append(kvc_backend_device* device, const kvc_backend_tensor& k, const kvc_backend_tensor& v = {}) {
    const int64_t slot = 1;
    kvc_backend_append args = {};
    args.layer = &layer;
    args.num_tokens = 1;
    args.slots = &slot;
    args.k = k;
    args.v = v;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(test_backend()->append(device, &args, nullptr, &error), KVC_OK) << error.message;
    EXPECT_EQ(std::count(bytes.begin(), bytes.begin() + kDsMlaRowBytes, 0xee), kDsMlaRowBytes) << "before the row";
    EXPECT_EQ(std::count(bytes.begin() + 2 * kDsMlaRowBytes, bytes.end(), 0xee), 2 * kDsMlaRowBytes) << "after the row";
    return {bytes.begin() + kDsMlaRowBytes, bytes.begin() + 2 * kDsMlaRowBytes};
  }

  kvc_backend_layer layer = {};
  Bytes bytes;
};

kvc_backend_tensor tensor_of(void* data, Kind kind, int64_t elements) {
  return {data, elements, elements, dtype_of(kind), 0};
}

// Expects that every target stores `row` as these bytes.
void expect_stored(std::vector<float> row, const Bytes& expected, const std::string& what) {
  for_each_implementation(
      1,
      [&](const std::string& name, kvc_backend_device* device) {
        EXPECT_EQ(PackedPool().append(device, tensor_of(row.data(), Kind::kF32, kDsMlaDims)), expected)
            << name << " " << what;
      },
      true);
}

TEST(DsMla, AppendStoresWhatTheFormatDefines) {
  std::mt19937 random(43);
  for (Kind source : {Kind::kF32, Kind::kF16, Kind::kBf16}) {
    for (float deviation : {1.0f, 1e-6f, 0.02f, 90.0f, 20000.0f}) {
      std::normal_distribution<float> normal(0.0f, deviation);
      std::vector<float> row;
      Bytes data(static_cast<size_t>(kDsMlaDims * bytes_of(source))), expected(kDsMlaRowBytes);
      for (int d = 0; d < kDsMlaDims; ++d) {
        const float spike = random() % 97 == 0 ? 40.0f : 1.0f;
        row.push_back(rounded(source, std::fmin(60000.0f, std::fmax(-60000.0f, spike * normal(random)))));
        write_number(source, &data[static_cast<size_t>(d * bytes_of(source))], row.back());
      }
      kvt::quantise_ds_mla(row.data(), expected.data());
      const int64_t rotary = kDsMlaLatentDims * bytes_of(source);
      for_each_implementation(
          1,
          [&](const std::string& name, kvc_backend_device* device) {
            EXPECT_EQ(PackedPool().append(device, tensor_of(data.data(), source, kDsMlaDims)), expected)
                << name << " " << name_of(source) << " around " << deviation;
            EXPECT_EQ(PackedPool().append(device, tensor_of(data.data() + rotary, source, 64),
                                          tensor_of(data.data(), source, kDsMlaLatentDims)),
                      expected)
                << name << " in two parts";
          },
          true);
    }
  }
}

// The bytes of the first dims of a row, its four scales and its first rotary dim, worked out by hand. Scales are powers
// of two: 448 has scale 1, and the next larger number 2.
TEST(DsMla, ScalesAndLimits) {
  std::vector<float> row(kDsMlaDims, 0.0f);
  row[0] = 448.0f, row[1] = -1.0f, row[2] = 17.0f, row[3] = -0.0f;  // 17 lies between 16 and 18: the even element
  row[128] = 448.0001f, row[129] = 1.0f;                            // scale 2: 224.00005 and 0.5
  row[256] = 0x1p-13f * 448.0f, row[257] = 0x1p-13f;                // the least scale, 2^-13
  row[384] = 3.40282347e38f, row[385] = 1.0f;                       // scale 2^120
  row[512] = 1.00390625f, row[513] = -3.5f;                         // half an ulp above 1: the even one
  Bytes expected(kDsMlaRowBytes, 0);
  expected[0] = 0x7e, expected[1] = 0xb8, expected[2] = 0x58, expected[3] = 0x80;
  expected[128] = 0x76, expected[129] = 0x30;
  expected[256] = 0x7e, expected[257] = 0x38;
  expected[384] = 0x78;
  expected[514] = 0x80, expected[515] = 0x3f;  // 1
  expected[519] = 0x40;                        // 2
  expected[523] = 0x39;                        // 2^-13
  expected[527] = 0x7b, expected[526] = 0x80;  // 2^120
  expected[528] = 0x80, expected[529] = 0x3f;
  expected[530] = 0x60, expected[531] = 0xc0;
  expect_stored(row, expected, "by hand");
  std::fill(row.begin(), row.end(), 0.0f);
  std::fill(expected.begin(), expected.end(), static_cast<unsigned char>(0));
  for (size_t i : {515, 519, 523, 527}) expected[i] = 0x39;
  expect_stored(row, expected, "zeros");
  for (float& x : row) x = 1e-7f;  // below half of the least element times 2^-13, except in the rotary part
  for (size_t i = 528; i < expected.size(); i += 2) expected[i] = 0xd7, expected[i + 1] = 0x33;
  expect_stored(row, expected, "tiny");
}

// Only the 128 dims that hold a NaN or an infinity become NaN. A rotary dim is itself.
TEST(DsMla, DimsThatAreNotFinite) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> row(kDsMlaDims, 2.0f), read(kDsMlaDims);
    row[130] = row[512] = bad;
    Bytes expected(kDsMlaRowBytes);
    kvt::quantise_ds_mla(row.data(), expected.data());
    EXPECT_EQ(std::count(expected.begin() + 128, expected.begin() + 256, 0), 128);
    const Bytes nan = {0x00, 0x00, 0xc0, 0x7f};
    EXPECT_TRUE(std::equal(nan.begin(), nan.end(), expected.begin() + 516));
    expect_stored(row, expected, std::to_string(bad));
    kvt::read_ds_mla(expected.data(), kDsMlaDims, read.data());
    for (int d = 0; d < kDsMlaLatentDims; ++d) {
      EXPECT_EQ(std::isnan(read[static_cast<size_t>(d)]), d / 128 == 1) << d;
    }
  }
}

TEST(DsMla, StoredBytesAreCopied) {
  Bytes row(kDsMlaRowBytes);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<unsigned char>(i * 37);
  for_each_implementation(
      1,
      [&](const std::string& name, kvc_backend_device* device) {
        EXPECT_EQ(PackedPool().append(device, tensor_of(row.data(), Kind::kDsMla, kDsMlaRowBytes)), row) << name;
      },
      true);
}

SceneConfig ds_mla(int heads) {
  SceneConfig config;
  config.q_heads = heads;
  config.kv_heads = 1;
  config.head_dim = kDsMlaDims;
  config.v_head_dim = kDsMlaLatentDims;
  config.row_kind = KVC_BACKEND_ROW_LATENT;
  config.kv = Kind::kDsMla;
  config.scale = 0.13523;
  return config;
}

// Every element but NaN, with scales that are no powers of two, as some servers write them: attention over one key
// gives V.
TEST(DsMla, EveryByteIsRead) {
  Bytes row(kDsMlaRowBytes, 0);
  for (int d = 0; d < kDsMlaLatentDims; ++d) {
    row[static_cast<size_t>(d)] = d % 128 == 127 ? 0 : static_cast<unsigned char>(d);
  }
  const float scales[] = {0.37f, 1.0f, 3e-5f, 1e6f};
  std::memcpy(&row[512], scales, sizeof scales);
  std::vector<float> expected(kDsMlaLatentDims);
  kvt::read_ds_mla(row.data(), kDsMlaLatentDims, expected.data());
  for (Kind q : {Kind::kF32, Kind::kBf16}) {
    for (int heads : {1, 40}) {  // the decode kernel and the panel kernel
      SceneConfig config = ds_mla(heads);
      config.q = q;
      config.rows = {{1, 1}};
      Scene scene(config);
      scene.store_value_bytes(0, 0, row);
      // With queries of bfloat16, tensor cores read element * scale rounded to bfloat16.
      const float error = q == Kind::kBf16 && tests_cuda() ? 0x1p-8f : 0x1p-22f;
      for_each_implementation(
          1,
          [&](const std::string& name, kvc_backend_device* device) {
            scene.attend(test_backend(), device);
            for (int d = 0; d < kDsMlaLatentDims; ++d) {
              const float value = expected[static_cast<size_t>(d)];
              EXPECT_NEAR(scene.out(0, heads - 1, d), value, std::fabs(value) * error) << name << " dim " << d;
            }
          },
          true);
    }
  }
}

// A NaN in dims that are K too makes the score NaN, and so the output of each query that sees the key.
TEST(DsMla, KeysThatAreNotFinite) {
  Bytes row(kDsMlaRowBytes, 0);
  const float nan = NAN;
  std::memcpy(&row[520], &nan, 4);
  SceneConfig config = ds_mla(20);
  config.rows = {{1, 3}};
  Scene scene(config);
  scene.store_value_bytes(0, 1, row);
  for_each_implementation(
      1,
      [&](const std::string& name, kvc_backend_device* device) {
        scene.attend(test_backend(), device);
        for (int d = 0; d < kDsMlaLatentDims; d += 37) EXPECT_TRUE(std::isnan(scene.out(0, 7, d))) << name << " " << d;
      },
      true);
}

TEST(DsMla, ReferenceAgreesToo) {
  for (bool on_read : {false, true}) {
    SceneConfig config = ds_mla(16);
    config.rows = {{1, 70}, {5, 50}};
    config.rotate = true;
    config.on_read = on_read;
    config.splits = 2;
    config.page_size = 3;
    run_scene(config, 2, true);
  }
}

// Decode and panel kernels, page sizes, layouts, windows, splits, options, lists, types of q and out.
TEST(DsMla, Grid) {
  std::mt19937 random(44);
  unsigned seed = 7300;
  for (int page_size : {1, 16, 64}) {
    for (int heads : {1, 4, 7, 16, 128}) {
      for (int queries : {1, 2, 9}) {
        if (heads * queries > 256) continue;
        SceneConfig config = ds_mla(heads);
        config.page_size = page_size;
        config.q = static_cast<Kind>(random() % 3);
        config.out = static_cast<Kind>(random() % 3);
        config.nhd = random() % 2 == 0;
        config.window = random() % 3 == 0 ? 1 + static_cast<int>(random() % 60) : 0;
        config.splits = random() % 2 == 0 ? 1 : 1 + static_cast<int>(random() % 4);
        config.rotate = random() % 2 == 0;
        config.on_read = config.rotate && random() % 2 == 0;
        config.softcap = random() % 5 == 0 ? 8.0 : 0.0;
        config.alibi = random() % 5 == 0;
        config.sinks = random() % 3 == 0;
        config.mask = random() % 5 == 0 ? 1 : 0;
        config.rows = {{queries, queries + static_cast<int>(random() % 90)}, {1, 1 + static_cast<int>(random() % 80)}};
        config.seed = seed++;
        if (seed % kSampling == 0) run_scene(config, 1 + static_cast<int>(random() % 3));
      }
    }
  }
}

// Many keys: sums are folded. Trees and shared keys.
TEST(DsMla, ManyKeysTreesAndSharedKeys) {
  SceneConfig config = ds_mla(4);
  config.q = config.out = Kind::kBf16;
  config.rows = {{1, 1100}, {9, 300}};
  run_scene(config, 2);
  config.rows = {{6, 60, 0, 0, {-1, 0, 0, 1, 2, -1}}, {1, 90}};
  run_scene(config, 2, true);
  config.rows = {{1, 90}, {4, 70}, {1, 66}};
  config.shares = {{{0, 1, 2}, 0, 64}};
  run_scene(config, 2, true);
}

}  // namespace
}  // namespace kvc::kernels::test
