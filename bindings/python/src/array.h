// Borrows array arguments of calls as DLTensor, and makes new output arrays of the caller's library.
//
// An array is borrowed in the cheapest way that it offers: by the C exchange table of its type (PyTorch), by DLPack, or
// by the buffer protocol. numpy does not export its extension types (bfloat16, float8), so they are borrowed through a
// view with an integer type. No array is copied. On a GPU, the exchange table is used if the current stream of the
// array's library is the stream of the call. Otherwise the array is borrowed by DLPack, with the stream of the call.
#pragma once

#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <vector>

#include "work.h"

namespace kvcpy {

namespace nb = nanobind;

// The library to which the type of an array belongs. It decides the type of a new output.
enum class ArrayKind { kNumpy, kTorch, kCupy, kJax, kOther };

ArrayKind array_kind(nb::handle array);

// Returns whether an array reports that it lies on `device`.
bool lies_on(nb::handle array, DLDevice device);

// Returns the default device of a call over `array`: the GPU of the array, or the CPU.
DLDevice compute_device(nb::handle array);

// Returns the current stream of the array's library; NULL if the library has no current stream.
void* current_stream(nb::handle array, DLDevice device);

inline void release_managed(DLManagedTensorVersioned* tensor) {
  if (tensor->deleter) tensor->deleter(tensor);
}

// One array argument of a call, borrowed until this object is destroyed. Not movable, because tensor_ points to
// members.
class ArrayArgument {
 public:
  ArrayArgument() = default;
  ArrayArgument(const ArrayArgument&) = delete;
  ArrayArgument& operator=(const ArrayArgument&) = delete;

  // Borrows `array` for reading, or for writing. `name` is for messages. `integers_as`: the element type that unsigned
  // integers of its width stand for (kNoDtype: none). `work`: of the call. Raises TypeError for an object that is no
  // array, and a kvcache error for an output that cannot be written and for an array of another device.
  void read(nb::handle array, const char* name, DLDataType integers_as, Work& work);
  void write(nb::handle array, const char* name, DLDataType integers_as, Work& work);

  // NULL while nothing was borrowed.
  const DLTensor* tensor() const { return borrowed_ ? &tensor_ : nullptr; }

 private:
  static constexpr int32_t kMaxDims = 8;

  bool import(nb::handle array, bool writable);
  void adopt(const DLTensor& tensor, const char* name, DLDataType integers_as);
  void borrow(nb::handle array, const char* name, DLDataType integers_as, bool writable, Work& work);
  void borrow_on_host(nb::handle array, const char* name, DLDataType integers_as, bool writable);
  void borrow_on_device(nb::handle array, const char* name, DLDataType integers_as, bool writable, Work& work);

  DLTensor tensor_{};
  int64_t shape_[kMaxDims], strides_[kMaxDims];  // copies, which the caller cannot change during the call
  bool borrowed_ = false;
  nb::object detached_;           // the detached tensor, if the argument requires a gradient
  nb::ndarray<nb::ro> readable_;  // this member, writable_ or managed_ keeps the memory alive
  nb::ndarray<> writable_;
  std::unique_ptr<DLManagedTensorVersioned, void (*)(DLManagedTensorVersioned*)> managed_{nullptr, release_managed};
};

// The element type of a new output: that of an input, or a fixed type.
enum class OutputType { kAsInput, kFloat32, kInt32 };

// Makes a zeroed array of the library and the device of `like`, which a call then writes. JAX arrays are immutable, so
// for JAX it is a kvcache.Tensor, which finish_output converts to a JAX array. Raises Shape if the array would have
// 2^63 bytes or more. This can happen, because `shape` comes from the caller's arrays, which may repeat one element any
// number of times.
nb::object new_output(nb::handle like, const DLTensor& like_tensor, const std::vector<int64_t>& shape, OutputType type,
                      Work& work);
nb::object finish_output(nb::handle like, nb::object output);

// Takes the memory of an exporter, so that the library can adopt it. If the library does not adopt it, the caller calls
// its deleter. `integers_as` and `work` are as in ArrayArgument::read.
DLManagedTensorVersioned* take_storage(nb::handle exporter, const char* name, DLDataType integers_as, Work& work);

}  // namespace kvcpy
