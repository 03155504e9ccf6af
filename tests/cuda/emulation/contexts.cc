// Contexts of devices, and the driver's functions for them, on the host. All devices share one implementation. Tests
// only check which device gets a context.
#include <map>
#include <mutex>
#include <string>

#include "cuda_runtime.h"

struct CudaContext {
  int device = 0;
  bool made = false;
  int retained = 0;
};

namespace {

constexpr int kMostDevices = 4;
std::mutex mutex;
int devices = 1;
CudaContext primary[kMostDevices];
thread_local CudaContext* current = nullptr;

}  // namespace

namespace cuda_emulation {

void need_context() {
  if (current == nullptr) current = &primary[0];
  current->made = true;
}
int num_devices() { return devices; }
void set_devices(int count) {
  const std::lock_guard<std::mutex> lock(mutex);
  devices = count;
  for (int i = 0; i < kMostDevices; ++i) primary[i] = {i, false, primary[i].retained};
}
bool has_context(int device) { return primary[device].made; }
int retained(int device) { return primary[device].retained; }

}  // namespace cuda_emulation

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= devices) return cudaErrorInvalidDevice;
  current = &primary[device];
  cuda_emulation::need_context();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current == nullptr ? 0 : current->device;
  return cudaSuccess;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal < devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const std::lock_guard<std::mutex> lock(mutex);
  *context = &primary[device];
  primary[device].device = device;
  primary[device].made = true;
  ++primary[device].retained;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (primary[device].retained == 0) return CUDA_ERROR_INVALID_VALUE;
  --primary[device].retained;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxCreate(CUcontext* context, unsigned, CUdevice device) {
  *context = current = new CudaContext{device, true, 0};
  return CUDA_SUCCESS;
}
CUresult cuCtxDestroy(CUcontext context) {
  if (current == context) current = nullptr;
  delete context;
  return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  if (const cudaError_t failed = cuda_emulation::count_call(); failed != cudaSuccess) return failed;
  static const std::map<std::string, void*> functions = {
      {"cuTensorMapEncodeTiled", reinterpret_cast<void*>(&cuTensorMapEncodeTiled)},
      {"cuDeviceGet", reinterpret_cast<void*>(&cuDeviceGet)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(&cuDevicePrimaryCtxRetain)},
      {"cuDevicePrimaryCtxRelease", reinterpret_cast<void*>(&cuDevicePrimaryCtxRelease)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(&cuCtxGetCurrent)},
      {"cuCtxSetCurrent", reinterpret_cast<void*>(&cuCtxSetCurrent)},
      {"cuStreamGetId", reinterpret_cast<void*>(&cuStreamGetId)},
  };
  const auto found = functions.find(symbol);
  *function = found != functions.end() ? found->second : nullptr;
  *status = found != functions.end() ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
