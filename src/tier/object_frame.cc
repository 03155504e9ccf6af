#include "tier/object_frame.h"

#include <cstring>

namespace kvc {
namespace {

// Offsets of the fields. Integers are little endian.
constexpr char kMagic[8] = {'k', 'v', 'c', 'd', 'i', 's', 'k', '1'};
constexpr uint32_t kVersion = 1;
constexpr int kVersionAt = 8, kHeaderBytesAt = 12, kKeyAt = 16, kPayloadBytesAt = 48, kZerosAt = 56, kPayloadSumAt = 64,
              kMoreZerosAt = 80, kHeaderSumAt = 112;

template <typename T>
void put(uint8_t* at, T value) noexcept {
  for (size_t i = 0; i < sizeof value; ++i) at[i] = static_cast<uint8_t>(value >> (8 * i));
}

}  // namespace

int64_t frame_bytes(int64_t payload_bytes) noexcept {
  return (kFrameHeaderBytes + payload_bytes + kFrameBlockBytes - 1) / kFrameBlockBytes * kFrameBlockBytes;
}

void encode_frame_header(const kvc_tier_key& key, int64_t payload_bytes, const Checksum& payload,
                         uint8_t* header) noexcept {
  std::memset(header, 0, kFrameHeaderBytes);
  std::memcpy(header, kMagic, sizeof kMagic);
  put(header + kVersionAt, kVersion);
  put(header + kHeaderBytesAt, static_cast<uint32_t>(kFrameHeaderBytes));
  std::memcpy(header + kKeyAt, key.bytes, sizeof key.bytes);
  put(header + kPayloadBytesAt, static_cast<uint64_t>(payload_bytes));
  std::memcpy(header + kPayloadSumAt, payload.data(), payload.size());
  const Checksum sum = checksum_of({header, kHeaderSumAt});
  std::memcpy(header + kHeaderSumAt, sum.data(), sum.size());
  static_assert(kZerosAt + 8 == kPayloadSumAt && kMoreZerosAt + 32 == kHeaderSumAt, "zeros fill the gaps");
}

int64_t frame_payload_bytes(const uint8_t* header) noexcept {
  uint64_t bytes = 0;
  for (int i = 0; i < 8; ++i) bytes |= uint64_t{header[kPayloadBytesAt + i]} << (8 * i);
  return static_cast<int64_t>(bytes);
}

// A header is determined by the key, the size and the checksum of the payload. So the check computes the expected
// header and compares all bytes.
bool check_frame_header(const uint8_t* header, const kvc_tier_key& key, int64_t payload_bytes,
                        Checksum* payload) noexcept {
  std::memcpy(payload->data(), header + kPayloadSumAt, payload->size());
  uint8_t expected[kFrameHeaderBytes];
  encode_frame_header(key, payload_bytes, *payload, expected);
  return std::memcmp(header, expected, sizeof expected) == 0;
}

}  // namespace kvc
