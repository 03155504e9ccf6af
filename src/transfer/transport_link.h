// TransportLink: a transport, and the buffers of the messages that the transport still reads.
//
// Thread safety: one call at a time. Ownership: owns the transport. The destructor closes it before it frees
// the buffers.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "transfer/message.h"

namespace kvc {

class TransportLink {
 public:
  static constexpr int64_t kBufferBytes = int64_t{256} << 10;  // largest size of a buffer
  static constexpr size_t kMaxBuffers = 32;                    // largest number of buffers

  explicit TransportLink(const kvc_transport& transport) noexcept : transport_(transport) {}
  ~TransportLink() { transport_.close(transport_.self); }
  TransportLink(const TransportLink&) = delete;
  TransportLink& operator=(const TransportLink&) = delete;

  const char* name() const noexcept { return transport_.name; }
  // Sets *out to the transport's address. Fails with IO if the transport has none. Throws std::bad_alloc.
  Status address(std::vector<uint8_t>* out) const;
  Status connect(const std::vector<uint8_t>& address, uint64_t* peer);
  // Waits until the messages to a peer have left, at most timeout_ms.
  void flush(uint64_t peer, int64_t timeout_ms) { transport_.flush(transport_.self, peer, timeout_ms); }
  void disconnect(uint64_t peer) { transport_.disconnect(transport_.self, peer); }

  // Returns a free buffer, or -1 if none is free. The buffer belongs to the caller until send or give_back is called
  // with it. Throws std::bad_alloc.
  int32_t take();
  int64_t buffer_bytes() const noexcept {
    return kBufferBytes < transport_.max_message_bytes ? kBufferBytes : transport_.max_message_bytes;
  }
  uint8_t* data(int32_t buffer) noexcept { return buffers_[static_cast<size_t>(buffer)].bytes.data(); }
  void give_back(int32_t buffer) noexcept { buffers_[static_cast<size_t>(buffer)].used = false; }
  // Returns whether the transport still reads the buffer of an operation.
  bool is_open(uint64_t operation) const noexcept;

  // Sends a message with the first `bytes` bytes of a buffer, or without data if `buffer` is -1. Sets *operation to
  // the number of the operation. If the transport is full, sets *operation to 0 and returns OK. If the transport fails,
  // sets *operation to 0 and returns IO. In both cases the buffer is free again.
  Status send(uint64_t peer, const TransferMessage& message, int32_t buffer, int64_t bytes, uint64_t* operation);
  // Sends a message with a text of at most buffer_bytes(). If no buffer is free, sets *operation to 0 and returns OK.
  Status send_text(uint64_t peer, const TransferMessage& message, std::string_view text, uint64_t* operation);

  // Polls the transport, and frees the buffers of messages that were sent. Returns the events about messages that
  // arrived and about lost peers. Sets *any to whether there was an event of any kind.
  std::span<const kvc_transport_event> poll(std::span<kvc_transport_event> events, bool* any);

 private:
  struct Buffer {
    std::vector<uint8_t> bytes;
    bool used = false;
    uint64_t operation = 0;  // number of the last operation that used the buffer
  };
  const kvc_transport transport_;
  uint64_t last_operation_ = 0;
  std::vector<Buffer> buffers_;
};

}  // namespace kvc
