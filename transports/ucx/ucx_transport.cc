// The functions that open a UCX transport: from a config, and from the options of a plug-in.
//
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "common/table.h"
#include "endpoint.h"

namespace kvc {
namespace {

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
  TransportTable<UcxEndpoint>::fill(std::move(endpoint), transport);
  return Status();
}

}  // namespace
}  // namespace kvc

kvc_status kvc_ucx_transport_open(const kvc_ucx_config* config, kvc_transport* transport, kvc_error* error) {
  if (error != nullptr && error->struct_size != sizeof(kvc_error)) return KVC_ERROR_STRUCT_SIZE;
  return kvc::report_transport("kvc_ucx_transport_open", error, [&] { return kvc::open(config, transport); });
}

// The function that a plug-in exports. options: "TRANSPORTS" or "TRANSPORTS/DEVICES".
extern "C" KVC_API kvc_status kvc_transport_open(uint32_t version, const char* options, kvc_transport* transport,
                                                 kvc_error* error) {
  return kvc::report_transport("kvc_transport_open", error, [&]() -> kvc::Status {
    KVC_TRY(kvc::check_transport_version(version));
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
