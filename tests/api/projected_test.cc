// MLA with the caller's up-projections, compared with the definition in float64: K of a head is [W_UK c | r] and V is
// W_UV c, for the stored row [c | r]. The cost function chooses which rows are absorbed, decompressed or merged.
#include <cmath>
#include <random>

#include "fixture.h"
#include "reference.h"

namespace kvt {
namespace {

constexpr int kHeads = 5, kLatent = 32, kRotary = 8, kRow = kLatent + kRotary, kNope = 6, kOut = 10;
constexpr int kQ = kNope + kRotary, kMostKeys = 512, kDistances = 9;
constexpr double kScale = 0.3;

struct Sizes {
  int past, fresh;
};

CacheSpec spec_of(DType dtype, int rope, const GroupSpec &group) {
  CacheSpec spec;
  spec.groups = {group};
  spec.page_size = 8;
  spec.max_sequences = 6;
  spec.max_batch_tokens = 256;
  spec.capacity_tokens = 2048;
  LayerSpec layer{0, kHeads, 1, kRow};
  layer.latent = kLatent;
  layer.dtype = dtype;
  layer.rope = rope;
  layer.scale = kScale;
  spec.layers = {layer};
  return spec;
}

// A cache whose sequences hold `past` tokens each, and a step with `fresh` more of each. A copy of everything is kept.
struct Step {
  CacheSpec spec;
  DType type;  // of q, projections and out
  std::vector<Sizes> sizes;
  ContextPtr context;
  CachePtr owner;
  kvc_cache *cache;
  std::vector<kvc_seq> seqs;
  std::vector<std::vector<float>> rows;  // of each sequence, as the caller gave them
  std::mt19937 random{11};
  Tensor w, q, row, out, lse, rel_bias, key_bias, slopes{DType::kF32, {kHeads}}, sinks{DType::kF32, {kHeads}};
  DLTensor w_uk, w_uv;
  std::vector<uint8_t> mask;  // [tokens, kMostKeys]
  int64_t mask_shape[2] = {0, kMostKeys};
  int64_t uk_shape[3] = {kHeads, kNope, kLatent}, uv_shape[3] = {kHeads, kOut, kLatent};
  kvc_forward forward = 0;
  int tokens = 0;

  Step(DType dtype, DType t, int rope, std::vector<Sizes> s, int threads = 1, const char *simd = nullptr,
       std::vector<int32_t> parents = {}, const GroupSpec &group = {})
      : spec(spec_of(dtype, rope, group)),
        type(t),
        sizes(std::move(s)),
        context(make_context(threads, simd)),
        owner(make_cache(context.get(), spec)),
        cache(owner.get()),
        seqs(sizes.size()) {
    EXPECT_EQ(kvc_seq_add(cache, static_cast<int64_t>(seqs.size()), seqs.data(), nullptr), KVC_OK);
    std::vector<int32_t> lengths;
    for (size_t i = 0; i < sizes.size(); i++) {
      rows.push_back(numbers((sizes[i].past + sizes[i].fresh) * kRow, 1.0f, DType::kF32));
      lengths.push_back(sizes[i].fresh);
      tokens += sizes[i].fresh;
      if (sizes[i].past) append(i);
    }
    // kv_b_proj.weight: of each head kNope rows of K and kOut of V.
    w = Tensor(type, {kHeads, kNope + kOut, kLatent}, 2);
    fill(&w, 0.25f);
    q = Tensor(type, {tokens, kHeads, kQ}, 1);
    fill(&q, 1.5f);
    row = Tensor(DType::kF32, {tokens, 1, kRow});
    int64_t at = 0;
    for (size_t i = 0; i < sizes.size(); i++) {
      for (int j = 0; j < sizes[i].fresh; j++, at++) {
        for (int d = 0; d < kRow; d++) row.set(at, 0, d, rows[i][(sizes[i].past + j) * kRow + d]);
      }
    }
    out = Tensor(type, {tokens, kHeads, kOut}, 3);
    lse = Tensor(DType::kF32, {tokens, kHeads}, 2);
    for (int h = 0; h < kHeads; h++) {
      store(DType::kF32, slopes.data(), h, 0.3f / static_cast<float>(h + 1));
      store(DType::kF32, sinks.data(), h, static_cast<float>(h) * 0.5f - 1.0f);
    }
    rel_bias = Tensor(DType::kF32, {tokens, kHeads, kDistances});
    fill(&rel_bias, 1.0f);
    key_bias = Tensor(DType::kF32, {static_cast<int64_t>(sizes.size()), kMostKeys, 1});
    fill(&key_bias, 1.0f);
    for (int64_t b = 0; b < tokens * kMostKeys; b++) mask.push_back(random() % 3 != 0);
    mask_shape[0] = tokens;
    w_uk = w_uv = *w.dl();
    w_uk.shape = uk_shape;
    w_uv.shape = uv_shape;
    w_uv.byte_offset += static_cast<uint64_t>(kNope * w.dl()->strides[1] * size_of(type));
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = seqs.data();
    batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(seqs.size());
    if (!parents.empty()) batch.tree_parents = parents.data();
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_forward_begin(cache, &batch, nullptr, &forward, &error), KVC_OK) << error.message;
  }

