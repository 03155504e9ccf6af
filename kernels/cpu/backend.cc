// The CPU backend: its table, opening and closing, and the choice of an implementation.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/device.h"

namespace kvc::kernels {
namespace {

constexpr int32_t kMaxImplementations = 5;

// Fills `list` with what this machine can run, best last; the reference is never the best. Returns how many.
int32_t list_implementations(const Implementation** list) {
  int32_t n = 0;
  list[n++] = &kReferenceImplementation;
  list[n++] = &kScalarImplementation;
#if defined(__x86_64__)
  const CpuFeatures features = detect_cpu_features();
  if (features.avx2) list[n++] = &kAvx2Implementation;
  // Best last: where the bf16 dot is slower than widening to float32, it stays selectable by name.
  if (features.avx512_bf16 && !features.fast_bf16_dots) list[n++] = &kAvx512Bf16Implementation;
  if (features.avx512) list[n++] = &kAvx512Implementation;
  if (features.fast_bf16_dots) list[n++] = &kAvx512Bf16Implementation;
#endif
  return n;
}

kvc_status open_device(const kvc_backend_open_args* args, kvc_backend_device** device, kvc_error* error) {
  const Implementation* list[kMaxImplementations];
  const int32_t n = list_implementations(list);
  const Implementation* chosen = list[n - 1];
  if (args->simd != nullptr) {
    chosen = nullptr;
    char known[128] = "";
    size_t length = 0;
    for (int32_t i = 0; i < n; ++i) {
      if (strcmp(args->simd, list[i]->name) == 0) chosen = list[i];
      length += static_cast<size_t>(
          snprintf(known + length, sizeof known - length, "%s%s", i > 0 ? ", " : "", list[i]->name));
    }
    if (chosen == nullptr) {
      return fail(error, KVC_ERROR_UNSUPPORTED, "simd \"%.64s\"; this machine has %s", args->simd, known);
    }
  }
  if (args->device_id != 0) {
    return fail(error, KVC_ERROR_DEVICE_UNAVAILABLE, "CPU device %d; there is only 0", args->device_id);
  }
  kvc_backend_device* opened = static_cast<kvc_backend_device*>(calloc(1, sizeof *opened));
  if (opened == nullptr) return fail(error, KVC_ERROR_OUT_OF_MEMORY, "no memory for a device");
  const int64_t scratch_bytes = static_cast<int64_t>(args->host->num_workers) * static_cast<int64_t>(sizeof(Scratch));
  void* scratch = nullptr;
  const kvc_status status = allocate(nullptr, scratch_bytes, 64, 1, &scratch, error);
  if (status != KVC_OK) {
    free(opened);
    return status;
  }
  *opened = {args->host, chosen, static_cast<Scratch*>(scratch)};
  *device = opened;
  return KVC_OK;
}

void close_device(kvc_backend_device* device) {
  if (device == nullptr) return;
  release(nullptr, device->scratch,
          static_cast<int64_t>(device->host->num_workers) * static_cast<int64_t>(sizeof(Scratch)));
  free(device);
}

int32_t implementations(kvc_backend_device*, const char** names, int32_t capacity) {
  const Implementation* list[kMaxImplementations];
  const int32_t n = list_implementations(list);
  for (int32_t i = 0; i < n && i < capacity; ++i) names[i] = list[i]->name;
  return n;
}

const char* implementation(kvc_backend_device* device) { return device->implementation->name; }

constexpr kvc_backend kBackend = {
    sizeof(kvc_backend),
    KVC_BACKEND_VERSION,
    kDLCPU,
    0,
    "cpu",
    open_device,
    close_device,
    implementations,
    implementation,
    check_layer,
    tiling,
    allocate,
    release,
    rope_table,
    rope,
    append,
    attend,
    copy_slots,
    gather,
    merge,
};

}  // namespace

kvc_status fail(kvc_error* error, kvc_status code, const char* format, ...) {
  error->code = code;
  error->index = -1;
  error->required = 0;
  error->available = 0;
  error->group = -1;
  va_list values;
  va_start(values, format);
  vsnprintf(error->message, sizeof error->message, format, values);
  va_end(values);
  return code;
}

}  // namespace kvc::kernels

extern "C" const kvc_backend* kvc_cpu_backend_get(uint32_t version) {
  return version == KVC_BACKEND_VERSION ? &kvc::kernels::kBackend : nullptr;
}
