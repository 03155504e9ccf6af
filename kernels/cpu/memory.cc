// Allocates device memory of the CPU. This memory consists of anonymous mappings, which the system fills with zeros.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "kernels/cpu/device.h"
#include "kernels/cpu/system/pages.h"

namespace kvc::kernels {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

// `bytes`, at least 1, rounded up to whole pages.
int64_t pages_for(int64_t bytes) {
  const int64_t page = page_bytes();
  return ((bytes > 0 ? bytes : 1) + page - 1) / page * page;
}

}  // namespace

kvc_status allocate(kvc_backend_device*, int64_t bytes, int64_t alignment, int32_t huge, void** memory,
                    kvc_error* error) {
  if (huge != 0 && alignment < kHugePageBytes) alignment = kHugePageBytes;
  if (alignment < page_bytes()) alignment = page_bytes();
  const bool fits = bytes >= 0 && bytes <= INT64_MAX - alignment - 2 * page_bytes();
  *memory = fits ? map_pages(pages_for(bytes), alignment, huge != 0) : nullptr;
  if (*memory != nullptr) return KVC_OK;
  const kvc_status status =
      fail(error, KVC_ERROR_OUT_OF_MEMORY, "the system refused %lld bytes of memory", static_cast<long long>(bytes));
  error->required = bytes;
  return status;
}

void release(kvc_backend_device*, void* memory, int64_t bytes) {
  if (memory != nullptr) unmap_pages(memory, pages_for(bytes));
}

kvc_status upload(kvc_backend_device*, void* target, const void* source, int64_t bytes, int32_t, void*, kvc_error*) {
  memcpy(target, source, static_cast<size_t>(bytes));
  return KVC_OK;
}

kvc_status download(kvc_backend_device*, void* target, const void* source, int64_t bytes, void*, kvc_error*) {
  memcpy(target, source, static_cast<size_t>(bytes));
  return KVC_OK;
}

}  // namespace kvc::kernels
