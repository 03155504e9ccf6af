#include "context/backend_loader.h"

#include <iterator>

// The backend that is linked in; from kernels/cpu.
extern "C" const kvc_backend* kvc_cpu_backend_get(uint32_t version);

namespace kvc {
namespace {

struct BuiltIn {
  int32_t device_type;
  kvc_backend_get_fn get;
};
constexpr BuiltIn kBuiltIn[] = {{kDLCPU, kvc_cpu_backend_get}};

struct DeviceName {
  int32_t device_type;
  const char* name;
};
constexpr DeviceName kDeviceNames[] = {
    {kDLCUDA, "CUDA"},     {kDLCUDAHost, "CUDA host"}, {kDLROCM, "ROCm"},     {kDLMetal, "Metal"},
    {kDLVulkan, "Vulkan"}, {kDLOpenCL, "OpenCL"},      {kDLOneAPI, "oneAPI"},
};

const char* device_name(int32_t device_type) {
  for (const DeviceName& device : kDeviceNames) {
    if (device.device_type == device_type) return device.name;
  }
  return "unknown";
}

}  // namespace

Status load_backend(int32_t device_type, const kvc_backend** backend) noexcept {
  for (const BuiltIn& built_in : kBuiltIn) {
    if (built_in.device_type != device_type) continue;
    const kvc_backend* table = built_in.get(KVC_BACKEND_VERSION);
    if (!table || table->version != KVC_BACKEND_VERSION || table->struct_size < sizeof(kvc_backend)) {
      return Status::error(KVC_ERROR_DEVICE_UNAVAILABLE,
                           "the backend of device type %d does not serve version %d of the backend table", device_type,
                           KVC_BACKEND_VERSION);
    }
    *backend = table;
    return Status();
  }
  return Status::error(KVC_ERROR_DEVICE_UNAVAILABLE,
                       "no backend for device type %d (%s); this library has one for device type %d (CPU)", device_type,
                       device_name(device_type), static_cast<int>(kDLCPU));
}

}  // namespace kvc
