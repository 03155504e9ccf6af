// Rows with scales of blocks of dims (KVC_ROW_FORMAT_*): what append stores, byte for byte, on every target, and
// attention over such rows, compared with float64 on the values of the stored bytes. Every unused byte is poison.
#include "tests/support/block_rows.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/common/row_formats.h"
#include "pool.h"
#include "scene.h"

namespace kvc::kernels::test {
namespace {

using kvt::BlockFormat;
using Bytes = std::vector<unsigned char>;

constexpr Kind kBlockKinds[] = {Kind::kDsMla,     Kind::kDsV4,  Kind::kMxfp4,     Kind::kMxfp8,
                                Kind::kFp8Blocks, Kind::kNvfp4, Kind::kNvfp4DsMla};

// Dims of rows of a kind.
std::vector<int> dims_of(Kind kind) {
  const BlockFormat& format = *block_format(kind);
  return format.any_dims() ? std::vector{32, 96, 128, 512} : std::vector{format.dims};
}
int v_dims_of(Kind kind, int dims) { return block_format(kind)->any_dims() ? dims : block_format(kind)->v_dims; }

// The bytes of a row, and of its scales after the rows of the page.
struct Stored {
  Bytes row, scales;
  bool operator==(const Stored&) const = default;
};

Stored stored(Kind kind, const std::vector<float>& row) {
  const BlockFormat& format = *block_format(kind);
  const int dims = static_cast<int>(row.size());
  Stored bytes = {Bytes(static_cast<size_t>(format.row_bytes(dims))),
                  Bytes(static_cast<size_t>(format.page_bytes(dims)))};
  kvt::quantise_block_row(format, row.data(), dims, bytes.row.data(), bytes.scales.data());
  return bytes;
}

// A pool of 4 slots, and the row that append stores in slot 1.
struct PackedPool {
  PackedPool(Kind kind, int dims) {
    const BlockFormat& format = *block_format(kind);
    layer.num_pages = 1;
    layer.page_size = 4;
    layer.num_q_heads = layer.num_kv_heads = 1;
    layer.head_dim = dims;
    layer.v_head_dim = v_dims_of(kind, dims);
    layer.row_kind = KVC_BACKEND_ROW_LATENT;
    layer.format = descriptor_of(*packed_row_format(format.id), true, dims);
    layer.rope_class = -1;
    row_bytes = format.row_bytes(dims);
    bytes.assign(static_cast<size_t>(4 * row_bytes), 0xee);
    layer.k = layer.v = pool_of({kDLUInt, 8, 1}, bytes.data(), 4 * row_bytes, 4 * row_bytes, row_bytes, row_bytes);
    scale_bytes = format.page_bytes(dims);
    scales.assign(static_cast<size_t>(4 * scale_bytes), 0xee);
    if (scale_bytes > 0) {
      layer.k_scales = layer.v_scales = {scales.data(), 4 * scale_bytes, 4 * scale_bytes, scale_bytes, scale_bytes};
    }
    EXPECT_EQ(row_bytes, kernels::row_bytes(layer.format.k, dims)) << format.name;
    EXPECT_EQ(scale_bytes, page_scale_bytes(layer.format.k, dims)) << format.name;
  }
  PackedPool(const PackedPool&) = delete;
  PackedPool& operator=(const PackedPool&) = delete;

  Stored append(kvc_backend_device* device, const kvc_backend_tensor& k, const kvc_backend_tensor& v = {},
                const kvc_backend_tensor& k_scale = {}) {
    const int64_t slot = 1;
    kvc_backend_append args = {};
    args.layer = &layer;
    args.num_tokens = 1;
    args.slots = &slot;
    args.k = k;
    args.v = v;
    args.k_scale = k_scale;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(test_backend()->append(device, &args, nullptr, &error), KVC_OK) << error.message;
    return {slot_of(bytes, row_bytes), slot_of(scales, scale_bytes)};
  }

  kvc_backend_layer layer = {};
  Bytes bytes, scales;
  int64_t row_bytes = 0, scale_bytes = 0;

