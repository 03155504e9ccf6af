// Peers whose errors UCX does not notice: their queues and rings, on both sides.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstring>

#include "endpoint.h"

namespace kvc {
namespace {

constexpr int64_t kMostCopied = int64_t{4} << 20;  // most bytes that UCX has of a peer's messages
constexpr int64_t kShortBytes = 2048;              // messages up to this size do not use the ring
constexpr int64_t kEndedMs = 1000;
constexpr size_t kMaxRings = 32, kMaxSpareRings = 4;

std::vector<uint8_t> bytes_of(const void* data, size_t bytes) {
  const auto* first = static_cast<const uint8_t*>(data);
  return {first, first + bytes};
}

}  // namespace

ucs_status_t UcxEndpoint::send_control(ucp_ep_h ep, const UcxHead& head, const void* data, size_t bytes,
                                       uint32_t flags) {
  auto made = std::make_unique<Sending>();
  *made = {nullptr, this, false, 0, 0, bytes_of(&head, sizeof head), bytes_of(data, bytes)};
  const void* const copied = made->data.data();
  return send_message(ep, std::move(made), copied, bytes, flags | UCP_AM_SEND_FLAG_EAGER);
}

ucs_status_t UcxEndpoint::send_copy(Peer* peer, const Queued& message) {
  const auto bytes = static_cast<size_t>(message.data_bytes);
  auto made = std::make_unique<Sending>();
  *made = {
      peer, this, false, 0, std::max<int64_t>(message.data_bytes, 1), message.header, bytes_of(message.data, bytes)};
  const void* const copied = made->data.data();
  return send_message(peer->ep, std::move(made), copied, bytes, 0);
}

void UcxEndpoint::request_ring(Peer* peer) {
  static std::atomic<uint64_t> last_request{0};
  peer->ring_request = ++last_request;
  const UcxHead hello = {UcxHead::Kind::kHello, peer->ring_request, 0, 0};
  const bool sent = send_control(peer->ep, hello, &own_, sizeof own_, UCP_AM_SEND_FLAG_REPLY) == UCS_OK;
  peer->ring_use = sent ? RingUse::kRequested : RingUse::kRefused;
}

bool UcxEndpoint::send_queued(Peer* peer) {
  Queued& message = peer->queue.front();
  if (peer->sending_bytes >= kMostCopied) return false;
  const bool is_short = message.data_bytes <= kShortBytes;
  if (!is_short && peer->ring_use == RingUse::kAllowed) request_ring(peer);
  if (!is_short && peer->ring_use != RingUse::kRefused) {
    UcxHead head;
    if (peer->ring_use == RingUse::kRequested ||
        !peer->ring.put(message.data, static_cast<uint64_t>(message.data_bytes), &head)) {
      return false;
    }
    std::memcpy(message.header.data(), &head, sizeof head);
    if (send_copy(peer, {message.header, nullptr, 0, 0}) != UCS_OK) lose(peer);
  } else if (send_copy(peer, message) != UCS_OK) {
    lose(peer);
  }
  if (message.data_bytes > 0) add_sent(message.operation);
  return true;
}

void UcxEndpoint::send_queue(Peer* peer) {
  while (!peer->queue.empty() && !peer->lost && send_queued(peer)) peer->queue.pop_front();
  if (peer->lost) drop_queue(peer);
}

void UcxEndpoint::drop_queue(Peer* peer) {
  for (const Queued& message : peer->queue) {
    if (message.data_bytes > 0) add_sent(message.operation);
  }
  peer->queue.clear();
}

// Handles what receivers have answered.
void UcxEndpoint::take_control() {
  for (; !control_.empty(); control_.pop_front()) {
    const Message& message = *control_.front();
    const auto found = std::find_if(peers_.begin(), peers_.end(),
                                    [&](const auto& p) { return p.second->ring_request == message.head.number; });
    if (found == peers_.end()) continue;
    Peer& peer = *found->second;
    if (message.head.kind == UcxHead::Kind::kReleased) {
      peer.ring.release(message.head.end);
    } else if (peer.ring_use == RingUse::kRequested) {
      const bool mapped = !message.data.empty() && peer.ring.map(peer.ep, message.data.data(), message.head);
      peer.ring_use = mapped ? RingUse::kMapped : RingUse::kRefused;
    }
  }
}

// Gives a ring to a sender. Without a key in the answer, the sender sends data in messages of UCX.
void UcxEndpoint::answer(const Hello& hello) {
  std::unique_ptr<ReceiveRing> ring;
  if (!spare_rings_.empty()) {
    ring = std::move(spare_rings_.back());
    spare_rings_.pop_back();
  } else if (rings_.size() < kMaxRings) {
    ring = ReceiveRing::create(context_);
  }
  UcxHead head = {UcxHead::Kind::kRing, hello.sender, 0, 0};
  if (!ring) {
    send_control(hello.reply, head, nullptr, 0, 0);
    return;
  }
  ring->reply = hello.reply;
  ring->sender = hello.sender;
  ring->process = hello.process;
  ring->taken = ring->told = 0;
  ring->ended_ms = 0;
  ring->done = false;
  head.begin = ring->address();
  head.end = ++last_ring_;
  send_control(hello.reply, head, ring->key().data(), ring->key().size(), 0);
  rings_.emplace(last_ring_, std::move(ring));
}

// No event points into a ring any more. So senders may overwrite what the last poll has returned.
void UcxEndpoint::release_rings() {
  for (auto at = rings_.begin(); at != rings_.end();) {
    ReceiveRing& ring = *at->second;
    if (ring.done) {
      if (spare_rings_.size() < kMaxSpareRings) spare_rings_.push_back(std::move(at->second));
      at = rings_.erase(at);
      continue;
    }
    if (ring.taken != ring.told) {
      ring.told = ring.taken;
      send_control(ring.reply, {UcxHead::Kind::kReleased, ring.sender, 0, ring.taken}, nullptr, 0, 0);
    }
    ++at;
  }
}

// If a process has ended without kBye, it gets a kBye a second later, after the messages that it had sent.
void UcxEndpoint::look_at_rings(int64_t now_ms) {
  for (auto& [number, ring] : rings_) {
    if (ring->done || !ring->process.has_ended()) continue;
    if (ring->ended_ms == 0) ring->ended_ms = now_ms;
    if (now_ms - ring->ended_ms < kEndedMs) continue;
    auto bye = std::make_unique<Message>();
    bye->head = {UcxHead::Kind::kBye, ring->sender, 0, 0};
    bye->data = bytes_of(&ring->process, sizeof ring->process);
    messages_.push_back(std::move(bye));
  }
}

// The ring of a sender has no more messages.
void UcxEndpoint::end_ring(const Message& bye) {
  for (auto& [number, ring] : rings_) {
    const std::vector<uint8_t> process = bytes_of(&ring->process, sizeof ring->process);
    if (ring->sender == bye.head.number && bye.data == process) ring->done = true;
  }
}

// Makes the event of a message. Returns false if the caller gets none.
bool UcxEndpoint::fill_event(const Message& message, kvc_transport_event* event) {
  const UcxHead& head = message.head;
  if (head.kind == UcxHead::Kind::kBye) end_ring(message);
  const void* data = message.data.data();
  auto bytes = static_cast<int64_t>(message.data.size());
  if (head.kind == UcxHead::Kind::kInRing) {
    const auto found = rings_.find(head.number);
    if (found == rings_.end() || found->second->done || !ReceiveRing::is_valid(head.begin, head.end)) return false;
    ReceiveRing& ring = *found->second;
    ring.taken = head.end;
    data = ring.at(head.begin);
    bytes = static_cast<int64_t>(head.end - head.begin);
  }
  if (message.header.empty()) return false;
  *event = {};
  event->kind = KVC_TRANSPORT_RECEIVED;
  event->header = message.header.data();
  event->header_bytes = static_cast<int64_t>(message.header.size());
  event->data = data;
  event->data_bytes = bytes;
  return true;
}

}  // namespace kvc
