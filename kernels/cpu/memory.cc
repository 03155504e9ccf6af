// Allocates device memory of the CPU. This memory consists of anonymous mappings, which the system fills with zeros.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/device.h"

namespace kvc::kernels {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

kvc_status allocate(kvc_backend_device*, int64_t bytes, int64_t alignment, int32_t huge, void** memory,
                    kvc_error* error) {
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  if (huge != 0 && alignment < kHugePageBytes) alignment = kHugePageBytes;
  if (alignment < page_bytes) alignment = page_bytes;
  const auto refuse = [&] {
    const kvc_status status =
        fail(error, KVC_ERROR_OUT_OF_MEMORY, "the system refused %lld bytes of memory", static_cast<long long>(bytes));
    error->required = bytes;
    return status;
  };
  if (bytes < 0 || bytes > INT64_MAX - alignment - 2 * page_bytes) return refuse();
  const int64_t size = round_up(bytes > 0 ? bytes : 1, page_bytes);
  const int64_t mapped = size + alignment - page_bytes;
  void* const map =
      mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return refuse();
  // Only [start, start + size) stays mapped. start is aligned.
  const int64_t begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(map)), start = round_up(begin, alignment);
  unsigned char* const base = static_cast<unsigned char*>(map) + (start - begin);
  const int64_t tail = mapped - (start - begin) - size;
  if (start > begin) munmap(map, static_cast<size_t>(start - begin));
  if (tail > 0) munmap(base + size, static_cast<size_t>(tail));
#if defined(MADV_HUGEPAGE)
  // This is a hint. If the system refuses the hint, calls are only slower.
  if (huge != 0) madvise(base, static_cast<size_t>(size), MADV_HUGEPAGE);
#endif
  *memory = base;
  return KVC_OK;
}

void release(kvc_backend_device*, void* memory, int64_t bytes) {
  if (memory == nullptr) return;
  munmap(memory, static_cast<size_t>(round_up(bytes > 0 ? bytes : 1, sysconf(_SC_PAGESIZE))));
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
