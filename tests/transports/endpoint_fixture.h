// An endpoint that keeps the events of its polls.
#pragma once

#include <gtest/gtest.h>
#include <kvcache_transport.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kvt {

using Bytes = std::vector<uint8_t>;

struct Endpoint {
  struct Received {
    std::string header, data;
  };
  kvc_transport table;
  kvc_error error = KVC_ERROR_INIT;
  bool open = true;
  std::vector<uint64_t> sent, lost;
  std::vector<Received> received;

  explicit Endpoint(const kvc_transport &transport) : table(transport) {}
  ~Endpoint() { close(); }
  void close() {
    if (open) table.close(table.self);
    open = false;
  }
  Bytes address() {
    Bytes bytes(KVC_TRANSPORT_MAX_ADDRESS_BYTES);
    const int64_t count = table.address(table.self, bytes.data(), KVC_TRANSPORT_MAX_ADDRESS_BYTES);
    EXPECT_GT(count, 0);
    bytes.resize(static_cast<size_t>(count));
    return bytes;
  }
  int32_t connect(const Bytes &address, uint64_t *peer) {
    return table.connect(table.self, address.data(), static_cast<int64_t>(address.size()), peer, &error);
  }
  int32_t send(uint64_t peer, const std::string &header, const std::string &data, uint64_t operation) {
    return table.send(table.self, peer, header.data(), static_cast<int64_t>(header.size()), data.data(),
                      static_cast<int64_t>(data.size()), operation, &error);
  }
  // Waits until the messages to a peer have left.
  int32_t flush(uint64_t peer, int64_t timeout_ms = 20000) { return table.flush(table.self, peer, timeout_ms); }
  void poll() {
    kvc_transport_event events[3];
    const int64_t count = table.poll(table.self, events, 3);
    for (int64_t i = 0; i < count; i++) {
      const kvc_transport_event &e = events[i];
      if (e.kind == KVC_TRANSPORT_SENT) sent.push_back(e.operation);
      if (e.kind == KVC_TRANSPORT_LOST) lost.push_back(e.peer);
      if (e.kind != KVC_TRANSPORT_RECEIVED) continue;
      received.push_back({text(e.header, e.header_bytes), text(e.data, e.data_bytes)});
    }
  }
  static std::string text(const void *data, int64_t bytes) {
    return {static_cast<const char *>(data), static_cast<size_t>(bytes)};
  }
};

}  // namespace kvt
