// ReceiveRing: memory of the receiver, into which a sender of the same machine writes the data of its messages.
//
//   sender                                    receiver
//     kHello: its process ─────────────────►    makes a ring
//     maps the ring ◄─────────────────── kRing
//     copies data into the ring
//     kInRing: begin, end ─────────────────►    poll returns the message; its data is in the ring
//     may use [.., taken) again ◄──── kReleased   at the next poll
//     kBye: its process ───────────────────►    the ring is free for another sender
//
// Positions count bytes from the first one ever written, so byte p is at p modulo kBytes. Data of a message lies in one
// piece. If it does not fit before the end of the memory, it begins at the start of the memory.
// UCX would move the data through a queue of 8 KiB pieces, with two more copies.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/process.h"

namespace kvc {

// The first bytes of every message between two endpoints. The header of the caller follows.
struct UcxHead {
  enum class Kind : uint64_t { kInline = 1, kInRing, kHello, kRing, kReleased, kBye };
  Kind kind;
  uint64_t number;  // kInRing: of the receiver's ring. kHello, kRing, kReleased, kBye: unique in the sender's process
  uint64_t begin, end;  // kInRing: positions of the data. kReleased: end. kRing: address and number of the ring
};

class ReceiveRing {
 public:
  static constexpr uint64_t kBytes = uint64_t{4} << 20;

  // Returns null if UCX has no memory that other processes can map.
  static std::unique_ptr<ReceiveRing> create(ucp_context_h context);
  ~ReceiveRing();
  ReceiveRing(const ReceiveRing&) = delete;
  ReceiveRing& operator=(const ReceiveRing&) = delete;

  const uint8_t* at(uint64_t position) const noexcept { return base_ + position % kBytes; }
  const std::vector<uint8_t>& key() const noexcept { return key_; }  // with which a sender maps the ring
  uint64_t address() const noexcept { return reinterpret_cast<uint64_t>(base_); }
  // Whether positions that a sender has sent are within the ring, and its data in one piece.
  static bool is_valid(uint64_t begin, uint64_t end) noexcept {
    return begin <= end && end - begin <= kBytes && begin % kBytes + (end - begin) <= kBytes;
  }

  // The sender that has the ring now.
  ucp_ep_h reply = nullptr;
  uint64_t sender = 0;  // number of its kHello
  Process process = {};
  int64_t ended_ms = 0;          // when the process was seen to have ended; 0 = it runs
  uint64_t taken = 0, told = 0;  // end of the data that poll has returned, and that the sender was told
  bool done = false;             // the sender has sent its last message, and poll has returned it

 private:
  explicit ReceiveRing(ucp_context_h context) : context_(context) {}
  ucp_context_h context_;
  ucp_mem_h memory_ = nullptr;
  uint8_t* base_ = nullptr;
  std::vector<uint8_t> key_;
};

// The sender's side of a ring.
class SendRing {
 public:
  SendRing() = default;
  ~SendRing() { unmap(); }
  SendRing(const SendRing&) = delete;
  SendRing& operator=(const SendRing&) = delete;

  // Maps the ring of a kRing message. Returns false if this process cannot map it.
  bool map(ucp_ep_h ep, const void* key, const UcxHead& head);
  void unmap() noexcept;
  uint64_t number() const noexcept { return number_; }
  // Copies data into the ring, and sets the positions of *head. Returns false if there is no room now.
  bool put(const void* data, uint64_t bytes, UcxHead* head) noexcept;
  // The receiver no longer reads data before a position.
  void release(uint64_t position) noexcept;

 private:
  ucp_rkey_h key_ = nullptr;
  uint8_t* base_ = nullptr;
  uint64_t number_ = 0, written_ = 0, released_ = 0;
};

}  // namespace kvc
