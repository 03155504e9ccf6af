// SHA-256 compared with NIST's examples and Python's hashlib, in every implementation that this CPU can run.
// SPDX-License-Identifier: Apache-2.0
#include "keys/sha256.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/cpu_sha.h"
#include "tests/keys/hex.h"

namespace kvc {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string hash_hex(const Sha256Blocks& blocks, const Bytes& message) {
  uint8_t digest[kSha256Bytes];
  Sha256 hash(blocks);
  hash.update(message.data(), message.size());
  hash.finish(digest);
  return to_hex(digest);
}

class Sha256Test : public testing::TestWithParam<const Sha256Blocks*> {
 protected:
  const Sha256Blocks& blocks() const { return *GetParam(); }
};

// From: NIST, "SHA-256" in the Cryptographic Standards and Guidelines, examples with intermediate values; FIPS 180-2,
// appendix B.
TEST_P(Sha256Test, NistExamples) {
  EXPECT_EQ(hash_hex(blocks(), {}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_hex(blocks(), bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_hex(blocks(), bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_hex(blocks(), bytes_of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
                                        "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu")),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hash_hex(blocks(), Bytes(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// From: NIST, SHA256ShortMsg.rsp of the CAVP test vectors.
TEST_P(Sha256Test, NistShortMessages) {
  EXPECT_EQ(hash_hex(blocks(), from_hex("d3")), "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1");
  EXPECT_EQ(hash_hex(blocks(), from_hex("11af")), "5ca7133fa735326081558ac312c620eeca9970d1e70a4b95533d956f072d1f98");
  EXPECT_EQ(hash_hex(blocks(), from_hex("b4190e")), "dff2e73091f6c05e528896c4c831b9448653dc2ff043528f6769437bc7b975c2");
  EXPECT_EQ(hash_hex(blocks(), from_hex("74ba2521")),
            "b16aa56be3880d18cd41e68384cf1ec8c17680c45a02b1575dc1518923ae8b0e");
}

TEST_P(Sha256Test, EveryShortLength) {
  std::ifstream file(std::string(KEYS_FOLDER) + "/sha256.txt");
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    size_t size = 0;
    std::string expected;
    fields >> size >> expected;
    Bytes message(size);
    for (size_t i = 0; i < size; ++i) message[i] = static_cast<uint8_t>(7 * i + 3);
    EXPECT_EQ(hash_hex(blocks(), message), expected) << size << " bytes";
    ++lines;
  }
  EXPECT_EQ(lines, 131);
}

// A message that comes in pieces of any size has the digest of the whole message.
TEST_P(Sha256Test, Pieces) {
  std::mt19937 draw(3);
  Bytes message(1000);
  for (uint8_t& byte : message) byte = static_cast<uint8_t>(draw());
  const std::string expected = hash_hex(kSha256Portable, message);
  for (int round = 0; round < 300; ++round) {
    Sha256 hash(blocks());
    for (size_t at = 0; at < message.size();) {
      const size_t piece = std::min<size_t>(draw() % 200, message.size() - at);
      hash.update(message.data() + at, piece);
      at += piece;
    }
    uint8_t digest[kSha256Bytes];
    hash.finish(digest);
    ASSERT_EQ(to_hex(digest), expected) << "round " << round;
  }
}

// Two messages that are hashed at once have the states of each alone, at any alignment.
TEST_P(Sha256Test, Pairs) {
  std::mt19937 draw(4);
  Bytes data(2000);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(draw());
  for (size_t count = 0; count < 5; ++count) {
    for (size_t offset = 0; offset < 17; ++offset) {
      uint32_t states[4][8];
      for (int i = 0; i < 8; ++i) {
        states[0][i] = states[1][i] = draw();
        states[2][i] = states[3][i] = draw();
      }
      const uint8_t *a = data.data() + offset, *b = data.data() + 1000 + 3 * offset;
      blocks().compress_pair(states[0], a, states[2], b, count);
      kSha256Portable.compress(states[1], a, count);
      kSha256Portable.compress(states[3], b, count);
      for (int i = 0; i < 8; ++i) {
        ASSERT_EQ(states[0][i], states[1][i]) << count << " blocks, offset " << offset;
        ASSERT_EQ(states[2][i], states[3][i]) << count << " blocks, offset " << offset;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Sha256Test,
                         testing::ValuesIn(sha256_implementations().begin(), sha256_implementations().end()),
                         [](const auto& info) {
                           std::string name = info.param->name;
                           std::erase(name, '-');
                           return name;
                         });

TEST(Sha256Choice, InstructionsWhereTheCpuHasThem) {
  EXPECT_EQ(sha256_implementations().front(), &kSha256Portable);
  EXPECT_EQ(sha256_implementations().size(), cpu_has_sha256() ? 2u : 1u);
  EXPECT_EQ(&sha256_blocks(), sha256_implementations().back());
}

}  // namespace
}  // namespace kvc
