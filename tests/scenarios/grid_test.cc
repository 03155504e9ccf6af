// Scenarios A, B, C, E and I with their lengths, over page sizes, heads, head dims, dtypes and RoPE; K: A, B, C and E
// with latent rows (MLA), alone and next to sliding and full layers.
#include <gtest/gtest.h>

#include "play.h"

namespace kvt {
namespace {

constexpr int64_t kEnd = Play::kEnd;

struct Geometry {
  int page_size, hq, hkv, d;
  DType dtype;
  int rope;
  bool sliding;    // two of the four layers have a window of 33
  int latent = 0;  // MLA: rows of d dims in two layers, of which these are V; sliding adds a sliding and a full layer
  GroupSpec latent_group = {};  // what the queries of these layers see
};

std::string name_of(const Geometry &g) {
  const std::string row = (g.latent ? "_latent" + std::to_string(g.latent) : "") + (g.latent_group.window  ? "_window"
                                                                                    : g.latent_group.chunk ? "_chunk"
                                                                                                           : "");
  return "page" + std::to_string(g.page_size) + "_heads" + std::to_string(g.hq) + "x" + std::to_string(g.hkv) + "_d" +
         std::to_string(g.d) + "_" + name_of(g.dtype) +
         (g.rope ? g.rope == KVC_ROPE_ON_READ ? "_rope_on_read" : "_rope" : "") + (g.sliding ? "_sliding" : "") + row;
}

// The base geometry with one change at a time, and some mixtures.
std::vector<Geometry> geometries() {
  const Geometry base{16, 32, 4, 128, DType::kF32, KVC_ROPE_NONE, false};
  std::vector<Geometry> all{base};
  auto add = [&](auto change) {
    Geometry g = base;
    change(g);
    all.push_back(g);
  };
  for (int page : {1, 3, 8, 64, 256})
    add([&](Geometry &g) {
      g.page_size = page;
      g.d = 64;
    });
  for (auto [hq, hkv] : {std::pair{8, 8}, {6, 1}, {20, 4}, {64, 4}}) {
    add([&, hq = hq, hkv = hkv](Geometry &g) { g.hq = hq, g.hkv = hkv, g.d = 64; });
  }
  for (int d : {64, 80, 256}) add([&](Geometry &g) { g.d = d, g.hq = 8; });
  for (DType dtype : {DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kI8}) {
    add([&](Geometry &g) { g.dtype = dtype; });
  }
  add([&](Geometry &g) { g.rope = KVC_ROPE_ON_APPEND; });
  add([&](Geometry &g) { g.rope = KVC_ROPE_ON_READ; });
  add([&](Geometry &g) { g.sliding = true; });
  all.push_back({1, 6, 1, 80, DType::kBF16, KVC_ROPE_ON_APPEND, true});
  all.push_back({3, 20, 4, 64, DType::kF16, KVC_ROPE_ON_APPEND, true});
  all.push_back({8, 8, 8, 80, DType::kF16, KVC_ROPE_NONE, true});
  all.push_back({64, 64, 4, 64, DType::kBF16, KVC_ROPE_ON_APPEND, false});
  all.push_back({3, 6, 1, 80, DType::kE4M3, KVC_ROPE_ON_APPEND, true});
  all.push_back({1, 8, 2, 64, DType::kI8, KVC_ROPE_ON_APPEND, true});
  all.push_back({64, 4, 1, 256, DType::kI8, KVC_ROPE_NONE, true});
  all.push_back({16, 8, 2, 128, DType::kU4, KVC_ROPE_ON_APPEND, true});
  all.push_back({3, 6, 1, 80, DType::kU4, KVC_ROPE_ON_READ, false});
  all.push_back({16, 8, 2, 128, DType::kE2M1, KVC_ROPE_ON_APPEND, true});
  all.push_back({3, 6, 1, 80, DType::kE2M1, KVC_ROPE_ON_READ, false});
  all.push_back({256, 6, 1, 256, DType::kBF16, KVC_ROPE_NONE, true});
  return all;
}

// DeepSeek's shape, and smaller ones.
std::vector<Geometry> latent_geometries() {
  return {
      {16, 128, 1, 576, DType::kBF16, KVC_ROPE_ON_APPEND, false, 512},
      {64, 128, 1, 576, DType::kF32, KVC_ROPE_NONE, false, 512},
      {1, 16, 1, 576, DType::kF16, KVC_ROPE_ON_READ, true, 512},
      {3, 5, 1, 40, DType::kF32, KVC_ROPE_ON_APPEND, true, 32},
      {8, 20, 1, 64, DType::kE4M3, KVC_ROPE_ON_APPEND, true, 48},
      {16, 16, 1, 96, DType::kI8, KVC_ROPE_NONE, false, 96},
      {64, 16, 1, 576, DType::kDsMla, KVC_ROPE_ON_APPEND, true, 512},
      {16, 20, 1, 80, DType::kU4, KVC_ROPE_ON_APPEND, true, 64},
      {16, 20, 1, 80, DType::kE2M1, KVC_ROPE_ON_APPEND, true, 64},
      {16, 16, 1, 576, DType::kBF16, KVC_ROPE_ON_APPEND, false, 512, {100, 128}},
      {3, 5, 1, 40, DType::kF32, KVC_ROPE_ON_READ, true, 32, {0, 683, 50}},
  };
}

CacheSpec spec_of(const Geometry &g) {
  CacheSpec spec;
  spec.page_size = g.page_size;
  spec.max_sequences = 32;
  spec.max_batch_tokens = 512;
  spec.rollback = 128;
  // 2,048 tokens. With pages of 64 and 256 tokens it is a few more, so that each sequence has a page.
  spec.capacity_tokens = g.page_size < 64 ? 2048 : g.page_size == 64 ? 4096 : 10240;
  spec.groups = {g.latent_group};
  if (g.sliding) spec.groups.push_back({33, spec.capacity_tokens / g.page_size});
  spec.layers.clear();
  if (g.latent && g.sliding) spec.groups.push_back(GroupSpec{});
  for (int i = 0; i < (g.latent ? 2 : 4); i++) {
    LayerSpec l;
    l.group = g.sliding && !g.latent ? i % 2 : 0;
    l.latent = g.latent;
    if (g.latent) l.scale = 0.13523;
    l.hq = g.hq;
    l.hkv = g.hkv;
    l.d = g.d;
    l.dtype = g.dtype;
    if (has_head_scales(g.dtype)) l.num_scales = i % 2 ? g.hkv : 1;
    l.rope = g.rope;
    l.theta = i % 2 ? 1e6 : 0;
    spec.layers.push_back(l);
  }
  for (int group = 1; g.latent && group < static_cast<int>(spec.groups.size()); group++) {
    LayerSpec l;
    l.group = group;
    l.hq = 4;
    l.hkv = 2;
    l.d = 16;
    spec.layers.push_back(l);
  }
  return spec;
}

Options options_of(const Geometry &g, uint64_t seed) {
  Options options;
  options.seed = seed + static_cast<uint64_t>(g.page_size + g.d + g.hq);
  options.threads = 2;
  options.heads_checked = 2;
  options.rows_checked = 4;
  options.check_digest = false;
  return options;
}

class Grid : public testing::TestWithParam<Geometry> {
 protected:
  template <class Script>
  void play(uint64_t seed, Script &&script) {
    EXPECT_EQ(mismatch_of([&] {
                Play p(spec_of(GetParam()), options_of(GetParam(), seed));
                script(p);
                p.verify_all();
              }),
              "");
  }
};

TEST_P(Grid, A_PrefillAndDecode) {
  play(100, [](Play &p) {
    p.step({{0, 6}});
    p.step({{1, 8}});
    p.step({{2, 11}});
    p.step({{3, 16}});
    p.step({{4, 19}, {5, 20}});
    p.step({{6, 21}, {7, 24}});
    p.step({{2, 5}, {4, 7}, {8, 24}});
    p.step({{6, 13}});
    p.step({{8, 19}});
    p.step({{0, 1}});
    p.step({{1, 3}, {3, 8}, {5, 12}, {7, 11}});
    p.decode({0, 1, 2, 3, 4, 5, 6, 7, 8});
    p.decode({0, 1, 2, 3, 4, 5, 6, 7, 8});
    p.decode({0, 2, 4, 6, 8});
    p.decode({4, 5, 6, 7, 8});
  });
}

TEST_P(Grid, B_Remove) {
  play(200, [](Play &p) {
    p.step({{0, 9}, {1, 17}, {2, 32}, {3, 1}, {4, 50}});
    for (int i = 0; i < 5; i++) {
      p.decode({0, 1, 2, 3, 4});
      p.remove(i);
      p.verify_all();
      p.step({{i, 7 + 9 * i}, {(i + 1) % 5, 1}});
    }
    for (int i : p.sequences()) p.remove(i);
    p.expect_empty();
  });
}

TEST_P(Grid, C_Fork) {
  play(300, [](Play &p) {
    p.step({{0, 60}, {1, 88}, {2, 17}, {3, 4}});
    p.fork({{4, 3, kEnd}});
    p.step({{4, 35}});
    p.fork({{5, 0, kEnd}});
    p.step({{5, 20}});
    p.fork({{6, 5, kEnd}});
    p.step({{6, 102}});
    p.fork({{7, 0, kEnd}});
    p.step({{7, 3}});
    p.fork({{8, 5, kEnd}, {9, 5, kEnd}});
    p.step({{8, 71}, {9, 20}});
    p.decode({2, 4, 7, 6, 8, 9});
    p.decode({7, 6, 8, 9});
    p.decode({7, 1, 6, 2, 8, 4, 9});
    p.step({{7, 10}, {6, 2}, {8, 3}, {9, 4}});
    p.fork({{10, 1, 33}});
    p.step({{10, 11}});
    p.fork({{11, 0, 60}, {12, 0, 15}});
    p.step({{11, 45}, {12, 14}});
    p.fork({{13, 0, 16}, {14, 0, 17}});
    p.step({{13, 19}, {14, 19}});
    p.fork({{15, 5, 60}, {16, 5, 80}});
    p.step({{15, 8}, {16, 10}});
    p.verify_all();
    for (int i = 0; i <= 16; i++) p.remove(i);
    p.expect_empty();
    p.step({{0, 7}, {1, 24}});
    p.fork({{2, 1, kEnd}});
    p.step({{2, 10}});
    p.fork({{3, 0, kEnd}});
    p.step({{3, 20}});
    p.decode({2, 3});
  });
}

TEST_P(Grid, E_Truncate) {
  play(500, [](Play &p) {
    p.step({{0, 35}, {1, 88}, {2, 17}, {3, 4}});
    p.fork({{4, 3, kEnd}});
    p.step({{4, 35}});
    p.drop({{0, 17}, {1, 57}, {2, 16}, {3, 0}, {4, 37}});
    p.verify_all();
    p.step({{4, 5}, {3, 2}, {0, 1}, {1, 20}, {2, 1}});
    p.decode({0, 1, 2, 3, 4});
  });
}

INSTANTIATE_TEST_SUITE_P(Geometries, Grid, testing::ValuesIn(geometries()),
                         [](const testing::TestParamInfo<Geometry> &info) { return name_of(info.param); });

INSTANTIATE_TEST_SUITE_P(K_Latent, Grid, testing::ValuesIn(latent_geometries()),
                         [](const testing::TestParamInfo<Geometry> &info) { return name_of(info.param); });

// ---- I: layer windows ---------------------------------------------------------------------------

CacheSpec windows_spec(int page_size, int64_t window, int64_t rollback, DType dtype, int rope) {
  CacheSpec spec;
  spec.page_size = page_size;
  spec.max_sequences = 8;
  spec.max_batch_tokens = 256;
  spec.rollback = rollback;
  spec.groups = {{window, 2048 / page_size + 8}, {0, 2048 / page_size + 8}};
  spec.layers.clear();
  for (int i = 0; i < 6; i++) {  // five sliding layers and a full one
    LayerSpec l;
    l.group = i % 6 == 5 ? 1 : 0;
    l.hq = 4;
    l.hkv = 1 + i % 2;
    l.d = 16;
    l.dtype = dtype;
    l.rope = rope;
    l.theta = i % 6 == 5 ? 1e6 : 1e4;
    spec.layers.push_back(l);
  }
  return spec;
}

class Windows : public testing::TestWithParam<int> {};

TEST_P(Windows, I_WindowThreeAppendsThreeTwoOne) {
  for (int64_t rollback : {0, 64}) {
    EXPECT_EQ(mismatch_of([&] {
                Play p(windows_spec(GetParam(), 3, rollback, DType::kF32, KVC_ROPE_NONE), Options{});
                p.step({{0, 3}});
                p.step({{0, 2}});
                p.step({{0, 1}});
                for (int i = 0; i < 20; i++) p.decode({0});
                p.verify_all();
              }),
              "");
  }
}

TEST_P(Windows, I_WindowSmallerThanEqualToAndLargerThanTheChunk) {
  for (int64_t window : {5, 24, 40}) {
    for (int rope : {KVC_ROPE_NONE, KVC_ROPE_ON_APPEND, KVC_ROPE_ON_READ}) {
      Options options;
      options.seed = static_cast<uint64_t>(window);
      EXPECT_EQ(mismatch_of([&] {
                  Play p(windows_spec(GetParam(), window, rope ? 0 : 8, rope ? DType::kBF16 : DType::kF32, rope),
                         options);
                  for (int i = 0; i < 4; i++) p.step({{0, 24}, {1, 24}, {2, 1 + i}});
                  p.step({{0, 100}, {3, 130}});
                  for (int i = 0; i < 12; i++) p.decode({3, 0, 2, 1});
                  p.fork({{4, 0, kEnd}});
                  p.step({{4, 30}, {0, 1}});
                  p.verify_all();
                }),
                "")
          << "window " << window;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pages, Windows, testing::Values(1, 3, 8, 16, 64, 256));

}  // namespace
}  // namespace kvt
