// A small cache with sequences, and a check that a refused call changes nothing.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "wrappers.h"

namespace kvt {

using Statuses = std::vector<kvc_status>;

// Tensors of one layer for `tokens` rows, filled with small numbers.
struct LayerTensors {
  Tensor q, k, v, out, lse;
  LayerTensors(const LayerSpec &l, int64_t tokens, DType type = DType::kF32)
      : q(type, {tokens, l.hq, l.d}),
        k(type, {tokens, l.hkv, l.d}),
        v(type, {tokens, l.hkv, l.v_dim()}),
        out(type, {tokens, l.hq, l.v_dim()}),
        lse(DType::kF32, {tokens, l.hq}) {
    for (int64_t t = 0; t < tokens; t++) {
      for (int h = 0; h < l.hq; h++) {
        for (int i = 0; i < l.d; i++) q.set(t, h, i, static_cast<float>((t + h * 3 + i) % 7) / 8);
      }
      for (int h = 0; h < l.hkv; h++) {
        for (int i = 0; i < l.d; i++) k.set(t, h, i, static_cast<float>((t * 5 + h + i) % 9) / 8 - 0.5f);
        for (int i = 0; i < l.v_dim(); i++) v.set(t, h, i, static_cast<float>((t * 3 + h * 2 + i) % 11) / 8 - 0.5f);
      }
    }
  }
  kvc_append_args append_args() {
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = k.dl();
    args.v = v.dl();
    return args;
  }
  kvc_attend_args attend_args(bool fused = true) {
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = q.dl();
    if (fused) {
      args.k = k.dl();
      args.v = v.dl();
    }
    args.out = out.dl();
    args.lse = lse.dl();
    return args;
  }
};

// Whether two tensors have the same shape and bytes.
inline bool equal_bytes(const DLTensor &a, const DLTensor &b) {
  int64_t bytes = a.dtype.bits / 8;
  if (a.ndim != b.ndim) return false;
  for (int i = 0; i < a.ndim; i++) {
    if (a.shape[i] != b.shape[i]) return false;
    bytes *= a.shape[i];
  }
  return std::memcmp(a.data, b.data, static_cast<size_t>(bytes)) == 0;
}

// Two groups (full; window of 8, no margin), three layers, one sequence of 20 tokens and a fork of it.
struct World {
  CacheSpec spec;
  ContextPtr context;
  CachePtr cache_owner;
  kvc_cache *cache = nullptr;
  kvc_seq seq = 0, forked = 0;

  static CacheSpec default_spec() {
    CacheSpec spec;
    spec.page_size = 4;
    spec.max_sequences = 6;
    spec.max_batch_tokens = 32;
    spec.groups = {{0, 40}, {8, 40}};
    spec.layers = {LayerSpec{0, 4, 2, 8}, LayerSpec{1, 2, 1, 8, 6},
                   LayerSpec{1, 2, 2, 4, 0, DType::kBF16, KVC_ROPE_ON_APPEND}};
    return spec;
  }

  explicit World(const CacheSpec &s = default_spec(), int threads = 1, int tokens = 20)
      : spec(s), context(make_context(threads)), cache_owner(make_cache(context.get(), s)), cache(cache_owner.get()) {
    EXPECT_EQ(kvc_seq_add(cache, 1, &seq, nullptr), KVC_OK);
    if (tokens) step(seq, tokens);
    EXPECT_EQ(kvc_seq_fork(cache, 1, &seq, nullptr, &forked, nullptr, nullptr), KVC_OK);
  }

