// TransferDescription says what the receiver of a transfer expects. It is encoded as bytes. The engine passes these
// bytes to the sender in its own way. docs/reference/transfer.md defines the bytes. The functions are pure, and any
// thread may call them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "keys/page_key.h"
#include "layer/head_shares.h"

namespace kvc {

struct TransferDescription {
  uint64_t transfer = 0;  // the receiver's number for the transfer
  uint64_t token = 0;     // a random number that only the messages of this transfer have
  int64_t num_tokens = 0;
  int32_t timeout_ms = 0;
  TpRank tp;                     // of the receiver
  PageKey fingerprint = {};      // all zeros if the receiver's config has none
  std::vector<int64_t> begins;   // [groups]: the first token that the receiver lacks and needs
  std::string manifest;          // the receiver's layout, as layout_manifest_of_all_ranks writes it
  std::string transport;         // name of the transport
  std::vector<uint8_t> address;  // the receiver's address in this transport
};

// Throws std::bad_alloc.
std::vector<uint8_t> encode_description(const TransferDescription& description);

// Fails with CORRUPT if the bytes are damaged or are no description, and with UNSUPPORTED if the description has
// another version. Throws std::bad_alloc.
Status decode_description(std::span<const uint8_t> bytes, TransferDescription* out);

}  // namespace kvc
