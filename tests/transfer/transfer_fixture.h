// Caches with a group of every kind that can be transferred, and sequences that decode in them.
#pragma once

#include <kvcache_transport.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "fixture.h"

namespace kvt {

using Bytes = std::vector<uint8_t>;

// The groups of an engine. The first has several layers: float32, int8, float8, bfloat16 keys only, and one that reads
// the K and V of the first.
// kRows, a row for each 2 tokens, needs even page sizes and is not in kAll.
enum EngineGroup { kFull = 1, kWindow = 2, kChunk = 4, kLatent = 8, kState = 16, kAll = 31, kRows = 32 };

struct EngineConfig {
  int groups = kAll;
  int page_size = 4;
  int64_t capacity_tokens = 512;
  int64_t max_sequences = 6;
  int window = 7;
  uint32_t flags = 0;
  DType latent = DType::kF32;
  std::vector<uint8_t> fingerprint = {};
  int kv_heads = 2;  // of all ranks; twice as many q heads
  int tp_size = 1, tp_rank = 0;
};

// An engine whose inputs are functions of the positions.
struct Engine {
  EngineConfig config;
  ContextPtr context = make_context(1);
  CachePtr owner;
  kvc_cache *cache = nullptr;
  std::vector<kvc_layer_config> layers;
  std::vector<kvc_group_config> groups;
  std::vector<int> kinds;  // of layers
  kvc_state_config states[2];
  kvc_error error = KVC_ERROR_INIT;

  enum { kDim = 16, kLatentDim = 12 };
  int q_heads() const { return 2 * config.kv_heads / config.tp_size; }
  int kv_heads() const { return std::max(1, config.kv_heads / config.tp_size); }
  int first_q_head() const { return config.tp_rank * q_heads(); }
  int first_kv_head() const { return first_q_head() / 2; }

  explicit Engine(const EngineConfig &c = {}) : config(c) {
    for (kvc_state_config &state : states) {
      kvc_state_config_init(&state);
      state.rank = 1;
      state.shape[0] = 5;
    }
    for (const int kind : {kFull, kWindow, kChunk, kLatent, kState, kRows}) {
      if ((c.groups & kind) != 0) add_group(kind);
    }
    kvc_cache_config cc;
    kvc_cache_config_init(&cc);
    cc.layers = layers.data();
    cc.groups = groups.data();
    cc.num_layers = static_cast<int32_t>(layers.size());
    cc.num_groups = static_cast<int32_t>(groups.size());
    cc.page_size = c.page_size;
    cc.max_sequences = static_cast<int32_t>(c.max_sequences);
    cc.max_batch_tokens = 64;
    cc.capacity_tokens = c.capacity_tokens;
    cc.flags = c.flags;
    cc.tp_size = c.tp_size;
    cc.tp_rank = c.tp_rank;
    if (!c.fingerprint.empty()) cc.fingerprint = c.fingerprint.data();
    EXPECT_EQ(kvc_cache_create(context.get(), &cc, &cache, &error), KVC_OK) << error.message;
    owner.reset(cache);
  }

  kvc_layer_config &add_layer(int kind, DType dtype) {
    kvc_layer_config layer;
    kvc_layer_config_init(&layer);
    layer.group = static_cast<int32_t>(groups.size()) - 1;
    layer.num_q_heads = q_heads();
    layer.num_kv_heads = kind == kLatent ? 1 : kv_heads();
    layer.total_kv_heads = kind == kLatent ? 0 : config.kv_heads;
    layer.head_dim = kDim;
    layer.dtype = dl_type(dtype);
    layers.push_back(layer);
    kinds.push_back(kind);
    return layers.back();
  }
  void add_group(int kind) {
    kvc_group_config group;
    kvc_group_config_init(&group);
    group.visibility = kind == kWindow ? KVC_VISIBLE_WINDOW : kind == kChunk ? KVC_VISIBLE_CHUNK : KVC_VISIBLE_ALL;
    group.row = kind == kLatent ? KVC_ROW_LATENT : kind == kState ? KVC_ROW_STATE : KVC_ROW_KV;
    if (kind == kWindow) group.window_tokens = config.window;
    if (kind == kChunk) group.chunk_tokens = 6;
    if (kind == kRows) group.tokens_per_row = 2;
    groups.push_back(group);
    if (kind == kState) {
      kvc_layer_config layer;
      kvc_layer_config_init(&layer);
      layer.group = static_cast<int32_t>(groups.size()) - 1;
      layer.states = states;
      layer.num_states = 2;
      layers.push_back(layer);
      kinds.push_back(kind);
      return;
    }
    kvc_layer_config &first = add_layer(kind, kind == kLatent ? config.latent : DType::kF32);
    if (kind == kLatent) first.latent_dim = kLatentDim, first.softmax_scale = 0.25;
    if (kind != kFull) return;
    add_layer(kind, DType::kI8);
    add_layer(kind, DType::kE4M3);
    add_layer(kind, DType::kBF16).flags = KVC_LAYER_KEYS_ONLY;
    add_layer(kind, DType::kF32).kv_layer = 1;
  }

