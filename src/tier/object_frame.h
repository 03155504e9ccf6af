// The frame around an object in a file. It consists of 128 bytes before the payload, and of zeros after the payload, up
// to a multiple of 4096 bytes. With the frame, a read can check that a file holds the object of its name.
// docs/reference/tiers.md lists every byte.
//
// Pure. Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kvcache_tier.h"
#include "object/checksum.h"

namespace kvc {

inline constexpr int64_t kFrameHeaderBytes = 128;
inline constexpr int64_t kFrameBlockBytes = 4096;  // a file has whole blocks, because direct I/O needs them
inline constexpr int64_t kMaxFramePayloadBytes = int64_t{1} << 40;

// Returns the size of the file of an object. payload_bytes must be in 0..kMaxFramePayloadBytes.
int64_t frame_bytes(int64_t payload_bytes) noexcept;

// Writes kFrameHeaderBytes bytes to `header`.
void encode_frame_header(const kvc_tier_key& key, int64_t payload_bytes, const Checksum& payload,
                         uint8_t* header) noexcept;

// Returns the size of the payload that the header states. The size may be wrong if check_frame_header has not accepted
// the header.
int64_t frame_payload_bytes(const uint8_t* header) noexcept;

// Returns whether `header`, [kFrameHeaderBytes], is the intact header of this object, of a known version. Sets *payload
// to the checksum of the payload that the header states.
bool check_frame_header(const uint8_t* header, const kvc_tier_key& key, int64_t payload_bytes,
                        Checksum* payload) noexcept;

}  // namespace kvc
