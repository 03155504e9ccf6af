// Section 17 of the header: transfer.
#include "api/boundary.h"
#include "kvcache_transport.h"

using namespace kvc;
using namespace kvc::api;

namespace {

constexpr int32_t kDefaultTimeoutMs = 30000, kMaxTimeoutMs = 3600000;

Status check_table(const kvc_transport& table) {
  if (table.version != KVC_TRANSPORT_VERSION || table.struct_size != sizeof(kvc_transport)) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "the transport has version %u and struct_size %u, not %u and %zu",
                         table.version, table.struct_size, uint32_t{KVC_TRANSPORT_VERSION}, sizeof(kvc_transport));
  }
  if (table.address == nullptr || table.connect == nullptr || table.flush == nullptr || table.disconnect == nullptr ||
      table.send == nullptr || table.poll == nullptr || table.close == nullptr || table.name == nullptr ||
      table.max_message_bytes < 65536) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "the transport lacks a function or its name, or has max_message_bytes %" PRId64,
                         table.max_message_bytes);
  }
  const size_t length = strnlen(table.name, 64);
  if (length > 0 && length < 64) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "the name of the transport has %s bytes",
                       length == 0 ? "0" : "64 or more");
}

}  // namespace

kvc_status kvc_cache_set_transport(kvc_cache* cache, const kvc_transport* transport, kvc_error* error) {
  return cache_call("kvc_cache_set_transport", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_not_null(transport, "transport"));
    KVC_TRY(check_table(*transport));
    return c.transfers.set_transport(*transport);
  });
}

kvc_status kvc_transfer_receive(kvc_cache* cache, const kvc_receive_args* args, kvc_transfer* transfer,
                                kvc_error* error) {
  return cache_call("kvc_transfer_receive", cache, error, [&](Cache& c) -> Status {
    kvc_receive_args known;
    KVC_TRY(read_struct(args, "args", &known));
    KVC_TRY(check_not_null(transfer, "transfer"));
    if (known.timeout_ms < 0 || known.timeout_ms > kMaxTimeoutMs) {
      return Status::error(KVC_ERROR_OUT_OF_RANGE, "timeout_ms %d is outside 0..%d ms", known.timeout_ms,
                           kMaxTimeoutMs);
    }
    if (known.timeout_ms == 0) known.timeout_ms = kDefaultTimeoutMs;
    return c.transfers.receive(known, transfer);
  });
}

kvc_status kvc_transfer_describe(kvc_cache* cache, kvc_transfer transfer, void* buffer, int64_t capacity,
                                 int64_t* bytes, kvc_error* error) {
  return cache_call("kvc_transfer_describe", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_buffer(buffer, capacity, "buffer"));
    KVC_TRY(check_not_null(bytes, "bytes"));
    std::vector<uint8_t> description;
    KVC_TRY(c.transfers.describe(transfer, &description));
    const auto size = *bytes = static_cast<int64_t>(description.size());
    if (capacity == 0) return Status();
    if (capacity < size) {
      return Status::error(KVC_ERROR_BUFFER_TOO_SMALL, "%" PRId64 " bytes do not fit in a capacity of %" PRId64, size,
                           capacity)
          .missing(size, capacity);
    }
    std::memcpy(buffer, description.data(), description.size());
    return Status();
  });
}

kvc_status kvc_transfer_send(kvc_cache* cache, kvc_seq sequence, const void* description, int64_t bytes,
                             kvc_transfer* transfer, kvc_error* error) {
  return cache_call("kvc_transfer_send", cache, error, [&](Cache& c) -> Status {
    if (bytes < 0) return Status::error(KVC_ERROR_INVALID_ARGUMENT, "bytes %" PRId64 " is negative", bytes);
    KVC_TRY(check_not_null(description, "description"));
    KVC_TRY(check_not_null(transfer, "transfer"));
    return c.transfers.send(sequence, {static_cast<const uint8_t*>(description), static_cast<size_t>(bytes)}, transfer);
  });
}

kvc_status kvc_transfer_poll(kvc_cache* cache, kvc_transfer transfer, kvc_transfer_info* info, kvc_error* error) {
  return cache_call("kvc_transfer_poll", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_struct_size(info, "info"));
    kvc_transfer_info value;
    kvc_transfer_info_init(&value);
    KVC_TRY(c.transfers.poll(transfer, &value));
    write_struct(value, info);
    return Status();
  });
}

kvc_status kvc_transfer_cancel(kvc_cache* cache, kvc_transfer transfer, kvc_error* error) {
  return cache_call("kvc_transfer_cancel", cache, error, [&](Cache& c) { return c.transfers.cancel(transfer); });
}