  std::vector<float> numbers(int n, float amplitude, DType t) {
    std::normal_distribution<float> normal(0.0f, amplitude);
    std::vector<float> all;
    for (int i = 0; i < n; i++) all.push_back(round_to(t, normal(random)));
    return all;
  }
  void fill(Tensor *t, float amplitude) {
    for (int64_t a = 0; a < t->dim(0); a++) {
      for (int64_t b = 0; b < t->dim(1); b++) {
        const std::vector<float> x = numbers(static_cast<int>(t->dim(2)), amplitude, t->type());
        for (int64_t c = 0; c < t->dim(2); c++) t->set(a, b, c, x[c]);
      }
    }
  }
  void append(size_t i) {
    Tensor past(DType::kF32, {sizes[i].past, 1, kRow});
    for (int t = 0; t < sizes[i].past; t++) {
      for (int d = 0; d < kRow; d++) past.set(t, 0, d, rows[i][t * kRow + d]);
    }
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seqs[i];
    batch.append_lengths = &sizes[i].past;
    batch.num_sequences = 1;
    kvc_forward f = 0;
    EXPECT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, nullptr), KVC_OK);
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = past.dl();
    EXPECT_EQ(kvc_forward_append(cache, f, 0, &args, nullptr), KVC_OK);
    EXPECT_EQ(kvc_forward_end(cache, f, nullptr), KVC_OK);
  }
  kvc_attend_args args() {
    kvc_attend_args a;
    kvc_attend_args_init(&a);
    a.q = q.dl();
    a.k = row.dl();
    a.out = out.dl();
    a.lse = lse.dl();
    a.w_uk = &w_uk;
    a.w_uv = &w_uv;
    return a;
  }
  kvc_status attend(const kvc_attend_args &a) {
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = kvc_forward_attend(cache, forward, 0, &a, &error);
    EXPECT_EQ(status, KVC_OK) << error.message;
    return status;
  }

  // The row of a token as attention reads it: rounded for storage, its rotary part rotated at `position`.
  std::vector<float> stored(size_t i, int token, int position) const {
    const LayerSpec &l = spec.layers[0];
    std::vector<float> r(rows[i].begin() + token * kRow, rows[i].begin() + (token + 1) * kRow);
    const bool on_append = l.rope == KVC_ROPE_ON_APPEND;
    for (int d = 0; d < kRow; d++) {
      if (d < kLatent || !on_append) r[d] = round_to(l.dtype, r[d]);
    }
    if (l.rope == KVC_ROPE_NONE) return r;
    const std::vector<float> raw(r.begin() + kLatent, r.end());
    std::vector<float> flips(kRotary);
    rotate_rounded(on_append ? l.dtype : DType::kF32, raw.data(), kRotary, kRotary, 10000.0, position,
                   r.data() + kLatent, flips.data());
    return r;
  }

  double bias(const kvc_attend_args &a, size_t i, int64_t token, int h, int key, int distance) const {
    double sum = 0;
    if (a.rel_bias) sum += double{rel_bias.at(token, h, std::clamp(distance, 0, kDistances - 1))};
    if (a.key_bias) sum += double{key_bias.at(static_cast<int64_t>(i), key, 0)};
    return sum;
  }

  // Compares every output with the definition. seen(query, key) gets tokens of the sequence, as the positions are.
  void check(const kvc_attend_args &a, const std::function<bool(int, int)> &seen,
             const std::function<int(int)> &position) {
    int64_t first = 0;
    for (size_t i = 0; i < sizes.size(); first += sizes[i].fresh, i++) {
      const int length = sizes[i].past + sizes[i].fresh;
      for (int h = 0; h < kHeads; h++) {
        // In float64, and as programs with 16 bits compute: K and V are rounded, or q and the latent output.
        std::vector<double> keys(length * kQ), values(length * kOut);
        std::vector<float> rounded_keys(length * kQ), rounded_values(length * kOut);
        for (int j = 0; j < length; j++) {
          const std::vector<float> r = stored(i, j, position(j));
          for (int d = 0; d < kQ; d++) keys[j * kQ + d] = d < kNope ? dot(h, d, r) : double{r[kLatent + d - kNope]};
          for (int d = 0; d < kOut; d++) values[j * kOut + d] = dot(h, kNope + d, r);
        }
        for (size_t e = 0; e < keys.size(); e++) rounded_keys[e] = round_double(type, keys[e]);
        for (size_t e = 0; e < values.size(); e++) rounded_values[e] = round_double(type, values[e]);
        for (int t = 0; t < sizes[i].fresh; t++) {
          check_row(a, i, first + t, sizes[i].past + t, h, length, keys, values, rounded_keys, rounded_values, seen,
                    position);
        }
      }
    }
  }
  double dot(int head, int weight_row, const std::vector<float> &r) const {
    double sum = 0;
    for (int d = 0; d < kLatent; d++) sum += double{w.at(head, weight_row, d)} * double{r[d]};
    return sum;
  }
  void check_row(const kvc_attend_args &a, size_t i, int64_t token, int query, int h, int length,
                 const std::vector<double> &keys, const std::vector<double> &values,
                 const std::vector<float> &rounded_keys, const std::vector<float> &rounded_values,
                 const std::function<bool(int, int)> &seen, const std::function<int(int)> &position) const {
    std::vector<float> x(kQ), flips(kRotary);
    for (int d = 0; d < kQ; d++) x[d] = q.at(token, h, d);
    if (spec.layers[0].rope != KVC_ROPE_NONE) {
      const std::vector<float> raw(x.begin() + kNope, x.end());
      rotate_rounded(type, raw.data(), kRotary, kRotary, 10000.0, position(query), x.data() + kNope, flips.data());
    }
    // The absorbed form rounds q W_UK. This is the largest change of a score by that (five deviations).
    std::vector<double> latent_q(kLatent, 0.0);
    for (int d = 0; d < kLatent; d++) {
      for (int n = 0; n < kNope; n++) latent_q[d] += double{x[n]} * double{w.at(h, n, d)};
    }
    const double unit = type == DType::kF32 ? 0x1p-24 : type == DType::kF16 ? 0x1p-12 : 0x1p-9;
    double sum = 0, naive_sum = 0, slack = 0;
    std::vector<double> exact(kOut, 0.0), naive(kOut, 0.0), spread(kOut, 0.0);
    if (a.sinks) sum = naive_sum = std::exp(double{load(DType::kF32, sinks.data(), h)});
    const bool on_append = spec.layers[0].rope == KVC_ROPE_ON_APPEND;
    for (int j = 0; j < length; j++) {
      if (!seen(query, j) || (a.mask && !mask[static_cast<size_t>(token * kMostKeys + j)])) continue;
      const std::vector<float> r = stored(i, j, position(j));
      double score = 0, naive_score = 0, rounding = 0;
      for (int d = 0; d < kQ; d++) {
        score += double{x[d]} * keys[j * kQ + d];
        naive_score += double{x[d]} * double{rounded_keys[j * kQ + d]};
      }
      for (int d = 0; d < kLatent; d++) rounding += std::pow(latent_q[d] * double{r[d]} * unit, 2.0);
      for (int d = 0; d < kRotary; d++) {
        const double off = double{flips[d]} + (on_append ? 2 * unit * std::fabs(double{x[kNope + d]}) : 0.0);
        rounding += std::pow(off * double{r[kLatent + d]}, 2.0) / 4;
      }
      const double scale = a.softmax_scale != 0 ? a.softmax_scale : kScale;
      slack = std::max(slack, 5 * scale * std::sqrt(rounding));
      const auto shape = [&](double s) {
        s *= scale;
        if (a.softcap != 0) s = a.softcap * std::tanh(s / a.softcap);
        if (a.alibi_slopes) s -= double{load(DType::kF32, slopes.data(), h)} * std::abs(position(query) - position(j));
        return s + bias(a, i, token, h, j, position(query) - position(j));
      };
      const double p = std::exp(shape(score)), naive_p = std::exp(shape(naive_score));
      sum += p;
      naive_sum += naive_p;
      for (int d = 0; d < kOut; d++) {
        exact[d] += p * values[j * kOut + d];
        naive[d] += naive_p * double{rounded_values[j * kOut + d]};
        spread[d] += std::pow(p * values[j * kOut + d], 2.0);
      }
    }
    if (sum == 0) {
      for (int d = 0; d < kOut; d++) ASSERT_EQ(out.at(token, h, d), 0.0f);
      ASSERT_EQ(lse.at(token, h), -INFINITY);
      return;
    }
    for (int d = 0; d < kOut; d++) {
      const double wanted = exact[d] / sum;
      const double rounding = type == DType::kF32 ? 0 : 5 * unit * std::sqrt(spread[d]) / sum + half_ulp(type, wanted);
      const double allowed =
          2 * std::fabs(naive[d] / naive_sum - wanted) + 2e-5 + rounding + 2 * slack * std::sqrt(spread[d]) / sum;
      ASSERT_NEAR(out.at(token, h, d), wanted, allowed)
          << "sequence " << i << " query " << query << " head " << h << " dim " << d;
    }
    ASSERT_NEAR(lse.at(token, h), std::log(sum), 2e-5 + slack + 2 * std::fabs(std::log(naive_sum / sum)))
        << "sequence " << i << " query " << query << " head " << h;
  }
  void check_causal(const kvc_attend_args &a) {
    check(a, [](int query, int key) { return key <= query; }, [](int token) { return token; });
  }
};

