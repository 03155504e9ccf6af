// TransferMessage: the header of what the two sides of a transfer send each other. docs/reference/transfer.md has the
// protocol. A value.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "kvcache_transport.h"

namespace kvc {

enum class MessageKind : uint32_t {
  kOpen = 1,    // sender: the first; part and count = its tp_rank and tp_size, data = its address
  kRows = 2,    // sender: `count` units of a part from `position` on
  kEnd = 3,     // sender: everything was sent; count = the factor set of longrope
  kDone = 4,    // receiver: everything has arrived
  kFailed = 5,  // both: the transfer has ended; data = why, as text
  kAlive = 6    // both: nothing new
};

struct TransferMessage {
  uint32_t magic = kMagic;
  MessageKind kind = MessageKind::kAlive;
  uint64_t transfer = 0;                // of the side that gets the message
  uint64_t token = 0;                   // that its description, or the message kOpen, has
  uint64_t reply = 0, reply_token = 0;  // of the side that sends it
  int64_t part = 0;
  int64_t position = 0;
  int64_t count = 0;

  static constexpr uint32_t kMagic = 0x32746b76;  // "vkt2"
};
static_assert(sizeof(TransferMessage) == 64 && sizeof(TransferMessage) <= KVC_TRANSPORT_MAX_HEADER_BYTES);
static_assert(std::has_unique_object_representations_v<TransferMessage>);

}  // namespace kvc
