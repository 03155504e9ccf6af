// ObjectMemory: where the bytes of an object lie. An object in a host tier may lie in several runs of blocks.
// Ownership: borrows the memory. Thread safety: as of the memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace kvc {

struct ObjectMemory {
  std::vector<std::span<uint8_t>> runs;
  bool pinned = false;  // memory of PinnedMemory, which the device of the cache copies

  static ObjectMemory of(std::vector<uint8_t>& object) { return {{std::span(object)}, false}; }

  int64_t bytes() const noexcept {
    int64_t sum = 0;
    for (const std::span<uint8_t>& run : runs) sum += static_cast<int64_t>(run.size());
    return sum;
  }
  // Calls use(data, bytes) for each contiguous part of the bytes [begin, begin + bytes), in order.
  template <class Use>
  void for_each(int64_t begin, int64_t bytes, Use use) const {
    for (const std::span<uint8_t>& run : runs) {
      const auto size = static_cast<int64_t>(run.size());
      if (begin < size && bytes > 0) {
        const int64_t count = std::min(bytes, size - begin);
        use(run.data() + begin, count);
        bytes -= count;
        begin = 0;
      } else {
        begin -= std::min(begin, size);
      }
    }
  }
  void write(int64_t begin, const void* from, int64_t bytes) const noexcept {
    const auto* next = static_cast<const uint8_t*>(from);
    for_each(begin, bytes, [&](uint8_t* data, int64_t count) {
      std::memcpy(data, next, static_cast<size_t>(count));
      next += count;
    });
  }
  void read(int64_t begin, void* to, int64_t bytes) const noexcept {
    auto* next = static_cast<uint8_t*>(to);
    for_each(begin, bytes, [&](const uint8_t* data, int64_t count) {
      std::memcpy(next, data, static_cast<size_t>(count));
      next += count;
    });
  }
};

}  // namespace kvc
