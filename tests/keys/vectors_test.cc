// The vectors of docs/reference/keys.md, in every implementation of SHA-256 that this CPU can run. vectors.py checks
// the same file with another implementation of the keys.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "keys/page_key.h"
#include "kvcache.h"
#include "tests/keys/hex.h"

namespace kvc {
namespace {

using Fields = std::map<std::string, std::vector<std::string>>;  // a vector by the names of its lines

std::vector<Fields> read_vectors() {
  std::ifstream file(std::string(KEYS_FOLDER) + "/vectors.txt");
  std::vector<Fields> vectors(1);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    if (!(words >> name)) {
      vectors.emplace_back();
      continue;
    }
    auto& values = vectors.back()[name];
    for (std::string value; words >> value;) values.push_back(value);
  }
  return vectors;
}

PageKey key_from_hex(const std::string& text) {
  PageKey key = {};
  const std::vector<uint8_t> bytes = from_hex(text);
  EXPECT_EQ(bytes.size(), key.size()) << text;
  std::copy(bytes.begin(), bytes.end(), key.begin());
  return key;
}

// The same call through the C API.
void check_public(const KeyedTokens& in, const std::vector<uint8_t>& expected) {
  std::vector<int64_t> begins, lengths;
  std::vector<uint8_t> hashes, keys(expected.size());
  for (const MediaSpan& span : in.media) {
    begins.push_back(span.begin);
    lengths.push_back(span.tokens);
    hashes.insert(hashes.end(), span.hash.begin(), span.hash.end());
  }
  kvc_page_keys_args args;
  kvc_page_keys_args_init(&args);
  args.tokens = in.tokens.data(), args.num_tokens = std::ssize(in.tokens), args.page_size = in.page_size;
  args.begin = in.begin, args.parent = in.parent, args.fingerprint = in.fingerprint.data();
  args.adapter = in.adapter.data(), args.adapter_bytes = std::ssize(in.adapter);
  args.salt = in.salt.data(), args.salt_bytes = std::ssize(in.salt), args.salt_begin = in.salt_begin;
  args.num_media = std::ssize(in.media), args.media_begins = begins.data(), args.media_tokens = lengths.data();
  args.media_hashes = hashes.data();
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_page_keys(&args, keys.data(), &error), KVC_OK) << error.message;
  EXPECT_EQ(keys, expected);
}

void check_vector(Fields& vector, const Sha256Blocks& blocks) {
  const auto bytes = [&](const char* name) { return from_hex(vector[name].at(0)); };
  const auto number = [&](const char* name) { return int64_t{std::stoll(vector[name].at(0))}; };
  const auto adapter = bytes("adapter"), salt = bytes("salt"), parent = bytes("parent");
  std::vector<int32_t> tokens;
  for (const std::string& token : vector["tokens"]) tokens.push_back(static_cast<int32_t>(std::stoll(token)));
  std::vector<MediaSpan> media;
  const auto& spans = vector["media"];
  for (size_t i = 0; i + 2 < spans.size(); i += 3) {
    media.push_back({std::stoll(spans[i]), std::stoll(spans[i + 1]), key_from_hex(spans[i + 2])});
  }
  const KeyedTokens in = {.fingerprint = key_from_hex(vector["fingerprint"].at(0)),
                          .adapter = adapter,
                          .salt = salt,
                          .salt_begin = number("salt_begin"),
                          .parent = parent.empty() ? nullptr : parent.data(),
                          .begin = number("begin"),
                          .page_size = number("page_size"),
                          .tokens = tokens,
                          .media = media};
  const auto& expected = vector["keys"];
  std::vector<uint8_t> keys(tokens.size() / static_cast<size_t>(in.page_size) * kPageKeyBytes);
  ASSERT_EQ(page_keys(in, keys.data(), blocks), static_cast<int64_t>(expected.size()));
  for (size_t page = 0; page < expected.size(); ++page) {
    EXPECT_EQ(to_hex(std::span(keys).subspan(page * kPageKeyBytes, kPageKeyBytes)), expected[page]) << "page " << page;
  }
  check_public(in, keys);
}

TEST(Vectors, EveryImplementation) {
  std::vector<Fields> vectors = read_vectors();
  ASSERT_GE(vectors.size(), 50u);
  for (const Sha256Blocks* blocks : sha256_implementations()) {
    for (Fields& vector : vectors) {
      SCOPED_TRACE(vector["name"].at(0) + " by " + blocks->name);
      check_vector(vector, *blocks);
    }
  }
}

}  // namespace
}  // namespace kvc
