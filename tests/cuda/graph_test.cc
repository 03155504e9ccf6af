// Steps of a kvc_graph whose calls were captured once and are replayed. The results are those of the CPU, which makes
// the calls in every step, for batches of any size.
#include <thread>

#include "lockstep.h"

namespace kvt {
namespace {

class Graphs : public testing::Test {
 protected:
  static constexpr int32_t kRows = 5, kTokens = 12;

  Graphs() { cudaStreamCreate(&stream_); }
  ~Graphs() override {
    cuda_emulation::set_order(cuda_emulation::kAtOnce);
    if (captured_ != nullptr) cudaGraphDestroy(captured_);
    cudaStreamDestroy(stream_);
  }

  void create(Lockstep& lockstep) {
    lockstep.both([&](kvc_cache* c, int side) {
      kvc_graph_config config;
      kvc_graph_config_init(&config);
      config.max_sequences = kRows;
      config.max_tokens = kTokens;
      return kvc_graph_create(c, &config, &graphs_[side], lockstep.error());
    });
    for (int layer = 0; layer < kLayers; ++layer) tensors_.push_back(&lockstep.make_layer(kTokens));
    if (lockstep.has_states()) states_ = &lockstep.make_states(kRows);
  }
  kvc_status attend(Lockstep& lockstep, int side) {
    for (int layer = 0; layer < kLayers; ++layer) {
      const kvc_attend_args args = tensors_[static_cast<size_t>(layer)]->args(side);
      const kvc_status status =
          kvc_forward_attend(lockstep.caches[side], graphs_[side], layer, &args, lockstep.error());
      if (status != KVC_OK) return status;
    }
    return states_ == nullptr ? KVC_OK : lockstep.move_states(graphs_[side], side, *states_);
  }

  enum class How { kCalls, kCapture, kReplay };
  void step(Lockstep& lockstep, const std::vector<int>& rows, const std::vector<int32_t>& lengths, How how,
            const std::vector<int32_t>& parents = {}) {
    cudaDeviceSynchronize();  // the inputs change
    for (Lockstep::Layer* layer : tensors_) {
      lockstep.refill(layer->q);
      lockstep.refill(layer->k);
      lockstep.refill(layer->v);
    }
    if (states_ != nullptr) lockstep.refill(states_->stored);
    Lockstep::Step step;
    ASSERT_EQ(lockstep.begin(rows, lengths, parents, stream_, &step, graphs_), KVC_OK) << lockstep.message();
    ASSERT_EQ(attend(lockstep, 0), KVC_OK) << lockstep.message();
    if (how == How::kCalls) {
      ASSERT_EQ(attend(lockstep, 1), KVC_OK) << lockstep.message();
    }
    if (how == How::kCapture) {
      cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal);
      const kvc_status status = attend(lockstep, 1);
      cudaStreamEndCapture(stream_, &captured_);
      ASSERT_EQ(status, KVC_OK) << lockstep.message();
    }
    if (how != How::kCalls) cudaGraphLaunch(captured_, stream_);
    ASSERT_EQ(lockstep.end(step), KVC_OK) << lockstep.message();
    cudaDeviceSynchronize();
    for (size_t layer = 0; layer < tensors_.size(); ++layer) {
      const auto& out = tensors_[layer]->out;
      for (size_t i = 0; i < out[0]->data.size(); ++i) {
        ASSERT_NEAR(out[0]->data[i], out[1]->data[i], 2e-5f) << "layer " << layer << " element " << i;
      }
    }
    if (states_ == nullptr) return;
    ASSERT_EQ(states_->loaded[0]->data, states_->loaded[1]->data);
  }