  kvc_forward begin(const std::vector<kvc_seq> &seqs, const std::vector<int32_t> &lengths) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = seqs.data();
    batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(seqs.size());
    kvc_forward f = 0;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, &error), KVC_OK) << error.message;
    return f;
  }
  void attend_all(kvc_forward f, int64_t tokens) {
    for (size_t l = 0; l < spec.layers.size(); l++) {
      LayerTensors t(spec.layers[l], tokens);
      const kvc_attend_args args = t.attend_args();
      kvc_error error = KVC_ERROR_INIT;
      EXPECT_EQ(kvc_forward_attend(cache, f, static_cast<int32_t>(l), &args, &error), KVC_OK) << error.message;
    }
  }
  void step(kvc_seq s, int32_t tokens) {
    const kvc_forward f = begin({s}, {tokens});
    attend_all(f, tokens);
    EXPECT_EQ(kvc_forward_end(cache, f, nullptr), KVC_OK);
  }
  uint64_t digest() const {
    uint64_t d = 0;
    EXPECT_EQ(kvc_cache_digest(cache, &d, nullptr), KVC_OK);
    return d;
  }
  int64_t length(kvc_seq s) const {
    int64_t n = -1;
    EXPECT_EQ(kvc_seq_lengths(cache, 1, &s, &n, nullptr), KVC_OK);
    return n;
  }
};

inline kvc_forward make_graph(kvc_cache *cache, int32_t rows, int32_t tokens) {
  kvc_graph_config config;
  kvc_graph_config_init(&config);
  config.max_sequences = rows;
  config.max_tokens = tokens;
  kvc_forward graph = 0;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_graph_create(cache, &config, &graph, &error), KVC_OK) << error.message;
  return graph;
}

// A step, in the given graph or without one (0). It borrows the graph and the cache.
inline kvc_batch batch_of(const std::vector<kvc_seq> &seqs, const std::vector<int32_t> &lengths, kvc_forward graph) {
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = seqs.data();
  batch.append_lengths = lengths.data();
  batch.num_sequences = static_cast<int32_t>(seqs.size());
  batch.graph = graph;
  return batch;
}

// Calls twice, with an error struct and with NULL. Each time it expects one of `statuses`. The message must begin with
// the function's name and contain the words of `mentions`. With a cache, the digest must stay the same. Returns the
// error.
inline kvc_error refused(kvc_cache *cache, const Statuses &statuses, const char *function,
                         const std::function<kvc_status(kvc_error *)> &call,
                         const std::vector<std::string> &mentions = {}) {
  uint64_t before = 0, after = 0;
  if (cache) {
    EXPECT_EQ(kvc_cache_digest(cache, &before, nullptr), KVC_OK);
  }
  kvc_error error = KVC_ERROR_INIT;
  const kvc_status status = call(&error), again = call(nullptr);
  EXPECT_TRUE(std::find(statuses.begin(), statuses.end(), status) != statuses.end())
      << function << ": got " << kvc_status_name(status) << " \"" << error.message << "\", expected "
      << kvc_status_name(statuses[0]);
  EXPECT_EQ(status, again) << function << " with a NULL error";
  if (status) {
    EXPECT_EQ(error.code, status) << function;
    EXPECT_TRUE(std::memchr(error.message, 0, sizeof(error.message))) << function;
    EXPECT_EQ(std::string(error.message).rfind(std::string(function) + ":", 0), 0u)
        << function << ": \"" << error.message << "\"";
    for (const std::string &word : mentions) {
      EXPECT_NE(std::string(error.message).find(word), std::string::npos)
          << function << ": \"" << error.message << "\" does not mention \"" << word << "\"";
    }
  }
  if (cache) {
    EXPECT_EQ(kvc_cache_digest(cache, &after, nullptr), KVC_OK);
    EXPECT_EQ(before, after) << function << ": a refused call changed the state";
    EXPECT_EQ(kvc_cache_check_invariants(cache, nullptr), KVC_OK) << function;
  }
  return error;
}

// The tensors of kvc_seq_export; null if not requested, or if there is none.
struct Export {
  Managed k, v, k_scale, v_scale;
  explicit Export(kvc_cache *cache, kvc_seq seq, uint32_t parts = 0) {
    kvc_export_args args;
    kvc_export_args_init(&args);
    args.parts = parts;
    kvc_exported exported;
    kvc_exported_init(&exported);
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_seq_export(cache, seq, &args, &exported, nullptr, &error), KVC_OK) << error.message;
    k.reset(exported.k);
    v.reset(exported.v);
    k_scale.reset(exported.k_scale);
    v_scale.reset(exported.v_scale);
  }
};

}  // namespace kvt
