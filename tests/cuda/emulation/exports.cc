// What tests of bindings need of the emulated device: streams that a plug-in's calls can be given, copies and waits on
// them, graphs of them, and the device late or not. Functions of the plug-in beside its table, for ctypes.
#include "cuda_runtime.h"

namespace {
// A stream as a binding names it: 1 is the default stream too.
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
// Stream `then` waits for what was put on `first` so far.
EXPORT void emulation_order(void* first, void* then) {
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cudaEventRecord(event, stream_of(first));
  cudaStreamWaitEvent(stream_of(then), event, 0);  // events stay: their waits may be queued
}
EXPORT void emulation_synchronize() { cudaDeviceSynchronize(); }
EXPORT void emulation_defer(int on) { cuda_emulation::defer(on != 0); }
EXPORT void emulation_begin_capture(void* stream) {
  cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeGlobal);
}
// A graph, which stays.
EXPORT void* emulation_end_capture(void* stream) {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream_of(stream), &graph);
  return graph;
}
EXPORT void emulation_launch(void* graph, void* stream) {
  cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream));
}
// The n-th call from now on, and if that error stays all after it, fails with `error`, of cudaError_t.
EXPORT void emulation_fail(int64_t n, int error) { cuda_emulation::fail_call(n, error); }
