// Computes SHA-256 with the instructions of ARMv8. This file is compiled with its own flags (src/CMakeLists.txt). So it
// must not include inline functions that other files use: the linker may keep this file's copy of such a function,
// which fails on other CPUs.
//
// SPDX-License-Identifier: Apache-2.0
#include "keys/sha256_lanes.h"

#if defined(__aarch64__)
#include <arm_neon.h>

namespace kvc {
namespace {

uint32x4_t load_words(const uint8_t* data) { return vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data))); }

// s0 has the words (a, b, c, d) of the state, and s1 has the words (e, f, g, h).
struct Lane {
  using Words = uint32x4_t;
  Words s0, s1;
  Words w0, w1, w2, w3;

  void load(const uint32_t* state) {
    s0 = vld1q_u32(state);
    s1 = vld1q_u32(state + 4);
  }
  void store(uint32_t* state) const {
    vst1q_u32(state, s0);
    vst1q_u32(state + 4, s1);
  }
  void load_block(const uint8_t* data) {
    w0 = load_words(data);
    w1 = load_words(data + 16);
    w2 = load_words(data + 32);
    w3 = load_words(data + 48);
  }
  void rounds(Words w, const uint32_t* constants) {
    const Words sum = vaddq_u32(w, vld1q_u32(constants)), before = s0;
    s0 = vsha256hq_u32(before, s1, sum);
    s1 = vsha256h2q_u32(s1, before, sum);
  }
  static Words next_words(Words w0, Words w1, Words w2, Words w3) {
    return vsha256su1q_u32(vsha256su0q_u32(w0, w1), w2, w3);
  }
  static Words add(Words a, Words b) { return vaddq_u32(a, b); }
};

void write(const uint32_t* state, uint8_t* digest) {
  for (size_t half = 0; half < 2; ++half) {
    const uint8x16_t words = vreinterpretq_u8_u32(vld1q_u32(state + 4 * half));
    vst1q_u8(digest + 16 * half, vrev32q_u8(words));
  }
}

}  // namespace

const Sha256Blocks kSha256Arm = {"armv8-sha2", compress_lane<Lane>, compress_two_lanes<Lane>, write};

}  // namespace kvc
#endif
