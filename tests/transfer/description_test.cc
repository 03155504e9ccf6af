// TransferDescription: its bytes, and what is refused.
#include "transfer/description.h"

#include <gtest/gtest.h>

#include <cstring>

#include "object/checksum.h"

namespace kvc {
namespace {

TransferDescription sample() {
  TransferDescription d;
  d.transfer = 7;
  d.token = 0x123456789abcdef0;
  d.num_tokens = 100;
  d.timeout_ms = 30000;
  d.tp = {3, 4};
  d.fingerprint[3] = 9;
  d.begins = {0, 92};
  d.manifest = "kvcache layout 1\n";
  d.transport = "memory";
  d.address = {1, 2, 3};
  return d;
}

// With a checksum that is right, so that later checks are reached.
Status decode_changed(std::vector<uint8_t> bytes, size_t at, int64_t value, size_t width) {
  std::memcpy(bytes.data() + at, &value, width);
  const Checksum checksum = checksum_of(std::span(bytes).first(bytes.size() - kChecksumBytes));
  std::copy(checksum.begin(), checksum.end(), bytes.end() - kChecksumBytes);
  TransferDescription out;
  return decode_description(bytes, &out);
}

TEST(TransferDescription, RoundTrip) {
  const TransferDescription d = sample();
  TransferDescription out;
  const Status decoded = decode_description(encode_description(d), &out);
  ASSERT_TRUE(decoded.ok()) << decoded.message();
  EXPECT_EQ(out.transfer, d.transfer);
  EXPECT_EQ(out.token, d.token);
  EXPECT_EQ(out.num_tokens, d.num_tokens);
  EXPECT_EQ(out.timeout_ms, d.timeout_ms);
  EXPECT_EQ(out.tp, d.tp);
  EXPECT_EQ(out.fingerprint, d.fingerprint);
  EXPECT_EQ(out.begins, d.begins);
  EXPECT_EQ(out.manifest, d.manifest);
  EXPECT_EQ(out.transport, d.transport);
  EXPECT_EQ(out.address, d.address);
}

TEST(TransferDescription, FieldsOutOfRangeAreRefusedWithTheirValues) {
  const std::vector<uint8_t> bytes = encode_description(sample());
  const struct {
    size_t at, width;
    int64_t value;
    const char *message;
  } cases[] = {
      {12, 4, 0, "groups 0"},
      {12, 4, 1 << 20, "groups 1048576"},
      {16, 4, 0, "manifest bytes 0"},
      {20, 4, 64, "name bytes 64"},
      {24, 4, 4097, "address bytes 4097"},
      {28, 4, 0, "timeout 0"},
      {28, 4, 3600001, "timeout 3600001"},
      {32, 8, 0, "tokens 0"},
      {32, 8, -1, "tokens -1"},
      {60, 4, 0, "tp_size 0"},
      {60, 4, 4097, "tp_size 4097"},
      {60, 4, 3, "tp_rank 3"},
      {56, 4, -1, "tp_rank -1"},
      {96, 8, -1, "a first token -1"},
      {104, 8, 101, "a first token 101"},
      {16, 4, 18, "bytes, and says"},
  };
  for (const auto &c : cases) {
    const Status status = decode_changed(bytes, c.at, c.value, c.width);
    EXPECT_EQ(status.code(), KVC_ERROR_CORRUPT) << c.message;
    EXPECT_NE(std::string(status.ok() ? "" : status.message()).find(c.message), std::string::npos) << c.message;
  }
  EXPECT_EQ(decode_changed(bytes, 8, 3, 4).code(), KVC_ERROR_UNSUPPORTED);
}

}  // namespace
}  // namespace kvc
