// ObjectHeader: the description at the start of a stored object. It names the model and the layout, the tokens, and the
// size of the payload (the stored K and V), and has a checksum. docs/reference/format.md defines each byte.
//
// To read an object:
//   1. Read kObjectFixedBytes bytes, and call read_object_sizes. It checks all lengths before memory is allocated.
//   2. Read the rest of sizes.header_bytes, and call decode_object_header.
//   3. Read the payload, which follows in sections (payload_sections.h).
//
// Pure. Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "object/checksum.h"

namespace kvc {

enum class ObjectKind : uint32_t {
  kPage = 1,      // one page of tokens of one group, found by its key
  kSequence = 2,  // a saved sequence: all groups
  kSuspended = 3  // a page of a suspended sequence
};

using ObjectKey = std::array<uint8_t, 32>;

inline constexpr int64_t kObjectFixedBytes = 192;      // start of every header, before its parts of variable size
inline constexpr int64_t kMaxManifestBytes = 1 << 20;  // this and the next two are limits of such parts
inline constexpr int64_t kMaxObjectTokens = 1 << 20;   // token ids in a header; a page has at most 65536
inline constexpr int64_t kMaxDetailBytes = 1 << 20;
inline constexpr int64_t kMaxPayloadBytes = int64_t{1} << 50;
inline constexpr int64_t kMinSectionBytes = 1 << 12, kMaxSectionBytes = 1 << 24;
inline constexpr int64_t kDefaultSectionBytes = 1 << 20;

struct ObjectHeader {
  ObjectKind kind = ObjectKind::kPage;
  ObjectKey key = {};                            // of the page; zeros in a saved sequence
  ObjectKey parent = {};                         // of the page before it; zeros = none
  ObjectKey fingerprint = {};                    // of the model; zeros = none
  int64_t token_begin = 0;                       // position of the first token
  int64_t num_tokens = 0;                        // tokens whose rows the payload has, or the length of a saved sequence
  std::string manifest;                          // the layout as text
  std::vector<int32_t> tokens;                   // token ids; those of a saved sequence are in its payload
  std::vector<uint8_t> details;                  // fields that only this kind of object has
  int64_t payload_bytes = 0;                     // without the checksums of its sections
  int64_t section_bytes = kDefaultSectionBytes;  // a power of two
};

// Sizes of an object. They were checked to be within their bounds.
struct ObjectSizes {
  int64_t header_bytes = 0;
  int64_t payload_bytes = 0;
  int64_t section_bytes = 0;

  int64_t num_sections() const noexcept { return (payload_bytes + section_bytes - 1) / section_bytes; }
  // All bytes of the object: header, payload, and a checksum after each section.
  int64_t object_bytes() const noexcept { return header_bytes + payload_bytes + num_sections() * kChecksumBytes; }
};

// SHA-256 of a manifest: the digest of a layout.
ObjectKey manifest_digest(const std::string& manifest) noexcept;

// Encodes a header. Its parts must be within their bounds (asserted). Throws std::bad_alloc.
std::vector<uint8_t> encode_object_header(const ObjectHeader& header);
// Bytes of an encoded header, a multiple of 64.
int64_t object_header_bytes(const ObjectHeader& header) noexcept;

// Reads the first kObjectFixedBytes of an object. Fails with CORRUPT if a field is impossible, and with UNSUPPORTED
// if the object has another format version.
Status read_object_sizes(std::span<const uint8_t> fixed, ObjectSizes* out);

// Decodes a whole header, of ObjectSizes::header_bytes. Fails with CORRUPT if a length, the checksum, the padding or
// the digest of the manifest is wrong. Throws std::bad_alloc.
Status decode_object_header(std::span<const uint8_t> bytes, ObjectHeader* out);

// The seed for the checksums of an object's sections. It comes from the checksum of the header, so a section of
// another object fails its check.
uint64_t section_seed(std::span<const uint8_t> header_bytes) noexcept;

}  // namespace kvc
