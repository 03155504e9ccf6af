// The functions that open a NIXL transport: from a config, and from the options of a plug-in.
//
// SPDX-License-Identifier: Apache-2.0
#include <cinttypes>
#include <string>

#include "common/table.h"
#include "endpoint.h"

namespace kvc {
namespace {

constexpr int32_t kMaxParams = 64;

Status check(const kvc_nixl_config& config) {
  if (config.struct_size != sizeof config) {
    return Status::error(KVC_ERROR_STRUCT_SIZE, "config has struct_size %u, not %zu: call kvc_nixl_config_init",
                         config.struct_size, sizeof config);
  }
  if (config.num_params < 0 || config.num_params > kMaxParams) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "num_params %d is not in 0..%d", config.num_params, kMaxParams);
  }
  if (config.num_params > 0 && config.params == nullptr) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "params is NULL, and num_params is %d", config.num_params);
  }
  for (int32_t i = 0; i < config.num_params; ++i) {
    const kvc_nixl_param& param = config.params[i];
    if (param.name != nullptr && param.value != nullptr) continue;
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "params[%d].%s is NULL", i, param.name == nullptr ? "name" : "value");
  }
  if (config.agent == nullptr) return Status();
  const size_t bytes = std::string_view(config.agent).size();
  if (bytes >= 1 && bytes <= NixlEndpoint::kMaxAgentBytes) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "agent has a name of %zu bytes, not of 1..%zu", bytes,
                       NixlEndpoint::kMaxAgentBytes);
}

Status open(const kvc_nixl_config* config, kvc_transport* transport) {
  if (config == nullptr || transport == nullptr) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL", config == nullptr ? "config" : "transport");
  }
  KVC_TRY(check(*config));
  std::unique_ptr<NixlEndpoint> endpoint;
  KVC_TRY(NixlEndpoint::open(*config, &endpoint));
  TransportTable<NixlEndpoint>::fill(std::move(endpoint), transport);
  return Status();
}

// Opens a transport with the options of a plug-in: "NAME=VALUE;NAME=VALUE".
Status open_options(std::string_view options, kvc_transport* transport) {
  std::vector<std::pair<std::string, std::string>> given;
  while (!options.empty()) {
    const std::string_view one = options.substr(0, options.find(';'));
    options.remove_prefix(std::min(one.size() + 1, options.size()));
    if (one.empty()) continue;
    const size_t equals = one.find('=');
    if (equals == one.npos || equals == 0) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT, "option \"%.*s\" is not NAME=VALUE",
                           static_cast<int>(std::min<size_t>(one.size(), 200)), one.data());
    }
    given.emplace_back(one.substr(0, equals), one.substr(equals + 1));
  }
  kvc_nixl_config config;
  kvc_nixl_config_init(&config);
  std::vector<kvc_nixl_param> params;
  for (const auto& [name, value] : given) {
    if (name == "library") {
      config.library = value.c_str();
    } else if (name == "agent") {
      config.agent = value.c_str();
    } else if (name == "backend") {
      config.backend = value.c_str();
    } else {
      params.push_back({name.c_str(), value.c_str()});
    }
  }
  config.params = params.data();
  config.num_params = static_cast<int32_t>(params.size());
  return open(&config, transport);
}

}  // namespace
}  // namespace kvc

kvc_status kvc_nixl_transport_open(const kvc_nixl_config* config, kvc_transport* transport, kvc_error* error) {
  if (error != nullptr && error->struct_size != sizeof(kvc_error)) return KVC_ERROR_STRUCT_SIZE;
  return kvc::report_transport("kvc_nixl_transport_open", error, [&] { return kvc::open(config, transport); });
}

// The function that a plug-in exports. options: "NAME=VALUE;NAME=VALUE".
extern "C" KVC_API kvc_status kvc_transport_open(uint32_t version, const char* options, kvc_transport* transport,
                                                 kvc_error* error) {
  return kvc::report_transport("kvc_transport_open", error, [&]() -> kvc::Status {
    KVC_TRY(kvc::check_transport_version(version));
    return kvc::open_options(options == nullptr ? "" : options, transport);
  });
}
