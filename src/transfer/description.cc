#include "transfer/description.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstring>

#include "kvcache_transport.h"
#include "object/checksum.h"

namespace kvc {
namespace {

static_assert(std::endian::native == std::endian::little,
              "descriptions are little endian, and are written as they are");

constexpr char kMagic[8] = {'k', 'v', 'c', 'x', 'f', 'e', 'r', '\n'};
constexpr uint32_t kVersion = 2;
constexpr uint32_t kMaxGroups = 1 << 16;
constexpr uint32_t kMaxManifestBytes = 1 << 24;
constexpr uint32_t kMaxNameBytes = 63;

// The first bytes of a description. After them come the first token of each group (`begins`), the manifest, the name
// of the transport, the address and a checksum.
struct Fixed {
  char magic[8];
  uint32_t version;
  uint32_t num_groups;
  uint32_t manifest_bytes;
  uint32_t name_bytes;
  uint32_t address_bytes;
  int32_t timeout_ms;
  int64_t num_tokens;
  uint64_t transfer;
  uint64_t token;
  int32_t tp_rank, tp_size;
  PageKey fingerprint;
};
static_assert(sizeof(Fixed) == 96 && std::has_unique_object_representations_v<Fixed>);

Status corrupt(const char* what, int64_t value, int64_t least, int64_t most) {
  return Status::error(KVC_ERROR_CORRUPT, "the description has %s %" PRId64 ", which is not in %" PRId64 "..%" PRId64,
                       what, value, least, most);
}

}  // namespace

std::vector<uint8_t> encode_description(const TransferDescription& d) {
  Fixed fixed = {};
  std::memcpy(fixed.magic, kMagic, sizeof kMagic);
  fixed.version = kVersion;
  fixed.num_groups = static_cast<uint32_t>(d.begins.size());
  fixed.manifest_bytes = static_cast<uint32_t>(d.manifest.size());
  fixed.name_bytes = static_cast<uint32_t>(d.transport.size());
  fixed.address_bytes = static_cast<uint32_t>(d.address.size());
  fixed.timeout_ms = d.timeout_ms;
  fixed.num_tokens = d.num_tokens;
  fixed.transfer = d.transfer;
  fixed.token = d.token;
  fixed.tp_rank = d.tp.rank;
  fixed.tp_size = d.tp.size;
  fixed.fingerprint = d.fingerprint;
  std::vector<uint8_t> bytes;
  const auto add = [&](const void* data, size_t count) {
    const auto* first = static_cast<const uint8_t*>(data);
    bytes.insert(bytes.end(), first, first + count);
  };
  add(&fixed, sizeof fixed);
  add(d.begins.data(), 8 * d.begins.size());
  add(d.manifest.data(), d.manifest.size());
  add(d.transport.data(), d.transport.size());
  add(d.address.data(), d.address.size());
  const Checksum checksum = checksum_of(bytes);
  add(checksum.data(), checksum.size());
  return bytes;
}

Status decode_description(std::span<const uint8_t> bytes, TransferDescription* out) {
  Fixed fixed;
  if (bytes.size() < sizeof fixed + kChecksumBytes) {
    return Status::error(KVC_ERROR_CORRUPT, "%zu bytes are too few for a description", bytes.size());
  }
  std::memcpy(&fixed, bytes.data(), sizeof fixed);
  if (std::memcmp(fixed.magic, kMagic, sizeof kMagic) != 0) {
    return Status::error(KVC_ERROR_CORRUPT, "the first bytes are not those of a description");
  }
  if (fixed.version != kVersion) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "the description has version %u, and this library reads version %u",
                         fixed.version, kVersion);
  }
  const struct {
    const char* name;
    int64_t value, least, most;
  } fields[] = {
      {"groups", fixed.num_groups, 1, kMaxGroups},
      {"manifest bytes", fixed.manifest_bytes, 1, kMaxManifestBytes},
      {"name bytes", fixed.name_bytes, 1, kMaxNameBytes},
      {"address bytes", fixed.address_bytes, 1, KVC_TRANSPORT_MAX_ADDRESS_BYTES},
      {"timeout", fixed.timeout_ms, 1, 3600000},
      {"tokens", fixed.num_tokens, 1, int64_t{1} << 30},
      {"tp_size", fixed.tp_size, 1, kMaxTpSize},
      {"tp_rank", fixed.tp_rank, 0, int64_t{fixed.tp_size} - 1},
  };
  for (const auto& field : fields) {
    if (field.value < field.least || field.value > field.most)
      return corrupt(field.name, field.value, field.least, field.most);
  }
  const uint64_t expected = sizeof fixed + 8 * uint64_t{fixed.num_groups} + fixed.manifest_bytes + fixed.name_bytes +
                            fixed.address_bytes + kChecksumBytes;
  if (bytes.size() != expected) {
    return Status::error(KVC_ERROR_CORRUPT, "the description has %zu bytes, and says %" PRIu64, bytes.size(), expected);
  }
  const auto body = bytes.first(bytes.size() - kChecksumBytes);
  const Checksum checksum = checksum_of(body);
  if (!std::equal(checksum.begin(), checksum.end(), body.data() + body.size())) {
    return Status::error(KVC_ERROR_CORRUPT, "the description does not have its checksum");
  }
  const uint8_t* next = bytes.data() + sizeof fixed;
  out->transfer = fixed.transfer;
  out->token = fixed.token;
  out->tp = {fixed.tp_rank, fixed.tp_size};
  out->num_tokens = fixed.num_tokens;
  out->timeout_ms = fixed.timeout_ms;
  out->fingerprint = fixed.fingerprint;
  out->begins.resize(fixed.num_groups);
  std::memcpy(out->begins.data(), next, 8 * out->begins.size());
  next += 8 * out->begins.size();
  for (const int64_t begin : out->begins) {
    if (begin < 0 || begin > fixed.num_tokens) return corrupt("a first token", begin, 0, fixed.num_tokens);
  }
  out->manifest.assign(reinterpret_cast<const char*>(next), fixed.manifest_bytes);
  next += fixed.manifest_bytes;
  out->transport.assign(reinterpret_cast<const char*>(next), fixed.name_bytes);
  next += fixed.name_bytes;
  out->address.assign(next, next + fixed.address_bytes);
  return Status();
}

}  // namespace kvc
