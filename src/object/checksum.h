// Checksums of stored objects: XXH3-128, in its canonical order of bytes. They find damage, and say nothing about who
// wrote the bytes. Pure; any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace kvc {

inline constexpr int64_t kChecksumBytes = 16;
using Checksum = std::array<uint8_t, kChecksumBytes>;

Checksum checksum_of(std::span<const uint8_t> bytes, uint64_t seed = 0) noexcept;

}  // namespace kvc
