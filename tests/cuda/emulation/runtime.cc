// The runtime on the host: memory, streams, events, graphs, errors.
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "cuda_runtime.h"

using cuda_emulation::Counts;
using cuda_emulation::Machine;

struct Operation {
  std::function<void()> run;
  CudaEvent* waits_for = nullptr;
  uint64_t ticket = 0;  // of the event's record
  uint64_t number = 0;  // of all operations
};
struct CudaGraph {
  unsigned long long id = 0;
  bool invalid = false;  // a forbidden call made the capture invalid
  std::vector<std::function<void()>> operations;
};
struct CudaStream {
  std::deque<Operation> queue;
  CudaGraph* capture = nullptr;
  unsigned long long id = 0;
  bool blocking = true;  // it and the NULL stream wait for each other; the emulation only checks what that forbids
};
struct CudaEvent {
  uint64_t recorded = 0, reached = 0;
};

namespace {

// One lock for everything, because tests call from several threads.
std::recursive_mutex mutex;
unsigned order = cuda_emulation::kAtOnce;
std::mt19937 random_choice;
Machine machine = Machine::kWorks;
Counts total = {};
uint64_t operations = 0;
std::atomic<int64_t> products{0}, warpgroup_products{0};
constexpr int registers_of_kernel = 168;
int shared_of_block = 227 * 1024, shared_of_multiprocessor = 228 * 1024, shared_of_image = 0, multiprocessors = 4;
std::map<const void*, size_t> shared_of_kernel;  // of kernels that requested more than 48 KiB
CudaStream default_stream;
std::vector<CudaStream*> streams = {&default_stream};  // in the order in which they were made
std::vector<CudaStream*> handles;                      // of destroyed streams: the next streams have them
unsigned long long ids = 0;                            // of all streams so far
int64_t calls_made = 0, failing_call = 0;
cudaError_t failure = cudaSuccess;
bool lost = false;               // by a sticky error
cudaError_t last = cudaSuccess;  // that cudaGetLastError has not returned yet

CudaStream* resolve(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy) return &default_stream;
  if (stream != cudaStreamPerThread) return stream;
  thread_local CudaStream* own = nullptr;  // it outlives its thread, because its queued operations must run
  if (own == nullptr) {
    own = new CudaStream;
    own->id = ++ids;
    streams.push_back(own);
  }
  return own;
}

// Whether `stream` is the NULL stream while that cannot be used.
bool is_forbidden(cudaStream_t stream) {
  return stream == nullptr && std::any_of(streams.begin(), streams.end(), [](const CudaStream* other) {
           return other != &default_stream && other->blocking && other->capture != nullptr;
         });
}

// The errors that, by driver_types.h, every later call returns too, and two errors after which no later result can be
// trusted.
bool is_sticky(cudaError_t error) {
  return (error >= cudaErrorIllegalAddress && error <= cudaErrorTensorMemoryLeak) || error == cudaErrorContained ||
         error == cudaErrorMpsClientTerminated || error == cudaErrorExternalDevice ||
         error == cudaErrorECCUncorrectable || error == cudaErrorNvlinkUncorrectable || error == cudaErrorUnknown;
}

// The error of this call on a device, if it fails.
cudaError_t fault() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  cuda_emulation::need_context();
  return cuda_emulation::count_call();
}

bool can_run(const CudaStream* stream) {
  if (stream->queue.empty()) return false;
  const Operation& operation = stream->queue.front();
  return operation.waits_for == nullptr || operation.waits_for->reached >= operation.ticket;
}

// The stream whose next operation runs, or null.
CudaStream* choose() {
  std::vector<CudaStream*> able;
  std::copy_if(streams.begin(), streams.end(), std::back_inserter(able), can_run);
  if (able.empty()) return nullptr;
  if (order >= cuda_emulation::kRandom) return able[random_choice() % able.size()];
  if (order != cuda_emulation::kNewestFirst) return able.front();
  return *std::max_element(able.begin(), able.end(), [](const CudaStream* a, const CudaStream* b) {
    return a->queue.front().number < b->queue.front().number;
  });
}

// Runs one operation; false if none can run.
bool step() {
  CudaStream* const stream = choose();
  if (stream == nullptr) return false;
  const Operation operation = stream->queue.front();
  stream->queue.pop_front();
  if (operation.run && !lost) operation.run();
  return true;
}

