// The part of CUDA that kernels/cuda uses, on the host. The blocks of a kernel run one after another on the calling
// thread. The threads of a block are fibers, which are switched at barriers and shuffles. So tests run the very source
// of the kernels on any machine. A barrier that not all threads reach, or a lane that is missing from a shuffle, ends
// the test with a message. A warp runs until it needs the others. Warps, lanes and blocks run in ascending order in one
// launch and in descending order in the next. If a barrier is missing, one of the two orders reads data that is not yet
// written. Shared memory holds NaN at the start of a block.
//
// The include path of kvcache_cuda_emulated finds it before the toolkit's header. Names are CUDA's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

namespace cuda_emulation {

unsigned char* shared_memory();  // dynamic shared memory of the running block

void barrier();
// Waits for the whole warp, and returns the value of lane `source`. The mask must be full.
uint64_t exchange(unsigned mask, uint64_t value, int source);
unsigned ballot(unsigned mask, bool predicate);
int lane();
[[noreturn]] void die(const char* what);
void count_product();            // counts a matrix product of a lane
void count_warpgroup_product();  // counts one of a warpgroup

// The first runs a grid at once, and the second one enqueues it.
void run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread);
int launch(void* stream, dim3 grid, dim3 block, size_t shared_bytes, std::function<void()> thread);

// Operations on streams wait in their queues until a host call needs them (it synchronises with an event or a device).
// So tests notice a program that frees or changes memory too early. Streams are ordered by their own queues and by
// events, and by nothing else (also the NULL stream). With kAtOnce nothing waits. The other values choose which stream
// continues, of those that can:
//   kInTurn        one after another
//   kNewestFirst   the one whose next operation is the newest. Old operations that nothing waits for run last
//   kRandom + n    a random one; the value is the seed
enum Order : unsigned { kAtOnce = 0, kInTurn = 1, kNewestFirst = 2, kRandom = 3 };
void set_order(unsigned order);
inline void defer(bool deferred) { set_order(deferred ? kInTurn : kAtOnce); }
// Emulates a machine without a driver (cudaErrorInsufficientDriver), without a device, or with a device that no kernel
// was built for.
enum class Machine { kWorks, kNoDriver, kNoDevice, kOtherArch };
void set_machine(Machine machine);
// The number of devices, 1 by default. For one device: whether something made its primary context since then, and how
// often the driver's call retained it.
void set_devices(int count);
bool has_context(int device);
int retained(int device);
int num_devices();
// The number of multiprocessors of devices that are opened later, 4 by default. It decides how plans divide their work.
void set_multiprocessors(int count);
void need_context();  // as any runtime call on a device does
// The n-th runtime call from now on (1 = the next one) that can fail returns `error` (a cudaError_t). After a sticky
// error, all later calls return it too. With n = 0 no call fails, and the device works again. It also begins to count
// calls anew.
void fail_call(int64_t n, int error);
int64_t calls();
// Counters of all calls so far.
struct Counts {
  int64_t copies, launches, allocations, host_waits;
  int64_t products;  // that tensor cores computed
  int64_t warpgroup_products;
  int64_t held;  // memory blocks and events that exist now
};
Counts counts();
// Pinned memory of the host that exists now: number of blocks, and their bytes. And of all asynchronous copies so far:
// the bytes of those that had no pinned memory on either side. CUDA passes these through a buffer of its own.
struct PinnedCounts {
  int64_t blocks, bytes, pageable_bytes;
};
PinnedCounts pinned_counts();
void count_copy(const void* target, const void* source, size_t bytes);

template <class T>
uint64_t bits_of(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T value_of(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// How much shared memory a launch of a kernel may have: 48 KiB, or the value given to cudaFuncSetAttribute.
void check_shared(const void* kernel, size_t bytes);
// The shared memory that a block may have, and that a multiprocessor has. Also how much of a block's share the image
// reserves for the system.
void set_shared(int bytes_of_block, int bytes_of_multiprocessor, int bytes_of_image = 0);

}  // namespace cuda_emulation

extern constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;  // of the running fiber

inline void __syncthreads() { cuda_emulation::barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { cuda_emulation::ballot(mask, true); }
inline unsigned __ballot_sync(unsigned mask, int predicate) { return cuda_emulation::ballot(mask, predicate != 0); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  return cuda_emulation::value_of<T>(cuda_emulation::exchange(mask, cuda_emulation::bits_of(value), source & 31));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return __shfl_sync(mask, value, cuda_emulation::lane() ^ lanes);
}

// Threads run one at a time here, so a plain write is atomic.
inline void __threadfence_system() {}
inline unsigned atomicMax(unsigned* to, unsigned value) {
  const unsigned before = *to;
  *to = before > value ? before : value;
  return before;
}
inline unsigned atomicOr(unsigned* to, unsigned value) {
  const unsigned before = *to;
  *to |= value;
  return before;
}
inline unsigned atomicAdd(unsigned* to, unsigned value) {
  const unsigned before = *to;
  *to += value;
  return before;
}

// ---- Runtime --------------------------------------------------------------------------------

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidKernelImage = 200,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchTimeout = 702,
  cudaErrorContextIsDestroyed = 709,
  cudaErrorAssert = 710,
  cudaErrorHardwareStackError = 714,
  cudaErrorIllegalInstruction = 715,
  cudaErrorMisalignedAddress = 716,
  cudaErrorInvalidAddressSpace = 717,
  cudaErrorInvalidPc = 718,
  cudaErrorLaunchFailure = 719,
  cudaErrorTensorMemoryLeak = 721,
  cudaErrorMpsClientTerminated = 810,
  cudaErrorECCUncorrectable = 214,
  cudaErrorNvlinkUncorrectable = 220,
  cudaErrorContained = 226,
  cudaErrorExternalDevice = 911,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorUnknown = 999,
};
namespace cuda_emulation {
cudaError_t count_call();  // begins a call that can fail, and returns its error
}

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();

using cudaStream_t = struct CudaStream*;
using cudaEvent_t = struct CudaEvent*;
#define cudaStreamLegacy (reinterpret_cast<cudaStream_t>(1))     // as NULL
#define cudaStreamPerThread (reinterpret_cast<cudaStream_t>(2))  // as NULL, but of the calling thread
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum { cudaEventDisableTiming = 2, cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2 };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
using cudaGraph_t = struct CudaGraph*;
using cudaGraphExec_t = struct CudaGraph*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeRelaxed = 2 };

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemset(void* memory, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
// A stream without cudaStreamNonBlocking waits for the NULL stream. While such a stream is captured, the NULL stream
// cannot be used.
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
// Operations that are enqueued between these two calls are recorded, and do not run. Each launch enqueues all of them.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
cudaError_t cudaEventQuery(cudaEvent_t event);

struct cudaFuncAttributes {
  int numRegs = 0;
  size_t sharedSizeBytes = 0;
};
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess = 0, cudaDriverEntryPointSymbolNotFound = 1 };
enum { cudaEnableDefault = 0 };
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult* status);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
// One, so that thread blocks which compute several blocks in turn do so in small calls too.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads, size_t shared);
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);

// Kernels of a stream run one after another here, so the attribute has no effect.
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  cuda_emulation::check_shared(reinterpret_cast<const void*>(kernel), config->dynamicSmemBytes);
  return static_cast<cudaError_t>(
      cuda_emulation::launch(config->stream, config->gridDim, config->blockDim, config->dynamicSmemBytes,
                             [kernel, ... copies = Parameters(arguments)] { kernel(copies...); }));
}

#include "cuda.h"
#include "warp_matrix.h"
#include "warpgroup.h"