// Decode, prompts, chunks over a past (merged from 13 tokens on, absorbed below), all in one batch.
const std::vector<Sizes> kMixed = {{30, 1}, {0, 20}, {25, 30}, {40, 5}, {0, 1}, {3, 40}};

TEST(Projected, AgreesWithTheDefinition) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (int rope : {KVC_ROPE_NONE, KVC_ROPE_ON_APPEND, KVC_ROPE_ON_READ}) {
        SCOPED_TRACE(std::string("stored ") + name_of(dtype) + " computed " + name_of(type) + " rope " +
                     std::to_string(rope));
        Step step(dtype, type, rope, kMixed, 1 + rope);
        const kvc_attend_args args = step.args();
        if (step.attend(args)) return;
        step.check_causal(args);
        if (testing::Test::HasFatalFailure()) return;
        EXPECT_EQ(kvc_forward_end(step.cache, step.forward, nullptr), KVC_OK);
      }
    }
  }
}

TEST(Projected, EveryTargetAgrees) {
  for (const std::string &simd : simd_targets()) {
    SCOPED_TRACE(simd);
    Step step(DType::kBF16, DType::kBF16, KVC_ROPE_ON_APPEND, {{20, 1}, {9, 25}, {0, 33}}, 2, simd.c_str());
    const kvc_attend_args args = step.args();
    if (step.attend(args)) return;
    step.check_causal(args);
  }
}