  cudaStream_t stream_ = nullptr;
  cudaGraph_t captured_ = nullptr;
  kvc_forward graphs_[2] = {};
  std::vector<Lockstep::Layer*> tensors_;
  Lockstep::States* states_ = nullptr;
};

TEST_F(Graphs, ReplaysAtAnySize) {
  for (const bool window : {false, true}) {
    tensors_.clear();
    Lockstep lockstep({.num_pages = 400, .max_batch_tokens = 64, .window_tokens = window ? 11 : 0, .rope = true});
    create(lockstep);
    std::vector<int> s;
    for (int i = 0; i < kRows; ++i) s.push_back(lockstep.add());
    lockstep.fill(s[0], 250, 64, stream_);  // one token more, and it is split along its keys
    lockstep.fill(s[1], 7, 64, stream_);
    step(lockstep, {s[0], s[1]}, {1, 2}, How::kCalls);
    step(lockstep, {s[1]}, {1}, How::kCapture);
    step(lockstep, {s[0], s[1], s[2], s[3], s[4]}, {4, 1, 3, 3, 1}, How::kReplay);  // at capacity
    for (int i = 0; i < 6; ++i) step(lockstep, {s[0], s[3]}, {1, 1}, How::kReplay);
    lockstep.fill(s[0], 300, 64, stream_);
    step(lockstep, {s[0]}, {1}, How::kReplay);
    // Later steps use the same buffers, and must not merge old parts again.
    for (int i = 0; i < 5; ++i) step(lockstep, {s[1]}, {1}, How::kReplay);
    step(lockstep, {}, {}, How::kReplay);                     // no row
    step(lockstep, {-1, s[2], -1}, {2, 1, 0}, How::kReplay);  // inert rows
    step(lockstep, {s[4]}, {3}, How::kReplay, {-1, 0, 0});    // a tree
    ASSERT_EQ(lockstep.commit(s[4], 2, stream_), KVC_OK);
    int child = -1;
    ASSERT_EQ(lockstep.fork(s[0], window ? -1 : 400, stream_, &child), KVC_OK);
    step(lockstep, {s[0], child, s[4]}, {1, 2, 1}, How::kReplay);
    ASSERT_EQ(lockstep.remove(s[0]), KVC_OK);
    lockstep.fill(s[2], 40, 64, stream_);
    step(lockstep, {child, s[2]}, {1, 1}, How::kReplay);
    if (HasFatalFailure()) return;
    cudaGraphDestroy(captured_);
    captured_ = nullptr;
    lockstep.compare();
  }
}

// A whole step of a model with attention layers and recurrent layers.
TEST_F(Graphs, ReplaysStates) {
  Lockstep lockstep({.num_pages = 400, .max_batch_tokens = 64, .rope = true, .states = true});
  create(lockstep);
  std::vector<int> s;
  for (int i = 0; i < kRows; ++i) s.push_back(lockstep.add());
  lockstep.fill(s[0], 30, 16, stream_);
  step(lockstep, {s[0], s[1]}, {1, 2}, How::kCalls);
  step(lockstep, {s[1]}, {1}, How::kCapture);
  step(lockstep, {s[0], s[1], s[2], s[3], s[4]}, {4, 1, 3, 3, 1}, How::kReplay);  // at capacity
  for (int i = 0; i < 4; ++i) step(lockstep, {s[0], s[3]}, {1, 1}, How::kReplay);
  step(lockstep, {}, {}, How::kReplay);                     // no row
  step(lockstep, {-1, s[2], -1}, {2, 1, 0}, How::kReplay);  // inert rows
  int child = -1;
  ASSERT_EQ(lockstep.fork(s[0], -1, stream_, &child), KVC_OK) << lockstep.message();
  step(lockstep, {s[0], child, s[4]}, {1, 2, 1}, How::kReplay);
  ASSERT_EQ(lockstep.remove(s[0]), KVC_OK);
  lockstep.fill(s[2], 10, 5, stream_);
  step(lockstep, {child, s[2]}, {1, 1}, How::kReplay);
  // A replay between steps loads nothing and stores nothing.
  for (auto* rows : {states_->loaded, states_->stored}) {
    for (int side = 0; side < 2; ++side) std::fill(rows[side]->data.begin(), rows[side]->data.end(), 1e6f);
  }
  cudaGraphLaunch(captured_, stream_);
  cudaDeviceSynchronize();
  for (const float x : states_->loaded[1]->data) ASSERT_EQ(x, 1e6f);
  step(lockstep, {s[2], child, s[1]}, {1, 1, 1}, How::kReplay);
  // Calls of a forward without a graph cannot be captured.
  Lockstep::Step alone;
  ASSERT_EQ(lockstep.begin({child}, {1}, {}, stream_, &alone), KVC_OK) << lockstep.message();
  cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(lockstep.move_states(alone.ids[1], 1, *states_), KVC_ERROR_ORDER);
  cudaGraph_t none = nullptr;
  cudaStreamEndCapture(stream_, &none);
  cudaGraphDestroy(none);
  ASSERT_EQ(lockstep.abort(alone), KVC_OK) << lockstep.message();
  lockstep.compare();
}

// Steps of encoder tokens belong to the graph too: all addresses stay the same.
TEST_F(Graphs, AddressesStayInStepsOfEveryKind) {
  kvc_context_config context_config;
  kvc_context_config_init(&context_config);
  context_config.device_type = kDLCUDA;
  kvc_error error = KVC_ERROR_INIT;
  kvc_context* context = nullptr;
  ASSERT_EQ(kvc_context_create(&context_config, &context, &error), KVC_OK) << error.message;
  kvc_group_config groups[2];
  kvc_layer_config layers[2];
  for (int i = 0; i < 2; ++i) {
    kvc_group_config_init(&groups[i]);
    groups[i].num_pages = 16;
    kvc_layer_config_init(&layers[i]);
    layers[i].group = i;
    layers[i].num_q_heads = layers[i].num_kv_heads = 1;
    layers[i].head_dim = 8;
  }
  groups[1].visibility = KVC_VISIBLE_ENCODER;
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = layers, config.num_layers = 2, config.groups = groups, config.num_groups = 2;
  kvc_cache* cache = nullptr;
  ASSERT_EQ(kvc_cache_create(context, &config, &cache, &error), KVC_OK) << error.message;
  kvc_graph_config graph_config;
  kvc_graph_config_init(&graph_config);
  graph_config.max_sequences = graph_config.max_tokens = 4;
  kvc_forward graph = 0;
  ASSERT_EQ(kvc_graph_create(cache, &graph_config, &graph, &error), KVC_OK) << error.message;
  kvc_seq sequence = 0;
  ASSERT_EQ(kvc_seq_add(cache, 1, &sequence, &error), KVC_OK) << error.message;
  const int32_t length = 3;
  const void* positions[2] = {};
  for (int encoder = 0; encoder < 2; ++encoder) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &sequence, batch.append_lengths = &length, batch.num_sequences = 1;
    batch.graph = graph, batch.encoder_group = encoder == 1 ? 2 : 0;
    kvc_forward step = 0;
    ASSERT_EQ(kvc_forward_begin(cache, &batch, stream_, &step, &error), KVC_OK) << error.message;
    kvc_forward_info info;
    kvc_forward_info_init(&info);
    ASSERT_EQ(kvc_forward_get_info(cache, step, &info, &error), KVC_OK) << error.message;
    positions[encoder] = info.positions.data;
    ASSERT_EQ(kvc_forward_abort(cache, step, &error), KVC_OK) << error.message;
  }
  EXPECT_EQ(positions[0], positions[1]);
  kvc_cache_destroy(cache);
  kvc_context_destroy(context);
}

