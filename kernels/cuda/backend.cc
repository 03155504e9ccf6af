// The CUDA backend: its table of functions, and the functions that open and close a device.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/backend.h"

#include <new>

#include "kernels/cuda/attend/mma/launch.h"
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {
namespace {

// Reports why device `ordinal` cannot be used. result, count: the status and the number of devices from
// cudaGetDeviceCount.
kvc_status unavailable(cudaError_t result, int32_t ordinal, int count, kvc_error* error) {
  cudaGetLastError();
  if (result == cudaErrorInsufficientDriver) {
    return fail(error, KVC_ERROR_DEVICE_UNAVAILABLE,
                "no CUDA driver on this machine, or one older than CUDA 13 needs (%s)", cudaGetErrorName(result));
  }
  if (result == cudaErrorNoDevice || (result == cudaSuccess && count == 0)) {
    return fail(error, KVC_ERROR_DEVICE_UNAVAILABLE, "the CUDA driver sees no device (%s)", cudaGetErrorName(result));
  }
  if (result != cudaSuccess) {
    return fail(error, KVC_ERROR_DEVICE_UNAVAILABLE, "CUDA device %d cannot be used: cudaGetDeviceCount: %s (%s)",
                ordinal, cudaGetErrorName(result), cudaGetErrorString(result));
  }
  return fail(error, KVC_ERROR_DEVICE_UNAVAILABLE, "CUDA device %d; there are %d", ordinal, count);
}

// Whether the error means that the plug-in has no code for the device.
bool is_of_other_arch(cudaError_t error) {
  return error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
         error == cudaErrorInvalidKernelImage || error == cudaErrorUnsupportedPtxVersion;
}

// Reads the properties of the current device, and checks that the device can run the compiled code.
kvc_status read_device(Device* device, kvc_error* error) {
  constexpr const char* kPurpose = "opening a device";
  int major = 0, minor = 0;
  const struct {
    cudaDeviceAttr attribute;
    int* value;
  } wanted[] = {{cudaDevAttrComputeCapabilityMajor, &major},
                {cudaDevAttrComputeCapabilityMinor, &minor},
                {cudaDevAttrMultiProcessorCount, &device->multiprocessors},
                {cudaDevAttrMaxSharedMemoryPerBlockOptin, &device->shared_of_block},
                {cudaDevAttrMaxSharedMemoryPerMultiprocessor, &device->shared_of_multiprocessor}};
  for (const auto& [attribute, value] : wanted) {
    const kvc_status status =
        check(cudaDeviceGetAttribute(value, attribute, device->ordinal), "cudaDeviceGetAttribute", kPurpose, error);
    if (status != KVC_OK) return status;
  }
  snprintf(device->names[0], sizeof device->names[0], "sm_%d%d_simple", major, minor);
  snprintf(device->names[1], sizeof device->names[1], "sm_%d%d", major, minor);
  int32_t own_bytes = 0;
  cudaError_t result = find_kernel_image();
  if (result == cudaSuccess) result = read_own_shared_bytes(&own_bytes);
  if (is_of_other_arch(result)) {
    cudaGetLastError();
    return fail(error, KVC_ERROR_DEVICE_UNAVAILABLE, "CUDA device %d is of %s; the backend was built for %s (%s)",
                device->ordinal, device->names[1], KVCACHE_CUDA_ARCHS, cudaGetErrorName(result));
  }
  const kvc_status status = check(result, "cudaFuncGetAttributes", kPurpose, error);
  if (status != KVC_OK) return status;
  device->shared_of_block -= own_bytes;
  device->has_early_start = major >= 9;
  device->has_wgmma = major == 9 && minor == 0 && has_wgmma_image();
  if (device->has_wgmma) {
    snprintf(device->names[2], sizeof device->names[2], "sm_%d%d_mma", major, minor);
    device->num_names = 3;
  }
  return KVC_OK;
}

// Chooses the kernels. name: an entry of device->names; null selects the fastest kernels.
kvc_status choose_kernels(const char* name, Device* device, kvc_error* error) {
  if (name == nullptr || strcmp(name, device->names[1]) == 0) {
    return device->has_wgmma ? use_wgmma(device, error) : KVC_OK;
  }
  if (strcmp(name, device->names[0]) == 0) {
    device->simple = true;
    return KVC_OK;
  }
  if (device->has_wgmma && strcmp(name, device->names[2]) == 0) return KVC_OK;
  return fail(error, KVC_ERROR_UNSUPPORTED, "simd \"%.64s\"; this device has %s%s%s and %s", name, device->names[0],
              device->has_wgmma ? ", " : "", device->names[2], device->names[1]);
}

// Prepares the current device for calls: reads its properties, creates its setup stream and its upload ring, and
// chooses its kernels. If args.validate is set, also creates its record of faults.
kvc_status make_ready(const kvc_backend_open_args& args, Device* device, kvc_error* error) {
  kvc_status status = read_device(device, error);
  if (status == KVC_OK) {
    status = check(cudaStreamCreateWithFlags(&device->setup, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
                   "a device's setup", error);
  }
  if (status == KVC_OK && args.validate != 0) {
    status = device->faults.open(reinterpret_cast<kvc_backend_device*>(device), error);
  }
  if (status == KVC_OK) status = choose_kernels(args.simd, device, error);
  if (status == KVC_OK) status = device->upload.create(error);
  return status;
}

void close_device(kvc_backend_device* opened) {
  if (opened == nullptr) return;
  Device* const device = device_of(opened);
  PrimaryContext context = device->context;
  {
    const CurrentDevice current(*device);
    if (device->setup != nullptr) cudaStreamDestroy(device->setup);
    delete device;
  }
  context.release();
}

kvc_status open_device(const kvc_backend_open_args* args, kvc_backend_device** opened, kvc_error* error) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || args->device_id >= count) {
    return unavailable(counted, args->device_id, count, error);
  }
  Device* const device = new (std::nothrow) Device;
  if (device == nullptr) return fail(error, KVC_ERROR_OUT_OF_MEMORY, "no memory for a device");
  device->ordinal = args->device_id;
  kvc_status status = device->context.retain(device->ordinal, error);
  if (status != KVC_OK) {
    delete device;
    return status;
  }
  {
    const CurrentDevice current(*device);
    status = make_ready(*args, device, error);
  }
  if (status == KVC_OK) {
    *opened = reinterpret_cast<kvc_backend_device*>(device);
  } else {
    close_device(reinterpret_cast<kvc_backend_device*>(device));
  }
  return status;
}

const char* implementation(kvc_backend_device* opened) {
  const Device& device = *device_of(opened);
  return device.names[device.simple ? 0 : device.has_wgmma && device.encode_map == nullptr ? 2 : 1];
}

int32_t implementations(kvc_backend_device* opened, const char** names, int32_t capacity) {
  const Device& device = *device_of(opened);
  for (int32_t i = 0; i < device.num_names && i < capacity; ++i) names[i] = device.names[i];
  return device.num_names;
}

constexpr kvc_backend kBackend = {
    sizeof(kvc_backend),
    KVC_BACKEND_VERSION,
    kDLCUDA,
    KVC_BACKEND_LISTS | KVC_BACKEND_BIASES | KVC_BACKEND_SELECT,
    "cuda",
    open_device,
    close_device,
    implementations,
    implementation,
    check_layer,
    tiling,
    allocate,
    release,
    upload,
    download,
    rope_table,
    rope,
    append,
    attend,
    copy_slots,
    gather,
    merge,
    states,
    project,
    select,
    health,
    check_stream,
    event_create,
    event_destroy,
    event_record,
    event_wait,
    stream_create,
    stream_destroy,
    pin,
    unpin,
    copy_pinned,
    mirror_create,
    mirror_destroy,
    step_create,
    step_destroy,
    stage,
    stage_plan,
    unstage,
    begin_call,
    end_call,
    take_scratch,
    give_scratch,
    plan_flash,
    plan_tables,
    take_fault,
};

}  // namespace

const kvc_backend* backend_of(uint32_t version) { return version == KVC_BACKEND_VERSION ? &kBackend : nullptr; }

}  // namespace kvc::kernels::cuda
