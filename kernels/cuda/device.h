// An open CUDA device. Any threads may call its functions at once; locks and atomics guard what changes. Work is
// enqueued on the caller's stream, in the device's primary context (current.h). Calls that enqueue work return without
// waiting for the device, unless a ring of buffers is full (step/upload.h, step/step.h) or a buffer has to grow.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <atomic>

#include "kernels/common/convert.h"
#include "kernels/common/fail.h"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/current.h"
#include "kernels/cuda/faults.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/shared_limit.h"
#include "kernels/cuda/step/call_step.h"
#include "kernels/cuda/step/upload.h"
#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

struct Device {
  int ordinal = 0;
  PrimaryContext context = {};
  cudaStream_t setup = nullptr;  // for allocations and for the RoPE tables of a cache
  int multiprocessors = 0;
  int shared_of_block = 0,
      shared_of_multiprocessor = 0;  // bytes of shared memory; shared_of_block: the largest dynamic size for a block
                                     // that opts in to more than 48 KiB
  bool simple = false;               // selected by "sm_90_simple": no kernel uses tensor cores
  bool has_wgmma = false;            // the device has warpgroup products, and the plug-in has code for them
  bool has_early_start = false;      // the device can start a kernel before the previous kernel has ended
  void* encode_map = nullptr;        // the driver's cuTensorMapEncodeTiled; null: no call uses the warpgroup kernels
  BlockCut many = kWideRows;         // how items are cut into blocks of many rows
  int num_names = 2;
  char names[3][20] = {};  // "sm_90_simple", "sm_90", and, with has_wgmma, "sm_90_mma" (no warpgroup kernels)
  Upload upload = {};
  // calls[i]: the step (kvc_backend_step) of the stateless call to which slot i of `upload` is lent.
  CallStep calls[Upload::kSlots] = {};
  // The first permanent error of the device (such as an illegal address in a kernel), and the call that reported the
  // error. cudaSuccess: there was none.
  std::atomic<int> failure{cudaSuccess};
  char failed_call[128] = "";
  Scratch scratch = {};
  Faults faults = {};
  mutable SharedLimits shared_limits = {};
};

inline Device* device_of(kvc_backend_device* device) { return reinterpret_cast<Device*>(device); }

// Returns KVC_OK, OUT_OF_MEMORY or DEVICE_FAILED. The message has the error's name, the call and its purpose (such as a
// kernel). If a CurrentDevice exists on this thread, a permanent error is stored in the device's `failure`.
kvc_status check(cudaError_t result, const char* call, const char* purpose, kvc_error* error);

// Sets *capture to the id of the stream's capture, or to 0. Returns ORDER if `stream` is the NULL stream and a stream
// that synchronises with it is being captured, because no work can be enqueued then. what: the beginning of the
// message, such as "a call takes scratch".
kvc_status capture_of(void* stream, const char* what, unsigned long long* capture, kvc_error* error);
// Returns ORDER if the stream is being captured. what: the beginning of the message, such as "a call sends index arrays
// of its own".
kvc_status check_not_captured(void* stream, const char* what, kvc_error* error);

// Lets a kernel use as much shared memory as a block can have.
template <class Kernel>
kvc_status allow_shared(const Device& device, Kernel* kernel, const char* purpose, kvc_error* error) {
  return device.shared_limits.raise(reinterpret_cast<const void*>(kernel), device.shared_of_block, purpose, error);
}

// Copies, and waits until the copy is done. So later work on any stream can read the target. Only calls that may wait,
// such as the creation of a cache, use it.
kvc_status copy_and_wait(Device& device, void* target, const void* source, int64_t bytes, const char* purpose,
                         kvc_error* error);

// Enqueues a kernel, with its parameters by value. name: for error messages.
template <class... Parameters, class... Arguments>
kvc_status launch(const char* name, const cudaLaunchConfig_t& config, kvc_error* error, void (*kernel)(Parameters...),
                  const Arguments&... arguments) {
  return check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "cudaLaunchKernelEx", name, error);
}
template <class... Parameters, class... Arguments>
kvc_status launch(const char* name, void* stream, dim3 grid, unsigned threads, size_t shared_bytes, kvc_error* error,
                  void (*kernel)(Parameters...), const Arguments&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = {threads, 1, 1};
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  return launch(name, config, error, kernel, arguments...);
}