// Several steps in a row, while the device has not run any of them.
TEST_F(Graphs, ReplaysWhileTheDeviceIsLate) {
  Lockstep lockstep({.num_pages = 60, .max_batch_tokens = 64});
  create(lockstep);
  const int a = lockstep.add(), b = lockstep.add();
  step(lockstep, {a, b}, {5, 3}, How::kCalls);
  step(lockstep, {a}, {1}, How::kCapture);
  cuda_emulation::set_order(cuda_emulation::kInTurn);
  for (int i = 0; i < 9; ++i) {
    Lockstep::Step step;
    const std::vector<int> rows = i % 3 == 0 ? std::vector<int>{a, b} : std::vector<int>{i % 3 == 1 ? a : b};
    ASSERT_EQ(lockstep.begin(rows, std::vector<int32_t>(rows.size(), 1), {}, stream_, &step, graphs_), KVC_OK);
    ASSERT_EQ(attend(lockstep, 0), KVC_OK);
    cudaGraphLaunch(captured_, stream_);
    ASSERT_EQ(lockstep.end(step), KVC_OK);
  }
  for (int sequence : {a, b}) {
    for (int layer = 0; layer < kLayers; ++layer) lockstep.export_rows(sequence, layer, stream_);
  }
  lockstep.compare();
}

// A replay between steps touches nothing: no output, nothing stored.
TEST_F(Graphs, StaleReplaysWriteNothing) {
  Lockstep lockstep({.num_pages = 60, .max_batch_tokens = 64, .rope = true});
  create(lockstep);
  const int a = lockstep.add();
  step(lockstep, {a}, {5}, How::kCalls);
  step(lockstep, {a}, {2}, How::kCapture);
  for (Lockstep::Layer* layer : tensors_) {
    for (auto* rows : {layer->q, layer->k, layer->v, layer->out}) {
      for (int side = 0; side < 2; ++side) std::fill(rows[side]->data.begin(), rows[side]->data.end(), 1e6f);
    }
  }
  cudaGraphLaunch(captured_, stream_);
  cudaDeviceSynchronize();
  for (Lockstep::Layer* layer : tensors_) {
    for (const float x : layer->out[1]->data) ASSERT_EQ(x, 1e6f);
  }
  for (int layer = 0; layer < kLayers; ++layer) lockstep.export_rows(a, layer, stream_);
  step(lockstep, {a}, {3}, How::kReplay);
  lockstep.compare();
}

