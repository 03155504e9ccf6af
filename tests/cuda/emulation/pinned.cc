// Pinned memory of the host, and which copies use it.
#include <map>
#include <mutex>

#include "cuda_runtime.h"

namespace {

std::mutex mutex;
std::map<const char*, size_t> blocks;
int64_t pageable_bytes = 0;

bool is_pinned(const void* address) {
  const auto next = blocks.upper_bound(static_cast<const char*>(address));
  if (next == blocks.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  return static_cast<const char*>(address) < begin + size;
}

}  // namespace

namespace cuda_emulation {

PinnedCounts pinned_counts() {
  const std::lock_guard<std::mutex> lock(mutex);
  PinnedCounts counts = {0, 0, pageable_bytes};
  for (const auto& [begin, size] : blocks) ++counts.blocks, counts.bytes += static_cast<int64_t>(size);
  return counts;
}

void count_copy(const void* target, const void* source, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!is_pinned(target) && !is_pinned(source)) pageable_bytes += static_cast<int64_t>(bytes);
}

}  // namespace cuda_emulation

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  if (const cudaError_t failed = cudaMalloc(memory, bytes); failed != cudaSuccess) return failed;
  const std::lock_guard<std::mutex> lock(mutex);
  blocks[static_cast<const char*>(*memory)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    blocks.erase(static_cast<const char*>(memory));
  }
  return cudaFree(memory);
}
