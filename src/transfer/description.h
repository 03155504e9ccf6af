// TransferDescription: what a receiver expects, as bytes that can be sent anywhere. docs/reference/transfer.md has
// their layout. Pure functions; any thread.
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
  uint64_t transfer = 0;  // the receiver's number of it
  uint64_t token = 0;     // random: messages of another transfer do not have it
  int64_t num_tokens = 0;
  int32_t timeout_ms = 0;
  TpRank tp;                    // of the receiver
  PageKey fingerprint = {};     // zeros: none
  std::vector<int64_t> begins;  // [groups]: the first token that the receiver lacks and needs
  std::string manifest;         // of the receiver's layout: layout_manifest_of_all_ranks
  std::string transport;        // its name
  std::vector<uint8_t> address;
};

// Throws std::bad_alloc.
std::vector<uint8_t> encode_description(const TransferDescription& description);

// CORRUPT: the bytes are damaged, or are no description. UNSUPPORTED: a later version. Throws std::bad_alloc.
Status decode_description(std::span<const uint8_t> bytes, TransferDescription* out);

}  // namespace kvc
