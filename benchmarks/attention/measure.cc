// SPDX-License-Identifier: Apache-2.0
#include "attention/measure.h"

#include <chrono>

namespace kvc::benchmark {

Result measure(const Case& work, const Options& options, Team* team, double seconds) {
  constexpr size_t kMost = 101;
  constexpr int kMostFailed = 20;  // failed probes, while fewer than kFewestSamples samples are right
  using Clock = std::chrono::steady_clock;
  Result result = {};
  result.work = work;
  result.threads = options.threads;
  result.target = options.threads == 1 ? work.target.one : work.target.many;
  const Limit limit = work.target.limit;
  try {
    const std::unique_ptr<Subject> subject = make_subject(work, options, team);
    if (subject->instruction() != nullptr) result.instruction = subject->instruction()->name;
    for (int i = 0; i < 2; ++i) subject->sample();
    std::vector<Sample> samples;
    const auto more = [&, begin = Clock::now()] {
      if (samples.size() < kFewestSamples) return result.failed_probes < kMostFailed;
      return samples.size() < kMost && std::chrono::duration<double>(Clock::now() - begin).count() < seconds;
    };
    while (more()) {
      const Sample sample = subject->sample();
      if (probe_failed(sample, limit)) {
        ++result.failed_probes;
      } else {
        samples.push_back(sample);
      }
    }
    result.samples = static_cast<int>(samples.size());
    result.judged = judge(samples, result.failed_probes, limit, result.target);
  } catch (const NotSupported& refused) {
    result.judged.verdict = Verdict::kNotSupported;
    result.message = refused.what();
  } catch (const std::exception& failed) {
    result.judged.verdict = Verdict::kFailed;
    result.message = failed.what();
  }
  return result;
}

}  // namespace kvc::benchmark
