// The library on the CPU and on the emulated CUDA plug-in, in lockstep. Every call is made on both. Statuses and the
// bookkeeping of pages are compared at once, and outputs when the device has finished. The calls are on streams. The
// emulation runs their work late, and in any order that their events allow.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "cuda_runtime.h"
#include "kvcache.h"

namespace kvt {

inline constexpr int kHeads = 2, kDims = 8, kLayers = 2;

// A compact float32 tensor on both devices: the emulation's memory is the host's.
struct Rows {
  std::vector<float> data;
  std::vector<int64_t> shape;
  DLTensor view;

  Rows(std::vector<int64_t> dims, DLDeviceType device) : shape(std::move(dims)) {
    size_t count = 1;
    for (const int64_t dim : shape) count *= static_cast<size_t>(dim);
    data.assign(count + 1, -7.0f);
    view = {data.data(), {device, 0}, static_cast<int32_t>(shape.size()), {kDLFloat, 32, 1}, shape.data(), nullptr, 0};
  }
};

struct LockstepOptions {
  int64_t num_pages = 40;
  int32_t page_size = 4;
  int32_t max_sequences = 8, max_batch_tokens = 32, max_open_forwards = 2;
  int64_t window_tokens = 0;  // of a second group, which has one layer; 0 = no such group
  bool rope = false;
  int32_t max_tree_nodes = 8;
  bool states = false;  // a further layer, number kLayers, is recurrent, in a group of its own
};

class Lockstep {
 public:
  static constexpr DLDeviceType kDevices[2] = {kDLCPU, kDLCUDA};

  explicit Lockstep(const LockstepOptions& options = {}) {
    for (int i = 0; i < 2; ++i) {
      kvc_context_config config;
      kvc_context_config_init(&config);
      config.device_type = kDevices[i];
      config.num_threads = 1;
      EXPECT_EQ(kvc_context_create(&config, &contexts_[i], error()), KVC_OK) << error_.message;
      create(options, i);
    }
  }
  ~Lockstep() {
    for (int i = 0; i < 2; ++i) {
      kvc_cache_destroy(caches[i]);
      kvc_context_destroy(contexts_[i]);
    }
  }

  struct Step {
    kvc_forward ids[2] = {};
    int64_t tokens = 0;
    std::vector<kvc_seq> rows;  // indexes into sequences
  };
  kvc_error* error() {
    error_ = KVC_ERROR_INIT;
    return &error_;
  }
  const char* message() const { return error_.message; }
  bool has_states() const { return states_; }

  // Calls body(cache, side) on both sides. The statuses must be equal.
  template <class Body>
  kvc_status both(Body body) {
    const kvc_status cpu = body(caches[0], 0), cuda = body(caches[1], 1);
    EXPECT_EQ(cpu, cuda) << error_.message;
    return cuda;
  }

  int add() {
    sequences.push_back({});
    both([&](kvc_cache* cache, int side) { return kvc_seq_add(cache, 1, &sequences.back().ids[side], error()); });
    return static_cast<int>(sequences.size()) - 1;
  }
  kvc_status remove(int s) {
    return both([&](kvc_cache* c, int side) { return kvc_seq_remove(c, 1, &sequences[s].ids[side], error()); });
  }
  kvc_status fork(int s, int64_t position, cudaStream_t stream, int* child) {
    Sequence made;
    const kvc_status status = both([&](kvc_cache* c, int side) {
      return kvc_seq_fork(c, 1, &sequences[s].ids[side], &position, &made.ids[side], on(side, stream), error());
    });
    sequences.push_back(made);
    *child = static_cast<int>(sequences.size()) - 1;
    return status;
  }
  kvc_status truncate(int s, int64_t length) {
    return both(
        [&](kvc_cache* c, int side) { return kvc_seq_truncate(c, 1, &sequences[s].ids[side], &length, error()); });
  }
  kvc_status commit(int s, int32_t leaf, cudaStream_t stream) {
    return both([&](kvc_cache* c, int side) {
      return kvc_seq_commit(c, 1, &sequences[s].ids[side], &leaf, on(side, stream), error());
    });
  }

  // parents: of all tokens, if they are nodes of trees; empty: plain rows. graphs: nullable.
  kvc_status begin(const std::vector<int>& rows, const std::vector<int32_t>& lengths,
                   const std::vector<int32_t>& parents, cudaStream_t stream, Step* step,
                   const kvc_forward* graphs = nullptr) {
    step->tokens = 0;
    for (const int32_t length : lengths) step->tokens += length;
    return both([&](kvc_cache* c, int side) {
      std::vector<kvc_seq> ids;
      for (const int s : rows) ids.push_back(s < 0 ? 0 : sequences[s].ids[side]);
      kvc_batch batch;
      kvc_batch_init(&batch);
      batch.num_sequences = static_cast<int32_t>(rows.size());
      batch.sequences = ids.data();
      batch.append_lengths = lengths.data();
      batch.tree_parents = parents.empty() ? nullptr : parents.data();
      batch.graph = graphs == nullptr ? 0 : graphs[side];
      return kvc_forward_begin(c, &batch, on(side, stream), &step->ids[side], error());
    });
  }

