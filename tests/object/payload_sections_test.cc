// Payloads in sections: they are written and read in pieces of any size, and nothing damaged is read.
#include "object/payload_sections.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace kvc {
namespace {

class Memory : public ByteSink, public ByteSource {
 public:
  Status write(std::span<const uint8_t> bytes) override {
    data.insert(data.end(), bytes.begin(), bytes.end());
    return Status();
  }
  Status read(std::span<uint8_t> bytes) override {
    if (bytes.size() > data.size() - at) return Status::error(KVC_ERROR_CORRUPT, "the end");
    std::memcpy(bytes.data(), data.data() + at, bytes.size());
    at += bytes.size();
    return Status();
  }
  std::vector<uint8_t> data;
  size_t at = 0;
};

constexpr uint64_t kSeed = 0xfedcba9876543210u;

std::vector<uint8_t> bytes_of(int64_t count) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 31 + i / 251);
  return bytes;
}

Memory written(const std::vector<uint8_t>& payload, const ObjectSizes& sizes, size_t piece) {
  Memory memory;
  PayloadWriter writer(&memory, sizes, kSeed);
  for (size_t at = 0; at < payload.size(); at += piece) {
    EXPECT_TRUE(writer.write(std::span(payload).subspan(at, std::min(piece, payload.size() - at))).ok());
  }
  EXPECT_TRUE(writer.finish().ok());
  return memory;
}

TEST(PayloadSections, AnyPiecesGiveTheSameBytes) {
  for (const int64_t size : {0, 1, 4095, 4096, 4097, 3 * 4096, 10000}) {
    const std::vector<uint8_t> payload = bytes_of(size);
    const ObjectSizes sizes = {192, size, 4096};
    const Memory whole = written(payload, sizes, payload.size() + 1);
    EXPECT_EQ(static_cast<int64_t>(whole.data.size()), sizes.object_bytes() - sizes.header_bytes);
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}, size_t{5000}}) {
      Memory memory = written(payload, sizes, piece);
      EXPECT_EQ(memory.data, whole.data) << size << " in pieces of " << piece;
      PayloadReader reader(&memory, sizes, kSeed);
      std::vector<uint8_t> read(payload.size());
      for (size_t at = 0; at < read.size(); at += piece) {
        ASSERT_TRUE(reader.read(std::span(read).subspan(at, std::min(piece, read.size() - at))).ok());
      }
      EXPECT_EQ(read, payload);
      EXPECT_EQ(reader.left(), 0);
      uint8_t more = 0;
      EXPECT_EQ(reader.read({&more, 1}).code(), KVC_ERROR_CORRUPT);
    }
  }
}

TEST(PayloadSections, SkippedBytesAreCountedAndVerified) {
  const std::vector<uint8_t> payload = bytes_of(10000);
  const ObjectSizes sizes = {192, 10000, 4096};
  Memory memory = written(payload, sizes, 999);
  PayloadReader reader(&memory, sizes, kSeed);
  ASSERT_TRUE(reader.skip(5000).ok());
  uint8_t next[2];
  ASSERT_TRUE(reader.read(next).ok());
  EXPECT_EQ(next[0], payload[5000]);
  EXPECT_EQ(next[1], payload[5001]);
  memory.data[memory.data.size() - 20] ^= 1;  // in the last section
  EXPECT_EQ(reader.skip(4998).code(), KVC_ERROR_CORRUPT);
}

TEST(PayloadSections, EveryDamagedByteIsFoundBeforeItIsUsed) {
  const std::vector<uint8_t> payload = bytes_of(9000);
  const ObjectSizes sizes = {192, 9000, 4096};
  const Memory whole = written(payload, sizes, 9000);
  for (size_t at = 0; at < whole.data.size(); at += 13) {
    Memory memory = whole;
    memory.data[at] ^= static_cast<uint8_t>(1u << at % 8);
    PayloadReader reader(&memory, sizes, kSeed);
    std::vector<uint8_t> read(payload.size());
    EXPECT_EQ(reader.read(read).code(), KVC_ERROR_CORRUPT) << at;
    const size_t verified = at / (4096 + kChecksumBytes) * 4096;  // the read bytes are the written ones
    EXPECT_TRUE(std::equal(read.begin(), read.begin() + static_cast<int64_t>(verified), payload.begin()));
    EXPECT_TRUE(
        std::all_of(read.begin() + static_cast<int64_t>(verified), read.end(), [](uint8_t b) { return b == 0; }));
  }
}

TEST(PayloadSections, SectionsOfAnotherPlaceOrObjectAreRefused) {
  const std::vector<uint8_t> payload(8192, 5);  // two equal sections
  const ObjectSizes sizes = {192, 8192, 4096};
  const Memory whole = written(payload, sizes, 8192);
  std::vector<uint8_t> read(payload.size());
  Memory swapped = whole;
  std::swap_ranges(swapped.data.begin(), swapped.data.begin() + 4112, swapped.data.begin() + 4112);
  EXPECT_EQ(PayloadReader(&swapped, sizes, kSeed).read(read).code(), KVC_ERROR_CORRUPT);
  Memory other = whole;
  EXPECT_EQ(PayloadReader(&other, sizes, kSeed + 1).read(read).code(), KVC_ERROR_CORRUPT);
  Memory cut = whole;
  cut.data.pop_back();
  EXPECT_EQ(PayloadReader(&cut, sizes, kSeed).read(read).code(), KVC_ERROR_CORRUPT);
}

}  // namespace
}  // namespace kvc
