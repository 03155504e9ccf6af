#include "object/object_header.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstring>

#include "base/assert.h"
#include "keys/sha256.h"

namespace kvc {
namespace {

static_assert(std::endian::native == std::endian::little, "objects are little endian, and are written as they are");

constexpr char kMagic[8] = {'k', 'v', 'c', 'o', 'b', 'j', '\r', '\n'};  // a copy in text mode would change "\r\n"
constexpr uint32_t kFormatVersion = 1;
constexpr int64_t kHeaderAlignment = 64;

// The first kObjectFixedBytes bytes of an object.
struct Fixed {
  char magic[8];
  uint32_t version;
  uint32_t kind;
  uint32_t header_bytes;
  uint32_t manifest_bytes;
  uint32_t num_token_ids;
  uint32_t detail_bytes;
  uint64_t payload_bytes;
  uint32_t section_bytes;
  uint32_t reserved;
  int64_t token_begin;
  int64_t num_tokens;
  ObjectKey key, parent, fingerprint, digest;
};
static_assert(sizeof(Fixed) == kObjectFixedBytes && std::has_unique_object_representations_v<Fixed>);

int64_t header_bytes_of(int64_t manifest, int64_t tokens, int64_t details) noexcept {
  const int64_t used = kObjectFixedBytes + manifest + 4 * tokens + details + kChecksumBytes;
  return (used + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment;
}

Status corrupt(const char* what, int64_t value, int64_t least, int64_t most) {
  return Status::error(KVC_ERROR_CORRUPT, "the header has %s %" PRId64 ", which is not in %" PRId64 "..%" PRId64, what,
                       value, least, most);
}

Status check_fixed(const Fixed& fixed) {
  if (std::memcmp(fixed.magic, kMagic, sizeof kMagic) != 0) {
    return Status::error(KVC_ERROR_CORRUPT, "the first bytes are not those of an object of libkvcache");
  }
  if (fixed.version != kFormatVersion) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "the object has format version %u, and this library reads version %u",
                         fixed.version, kFormatVersion);
  }
  const struct {
    const char* name;
    int64_t value, least, most;
  } fields[] = {
      {"kind", fixed.kind, 1, 3},
      {"manifest bytes", fixed.manifest_bytes, 0, kMaxManifestBytes},
      {"token ids", fixed.num_token_ids, 0, kMaxObjectTokens},
      {"detail bytes", fixed.detail_bytes, 0, kMaxDetailBytes},
      {"payload bytes", static_cast<int64_t>(std::min<uint64_t>(fixed.payload_bytes, INT64_MAX)), 0, kMaxPayloadBytes},
      {"section bytes", fixed.section_bytes, kMinSectionBytes, kMaxSectionBytes},
      {"reserved", fixed.reserved, 0, 0},
      {"first token", fixed.token_begin, 0, int64_t{1} << 30},
      {"tokens", fixed.num_tokens, 0, int64_t{1} << 30},
  };
  for (const auto& field : fields) {
    if (field.value < field.least || field.value > field.most) {
      return corrupt(field.name, field.value, field.least, field.most);
    }
  }
  if (!std::has_single_bit(fixed.section_bytes)) {
    return Status::error(KVC_ERROR_CORRUPT, "the header has section bytes %u, which is no power of two",
                         fixed.section_bytes);
  }
  const int64_t expected = header_bytes_of(fixed.manifest_bytes, fixed.num_token_ids, fixed.detail_bytes);
  return fixed.header_bytes == expected ? Status() : corrupt("header bytes", fixed.header_bytes, expected, expected);
}

Fixed fixed_of(std::span<const uint8_t> bytes) noexcept {
  Fixed fixed;
  std::memcpy(&fixed, bytes.data(), sizeof fixed);
  return fixed;
}

}  // namespace

ObjectKey manifest_digest(const std::string& manifest) noexcept {
  ObjectKey digest;
  Sha256 hash;
  hash.update(manifest.data(), manifest.size());
  hash.finish(digest.data());
  return digest;
}

int64_t object_header_bytes(const ObjectHeader& header) noexcept {
  return header_bytes_of(static_cast<int64_t>(header.manifest.size()), static_cast<int64_t>(header.tokens.size()),
                         static_cast<int64_t>(header.details.size()));
}

