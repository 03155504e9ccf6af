// Copies bytes by stores that bypass the CPU caches, for calls that move more bytes than the caches have room for. Such
// a store of a whole cache line does not read the line first. memcpy bypasses the caches only for large blocks. Here
// each block is small (a row, or neighbouring slots), and only all blocks together are large.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "kernels/cpu/parallel.h"

namespace kvc::kernels {

constexpr int64_t kStreamBytes = 16 * 1024 * 1024;  // a call that stores this many bytes bypasses the caches

// Copies bytes. Source and target must not overlap. Other threads see the stores only after end_stream. next: the
// source of the next copy, which has the same size. The function prefetches this source.
inline void stream_bytes(unsigned char* target, const unsigned char* source, int64_t bytes, const unsigned char* next) {
#if defined(__SSE2__)
  const int64_t before = -reinterpret_cast<intptr_t>(target) & (kLineBytes - 1),
                first = before < bytes ? before : bytes;
  memcpy(target, source, static_cast<size_t>(first));
  for (target += first, source += first, bytes -= first; bytes >= kLineBytes;
       target += kLineBytes, source += kLineBytes, bytes -= kLineBytes) {
    __builtin_prefetch(next);
    next += kLineBytes;
    __m128i line[4];
    for (int i = 0; i < 4; ++i) line[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source) + i);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(target) + i, line[i]);
  }
#endif
  memcpy(target, source, static_cast<size_t>(bytes));
}

inline void end_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace kvc::kernels
