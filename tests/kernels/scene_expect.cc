// The expected outputs of a scene: visibility by the definitions, one key at a time, and attention in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/common/scales.h"
#include "scene.h"

namespace kvc::kernels::test {

int Scene::key_position(int row, int key) const {
  const SceneRow& r = config_.rows[row];
  const int committed = r.kv_length - static_cast<int>(r.parents.size());
  if (key < committed) return key;
  int depth = 0;
  for (int node = r.parents[key - committed]; node >= 0; node = r.parents[node]) ++depth;
  return committed + depth;
}

bool Scene::sees(int token, int key) const {
  const int r = row_of_[token], p = positions_[token];
  const SceneRow& row = config_.rows[r];
  const int committed = row.kv_length - static_cast<int>(row.parents.size()), first_new = row.kv_length - row.queries;
  const int own = first_new + token - token_begin_[r], position = key_position(r, key);
  if ((config_.flags & KVC_ATTEND_PAST) != 0 && key >= first_new) return false;
  if ((config_.flags & KVC_ATTEND_SELF) != 0 && key < first_new) return false;
  const int begins_at = (config_.flags & KVC_ATTEND_STEP_WINDOW) != 0 ? positions_[token_begin_[r]] : p;
  if (config_.window > 0 && position <= begins_at - config_.window) return false;
  if (config_.chunk > 0 && position / config_.chunk < begins_at / config_.chunk) return false;
  if (config_.chunk > 0 && position / config_.chunk > p / config_.chunk) return false;
  if (row.stream_window > 0 && position >= row.stream_sinks &&
      position <= begins_at - (row.stream_window - row.stream_sinks)) {
    return false;
  }
  if (key >= committed) {
    int node = own - committed;
    while (node > key - committed) node = row.parents[node];  // parents have lower indices
    return node == key - committed;
  }
  if ((config_.flags & KVC_ATTEND_NON_CAUSAL) != 0) return true;
  const bool spans = config_.spans && (config_.flags & KVC_ATTEND_NO_SPANS) == 0;
  return key < (spans ? key_ends_[token] : p + 1);
}

bool Scene::unmasked(int token, int kv_head, int key) const {
  if (bias_.mask == nullptr) return true;
  return bias_.mask[token * bias_.mask_token_stride + kv_head * bias_.mask_head_stride + key] != 0;
}

float Scene::bias(int token, int head, int key) const {
  const int row = row_of_[token], kv_head = head / (config_.q_heads / config_.kv_heads);
  float sum = 0.0f;
  if (config_.rel_bias != 0) {
    const float* table = bias_.relative + token * bias_.relative_token_stride + head * bias_.relative_head_stride;
    const int d = distance(token, key), nearest = std::clamp(d, 0, config_.distances - 1);
    sum += d != nearest && (config_.flags & KVC_ATTEND_REL_BIAS_ZERO) != 0 ? 0.0f : table[nearest];
  }
  if (config_.key_bias == 0) return sum;
  return sum + bias_.keys[row * bias_.key_row_stride + key * bias_.key_stride + kv_head * bias_.key_head_stride];
}

int Scene::distance(int token, int key) const {
  const SceneRow& row = config_.rows[row_of_[token]];
  const int position = key_position(row_of_[token], key);
  const bool sink = row.stream_window > 0 && position < row.stream_sinks;
  const int p = sink ? std::min(positions_[token], row.stream_window - 1) : positions_[token];
  return p - position;
}

float Scene::rotated_q(int token, int head, int dim, const std::vector<float>& cos_sin) const {
  const float* x = &q_values_[(static_cast<size_t>(token) * config_.q_heads + head) * config_.head_dim];
  const int rope_dim = layer_.rope_dim, half = rope_dim / 2;
  x += layer_.rope_offset;
  dim -= layer_.rope_offset;
  if (!config_.rotate || dim < 0 || dim >= rope_dim) return x[dim];
  const float* cos = &cos_sin[static_cast<size_t>(token) * rope_dim];
  const float* sin = cos + half;
  const int i = dim % half;
  const volatile float a = x[i] * cos[i], b = x[half + i] * sin[i], c = x[half + i] * cos[i], d = x[i] * sin[i];
  return rounded(config_.q, dim < half ? a - b : c + d);
}

// The keys as attention sees them: products and sums in float32, each rounded.
void Scene::rotate_keys() {
  rotated_k_values_ = k_values_;
  if (!config_.on_read) return;
  const int rope_dim = layer_.rope_dim, half = rope_dim / 2;
  for (size_t r = 0; r < k_values_.size(); ++r) {
    for (int key = 0; key < config_.rows[r].kv_length; ++key) {
      for (int i = 0; i < half; ++i) {
        const double angle = key_position(static_cast<int>(r), key) * std::pow(10.0, -2.0 * i / rope_dim);
        const volatile float c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle));
        for (int h = 0; h < config_.kv_heads; ++h) {
          float* x = &rotated_k_values_[r][(static_cast<size_t>(key) * config_.kv_heads + h) * config_.head_dim] +
                     layer_.rope_offset;
          const volatile float xc = x[i] * c, ys = x[half + i] * s, yc = x[half + i] * c, xs = x[i] * s;
          x[i] = xc - ys;
          x[half + i] = yc + xs;
        }
      }
    }
  }
}

