// SPDX-License-Identifier: Apache-2.0
#include "attention/judge.h"

#include <algorithm>

namespace kvc::benchmark {
namespace {

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

double median_of(const std::vector<Sample>& samples, double Sample::* field) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(sample.*field);
  return median(values);
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double limit_seconds(const Sample& sample, Limit limit) {
  switch (limit) {
    case Limit::kStream:
      return sample.stream;
    case Limit::kPages:
      return sample.pages;
    case Limit::kOps:
      return sample.ops;
    case Limit::kFloor:
      return std::max(sample.pages, sample.ops);
    case Limit::kCopy:
      return sample.copy;
    case Limit::kMicroseconds:
      break;
  }
  return 0;
}

// No kernel is faster than the instructions that it consists of. So this limit is checked whatever the target is.
bool probe_failed(const Sample& sample, Limit limit) {
  return std::max(sample.ops, limit_seconds(sample, limit)) > kBeyond * sample.ours;
}

Judgement judge(const std::vector<Sample>& samples, int failed, Limit limit, double target) {
  Judgement result;
  if (samples.empty()) return result;
  for (double Sample::* field : {&Sample::ours, &Sample::stream, &Sample::pages, &Sample::ops, &Sample::copy}) {
    result.median.*field = median_of(samples, field);
  }
  const bool absolute = limit == Limit::kMicroseconds;
  std::vector<double> ratios;
  for (const Sample& sample : samples) {
    ratios.push_back(absolute ? 1e6 * sample.ours : limit_seconds(sample, limit) / sample.ours);
  }
  result.low = quantile(ratios, 0.25);
  result.high = quantile(ratios, 0.75);
  result.ratio = absolute ? 1e6 * result.median.ours : limit_seconds(result.median, limit) / result.median.ours;
  if (samples.size() < kFewestSamples || static_cast<size_t>(failed) > samples.size()) return result;
  const bool reached = absolute ? result.ratio <= target : result.ratio >= target;
  result.verdict = reached ? Verdict::kReached : Verdict::kShort;
  return result;
}

Scaling judge_scaling(const Sample& one, const Sample& many, double target) {
  Scaling result = {one.ours / many.ours, one.ops / many.ops, 0, Verdict::kProbeFailed};
  result.ratio = result.gain / result.machine_gain;
  if (result.ratio <= kBeyond) result.verdict = result.ratio >= target ? Verdict::kReached : Verdict::kShort;
  return result;
}

}  // namespace kvc::benchmark
