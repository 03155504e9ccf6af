// See step/send.h. Thread i copies word i. First come the words of all parts, and then the words of all nodes.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/copy/words.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/step/send.h"

namespace kvc::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int32_t kNodeWords =
    KVC_BACKEND_NODE_FANOUT * static_cast<int32_t>(sizeof(int32_t)) / static_cast<int32_t>(sizeof(Word16));
static_assert(sizeof(Word16) == StepParts::kWord);

__global__ void __launch_bounds__(kThreads)
    send_kernel(Word16* device, const Word16* pinned, const __grid_constant__ StepParts parts, ChangedNodes nodes) {
  int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= parts.words) {
    index -= parts.words;
    const int64_t node = index / kNodeWords, word = index % kNodeWords;
    if (node >= nodes.count) return;
    reinterpret_cast<Word16*>(nodes.targets[node])[word] =
        reinterpret_cast<const Word16*>(nodes.values + node * KVC_BACKEND_NODE_FANOUT)[word];
    return;
  }
  auto left = static_cast<int32_t>(index);
  int32_t word = 0;
  for (int32_t i = 0; i < parts.count; ++i) {
    const int32_t size = parts.parts[i].end - parts.parts[i].begin;
    if (left >= 0 && left < size) word = parts.parts[i].begin + left;
    left -= size;
  }
  device[word] = pinned[word];
}

}  // namespace

kvc_status send_parts(unsigned char* device, const unsigned char* pinned, const StepParts& parts,
                      const ChangedNodes& nodes, void* stream, kvc_error* error) {
  const int64_t threads = parts.words + nodes.count * kNodeWords;
  if (threads == 0) return KVC_OK;
  return launch("a step's index arrays", stream, {blocks_for(threads, kThreads), 1, 1}, kThreads, 0, error, send_kernel,
                reinterpret_cast<Word16*>(device), reinterpret_cast<const Word16*>(pinned), parts, nodes);
}

}  // namespace kvc::kernels::cuda