// While one thread captures, others create caches and run steps on streams of their own. The library allocates and
// waits for events for them, and the capture stays valid.
TEST_F(Graphs, CapturesOfOtherThreadsGoOn) {
  Lockstep lockstep({.num_pages = 60, .max_batch_tokens = 64});
  create(lockstep);
  const int a = lockstep.add();
  step(lockstep, {a}, {5}, How::kCalls);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  std::thread([&] {
    cudaStream_t own = nullptr;
    cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    {
      Lockstep other({.num_pages = 200, .max_batch_tokens = 64, .rope = true});
      const int b = other.add();
      for (int i = 0; i < 6; ++i) other.fill(b, 20, 64, own);
      int child = -1;
      EXPECT_EQ(other.fork(b, 33, own, &child), KVC_OK);
      // The NULL stream waits for the captured stream, so CUDA accepts no work on it.
      const kvc_seq id = other.sequences[static_cast<size_t>(b)].ids[1];
      const int64_t position = 33;
      kvc_seq none = 0;
      EXPECT_EQ(kvc_seq_fork(other.caches[1], 1, &id, &position, &none, nullptr, other.error()), KVC_ERROR_ORDER);
      EXPECT_NE(std::string(other.message()).find("NULL stream"), std::string::npos) << other.message();
    }
    cudaStreamDestroy(own);
  }).join();
  EXPECT_EQ(cudaStreamEndCapture(stream_, &captured_), cudaSuccess);
  step(lockstep, {a}, {2}, How::kCapture);
  lockstep.compare();
}

// Calls that cannot be captured are refused, and change nothing.
TEST_F(Graphs, WhatCannotBeCapturedIsRefused) {
  Lockstep lockstep({.num_pages = 60, .max_batch_tokens = 64});
  create(lockstep);
  const int a = lockstep.add();
  kvc_cache* const cache = lockstep.caches[1];
  kvc_seq id = lockstep.sequences[static_cast<size_t>(a)].ids[1];
  step(lockstep, {a}, {5}, How::kCalls);
  const int32_t length = 1;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.num_sequences = 1;
  batch.sequences = &id;
  batch.append_lengths = &length;
  batch.graph = graphs_[1];
  uint64_t before = 0, after = 0;
  kvc_cache_digest(cache, &before, lockstep.error());
  kvc_forward step = 0;
  cudaGraph_t graph = nullptr;
  const auto captured = [&](auto call) {
    cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal);
    const kvc_status status = call();
    cudaStreamEndCapture(stream_, &graph);
    cudaGraphDestroy(graph);
    return status;
  };
  EXPECT_EQ(captured([&] { return kvc_forward_begin(cache, &batch, stream_, &step, lockstep.error()); }),
            KVC_ERROR_ORDER);
  EXPECT_NE(std::string(lockstep.message()).find("captured"), std::string::npos) << lockstep.message();
  kvc_cache_digest(cache, &after, lockstep.error());
  EXPECT_EQ(after, before);

  batch.graph = 0;  // a forward without a graph
  ASSERT_EQ(kvc_forward_begin(cache, &batch, stream_, &step, lockstep.error()), KVC_OK) << lockstep.message();
  kvc_attend_args args = tensors_[0]->args(1);
  EXPECT_EQ(captured([&] { return kvc_forward_attend(cache, step, 0, &args, lockstep.error()); }), KVC_ERROR_ORDER);
  EXPECT_EQ(kvc_forward_end(cache, step, lockstep.error()), KVC_ERROR_CANCELLED);
  EXPECT_EQ(kvc_forward_abort(cache, step, lockstep.error()), KVC_OK) << lockstep.message();

  batch.graph = graphs_[1];
  ASSERT_EQ(kvc_forward_begin(cache, &batch, stream_, &step, lockstep.error()), KVC_OK) << lockstep.message();
  EXPECT_EQ(captured([&] { return kvc_forward_end(cache, step, lockstep.error()); }), KVC_ERROR_ORDER);
  ASSERT_EQ(kvc_forward_abort(cache, step, lockstep.error()), KVC_OK) << lockstep.message();
  kvc_cache_digest(cache, &after, lockstep.error());
  EXPECT_EQ(after, before);
  lockstep.compare();
}

}  // namespace
}  // namespace kvt
