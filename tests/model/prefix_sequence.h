// A sequence of the model of the prefix index: its tokens, and all that their K and V depend on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kvt {
namespace {

constexpr int kPageSize = 4;

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u ^ (b + 0x7F4A7C15u) * 0xBF58476D1CE4E5B9u;
  x ^= x >> 31;
  return x * 0x94D049BB133111EBu;
}
using Tokens = std::vector<int32_t>;

struct Sequence {
  Tokens tokens;
  uint64_t salt = 0;
  int64_t salt_begin = 0;
  std::vector<uint8_t> adapter;
  std::vector<int64_t> media_begins, media_tokens;
  std::vector<uint8_t> media_hashes;  // [spans, 32]

  void add_medium(int64_t begin, int64_t count, uint8_t hash) {
    media_begins.push_back(begin);
    media_tokens.push_back(count);
    media_hashes.resize(media_begins.size() * 32);
    media_hashes.back() = hash;
  }
  // Names the span of the token at a position; 0 without one.
  uint64_t media_at(int64_t position) const {
    for (size_t i = 0; i < media_begins.size(); i++) {
      if (position < media_begins[i] || position >= media_begins[i] + media_tokens[i]) continue;
      return mix(static_cast<uint64_t>(media_begins[i]),
                 mix(static_cast<uint64_t>(media_tokens[i]), media_hashes[i * 32 + 31]));
    }
    return 0;
  }
  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  uint64_t salt_at(int64_t position) const { return (position / kPageSize + 1) * kPageSize > salt_begin ? salt : 0; }
  // The hash of tokens 0..position, from which K, V and the states are computed.
  std::vector<uint64_t> hashes() const {
    std::vector<uint64_t> hashes;
    uint64_t hash = adapter.empty() ? 1 : adapter[0];
    for (int64_t i = 0; i < length(); i++) {
      hash = mix(mix(hash, static_cast<uint32_t>(tokens[static_cast<size_t>(i)])), salt_at(i) ^ media_at(i));
      hashes.push_back(hash);
    }
    return hashes;
  }
  int64_t same_as(const Sequence &other) const {
    int64_t same = 0;
    if (adapter != other.adapter) return 0;
    while (same < std::min(length(), other.length()) && salt_at(same) == other.salt_at(same) &&
           media_at(same) == other.media_at(same) &&
           tokens[static_cast<size_t>(same)] == other.tokens[static_cast<size_t>(same)]) {
      same++;
    }
    return same;
  }
};

}  // namespace
}  // namespace kvt