void Scene::score(int token, int head, std::vector<int>* keys, std::vector<double>* exact_scores,
                  std::vector<float>* naive_scores) const {
  const int row = row_of_[token], kv_head = head / (config_.q_heads / config_.kv_heads);
  const SceneRow& r = config_.rows[row];
  const double scale = config_.call_scale != 0.0 ? config_.call_scale : static_cast<double>(layer_.softmax_scale);
  const float naive_scale = static_cast<float>(scale), cap = static_cast<float>(config_.softcap);
  std::vector<float> q(config_.head_dim), q_sinks(config_.head_dim);
  for (int d = 0; d < config_.head_dim; ++d) {
    q[d] = rotated_q(token, head, d, cos_sin_);
    q_sinks[d] = rotated_q(token, head, d, cos_sin_sinks_);
  }
  for (int key = 0; key < kv_lengths_[row]; ++key) {
    if (!sees(token, key) || !unmasked(token, kv_head, key)) continue;
    const bool sink = r.stream_window > 0 && key_position(row, key) < r.stream_sinks;
    const float* k =
        &rotated_k_values_[row][(static_cast<size_t>(key) * config_.kv_heads + kv_head) * config_.head_dim];
    double exact = 0.0;
    float naive = 0.0f;
    for (int d = 0; d < config_.head_dim; ++d) {
      const float x = sink ? q_sinks[d] : q[d];
      exact += static_cast<double>(x) * static_cast<double>(k[d]);
      naive += x * k[d];
    }
    exact *= scale;
    naive *= naive_scale;
    if (config_.softcap != 0.0) {
      exact = config_.softcap * std::tanh(exact / config_.softcap);
      naive = cap * std::tanh(naive / cap);
    }
    if (config_.alibi) {
      const int signed_distance = distance(token, key);
      const int apart = (config_.flags & KVC_ATTEND_ALIBI_SIGNED) != 0 ? signed_distance : std::abs(signed_distance);
      exact -= static_cast<double>(slopes_[head]) * apart;
      naive -= slopes_[head] * static_cast<float>(apart);
    }
    const float added = bias(token, head, key);
    exact += static_cast<double>(added);
    naive += added;
    keys->push_back(key);
    exact_scores->push_back(exact);
    naive_scores->push_back(naive);
  }
}

// The type to which P may be rounded before it meets V: the 16-bit type of V, unless q is float32. 8-bit V is converted
// on tensor cores to the type of q, or to bfloat16 if P takes the scales of tokens, as of uint4. kF32: P is not
// rounded.
Kind Scene::rounding_of_p() const {
  const bool as_bf16 = config_.kv == Kind::kBf16 || config_.kv == Kind::kE4m3 || config_.kv == Kind::kI8;
  if (config_.q == Kind::kBf16 && as_bf16) return Kind::kBf16;  // for bf16 dot products
  if (!tests_cuda() || config_.q == Kind::kF32) return Kind::kF32;
  if (is_quantised(config_.kv)) return has_row_scales(config_.kv) ? Kind::kBf16 : config_.q;
  return config_.kv == config_.q ? config_.q : Kind::kF32;
}

float Scene::value_scale(int row, int key, int head) const {
  const kvc_backend_scales& scales = layer_.v_scales;
  const int64_t page = pages_[row][key / config_.page_size], slot = key % config_.page_size;
  return *token_scale(&scales, page, head, slot);
}

