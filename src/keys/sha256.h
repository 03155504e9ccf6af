// Computes SHA-256 (FIPS 180-4) of bytes that arrive in pieces.
//
//   Sha256 hash;
//   hash.update(bytes, size);   // any number of times
//   hash.finish(digest);        // once, at the end
//
// All functions are pure, cannot fail, and allocate nothing. Only one thread at a time may use an object. Any thread
// may call the other functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "keys/sha256_blocks.h"

namespace kvc {

inline constexpr size_t kSha256Bytes = 32;

// Returns the implementations that this CPU can run. The portable one comes first, and the fastest one last.
std::span<const Sha256Blocks* const> sha256_implementations() noexcept;
// Returns the fastest implementation that this CPU can run.
const Sha256Blocks& sha256_blocks() noexcept;

// The state before the first block: 8 words.
extern const uint32_t kSha256Start[8];
// Writes the padding after the data of a message: 0x80, zeros, and the length in bits. `last` has room for two blocks
// and begins with the last `size` bytes of the data. The whole message has `total` bytes. Returns the number of
// blocks that `last` then has, 1 or 2.
size_t pad_sha256(uint8_t* last, size_t size, uint64_t total) noexcept;

class Sha256 {
 public:
  explicit Sha256(const Sha256Blocks& blocks = sha256_blocks()) noexcept : Sha256(blocks, kSha256Start, 0) {}
  // Continues a message whose first `total` bytes are already compressed into `state`. `total` is a multiple of 64.
  Sha256(const Sha256Blocks& blocks, const uint32_t* state, uint64_t total) noexcept;

  void update(const void* data, size_t size) noexcept;
  void finish(uint8_t* digest) noexcept;

 private:
  const Sha256Blocks& blocks_;
  uint32_t state_[8];
  uint64_t total_;
  size_t waiting_ = 0;                   // bytes of the block that is not full yet
  uint8_t last_[2 * kSha256BlockBytes];  // the block that is not full, with room for the padding
};

}  // namespace kvc
