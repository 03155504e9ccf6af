// The table of functions over UcxEndpoint.
//
// SPDX-License-Identifier: Apache-2.0
#include <new>

#include "endpoint.h"

namespace kvc {
namespace {

UcxEndpoint& of(void* self) { return *static_cast<UcxEndpoint*>(self); }

int32_t result(const Status& status, kvc_error* error) {
  if (status.ok()) return KVC_TRANSPORT_OK;
  status.write_to("transport ucx", error);
  return KVC_TRANSPORT_FAILED;
}

Status no_memory() { return Status::error(KVC_ERROR_OUT_OF_MEMORY, "the host is out of memory"); }

int64_t address(void* self, void* buffer, int64_t capacity) { return of(self).address(buffer, capacity); }

int32_t connect(void* self, const void* address, int64_t bytes, uint64_t* peer, kvc_error* error) try {
  return result(of(self).connect(address, bytes, peer), error);
} catch (const std::bad_alloc&) {
  return result(no_memory(), error);
}

void disconnect(void* self, uint64_t peer) { of(self).disconnect(peer); }

int32_t send(void* self, uint64_t peer, const void* header, int64_t header_bytes, const void* data, int64_t data_bytes,
             uint64_t operation, kvc_error* error) try {
  return result(of(self).send(peer, header, header_bytes, data, data_bytes, operation), error);
} catch (const std::bad_alloc&) {
  return result(no_memory(), error);
}

int64_t poll(void* self, kvc_transport_event* events, int64_t capacity) try {
  return of(self).poll(events, capacity);
} catch (const std::bad_alloc&) {
  return 0;
}

void close(void* self) { delete static_cast<UcxEndpoint*>(self); }

Status open(const kvc_ucx_config* config, kvc_transport* transport) {
  if (config == nullptr || transport == nullptr) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL", config == nullptr ? "config" : "transport");
  }
  if (config->struct_size != sizeof(kvc_ucx_config)) {
    return Status::error(KVC_ERROR_STRUCT_SIZE, "config has struct_size %u, not %zu: call kvc_ucx_config_init",
                         config->struct_size, sizeof(kvc_ucx_config));
  }
  if (config->reserved != 0) return Status::error(KVC_ERROR_UNSUPPORTED, "reserved 0x%x is not 0", config->reserved);
  std::unique_ptr<UcxEndpoint> endpoint;
  KVC_TRY(UcxEndpoint::open(*config, &endpoint));
  kvc_transport_init(transport);
  transport->name = "ucx";
  transport->self = endpoint.release();
  transport->max_message_bytes = UcxEndpoint::kMaxMessageBytes;
  transport->address = address;
  transport->connect = connect;
  transport->disconnect = disconnect;
  transport->send = send;
  transport->poll = poll;
  transport->close = close;
  return Status();
}

}  // namespace
}  // namespace kvc

kvc_status kvc_ucx_transport_open(const kvc_ucx_config* config, kvc_transport* transport, kvc_error* error) {
  if (error != nullptr && error->struct_size != sizeof(kvc_error)) return KVC_ERROR_STRUCT_SIZE;
  kvc::Status status;
  try {
    status = kvc::open(config, transport);
  } catch (const std::bad_alloc&) {
    status = kvc::no_memory();
  }
  if (!status.ok() && error != nullptr) status.write_to("kvc_ucx_transport_open", error);
  return status.code();
}
