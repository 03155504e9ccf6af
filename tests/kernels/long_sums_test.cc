// Sums over many keys: the error of an output and of its LSE does not grow with the number of keys.
//
// The page list contains one page of equal values many times, so a sequence of a million keys costs nothing. With flat
// scores every term of a sum is equal, and every rounding has the same sign. That is the worst case.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "host_stub.h"
#include "kernels/common/convert.h"
#include "pool.h"
#include "scene.h"
#include "staged_attend.h"

namespace kvc::kernels::test {
namespace {

constexpr int32_t kPage = 256;
constexpr double kMostError = 2e-5;  // relative of an output, absolute of an LSE

struct FlatCase {
  Type q = Type::kF32, kv = Type::kF32;
  int32_t length = tests_cuda() ? 30000 : 200000, queries = 1, q_heads = 2, head_dim = 16;
  int32_t latent = 0;     // dims of V, the first ones of a latent row; 0: V is beside K
  int32_t fold_keys = 0;  // of a deterministic cache
  int32_t split = 0;      // keys of an item; 0: all
  double slope = 0.0;     // ALiBi: scores rise towards the query
  float value = 0.7f;

  std::string describe() const {
    return "q " + std::to_string(static_cast<int>(q)) + " kv " + std::to_string(static_cast<int>(kv)) + " keys " +
           std::to_string(length) + " queries " + std::to_string(queries) + " x " + std::to_string(q_heads) +
           " heads, D " + std::to_string(head_dim) + " latent " + std::to_string(latent) + " fold " +
           std::to_string(fold_keys) + " items of " + std::to_string(split) + " slope " + std::to_string(slope) +
           " V " + std::to_string(value);
  }
};

DLDataType dtype_of(Type type) {
  switch (type) {
    case Type::kF32:
      return {kDLFloat, 32, 1};
    case Type::kF16:
      return {kDLFloat, 16, 1};
    case Type::kBf16:
      return {kDLBfloat, 16, 1};
    case Type::kE4m3:
      return {kDLFloat8_e4m3fn, 8, 1};
    case Type::kE5m2:
      return {kDLFloat8_e5m2, 8, 1};
    default:
      return {kDLInt, 8, 1};
  }
}

// Elements of one value in a type; `scale`: for int8.
std::vector<unsigned char> filled(Type type, int64_t count, float value) {
  std::vector<unsigned char> data(static_cast<size_t>(count * element_bytes(type)));
  for (int64_t i = 0; i < count; ++i) store_element(type, data.data(), i, value);
  return data;
}

// One call of attention over such keys.
class FlatCall {
 public:
  explicit FlatCall(const FlatCase& flat) : flat_(flat), v_dim_(flat.latent > 0 ? flat.latent : flat.head_dim) {
    make_pools();
    make_rows();
    make_items();
    make_args();
  }
  FlatCall(const FlatCall&) = delete;
  FlatCall& operator=(const FlatCall&) = delete;

  void expect_accurate(const std::string& name, kvc_backend_device* device) {
    SCOPED_TRACE(name + ": " + flat_.describe());
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(staged_attend(test_backend(), device, args_, plan_, nullptr, &error), KVC_OK) << error.message;
    const double score = static_cast<double>(layer_.softmax_scale) * kQuery * value_ * flat_.head_dim;
    const double slope = static_cast<double>(slopes_[0]);
    double out_error = 0.0, lse_error = 0.0;
    for (size_t t = 0; t < positions_.size(); ++t) {
      const double keys = positions_[t] + 1;  // With slopes the sum is a geometric series.
      const double sum = slope == 0.0 ? keys : std::expm1(-slope * keys) / std::expm1(-slope);
      for (size_t h = 0; h < slopes_.size(); ++h) {
        const size_t index = t * slopes_.size() + h;
        lse_error = std::fmax(lse_error, std::fabs(static_cast<double>(lse_[index]) - score - std::log(sum)));
        for (size_t d = 0; d < static_cast<size_t>(v_dim_); ++d) {
          const double got = static_cast<double>(out_[index * static_cast<size_t>(v_dim_) + d]);
          ASSERT_TRUE(std::isfinite(got));
          out_error = std::fmax(out_error, std::fabs(got / value_ - 1.0));
        }
      }
    }
    EXPECT_LE(out_error, kMostError);
    EXPECT_LE(lse_error, kMostError);
  }

