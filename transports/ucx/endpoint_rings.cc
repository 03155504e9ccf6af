// Peers of the same machine, which messages reach through rings.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "endpoint.h"

namespace kvc {

// Returns the ring to an endpoint; null: this endpoint has no rings, or may not map the memory of the other one.
SendRing* UcxEndpoint::find_ring(const RingAddress& address) {
  if (!rings_) return nullptr;
  for (const auto& ring : send_rings_) {
    if (ring->address() == address) return ring.get();
  }
  auto made = SendRing::open(address, rings_->address().endpoint);
  if (!made) return nullptr;
  send_rings_.push_back(std::move(made));
  return send_rings_.back().get();
}

bool UcxEndpoint::put(Peer* peer, const std::vector<uint8_t>& header, const void* data, int64_t data_bytes,
                      uint64_t operation) {
  if (data_bytes > 0) add_sent(operation);  // it may throw, so it comes first
  if (peer->ring->put(header.data(), header.size(), data, static_cast<uint64_t>(data_bytes))) return true;
  if (data_bytes > 0) events_.pop_back();
  return false;
}

void UcxEndpoint::send_queue(Peer* peer) {
  for (; !peer->queue.empty() && !peer->lost; peer->queue.pop_front()) {
    const Queued& next = peer->queue.front();
    if (!put(peer, next.header, next.data, next.data_bytes, next.operation)) break;
  }
  if (peer->lost) drop_queue(peer);
}

void UcxEndpoint::drop_queue(Peer* peer) {
  for (const Queued& message : peer->queue) {
    if (message.data_bytes > 0) add_sent(message.operation);
  }
  peer->queue.clear();
}

// Ends rings without peers. A ring that is not empty stays, so that messages of the next peer with this address come
// after its messages.
void UcxEndpoint::release_send_rings() noexcept {
  std::erase_if(send_rings_, [this](const std::unique_ptr<SendRing>& ring) {
    const Process process = {own_.place, static_cast<int64_t>(ring->address().endpoint >> 32)};
    if (ring->users > 0 || !(ring->is_empty() || ring->is_closed() || process.has_ended())) return false;
    ring->end();
    return true;
  });
}

}  // namespace kvc