// Options apply to both parts, but sinks to one part only.
TEST(Projected, Options) {
  for (int option = 0; option < 8; option++) {
    SCOPED_TRACE(option);
    Step step(DType::kF32, DType::kF32, KVC_ROPE_ON_APPEND, {{25, 30}, {30, 2}, {0, 18}});
    kvc_attend_args args = step.args();
    if (option == 0) args.softcap = 1.5;
    if (option == 1) args.alibi_slopes = step.slopes.dl();
    if (option == 2) args.sinks = step.sinks.dl();
    if (option == 3) args.softmax_scale = 0.1;
    if (option == 4) args.flags = KVC_ATTEND_NON_CAUSAL;
    if (option == 5) args.rel_bias = step.rel_bias.dl();
    if (option == 6) args.key_bias = step.key_bias.dl();
    const DLTensor mask = {step.mask.data(), test_device(), 2, {kDLUInt, 8, 1}, step.mask_shape, nullptr, 0};
    if (option == 7) args.mask = &mask;
    if (step.attend(args)) return;
    step.check(args, [&](int query, int key) { return option == 4 || key <= query; }, [](int token) { return token; });
  }
}

// Calls for the past and for the new tokens alone, and what each leaves out.
TEST(Projected, Parts) {
  for (uint32_t flags : {KVC_ATTEND_PAST, KVC_ATTEND_SELF}) {
    Step step(DType::kF32, DType::kF32, KVC_ROPE_ON_APPEND, {{25, 30}});
    kvc_attend_args args = step.args();
    args.flags = flags;
    if (step.attend(args)) return;
    const bool past = flags == KVC_ATTEND_PAST;
    step.check(
        args, [&](int query, int key) { return past ? key < 25 : key >= 25 && key <= query; },
        [](int token) { return token; });
  }
}

