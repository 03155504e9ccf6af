// Checksums of stored objects: XXH3-128, in its canonical order of bytes. They detect damage, but do not prove who
// wrote the bytes. Pure. Thread safety: any thread may call checksum_of; a RunningChecksum belongs to one thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

namespace kvc {

inline constexpr int64_t kChecksumBytes = 16;
using Checksum = std::array<uint8_t, kChecksumBytes>;

Checksum checksum_of(std::span<const uint8_t> bytes, uint64_t seed = 0) noexcept;

// The checksum of bytes that arrive in pieces. Its seed is 0, unless `reset` gives another.
class RunningChecksum {
 public:
  RunningChecksum();  // throws std::bad_alloc
  ~RunningChecksum();
  RunningChecksum(const RunningChecksum&) = delete;
  RunningChecksum& operator=(const RunningChecksum&) = delete;

  void reset(uint64_t seed = 0) noexcept;
  void add(std::span<const uint8_t> bytes) noexcept;
  Checksum value() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvc
