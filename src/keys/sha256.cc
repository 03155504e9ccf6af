// See sha256.h.
// SPDX-License-Identifier: Apache-2.0
#include "keys/sha256.h"

#include <algorithm>
#include <cstring>

#include "base/cpu_sha.h"

namespace kvc {

std::span<const Sha256Blocks* const> sha256_implementations() noexcept {
#if defined(__x86_64__)
  static constexpr const Sha256Blocks* kAll[] = {&kSha256Portable, &kSha256X86};
#elif defined(__aarch64__)
  static constexpr const Sha256Blocks* kAll[] = {&kSha256Portable, &kSha256Arm};
#else
  static constexpr const Sha256Blocks* kAll[] = {&kSha256Portable};
#endif
  static const bool has_instructions = cpu_has_sha256();
  return std::span(kAll).first(has_instructions ? std::size(kAll) : 1);
}

const Sha256Blocks& sha256_blocks() noexcept { return *sha256_implementations().back(); }

const uint32_t kSha256Start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

size_t pad_sha256(uint8_t* last, size_t size, uint64_t total) noexcept {
  constexpr size_t kLengthBytes = 8;
  const size_t blocks = size + 1 + kLengthBytes <= kSha256BlockBytes ? 1 : 2;
  const size_t end = blocks * kSha256BlockBytes;
  last[size] = 0x80;
  std::memset(last + size + 1, 0, end - kLengthBytes - size - 1);
  for (size_t byte = 0; byte < kLengthBytes; ++byte) {
    last[end - kLengthBytes + byte] = static_cast<uint8_t>(total * 8 >> (56 - 8 * byte));
  }
  return blocks;
}

Sha256::Sha256(const Sha256Blocks& blocks, const uint32_t* state, uint64_t total) noexcept
    : blocks_(blocks), total_(total) {
  std::memcpy(state_, state, sizeof(state_));
}

void Sha256::update(const void* data, size_t size) noexcept {
  const auto* bytes = static_cast<const uint8_t*>(data);
  total_ += size;
  if (waiting_ > 0) {
    const size_t taken = std::min(size, kSha256BlockBytes - waiting_);
    if (taken > 0) std::memcpy(last_ + waiting_, bytes, taken);
    waiting_ += taken, bytes += taken, size -= taken;
    if (waiting_ < kSha256BlockBytes) return;
    blocks_.compress(state_, last_, 1);
    waiting_ = 0;
  }
  const size_t whole = size / kSha256BlockBytes;
  if (whole > 0) blocks_.compress(state_, bytes, whole);
  waiting_ = size % kSha256BlockBytes;
  if (waiting_ > 0) std::memcpy(last_, bytes + whole * kSha256BlockBytes, waiting_);
}

void Sha256::finish(uint8_t* digest) noexcept {
  blocks_.compress(state_, last_, pad_sha256(last_, waiting_, total_));
  blocks_.write(state_, digest);
}

}  // namespace kvc
