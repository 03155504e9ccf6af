// The multiply-add instructions. Each runs in a loop over independent sums. There are enough sums to hide its latency.
// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "attention/probes.h"

namespace kvc::benchmark {
namespace {

// This hides from the compiler that the sums are equal. Otherwise it would compute one of them only.
constexpr int kSums = 12;

#if defined(__x86_64__)

bool has_fma() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() { return __builtin_cpu_supports("avx512f"); }
bool only_sse() { return !has_fma(); }
bool only_fma() { return has_fma() && !has_avx512(); }
bool has_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }

// A process must request AMX from the kernel once. Threads that start later inherit the permission.
bool has_amx() {
  static const bool has = [] {
    constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kBf16) != 0 && (d & kTile) != 0 &&
           syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return has;
}

void run_sse(int64_t rounds) {
  __m128 sums[kSums] = {}, x = _mm_set1_ps(0.5f), y = _mm_set1_ps(0.25f);
  for (__m128& sum : sums) asm volatile("" : "+x"(sum));
  for (int64_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm_add_ps(_mm_mul_ps(sums[i], x), y);
    asm volatile("" : "+x"(x), "+x"(y));
  }
  for (__m128& sum : sums) asm volatile("" : : "x"(sum));
}

__attribute__((target("avx2,fma"))) void run_fma256(int64_t rounds) {
  __m256 sums[kSums] = {}, x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(0.25f);
  for (__m256& sum : sums) asm volatile("" : "+x"(sum));
  for (int64_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm256_fmadd_ps(sums[i], x, y);
    asm volatile("" : "+x"(x), "+x"(y));
  }
  for (__m256& sum : sums) asm volatile("" : : "x"(sum));
}

__attribute__((target("avx512f"))) void run_fma512(int64_t rounds) {
  __m512 sums[kSums] = {}, x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(0.25f);
  for (__m512& sum : sums) asm volatile("" : "+v"(sum));
  for (int64_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_fmadd_ps(sums[i], x, y);
    asm volatile("" : "+v"(x), "+v"(y));
  }
  for (__m512& sum : sums) asm volatile("" : : "v"(sum));
}

__attribute__((target("avx512f,avx512bf16"))) void run_bf16(int64_t rounds) {
  __m512 sums[kSums] = {};
  __m512i x = _mm512_set1_epi32(0x3f003f00), y = x;
  for (__m512& sum : sums) asm volatile("" : "+v"(sum));
  for (int64_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], (__m512bh)x, (__m512bh)y);
    asm volatile("" : "+v"(x), "+v"(y));
  }
  for (__m512& sum : sums) asm volatile("" : : "v"(sum));
}

// All tiles have 16 rows of 64 bytes. (They are in memory and not on the stack, because gcc 12 assumes that only 8
// bytes are read.)
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig kTileConfig;

// Four sums of 16 x 16 numbers, from two tiles of each operand. An instruction does 16 x 16 x 32 multiply-adds.
__attribute__((target("amx-tile,amx-bf16"))) void run_amx(int64_t rounds) {
  _tile_loadconfig(&kTileConfig);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t n = 0; n < rounds; ++n) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

constexpr double kAmxOperations = 4 * 2.0 * 16 * 16 * 32;

#else

bool always() { return true; }

// The plain loop, as the compiler vectorises it.
void run_portable(int64_t rounds) {
  using Lanes = float __attribute__((vector_size(16)));
  Lanes sums[kSums] = {}, x = {0.5f, 0.5f, 0.5f, 0.5f}, y = x;
  for (Lanes& sum : sums) asm volatile("" : "+w"(sum));
  for (int64_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = sums[i] * x + y;
    asm volatile("" : "+w"(x), "+w"(y));
  }
  for (Lanes& sum : sums) asm volatile("" : : "w"(sum));
}

#endif

}  // namespace

const std::vector<Instruction>& instructions() {
  static const std::vector<Instruction> kInstructions = {
#if defined(__x86_64__)
      {"f32 multiply, add (SSE)", only_sse, run_sse, 2.0 * 4 * kSums, false},
      {"f32 FMA (256 bits)", only_fma, run_fma256, 2.0 * 8 * kSums, false},
      {"f32 FMA (512 bits)", has_avx512, run_fma512, 2.0 * 16 * kSums, false},
      {"bf16 dot (512 bits)", has_bf16, run_bf16, 2.0 * 32 * kSums, true},
      {"bf16 tiles (AMX)", has_amx, run_amx, kAmxOperations, true},
#else
      {"f32 FMA", always, run_portable, 2.0 * 4 * kSums, false},
#endif
  };
  return kInstructions;
}

}  // namespace kvc::benchmark