Expected Scene::expect(int token, int head) const {
  const int row = row_of_[token], kv_head = head / (config_.q_heads / config_.kv_heads);
  const Kind p_kind = rounding_of_p();
  std::vector<int> keys;
  std::vector<double> exact_s;
  std::vector<float> naive_s;
  score(token, head, &keys, &exact_s, &naive_s);
  Expected e;
  e.exact.assign(config_.v_head_dim, 0.0);
  e.naive.assign(config_.v_head_dim, 0.0);
  const float sink = config_.sinks ? sinks_[head] : -INFINITY;
  double exact_m = static_cast<double>(sink);
  float naive_m = sink;
  for (double s : exact_s) exact_m = std::max(exact_m, s);
  for (float s : naive_s) naive_m = std::max(naive_m, s);
  e.exact_lse = e.naive_lse = exact_m;
  if (exact_m == -INFINITY) return e;
  double exact_l = std::exp(static_cast<double>(sink) - exact_m);
  float naive_l = std::exp(sink - naive_m);
  std::vector<float> naive_o(config_.v_head_dim, 0.0f);
  std::vector<double> squares(config_.v_head_dim, 0.0);
  for (size_t i = 0; i < keys.size(); ++i) {
    const double exact_p = std::exp(exact_s[i] - exact_m);
    const float naive_p = std::exp(naive_s[i] - naive_m);
    exact_l += exact_p;
    naive_l += naive_p;
    const float scale = has_row_scales(config_.kv) ? value_scale(row, keys[i], kv_head) : 1.0f;
    const float weight = p_kind == Kind::kF32 ? naive_p : rounded(p_kind, naive_p * scale) / scale;
    const float* v =
        is_latent() ? &k_values_[row][(static_cast<size_t>(keys[i]) * config_.kv_heads + kv_head) * config_.head_dim]
                    : &v_values_[row][(static_cast<size_t>(keys[i]) * config_.kv_heads + kv_head) * config_.v_head_dim];
    for (int d = 0; d < config_.v_head_dim; ++d) {
      e.exact[d] += exact_p * static_cast<double>(v[d]);
      naive_o[d] += weight * v[d];
      squares[d] += std::pow(exact_p * static_cast<double>(v[d]), 2.0);
    }
  }
  for (int d = 0; d < config_.v_head_dim; ++d) {
    e.exact[d] /= exact_l;
    // The comparison doubles it: six standard deviations of roundings that are independent of those of the naive code.
    // (A grid compares about ten million values. Among so many, several are more than five deviations apart.) Half an
    // ulp of x is between 2^half_ulp x and twice that; a rounding has a standard deviation of 0.85 * 2^half_ulp x.
    const int half_ulp = p_kind == Kind::kF16 ? -12 : -9;
    // The rounding of the output is added: up to half an ulp, which the comparison doubles.
    const double of_out =
        config_.out == Kind::kF32 ? 0.0 : std::ldexp(std::fabs(e.exact[d]), config_.out == Kind::kF16 ? -12 : -9);
    if (p_kind != Kind::kF32)
      e.rounding = std::max(e.rounding, std::ldexp(2.56 * std::sqrt(squares[d]) / exact_l, half_ulp) + of_out);
    e.naive[d] = rounded(config_.out, naive_o[d] / naive_l);
  }
  e.exact_lse = exact_m + std::log(exact_l);
  e.naive_lse = naive_m + std::log(naive_l);
  return e;
}

void Scene::check(const std::string& name) {
  for (int t = 0; t < num_tokens_ && expected_.size() < static_cast<size_t>(num_tokens_) * config_.q_heads; ++t) {
    for (int h = 0; h < config_.q_heads; ++h) expected_.push_back(expect(t, h));
  }
  for (int t = 0; t < num_tokens_; ++t) {
    for (int h = 0; h < config_.q_heads; ++h) {
      const Expected& e = expected_[static_cast<size_t>(t) * config_.q_heads + h];
      double error = 0.0, naive = e.rounding;
      for (int d = 0; d < config_.v_head_dim; ++d) {
        const double difference = std::fabs(static_cast<double>(out(t, h, d)) - e.exact[d]);
        error = std::isnan(difference) ? INFINITY : std::max(error, difference);
        naive = std::max(naive, std::fabs(e.naive[d] - e.exact[d]));
      }
      ASSERT_LE(error, 2.0 * naive + 1e-5) << name << " " << config_.describe() << ": token " << t << " head " << h;
      const bool empty = e.exact_lse == -INFINITY && lse(t, h) == -INFINITY;
      const double lse_error = empty ? 0.0 : std::fabs(static_cast<double>(lse(t, h)) - e.exact_lse);
      ASSERT_LE(lse_error, (empty ? 0.0 : 2.0 * std::fabs(e.naive_lse - e.exact_lse)) + 1e-5)
          << name << " " << config_.describe() << ": LSE of token " << t << " head " << h << " is " << lse(t, h)
          << ", not " << e.exact_lse;
    }
  }
}

}  // namespace kvc::kernels::test
