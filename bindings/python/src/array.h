// Array arguments: whatever Python hands over, as a borrowed DLTensor; and new output arrays of the caller's kind.
//
// Ways in, the cheapest that an object offers: the C exchange table of its type (PyTorch), DLPack, the buffer protocol,
// and for numpy's extension types (bfloat16, float8), which numpy refuses to export, an integer view. Never a copy.
// On a GPU: the exchange table if the library's current stream is the call's, else DLPack with the call's stream.
#pragma once

#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <vector>

#include "work.h"

namespace kvcpy {

namespace nb = nanobind;

// Whose arrays an object's type belongs to: decides what a new output is.
enum class ArrayKind { kNumpy, kTorch, kCupy, kJax, kOther };

ArrayKind array_kind(nb::handle array);

// Whether an array says that it lies on `device`.
bool lies_on(nb::handle array, DLDevice device);

// Where a call over `array` computes if nothing else is said: on the array's GPU, else on the CPU.
DLDevice compute_device(nb::handle array);

// The stream that an array's library works on now; NULL where it has no such notion.
void* current_stream(nb::handle array, DLDevice device);

inline void release_managed(DLManagedTensorVersioned* tensor) {
  if (tensor->deleter) tensor->deleter(tensor);
}

// One array argument of a call, borrowed while this object lives. Not movable: the DLTensor may point into it.
class ArrayArgument {
 public:
  ArrayArgument() = default;
  ArrayArgument(const ArrayArgument&) = delete;
  ArrayArgument& operator=(const ArrayArgument&) = delete;

  // Borrows `array` for reading, or for writing. `name` is for messages. `integers_as`: the element type that unsigned
  // integers of its width stand for (kNoDtype: none). `work`: of the call. Raises TypeError for what is no array, and a
  // kvcache error for an output that cannot be written and for an array of another device.
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
  int64_t shape_[kMaxDims], strides_[kMaxDims];  // copies: nothing that the caller changes during the call is in them
  bool borrowed_ = false;
  nb::object detached_;           // what was borrowed instead of a tensor that requires a gradient
  nb::ndarray<nb::ro> readable_;  // what keeps the memory alive
  nb::ndarray<> writable_;
  std::unique_ptr<DLManagedTensorVersioned, void (*)(DLManagedTensorVersioned*)> managed_{nullptr, release_managed};
};

// The element type of a new output: that of the array that it is like, or one of its own.
enum class OutputType { kAsInput, kFloat32, kInt32 };

// A zeroed array of `like`'s kind and device, to be written by a call. For jax, whose arrays
// are immutable, a kvcache.Tensor that finish_output converts to one. Raises Shape if the array would have more than
// 2^63 bytes: `shape` comes from the caller's arrays, which may repeat one element any number of times.
nb::object new_output(nb::handle like, const DLTensor& like_tensor, const std::vector<int64_t>& shape, OutputType type,
                      Work& work);
nb::object finish_output(nb::handle like, nb::object output);

// Takes an exporter's memory for good, to be adopted by the library; the caller calls its deleter if that fails.
// `integers_as` and `work` as above.
DLManagedTensorVersioned* take_storage(nb::handle exporter, const char* name, DLDataType integers_as, Work& work);

}  // namespace kvcpy
