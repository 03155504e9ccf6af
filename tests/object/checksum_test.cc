// Checksums compared with those of another implementation, at sizes around every branch of XXH3.
#include "object/checksum.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/keys/hex.h"

namespace kvc {
namespace {

std::vector<uint8_t> counted(size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(7 * i + 3);
  return bytes;
}

// Expected values are `xxhash.xxh3_128_hexdigest(bytes, seed=seed)` of Python's package xxhash.
TEST(Checksum, IsXxh3Of128Bits) {
  const struct {
    size_t size;
    const char *plain, *seeded;
  } rows[] = {
      {0, "99aa06d3014798d86001c324468d497f", "d142977a2cca554b4ca5176998171787"},
      {5, "5787f33cbc36d4c8d3497975144f78a7", "fe34488a7e91edc44089315d5f385e93"},
      {16, "ce0b9647ab24f88460d75c5e47d40a24", "4f914088f379a471525da27d50e50d60"},
      {100, "2207ed96998d91f20cc97f05750182b2", "5ad7d303a85636f385ba41e67f50272a"},
      {200, "32200a52a918beaf380142cdd5843bbd", "ef07c15be0d0e542891a213e72c90bb7"},
      {240, "ad46c1021b076bc704e0b5f034bee80b", "9bd1b9f5f322c628ecae892a3fac66c3"},
      {241, "ac6c3492c3d6b45d8beadd3a8874fe17", "44bd02453c9c891ca0462d397650b282"},
      {5000, "c98ae385d09887cc799aaddd7339581d", "97456f98ec4c2df04eae2d7f035db6bb"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(to_hex(checksum_of(counted(row.size))), row.plain) << row.size;
    EXPECT_EQ(to_hex(checksum_of(counted(row.size), 0x9e3779b97f4a7c15)), row.seeded) << row.size;
  }
}

TEST(Checksum, ComesInParts) {
  const std::vector<uint8_t> bytes = counted(5000);
  RunningChecksum sum;
  for (const size_t first : {0, 1, 239, 241, 1024, 5000}) {
    sum.reset();
    sum.add(std::span(bytes).first(first));
    sum.add(std::span(bytes).subspan(first));
    EXPECT_EQ(sum.value(), checksum_of(bytes)) << first;
  }
}

}  // namespace
}  // namespace kvc
