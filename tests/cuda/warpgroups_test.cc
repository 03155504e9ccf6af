// The library on the device that attends by warpgroups, beside the CPU. Staged steps list blocks of 128 rows, and steps
// of a graph are launched at its capacity. Latent rows are computed in halves, or over lists of keys.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cuda_runtime.h"
#include "kvcache.h"

namespace kvt {
namespace {

struct Shape {
  int64_t q_heads, kv_heads, dims, v_dims;
};
constexpr Shape kHeads = {4, 2, 64, 64}, kLatent = {16, 1, 576, 512};
constexpr DLDeviceType kDevices[2] = {kDLCPU, kDLCUDA};

struct Rows {
  std::vector<_Float16> data;
  std::vector<int64_t> shape;
  DLTensor view;
  Rows(int64_t tokens, int64_t heads, int64_t dims, DLDeviceType device) : shape{tokens, heads, dims} {
    data.assign(static_cast<size_t>(tokens * heads * dims), static_cast<_Float16>(-7.0f));
    view = {data.data(), {device, 0}, 3, {kDLFloat, 16, 1}, shape.data(), nullptr, 0};
  }
};

class Warpgroups : public testing::TestWithParam<bool> {  // latent rows
 protected:
  Warpgroups() : latent_(GetParam()), shape_(latent_ ? kLatent : kHeads) {
    for (int i = 0; i < 2; ++i) {
      kvc_context_config context;
      kvc_context_config_init(&context);
      context.device_type = kDevices[i];
      context.num_threads = 1;
      EXPECT_EQ(kvc_context_create(&context, &contexts_[i], error()), KVC_OK) << error_.message;
      kvc_layer_config layer;
      kvc_layer_config_init(&layer);
      layer.num_q_heads = static_cast<int32_t>(shape_.q_heads);
      layer.num_kv_heads = static_cast<int32_t>(shape_.kv_heads);
      layer.head_dim = static_cast<int32_t>(shape_.dims);
      if (latent_) {
        layer.latent_dim = static_cast<int32_t>(shape_.v_dims);
        layer.softmax_scale = 0.05f;
      }
      layer.dtype = {kDLFloat, 16, 1};
      layer.rope_mode = KVC_ROPE_ON_APPEND;
      kvc_group_config group;
      kvc_group_config_init(&group);
      group.num_pages = 64;
      if (latent_) group.row = KVC_ROW_LATENT;
      kvc_cache_config config;
      kvc_cache_config_init(&config);
      config.layers = &layer;
      config.num_layers = 1;
      config.groups = &group;
      config.num_groups = 1;
      config.page_size = 16;
      config.max_sequences = 4;
      config.max_batch_tokens = 256;
      EXPECT_EQ(kvc_cache_create(contexts_[i], &config, &caches_[i], error()), KVC_OK) << error_.message;
    }
  }
  ~Warpgroups() override {
    for (int i = 0; i < 2; ++i) {
      kvc_cache_destroy(caches_[i]);
      kvc_context_destroy(contexts_[i]);
    }
  }
  kvc_error* error() {
    error_ = KVC_ERROR_INIT;
    return &error_;
  }

