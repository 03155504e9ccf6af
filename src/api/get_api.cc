// Section 19 of the header: the table of all functions.
#include "kvcache.h"

namespace {

constexpr kvc_api kTable = {
    sizeof(kvc_api),
    KVC_ABI_VERSION,
#include "api/api_table.inc"
};

}  // namespace

extern "C" const kvc_api *kvc_get_api(uint32_t abi_version) {
  const uint32_t major = abi_version >> 16;
  const uint32_t minor = abi_version & 0xffffu;
  // While the major version is 0, every minor version may change the ABI.
  const bool serves = major == 0 ? minor == KVC_VERSION_MINOR : minor <= KVC_VERSION_MINOR;
  return major == KVC_VERSION_MAJOR && serves ? &kTable : nullptr;
}
