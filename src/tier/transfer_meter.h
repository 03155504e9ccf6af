// TransferMeter: measures the latency and the bandwidth of loads or of stores. Both are running averages, in which a
// new sample has the weight 1/8.
//
//   bandwidth   bytes of all items, divided by the time in which at least one item was being transferred
//   latency     time of an item beyond the time that its bytes take at its share of this bandwidth
//
// Pure: the caller passes the time of a monotonic clock. Thread safety: none; the caller locks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace kvc {

class TransferMeter {
 public:
  // An item that is being transferred.
  struct Item {
    int64_t began_ns = 0;
    int64_t together =
        0;  // number of items in transfer when this item began, itself included; they share the bandwidth
  };

  Item begin(int64_t now_ns) noexcept {
    if (active_++ == 0) window_begin_ns_ = now_ns, window_bytes_ = 0;
    return {now_ns, active_};
  }

  // Call it when the item is done. bytes: 0 if it failed.
  void end(const Item& item, int64_t now_ns, int64_t bytes) noexcept {
    --active_;
    window_bytes_ += bytes;
    constexpr int64_t kWindowBytes = int64_t{64} << 20;
    if ((active_ == 0 || window_bytes_ >= kWindowBytes) && window_bytes_ > 0) {
      const double seconds = static_cast<double>(std::max<int64_t>(1, now_ns - window_begin_ns_)) * 1e-9;
      average(&bytes_per_second_, static_cast<double>(window_bytes_) / seconds);
      window_begin_ns_ = now_ns;
      window_bytes_ = 0;
    }
    if (bytes == 0 || bytes_per_second_ == 0) return;
    const double transfer_ns = static_cast<double>(bytes * item.together) * 1e9 / bytes_per_second_;
    average(&latency_ns_, std::max(1.0, static_cast<double>(now_ns - item.began_ns) - transfer_ns));
  }

  int64_t latency_ns() const noexcept { return static_cast<int64_t>(latency_ns_); }
  int64_t bytes_per_second() const noexcept { return static_cast<int64_t>(bytes_per_second_); }

 private:
  static void average(double* value, double sample) noexcept {
    *value = *value == 0 ? sample : *value + (sample - *value) / 8;
  }

  int64_t active_ = 0;
  int64_t window_begin_ns_ = 0, window_bytes_ = 0;
  double bytes_per_second_ = 0, latency_ns_ = 0;
};

}  // namespace kvc
