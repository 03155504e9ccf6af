// Computes SHA-256 in plain C++. The names and the order of operations are those of FIPS 180-4.
// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "keys/sha256_blocks.h"

namespace kvc {
namespace {

uint32_t read_big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

void compress_block(uint32_t* state, const uint8_t* data) {
  uint32_t w[64];
  for (size_t i = 0; i < 16; ++i) w[i] = read_big_endian(data + i * 4);
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  for (int i = 0; i < 64; ++i) {
    const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + kSha256Rounds[i] + w[i];
    const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1;
    d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state[i] += sums[i];
}

void compress(uint32_t* state, const uint8_t* data, size_t count) {
  for (size_t i = 0; i < count; ++i) compress_block(state, data + i * kSha256BlockBytes);
}

void compress_pair(uint32_t* state_a, const uint8_t* data_a, uint32_t* state_b, const uint8_t* data_b, size_t count) {
  compress(state_a, data_a, count);
  compress(state_b, data_b, count);
}

void write(const uint32_t* state, uint8_t* digest) {
  for (size_t i = 0; i < 8; ++i) {
    for (size_t byte = 0; byte < 4; ++byte) digest[i * 4 + byte] = static_cast<uint8_t>(state[i] >> (24 - 8 * byte));
  }
}

}  // namespace

const Sha256Blocks kSha256Portable = {"portable", compress, compress_pair, write};

}  // namespace kvc
