// Rings: messages from other endpoints of the same machine, through memory of the receiver.
//
//   memory of the receiver, which each sender maps
//     front      owners: of each ring, the endpoint that sends through it, or 0
//                states: of each ring, `end` and `is_done` of the sender, and `begin` of the receiver
//     ring 0     records: one for each message
//     ring 1     ...
//
//   sender                                               receiver
//     takes a ring: owner 0 ──► its number
//     writes a record after `end`, then moves `end` ───►   reads the records before `end`
//     may overwrite what lies before `begin`        ◄───   moves `begin` at the next poll
//     is_done, when it has no more messages ───────────►   owner ──► 0, after the last record
//
// Each word has one writer, except for an owner that is 0. So a sender that is killed at any instruction stops only its
// own ring, and the receiver frees the ring when the process has ended. UCX's queue for shared memory does not have
// this property: a sender that is killed while it writes to the queue blocks the queue for all senders.
//
// Positions (`begin`, `end`) count bytes from the first one ever written, so byte p is at p modulo kBytes. A record
// lies in one piece. If it does not fit before the end of the ring, a word kSkip says that it begins at the start of
// the ring.
//
// The receiver copies each length and position before it checks and uses it. After a wrong one, it reads no more
// records of this ring.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvcache_transport.h"

namespace kvc {

// Where the rings of an endpoint are. A part of its address.
struct RingAddress {
  uint64_t endpoint;  // process id << 32 | number of the endpoint in its process; 0: there are no rings
  uint64_t check;     // a random number, which is also in the memory
  int64_t file;       // number of the memory's file in the process
  bool operator==(const RingAddress&) const = default;
};

// The layout of the memory.
struct RingLayout {
  static constexpr uint64_t kRings = 128, kBytes = uint64_t{4} << 20, kAlign = 64;
  static constexpr uint64_t kMaxData = uint64_t{1} << 20;  // most bytes of data in a record
  static constexpr uint64_t kFrontBytes = uint64_t{64} << 10;
  static constexpr uint64_t kSkip = ~uint64_t{0};
  struct State {
    alignas(kAlign) uint64_t end;
    uint64_t is_done;
    alignas(kAlign) uint64_t begin;
  };
  struct Front {
    uint64_t check, is_closed;
    alignas(kAlign) uint64_t owners[kRings];
    State states[kRings];
  };
  static_assert(sizeof(Front) <= kFrontBytes);
  static_assert(2 * (kMaxData + 4 * kAlign) <= kBytes);  // a record fits into an empty ring, wherever it begins

  // A record is a word (bytes of data << 32 | bytes of the header), the header, and the data at a multiple of kAlign.
  static constexpr uint64_t rounded(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }
  static constexpr uint64_t data_offset(uint64_t header_bytes) { return rounded(sizeof(uint64_t) + header_bytes); }
};

// The receiver's side: the memory. In a child of fork(), only the destructor may be called.
// Thread safety: one call at a time.
class ReceiveRings {
 public:
  struct Record {
    uint8_t header[KVC_TRANSPORT_MAX_HEADER_BYTES];
    uint64_t header_bytes, data_bytes;
    const uint8_t* data;  // in the ring
  };

  // Returns null if the system refuses. Throws std::bad_alloc.
  static std::unique_ptr<ReceiveRings> create();
  ~ReceiveRings();
  ReceiveRings(const ReceiveRings&) = delete;
  ReceiveRings& operator=(const ReceiveRings&) = delete;

  const RingAddress& address() const noexcept { return address_; }
  // Senders get to know that this endpoint reads no more.
  void close() noexcept;
  // Takes the next record: one of each ring, then the next of each ring. Returns false if no ring has a record. The
  // data is valid until release.
  bool take(Record* out) noexcept;
  // Gives the memory of all records that were taken back to the senders, and finds new senders.
  void release() noexcept;
  // Finds processes that have ended. Their rings are free after their last record.
  void look_at_processes() noexcept;
  // Whether an endpoint has sent records that were not yet taken.
  bool has_records_of(uint64_t endpoint) noexcept;

 private:
  struct Ring {
    uint64_t number;
    uint64_t taken = 0;  // position of the next record
    uint64_t told = 0;   // the `begin` that the sender was told
    bool has_ended = false, is_wrong = false;
  };
  ReceiveRings() = default;
  uint8_t* bytes_of(uint64_t ring) const noexcept;
  void find_senders() noexcept;
  bool read(Ring* ring, Record* out) noexcept;
  bool end_ring(const Ring& ring) noexcept;

  RingLayout::Front* front_ = nullptr;  // of the whole memory
  RingAddress address_ = {};
  std::vector<Ring> used_;  // has the capacity kRings
  std::array<bool, RingLayout::kRings> is_used_ = {};
  size_t next_ = 0;  // the ring in used_ that is read next
};

// A sender's side: the front of a receiver's memory, and one ring of it.
class SendRing {
 public:
  // Maps the memory of an endpoint of this machine. self: the RingAddress::endpoint of the sender. Returns null if this
  // process may not map it, or if it no longer exists. Throws std::bad_alloc.
  static std::unique_ptr<SendRing> open(const RingAddress& address, uint64_t self);
  ~SendRing();
  SendRing(const SendRing&) = delete;
  SendRing& operator=(const SendRing&) = delete;

  const RingAddress& address() const noexcept { return address_; }
  // Writes a message. Returns false if there is no room now, or no free ring.
  bool put(const void* header, uint64_t header_bytes, const void* data, uint64_t data_bytes) noexcept;
  // Whether the receiver has taken all messages.
  bool is_empty() const noexcept;
  // Whether the receiver reads no more.
  bool is_closed() const noexcept;
  // This was the last message.
  void end() noexcept;

 private:
  SendRing() = default;
  bool take_ring() noexcept;
  uint64_t room() const noexcept;
  RingLayout::Front* front_ = nullptr;
  uint8_t* bytes_ = nullptr;  // of the ring; null: this sender has no ring yet
  int file_ = -1;             // open until the ring is mapped
  RingAddress address_ = {};
  uint64_t self_ = 0, ring_ = 0, end_ = 0;
};

}  // namespace kvc
