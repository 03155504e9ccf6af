// The promises of page keys: no two inputs have the same message, a key covers every page before it, and a salt
// separates keys from its page on. The chain computes several pages at once, and is compared with messages that are
// written field by field.
//
// SPDX-License-Identifier: Apache-2.0
#include "keys/page_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/keys/hex.h"

namespace kvc {
namespace {

using Bytes = std::vector<uint8_t>;
using Keys = std::vector<PageKey>;

struct Input {
  PageKey fingerprint = {};
  std::string adapter, salt;
  int64_t salt_begin = 0;
  int64_t page_size = 16;
  std::vector<int32_t> tokens = std::vector<int32_t>(64, 5);
  std::vector<MediaSpan> media;
};

std::span<const uint8_t> view_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

KeyedTokens view(const Input& in) {
  return {.fingerprint = in.fingerprint,
          .adapter = view_of(in.adapter),
          .salt = view_of(in.salt),
          .salt_begin = in.salt_begin,
          .page_size = in.page_size,
          .tokens = in.tokens,
          .media = in.media};
}

Keys keys_of(const KeyedTokens& in, const Sha256Blocks& blocks = sha256_blocks()) {
  Keys keys(in.tokens.size() / static_cast<size_t>(in.page_size));
  EXPECT_EQ(page_keys(in, keys.empty() ? nullptr : keys[0].data(), blocks), static_cast<int64_t>(keys.size()));
  return keys;
}
Keys keys_of(const Input& in) { return keys_of(view(in)); }

// The definition in docs/reference/keys.md, one page after the other.
class Message {
 public:
  Message& bytes(std::span<const uint8_t> more) {
    data_.insert(data_.end(), more.begin(), more.end());
    return *this;
  }
  Message& number(int64_t value, int size) {
    for (int i = 0; i < size; ++i) data_.push_back(static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i)));
    return *this;
  }
  Message& type(const std::string& name) { return bytes(view_of(name)); }
  PageKey key() const {
    PageKey digest;
    Sha256 hash(kSha256Portable);
    hash.update(data_.data(), data_.size());
    hash.finish(digest.data());
    return digest;
  }

 private:
  Bytes data_;
};

Keys naive_keys(const KeyedTokens& in) {
  const auto size = [](std::span<const uint8_t> text) { return static_cast<int64_t>(text.size()); };
  PageKey parent = Message().bytes(in.fingerprint).bytes(in.adapter).number(size(in.adapter), 8).type("kvcroot1").key();
  if (in.parent != nullptr) std::copy_n(in.parent, parent.size(), parent.begin());
  Keys keys;
  for (int64_t i = 0; i + in.page_size <= static_cast<int64_t>(in.tokens.size()); i += in.page_size) {
    const int64_t begin = in.begin + i, end = begin + in.page_size;
    if (!in.salt.empty() && begin <= in.salt_begin && in.salt_begin < end) {
      parent = Message().bytes(parent).bytes(in.salt).number(size(in.salt), 8).type("kvcsalt1").key();
    }
    Message page;
    for (int64_t t = 0; t < in.page_size; ++t) page.number(in.tokens[static_cast<size_t>(i + t)], 4);
    int64_t spans = 0;
    for (const MediaSpan& span : in.media) {
      if (span.begin >= end || span.begin + span.tokens <= begin) continue;
      page.number(span.begin - begin, 8).number(span.tokens, 8).bytes(span.hash);
      ++spans;
    }
    parent = page.bytes(parent).number(in.page_size, 4).number(spans, 4).type("kvcpage1").key();
    keys.push_back(parent);
  }
  return keys;
}

