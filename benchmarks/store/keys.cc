// Page keys beside SHA-256 of one large buffer, in the same run. Prints medians of GB/s of token ids.
//   page_keys [rounds]     default 41
// The limits:
//   one message    SHA-256 of the whole token array. A chain that hashed page after page would reach half of it at page
//                  size 16, because every page has a second block
//   two messages   the halves of the array at once: all that the SHA unit can do
// The bound of a page size is the second limit times the share of ids among the bytes that are hashed, or one block's
// latency a page if that takes longer.
// Time is CPU time, so other work on the machine lengthens it less.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <vector>

#include "figure.h"
#include "keys/page_key.h"

namespace {

constexpr size_t kTokens = 131072;
constexpr double kBytes = kTokens * sizeof(int32_t);
constexpr size_t kPageSizes[] = {16, 64, 256};

double seconds_now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

using Work = std::function<void()>;

// The median GB/s of each work. The works run in turn, so that a slow phase of the machine meets all of them.
std::vector<double> measure(int rounds, const std::vector<Work>& works) {
  std::vector<std::vector<double>> seconds(works.size());
  for (int i = 0; i < rounds; ++i) {
    for (size_t work = 0; work < works.size(); ++work) {
      const double begin = seconds_now();
      works[work]();
      seconds[work].push_back(seconds_now() - begin);
    }
  }
  std::vector<double> rates;
  for (auto& samples : seconds) {
    std::nth_element(samples.begin(), samples.begin() + rounds / 2, samples.end());
    rates.push_back(kBytes / samples[static_cast<size_t>(rounds / 2)] / 1e9);
  }
  return rates;
}

void print_rates(const kvc::Sha256Blocks& blocks, const std::vector<int32_t>& tokens, int rounds) {
  const auto* data = reinterpret_cast<const uint8_t*>(tokens.data());
  const size_t all = tokens.size() * sizeof(int32_t) / kvc::kSha256BlockBytes;
  uint32_t a[8] = {}, b[8] = {};
  std::vector<Work> works = {[&] { blocks.compress(a, data, all); },
                             [&] { blocks.compress_pair(a, data, b, data + all / 2 * 64, all / 2); }};
  std::vector<uint8_t> keys(tokens.size() / kPageSizes[0] * kvc::kPageKeyBytes);
  for (const size_t page_size : kPageSizes) {
    works.push_back([&, page_size] {
      kvc::KeyedTokens in;
      in.page_size = static_cast<int64_t>(page_size);
      in.tokens = tokens;
      kvc::page_keys(in, keys.data(), blocks);
    });
  }
  const std::vector<double> rates = measure(rounds, works);
  std::printf("%s, %zu tokens\n  SHA-256, one message     %6.3f GB/s\n  SHA-256, two messages    %6.3f GB/s\n",
              blocks.name, tokens.size(), rates[0], rates[1]);
  for (size_t i = 0; i < std::size(kPageSizes); ++i) {
    const double body = static_cast<double>(kPageSizes[i]) / 16, rate = rates[i + 2];
    const double bound = std::min(rates[1] * body / (body + 1), rates[0] * body);
    char name[80], note[80];
    std::snprintf(name, sizeof name, "keys by %s, page size %zu", blocks.name, kPageSizes[i]);
    std::snprintf(note, sizeof note, "%.2f of the bound, %.3f GB/s", rate / bound, bound);
    const double target = &blocks == &kvc::kSha256Portable ? 0 : 1;
    kvc::benchmark::print_figure("Page keys", name, rate, "GB/s", target, kvc::benchmark::Better::kHigher, note);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 41;
  std::vector<int32_t> tokens(kTokens);
  for (size_t i = 0; i < kTokens; ++i) tokens[i] = static_cast<int32_t>(i * 7919 % 150000);
  for (const kvc::Sha256Blocks* blocks : kvc::sha256_implementations()) print_rates(*blocks, tokens, rounds);
  return 0;
}