 private:
  // Slot 1. The other slots must have their poison.
  static Bytes slot_of(const Bytes& all, int64_t each) {
    EXPECT_EQ(std::count(all.begin(), all.begin() + each, 0xee), each) << "before the row";
    EXPECT_EQ(std::count(all.begin() + 2 * each, all.end(), 0xee), 2 * each) << "after the row";
    return {all.begin() + each, all.begin() + 2 * each};
  }
};

kvc_backend_tensor tensor_of(void* data, Kind kind, int64_t elements) {
  return {data, elements, elements, dtype_of(kind), 0};
}

// Expects that every target stores `row` as these bytes.
void expect_stored(Kind kind, std::vector<float> row, const Stored& expected, const std::string& what) {
  const int dims = static_cast<int>(row.size());
  for_each_implementation(
      1,
      [&](const std::string& name, kvc_backend_device* device) {
        const Stored got = PackedPool(kind, dims).append(device, tensor_of(row.data(), Kind::kF32, dims));
        EXPECT_EQ(got.row, expected.row) << name << " " << name_of(kind) << " " << what;
        EXPECT_EQ(got.scales, expected.scales) << name << " " << name_of(kind) << " " << what;
      },
      true);
}

TEST(BlockRows, AppendStoresWhatTheFormatDefines) {
  std::mt19937 random(43);
  for (Kind kind : kBlockKinds) {
    for (int dims : dims_of(kind)) {
      for (float deviation : {1.0f, 1e-6f, 0.02f, 90.0f, 20000.0f}) {
        const Kind source = static_cast<Kind>(random() % 3);
        std::normal_distribution<float> normal(0.0f, deviation);
        std::vector<float> row;
        Bytes data(static_cast<size_t>(dims * bytes_of(source)));
        for (int d = 0; d < dims; ++d) {
          const float spike = random() % 97 == 0 ? 40.0f : 1.0f;
          row.push_back(rounded(source, std::fmin(60000.0f, std::fmax(-60000.0f, spike * normal(random)))));
          write_number(source, &data[static_cast<size_t>(d * bytes_of(source))], row.back());
        }
        const Stored expected = stored(kind, row);
        const int latent = v_dims_of(kind, dims);
        for_each_implementation(
            1,
            [&](const std::string& name, kvc_backend_device* device) {
              const std::string what = name + " " + name_of(kind) + " from " + name_of(source);
              EXPECT_EQ(PackedPool(kind, dims).append(device, tensor_of(data.data(), source, dims)), expected)
                  << what << " around " << deviation << ", " << dims << " dims";
              if (latent == dims) return;
              EXPECT_EQ(PackedPool(kind, dims)
                            .append(device, tensor_of(data.data() + latent * bytes_of(source), source, dims - latent),
                                    tensor_of(data.data(), source, latent)),
                        expected)
                  << what << " in two parts";
            },
            true);
      }
    }
  }
}

// The bytes of the first dims of a row of fp8_ds_mla, its four scales and its first rotary dim, worked out by hand.
// Scales are powers of two: 448 has scale 1, and the next larger number 2.
TEST(BlockRows, ScalesAndLimits) {
  std::vector<float> row(576, 0.0f);
  row[0] = 448.0f, row[1] = -1.0f, row[2] = 17.0f, row[3] = -0.0f;  // 17 lies between 16 and 18: the even element
  row[128] = 448.0001f, row[129] = 1.0f;                            // scale 2: 224.00005 and 0.5
  row[256] = 0x1p-13f * 448.0f, row[257] = 0x1p-13f;                // the least scale, 2^-13
  row[384] = 3.40282347e38f, row[385] = 1.0f;                       // scale 2^120
  row[512] = 1.00390625f, row[513] = -3.5f;                         // half an ulp above 1: the even one
  Bytes expected(656, 0);
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
  expect_stored(Kind::kDsMla, row, {expected, {}}, "by hand");
  std::fill(row.begin(), row.end(), 0.0f);
  std::fill(expected.begin(), expected.end(), static_cast<unsigned char>(0));
  for (size_t i : {515, 519, 523, 527}) expected[i] = 0x39;
  expect_stored(Kind::kDsMla, row, {expected, {}}, "zeros");
  for (float& x : row) x = 1e-7f;  // below half of the least element times 2^-13, except in the rotary part
  for (size_t i = 528; i < expected.size(); i += 2) expected[i] = 0xd7, expected[i + 1] = 0x33;
  expect_stored(Kind::kDsMla, row, {expected, {}}, "tiny");
}

// Rows of the other formats, worked out by hand.
TEST(BlockRows, BytesByHand) {
  std::vector<float> row(512, 0.0f);
  row[0] = 448.0f, row[64] = 449.0f, row[447] = 1.0f, row[448] = -2.0f, row[511] = 1.0f;
  Stored v4 = {Bytes(576, 0), {127, 128, 105, 105, 105, 105, 119, 0}};  // 1 / 448 is above 2^-9: 2^-8
  v4.row[0] = 0x7e, v4.row[64] = 0x76, v4.row[447] = 0x78;              // 448, 224 and 256
  v4.row[449] = 0xc0, v4.row[575] = 0x3f, v4.row[574] = 0x80;           // bfloat16 -2 and 1
  expect_stored(Kind::kDsV4, row, v4, "by hand");
  std::vector<float> key(128, 0.0f);
  key[0] = 6.0f, key[1] = -0.5f, key[32] = 6.5f, key[33] = 1.0f, key[65] = 1e-30f;
  Stored mxfp4 = {Bytes(64, 0), {127, 128, 25, 1}};  // 1e-30 / 6 is 2^-102.2: 2^-102. Zeros have the least scale
  mxfp4.row[0] = 0x97;
  mxfp4.row[16] = 0x15;  // 3.25 is stored as 3, and 0.5
  mxfp4.row[32] = 0x70;  // 1e-30 / 2^-102 is 5.07: 6
  expect_stored(Kind::kMxfp4, key, mxfp4, "by hand");
  Stored blocks = {Bytes(128, 0), {0, 0, 0x80, 0x3c}};                                       // 6.5 / 448 is below 2^-6
  blocks.row[0] = 0x7c, blocks.row[1] = 0xe0, blocks.row[32] = 0x7d, blocks.row[33] = 0x68;  // 384, -32, 416, 64
  expect_stored(Kind::kFp8Blocks, key, blocks, "by hand");
  Stored nvfp4 = {Bytes(64, 0), {0x38, 1, 0x39, 1, 1, 1, 1, 1}};  // 1, 1.125; the least one is 2^-9
  nvfp4.row[0] = 0x97;
  nvfp4.row[16] = 0x27;
  expect_stored(Kind::kNvfp4, key, nvfp4, "by hand");
}

// Only the block that holds a NaN or an infinity becomes NaN. A dim without a scale is itself; float8 saturates.
TEST(BlockRows, DimsThatAreNotFinite) {
  for (Kind kind : kBlockKinds) {
    const BlockFormat& format = *block_format(kind);
    const int dims = dims_of(kind).back(), bad_dim = format.each + 2, blocks = format.block_dims(dims);
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      std::vector<float> row(static_cast<size_t>(dims), 2.0f), read(row.size());
      row[static_cast<size_t>(bad_dim)] = bad;
      if (blocks < dims) row[static_cast<size_t>(blocks)] = bad;
      const Stored expected = stored(kind, row);
      expect_stored(kind, row, expected, std::to_string(bad));
      kvt::read_block_row(format, expected.row.data(), expected.scales.data(), dims, dims, read.data());
      for (int d = 0; d < blocks; ++d) {
        EXPECT_EQ(std::isnan(read[static_cast<size_t>(d)]), d / format.each == 1) << format.name << " " << d;
      }
    }
  }
}

TEST(BlockRows, StoredBytesAreCopied) {
  for (Kind kind : kBlockKinds) {
    for (int dims : dims_of(kind)) {
      Stored given = stored(kind, std::vector<float>(static_cast<size_t>(dims), 1.0f));
      for (size_t i = 0; i < given.row.size(); ++i) given.row[i] = static_cast<unsigned char>(i * 37);
      for (size_t i = 0; i < given.scales.size(); ++i) given.scales[i] = static_cast<unsigned char>(i * 11 + 3);
      const auto row_bytes = static_cast<int64_t>(given.row.size()),
                 scale_bytes = static_cast<int64_t>(given.scales.size());
      const bool floats = block_format(kind)->scale == kvt::ScaleKind::kFloat;
      const int64_t scales = floats ? scale_bytes / 4 : scale_bytes;
      const kvc_backend_tensor k_scale = {given.scales.data(), scales, scales,
                                          floats ? DLDataType{kDLFloat, 32, 1} : DLDataType{kDLUInt, 8, 1}, 0};
      for_each_implementation(
          1,
          [&](const std::string& name, kvc_backend_device* device) {
            const kvc_backend_tensor k = tensor_of(given.row.data(), kind, row_bytes);
            EXPECT_EQ(PackedPool(kind, dims).append(device, k, {}, k_scale), given) << name << " " << name_of(kind);
          },
          true);
    }
  }
}

SceneConfig scene_of(Kind kind, int heads, int dims = 512) {
  const BlockFormat& format = *block_format(kind);
  SceneConfig config;
  config.q_heads = heads;
  config.kv_heads = 1;
  config.head_dim = format.any_dims() ? dims : format.dims;
  config.v_head_dim = v_dims_of(kind, config.head_dim);
  config.row_kind = KVC_BACKEND_ROW_LATENT;
  config.kv = kind;
  config.scale = 0.13523;
  return config;
}

// Every element but NaN, with scales that append never writes: attention over one key gives V.
TEST(BlockRows, EveryByteIsRead) {
  for (Kind kind : kBlockKinds) {
    const BlockFormat& format = *block_format(kind);
    const SceneConfig shape = scene_of(kind, 1);
    const int dims = shape.head_dim, v_dims = shape.v_head_dim;
    Stored given = stored(kind, std::vector<float>(static_cast<size_t>(dims), 0.0f));
    unsigned char* const scales =
        format.in_page() ? given.scales.data() : &given.row[static_cast<size_t>(format.scales_at(dims))];
    for (int block = 0; block < format.num_scales(dims); ++block) {
      constexpr float kScales[] = {0.37f, 1.0f, 3e-5f, 1e6f};
      unsigned char* const p = scales + format.scale_byte(block);
      if (format.scale == kvt::ScaleKind::kFloat) std::memcpy(p, &kScales[block % 4], 4);
      if (format.scale == kvt::ScaleKind::kPower)
        *p = static_cast<unsigned char>(block < 2 ? 20 * block : 100 + 3 * block);
      if (format.scale == kvt::ScaleKind::kE4m3)
        *p = static_cast<unsigned char>((block * 5 + 1) % 127 + block % 2 * 128);
    }
    const int element_bytes = format.block_dims(dims) * format.bits / 8;
    for (int i = 0; i < element_bytes; ++i) {
      given.row[static_cast<size_t>(i)] = static_cast<unsigned char>(format.bits == 8 && i % 128 == 127 ? 0 : i);
    }
    std::vector<float> expected(static_cast<size_t>(v_dims));
    kvt::read_block_row(format, given.row.data(), given.scales.data(), dims, v_dims, expected.data());
    for (Kind q : {Kind::kF32, Kind::kBf16}) {
      for (int heads : {1, 40}) {  // the decode kernel and the panel kernel
        SceneConfig config = scene_of(kind, heads);
        config.q = q;
        config.rows = {{1, 1}};
        Scene scene(config);
        scene.store_value_bytes(0, 0, given.row, given.scales);
        // With queries of bfloat16, tensor cores read element * scale rounded to bfloat16. Subnormal values may differ
        // by a few units.
        const float error = q == Kind::kBf16 && tests_cuda() ? 0x1p-8f : 0x1p-22f;
        for_each_implementation(
            1,
            [&](const std::string& name, kvc_backend_device* device) {
              scene.attend(test_backend(), device);
              for (int d = 0; d < v_dims; ++d) {
                const float value = expected[static_cast<size_t>(d)];
                EXPECT_NEAR(scene.out(0, heads - 1, d), value, std::fabs(value) * error + 0x1p-146f)
                    << name << " " << format.name << " dim " << d;
              }
            },
            true);
      }
    }
  }
}

// A NaN in dims that are K too makes the score NaN, and so the output of each query that sees the key.
TEST(BlockRows, KeysThatAreNotFinite) {
  for (Kind kind : kBlockKinds) {
    SceneConfig config = scene_of(kind, 20);
    config.rows = {{1, 3}};
    Scene scene(config);
    std::vector<float> row(static_cast<size_t>(config.head_dim), 0.0f);
    row[40] = NAN;
    const Stored nan = stored(kind, row);
    scene.store_value_bytes(0, 1, nan.row, nan.scales);
    for_each_implementation(
        1,
        [&](const std::string& name, kvc_backend_device* device) {
          scene.attend(test_backend(), device);
          for (int d = 0; d < config.v_head_dim; d += 37) {
            EXPECT_TRUE(std::isnan(scene.out(0, 7, d))) << name << " " << name_of(kind) << " " << d;
          }
        },
        true);
  }
}

TEST(BlockRows, ReferenceAgreesToo) {
  for (Kind kind : kBlockKinds) {
    for (bool on_read : {false, true}) {
      SceneConfig config = scene_of(kind, 16, 96);
      config.rows = {{1, 70}, {5, 50}};
      config.rotate = config.head_dim > config.v_head_dim;
      config.on_read = on_read && config.rotate;
      config.splits = 2;
      config.page_size = 3;
      run_scene(config, 2, true);
    }
  }
}

// Decode and panel kernels, page sizes, layouts, windows, splits, options, lists, types of q and out.
void run_grid(Kind kind, unsigned seed) {
  std::mt19937 random(seed);
  for (int page_size : {1, 16, 64}) {
    for (int heads : {1, 4, 7, 16, 128}) {
      for (int queries : {1, 2, 9}) {
        if (heads * queries > 256) continue;
        SceneConfig config = scene_of(kind, heads, random() % 2 == 0 ? 96 : 512);
        config.page_size = page_size;
        config.q = static_cast<Kind>(random() % 3);
        config.out = static_cast<Kind>(random() % 3);
        config.nhd = random() % 2 == 0;
        config.window = random() % 3 == 0 ? 1 + static_cast<int>(random() % 60) : 0;
        config.splits = random() % 2 == 0 ? 1 : 1 + static_cast<int>(random() % 4);
        config.rotate = random() % 2 == 0 && config.head_dim > config.v_head_dim;
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
TEST(BlockRows, GridOfDsMla) { run_grid(Kind::kDsMla, 7300); }
TEST(BlockRows, GridOfDsV4) { run_grid(Kind::kDsV4, 7400); }
TEST(BlockRows, GridOfMxfp4) { run_grid(Kind::kMxfp4, 7500); }
TEST(BlockRows, GridOfMxfp8) { run_grid(Kind::kMxfp8, 7600); }
TEST(BlockRows, GridOfFp8Blocks) { run_grid(Kind::kFp8Blocks, 7700); }
TEST(BlockRows, GridOfNvfp4) { run_grid(Kind::kNvfp4, 7800); }
TEST(BlockRows, GridOfNvfp4DsMla) { run_grid(Kind::kNvfp4DsMla, 7900); }

// Rows of K and V, of several kv heads, with RoPE.
TEST(BlockRows, KeysAndValues) {
  std::mt19937 random(45);
  unsigned seed = 8000;
  for (Kind kind : kBlockKinds) {
    if (!block_format(kind)->any_dims()) continue;
    for (int heads : {1, 3, 8}) {
      for (int queries : {1, 9}) {
        SceneConfig config;
        config.kv = kind;
        config.kv_heads = heads;
        config.q_heads = heads * (1 + static_cast<int>(random() % 4));
        config.head_dim = random() % 2 == 0 ? 128 : 64;
        config.v_head_dim = random() % 3 == 0 ? 96 : config.head_dim;
        config.q = config.out = static_cast<Kind>(random() % 3);
        config.page_size = random() % 2 == 0 ? 16 : 5;
        config.nhd = random() % 2 == 0;
        config.rotate = random() % 2 == 0;
        config.on_read = config.rotate && random() % 2 == 0;
        config.rows = {{queries, queries + 40}, {1, 70}};
        config.seed = seed++;
        run_scene(config, 2, true);
      }
    }
  }
}

// Many keys: sums are folded. Trees and shared keys.
TEST(BlockRows, ManyKeysTreesAndSharedKeys) {
  for (Kind kind : {Kind::kDsMla, Kind::kDsV4}) {
    SceneConfig config = scene_of(kind, 4);
    config.q = config.out = Kind::kBf16;
    config.rows = {{1, 1100}, {9, 300}};
    run_scene(config, 2);
    config.rows = {{6, 60, 0, 0, {-1, 0, 0, 1, 2, -1}}, {1, 90}};
    run_scene(config, 2, true);
    config.rows = {{1, 90}, {4, 70}, {1, 66}};
    config.shares = {{{0, 1, 2}, 0, 64}};
    run_scene(config, 2, true);
  }
}

}  // namespace
}  // namespace kvc::kernels::test