// Rows that are absorbed, decompressed, or merged from both forms. Their queries see a window or a chunk only.
TEST(Projected, WindowsAndChunks) {
  const auto seen = [](const GroupSpec &group, int query, int key) {
    if (group.chunk > 0 && key / group.chunk != query / group.chunk) return false;
    return key <= query && (group.window == 0 || key > query - group.window);
  };
  for (const int64_t tokens : {1, 7, 16, 33}) {
    for (const GroupSpec &group : {GroupSpec{tokens, 0}, GroupSpec{0, 0, tokens}}) {
      for (DType type : {DType::kF32, DType::kBF16}) {
        SCOPED_TRACE((group.window ? "window " : "chunk ") + std::to_string(tokens) + " computed " + name_of(type));
        Step step(type, type, KVC_ROPE_ON_APPEND, kMixed, 2, nullptr, {}, group);
        const kvc_attend_args args = step.args();
        if (step.attend(args)) return;
        step.check(args, [&](int query, int key) { return seen(group, query, key); }, [](int token) { return token; });
        if (testing::Test::HasFatalFailure()) return;
        EXPECT_EQ(kvc_forward_end(step.cache, step.forward, nullptr), KVC_OK);
      }
    }
  }
}

// A tree that is wide enough to be decompressed. Each node sees the past and its ancestors.
TEST(Projected, Trees) {
  constexpr int kPast = 9, kNodes = 31;
  std::vector<int32_t> parents;
  for (int i = 0; i < kNodes; i++) parents.push_back(i == 0 ? KVC_TREE_ROOT : (i - 1) / 2);
  Step step(DType::kF32, DType::kF32, KVC_ROPE_ON_APPEND, {{kPast, kNodes}}, 2, nullptr, parents);
  const kvc_attend_args args = step.args();
  if (step.attend(args)) return;
  step.check(
      args,
      [&](int query, int key) {
        if (key < kPast) return true;
        int node = query - kPast;
        while (node > key - kPast) node = parents[node];
        return node == key - kPast;
      },
      [&](int token) {
        int depth = -1;
        for (int node = token - kPast; node >= 0; node = parents[node]) depth++;
        return token < kPast ? token : kPast + depth;
      });
}

// Float8 rows: decompression wants numbers, so every row is absorbed, whatever its length.
TEST(Projected, QuantisedRowsAreAbsorbed) {
  Step floats(DType::kF32, DType::kF32, KVC_ROPE_NONE, {{5, 30}}),
      bytes(DType::kI8, DType::kF32, KVC_ROPE_NONE, {{5, 30}});
  if (floats.attend(floats.args()) || bytes.attend(bytes.args())) return;
  for (int t = 0; t < 30; t++) {
    for (int h = 0; h < kHeads; h++) {
      for (int d = 0; d < kOut; d++) ASSERT_NEAR(bytes.out.at(t, h, d), floats.out.at(t, h, d), 0.1);
    }
  }
}

// Rows of padding between rows of sequences.
TEST(Projected, InertRowsAreLeftAlone) {
  Step step(DType::kF32, DType::kF32, KVC_ROPE_NONE, {{3, 1}});
  EXPECT_EQ(kvc_forward_abort(step.cache, step.forward, nullptr), KVC_OK);
  const kvc_seq seqs[] = {0, step.seqs[0], 0};
  const int32_t lengths[] = {2, 20, 1};
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = seqs;
  batch.append_lengths = lengths;
  batch.num_sequences = 3;
  kvc_forward f = 0;
  ASSERT_EQ(kvc_forward_begin(step.cache, &batch, nullptr, &f, nullptr), KVC_OK);
  Tensor q(DType::kF32, {23, kHeads, kQ}), row(DType::kF32, {23, 1, kRow}), out(DType::kF32, {23, kHeads, kOut});
  step.fill(&q, 1.0f);
  step.fill(&row, 1.0f);
  const Tensor untouched = out;
  kvc_attend_args args = step.args();
  args.q = q.dl();
  args.k = row.dl();
  args.out = out.dl();
  args.lse = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_forward_attend(step.cache, f, 0, &args, &error), KVC_OK) << error.message;
  for (int t : {0, 1, 22}) {
    for (int h = 0; h < kHeads; h++) {
      for (int d = 0; d < kOut; d++) EXPECT_EQ(bits_of(out.at(t, h, d)), bits_of(untouched.at(t, h, d)));
    }
  }
  EXPECT_NE(bits_of(out.at(2, 0, 0)), bits_of(untouched.at(2, 0, 0)));
  EXPECT_EQ(kvc_forward_abort(step.cache, f, nullptr), KVC_OK);
}

