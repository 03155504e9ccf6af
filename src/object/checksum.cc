#include "object/checksum.h"

#include <cstring>

#define XXH_INLINE_ALL  // compiles xxHash into this file: nothing is linked, and no symbol is exported
#include <xxhash.h>

namespace kvc {
namespace {

// All checksums go through these two functions, so that the library has one copy of xxHash's loops.
void add_to(XXH3_state_t* state, std::span<const uint8_t> bytes) noexcept {
  if (!bytes.empty()) XXH3_128bits_update(state, bytes.data(), bytes.size());
}

Checksum digest_of(const XXH3_state_t& state) noexcept {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
  Checksum checksum;
  static_assert(sizeof canonical.digest == kChecksumBytes);
  std::memcpy(checksum.data(), canonical.digest, checksum.size());
  return checksum;
}

}  // namespace

Checksum checksum_of(std::span<const uint8_t> bytes, uint64_t seed) noexcept {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_128bits_reset_withSeed(&state, seed);
  add_to(&state, bytes);
  return digest_of(state);
}

struct RunningChecksum::State {
  XXH3_state_t xxh;
};

RunningChecksum::RunningChecksum() : state_(new State) { reset(); }
RunningChecksum::~RunningChecksum() = default;
void RunningChecksum::reset(uint64_t seed) noexcept { XXH3_128bits_reset_withSeed(&state_->xxh, seed); }
void RunningChecksum::add(std::span<const uint8_t> bytes) noexcept { add_to(&state_->xxh, bytes); }
Checksum RunningChecksum::value() const noexcept { return digest_of(state_->xxh); }

}  // namespace kvc
