// Computes page keys. A page key is a name for the content of a page, which is the same in every process and on every
// machine. docs/reference/keys.md defines the bytes that are hashed.
//
// A key covers the tokens of a page and all else that their K and V depend on: the model, the adapter, the salt, media
// such as images, and all pages before it. The key covers earlier pages because the key of the page before is hashed
// too.
//
// page_keys is a pure function, which cannot fail and allocates nothing. Any thread may call it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>

#include "keys/sha256.h"

namespace kvc {

inline constexpr int64_t kPageKeyBytes = kSha256Bytes;
using PageKey = std::array<uint8_t, kSha256Bytes>;

// The tokens of a medium, such as an image or a sound. Their ids do not identify the content, so the key covers a hash
// of the content.
struct MediaSpan {
  int64_t begin = 0;   // position of the span's first token in the sequence
  int64_t tokens = 0;  // length of the span, > 0
  PageKey hash = {};   // hash of the medium, and of all that changes how the model reads the medium
  auto operator<=>(const MediaSpan&) const = default;
};

// The tokens of a sequence: all tokens, or those from the start of a page on.
struct KeyedTokens {
  PageKey fingerprint = {};          // of the model; unused if there is a parent
  std::span<const uint8_t> adapter;  // empty = none; unused if there is a parent
  std::span<const uint8_t> salt;     // empty = none
  int64_t salt_begin = 0;            // >= 0. The salt applies from the page that contains this position on
  const uint8_t* parent = nullptr;   // [32]: key of the page that ends at `begin`; null if `begin` is 0
  int64_t begin = 0;                 // position of tokens[0], a multiple of page_size
  int64_t page_size = 0;             // 1..2^30
  std::span<const int32_t> tokens;   // a last page that is not full gets no key
  std::span<const MediaSpan> media;  // ordered by position, without overlap
};

// Writes the keys of all whole pages, [tokens / page_size, 32], and returns their number.
int64_t page_keys(const KeyedTokens& in, uint8_t* keys, const Sha256Blocks& blocks = sha256_blocks()) noexcept;

}  // namespace kvc
