// TransferMessage: the header of each message between the two sides of a transfer. docs/reference/transfer.md defines
// the protocol.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "kvcache_transport.h"

namespace kvc {

enum class MessageKind : uint32_t {
  kOpen = 1,    // from the sender: first message; part and count = its tp_rank and tp_size, data = its address
  kRows = 2,    // from the sender: `count` units (TransferPart) of a part, from `position` on
  kEnd = 3,     // from the sender: everything was sent; count = the factor set of longrope
  kDone = 4,    // from the receiver: everything has arrived
  kFailed = 5,  // from either side: the transfer has ended; data = the reason, as text
  kAlive = 6    // from either side: the transfer goes on, although nothing was sent for a while
};

struct TransferMessage {
  uint32_t magic = kMagic;
  MessageKind kind = MessageKind::kAlive;
  uint64_t transfer = 0;                // the transfer's number at the side that gets the message
  uint64_t token = 0;                   // the transfer's token at that side, from its description or its kOpen
  uint64_t reply = 0, reply_token = 0;  // the transfer's number and token at the side that sends the message
  int64_t part = 0;
  int64_t position = 0;
  int64_t count = 0;

  static constexpr uint32_t kMagic = 0x32746b76;  // "vkt2"
};
static_assert(sizeof(TransferMessage) == 64 && sizeof(TransferMessage) <= KVC_TRANSPORT_MAX_HEADER_BYTES);
static_assert(std::has_unique_object_representations_v<TransferMessage>);

}  // namespace kvc
