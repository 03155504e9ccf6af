// TokenMeter: measures how long an engine takes to compute one token of a prompt. The measured times are those of whole
// forwards, from begin to end.
//
// A forward of one token takes almost as long as a forward of several, because it also reads all weights. So forwards
// are measured by size, in powers of two of their number of tokens, and only the largest size counts. Of the last
// forwards of this size, the median counts, so that a few slow forwards do not change the result.
//
// Pure: the caller passes the time of a monotonic clock. Thread safety: none; the caller locks.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <iterator>
#include <span>

namespace kvc {

class TokenMeter {
 public:
  // A forward of `tokens` tokens has ended. While several forwards are open, each one counts from the end of the one
  // before it.
  void add(int64_t tokens, int64_t begin_ns, int64_t end_ns) noexcept {
    begin_ns = std::max(begin_ns, last_end_ns_);
    last_end_ns_ = std::max(last_end_ns_, end_ns);
    const int size = tokens > 0 ? std::bit_width(static_cast<uint64_t>(tokens)) : 0;
    if (size < std::max(1, size_) || end_ns <= begin_ns) return;
    if (size > size_) count_ = 0;
    size_ = size;
    samples_[static_cast<size_t>(count_++ % kSamples)] = std::max<int64_t>(1, (end_ns - begin_ns) / tokens);
    const std::span<const int64_t> samples(samples_.data(), static_cast<size_t>(std::min(count_, kSamples)));
    for (const int64_t& sample : samples) {
      const auto is_before = [&](const int64_t& other) {
        return other < sample || (other == sample && &other < &sample);
      };
      if (std::count_if(samples.begin(), samples.end(), is_before) == (std::ssize(samples) - 1) / 2) token_ns_ = sample;
    }
  }

  // The time to compute one token, in nanoseconds; 0 = not measured yet.
  int64_t token_ns() const noexcept { return token_ns_; }

 private:
  static constexpr int64_t kSamples = 5;
  int size_ = 0;                                // the largest size that was measured, as a number of bits
  int64_t count_ = 0;                           // forwards of this size so far
  std::array<int64_t, kSamples> samples_ = {};  // times of a token in the last of them
  int64_t token_ns_ = 0;                        // their median; of two, the smaller one
  int64_t last_end_ns_ = 0;                     // the latest end of a forward
};

}  // namespace kvc
