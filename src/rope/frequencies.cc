#include "rope/frequencies.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <numbers>

namespace kvc {
namespace {

constexpr double kLargestFactor = 1e6;
constexpr double kSmallestFactor = 1e-6;
constexpr int64_t kLargestPosition = int64_t{1} << 30;
constexpr double kTwoPi = 2.0 * std::numbers::pi;

double or_default(double value, double fallback) { return value == 0.0 ? fallback : value; }

constexpr uint32_t bit(int32_t kind) { return 1u << kind; }
constexpr uint32_t kLinear = bit(KVC_ROPE_SCALING_LINEAR), kLlama3 = bit(KVC_ROPE_SCALING_LLAMA3),
                   kYarn = bit(KVC_ROPE_SCALING_YARN), kLongrope = bit(KVC_ROPE_SCALING_LONGROPE);

const char* kind_name(int32_t kind) {
  static constexpr const char* kNames[] = {"no scaling", "linear", "llama3", "yarn", "longrope"};
  return kNames[kind];
}

// One number of kvc_rope_scaling. `kinds` has a bit for each kind of scaling that uses the number.
// `kinds_with_default` has a bit for each kind for which 0 means a default. Other values must be in [low, high].
struct Number {
  const char* name;
  double value;
  uint32_t kinds;
  uint32_t kinds_with_default;
  double low, high;
};

Status check_number(const Number& number, int32_t kind, int64_t layer) {
  if ((number.kinds & bit(kind)) == 0) {
    if (number.value == 0.0) return Status();
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": rope_scaling: %s %g does not belong to %s",
                         layer, number.name, number.value, kind_name(kind));
  }
  if (number.value == 0.0 && (number.kinds_with_default & bit(kind)) != 0) return Status();
  if (number.value >= number.low && number.value <= number.high) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": rope_scaling: %s %g of %s is outside %g..%g",
                       layer, number.name, number.value, kind_name(kind), number.low, number.high);
}

Status check_factors(const char* name, const double* factors, int32_t count, const kvc_rope_scaling& scaling,
                     int32_t rope_dim, int64_t layer) {
  const bool longrope = scaling.kind == KVC_ROPE_SCALING_LONGROPE;
  const int32_t wanted = longrope ? rope_dim / 2 : 0;
  if (count != wanted) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64 ": rope_scaling: num_%s %d of %s is not %d (half of rope_dim %d)", layer,
                         name, count, kind_name(scaling.kind), wanted, longrope ? rope_dim : 0);
  }
  if (count > 0 && factors == nullptr) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "layer %" PRId64 ": rope_scaling: %s is NULL with num_%s %d", layer,
                         name, name, count);
  }
  for (int32_t i = 0; i < count; ++i) {
    if (factors[i] >= kSmallestFactor && factors[i] <= kLargestFactor) continue;
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": rope_scaling: %s[%d] %g is outside %g..%g",
                         layer, name, i, factors[i], kSmallestFactor, kLargestFactor);
  }
  return Status();
}

double yarn_beta_fast(const kvc_rope_scaling& s) { return or_default(s.beta_fast, 32.0); }
double yarn_beta_slow(const kvc_rope_scaling& s) { return or_default(s.beta_slow, 1.0); }

Status check_relations(const kvc_rope_scaling& s, double theta, int64_t layer) {
  const auto refuse = [&](const char* a, double a_value, const char* what, const char* b, double b_value) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": rope_scaling: %s %g of %s %s %s %g", layer, a,
                         a_value, kind_name(s.kind), what, b, b_value);
  };
  if (s.kind == KVC_ROPE_SCALING_LLAMA3 && s.high_freq_factor <= s.low_freq_factor) {
    return refuse("high_freq_factor", s.high_freq_factor, "is not above", "low_freq_factor", s.low_freq_factor);
  }
  if (s.kind == KVC_ROPE_SCALING_YARN && theta <= 1.0) {
    return refuse("rope_theta", theta, "is not above", "the smallest base,", 1.0);
  }
  return Status();
}

// Returns the factor on cos and sin for a context that is `factor` times longer: 0.1 * m * ln(factor) + 1 (YaRN,
// section 3.4).
double yarn_mscale(double factor, double m) { return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0; }

// Uses the first of these settings that is given: attention_factor, or mscale with mscale_all_dim, or factor. If only
// one of mscale and mscale_all_dim is given, that setting has no effect. Hugging Face reads its configurations in the
// same way.
double attention_factor(const kvc_rope_scaling& s) {
  if (s.attention_factor != 0.0) return s.attention_factor;
  const double factor = or_default(s.factor, 1.0);
  if (s.kind == KVC_ROPE_SCALING_YARN) {
    if (s.mscale == 0.0 || s.mscale_all_dim == 0.0) return yarn_mscale(factor, 1.0);
    return yarn_mscale(factor, s.mscale) / yarn_mscale(factor, s.mscale_all_dim);
  }
  if (s.kind == KVC_ROPE_SCALING_LONGROPE && factor > 1.0) {
    return std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(s.original_max_position)));
  }
  return 1.0;
}