Input draw_input(std::mt19937& draw) {
  constexpr int64_t kSizes[] = {1, 2, 5, 8, 12, 13, 16, 20, 27, 28, 32, 48, 64, 256};
  Input in;
  for (uint8_t& byte : in.fingerprint) byte = static_cast<uint8_t>(draw());
  in.adapter.assign(draw() % 3 == 0 ? draw() % 100 : 0, 'a');
  in.salt.assign(draw() % 2 == 0 ? draw() % 100 : 0, 's');
  in.page_size = kSizes[draw() % std::size(kSizes)];
  in.salt_begin = static_cast<int64_t>(draw() % 6) * in.page_size + static_cast<int64_t>(draw()) % in.page_size;
  in.tokens.resize(draw() % static_cast<size_t>(7 * in.page_size));
  for (int32_t& token : in.tokens) token = static_cast<int32_t>(draw());
  int64_t at = 0;
  while (draw() % 3 == 0) {
    MediaSpan span = {.begin = at + static_cast<int64_t>(draw() % 40), .tokens = 1 + static_cast<int64_t>(draw() % 90)};
    span.hash.fill(static_cast<uint8_t>(draw()));
    at = span.begin + span.tokens;
    in.media.push_back(span);
  }
  return in;
}

TEST(PageKeys, AreThoseOfTheDefinition) {
  std::mt19937 draw(1);
  for (int round = 0; round < 2000; ++round) {
    const Input in = draw_input(draw);
    const Keys expected = naive_keys(view(in));
    for (const Sha256Blocks* blocks : sha256_implementations()) {
      ASSERT_EQ(keys_of(view(in), *blocks), expected)
          << "round " << round << " by " << blocks->name << ": page size " << in.page_size << ", " << in.tokens.size()
          << " tokens, " << in.media.size() << " spans";
    }
  }
}

TEST(PageKeys, ContinueFromAnyPage) {
  std::mt19937 draw(2);
  for (int round = 0; round < 500; ++round) {
    const Input in = draw_input(draw);
    const Keys all = keys_of(in);
    for (size_t page = 1; page < all.size(); ++page) {
      KeyedTokens rest = view(in);
      rest.parent = all[page - 1].data();
      rest.begin = static_cast<int64_t>(page) * in.page_size;
      rest.tokens = rest.tokens.subspan(static_cast<size_t>(rest.begin));
      ASSERT_EQ(keys_of(rest), Keys(all.begin() + static_cast<int64_t>(page), all.end())) << "round " << round;
    }
  }
}

// Inputs that differ in one thing, each with a name. Some would be equal if fields were joined without lengths or
// types.
std::map<std::string, Input> unlike_inputs() {
  std::map<std::string, Input> all;
  const MediaSpan image = {.begin = 3, .tokens = 4, .hash = {1}};
  all["plain"] = {};
  all["fingerprint"].fingerprint[31] = 1;
  all["adapter"].adapter = "org_12345";
  all["salt"].salt = "org_12345";
  all["salt and adapter"].adapter = "2345", all["salt and adapter"].salt = "org_1";
  all["another split"].adapter = "345", all["another split"].salt = "org_12";
  all["exchanged"].adapter = "org_1", all["exchanged"].salt = "2345";
  all["adapter of a zero"].adapter = std::string(1, '\0');
  all["salt of a zero"].salt = std::string(1, '\0');
  all["salt of two zeros"].salt = std::string(2, '\0');
  all["adapter like a length"].adapter = std::string(8, '\0');
  all["adapter like a trailer"].adapter = std::string(8, '\0') + "kvcroot1";
  all["salt like a trailer"].salt = std::string(8, '\0') + "kvcsalt1";
  all["first token"].tokens[0] = 6;
  all["last token of the page"].tokens[15] = 6;
  all["high bit"].tokens[0] = 5 | INT32_MIN;
  all["page size"].page_size = 32;
  all["smaller page size"].page_size = 8;
  all["image"].media = {image};
  all["image elsewhere"].media = {{.begin = 4, .tokens = 4, .hash = {1}}};
  all["longer image"].media = {{.begin = 3, .tokens = 5, .hash = {1}}};
  all["another image"].media = {{.begin = 3, .tokens = 4, .hash = {2}}};
  all["two images"].media = {image, {.begin = 7, .tokens = 1, .hash = {1}}};
  all["image over the whole page"].media = {{.begin = 0, .tokens = 16, .hash = {1}}};
  all["the same over two pages"].media = {{.begin = 0, .tokens = 32, .hash = {1}}};
  return all;
}

