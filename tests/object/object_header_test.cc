// Headers of objects: a written header can be read, and nothing else is accepted.
#include "object/object_header.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kvc {
namespace {

ObjectHeader example() {
  ObjectHeader header;
  for (size_t i = 0; i < header.key.size(); ++i) {
    header.key[i] = static_cast<uint8_t>(i + 1);
    header.parent[i] = static_cast<uint8_t>(i + 101);
    header.fingerprint[i] = static_cast<uint8_t>(i + 201);
  }
  header.token_begin = 32;
  header.num_tokens = 3;
  header.manifest = "kvcache layout 1\ngroup 0: kv, all\n";
  header.tokens = {7, -8, 1 << 30};
  header.details = {1, 2, 3, 4, 5};
  header.payload_bytes = 1000;
  header.section_bytes = 4096;
  return header;
}

TEST(ObjectHeader, ComesBack) {
  const ObjectHeader header = example();
  const std::vector<uint8_t> bytes = encode_object_header(header);
  EXPECT_EQ(bytes.size() % 64, 0u);
  EXPECT_EQ(static_cast<int64_t>(bytes.size()), object_header_bytes(header));
  ObjectSizes sizes;
  ASSERT_TRUE(read_object_sizes(std::span(bytes).first(kObjectFixedBytes), &sizes).ok());
  EXPECT_EQ(sizes.header_bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(sizes.object_bytes(), sizes.header_bytes + 1000 + 16);
  ObjectHeader read;
  ASSERT_TRUE(decode_object_header(bytes, &read).ok());
  EXPECT_EQ(read.kind, header.kind);
  EXPECT_EQ(read.key, header.key);
  EXPECT_EQ(read.parent, header.parent);
  EXPECT_EQ(read.fingerprint, header.fingerprint);
  EXPECT_EQ(read.token_begin, 32);
  EXPECT_EQ(read.num_tokens, 3);
  EXPECT_EQ(read.manifest, header.manifest);
  EXPECT_EQ(read.tokens, header.tokens);
  EXPECT_EQ(read.details, header.details);
  EXPECT_EQ(read.payload_bytes, 1000);
  EXPECT_EQ(read.section_bytes, 4096);
}

TEST(ObjectHeader, EveryBitMatters) {
  std::vector<uint8_t> bytes = encode_object_header(example());
  ObjectHeader read;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    const kvc_status status = decode_object_header(bytes, &read).code();
    const bool version = bit / 8 >= 8 && bit / 8 < 12;
    EXPECT_EQ(status, version ? KVC_ERROR_UNSUPPORTED : KVC_ERROR_CORRUPT) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  }
  EXPECT_TRUE(decode_object_header(bytes, &read).ok());
}

TEST(ObjectHeader, EveryLengthIsRefused) {
  const std::vector<uint8_t> bytes = encode_object_header(example());
  ObjectHeader read;
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(decode_object_header(std::span(bytes).first(size), &read).code(), KVC_ERROR_CORRUPT) << size;
  }
}

// Writes a field of the fixed part, and reads the sizes, as a reader does before it allocates.
template <class T>
kvc_status sizes_with(size_t offset, T value) {
  std::vector<uint8_t> bytes = encode_object_header(example());
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  ObjectSizes sizes;
  return read_object_sizes(std::span(bytes).first(kObjectFixedBytes), &sizes).code();
}

TEST(ObjectHeader, LengthsAreBoundedBeforeAnythingIsAllocated) {
  EXPECT_EQ(sizes_with(16, uint32_t{0xffffffffu}), KVC_ERROR_CORRUPT);  // header_bytes
  EXPECT_EQ(sizes_with(20, uint32_t{kMaxManifestBytes + 1}), KVC_ERROR_CORRUPT);
  EXPECT_EQ(sizes_with(24, uint32_t{kMaxObjectTokens + 1}), KVC_ERROR_CORRUPT);
  EXPECT_EQ(sizes_with(28, uint32_t{kMaxDetailBytes + 1}), KVC_ERROR_CORRUPT);
  EXPECT_EQ(sizes_with(32, uint64_t{1} << 63), KVC_ERROR_CORRUPT);  // payload_bytes
  EXPECT_EQ(sizes_with(32, uint64_t{kMaxPayloadBytes} + 1), KVC_ERROR_CORRUPT);
  EXPECT_EQ(sizes_with(40, uint32_t{0}), KVC_ERROR_CORRUPT);  // section_bytes
  EXPECT_EQ(sizes_with(40, uint32_t{4097}), KVC_ERROR_CORRUPT);
  EXPECT_EQ(sizes_with(40, uint32_t{1u << 31}), KVC_ERROR_CORRUPT);
  EXPECT_EQ(sizes_with(48, int64_t{-1}), KVC_ERROR_CORRUPT);       // token_begin
  EXPECT_EQ(sizes_with(56, int64_t{1} << 40), KVC_ERROR_CORRUPT);  // num_tokens
  EXPECT_EQ(sizes_with(40, uint32_t{8192}), KVC_OK);
}

TEST(ObjectHeader, AWrongDigestWithARightChecksumIsRefused) {
  std::vector<uint8_t> bytes = encode_object_header(example());
  bytes[160] ^= 1;
  const Checksum checksum = checksum_of(std::span(bytes).first(bytes.size() - kChecksumBytes));
  std::copy(checksum.begin(), checksum.end(), bytes.end() - kChecksumBytes);
  ObjectHeader read;
  const Status status = decode_object_header(bytes, &read);
  EXPECT_EQ(status.code(), KVC_ERROR_CORRUPT);
  EXPECT_NE(std::strstr(status.message(), "digest"), nullptr) << status.message();
}

}  // namespace
}  // namespace kvc
