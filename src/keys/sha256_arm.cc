// SHA-256 with the instructions of ARMv8. This file is compiled with flags of its own (src/CMakeLists.txt), so it must
// include nothing whose inline functions other files share.
//
// SPDX-License-Identifier: Apache-2.0
#include "keys/sha256_blocks.h"

#if defined(__aarch64__)
#include <arm_neon.h>

namespace kvc {
namespace {

// One message in registers.
struct Lane {
  uint32x4_t abcd, efgh;
  uint32x4_t w0, w1, w2, w3;  // the last 16 words of the message schedule
};

inline void load_state(Lane& lane, const uint32_t* state) {
  lane.abcd = vld1q_u32(state);
  lane.efgh = vld1q_u32(state + 4);
}

inline void store_state(const Lane& lane, uint32_t* state) {
  vst1q_u32(state, lane.abcd);
  vst1q_u32(state + 4, lane.efgh);
}

inline uint32x4_t load_words(const uint8_t* data) { return vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data))); }

inline void load_block(Lane& lane, const uint8_t* data) {
  lane.w0 = load_words(data);
  lane.w1 = load_words(data + 16);
  lane.w2 = load_words(data + 32);
  lane.w3 = load_words(data + 48);
}

// Four rounds over the words of w.
inline void rounds(Lane& lane, uint32x4_t w, const uint32_t* constants) {
  const uint32x4_t sum = vaddq_u32(w, vld1q_u32(constants));
  const uint32x4_t abcd = lane.abcd;
  lane.abcd = vsha256hq_u32(abcd, lane.efgh, sum);
  lane.efgh = vsha256h2q_u32(lane.efgh, abcd, sum);
}

// The four words of the schedule that follow the 16 of w0..w3.
inline uint32x4_t next_words(uint32x4_t w0, uint32x4_t w1, uint32x4_t w2, uint32x4_t w3) {
  return vsha256su1q_u32(vsha256su0q_u32(w0, w1), w2, w3);
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

inline void add_state(Lane& lane, uint32x4_t abcd, uint32x4_t efgh) {
  lane.abcd = vaddq_u32(lane.abcd, abcd);
  lane.efgh = vaddq_u32(lane.efgh, efgh);
}

void compress(uint32_t* state, const uint8_t* data, size_t count) {
  Lane lane;
  load_state(lane, state);
  for (size_t i = 0; i < count; ++i) {
    const uint32x4_t abcd = lane.abcd, efgh = lane.efgh;
    load_block(lane, data + i * kSha256BlockBytes);
    all_rounds(lane);
    add_state(lane, abcd, efgh);
  }
  store_state(lane, state);
}

void compress_pair(uint32_t* state_a, const uint8_t* data_a, uint32_t* state_b, const uint8_t* data_b, size_t count) {
  Lane a, b;
  load_state(a, state_a);
  load_state(b, state_b);
  for (size_t i = 0; i < count; ++i) {
    const uint32x4_t abcd_a = a.abcd, efgh_a = a.efgh, abcd_b = b.abcd, efgh_b = b.efgh;
    load_block(a, data_a + i * kSha256BlockBytes);
    load_block(b, data_b + i * kSha256BlockBytes);
    all_rounds(a, b);
    add_state(a, abcd_a, efgh_a);
    add_state(b, abcd_b, efgh_b);
  }
  store_state(a, state_a);
  store_state(b, state_b);
}

void write(const uint32_t* state, uint8_t* digest) {
  for (size_t half = 0; half < 2; ++half) {
    const uint8x16_t words = vreinterpretq_u8_u32(vld1q_u32(state + 4 * half));
    vst1q_u8(digest + 16 * half, vrev32q_u8(words));
  }
}

}  // namespace

const Sha256Blocks kSha256Arm = {"armv8-sha2", compress, compress_pair, write};

}  // namespace kvc
#endif
