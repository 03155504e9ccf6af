// The calls of kvcache.Cache for transfers. kvcache/_transfers.py wraps the numbers of transfers in classes.
#include <dlfcn.h>

#include "cache.h"
#include "error.h"
#include "kvcache_transport.h"

namespace kvcpy {

namespace {

// Opens the transport of a plug-in. The plug-in stays loaded.
kvc_status open_transport(const char* library, const char* options, kvc_transport* transport, kvc_error* error) {
  const auto fail = [&](kvc_status status, const char* what) {
    std::snprintf(error->message, sizeof error->message, "kvc_transport_open: %s", what);
    return error->code = status;
  };
  void* plugin = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (plugin == nullptr) return fail(KVC_ERROR_IO, dlerror());
  void* symbol = dlsym(plugin, "kvc_transport_open");
  if (symbol == nullptr) return fail(KVC_ERROR_UNSUPPORTED, dlerror());
  kvc_transport_init(transport);
  return reinterpret_cast<kvc_transport_open_fn>(symbol)(KVC_TRANSPORT_VERSION, options, transport, error);
}

void set_transport(const Cache& self, const char* caller, const char* library, const char* options) {
  auto handle = self.open();
  call_without_gil([&](kvc_error* error) {
    kvc_transport transport;
    kvc_status status = open_transport(library, options, &transport, error);
    if (status == KVC_OK) {
      status = kvc_cache_set_transport(handle->cache, &transport, error);
      if (status != KVC_OK) transport.close(transport.self);
    }
    if (status != KVC_OK) rename_function(caller, error);
    return status;
  });
}

uint64_t receive(const Cache& self, int64_t num_tokens, uint64_t prefix, int64_t timeout_ms) {
  auto handle = self.open();
  kvc_receive_args args;
  kvc_receive_args_init(&args);
  args.num_tokens = num_tokens;
  args.prefix = prefix;
  args.timeout_ms = saturate(timeout_ms);
  kvc_transfer transfer = 0;
  call_without_gil([&](kvc_error* error) { return kvc_transfer_receive(handle->cache, &args, &transfer, error); });
  return transfer;
}

nb::bytes describe(const Cache& self, uint64_t transfer) {
  auto handle = self.open();
  int64_t bytes = 0;
  call_without_gil(
      [&](kvc_error* error) { return kvc_transfer_describe(handle->cache, transfer, nullptr, 0, &bytes, error); });
  std::vector<char> buffer(static_cast<size_t>(bytes));
  call_without_gil([&](kvc_error* error) {
    return kvc_transfer_describe(handle->cache, transfer, buffer.data(), bytes, &bytes, error);
  });
  return nb::bytes(buffer.data(), static_cast<size_t>(bytes));
}

uint64_t send(const Cache& self, uint64_t sequence, nb::bytes description) {
  auto handle = self.open();
  kvc_transfer transfer = 0;
  call_without_gil([&](kvc_error* error) {
    return kvc_transfer_send(handle->cache, sequence, description.c_str(), static_cast<int64_t>(description.size()),
                             &transfer, error);
  });
  return transfer;
}

// Returns (whether the transfer is done, tokens, bytes, the new sequence or 0).
nb::tuple poll(const Cache& self, uint64_t transfer) {
  auto handle = self.open();
  kvc_transfer_info info;
  kvc_transfer_info_init(&info);
  call_without_gil([&](kvc_error* error) { return kvc_transfer_poll(handle->cache, transfer, &info, error); });
  return nb::make_tuple(info.done != 0, info.tokens, info.bytes, info.sequence);
}

void cancel(const Cache& self, uint64_t transfer) {
  auto handle = self.open();
  call_without_gil([&](kvc_error* error) { return kvc_transfer_cancel(handle->cache, transfer, error); });
}

}  // namespace

void Cache::bind_transfers(nb::class_<Cache>& cls) {
  cls.def("_set_transport", &set_transport, nb::arg("caller"), nb::arg("library"), nb::arg("options"))
      .def("_receive", &receive, nb::arg("num_tokens"), nb::arg("prefix"), nb::arg("timeout_ms"))
      .def("_describe_transfer", &describe, nb::arg("transfer"))
      .def("_send", &send, nb::arg("sequence"), nb::arg("description"))
      .def("_poll_transfer", &poll, nb::arg("transfer"))
      .def("_cancel_transfer", &cancel, nb::arg("transfer"));
}

}  // namespace kvcpy
