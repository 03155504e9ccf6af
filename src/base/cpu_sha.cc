// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_sha.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace kvc {

bool cpu_has_sha256() noexcept {
#if defined(__x86_64__)
  // The instructions use only SSE registers, which every 64-bit system saves. So it is enough to check the CPU's flags.
  constexpr unsigned kSsse3 = 1u << 9, kSse41 = 1u << 19, kSha = 1u << 29;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSsse3) == 0 || (c & kSse41) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0;
#elif defined(__aarch64__) && defined(__linux__)
  constexpr unsigned long kSha2 = 1ul << 6;  // HWCAP_SHA2
  return (getauxval(AT_HWCAP) & kSha2) != 0;
#elif defined(__aarch64__) && defined(__APPLE__)
  return true;  // every 64-bit CPU of Apple has the instructions
#else
  return false;
#endif
}

}  // namespace kvc
