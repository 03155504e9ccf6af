// Defines the table of the CPU backend, and the functions that open and close a device and choose the SIMD target.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/backend.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/device.h"

namespace kvc::kernels {
namespace {

struct Target {
  const Implementation* implementation;
  bool (*runs)(const CpuFeatures&);
};

// All SIMD targets of this build, the best one last. The reference is never the default.
constexpr Target kTargets[] = {
    {&kReferenceImplementation, [](const CpuFeatures&) { return true; }},
    {&kScalarImplementation, [](const CpuFeatures&) { return true; }},
#if defined(__x86_64__) && !defined(KVCACHE_SCALAR_ONLY)
    {&kAvx2Implementation, [](const CpuFeatures& cpu) { return cpu.avx2; }},
    // avx512_bf16 is not the best target on a CPU where its dot product is slower than conversion to float32. It can
    // still be chosen by name.
    {&kAvx512Bf16Implementation, [](const CpuFeatures& cpu) { return cpu.avx512_bf16 && !cpu.fast_bf16_dots; }},
    {&kAvx512Implementation, [](const CpuFeatures& cpu) { return cpu.avx512; }},
    {&kAvx512VbmiImplementation, [](const CpuFeatures& cpu) { return cpu.avx512_vbmi; }},
    {&kAvx512Bf16Implementation, [](const CpuFeatures& cpu) { return cpu.fast_bf16_dots; }},
#if defined(__linux__)  // cpu_features.cc has the calls that AMX needs for Linux only
    {&kAvx512AmxImplementation, [](const CpuFeatures& cpu) { return cpu.amx_bf16; }},
#endif
#elif defined(__aarch64__)
    {&kNeonImplementation, [](const CpuFeatures&) { return true; }},  // NEON is part of the architecture
#endif
};
constexpr int32_t kMaxImplementations = sizeof kTargets / sizeof kTargets[0];

// Fills `list` with the SIMD targets that this machine can run, the best one last. Returns their number.
int32_t list_implementations(const Implementation** list) {
  const CpuFeatures features = detect_cpu_features();
  int32_t n = 0;
  for (const Target& target : kTargets) {
    if (target.runs(features)) list[n++] = target.implementation;
  }
  return n;
}

// Returns whether the system lets this process run a SIMD target. For AMX, the function requests the permission.
bool is_allowed(const Implementation* implementation) {
#if defined(__x86_64__) && defined(__linux__) && !defined(KVCACHE_SCALAR_ONLY)
  if (implementation == &kAvx512AmxImplementation) return request_amx();
#endif
  return implementation != nullptr;
}

// Finds the SIMD target with the name `name`. If `name` is null, finds the best target that the system lets this
// process run.
kvc_status choose(const char* name, const Implementation** chosen, kvc_error* error) {
  const Implementation* list[kMaxImplementations];
  int32_t n = list_implementations(list);
  if (name == nullptr) {
    while (n > 1 && !is_allowed(list[n - 1])) --n;
    *chosen = list[n - 1];
    return KVC_OK;
  }
  char known[256] = "";
  size_t length = 0;
  for (int32_t i = 0; i < n; ++i) {
    if (strcmp(name, list[i]->name) == 0) *chosen = list[i];
    if (length >= sizeof known) continue;  // the message is cut off
    length +=
        static_cast<size_t>(snprintf(known + length, sizeof known - length, "%s%s", i > 0 ? ", " : "", list[i]->name));
  }
  if (*chosen == nullptr) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "simd \"%.64s\"; this machine has %s", name, known);
  }
  if (!is_allowed(*chosen)) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "simd \"%.64s\"; the system refuses its registers to this process", name);
  }
  return KVC_OK;
}

kvc_status open_device(const kvc_backend_open_args* args, kvc_backend_device** device, kvc_error* error) {
  const Implementation* chosen = nullptr;
  const kvc_status chose = choose(args->simd, &chosen, error);
  if (chose != KVC_OK) return chose;
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

// Functions that stay null are only for asynchronous devices.
constexpr kvc_backend make_table() {
  kvc_backend table = {};
  table.struct_size = sizeof table;
  table.version = KVC_BACKEND_VERSION;
  table.device_type = kDLCPU;
  table.features = KVC_BACKEND_LISTS | KVC_BACKEND_BIASES | KVC_BACKEND_SELECT;
  table.name = "cpu";
  table.open = open_device;
  table.close = close_device;
  table.implementations = implementations;
  table.implementation = implementation;
  table.check_layer = check_layer;
  table.tiling = tiling;
  table.allocate = allocate;
  table.release = release;
  table.upload = upload;
  table.download = download;
  table.rope_table = rope_table;
  table.rope = rope;
  table.append = append;
  table.attend = attend;
  table.copy_slots = copy_slots;
  table.gather = gather;
  table.merge = merge;
  table.states = states;
  table.project = project;
  table.select = select;
  return table;
}
constexpr kvc_backend kBackend = make_table();

}  // namespace

}  // namespace kvc::kernels

extern "C" const kvc_backend* kvc_cpu_backend_get(uint32_t version) {
  return version == KVC_BACKEND_VERSION ? &kvc::kernels::kBackend : nullptr;
}
