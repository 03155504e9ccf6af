// kvcache.Tensor: memory of the library (page pools, exports) as a DLPack exporter.
//
// Ownership: a Tensor and every capsule made from it share one DLManagedTensorVersioned. Its deleter runs when the last
// of them is destroyed. This may be on any thread, with or without the GIL, and after the end of the cache or of the
// interpreter.
#pragma once

#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "work.h"

namespace kvcpy {

namespace nb = nanobind;

// Returns the number of bytes of a compact array; -1 if a dimension is negative, or if int64_t is too small for the
// number.
int64_t compact_bytes(DLDataType dtype, const std::vector<int64_t>& shape);

class Tensor {
 public:
  // Adopts `tensor`. Its bytes are written by work that is already enqueued on the stream of `work`.
  Tensor(DLManagedTensorVersioned* tensor, const Work& work) : managed_(tensor, release), work_(work) {}

  // Returns a zeroed, compact CPU tensor, aligned to 256 bytes. Throws std::bad_alloc, also if the size overflows.
  static Tensor zeros(DLDataType dtype, const std::vector<int64_t>& shape);
  // Returns a read-only view of `tensor`, whose memory `owner` keeps alive. Shape and strides are copied.
  static Tensor view_of(const DLTensor& tensor, std::shared_ptr<void> owner, const Work& work);

  const DLTensor& view() const { return managed_->dl_tensor; }
  bool readonly() const { return (managed_->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0; }

  // Python's array protocols.
  nb::object dlpack(nb::handle stream, nb::handle max_version, nb::handle dl_device, nb::handle copy) const;
  // Returns a numpy array over the same memory. The array keeps `self`, the Python object of a Tensor, alive.
  static nb::object numpy(nb::handle self);

  static void bind(nb::module_& module);

 private:
  static void release(DLManagedTensorVersioned* tensor) {
    if (tensor->deleter) tensor->deleter(tensor);
  }
  template <typename Managed>
  nb::object make_capsule() const;

  std::shared_ptr<DLManagedTensorVersioned> managed_;
  Work work_;
};

}  // namespace kvcpy
