// Functions for tests of bindings and for benchmarks, beside the table of the plug-in, for ctypes: streams that calls
// can be given, copies and waits on them, graphs of them, and whether the device is late.
#include "cuda_runtime.h"

namespace {
// A stream by the number that a binding has for it. 1 is the default stream, as 0 is.
cudaStream_t stream_of(void* stream) {
  return stream == reinterpret_cast<void*>(1) ? nullptr : static_cast<cudaStream_t>(stream);
}
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void* emulation_stream() {
  cudaStream_t stream = nullptr;
  cudaStreamCreate(&stream);
  return stream;
}
EXPORT void emulation_destroy(void* stream) { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }
EXPORT void emulation_copy(void* target, const void* source, size_t bytes, void* stream) {
  cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream_of(stream));
}
// Stream `then` waits for all that was enqueued on `first` so far.
EXPORT void emulation_order(void* first, void* then) {
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cudaEventRecord(event, stream_of(first));
  cudaStreamWaitEvent(stream_of(then), event, 0);  // the event is not destroyed, because a queued wait may need it
}
EXPORT void emulation_synchronize() { cudaDeviceSynchronize(); }
EXPORT void emulation_defer(int on) { cuda_emulation::defer(on != 0); }
EXPORT void emulation_set_multiprocessors(int count) { cuda_emulation::set_multiprocessors(count); }
EXPORT void emulation_begin_capture(void* stream) {
  cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeGlobal);
}
// Makes a graph, which is never destroyed.
EXPORT void* emulation_end_capture(void* stream) {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream_of(stream), &graph);
  return graph;
}
EXPORT void emulation_launch(void* graph, void* stream) {
  cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream));
}
// The n-th call from now on fails with `error` (a cudaError_t). If the error is sticky, all later calls do too.
EXPORT void emulation_fail(int64_t n, int error) { cuda_emulation::fail_call(n, error); }