void drain() {
  while (step()) {
  }
}

cudaError_t enqueue(cudaStream_t on, Operation operation) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (is_forbidden(on)) return cudaErrorStreamCaptureImplicit;
  CudaStream* const stream = resolve(on);
  if (stream->capture != nullptr) {
    if (operation.waits_for != nullptr) return cudaErrorStreamCaptureIsolation;
    stream->capture->operations.push_back(std::move(operation.run));
    return cudaSuccess;
  }
  operation.number = ++operations;
  stream->queue.push_back(std::move(operation));
  if (order == cuda_emulation::kAtOnce) drain();
  return cudaSuccess;
}

// Captures are global. While one is open, calls that may wait for the device or allocate on it are forbidden to all
// threads, except those that have relaxed this. Such a call also makes the capture invalid.
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
bool spoils_capture() {
  if (capture_mode == cudaStreamCaptureModeRelaxed) return false;
  bool any = false;
  for (const CudaStream* stream : streams) {
    if (stream->capture == nullptr) continue;
    any = stream->capture->invalid = true;
  }
  return any;
}

}  // namespace

namespace cuda_emulation {

cudaError_t count_call() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  ++calls_made;
  if (lost) return failure;
  if (calls_made != failing_call) return cudaSuccess;
  lost = is_sticky(failure);
  last = failure;
  return failure;
}

int launch(void* stream, dim3 grid, dim3 size, size_t shared_bytes, std::function<void()> thread) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (const cudaError_t failed = fault(); failed != cudaSuccess) return failed;
  constexpr unsigned kMostX = 0x7fffffff, kMostYZ = 65535, kMostThreads = 1024;
  const auto is_within = [](unsigned n, unsigned most) { return n >= 1 && n <= most; };
  if (!is_within(grid.x, kMostX) || !is_within(grid.y, kMostYZ) || !is_within(grid.z, kMostYZ) ||
      !is_within(size.x, kMostThreads)) {
    return cudaErrorInvalidConfiguration;
  }
  ++total.launches;
  return enqueue(static_cast<cudaStream_t>(stream), {[=] { run_grid(grid, size, shared_bytes, thread); }});
}
void set_order(unsigned next) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  drain();
  order = next;
  random_choice.seed(next);
}
void set_machine(Machine next) { machine = next; }
void set_multiprocessors(int count) { multiprocessors = count; }
void fail_call(int64_t n, int error) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  lost = false;
  last = cudaSuccess;
  calls_made = 0;
  failing_call = n;
  failure = static_cast<cudaError_t>(error);
}
int64_t calls() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  return calls_made;
}
Counts counts() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  total.products = products;
  total.warpgroup_products = warpgroup_products;
  return total;
}
void count_product() {
  if (lane() == 0) ++products;
}
void count_warpgroup_product() { ++warpgroup_products; }
void check_shared(const void* kernel, size_t bytes) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const auto found = shared_of_kernel.find(kernel);
  if (bytes > (found == shared_of_kernel.end() ? 48 * 1024 : found->second)) {
    die("more shared memory than was asked for");
  }
}
void set_shared(int bytes_of_block, int bytes_of_multiprocessor, int bytes_of_image) {
  shared_of_kernel.clear();
  shared_of_block = bytes_of_block;
  shared_of_multiprocessor = bytes_of_multiprocessor;
  shared_of_image = bytes_of_image;
}

}  // namespace cuda_emulation

// Returns the error from the calling function if this is the call that must fail.
#define KVC_FAULT_OF(call)                                 \
  const std::lock_guard<std::recursive_mutex> lock(mutex); \
  if (const cudaError_t failed = call; failed != cudaSuccess) return failed
#define KVC_FAULT() KVC_FAULT_OF(fault())