  // A state of the recurrent layer for each of `rows` rows, to load and to store, on both sides. It lives as long as
  // this object.
  struct States {
    std::unique_ptr<Rows> loaded[2], stored[2];
  };
  States& make_states(int64_t rows) {
    States& made = states.emplace_back();
    for (int i = 0; i < 2; ++i) {
      made.loaded[i] = std::make_unique<Rows>(std::vector<int64_t>{rows, kDims - 1}, kDevices[i]);
      made.stored[i] = std::make_unique<Rows>(std::vector<int64_t>{rows, kDims - 1}, kDevices[i]);
    }
    refill(made.stored);
    return made;
  }
  // Loads the states of a step's rows, and stores other ones.
  kvc_status move_states(kvc_forward step, int side, const States& made) {
    const kvc_status loaded =
        kvc_forward_load_state(caches[side], step, kLayers, 0, -1, &made.loaded[side]->view, error());
    if (loaded != KVC_OK) return loaded;
    return kvc_forward_store_state(caches[side], step, kLayers, 0, -1, &made.stored[side]->view, error());
  }

  // Random q, k and v of a layer for `tokens` tokens, and room for out, on both sides. They live as long as this
  // object.
  struct Layer {
    std::unique_ptr<Rows> q[2], k[2], v[2], out[2];
    kvc_attend_args args(int side) const {
      kvc_attend_args args;
      kvc_attend_args_init(&args);
      args.q = &q[side]->view;
      args.k = &k[side]->view;
      args.v = &v[side]->view;
      args.out = &out[side]->view;
      return args;
    }
  };
  Layer& make_layer(int64_t tokens) {
    Layer& layer = layers.emplace_back();
    const auto make = [&](std::unique_ptr<Rows>* rows, bool fill) {
      for (int i = 0; i < 2; ++i) {
        rows[i] = std::make_unique<Rows>(std::vector<int64_t>{tokens, kHeads, kDims}, kDevices[i]);
      }
      if (fill) refill(rows);
    };
    make(layer.q, true);
    make(layer.k, true);
    make(layer.v, true);
    make(layer.out, false);
    return layer;
  }
  void refill(std::unique_ptr<Rows>* rows) {
    for (float& x : rows[0]->data) x = normal_(random);
    rows[1]->data = rows[0]->data;
  }
  kvc_status attend(const Step& step, int layer) {
    Layer& rows = make_layer(step.tokens);
    return both([&](kvc_cache* c, int side) {
      const kvc_attend_args args = rows.args(side);
      return kvc_forward_attend(c, step.ids[side], layer, &args, error());
    });
  }
  // The same without attention, which is quick on the emulation.
  kvc_status append(const Step& step, int layer) {
    Layer& rows = make_layer(step.tokens);
    return both([&](kvc_cache* c, int side) {
      kvc_append_args args;
      kvc_append_args_init(&args);
      args.k = &rows.k[side]->view;
      args.v = &rows.v[side]->view;
      return kvc_forward_append(c, step.ids[side], layer, &args, error());
    });
  }
  // Appends a prompt to a sequence.
  void fill(int s, int32_t tokens, int32_t at_once, cudaStream_t stream) {
    for (; tokens > 0; tokens -= at_once) {
      Step step;
      ASSERT_EQ(begin({s}, {std::min(tokens, at_once)}, {}, stream, &step), KVC_OK) << message();
      for (int layer = 0; layer < kLayers; ++layer) ASSERT_EQ(append(step, layer), KVC_OK) << message();
      if (states_) {
        const States& made = make_states(1);
        ASSERT_EQ(both([&](kvc_cache*, int side) { return move_states(step.ids[side], side, made); }), KVC_OK);
      }
      ASSERT_EQ(end(step), KVC_OK) << message();
    }
  }
  kvc_status end(const Step& step) {
    return both([&](kvc_cache* c, int side) { return kvc_forward_end(c, step.ids[side], error()); });
  }
  kvc_status abort(const Step& step) {
    return both([&](kvc_cache* c, int side) { return kvc_forward_abort(c, step.ids[side], error()); });
  }
  void export_rows(int s, int layer, cudaStream_t stream) {
    kvc_exported made[2];
    const kvc_status status = both([&](kvc_cache* c, int side) {
      kvc_export_args args;
      kvc_export_args_init(&args);
      args.layer = layer;
      kvc_exported_init(&made[side]);
      return kvc_seq_export(c, sequences[s].ids[side], &args, &made[side], on(side, stream), error());
    });
    if (status == KVC_OK) exports.push_back({made[0], made[1]});
  }
  void compare_digests() {
    uint64_t digests[2] = {};
    both([&](kvc_cache* c, int side) { return kvc_cache_digest(c, &digests[side], error()); });
    EXPECT_EQ(digests[0], digests[1]);
  }