std::vector<uint8_t> encode_object_header(const ObjectHeader& header) {
  const int64_t size = object_header_bytes(header);
  Fixed fixed = {};
  std::memcpy(fixed.magic, kMagic, sizeof kMagic);
  fixed.version = kFormatVersion;
  fixed.kind = static_cast<uint32_t>(header.kind);
  fixed.header_bytes = static_cast<uint32_t>(size);
  fixed.manifest_bytes = static_cast<uint32_t>(header.manifest.size());
  fixed.num_token_ids = static_cast<uint32_t>(header.tokens.size());
  fixed.detail_bytes = static_cast<uint32_t>(header.details.size());
  fixed.payload_bytes = static_cast<uint64_t>(header.payload_bytes);
  fixed.section_bytes = static_cast<uint32_t>(header.section_bytes);
  fixed.token_begin = header.token_begin;
  fixed.num_tokens = header.num_tokens;
  fixed.key = header.key;
  fixed.parent = header.parent;
  fixed.fingerprint = header.fingerprint;
  fixed.digest = manifest_digest(header.manifest);
  KVC_ASSERT(check_fixed(fixed).ok(), size, header.payload_bytes);
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  uint8_t* next = bytes.data();
  const auto add = [&](const void* data, size_t count) {
    if (count > 0) std::memcpy(next, data, count);
    next += count;
  };
  add(&fixed, sizeof fixed);
  add(header.manifest.data(), header.manifest.size());
  add(header.tokens.data(), 4 * header.tokens.size());
  add(header.details.data(), header.details.size());
  const Checksum checksum = checksum_of(std::span(bytes).first(bytes.size() - kChecksumBytes));
  std::copy(checksum.begin(), checksum.end(), bytes.end() - kChecksumBytes);
  return bytes;
}

Status read_object_sizes(std::span<const uint8_t> bytes, ObjectSizes* out) {
  if (bytes.size() < kObjectFixedBytes) {
    return Status::error(KVC_ERROR_CORRUPT, "%zu bytes are fewer than the %" PRId64 " with which a header begins",
                         bytes.size(), kObjectFixedBytes);
  }
  const Fixed fixed = fixed_of(bytes);
  KVC_TRY(check_fixed(fixed));
  *out = {fixed.header_bytes, static_cast<int64_t>(fixed.payload_bytes), fixed.section_bytes};
  return Status();
}

Status decode_object_header(std::span<const uint8_t> bytes, ObjectHeader* out) {
  ObjectSizes sizes;
  KVC_TRY(read_object_sizes(bytes, &sizes));
  if (static_cast<int64_t>(bytes.size()) != sizes.header_bytes) {
    return Status::error(KVC_ERROR_CORRUPT, "the header has %" PRId64 " bytes, and %zu are there", sizes.header_bytes,
                         bytes.size());
  }
  const auto body = bytes.first(bytes.size() - kChecksumBytes);
  const Checksum checksum = checksum_of(body);
  if (!std::equal(checksum.begin(), checksum.end(), bytes.end() - kChecksumBytes)) {
    return Status::error(KVC_ERROR_CORRUPT, "the header does not have its checksum");
  }
  const Fixed fixed = fixed_of(bytes);
  const uint8_t* next = bytes.data() + kObjectFixedBytes;
  out->kind = static_cast<ObjectKind>(fixed.kind);
  out->key = fixed.key;
  out->parent = fixed.parent;
  out->fingerprint = fixed.fingerprint;
  out->token_begin = fixed.token_begin;
  out->num_tokens = fixed.num_tokens;
  out->payload_bytes = sizes.payload_bytes;
  out->section_bytes = sizes.section_bytes;
  out->manifest.assign(reinterpret_cast<const char*>(next), fixed.manifest_bytes);
  next += fixed.manifest_bytes;
  out->tokens.resize(fixed.num_token_ids);
  if (!out->tokens.empty()) std::memcpy(out->tokens.data(), next, 4 * out->tokens.size());
  next += 4 * out->tokens.size();
  out->details.assign(next, next + fixed.detail_bytes);
  next += fixed.detail_bytes;
  if (std::any_of(next, body.data() + body.size(), [](uint8_t byte) { return byte != 0; })) {
    return Status::error(KVC_ERROR_CORRUPT, "the header does not end in zeros");
  }
  if (fixed.digest != manifest_digest(out->manifest)) {
    return Status::error(KVC_ERROR_CORRUPT, "the digest is not that of the manifest");
  }
  return Status();
}

uint64_t section_seed(std::span<const uint8_t> header_bytes) noexcept {
  uint64_t seed = 0;
  std::memcpy(&seed, header_bytes.data() + header_bytes.size() - kChecksumBytes, sizeof seed);
  return seed;
}

}  // namespace kvc
