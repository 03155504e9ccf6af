// Computes the rounds of SHA-256 for one message, or for two messages at once, on CPUs with instructions for SHA-256.
//
// A Lane has the state and the words of one message in registers. Each file for a kind of CPU defines its own Lane,
// with these members:
//   Words s0, s1             the state, in the order that the instructions need
//   Words w0, w1, w2, w3     the last 16 words of the message schedule
//   load, store              read the state from eight words, and write it to them
//   load_block               read the 16 words of a block
//   rounds                   compute four rounds over four words of the schedule
//   next_words               compute the next four words of the schedule
//   add                      add two Words
// This file has only templates. Each file instantiates them with its own Lane, so no two files share the code.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "keys/sha256_blocks.h"

namespace kvc {

// Computes sixteen rounds, and the next 16 words of the schedule. Each line works on all lanes, so that the
// instructions of independent messages alternate.
template <class... Lanes>
inline void rounds_and_schedule(const uint32_t* constants, Lanes&... lanes) {
  (lanes.rounds(lanes.w0, constants), ...);
  ((lanes.w0 = Lanes::next_words(lanes.w0, lanes.w1, lanes.w2, lanes.w3)), ...);
  (lanes.rounds(lanes.w1, constants + 4), ...);
  ((lanes.w1 = Lanes::next_words(lanes.w1, lanes.w2, lanes.w3, lanes.w0)), ...);
  (lanes.rounds(lanes.w2, constants + 8), ...);
  ((lanes.w2 = Lanes::next_words(lanes.w2, lanes.w3, lanes.w0, lanes.w1)), ...);
  (lanes.rounds(lanes.w3, constants + 12), ...);
  ((lanes.w3 = Lanes::next_words(lanes.w3, lanes.w0, lanes.w1, lanes.w2)), ...);
}

template <class... Lanes>
inline void all_rounds(Lanes&... lanes) {
  rounds_and_schedule(kSha256Rounds, lanes...);
  rounds_and_schedule(kSha256Rounds + 16, lanes...);
  rounds_and_schedule(kSha256Rounds + 32, lanes...);
  (lanes.rounds(lanes.w0, kSha256Rounds + 48), ...);
  (lanes.rounds(lanes.w1, kSha256Rounds + 52), ...);
  (lanes.rounds(lanes.w2, kSha256Rounds + 56), ...);
  (lanes.rounds(lanes.w3, kSha256Rounds + 60), ...);
}

template <class Lane>
void compress_lane(uint32_t* state, const uint8_t* data, size_t count) {
  Lane lane;
  lane.load(state);
  for (size_t i = 0; i < count; ++i) {
    const auto s0 = lane.s0, s1 = lane.s1;
    lane.load_block(data + i * kSha256BlockBytes);
    all_rounds(lane);
    lane.s0 = Lane::add(lane.s0, s0);
    lane.s1 = Lane::add(lane.s1, s1);
  }
  lane.store(state);
}

template <class Lane>
void compress_two_lanes(uint32_t* state_a, const uint8_t* data_a, uint32_t* state_b, const uint8_t* data_b,
                        size_t count) {
  Lane a, b;
  a.load(state_a);
  b.load(state_b);
  for (size_t i = 0; i < count; ++i) {
    const auto a0 = a.s0, a1 = a.s1, b0 = b.s0, b1 = b.s1;
    a.load_block(data_a + i * kSha256BlockBytes);
    b.load_block(data_b + i * kSha256BlockBytes);
    all_rounds(a, b);
    a.s0 = Lane::add(a.s0, a0);
    a.s1 = Lane::add(a.s1, a1);
    b.s0 = Lane::add(b.s0, b0);
    b.s1 = Lane::add(b.s1, b1);
  }
  a.store(state_a);
  b.store(state_b);
}

}  // namespace kvc
