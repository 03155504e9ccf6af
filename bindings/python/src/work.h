// Work: the device of a call and, on a GPU, its stream. It also records the other streams from which the call took
// arrays.
#pragma once

#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>

#include <vector>

namespace kvcpy {

namespace nb = nanobind;

// Arrays are taken by DLPack's protocol: the producer of an array gets the stream of the call, and makes the array
// ready on this stream. If the current stream of the array's library is the stream of the call, nothing must be done.
// After the call, hand_back() makes the streams of the other libraries wait for the call. So the results are ready on
// these streams, and memory of arguments that were freed is not reused too early.
class Work {
 public:
  Work() = default;  // on the CPU
  // Returns the Work of a call without arrays, or of a call over `array`. If `stream` is None, takes the current stream
  // of the array's library. Without an array, takes the current stream of PyTorch if PyTorch uses CUDA, else that of
  // CuPy. Takes the default stream if there is no such library.
  static Work on(DLDevice device, nb::handle stream, nb::handle array = nb::handle());

  DLDevice device() const { return device_; }
  bool on_host() const { return device_.device_type == kDLCPU; }
  void* stream() const { return stream_; }  // NULL: the legacy default stream

  // Returns the stream as an argument of __dlpack__.
  nb::object dlpack_stream() const;
  // Makes `stream`, an argument of __dlpack__, wait for the work that was enqueued on this stream so far.
  void make_wait(nb::handle stream) const;

  // Record that an array was taken from a library that works on the stream `theirs`, or on unknown streams.
  void took_from(void* theirs);
  void took_from_unknown() { finish_ = true; }
  void hand_back();

 private:
  DLDevice device_ = {kDLCPU, 0};
  void* stream_ = nullptr;
  std::vector<void*> behind_;  // streams other than stream_ that must wait for the call
  bool finish_ = false;        // whether hand_back makes the host wait for the call
};

// Returns the stream with a number. CUDA has two numbers for the legacy default stream, 0 and 1. Here it is NULL.
inline void* stream_of(uintptr_t number) { return reinterpret_cast<void*>(number == 1 ? 0 : number); }

}  // namespace kvcpy
