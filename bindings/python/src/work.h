// Where a call computes: a device, on a GPU also a stream, and whose arrays it took from other streams.
#pragma once

#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>

#include <vector>

namespace kvcpy {

namespace nb = nanobind;

// Arrays are handed over by DLPack's protocol: a producer is told the call's stream and makes its array ready there.
// Those of a library whose current stream is the call's need nothing. hand_back(), after the call, makes the others'
// streams wait for it: the results are ready there, and memory of arguments that are gone is not used again too early.
class Work {
 public:
  Work() = default;  // on the CPU
  // Of a call without arrays, or over `array`. `stream` None: the current stream of the array's library, without an
  // array that of PyTorch where it computes on CUDA, else CuPy's; the default stream where there is none.
  static Work on(DLDevice device, nb::handle stream, nb::handle array = nb::handle());

  DLDevice device() const { return device_; }
  bool on_host() const { return device_.device_type == kDLCPU; }
  void* stream() const { return stream_; }  // NULL: the legacy default stream

  // As __dlpack__ takes it.
  nb::object dlpack_stream() const;
  // Makes `stream`, as __dlpack__ takes it, wait for what this one was given so far.
  void make_wait(nb::handle stream) const;

  // An array was taken whose library works on `theirs`; or on streams without a name.
  void took_from(void* theirs);
  void took_from_unknown() { finish_ = true; }
  void hand_back();

 private:
  DLDevice device_ = {kDLCPU, 0};
  void* stream_ = nullptr;
  std::vector<void*> behind_;  // streams other than stream_
  bool finish_ = false;        // the host waits
};

// The stream that a number means: CUDA's second name of the legacy default stream, 1, is NULL.
inline void* stream_of(uintptr_t number) { return reinterpret_cast<void*>(number == 1 ? 0 : number); }

}  // namespace kvcpy