TEST(Projected, RefusesWhatMakesNoSense) {
  Step step(DType::kF32, DType::kF32, KVC_ROPE_NONE, {{3, 4}});
  Tensor few(DType::kF32, {kHeads - 1, kNope, kLatent}), many(DType::kF32, {kHeads + 1, kNope, kLatent}),
      narrow(DType::kF32, {kHeads, kNope, kLatent - 1}), none(DType::kF32, {kHeads, 0, kLatent}),
      wide(DType::kF32, {kHeads, 1025 - kRotary, kLatent}), flat(DType::kF32, {kHeads * kNope, kLatent}),
      latent_q(DType::kF32, {4, kHeads, kRow}), latent_out(DType::kF32, {4, kHeads, kLatent});
  DLTensor elsewhere = step.w_uk;
  elsewhere.device.device_type = kDLCUDA;
  struct Bad {
    kvc_status status;
    std::vector<std::string> mentions;
    std::function<void(kvc_attend_args *)> change;
  };
  const std::vector<Bad> all = {
      {KVC_ERROR_NULL_ARGUMENT, {"w_uv is NULL"}, [](kvc_attend_args *a) { a->w_uv = nullptr; }},
      {KVC_ERROR_NULL_ARGUMENT, {"w_uk is NULL"}, [](kvc_attend_args *a) { a->w_uk = nullptr; }},
      {KVC_ERROR_SHAPE, {"w_uk", "[4, 6, 32]"}, [&](kvc_attend_args *a) { a->w_uk = few.dl(); }},
      {KVC_ERROR_SHAPE, {"w_uk has 6 heads"}, [&](kvc_attend_args *a) { a->w_uk = many.dl(); }},
      {KVC_ERROR_SHAPE, {"w_uv", "[5, 6, 31]"}, [&](kvc_attend_args *a) { a->w_uv = narrow.dl(); }},
      {KVC_ERROR_SHAPE, {"w_uk", "0 dims"}, [&](kvc_attend_args *a) { a->w_uk = none.dl(); }},
      {KVC_ERROR_SHAPE, {"w_uk", "1..1016"}, [&](kvc_attend_args *a) { a->w_uk = wide.dl(); }},
      {KVC_ERROR_RANK, {"w_uv"}, [&](kvc_attend_args *a) { a->w_uv = flat.dl(); }},
      {KVC_ERROR_DEVICE, {"w_uk"}, [&](kvc_attend_args *a) { a->w_uk = &elsewhere; }},
      {KVC_ERROR_SHAPE, {"q has shape", "[4, 5, 14]"}, [&](kvc_attend_args *a) { a->q = latent_q.dl(); }},
      {KVC_ERROR_SHAPE, {"out has shape", "[4, 5, 10]"}, [&](kvc_attend_args *a) { a->out = latent_out.dl(); }},
  };
  for (const Bad &bad : all) {
    SCOPED_TRACE(bad.mentions[0]);
    kvc_attend_args args = step.args();
    bad.change(&args);
    refused(
        step.cache, {bad.status}, "kvc_forward_attend",
        [&](kvc_error *e) { return kvc_forward_attend(step.cache, step.forward, 0, &args, e); }, bad.mentions);
  }
  World plain;
  const kvc_forward f = plain.begin({plain.seq}, {1});
  LayerTensors t(plain.spec.layers[0], 1);
  kvc_attend_args args = t.attend_args();
  args.w_uk = &step.w_uk;
  args.w_uv = &step.w_uv;
  refused(plain.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_attend",
          [&](kvc_error *e) { return kvc_forward_attend(plain.cache, f, 0, &args, e); }, {"not MLA"});
  EXPECT_EQ(kvc_forward_abort(plain.cache, f, nullptr), KVC_OK);
}

}  // namespace
}  // namespace kvt
