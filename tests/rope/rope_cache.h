// A cache of one layer with RoPE through the C API, and its expected results: rotation and attention in float64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "wrappers.h"

namespace kvt {

using Vector = std::vector<double>;

// Rotated pairs of a vector: dims [offset, offset + 2 * frequencies), by angles position * frequencies[i].
struct Rotation {
  int offset = 0;
  bool interleaved = false;
  Vector frequencies;
  double factor = 1.0;

  // Returns x, rotated by the angles angle(i).
  Vector turn(const Vector &x, const std::function<double(size_t)> &angle) const {
    Vector out = x;
    const size_t half = frequencies.size();
    for (size_t i = 0; i < half; i++) {
      const size_t a = offset + (interleaved ? 2 * i : i), b = a + (interleaved ? 1 : half);
      const double c = factor * std::cos(angle(i)), s = factor * std::sin(angle(i));
      out[a] = x[a] * c - x[b] * s;
      out[b] = x[b] * c + x[a] * s;
    }
    return out;
  }
  Vector at(const Vector &x, double position) const {
    return turn(x, [&](size_t i) { return position * frequencies[i]; });
  }
};

inline Vector plain_frequencies(int dim, double theta = 10000.0) {
  Vector f;
  for (int i = 0; i < dim / 2; i++) f.push_back(std::pow(theta, -2.0 * i / dim));
  return f;
}

// Attention of the query over keys [first, last]: the softmax and its output.
inline Vector attend(const Vector &q, const std::vector<Vector> &keys, const std::vector<Vector> &values, size_t first,
                     size_t last, double scale) {
  Vector scores, out(values[0].size(), 0.0);
  double largest = -INFINITY, sum = 0.0;
  for (size_t j = first; j <= last; j++) {
    double dot = 0.0;
    for (size_t d = 0; d < q.size(); d++) dot += q[d] * keys[j][d];
    scores.push_back(dot * scale);
    largest = std::max(largest, scores.back());
  }
  for (double &s : scores) sum += s = std::exp(s - largest);
  for (size_t j = first; j <= last; j++) {
    for (size_t d = 0; d < out.size(); d++) out[d] += scores[j - first] / sum * values[j][d];
  }
  return out;
}

// A cache of one layer with one head. It is float32, unless the test changes that.
struct RopeCache {
  static constexpr int kTokens = 512;  // of a batch

  kvc_layer_config layer;
  int window;
  uint32_t flags = 0;  // of the cache
  ContextPtr context;
  CachePtr cache;

  explicit RopeCache(int dims, int window_tokens = 0, const char *simd = nullptr) : window(window_tokens) {
    kvc_layer_config_init(&layer);
    layer.num_q_heads = layer.num_kv_heads = 1;
    layer.head_dim = dims;
    layer.rope_mode = KVC_ROPE_ON_APPEND;
    context = make_context(1, simd);
  }
  kvc_status create(kvc_error *error = nullptr) {
    kvc_group_config group;
    kvc_group_config_init(&group);
    group.visibility = window ? KVC_VISIBLE_WINDOW : KVC_VISIBLE_ALL;
    group.window_tokens = window;
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = &layer;
    config.num_layers = 1;
    config.groups = &group;
    config.num_groups = 1;
    config.flags = flags;
    config.page_size = 4;
    config.max_batch_tokens = kTokens;
    config.capacity_tokens = 8192;
    kvc_cache *made = nullptr;
    const kvc_status status = kvc_cache_create(context.get(), &config, &made, error);
    cache.reset(made);
    return status;
  }
  kvc_seq add() {
    kvc_seq id = 0;
    EXPECT_EQ(kvc_seq_add(cache.get(), 1, &id, nullptr), KVC_OK);
    return id;
  }
  kvc_forward begin(const std::vector<kvc_seq> &ids, const std::vector<int32_t> &lengths) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = ids.data();
    batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(ids.size());
    kvc_forward forward = 0;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &forward, &error), KVC_OK) << error.message;
    return forward;
  }
};

// Random q, k and v of `tokens` tokens.
struct Rows {
  std::vector<Vector> q, k, v;
  Rows(int tokens, int dims, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (auto *part : {&q, &k, &v}) {
      for (int t = 0; t < tokens; t++) {
        part->emplace_back();
        for (int d = 0; d < dims; d++) part->back().push_back(normal(random));
      }
    }
  }
};

inline Tensor tensor_of(const std::vector<Vector> &rows, size_t begin, size_t end) {
  Tensor tensor(DType::kF32, {static_cast<int64_t>(end - begin), 1, static_cast<int64_t>(rows[0].size())});
  for (size_t t = begin; t < end; t++) {
    for (size_t d = 0; d < rows[t].size(); d++) tensor.set(t - begin, 0, d, static_cast<float>(rows[t][d]));
  }
  return tensor;
}

// Appends and attends rows [begin, end), with a table of cos and sin if there is one. Returns the outputs.
inline std::vector<Vector> attend_rows(RopeCache &c, const std::vector<kvc_seq> &ids,
                                       const std::vector<int32_t> &lengths, const Rows &rows, size_t begin, size_t end,
                                       Tensor *cos_sin = nullptr, bool fused = true) {
  Tensor q = tensor_of(rows.q, begin, end), k = tensor_of(rows.k, begin, end), v = tensor_of(rows.v, begin, end);
  Tensor out(DType::kF32, q.shape());
  const kvc_forward forward = c.begin(ids, lengths);
  kvc_error error = KVC_ERROR_INIT;
  kvc_append_args append;
  kvc_append_args_init(&append);
  append.k = k.dl();
  append.v = v.dl();
  append.rope_cos_sin = cos_sin ? cos_sin->dl() : nullptr;
  if (!fused) {
    EXPECT_EQ(kvc_forward_append(c.cache.get(), forward, 0, &append, &error), KVC_OK) << error.message;
  }
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = q.dl();
  if (fused) args.k = k.dl(), args.v = v.dl();
  args.out = out.dl();
  args.rope_cos_sin = append.rope_cos_sin;
  EXPECT_EQ(kvc_forward_attend(c.cache.get(), forward, 0, &args, &error), KVC_OK) << error.message;
  EXPECT_EQ(kvc_forward_end(c.cache.get(), forward, &error), KVC_OK) << error.message;
  std::vector<Vector> result;
  for (size_t t = begin; t < end; t++) {
    result.emplace_back();
    for (size_t d = 0; d < rows.v[t].size(); d++) result.back().push_back(out.at(t - begin, 0, d));
  }
  return result;
}

inline void expect_near(const Vector &got, const Vector &wanted, const std::string &what, double tolerance = 2e-5) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t d = 0; d < got.size(); d++) ASSERT_NEAR(got[d], wanted[d], tolerance) << what << " dim " << d;
}

}  // namespace kvt
