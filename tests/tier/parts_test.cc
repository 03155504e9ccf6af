// The parts of the disk tier that are pure: frames, names, the index, the meter.
#include <gtest/gtest.h>

#include "tier/object_frame.h"
#include "tier/object_index.h"
#include "tier/object_name.h"
#include "tier/transfer_meter.h"
#include "tier_driver.h"

namespace kvc {
namespace {

using namespace kvt;

std::string hex(const uint8_t *bytes, size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) {
    char two[3];
    snprintf(two, sizeof two, "%02x", bytes[i]);
    text += two;
  }
  return text;
}

kvc_tier_key counting_key() {
  kvc_tier_key key;
  for (uint8_t i = 0; i < 32; ++i) key.bytes[i] = i;
  return key;
}

// Golden bytes: files of this release stay readable. The checksums are those of the program xxhsum.
TEST(ObjectFrame, HeaderByteByByte) {
  uint8_t header[kFrameHeaderBytes];
  const uint8_t hello[] = {'h', 'e', 'l', 'l', 'o'};
  encode_frame_header(counting_key(), 5, checksum_of(hello), header);
  EXPECT_EQ(hex(header, 16),
            "6b766364"
            "69736b31"
            "01000000"
            "80000000");
  EXPECT_EQ(hex(header + 16, 32), "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
  EXPECT_EQ(hex(header + 48, 16),
            "0500000000000000"
            "0000000000000000");
  EXPECT_EQ(hex(header + 64, 16), "b5e9c1ad071b3e7fc779cfaa5e523818");
  EXPECT_EQ(hex(header + 80, 32), std::string(64, '0'));
  EXPECT_EQ(hex(header + 112, 16), "52effa1e9826a0de397c61e7ba4cadcd");
}

TEST(ObjectFrame, Sizes) {
  EXPECT_EQ(frame_bytes(0), 4096);
  EXPECT_EQ(frame_bytes(3968), 4096);
  EXPECT_EQ(frame_bytes(3969), 8192);
  EXPECT_EQ(frame_bytes(kMaxFramePayloadBytes), kMaxFramePayloadBytes + 4096);
}

TEST(ObjectName, RoundTrip) {
  EXPECT_EQ(object_name(counting_key(), 0x1f40),
            "00/000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f.1f40");
  for (const int64_t bytes :
       {int64_t{0}, int64_t{1}, int64_t{15}, int64_t{16}, int64_t{65536}, kMaxFramePayloadBytes}) {
    const kvc_tier_key key = key_of(static_cast<uint64_t>(bytes));
    const std::string name = object_name(key, bytes);
    kvc_tier_key read;
    int64_t read_bytes = -1;
    ASSERT_TRUE(parse_object_name(key.bytes[0], name.c_str() + 3, &read, &read_bytes)) << name;
    EXPECT_TRUE(read == key);
    EXPECT_EQ(read_bytes, bytes);
    EXPECT_FALSE(parse_object_name(key.bytes[0] ^ 1, name.c_str() + 3, &read, &read_bytes));
  }
  const std::string key(64, '0');
  for (const std::string &bad :
       {std::string(), std::string("."), key, key + ".", key + ".01", key + ".G", key + ".-1", key + ".10000000001",
        key + "0.1", key.substr(1) + ".1", std::string(64, 'A') + ".1"}) {
    kvc_tier_key read;
    int64_t bytes;
    EXPECT_FALSE(parse_object_name(0, bad.c_str(), &read, &bytes)) << bad;
  }
}

TEST(ObjectIndex, ListingErasesWhatIsGone) {
  ObjectIndex index;
  kvc_tier_key keys[3];
  for (uint8_t i = 0; i < 3; ++i) {
    keys[i] = key_of(i);
    keys[i].bytes[0] = i == 2 ? 9 : 8;
    index.put(keys[i], 5000 * i, 100 - i);
  }
  EXPECT_EQ(index.stored_bytes(), 4096 + 8192 + 12288);
  EXPECT_TRUE(*index.oldest() == keys[2]);
  index.begin_listing();
  index.seen(keys[1]);
  kvc_tier_key added = key_of(5);
  added.bytes[0] = 8;
  index.put(added, 1, 1);
  index.end_listing(8);
  EXPECT_EQ(index.find(keys[0]), nullptr);
  EXPECT_NE(index.find(keys[1]), nullptr);
  EXPECT_NE(index.find(keys[2]), nullptr);  // of another folder
  EXPECT_TRUE(*index.oldest() == added);
  index.touch(added, 1000, 1000);
  EXPECT_TRUE(*index.oldest() == keys[2]);
  EXPECT_EQ(index.latest_stamp_ns(), 1000);
  EXPECT_TRUE(index.erase(keys[1]) && index.erase(keys[2]) && index.erase(added));
  EXPECT_FALSE(index.erase(added));
  EXPECT_EQ(index.stored_bytes(), 0);
  EXPECT_EQ(index.oldest(), nullptr);
}

// A disk with a latency of 100 us and 1 GB/s.
TEST(TransferMeter, FindsLatencyAndBandwidth) {
  TransferMeter meter;
  EXPECT_EQ(meter.bytes_per_second(), 0);
  int64_t now = 5;
  for (int i = 0; i < 200; ++i) {  // eight at once, so that bandwidth is the limit
    std::vector<TransferMeter::Item> items;
    for (int j = 0; j < 8; ++j) items.push_back(meter.begin(now));
    now += 100'000;
    for (const TransferMeter::Item &item : items) now += 1'000'000, meter.end(item, now, 1'000'000);
  }
  EXPECT_NEAR(static_cast<double>(meter.bytes_per_second()), 0.987e9, 0.02e9);
  EXPECT_GT(meter.latency_ns(), 20'000);
  EXPECT_LT(meter.latency_ns(), 200'000);
  const TransferMeter::Item failed = meter.begin(now);
  meter.end(failed, now + 50'000'000, 0);  // a failure does not count as a sample
  EXPECT_NEAR(static_cast<double>(meter.bytes_per_second()), 0.987e9, 0.02e9);
}

}  // namespace
}  // namespace kvc
