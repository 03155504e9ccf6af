#include "transfer/transport_link.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <utility>

namespace kvc {

Status TransportLink::address(std::vector<uint8_t>* out) const {
  out->resize(KVC_TRANSPORT_MAX_ADDRESS_BYTES);
  const int64_t bytes = transport_.address(transport_.self, out->data(), KVC_TRANSPORT_MAX_ADDRESS_BYTES);
  if (bytes < 1 || bytes > KVC_TRANSPORT_MAX_ADDRESS_BYTES) {
    return Status::error(KVC_ERROR_IO, "transport \"%s\" has no address: %" PRId64 " bytes", transport_.name, bytes);
  }
  out->resize(static_cast<size_t>(bytes));
  return Status();
}

Status TransportLink::connect(const std::vector<uint8_t>& address, uint64_t* peer) {
  kvc_error error = KVC_ERROR_INIT;
  const auto bytes = static_cast<int64_t>(address.size());
  if (transport_.connect(transport_.self, address.data(), bytes, peer, &error) == KVC_TRANSPORT_OK) return Status();
  return Status::error(KVC_ERROR_IO, "the peer cannot be reached: %s", error.message);
}

int32_t TransportLink::take() {
  const auto found = std::find_if(buffers_.begin(), buffers_.end(), [](const Buffer& buffer) { return !buffer.used; });
  const auto index = static_cast<int32_t>(found - buffers_.begin());
  if (found == buffers_.end()) {
    if (buffers_.size() == kMaxBuffers) return -1;
    Buffer made;
    made.bytes.resize(static_cast<size_t>(buffer_bytes()));  // the resize may throw, so it is done before any change
    buffers_.push_back(std::move(made));
  }
  buffers_[static_cast<size_t>(index)].used = true;
  return index;
}

bool TransportLink::is_open(uint64_t operation) const noexcept {
  return std::any_of(buffers_.begin(), buffers_.end(),
                     [&](const Buffer& buffer) { return buffer.used && buffer.operation == operation; });
}

Status TransportLink::send(uint64_t peer, const TransferMessage& message, int32_t buffer, int64_t bytes,
                           uint64_t* operation) {
  kvc_error error = KVC_ERROR_INIT;
  *operation = ++last_operation_;
  if (buffer >= 0) buffers_[static_cast<size_t>(buffer)].operation = *operation;
  const int32_t result = transport_.send(transport_.self, peer, &message, sizeof message,
                                         buffer < 0 ? nullptr : data(buffer), bytes, *operation, &error);
  if (result == KVC_TRANSPORT_OK) return Status();
  *operation = 0;
  if (buffer >= 0) give_back(buffer);
  if (result == KVC_TRANSPORT_RETRY) return Status();
  return Status::error(KVC_ERROR_IO, "the peer cannot be reached: %s", error.message);
}

Status TransportLink::send_text(uint64_t peer, const TransferMessage& message, std::string_view text,
                                uint64_t* operation) {
  *operation = 0;
  const int32_t buffer = take();
  if (buffer < 0) return Status();
  std::memcpy(data(buffer), text.data(), text.size());
  return send(peer, message, buffer, static_cast<int64_t>(text.size()), operation);
}

std::span<const kvc_transport_event> TransportLink::poll(std::span<kvc_transport_event> events, bool* any) {
  const int64_t count = transport_.poll(transport_.self, events.data(), static_cast<int64_t>(events.size()));
  *any = count > 0;
  size_t kept = 0;
  for (int64_t i = 0; i < count; ++i) {
    const kvc_transport_event event = events[static_cast<size_t>(i)];
    if (event.kind != KVC_TRANSPORT_SENT) {
      events[kept++] = event;
      continue;
    }
    for (Buffer& buffer : buffers_) {
      if (buffer.operation == event.operation) buffer.used = false;
    }
  }
  return events.first(kept);
}

}  // namespace kvc