void scale_llama3(const kvc_rope_scaling& s, std::vector<double>* inverse) {
  const auto original = static_cast<double>(s.original_max_position);
  for (double& f : *inverse) {
    const double turns = original * f / kTwoPi;  // number of rotations within the original context
    const double kept = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    const double blend = std::clamp(kept, 0.0, 1.0);
    f = (1.0 - blend) * f / s.factor + blend * f;
  }
}

void scale_yarn(const kvc_rope_scaling& s, int32_t rope_dim, double theta, std::vector<double>* inverse) {
  const auto original = static_cast<double>(s.original_max_position);
  // Returns the index of the pair that makes this many rotations within the original context. The index is a real
  // number.
  const auto pair_of_turns = [&](double turns) {
    return rope_dim * std::log(original / (turns * kTwoPi)) / (2.0 * std::log(theta));
  };
  double low = pair_of_turns(yarn_beta_fast(s));
  double high = pair_of_turns(yarn_beta_slow(s));
  if ((s.flags & KVC_ROPE_SCALING_NO_TRUNCATE) == 0) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  // Each bound is clamped on one side only, so low may be above high. The ramp then falls instead of rising.
  low = std::max(low, 0.0);
  high = std::min(high, rope_dim - 1.0);
  if (high == low) high += 0.001;  // avoids a division by 0; the ramp becomes a jump
  for (size_t i = 0; i < inverse->size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& f = (*inverse)[i];
    f = ramp * f / s.factor + (1.0 - ramp) * f;
  }
}

}  // namespace

Status check_rope_scaling(const kvc_rope_scaling& s, int32_t rope_dim, double theta, int64_t layer) {
  if (s.kind < KVC_ROPE_SCALING_NONE || s.kind > KVC_ROPE_SCALING_LONGROPE) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": rope_scaling: kind %d is outside %d..%d",
                         layer, s.kind, KVC_ROPE_SCALING_NONE, KVC_ROPE_SCALING_LONGROPE);
  }
  if ((s.flags & ~uint32_t{KVC_ROPE_SCALING_NO_TRUNCATE}) != 0 || s.reserved != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED,
                         "layer %" PRId64 ": rope_scaling: flags 0x%x or reserved 0x%x has unknown bits", layer,
                         s.flags, s.reserved);
  }
  constexpr double kTiny = kSmallestFactor, kHuge = kLargestFactor;
  const Number numbers[] = {
      {"flags", static_cast<double>(s.flags), kYarn, kYarn, 0.0, 1.0},
      {"factor", s.factor, kLinear | kLlama3 | kYarn | kLongrope, kLongrope, 1.0, kHuge},
      {"original_max_position", static_cast<double>(s.original_max_position), kLlama3 | kYarn | kLongrope, 0, 2.0,
       static_cast<double>(kLargestPosition)},
      {"low_freq_factor", s.low_freq_factor, kLlama3, 0, kTiny, kHuge},
      {"high_freq_factor", s.high_freq_factor, kLlama3, 0, kTiny, kHuge},
      {"beta_fast", s.beta_fast, kYarn, kYarn, kTiny, kHuge},
      {"beta_slow", s.beta_slow, kYarn, kYarn, kTiny, kHuge},
      {"attention_factor", s.attention_factor, kYarn | kLongrope, kYarn | kLongrope, kTiny, kHuge},
      {"mscale", s.mscale, kYarn, kYarn, kTiny, kHuge},
      {"mscale_all_dim", s.mscale_all_dim, kYarn, kYarn, kTiny, kHuge},
  };
  for (const Number& number : numbers) KVC_TRY(check_number(number, s.kind, layer));
  KVC_TRY(check_factors("short_factors", s.short_factors, s.num_short_factors, s, rope_dim, layer));
  KVC_TRY(check_factors("long_factors", s.long_factors, s.num_long_factors, s, rope_dim, layer));
  return check_relations(s, theta, layer);
}

std::vector<RopeFrequencies> make_rope_frequencies(const kvc_rope_scaling& s, int32_t rope_dim, double theta) {
  RopeFrequencies plain;
  plain.attention_factor = attention_factor(s);
  for (int32_t i = 0; i < rope_dim / 2; ++i) {
    const long double exponent = -2.0L * i / rope_dim;
    plain.inverse.push_back(static_cast<double>(std::pow(static_cast<long double>(theta), exponent)));
  }
  switch (s.kind) {
    case KVC_ROPE_SCALING_LINEAR:
      for (double& f : plain.inverse) f /= s.factor;
      break;
    case KVC_ROPE_SCALING_LLAMA3:
      scale_llama3(s, &plain.inverse);
      break;
    case KVC_ROPE_SCALING_YARN:
      scale_yarn(s, rope_dim, theta, &plain.inverse);
      break;
    case KVC_ROPE_SCALING_LONGROPE: {
      RopeFrequencies extended = plain;
      for (size_t i = 0; i < plain.inverse.size(); ++i) {
        plain.inverse[i] /= s.short_factors[i];
        extended.inverse[i] /= s.long_factors[i];
      }
      return {plain, extended};
    }
    default:
      break;
  }
  return {plain};
}

}  // namespace kvc