const char* cudaGetErrorName(cudaError_t error) {
#define KVC_NAME(name) \
  case name:           \
    return #name
  switch (error) {
    KVC_NAME(cudaSuccess);
    KVC_NAME(cudaErrorInvalidValue);
    KVC_NAME(cudaErrorInvalidConfiguration);
    KVC_NAME(cudaErrorMemoryAllocation);
    KVC_NAME(cudaErrorInitializationError);
    KVC_NAME(cudaErrorNvlinkUncorrectable);
    KVC_NAME(cudaErrorContextIsDestroyed);
    KVC_NAME(cudaErrorStreamCaptureImplicit);
    KVC_NAME(cudaErrorInsufficientDriver);
    KVC_NAME(cudaErrorInvalidDeviceFunction);
    KVC_NAME(cudaErrorNoDevice);
    KVC_NAME(cudaErrorInvalidDevice);
    KVC_NAME(cudaErrorInvalidKernelImage);
    KVC_NAME(cudaErrorNoKernelImageForDevice);
    KVC_NAME(cudaErrorUnsupportedPtxVersion);
    KVC_NAME(cudaErrorNotReady);
    KVC_NAME(cudaErrorIllegalAddress);
    KVC_NAME(cudaErrorLaunchTimeout);
    KVC_NAME(cudaErrorAssert);
    KVC_NAME(cudaErrorHardwareStackError);
    KVC_NAME(cudaErrorIllegalInstruction);
    KVC_NAME(cudaErrorMisalignedAddress);
    KVC_NAME(cudaErrorInvalidAddressSpace);
    KVC_NAME(cudaErrorInvalidPc);
    KVC_NAME(cudaErrorLaunchFailure);
    KVC_NAME(cudaErrorTensorMemoryLeak);
    KVC_NAME(cudaErrorMpsClientTerminated);
    KVC_NAME(cudaErrorECCUncorrectable);
    KVC_NAME(cudaErrorContained);
    KVC_NAME(cudaErrorExternalDevice);
    KVC_NAME(cudaErrorStreamCaptureUnsupported);
    KVC_NAME(cudaErrorStreamCaptureInvalidated);
    KVC_NAME(cudaErrorStreamCaptureIsolation);
    KVC_NAME(cudaErrorUnknown);
  }
  return "unknown";
#undef KVC_NAME
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cudaGetLastError() { return lost ? failure : std::exchange(last, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) {
  KVC_FAULT_OF(cuda_emulation::count_call());  // no context is made
  *count = machine == Machine::kWorks || machine == Machine::kOtherArch ? cuda_emulation::num_devices() : 0;
  if (machine == Machine::kNoDriver) return cudaErrorInsufficientDriver;
  return machine == Machine::kNoDevice ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  KVC_FAULT_OF(cuda_emulation::count_call());  // no context is made
  *value = attribute == cudaDevAttrMultiProcessorCount                ? multiprocessors
           : attribute == cudaDevAttrComputeCapabilityMajor           ? 9
           : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin     ? shared_of_block
           : attribute == cudaDevAttrMaxSharedMemoryPerMultiprocessor ? shared_of_multiprocessor
                                                                      : 0;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  KVC_FAULT();
  attributes->numRegs = registers_of_kernel;
  attributes->sharedSizeBytes = static_cast<size_t>(shared_of_image);
  return machine == Machine::kOtherArch ? cudaErrorNoKernelImageForDevice : cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int bytes) {
  KVC_FAULT();
  if (bytes + shared_of_image > shared_of_block) return cudaErrorInvalidValue;
  size_t& most = shared_of_kernel[kernel];
  // The limit belongs to the kernel and not to the thread. A second thread that launches with more would fail.
  if (most > static_cast<size_t>(bytes)) cuda_emulation::die("a kernel's shared memory is lowered");
  most = static_cast<size_t>(bytes);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  KVC_FAULT();
  *blocks = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  KVC_FAULT();
  if (spoils_capture()) return cudaErrorStreamCaptureUnsupported;
  ++total.host_waits;
  drain();
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  KVC_FAULT();
  if (spoils_capture()) return cudaErrorStreamCaptureUnsupported;
  ++total.allocations;
  *memory = bytes > (size_t{1} << 40) ? nullptr : aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  ++total.held;
  memset(*memory, 0xff, std::min<size_t>(bytes, 1 << 20));  // old contents may be anything
  return cudaSuccess;
}
// cudaFree waits for the device. It also frees memory of a lost device, so a leak is one of the program itself.
cudaError_t cudaFree(void* memory) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const cudaError_t failed = fault();
  if (spoils_capture()) return cudaErrorStreamCaptureUnsupported;
  ++total.host_waits;
  drain();
  total.held -= memory != nullptr;
  free(memory);
  return failed;
}
// On memory of the device it is enqueued on the NULL stream.
cudaError_t cudaMemset(void* memory, int value, size_t bytes) { return cudaMemsetAsync(memory, value, bytes, nullptr); }
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  KVC_FAULT();
  return enqueue(stream, {[=] { memset(memory, value, bytes); }});
}
// With pageable memory it returns when the source has been read. The target may be written later, in the order of the
// NULL stream.
cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind) {
  KVC_FAULT();
  if (is_forbidden(nullptr)) return cudaErrorStreamCaptureImplicit;
  if (spoils_capture()) return cudaErrorStreamCaptureUnsupported;
  ++total.host_waits;
  drain();
  const char* const begin = static_cast<const char*>(source);
  return enqueue(nullptr, {[target, staged = std::vector<char>(begin, begin + bytes)] {
                   memcpy(target, staged.data(), staged.size());
                 }});
}
cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  KVC_FAULT();
  ++total.copies;
  cuda_emulation::count_copy(target, source, bytes);
  return enqueue(stream, {[=] { memcpy(target, source, bytes); }});
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  KVC_FAULT();
  *event = new CudaEvent;
  ++total.held;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const cudaError_t failed = fault();
  drain();
  --total.held;
  delete event;
  return failed;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  KVC_FAULT();
  if (resolve(stream)->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  const uint64_t ticket = ++event->recorded;
  return enqueue(stream, {[=] { event->reached = std::max(event->reached, ticket); }});
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  KVC_FAULT();
  if (spoils_capture()) return cudaErrorStreamCaptureUnsupported;
  return event->reached == event->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  KVC_FAULT();
  if (spoils_capture()) return cudaErrorStreamCaptureUnsupported;
  if (event->reached == event->recorded) return cudaSuccess;
  ++total.host_waits;
  while (event->reached < event->recorded && step()) {
  }
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  KVC_FAULT();
  return enqueue(stream, {nullptr, event, event->recorded});
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  KVC_FAULT();
  if (handles.empty()) handles.push_back(new CudaStream);
  *stream = handles.back();
  handles.pop_back();
  (*stream)->id = ++ids;
  (*stream)->blocking = flags != cudaStreamNonBlocking;
  streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  // What is still queued runs later, as on a device, in a stream without a handle.
  const auto place = std::find(streams.begin(), streams.end(), stream);
  if (stream->queue.empty() || lost) {
    streams.erase(place);
  } else {
    *place = new CudaStream(std::move(*stream));
  }
  *stream = {};
  handles.push_back(stream);
  return cudaSuccess;
}
CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  CudaStream* const of = resolve(stream);
  if (of->capture != nullptr) {  // as CUDA 13.0 on an H200, whatever the mode of the capture
    of->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  *id = of->id;
  return CUDA_SUCCESS;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  KVC_FAULT();
  if (is_forbidden(stream)) return cudaErrorStreamCaptureImplicit;
  if (spoils_capture()) return cudaErrorStreamCaptureUnsupported;
  ++total.host_waits;
  while (!resolve(stream)->queue.empty() && step()) {
  }
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (is_forbidden(stream)) return cudaErrorStreamCaptureImplicit;
  *status = resolve(stream)->capture != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id) {
  KVC_FAULT();
  *id = resolve(stream)->capture != nullptr ? resolve(stream)->capture->id : 0;
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(capture_mode, *mode);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (resolve(stream)->capture != nullptr) return cudaErrorInvalidValue;
  static unsigned long long captures = 0;
  resolve(stream)->capture = new CudaGraph{++captures, false, {}};
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  *graph = resolve(stream)->capture;
  resolve(stream)->capture = nullptr;
  if (*graph == nullptr) return cudaErrorInvalidValue;
  if (!(*graph)->invalid) return cudaSuccess;
  delete *graph;
  *graph = nullptr;
  return cudaErrorStreamCaptureInvalidated;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = graph;  // the emulation has one object for both
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  for (const std::function<void()>& operation : exec->operations) enqueue(stream, {operation});
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