  kvc_seq add() {
    kvc_seq seq = 0;
    EXPECT_EQ(kvc_seq_add(cache, 1, &seq, nullptr), KVC_OK);
    return seq;
  }
  void remove(kvc_seq seq) { EXPECT_EQ(kvc_seq_remove(cache, 1, &seq, nullptr), KVC_OK); }
  int64_t length(kvc_seq seq) {
    int64_t n = -1;
    EXPECT_EQ(kvc_seq_lengths(cache, 1, &seq, &n, nullptr), KVC_OK);
    return n;
  }
  kvc_status truncate(kvc_seq seq, int64_t length) { return kvc_seq_truncate(cache, 1, &seq, &length, &error); }
  int64_t used_pages() {
    kvc_stats stats;
    kvc_stats_init(&stats);
    EXPECT_EQ(kvc_cache_stats(cache, -1, &stats, nullptr), KVC_OK);
    return stats.pages_used;
  }
  kvc_forward begin(kvc_seq seq, int32_t tokens) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq;
    batch.append_lengths = &tokens;
    batch.num_sequences = 1;
    kvc_forward f = 0;
    EXPECT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, &error), KVC_OK) << error.message;
    return f;
  }
  static void fill(Tensor *t, int64_t position, int seed, int first_head = 0) {
    for (int64_t i = 0; i < t->dim(0); i++) {
      for (int64_t h = 0; h < t->dim(1); h++) {
        for (int64_t d = 0; d < t->dim(2); d++) {
          t->set(i, h, d,
                 static_cast<float>(((position + i) * 7 + (first_head + h) * 5 + d * 3 + seed) % 23) / 16 - 0.6f);
        }
      }
    }
  }
  // One layer of a step: its outputs and states are added to `all`. The tokens are those at `seed` + their positions.
  void run_layer(kvc_forward f, size_t layer, int64_t position, int32_t tokens, int seed, Bytes *all) {
    const auto keep = [&](const Tensor &t) { all->insert(all->end(), t.bytes().begin(), t.bytes().end()); };
    const auto index = static_cast<int32_t>(layer);
    const int kind = kinds[layer];
    if (kind == kState) {
      for (int s = 0; s < 2; s++) {
        Tensor state(DType::kF32, {1, 5});
        EXPECT_EQ(kvc_forward_load_state(cache, f, index, s, -1, state.dl(), &error), KVC_OK) << error.message;
        for (int64_t t = 0; t < tokens; t++) {  // as if each token had its own step
          for (int i = 0; i < 5; i++)
            state.set(0, i, state.at(0, i) * 0.5f + static_cast<float>(position + t + i + s + seed));
        }
        EXPECT_EQ(kvc_forward_store_state(cache, f, index, s, -1, state.dl(), &error), KVC_OK) << error.message;
        keep(state);
      }
      return;
    }
    const bool latent = kind == kLatent;
    const int stored_heads = latent ? 1 : kv_heads(), v_dim = latent ? kLatentDim : kDim;
    const int first_stored = latent ? 0 : first_kv_head();
    const int64_t per_row = kind == kRows ? 2 : 1, rows = kvc_rows_closed(position, tokens, per_row);
    Tensor q(DType::kF32, {tokens, q_heads(), kDim}), k(DType::kF32, {rows, stored_heads, kDim});
    Tensor v(DType::kF32, {rows, stored_heads, kDim}), out(DType::kF32, {tokens, q_heads(), v_dim});
    fill(&q, position, index + seed, first_q_head());
    fill(&k, position / per_row, index + 10 + seed, first_stored);
    fill(&v, position / per_row, index + 20 + seed, first_stored);
    if ((layers[layer].flags & KVC_LAYER_KEYS_ONLY) != 0) {
      kvc_append_args args;
      kvc_append_args_init(&args);
      args.k = k.dl();
      EXPECT_EQ(kvc_forward_append(cache, f, index, &args, &error), KVC_OK) << error.message;
      return;
    }
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = q.dl();
    args.out = out.dl();
    if (layers[layer].kv_layer == 0 && rows > 0) args.k = k.dl();
    if (args.k != nullptr && kind != kLatent) args.v = v.dl();
    EXPECT_EQ(kvc_forward_attend(cache, f, index, &args, &error), KVC_OK) << layer << ": " << error.message;
    keep(out);
  }
  using AfterLayer = std::function<void(size_t layer)>;
  // A step. Returns all its outputs and states.
  Bytes step(kvc_seq seq, int32_t tokens, const AfterLayer &after = {}, int seed = 0) {
    Bytes all;
    const int64_t position = length(seq);
    const kvc_forward f = begin(seq, tokens);
    for (size_t layer = 0; layer < layers.size(); layer++) {
      run_layer(f, layer, position, tokens, seed, &all);
      if (after) after(layer);
    }
    EXPECT_EQ(kvc_forward_end(cache, f, &error), KVC_OK) << error.message;
    return all;
  }
  // Some steps of 1 to 3 tokens.
  Bytes steps(kvc_seq seq, int count) {
    Bytes all;
    for (int i = 0; i < count; i++) {
      const Bytes one = step(seq, 1 + i % 3);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  // What a sequence of `tokens` tokens computes next, in a cache of its own.
  static Bytes expected(const EngineConfig &config, int32_t tokens, int count) {
    Engine alone(config);
    const kvc_seq seq = alone.add();
    for (int32_t done = 0; done < tokens; done += 8) alone.step(seq, std::min(8, tokens - done));
    return alone.steps(seq, count);
  }

  kvc_status receive(int64_t tokens, kvc_transfer *transfer, int32_t timeout_ms = 0, kvc_seq prefix = 0) {
    kvc_receive_args args;
    kvc_receive_args_init(&args);
    args.num_tokens = tokens;
    args.timeout_ms = timeout_ms;
    args.prefix = prefix;
    return kvc_transfer_receive(cache, &args, transfer, &error);
  }
  Bytes describe(kvc_transfer transfer) {
    Bytes bytes(8192);
    int64_t count = 0;
    EXPECT_EQ(kvc_transfer_describe(cache, transfer, bytes.data(), 8192, &count, &error), KVC_OK) << error.message;
    bytes.resize(static_cast<size_t>(count));
    return bytes;
  }
  kvc_status send(kvc_seq seq, const Bytes &description, kvc_transfer *transfer) {
    return kvc_transfer_send(cache, seq, description.data(), static_cast<int64_t>(description.size()), transfer,
                             &error);
  }
  kvc_status poll(kvc_transfer transfer, kvc_transfer_info *info) {
    kvc_transfer_info_init(info);
    return kvc_transfer_poll(cache, transfer, info, &error);
  }
  void check() { EXPECT_EQ(kvc_cache_check_invariants(cache, &error), KVC_OK) << error.message; }
};

// Polls both sides until the receiver is done or fails; then the sender likewise.
struct Ends {
  kvc_status received = KVC_OK, sent = KVC_OK;
  kvc_transfer_info in, out;
};
inline Ends finish(Engine &receiver, kvc_transfer incoming, Engine &sender, kvc_transfer outgoing) {
  Ends ends;
  kvc_transfer_info_init(&ends.in);
  kvc_transfer_info_init(&ends.out);
  bool open_in = true, open_out = true;
  for (int tries = 0; (open_in || open_out) && tries < 200000; tries++) {
    if (open_out) {
      ends.sent = sender.poll(outgoing, &ends.out);
      open_out = ends.sent == KVC_OK && ends.out.done == 0;
    }
    if (open_in) {
      ends.received = receiver.poll(incoming, &ends.in);
      open_in = ends.received == KVC_OK && ends.in.done == 0;
    }
  }
  EXPECT_FALSE(open_in || open_out);
  return ends;
}

}  // namespace kvt
