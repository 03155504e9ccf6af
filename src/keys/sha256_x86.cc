// Computes SHA-256 with the SHA-NI instructions. This file is compiled with its own flags (src/CMakeLists.txt). So it
// must not include inline functions that other files use: the linker may keep this file's copy of such a function,
// which fails on other CPUs.
//
// Lower bound: the 64 rounds of a block are a chain of 32 sha256rnds2 instructions. With a latency of 4 cycles, the
// chain takes 128 cycles. The SHA unit can start such an instruction every 2 cycles. So two messages at once take 128
// cycles for one block of each message.
//
// SPDX-License-Identifier: Apache-2.0
#include "keys/sha256_lanes.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace kvc {
namespace {

__m128i load_bytes(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
void store_bytes(void* to, __m128i bytes) { _mm_storeu_si128(static_cast<__m128i*>(to), bytes); }

// Reverses the bytes of each of four words: words in memory are little endian, and words of the message are big endian.
__m128i swap_bytes(__m128i words) {
  return _mm_shuffle_epi8(words, _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
}

// The instructions need the eight words of a state as (a, b, e, f) in s0 and (c, d, g, h) in s1. The first word of s0,
// and of s1, is in the highest lane.
struct Lane {
  using Words = __m128i;
  Words s0, s1;
  Words w0, w1, w2, w3;

  void load(const uint32_t* state) {
    const Words cdab = _mm_shuffle_epi32(load_bytes(state), 0xb1);      // lanes from the highest: c d a b
    const Words efgh = _mm_shuffle_epi32(load_bytes(state + 4), 0x1b);  // e f g h
    s0 = _mm_alignr_epi8(cdab, efgh, 8);
    s1 = _mm_blend_epi16(efgh, cdab, 0xf0);
  }
  void store(uint32_t* state) const {
    const Words feba = _mm_shuffle_epi32(s0, 0x1b);
    const Words dchg = _mm_shuffle_epi32(s1, 0xb1);
    store_bytes(state, _mm_blend_epi16(feba, dchg, 0xf0));
    store_bytes(state + 4, _mm_alignr_epi8(dchg, feba, 8));
  }
  void load_block(const uint8_t* data) {
    w0 = swap_bytes(load_bytes(data));
    w1 = swap_bytes(load_bytes(data + 16));
    w2 = swap_bytes(load_bytes(data + 32));
    w3 = swap_bytes(load_bytes(data + 48));
  }
  void rounds(Words w, const uint32_t* constants) {
    const Words sum = _mm_add_epi32(w, load_bytes(constants));
    s1 = _mm_sha256rnds2_epu32(s1, s0, sum);
    s0 = _mm_sha256rnds2_epu32(s0, s1, _mm_shuffle_epi32(sum, 0x0e));
  }
  static Words next_words(Words w0, Words w1, Words w2, Words w3) {
    const Words partial = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));
    return _mm_sha256msg2_epu32(partial, w3);
  }
  static Words add(Words a, Words b) { return _mm_add_epi32(a, b); }
};

void write(const uint32_t* state, uint8_t* digest) {
  store_bytes(digest, swap_bytes(load_bytes(state)));
  store_bytes(digest + 16, swap_bytes(load_bytes(state + 4)));
}

}  // namespace

const Sha256Blocks kSha256X86 = {"sha-ni", compress_lane<Lane>, compress_two_lanes<Lane>, write};

}  // namespace kvc
#endif