TEST(PageKeys, NoTwoInputsShareAKey) {
  std::map<PageKey, std::string> seen;
  for (const auto& [name, in] : unlike_inputs()) {
    const Keys keys = keys_of(in);
    for (size_t page = 0; page < keys.size(); ++page) {
      const auto [other, is_new] = seen.emplace(keys[page], name + ", page " + std::to_string(page));
      EXPECT_TRUE(is_new) << name << ", page " << page << " has the key of " << other->second;
    }
  }
}

// A salt never has the same key as an adapter, even if a fingerprint was chosen to be the root of another model. Then
// the two messages differ in their type only.
TEST(PageKeys, SaltIsNoAdapter) {
  const std::string name = "org_1";
  Input with_salt, with_adapter;
  with_salt.salt = name;
  with_adapter.adapter = name;
  with_adapter.fingerprint = Message().bytes(with_salt.fingerprint).number(0, 8).type("kvcroot1").key();
  EXPECT_NE(keys_of(with_salt)[0], keys_of(with_adapter)[0]);
}

// The second page of an image is not the first page of an image that begins there.
TEST(PageKeys, SayWhichPartOfAnImageAPageHolds) {
  const PageKey parent = {};
  std::map<PageKey, int64_t> seen;
  for (const int64_t begin : {0, 1, 15, 16}) {
    Input in;
    in.media = {{.begin = begin, .tokens = 32, .hash = {9}}};
    KeyedTokens second = view(in);
    second.parent = parent.data();  // equal for all, so that only the span differs
    second.begin = 16;
    const auto [other, is_new] = seen.emplace(keys_of(second)[0], begin);
    EXPECT_TRUE(is_new) << "the image from " << begin << " is that from " << other->second;
  }
}

TEST(PageKeys, CoverEveryPageBefore) {
  Input in;
  in.tokens.resize(10 * 16 + 7);
  const Keys all = keys_of(in);
  ASSERT_EQ(all.size(), 10u);  // the last 7 tokens do not fill a page
  for (size_t token = 0; token < in.tokens.size(); ++token) {
    Input other = in;
    other.tokens[token] += 1;
    const Keys changed = keys_of(other);
    for (size_t page = 0; page < 10; ++page) {
      EXPECT_EQ(changed[page] == all[page], page < token / 16) << "token " << token << ", page " << page;
    }
  }
  for (size_t length = 0; length < in.tokens.size(); ++length) {
    Input shorter = in;
    shorter.tokens.resize(length);
    EXPECT_EQ(keys_of(shorter), Keys(all.begin(), all.begin() + static_cast<int64_t>(length / 16)));
  }
}

TEST(PageKeys, SaltHoldsFromItsPageOn) {
  Input plain;
  plain.tokens.resize(6 * 16);
  const Keys without = keys_of(plain);
  std::map<PageKey, int64_t> first_keys;  // of the first salted page
  for (int64_t begin = 0; begin < 7 * 16; ++begin) {
    Input salted = plain;
    salted.salt = "tenant";
    salted.salt_begin = begin;
    const Keys with = keys_of(salted);
    for (int64_t page = 0; page < 6; ++page) {
      const auto i = static_cast<size_t>(page);
      EXPECT_EQ(with[i] == without[i], page < begin / 16) << "salt from " << begin << ", page " << page;
    }
    if (begin < 6 * 16) {
      const auto& [key, page] = *first_keys.emplace(with[static_cast<size_t>(begin / 16)], begin / 16).first;
      EXPECT_EQ(page, begin / 16) << "positions of one page are one salt";
    }
  }
  EXPECT_EQ(first_keys.size(), 6u);
}

TEST(PageKeys, SaltsShareOnlyWhatIsBeforeThem) {
  Input a, b;
  a.salt = "tenant a", b.salt = "tenant b";
  a.salt_begin = b.salt_begin = 20;
  const Keys of_a = keys_of(a), of_b = keys_of(b);
  EXPECT_EQ(of_a[0], of_b[0]);
  for (size_t i = 1; i < of_a.size(); ++i) EXPECT_NE(of_a[i], of_b[i]) << "page " << i;
}

}  // namespace
}  // namespace kvc
