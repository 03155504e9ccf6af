// Page keys: the name of a page's content, equal in every process and on every machine. docs/reference/keys.md defines
// the bytes that are hashed.
//
// A key names a page of tokens and all that its K and V follow from. That is the model, the adapter, the salt, images
// and the like, and every page before it: the key of the page before is a part of the message.
//
// Pure. Thread safety: any thread. Nothing fails or allocates.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "keys/sha256.h"

namespace kvc {

inline constexpr int64_t kPageKeyBytes = kSha256Bytes;
using PageKey = std::array<uint8_t, kSha256Bytes>;

// Tokens that stand for an image, a sound or the like. Their ids say nothing of it, so its hash is in the key.
struct MediaSpan {
  int64_t begin = 0;   // its first token, as a position in the sequence
  int64_t tokens = 0;  // of the whole span, > 0
  PageKey hash = {};   // of the content, and of all that changes how the model sees it
};

// The tokens of a sequence, or those from a page on.
struct KeyedTokens {
  PageKey fingerprint = {};          // of the model; unused if there is a parent
  std::span<const uint8_t> adapter;  // empty = none; unused if there is a parent
  std::span<const uint8_t> salt;     // empty = none
  int64_t salt_begin = 0;            // >= 0. The salt holds from the page that contains this position on
  const uint8_t* parent = nullptr;   // [32]: key of the page that ends at `begin`; null = `begin` is 0
  int64_t begin = 0;                 // position of tokens[0], a multiple of page_size
  int64_t page_size = 0;             // 1..2^30
  std::span<const int32_t> tokens;   // a last page that is not full has no key
  std::span<const MediaSpan> media;  // ordered by position, without overlap
};

// Writes the keys of all whole pages, [tokens / page_size, 32], and returns their number.
int64_t page_keys(const KeyedTokens& in, uint8_t* keys, const Sha256Blocks& blocks = sha256_blocks()) noexcept;

}  // namespace kvc
