// The transport over NIXL, by its backend UCX.
#include <kvcache_nixl.h>

#include <cstdlib>

#include "two_processes.h"

namespace kvt {

kvc_status open_transport(const std::string &way, kvc_transport *transport, kvc_error *error) {
  // UCX refuses to use shared memory if it must notice errors.
  const kvc_nixl_param shared_memory[] = {{"engine_config", "TLS=sm"}, {"ucx_error_handling_mode", "none"}};
  const kvc_nixl_param tcp[] = {{"engine_config", "TLS=tcp,NET_DEVICES=lo"}};
  kvc_nixl_config config;
  kvc_nixl_config_init(&config);
  config.params = way == "tcp" ? tcp : shared_memory;
  config.num_params = way == "tcp" ? 1 : 2;
  return kvc_nixl_transport_open(&config, transport, error);
}

// Over shared memory, a killed sender may block the queue of notifications, which UCX has in the receiver.
bool outlives_killed_senders(const std::string &way) { return way == "tcp"; }

std::string why_not() {
  if (std::getenv("KVCACHE_NIXL_CAPI") != nullptr) return {};
  return "KVCACHE_NIXL_CAPI does not name libnixl_capi.so: bash scripts/setup_nixl.sh installs it";
}

}  // namespace kvt
