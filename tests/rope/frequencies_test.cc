// Frequencies of published models, compared with numbers that were computed in decimal (goldens.py), and refused
// settings.
#include "rope/frequencies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/backend.h"

namespace kvc {
namespace {

struct Turn {
  int32_t position, pair;
  double cosine, sine;
};
struct Golden {
  const char* name;
  double attention_factor;
  std::vector<double> frequencies;
  std::vector<double> factors;  // longrope
  std::vector<Turn> turns;
};

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = {
#include "goldens.inc"
  };
  return all;
}

const Golden& golden(const std::string& name) {
  for (const Golden& g : goldens()) {
    if (g.name == name) return g;
  }
  throw std::runtime_error("no golden " + name);
}

kvc_rope_scaling scaling_of(int32_t kind, double factor = 0.0, int64_t original = 0) {
  kvc_rope_scaling scaling;
  kvc_rope_scaling_init(&scaling);
  scaling.kind = kind;
  scaling.factor = factor;
  scaling.original_max_position = original;
  return scaling;
}

kvc_rope_scaling llama31() {
  kvc_rope_scaling scaling = scaling_of(KVC_ROPE_SCALING_LLAMA3, 8.0, 8192);
  scaling.low_freq_factor = 1.0;
  scaling.high_freq_factor = 4.0;
  return scaling;
}

kvc_rope_scaling deepseek_v3() {
  kvc_rope_scaling scaling = scaling_of(KVC_ROPE_SCALING_YARN, 40.0, 4096);
  scaling.beta_fast = 32.0;
  scaling.beta_slow = 1.0;
  scaling.mscale = 1.0;
  scaling.mscale_all_dim = 1.0;
  return scaling;
}

kvc_rope_scaling gpt_oss() {
  kvc_rope_scaling scaling = scaling_of(KVC_ROPE_SCALING_YARN, 32.0, 4096);
  scaling.flags = KVC_ROPE_SCALING_NO_TRUNCATE;
  return scaling;
}

kvc_rope_scaling phi35(const std::vector<double>& shorts, const std::vector<double>& longs) {
  kvc_rope_scaling scaling = scaling_of(KVC_ROPE_SCALING_LONGROPE, 32.0, 4096);  // 131072 / 4096
  scaling.short_factors = shorts.data();
  scaling.num_short_factors = static_cast<int32_t>(shorts.size());
  scaling.long_factors = longs.data();
  scaling.num_long_factors = static_cast<int32_t>(longs.size());
  return scaling;
}

// Frequencies are right within a few units in the last place of float64. cos and sin, as the CPU backend computes them,
// are right within one unit of float32.
void expect_golden(const std::string& name, const RopeFrequencies& got) {
  const Golden& wanted = golden(name);
  EXPECT_NEAR(got.attention_factor, wanted.attention_factor, 1e-15) << name;
  ASSERT_EQ(got.inverse.size(), wanted.frequencies.size()) << name;
  for (size_t i = 0; i < got.inverse.size(); ++i) {
    EXPECT_NEAR(got.inverse[i], wanted.frequencies[i], wanted.frequencies[i] * 5e-15) << name << " pair " << i;
  }
  const auto half = static_cast<int32_t>(got.inverse.size());
  std::vector<double> table(static_cast<size_t>(KVC_BACKEND_ROPE_LEVELS * KVC_BACKEND_ROPE_RADIX * 2 * half));
  const kvc_backend* backend = kvc_cpu_backend_get(KVC_BACKEND_VERSION);
  const kvc_backend_rope_table table_args = {2 * half, 0, got.inverse.data(), got.attention_factor, table.data()};
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(backend->rope_table(nullptr, &table_args, &error), KVC_OK);
  for (const Turn& turn : wanted.turns) {
    std::vector<float> cos_sin(static_cast<size_t>(2 * half));
    const kvc_backend_rope args = {2 * half, 1, table.data(), &turn.position, nullptr, cos_sin.data()};
    ASSERT_EQ(backend->rope(nullptr, &args, nullptr, &error), KVC_OK);
    const auto pair = static_cast<size_t>(turn.pair);
    EXPECT_NEAR(cos_sin[pair], turn.cosine, 6.1e-8 * wanted.attention_factor) << name << " at " << turn.position;
    EXPECT_NEAR(cos_sin[pair + static_cast<size_t>(half)], turn.sine, 6.1e-8 * wanted.attention_factor) << name;
  }
}

RopeFrequencies only(const std::vector<RopeFrequencies>& sets) {
  EXPECT_EQ(sets.size(), 1u);
  return sets[0];
}

TEST(RopeFrequencies, PublishedModels) {
  const kvc_rope_scaling none = scaling_of(KVC_ROPE_SCALING_NONE);
  expect_golden("gptj_6b", only(make_rope_frequencies(none, 64, 10000.0)));
  expect_golden("phi_2", only(make_rope_frequencies(none, 32, 10000.0)));
  expect_golden("llama31_8b", only(make_rope_frequencies(llama31(), 128, 500000.0)));
  expect_golden("deepseek_v3", only(make_rope_frequencies(deepseek_v3(), 64, 10000.0)));
  expect_golden("gemma3_full", only(make_rope_frequencies(scaling_of(KVC_ROPE_SCALING_LINEAR, 8.0), 256, 1e6)));
  expect_golden("qwen25_yarn", only(make_rope_frequencies(scaling_of(KVC_ROPE_SCALING_YARN, 4.0, 32768), 128, 1e6)));
  expect_golden("gpt_oss_20b", only(make_rope_frequencies(gpt_oss(), 64, 150000.0)));
  const std::vector<double>&shorts = golden("phi35_mini_short").factors, &longs = golden("phi35_mini_long").factors;
  const auto sets = make_rope_frequencies(phi35(shorts, longs), 96, 10000.0);
  ASSERT_EQ(sets.size(), 2u);
  expect_golden("phi35_mini_short", sets[0]);
  expect_golden("phi35_mini_long", sets[1]);
}

// Numbers that the models' own code and cards print.
TEST(RopeFrequencies, PublishedAttentionFactors) {
  const auto factor = [](const kvc_rope_scaling& s, int32_t dim, double theta) {
    return make_rope_frequencies(s, dim, theta)[0].attention_factor;
  };
  EXPECT_NEAR(factor(gpt_oss(), 64, 150000.0), 1.3465735902799727, 1e-15);
  EXPECT_NEAR(factor(scaling_of(KVC_ROPE_SCALING_YARN, 4.0, 32768), 128, 1e6), 1.138629436111989, 1e-15);
  const std::vector<double> ones(48, 1.0);
  EXPECT_NEAR(factor(phi35(ones, ones), 96, 10000.0), 1.1902380714238083, 1e-15);
  kvc_rope_scaling moe = phi35(ones, ones);  // Phi-3.5-MoE has its own
  moe.attention_factor = 1.243163121016122;
  EXPECT_EQ(factor(moe, 96, 10000.0), 1.243163121016122);
  // DeepSeek-V3: cos and sin are not scaled, the softmax scale is. As docs/reference/rope.md says: mscale^2 /
  // sqrt(192).
  EXPECT_EQ(factor(deepseek_v3(), 64, 10000.0), 1.0);
  const double mscale = factor(scaling_of(KVC_ROPE_SCALING_YARN, 40.0, 4096), 64, 10000.0);
  EXPECT_NEAR(mscale * mscale / std::sqrt(192.0), 0.13523, 5e-6);
  kvc_rope_scaling lite = deepseek_v3();  // different mscales, of which the ratio counts
  lite.mscale = 0.707;
  EXPECT_NEAR(factor(lite, 64, 10000.0), (0.0707 * std::log(40.0) + 1.0) / (0.1 * std::log(40.0) + 1.0), 1e-15);
}

// YaRN's parameters as Hugging Face transformers computes them (_compute_yarn_parameters in modeling_rope_utils.py),
// written in that function's own form and independent of the library's. Its torch tensors are float64 here.
struct YarnParameters {
  std::vector<double> inverse;
  double attention_factor;
  double low, high;  // the clamped bounds of the ramp
};

YarnParameters hugging_face_yarn(const kvc_rope_scaling& s, int32_t dim, double base) {
  const auto get_mscale = [](double scale, double mscale) {
    return scale <= 1.0 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
  };
  YarnParameters result = {};
  if (s.attention_factor != 0.0) {
    result.attention_factor = s.attention_factor;
  } else if (s.mscale != 0.0 && s.mscale_all_dim != 0.0) {
    result.attention_factor = get_mscale(s.factor, s.mscale) / get_mscale(s.factor, s.mscale_all_dim);
  } else {
    result.attention_factor = get_mscale(s.factor, 1.0);
  }
  const auto find_correction_dim = [&](double rotations) {
    const double wave = rotations * 2.0 * 3.14159265358979323846;
    return dim * std::log(static_cast<double>(s.original_max_position) / wave) / (2.0 * std::log(base));
  };
  result.low = find_correction_dim(s.beta_fast == 0.0 ? 32.0 : s.beta_fast);
  result.high = find_correction_dim(s.beta_slow == 0.0 ? 1.0 : s.beta_slow);
  if ((s.flags & KVC_ROPE_SCALING_NO_TRUNCATE) == 0) {
    result.low = std::floor(result.low);
    result.high = std::ceil(result.high);
  }
  result.low = std::max(result.low, 0.0);
  result.high = std::min(result.high, dim - 1.0);
  const double maximum = result.low == result.high ? result.high + 0.001 : result.high;
  for (int32_t i = 0; i < dim / 2; ++i) {
    const double position_frequency = std::pow(base, 2.0 * i / dim);
    const double extrapolation = 1.0 / position_frequency, interpolation = 1.0 / (s.factor * position_frequency);
    const double ramp = std::min(std::max((i - result.low) / (maximum - result.low), 0.0), 1.0);
    const double extrapolation_factor = 1.0 - ramp;
    result.inverse.push_back(interpolation * (1.0 - extrapolation_factor) + extrapolation * extrapolation_factor);
  }
  return result;
}

// Every setting that Hugging Face accepts, alone and together, with bounds in order, equal and inverted.
TEST(RopeFrequencies, YarnIsThatOfHuggingFace) {
  int inverted = 0, equal = 0, partial = 0;
  for (const int32_t dim : {2, 8, 64, 128}) {
    for (const double base : {10.0, 1e4, 1e6}) {
      for (const int64_t original : {2, 64, 4096, 1 << 30}) {
        for (const auto& [fast, slow] : {std::pair{0.0, 0.0}, {32.0, 1.0}, {1.0, 32.0}, {2.0, 2.0}, {1e6, 1e-6}}) {
          for (const uint32_t flags : {0u, uint32_t{KVC_ROPE_SCALING_NO_TRUNCATE}}) {
            kvc_rope_scaling s = scaling_of(KVC_ROPE_SCALING_YARN, 4.0, original);
            s.beta_fast = fast;
            s.beta_slow = slow;
            s.flags = flags;
            ASSERT_TRUE(check_rope_scaling(s, dim, base, 0).ok()) << check_rope_scaling(s, dim, base, 0).message();
            const RopeFrequencies got = only(make_rope_frequencies(s, dim, base));
            const YarnParameters wanted = hugging_face_yarn(s, dim, base);
            ASSERT_EQ(got.inverse.size(), wanted.inverse.size());
            for (size_t i = 0; i < got.inverse.size(); ++i) {
              EXPECT_NEAR(got.inverse[i], wanted.inverse[i], wanted.inverse[i] * 1e-12)
                  << "dim " << dim << " base " << base << " original " << original << " betas " << fast << " " << slow
                  << " flags " << flags << " pair " << i;
            }
            EXPECT_NEAR(got.attention_factor, wanted.attention_factor, 1e-15);
            inverted += wanted.low > wanted.high ? 1 : 0;
            equal += wanted.low == wanted.high ? 1 : 0;
            partial += wanted.low < wanted.high ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(inverted, 50);
  EXPECT_GT(equal, 10);
  EXPECT_GT(partial, 50);
}

TEST(RopeFrequencies, YarnAttentionFactorsInEveryCombination) {
  for (const double attention : {0.0, 0.5, 2.0}) {
    for (const double mscale : {0.0, 0.707, 1.0}) {
      for (const double all_dim : {0.0, 0.5, 1.0}) {
        kvc_rope_scaling s = scaling_of(KVC_ROPE_SCALING_YARN, 40.0, 4096);
        s.attention_factor = attention;
        s.mscale = mscale;
        s.mscale_all_dim = all_dim;
        ASSERT_TRUE(check_rope_scaling(s, 64, 1e4, 0).ok()) << check_rope_scaling(s, 64, 1e4, 0).message();
        EXPECT_NEAR(make_rope_frequencies(s, 64, 1e4)[0].attention_factor,
                    hugging_face_yarn(s, 64, 1e4).attention_factor, 1e-15)
            << attention << " " << mscale << " " << all_dim;
      }
    }
  }
  kvc_rope_scaling alone = scaling_of(KVC_ROPE_SCALING_YARN, 40.0, 4096);  // 0.1 ln 40 + 1, worked out by hand
  alone.mscale = 0.707;
  EXPECT_NEAR(make_rope_frequencies(alone, 64, 1e4)[0].attention_factor, 1.3688879454113936, 1e-15);
  alone.mscale_all_dim = 0.707;
  alone.attention_factor = 1.5;
  EXPECT_EQ(make_rope_frequencies(alone, 64, 1e4)[0].attention_factor, 1.5);
}

TEST(RopeFrequencies, DegenerateBlends) {
  // The lower bound is above the last pair, so the ramp falls and every pair is interpolated (as in Hugging Face).
  const auto fast = make_rope_frequencies(scaling_of(KVC_ROPE_SCALING_YARN, 4.0, 1 << 30), 8, 10.0);
  EXPECT_EQ(fast[0].inverse, make_rope_frequencies(scaling_of(KVC_ROPE_SCALING_LINEAR, 4.0), 8, 10.0)[0].inverse);
  kvc_rope_scaling one = scaling_of(KVC_ROPE_SCALING_YARN, 1.0, 4096);
  EXPECT_EQ(make_rope_frequencies(one, 64, 1e4)[0].attention_factor, 1.0);
  const auto odd = make_rope_frequencies(scaling_of(KVC_ROPE_SCALING_YARN, 1e6, 2), 512, 1.0001);
  for (double f : odd[0].inverse) EXPECT_TRUE(std::isfinite(f));
}

struct Refusal {
  const char* what;
  kvc_status status;
  std::string mentions;
  void (*change)(kvc_rope_scaling*);
  kvc_rope_scaling (*base)();
};

TEST(RopeFrequencies, Refusals) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  using S = kvc_rope_scaling;
  const auto linear = [] { return scaling_of(KVC_ROPE_SCALING_LINEAR, 8.0); };
  const auto long_rope = [] {
    static const std::vector<double> ones(32, 1.0);
    return phi35(ones, ones);
  };
  static const std::vector<double> bad(32, -1.0);
  constexpr kvc_status kBad = KVC_ERROR_INVALID_ARGUMENT;
  const Refusal refusals[] = {
      {"kind", kBad, "kind 5", [](S* s) { s->kind = 5; }, linear},
      {"negative kind", kBad, "kind -1", [](S* s) { s->kind = -1; }, linear},
      {"unknown flag", KVC_ERROR_UNSUPPORTED, "flags 0x2", [](S* s) { s->flags = 2; }, linear},
      {"reserved", KVC_ERROR_UNSUPPORTED, "reserved 0x7", [](S* s) { s->reserved = 7; }, linear},
      {"yarn's flag", kBad, "flags 1 does not belong to linear", [](S* s) { s->flags = 1; }, linear},
      {"no factor", kBad, "factor 0 of linear", [](S* s) { s->factor = 0.0; }, linear},
      {"factor below 1", kBad, "factor 0.5 of linear", [](S* s) { s->factor = 0.5; }, linear},
      {"factor NaN", kBad, "factor", [](S* s) { s->factor = kNan; }, linear},
      {"factor infinite", kBad, "factor inf", [](S* s) { s->factor = kInfinity; }, linear},
      {"foreign field", kBad, "beta_fast 32 does not belong to linear", [](S* s) { s->beta_fast = 32.0; }, linear},
      {"foreign NaN", kBad, "does not belong", [](S* s) { s->mscale = kNan; }, linear},
      {"no original length", kBad, "original_max_position 0 of llama3", [](S* s) { s->original_max_position = 0; },
       llama31},
      {"original length", kBad, "original_max_position", [](S* s) { s->original_max_position = INT64_MAX; }, llama31},
      {"no low factor", kBad, "low_freq_factor 0", [](S* s) { s->low_freq_factor = 0.0; }, llama31},
      {"high not above low", kBad, "high_freq_factor 1 of llama3 is not above low_freq_factor 1",
       [](S* s) { s->high_freq_factor = 1.0; }, llama31},
      {"no yarn length", kBad, "original_max_position 0 of yarn", [](S* s) { s->original_max_position = 0; }, gpt_oss},
      {"attention factor", kBad, "attention_factor -1", [](S* s) { s->attention_factor = -1.0; }, gpt_oss},
      {"too few factors", kBad, "num_short_factors 31 of longrope is not 32", [](S* s) { s->num_short_factors = 31; },
       long_rope},
      {"too many factors", kBad, "num_long_factors 33", [](S* s) { s->num_long_factors = 33; }, long_rope},
      {"NULL factors", KVC_ERROR_NULL_ARGUMENT, "long_factors is NULL", [](S* s) { s->long_factors = nullptr; },
       long_rope},
      {"bad factors", kBad, "short_factors[0] -1", [](S* s) { s->short_factors = bad.data(); }, long_rope},
      {"factors of linear", kBad, "num_long_factors 2 of linear is not 0", [](S* s) { s->num_long_factors = 2; },
       linear},
      {"field of none", kBad, "factor 8 does not belong to no scaling", [](S* s) { s->kind = 0; }, linear},
  };
  for (const Refusal& refusal : refusals) {
    kvc_rope_scaling scaling = refusal.base();
    EXPECT_TRUE(check_rope_scaling(scaling, 64, 10000.0, 3).ok()) << refusal.what;
    refusal.change(&scaling);
    const Status status = check_rope_scaling(scaling, 64, 10000.0, 3);
    EXPECT_EQ(status.code(), refusal.status) << refusal.what;
    if (status.ok()) continue;
    const std::string message = status.message();
    EXPECT_NE(message.find(refusal.mentions), std::string::npos) << refusal.what << ": " << message;
    EXPECT_EQ(message.rfind("layer 3: rope_scaling: ", 0), 0u) << message;
  }
  EXPECT_FALSE(check_rope_scaling(gpt_oss(), 64, 1.0, 0).ok()) << "yarn's blend needs a base above 1";
}

}  // namespace
}  // namespace kvc
