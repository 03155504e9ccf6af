// TransportLink: a transport, and the memory of messages that it still reads.
//
// Thread safety: one call at a time. Ownership: of the transport, which the destructor closes before the memory goes.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "transfer/message.h"

namespace kvc {

class TransportLink {
 public:
  static constexpr int64_t kBufferBytes = int64_t{256} << 10;
  static constexpr size_t kMaxBuffers = 32;

  explicit TransportLink(const kvc_transport& transport) noexcept : transport_(transport) {}
  ~TransportLink() { transport_.close(transport_.self); }
  TransportLink(const TransportLink&) = delete;
  TransportLink& operator=(const TransportLink&) = delete;

  const char* name() const noexcept { return transport_.name; }
  // IO if it has none. Throws std::bad_alloc.
  Status address(std::vector<uint8_t>* out) const;
  Status connect(const std::vector<uint8_t>& address, uint64_t* peer);
  void disconnect(uint64_t peer) { transport_.disconnect(transport_.self, peer); }

  // A buffer that no message uses, or -1. It belongs to the caller until send has accepted it, or give_back. Throws
  // std::bad_alloc.
  int32_t take();
  int64_t buffer_bytes() const noexcept {
    return kBufferBytes < transport_.max_message_bytes ? kBufferBytes : transport_.max_message_bytes;
  }
  uint8_t* data(int32_t buffer) noexcept { return buffers_[static_cast<size_t>(buffer)].bytes.data(); }
  void give_back(int32_t buffer) noexcept { buffers_[static_cast<size_t>(buffer)].used = false; }
  // Whether the transport still reads the memory of an operation.
  bool is_open(uint64_t operation) const noexcept;

  // Sends the first `bytes` bytes of a buffer; -1: no data. operation: filled; 0 if the transport is full, or has
  // failed. The buffer is then given back.
  Status send(uint64_t peer, const TransferMessage& message, int32_t buffer, int64_t bytes, uint64_t* operation);
  // Sends a text. operation: also 0 if there is no buffer.
  Status send_text(uint64_t peer, const TransferMessage& message, std::string_view text, uint64_t* operation);

  // Makes progress, and takes messages and lost peers. *any: whether anything happened.
  std::span<const kvc_transport_event> poll(std::span<kvc_transport_event> events, bool* any);

 private:
  struct Buffer {
    std::vector<uint8_t> bytes;
    bool used = false;
    uint64_t operation = 0;  // that was sent with it last
  };
  const kvc_transport transport_;
  uint64_t last_operation_ = 0;
  std::vector<Buffer> buffers_;
};

}  // namespace kvc
