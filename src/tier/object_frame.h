// The frame around an object in a file: 128 bytes before the payload, and zeros after it up to a multiple of 4096.
// A frame proves that a file holds the object that its name says. docs/reference/tiers.md has it byte by byte.
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
inline constexpr int64_t kFrameBlockBytes = 4096;  // files have whole blocks, as direct I/O needs
inline constexpr int64_t kMaxFramePayloadBytes = int64_t{1} << 40;

// Size of the file of an object. payload_bytes is in 0..kMaxFramePayloadBytes.
int64_t frame_bytes(int64_t payload_bytes) noexcept;

// Writes the header, [kFrameHeaderBytes].
void encode_frame_header(const kvc_tier_key& key, int64_t payload_bytes, const Checksum& payload,
                         uint8_t* header) noexcept;

// The size of the payload, as the header says it. It may be any number until check_frame_header accepts it.
int64_t frame_payload_bytes(const uint8_t* header) noexcept;

// Whether `header`, [kFrameHeaderBytes], is that of this object, whole and of a known version. If so, fills the
// checksum that the payload must have.
bool check_frame_header(const uint8_t* header, const kvc_tier_key& key, int64_t payload_bytes,
                        Checksum* payload) noexcept;

}  // namespace kvc