  // A step with the same random tokens on both sides; graphs: nullable.
  void step(const std::vector<kvc_seq> (&rows)[2], const std::vector<int32_t>& lengths, int64_t capacity,
            const kvc_forward* graphs) {
    std::vector<Rows> tensors[2];
    for (int i = 0; i < 2; ++i) {
      tensors[i].emplace_back(capacity, shape_.q_heads, shape_.dims, kDevices[i]);
      for (int t = 1; t < 3; ++t) tensors[i].emplace_back(capacity, shape_.kv_heads, shape_.dims, kDevices[i]);
      tensors[i].emplace_back(capacity, shape_.q_heads, shape_.v_dims, kDevices[i]);
    }
    for (int t = 0; t < 3; ++t) {
      for (_Float16& x : tensors[0][t].data) x = static_cast<_Float16>(normal_(random_));
      std::copy(tensors[0][t].data.begin(), tensors[0][t].data.end(), tensors[1][t].data.begin());
    }
    // Tokens that each sequence has, some of them twice, and entries that name nothing.
    std::vector<int32_t> entries(static_cast<size_t>(capacity * entries_));
    for (int32_t& entry : entries) entry = static_cast<int32_t>(random_() % 80) - 30;
    int64_t shape[] = {capacity, 1, entries_};
    for (int i = 0; i < 2; ++i) {
      DLTensor lists = {entries.data(), {kDevices[i], 0}, 3, {kDLInt, 32, 1}, shape, nullptr, 0};
      kvc_batch batch;
      kvc_batch_init(&batch);
      batch.num_sequences = static_cast<int32_t>(rows[i].size());
      batch.sequences = rows[i].data();
      batch.append_lengths = lengths.data();
      batch.graph = graphs == nullptr ? 0 : graphs[i];
      kvc_forward forward = 0;
      ASSERT_EQ(kvc_forward_begin(caches_[i], &batch, nullptr, &forward, error()), KVC_OK) << error_.message;
      kvc_attend_args args;
      kvc_attend_args_init(&args);
      args.q = &tensors[i][0].view;
      args.k = &tensors[i][1].view;
      args.v = latent_ ? nullptr : &tensors[i][2].view;  // a latent row is K's
      args.out = &tensors[i][3].view;
      args.indices = entries_ > 0 ? &lists : nullptr;
      ASSERT_EQ(kvc_forward_attend(caches_[i], forward, 0, &args, error()), KVC_OK) << error_.message;
      ASSERT_EQ(kvc_forward_end(caches_[i], forward, error()), KVC_OK) << error_.message;
    }
    cudaDeviceSynchronize();
    for (size_t e = 0; e < tensors[0][3].data.size(); ++e) {
      ASSERT_NEAR(static_cast<float>(tensors[0][3].data[e]), static_cast<float>(tensors[1][3].data[e]), 4e-3f) << e;
    }
  }
  void add(std::vector<kvc_seq> (&rows)[2], int count) {
    for (int i = 0; i < 2; ++i) {
      rows[i].resize(static_cast<size_t>(count));
      ASSERT_EQ(kvc_seq_add(caches_[i], count, rows[i].data(), error()), KVC_OK) << error_.message;
    }
  }
  void create(int64_t tokens, kvc_forward (&graphs)[2]) {
    for (int i = 0; i < 2; ++i) {
      kvc_graph_config config;
      kvc_graph_config_init(&config);
      config.max_sequences = 2;
      config.max_tokens = tokens;
      ASSERT_EQ(kvc_graph_create(caches_[i], &config, &graphs[i], error()), KVC_OK) << error_.message;
    }
  }

  const bool latent_;
  const Shape shape_;
  int64_t entries_ = 0;  // of the list of each query; 0: no lists
  kvc_context* contexts_[2] = {};
  kvc_cache* caches_[2] = {};
  kvc_error error_ = KVC_ERROR_INIT;
  std::mt19937 random_{3};
  std::normal_distribution<float> normal_;
};

using Lengths = std::vector<std::vector<int32_t>>;

TEST_P(Warpgroups, StagedSteps) {
  std::vector<kvc_seq> rows[2];
  add(rows, 2);
  const int64_t before = cuda_emulation::counts().warpgroup_products;
  const Lengths steps =
      latent_ ? Lengths{{13, 4}, {1, 9}, {1, 1}, {6, 2}} : Lengths{{150, 40}, {9, 130}, {1, 1}, {70, 2}};
  for (const std::vector<int32_t>& lengths : steps) {
    step(rows, lengths, lengths[0] + lengths[1], nullptr);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(cuda_emulation::counts().warpgroup_products, before);
}

TEST_P(Warpgroups, StepsOfAGraph) {
  const int64_t tokens = latent_ ? 16 : 96;
  std::vector<kvc_seq> rows[2];
  add(rows, 2);
  kvc_forward graphs[2] = {};
  create(tokens, graphs);
  const int64_t before = cuda_emulation::counts().warpgroup_products;
  const Lengths steps =
      latent_ ? Lengths{{13, 3}, {1, 9}, {1, 1}, {8, 8}} : Lengths{{80, 10}, {3, 90}, {1, 1}, {48, 48}};
  for (const std::vector<int32_t>& lengths : steps) {
    step(rows, lengths, tokens, graphs);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(cuda_emulation::counts().warpgroup_products, before);
}

TEST_P(Warpgroups, ListsOfKeys) {
  constexpr int64_t kTokens = 12;
  std::vector<kvc_seq> rows[2];
  add(rows, 2);
  kvc_forward graphs[2] = {};
  create(kTokens, graphs);
  step(rows, {70, 50}, 120, nullptr);
  entries_ = 90;
  const int64_t before = cuda_emulation::counts().warpgroup_products;
  for (const bool in_graph : {false, true}) {
    for (const std::vector<int32_t>& lengths : Lengths{{3, 9}, {1, 1}, {1, 5}}) {
      step(rows, lengths, in_graph ? kTokens : lengths[0] + lengths[1], in_graph ? graphs : nullptr);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(cuda_emulation::counts().warpgroup_products > before, latent_);
}

INSTANTIATE_TEST_SUITE_P(Layers, Warpgroups, testing::Bool(),
                         [](const auto& latent) { return latent.param ? "Latent" : "Heads"; });

}  // namespace
}  // namespace kvt
