// The table of functions over UcxEndpoint.
//
// SPDX-License-Identifier: Apache-2.0
#include <new>
#include <string>

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

template <class Body>
kvc_status report(const char* function, kvc_error* error, Body body) {
  Status status;
  try {
    status = body();
  } catch (const std::bad_alloc&) {
    status = no_memory();
  }
  if (!status.ok() && error != nullptr) status.write_to(function, error);
  return status.code();
}

}  // namespace
}  // namespace kvc

kvc_status kvc_ucx_transport_open(const kvc_ucx_config* config, kvc_transport* transport, kvc_error* error) {
  if (error != nullptr && error->struct_size != sizeof(kvc_error)) return KVC_ERROR_STRUCT_SIZE;
  return kvc::report("kvc_ucx_transport_open", error, [&] { return kvc::open(config, transport); });
}

// The function of a plug-in. options: "TRANSPORTS" or "TRANSPORTS/DEVICES".
extern "C" KVC_API kvc_status kvc_transport_open(uint32_t version, const char* options, kvc_transport* transport,
                                                 kvc_error* error) {
  return kvc::report("kvc_transport_open", error, [&]() -> kvc::Status {
    if (version != KVC_TRANSPORT_VERSION) {
      return kvc::Status::error(KVC_ERROR_UNSUPPORTED, "the caller has version %u of the table, and this library %u",
                                version, unsigned{KVC_TRANSPORT_VERSION});
    }
    const std::string text = options == nullptr ? "" : options;
    const size_t slash = text.find('/');
    const std::string transports = text.substr(0, slash);
    const std::string devices = slash == text.npos ? "" : text.substr(slash + 1);
    kvc_ucx_config config;
    kvc_ucx_config_init(&config);
    if (!transports.empty()) config.transports = transports.c_str();
    if (!devices.empty()) config.devices = devices.c_str();
    return kvc::open(&config, transport);
  });
}
