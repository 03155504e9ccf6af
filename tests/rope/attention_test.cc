// RoPE through the C API: the effect of a layer's settings on stored K and on attention, tables of the caller, and
// longrope's factor sets.
#include <algorithm>
#include <string>

#include "rope_cache.h"

namespace kvt {
namespace {

std::vector<Vector> export_keys(RopeCache &c, kvc_seq id) {
  kvc_export_args args;
  kvc_export_args_init(&args);
  DLManagedTensorVersioned *k = nullptr;
  EXPECT_EQ(export_kv(c.cache.get(), id, &args, &k, nullptr, nullptr, nullptr), KVC_OK);
  const Managed owner(k);
  std::vector<Vector> keys;
  for (int64_t t = 0; t < k->dl_tensor.shape[0]; t++) {
    keys.emplace_back();
    for (int64_t d = 0; d < k->dl_tensor.shape[2]; d++) keys.back().push_back(at(k->dl_tensor, {t, 0, d}));
  }
  return keys;
}

// Attends rows in steps of the given lengths, and compares outputs and stored K.
void check_sequence(RopeCache &c, kvc_seq id, const Rows &rows, const Rotation &rotation, const std::string &what) {
  const size_t count = rows.q.size();
  std::vector<Vector> keys;
  for (size_t t = 0; t < count; t++) keys.push_back(rotation.at(rows.k[t], static_cast<double>(t)));
  const double scale = 1.0 / std::sqrt(static_cast<double>(rows.q[0].size()));
  size_t begin = 0;
  for (size_t length : {size_t{1}, size_t{20}, size_t{3}, count}) {  // decode and panel kernels
    const size_t end = std::min(count, begin + length);
    const auto out = attend_rows(c, {id}, {static_cast<int32_t>(end - begin)}, rows, begin, end, nullptr, length == 3);
    for (size_t t = begin; t < end; t++) {
      const Vector q = rotation.at(rows.q[t], static_cast<double>(t));
      expect_near(out[t - begin], attend(q, keys, rows.v, 0, t, scale), what + " token " + std::to_string(t));
    }
    begin = end;
  }
  const std::vector<Vector> stored = export_keys(c, id);
  for (size_t t = 0; t < count; t++) {
    expect_near(stored[t], c.layer.rope_mode == KVC_ROPE_ON_READ ? rows.k[t] : keys[t],
                what + " stored key " + std::to_string(t), 1e-5);
  }
}

void check_layer(RopeCache &c, const Rotation &rotation, const std::string &what) {
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(c.create(&error), KVC_OK) << what << ": " << error.message;
  check_sequence(c, c.add(), Rows(40, c.layer.head_dim, 5), rotation, what);
}

TEST(RopeAttention, Layouts) {
  const struct {
    int dims, rope_dim, offset;
    bool interleaved;
  } cases[] = {{32, 0, 0, false}, {32, 0, 0, true},   {80, 32, 0, false},  {256, 64, 0, true}, {40, 0, 8, false},
               {40, 16, 3, true}, {96, 64, 32, true}, {96, 64, 32, false}, {7, 2, 5, false},   {7, 2, 5, true}};
  for (const std::string &simd : simd_targets()) {
    for (const auto &l : cases) {
      RopeCache c(l.dims, 0, simd.c_str());
      c.layer.rope_dim = l.rope_dim;
      c.layer.rope_offset = l.offset;
      if (l.interleaved) c.layer.flags = KVC_LAYER_ROPE_INTERLEAVED;
      c.layer.rope_theta = 500.0;
      const int rotated = l.rope_dim ? l.rope_dim : l.dims - l.offset;
      check_layer(c, {l.offset, l.interleaved, plain_frequencies(rotated, 500.0), 1.0},
                  simd + " " + std::to_string(rotated) + " of " + std::to_string(l.dims));
    }
  }
}

// Each kind of scaling, with settings for which it is a formula of one line. tests/rope/frequencies_test.cc has the
// models.
TEST(RopeAttention, Scalings) {
  const int dims = 32;
  Rotation slower = {0, false, plain_frequencies(dims), 1.0};
  for (double &f : slower.frequencies) f /= 8.0;
  const auto with = [&](const std::function<void(kvc_rope_scaling *)> &change, const Rotation &wanted,
                        const std::string &what) {
    kvc_rope_scaling scaling;
    kvc_rope_scaling_init(&scaling);
    change(&scaling);
    RopeCache c(dims);
    c.layer.rope_scaling = &scaling;
    check_layer(c, wanted, what);
  };
  with([](auto *s) { s->kind = KVC_ROPE_SCALING_LINEAR, s->factor = 8.0; }, slower, "linear");
  with(  // trained on 2 tokens, so every wave is longer than that
      [](auto *s) {
        s->kind = KVC_ROPE_SCALING_LLAMA3, s->factor = 8.0, s->original_max_position = 2;
        s->low_freq_factor = 1.0, s->high_freq_factor = 4.0;
      },
      slower, "llama3");
  with(  // a factor of 1 keeps the frequencies, so only the attention factor acts
      [](auto *s) {
        s->kind = KVC_ROPE_SCALING_YARN, s->factor = 1.0, s->original_max_position = 64, s->attention_factor = 1.5;
      },
      {0, false, plain_frequencies(dims), 1.5}, "yarn");
  const std::vector<double> shorts(dims / 2, 8.0), longs(dims / 2, 3.0);
  with(
      [&](auto *s) {
        s->kind = KVC_ROPE_SCALING_LONGROPE, s->original_max_position = 16, s->factor = 16.0;
        s->short_factors = shorts.data(), s->long_factors = longs.data();
        s->num_short_factors = s->num_long_factors = dims / 2;
      },
      {0, false, slower.frequencies, std::sqrt(2.0)}, "longrope");
}

// A float32 layer that rotates keys on read gives the same bits as one that stores rotated keys, also for long
// sequences, in steps for both kernels. Its stored keys are not rotated.
TEST(RopeOnRead, TheBitsOfOnAppend) {
  const struct {
    int dims, rope_dim, offset;
    uint32_t flags;
  } cases[] = {{128, 0, 0, 0}, {128, 0, 0, KVC_LAYER_ROPE_INTERLEAVED}, {40, 16, 3, 0}, {7, 2, 5, 0}};
  std::vector<std::string> targets = simd_targets();
  targets.push_back("reference");
  for (const std::string &simd : targets) {
    for (const auto &l : cases) {
      std::vector<Vector> outputs[2];
      const Rows rows(300, l.dims, 7);
      for (const int32_t mode : {KVC_ROPE_ON_APPEND, KVC_ROPE_ON_READ}) {
        RopeCache c(l.dims, 0, simd.c_str());
        c.layer.rope_mode = mode;
        c.layer.rope_dim = l.rope_dim;
        c.layer.rope_offset = l.offset;
        c.layer.flags = l.flags;
        ASSERT_EQ(c.create(), KVC_OK);
        const kvc_seq id = c.add();
        auto &out = outputs[mode == KVC_ROPE_ON_READ];
        size_t begin = 0;
        for (size_t end : {1, 130, 131, 134, 300}) {
          for (Vector &x : attend_rows(c, {id}, {static_cast<int32_t>(end - begin)}, rows, begin, end))
            out.push_back(x);
          begin = end;
        }
        if (mode == KVC_ROPE_ON_READ) {
          EXPECT_EQ(export_keys(c, id), rows.k) << simd;
        }
      }
      EXPECT_EQ(outputs[0], outputs[1]) << simd << " " << l.dims;
    }
  }
}

// A 16-bit layer rounds rotated keys. Unrotated keys are rounded first, and then rotated in float32.
TEST(RopeOnRead, SixteenBitKeysTurnUnrounded) {
  const int dims = 64;
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (const std::string &simd : simd_targets()) {
      RopeCache c(dims, 0, simd.c_str());
      c.layer.rope_mode = KVC_ROPE_ON_READ;
      c.layer.dtype = dl_type(type);
      ASSERT_EQ(c.create(), KVC_OK);
      Rows rows(100, dims, 3);
      for (auto *part : {&rows.k, &rows.v}) {
        for (Vector &row : *part) {
          for (double &x : row) x = round_to(type, static_cast<float>(x));
        }
      }
      const Rotation rotation = {0, false, plain_frequencies(dims), 1.0};
      check_sequence(c, c.add(), rows, rotation, simd + " " + name_of(type));
    }
  }
}

// An import of exported rows: they are unrotated again, at their own positions.
TEST(RopeOnRead, ExportsAndImportsAreRaw) {
  RopeCache c(16);
  c.layer.rope_mode = KVC_ROPE_ON_READ;
  ASSERT_EQ(c.create(), KVC_OK);
  const Rows rows(30, 16, 2);
  const kvc_seq id = c.add(), copies[] = {c.add(), c.add()};
  attend_rows(c, {id}, {29}, rows, 0, 29);
  EXPECT_EQ(export_keys(c, id), std::vector<Vector>(rows.k.begin(), rows.k.begin() + 29));
  Tensor k = tensor_of(rows.k, 0, 29), v = tensor_of(rows.v, 0, 29);
  const DLTensor *ks[] = {k.dl()}, *vs[] = {v.dl()};
  const auto wanted = attend_rows(c, {id}, {1}, rows, 29, 30);
  for (const uint32_t flags : {uint32_t{0}, uint32_t{KVC_IMPORT_AS_STORED}}) {
    const kvc_seq copy = copies[flags != 0];
    kvc_import_args args;
    kvc_import_args_init(&args);
    args.flags = flags;
    args.num_layers = 1;
    args.k = ks;
    args.v = vs;
    ASSERT_EQ(kvc_seq_import(c.cache.get(), copy, &args, nullptr, nullptr), KVC_OK);
    EXPECT_EQ(attend_rows(c, {copy}, {1}, rows, 29, 30), wanted);
  }
}

// Attention depends on distances only: the same rows at the end of a long sequence, seen through a window, give the
// same result.
TEST(RopeAttention, OnlyDistancesMatter) {
  const int dims = 16, window = 6;
  for (const bool interleaved : {false, true}) {
    RopeCache c(dims, window);
    if (interleaved) c.layer.flags = KVC_LAYER_ROPE_INTERLEAVED;
    ASSERT_EQ(c.create(), KVC_OK);
    const Rows filler(RopeCache::kTokens, dims, 1), rows(window, dims, 2);
    std::vector<Vector> last;
    for (int before : {0, 1, 7, 100, 5000}) {
      const kvc_seq id = c.add();
      for (int left = before; left > 0; left -= RopeCache::kTokens) {
        const int32_t n = std::min<int>(left, RopeCache::kTokens);
        attend_rows(c, {id}, {n}, filler, 0, n);
      }
      last.push_back(attend_rows(c, {id}, {window}, rows, 0, window).back());
      expect_near(last.back(), last.front(), "after " + std::to_string(before) + " tokens", 1e-5);
    }
  }
}

// cos and sin of three axes, as M-RoPE has them: pairs in sections, each by a position of its own.
TEST(RopeAttention, CallersTable) {
  const int dims = 32, half = dims / 2, tokens = 12;
  const auto axis_of = [](size_t pair) { return pair < 8 ? 0 : pair < 12 ? 1 : 2; };
  const auto position = [](size_t token, int axis) {
    return axis == 0 ? token / 4 : axis == 1 ? token % 4 : token * 7;
  };
  for (const bool fused : {true, false}) {
    RopeCache c(dims);
    ASSERT_EQ(c.create(), KVC_OK);
    const Rows rows(tokens, dims, 3);
    const Rotation rotation = {0, false, plain_frequencies(dims), 1.0};
    const auto rotated = [&](const Vector &x, size_t token) {
      return rotation.turn(
          x, [&](size_t i) { return rotation.frequencies[i] * static_cast<double>(position(token, axis_of(i))); });
    };
    Tensor table(DType::kF32, {tokens, 2, half});
    std::vector<Vector> keys;
    for (size_t t = 0; t < tokens; t++) {
      keys.push_back(rotated(rows.k[t], t));
      for (size_t i = 0; i < half; i++) {
        const double angle = rotation.frequencies[i] * static_cast<double>(position(t, axis_of(i)));
        table.set(t, 0, i, static_cast<float>(std::cos(angle)));
        table.set(t, 1, i, static_cast<float>(std::sin(angle)));
      }
    }
    const auto out = attend_rows(c, {c.add()}, {tokens}, rows, 0, tokens, &table, fused);
    for (size_t t = 0; t < tokens; t++) {
      expect_near(out[t], attend(rotated(rows.q[t], t), keys, rows.v, 0, t, 1.0 / std::sqrt(dims)), "M-RoPE");
    }
  }
}

// A cache whose short factors leave the frequencies and whose long ones divide them by 5.
struct LongRope : RopeCache {
  std::vector<double> shorts = std::vector<double>(8, 1.0), longs = std::vector<double>(8, 5.0);
  kvc_rope_scaling scaling;
  Rotation rotations[2];
  explicit LongRope(int32_t mode = KVC_ROPE_ON_APPEND, int32_t original_length = 16) : RopeCache(16) {
    layer.rope_mode = mode;
    kvc_rope_scaling_init(&scaling);
    scaling.kind = KVC_ROPE_SCALING_LONGROPE;
    scaling.original_max_position = original_length;
    scaling.short_factors = shorts.data();
    scaling.long_factors = longs.data();
    scaling.num_short_factors = scaling.num_long_factors = 8;
    layer.rope_scaling = &scaling;
    rotations[0] = rotations[1] = {0, false, plain_frequencies(16), 1.0};
    for (double &f : rotations[1].frequencies) f /= 5.0;
    EXPECT_EQ(create(), KVC_OK);
  }
  kvc_status set(const std::vector<kvc_seq> &ids, int32_t which, kvc_error *error = nullptr) {
    return kvc_seq_set_rope(cache.get(), static_cast<int64_t>(ids.size()), ids.data(), which, error);
  }
  void check(kvc_seq id, int which) { check_sequence(*this, id, Rows(30, 16, 8), rotations[which], "set"); }
};

TEST(RopeAttention, FactorSetOfASequence) {
  LongRope c;
  const kvc_seq plain = c.add(), chosen = c.add();
  EXPECT_EQ(c.set({chosen}, KVC_ROPE_SET_LONG), KVC_OK);
  c.check(plain, 0);
  c.check(chosen, 1);
  // A fork is rotated as its parent is, from any position on.
  const kvc_seq parents[] = {chosen, chosen};
  const int64_t positions[] = {0, 30};
  kvc_seq forks[2];
  ASSERT_EQ(kvc_seq_fork(c.cache.get(), 2, parents, positions, forks, nullptr, nullptr), KVC_OK);
  c.check(forks[0], 1);
  const Rows rows(30, 16, 8);
  std::vector<Vector> keys, values = rows.v;
  for (size_t t = 0; t < 30; t++) keys.push_back(c.rotations[1].at(rows.k[t], static_cast<double>(t)));
  keys.push_back(c.rotations[1].at(rows.k[0], 30.0));
  values.push_back(rows.v[0]);
  expect_near(attend_rows(c, {forks[1]}, {1}, rows, 0, 1)[0],
              attend(c.rotations[1].at(rows.q[0], 30.0), keys, values, 0, 30, 0.25), "fork");
  // An emptied sequence may choose its set again. The next sequence in its slot has the default.
  const int64_t none = 0;
  ASSERT_EQ(kvc_seq_truncate(c.cache.get(), 1, &chosen, &none, nullptr), KVC_OK);
  EXPECT_EQ(c.set({chosen}, KVC_ROPE_SET_SHORT), KVC_OK);
  c.check(chosen, 0);
  ASSERT_EQ(kvc_seq_remove(c.cache.get(), 1, &forks[0], nullptr), KVC_OK);
  c.check(c.add(), 0);
  EXPECT_EQ(c.set({c.add()}, KVC_ROPE_SET_LONG), KVC_OK);
  ASSERT_EQ(kvc_cache_clear(c.cache.get(), nullptr), KVC_OK);
  for (int i = 0; i < 4; i++) c.check(c.add(), 0);
}

TEST(RopeAttention, RowsOfUnlikeSetsInOneStep) {
  LongRope c;
  const std::vector<kvc_seq> ids = {c.add(), c.add(), c.add()};
  EXPECT_EQ(c.set({ids[1]}, KVC_ROPE_SET_LONG), KVC_OK);
  const Rows rows(15, 16, 9);
  const auto out = attend_rows(c, ids, {4, 5, 6}, rows, 0, 15);
  size_t begin = 0;
  for (size_t r = 0; r < 3; r++) {
    const size_t length = 4 + r;
    const Rotation &rotation = c.rotations[r == 1 ? 1 : 0];
    std::vector<Vector> keys, values;
    for (size_t t = 0; t < length; t++) {
      keys.push_back(rotation.at(rows.k[begin + t], static_cast<double>(t)));
      values.push_back(rows.v[begin + t]);
      const Vector q = rotation.at(rows.q[begin + t], static_cast<double>(t));
      expect_near(out[begin + t], attend(q, keys, values, 0, t, 0.25), "row " + std::to_string(r));
    }
    begin += length;
  }
}

// Consecutive tokens of a step that have a position in common, and no angle.
TEST(RopeAttention, RowsOfUnlikeSetsAtOnePosition) {
  constexpr int kPast = 130;
  LongRope c(KVC_ROPE_ON_APPEND, 1000);
  const std::vector<kvc_seq> ids = {c.add(), c.add()};
  EXPECT_EQ(c.set({ids[1]}, KVC_ROPE_SET_LONG), KVC_OK);
  const Rows rows(kPast + 2, 16, 9);
  for (const kvc_seq id : ids) {
    for (int t = 0; t < kPast; t += 10) attend_rows(c, {id}, {10}, rows, t, t + 10);
  }
  const auto out = attend_rows(c, ids, {1, 1}, rows, kPast, kPast + 2);
  for (size_t r = 0; r < 2; r++) {
    const Rotation &rotation = c.rotations[r];
    std::vector<Vector> keys, values;
    for (size_t t = 0; t <= kPast; t++) {
      const size_t token = t < kPast ? t : kPast + r;
      keys.push_back(rotation.at(rows.k[token], static_cast<double>(t)));
      values.push_back(rows.v[token]);
    }
    const Vector q = rotation.at(rows.q[kPast + r], kPast);
    expect_near(out[r], attend(q, keys, values, 0, kPast, 0.25), "row " + std::to_string(r));
  }
}

// Keys are rotated on read, so a sequence may change its set. Beyond the original length it gets the long set by
// itself.
TEST(RopeOnRead, FactorSetByLength) {
  LongRope c(KVC_ROPE_ON_READ);
  const Rows rows(20, 16, 4);
  const kvc_seq id = c.add(), chosen = c.add();
  const auto wanted = [&](int set, size_t token) {
    std::vector<Vector> keys;
    for (size_t t = 0; t <= token; t++) keys.push_back(c.rotations[set].at(rows.k[t], static_cast<double>(t)));
    return attend(c.rotations[set].at(rows.q[token], static_cast<double>(token)), keys, rows.v, 0, token, 0.25);
  };
  for (size_t t = 0; t < 20; t++) {  // original_max_position is 16
    if (t == 5) {
      EXPECT_EQ(c.set({chosen}, KVC_ROPE_SET_LONG), KVC_OK);
    }
    const std::string what = "token " + std::to_string(t);
    expect_near(attend_rows(c, {id}, {1}, rows, t, t + 1)[0], wanted(t + 1 > 16, t), what);
    expect_near(attend_rows(c, {chosen}, {1}, rows, t, t + 1)[0], wanted(t >= 5, t), what + " of the chosen");
  }
}

TEST(RopeAttention, TheDigestKnowsTheSet) {
  LongRope a, b;
  const kvc_seq first = a.add(), second = b.add();
  const auto digest = [](RopeCache &c) {
    uint64_t value = 0;
    EXPECT_EQ(kvc_cache_digest(c.cache.get(), &value, nullptr), KVC_OK);
    return value;
  };
  EXPECT_EQ(digest(a), digest(b));
  EXPECT_EQ(a.set({first}, KVC_ROPE_SET_LONG), KVC_OK);
  EXPECT_NE(digest(a), digest(b));
  EXPECT_EQ(b.set({second}, KVC_ROPE_SET_LONG), KVC_OK);
  EXPECT_EQ(digest(a), digest(b));
}

}  // namespace
}  // namespace kvt