// The number of blocks of `threads` threads that cover n threads: at least 1, and at most the limit of a grid.
inline unsigned blocks_for(int64_t n, int64_t threads) {
  const int64_t blocks = (n + threads - 1) / threads;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > INT32_MAX ? INT32_MAX : blocks);
}

// Functions of the backend's table (kvc_backend) that the CPU backend also implements. They are in layer.cc, memory.cc
// and the .cu file of each operation.
#include "kernels/common/backend_functions.inl.h"
kvc_status select(kvc_backend_device* device, const kvc_backend_select* args, void* stream, kvc_error* error);
// In failure.cc, order.cc and step/step.cc.
kvc_status health(kvc_backend_device* device, kvc_error* error);
kvc_status check_stream(kvc_backend_device* device, void* stream, kvc_error* error);
kvc_status event_create(kvc_backend_device* device, kvc_backend_event** event, kvc_error* error);
kvc_status stream_create(kvc_backend_device* device, void** stream, kvc_error* error);
void stream_destroy(kvc_backend_device* device, void* stream);
kvc_status pin(kvc_backend_device* device, int64_t bytes, void** memory, kvc_error* error);
void unpin(kvc_backend_device* device, void* memory);
kvc_status copy_pinned(kvc_backend_device* device, void* target, const void* source, int64_t bytes, int32_t wait,
                       void* stream, kvc_error* error);
void event_destroy(kvc_backend_device* device, kvc_backend_event* event);
kvc_status event_record(kvc_backend_device* device, kvc_backend_event* event, void* stream, kvc_error* error);
kvc_status event_wait(kvc_backend_device* device, kvc_backend_event* event, void* stream, kvc_error* error);
kvc_status mirror_create(kvc_backend_device* device, const int32_t* nodes, int64_t num_nodes,
                         kvc_backend_mirror** mirror, const int32_t** on_device, kvc_error* error);
void mirror_destroy(kvc_backend_device* device, kvc_backend_mirror* mirror);
kvc_status step_create(kvc_backend_device* device, const kvc_backend_step_limits* limits, kvc_backend_step** step,
                       void** arrays, kvc_error* error);
void step_destroy(kvc_backend_device* device, kvc_backend_step* step);
kvc_status stage(kvc_backend_device* device, kvc_backend_step* step, const kvc_backend_stage* args, void* stream,
                 kvc_error* error);
kvc_status stage_plan(kvc_backend_device* device, kvc_backend_step* step, kvc_backend_plan* plan, void* stream,
                      kvc_error* error);
kvc_status unstage(kvc_backend_device* device, kvc_backend_step* step, void* stream, kvc_error* error);
// In step/call_step.cc.
kvc_status begin_call(kvc_backend_device* device, kvc_backend_array* arrays, int32_t num_arrays, kvc_backend_plan* plan,
                      void* stream, const kvc_backend_step** step, kvc_error* error);
kvc_status end_call(kvc_backend_device* device, const kvc_backend_step* step, void* stream, kvc_error* error);
// In scratch.cc, plan/flash.cu and plan/tables.cu. Only an asynchronous device needs these functions.
kvc_status take_scratch_of(Device& device, int64_t bytes, void* stream, void** memory, kvc_error* error);
kvc_status take_scratch(kvc_backend_device* device, int64_t bytes, void* stream, void** memory, kvc_error* error);
kvc_status give_scratch(kvc_backend_device* device, void* memory, void* stream, kvc_error* error);
kvc_status plan_flash(kvc_backend_device* device, const kvc_backend_flash_plan* args, void* stream, kvc_error* error);
kvc_status plan_tables(kvc_backend_device* device, const kvc_backend_table_plan* args, void* stream, kvc_error* error);
int32_t take_fault(kvc_backend_device* device, kvc_backend_fault* fault);  // in faults.cc
// In attend/common/attend.cu: returns cudaSuccess if the device can run the compiled code.
cudaError_t find_kernel_image();
// In attend/wgmma/launch.cu. has_wgmma_image: whether the device can run the warpgroup kernels. use_wgmma: makes the
// device use them, if the driver can make tensor maps.
bool has_wgmma_image();
kvc_status use_wgmma(Device* device, kvc_error* error);

}  // namespace kvc::kernels::cuda
