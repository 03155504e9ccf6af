// SHA-256 with the SHA-NI instructions. This file is compiled with flags of its own (src/CMakeLists.txt), so it must
// include nothing whose inline functions other files share.
//
// Lower bound of a block: 64 rounds are 32 sha256rnds2, of which each needs the one before. At a latency of 4 cycles
// this is 128 cycles. The unit begins one every 2 cycles, so two messages at once need 128 cycles for two blocks.
//
// SPDX-License-Identifier: Apache-2.0
#include "keys/sha256_blocks.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace kvc {
namespace {

// One message in registers. The instructions hold the eight words of a state as (a, b, e, f) and (c, d, g, h), the
// first in the highest lane.
struct Lane {
  __m128i abef, cdgh;
  __m128i w0, w1, w2, w3;  // the last 16 words of the message schedule
};

inline __m128i load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

inline void load_state(Lane& lane, const uint32_t* state) {
  const __m128i cdab = _mm_shuffle_epi32(load(state), 0xb1);      // lanes from the highest: c d a b
  const __m128i efgh = _mm_shuffle_epi32(load(state + 4), 0x1b);  // e f g h
  lane.abef = _mm_alignr_epi8(cdab, efgh, 8);
  lane.cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
}

inline void store_state(const Lane& lane, uint32_t* state) {
  const __m128i feba = _mm_shuffle_epi32(lane.abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(lane.cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

// Four words between their order in memory and the order of the message, which is big endian.
inline __m128i swap_bytes(__m128i words) {
  return _mm_shuffle_epi8(words, _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
}

inline void load_block(Lane& lane, const uint8_t* data) {
  lane.w0 = swap_bytes(load(data));
  lane.w1 = swap_bytes(load(data + 16));
  lane.w2 = swap_bytes(load(data + 32));
  lane.w3 = swap_bytes(load(data + 48));
}

// Four rounds over the words of w.
inline void rounds(Lane& lane, __m128i w, const uint32_t* constants) {
  const __m128i sum = _mm_add_epi32(w, load(constants));
  lane.cdgh = _mm_sha256rnds2_epu32(lane.cdgh, lane.abef, sum);
  lane.abef = _mm_sha256rnds2_epu32(lane.abef, lane.cdgh, _mm_shuffle_epi32(sum, 0x0e));
}

// The four words of the schedule that follow the 16 of w0..w3.
inline __m128i next_words(__m128i w0, __m128i w1, __m128i w2, __m128i w3) {
  const __m128i partial = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));
  return _mm_sha256msg2_epu32(partial, w3);
}

// Sixteen rounds, and the next 16 words. Each of the four steps names the lanes in turn, so that their instructions
// alternate.
template <class... Lanes>
inline void rounds_and_schedule(const uint32_t* constants, Lanes&... lanes) {
  (rounds(lanes, lanes.w0, constants), ...);
  ((lanes.w0 = next_words(lanes.w0, lanes.w1, lanes.w2, lanes.w3)), ...);
  (rounds(lanes, lanes.w1, constants + 4), ...);
  ((lanes.w1 = next_words(lanes.w1, lanes.w2, lanes.w3, lanes.w0)), ...);
  (rounds(lanes, lanes.w2, constants + 8), ...);
  ((lanes.w2 = next_words(lanes.w2, lanes.w3, lanes.w0, lanes.w1)), ...);
  (rounds(lanes, lanes.w3, constants + 12), ...);
  ((lanes.w3 = next_words(lanes.w3, lanes.w0, lanes.w1, lanes.w2)), ...);
}

template <class... Lanes>
inline void all_rounds(Lanes&... lanes) {
  rounds_and_schedule(kSha256Rounds, lanes...);
  rounds_and_schedule(kSha256Rounds + 16, lanes...);
  rounds_and_schedule(kSha256Rounds + 32, lanes...);
  (rounds(lanes, lanes.w0, kSha256Rounds + 48), ...);
  (rounds(lanes, lanes.w1, kSha256Rounds + 52), ...);
  (rounds(lanes, lanes.w2, kSha256Rounds + 56), ...);
  (rounds(lanes, lanes.w3, kSha256Rounds + 60), ...);
}

inline void add_state(Lane& lane, __m128i abef, __m128i cdgh) {
  lane.abef = _mm_add_epi32(lane.abef, abef);
  lane.cdgh = _mm_add_epi32(lane.cdgh, cdgh);
}

void compress(uint32_t* state, const uint8_t* data, size_t count) {
  Lane lane;
  load_state(lane, state);
  for (size_t i = 0; i < count; ++i) {
    const __m128i abef = lane.abef, cdgh = lane.cdgh;
    load_block(lane, data + i * kSha256BlockBytes);
    all_rounds(lane);
    add_state(lane, abef, cdgh);
  }
  store_state(lane, state);
}

void compress_pair(uint32_t* state_a, const uint8_t* data_a, uint32_t* state_b, const uint8_t* data_b, size_t count) {
  Lane a, b;
  load_state(a, state_a);
  load_state(b, state_b);
  for (size_t i = 0; i < count; ++i) {
    const __m128i abef_a = a.abef, cdgh_a = a.cdgh, abef_b = b.abef, cdgh_b = b.cdgh;
    load_block(a, data_a + i * kSha256BlockBytes);
    load_block(b, data_b + i * kSha256BlockBytes);
    all_rounds(a, b);
    add_state(a, abef_a, cdgh_a);
    add_state(b, abef_b, cdgh_b);
  }
  store_state(a, state_a);
  store_state(b, state_b);
}

void write(const uint32_t* state, uint8_t* digest) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(digest), swap_bytes(load(state)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(digest + 16), swap_bytes(load(state + 4)));
}

}  // namespace

const Sha256Blocks kSha256X86 = {"sha-ni", compress, compress_pair, write};

}  // namespace kvc
#endif
