// Fills the table of a transport with functions that call the methods of a class.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <new>

#include "base/status.h"
#include "kvcache_transport.h"

namespace kvc {

inline Status transport_out_of_memory() { return Status::error(KVC_ERROR_OUT_OF_MEMORY, "the host is out of memory"); }

// Endpoint must have the constants kName, kWhere and kMaxMessageBytes, and the methods that are called below.
template <class Endpoint>
struct TransportTable {
  static void fill(std::unique_ptr<Endpoint> endpoint, kvc_transport* transport) {
    kvc_transport_init(transport);
    transport->name = Endpoint::kName;
    transport->self = endpoint.release();
    transport->max_message_bytes = Endpoint::kMaxMessageBytes;
    transport->address = address;
    transport->connect = connect;
    transport->flush = flush;
    transport->disconnect = disconnect;
    transport->send = send;
    transport->poll = poll;
    transport->close = close;
  }

 private:
  static Endpoint& of(void* self) { return *static_cast<Endpoint*>(self); }

  // Calls `body`, and returns KVC_TRANSPORT_OK or KVC_TRANSPORT_FAILED. After a failure, *error has the status.
  template <class Body>
  static int32_t result(kvc_error* error, Body body) {
    Status status;
    try {
      status = body();
    } catch (const std::bad_alloc&) {
      status = transport_out_of_memory();
    }
    if (status.ok()) return KVC_TRANSPORT_OK;
    status.write_to(Endpoint::kWhere, error);
    return KVC_TRANSPORT_FAILED;
  }

  static int64_t address(void* self, void* buffer, int64_t capacity) { return of(self).address(buffer, capacity); }
  static int32_t connect(void* self, const void* address, int64_t bytes, uint64_t* peer, kvc_error* error) {
    return result(error, [&] { return of(self).connect(address, bytes, peer); });
  }
  static int32_t flush(void* self, uint64_t peer, int64_t timeout_ms) try {
    return of(self).flush(peer, timeout_ms);
  } catch (const std::bad_alloc&) {
    return KVC_TRANSPORT_RETRY;
  }
  static void disconnect(void* self, uint64_t peer) { of(self).disconnect(peer); }
  static int32_t send(void* self, uint64_t peer, const void* header, int64_t header_bytes, const void* data,
                      int64_t data_bytes, uint64_t operation, kvc_error* error) {
    return result(error, [&] { return of(self).send(peer, header, header_bytes, data, data_bytes, operation); });
  }
  static int64_t poll(void* self, kvc_transport_event* events, int64_t capacity) try {
    return of(self).poll(events, capacity);
  } catch (const std::bad_alloc&) {
    return 0;
  }
  static void close(void* self) { delete static_cast<Endpoint*>(self); }
};

// Runs a function of the C API, and fills `error` (nullable) if it fails.
template <class Body>
kvc_status report_transport(const char* function, kvc_error* error, Body body) {
  Status status;
  try {
    status = body();
  } catch (const std::bad_alloc&) {
    status = transport_out_of_memory();
  }
  if (!status.ok() && error != nullptr) status.write_to(function, error);
  return status.code();
}

// Refuses a caller of kvc_transport_open that was built for another version of the table.
inline Status check_transport_version(uint32_t version) {
  if (version == KVC_TRANSPORT_VERSION) return Status();
  return Status::error(KVC_ERROR_UNSUPPORTED, "the caller has version %u of the table, and this library %u", version,
                       unsigned{KVC_TRANSPORT_VERSION});
}

}  // namespace kvc
