// Peers of the same machine, which messages reach through rings.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "endpoint.h"

namespace kvc {

// Returns the link to an endpoint; null: this endpoint has no rings, or may not map the memory of the other one.
UcxEndpoint::Link* UcxEndpoint::find_link(const RingAddress& address) {
  if (!rings_) return nullptr;
  for (const auto& link : links_) {
    if (link->ring->address() == address) return link.get();
  }
  auto made = std::make_unique<Link>();
  made->ring = SendRing::open(address, rings_->address().endpoint);
  if (!made->ring) return nullptr;
  links_.push_back(std::move(made));
  return links_.back().get();
}

bool UcxEndpoint::put(SendRing* ring, const Queued& message) {
  const bool has_data = message.data_bytes > 0;
  if (has_data) add_sent(message.operation);  // it may throw, so it comes first
  const auto bytes = static_cast<uint64_t>(message.data_bytes);
  if (ring->put(message.header.data(), message.header.size(), message.data, bytes)) return true;
  if (has_data) events_.pop_back();
  return false;
}

void UcxEndpoint::send_queue(Link* link) {
  while (!link->queue.empty() && put(link->ring.get(), link->queue.front())) {
    --link->queue.front().peer->waiting;
    link->queue.pop_front();
  }
}

void UcxEndpoint::drop_queue(Peer* peer) noexcept {
  if (peer->waiting == 0) return;
  for (const Queued& message : peer->link->queue) {
    if (message.peer != peer || message.data_bytes == 0) continue;
    try {
      add_sent(message.operation);
    } catch (const std::bad_alloc&) {  // `close` ends what has no event
    }
  }
  std::erase_if(peer->link->queue, [peer](const Queued& message) { return message.peer == peer; });
  peer->waiting = 0;
}

// Ends rings without peers. A ring that is not empty stays, so that messages of the next peer with this address come
// after its messages.
void UcxEndpoint::release_links() noexcept {
  std::erase_if(links_, [this](const std::unique_ptr<Link>& link) {
    SendRing& ring = *link->ring;
    const Process process = {own_.place, static_cast<int64_t>(ring.address().endpoint >> 32)};
    if (link->peers > 0 || !(ring.is_empty() || ring.is_closed() || process.has_ended())) return false;
    ring.end();
    return true;
  });
}

}  // namespace kvc
