// Streaming windows with RoPE and ALiBi: the kept tokens count as contiguous. The reference closes the gap: it numbers
// the keys that a query sees 0, 1, 2, ..., rotates every key at its number, and the query at the last one.
#include <algorithm>
#include <string>

#include "rope_cache.h"

namespace kvt {
namespace {

constexpr int kSinks = 5, kWindow = 18;

// Positions that a query at p sees.
std::vector<int> kept(int p) {
  std::vector<int> all;
  for (int j = 0; j <= p; j++) {
    if (j < kSinks || j >= std::max(kSinks, p - (kWindow - kSinks) + 1)) all.push_back(j);
  }
  return all;
}

// slope: of ALiBi.
Vector closed_up(const Rows &rows, int p, const Rotation &rotation, double scale, double slope = 0.0) {
  const std::vector<int> seen = kept(p);
  const double last = static_cast<double>(seen.size()) - 1.0;
  Vector q = rotation.at(rows.q[p], last);
  std::vector<Vector> keys, values;
  for (size_t i = 0; i < seen.size(); i++) {
    Vector key = rotation.at(rows.k[seen[i]], static_cast<double>(i));
    key.push_back(-slope * (last - static_cast<double>(i)) / scale);  // one more dim carries the bias
    keys.push_back(key);
    values.push_back(rows.v[seen[i]]);
  }
  q.push_back(1.0);
  return attend(q, keys, values, 0, keys.size() - 1, scale);
}

struct StreamCache : RopeCache {
  explicit StreamCache(int dims, int32_t mode = KVC_ROPE_ON_APPEND, const char *simd = nullptr)
      : RopeCache(dims, 0, simd) {
    layer.rope_mode = mode;
    flags = KVC_CACHE_STREAMING;
  }
  kvc_seq add_stream() {
    const kvc_seq id = add();
    const int64_t sinks = kSinks, window = kWindow;
    EXPECT_EQ(kvc_seq_set_streaming(cache.get(), 1, &id, &sinks, &window, 0, nullptr), KVC_OK);
    return id;
  }
};

// One step of tokens [begin, end), optionally with ALiBi, or in parts.
std::vector<Vector> step(RopeCache &c, kvc_seq id, const Rows &rows, int begin, int end, float slope = 0.0f,
                         bool apart = false) {
  Tensor q = tensor_of(rows.q, begin, end), k = tensor_of(rows.k, begin, end), v = tensor_of(rows.v, begin, end);
  const int64_t n = end - begin, dims = q.shape()[2];
  Tensor out(DType::kF32, q.shape()), past(DType::kF32, q.shape()), slopes(DType::kF32, {1}), lse(DType::kF32, {n, 1}),
      past_lse(DType::kF32, {n, 1});
  store(DType::kF32, slopes.data(), 0, slope);
  const kvc_forward forward = c.begin({id}, {static_cast<int32_t>(n)});
  kvc_error error = KVC_ERROR_INIT;
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = q.dl();
  args.k = k.dl();
  args.v = v.dl();
  args.out = out.dl();
  args.lse = lse.dl();
  if (slope != 0.0f) args.alibi_slopes = slopes.dl();
  if (apart) args.flags = KVC_ATTEND_SELF;
  EXPECT_EQ(kvc_forward_attend(c.cache.get(), forward, 0, &args, &error), KVC_OK) << error.message;
  if (apart) {
    args.flags = KVC_ATTEND_PAST;
    args.k = args.v = nullptr;
    args.out = past.dl();
    args.lse = past_lse.dl();
    EXPECT_EQ(kvc_forward_attend(c.cache.get(), forward, 0, &args, &error), KVC_OK) << error.message;
    const DLTensor *outputs[] = {out.dl(), past.dl()}, *lses[] = {lse.dl(), past_lse.dl()};
    kvc_merge_args merge;
    kvc_merge_args_init(&merge);
    merge.num_parts = 2;
    merge.outputs = outputs;
    merge.lses = lses;
    merge.out = out.dl();
    EXPECT_EQ(kvc_merge_states(c.context.get(), &merge, nullptr, &error), KVC_OK) << error.message;
  }
  EXPECT_EQ(kvc_forward_end(c.cache.get(), forward, &error), KVC_OK) << error.message;
  std::vector<Vector> result;
  for (int64_t t = 0; t < n; t++) {
    result.emplace_back();
    for (int64_t d = 0; d < dims; d++) result.back().push_back(out.at(t, 0, d));
  }
  return result;
}

// All tokens in steps of `chunk`, each output compared.
void check_stream(RopeCache &c, kvc_seq id, const Rows &rows, int chunk, const Rotation &rotation, double scale,
                  const std::string &what, float slope = 0.0f, bool apart = false) {
  const int tokens = static_cast<int>(rows.q.size());
  for (int begin = 0; begin < tokens; begin += chunk) {
    const int end = std::min(tokens, begin + chunk);
    const std::vector<Vector> out = step(c, id, rows, begin, end, slope, apart);
    for (int p = begin; p < end; p++) {
      expect_near(out[p - begin], closed_up(rows, p, rotation, scale, slope), what + " position " + std::to_string(p));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(StreamingRope, AsIfTheKeptTokensWereContiguous) {
  std::vector<std::string> targets = simd_targets();
  targets.push_back("reference");
  for (const std::string &simd : targets) {
    for (const int32_t mode : {KVC_ROPE_ON_APPEND, KVC_ROPE_ON_READ}) {
      for (const int chunk : {1, 2, 7, 90}) {
        StreamCache c(16, mode, simd.c_str());
        ASSERT_EQ(c.create(), KVC_OK);
        check_stream(c, c.add_stream(), Rows(90, 16, 5), chunk, {0, false, plain_frequencies(16), 1.0}, 0.25,
                     simd + " mode " + std::to_string(mode) + " chunk " + std::to_string(chunk));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(StreamingRope, PastAndSelfApart) {
  for (const int32_t mode : {KVC_ROPE_ON_APPEND, KVC_ROPE_ON_READ}) {
    for (const int chunk : {1, 3, 30}) {
      StreamCache c(16, mode);
      ASSERT_EQ(c.create(), KVC_OK);
      check_stream(c, c.add_stream(), Rows(90, 16, 6), chunk, {0, false, plain_frequencies(16), 1.0}, 0.25, "apart",
                   0.0f, true);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(StreamingRope, DistancesOfAlibi) {
  for (const bool apart : {false, true}) {
    for (const int chunk : {1, 2, 45}) {
      StreamCache c(16, KVC_ROPE_NONE);
      ASSERT_EQ(c.create(), KVC_OK);
      check_stream(c, c.add_stream(), Rows(90, 16, 7), chunk, {0, false, {}, 1.0}, 0.25, "ALiBi", 0.3f, apart);
      if (HasFatalFailure()) return;
    }
  }
}

// The kept tokens of a stream never reach the length from which longrope uses its long factors.
TEST(StreamingRope, LongRopeByTheKeptLength) {
  const std::vector<double> shorts(8, 1.0), longs(8, 5.0);
  kvc_rope_scaling scaling;
  kvc_rope_scaling_init(&scaling);
  scaling.kind = KVC_ROPE_SCALING_LONGROPE;
  scaling.original_max_position = 20;
  scaling.short_factors = shorts.data();
  scaling.long_factors = longs.data();
  scaling.num_short_factors = scaling.num_long_factors = 8;
  StreamCache c(16, KVC_ROPE_ON_READ);
  c.layer.rope_scaling = &scaling;
  ASSERT_EQ(c.create(), KVC_OK);
  check_stream(c, c.add_stream(), Rows(70, 16, 9), 3, {0, false, plain_frequencies(16), 1.0}, 0.25, "longrope");
}

// Sinks need a second rotation of q, which a table of the caller does not have.
TEST(StreamingRope, CallersTablesEndWithTheWindow) {
  StreamCache c(16);
  ASSERT_EQ(c.create(), KVC_OK);
  const kvc_seq id = c.add_stream();
  const Rows rows(kWindow + 1, 16, 10);
  Tensor table(DType::kF32, {kWindow + 1, 2, 8});
  for (int t = 0; t <= kWindow; t++) {
    for (int i = 0; i < 8; i++) {
      table.set(t, 0, i, static_cast<float>(std::cos(t * plain_frequencies(16)[i])));
      table.set(t, 1, i, static_cast<float>(std::sin(t * plain_frequencies(16)[i])));
    }
  }
  attend_rows(c, {id}, {kWindow}, rows, 0, kWindow, &table);
  const kvc_forward forward = c.begin({id}, {1});
  Tensor q = tensor_of(rows.q, 0, 1), k = tensor_of(rows.k, 0, 1), v = tensor_of(rows.v, 0, 1),
         out(DType::kF32, q.shape());
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = q.dl();
  args.k = k.dl();
  args.v = v.dl();
  args.out = out.dl();
  args.rope_cos_sin = table.dl();
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_forward_attend(c.cache.get(), forward, 0, &args, &error), KVC_ERROR_UNSUPPORTED);
  EXPECT_EQ(error.index, 0);
  EXPECT_NE(std::string(error.message).find("rope_cos_sin"), std::string::npos) << error.message;
  // Nothing was stored, so k may come with the next call.
  args.rope_cos_sin = nullptr;
  EXPECT_EQ(kvc_forward_attend(c.cache.get(), forward, 0, &args, &error), KVC_OK) << error.message;
  EXPECT_EQ(kvc_forward_end(c.cache.get(), forward, &error), KVC_OK) << error.message;
}

}  // namespace
}  // namespace kvt
