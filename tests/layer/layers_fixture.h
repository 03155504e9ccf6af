// Layers of a small cache on the CPU, for tests of code that moves or describes stored rows.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "context/context.h"
#include "layer/layers.h"

namespace kvc {

// A config. Tests set the fields that they are about.
struct SmallConfig {
  CacheConfig in;

  SmallConfig() {
    kvc_cache_config_init(&in.config);
    in.config.page_size = 4;
    in.config.capacity_tokens = 64;
  }
  kvc_group_config& add_group(int32_t row = KVC_ROW_KV) {
    kvc_group_config group;
    kvc_group_config_init(&group);
    group.row = row;
    in.groups.push_back(group);
    return in.groups.back();
  }
  kvc_layer_config& add_layer(int32_t group, DLDataType dtype = {kDLFloat, 32, 1}) {
    kvc_layer_config layer;
    kvc_layer_config_init(&layer);
    layer.group = group;
    layer.num_q_heads = 4;
    layer.num_kv_heads = 2;
    layer.head_dim = 8;
    layer.dtype = dtype;
    in.layers.push_back(layer);
    in.states.emplace_back();
    return in.layers.back();
  }
  void add_recurrent(int32_t group, std::vector<kvc_state_config> states) {
    kvc_layer_config layer;
    kvc_layer_config_init(&layer);
    layer.group = group;
    layer.num_states = static_cast<int32_t>(states.size());
    in.layers.push_back(layer);
    in.states.push_back(std::move(states));
    in.layers.back().states = in.states.back().data();
  }
};

inline kvc_state_config state_of(DLDataType dtype, std::initializer_list<int64_t> shape) {
  kvc_state_config state;
  kvc_state_config_init(&state);
  state.dtype = dtype;
  for (const int64_t size : shape) state.shape[state.rank++] = size;
  return state;
}

class LayersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    kvc_context_config config;
    kvc_context_config_init(&config);
    config.num_threads = 1;
    ASSERT_TRUE(Context::create(config, &context_).ok());
  }
  Geometry geometry(const SmallConfig& config) {
    Geometry geometry;
    const Status made = make_geometry(*context_, config.in, &geometry);
    EXPECT_TRUE(made.ok()) << made.message();
    return geometry;
  }
  std::unique_ptr<Layers> layers(const SmallConfig& config) {
    std::unique_ptr<Layers> layers;
    const Status made = Layers::create(context_, geometry(config), &layers);
    EXPECT_TRUE(made.ok()) << made.message();
    return layers;
  }

  std::shared_ptr<Context> context_;
};

}  // namespace kvc
