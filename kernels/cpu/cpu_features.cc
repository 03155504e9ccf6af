// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace kvc::kernels {
namespace {

bool has(uint32_t word, int bit) { return ((word >> bit) & 1u) != 0; }

uint64_t read_xcr0() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Linux saves AMX tiles only for processes that requested them. The system call arch_prctl reads which states the
// system supports (ARCH_GET_XCOMP_SUPP, 0x1021), and makes the request (ARCH_REQ_XCOMP_PERM, 0x1023).
constexpr int kTileData = 18;  // the bit of XCR0 for the data of AMX tiles

bool system_has_tiles() {
#if defined(__linux__)
  uint64_t supported = 0;
  return syscall(SYS_arch_prctl, 0x1021, &supported) == 0 && ((supported >> kTileData) & 1u) != 0;
#else
  return false;
#endif
}

// A vdpbf16ps computes twice as many multiply-adds as a vfmadd. AMD CPUs from Zen 4 on issue two vdpbf16ps a cycle.
// Intel CPUs issue one vdpbf16ps every other cycle (measured on Sapphire Rapids), but two vfmadd a cycle. So vfmadd
// computes twice as many multiply-adds a cycle there. On Intel CPUs with AMX, AMX is faster than both.
bool is_amd() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0, &a, &b, &c, &d) != 0 && b == signature_AMD_ebx && c == signature_AMD_ecx &&
         d == signature_AMD_edx;
}

}  // namespace

CpuFeatures detect_cpu_features() {
  constexpr uint64_t kYmmState = 0x6, kZmmState = 0xe6, kTileState = 0x60000;
  CpuFeatures features = {};
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !has(c, 27)) return features;  // OSXSAVE
  const bool fma = has(c, 12), avx = has(c, 28), f16c = has(c, 29);
  const uint64_t saved = read_xcr0();
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return features;
  const bool avx512_all = has(b, 16) && has(b, 17) && has(b, 30) && has(b, 31);
  const bool tiles = has(d, 22) && has(d, 24) && (saved & kTileState) == kTileState;
  features.avx2 = avx && fma && f16c && has(b, 5) && (saved & kYmmState) == kYmmState;
  features.avx512 = features.avx2 && avx512_all && (saved & kZmmState) == kZmmState;
  features.avx512_vbmi = features.avx512 && has(c, 1);
  if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) features.avx512_bf16 = features.avx512_vbmi && has(a, 5);
  features.fast_bf16_dots = features.avx512_bf16 && is_amd();
  features.amx_bf16 = features.avx512_bf16 && tiles && system_has_tiles();
  return features;
}

bool request_amx() {
#if defined(__linux__)
  return syscall(SYS_arch_prctl, 0x1023, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace kvc::kernels

#else

namespace kvc::kernels {
CpuFeatures detect_cpu_features() { return {}; }
bool request_amx() { return false; }
}  // namespace kvc::kernels

#endif