 private:
  static constexpr float kQuery = 0.125f;

  void make_pools() {
    const bool is_int8 = flat_.kv == Type::kI8;
    // A power of two, because some kernels round P times the scale to bf16.
    const float scale = is_int8 ? 0.0078125f : 1.0f, stored = flat_.value / scale;
    k_pool_ = filled(flat_.kv, int64_t{kPage} * flat_.head_dim, stored);
    v_pool_ = filled(flat_.kv, int64_t{kPage} * v_dim_, stored);
    scales_.assign(kPage, scale);
    value_ = static_cast<double>(load_element(flat_.kv, k_pool_.data(), 0)) * static_cast<double>(scale);
    const DLDataType dtype = dtype_of(flat_.kv);
    layer_.format = stored_format(dtype);
    layer_.num_pages = 1;
    layer_.page_size = kPage;
    layer_.num_q_heads = flat_.q_heads;
    layer_.num_kv_heads = 1;
    layer_.head_dim = flat_.head_dim;
    layer_.v_head_dim = v_dim_;
    layer_.row_kind = flat_.latent > 0 ? KVC_BACKEND_ROW_LATENT : KVC_BACKEND_ROW_KV;
    layer_.rope_class = -1;
    layer_.softmax_scale = 0.25f;
    layer_.k = pool_of(dtype, k_pool_.data(), int64_t{kPage} * flat_.head_dim, 0, flat_.head_dim, flat_.head_dim);
    layer_.v = pool_of(dtype, v_pool_.data(), int64_t{kPage} * v_dim_, 0, v_dim_, v_dim_);
    if (flat_.latent > 0) layer_.v = layer_.k;
    if (is_int8) layer_.k_scales = layer_.v_scales = scales_of_tokens(scales_.data(), 0, 0, 1);
  }
  void make_rows() {
    for (int32_t i = 0; i < flat_.queries; ++i) positions_.push_back(flat_.length - flat_.queries + i);
    token_begin_[1] = flat_.queries;
    rows_ = plain_rows(1, flat_.queries, token_begin_, &flat_.length, positions_.data());
    pages_.assign(static_cast<size_t>(flat_.length / kPage + 1), 0);
    tables_ = {nullptr, nullptr, nullptr, pages_.data(), &page_begin_};
  }
  void make_items() {
    int64_t floats = 0;
    for (int32_t begin = 0; begin < flat_.length; begin = items_.back().key_end) {
      kvc_backend_item item = {};
      item.q_end = flat_.queries;
      item.head_end = 1;
      item.key_begin = begin;
      item.key_end = flat_.split > 0 ? std::min(flat_.length, begin + flat_.split) : flat_.length;
      item.tile = flat_.split > 0 ? 0 : -1;
      item.partial_offset = flat_.split > 0 ? floats : -1;
      floats += int64_t{flat_.queries} * flat_.q_heads * (v_dim_ + 2);
      items_.push_back(item);
    }
    tile_ = {0, static_cast<int32_t>(items_.size()), 0, 0, 0, 0};
    partials_.assign(static_cast<size_t>(floats), NAN);
  }
  void make_args() {
    const int64_t q_row = int64_t{flat_.q_heads} * flat_.head_dim, out_row = int64_t{flat_.q_heads} * v_dim_;
    q_ = filled(flat_.q, flat_.queries * q_row, kQuery);
    out_.assign(static_cast<size_t>(flat_.queries * out_row), NAN);
    lse_.assign(static_cast<size_t>(flat_.queries) * static_cast<size_t>(flat_.q_heads), NAN);
    slopes_.assign(static_cast<size_t>(flat_.q_heads), static_cast<float>(flat_.slope));
    args_.layer = &layer_;
    plan_.arrays = {rows_, tables_, nullptr, items_.data(), &tile_, nullptr, nullptr};
    plan_.layer = &layer_;
    plan_.num_items = static_cast<int64_t>(items_.size());
    plan_.num_tiles = flat_.split > 0 ? 1 : 0;
    plan_.counters = &counter_;
    plan_.partials = partials_.data();
    plan_.fold_keys = flat_.fold_keys;
    args_.q = {q_.data(), q_row, flat_.head_dim, dtype_of(flat_.q), 0};
    args_.out = {out_.data(), out_row, v_dim_, dtype_of(Type::kF32), 0};
    args_.lse = lse_.data();
    args_.lse_token_stride = flat_.q_heads;
    args_.lse_head_stride = 1;
    if (flat_.slope != 0.0) args_.alibi_slopes = slopes_.data();
  }

