#include "context/backend_loader.h"

#include <new>
#include <string>

#include "system/environment.h"
#include "system/library_folder.h"
#include "system/shared_library.h"

// The CPU backend (kernels/cpu), which is linked into this library.
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
    {kDLCPU, "CPU"},     {kDLCUDA, "CUDA"},     {kDLCUDAHost, "CUDA host"}, {kDLROCM, "ROCm"},
    {kDLMetal, "Metal"}, {kDLVulkan, "Vulkan"}, {kDLOpenCL, "OpenCL"},      {kDLOneAPI, "oneAPI"},
};

const char* device_name(int32_t device_type) {
  for (const DeviceName& device : kDeviceNames) {
    if (device.device_type == device_type) return device.name;
  }
  return "unknown";
}

// Checks that the table has this library's version and the wanted device type.
Status check_table(const kvc_backend* table, int32_t device_type, const char* from) {
  if (table == nullptr || table->version != KVC_BACKEND_VERSION || table->struct_size < sizeof(kvc_backend)) {
    return Status::error(KVC_ERROR_DEVICE_UNAVAILABLE, "%.200s does not serve version %d of the backend table", from,
                         KVC_BACKEND_VERSION);
  }
  if (table->device_type == device_type) return Status();
  return Status::error(KVC_ERROR_DEVICE_UNAVAILABLE, "%.200s serves device type %d (%s), not %d (%s)", from,
                       table->device_type, device_name(table->device_type), device_type, device_name(device_type));
}

Status load_plugin(const std::string& path, int32_t device_type, const kvc_backend** backend) {
  std::string reason;
  void* const library = open_library(path, &reason);
  if (library == nullptr) {
    return Status::error(KVC_ERROR_DEVICE_UNAVAILABLE, "no backend for device type %d (%s): %.300s", device_type,
                         device_name(device_type), reason.c_str());
  }
  // After a failure the file stays loaded, because its constructors have run, and it may not be safe to unload it.
  const auto get = reinterpret_cast<kvc_backend_get_fn>(find_symbol(library, "kvc_backend_get"));
  if (get == nullptr) {
    return Status::error(KVC_ERROR_DEVICE_UNAVAILABLE, "%.200s is no backend: it has no symbol kvc_backend_get",
                         path.c_str());
  }
  const kvc_backend* const table = get(KVC_BACKEND_VERSION);
  KVC_TRY(check_table(table, device_type, path.c_str()));
  *backend = table;
  return Status();
}

// Loads the plug-in that the environment names, or else the plug-in in the folder of this library.
Status load_cuda(const kvc_backend** backend) {
  const std::string named = trusted_variable("KVCACHE_CUDA_BACKEND");
  if (!named.empty()) return load_plugin(named, kDLCUDA, backend);
  const char* const folder = library_folder();
  if (folder != nullptr) return load_plugin(folder + library_file_name("kvcache_cuda"), kDLCUDA, backend);
  return Status::error(
      KVC_ERROR_DEVICE_UNAVAILABLE,
      "no backend for device type %d (CUDA): the folder of this library is unknown; name the file of the plug-in",
      static_cast<int>(kDLCUDA));
}

}  // namespace

Status load_backend(int32_t device_type, const char* path, const kvc_backend** backend) noexcept try {
  if (path != nullptr) return load_plugin(path, device_type, backend);
  for (const BuiltIn& built_in : kBuiltIn) {
    if (built_in.device_type != device_type) continue;
    const kvc_backend* table = built_in.get(KVC_BACKEND_VERSION);
    KVC_TRY(check_table(table, device_type, "the built-in backend"));
    *backend = table;
    return Status();
  }
  if (device_type == kDLCUDA) return load_cuda(backend);
  return Status::error(KVC_ERROR_DEVICE_UNAVAILABLE,
                       "no backend for device type %d (%s); this library has one for device type %d (CPU), and looks "
                       "for one of device type %d (CUDA)",
                       device_type, device_name(device_type), static_cast<int>(kDLCPU), static_cast<int>(kDLCUDA));
} catch (const std::bad_alloc&) {
  return Status::error(KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for the path of a backend");
}

}  // namespace kvc
