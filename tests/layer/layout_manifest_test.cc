// The layout manifest: its text, and that it changes with everything that changes the meaning of stored bytes.
#include "layer/layout_manifest.h"

#include <clocale>
#include <set>

#include "layers_fixture.h"

namespace kvc {
namespace {

class ManifestTest : public LayersTest {
 protected:
  std::string text(const SmallConfig& config) { return layout_manifest(geometry(config), -1, 0); }
};

SmallConfig mixture() {
  SmallConfig config;
  config.add_group().visibility = KVC_VISIBLE_WINDOW;
  config.in.groups[0].window_tokens = 512;
  config.add_group();
  config.add_group(KVC_ROW_LATENT);
  config.add_group(KVC_ROW_STATE);
  for (int i = 0; i < 4; ++i) {
    kvc_layer_config& layer = config.add_layer(i == 2 ? 1 : 0, {kDLFloat, 16, 1});
    layer.rope_mode = KVC_ROPE_ON_APPEND;
    layer.rope_theta = i == 2 ? 1e6 : 0;
  }
  kvc_layer_config& latent = config.add_layer(2);
  latent.num_kv_heads = 1;
  latent.head_dim = 24;
  latent.latent_dim = 16;
  latent.softmax_scale = 0.25;
  config.add_recurrent(3, {state_of({kDLFloat, 32, 1}, {4, 128}), state_of({kDLFloat, 16, 1}, {3})});
  config.add_layer(1, {kDLInt, 8, 1});
  return config;
}

TEST_F(ManifestTest, IsReadable) {
  EXPECT_EQ(text(mixture()),
            "kvcache layout 1\n"
            "group 0: kv, window 512\n"
            "layers 0-1,3: float16, 2 heads, k 8, v 8, rope append 0+8 halves theta 10000\n"
            "group 1: kv, all\n"
            "layer 2: float16, 2 heads, k 8, v 8, rope append 0+8 halves theta 1e+06\n"
            "layer 6: int8, 2 heads, k 8, v 8, scales of tokens and heads, rope none\n"
            "group 2: latent, all\n"
            "layer 4: float32, 1 heads, k 24, v 16, rope none\n"
            "group 3: state, all\n"
            "layer 5: states float32[4,128] float16[3]\n");
  EXPECT_EQ(layout_manifest(geometry(mixture()), 0, 16),
            "kvcache layout 1\n"
            "group 0: kv, window 512\n"
            "layers 0-1,3: float16, 2 heads, k 8, v 8, rope append 0+8 halves theta 10000\n"
            "page 16 tokens\n");
}

TEST_F(ManifestTest, RanksHaveUnlikeManifestsUnlessOfAllRanks) {
  const auto of = [](int32_t size, int32_t rank, float second_scale = 2) {
    SmallConfig config;
    config.add_group();
    config.in.config.tp_size = size;
    config.in.config.tp_rank = rank;
    config.add_layer(0).num_kv_heads = 4 / size;
    config.add_layer(0).num_kv_heads = 1;
    config.in.layers.back().total_kv_heads = size == 1 ? 1 : 0;  // in one rank 1 head, in 2 ranks 2
    static float scales[2];
    scales[0] = 2, scales[1] = second_scale;
    kvc_layer_config& scaled = config.add_layer(0, {kDLFloat8_e4m3fn, 8, 1});
    scaled.num_kv_heads = 4 / size;
    scaled.k_scales = scaled.v_scales = scales;
    scaled.num_scales = size == 1 ? 1 : 2;
    return config;
  };
  EXPECT_EQ(text(of(2, 1)).substr(0, 45), "kvcache layout 1\nrank 1 of 2\ngroup 0: kv, all");
  EXPECT_NE(text(of(2, 1)), text(of(2, 0)));
  const auto all = [&](const SmallConfig& config) { return layout_manifest_of_all_ranks(geometry(config)); };
  EXPECT_EQ(all(of(2, 1)), all(of(2, 0)));
  const std::string one = all(of(1, 0)), two = all(of(2, 0));
  EXPECT_NE(one.find("layer 0: float32, 4 heads"), std::string::npos) << one;
  EXPECT_NE(two.find("layer 0: float32, 4 heads"), std::string::npos) << two;
  EXPECT_NE(one.find("layer 1: float32, 1 heads"), std::string::npos) << one;
  EXPECT_NE(two.find("layer 1: float32, 2 heads"), std::string::npos) << two;
  // Equal scales of all heads are the same scales however the heads are shared.
  EXPECT_EQ(one.substr(one.find("layer 2")), two.substr(two.find("layer 2")));
  EXPECT_NE(all(of(2, 0, 3)), all(of(2, 1, 3))) << "scales of unlike heads say nothing about other ranks";
  EXPECT_NE(all(of(2, 0, 3)).find(" of rank 0 of 2, rope"), std::string::npos);
}

// Changes of one layer or group. Each gives stored bytes another meaning.
TEST_F(ManifestTest, EveryChangeOfMeaningChangesIt) {
  using Layer = kvc_layer_config;
  static const float scales[2] = {0.5f, 2.0f};
  kvc_rope_scaling linear, longer;
  kvc_rope_scaling_init(&linear);
  linear.kind = KVC_ROPE_SCALING_LINEAR;
  linear.factor = 2;
  longer = linear;
  longer.factor = 4;
  const std::vector<void (*)(Layer*)> changes = {
      [](Layer*) {},
      [](Layer* l) { l->dtype = {kDLBfloat, 16, 1}; },
      [](Layer* l) { l->num_kv_heads = 4; },
      [](Layer* l) { l->head_dim = 16; },
      [](Layer* l) { l->v_head_dim = 4; },
      [](Layer* l) { l->rope_mode = KVC_ROPE_ON_APPEND; },
      [](Layer* l) { l->rope_mode = KVC_ROPE_ON_READ; },
      [](Layer* l) { l->rope_mode = KVC_ROPE_ON_APPEND, l->rope_theta = 5e5; },
      [](Layer* l) { l->rope_mode = KVC_ROPE_ON_APPEND, l->rope_dim = 4; },
      [](Layer* l) { l->rope_mode = KVC_ROPE_ON_APPEND, l->rope_dim = 4, l->rope_offset = 4; },
      [](Layer* l) { l->rope_mode = KVC_ROPE_ON_APPEND, l->flags = KVC_LAYER_ROPE_INTERLEAVED; },
      [](Layer* l) { l->dtype = {kDLFloat8_e4m3fn, 8, 1}; },
      [](Layer* l) { l->dtype = {kDLFloat8_e4m3fn, 8, 1}, l->k_scales = l->v_scales = scales, l->num_scales = 1; },
      [](Layer* l) { l->dtype = {kDLFloat8_e4m3fn, 8, 1}, l->k_scales = l->v_scales = scales, l->num_scales = 2; },
  };
  std::set<std::string> seen;
  for (const auto change : changes) {
    SmallConfig config;
    config.add_group();
    change(&config.add_layer(0));
    EXPECT_TRUE(seen.insert(text(config)).second) << text(config);
  }
  for (const kvc_rope_scaling& scaling : {linear, longer}) {
    SmallConfig config;
    config.add_group();
    kvc_layer_config& layer = config.add_layer(0);
    layer.rope_mode = KVC_ROPE_ON_APPEND;
    layer.rope_scaling = &scaling;
    EXPECT_TRUE(seen.insert(text(config)).second) << text(config);
  }
  SmallConfig chunks;
  chunks.add_group().visibility = KVC_VISIBLE_CHUNK;
  chunks.in.groups[0].chunk_tokens = 32;
  chunks.add_layer(0);
  EXPECT_TRUE(seen.insert(text(chunks)).second);
}

TEST_F(ManifestTest, PoolsLimitsAndLocalesDoNotChangeIt) {
  SmallConfig config = mixture();
  const std::string before = text(config);
  config.in.config.capacity_tokens = 1024;
  config.in.config.page_size = 8;
  config.in.config.rollback_tokens = 5;
  config.in.layers[2].num_q_heads = 8;
  EXPECT_EQ(text(config), before);
  if (std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr) {
    EXPECT_EQ(text(config), before);
    std::setlocale(LC_ALL, "C");
  }
}

TEST_F(ManifestTest, TheFirstDifferenceIsALineOfEach) {
  const ManifestDifference lines = first_difference("same\nfloat16\nend\n", "same\nfloat32\nend\n");
  EXPECT_EQ(lines.a, "float16");
  EXPECT_EQ(lines.b, "float32");
  const ManifestDifference longer = first_difference("same\n", "same\nmore\n");
  EXPECT_EQ(longer.a, "(nothing)");
  EXPECT_EQ(longer.b, "more");
}

}  // namespace
}  // namespace kvc