  const FlatCase flat_;
  const int32_t v_dim_;
  double value_ = 0.0;  // of K and V as they are read
  std::vector<unsigned char> k_pool_, v_pool_, q_;
  std::vector<float> scales_, slopes_, partials_, out_, lse_;
  std::vector<int32_t> positions_, pages_;
  int32_t token_begin_[2] = {}, counter_ = 0;
  const int64_t page_begin_ = 0;
  std::vector<kvc_backend_item> items_;
  kvc_backend_tile tile_ = {};
  kvc_backend_layer layer_ = {};
  kvc_backend_rows rows_ = {};
  kvc_backend_tables tables_ = {};
  kvc_backend_plan plan_ = {};
  kvc_backend_attend args_ = {};
};

void run_flat(const FlatCase& flat) {
  for_each_implementation(
      1, [&](const std::string& name, kvc_backend_device* device) { FlatCall(flat).expect_accurate(name, device); });
}

// The emulation of CUDA is slow.
int32_t most_keys() { return tests_cuda() ? 60000 : 1000000; }
int32_t many_keys() { return tests_cuda() ? 30000 : 200000; }

TEST(LongSums, Decode) {
  for (Type kv : {Type::kF32, Type::kF16, Type::kBf16, Type::kE4m3, Type::kE5m2, Type::kI8}) {
    for (Type q : {Type::kF32, Type::kBf16}) {
      for (int32_t length : {1000, 20000, many_keys()}) run_flat({.q = q, .kv = kv, .length = length});
    }
  }
}

TEST(LongSums, MillionKeys) {
  for (int32_t heads : {1, 8}) run_flat({.length = most_keys(), .q_heads = heads});
  run_flat({.q = Type::kBf16, .kv = Type::kBf16, .length = most_keys(), .head_dim = 64});
  run_flat({.length = most_keys(), .queries = 40});
  run_flat({.length = most_keys(), .fold_keys = 1024});
}

// Rows for the panel kernel, and for blocks of many rows on CUDA.
TEST(LongSums, Prefill) {
  for (Type kv : {Type::kF32, Type::kF16, Type::kBf16, Type::kE4m3}) {
    const Type q = kv == Type::kF16 ? Type::kF16 : kv == Type::kF32 ? Type::kF32 : Type::kBf16;
    run_flat({.q = q, .kv = kv, .queries = 40, .head_dim = 64});
  }
  run_flat({.length = 30000, .queries = 40, .head_dim = 192});  // panels of another size
}

TEST(LongSums, Latent) {
  for (Type type : {Type::kF32, Type::kBf16}) {
    for (int32_t queries : {1, 40}) {
      run_flat({.q = type, .kv = type, .queries = queries, .head_dim = 80, .latent = 64});
    }
  }
}

TEST(LongSums, Deterministic) {
  for (Type type : {Type::kF32, Type::kBf16}) {
    run_flat({.q = type, .kv = type, .head_dim = 64, .fold_keys = 1024});
    run_flat({.q = type, .kv = type, .head_dim = 64, .fold_keys = 1024, .split = 1024});
  }
}

TEST(LongSums, Split) {
  run_flat({.split = 7000});
  run_flat({.queries = 40, .split = 9000});
}

// Scores that rise slowly, so the maximum m changes all the time or never.
TEST(LongSums, RisingScores) {
  for (double slope : {1e-6, 1e-4, 1e-2}) {
    for (int32_t queries : {1, 40}) {
      run_flat({.queries = queries, .slope = slope});
      run_flat({.queries = queries, .fold_keys = 1024, .slope = slope});
    }
  }
}

// Values other than that of the reported fault.
TEST(LongSums, OtherValues) {
  for (float value : {0.3f, 0.9f, 0.1f, 1.1f, 3.7f}) {
    if (tests_cuda() && value == 0.1f) break;  // the emulation is slow
    for (int32_t queries : {1, 40}) run_flat({.queries = queries, .value = value});
  }
}

}  // namespace
}  // namespace kvc::kernels::test
