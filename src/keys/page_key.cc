// See page_key.h.
//
// The key of a page is the hash of a message. The message has four parts: the token ids of the page, its media spans,
// the key of its parent (the page before it), and a trailer. The ids come first, so that the full blocks of ids can be
// compressed before the parent's key is computed. The rest of the message is the tail. Two blocks of different messages
// are compressed at once (Sha256Blocks::compress_pair): a block of a page's tail with a block of ids of the page kAhead
// pages later, and blocks of ids of two pages with each other. So nearly all blocks are compressed in pairs.
//
// SPDX-License-Identifier: Apache-2.0
#include "keys/page_key.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kvc {
namespace {

static_assert(std::endian::native == std::endian::little, "token ids are hashed as they lie in memory");

constexpr size_t kTypeBytes = 8;
constexpr char kRootType[] = "kvcroot1", kSaltType[] = "kvcsalt1", kPageType[] = "kvcpage1";
constexpr size_t kTrailerBytes = 16;  // number of tokens, number of spans, type
constexpr int64_t kAhead = 2;         // the tail of page p is paired with ids of page p + kAhead

void write_trailer(uint8_t* to, uint32_t tokens, uint32_t spans) {
  std::memcpy(to, &tokens, 4);
  std::memcpy(to + 4, &spans, 4);
  std::memcpy(to + 8, kPageType, kTypeBytes);
}

// Returns the SHA-256 of the 32 bytes at `fixed`, a text, the length of the text, and a type.
PageKey key_of_text(const uint8_t* fixed, std::span<const uint8_t> text, const char* type, const Sha256Blocks& blocks) {
  const uint64_t length = text.size();
  PageKey key;
  Sha256 hash(blocks);
  hash.update(fixed, kSha256Bytes);
  hash.update(text.data(), text.size());
  hash.update(&length, sizeof(length));
  hash.update(type, kTypeBytes);
  hash.finish(key.data());
  return key;
}

class Chain {
 public:
  Chain(const KeyedTokens& in, uint8_t* keys, const Sha256Blocks& blocks);
  int64_t hash_pages();

 private:
  // Says how far a page is hashed: `state` is the state of SHA-256 after the first `done` full blocks of ids of the
  // page.
  struct Body {
    uint32_t state[8];
    int64_t done;  // number of compressed blocks
  };

  const uint8_t* ids(int64_t page) const {
    return reinterpret_cast<const uint8_t*>(in_.tokens.data() + page * in_.page_size);
  }
  const uint8_t* block(int64_t page, int64_t i) const { return ids(page) + i * int64_t{kSha256BlockBytes}; }
  Body& body(int64_t page) { return bodies_[page % (2 * kAhead)]; }
  bool exists(int64_t page) const { return page < pages_; }

  void start(int64_t page);
  void advance(int64_t page, int64_t to);
  void finish_bodies(int64_t page);
  uint32_t find_spans(int64_t page);
  uint8_t* parent() { return tail_ + rest_; }
  void enter_context(int64_t page);
  void link(int64_t page);
  void link_with_spans(int64_t page, uint32_t spans);

  const KeyedTokens& in_;
  uint8_t* const keys_;  // [pages_, 32]
  const Sha256Blocks& blocks_;
  const int64_t pages_;
  const int64_t body_blocks_;  // full blocks of ids in a page
  const size_t rest_;          // bytes of ids after the full blocks
  const int64_t salt_page_;    // the first page with the salt; -1 = the salt begins in none of these pages
  size_t first_span_ = 0;      // spans with a lower index end before the current page

