// The open CUDA device. Its functions may be called by any threads at once: what changes (the upload ring) has a lock.
// Work is enqueued on the caller's stream, in the device's primary context (current.h); nothing here waits for the
// device but a full upload ring (step/upload.h).
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
#include "kernels/cuda/step/call_step.h"
#include "kernels/cuda/step/upload.h"
#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

struct Device {
  int ordinal = 0;
  PrimaryContext context = {};
  cudaStream_t setup = nullptr;  // what allocations and tables of a cache are written on
  int multiprocessors = 0;
  int shared_of_block = 0, shared_of_multiprocessor = 0;  // bytes; of a block that asks for as much as it may have
  bool simple = false;     // attention without tensor cores: "sm_90_simple" was asked for
  bool has_wgmma = false;  // the device has warpgroup products, and the backend was built for them
  void* encode_map =
      nullptr;  // the driver's cuTensorMapEncodeTiled, if attention uses them: "sm_90_wgmma" was asked for
  BlockCut many = kManyRows;  // how blocks of many rows are cut
  int num_names = 2;
  char names[3][20] = {};  // "sm_90_simple", "sm_90", and "sm_90_wgmma" where it can run
  Upload upload = {};
  CallStep calls[Upload::kSlots] = {};  // of calls that have a slot of the ring to themselves
  // The first error after which nothing works any more on the device (a kernel's bad address, say), and who met it.
  std::atomic<int> failure{cudaSuccess};
  char failed_call[128] = "";
  Scratch scratch = {};
  Faults faults = {};
};

inline Device* device_of(kvc_backend_device* device) { return reinterpret_cast<Device*>(device); }

// KVC_OK, or OUT_OF_MEMORY or DEVICE_FAILED with the error's name, the call and what it was for: a kernel, say. Within
// a CurrentDevice an error that is there to stay becomes the device's.
kvc_status check(cudaError_t result, const char* call, const char* purpose, kvc_error* error);

// The capture that the stream is in, or 0. what: "a forward begins". ORDER, of the NULL stream, if a stream that waits
// for it is being captured: nothing can be enqueued there then.
kvc_status capture_of(void* stream, const char* what, unsigned long long* capture, kvc_error* error);
// ORDER, if the stream is being captured: what is not to be replayed.
kvc_status check_not_captured(void* stream, const char* what, kvc_error* error);

// Of a call that may wait (when a cache is made, say): the target is written, for every stream, when it returns.
kvc_status copy_and_wait(Device& device, void* target, const void* source, int64_t bytes, const char* purpose,
                         kvc_error* error);

// Enqueues a kernel, by value of its parameters. name: for messages.
template <class... Parameters, class... Arguments>
kvc_status launch(const char* name, void* stream, dim3 grid, unsigned threads, size_t shared_bytes, kvc_error* error,
                  void (*kernel)(Parameters...), const Arguments&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = {threads, 1, 1};
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  return check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "cudaLaunchKernelEx", name, error);
}

// Blocks of so many threads for n of them; at least one, at most what a grid can have.
inline unsigned blocks_for(int64_t n, int64_t threads) {
  const int64_t blocks = (n + threads - 1) / threads;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > INT32_MAX ? INT32_MAX : blocks);
}

// In layer.cc, memory.cc and the .cu file of each.
#include "kernels/common/backend_functions.inl.h"
// failure.cc, order.cc, step.cc.
kvc_status health(kvc_backend_device* device, kvc_error* error);
kvc_status check_stream(kvc_backend_device* device, void* stream, kvc_error* error);
kvc_status event_create(kvc_backend_device* device, kvc_backend_event** event, kvc_error* error);
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
// step/call_step.cc.
kvc_status begin_call(kvc_backend_device* device, kvc_backend_array* arrays, int32_t num_arrays, kvc_backend_plan* plan,
                      void* stream, const kvc_backend_step** step, kvc_error* error);
kvc_status end_call(kvc_backend_device* device, const kvc_backend_step* step, void* stream, kvc_error* error);
// In scratch.cc, plan/flash.cu and plan/tables.cu: of a device that works later than the host.
kvc_status take_scratch(kvc_backend_device* device, int64_t bytes, void* stream, void** memory, kvc_error* error);
kvc_status give_scratch(kvc_backend_device* device, void* memory, void* stream, kvc_error* error);
kvc_status plan_flash(kvc_backend_device* device, const kvc_backend_flash_plan* args, void* stream, kvc_error* error);
kvc_status plan_tables(kvc_backend_device* device, const kvc_backend_table_plan* args, void* stream, kvc_error* error);
int32_t take_fault(kvc_backend_device* device, kvc_backend_fault* fault);  // faults.cc
// attend/common/attend.cu: whether the device runs what was compiled.
cudaError_t find_kernel_image();
// attend/wgmma/launch.cu: whether that has the kernel of warpgroup products; and makes the device use it.
bool has_wgmma_image();
kvc_status use_wgmma(Device* device, kvc_error* error);

}  // namespace kvc::kernels::cuda
