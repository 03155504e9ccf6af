#include "object/checksum.h"

#include <cstring>

#define XXH_INLINE_ALL  // all of it is in this file: nothing is linked, and no symbol is exported
#include <xxhash.h>

namespace kvc {

Checksum checksum_of(std::span<const uint8_t> bytes, uint64_t seed) noexcept {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed));
  Checksum checksum;
  static_assert(sizeof canonical.digest == kChecksumBytes);
  std::memcpy(checksum.data(), canonical.digest, checksum.size());
  return checksum;
}

}  // namespace kvc