  Body bodies_[2 * kAhead];
  // The tail of a page without spans: the last ids, the parent's key, the trailer and the padding. Between two calls of
  // link, tail_ has the parent's key of the next page.
  uint8_t tail_[2 * kSha256BlockBytes];
  int64_t tail_blocks_;  // blocks of tail_ that a page without spans uses: 1 or 2
};

Chain::Chain(const KeyedTokens& in, uint8_t* keys, const Sha256Blocks& blocks)
    : in_(in),
      keys_(keys),
      blocks_(blocks),
      pages_(static_cast<int64_t>(in.tokens.size()) / in.page_size),
      body_blocks_(in.page_size * 4 / int64_t{kSha256BlockBytes}),
      rest_(static_cast<size_t>(in.page_size) * 4 % kSha256BlockBytes),
      salt_page_(in.salt.empty() || in.salt_begin < in.begin ? -1 : (in.salt_begin - in.begin) / in.page_size) {
  const size_t size = rest_ + kSha256Bytes + kTrailerBytes;
  write_trailer(tail_ + rest_ + kSha256Bytes, static_cast<uint32_t>(in.page_size), 0);
  const uint64_t total = static_cast<uint64_t>(body_blocks_) * kSha256BlockBytes + size;
  tail_blocks_ = static_cast<int64_t>(pad_sha256(tail_, size, total));
}

void Chain::start(int64_t page) {
  std::memcpy(body(page).state, kSha256Start, sizeof(kSha256Start));
  body(page).done = 0;
}

// Compresses the full blocks of ids of a page that come before block `to`.
void Chain::advance(int64_t page, int64_t to) {
  Body& own = body(page);
  if (own.done >= to) return;
  blocks_.compress(own.state, block(page, own.done), static_cast<size_t>(to - own.done));
  own.done = to;
}

// Compresses the remaining full blocks of ids of `page` and, if it exists, of the next page.
void Chain::finish_bodies(int64_t page) {
  if (exists(page + 1)) {
    Body &a = body(page), &b = body(page + 1);
    const int64_t done = std::max(a.done, b.done);
    advance(page, done);
    advance(page + 1, done);
    blocks_.compress_pair(a.state, block(page, done), b.state, block(page + 1, done),
                          static_cast<size_t>(body_blocks_ - done));
    a.done = b.done = body_blocks_;
  } else if (exists(page)) {
    advance(page, body_blocks_);
  }
}

// Finds the media spans that overlap a page. Sets first_span_ to the first of these spans, and returns their number.
uint32_t Chain::find_spans(int64_t page) {
  const int64_t begin = in_.begin + page * in_.page_size, end = begin + in_.page_size;
  const auto& media = in_.media;
  while (first_span_ < media.size() && media[first_span_].begin + media[first_span_].tokens <= begin) ++first_span_;
  size_t i = first_span_;
  while (i < media.size() && media[i].begin < end) ++i;
  return static_cast<uint32_t>(i - first_span_);
}

// Sets the parent's key at the first page, and at the page where the salt begins. At other pages, the parent's key is
// the key of the page before.
void Chain::enter_context(int64_t page) {
  PageKey key;
  if (page == 0 && in_.parent != nullptr) {
    std::memcpy(parent(), in_.parent, kSha256Bytes);
  } else if (page == 0) {
    key = key_of_text(in_.fingerprint.data(), in_.adapter, kRootType, blocks_);
    std::memcpy(parent(), key.data(), kSha256Bytes);
  }
  if (page == salt_page_) {
    key = key_of_text(parent(), in_.salt, kSaltType, blocks_);
    std::memcpy(parent(), key.data(), kSha256Bytes);
  }
}

// Computes the key of a page whose full blocks of ids are compressed. Compresses the page's tail together with the
// first blocks of ids of the page kAhead pages later.
void Chain::link(int64_t page) {
  const int64_t next = page + kAhead;
  if (exists(next)) start(next);
  if (page == 0 || page == salt_page_) enter_context(page);
  if (const uint32_t spans = find_spans(page); spans > 0) return link_with_spans(page, spans);

  if (rest_ > 0) std::memcpy(tail_, block(page, body_blocks_), rest_);
  uint32_t* state = body(page).state;
  const int64_t beside = exists(next) ? std::min(tail_blocks_, body_blocks_) : 0;
  if (beside > 0) {
    blocks_.compress_pair(state, tail_, body(next).state, block(next, 0), static_cast<size_t>(beside));
    body(next).done = beside;
  }
  if (beside < tail_blocks_) {
    blocks_.compress(state, tail_ + beside * int64_t{kSha256BlockBytes}, static_cast<size_t>(tail_blocks_ - beside));
  }
  blocks_.write(state, parent());
  blocks_.write(state, keys_ + page * kPageKeyBytes);
}

void Chain::link_with_spans(int64_t page, uint32_t spans) {
  Sha256 hash(blocks_, body(page).state, static_cast<uint64_t>(body_blocks_) * kSha256BlockBytes);
  hash.update(block(page, body_blocks_), rest_);
  for (const MediaSpan& span : in_.media.subspan(first_span_, spans)) {
    const int64_t place[2] = {span.begin - (in_.begin + page * in_.page_size), span.tokens};
    hash.update(place, sizeof(place));
    hash.update(span.hash.data(), span.hash.size());
  }
  hash.update(parent(), kSha256Bytes);
  uint8_t trailer[kTrailerBytes];
  write_trailer(trailer, static_cast<uint32_t>(in_.page_size), spans);
  hash.update(trailer, sizeof(trailer));
  hash.finish(parent());
  std::memcpy(keys_ + page * kPageKeyBytes, parent(), kSha256Bytes);
}

int64_t Chain::hash_pages() {
  for (int64_t page = 0; page < kAhead && exists(page); ++page) start(page);
  for (int64_t page = 0; exists(page); page += kAhead) {
    finish_bodies(page);
    for (int64_t own = page; own < page + kAhead && exists(own); ++own) link(own);
  }
  return pages_;
}

}  // namespace

int64_t page_keys(const KeyedTokens& in, uint8_t* keys, const Sha256Blocks& blocks) noexcept {
  return Chain(in, keys, blocks).hash_pages();
}

}  // namespace kvc
