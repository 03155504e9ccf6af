// Fuzz target of transfer descriptions: bytes become a description, whose checksum is made right. What is accepted must
// encode to the same bytes.
#include "../src/transfer/description.h"

#include <cstdio>
#include <cstdlib>

#include "../src/object/checksum.h"
#include "reached.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  kvc::TransferDescription description;
  if (kvc::decode_description(bytes, &description).ok()) std::abort();  // its checksum would be a guess
  const kvc::Checksum checksum = kvc::checksum_of(bytes);
  bytes.insert(bytes.end(), checksum.begin(), checksum.end());
  const kvc::Status decoded = kvc::decode_description(bytes, &description);
  fuzz::reached["decode_description"].count(decoded.ok());
  if (decoded.ok() && kvc::encode_description(description) != bytes) {
    std::fprintf(stderr, "fuzz: the description encodes to other bytes\n");
    std::abort();
  }
  if (!decoded.ok() && decoded.code() != KVC_ERROR_CORRUPT && decoded.code() != KVC_ERROR_UNSUPPORTED) std::abort();
  return 0;
}
