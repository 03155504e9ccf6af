// Array arguments: whatever Python hands over, as a borrowed DLTensor; and new output arrays of the caller's kind.
//
// Ways in, the cheapest that an object offers: the C exchange table of its type (PyTorch), DLPack, the buffer protocol,
// and for numpy's extension types (bfloat16, float8), which numpy refuses to export, an integer view. Never a copy.
#pragma once

#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <vector>

namespace kvcpy {

namespace nb = nanobind;

// Whose arrays an object's type belongs to: decides what a new output is.
enum class ArrayKind { kNumpy, kTorch, kJax, kOther };

ArrayKind array_kind(nb::handle array);

// One array argument of a call, borrowed while this object lives. Not movable: the DLTensor may point into it.
class ArrayArgument {
 public:
  ArrayArgument() = default;
  ArrayArgument(const ArrayArgument&) = delete;
  ArrayArgument& operator=(const ArrayArgument&) = delete;

  // Borrows `array` for reading, or for writing. `name` is for messages. `integers_as`: the element type that unsigned
  // integers of its width stand for (kNoDtype: none). Raises TypeError for what is no array, and a kvcache error for an
  // output that cannot be written.
  void read(nb::handle array, const char* name, DLDataType integers_as);
  void write(nb::handle array, const char* name, DLDataType integers_as);

  // NULL while nothing was borrowed.
  const DLTensor* tensor() const { return borrowed_ ? &tensor_ : nullptr; }

 private:
  static constexpr int32_t kMaxDims = 8;

  bool import(nb::handle array, bool writable);
  void adopt(const DLTensor& tensor, DLDataType integers_as);
  void borrow(nb::handle array, const char* name, DLDataType integers_as, bool writable);

  DLTensor tensor_{};
  int64_t shape_[kMaxDims], strides_[kMaxDims];  // the tensor's, unless it has more dimensions
  bool borrowed_ = false;
  nb::ndarray<nb::ro> readable_;  // what keeps the memory alive
  nb::ndarray<> writable_;
};

// A zeroed array of `like`'s kind, device and element type (or float32), to be written by a call. For jax, whose arrays
// are immutable, a kvcache.Tensor that finish_output turns into one.
nb::object new_output(nb::handle like, const DLTensor& like_tensor, const std::vector<int64_t>& shape, bool float32);
nb::object finish_output(nb::handle like, nb::object output);

// Takes an exporter's memory for good, to be adopted by the library; the caller calls its deleter if that fails.
// `integers_as` as above.
DLManagedTensorVersioned* take_storage(nb::handle exporter, const char* name, DLDataType integers_as);

}  // namespace kvcpy
