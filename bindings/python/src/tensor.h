// kvcache.Tensor: memory of the library (page pools, exports) as a DLPack exporter.
//
// Ownership: a Tensor and every capsule made from it share one DLManagedTensorVersioned; its deleter runs when the last
// of them goes, on any thread, without the GIL, also after the cache or the interpreter is gone.
#pragma once

#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "work.h"

namespace kvcpy {

namespace nb = nanobind;

// Bytes of a compact array; -1 if a dimension is negative or int64 does not hold their number.
int64_t compact_bytes(DLDataType dtype, const std::vector<int64_t>& shape);

class Tensor {
 public:
  // Adopts `tensor`, which is written by what was put on `work`'s stream so far.
  Tensor(DLManagedTensorVersioned* tensor, const Work& work) : managed_(tensor, release), work_(work) {}

  // A zeroed, compact CPU tensor, 256-byte aligned. Throws std::bad_alloc, also if the size overflows.
  static Tensor zeros(DLDataType dtype, const std::vector<int64_t>& shape);
  // A read-only view of `tensor`, whose memory `owner` keeps alive. Shape and strides are copied.
  static Tensor view_of(const DLTensor& tensor, std::shared_ptr<void> owner, const Work& work);

  const DLTensor& view() const { return managed_->dl_tensor; }
  bool readonly() const { return (managed_->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0; }

  // Python's array protocols.
  nb::object dlpack(nb::handle stream, nb::handle max_version, nb::handle dl_device, nb::handle copy) const;
  // A numpy array over the same memory. `self` is this object's Python object, kept alive by the array.
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
