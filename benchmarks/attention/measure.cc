// SPDX-License-Identifier: Apache-2.0
#include "attention/measure.h"

#include <algorithm>
#include <chrono>

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

void judge(const std::vector<Sample>& samples, Result* result) {
  const Target& target = result->work.target;
  for (double Sample::* field : {&Sample::ours, &Sample::stream, &Sample::pages, &Sample::ops, &Sample::copy}) {
    result->median.*field = median_of(samples, field);
  }
  const bool absolute = target.limit == Limit::kMicroseconds;
  std::vector<double> ratios;
  for (const Sample& sample : samples) {
    ratios.push_back(absolute ? 1e6 * sample.ours : limit_seconds(sample, target.limit) / sample.ours);
  }
  result->low = quantile(ratios, 0.25);
  result->high = quantile(ratios, 0.75);
  result->ratio =
      absolute ? 1e6 * result->median.ours : limit_seconds(result->median, target.limit) / result->median.ours;
  const bool reached = absolute ? result->ratio <= result->target : result->ratio >= result->target;
  result->verdict = reached ? Verdict::kReached : Verdict::kShort;
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

Result measure(const Case& work, const Options& options, Team* team, double seconds) {
  constexpr size_t kFewest = 5, kMost = 101;
  Result result = {};
  result.work = work;
  result.threads = options.threads;
  result.target = options.threads == 1 ? work.target.one : work.target.many;
  try {
    const std::unique_ptr<Subject> subject = make_subject(work, options, team);
    if (subject->instruction() != nullptr) result.instruction = subject->instruction()->name;
    for (int i = 0; i < 2; ++i) subject->sample();
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    std::vector<Sample> samples;
    while (samples.size() < kFewest ||
           (samples.size() < kMost && std::chrono::duration<double>(Clock::now() - begin).count() < seconds)) {
      samples.push_back(subject->sample());
    }
    result.samples = static_cast<int>(samples.size());
    judge(samples, &result);
  } catch (const NotSupported& refused) {
    result.verdict = Verdict::kNotSupported;
    result.message = refused.what();
  } catch (const std::exception& failed) {
    result.verdict = Verdict::kFailed;
    result.message = failed.what();
  }
  return result;
}

}  // namespace kvc::benchmark