  // Waits for the device, and compares all outputs.
  void compare() {
    cudaDeviceSynchronize();
    const auto same = [](const float* a, const float* b, size_t n, const char* what, size_t index) {
      for (size_t i = 0; i < n; ++i) {
        ASSERT_NEAR(a[i], b[i], 2e-5f * (1.0f + std::abs(a[i]))) << what << " " << index << " element " << i;
      }
    };
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto& out = layers[i].out;
      same(out[0]->data.data(), out[1]->data.data(), out[0]->data.size(), "output", i);
      if (testing::Test::HasFatalFailure()) return;
    }
    for (size_t i = 0; i < states.size(); ++i) {
      const auto& loaded = states[i].loaded;
      same(loaded[0]->data.data(), loaded[1]->data.data(), loaded[0]->data.size(), "states", i);
      if (testing::Test::HasFatalFailure()) return;
    }
    for (size_t i = 0; i < exports.size(); ++i) {
      for (DLManagedTensorVersioned* kvc_exported::* part : {&kvc_exported::k, &kvc_exported::v}) {
        const DLTensor &a = (exports[i].sides[0].*part)->dl_tensor, &b = (exports[i].sides[1].*part)->dl_tensor;
        ASSERT_EQ(a.shape[0], b.shape[0]);
        same(static_cast<const float*>(a.data), static_cast<const float*>(b.data),
             static_cast<size_t>(a.shape[0] * a.shape[1] * a.shape[2]), "export", i);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
    for (Exported& exported : exports) {
      for (kvc_exported& side : exported.sides) {
        side.k->deleter(side.k);
        side.v->deleter(side.v);
      }
    }
    exports.clear();
    layers.clear();
    states.clear();
  }

  struct Sequence {
    kvc_seq ids[2] = {};
  };
  struct Exported {
    kvc_exported sides[2];
  };
  kvc_cache* caches[2] = {};
  std::deque<Sequence> sequences;
  std::deque<Layer> layers;
  std::deque<States> states;
  std::vector<Exported> exports;
  std::mt19937 random{7};

  static void* on(int side, cudaStream_t stream) { return side == 0 ? nullptr : stream; }

 private:
  void create(const LockstepOptions& options, int side) {
    kvc_layer_config layers_config[kLayers + 1];
    kvc_group_config groups[3];
    kvc_state_config state;
    kvc_state_config_init(&state);
    state.rank = 1;
    state.shape[0] = kDims - 1;
    states_ = options.states;
    for (kvc_group_config& group : groups) kvc_group_config_init(&group);
    for (kvc_group_config& group : groups) group.num_pages = options.num_pages;
    groups[1].visibility = KVC_VISIBLE_WINDOW;
    groups[1].window_tokens = options.window_tokens;
    for (kvc_layer_config& layer : layers_config) {
      kvc_layer_config_init(&layer);
      layer.num_q_heads = layer.num_kv_heads = kHeads;
      layer.head_dim = kDims;
      layer.dtype = {kDLFloat, 32, 1};
      if (options.rope) layer.rope_mode = KVC_ROPE_ON_APPEND;
    }
    if (options.window_tokens > 0) layers_config[1].group = 1;
    const int32_t attended = options.window_tokens > 0 ? 2 : 1;
    groups[attended].row = KVC_ROW_STATE;
    groups[attended].visibility = KVC_VISIBLE_ALL;
    groups[attended].window_tokens = 0;
    kvc_layer_config_init(&layers_config[kLayers]);
    layers_config[kLayers].group = attended;
    layers_config[kLayers].num_states = 1;
    layers_config[kLayers].states = &state;
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = layers_config;
    config.num_layers = kLayers + (options.states ? 1 : 0);
    config.groups = groups;
    config.num_groups = attended + (options.states ? 1 : 0);
    config.page_size = options.page_size;
    config.max_sequences = options.max_sequences;
    config.max_batch_tokens = options.max_batch_tokens;
    config.max_open_forwards = options.max_open_forwards;
    config.max_tree_nodes = options.max_tree_nodes;
    EXPECT_EQ(kvc_cache_create(contexts_[side], &config, &caches[side], error()), KVC_OK) << error_.message;
  }

  kvc_context* contexts_[2] = {};
  bool states_ = false;
  kvc_error error_ = KVC_ERROR_INIT;
  std::normal_distribution<float> normal_;
};

}  // namespace kvt
